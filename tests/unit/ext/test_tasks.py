"""The keeper of tasks, how they speak, and what the host may do with them (R73-R81; protocol.md 5.1, 5.2, 7.6)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from trimaran import ProtocolError, Server
from trimaran.ext.tasks import EXTENSION, Task, Tasks
from trimaran.ext.tasks.keeper import Keeper
from trimaran.ext.tasks.model import legacy_form, modern_form
from trimaran.ext.tasks.voice import TaskSink, TaskVoice
from trimaran.types import CallToolResult

HOUR = 3600.0
ALICE = SimpleNamespace(subject="alice", issuer="here")
ALICE_AGAIN = SimpleNamespace(subject="alice", issuer="here")
ALICE_ELSEWHERE = SimpleNamespace(subject="alice", issuer="there")
BOB = SimpleNamespace(subject="bob", issuer="here")
ENDS = ("completed", "failed", "cancelled")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Kept:
    """A keeper, its clock and what it told."""

    def __init__(self, *, ttl: float | None = HOUR, poll: float = 1.0, most: int = 1000) -> None:
        self.clock = Clock()
        self.told: list[tuple[str, str]] = []
        self.keeper = Keeper(
            ttl=ttl,
            poll=poll,
            most_per_owner=most,
            on_change=lambda task: self.told.append((task.id, task.status)),
            clock=self.clock,
        )

    def task(self, owner: Any = "me", ttl_ms: int | None = None) -> Task:
        return self.keeper.create(owner, "job", ttl_ms)

    def ids(self, owner: Any = "me") -> list[str]:
        return [task.id for task in self.keeper.of(owner)]


# --- the keeper ------------------------------------------------------------------------------------------------------


def test_a_new_task_works_and_is_found_at_once() -> None:
    kept = Kept(ttl=60, poll=0.25)
    task = kept.task()
    assert kept.keeper.find(task.id, "me") is task
    assert (task.status, task.ttl_ms, task.poll_ms, task.message) == ("working", 60_000, 250, None)
    assert task.created_at == task.updated_at == kept.clock.now
    assert len(kept.keeper) == 1
    assert kept.told == []


def test_ids_cannot_be_guessed() -> None:
    """R75."""
    kept = Kept()
    ids = [kept.task().id for _ in range(200)]
    assert len(set(ids)) == 200
    assert all(re.fullmatch(r"task_[0-9a-f]{32}", id) for id in ids)


@pytest.mark.parametrize("status", ENDS)
def test_an_ended_task_goes_one_hour_after_its_end_and_not_before(status: Any) -> None:
    """R79."""
    kept = Kept(ttl=60)
    task = kept.task()
    kept.clock.now += 5 * HOUR  # however long it worked
    kept.keeper.move(task, status)
    kept.clock.now += HOUR - 1
    assert kept.ids() == [task.id]
    kept.clock.now += 1
    assert kept.ids() == []
    with pytest.raises(ProtocolError, match="there is no task"):
        kept.keeper.find(task.id, "me")
    assert len(kept.keeper) == 0


@pytest.mark.parametrize("status", ["working", "input_required"])
def test_a_task_that_has_not_ended_is_never_evicted(status: Any) -> None:
    kept = Kept(ttl=1)
    task = kept.task()
    if status != "working":
        kept.keeper.move(task, status)
    kept.clock.now += 1000 * HOUR
    assert kept.ids() == [task.id]


def test_a_task_is_kept_as_long_as_it_promised_even_if_that_is_more_than_an_hour() -> None:
    kept = Kept(ttl=10 * HOUR)
    task = kept.task()
    kept.keeper.move(task, "completed")
    kept.clock.now += 10 * HOUR - 1
    assert kept.ids() == [task.id]
    kept.clock.now += 1
    assert kept.ids() == []


def test_a_task_that_promised_to_be_kept_without_end_is_not_forgotten() -> None:
    """protocol.md 5.1: `ttlMs: null` is a promise too, and a task does not expire early."""
    kept = Kept(ttl=None)
    task = kept.task()
    assert modern_form(task, details=False)["ttlMs"] is None
    kept.keeper.move(task, "completed")
    kept.clock.now += 2 * HOUR
    assert kept.ids() == [task.id]


def test_what_is_due_goes_when_the_next_task_comes() -> None:
    kept = Kept(ttl=60)
    old = kept.task("other")
    kept.keeper.move(old, "completed")
    kept.clock.now += 2 * HOUR
    new = kept.task()
    assert len(kept.keeper) == 1
    assert kept.keeper.get(new.id) is new


@pytest.mark.parametrize(("asked", "given"), [(None, 60_000), (1000, 1000), (60_000, 60_000), (10**9, 60_000)], ids=str)
def test_a_client_may_ask_for_a_shorter_life_and_not_for_a_longer_one(asked: int | None, given: int) -> None:
    assert Kept(ttl=60).task(ttl_ms=asked).ttl_ms == given


def test_without_a_life_of_its_own_the_keeper_grants_what_is_asked() -> None:
    kept = Kept(ttl=None)
    assert kept.task().ttl_ms is None
    assert kept.task(ttl_ms=5000).ttl_ms == 5000


def test_one_caller_has_so_many_tasks_and_another_is_not_hindered() -> None:
    kept = Kept(most=3)
    for _ in range(3):
        kept.task("greedy")
    with pytest.raises(ProtocolError, match="3 tasks of one caller are at work") as refused:
        kept.task("greedy")
    assert (refused.value.code, refused.value.status) == (-32603, 503)
    kept.task("modest")
    assert len(kept.keeper) == 4


def test_the_limit_frees_itself_when_tasks_end() -> None:
    kept = Kept(ttl=60, most=1)
    task = kept.task()
    with pytest.raises(ProtocolError, match="1 tasks of one caller are at work"):
        kept.task()
    kept.keeper.move(task, "completed")
    kept.task()


@pytest.mark.parametrize("other", [None, "her", ("session", "me"), ("here", "me")], ids=str)
def test_to_anyone_else_a_task_is_what_an_unknown_one_is(other: Any) -> None:
    """R80, R102."""
    kept = Kept()
    mine = kept.task("me")
    with pytest.raises(ProtocolError, match="there is no task") as foreign:
        kept.keeper.find(mine.id, other)
    with pytest.raises(ProtocolError, match="there is no task") as unknown:
        kept.keeper.find("task_" + "0" * 32, "me")
    assert (foreign.value.code, foreign.value.data) == (unknown.value.code, unknown.value.data) == (-32602, None)
    assert foreign.value.message.replace(mine.id, "X") == unknown.value.message.replace("task_" + "0" * 32, "X")
    assert kept.ids(other) == []


@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("later", ["working", "input_required", *ENDS])
def test_what_has_ended_does_not_change(status: Any, later: Any) -> None:
    """R76."""
    kept = Kept()
    task = kept.task()
    assert kept.keeper.move(task, status, "over", result="first")
    ended = kept.clock.now
    kept.clock.now += 7
    assert not kept.keeper.move(task, later, "again", result="second", inputs={"k": {}})
    assert (task.status, task.message, task.result, task.inputs, task.updated_at) == (
        status,
        "over",
        "first",
        {},
        ended,
    )
    assert kept.told == [(task.id, status)]


def test_a_task_that_ends_takes_its_questions_along() -> None:
    kept = Kept()
    task = kept.task()
    kept.keeper.move(task, "input_required", inputs={"k": {"method": "roots/list", "params": {}}})
    kept.keeper.move(task, "cancelled")
    assert task.inputs == {}


async def test_everyone_who_waits_is_woken_by_a_change_and_nobody_is_left_on_the_list() -> None:
    kept = Kept()
    task = kept.task()
    waiting = [asyncio.ensure_future(kept.keeper.changed(task)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    kept.keeper.move(task, "completed")
    async with asyncio.timeout(3):
        await asyncio.gather(*waiting[1:])
    assert kept.keeper._waiting == {}


# --- how it is spelled -----------------------------------------------------------------------------------------------


def test_the_modern_form_is_flat_and_in_whole_milliseconds() -> None:
    kept = Kept(ttl=1.5, poll=0.25)
    form = modern_form(kept.task(), details=False)
    assert set(form) == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}
    assert (form["ttlMs"], form["pollIntervalMs"]) == (1500, 250)
    assert type(form["ttlMs"]) is type(form["pollIntervalMs"]) is int
    assert form["createdAt"] == form["lastUpdatedAt"] == "1970-01-12T13:46:40.000Z"


@pytest.mark.parametrize(
    ("status", "brings"),
    [
        ("working", set()),
        ("input_required", {"inputRequests"}),
        ("completed", {"result"}),
        ("failed", {"error"}),
        ("cancelled", set()),
    ],
)
def test_each_status_brings_its_own_and_nothing_else(status: Any, brings: set[str]) -> None:
    kept = Kept()
    task = kept.task()
    everything: dict[str, Any] = {
        "result": CallToolResult(content=[]),
        "error": ProtocolError(-32000, "no", {"why": 1}),
        "inputs": {"k": {"method": "roots/list", "params": {}}},
    }
    if status != "working":
        kept.keeper.move(task, status, "so it is", **everything)
    plain = set(modern_form(task, details=False))
    detailed = modern_form(task, details=True)
    assert set(detailed) - plain == brings
    assert not plain & {"result", "error", "inputRequests", "requestState", "ttl", "pollInterval"}
    if status == "failed":
        assert detailed["error"] == {"code": -32000, "message": "no", "data": {"why": 1}}


def test_the_legacy_form_has_its_own_names_and_no_details() -> None:
    kept = Kept(ttl=60)
    task = kept.task()
    kept.keeper.move(task, "completed", "well", result=CallToolResult(content=[]))
    form = legacy_form(task)
    assert set(form) == {"taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
    assert (form["status"], form["ttl"], form["pollInterval"]) == ("completed", 60_000, 1000)


def test_a_tool_that_failed_is_completed_on_the_modern_era_and_failed_on_the_legacy_one() -> None:
    kept = Kept()
    task = kept.task()
    kept.keeper.move(task, "completed", result=CallToolResult.error("no luck"))
    assert modern_form(task, details=True)["status"] == "completed"
    assert legacy_form(task)["status"] == "failed"


# --- how it asks -----------------------------------------------------------------------------------------------------


class Request:
    """The voice of the request that a task began with; it says what it was asked to do."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def ask(self, exchange: Any, method: str, params: Any, key: Any, timeout: Any) -> Any:
        self.heard.append((method, key))
        return "by the request"

    async def step(self, exchange: Any, name: str, run: Any) -> Any:
        self.heard.append(("step", name))
        return await run()

    def notification(self, method: str, params: Any) -> bytes:
        return b"n"

    def logs(self, exchange: Any, level: str) -> bool:
        return True

    def suspended(self, exchange: Any) -> Any:
        return "suspended"


class Spoken:
    """A voice and its task."""

    def __init__(self) -> None:
        self.kept = Kept()
        self.request = Request()
        inner: Any = self.request
        self.voice = TaskVoice(inner, self.kept.keeper, self.kept.task)

    @property
    def task(self) -> Task:
        assert self.voice.task is not None
        return self.voice.task

    def ask(self, key: str | None = None, method: str = "elicitation/create") -> asyncio.Task[Any]:
        nobody: Any = None
        return asyncio.ensure_future(self.voice.ask(nobody, method, {"message": "?"}, key, None))


@pytest_asyncio.fixture
async def spoken() -> AsyncIterator[Spoken]:
    yield Spoken()


async def test_before_it_is_on_its_own_a_task_speaks_with_the_voice_of_the_request(spoken: Spoken) -> None:
    voice: Any = spoken.voice
    assert await spoken.ask("k") == "by the request"
    assert voice.suspended(None) == "suspended"
    assert voice.logs(None, "info")

    async def run() -> int:
        return 3

    assert await voice.step(None, "s", run) == 3
    assert spoken.request.heard == [("elicitation/create", "k"), ("step", "s")]
    assert len(spoken.kept.keeper) == 0


async def test_on_its_own_it_asks_by_its_status_and_says_nothing(spoken: Spoken) -> None:
    voice: Any = spoken.voice
    task = voice.detach()
    assert voice.detach() is task
    asked = spoken.ask("sure")
    await asyncio.sleep(0)
    assert task.status == "input_required"
    assert task.inputs == {"sure": {"method": "elicitation/create", "params": {"message": "?"}}}
    assert not voice.logs(None, "emergency")
    assert voice.suspended(None) is None
    voice.answer({"sure": {"action": "accept"}})
    assert (task.status, task.inputs) == ("working", {})
    assert await asked == {"action": "accept"}
    assert spoken.request.heard == []


async def test_answers_may_come_one_at_a_time(spoken: Spoken) -> None:
    task = spoken.voice.detach()
    one, two = spoken.ask("one"), spoken.ask("two")
    await asyncio.sleep(0)
    assert list(task.inputs) == ["one", "two"]
    spoken.voice.answer({"two": 2})
    assert (task.status, list(task.inputs)) == ("input_required", ["one"])
    assert await two == 2
    spoken.voice.answer({"one": 1})
    assert task.status == "working"
    assert await one == 1


async def test_an_answer_nobody_asked_for_and_a_second_one_are_passed_over(spoken: Spoken) -> None:
    task = spoken.voice.detach()
    spoken.voice.answer({"early": 0})
    one, two = spoken.ask("one"), spoken.ask("two")
    await asyncio.sleep(0)
    spoken.voice.answer({"unknown": 1, "one": "first"})
    spoken.voice.answer({"one": "second"})
    assert (task.status, list(task.inputs)) == ("input_required", ["two"])
    spoken.voice.answer({"two": 2})
    assert (await one, await two) == ("first", 2)


async def test_questions_without_a_key_get_keys_of_their_own_for_good(spoken: Spoken) -> None:
    task = spoken.voice.detach()
    seen: list[str] = []
    for method in ("elicitation/create", "sampling/createMessage", "elicitation/create"):
        asked = spoken.ask(method=method)
        await asyncio.sleep(0)
        (key,) = task.inputs
        seen.append(key)
        spoken.voice.answer({key: "x"})
        await asked
    assert len(set(seen)) == 3


async def test_a_key_is_not_used_twice_in_the_life_of_a_task(spoken: Spoken) -> None:
    """protocol.md 5.1: a client passes over a key it has answered, so a question under the same one would never be met."""
    task = spoken.voice.detach()
    first = spoken.ask("again")
    await asyncio.sleep(0)
    (one,) = task.inputs
    spoken.voice.answer({one: 1})
    await first
    second = spoken.ask("again")
    await asyncio.sleep(0)
    keys = list(task.inputs)
    second.cancel()
    refused = (await asyncio.gather(second, return_exceptions=True))[0]
    assert keys != [one], "the second question has the key of the first, which the client has answered"
    assert keys or isinstance(refused, ProtocolError)


async def test_two_open_questions_under_one_key_are_an_error_that_says_what_to_do(spoken: Spoken) -> None:
    spoken.voice.detach()
    first = spoken.ask("same")
    await asyncio.sleep(0)
    with pytest.raises(ProtocolError, match="give each its own key="):
        await spoken.ask("same")
    spoken.voice.answer({"same": 1})
    assert await first == 1


async def test_a_question_that_is_given_up_is_no_longer_asked(spoken: Spoken) -> None:
    """The body had a timeout of its own and goes on without the answer; so does the task."""
    task = spoken.voice.detach()
    asked = spoken.ask("sure")
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    assert (task.status, task.inputs) == ("working", {})


async def test_a_question_asked_after_the_end_does_not_wait_for_ever(spoken: Spoken) -> None:
    task = spoken.voice.detach()
    spoken.kept.keeper.move(task, "cancelled")
    asked = spoken.ask("late")
    done, _ = await asyncio.wait([asked], timeout=0.05)
    asked.cancel()
    ended = (await asyncio.gather(asked, return_exceptions=True))[0]
    assert done, "the question waits for an answer that tasks/update will not bring: the task has ended"
    assert isinstance(ended, BaseException)


async def test_progress_becomes_the_status_message(spoken: Spoken) -> None:
    task = spoken.voice.detach()
    spoken.voice.notification("notifications/progress", {"progress": 1, "message": "half way"})
    assert (task.status, task.message) == ("working", "half way")
    spoken.voice.notification("notifications/progress", {"progress": 2})
    assert task.message == "half way"


async def test_what_a_task_says_goes_nowhere() -> None:
    await TaskSink().send(b"x")


# --- the host's side (R78) -------------------------------------------------------------------------------------------


def hosting(**options: Any) -> Tasks:
    tasks = Tasks(**options)
    Server("host", version="1").enable_extension(tasks)
    return tasks


def look(tasks: Tasks, id: str) -> Task:
    return tasks.keeper.get(id)


def test_the_host_begins_a_task_and_finishes_it() -> None:
    tasks = hosting()
    id = tasks.begin("export", ttl=2.5)
    assert len(tasks) == 1
    assert (look(tasks, id).status, look(tasks, id).name, look(tasks, id).ttl_ms) == ("working", "export", 2500)
    assert tasks.finish(id, "done")
    task = look(tasks, id)
    assert task.status == "completed"
    assert task.result.content[0].text == "done"


def test_the_host_fails_a_task_with_a_reason() -> None:
    tasks = hosting()
    id = tasks.begin("export")
    assert tasks.fail(id, "the disk is full")
    task = look(tasks, id)
    assert (task.status, task.message) == ("failed", "the disk is full")
    assert task.error is not None
    assert (task.error.code, task.error.message) == (-32603, "the disk is full")


def test_the_host_cancels_a_task() -> None:
    tasks = hosting()
    id = tasks.begin("export")
    assert tasks.cancel(id, "nobody wants it")
    assert (look(tasks, id).status, look(tasks, id).message) == ("cancelled", "nobody wants it")


def test_the_host_may_finish_a_task_with_a_failure_of_its_own() -> None:
    tasks = hosting()
    id = tasks.begin("export")
    assert tasks.finish(id, CallToolResult.error("no luck"))
    assert (look(tasks, id).status, look(tasks, id).result.is_error) == ("completed", True)


def test_the_first_end_of_a_task_counts() -> None:
    tasks = hosting()
    id = tasks.begin("export")
    assert tasks.cancel(id)
    assert not tasks.finish(id, "late")
    assert not tasks.fail(id, "late")
    assert not tasks.cancel(id)
    assert (look(tasks, id).status, look(tasks, id).result, look(tasks, id).error) == ("cancelled", None, None)


@pytest.mark.parametrize("end", ["finish", "fail", "cancel"])
def test_ending_a_task_that_is_not_there_says_so(end: str) -> None:
    with pytest.raises(ProtocolError, match="there is no task 'task_x'"):
        getattr(hosting(), end)("task_x", "reason")


def test_a_task_of_the_host_belongs_to_the_caller_it_names() -> None:
    tasks = hosting()
    id = tasks.begin("export", owner=ALICE)

    def seen_by(principal: Any) -> bool:
        call: Any = SimpleNamespace(principal=principal, session=None)
        try:
            return tasks.keeper.find(id, tasks.owner_of(call)).id == id
        except ProtocolError:
            return False

    assert seen_by(ALICE)
    assert seen_by(ALICE_AGAIN)
    assert not any(seen_by(other) for other in (BOB, ALICE_ELSEWHERE, None))


def test_without_a_caller_a_session_owns_its_tasks() -> None:
    tasks = hosting()
    one: Any = SimpleNamespace(principal=None, session=SimpleNamespace(id="s1"))
    two: Any = SimpleNamespace(principal=None, session=SimpleNamespace(id="s2"))
    none: Any = SimpleNamespace(principal=None, session=None)
    owners = [tasks.owner_of(call) for call in (one, two, none)]
    assert len({repr(owner) for owner in owners}) == 3


def test_the_host_is_held_to_the_limit_too() -> None:
    tasks = hosting(most_per_caller=2)
    tasks.begin("a")
    tasks.begin("b")
    with pytest.raises(ProtocolError, match="2 tasks of one caller are at work"):
        tasks.begin("c")


# --- switching it on -------------------------------------------------------------------------------------------------


def test_tasks_are_off_until_a_tool_wants_them() -> None:
    server = Server("plain", version="1")
    server.add_tool(lambda: "x", name="quick")
    assert "extensions" not in server.capabilities()
    assert server.legacy_capabilities == {}
    assert not any(name.startswith("tasks/") for name in server.dispatcher.served)
    server.add_tool(lambda: "x", name="slow", long_running=True)
    assert EXTENSION in server.capabilities()["extensions"]
    assert "tasks" not in server.capabilities()
    assert server.legacy_capabilities == {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
    assert {name for name in server.dispatcher.served if name.startswith("tasks/")} == {
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
    }


def test_settings_are_kept_when_they_come_before_the_first_long_tool() -> None:
    server = Server("set", version="1")
    tasks = Tasks(ttl=5)
    server.enable_extension(tasks)
    server.add_tool(lambda: "x", name="slow", long_running=True)
    assert len(server.on_stop) == 1
    assert server.changes.announcers["task"] == tasks._announce


def test_settings_that_come_after_the_first_long_tool_count_or_are_refused() -> None:
    """Two of them would make tasks in one keeper and look for them in another."""
    server = Server("late", version="1")
    server.add_tool(lambda: "x", name="slow", long_running=True)
    try:
        server.enable_extension(Tasks(ttl=5))
    except Exception as error:
        assert "before" in str(error)  # noqa: PT017 - either is right, silence is not
        return
    around = [m for methods, m in server.dispatcher._middleware if methods == frozenset({"tools/call"})]
    assert len(around) == 1, "both are around tools/call: the one makes the tasks, the other serves tasks/get"


def test_a_mounted_servers_long_tools_bring_tasks_along() -> None:
    inner, outer = Server("inner", version="1"), Server("outer", version="1")
    inner.add_tool(lambda: "x", name="slow", long_running="required")
    outer.mount(inner, "in")
    assert EXTENSION in outer.capabilities().get("extensions", {})


@pytest.mark.parametrize("wrong", ["yes", "optional", 2, None], ids=str)
def test_a_wrong_word_for_long_running_is_refused(wrong: Any) -> None:
    with pytest.raises(Exception, match="long_running is True"):
        Server("wrong", version="1").add_tool(lambda: "x", name="t", long_running=wrong)
