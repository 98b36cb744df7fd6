"""Tasks whose bodies run in threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.support.harness import serve
from tests.support.until import PATIENCE, soon, until

from trimaran import Context, connect

from .rough_tasks import TASKS, in_memory, reach


@pytest.mark.parametrize("end", ["cancel", "stop", "timeout"])
async def test_a_thread_that_waits_for_an_answer_is_let_go_when_its_task_is_over(end: str) -> None:
    """It cannot be cancelled, so somebody has to tell it: otherwise it is kept, and its place in the pool, for ever."""
    server, tasks = in_memory()
    let_go = threading.Event()

    @server.tool(long_running=True, timeout=0.2 if end == "timeout" else None)
    def ask(ctx: Context) -> str:
        try:
            return str(ctx.wait(ctx.elicit("?", str)).content)
        finally:
            let_go.set()

    async with connect(server, on_elicit=lambda q: q.accept({"value": "x"})) as client:
        id = (await client.start_task("ask", {})).id
        if end != "timeout":
            await reach(tasks, id, "input_required")
        if end == "cancel":
            await tasks.cancel(id)
        elif end == "stop":
            await server.stop()
        await until(let_go.is_set, "the thread's end")


async def test_a_thread_that_detaches_after_its_call_was_given_up_makes_no_task() -> None:
    """Nobody would run it, and nobody end it."""
    server, tasks = in_memory()
    began, go, over = threading.Event(), threading.Event(), threading.Event()

    @server.tool(long_running="on_detach", timeout=0.05)
    def late(ctx: Context) -> str:
        began.set()
        go.wait(PATIENCE)
        try:
            ctx.wait(ctx.detach())
        finally:
            over.set()
        return "done"

    async with serve("asgi", server) as wire:
        reply = await wire.call("late", caps=TASKS)
        assert "took longer" in str(reply.error or reply.result)
        go.set()
        await until(over.is_set, "the thread's end")
        assert tasks.running == 0
        assert await tasks.count() == 0


async def test_what_a_thread_says_fast_does_not_pile_up_in_the_loop() -> None:
    server, tasks = in_memory()
    scheduled = 0

    @server.tool(long_running=True)
    def talk(ctx: Context) -> str:
        nonlocal scheduled
        loop: Any = ctx._call.exchange.loop  # pyright: ignore[reportPrivateUsage]
        inner = loop.call_soon_threadsafe

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal scheduled
            scheduled += 1
            return inner(*args, **kwargs)

        blocked = threading.Event()
        inner(lambda: blocked.wait(PATIENCE))
        loop.call_soon_threadsafe = counted
        try:
            for number in range(1000):
                ctx.progress(number, message=f"word {number}")
        finally:
            del loop.call_soon_threadsafe
            blocked.set()
        return "said"

    async with connect(server) as client:
        task = await client.start_task("talk", {})
        assert (await soon(task.result())).data == "said"
    assert scheduled < 10
