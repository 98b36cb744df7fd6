"""Long-running tools that are called plainly: the client knows nothing of tasks, and waits for the result (C22).

An ordinary tool under the same limit is the clock: when it has been stopped, the limit is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.harness import Reply, serve
from tests.support.memory_peer import Peer
from tests.support.until import soon, until

from trimaran import Context, Limits, Server
from trimaran.ext.tasks import EXTENSION

LIMIT = Limits(request_timeout=0.05, keep_alive=0.02)
TASKS = {"extensions": {EXTENSION: {}}}


class Gate(asyncio.Event):
    """Holds a body back, and knows whether one has begun."""

    has_begun = False


def demo(go: Gate) -> Server:
    server = Server("long", version="1", limits=LIMIT)

    async def work(ctx: Context) -> str:
        go.has_begun = True
        await go.wait()
        return "done"

    server.add_tool(work, name="long", long_running=True)
    server.add_tool(work, name="detachable", long_running="on_detach")
    server.add_tool(work, name="limited", long_running=True, timeout=0.05)
    server.add_tool(work, name="limited_detachable", long_running="on_detach", timeout=0.05)
    server.add_tool(work, name="ordinary")
    return server


async def outlast(call: Callable[[str], Awaitable[Reply]], tool: str, go: Gate) -> Reply:
    """Call a tool, and let it finish only after an ordinary one has been stopped by the limit."""
    waiting = asyncio.ensure_future(call(tool))
    await until(lambda: go.has_begun, "the tool is at work")
    # In each of these at least one look at the open streams is due before the limit is; the second look begins the stream.
    for _ in range(3):
        stopped = await soon(call("ordinary"))
        assert "took longer than 0.05 s" in stopped.error["message"]
    assert not waiting.done()
    go.set()
    return await soon(waiting)


@pytest.mark.parametrize("tool", ["long", "detachable"])
@pytest.mark.parametrize("era", ["modern", "legacy", "without sessions", "plain"])
async def test_a_long_running_tool_called_plainly_is_not_stopped(binding: str, era: str, tool: str) -> None:
    """R69, C22: `request_timeout` is for ordinary calls."""
    go = Gate()
    options: dict[str, Any] = {"without sessions": {"require_session": False}, "plain": {"plain": True}}.get(era, {})
    async with serve(binding, demo(go), **options) as wire:
        session = await wire.initialize() if era == "legacy" else None
        numbers = iter(range(1, 9))

        async def call(name: str) -> Reply:
            if era == "modern":
                return await wire.call(name)
            if session is not None:
                return await session.call(name)
            message = {"jsonrpc": "2.0", "id": next(numbers), "method": "tools/call", "params": {"name": name}}
            return await wire.post(message)

        reply = await outlast(call, tool, go)
        assert reply.result["content"][0]["text"] == "done"
        assert reply.is_stream == (era != "plain"), "a silent call that takes long is kept alive by a stream"


async def test_a_tool_that_may_detach_is_waited_for_by_a_client_that_takes_tasks(binding: str) -> None:
    """C22: it returns before it detaches, so its result is the answer, however long it took."""
    go = Gate()
    async with serve(binding, demo(go)) as wire:
        reply = await outlast(lambda name: wire.call(name, caps=TASKS), "detachable", go)
        assert reply.result["content"][0]["text"] == "done"


@pytest.mark.parametrize(("tool", "caps"), [("limited", {}), ("limited_detachable", {}), ("limited_detachable", TASKS)])
async def test_the_timeout_of_the_tool_itself_holds(binding: str, tool: str, caps: Any) -> None:
    """R69."""
    async with serve(binding, demo(Gate())) as wire:
        reply = await soon(wire.call(tool, caps=caps))
        assert "took longer than 0.05 s" in reply.error["message"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_on_a_pipe_it_is_waited_for_as_well(era: str) -> None:
    """C22: stdio and memory have no streams to keep alive, and no limit either."""
    go = Gate()
    async with Peer(demo(go)) as peer:
        if era == "legacy":
            await peer.initialize()
        ask: Any = peer.modern if era == "modern" else peer.legacy
        waiting = asyncio.ensure_future(ask("tools/call", {"name": "long"}))
        stopped = await soon(ask("tools/call", {"name": "ordinary"}))
        assert "took longer" in stopped["error"]["message"]
        go.set()
        assert (await soon(waiting))["result"]["content"][0]["text"] == "done"
