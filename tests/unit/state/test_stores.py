"""Every store keeps the contract, and the contract notices those that do not."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.redis import RedisServer

from trimaran.errors import TimedOut
from trimaran.state import BusMessage, MemoryStore, RedisStore, SessionRecord, SqliteStore, Store, StoreFull, TaskRecord
from trimaran.testing import STORE_CHECKS, check_store

Make = Callable[[], Store]


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisServer) -> Make:
    kind = request.param
    if kind == "memory":
        return MemoryStore
    if kind == "sqlite":
        return lambda: SqliteStore(tmp_path / "store.db")
    namespace = secrets.token_hex(4)
    return lambda: RedisStore(redis.url, namespace=namespace)


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", ["memory", "sqlite", "redis"], indirect=True)
async def test_store_keeps_the_contract(check: Any, make: Make) -> None:
    """Whose rule: ours (decision 0012)."""
    await check(make)


class Forgetful:
    """The tasks of a store, but for one method that breaks the contract."""

    def __init__(self, tasks: Any, name: str, method: Any) -> None:
        self._tasks = tasks
        setattr(self, name, method)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tasks, name)


def broken(change: Callable[[MemoryStore], None]) -> Make:
    def make() -> Store:
        store = MemoryStore()
        change(store)
        return store

    return make


def overwrites(store: MemoryStore) -> None:
    tasks = store.tasks

    async def update(record: TaskRecord) -> TaskRecord | None:
        held = await tasks.get(record.id)
        return None if held is None else await tasks.update(replace(record, stamp=held.stamp))

    vars(store)["tasks"] = Forgetful(tasks, "update", update)


def leases_twice(store: MemoryStore) -> None:
    tasks = store.tasks

    async def claim(id: str, worker: str, *, seconds: float) -> TaskRecord | None:
        return await tasks.claim(id, worker, seconds=0)

    vars(store)["tasks"] = Forgetful(tasks, "claim", claim)


def keeps_everything(store: MemoryStore) -> None:
    store._core.max_events = 10_000


@pytest.mark.parametrize(
    ("change", "noticed"),
    [
        (overwrites, "each_write_of_a_task_is_kept_or_refused"),
        (overwrites, "a_task_is_claimed_by_one"),
        (leases_twice, "a_task_is_claimed_by_one"),
        (keeps_everything, "old_events_give_way_and_the_reader_is_told"),
    ],
)
async def test_the_contract_notices_a_store_that_breaks_it(change: Any, noticed: str) -> None:
    others = {check.__name__ for check in STORE_CHECKS} - {noticed}
    with pytest.raises(AssertionError, match=noticed):
        await check_store(broken(change), skip=others)


async def test_check_store_is_content_with_a_good_store() -> None:
    quick = {"a_session_ends_when_its_time_is_over", "a_touched_session_lives_on", "a_lease_runs_out"}
    await check_store(MemoryStore, skip=quick)


async def test_memory_forgets_what_is_past_its_time_without_being_asked() -> None:
    """A process that runs for months must not keep every session it ever had."""
    now = 0
    store = MemoryStore(clock=lambda: now)
    for number in range(1000):
        now += 1000
        await store.sessions.create(SessionRecord(id=f"s{number}"), ttl=5)
        await store.events.append(f"s{number}", "g", b"x", ttl=5)
    assert store.sessions._live.size < 20
    assert store.events._logs.size < 20
    assert len(store.events._streams) < 20
    await store.close()


async def test_memory_forgets_what_was_deleted_before_its_time() -> None:
    """Sessions that clients end themselves leave nothing to wait for."""
    async with MemoryStore() as store:
        for number in range(1000):
            await store.sessions.create(SessionRecord(id=f"s{number}"), ttl=3600)
            await store.sessions.delete(f"s{number}")
        assert len(store.sessions._live._ends) < 100


async def test_memory_is_full_at_its_limit() -> None:
    async with MemoryStore(max_records=2) as store:
        for number in range(2):
            await store.sessions.create(SessionRecord(id=f"{number}"), ttl=60)
        with pytest.raises(StoreFull, match="use a database"):
            await store.sessions.create(SessionRecord(id="2"), ttl=60)
        assert await store.sessions.delete("0")
        await store.sessions.create(SessionRecord(id="2"), ttl=60)


async def test_a_subscription_ends_its_loop_when_it_is_left() -> None:
    async with MemoryStore() as store:
        heard = store.bus.subscribe("a")
        async with heard:
            await store.bus.publish("a", b"1")

            async def read() -> list[bytes]:
                return [item.data async for item in heard if isinstance(item, BusMessage)]

            reading = asyncio.ensure_future(read())
            await asyncio.sleep(0)
        assert await reading == [b"1"]


async def test_a_slow_reader_of_the_bus_is_bounded_in_bytes() -> None:
    """It hears of a gap instead, as if too many had waited; one message is heard whatever its size is."""
    async with MemoryStore() as store, store.bus.subscribe("news") as subscription:
        await store.bus.publish("news", b"x" * (9 << 20))
        heard = subscription.__aiter__()
        first = await heard.__anext__()
        assert isinstance(first, BusMessage)
        for number in range(20):
            await store.bus.publish("news", b"%02d" % number * (1 << 19))
        gap = await heard.__anext__()
        assert "more than 8 MiB" in getattr(gap, "reason", "")
        rest = [await heard.__anext__() for _ in range(4)]
        assert [message.data[:2] for message in rest if isinstance(message, BusMessage)] == [b"16", b"17", b"18", b"19"]
        assert store.bus.overflowed >= 16


async def test_questions_to_a_worker_are_bounded_in_bytes() -> None:
    """Those on top are dropped, and their askers run into their timeouts."""
    gate = asyncio.Event()

    async def respond(question: bytes) -> bytes:
        await gate.wait()
        return b"done"

    async with MemoryStore() as store, store.bus.answer("w", respond):
        asking = [asyncio.ensure_future(store.bus.request("w", b"x" * (20 << 20), timeout=10)) for _ in range(3)]
        await asyncio.sleep(0)
        late = asyncio.ensure_future(store.bus.request("w", b"x" * (20 << 20), timeout=0.3))
        with pytest.raises(TimedOut):
            await late
        gate.set()
        assert await asyncio.gather(*asking) == [b"done"] * 3
        assert await store.bus.request("w", b"x" * (20 << 20), timeout=10) == b"done"


async def test_the_tasks_in_memory_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one is refused; those at work may still write what came of them, and all room comes back."""
    monkeypatch.setattr("trimaran.state.memory._MAX_HELD_BYTES", 100_000)
    async with MemoryStore() as store:
        first = await store.tasks.create(TaskRecord(id="1", expires_ms=2**53, arguments=b"x" * 60_000))
        second = await store.tasks.create(TaskRecord(id="2", expires_ms=2**53, arguments=b"x" * 60_000))
        with pytest.raises(StoreFull, match="use a database") as full:
            await store.tasks.create(TaskRecord(id="3", expires_ms=2**53))
        assert full.value.limit == 100_000
        assert await store.tasks.update(replace(second, status="completed", result=b"x" * 10_000, arguments=b"{}"))
        claimed = await store.tasks.claim("1", "w", seconds=60)
        assert claimed is not None
        assert await store.tasks.update(replace(claimed, arguments=b"{}", result=b"y"))
        assert await store.tasks.create(TaskRecord(id="3", expires_ms=2**53))
        for id in ("1", "2", "3"):
            assert await store.tasks.delete(id)
        assert store.tasks._bytes == 0
        assert first.stamp == 1


async def test_the_events_in_memory_are_bounded_in_bytes_for_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.state.memory._MAX_HELD_BYTES", 100_000)
    async with MemoryStore() as store:
        await store.events.append("small", "g", b"x", ttl=60)
        for number in range(100):
            for _ in range(5):
                await store.events.append(f"s{number}", "g", b"x" * 1000, ttl=60)
        held = [await store.events.read(f"s{number}", "g", 0) for number in range(100)]
        assert sum(len(event.data) for page in held for event in page.events) <= 110_000
        assert (await store.events.read("small", "g", 0)).events
        assert held[0].last == 5
        assert held[0].is_truncated
