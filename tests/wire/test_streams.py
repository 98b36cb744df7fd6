"""Legacy streams: the standalone GET, the streams of calls, resuming both, questions on them; and HTTP+SSE."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.harness import (
    LEGACY,
    Event,
    Reply,
    Session,
    Stream,
    Wire,
    encode,
    initialize,
    notification,
    request,
    serve,
)
from tests.support.inside import inside
from tests.support.until import PATIENCE, soon, until

from trimaran import Context, Limits, Server
from trimaran.errors import Disconnected, TimedOut

V11, V06, V03, V24 = LEGACY
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True}}


class Gates:
    """What the tools of a test wait for and tell."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = asyncio.Event()
        self.outcome = ""


def demo(gates: Gates | None = None, **options: Any) -> Server:
    server = Server("demo", version="1", **options)
    gates = gates or Gates()

    @server.tool
    async def work(ctx: Context) -> str:
        gates.started.set()
        await ctx.progress(1)
        await gates.go.wait()
        await ctx.progress(2)
        gates.ended.set()
        return "worked"

    @server.tool
    async def hold(ctx: Context) -> str:
        gates.started.set()
        try:
            await gates.go.wait()
        except asyncio.CancelledError:
            gates.outcome = f"cancelled {ctx.cancelled}"
            raise
        finally:
            gates.ended.set()
        return "held"

    @server.tool
    async def count(ctx: Context, to: int) -> str:
        for n in range(1, to + 1):
            await ctx.progress(n)
        return "counted"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", NAME)
        return f"{answer.action} {answer.content and answer.content['name']}"

    @server.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit("Sign in", url="https://example.com/")).action

    @server.tool
    async def sample(ctx: Context) -> str:
        return (await ctx.sample("hi", max_tokens=9)).text

    @server.tool
    async def roots(ctx: Context) -> str:
        return " ".join(r.uri for r in await ctx.roots())

    @server.tool
    async def impatient(ctx: Context) -> str:
        try:
            await ctx.elicit("Name?", NAME, timeout=0.03)
        except TimedOut as error:
            return f"gave up: {error}"
        return "answered"

    @server.resource("r:1")
    def one() -> str:
        return "one"

    return server


def event(found: Event | None) -> Event:
    assert found is not None, "the stream has ended"
    return found


# --- the standalone stream -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V11, V06, V03])
async def test_a_fresh_stream_is_primed_by_revision(binding: str, version: str) -> None:
    """R123, R124, C12: 200 and event-stream; from 2025-11-25 an id with empty data first, before that nothing to choke on."""
    server = demo()
    async with serve(binding, server) as wire:
        session = await wire.initialize(version)
        async with await session.get() as stream:
            assert stream.status == 200
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert "no-cache" in stream.headers["cache-control"]
            assert stream.headers["mcp-session-id"] == session.id
            server.notify.tools_changed()
            first = event(await stream.event())
            if version == V11:
                assert first.id is not None
                assert first.data == ""
                primed = first.id
                first = event(await stream.event())
                assert first.id != primed
            assert first.message == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"} or (
                first.message["method"] == "notifications/tools/list_changed"
            )
            stream_name, _, number = (first.id or "").partition(":")
            assert stream_name
            assert number.isdigit()


async def test_what_happens_while_nobody_listens_is_kept(binding: str) -> None:
    """R19, R126: buffered in order, delivered once, not again to the next fresh stream."""
    server = demo()
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        for n in range(5):
            server.broadcast("notifications/n", {"n": n})
        async with await session.get() as stream:
            assert [(await stream.message())["params"]["n"] for _ in range(5)] == [0, 1, 2, 3, 4]
            server.broadcast("notifications/n", {"n": 5})
            assert (await stream.message())["params"]["n"] == 5
        await until(lambda: not next(iter(inside(server).sessions)).outlet.is_open, "the stream is gone")
        server.broadcast("notifications/n", {"n": 6})
        async with await session.get() as stream:
            assert (await stream.message())["params"]["n"] == 6


async def _numbered(wire: Wire, server: Server, session: Session, count: int) -> list[str]:
    """Send so many numbered notifications, read them, and return their event ids."""
    for n in range(count):
        server.broadcast("notifications/n", {"n": n})
    async with await session.get() as stream:
        ids = [(await stream.next()).id or "" for _ in range(count)]
    await until(lambda: not next(iter(inside(server).sessions)).outlet.is_open, "the stream is gone")
    return ids


async def test_last_event_id_replays_what_followed(binding: str) -> None:
    """R125, R124: newer events in order with their ids, no priming, then live; ids are unique."""
    server = demo()
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        ids = await _numbered(wire, server, session, 6)
        assert len(set(ids)) == 6
        async with await session.get(ids[2]) as stream:
            replayed = [event(await stream.event()) for _ in range(3)]
            assert [e.message["params"]["n"] for e in replayed] == [3, 4, 5]
            assert [e.id for e in replayed] == ids[3:]
            server.broadcast("notifications/n", {"n": "live"})
            assert (await stream.message())["params"]["n"] == "live"
        async with await session.get(ids[5]) as stream:
            server.broadcast("notifications/n", {"n": "next"})
            assert [(await stream.message())["params"]["n"] for _ in range(2)] == ["live", "next"]


async def test_a_replay_that_comes_too_late_says_so(binding: str) -> None:
    """R125: an id outside the window yields exactly one notifications/replay_truncated, then what is left."""
    server = demo(limits=Limits(replay_events=4))
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        ids = await _numbered(wire, server, session, 3)
        for n in range(3, 10):
            server.broadcast("notifications/n", {"n": n})
        async with await session.get(ids[0]) as stream:
            messages = [await stream.message() for _ in range(5)]
            assert [m["method"] for m in messages] == ["notifications/replay_truncated"] + ["notifications/n"] * 4
            assert [m["params"]["n"] for m in messages[1:]] == [6, 7, 8, 9]
            server.broadcast("notifications/n", {"n": "live"})
            assert (await stream.message())["params"]["n"] == "live"


def _held(server: Server) -> list[int]:
    """The bytes that each session keeps for a client that comes back."""
    return [session.outlet.log.held_bytes for session in inside(server).sessions]


async def test_what_is_kept_of_a_session_is_bounded_in_bytes(binding: str) -> None:
    """256 events of 100 KB were 26 MB for each session. The oldest go, and whoever comes back is told so."""
    server = demo(limits=Limits(replay_bytes=100_000))
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        ids = await _numbered(wire, server, session, 3)
        for n in range(3, 60):
            server.broadcast("notifications/n", {"n": n, "text": "x" * 10_000})
        assert 50_000 < _held(server)[0] <= 100_000
        async with await session.get(ids[0]) as stream:
            messages = [await stream.message()]
            while messages[-1]["params"].get("n") != 59:
                messages.append(await stream.message())
            assert messages[0]["method"] == "notifications/replay_truncated"
            assert [m["params"]["n"] for m in messages[1:]] == list(range(61 - len(messages), 60))


async def test_what_is_kept_of_all_sessions_is_bounded_in_bytes(binding: str) -> None:
    """Ten thousand sessions must not take ten thousand times what one may. Who has little keeps it."""
    server = demo(limits=Limits(replay_bytes=100_000, replay_total_bytes=400_000))
    async with serve(binding, server) as wire:
        sessions = [await wire.initialize() for _ in range(12)]
        small, *large = list(inside(server).sessions)
        small.send("notifications/n", {"n": "small"})
        for n in range(40):
            for session in large:
                session.send("notifications/n", {"n": n, "text": "x" * 5_000})
            assert sum(_held(server)) <= 400_000 * 17 / 16 + 60_000
        assert 0 < small.outlet.log.held_bytes < 1000
        assert sum(_held(server)) > 200_000
        assert len(sessions) == len(inside(server).sessions)


async def _lose_answer(wire: Wire, server: Server, gates: Gates) -> tuple[Session, str]:
    """A call whose client left before the answer, which then fell out of the log; and the last event it saw."""
    session = await wire.initialize(V11)
    async with await session.open_call("work", id="w", progress="p") as stream:
        seen = await stream.next()
    gates.go.set()
    await soon(gates.ended.wait())
    inner = next(iter(inside(server).sessions))
    await until(lambda: not inner.calls, "the call has ended")
    for _ in range(6):
        server.broadcast("notifications/n", {"text": "x" * 900})
    return session, seen.id or ""


async def test_whoever_comes_back_for_an_answer_that_is_gone_hears_so(binding: str) -> None:
    """A stream that just ended would be asked for again and again, and the caller would wait for nothing."""
    gates = Gates()
    server = demo(gates, limits=Limits(replay_bytes=2000))
    async with serve(binding, server) as wire:
        session, seen = await _lose_answer(wire, server, gates)
        async with await session.get(seen) as stream:
            messages = await stream.rest()
    assert [message["id"] for message in messages] == ["w"]
    assert messages[0]["error"]["code"] == -32603
    assert "no longer stored" in messages[0]["error"]["message"]


async def test_a_session_hears_every_kind_of_notification_and_no_other(binding: str) -> None:
    """R72: the full set of what a server says unasked."""
    server = Server("chatty", version="1")
    server.add_resource("a:b", lambda: "x")

    @server.tool
    async def speak(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.log("error", "careful")
        return "done"

    @server.tool(long_running=True)
    async def work() -> str:
        return "done"

    async with serve(binding, server) as wire:
        session = await wire.initialize()
        await session.ask("resources/subscribe", {"uri": "a:b"})
        heard = {m["method"] for m in (await session.call("speak", progress="p")).messages if "method" in m}
        async with await session.get("g:999999") as stream:
            server.add_tool(lambda: "", name="new")
            server.add_resource("a:c", lambda: "")
            server.add_prompt(lambda: "", name="new")
            server.notify.resource_updated("a:b")
            await session.ask("tools/call", {"name": "work", "task": {}})
            status = ""
            while status != "completed":
                message = await stream.message()
                heard.add(message["method"])
                status = message["params"].get("status")
    assert heard == {
        "notifications/progress",
        "notifications/message",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
        "notifications/tasks/status",
        "notifications/replay_truncated",
    }


@pytest.mark.parametrize("last", ["nonsense", "g:999999", "r77:3", ":", "g:-1", "g:"])
async def test_an_event_id_that_never_was_is_told_so_and_cuts_nothing_off(binding: str, last: str) -> None:
    """R125: an id outside the window: one replay_truncated, and what happens from now on is heard."""
    server = demo()
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        await _numbered(wire, server, session, 2)
        async with await session.get(last) as stream:
            assert stream.status == 200
            await until(lambda: next(iter(inside(server).sessions)).outlet.is_open, "the stream is open")
            server.broadcast("notifications/n", {"n": "live"})
            heard: list[Any] = []
            async with asyncio.timeout(PATIENCE):
                while not heard or heard[-1].get("params", {}).get("n") != "live":
                    heard.append(await stream.message())
            assert [m["method"] for m in heard].count("notifications/replay_truncated") == 1


async def test_a_second_stream_replaces_the_first(binding: str) -> None:
    """R123: the first is closed; messages go to one stream only (protocol.md 1.2: never broadcast)."""
    server = demo()
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        first = await session.get()
        await first.event()
        second = await session.get()
        await second.event()
        assert await first.rest() == []
        server.broadcast("notifications/n", {"n": 1})
        assert (await second.message())["params"]["n"] == 1
        await first.close()
        server.broadcast("notifications/n", {"n": 2})
        assert (await second.message())["params"]["n"] == 2
        await second.close()


async def test_the_standalone_stream_is_kept_alive(binding: str) -> None:
    """R124, P29: comments while nothing happens."""
    server = demo(limits=Limits(keep_alive=0.02))
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        async with await session.get() as stream:
            while stream.comments < 2:
                await stream.raw_event()


async def test_a_stopping_server_closes_its_streams(binding: str) -> None:
    """P13, R96: open streams end properly, at once."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize()
        stream = await session.get()
        await stream.event()
    assert await stream.rest() == []
    await stream.close()


async def test_get_wants_to_be_a_stream(binding: str) -> None:
    """R112: Accept must include text/event-stream (or be absent or */*), else 406."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize()
        for accept, status in (
            ("application/json", 406),
            ("text/html", 406),
            (None, 200),
            ("*/*", 200),
            ("TEXT/Event-Stream", 200),
        ):
            async with await session.get(headers={"Accept": accept}) as stream:
                assert stream.status == status, accept


async def test_session_facades_speak_on_the_standalone_stream(binding: str) -> None:
    """R40, R64, R71, C10: progress and logs by session; logs filtered by its level; a question needs an open stream."""
    server = demo()
    async with serve(binding, server) as wire:
        client = await wire.initialize(caps=ABLE)
        session = next(iter(inside(server).sessions))
        with pytest.raises(Disconnected, match="no_stream"):
            await session.elicit({"message": "Name?", "requestedSchema": NAME})
        async with await client.get() as stream:
            await stream.event()
            session.notify_progress("tok", 1, 2, "half")
            session.notify_log("debug", "quiet")
            session.notify_log("error", {"e": 1}, "log")
            assert (await stream.message())["params"] == {
                "progressToken": "tok",
                "progress": 1,
                "total": 2,
                "message": "half",
            }
            assert (await stream.message())["params"] == {"level": "error", "data": {"e": 1}, "logger": "log"}
            asking = asyncio.ensure_future(session.elicit({"message": "Name?", "requestedSchema": NAME}))
            asked = await stream.message()
            assert asked["method"] == "elicitation/create"
            assert (await client.answer(asked["id"], {"action": "decline"})).status == 202
            assert (await soon(asking)).action == "decline"
            rooting = asyncio.ensure_future(session.roots())
            asked = await stream.message()
            await client.answer(asked["id"], {"roots": [{"uri": "file:///r"}]})
            assert [r.uri for r in await soon(rooting)] == ["file:///r"]
            sampling = asyncio.ensure_future(session.sample({"messages": [], "maxTokens": 5}))
            asked = await stream.message()
            assert (asked["method"], asked["params"]["maxTokens"]) == ("sampling/createMessage", 5)
            said = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}
            await client.answer(asked["id"], said)
            assert (await soon(sampling)).text == "hi"


# --- the stream of a call --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LEGACY)
async def test_a_call_that_speaks_is_answered_by_a_stream(binding: str, version: str) -> None:
    """R63, R117, R124: lazily; numbered events, primed from 2025-11-25 on; the response last, then the end."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize(version)
        quiet = await session.call("count", {"to": 3})
        assert quiet.headers["content-type"] == "application/json"
        async with await session.open_call("count", {"to": 3}, id="c", progress="tok") as stream:
            assert stream.headers["mcp-session-id"] == session.id
            events: list[Event] = []
            while (found := await stream.event()) is not None:
                events.append(found)
        if version == V11:
            assert events[0].data == ""
            assert events[0].id
            assert events[0].retry is not None
            events = events[1:]
        assert all(e.data for e in events)
        assert [e.message.get("method") for e in events] == ["notifications/progress"] * 3 + [None]
        assert events[-1].message["id"] == "c"
        ids = [e.id for e in events if e.id]
        assert len(set(ids)) == len(ids)


async def test_a_client_that_prefers_a_stream_gets_one(binding: str) -> None:
    """R118, C9: initialize included; the session id is in the stream's headers too."""
    async with serve(binding, demo()) as wire:
        first = {"Accept": "text/event-stream, application/json"}
        hello = await wire.post(initialize(), first)
        assert hello.is_stream
        assert hello.result["protocolVersion"] == V11
        assert hello.headers["mcp-session-id"].startswith("mcp_")
        session = Session(wire, hello)
        await session.notify("notifications/initialized")
        assert (await session.ask("ping", headers=first)).is_stream
        assert (await session.ask("ping")).headers["content-type"] == "application/json"


async def test_streams_of_calls_do_not_mix(binding: str) -> None:
    """protocol.md 1.2: each message on exactly one stream; the GET stream hears nothing of a call."""
    gates = Gates()
    server = demo(gates)
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        async with await session.get() as own, await session.open_call("work", id="a", progress="A") as a:
            await own.event()
            await soon(gates.started.wait())
            async with await session.open_call("count", {"to": 2}, id="b", progress="B") as b:
                heard = await b.rest()
                assert {m["params"]["progressToken"] for m in heard[:-1]} == {"B"}
                assert heard[-1]["id"] == "b"
            gates.go.set()
            heard = await a.rest()
            assert {m["params"]["progressToken"] for m in heard[:-1]} == {"A"}
            assert heard[-1]["id"] == "a"
            server.broadcast("notifications/n")
            assert (await own.message())["method"] == "notifications/n"


async def _ids(stream: Stream, count: int) -> list[str]:
    return [event(await stream.event()).id or "" for _ in range(count)]


@pytest.mark.parametrize("finished", [False, True], ids=["live", "finished"])
async def test_a_broken_call_stream_can_be_resumed(binding: str, finished: bool) -> None:
    """protocol.md 1.2, 3.4: a disconnect is not a cancellation; a GET with its last event id gets the rest of that stream only."""
    gates = Gates()
    server = demo(gates)
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        stream = await session.open_call("work", id="w", progress="tok")
        _, seen = await _ids(stream, 2)
        await stream.close()
        server.broadcast("notifications/n", {"n": "not yours"})
        if finished:
            gates.go.set()
            await soon(gates.ended.wait())
            await until(lambda: not next(iter(inside(server).sessions)).calls, "the call is over")
        async with await session.get(seen) as rest:
            assert rest.status == 200
            gates.go.set()
            messages = await rest.rest()
        assert [m.get("method") for m in messages] == ["notifications/progress", None]
        assert messages[0]["params"]["progress"] == 2
        assert messages[1]["result"]["content"][0]["text"] == "worked"
        async with await session.get() as own:
            assert (await own.message())["params"]["n"] == "not yours"


async def test_resuming_from_the_priming_event_brings_everything(binding: str) -> None:
    """protocol.md 3.4: the priming id stands before the first message."""
    gates = Gates()
    async with serve(binding, demo(gates)) as wire:
        session = await wire.initialize()
        stream = await session.open_call("work", id="w", progress="tok")
        (primed,) = await _ids(stream, 1)
        await stream.close()
        gates.go.set()
        async with await session.get(primed) as rest:
            messages = await rest.rest()
        assert [m.get("params", {}).get("progress") for m in messages] == [1, 2, None]


async def test_resuming_over_a_slow_connection_loses_nothing() -> None:
    """protocol.md 1.2: what the call says while its past is being replayed comes too, the response above all."""
    gates = Gates()
    async with serve("asgi", demo(gates), lag=10) as wire:
        session = await wire.initialize()
        stream = await session.open_call("work", id="w", progress="tok")
        (primed,) = await _ids(stream, 1)
        await stream.close()
        await soon(gates.started.wait())
        async with await session.get(primed) as rest:
            gates.go.set()  # the headers of the GET are out, its replay is under way
            messages = await rest.rest()
        assert [m.get("params", {}).get("progress") for m in messages] == [1, 2, None]


async def test_a_slow_connection_gets_its_events_in_order() -> None:
    """R124: headers, then the priming event, then the rest, even if two messages are born at once."""
    server = demo()

    @server.tool
    async def burst(ctx: Context) -> str:
        await asyncio.gather(*(ctx.log("error", n) for n in range(5)))
        return "done"

    async with serve("asgi", server, lag=5) as wire:
        session = await wire.initialize()
        async with await session.open_call("burst") as stream:
            primed = event(await stream.event())
            assert primed.data == ""
            messages = await stream.rest()
        assert [m["params"]["data"] for m in messages[:-1]] == [0, 1, 2, 3, 4]
        assert messages[-1]["result"]["content"][0]["text"] == "done"


async def test_a_silent_legacy_call_is_kept_alive(binding: str) -> None:
    """P29: a stream is opened and kept open; then the response."""
    gates = Gates()
    async with serve(binding, demo(gates, limits=Limits(keep_alive=0.02))) as wire:
        session = await wire.initialize(V06)
        async with await session.open_call("hold") as stream:
            while stream.comments < 2:
                await stream.raw_event()
            gates.go.set()
            (response,) = await stream.rest()
            assert response["result"]["content"][0]["text"] == "held"


async def test_without_sessions_a_call_streams_all_the_same(binding: str) -> None:
    """R101, R63: progress goes out on the stream of its POST, and a silent call is kept alive."""
    gates = Gates()
    async with serve(binding, demo(gates, limits=Limits(keep_alive=0.02)), require_session=False) as wire:
        params = {"name": "work", "arguments": {}, "_meta": {"progressToken": "t"}}
        async with await wire.open("POST", body=encode(request("tools/call", params, id=5))) as stream:
            while stream.comments < 2:
                await stream.raw_event()
            gates.go.set()
            messages = await stream.rest()
    assert messages[-1]["id"] == 5


async def test_the_plain_endpoint_answers_whole_however_long_it_takes(binding: str) -> None:
    """R131: no SSE."""
    gates = Gates()
    async with serve(binding, demo(gates, limits=Limits(keep_alive=0.02)), plain=True) as wire:
        params = {"name": "work", "arguments": {}, "_meta": {"progressToken": "t"}}
        waiting = asyncio.ensure_future(wire.post(request("tools/call", params, id=5)))
        await soon(gates.started.wait())
        gates.go.set()
        reply = await soon(waiting)
        assert (reply.headers["content-type"], reply.json["id"]) == ("application/json", 5)


# --- cancellation ----------------------------------------------------------------------------------------------------


SILENCE = (200, "text/event-stream", b"")


def ending(reply: Reply) -> tuple[int, str, bytes]:
    return reply.status, reply.headers["content-type"], reply.body


async def test_a_cancelled_call_ends_as_a_stream_without_events(binding: str) -> None:
    """R65, C11 but for the content type (docs/adr/0014), R67: the handler is stopped; no JSON-RPC envelope."""
    gates = Gates()
    async with serve(binding, demo(gates)) as wire:
        session = await wire.initialize()
        waiting = asyncio.ensure_future(session.call("hold", id="h"))
        await soon(gates.started.wait())
        assert (await session.cancel("h")).status == 202
        reply = await soon(waiting)
        assert ending(reply) == SILENCE
        assert reply.headers["mcp-session-id"] == session.id
        await soon(gates.ended.wait())
        assert gates.outcome == "cancelled True"


async def test_a_cancelled_stream_just_closes(binding: str) -> None:
    """R65, C11."""
    gates = Gates()
    async with serve(binding, demo(gates)) as wire:
        session = await wire.initialize()
        async with await session.open_call("work", id=5, progress="t") as stream:
            await soon(gates.started.wait())
            assert (await session.cancel(5)).status == 202
            assert [m["params"]["progress"] for m in await stream.rest()] == [1]
        assert not gates.ended.is_set()


async def test_whoever_comes_back_for_a_cancelled_stream_is_told_not_to_come_again(binding: str) -> None:
    """R65: 204, which ends an event source. mcp 1.28 and 2.3 ask for ever for a stream that is empty (docs/adr/0014)."""
    gates = Gates()
    async with serve(binding, demo(gates)) as wire:
        session = await wire.initialize()
        async with await session.open_call("work", id=5, progress="t") as stream:
            last = event(await stream.event()).id
            await soon(gates.started.wait())
            await session.cancel(5)
            events = await stream.rest()
        assert len(events) == 1
        async with await session.get(last=last) as replayed:
            assert [m["method"] for m in await replayed.rest()] == ["notifications/progress"]
        assert last is not None
        stream_name = last.partition(":")[0]
        reply = await wire.send(
            "GET", session.headers({"Accept": "text/event-stream", "Last-Event-ID": f"{stream_name}:1"})
        )
        assert (reply.status, reply.body) == (204, b"")


async def test_a_batch_whose_calls_are_all_cancelled_ends_as_one_of_them_would(binding: str) -> None:
    """R65: a 202 would say that there was nothing to answer."""
    gates = Gates()
    async with serve(binding, demo(gates)) as wire:
        session = await wire.initialize(V03)
        calls = [request("tools/call", {"name": "hold", "arguments": {}}, id="b")]
        waiting = asyncio.ensure_future(session.post(calls))
        await soon(gates.started.wait())
        await session.cancel("b")
        assert ending(await soon(waiting)) == SILENCE


async def test_a_session_that_the_server_ends_fails_its_calls(
    binding: str,
) -> None:
    """R93, R130: its client did not end it, and waits. Under 200: a 404 would invite it to send the call again."""
    gates = Gates()
    async with serve(binding, demo(gates, limits=Limits(session_max_lifetime=1000))) as wire:
        session = await wire.initialize()
        waiting = asyncio.ensure_future(session.call("hold", id="h"))
        await soon(gates.started.wait())
        sessions: Any = inside(wire.engine.server).sessions
        sessions.here(session.id).created -= 2000
        assert (await session.ask("tools/list")).status == 404
        reply = await soon(waiting)
        assert reply.verdict == (200, -32600, "h")
        assert "session_max_lifetime" in reply.error["message"]


async def test_cancelling_reaches_only_its_own(binding: str) -> None:
    """R102, protocol.md 3.6: unknown ids, other JSON types and other sessions cancel nothing."""
    gates = Gates()
    async with serve(binding, demo(gates)) as wire:
        session, other = await wire.initialize(), await wire.initialize()
        waiting = asyncio.ensure_future(session.call("hold", id=1))
        await soon(gates.started.wait())
        await other.cancel(1)
        await session.cancel("1")
        await session.cancel(None)
        await session.cancel(2)
        gates.go.set()
        assert (await soon(waiting)).result["content"][0]["text"] == "held"


async def test_a_cancellation_may_overtake_its_request(binding: str) -> None:
    """R67: it arrives before the request is registered, and still applies."""
    gates = Gates()
    async with serve(binding, demo(gates)) as wire:
        session = await wire.initialize()
        await session.cancel("soon")
        reply = await session.call("hold", id="soon")
        assert ending(reply) == SILENCE
        gates.go.set()
        assert (await session.call("hold", id="other")).result["content"][0]["text"] == "held"


async def test_leaving_is_not_cancelling(binding: str) -> None:
    """protocol.md 1.2: on the legacy revisions the call goes on."""
    gates = Gates()
    async with serve(binding, demo(gates)) as wire:
        session = await wire.initialize()
        stream = await session.open_call("work", id="w", progress="t")
        await soon(gates.started.wait())
        await stream.close()
        gates.go.set()
        await soon(gates.ended.wait())


async def test_the_end_of_a_session_ends_its_calls(binding: str) -> None:
    """R96: nothing of an ended session goes on. Who deletes it knows, so its calls end without a word (docs/adr/0014)."""
    gates = Gates()
    async with serve(binding, demo(gates)) as wire:
        session = await wire.initialize()
        waiting = asyncio.ensure_future(session.call("hold", id="h"))
        await soon(gates.started.wait())
        assert (await session.delete()).status == 204
        await soon(gates.ended.wait())
        assert ending(await soon(waiting)) == SILENCE


# --- questions -------------------------------------------------------------------------------------------------------

ACCEPT = {"action": "accept", "content": {"name": "Ada"}}
SAID = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "said"}}
QUESTIONS: list[tuple[str, str, Any, str]] = [
    ("ask", "elicitation/create", ACCEPT, "accept Ada"),
    ("ask", "elicitation/create", {"action": "decline"}, "decline None"),
    ("visit", "elicitation/create", {"action": "accept"}, "accept"),
    ("sample", "sampling/createMessage", SAID, "said"),
    ("roots", "roots/list", {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}, "file:///a file:///b"),
]


@pytest.mark.parametrize(("tool", "method", "answer", "expected"), QUESTIONS)
async def test_a_question_rides_the_stream_of_its_call(
    binding: str, tool: str, method: str, answer: Any, expected: str
) -> None:
    """R60, C10: a real request on the POST's stream; the answer comes on a later POST and is matched by id."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize(caps=ABLE)
        async with await session.open_call(tool, id="q") as stream:
            asked = await stream.message()
            assert asked["jsonrpc"] == "2.0"
            assert asked["method"] == method
            assert isinstance(asked["id"], (str, int))
            if tool == "visit":
                assert asked["params"]["mode"] == "url"
                assert asked["params"]["url"] == "https://example.com/"
                assert asked["params"]["elicitationId"]
            posted = await session.answer(asked["id"], answer)
            assert (posted.status, posted.body) == (202, b"")
            (response,) = await stream.rest()
            assert response["id"] == "q"
            assert response["result"]["content"][0]["text"] == expected


async def test_a_refused_question_is_an_error_to_the_tool(binding: str) -> None:
    """protocol.md 1.3: an error answer (-1: the user said no) ends the tool with that error, not with a hang."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize(caps=ABLE)
        async with await session.open_call("sample", id="q") as stream:
            asked = await stream.message()
            await session.post({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "user said no"}})
            (response,) = await stream.rest()
            assert "user said no" in json.dumps(response)


async def test_an_answer_counts_only_in_its_own_session(binding: str) -> None:
    """R102: another session cannot answer for it, nor can a wrong id."""
    async with serve(binding, demo()) as wire:
        session, other = await wire.initialize(caps=ABLE), await wire.initialize(caps=ABLE)
        async with await session.open_call("ask", id="q") as stream:
            asked = await stream.message()
            assert (await other.answer(asked["id"], {"action": "accept", "content": {"name": "Mallory"}})).status == 202
            assert (await session.answer("srv-12345", ACCEPT)).status == 202
            await session.answer(asked["id"], ACCEPT)
            assert (await stream.rest())[-1]["result"]["content"][0]["text"] == "accept Ada"


async def test_a_late_answer_is_ignored(binding: str) -> None:
    """R58, R61: after the timeout the tool goes on; the answer still gets its 202."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize(caps=ABLE)
        async with await session.open_call("impatient") as stream:
            asked = await stream.message()
            assert (await stream.rest())[-1]["result"]["content"][0]["text"].startswith("gave up")
        assert (await session.answer(asked["id"], ACCEPT)).status == 202
        assert (await session.ask("ping")).status == 200


@pytest.mark.parametrize("tool", ["ask", "visit", "sample", "roots"])
async def test_what_the_client_did_not_declare_is_not_asked(binding: str, tool: str) -> None:
    """R59, protocol.md 1.7: an error without touching the wire, and none of the modern codes."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize()
        reply = await session.call(tool)
        assert reply.headers["content-type"] == "application/json"
        message = reply.json
        assert "error" in message or message["result"]["isError"]
        if "error" in message:
            assert message["error"]["code"] not in (-32020, -32021, -32022)


async def test_a_question_reaches_a_resumed_stream(binding: str) -> None:
    """protocol.md 1.2: the client lost its stream before it read the question; the replay brings it."""
    async with serve(binding, demo()) as wire:
        session = await wire.initialize(caps=ABLE)
        stream = await session.open_call("ask", id="q")
        (primed,) = await _ids(stream, 1)
        await stream.message()
        await stream.close()
        async with await session.get(primed) as rest:
            asked = await rest.message()
            assert asked["method"] == "elicitation/create"
            await session.answer(asked["id"], ACCEPT)
            assert (await rest.rest())[-1]["result"]["content"][0]["text"] == "accept Ada"


# --- HTTP+SSE, 2024-11-05 --------------------------------------------------------------------------------------------


async def _open_sse(wire: Wire, headers: dict[str, str] | None = None, path: str = "/sse") -> tuple[Stream, str]:
    stream = await wire.open("GET", {"Accept": "text/event-stream", **(headers or {})}, path=path)
    assert stream.status == 200
    first = event(await stream.event())
    assert first.event == "endpoint"
    return stream, first.data


async def _say(wire: Wire, endpoint: str, message: Any, headers: dict[str, str] | None = None) -> int:
    body = message if isinstance(message, bytes) else encode(message)
    return (
        await wire.send("POST", {"Content-Type": "application/json", **(headers or {})}, body, path=endpoint)
    ).status


async def test_http_with_sse(binding: str) -> None:
    """R137: endpoint event first, POSTs 202, answers and news on the stream; missing sessionId 400, unknown 404."""
    server = demo()
    async with serve(binding, server, sse_path="/sse") as wire:
        stream, endpoint = await _open_sse(wire)
        assert "sessionId=" in endpoint
        assert await _say(wire, endpoint, initialize(V24)) == 202
        reply = event(await stream.event())
        assert reply.event == "message"
        assert reply.message["result"]["protocolVersion"] == V24
        assert await _say(wire, endpoint, notification("notifications/initialized")) == 202
        assert (
            await _say(
                wire,
                endpoint,
                request("tools/call", {"name": "count", "arguments": {"to": 1}, "_meta": {"progressToken": 1}}, "c"),
            )
            == 202
        )
        assert (await stream.message())["method"] == "notifications/progress"
        assert (await stream.message())["result"]["content"][0]["text"] == "counted"
        server.notify.tools_changed()
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        assert await _say(wire, endpoint, b"{nope") == 202
        assert (await stream.message())["error"]["code"] == -32700
        base = endpoint.partition("?")[0]
        assert await _say(wire, base, request("ping")) == 400
        assert await _say(wire, base + "?sessionId=" + "0" * 32, request("ping")) == 404
        await stream.close()


async def test_the_end_of_the_stream_is_the_end_of_its_session(binding: str) -> None:
    """R137: stream end deletes the session, cancels its calls, and its id is then unknown."""
    gates = Gates()
    server = demo(gates)
    async with serve(binding, server, sse_path="/sse", sse_message_path="/say") as wire:
        stream, endpoint = await _open_sse(wire)
        assert endpoint.startswith("/say?")
        await _say(wire, endpoint, initialize(V24))
        await stream.message()
        await _say(wire, endpoint, notification("notifications/initialized"))
        await _say(wire, endpoint, request("tools/call", {"name": "hold"}, 1))
        await soon(gates.started.wait())
        assert len(inside(server).sessions) == 1
        await stream.close()
        await soon(gates.ended.wait())
        await until(lambda: len(inside(server).sessions) == 0, "the session is gone")
        assert await _say(wire, endpoint, request("ping")) == 404


async def test_questions_over_http_with_sse(binding: str) -> None:
    """R60, R137: the stream carries the question, a POST the answer."""
    async with serve(binding, demo(), sse_path="/sse") as wire:
        stream, endpoint = await _open_sse(wire)
        await _say(wire, endpoint, initialize(V24, ABLE))
        await stream.message()
        await _say(wire, endpoint, notification("notifications/initialized"))
        await _say(wire, endpoint, request("tools/call", {"name": "sample"}, 1))
        asked = await stream.message()
        assert asked["method"] == "sampling/createMessage"
        await _say(wire, endpoint, {"jsonrpc": "2.0", "id": asked["id"], "result": SAID})
        assert (await stream.message())["result"]["content"][0]["text"] == "said"
        await stream.close()


class Tokens:
    """The Authorization header is the subject; a new principal object for each request."""

    async def authenticate(self, request: Any) -> Any:
        return type("Principal", (), {"subject": request.headers.get("authorization"), "scopes": ()})()


async def test_http_with_sse_belongs_to_its_principal(binding: str) -> None:
    """R102, R137: whoever opened the stream may post to it, and nobody else."""
    async with serve(binding, demo(), sse_path="/sse", auth=Tokens()) as wire:
        stream, endpoint = await _open_sse(wire, {"Authorization": "alice"})
        assert await _say(wire, endpoint, initialize(V24), {"Authorization": "bob"}) == 404
        assert await _say(wire, endpoint, initialize(V24), {"Authorization": "alice"}) == 202
        assert (await stream.message())["result"]["protocolVersion"] == V24
        await stream.close()


async def test_http_with_sse_guards_its_doors(binding: str) -> None:
    """R107, R110, protocol.md 6.1: Origin on both paths; the preflight of both is answered."""
    async with serve(binding, demo(), sse_path="/sse") as wire:
        evil = {"Origin": "https://evil.example"}
        assert (await wire.send("GET", {"Accept": "text/event-stream", **evil}, path="/sse")).status == 403
        assert await _say(wire, "/sse/messages?sessionId=x", request("ping"), evil) == 403
        for path in ("/sse", "/sse/messages"):
            preflight = await wire.send("OPTIONS", {"Origin": "http://localhost:5"}, path=path)
            assert preflight.status == 204, path
            assert preflight.headers["access-control-allow-origin"] == "http://localhost:5"


async def test_http_with_sse_is_opt_in(binding: str) -> None:
    """R137, C29: without sse_path there is nothing at /sse."""
    async with serve(binding, demo()) as wire:
        assert (await wire.send("GET", {"Accept": "text/event-stream"}, path="/sse")).status == 404


async def test_http_with_sse_counts_as_sessions(binding: str) -> None:
    """R94: max_sessions counts all sessions; an open stream is one."""
    async with serve(binding, demo(max_sessions=1), sse_path="/sse") as wire:
        stream, _ = await _open_sse(wire)
        refused = await wire.send("GET", {"Accept": "text/event-stream"}, path="/sse")
        assert refused.status == 503
        await stream.close()


# --- the same over TLS -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("carrier", ["https", "http2"])
async def test_tls_binds_carry_the_same_streams(carrier: str) -> None:
    """R147, R151: what matters most is proven there too."""
    gates = Gates()
    server = demo(gates)
    async with serve(carrier, server, sse_path="/sse") as wire:
        session = await wire.initialize(caps=ABLE)
        async with await session.get() as own:
            await own.event()
            server.notify.tools_changed()
            assert (await own.message())["method"] == "notifications/tools/list_changed"
            async with await session.open_call("ask", id="q") as stream:
                asked = await stream.message()
                assert (await session.answer(asked["id"], ACCEPT)).status == 202
                assert (await stream.rest())[-1]["result"]["content"][0]["text"] == "accept Ada"
            stream = await session.open_call("work", id="w", progress="t")
            seen = (await _ids(stream, 2))[1]
            await stream.close()
            gates.go.set()
            async with await session.get(seen) as rest:
                assert (await rest.rest())[-1]["result"]["content"][0]["text"] == "worked"
        waiting = asyncio.ensure_future(wire.open_call("hold", extra={"progressToken": 1}))
        gates.go.clear()
        gates.ended.clear()
        gates.started.clear()
        await soon(gates.started.wait())
        waiting.cancel()
        await asyncio.wait({waiting})
        await soon(gates.ended.wait())
        assert gates.outcome == "cancelled True"
        sse, endpoint = await _open_sse(wire)
        await _say(wire, endpoint, initialize(V24))
        assert (await sse.message())["result"]["protocolVersion"] == V24
        await sse.close()
