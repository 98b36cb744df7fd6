"""Listeners that are stopped, given up or led into another era."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.peers import (
    Pipe,
    Refused,
    bad,
    discovered,
    finishing,
    initialized,
    ok,
)
from tests.support.until import soon, until

from trimaran import connect, errors
from trimaran.client import subscriptions

from .moments import LISTEN, acknowledge


async def test_listening_may_be_stopped_from_another_task() -> None:
    pipe = Pipe().modern().on(LISTEN, acknowledge)
    async with connect(pipe) as client:
        changes = client.listen(tools=True)
        waiting = asyncio.ensure_future(anext(changes, None))
        async with finishing(waiting):
            await until(lambda: pipe.all(LISTEN))
            await asyncio.sleep(0.01)
            await changes.aclose()
            assert await soon(waiting) is None


async def test_listening_given_up_before_it_was_agreed_to_ends_with_its_own_error() -> None:
    pipe = Pipe().modern().on(LISTEN, None)
    async with connect(pipe, timeout=0.1) as client:
        changes = client.listen(tools=True)
        entering = asyncio.ensure_future(changes.__aenter__())
        await until(lambda: pipe.all(LISTEN))
        leaving = asyncio.ensure_future(changes.aclose())
        await asyncio.wait((entering, leaving))
        await leaving
        assert isinstance(entering.exception(), (errors.Error, type(None)))


async def test_subscriptions_given_up_while_the_server_is_away_do_not_wait_for_each_other(hurried: None) -> None:
    """Nothing has to be sent: there is no session that knows of them."""
    pipe = Pipe().legacy().on("resources/subscribe", {})
    async with connect(pipe, era="legacy", timeout=0.3) as client:
        subscriptions = [await client.subscribe(f"a:{number}", print) for number in range(5)]
        pipe.on("initialize", None)
        pipe.hang_up()
        await soon(asyncio.gather(*(one.cancel() for one in subscriptions)), 0.6)


async def test_cancelling_all_requests_does_not_deafen_those_who_listen(complaints: list[str]) -> None:
    """What the client asks for its own ends is nobody's request."""
    pipe = Pipe().modern().on(LISTEN, acknowledge)
    async with connect(pipe) as client:
        await client.subscribe("a:1", print)
        assert client.requests == ()
        assert not client.cancel(pipe.all(LISTEN)[0]["id"])
        assert len(pipe.all(LISTEN)) == 1


@pytest.mark.parametrize("refusing", ["resources/subscribe", "logging/setLevel"])
async def test_what_cannot_be_restored_does_not_keep_the_rest_from_it(hurried: None, refusing: str) -> None:
    def subscribe(pipe: Pipe, message: Any) -> None:
        is_gone = refusing == "resources/subscribe" and pipe.opened > 1 and message["params"]["uri"] == "a:1"
        pipe.say(bad(message["id"], -32602, "no such resource") if is_gone else ok(message["id"], {}))

    def level(pipe: Pipe, message: Any) -> None:
        is_gone = refusing == "logging/setLevel" and pipe.opened > 1
        pipe.say(bad(message["id"], -32602) if is_gone else ok(message["id"], {}))

    pipe = Pipe().legacy().on("resources/subscribe", subscribe).on("logging/setLevel", level).on("ping", {})
    heard: list[str] = []
    async with connect(pipe, era="legacy") as client:
        await client.set_log_level("error")
        await client.subscribe("a:1", lambda uri: None)
        await client.subscribe("b:1", heard.append)
        pipe.hang_up()
        await client.ping()
        await until(lambda: heard == ["b:1"])  # "reconnected"
        assert [one["params"]["uri"] for one in pipe.all("resources/subscribe")][-1] == "b:1"


async def test_listeners_follow_a_server_into_another_era(hurried: None) -> None:
    """A server that was upgraded in its place is listened to in its new way."""
    pipe = Pipe().legacy().on("resources/subscribe", {}).on(LISTEN, acknowledge)
    heard: list[str] = []
    async with connect(pipe) as client:
        assert client.era == "legacy"
        await client.subscribe("a:1", heard.append)
        pipe.on("server/discover", discovered())
        pipe.hang_up()
        await client.ping()
        assert client.era == "modern"
        await until(lambda: pipe.all(LISTEN))


async def test_listeners_do_not_pester_a_server_of_the_other_era(
    hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "_PAUSES", (0.01,))
    pipe = Pipe().modern().on(LISTEN, acknowledge).on("resources/subscribe", {}).on("ping", {})
    async with connect(pipe) as client:
        await client.subscribe("a:1", lambda uri: None)
        pipe.on("server/discover", Refused(-32601)).on("initialize", initialized()).on(LISTEN, Refused(-32601))
        pipe.hang_up()
        await client.ping()
        assert client.era == "legacy"
        await until(lambda: pipe.all("resources/subscribe"))
        await asyncio.sleep(0.2)
        assert len(pipe.all(LISTEN)) <= 2


async def test_a_legacy_listener_survives_a_long_absence_of_its_server(hurried: None) -> None:
    """Nobody calls: a program that only listens must be reconnected all the same."""

    class Absent(Pipe):
        refuses = 0

        async def open(self, owner: Any) -> None:
            if self.refuses:
                self.refuses -= 1
                raise errors.ConnectFailed("nobody there")
            await super().open(owner)

    pipe = Absent()
    pipe.legacy().on("resources/subscribe", {})
    heard: list[str] = []
    async with connect(pipe, era="legacy") as client:
        await client.subscribe("a:1", heard.append)
        pipe.refuses = 8
        pipe.hang_up()
        await until(lambda: heard == ["a:1"])
