"""What a gateway reads of `mcp.toml` beyond servers and rules: the tables `[gateway]` and `[view.NAME]`.

Variables (`${NAME}`) are filled in everywhere. A key that is not known, or a value of another kind, stops the load: a limit
that was misspelt would be no limit. What the servers and rules say is read by `trimaran.host`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar, cast, final

import msgspec
from msgspec import Struct, field

from trimaran.auth.limits import read_rate
from trimaran.errors import ConfigError
from trimaran.host.config.expand import Unexpandable, expand
from trimaran.host.config.machine import Machine
from trimaran.host.config.model import HostConfig
from trimaran.host.permissions.callers import check_callers
from trimaran.host.permissions.patterns import parse_pattern
from trimaran.option_names import suggestion
from trimaran.server.transform_options import read_transforms

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


@final
class RateSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[gateway.rate_limit]`: how many messages a caller, or an address, may send. See `trimaran.auth.RateLimit`."""

    principal: str | None = None
    address: str | None = None
    burst: int | None = None
    trusted_proxies: list[str] = []


@final
class ToolLimit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[gateway.limit]]`: how often each caller may call each of these tools."""

    tools: str
    """A rule without arguments, such as `mcp__github__*`."""
    rate: str
    burst: int | None = None


@final
class ViewSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[view.NAME]`: a part of the servers, at `/views/NAME/mcp`."""

    servers: list[str]
    tools: list[str] | None = None
    """The tools to show: patterns over the tools' own names, or `mcp__SERVER__PATTERN` for one server. None: all."""
    read_only: bool = False
    """Show only tools that say they change nothing."""
    transforms: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict[str, dict[str, dict[str, Any]]])
    """By server and tool: the options of `server.transform`, as far as they are data."""
    to: list[str] = []
    """Who may use the view: `group:research`, `user:ann`, `scope:read`; everybody by default."""
    prefix: bool = True
    """Put the name of the server before names of tools and prompts."""
    instructions: str | None = None


@final
class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[gateway.server.NAME]`: what only a gateway wants to know of a server."""

    connections: Literal["shared", "caller"] = "shared"
    """"caller" gives each caller a connection, and so a child process or a session, of its own: for servers with state."""
    max_connections: int = 100
    """How many callers may have one at the same time."""


@final
class GatewaySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[gateway]`."""

    public_url: str | None = None
    """The address of the gateway as clients write it, without a path: `https://tools.example.com`."""
    store: str | None = None
    """Where several processes share sessions, tasks and questions; see `trimaran.state`."""
    secret_keys: list[str] = []
    """Seal what callers carry between two rounds of a call. Several processes need the same ones; the first one seals."""
    auth: Any = None
    """Who may call: a table, or a list of tables, as `trimaran.auth.provider_from` takes them; "none" for everybody."""
    groups: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Callers by group, for providers whose tokens name no groups."""
    groups_claim: str = "groups"
    """The claim of a token that lists the caller's groups."""
    admins: list[str] = []
    """Who may see the page, the figures and the reasons of failures: `group:ops`, `user:ann`, `scope:admin`."""
    open_metrics: bool = False
    """Let anyone read `/metrics`."""
    default: Literal["allow", "deny"] | None = None
    """What happens to a call that no rule matches; by default, "deny" as soon as there is a rule that allows."""
    audit: str | None = None
    """The file that gets a line for every decision and every call."""
    audit_arguments: Literal["digest", "full", "none"] = "digest"
    pins: Literal["refuse", "warn", "off"] = "off"
    """What happens to definitions of servers that are not as they were pinned; a server's own `pins` counts more."""
    pins_path: str | None = None
    """The folder of the pins; None for that of the user who runs the gateway."""
    rate_limit: RateSettings | None = None
    limit: list[ToolLimit] = []
    allowed_origins: list[str] | Literal["any"] | None = None
    allow_missing_origin: bool | None = None
    allowed_hosts: list[str] | None = None
    server: dict[str, ServerSettings] = field(default_factory=dict[str, ServerSettings])
    max_connections: int = 500
    """Connections of single callers, to all servers together. Each may be a child process."""
    max_connections_per_caller: int = 20
    """One caller's share of them."""
    shared_logins: tuple[str, ...] = ()
    """The servers that share the logins of their issuers: a caller logs in once for all of them. A server says by itself who
    its issuer is, so one that lies could otherwise have a token made with the login of another."""
    telemetry: bool = False
    """Spans by OpenTelemetry; needs the extra `otel`."""

    @property
    def is_open(self) -> bool:
        """Nobody is asked who they are."""
        return self.auth is None or self.auth == "none"

    def group_problems(self) -> list[str]:
        """Members of groups that are written as rules write callers; here they are subjects, and nothing more."""
        return [
            f"gateway.groups.{group}: {member!r} is the subject of nobody, unless tokens say it so; a subject stands here alone"
            for group, members in self.groups.items()
            for member in members
            if member.startswith(("user:", "group:", "scope:"))
        ]


def read_settings(config: HostConfig, machine: Machine) -> GatewaySettings:
    """What `[gateway]` says.

    Raises:
        ConfigError: a key is not known, or has a value that cannot be; names the line.
    """
    table = _read_table(config, config.applications.get("gateway", {}), "gateway", machine)
    settings = _convert(config, table, GatewaySettings, "gateway")
    for name in settings.server:
        _check_server(config, name, f"gateway.server.{name}")
    _check(config, "gateway.admins", check_callers, settings.admins)
    for at, limit in enumerate(settings.limit):
        _check(config, f"gateway.limit[{at}].rate", read_rate, "it", limit.rate)
        _check(config, f"gateway.limit[{at}].tools", parse_pattern, limit.tools)
    if settings.rate_limit is not None:
        for key, rate in (("principal", settings.rate_limit.principal), ("address", settings.rate_limit.address)):
            if rate is not None:
                _check(config, f"gateway.rate_limit.{key}", read_rate, "it", rate)
    return settings


def read_views(config: HostConfig, machine: Machine) -> dict[str, ViewSettings]:
    """What `[view.NAME]` says, by name.

    Raises:
        ConfigError: a key is not known, a value cannot be, or a view names a server that is not there; names the line.
    """
    views: dict[str, ViewSettings] = {}
    for name, table in _read_table(config, config.applications.get("view", {}), "view", machine).items():
        key = f"view.{name}"
        if not _NAME.fullmatch(name):
            raise fault(config, key, "a view has a name of letters, digits, _ and -, since it is part of a URL")
        view = views[name] = _convert(config, _read_table(config, table, key, machine), ViewSettings, key)
        for server in view.servers:
            _check_server(config, server, f"{key}.servers")
        for server, tools in view.transforms.items():
            _check_server(config, server, f"{key}.transforms.{server}")
            try:
                read_transforms(tools, f"{key}.transforms.{server}")
            except ConfigError as error:
                wrong, _, message = str(error).partition(": ")
                raise fault(config, wrong, message) from None
        _check(config, f"{key}.to", check_callers, view.to)
    return views


def fault(config: HostConfig, key: str, message: str) -> ConfigError:
    """What is wrong with a key of `[gateway]` or `[view]`, with the line of the key or of the nearest table around it."""
    around = key
    while around and around not in config.application_places:
        around = around.rpartition("[" if around.endswith("]") else ".")[0]
    place = config.application_places.get(around) or (config.sources[-1].file if config.sources else "mcp.toml")
    return ConfigError(f"{place}: {key}: {message}")


def _check(config: HostConfig, key: str, read: Callable[..., object], *values: object) -> None:
    try:
        read(*values)
    except ConfigError as error:
        raise fault(config, key, str(error)) from None


def _check_server(config: HostConfig, name: str, key: str) -> None:
    if name not in config.servers and name not in config.failed:
        known = ", ".join((*config.servers, *config.failed)) or "none"
        hint = suggestion(name, config.servers)
        raise fault(config, key, f"there is no server {name!r};{hint} there are: {known}")


def _read_table(config: HostConfig, table: Any, key: str, machine: Machine) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise fault(config, key, f"a table is expected, [{key}]")
    return cast("dict[str, Any]", _expand(config, table, key, machine))


def _expand(config: HostConfig, value: Any, key: str, machine: Machine) -> Any:
    """The value with its variables filled in, at every depth, in keys too."""
    if isinstance(value, str):
        try:
            return expand(value, machine.variables)
        except Unexpandable as error:
            raise fault(config, key, str(error)) from None
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {  # a key may be an API key
            _expand(config, name, key, machine): _expand(config, item, f"{key}.{name}", machine)
            for name, item in table.items()
        }
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_expand(config, item, f"{key}[{at}]", machine) for at, item in enumerate(items)]
    return value


def _convert(config: HostConfig, table: Mapping[str, Any], kind: type[T], key: str) -> T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        key += place.rstrip("`")
        unknown = _UNKNOWN.fullmatch(message)
        if unknown is None:
            raise fault(config, key, message) from None
        known = getattr(kind, "__struct_fields__", ())
        hint = "" if place else f";{suggestion(unknown[1], known)} known are {', '.join(known)}"
        raise fault(config, f"{key}.{unknown[1]}", f"this key is not known{hint}") from None
