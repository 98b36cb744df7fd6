"""A server on stdio, as a gateway starts it: `python boats.py [NAME]`."""

from __future__ import annotations

import asyncio
import os
import sys

from trimaran import Context, ProtocolError, Server, ToolError

server = Server(
    sys.argv[1] if len(sys.argv) > 1 else "boats",
    version="1.0.0",
    instructions="Boats and their crews.",
    secret_keys=["each gateway has a child of its own, and all go on with each other's calls"],
)


@server.tool
async def sail(boat: str) -> str:
    return f"{boat} sails"


@server.tool
async def sink(boat: str) -> str:
    raise ToolError(f"{boat} does not sink")


@server.tool
async def ground(place: str) -> str:
    raise ProtocolError(-32050, f"aground at {place}", {"place": place})


@server.tool
async def die() -> str:
    os._exit(3)


@server.tool
async def captain(ctx: Context) -> str:
    answer = await ctx.elicit("Who is the captain?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"captain {(answer.content or {}).get('name')}" if answer.action == "accept" else "nobody"


@server.tool
async def wait(file: str) -> str:
    while not os.path.exists(file):
        await asyncio.sleep(0.01)
    return "arrived"


@server.tool
async def flood(size: int) -> str:
    return "x" * size


@server.resource("boat://crew")
def crew() -> str:
    return "Ann, Bob"


@server.prompt
def plan(harbour: str) -> str:
    return f"Plan a trip to {harbour}"


if __name__ == "__main__":
    server.run()
