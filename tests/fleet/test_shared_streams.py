"""Streams that begin, move and end while several processes share them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tests.support.harness import notification
from tests.support.inside import inside
from tests.support.until import PATIENCE, until

from trimaran import Limits
from trimaran.state.contracts import StoreFull, StoreUnavailable

from .boats import TOOLS, inner, pair


async def test_a_stream_that_is_opened_again_does_not_repeat_what_was_heard(store: str) -> None:
    """By a client that does not say what it heard last, here and elsewhere, though the old one has not ended yet."""
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        await two.at(session).ask("ping")
        n = 0
        async with contextlib.AsyncExitStack() as streams:
            for boat in (one, one, two, two, one):
                stream = await streams.enter_async_context(await boat.at(session).get())
                await stream.raw_event()
                n += 1
                inner(boat).send("notifications/n", {"n": n})
                assert (await stream.message()) == notification("notifications/n", {"n": n})


async def test_old_news_of_another_reader_does_not_end_a_stream_that_begins(file: str, monkeypatch: Any) -> None:
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        await two.at(session).ask("ping")
        shared = inside(two.server).sessions.shared
        amend = shared._amend

        async def late(*arguments: Any) -> Any:
            shared._hear_stream((session.id, inside(one.server).runtime.fleet.name, 1))
            return await amend(*arguments)

        monkeypatch.setattr(shared, "_amend", late)
        async with await two.at(session).get() as stream:
            await stream.raw_event()
            two.server.notify.tools_changed()
            assert (await stream.message())["method"] == TOOLS


async def test_a_stream_that_was_taken_over_before_it_began_leaves_the_other_its_news(
    file: str, monkeypatch: Any
) -> None:
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        shared = inside(one.server).sessions.shared
        take = shared.take_stream
        came, go = asyncio.Event(), asyncio.Event()

        async def held(*arguments: Any) -> Any:
            taken = await take(*arguments)
            if not came.is_set():
                came.set()
                await go.wait()
            return taken

        monkeypatch.setattr(shared, "take_stream", held)
        first = asyncio.ensure_future(session.get())
        await asyncio.wait_for(came.wait(), PATIENCE)
        async with await session.get() as second:
            await second.raw_event()
            go.set()
            async with await first as ended:
                while await ended.raw_event() is not None:
                    pass
            two.server.notify.tools_changed()
            assert (await second.message())["method"] == TOOLS


async def test_two_streams_that_are_opened_at_once_leave_one(store: str) -> None:
    """R123."""
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        await two.at(session).ask("ping")
        async with contextlib.AsyncExitStack() as streams:
            gets = (boat.at(session).get() for boat in (one, two, one, two))
            opened = [await streams.enter_async_context(stream) for stream in await asyncio.gather(*gets)]
            outlets = [inner(boat).outlet for boat in (one, two)]
            await until(lambda: sum(outlet.is_read_here for outlet in outlets) == 1, "one is left")
            record = await inside(one.server).runtime.fleet.store.sessions.get(session.id)
            reads = one if outlets[0].is_read_here else two
            assert record.worker == inside(reads.server).runtime.fleet.name
            one.server.notify.tools_changed()

            async def hear(stream: Any) -> list[str]:
                while (event := await stream.raw_event()) is not None:
                    if event.data:
                        return [event.message["method"]]
                return []

            assert sorted(await asyncio.gather(*map(hear, opened))) == [[], [], [], [TOOLS]]


class Slow:
    """The events of a store that takes its time."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()
        self.gate.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def write(self, writes: Any) -> None:
        self.asked.set()
        await self.gate.wait()
        await self._events.write(writes)


async def test_a_call_that_is_cancelled_before_anything_of_it_is_written_ends_properly(file: str) -> None:
    async with pair(file) as (one, _):
        session = await one.wire.initialize()
        store = inside(one.server).runtime.fleet.store
        store.events = slow = Slow(store.events)
        slow.gate.clear()
        calling = asyncio.ensure_future(session.call("work", id=5, progress="p"))
        await asyncio.wait_for(slow.asked.wait(), PATIENCE)
        assert (await session.cancel(5)).status == 202
        assert (await calling).status == 200
        log = inner(one).outlet.log
        assert not log._open
        slow.gate.set()
        await until(lambda: log._mirror._event_writer._task is None, "all is written")
        assert not log._mirror._broken


async def test_a_call_whose_time_ran_out_while_its_stream_began_is_answered(file: str) -> None:
    async with pair(file, limits=Limits(request_timeout=0.2)) as (one, _):
        session = await one.wire.initialize()
        store = inside(one.server).runtime.fleet.store
        store.events = slow = Slow(store.events)
        slow.gate.clear()
        reply = await session.call("work", id=5, progress="p")
        assert reply.status == 200
        assert "0.2 s" in reply.error["message"]
        slow.gate.set()


class Full:
    """The events of a store that has no room at times."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self.number = 0
        """The number of the event of a call that is refused, and whatever is to be written with it."""
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def write(self, writes: Any) -> None:
        if any(write.number and write.number == self.number for write in writes):
            self.refused += 1
            raise StoreFull("full")
        await self._events.write(writes)


async def test_a_stream_with_a_request_id_that_is_too_long_for_a_name_cannot_be_resumed(file: str) -> None:
    async with pair(file) as (one, _):
        session = await one.wire.initialize()
        id = "w" * 200
        async with await session.open_call("work", id=id, progress="p") as stream:
            event = await stream.next()
            assert (event.id, event.message["params"]["progress"]) == (None, 1)
            one.go.set()
            assert [message.get("id") for message in await stream.rest()] == [None, id]
        assert not inner(one).outlet.session_events.queue


async def test_events_that_found_no_room_do_not_shift_the_numbers_of_the_others(file: str) -> None:
    """A client that comes back must not be given something twice, nor another's place."""
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        store = inside(one.server).runtime.fleet.store
        store.events = full = Full(store.events)
        async with await session.open_call("work", id="w", progress="p") as stream:
            seen = await stream.next()
            session_events = inner(one).outlet.session_events
            await until(lambda: session_events._event_writer._task is None, "it is written")
            full.number = 2
            one.go.set()
            assert len(await stream.rest()) == 2
        await until(lambda: session_events._event_writer._task is None, "all is said")
        assert full.refused
        name = (seen.id or "").partition(":")[0]
        page = await inside(two.server).runtime.fleet.store.events.read(session.id, name, 0)
        assert page.is_ended
        kept = {number: data for stream, number, data in inner(one).outlet.log._events if stream == name}
        assert [kept[event.number] for event in page.events[1:]] == [event.data for event in page.events[1:]]
        assert not session_events._broken


async def test_the_streams_of_a_process_never_have_the_same_name_twice(file: str) -> None:
    """A process may forget a session that is used elsewhere, and meet it again."""
    async with pair(file) as (one, _):
        session = await one.wire.initialize()
        one.go.set()
        names: set[str] = set()
        for _ in range(3):
            async with await session.open_call("work", progress="p") as stream:
                names.add(((await stream.next()).id or "").partition(":")[0])
                await stream.rest()
            inside(one.server).sessions.end(inner(one))
        assert len(names) == 3


async def test_a_reader_that_leaves_while_the_store_is_away_is_no_incident(file: str, caplog: Any) -> None:
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        stream = await session.open_call("work", id="w", progress="p")
        seen = await stream.next()
        await stream.close()
        events = inside(two.server).runtime.fleet.store.events
        away = False
        read = events.read

        async def reading(*arguments: Any, **options: Any) -> Any:
            if away:
                raise StoreUnavailable("away", retry_after=5.0)
            return await read(*arguments, **options)

        inside(two.server).runtime.fleet.store.events.read = reading
        async with await two.at(session).get(seen.id) as again:
            await again.raw_event()
            away = True
            one.go.set()
            await asyncio.sleep(0.1)
        await until(lambda: not inside(two.server).sessions.shared.reading, "it has left")
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
