"""Servers that follow a table, and remember every word: what the client's wire tests are written against.

`Site` speaks HTTP, `Pipe` is a channel. Both hold a table from a method (or an HTTP verb) to the replies it gets, one after
the other, the last one again and again; both keep what the client said. Nothing of the library is used to write or read a
message, so a mistake of its encoders cannot hide behind itself.

A transcript reads like the conversation: `> ` is the client, `< ` the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web
from tests.support.until import until

from trimaran.client.link import ExitReport, Owner
from trimaran.errors import ConnectionLost

P = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
V11, V06, V03, V24 = "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"

ALL = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}, "logging": {}}


def encode(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


# --- what a server may say -------------------------------------------------------------------------------------------


def ok(id: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def bad(id: Any, code: int, message: str = "no", data: Any = None) -> dict[str, Any]:
    body = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return {"jsonrpc": "2.0", "id": id, "error": body}


def ask(id: Any, method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


def tell(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}


def discovered(capabilities: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "resultType": "complete",
        "supportedVersions": [MODERN],
        "capabilities": ALL if capabilities is None else capabilities,
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {P + "serverInfo": {"name": "scripted", "version": "9"}},
        **more,
    }


def initialized(version: str = V11, capabilities: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "protocolVersion": version,
        "capabilities": ALL if capabilities is None else capabilities,
        "serverInfo": {"name": "scripted", "version": "9"},
        **more,
    }


def said(text: str, **more: Any) -> dict[str, Any]:
    """A tool's result."""
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], **more}


def listed(*tools: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"resultType": "complete", "tools": list(tools), "ttlMs": 0, "cacheScope": "private", **more}


def tool(name: str, properties: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties or {}}, **more}


def input_required(requests: Any = None, state: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"resultType": "input_required"}
    if requests is not None:
        found["inputRequests"] = requests
    if state is not None:
        found["requestState"] = state
    return found


# --- HTTP ------------------------------------------------------------------------------------------------------------


class Exchange:
    """One HTTP request, as it came."""

    def __init__(self, request: web.BaseRequest, body: bytes) -> None:
        self.request = request
        self.verb = request.method
        self.path = request.path_qs
        self.headers = request.headers
        self.body = body
        self.message: Any = json.loads(body) if body else None
        self.left = asyncio.Event()
        """Set when the client leaves before the answer is complete."""

    @property
    def key(self) -> str:
        """What it is looked up by: the method of a request or notification, "answer", or the verb."""
        if self.message is None:
            return self.verb
        return self.message.get("method", "answer")

    @property
    def id(self) -> Any:
        return self.message.get("id")

    @property
    def params(self) -> dict[str, Any]:
        return self.message.get("params", {})

    @property
    def meta(self) -> dict[str, Any]:
        return self.params.get("_meta", {})

    def mcp(self) -> dict[str, str]:
        """The headers of the protocol, by lower-case name."""
        names = ("mcp-", "last-event-id", "authorization")
        return {name.lower(): value for name, value in self.headers.items() if name.lower().startswith(names)}

    def __repr__(self) -> str:
        return f"{self.verb} {self.key}"


Reply = Callable[[Exchange], Awaitable[web.StreamResponse]]


def result(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    async def reply(exchange: Exchange) -> web.StreamResponse:
        found = value(exchange) if callable(value) else value
        return web.Response(
            status=status, body=encode(ok(exchange.id, found)), content_type="application/json", headers=headers
        )

    return reply


def error(code: int, message: str = "no", data: Any = None, *, status: int = 200, id: Any = ...) -> Reply:
    async def reply(exchange: Exchange) -> web.StreamResponse:
        body = bad(exchange.id if id is ... else id, code, message, data)
        return web.Response(status=status, body=encode(body), content_type="application/json")

    return reply


def plain(
    status: int, body: bytes | str = b"", kind: str = "text/plain", headers: Mapping[str, str] | None = None
) -> Reply:
    async def reply(exchange: Exchange) -> web.StreamResponse:
        octets = body.encode() if isinstance(body, str) else body
        return web.Response(status=status, body=octets, content_type=kind, headers=headers)

    return reply


class Wire:
    """A stream of events while it is written."""

    def __init__(self, exchange: Exchange, response: web.StreamResponse) -> None:
        self.exchange = exchange
        self._response = response

    async def raw(self, text: str) -> None:
        await self._response.write(text.encode())

    async def say(self, message: Any, id: str | None = None) -> None:
        head = "" if id is None else f"id: {id}\n"
        await self.raw(f"{head}data: {json.dumps(message)}\n\n")

    async def answer(self, value: Any, id: str | None = None) -> None:
        await self.say(ok(self.exchange.id, value), id)

    async def until_left(self) -> None:
        """Hold the stream open until the client leaves it."""
        try:
            while True:
                await self.raw(": still here\n\n")
                await asyncio.sleep(0.005)
        except ConnectionError:
            self.exchange.left.set()

    def cut(self) -> None:
        """Break the connection in the middle."""
        transport = self.exchange.request.transport
        assert transport is not None
        transport.abort()


def stream(
    *steps: str | Mapping[str, Any] | Callable[[Wire], Awaitable[Any]], headers: Mapping[str, str] | None = None
) -> Reply:
    """An event stream: messages, raw text, or what a function writes; then its end."""

    async def reply(exchange: Exchange) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **(headers or {})})
        await response.prepare(exchange.request)
        wire = Wire(exchange, response)
        for step in steps:
            if isinstance(step, str):
                await wire.raw(step)
            elif isinstance(step, Mapping):
                await wire.say(step)
            else:
                await step(wire)
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    return reply


def streamed(value: Any) -> Reply:
    """A result at the end of a stream, with a comment before it."""
    return stream(": hello\n\n", lambda wire: wire.answer(value))


async def held(wire: Wire) -> None:
    await wire.until_left()


class Site:
    """An HTTP server that follows its table."""

    def __init__(self) -> None:
        self.heard: list[Exchange] = []
        self.table: dict[str, list[Reply]] = {}
        self._runner: web.ServerRunner | None = None
        self.url = ""

    # --- the table -----------------------------------------------------------------------------------------------

    def on(self, key: str, *replies: Reply) -> Site:
        """What a method (or "GET", "DELETE", "answer") gets: one reply after the other, the last one for good."""
        self.table[key] = list(replies)
        return self

    def modern(self, capabilities: Any = None, **more: Any) -> Site:
        return self.on("server/discover", result(discovered(capabilities, **more))).on("tools/list", result(listed()))

    def legacy(self, version: str = V11, session: str | None = "s-1", capabilities: Any = None, **more: Any) -> Site:
        headers = None if session is None else {"Mcp-Session-Id": session}
        self.on("server/discover", plain(400, "Bad Request: no valid session ID"))
        self.on("initialize", result(initialized(version, capabilities, **more), headers=headers))
        return self.on("tools/list", result({"tools": []}))

    async def _reply(self, exchange: Exchange) -> web.StreamResponse:
        replies = self.table.get(exchange.key)
        if replies:
            return await (replies.pop(0) if len(replies) > 1 else replies[0])(exchange)
        if exchange.verb == "GET":
            return web.Response(status=405, headers={"Allow": "POST"})
        if exchange.verb == "DELETE":
            return web.Response(status=204)
        if exchange.key == "answer" or exchange.key.startswith("notifications/"):
            return web.Response(status=202)
        return await error(-32601, "method not found", status=404)(exchange)

    # --- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._runner = web.ServerRunner(
            web.Server(self._serve, access_log=None), handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        place = web.TCPSite(self._runner, "127.0.0.1", 0)
        await place.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/mcp"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        exchange = Exchange(request, await request.read())
        self.heard.append(exchange)
        try:
            return await self._reply(exchange)
        except (asyncio.CancelledError, ConnectionError):
            exchange.left.set()
            raise

    # --- what was heard ------------------------------------------------------------------------------------------

    def all(self, key: str) -> list[Exchange]:
        return [exchange for exchange in self.heard if exchange.key == key]

    def one(self, key: str) -> Exchange:
        found = self.all(key)
        assert len(found) == 1, f"{key} came {len(found)} times: {self.transcript()}"
        return found[0]

    def transcript(self) -> list[str]:
        return [repr(exchange) for exchange in self.heard]


# --- a pipe ----------------------------------------------------------------------------------------------------------


class Pipe:
    """A channel with a table at its far end. A reply is a value (the result), a message, or a function of both ends."""

    def __init__(self) -> None:
        self.table: dict[str, list[Any]] = {}
        self.heard: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.opened = 0
        self.turns = 0
        """How many turns of the loop a send takes to return, as a pipe under pressure would."""
        self.is_open = False
        self._owner: Owner | None = None
        self._tasks: set[asyncio.Future[Any]] = set()

    def on(self, key: str, *replies: Any) -> Pipe:
        """What a request gets: a result; `Refused`; None for silence; or a function called with (pipe, message)."""
        self.table[key] = list(replies)
        return self

    def modern(self, capabilities: Any = None, **more: Any) -> Pipe:
        return self.on("server/discover", discovered(capabilities, **more)).on("tools/list", listed())

    def legacy(self, version: str = V11, capabilities: Any = None, **more: Any) -> Pipe:
        self.on("server/discover", Refused(-32601))
        return self.on("initialize", initialized(version, capabilities, **more)).on("tools/list", {"tools": []})

    # --- the channel ---------------------------------------------------------------------------------------------

    async def open(self, owner: Owner) -> None:
        self._owner = owner
        self.opened += 1
        self.is_open = True

    async def send(self, message: bytes) -> None:
        if not self.is_open:
            raise ConnectionLost("the pipe is broken")
        self._take(message)
        for _ in range(self.turns):
            await asyncio.sleep(0)

    def _take(self, message: bytes) -> None:
        assert b"\n" not in message
        heard = json.loads(message)
        self.heard.append(heard)
        self.lines.append(f"> {message.decode()}")
        replies = self.table.get(heard.get("method", "answer"))
        if not replies:
            if "id" in heard and "method" in heard:
                self.say(bad(heard["id"], -32601, "method not found"))
            return
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if callable(reply):
            outcome: Any = reply(self, heard)
            if hasattr(outcome, "__await__"):
                task = asyncio.ensure_future(outcome)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        elif isinstance(reply, Refused):
            self.say(bad(heard["id"], reply.code, reply.message, reply.data))
        elif reply is not None:
            self.say(ok(heard["id"], reply))

    async def close(self) -> None:
        self.is_open = False
        self._owner = None
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def describe(self) -> str:
        return "a scripted pipe"

    def postmortem(self) -> ExitReport:
        return ExitReport()

    # --- the server's side ---------------------------------------------------------------------------------------

    def say(self, message: Any) -> None:
        self.lines.append(f"< {json.dumps(message, separators=(',', ':'))}")
        self.shout(encode(message))

    def shout(self, octets: bytes) -> None:
        """Send what is perhaps no message."""
        if self._owner is not None:
            self._owner.receive(octets)

    def hang_up(self) -> None:
        owner, self._owner, self.is_open = self._owner, None, False
        assert owner is not None
        owner.lost(ConnectionLost("the server hung up"))

    def all(self, key: str) -> list[dict[str, Any]]:
        """Every request or notification of this method; "answer": every reply the client sent."""
        return [message for message in self.heard if message.get("method", "answer") == key]

    def one(self, key: str) -> dict[str, Any]:
        found = self.all(key)
        assert len(found) == 1, f"{key} came {len(found)} times:\n" + "\n".join(self.lines)
        return found[0]

    async def answered(self, id: Any) -> dict[str, Any]:
        """The client's reply to a request of ours."""
        return await until(lambda: next((one for one in self.all("answer") if one["id"] == id), None))


class Refused:
    def __init__(self, code: int, message: str = "no", data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data


@contextlib.asynccontextmanager
async def finishing(*tasks: asyncio.Future[Any]) -> AsyncIterator[None]:
    """Cancel these at the end, however it comes."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
