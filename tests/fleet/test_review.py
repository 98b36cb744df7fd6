"""What several processes on one store must not do to each other: lose, double, mix up, get stuck or leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.patience import PATIENCE
from tests.unit.state.redis_server import RedisServer
from tests.wire.client.peers import Site, result, tool
from tests.wire.client.peers import error as refused
from tests.wire.harness import initialize, notification, serve, until

from trimaran import Limits, connect
from trimaran.server.access import owner_text, same_principal
from trimaran.state import MemoryStore, open_store
from trimaran.state.contracts import StoreFull, StoreUnavailable

from .test_sessions import ABLE, Boat, pair

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
UPDATED = "notifications/resources/updated"
HUGE = 2**70  # JSON has it, MessagePack does not


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisServer) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'fleet.db'}"
    return f"{redis.url}?namespace={secrets.token_hex(4)}"


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'fleet.db'}"


def inner(boat: Boat) -> Any:
    return next(iter(boat.server.sessions))


# --- what a client says must not harm others


async def test_a_cancellation_that_cannot_be_passed_on_does_not_silence_its_process(file: str) -> None:
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        await two.at(session).ask("ping")
        assert (await session.cancel(HUGE)).status == 202
        one.server.notify.tools_changed()
        await until(lambda: two.server.fleet.seen_change == 1, "the next piece of news is heard")


async def test_a_broadcast_that_cannot_be_written_down_does_not_silence_its_process(file: str) -> None:
    async with pair(file) as (one, two):
        await one.wire.initialize()
        one.server.broadcast("notifications/huge", {"n": HUGE})
        one.server.notify.tools_changed()
        await until(lambda: two.server.fleet.seen_change == 1, "the next piece of news is heard")


async def test_a_handshake_that_cannot_be_written_down_is_refused_and_leaves_nothing_behind(store: str) -> None:
    async with pair(store) as (one, _):
        reply = await one.wire.post(initialize(caps={"experimental": {"n": HUGE}}))
        assert reply.error["code"] == -32602
        assert not list(one.server.sessions)
        assert await one.server.fleet.store.sessions.count() == 0


async def test_answers_that_nobody_can_be_given_do_not_pile_up(file: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("trimaran.fleet._MOST_ASKING", 5)
    async with pair(file) as (one, _):
        session = await one.wire.initialize(caps=ABLE)
        fleet = one.server.fleet
        before = len(fleet._errands)

        async def away(*_: Any, **__: Any) -> bytes:
            raise StoreUnavailable("away", retry_after=30.0)

        monkeypatch.setattr(fleet.store.bus, "request", away)
        replies = await asyncio.gather(*(session.answer(f"srv-000000000000-{n}", {}) for n in range(20)))
        assert {reply.status for reply in replies} == {202}
        assert len(fleet._errands) - before <= 5


class ByNumberOf(NamedTuple):
    """A principal without a subject that is equal by value."""

    number: int


def test_who_owns_something_is_not_decided_by_a_hash() -> None:
    one, other = ByNumberOf(-1), ByNumberOf(-2)
    assert hash(one) == hash(other)
    assert not same_principal(one, other)
    assert owner_text(one) != owner_text(other)


def test_who_owns_something_is_not_decided_by_how_it_looks() -> None:
    subjects = ["1", 1, "", "None", '","']
    texts = [
        owner_text(SimpleNamespace(subject=subject, issuer=issuer)) for subject in subjects for issuer in ("", "1")
    ]
    assert len(set(texts)) == len(texts)
    assert not {owner_text(None), owner_text("1"), owner_text(1), owner_text("")} & set(texts)


class Number:
    """The same without a tuple's help."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self.number == other.number

    def __hash__(self) -> int:
        return 7


class ByNumber:
    async def authenticate(self, request: Any) -> Any:
        return Number(int(request.headers.get("x-user")))


async def test_a_session_of_a_principal_known_by_value_is_its_own_only(file: str) -> None:
    """R102."""
    boat = Boat()
    async with serve("http", boat.server, store=file, auth=ByNumber()) as boat.wire:
        session = await boat.wire.initialize(headers={"x-user": "1"})
        assert (await session.ask("ping")).status == 200
        assert (await session.ask("ping", headers={"x-user": "2"})).status == 404


# --- records


async def test_many_changes_of_one_session_at_once_are_all_made(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        await two.at(session).ask("ping")
        uris = [f"log://{n}" for n in range(40)]
        replies = await asyncio.gather(
            *(
                (one if n % 2 else two).at(session).ask("resources/subscribe", {"uri": uri}, id=f"s{n}")
                for n, uri in enumerate(uris)
            )
        )
        assert [reply.status for reply in replies] == [200] * 40
        record = await one.server.fleet.store.sessions.get(session.id)
        assert sorted(record.subscriptions) == sorted(uris)
        await until(lambda: all(inner(boat).subscriptions == set(uris) for boat in (one, two)), "both know them")


async def test_news_that_is_older_than_what_is_known_changes_nothing(file: str) -> None:
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        await two.at(session).ask("ping")
        heard: list[Any] = []
        hear = two.server.fleet._hear["session"]
        two.server.fleet.on("session", heard.append)
        for uri in ("log://1", "log://2"):
            await session.ask("resources/subscribe", {"uri": uri})
        await until(lambda: heard and len(heard[-1]["subscriptions"]) == 2, "both were told")
        for news in reversed(heard[-2:]):
            hear(news)
        assert inner(two).subscriptions == {"log://1", "log://2"}


async def test_what_was_settled_during_a_gap_is_known_after_it(file: str) -> None:
    """And who subscribed meanwhile is told to look: it may have missed a change."""
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        async with await two.at(session).get() as stream:
            await stream.raw_event()
            two.server.fleet.on("session", lambda _: None)  # it does not hear
            await session.ask("resources/subscribe", {"uri": "log://today"})
            one.server.notify.resource_updated("log://today")
            one.server.notify.tools_changed()
            assert (await stream.message())["method"] == TOOLS
            two.server.fleet._look_again()
            assert (await stream.message())["params"] == {"uri": "log://today"}


async def test_a_session_in_use_does_not_end_by_idleness(file: str) -> None:
    """Also where the time allowed is shorter than the time for which a record is taken to be there."""
    async with pair(file, limits=Limits(session_idle_timeout=0.4)) as (one, two):
        session = await one.wire.initialize()
        for n in range(10):
            boat = one if n < 3 or n % 4 == 0 else two
            assert (await boat.at(session).ask("ping")).status == 200, n
            await asyncio.sleep(0.1)


async def test_an_open_stream_keeps_a_session_that_may_be_idle_for_a_moment_only(file: str) -> None:
    async with pair(file, limits=Limits(session_idle_timeout=0.4)) as (one, two):
        session = await one.wire.initialize()
        async with await session.get() as stream:
            await stream.raw_event()
            await asyncio.sleep(1.0)
            assert (await two.at(session).ask("ping")).status == 200


async def test_a_session_that_is_deleted_while_it_is_taken_in_is_not_taken_in(file: str) -> None:
    one, two = Boat(), Boat(init=lambda _: gate.wait())
    gate = asyncio.Event()
    gate.set()
    async with serve("http", one.server, store=file) as one.wire:
        async with serve("http", two.server, store=file) as two.wire:
            session = await one.wire.initialize()
            gate.clear()
            asking = asyncio.ensure_future(two.at(session).ask("ping"))
            await until(lambda: two.server.sessions.shared._loading, "it is being taken in")
            assert (await session.delete()).status == 204
            gate.set()
            assert (await asking).status == 404


class Refusing:
    """The sessions of a store that cannot be written to."""

    def __init__(self, sessions: Any, error: Exception) -> None:
        self._sessions = sessions
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions, name)

    async def put(self, record: Any, **_: Any) -> Any:
        raise self._error


@pytest.mark.parametrize("error", [StoreFull("full"), StoreUnavailable("away")], ids=["full", "away"])
async def test_what_cannot_be_written_down_is_refused_for_now(file: str, error: Exception) -> None:
    async with pair(file) as (one, _):
        session = await one.wire.initialize()
        store = one.server.fleet.store
        store.sessions = Refusing(store.sessions, error)
        subscribing = await session.ask("resources/subscribe", {"uri": "log://today"})
        async with await session.get() as stream:
            assert (subscribing.status, stream.status) == (503, 503)
        assert (await session.ask("ping")).status == 200


@pytest.mark.parametrize("error", [StoreFull("full"), StoreUnavailable("away")], ids=["full", "away"])
async def test_a_handshake_that_ends_while_the_store_is_away_is_ended_when_it_is_back(
    file: str, error: Exception, monkeypatch: Any
) -> None:
    """A client that was told that its `initialized` failed could do nothing about it."""
    monkeypatch.setattr("trimaran.legacy.shared._UNSURE_SECONDS", 0.05)
    async with pair(file) as (one, two):
        session = await one.wire.initialize(ready=False)
        store = one.server.fleet.store
        store.sessions = Refusing(sessions := store.sessions, error)
        assert (await session.notify("notifications/initialized")).status == 202
        assert (await session.call("add", {"a": 1, "b": 2})).status == 200
        store.sessions = sessions
        there = two.at(session)
        while (reply := await there.call("add", {"a": 1, "b": 2})).status != 200:
            assert "notifications/initialized" in reply.error["message"]


# --- changes and gaps


async def test_a_change_that_was_missed_is_told_though_later_ones_were_heard(file: str) -> None:
    """One's own, and those of others that came right after the gap, as a mailbox that was overrun has them."""
    async with pair(file) as (one, two):
        session = await two.wire.initialize()
        fleet, log = two.server.fleet, one.server.fleet.store.events
        async with await session.get() as stream:
            await stream.raw_event()
            late: list[Any] = []
            hear = fleet._hear["change"]
            fleet.on("change", late.append)
            one.server.notify.tools_changed()
            assert await log.wait("~fleet", "changes", 0, timeout=PATIENCE)
            two.server.notify.prompts_changed()
            assert (await stream.message())["method"] == PROMPTS
            assert await log.wait("~fleet", "changes", 1, timeout=PATIENCE)
            one.server.notify.resources_changed()
            await until(lambda: len(late) == 2, "both were told")
            fleet.on("change", hear)
            fleet._look_again()
            hear(late[1])
            told = sorted([(await stream.message())["method"] for _ in range(2)])
            assert told == ["notifications/resources/list_changed", TOOLS]
            two.server.notify.prompts_changed()
            assert (await stream.message())["method"] == PROMPTS, "and nothing twice"


async def test_a_change_that_its_process_did_not_live_to_tell_is_told(file: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("trimaran.fleet._HOLE_SECONDS", 0.05)
    async with pair(file) as (one, two):
        session = await two.wire.initialize()
        async with await session.get() as stream:
            await stream.raw_event()
            change = msgspec.msgpack.encode(("tools", None, {}))
            assert await one.server.fleet.store.events.append("~fleet", "changes", change, ttl=60) == 1
            one.server.notify.prompts_changed()
            assert [(await stream.message())["method"] for _ in range(2)] == [PROMPTS, TOOLS]
            assert two.server.fleet.seen_change == 2


async def test_whatever_fails_while_listening_a_process_hears_again(redis: RedisServer, monkeypatch: Any) -> None:
    async with pair(f"{redis.url}?namespace={secrets.token_hex(4)}") as (one, two):
        bus = two.server.fleet.store.bus
        take = bus._take

        def fail(message: Any) -> str:
            monkeypatch.setattr(bus, "_take", take)
            raise RuntimeError("out of the blue")

        monkeypatch.setattr(bus, "_take", fail)
        one.server.notify.tools_changed()
        await until(lambda: bus._take == take, "it has failed")
        one.server.notify.prompts_changed()
        await until(lambda: two.server.fleet.seen_change == 2, "both are heard")


async def test_a_change_of_a_kind_that_is_not_known_is_passed_over(file: str) -> None:
    """A newer version may share the store for the time of an upgrade."""
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        one.server.fleet._relay("weather", None, {})
        one.server.fleet._relay("broadcast", None, {})
        one.server.notify.tools_changed()
        await until(lambda: two.server.fleet.seen_change == 3, "all were told")
        async with await two.at(session).get() as stream:
            assert (await stream.message())["method"] == TOOLS


async def test_servers_on_one_store_object_hear_each_other() -> None:
    store = MemoryStore()
    one, two = Boat(), Boat()
    async with serve("http", one.server, store=store) as one.wire:
        async with serve("http", two.server, store=store) as two.wire:
            session = await one.wire.initialize()
            async with await two.at(session).get() as stream:
                await stream.raw_event()
                one.server.notify.tools_changed()
                assert (await stream.message())["method"] == TOOLS


# --- streams


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
        shared = two.server.sessions.shared
        amend = shared._amend

        async def late(*arguments: Any) -> Any:
            shared._hear_stream((session.id, one.server.fleet.name, 1))
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
        shared = one.server.sessions.shared
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
            record = await one.server.fleet.store.sessions.get(session.id)
            reads = one if outlets[0].is_read_here else two
            assert record.worker == reads.server.fleet.name
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
        store = one.server.fleet.store
        store.events = slow = Slow(store.events)
        slow.gate.clear()
        calling = asyncio.ensure_future(session.call("work", id=5, progress="p"))
        await asyncio.wait_for(slow.asked.wait(), PATIENCE)
        assert (await session.cancel(5)).status == 202
        assert (await calling).status == 200
        log = inner(one).outlet.log
        assert not log._open
        slow.gate.set()
        await until(lambda: log._mirror._logbook._task is None, "all is written")
        assert not log._mirror._broken


async def test_a_call_whose_time_ran_out_while_its_stream_began_is_answered(file: str) -> None:
    async with pair(file, limits=Limits(request_timeout=0.2)) as (one, _):
        session = await one.wire.initialize()
        store = one.server.fleet.store
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
        assert not inner(one).outlet.scribe.queue


async def test_events_that_found_no_room_do_not_shift_the_numbers_of_the_others(file: str) -> None:
    """A client that comes back must not be given something twice, nor another's place."""
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        store = one.server.fleet.store
        store.events = full = Full(store.events)
        async with await session.open_call("work", id="w", progress="p") as stream:
            seen = await stream.next()
            scribe = inner(one).outlet.scribe
            await until(lambda: scribe._logbook._task is None, "it is written")
            full.number = 2
            one.go.set()
            assert len(await stream.rest()) == 2
        await until(lambda: scribe._logbook._task is None, "all is said")
        assert full.refused
        name = (seen.id or "").partition(":")[0]
        page = await two.server.fleet.store.events.read(session.id, name, 0)
        assert page.is_ended
        kept = {number: data for stream, number, data in inner(one).outlet.log._events if stream == name}
        assert [kept[event.number] for event in page.events[1:]] == [event.data for event in page.events[1:]]
        assert not scribe._broken


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
            one.server.sessions.end(inner(one))
        assert len(names) == 3


async def test_a_reader_that_leaves_while_the_store_is_away_is_no_incident(file: str, caplog: Any) -> None:
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        stream = await session.open_call("work", id="w", progress="p")
        seen = await stream.next()
        await stream.close()
        events = two.server.fleet.store.events
        away = False
        read = events.read

        async def reading(*arguments: Any, **options: Any) -> Any:
            if away:
                raise StoreUnavailable("away", retry_after=5.0)
            return await read(*arguments, **options)

        two.server.fleet.store.events.read = reading
        async with await two.at(session).get(seen.id) as again:
            await again.raw_event()
            away = True
            one.go.set()
            await asyncio.sleep(0.1)
        await until(lambda: not two.server.sessions.shared.reading, "it has left")
        assert not [record for record in caplog.records if record.levelname == "ERROR"]


# --- the client


async def test_a_list_of_tools_that_cannot_be_had_at_the_moment_is_not_taken_for_the_list() -> None:
    """A server whose store is away refuses it with 503; what was known before still tells how a result is to be read."""
    wrapped = {"type": "object", "properties": {"result": {}}, "x-fastmcp-wrap-result": True}
    site = Site().legacy(capabilities={"tools": {"listChanged": True}})
    listed = result({"tools": [{**tool("t"), "outputSchema": wrapped}]})
    site.on("tools/call", result({"content": [], "structuredContent": {"result": 12}}))
    await site.start()
    try:
        async with connect(site.url) as client:
            site.on("tools/list", refused(-32603, "away", status=503))
            assert (await client.call_tool("t")).data == {"result": 12}
            site.on("tools/list", listed)
            assert (await client.call_tool("t")).data == 12
            client._hear(TOOLS, {})
            site.on("tools/list", refused(-32603, "away", status=503))
            assert (await client.call_tool("t")).data == 12
    finally:
        await site.stop()


# --- the end, and the cost


async def test_a_server_that_stops_keeps_no_session_it_took_in(file: str) -> None:
    one, two = Boat(), Boat()
    async with serve("http", one.server, store=file) as one.wire:
        session = await one.wire.initialize()
        async with serve("http", two.server, store=file) as two.wire:
            await two.at(session).ask("ping")
            name = two.server.fleet.name
            kept = inner(two)
        assert kept.closed
        assert not list(two.server.sessions)
        assert two.server.fleet.name != name, "who starts again is another: nobody must wait for what the former did"
        assert (await session.ask("ping")).status == 200


class Counting:
    def __init__(self, part: Any, asked: list[str]) -> None:
        self._part = part
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if callable(found):
            self._asked.append(name)
        return found


async def test_a_call_that_is_answered_at_once_costs_the_store_nothing(file: str) -> None:
    store: Any = open_store(file)
    asked: list[str] = []
    one = Boat()
    async with serve("http", one.server, store=store) as one.wire:
        session = await one.wire.initialize()
        await session.call("add", {"a": 1, "b": 2})
        for part in ("sessions", "events", "bus"):
            setattr(store, part, Counting(getattr(store, part), asked))
        for n in range(50):
            assert (await session.call("add", {"a": 1, "b": 2}, id=n)).status == 200
        assert asked == []


async def test_a_session_is_ended_by_its_id_from_any_process(store: str) -> None:
    """R96, R100: also from one that has never seen it; its calls fail where they are at work."""
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        waiting = asyncio.ensure_future(session.call("hold", id="h"))
        await until(lambda: [info.calls for info in one.server.list_sessions()] == [1], "the call is at work")
        assert two.server.list_sessions() == []
        assert await two.server.end_session(session.id, "the yard is closing")
        reply = await asyncio.wait_for(waiting, PATIENCE)
        assert reply.verdict == (200, -32600, "h")
        assert "the yard is closing" in reply.error["message"]
        assert (await one.at(session).ask("ping")).status == 404
        assert (await two.at(session).ask("ping")).status == 404
        assert not await one.server.end_session(session.id)
