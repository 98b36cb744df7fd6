"""A model that uses a host's tools: the providers' own libraries, against providers on 127.0.0.1 that check every request.

What must hold whatever happens: each call is answered once and in order, roles alternate, nothing is done that was not allowed,
and the next message works. `model_provider.py` refuses a request that breaks one of these, and fails the test.

Among the slow tests because the providers' libraries take seconds to import.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support import model_provider
from tests.support.model_provider import KEY, MODEL, Answer, AnthropicWire, Break, OpenAIWire, SilentWire, Status, Wire
from tests.support.ports import find_port
from tests.support.until import PATIENCE

from trimaran import Context, Host, Server, ToolError, content
from trimaran.apps.conversation.model import (
    Conversation,
    Event,
    ModelFailed,
    ModelUnavailable,
    TextReceived,
    ToolCallFailed,
    ToolCallRefused,
    ToolCallReturned,
    ToolCallStarted,
    TurnEnded,
    UserNotice,
    open_model,
)
from trimaran.client import Sampling
from trimaran.errors import ClientStateError, Closed, Error, ProtocolError
from trimaran.types import CallToolResult

# Importing takes seconds on a busy machine; the deadline is for what the tests do.
pytestmark = pytest.mark.deadline(60)


@pytest.fixture(autouse=True, scope="module")
def the_libraries_are_there_before() -> None:
    """And are not looked at for garbage after each test: they are most of what is alive."""
    import anthropic.resources.messages  # noqa: F401
    import openai.resources.chat.completions  # noqa: F401

    gc.collect()
    gc.freeze()


@pytest.fixture(params=[AnthropicWire, OpenAIWire], ids=["anthropic", "openai"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with request.param() as made:
        yield made


@pytest.fixture
async def claude() -> AsyncIterator[AnthropicWire]:
    async with AnthropicWire() as made:
        yield made


@pytest.fixture
async def gpt() -> AsyncIterator[OpenAIWire]:
    async with OpenAIWire() as made:
        yield made


def shop() -> Server:
    server = Server("shop", version="1.0.0")

    @server.tool
    def count(item: str) -> int:
        """How many there are."""
        return len(item)

    @server.tool
    def fail() -> str:
        """Fail."""
        raise ToolError("the drawer is stuck")

    @server.tool
    def break_off() -> str:
        """Answer with an error of the protocol."""
        raise ProtocolError(-32000, "the shop has burnt down")

    return server


class Talk:
    """A conversation with a host of its own, for one test."""

    def __init__(self, wire: Wire, servers: dict[str, Any] | None = None, **options: Any) -> None:
        self.wire = wire
        self.options = {key: options.pop(key) for key in ("max_turns", "max_tokens", "system") if key in options}
        options.setdefault("allow", ["*"])
        self.host = Host({"shop": shop()} if servers is None else servers, **options)

    async def __aenter__(self) -> Talk:
        await self.host.start()
        self.model = open_model(self.wire.name, self.host, environ=self.wire.environ, **self.options)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.model.close()
        await self.host.close()

    async def say(self, text: str, *steps: Any) -> list[Event]:
        self.wire.script += steps
        return [event async for event in self.model.send(text)]

    async def fails(self, text: str, *steps: Any) -> ModelFailed:
        with pytest.raises(ModelFailed) as caught:
            await self.say(text, *steps)
        assert KEY not in str(caught.value)
        return caught.value

    @property
    def last(self) -> dict[str, Any]:
        return self.wire.requests[-1]

    @property
    def answers(self) -> list[tuple[str, str, bool]]:
        return self.wire.answers(self.last)

    @property
    def said(self) -> list[tuple[str, str]]:
        return self.wire.said(self.last)


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextReceived))


def only(events: list[Event], *kinds: type) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


COUNT = "mcp__shop__count"


# --- talk ------------------------------------------------------------------------------------------------------------


async def test_text_comes_in_bits_and_ends_with_what_was_spent(wire: Wire) -> None:
    async with Talk(wire, {}, system="Be brief.") as talk:
        events = await talk.say("Hello?", Answer(["Good ", "day", "."], tokens=(12, 7)))
    assert events == [TextReceived("Good "), TextReceived("day"), TextReceived("."), TurnEnded("end_turn", 12, 7)]
    assert "tools" not in talk.last
    assert "Be brief." in json.dumps(talk.last)
    assert (talk.model.name, talk.model.provider) == (MODEL, wire.provider)


async def test_what_was_said_before_is_sent_again(wire: Wire) -> None:
    async with Talk(wire) as talk:
        await talk.say("One?", Answer(["1"]))
        await talk.say("Two?", Answer(["2"]))
    assert talk.said == [("user", "One?"), ("assistant", "1"), ("user", "Two?")]


async def test_a_cleared_conversation_begins_anew(wire: Wire) -> None:
    async with Talk(wire) as talk:
        await talk.say("One?", Answer(["1"]))
        talk.model.clear()
        await talk.say("Two?", Answer(["2"]))
    assert talk.said == [("user", "Two?")]


async def test_an_answer_without_words_leaves_nothing_empty_behind(wire: Wire) -> None:
    async with Talk(wire) as talk:
        assert await talk.say("One?", Answer([" \n"])) == [TextReceived(" \n"), TurnEnded("end_turn", 10, 5)]
        await talk.say("Two?", Answer(["2"]))
    assert talk.said == [("user", "One?"), ("user", "Two?")]


async def test_an_empty_message_is_not_sent(wire: Wire) -> None:
    async with Talk(wire) as talk:
        with pytest.raises(Error, match="empty"):
            await talk.say(" \n")


async def test_characters_that_came_in_halves_can_be_sent_again(wire: Wire) -> None:
    async with Talk(wire) as talk:
        events = await talk.say("An \ud83d\ude00, and a half \ud83d?", Answer(["a \ud83d", "\ude00"]))
        text_of(events).encode()
        await talk.say("And?", Answer(["."]))
    assert talk.said[:2] == [("user", "An 😀, and a half �?"), ("assistant", "a 😀")]


async def test_one_message_at_a_time(wire: Wire) -> None:
    async with Talk(wire) as talk:
        end = asyncio.Event()
        wire.script.append(Answer(["Well"], before_end=end))
        async with aclosing(talk.model.send("One?")) as events:
            assert await anext(events) == TextReceived("Well")
            with pytest.raises(ClientStateError, match="still answering"):
                await talk.say("Two?")
            end.set()
            assert await anext(events) == TurnEnded("end_turn", 10, 5)
        await talk.say("Three?", Answer(["3"]))
    with pytest.raises(Closed):
        await talk.say("Four?")


# --- tools -----------------------------------------------------------------------------------------------------------


async def test_a_tool_is_called_and_its_result_told(wire: Wire) -> None:
    async with Talk(wire) as talk:
        events = await talk.say(
            "How many ropes?",
            Answer(["I look."], [("c1", COUNT, ['{"it', 'em": "ro', 'pe"}'])], tokens=(20, 9)),
            Answer(["There are 4."], tokens=(30, 6)),
        )
    assert events[:2] == [TextReceived("I look."), ToolCallStarted("c1", COUNT, {"item": "rope"})]
    returned = events[2]
    assert isinstance(returned, ToolCallReturned)
    assert (returned.id, returned.name, returned.result.data) == ("c1", COUNT, 4)
    assert events[3:] == [TextReceived("There are 4."), TurnEnded("end_turn", 50, 15)]
    assert talk.answers == [("c1", "4", False)]


async def test_names_are_the_catalogs_for_the_person_and_the_providers_for_the_model(wire: Wire) -> None:
    async with Talk(wire, separator=":") as talk:
        events = await talk.say("?", Answer([], [("c1", "shop__count", '{"item": "oar"}')]), Answer(["3"]))
    assert events[0] == ToolCallStarted("c1", "shop:count", {"item": "oar"})
    assert "shop:count" not in json.dumps(talk.last)


async def test_tools_asked_for_at_once_run_at_once_and_answer_in_the_order_asked(wire: Wire) -> None:
    server = Server("pair", version="1.0.0")
    second_is_there = asyncio.Event()

    @server.tool
    async def first() -> str:
        """Waits for the second."""
        await asyncio.wait_for(second_is_there.wait(), PATIENCE)
        return "one"

    @server.tool
    async def second() -> str:
        """Lets the first go on."""
        second_is_there.set()
        return "two"

    async with Talk(wire, {"pair": server}) as talk:
        calls: Any = [("a", "mcp__pair__first", ""), ("b", "mcp__pair__second", "{}")]
        events = await talk.say("Go.", Answer([], calls), Answer(["Done."]))
    assert [type(event) for event in events[:2]] == [ToolCallStarted, ToolCallStarted]
    assert [event.id for event in only(events, ToolCallReturned)] == ["b", "a"]
    assert talk.answers == [("a", "one", False), ("b", "two", False)]


async def test_what_is_not_allowed_is_not_called_and_the_model_learns_why(wire: Wire) -> None:
    async with Talk(wire, deny=[COUNT]) as talk:
        events = await talk.say("?", Answer([], [("c1", COUNT, '{"item": "oar"}')]), Answer(["I may not."]))
    assert isinstance(events[1], ToolCallRefused)
    assert (events[1].id, events[1].name) == ("c1", COUNT)
    assert "deny" in events[1].reason
    assert talk.answers == [("c1", events[1].reason, True)]


@pytest.mark.parametrize(
    ("name", "arguments", "because"),
    [
        ("mcp__shop__steal", "{}", "steal"),
        (COUNT, '{"item": ', "not valid JSON"),
        (COUNT, "[1]", "send one JSON object"),
    ],
    ids=["no such tool", "half of a JSON text", "no object"],
)
async def test_a_call_that_is_none_is_told_to_the_model(wire: Wire, name: str, arguments: str, because: str) -> None:
    async with Talk(wire) as talk:
        calls: Any = [("c1", COUNT, '{"item": "oar"}'), ("c2", name, arguments)]
        events = await talk.say("?", Answer([], calls), Answer(["Oh."]))
    (refused,) = only(events, ToolCallRefused)
    assert (refused.id, refused.name) == ("c2", name)
    assert because in refused.reason
    assert talk.answers == [("c1", "3", False), ("c2", refused.reason, True)]


async def test_a_tool_that_fails_and_one_that_breaks_off(wire: Wire) -> None:
    async with Talk(wire) as talk:
        calls: Any = [("c1", "mcp__shop__fail", "{}"), ("c2", "mcp__shop__break_off", "{}")]
        events = await talk.say("?", Answer([], calls), Answer(["Oh."]))
    (returned,) = only(events, ToolCallReturned)
    (failed,) = only(events, ToolCallFailed)
    assert returned.result.is_error
    assert "burnt down" in failed.reason
    assert talk.answers == [("c1", "the drawer is stuck", True), ("c2", failed.reason, True)]


async def test_a_server_that_goes_away_while_its_tool_works(wire: Wire) -> None:
    server = Server("slow", version="1.0.0")
    is_working = asyncio.Event()

    @server.tool
    async def work() -> str:
        """Work for ever."""
        is_working.set()
        await asyncio.Event().wait()
        return ""

    async def stop(host: Host) -> None:
        await asyncio.wait_for(is_working.wait(), PATIENCE)
        await host.stop_server("slow")

    async with Talk(wire, {"slow": server}) as talk:
        stopping = asyncio.create_task(stop(talk.host))
        events = await talk.say("?", Answer([], [("c1", "mcp__slow__work", "{}")]), Answer(["Gone."]))
        await stopping
    (failed,) = only(events, ToolCallFailed)
    assert talk.answers == [("c1", failed.reason, True)]
    assert events[-1] == TurnEnded("end_turn", 20, 10)


async def test_a_mistake_of_the_clients_own_leaves_no_call_without_an_answer(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_call, to_result = Host.from_call, Host.to_result

    def read(self: Host, call: Any, format: Any) -> Any:
        return 1 // 0 if call["id"] == "a" else from_call(self, call, format)

    def write(self: Host, result: Any, call: Any, format: Any) -> Any:
        return 1 // 0 if call.id == "b" and not isinstance(result, Error) else to_result(self, result, call, format)

    monkeypatch.setattr(Host, "from_call", read)
    monkeypatch.setattr(Host, "to_result", write)
    async with Talk(wire) as talk:
        calls: Any = [(id, COUNT, '{"item": "oar"}') for id in "abc"]
        await talk.say("?", Answer([], calls), Answer(["."]))
    broken = "the call failed inside the client"
    assert talk.answers == [("a", broken, True), ("b", broken, True), ("c", "3", False)]


async def test_the_catalog_is_read_anew_for_each_request(wire: Wire) -> None:
    async with Talk(wire) as talk:
        await talk.say("?", Answer(["."]))
        assert "mcp__other__count" not in json.dumps(talk.last)
        await talk.host.start_server("other", shop())
        await talk.say("?", Answer(["."]))
        assert "mcp__other__count" in json.dumps(talk.last)
        await talk.host.stop_server("other")
        await talk.say("?", Answer(["."]))
        assert "mcp__other__count" not in json.dumps(talk.last)


# The address is that of nothing: what a server names is not fetched.
NO_SCHEMA = {"$schema": "http://127.0.0.1:9/none", "type": "object", "properties": {"a": {"type": "word"}}}


async def test_a_tool_that_the_provider_would_refuse_is_left_out_and_that_is_told_once(wire: Wire) -> None:
    server = Server("odd", version="1.0.0")
    server.add_tool(lambda: "ok", name="odd")
    server.add_tool(lambda: "ok", name="even", description="y" * 5000)

    @server.middleware("tools/list")
    async def change(call: Any, call_next: Any) -> Any:
        listed = await call_next(call)
        return replace(
            listed,
            tools=[{**tool, "inputSchema": NO_SCHEMA} if tool["name"] == "odd" else tool for tool in listed.tools],
        )

    async with Talk(wire, {"odd": server}, separator=":") as talk:
        first = await talk.say("?", Answer(["."]))
        second = await talk.say("?", Answer(["."]))
    (notice,) = only(first, UserNotice)
    assert "not told of odd:odd" in notice.text
    assert not only(second, UserNotice)
    assert "odd__odd" not in json.dumps(talk.last)
    assert "odd__even" in json.dumps(talk.last)


async def test_more_tools_than_the_provider_takes_are_left_out(gpt: OpenAIWire) -> None:
    server = Server("many", version="1.0.0")
    for number in range(130):
        server.add_tool(lambda: "ok", name=f"tool{number:03}")
    async with Talk(gpt, {"many": server}) as talk:
        (notice,) = only(await talk.say("?", Answer(["."])), UserNotice)
    assert "2 are left out, from mcp__many__tool128 to mcp__many__tool129" in notice.text
    assert len(talk.last["tools"]) == 128


async def test_progress_is_told_with_the_id_of_its_call(wire: Wire) -> None:
    server = Server("slow", version="1.0.0")

    @server.tool
    async def walk(ctx: Context) -> str:
        """Walk."""
        await ctx.progress(1, 2, "half way")
        return "there"

    seen: list[Any] = []
    async with Talk(wire, {"slow": server}) as talk:
        talk.model.on_progress = lambda *told: seen.append(told)
        await talk.say("?", Answer([], [("c7", "mcp__slow__walk", "{}")]), Answer(["."]))
    assert seen == [("c7", 1, 2, "half way")]


async def test_a_model_that_never_stops_is_stopped_and_can_go_on(wire: Wire) -> None:
    again = [Answer([], [(f"c{number}", COUNT, '{"item": "oar"}')]) for number in range(3)]
    async with Talk(wire, max_turns=2) as talk:
        events = await talk.say("?", *again[:2])
        assert events[-1] == TurnEnded("max_turns", 20, 10)
        assert len(only(events, ToolCallReturned)) == 2
        await talk.say("Go on.", Answer(["Well."]))
    assert talk.said == [("user", "?"), ("user", "Go on.")]


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
async def test_calls_of_an_answer_that_is_not_whole_are_not_made(wire: Wire, reason: str) -> None:
    async with Talk(wire) as talk:
        calls: Any = [("c1", COUNT, '{"item": "oar"}'), ("c2", COUNT, '{"it')]
        events = await talk.say("?", Answer(["I shall"], calls, reason=reason))
        assert events == [TextReceived("I shall"), TurnEnded(reason, 10, 5)]
        await talk.say("Go on.", Answer(["."]))
    assert talk.said == [("user", "?"), ("assistant", "I shall"), ("user", "Go on.")]


# --- pictures --------------------------------------------------------------------------------------------------------


def painter() -> Server:
    server = Server("painter", version="1.0.0")

    @server.tool
    def paint() -> CallToolResult:
        """Paint."""
        return CallToolResult.ok([content.text("Here:"), content.image(b"png")])

    return server


PICTURE = base64.b64encode(b"png").decode()


async def test_a_picture_goes_to_the_model(wire: Wire) -> None:
    async with Talk(wire, {"painter": painter()}) as talk:
        calls: Any = [("c1", "mcp__painter__paint", "{}"), ("c2", "mcp__painter__paint", "{}")]
        await talk.say("?", Answer([], calls), Answer(["Nice."]))
    assert json.dumps(talk.last).count(PICTURE) == 2


async def test_a_picture_that_is_refused_does_not_end_the_conversation(wire: Wire) -> None:
    async with Talk(wire, {"painter": painter()}) as talk:
        events = await talk.say(
            "?", Answer([], [("c1", "mcp__painter__paint", "{}")]), Status(400, "no vision"), Answer(["Nice."])
        )
        assert [type(event) for event in events[2:]] == [UserNotice, TextReceived, TurnEnded]
        await talk.say("And?", Answer(["."]))
    assert PICTURE not in json.dumps(talk.last)
    assert "left out" in json.dumps(talk.last)


async def test_a_refusal_that_is_not_about_pictures_is_told(wire: Wire) -> None:
    async with Talk(wire) as talk:
        error = await talk.fails("?", Status(400, "prompt is too long"))
    assert (error.status, error.provider) == (400, wire.title)
    assert str(error) == (
        f"{wire.title} answered 400: it refused the request (prompt is too long). "
        "If the conversation grew too long, /clear begins a new one."
    )


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "_API_KEY is not accepted"),
        (403, "may not do this"),
        (404, f"no model '{MODEL}'"),
        (413, "too long"),
        (429, "Wait 17 s"),
        (500, "failed on its side"),
        (503, "overloaded"),
        (529, "overloaded"),
    ],
)
async def test_each_status_is_told_with_what_to_do(wire: Wire, status: int, told: str) -> None:
    headers = {"x-should-retry": "false", "retry-after": "17"}
    async with Talk(wire) as talk:
        error = await talk.fails("One?", Status(status, f"your key {KEY} is\n\x1b[31mbad", headers=headers))
        await talk.say("Two?", Answer(["2"]))
    assert str(error).startswith(f"{wire.title} answered {status}: ")
    assert told in str(error)
    assert error.status == status
    assert "\n" not in str(error)
    assert "\x1b" not in str(error)
    assert talk.said == [("user", "Two?")], "a message that got no answer is forgotten"


async def test_a_passing_failure_is_tried_again(wire: Wire) -> None:
    async with Talk(wire) as talk:
        events = await talk.say("?", Status(529, headers={"retry-after-ms": "1"}), Answer(["."]))
    assert text_of(events) == "."
    assert len(wire.requests) == 2


@pytest.mark.parametrize("how", ["cut", "end"])
async def test_a_connection_that_ends_in_the_middle_leaves_what_came(wire: Wire, how: str) -> None:
    async with Talk(wire) as talk:
        error = await talk.fails("One?", Break(["It is "], how))
        await talk.say("Go on.", Answer(["1"]))
    assert "broke in the middle of the answer" in str(error)
    assert talk.said == [("user", "One?"), ("assistant", "It is "), ("user", "Go on.")]


async def test_an_error_in_the_middle_of_an_answer(wire: Wire) -> None:
    async with Talk(wire) as talk:
        error = await talk.fails("One?", Break(["It is "], "error"))
        await talk.say("Go on.", Answer(["1"]))
    assert error.status == {"anthropic": 529, "openai": 500}[wire.provider]
    assert "Wait a moment, then send the message again" in str(error)


async def test_a_failure_between_tools_and_answer_leaves_the_results(wire: Wire) -> None:
    async with Talk(wire) as talk:
        await talk.fails("One?", Answer([], [("c1", COUNT, '{"item": "oar"}')]), Status(500))
        await talk.say("Go on.", Answer(["3"]))
    assert talk.said == [("user", "One?"), ("user", "Go on.")]
    assert talk.wire.answers(talk.last) == [("c1", "3", False)]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"error": "no such\nthing"}, " (no such thing)"),
        ({"detail": "Not Found"}, " (Not Found)"),
        ({"detail": [{"loc": ["body"]}]}, ""),
        ("<html>no</html>", ""),
        ({"error": {"message": "x" * 5000}}, f" ({'x' * 600}...)"),
    ],
    ids=["a word", "detail", "a list", "a page", "a flood"],
)
async def test_what_a_compatible_server_says_of_an_error(body: Any, told: str) -> None:
    class Other(OpenAIWire):
        def _error_body(self, step: Status) -> Any:
            return body

    async with Other() as wire, Talk(wire) as talk:
        error = await talk.fails("?", Status(404))
    assert f"there is no model '{MODEL}' for this key{told}. Look" in str(error)


async def test_a_word_that_is_no_key_is_not_cut_out_of_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_provider, "KEY", "none")
    async with OpenAIWire() as wire, Talk(wire) as talk:
        error = await talk.fails("?", Status(400, "of these there are none"))
    assert "of these there are none" in str(error)


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_a_provider_that_cannot_be_reached(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = provider.upper()
    environ = {f"{name}_API_KEY": KEY, f"{name}_BASE_URL": f"http://127.0.0.1:{find_port()}"}
    async with Host({}) as host:
        model = open_model(f"{provider}:{MODEL}", host, environ=environ)
        model._driver._client.max_retries = 0  # type: ignore[attr-defined]  # each waits for half a second and more
        with pytest.raises(ModelFailed, match=rf"cannot be reached at 127\.0\.0\.1.*{name}_BASE_URL"):
            [_ async for _ in model.send("?")]
        await model.close()


async def test_a_server_that_speaks_something_else() -> None:
    class Page(OpenAIWire):
        def _opening(self, step: Any) -> Any:
            yield b"<html>welcome</html>"

        def _ending(self, step: Any) -> Any:
            yield b"\n\n"

    async with Page() as wire, Talk(wire) as talk:
        error = await talk.fails("?", Answer())
    assert "cannot be read" in str(error)
    assert "OPENAI_BASE_URL" in str(error)


# --- the person says stop --------------------------------------------------------------------------------------------


async def until(events: AsyncIterator[Event], kind: type) -> None:
    async for event in events:
        if isinstance(event, kind):
            return


async def test_stopped_while_the_model_talks(wire: Wire) -> None:
    never = asyncio.Event()
    async with Talk(wire) as talk:
        wire.script.append(Answer(["It is "], before_end=never))
        events = talk.model.send("One?")
        assert await anext(events) == TextReceived("It is ")
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await talk.say("Two?", Answer(["2"]))
        never.set()
    assert talk.said == [("user", "One?"), ("assistant", "It is "), ("user", "Two?")]


async def test_stopped_before_the_model_said_anything(wire: Wire) -> None:
    never = asyncio.Event()
    async with Talk(wire) as talk:
        task = asyncio.create_task(talk.say("One?", Answer([], before_end=never)))
        await asyncio.wait_for(wire.texts_sent.wait(), PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        never.set()
        await talk.say("Two?", Answer(["2"]))
    assert talk.said == [("user", "Two?")]


async def test_stopped_while_tools_work(wire: Wire) -> None:
    server = Server("slow", version="1.0.0")
    is_working, is_cancelled = asyncio.Event(), asyncio.Event()

    @server.tool
    async def work() -> str:
        """Work for ever."""
        is_working.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise
        return ""

    @server.tool
    async def rest() -> str:
        """Rest."""
        return "rested"

    calls: Any = [("a", "mcp__slow__work", "{}"), ("b", "mcp__slow__rest", "{}")]
    wire.script.append(Answer(["Now."], calls))
    async with Talk(wire, {"slow": server}) as talk:
        events = talk.model.send("One?")
        await until(events, ToolCallReturned)
        await asyncio.wait_for(is_working.wait(), PATIENCE)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(is_cancelled.wait(), PATIENCE)
        await talk.say("Two?", Answer(["2"]))
    assert talk.said[-1] == ("user", "Two?")
    assert talk.answers == [("a", "cancelled by the person; how far it got is not known", True), ("b", "rested", False)]


async def test_stopped_before_a_tool_was_called(wire: Wire) -> None:
    async with Talk(wire) as talk:
        wire.script.append(Answer([], [("c1", COUNT, '{"item": "oar"}')]))
        async with aclosing(talk.model.send("One?")) as events:
            await until(events, ToolCallStarted)
        await talk.say("Two?", Answer(["2"]))
    assert talk.answers == [("c1", "cancelled by the person before it was made", True)]


async def test_a_conversation_that_nobody_listens_to_any_more(wire: Wire) -> None:
    async with Talk(wire) as talk:
        wire.script.append(Answer(["Well"], [("c1", COUNT, '{"item": "oar"}')]))
        async for event in talk.model.send("One?"):
            if isinstance(event, ToolCallStarted):
                break
        async with asyncio.timeout(PATIENCE):
            while talk.model._is_answering:  # the loop closes what was dropped
                await asyncio.sleep(0.001)
        await talk.say("Two?", Answer(["2"]))
    assert [answer[0] for answer in talk.answers] == ["c1"]


async def test_cleared_while_a_tool_works(wire: Wire) -> None:
    async with Talk(wire) as talk:
        wire.script += [Answer([], [("c1", COUNT, '{"item": "oar"}')]), Answer(["3"])]
        async with aclosing(talk.model.send("One?")) as events:
            await until(events, ToolCallStarted)
            talk.model.clear()
            await until(events, TurnEnded)
        await talk.say("Two?", Answer(["2"]))
    assert talk.said == [("user", "Two?")]


# --- servers that use the model --------------------------------------------------------------------------------------


async def test_a_server_may_use_the_model_in_the_middle_of_a_call(wire: Wire) -> None:
    server = Server("critic", version="1.0.0")

    @server.tool
    async def review(text: str, ctx: Context) -> str:
        """Review."""
        said = await ctx.sample([content.user_message(f"Judge: {text}")], max_tokens=100_000, system="You are kind.")
        return f"{said.model}, {said.stop_reason}: {said.text}"

    model: list[Conversation] = []
    async with Talk(
        wire, {"critic": server}, auto_allow=True, on_sample=lambda name, ask: model[0].sample(name, ask)
    ) as talk:
        model.append(talk.model)
        call = ("c1", "mcp__critic__review", '{"text": "oars"}')
        await talk.say("?", Answer([], [call]), Answer(["Fine ", "oars."]), Answer(["They like it."]))
        await talk.say("?", Answer(["."]))
    asked, last = wire.requests[1], wire.requests[-1]
    assert wire.said(asked) == [("user", "Judge: oars")]
    assert "tools" not in asked
    assert "You are kind." in json.dumps(asked)
    assert asked["max_tokens"] == 4096
    assert wire.answers(wire.requests[2]) == [("c1", f"{MODEL}, endTurn: Fine oars.", False)]
    assert "Judge" not in json.dumps(last)


def ask(*blocks: dict[str, Any], **more: Any) -> Sampling:
    return Sampling([{"role": "user", "content": list(blocks)}], 50, **more)


TEXT = {"type": "text", "text": "Go."}


async def test_a_sample_ends_where_the_server_wants_it_to(wire: Wire) -> None:
    wire.script.append(Answer(["one; tw", "o. three", " four"]))
    async with Talk(wire) as talk:
        result = await talk.model.sample("shop", ask(TEXT, stop_sequences=["three", "two."]))
    assert (result.text, result.stop_reason) == ("one; ", "stopSequence")


async def test_a_sample_may_be_about_a_picture(wire: Wire) -> None:
    wire.script.append(Answer(["A rope."]))
    picture = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
    async with Talk(wire) as talk:
        assert (await talk.model.sample("shop", ask(TEXT, picture))).text == "A rope."
    assert PICTURE in json.dumps(talk.last)


async def test_what_cannot_be_sampled_is_refused_without_a_request(wire: Wire) -> None:
    async with Talk(wire) as talk:
        with pytest.raises(ProtocolError, match="without tools"):
            await talk.model.sample("shop", ask(TEXT, tools=[{"name": "x"}]))
        with pytest.raises(ProtocolError, match="'audio'"):
            await talk.model.sample("shop", ask({"type": "audio", "data": "", "mimeType": "audio/wav"}))
        with pytest.raises(ProtocolError, match="without content"):
            await talk.model.sample("shop", ask())
        with pytest.raises(ProtocolError, match="no messages"):
            await talk.model.sample("shop", Sampling([], 50))
        with pytest.raises(ProtocolError, match="'system'"):
            await talk.model.sample("shop", Sampling([{"role": "system", "content": TEXT}], 50))
    assert not wire.requests


async def test_a_server_is_not_told_why_the_provider_failed(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    wire.script.append(Status(429, "credit is used up"))
    async with Talk(wire) as talk:
        with pytest.raises(ProtocolError) as caught:
            await talk.model.sample("shop", ask(TEXT))
    assert caught.value.message == "the model could not answer"
    assert "credit is used up" in caplog.text


# --- one provider alone ----------------------------------------------------------------------------------------------


async def test_thinking_goes_back_beside_the_calls_it_led_to(claude: AnthropicWire) -> None:
    async with Talk(claude) as talk:
        step = Answer(["I look."], [("c1", COUNT, '{"item": "oar"}')], thinking="Ropes...")
        events = await talk.say("?", step, Answer(["3"]))
    assert text_of(events) == "I look.3"
    assert talk.last["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Ropes...", "signature": "sig=="}


async def test_what_is_sent_again_is_marked_for_the_cache_once(claude: AnthropicWire) -> None:
    async with Talk(claude) as talk:
        await talk.say("?", Answer([], [("c1", COUNT, '{"item": "oar"}')]), Answer(["3"]))
    assert json.dumps(talk.last).count("cache_control") == 1
    assert talk.last["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize("ids", [("", ""), ("same", "other")], ids=["no ids", "one index for all"])
async def test_a_compatible_server_with_ideas_of_its_own(ids: tuple[str, str]) -> None:
    async with SilentWire() as wire, Talk(wire) as talk:
        calls: Any = [(ids[0], COUNT, '{"item": "oar"}'), (ids[1], COUNT, '{"item": "rope"}')]
        events = await talk.say("?", Answer([], calls), Answer(["7"]))
        assert [event.result.data for event in only(events, ToolCallReturned)] == [3, 4]
        assert events[-1] == TurnEnded("end_turn", 0, 0)
        assert [text for _, text, _ in talk.answers] == ["3", "4"]
        assert talk.last["messages"][1]["tool_calls"][0]["extra_content"] == {"thought": COUNT}


# --- which model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("claude-sonnet-5", "anthropic", "claude-sonnet-5"),
        ("anthropic:glm-9", "anthropic", "glm-9"),
        ("gpt-6", "openai", "gpt-6"),
        ("o3", "openai", "o3"),
        ("openai:llama3:8b", "openai", "llama3:8b"),
    ],
)
async def test_the_name_tells_the_provider(name: str, provider: str, model: str) -> None:
    async with Host({}) as host:
        made = open_model(name, host, environ={"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY})
        assert (made.provider, made.name) == (provider, model)
        assert KEY not in repr(made) + repr(made._driver.provider)
        await made.close()


@pytest.mark.parametrize(
    ("name", "environ", "told"),
    [
        ("llama3", {}, "anthropic:MODEL or openai:MODEL"),
        ("llama3:8b", {}, "whose model is 'llama3:8b'"),
        ("openai:", {}, "whose model"),
        ("", {}, "whose model"),
        ("gemini:flash", {}, "own API is not driven"),
        ("gemini-3-pro", {"GEMINI_API_KEY": KEY}, "own API is not driven"),
        ("claude-x", {}, "set ANTHROPIC_API_KEY"),
        ("gpt-x", {"ANTHROPIC_API_KEY": KEY}, "set OPENAI_API_KEY"),
        ("gpt-x", {"OPENAI_API_KEY": " "}, "set OPENAI_API_KEY"),
        ("gpt-x", {"OPENAI_API_KEY": f"{KEY}\n{KEY}"}, "OPENAI_API_KEY holds characters"),
        ("claude-x", {"ANTHROPIC_API_KEY": f"{KEY}…"}, "ANTHROPIC_API_KEY holds characters"),
        ("gpt-x", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "localhost:11434"}, "OPENAI_BASE_URL is no address"),
        ("gpt-x", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://[::1"}, "OPENAI_BASE_URL is no address"),
    ],
    ids=[
        "unknown family",
        "unknown provider",
        "no model",
        "nothing",
        "gemini by provider",
        "gemini by family",
        "no key",
        "another's key",
        "blank key",
        "key of two lines",
        "key with a strange character",
        "address without a scheme",
        "address that is none",
    ],
)
def test_a_model_that_cannot_be_had_says_what_is_missing(name: str, environ: dict[str, str], told: str) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        open_model(name, Host({}), environ=environ)
    assert told in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(("name", "package"), [("claude-x", "anthropic"), ("gpt-x", "openai")])
def test_a_library_that_is_not_there_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelUnavailable, match=f"pip install {package}$"):
        open_model(name, Host({}), environ={"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY})
