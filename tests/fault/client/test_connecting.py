"""A connection that ends while it is made."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest
from tests.support.peers import (
    Exchange,
    Pipe,
    Site,
    Wire,
    discovered,
    encode,
    initialized,
    ok,
    plain,
    stream,
)
from tests.support.until import until

from trimaran import connect, errors
from trimaran.client.dialect import ModernDialect
from trimaran.client.negotiation import EraMemory, meet
from trimaran.legacy.client_sse import SseChannel
from trimaran.legacy.dialect import LegacyDialect
from trimaran.protocol.read_reply import Frame, read_frame


async def test_a_channel_is_not_opened_again_while_it_is_being_closed() -> None:
    class Slow(Pipe):
        closing = 0
        overlaps = 0

        async def open(self, owner: Any) -> None:
            self.overlaps += self.closing
            await super().open(owner)

        async def close(self) -> None:
            self.closing += 1
            await asyncio.sleep(0.3)
            await super().close()
            self.closing -= 1

    pipe = Slow()
    pipe.modern()
    async with connect(pipe) as client:
        pipe.hang_up()
        await client.ping()
        assert not pipe.overlaps


async def test_a_server_that_ends_right_after_its_greeting_could_not_be_connected_to() -> None:
    """The documented errors of `open` do not hold ConnectionLost."""

    def greet_and_go(pipe: Pipe, message: Any) -> None:
        pipe.say(ok(message["id"], discovered()))
        pipe.hang_up()

    pipe = Pipe().on("server/discover", greet_and_go)
    with pytest.raises(errors.ConnectFailed):
        await connect(pipe).open()


async def test_a_link_that_ends_right_after_its_greeting_is_closed_too(
    site: Site, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP+SSE: a stream that ends while `notifications/initialized` is still being posted."""
    opened: list[Any] = []
    closed: list[Any] = []
    close = SseChannel.close

    async def noted(channel: SseChannel) -> None:
        closed.append(channel)
        await close(channel)

    monkeypatch.setattr(SseChannel, "close", noted)
    make = SseChannel.__init__

    def count(channel: Any, *args: Any, **options: Any) -> None:
        opened.append(channel)
        make(channel, *args, **options)

    monkeypatch.setattr(SseChannel, "__init__", count)
    wires: list[Wire] = []
    ends: list[asyncio.Event] = []

    async def speak(wire: Wire) -> None:
        wires.append(wire)
        ends.append(asyncio.Event())
        await wire.raw("event: endpoint\ndata: /post\n\n")
        await ends[-1].wait()

    async def greet(exchange: Exchange) -> Any:
        await wires[-1].say(ok(exchange.id, initialized("2024-11-05")))
        return await plain(202)(exchange)

    async def cut(exchange: Exchange) -> Any:
        ends[-1].set()
        await asyncio.sleep(0.05)
        return await plain(202)(exchange)

    site.on("GET", stream(speak)).on("initialize", greet)
    site.on("notifications/initialized", plain(202), cut, cut, plain(202))
    async with connect({"url": site.url, "transport": "sse"}) as client:
        ends[-1].set()
        await until(lambda: len(wires) == 4 and client.state == "ready")
    ends[-1].set()
    assert len(opened) == 4
    assert set(opened) == set(closed)


class SilentHandshake:
    """A target that answers the modern greeting and lets the handshake hang; its dialer, link and inbox in one."""

    key = "somewhere"
    manners = ("modern", "legacy")
    is_http = True

    def describe(self) -> str:
        return "somewhere"

    def newest_revision(self) -> None: ...

    async def dial(self, manner: Any, inbox: Any, reuse: Any) -> Any:
        return self

    async def request(self, id: Any, message: bytes, headers: Any, **_: Any) -> Frame:
        if b"initialize" in message:
            await asyncio.Event().wait()
        return read_frame(encode(ok(id, discovered())))

    async def send(self, message: bytes, headers: Any) -> None: ...
    async def close(self) -> None: ...
    def attach(self, link: Any) -> None: ...
    def notice(self, frame: Any) -> None: ...
    def asked(self, frame: Any) -> None: ...
    def lost(self, error: Any) -> None: ...
    def oddities(self) -> str:
        return ""


async def test_an_era_that_is_remembered_and_hangs_is_forgotten() -> None:
    """The next attempt must not walk into the same silence."""
    target: Any = SilentHandshake()
    memory = EraMemory()
    memory.note(target.key, "legacy", "")
    ids = itertools.count(1)
    info = {"name": "x", "version": "1"}

    def make(manner: Any, version: Any) -> Any:
        return ModernDialect(info, {}) if manner == "modern" else LegacyDialect(info, {}, version)

    async def attempt() -> Any:
        async with asyncio.timeout(0.1):
            return await meet(
                target, lambda: target, make, ids.__next__, era="auto", version=None, memory=memory, patience=0.1
            )

    with contextlib.suppress(TimeoutError):
        await attempt()
    assert (await attempt()).manner == "modern"
