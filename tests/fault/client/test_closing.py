"""A client is closed while something is under way: everybody who waits hears of it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.support.peers import (
    Pipe,
    ask,
    finishing,
    input_required,
)
from tests.support.until import soon, until

from trimaran import connect, errors
from trimaran.client import Deferred

from .moments import LISTEN

ELICIT = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}


async def test_a_call_that_waits_for_a_person_ends_when_the_client_is_closed() -> None:
    """Whatever happens, a call ends. In between two rounds of a modern call there is no request in flight."""
    pipe = Pipe().modern().on("tools/call", input_required({"a": ELICIT}))
    asked = asyncio.Event()

    async def on_elicit(_: Any) -> Deferred:
        asked.set()
        return Deferred()

    client = await connect(pipe, on_elicit=on_elicit).open()
    call = asyncio.ensure_future(client.call_tool("x"))
    async with finishing(call):
        await soon(asked.wait())
        await client.close()
        with pytest.raises(errors.Closed):
            await soon(call, 1)


async def test_a_call_that_looks_for_its_tool_while_reconnecting_hears_closed_not_a_cancellation(hurried: None) -> None:
    pipe = Pipe().modern()
    client = await connect(pipe).open()
    pipe.on("server/discover", None)
    pipe.hang_up()
    call = asyncio.ensure_future(client.call_tool("x"))
    await until(lambda: len(pipe.all("server/discover")) == 2)
    await client.close()
    with pytest.raises(errors.Closed):
        await soon(call)


async def test_listening_that_is_not_acknowledged_yet_hears_closed_not_a_deadline() -> None:
    pipe = Pipe().modern().on(LISTEN, None)
    client = await connect(pipe).open()
    listening = asyncio.ensure_future(anext(client.listen(tools=True)))
    await until(lambda: pipe.all(LISTEN))
    await client.close()
    with pytest.raises((errors.Closed, StopAsyncIteration)):
        await soon(listening)


async def test_pings_end_quietly_with_the_client(complaints: list[str]) -> None:
    pipe = Pipe().modern()
    client = await connect(pipe, ping_interval=0.01).open()
    pipe.on("server/discover", None)
    await until(lambda: len(pipe.all("server/discover")) > 1)
    await client.close()
    del client


async def test_nothing_runs_after_close_not_even_who_is_told_of_it() -> None:
    """`close` ends everything: a task that outlives it is cut off by the end of asyncio.run."""
    told: list[str] = []

    async def on_state(event: Any) -> None:
        await asyncio.sleep(0.01)
        told.append(event.state)

    client = await connect(Pipe().modern(), on_state=on_state).open()
    before = asyncio.all_tasks()
    await client.close()
    assert not asyncio.all_tasks() - before
    assert told[-1:] == ["closed"]


async def test_a_server_that_asks_while_the_client_closes_starts_nothing() -> None:
    class Late(Pipe):
        async def close(self) -> None:
            self.say(ask(1, "sampling/createMessage", {"messages": [], "maxTokens": 1}))
            await asyncio.sleep(0)
            await super().close()

    begun: list[Any] = []

    async def on_sample(sampling: Any) -> str:
        begun.append(sampling)
        return "late"

    pipe = Late().legacy()
    async with connect(pipe, era="legacy", on_sample=on_sample):
        pass
    await asyncio.sleep(0.01)
    assert not begun


async def test_a_channel_that_fails_to_close_leaves_a_closed_client() -> None:
    class Broken(Pipe):
        async def close(self) -> None:
            await super().close()
            raise OSError("it was gone already")

    pipe = Broken()
    pipe.modern()
    client = await connect(pipe).open()
    with contextlib.suppress(OSError):
        await client.close()
    assert client.state == "closed"
