"""Tasks in rough weather: a store that fails in a chosen moment, bodies in threads, stops that come at the wrong time.

The store is the one in memory, given to two servers as if they were two processes, so that every moment can be chosen.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.patience import PATIENCE

from trimaran import Context, Server, ToolError, connect
from trimaran.errors import CallError, ProtocolError
from trimaran.ext.tasks import Tasks
from trimaran.ext.tasks.journal import MAX_JOURNAL_BYTES
from trimaran.ext.tasks.origin import Extra, Origin, write_extra
from trimaran.fleet import Fleet
from trimaran.state import Health, MemoryStore, StoreClosed, StoreFull, StoreUnavailable, TaskRecord

from ..wire.harness import serve

LEASE = 0.3
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


class RoughTasks:
    """Tasks of a store that may be told to fail: `trouble[method]` is raised before anything is done, `lost[method]` after."""

    def __init__(self, tasks: Any) -> None:
        self._tasks = tasks
        self.trouble: dict[str, Exception] = {}
        self.lost: dict[str, Exception] = {}
        self.calls: list[str] = []

    def away(self, *methods: str) -> None:
        for method in methods or ("get", "create", "update", "claim", "renew", "release", "delete", "due", "list"):
            self.trouble[method] = StoreUnavailable("the store is away", retry_after=0.01)

    def back(self) -> None:
        self.trouble.clear()
        self.lost.clear()

    def __getattr__(self, name: str) -> Any:
        async def work(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            error = self.trouble.get(name)
            if error is not None:
                await asyncio.sleep(0)
                raise error
            found = await getattr(self._tasks, name)(*args, **kwargs)
            if name in self.lost:
                raise self.lost.pop(name)
            return found

        return work


class RoughStore:
    is_shared = is_durable = True

    def __init__(self, base: MemoryStore) -> None:
        self.sessions, self.events, self.bus = base.sessions, base.events, base.bus
        self.tasks: Any = RoughTasks(base.tasks)

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        for method in ("get", "create", "update", "claim", "renew", "release", "delete", "due", "list", "sweep"):
            self.tasks.trouble[method] = StoreClosed("the store is closed")

    async def check(self) -> Health:
        return Health(True, 0.0)


class Process:
    def __init__(self, name: str, base: MemoryStore, **options: Any) -> None:
        self.name = name
        limits = {key: options.pop(key) for key in ("request_timeout",) if key in options}
        self.server = Server(name, version="1", **limits)
        self.tasks = Tasks(**{"poll": 0.05, "lease": LEASE, **options})
        self.server.enable_extension(self.tasks)
        store: Any = RoughStore(base)
        self.store: RoughTasks = store.tasks
        self.server.fleet = Fleet(self.server, store)

    async def die(self) -> None:
        await self.server.fleet.store.close()


@asynccontextmanager
async def fleet(*names: str, declare: Callable[[Process], object], **options: Any) -> AsyncIterator[Any]:
    base = MemoryStore()
    processes = [Process(name, base, **options) for name in names]
    try:
        for one in processes:
            declare(one)
            await one.server.start()
        yield processes[0] if len(processes) == 1 else processes
    finally:
        for one in processes:
            await one.server.stop()
        await base.close()


async def until(what: str, is_so: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = is_so()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE:g} s"
        await asyncio.sleep(0.005)


async def soon(awaitable: Awaitable[Any]) -> Any:
    async with asyncio.timeout(PATIENCE):
        return await awaitable


async def reach(tasks: Tasks, id: str, *statuses: str) -> TaskRecord:
    async def there() -> TaskRecord | None:
        record = await tasks.get(id)
        return record if record.status in statuses else None

    return await until(f"{id} to be {' or '.join(statuses)}", there)


def reason(record: TaskRecord) -> str:
    assert record.status == "failed", record
    return msgspec.json.decode(record.error or b"{}")["message"]


def text(record: TaskRecord) -> str:
    assert record.status == "completed", record
    return msgspec.json.decode(record.result or b"{}")["content"][0]["text"]


def in_memory(**options: Any) -> tuple[Server, Tasks]:
    server, tasks = Server("alone", version="1"), Tasks(**{"poll": 0.05, **options})
    server.enable_extension(tasks)
    return server, tasks


# --- bodies in threads -----------------------------------------------------------------------------------------------


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
        await until("the thread's end", let_go.is_set)


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
        await until("the thread's end", over.is_set)
        assert tasks.running == 0
        assert await tasks.count() == 0


async def test_what_a_thread_says_fast_does_not_pile_up_in_the_loop() -> None:
    server, tasks = in_memory()
    scheduled = 0

    @server.tool(long_running=True)
    def talk(ctx: Context) -> str:
        nonlocal scheduled
        loop = ctx._call.exchange.loop  # pyright: ignore[reportPrivateUsage]
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


# --- who waits for a result ------------------------------------------------------------------------------------------


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
        session = next(iter(server.sessions))
        made = await tasks.keeper.tasks.get(id)
        assert made is not None
        await tasks.keeper.tasks.delete(id)
        await tasks.keeper.tasks.create(msgspec.structs.replace(made, owner=f"session:{session.id}"))
        waiting = asyncio.ensure_future(client.request("tasks/result", {"taskId": id}))
        await until("the wait for the result", lambda: len(tasks.keeper._bells))  # pyright: ignore[reportPrivateUsage]
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
            await until("some tries", lambda: one.store.calls.count("update") > tried + 1)
            one.store.back()
            assert (await soon(result)).data == "fine"


async def test_an_answer_that_cannot_be_taken_ends_the_request_so_that_the_client_asks_again() -> None:
    """In memory nobody looks again by himself: it would be waited for in vain."""
    server, tasks = in_memory()

    @server.tool(long_running=True)
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("?", str)).content)

    inner, failed = tasks.keeper.change, asyncio.Event()

    async def change(id: str, make: Any) -> Any:
        if failed.is_set():
            return await inner(id, make)
        failed.set()
        raise RuntimeError("a surprise")

    async with connect(server, version="2025-11-25", on_elicit=lambda q: q.accept({"value": "fine"})) as client:
        task = await client.start_task("ask", {})
        await reach(tasks, task.id, "input_required")
        tasks.keeper.change = change
        assert (await soon(task.result())).data == "fine"
        assert failed.is_set()


# --- the store fails -------------------------------------------------------------------------------------------------


def gated(harbour: dict[str, Any]) -> Callable[[Process], None]:
    def declare(one: Process) -> None:
        @one.server.tool(long_running=True)
        async def fragile(ctx: Context) -> str:
            harbour["began"].set()
            await harbour["go"].wait()
            return "arrived"

        @one.server.tool(long_running=True, resumable=True)
        async def sturdy(ctx: Context) -> str:
            await ctx.step("one", harbour["ledger"].append, f"one by {one.name}")
            harbour["began"].set()
            await harbour["go"].wait()
            await ctx.step("two", harbour["ledger"].append, "two")
            return "arrived"

    return declare


def a_harbour() -> dict[str, Any]:
    return {"began": asyncio.Event(), "go": asyncio.Event(), "ledger": []}


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
            await until("some tries", lambda: one.store.calls.count("renew") > tried + 6)
            one.store.back()
            await until("it to be over", lambda: "held again" in caplog.text)
        said = [record.getMessage() for record in caplog.records if "held" in record.getMessage()]
        assert len(said) == 2, said
        assert "tasks could not be held: the store is away" in said[0]
        assert one.tasks.running == 3


@pytest.mark.parametrize("error", [StoreFull("no room"), RuntimeError("a surprise")], ids=["full", "unforeseen"])
async def test_tasks_are_still_held_after_a_failure_of_any_kind(error: Exception) -> None:
    harbour = a_harbour()
    async with fleet("one", declare=gated(harbour), lease=0.6) as one, connect(one.server) as client:
        task = await client.start_task("fragile", {})
        one.store.trouble["renew"] = error
        tried = one.store.calls.count("renew")
        await until("a try", lambda: one.store.calls.count("renew") > tried)
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
        await until("a try", lambda: one.store.calls.count("update") > tried)
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
        run = one.tasks._crew.running[id]
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
        assert len(one.tasks.keeper._errands) < 5
        assert await one.tasks.count() == 20
        one.store.back()

        async def none() -> bool:
            return await one.tasks.count() == 0

        await until("the undoing", none)
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
        await one.tasks._crew._sweep()
        assert made == [1000, 1000, 1]


async def test_a_task_that_is_being_made_is_left_alone_whatever_the_clocks_say() -> None:
    """A process whose clock is an hour ahead sees a record that seems to have been left for an hour."""
    harbour = a_harbour()
    async with fleet("one", "two", declare=gated(harbour), lease=0.3) as (one, two):
        made = await one.store.create(_old(one))
        looked = two.store.calls.count("due")
        await until("a look", lambda: two.store.calls.count("due") > looked + 1)
        assert await one.store.claim(made.id, "maker", seconds=30) is not None


def _old(one: Process) -> TaskRecord:
    draft = one.tasks.keeper.draft("fragile")
    return msgspec.structs.replace(
        draft, created_ms=draft.created_ms - 3_600_000, updated_ms=draft.updated_ms - 3_600_000
    )


# --- resuming --------------------------------------------------------------------------------------------------------


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
        origin = Origin(version="2026-07-28", capabilities={})
        extra = write_extra(Extra(starts=0, origin=origin))
        made = await old.store.create(old.tasks.keeper.draft("pay", is_resumable=True, extra=extra))
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


# --- its life --------------------------------------------------------------------------------------------------------


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
            unknown = await one.store.create(one.tasks.keeper.draft("gone"))
            await one.store.claim(unknown.id, "x", seconds=0)
        id = (await client.start_task("fragile", {})).id
        await soon(harbour["began"].wait())
        await one.die()
        assert "not declared resumable" in reason(await reach(two.tasks, id, "failed"))
        left = await two.store.due(limit=1000)
        assert len(left) == 150
