"""Pairs in memory, and channels to what has no wire."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from tests.support.until import PATIENCE

from trimaran import Server
from trimaran.errors import ConfigError, ConnectFailed, ConnectionLost, LocalProtocolError, NotReady
from trimaran.testing import channel_pair, channel_to

from .ears import Ears, notice, numbered, request


async def open_pair(**options: Any) -> tuple[Any, Ears, Any, Ears]:
    left, right = channel_pair(**options)
    mine, yours = Ears(), Ears()
    await left.open(mine)
    await right.open(yours)
    return left, mine, right, yours


async def test_each_end_hears_what_the_other_sends() -> None:
    left, mine, right, yours = await open_pair()
    for n in range(3):
        await left.send(numbered(n))
        await right.send(numbered(n + 10))
    await yours.until(3)
    await mine.until(3)
    assert (mine.numbers, yours.numbers) == ([10, 11, 12], [0, 1, 2])


async def test_nothing_is_delivered_inside_send() -> None:
    """Who answers from `receive` would otherwise be inside the send of the other end."""
    left, _, _, yours = await open_pair()
    await left.send(numbered(1))
    assert yours.raw == []
    await yours.until(1)


async def test_closing_one_end_is_the_loss_of_the_other_after_what_was_sent() -> None:
    left, mine, _, yours = await open_pair()
    await left.send(numbered(1))
    await left.close()
    assert await yours.until_lost() is None
    assert yours.numbers == [1]
    assert mine.losses == []


async def test_messages_wait_for_an_end_that_is_opened_late() -> None:
    left, right = channel_pair()
    await left.open(Ears())
    await left.send(numbered(1))
    await left.close()
    late = Ears()
    await right.open(late)
    await late.until_lost()
    assert late.numbers == [1]


async def test_a_full_end_holds_up_the_sender() -> None:
    left, right = channel_pair(capacity=2)
    await left.open(Ears())
    await left.send(numbered(0))
    await left.send(numbered(1))
    third = asyncio.ensure_future(left.send(numbered(2)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not third.done()
    yours = Ears()
    await right.open(yours)
    await yours.until(3)
    await third


async def test_an_end_is_opened_once() -> None:
    left, right = channel_pair()
    await left.open(Ears())
    with pytest.raises(ConnectFailed, match="opened already"):
        await left.open(Ears())
    await right.close()
    with pytest.raises(ConnectFailed, match="closed already"):
        await right.open(Ears())


async def test_sending_needs_an_open_end() -> None:
    left, right = channel_pair()
    with pytest.raises(NotReady):
        await left.send(b"{}")
    await left.open(Ears())
    await right.close()
    with pytest.raises(ConnectionLost, match="the other end was closed"):
        await left.send(b"{}")


async def test_a_message_with_a_newline_is_refused() -> None:
    """A child process would read two."""
    left, *_ = await open_pair()
    with pytest.raises(LocalProtocolError):
        await left.send(b'{"a":\n1}')


# channel_to


@pytest.fixture
def server() -> Server:
    server = Server("adder", version="1.0.0")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    return server


async def test_a_server_in_memory_is_behind_its_channel(server: Server) -> None:
    channel, ears = channel_to(server), Ears()
    await channel.open(ears)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    await channel.send(request(1, "initialize", hello))
    await ears.until(1)
    await channel.send(notice("notifications/initialized"))
    await channel.send(request(2, "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}}))
    await ears.until(2)
    assert ears.messages[1]["result"]["content"][0]["text"] == "5"
    await channel.close()
    await channel.close()
    with pytest.raises(ConnectionLost):
        await channel.send(request(3, "ping"))
    assert "adder" in channel.describe()


async def test_closing_the_channel_ends_the_calls(server: Server) -> None:
    started = asyncio.Event()

    @server.tool
    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    channel, ears = channel_to(server), Ears()
    await channel.open(ears)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    await channel.send(request(1, "tools/call", {"name": "wait", "arguments": {}, "_meta": meta}))
    async with asyncio.timeout(PATIENCE):
        await started.wait()
        await asyncio.gather(channel.close(), channel.close())


async def test_a_command_becomes_a_child_and_a_channel_stays_itself() -> None:
    left, _ = channel_pair()
    assert channel_to(left) is left
    child = channel_to([sys.executable, "-m", "trimaran.testing.echo"])
    ears = Ears()
    await child.open(ears)
    try:
        await child.send(numbered(7))
        await ears.until(1)
    finally:
        await child.close()
    assert ears.numbers == [7]


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/mcp", [], 5], ids=["url", "empty", "number"])
def test_what_has_no_channel_is_refused(target: Any) -> None:
    with pytest.raises(ConfigError, match="there is no channel to"):
        channel_to(target)
