"""Changes that a process missed are told all the same."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from tests.support.harness import serve
from tests.support.inside import inside
from tests.support.redis import RedisServer
from tests.support.until import PATIENCE, until

from trimaran.state import MemoryStore

from .boats import TOOLS, Boat, pair

PROMPTS = "notifications/prompts/list_changed"


async def test_a_change_that_was_missed_is_told_though_later_ones_were_heard(file: str) -> None:
    """One's own, and those of others that came right after the gap, as a mailbox that was overrun has them."""
    async with pair(file) as (one, two):
        session = await two.wire.initialize()
        fleet, log = inside(two.server).runtime.fleet, inside(one.server).runtime.fleet.store.events
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
            assert await inside(one.server).runtime.fleet.store.events.append("~fleet", "changes", change, ttl=60) == 1
            one.server.notify.prompts_changed()
            assert [(await stream.message())["method"] for _ in range(2)] == [PROMPTS, TOOLS]
            assert inside(two.server).runtime.fleet.seen_change == 2


async def test_whatever_fails_while_listening_a_process_hears_again(redis: RedisServer, monkeypatch: Any) -> None:
    async with pair(f"{redis.url}?namespace={secrets.token_hex(4)}") as (one, two):
        bus = inside(two.server).runtime.fleet.store.bus
        take = bus._handle

        def fail(message: Any) -> str:
            monkeypatch.setattr(bus, "_handle", take)
            raise RuntimeError("out of the blue")

        monkeypatch.setattr(bus, "_handle", fail)
        one.server.notify.tools_changed()
        await until(lambda: bus._handle == take, "it has failed")
        one.server.notify.prompts_changed()
        await until(lambda: inside(two.server).runtime.fleet.seen_change == 2, "both are heard")


async def test_a_change_of_a_kind_that_is_not_known_is_passed_over(file: str) -> None:
    """A newer version may share the store for the time of an upgrade."""
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        inside(one.server).runtime.fleet._relay("weather", None, {})
        inside(one.server).runtime.fleet._relay("broadcast", None, {})
        one.server.notify.tools_changed()
        await until(lambda: inside(two.server).runtime.fleet.seen_change == 3, "all were told")
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
