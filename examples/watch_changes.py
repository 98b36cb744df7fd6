"""Watch a server change: its list of tools, and one of its resources.

    python examples/watch_changes.py                             a server that changes by itself, for a second
    python examples/watch_changes.py http://127.0.0.1:9090/mcp   any server, until Ctrl-C
    python examples/watch_changes.py --serve                     the changing server, on stdio
    claude mcp add tides -- python /path/to/examples/watch_changes.py --serve

What changed while the connection was lost nobody can tell, so after a reconnection everything is read again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from trimaran import Client, Server, connect

TIDE = "tide://now"
height = 0


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[None]:
    """The tide rises for as long as the server is served."""

    async def rise() -> None:
        global height
        while True:
            await asyncio.sleep(0.2)
            height += 1
            server.notify.resource_updated(TIDE)
            if height == 2:
                server.add_tool(set_sail)

    rising = asyncio.create_task(rise())
    yield
    rising.cancel()


server = Server("tides", version="1.0.0", lifespan=lifespan)


@server.tool
def look() -> str:
    """Look at the sea."""
    return f"The water stands at {height}."


@server.resource(TIDE)
def tide() -> str:
    """How high the water stands."""
    return str(height)


def set_sail() -> str:
    """Leave. There is water enough."""
    return "Away."


async def show(client: Client, kind: str) -> None:
    if kind in ("tools", "reconnected"):
        print("tools:", ", ".join(tool.name for tool in await client.list_tools_all(fresh=True)))
    if kind in ("resource", "reconnected"):
        print("tide:", (await client.read_resource(TIDE, fresh=True)).text)


async def main(target: Any, changes: int | None) -> None:
    async with connect(target) as client:
        await show(client, "reconnected")
        seen = 0
        async for change in client.listen(tools=True, resources=[TIDE]):
            await show(client, change.kind)
            seen += 1
            if seen == changes:
                return


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        server.run()
    elif len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1], None))
    else:
        asyncio.run(main([sys.executable, __file__, "--serve"], 5))
