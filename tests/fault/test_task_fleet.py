"""Tasks of several processes on one store: who runs them, who may ask, and what is left when one of them goes.

Two servers in this process, each with a connection of its own to one database, stand for two processes. One whose store is
closed under its feet can write nothing more: to the other it is what a process is that was killed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.badges import ALICE, BOB, Badges
from tests.support.harness import serve
from tests.support.inside import inside
from tests.support.redis import RedisServer, redis_server
from tests.support.until import soon, until

from trimaran import Client, Context, Server, ToolError, connect
from trimaran.auth import Principal
from trimaran.errors import CallError, ProtocolError
from trimaran.ext.tasks import Tasks
from trimaran.ext.tasks.journal import MAX_JOURNAL_BYTES
from trimaran.fleet import Fleet
from trimaran.state import StoreUnavailable, TaskRecord

LEASE = 0.6
UNKNOWN = "task_" + "0" * 32


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/tasks.db"
        return
    with redis_server(tmp_path) as server:
        yield server.url


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


class Harbour:
    """What the two processes have in common beside the store: gates for the bodies, and a ledger of all they did."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = asyncio.Event()
        self.waiting = 0
        """Sturdy bodies whose steps so far are written down."""
        self.ledger: list[str] = []
        self.is_calm = False
        """After one leg, a voyage goes no further."""
        self.becalmed = asyncio.Event()

    def enter(self, line: str) -> str:
        self.ledger.append(line)
        return line

    async def between(self) -> None:
        if self.is_calm:
            self.becalmed.set()
            await asyncio.Event().wait()


class Process:
    """One of them."""

    def __init__(self, name: str, url: str, harbour: Harbour, **options: Any) -> None:
        self.name = name
        self.server = Server(name, version="1")
        self.tasks = Tasks(**{"poll": 0.05, "lease": LEASE, **options})
        self.server.enable_extension(self.tasks)
        self.server.runtime.fleet = Fleet(self.server, url)
        declare(self.server, name, harbour)

    async def die(self) -> None:
        """Nothing that it knows or does is written from now on."""
        await inside(self.server).runtime.fleet.store.close()

    def client(self, **options: Any) -> Client:
        return connect(self.server, **options)


def declare(server: Server, name: str, harbour: Harbour) -> None:
    @server.tool(long_running=True)
    async def fragile(ctx: Context) -> str:
        harbour.enter(f"{name} fragile")
        harbour.began.set()
        try:
            await harbour.go.wait()
        except asyncio.CancelledError:
            harbour.enter(f"{name} stopped")
            raise
        return "arrived"

    @server.tool(long_running=True, resumable=True)
    async def sturdy(ctx: Context, legs: int = 3, wait_at: int = 2) -> str:
        harbour.enter(f"{name} sturdy")
        for leg in range(1, legs + 1):
            if leg == wait_at:
                harbour.waiting += 1
                harbour.began.set()
                await harbour.go.wait()
            await ctx.step("leg", harbour.enter, f"leg {leg}")
            if harbour.ledger[-1] == f"leg {leg}":
                await harbour.between()
        return f"{legs} legs for {ctx.auth.subject if ctx.auth else 'nobody'}"

    @server.tool(long_running=True, resumable=True)
    async def stuck(ctx: Context) -> str:
        async def half() -> str:
            harbour.enter("half")
            harbour.began.set()
            await harbour.go.wait()
            return harbour.enter("whole")

        return await ctx.step("cargo", half)

    @server.tool(long_running=True, resumable=True)
    async def asking(ctx: Context) -> str:
        harbour.enter(f"{name} asking")
        one = await ctx.elicit("One?", str)
        await ctx.step("note", harbour.enter, f"one is {one.content}")
        harbour.began.set()
        two = await ctx.elicit("Two?", str)
        return f"{one.content} {two.content}"

    @server.tool(long_running=True)
    async def fragile_asking(ctx: Context) -> str:
        return str((await ctx.elicit("Well?", str)).content)

    @server.tool(long_running=True, resumable=True)
    async def unlucky(ctx: Context) -> str:
        async def fail() -> None:
            harbour.enter("tried")
            raise ToolError("no wind")

        try:
            await ctx.step("sail", fail)
        except ToolError as error:
            said = str(error)
        else:
            said = "sailed"
        harbour.began.set()
        await harbour.go.wait()
        return f"{said}, rowed"

    @server.tool(long_running=True, resumable=True)
    async def bulky(ctx: Context) -> str:
        await ctx.step("big", lambda: "x" * (MAX_JOURNAL_BYTES + 1))
        return "kept"

    @server.tool(long_running="on_detach", resumable=True)
    async def later(ctx: Context) -> str:
        answer = await ctx.elicit("Before?", str)
        await ctx.step("early", harbour.enter, f"early {answer.content}")
        await ctx.detach()
        harbour.began.set()
        await harbour.go.wait()
        await ctx.step("late", harbour.enter, "late")
        return f"{answer.content}, then on"

    @server.tool(long_running=True)
    async def talking(ctx: Context) -> str:
        for number in range(200):
            await ctx.progress(number, message=f"word {number}")
            await asyncio.sleep(0.002)
        harbour.began.set()
        await harbour.go.wait()
        return "said"


@asynccontextmanager
async def fleet(url: str, *names: str, **options: Any) -> AsyncIterator[tuple[Any, ...]]:
    """A harbour, and the processes of these names."""
    harbour = Harbour()
    processes = [Process(name, url, harbour, **options) for name in names]
    try:
        for one in processes:
            await one.server.start()
        yield harbour, *processes
    finally:
        harbour.go.set()
        for one in processes:
            await one.server.stop()


async def reach(process: Process, id: str, *statuses: str) -> TaskRecord:
    async def there() -> TaskRecord | None:
        record = await process.tasks.get(id)
        return record if record.status in statuses else None

    return await until(there, f"{id} to be {' or '.join(statuses)}")


def reason(record: TaskRecord) -> str:
    assert record.status == "failed", record
    return msgspec.json.decode(record.error or b"{}")["message"]


def text(record: TaskRecord) -> str:
    assert record.status == "completed", record
    return msgspec.json.decode(record.result or b"{}")["content"][0]["text"]


async def start(client: Client, name: str, **arguments: Any) -> str:
    return (await client.start_task(name, arguments)).id


# --- any process answers for any task --------------------------------------------------------------------------------


async def test_a_task_is_known_everywhere_the_moment_its_client_is(url: str) -> None:
    async with fleet(url, "one", "two") as (harbour, one, two), one.client() as client, two.client() as other:
        id = await start(client, "fragile")
        task = other.task(id)
        assert (await task.refresh()).status == "working"
        harbour.go.set()
        assert (await soon(task.result())).data == "arrived"
        assert (await soon(client.task(id).result())).data == "arrived"
        assert harbour.ledger == ["one fragile"]


async def test_cancelling_anywhere_stops_the_body_where_it_runs(url: str) -> None:
    async with fleet(url, "one", "two") as (harbour, one, two), one.client() as client, two.client() as other:
        id = await start(client, "fragile")
        await soon(harbour.began.wait())
        await other.task(id).cancel()
        assert (await one.tasks.get(id)).status == "cancelled"

        async def stopped() -> bool:
            return harbour.ledger == ["one fragile", "one stopped"]

        await until(stopped, "the end of the body")
        assert (await reach(two, id, "cancelled")).result is None


async def test_a_question_is_answered_wherever_the_answer_comes_in(url: str) -> None:
    def answer(question: Any) -> Any:
        return question.accept({"value": question.message.lower()})

    async with fleet(url, "one", "two") as (_, one, two), one.client(on_elicit=answer) as client:
        for name, expected in (("asking", "one? two?"), ("fragile_asking", "well?")):
            id = await start(client, name)
            async with two.client(on_elicit=answer) as other:
                assert (await soon(other.task(id).result())).data == expected


async def test_who_waits_for_a_legacy_task_in_another_process_is_asked_there(url: str) -> None:
    """2025-11-25: `tasks/result` blocks, and the questions come on its stream."""
    harbour = Harbour()
    processes = [Process(name, url, harbour) for name in ("one", "two")]
    async with (
        serve("asgi", processes[0].server, auth=Badges()) as here,
        serve("asgi", processes[1].server, auth=Badges()) as there,
    ):
        caps = {"elicitation": {}}
        mine, other = await here.initialize(caps=caps, headers=ALICE), await there.initialize(caps=caps, headers=ALICE)
        bob = await there.initialize(headers=BOB)
        made = await mine.ask("tools/call", {"name": "fragile_asking", "arguments": {}, "task": {}})
        id = made.result["task"]["taskId"]
        assert (await bob.ask("tasks/get", {"taskId": id})).error["code"] == -32602
        assert [task["taskId"] for task in (await other.ask("tasks/list")).result["tasks"]] == [id]
        async with await mine.get() as stream, await other.open("tasks/result", {"taskId": id}) as result:
            asked = await result.message()
            assert asked["method"] == "elicitation/create"
            await other.answer(asked["id"], {"action": "accept", "content": {"value": "fine"}})
            assert (await result.message())["result"]["content"][0]["text"] == "fine"
            told = [(await stream.message())["params"]["status"] for _ in range(3)]
            assert sorted(told) == ["completed", "input_required", "working"]  # each once, whoever changed it


async def test_a_listener_hears_of_changes_that_another_process_makes(url: str) -> None:
    harbour = Harbour()
    processes = [Process(name, url, harbour) for name in ("one", "two")]
    tasks = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with serve("asgi", processes[0].server) as here, serve("asgi", processes[1].server) as there:
        id = (await here.call("fragile", caps=tasks)).result["taskId"]
        params = {"notifications": {"taskIds": [id, UNKNOWN]}}
        async with await there.open_modern("subscriptions/listen", params, id="ear", caps=tasks) as stream:
            assert (await stream.message())["params"]["notifications"] == {"taskIds": [id]}
            harbour.go.set()
            heard = (await stream.message())["params"]
            assert (heard["taskId"], heard["status"]) == (id, "completed")
            assert heard["result"]["content"][0]["text"] == "arrived"


async def test_what_nobody_may_see_is_what_an_unknown_task_is_in_every_process(url: str) -> None:
    async with fleet(url, "one", "two") as (_, one, two):
        alice = Principal(subject="alice", issuer="here")
        id = await one.tasks.begin("cargo", owner=alice)
        async with two.client() as other:
            said: set[str] = set()
            for wrong in (id, UNKNOWN, "task_x", "", "*", f"{id} "):
                with pytest.raises(CallError) as caught:
                    await other.task(wrong).refresh()
                said.add(str(caught.value).replace(wrong, "X") if wrong else str(caught.value).replace("''", "'X'"))
            assert len(said) == 1


async def test_one_caller_has_so_many_tasks_in_all_processes_together(url: str) -> None:
    async with fleet(url, "one", "two", most_per_caller=3) as (_, one, two):
        alice = Principal(subject="alice")
        ids = [await process.tasks.begin("cargo", owner=alice) for process in (one, two, one)]
        with pytest.raises(ProtocolError, match="3 tasks of one caller are at work") as refused:
            await two.tasks.begin("cargo", owner=alice)
        assert refused.value.status == 503
        await one.tasks.begin("cargo", owner=Principal(subject="bob"))
        await one.tasks.finish(ids[1], "done")
        # R79: the oldest of those that have ended gives way.
        fourth = await two.tasks.begin("cargo", owner=alice)
        with pytest.raises(ProtocolError, match="there is no task"):
            await one.tasks.get(ids[1])
        assert (await one.tasks.get(fourth)).status == (await two.tasks.get(ids[0])).status == "working"


async def test_the_host_ends_its_tasks_from_any_process_and_nobody_takes_them_for_lost(url: str) -> None:
    async with fleet(url, "one", "two", lease=0.2) as (_, one, two):
        ids = [await one.tasks.begin("cargo") for _ in range(3)]
        await one.die()
        probe = await two.tasks.begin("probe")

        async def looked_often() -> bool:
            # Long after the lease of a body would have run out, and they would have been dealt with.
            return time.time() * 1000 > (await two.tasks.get(probe)).created_ms + 600

        await until(looked_often, "some looks at what is left")
        assert [(await two.tasks.get(id)).status for id in ids] == ["working"] * 3
        assert await two.tasks.finish(ids[0], "landed")
        assert await two.tasks.fail(ids[1], "sunk")
        assert await two.tasks.cancel(ids[2])
        assert not await two.tasks.finish(ids[2], "late")
        assert text(await two.tasks.get(ids[0])) == "landed"
        assert reason(await two.tasks.get(ids[1])) == "sunk"


async def test_many_notes_of_progress_are_few_writes(url: str) -> None:
    async with fleet(url, "one") as (harbour, one), one.client() as client:
        id = await start(client, "talking")
        await soon(harbour.began.wait())

        async def last() -> bool:
            return (await one.tasks.get(id)).status_message == "word 199"

        await until(last, "the last word")
        assert (await one.tasks.get(id)).stamp < 15


# --- a process is gone -----------------------------------------------------------------------------------------------


async def test_a_resumable_task_goes_on_elsewhere_and_no_step_is_done_twice(url: str) -> None:
    async with fleet(url, "one", "two") as (harbour, one, two), one.client() as client:
        id = await start(client, "sturdy")
        await soon(harbour.began.wait())
        await one.die()
        harbour.go.set()
        assert text(await reach(two, id, "completed", "failed")) == "3 legs for nobody"
        assert harbour.ledger[:3] == ["one sturdy", "leg 1", "two sturdy"]
        # On a machine that stands still for a whole lease, two gives the task up and takes it again. A step stays done.
        assert [entry for entry in harbour.ledger if entry != "two sturdy"] == ["one sturdy", "leg 1", "leg 2", "leg 3"]


async def test_any_other_is_failed_with_the_reason_and_never_begins_again(url: str) -> None:
    async with fleet(url, "one", "two") as (harbour, one, two), one.client() as client:
        id = await start(client, "fragile")
        await soon(harbour.began.wait())
        await one.die()
        said = reason(await reach(two, id, "completed", "failed"))
        assert "the process that ran this task ended" in said
        assert "resumable" in said
        assert "two fragile" not in harbour.ledger


async def test_a_tool_that_has_become_resumable_does_not_resume_what_kept_no_journal(url: str) -> None:
    async with fleet(url, "one", "two") as (harbour, one, two), one.client() as client:

        async def fragile() -> str:
            return harbour.enter("begun again")

        two.server.add_tool(fragile, replace=True, long_running=True, resumable=True)
        id = await start(client, "fragile")
        await soon(harbour.began.wait())
        await one.die()
        assert "not declared resumable" in reason(await reach(two, id, "completed", "failed"))
        assert "begun again" not in harbour.ledger


async def test_a_task_of_which_nobody_was_told_goes_and_one_of_the_host_stays(url: str) -> None:
    """Their process was killed after it had made them, and before it held them."""
    async with fleet(url, "one", lease=0.2) as (harbour, one):
        records, store = one.tasks.records, inside(one.server).runtime.fleet.store.tasks
        lost = await store.create(records.draft("fragile"))
        host = await store.create(records.draft("cargo", extra=b'{"is_host":true}'))

        async def dealt_with() -> bool:
            return await store.get(lost.id) is None and bool((await one.tasks.get(host.id)).worker)

        await until(dealt_with, "somebody to find them")
        assert await one.tasks.finish(host.id, "landed")
        assert harbour.ledger == []


@pytest.mark.parametrize("part", ["extra", "journal", "arguments"])
async def test_a_record_that_cannot_be_read_is_failed_and_hinders_no_other(url: str, part: str) -> None:
    """As one of another version would be."""
    async with fleet(url, "one", "two") as (harbour, one, two), one.client() as client:
        ids = [await start(client, "sturdy") for _ in range(2)]

        await until(lambda: harbour.waiting == 2, "both bodies")
        await one.die()
        store = inside(two.server).runtime.fleet.store.tasks

        async def spoilt() -> Any:
            record = await store.get(ids[0])
            return await store.update(msgspec.structs.replace(record, **{part: b"\xffnonsense"}))

        await until(spoilt, "the damage")
        harbour.go.set()
        first, second = [await reach(two, id, "completed", "failed") for id in ids]
        assert text(second) == "3 legs for nobody"
        if part == "arguments":  # they are the tool's to read
            assert first.status in ("completed", "failed")
        else:
            assert "the process that ran this task ended" in reason(first)


async def test_a_step_of_which_nobody_knows_whether_it_was_done_is_not_done_again(url: str) -> None:
    async with fleet(url, "one", "two") as (harbour, one, two), one.client() as client:
        id = await start(client, "stuck")
        await soon(harbour.began.wait())
        await one.die()
        said = reason(await reach(two, id, "completed", "failed"))
        assert "'cargo'" in said
        assert "not known" in said
        assert harbour.ledger == ["half"]


async def test_answers_outlive_the_process_that_asked(url: str) -> None:
    asked: list[str] = []

    def answer(question: Any) -> Any:
        asked.append(question.message)
        return question.accept({"value": f"answer {len(asked)}"})

    async with fleet(url, "one", "two") as (harbour, one, two), one.client(on_elicit=answer) as client:
        task = await client.start_task("asking", {})
        await reach(one, task.id, "input_required")
        await task.refresh()
        await soon(harbour.began.wait())
        await one.die()
        async with two.client(on_elicit=answer) as other:
            # It waits for input, so it is whoever looks that finds nobody runs it.
            assert (await soon(other.task(task.id).result())).data == "answer 1 answer 2"
        assert asked == ["One?", "Two?"]
        assert harbour.ledger == ["one asking", "one is answer 1", "two asking"]


async def test_a_task_that_waits_for_input_and_cannot_go_on_is_failed_when_somebody_looks(url: str) -> None:
    caps = {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}}
    harbour = Harbour()
    one, two = (Process(name, url, harbour) for name in ("one", "two"))
    async with serve("asgi", one.server) as here, serve("asgi", two.server) as there:
        id = (await here.call("fragile_asking", caps=caps)).result["taskId"]
        await reach(one, id, "input_required")
        await one.die()

        async def failed() -> bool:
            look = await there.modern("tasks/get", {"taskId": id}, caps=caps, headers={"Mcp-Name": id})
            return look.result["status"] == "failed"

        await until(failed, "the end")
        assert "the process that ran this task ended" in reason(await two.tasks.get(id))


async def test_what_a_step_raised_is_raised_again_and_not_tried_again(url: str) -> None:
    async with fleet(url, "one", "two") as (harbour, one, two), one.client() as client:
        id = await start(client, "unlucky")
        await soon(harbour.began.wait())
        await one.die()
        harbour.go.set()
        assert text(await reach(two, id, "completed", "failed")) == "no wind, rowed"
        assert harbour.ledger == ["tried"]


async def test_what_was_asked_and_done_before_the_call_was_a_task_counts_too(url: str) -> None:
    async with fleet(url, "one", "two") as (harbour, one, two):
        async with one.client(on_elicit=lambda question: question.accept({"value": "aye"})) as client:
            id = await start(client, "later")
            await soon(harbour.began.wait())
            await one.die()
        harbour.go.set()
        assert text(await reach(two, id, "completed", "failed")) == "aye, then on"
        assert harbour.ledger == ["early aye", "late"]


async def test_a_resumed_call_knows_its_caller_again(url: str) -> None:
    harbour = Harbour()
    one, two = (Process(name, url, harbour) for name in ("one", "two"))
    try:
        await two.server.start()
        tasks = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        async with serve("asgi", one.server, auth=Badges()) as wire:
            id = (await wire.call("sturdy", caps=tasks, headers=ALICE)).result["taskId"]
            await soon(harbour.began.wait())
            await one.die()
            harbour.go.set()
            assert text(await reach(two, id, "completed", "failed")) == "3 legs for alice"
    finally:
        await two.server.stop()


async def test_a_task_that_ends_every_process_it_runs_in_is_not_begun_for_ever(url: str) -> None:
    async with fleet(url, "one", lease=0.2) as (harbour, one), one.client() as client:
        id = await start(client, "sturdy")
        await soon(harbour.began.wait())
        await one.die()
        for number in range(2, 7):
            async with fleet(url, f"heir {number}", lease=0.2) as (new, heir):
                await soon(new.began.wait())
                assert new.ledger[0] == f"heir {number} sturdy"
                await heir.die()
        async with fleet(url, "last", lease=0.2) as (new, last):
            assert "6 times in the same place" in reason(await reach(last, id, "failed", "completed"))
            assert new.ledger == []


async def test_a_task_that_gets_further_each_time_is_not_given_up(url: str) -> None:
    legs = 9
    async with fleet(url, "one", lease=0.2) as (harbour, one), one.client() as client:
        id = await start(client, "sturdy", legs=legs, wait_at=2)
        await soon(harbour.began.wait())
        await one.die()
    done = list(harbour.ledger)
    for number in range(2, legs):
        async with fleet(url, f"heir {number}", lease=0.2) as (new, heir):
            new.go.set()  # past what stopped the one before
            new.is_calm = True
            await soon(new.becalmed.wait())
            await heir.die()
            done += new.ledger
    async with fleet(url, "last", lease=0.2) as (new, last):
        new.go.set()
        assert text(await reach(last, id, "failed", "completed")) == f"{legs} legs for nobody"
        done += new.ledger
    assert sorted(line for line in done if line.startswith("leg")) == sorted(f"leg {n}" for n in range(1, legs + 1))


async def test_a_tool_that_is_gone_fails_its_tasks_after_others_had_time_to_take_them(url: str) -> None:
    async with fleet(url, "one", "two", lease=0.1) as (harbour, one, two), one.client() as client:
        two.server.remove_tool("sturdy")
        id = await start(client, "sturdy")
        await soon(harbour.began.wait())
        await one.die()
        assert "no long-running tool 'sturdy'" in reason(await reach(two, id, "completed", "failed"))


# --- an orderly end --------------------------------------------------------------------------------------------------


async def test_a_server_that_stops_leaves_what_can_go_on_to_the_others_at_once(url: str) -> None:
    async with fleet(url, "one", "two", lease=30.0) as (harbour, one, two), one.client() as client:
        ids = {name: await start(client, name) for name in ("fragile", "sturdy")}

        await until(lambda: "one fragile" in harbour.ledger and harbour.waiting, "both bodies")
        await one.server.stop()
        assert reason(await two.tasks.get(ids["fragile"])) == "the server stopped before the task was done"
        assert (await two.tasks.get(ids["sturdy"])).status == "working"
        harbour.go.set()
        await reach(two, ids["sturdy"], "completed")
        assert harbour.ledger.count("leg 1") == 1
        assert "two fragile" not in harbour.ledger


async def test_a_step_under_way_is_waited_for_when_the_server_stops(url: str) -> None:
    async with fleet(url, "one", "two", lease=30.0) as (harbour, one, two), one.client() as client:
        id = await start(client, "stuck")
        await soon(harbour.began.wait())
        stopping = asyncio.ensure_future(one.server.stop())
        await asyncio.sleep(0)
        harbour.go.set()
        await soon(stopping)
        assert text(await reach(two, id, "completed", "failed")) == "whole"
        assert harbour.ledger == ["half", "whole"]


async def test_a_server_that_is_started_again_goes_on_with_its_tasks(url: str) -> None:
    async with fleet(url, "one") as (harbour, one):
        async with one.client() as client:
            id = await start(client, "sturdy")
            await soon(harbour.began.wait())
            await one.server.stop()
        harbour.go.set()
        await one.server.start()
        assert text(await reach(one, id, "completed")) == "3 legs for nobody"
        assert harbour.ledger.count("leg 1") == 1


async def test_orderly_stops_do_not_count_against_a_task(url: str) -> None:
    async with fleet(url, "one") as (harbour, one):
        async with one.client() as client:
            id = await start(client, "sturdy")
        for _ in range(8):
            await soon(harbour.began.wait())
            await one.server.stop()
            harbour.began.clear()
            await one.server.start()
        harbour.go.set()
        assert text(await reach(one, id, "completed", "failed")) == "3 legs for nobody"
        assert harbour.ledger.count("one sturdy") == 9
        assert harbour.ledger.count("leg 1") == 1


# --- what a journal can hold -----------------------------------------------------------------------------------------


async def test_a_result_that_is_too_large_to_keep_fails_the_task_and_says_so(url: str) -> None:
    async with fleet(url, "one") as (_, one), one.client() as client:
        record = await reach(one, await start(client, "bulky"), "completed", "failed")
        said = reason(record)
        assert "'big' was done" in said
        assert str(MAX_JOURNAL_BYTES) in said


# --- the store is away -----------------------------------------------------------------------------------------------


async def test_a_result_is_written_when_the_store_is_back(redis: RedisServer) -> None:
    async with fleet(redis.url, "one", lease=5.0) as (harbour, one), one.client() as client:
        id = await start(client, "fragile")
        await soon(harbour.began.wait())
        redis.kill()
        harbour.go.set()

        async def refused() -> bool:
            try:
                await client.task(id).refresh()
            except CallError as error:
                return "cannot use its store" in str(error)
            return False

        await until(refused, "the refusal")
        with pytest.raises(CallError, match="cannot use its store"):
            await client.start_task("fragile", {})
        redis.start()

        async def done() -> bool:
            try:
                return (await client.task(id).refresh()).status == "completed"
            except CallError:
                return False

        await until(done, "the result")
        assert await one.tasks.count() == 1  # nothing half made
        assert harbour.ledger == ["one fragile"]


async def test_whoever_asks_over_http_while_the_store_is_away_may_come_back(redis: RedisServer) -> None:
    caps = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    harbour = Harbour()
    one = Process("one", redis.url, harbour, lease=5.0)
    async with serve("asgi", one.server) as wire:
        id = (await wire.call("fragile", caps=caps)).result["taskId"]
        await soon(harbour.began.wait())
        redis.kill()
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            params = {"taskId": id, "inputResponses": {}}
            reply = await wire.modern(method, params, caps=caps, headers={"Mcp-Name": id})
            assert (reply.status, reply.error["code"]) == (503, -32603), method
            # One that cannot be a task's is known to be none without asking anybody.
            wrong = await wire.modern(method, {**params, "taskId": "x"}, caps=caps, headers={"Mcp-Name": "x"})
            assert (wrong.status, wrong.error["code"]) == (400, -32602), method
        assert (await wire.call("fragile", caps=caps)).status == 503
        redis.start()
        harbour.go.set()
        await reach_again(one, id, "completed")


async def reach_again(process: Process, id: str, status: str) -> None:
    async def there() -> bool:
        try:
            return (await process.tasks.get(id)).status == status
        except ProtocolError:
            return False

    await until(there, status)


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_a_body_is_stopped_before_another_process_may_have_its_task(redis: RedisServer, how: str) -> None:
    async with fleet(redis.url, "one", lease=1.0) as (harbour, one), one.client() as client:
        ids = [await start(client, name) for name in ("fragile", "sturdy")]

        await until(lambda: "one fragile" in harbour.ledger and harbour.waiting, "both bodies")
        redis.kill() if how == "killed" else redis.pause()
        lost = time.monotonic()

        async def stopped() -> bool:
            return "one stopped" in harbour.ledger and not one.tasks.running

        await until(stopped, "the fence")
        assert time.monotonic() - lost < 15  # long before a store that says nothing is given up
        harbour.go.set()
        redis.start() if how == "killed" else redis.resume()

        async def ended() -> list[TaskRecord]:
            try:
                found = [await one.tasks.get(id) for id in ids]
            except ProtocolError:
                return []
            return found if all(record.is_terminal for record in found) else []

        fragile, sturdy = await until(ended, "what is left to be found")
        assert "lost its store" in reason(fragile)
        assert text(sturdy) == "3 legs for nobody"
        assert [harbour.ledger.count(f"leg {leg}") for leg in (1, 2, 3)] == [1, 1, 1]
        assert harbour.ledger.count("one fragile") == 1


# --- run by others ---------------------------------------------------------------------------------------------------


class Queue:
    def __init__(self) -> None:
        self.jobs: list[TaskRecord] = []
        self.is_broken = False

    async def begin(self, record: TaskRecord) -> None:
        if self.is_broken:
            raise StoreUnavailable("the queue is away")
        self.jobs.append(record)


async def test_a_task_that_is_handed_over_is_run_once_by_whoever_takes_it(url: str) -> None:
    async with fleet(url, "one", "two", lease=30.0) as (harbour, one, two), one.client() as client:
        queue = one.tasks.runner = Queue()
        harbour.go.set()
        task = await client.start_task("fragile", {})
        (job,) = queue.jobs
        assert (job.id, job.name, job.status) == (task.id, "fragile", "working")
        assert harbour.ledger == []
        ran = await asyncio.gather(*(process.tasks.run_record(job.id) for process in (two, two, two)))
        assert sorted(ran) == [False, False, True]
        assert not await two.tasks.run_record(job.id)
        assert not await two.tasks.run_record(UNKNOWN)
        assert (await soon(task.result())).data == "arrived"
        assert harbour.ledger == ["two fragile"]


async def test_a_queue_that_cannot_take_a_task_leaves_none_behind(url: str) -> None:
    async with fleet(url, "one") as (_, one), one.client() as client:
        queue = one.tasks.runner = Queue()
        queue.is_broken = True
        with pytest.raises(CallError, match="cannot use its store"):
            await client.start_task("fragile", {})

        async def none() -> bool:
            return await one.tasks.count() == 0

        await until(none, "the undoing")


async def test_a_worker_that_is_stopped_gives_back_what_can_go_on_and_fails_the_rest(url: str) -> None:
    async with fleet(url, "one", "two", lease=30.0) as (harbour, one, two), one.client() as client:
        queue = one.tasks.runner = Queue()
        for name in ("fragile", "sturdy"):
            id = await start(client, name)
            harbour.began.clear()
            running = asyncio.ensure_future(two.tasks.run_record(id))
            await soon(harbour.began.wait())
            running.cancel()
            await asyncio.wait({running})
            record = await two.tasks.get(id)
            if name == "fragile":
                assert reason(record) == "the server stopped before the task was done"
        # What goes on is handed over again, as another job for the same task.
        harbour.go.set()

        async def handed() -> bool:
            return len(queue.jobs) == 3 or (await two.tasks.get(id)).is_terminal

        await until(handed, "somebody to take it up")
        if len(queue.jobs) == 3:
            assert queue.jobs[2].stamp != queue.jobs[1].stamp
            await two.tasks.run_record(id)
        assert text(await reach(one, id, "completed")) == "3 legs for nobody"
        assert harbour.ledger.count("leg 1") == 1
