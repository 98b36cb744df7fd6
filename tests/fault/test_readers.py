"""Readers that do not read, and readers that vanish: bounded memory, slowed or thinned streams, nobody else harmed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.faults import (
    INITIALIZED,
    Child,
    Connection,
    ask,
    assert_serves,
    call,
    http_child,
    initialize,
    legacy_call,
    legacy_get,
    legacy_http,
    modern,
    modern_http,
    notice,
    open_session,
    rpc,
    rss,
)
from tests.support.until import PATIENCE, soon

from trimaran import Server
from trimaran.serve import HttpServer

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]

GROWTH = 40.0  # MB that one reader who does not read may cost: its stream's budget (8 MB), buffers, and noise
URIS = [f"memo://{'u' * 250}/{i}" for i in range(900)]


class Remote:
    def __init__(self, child: Child, port: int) -> None:
        self.child = child
        self.port = port

    async def gauges(self) -> dict[str, Any]:
        reply = await ask(self.port, modern_http(call("gauges")))
        return reply.json["result"]["structuredContent"]

    async def settle(self, what: str, seconds: float = 30.0) -> dict[str, Any]:
        """Wait until the tool neither runs on nor says anything more."""
        last, same = await self.gauges(), 0
        deadline = time.monotonic() + seconds
        while same < 10 and time.monotonic() < deadline:
            await asyncio.sleep(0.03)
            now = await self.gauges()
            same = same + 1 if now[what] == last[what] and now[what] else 0
            last = now
        return last

    async def until(self, condition: Any, what: str, seconds: float = PATIENCE) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while not condition(now := await self.gauges()) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert condition(now), f"{what}: not within {seconds:g} s; {now}"
        return now


@contextlib.asynccontextmanager
async def remote(*options: str) -> AsyncIterator[Remote]:
    with http_child(*options) as (child, port):
        made = Remote(child, port)
        for _ in range(20):
            await assert_serves(port)
        yield made
        assert child.process.poll() is None, "the server ended"


async def assert_prompt(port: int) -> None:
    """Another client hardly notices."""
    started = time.monotonic()
    for _ in range(20):
        await assert_serves(port)
    assert time.monotonic() - started < 10


# --- who does not read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["ticks", "shouts"])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_progress_for_a_client_that_does_not_read_is_bounded(tool: str, era: str) -> None:
    async with remote() as server, contextlib.AsyncExitStack() as held:
        request = modern_http(call(tool, {"n": 100_000}, progressToken="t"))
        if era == "legacy":
            session = await open_session(server.port)
            request = legacy_http(legacy_call(tool, {"n": 100_000}, 1, "t"), session)
        before = rss(server.child.pid)
        slow = await held.enter_async_context(await Connection.open(server.port, receive_buffer=4096))
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await slow.send(request)
        await assert_prompt(server.port)
        await server.settle("ticked")
        await assert_prompt(server.port)
        assert rss(server.child.pid) - before < GROWTH
        slow.vanish()
        await slow.close()
        if era == "modern":
            await server.until(lambda g: not g["flights"], "the call has ended")


async def test_many_clients_that_do_not_read_cost_little_each() -> None:
    async with remote() as server, contextlib.AsyncExitStack() as held:
        before = rss(server.child.pid)
        slow = [
            await held.enter_async_context(await Connection.open(server.port, receive_buffer=4096)) for _ in range(20)
        ]
        for one in slow:
            one.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await one.send(modern_http(call("ticks", {"n": 20_000}, progressToken="t")))
        await server.settle("ticked")
        await assert_prompt(server.port)
        assert rss(server.child.pid) - before < 60
        for one in slow:
            one.vanish()
            await one.close()
        await server.until(lambda g: not g["flights"], "the calls have ended")


async def test_changes_for_a_listener_that_does_not_read_are_bounded() -> None:
    async with remote() as server, contextlib.AsyncExitStack() as held:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": URIS}
        slow = await held.enter_async_context(await Connection.open(server.port, receive_buffer=4096))
        await slow.send(modern_http(modern("subscriptions/listen", {"notifications": wanted}, "l")))
        await slow.head()
        await server.until(lambda g: g["listeners"] == 1, "it listens")
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        before = rss(server.child.pid)
        for _ in range(3):
            reply = await ask(server.port, modern_http(call("changes", {"n": 10_000, "uris": 900})))
            assert reply.json["result"]["structuredContent"] == 10_000
        await assert_prompt(server.port)
        assert rss(server.child.pid) - before < GROWTH
        slow.vanish()
        await slow.close()
        await server.until(lambda g: not g["listeners"] and not g["flights"], "the stream is gone")


async def test_events_for_a_legacy_stream_that_does_not_read_are_bounded() -> None:
    async with remote() as server, contextlib.AsyncExitStack() as held:
        session = await open_session(server.port)
        async with await Connection.open(server.port) as control:
            for n, uri in enumerate(URIS[:100]):
                await control.ask(legacy_http(rpc("resources/subscribe", {"uri": uri}, n), session))
        slow = await held.enter_async_context(await Connection.open(server.port, receive_buffer=4096))
        await slow.send(legacy_get(session))
        await slow.head()
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        before = rss(server.child.pid)
        for _ in range(3):
            await ask(server.port, modern_http(call("changes", {"n": 10_000, "uris": 100})))
        await assert_prompt(server.port)
        assert rss(server.child.pid) - before < GROWTH
        slow.vanish()
        await slow.close()


def stdio_growth(child: Child, seconds: float = 12.0) -> float:
    """How much the child grows until it stops growing."""
    first = top = rss(child.pid)
    deadline, quiet = time.monotonic() + seconds, 0
    while quiet < 12 and time.monotonic() < deadline and top - first < 300:
        time.sleep(0.05)
        now = rss(child.pid)
        quiet = quiet + 1 if now < top + 0.2 and now > first + 0.5 else 0
        top = max(top, now)
    return top - first


@pytest.mark.parametrize("tool", ["ticks", "shouts"])
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_progress_on_a_stdout_that_nobody_reads_is_bounded(tool: str, era: str) -> None:
    with Child("stdio") as child:
        if era == "legacy":
            child.ask(initialize())
            child.send(INITIALIZED)
            child.send(legacy_call(tool, {"n": 100_000}, 7, "t"))
        else:
            child.ask(call("add", {"a": 1, "b": 1}))
            child.send(call(tool, {"n": 100_000}, 7, progressToken="t"))
        assert stdio_growth(child) < GROWTH
        # Once it is read again, all is well.
        assert "result" in child.answer(7, 2 * PATIENCE)


def test_legacy_events_on_a_stdout_that_nobody_reads_are_bounded() -> None:
    with Child("stdio") as child:
        child.ask(initialize())
        child.send(INITIALIZED)
        child.send(legacy_call("changes", {"n": 200_000}, 7))
        assert stdio_growth(child) < GROWTH


def test_a_flood_of_requests_whose_answers_nobody_reads_is_bounded() -> None:
    """The server stops reading when it cannot write, as any filter in a pipe does."""
    with Child("stdio") as child:
        child.ask(call("add", {"a": 1, "b": 1}))
        before = rss(child.pid)
        flood = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":1}\n' % n for n in range(1000))
        sent = 0
        with contextlib.suppress(TimeoutError):  # not taking any more is the point
            deadline = time.monotonic() + 8
            while sent < 300 and time.monotonic() < deadline and rss(child.pid) - before < 200:
                child.write(flood, 3.0)
                sent += 1
        assert rss(child.pid) - before < GROWTH, f"after {sent * 1000} unread answers"


# --- who vanishes ----------------------------------------------------------------------------------------------------


async def test_a_vanished_modern_reader_ends_its_call_at_once() -> None:
    async with remote() as server, contextlib.AsyncExitStack() as held:
        gone = await held.enter_async_context(await Connection.open(server.port))
        await gone.send(modern_http(call("nap", {"seconds": 60})))
        await server.until(lambda g: g["flights"] == 1, "the call is at work")
        gone.vanish()
        await gone.close()
        await server.until(lambda g: not g["flights"] and g["ended"] == 1, "the call has ended")


async def test_a_vanished_listener_is_forgotten_at_once() -> None:
    async with remote() as server, contextlib.AsyncExitStack() as held:
        base = await server.gauges()
        gone = [await held.enter_async_context(await Connection.open(server.port)) for _ in range(50)]
        for n, one in enumerate(gone):
            await one.send(
                modern_http(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, n))
            )
            await one.head()
        await server.until(lambda g: g["listeners"] == 50, "they listen")
        for one in gone:
            one.vanish()
            await one.close()
        await server.until(
            lambda g: not g["listeners"] and not g["flights"] and g["tasks"] <= base["tasks"], "they are forgotten"
        )


async def test_a_vanished_legacy_reader_can_fetch_its_result_later() -> None:
    """Spec, legacy: a disconnect is no cancellation, and Last-Event-ID brings the rest."""
    async with remote() as server, contextlib.AsyncExitStack() as held:
        session = await open_session(server.port)
        gone = await held.enter_async_context(await Connection.open(server.port))
        await gone.send(legacy_http(legacy_call("noisy_nap", {"seconds": 0.3}, 7, "t"), session))
        status, headers = await gone.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        first = await gone.chunk()
        assert first.startswith(b"id: ")
        last = first.split(b"\n")[0][4:].decode()
        gone.vanish()
        await gone.close()
        for _ in range(2):  # while it runs, and when it is done
            reply = await ask(server.port, legacy_get(session, last))
            assert reply.status == 200
            assert reply.messages[-1]["id"] == 7, reply.body
            assert reply.messages[-1]["result"]["content"][0]["text"] == "rested"
            assert [m["params"]["progress"] for m in reply.messages[:-1]] == [1, 2]
        await server.until(lambda g: not g["flights"], "nothing is at work")


async def test_a_vanished_legacy_stream_reader_can_take_up_where_it_was() -> None:
    async with remote() as server, contextlib.AsyncExitStack() as held:
        session = await open_session(server.port)
        gone = await held.enter_async_context(await Connection.open(server.port))
        await gone.send(legacy_get(session))
        await gone.head()
        last = (await gone.chunk()).split(b"\n")[0][4:].decode()
        gone.vanish()
        await gone.close()
        await ask(server.port, modern_http(call("changes", {"n": 3})))
        async with await Connection.open(server.port) as again:
            await again.send(legacy_get(session, last))
            await again.head()
            for _ in range(3):
                assert b"list_changed" in await again.chunk()
        await ask(server.port, legacy_http(notice("notifications/x"), session))


async def test_a_resumed_stream_has_no_gap_while_the_call_goes_on() -> None:
    """A GET that takes over the stream of a busy call gets every event once, in order, and the result."""
    async with remote() as server, contextlib.AsyncExitStack() as held:
        session = await open_session(server.port)
        gone = await held.enter_async_context(await Connection.open(server.port))
        await gone.send(legacy_http(legacy_call("ticks", {"n": 200, "size": 20_000}, 7, "t"), session))
        await gone.head()
        await gone.chunk()
        first = await gone.chunk()
        last = first.split(b"\n")[0][4:].decode()
        gone.vanish()
        await gone.close()
        slow = await held.enter_async_context(await Connection.open(server.port, receive_buffer=4096))
        await slow.send(legacy_get(session, last))
        reply = await slow.reply()
        await slow.close()
        numbers = [int(i.partition(":")[2]) for i in reply.event_ids]
        assert numbers == list(range(2, 202)), (numbers[:5], numbers[-5:], len(numbers))
        assert reply.messages[-1]["id"] == 7


async def test_a_client_of_the_oldest_transport_that_does_not_read_its_stream_is_told_so() -> None:
    """Its POSTs are answered at once, so nothing but a refusal slows it down."""
    talker = Server("talker")

    @talker.tool
    async def talk() -> str:
        return "x" * 30_000

    async with (
        HttpServer(talker, port=0, sse_path="/sse") as http,
        await Connection.open(http.port, receive_buffer=4096) as stream,
        await Connection.open(http.port) as poster,
    ):
        await stream.send(b"GET /sse HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n")
        await soon(stream.reader.readuntil(b"data: "))
        endpoint = (await soon(stream.reader.readuntil(b"\n"))).strip()

        async def post(message: Any) -> int:
            data = legacy_http(message).replace(b"POST /mcp ", b"POST " + endpoint + b" ")
            return (await poster.ask(data)).status

        assert await post(initialize("2024-11-05")) == 202
        assert await post(INITIALIZED) == 202
        stream.writer.transport.pause_reading()  # type: ignore[attr-defined]
        statuses = [await post(legacy_call("talk", {}, number)) for number in range(600)]
        accepted = statuses.count(202)
        assert set(statuses) == {202, 503} and accepted >= 100
        assert len(asyncio.all_tasks()) < 150
        stream.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(accepted):
            await soon(stream.reader.readuntil(b'xxx"'))
        assert await post(legacy_call("talk", {}, 1000)) == 202
