"""The contract of every store, as checks that can be run on any of them.

A check is given `make`, which makes a store each time it is called, plainly or as a coroutine; it need not be started. If
the store says that it is shared, two of them must see the same things, as two processes would. The records of a check have ids
made by chance, so a store may be used for many checks, and hold other things besides.

A check that fails raises AssertionError. It always closes the stores that it opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from trimaran.errors import Error, ProtocolError, TimedOut
from trimaran.state.contracts import (
    BusMessage,
    BusSubscription,
    EventWrite,
    Gap,
    NoAnswer,
    SessionRecord,
    Store,
    StoreClosed,
    StoreConflict,
    StoreFull,
    StoreUnavailable,
    TaskRecord,
)

Make: TypeAlias = Callable[[], Store | Awaitable[Store]]

# Longer than an honest store takes on a busy machine; a check that hangs shall not hang the tests.
_PATIENCE: Final = 10.0
_LONG: Final = 600.0  # seconds: a time to live that does not matter
_SHORT: Final = 0.05  # seconds: one that is over soon
_MOST_EVENTS: Final = 5000  # no stream needs more


async def check_store(make: Make, *, skip: Collection[str] = ()) -> None:
    """Run every check on a kind of store; AssertionError names those that failed.

    For pytest, one test per check reads better:

        @pytest.mark.parametrize("check", STORE_CHECKS)
        async def test_my_store_keeps_the_contract(check):
            await check(make)

    Args:
        make: Makes a store; see the head of this module.
        skip: Names of checks to leave out.
    """
    failed: list[str] = []
    for check in STORE_CHECKS:
        if check.__name__ not in skip:
            try:
                await check(make)
            except (AssertionError, Error) as error:
                failed.append(f"{check.__name__}: {error or type(error).__name__}")
    if failed:
        raise AssertionError("the store breaks its contract:\n" + "\n".join(f"- {line}" for line in failed))


# Helpers of the checks


async def _make_store(make: Make) -> Store:
    store = make()
    return await store if inspect.isawaitable(store) else store


@contextlib.asynccontextmanager
async def _store(make: Make) -> AsyncGenerator[Store]:
    async with _two(make) as (store, _):
        yield store


@contextlib.asynccontextmanager
async def _two(make: Make) -> AsyncGenerator[tuple[Store, Store]]:
    """Two views of one store, as two processes have them; where it is not shared, twice the same."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(_PATIENCE):
                store_a = await stack.enter_async_context(await _make_store(make))
                store_b = await stack.enter_async_context(await _make_store(make)) if store_a.is_shared else store_a
                yield store_a, store_b
        except TimeoutError:
            raise AssertionError(f"the check did not end within {_PATIENCE:g} s") from None


async def _until(event: str, is_so: Callable[[], Awaitable[Any]]) -> Any:
    deadline = time.monotonic() + _PATIENCE
    while not (result := await is_so()):
        assert time.monotonic() < deadline, f"{event} did not happen within {_PATIENCE:g} s"
        await asyncio.sleep(0.01)
    return result


def _id() -> str:
    return secrets.token_hex(12)


def _now() -> int:
    return int(time.time() * 1000)


def _task(**more: Any) -> TaskRecord:
    now = _now()
    fields: dict[str, Any] = {"id": _id(), "owner": _id(), "created_ms": now, "expires_ms": now + 600_000, **more}
    return TaskRecord(**fields)


async def _refuses(kind: type[Error], attempt: Awaitable[Any], action: str) -> None:
    try:
        await attempt
    except kind:
        return
    except Exception as error:
        raise AssertionError(f"{action} raises {type(error).__name__}, not {kind.__name__}: {error}") from error
    raise AssertionError(f"{action} raises nothing; it should raise {kind.__name__}")


# Sessions


async def a_session_is_there_for_everyone_as_it_was_written(make: Make) -> None:
    """R99: version, capabilities and the client are stored with the session."""
    async with _two(make) as (store_a, store_b):
        record = SessionRecord(
            id=_id(),
            owner="issuer\0subject ü",
            version="2025-11-25",
            capabilities={"sampling": {}, "elicitation": {"form": {}}},
            client={"name": "c", "version": "1"},
            initialized=True,
            log_level="debug",
            subscriptions=["file:///a", "file:///b"],
            worker="w1",
            created_ms=_now(),
            extra=b"\0\xff",
        )
        created = await store_a.sessions.create(record, ttl=_LONG)
        assert replace(created, stamp=0) == record, "create changed the record"
        assert await store_b.sessions.get(record.id) == created, "the session read is not the session written"
        assert await store_a.sessions.get(_id()) is None
        await _refuses(StoreConflict, store_b.sessions.create(record, ttl=_LONG), "creating a session twice")
        assert await store_b.sessions.delete(record.id)
        assert not await store_a.sessions.delete(record.id)
        assert await store_a.sessions.get(record.id) is None, "a deleted session is still there"


async def a_session_ends_when_its_time_is_over(make: Make) -> None:
    """Unless it is touched; then it is unknown, and its id is free."""
    async with _store(make) as store:
        short, long = SessionRecord(id=_id()), SessionRecord(id=_id())
        created = await store.sessions.create(short, ttl=_SHORT)
        await store.sessions.create(long, ttl=_LONG)
        await store.sessions.touch(long.id, ttl=2 * _LONG)

        async def is_gone() -> bool:
            return await store.sessions.get(short.id) is None

        await _until("the end of a session", is_gone)
        assert not await store.sessions.touch(short.id, ttl=_LONG), "a session was touched after its end"
        assert await store.sessions.put(created, ttl=_LONG) is None, "a session was written after its end"
        assert not await store.sessions.delete(short.id)
        assert await store.sessions.get(long.id) is not None
        await store.sessions.create(short, ttl=_LONG)


async def a_touched_session_lives_on(make: Make) -> None:
    """`touch` and `put` move its end; `put` without a time leaves it."""
    async with _store(make) as store:
        a, b, c = [await store.sessions.create(SessionRecord(id=_id()), ttl=0.5) for _ in range(3)]
        assert await store.sessions.touch(a.id, ttl=_LONG)
        assert await store.sessions.put(b, ttl=_LONG)
        assert await store.sessions.put(c)

        async def is_gone() -> bool:
            return await store.sessions.get(c.id) is None

        await _until("the end of a session", is_gone)
        assert await store.sessions.get(a.id), "a touched session ended at its old time"
        assert await store.sessions.get(b.id), "a session written with a new time ended at its old one"


async def of_two_writers_of_a_session_one_wins(make: Make) -> None:
    """Compare and set: a write with an old stamp changes nothing."""
    async with _two(make) as (store_a, store_b):
        first = await store_a.sessions.create(SessionRecord(id=_id()), ttl=_LONG)
        written = await asyncio.gather(
            *(
                store.sessions.put(replace(first, log_level=f"{number}"))
                for number, store in enumerate([store_a, store_b] * 5)
            )
        )
        winners = [record for record in written if record is not None]
        assert len(winners) == 1, f"{len(winners)} of 10 writers of the same stamp won"
        assert await store_b.sessions.get(first.id) == winners[0]

        async def subscribe(store: Store, uri: str) -> None:
            while True:
                record = await store.sessions.get(first.id)
                assert record is not None
                await asyncio.sleep(0)  # the others read it too
                if await store.sessions.put(replace(record, subscriptions=[*record.subscriptions, uri])):
                    return

        await asyncio.gather(*(subscribe(store, f"u{n}") for n, store in enumerate([store_a, store_b] * 4)))
        record = await store_a.sessions.get(first.id)
        assert record is not None
        assert sorted(record.subscriptions) == [f"u{n}" for n in range(8)], "a write was lost"


async def sessions_are_counted_and_capped(make: Make) -> None:
    """R94: the cap holds under a rush, over all who use the store."""
    async with _two(make) as (store_a, store_b):
        before = await store_a.sessions.count()

        async def create(store: Store) -> bool:
            try:
                await store.sessions.create(SessionRecord(id=_id()), ttl=_LONG, most=before + 5)
            except StoreFull:
                return False
            return True

        results = await asyncio.gather(*(create(store) for store in [store_a, store_b] * 6))
        assert sum(results) == 5, f"room for 5 sessions, and {sum(results)} were made"
        assert await store_b.sessions.count() == before + 5


# Events


async def events_are_numbered_and_read_in_order(make: Make) -> None:
    """Numbers of each stream start at 1; a read returns events after the given number."""
    async with _two(make) as (store_a, store_b):
        session = _id()
        for number in range(1, 11):
            assert await store_a.events.append(session, "g", b"%d" % number, ttl=_LONG) == number
        assert await store_b.events.append(session, "r1", b"\0\xff", ttl=_LONG) == 1
        page = await store_b.events.read(session, "g", 7)
        assert [(e.number, e.data) for e in page.events] == [(8, b"8"), (9, b"9"), (10, b"10")]
        assert (page.last, page.is_truncated, page.is_ended) == (10, False, False)
        assert (await store_b.events.read(session, "g", 0, limit=2)).events[-1].number == 2, "limit is not kept"
        assert (await store_a.events.read(session, "r1", 0)).events == [(1, b"\0\xff")]
        nothing = await store_a.events.read(session, "g", 10)
        assert (nothing.events, nothing.is_truncated) == ([], False)
        assert (await store_a.events.read(session, "g", 11)).is_truncated, "a number never given out was taken for one"
        assert await store_a.events.read(session, "none", 0) == ([], 0, False, False)


async def numbers_are_neither_lost_nor_doubled(make: Make) -> None:
    """However many append at once."""
    async with _two(make) as (store_a, store_b):
        session = _id()
        numbers = await asyncio.gather(
            *(store.events.append(session, "g", b"x", ttl=_LONG) for store in [store_a, store_b] * 20)
        )
        assert sorted(numbers) == list(range(1, 41)), f"40 events were numbered {sorted(numbers)}"


async def many_writes_are_done_at_once_and_in_order(make: Make) -> None:
    """Writes to several streams and sessions; an event with a number is added once, however often it is written."""
    async with _two(make) as (store_a, store_b):
        first, second = _id(), _id()
        await store_a.events.append(first, "g", b"before", ttl=_LONG)
        writes = [
            EventWrite(first, "r1", b"head", _LONG, 1),
            EventWrite(second, "g", b"a", _LONG),
            EventWrite(first, "r1", b"\0\xff", _LONG, 2),
            EventWrite(first, "g", b"after", _LONG),
            EventWrite(second, "g", b"b", _LONG),
            EventWrite(first, "r1", None, _LONG),
        ]
        waiting = asyncio.ensure_future(store_b.events.wait(first, "r1", 0, timeout=_PATIENCE))
        await store_a.events.write(writes)
        assert await waiting, "the wait ended without news"
        assert (await store_b.events.read(first, "r1", 0)) == ([(1, b"head"), (2, b"\0\xff")], 2, False, True)
        assert (await store_b.events.read(first, "g", 0)) == ([(1, b"before"), (2, b"after")], 2, False, False)
        assert (await store_b.events.read(second, "g", 0)) == ([(1, b"a"), (2, b"b")], 2, False, False)
        await store_a.events.write([write for write in writes if write.stream == "r1"])
        assert (await store_b.events.read(first, "r1", 0)) == ([(1, b"head"), (2, b"\0\xff")], 2, False, True)
        await store_a.events.write([EventWrite(first, "r2", b"x", _LONG, 7), EventWrite(first, "r2", b"y", _LONG, 9)])
        page = await store_b.events.read(first, "r2", 0)
        assert ([e.number for e in page.events], page.is_truncated) == ([7, 9], True), "the numbers given are not kept"
        many = [EventWrite(second, "r1", b"%d" % number, _LONG) for number in range(_MOST_EVENTS)]
        await store_a.events.write(many)
        page = await store_b.events.read(second, "r1", _MOST_EVENTS - 2)
        assert [e.number for e in page.events] == [_MOST_EVENTS - 1, _MOST_EVENTS]
        assert (await store_b.events.read(second, "r1", 0)).is_truncated, "a log of many events was kept whole"
        await store_a.events.write([])
        await store_a.events.delete(first)
        assert (await store_b.events.read(first, "r2", 0)).last == 0, "a stream is still there"


async def old_events_give_way_and_the_reader_is_told(make: Make) -> None:
    """R104, R105: a log is bounded."""
    async with _store(make) as store:
        session = _id()
        for _ in range(_MOST_EVENTS):
            number = await store.events.append(session, "g", b"x", ttl=_LONG)
            if number % 50 == 0 and (await store.events.read(session, "g", 0, limit=1)).is_truncated:
                break
        else:
            raise AssertionError(f"a stream of {_MOST_EVENTS} events was kept whole")
        page = await store.events.read(session, "g", number - 3)
        assert [e.number for e in page.events] == [number - 2, number - 1, number], "the newest events are not there"
        assert not page.is_truncated


async def a_reader_waits_for_more(make: Make) -> None:
    """Across processes. Existing events end the wait at once."""
    async with _two(make) as (store_a, store_b):
        session = _id()
        assert not await store_a.events.wait(session, "g", 0, timeout=_SHORT), "there was nothing to wait for"
        for number in range(5):
            waiting = asyncio.ensure_future(store_b.events.wait(session, "g", number, timeout=_PATIENCE))
            await store_a.events.append(session, "g", b"x", ttl=_LONG)
            assert await waiting, "the wait ended without news"
        assert await store_b.events.wait(session, "g", 0, timeout=_SHORT), "the existing events were not found"
        waiting = asyncio.ensure_future(store_b.events.wait(session, "g", 5, timeout=_PATIENCE))
        await store_a.events.end(session, "g", ttl=_LONG)
        assert await waiting, "the end of a stream did not wake its reader"
        page = await store_b.events.read(session, "g", 5)
        assert page.is_ended
        assert page.last == 5
        assert not (await store_b.events.read(session, "other", 0)).is_ended


async def streams_end_with_their_session_or_their_time(make: Make) -> None:
    """`delete` takes every stream of one session, and of no other."""
    async with _store(make) as store:
        gone, stays, short = _id(), _id(), _id()
        for session, ttl in ((gone, _LONG), (stays, _LONG), (short, _SHORT)):
            for stream in ("g", "r1", "r2"):
                await store.events.append(session, stream, b"x", ttl=ttl)
        await store.events.delete(gone)
        for stream in ("g", "r1", "r2"):
            assert (await store.events.read(gone, stream, 0)).last == 0, "a stream outlived its session"
            assert (await store.events.read(stays, stream, 0)).last == 1, "a stream went with another session"

        async def is_gone() -> bool:
            return (await store.events.read(short, "g", 0)).last == 0

        await _until("the end of a stream", is_gone)
        assert await store.events.append(short, "g", b"y", ttl=_LONG) == 1
        assert (await store.events.read(short, "g", 0)).events == [(1, b"y")], "old events came back"


# Tasks


async def a_task_is_there_when_create_returns(make: Make) -> None:
    """protocol: an immediate `tasks/get` must resolve, on any worker; and nothing of the record is lost."""
    async with _two(make) as (store_a, store_b):
        record = _task(
            session="s",
            method="tools/call",
            name="load",
            arguments=b'{"a":1}',
            status="input_required",
            status_message="ä",
            updated_ms=_now(),
            ttl_ms=60_000,
            poll_ms=500,
            result=b"\0",
            error=b"",
            inputs=b"{}",
            journal=b"\xff" * 100_000,
            is_resumable=True,
            extra=b"x",
        )
        created = await store_a.tasks.create(record)
        assert replace(created, stamp=0) == record, "create changed the record"
        assert created.stamp == 1, f"the stamp of a new task is 1, not {created.stamp}"
        assert await store_b.tasks.get(record.id) == created, "the task read is not the task written"
        assert await store_a.tasks.get(_id()) is None
        await _refuses(StoreConflict, store_b.tasks.create(record), "creating a task twice")
        assert await store_b.tasks.delete(record.id)
        assert not await store_a.tasks.delete(record.id)
        assert await store_a.tasks.get(record.id) is None
        assert await store_a.tasks.count(record.owner) == 0
        assert (await store_a.tasks.list(record.owner)).tasks == []


async def a_terminal_task_never_changes(make: Make) -> None:
    """R76."""
    async with _two(make) as (store_a, store_b):
        for status in ("completed", "failed", "cancelled"):
            record = await store_a.tasks.create(_task())
            over = await store_a.tasks.update(replace(record, status=status, result=b"1"))
            assert over is not None
            for change in (
                replace(over, status="working"),
                replace(over, result=b"2"),
                replace(record, status="cancelled"),
            ):
                assert await store_b.tasks.update(change) is None, f"a {status} task was changed"
            assert await store_b.tasks.claim(record.id, "w", seconds=_LONG) is None, f"a {status} task was claimed"
            assert not await store_b.tasks.renew(record.id, "w", seconds=_LONG)
            assert await store_b.tasks.get(record.id) == over
            assert over.id not in {due.id for due in await store_a.tasks.due(limit=10_000)}


async def each_write_of_a_task_is_kept_or_refused(make: Make) -> None:
    """Compare and set, under a rush."""
    async with _two(make) as (store_a, store_b):
        first = await store_a.tasks.create(_task(journal=b""))

        async def note(store: Store, entry: bytes) -> None:
            while True:
                record = await store.tasks.get(first.id)
                assert record is not None
                await asyncio.sleep(0)  # the others read it too
                if await store.tasks.update(replace(record, journal=record.journal + entry)):
                    return

        await asyncio.gather(*(note(store, bytes([65 + n])) for n, store in enumerate([store_a, store_b] * 4)))
        record = await store_b.tasks.get(first.id)
        assert record is not None
        assert sorted(record.journal) == list(range(65, 73)), f"8 writes, and the journal is {record.journal!r}"


async def a_task_is_claimed_by_one(make: Make) -> None:
    """No task runs twice."""
    async with _two(make) as (store_a, store_b):
        record = await store_a.tasks.create(_task())
        claims = await asyncio.gather(
            *(
                store.tasks.claim(record.id, f"w{number}", seconds=_LONG)
                for number, store in enumerate([store_a, store_b] * 10)
            )
        )
        winners = [claim for claim in claims if claim is not None]
        assert len(winners) == 1, f"{len(winners)} of 20 workers got the task"
        (winner,) = winners
        assert await store_b.tasks.get(record.id) == winner, "another store sees a different lease"
        assert await store_a.tasks.update(replace(record, status="failed")) is None, (
            "a write from before the claim was kept"
        )
        assert await store_a.tasks.claim(record.id, winner.worker, seconds=_LONG) is None, (
            "its holder got the task twice"
        )
        assert not await store_b.tasks.renew(record.id, "stranger", seconds=_LONG)
        assert not await store_b.tasks.release(record.id, "stranger")
        assert await store_b.tasks.renew(record.id, winner.worker, seconds=_LONG)
        written = await store_b.tasks.update(replace(winner, status_message="half"))
        assert written is not None, "after renewing, the holder could not write"
        assert written.worker == winner.worker, "a write moved the lease"
        assert written.lease_ms >= winner.lease_ms, "a write shortened the lease"
        assert await store_a.tasks.release(record.id, winner.worker)
        assert await store_b.tasks.claim(record.id, "next", seconds=_LONG), "a released task could not be claimed"


async def a_lease_runs_out(make: Make) -> None:
    """And then the task is due for others, and its old holder can write no more."""
    async with _two(make) as (store_a, store_b):
        record = await store_a.tasks.create(_task())
        assert record.id in {due.id for due in await store_b.tasks.due(limit=10_000)}, "a new task is not due"
        old = await store_a.tasks.claim(record.id, "old", seconds=0.3)
        assert old is not None
        assert record.id not in {due.id for due in await store_b.tasks.due(limit=10_000)}, "a held task is due"

        async def is_due() -> bool:
            return record.id in {due.id for due in await store_b.tasks.due(limit=10_000)}

        await _until("the end of a lease", is_due)
        new = await store_b.tasks.claim(record.id, "new", seconds=_LONG)
        assert new is not None
        assert new.worker == "new"
        assert await store_a.tasks.update(replace(old, status="completed")) is None, "who lost the lease wrote"
        assert not await store_a.tasks.renew(record.id, "old", seconds=_LONG)
        assert not await store_a.tasks.release(record.id, "old")
        assert await store_b.tasks.update(replace(new, status="completed"))


async def a_task_that_waits_for_input_is_not_due(make: Make) -> None:
    """Until the answer is written and it works again."""
    async with _store(make) as store:
        record = await store.tasks.create(_task())
        waits = await store.tasks.update(replace(record, status="input_required"))
        assert waits is not None
        assert record.id not in {due.id for due in await store.tasks.due(limit=10_000)}
        assert await store.tasks.update(replace(waits, status="working"))
        assert record.id in {due.id for due in await store.tasks.due(limit=10_000)}


async def tasks_are_listed_by_owner_in_pages(make: Make) -> None:
    """R74, R80: oldest first, each once, nobody else's."""
    async with _two(make) as (store_a, store_b):
        owner, now = _id(), _now()
        # Many in the same millisecond, as a rush makes them.
        records = [_task(owner=owner, created_ms=now + number // 4) for number in range(22)]
        for record in random.Random(4).sample(records, len(records)):  # noqa: S311 (no secrets here)
            await store_a.tasks.create(record)
        await store_a.tasks.create(_task(owner=_id(), created_ms=now))
        expected = [record.id for record in sorted(records, key=lambda r: (r.created_ms, r.id))]
        listed: list[str] = []
        cursor: str | None = None
        for _ in range(10):
            page = await store_b.tasks.list(owner, cursor=cursor, limit=5)
            assert len(page.tasks) <= 5
            listed += [record.id for record in page.tasks]
            cursor = page.cursor
            if cursor is None:
                break
            if len(listed) == 5:
                await store_a.tasks.delete(listed[-1])  # a page that ends with it must still be continued
        assert listed == expected, "the pages together are not the list"
        assert (await store_b.tasks.list(_id())).tasks == []
        assert (await store_b.tasks.list(owner, limit=21)).cursor is None, "a list that ends with its page goes on"
        for cursor in ("", "x", ":", "1", "-1:x", "1e9:x"):
            await _refuses(ProtocolError, store_b.tasks.list(owner, cursor=cursor), f"the cursor {cursor!r}")


async def tasks_are_counted_and_capped_per_owner(make: Make) -> None:
    """The cap holds under a rush, for all users of the store together. Expired tasks do not count."""
    async with _two(make) as (store_a, store_b):
        owner = _id()
        for _ in range(3):
            await store_a.tasks.create(_task(owner=owner, expires_ms=_now() - 1))

        async def create(store: Store) -> bool:
            try:
                await store.tasks.create(_task(owner=owner), most=5)
            except StoreFull:
                return False
            return True

        results = await asyncio.gather(*(create(store) for store in [store_a, store_b] * 6))
        assert sum(results) == 5, f"room for 5 tasks, and {sum(results)} were made"
        assert await store_b.tasks.count(owner) == 5
        assert await store_b.tasks.count() >= 5
        await store_b.tasks.create(_task(), most=5)


async def tasks_past_their_time_are_unknown_and_swept(make: Make) -> None:
    """R79. A write may move the end."""
    async with _two(make) as (store_a, store_b):
        owner = _id()
        gone = [await store_a.tasks.create(_task(owner=owner, expires_ms=_now() - 1)) for _ in range(5)]
        stays = await store_a.tasks.create(_task(owner=owner))
        moved = await store_a.tasks.create(_task(owner=owner))
        assert await store_a.tasks.update(replace(moved, expires_ms=_now() - 1))
        for record in (*gone, moved):
            assert await store_b.tasks.get(record.id) is None, "a task is there after its time"
            assert await store_b.tasks.update(record) is None
            assert await store_b.tasks.claim(record.id, "w", seconds=_LONG) is None
        assert [record.id for record in (await store_b.tasks.list(owner)).tasks] == [stays.id]
        assert {due.id for due in await store_b.tasks.due(limit=10_000)}.isdisjoint(record.id for record in gone)
        # A write may have removed some already. Nothing else may go, and none may stay.
        swept = {id for _ in range(20) for id in await store_b.tasks.sweep()}
        assert stays.id not in swept
        assert await store_a.tasks.sweep() == []
        assert await store_a.tasks.get(stays.id) is not None


async def tasks_do_what_a_plain_model_of_them_does(make: Make) -> None:
    """Two workers in a random order of steps, against a dictionary; the same order each time."""
    dice = random.Random(20260728)  # noqa: S311 (no secrets here)
    async with _two(make) as stores:
        known: dict[str, TaskRecord] = {}
        stale: list[TaskRecord] = []
        owner = _id()
        for _ in range(150):
            store = dice.choice(stores)
            step = dice.choice(("create", "update", "update", "claim", "renew", "release", "stale", "get", "delete"))
            if step == "create" or not known:
                record = await store.tasks.create(_task(owner=owner))
                known[record.id] = record
                continue
            model = known[dice.choice(sorted(known))]
            worker = dice.choice(("a", "b"))
            is_mine = model.worker == worker and not model.is_terminal
            if step == "update":
                status = dice.choice(("working", "working", "input_required", "completed", "cancelled"))
                done = await store.tasks.update(replace(model, status=status, journal=model.journal + b"."))
                assert (done is None) == model.is_terminal, f"an update of a {model.status} task gave {done}"
                if done is not None:
                    stale.append(model)
                    known[model.id] = done
                    assert (done.worker == "") == (model.worker == "" or done.is_terminal)
            elif step == "claim":
                done = await store.tasks.claim(model.id, worker, seconds=_LONG)
                assert (done is None) == (model.is_terminal or bool(model.worker)), f"a claim of {model} gave {done}"
                if done is not None:
                    stale.append(model)
                    known[model.id] = done
            elif step == "renew":
                assert await store.tasks.renew(model.id, worker, seconds=_LONG) == is_mine
            elif step == "release":
                assert await store.tasks.release(model.id, worker) == is_mine
            elif step == "stale" and stale:
                assert await store.tasks.update(replace(dice.choice(stale), status="failed")) is None
            elif step == "delete":
                assert await store.tasks.delete(model.id)
                del known[model.id]
            if model.id in known and step in ("renew", "release", "get"):
                stored = await store.tasks.get(model.id)
                assert stored is not None
                expected = replace(
                    known[model.id],
                    lease_ms=stored.lease_ms,
                    worker="" if step == "release" and is_mine else known[model.id].worker,
                )
                assert stored == expected, f"after {step}, the task is {stored}, not {expected}"
                known[model.id] = stored
        assert await stores[1].tasks.count(owner) == len(known)


# The bus


async def _next(subscription: BusSubscription) -> BusMessage | Gap:
    async with asyncio.timeout(_PATIENCE):
        return await anext(aiter(subscription))


async def messages_reach_everyone_who_listens(make: Make) -> None:
    """In order, with the name of their sender; and nobody else."""
    async with _two(make) as (store_a, store_b):
        topic = _id()
        async with store_a.bus.subscribe(topic, f"{topic}/2") as near, store_b.bus.subscribe(topic) as far:
            for number in range(20):
                await store_a.bus.publish(topic, b"%d" % number)
            await store_b.bus.publish(f"{topic}/2", b"\0\xff")
            await store_b.bus.publish(f"{topic}/3", b"not for us")
            for subscription in (near, far):
                for number in range(20):
                    assert await _next(subscription) == BusMessage(topic, b"%d" % number, store_a.bus.name)
            assert await _next(near) == BusMessage(f"{topic}/2", b"\0\xff", store_b.bus.name)
            await store_b.bus.publish(topic, b"last")
            assert await _next(far) == BusMessage(topic, b"last", store_b.bus.name)
        async with store_a.bus.subscribe(topic) as again:
            await store_b.bus.publish(topic, b"again")
            assert await _next(again) == BusMessage(topic, b"again", store_b.bus.name), "an old message came"


async def a_slow_reader_hears_of_a_gap(make: Make) -> None:
    """Memory is bounded: unread messages are dropped, the reader gets a gap, and later messages arrive."""
    async with _two(make) as (store_a, store_b):
        topic = _id()
        async with store_b.bus.subscribe(topic, size=10) as slow, store_b.bus.subscribe(topic, size=1000) as quick:
            for number in range(50):
                await store_a.bus.publish(topic, b"%d" % number)
            await store_a.bus.publish(topic, b"last")
            while await _next(quick) != BusMessage(topic, b"last", store_a.bus.name):
                pass
            messages: list[BusMessage | Gap] = []
            while not messages or messages[-1] != BusMessage(topic, b"last", store_a.bus.name):
                messages.append(await _next(slow))
            assert len(messages) <= 12, f"{len(messages)} things waited for a reader with room for 10"
            assert any(isinstance(item, Gap) for item in messages), "messages were dropped, and nobody told"
            assert store_b.bus.overflowed > 0, "dropped messages were not counted"


async def a_worker_answers_what_it_is_asked(make: Make) -> None:
    """Wherever it runs, many at once, each its own answer."""
    async with _two(make) as (store_a, store_b):
        worker = _id()

        async def respond(data: bytes) -> bytes:
            if data == b"bad":
                raise ValueError("a secret")
            if data == b"refused":
                raise StoreFull("no room here")
            return b"<" + data + b">"

        async with store_a.bus.answer(worker, respond):
            answers = await asyncio.gather(
                *(store_b.bus.request(worker, b"%d" % number, timeout=_PATIENCE) for number in range(20))
            )
            assert answers == [b"<%d>" % number for number in range(20)], f"the answers are {answers}"
            await _refuses(NoAnswer, store_b.bus.request(worker, b"bad", timeout=_PATIENCE), "a worker that fails")
            failure = ""
            try:
                await store_b.bus.request(worker, b"refused", timeout=_PATIENCE)
            except NoAnswer as error:
                failure = str(error)
            assert "no room here" in failure, f"the worker gave a reason for its refusal, and the asker got {failure!r}"
        try:
            await store_b.bus.request(worker, b"late", timeout=0.2)
        except (NoAnswer, TimedOut):
            return
        raise AssertionError("a worker that is gone has answered")


async def a_poisoned_message_is_dropped_and_counted(make: Make) -> None:
    """A publisher of nonsense disturbs nobody."""
    async with _two(make) as (store_a, store_b):
        worker = _id()

        async def respond(data: bytes) -> bytes:
            return data

        async with store_a.bus.answer(worker, respond):
            for poison in (b"", b"\xc1", b"{}", b"\x93\xa1q\x01\x02", b"\x80" * 1000):
                await store_b.bus.publish(f"worker/{worker}", poison)
            assert await store_b.bus.request(worker, b"well?", timeout=_PATIENCE) == b"well?"
            assert store_a.bus.poisoned == 5, f"5 messages were poisoned, and {store_a.bus.poisoned} counted"


# The whole


async def it_says_how_it_is_and_may_be_closed_twice(make: Make) -> None:
    """After that it refuses, with StoreClosed, and never hangs."""
    store = await _make_store(make)
    assert isinstance(store, Store), "something of the contract is missing"
    await store.start()
    try:
        assert (await store.check()).is_up
    finally:
        await store.close()
    await store.close()
    health = await store.check()
    assert not health.is_up, "a closed store says it is well"
    assert health.detail, "a closed store gives no reason"
    await _refuses(StoreClosed, store.sessions.get("x"), "using closed sessions")
    await _refuses(StoreClosed, store.events.read("x", "g", 0), "using closed events")
    await _refuses(StoreClosed, store.tasks.get("x"), "using closed tasks")
    await _refuses(StoreClosed, store.bus.publish("x", b""), "using a closed bus")


async def nothing_is_left_running(make: Make) -> None:
    """No asyncio task outlives `close`, and every waiter is released."""
    before = asyncio.all_tasks()
    store = await _make_store(make)
    await store.start()

    async def listen() -> None:
        async with store.bus.subscribe("x") as subscription:
            async for item in subscription:
                if isinstance(item, Gap):
                    return

    async def respond(data: bytes) -> bytes:
        await asyncio.sleep(_PATIENCE)
        return data

    async with contextlib.AsyncExitStack() as stack:
        worker = _id()
        await stack.enter_async_context(store.bus.answer(worker, respond))
        listening = asyncio.ensure_future(listen())
        asking = asyncio.ensure_future(store.bus.request(worker, b"x", timeout=_PATIENCE))
        waiting = asyncio.ensure_future(store.events.wait(_id(), "g", 0, timeout=_PATIENCE))
        await asyncio.sleep(0.1)
        async with asyncio.timeout(_PATIENCE):
            await store.close()
            await _refuses(Error, asking, "a question to a closed store")
            with contextlib.suppress(StoreUnavailable):
                assert not await waiting, "there was news in a closed store"
            await listening
    left = asyncio.all_tasks() - before
    assert not left, f"tasks left running after close: {left}"


STORE_CHECKS: Final[tuple[Callable[[Make], Any], ...]] = (
    a_session_is_there_for_everyone_as_it_was_written,
    a_session_ends_when_its_time_is_over,
    a_touched_session_lives_on,
    of_two_writers_of_a_session_one_wins,
    sessions_are_counted_and_capped,
    events_are_numbered_and_read_in_order,
    numbers_are_neither_lost_nor_doubled,
    many_writes_are_done_at_once_and_in_order,
    old_events_give_way_and_the_reader_is_told,
    a_reader_waits_for_more,
    streams_end_with_their_session_or_their_time,
    a_task_is_there_when_create_returns,
    a_terminal_task_never_changes,
    each_write_of_a_task_is_kept_or_refused,
    a_task_is_claimed_by_one,
    a_lease_runs_out,
    a_task_that_waits_for_input_is_not_due,
    tasks_are_listed_by_owner_in_pages,
    tasks_are_counted_and_capped_per_owner,
    tasks_past_their_time_are_unknown_and_swept,
    tasks_do_what_a_plain_model_of_them_does,
    messages_reach_everyone_who_listens,
    a_slow_reader_hears_of_a_gap,
    a_worker_answers_what_it_is_asked,
    a_poisoned_message_is_dropped_and_counted,
    it_says_how_it_is_and_may_be_closed_twice,
    nothing_is_left_running,
)
