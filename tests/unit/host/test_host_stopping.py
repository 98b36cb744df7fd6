"""Stops, reloads and logins of a host end, even if they are given up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import Host
from trimaran.client.subscriptions import Change
from trimaran.errors import Closed, ConnectionLost
from trimaran.host import (
    supervise,
)
from trimaran.host.supervise import SupervisedServer
from trimaran.types import Tool

from .echo import make_echo


class Scripted:
    """A client without a server, that ends as the test wants it to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.state = "ready"
        self.server_capabilities: dict[str, Any] = {}
        self.requests = 0
        self.closing = asyncio.Event()
        self.may_close = asyncio.Event()
        self.is_closed = False
        self._fails = fails

    async def open(self) -> None:
        pass

    async def ping(self, *, timeout: float) -> None:
        pass

    async def close(self) -> None:
        self.closing.set()
        if self._fails:
            raise ConnectionLost("it could not be closed in good order")
        await self.may_close.wait()
        self.is_closed = True


def supervised(client: Scripted) -> SupervisedServer:
    def dial(**_: Any) -> Any:
        return client

    return SupervisedServer("x", "stdio", dial, startup_timeout=1.0, call_timeout=1.0)


async def test_a_client_that_cannot_be_closed_does_not_keep_its_server_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "_PAUSES", (0.001,))
    server = supervised(Scripted(fails=True))
    server.start()
    await soon(server.settled())
    assert server.state == "connected"
    await soon(server.stop(for_good=True))
    assert server.state == "disabled"


async def test_a_stop_that_comes_while_a_client_closes_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process is gone when this returns."""
    monkeypatch.setattr(supervise, "_HEALTH", 0.001)
    client = Scripted()
    server = supervised(client)
    server.start()
    await soon(server.settled())
    client.state = "closed"
    await soon(client.closing.wait())
    stopping = asyncio.ensure_future(server.stop(for_good=True))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stopping.done()
    client.may_close.set()
    await soon(stopping)
    assert client.is_closed


async def test_a_reload_that_is_given_up_is_finished_all_the_same() -> None:
    client = Scripted()
    server = supervised(client)
    server.start()
    await soon(server.settled())
    reloading = asyncio.ensure_future(server.restart())
    await soon(client.closing.wait())
    reloading.cancel()
    await asyncio.wait((reloading,))
    client.may_close.set()
    again = asyncio.ensure_future(server.restart())
    await soon(again)
    await soon(server.settled())
    assert server.state == "connected"
    assert server.client is not None
    await soon(server.stop(for_good=True))


async def test_a_stop_that_is_given_up_is_finished_all_the_same() -> None:
    client = Scripted()
    entered: list[str] = []
    done = asyncio.Event()

    def changed(server: SupervisedServer) -> None:
        entered.append(server.state)
        if server.state == "disabled":
            done.set()

    def dial(**_: Any) -> Any:
        return client

    server = SupervisedServer("x", "stdio", dial, startup_timeout=1.0, call_timeout=1.0, changed=changed)
    server.start()
    await soon(server.settled())
    stopping = asyncio.ensure_future(server.stop())
    await soon(client.closing.wait())
    stopping.cancel()
    await asyncio.wait((stopping,))
    client.may_close.set()
    await soon(done.wait())
    assert entered[-1] == "disabled"


async def test_the_catalog_can_be_read_while_a_server_goes() -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(len(host.tools()))

    host = Host({"a": make_echo(), "b": make_echo()}, on_change=look, environ={})
    async with host:
        seen.clear()
        await soon(host.stop_server("a"))
        assert seen
        assert set(seen) == {1}


class Slow(Scripted):
    """Has tools, and no time to list them."""

    def __init__(self) -> None:
        super().__init__()
        self.may_close.set()
        self.server_capabilities = {"tools": {}}
        self.lists = 0
        self.is_busy = False
        self.names = ["one"]
        self.listened: Any = None

    def listen(self, **_: Any) -> Any:
        return self.listened

    async def list_tools_all(self, **_: Any) -> list[Tool]:
        self.lists += 1
        await until(lambda: not self.is_busy)
        return [Tool(name=name, input_schema={"type": "object"}) for name in self.names]


class Changing:
    """Announces changes, or cannot be listened to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.coming: asyncio.Queue[Change] = asyncio.Queue()

    async def __aenter__(self) -> Changing:
        if self.error is not None:
            raise self.error
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> Changing:
        return self

    async def __anext__(self) -> Change:
        return await self.coming.get()


async def changes_to(server: SupervisedServer, names: set[str]) -> None:
    await until(lambda: set(server.tools) == names)


async def test_a_change_that_a_busy_server_announces_is_no_death_and_is_read_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R272."""
    monkeypatch.setattr(supervise, "_SOON", 0.001)
    monkeypatch.setattr(supervise, "_REST", 0.001)
    client = Slow()
    client.listened = Changing()
    states: list[str] = []

    def dial(**_: Any) -> Any:
        return client

    def changed(server: SupervisedServer) -> None:
        states.append(server.state)

    server = SupervisedServer("x", "stdio", dial, startup_timeout=0.02, call_timeout=1.0, changed=changed)
    server.start()
    await soon(server.settled())
    client.requests, client.is_busy, client.names = 1, True, ["two"]
    client.listened.coming.put_nowait(Change("tools"))
    await until(lambda: client.lists >= 4)
    client.is_busy = False
    await soon(changes_to(server, {"two"}))
    await soon(server.stop(for_good=True))
    assert "failed" not in states


async def test_the_list_of_a_server_that_could_not_be_listened_to_does_not_grow_stale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "_HEALTH", 0.001)
    monkeypatch.setattr(supervise, "_REST", 0.001)
    client = Slow()
    client.listened = Changing(ConnectionLost("not now"))
    server = supervised(client)
    server.start()
    await soon(server.settled())
    client.names = ["two"]
    await soon(changes_to(server, {"two"}))
    await soon(server.stop(for_good=True))


async def test_a_login_ends_with_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.Event()

    async def log_in(*arguments: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    async with Host({"echo": make_echo()}, environ={}) as host:
        monkeypatch.setattr(host._logins, "log_in", log_in)  # pyright: ignore[reportPrivateUsage]
        logging_in = asyncio.ensure_future(host.authorize("echo"))
        await soon(began.wait())
    with pytest.raises(Closed, match="during the login"):
        await soon(logging_in)
