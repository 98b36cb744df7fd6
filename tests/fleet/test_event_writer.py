"""Writing behind: nothing that one stream says, or that a store refuses, may cost another stream anything."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import serve
from tests.support.inside import inside
from tests.support.redis import RedisServer
from tests.support.until import until

from trimaran import Limits
from trimaran.errors import ConfigError
from trimaran.legacy.event_writer import _BATCH_BYTES, EventWriter, SessionEvents
from trimaran.state import MemoryStore, open_store
from trimaran.state.contracts import EventWrite, StoreFull, StoreUnavailable

from .boats import Boat, pair
from .test_store_away import recovers

NOTE = b'{"jsonrpc":"2.0","method":"notifications/n"}'


class Events:
    """Those of a store that may be slow, and does not take everything."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls = 0
        self.refuse: Callable[[EventWrite], Exception | None] = lambda _: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def write(self, writes: Any) -> None:
        self.calls += 1
        await self.gate.wait()
        for write in writes:
            error = self.refuse(write)
            if error is not None:
                raise error
        await self._events.write(writes)


class Crew:
    """As much of a fleet as a event_writer needs, on a store in memory."""

    name = "0123456789ab"

    def __init__(self) -> None:
        self.store: Any = MemoryStore()
        self.store.events = self.events = Events(self.store.events)
        self.tasks: list[asyncio.Task[Any]] = []
        self.event_writer = EventWriter(self, 60.0, 1 << 28)  # type: ignore[arg-type]

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    def session_events(self, most: int = 256, max_bytes: int = 1 << 22) -> SessionEvents:
        return SessionEvents(self.event_writer, secrets.token_hex(4), most, max_bytes)

    async def done(self) -> None:
        await until(lambda: self.event_writer._task is None, "all is written")
        assert not self.event_writer._due
        assert all(task.exception() is None for task in self.tasks)

    async def numbers(self, session_events: SessionEvents, stream: str) -> tuple[list[int], bool]:
        page = await self.store.events.read(session_events._session, stream, 0, limit=1000)
        return [event.number for event in page.events], page.is_ended


@contextlib.asynccontextmanager
async def crew() -> AsyncIterator[Crew]:
    made = Crew()
    try:
        yield made
    finally:
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)
        await made.store.close()


def is_clean(*scribes: SessionEvents) -> bool:
    return not any(s.queue or s._broken for s in scribes)


async def begin(ship: Crew, session_events: SessionEvents, stream: str) -> None:
    session_events.appended(stream, 1, b"first")
    await ship.done()


# --- what cannot be written


@pytest.mark.parametrize(
    "error",
    [RuntimeError("a bug"), ValueError("no form for it"), StoreFull("full"), StoreUnavailable("refused")],
    ids=["a bug", "no form", "full", "refused"],
)
async def test_an_event_that_no_store_takes_costs_nobody_else_anything(error: Exception) -> None:
    async with crew() as ship:
        one, two, three = scribes = [ship.session_events() for _ in range(3)]
        for session_events in scribes:
            await begin(ship, session_events, "r1")
        ship.events.gate.clear()
        ship.events.refuse = lambda write: error if write.data == b"poison" else None
        two.appended("r1", 2, b"poison")
        for number in range(2, 12):
            one.appended("r1", number, b"x")
            two.announced(b"%d" % number)
            three.appended("r1", number, b"x")
        for number in range(3, 12):
            two.appended("r1", number, b"x")
        for session_events in scribes:
            session_events.ended("r1")
        ship.events.gate.set()
        await ship.done()
        for session_events in (one, three):
            assert await ship.numbers(session_events, "r1") == ([*range(1, 12)], True)
        assert await ship.numbers(two, "g") == ([*range(1, 11)], False)
        assert await ship.numbers(two, "r1") == ([1, 11], True), "the answer is there, and nothing that does not follow"
        assert is_clean(*scribes)


async def test_what_can_never_be_written_is_left_out_though_nobody_else_writes() -> None:
    async with crew() as ship:
        session_events = ship.session_events()
        ship.events.refuse = lambda write: StoreUnavailable("refused") if write.data == b"poison" else None
        session_events.announced(b"poison")
        session_events.announced(b"next")
        await ship.done()
        page = await ship.store.events.read(session_events._session, "g", 0)
        assert [event.data for event in page.events] == [b"next"]


async def test_while_a_store_is_away_it_is_asked_for_a_trifle_only() -> None:
    async with crew() as ship:
        scribes = [ship.session_events() for _ in range(20)]
        asked: list[str] = []

        def away(write: EventWrite) -> Exception:
            asked.append(write.session)
            return StoreUnavailable("away", retry_after=0.0)

        ship.events.refuse = away
        for session_events in scribes:
            session_events.announced(b"x")
        await until(lambda: len(asked) > 5, "it was tried again")
        assert {*asked[1:]} == {"~probe"}
        ship.events.refuse = lambda _: None
        await ship.done()
        for session_events in scribes:
            assert await ship.numbers(session_events, "g") == ([1], False)


async def test_a_full_store_does_not_fill_the_log(caplog: Any) -> None:
    async with crew() as ship:
        session_events = ship.session_events()
        ship.events.refuse = lambda _: StoreFull("full")
        for _ in range(200):
            session_events.announced(b"x")
        await ship.done()
        assert 1 <= len(caplog.records) <= 8


# --- room and turns


async def test_a_long_event_is_not_passed_over_for_ever(monkeypatch: Any) -> None:
    async with crew() as ship:
        monkeypatch.setattr(ship, "spawn", lambda work: work.close())
        one, long, two = (ship.session_events() for _ in range(3))
        chunk = b"x" * (_BATCH_BYTES * 2 // 3)
        one.announced(chunk)
        long.announced(b"x" * (_BATCH_BYTES + 1))
        two.announced(chunk)
        for _ in range(4):
            batch = ship.event_writer._next()
            if any(item.session_events is long for item in batch):
                break
            for item in batch:
                item.session_events.wrote(item)
                item.session_events.announced(chunk)
        else:
            raise AssertionError("its turn did not come")
        ship.event_writer._task = None


async def test_nothing_is_lost_or_out_of_order_under_a_rush() -> None:
    """However many batches it takes, and though some fail, after or before they were done."""
    async with crew() as ship:
        scribes = [ship.session_events(most=5000) for _ in range(10)]
        for session_events in scribes:
            await begin(ship, session_events, "r1")
        inner, count = ship.events._events, 0

        class Flaky:
            read = inner.read

            async def write(self, writes: Any) -> None:
                nonlocal count
                count += 1
                if count % 7 == 1:
                    raise StoreUnavailable("before", retry_after=0.0)
                await inner.write(writes)
                if count % 7 == 4:
                    raise StoreUnavailable("after", retry_after=0.0)

        ship.events._events = Flaky()
        for number in range(2, 202):
            for session_events in scribes:
                session_events.appended("r1", number, b"x")
            if number % 20 == 0:
                await asyncio.sleep(0)
        for session_events in scribes:
            session_events.ended("r1")
        await ship.done()
        for session_events in scribes:
            assert await ship.numbers(session_events, "r1") == ([*range(1, 202)], True)
        assert is_clean(*scribes)


async def test_of_a_stream_that_outgrew_its_room_the_answer_is_kept() -> None:
    async with crew() as ship:
        session_events = ship.session_events(most=20)
        await begin(ship, session_events, "r1")
        ship.events.gate.clear()
        for number in range(2, 102):
            session_events.appended("r1", number, b"x")
            assert len(session_events.queue) <= 21
        session_events.ended("r1")
        ship.events.gate.set()
        await ship.done()
        numbers, is_ended = await ship.numbers(session_events, "r1")
        assert is_ended
        assert (numbers[0], numbers[-1]) == (1, 101)
        assert numbers[:-1] == [*range(1, len(numbers))], "only at one place is something missing"
        assert is_clean(session_events)


async def test_a_stream_that_has_ended_keeps_its_answer_when_room_is_needed() -> None:
    async with crew() as ship:
        session_events = ship.session_events(most=20)
        await begin(ship, session_events, "r1")
        ship.events.gate.clear()
        session_events.announced(b"in flight")
        await until(lambda: ship.events.calls == 2, "it is being written")
        for number in range(2, 12):
            session_events.appended("r1", number, b"x")
        session_events.ended("r1")
        for _ in range(12):
            session_events.announced(b"x")
        ship.events.gate.set()
        await ship.done()
        assert await ship.numbers(session_events, "r1") == ([1, 11], True)
        assert is_clean(session_events)


async def test_of_calls_made_while_the_store_is_away_the_newest_are_kept() -> None:
    async with crew() as ship:
        session_events = ship.session_events(most=20)
        is_away = True
        ship.events.refuse = lambda _: StoreUnavailable("away", retry_after=0.0) if is_away else None
        for number in range(60):
            session_events.appended(f"r{number}", 1, b"x")
            session_events.appended(f"r{number}", 2, b"answer")
            session_events.ended(f"r{number}")
            assert len(session_events.queue) <= 21
        await until(lambda: ship.events.calls > 1, "it was tried")
        is_away = False
        await ship.done()
        assert await ship.numbers(session_events, "r0") == ([], False)
        assert await ship.numbers(session_events, "r59") == ([1, 2], True)
        assert is_clean(session_events)


# --- the stores


async def test_a_redis_that_evicted_half_of_a_stream_goes_on_with_its_numbers(redis: RedisServer) -> None:
    """And what was to be written with it is written, once."""
    name = secrets.token_hex(4)
    async with open_store(f"{redis.url}?namespace={name}") as store:
        for stream in ("g", "r1"):
            await store.events.write([EventWrite("s", stream, b"%d" % n, 60, n * (stream == "r1")) for n in (1, 2, 3)])
            redis.say("DEL", f"trimaran:{{{name}}}:stream:s:{stream}")
        await store.events.write(
            [
                EventWrite("other", "g", b"x", 60),
                EventWrite("s", "g", b"4", 60),
                EventWrite("s", "r1", b"3", 60, 3),
                EventWrite("s", "r1", b"4", 60, 4),
            ]
        )
        for stream in ("g", "r1"):
            page = await store.events.read("s", stream, 0)
            assert [(event.number, event.data) for event in page.events] == [(n, b"%d" % n) for n in (1, 2, 3, 4)]
            assert page.last == 4
        assert len((await store.events.read("other", "g", 0)).events) == 1


async def test_a_redis_that_refuses_one_stream_has_written_nothing_of_the_others(redis: RedisServer) -> None:
    name = secrets.token_hex(4)
    async with open_store(f"{redis.url}?namespace={name}") as store:
        redis.say("SET", f"trimaran:{{{name}}}:stream:s:bad", "not ours")
        with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
            await store.events.write([EventWrite("s", "g", b"x", 60), EventWrite("s", "bad", b"x", 60)])
        assert (await store.events.read("s", "g", 0)).last == 0


async def test_a_full_redis_takes_the_end_of_a_stream(tmp_path: Path) -> None:
    """Whoever waits for the rest must hear that there is none; and it is what makes room."""
    own = RedisServer(tmp_path)
    own.start()
    try:
        async with open_store(own.url) as store:
            await store.events.write([EventWrite("s", "r1", b"x", 60, 1)])
            own.say("CONFIG", "SET", "maxmemory-policy", "noeviction")
            own.say("CONFIG", "SET", "maxmemory", "100000")
            more = EventWrite("s", "r2", b"x", 60, 1)
            end = EventWrite("s", "r1", None, 60)
            with pytest.raises(StoreFull):
                await store.events.write([end, more])
            assert not (await store.events.read("s", "r1", 0)).is_ended
            await store.events.write([end])
            assert (await store.events.read("s", "r1", 0)).is_ended
    finally:
        own.kill()


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_batches_of_several_processes_on_one_stream_leave_each_other_whole(
    kind: str, file: str, redis: RedisServer
) -> None:
    url = file if kind == "sqlite" else f"{redis.url}?namespace={secrets.token_hex(4)}"
    async with open_store(url) as one, open_store(url) as two:
        batches = [[EventWrite("s", "g", b"%d %d" % (b, n), 60) for n in range(5)] for b in range(40)]
        await asyncio.gather(*((one if n % 2 else two).events.write(batch) for n, batch in enumerate(batches)))
        page = await one.events.read("s", "g", 0, limit=1000)
        assert [event.number for event in page.events] == [*range(1, 201)]
        said = [event.data for event in page.events]
        assert sorted(said[at : at + 5] for at in range(0, 200, 5)) == sorted(
            [write.data for write in batch] for batch in batches
        )


async def test_something_too_long_for_sqlite_is_no_reason_to_leave_it_alone(file: str) -> None:
    store: Any = open_store(file)
    async with store:
        await store._database.write(lambda connection: connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000))
        with pytest.raises(StoreFull, match="a value this long"):
            await store.events.write([EventWrite("s", "g", b"x" * 20_000, 60)])
        await store.events.write([EventWrite("s", "g", b"x", 60)])


async def test_a_store_that_cannot_write_many_is_refused_with_the_reason() -> None:
    store: Any = MemoryStore()

    class Old:
        async def append(self, *_: Any, **__: Any) -> int:
            return 1

    store.events = Old()
    with pytest.raises(ConfigError, match="must have a method `write`"):
        async with serve("http", Boat().server, store=store):
            raise AssertionError("it serves")


# --- whoever comes back


def inner(boat: Boat) -> Any:
    return next(iter(inside(boat.server).sessions))


def limit_store(boat: Boat) -> Events:
    store = inside(boat.server).runtime.fleet.store
    store.events = events = Events(store.events)
    return events


async def written(boat: Boat) -> None:
    await until(lambda: inner(boat).outlet.session_events._event_writer._task is None, "all is written")


async def test_the_streams_of_a_server_that_was_started_again_have_its_new_name(file: str) -> None:
    """Else whoever comes for one by way of another process is told that its process has ended."""
    boat = Boat()
    boat.go.set()
    for _ in range(2):
        async with serve("http", boat.server, store=file) as boat.wire:
            session = await boat.wire.initialize()
            async with await session.open_call("work", id="w", progress="p") as stream:
                assert ((await stream.next()).id or "").startswith(f"r{inside(boat.server).runtime.fleet.name}-")
                await stream.rest()


@pytest.mark.parametrize("lost", ["answer", "end", "both"])
async def test_a_stream_whose_end_could_not_be_kept_is_not_waited_for(file: str, lost: str) -> None:
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        events = limit_store(one)
        async with await session.open_call("work", id="w", progress="p") as stream:
            seen = await stream.next()
            await written(one)

            def refuse(write: EventWrite) -> Exception | None:
                is_end, is_answer = write.data is None, b'"result"' in (write.data or b"")
                return StoreFull("full") if (is_end and lost != "answer") or (is_answer and lost != "end") else None

            events.refuse = refuse
            one.go.set()
            await stream.rest()
        await written(one)
        async with await two.at(session).get(seen.id) as again:
            said = [message for message in await again.rest() if message.get("id") == "w"]
        assert len(said) == (2 if lost == "end" else 1)
        assert "result" in said[0] if lost == "end" else "could not be stored" in said[0]["error"]["message"]


async def test_what_was_said_while_redis_was_down_is_there_for_whoever_comes_back(tmp_path: Path) -> None:
    own = RedisServer(tmp_path)
    own.start()
    try:
        async with pair(own.url) as (one, two):
            session = await one.wire.initialize()
            async with await session.open_call("work", id="w", progress="p") as stream:
                seen = await stream.next()
                await written(one)
                own.kill()
                one.go.set()
                assert len(await stream.rest()) == 2
            own.start()
            await written(one)
            await recovers(lambda: two.at(session).ask("ping"))
            async with await two.at(session).get(seen.id) as again:
                said = await again.rest()
            assert [message.get("id") for message in said] == [None, "w"]
    finally:
        own.kill()


async def test_the_loss_of_a_long_call_is_told_to_whoever_made_it(file: str, monkeypatch: Any) -> None:
    """Though the beginning of its stream has given way to what followed."""
    async with pair(file, limits=Limits(replay_events=8)) as (one, two):
        session = await one.wire.initialize()
        async with await session.open_call("work", id="w", progress="p") as stream:
            seen = await stream.next()
            name = (seen.id or "").partition(":")[0]
            for _ in range(20):
                inner(one).outlet.log.append(name, NOTE)
            await written(one)

            async def is_there(_: str) -> bool:
                return False

            monkeypatch.setattr(inside(two.server).runtime.fleet, "is_there", is_there)
            async with await two.at(session).get(f"{name}:21") as again:
                said = await again.rest()
            assert said[-1]["id"] == "w"
            assert "has ended" in said[-1]["error"]["message"]
            one.go.set()
            await stream.rest()


async def test_a_server_that_stops_writes_what_is_still_to_be_written(file: str) -> None:
    boat = Boat()
    async with serve("http", boat.server, store=file) as boat.wire:
        session = await boat.wire.initialize()
        events = limit_store(boat)
        boat.go.set()
        async with await session.open_call("work", id="w", progress="p") as stream:
            name = ((await stream.next()).id or "").partition(":")[0]
            await written(boat)
            events.gate.clear()
            await stream.rest()
        for number in range(600):
            inner(boat).send("notifications/n", {"n": number})
            if number % 100 == 0:
                await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.1, events.gate.set)
    async with open_store(file) as store:
        assert (await store.events.read(session.id, name, 0)).is_ended
        page = await store.events.read(session.id, "g", 0, limit=1000)
        assert page.events[-1].data.endswith(b'{"n":599}}')


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["read on", "taken over"])
async def test_a_batch_of_unknown_fate_is_heard_once_on_the_sessions_own_stream(
    file: str, is_elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written, and the store did not get to say so: it is written again, and nobody hears it again."""
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        here: Any = next(iter(inside(one.server).sessions))
        events = inside(one.server).runtime.fleet.store.events  # type: ignore[union-attr]
        write, mishaps = events.write, [StoreUnavailable("no answer came", retry_after=0.01)]

        async def write_and_lose_the_answer(writes: Any) -> None:
            await write(writes)
            if mishaps and any(write.stream == "g" for write in writes):
                raise mishaps.pop()

        monkeypatch.setattr(events, "write", write_and_lose_the_answer)
        async with await session.get() as stream:
            await stream.raw_event()
            for number in range(3):
                here.send("notifications/n", {"number": number})
            heard = [await stream.message() for _ in range(1 if is_elsewhere else 3)]
        await until(lambda: not mishaps and not here.outlet.session_events.queue, "all is written, some of it twice")
        reader = two.at(session) if is_elsewhere else session
        async with await reader.get(f"g:{len(heard)}") as stream:
            here.send("notifications/n", {"number": 3})
            heard += [await stream.message() for _ in range(4 - len(heard))]
    assert [said["params"]["number"] for said in heard] == [0, 1, 2, 3]


# --- bytes


async def test_what_waits_for_a_store_that_is_away_is_bounded_in_bytes() -> None:
    """256 events of 100 KB each would be 26 MB for each session. The newest stay, and the call's answer with them."""
    async with crew() as ship:
        session_events = ship.session_events(max_bytes=50_000)
        await begin(ship, session_events, "r1")
        ship.events.gate.clear()
        for _ in range(100):
            session_events.announced(b"x" * 10_000)
            assert session_events.held_bytes <= 50_000
        session_events.appended("r1", 2, b"answer")
        session_events.ended("r1")
        ship.events.gate.set()
        await ship.done()
        assert session_events.held_bytes == 0
        assert await ship.numbers(session_events, "r1") == ([1, 2], True)


async def test_what_waits_of_all_sessions_is_bounded_in_bytes() -> None:
    async with crew() as ship:
        ship.event_writer = EventWriter(ship, 60.0, 200_000)  # type: ignore[arg-type]
        scribes = [ship.session_events(max_bytes=100_000) for _ in range(20)]
        ship.events.gate.clear()
        for _ in range(10):
            for session_events in scribes:
                session_events.announced(b"x" * 5_000)
        assert sum(session_events.held_bytes for session_events in scribes) <= 200_000 * 17 / 16 + 5_000
        ship.events.gate.set()
        await ship.done()
        assert is_clean(*scribes)


async def test_ended_streams_in_the_store_make_room_for_later_ones() -> None:
    """Each is kept for two minutes; a client that makes many calls would fill the store with their answers."""
    async with crew() as ship:
        session_events = ship.session_events(max_bytes=50_000)
        for number in range(20):
            session_events.appended(f"r{number}", 1, b"x" * 10_000)
            session_events.ended(f"r{number}")
            await ship.done()

        async def kept() -> list[int]:
            pages = [await ship.numbers(session_events, f"r{number}") for number in range(20)]
            return [number for number, (numbers, _) in enumerate(pages) if numbers]

        async with asyncio.timeout(10):
            while await kept() != [15, 16, 17, 18, 19]:
                await asyncio.sleep(0.02)
