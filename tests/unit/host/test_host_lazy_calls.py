"""Calls for servers that wait to be needed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import Host
from trimaran.errors import Error
from trimaran.host import (
    connect_plan,
)

from .projects import read, states

pytestmark = pytest.mark.usefixtures("started")


LAZY = '[server.late]\ncommand = "{}"\nlazy = true\n'


async def test_what_a_model_calls_starts_a_server_that_waits(started: list[str]) -> None:
    block = {"type": "tool_use", "id": "c1", "name": "mcp__late__look", "input": {}}
    async with Host(read(LAZY.format("late")), allow=["*"], environ={}) as host:
        call = host.from_call(block, "anthropic")
        assert started == []
        result = host.to_result(await soon(host.call(*call)), call, "anthropic")
        assert (result["tool_use_id"], started) == ("c1", ["late"])


async def test_a_model_is_told_that_a_server_that_waited_could_not_be_started() -> None:
    async with Host(read(LAZY.format("missing")), allow=["*"], environ={}) as host:
        call = host.from_call({"name": "mcp__late__look", "args": {}}, "gemini")
        with pytest.raises(Error, match="no such program") as caught:
            await soon(host.call(*call))
        told = host.to_result(caught.value, call, "gemini")
        assert "no such program" in str(told) and "mcp__late__look" in str(told)


class Mute:
    """A client of a server that never answers."""

    state = "connecting"

    async def open(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None: ...


async def test_a_call_that_waits_for_a_start_waits_for_the_one_that_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = [Mute()]
    dial = connect_plan.connect
    monkeypatch.setattr(connect_plan, "connect", lambda target, **more: found.pop() if found else dial(target, **more))
    async with Host(read(LAZY.format("late")), allow=["*"], environ={}) as host:
        call = asyncio.create_task(host.call("mcp__late__look"))
        await until(lambda: states(host)["late"] == "starting" and not found)
        await soon(host.reload("late"))
        assert (await soon(call)).data == "ok"


@pytest.mark.parametrize("way", ["close", "stop_server", "disable"])
async def test_whoever_waits_for_a_start_is_told_when_it_is_given_up(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(connect_plan, "connect", lambda target, **more: Mute())
    async with Host(read(LAZY.format("late")), allow=["*"], environ={}) as host:
        call = asyncio.create_task(host.call("mcp__late__look"))
        await until(lambda: states(host)["late"] == "starting")
        reloading = asyncio.create_task(host.reload("late"))
        await asyncio.sleep(0)
        await soon(host.close() if way == "close" else getattr(host, way)("late"))
        with pytest.raises(Error):
            await soon(call)
        await soon(asyncio.wait((reloading,)))
