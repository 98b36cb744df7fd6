"""Messages cut at every byte, split at every byte, sent byte by byte; readers that leave at every stage of a stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from tests.support.faults import (
    Child,
    Connection,
    assert_serves,
    call,
    encode,
    http,
    initialize,
    legacy_get,
    legacy_http,
    modern_headers,
    modern_http,
    open_session,
    turns,
)
from tests.support.inside import inside
from tests.support.until import PATIENCE, soon, until

from trimaran import Context, Server
from trimaran.legacy.duplex import LegacyDuplex
from trimaran.serve import HttpServer
from trimaran.transports.stdio import StdioPipes, serve_stdio


def make() -> Server:
    server = Server("cut", version="1")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def ticks(n: int, ctx: Context) -> str:
        for i in range(n):
            await ctx.progress(i + 1, message=f"tick {i + 1}")
        return "done"

    @server.tool
    async def endless(n: int, ctx: Context) -> str:
        for i in range(n):
            await ctx.progress(i + 1)
        await asyncio.Event().wait()
        return "never"

    return server


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[HttpServer]:
    async with HttpServer(make(), port=0) as server:
        yield server


def chunked(sizes: Iterable[int]) -> bytes:
    message = call("add", {"a": 1, "b": 2})
    head = http(b"", {**modern_headers(message), "Transfer-Encoding": "chunked"}, framed=False)
    body, parts = encode(message), []
    for size in sizes:
        piece, body = body[:size], body[size:]
        parts.append(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece))
    return head + b"".join(parts) + b"%x\r\n%b\r\n0\r\nTrailer: x\r\n\r\n" % (len(body), body)


FRAMES = {
    "modern": modern_http(call("add", {"a": 1, "b": 2})),
    "initialize": legacy_http(initialize()),
    "chunked": chunked([1, 50]),
    "empty_line_first": b"\r\n" + modern_http(call("add", {"a": 1, "b": 2})),
}


def connections(server: HttpServer) -> int:
    return len(server._carrier.connections)


def assert_answered(name: str, reply: Any) -> None:
    assert reply.status == 200, (name, reply)
    result = reply.json["result"]
    assert result["protocolVersion"] if name == "initialize" else result["structuredContent"] == 3, reply


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("way", ["close", "reset", "half-close"])
async def test_a_request_cut_at_any_byte_harms_nobody(name: str, way: str) -> None:
    """A request that never came whole creates nothing (P8)."""
    frame = FRAMES[name]
    # Up to its last byte a frame is incomplete, except that an ignored empty line needs nothing after it.
    async with serving() as server:
        for start in range(0, len(frame), 40):

            async def cut(at: int) -> None:
                connection = await Connection.open(server.port)
                await connection.send(frame[:at])
                await turns()
                if way == "reset":
                    connection.vanish()
                elif way == "half-close":
                    connection.writer.write_eof()
                    said = await connection.rest()
                    assert said == b"" or said.startswith(b"HTTP/1.1 4"), said
                await connection.close()

            await asyncio.gather(*(cut(at) for at in range(start, min(start + 40, len(frame)))))
        await until(lambda: connections(server) == 0, "the server has let go of the connections")
        assert not len(inside(server.server).sessions)
        assert not len(server.engine.running_calls)
        await assert_serves(server.port)


@pytest.mark.parametrize("name", FRAMES)
async def test_a_request_split_at_any_byte_is_answered(name: str) -> None:
    frame = FRAMES[name]
    async with serving() as server:
        for start in range(0, len(frame), 40):

            async def split(at: int) -> None:
                async with await Connection.open(server.port) as connection:
                    await connection.send(frame[:at])
                    await turns()
                    assert_answered(
                        f"{name} at {at}" if name != "initialize" else name, await connection.ask(frame[at:])
                    )

            await asyncio.gather(*(split(at) for at in range(start, min(start + 40, len(frame)))))
        await assert_serves(server.port)


@pytest.mark.parametrize("name", FRAMES)
async def test_a_request_sent_whole_is_answered(name: str) -> None:
    async with serving() as server, await Connection.open(server.port) as connection:
        assert_answered(name, await connection.ask(FRAMES[name]))


@pytest.mark.parametrize("name", FRAMES)
async def test_a_request_sent_byte_by_byte_is_answered(name: str) -> None:
    async with serving() as server, await Connection.open(server.port) as connection:
        for byte in FRAMES[name]:
            await connection.send(bytes([byte]))
            await turns(2)
        assert_answered(name, await connection.reply())
        # The connection is still good for another.
        assert_answered("modern", await connection.ask(FRAMES["modern"]))


async def test_pipelined_requests_split_anywhere_are_answered_in_order() -> None:
    frames = b"".join(modern_http(call("add", {"a": i, "b": 0}, i)) for i in range(20)) + FRAMES["chunked"]
    async with serving() as server:
        for size in (1, 7, 100, 1000, len(frames)):
            async with await Connection.open(server.port) as connection:
                for start in range(0, len(frames), size):
                    await connection.send(frames[start : start + size])
                    await turns(1)
                for i in range(20):
                    reply = await connection.reply()
                    assert (reply.json["id"], reply.json["result"]["structuredContent"]) == (i, i)
                assert_answered("chunked", await connection.reply())


# --- responses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["close", "reset"])
async def test_a_reader_may_leave_at_any_byte_of_a_stream(way: str) -> None:
    request = modern_http(call("ticks", {"n": 5}, progressToken="t"))
    async with serving() as server:
        async with await Connection.open(server.port) as connection:
            await connection.send(request)
            status, headers = await connection.head()
            reply = await connection.body(status, headers)
            assert headers["content-type"] == "text/event-stream"
            assert len(reply.messages) == 6
        total = len(reply.body) + 250

        async def leave(after: int) -> None:
            connection = await Connection.open(server.port)
            await connection.send(request)
            if after:
                with contextlib.suppress(asyncio.IncompleteReadError):
                    await soon(connection.reader.readexactly(min(after, len(reply.body))))
            if way == "reset":
                connection.vanish()
            await connection.close()

        for start in range(0, total, 50):
            await asyncio.gather(*(leave(at) for at in range(start, start + 50)))
        await until(lambda: not len(server.engine.running_calls) and not connections(server), "everything is let go")
        await assert_serves(server.port)


@pytest.mark.parametrize("way", ["close", "reset"])
@pytest.mark.parametrize("stage", range(5))
async def test_leaving_a_stream_that_goes_on_ends_its_call(way: str, stage: int) -> None:
    """Spec, modern: closing the response stream is cancellation, at whatever stage."""
    async with serving() as server:
        connection = await Connection.open(server.port)
        await connection.send(modern_http(call("endless", {"n": stage}, progressToken="t")))
        await until(lambda: len(server.engine.running_calls), "the call is at work")
        if stage:
            await connection.head()
            for _ in range(stage):
                assert b"notifications/progress" in await connection.chunk()
        if way == "reset":
            connection.vanish()
        await connection.close()
        await until(lambda: not len(server.engine.running_calls), "the call has ended")
        await assert_serves(server.port)


# --- stdio -----------------------------------------------------------------------------------------------------------


async def over_pipes(pieces: list[bytes], *, legacy: bool = True) -> list[Any]:
    """What a stdio server says to these writes, with its input closed after them."""
    to_server, from_client = os.pipe()
    to_client, from_server = os.pipe()
    pipes = StdioPipes(to_server, from_server)
    task = asyncio.ensure_future(serve_stdio(make(), pipes=pipes, legacy=LegacyDuplex, watch_parent=False))
    try:
        for piece in pieces:
            os.write(from_client, piece)
            await turns(2)
        os.close(from_client)
        async with asyncio.timeout(10):
            await task
    finally:
        os.close(from_server)
        os.close(to_server)
    said = b""
    while chunk := os.read(to_client, 1 << 16):
        said += chunk
    os.close(to_client)
    return [json.loads(line) for line in said.splitlines()]


LINES = {
    "modern": encode(call("add", {"a": 1, "b": 2})) + b"\r\n",
    "initialize": encode(initialize()) + b"\n",
}


@pytest.mark.parametrize("name", LINES)
async def test_a_line_cut_at_any_byte_is_answered_or_refused(name: str) -> None:
    """Ours: what is there at EOF counts as a line."""
    line = LINES[name]
    whole = len(line.rstrip())
    for at in range(len(line)):
        said = await over_pipes([line[:at]])
        if at == 0:
            assert said == []
        elif at < whole:
            assert [m["error"]["code"] for m in said] == [-32700], (at, said)
        else:
            assert "result" in said[0], (at, said)


@pytest.mark.parametrize("name", LINES)
async def test_a_line_split_at_any_byte_is_answered(name: str) -> None:
    line = LINES[name]
    for at in range(1, len(line)):
        said = await over_pipes([line[:at], line[at:]])
        assert len(said) == 1, (at, said)
        assert "result" in said[0], (at, said)


@pytest.mark.parametrize("name", LINES)
async def test_a_line_sent_byte_by_byte_is_answered(name: str) -> None:
    said = await over_pipes([bytes([b]) for b in LINES[name]])
    assert len(said) == 1
    assert "result" in said[0]


@pytest.mark.slow
@pytest.mark.deadline(60)
def test_a_child_reads_lines_split_at_any_byte() -> None:
    with Child("stdio") as child:
        for number, at in enumerate(range(1, 200)):
            line = encode(call("add", {"a": number, "b": 1}, number)) + b"\n"
            child.write(line[:at])
            child.consumed()
            child.write(line[at:])
            assert child.answer(number)["result"]["structuredContent"] == number + 1
        child.end_input()
        assert child.wait() == 0


# --- ASGI ------------------------------------------------------------------------------------------------------------


class Asgi:
    """One request to the app, by a server whose client leaves when told."""

    def __init__(self, message: Any, pieces: list[bytes], *, send_fails_at: int = -1) -> None:
        headers = [(k.lower().encode(), v.encode()) for k, v in modern_headers(message).items()]
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": [*headers, (b"host", b"127.0.0.1")],
        }
        self.pieces = pieces
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self.fails_at = send_fails_at

    async def receive(self) -> Any:
        await asyncio.sleep(0)
        if self.pieces:
            piece = self.pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self.pieces)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await asyncio.sleep(0)
        if len(self.sent) == self.fails_at:
            self.gone.set()
        if self.gone.is_set():
            raise OSError("the client has gone")
        self.sent.append(message)


class Broken(Asgi):
    """Its body never comes whole."""

    async def receive(self) -> Any:
        await asyncio.sleep(0)
        if self.pieces:
            return {"type": "http.request", "body": self.pieces.pop(0), "more_body": True}
        return {"type": "http.disconnect"}


async def test_an_asgi_body_split_at_any_byte_is_answered() -> None:
    app = make().asgi(host="127.0.0.1")
    message = call("add", {"a": 1, "b": 2})
    body = encode(message)
    for at in range(1, len(body)):
        request = Asgi(message, [body[:at], body[at:]])
        await soon(app(request.scope, request.receive, request.send))
        assert request.sent[0]["status"] == 200
        assert json.loads(request.sent[1]["body"])["result"]["structuredContent"] == 3
    await app.aclose()


async def test_an_asgi_client_that_leaves_within_its_body_is_served_nothing() -> None:
    app = make().asgi(host="127.0.0.1")
    message = call("add", {"a": 1, "b": 2})
    body = encode(message)
    for at in range(len(body) + 1):
        request = Broken(message, [body[:at]] if at else [])
        await soon(app(request.scope, request.receive, request.send))
        assert request.sent == []
    await app.aclose()


@pytest.mark.parametrize("stage", range(9))
async def test_an_asgi_send_may_fail_at_any_stage(stage: int) -> None:
    """Some servers raise once the client has gone: that is not an error of ours, and the call ends."""
    app = make().asgi(host="127.0.0.1")
    for name in ("ticks", "endless"):
        message = call(name, {"n": 5}, progressToken="t")
        request = Asgi(message, [encode(message)], send_fails_at=stage)
        task = asyncio.ensure_future(app(request.scope, request.receive, request.send))
        if name == "endless":
            await until(lambda r=request: len(r.sent) == 6 or r.gone.is_set(), "the stream is under way")
            request.gone.set()
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(OSError):  # what the server raised may come back to it
                await task
        assert not len(app.engine.running_calls)
    await app.aclose()


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000, "-1", "x", ""])
async def test_an_asgi_content_length_of_any_kind_is_no_trouble(length: str) -> None:
    """The server above has judged it already, or not: the body counts."""
    app = make().asgi(host="127.0.0.1")
    message = call("add", {"a": 1, "b": 2})
    request = Asgi(message, [encode(message)])
    request.scope["headers"].append((b"content-length", length.encode("latin-1")))
    await soon(app(request.scope, request.receive, request.send))
    assert request.sent[0]["status"] in (200, 400, 413)
    await app.aclose()


# --- heads and bodies that are wrong -----------------------------------------------------------------------------------


async def test_a_body_too_large_is_refused_with_413_though_the_client_goes_on_sending() -> None:
    """P47: the client must be able to read why, not find its connection reset."""
    message = call("add", {"a": 1, "b": 2})
    head = http(b"", {**modern_headers(message), "Content-Length": str(64 * 1024 * 1024)}, framed=False)
    loop = asyncio.get_running_loop()
    async with serving() as server:
        for _ in range(5):
            with socket.socket() as raw:
                raw.setblocking(False)
                async with asyncio.timeout(PATIENCE):
                    await loop.sock_connect(raw, ("127.0.0.1", server.port))
                    await loop.sock_sendall(raw, head)
                    with contextlib.suppress(ConnectionError):
                        for _ in range(64):
                            await loop.sock_sendall(raw, b"x" * 65536)
                            await turns(1)
                    said = await loop.sock_recv(raw, 65536)
                assert said.startswith(b"HTTP/1.1 413"), said


async def test_a_head_that_comes_a_byte_at_a_time_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole request has its time: a client that keeps the head coming slowly does not keep the connection."""
    from trimaran.transports import http1_server

    monkeypatch.setattr(http1_server, "READ_SECONDS", 1.2)  # time is coarse there, to a second
    monkeypatch.setattr(http1_server, "_SWEEP_SECONDS", 0.05)
    head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
    async with (
        serving() as server,
        await Connection.open(server.port) as connection,
        await Connection.open(server.port) as silent,
    ):
        await silent.send(head)
        await connection.send(head)
        closed = asyncio.ensure_future(connection.rest())
        for _ in range(100):
            connection.writer.write(b"a")
            await asyncio.wait({closed}, timeout=0.05)
            if closed.done():
                break
        assert closed.done(), "still open after four times the time for a whole request"
        said = await closed
        # A byte that crosses the answer resets the connection, and the answer may go with it.
        assert not said or said.startswith(b"HTTP/1.1 408")
        assert (await silent.rest()).startswith(b"HTTP/1.1 408"), "who waits for it is told why"


@pytest.mark.parametrize("last", ["g:\xb2", "r1:\xb2", ":", "g:", "g:-1", "g:99999999999", "x:1", "\xff", "g:1:2"])
async def test_any_last_event_id_is_no_trouble(last: str) -> None:
    async with serving() as server:
        session = await open_session(server.port)
        async with await Connection.open(server.port) as connection:
            await connection.send(legacy_get(session, last))
            status, _ = await connection.head()
            assert status in (200, 400)
