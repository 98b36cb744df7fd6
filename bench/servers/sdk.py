"""The official Python SDK (`mcp`) at its best: uvicorn with uvloop and httptools, JSON answers, no access log."""

import uvicorn
from common import fillers, parse, report_registration
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp_types import SubscriptionsListenRequestParams

bus = InMemorySubscriptionBus()
server = MCPServer("bench", version="1", log_level="ERROR", subscriptions=bus)
# `MCPServer` stops at 1024 listen streams and has no option for more; its own handler does.
server._lowlevel_server.add_request_handler(
    "subscriptions/listen", SubscriptionsListenRequestParams, ListenHandler(bus, max_subscriptions=100_000)
)


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def add_sync(a: int, b: int) -> int:
    """Add two numbers, from a plain function."""
    return a + b


@server.tool()
async def poke(ctx: Context) -> str:
    """Tell every listen stream that the tools changed."""
    await ctx.notify_tools_changed()
    return "poked"


def main() -> None:
    options = parse(__doc__ or "")
    if options.time_registration:
        report_registration(options.tools, server.add_tool)
        return
    for function in fillers(options.tools):
        server.add_tool(function)
    if options.stdio:
        server.run("stdio")
        return
    app = server.streamable_http_app(json_response=True, stateless_http=options.stateless)
    uvicorn.run(
        app, host="127.0.0.1", port=options.port, loop="uvloop", http="httptools", log_level="error", access_log=False
    )


if __name__ == "__main__":
    main()
