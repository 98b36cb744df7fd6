"""Records of sessions that several processes read and change at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.harness import serve
from tests.support.inside import inside
from tests.support.until import until

from trimaran import Limits
from trimaran.state.contracts import StoreFull, StoreUnavailable

from .boats import TOOLS, Boat, inner, pair


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
        record = await inside(one.server).runtime.fleet.store.sessions.get(session.id)
        assert sorted(record.subscriptions) == sorted(uris)
        await until(lambda: all(inner(boat).subscriptions == set(uris) for boat in (one, two)), "both know them")


async def test_news_that_is_older_than_what_is_known_changes_nothing(file: str) -> None:
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        await two.at(session).ask("ping")
        heard: list[Any] = []
        hear = inside(two.server).runtime.fleet._hear["session"]
        inside(two.server).runtime.fleet.on("session", heard.append)
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
            inside(two.server).runtime.fleet.on("session", lambda _: None)  # it does not hear
            await session.ask("resources/subscribe", {"uri": "log://today"})
            one.server.notify.resource_updated("log://today")
            one.server.notify.tools_changed()
            assert (await stream.message())["method"] == TOOLS
            inside(two.server).runtime.fleet._look_again()
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
            await until(lambda: inside(two.server).sessions.shared._loading, "it is being taken in")
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
        store = inside(one.server).runtime.fleet.store
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
    monkeypatch.setattr("trimaran.legacy.fleet_sessions._UNSURE_SECONDS", 0.05)
    async with pair(file) as (one, two):
        session = await one.wire.initialize(ready=False)
        store = inside(one.server).runtime.fleet.store
        store.sessions = Refusing(sessions := store.sessions, error)
        assert (await session.notify("notifications/initialized")).status == 202
        assert (await session.call("add", {"a": 1, "b": 2})).status == 200
        store.sessions = sessions
        there = two.at(session)
        while (reply := await there.call("add", {"a": 1, "b": 2})).status != 200:
            assert "notifications/initialized" in reply.error["message"]
