"""FastMCP's client: in memory, over HTTP or stdio."""

import uvloop
from common import arguments, expect, report, timed
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport

ARGUMENTS = {"a": 20_000, "b": 22_222}


def build() -> FastMCP:
    server = FastMCP("bench", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


async def main() -> None:
    target, seconds, callers = arguments()
    where = (
        StdioTransport(target[0], target[1:]) if isinstance(target, list) else build() if target == "memory" else target
    )
    async with Client(where) as client:
        expect(await client.call_tool("add", ARGUMENTS))
        report(await timed(lambda: client.call_tool("add", ARGUMENTS), seconds=seconds, callers=callers))


if __name__ == "__main__":
    uvloop.run(main())
