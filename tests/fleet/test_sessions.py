"""One legacy session, served by two processes that share a store: a client never notices which one it reached.

Two servers in one test process stand for the two: they share nothing but the store. `tests/fleet/test_chaos.py` has real
processes behind a real balancer.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import LEGACY, encode, initialize, notification, request, serve
from tests.support.inside import inside
from tests.support.until import PATIENCE, until

from trimaran import Limits
from trimaran.errors import ConfigError

from .boats import ABLE, Boat, pair


async def test_a_session_of_one_process_is_served_by_the_other(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize(ready=False)
        there = two.at(session)
        assert (await there.ask("ping")).result == {}
        assert (await there.call("add", {"a": 1, "b": 2})).status == 400, "the handshake is not finished anywhere"
        assert (await there.notify("notifications/initialized")).status == 202
        for here in (session, there):
            reply = await here.call("add", {"a": 1, "b": 2})
            assert reply.result["structuredContent"] == {"result": 3}
            assert reply.headers["mcp-session-id"] == session.id


@pytest.mark.parametrize("version", LEGACY[:3])
async def test_the_revision_and_the_capabilities_go_with_the_session(store: str, version: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize(version, caps=ABLE)
        await two.at(session).ask("ping")
        here, there = (next(iter(inside(boat.server).sessions)) for boat in (one, two))
        assert there.peer == here.peer
        assert there.peer.version == version


async def test_a_session_that_was_deleted_in_one_process_is_gone_in_the_other(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        there = two.at(session)
        assert (await there.ask("ping")).status == 200
        assert (await session.delete()).status == 204
        await until(lambda: not list(inside(two.server).sessions), "the other process has heard")
        for here in (session, there):
            assert (await here.ask("ping")).status == 404


@pytest.mark.parametrize("id", ["mcp_" + "0" * 32, "mcp_nonsense", "x" * 5000, "../../etc", "%00"])
async def test_an_unknown_or_malformed_session_is_unknown_everywhere(store: str, id: str) -> None:
    """A foreign, expired or malformed session id gets what an unknown one gets."""
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        for boat in (one, two):
            reply = await boat.at(session).ask("ping", headers={"Mcp-Session-Id": id})
            assert (reply.status, reply.error["code"]) == (404, -32600)


class ByHeader:
    async def authenticate(self, request: Any) -> Any:
        return request.headers.get("x-user")


async def test_a_session_belongs_to_its_owner_in_every_process(store: str) -> None:
    """R102."""
    one, two = Boat(), Boat()
    async with serve("http", one.server, store=store, auth=ByHeader()) as one.wire:
        async with serve("http", two.server, store=store, auth=ByHeader()) as two.wire:
            session = await one.wire.initialize(headers={"x-user": "ann"})
            there = two.at(session)
            stranger = await there.ask("ping", headers={"x-user": "bob"})
            nobody = await there.ask("ping", headers={"x-user": None})
            assert (stranger.status, nobody.status) == (404, 404)
            assert (await there.ask("ping")).status == 200
            assert (await there.ask("ping", headers={"x-user": "bob"})).status == 404, "also once it is known there"


async def test_a_session_survives_the_restart_of_its_only_process(store: str) -> None:
    one = Boat()
    async with serve("http", one.server, store=store) as one.wire:
        session = await one.wire.initialize()
    two = Boat()
    async with serve("http", two.server, store=store) as two.wire:
        assert (await two.at(session).call("add", {"a": 1, "b": 2})).status == 200


async def test_a_server_may_be_stopped_and_served_again(store: str) -> None:
    boat = Boat()
    for _ in range(2):
        async with serve("http", boat.server, store=store) as boat.wire:
            session = await boat.wire.initialize()
            assert (await session.call("add", {"a": 1, "b": 2})).status == 200


async def test_an_answer_that_reaches_the_other_process_finds_its_question(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize(caps=ABLE)
        async with await session.open_call("ask") as stream:
            asked = await stream.message()
            assert asked["method"] == "elicitation/create"
            reply = await two.at(session).answer(asked["id"], {"action": "accept", "content": {"name": "Ann"}})
            assert reply.status == 202
            assert (await stream.message())["result"]["content"][0]["text"] == "accept Ann"


async def test_a_refusal_that_reaches_the_other_process_finds_its_question(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize(caps=ABLE)
        async with await session.open_call("ask") as stream:
            asked = await stream.message()
            error = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "not now"}}
            assert (await two.at(session).post(error)).status == 202
            assert "not now" in (await stream.message())["error"]["message"]


@pytest.mark.parametrize("id", ["srv-1", "srv-000000000000-1", "srv-zz-1", 17, "x" * 1000])
async def test_an_answer_to_no_question_is_accepted_and_ignored(store: str, id: Any) -> None:
    """R61."""
    async with pair(store) as (one, _):
        session = await one.wire.initialize(caps=ABLE)
        assert (await session.answer(id, {})).status == 202
        assert (await session.ask("ping")).status == 200


async def test_a_session_answers_only_its_own_questions(store: str) -> None:
    async with pair(store) as (one, two):
        session, other = await one.wire.initialize(caps=ABLE), await two.wire.initialize(caps=ABLE)
        async with await session.open_call("ask") as stream:
            asked = await stream.message()
            await two.at(other).answer(asked["id"], {"action": "accept", "content": {"name": "Mallory"}})
            await two.at(session).answer(asked["id"], {"action": "accept", "content": {"name": "Ann"}})
            assert (await stream.message())["result"]["content"][0]["text"] == "accept Ann"


async def test_a_cancellation_reaches_the_process_that_works(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        calling = asyncio.ensure_future(session.call("hold", id=7))
        await asyncio.wait_for(one.started.wait(), PATIENCE)
        assert (await two.at(session).cancel(7)).status == 202
        assert (await calling).body == b""
        assert one.outcome == "cancelled True"


async def test_the_log_level_set_in_one_process_counts_in_the_other(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        there = two.at(session)
        assert len((await there.call("chat")).messages) == 2
        assert (await session.ask("logging/setLevel", {"level": "error"})).status == 200
        session_there = next(iter(inside(two.server).sessions))
        await until(lambda: session_there.log_level == "error", "the level has come over")
        assert len((await there.call("chat")).messages) == 1


async def test_changes_are_told_by_whoever_has_the_stream(store: str) -> None:
    """`server.notify` works from any replica (docs/guides/notifications.md)."""
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        async with await two.at(session).get() as stream:
            await stream.raw_event()
            one.server.notify.tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            two.server.notify.prompts_changed()
            assert (await stream.message())["method"] == "notifications/prompts/list_changed"
            assert one.server.broadcast("notifications/all", {"n": 1}) == 1
            assert (await stream.message()) == notification("notifications/all", {"n": 1})


async def test_a_subscription_made_in_one_process_is_heard_on_the_stream_of_the_other(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        async with await two.at(session).get() as stream:
            await stream.raw_event()
            assert (await session.ask("resources/subscribe", {"uri": "log://today"})).status == 200
            one.server.notify.resource_updated("log://today")
            assert (await stream.message())["params"] == {"uri": "log://today"}
            assert (await session.ask("resources/unsubscribe", {"uri": "log://today"})).status == 200
            one.server.notify.resource_updated("log://today")
            one.server.notify.tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"


async def test_what_changes_while_nobody_listens_is_told_on_the_next_stream(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        assert (await session.ask("resources/subscribe", {"uri": "log://today"})).status == 200
        one.server.notify.resource_updated("log://today")
        one.server.notify.tools_changed()
        await until(lambda: inside(two.server).runtime.fleet.seen_change >= 2, "the other process has heard")
        async with await two.at(session).get() as stream:
            told = [(await stream.message())["method"] for _ in range(2)]
            assert told == ["notifications/resources/updated", "notifications/tools/list_changed"]


async def test_a_second_stream_elsewhere_replaces_the_first(store: str) -> None:
    """R123."""
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        async with await session.get() as first:
            await first.raw_event()
            async with await two.at(session).get() as second:
                await second.raw_event()
                assert await first.rest() == []
                one.server.notify.tools_changed()
                assert (await second.message())["method"] == "notifications/tools/list_changed"


async def test_the_standalone_stream_is_replayed_by_the_other_process(store: str) -> None:
    """R124, R125."""
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        async with await session.get() as stream:
            await stream.raw_event()
            for n in range(4):
                one.server.broadcast("notifications/n", {"n": n})
            ids = [(await stream.next()).id for _ in range(4)]
        async with await two.at(session).get(ids[1]) as stream:
            assert [(await stream.message())["params"]["n"] for _ in range(2)] == [2, 3]


async def test_the_stream_of_a_call_is_resumed_by_the_other_process(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        stream = await session.open_call("work", id="w", progress="p")
        seen = await stream.next()
        assert seen.message["params"]["progress"] == 1
        await stream.close()
        async with await two.at(session).get(seen.id) as again:
            one.go.set()
            assert (await again.message())["params"]["progress"] == 2
            result = await again.message()
            assert (result["id"], result["result"]["content"][0]["text"]) == ("w", "worked")
            assert await again.rest() == []


async def test_the_stream_of_a_call_that_has_ended_is_replayed_by_the_other_process(store: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        one.go.set()
        async with await session.open_call("work", id="w", progress="p") as stream:
            ids = [(await stream.next()).id for _ in range(3)]
        async with await two.at(session).get(ids[0]) as again:
            messages = await again.rest()
            assert [m.get("id") for m in messages] == [None, "w"]


async def test_whoever_comes_for_a_call_whose_process_died_is_told_so(store: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("trimaran.legacy.fleet_sessions._LOOK_SECONDS", 0.05)
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        stream = await session.open_call("work", id="w", progress="p")
        seen = await stream.next()
        await stream.close()

        async def gone(name: str) -> bool:
            assert name == inside(one.server).runtime.fleet.name
            return False

        monkeypatch.setattr(inside(two.server).runtime.fleet, "is_there", gone)
        async with await two.at(session).get(seen.id) as again:
            [message] = await again.rest()
        assert message["id"] == "w"
        assert "has ended; it is not known whether the call was carried out" in message["error"]["message"]
        one.go.set()


async def test_a_process_is_there_until_it_is_not(store: str) -> None:
    async with pair(store) as (one, two):
        name = inside(two.server).runtime.fleet.name
        assert await inside(one.server).runtime.fleet.is_there(name)
        await inside(two.server).runtime.fleet.close()
        assert not await inside(one.server).runtime.fleet.is_there(name)


@pytest.mark.parametrize("last", ["r000000000000-1:", "rzz:3", "r1:0", "g:77"])
async def test_the_stream_of_no_call_is_told_to_be_lost(store: str, last: str) -> None:
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        async with await two.at(session).get(last) as stream:
            assert (await stream.message())["method"] == "notifications/replay_truncated"
            one.server.notify.tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize(("tag", "id"), [("i7", 7), ("i-1", -1), ("sdw", "w"), ("s", ""), ("sw6Qt8J-YgA", "ä-😀")])
async def test_who_comes_back_for_a_call_that_nobody_knows_gets_its_error_and_the_own_stream_is_left_alone(
    store: str, tag: str, id: int | str
) -> None:
    """A process that died before anything was written down: its name, and what it was to answer, are in the stream's."""
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        async with await session.get() as own:
            await own.raw_event()
            async with await two.at(session).get(f"r000000000000-1-{tag}:1") as stream:
                assert stream.status == 200
                (said,) = await stream.rest()
                assert (said["id"], said["error"]["code"]) == (id, -32603)
                assert "it is not known whether the call was carried out" in said["error"]["message"]
            one.server.notify.tools_changed()
            assert (await own.message())["method"] == "notifications/tools/list_changed"


async def test_a_client_that_is_ahead_of_the_store_hears_of_the_loss_too(store: str, monkeypatch: Any) -> None:
    """Events are written behind, so a process that dies may take some with it that its client has heard."""
    monkeypatch.setattr("trimaran.legacy.fleet_sessions._LOOK_SECONDS", 0.05)
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        stream = await session.open_call("work", id="w", progress="p")
        seen = await stream.next()
        await stream.close()

        async def gone(name: str) -> bool:
            return False

        monkeypatch.setattr(inside(two.server).runtime.fleet, "is_there", gone)
        name, number = (seen.id or "").split(":")
        # The last of these is the number that the report itself gets.
        for ahead in (99, 99, int(number) + 1):
            async with await two.at(session).get(f"{name}:{ahead}") as again:
                [message] = await again.rest()
            assert (message["id"], message["error"]["code"]) == ("w", -32603)
        one.go.set()


async def test_how_far_a_client_was_told_is_noted_while_its_stream_is_open(store: str) -> None:
    """So that a process which takes over from one that was killed does not tell everything again."""
    async with pair(store) as (one, two):
        session = await one.wire.initialize()
        async with await session.get() as stream:
            await stream.raw_event()
            one.server.notify.tools_changed()
            await stream.message()
            await until(lambda: inside(one.server).runtime.fleet.seen_change == 1, "the change has its number")
            inner = next(iter(inside(one.server).sessions))
            await until(lambda: inner.outlet.delivered == 1, "it has left")
            inner.shared.prolong(inner)
            await until(lambda: inner.outlet.noted, "it was written down")
            async with await two.at(session).get() as second:
                await second.raw_event()
                two.server.notify.prompts_changed()
                assert (await second.message())["method"] == "notifications/prompts/list_changed"


async def test_a_message_of_http_and_sse_is_passed_on_to_the_process_with_the_stream(store: str) -> None:
    """R137: there the stream is the session."""
    async with pair(store) as (one, two):
        async with await one.wire.open("GET", {"Accept": "text/event-stream"}, path="/sse") as stream:
            event = await stream.event()
            assert event is not None
            endpoint = event.data

            async def post(boat: Boat, message: Any) -> int:
                headers = {"Content-Type": "application/json", "Accept": "application/json"}
                return (await boat.wire.send("POST", headers, encode(message), path=endpoint)).status

            assert await post(two, initialize("2024-11-05")) == 202
            assert (await stream.message())["result"]["protocolVersion"] == "2024-11-05"
            assert await post(one, notification("notifications/initialized")) == 202
            call = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "c")
            assert await post(two, call) == 202
            assert (await stream.message())["id"] == "c"
            endpoint = endpoint.replace("sessionId=", "sessionId=0")
            assert await post(two, call) == 404


async def test_the_cap_on_sessions_holds_over_all_processes(store: str) -> None:
    """R94."""
    async with pair(store, limits=Limits(max_sessions=2)) as (one, two):
        await one.wire.initialize()
        session = await two.wire.initialize()
        assert (await one.wire.post(initialize())).status == 503
        await session.delete()
        assert (await one.wire.post(initialize())).status == 200


async def test_modern_clients_hear_of_changes_made_in_the_other_process(store: str) -> None:
    async with pair(store) as (one, two):
        wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["log://today"]}}
        async with await two.wire.open_modern("subscriptions/listen", wanted) as stream:
            await stream.message()
            one.server.notify.tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            one.server.notify.resource_updated("log://today")
            assert (await stream.message())["params"]["uri"] == "log://today"


async def test_a_server_has_one_store(store: str, tmp_path: Path) -> None:
    server = Boat().server
    server.engine(store=store)
    server.engine(store=store)
    with pytest.raises(ConfigError, match="a server has one store"):
        server.engine(store=f"sqlite:///{tmp_path / 'other.db'}")


@pytest.mark.parametrize("wrong", [17, object, {"url": "redis://"}], ids=["number", "class", "dict"])
def test_a_store_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="store= takes a URL"):
        Boat().server.engine(store=wrong)


async def test_an_app_whose_lifespan_nobody_runs_tells_the_others_of_its_changes(store: str) -> None:
    async with pair(store, "asgi") as (one, two):
        assert (await one.wire.call("add", {"a": 1, "b": 2})).status == 200
        wanted = {"notifications": {"toolsListChanged": True}}
        async with await two.wire.open_modern("subscriptions/listen", wanted) as stream:
            await stream.message()
            one.server.notify.tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
