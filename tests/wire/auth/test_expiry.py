"""A stream does not outlive the credentials it was opened with; a minute of grace, as clocks differ."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.badges import Badges, badge, demo
from tests.support.harness import encode, initialize, serve

from trimaran import Context, Server
from trimaran.server import access

# Half a minute and a bit over: gone for a provider without grace, good for another half minute here.
GOOD = "alice~-29"
# What is left is a hundredth of a minute.
SOON = "alice~-59.4"


@pytest.mark.slow
async def test_a_listen_stream_ends_properly_with_its_credentials(binding: str) -> None:
    """protocol.md 1.4: with its result, so that the client knows and listens again."""
    async with serve(binding, demo(), auth=Badges()) as wire:
        wanted = {"notifications": {"toolsListChanged": True}}
        async with await wire.open_modern("subscriptions/listen", wanted, id=3, headers=badge(SOON)) as stream:
            assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
            last = await stream.message()
            assert last["id"] == 3
            assert last["result"]["resultType"] == "complete"
            assert await stream.event() is None


@pytest.mark.slow
async def test_a_session_stream_ends_and_is_taken_up_with_newer_credentials(binding: str) -> None:
    """R125: what happened in between is replayed to whoever comes back, and the session lives on."""
    server = demo()
    async with serve(binding, server, auth=Badges()) as wire:
        alice = await wire.initialize(headers=badge("alice"))
        async with await alice.get(headers=badge(SOON)) as stream:
            first = await stream.event()
            assert first is not None
            assert await stream.event() is None
        server.notify.tools_changed()
        async with await alice.get(last=first.id) as stream:
            assert (await stream.message())["method"] == "notifications/tools/list_changed"


@pytest.mark.slow
async def test_a_resumed_call_ends_with_the_credentials_of_who_resumed_it(binding: str) -> None:
    server = Server("slow", version="1")
    release = asyncio.Event()

    @server.tool
    async def slow(ctx: Context) -> str:
        await ctx.notify("notifications/message", {"level": "info", "data": "begun"})
        await release.wait()
        return "done"

    async with serve(binding, server, auth=Badges()) as wire:
        alice = await wire.initialize(headers=badge("alice"))
        stream = await alice.open_call("slow")
        event = await stream.next()
        await stream.close()
        async with await alice.get(last=event.id, headers=badge(SOON)) as resumed:
            assert await resumed.event() is None
        release.set()
        async with await alice.get(last=event.id) as resumed:
            assert (await resumed.message())["result"]["content"][0]["text"] == "done"


@pytest.mark.slow
async def test_http_with_sse_ends_unless_newer_credentials_come(binding: str) -> None:
    """R137: there the stream is the session, so each message renews it."""
    async with serve(binding, demo(), auth=Badges(), sse_path="/sse") as wire:
        headers = {"Accept": "text/event-stream"}
        async with await wire.open("GET", {**headers, **badge(SOON)}, path="/sse") as stream:
            assert await stream.event() is not None
            assert await stream.event() is None
        async with await wire.open("GET", {**headers, **badge(SOON)}, path="/sse") as stream:
            event = await stream.event()
            assert event is not None
            (connection,) = wire.engine.legacy._sse._open.values()
            before = connection._expiry.when()
            post = {"Content-Type": "application/json", **badge("alice~600")}
            assert (await wire.send("POST", post, encode(initialize()), path=event.data)).status == 202
            assert connection._expiry.when() - before > 600
            assert "result" in await stream.message()


@pytest.mark.parametrize("kind", ["listen", "get", "sse"])
@pytest.mark.parametrize("who", [GOOD, "alice"])
async def test_a_stream_within_its_time_goes_on_and_leaves_no_timer_behind(
    binding: str, kind: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One timer for a stream whose credentials end some time, none for others; cancelled when the stream ends first."""
    timers: list[Any] = []
    original = access.at_expiry

    def spy(principal: Any, end: Any) -> Any:
        timers.append(original(principal, end))
        return timers[-1]

    for module in ("trimaran.server.changes", "trimaran.legacy.resumable_streams", "trimaran.legacy.server_sse"):
        monkeypatch.setattr(f"{module}.at_expiry", spy)
    server = demo()
    async with serve(binding, server, auth=Badges(), sse_path="/sse") as wire:
        if kind == "listen":
            wanted = {"notifications": {"toolsListChanged": True}}
            stream = await wire.open_modern("subscriptions/listen", wanted, headers=badge(who))
        elif kind == "get":
            alice = await wire.initialize(headers=badge("alice"))
            stream = await alice.get(headers=badge(who))
        else:
            stream = await wire.open("GET", {"Accept": "text/event-stream", **badge(who)}, path="/sse")
        assert await stream.event() is not None
        (timer,) = timers
        assert (timer is None) == (who == "alice")
        assert timer is None or not timer.cancelled()
        await stream.close()
    assert timer is None or timer.cancelled()


@pytest.mark.parametrize("expires_at", [1e300, float("inf"), float("nan"), -1e300, 0.0])
async def test_no_expiry_is_too_odd_for_a_timer(expires_at: float) -> None:
    """A provider of an author's own may give anything; what it let in though it has run out is asked about in a minute."""
    principal = type("P", (), {"expires_at": expires_at})()
    timer = access.at_expiry(principal, lambda: None)
    assert timer is not None
    left = timer.when() - asyncio.get_running_loop().time()
    timer.cancel()
    assert 0 < left <= (31 * 86400 if expires_at > 1 else 60)
