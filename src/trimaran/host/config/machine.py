"""Where on a machine files are: its platform, the home of its user, the workspace, the environment.

Pure: paths are put together, not looked at, so that a test on one platform can ask about another. `Machine.here` alone
looks around.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, final

from msgspec import Struct

from trimaran.errors import ConfigError
from trimaran.state.token_storage import data_directory


@final
class _AnyCase(dict[str, str]):
    def get(self, key: str, default: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - of the many forms, the one that is used
        return super().get(key.upper(), default)


@final
class Machine(Struct, frozen=True, kw_only=True):
    """The values that paths and variables depend on."""

    home: str
    workspace: str
    """The directory of the project, and the value of ${CLAUDE_PROJECT_DIR} (R232)."""
    environ: Mapping[str, str]
    platform: str = "linux"
    """As `sys.platform` has it: `win32`, `darwin`, else a Unix."""

    @classmethod
    def here(cls, workspace: str | os.PathLike[str] | None = None) -> Machine:
        """This machine, now. The workspace is by default the current directory."""
        try:
            home = str(Path.home())
        except RuntimeError:
            raise ConfigError("there is no home directory to look for a configuration in: set HOME") from None
        place = Path.cwd() if workspace is None else Path(workspace).expanduser().absolute()
        return cls(home=home, workspace=str(place), environ=dict(os.environ), platform=sys.platform)

    def __repr__(self) -> str:
        # Not the generated one: the environment belongs in no log.
        return f"Machine(home={self.home!r}, workspace={self.workspace!r}, platform={self.platform!r})"

    @property
    def is_windows(self) -> bool:
        return self.platform == "win32"

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables for ${NAME}; on Windows their case does not matter."""
        known = {**self.environ, "CLAUDE_PROJECT_DIR": self.workspace}
        return _AnyCase({name.upper(): value for name, value in known.items()}) if self.is_windows else known

    def path(self, *parts: str) -> PurePath:
        """A path in the manner of the platform."""
        return PureWindowsPath(*parts) if self.is_windows else PurePosixPath(*parts)

    def in_home(self, *parts: str) -> PurePath:
        """A path below the user's home."""
        return self.path(self.home, *parts)

    def in_workspace(self, *parts: str) -> PurePath:
        """A path below the workspace."""
        return self.path(self.workspace, *parts)

    def named_by(self, variable: str) -> PurePath | None:
        """The directory that a variable names. XDG: a relative path is ignored."""
        named = self.environ.get(variable, "")
        path = self.path(named)
        return path if named and path.is_absolute() else None

    @property
    def xdg_config(self) -> PurePath:
        """`$XDG_CONFIG_HOME`, or `~/.config`."""
        return self.named_by("XDG_CONFIG_HOME") or self.in_home(".config")

    @property
    def app_data(self) -> PurePath:
        """Where applications with windows keep their settings."""
        if self.is_windows:
            return self.named_by("APPDATA") or self.in_home("AppData", "Roaming")
        if self.platform == "darwin":
            return self.in_home("Library", "Application Support")
        return self.xdg_config

    @property
    def user_file(self) -> PurePath:
        """The user's `mcp.toml`: in the same place on every system (R225)."""
        return self.xdg_config / "trimaran" / "mcp.toml"

    @property
    def trust_file(self) -> PurePath:
        """The list of projects that this user trusts. It is data and no setting, so it lies beside the logins."""
        return data_directory(self.environ, self.platform, self.home) / "trusted.json"

    @property
    def project_file(self) -> PurePath:
        """The project's `mcp.toml`."""
        return self.in_workspace(".trimaran", "mcp.toml")

    @property
    def project_files(self) -> tuple[PurePath, ...]:
        """Where a person may have put the project's servers, the first that is there counts. For hosts that ask for trust."""
        return (self.project_file, self.in_workspace("mcp.toml"), self.in_workspace(".mcp.json"))

    def at_home(self, text: str) -> str:
        """The text with a leading `~` as the user's home: no shell will do that for a command."""
        if text == "~":
            return self.home
        if text.startswith("~/") or (self.is_windows and text.startswith("~\\")):
            return str(self.in_home(text[2:]))
        return text
