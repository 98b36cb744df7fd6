"""How a session ends in a fleet, and what a call costs the store."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.harness import serve
from tests.support.inside import inside
from tests.support.peers import Site, result, tool
from tests.support.peers import error as refused
from tests.support.until import PATIENCE, until

from trimaran import connect
from trimaran.state import open_store

from .boats import TOOLS, Boat, inner, pair


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


async def test_a_server_that_stops_keeps_no_session_it_took_in(file: str) -> None:
    one, two = Boat(), Boat()
    async with serve("http", one.server, store=file) as one.wire:
        session = await one.wire.initialize()
        async with serve("http", two.server, store=file) as two.wire:
            await two.at(session).ask("ping")
            name = inside(two.server).runtime.fleet.name
            kept = inner(two)
        assert kept.closed
        assert not list(inside(two.server).sessions)
        assert inside(two.server).runtime.fleet.name != name, (
            "who starts again is another: nobody must wait for what the former did"
        )
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
