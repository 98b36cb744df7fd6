"""What hostile servers do to our client. Each attack is one function that answers the call of a tool, or does not.

    python -m tests.attack.hostile_servers PORT     serves them all, each at a path of its own

A call has a deadline of two seconds, and must end by then, whatever is sent. Meanwhile another connection of the same
program, in the same event loop, calls an honest server: what the hostile one costs its other callers shows there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from logging import CRITICAL, NOTSET, disable
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc.jwk import ECKey
from tests.support.faults import encode
from tests.support.ports import find_port
from tests.support.program import listens
from tests.support.until import PATIENCE

from trimaran import Host, connect
from trimaran.errors import Error
from trimaran.oauth import OAuth

from .rig import ROOT, Latency, Sample

TIMEOUT: Final = 2.0  # seconds of a call
MAX_SECONDS: Final = 3.0  # until it has ended: room for a busy machine
MAX_TOKEN_WAIT: Final = 6.0  # seconds of closing: an answer that may hold the only valid refresh token is waited for 5
MAX_P99: Final = 100.0  # ms of the other connection
TRIES: Final = 3
BLOCK: Final = 16_384
DOCUMENT: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
EVENTS: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SCHEMA: Final = {"type": "object", "properties": {"value": {}}}

Answer = Callable[["Exchange"], Awaitable[None]]
Stage = Literal["resource", "issuer", "token"]
"""Which document of a login: that about the server, that about its issuer, the tokens. The ones before it are honest."""


@dataclass(frozen=True)
class Attack:
    name: str
    answer: Answer
    tool: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the tool is declared with, beside its name."""
    method: str = "tools/call"
    document: Answer | None = None
    """Answers requests for a document of a login, or for signing keys. The call itself is then refused with 401."""
    stage: Stage = "resource"
    by_host: bool = False
    """Met by a `Host`, which scans, counts, indexes and cuts what a server says."""


ATTACKS: dict[str, Attack] = {}


def attack(name: str, *, method: str = "tools/call", **tool: Any) -> Callable[[Answer], Answer]:
    def register(answer: Answer) -> Answer:
        ATTACKS[name] = Attack(name, answer, tool, method)
        return answer

    return register


def document(name: str) -> Callable[[Answer], Answer]:
    """An attack by the document that a server names when it wants a login."""

    def register(answer: Answer) -> Answer:
        ATTACKS[name] = Attack(name, want_login, document=answer)
        return answer

    return register


def pack(count: int) -> list[bytes]:
    """Pieces of one gzip stream, each of 1 MB of spaces; from the second on they are alike."""
    packer = zlib.compressobj(wbits=31)
    return [packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(count)]


PACKED: Final = pack(2)  # beforehand: the attacker's work is not to be felt by the bystander


class Exchange:
    """One request, and the connection to answer it on."""

    def __init__(self, message: dict[str, Any], writer: asyncio.StreamWriter, path: str = "/") -> None:
        self.message = message
        self.path = path
        self._writer = writer

    @property
    def origin(self) -> str:
        host, port = self._writer.get_extra_info("sockname")
        return f"http://{host}:{port}"

    async def send(self, data: bytes) -> None:
        """Fast, but not faster than a network: the client's processor is to be its own."""
        self._writer.write(data)
        await self._writer.drain()
        await asyncio.sleep(max(0.0005, len(data) / 20_000_000))

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, message: Any) -> None:
        await self.chunk(b"data: " + encode(message) + b"\n\n")

    async def reply(self, result: Any, *headers: str) -> None:
        body = encode({"jsonrpc": "2.0", "id": self.message.get("id"), "result": result})
        await self.respond(200, body, *headers)

    async def respond(self, status: int, body: bytes = b"", *headers: str) -> None:
        lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


# --- the attacks -----------------------------------------------------------------------------------------------------


def doubling(levels: int) -> dict[str, Any]:
    """Each definition refers twice to the one before."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, levels):
        reference = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"type": "object", "properties": {"a": reference, "b": reference}}
    return {"type": "object", "properties": {"value": {"$ref": f"#/$defs/d{levels - 1}"}}, "$defs": definitions}


def doubling_visits(levels: int) -> dict[str, Any]:
    """The same, all for one place of the value: a validator without a limit would come there 2 ** levels times."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, levels):
        reference = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"allOf": [reference, reference]}
    return {"type": "object", "properties": {"value": {"$ref": f"#/$defs/d{levels - 1}"}}, "$defs": definitions}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


async def reply_structured(exchange: Exchange) -> None:
    text = "a" * 5000 + "!"
    await exchange.reply({"content": [{"type": "text", "text": "x"}], "structuredContent": {"value": text}})


attack("a schema that doubles", outputSchema=doubling(40))(reply_structured)
attack("a schema that doubles visits", outputSchema=doubling_visits(26))(reply_structured)
attack("a deep schema", outputSchema=nested(400))(reply_structured)
attack("a schema that refers to itself", outputSchema={"type": "object", "$ref": "#"})(reply_structured)
attack(
    "a schema with a slow pattern",
    outputSchema={"type": "object", "properties": {"value": {"type": "string", "pattern": r"^(a+)+$|^(\w+\s?)+$"}}},
)(reply_structured)
attack("a schema of a hundred thousand words", outputSchema={"type": "object", "enum": list(range(100_000))})(
    reply_structured
)


WORDS: Final = {
    "exclamation marks": "!",
    "the beginnings of links": "http://",
    "the beginnings of pictures": "![a](http://x?",
    "characters that nobody sees": "\U000e0041\u200b",
    "one word": "a1B2",
    "brackets": "[{",
}
"""What a server may say at length: each once made, or could make, a pattern look at the same text over and over."""


def attack_host(name: str, text: str) -> None:
    """An attack by the words of a tool's definition and of its result, which are within all limits of messages."""

    async def reply(exchange: Exchange) -> None:
        await exchange.reply({"content": [{"type": "text", "text": text}], "structuredContent": {"value": text}})

    schema = {"type": "object", "properties": {"value": {"description": text}}}
    tool = {"description": text, "title": text[:1000], "inputSchema": schema}
    ATTACKS[name] = Attack(name, reply, tool, by_host=True)


for _what, _text in WORDS.items():
    attack_host(f"before a host: {_what}", (_text * 200_000)[:200_000])


@attack("silence")
async def silence(exchange: Exchange) -> None:
    await asyncio.sleep(60)


@attack("interim answers without end")
async def interim(exchange: Exchange) -> None:
    while True:
        await exchange.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 500)


@attack("a head without end")
async def endless_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await exchange.send(b"X-More: and more\r\n" * 500)


@attack("comments without end")
async def comments(exchange: Exchange) -> None:
    await exchange.send(EVENTS)
    while True:
        await exchange.chunk(b": still here\n\n" * 500)


@attack("one event without end")
async def endless_event(exchange: Exchange) -> None:
    await exchange.send(EVENTS)
    await exchange.chunk(b"data: ")
    while True:
        await exchange.chunk(b"x" * BLOCK)


@attack("events for other calls")
async def wrong_ids(exchange: Exchange) -> None:
    await exchange.send(EVENTS)
    for number in itertools.count(1_000_000):
        await exchange.event({"jsonrpc": "2.0", "id": number, "result": {"content": []}})


@attack("progress without end")
async def progress(exchange: Exchange) -> None:
    await exchange.send(EVENTS)
    token = exchange.message["params"].get("_meta", {}).get("progressToken", "t")
    for number in itertools.count():
        params = {"progressToken": token, "progress": number, "message": "m" * 100}
        await exchange.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


@attack("log messages without end")
async def logging(exchange: Exchange) -> None:
    await exchange.send(EVENTS)
    params = {"level": "error", "data": "d" * 1000}
    while True:
        await exchange.event({"jsonrpc": "2.0", "method": "notifications/message", "params": params})


@attack("sampling requests without end")
async def sampling(exchange: Exchange) -> None:
    await exchange.send(EVENTS)
    params = {"messages": [{"role": "user", "content": {"type": "text", "text": "x" * 1000}}], "maxTokens": 10}
    for number in itertools.count(1):
        await exchange.event(
            {"jsonrpc": "2.0", "id": f"s{number}", "method": "sampling/createMessage", "params": params}
        )


@attack("pings without end")
async def pings(exchange: Exchange) -> None:
    await exchange.send(EVENTS)
    for number in itertools.count(1):
        await exchange.event({"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"})


@attack("changed lists without end")
async def changed_lists(exchange: Exchange) -> None:
    await exchange.send(EVENTS)
    while True:
        await exchange.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


@attack("gzip without end")
async def gzip(exchange: Exchange) -> None:
    await exchange.send(EVENTS.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"))
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    while True:
        await exchange.chunk(packer.compress(b": " + b"x" * 1_000_000 + b"\n") + packer.flush(zlib.Z_SYNC_FLUSH))


@attack("one byte at a time")
async def drips(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{")
    while True:
        await exchange.send(b" ")
        await asyncio.sleep(0.05)


@attack("chunks of one byte")
async def tiny_chunks(exchange: Exchange) -> None:
    await exchange.send(EVENTS)
    while True:
        await exchange.send(b"1\r\nx\r\n" * 3000)


@attack("an answer without end")
async def endless_answer(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await exchange.chunk(b" " * BLOCK)


@attack("a deep answer")
async def deep_answer(exchange: Exchange) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    await exchange.respond(200, body)


@attack("redirects in a circle")
async def redirects(exchange: Exchange) -> None:
    await exchange.respond(307, b"", f"Location: /{list(ATTACKS).index('redirects in a circle')}")


@attack("not now, try again")
async def unavailable(exchange: Exchange) -> None:
    await exchange.respond(503, b"", "Retry-After: 0")


@attack("the session is gone")
async def no_session(exchange: Exchange) -> None:
    await exchange.respond(404, b"")


@attack("streams that end and begin again")
async def short_streams(exchange: Exchange) -> None:
    await exchange.send(EVENTS)
    await exchange.chunk(b"id: 1\nretry: 0\ndata: \n\n")
    await exchange.send(b"0\r\n\r\n")


@attack("connections that are cut")
async def cut(exchange: Exchange) -> None:
    await exchange.send(EVENTS + b"ffff\r\ndata: {")
    exchange._writer.transport.abort()  # pyright: ignore[reportPrivateUsage]


@attack("pages without end", method="tools/list")
async def pages(exchange: Exchange) -> None:
    tools = [{"name": f"t{number}", "inputSchema": SCHEMA} for number in range(100)]
    await exchange.reply({"tools": tools, "nextCursor": str(time.monotonic())})


@attack("the same page without end", method="tools/list")
async def same_page(exchange: Exchange) -> None:
    await exchange.reply({"tools": [], "nextCursor": "again"})


# --- documents of a login --------------------------------------------------------------------------------------------


async def want_login(exchange: Exchange) -> None:
    where = f"{exchange.origin}{exchange.path}/metadata"
    await exchange.respond(401, b"", f'WWW-Authenticate: Bearer resource_metadata="{where}"')


@document("a login document without end")
async def endless_document(exchange: Exchange) -> None:
    await exchange.send(DOCUMENT + b'\r\n{"resource":"')
    while True:
        await exchange.send(b"x" * BLOCK)


@document("a login document of 100 MB")
async def large_document(exchange: Exchange) -> None:
    await exchange.send(DOCUMENT + b"Content-Length: 104857600\r\n\r\n")
    while True:
        await exchange.send(b" " * BLOCK)


@document("a login document, byte by byte")
async def dripping_document(exchange: Exchange) -> None:
    await exchange.send(DOCUMENT + b"Content-Length: 1000\r\n\r\n{")
    while True:
        await exchange.send(b" ")
        await asyncio.sleep(1.0)


@document("a login document that never comes")
async def missing_document(exchange: Exchange) -> None:
    await asyncio.sleep(60)


@document("a login document in gzip without end")
async def packed_document(exchange: Exchange) -> None:
    await exchange.send(DOCUMENT + b"Content-Encoding: gzip\r\n\r\n")
    for piece in itertools.chain(PACKED[:1], itertools.repeat(PACKED[1])):
        await exchange.send(piece)


@document("a login document in chunks of one byte")
async def chunked_document(exchange: Exchange) -> None:
    await exchange.send(DOCUMENT + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        await exchange.send(b"1\r\n \r\n" * 2_000)


@document("a login document behind interim answers")
async def document_behind_interims(exchange: Exchange) -> None:
    while True:
        await exchange.send(b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 100)


@document("a login document that moves on and on")
async def moving_document(exchange: Exchange) -> None:
    await exchange.respond(302, b"", f"Location: {exchange.path}/metadata")


@document("a login document that is deep")
async def deep_document(exchange: Exchange) -> None:
    await exchange.respond(200, b"[" * 900_000)


@document("a login document of slow numbers")
async def slow_numbers(exchange: Exchange) -> None:
    await exchange.respond(200, b'{"resource":[' + b"1e300," * 150_000 + b"1]}")


_STAGES: Final[dict[Stage, str]] = {"issuer": "an issuer's metadata", "token": "an answer with tokens"}
for _stage, _what in _STAGES.items():
    for _how, _answer in (
        ("without end", endless_document),
        ("in gzip without end", packed_document),
        ("that is deep", deep_document),
        ("byte by byte", dripping_document),
    ):
        _name = f"{_what}, {_how}" if _how == "byte by byte" else f"{_what} {_how}"
        ATTACKS[_name] = Attack(_name, want_login, document=_answer, stage=_stage)


async def log_in_honestly(exchange: Exchange) -> None:
    """The documents before the hostile one, and the page that a browser is sent to."""
    place = urlsplit(exchange.path)
    resource = exchange.origin + place.path.removeprefix("/.well-known/oauth-authorization-server").rpartition("/")[0]
    match place.path.rpartition("/")[2]:
        case "metadata":
            document: dict[str, Any] = {"resource": resource, "authorization_servers": [f"{resource}/issuer"]}
            await exchange.respond(200, encode(document))
        case "issuer":
            document = {
                "issuer": f"{resource}/issuer",
                "authorization_endpoint": f"{resource}/authorize",
                "token_endpoint": f"{resource}/token",
                "registration_endpoint": f"{resource}/register",
                "response_types_supported": ["code"],
                "token_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
            }
            await exchange.respond(200, encode(document))
        case "register":
            await exchange.respond(201, encode({**exchange.message, "client_id": "client"}))
        case "authorize":
            await exchange.respond(302, b"", f"Location: {way_back(exchange.path)}")
        case "keys":
            _asked.add(exchange.path)
            await exchange.respond(200, encode({"keys": [ECKey.generate_key("P-256").as_dict(private=False)]}))
        case _:
            await exchange.respond(404)


_asked: set[str] = set()
"""Whose signing keys were given out honestly once."""


def way_back(authorize_url: str) -> str:
    """Where a person who agrees at once is sent."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(authorize_url).query).items()}
    return f"{query['redirect_uri']}?{urlencode({'code': 'c', 'state': query['state']})}"


def is_hostile(attack: Attack, path: str) -> bool:
    """Whether the document at this path is the one that is not honest. Signing keys are honest at first: nobody starts without."""
    ends = {"resource": "/metadata", "issuer": "/issuer", "token": "/token"}
    return path.endswith(ends[attack.stage]) or (path.endswith("/keys") and path in _asked)


# --- the server ------------------------------------------------------------------------------------------------------

HELLO: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}, "logging": {}},
    "serverInfo": {"name": "hostile", "version": "1"},
}


PRIVATE: Final = "/private"
"""After an address: every request is refused with 401, not the call alone."""


async def answer(attack: Attack, exchange: Exchange) -> None:
    message = exchange.message
    method = message.get("method")
    if method == attack.method or (attack.document is not None and exchange.path.endswith(PRIVATE)):
        await attack.answer(exchange)
    elif method == "initialize":
        await exchange.reply(HELLO, "Mcp-Session-Id: s")
    elif method == "tools/list":
        await exchange.reply({"tools": [{"name": "run", "inputSchema": SCHEMA, **attack.tool}]})
    elif method == "ping":
        await exchange.reply({})
    elif "id" in message and method is not None:
        error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}}
        await exchange.respond(404 if method == "server/discover" else 200, encode(error))
    else:
        await exchange.respond(202)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    attacks = list(ATTACKS.values())
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            verb, path, _ = head.split(" ", 2)
            length = int(head.lower().partition("content-length:")[2].split("\r\n")[0] or 0)
            body = await reader.readexactly(length)
            place = path.partition("?")[0]
            attack = attacks[int("".join(filter(str.isdigit, place)) or 0)]
            document = attack.document
            message = json.loads(body) if body.startswith((b"{", b"[")) else {}
            exchange = Exchange(message, writer, path)
            if document is not None and is_hostile(attack, place):
                await document(exchange)
            elif document is not None and place.count("/") > 1 and not place.endswith(PRIVATE):
                await log_in_honestly(exchange)
            elif verb == "POST":
                await answer(attack, exchange)
            elif verb == "GET" and "last-event-id" in head.lower():
                await attack.answer(exchange)
            else:
                await Exchange({}, writer).respond(405)
    writer.transport.abort()


def path_of(name: str) -> str:
    """Where the server of an attack is."""
    return f"/{list(ATTACKS).index(name)}"


@contextlib.asynccontextmanager
async def at_work() -> AsyncIterator[str]:
    """The address of all hostile servers, in a process of their own."""
    port = find_port()
    arguments = ["-m", "tests.attack.hostile_servers", str(port)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT)
    try:
        async with asyncio.timeout(PATIENCE * 2):
            while not listens(port):
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def serve_all(port: int) -> None:
    os.nice(19)
    async with await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 24) as server:
        await server.serve_forever()


# --- the client ------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    attack: str
    ended: str = ""
    """With a result, or with which error."""
    seconds: float = 0.0
    latency: Latency = field(default_factory=lambda: Latency.of([]))
    faults: list[str] = field(default_factory=list[str])


class Ending(NamedTuple):
    text: str
    """The result, or the error."""
    seconds: float
    """Of the call."""
    closing: float
    """Seconds that it took to close the client afterwards."""


class Neighbour:
    """Another connection of the same program, to an honest server."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    async def call(self, url: str) -> None:
        async with connect(url, timeout=20) as client:
            while True:
                begin = time.monotonic()
                await client.call_tool("add", {"a": 2, "b": 3})
                # What delays the next turn of the loop delays whoever is at work in it.
                await asyncio.sleep(0.01)
                self.samples.append(Sample(begin, time.monotonic() - begin - 0.01, "ok"))


async def on_sample(_ask: Any) -> str:
    await asyncio.sleep(0.1)
    return "no"


async def log_in(url: str) -> str:
    return way_back(url)


async def meet(attack: Attack, url: str) -> Ending:
    """Connect, and make the call; what came of it."""
    options: dict[str, Any] = {"timeout": TIMEOUT, "max_timeout": TIMEOUT, "connect_timeout": 10}
    if attack.by_host:
        return await meet_by_host(url, options)
    if attack.document is not None:
        options["auth"] = OAuth(login=log_in, redirect_uri="http://127.0.0.1:9/callback")
    async with connect(url, on_sample=on_sample, **options) as client:
        began = time.monotonic()
        try:
            if attack.method == "tools/list":
                tools = await client.list_tools_all()
                ended = f"{len(tools)} tools"
            else:
                result = await client.call_tool("run", {"value": 1})
                ended = "an error of the tool" if result.is_error else "a result"
        except Error as error:
            ended = f"{type(error).__name__}: {error}"
        over = time.monotonic()
    return Ending(ended, over - began, time.monotonic() - over)


async def meet_by_host(url: str, options: Any) -> Ending:
    async with Host({"hostile": url}, allow=["*"], options=options) as host:
        await host.ready()
        host.tools("anthropic", budget=1000)
        began = time.monotonic()
        try:
            result = await host.call("mcp__hostile__run", {"value": 1}, timeout=TIMEOUT)
            ended = "an error of the tool" if result.is_error else "a result"
        except Error as error:
            ended = f"{type(error).__name__}: {error}"
        over = time.monotonic()
    return Ending(ended, over - began, time.monotonic() - over)


async def measure(attack: Attack, url: str, neighbour: Neighbour, idle: Latency) -> Outcome:
    """Three times at most, if a limit is broken: see `Run.measure`."""
    outcomes: list[Outcome] = []
    while len(outcomes) < TRIES:
        outcomes.append(await measure_once(attack, url, neighbour, idle))
        if not outcomes[-1].faults:
            break
    return outcomes[-1]


async def measure_once(attack: Attack, url: str, neighbour: Neighbour, idle: Latency) -> Outcome:
    outcome = Outcome(attack.name)
    begin = time.monotonic()
    try:
        async with asyncio.timeout(MAX_SECONDS + 20):
            ending = await meet(attack, url)
        outcome.seconds, outcome.ended = ending.seconds, ending.text
        if ending.closing > (MAX_TOKEN_WAIT if attack.stage == "token" else MAX_SECONDS):
            outcome.faults.append(f"closing took {ending.closing:.1f} s")
    except TimeoutError:
        outcome.seconds, outcome.ended = time.monotonic() - begin, "did not end"
    except Error as error:
        outcome.seconds, outcome.ended = time.monotonic() - begin, f"not connected: {error}"
    except Exception as error:
        outcome.faults.append(f"{type(error).__name__} is none of our errors: {error}")
    end = time.monotonic()
    await asyncio.sleep(0.1)
    outcome.latency = Latency.of([sample for sample in neighbour.samples if begin <= sample.due < end])
    if outcome.seconds > MAX_SECONDS:
        outcome.faults.append(f"a call with timeout={TIMEOUT:g} took longer")
    if outcome.latency.p99 > max(MAX_P99, 10 * idle.p99):
        outcome.faults.append(f"p99 over {MAX_P99:.0f} ms")
    return outcome


def show(outcome: Outcome) -> str:
    latency = outcome.latency
    cells = [
        f"{outcome.attack:38}",
        f"{outcome.ended[:44]:44}",
        f"{outcome.seconds:7.2f}",
        f"{latency.p50:7.2f} {latency.p99:8.2f} {latency.most:8.1f}",
        "ok" if not outcome.faults else "; ".join(outcome.faults)[:160],
    ]
    return "  ".join(cells)


async def attack_client(names: list[str], honest_url: str) -> list[Outcome]:
    """Run these attacks, and print the table."""
    if not names:
        return []
    disable(CRITICAL)  # what a hostile server does is logged, and there is much of it
    neighbour = Neighbour()
    calling = asyncio.create_task(neighbour.call(honest_url))
    outcomes: list[Outcome] = []
    try:
        async with at_work() as origin:
            async with asyncio.timeout(PATIENCE * 2):
                while len(neighbour.samples) < 100:
                    await asyncio.sleep(0.05)
            idle = Latency.of(neighbour.samples[20:])
            print(
                f"\n{'hostile servers':38}  {'the call ended with':44}  seconds  {'p50':>7} {'p99':>8} {'max ms':>8}  verdict"
            )
            for name in names:
                outcomes.append(await measure(ATTACKS[name], f"{origin}{path_of(name)}", neighbour, idle))
                print(show(outcomes[-1]), flush=True)
            print(f"idle: p50 {idle.p50:.2f}, p99 {idle.p99:.2f}, max {idle.most:.1f} ms", flush=True)
    finally:
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        disable(NOTSET)
    return outcomes


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve_all(int(sys.argv[1])))
