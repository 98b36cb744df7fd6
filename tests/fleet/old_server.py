# pyright: reportMissingImports=false
"""An upstream of an older revision, on the official SDK 1.28 (`.tools/peers/sdk-1.28`): `old_server.py LEDGER PORT`.

Its tools are those of server.py that a gateway's callers use. It asks while it waits, as older servers do.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

LEDGER = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
server = FastMCP("old harbour", host="127.0.0.1", port=int(sys.argv[2]), log_level="WARNING")


class Count(BaseModel):
    count: int


def enter(kind: str, key: str) -> str:
    line = {"kind": kind, "key": key, "pid": os.getpid(), "at": time.time()}
    os.write(LEDGER, json.dumps(line).encode() + b"\n")
    return key


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def record(key: str) -> str:
    return enter("record", key)


@server.tool()
async def slow(key: str, ctx: Context[Any, Any, Any]) -> str:
    for done in range(1, 6):
        await asyncio.sleep(0.03)
        await ctx.report_progress(done, 5)
    return enter("slow", key)


@server.tool()
async def order(key: str, ctx: Context[Any, Any, Any]) -> str:
    enter("reserve", key)
    answer = await ctx.elicit(f"How many for {key}?", Count)
    if answer.action != "accept":
        return "nothing"
    enter("order", key)
    return f"{answer.data.count} for {key}"


if __name__ == "__main__":
    server.run("streamable-http")
