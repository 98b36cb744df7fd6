"""A call through a proxy, for callers of both eras before targets of both, in memory, over HTTP and by shortcuts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import Client, Server, connect
from trimaran.errors import CallError, MissingCapability, ProtocolError
from trimaran.serve import HttpServer

from .harbour import PAIRS, Era, Harbour, through

pytestmark = pytest.mark.parametrize(("near", "far"), PAIRS, ids=[f"{near}-to-{far}" for near, far in PAIRS])
every_way = pytest.mark.parametrize("over", ["memory", "http", "warm"])


@pytest.fixture
def harbour() -> Harbour:
    return Harbour()


@every_way
async def test_a_tool_is_listed_and_called(harbour: Harbour, near: Era, far: Era, over: str) -> None:
    async with through(harbour, near, far, over=over) as client:
        tools = {tool.name: tool for tool in await client.list_tools_all()}
        assert tools["add"].description == "Add two numbers."
        assert tools["add"].tags == {"sums"}
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert (result.data, result.is_error) == (3, False)
        assert (client.server_info and client.server_info.name, client.instructions) == ("harbour", "Moor first.")


@every_way
async def test_a_question_in_the_middle_reaches_the_caller_and_its_answer_the_target(
    harbour: Harbour, near: Era, far: Era, over: str
) -> None:
    async with through(harbour, near, far, over=over, on_elicit=lambda ask: {"name": ask.message}) as client:
        assert (await soon(client.call_tool("greet"))).data == "hello Your name?"
        assert (await soon(client.call_tool("twice"))).data == "First? Second? Third?"
    assert harbour.finished == 1


@every_way
async def test_sampling_and_roots_are_asked_of_the_caller(harbour: Harbour, near: Era, far: Era, over: str) -> None:
    options: dict[str, Any] = {"on_sample": lambda ask: "reef", "roots": ["file:///hold"]}
    async with through(harbour, near, far, over=over, **options) as client:
        text = (await soon(client.call_tool("think"))).text
        assert "reef" in text
        assert "file:///hold" in text


@every_way
async def test_a_caller_that_cannot_be_asked_gets_an_error_and_not_silence(
    harbour: Harbour, near: Era, far: Era, over: str
) -> None:
    async with through(harbour, near, far, over=over) as client:
        try:
            result = await soon(client.call_tool("greet"))
        except (MissingCapability, CallError) as error:
            assert "elicitation" in str(error)
        else:
            assert result.is_error
    assert harbour.finished == 0


@every_way
async def test_progress_and_log_messages_come_back_with_the_callers_own_token(
    harbour: Harbour, near: Era, far: Era, over: str
) -> None:
    logs: list[Any] = []
    reports: list[Any] = []
    async with through(harbour, near, far, over=over, on_log=logs.append) as client:
        await soon(client.call_tool("report", on_progress=lambda *report: reports.append(report)))
        assert reports == [(1.0, 2.0, "half")]
        await until(lambda: logs)
        assert (logs[0].level, logs[0].data, logs[0].logger) == ("warning", {"wind": 9}, "mast")


@every_way
async def test_cancelling_a_call_cancels_it_at_the_target(harbour: Harbour, near: Era, far: Era, over: str) -> None:
    async with through(harbour, near, far, over=over) as client:
        call = asyncio.ensure_future(client.call_tool("hold"))
        await soon(harbour.started.wait())
        call.cancel()
        await until(lambda: harbour.outcome == "cancelled")


async def test_a_call_that_is_cancelled_while_it_asks_leaves_no_question_behind(
    harbour: Harbour, near: Era, far: Era
) -> None:
    asked = asyncio.Event()

    async def ponder(ask: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async with through(harbour, near, far, over="warm", on_elicit=ponder) as client:
        for _ in range(3):
            asked.clear()
            call = asyncio.ensure_future(client.call_tool("greet"))
            await soon(asked.wait())
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert (await soon(client.call_tool("add", {"a": 1, "b": 2}))).data == 3


@every_way
async def test_errors_keep_their_code_and_their_data(harbour: Harbour, near: Era, far: Era, over: str) -> None:
    async with through(harbour, near, far, over=over) as client:
        failed = await client.call_tool("fail")
        assert (failed.is_error, failed.text) == (True, "the anchor is stuck")
        with pytest.raises(CallError) as refused:
            await client.call_tool("refuse")
        assert (refused.value.code, refused.value.message, refused.value.data) == (-32050, "no berth", {"berths": 0})


async def test_a_resource_that_refuses_its_params_says_why_in_its_own_words(
    harbour: Harbour, near: Era, far: Era
) -> None:
    @harbour.server.resource("depth:///{fathoms}")
    async def depth(fathoms: int) -> str:
        raise ProtocolError.invalid_params("too deep", {"most": 40})

    async with through(harbour, near, far) as client:
        with pytest.raises(CallError) as refused:
            await client.read_resource("depth:///99")
        assert (refused.value.code, refused.value.message, refused.value.data) == (-32602, "too deep", {"most": 40})


@every_way
async def test_arguments_are_validated_where_the_tool_lives(harbour: Harbour, near: Era, far: Era, over: str) -> None:
    async with through(harbour, near, far, over=over) as client:
        result = await client.call_tool("add", {"a": "x", "b": 2})
        assert result.is_error
        assert "'a'" in result.text


@every_way
async def test_meta_and_trace_context_pass(harbour: Harbour, near: Era, far: Era, over: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with through(harbour, near, far, over=over) as client:
        result = await client.call_tool("meta", meta={"example.com/key": 7, "traceparent": trace})
        assert result.data == {"vendor": 7, "trace": trace}


@every_way
async def test_resources_templates_prompts_and_completion_pass(
    harbour: Harbour, near: Era, far: Era, over: str
) -> None:
    async with through(harbour, near, far, over=over, prefix="port") as client:
        assert (await client.read_resource("log://today")).text == "calm"
        assert (await client.read_resource("chart:///a/b")).text == "a/b"
        assert [template.uri_template for template in await client.list_resource_templates_all()] == [
            "chart:///{+path}"
        ]
        prompt = await client.get_prompt("port_hail", {"ship": "Argo"})
        assert "Ahoy Argo" in str(prompt.messages[0].content)
        assert (await client.complete("port_hail", "ship", "Ar")).values == ["Argo", "Ark"]
        with pytest.raises(ProtocolError):
            await client.read_resource("log://never")


async def test_a_resource_that_is_listed_nowhere_is_read(harbour: Harbour, near: Era, far: Era) -> None:
    """Tools may return links to such resources."""

    class Hidden:
        async def read_resource(self, uri: str, ctx: Any) -> str | None:
            return "below deck" if uri == "hold://secret" else None

    harbour.server.callbacks = Hidden()
    async with through(harbour, near, far, prefix="port") as client:
        assert (await client.read_resource("hold://secret")).text == "below deck"


@every_way
async def test_changes_of_lists_and_resources_are_heard_through_the_proxy(
    harbour: Harbour, near: Era, far: Era, over: str
) -> None:
    async with through(harbour, near, far, over=over, prefix="port") as client:
        changes = client.listen(tools=True, resources=["log://today"])
        async with changes:
            harbour.server.add_tool(lambda: "new", name="later")
            await soon(_next(changes, "tools"))
            assert "port_later" in [tool.name for tool in await client.list_tools_all(fresh=True)]

            async def updated() -> bool:
                harbour.server.notify.resource_updated("log://today")
                try:
                    await asyncio.wait_for(_next(changes, "resource"), 0.2)
                except TimeoutError:
                    return False
                return True

            await until(updated)  # the target begins to watch a moment after the caller


async def _next(changes: AsyncIterator[Any], kind: str) -> Any:
    async for change in changes:
        if change.kind == kind:
            return change
    raise AssertionError("the stream ended")


async def test_middleware_of_the_proxy_sees_a_result_as_a_struct(harbour: Harbour, near: Era, far: Era) -> None:
    front = Server.proxy(harbour.server, era=far)
    texts: list[str] = []

    @front.middleware("tools/call")
    async def look(call: Any, call_next: Any) -> Any:
        result = await call_next(call)
        texts.append(str(result.content))
        return result

    async with connect(front, era=near) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    assert "3" in texts[0]


async def test_a_caller_with_several_calls_at_work_is_asked_all_the_same(harbour: Harbour, near: Era, far: Era) -> None:
    """On a pipe nothing says which call a question belongs to, but all of them are the same caller's."""
    async with through(harbour, near, far, on_elicit=lambda ask: {"name": "me"}) as client:
        held = asyncio.ensure_future(client.call_tool("hold"))
        await soon(harbour.started.wait())
        assert (await soon(client.call_tool("greet"))).data == "hello me"
        held.cancel()


async def test_a_question_does_not_reach_another_caller(harbour: Harbour, near: Era, far: Era) -> None:
    """On one shared connection two callers are at work; each is asked its own question, or nobody is."""
    front = Server.proxy(harbour.server, era=far)
    async with (
        HttpServer(front, port=0) as http,
        connect(http.url, era=near, on_elicit=lambda ask: {"name": "one"}) as one,
        quiet(http.url, near) as two,
    ):
        other = asyncio.ensure_future(two.call_tool("hold"))
        await soon(harbour.started.wait())
        try:
            result = await soon(one.call_tool("greet"))
        except CallError as error:
            assert "several callers" in str(error)
        else:
            assert result.is_error or result.data == "hello one"
        other.cancel()


def quiet(front: Any, era: Era) -> Client:
    def never(ask: Any) -> Any:
        raise AssertionError("the other caller was asked")

    return connect(front, era=era, on_elicit=never)
