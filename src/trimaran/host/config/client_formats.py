"""How other programs write a server's entry, and how it reads here: both ways, pure.

A format turns an entry of theirs into a table of `mcp.toml`, and back. If a setting has no counterpart, it either matters,
and then the server is not carried over (`NotExpressible`), or it does not, and then a note says so. Nothing is dropped silently,
and no permission is carried over: here a person is asked again.

Variables are spelt differently by everybody:

    plain   ${NAME} ${NAME:-x}         .mcp.json, Claude Code, mcp.toml
    env     ${env:NAME}                Cursor, VS Code, Windsurf; also ${workspaceFolder}, ${userHome}, ${input:id}
    bare    $NAME ${NAME}              Gemini CLI, Qwen Code
    shell   $NAME ${NAME} ${NAME:-x}   Copilot CLI, but not in `url`
    brace   {env:NAME}                 opencode
    none                               Claude Desktop, Zed; Codex and Goose have keys that name variables instead
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast, final

from msgspec import Struct, field

from .expand import Reference, Unexpandable, parts_of
from .machine import Machine
from .values import LONGEST, read_duration, write_duration

Style: TypeAlias = Literal["plain", "env", "bare", "shell", "brace", "none"]
Inputs: TypeAlias = Mapping[str, Mapping[str, Any]]

_TYPES: Final = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
    "local": "stdio",
}
_BRACED: Final = re.compile(r"\$\{([^}]*)\}")
_DOLLAR: Final = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([^}]+)\})")
_BRACE: Final = re.compile(r"\{(env|file):([^}]+)\}")
_WORKSPACE: Final = "CLAUDE_PROJECT_DIR"
# Keys of other programs that have no meaning here.
_QUIET: Final = frozenset({"name", "description", "display_name", "bundled", "source", "$schema", "gallery", "version"})


class NotExpressible(ValueError):
    """This entry cannot be converted. The message says why, and what to do."""


class ReadEntry(NamedTuple):
    """A table of `mcp.toml`, and notes on what was left out."""

    table: dict[str, Any]
    notes: list[str]


class WrittenEntry(NamedTuple):
    """An entry of another program, and notes on what was left out."""

    entry: dict[str, Any]
    notes: list[str]


class ClientFormat:
    """One program's way of writing a server."""

    def read(self, entry: Mapping[str, Any], machine: Machine, inputs: Inputs) -> ReadEntry:
        """A table from an entry."""
        raise NotImplementedError

    def write(self, name: str, table: Mapping[str, Any]) -> WrittenEntry:
        """An entry from a table."""
        raise NotImplementedError


# --- small things both ways ------------------------------------------------------------------------------------------


def _texts(key: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise NotExpressible(f"{key} is not an object of texts")
    return {str(name): _as_text(item) for name, item in cast("Mapping[Any, Any]", value).items() if item is not None}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _list(key: str, value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        raise NotExpressible(f"{key} is not a list")
    return [_as_text(item) for item in cast("Sequence[Any]", value)]


def _duration(key: str, seconds: Any, notes: list[str]) -> str | None:
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds > 0:
        notes.append(f"{key} is not a duration, and is not carried over")
        return None
    if seconds > LONGEST:
        notes.append(f"{key} is {write_duration(seconds)}; at most {write_duration(LONGEST)} is allowed here")
    return write_duration(min(float(seconds), LONGEST))


def _number(seconds: float) -> int | float:
    return int(seconds) if seconds == int(seconds) else seconds


def _deny(names: Sequence[str]) -> dict[str, Any]:
    return {"deny": list(names)}


def _is_disabled(table: Mapping[str, Any]) -> bool:
    return table.get("disabled", False) is True or table.get("enabled", True) is False


def _denied(table: Mapping[str, Any]) -> list[str]:
    """The tools a table denies by their plain names."""
    listed: Any = cast("Mapping[str, Any]", table.get("permissions") or {}).get("deny", [])
    return [tool for tool in listed if isinstance(tool, str) and not re.search(r"[*?]", tool)]


def _oauth_of(table: Mapping[str, Any]) -> Mapping[str, Any]:
    oauth: Any = table.get("oauth")
    return cast("Mapping[str, Any]", oauth if isinstance(oauth, Mapping) else table.get("oauth_config") or {})


def _has_authorization(table: Mapping[str, Any]) -> bool:
    headers: Mapping[str, Any] = table.get("headers") or {}
    return any(name.lower() == "authorization" for name in headers)


def _left_behind(table: Mapping[str, Any], title: str, translated: set[str]) -> list[str]:
    """Notes on settings of a table that the other program does not have."""
    notes = [
        f"{title} has no {key} for a server; it is left out"
        for key in (
            "timeout",
            "startup_timeout",
            "startup_limit",
            "output_limit",
            "lazy",
            "always",
            "include",
            "exclude",
            "read_only",
            "tools",
            "inherit_env",
            "sandbox",
            "pins",
        )
        if key in table and key not in translated
    ]
    rules = cast("Mapping[str, Any]", table.get("permissions") or {})
    if any(rules.get(action) for action in ("allow", "ask")) or (
        rules.get("deny") and ("deny" not in translated or len(_denied(table)) != len(rules["deny"]))
    ):
        notes.append(f"permissions are for {title} to ask about; not all rules are carried over")
    if table.get("oauth") == "off" and table.get("url") and "off" not in translated and not _has_authorization(table):
        notes.append(f'{title} has no oauth = "off" for a server: it may ask for a login')
    if _oauth_of(table) and "oauth" not in translated:
        notes.append(f"{title} finds out about OAuth by itself; oauth_config is left out")
    return notes


# --- variables -------------------------------------------------------------------------------------------------------


# Placeholders that only the other program fills in: our texts must not contain them.
_MISTAKEN: Final[Mapping[Style, re.Pattern[str]]] = {"bare": _DOLLAR, "shell": _DOLLAR, "brace": _BRACE}


def _spell(text: str, style: Style, title: str, *, folder: bool = False) -> str:
    """A text of ours with its variables in another program's spelling."""
    try:
        parts = parts_of(text)
    except Unexpandable as error:
        raise NotExpressible(str(error)) from None
    for part in parts:
        mistaken = _MISTAKEN.get(style)
        if mistaken is not None and isinstance(part, str) and (match := mistaken.search(part)):
            raise NotExpressible(f"{title} would take {match[0]} for a variable, which it is not here")
    return "".join(part if isinstance(part, str) else _spelt(part, style, title, folder) for part in parts)


def _spelt(part: Reference, style: Style, title: str, folder: bool) -> str:
    if style in ("plain", "shell") and (style == "plain" or part.name != _WORKSPACE):
        return str(part)
    if style == "env" and part.name == _WORKSPACE and folder:
        return "${workspaceFolder}"
    if style == "none" or part.name == _WORKSPACE:
        raise NotExpressible(f"{title} does not fill in {Reference(part.name)}: it needs the value itself")
    if part.default is not None:
        raise NotExpressible(f"{title} knows no defaults, as in {part}: it needs the value itself")
    return {"env": f"${{env:{part.name}}}", "brace": f"{{env:{part.name}}}"}.get(style, str(part))


@final
class _Translated:
    """Texts of another program with their variables in our spelling."""

    def __init__(self, style: Style, title: str, machine: Machine, inputs: Inputs, notes: list[str]) -> None:
        self._style = style
        self._title = title
        self._machine = machine
        self._inputs = inputs
        self._notes = notes

    def text(self, text: str) -> str:
        if self._style in ("bare", "shell"):
            return _DOLLAR.sub(lambda match: f"${{{match[1] or match[2]}}}", text)
        if self._style == "brace":
            return _BRACE.sub(self._brace, text)
        if self._style == "none":
            if "${" in text:
                self._note(f"{self._title} passes ${{...}} on as it stands; here it is filled in")
            return text
        return text if self._style == "plain" else _BRACED.sub(self._braced, text)

    def texts(self, key: str, value: Any) -> dict[str, str]:
        return {name: self.text(text) for name, text in _texts(key, value).items()}

    def list(self, key: str, value: Any) -> list[str]:
        return [self.text(text) for text in _list(key, value)]

    def _note(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)

    def _brace(self, match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "file":
            raise NotExpressible(f"only {self._title} reads a file for {match[0]}: write a variable instead")
        return f"${{{name}}}"

    def _braced(self, match: re.Match[str]) -> str:
        inside = match[1]
        kind, colon, rest = inside.partition(":")
        if kind == "env" and colon:
            return f"${{{rest}}}"
        if kind == "input" and colon:
            return self._input(rest)
        known = {
            "workspaceFolder": f"${{{_WORKSPACE}}}",
            "workspaceRoot": f"${{{_WORKSPACE}}}",
            "userHome": "${USERPROFILE}" if self._machine.is_windows else "${HOME}",
            "pathSeparator": "\\" if self._machine.is_windows else "/",
            "/": "\\" if self._machine.is_windows else "/",
        }
        if inside in known:
            return known[inside]
        if colon or not re.fullmatch(r"[A-Za-z_]\w*", inside) or inside.startswith(("workspace", "file", "relative")):
            raise NotExpressible(f"only {self._title} knows what ${{{inside}}} is: write a variable instead")
        return match[0]

    def _input(self, name: str) -> str:
        declared = self._inputs.get(name, {})
        variable = re.sub(r"\W", "_", name).upper()
        if not re.match(r"[A-Z_]", variable):
            variable = f"INPUT_{variable}"
        about = declared.get("description")
        description = f" ({about})" if isinstance(about, str) and about else ""
        default = declared.get("default")
        if isinstance(default, str) and not declared.get("password") and "}" not in default and "${" not in default:
            self._note(f"{self._title} asks for {name}{description}; here set {variable}, or have {default!r}")
            return f"${{{variable}:-{default}}}"
        self._note(f"{self._title} asks for {name}{description}; here set {variable}")
        return f"${{{variable}}}"


# --- JSON objects with command or url --------------------------------------------------------------------------------


@final
class JsonKeys(Struct, frozen=True, kw_only=True):
    """The key names of one program of the JSON family."""

    title: str
    style: Style = "none"
    url_style: Style | None = None
    """How variables are spelt in a URL, where that is another way than elsewhere."""
    url: str = "url"
    sse_url: str = "url"
    """Where it is another key than `url`, the key says which transport it is, and `type` does not."""
    stdio_type: str = "stdio"
    remote: bool = True
    type_for: Literal["all", "remote", "none"] = "none"
    cwd: bool = False
    folder: bool = False
    """Whether it knows ${workspaceFolder}."""
    milliseconds: str | None = None
    """The key for a call's time limit."""
    off: tuple[str, bool] | None = None
    """The key and value that switch a server off."""
    deny: str | None = None
    """The key for tools that are not to be used."""
    always: Mapping[str, Any] = field(default_factory=dict[str, Any])
    oauth: Literal["claude", "cursor", "gemini", "copilot"] | None = None
    quiet: frozenset[str] = frozenset()
    """Keys that mean nothing here."""


@final
class JsonFormat(ClientFormat):
    """An object with `command` or a URL: Claude, Cursor, VS Code, Gemini CLI, Qwen Code, Copilot CLI, Windsurf, Zed."""

    def __init__(self, spelling: JsonKeys) -> None:
        self._as = spelling

    def read(self, entry: Mapping[str, Any], machine: Machine, inputs: Inputs) -> ReadEntry:
        notes: list[str] = []
        translated = _Translated(self._as.style, self._as.title, machine, inputs, notes)
        entry = _flattened(entry)
        table: dict[str, Any] = {}
        used = {"command", "args", "env", "cwd", "url", "serverUrl", "httpUrl", "headers", "type", "transport"}
        url = next((entry[key] for key in ("httpUrl", "serverUrl", "url") if entry.get(key)), None)
        kind = self._kind(entry, url)
        if kind == "stdio":
            command = entry.get("command")
            if not isinstance(command, str) or not command:
                raise NotExpressible("it has neither a command nor a URL")
            table["command"] = translated.text(command)
            if args := translated.list("args", entry.get("args")):
                table["args"] = args
            if env := translated.texts("env", entry.get("env")):
                table["env"] = env
            if isinstance(entry.get("cwd"), str):
                table["cwd"] = translated.text(entry["cwd"])
        else:
            if not isinstance(url, str):
                raise NotExpressible("it has no URL")
            address = translated
            if self._as.url_style is not None:
                address = _Translated(self._as.url_style, self._as.title, machine, inputs, notes)
            table |= {"transport": kind, "url": address.text(url)}
            if headers := translated.texts("headers", entry.get("headers")):
                table["headers"] = headers
            used |= self._read_oauth(entry, table, translated, notes)
        used |= self._read_rest(entry, table, notes)
        notes += [
            f"{key} is not carried over"
            for key in entry
            if key not in used | _QUIET | self._as.quiet and entry[key] not in (None, False, "", [], {}, ["*"])
        ]
        return ReadEntry(table, notes)

    def _kind(self, entry: Mapping[str, Any], url: Any) -> str:
        says_which = self._as.sse_url != self._as.url
        if says_which and url is not None and not entry.get("command"):
            return "http" if entry.get(self._as.url) else "sse"
        kind = entry.get("type", entry.get("transport"))
        if kind is not None:
            if not isinstance(kind, str) or kind not in _TYPES:
                raise NotExpressible(f"{kind!r} is a transport that is not spoken here")
            return _TYPES[kind]
        return "stdio" if url is None or entry.get("command") else "http"

    def _read_oauth(
        self, entry: Mapping[str, Any], table: dict[str, Any], translated: _Translated, notes: list[str]
    ) -> set[str]:
        if self._as.oauth == "copilot":
            entry = {"oauth": {ours: entry[key] for key, ours in _COPILOT_OAUTH.items() if entry.get(key)} or None}
        key = "auth" if self._as.oauth == "cursor" else "oauth"
        oauth: Any = entry.get(key)
        if not isinstance(oauth, Mapping) or self._as.oauth is None:
            return set()
        client_table = cast("Mapping[str, Any]", oauth)
        if client_table.get("enabled") is False:
            table["oauth"] = "off"
            return {key}
        details: dict[str, Any] = {}
        for ours, names in _OAUTH_WORDS.items():
            setting = next((client_table[name] for name in names if client_table.get(name)), None)
            if isinstance(setting, str):
                details[ours] = translated.text(setting)
        scopes: Any = client_table.get("scopes")
        if scopes:
            details["scopes"] = scopes.split() if isinstance(scopes, str) else _list("scopes", scopes)
        audiences: Any = client_table.get("audiences")
        if isinstance(audiences, list) and audiences:
            details["audience"] = str(cast("list[Any]", audiences)[0])
        if {"client_id", "auth_url", "token_url"} <= details.keys():
            table["oauth"] = "manual"
        else:
            details = {name: value for name, value in details.items() if name not in ("auth_url", "token_url")}
        if details:
            table["oauth_config"] = details
        known = {
            "enabled",
            "scopes",
            "scope",
            "audiences",
            *(name for names in _OAUTH_WORDS.values() for name in names),
        }
        notes += [f"{key}.{name} is not carried over" for name in client_table if name not in known]
        return set(_COPILOT_OAUTH) if self._as.oauth == "copilot" else {key}

    def _read_rest(self, entry: Mapping[str, Any], table: dict[str, Any], notes: list[str]) -> set[str]:
        used = {"disabled", "enabled"}
        if entry.get("disabled") is True or entry.get("enabled") is False:
            table["disabled"] = True
        if (key := self._as.milliseconds) is not None and entry.get(key) is not None:
            used.add(key)
            value: Any = entry[key]
            length = _duration(key, value / 1000 if isinstance(value, (int, float)) else value, notes)
            if length is not None:
                table["timeout"] = length
        if (key := self._as.deny) is not None and entry.get(key):
            used.add(key)
            table["permissions"] = _deny(_list(key, entry[key]))
        return used

    def write(self, name: str, table: Mapping[str, Any]) -> WrittenEntry:
        words, title = self._as, self._as.title
        entry: dict[str, Any] = dict(words.always)
        transport = table.get("transport", table.get("type", "stdio"))
        if words.type_for == "all" or (words.type_for == "remote" and transport != "stdio"):
            entry["type"] = words.stdio_type if transport == "stdio" else transport
        if transport == "stdio":
            entry["command"] = self._out(table.get("command", ""))
            entry["args"] = [self._out(argument) for argument in table.get("args", [])]
            if table.get("env"):
                entry["env"] = {key: self._out(value) for key, value in table["env"].items()}
            if table.get("cwd") is not None:
                if not words.cwd:
                    raise NotExpressible(
                        f"{title} has no cwd: let the command change to it, or start something that does"
                    )
                entry["cwd"] = self._out(table["cwd"])
        else:
            self._write_url(entry, table, transport)
        notes: list[str] = []
        if transport == "sse" and words.type_for == "none" and words.sse_url == words.url:
            notes.append(f"{title} has no word for HTTP+SSE: it has to find out by itself, if it speaks it")
        written = self._write_rest(entry, table, notes)
        return WrittenEntry(entry, [*notes, *_left_behind(table, title, written)])

    def _out(self, text: Any) -> str:
        return _spell(str(text), self._as.style, self._as.title, folder=self._as.folder)

    def _write_url(self, entry: dict[str, Any], table: Mapping[str, Any], transport: str) -> None:
        if not self._as.remote:
            raise NotExpressible(
                f"{self._as.title} starts processes only; register the URL in its settings, or a proxy as a command"
            )
        key = self._as.sse_url if transport == "sse" else self._as.url
        entry[key] = _spell(str(table.get("url", "")), self._as.url_style or self._as.style, self._as.title)
        if table.get("headers"):
            entry["headers"] = {key: self._out(value) for key, value in table["headers"].items()}

    def _write_rest(self, entry: dict[str, Any], table: Mapping[str, Any], notes: list[str]) -> set[str]:
        words, written = self._as, set[str]()
        if words.milliseconds is not None and "timeout" in table:
            entry[words.milliseconds] = round(1000 * read_duration(table["timeout"]))
            written.add("timeout")
        if _is_disabled(table):
            if words.off is None:
                raise NotExpressible(f"it is disabled, and {words.title} cannot say so in this file")
            entry[words.off[0]] = words.off[1]
        if words.deny is not None and _denied(table):
            entry[words.deny] = _denied(table)
            written.add("deny")
        details = _oauth_of(table)
        if details and words.oauth is not None:
            written.add("oauth")
            entry |= self._write_oauth(details, notes)
        return written

    def _write_oauth(self, details: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
        assert self._as.oauth is not None
        words = _OAUTH_OUT[self._as.oauth]
        dropped = [key for key in details if key not in words]
        if dropped:
            notes.append(f"{self._as.title} has no {', '.join(dropped)} for OAuth; left out")
        oauth_entry: dict[str, Any] = {"enabled": True} if self._as.oauth == "gemini" else {}
        for key, client_key in words.items():
            value: Any = details.get(key)
            if isinstance(value, str):
                value = self._out(value)
                oauth_entry[client_key] = [value] if client_key == "audiences" else value
            elif value:
                scopes = [self._out(scope) for scope in value]
                oauth_entry[client_key] = " ".join(scopes) if self._as.oauth == "claude" else scopes
        return (
            oauth_entry
            if self._as.oauth == "copilot"
            else {"auth" if self._as.oauth == "cursor" else "oauth": oauth_entry}
        )


_OAUTH_OUT: Final[Mapping[str, Mapping[str, str]]] = {
    "claude": {"client_id": "clientId", "scopes": "scopes"},
    "cursor": {"client_id": "CLIENT_ID", "client_secret": "CLIENT_SECRET", "scopes": "scopes"},
    "copilot": {"client_id": "oauthClientId", "scopes": "oauthScopes"},
    "gemini": {
        "client_id": "clientId",
        "client_secret": "clientSecret",
        "auth_url": "authorizationUrl",
        "token_url": "tokenUrl",
        "scopes": "scopes",
        "audience": "audiences",
    },
}
"""The login settings of each program, by our keys."""
_COPILOT_OAUTH: Final = {"oauthClientId": "clientId", "oauthScopes": "scopes"}
_OAUTH_WORDS: Final = {
    "client_id": ("clientId", "CLIENT_ID", "client_id"),
    "client_secret": ("clientSecret", "CLIENT_SECRET", "client_secret"),
    "auth_url": ("authorizationUrl",),
    "token_url": ("tokenUrl",),
}


def _flattened(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Zed once wrote `"command": {"path": ..., "args": [...], "env": {...}}`; and what its extensions run is theirs."""
    command: Any = entry.get("command")
    if isinstance(command, Mapping):
        inner = cast("Mapping[str, Any]", command)
        rest = {key: value for key, value in entry.items() if key != "command"}
        return {**rest, "command": inner.get("path"), "args": inner.get("args"), "env": inner.get("env")}
    if entry.get("source") == "extension" or ("settings" in entry and not command and "url" not in entry):
        raise NotExpressible("an extension of the editor runs it, which is not there outside of it")
    return entry


# --- Codex -----------------------------------------------------------------------------------------------------------


@final
class Codex(ClientFormat):
    """A table `[mcp_servers.NAME]`. Variables are named by keys of their own, never inside a text."""

    _USED: Final = frozenset(
        {
            *("command", "args", "env", "env_vars", "cwd"),
            *("url", "bearer_token_env_var", "http_headers", "env_http_headers", "scopes", "oauth", "oauth_resource"),
            *("enabled", "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec", "disabled_tools"),
        }
    )

    def read(self, entry: Mapping[str, Any], machine: Machine, inputs: Inputs) -> ReadEntry:
        notes: list[str] = []
        translated = _Translated("none", "Codex", machine, inputs, notes)
        table: dict[str, Any] = {}
        if isinstance(entry.get("command"), str):
            table["command"] = translated.text(entry["command"])
            if args := translated.list("args", entry.get("args")):
                table["args"] = args
            env = translated.texts("env", entry.get("env"))
            for env_var in cast("list[Any]", entry.get("env_vars") or []):
                name = cast("Mapping[str, Any]", env_var).get("name") if isinstance(env_var, Mapping) else env_var
                env[str(name)] = f"${{{name}}}"
            if env:
                table["env"] = env
            if isinstance(entry.get("cwd"), str):
                table["cwd"] = translated.text(entry["cwd"])
        elif isinstance(entry.get("url"), str):
            table |= {"transport": "http", "url": translated.text(entry["url"])}
            headers = translated.texts("http_headers", entry.get("http_headers"))
            for name, variable in _texts("env_http_headers", entry.get("env_http_headers")).items():
                headers[name] = f"${{{variable}}}"
            if isinstance(entry.get("bearer_token_env_var"), str):
                headers["Authorization"] = f"Bearer ${{{entry['bearer_token_env_var']}}}"
            if headers:
                table["headers"] = headers
            self._read_oauth(entry, table)
        else:
            raise NotExpressible("it has neither a command nor a URL")
        self._read_rest(entry, table, notes)
        notes += [f"{key} is not carried over" for key in entry if key not in self._USED | _QUIET]
        return ReadEntry(table, notes)

    def _read_oauth(self, entry: Mapping[str, Any], table: dict[str, Any]) -> None:
        details: dict[str, Any] = {}
        oauth: Any = entry.get("oauth")
        if isinstance(oauth, Mapping) and isinstance(cast("Mapping[str, Any]", oauth).get("client_id"), str):
            details["client_id"] = oauth["client_id"]
        if entry.get("scopes"):
            details["scopes"] = _list("scopes", entry["scopes"])
        if isinstance(entry.get("oauth_resource"), str):
            details["audience"] = entry["oauth_resource"]
        if details:
            table["oauth_config"] = details

    def _read_rest(self, entry: Mapping[str, Any], table: dict[str, Any], notes: list[str]) -> None:
        for client_key, ours, unit in (
            ("tool_timeout_sec", "timeout", 1),
            ("startup_timeout_ms", "startup_timeout", 1000),
            ("startup_timeout_sec", "startup_timeout", 1),
        ):
            value: Any = entry.get(client_key)
            if value is None:
                continue
            length = _duration(client_key, value / unit if isinstance(value, (int, float)) else value, notes)
            if length is not None:
                table[ours] = length
        if entry.get("enabled") is False:
            table["disabled"] = True
        if entry.get("disabled_tools"):
            table["permissions"] = _deny(_list("disabled_tools", entry["disabled_tools"]))

    def write(self, name: str, table: Mapping[str, Any]) -> WrittenEntry:
        transport = table.get("transport", table.get("type", "stdio"))
        if transport == "sse":
            raise NotExpressible("Codex does not speak HTTP+SSE")
        entry: dict[str, Any] = {}
        if transport == "stdio":
            entry["command"] = _spell(str(table.get("command", "")), "none", "Codex")
            entry["args"] = [_spell(str(argument), "none", "Codex") for argument in table.get("args", [])]
            named, entry["env"] = _split_env(table.get("env") or {}, "Codex")
            entry["env_vars"] = named
            if table.get("cwd") is not None:
                entry["cwd"] = _spell(table["cwd"], "none", "Codex")
        else:
            entry["url"] = _spell(table.get("url", ""), "none", "Codex")
            self._write_headers(entry, table.get("headers") or {})
        written: set[str] = set()
        for ours, client_key in (("startup_timeout", "startup_timeout_sec"), ("timeout", "tool_timeout_sec")):
            if ours in table:
                entry[client_key] = _number(read_duration(table[ours]))
                written.add(ours)
        if _is_disabled(table):
            entry["enabled"] = False
        if _denied(table):
            entry["disabled_tools"] = _denied(table)
            written.add("deny")
        details = _oauth_of(table)
        if details and not {"auth_url", "token_url", "client_secret"} & details.keys():
            written.add("oauth")
            entry["scopes"] = list(details.get("scopes", []))
            if "audience" in details:
                entry["oauth_resource"] = _spell(details["audience"], "none", "Codex")
            if "client_id" in details:
                entry["oauth"] = {"client_id": _spell(details["client_id"], "none", "Codex")}
        return WrittenEntry(
            {k: v for k, v in entry.items() if v not in ([], {})}, _left_behind(table, "Codex", written)
        )

    def _write_headers(self, entry: dict[str, Any], headers: Mapping[str, str]) -> None:
        plain: dict[str, str] = {}
        named: dict[str, str] = {}
        for name, value in headers.items():
            bearer = re.fullmatch(r"Bearer \$\{([A-Za-z_]\w*)\}", value)
            whole = re.fullmatch(r"\$\{([A-Za-z_]\w*)\}", value)
            if name.lower() == "authorization" and bearer:
                entry["bearer_token_env_var"] = bearer[1]
            elif whole:
                named[name] = whole[1]
            else:
                plain[name] = _spell(value, "none", "Codex")
        entry |= {"http_headers": plain, "env_http_headers": named}


def _split_env(env: Mapping[str, str], title: str) -> tuple[list[str], dict[str, str]]:
    """The variables that are passed on under their own names, and those with a value."""
    named = [name for name, value in env.items() if value == f"${{{name}}}"]
    return named, {name: _spell(value, "none", title) for name, value in env.items() if name not in named}


# --- Goose -----------------------------------------------------------------------------------------------------------


@final
class Goose(ClientFormat):
    """An extension in `config.yaml`. `env_keys` names the secrets, which are stored elsewhere."""

    _USED: Final = frozenset({"type", "cmd", "args", "envs", "env_keys", "timeout", "enabled", "uri", "headers"})
    _OURS: Final = {"stdio": "stdio", "streamable_http": "http", "sse": "sse"}

    def read(self, entry: Mapping[str, Any], machine: Machine, inputs: Inputs) -> ReadEntry:
        notes: list[str] = []
        kind = entry.get("type")
        if kind not in self._OURS:
            raise NotExpressible(f"it is of the type {kind!r}, which only Goose can run")
        named = _list("env_keys", entry.get("env_keys"))
        translated = _Translated("none" if kind == "stdio" else "bare", "Goose", machine, inputs, notes)
        table: dict[str, Any] = {}
        if kind == "stdio":
            if not isinstance(entry.get("cmd"), str) or not entry["cmd"]:
                raise NotExpressible("it has no cmd")
            table["command"] = translated.text(entry["cmd"])
            if args := translated.list("args", entry.get("args")):
                table["args"] = args
            env = translated.texts("envs", entry.get("envs"))
            env |= {name: f"${{{name}}}" for name in named if name not in env}
            if env:
                table["env"] = env
        else:
            if not isinstance(entry.get("uri"), str) or not entry["uri"]:
                raise NotExpressible("it has no uri")
            table |= {"transport": self._OURS[kind], "url": entry["uri"]}
            if headers := translated.texts("headers", entry.get("headers")):
                table["headers"] = headers
        if named:
            notes.append(f"Goose keeps {', '.join(named)} itself; here set {'it' if len(named) == 1 else 'them'}")
        if entry.get("timeout") is not None:
            length = _duration("timeout", entry["timeout"], notes)
            if length is not None:
                table["timeout"] = length
        if entry.get("enabled") is False:
            table["disabled"] = True
        notes += [
            f"{key} is not carried over"
            for key in entry
            if key not in self._USED | _QUIET and entry[key] not in (None, False, "", [], {})
        ]
        return ReadEntry(table, notes)

    def write(self, name: str, table: Mapping[str, Any]) -> WrittenEntry:
        transport = table.get("transport", table.get("type", "stdio"))
        if transport == "sse":
            raise NotExpressible("Goose does not speak HTTP+SSE any more")
        entry: dict[str, Any] = {
            "enabled": not _is_disabled(table),
            "type": "stdio" if transport == "stdio" else "streamable_http",
            "name": name,
            "description": "",
        }
        if transport == "stdio":
            if table.get("cwd") is not None:
                raise NotExpressible("Goose has no cwd: let the command change to it")
            named, envs = _split_env(table.get("env") or {}, "Goose")
            entry["cmd"] = _spell(str(table.get("command", "")), "none", "Goose")
            entry["args"] = [_spell(str(argument), "none", "Goose") for argument in table.get("args", [])]
        else:
            entry["uri"] = _spell(table.get("url", ""), "none", "Goose")
            headers: Mapping[str, str] = table.get("headers") or {}
            entry["headers"] = {key: _spell(value, "bare", "Goose") for key, value in headers.items()}
            named = sorted({p.name for v in headers.values() for p in parts_of(v) if isinstance(p, Reference)})
            envs = {}
        entry |= {"envs": envs, "env_keys": named}
        # Goose needs one, and writes 300 s itself.
        entry["timeout"] = max(1, round(read_duration(table["timeout"]))) if "timeout" in table else 300
        return WrittenEntry(entry, _left_behind(table, "Goose", {"timeout"}))


# --- opencode --------------------------------------------------------------------------------------------------------


@final
class OpenCode(ClientFormat):
    """An object in `mcp` of `opencode.json`: `local` or `remote`; over HTTP it finds out by itself which transport it is."""

    _USED: Final = frozenset(
        {
            *("type", "command", "environment", "cwd", "url", "headers", "oauth"),
            *("enabled", "disabled", "timeout"),
        }
    )
    _OAUTH: Final = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scopes"}
    # Its next version writes these in another way, and the servers one level deeper (`Client.servers`).
    _NEXT: Final = {"client_id": "client_id", "client_secret": "client_secret"}

    def read(self, entry: Mapping[str, Any], machine: Machine, inputs: Inputs) -> ReadEntry:
        notes: list[str] = []
        translated = _Translated("brace", "opencode", machine, inputs, notes)
        table: dict[str, Any] = {}
        if entry.get("type") == "local":
            command = translated.list("command", entry.get("command"))
            if not command or not command[0]:
                raise NotExpressible("it has no command")
            table["command"] = command[0]
            if command[1:]:
                table["args"] = command[1:]
            if env := translated.texts("environment", entry.get("environment")):
                table["env"] = env
            if isinstance(entry.get("cwd"), str):
                table["cwd"] = translated.text(entry["cwd"])
        elif entry.get("type") == "remote":
            if not isinstance(entry.get("url"), str):
                raise NotExpressible("it has no URL")
            table |= {"transport": "http", "url": translated.text(entry["url"])}
            if headers := translated.texts("headers", entry.get("headers")):
                table["headers"] = headers
            self._read_oauth(entry.get("oauth"), table, translated, notes)
        else:
            raise NotExpressible(
                'it is neither "local" nor "remote": it may only switch on a server that others define'
            )
        if entry.get("enabled") is False or entry.get("disabled") is True:
            table["disabled"] = True
        limits: Any = entry.get("timeout")
        if not isinstance(limits, Mapping):
            limits = {"request": limits}
        for client_key, ours in (("request", "timeout"), ("startup", "startup_timeout")):
            value: Any = cast("Mapping[str, Any]", limits).get(client_key)
            if value is None:
                continue
            length = _duration("timeout", value / 1000 if isinstance(value, (int, float)) else value, notes)
            if length is not None:
                table[ours] = length
        notes += [f"{key} is not carried over" for key in entry if key not in self._USED | _QUIET]
        return ReadEntry(table, notes)

    def _read_oauth(self, oauth: Any, table: dict[str, Any], translated: _Translated, notes: list[str]) -> None:
        if oauth is False:
            table["oauth"] = "off"
        if not isinstance(oauth, Mapping):
            return
        details: dict[str, Any] = {}
        for key, value in cast("Mapping[str, Any]", oauth).items():
            ours = self._OAUTH.get(key, self._NEXT.get(key))
            if ours is None or not isinstance(value, str):
                notes.append(f"oauth.{key} is not carried over")
            else:
                text = translated.text(value)
                details[ours] = text.split() if key == "scope" else text
        if details:
            table["oauth_config"] = details

    def write(self, name: str, table: Mapping[str, Any]) -> WrittenEntry:
        entry: dict[str, Any]
        notes: list[str] = []
        written = {"timeout", "off"}
        if table.get("transport", table.get("type", "stdio")) == "stdio":
            command = [table.get("command", ""), *table.get("args", [])]
            entry = {"type": "local", "command": [self._out(argument) for argument in command]}
            if table.get("env"):
                entry["environment"] = {key: self._out(value) for key, value in table["env"].items()}
            if table.get("cwd") is not None:
                entry["cwd"] = self._out(table["cwd"])
        else:
            entry = {"type": "remote", "url": self._out(table.get("url", ""))}
            if table.get("headers"):
                entry["headers"] = {key: self._out(value) for key, value in table["headers"].items()}
            if table.get("oauth") == "off":
                entry["oauth"] = False
            elif details := _oauth_of(table):
                written.add("oauth")
                entry["oauth"] = self._write_oauth(details, notes)
        entry["enabled"] = not _is_disabled(table)
        if "timeout" in table:
            entry["timeout"] = round(1000 * read_duration(table["timeout"]))
        return WrittenEntry(entry, [*notes, *_left_behind(table, "opencode", written)])

    def _write_oauth(self, details: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
        client_key = {ours: key for key, ours in self._OAUTH.items()}
        dropped = [key for key in details if key not in client_key]
        if dropped:
            notes.append(f"opencode has no {', '.join(dropped)} for OAuth; left out")
        return {
            client_key[key]: self._out(value if isinstance(value, str) else " ".join(value))
            for key, value in details.items()
            if key in client_key
        }

    def _out(self, text: Any) -> str:
        return _spell(str(text), "brace", "opencode")
