"""Trimaran: the Model Context Protocol for Python on three hulls: server, client, host.

    from trimaran import Server

    server = Server("demo", version="1.0.0")

    @server.tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    server.run()

Importing this module has no side effects and loads nothing: each name is resolved when it is first used.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself and costs more than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trimaran.client.client import Client
    from trimaran.dialers import connect, open_client, run_flow
    from trimaran.errors import Error, ProtocolError, ToolError
    from trimaran.host.host import Host
    from trimaran.paging import walk_pages
    from trimaran.protocol.uritemplate import UriTemplate
    from trimaran.protocol.versions import negotiate, supported_versions
    from trimaran.server.context import Context
    from trimaran.server.limits import Limits
    from trimaran.server.server import Server
    from trimaran.server.sessions import SessionInfo
    from trimaran.sync import SyncClient
    from trimaran.transports.loopback import LoopbackLogin
    from trimaran.types import CallToolResult

__version__ = "0.1.0"

__all__ = [
    "CallToolResult",
    "Client",
    "Context",
    "Error",
    "Host",
    "Limits",
    "LoopbackLogin",
    "ProtocolError",
    "Server",
    "SessionInfo",
    "SyncClient",
    "ToolError",
    "UriTemplate",
    "__version__",
    "connect",
    "negotiate",
    "open_client",
    "run_flow",
    "supported_versions",
    "walk_pages",
]

_HOMES = {
    "CallToolResult": "trimaran.types",
    "Client": "trimaran.client.client",
    "Context": "trimaran.server.context",
    "Error": "trimaran.errors",
    "Host": "trimaran.host.host",
    "Limits": "trimaran.server.limits",
    "LoopbackLogin": "trimaran.transports.loopback",
    "ProtocolError": "trimaran.errors",
    "Server": "trimaran.server.server",
    "SessionInfo": "trimaran.server.sessions",
    "SyncClient": "trimaran.sync",
    "ToolError": "trimaran.errors",
    "UriTemplate": "trimaran.protocol.uritemplate",
    "connect": "trimaran.dialers",
    "negotiate": "trimaran.protocol.versions",
    "open_client": "trimaran.dialers",
    "run_flow": "trimaran.dialers",
    "supported_versions": "trimaran.protocol.versions",
    "walk_pages": "trimaran.paging",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'trimaran' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
