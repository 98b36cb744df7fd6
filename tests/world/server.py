"""The Trimaran server that real programs are run against, written with the public API only.

    python tests/world/server.py                  stdio
    python tests/world/server.py --http PORT      http://127.0.0.1:PORT/mcp, and /sse for 2024-11-05

One tool per shape that a client may stumble over: what a schema can say, what a result can hold, what a call can do.
`scenario.py` says which calls a program makes here, and what it must be shown.
"""

from __future__ import annotations

import argparse
import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from trimaran import Context, Server, ToolError
from trimaran.content import image, text, user_message
from trimaran.types import ImageContent, PromptMessage, TextContent

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da6364f80f00010501012718e3660000000049454e44ae426082"
)
LONG_TEXT = "0123456789abcdef" * 1024  # 16 KiB: more than one read of a pipe, less than any client cuts

server = Server(
    "harbour", version="1.0.0", title="Harbour", instructions="Call add first.", description="Für alle: 你好"
)


@dataclass
class Place:
    name: str
    latitude: float
    longitude: float


@dataclass
class Leg:
    """One leg of a journey: it uses Place twice, so the schema has a shared definition."""

    start: Place
    end: Place
    miles: float


@dataclass
class Folder:
    name: str
    children: list[Folder] = field(default_factory=list)


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


LISBON, PORTO = Place("Lisbon", 38.7, -9.1), Place("Porto", 41.1, -8.6)


# --- plain results ----------------------------------------------------------------------------------------------------


@server.tool(title="Add two numbers", annotations={"readOnlyHint": True})
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


@server.tool
def echo(text: str) -> str:
    """The text, unchanged."""
    return text


@server.tool
def long_text() -> str:
    """A text of 16 KiB."""
    return f"{LONG_TEXT} end-of-long-text"


@server.tool
def nothing() -> None:
    """Return nothing."""


@server.tool(name="dotted.name-with_all")
def dotted() -> str:
    """A tool whose name has every character that names may have."""
    return "dotted-reached"


# --- structured results -----------------------------------------------------------------------------------------------


@server.tool
def journey() -> list[Leg]:
    """A list of objects with a shared definition."""
    return [Leg(LISBON, PORTO, 150.5)]


@server.tool
def place_or_none(known: bool) -> Place | None:
    """An object, or nothing."""
    return LISBON if known else None


@server.tool
def number_or_place(number: bool) -> int | Place:
    """A number or an object."""
    return 4711 if number else PORTO


@server.tool
def moments() -> dict[str, datetime]:
    """Times, with and without a zone."""
    return {"naive": datetime(2026, 11, 16, 12, 30), "utc": datetime(2026, 11, 16, 12, 30, tzinfo=UTC)}


@dataclass
class Kinds:
    when: datetime
    day: date
    clock: time
    took: timedelta
    price: Decimal
    colour: Colour
    point: tuple[int, int]
    words: tuple[str, ...]
    tags: set[str]
    key: UUID
    raw: bytes
    level: Literal["low", "high"]
    note: str | None = None


@server.tool
def kinds() -> Kinds:
    """One value of every kind that JSON has no word for."""
    return Kinds(
        when=datetime(2026, 11, 16, 9, 15, 30, 250000),
        day=date(2026, 11, 16),
        clock=time(9, 15),
        took=timedelta(seconds=90.5),
        price=Decimal("19.90"),
        colour=Colour.GREEN,
        point=(3, 4),
        words=("one", "two"),
        tags={"calm"},
        key=UUID("12345678-1234-5678-1234-567812345678"),
        raw=b"bytes",
        level="high",
    )


@server.tool
def took() -> timedelta:
    """A duration with a fraction of a second."""
    return timedelta(seconds=1.25)


@server.tool
def tree() -> Folder:
    """An object whose schema refers to itself."""
    return Folder("root", [Folder("leaf-folder")])


@server.tool(output_schema={"properties": {"answer": {"type": "integer"}}})
def explicit() -> dict[str, Any]:
    """A result whose schema is given by hand and has no type."""
    return {"answer": 42}


# --- arguments --------------------------------------------------------------------------------------------------------


@server.tool
def measure(leg: Leg, factor: float = 1.0, colour: Colour = Colour.RED) -> str:
    """Take an object with a shared definition, a default and an enumeration."""
    return f"{leg.start.name} to {leg.end.name}: {leg.miles * factor:g} miles, {colour.value}"


@server.tool
def schedule(at: datetime, price: Decimal, clock: time | None = None, nights: int | None = None) -> str:
    """Take a time without a zone, a decimal, and options."""
    return f"at {at.isoformat()} for {price}, clock {clock}, nights {nights}"


@server.tool
def walk(folder: Folder) -> int:
    """Take an object whose schema refers to itself; count its folders."""
    return 1 + sum(walk(child) for child in folder.children)


# --- content ----------------------------------------------------------------------------------------------------------


@server.tool
def picture() -> ImageContent:
    """A picture of one pixel."""
    return image(PIXEL)


@server.tool
def captioned() -> list[TextContent | ImageContent]:
    """A text and a picture."""
    return [text("caption-of-the-picture"), image(PIXEL)]


# --- while the call runs ----------------------------------------------------------------------------------------------


@server.tool
async def count(to: int, ctx: Context) -> int:
    """Count, with progress and a log line."""
    await ctx.log("info", {"counting to": to}, logger="counter")
    for number in range(1, to + 1):
        await ctx.progress(number, total=to, message=f"{number} of {to}")
    return to


@server.tool
def fail(reason: str) -> str:
    """Fail for the given reason."""
    raise ToolError(f"the tool failed: {reason}")


@server.tool
def crash() -> str:
    """Fail by a mistake in the tool."""
    raise ValueError("secret detail")


@dataclass
class Berth:
    name: str
    nights: int = 1


@server.tool
async def book(ctx: Context) -> str:
    """Ask the user for a name, if the client can ask."""
    if not ctx.peer.supports("elicitation"):
        return "booking: this client cannot ask"
    answer = await ctx.elicit("Who books the berth?", Berth)
    return f"booking: {answer.content.name}" if answer.accepted else f"booking: {answer.action}"


# --- resources and prompts --------------------------------------------------------------------------------------------


@server.resource("harbour://berths", mime_type="application/json", title="Berths")
def berths() -> dict[str, Any]:
    """The berths."""
    return {"free": 3, "größe": "klein"}


@server.resource("harbour://ships/{name}", mime_type="text/plain")
def ship(name: str) -> str:
    """One ship."""
    return f"The ship {name} is in port."


@server.prompt(title="Greet someone")
def greet(name: str) -> list[PromptMessage]:
    """Greet someone.

    Args:
        name: whom
    """
    return [user_message(f"Greet {name} at the harbour.")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", type=int, metavar="PORT")
    parser.add_argument("--without", nargs="*", default=[], metavar="TOOL", help="leave these tools out")
    options = parser.parse_args()
    for name in options.without:
        server.remove_tool(name)
    if options.http is None:
        server.run()
    else:
        server.run("http", port=options.http, sse_path="/sse")


if __name__ == "__main__":
    main()
