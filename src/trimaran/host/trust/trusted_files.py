"""The projects' `mcp.toml` files that a person has read and trusts.

A project's file starts programs with the rights of the user who opens the project, and may allow a model to use them. If
somebody else wrote it, a person must say yes first; `Host(trust=Trust())` waits for that. Trust is in one text at one place:
the file's path, and a SHA-256 of its content and of what it inherits. A changed file is a new file.

The store is `{"version": 1, "files": {path: digest}}`, mode 0600, replaced as a whole. If it is malformed, unreadable, or
writable by others, it trusts nothing: at worst, a person is asked again. So processes that write at once need no lock.

The place is the project's resolved directory and the file's name in it. Links inside the project are not followed: an
attacker's link could lead to a file that is trusted elsewhere, whose `./server` would be another program here.

`untrusted.py` has the question for the person, and the digest of a file.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final, cast, final

import msgspec

from trimaran.depth import decode_json
from trimaran.errors import ConfigError
from trimaran.files import read_file, why_not_ours

from ..config.files import write_whole
from ..config.machine import Machine

log: Final = logging.getLogger("trimaran.host")

UNTRUSTED: Final = "the project's mcp.toml is not trusted yet"
_LARGEST: Final = 1024 * 1024  # bytes; some 5000 projects
_MOST: Final = 2000  # files; the oldest are forgotten first, and asked about again


@final
class Trust:
    """The files that a person trusts, in a file of the person's own.

    Args:
        path: Where; None for `$XDG_DATA_HOME/trimaran/trusted.json` (`~/.local/share`; on Windows `%LOCALAPPDATA%`).
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path: Final = Path(Machine.here().trust_file) if path is None else Path(path).expanduser().absolute()

    def __repr__(self) -> str:
        return f"Trust({str(self.path)!r})"

    def is_trusted(self, file: str, digest: str) -> bool:
        """Whether the person trusts this file with this content, by `trust_digest`."""
        return bool(digest) and self.files().get(_place(file)) == digest

    def add(self, file: str, digest: str) -> None:
        """Trust this file with its present content.

        Raises:
            ConfigError: that cannot be kept.
        """
        known = self.files()
        known.pop(_place(file), None)
        self._write({**known, _place(file): digest})

    def remove(self, file: str) -> bool:
        """Stop trusting this file. Returns whether it was trusted, with any content.

        Raises:
            ConfigError: that cannot be kept.
        """
        known = self.files()
        if known.pop(_place(file), None) is None:
            return False
        self._write(known)
        return True

    def files(self) -> dict[str, str]:
        """The trusted files, and the digest of each."""
        try:
            status = os.stat(self.path)
            if wrong := _suspicion(status):
                log.warning("%s is not believed: %s; no project is trusted", self.path, wrong)
                return {}
            stored: Any = decode_json(read_file(self.path, _LARGEST))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            log.warning("%s cannot be read, so no project is trusted: %s", self.path, reason)
            return {}
        files: Any = cast("dict[str, Any]", stored).get("files") if isinstance(stored, dict) else None
        if not isinstance(files, dict):
            log.warning("%s is not a list of trusted files, so no project is trusted", self.path)
            return {}
        return {file: digest for file, digest in cast("dict[str, Any]", files).items() if isinstance(digest, str)}

    def _write(self, files: dict[str, str]) -> None:
        newest = dict(list(files.items())[-_MOST:])
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = msgspec.json.format(msgspec.json.encode({"version": 1, "files": newest}))
            write_whole(self.path, text + b"\n")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"which projects are trusted cannot be kept in {self.path}: {why}") from None


def _place(file: str) -> str:
    """The canonical path of a project's file, `<project>/.trimaran/mcp.toml`."""
    folder, name = os.path.split(Path(file).absolute())
    project, inner = os.path.split(folder)
    inside = os.path.join(os.path.realpath(project), inner) if inner != os.pardir else os.path.realpath(folder)
    return os.path.normcase(os.path.join(inside, name))


def _suspicion(status: os.stat_result) -> str:
    if status.st_size > _LARGEST:
        return f"it is larger than {_LARGEST >> 20} MiB"
    return why_not_ours(status)
