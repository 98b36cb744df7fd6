"""Clients that wait for the result of a task, or answer its questions."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support.harness import serve
from tests.support.inside import inside
from tests.support.until import soon, until

from trimaran import Context, connect
from trimaran.errors import CallError
from trimaran.state import StoreFull, StoreUnavailable

from .rough_tasks import Process, RoughTasks, fleet, in_memory, reach


async def test_a_result_is_waited_for_beyond_the_time_of_requests_also_in_a_store() -> None:
    """R81: `tasks/result` blocks until the task has ended."""

    def declare(one: Process) -> None:
        @one.server.tool(long_running=True)
        async def nap() -> str:
            await asyncio.sleep(0.5)
            return "rested"

    async with fleet("one", declare=declare, request_timeout=0.1) as one, serve("asgi", one.server) as wire:
        one.store.lost["get"] = StoreUnavailable("hiccup", retry_after=0.0)  # so that it has to wait in its first step
        session = await wire.initialize()
        made = await session.ask("tools/call", {"name": "nap", "arguments": {}, "task": {}})
        one.store.back()
        slow(one.store, "get", 0.01)
        reply = await session.ask("tasks/result", {"taskId": made.result["task"]["taskId"]})
        assert reply.result["content"][0]["text"] == "rested"


def slow(store: RoughTasks, method: str, seconds: float) -> None:
    """As a store on a network is: an answer takes a moment."""
    inner = getattr(store._tasks, method)  # pyright: ignore[reportPrivateUsage]

    async def work(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(seconds)
        return await inner(*args, **kwargs)

    setattr(store, method, work)


async def test_one_who_waits_for_the_hosts_task_hears_that_the_server_stops() -> None:
    """Nothing runs here that would have to be stopped first, so stopping takes no time at all."""
    server, tasks = in_memory()
    async with connect(server, version="2025-11-25") as client:
        id = await tasks.begin("refit")
        session = next(iter(inside(server).sessions))
        made = await tasks.records.tasks.get(id)
        assert made is not None
        await tasks.records.tasks.delete(id)
        await tasks.records.tasks.create(msgspec.structs.replace(made, owner=f"session:{session.id}"))
        waiting = asyncio.ensure_future(client.request("tasks/result", {"taskId": id}))
        await until(lambda: len(tasks.records._bells), "the wait for the result")  # pyright: ignore[reportPrivateUsage]
        await server.stop()
        with pytest.raises(CallError, match="stop"):
            await soon(waiting)


@pytest.mark.parametrize("trouble", ["away", "full"])
async def test_an_answer_that_comes_while_the_store_is_away_is_written_when_it_is_back(trouble: str) -> None:
    """The client has given it, and is not asked again."""
    answered = asyncio.Event()

    def declare(one: Process) -> None:
        @one.server.tool(long_running=True)
        async def ask(ctx: Context) -> str:
            return str((await ctx.elicit("?", str)).content)

    async with fleet("one", declare=declare, lease=30.0) as one:

        def answer(question: Any) -> Any:
            if trouble == "away":
                one.store.away("update")
            else:
                one.store.trouble["update"] = StoreFull("no room")
            answered.set()
            return question.accept({"value": "fine"})

        async with connect(one.server, version="2025-11-25", on_elicit=answer) as client:
            result = asyncio.ensure_future((await client.start_task("ask", {})).result())
            await soon(answered.wait())
            tried = one.store.calls.count("update")
            await until(lambda: one.store.calls.count("update") > tried + 1, "some tries")
            one.store.back()
            assert (await soon(result)).data == "fine"


async def test_an_answer_that_cannot_be_taken_ends_the_request_so_that_the_client_asks_again() -> None:
    """In memory nobody looks again by himself: it would be waited for in vain."""
    server, tasks = in_memory()

    @server.tool(long_running=True)
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("?", str)).content)

    inner, failed = tasks.records.change, asyncio.Event()

    async def change(id: str, make: Any) -> Any:
        if failed.is_set():
            return await inner(id, make)
        failed.set()
        raise RuntimeError("a surprise")

    async with connect(server, version="2025-11-25", on_elicit=lambda q: q.accept({"value": "fine"})) as client:
        task = await client.start_task("ask", {})
        await reach(tasks, task.id, "input_required")
        tasks.records.change = change
        assert (await soon(task.result())).data == "fine"
        assert failed.is_set()
