"""The programs that keep servers in files of their own: where the files are, and in which form.

Pure. Taken from the programs' documents and sources in 2026; where a program has no file for a project, it has None.

    name            user's file                                                   project's file
    mcp-json        -                                                             .mcp.json
    claude-desktop  Claude/claude_desktop_config.json in the application data     -
    claude-code     ~/.claude.json                                                .mcp.json
    cursor          ~/.cursor/mcp.json                                            .cursor/mcp.json
    vscode          Code/User/mcp.json in the application data                    .vscode/mcp.json
    codex           ~/.codex/config.toml                                          .codex/config.toml
    gemini          ~/.gemini/settings.json                                       .gemini/settings.json
    qwen            ~/.qwen/settings.json                                         .qwen/settings.json
    copilot         ~/.copilot/mcp-config.json                                    .github/mcp.json
    opencode        ~/.config/opencode/opencode.json, or .jsonc                   opencode.json, or .jsonc
    goose           ~/.config/goose/config.yaml, on Windows Block/goose/config    -
    windsurf        ~/.codeium/windsurf/mcp_config.json                           -
    zed             ~/.config/zed/settings.json, on Windows Zed/settings.json     .zed/settings.json
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final, Literal, cast, final

from msgspec import Struct

from .client_formats import ClientFormat, Codex, Goose, Inputs, JsonFormat, JsonKeys, OpenCode
from .jsontext import lines_of as json_lines
from .jsontext import read_json
from .machine import Machine
from .model import ConfigUnusable, Problem
from .tomltext import lines_of as toml_lines
from .tomltext import read_toml
from .yamltext import lines_of as yaml_lines
from .yamltext import read_yaml


@final
class ClientApp(Struct, frozen=True, kw_only=True):
    """A program, its files, and how it writes a server."""

    name: str
    title: str
    form: ClientFormat
    language: Literal["json", "toml", "yaml"] = "json"
    key: str = "mcpServers"
    """Where the servers stand in the file."""
    user: Callable[[Machine], PurePath] | None = None
    project: tuple[str, ...] | None = None
    others: tuple[str, ...] = ()
    """Other names of the file: where one of these is there and the first is not, it is taken."""
    after: str = "Restart it"
    """How to make the program notice a change."""

    def __repr__(self) -> str:
        return f"<Client {self.name}>"

    def file(self, machine: Machine, *, project: bool = False) -> PurePath:
        """The file for the user, or for the project; ConfigUnusable if there is no such file."""
        if self.user is None or (project and self.project is not None):
            assert self.project is not None
            return machine.in_workspace(*self.project)
        if project:
            raise ConfigUnusable(
                Problem(str(self.user(machine)), f"{self.title} has no file for one project alone", kind="io")
            )
        return self.user(machine)

    def files(self, machine: Machine, *, project: bool = False) -> list[PurePath]:
        """The file, and its alternative names."""
        first = self.file(machine, project=project)
        return [first, *(first.with_name(name) for name in self.others)]

    def servers(self, content: Mapping[str, Any], machine: Machine, file: str) -> dict[str, Any]:
        """The entries in a file's content."""
        entries = _table(content.get(self.key), self.key, file)
        if self.name == "vscode" and not entries and isinstance(content.get("mcp"), Mapping):
            # Where they stood before they had a file of their own: in settings.json.
            entries = _table(content["mcp"].get("servers"), "mcp.servers", file)
        if self.name == "opencode" and _is_nested(entries.get("servers")):
            entries = {name: entry for name, entry in entries.items() if name not in ("servers", "timeout")} | entries[
                "servers"
            ]
        if self.name == "claude-code":
            projects = _table(content.get("projects"), "projects", file)
            here = _table(projects.get(machine.workspace), f"projects.{machine.workspace}", file)
            entries = {**entries, **_table(here.get("mcpServers"), "mcpServers", file)}
        return entries

    def lines(self, text: str, machine: Machine, file: str) -> dict[str, int]:
        """On which line each server stands."""
        if self.language == "toml":
            return {
                path[1]: line for path, line in toml_lines(text).items() if path[:1] == (self.key,) and len(path) == 2
            }
        if self.language == "yaml":
            return yaml_lines(text, self.key)
        line_numbers = json_lines(text, (self.key,), file)
        if self.name == "vscode" and not line_numbers:
            line_numbers = json_lines(text, ("mcp", "servers"), file)
        if self.name == "opencode":
            line_numbers |= json_lines(text, ("mcp", "servers"), file)
        if self.name == "claude-code":
            line_numbers |= json_lines(text, ("projects", machine.workspace, "mcpServers"), file)
        return line_numbers

    def inputs(self, content: Mapping[str, Any]) -> Inputs:
        """The inputs that VS Code asks a person for, by id."""
        listed: Any = content.get("inputs")
        if listed is None and isinstance(content.get("mcp"), Mapping):
            listed = content["mcp"].get("inputs")
        if self.name != "vscode" or not isinstance(listed, list):
            return {}
        tables = (cast("Mapping[str, Any]", item) for item in cast("list[Any]", listed) if isinstance(item, Mapping))
        return {str(item.get("id")): item for item in tables}

    def switched_off(self, content: Mapping[str, Any]) -> Callable[[str], bool]:
        """Gemini CLI and Qwen Code switch servers off in a list beside them."""
        mcp: Any = content.get("mcp") if self.name in ("gemini", "qwen") else None
        lists: Mapping[str, Any] = cast("Mapping[str, Any]", mcp) if isinstance(mcp, Mapping) else {}
        excluded: list[Any] = lists.get("excluded") or []
        allowed: list[Any] = lists.get("allowed") or []
        return lambda name: name in excluded or (bool(allowed) and name not in allowed)


def _is_nested(servers: Any) -> bool:
    """Whether opencode's next version has its servers here, rather than a server of this name."""
    return isinstance(servers, Mapping) and "type" not in servers


def _table(value: Any, key: str, file: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigUnusable(
            Problem(file, "an object is expected here, with a member for each server", key, kind="config_parse")
        )
    return dict(cast("Mapping[str, Any]", value))


_PLAIN: Final = JsonKeys(title="Claude Code", style="plain", type_for="remote", milliseconds="timeout", oauth="claude")

_ALL: Final = (
    ClientApp(
        name="mcp-json",
        title=".mcp.json",
        form=JsonFormat(JsonKeys(title=".mcp.json", style="plain", type_for="remote", cwd=True, oauth="claude")),
        project=(".mcp.json",),
        after="Restart what reads it",
    ),
    ClientApp(
        name="claude-desktop",
        title="Claude Desktop",
        form=JsonFormat(JsonKeys(title="Claude Desktop", remote=False)),
        user=lambda machine: machine.app_data / "Claude" / "claude_desktop_config.json",
        after="Quit Claude Desktop and start it again",
    ),
    ClientApp(
        name="claude-code",
        title="Claude Code",
        form=JsonFormat(_PLAIN),
        user=lambda machine: (machine.named_by("CLAUDE_CONFIG_DIR") or machine.in_home()) / ".claude.json",
        project=(".mcp.json",),
        after="Start a new session of Claude Code; /mcp shows its servers",
    ),
    ClientApp(
        name="cursor",
        title="Cursor",
        form=JsonFormat(JsonKeys(title="Cursor", style="env", folder=True, oauth="cursor")),
        user=lambda machine: machine.in_home(".cursor", "mcp.json"),
        project=(".cursor", "mcp.json"),
        after="Restart Cursor, and switch the server on in its settings",
    ),
    ClientApp(
        name="vscode",
        title="VS Code",
        form=JsonFormat(JsonKeys(title="VS Code", style="env", folder=True, type_for="all", cwd=True)),
        key="servers",
        user=lambda machine: machine.app_data / "Code" / "User" / "mcp.json",
        project=(".vscode", "mcp.json"),
        after="Start the server with the command MCP: List Servers",
    ),
    ClientApp(
        name="codex",
        title="Codex",
        form=Codex(),
        language="toml",
        key="mcp_servers",
        user=lambda machine: (machine.named_by("CODEX_HOME") or machine.in_home(".codex")) / "config.toml",
        project=(".codex", "config.toml"),
        after="Start a new session of Codex; /mcp shows its servers",
    ),
    ClientApp(
        name="gemini",
        title="Gemini CLI",
        form=JsonFormat(
            JsonKeys(
                title="Gemini CLI",
                style="bare",
                type_for="remote",
                cwd=True,
                milliseconds="timeout",
                deny="excludeTools",
                oauth="gemini",
            )
        ),
        user=lambda machine: machine.in_home(".gemini", "settings.json"),
        project=(".gemini", "settings.json"),
        after="Start a new session of Gemini CLI; /mcp shows its servers",
    ),
    ClientApp(
        name="qwen",
        title="Qwen Code",
        form=JsonFormat(
            JsonKeys(
                title="Qwen Code",
                style="bare",
                url="httpUrl",
                sse_url="url",
                cwd=True,
                milliseconds="timeout",
                deny="excludeTools",
                oauth="gemini",
            )
        ),
        user=lambda machine: machine.in_home(".qwen", "settings.json"),
        project=(".qwen", "settings.json"),
        after="Start a new session of Qwen Code; /mcp shows its servers",
    ),
    ClientApp(
        name="copilot",
        title="Copilot CLI",
        form=JsonFormat(
            JsonKeys(
                title="Copilot CLI",
                style="shell",
                url_style="none",
                type_for="all",
                stdio_type="local",
                cwd=True,
                milliseconds="timeout",
                deny="excludeTools",
                always={"tools": ["*"]},
                oauth="copilot",
                quiet=frozenset({"displayName", "isDefaultServer"}),
            )
        ),
        user=lambda machine: (machine.named_by("COPILOT_HOME") or machine.in_home(".copilot")) / "mcp-config.json",
        project=(".github", "mcp.json"),
        after="Start a new session of Copilot CLI; /mcp show lists its servers",
    ),
    ClientApp(
        name="opencode",
        title="opencode",
        form=OpenCode(),
        key="mcp",
        user=lambda machine: machine.xdg_config / "opencode" / "opencode.json",
        project=("opencode.json",),
        others=("opencode.jsonc",),
        after="Start opencode again; opencode mcp list shows its servers",
    ),
    ClientApp(
        name="goose",
        title="Goose",
        form=Goose(),
        language="yaml",
        key="extensions",
        user=lambda machine: (
            machine.app_data / "Block" / "goose" / "config" / "config.yaml"
            if machine.is_windows
            else machine.xdg_config / "goose" / "config.yaml"
        ),
        after="Start a new session of Goose",
    ),
    ClientApp(
        name="windsurf",
        title="Windsurf",
        form=JsonFormat(
            JsonKeys(
                title="Windsurf",
                style="env",
                url="serverUrl",
                sse_url="serverUrl",
                off=("disabled", True),
                deny="disabledTools",
            )
        ),
        user=lambda machine: machine.in_home(".codeium", "windsurf", "mcp_config.json"),
        after="Press the refresh button of its list of servers",
    ),
    ClientApp(
        name="zed",
        title="Zed",
        form=JsonFormat(JsonKeys(title="Zed", off=("enabled", False))),
        key="context_servers",
        user=lambda machine: (
            machine.app_data / "Zed" / "settings.json"
            if machine.is_windows
            else (machine.in_home(".config") if machine.platform == "darwin" else machine.xdg_config)
            / "zed"
            / "settings.json"
        ),
        project=(".zed", "settings.json"),
        after="Zed sees it at once",
    ),
)

CLIENTS: Final[Mapping[str, ClientApp]] = {client.name: client for client in _ALL}


def read_content(text: str, language: str, file: str) -> dict[str, Any]:
    """A file's content, an object; an empty file holds an empty one."""
    if language == "toml":
        return read_toml(text, file)
    if language == "yaml":
        return read_yaml(text, file)
    if not text.strip():
        return {}
    content = read_json(text, file)
    if not isinstance(content, dict):
        raise ConfigUnusable(Problem(file, "an object is expected, { ... }", line=1, kind="config_parse"))
    return cast("dict[str, Any]", content)


def client_of(file: PurePath, text: str) -> ClientApp:
    """The program that a file belongs to, by its name and content; ConfigUnusable if it is unknown."""
    if file.suffix == ".toml":
        content = read_content(text, "toml", str(file))
        if "server" in content:
            raise ConfigUnusable(
                Problem(str(file), "this is an mcp.toml already: there is nothing to import", kind="config_parse")
            )
        return CLIENTS["codex"]
    if file.suffix in (".yaml", ".yml"):
        return CLIENTS["goose"]
    content = read_content(text, "json", str(file))
    if file.stem == "opencode":
        return CLIENTS["opencode"]
    if "context_servers" in content:
        return CLIENTS["zed"]
    mcp: Any = content.get("mcp")
    if "servers" in content or (isinstance(mcp, Mapping) and "servers" in mcp):
        return CLIENTS["vscode"]
    if "mcpServers" not in content and "projects" not in content:
        raise ConfigUnusable(
            Problem(
                str(file),
                "there are no servers in it: mcpServers, servers, context_servers, mcp_servers, mcp or extensions is expected; "
                "say whose file it is with --client",
                kind="config_parse",
            )
        )
    by_name = {
        "claude_desktop_config.json": "claude-desktop",
        ".claude.json": "claude-code",
        "settings.json": "gemini",
        "mcp_config.json": "windsurf",
        "mcp-config.json": "copilot",
    }
    folders = {".cursor": "cursor", ".qwen": "qwen", ".copilot": "copilot", ".github": "copilot"}
    if file.parent.name in folders:
        return CLIENTS[folders[file.parent.name]]
    return CLIENTS[by_name.get(file.name, "mcp-json")]
