"""A server with something of everything the command line shows. Run as `python harbour.py`, or by `trimaran serve`."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from trimaran import Context, Server, ToolError, content
from trimaran.types import CallToolResult, TextContent

server = Server("harbour", version="2.0.0", instructions="Ask the harbour master.")
PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@dataclass
class Stay:
    nights: Annotated[int, msgspec.Meta(ge=1, le=14, description="How many nights?")]
    power: Annotated[bool, "Shore power?"] = False
    berth: Literal["north", "south"] = "south"


@dataclass
class Agreement:
    agreed: bool = True
    name: str = "nobody"


@server.tool(annotations={"readOnlyHint": True})
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def echo(value: Any = None, flag: bool = False, items: list[int] | None = None, text: str = "") -> dict[str, Any]:
    """Give back what came."""
    return {"value": value, "flag": flag, "items": items, "text": text}


@server.tool
def shout() -> str:
    """Text with a colour code in it."""
    return "\x1b[31mred\x1b[0m"


@server.tool
async def sail(ctx: Context) -> str:
    """Report progress, and log a line."""
    await ctx.log("info", {"wind": "west"})
    await ctx.log("debug", "a detail")
    for number in (1, 2, 3):
        await ctx.progress(number, total=3, message=f"leg {number}")
    return "moored"


@server.tool
def draw() -> CallToolResult:
    """Two pictures, a sound and a word."""
    picture = content.image(PIXEL, "image/png")
    return CallToolResult.ok([picture, content.text("two pictures"), picture, content.audio(b"RIFF", "audio/wav")])


@server.tool
def fail() -> str:
    """Fail."""
    raise ToolError("the mast broke")


@server.tool
async def book(ctx: Context) -> str:
    """Ask for a stay."""
    answer = await ctx.elicit("How long will you stay?", Stay)
    return f"{answer.action}: {answer.content}"


@server.tool
async def agree(ctx: Context) -> str:
    """Ask what has a default for everything."""
    answer = await ctx.elicit("Do you agree?", Agreement)
    return f"{answer.action}: {answer.content}"


@server.tool
async def pay(ctx: Context) -> str:
    """Send the skipper to a page."""
    answer = await ctx.elicit("Pay the fee.", url="https://pay.example/berth/7")
    return answer.action


@server.tool
async def wait() -> str:
    """Never return."""
    await asyncio.Event().wait()
    return ""


@server.tool
def sink() -> str:
    """Take the whole process down."""
    os._exit(9)


@server.tool
def both() -> CallToolResult:
    """Structured data, its mirror, and a remark."""
    return CallToolResult.ok([TextContent(text='{"a": 1}'), TextContent(text="a remark")], structured={"a": 1})


@server.resource("harbour://guide", mime_type="text/markdown")
def guide() -> str:
    """How to come in."""
    return "# Guide\n"


@server.resource("harbour://chart.png", mime_type="image/png")
def chart() -> bytes:
    """The chart."""
    return PIXEL


@server.resource("log://{day}")
def log(day: str) -> str:
    """One day of the log book."""
    return f"{day}: calm"


@server.prompt
def plan(port: str, crew: str = "two") -> str:
    """Plan a passage."""
    return f"Sail to {port} with {crew}."


if __name__ == "__main__":
    server.run()
