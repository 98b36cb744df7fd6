"""Changes for everyone who wants to hear of them: the union of interests, kept alive at the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.peers import P, Pipe, Refused, tell
from tests.support.until import soon, until

from trimaran import connect, errors

LISTEN = "subscriptions/listen"


def acknowledge(pipe: Pipe, message: dict[str, Any]) -> None:
    meta = {P + "subscriptionId": message["id"]}
    wanted = message["params"]["notifications"]
    pipe.say(tell("notifications/subscriptions/acknowledged", {"notifications": wanted, "_meta": meta}))


def modern() -> Pipe:
    return Pipe().modern().on(LISTEN, acknowledge)


def wishes(pipe: Pipe) -> list[Any]:
    return [message["params"]["notifications"] for message in pipe.all(LISTEN)]


def changed(pipe: Pipe, what: str, **params: Any) -> None:
    ids = [message["id"] for message in pipe.all(LISTEN)]
    pipe.say(tell(f"notifications/{what}", {**params, "_meta": {P + "subscriptionId": ids[-1]}}))


class Hearing:
    """A listen iterator in a task."""

    def __init__(self, client: Any, **wanted: Any) -> None:
        self.heard: list[Any] = []
        self.changes: Any = client.listen(**wanted)
        self.task = asyncio.ensure_future(self._hear())

    async def _hear(self) -> None:
        async for change in self.changes:
            self.heard.append(change.kind if change.uri is None else change.uri)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.changes.aclose()


async def test_one_stream_carries_the_union_of_all_interests() -> None:
    pipe = modern()
    async with connect(pipe) as client:
        one = Hearing(client, tools=True, resources=["a:1"])
        await until(lambda: len(wishes(pipe)) == 1)
        two = Hearing(client, prompts=True, resources_list=True, resources=["b:1", "a:1"])
        await until(lambda: len(wishes(pipe)) == 2)
        assert wishes(pipe) == [
            {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]},
            {
                "promptsListChanged": True,
                "resourcesListChanged": True,
                "toolsListChanged": True,
                "resourceSubscriptions": ["a:1", "b:1"],
            },
        ]
        await until(lambda: len(pipe.all("notifications/cancelled")) == 1)
        for what in ("tools/list_changed", "prompts/list_changed", "resources/list_changed"):
            changed(pipe, what)
        changed(pipe, "resources/updated", uri="a:1")
        changed(pipe, "resources/updated", uri="b:1")
        await until(lambda: one.heard == ["tools", "a:1"])
        await until(lambda: two.heard == ["prompts", "resources", "a:1", "b:1"])
        await two.stop()
        await until(lambda: len(wishes(pipe)) == 3)
        assert wishes(pipe)[2] == wishes(pipe)[0]
        await one.stop()
        await until(lambda: len(pipe.all("notifications/cancelled")) == 3)
    assert len(wishes(pipe)) == 3


async def test_the_same_interest_twice_needs_one_stream() -> None:
    """R198: several subscribers per URI."""
    pipe = modern()
    heard: list[Any] = []
    async with connect(pipe) as client:
        subscriptions = [await client.subscribe("a:1", lambda uri, n=n: heard.append((n, uri))) for n in range(3)]
        assert len(wishes(pipe)) == 1
        changed(pipe, "resources/updated", uri="a:1")
        await until(lambda: len(heard) == 3)
        await subscriptions[0].cancel()
        await subscriptions[0].cancel()
        assert len(wishes(pipe)) == 1
        heard.clear()
        changed(pipe, "resources/updated", uri="a:1")
        await until(lambda: len(heard) == 2)
        assert sorted(heard) == [(1, "a:1"), (2, "a:1")]


async def test_the_new_stream_is_up_before_the_old_one_is_left() -> None:
    """Nothing falls in between."""
    pipe = modern()
    async with connect(pipe) as client:
        await client.subscribe("a:1", print)
        first = pipe.all(LISTEN)[0]["id"]
        await client.subscribe("b:1", print)
        await until(lambda: pipe.all("notifications/cancelled"))
        order = [(message["method"], message.get("id") or message["params"].get("requestId")) for message in pipe.heard]
        second = pipe.all(LISTEN)[1]["id"]
        assert order.index((LISTEN, second)) < order.index(("notifications/cancelled", first))
        spoken = [line for line in pipe.lines if "acknowledged" in line or "cancelled" in line]
        assert ["acknowledged" in line for line in spoken] == [True, True, False]


async def test_a_renewal_that_is_refused_leaves_the_old_stream_in_charge() -> None:
    pipe = modern()
    heard: list[str] = []
    async with connect(pipe) as client:
        one = await client.subscribe("a:1", heard.append)
        first = pipe.all(LISTEN)[0]["id"]
        pipe.on(LISTEN, Refused(-32602, "no such resource"), acknowledge)
        with pytest.raises(errors.CallError, match="no such resource"):
            await soon(client.subscribe("bad:1", print))
        pipe.say(tell("notifications/resources/updated", {"uri": "a:1", "_meta": {P + "subscriptionId": first}}))
        await until(lambda: heard == ["a:1"])
        await one.cancel()
        told = pipe.all
        await until(lambda: first in [one["params"]["requestId"] for one in told("notifications/cancelled")])


async def test_everything_is_announced_again_after_a_loss() -> None:
    pipe = modern()
    async with connect(pipe) as client:
        hearing = Hearing(client, tools=True)
        await until(lambda: len(wishes(pipe)) == 1)
        await asyncio.sleep(0)
        pipe.hang_up()
        await until(lambda: hearing.heard == ["reconnected"])
        assert wishes(pipe) == [{"toolsListChanged": True}] * 2
        changed(pipe, "tools/list_changed")
        await until(lambda: hearing.heard == ["reconnected", "tools"])
        await hearing.stop()


async def test_a_stream_nobody_acknowledges_is_given_up() -> None:
    pipe = Pipe().modern().on(LISTEN, None)
    async with connect(pipe, timeout=0.05) as client:
        with pytest.raises(errors.TimedOut, match="acknowledged"):
            await soon(client.subscribe("a:1", print))
        await until(lambda: pipe.all("notifications/cancelled"))


async def test_listening_ends_with_the_client() -> None:
    pipe = modern()
    client = await connect(pipe).open()
    hearing = Hearing(client, tools=True)
    await until(lambda: wishes(pipe))
    await client.close()
    await soon(hearing.task)
    assert hearing.heard == []


@pytest.mark.parametrize("wanted", [{}, {"resources": []}, {"resources": "a:1"}, {"tools": False}])
async def test_listening_to_nothing_is_refused(wanted: Any) -> None:
    async with connect(modern()) as client:
        with pytest.raises(errors.ConfigError):
            client.listen(**wanted)


async def test_a_callback_may_be_a_coroutine_function_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    pipe = modern()
    heard: list[str] = []

    async def callback(uri: str) -> None:
        heard.append(uri)
        raise ValueError("mine")

    async with connect(pipe) as client:
        await client.subscribe("a:1", callback)
        for _ in range(2):
            changed(pipe, "resources/updated", uri="a:1")
        await until(lambda: len(heard) == 2)
    assert caplog.text.count("the callback of a subscription failed") == 2


async def test_a_cancelled_subscription_is_silent_at_once() -> None:
    """R198: removed on unsubscribe; also what was heard but not yet delivered."""
    pipe = modern()
    heard: list[str] = []
    gate = asyncio.Event()

    async def callback(uri: str) -> None:
        heard.append(uri)
        await gate.wait()

    async with connect(pipe) as client:
        subscription = await client.subscribe("a:1", callback)
        for _ in range(3):
            changed(pipe, "resources/updated", uri="a:1")
        await until(lambda: heard)
        await subscription.cancel()
        gate.set()
        for _ in range(5):
            await asyncio.sleep(0)
    assert heard == ["a:1"]


async def test_a_notification_without_a_uri_is_nobodys() -> None:
    pipe = modern()
    async with connect(pipe) as client:
        hearing = Hearing(client, resources=["a:1"])
        await until(lambda: wishes(pipe))
        for params in ({}, {"uri": 5}, {"uri": None}, {"uri": "other:1"}):
            changed(pipe, "resources/updated", **params)
        changed(pipe, "resources/updated", uri="a:1")
        await until(lambda: hearing.heard)
        assert hearing.heard == ["a:1"]
        await hearing.stop()
