"""What is served for hours. Whatever clients leave behind is forgotten within seconds, so that a leak stands out."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

from trimaran import Context, Limits, Server
from trimaran.ext.tasks import Tasks, records

FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
KEPT = 10.0  # seconds

trim: Callable[[int], Any] = getattr(ctypes.CDLL(None), "malloc_trim", lambda *_: None)
records.KEPT_MS = int(KEPT * 1000)  # an hour for everybody else: a run would end before its tasks do

server = Server(
    "soaked",
    version="1",
    secret_keys=["one key for all processes"],
    limits=Limits(session_idle_timeout=KEPT, input_ttl=KEPT),
)
server.enable_extension(Tasks(ttl=KEPT, poll=0.1, most_per_caller=10_000))


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def big() -> str:
    return "x" * 100_000


@server.tool
def think(seconds: float = 0.01) -> str:
    """In a thread."""
    time.sleep(seconds)
    return "thought"


@server.tool
async def report(ctx: Context, count: int = 20) -> str:
    for number in range(count):
        await ctx.progress(number, count, "so far")
        await asyncio.sleep(0.002)
    return "done"


@server.tool
async def wait(seconds: float = 5.0) -> str:
    await asyncio.sleep(seconds)
    return "waited"


@server.tool
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", FORM)
    return f"Hello {answer.content['name']}" if answer.accepted else "Hello nobody"


@server.tool
async def praise(ctx: Context) -> str:
    return (await ctx.sample("Praise the sea.", max_tokens=10)).text


@server.tool(long_running=True)
async def voyage(ctx: Context, legs: int = 3) -> str:
    for leg in range(legs):
        await ctx.progress(leg, legs, "under way")
        await asyncio.sleep(0.05)
    return "arrived"


@server.tool
async def announce() -> str:
    server.notify.tools_changed()
    server.notify.resource_updated("soak://page/1")
    return "announced"


@server.tool
async def vitals() -> dict[str, int]:
    """What grows when something leaks, and cannot be seen from outside. What only the allocator keeps is given back."""
    gc.collect()
    trim(0)
    return {"tasks": len(asyncio.all_tasks()), "threads": threading.active_count(), "objects": len(gc.get_objects())}


@server.resource("soak://page/{number}")
async def page(number: int) -> str:
    return f"page {number}"
