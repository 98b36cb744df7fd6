"""The parts of `make world` that need no real program: the scripted model, under the providers' own libraries; the sandbox."""

from __future__ import annotations

import json
import sys
from typing import Any

import anthropic
import openai
import pytest

from trimaran import connect

from ..world import sandbox as world_sandbox
from ..world.model import ScriptedModel
from ..world.sandbox import open_sandbox, open_target
from ..world.scenario import CALLS, Call, as_prompt, check, is_name_of

PROMPT = as_prompt([Call("add", {"a": 1, "b": 2}), Call("echo", {"text": "größe"})])
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = ("mcp__harbour__add", "mcp__harbour__echo")
RESULTS = [("mcp__harbour__add", "3"), ("mcp__harbour__echo", "größe")]
ARGUMENTS = [{"a": 1, "b": 2}, {"text": "größe"}]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
async def test_the_model_speaks_anthropic_messages(stream: bool) -> None:
    async with ScriptedModel() as model, anthropic.AsyncAnthropic(base_url=model.url, api_key="dummy") as client:
        tools: Any = [{"name": name, "description": "x", "input_schema": SCHEMA} for name in TOOLS]
        messages: list[Any] = [{"role": "user", "content": PROMPT}]

        async def ask() -> Any:
            options: Any = {"model": "m", "max_tokens": 100, "tools": tools, "messages": messages}
            if not stream:
                return await client.messages.create(**options)
            async with client.messages.stream(**options) as events:
                return await events.get_final_message()

        reply = await ask()
        assert [block.input for block in reply.content] == ARGUMENTS
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": text}
            for block, (_, text) in zip(reply.content, RESULTS, strict=True)
        ]
        messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
        assert (await ask()).stop_reason == "end_turn"
    assert model.results == RESULTS
    assert set(model.tools) == set(TOOLS)


@pytest.mark.slow
async def test_the_model_speaks_openai_chat_completions() -> None:
    async with (
        ScriptedModel() as model,
        openai.AsyncOpenAI(base_url=f"{model.url}/v1", api_key="dummy") as client,
    ):
        tools: Any = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOLS]
        messages: list[Any] = [{"role": "user", "content": PROMPT}]
        reply: Any = (await client.chat.completions.create(model="m", tools=tools, messages=messages)).choices[0]
        assert [json.loads(call.function.arguments) for call in reply.message.tool_calls] == ARGUMENTS
        messages.append(reply.message)
        for call, (_, text) in zip(reply.message.tool_calls, RESULTS, strict=True):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        end = [chunk async for chunk in await client.chat.completions.create(model="m", messages=messages, stream=True)]
        assert end[1].choices[0].finish_reason == "stop"
        assert [entry.id async for entry in client.models.list()]
    assert model.results == RESULTS


@pytest.mark.slow
async def test_the_model_speaks_openai_responses() -> None:
    async with (
        ScriptedModel() as model,
        openai.AsyncOpenAI(base_url=f"{model.url}/v1", api_key="dummy") as client,
    ):
        tools: Any = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in TOOLS]
        items: list[Any] = [{"role": "user", "content": PROMPT}]
        reply: Any = await client.responses.create(model="m", tools=tools, input=items)
        assert [json.loads(item.arguments) for item in reply.output] == ARGUMENTS
        for item, (_, text) in zip(reply.output, RESULTS, strict=True):
            items.append({"type": "function_call", "call_id": item.call_id, "name": item.name, "arguments": "{}"})
            items.append({"type": "function_call_output", "call_id": item.call_id, "output": text})
        events = [event async for event in await client.responses.create(model="m", input=items, stream=True)]
        assert events[-1].type == "response.completed"
    assert model.results == RESULTS


def test_a_result_without_the_words_it_must_show_is_a_fault() -> None:
    call = Call("echo", {}, ("größe",))
    assert check([("harbour_echo", "the größe")], [call]) == []
    assert check([("harbour_echo", json.dumps("the größe"))], [call]) == []
    assert check([("harbour_echo", "the grosse")], [call]) == ["echo: 'größe' is not in 'the grosse'"]
    assert check([], [call]) == ["echo: no result"]


def test_a_tool_is_known_under_the_names_that_programs_give_it() -> None:
    for name in ("add", "harbour_add", "mcp__harbour__add", "harbour|add", "mcp__harbour__add_0v2ich2"):
        assert is_name_of("add", name), name
    for name in ("harbour_dotted_name-with_all", "dottedname_with_all"):
        assert is_name_of("dotted.name-with_all", name), name
    assert not is_name_of("tree", "ExitWorktree")


@pytest.mark.slow
async def test_a_run_sees_nothing_of_this_machine_and_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THIS_MACHINE", "1")
    monkeypatch.setattr(world_sandbox, "END_LIMIT", 2.0)
    script = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(child.pid, 'SECRET_OF_THIS_MACHINE' in os.environ)\n"
    )
    async with open_sandbox() as sandbox:
        finished = await sandbox.run([sys.executable, "-c", script], sandbox.environment(), 20)
        home = sandbox.home
    pid, secret = finished.stdout.split()
    assert (finished.status, secret) == (0, "False")
    assert not world_sandbox.is_running(int(pid))
    assert not home.exists()


@pytest.mark.slow
async def test_the_server_of_the_scenario_has_every_tool_that_is_called() -> None:
    async with open_sandbox() as sandbox, open_target(sandbox, "stdio", ["walk"]) as target:
        async with connect(list(target.command)) as client:
            names = {tool.name for tool in await client.list_tools_all()}
    assert names == {call.tool for call in CALLS} - {"walk"}
