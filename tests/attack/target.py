"""The server that is attacked: a tool of every kind that a hostile client could misuse. Served by `trimaran serve`.

With TARGET_UPSTREAM it stands for the server at that address too, and with TARGET_KEYS it reads signing keys there.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Annotated, Any

from msgspec import Meta

from trimaran import Context, Limits, Server
from trimaran.auth import AnyOf, Bearer

SECRET = "a secret of the tests, thirty-two bytes or more"
ISSUER = "https://login.example.com"
AUDIENCE = "https://target.example.com/mcp"
FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

# The attacks last seconds, so the budgets are small enough to be reached: by default they are 256 and 128 MiB.
LIMITS = Limits(replay_total_bytes=24 * 1024 * 1024, max_incoming_body_bytes=12 * 1024 * 1024)
KEYS = ["one key, so that old state can be told from forged state"]
server = Server("target", version="1", secret_keys=KEYS, limits=LIMITS)
guard: Any = Bearer(secret=SECRET, issuer=ISSUER, audience=AUDIENCE)
if keys := os.environ.get("TARGET_KEYS"):
    # They are asked for again after half a minute, and an attack lasts seconds: this clock is a hundred times as fast.
    begun = time.time()
    swift = Bearer(jwks=keys, issuer=ISSUER, audience=AUDIENCE, clock=lambda: begun + (time.time() - begun) * 100)
    guard = AnyOf(guard, swift)
if upstream := os.environ.get("TARGET_UPSTREAM"):
    server.mount(upstream, "hostile")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def kind(value: Any) -> str:
    """Takes whatever JSON there is."""
    return type(value).__name__


@server.tool
async def big(size: int = 100_000) -> str:
    """Say much."""
    return "x" * min(size, 4_000_000)


@server.tool
async def report(ctx: Context, count: int = 100) -> str:
    """Report progress in long words."""
    for number in range(min(count, 10_000)):
        await ctx.progress(number, count, "p" * 1000)
    return "done"


@server.tool
async def wait(seconds: float = 1.0) -> str:
    await asyncio.sleep(min(seconds, 30))
    return "waited"


@server.tool
def hang(seconds: float = 1.0) -> str:
    """A plain function that keeps its thread."""
    time.sleep(min(seconds, 30))
    return "hung"


@server.tool
async def match(text: Annotated[str, Meta(pattern=r"^(\w+\s?)+$")]) -> int:
    """An author's pattern with nested repeats."""
    return len(text)


@server.tool
async def upload(data: bytes) -> int:
    return len(data)


@server.tool
async def greet(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("Who are you?", FORM)
    return f"Hello {answer.content}" if answer.accepted else "Hello nobody"


@server.tool(long_running=True)
async def survey(ctx: Context) -> str:
    """Ask in the middle of a task."""
    answer = await ctx.elicit("Which bay?", FORM)
    return str(answer.content)


@server.tool
async def announce() -> str:
    server.notify.tools_changed()
    server.notify.resource_updated("target://page/1")
    return "announced"


@server.resource("target://page/{number}")
async def page(number: str) -> str:
    return f"page {number[:20]}"


@server.resource("target://files/{+path}{?from,to}")
async def files(path: str) -> str:
    return f"file {path[:20]}"


@server.resource("target://{a}/{b}/{c}/{d}")
async def four(a: str, b: str, c: str, d: str) -> str:
    return a[:5] + b[:5] + c[:5] + d[:5]
