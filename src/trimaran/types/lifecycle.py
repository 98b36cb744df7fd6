"""How two programs meet: `server/discover` on the modern era, `initialize` on the legacy ones."""

from __future__ import annotations

from msgspec import Raw, field

from .wire import Implementation, Json, Name, Params, Wire


class DiscoverParams(Params, frozen=True, kw_only=True):
    """Nothing but `_meta`; also the params of `ping`."""


class DiscoverResult(Wire):
    supported_versions: list[str]
    capabilities: dict[str, Json]
    instructions: str | None = None
    result_type: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)


class InitializeParams(Params, frozen=True, kw_only=True):
    protocol_version: Name
    capabilities: dict[str, Json]
    client_info: Implementation


class InitializeResult(Wire):
    protocol_version: str
    capabilities: dict[str, Json]
    server_info: Implementation
    instructions: str | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class SetLevelParams(Params, frozen=True, kw_only=True):
    level: Name


class EmptyResult(Wire):
    result_type: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)
