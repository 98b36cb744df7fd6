"""A target with one of everything, and the ways to put a proxy before it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

from trimaran import Client, Context, Server, ToolError, connect
from trimaran.errors import ProtocolError
from trimaran.serve import HttpServer

Era = Literal["modern", "legacy"]
ERAS: tuple[Era, ...] = ("modern", "legacy")
PAIRS = [(near, far) for near in ERAS for far in ERAS]
"""The era of the caller, and that of the target."""


@dataclass
class Card:
    name: str


class Harbour:
    """The target, and what happened in it."""

    def __init__(self) -> None:
        self.greeted = 0
        self.finished = 0
        self.started = asyncio.Event()
        self.go_on = asyncio.Event()
        self.outcome = ""
        self.server = server = Server("harbour", version="2.1", instructions="Moor first.")

        @server.tool(tags={"sums"})
        async def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @server.tool
        async def greet(ctx: Context) -> str:
            self.greeted += 1
            answer = await ctx.elicit("Your name?", Card)
            self.finished += 1
            return f"hello {answer.content.name}" if answer.action == "accept" else answer.action

        @server.tool
        async def twice(ctx: Context) -> str:
            first, second = await asyncio.gather(
                ctx.elicit("First?", Card, key="first"), ctx.elicit("Second?", Card, key="second")
            )
            third = await ctx.elicit("Third?", Card, key="third")
            return " ".join(answer.content.name for answer in (first, second, third) if answer.content)

        @server.tool
        async def think(ctx: Context) -> str:
            said = await ctx.sample("What now?")
            roots = await ctx.roots()
            return f"{said.content} {[root.uri for root in roots]}"

        @server.tool
        async def report(ctx: Context) -> str:
            await ctx.progress(1, total=2, message="half")
            await ctx.log("warning", {"wind": 9}, logger="mast")
            return "done"

        @server.tool
        async def hold(ctx: Context) -> str:
            self.started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.outcome = "cancelled"
                raise
            return "held"

        @server.tool
        async def fail() -> str:
            raise ToolError("the anchor is stuck")

        @server.tool
        async def refuse() -> str:
            raise ProtocolError(-32050, "no berth", {"berths": 0})

        @server.tool
        async def meta(ctx: Context) -> dict[str, Any]:
            return {"vendor": ctx.meta.get("example.com/key"), "trace": ctx.trace.traceparent}

        @server.resource("log://today", mime_type="text/plain")
        async def log() -> str:
            return "calm"

        @server.resource("chart:///{+path}")
        async def chart(path: str) -> str:
            return path

        @server.prompt
        async def hail(ship: str) -> str:
            return f"Ahoy {ship}"

        @server.completion(prompt="hail", argument="ship")
        async def ships(value: str) -> list[str]:
            return [name for name in ("Argo", "Ark", "Beagle") if name.startswith(value)]


@contextlib.asynccontextmanager
async def through(
    harbour: Harbour, near: Era, far: Era, *, over: str = "memory", prefix: str | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A client of a proxy of the target; over HTTP both ways, or in this process.

    `warm` is HTTP after a few calls: then connections are open and heads known, and calls take shortcuts.
    """
    async with contextlib.AsyncExitStack() as stack:
        target: Any = harbour.server
        if over != "memory":
            target = (await stack.enter_async_context(HttpServer(harbour.server, port=0))).url
        front = Server.proxy(target, era=far)
        if prefix is not None:
            outer = Server("outer", version="1")
            outer.mount(front, prefix=prefix)
            front = outer
        place: Any = front
        if over != "memory":
            place = (await stack.enter_async_context(HttpServer(front, port=0))).url
        client = await stack.enter_async_context(connect(place, era=near, **options))
        if over == "warm":
            name = "{}" if prefix is None else f"{prefix}_{{}}"
            for _ in range(2):
                await client.call_tool(name.format("add"), {"a": 1, "b": 2})
                await client.call_tool(name.format("meta"))
        yield client
