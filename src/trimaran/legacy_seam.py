"""The one way from the rest of the library to `trimaran.legacy`, the revisions before 2026.

Composition asks here for the parts of those revisions, on the server's side and on the client's. Without that package, a
server speaks 2026-07-28 alone, and a client that needs an older revision says so. Each part is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimaran.errors import ConfigError

if TYPE_CHECKING:
    from trimaran.client.dialect import Dialect
    from trimaran.client.link import Channel, Inbox, Link
    from trimaran.client.options import Tap
    from trimaran.server.server import Server
    from trimaran.transports.duplex import Duplex, LegacyHalf
    from trimaran.transports.engine import LegacyEndpoint
    from trimaran.transports.http_client import HttpWire
    from trimaran.types import Json


def is_present() -> bool:
    """Is the package there?"""
    try:
        import_module("trimaran.legacy")
    except ImportError:
        return False
    return True


def http_endpoint(server: Server, options: Mapping[str, Any]) -> LegacyEndpoint | None:
    """The part of an HTTP endpoint that serves older revisions; None without the package."""
    if not is_present():
        return None
    from trimaran.legacy.server_http import LegacyHttp

    return LegacyHttp(server, **options)


def duplex_half() -> Callable[[Duplex], LegacyHalf] | None:
    """The same for a two-way channel."""
    if not is_present():
        return None
    from trimaran.legacy.duplex import LegacyDuplex

    return LegacyDuplex


def dialect(info: Mapping[str, Json], capabilities: Mapping[str, Json], version: str | None) -> Dialect:
    """How a client speaks an older revision."""
    _require("the server speaks an older revision")
    from trimaran.legacy.dialect import LegacyDialect

    return LegacyDialect(info, capabilities, version)


def http_link(wire: HttpWire, inbox: Inbox, tap: Tap | None) -> Link:
    """A client's session over Streamable HTTP."""
    _require("a session over HTTP belongs to an older revision")
    from trimaran.legacy.client_http import SessionLink

    return SessionLink(wire, inbox, tap)


def sse_channel(wire: HttpWire) -> Channel:
    """A client's channel of 2024-11-05: an event stream, and POSTs beside it."""
    _require("HTTP with SSE belongs to an older revision")
    from trimaran.legacy.client_sse import SseChannel

    return SseChannel(wire)


def _require(reason: str) -> None:
    if not is_present():
        raise ConfigError(
            f'{reason}, and trimaran.legacy is not installed; use era="modern" with a server of 2026-07-28'
        )
