"""The thread pool: our own, bounded, honest about being full (P46)."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran.errors import ProtocolError
from trimaran.server.threads import ThreadPool


async def test_a_job_runs_elsewhere_and_its_value_comes_back() -> None:
    def job(a: int, b: int = 0) -> tuple[int, int]:
        return a + b, threading.get_ident()

    value, ident = await soon(ThreadPool(2).submit(job, {"a": 1, "b": 2}))
    assert value == 3
    assert ident != threading.get_ident()


async def test_an_exception_comes_back_as_it_is() -> None:
    error = ValueError("x")

    def job() -> None:
        raise error

    with pytest.raises(ValueError, match="x") as caught:
        await soon(ThreadPool(1).submit(job, {}))
    assert caught.value is error


@pytest.mark.parametrize("kind", [StopIteration, KeyboardInterrupt, SystemExit])
async def test_what_would_confuse_the_loop_is_wrapped(kind: type[BaseException]) -> None:
    def job() -> None:
        raise kind

    with pytest.raises(RuntimeError, match=kind.__name__):
        await soon(ThreadPool(1).submit(job, {}))


async def test_the_pool_grows_by_need_up_to_its_size() -> None:
    pool, gate = ThreadPool(2), threading.Event()
    started: list[int] = []

    def job() -> None:
        started.append(threading.get_ident())
        gate.wait(5)

    futures = [pool.submit(job, {}) for _ in range(3)]
    await until(lambda: len(started) == 2)
    assert pool.waiting == 1
    assert pool._threads == 2
    gate.set()
    await soon(asyncio.gather(*futures))
    assert len(set(started)) == 2


async def test_a_free_thread_is_used_again() -> None:
    pool = ThreadPool(8)
    idents: set[int] = set()
    for _ in range(5):
        idents.add(await soon(pool.submit(threading.get_ident, {})))
        await until(lambda: pool._free == pool._threads)
    assert len(idents) == 1


async def test_a_full_pool_says_so_instead_of_queueing_for_ever() -> None:
    """P46: 503, and a reason."""
    pool, gate = ThreadPool(1, max_waiting=1), threading.Event()
    running = threading.Event()

    def job() -> None:
        running.set()
        gate.wait(5)

    first = pool.submit(job, {})
    await until(running.is_set)
    second = pool.submit(gate.wait, {"timeout": 5})
    with pytest.raises(ProtocolError, match="busy") as caught:
        pool.submit(job, {})
    assert (caught.value.code, caught.value.status) == (-32603, 503)
    gate.set()
    await soon(asyncio.gather(first, second))


async def test_a_cancelled_wait_ends_at_once_and_the_result_is_dropped() -> None:
    """R66."""
    pool, gate, done = ThreadPool(1), threading.Event(), threading.Event()

    def job() -> str:
        gate.wait(5)
        done.set()
        return "dropped"

    future = pool.submit(job, {})
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await future
    gate.set()
    await until(lambda: done.is_set() or pool._free)


async def test_a_job_cancelled_before_it_began_never_runs() -> None:
    pool, gate = ThreadPool(1), threading.Event()
    ran: list[int] = []
    first = pool.submit(gate.wait, {"timeout": 5})
    second = pool.submit(lambda: ran.append(1), {})
    second.cancel()
    gate.set()
    await soon(first)
    await soon(pool.submit(lambda: None, {}))
    assert ran == []


async def test_a_job_runs_in_a_copy_of_the_callers_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("outer")

    def job() -> str:
        before = variable.get()
        variable.set("inner")
        return before

    assert await soon(ThreadPool(1).submit(job, {})) == "outer"
    assert variable.get() == "outer"


async def test_threads_are_daemons_with_a_name() -> None:
    thread: Any = await soon(ThreadPool(1).submit(threading.current_thread, {}))
    assert thread.daemon
    assert thread.name.startswith("trimaran-")


async def test_a_thread_that_has_nothing_to_do_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    from trimaran.server import threads

    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.01)
    pool = ThreadPool(2)
    await soon(pool.submit(lambda: None, {}))
    await until(lambda: pool._threads == 0)
    assert pool._free == 0
    assert await soon(pool.submit(lambda: "again", {})) == "again"


def test_a_loop_that_closed_meanwhile_hurts_nobody() -> None:
    pool, gate, ended = ThreadPool(1), threading.Event(), threading.Event()

    def job() -> None:
        gate.wait(5)

    async def begin() -> None:
        pool.submit(job, {})

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    gate.set()

    async def again() -> None:
        await soon(pool.submit(ended.set, {}))

    asyncio.run(again())
    assert ended.is_set()
