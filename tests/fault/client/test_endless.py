"""A server that never stops sending: the deadline of the call holds, and everybody else has a turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from tests.support.until import soon

from trimaran.errors import RemoteProtocolError, TimedOut, TooManyPages
from trimaran.protocol.sse import SSEParser
from trimaran.transports.http_client import events

from .peers import ERAS, WIRES, Dock, EvilHttp, Exchange, Peak, assert_usable, failure_of, took

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Turns:
    """How often the event loop went round, and the most processor time that one round of it took."""

    def __init__(self) -> None:
        self.number = 0
        self.longest = 0.0

    async def count(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.thread_time() - began)
            self.number += 1


class Endless:
    """A response whose next piece is always there, so that its reader never has to wait."""

    url = "http://x.example/mcp"
    status = 200
    reason = "OK"
    length: int | None = None
    is_complete = False

    def __init__(self, piece: bytes, most: int, headers: Mapping[str, str] | None = None) -> None:
        self.piece = piece
        self.most = most
        self.headers = headers or {}

    async def read(self) -> bytes:
        return b""

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        for _ in range(self.most):
            yield self.piece

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize(
    "line", [b"\n", b":\n", b": x\n\n", b"retry: 1\n\n", b"id: 1\ndata:\n\n", b"x\n", b"data: {}\n\n"], ids=repr
)
async def test_who_reads_a_stream_lets_others_have_their_turn(line: bytes) -> None:
    turns = Turns()
    counting = asyncio.create_task(turns.count())
    async for _ in events(Endless(line * (262_144 // len(line)), 16), SSEParser()):
        pass
    counting.cancel()
    # Four megabytes take from half a second on, and a turn a few milliseconds.
    assert turns.number > 10


async def test_a_packed_stream_is_refused() -> None:
    packed = Endless(b"\x1f\x8b\x08", 1, {"content-encoding": "gzip"})
    with pytest.raises(RemoteProtocolError, match="gzip body, which was not asked for"):
        async for _ in events(packed, SSEParser()):
            pass


ENDLESS = {
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 500),
    "header fields": (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 1000),
    "comments": (SSE, b": x\n\n" * 5000),
    "empty lines": (SSE, b"\n" * 30_000),
    "retries": (SSE, b"retry: 1\n\n" * 3000),
    "priming events": (SSE, b"id: 1\ndata:\n\n" * 3000),
    "one comment": (SSE, b":" * 30_000),
    "chunks of one byte": (JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 5000),
    "chunk extensions": (JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"a" * 30_000 + b"\r\n \r\n"),
    "trailers": (JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"X-A: b\r\n" * 1000),
    "a body": (JSON + b"\r\n", b" " * 30_000),
    "a refusal": (b"HTTP/1.1 500 Oh\r\n\r\n", b"x" * 30_000),
}


@ERAS
@pytest.mark.parametrize("what", ENDLESS)
async def test_a_call_ends_in_time_however_much_comes(dock: Dock, era: str, what: str) -> None:
    head, more = ENDLESS[what]

    async def flood(x: Exchange) -> None:
        await x.send(head)
        while True:
            await x.send(more)
            await asyncio.sleep(0)  # it shares our loop, and may not hold it up either

    async with dock.open("sse", era) as (client, peer):
        assert isinstance(peer, EvilHttp)
        await assert_usable(client)
        peer.overrides["echo"] = flood
        peak = Peak()
        with took(most=5.0):
            await failure_of(client.call_tool("echo", timeout=0.5))
        assert peak.growth < 60, f"grew by {peak.growth:.0f} MB"
        await assert_usable(client)


@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_questions_without_end_do_not_stretch_the_deadline(dock: Dock, wire: str) -> None:
    """The clock stands still while a person or a model answers. It did so for as long as the server asked."""

    async def sample(ask: Any) -> str:
        await asyncio.sleep(0.05)
        return "words"

    async with dock.open(wire, "legacy", on_sample=sample) as (client, _):
        await assert_usable(client)
        with took(least=0.4, most=6.0):
            error = await failure_of(client.call_tool("samples_endlessly", timeout=0.5), 20)
        assert isinstance(error, TimedOut), repr(error)


async def test_the_clock_stands_still_for_as_many_questions_as_a_call_may_ask(dock: Dock) -> None:
    """`max_rounds` of them; here each takes longer than the call may."""

    async def sample(ask: Any) -> str:
        await asyncio.sleep(0.2)
        return "words"

    async with dock.open("stdio", "legacy", on_sample=sample, max_rounds=5) as (client, _):
        await assert_usable(client)
        with took(most=10.0):
            assert (await soon(client.call_tool("samples", {"n": 5}, timeout=5.0))).text == "done"


@pytest.mark.slow
async def test_a_child_that_floods_its_stdout_leaves_turns_to_others(dock: Dock) -> None:
    """64 KB of such lines took a third of a second each time."""
    turns = Turns()
    async with dock.open("stdio", "modern") as (client, _):
        await assert_usable(client)
        counting = asyncio.create_task(turns.count())
        error = await failure_of(client.call_tool("empties", timeout=1.0))
        counting.cancel()
        assert isinstance(error, TimedOut), repr(error)
        assert turns.longest < 0.05, f"{turns.longest:.3f} s"


@WIRES
async def test_a_thousand_questions_at_once_are_refused(dock: Dock, wire: str) -> None:
    async with dock.open(wire, "modern", roots=["/tmp"]) as (client, _):
        error = await failure_of(client.call_tool("asks_much"))
        assert isinstance(error, RemoteProtocolError), repr(error)
        assert "asks 1000 questions at once, and 64 are answered" in str(error)
        await assert_usable(client)


@pytest.mark.slow
async def test_what_waits_for_a_slow_callback_is_bounded_whatever_it_says(dock: Dock) -> None:
    """Progress with messages of a megabyte, and notifications that are small on the wire and large in memory."""
    free = asyncio.Event()

    async def stuck(*args: Any) -> None:
        await free.wait()

    async def flood(x: Exchange) -> None:
        token = x.message["params"]["_meta"]["progressToken"]
        text = b'"%b"' % (b"x" * 1_000_000)
        report = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1,"message":%b}}'
        lists = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":[%b]}}' % b",".join([b"[]"] * 20_000)
        await x.stream()
        for _ in range(100):
            await x.event(report % (token, text))
            await x.event(lists)
        await x.event(b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","content":[]}}' % x.id)
        await x.end()

    async with dock.open("sse", "modern", timeout=20.0, on_notification=stuck) as (client, peer):
        assert isinstance(peer, EvilHttp)
        peer.overrides["echo"] = flood
        await assert_usable(client)
        peak = Peak()
        await soon(client.call_tool("echo", on_progress=stuck), 25)
        assert peak.growth < 100, f"grew by {peak.growth:.0f} MB"


@pytest.mark.parametrize("wire", ["sse", "stdio"])
async def test_a_question_with_an_endless_id_is_ignored(dock: Dock, wire: str) -> None:
    asked: list[Any] = []

    async def sample(ask: Any) -> str:
        asked.append(ask)
        return "words"

    async with dock.open(wire, "legacy", on_sample=sample) as (client, peer):
        assert (await soon(client.call_tool("long_id"))).text == "done"
        await assert_usable(client)
        assert not asked
        assert [message for message in peer.messages() if "method" not in message] == []


@ERAS
async def test_a_page_of_malformed_items_is_refused(dock: Dock, era: str) -> None:
    """Each cost a line in the log, and a message has room for two hundred thousand."""
    async with dock.open("json", era, cache=False) as (client, peer):
        assert isinstance(peer, EvilHttp)

        async def junk(x: Exchange) -> None:
            page = b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","tools":[%b]}}'
            await x.reply(page % (x.id, b",".join([b"{}"] * 50_000)))

        peer.overrides["tools/list"] = junk
        error = await failure_of(client.list_tools())
        assert isinstance(error, RemoteProtocolError), repr(error)
        assert "more than 100 malformed items on one page" in str(error)


@ERAS
async def test_a_list_of_slow_pages_comes_to_an_end(dock: Dock, era: str) -> None:
    """Each page comes in time, and a thousand of them would take a day."""
    async with dock.open("json", era, lists="endless", timeout=5.0, max_timeout=0.5) as (client, peer):
        assert isinstance(peer, EvilHttp)

        async def slow(x: Exchange) -> None:
            await asyncio.sleep(0.1)
            await peer.honest(x)

        peer.overrides["tools/list"] = slow
        with took(most=8.0):
            error = await failure_of(client.list_tools_all())
        assert isinstance(error, TimedOut), repr(error)
        assert "tools/list has not come to its end within 0.5 s" in str(error)


async def test_a_list_is_bounded_by_its_bytes_too(dock: Dock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.client.lists._LIST_BYTES", 100_000)
    async with dock.open("json", "modern", lists="endless", timeout=20.0) as (client, _):
        error = await failure_of(client.list_tools_all(), 30)
        assert isinstance(error, TooManyPages), repr(error)
        assert "more than 100000 bytes" in str(error)
