"""Fifty thousand bad messages on each transport: an answer of the right shape or a clean close, and nothing left behind.

A failure names the seed and the message; `Mutants(seed)` gives the same ones again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop
from tests.support.faults import (
    INITIALIZED,
    Child,
    Connection,
    ask,
    assert_serves,
    call,
    encode,
    http,
    http_child,
    initialize,
    legacy_headers,
    modern_http,
    open_session,
    rss,
)
from tests.support.inside import inside
from tests.support.until import PATIENCE

from trimaran import Context, Server
from trimaran.legacy.duplex import LegacyDuplex
from trimaran.transports.memory import MemoryChannel

from .mutants import Mutants

SEED = int(os.environ.get("TRIMARAN_FAULT_SEED", "20260728"))
NUMBER = int(os.environ.get("TRIMARAN_FAULT_MESSAGES", "50000"))
WARM = NUMBER // 5
GROWTH = 25.0  # MB; 0.6 KB a message, were it a leak. Bounded memories go on filling for a while: three times as many grow no more
CODES = {-32700, -32600, -32601, -32602, -32020, -32021, -32022, -32002}

pytestmark = [pytest.mark.slow, pytest.mark.deadline(170)]


class Faults:
    """What went wrong, each kind once."""

    def __init__(self) -> None:
        self.kinds: dict[str, tuple[int, str]] = {}

    def add(self, kind: str, example: bytes) -> None:
        kind = re.sub(r"\(error \w+\)|\[[0-9a-f]{8}\]", "(error ...)", kind)
        count, first = self.kinds.get(kind, (0, ""))
        self.kinds[kind] = (
            count + 1,
            first or repr(example if len(example) < 700 else example[:350] + b" ... " + example[-100:]),
        )

    def check(self) -> None:
        lines = [f"{count} x {kind}\n    e.g. {example}" for kind, (count, example) in self.kinds.items()]
        assert not lines, f"seed {SEED}:\n" + "\n".join(lines[:12])


def shape_fault(message: Any) -> str | None:
    """What is wrong with a message from the server; None for nothing."""
    if isinstance(message, list):
        return next((f for m in message if (f := shape_fault(m))), None) if message else "an empty batch"
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return f"not a message: {message!r:.100}"
    if "method" in message:
        return None if message["method"].startswith("notifications/") else f"unexpected {message['method']}"
    if ("result" in message) == ("error" in message):
        return f"neither a result nor an error: {message!r:.100}"
    if "error" in message:
        error = message["error"]
        if error.get("code") not in CODES or not isinstance(error.get("message"), str):
            return f"error {error.get('code')}: {error.get('message')!r:.160}"
        if len(error["message"]) > 4000:
            return "an error message as long as what it complains about"
    elif "failed; the server's log" in json.dumps(message["result"]):
        return "a tool failed with an unexpected exception"
    return None


def log_faults(log: str) -> list[str]:
    return sorted(
        {
            line
            for line in log.splitlines()
            if re.match(r"^\w*(Error|Exception|Exit)\b", line) or "never retrieved" in line
        }
    )


# --- HTTP ------------------------------------------------------------------------------------------------------------


class Attack:
    """Some connections that share one stream of bad requests."""

    def __init__(self, port: int, session: str, faults: Faults) -> None:
        self.port = port
        self.session = session
        self.faults = faults
        self.mutants = Mutants(SEED)

    async def run(self, number: int, connections: int = 12) -> None:
        requests = iter(range(number))
        await asyncio.gather(*(self._one(requests) for _ in range(connections)))

    async def _one(self, requests: Iterator[int]) -> None:
        connection = await Connection.open(self.port)
        try:
            for _ in requests:
                data, framed = self.mutants.request(self.session)
                if not await self._try(connection, data, framed):
                    await connection.close()
                    connection = await Connection.open(self.port)
        finally:
            await connection.close()

    async def _try(self, connection: Connection, data: bytes, framed: bool) -> bool:
        """Send one; is the connection still good?"""
        connection.writer.write(data)
        if not framed:
            connection.writer.write_eof()
        head_only = data.startswith(b"HEAD ")
        try:
            status, headers = await connection.head()
        except (EOFError, ConnectionError) as error:
            if framed:
                self.faults.add(f"closed without an answer ({type(error).__name__})", data)
            return False
        except TimeoutError:
            self.faults.add("no answer", data)
            return False
        if head_only:
            return False
        try:
            reply = await connection.body(status, headers)
        except TimeoutError:
            self.faults.add(f"an answer without an end, {status}", data)
            return False
        if status >= 500 and status not in (501, 505):
            self.faults.add(f"status {status}: {reply.body[:150]!r}", data)
        if not reply.complete:
            self.faults.add("a stream without an end", data)
        self._judge(status, headers, reply, data)
        if "mcp-session-id" in headers and headers["mcp-session-id"] != self.session:
            await connection.ask(http(b"", {**legacy_headers(headers["mcp-session-id"])}, "DELETE"))
        return framed and headers.get("connection") != "close"

    def _judge(self, status: int, headers: dict[str, str], reply: Any, data: bytes) -> None:
        if status in (202, 204):
            if reply.body:
                self.faults.add(f"{status} with a body", data)
            return
        if not reply.body:
            self.faults.add(f"{status} with nothing in it", data)
            return
        try:
            said = reply.messages if headers.get("content-type") == "text/event-stream" else [reply.json]
        except ValueError:
            self.faults.add(f"{status}: not JSON", data)
            return
        for message in said:
            fault = shape_fault(message)
            if fault is not None:
                self.faults.add(f"{status}: {fault}", data)


def test_http_survives_bad_messages() -> None:
    faults = Faults()

    async def gauges(port: int) -> Any:
        return (await ask(port, modern_http(call("gauges")))).json["result"]["structuredContent"]

    async def attack(child: Child, port: int) -> None:
        session = await open_session(port)
        await assert_serves(port)
        at_first = await gauges(port)
        attack = Attack(port, session, faults)
        await attack.run(WARM)
        warm = rss(child.pid)
        await attack.run(NUMBER - WARM)
        await assert_serves(port)
        grown = rss(child.pid) - warm
        deadline = time.monotonic() + PATIENCE
        while (at_last := await gauges(port)) != at_first and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        leaks = {
            k: (at_first[k], at_last[k])
            for k in ("tasks", "sessions", "listeners", "flights")
            if at_last[k] > at_first[k]
        }
        faults.check()
        assert not leaks, f"seed {SEED}: left behind (before, after): {leaks}"
        assert grown < GROWTH, f"seed {SEED}: grew by {grown:.1f} MB"

    with tempfile.TemporaryFile("w+") as log, http_child(stderr=log) as (child, port):
        uvloop.run(attack(child, port))
        assert child.process.poll() is None
        log.seek(0)
        assert log_faults(log.read()) == []


# --- stdio -----------------------------------------------------------------------------------------------------------


def test_stdio_survives_bad_messages() -> None:
    """Each hundred is followed by a good one, whose answer must come."""
    faults = Faults()
    mutants = Mutants(SEED + 1)
    with tempfile.TemporaryFile("w+") as log, Child("stdio", stderr=log) as child:
        child.ask(initialize())
        child.send(INITIALIZED)
        gauges = child.ask(call("gauges", {}, "g0"))["result"]["structuredContent"]
        warm = 0.0
        for start in range(0, NUMBER, 100):
            lines = [mutants.body()[1].replace(b"\n", b" ").replace(b"\r", b" ") for _ in range(100)]
            fence = f"fence-{start}"
            try:
                fed = [
                    *lines,
                    encode(initialize()),
                    encode(INITIALIZED),
                    encode(call("add", {"a": start, "b": 1}, fence)),
                ]
                writing = b"".join(line + b"\n" for line in fed)
                for message in exchange(child, writing, fence):
                    fault = shape_fault(message)
                    if fault is not None:
                        faults.add(fault, encode(message))
                    if message.get("id") == fence:
                        assert message["result"]["structuredContent"] == start + 1
            except (TimeoutError, AssertionError, BrokenPipeError) as error:
                log.seek(0)
                culprit = bisect(lines)
                pytest.fail(
                    f"seed {SEED + 1}: after message {start}: {error!r}; culprit {culprit!r:.700}\n{log.read()[-3000:]}"
                )
            if start == WARM:
                warm = rss(child.pid)
        grown = rss(child.pid) - warm
        last = child.ask(call("gauges", {}, "g1"))["result"]["structuredContent"]
        child.end_input()
        assert child.wait() == 0
        log.seek(0)
        for line in log_faults(log.read()):
            faults.add(f"logged: {line}", b"")
        faults.check()
        assert last["tasks"] <= gauges["tasks"] + 1, (gauges, last)
        assert last["sessions"] == 1
        assert grown < GROWTH, f"grew by {grown:.1f} MB"


def exchange(child: Child, data: bytes, fence: str) -> Iterator[Any]:
    """Write all, reading meanwhile, until the fence is answered."""
    for start in range(0, len(data), 32_768):
        child.write(data[start : start + 32_768])
        while start + 32_768 < len(data) and (line := peek(child)) is not None:
            yield json.loads(line)
    while True:
        message = child.receive(PATIENCE)
        yield message
        if isinstance(message, dict) and message.get("id") == fence:
            return


def peek(child: Child) -> bytes | None:
    try:
        return child.line(0)
    except TimeoutError:
        return None


def bisect(lines: list[bytes]) -> bytes:
    """Which of these alone stops a server?"""
    for line in lines:
        with Child("stdio", stderr=subprocess.DEVNULL) as child:
            child.send(
                initialize(),
                INITIALIZED,
                line,
                initialize(id="i2"),
                INITIALIZED,
                call("add", {"a": 1, "b": 1}, "fence"),
            )
            try:
                child.answer("fence")
            except (TimeoutError, AssertionError, AttributeError):
                return line
    return b"none alone"


# --- memory ----------------------------------------------------------------------------------------------------------


def make() -> Server:
    server = Server("memory", version="1")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def few(n: int, ctx: Context) -> int:
        for i in range(min(n, 5)):
            await ctx.progress(i + 1)
        return 1

    @server.resource("memo://{name}")
    async def memo(name: str) -> str:
        return name

    @server.prompt
    async def greet(name: str) -> str:
        return f"Hello {name}"

    return server


async def one(channel: MemoryChannel, fence: str, faults: Faults) -> bool:
    """Judge the next message; is it the answer to the fence?"""
    received = await channel.receive()
    assert received is not None
    message = json.loads(received)
    fault = shape_fault(message)
    if fault is not None:
        faults.add(fault, received)
    return isinstance(message, dict) and message.get("id") == fence


def held() -> float:
    """The memory of this process in MB, without garbage and without what the allocator keeps for later."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    return rss(os.getpid())


async def test_memory_survives_bad_messages(caplog: pytest.LogCaptureFixture) -> None:
    faults = Faults()
    mutants = Mutants(SEED + 2)
    server = make()
    channel = MemoryChannel(server, legacy=LegacyDuplex)
    warm = 0.0
    tasks = len(asyncio.all_tasks())
    for start in range(0, NUMBER, 100):
        fence = f"fence-{start}"
        for data in [
            *(mutants.body()[1] for _ in range(100)),
            encode(initialize()),
            encode(INITIALIZED),
            encode(call("add", {"a": start, "b": 1}, fence)),
        ]:
            try:
                await channel.send(data)
            except Exception as error:
                faults.add(f"feed raised {type(error).__name__}: {error!s:.80}", data)
        try:
            async with asyncio.timeout(PATIENCE):
                while not await one(channel, fence, faults):
                    pass
        except TimeoutError:
            faults.add("a good call among bad ones got no answer", encode(fence))
            if faults.kinds["a good call among bad ones got no answer"][0] == 2:
                break
        if start == WARM:
            warm = held()
    grown = held() - warm
    for _ in range(20):
        await asyncio.sleep(0)
    left = len(asyncio.all_tasks()) - tasks
    sessions = len(inside(server).sessions)
    await channel.close()
    for record in caplog.records:
        faults.add(
            f"logged: {record.getMessage():.60} {record.exc_info[1]!r:.100}"
            if record.exc_info
            else record.getMessage()[:80],
            b"",
        )
    faults.check()
    assert (left, sessions) == (0, 1)
    assert not len(inside(server).sessions)
    assert not len(server.runtime.changes)
    assert grown < GROWTH, f"grew by {grown:.1f} MB"
