"""The methods table: everything the library knows about a method, in one row.

It says how a method's params decode, in which revisions it exists, which header must repeat its name,
whether its result carries cache hints or may be `input_required`, and which capability it depends on.
A protocol extension adds rows; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, final

import msgspec
from msgspec import Struct

from trimaran import types

from .versions import LEGACY, MODERN, V2024_11

NameField = Literal["name", "uri", "task_id"]


@final
class Method(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    params: type[types.Params]
    decode: Callable[[Any], Any]
    modern: bool = True
    """Whether 2026-07-28 has the method."""
    since: str | None = V2024_11
    """The first legacy revision that has it; None if none has."""
    capability: str | None = None
    """The server capability that must be advertised; without it the method does not exist."""
    routing_name: NameField | None = None
    """The param that the `Mcp-Name` header repeats."""
    cacheable: bool = False
    """Whether its modern result carries `ttlMs` and `cacheScope`."""
    input_rounds: bool = False
    """Whether its modern result may be `input_required`."""

    def exists_in(self, version: str) -> bool:
        """Whether this revision has the method."""
        if version == MODERN:
            return self.modern
        return self.since is not None and version >= self.since


def _row(name: str, params: type[types.Params], **rest: Any) -> Method:
    return Method(name=name, params=params, decode=msgspec.json.Decoder(params).decode, **rest)


def extend(
    name: str,
    params: type[types.Params],
    *,
    modern: bool = True,
    since: str | None = None,
    capability: str | None = None,
    routing_name: NameField | None = None,
    cacheable: bool = False,
    input_rounds: bool = False,
) -> Method:
    """Make a row for a method that an extension brings; the server that enables it keeps it in its own table."""
    return _row(
        name,
        params,
        modern=modern,
        since=since,
        capability=capability,
        routing_name=routing_name,
        cacheable=cacheable,
        input_rounds=input_rounds,
    )


_HANDSHAKE_ONLY: Final = {"modern": False, "since": LEGACY[-1]}

METHODS: Final[dict[str, Method]] = {
    row.name: row
    for row in (
        _row("tools/call", types.CallToolParams, capability="tools", routing_name="name", input_rounds=True),
        _row("tools/list", types.ListParams, capability="tools", cacheable=True),
        _row(
            "resources/read",
            types.ReadResourceParams,
            capability="resources",
            routing_name="uri",
            cacheable=True,
            input_rounds=True,
        ),
        _row("resources/list", types.ListParams, capability="resources", cacheable=True),
        _row("resources/templates/list", types.ListParams, capability="resources", cacheable=True),
        _row("prompts/get", types.GetPromptParams, capability="prompts", routing_name="name", input_rounds=True),
        _row("prompts/list", types.ListParams, capability="prompts", cacheable=True),
        _row("completion/complete", types.CompleteParams, capability="completions"),
        _row("server/discover", types.DiscoverParams, since=None, cacheable=True),
        _row("subscriptions/listen", types.ListenParams, since=None),
        _row("initialize", types.InitializeParams, **_HANDSHAKE_ONLY),
        _row("ping", types.DiscoverParams, **_HANDSHAKE_ONLY),
        _row("logging/setLevel", types.SetLevelParams, capability="logging", **_HANDSHAKE_ONLY),
        _row("resources/subscribe", types.SubscribeParams, capability="resources", **_HANDSHAKE_ONLY),
        _row("resources/unsubscribe", types.SubscribeParams, capability="resources", **_HANDSHAKE_ONLY),
    )
}
