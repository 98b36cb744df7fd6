"""Plain `def` handlers: more calls than threads, calls that never end, what threads see and raise."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

import trimaran.server.threads as threads
from trimaran import Context, Server, ToolError
from trimaran.errors import ProtocolError
from trimaran.serve import HttpServer
from trimaran.server.threads import ThreadPool

from .rig import Connection, Reply, call, modern_http, until


def pool_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("trimaran-")]


def text(reply: Reply) -> str:
    return reply.json["result"]["content"][0]["text"]


async def soon(awaitable: Any, seconds: float = 5.0) -> Any:
    async with asyncio.timeout(seconds):
        return await awaitable


async def test_more_calls_than_threads_all_finish() -> None:
    server = Server("many", tool_threads=4)

    @server.tool
    def work(n: int) -> int:
        time.sleep(0.001)
        return n

    results = await soon(asyncio.gather(*(server.call_tool("work", {"n": i}) for i in range(300))), 20)
    assert [r.structured_content for r in results] == list(range(300))
    assert server.threads.waiting == 0


async def test_a_pool_whose_threads_went_home_serves_again_after_a_rush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rush beyond the number of threads, then a quiet time in which the threads end, then a call: it must run."""
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.05)
    before = len(pool_threads())
    pool = ThreadPool(2)
    gate = threading.Event()
    waiting = [pool.submit(gate.wait, {"timeout": 5}) for _ in range(10)]
    gate.set()
    assert await soon(asyncio.gather(*waiting)) == [True] * 10
    await until(lambda: len(pool_threads()) <= before, "the idle threads have ended")
    assert await soon(pool.submit(lambda: "served", {}), 3) == "served"


async def test_the_pool_counts_its_free_threads() -> None:
    pool = ThreadPool(2)
    assert await soon(asyncio.gather(*(pool.submit(lambda: 1, {}) for _ in range(50)))) == [1] * 50
    await until(lambda: pool._free == 2 or pool._free > 2, "the threads are free")
    assert pool._free <= pool._threads


async def test_the_queue_is_bounded_also_after_a_rush() -> None:
    """The bound on waiting calls holds every time, not only the first."""
    pool = ThreadPool(1, max_waiting=5)

    async def rush() -> int:
        gate = threading.Event()
        running = threading.Event()
        taken = [pool.submit(lambda: (running.set(), gate.wait(5)), {})]
        refused = 0
        try:
            await until(running.is_set, "the only thread is at work")
            for _ in range(20):
                try:
                    taken.append(pool.submit(lambda: None, {}))
                except ProtocolError as error:
                    assert (error.status, error.code) == (503, -32603)
                    assert "busy" in error.message
                    refused += 1
        finally:
            gate.set()
        await soon(asyncio.gather(*taken))
        return refused

    assert [await rush(), await rush()] == [15, 15]


@pytest.mark.slow
@pytest.mark.deadline(60)
async def test_a_thread_that_leaves_does_not_take_a_job_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that arrive just as an idle thread gives up are still done."""
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.001)
    pool = ThreadPool(1)
    lost = 0
    for i in range(1500):
        future = pool.submit(lambda: 1, {})
        try:
            await soon(future, 1)
        except TimeoutError:
            lost += 1
            if lost == 3:
                break
        # Come back right around the moment the thread loses its patience.
        end = time.perf_counter() + 0.00096 + (i % 40) * 0.000002
        while time.perf_counter() < end:
            pass
    assert not lost


async def test_the_busy_error_reaches_the_client_as_503() -> None:
    server = Server("busy", tool_threads=1)
    server.threads.max_waiting = 1
    gate = threading.Event()

    @server.tool
    def wait() -> str:
        gate.wait(10)
        return "done"

    async with HttpServer(server, port=0) as http:
        open_ = [await Connection.open(http.port) for _ in range(3)]
        try:
            for i, connection in enumerate(open_[:2]):
                await connection.send(modern_http(call("wait", {}, i)))
                await until(lambda i=i: len(http.engine.flights) == i + 1, "the call is at work")
            await until(lambda: server.threads.waiting == 1, "the second call waits")
            refused = await open_[2].ask(modern_http(call("wait", {}, 2)))
            assert (refused.status, refused.json["error"]["code"]) == (503, -32603), refused
            assert "busy" in refused.json["error"]["message"]
            assert "retry-after" in refused.headers, "a 503 says when to come back"
            gate.set()
            for connection in open_[:2]:
                assert text(await connection.reply()) == "done"
        finally:
            gate.set()
            for connection in open_:
                await connection.close()


async def test_a_tool_that_blocks_for_good_costs_its_thread_and_no_more() -> None:
    server = Server("block", tool_threads=2, request_timeout=0.2)
    gate = threading.Event()

    @server.tool
    def block() -> None:
        gate.wait(20)

    @server.tool
    def work(n: int) -> int:
        return n

    try:
        async with HttpServer(server, port=0) as http, await Connection.open(http.port) as stuck:
            await stuck.send(modern_http(call("block")))
            await until(lambda: len(http.engine.flights), "the call is at work")
            async with await Connection.open(http.port) as other:
                for i in range(20):
                    reply = await other.ask(modern_http(call("work", {"n": i}, i)))
                    assert reply.json["result"]["structuredContent"] == i
            # Its own client is told when its time is over, though the thread goes on.
            assert "took longer" in (await stuck.reply()).json["error"]["message"]
            started = time.monotonic()
        assert time.monotonic() - started < 3, "a blocked thread held up the shutdown"
    finally:
        gate.set()


async def test_context_variables_reach_the_thread_and_do_not_leak_back() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    server = Server("vars")

    @server.middleware
    async def name(call_: Any, call_next: Any) -> Any:
        who.set(f"caller {call_.id}")
        return await call_next(call_)

    @server.tool
    def whoami() -> str:
        seen = who.get()
        who.set("the tool")
        return seen

    async with HttpServer(server, port=0) as http, await Connection.open(http.port) as connection:
        for i in range(10):
            reply = await connection.ask(modern_http(call("whoami", {}, i)))
            assert text(reply) == f"caller {i}"
    assert who.get() == "nobody"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("v"),
        StopIteration("s"),
        KeyboardInterrupt(),
        SystemExit(3),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
)
async def test_whatever_a_thread_raises_is_that_calls_failure(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("raise")

    @server.tool
    def fail() -> str:
        raise error

    @server.tool
    def refuse() -> str:
        raise ToolError("not today")

    async with HttpServer(server, port=0) as http, await Connection.open(http.port) as connection:
        reply = await connection.ask(modern_http(call("fail")))
        assert reply.status == 200, reply
        assert reply.json["result"]["isError"] is True, reply
        assert "error" in reply.json["result"]["content"][0]["text"]
        reply = await connection.ask(modern_http(call("refuse")))
        assert reply.json["result"]["content"][0]["text"] == "not today"


async def test_a_cancelled_call_that_still_waits_for_a_thread_never_runs() -> None:
    pool = ThreadPool(1)
    gate = threading.Event()
    ran: list[int] = []
    first = pool.submit(gate.wait, {"timeout": 5})
    second = pool.submit(ran.append, {})
    third = pool.submit(lambda: "third", {})
    second.cancel()
    gate.set()
    assert await soon(third) == "third"
    assert await soon(first)
    assert not ran


async def test_a_plain_tool_sees_that_it_is_cancelled_and_its_thread_is_free_again() -> None:
    server = Server("see", tool_threads=1)
    seen = threading.Event()
    started = threading.Event()

    @server.tool
    def patient(ctx: Context) -> str:
        started.set()
        deadline = time.monotonic() + 5
        while not ctx.cancelled and time.monotonic() < deadline:
            time.sleep(0.002)
        if ctx.cancelled:
            seen.set()
        return "x"

    @server.tool
    def work(n: int) -> int:
        return n

    async with HttpServer(server, port=0) as http:
        connection = await Connection.open(http.port)
        await connection.send(modern_http(call("patient")))
        await until(started.is_set, "the tool runs")
        await connection.close()
        await until(seen.is_set, "the tool has seen it", 2)
        async with await Connection.open(http.port) as other:
            reply = await other.ask(modern_http(call("work", {"n": 1})))
            assert reply.json["result"]["structuredContent"] == 1
