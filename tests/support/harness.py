"""A client made of bytes: what the wire tests say to a server, and how they hear it.

Carriers with one face: `http` is our own server on a free port and a raw socket to it, `https` the same over TLS, `http2`
the same over TLS and HTTP/2; `asgi` is the ASGI app driven in this process by a strict little server. Nothing here shares
code with the library, so a mistake of its encoder, its SSE writer or its header handling cannot hide behind itself.

Every wait is bounded by `PATIENCE`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError as H2Error
from tests.support.certificates import Authority
from tests.support.until import PATIENCE

from trimaran import Server
from trimaran.legacy.duplex import LegacyDuplex
from trimaran.serve import HttpServer
from trimaran.transports.memory import MemoryChannel

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
P = "io.modelcontextprotocol/"
BOTH = "application/json, text/event-stream"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

Pairs = list[tuple[str, str]]


def encode(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def meta(version: str | None = MODERN, caps: Any = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {} if version is None else {P + "protocolVersion": version}
    found[P + "clientCapabilities"] = {} if caps is None else caps
    found[P + "clientInfo"] = {"name": "wire", "version": "1"}
    return {**found, **more}


def request(method: str, params: Mapping[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


def notification(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}


def replace(pairs: Pairs, changes: Mapping[str, str | None]) -> Pairs:
    """Headers with some of them set to another value, added, or (None) taken out."""
    low = {k.lower(): v for k, v in changes.items()}
    kept = [(k, v) for k, v in pairs if k.lower() not in low]
    return kept + [(k, v) for k, v in changes.items() if v is not None]


class Event:
    """One server-sent event, as it came."""

    def __init__(self, block: str) -> None:
        self.id: str | None = None
        self.event = "message"
        self.retry: int | None = None
        self.comments = 0
        data: list[str] = []
        for line in block.split("\n"):
            if line.startswith(":"):
                self.comments += 1
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "id":
                self.id = value
            elif field == "event":
                self.event = value
            elif field == "retry":
                self.retry = int(value)
        self.has_data = bool(data)
        self.data = "\n".join(data)

    @property
    def message(self) -> Any:
        return json.loads(self.data)


class Stream:
    """A reply while it arrives."""

    def __init__(self, status: int, pairs: Pairs, chunks: AsyncIterator[bytes], disconnect: Any) -> None:
        self.status = status
        self.pairs = pairs
        self.headers = {k.lower(): v for k, v in pairs}
        self._chunks = chunks
        self._disconnect = disconnect
        self._buffer = ""
        self.comments = 0
        self.ended = False

    async def read(self) -> bytes:
        parts: list[bytes] = []
        async with asyncio.timeout(PATIENCE):
            async for chunk in self._chunks:
                parts.append(chunk)
        self.ended = True
        return b"".join(parts)

    async def raw_event(self) -> Event | None:
        """The next block of the stream, comments and priming events included; None at its end."""
        async with asyncio.timeout(PATIENCE):
            while "\n\n" not in self._buffer:
                try:
                    self._buffer += (await anext(self._chunks)).decode()
                except StopAsyncIteration:
                    self.ended = True
                    assert not self._buffer.strip(), f"the stream ended within an event: {self._buffer!r}"
                    return None
        block, _, self._buffer = self._buffer.partition("\n\n")
        event = Event(block)
        self.comments += event.comments
        return event

    async def event(self) -> Event | None:
        """The next event that carries data, even empty data."""
        while (event := await self.raw_event()) is not None:
            if event.has_data:
                return event
        return None

    async def next(self) -> Event:
        """The next event that carries a message."""
        while (event := await self.raw_event()) is not None:
            if event.data:
                return event
        raise AssertionError("the stream has ended")

    async def message(self) -> Any:
        return (await self.next()).message

    async def rest(self) -> list[Any]:
        """All further messages to the end of the stream."""
        found: list[Any] = []
        while (event := await self.raw_event()) is not None:
            if event.data:
                found.append(event.message)
        return found

    async def close(self) -> None:
        await self._disconnect()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class Reply:
    """A whole reply."""

    def __init__(self, status: int, pairs: Pairs, body: bytes) -> None:
        self.status = status
        self.pairs = pairs
        self.headers = {k.lower(): v for k, v in pairs}
        self.body = body

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def messages(self) -> list[Any]:
        """The messages of the reply, whether it is JSON or a stream."""
        if self.is_stream:
            events = [Event(b) for b in self.body.decode().split("\n\n")]
            return [e.message for e in events if e.data]
        return [json.loads(self.body)]

    @property
    def json(self) -> Any:
        assert self.headers.get("content-type") == "application/json", (self.status, self.headers, self.body)
        return json.loads(self.body)

    @property
    def result(self) -> Any:
        message = self.messages[-1]
        assert "result" in message, message
        return message["result"]

    @property
    def error(self) -> Any:
        message = self.messages[-1]
        assert "error" in message, message
        return message["error"]

    @property
    def verdict(self) -> tuple[int, int, Any]:
        """Status, code and id of a refusal."""
        return self.status, self.error["code"], self.messages[-1].get("id")

    def __repr__(self) -> str:
        return f"<Reply {self.status} {self.headers} {self.body[:500]!r}>"


# --- carriers --------------------------------------------------------------------------------------------------------


class HttpCarrier:
    """HTTP/1.1 by hand, a connection per request."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, tls: ssl.SSLContext | None = None) -> None:
        self.port = port
        self.host = host
        self.tls = tls

    async def open(self, method: str, target: str, headers: Pairs, body: bytes | Sequence[bytes]) -> Stream:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.tls)
        try:
            return await self._open(reader, writer, method, target, headers, body)
        except BaseException:
            writer.close()
            raise

    async def _open(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        method: str,
        target: str,
        headers: Pairs,
        body: Any,
    ) -> Stream:
        async with asyncio.timeout(PATIENCE):
            lines = [f"{method} {target} HTTP/1.1"]
            names = {k.lower() for k, _ in headers}
            if "host" not in names:
                lines.append(f"Host: {self.host}:{self.port}")
            if isinstance(body, bytes):
                if (body or method == "POST") and "content-length" not in names:
                    lines.append(f"Content-Length: {len(body)}")
                payload = body
            else:
                lines.append("Transfer-Encoding: chunked")
                payload = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in body) + b"0\r\n\r\n"
            lines += [f"{k}: {v}" for k, v in headers]
            writer.write("\r\n".join(lines).encode("latin-1") + b"\r\nConnection: close\r\n\r\n" + payload)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        pairs = [(k.strip(), v.strip()) for k, _, v in (line.partition(":") for line in head[1:] if line)]
        found = {k.lower(): v for k, v in pairs}

        async def disconnect() -> None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

        return Stream(status, pairs, _body(reader, found), disconnect)


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while chunk := await reader.read(65536):
            yield chunk


class Http2Carrier:
    """HTTP/2 over TLS, a connection per request: the frames are written by h2, a library, with none of its own checks."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self.port = port
        self.tls = tls

    async def open(self, method: str, target: str, headers: Pairs, body: bytes | Sequence[bytes]) -> Stream:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
            talk = Http2Talk(reader, writer)
            try:
                assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
                return await talk.open(method, target, headers, body, f"127.0.0.1:{self.port}")
            except BaseException:
                writer.transport.abort()
                raise


class Http2Talk:
    """One stream on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        config = H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)
        self.h2 = H2Connection(config)
        self.reader = reader
        self.writer = writer
        self.events: list[Any] = []

    async def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    async def open(
        self, method: str, target: str, headers: Pairs, body: bytes | Sequence[bytes], authority: str
    ) -> Stream:
        fields = [(k.lower(), v) for k, v in headers]
        authority = next((v for k, v in fields if k == "host"), authority)
        about = [(":method", method), (":scheme", "https"), (":path", target), (":authority", authority)]
        parts = [body] if isinstance(body, bytes) else body
        self.h2.initiate_connection()
        self.h2.send_headers(1, about + [field for field in fields if field[0] != "host"])
        await self._send(b"".join(parts))
        while not isinstance(event := await self.event(), ResponseReceived):
            assert event is not None, "the server ended the connection"
        pairs = [(k.decode(), v.decode("latin-1")) for k, v in event.headers]
        return Stream(int(dict(pairs)[":status"]), pairs[1:], self._body(), self.close)

    async def _send(self, data: bytes) -> None:
        """The whole body, as windows allow, or until the server has had enough of it."""
        while data:
            size = min(len(data), self.h2.local_flow_control_window(1), self.h2.max_outbound_frame_size)
            if size:
                self.h2.send_data(1, data[:size])
                data = data[size:]
                continue
            await self.flush()
            event = await self.event()
            if event is None or isinstance(event, (ResponseReceived, StreamReset)):
                self.events.insert(0, event)
                return
        with contextlib.suppress(H2Error):
            self.h2.end_stream(1)
        await self.flush()

    async def event(self) -> Any:
        """What happens next; None at the end of the connection."""
        while not self.events:
            data = await self.reader.read(65536)
            if not data:
                return None
            self.events += self.h2.receive_data(data)
            await self.flush()
        return self.events.pop(0)

    async def _body(self) -> AsyncIterator[bytes]:
        while (event := await self.event()) is not None:
            if isinstance(event, DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, 1)
                yield event.data or b""
            elif isinstance(event, StreamEnded):
                await self.close()
                return
            else:
                assert not isinstance(event, StreamReset), event
        raise AssertionError("the stream did not end properly")

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class KeepAliveCarrier:
    """One connection for many requests that are answered at once, for the tests that send thousands."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> KeepAliveCarrier:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def open(self, method: str, target: str, headers: Pairs, body: bytes) -> Stream:
        lines = [f"{method} {target} HTTP/1.1", f"Content-Length: {len(body)}", *(f"{k}: {v}" for k, v in headers)]
        if not any(k.lower() == "host" for k, _ in headers):
            lines.append(f"Host: 127.0.0.1:{self.port}")
        async with asyncio.timeout(PATIENCE):
            self._writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = [(k.strip(), v.strip()) for k, _, v in (line.partition(":") for line in head[1:] if line)]
            length = int({k.lower(): v for k, v in pairs}["content-length"])
            data = await self._reader.readexactly(length)

        async def whole() -> AsyncIterator[bytes]:
            yield data

        async def nothing() -> None: ...

        return Stream(int(head[0].split(" ")[1]), pairs, whole(), nothing)


class AsgiCarrier:
    """A strict ASGI server: what the specification forbids fails the test.

    `lag` is how many turns of the loop each `send` takes, as under back-pressure or behind middleware.
    """

    def __init__(self, app: Any, *, root_path: str = "", lag: int = 0) -> None:
        self.app = app
        self.root_path = root_path
        self.lag = lag
        self.faults: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def finished(self) -> None:
        """Wait for what a stopped app still has at work; leaving it behind is a fault."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=PATIENCE)
        for task in tuple(self._tasks):
            self.faults.append("a request is still being served after the app was closed")
            task.cancel()

    async def open(self, method: str, target: str, headers: Pairs, body: bytes | Sequence[bytes]) -> Stream:
        path, _, query = target.partition("?")
        encoded = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers]
        names = {k for k, _ in encoded}
        if b"host" not in names:
            encoded.append((b"host", b"127.0.0.1:80"))
        if isinstance(body, bytes) and (body or method == "POST") and b"content-length" not in names:
            encoded.append((b"content-length", str(len(body)).encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": self.root_path,
            "headers": encoded,
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 80),
        }
        parts = [body] if isinstance(body, bytes) else [*body, b""]
        incoming = [{"type": "http.request", "body": p, "more_body": p is not parts[-1]} for p in parts]
        gone = asyncio.Event()
        sent: asyncio.Queue[Any] = asyncio.Queue()
        state = {"started": False, "complete": False, "sending": 0}

        async def receive() -> Any:
            if incoming:
                return incoming.pop(0)
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            kind = message["type"]
            if state["complete"]:
                self.faults.append(f"{kind} after the response was complete")
                return
            if (kind == "http.response.start") == state["started"]:
                self.faults.append(f"{kind} out of order")
            state["started"] = True
            if kind == "http.response.body" and not message.get("more_body", False):
                state["complete"] = True
            for _ in range(self.lag):
                await asyncio.sleep(0)
            if gone.is_set():
                raise OSError("the client has gone")
            sent.put_nowait(message)

        async def run() -> None:
            try:
                await self.app(scope, receive, send)
                if not state["complete"] and not gone.is_set():
                    self.faults.append("the app returned without completing the response")
            finally:
                sent.put_nowait(None)

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(PATIENCE):
                start = await sent.get()
        except BaseException:
            gone.set()
            raise
        if start is None:
            await task
            raise AssertionError("the app sent no response")
        pairs = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in start["headers"]]

        async def chunks() -> AsyncIterator[bytes]:
            while (message := await sent.get()) is not None:
                if message["body"]:
                    yield message["body"]
                if not message.get("more_body", False):
                    return

        async def disconnect() -> None:
            gone.set()
            await asyncio.wait({task}, timeout=0.001 if not state["complete"] else PATIENCE)
            if task.done():
                task.result()

        return Stream(start["status"], pairs, chunks(), disconnect)


# --- the wire --------------------------------------------------------------------------------------------------------


class Wire:
    """One endpoint, spoken to in JSON-RPC."""

    def __init__(self, carrier: Any, path: str, engine: Any) -> None:
        self.carrier = carrier
        self.path = path
        self.engine = engine
        self.streams: list[Stream] = []

    async def open(
        self,
        method: str,
        headers: Sequence[tuple[str, str]] | Mapping[str, str] = (),
        body: bytes | Sequence[bytes] = b"",
        path: str | None = None,
    ) -> Stream:
        pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        stream = await self.carrier.open(method, self.path if path is None else path, pairs, body)
        self.streams.append(stream)
        return stream

    async def send(
        self,
        method: str,
        headers: Sequence[tuple[str, str]] | Mapping[str, str] = (),
        body: bytes | Sequence[bytes] = b"",
        path: str | None = None,
    ) -> Reply:
        stream = await self.open(method, headers, body, path)
        try:
            return Reply(stream.status, stream.pairs, await stream.read())
        finally:
            self.streams.remove(stream)
            await stream.close()

    async def post(self, body: bytes | Any, headers: Mapping[str, str | None] | None = None) -> Reply:
        """POST these bytes (or this message) as a client of any era would."""
        pairs = replace([("Content-Type", "application/json"), ("Accept", BOTH)], headers or {})
        return await self.send("POST", pairs, body if isinstance(body, bytes) else encode(body))

    # modern

    @staticmethod
    def modern_parts(
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: Any = 1,
        caps: Any = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> tuple[Pairs, bytes]:
        whole = {**(params or {}), "_meta": meta(caps=caps, **(extra or {}))}
        pairs: Pairs = [
            ("Content-Type", "application/json"),
            ("Accept", BOTH),
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", method),
        ]
        named = whole.get(NAMED.get(method, ""))
        if isinstance(named, str):
            pairs.append(("Mcp-Name", named))
        return replace(pairs, headers or {}), encode(request(method, whole, id))

    async def modern(self, method: str, params: Mapping[str, Any] | None = None, **rest: Any) -> Reply:
        return await self.send("POST", *self.modern_parts(method, params, **rest))

    async def open_modern(self, method: str, params: Mapping[str, Any] | None = None, **rest: Any) -> Stream:
        return await self.open("POST", *self.modern_parts(method, params, **rest))

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        more: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> Reply:
        return await self.modern("tools/call", {"name": name, "arguments": arguments or {}, **(more or {})}, **rest)

    async def open_call(self, name: str, arguments: Mapping[str, Any] | None = None, **rest: Any) -> Stream:
        return await self.open_modern("tools/call", {"name": name, "arguments": arguments or {}}, **rest)

    # legacy

    async def initialize(
        self,
        version: str = LEGACY[0],
        *,
        caps: Any = None,
        headers: Mapping[str, str | None] | None = None,
        ready: bool = True,
    ) -> Session:
        reply = await self.post(initialize(version, caps), headers)
        assert reply.status == 200, reply
        session = Session(self, reply, headers)
        if ready:
            assert (await session.notify("notifications/initialized")).status == 202
        return session


def initialize(version: str = LEGACY[0], caps: Any = None, id: Any = "init", **changes: Any) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": caps or {}, "clientInfo": {"name": "wire", "version": "1"}}
    return request("initialize", {**params, **changes}, id)


class Session:
    """A legacy client after its handshake."""

    def __init__(self, wire: Wire, reply: Reply, headers: Mapping[str, str | None] | None = None) -> None:
        self.wire = wire
        self.reply = reply
        self.hello = reply.result
        self.version: str = self.hello["protocolVersion"]
        self.id = reply.headers["mcp-session-id"]
        self._extra = dict(headers or {})
        self._ids = itertools.count(1)

    def headers(self, changes: Mapping[str, str | None] | None = None) -> Pairs:
        pairs: Pairs = [
            ("Content-Type", "application/json"),
            ("Accept", BOTH),
            ("Mcp-Session-Id", self.id),
            ("MCP-Protocol-Version", self.version),
        ]
        return replace(replace(pairs, self._extra), changes or {})

    async def post(self, message: Any, headers: Mapping[str, str | None] | None = None) -> Reply:
        return await self.wire.send(
            "POST", self.headers(headers), message if isinstance(message, bytes) else encode(message)
        )

    async def ask(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = None, headers: Any = None
    ) -> Reply:
        return await self.post(request(method, params, next(self._ids) if id is None else id), headers)

    async def open(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = None, headers: Any = None
    ) -> Stream:
        body = encode(request(method, params, next(self._ids) if id is None else id))
        return await self.wire.open("POST", self.headers(headers), body)

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, id: Any = None, progress: Any = None
    ) -> Reply:
        return await self.ask("tools/call", _call(name, arguments, progress), id=id)

    async def open_call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, id: Any = None, progress: Any = None
    ) -> Stream:
        return await self.open("tools/call", _call(name, arguments, progress), id=id)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> Reply:
        return await self.post(notification(method, params))

    async def answer(self, id: Any, result: Any) -> Reply:
        return await self.post({"jsonrpc": "2.0", "id": id, "result": result})

    async def cancel(self, id: Any) -> Reply:
        return await self.notify("notifications/cancelled", {"requestId": id, "reason": "no longer wanted"})

    async def get(self, last: str | None = None, headers: Mapping[str, str | None] | None = None) -> Stream:
        changes: dict[str, str | None] = {
            "Content-Type": None,
            "Accept": "text/event-stream",
            "Last-Event-ID": last,
            **(headers or {}),
        }
        return await self.wire.open("GET", self.headers(changes))

    async def delete(self) -> Reply:
        return await self.wire.send("DELETE", self.headers({"Content-Type": None, "Accept": None}))


def _call(name: str, arguments: Mapping[str, Any] | None, progress: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
    return params if progress is None else {**params, "_meta": {"progressToken": progress}}


@contextlib.asynccontextmanager
async def serve(
    binding: str, server: Server, *, path: str = "/mcp", lag: int = 0, **options: Any
) -> AsyncIterator[Wire]:
    """The server behind one of the two bindings; both as on a loopback address."""
    if binding == "http":
        async with HttpServer(server, port=0, path=path, **options) as http:
            wire = Wire(HttpCarrier(http.port), http.engine.path, http.engine)
            async with _tidied(wire):
                yield wire
        return
    if binding in ("https", "http2"):
        theirs, ours = _contexts(binding)
        async with HttpServer(server, port=0, path=path, tls=theirs, **options) as http:
            carrier = Http2Carrier(http.port, ours) if binding == "http2" else HttpCarrier(http.port, tls=ours)
            wire = Wire(carrier, http.engine.path, http.engine)
            async with _tidied(wire):
                yield wire
        return
    options.setdefault("host", "127.0.0.1")
    app = server.asgi(path, **options)
    carrier = AsgiCarrier(app, lag=lag)
    wire = Wire(carrier, app.engine.path, app.engine)
    try:
        async with _tidied(wire):
            yield wire
    finally:
        await app.aclose()
        await carrier.finished()
    assert not carrier.faults, carrier.faults


@functools.cache
def _contexts(binding: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's side of TLS, and the client's."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        server.load_cert_chain(*authority.issue("127.0.0.1"))
        client = authority.trust()
    client.set_alpn_protocols(["h2" if binding == "http2" else "http/1.1"])
    return server, client


@contextlib.asynccontextmanager
async def _tidied(wire: Wire) -> AsyncIterator[None]:
    """A test that failed should say why, not what it left open."""
    try:
        yield
    except BaseException:
        for stream in wire.streams:
            with contextlib.suppress(Exception):
                await stream.close()
        raise


# --- channels --------------------------------------------------------------------------------------------------------


class Channel:
    """The client's end of a two-way channel in memory."""

    def __init__(self, server: Server, *, legacy: bool = True) -> None:
        self._channel = MemoryChannel(server, legacy=LegacyDuplex if legacy else None)
        self._ids = itertools.count(1)

    async def send(self, message: Any) -> None:
        await self._channel.send(message if isinstance(message, bytes) else encode(message))

    async def receive(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            data = await self._channel.receive()
        return None if data is None else json.loads(data)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = None) -> Any:
        """A legacy request and the next message."""
        await self.send(request(method, params, next(self._ids) if id is None else id))
        return await self.receive()

    async def modern(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = None, caps: Any = None, **extra: Any
    ) -> Any:
        whole = {**(params or {}), "_meta": meta(caps=caps, **extra)}
        await self.send(request(method, whole, next(self._ids) if id is None else id))
        return await self.receive()

    async def initialize(self, version: str = LEGACY[0], caps: Any = None) -> Any:
        await self.send(initialize(version, caps))
        reply = await self.receive()
        await self.send(notification("notifications/initialized"))
        return reply

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._channel.close()


def by_name(items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {i["name"]: i for i in items}
