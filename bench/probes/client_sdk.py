"""The official SDK's client: in memory, over HTTP or stdio; the better of its two modes."""

import uvloop
from common import arguments, expect, report, timed
from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import MCPServer

ARGUMENTS = {"a": 20_000, "b": 22_222}


def build() -> MCPServer:
    server = MCPServer("bench", version="1", log_level="ERROR")

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


async def measured(
    target: MCPServer | StdioServerParameters | str, mode: str, seconds: float, callers: int
) -> dict[str, float]:
    async with Client(target, mode=mode) as client:
        expect(await client.call_tool("add", ARGUMENTS))
        return await timed(lambda: client.call_tool("add", ARGUMENTS), seconds=seconds, callers=callers)


async def main() -> None:
    target, seconds, callers = arguments()
    if isinstance(target, list):
        where = StdioServerParameters(command=target[0], args=target[1:])
    else:
        where = build() if target == "memory" else target
    modern = await measured(where, "2026-07-28", seconds / 2, callers)
    legacy = await measured(where, "legacy", seconds / 2, callers)
    report(max(modern, legacy, key=lambda outcome: outcome["rate"]))


if __name__ == "__main__":
    uvloop.run(main())
