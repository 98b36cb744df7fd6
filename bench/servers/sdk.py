"""The official Python SDK (`mcp`) at its best: uvicorn with uvloop and httptools, JSON answers, no access log."""

import uvicorn
from common import fillers, parse, report_registration
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("bench", version="1", log_level="ERROR")


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
    # A listen stream never ends by itself: without a bound uvicorn would wait for it for ever.
    uvicorn.run(
        app, host="127.0.0.1", port=options.port, loop="uvloop", http="httptools", log_level="error", access_log=False
    )


if __name__ == "__main__":
    main()
