"""A thousand calls at once on one connection: each gets its own answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import Client, Server, connect

from .peers import ERAS, Dock, EvilHttp, assert_usable

N = 1000


async def thousand(client: Client, name: str = "echo") -> None:
    calls = [client.call_tool(name, {"text": f"t{i}"}) for i in range(N)]
    results = await soon(asyncio.gather(*calls), 25)
    assert [result.text for result in results] == [f"t{i}" for i in range(N)]
    assert client.requests == ()


@pytest.mark.slow
@ERAS
@pytest.mark.parametrize("wire", ["json", "sse", "stdio"])
async def test_a_thousand_calls_at_once(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era, timeout=25.0) as (client, peer):
        await thousand(client)
        assert len(peer.messages("tools/list")) <= 1, "they need one list, not one each"
        if isinstance(peer, EvilHttp):
            assert peer.connections <= N + 10
        await assert_usable(client)


@ERAS
async def test_a_thousand_calls_at_once_in_memory(era: Any) -> None:
    server = Server("memory", version="1", max_concurrent_calls_per_session=2 * N)

    @server.tool
    async def echo(text: str) -> str:
        await asyncio.sleep(0)
        return text

    async with connect(server, era=era) as client:
        await thousand(client)


@pytest.mark.slow
@ERAS
@pytest.mark.parametrize("wire", ["json", "stdio"])
async def test_a_thousand_calls_that_all_wait_do_not_keep_one_more_from_its_answer(
    dock: Dock, wire: str, era: str
) -> None:
    async with dock.open(wire, era, timeout=25.0) as (client, peer):
        waiting = [asyncio.create_task(client.call_tool("later")) for _ in range(N)]
        await until(lambda: peer.calls("later") >= N, seconds=20)
        await assert_usable(client)
        await soon(client.call_tool("release"))
        assert {result.text for result in await soon(asyncio.gather(*waiting), 20)} == {"late"}


@pytest.mark.slow
@ERAS
@pytest.mark.parametrize("wire", ["json", "stdio"])
async def test_a_thousand_cancelled_calls_leave_nothing(dock: Dock, wire: str, era: str) -> None:
    async with dock.open(wire, era, timeout=25.0) as (client, _):
        calls = [asyncio.create_task(client.call_tool("never")) for _ in range(N)]
        for turn in range(20):
            for call in calls[turn::20]:
                call.cancel()
            await asyncio.sleep(0)
        ended = await soon(asyncio.gather(*calls, return_exceptions=True), 20)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        assert client.requests == ()
        await assert_usable(client)
