"""The bridge to a person: every question ends, and silence is a no (R257-R261)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.support.until import PATIENCE, soon

from trimaran.errors import ConfigError, LocalProtocolError
from trimaran.host import ConsentBridge, ConsentLost, Question
from trimaran.host.permissions import Policy, RuleError, Subject

FORM = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}, "age": {"type": "integer", "default": 7}},
    "required": ["name"],
}


def form() -> Question:
    return Question("elicit", "docs", "Your name?", schema=FORM)


def permission(tool: str = "search") -> Question:
    act = Subject.tool("docs", tool)
    decision = Policy().decide(act)
    return Question("permission", "docs", "Call it?", tool=act.name, arguments={"q": "x"}, decision=decision)


# --- who answers -----------------------------------------------------------------------------------------------------


async def test_a_subscriber_gets_questions_in_order_and_its_answers_arrive() -> None:
    """R257."""
    bridge = ConsentBridge()
    async with bridge.attend() as questions:
        asked = [asyncio.ensure_future(bridge.ask(form())) for _ in range(3)]
        one, two, three = [await soon(anext(questions)) for _ in range(3)]
        assert (one.id, two.id, three.id) == (1, 2, 3)
        assert (one.server, one.message, one.schema) == ("docs", "Your name?", FORM)
        assert three.accept({"name": "Ada"})
        assert one.decline()
        assert two.cancel()
        await soon(asyncio.gather(*asked))
    assert [question.reply for question in (one, two, three)] == ["decline", "cancel", "accept"]
    assert three.content == {"name": "Ada", "age": 7}
    assert bridge.waiting == ()


async def test_without_anybody_a_question_is_declined_at_once() -> None:
    """R258."""
    bridge = ConsentBridge()
    assert not bridge.is_attended
    asked = await soon(bridge.ask(form()))
    assert (asked.reply, asked.note) == ("decline", "nobody is here to ask")
    assert (await soon(bridge.ask(permission()))).reply == "deny"


async def test_a_function_answers_at_once_or_later() -> None:
    bridge = ConsentBridge(on_question=lambda question: question.allow())
    assert (await soon(bridge.ask(permission()))).reply == "allow once"

    async def slowly(question: Question) -> None:
        await asyncio.sleep(0)
        question.deny("always")

    assert (await soon(ConsentBridge(on_question=slowly).ask(permission()))).reply == "deny always"


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "coroutine"])
async def test_a_function_that_fails_is_a_no(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    def fails(question: Question) -> Any:
        raise RuntimeError("no screen")

    async def fails_later(question: Question) -> None:
        fails(question)

    asked = await soon(ConsentBridge(on_question=fails_later if is_async else fails).ask(permission()))
    assert (asked.reply, asked.note) == ("deny", "on_question failed")
    assert "no screen" in caplog.text


async def test_a_subscriber_goes_before_the_function() -> None:
    bridge = ConsentBridge(on_question=lambda question: question.deny())
    async with bridge.attend() as questions:
        asked = asyncio.ensure_future(bridge.ask(permission()))
        (await soon(anext(questions))).allow()
        assert (await soon(asked)).reply == "allow once"
    assert (await soon(bridge.ask(permission()))).reply == "deny"


async def test_only_one_answers_at_a_time() -> None:
    bridge = ConsentBridge()
    async with bridge.attend():
        with pytest.raises(ConfigError, match="already"):
            async with bridge.attend():
                pass
    async with bridge.attend():
        pass


# --- nothing waits for ever ------------------------------------------------------------------------------------------


async def test_what_nobody_answers_in_time_is_declined_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """R259: five minutes, here a moment."""
    assert ConsentBridge().cap == 300
    bridge = ConsentBridge(cap=0.01)
    async with bridge.attend() as questions:
        with caplog.at_level(logging.WARNING, "trimaran.host"):
            asked = await soon(bridge.ask(form()))
        assert asked.reply == "decline"
        assert "nobody answered" in asked.note
        assert "nobody answered within 0.01 s" in caplog.text
        assert not asked.accept({"name": "too late"})
        assert asked.reply == "decline"
        # One that is over is not shown any more.
        again = asyncio.ensure_future(bridge.ask(permission()))
        shown = await soon(anext(questions))
        assert shown.kind == "permission"
        shown.allow()
        await soon(again)


async def test_the_queue_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """R259."""
    bridge = ConsentBridge()
    async with bridge.attend() as questions:
        waiting = [asyncio.ensure_future(bridge.ask(form())) for _ in range(64)]
        await asyncio.sleep(0)
        assert len(bridge.waiting) == 64
        one_more = await soon(bridge.ask(form()))
        assert one_more.reply == "decline"
        assert "64 questions wait" in caplog.text
        for _ in waiting:
            (await soon(anext(questions))).decline()
        await soon(asyncio.gather(*waiting))
        assert (await _answered(bridge, questions)).reply == "decline"


async def _answered(bridge: ConsentBridge, questions: Any) -> Question:
    asked = asyncio.ensure_future(bridge.ask(form()))
    (await soon(anext(questions))).decline()
    return await soon(asked)


async def test_when_the_subscriber_leaves_the_waiting_get_an_error() -> None:
    """R259."""
    bridge = ConsentBridge()
    async with bridge.attend() as questions:
        seen = asyncio.ensure_future(bridge.ask(form()))
        await soon(anext(questions))
        unseen = asyncio.ensure_future(bridge.ask(permission()))
        await asyncio.sleep(0)
    for one in (seen, unseen):
        with pytest.raises(ConsentLost, match="left"):
            await soon(one)


async def test_closing_ends_subscriber_and_questions() -> None:
    bridge = ConsentBridge()
    async with bridge.attend() as questions:
        asked = asyncio.ensure_future(bridge.ask(form()))
        question = await soon(anext(questions))
        await bridge.close()
        with pytest.raises(ConsentLost, match="closed"):
            await soon(asked)
        assert [one async for one in questions] == []
        await soon(question.wait_closed())
    assert (await soon(bridge.ask(form()))).reply == "decline"


async def test_a_question_that_is_no_longer_wanted_is_withdrawn() -> None:
    bridge = ConsentBridge()
    async with bridge.attend() as questions:
        asked = asyncio.ensure_future(bridge.ask(form()))
        question = await soon(anext(questions))
        asked.cancel()
        await soon(question.wait_closed())
        assert not question.is_open
        assert not question.accept({"name": "Ada"})
        assert bridge.waiting == ()


async def test_a_dialog_is_ended_with_its_question() -> None:
    ended = asyncio.Event()

    async def dialog(question: Question) -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended.set()

    assert (await soon(ConsentBridge(on_question=dialog, cap=0.01).ask(form()))).reply == "decline"
    await soon(ended.wait())


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_an_answer_that_does_not_fit_the_form_can_be_mended() -> None:
    question = form()
    assert question.problems({"name": "A"}) != []
    with pytest.raises(LocalProtocolError, match="does not fit the form"):
        question.accept({"name": "A"})
    assert question.is_open
    assert question.accept({"name": "Ada"})


async def test_a_form_that_cannot_be_checked_is_the_servers_to_check() -> None:
    question = Question("elicit", "docs", "?", schema={"type": "object", "properties": {"a": {"type": "nonsense"}}})
    assert question.accept({"a": 1})


async def test_a_page_is_shown_whole_with_its_host() -> None:
    """Nothing in this package could fetch it: the URL is text."""
    url = "https://safe.example@evil.example:8443/login?next=https://safe.example"
    question = Question("url", "docs", "Sign in", url=url)
    assert (question.url, question.host) == (url, "evil.example:8443")
    assert question.accept()
    assert question.content == {}


async def test_each_kind_has_its_own_answers() -> None:
    with pytest.raises(ConfigError, match=r"use accept\(\)"):
        form().allow()
    with pytest.raises(ConfigError, match=r"use allow\(\)"):
        permission().accept()
    with pytest.raises(ConfigError, match="once"):
        permission().allow("forever")  # pyright: ignore[reportArgumentType]
    question = permission()
    assert question.cancel()
    assert question.reply == "deny"


async def test_a_pattern_is_checked_while_it_can_be_mended() -> None:
    question = permission()
    with pytest.raises(RuleError):
        question.allow("always", pattern="mcp__docs__(")
    with pytest.raises(ConfigError):
        question.allow("always", pattern="mcp__other__*")
    with pytest.raises(ConfigError, match="always"):
        question.allow("once", pattern="mcp__docs__*")
    assert question.is_open
    assert question.allow("always", pattern="mcp__docs__*")
    assert question.pattern == "mcp__docs__*"


def test_a_bridge_needs_time_room_and_something_to_call() -> None:
    for wrong in ({"cap": 0}, {"most": 0}, {"on_question": 5}):
        with pytest.raises(ConfigError):
            ConsentBridge(**wrong)  # pyright: ignore[reportArgumentType]
