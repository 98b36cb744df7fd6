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

from trimaran.lazy_names import lazy_names

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .client.client import Client as Client
    from .connect_options import ConnectOptions as ConnectOptions
    from .connecting import connect as connect, open_client as open_client, run_flow as run_flow
    from .errors import Error as Error, ProtocolError as ProtocolError, ToolError as ToolError
    from .host.host import Host as Host
    from .paging import walk_pages as walk_pages
    from .protocol.uritemplate import UriTemplate as UriTemplate
    from .protocol.versions import negotiate as negotiate, supported_versions as supported_versions
    from .server.context import Context as Context
    from .server.dependencies import Depends as Depends
    from .server.limits import Limits as Limits
    from .server.server import Server as Server
    from .server.session_info import SessionInfo as SessionInfo
    from .server.transform_options import read_transforms as read_transforms
    from .sync import SyncClient as SyncClient
    from .transports.loopback_login import LoopbackLogin as LoopbackLogin
    from .types import CallToolResult as CallToolResult
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "client.client": "Client",
            "connect_options": "ConnectOptions",
            "connecting": "connect open_client run_flow",
            "errors": "Error ProtocolError ToolError",
            "host.host": "Host",
            "paging": "walk_pages",
            "protocol.uritemplate": "UriTemplate",
            "protocol.versions": "negotiate supported_versions",
            "server.context": "Context",
            "server.dependencies": "Depends",
            "server.limits": "Limits",
            "server.server": "Server",
            "server.session_info": "SessionInfo",
            "server.transform_options": "read_transforms",
            "sync": "SyncClient",
            "transports.loopback_login": "LoopbackLogin",
            "types": "CallToolResult",
        },
    )
    __all__ += ["__version__"]
