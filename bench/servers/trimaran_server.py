"""Ours, through the public face only: what a user would write."""

from common import fillers, parse, report_registration

from trimaran import Server

server = Server("bench", version="1")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def add_sync(a: int, b: int) -> int:
    """Add two numbers, from a plain function."""
    return a + b


@server.tool(inline=True)
def add_inline(a: int, b: int) -> int:
    """Add two numbers, from a plain function that runs on the event loop."""
    return a + b


@server.tool
async def poke() -> str:
    """Tell every listen stream that the tools changed."""
    server.notify.tools_changed()
    return "poked"


def main() -> None:
    options = parse(__doc__ or "")
    if options.time_registration:
        report_registration(options.tools, server.add_tool)
        return
    for function in fillers(options.tools):
        server.add_tool(function)
    if options.stdio:
        server.run()
    else:
        server.run("http", host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
