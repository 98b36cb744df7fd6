"""A console without a terminal: the real application, real servers in this process, keys pressed and the screen read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from textual.pilot import Pilot

from trimaran import Context, Host, Server, ToolError
from trimaran.apps.console.app import ConsoleApp
from trimaran.apps.console.prompt import PromptInput
from trimaran.errors import Error

LIMIT = 15.0  # seconds; far more than anything here takes
BERTH = {
    "type": "object",
    "required": ["boat", "length"],
    "properties": {
        "boat": {"type": "string", "title": "Boat", "minLength": 2},
        "length": {"type": "integer", "minimum": 3, "maximum": 40, "default": 9},
        "side": {"type": "string", "enum": ["port", "starboard"], "default": "port"},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["water", "power"]}},
        "insured": {"type": "boolean", "default": True},
    },
}


class Sea:
    """A server, and what happened to it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.gate = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.server = Server("sea", version="1.0.0")
        self._tools()

    def _tools(self) -> None:
        server = self.server

        @server.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            self.calls.append((a, b))
            return a + b

        @server.tool
        async def drift(ctx: Context) -> str:
            """Drift until somebody opens the gate."""
            await ctx.progress(3, total=12, message="past the buoy")
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "ashore"

        @server.tool
        def poem(lines: int = 1000) -> str:
            """A long poem."""
            return "\n".join(f"verse {n}" for n in range(lines))

        @server.tool
        def shout() -> str:
            """What must not reach a terminal."""
            return "[bold red]loud[/] \x1b[2J\x1b]0;title\x07 [@click=app.quit]here[/]"

        @server.tool
        def sink() -> str:
            raise ToolError("the mast broke")

        @server.tool
        async def moor(ctx: Context) -> str:
            """Book a berth."""
            answer = await ctx.elicit("Where to? [bold]now[/bold]", BERTH)
            self.calls.append((answer.action, answer.content))
            return str(answer.action)

        @server.tool
        async def pay(url: str, ctx: Context) -> str:
            """Visit a page."""
            answer = await ctx.elicit("Pay here", url=url)
            return str(answer.action)

        @server.resource("sea://log", name="log")
        def log() -> str:
            """The log."""
            return "day 1: calm"

        @server.prompt
        def plan(where: str) -> str:
            """Plan a trip."""
            return f"Plan a trip to {where}."


@asynccontextmanager
async def console(
    *, sea: Sea | None = None, servers: Any = None, size: tuple[int, int] = (80, 24), **options: Any
) -> AsyncGenerator[Pilot[None]]:
    """A console with its servers connected; options for the application, the rest for the host."""
    own = {
        name: options.pop(name)
        for name in ("model", "settle", "open_page", "history", "typed_ahead")
        if name in options
    }
    given: dict[str, Any] = servers if servers is not None else {"sea": (sea or Sea()).server}

    def open_host(**more: Any) -> Host:
        return Host(given, **{**more, **options})

    app = ConsoleApp(open_host, **{"settle": 0.0, **own})
    try:
        async with app.run_test(size=size) as pilot:
            if servers is None:
                await until(pilot, lambda: app.host.connected() == ["sea"])
            yield pilot
    finally:
        await app.aclose()


async def until(pilot: Pilot[None], holds: Callable[[], Any]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(LIMIT):
        while not holds():
            await pilot.pause(0.005)


def seen(pilot: Pilot[None]) -> str:
    """What is on the screen, line by line."""
    app = pilot.app
    strips = app.screen._compositor.render_strips(app.size)
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def shows(pilot: Pilot[None], *texts: str) -> None:
    """Wait until all of these are on the screen, wherever their lines break."""

    def are_there() -> bool:
        screen = seen(pilot)
        flowing = " ".join(screen.split())
        return all(text in screen or text in flowing for text in texts)

    try:
        await until(pilot, are_there)
    except TimeoutError:
        raise AssertionError(f"{texts} not all on the screen:\n{seen(pilot)}") from None


async def type_line(pilot: Pilot[None], line: str) -> None:
    """Type a line and send it."""
    pilot.app.query_one(PromptInput).put(line)
    await pilot.press("enter")


def call_as_model(pilot: Pilot[None], name: str, **arguments: Any) -> None:
    """Make a call as a model makes it: the rules decide, and the person may be asked."""
    app = cast("ConsoleApp", pilot.app)
    calls = app._lines.calls
    view = calls.begin(name, arguments)

    async def call() -> None:
        try:
            view.show(await app.host.call(name, arguments))
        except Error as error:
            view.fail(error)
        finally:
            calls.end(view)

    app.run_worker(call(), exit_on_error=False)


def app_of(pilot: Pilot[None]) -> ConsoleApp:
    return cast("ConsoleApp", pilot.app)
