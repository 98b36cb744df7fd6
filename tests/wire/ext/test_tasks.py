"""Tasks on the wire, both protocols of them: the extension of 2026-07-28 and the core of 2025-11-25.

Whose rules: protocol.md 5.1, 5.2, 7.6; R73-R81, C22-C24. The tools wait for the test at gates, so nothing here depends on
how long anything takes.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import pytest
from msgspec import Meta
from tests.support.badges import ALICE, ALICE_ELSEWHERE, BOB, NOBODY, Badges, badge
from tests.support.harness import (
    LEGACY,
    Channel,
    P,
    Reply,
    Session,
    Stream,
    Wire,
    by_name,
    encode,
    meta,
    notification,
    request,
    serve,
)
from tests.support.inside import inside
from tests.support.until import PATIENCE, soon, until

from trimaran import Context, Limits, ProtocolError, Server, ToolError
from trimaran.auth import Principal
from trimaran.errors import ConfigError
from trimaran.ext.tasks import EXTENSION, Tasks

RELATED = P + "related-task"
TASKS = {"extensions": {EXTENSION: {}}}
ALL = {**TASKS, "elicitation": {}, "sampling": {}, "roots": {}}
ASKED = {"elicitation": {}, "sampling": {}, "roots": {}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
UNKNOWN = "task_" + "0" * 32
V11, *OLDER = LEGACY
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]


class Open(Badges):
    is_open = True


class Stage:
    """What a test and its tools share: gates that the tools wait at, and what became of them."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = asyncio.Event()
        self.log: list[str] = []
        self.thread_go = threading.Event()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    stage.go.set()
    stage.thread_go.set()


def working(stage: Stage, **options: Any) -> Server:
    server = Server("working", version="1", **options)

    @server.tool
    async def quick(text: str = "quick") -> str:
        return text

    @server.tool(long_running=True)
    async def slow(text: str = "done") -> str:
        stage.log.append("begun")
        stage.began.set()
        try:
            await stage.go.wait()
        finally:
            stage.log.append("left")
        stage.log.append("finished")
        return text

    @server.tool(long_running="required")
    async def only_as_task() -> str:
        return "done"

    @server.tool(long_running=True)
    async def failing() -> str:
        raise ToolError("no luck")

    @server.tool(long_running=True)
    async def broken() -> str:
        raise ProtocolError(-31000, "broken", {"why": "it broke"})

    @server.tool(long_running=True)
    async def crashing() -> str:
        raise RuntimeError("secret detail")

    @server.tool(long_running=True)
    async def stubborn() -> str:
        stage.began.set()
        try:
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.log.append("swallowed")
        return "too late"

    @server.tool(long_running=True)
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", NAME)
        return f"{answer.action} {answer.content}"

    @server.tool(long_running=True)
    async def ask_two(ctx: Context) -> str:
        one, two = await asyncio.gather(
            ctx.elicit("One?", NAME, key="one"), ctx.sample("Two?", max_tokens=10, key="two")
        )
        return f"{one.content['name']} {two.text}"

    @server.tool(long_running=True)
    async def ask_bravely(ctx: Context) -> str:
        try:
            await ctx.elicit("Your name?", NAME)
        except ProtocolError as error:
            return f"went on without: {error.message}"
        return "asked"

    @server.tool(long_running="on_detach")
    async def later(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", NAME, key="name")
        await ctx.detach()
        stage.began.set()
        await stage.go.wait()
        return f"hello {answer.content['name']}"

    @server.tool(long_running="on_detach")
    async def ask_before_and_after(ctx: Context) -> str:
        before = await ctx.elicit("Before?", NAME, key="name")
        await ctx.detach()
        after = await ctx.elicit("After?", NAME, key="name")
        return f"{before.content['name']} {after.content['name']}"

    @server.tool(long_running="on_detach")
    async def undecided(detach: bool, ctx: Context) -> str:
        stage.began.set()
        try:
            if detach:
                await ctx.detach()
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.log.append("cancelled")
            raise
        return "done"

    @server.tool(long_running=True)
    def threaded(ctx: Context) -> str:
        stage.log.append("begun")
        stage.thread_go.wait(PATIENCE)
        stage.log.append(f"cancelled {ctx.cancelled}")
        return "from a thread"

    @server.tool(long_running=True)
    def threaded_ask(ctx: Context) -> str:
        return f"hello {ctx.wait(ctx.elicit('Your name?', NAME)).content['name']}"

    @server.tool(long_running=True)
    def threaded_progress(ctx: Context) -> str:
        stage.thread_go.wait(PATIENCE)
        ctx.progress(1, message="half way")
        return "done"

    @server.tool(long_running=True)
    async def counting() -> AsyncIterator[str]:
        for number in ("one ", "two ", "three"):
            yield number

    @server.tool(long_running=True)
    async def reporting(ctx: Context) -> str:
        await ctx.progress(1, 2, "half way")
        await ctx.log("error", "a word")
        stage.began.set()
        await stage.go.wait()
        return "done"

    @server.tool(long_running=True)
    async def structured() -> dict[str, int]:
        return {"answer": 42}

    return server


# --- a modern client -------------------------------------------------------------------------------------------------


async def ask(wire: Wire, method: str, id: str, *, caps: Any = ALL, headers: Any = None, **params: Any) -> Reply:
    headers = {"Mcp-Name": id, **(headers or {})}
    return await wire.modern(method, {"taskId": id, **params}, caps=caps, headers=headers)


async def start(wire: Wire, name: str, arguments: Any = None, **rest: Any) -> str:
    reply = await wire.call(name, arguments, caps=rest.pop("caps", ALL), **rest)
    assert reply.result["resultType"] == "task", reply
    return reply.result["taskId"]


async def get(wire: Wire, id: str, **rest: Any) -> dict[str, Any]:
    return (await ask(wire, "tasks/get", id, **rest)).result


async def reach(wire: Wire, id: str, *statuses: str, **rest: Any) -> dict[str, Any]:
    """Look at a task until it has come this far."""
    async with asyncio.timeout(PATIENCE):
        while (found := await get(wire, id, **rest))["status"] not in statuses:
            await asyncio.sleep(0.001)
    return found


def is_ack(reply: Reply) -> bool:
    """An empty acknowledgement: nothing of the task in it."""
    assert reply.status == 200
    return reply.result["resultType"] == "complete" and set(reply.result) <= {"resultType", "_meta"}


def accept(name: str = "Ada") -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "a haiku"}, "model": "m"}


def text(result: Mapping[str, Any]) -> str:
    return result["content"][0]["text"]


async def test_a_long_running_call_is_answered_at_once_with_a_flat_task(binding: str, stage: Stage) -> None:
    """R73, R75."""
    async with serve(binding, working(stage)) as wire:
        reply = await wire.call("slow", caps=ALL)
        assert reply.status == 200
        result = {k: v for k, v in reply.result.items() if k != "_meta"}
        assert set(result) == {
            "resultType",
            "taskId",
            "status",
            "createdAt",
            "lastUpdatedAt",
            "ttlMs",
            "pollIntervalMs",
        }
        assert (result["resultType"], result["status"]) == ("task", "working")
        assert re.fullmatch(r"task_[0-9a-f]{32}", result["taskId"])
        assert ISO.fullmatch(result["createdAt"])
        assert ISO.fullmatch(result["lastUpdatedAt"])
        assert (result["ttlMs"], result["pollIntervalMs"]) == (3_600_000, 1000)
        assert RELATED not in reply.result.get("_meta", {})
        await soon(stage.began.wait())
        assert stage.log == ["begun"]


async def test_a_task_can_be_looked_at_the_moment_it_is_known(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        for _ in range(20):
            id = await start(wire, "slow")
            found = await get(wire, id)
            assert (found["taskId"], found["status"], found["resultType"]) == (id, "working", "complete")
            assert not found.keys() & {
                "result",
                "error",
                "inputRequests",
                "requestState",
                "ttl",
                "pollInterval",
                "task",
            }


async def test_a_finished_task_holds_the_very_result_of_the_call(binding: str, stage: Stage) -> None:
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        found = await reach(wire, await start(wire, "slow", {"text": "so be it"}), "completed")
        assert found["resultType"] == "complete"
        assert text(found["result"]) == "so be it"
        assert RELATED not in found["result"].get("_meta", {})
        assert "error" not in found
        structured = await reach(wire, await start(wire, "structured"), "completed")
        assert structured["result"]["structuredContent"] == {"answer": 42}
        # And again, as often as it is asked.
        assert (await get(wire, structured["taskId"]))["result"] == structured["result"]


async def test_a_result_too_large_to_be_kept_is_a_failed_task(
    binding: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be kept for an hour, and there may be a thousand of them."""
    monkeypatch.setattr("trimaran.ext.tasks.run.MAX_RESULT", 1000)
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        found = await reach(wire, await start(wire, "slow", {"text": "x" * 2000}), "completed", "failed")
        assert found["status"] == "failed"
        assert "a task keeps at most 1000" in found["error"]["message"]
        assert (await reach(wire, await start(wire, "slow", {"text": "small"}), "completed"))["status"] == "completed"


async def test_what_a_tool_calls_a_failure_is_a_completed_task(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        for name in ("failing", "crashing"):
            found = await reach(wire, await start(wire, name), "completed", "failed")
            assert found["status"] == "completed"
            assert found["result"]["isError"] is True
            assert "secret" not in str(found)


async def test_an_error_of_the_protocol_is_a_failed_task(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        found = await reach(wire, await start(wire, "broken"), "completed", "failed")
        assert found["status"] == "failed"
        assert found["error"] == {"code": -31000, "message": "broken", "data": {"why": "it broke"}}
        assert "result" not in found


async def test_arguments_that_do_not_fit_are_told_either_way(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        reply = await wire.call("slow", {"text": 7}, caps=ALL)
        result = reply.result
        if result["resultType"] == "task":
            result = (await reach(wire, result["taskId"], "completed"))["result"]
        assert result["isError"] is True
        assert "text" in text(result)
        assert stage.log == []


async def test_a_quick_tool_is_no_task(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        result = (await wire.call("quick", caps=ALL)).result
        assert (result["resultType"], text(result)) == ("complete", "quick")
        assert "taskId" not in result


@pytest.mark.parametrize("hint", [{}, {"ttl": 5}, None, "yes", 7], ids=str)
async def test_the_hint_of_the_older_protocol_means_nothing_here(binding: str, stage: Stage, hint: Any) -> None:
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        assert (await wire.call("quick", more={"task": hint}, caps=ALL)).result["resultType"] == "complete"
        assert (await wire.call("slow", more={"task": hint}, caps=ALL)).result["ttlMs"] == 3_600_000
        assert text((await wire.call("slow", more={"task": hint})).result) == "done"


async def test_a_client_without_the_extension_waits_for_the_result(binding: str, stage: Stage) -> None:
    """C22. And the capability of the older protocol does not count."""
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        for caps in ({}, {"tasks": {"requests": {"tools": {"call": {}}}}}, {"extensions": {"com.example/x": {}}}):
            result = (await wire.call("slow", caps=caps)).result
            assert (result["resultType"], text(result)) == ("complete", "done")


async def test_what_runs_only_as_a_task_needs_the_extension(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        reply = await wire.call("only_as_task")
        assert reply.verdict == (400, -32021, 1)
        assert reply.error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        assert (await wire.call("only_as_task", caps=TASKS)).result["resultType"] == "task"


@pytest.mark.parametrize("caps", [{}, {"tasks": {"list": {}}}], ids=["nothing", "the older capability"])
@pytest.mark.parametrize("method", METHODS)
async def test_the_methods_of_tasks_need_the_extension(binding: str, stage: Stage, method: str, caps: Any) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "slow")
        for one in (id, UNKNOWN):
            reply = await ask(wire, method, one, caps=caps, inputResponses={})
            assert reply.verdict == (400, -32021, 1)
            assert reply.error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        assert (await get(wire, id))["status"] == "working"


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
async def test_methods_that_were_taken_out_do_not_exist(binding: str, stage: Stage, method: str) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "slow")
        assert (await ask(wire, method, id)).verdict == (404, -32601, 1)


@pytest.mark.parametrize("method", METHODS)
async def test_without_long_running_tools_there_are_no_tasks(binding: str, method: str) -> None:
    server = Server("plain", version="1")
    server.add_tool(lambda: "x", name="t")
    async with serve(binding, server) as wire:
        assert (await ask(wire, method, UNKNOWN)).verdict == (404, -32601, 1)
        assert "extensions" not in (await wire.modern("server/discover")).result["capabilities"]


@pytest.mark.parametrize("id", [UNKNOWN, "", "x" * 10_000, "../../etc", "\u2603"], ids=lambda id: ascii(id[:10]))
@pytest.mark.parametrize("method", METHODS)
async def test_an_unknown_id_is_a_wrong_parameter(binding: str, stage: Stage, method: str, id: str) -> None:
    async with serve(binding, working(stage)) as wire:
        name = id if id.isascii() else "=?base64?4piD?="
        reply = await ask(wire, method, id, headers={"Mcp-Name": name}, inputResponses={})
        assert reply.verdict == (400, -32602, 1)
        assert len(reply.body) < 1000


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("params", [{}, {"taskId": 7}, {"taskId": None}], ids=["none", "a number", "null"])
async def test_an_id_that_is_no_string_is_a_wrong_parameter(
    binding: str, stage: Stage, method: str, params: Any
) -> None:
    async with serve(binding, working(stage)) as wire:
        assert (await wire.modern(method, params, caps=ALL)).verdict == (400, -32602, 1)


@pytest.mark.parametrize("answers", ["null", "[]", "7", '"x"'])
async def test_answers_that_are_no_object_are_a_wrong_parameter(binding: str, stage: Stage, answers: str) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "ask")
        pairs, body = wire.modern_parts(
            "tasks/update", {"taskId": id, "inputResponses": "HERE"}, caps=ALL, headers={"Mcp-Name": id}
        )
        reply = await wire.send("POST", pairs, body.replace(b'"HERE"', answers.encode()))
        assert reply.verdict == (400, -32602, 1)
        assert (await reach(wire, id, "input_required"))["inputRequests"]


@pytest.mark.parametrize(
    "answers", [b'{"a":"\\q"}', b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"], ids=["escape", "deep"]
)
async def test_answers_that_are_no_json_are_a_parse_error(binding: str, stage: Stage, answers: bytes) -> None:
    """They are left raw at first; what is found only later is still the client's mistake and not an internal error."""
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "ask")
        pairs, body = wire.modern_parts(
            "tasks/update", {"taskId": id, "inputResponses": "HERE"}, caps=ALL, headers={"Mcp-Name": id}
        )
        reply = await wire.send("POST", pairs, body.replace(b'"HERE"', answers))
        assert (reply.status, reply.error["code"]) == (400, -32700)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "header",
    [{"Mcp-Name": None}, {"Mcp-Name": UNKNOWN}, {"Mcp-Method": "tools/call"}, {"Mcp-Method": None}],
    ids=["no name", "another name", "another method", "no method"],
)
async def test_headers_repeat_the_method_and_the_task(binding: str, stage: Stage, method: str, header: Any) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "slow")
        assert (await ask(wire, method, id, headers=header, inputResponses={})).verdict == (400, -32020, 1)
        assert (await get(wire, id))["status"] == "working"


async def test_the_extension_is_advertised_and_the_older_capability_is_not(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        capabilities = (await wire.modern("server/discover", caps=ALL)).result["capabilities"]
        assert capabilities["extensions"] == {EXTENSION: {}}
        assert "tasks" not in capabilities
        tools = (await wire.modern("tools/list", caps=ALL)).result["tools"]
        assert all("execution" not in tool for tool in tools)


# --- cancelling


async def test_a_cancelled_task_really_stops(binding: str, stage: Stage) -> None:
    """R76."""
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "slow")
        await soon(stage.began.wait())
        assert is_ack(await ask(wire, "tasks/cancel", id))
        await until(lambda: "left" in stage.log, "the end of the body")
        found = await reach(wire, id, "cancelled")
        assert not found.keys() & {"result", "error", "inputRequests"}
        stage.go.set()
        assert stage.log == ["begun", "left"]


async def test_what_comes_of_a_cancelled_task_later_is_dropped(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "stubborn")
        await soon(stage.began.wait())
        assert is_ack(await ask(wire, "tasks/cancel", id))
        await until(lambda: stage.log == ["swallowed"], "the body's second thoughts")
        before = await get(wire, id)
        for _ in range(5):
            assert await get(wire, id) == before
        assert before["status"] == "cancelled"
        assert "result" not in before


async def test_cancelling_what_has_ended_changes_nothing_and_is_no_error(binding: str, stage: Stage) -> None:
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        for name, end in (("slow", "completed"), ("broken", "failed")):
            id = await start(wire, name)
            before = await reach(wire, id, end)
            for _ in range(2):
                assert is_ack(await ask(wire, "tasks/cancel", id))
            assert await get(wire, id) == before
        stage.go.clear()
        id = await start(wire, "slow")
        for _ in range(3):
            assert is_ack(await ask(wire, "tasks/cancel", id))
        assert (await get(wire, id))["status"] == "cancelled"


async def test_cancelling_a_task_that_waits_for_an_answer_ends_it(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "ask")
        (key,) = (await reach(wire, id, "input_required"))["inputRequests"]
        assert is_ack(await ask(wire, "tasks/cancel", id))
        assert "inputRequests" not in await reach(wire, id, "cancelled")
        assert is_ack(await ask(wire, "tasks/update", id, inputResponses={key: accept()}))
        assert (await get(wire, id))["status"] == "cancelled"


# --- asking in the middle


async def test_a_task_asks_by_its_status_and_goes_on_with_the_answer(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "ask")
        found = await reach(wire, id, "input_required")
        assert found["resultType"] == "complete"
        assert "requestState" not in found
        ((key, asked),) = found["inputRequests"].items()
        assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", "Your name?")
        assert asked["params"]["requestedSchema"]["properties"] == NAME["properties"]
        assert set(asked) == {"method", "params"}
        assert is_ack(await ask(wire, "tasks/update", id, inputResponses={key: accept()}))
        done = await reach(wire, id, "completed")
        assert text(done["result"]) == "accept {'name': 'Ada'}"
        assert "inputRequests" not in done


async def test_answers_may_come_in_parts_and_in_any_order(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "ask_two")
        async with asyncio.timeout(PATIENCE):
            while set((await reach(wire, id, "input_required"))["inputRequests"]) != {"one", "two"}:
                await asyncio.sleep(0.001)
        assert is_ack(await ask(wire, "tasks/update", id, inputResponses={"two": SAMPLED, "three": {}}))
        left = await get(wire, id)
        assert (left["status"], list(left["inputRequests"])) == ("input_required", ["one"])
        # What was answered is answered: a second answer, or one to nothing, is passed over.
        assert is_ack(await ask(wire, "tasks/update", id, inputResponses={"two": {"content": "other"}}))
        assert is_ack(await ask(wire, "tasks/update", id, inputResponses={}))
        assert list((await get(wire, id))["inputRequests"]) == ["one"]
        assert is_ack(await ask(wire, "tasks/update", id, inputResponses={"one": accept("Bo")}))
        assert text((await reach(wire, id, "completed"))["result"]) == "Bo a haiku"


@pytest.mark.parametrize("answer", [7, None, {}, {"action": "perhaps"}, "yes"], ids=str)
async def test_an_answer_that_makes_no_sense_does_not_hang_the_task(binding: str, stage: Stage, answer: Any) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "ask")
        (key,) = (await reach(wire, id, "input_required"))["inputRequests"]
        reply = await ask(wire, "tasks/update", id, inputResponses={key: answer})
        assert reply.status == (200 if isinstance(answer, dict) else 400)
        found = await get(wire, id)
        if found["status"] != "input_required":  # or it is asked again
            assert (await reach(wire, id, "failed", "completed"))["status"]


async def test_a_question_the_client_cannot_answer_fails_the_task(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        found = await reach(wire, await start(wire, "ask", caps=TASKS), "failed", caps=TASKS)
        assert found["error"]["code"] == -32021
        assert "elicitation" in found["error"]["data"]["requiredCapabilities"]


async def test_a_modern_client_is_asked_only_what_it_knows(binding: str, stage: Stage) -> None:
    """protocol.md 1.3: three methods, in a task as anywhere."""
    server = working(stage)

    @server.tool(long_running=True)
    async def odd(ctx: Context) -> str:
        return str(await ctx.request("vendor/question"))

    async with serve(binding, server) as wire:
        found = await reach(wire, await start(wire, "odd"), "failed", "input_required")
        assert found["status"] == "failed", found


async def test_input_first_and_then_a_task(binding: str, stage: Stage) -> None:
    """protocol.md 5.1: what is asked before the task is asked by rounds."""
    async with serve(binding, working(stage)) as wire:
        first = (await wire.call("later", caps=ALL)).result
        assert first["resultType"] == "input_required"
        assert "taskId" not in first
        assert list(first["inputRequests"]) == ["name"]
        more = {"requestState": first["requestState"], "inputResponses": {"name": accept()}}
        second = (await wire.call("later", more=more, caps=ALL)).result
        assert second["resultType"] == "task"
        assert not second.keys() & {"requestState", "inputRequests", "content"}
        found = await get(wire, second["taskId"])
        assert found["status"] == "working"
        assert not found.keys() & {"requestState", "inputRequests"}
        stage.go.set()
        assert text((await reach(wire, second["taskId"], "completed"))["result"]) == "hello Ada"


async def test_the_keys_of_rounds_and_those_of_a_task_do_not_meet(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        first = (await wire.call("ask_before_and_after", caps=ALL)).result
        more = {"requestState": first["requestState"], "inputResponses": {"name": accept("Ada")}}
        id = await start(wire, "ask_before_and_after", more=more)
        (key,) = (await reach(wire, id, "input_required"))["inputRequests"]
        await ask(wire, "tasks/update", id, inputResponses={key: accept("Bo")})
        assert text((await reach(wire, id, "completed"))["result"]) == "Ada Bo"


async def test_a_forged_state_makes_no_task(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        first = (await wire.call("later", caps=ALL)).result
        more = {"requestState": first["requestState"] + "x", "inputResponses": {"name": accept()}}
        assert (await wire.call("later", more=more, caps=ALL)).verdict == (400, -32602, 1)


async def test_without_the_extension_detaching_is_nothing(binding: str, stage: Stage) -> None:
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        result = (await wire.call("undecided", {"detach": True})).result
        assert (result["resultType"], text(result)) == ("complete", "done")


async def test_who_never_detaches_is_no_task(binding: str, stage: Stage) -> None:
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        result = (await wire.call("undecided", {"detach": False}, caps=ALL)).result
        assert (result["resultType"], text(result)) == ("complete", "done")
        result = (await wire.call("undecided", {"detach": True}, caps=ALL)).result
        assert result["resultType"] == "task"


async def test_a_client_that_leaves_before_the_task_ends_the_call(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        calling = asyncio.ensure_future(wire.open_call("undecided", {"detach": False}, caps=ALL))
        await soon(stage.began.wait())
        await leave(wire, calling)
        await until(lambda: stage.log == ["cancelled"], "the end of the body")


async def leave(wire: Wire, calling: asyncio.Task[Stream]) -> None:
    """Hang up on a call that has not been answered."""
    calling.cancel()
    await asyncio.wait([calling])


async def test_a_client_that_leaves_after_it_leaves_the_task_alone(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        stream = await wire.open_call("undecided", {"detach": True}, caps=ALL)
        id = (Reply(stream.status, stream.pairs, await stream.read())).result["taskId"]
        await stream.close()
        assert (await get(wire, id))["status"] == "working"
        stage.go.set()
        assert (await reach(wire, id, "completed"))["result"]
        assert stage.log == []


async def test_what_is_said_before_the_task_is_said_on_the_stream_and_nothing_after(binding: str, stage: Stage) -> None:
    server = working(stage)

    @server.tool(long_running="on_detach")
    async def talkative(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.detach()
        await stage.go.wait()
        await ctx.progress(2)
        return "done"

    async with serve(binding, server) as wire:
        reply = await wire.call("talkative", caps=ALL, extra={"progressToken": "t"})
        *before, made = reply.messages
        assert [one["params"]["progress"] for one in before] == [1]
        assert made["result"]["resultType"] == "task"
        stage.go.set()
        assert text((await reach(wire, made["result"]["taskId"], "completed"))["result"]) == "done"


async def test_a_question_under_way_when_the_body_detaches_does_not_lose_the_task(binding: str, stage: Stage) -> None:
    """Asked by rounds, which there are none of any more: the task may fail or ask again, but it may not work for ever."""
    server = working(stage)

    @server.tool(long_running="on_detach")
    async def hasty(ctx: Context) -> str:
        answer, _ = await asyncio.gather(ctx.elicit("Your name?", NAME), ctx.detach())
        return answer.action

    async with serve(binding, server) as wire:
        result = (await wire.call("hasty", caps=ALL)).result
        if result["resultType"] == "task":
            await reach(wire, result["taskId"], "input_required", "failed", "completed")


async def test_a_body_that_objects_to_being_cancelled_is_not_an_error_of_the_loop(
    binding: str, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    server = working(stage)

    @server.tool(long_running="on_detach")
    async def objecting() -> str:
        try:
            stage.began.set()
            await stage.go.wait()
        finally:
            stage.log.append("left")
            raise ProtocolError(-31000, "I object")

    async with serve(binding, server) as wire:
        calling = asyncio.ensure_future(wire.open_call("objecting", caps=ALL))
        await soon(stage.began.wait())
        await leave(wire, calling)
        await until(lambda: stage.log == ["left"], "the end of the body")
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_task_of_the_host_is_a_task_like_any(binding: str) -> None:
    """R78."""
    server = Server("host", version="1")
    tasks = Tasks(ttl=60, poll=0.5)
    server.enable_extension(tasks)
    server.add_tool(lambda: "x", name="t")
    async with serve(binding, server, auth=Open()) as wire:
        principal = Principal(subject="alice")
        ids = [await tasks.begin("export", owner=principal) for _ in range(3)]
        found = await get(wire, ids[0], headers=ALICE)
        assert (found["status"], found["ttlMs"], found["pollIntervalMs"]) == ("working", 60_000, 500)
        assert (await ask(wire, "tasks/get", ids[0], headers=BOB)).verdict == (400, -32602, 1)
        stream, hello = await listen(wire, ids, headers=ALICE)
        async with stream:
            assert hello["params"]["notifications"] == {"taskIds": ids}
            await tasks.finish(ids[0], {"rows": 3})
            assert (await stream.message())["params"]["status"] == "completed"
            await tasks.fail(ids[1], "the disk is full")
            heard = (await stream.message())["params"]
            assert (heard["status"], heard["error"]["message"]) == ("failed", "the disk is full")
            assert is_ack(await ask(wire, "tasks/cancel", ids[2], headers=ALICE))
            assert (await stream.message())["params"]["status"] == "cancelled"
        assert not await tasks.finish(ids[2], "late")
        assert "rows" in text((await get(wire, ids[0], headers=ALICE))["result"])


async def test_a_task_of_the_host_may_belong_to_an_anonymous_session(binding: str) -> None:
    """R78, R80: its client sees it, hears of it, and nobody else does."""
    server = Server("host", version="1")
    tasks = Tasks()
    server.enable_extension(tasks)
    ids: list[str] = []

    @server.tool
    async def order(ctx: Context) -> str:
        ids.append(await tasks.begin("export", owner=ctx.auth, session=ctx.session_id))
        return ids[-1]

    async with serve(binding, server) as wire:
        session, other = await wire.initialize(), await wire.initialize()
        await session.call("order")
        async with await session.get() as stream:
            await tasks.finish(ids[0], "done")
            heard = await stream.message()
            assert (heard["method"], heard["params"]["taskId"]) == ("notifications/tasks/status", ids[0])
        assert (await session.ask("tasks/get", {"taskId": ids[0]})).result["status"] == "completed"
        assert [task["taskId"] for task in (await session.ask("tasks/list")).result["tasks"]] == ids
        assert (await other.ask("tasks/get", {"taskId": ids[0]})).error["code"] == -32602
        await wire.call("order")  # of 2026-07-28, where there are no sessions: whoever knows the id
        assert (await get(wire, ids[1]))["status"] == "working"
        live = inside(server).sessions.here(session.id)
        by_object = await tasks.begin("export", session=live)
        assert (await session.ask("tasks/get", {"taskId": by_object})).result["status"] == "working"


async def test_a_session_with_a_principal_gives_its_tasks_to_the_principal(binding: str) -> None:
    """R78, R80: also in another session of theirs."""
    server = Server("host", version="1")
    tasks = Tasks()
    server.enable_extension(tasks)
    server.add_tool(lambda: "x", name="t")
    async with serve(binding, server, auth=Open()) as wire:
        session, again = await wire.initialize(headers=ALICE), await wire.initialize(headers=ALICE)
        id = await tasks.begin("export", session=session.id)
        assert (await again.ask("tasks/get", {"taskId": id})).result["status"] == "working"


class Stranger:
    """A principal that equals nothing: without a subject, and compared by identity."""


async def test_an_owner_that_nobody_can_be_is_refused(binding: str) -> None:
    """R78: the task would be one that nobody can ever look at."""
    server = Server("host", version="1")
    tasks = Tasks()
    server.enable_extension(tasks)
    async with serve(binding, server) as wire:
        session = await wire.initialize()
        for owner in (Stranger(), inside(server).sessions.here(session.id), {"name": "alice"}):
            with pytest.raises(ConfigError, match="has no subject.*session=ctx.session_id"):
                await tasks.begin("export", owner=owner)
        for stray in ("mcp_0123", Stranger(), 5):
            with pytest.raises(ConfigError, match="is not a live session"):
                await tasks.begin("export", session=stray)
        assert await tasks.count() == 0


# --- whose they are


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("other", [BOB, ALICE_ELSEWHERE, NOBODY], ids=["bob", "another alice", "nobody"])
async def test_anothers_task_is_what_an_unknown_one_is(binding: str, stage: Stage, method: str, other: Any) -> None:
    """R80, R102; protocol.md 6.3."""
    async with serve(binding, working(stage), auth=Open()) as wire:
        id = await start(wire, "ask", headers=ALICE)
        asked = await reach(wire, id, "input_required", headers=ALICE)
        answers = {key: accept("Mallory") for key in asked["inputRequests"]}
        foreign = await ask(wire, method, id, headers=other, inputResponses=answers)
        unknown = await ask(wire, method, UNKNOWN, headers=other, inputResponses=answers)
        assert foreign.verdict == unknown.verdict == (400, -32602, 1)
        assert foreign.error["message"].replace(id, UNKNOWN) == unknown.error["message"]
        assert await get(wire, id, headers=badge("alice+read")) == asked


async def test_one_who_has_no_name_sees_nothing_of_those_who_have(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage), auth=Open()) as wire:
        anonymous = await start(wire, "slow")
        assert (await get(wire, anonymous))["status"] == "working"
        assert (await ask(wire, "tasks/get", anonymous, headers=ALICE)).verdict == (400, -32602, 1)


async def test_tasks_of_a_session_are_not_there_for_a_modern_stranger(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        id = (await session.ask("tools/call", {"name": "slow", "task": {}})).result["task"]["taskId"]
        assert (await ask(wire, "tasks/get", id)).verdict == (400, -32602, 1)
        modern = await start(wire, "slow")
        assert (await session.ask("tasks/get", {"taskId": modern})).error["code"] == -32602


async def test_scopes_and_sight_are_asked_before_a_task_is_made(binding: str, stage: Stage) -> None:
    """R183: who may not use a tool gets the refusal itself, not a task that fails; and a hidden tool does not exist."""
    server = working(stage)

    @server.tool(scopes=["write"], long_running=True)
    async def guarded() -> str:
        return "in"

    @server.tool(visible_to=["admin"], long_running=True)
    async def hidden() -> str:
        return "in"

    @server.tool(visible_to=["admin"], long_running="required")
    async def hidden_too() -> str:
        return "in"

    async with serve(binding, server, auth=Open()) as wire:
        refused = await wire.call("guarded", caps=ALL, headers=ALICE)
        assert "error" in refused.messages[-1], refused
        assert refused.error["code"] == -32600
        unknown = await wire.call("no_such_tool", caps=ALL, headers=ALICE)
        for name, caps in (("hidden", ALL), ("hidden_too", ALL), ("hidden_too", {})):
            found = await wire.call(name, caps=caps, headers=ALICE)
            assert "error" in found.messages[-1], found
            assert found.verdict == unknown.verdict
        for name, who in (("guarded", "alice+write"), ("hidden", "root+admin")):
            assert (await wire.call(name, caps=ALL, headers=badge(who))).result["resultType"] == "task"


async def test_a_header_that_repeats_an_argument_is_checked_before_a_task_is_made(binding: str, stage: Stage) -> None:
    server = working(stage)

    @server.tool(long_running=True)
    async def routed(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]) -> str:
        return region

    async with serve(binding, server) as wire:
        right = await wire.call("routed", {"region": "eu"}, caps=ALL, headers={"Mcp-Param-Region": "eu"})
        assert right.result["resultType"] == "task"
        wrong = await wire.call("routed", {"region": "eu"}, caps=ALL, headers={"Mcp-Param-Region": "us"})
        assert "error" in wrong.messages[-1], wrong
        assert wrong.verdict == (400, -32020, 1)


async def test_one_caller_may_have_so_many_tasks(binding: str, stage: Stage) -> None:
    server = Server("few", version="1")
    server.enable_extension(Tasks(most_per_caller=2))

    @server.tool(long_running=True)
    async def wait() -> str:
        stage.log.append("ran")
        await stage.go.wait()
        return "done"

    async with serve(binding, server, auth=Open()) as wire:
        for _ in range(2):
            await start(wire, "wait", headers=ALICE)
        refused = await wire.call("wait", caps=ALL, headers=ALICE)
        assert refused.verdict == (503, -32603, 1)
        assert "2 tasks" in refused.error["message"]
        await start(wire, "wait", headers=BOB)
        await until(lambda: len(stage.log) == 3, "three bodies")


async def test_of_those_who_have_no_name_so_many_run_together(binding: str, stage: Stage) -> None:
    """They cannot be told apart, so it is what runs that counts, and not what is kept."""
    server = Server("few", version="1")
    server.enable_extension(Tasks(most_per_caller=2))

    @server.tool(long_running=True)
    async def wait() -> str:
        await stage.go.wait()
        return "done"

    async with serve(binding, server) as wire:
        ids = [await start(wire, "wait") for _ in range(2)]
        refused = await wire.call("wait", caps=ALL)
        assert refused.verdict == (503, -32603, 1)
        stage.go.set()
        for id in ids:
            await reach(wire, id, "completed")
        await start(wire, "wait")
        assert [(await get(wire, id))["status"] for id in ids] == ["completed"] * 2


# --- listening


async def listen(wire: Wire, ids: list[str], **rest: Any) -> tuple[Stream, Any]:
    stream = await wire.open_modern(
        "subscriptions/listen", {"notifications": {"taskIds": ids}}, id="ear", caps=rest.pop("caps", ALL), **rest
    )
    return stream, await stream.message()


async def test_a_listener_hears_the_whole_task_whenever_it_changes(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        id, other = await start(wire, "ask"), await start(wire, "slow")
        asked = await reach(wire, id, "input_required")
        stream, hello = await listen(wire, [id, UNKNOWN])
        async with stream:
            assert hello["method"] == "notifications/subscriptions/acknowledged"
            assert hello["params"]["notifications"] == {"taskIds": [id]}
            assert hello["params"]["_meta"][P + "subscriptionId"] == "ear"
            await ask(wire, "tasks/cancel", other)
            (key,) = asked["inputRequests"]
            await ask(wire, "tasks/update", id, inputResponses={key: accept()})
            while (heard := await stream.message())["params"]["status"] != "completed":
                assert heard["params"]["taskId"] == id
            assert heard["method"] == "notifications/tasks"
            params = dict(heard["params"])
            assert params.pop("_meta")[P + "subscriptionId"] == "ear"
            found = await get(wire, id)
            assert params == {k: v for k, v in found.items() if k not in ("_meta", "resultType")}
            assert text(params["result"]) == "accept {'name': 'Ada'}"


async def test_a_listener_hears_what_is_asked(binding: str, stage: Stage) -> None:
    server = working(stage)

    @server.tool(long_running=True)
    async def ask_later(ctx: Context) -> str:
        await stage.go.wait()
        return (await ctx.elicit("Your name?", NAME, key="name")).action

    async with serve(binding, server) as wire:
        id = await start(wire, "ask_later")
        stream, _ = await listen(wire, [id])
        async with stream:
            stage.go.set()
            heard = (await stream.message())["params"]
            assert (heard["status"], list(heard["inputRequests"])) == ("input_required", ["name"])


async def test_listening_to_tasks_needs_the_extension(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "slow")
        params = {"notifications": {"taskIds": [id]}}
        stream = await wire.open_modern("subscriptions/listen", params, caps={})
        async with stream:
            assert stream.status == 400, await stream.message()
            reply = Reply(stream.status, stream.pairs, await stream.read())
        assert reply.verdict == (400, -32021, 1)
        assert reply.error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


async def test_anothers_task_is_not_listened_to(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage), auth=Open()) as wire:
        id = await start(wire, "slow", headers=ALICE)
        for other in (BOB, ALICE_ELSEWHERE, NOBODY):
            stream, hello = await listen(wire, [id], headers=other)
            async with stream:
                assert hello["params"]["notifications"] == {}
        stream, hello = await listen(wire, [id], headers=ALICE)
        async with stream:
            assert hello["params"]["notifications"] == {"taskIds": [id]}


async def test_who_watches_a_resource_of_that_name_hears_nothing_of_the_task(binding: str, stage: Stage) -> None:
    server = working(stage)
    server.add_resource("notes://x", lambda: "x")
    async with serve(binding, server) as wire:
        id = await start(wire, "slow")
        params = {"notifications": {"resourceSubscriptions": [id, "notes://x"]}}
        async with await wire.open_modern("subscriptions/listen", params, caps={}) as stream:
            await stream.message()
            await ask(wire, "tasks/cancel", id)
            server.notify.resource_updated("notes://x")
            assert (await stream.message())["method"] == "notifications/resources/updated"


async def test_one_stream_listens_to_so_many_tasks(binding: str, stage: Stage) -> None:
    server = working(stage)
    async with serve(binding, server) as wire:
        many = [UNKNOWN] * (server.limits.max_subscriptions + 1)
        reply = await wire.modern("subscriptions/listen", {"notifications": {"taskIds": many}}, caps=ALL)
        assert reply.verdict == (400, -32602, 1)


# --- kinds of tools


async def test_a_plain_function_runs_in_a_thread_and_its_task_is_looked_at_meanwhile(
    binding: str, stage: Stage
) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "threaded")
        await until(lambda: stage.log, "the thread")
        assert (await get(wire, id))["status"] == "working"
        stage.thread_go.set()
        assert text((await reach(wire, id, "completed"))["result"]) == "from a thread"


async def test_a_plain_function_learns_that_its_task_was_cancelled(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "threaded")
        await until(lambda: stage.log, "the thread")
        assert is_ack(await ask(wire, "tasks/cancel", id))
        stage.thread_go.set()
        await until(lambda: len(stage.log) == 2, "the end of the thread")
        assert stage.log == ["begun", "cancelled True"]
        assert (await get(wire, id))["status"] == "cancelled"


async def test_a_plain_function_may_ask(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        id = await start(wire, "threaded_ask")
        (key,) = (await reach(wire, id, "input_required"))["inputRequests"]
        await ask(wire, "tasks/update", id, inputResponses={key: accept()})
        assert text((await reach(wire, id, "completed"))["result"]) == "hello Ada"


async def test_what_a_thread_reports_is_dealt_with_on_the_loop(binding: str, stage: Stage) -> None:
    """A loop in debug mode objects when a future is settled, or a callback put in, from another thread."""
    asyncio.get_running_loop().set_debug(True)
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        params = {"name": "threaded_progress", "task": {}, "_meta": {"progressToken": "t"}}
        id = (await session.ask("tools/call", params)).result["task"]["taskId"]
        async with await session.get() as stream:
            waiting = asyncio.ensure_future(session.ask("tasks/result", {"taskId": id}))
            await until(lambda: len(wire.engine.running_calls) == 1, "the wait for the result")
            stage.thread_go.set()
            result = (await soon(waiting)).result
            assert (text(result), result.get("isError")) == ("done", None)
            assert (await stream.message())["params"]["statusMessage"] == "half way"


async def test_what_a_generator_yields_is_the_result(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        found = await reach(wire, await start(wire, "counting"), "completed")
        assert text(found["result"]) == "one two three"


@pytest.mark.parametrize("token", [None, "t"], ids=["no token", "a token"])
async def test_progress_is_told_in_the_status_and_not_on_any_stream(binding: str, stage: Stage, token: Any) -> None:
    """R73, and protocol.md 5.1: no progress or log notifications for tasks. The status is for whoever looks."""
    extra = {P + "logLevel": "debug", **({} if token is None else {"progressToken": token})}
    async with serve(binding, working(stage)) as wire:
        reply = await wire.call("reporting", caps=ALL, extra=extra)
        assert [set(m) for m in reply.messages] == [{"jsonrpc", "id", "result"}]
        await soon(stage.began.wait())
        assert (await get(wire, reply.result["taskId"])).get("statusMessage") == "half way"


async def test_a_tools_own_time_limit_holds_in_a_task(binding: str, stage: Stage) -> None:
    server = working(stage)

    @server.tool(long_running=True, timeout=0.01)
    async def hurried() -> str:
        await stage.go.wait()
        return "in time"

    async with serve(binding, server) as wire:
        id = await start(wire, "hurried")
        found = await reach(wire, id, "failed", "completed")
        assert "0.01 s" in str(found)


async def test_the_servers_time_limit_for_requests_is_not_one_for_tasks(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage, limits=Limits(request_timeout=0.05))) as wire:
        id = await start(wire, "slow")
        plain = asyncio.ensure_future(wire.call("slow"))
        with pytest.raises(TimeoutError):  # four times the limit, and neither has been told that it took longer
            await asyncio.wait_for(asyncio.shield(plain), 0.2)
        stage.go.set()
        assert text((await plain).result) == "done"
        assert text((await reach(wire, id, "completed"))["result"]) == "done"


# --- middleware


async def test_middleware_sees_the_call_once_wherever_it_stands(binding: str, stage: Stage) -> None:
    seen: list[str] = []
    server = Server("watched", version="1")

    @server.middleware
    async def outer(call: Any, call_next: Any) -> Any:
        seen.append(f"outer {call.method}")
        return await call_next(call)

    @server.tool(long_running=True)
    async def job() -> str:
        seen.append("body")
        return "done"

    @server.middleware
    async def inner(call: Any, call_next: Any) -> Any:
        seen.append(f"inner {call.method}")
        return await call_next(call)

    async with serve(binding, server) as wire:
        id = await start(wire, "job")
        await until(lambda: "body" in seen, "the body")
        assert seen[:3] == ["outer tools/call", "inner tools/call", "body"]
        await reach(wire, id, "completed")
        assert seen.count("body") == 1


async def test_a_refusal_by_middleware_is_told_to_the_model(binding: str, stage: Stage) -> None:
    """What middleware raises as a ToolError is a result on a plain call; in a task too."""
    server = working(stage)

    @server.middleware
    async def refuse(call: Any, call_next: Any) -> Any:
        if call.method == "tools/call":
            raise ToolError("not today")
        return await call_next(call)

    async with serve(binding, server) as wire:
        assert (await wire.call("slow")).result["isError"] is True
        result = (await wire.call("slow", caps=ALL)).result
        if result["resultType"] == "task":
            found = await reach(wire, result["taskId"], "completed", "failed")
            assert found["status"] == "completed", found
            result = found["result"]
        assert (result["isError"], text(result)) == (True, "not today")


# --- stopping


async def test_a_server_that_stops_ends_its_tasks_with_the_reason(binding: str, stage: Stage) -> None:
    server = Server("stopping", version="1")
    tasks = Tasks()
    server.enable_extension(tasks)

    @server.tool(long_running=True)
    async def wait(ctx: Context) -> str:
        try:
            stage.log.append("begun")
            await ctx.elicit("?", NAME)
        finally:
            stage.log.append("left")
        return "done"

    async with serve(binding, server) as wire:
        ids = [await start(wire, "wait") for _ in range(5)]
        await until(lambda: len(stage.log) == 5, "five bodies")
    assert stage.log == ["begun"] * 5 + ["left"] * 5
    for id in ids:
        task = await tasks.get(id)
        assert (task.status, task.inputs) == ("failed", b"")
        assert task.error is not None
        assert b"the server stopped" in task.error
    assert not tasks.running


async def test_a_body_that_outlived_its_cancelling_does_not_outlive_the_server(binding: str, stage: Stage) -> None:
    server = working(stage)

    @server.tool(long_running=True)
    async def twice() -> str:
        try:
            stage.began.set()
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.log.append("once")
        try:
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.log.append("twice")
            raise
        return "done"

    async with serve(binding, server) as wire:
        id = await start(wire, "twice")
        await soon(stage.began.wait())
        await ask(wire, "tasks/cancel", id)
        await until(lambda: stage.log == ["once"], "the body's second thoughts")
    left = list(stage.log)
    stage.go.set()
    assert left == ["once", "twice"]


@pytest.mark.slow
async def test_one_who_waits_for_a_result_hears_that_the_server_stops(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        id = await legacy_start(session, "slow")
        waiting = asyncio.ensure_future(session.ask("tasks/result", {"taskId": id}))
        await until(lambda: len(wire.engine.running_calls) == 1, "the wait for the result")
    error = (await soon(waiting)).error
    assert "stop" in error["message"]


# --- 2025-11-25 ------------------------------------------------------------------------------------------------------


async def legacy_start(session: Session, name: str, arguments: Any = None, task: Any = None) -> str:
    reply = await session.ask(
        "tools/call", {"name": name, "arguments": arguments or {}, "task": {} if task is None else task}
    )
    assert set(reply.result) <= {"task", "_meta"}, reply
    return reply.result["task"]["taskId"]


async def legacy_reach(session: Session, id: str, *statuses: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while (found := (await session.ask("tasks/get", {"taskId": id})).result)["status"] not in statuses:
            await asyncio.sleep(0.001)
    return found


async def test_the_older_protocol_is_advertised_in_its_revision_alone(binding: str, stage: Stage) -> None:
    """C24."""
    async with serve(binding, working(stage)) as wire:
        hello = (await wire.initialize()).hello
        assert hello["capabilities"]["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        for version in OLDER:
            assert "tasks" not in (await wire.initialize(version)).hello["capabilities"]


@pytest.mark.parametrize("version", LEGACY)
async def test_the_extension_is_not_offered_where_it_cannot_be_used(binding: str, stage: Stage, version: str) -> None:
    """protocol.md 1.5: the tasks extension is not active under 2025-11-25, which has tasks of its own."""
    async with serve(binding, working(stage)) as wire:
        capabilities = (await wire.initialize(version)).hello["capabilities"]
        assert EXTENSION not in capabilities.get("extensions", {})


async def test_declaring_the_extension_in_a_handshake_makes_no_task(binding: str, stage: Stage) -> None:
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        for version in LEGACY:
            session = await wire.initialize(version, caps=TASKS)
            assert text((await session.call("slow")).result) == "done"


async def test_tools_say_whether_they_run_as_tasks_in_that_revision_alone(binding: str, stage: Stage) -> None:
    """R81."""
    async with serve(binding, working(stage)) as wire:
        tools = by_name((await (await wire.initialize()).ask("tools/list")).result["tools"])
        assert tools["slow"]["execution"] == {"taskSupport": "optional"}
        assert tools["later"]["execution"] == {"taskSupport": "optional"}
        assert tools["only_as_task"]["execution"] == {"taskSupport": "required"}
        assert tools["quick"].get("execution", {}).get("taskSupport", "forbidden") == "forbidden"
        for version in OLDER:
            listed = (await (await wire.initialize(version)).ask("tools/list")).result["tools"]
            assert all("execution" not in tool for tool in listed)


async def test_a_legacy_task_is_wrapped_and_has_the_older_names(binding: str, stage: Stage) -> None:
    """R75, R81, C22."""
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        reply = await session.ask("tools/call", {"name": "slow", "task": {"ttl": 60_000}})
        assert set(reply.result) <= {"task", "_meta"}
        task = reply.result["task"]
        assert set(task) == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
        assert (task["status"], task["ttl"], task["pollInterval"]) == ("working", 60_000, 1000)
        found = (await session.ask("tasks/get", {"taskId": task["taskId"]})).result
        assert {k: v for k, v in found.items() if k != "_meta"} == task


async def test_without_the_hint_a_legacy_call_is_a_call(binding: str, stage: Stage) -> None:
    """C22."""
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        assert text((await (await wire.initialize()).call("slow")).result) == "done"


async def test_a_tool_and_a_hint_that_do_not_go_together_are_a_method_that_is_not_there(
    binding: str, stage: Stage
) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        assert (await session.call("only_as_task")).error["code"] == -32601
        assert (await session.ask("tools/call", {"name": "quick", "task": {}})).error["code"] == -32601
        id = await legacy_start(session, "only_as_task")
        assert (await legacy_reach(session, id, "completed"))["status"] == "completed"


@pytest.mark.parametrize("hint", [None, 7, "yes", [], {"ttl": "long"}, {"ttl": -1}], ids=str)
async def test_a_hint_that_makes_no_sense_is_a_wrong_parameter(binding: str, stage: Stage, hint: Any) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        reply = await session.ask("tools/call", {"name": "slow", "task": hint})
        assert "error" in reply.messages[-1], reply
        assert reply.error["code"] == -32602
        assert stage.log == []


@pytest.mark.parametrize("version", OLDER)
async def test_older_revisions_have_no_tasks(binding: str, stage: Stage, version: str) -> None:
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize(version)
        assert text((await session.ask("tools/call", {"name": "slow", "task": {}})).result) == "done"
        for method in (*METHODS, "tasks/result", "tasks/list"):
            assert (await session.ask(method, {"taskId": UNKNOWN})).error["code"] == -32601


async def test_the_update_of_the_newer_protocol_is_not_there(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        id = await legacy_start(session, "ask")
        assert (await session.ask("tasks/update", {"taskId": id, "inputResponses": {}})).error["code"] == -32601


async def test_the_result_is_waited_for_and_is_the_very_result(binding: str, stage: Stage) -> None:
    """C23, R81, R77."""
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        id = await legacy_start(session, "slow", {"text": "so be it"})
        waiting = [asyncio.ensure_future(session.ask("tasks/result", {"taskId": id})) for _ in range(2)]
        await soon(stage.began.wait())
        assert (await legacy_reach(session, id, "working"))["status"] == "working"
        assert not any(one.done() for one in waiting)
        stage.go.set()
        for one in waiting:
            result = (await soon(one)).result
            assert text(result) == "so be it"
            assert result["_meta"][RELATED] == {"taskId": id}
            assert "resultType" not in result
        again = (await session.ask("tasks/result", {"taskId": id})).result
        assert text(again) == "so be it"


async def test_a_structured_result_is_the_same_by_way_of_a_task(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        plain = (await session.call("structured")).result
        by_task = (await session.ask("tasks/result", {"taskId": await legacy_start(session, "structured")})).result
        assert {k: v for k, v in by_task.items() if k != "_meta"} == {k: v for k, v in plain.items() if k != "_meta"}


async def test_a_failure_is_a_failed_task_and_its_result_tells_of_it(binding: str, stage: Stage) -> None:
    """R77, except that a tool's own failure is a result as on a plain call, as the specification has it."""
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        id = await legacy_start(session, "failing")
        assert (await legacy_reach(session, id, "failed", "completed"))["status"] == "failed"
        result = (await session.ask("tasks/result", {"taskId": id})).result
        assert (result["isError"], text(result)) == (True, "no luck")
        id = await legacy_start(session, "broken")
        assert (await legacy_reach(session, id, "failed"))["status"] == "failed"
        for _ in range(2):
            error = (await session.ask("tasks/result", {"taskId": id})).error
            assert error == {"code": -31000, "message": "broken", "data": {"why": "it broke"}}


async def test_cancelling_gives_the_task_back_and_a_second_time_is_an_error(binding: str, stage: Stage) -> None:
    """R76, C23, R77."""
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        id = await legacy_start(session, "slow")
        await soon(stage.began.wait())
        waiting = asyncio.ensure_future(session.ask("tasks/result", {"taskId": id}))
        reply = await session.ask("tasks/cancel", {"taskId": id})
        assert (reply.result["taskId"], reply.result["status"]) == (id, "cancelled")
        assert (await soon(waiting)).error["code"] == -32602
        await until(lambda: "left" in stage.log, "the end of the body")
        assert (await session.ask("tasks/cancel", {"taskId": id})).error["code"] == -32602
        assert (await session.ask("tasks/result", {"taskId": id})).error["code"] == -32602


@pytest.mark.parametrize("name", ["quickly", "failing", "broken"])
async def test_what_has_ended_cannot_be_cancelled(binding: str, stage: Stage, name: str) -> None:
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        id = await legacy_start(session, "slow" if name == "quickly" else name)
        before = await legacy_reach(session, id, "completed", "failed")
        assert (await session.ask("tasks/cancel", {"taskId": id})).error["code"] == -32602
        assert (await session.ask("tasks/get", {"taskId": id})).result == before


async def test_whoever_waits_for_the_result_is_asked_on_that_stream(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize(caps=ASKED)
        id = await legacy_start(session, "ask")
        found = await legacy_reach(session, id, "input_required")
        assert "inputRequests" not in found
        async with await session.open("tasks/result", {"taskId": id}, id="wait") as stream:
            asked = await stream.message()
            assert asked["method"] == "elicitation/create"
            assert asked["params"]["_meta"] == {RELATED: {"taskId": id}}
            assert asked["params"]["message"] == "Your name?"
            assert (await session.answer(asked["id"], accept())).status == 202
            reply = await stream.message()
            assert reply["id"] == "wait"
            assert text(reply["result"]) == "accept {'name': 'Ada'}"
            assert reply["result"]["_meta"][RELATED] == {"taskId": id}


async def test_two_questions_at_once_are_both_put_to_whoever_waits(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize(caps=ASKED)
        id = await legacy_start(session, "ask_two")
        async with await session.open("tasks/result", {"taskId": id}) as stream:
            asked = [await stream.message(), await stream.message()]
            assert {a["method"] for a in asked} == {"elicitation/create", "sampling/createMessage"}
            for one in asked:
                await session.answer(one["id"], accept("Bo") if one["method"].startswith("elicit") else SAMPLED)
            assert text((await stream.message())["result"]) == "Bo a haiku"


async def test_a_body_that_asks_again_under_the_same_key_is_answered_again(binding: str, stage: Stage) -> None:
    server = working(stage)

    @server.tool(long_running=True)
    async def insist(ctx: Context) -> str:
        names: list[str] = []
        for _ in range(2):
            names.append((await ctx.elicit("Your name?", NAME, key="name")).content["name"])
        return " ".join(names)

    async with serve(binding, server) as wire:
        session = await wire.initialize(caps=ASKED)
        id = await legacy_start(session, "insist")
        async with await session.open("tasks/result", {"taskId": id}) as stream:
            for name in ("Ada", "Bo"):
                asked = await stream.message()
                assert asked["method"] == "elicitation/create", asked
                await session.answer(asked["id"], accept(name))
            assert text((await stream.message())["result"]) == "Ada Bo"


async def test_who_leaves_while_being_asked_leaves_the_question_to_the_next(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize(caps=ASKED)
        id = await legacy_start(session, "ask")
        first = await session.open("tasks/result", {"taskId": id}, id="first")
        early = await first.message()
        await session.cancel("first")
        await first.close()
        assert (await legacy_reach(session, id, "input_required"))["status"] == "input_required"
        async with await session.open("tasks/result", {"taskId": id}) as stream:
            asked = await stream.message()
            assert asked["id"] != early["id"]
            await session.answer(early["id"], accept("late"))
            await session.answer(asked["id"], accept("in time"))
            assert text((await stream.message())["result"]) == "accept {'name': 'in time'}"


async def test_a_client_that_refuses_to_answer_tells_the_body_and_not_the_task(binding: str, stage: Stage) -> None:
    """As on a plain call: what to do without an answer is the tool's to decide."""
    refusal = {"code": -1, "message": "I would rather not"}
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize(caps=ASKED)

        async def finished(method: str, params: Any) -> Any:
            async with await session.open(method, params) as stream:
                asked = await stream.message()
                await session.post({"jsonrpc": "2.0", "id": asked["id"], "error": refusal})
                return await stream.message()

        plain = await finished("tools/call", {"name": "ask_bravely", "arguments": {}})
        assert "went on without" in text(plain["result"])
        id = await legacy_start(session, "ask_bravely")
        by_task = await finished("tasks/result", {"taskId": id})
        assert "result" in by_task, by_task
        assert text(by_task["result"]) == text(plain["result"])


async def test_a_task_that_was_asked_for_is_a_task_even_if_the_tool_would_decide_later(
    binding: str, stage: Stage
) -> None:
    """protocol.md 5.2: a call with `task` is answered with a task; the tool says it supports that."""
    stage.go.set()
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize(caps=ASKED)
        for detach in (True, False):
            reply = await session.ask("tools/call", {"name": "undecided", "arguments": {"detach": detach}, "task": {}})
            assert "task" in reply.result, reply
            result = (await session.ask("tasks/result", {"taskId": reply.result["task"]["taskId"]})).result
            assert text(result) == "done"


async def test_another_session_does_not_see_a_task(binding: str, stage: Stage) -> None:
    """R80."""
    async with serve(binding, working(stage)) as wire:
        mine, other = await wire.initialize(), await wire.initialize()
        id = await legacy_start(mine, "slow")
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            replies = [await other.ask(method, {"taskId": one}) for one in (id, UNKNOWN)]
            assert [reply.error["code"] for reply in replies] == [-32602, -32602]
        assert (await other.ask("tasks/list")).result["tasks"] == []
        assert [task["taskId"] for task in (await mine.ask("tasks/list")).result["tasks"]] == [id]
        assert (await mine.ask("tasks/get", {"taskId": id})).result["status"] == "working"


async def test_a_caller_with_a_name_finds_its_tasks_from_another_session_and_era(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage), auth=Badges()) as wire:
        one, two = await wire.initialize(headers=ALICE), await wire.initialize(headers=ALICE)
        bob = await wire.initialize(headers=BOB)
        id = await legacy_start(one, "slow")
        assert (await two.ask("tasks/get", {"taskId": id})).result["taskId"] == id
        assert (await get(wire, id, headers=ALICE))["taskId"] == id
        assert (await bob.ask("tasks/get", {"taskId": id})).error["code"] == -32602
        assert (await bob.ask("tasks/list")).result["tasks"] == []


async def test_without_sessions_nobody_is_shown_the_tasks_of_others(binding: str, stage: Stage) -> None:
    """R80: where callers cannot be told apart there is no list to give."""
    async with serve(binding, working(stage), require_session=False) as wire:
        headers = {"MCP-Protocol-Version": V11}
        made = await wire.post(request("tools/call", {"name": "slow", "task": {}}), headers)
        listed = await wire.post(request("tasks/list"), headers)
        message = listed.messages[-1]
        assert "error" in message or message["result"]["tasks"] == [], (made, message)


@pytest.mark.slow
async def test_the_list_comes_in_pages_oldest_first(binding: str, stage: Stage) -> None:
    """R38, R74."""
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        made = [await legacy_start(session, "only_as_task") for _ in range(230)]
        found: list[str] = []
        cursor: dict[str, str] = {}
        pages = 0
        while True:
            page = (await session.ask("tasks/list", cursor)).result
            found += [task["taskId"] for task in page["tasks"]]
            pages += 1
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert sorted(found) == sorted(made)
        assert len(found) == len(set(found))
        assert pages > 1
        other = await wire.initialize()
        for wrong in ("", "nonsense", UNKNOWN):
            assert (await session.ask("tasks/list", {"cursor": wrong})).error["code"] == -32602
        assert (await other.ask("tasks/list", cursor)).error["code"] == -32602


async def test_the_session_is_told_of_every_change(binding: str, stage: Stage) -> None:
    """R74."""
    async with serve(binding, working(stage)) as wire:
        session, other = await wire.initialize(caps=ASKED), await wire.initialize(caps=ASKED)
        async with await session.get() as stream, await other.get() as elsewhere:
            id = await legacy_start(session, "ask")
            heard = await stream.message()
            assert heard["method"] == "notifications/tasks/status"
            assert (heard["params"]["taskId"], heard["params"]["status"]) == (id, "input_required")
            assert set(heard["params"]) >= {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
            assert "id" not in heard
            async with await session.open("tasks/result", {"taskId": id}) as result:
                asked = await result.message()
                await session.answer(asked["id"], accept())
                await result.message()
            statuses = [(await stream.message())["params"]["status"] for _ in range(2)]
            assert statuses == ["working", "completed"]
            await other.ask("tasks/cancel", {"taskId": await legacy_start(other, "slow")})
            told = [(await elsewhere.message())["params"] for _ in range(1)]
            assert [one["status"] for one in told] == ["cancelled"]
            assert told[0]["taskId"] != id


async def test_a_failure_is_told_as_one(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        async with await session.get() as stream:
            await legacy_start(session, "failing")
            assert (await stream.message())["params"]["status"] == "failed"


async def test_a_session_that_ended_does_not_take_the_server_along(binding: str, stage: Stage) -> None:
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        await legacy_start(session, "slow")
        await soon(stage.began.wait())
        assert (await session.delete()).status == 204
        stage.go.set()
        await until(lambda: "finished" in stage.log or "left" in stage.log, "the end of the body")
        assert (await wire.call("quick")).status == 200


async def test_progress_of_a_legacy_task_reaches_the_client_that_gave_a_token(binding: str, stage: Stage) -> None:
    """R73; protocol.md 1.4: for tasks the token lives until they end."""
    async with serve(binding, working(stage)) as wire:
        session = await wire.initialize()
        async with await session.get() as stream:
            params = {"name": "reporting", "task": {}, "_meta": {"progressToken": "t"}}
            await session.ask("tools/call", params)
            await soon(stage.began.wait())
            stage.go.set()
            methods: list[str] = []
            while (heard := await stream.message())["params"].get("status") != "completed":
                methods.append(heard["method"])
            assert "notifications/progress" in methods


# --- channels: in memory and on stdio --------------------------------------------------------------------------------


async def test_tasks_in_memory_on_the_modern_era(stage: Stage) -> None:
    server = working(stage)
    async with Channel(server) as channel:
        made = (await channel.modern("tools/call", {"name": "slow"}, caps=ALL))["result"]
        assert made["resultType"] == "task"
        found = (await channel.modern("tasks/get", {"taskId": made["taskId"]}, caps=ALL))["result"]
        assert (found["resultType"], found["status"]) == ("complete", "working")
        refused = await channel.modern("tasks/get", {"taskId": made["taskId"]})
        assert refused["error"]["code"] == -32021
        assert (await channel.modern("tasks/get", {"taskId": UNKNOWN}, caps=ALL))["error"]["code"] == -32602
        assert (await channel.modern("tasks/list", {}, caps=ALL))["error"]["code"] == -32601
        await channel.modern("tasks/cancel", {"taskId": made["taskId"]}, caps=ALL)
        await until(lambda: "left" in stage.log, "the end of the body")
    await server.stop()


async def test_tasks_in_memory_on_the_legacy_era(stage: Stage) -> None:
    server = working(stage)
    async with Channel(server) as channel:
        hello = await channel.initialize(caps=ASKED)
        assert "tasks" in hello["result"]["capabilities"]
        await channel.send(request("tools/call", {"name": "ask", "arguments": {}, "task": {}}, "make"))
        made = None
        told: list[str] = []
        while made is None or not told:
            message = await channel.receive()
            if message.get("id") == "make":
                made = message["result"]["task"]["taskId"]
            else:
                assert message["method"] == "notifications/tasks/status"
                told.append(message["params"]["status"])
        assert told == ["input_required"]
        await channel.send(request("tasks/result", {"taskId": made}, "wait"))
        asked = await channel.receive()
        assert asked["params"]["_meta"] == {RELATED: {"taskId": made}}
        await channel.send({"jsonrpc": "2.0", "id": asked["id"], "result": accept()})
        while (message := await channel.receive()).get("id") != "wait":
            told.append(message["params"]["status"])
        assert told == ["input_required", "working", "completed"]
        assert text(message["result"]) == "accept {'name': 'Ada'}"
    await server.stop()


async def test_a_client_that_cancels_before_the_task_ends_the_call_in_memory(stage: Stage) -> None:
    server = working(stage)
    async with Channel(server) as channel:
        params = {"name": "undecided", "arguments": {"detach": False}, "_meta": meta(caps=ALL)}
        await channel.send(request("tools/call", params, "call"))
        await soon(stage.began.wait())
        await channel.send(notification("notifications/cancelled", {"requestId": "call"}))
        await until(lambda: stage.log == ["cancelled"], "the end of the body")
    await server.stop()


CHILD = """
import asyncio
from trimaran import Context, Server
server = Server("child", version="1")
@server.tool(long_running=True)
async def hold() -> str:
    await asyncio.sleep(60)
    return "held"
@server.tool(long_running=True)
async def echo(text: str) -> str:
    return text
server.run()
"""


@pytest.mark.slow
async def test_tasks_over_stdio_and_an_orderly_end_with_some_at_work() -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None

        async def say(message: Any) -> None:
            assert process.stdin is not None
            process.stdin.write(encode(message) + b"\n")
            await process.stdin.drain()

        async def hear() -> Any:
            assert process.stdout is not None
            return json.loads(await soon(process.stdout.readline()))

        await say(request("tools/call", {"name": "hold", "_meta": meta(caps=ALL)}, 1))
        assert (await hear())["result"]["resultType"] == "task"
        await say(request("tools/call", {"name": "echo", "arguments": {"text": "hi"}, "_meta": meta(caps=ALL)}, 2))
        id = (await hear())["result"]["taskId"]
        await say(request("tasks/get", {"taskId": id, "_meta": meta(caps=ALL)}, 3))
        found = (await hear())["result"]
        assert (found["status"], text(found["result"])) == ("completed", "hi")
        process.stdin.close()
        assert await soon(process.stdout.read()) == b""
        assert await soon(process.wait()) == 0
        assert b"Traceback" not in await soon(process.stderr.read())
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
