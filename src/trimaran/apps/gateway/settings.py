"""What a gateway reads of `mcp.toml` beyond servers and rules: the tables `[gateway]` and `[view.NAME]`.

Variables (`${NAME}`) are filled in everywhere. A key that is not known, or a value of another kind, stops the load: a limit
that was misspelt would be no limit. What the servers and rules say is read by `trimaran.host`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, cast, final

import msgspec
from msgspec import Struct, field

from trimaran.errors import ConfigError
from trimaran.host.config.expand import Unexpandable, expand
from trimaran.host.config.machine import Machine
from trimaran.host.config.model import HostConfig

__all__ = ["GatewaySettings", "RateSettings", "ToolLimit", "read_settings"]

T = TypeVar("T")


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
    """What happens to a call that no rule is about; unless said, "deny" as soon as there is a rule that allows."""
    audit: str | None = None
    """The file that gets a line for every decision and every call."""
    audit_arguments: Literal["digest", "full", "none"] = "digest"
    rate_limit: RateSettings | None = None
    limit: list[ToolLimit] = []
    allowed_origins: list[str] | Literal["any"] | None = None
    allow_missing_origin: bool | None = None
    allowed_hosts: list[str] | None = None
    telemetry: bool = False
    """Spans by OpenTelemetry; needs the extra `otel`."""

    @property
    def is_open(self) -> bool:
        """Nobody is asked who they are."""
        return self.auth is None or self.auth == "none"


def read_settings(config: HostConfig, machine: Machine) -> GatewaySettings:
    """What `[gateway]` says.

    Raises:
        ConfigError: a key is not known, or has a value of the wrong kind.
    """
    table = _read_table(config.applications.get("gateway", {}), "gateway", _where(config), machine)
    return _convert(table, GatewaySettings, "gateway", _where(config))


def _where(config: HostConfig) -> str:
    return config.sources[-1].file if config.sources else "mcp.toml"


def _read_table(table: Any, key: str, where: str, machine: Machine) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: {key}: a table is expected, [{key}]")
    return cast("dict[str, Any]", _expand(table, key, where, machine))


def _expand(value: Any, key: str, where: str, machine: Machine) -> Any:
    """The value with its variables filled in, at every depth."""
    if isinstance(value, str):
        try:
            return expand(value, machine.variables)
        except Unexpandable as error:
            raise ConfigError(f"{where}: {key}: {error}") from None
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {name: _expand(item, f"{key}.{name}", where, machine) for name, item in table.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_expand(item, f"{key}[{at}]", where, machine) for at, item in enumerate(items)]
    return value


def _convert(table: Mapping[str, Any], kind: type[T], key: str, where: str) -> T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        known = ", ".join(getattr(kind, "__struct_fields__", ()))
        hint = f"; known here are {known}" if "unknown field" in message and not place.strip("`") else ""
        raise ConfigError(f"{where}: {key}{place.rstrip('`')}: {message}{hint}") from None
