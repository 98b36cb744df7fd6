"""HTTP servers that go and come back: calls in flight fail at once, the next one works with no help (P1, P2)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import Child
from tests.support.until import soon, until

from trimaran import connect
from trimaran.errors import ConnectFailed, ConnectionLost, Error, TimedOut

from .peers import ERAS, Dock, EvilHttp, Exchange, assert_usable, failure_of, took, turns_until_in_flight

HONEST = Path(__file__).with_name("honest.py")


@contextlib.contextmanager
def honest(port: int = 0) -> Iterator[tuple[Child, int]]:
    with Child(
        command=[sys.executable, str(HONEST), str(port)], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ) as child:
        line = child.line()
        assert line, "the server did not start"
        yield child, int(line)


@ERAS
@pytest.mark.slow
async def test_a_killed_server_fails_its_calls_at_once_and_a_restarted_one_is_used(dock: Dock, era: Any) -> None:
    states: list[str] = []
    with honest() as (first, port):
        client = connect(
            f"http://127.0.0.1:{port}/mcp",
            era=era,
            timeout=20.0,
            on_state=lambda event: states.append(event.state),
        )
        await soon(client.__aenter__())
        dock.on_exit(client.close)
        assert (await soon(client.call_tool("add", {"a": 1, "b": 2}))).data == 3
        tools = ["nap", "noisy_nap"] * 3
        calls = [asyncio.create_task(client.call_tool(tool, {"seconds": 60})) for tool in tools]
        await turns_until_in_flight(client, 6)
        # The calls of the server that are at work are not to be seen from here: a call behind them is.
        assert (await soon(client.call_tool("add", {"a": 1, "b": 2}))).data == 3
        first.signal(signal.SIGKILL)
        with took(most=1.0):
            losses = await soon(asyncio.gather(*calls, return_exceptions=True))
        for loss in losses:
            assert isinstance(loss, ConnectionLost), repr(loss)
            assert str(port) in str(loss)
        first.wait(5)
        with took(most=5.0):
            error = await failure_of(client.call_tool("add", {"a": 1, "b": 2}, timeout=2.0))
        assert isinstance(error, (ConnectFailed, ConnectionLost, TimedOut)), repr(error)
    with honest(port):
        assert (await soon(client.call_tool("add", {"a": 2, "b": 2}))).data == 4
        await soon(client.close())
    await until(lambda: states[-1] == "closed", "the end was told")
    assert states[0] == "connecting"
    assert states[-1] == "closed"
    assert states[1] == "ready"


@ERAS
@pytest.mark.parametrize("wire", ["json", "sse"])
async def test_a_server_restarted_between_calls_is_not_noticed(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era) as (client, peer):
        assert isinstance(peer, EvilHttp)
        for _ in range(3):
            await assert_usable(client)
            await peer.stop()
            await peer.start()
            await assert_usable(client)


@pytest.mark.parametrize("status", [404, 400])
@pytest.mark.parametrize("wire", ["json", "sse"])
async def test_a_session_that_is_gone_is_renewed_once_for_everybody(dock: Dock, wire: str, status: int) -> None:
    """P1: fifty calls find out at the same time; one of them asks for a new session, all succeed."""
    peer = await dock.http("legacy", wire, unknown_session=status)
    async with connect(peer.url, timeout=10.0) as client:
        await assert_usable(client)
        before = client.session_id
        assert before is not None
        peer.sessions.clear()
        calls = [client.call_tool("echo", {"text": str(i)}) for i in range(50)]
        results = await soon(asyncio.gather(*calls))
        assert [result.text for result in results] == [str(i) for i in range(50)]
        assert len(peer.messages("initialize")) == 2
        assert client.session_id not in (None, before)
        assert client.state == "ready"
        initialized = [x for x in peer.seen if x.method == "notifications/initialized"]
        assert [x.headers["mcp-session-id"] for x in initialized] == [before, client.session_id]
        renewal = [x for x in peer.seen if x.method == "initialize"][1]
        assert "mcp-session-id" not in renewal.headers


async def test_a_session_that_is_gone_again_and_again_is_given_up(dock: Dock) -> None:
    """A server that forgets every session at once must not be asked forever."""
    peer = await dock.http("legacy")
    async with connect(peer.url, timeout=5.0) as client:
        await assert_usable(client)

        async def forget(x: Exchange) -> None:
            await x.reply(b"session not found", 404, "text/plain")

        peer.overrides["echo"] = forget
        with took(most=4.0):
            error = await failure_of(client.call_tool("echo"))
        assert isinstance(error, Error)
        assert "404" in str(error) or "session" in str(error)
        assert len(peer.messages("initialize")) <= 4
        del peer.overrides["echo"]
        await assert_usable(client)


async def test_a_call_under_way_while_the_session_is_renewed_is_unharmed(dock: Dock) -> None:
    async with dock.open("sse", "legacy") as (client, peer):
        assert isinstance(peer, EvilHttp)
        beside = asyncio.create_task(client.call_tool("later"))
        await until(lambda: peer.calls("later") == 1, "the call is at work")
        peer.sessions.clear()
        await assert_usable(client)
        await soon(client.call_tool("release"))
        assert (await soon(beside)).text == "late"


@pytest.mark.parametrize("eras", [("legacy", "modern"), ("modern", "legacy")], ids=["up", "down"])
async def test_a_server_of_another_era_after_a_restart_is_spoken_to_in_that(dock: Dock, eras: tuple[str, str]) -> None:
    """protocol.md 2.6: the verdict is asked for again when it fails later."""
    async with dock.open("json", eras[0]) as (client, peer):
        assert isinstance(peer, EvilHttp)
        assert client.era == eras[0]
        await peer.stop()
        peer.era = eras[1]
        await peer.start()
        await assert_usable(client)
        assert client.era == eras[1]


async def test_a_session_that_is_gone_is_renewed_where_nothing_is_retried(dock: Dock) -> None:
    """The server has said that it did nothing: that is no retry."""
    async with dock.open("json", "legacy", retries=0) as (client, peer):
        assert isinstance(peer, EvilHttp)
        peer.sessions.clear()
        await assert_usable(client)


async def test_the_era_of_a_server_is_remembered(dock: Dock) -> None:
    """protocol.md 2.6: the verdict is cached per origin; the second client sends no probe."""
    peer = await dock.http("legacy")
    for _ in range(3):
        async with connect(peer.url) as client:
            assert client.era == "legacy"
            await assert_usable(client)
    assert len(peer.messages("server/discover")) == 1
    assert len(peer.messages("initialize")) == 3


async def test_a_session_ends_with_its_client(dock: Dock) -> None:
    peer = await dock.http("legacy")
    async with connect(peer.url) as client:
        await assert_usable(client)
        assert len(peer.sessions) == 1
    assert not peer.sessions


async def test_a_goodbye_that_is_not_answered_does_not_hold_up_close(dock: Dock) -> None:
    peer = await dock.http("legacy")
    peer.overrides["DELETE"] = Exchange.silence
    client = connect(peer.url)
    await soon(client.__aenter__())
    with took(most=6.0):
        await soon(client.close())


# --- repeating what is safe ------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("wire", ["json", "sse", "stdio"])
async def test_a_lost_call_is_repeated_only_if_that_is_safe(dock: Dock, wire: str, era: str) -> None:
    """By annotation or by option; the server counts."""
    async with dock.open(wire, era, timeout=10.0) as (client, peer):
        await client.list_tools()
        error = await failure_of(client.call_tool("fickle"))
        assert isinstance(error, ConnectionLost), repr(error)
        assert peer.calls("fickle") == 1
        assert (await soon(client.call_tool("fickle", {"lose": 2}, idempotent=True))).text == "3"
        assert (await soon(client.call_tool("fickle_safe"))).text == "2"
        error = await failure_of(client.call_tool("fickle_safe", {"lose": 9}, idempotent=False))
        assert isinstance(error, ConnectionLost), repr(error)
        assert peer.calls("fickle_safe") == 3


@ERAS
@pytest.mark.parametrize("wire", ["json", "stdio"])
async def test_a_safe_call_is_not_repeated_forever(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era, timeout=10.0, retries=2) as (client, peer):
        error = await failure_of(client.call_tool("fickle", {"lose": 1000}, idempotent=True))
        assert isinstance(error, ConnectionLost), repr(error)
        assert peer.calls("fickle") == 3


@ERAS
async def test_lists_are_repeated_after_a_loss(dock: Dock, era: str) -> None:
    async with dock.open("json", era) as (client, peer):
        assert isinstance(peer, EvilHttp)
        lost = 0

        async def lose(x: Exchange) -> None:
            nonlocal lost
            if lost < 2:
                lost += 1
                x.reset()
            else:
                await peer.honest(x)

        peer.overrides["tools/list"] = lose
        assert await soon(client.list_tools(fresh=True))
        assert lost == 2


@ERAS
async def test_a_repeated_call_has_a_new_id(dock: Dock, era: str) -> None:
    """protocol.md 7.3: new id after a broken stream."""
    async with dock.open("sse", era) as (client, peer):
        await soon(client.call_tool("fickle", idempotent=True))
        ids = [message["id"] for message in peer.messages("tools/call")]
        assert len(ids) == len(set(ids)) == 2


# --- streams of a legacy session -------------------------------------------------------------------------------------


async def test_a_broken_stream_is_resumed_where_it_was(dock: Dock) -> None:
    """R204: GET with Last-Event-ID; the call has lost nothing, and nothing is told twice."""
    peer = await dock.http("legacy", "sse")
    seen: list[float] = []

    async def interrupted(x: Exchange) -> None:
        peer.memory["id"], peer.memory["token"] = x.id, x.message["params"]["_meta"]["progressToken"]
        await x.stream()
        await x.event(b"", id="e0")
        await x.event(progress(1), id="e1")
        x.cut()

    def progress(value: float) -> bytes:
        from .evil import notice

        return notice("notifications/progress", {"progressToken": peer.memory["token"], "progress": value})

    async def resume(x: Exchange) -> None:
        if x.headers.get("last-event-id") != "e1":
            await x.reply(status=405)
            return
        await x.stream()
        await x.event(progress(2), id="e2")
        from .evil import encode

        await x.event(
            encode(
                {"jsonrpc": "2.0", "id": peer.memory["id"], "result": {"content": [{"type": "text", "text": "whole"}]}}
            ),
            id="e3",
        )
        await x.end()

    peer.overrides["echo"] = interrupted
    peer.overrides["GET"] = resume
    async with connect(peer.url, timeout=6.0) as client:
        result = await soon(client.call_tool("echo", on_progress=lambda value, *_: seen.append(value)))
        assert result.text == "whole"
        await until(lambda: len(seen) == 2, "both were told")
        assert seen == [1.0, 2.0]
    assert peer.calls("echo") == 1


async def test_a_get_stream_that_breaks_all_the_time_is_not_reopened_in_a_busy_loop(dock: Dock) -> None:
    peer = await dock.http("legacy")

    async def brief(x: Exchange) -> None:
        await x.stream()
        x.cut()

    peer.overrides["GET"] = brief
    async with connect(peer.url, timeout=5.0) as client:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.5):
                while True:
                    await assert_usable(client)
                    await asyncio.sleep(0.05)
    gets = sum(x.verb == "GET" for x in peer.seen)
    assert gets <= 10, f"{gets} streams in 1.5 s"
