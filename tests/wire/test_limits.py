"""Every limit has its effect, and what is refused leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
from typing import Any

import pytest
from tests.support.harness import LEGACY, MODERN, Channel, KeepAliveCarrier, initialize, meta, request, serve
from tests.support.inside import inside
from tests.support.until import PATIENCE, until

from trimaran import Context, Limits, Server
from trimaran.legacy.session import Session as LegacySession
from trimaran.protocol.inbound import IncomingCall
from trimaran.server.exchange import Exchange

NAME = {"type": "object", "properties": {"name": {"type": "string"}}}


def demo(**limits: Any) -> Server:
    server = Server("demo", version="1", limits=Limits(**limits))

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def flood(ctx: Context, count: int) -> str:
        for n in range(1, count + 1):
            await ctx.progress(n, message="x" * 100)
        return "flooded"

    @server.resource("r:1")
    def one() -> str:
        return "one"

    return server


def holding(server: Server) -> tuple[asyncio.Event, list[int]]:
    """A tool that waits for a gate, and who has come in so far."""
    gate = asyncio.Event()
    arrived: list[int] = []

    @server.tool
    async def hold() -> str:
        arrived.append(1)
        await gate.wait()
        return "held"

    return gate, arrived


# --- each limit ------------------------------------------------------------------------------------------------------

COVERED = {
    "max_body_bytes": "test_max_body_bytes, test_guard",
    "max_incoming_body_bytes": "tests/fault/test_incoming_bodies.py",
    "max_line_bytes": "test_stdio",
    "max_header_bytes": "test_max_header_bytes",
    "request_timeout": "test_request_timeout",
    "max_concurrent_calls": "test_max_concurrent_calls",
    "max_concurrent_calls_per_session": "test_max_concurrent_calls_per_session",
    "max_sessions": "test_sessions",
    "session_idle_timeout": "test_sessions",
    "session_max_lifetime": "test_sessions",
    "replay_events": "test_streams",
    "replay_bytes": "test_streams",
    "replay_total_bytes": "test_streams",
    "max_listen_streams": "test_max_listen_streams",
    "max_stream_bytes": "test_max_stream_bytes",
    "max_listen_bytes": "test_max_listen_bytes",
    "max_subscriptions": "test_max_subscriptions",
    "tool_threads": "test_tool_threads",
    "keep_alive": "test_modern, test_streams",
    "input_ttl": "test_input_ttl, test_rounds",
}


def test_every_limit_has_a_test() -> None:
    """Ours: a new limit comes with the proof of its effect."""
    assert set(Limits.__struct_fields__) == set(COVERED)


@pytest.mark.parametrize("name", ["session_idle_timeout", "session_max_lifetime", "max_sessions", "request_timeout"])
async def test_a_limit_may_be_switched_off(binding: str, name: str) -> None:
    """R92, R93, R94, R95: None is "never" or "unlimited"."""
    async with serve(binding, demo(**{name: None})) as wire:
        session = await wire.initialize()
        inner = next(iter(inside(wire.engine.server).sessions))
        assert (await session.call("add", {"a": 1, "b": 1})).status == 200
        if name == "session_idle_timeout":
            inner.seen -= 1e9
            assert (await session.ask("ping")).status == 200


async def test_max_body_bytes(binding: str) -> None:
    """R113: 413 and the option's name."""
    async with serve(binding, demo(max_body_bytes=500)) as wire:
        reply = await wire.post(b" " * 501)
        assert reply.status == 413
        assert "max_body_bytes" in reply.error["message"]


@pytest.mark.parametrize("carrier", ["http", "asgi", "http2"])
async def test_max_header_bytes(carrier: str) -> None:
    """Limits.max_header_bytes: beyond it 431, whatever carries the request (R147)."""
    async with serve(carrier, demo(max_header_bytes=2000)) as wire:
        assert (await wire.modern("tools/list")).status == 200
        assert (await wire.modern("tools/list", headers={"Authorization": "x" * 3000})).status == 431
        assert (await wire.modern("tools/list", headers={"Mcp-Session-Id": "x" * 3000})).status == 431


async def test_request_timeout(binding: str) -> None:
    """R69, R130: an error envelope on both eras, the handler stopped, nothing left in flight."""
    server = demo(request_timeout=0.03)
    holding(server)
    async with serve(binding, server) as wire:
        reply = await wire.call("hold", id="m")
        assert (reply.error["code"], reply.messages[-1]["id"]) == (-32603, "m")
        session = await wire.initialize()
        reply = await session.call("hold", id="l")
        assert (reply.error["code"], reply.messages[-1]["id"]) == (-32603, "l")
        await until(lambda: not wire.engine.running_calls.open)


async def test_a_deaf_handler_is_answered_for() -> None:
    """R69, R130: a plain function cannot be stopped, but its client is answered all the same."""
    server = demo(request_timeout=0.03)
    release = threading.Event()

    @server.tool
    def deaf(ctx: Context) -> str:
        release.wait(10)
        return str(ctx.cancelled)

    async with serve("http", server) as wire:
        try:
            reply = await wire.call("deaf")
            assert reply.error["code"] == -32603
        finally:
            release.set()


async def test_max_concurrent_calls(binding: str) -> None:
    """Limits.max_concurrent_calls: 503 beyond it; room again when one has ended."""
    server = demo(max_concurrent_calls=2)
    gate, arrived = holding(server)
    async with serve(binding, server) as wire:
        waiting = [asyncio.ensure_future(wire.call("hold")) for _ in range(2)]
        await until(lambda: len(arrived) == 2)
        refused = await wire.call("hold")
        assert (refused.status, refused.error["code"]) == (503, -32603)
        assert (await wire.call("add", {"a": 1, "b": 1})).status == 200  # what ends at once is no load
        gate.set()
        assert [(await w).status for w in waiting] == [200, 200]
        assert (await wire.call("hold")).status == 200


async def test_max_concurrent_calls_per_session(binding: str) -> None:
    """Limits.max_concurrent_calls_per_session: one client's share; others are not touched."""
    server = demo(max_concurrent_calls_per_session=2)
    gate, arrived = holding(server)
    async with serve(binding, server) as wire:
        session, other = await wire.initialize(), await wire.initialize()
        waiting = [asyncio.ensure_future(session.call("hold")) for _ in range(2)]
        await until(lambda: len(arrived) == 2)
        refused = await session.call("hold")
        assert (refused.status, refused.error["code"]) == (503, -32603)
        assert (await other.call("add", {"a": 1, "b": 1})).status == 200
        gate.set()
        assert [(await w).status for w in waiting] == [200, 200]
        assert (await session.call("hold")).status == 200


async def test_the_share_of_a_session_holds_in_a_batch(binding: str) -> None:
    """Limits.max_concurrent_calls_per_session: a batch is no way around it."""
    server = demo(max_concurrent_calls_per_session=3)
    gate, arrived = holding(server)
    async with serve(binding, server) as wire:
        session = await wire.initialize("2025-03-26")
        batch = [request("tools/call", {"name": "hold"}, n) for n in range(8)]
        waiting = asyncio.ensure_future(session.post(batch))
        await until(lambda: len(arrived) >= 3)
        gate.set()
        replies = (await waiting).json
        assert sum("result" in r for r in replies) == 3
        assert sum("error" in r for r in replies) == 5


async def test_the_share_of_a_session_holds_on_a_channel() -> None:
    """Limits.max_concurrent_calls_per_session, R147: the same on stdio."""
    server = demo(max_concurrent_calls_per_session=2)
    gate, arrived = holding(server)
    async with Channel(server) as channel:
        await channel.initialize()
        for n in range(3):
            await channel.send(request("tools/call", {"name": "hold"}, n))
        await until(lambda: len(arrived) >= 2)
        refused = asyncio.ensure_future(channel.receive())
        await asyncio.wait({refused}, timeout=PATIENCE)
        gate.set()
        replies = [await refused, await channel.receive(), await channel.receive()]
        assert len(arrived) == 2
        assert sum("error" in r for r in replies) == 1


async def test_max_listen_streams(binding: str) -> None:
    """Limits.max_listen_streams: 503 beyond it; room again when one has gone."""
    async with serve(binding, demo(max_listen_streams=1)) as wire:
        wanted = {"notifications": {"toolsListChanged": True}}
        stream = await wire.open_modern("subscriptions/listen", wanted)
        await stream.message()
        assert (await wire.modern("subscriptions/listen", wanted)).status == 503
        await stream.close()
        await until(lambda: len(wire.engine.server.runtime.changes) == 0)
        stream = await wire.open_modern("subscriptions/listen", wanted)
        assert stream.status == 200
        await stream.message()
        await stream.close()


async def test_max_stream_bytes(binding: str) -> None:
    """Limits.max_stream_bytes: further notifications are dropped, the result still goes out; both eras."""
    async with serve(binding, demo(max_stream_bytes=2000)) as wire:
        modern = (await wire.call("flood", {"count": 100}, extra={"progressToken": 1})).messages
        session = await wire.initialize()
        legacy = (await session.call("flood", {"count": 100}, progress=1)).messages
        for messages in (modern, legacy):
            assert 1 < len(messages) < 20
            assert messages[-1]["result"]["content"][0]["text"] == "flooded"


async def test_max_listen_bytes(binding: str) -> None:
    """Limits.max_listen_bytes: the stream is ended properly, with its result; the client listens again."""
    server = demo(max_listen_bytes=400)
    async with serve(binding, server) as wire:
        stream = await wire.open_modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="L")
        await stream.message()
        messages: list[Any] = []
        while not messages or "method" in messages[-1]:
            server.notify.tools_changed()
            messages.append(await stream.message())
        assert 1 < len(messages) < 20
        assert messages[-1]["id"] == "L"
        assert messages[-1]["result"]["resultType"] == "complete"
        assert await stream.rest() == []
        await stream.close()


async def test_max_subscriptions(binding: str) -> None:
    """Limits.max_subscriptions: -32602, on a listen stream and in a session."""
    async with serve(binding, demo(max_subscriptions=2)) as wire:
        many = {"notifications": {"resourceSubscriptions": ["r:1", "r:2", "r:3"]}}
        assert (await wire.modern("subscriptions/listen", many)).verdict == (400, -32602, 1)
        session = await wire.initialize()
        for uri, fits in (("r:1", True), ("r:2", True), ("r:3", False), ("r:1", True)):
            reply = await session.ask("resources/subscribe", {"uri": uri})
            assert ("result" in reply.json) is fits, uri


async def test_tool_threads() -> None:
    """Limits.tool_threads, P46: so many plain functions run at once, and the loop is never held up."""
    server = demo(tool_threads=2)
    lock, release = threading.Lock(), threading.Event()
    inside: list[int] = []
    most: list[int] = []

    @server.tool
    def busy() -> str:
        with lock:
            inside.append(1)
            most.append(len(inside))
        release.wait(5)
        with lock:
            inside.pop()
        return "ok"

    async with serve("http", server) as wire:
        waiting = [asyncio.ensure_future(wire.call("busy")) for _ in range(5)]
        await until(lambda: len(inside) == 2)
        assert (await wire.call("add", {"a": 1, "b": 1})).status == 200
        release.set()
        assert [(await w).status for w in waiting] == [200] * 5
    assert max(most) == 2


async def test_input_ttl(binding: str) -> None:
    """Limits.input_ttl: seconds a person has to answer."""
    server = demo(input_ttl=0.02)

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Name?", NAME)).action

    async with serve(binding, server) as wire:
        caps = {"elicitation": {}}
        asked = (await wire.call("ask", caps=caps)).result
        await asyncio.sleep(0.03)
        more = {
            "requestState": asked["requestState"],
            "inputResponses": {k: {"action": "accept"} for k in asked["inputRequests"]},
        }
        assert (await wire.call("ask", caps=caps, more=more)).verdict == (400, -32602, 1)


# --- nothing is left behind ------------------------------------------------------------------------------------------


def rejected() -> list[tuple[Any, dict[str, str | None]]]:
    """One of each kind of refusal."""
    good: dict[str, str | None] = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    return [
        (b"{nope", {}),
        ([request("ping")], {}),
        (request("tools/list", {"_meta": meta()}, None), good),
        (request("tools/list", {}), good),
        (request("tools/list", {"_meta": meta("v999")}), {"MCP-Protocol-Version": "v999"}),
        (request("no/such", {"_meta": meta()}), {**good, "Mcp-Method": "no/such"}),
        (request("tools/call", {**call, "_meta": meta()}), {**good, "Mcp-Method": "tools/call"}),
        (
            request("tools/call", {"name": "nope", "_meta": meta()}),
            {**good, "Mcp-Method": "tools/call", "Mcp-Name": "nope"},
        ),
        (request("tools/list", {}), {}),
        (request("tools/list", {}), {"Mcp-Session-Id": "mcp_none"}),
        (initialize(clientInfo=5), {}),
        (initialize(), {"Mcp-Session-Id": "mcp_none"}),
        (initialize(), {"Origin": "https://evil.example"}),
        (initialize(), {"Host": "evil.example"}),
        (initialize(), {"Content-Type": "text/plain"}),
        (initialize(), {"Accept": "text/html"}),
    ]


def live(kind: type) -> int:
    gc.collect()
    return sum(1 for o in gc.get_objects() if type(o) is kind)


@pytest.mark.slow
async def test_a_refused_request_leaves_nothing_behind(binding: str) -> None:
    """P8: 2,000 refusals of every kind, and neither a session, a call nor memory is left of them."""
    server = demo()
    async with serve(binding, server) as wire, contextlib.AsyncExitStack() as stack:
        if binding == "http":
            wire.carrier = await stack.enter_async_context(KeepAliveCarrier(wire.carrier.port))

        async def storm(rounds: int, tag: str) -> None:
            for n in range(rounds):
                for body, headers in rejected():
                    # Every one differs, so that a memo that never forgets would show.
                    if isinstance(body, dict) and body.get("id") is not None:
                        body["id"] = f"{tag}-{n}"
                    reply = await wire.post(body, {**headers, "User-Agent": f"{tag}{n}"})
                    assert reply.status >= 400, (body, headers, reply)

        await storm(10, "warm")
        before = {kind: live(kind) for kind in (LegacySession, Exchange, IncomingCall)}
        gc.collect()
        start = sys.getallocatedblocks()
        await storm(125, "hot")
        gc.collect()
        grown = sys.getallocatedblocks() - start
        assert {kind: live(kind) for kind in before} == before
        assert len(inside(server).sessions) == 0
        assert not wire.engine.running_calls.open
        # Bounded memos may hold something: the heads of the last thousand requests, some two dozen objects each.
        assert grown < 40_000, f"{grown} objects are left of 2,000 refused requests"


async def test_sessions_leave_nothing_behind(binding: str) -> None:
    """P8, R96: a hundred sessions with calls and streams, ended, are gone from memory."""
    server = demo()
    async with serve(binding, server) as wire:
        before = live(LegacySession)
        for n in range(30):
            session = await wire.initialize(LEGACY[n % 4])
            await session.call("flood", {"count": 2}, progress=n)
            async with await session.get() as stream:
                assert stream.status == 200
            assert (await session.delete()).status == 204
        await until(lambda: live(LegacySession) <= before, "the sessions are gone")
        assert len(inside(server).sessions) == 0
        assert len(server.runtime.changes) == 0


async def test_late_cancellations_are_not_hoarded(binding: str) -> None:
    """P8, R67: a client that cancels what has ended, over and over, neither fills memory nor loses early cancellation."""
    gates = asyncio.Event()
    server = demo()

    @server.tool
    async def hold() -> str:
        await gates.wait()
        return "held"

    async with serve(binding, server) as wire:
        session = await wire.initialize()
        inner = next(iter(inside(server).sessions))
        for n in range(100):
            await session.cancel(f"gone-{n}")
        assert len(inner.cancelled_early) < 100
        await session.cancel("early")
        reply = asyncio.ensure_future(session.call("hold", id="early"))
        done, _ = await asyncio.wait({reply}, timeout=PATIENCE)
        gates.set()
        assert (await reply).body == b"", "the early cancellation was forgotten"
        assert done


async def test_a_vanished_client_leaves_nothing_behind(binding: str) -> None:
    """P8: listen streams and calls of clients that just go."""
    server = demo()
    _, arrived = holding(server)
    async with serve(binding, server) as wire:
        for n in range(20):
            stream = await wire.open_modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=n)
            await stream.message()
            await stream.close()
        opening = [asyncio.ensure_future(wire.open_call("hold")) for _ in range(5)]
        await until(lambda: len(arrived) == 5)
        for task in opening:
            task.cancel()
        await asyncio.wait(opening)
        await until(lambda: not wire.engine.running_calls.open, "no call is in flight")
        await until(lambda: len(server.runtime.changes) == 0, "nobody listens")
