"""Peers that misbehave, and clients to meet them: what the client's fault tests share.

`EvilHttp` speaks just enough HTTP/1.1 by hand to break it exactly; it plays the acts of `evil.py`, and whatever a test
puts into `overrides`. `Dock` opens clients against it, or against `evil.py` as a child process, with one interface.
Every wait is bounded by `PATIENCE`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.faults import is_alive
from tests.support.until import PATIENCE, soon, until

from trimaran import Client, connect, errors

from . import evil
from .evil import encode

__all__ = [
    "ERAS",
    "WIRES",
    "Dock",
    "EvilHttp",
    "Exchange",
    "Journal",
    "Peak",
    "children_of_us",
    "evil_command",
    "failure_of",
    "is_alive",
    "sockets",
]

EVIL = Path(evil.__file__)
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
WIRES = pytest.mark.parametrize("wire", ["json", "sse", "stdio"])

T = TypeVar("T")


async def failure_of(coroutine: Coroutine[Any, Any, Any], seconds: float = PATIENCE) -> errors.Error:
    """What it raises, which must be one of our errors, and soon."""
    try:
        result = await soon(coroutine, seconds)
    except errors.Error as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


# --- HTTP ------------------------------------------------------------------------------------------------------------


class Gone(Exception):
    """The client closed the connection that an exchange runs on."""


class Exchange:
    """One HTTP request, and the way to answer it well or badly."""

    def __init__(
        self,
        peer: EvilHttp,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        verb: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> None:
        self.peer = peer
        self.reader = reader
        self.writer = writer
        self.verb = verb
        self.path = path
        self.headers = headers
        self.body = body
        self.message: dict[str, Any] = json.loads(body) if body else {}
        self.keep = True
        """Is the connection fit for another request?"""
        self.aborted = False
        self.at = time.monotonic()

    @property
    def method(self) -> str:
        return self.message.get("method", "")

    @property
    def tool(self) -> str:
        return (self.message.get("params") or {}).get("name", "") if self.method == "tools/call" else ""

    @property
    def id(self) -> Any:
        return self.message.get("id")

    async def send(self, data: bytes) -> None:
        if self.writer.transport.is_closing():
            raise Gone
        self.writer.write(data)
        try:
            await self.writer.drain()
        except ConnectionError:
            raise Gone from None

    async def head(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{k}: {v}" for k, v in (headers or {}).items())]
        await self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")

    async def reply(
        self, body: bytes = b"", status: int = 200, content_type: str = "application/json", **headers: str
    ) -> None:
        """A whole response in one piece."""
        more = {k.replace("_", "-"): v for k, v in headers.items()}
        framing = {"Content-Length": str(len(body)), **({"Content-Type": content_type} if body else {})}
        await self.head(status, {**framing, **more})
        if body:
            await self.send(body)

    async def stream(self, content_type: str = "text/event-stream", **headers: str) -> None:
        """Begin a chunked response."""
        more = {k.replace("_", "-"): v for k, v in headers.items()}
        await self.head(200, {"Content-Type": content_type, "Transfer-Encoding": "chunked", **more})

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, data: bytes, id: str | None = None, kind: str | None = None) -> None:
        first = (b"" if kind is None else b"event: %b\n" % kind.encode()) + (
            b"" if id is None else b"id: %b\n" % id.encode()
        )
        await self.chunk(first + b"data: " + data + b"\n\n")

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    def cut(self) -> None:
        """End the connection where it is."""
        self.keep = False
        self.writer.close()

    def reset(self) -> None:
        self.keep = False
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def unless_gone(self, future: asyncio.Future[T]) -> T:
        """Wait for this, or for the client to hang up."""
        end = asyncio.ensure_future(self.reader.read(1))
        try:
            await asyncio.wait((future, end), return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            self.aborted = True
            self.writer.close()
            raise Gone
        finally:
            future.cancel()
            end.cancel()
            await asyncio.gather(end, return_exceptions=True)

    async def silence(self) -> None:
        """Nothing, until the client goes."""
        self.keep = False
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.aborted = True
        self.writer.close()


Override = Callable[[Exchange], Awaitable[None]]


class EvilHttp:
    """An HTTP server on loopback, of one era, that answers by JSON or by SSE, and badly where asked."""

    def __init__(
        self, era: str = "modern", wire: str = "json", *, unknown_session: int = 404, lists: str = "plain"
    ) -> None:
        self.era = era
        self.wire = wire
        self.lists = lists
        self.unknown_session = unknown_session
        self.seen: list[Exchange] = []
        self.overrides: dict[str, Override] = {}
        """By tool name, JSON-RPC method, or HTTP verb; the first that fits wins."""
        self.memory: dict[str, Any] = {}
        self.sessions: set[str] = set()
        self.connections = 0
        self._asked = 0
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._release = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self, port: int = 0) -> EvilHttp:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port or self.port, limit=64 * 1024 * 1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """As if killed: every connection is reset, the port is closed, every session forgotten."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self.sessions.clear()
        for writer in list(self._writers):
            with contextlib.suppress(OSError):
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def __aenter__(self) -> EvilHttp:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # what was seen

    def messages(self, method: str | None = None) -> list[dict[str, Any]]:
        return [x.message for x in self.seen if x.message and method in (None, x.method)]

    def calls(self, tool: str) -> int:
        return sum(x.tool == tool for x in self.seen)

    # serving

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while (exchange := await self._read(reader, writer)) is not None:
                self.seen.append(exchange)
                with contextlib.suppress(Gone):
                    await self._serve(exchange)
                if not exchange.keep or writer.transport.is_closing():
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass  # cancelled: by `stop`, which waits for this task
        finally:
            self._running.discard(task)
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange | None:
        try:
            raw = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        verb, path, _ = first.split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        try:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        except asyncio.IncompleteReadError:
            return None
        return Exchange(self, reader, writer, verb, path, headers, body)

    async def _serve(self, x: Exchange) -> None:
        for key in (x.tool, x.method, x.verb):
            if key and key in self.overrides:
                await self.overrides[key](x)
                return
        await self.honest(x)

    async def honest(self, x: Exchange) -> None:
        """What a server of this era does, up to the acts."""
        if x.verb == "DELETE":
            self.sessions.discard(x.headers.get("mcp-session-id", ""))
            await x.reply(status=200)
        elif x.verb == "GET":
            await x.reply(status=405, Allow="POST")
        elif not await self._admit(x):
            return
        elif x.method == "tools/call":
            await self._play(x)
        elif x.id is not None and not x.method:
            waiting = self._waiting.pop(str(x.id), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(x.message)
            await x.reply(status=202)
        else:
            reply = evil.answer(self.era, x.message, self.lists, self.memory)
            if reply is None:
                await x.reply(status=202)
            elif x.method == "initialize" and self.era == "legacy":
                session = f"session-{len(self.seen)}-{id(x):x}"
                self.sessions.add(session)
                await x.reply(reply, Mcp_Session_Id=session)
            elif b'"code":-32601' in reply:
                await x.reply(reply, 404)
            else:
                await x.reply(reply)

    async def _admit(self, x: Exchange) -> bool:
        """Is this request of our era, and of a session we know? Refused as real servers do."""
        version = x.headers.get("mcp-protocol-version", "")
        if self.era == "modern":
            if version == evil.MODERN:
                return True
            data = {"supported": [evil.MODERN], "requested": version or "2025-03-26"}
            await x.reply(evil.failure(x.id, -32022, "Unsupported protocol version", data), 400)
            return False
        if x.method == "initialize":
            return True
        if version == evil.MODERN:
            await x.reply(b"Bad Request: Unsupported protocol version", 400, "text/plain")
            return False
        if x.headers.get("mcp-session-id") not in self.sessions:
            await x.reply(b"Bad Request: No valid session ID provided", self.unknown_session, "text/plain")
            return False
        return True

    def _times(self, name: str) -> int:
        return self.calls(name)

    async def _play(self, x: Exchange) -> None:
        if x.tool not in evil.ACTS:
            await x.reply(evil.failure(x.id, -32602, f"unknown tool: {x.tool}"), 400 if self.era == "modern" else 200)
            return
        play = evil.ACTS[x.tool](evil.Call(self.era, x.message, self.memory, self._times))
        await Stage(x, self.wire).run(play)

    async def ask(self, stage: Stage, step: evil.Ask) -> Any:
        self._asked += 1
        key = f"q{self._asked}"
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        await stage.message(encode({"jsonrpc": "2.0", "id": key, "method": step.method, "params": step.params}))
        return await stage.x.unless_gone(answer)

    async def hold(self, x: Exchange) -> None:
        await x.unless_gone(asyncio.ensure_future(self._release.wait()))

    def release(self) -> None:
        self._release.set()
        self._release = asyncio.Event()


class Stage:
    """Plays an act over one HTTP response."""

    def __init__(self, x: Exchange, wire: str) -> None:
        self.x = x
        self.wire = wire
        self.begun = False
        self.partial = False

    async def run(self, play: evil.Play) -> None:
        sent: Any = None
        while True:
            try:
                step = play.send(sent)
            except StopIteration:
                break
            sent = None
            if isinstance(step, bytes):
                await self.message(step)
                if self.wire == "json":
                    return
            elif isinstance(step, evil.Part):
                await self.part(step.data)
            elif isinstance(step, evil.End):
                if self.wire == "sse":
                    await self.x.chunk(b"\n\n")
            elif isinstance(step, evil.Wait):
                await asyncio.sleep(step.seconds)
            elif isinstance(step, evil.Hold):
                await self.x.peer.hold(self.x)
            elif isinstance(step, evil.Release):
                self.x.peer.release()
            elif isinstance(step, evil.Ask):
                sent = await self.x.peer.ask(self, step)
            elif isinstance(step, evil.Silence):
                await self.x.silence()
                return
            elif isinstance(step, evil.Close):
                self.x.cut()
                return
            elif isinstance(step, evil.Kill):
                self.x.reset()
                return
        if self.begun:
            await self.x.end()

    async def begin(self) -> None:
        if not self.begun:
            self.begun = True
            await self.x.stream("text/event-stream" if self.wire == "sse" else "application/json")

    async def message(self, data: bytes) -> None:
        if self.wire == "json":
            await self.x.reply(data)
        else:
            await self.begin()
            await self.x.event(data)

    async def part(self, data: bytes) -> None:
        await self.begin()
        if self.wire == "sse" and not self.partial:
            data = b"data: " + data
        self.partial = True
        await self.x.chunk(data)


# --- stdio -----------------------------------------------------------------------------------------------------------


def evil_command(era: str = "modern", **options: Any) -> list[str]:
    return [sys.executable, "-I", "-S", str(EVIL), f"era={era}", *(f"{k}={v}" for k, v in options.items())]


def wrapped(prelude: str, **options: Any) -> list[str]:
    """A command that runs this code before `evil.py`."""
    code = (
        f"{prelude}\nimport sys\nsys.argv = sys.argv[1:]\nexec(compile(open(sys.argv[0]).read(), 'evil.py', 'exec'))\n"
    )
    return [sys.executable, "-I", "-S", "-c", code, str(EVIL), *(f"{k}={v}" for k, v in options.items())]


# Reads this many lines and then no more, though it lives.
LAZY = """
import sys, time
class Lazy:
    def __init__(self, raw, most):
        self.raw, self.left = raw, most
    def readline(self):
        if not self.left:
            time.sleep(600)
        self.left -= 1
        return self.raw.readline()
class In:
    buffer = Lazy(sys.stdin.buffer, MOST)
sys.stdin = In()
"""


class Journal:
    """What an `evil.py` wrote down, over all its lives."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in self.path.read_bytes().splitlines()]
        except FileNotFoundError:
            return []

    def messages(self, method: str | None = None) -> list[dict[str, Any]]:
        got = [entry["got"] for entry in self.entries() if "got" in entry]
        return [message for message in got if method in (None, message.get("method"))]

    def calls(self, tool: str) -> int:
        return sum(message["params"]["name"] == tool for message in self.messages("tools/call"))

    def starts(self) -> list[dict[str, Any]]:
        return [entry for entry in self.entries() if entry.get("start")]

    def pids(self) -> list[int]:
        return [entry["pid"] for entry in self.starts()]


Peer = EvilHttp | Journal


class Dock:
    """Opens clients against misbehaving peers, and ends both."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.made = 0
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Dock:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def on_exit(self, close: Callable[[], Awaitable[Any]]) -> None:
        self._stack.push_async_callback(close)

    def journal(self) -> Journal:
        self.made += 1
        return Journal(self.path / f"journal{self.made}.jsonl")

    async def http(self, era: str = "modern", wire: str = "json", **options: Any) -> EvilHttp:
        return await self._stack.enter_async_context(EvilHttp(era, wire, **options))

    @contextlib.asynccontextmanager
    async def open(
        self, wire: str, era: str, *, lists: str = "plain", **options: Any
    ) -> AsyncIterator[tuple[Client, Peer]]:
        """A client that is ready, and who it talks to. What the test leaves open ends within `PATIENCE`."""
        options.setdefault("timeout", 5.0)
        peer: Peer
        target: Any
        if wire == "stdio":
            peer = self.journal()
            target = evil_command(era, journal=peer.path, lists=lists)
        else:
            peer = await self.http(era, wire, lists=lists)
            target = peer.url
        client = connect(target, **options)
        await soon(client.__aenter__())
        try:
            yield client, peer
        finally:
            await soon(client.close())


async def assert_usable(client: Client, seconds: float = PATIENCE) -> None:
    result = await soon(client.call_tool("add", {"a": 2, "b": 3}), seconds)
    assert result.text == "5"


async def harmed(client: Client, bad: Coroutine[Any, Any, Any], seconds: float = PATIENCE) -> errors.Error:
    """The error of a bad call, made while another call is under way; that one, and one more, must not notice."""
    beside = asyncio.create_task(client.call_tool("later"))
    await turns_until_in_flight(client)
    error = await failure_of(bad, seconds)
    assert (await soon(client.call_tool("release"))).text == "released"
    assert (await soon(beside)).text == "late"
    await assert_usable(client)
    return error


async def turns_until_in_flight(client: Client, number: int = 1) -> None:
    await until(lambda: len(client.requests) >= number, f"{number} calls are in flight")


# --- what the process holds ------------------------------------------------------------------------------------------


class Peak:
    """How much this process grew, at its highest, since it was made; in MB."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._read("VmHWM")

    @property
    def growth(self) -> float:
        return self._read("VmHWM") - self._before

    def _read(self, field: str) -> float:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1000
        raise AssertionError(field)


def sockets() -> set[str]:
    """The sockets and pipes this process has open, by inode."""
    found: set[str] = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            where = os.readlink(entry)
            if where.startswith(("socket:", "pipe:")):
                found.add(where)
    return found


def children_of_us() -> set[int]:
    found: set[int] = set()
    for path in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.update(int(pid) for pid in path.read_text().split())
    return found


@contextlib.contextmanager
def took(least: float = 0.0, most: float = PATIENCE) -> Iterator[None]:
    start = time.monotonic()
    yield
    seconds = time.monotonic() - start
    assert least <= seconds <= most, f"took {seconds:.3f} s, expected {least:g} to {most:g}"
