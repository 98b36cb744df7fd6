"""Tasks that are resumed from their journal, or must not be."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.support.until import soon

from trimaran import Context, ToolError, connect
from trimaran.errors import CallError
from trimaran.ext.tasks.journal import MAX_JOURNAL_BYTES
from trimaran.ext.tasks.saved_call import RunnerNotes, SavedCall, write_extra
from trimaran.state import TaskRecord

from .rough_tasks import Process, fleet, reach, reason


def text(record: TaskRecord) -> str:
    assert record.status == "completed", record
    return msgspec.json.decode(record.result or b"{}")["content"][0]["text"]


async def test_a_task_that_was_once_run_without_a_journal_is_not_resumed() -> None:
    """A release took `resumable` back, ran it, and died; a process of the release before finds it."""
    ledger: list[str] = []
    began = asyncio.Event()

    def declare(one: Process) -> None:
        @one.server.tool(long_running=True, resumable=one.name != "new")
        async def pay(ctx: Context) -> str:
            await ctx.step("pay", ledger.append, f"paid by {one.name}")
            began.set()
            if one.name == "new":
                await asyncio.Event().wait()
            return "paid"

    async with fleet("new", "old", declare=declare, lease=0.3) as (new, old):
        origin = SavedCall(version="2026-07-28", capabilities={})
        extra = write_extra(RunnerNotes(starts=0, origin=origin))
        made = await old.store.create(old.tasks.records.draft("pay", is_resumable=True, extra=extra))
        running = asyncio.ensure_future(new.tasks.run_record(made.id))
        await soon(began.wait())
        await new.die()
        record = await reach(old.tasks, made.id, "completed", "failed")
        assert "not declared resumable" in reason(record)
        assert ledger == ["paid by new"]
        await soon(running)


@pytest.mark.parametrize("how", ["raises", "is under way"])
async def test_a_step_from_before_the_call_was_a_task_is_not_done_again(how: str) -> None:
    ledger: list[str] = []
    began, go = asyncio.Event(), asyncio.Event()

    def declare(one: Process) -> None:
        @one.server.tool(long_running="on_detach", resumable=True)
        async def pay(ctx: Context) -> str:
            async def fail() -> None:
                ledger.append("tried")
                raise ToolError("no cover")

            async def take_long() -> None:
                ledger.append("tried")
                await ctx.detach()

            said = "paid"
            try:
                await ctx.step("pay", fail if how == "raises" else take_long)
            except ToolError as error:
                said = str(error)
            await ctx.detach()
            if not go.is_set():
                began.set()
                await asyncio.Event().wait()
            return said

    async with fleet("one", "two", declare=declare, lease=0.3) as (one, two), connect(one.server) as client:
        id = (await client.start_task("pay", {})).id
        await soon(began.wait())
        go.set()
        await one.die()
        record = await reach(two.tasks, id, "completed", "failed")
        assert text(record) == ("no cover" if how == "raises" else "paid")
        assert ledger == ["tried"]


async def test_a_step_under_way_when_the_call_became_a_task_is_not_done_again_after_a_kill() -> None:
    ledger: list[str] = []
    began = asyncio.Event()

    def declare(one: Process) -> None:
        @one.server.tool(long_running="on_detach", resumable=True)
        async def pay(ctx: Context) -> str:
            async def take_for_ever() -> None:
                ledger.append("tried")
                await ctx.detach()
                began.set()
                await asyncio.Event().wait()

            await ctx.step("pay", take_for_ever)
            return "paid"

    async with fleet("one", "two", declare=declare, lease=0.3) as (one, two), connect(one.server) as client:
        id = (await client.start_task("pay", {})).id
        await soon(began.wait())
        await one.die()
        assert "in the middle of step 'pay'" in reason(await reach(two.tasks, id, "completed", "failed"))
        assert ledger == ["tried"]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_a_step_whose_result_is_too_large_for_a_task_is_named(when: str) -> None:
    def declare(one: Process) -> None:
        @one.server.tool(long_running="on_detach", resumable=True)
        async def pay(ctx: Context) -> str:
            async def much() -> str:
                if when == "meanwhile":
                    await ctx.detach()
                return "x" * (MAX_JOURNAL_BYTES + 1)

            await ctx.step("pay", much)
            await ctx.detach()
            return "paid"

    async with fleet("one", declare=declare) as one, connect(one.server) as client:
        with pytest.raises(CallError, match="'pay'"):
            await soon((await client.start_task("pay", {})).result())
