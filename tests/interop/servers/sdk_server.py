# pyright: reportMissingImports=false
"""A server written with the official Python SDK, run by `.tools/peers/sdk`, for our client to call.

    sdk_server.py --log FILE                 stdio
    sdk_server.py --log FILE --http PORT     http://127.0.0.1:PORT/mcp, both eras, sessions on the legacy one; /sse beside it
    sdk_server.py --plain ...                no sessions, no streams: each request is answered with one JSON body

`contract.py` says what it offers. What must have begun or stopped is written to FILE, one line each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import mcp_types as types
import uvicorn
from mcp.server import NotificationOptions
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, Image, ListRoots, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import AssistantMessage, UserMessage
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.shared.exceptions import UrlElicitationRequiredError
from pydantic import BaseModel, Field

warnings.simplefilter("ignore")  # the SDK deprecates the legacy methods as they are used

PAGE = 10
MODERN = "2026-07-28"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da6364f80f00010501012718e3660000000049454e44ae426082"
)

server = MCPServer("theirs", title="Their server", version="3.2.1", instructions="Call add first.", log_level="ERROR")
log_file: Path
waits: dict[str, asyncio.Event] = {}
released: dict[str, asyncio.Event] = {}
watched: set[str] = set()


def note(line: str) -> None:
    with log_file.open("a", encoding="utf-8") as log:
        log.write(line + "\n")


# --- tools: results ---------------------------------------------------------------------------------------------------


@server.tool(title="Add two numbers", annotations=types.ToolAnnotations(read_only_hint=True))
def add(a: Annotated[int, Field(description="the first")], b: Annotated[int, Field(description="the second")]) -> int:
    """Add two numbers."""
    return a + b


class Wind(BaseModel):
    speed: float
    direction: Literal["north", "east", "south", "west"]


class Weather(BaseModel):
    city: str
    celsius: float
    wind: Wind
    warnings: list[str]


@server.tool()
def weather(city: str) -> Weather:
    """The weather in a city."""
    return Weather(city=city, celsius=21.5, wind=Wind(speed=3.25, direction="west"), warnings=["pollen"])


@server.tool()
def primes(count: int) -> list[int]:
    """The first primes: a result that is no object."""
    return [n for n in range(2, 100) if all(n % d for d in range(2, n))][:count]


@server.tool()
def picture() -> Image:
    """A picture of one pixel."""
    return Image(data=PIXEL, format="png")


@server.tool(structured_output=False)
def mixed() -> list[types.ContentBlock]:
    """One block of each kind."""
    text = types.TextResourceContents(uri="config://app", mime_type="text/plain", text="inside")
    return [
        types.TextContent(type="text", text="before"),
        types.AudioContent(type="audio", data="UklGRg==", mime_type="audio/wav"),
        types.EmbeddedResource(type="resource", resource=text),
        types.ResourceLink(type="resource_link", uri="config://app", name="config"),
    ]


@server.tool()
def echo(text: str) -> str:
    """The text, unchanged."""
    return text


@server.tool(structured_output=False)
def big(size: int) -> str:
    """A text of this many bytes."""
    return "0123456789abcdef" * (size // 16)


@server.tool()
def fail(reason: str) -> str:
    """Fail for the given reason."""
    raise ToolError(f"it failed: {reason}")


@server.tool()
def route(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Say what came in an argument that also travels as a header."""
    return f"to {region}"


@server.tool()
def pid() -> int:
    """Which process this is."""
    return os.getpid()


@server.tool()
def complain(text: str) -> str:
    """Say it on standard error."""
    print(text, file=sys.stderr, flush=True)
    return "said"


# --- tools: while the call runs ---------------------------------------------------------------------------------------


@server.tool()
async def count(to: int, ctx: Context, gate: str = "") -> int:
    """Count, saying so; given a gate, end only when that is released, which proves that what was said was heard before."""
    await ctx.log("warning", {"counting to": to}, logger_name="counter")
    for number in range(1, to + 1):
        await ctx.report_progress(number, total=to, message=f"{number} of {to}")
    if gate:
        async with asyncio.timeout(5):
            await released.setdefault(gate, asyncio.Event()).wait()
    return to


@server.tool()
async def release(gate: str) -> str:
    """Let `count` end."""
    released.setdefault(gate, asyncio.Event()).set()
    return "released"


@server.tool()
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


@server.tool()
async def has_stopped(name: str) -> bool:
    """Whether the `wait` of that name has ended, or ends within five seconds."""
    try:
        async with asyncio.timeout(5):
            await waits[name].wait()
    except TimeoutError:
        return False
    return True


@server.tool()
async def nap(ctx: Context) -> str:
    """Hang up before the answer: a client that asks again for the stream is given it."""
    await ctx.close_sse_stream()
    return "slept"


# --- tools: asking ----------------------------------------------------------------------------------------------------


class Delivery(BaseModel):
    street: str
    floor: int = 2
    express: bool = False


class Payment(BaseModel):
    pay: Literal["card", "cash"] = Field(title="How to pay")


def ask_where(item: str) -> Elicit[Delivery]:
    return Elicit(f"Where shall {item} go?", Delivery)


def ask_how(
    where: Annotated[ElicitationResult[Delivery], Resolve(ask_where)],
) -> Elicit[Payment] | Payment:
    return Elicit("How will you pay?", Payment) if where.action == "accept" else Payment(pay="cash")


@server.tool()
async def order(
    item: str,
    where: Annotated[ElicitationResult[Delivery], Resolve(ask_where)],
    how: Annotated[ElicitationResult[Payment], Resolve(ask_how)],
) -> str:
    """Ask two questions, the second only after the first."""
    if where.action != "accept":
        return f"{item}: {where.action}"
    if how.action != "accept":
        return f"{item}: {how.action}"
    note(f"ship {item}")
    return f"{item} to {where.data.street}, floor {where.data.floor}, express {where.data.express}, {how.data.pay}"


def ask_model(text: str) -> Sample:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=f"Summarise: {text}"))
    return Sample([message], max_tokens=50, system_prompt="Be brief.")


@server.tool()
async def summarise(text: str, said: Annotated[types.CreateMessageResult, Resolve(ask_model)]) -> str:
    """Have the client's model make it shorter."""
    return f"{said.model} ({said.role}): {said.content.text}"


def ask_roots() -> ListRoots:
    return ListRoots()


@server.tool()
async def folders(roots: Annotated[types.ListRootsResult, Resolve(ask_roots)]) -> list[str]:
    """The client's roots."""
    return [f"{root.name}={root.uri}" for root in roots.roots]


@server.tool()
async def sign_in(ctx: Context) -> str | types.InputRequiredResult:
    """Send the person to a page."""
    if ctx.protocol_version == MODERN:
        if ctx.input_responses:
            return f"signed in: {ctx.input_responses['page'].action}"
        page = types.ElicitRequestURLParams(message="Sign in, please.", url="https://example.com/sign-in")
        return types.InputRequiredResult(input_requests={"page": types.ElicitRequest(params=page)})
    answer = await ctx.elicit_url("Sign in, please.", "https://example.com/sign-in", "sign-in-1")
    return f"signed in: {answer.action}"


@server.tool()
async def locked() -> str:
    """Refuse until the person has been to a page: the legacy way, an error that names it."""
    page = types.ElicitRequestURLParams(message="First this.", url="https://example.com/key", elicitation_id="key-1")
    raise UrlElicitationRequiredError([page])


# --- tools: changing --------------------------------------------------------------------------------------------------


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Add a tool, and say so."""

    def grown() -> str:
        return "I was not here before."

    server.add_tool(grown, name=name)
    await ctx.notify_tools_changed()
    if ctx.protocol_version != MODERN:
        await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def touch(uri: str, ctx: Context) -> str:
    """Say that a resource changed."""
    await ctx.notify_resource_updated(uri)
    if ctx.protocol_version != MODERN and uri in watched:
        await ctx.session.send_resource_updated(uri)
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
def greet(name: str, style: str = "plain") -> list[UserMessage | AssistantMessage]:
    """Greet someone."""
    return [UserMessage(f"Greet {name} in a {style} way."), AssistantMessage("Gladly.")]


@server.prompt()
async def introduce(ctx: Context) -> list[UserMessage] | types.InputRequiredResult:
    """Ask who is there first: a question from a prompt, which only the modern era has."""
    if ctx.input_responses:
        return [UserMessage(f"I am {ctx.input_responses['who'].content['name']}.")]
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    who = types.ElicitRequestFormParams(message="Who is there?", requested_schema=schema)
    return types.InputRequiredResult(input_requests={"who": types.ElicitRequest(params=who)})


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
    known = {"style": ("plain", "pompous", "poetic", "terse"), "name": ("Ada", "Alan", "Grace")}[argument.name]
    values = [value for value in known if value.startswith(argument.value)]
    return types.Completion(values=values, total=len(values), has_more=False)


# --- what the library leaves to its lower level: pages, levels, legacy subscriptions ----------------------------------


async def list_tools(ctx: Any, params: types.PaginatedRequestParams) -> types.ListToolsResult:
    tools = await server.list_tools()
    start = int(params.cursor or 0)
    more = str(start + PAGE) if start + PAGE < len(tools) else None
    return types.ListToolsResult(tools=tools[start : start + PAGE], next_cursor=more)


async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    note(f"level {params.level}")
    return types.EmptyResult()


async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    watched.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    watched.discard(str(params.uri))
    note(f"unsubscribed {params.uri}")
    return types.EmptyResult()


low = server._lowlevel_server
low.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)
default_options: Callable[..., Any] = low.create_initialization_options
low.create_initialization_options = lambda: default_options(
    NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True)
)


class Events(EventStore):
    """Keeps every event, so that a stream can be asked for again."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.kept.append((stream_id, message))
        return str(len(self.kept))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        last = int(last_event_id)
        stream = self.kept[last - 1][0]
        for number, (owner, message) in enumerate(self.kept[last:], last + 1):
            if owner == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def main() -> None:
    global log_file
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--http", type=int, metavar="PORT")
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    log_file = options.log
    if options.http is None:
        server.run()
        return
    if options.plain:
        app = server.streamable_http_app(json_response=True, stateless_http=True)
    else:
        app = server.streamable_http_app(event_store=Events(), retry_interval=50)
        app.routes.extend(server.sse_app().routes)
    uvicorn.run(app, host="127.0.0.1", port=options.http, log_level="error", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
