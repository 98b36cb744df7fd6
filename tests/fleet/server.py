"""What every process of the fleet serves.

Whatever a tool does to the world is a line in the ledger, one file for all processes, written with one `write` in append
mode: it outlives the process that wrote it, and no two lines mix. The line is written before the call is answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

from trimaran import Context, Server
from trimaran.ext.tasks import Tasks

LEDGER = os.open(os.environ["TRIMARAN_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

server = Server("harbour", version="1", secret_keys=["one key for every process of the fleet"])
# A short lease: a task whose process was killed goes on elsewhere while the test is still looking.
server.enable_extension(Tasks(lease=3.0, poll=0.25, most_per_caller=100_000))


def enter(kind: str, key: str) -> str:
    line = {"kind": kind, "key": key, "pid": os.getpid(), "at": time.time()}
    os.write(LEDGER, json.dumps(line).encode() + b"\n")
    return key


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def where() -> int:
    """Which process answers."""
    return os.getpid()


@server.tool
async def record(key: str) -> str:
    """A write that must not be done twice."""
    return enter("record", key)


@server.tool
async def slow(key: str, ctx: Context, to: int = 5) -> str:
    """A write at the end of some work that reports its progress."""
    for done in range(1, to + 1):
        await asyncio.sleep(0.03)
        await ctx.progress(done, to)
    return enter("slow", key)


@server.tool
async def order(key: str, ctx: Context) -> str:
    """A write before and a write after a question."""
    await ctx.step("reserve", enter, "reserve", key)
    schema: dict[str, Any] = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    answer = await ctx.elicit(f"How many for {key}?", schema)
    if answer.action != "accept":
        return "nothing"
    await ctx.step("order", enter, "order", key)
    return f"{answer.content['count']} for {key}"


@server.tool(long_running=True)
async def errand(key: str) -> str:
    """Long work that nobody may begin again."""
    enter("errand", key)
    await asyncio.sleep(0.4)
    return enter("errand done", key)


@server.tool(long_running=True, resumable=True)
async def voyage(key: str, ctx: Context, legs: int = 5) -> str:
    """Long work that may go on elsewhere: every leg is a step."""
    enter("voyage", key)
    for leg in range(1, legs + 1):
        await ctx.step(f"leg {leg}", enter, f"leg {leg}", key)
        await asyncio.sleep(0.1)
    return key


@server.tool
async def announce(key: str) -> str:
    """Say that the list of tools has changed."""
    server.notify.tools_changed()
    return enter("announce", key)


@server.tool
async def post(key: str, board: str) -> str:
    """Say that a board has changed."""
    server.notify.resource_updated(board)
    return enter("post", key)


@server.resource("harbour://board/{number}")
async def board(number: int) -> str:
    return f"{number} written by {os.getpid()}"
