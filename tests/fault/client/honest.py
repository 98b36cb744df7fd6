"""A real server in a process of its own, on a port that can be had again: `python honest.py PORT`.

It prints its port, as one line, once it listens.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from trimaran import Context, Server

server = Server("honest", version="1")


@server.tool(inline=True)
def add(a: int, b: int) -> int:
    return a + b


@server.tool(timeout=600)
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@server.tool(timeout=600)
async def noisy_nap(seconds: float, ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.sleep(seconds)
    return "rested"


def ready(made: Any) -> None:
    print(made.port, flush=True)


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]), on_ready=ready)
