# pyright: reportMissingImports=false
"""A server written with FastMCP, run by `.tools/peers/fastmcp`, for our client to call.

    fastmcp_server.py --log FILE                 stdio
    fastmcp_server.py --log FILE --http PORT     http://127.0.0.1:PORT/mcp, both eras, sessions on the legacy one; /sse beside it

`contract.py` says what it offers. Asking is written twice, as the library wants it: awaited on the legacy era, returned on the
modern one. What must have begun or stopped is written to FILE, one line each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import mcp_types as types
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from fastmcp.utilities.types import Image
from pydantic import Field

warnings.simplefilter("ignore")  # the SDK below it deprecates the legacy methods as they are used

PAGE = 10
MODERN = "2026-07-28"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da6364f80f00010501012718e3660000000049454e44ae426082"
)

server = FastMCP("theirs", version="3.2.1", instructions="Call add first.", list_page_size=PAGE)
log_file: Path
waits: dict[str, asyncio.Event] = {}
released: dict[str, asyncio.Event] = {}


def note(line: str) -> None:
    with log_file.open("a", encoding="utf-8") as log:
        log.write(line + "\n")


def is_modern(ctx: Context) -> bool:
    return ctx.request_context.protocol_version == MODERN


# --- tools: results ---------------------------------------------------------------------------------------------------


@server.tool(title="Add two numbers", annotations={"readOnlyHint": True})
def add(a: Annotated[int, "the first"], b: Annotated[int, "the second"]) -> int:
    """Add two numbers."""
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
    return [n for n in range(2, 100) if all(n % d for d in range(2, n))][:count]


@server.tool
def picture() -> Image:
    """A picture of one pixel."""
    return Image(data=PIXEL, format="png")


@server.tool(output_schema=None)
def mixed() -> list[Any]:
    """One block of each kind."""
    text = types.TextResourceContents(uri="config://app", mime_type="text/plain", text="inside")
    return [
        types.TextContent(type="text", text="before"),
        types.AudioContent(type="audio", data="UklGRg==", mime_type="audio/wav"),
        types.EmbeddedResource(type="resource", resource=text),
        types.ResourceLink(type="resource_link", uri="config://app", name="config"),
    ]


@server.tool
def echo(text: str) -> str:
    """The text, unchanged."""
    return text


@server.tool(output_schema=None)
def big(size: int) -> str:
    """A text of this many bytes."""
    return "0123456789abcdef" * (size // 16)


@server.tool
def fail(reason: str) -> str:
    """Fail for the given reason."""
    raise ToolError(f"it failed: {reason}")


@server.tool
def route(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Say what came in an argument that also travels as a header."""
    return f"to {region}"


@server.tool
def pid() -> int:
    """Which process this is."""
    return os.getpid()


@server.tool
def complain(text: str) -> str:
    """Say it on standard error."""
    print(text, file=sys.stderr, flush=True)
    return "said"


# --- tools: while the call runs ---------------------------------------------------------------------------------------


@server.tool
async def count(to: int, ctx: Context, gate: str = "") -> int:
    """Count, saying so; given a gate, end only when that is released, which proves that what was said was heard before."""
    await ctx.log("counting", level="warning", logger_name="counter", extra={"to": to})
    for number in range(1, to + 1):
        await ctx.report_progress(number, total=to, message=f"{number} of {to}")
    if gate:
        async with asyncio.timeout(5):
            await released.setdefault(gate, asyncio.Event()).wait()
    return to


@server.tool
async def release(gate: str) -> str:
    """Let `count` end."""
    released.setdefault(gate, asyncio.Event()).set()
    return "released"


@server.tool
async def wait(name: str, ctx: Context) -> str:
    """Wait until cancelled; the first progress says that the waiting has begun."""
    waits[name] = asyncio.Event()
    note(f"wait {name} began")
    try:
        await ctx.report_progress(1, message="waiting")
        await anyio.sleep_forever()
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
    floor: int = 2
    express: bool = False


@dataclass
class Payment:
    pay: Literal["card", "cash"]


DELIVERY = {
    "type": "object",
    "properties": {
        "street": {"type": "string"},
        "floor": {"type": "integer", "default": 2},
        "express": {"type": "boolean", "default": False},
    },
    "required": ["street"],
}
PAYMENT = {
    "type": "object",
    "properties": {"pay": {"type": "string", "enum": ["card", "cash"]}},
    "required": ["pay"],
}


def form(message: str, schema: dict[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def shipped(item: str, where: Any, how: Any) -> str:
    note(f"ship {item}")
    return f"{item} to {where['street']}, floor {where['floor']}, express {where['express']}, {how['pay']}"


@server.tool(output_schema=None)
async def order(item: str, ctx: Context) -> Any:
    """Ask two questions, the second only after the first."""
    if not is_modern(ctx):
        where = await ctx.elicit(f"Where shall {item} go?", Delivery)
        if where.action != "accept":
            return f"{item}: {where.action}"
        how = await ctx.elicit("How will you pay?", Payment)
        if how.action != "accept":
            return f"{item}: {how.action}"
        return shipped(item, vars(where.data), vars(how.data))
    answers = ctx.input_responses or {}
    if "how" in answers:
        kept = types.ElicitResult.model_validate_json(ctx.request_state or "")
        return shipped(item, kept.content, answers["how"].content)
    if "where" not in answers:
        return types.InputRequiredResult(input_requests={"where": form(f"Where shall {item} go?", DELIVERY)})
    if answers["where"].action != "accept":
        return f"{item}: {answers['where'].action}"
    return types.InputRequiredResult(
        input_requests={"how": form("How will you pay?", PAYMENT)},
        request_state=answers["where"].model_dump_json(by_alias=True),
    )


@server.tool(output_schema=None)
async def summarise(text: str, ctx: Context) -> Any:
    """Have the client's model make it shorter."""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=f"Summarise: {text}"))
    if not is_modern(ctx):
        said = await ctx.session.create_message(
            [message], max_tokens=50, system_prompt="Be brief.", related_request_id=ctx.request_id
        )
    elif not ctx.input_responses:
        params = types.CreateMessageRequestParams(messages=[message], max_tokens=50, system_prompt="Be brief.")
        return types.InputRequiredResult(input_requests={"said": types.CreateMessageRequest(params=params)})
    else:
        said = ctx.input_responses["said"]
    return f"{said.model} ({said.role}): {said.content.text}"


@server.tool(output_schema=None)
async def folders(ctx: Context) -> Any:
    """The client's roots."""
    if not is_modern(ctx):
        found = await ctx.session.list_roots()
    elif not ctx.input_responses:
        return types.InputRequiredResult(input_requests={"roots": types.ListRootsRequest()})
    else:
        found = ctx.input_responses["roots"]
    return [f"{root.name}={root.uri}" for root in found.roots]


# --- tools: changing --------------------------------------------------------------------------------------------------


@server.tool
async def grow(name: str, ctx: Context) -> str:
    """Add a tool, and say so."""

    def grown() -> str:
        return "I was not here before."

    server.tool(grown, name=name)
    await ctx.send_notification(types.ToolListChangedNotification())
    return "grown"


# --- resources, prompts, completions ----------------------------------------------------------------------------------


@server.resource("config://app", mime_type="application/json", title="Settings")
def config() -> str:
    """The settings."""
    return '{"theme": "dark", "größe": 3}'


@server.resource("image://pixel", mime_type="image/png")
def pixel() -> bytes:
    """One pixel."""
    return PIXEL


@server.resource("greeting://{name}", mime_type="text/plain")
def greeting(name: str) -> str:
    """A greeting for one person."""
    return f"Hello, {name}!"


@server.prompt(title="Greet someone")
def greet(name: str, style: str = "plain") -> list[Message]:
    """Greet someone."""
    return [Message(f"Greet {name} in a {style} way."), Message("Gladly.", role="assistant")]


@server.completion
def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
    known = {"style": ("plain", "pompous", "poetic", "terse"), "name": ("Ada", "Alan", "Grace")}[argument.name]
    values = [value for value in known if value.startswith(argument.value)]
    return types.Completion(values=values, total=len(values), has_more=False)


def main() -> None:
    global log_file
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--http", type=int, metavar="PORT")
    options = parser.parse_args()
    log_file = options.log
    if options.http is None:
        server.run(show_banner=False, log_level="ERROR")
        return
    app = server.http_app(path="/mcp")
    app.routes.extend(server.http_app(path="/sse", transport="sse").routes)
    uvicorn.run(app, host="127.0.0.1", port=options.http, log_level="error", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
