"""How a task begins, how long it lives, and when it cannot begin."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.harness import serve
from tests.support.until import soon

from trimaran import Context, Server, connect

from .rough_tasks import TASKS, a_harbour, fleet, gated, in_memory, reach, reason


async def test_a_life_beyond_all_measure_is_cut_to_what_a_store_can_hold() -> None:
    server, tasks = in_memory(ttl=None)

    @server.tool(long_running=True)
    async def quick() -> str:
        return "done"

    async with serve("asgi", server) as wire:
        session = await wire.initialize()
        task = {"ttl": 2**63 - 1}
        made = (await session.ask("tools/call", {"name": "quick", "arguments": {}, "task": task})).result["task"]
        record = await reach(tasks, made["taskId"], "completed")
        assert record.expires_ms < 2**53
        assert made["ttl"] == record.ttl_ms


async def test_a_long_tool_that_a_mounted_server_gets_later_runs_as_a_task_too() -> None:
    outer, inner = Server("outer", version="1"), Server("inner", version="1")
    outer.mount(inner, "in")

    @inner.tool(long_running="required")
    async def work() -> str:
        return "done"

    async with connect(outer) as client:
        task = await client.start_task("in_work", {})
        assert (await soon(task.result())).data == "done"
        assert task.id.startswith("task_")


async def test_while_a_server_stops_no_task_begins() -> None:
    server, tasks = in_memory()
    go = asyncio.Event()

    @server.tool(long_running=True)
    async def stubborn() -> str:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "done"

    async with serve("asgi", server) as wire:
        id = (await wire.call("stubborn", caps=TASKS)).result["taskId"]
        stopping = asyncio.ensure_future(server.stop())
        await reach(tasks, id, "failed")
        reply = await wire.call("stubborn", caps=TASKS)
        assert (reply.status, "stopping" in reply.error["message"]) == (503, True)
        go.set()
        await soon(stopping)
    assert tasks.running == 0


class Stranger:
    """What an authenticator of one's own may give: somebody, and no more is known."""

    scopes = frozenset({"any"})


class Doorman:
    async def authenticate(self, request: Any) -> Stranger:
        return Stranger()


async def test_a_caller_that_cannot_be_known_again_gets_its_answer_and_no_task() -> None:
    """The task would be nobody's: not even its caller could look at it."""
    server, tasks = in_memory()

    @server.tool(long_running=True)
    async def work() -> str:
        return "done"

    @server.tool(long_running="required")
    async def only() -> str:
        return "done"

    async with serve("asgi", server, auth=Doorman()) as wire:
        assert (await wire.call("work", caps=TASKS)).result["content"][0]["text"] == "done"
        assert "no subject" in (await wire.call("only", caps=TASKS)).error["message"]
        assert await tasks.count() == 0


async def test_from_the_moment_it_is_a_task_a_body_does_not_speak_on_the_request() -> None:
    """Its client may have gone in that very moment, and nobody would ever read what is said there."""
    server, _ = in_memory()
    sinks: list[str] = []

    @server.tool(long_running="on_detach")
    async def work(ctx: Context) -> str:
        for _ in range(2):
            sinks.append(type(ctx._call.exchange.sink).__name__)  # pyright: ignore[reportPrivateUsage]
            await ctx.detach()
        return "done"

    async with connect(server) as client:
        await soon((await client.start_task("work", {})).result())
    assert sinks[0] != "TaskSink"
    assert sinks[1] == "TaskSink"


async def test_a_session_that_cannot_be_told_does_not_fail_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    server, tasks = in_memory()
    go = asyncio.Event()

    @server.tool(long_running=True)
    async def work(ctx: Context) -> str:
        await go.wait()
        return str((await ctx.elicit("?", str)).content)

    async def fail(id: str) -> Any:
        raise RuntimeError("a surprise")

    async with connect(server, version="2025-11-25", on_elicit=lambda q: q.accept({"value": "done"})) as client:
        task = await client.start_task("work", {})
        monkeypatch.setattr(server.sessions, "reach", fail)
        result = asyncio.ensure_future(task.result())
        go.set()
        assert (await soon(result)).data == "done"
        assert tasks.running == 0


async def test_tasks_that_nobody_here_knows_do_not_hide_those_behind_them() -> None:
    """In the middle of a release, a hundred and more may wait for a process that has their tool."""
    harbour = a_harbour()
    async with fleet("one", "two", declare=gated(harbour), lease=0.5) as (one, two), connect(one.server) as client:
        for _ in range(150):
            unknown = await one.store.create(one.tasks.records.draft("gone"))
            await one.store.claim(unknown.id, "x", seconds=0)
        id = (await client.start_task("fragile", {})).id
        await soon(harbour["began"].wait())
        await one.die()
        assert "not declared resumable" in reason(await reach(two.tasks, id, "failed"))
        left = await two.store.due(limit=1000)
        assert len(left) == 150
