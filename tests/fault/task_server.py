"""What `test_task_crash.py` kills: a server with durable tasks, on a port and a store that it is told.

What a step does is a line in a ledger, written at once and in append mode: it outlives the process that wrote it.
"""

from __future__ import annotations

import asyncio
import os
import sys

from trimaran import Context, Server
from trimaran.ext.tasks import Tasks

PORT, STORE, LEDGER = sys.argv[1:4]

ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
server = Server("doomed", version="1")
server.enable_extension(Tasks(poll=0.2, lease=4.0))


async def enter(line: str) -> str:
    os.write(ledger, f"{line}\n".encode())
    await asyncio.sleep(0.01)  # so that some are cut in the middle
    return line


@server.tool(long_running=True, resumable=True)
async def voyage(key: str, ctx: Context, legs: int = 4) -> str:
    for leg in range(1, legs + 1):
        await ctx.step("leg", enter, f"{key} leg {leg}")
        await asyncio.sleep(0.3)
    return f"{key} arrived"


@server.tool(long_running=True, resumable=True)
async def question(key: str, ctx: Context) -> str:
    await ctx.step("before", enter, f"{key} before")
    answer = await ctx.elicit("Well?", str)
    await ctx.step("after", enter, f"{key} after {answer.content}")
    return f"{key} {answer.content}"


@server.tool(long_running=True)
async def errand(key: str) -> str:
    await enter(f"{key} begun")
    await asyncio.sleep(60)
    return f"{key} done"


server.run("http", port=int(PORT), store=STORE)
