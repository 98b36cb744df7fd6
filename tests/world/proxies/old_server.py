# pyright: reportMissingImports=false
"""An upstream of 2025-11-25 on the official SDK 1.28: `old_server.py LEDGER`, on stdio; with a PORT behind it, over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from typing import Any

import anyio
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
server = FastMCP("upstream", host="127.0.0.1", port=port, log_level="ERROR")

numbers = itertools.count(1)


class Person(BaseModel):
    name: str


def enter(word: str) -> None:
    with open(sys.argv[1], "a") as ledger:
        ledger.write(word + "\n")


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def slow(ctx: Context[Any, Any, Any]) -> str:
    for done in (1, 2, 3):
        await ctx.report_progress(done, 3)
        await asyncio.sleep(0.05)
    return "done"


@server.tool()
async def hold() -> str:
    enter("started")
    try:
        await asyncio.sleep(60)
    except anyio.get_cancelled_exc_class():
        enter("cancelled")
        raise
    return "held"


@server.tool()
async def greet(ctx: Context[Any, Any, Any]) -> str:
    answer = await ctx.elicit("Your name?", Person)
    return f"hello {answer.data.name}"


@server.tool()
async def grow(ctx: Context[Any, Any, Any]) -> str:
    name = f"grown{next(numbers)}"
    server.add_tool(add, name=name)
    await ctx.session.send_tool_list_changed()
    return name


@server.tool()
async def die() -> str:
    os._exit(3)


if __name__ == "__main__":
    server.run("streamable-http" if port else "stdio")
