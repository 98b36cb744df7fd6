"""Port Trimaran, a small harbour: the server that `trimaran demo` runs, and a page to learn from.

It shows each thing a server can do once, in the plainest way: no network, no files, no configuration.

    sail            progress while it works                 harbour://guide       text
    tide_table      structured output, from a dataclass     harbour://berths      JSON
    signal_flags    an image                                harbour://chart.png   binary
    book_berth      a question in the middle of the call    log://{day}           a template
    listen_in       streaming                               plan_passage          a prompt with completion
    find_boat       a plain `def`, and an error that helps  handover              a prompt that embeds a resource
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import msgspec

from trimaran import Context, Server, ToolError, content
from trimaran.errors import ResourceMissing
from trimaran.types import ImageContent, PromptMessage

from .flags import chart, hoist

server: Server = Server(
    "port-trimaran",
    title="Port Trimaran",
    version="1.0.0",
    instructions=(
        "You are in the harbour office of Port Trimaran. Look boats up with find_boat, read the tides with tide_table, "
        "book a berth with book_berth (it asks the skipper a question), and read the log book at log://{day}."
    ),
)

Port = Literal["Gull Rock", "Kelp Sound", "Lantern Bay"]
MILES: Final[dict[Port, int]] = {"Gull Rock": 12, "Kelp Sound": 31, "Lantern Bay": 54}

BERTHS: Final = 40

LOG: Final = {
    "monday": "Fog until ten. The Tern came in by bell and patience.",
    "tuesday": "Wind SW 4. Three boats out, three boats back, one mackerel each.",
    "wednesday": "Repainted the light. It is red again, and so is the harbour cat.",
    "thursday": "Gale from the west. Everyone stayed in and mended things.",
    "friday": "Clear and calm. The Albatross left for Lantern Bay at first light.",
}


@dataclass
class Boat:
    """A boat that is known here."""

    name: str
    rig: str
    metres: float
    berth: int | None = None


@dataclass
class Harbour:
    """The harbour master's records, as long as the server runs."""

    boats: dict[str, Boat]
    berths: dict[int, str] = field(default_factory=dict[int, str])
    """Berth number -> the boat that has it."""

    def reserve(self, boat: str) -> int:
        """Give the boat the first free berth: the side effect that must happen once."""
        berth = next((n for n in range(1, BERTHS + 1) if n not in self.berths), None)
        if berth is None:
            raise ToolError(f"All {BERTHS} berths are taken. Try Gull Rock, twelve miles down the coast.")
        self.berths[berth] = boat
        return berth

    def release(self, berth: int) -> None:
        self.berths.pop(berth, None)


harbour: Harbour = Harbour(
    boats={
        boat.name.lower(): boat
        for boat in (Boat("Tern", "trimaran", 9.2), Boat("Albatross", "schooner", 21.0), Boat("Puffin", "dinghy", 3.4))
    }
)


# Tools


@server.tool(annotations={"readOnlyHint": True})
def find_boat(name: str) -> Boat:
    """Look a boat up in the harbour register.

    Args:
        name: The boat's name, such as Tern; capital letters do not matter.
    """
    boat = harbour.boats.get(name.lower())
    if boat is None:
        known = ", ".join(boat.name for boat in harbour.boats.values())
        raise ToolError(f"No boat named {name!r} is registered here. These are: {known}.")
    berth = next((number for number, owner in harbour.berths.items() if owner == boat.name), None)
    return Boat(boat.name, boat.rig, boat.metres, berth)


@dataclass
class Tide:
    """One turn of the tide.

    Attributes:
        time: Local time, as HH:MM.
        metres: Height above chart datum.
    """

    time: str
    kind: Literal["high", "low"]
    metres: float


@dataclass
class TideTable:
    """The tides of one day."""

    port: str
    day: int
    tides: list[Tide]


@server.tool(annotations={"readOnlyHint": True})
def tide_table(day: Annotated[int, msgspec.Meta(ge=1, le=28)] = 1) -> TideTable:
    """The four tides of a day at Port Trimaran, with heights.

    Args:
        day: The day of the lunar month, 1 to 28. Springs fall on 1 and 15.
    """
    # High water comes some fifty minutes later each day, and is highest at new and full moon.
    first = (195 + (day - 1) * 50) % 360
    spring = abs((day - 1) % 14 - 7) / 7
    tides: list[Tide] = []
    for turn in range(4):
        minutes = first + turn * 372
        is_high = turn % 2 == 0
        height = 3.6 + 0.9 * spring if is_high else 1.4 - 0.9 * spring
        clock = f"{minutes // 60 % 24:02}:{minutes % 60:02}"
        tides.append(Tide(clock, "high" if is_high else "low", round(height, 1)))
    return TideTable("Port Trimaran", day, tides)


@server.tool
async def sail(destination: Port, ctx: Context) -> str:
    """Sail to a port down the coast and report each leg on the way.

    Args:
        destination: Where to go.
    """
    legs = ("cast off", "clear the mole", "set the spinnaker", "dodge a ferry", "moor")
    for number, leg in enumerate(legs, 1):
        await asyncio.sleep(0.12)
        await ctx.progress(number, total=len(legs), message=leg)
    return f"Moored at {destination} after {MILES[destination]} sea miles."


@server.tool(annotations={"readOnlyHint": True})
def signal_flags(word: Annotated[str, msgspec.Meta(min_length=1, max_length=12)]) -> ImageContent:
    """Draw a word in the flags of the International Code of Signals, as a PNG.

    Args:
        word: Up to twelve letters; anything that is not A to Z is left out.
    """
    return content.image(hoist(word), "image/png")


@server.tool(annotations={"readOnlyHint": True})
async def listen_in(channel: Annotated[int, msgspec.Meta(ge=1, le=88)] = 16) -> AsyncIterator[str]:
    """Listen to the VHF radio for a moment; what is said streams in as it is heard.

    Args:
        channel: The VHF channel, 1 to 88.
    """
    for line in (
        f"[ch {channel}] Harbour, harbour, this is Tern.\n",
        f"[ch {channel}] Tern, this is harbour, go ahead.\n",
        f"[ch {channel}] Request a berth for three hulls, over.\n",
    ):
        await asyncio.sleep(0.08)
        yield line


@dataclass
class Stay:
    """The harbour master's questions before a boat may tie up."""

    nights: Annotated[int, msgspec.Meta(ge=1, le=14, description="How many nights?")]
    power: Annotated[bool, "Shore power?"] = False


@dataclass
class Booking:
    """A berth, booked or not.

    Attributes:
        price: In sea shells, for the whole stay.
    """

    boat: str
    booked: bool
    berth: int | None = None
    nights: int = 0
    price: int = 0


@server.tool
async def book_berth(boat: str, ctx: Context) -> Booking:
    """Reserve a berth for a boat. The skipper is asked how long the boat stays before the booking is made final.

    Args:
        boat: The name of the boat.
    """
    # A client of 2026-07-28 ends the call at the question and comes back with the answer: the body then runs again from
    # the top. A step keeps its result, so the berth is reserved once in either era.
    berth: int = await ctx.step("reserve", harbour.reserve, boat)
    answer = await ctx.elicit(f"Berth {berth} is held for {boat}. How long will you stay?", Stay)
    if answer.action != "accept":
        await ctx.step("release", harbour.release, berth)
        return Booking(boat, booked=False)
    stay: Stay = answer.content
    return Booking(boat, booked=True, berth=berth, nights=stay.nights, price=stay.nights * (5 if stay.power else 3))


# Resources


@server.resource("harbour://guide", name="guide", title="Harbour guide", mime_type="text/markdown")
def guide() -> str:
    """How to come in: lights, depths and manners."""
    return (
        "# Port Trimaran\n\n"
        "- Enter between the moles, red light to port.\n"
        "- Least depth 2.4 m at low springs.\n"
        "- Call on VHF 16, then book a berth. Three hulls are welcome.\n"
    )


@server.resource("harbour://berths", name="berths", title="Berths taken", mime_type="application/json")
def berths() -> dict[str, str]:
    """Which boat lies in which berth right now."""
    return {str(number): boat for number, boat in sorted(harbour.berths.items())}


@server.resource("harbour://chart.png", name="chart", title="Harbour chart", mime_type="image/png")
def harbour_chart() -> bytes:
    """The chart of the harbour: moles, shallows and the light."""
    return chart()


@server.resource("log://{day}", name="log", title="Log book", mime_type="text/plain")
def log_book(day: str) -> str:
    """One day of this week's log book: monday to friday."""
    entry = LOG.get(day.lower())
    if entry is None:
        raise ResourceMissing(f"log://{day}")
    return entry


# Prompts


@server.prompt(title="Plan a passage")
def plan_passage(destination: str, crew: str = "two friends") -> str:
    """Ask for a passage plan from Port Trimaran.

    Args:
        destination: The port to sail to.
        crew: The passengers.
    """
    return (
        f"Plan a day's sail from Port Trimaran to {destination} for {crew}. "
        "Use tide_table to choose when to leave, and say what to watch out for."
    )


@server.prompt(title="Hand over the watch")
def handover(day: str) -> list[PromptMessage]:
    """Turn a day of the log book into a handover for the next harbour master.

    Args:
        day: The day to hand over, monday to friday.
    """
    page = content.text_resource(f"log://{day}", log_book(day))
    return [
        content.user_message(content.embedded(page)),
        content.user_message(f"Write the handover of {day} in two sentences."),
    ]


# Completion


@server.completion(prompt="plan_passage", argument="destination")
def complete_destination(typed: str) -> list[str]:
    return [port for port in MILES if port.lower().startswith(typed.lower())]


@server.completion(prompt="handover", argument="day")
@server.completion(template="log://{day}", argument="day")
def complete_day(typed: str) -> list[str]:
    return [day for day in LOG if day.startswith(typed.lower())]
