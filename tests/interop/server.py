"""The server that the other libraries' clients are let loose on, written with the public API only.

    python tests/interop/server.py --log FILE                 stdio
    python tests/interop/server.py --log FILE --http PORT     http://127.0.0.1:PORT/mcp, and /sse for 2024-11-05

What must have happened exactly once, or must have stopped, is written to FILE, one line each, so that a test can count it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trimaran import Context, Server, ToolError
from trimaran.content import assistant_message, image, user_message
from trimaran.types import ImageContent, PromptMessage

FILLERS = 200  # tools nobody calls; with the others they still make one page
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da6364f80f00010501012718e3660000000049454e44ae426082"
)

server = Server(
    "interop", version="1.2.3", title="Interop fixture", instructions="Call add first.", description="Für alle: 你好"
)
log_file: Path
waits: dict[str, asyncio.Event] = {}
released = asyncio.Event()


def note(line: str) -> None:
    with log_file.open("a", encoding="utf-8") as log:
        log.write(line + "\n")


# --- tools: results ---------------------------------------------------------------------------------------------------


@server.tool(title="Add two numbers", annotations={"readOnlyHint": True})
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


@dataclass
class Wind:
    speed: float
    direction: Literal["north", "east", "south", "west"]


@dataclass
class Weather:
    city: str
    celsius: float
    wind: Wind
    warnings: list[str]


@server.tool
def weather(city: str) -> Weather:
    """The weather in a city."""
    return Weather(city, 21.5, Wind(3.25, "west"), ["pollen"])


@server.tool
def primes(count: int) -> list[int]:
    """The first primes: a result that is no object."""
    found = [n for n in range(2, 100) if all(n % d for d in range(2, n))]
    return found[:count]


@server.tool
def picture() -> ImageContent:
    """A picture of one pixel."""
    return image(PIXEL)


@server.tool
def echo(text: str) -> str:
    """The text, unchanged."""
    return text


@server.tool(structured_output=False)
def big(size: int) -> str:
    """A text of this many bytes."""
    return "0123456789abcdef" * (size // 16)


@server.tool
def fail(reason: str) -> str:
    """Fail for the given reason."""
    raise ToolError(f"it failed: {reason}")


@server.tool
def crash() -> str:
    """Fail by a mistake in the tool, whose details are nobody's business."""
    raise ValueError("secret detail")


def many_arguments(count: int) -> Callable[..., int]:
    names = [f"n{i:02}" for i in range(1, count + 1)]
    scope: dict[str, Any] = {}
    exec(f"def fifty({', '.join(f'{n}: int' for n in names)}) -> int:\n    return sum(({', '.join(names)}))", scope)
    return scope["fifty"]


server.add_tool(many_arguments(50), description="Add fifty numbers.")


def filler(number: int) -> Callable[[], int]:
    def fill() -> int:
        return number

    return fill


for index in range(FILLERS):
    server.add_tool(filler(index), name=f"filler_{index:03}", description=f"Return {index}.")


# --- tools: while the call runs ---------------------------------------------------------------------------------------


@server.tool
async def count(to: int, ctx: Context, hold: bool = False) -> int:
    """Count, saying so; if told to hold, end only when released, which proves that what was said was heard before."""
    await ctx.log("warning", {"counting to": to}, logger="counter")
    for number in range(1, to + 1):
        await ctx.progress(number, total=to, message=f"{number} of {to}")
    if hold:
        async with asyncio.timeout(5):
            await released.wait()
    return to


@server.tool
async def release() -> str:
    """Let `count` end."""
    released.set()
    return "released"


@server.tool
async def wait(name: str, ctx: Context) -> str:
    """Wait until cancelled; the first progress says that the waiting has begun."""
    waits[name] = asyncio.Event()
    note(f"wait {name} began")
    try:
        await ctx.progress(1, message="waiting")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note(f"wait {name} stopped")
        raise
    finally:
        waits[name].set()
    return "never"


@server.tool
async def has_stopped(name: str) -> bool:
    """Whether the `wait` of that name has ended, or ends within five seconds."""
    try:
        async with asyncio.timeout(5):
            await waits[name].wait()
    except TimeoutError:
        return False
    return True


# --- tools: asking ----------------------------------------------------------------------------------------------------


@dataclass
class Delivery:
    street: str
    floor: int
    express: bool = False


CONFIRMATION = {
    "type": "object",
    "properties": {"pay": {"type": "string", "enum": ["card", "cash"], "title": "How to pay"}},
    "required": ["pay"],
}


def charge(item: str) -> str:
    note(f"charge {item}")
    return f"receipt for {item}"


def ship(item: str, street: str) -> str:
    note(f"ship {item}")
    return f"{item} shipped to {street}"


@server.tool
async def order(item: str, ctx: Context) -> str:
    """Charge, ask two questions, ship. One body for both eras; on the modern one it is run three times."""
    receipt = await ctx.step("charge", charge, item)
    where = await ctx.elicit(f"Where shall {item} go?", Delivery)
    if where.action != "accept":
        return f"{receipt}, then {where.action}"
    how = await ctx.elicit("How will you pay?", CONFIRMATION)
    if how.action != "accept":
        return f"{receipt}, then {how.action}"
    shipped = await ctx.step("ship", ship, item, where.content.street)
    return f"{receipt}; {shipped}, floor {where.content.floor}, express {where.content.express}, {how.content['pay']}"


@server.tool
async def summarise(text: str, ctx: Context) -> str:
    """Have the client's model make it shorter."""
    said = await ctx.sample(f"Summarise: {text}", max_tokens=50, system="Be brief.")
    block: Any = said.content
    return f"{said.model} ({said.role}): {block['text'] if isinstance(block, dict) else block.text}"


@server.tool
async def folders(ctx: Context) -> list[str]:
    """The client's roots."""
    return [f"{root.name}={root.uri}" for root in await ctx.roots()]


# --- tools: changing --------------------------------------------------------------------------------------------------


@server.tool
async def grow() -> str:
    """Add a tool, as which everyone who listens is told."""

    def grown() -> str:
        return "I was not here before."

    server.add_tool(grown, replace=True)
    return "grown"


@server.tool
async def touch(uri: str) -> str:
    """Say that a resource changed."""
    server.notify.resource_updated(uri)
    return "touched"


# --- resources, prompts, completions ----------------------------------------------------------------------------------


@server.resource("config://app", mime_type="application/json", title="Settings")
def config() -> dict[str, Any]:
    """The settings."""
    return {"theme": "dark", "größe": 3}


@server.resource("image://pixel", mime_type="image/png")
def pixel() -> bytes:
    """One pixel."""
    return PIXEL


@server.resource("greeting://{name}", mime_type="text/plain")
def greeting(name: str) -> str:
    """A greeting for one person."""
    return f"Hello, {name}!"


@server.prompt(title="Greet someone")
def greet(name: str, style: str = "plain") -> list[PromptMessage]:
    """Greet someone.

    Args:
        name: whom
        style: how
    """
    return [user_message(f"Greet {name} in a {style} way."), assistant_message("Gladly.")]


STYLES = ("plain", "pompous", "poetic", "terse")


@server.completion(prompt="greet", argument="style")
def complete_style(value: str) -> list[str]:
    return [style for style in STYLES if style.startswith(value)]


@server.completion(template="greeting://{name}", argument="name")
def complete_name(value: str, arguments: dict[str, str]) -> list[str]:
    return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]


def main() -> None:
    global log_file
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--http", type=int, metavar="PORT")
    options = parser.parse_args()
    log_file = options.log
    if options.http is None:
        server.run()
    else:
        server.run("http", port=options.http, sse_path="/sse")


if __name__ == "__main__":
    main()
