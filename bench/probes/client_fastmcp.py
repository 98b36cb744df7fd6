"""FastMCP's client: in memory or over HTTP."""

import uvloop
from common import arguments, expect, report, sequential
from fastmcp import Client, FastMCP

ARGUMENTS = {"a": 20_000, "b": 22_222}


def build() -> FastMCP:
    server = FastMCP("bench", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


async def main() -> None:
    target, seconds = arguments()
    async with Client(build() if target == "memory" else target) as client:
        expect(await client.call_tool("add", ARGUMENTS))
        report(await sequential(lambda: client.call_tool("add", ARGUMENTS), seconds=seconds))


if __name__ == "__main__":
    uvloop.run(main())
