"""A caller that does not answer what a handler asks, or leaves, is told so; it is no fault to be looked into."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trimaran import Context, Server, connect
from trimaran.errors import CallError, TimedOut

V11 = "2025-11-25"


def asking() -> Server:
    server = Server("asks", version="1")

    @server.tool
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("?", str, timeout=0.02)).content)

    @server.tool(long_running=True)
    async def task(ctx: Context) -> str:
        return str((await ctx.elicit("?", str, timeout=0.02)).content)

    @server.resource("asks://one")
    async def resource(ctx: Context) -> str:
        return str((await ctx.elicit("?", str, timeout=0.02)).content)

    @server.prompt
    async def prompt(ctx: Context) -> str:
        return str((await ctx.elicit("?", str, timeout=0.02)).content)

    return server


async def never(question: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("name", ["tool", "task"])
async def test_a_tool_whose_question_is_ignored_says_so_and_leaves_no_traceback(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(asking(), version=V11, on_elicit=never) as client:
        result = await client.call_tool(name, raise_on_error=False)
    assert result.is_error
    assert "did not answer elicitation/create within 0.02 s" in result.text
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_resource_and_a_prompt_whose_questions_are_ignored_say_so(caplog: pytest.LogCaptureFixture) -> None:
    async with connect(asking(), version=V11, on_elicit=never) as client:
        with pytest.raises(CallError, match="did not answer elicitation/create"):
            await client.read_resource("asks://one")
        with pytest.raises(CallError, match="did not answer elicitation/create"):
            await client.get_prompt("prompt")
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_server_that_a_tool_waited_for_in_vain_is_a_fault_with_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("relay", version="1")

    @server.tool
    async def relay() -> str:
        raise TimedOut("no answer to tools/call within 5 s from http://10.0.0.7/mcp")

    async with connect(server, version=V11) as client:
        result = await client.call_tool("relay", raise_on_error=False)
    assert "10.0.0.7" not in result.text
    assert [record for record in caplog.records if record.exc_info]
