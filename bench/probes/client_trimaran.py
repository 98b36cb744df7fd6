"""Our client, through the public face: in memory, over HTTP or stdio."""

import uvloop
from common import arguments, expect, report, timed

from trimaran import Server, connect

ARGUMENTS = {"a": 20_000, "b": 22_222}


def build() -> Server:
    server = Server("bench", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


async def main() -> None:
    target, seconds, callers = arguments()
    async with connect(build() if target == "memory" else target) as client:
        expect((await client.call_tool("add", ARGUMENTS)).data)
        report(await timed(lambda: client.call_tool("add", ARGUMENTS), seconds=seconds, callers=callers))


if __name__ == "__main__":
    uvloop.run(main())
