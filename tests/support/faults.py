"""What the fault tests share: requests as bytes, a raw HTTP client, a child process at the other end of pipes.

Nothing here uses the library to speak to the library, and every wait is bounded by `PATIENCE`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.until import PATIENCE, wait_until

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
P = "io.modelcontextprotocol/"
BOTH = "application/json, text/event-stream"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
CHILD = Path(__file__).with_name("faulty_server.py")


def encode(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def meta(**more: Any) -> dict[str, Any]:
    return {
        P + "protocolVersion": MODERN,
        P + "clientCapabilities": {},
        P + "clientInfo": {"name": "fault", "version": "1"},
        **more,
    }


def rpc(method: str, params: Mapping[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


def notice(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}


def modern(method: str, params: Mapping[str, Any] | None = None, id: Any = 1, **more: Any) -> dict[str, Any]:
    return rpc(method, {**(params or {}), "_meta": meta(**more)}, id)


def call(name: str, arguments: Mapping[str, Any] | None = None, id: Any = 1, **more: Any) -> dict[str, Any]:
    return modern("tools/call", {"name": name, "arguments": arguments or {}}, id, **more)


def legacy_call(
    name: str, arguments: Mapping[str, Any] | None = None, id: Any = 1, token: Any = None
) -> dict[str, Any]:
    params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return rpc("tools/call", params, id)


def initialize(version: str = LEGACY, id: Any = "init", **changes: Any) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "fault", "version": "1"}}
    return rpc("initialize", {**params, **changes}, id)


INITIALIZED = notice("notifications/initialized")


def cancelled(id: Any) -> dict[str, Any]:
    return notice("notifications/cancelled", {"requestId": id, "reason": "no longer wanted"})


# --- HTTP as bytes ---------------------------------------------------------------------------------------------------


def http(
    body: bytes, headers: Mapping[str, str], verb: str = "POST", path: str = "/mcp", *, framed: bool = True
) -> bytes:
    lines = [f"{verb} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{k}: {v}" for k, v in headers.items())]
    if framed and (body or verb == "POST"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def modern_headers(message: Mapping[str, Any]) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": BOTH,
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": message["method"],
    }
    named = message["params"].get(NAMED.get(message["method"], ""))
    if named is not None:
        headers["Mcp-Name"] = named
    return headers


def modern_http(message: Mapping[str, Any], **headers: str) -> bytes:
    return http(encode(message), {**modern_headers(message), **headers})


def legacy_headers(session: str | None = None) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": BOTH}
    return headers if session is None else {**headers, "Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}


def legacy_http(message: Any, session: str | None = None) -> bytes:
    return http(encode(message), legacy_headers(session))


def legacy_get(session: str, last: str | None = None) -> bytes:
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
    return http(b"", headers if last is None else {**headers, "Last-Event-ID": last}, "GET")


class Reply:
    def __init__(self, status: int, headers: dict[str, str], body: bytes, *, complete: bool = True) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.complete = complete
        """Did the body come to its proper end?"""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def messages(self) -> list[Any]:
        """Of a stream: the messages of its events."""
        found = []
        for block in self.body.decode().split("\n\n"):
            data = "\n".join(line[6:] for line in block.split("\n") if line.startswith("data: "))
            if data:
                found.append(json.loads(data))
        return found

    @property
    def event_ids(self) -> list[str]:
        return [line[4:] for line in self.body.decode().split("\n") if line.startswith("id: ")]

    def __repr__(self) -> str:
        return f"<Reply {self.status} {self.body[:300]!r}>"


class Connection:
    """One client connection, from within a loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, *, receive_buffer: int | None = None) -> Connection:
        raw = socket.socket()
        if receive_buffer is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.setblocking(False)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(raw, ("127.0.0.1", port))
        except BaseException:
            raw.close()
            raise
        return cls(*await asyncio.open_connection(sock=raw, limit=64 * 1024 * 1024))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    async def ask(self, data: bytes) -> Reply:
        await self.send(data)
        return await self.reply()

    async def reply(self) -> Reply:
        async with asyncio.timeout(PATIENCE):
            status, headers = await self.head()
            return await self.body(status, headers)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers; EOFError if the connection ended instead."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    raw = await self.reader.readuntil(b"\r\n\r\n")
                except asyncio.IncompleteReadError as error:
                    raise EOFError(error.partial) from None
                first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
                status = int(first.split(" ")[1])
                if status != 100:
                    return status, {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}

    async def body(self, status: int, headers: Mapping[str, str]) -> Reply:
        found = dict(headers)
        if "content-length" in found:
            return Reply(status, found, await self.reader.readexactly(int(found["content-length"])))
        if found.get("transfer-encoding") == "chunked":
            parts: list[bytes] = []
            try:
                while piece := await self.chunk():
                    parts.append(piece)
            except (EOFError, ConnectionError):
                return Reply(status, found, b"".join(parts), complete=False)
            return Reply(status, found, b"".join(parts))
        return Reply(status, found, b"" if status == 204 else await self.reader.read())

    async def chunk(self) -> bytes:
        """The next piece of a chunked body, empty at its end."""
        async with asyncio.timeout(PATIENCE):
            size = await self.reader.readline()
            if not size.endswith(b"\r\n"):
                raise EOFError(size)
            try:
                return (await self.reader.readexactly(int(size, 16) + 2))[:-2]
            except asyncio.IncompleteReadError as error:
                raise EOFError(error.partial) from None

    async def rest(self) -> bytes:
        """Everything until the other side closes."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def is_over(self) -> bool:
        """Has, or does, the other side close within a while?"""
        try:
            return not await self.rest()
        except TimeoutError:
            return False

    def vanish(self) -> None:
        """Go without a goodbye: the other side sees a reset."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        if self.writer.transport.is_closing():
            return
        self.writer.close()
        with contextlib.suppress(Exception):
            await self.writer.wait_closed()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def ask(port: int, data: bytes) -> Reply:
    """One request on a connection of its own."""
    async with await Connection.open(port) as connection:
        return await connection.ask(data)


async def assert_serves(port: int) -> None:
    """A fresh client is answered, whatever went before."""
    reply = await ask(port, modern_http(call("add", {"a": 2, "b": 3}, "fresh")))
    assert reply.status == 200, reply
    assert reply.json["result"]["structuredContent"] == 5, reply


async def open_session(port: int) -> str:
    """A legacy session, its handshake completed."""
    async with await Connection.open(port) as connection:
        reply = await connection.ask(legacy_http(initialize()))
        assert reply.status == 200, reply
        session = reply.headers["mcp-session-id"]
        assert (await connection.ask(legacy_http(INITIALIZED, session))).status == 202
    return session


async def turns(number: int = 4) -> None:
    """Let the loop look at its sockets a few times: what was sent on loopback has arrived then."""
    for _ in range(number):
        await asyncio.sleep(0)


# --- processes -------------------------------------------------------------------------------------------------------


def rss(pid: int) -> float:
    """Resident memory of a process, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Child:
    """A server in a process of its own, spoken to over its pipes."""

    def __init__(
        self, *arguments: str, stderr: Any = subprocess.PIPE, stdin: Any = subprocess.PIPE, command: Any = None
    ) -> None:
        self.process = subprocess.Popen(
            command or [sys.executable, str(CHILD), *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            # Whether a program buffers what it prints is its own affair, not that of whoever runs the tests.
            env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
        )
        self._rest = b""
        self._eof = False
        self.lines: list[bytes] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.write((message if isinstance(message, bytes) else encode(message)) + b"\n")

    def write(self, data: bytes, seconds: float = PATIENCE) -> None:
        assert self.process.stdin is not None
        deadline = time.monotonic() + seconds
        view = memoryview(data)
        descriptor = self.process.stdin.fileno()
        while view:
            _, ready, _ = select.select([], [descriptor], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the child does not read its stdin")
            view = view[os.write(descriptor, view[:4096]) :]

    def consumed(self) -> None:
        """Wait until the child has taken everything that was written to it."""
        assert self.process.stdin is not None
        descriptor = self.process.stdin.fileno()

        def empty() -> bool:
            return not struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))[0]

        wait_until(empty, "the child has read its stdin")

    def line(self, seconds: float = PATIENCE) -> bytes | None:
        """The next line of its stdout, None at the end."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest and not self._eof:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no line on the child's stdout within {seconds:g} s; before: {self.lines[-3:]}")
            chunk = os.read(self.process.stdout.fileno(), 1 << 20)
            self._eof = not chunk
            self._rest += chunk
        if not self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        self.lines.append(line)
        return line

    def receive(self, seconds: float = PATIENCE) -> Any:
        line = self.line(seconds)
        assert line is not None, "the child closed its stdout"
        return json.loads(line)

    def answer(self, id: Any, seconds: float = PATIENCE) -> Any:
        """The message with this id; what comes before it is left aside, in `lines`."""
        while (message := self.receive(seconds)).get("id") != id or "method" in message:
            pass
        return message

    def silent(self, seconds: float) -> list[bytes]:
        """What it says in this time; expected to be nothing."""
        found: list[bytes] = []
        deadline = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            while (line := self.line(max(0.0, deadline - time.monotonic()))) is not None:
                found.append(line)
        return found

    def ask(self, message: Mapping[str, Any], seconds: float = PATIENCE) -> Any:
        self.send(message)
        return self.answer(message["id"], seconds)

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its exit code; fails if it does not end in time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the child had not ended after {seconds:g} s") from None

    def everything(self) -> bytes:
        """All the lines it ever wrote to stdout, once it has ended."""
        while self.line() is not None:
            pass
        return b"\n".join(self.lines)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@contextlib.contextmanager
def http_child(*options: str, stderr: Any = subprocess.DEVNULL) -> Iterator[tuple[Child, int]]:
    """An HTTP server in a process of its own, and its port."""
    with Child("http", *options, stderr=stderr, stdin=subprocess.DEVNULL) as child:
        line = child.line()
        assert line, "the child did not start"
        yield child, int(line)
