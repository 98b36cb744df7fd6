"""The facade: what goes into a call and what comes out of it, whatever carries it."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import time
from typing import Any

import msgspec
import pytest
from tests.support.peers import Pipe, input_required, listed, said, tell, tool
from tests.support.until import soon, until

from trimaran import ToolError, connect, errors, open_client
from trimaran.types import PromptReference, ResourceReference


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Box(msgspec.Struct):
    points: list[Point]


async def test_a_result_may_be_made_into_a_type() -> None:
    pipe = Pipe().modern().on("tools/call", said("", structuredContent={"points": [{"x": 1, "y": 2}]}))
    async with connect(pipe) as client:
        found = await client.call_tool("t", into=Box)
        assert found.data == Box([Point(1, 2)])
        assert found.structured == {"points": [{"x": 1, "y": 2}]}
        with pytest.raises(errors.InvalidOutput, match="t") as caught:
            await client.call_tool("t", into=list[int])
        assert caught.value.result.structured == {"points": [{"x": 1, "y": 2}]}


async def test_text_that_is_json_may_be_made_into_a_type_too() -> None:
    pipe = Pipe().modern().on("tools/call", said("[1, 2]"))
    async with connect(pipe) as client:
        assert (await client.call_tool("t", into=list[int])).data == [1, 2]
        assert (await client.call_tool("t", into=str)).data == "[1, 2]"
        assert (await client.call_tool("t")).data == "[1, 2]"


async def test_a_failed_tool_is_a_result_or_an_exception_as_one_likes() -> None:
    pipe = Pipe().modern().on("tools/call", said("it broke", isError=True))
    async with connect(pipe) as client:
        found = await client.call_tool("t", into=Box)
        assert (found.is_error, found.text) == (True, "it broke")
        with pytest.raises(ToolError, match="it broke") as caught:
            await client.call_tool("t", raise_on_error=True)
        assert caught.value.result.is_error
    async with connect(pipe, raise_on_error=True) as client:
        with pytest.raises(ToolError):
            await client.call_tool("t")
        assert (await client.call_tool("t", raise_on_error=False)).is_error
    pipe.on("tools/call", {"isError": True, "content": []})
    async with connect(pipe, raise_on_error=True) as client:
        with pytest.raises(ToolError, match="t failed"):
            await client.call_tool("t")


async def test_arguments_may_be_anything_with_a_json_form() -> None:
    pipe = Pipe().modern().on("tools/call", said("x"))
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    async with connect(pipe) as client:
        await client.call_tool("t", {"p": Point(1, 2), "when": when, "b": Box([])})
    sent = pipe.one("tools/call")["params"]["arguments"]
    assert sent == {"p": {"x": 1, "y": 2}, "when": "2026-01-02T03:04:05Z", "b": {"points": []}}


@pytest.mark.parametrize("value", [object(), {1, object()}, lambda: None], ids=["object", "set", "function"])
async def test_arguments_without_a_json_form_are_refused_here(value: Any) -> None:
    pipe = Pipe().modern()
    async with connect(pipe) as client:
        with pytest.raises(errors.LocalProtocolError, match="JSON"):
            await client.call_tool("t", {"a": value})
    assert not pipe.all("tools/call")


async def test_no_arguments_are_no_arguments() -> None:
    pipe = Pipe().modern().on("tools/call", said("x"))
    async with connect(pipe) as client:
        await client.call_tool("t")
        await client.call_tool("t", {})
    first, second = pipe.all("tools/call")
    assert "arguments" not in first["params"]
    assert second["params"]["arguments"] == {}


@pytest.mark.parametrize(
    ("ref", "sent"),
    [
        ("greet", {"type": "ref/prompt", "name": "greet"}),
        ("note://{id}", {"type": "ref/resource", "uri": "note://{id}"}),
        (PromptReference(name="a{b"), {"type": "ref/prompt", "name": "a{b"}),
        (ResourceReference(uri="plain"), {"type": "ref/resource", "uri": "plain"}),
    ],
)
async def test_completion_knows_prompts_from_templates(ref: Any, sent: Any) -> None:
    pipe = Pipe().modern().on("completion/complete", {"completion": {"values": ["a"]}})
    async with connect(pipe) as client:
        assert (await client.complete(ref, "arg", "v", {"other": "x"})).values == ["a"]
        await client.complete(ref, "arg", "v")
    first, second = (message["params"] for message in pipe.all("completion/complete"))
    assert first["ref"] == sent
    assert first["argument"] == {"name": "arg", "value": "v"}
    assert first["context"] == {"arguments": {"other": "x"}}
    assert "context" not in second


async def test_the_oldest_revision_has_completion_without_a_word_for_it() -> None:
    """protocol.md 1.5: cap from 2025-03-26."""
    pipe = Pipe().legacy("2024-11-05", {}).on("completion/complete", {"completion": {"values": []}})
    async with connect(pipe) as client:
        await client.complete("p", "a", "v")
    pipe = Pipe().legacy("2025-03-26", {})
    async with connect(pipe) as client:
        with pytest.raises(errors.Unsupported):
            await client.complete("p", "a", "v")


@pytest.mark.parametrize("check", ["warn", "strict", "off"])
async def test_a_result_is_checked_as_one_likes(check: Any, caplog: pytest.LogCaptureFixture) -> None:
    """P32."""
    schema = {"type": "object", "required": ["n"]}
    pipe = Pipe().modern().on("tools/list", listed(tool("t", outputSchema=schema)))
    pipe.on("tools/call", said("x", structuredContent={}))
    async with connect(pipe, schema_check=check) as client:
        if check == "strict":
            with pytest.raises(errors.InvalidOutput, match="t"):
                await client.call_tool("t")
        else:
            assert (await client.call_tool("t")).structured == {}
    assert ("does not match" in caplog.text) == (check == "warn")


async def test_tools_are_looked_up_once_and_again_when_they_change() -> None:
    pipe = Pipe().modern().on("tools/call", said("x"))
    async with connect(pipe) as client:
        await asyncio.gather(*(client.call_tool("t") for _ in range(5)))
        await client.call_tool("other")
        assert len(pipe.all("tools/list")) == 1
        pipe.say(tell("notifications/tools/list_changed"))
        await client.call_tool("t")
        assert len(pipe.all("tools/list")) == 2


async def test_a_call_whose_tool_cannot_be_listed_is_made_all_the_same() -> None:
    from tests.support.peers import Refused

    pipe = Pipe().modern().on("tools/list", Refused(-32603, "broken")).on("tools/call", said("x"))
    async with connect(pipe) as client:
        assert (await client.call_tool("t")).data == "x"


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"timeout": 0.05}, 0.05),
        ({"timeout": 5.0, "max_timeout": 0.05}, 0.05),
        ({"timeout": None, "max_timeout": 0.05}, 0.05),
    ],
)
async def test_every_call_has_a_limit_of_its_own(options: Any, limit: float) -> None:
    """R195; protocol.md 3.6: a hard maximum."""
    pipe = Pipe().modern().on("tools/call", None)
    async with connect(pipe) as client:
        await client.list_tools()
        begun = time.monotonic()
        with pytest.raises(errors.TimedOut, match=r"tools/call.*0\.05 s"):
            await soon(client.call_tool("t", **options))
        assert time.monotonic() - begun < 4.5


@pytest.mark.slow
async def test_a_limit_is_told_without_the_milliseconds_that_the_list_of_tools_took() -> None:
    pipe = Pipe().modern().on("tools/call", None)
    async with connect(pipe) as client:
        with pytest.raises(errors.TimedOut, match=r"within 1 s"):
            await soon(client.call_tool("t", timeout=1.004))


async def test_an_asynchronous_progress_callback_is_heard_out_before_the_result() -> None:
    heard: list[Any] = []

    def play(pipe: Pipe, message: dict[str, Any]) -> None:
        token = message["params"]["_meta"]["progressToken"]
        for value in (1, 2):
            pipe.say(tell("notifications/progress", {"progressToken": token, "progress": value}))
        pipe.say({"jsonrpc": "2.0", "id": message["id"], "result": said("x")})

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0.01)
        heard.append(progress)

    pipe = Pipe().modern().on("tools/call", play)
    async with connect(pipe) as client:
        await client.call_tool("t", on_progress=on_progress)
    assert heard == [1, 2]


async def test_a_person_is_not_hurried_by_the_calls_deadline() -> None:
    form = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": {"type": "object"}}}
    pipe = Pipe().modern().on("tools/call", input_required({"k": form}), said("x"))

    async def on_elicit(ask: Any) -> Any:
        await asyncio.sleep(0.15)
        return ask.accept()

    async with connect(pipe, on_elicit=on_elicit) as client:
        await client.list_tools()
        assert (await client.call_tool("t", timeout=0.1)).data == "x"


async def test_rounds_are_bounded() -> None:
    pipe = Pipe().modern().on("tools/call", input_required(state="s"))
    async with connect(pipe, max_rounds=3) as client:
        with pytest.raises(errors.RoundsExceeded, match="max_rounds"):
            await client.call_tool("t")
    assert len(pipe.all("tools/call")) == 4


async def test_a_client_may_be_closed_from_another_task_than_it_was_opened_in() -> None:
    pipe = Pipe().modern().on("tools/call", None)
    client = await asyncio.ensure_future(open_client(pipe))
    call = asyncio.ensure_future(client.call_tool("t"))
    await until(lambda: pipe.all("tools/call"))
    await asyncio.gather(*(asyncio.ensure_future(client.close()) for _ in range(3)))
    with pytest.raises(errors.Closed):
        await call
    assert client.state == "closed"
    assert not pipe.is_open


async def test_a_repr_says_what_it_is_connected_to() -> None:
    client = connect(Pipe())
    assert repr(client) == "<Client of a scripted pipe, new>"
    await client.close()


def test_without_a_loop_of_asyncio_it_says_what_to_do() -> None:
    """Trio runs a coroutine, too."""
    opening = connect(Pipe()).open()
    with pytest.raises(errors.NotReady, match=r"needs a loop of asyncio.*SyncClient in a thread"):
        opening.send(None)
