"""What the tests of several processes on one store share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.support.harness import Session, Wire, serve
from tests.support.inside import inside

from trimaran import Context, Server

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOLS = "notifications/tools/list_changed"
ABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True}}


class Boat:
    """One process: a server, its wire, and what its tools wait for."""

    wire: Wire

    def __init__(self, **options: Any) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.outcome = ""
        self.server = server = Server("boat", version="1", **options)

        @server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @server.tool
        async def work(ctx: Context) -> str:
            self.started.set()
            await ctx.progress(1)
            await self.go.wait()
            await ctx.progress(2)
            return "worked"

        @server.tool
        async def hold(ctx: Context) -> str:
            self.started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.outcome = f"cancelled {ctx.cancelled}"
                raise
            return "held"

        @server.tool
        async def ask(ctx: Context) -> str:
            answer = await ctx.elicit("Name?", NAME)
            return f"{answer.action} {answer.content and answer.content['name']}"

        @server.tool
        async def chat(ctx: Context) -> str:
            await ctx.log("debug", "psst")
            await ctx.log("warning", "loud")
            return "said"

        @server.resource("log://today")
        def log() -> str:
            return "calm"

    def at(self, session: Session) -> Session:
        """The same session, by way of this process."""
        here = object.__new__(Session)
        here.__dict__.update(session.__dict__)
        here.wire = self.wire
        return here


@contextlib.asynccontextmanager
async def pair(store: str, binding: str = "http", **options: Any) -> AsyncIterator[tuple[Boat, Boat]]:
    one, two = Boat(**options), Boat(**options)
    async with serve(binding, one.server, store=store, sse_path="/sse") as one.wire:
        async with serve(binding, two.server, store=store, sse_path="/sse") as two.wire:
            yield one, two


def inner(boat: Boat) -> Any:
    return next(iter(inside(boat.server).sessions))
