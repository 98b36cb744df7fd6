"""Plain `def` handlers: more calls than threads, calls that never end, what threads see and raise."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import (
    Connection,
    Reply,
    ask,
    assert_serves,
    call,
    http,
    legacy_call,
    legacy_http,
    modern,
    modern_http,
    open_session,
)
from tests.support.until import PATIENCE, soon, until

import trimaran.server.threads as threads
from trimaran import Context, Server, ToolError
from trimaran.auth import Custom
from trimaran.errors import ProtocolError
from trimaran.serve import HttpServer
from trimaran.server.threads import ThreadPool
from trimaran.transports import health


def get(path: str) -> bytes:
    return http(b"", {}, "GET", path)


def pool_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("trimaran-")]


def text(reply: Reply) -> str:
    return reply.json["result"]["content"][0]["text"]


async def test_more_calls_than_threads_all_finish() -> None:
    server = Server("many", tool_threads=4)

    @server.tool
    def work(n: int) -> int:
        time.sleep(0.001)
        return n

    results = await soon(asyncio.gather(*(server.call_tool("work", {"n": i}) for i in range(300))), 20)
    assert [r.structured_content for r in results] == list(range(300))
    assert server.runtime.threads.waiting == 0


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
    assert await soon(pool.submit(lambda: "served", {})) == "served"


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
    server.runtime.threads.max_waiting = 1
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
                await until(lambda i=i: len(http.engine.running_calls) == i + 1, "the call is at work")
            await until(lambda: server.runtime.threads.waiting == 1, "the second call waits")
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
            await until(lambda: len(http.engine.running_calls), "the call is at work")
            async with await Connection.open(http.port) as other:
                for i in range(20):
                    reply = await other.ask(modern_http(call("work", {"n": i}, i)))
                    assert reply.json["result"]["structuredContent"] == i
            # Its own client is told when its time is over, though the thread goes on.
            assert "took longer" in (await stuck.reply()).json["error"]["message"]
            started = time.monotonic()
        assert time.monotonic() - started < 15, "a blocked thread held up the shutdown"
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
        await until(seen.is_set, "the tool has seen it")
        async with await Connection.open(http.port) as other:
            reply = await other.ask(modern_http(call("work", {"n": 1})))
            assert reply.json["result"]["structuredContent"] == 1


# --- threads that hang ------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def hung(server: Server, **options: Any) -> AsyncIterator[HttpServer]:
    """A server all of whose threads hang in `hang`, beside tools of both kinds, a resource, a prompt and a completion."""
    gate = threading.Event()

    @server.tool(timeout=60)
    def hang() -> str:
        gate.wait(60)
        return "done"

    @server.tool
    def plain() -> str:
        return "plain"

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.resource("tide://now")
    def tide() -> str:
        return "high"

    @server.prompt
    def advise(name: str) -> str:
        return name

    @server.completion(prompt="advise", argument="name")
    def complete(value: str) -> list[str]:
        return [value]

    async with HttpServer(server, port=0, **options) as http:
        calls = [
            asyncio.ensure_future(ask(http.port, modern_http(call("hang")))) for _ in range(server.runtime.threads.size)
        ]
        try:
            await until(
                lambda: len(server.runtime.threads._running) == server.runtime.threads.size, "every thread hangs"
            )
            yield http
        finally:
            gate.set()
            await asyncio.gather(*calls)


PLAIN: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "plain", "arguments": {}}),
    ("resources/read", {"uri": "tide://now"}),
    ("prompts/get", {"name": "advise", "arguments": {"name": "x"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "advise"}, "argument": {"name": "name", "value": "x"}},
    ),
]


async def test_a_call_that_never_had_a_thread_is_told_so_and_may_come_back() -> None:
    """Not that it took too long: it has not begun, so it can be made again. What is async does not notice."""
    server = Server("hung", tool_threads=3, request_timeout=0.3)
    async with hung(server) as http:
        for method, params in PLAIN:
            reply = await ask(http.port, modern_http(modern(method, params)))
            assert reply.status == 503 and "retry-after" in reply.headers, reply
            words = f"{method} was not started within 0.3 s: all 3 threads of the server are busy"
            assert words in reply.json["error"]["message"]
            await assert_serves(http.port)
        session = await open_session(http.port)
        reply = await ask(http.port, legacy_http(legacy_call("plain"), session))
        assert reply.status == 503 and "was not started" in reply.json["error"]["message"]
        assert server.runtime.threads.waiting == 0, "who has left is not in the queue"
    result = await server.call_tool("plain", {})
    assert not result.is_error, "the threads are free again"


async def test_a_call_without_a_session_that_never_had_a_thread_is_told_so() -> None:
    server = Server("hung", tool_threads=1, request_timeout=0.3)
    async with hung(server, require_session=False) as http:
        reply = await ask(http.port, legacy_http(legacy_call("plain")))
        assert reply.status == 503 and "was not started" in reply.json["error"]["message"]


@pytest.mark.slow
async def test_a_call_that_had_its_thread_late_is_told_how_long_it_waited() -> None:
    server = Server("late", tool_threads=1)
    go = threading.Event()
    gate = threading.Event()

    @server.tool(timeout=60)
    def first() -> None:
        go.wait(60)

    @server.tool(timeout=2)
    def slow() -> None:
        gate.wait(60)

    try:
        async with HttpServer(server, port=0) as http:
            before = asyncio.ensure_future(ask(http.port, modern_http(call("first"))))
            await until(lambda: server.runtime.threads.busy, "the thread is taken")
            late = asyncio.ensure_future(ask(http.port, modern_http(call("slow"))))
            await until(lambda: server.runtime.threads.waiting, "the other waits for it")
            go.set()
            message = (await late).json["error"]["message"]
            words = r"tools/call took longer than 2 s, \d\.\d s of it waiting for a thread, and was stopped"
            assert re.fullmatch(words, message), message
            await before
    finally:
        go.set()
        gate.set()


async def test_threads_that_hang_show_in_health_gauges_and_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "STALLED_SECONDS", 0.0)
    monkeypatch.setattr(health, "STALLED_SECONDS", 0.0)
    server = Server("hung", tool_threads=2, request_timeout=0.1)
    async with hung(server, gauges=True) as http:
        for _ in range(3):
            await ask(http.port, modern_http(call("plain")))
        reply = await ask(http.port, get("/readyz"))
        assert (reply.status, reply.json) == (
            200,
            {"status": "degraded", "reason": "all threads for plain functions are busy"},
        )
        gauges = (await ask(http.port, get("/gauges"))).json
        assert (gauges["threads"], gauges["threads_busy"], gauges["queue_depth"]) == (2, 2, 0)
        told = [record.message for record in caplog.records if "are busy" in record.message]
        assert len(told) == 1, "once, however many wait"
        assert "hang for" in told[0] and "raise tool_threads" in told[0]
    await until(lambda: server.runtime.threads.busy == 0, "the threads are free")
    assert server.runtime.threads.stalled == 0.0


async def test_calls_that_were_given_up_leave_their_places_to_others() -> None:
    """Else a thousand who have left would keep out everyone who comes, until a thread is free."""
    pool = ThreadPool(1, max_waiting=2)
    gate = threading.Event()
    first = pool.submit(gate.wait, {"timeout": 30})
    for _ in range(10):
        queued = [pool.submit(lambda: 1, {}) for _ in range(2)]
        for future in queued:
            future.cancel()
        await asyncio.wait(queued)
        await until(lambda: pool.waiting == 0, "nobody waits")
    gate.set()
    assert await soon(first)


async def test_a_thread_that_cannot_be_started_costs_no_place_in_the_pool(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As under a limit on processes. With one thread there, jobs wait for it; with none, they are refused."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = ThreadPool(4)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ProtocolError, match="cannot start a thread") as caught:
        pool.submit(lambda: 1, {})
    assert caught.value.status == 503
    monkeypatch.setattr(threading.Thread, "start", start)
    gate = threading.Event()
    first = pool.submit(gate.wait, {"timeout": 30})
    monkeypatch.setattr(threading.Thread, "start", refuse)
    others = [pool.submit(lambda n=n: n, {}) for n in range(5)]
    assert (pool.busy, pool.waiting) == (1, 5)
    gate.set()
    assert await soon(asyncio.gather(first, *others)) == [True, 0, 1, 2, 3, 4]
    assert len([record for record in caplog.records if "raise the limit of processes" in record.message]) == 1


HANGING = """
import asyncio, sys, time
from trimaran import Server
from trimaran.auth import Custom

server = Server("hanging", version="1")

def hang():
    print("hanging", flush=True, file=sys.stderr)
    time.sleep(600)

@server.tool
async def call() -> str:
    await asyncio.to_thread(hang)
    return "never"

def check(token, state):
    hang()

options = {"auth": Custom(authenticate=check)} if sys.argv[2] == "auth" else {}
server.run("http", port=int(sys.argv[1]), on_ready=lambda http: print("ready", flush=True, file=sys.stderr), **options)
print("over", flush=True, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["tool", "auth"])
def test_a_function_that_hangs_in_a_thread_does_not_keep_the_process_from_ending(
    where: str, tmp_path: Path, free_port: int
) -> None:
    file = tmp_path / "hanging.py"
    file.write_text(HANGING)
    command = [sys.executable, str(file), str(free_port), where]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == "ready\n"
            with socket.create_connection(("127.0.0.1", free_port)) as client:
                client.sendall(modern_http(call("call"), Authorization="Bearer x"))
                assert process.stderr.readline() == "hanging\n"
                process.terminate()
                assert process.wait(PATIENCE) == 0
            left = process.stderr.read()
        finally:
            process.kill()
    if where == "tool":
        assert "1 functions still run in threads (asyncio.to_thread)" in left
    assert left.endswith("over\n"), "what stands after run() is done"


async def test_a_verdict_that_never_comes_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain function that hangs over a credential keeps its thread, and not its caller."""
    monkeypatch.setattr("trimaran.auth.provider._VERDICT_SECONDS", 0.2)
    gate = threading.Event()
    server = Server("slow to trust", version="1")

    def check(token: str, state: Any) -> bool:
        if token == "slow":
            gate.wait(60)
        return True

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    try:
        async with HttpServer(server, port=0, auth=Custom(authenticate=check)) as http:
            message = modern_http(call("add", {"a": 1, "b": 2}), Authorization="Bearer slow")
            assert (await ask(http.port, message)).status == 503
            message = modern_http(call("add", {"a": 1, "b": 2}), Authorization="Bearer quick")
            assert (await ask(http.port, message)).status == 200
    finally:
        gate.set()
