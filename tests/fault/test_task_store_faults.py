"""Tasks whose store fails in a chosen moment."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
from tests.support.harness import serve
from tests.support.until import soon, until

from trimaran import Context, connect
from trimaran.errors import CallError, ProtocolError
from trimaran.state import StoreFull, StoreUnavailable, TaskRecord

from .rough_tasks import TASKS, Process, a_harbour, fleet, gated, reach, reason


async def test_that_tasks_cannot_be_held_is_said_once_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harbour = a_harbour()
    async with fleet("one", declare=gated(harbour), lease=0.6) as one, connect(one.server) as client:
        for _ in range(3):
            await client.start_task("fragile", {})
        with caplog.at_level(logging.WARNING):
            one.store.away("renew")
            tried = one.store.calls.count("renew")
            await until(lambda: one.store.calls.count("renew") > tried + 6, "some tries")
            one.store.back()
            await until(lambda: "are renewed again" in caplog.text, "it to be over")
        said = [record.getMessage() for record in caplog.records if "renewed" in record.getMessage()]
        assert len(said) == 2, said
        assert "tasks could not be renewed: the store is away" in said[0]
        assert one.tasks.running == 3


@pytest.mark.parametrize("error", [StoreFull("no room"), RuntimeError("a surprise")], ids=["full", "unforeseen"])
async def test_tasks_are_still_held_after_a_failure_of_any_kind(error: Exception) -> None:
    harbour = a_harbour()
    async with fleet("one", declare=gated(harbour), lease=0.6) as one, connect(one.server) as client:
        task = await client.start_task("fragile", {})
        one.store.trouble["renew"] = error
        tried = one.store.calls.count("renew")
        await until(lambda: one.store.calls.count("renew") > tried, "a try")
        one.store.back()
        await asyncio.sleep(1.0)  # longer than the lease
        harbour["go"].set()
        assert (await soon(task.result())).data == "arrived"


async def test_a_result_waits_for_room_in_a_store_that_is_full() -> None:
    harbour = a_harbour()
    async with fleet("one", declare=gated(harbour), lease=30.0) as one, connect(one.server) as client:
        task = await client.start_task("fragile", {})
        one.store.trouble["update"] = StoreFull("no room")
        harbour["go"].set()
        tried = one.store.calls.count("update")
        await until(lambda: one.store.calls.count("update") > tried, "a try")
        with pytest.raises(CallError, match="store is full"):
            await task.cancel()
        one.store.back()
        assert (await soon(task.result())).data == "arrived"


async def test_a_server_that_stops_while_the_store_is_away_does_not_say_that_the_client_cancelled() -> None:
    harbour = a_harbour()
    async with fleet("one", "two", declare=gated(harbour), lease=0.3) as (one, two), connect(one.server) as client:
        id = (await client.start_task("fragile", {})).id
        await soon(harbour["began"].wait())
        one.store.away("get")
        run = one.tasks._scheduler.running[id]
        stopping = asyncio.ensure_future(run.stop(ProtocolError.internal_error("the server stopped")))
        await soon(stopping)
        one.store.back()
        record = await reach(two.tasks, id, "completed", "failed", "cancelled")
        assert "not declared resumable" in reason(record)


@pytest.mark.parametrize("what", ["end", "question"])
async def test_a_listener_is_told_of_a_write_whose_confirmation_was_lost(what: str) -> None:
    harbour = a_harbour()

    def declare(one: Process) -> None:
        @one.server.tool(long_running=True)
        async def work(ctx: Context) -> str:
            await harbour["go"].wait()
            if what == "question":
                await ctx.elicit("?", str)
            return "done"

    async with fleet("one", declare=declare, lease=30.0) as one, serve("asgi", one.server) as wire:
        caps = {**TASKS, "elicitation": {}}
        id = (await wire.call("work", caps=caps)).result["taskId"]
        params = {"notifications": {"taskIds": [id]}}
        async with await wire.open_modern("subscriptions/listen", params, id="ear", caps=caps) as stream:
            await stream.message()
            one.store.lost["update"] = StoreUnavailable("the answer was lost", retry_after=0.01)
            harbour["go"].set()
            told = (await stream.message())["params"]["status"]
        assert told == ("completed" if what == "end" else "input_required")


async def test_many_tasks_that_could_not_be_made_are_taken_back_by_one_errand() -> None:
    harbour = a_harbour()
    async with fleet("one", declare=gated(harbour), lease=30.0) as one, serve("asgi", one.server) as wire:
        one.store.away("claim", "delete")
        for _ in range(20):
            assert (await wire.call("fragile", caps=TASKS)).status == 503
        assert len(one.tasks.records._errands) < 5
        assert await one.tasks.count() == 20
        one.store.back()

        async def none() -> bool:
            return await one.tasks.count() == 0

        await until(none, "the undoing")
        assert not harbour["began"].is_set()


async def test_more_than_one_sweep_is_made_where_more_has_ended() -> None:
    harbour = a_harbour()
    async with fleet("one", declare=gated(harbour)) as one:
        swept = iter([["x"] * 1000, ["x"] * 1000, ["x"]])
        made: list[int] = []

        async def sweep(*, limit: int) -> list[str]:
            found = next(swept)
            made.append(len(found))
            return found

        one.store.sweep = sweep
        await one.tasks._scheduler._sweep()
        assert made == [1000, 1000, 1]


async def test_a_task_that_is_being_made_is_left_alone_whatever_the_clocks_say() -> None:
    """A process whose clock is an hour ahead sees a record that seems to have been left for an hour."""
    harbour = a_harbour()
    async with fleet("one", "two", declare=gated(harbour), lease=0.3) as (one, two):
        made = await one.store.create(_old(one))
        looked = two.store.calls.count("due")
        await until(lambda: two.store.calls.count("due") > looked + 1, "a look")
        assert await one.store.claim(made.id, "maker", seconds=30) is not None


def _old(one: Process) -> TaskRecord:
    draft = one.tasks.records.draft("fragile")
    return msgspec.structs.replace(
        draft, created_ms=draft.created_ms - 3_600_000, updated_ms=draft.updated_ms - 3_600_000
    )
