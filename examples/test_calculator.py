"""Tests of a server with pytest: the calculator of this folder in memory, as a child process, over HTTP, and from a file.

    pip install pytest pytest-asyncio
    pytest examples/test_calculator.py

The fixtures that begin with `mcp_` come with Trimaran. The server itself is added to Claude Code as ever:

    claude mcp add calculator -- python /path/to/examples/calculator.py
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, Literal

import pytest

from trimaran import Client, connect
from trimaran.errors import ConnectionLost
from trimaran.testing import Cut, FaultChannel, ScriptedPeer, connected

pytestmark = pytest.mark.asyncio

CALCULATOR = Path(__file__).with_name("calculator.py")


@pytest.fixture
def server() -> Any:
    """A server of its own for each test, so that histories do not mix."""
    return runpy.run_path(str(CALCULATOR))["server"]


# The server


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_numbers_are_added_for_old_clients_and_new(server: Any, era: Literal["modern", "legacy"]) -> None:
    async with connected(server, era=era) as client:
        result = await client.call_tool("add", {"a": 2, "b": 0.5})
        assert result.data == 2.5


async def test_division_by_zero_is_told_to_the_model(server: Any) -> None:
    async with connected(server) as client:
        result = await client.call_tool("divide", {"a": 1, "b": 0})
        assert result.is_error
        assert "not 0" in result.text


async def test_the_history_has_every_calculation(server: Any) -> None:
    async with connected(server) as client:
        await client.call_tool("multiply", {"a": 6, "b": 7})
        assert (await client.read_resource("calculator://history")).text == "6 * 7 = 42"


async def test_as_a_child_process(mcp_client: Any) -> None:
    client = await mcp_client(str(CALCULATOR))
    assert (await client.call_tool("subtract", {"a": 5, "b": 3})).data == 2


async def test_over_http(server: Any, mcp_server_url: Any, mcp_client: Any) -> None:
    client = await mcp_client(await mcp_server_url(server))
    assert (await client.call_tool("add", {"a": 1, "b": 1})).data == 2


# A program that uses servers


async def average(client: Client, numbers: list[float]) -> float | None:
    """What is tested below: it works with any server that can add and divide."""
    total = 0.0
    for number in numbers:
        total = (await client.call_tool("add", {"a": total, "b": number})).data
    result = await client.call_tool("divide", {"a": total, "b": len(numbers)})
    return None if result.is_error else result.data


async def test_the_average_of_nothing_is_none(server: Any) -> None:
    async with connected(server) as client:
        assert await average(client, [1, 2, 6]) == 3
        assert await average(client, []) is None


async def test_the_average_asks_one_thing_at_a_time() -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("add", "divide")]
    peer = (
        ScriptedPeer()
        .modern(capabilities={"tools": {}})
        .allow("tools/list", {"resultType": "complete", "tools": tools})
        .expect("tools/call", {"name": "add", "arguments": {"a": 0, "b": 4}}, result=answer(4))
        .expect("tools/call", {"name": "divide", "arguments": {"a": 4, "b": 1}}, result=answer(4))
    )
    async with connect(peer) as client:
        assert await average(client, [4]) == 4
    peer.verify()


def answer(value: float) -> dict[str, Any]:
    text = {"type": "text", "text": str(value)}
    return {"resultType": "complete", "content": [text], "structuredContent": value}


async def test_a_server_that_vanishes_is_an_error_not_a_hang(server: Any) -> None:
    channel = FaultChannel(server, [Cut("in", at=3)])
    async with connect(channel, era="modern", retries=0) as client:
        with pytest.raises(ConnectionLost):
            await average(client, [1, 2, 6])


# The first run writes `cassettes/test_calculator/test_from_a_file.jsonl`; later ones need no server.


async def test_from_a_file(mcp_cassette: Any, server: Any) -> None:
    client = await mcp_cassette(server)
    assert await average(client, [1, 2, 6]) == 3
