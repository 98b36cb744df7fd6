"""What many logs hold together is bounded; whoever holds most gives up first."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.redis import RedisServer

from trimaran.state import MemoryStore, RedisStore, SqliteStore, Store
from trimaran.state.byte_budget import ByteBudget
from trimaran.state.contracts import EventWrite


class Log:
    def __init__(self, budget: ByteBudget) -> None:
        self.sizes: list[int] = []
        self.budget = budget
        budget.join(self)

    @property
    def held_bytes(self) -> int:
        return sum(self.sizes)

    def halve(self) -> None:
        most = self.held_bytes // 2
        while self.sizes and self.held_bytes > most:
            self.sizes.pop(0)

    def add(self, size: int) -> None:
        self.sizes.append(size)
        self.budget.grew(size)


def test_the_largest_gives_up_and_the_small_ones_lose_nothing() -> None:
    budget = ByteBudget(16_000)
    small = [Log(budget) for _ in range(10)]
    for log in small:
        log.add(100)
    large = Log(budget)
    for _ in range(1000):
        large.add(500)
        assert large.held_bytes + 1000 <= 16_000 * 17 / 16 + 500
    assert [log.held_bytes for log in small] == [100] * 10
    assert large.held_bytes > 7000


def test_many_of_one_size_share_the_budget() -> None:
    budget = ByteBudget(100_000)
    logs = [Log(budget) for _ in range(1000)]
    for _ in range(20):
        for log in logs:
            log.add(50)
    assert sum(log.held_bytes for log in logs) <= 100_000 * 17 / 16


def test_a_log_that_is_gone_no_longer_counts() -> None:
    budget = ByteBudget(10_000)
    for _ in range(100):
        Log(budget).add(5000)
    gc.collect()
    log = Log(budget)
    log.add(5000)
    log.add(4000)
    assert log.held_bytes == 9000


def test_single_entries_that_do_not_fit_go_as_a_whole() -> None:
    budget = ByteBudget(1000)
    logs = [Log(budget) for _ in range(5)]
    for log in logs:
        log.add(900)
    assert sum(log.held_bytes for log in logs) <= 1000


# --- streams in stores -----------------------------------------------------------------------------------------------


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisServer) -> Callable[..., Store]:
    kind = request.param
    if kind == "memory":
        return MemoryStore
    if kind == "sqlite":
        return lambda **options: SqliteStore(tmp_path / "store.db", **options)
    namespace = secrets.token_hex(4)
    return lambda **options: RedisStore(redis.url, namespace=namespace, **options)


def every_store(test: Any) -> Any:
    return pytest.mark.parametrize("make", ["memory", "sqlite", "redis"], indirect=True)(test)


@every_store
@pytest.mark.parametrize("way", ["append", "write", "batch"])
async def test_a_stream_in_a_store_is_bounded_in_bytes(make: Callable[..., Store], way: str) -> None:
    """The oldest go first, the reader is told, and small events of other streams are not touched."""
    async with make(max_event_bytes=80_000) as store:
        events = store.events
        await events.append("s", "small", b"x", ttl=60)
        writes = [EventWrite("s", "g", b"%05d" % number * 1000, 60.0) for number in range(1, 101)]
        if way == "append":
            for write in writes:
                await events.append("s", "g", write.data or b"", ttl=60)
        elif way == "write":
            for write in writes:
                await events.write([write])
        else:
            await events.write(writes)
        page = await events.read("s", "g", 0, limit=1000)
        assert page.is_truncated
        assert page.last == 100
        assert [event.number for event in page.events] == list(range(101 - len(page.events), 101))
        assert 40_000 <= sum(len(event.data) for event in page.events) <= 90_000
        assert [event.data for event in (await events.read("s", "small", 0)).events] == [b"x"]


@every_store
async def test_an_event_larger_than_the_bound_is_kept_until_the_next(make: Callable[..., Store]) -> None:
    """It may be the answer that somebody comes back for."""
    async with make(max_event_bytes=10_000) as store:
        for number in range(1, 4):
            await store.events.write([EventWrite("s", "r1", b"%d" % number * 50_000, 60.0, number)])
        page = await store.events.read("s", "r1", 2)
        assert [(event.number, len(event.data)) for event in page.events] == [(3, 50_000)]


@every_store
async def test_a_stream_that_is_ended_again_for_a_moment_goes(make: Callable[..., Store]) -> None:
    """How a session makes room: a time that is shorter than before counts."""
    async with make() as store:
        await store.events.write([EventWrite("s", "r1", b"x", 60.0, 1), EventWrite("s", "r1", None, 60.0)])
        await store.events.write([EventWrite("s", "r1", None, 0.001)])
        for _ in range(200):
            if not (await store.events.read("s", "r1", 0)).last:
                return
            await store.events.wait("s", "nothing", 0, timeout=0.05)
        pytest.fail("the stream is still there")
