"""A table of `mcp.toml` becomes an entry, or fails with every reason there is (R227-R233).

Pure. Each check knows the key it is about, so each problem names file, line and key, what was expected and what to do.
No message holds a value that may be secret: headers and variables are named, URLs are shown masked.

`read_entry` is for one server; `read_rules` is for permissions, of a server or of all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast, final
from urllib.parse import urlsplit

from trimaran.client.sandbox_policy import Sandbox, read_sandbox
from trimaran.errors import ConfigError

from .expand import Unexpandable, expand
from .machine import Machine
from .mask import mask_url
from .model import (
    PIN_MODES,
    Action,
    FailedEntry,
    OAuthEntry,
    OAuthMode,
    PinMode,
    Problem,
    ProblemKind,
    RuleEntry,
    ServerEntry,
    Source,
    SubjectTokenType,
    ToolSettings,
    Transport,
    TrustEntry,
)
from .tomltext import key_text
from .trust_entry import read_touches, read_trust
from .values import read_duration, read_size

T = TypeVar("T")

_TRANSPORTS: Final[tuple[Transport, ...]] = ("stdio", "http", "sse")
_ACTIONS: Final[tuple[Action, ...]] = ("allow", "deny", "ask")
_STDIO: Final = ("command", "args", "env", "inherit_env", "cwd", "sandbox")
_HTTP: Final = ("url", "headers", "oauth", "oauth_config")
_COMMON: Final = (
    "transport",
    "type",
    "disabled",
    "enabled",
    "timeout",
    "startup_timeout",
    "startup_limit",
    "output_limit",
    "lazy",
    "always",
    "pins",
    "trust",
    "include",
    "exclude",
    "read_only",
    "tools",
    "permissions",
)
_LOGIN: Final = ("client_id", "client_secret", "scopes", "audience")
_TOKENS: Final = ("token_url", "issuer", "resource", "scopes", "dpop")
_CLIENT: Final = ("client_secret", "private_key", "private_key_file", "client_assertion", "client_assertion_file")
_SUBJECT: Final = ("subject_token", "subject_token_file")
_ASSERTION: Final = ("assertion", "assertion_file")
_IDP: Final = ("idp_token_url", "idp_issuer", "idp_client_id", "idp_client_secret")

OAUTH_KEYS: Final[Mapping[OAuthMode, tuple[str, ...]]] = {
    "auto": _LOGIN,
    "off": (),
    "manual": (*_LOGIN, "auth_url", "token_url"),
    "client_credentials": ("client_id", *_CLIENT, "algorithm", *_TOKENS),
    "enterprise_managed": (
        *("client_id", *_CLIENT, "algorithm", *_IDP, *_SUBJECT, "subject_token_type", "audience"),
        *_TOKENS,
    ),
    "workload_identity": (*_ASSERTION, "client_id", *_TOKENS),
    "token_exchange": (
        *("client_id", "client_secret", "private_key", "private_key_file", "algorithm"),
        *("token_url", "issuer", "audience", "resource", "scopes"),
    ),
}
"""The keys of `oauth_config` that go with each mode."""
_OAUTH: Final = tuple(dict.fromkeys(key for keys in OAUTH_KEYS.values() for key in keys))
_OAUTH_URLS: Final = ("auth_url", "token_url", "issuer", "idp_token_url")
SUBJECT_TOKEN_TYPES: Final[tuple[SubjectTokenType, ...]] = ("id_token", "saml2", "refresh_token")
_NEEDED: Final[Mapping[OAuthMode, tuple[str, ...]]] = {
    "manual": ("client_id", "auth_url", "token_url"),
    "client_credentials": ("client_id",),
    "enterprise_managed": ("client_id", "idp_token_url"),
    "token_exchange": ("client_id", "token_url"),
}
# At most one of these keys may be there; where it says True, one must.
_ONE_OF: Final[Mapping[OAuthMode, tuple[tuple[tuple[str, ...], bool], ...]]] = {
    "client_credentials": ((_CLIENT, True),),
    "enterprise_managed": ((_CLIENT, False), (_SUBJECT, True)),
    "workload_identity": ((_ASSERTION, True),),
    "token_exchange": ((("client_secret", "private_key", "private_key_file"), True),),
}
_RULE: Final = ("pattern", "comment", "reason", "expires_at")
_SPELLINGS: Final = {"streamable-http": "http", "streamable_http": "http", "streamableHttp": "http", "https": "http"}
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FIELD_VALUE: Final = re.compile(r"[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?|")
_LOOPBACK: Final = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}|::1")


@final
class _Notes:
    """The lines of a table's keys, and the problems found."""

    def __init__(self, source: Source, path: str, lines: Mapping[str, int]) -> None:
        self._source = source
        self._path = path
        self._lines = lines
        self.problems: list[Problem] = []

    def add(self, key: str, message: str, kind: ProblemKind = "invalid_value") -> None:
        whole = f"{self._path}.{key}" if key else self._path
        self.problems.append(Problem(self._source.file, message, whole, self.line(key), kind))

    def line(self, key: str) -> int | None:
        """The line of the key, or of the nearest table around it."""
        while key:
            if key in self._lines:
                return self._lines[key]
            key = key.rpartition("[" if key.endswith("]") else ".")[0]
        return self._lines.get("")

    def unknown(self, table: Mapping[str, Any], known: Iterable[str], key: str = "") -> None:
        known = tuple(known)
        for name in table:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                if (rest := _server_below(name, table[name])) and not key:
                    whole = f"{self._path.removeprefix('server.')}.{rest}"
                    hint = f"a name with a dot in it is written in quotes, [server.{key_text(whole)}]"
                self.add(f"{key}.{name}" if key else name, f"this key is not known; {hint}", "unknown_key")


def _server_below(name: str, value: Any) -> str:
    """The dotted rest of a server's name that was not quoted: TOML reads `[server.a.b]` as a table within a table."""
    while isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        if "command" in table or "url" in table:
            return name
        if len(table) != 1:
            return ""
        ((inner, value),) = table.items()
        name = f"{name}.{inner}"
    return ""


def read_entry(
    name: str,
    table: Any,
    source: Source,
    machine: Machine,
    lines: Mapping[str, int],
    default_pins: PinMode | None = None,
    default_trust: TrustEntry | None = None,
) -> ServerEntry | FailedEntry:
    """The entry of a server.

    Args:
        lines: The lines of its keys, by their path below the entry.
        default_pins: The file's own setting for pins.
        default_trust: The file's `[trust]`.
    """
    notes = _Notes(source, f"server.{key_text(name)}", lines)
    if not isinstance(table, Mapping):
        notes.add("", f"a table is expected, [server.{key_text(name)}], not {_kind(table)}")
        return FailedEntry(name=name, source=source, problems=tuple(notes.problems), line=notes.line(""))
    whole = cast("Mapping[str, Any]", table)
    reading = _Reading(whole, machine, notes)
    entry = reading.entry(name, source, lines, default_pins, default_trust or TrustEntry())
    if not notes.problems:
        return entry
    return FailedEntry(
        name=name,
        source=source,
        problems=tuple(notes.problems),
        disabled=entry.disabled,
        table=whole,
        line=notes.line(""),
    )


@final
class _Reading:
    """One entry being read. An unreadable key is noted as a problem and otherwise ignored."""

    def __init__(self, table: Mapping[str, Any], machine: Machine, notes: _Notes) -> None:
        self._table = table
        self._machine = machine
        self._variables = machine.variables
        self._notes = notes

    def entry(
        self,
        name: str,
        source: Source,
        lines: Mapping[str, int],
        default_pins: PinMode | None,
        default_trust: TrustEntry,
    ) -> ServerEntry:
        self._notes.unknown(self._table, (*_STDIO, *_HTTP, *_COMMON))
        transport = self._transport()
        self._refuse_keys_of_other_transport(transport)
        reach = self._child() if transport == "stdio" else self._remote()
        return ServerEntry(
            name=name,
            source=source,
            transport=transport,
            **reach,
            disabled=self._disabled(),
            timeout=self._take("timeout", read_duration, None),
            startup_timeout=self._take("startup_timeout", read_duration, None),
            startup_limit=self._take("startup_limit", read_duration, None),
            output_limit=self._take("output_limit", read_size, 2 * 1024 * 1024),
            lazy=self._take("lazy", _flag, False),
            always=self._always("", self._table),
            pins=self._take("pins", read_pin_mode, default_pins),
            trust=self._trust(default_trust),
            include=self._take("include", _patterns, None),
            exclude=self._take("exclude", _patterns, ()),
            read_only=self._take("read_only", _flag, False),
            tools=self._tools(),
            permissions=read_rules(self._map("permissions"), source, self._complain, self._notes.line),
            table=self._table,
            lines=lines,
        )

    def _complain(self, key: str, message: str) -> None:
        self._notes.add(key, message, "invalid_rule")

    def _trust(self, default: TrustEntry) -> TrustEntry:
        def complain(key: str, message: str) -> None:
            self._notes.add(f"trust.{key}" if key else "trust", message)

        return read_trust(self._table.get("trust", {}), default, complain, for_server=True)

    # --- plain values ------------------------------------------------------------------------------------------------

    def _take(
        self,
        key: str,
        read: Callable[[Any], T],
        default: Any,
        table: Mapping[str, Any] | None = None,
        at: str | None = None,
    ) -> T:
        table = self._table if table is None else table
        if key not in table:
            return default
        try:
            return read(table[key])
        except ValueError as error:
            self._notes.add(at or key, str(error))
            return default

    def _map(self, key: str) -> Mapping[str, Any]:
        value = self._table.get(key, {})
        if isinstance(value, Mapping):
            return cast("Mapping[str, Any]", value)
        self._notes.add(key, f"a table is expected, not {_kind(value)}")
        return {}

    def _text(self, key: str, value: Any) -> str:
        """A text with its variables filled in; empty where that fails, which is noted."""
        if not isinstance(value, str):
            self._notes.add(key, f"a text in quotes is expected, not {_kind(value)}")
            return ""
        try:
            expanded = expand(value, self._variables)
        except Unexpandable as error:
            self._notes.add(key, str(error), error.kind)
            return ""
        if "\0" in expanded:
            self._notes.add(key, "there is a NUL character in it, which no program can be given")
            return ""
        return expanded

    def _texts(self, key: str) -> dict[str, str]:
        return {name: self._text(f"{key}.{name}", value) for name, value in self._map(key).items()}

    def _disabled(self) -> bool:
        disabled = self._take("disabled", _flag, False)
        if "enabled" not in self._table:
            return disabled
        enabled = self._take("enabled", _flag, not disabled)
        if "disabled" in self._table and enabled == disabled:
            self._notes.add("enabled", "enabled and disabled contradict each other: keep one of them", "contradiction")
        return not enabled

    # --- transports --------------------------------------------------------------------------------------------------

    def _transport(self) -> Transport:
        key = "transport" if "transport" in self._table else "type"
        transport = self._table.get(key, "stdio")
        if self._table.get("type", transport) != transport:
            self._notes.add(
                "type", "type is another word for transport, and they differ: keep one of them", "contradiction"
            )
        if transport in _TRANSPORTS:
            return transport
        better = _SPELLINGS.get(transport) if isinstance(transport, str) else None
        hint = f'; write "{better}"' if better else ""
        quoted = f'"{transport[:40]}"' if isinstance(transport, str) else _kind(transport)
        self._notes.add(key, f'{quoted} is not a transport: "stdio", "http" and "sse" are{hint}', "invalid_transport")
        return "http" if "url" in self._table else "stdio"

    def _refuse_keys_of_other_transport(self, transport: Transport) -> None:
        """R228, R229: a key of another transport is a mistake, not decoration."""
        is_chosen = "transport" in self._table or "type" in self._table
        for key in _HTTP if transport == "stdio" else _STDIO:
            if key not in self._table:
                continue
            if transport != "stdio":
                message = f'{key} is for a process, and this server is reached by "{transport}": remove it'
            elif is_chosen or "command" in self._table:
                message = f"{key} is for HTTP, and this server is a process (stdio): remove it"
            else:
                message = f'{key} is for HTTP: add transport = "http"'
            self._notes.add(key, message, "field_not_valid_for_transport")

    def _child(self) -> dict[str, Any]:
        command = ""
        if "command" in self._table:
            command = self._machine.at_home(self._text("command", self._table["command"]))
            if not command.strip() and not self._failed("command"):
                self._notes.add(
                    "command", "the command is empty: write the program that is the server", "missing_command"
                )
        elif "url" not in self._table:
            message = 'a command is expected: command = "npx", or a url with transport = "http"'
            self._notes.add("command", message, "missing_command")
        env = self._texts("env")
        for name in env:
            if not name or "=" in name or "\0" in name:
                self._notes.add(f"env.{name}", "this cannot be the name of a variable: it is empty, or holds = or NUL")
        cwd = self._table.get("cwd")
        return {
            "command": command,
            "args": self._args(),
            "env": env,
            "inherit_env": self._take("inherit_env", _flag, False),
            "cwd": None if cwd is None else self._machine.at_home(self._text("cwd", cwd)) or None,
            "sandbox": self._sandbox(),
        }

    def _sandbox(self) -> Sandbox | None:
        """The policy, with variables and `~` filled in; a relative path is one of the server's folder."""
        written = self._table.get("sandbox")
        if isinstance(written, Mapping):
            table = dict(cast("Mapping[str, Any]", written))
            for key in ("read", "write"):
                if isinstance(table.get(key), list):
                    paths = cast("list[Any]", table[key])
                    table[key] = [self._machine.at_home(self._text(f"sandbox.{key}", path)) for path in paths]
            written = table
        if self._failed("read") or self._failed("write"):
            return None
        try:
            policy = read_sandbox(written)
        except ConfigError as error:
            self._notes.add("sandbox", str(error))
            return None
        if policy is not None and self._table.get("inherit_env") is True:
            message = "inherit_env passes on every secret, and sandbox keeps them: keep one of the two"
            self._notes.add("sandbox", message, "contradiction")
        return policy

    def _failed(self, key: str) -> bool:
        return any(problem.key.endswith(f".{key}") for problem in self._notes.problems)

    def _args(self) -> tuple[str, ...]:
        value: Any = self._table.get("args", [])
        if not isinstance(value, list):
            self._notes.add("args", f'a list of texts is expected, args = ["-y", "server"], not {_kind(value)}')
            return ()
        return tuple(self._text(f"args[{at}]", argument) for at, argument in enumerate(cast("list[Any]", value)))

    def _remote(self) -> dict[str, Any]:
        headers = self._texts("headers")
        for name, value in headers.items():
            if not _TOKEN.fullmatch(name):
                self._notes.add(
                    f"headers.{name}", f"{name[:60]!r} is not a name that HTTP allows for a header", "invalid_header"
                )
            elif not _FIELD_VALUE.fullmatch(value):
                self._notes.add(
                    f"headers.{name}",
                    f"the value of the header {name} is not legal HTTP: no line ends, no control characters, "
                    "no blanks around it, no letters outside Latin-1",
                    "invalid_header",
                )
        mode, oauth = self._oauth(headers)
        return {"url": self._url("url"), "headers": headers, "oauth": mode, "oauth_config": oauth}

    def _url(self, key: str) -> str:
        if key not in self._table:
            self._notes.add(key, 'a url is expected: url = "https://host/mcp"', "missing_url")
            return ""
        url = self._text(key, self._table[key])
        if not self._failed(key) and (wrong := _url_problem(url)):
            self._notes.add(key, f"{mask_url(str(self._table[key]))!r} {wrong}", "invalid_url")
        return url

    # --- authorization -----------------------------------------------------------------------------------------------

    def _oauth(self, headers: Mapping[str, str]) -> tuple[OAuthMode, OAuthEntry | None]:
        oauth: Any = self._table.get("oauth")
        details, key = self._map("oauth_config"), "oauth_config"
        if isinstance(oauth, Mapping):  # C32: [server.X.oauth] with a mode says both at once
            if "oauth_config" in self._table:
                self._notes.add("oauth_config", "oauth is a table already: keep one of the two", "contradiction")
            details, key = cast("Mapping[str, Any]", oauth), "oauth"
            oauth = details.get("mode", "manual" if {"auth_url", "token_url"} & details.keys() else "auto")
            details = {name: value for name, value in details.items() if name != "mode"}
        by_hand = next((name for name in headers if name.lower() == "authorization"), None)
        if oauth is None:  # C31: with credentials of its own it needs no login
            oauth = "off" if by_hand is not None and not details else "auto"
        if oauth not in OAUTH_KEYS:
            at = "oauth.mode" if key == "oauth" else "oauth"
            modes = ", ".join(f'"{mode}"' for mode in OAUTH_KEYS)
            self._notes.add(at, f"one of {modes} is expected, not {_quoted(oauth)}", "invalid_oauth_mode")
            return "off", None
        mode: OAuthMode = oauth
        if mode != "off" and by_hand is not None:
            self._notes.add(
                f"headers.{by_hand}",
                f'this header and oauth = "{mode}" both say who calls: remove one of them',
                "contradiction",
            )
        return mode, self._oauth_entry(mode, details, key)

    def _oauth_entry(self, mode: OAuthMode, details: Mapping[str, Any], key: str) -> OAuthEntry | None:
        self._notes.unknown(details, _OAUTH, key)
        if mode == "off":
            if details:
                message = 'this says nothing with oauth = "off": remove it, or choose another mode'
                self._notes.add(key, message, "contradiction")
            return None
        for name in details:
            if name in _OAUTH and name not in OAUTH_KEYS[mode]:
                others = " or ".join(f'"{other_mode}"' for other_mode, keys in OAUTH_KEYS.items() if name in keys)
                hint = '; "auto" finds it out' if mode == "auto" and name in ("auth_url", "token_url") else ""
                message = f'{name} goes with oauth = {others}, not with "{mode}"{hint}'
                self._notes.add(f"{key}.{name}", message, "contradiction")
        values = self._oauth_values(mode, details, key)
        self._require_oauth(mode, details, values, key)
        return OAuthEntry(**values) if details else None

    def _oauth_values(self, mode: OAuthMode, details: Mapping[str, Any], key: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in OAUTH_KEYS[mode]:
            if name not in details:
                continue
            at, value = f"{key}.{name}", details[name]
            if name == "scopes":
                values[name] = self._scopes(value, at)
            elif name == "dpop":
                values[name] = self._take(name, _flag, False, details, at)
            elif text := self._text(at, value):
                values[name] = text
                if name.endswith("_file"):
                    values[name] = str(self._machine.in_workspace(self._machine.at_home(text)))
                elif name in _OAUTH_URLS and (wrong := _url_problem(text) or _plain_http(text)):
                    self._notes.add(at, f"{mask_url(str(value))!r} {wrong}", "invalid_url")
                elif name == "subject_token_type" and text not in SUBJECT_TOKEN_TYPES:
                    kinds = ", ".join(f'"{kind}"' for kind in SUBJECT_TOKEN_TYPES)
                    self._notes.add(at, f"one of {kinds} is expected, not {_quoted(text)}")
        return values

    def _require_oauth(self, mode: OAuthMode, details: Mapping[str, Any], values: dict[str, Any], key: str) -> None:
        """The required keys of a mode, and groups of which one key is required."""
        incomplete: ProblemKind = "oauth_manual_incomplete" if mode == "manual" else "oauth_incomplete"
        for name in _NEEDED.get(mode, ()):
            kind: ProblemKind = "oauth_no_client_id" if name == "client_id" else incomplete
            if name not in details:
                self._notes.add(f"{key}.{name}", f'{name} is missing, which oauth = "{mode}" needs', kind)
            elif name not in values and not self._failed(name):
                self._notes.add(f"{key}.{name}", f'{name} is empty, which oauth = "{mode}" does not allow', kind)
        for names, is_needed in _ONE_OF.get(mode, ()):
            present = [name for name in names if name in details]
            if len(present) > 1:
                self._notes.add(
                    f"{key}.{present[1]}", f"{present[0]} says this already: keep one of them", "contradiction"
                )
            elif is_needed and (not present or (present[0] not in values and not self._failed(present[0]))):
                message = f'oauth = "{mode}" needs one of {", ".join(names)}'
                self._notes.add(f"{key}.{present[0]}" if present else key, message, "oauth_incomplete")
        if "client_secret" in values and "client_id" not in details and mode == "auto":
            message = "the client_id that this secret belongs to is missing"
            self._notes.add(f"{key}.client_secret", message, "oauth_no_client_id")
        if mode == "enterprise_managed" and "token_url" in values and not {"issuer", "audience"} & values.keys():
            message = "with a token_url, say whose it is: add issuer, or audience"
            self._notes.add(f"{key}.token_url", message, "oauth_incomplete")

    def _scopes(self, value: Any, key: str) -> tuple[str, ...]:
        if isinstance(value, str):
            return tuple(self._text(key, value).split())
        if not isinstance(value, list):
            self._notes.add(key, f'a list of texts is expected, scopes = ["read"], not {_kind(value)}')
            return ()
        scopes = tuple(self._text(f"{key}[{at}]", item) for at, item in enumerate(cast("list[Any]", value)))
        for scope in scopes:
            if " " in scope:
                self._notes.add(key, "a scope holds no blank: write each as a text of its own")
        return scopes

    # --- tools -------------------------------------------------------------------------------------------------------

    def _tools(self) -> dict[str, ToolSettings]:
        settings: dict[str, ToolSettings] = {}
        for name, value in self._map("tools").items():
            key = f"tools.{name}"
            if not isinstance(value, Mapping):
                self._notes.add(key, f"a table is expected, not {_kind(value)}")
                continue
            table = cast("Mapping[str, Any]", value)
            timeout = self._take("timeout", read_duration, None, table, f"{key}.timeout")
            touches = self._take("touches", read_touches, None, table, f"{key}.touches")
            settings[name] = ToolSettings(
                timeout=timeout,
                touches=touches,
                lazy=self._take("lazy", _flag, False, table, f"{key}.lazy"),
                always=self._always(f"{key}.", table),
                transform=self._transform(name, table, key),
            )
        return settings

    def _always(self, path: str, table: Mapping[str, Any]) -> bool:
        always = self._take("always", _flag, False, table, f"{path}always")
        if always and table.get("lazy") is True:
            self._notes.add(
                f"{path}always", "lazy and always contradict each other: remove one of them", "contradiction"
            )
        return always

    def _transform(self, tool: str, table: Mapping[str, Any], key: str) -> dict[str, Any]:
        """How a tool is shown; without what is wrong, which is noted."""
        from trimaran.server.transform_options import CONFIG_KEYS, find_fault, is_tool_name

        self._notes.unknown(table, ("timeout", "touches", "lazy", "always", *CONFIG_KEYS), key)
        options = {name: table[name] for name in CONFIG_KEYS if name in table}
        fault = find_fault(options)
        if fault is None and "name" in options and not is_tool_name(tool):
            fault = "name", f"a name is for one tool, and {tool!r} may be several: remove it"
        if fault is not None:
            self._notes.add(f"{key}.{fault[0]}", fault[1])
            return {}
        if "arguments" in options:
            options["arguments"] = {
                argument: {
                    name: self._text(f"{key}.arguments.{argument}.{name}", value)
                    if name in ("value", "default") and isinstance(value, str)
                    else value
                    for name, value in changes.items()
                }
                for argument, changes in options["arguments"].items()
            }
        return options


def read_rules(
    table: Mapping[str, Any],
    source: Source,
    complain: Callable[[str, str], None],
    line_of: Callable[[str], int | None],
) -> tuple[RuleEntry, ...]:
    """The rules of a `permissions` table; problems go to `complain(key, message)`."""
    rules: list[RuleEntry] = []
    for name, listed in table.items():
        at = f"permissions.{name}"
        if name not in _ACTIONS:
            near = difflib.get_close_matches(name, _ACTIONS, n=1)
            complain(
                at, f"this key is not known; {f'did you mean {near[0]!r}?' if near else 'known are allow, deny, ask'}"
            )
            continue
        if not isinstance(listed, list):
            complain(at, f'a list of patterns is expected, {name} = ["read_*"], not {_kind(listed)}')
            continue
        for number, item in enumerate(cast("list[Any]", listed)):
            rule = _rule(item, f"{at}[{number}]", complain)
            if rule is not None:
                rules.append(RuleEntry(action=name, source=source, line=line_of(at), **rule))
    return tuple(rules)


def _rule(value: Any, key: str, complain: Callable[[str, str], None]) -> dict[str, Any] | None:
    table: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {"pattern": value}
    for name in table:
        if name not in _RULE:
            complain(f"{key}.{name}", f"this key is not known; known are {', '.join(_RULE)}")
            return None
    pattern = table.get("pattern")
    if not isinstance(pattern, str) or not pattern:
        complain(key, f"a pattern is expected, a text that is not empty, not {_kind(pattern)}")
        return None
    fields: dict[str, Any] = {"pattern": pattern}
    for name in ("comment", "reason", "expires_at"):
        text = table.get(name)
        if text is None:
            continue
        if isinstance(text, (int, float, Sequence, Mapping)) and not isinstance(text, str):
            complain(f"{key}.{name}", f"a text is expected, not {_kind(text)}")
            return None
        fields[name] = str(text)  # a date of TOML reads as ISO 8601
    return fields


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"true or false is expected, not {_quoted(value)}")


def read_pin_mode(value: Any) -> PinMode:
    """The value of `pins`.

    Raises:
        ValueError: it is none of the modes.
    """
    if value in PIN_MODES:
        return value
    raise ValueError(f'"ask", "refuse", "warn" or "off" is expected, not {_quoted(value)}')


def _patterns(value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(item, str) and item for item in cast("list[Any]", value)):
        return tuple(cast("list[str]", value))
    raise ValueError(f'a list of names, patterns and tags is expected, ["search_*", "tag:read"], not {_kind(value)}')


def _url_problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is not a URL: write https://host/mcp"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "is no http:// or https:// URL with a host: write https://host/mcp"
    if parts.username is not None or parts.password is not None:
        return "holds credentials, which would end up in logs: use headers or oauth"
    if any(sign.isspace() or not sign.isprintable() for sign in url):
        return "holds a blank or a control character: a URL has none"
    return ""


def _plain_http(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "http" and not _LOOPBACK.fullmatch(parts.hostname or ""):
        return "is not https: tokens go over https, or stay on this machine"
    return ""


def _quoted(value: Any) -> str:
    return f'"{value[:40]}"' if isinstance(value, str) else _kind(value)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "a text" if value else "an empty text"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list) else "a date or time"
