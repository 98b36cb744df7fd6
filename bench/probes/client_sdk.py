"""The official SDK's client: in memory (the better of its two in-process modes) or over HTTP."""

import uvloop
from common import arguments, expect, report, sequential
from mcp import Client
from mcp.server.mcpserver import MCPServer

ARGUMENTS = {"a": 20_000, "b": 22_222}


def build() -> MCPServer:
    server = MCPServer("bench", version="1", log_level="ERROR")

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


async def timed(target: MCPServer | str, mode: str, seconds: float) -> dict[str, float]:
    async with Client(target, mode=mode) as client:
        expect(await client.call_tool("add", ARGUMENTS))
        return await sequential(lambda: client.call_tool("add", ARGUMENTS), seconds=seconds)


async def main() -> None:
    target, seconds = arguments()
    where = build() if target == "memory" else target
    modern = await timed(where, "2026-07-28", seconds / 2)
    legacy = await timed(where, "legacy", seconds / 2)
    report(min(modern, legacy, key=lambda outcome: outcome["p50_us"]))


if __name__ == "__main__":
    uvloop.run(main())
