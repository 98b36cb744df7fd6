"""A cancelled call stops, whoever cancels it and wherever it is, and nothing more is said about it (P28)."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.support.faults import (
    INITIALIZED,
    Child,
    Connection,
    assert_serves,
    call,
    cancelled,
    encode,
    initialize,
    legacy_call,
    legacy_http,
    modern,
    modern_http,
    open_session,
)
from tests.support.until import PATIENCE, soon, until

from trimaran import Context, Server
from trimaran.legacy.duplex import LegacyDuplex
from trimaran.serve import HttpServer
from trimaran.server import exchange
from trimaran.transports.memory import MemoryChannel


class Bench:
    """A server whose tools say what happens to them."""

    def __init__(self, **options: Any) -> None:
        self.server = server = Server("cancel", version="1", **options)
        self.started = 0
        self.stopped: list[str] = []
        self.release = asyncio.Event()
        self.thread_saw = threading.Event()
        self.thread_started = threading.Event()

        @server.tool(inline=True)
        def add(a: int, b: int) -> int:
            return a + b

        @server.tool
        async def wait(ctx: Context, noisy: bool = False) -> str:
            self.started += 1
            if noisy:
                await ctx.progress(1)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.stopped.append("cancelled")
                await ctx.progress(2)
                raise
            return "never"

        @server.tool(timeout=0.1)
        async def slow(ctx: Context, noisy: bool = False) -> str:
            self.started += 1
            if noisy:
                await ctx.progress(1)
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.append("timeout")
            return "never"

        @server.tool(timeout=0.1)
        async def deaf() -> str:
            "Swallows every cancellation until it is let go."
            self.started += 1
            while not self.release.is_set():
                with suppress(asyncio.CancelledError):
                    await self.release.wait()
            return "late"

        @server.tool
        def thread(ctx: Context) -> str:
            self.thread_started.set()
            deadline = time.monotonic() + 10
            while not ctx.cancelled and time.monotonic() < deadline:
                time.sleep(0.002)
            if ctx.cancelled:
                self.thread_saw.set()
            return "x"

        @server.tool
        async def eventually() -> str:
            self.started += 1
            await self.release.wait()
            return "done"


@asynccontextmanager
async def over_http(**options: Any) -> AsyncIterator[tuple[Bench, HttpServer]]:
    bench = Bench(**options)
    async with HttpServer(bench.server, port=0) as http:
        yield bench, http
        await until(lambda: not len(http.engine.running_calls), "no call is left at work")


class Channel:
    """The client's end of a memory channel, in one era or the other."""

    def __init__(self, bench: Bench, era: str) -> None:
        self.era = era
        self.channel = MemoryChannel(bench.server, legacy=LegacyDuplex)

    async def send(self, message: Any) -> None:
        await self.channel.send(encode(message))

    async def call(self, name: str, arguments: Any = None, id: Any = 1, token: Any = None) -> None:
        if self.era == "modern":
            await self.send(call(name, arguments, id, **({} if token is None else {"progressToken": token})))
        else:
            await self.send(legacy_call(name, arguments, id, token))

    async def receive(self, seconds: float = 5.0) -> Any:
        async with asyncio.timeout(seconds):
            data = await self.channel.receive()
        return None if data is None else json.loads(data)

    async def rest(self, fence: str = "fence") -> list[Any]:
        """What is said until a fresh call is answered."""
        await self.call("add", {"a": 1, "b": 1}, fence)
        found: list[Any] = []
        while (message := await self.receive()).get("id") != fence:
            found.append(message)
        return found


@asynccontextmanager
async def over_memory(era: str, **options: Any) -> AsyncIterator[tuple[Bench, Channel]]:
    bench = Bench(**options)
    channel = Channel(bench, era)
    if era == "legacy":
        await channel.send(initialize())
        assert (await channel.receive())["id"] == "init"
        await channel.send(INITIALIZED)
    yield bench, channel
    await until(lambda: not channel.channel._duplex._calls, "no call is left at work")
    await channel.channel.close()


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> float:
    """The time after which a handler counts as stuck, shortened."""
    monkeypatch.setattr(exchange, "STUCK_SECONDS", 0.3)
    return 0.3


ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])


# --- by the client ---------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("noisy", [False, True])
async def test_a_cancel_notice_stops_the_call_and_nothing_is_said(era: str, noisy: bool) -> None:
    async with over_memory(era) as (bench, channel):
        await channel.call("wait", {"noisy": noisy}, 7, token="t")
        if noisy:
            assert (await channel.receive())["method"] == "notifications/progress"
        await until(lambda: bench.started, "the call is at work")
        await channel.send(cancelled(7))
        await until(lambda: bench.stopped, "the handler has heard")
        assert await channel.rest() == []


@ERAS
@pytest.mark.parametrize("wrong", [8, "7", None, [7], {"id": 7}, 7.5, True, -7])
async def test_a_cancel_notice_for_another_id_is_ignored(era: str, wrong: Any) -> None:
    async with over_memory(era) as (bench, channel):
        await channel.call("eventually", {}, 1 if wrong is True else 7)
        await until(lambda: bench.started, "the call is at work")
        await channel.send(cancelled(wrong))
        assert await channel.rest() == []
        bench.release.set()
        assert (await channel.receive())["result"]["content"][0]["text"] == "done"


@ERAS
async def test_a_cancel_notice_after_the_end_is_ignored(era: str) -> None:
    async with over_memory(era) as (_, channel):
        await channel.call("add", {"a": 1, "b": 2}, 7)
        assert (await channel.receive())["id"] == 7
        await channel.send(cancelled(7))
        assert await channel.rest() == []


@ERAS
async def test_a_cancel_notice_right_behind_its_call_counts(era: str) -> None:
    """Both may arrive in one read: the second must not find that the first has not begun."""
    async with over_memory(era) as (bench, channel):
        await channel.call("eventually", {}, 7)
        await channel.send(cancelled(7))
        await channel.call("add", {"a": 1, "b": 1}, 8)
        assert (await channel.receive())["id"] == 8
        bench.release.set()
        assert await channel.rest() == []


@ERAS
async def test_a_cancelled_id_may_be_used_again(era: str) -> None:
    async with over_memory(era) as (bench, channel):
        for n in range(1, 4):
            await channel.call("wait", {}, 7)
            await until(lambda n=n: bench.started == n, "the call is at work")
            await channel.send(cancelled(7))
            await until(lambda n=n: len(bench.stopped) == n, "the handler has heard")
        assert await channel.rest() == []


@ERAS
async def test_a_cancellation_that_races_with_the_result_gives_one_or_none(era: str) -> None:
    """Ours: at most one answer, and with the cancellation first, none."""
    async with over_memory(era) as (bench, channel):
        for n in range(100):
            bench.release.clear()
            await channel.call("eventually", {}, n)
            await until(lambda n=n: bench.started == n + 1, "the call is at work")
            for _ in range(n % 5):
                await asyncio.sleep(0)
            if n % 2:
                bench.release.set()
                for _ in range(n % 7):
                    await asyncio.sleep(0)
                await channel.send(cancelled(n))
            else:
                await channel.send(cancelled(n))
                bench.release.set()
            said = await channel.rest(f"fence-{n}")
            assert len(said) <= (n % 2), said
            assert all(m["id"] == n and "result" in m for m in said)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("way", ["close", "reset"])
async def test_a_modern_client_that_goes_away_stops_its_call(noisy: bool, way: str) -> None:
    async with over_http() as (bench, http):
        connection = await Connection.open(http.port)
        await connection.send(modern_http(call("wait", {"noisy": noisy}, progressToken="t")))
        await until(lambda: bench.started, "the call is at work")
        if way == "reset":
            connection.vanish()
        await connection.close()
        await until(lambda: bench.stopped, "the handler has heard")


async def test_a_modern_client_that_goes_away_with_much_pipelined_stops_its_call() -> None:
    """Nobody who waits for an answer sends this much ahead: the connection is ended, and the call with it."""
    async with over_http() as (bench, http):
        connection = await Connection.open(http.port)
        await connection.send(modern_http(call("wait")))
        await until(lambda: bench.started, "the call is at work")
        ahead = modern_http(call("add", {"a": 1, "b": 2}))
        await connection.send(ahead * (600 * 1024 // len(ahead)))
        connection.vanish()
        await connection.close()
        try:
            await until(lambda: bench.stopped, "the handler has heard")
        finally:
            for exchange in tuple(http.engine.running_calls.open):
                exchange.cancel()


async def test_a_legacy_client_that_goes_away_does_not_stop_its_call() -> None:
    """Spec, legacy: a disconnect is not a cancellation."""
    async with over_http() as (bench, http):
        session = await open_session(http.port)
        connection = await Connection.open(http.port)
        await connection.send(legacy_http(legacy_call("wait", {"noisy": True}, 7, "t"), session))
        await connection.head()
        await connection.close()
        await until(lambda: bench.started, "the call is at work")
        await assert_serves(http.port)
        assert not bench.stopped
        async with await Connection.open(http.port) as other:
            assert (await other.ask(legacy_http(cancelled(7), session))).status == 202
        await until(lambda: bench.stopped, "the handler has heard")


@pytest.mark.parametrize("noisy", [False, True])
async def test_a_legacy_cancel_notice_over_http_ends_the_reply_without_a_message(noisy: bool) -> None:
    async with over_http() as (bench, http):
        session = await open_session(http.port)
        async with await Connection.open(http.port) as connection, await Connection.open(http.port) as other:
            await connection.send(legacy_http(legacy_call("wait", {"noisy": noisy}, 7, "t"), session))
            await until(lambda: bench.started, "the call is at work")
            assert (await other.ask(legacy_http(cancelled(7), session))).status == 202
            reply = await connection.reply()
            assert reply.status == 200
            assert reply.complete
            if noisy:
                assert [m["method"] for m in reply.messages] == ["notifications/progress"]
            else:
                assert reply.body == b""
            await until(lambda: bench.stopped, "the handler has heard")


@pytest.mark.parametrize("wrong", [None, [7], {"a": 1}, 7.5, True, "7", 99])
async def test_a_malformed_legacy_cancel_notice_over_http_is_accepted_and_ignored(wrong: Any) -> None:
    async with over_http() as (bench, http):
        session = await open_session(http.port)
        async with await Connection.open(http.port) as connection, await Connection.open(http.port) as other:
            await connection.send(legacy_http(legacy_call("eventually", {}, 1), session))
            await until(lambda: bench.started, "the call is at work")
            try:
                reply = await other.ask(legacy_http(cancelled(wrong), session))
            except EOFError:
                reply = None
            bench.release.set()
            assert (await connection.reply()).json["result"]["content"][0]["text"] == "done"
            assert reply is not None, "the connection was closed without an answer"
            assert reply.status == 202


async def test_a_legacy_cancel_notice_that_overtakes_its_call_still_counts() -> None:
    async with over_http() as (bench, http):
        session = await open_session(http.port)
        async with await Connection.open(http.port) as connection:
            assert (await connection.ask(legacy_http(cancelled(7), session))).status == 202
            reply = await connection.ask(legacy_http(legacy_call("wait", {}, 7), session))
            assert (reply.status, reply.body) == (200, b"")
            await until(lambda: bench.stopped, "the handler has heard")


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_child_is_silent_about_what_was_cancelled(era: str) -> None:
    with Child("stdio") as child:
        if era == "legacy":
            child.ask(initialize())
            child.send(INITIALIZED)
        make: Any = call if era == "modern" else legacy_call
        child.send(make("nap", {"seconds": 60}, 7))
        wait = {"seen": 0}
        for n in range(200):
            wait = child.ask(make("gauges", {}, f"g{n}"))["result"]["structuredContent"]
            if wait["tasks"] > 3:
                break
        child.send(cancelled(7))
        for n in range(200):
            wait = child.ask(make("gauges", {}, f"h{n}"))["result"]["structuredContent"]
            if wait["ended"]:
                break
        assert wait["ended"] == 1
        child.end_input()
        assert child.wait() == 0
        assert b'"id":7' not in child.everything()


# --- by time ---------------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("noisy", [False, True])
async def test_a_call_out_of_time_is_answered_once(era: str, noisy: bool, stuck: float) -> None:
    """Also after the moment at which a stuck handler would be answered for."""
    async with over_memory(era) as (bench, channel):
        await channel.call("slow", {"noisy": noisy}, 7, token="t")
        if noisy:
            assert "method" in await channel.receive()
        first = await channel.receive()
        assert "took longer than 0.1 s" in first["error"]["message"]
        assert bench.stopped == ["timeout"]
        with pytest.raises(TimeoutError):
            again = await channel.receive(stuck + 0.3)
            pytest.fail(f"the same request was answered again: {again}")


@pytest.mark.parametrize("noisy", [False, True])
async def test_a_modern_http_call_out_of_time_is_answered_and_the_connection_goes_on(noisy: bool) -> None:
    async with over_http() as (_, http), await Connection.open(http.port) as connection:
        reply = await connection.ask(modern_http(call("slow", {"noisy": noisy}, 7, progressToken="t")))
        message = reply.messages[-1] if noisy else reply.json
        assert message["id"] == 7
        assert "took longer than 0.1 s" in message["error"]["message"]
        reply = await connection.ask(modern_http(call("add", {"a": 1, "b": 2})))
        assert reply.json["result"]["structuredContent"] == 3


@ERAS
async def test_the_servers_own_limit_holds_for_tools_without_one(era: str) -> None:
    async with over_memory(era, request_timeout=0.1) as (bench, channel):
        await channel.call("wait", {}, 7)
        assert "took longer than 0.1 s" in (await channel.receive())["error"]["message"]
        assert bench.stopped == ["cancelled"]


@ERAS
async def test_a_handler_that_swallows_its_cancellation_is_answered_for_once(era: str, stuck: float) -> None:
    """Ours: the client hears of it STUCK_SECONDS after its time, and never again."""
    async with over_memory(era) as (bench, channel):
        started = time.monotonic()
        await channel.call("deaf", {}, 7)
        message = await channel.receive()
        assert "took longer" in message["error"]["message"]
        assert stuck <= time.monotonic() - started < stuck + 15
        bench.release.set()
        assert await channel.rest() == [], "a second answer for the same id"


async def test_a_stuck_handler_is_answered_for_two_seconds_after_its_time() -> None:
    async with over_memory("modern") as (bench, channel):
        started = time.monotonic()
        await channel.call("deaf", {}, 7)
        assert "took longer" in (await channel.receive())["error"]["message"]
        assert 2.0 <= time.monotonic() - started < 20
        bench.release.set()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_stuck_handler_does_not_take_its_connection_with_it(era: str, stuck: float) -> None:
    """Once answered, the client sends its next request on the same connection: it is served, or told to open another."""
    async with over_http() as (bench, http), await Connection.open(http.port) as connection:
        try:
            if era == "modern":
                request, following = modern_http(call("deaf", {}, 7)), modern_http(call("add", {"a": 1, "b": 2}))
            else:
                session = await open_session(http.port)
                request = legacy_http(legacy_call("deaf", {}, 7), session)
                following = legacy_http(legacy_call("add", {"a": 1, "b": 2}), session)
            reply = await connection.ask(request)
            assert "took longer" in reply.json["error"]["message"]
            await connection.send(following)
            try:
                async with asyncio.timeout(PATIENCE):
                    reply = await connection.reply()
                    assert reply.json["result"]["structuredContent"] in (3, {"result": 3})
            except (EOFError, ConnectionError):
                pass
        finally:
            bench.release.set()


async def test_a_plain_tool_out_of_time_sees_it_and_its_thread_ends() -> None:
    async with over_memory("modern", request_timeout=0.1) as (bench, channel):
        await channel.call("thread", {}, 7)
        assert "took longer" in (await channel.receive())["error"]["message"]
        await until(bench.thread_saw.is_set, "the thread has seen it")


@ERAS
async def test_a_cancelled_plain_tool_sees_it_and_its_thread_ends(era: str) -> None:
    async with over_memory(era) as (bench, channel):
        await channel.call("thread", {}, 7)
        await until(bench.thread_started.is_set, "the tool runs")
        await channel.send(cancelled(7))
        await until(bench.thread_saw.is_set, "the thread has seen it")
        assert await channel.rest() == []


# --- at every await --------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("stage", range(12))
async def test_cancellation_at_any_await_leaves_no_task_behind(era: str, stage: int) -> None:
    server = Server("awaits", version="1")
    reached = asyncio.Event()
    clean: list[str] = []
    here = 0

    async def gate() -> None:
        "The n-th await of the handler is the one that waits for ever."
        nonlocal here
        here += 1
        if here - 1 == stage:
            reached.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    @server.tool
    async def handler(ctx: Context) -> str:
        try:
            await gate()
            await ctx.progress(1)
            await gate()
            async with asyncio.TaskGroup() as group:
                group.create_task(gate())
                group.create_task(gate())
            await asyncio.gather(gate(), gate())
            async with asyncio.timeout(60):
                await gate()
            await asyncio.wait_for(gate(), 60)
            await asyncio.shield(asyncio.ensure_future(asyncio.sleep(0)))
            await ctx.step("step", gate)
            for _ in range(3):
                await gate()
            await ctx.log("error", "almost")
            return "done"
        finally:
            await asyncio.sleep(0)
            clean.append("up")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    before = asyncio.all_tasks()
    bench: Any = type("B", (), {"server": server})
    channel = Channel(bench, era)
    if era == "legacy":
        await channel.send(initialize())
        await channel.receive()
        await channel.send(INITIALIZED)
    await channel.call("handler", {}, 7)
    await soon(reached.wait())
    await channel.send(cancelled(7))
    await until(lambda: clean, "the handler has cleaned up")
    await until(lambda: asyncio.all_tasks() <= before, "no task is left")
    assert await channel.rest() == []
    await channel.channel.close()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_session_or_listen_stream_that_is_cancelled_leaves_nothing(era: str) -> None:
    async with over_memory(era) as (bench, channel):
        base = len(bench.server.runtime.changes)
        for n in range(20):
            await channel.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, n))
            assert (await channel.receive())["method"] == "notifications/subscriptions/acknowledged"
        assert len(bench.server.runtime.changes) == base + 20
        for n in range(20):
            await channel.send(cancelled(n))
        await until(lambda: len(bench.server.runtime.changes) == base, "the streams are gone")
        assert await channel.rest() == []
