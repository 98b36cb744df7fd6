"""A task from its caller's side: what is asked, how often, and what comes of it, against servers that follow a table."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.peers import (
    ALL,
    V06,
    V11,
    P,
    Pipe,
    Refused,
    ask,
    finishing,
    input_required,
    listed,
    ok,
    said,
    tell,
    tool,
)
from tests.support.until import soon, until

from trimaran import ToolError, connect, errors
from trimaran.client import tasks
from trimaran.client.tasks import TASKS, TaskHandle, TaskUpdate
from trimaran.testing import ScriptedPeer

TASKED = {**ALL, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def begun(status: str = "working", **more: Any) -> dict[str, Any]:
    """What a modern server answers a call with, when it takes it on as a task."""
    return {"resultType": "task", "taskId": "k-1", "status": status, "ttlMs": None, "pollIntervalMs": 20, **more}


def now(status: str, **more: Any) -> dict[str, Any]:
    return {**begun(status, **more), "resultType": "complete"}


def done(text: str = "tea", **more: Any) -> dict[str, Any]:
    result = {"content": [{"type": "text", "text": text}]}
    return now("completed", result=result, **more)


def question(message: str = "name?") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": FORM}}


def wants(**questions: str) -> dict[str, Any]:
    return now("input_required", inputRequests={key: question(text) for key, text in questions.items()})


def brewing(*looks: Any, capabilities: Any = None) -> Pipe:
    """A modern server whose only tool is a task, and what the looks at it show one after the other."""
    pipe = Pipe().modern(capabilities).on("tools/call", begun()).on("tasks/get", *looks)
    return pipe.on("tasks/cancel", {"resultType": "complete"}).on("tasks/update", {"resultType": "complete"})


def old(*results: Any, version: str = V11, support: str | None = "optional", tasked: bool = True) -> Pipe:
    """A legacy server whose tool `t` may be a task, and what its `tasks/result` answers."""
    execution = {} if support is None else {"execution": {"taskSupport": support}}
    pipe = Pipe().legacy(version, TASKED if tasked else ALL).on("tools/list", {"tools": [tool("t", **execution)]})
    task = {"taskId": "k-1", "status": "working", "ttl": None, "pollInterval": 20}
    return pipe.on("tools/call", {"task": task}).on("tasks/result", *results)


def capabilities_of(message: dict[str, Any]) -> dict[str, Any]:
    return message["params"]["_meta"][P + "clientCapabilities"]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between two looks, none of which takes any time."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(tasks, "asyncio", SimpleNamespace(timeout=asyncio.timeout, sleep=sleep))
    return made


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_task_is_awaited_for_what_the_call_would_have_given() -> None:
    pipe = brewing(now("working"), done())
    async with connect(pipe) as client:
        task = await client.start_task("t", {"cups": 2})
        assert (task.id, task.status, task.is_over) == ("k-1", "working", False)
        found = await soon(task.result())
        assert (found.data, found.is_error) == ("tea", False)
        assert (task.status, task.is_over) == ("completed", True)
    sent = pipe.one("tools/call")["params"]
    assert (sent["name"], sent["arguments"]) == ("t", {"cups": 2})
    assert "task" not in sent, "2026-07-28 has no such parameter"
    assert [one["params"]["taskId"] for one in pipe.all("tasks/get")] == ["k-1", "k-1"]


async def test_the_result_is_made_into_a_type_and_checked_as_that_of_a_call() -> None:
    structured = {"content": [], "structuredContent": {"cups": 2}}
    pipe = brewing(now("completed", result=structured))
    schema = {"type": "object", "properties": {"cups": {"type": "string"}}}
    pipe.on("tools/list", listed(tool("t", outputSchema=schema)))
    async with connect(pipe, schema_check="strict") as client:
        with pytest.raises(errors.InvalidOutput, match="cups"):
            await (await client.start_task("t"))
    async with connect(pipe, schema_check="off") as client:
        assert (await (await client.start_task("t", into=dict[str, int]))).data == {"cups": 2}
        assert (await client.task("k-1", into=dict[str, int])).data == {"cups": 2}


async def test_a_tool_that_says_it_failed_is_a_completed_task() -> None:
    """protocol.md 5.1: `isError` is completed with that result."""
    failed = {"content": [{"type": "text", "text": "no water"}], "isError": True}
    pipe = brewing(now("completed", result=failed))
    async with connect(pipe) as client:
        assert (await (await client.start_task("t"))).is_error
        with pytest.raises(ToolError, match="no water"):
            await (await client.start_task("t", raise_on_error=True))
        with pytest.raises(ToolError, match="no water"):
            await client.task("k-1", raise_on_error=True)


async def test_after_the_end_nobody_is_asked_again() -> None:
    pipe = brewing(done())
    async with connect(pipe) as client:
        task = await client.start_task("t")
        first = await task
        assert await task is first
        assert await task.refresh() == TaskUpdate("completed")
        await task.cancel()
        assert [update.status async for update in task] == ["completed"]
    assert len(pipe.all("tasks/get")) == 1
    assert pipe.all("tasks/cancel") == []


async def test_a_wait_may_run_out_and_be_taken_up_again() -> None:
    pipe = brewing(now("working"))
    async with connect(pipe) as client:
        task = await client.start_task("t")
        with pytest.raises(errors.TimedOut, match=r"k-1 is working after 0\.05 s.*goes on"):
            await task.result(0.05)
        with pytest.raises(errors.TimedOut):
            await task.result(timeout=0.01)
        pipe.on("tasks/get", done())
        assert (await soon(task.result(3))).data == "tea"
    assert pipe.all("tasks/cancel") == []


async def test_two_may_wait_for_one_task() -> None:
    pipe = brewing(now("working"), wants(a="name?"), wants(a="name?"), done())
    asked: list[str] = []

    async def on_elicit(elicitation: Any) -> Any:
        asked.append(elicitation.message)
        return elicitation.accept({"name": "Ada"})

    async with connect(pipe, on_elicit=on_elicit) as client:
        task = await client.start_task("t")
        found = await soon(asyncio.gather(task.result(), task.result()))
        assert [one.data for one in found] == ["tea", "tea"]
    assert asked == ["name?"]


async def test_giving_up_the_wait_leaves_the_task_alone() -> None:
    pipe = brewing(now("working"))
    async with connect(pipe) as client:
        task = await client.start_task("t")
        waiting = asyncio.ensure_future(task.result())
        await until(lambda: len(pipe.all("tasks/get")) > 1)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert not task.is_over
        looks = len(pipe.all("tasks/get"))
        await client.ping()
        assert len(pipe.all("tasks/get")) == looks
    assert pipe.all("tasks/cancel") == []


async def test_a_timeout_of_the_callers_own_is_not_taken_for_ours() -> None:
    pipe = brewing(now("working"))
    async with connect(pipe) as client:
        task = await client.start_task("t")
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.02):
                await task.result(30)
        assert not isinstance(caught.value, errors.TimedOut)


# --- the pace --------------------------------------------------------------------------------------------------------


async def test_the_server_is_asked_at_the_pace_it_wishes_for(pauses: list[float]) -> None:
    """protocol.md 5.1: poll at pollIntervalMs, which may change."""
    pipe = brewing(now("working", pollIntervalMs=250), now("working", pollIntervalMs=1500), done())
    async with connect(pipe) as client:
        await soon((await client.start_task("t")).result())
    assert pauses == [0.25, 1.5]


@pytest.mark.parametrize(
    ("wish", "pause"),
    [(None, 1.0), (1, 0.02), (0.5, 0.02), (-5, 0.02), (3_600_000, 60.0), (1e300, 60.0)],
    ids=["none", "least", "fraction", "negative", "most", "vast"],
)
async def test_a_wish_is_kept_within_reason(pauses: list[float], wish: Any, pause: float) -> None:
    pipe = brewing(now("working", pollIntervalMs=wish), done())
    async with connect(pipe) as client:
        await soon((await client.start_task("t")).result())
    assert pauses == [pause]


async def test_updates_come_at_the_same_pace(pauses: list[float]) -> None:
    pipe = brewing(now("working", pollIntervalMs=250), now("working", pollIntervalMs=70), done())
    async with connect(pipe) as client:
        assert [update.status async for update in await client.start_task("t")] == ["working", "completed"]
    assert pauses == [0.25, 0.07]


async def test_a_task_that_has_ended_is_not_paused_for(pauses: list[float]) -> None:
    pipe = brewing(done())
    async with connect(pipe) as client:
        await client.task("k-1")
        assert [update.status async for update in client.task("k-1")] == ["completed"]
    assert pauses == []


# --- updates ---------------------------------------------------------------------------------------------------------


async def test_updates_are_the_changes_and_the_end() -> None:
    looks = (
        now("working"),
        now("working"),
        now("working", statusMessage="water is hot"),
        now("working", statusMessage="water is hot"),
        done(statusMessage="poured"),
    )
    pipe = brewing(*looks)
    async with connect(pipe) as client:
        task = await client.start_task("t")
        updates = [update async for update in task]
        assert updates == [
            TaskUpdate("working"),
            TaskUpdate("working", "water is hot"),
            TaskUpdate("completed", "poured"),
        ]
        assert (task.status, task.message) == ("completed", "poured")
        assert (await task).data == "tea"


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_updates_end_without_an_exception(end: str) -> None:
    pipe = brewing(now("working"), now(end, statusMessage="so it goes"))
    async with connect(pipe) as client:
        updates = [update async for update in await client.start_task("t")]
    assert updates == [TaskUpdate("working"), TaskUpdate(end, "so it goes")]


async def test_one_may_stop_watching_at_any_time() -> None:
    pipe = brewing(now("working"))
    async with connect(pipe) as client:
        task = await client.start_task("t")
        async for update in task:
            assert update.status == "working"
            break
        pipe.on("tasks/get", done())
        assert await task.refresh() == TaskUpdate("completed")
        assert (await task).data == "tea"


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_a_failed_task_raises_what_it_failed_with() -> None:
    failed = now("failed", error={"code": -32010, "message": "no water", "data": {"tap": 2}})
    pipe = brewing(failed)
    async with connect(pipe) as client:
        task = await client.start_task("t")
        for _ in range(2):
            with pytest.raises(errors.CallError, match="no water") as caught:
                await task
            assert (caught.value.code, caught.value.data) == (-32010, {"tap": 2})
        assert (task.status, task.is_over) == ("failed", True)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_an_end_without_a_reason_is_named(status: str) -> None:
    pipe = brewing(now(status))
    async with connect(pipe) as client:
        with pytest.raises(errors.CallError, match=f"k-1 was {status}"):
            await (await client.start_task("t"))


async def test_the_end_may_come_with_the_beginning() -> None:
    """protocol.md 5.1: creation may start in any status."""
    pipe = brewing(done()).on("tools/call", begun("completed"))
    async with connect(pipe) as client:
        task = await client.start_task("t")
        assert task.is_over
        assert (await task).data == "tea"


async def test_cancelling_tells_the_server_once_for_each_time_asked() -> None:
    pipe = brewing(now("cancelled"))
    async with connect(pipe) as client:
        task = await client.start_task("t")
        await task.cancel()
        await task.cancel()
        with pytest.raises(errors.CallError, match="cancelled"):
            await task
    assert [one["params"]["taskId"] for one in pipe.all("tasks/cancel")] == ["k-1", "k-1"]
    assert pipe.all("notifications/cancelled") == [], "5.1: never for a task"


async def test_an_unknown_task_is_the_servers_error() -> None:
    pipe = brewing(Refused(-32602, "there is no such task"))
    pipe.on("tasks/cancel", Refused(-32602, "there is no such task"))
    async with connect(pipe) as client:
        task = client.task("k-9")
        assert (task.id, task.status) == ("k-9", "unknown")
        for use in (task.result, task.refresh, task.cancel):
            with pytest.raises(errors.CallError, match="no such task") as caught:
                await use()
            assert caught.value.code == -32602


# --- what makes no sense ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        {"resultType": "task"},
        {"resultType": "task", "status": "working"},
        {"resultType": "task", "taskId": 5, "status": "working"},
        {"resultType": "task", "taskId": "k", "status": 1},
        {"resultType": "task", "taskId": "k", "status": "working", "pollIntervalMs": "soon"},
        {"resultType": "task", "task": {"taskId": "k", "status": "working"}},
    ],
    ids=["empty", "no-id", "id-number", "status-number", "pace-text", "the-old-shape"],
)
async def test_a_malformed_beginning_is_refused(answer: Any) -> None:
    pipe = Pipe().modern().on("tools/call", answer)
    async with connect(pipe, tasks=True) as client:
        with pytest.raises(errors.RemoteProtocolError, match="task is malformed"):
            await client.start_task("t")
        with pytest.raises(errors.RemoteProtocolError, match="task is malformed"):
            await client.call_tool("t")


@pytest.mark.parametrize(
    "look",
    [
        {"resultType": "complete"},
        {"resultType": "complete", "taskId": "k-1", "status": None},
        now("input_required", inputRequests=[1]),
        now("input_required", inputRequests={"k": "what?"}),
        now("failed", error="broken"),
        now("completed"),
        now("completed", result=5),
        now("failed", error={"code": "x", "message": "m"}),
    ],
    ids=[
        "empty",
        "status-null",
        "questions-list",
        "question-text",
        "error-text",
        "completed-without-result",
        "result-number",
        "code-text",
    ],
)
async def test_a_malformed_look_is_refused(look: Any) -> None:
    pipe = brewing(look)
    async with connect(pipe) as client:
        with pytest.raises(errors.RemoteProtocolError):
            await soon((await client.start_task("t")).result())
        await client.ping()


async def test_a_malformed_legacy_beginning_is_refused() -> None:
    pipe = old().on("tools/call", {"task": {"status": "working"}})
    async with connect(pipe) as client:
        with pytest.raises(errors.RemoteProtocolError, match="task is malformed"):
            await client.start_task("t")


@pytest.mark.parametrize("method", ["tools/list", "prompts/get", "resources/read", "tasks/get", "vendor/thing"])
async def test_a_task_is_an_answer_to_a_call_and_to_nothing_else(method: str) -> None:
    """protocol.md 5.1: a task on another method is an invalid response."""
    pipe = Pipe().modern().on(method, begun())
    async with connect(pipe, tasks=True) as client:
        with pytest.raises(errors.RemoteProtocolError, match=f"{method} was answered with a task"):
            await client.request(method, {"name": "x", "uri": "r:1", "taskId": "k"})
        with pytest.raises(errors.RemoteProtocolError, match="was answered with a task"):
            await (client.task("k-1").refresh() if method == "tasks/get" else client.request(method))


async def test_a_task_nobody_offered_to_take_is_refused() -> None:
    pipe = brewing(done())
    async with connect(pipe) as client:
        with pytest.raises(errors.RemoteProtocolError, match="tools/call was answered with a task"):
            await client.call_tool("t")


# --- servers without tasks -------------------------------------------------------------------------------------------


async def test_an_answer_at_once_is_a_task_that_has_ended() -> None:
    pipe = Pipe().modern().on("tools/call", said("tea"))
    async with connect(pipe) as client:
        task = await client.start_task("t", into=str)
        assert (task.status, task.is_over) == ("completed", True)
        assert (await task).data == "tea"
        assert (await task.result(0.001)).data == "tea"
        assert await task.refresh() == TaskUpdate("completed")
        await task.cancel()
        assert [update.status async for update in task] == ["completed"]
    assert {one["method"] for one in pipe.heard} == {"server/discover", "tools/list", "tools/call"}


async def test_input_that_is_asked_for_before_the_task_begins_is_given_as_ever() -> None:
    """protocol.md 5.1: MRTR first, then the task."""
    pipe = brewing(done()).on("tools/call", input_required({"k": question()}, "state"), begun())
    async with connect(pipe, on_elicit=lambda one: one.accept({"name": "Ada"})) as client:
        assert (await (await client.start_task("t"))).data == "tea"
    again = pipe.all("tools/call")[1]["params"]
    assert again["inputResponses"]["k"]["content"] == {"name": "Ada"}
    assert all(TASKS in capabilities_of(one)["extensions"] for one in pipe.all("tools/call"))


async def test_a_legacy_server_that_answers_at_once_gives_a_task_that_has_ended() -> None:
    pipe = old().on("tools/call", said("tea"))
    async with connect(pipe) as client:
        task = await client.start_task("t")
        assert task.is_over
        assert (await task).data == "tea"


@pytest.mark.parametrize(
    ("version", "support", "tasked"),
    [(V11, None, True), (V11, "forbidden", True), (V11, "optional", False), (V06, "optional", True)],
    ids=["tool-says-nothing", "tool-forbids", "server-has-none", "revision-has-none"],
)
async def test_no_task_is_asked_for_where_there_are_none(version: str, support: str | None, tasked: bool) -> None:
    """protocol.md 5.2: `task` only where capability and `execution.taskSupport` allow it; elsewhere a server may answer -32601."""

    def reply(pipe: Pipe, message: dict[str, Any]) -> None:
        refused = {"code": -32601, "message": "no tasks"}
        if "task" in message["params"]:
            pipe.say({"jsonrpc": "2.0", "id": message["id"], "error": refused})
        else:
            pipe.say(ok(message["id"], said("tea")))

    pipe = old(version=version, support=support, tasked=tasked).on("tools/call", reply)
    async with connect(pipe) as client:
        assert (await (await client.start_task("t"))).data == "tea"


# --- what is declared ------------------------------------------------------------------------------------------------


async def test_the_extension_is_declared_where_it_is_needed_and_nowhere_else() -> None:
    pipe = brewing(now("working"), done())
    async with connect(pipe, on_elicit=lambda one: one.decline(), capabilities={"sampling": {}}) as client:
        task = await client.start_task("t")
        await task
        await client.task("k-1").cancel()
        pipe.on("tools/call", said("x"))
        await client.call_tool("t")
        await client.ping()
    declared = [(one["method"], capabilities_of(one).get("extensions")) for one in pipe.heard]
    assert declared == [
        ("server/discover", None),
        ("tools/list", None),
        ("tools/call", {TASKS: {}}),
        ("tasks/get", {TASKS: {}}),
        ("tasks/get", {TASKS: {}}),
        ("tasks/cancel", {TASKS: {}}),
        ("tools/call", None),
        ("server/discover", None),
    ]
    assert all({"elicitation", "sampling"} <= capabilities_of(one).keys() for one in pipe.heard)


async def test_other_extensions_stay_declared_beside_it() -> None:
    mine = {"com.example/x": {"y": 1}}
    pipe = brewing(done())
    async with connect(pipe, capabilities={"extensions": mine}) as client:
        await (await client.start_task("t", meta={"com.example/z": 1}))
        await client.list_tools(fresh=True)
    call = pipe.one("tools/call")
    assert capabilities_of(call)["extensions"] == {TASKS: {}, **mine}
    assert call["params"]["_meta"]["com.example/z"] == 1
    assert capabilities_of(pipe.all("tools/list")[-1])["extensions"] == mine


async def test_a_client_for_tasks_declares_it_on_every_call_of_a_tool() -> None:
    pipe = Pipe().modern().on("tools/call", said("x"))
    async with connect(pipe, tasks=True) as client:
        await client.call_tool("t")
        await client.call_tool("t", on_progress=lambda *_: None)
    assert [capabilities_of(one)["extensions"] for one in pipe.all("tools/call")] == [{TASKS: {}}] * 2


async def test_a_client_for_tasks_may_ask_for_them_in_the_plain_way_too() -> None:
    """protocol.md 5.1: `tasks/*` of a client that did not declare the extension is -32021."""
    pipe = brewing(now("working"))
    async with connect(pipe, tasks=True) as client:
        await client.get_task("k-1")
        await client.cancel_task("k-1")
    for method in ("tasks/get", "tasks/cancel"):
        assert TASKS in capabilities_of(pipe.one(method)).get("extensions", {}), method


async def test_a_handshake_knows_nothing_of_the_extension() -> None:
    pipe = old(said("tea"))
    async with connect(pipe, tasks=True) as client:
        await (await client.start_task("t"))
    assert not any(TASKS in line for line in pipe.lines)


# --- call_tool -------------------------------------------------------------------------------------------------------


async def test_a_call_waits_for_its_task_where_the_client_is_for_tasks() -> None:
    pipe = brewing(now("working"), wants(a="name?"), done())
    async with connect(pipe, tasks=True, on_elicit=lambda one: one.accept({"name": "Ada"})) as client:
        assert (await soon(client.call_tool("t", into=str))).data == "tea"
    assert pipe.one("tasks/update")["params"]["inputResponses"]["a"]["content"] == {"name": "Ada"}


async def test_a_call_that_became_a_task_fails_as_a_call() -> None:
    pipe = brewing(now("failed", error={"code": -32010, "message": "no water"}))
    async with connect(pipe, tasks=True) as client:
        with pytest.raises(errors.CallError, match="no water"):
            await client.call_tool("t")


@pytest.mark.parametrize("limit", ["timeout", "max_timeout"])
async def test_a_limit_given_with_a_call_holds_for_its_task(limit: str) -> None:
    """R195: every call has a limit of its own."""
    given: dict[str, Any] = {limit: 0.05}
    pipe = brewing(now("working"))
    async with connect(pipe, tasks=True) as client:
        await client.list_tools()
        with pytest.raises(errors.TimedOut):
            await soon(client.call_tool("t", **given), 1)


async def test_a_legacy_tool_that_must_be_a_task_is_called_as_one() -> None:
    """protocol.md 5.2: `required` without `task` is -32601."""

    def reply(pipe: Pipe, message: dict[str, Any]) -> None:
        if "task" in message["params"]:
            pipe.say(ok(message["id"], {"task": {"taskId": "k-1", "status": "working", "ttl": None}}))
        else:
            pipe.say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "only as a task"}})

    pipe = old(said("tea"), support="required").on("tools/call", reply)
    async with connect(pipe, tasks=True) as client:
        assert (await soon(client.call_tool("t"))).data == "tea"


# --- questions -------------------------------------------------------------------------------------------------------


async def test_each_question_is_answered_once_however_often_it_is_shown() -> None:
    """protocol.md 5.1: the client dedups keys."""
    pipe = brewing(wants(a="first?"), wants(a="first?"), wants(a="first?", b="second?"), wants(b="second?"), done())
    asked: list[str] = []

    def on_elicit(elicitation: Any) -> Any:
        asked.append(elicitation.message)
        return elicitation.accept({"name": elicitation.message})

    async with connect(pipe, on_elicit=on_elicit) as client:
        assert (await soon((await client.start_task("t")).result())).data == "tea"
    assert asked == ["first?", "second?"]
    given = [one["params"] for one in pipe.all("tasks/update")]
    assert {one["taskId"] for one in given} == {"k-1"}
    answers = [(key, answer["content"]["name"]) for one in given for key, answer in one["inputResponses"].items()]
    assert answers == [("a", "first?"), ("b", "second?")]


async def test_several_questions_at_once_are_all_answered() -> None:
    sampling = {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5},
    }
    both = now("input_required", inputRequests={"q": question(), "s": sampling, "r": {"method": "roots/list"}})
    pipe = brewing(both, done())
    options: dict[str, Any] = {"on_elicit": lambda one: one.decline(), "on_sample": lambda one: "ok", "roots": []}
    async with connect(pipe, **options) as client:
        await soon((await client.start_task("t")).result())
    given: dict[str, Any] = {}
    for one in pipe.all("tasks/update"):
        given |= one["params"]["inputResponses"]
    assert given["q"] == {"action": "decline"}
    assert given["s"]["content"]["text"] == "ok"
    assert given["r"] == {"roots": []}


async def test_refreshing_answers_too() -> None:
    pipe = brewing(wants(a="name?"))
    async with connect(pipe, on_elicit=lambda one: one.accept({"name": "Ada"})) as client:
        assert await client.task("k-1").refresh() == TaskUpdate("input_required")
    assert "a" in pipe.one("tasks/update")["params"]["inputResponses"]


async def test_a_question_nobody_here_can_answer_is_an_error_and_not_a_silence() -> None:
    pipe = brewing(wants(a="name?"))
    async with connect(pipe) as client:
        task = await client.start_task("t")
        for _ in range(2):  # asking again must not turn it into an endless wait
            with pytest.raises(errors.ProtocolError, match="elicitation/create"):
                await soon(task.result(), 0.5)
    assert pipe.all("tasks/update") == []


async def test_a_handler_that_breaks_is_heard_of_and_asked_again_the_next_time() -> None:
    pipe = brewing(wants(a="name?"))
    pipe.on("tasks/update", lambda pipe, message: pipe.on("tasks/get", done()).say(ok(message["id"], {})))
    asked: list[str] = []

    async def on_elicit(elicitation: Any) -> Any:
        asked.append(elicitation.message)
        if len(asked) == 1:
            raise RuntimeError("the window broke")
        return elicitation.accept({"name": "Ada"})

    async with connect(pipe, on_elicit=on_elicit) as client:
        task = await client.start_task("t")
        with pytest.raises((errors.Error, RuntimeError)):
            await task.result(1)
        assert (await soon(task.result(1))).data == "tea"
    assert asked == ["name?", "name?"]


async def test_a_question_that_was_cut_short_by_the_callers_patience_is_not_forgotten() -> None:
    """A wait that ran out can be taken up again, and so can what it was asking."""
    pipe = brewing(wants(a="name?"))
    pipe.on("tasks/update", lambda pipe, message: pipe.on("tasks/get", done()).say(ok(message["id"], {})))
    thinking = asyncio.Event()

    async def on_elicit(elicitation: Any) -> Any:
        await thinking.wait()
        return elicitation.accept({"name": "Ada"})

    async with connect(pipe, on_elicit=on_elicit) as client:
        task = await client.start_task("t")
        with pytest.raises(errors.TimedOut):
            await task.result(0.05)
        thinking.set()
        assert (await soon(task.result(1))).data == "tea"


async def test_an_answer_that_did_not_arrive_is_given_again() -> None:
    def reply(pipe: Pipe, message: dict[str, Any]) -> None:
        pipe.on("tasks/get", done()).say(ok(message["id"], {}))

    pipe = brewing(wants(a="name?")).on("tasks/update", Refused(-32603, "try later"), reply)
    async with connect(pipe, on_elicit=lambda one: one.accept({"name": "Ada"})) as client:
        task = await client.start_task("t")
        assert (await soon(task.result())).data == "tea"
    assert len(pipe.all("tasks/update")) == 2


# --- losing and closing ----------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_connection_that_is_lost_while_waiting_heals() -> None:
    def cut(pipe: Pipe, message: dict[str, Any]) -> None:
        pipe.hang_up()

    pipe = brewing(now("working"), cut, now("working"), cut, done())
    async with connect(pipe) as client:
        assert (await soon((await client.start_task("t")).result())).data == "tea"
    assert pipe.opened == 3
    assert len(pipe.all("tools/call")) == 1


async def test_the_beginning_of_a_task_is_not_repeated_after_a_loss() -> None:
    """Whether it was taken on nobody can tell; a second one would do the work twice."""
    pipe = brewing(done()).on("tools/call", lambda pipe, _: pipe.hang_up())
    pipe.on("tools/list", listed(tool("t", annotations={"idempotentHint": True})))
    async with connect(pipe) as client:
        with pytest.raises(errors.ConnectionLost):
            await soon(client.start_task("t"))
    assert len(pipe.all("tools/call")) == 1


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_closing_ends_a_wait_for_an_answer(era: str) -> None:
    pipe = brewing(None) if era == "modern" else old(None)
    client = connect(pipe)
    await client.open()
    task = await client.start_task("t")
    waiting = asyncio.ensure_future(task.result())
    async with finishing(waiting):
        await until(lambda: pipe.all("tasks/get") or pipe.all("tasks/result"))
        await client.close()
        with pytest.raises(errors.Closed):
            await soon(asyncio.shield(waiting))


async def test_closing_ends_a_pause_between_two_looks() -> None:
    pipe = brewing(now("working", pollIntervalMs=60_000))
    client = connect(pipe)
    await client.open()
    task = await client.start_task("t")
    waiting = asyncio.ensure_future(task.result())
    async with finishing(waiting):
        await until(lambda: task.status == "working" and pipe.all("tasks/get"))
        await client.close()
        with pytest.raises(errors.Closed):
            await soon(asyncio.shield(waiting), 1)


async def test_closing_ends_a_question() -> None:
    pipe = brewing(wants(a="name?"))
    asked = asyncio.Event()

    async def on_elicit(elicitation: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    client = connect(pipe, on_elicit=on_elicit)
    await client.open()
    waiting = asyncio.ensure_future((await client.start_task("t")).result())
    async with finishing(waiting):
        await soon(asked.wait())
        await client.close()
        with pytest.raises(errors.Closed):
            await soon(asyncio.shield(waiting), 1)


async def test_a_handle_needs_an_open_client_only_when_it_is_used() -> None:
    client = connect(brewing(done()))
    task = client.task("k-1")
    with pytest.raises(errors.NotReady):
        await task.refresh()
    async with client:
        assert (await task).data == "tea"
    with pytest.raises(errors.Closed):
        await client.task("k-1").refresh()


def test_a_repr_names_the_task() -> None:
    assert repr(connect(Pipe()).task("k-1")) == "<TaskHandle k-1 unknown>"


# --- 2025-11-25 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ttl", "sent"), [(None, {}), (90, {"ttl": 90_000}), (0.5, {"ttl": 500})])
async def test_a_legacy_task_is_asked_for_in_the_call(ttl: float | None, sent: Any) -> None:
    """protocol.md 5.2: `params.task{ttl?}`, in milliseconds."""
    pipe = old(said("tea"))
    async with connect(pipe) as client:
        task = await client.start_task("t", {"a": 1}, ttl=ttl)
        assert (task.id, task.status) == ("k-1", "working")
        assert (await task).data == "tea"
        assert (task.status, task.is_over) == ("completed", True)
        assert await task is await task
    params = pipe.one("tools/call")["params"]
    assert params == {"name": "t", "arguments": {"a": 1}, "task": sent}
    assert pipe.one("tasks/result")["params"] == {"taskId": "k-1"}
    assert pipe.all("tasks/get") == [], "it answers when it is done; there is nothing to look at"


async def test_a_legacy_wait_has_no_deadline_but_the_callers() -> None:
    release = asyncio.Event()

    async def later(pipe: Pipe, message: dict[str, Any]) -> None:
        await release.wait()
        pipe.say(ok(message["id"], said("tea")))

    pipe = old(later)
    async with connect(pipe, timeout=0.05) as client:
        task = await client.start_task("t", timeout=2)
        waiting = asyncio.ensure_future(task.result())
        async with finishing(waiting):
            with pytest.raises(errors.TimedOut, match="goes on"):
                await task.result(0.1)
            assert not waiting.done()
            release.set()
            assert (await soon(waiting)).data == "tea"


async def test_a_legacy_wait_may_be_taken_up_again() -> None:
    pipe = old(None, said("tea"))
    async with connect(pipe) as client:
        task = await client.start_task("t")
        with pytest.raises(errors.TimedOut):
            await task.result(0.02)
        assert (await soon(task.result())).data == "tea"
    assert pipe.all("tasks/cancel") == []


async def test_a_legacy_task_asks_while_its_result_is_waited_for() -> None:
    peer = ScriptedPeer().legacy(capabilities=TASKED)
    peer.allow("tools/list", result={"tools": [tool("t", execution={"taskSupport": "optional"})]})
    peer.expect("tools/call", {"task": {}}, result={"task": {"taskId": "k-1", "status": "working", "ttl": None}})
    peer.expect("tasks/result", {"taskId": "k-1"})
    related = {"_meta": {P + "related-task": {"taskId": "k-1"}}}
    question_of_it = {"message": "name?", "requestedSchema": FORM, **related}
    peer.ask("elicitation/create", question_of_it, answer={"result": {"content": {"name": "Ada"}}})
    peer.reply({"content": [{"type": "text", "text": "tea for Ada"}], **related}, to="tasks/result")
    async with connect(peer, on_elicit=lambda one: one.accept({"name": "Ada"})) as client:
        task = await client.start_task("t")
        assert (await soon(task.result())).data == "tea for Ada"
    peer.verify()


async def test_a_legacy_tasks_updates_answer_what_it_asks() -> None:
    """protocol.md 5.2: at input_required the requestor opens tasks/result, where it is asked; looking alone would wait for ever."""

    async def result(pipe: Pipe, message: dict[str, Any]) -> None:
        pipe.say(ask("q-1", "elicitation/create", {"message": "name?", "requestedSchema": FORM}))
        await pipe.answered("q-1")
        pipe.on("tasks/get", {"taskId": "k-1", "status": "completed", "ttl": None, "pollInterval": 20})
        pipe.say(ok(message["id"], said("tea")))

    pipe = old(result)
    pipe.on("tasks/get", {"taskId": "k-1", "status": "input_required", "ttl": None, "pollInterval": 20})
    async with connect(pipe, on_elicit=lambda one: one.accept({"name": "Ada"})) as client:
        task = await client.start_task("t")

        async def watch() -> list[str]:
            return [update.status async for update in task]

        assert await soon(watch(), 1) == ["input_required", "completed"]


async def test_a_completed_legacy_task_is_asked_for_until_its_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process has its store, the next has lost it; neither refusal is the end of the task."""
    monkeypatch.setattr(tasks, "_PAUSES", (0.0,))
    away = Refused(-32603, "the server cannot use its store at the moment; try again")
    pipe = old(away, away, said("tea"))
    pipe.on("tasks/get", {"taskId": "k-1", "status": "completed", "ttl": None, "pollInterval": 20})
    async with connect(pipe) as client:
        task = await client.start_task("t")
        assert (await soon(task.result())).data == "tea"
    assert len(pipe.all("tasks/result")) == 3


@pytest.mark.parametrize("error", [errors.ConnectionLost, errors.ConnectFailed, errors.TimedOut])
async def test_waiting_goes_on_when_nobody_answers_for_a_while(
    monkeypatch: pytest.MonkeyPatch, error: type[errors.Error]
) -> None:
    """A worker is ended, and the next one is not there yet: that says nothing about the task."""
    monkeypatch.setattr(tasks, "_PAUSES", (0.0,))
    pipe = old(said("tea")).on("tasks/get", {"taskId": "k-1", "status": "completed", "ttl": None, "pollInterval": 20})
    async with connect(pipe) as client:
        task = await client.start_task("t")
        asker = task._asker
        answered, failures = asker.call, [error("nobody is there")] * 2

        async def call(*arguments: Any, **options: Any) -> Any:
            if failures:
                raise failures.pop()
            return await answered(*arguments, **options)

        monkeypatch.setattr(asker, "call", call)
        assert (await soon(task.result())).data == "tea"
    assert not failures


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_a_legacy_task_that_fails_says_so_and_has_ended(status: str) -> None:
    pipe = old(Refused(-32010, f"it {status}", {"tap": 2}))
    pipe.on("tasks/get", {"taskId": "k-1", "status": status, "ttl": None})
    async with connect(pipe) as client:
        task = await client.start_task("t")
        with pytest.raises(errors.CallError, match=f"it {status}") as caught:
            await task
        assert (caught.value.code, caught.value.data) == (-32010, {"tap": 2})
        assert (task.status, task.is_over) == (status, True)


async def test_a_legacy_task_that_was_not_found_is_not_said_to_have_ended() -> None:
    pipe = old(Refused(-32602, "no such task")).on("tasks/get", Refused(-32602, "no such task"))
    async with connect(pipe) as client:
        task = client.task("k-9")
        with pytest.raises(errors.CallError, match="no such task"):
            await task
        assert not task.is_over


async def test_cancelling_a_legacy_task_that_has_ended_is_nothing() -> None:
    """protocol.md 5.2: terminal -> -32602, which is an error of nobody's here."""
    pipe = old().on("tasks/cancel", Refused(-32602, "it has ended"))
    pipe.on("tasks/get", {"taskId": "k-1", "status": "completed", "ttl": None})
    async with connect(pipe) as client:
        task = await client.start_task("t")
        await task.cancel()
        assert task.status == "completed"


async def test_cancelling_a_legacy_task_that_cannot_be_cancelled_is_an_error() -> None:
    pipe = old().on("tasks/cancel", Refused(-32603, "out of order"))
    pipe.on("tasks/get", {"taskId": "k-1", "status": "working", "ttl": None})
    async with connect(pipe) as client:
        with pytest.raises(errors.CallError, match="out of order"):
            await (await client.start_task("t")).cancel()


async def test_a_legacy_notification_of_a_status_disturbs_nothing() -> None:
    heard: list[Any] = []

    def result(pipe: Pipe, message: dict[str, Any]) -> None:
        pipe.say(tell("notifications/tasks/status", {"taskId": "k-1", "status": "completed"}))
        pipe.say(ok(message["id"], said("tea")))

    async with connect(old(result), on_notification=lambda method, params: heard.append(method)) as client:
        assert (await (await client.start_task("t"))).data == "tea"
    assert heard == ["notifications/tasks/status"]


def test_a_handle_that_ended_before_it_began_has_no_id() -> None:
    made = TaskHandle.ended(None)  # type: ignore[arg-type]
    assert (made.id, made.status, made.is_over) == ("", "completed", True)
