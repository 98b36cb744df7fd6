"""The types of a configuration: values, and the place of each.

Nothing here reads or checks anything; `entry.py` makes entries, `load.py` makes the whole. A setting that a file leaves open is None
where the environment or the host decides (R269), and the default where this file alone does.

The repr of an entry has no secrets. `table` is the entry as it was written, variables unexpanded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, final, get_args

from msgspec import Struct, field

from trimaran.client.sandbox_policy import Sandbox
from trimaran.errors import ConfigError
from trimaran.types import Json

from ..terminal_text import visible

Transport: TypeAlias = Literal["stdio", "http", "sse"]
OAuthMode: TypeAlias = Literal[
    "auto", "off", "manual", "client_credentials", "enterprise_managed", "workload_identity", "token_exchange"
]
UNATTENDED: Final[tuple[OAuthMode, ...]] = ("client_credentials", "enterprise_managed", "workload_identity")
"""The modes that get their tokens without a person."""
SubjectTokenType: TypeAlias = Literal["id_token", "saml2", "refresh_token"]
Action: TypeAlias = Literal["allow", "deny", "ask"]
Level: TypeAlias = Literal["user", "project", "file"]
PinMode: TypeAlias = Literal["ask", "refuse", "warn", "off"]
"""The treatment of a definition that is not as it was pinned; `trust/review.py` says what each means."""
PIN_MODES: Final[tuple[PinMode, ...]] = ("ask", "refuse", "warn", "off")
ScanMode: TypeAlias = Literal["ask", "warn", "off"]
"""ask: a grave finding in a server's words makes calls ask. warn: findings are listed and logged."""
SCAN_MODES: Final[tuple[ScanMode, ...]] = get_args(ScanMode)
FlowMode: TypeAlias = Literal["ask", "refuse", "warn", "off"]
"""ask: a person is asked, and where there is none the call is refused. refuse: it is refused. warn: it is logged."""
FLOW_MODES: Final[tuple[FlowMode, ...]] = get_args(FlowMode)
Touch: TypeAlias = Literal["private", "untrusted", "outside", "acts"]
"""The things that a tool touches; `trust/touches.py` says what each means."""
TOUCHES: Final[tuple[Touch, ...]] = get_args(Touch)


ProblemKind: TypeAlias = Literal[
    "io",
    "config_parse",
    "invalid_server_name",
    "unknown_key",
    "invalid_value",
    "contradiction",
    "missing_command",
    "invalid_transport",
    "field_not_valid_for_transport",
    "missing_url",
    "invalid_url",
    "invalid_header",
    "missing_env",
    "invalid_reference",
    "invalid_oauth_mode",
    "oauth_no_client_id",
    "oauth_manual_incomplete",
    "oauth_incomplete",
    "invalid_rule",
    "spawn",
]
"""The kind of problem, for programs (R280); docs/reference/errors.md has the table."""


@final
class Source(Struct, frozen=True):
    """A file that was read."""

    file: str
    level: Level
    """`user`, `project`, or `file` for one that was named."""


@final
class Problem(Struct, frozen=True):
    """A problem, its place, and the remedy. Its text begins with `file:line:`, which editors and terminals understand.

    It is one line, and safe to print: a key may hold anything, and the file may be somebody else's.
    """

    file: str
    message: str
    key: str = ""
    """The dotted path of the key, `server.linear.command`; empty if it is about the file."""
    line: int | None = None
    kind: ProblemKind = "invalid_value"
    """The kind of problem, for programs (R280)."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return visible(": ".join(part for part in (place, self.key, self.message) if part))

    def to_json(self) -> dict[str, Json]:
        """For programs: `kind`, where it is, and the message."""
        return {
            "kind": self.kind,
            "file": self.file,
            "line": self.line,
            "key": self.key,
            "message": visible(self.message),
        }


class ConfigUnusable(ConfigError):
    """The whole configuration cannot be used: it cannot be read, or it says nothing certain (R226)."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.kind = problem.kind


@final
class RuleEntry(Struct, frozen=True, kw_only=True):
    """A permission rule as written; `permissions` interprets its pattern (R244)."""

    action: Action
    pattern: str
    comment: str | None = None
    reason: str | None = None
    """Told to the model when the rule denies."""
    expires_at: str | None = None
    source: Source
    line: int | None = None


@final
class TrustEntry(Struct, frozen=True, kw_only=True):
    """The settings of `[trust]` and `[server.X.trust]` for a server's texts and data."""

    scan: ScanMode | None = None
    """None leaves it to the host, then "ask"."""
    flow: FlowMode | None = None
    """None leaves it to the host, then: ask where a person can be asked, and log elsewhere."""
    allow: tuple[str, ...] = ()
    """The rules whose findings are accepted, by their ids."""
    touches: tuple[Touch, ...] | None = None
    """The things that the server's tools touch; None leaves it to what is known of them."""


@final
class ContextEntry(Struct, frozen=True, kw_only=True):
    """The `[context]` of one file: how much a model reads."""

    budget: int | None = None
    """Tokens for the definitions of tools."""
    source: Source


@final
class ToolSettings(Struct, frozen=True, kw_only=True):
    """The settings of `[server.X.tools.Y]` for one tool, or for those that a pattern matches."""

    timeout: float | None = None
    touches: tuple[Touch, ...] | None = None
    """The things that the tool touches; None leaves it to the server's setting."""
    lazy: bool = False
    """Under a budget, a model finds it by search only."""
    always: bool = False
    """Under a budget, its definition stays whole."""
    transform: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """How it is shown: the options of `server.transform`. Values of arguments may be secret."""

    def __repr__(self) -> str:
        return f"ToolSettings(timeout={self.timeout!r}, transform={list(self.transform)})"


@final
class OAuthEntry(Struct, frozen=True, kw_only=True):
    """The table `[server.X.oauth_config]` (R211, R212, R231). `entry.py` knows the keys of each mode.

    A `*_file` is the path of a file that holds the value.
    """

    client_id: str | None = None
    client_secret: str | None = None
    auth_url: str | None = None
    token_url: str | None = None
    scopes: tuple[str, ...] = ()
    audience: str | None = None
    issuer: str | None = None
    resource: str | None = None
    dpop: bool = False

    private_key: str | None = None
    private_key_file: str | None = None
    algorithm: str | None = None
    client_assertion: str | None = None
    client_assertion_file: str | None = None

    idp_token_url: str | None = None
    idp_issuer: str | None = None
    idp_client_id: str | None = None
    idp_client_secret: str | None = None
    subject_token: str | None = None
    subject_token_file: str | None = None
    subject_token_type: SubjectTokenType | None = None

    assertion: str | None = None
    assertion_file: str | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that no message may hold."""
        values = (
            *(self.client_secret, self.private_key, self.client_assertion),
            *(self.idp_client_secret, self.subject_token, self.assertion),
        )
        return tuple(value for value in values if value)

    def __repr__(self) -> str:
        return f"OAuthEntry(client_id={self.client_id!r}, auth_url={self.auth_url!r}, scopes={self.scopes!r})"


@final
class ServerEntry(Struct, frozen=True, kw_only=True):
    """One server that can be used, all variables filled in."""

    name: str
    source: Source
    transport: Transport = "stdio"

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Set for the process, on top of the safe variables of the host's environment."""
    inherit_env: bool = False
    """Let the process have the host's whole environment, with every secret in it."""
    cwd: str | None = None
    """Where the process starts; None is where the host runs."""
    sandbox: Sandbox | None = None
    """The sandbox of the process; None lets it reach everything that the user may."""

    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    oauth: OAuthMode = "off"
    oauth_config: OAuthEntry | None = None

    disabled: bool = False
    timeout: float | None = None
    """Seconds for a call; None leaves it to the environment, then 60 (R269)."""
    startup_timeout: float | None = None
    """Seconds that a host waits for a start, which goes on after that; None leaves it to the environment, then 5."""
    startup_limit: float | None = None
    """Seconds after which a start is given up; None leaves it to the environment, then 180 for a process, else 30."""
    output_limit: int = 2 * 1024 * 1024
    """The most bytes of a result."""
    lazy: bool = False
    """Started when it is needed. Under a budget, a model finds its tools by search only."""
    always: bool = False
    """Under a budget, the definitions of its tools stay whole."""
    pins: PinMode | None = None
    """The treatment of definitions that are not as they were pinned; None leaves it to the file, then to the host."""
    trust: TrustEntry = TrustEntry()
    """How closely its words and the flow of its data are watched."""
    include: tuple[str, ...] | None = None
    """Names, patterns and tags of the tools that are shown; None is all."""
    exclude: tuple[str, ...] = ()
    read_only: bool = False
    """Show only tools that say that they change nothing."""
    tools: Mapping[str, ToolSettings] = field(default_factory=dict[str, ToolSettings])
    permissions: tuple[RuleEntry, ...] = ()
    """Globs over this server's own tool names (R238), in the order written."""

    table: Mapping[str, Json] = field(default_factory=dict[str, Json])
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    """On which line of the file a key stands, by its path below `server.NAME`; "" is the entry itself."""

    @property
    def enabled(self) -> bool:
        return not self.disabled

    def where(self, key: str = "") -> str:
        """`file:line` of a key of this entry, or of the entry."""
        line = self.lines.get(key, self.lines.get(""))
        return self.source.file if line is None else f"{self.source.file}:{line}"

    def target(self) -> dict[str, Json]:
        """The target for `connect`, for every transport (R236)."""
        if self.transport == "stdio":
            return {
                "command": self.command,
                "args": list(self.args),
                "env": dict(self.env),
                "inherit_env": self.inherit_env,
                "cwd": self.cwd,
                **({} if self.sandbox is None else {"sandbox": self.sandbox}),
            }
        return {"transport": self.transport, "url": self.url, "headers": dict(self.headers)}

    def __repr__(self) -> str:
        return f"<ServerEntry {self.name!r}: {self.transport}, {self.where()}>"


@final
class FailedEntry(Struct, frozen=True, kw_only=True):
    """One server that cannot be used, and every reason why. The others work."""

    name: str
    source: Source
    problems: tuple[Problem, ...]
    disabled: bool = False
    """It says `disabled = true` all the same."""
    table: Mapping[str, Json] = field(default_factory=dict[str, Json])
    line: int | None = None

    @property
    def reason(self) -> str:
        """All problems in one text, a line each."""
        return "\n".join(map(str, self.problems))

    def __repr__(self) -> str:
        return f"<FailedEntry {self.name!r}: {len(self.problems)} problems>"


@final
class HostConfig(Struct, frozen=True, kw_only=True):
    """A host's whole configuration: its files, and their merged content."""

    sources: tuple[Source, ...] = ()
    """The files that are there, the weakest first."""
    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    """The SHA-256 of each file's text, as it was read: a person trusts the text, not the name of a file."""
    servers: Mapping[str, ServerEntry] = field(default_factory=dict[str, ServerEntry])
    failed: Mapping[str, FailedEntry] = field(default_factory=dict[str, FailedEntry])
    replaced: Mapping[str, ServerEntry | FailedEntry] = field(default_factory=dict[str, "ServerEntry | FailedEntry"])
    """Servers of a weaker file whose name a stronger one uses for another (R225)."""
    rules: tuple[RuleEntry, ...] = ()
    """The global permission rules, those of the strongest file first (R244)."""
    contexts: tuple[ContextEntry, ...] = ()
    """The `[context]` tables, that of the strongest file first."""
    problems: tuple[Problem, ...] = ()
    """Problems that belong to no server: unknown keys at the top."""
    applications: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """The tables that applications read by themselves: `gateway` and `view`. Those of the stronger file count."""
    application_places: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where their keys stand, by dotted path: `mcp.toml:7`."""

    def __repr__(self) -> str:
        return f"<HostConfig: {len(self.servers)} servers, {len(self.failed)} failed>"
