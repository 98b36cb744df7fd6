"""`Host.answer`: a model's reply in, the message with every result out. A model's mistake never ends the loop."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.until import soon

from trimaran import Host, Server, ToolError
from trimaran.errors import Closed, ConfigError, LocalProtocolError
from trimaran.host import Question
from trimaran.types import ImageContent

LIMIT = 10.0
FORMATS = ["anthropic", "openai", "openai-responses", "gemini"]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def make_server() -> Server:
    server = Server("shop", version="1")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool
    def fail() -> str:
        """Fail."""
        raise ToolError("out of stock")

    @server.tool
    def drop() -> str:
        """Drop."""
        return "dropped"

    @server.tool
    def picture() -> Any:
        """Draw."""
        return ImageContent(data=PIXEL, mime_type="image/png")

    return server


def make_host(server: Server | None = None, **options: Any) -> Host:
    defaults: dict[str, Any] = {"environ": {}, "allow": ["mcp__shop__*"], "deny": ["mcp__shop__drop"]}
    return Host({"shop": server or make_server()}, **{**defaults, **options})


def reply_in(format: str, *calls: tuple[str, Any], ending: str = "") -> Any:
    """A reply with these calls, as JSON; their ids are c0, c1, ..."""
    numbered = [(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls)]
    if format == "anthropic":
        blocks = [{"type": "tool_use", "id": i, "name": name, "input": arguments} for i, name, arguments in numbered]
        content = [{"type": "text", "text": "Let me see."}, *blocks]
        return {"type": "message", "role": "assistant", "content": content, "stop_reason": ending or "tool_use"}
    if format == "openai":
        entries = [
            {"id": i, "type": "function", "function": {"name": name, "arguments": text_of(arguments)}}
            for i, name, arguments in numbered
        ]
        message = {"role": "assistant", "content": None, "tool_calls": entries}
        return {"choices": [{"index": 0, "message": message, "finish_reason": ending or "tool_calls"}]}
    if format == "openai-responses":
        items = [
            {"type": "function_call", "call_id": i, "name": name, "arguments": text_of(arguments)}
            for i, name, arguments in numbered
        ]
        return {"object": "response", "status": ending or "completed", "output": [{"type": "reasoning"}, *items]}
    parts = [{"functionCall": {"id": i, "name": name, "args": arguments}} for i, name, arguments in numbered]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": ending or "STOP"}]}


def text_of(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def as_object(value: Any) -> Any:
    """The same as a provider's library has it: objects with attributes, whose arguments are plain."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        plain = ("input", "args")
        return SimpleNamespace(**{name: v if name in plain else as_object(v) for name, v in fields.items()})
    return [as_object(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def texts(answer: Any) -> list[tuple[str, str, bool]]:
    """The id, the text and the failure of each result."""
    read: list[tuple[str, str, bool]] = []
    for result in answer if isinstance(answer, list) else answer.get("content") or answer["parts"]:
        if "functionResponse" in result:
            response = result["functionResponse"]["response"]
            text = response.get("error", response.get("output"))
            read.append((result["functionResponse"]["id"], str(text), "error" in response))
        elif result.get("type") == "tool_result":
            read.append((result["tool_use_id"], result["content"][0]["text"], result.get("is_error", False)))
        else:
            text = str(result.get("content", result.get("output")))
            call_id = result.get("tool_call_id") or result["call_id"]
            read.append((call_id, text.removeprefix("[tool error] "), text.startswith("[tool error]")))
    return read


@pytest.mark.parametrize("as_library_object", [False, True])
@pytest.mark.parametrize("format", FORMATS)
async def test_every_call_of_a_reply_gets_a_result_that_the_model_can_read(
    format: str, as_library_object: bool
) -> None:
    """R221, R223: a good call, an unknown name, a failure, a denied call and wrong arguments, in the order of the calls."""
    reply = reply_in(
        format,
        ("mcp__shop__add", {"a": 1, "b": 2}),
        ("mcp__shop__ad", {}),
        ("mcp__shop__fail", {}),
        ("mcp__shop__drop", {}),
        ("mcp__shop__add", {"a": 1}),
    )
    async with make_host() as host:
        answer = await soon(host.answer(as_object(reply) if as_library_object else reply))
    results = texts(answer)
    assert [call_id for call_id, _, _ in results] == ["c0", "c1", "c2", "c3", "c4"]
    assert [is_error for _, _, is_error in results] == [False, True, True, True, True]
    assert results[0][1] == "3"
    assert "has no tool 'ad'" in results[1][1]
    assert "similar names: mcp__shop__add" in results[1][1]
    assert results[2][1] == "out of stock"
    assert "denied by a rule" in results[3][1]
    assert "missing required argument 'b'" in results[4][1]


async def test_a_name_without_its_server_is_answered_with_the_whole_name() -> None:
    async with make_host() as host:
        answer = await soon(host.answer(reply_in("anthropic", ("add", {"a": 1, "b": 2}))))
    ((_, text, is_error),) = texts(answer)
    assert is_error
    assert "similar names: mcp__shop__add" in text


async def test_the_message_is_the_one_that_its_provider_takes() -> None:
    add = ("mcp__shop__add", {"a": 1, "b": 2})
    async with make_host() as host:
        assert await soon(host.answer(reply_in("anthropic", add))) == {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c0", "content": [{"type": "text", "text": "3"}]}],
        }
        assert await soon(host.answer(reply_in("openai", add))) == [
            {"role": "tool", "tool_call_id": "c0", "content": "3"}
        ]
        assert await soon(host.answer(reply_in("openai-responses", add))) == [
            {"type": "function_call_output", "call_id": "c0", "output": "3"}
        ]
        assert await soon(host.answer(reply_in("gemini", add))) == {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c0", "name": "mcp__shop__add", "response": {"output": 3}}}],
        }


@pytest.mark.parametrize("format", FORMATS)
async def test_the_message_of_a_reply_or_its_content_does_as_well(format: str) -> None:
    reply = reply_in(format, ("mcp__shop__add", {"a": 1, "b": 2}))
    inner: list[Any] = {
        "anthropic": lambda: [reply["content"], {"role": "assistant", "content": reply["content"]}],
        "openai": lambda: [reply["choices"][0], reply["choices"][0]["message"]],
        "openai-responses": lambda: [reply["output"]],
        "gemini": lambda: [reply["candidates"][0], reply["candidates"][0]["content"]],
    }[format]()
    async with make_host() as host:
        expected = await soon(host.answer(reply))
        for part in inner:
            assert await soon(host.answer(part)) == expected
            assert await soon(host.answer(as_object(part))) == expected


@pytest.mark.parametrize(
    "reply",
    [
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        {"role": "assistant", "content": "Done."},
        {"choices": [{"message": {"role": "assistant", "content": "Done.", "tool_calls": None}}]},
        {"output": [{"type": "message", "content": [{"type": "output_text", "text": "Done."}]}]},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Done."}]}}]},
        {"content": [{"type": "server_tool_use", "id": "c", "name": "web_search", "input": {}}]},
        [],
    ],
)
async def test_a_reply_without_calls_has_no_answer(reply: Any) -> None:
    async with make_host() as host:
        assert await soon(host.answer(reply)) is None
        assert await soon(host.answer(as_object(reply))) is None


@pytest.mark.parametrize("format", ["openai", "openai-responses"])
@pytest.mark.parametrize("arguments", ["{a: 1", "[1]", "null and void", '"x"', "3"])
async def test_arguments_that_are_no_object_are_told_to_the_model(format: str, arguments: str) -> None:
    async with make_host() as host:
        [(call_id, text, is_error)] = texts(await soon(host.answer(reply_in(format, ("mcp__shop__add", arguments)))))
    assert (call_id, is_error) == ("c0", True)
    assert "send one JSON object" in text


@pytest.mark.parametrize("name", ["", None, "weather", "mcp__shop__", "mcp__other__add", 7])
@pytest.mark.parametrize("format", FORMATS)
async def test_a_name_that_no_tool_has_is_told_to_the_model(format: str, name: Any) -> None:
    async with make_host() as host:
        [(call_id, text, is_error)] = texts(await soon(host.answer(reply_in(format, (name, {})))))
    assert (call_id, is_error) == ("c0", True)
    assert text


async def test_a_call_that_its_kind_makes_unreadable_is_answered_all_the_same() -> None:
    """Chat Completions refuses the next request if any entry of `tool_calls` has no answer."""
    entry = {"id": "c9", "type": "custom", "custom": {"name": "run", "input": "text"}}
    async with make_host() as host:
        answer: Any = await soon(host.answer({"role": "assistant", "tool_calls": [entry]}, format="openai"))
        [result] = answer
    assert result["tool_call_id"] == "c9"
    assert result["content"].startswith("[tool error]")


async def test_calls_run_at_the_same_time() -> None:
    server = Server("shop", version="1")
    both = asyncio.Barrier(2)

    @server.tool
    async def meet() -> str:
        """Wait for the other call."""
        await both.wait()
        return "met"

    async with make_host(server) as host:
        answer = await soon(host.answer(reply_in("openai", ("mcp__shop__meet", {}), ("mcp__shop__meet", {}))))
    assert [text for _, text, _ in texts(answer)] == ["met", "met"]


async def test_a_call_that_takes_too_long_is_told_and_harms_no_other() -> None:
    server = make_server()

    @server.tool
    async def hang() -> str:
        """Never return."""
        await asyncio.Event().wait()
        return ""

    async with make_host(server) as host:
        reply = reply_in("anthropic", ("mcp__shop__hang", {}), ("mcp__shop__fail", {}))
        results = texts(await soon(host.answer(reply, timeout=0.1)))
    assert "no answer to tools/call" in results[0][1]
    assert results[1][1] == "out of stock"


async def test_whoever_cancels_the_answer_cancels_its_calls() -> None:
    server = Server("shop", version="1")
    entered, left = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hang() -> str:
        """Never return."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return ""

    async with make_host(server) as host:
        answering = asyncio.create_task(host.answer(reply_in("anthropic", ("mcp__shop__hang", {}))))
        await soon(entered.wait())
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(answering)
        await soon(left.wait())


async def test_a_person_may_refuse_one_call_of_several() -> None:
    def person(question: Question) -> None:
        question.allow() if question.arguments == {"a": 1, "b": 2} else question.deny()

    async with make_host(allow=(), on_question=person) as host:
        reply = reply_in("openai", ("mcp__shop__add", {"a": 1, "b": 2}), ("mcp__shop__add", {"a": 6, "b": 6}))
        results = texts(await soon(host.answer(reply)))
    assert [is_error for _, _, is_error in results] == [False, True]


@pytest.mark.parametrize(
    ("format", "ending"),
    [
        ("anthropic", "max_tokens"),
        ("openai", "length"),
        ("openai-responses", "incomplete"),
        ("gemini", "MAX_TOKENS"),
    ],
)
async def test_the_last_call_of_a_reply_that_was_cut_off_is_not_made(format: str, ending: str) -> None:
    """The provider ended the reply in the middle: half a file must not be written as if it were whole."""
    made: list[int] = []
    server = Server("shop", version="1")

    @server.tool
    def write(number: int) -> str:
        """Write."""
        made.append(number)
        return "written"

    async with make_host(server) as host:
        calls = [("mcp__shop__write", {"number": 1}), ("mcp__shop__write", {"number": 2})]
        results = texts(await soon(host.answer(reply_in(format, *calls, ending=ending))))
    assert made == [1]
    assert "token limit" in results[1][1]


async def test_pictures_follow_in_a_message_of_their_own_where_asked_for() -> None:
    reply = reply_in("openai", ("mcp__shop__picture", {}))
    async with make_host() as host:
        [alone] = await soon(host.answer(reply))
        assert "left out" in alone["content"]
        result, pictures = await soon(host.answer(reply, media=True))
        assert "follows in the next message" in result["content"]
        assert pictures["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
        [block] = (await soon(host.answer(reply_in("anthropic", ("mcp__shop__picture", {})))))["content"]
        assert block["content"][0]["type"] == "image"


async def test_a_fault_of_the_host_itself_is_logged_and_told_as_a_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret")

    async with make_host() as host:
        monkeypatch.setattr(Host, "call", broken)
        [(_, text, is_error)] = texts(await soon(host.answer(reply_in("openai", ("mcp__shop__add", {})))))
    assert is_error
    assert "secret" not in text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("reply", ["hello", 3, None, {}, {"id": "x"}])
async def test_something_that_is_no_reply_is_a_mistake_of_the_program(reply: Any) -> None:
    async with make_host() as host:
        with pytest.raises(LocalProtocolError, match="not a reply of a model's provider"):
            await host.answer(reply)


async def test_a_reply_with_several_choices_is_not_guessed_about() -> None:
    async with make_host() as host:
        with pytest.raises(ConfigError, match="choose one, and pass its message"):
            await host.answer({"choices": [{"message": {}}, {"message": {}}]})


async def test_an_unknown_format_is_named_with_all_formats() -> None:
    async with make_host() as host:
        with pytest.raises(ConfigError, match="did you mean 'openai'.* anthropic, openai, openai-responses, gemini"):
            await host.answer({"content": []}, format="opnai")  # pyright: ignore[reportArgumentType, reportCallIssue]


async def test_a_misspelt_option_is_named_with_the_nearest_one() -> None:
    async with make_host() as host:
        misspelt: Any = {"tiemout": 1}
        with pytest.raises(TypeError, match="'tiemout'; did you mean 'timeout'"):
            await host.answer({}, **misspelt)


async def test_a_host_that_is_not_open_answers_nothing() -> None:
    host = make_host()
    with pytest.raises(Closed, match="not started"):
        await host.answer(reply_in("anthropic", ("mcp__shop__add", {})))
    await host.close()
