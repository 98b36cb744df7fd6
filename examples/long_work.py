"""Work that outlives its request: a tool that runs as a task, and a client that comes back for the result.

    python examples/long_work.py                                 with a server of its own
    python examples/long_work.py --serve                         the server, on stdio
    python examples/long_work.py --serve sqlite:///yard.db       the same, and what it builds survives it: kill it, start it again
    claude mcp add shipyard -- python /path/to/examples/long_work.py --serve

A client that knows no tasks calls `build` like any other tool, and waits.
"""

from __future__ import annotations

import asyncio
import sys

from trimaran import Client, Context, Server, connect
from trimaran.client import Elicitation
from trimaran.ext.tasks import Tasks

server = Server("shipyard", version="1.0.0")
server.enable_extension(Tasks(poll=0.05))  # seconds between two looks; a real yard would say minutes


async def lay(hull: int) -> str:
    await asyncio.sleep(0.1)
    return f"hull {hull}"


@server.tool(long_running=True, resumable=True)
async def build(hulls: int, ctx: Context) -> str:
    """Build a boat, hull by hull. The owner chooses its name when it is nearly done."""
    for hull in range(1, hulls + 1):
        await ctx.step("hull", lay, hull)  # once, whatever happens to the yard
        await ctx.progress(hull, total=hulls, message=f"hull {hull} of {hulls}")
    answer = await ctx.elicit("What shall it be called?", str)
    name = answer.content if answer.accepted else "Nameless"
    return f"The {name}, {hulls} hulls."


def choose(question: Elicitation) -> object:
    print(f"asked: {question.message}")
    return question.accept({"value": "Tern"})


async def begin(client: Client) -> str:
    """Begin two boats and think better of one. What is left is written down: an id."""
    task = await client.start_task("build", {"hulls": 3})
    other = await client.start_task("build", {"hulls": 200})
    print("begun:", task.status, other.status)
    await other.cancel()
    print("cancelled:", (await other.refresh()).status)
    return task.id


async def come_back(client: Client, id: str) -> None:
    """Perhaps another day, perhaps another program."""
    task = client.task(id)
    async for update in task:
        if update.status != "working":
            print(update.status)
    print((await task).data)


async def main(server: Server) -> None:
    async with connect(server, on_elicit=choose) as client:
        id = await begin(client)
    async with connect(server, on_elicit=choose) as client:
        await come_back(client, id)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        server.run(store=sys.argv[2] if len(sys.argv) > 2 else None)
    else:
        asyncio.run(main(server))
