"""How long a call waits: expiry, progress, people, giving up, and who cancelled whom (protocol.md 3.6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.clock import SkippingClock
from tests.support.until import PATIENCE

from trimaran import Context, connect, errors
from trimaran.client.deadline import Deadline, DeadlineExpired
from trimaran.errors import CallCancelled
from trimaran.server.server import Server


@pytest.fixture(autouse=True)
async def clock(monkeypatch: pytest.MonkeyPatch) -> SkippingClock:
    clock = SkippingClock(asyncio.get_running_loop(), monkeypatch)
    monkeypatch.setattr("trimaran.client.deadline.monotonic", clock)
    return clock


async def forever() -> None:
    await asyncio.Event().wait()


async def elapsed(patience: Deadline, wait: Any = forever) -> float:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(DeadlineExpired):
        with patience:
            await wait()
    return loop.time() - begun


async def test_it_ends_when_the_time_is_up() -> None:
    patience = Deadline(0.03, None)
    assert 0.025 <= await elapsed(patience) < 0.5
    assert patience.limit == 0.03
    assert patience.reason == "the deadline has passed"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_what_is_done_in_time_is_not_disturbed() -> None:
    with Deadline(0.02, None):
        await asyncio.sleep(0)
    await asyncio.sleep(0.04)


async def test_no_limit_is_no_limit() -> None:
    with Deadline(None, None):
        await asyncio.sleep(0.01)


async def test_progress_extends_the_wait() -> None:
    patience = Deadline(0.06, 10.0)

    async def wait() -> None:
        for _ in range(4):
            await asyncio.sleep(0.03)
            patience.extend()
        await forever()

    assert await elapsed(patience, wait) >= 0.17
    assert patience.limit == 0.06


async def test_progress_extends_it_to_the_maximum_and_no_further() -> None:
    patience = Deadline(0.04, 0.1)

    async def wait() -> None:
        while True:
            await asyncio.sleep(0.01)
            patience.extend()

    assert 0.09 <= await elapsed(patience, wait) < 0.4
    assert patience.limit == 0.1


async def test_the_maximum_holds_from_the_start() -> None:
    """A hard maximum below the soft limit is the limit."""
    patience = Deadline(3.0, 0.03)
    assert await elapsed(patience) < 1.0
    assert patience.limit == 0.03


async def test_a_maximum_needs_no_soft_limit() -> None:
    patience = Deadline(None, 0.03)

    async def wait() -> None:
        await asyncio.sleep(1.0)

    assert await elapsed(patience, wait) < 0.9


async def test_a_pause_stops_the_clock() -> None:
    patience = Deadline(0.04, 10.0)

    async def wait() -> None:
        patience.pause()
        await asyncio.sleep(0.1)
        patience.resume()
        await forever()

    assert await elapsed(patience, wait) >= 0.13


async def test_pauses_nest() -> None:
    patience = Deadline(0.03, 10.0)

    async def wait() -> None:
        patience.pause()
        patience.pause()
        patience.resume()
        await asyncio.sleep(0.08)
        patience.extend()
        await asyncio.sleep(0.05)
        patience.resume()
        await forever()

    assert await elapsed(patience, wait) >= 0.15


async def test_a_pause_is_not_counted_against_the_maximum() -> None:
    patience = Deadline(0.05, 0.1)

    async def wait() -> None:
        patience.pause()
        await asyncio.sleep(0.15)
        patience.resume()
        for _ in range(2):
            await asyncio.sleep(0.03)
            patience.extend()
        await forever()

    assert 0.22 <= await elapsed(patience, wait) < 0.8


async def test_asking_again_and_again_does_not_get_around_the_maximum() -> None:
    """protocol.md 3.6: hard maximum. Each question of the server's restarts the soft limit only."""
    patience = Deadline(0.05, 0.1)

    async def wait() -> None:
        for _ in range(40):
            await asyncio.sleep(0.02)
            patience.pause()
            patience.resume()

    assert await elapsed(patience, wait) < 0.5


async def test_giving_up_by_hand_names_the_reason() -> None:
    patience = Deadline(None, None)
    with pytest.raises(CallCancelled, match="enough"):
        with patience:
            asyncio.get_running_loop().call_soon(patience.cancel, "enough")
            await forever()
    assert patience.reason == "enough"
    with pytest.raises(CallCancelled):
        with Deadline(None, None) as other:
            asyncio.get_running_loop().call_soon(other.cancel)
            await forever()


async def test_the_first_end_counts() -> None:
    patience = Deadline(None, None)
    with pytest.raises(ZeroDivisionError):
        with patience:
            loop = asyncio.get_running_loop()
            loop.call_soon(patience.end, ZeroDivisionError())
            loop.call_soon(patience.cancel, "too late")
            await forever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_somebody_elses_cancellation_passes_through() -> None:
    async def call() -> None:
        with Deadline(5.0, None):
            await forever()

    task = asyncio.ensure_future(call())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@pytest.mark.parametrize("first", ["ours", "theirs"])
async def test_somebody_elses_cancellation_wins_when_both_come_at_once(first: str) -> None:
    patience = Deadline(None, None)

    async def call() -> None:
        with patience:
            await forever()

    task = asyncio.ensure_future(call())
    await asyncio.sleep(0)
    if first == "ours":
        patience.cancel()
        task.cancel()
    else:
        task.cancel()
        patience.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_works_inside_a_timeout_of_the_callers() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            with Deadline(5.0, None):
                await forever()
    with pytest.raises(DeadlineExpired):
        async with asyncio.timeout(PATIENCE):
            with Deadline(0.02, None):
                await forever()


async def test_another_error_on_the_way_out_is_kept() -> None:
    with pytest.raises(ZeroDivisionError):
        with Deadline(None, None) as patience:
            patience.cancel()
            try:
                await forever()
            except asyncio.CancelledError:
                raise ZeroDivisionError from None
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_call_given_up_in_its_own_task_leaves_no_cancellation_behind() -> None:
    """In memory the call is served in the caller's task: giving up from there must not strike the caller's next wait."""
    server = Server("s", version="1")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, 2)
        return "done"

    async with connect(server) as client:

        def on_progress(*report: Any) -> None:
            for id in client.requests:
                assert client.cancel(id)

        with pytest.raises(errors.CallCancelled):
            await client.call_tool("work", on_progress=on_progress)
        await asyncio.sleep(0.001)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
