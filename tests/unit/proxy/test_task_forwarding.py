"""Tasks of the target, seen through a proxy: both protocols on either side."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import Client, Context, Server, connect
from trimaran.auth import ApiKey
from trimaran.errors import CallError, ProtocolError
from trimaran.ext.tasks import Tasks
from trimaran.serve import HttpServer

from .harbour import PAIRS, Era


class Yard:
    """A target whose tools are long, and what happened in it."""

    def __init__(self) -> None:
        self.begun = 0
        self.outcome = ""
        self.may_end = asyncio.Event()
        self.started = asyncio.Event()
        self.server = server = Server("yard", version="1")
        self.tasks = Tasks(poll=0.02)
        server.enable_extension(self.tasks)

        @server.tool(long_running=True)
        async def build(ctx: Context) -> dict[str, int]:
            self.begun += 1
            await ctx.progress(1, message="the keel is laid")
            self.started.set()
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.outcome = "cancelled"
                raise
            return {"masts": 3}

        @server.tool(long_running=True)
        async def name_ship(ctx: Context) -> str:
            self.begun += 1
            first = await ctx.elicit("First name?", str)
            second = await ctx.elicit("Second name?", str)
            return f"{first.content} {second.content}"

        @server.tool(long_running="required")
        async def paint(ctx: Context) -> str:
            self.begun += 1
            colour = await ctx.elicit("Which colour?", str)
            return f"painted {colour.content}"

        @server.tool(long_running="on_detach")
        async def launch(ctx: Context) -> str:
            answer = await ctx.elicit("Launch now?", bool)
            self.begun += 1
            if not answer.content:
                return "not launched"
            await ctx.detach()
            return "launched"

        @server.tool(long_running=True)
        async def sink() -> str:
            raise ProtocolError(-32050, "it sank", {"depth": 9})

        @server.tool
        async def add(a: int, b: int) -> int:
            return a + b

    @property
    def task_id(self) -> str:
        """The id of the only task that is at work."""
        (id,) = self.tasks._scheduler.running  # pyright: ignore[reportPrivateUsage]
        return id


NAMES = {"First name?": "Mary", "Second name?": "Rose", "Which colour?": "red", "Launch now?": True}


def answer(question: Any) -> Any:
    return question.accept({"value": NAMES[question.message]})


@contextlib.asynccontextmanager
async def through(yard: Yard, near: Era, far: Era, **options: Any) -> AsyncIterator[Client]:
    async with (
        HttpServer(yard.server, port=0) as target,
        HttpServer(proxy_of(target.url, era=far), port=0) as front,
        connect(front.url, era=near, on_elicit=answer, **options) as client,
    ):
        yield client


def proxy_of(target: Any, **options: Any) -> Server:
    proxy = Server.proxy(target, **options)
    proxy.enable_extension(Tasks(poll=0.02))
    return proxy


@pytest.mark.slow
@pytest.mark.parametrize(("near", "far"), PAIRS)
async def test_a_task_of_the_target_is_a_task_for_the_caller(near: Era, far: Era) -> None:
    yard = Yard()
    async with through(yard, near, far) as client:
        task = await soon(client.start_task("build"))
        await soon(yard.started.wait())
        assert await yard.tasks.count() == 1, "the target has a task of its own"
        assert (await task.refresh()).status == "working"

        async def message() -> str | None:
            return (await task.refresh()).message

        async with asyncio.timeout(10):
            while await message() != "the keel is laid":
                await asyncio.sleep(0.02)
        yard.may_end.set()
        assert (await soon(task)).data == {"masts": 3}
        assert yard.begun == 1


@pytest.mark.parametrize(("near", "far"), PAIRS)
async def test_questions_of_a_task_reach_its_caller(near: Era, far: Era) -> None:
    yard = Yard()
    async with through(yard, near, far) as client:
        task = await soon(client.start_task("name_ship"))
        assert (await soon(task)).data == "Mary Rose"
        assert yard.begun == 1


@pytest.mark.slow
@pytest.mark.parametrize("near", ["modern", "legacy"])
async def test_on_a_shared_pipe_each_caller_is_asked_for_its_own_task_and_once(near: Era) -> None:
    """A question of a task of 2025-11-25 names the task. It used to be put to a look at the task's status, and then again."""
    asked: list[str] = []

    async def call(url: str, name: str) -> str:
        def answer(question: Any) -> Any:
            asked.append(f"{name}: {question.message}")
            return question.accept({"value": name})

        async with connect(url, era=near, on_elicit=answer) as client:
            return (await client.call_tool("paint")).text

    async with HttpServer(proxy_of(Yard().server, era="legacy"), port=0) as front:
        names = [f"n{number}" for number in range(4)]
        texts = await soon(asyncio.gather(*(call(front.url, name) for name in names)))
    assert texts == [f"painted {name}" for name in names]
    assert sorted(asked) == [f"{name}: Which colour?" for name in names]


@pytest.mark.parametrize(("near", "far"), PAIRS)
async def test_a_caller_without_tasks_waits_for_the_result(near: Era, far: Era) -> None:
    yard = Yard()
    yard.may_end.set()
    async with through(yard, near, far) as client:
        assert (await soon(client.call_tool("build"))).data == {"masts": 3}
        assert (await soon(client.call_tool("name_ship"))).data == "Mary Rose"
        assert (await soon(client.call_tool("add", {"a": 1, "b": 2}))).data == 3
        if (near, far) == ("modern", "modern"):  # the caller hears what it hears from the target itself
            with pytest.raises(CallError, match="tasks"):
                await client.call_tool("paint")
        else:
            assert (await soon(client.call_tool("paint"))).data == "painted red"


@pytest.mark.parametrize(("near", "far"), PAIRS)
async def test_what_runs_only_as_a_task_and_what_becomes_one_late(near: Era, far: Era) -> None:
    yard = Yard()
    async with through(yard, near, far) as client:
        assert (await soon(await client.start_task("paint"))).data == "painted red"
        assert (await soon(await client.start_task("launch"))).data == "launched"
        assert (await soon(await client.start_task("add", {"a": 1, "b": 2}))).data == 3
        assert yard.begun == 2


@pytest.mark.parametrize(("near", "far"), PAIRS)
async def test_a_cancelled_task_is_cancelled_at_the_target(near: Era, far: Era) -> None:
    yard = Yard()
    async with through(yard, near, far) as client:
        task = await soon(client.start_task("build"))
        await soon(yard.started.wait())
        await soon(task.cancel())
        await until(lambda: yard.outcome == "cancelled", "the target's body is cancelled")
        assert (await task.refresh()).status == "cancelled"


@pytest.mark.parametrize(("near", "far"), PAIRS)
async def test_a_failed_task_has_the_error_of_the_target(near: Era, far: Era) -> None:
    async with through(Yard(), near, far) as client:
        task = await soon(client.start_task("sink"))
        with pytest.raises(CallError) as raised:
            await soon(task)
        assert (raised.value.code, raised.value.data) == (-32050, {"depth": 9})


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_nobody_else_reads_a_task(era: Era) -> None:
    yard = Yard()
    keys = ApiKey({"ann-key-123": {"subject": "ann"}, "bob-key-123": {"subject": "bob"}})
    async with (
        HttpServer(yard.server, port=0) as target,
        HttpServer(proxy_of(target.url), port=0, auth=keys) as front,
        connect(front.url, era=era, headers={"X-API-Key": "ann-key-123"}) as ann,
        connect(front.url, era=era, headers={"X-API-Key": "bob-key-123"}) as bob,
    ):
        task = await soon(ann.start_task("build"))
        with pytest.raises(CallError, match="no task"):
            await bob.task(task.id).refresh()
        with pytest.raises(CallError, match="no task"):
            await bob.task(task.id).cancel()
        assert yard.outcome == ""
        # Nor by the id that the target gave it.
        with pytest.raises(CallError, match="no task"):
            await ann.task(yard.task_id).refresh()
        yard.may_end.set()
        assert (await soon(task)).data == {"masts": 3}


async def test_a_task_that_the_target_has_forgotten_is_an_error() -> None:
    yard = Yard()
    async with through(yard, "modern", "modern") as client:
        task = await soon(client.start_task("build"))
        await soon(yard.started.wait())
        await yard.tasks.records.tasks.delete(yard.task_id)
        with pytest.raises(CallError) as raised:
            await soon(task)
        assert raised.value.data == {"upstream": "yard", "kind": "task_lost"}


@pytest.mark.slow
@pytest.mark.parametrize("far", ["modern", "legacy"])
async def test_another_process_goes_on_with_the_same_task(far: Era, tmp_path: Path) -> None:
    """The first one stops while the target works; the tool is not called again."""
    yard = Yard()
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    async with HttpServer(yard.server, port=0) as target:

        def front() -> HttpServer:
            return HttpServer(proxy_of(target.url, era=far, name="yard"), port=0, store=store)

        first, second = front(), front()
        await first.start()
        async with second, connect(second.url, era="modern") as client:
            async with connect(first.url, era="modern") as early:
                id = (await soon(early.start_task("build"))).id
                await soon(yard.started.wait())
            await first.stop()
            assert yard.outcome == ""
            yard.may_end.set()
            if far == "legacy":
                # The target's task belongs to the session of the process that is gone.
                with pytest.raises(CallError) as raised:
                    await soon(client.task(id))
                assert raised.value.data == {"upstream": "yard", "kind": "task_lost"}
            else:
                assert (await soon(client.task(id))).data == {"masts": 3}
        assert yard.begun == 1


@pytest.mark.slow
@pytest.mark.parametrize(("near", "far"), PAIRS)
async def test_a_mounted_target_has_tasks(near: Era, far: Era) -> None:
    yard, outer = Yard(), Server("outer", version="1")
    outer.enable_extension(Tasks(poll=0.02))
    async with HttpServer(yard.server, port=0) as target:
        outer.mount(target.url, prefix="dock", era=far)
        async with HttpServer(outer, port=0) as front, connect(front.url, era=near, on_elicit=answer) as client:
            assert (await soon(await client.start_task("dock_name_ship"))).data == "Mary Rose"
            assert (await soon(await client.start_task("dock_paint"))).data == "painted red"
        assert yard.begun == 2
