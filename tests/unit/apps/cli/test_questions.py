"""Forms at the terminal: what is shown, what an answer means, what is asked again; and pages to visit."""

from __future__ import annotations

import asyncio
import io
import time
from typing import Any

import pytest

from trimaran.apps.cli.output import Screen
from trimaran.apps.cli.questions import Answerer, Field, InvalidAnswer
from trimaran.client.server_requests import Elicitation

from .harness import HARBOUR, AtTerminal, plain


class Typist:
    """Types these lines; None is the end of input. Remembers what it was asked."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.prompts: list[str] = []

    async def line(self, prompt: str) -> str | None:
        self.prompts.append(prompt)
        assert self.lines, f"nothing left to type at {prompt!r}"
        return self.lines.pop(0)


def form(properties: dict[str, Any], required: list[str] | None = None, message: str = "Well?") -> Elicitation:
    schema = {"type": "object", "properties": properties, "required": required or []}
    return Elicitation(message=message, mode="form", schema=schema)


def page(url: str) -> Elicitation:
    return Elicitation(message="Log in.", mode="url", schema={}, url=url)


async def put(ask: Elicitation, *lines: str | None, answers: str = "ask") -> tuple[Any, str]:
    """The answer a person who types these lines gives, and what they saw; every line is used."""
    err = io.StringIO()
    typist = Typist(*lines)
    answerer = Answerer(Screen(out=io.StringIO(), err=err), typist, answers)
    answer = await answerer.answer(ask)
    assert not typist.lines, f"typed too much: {typist.lines}"
    return answer, plain(err.getvalue()) + " | " + plain(typist.prompts)


async def accepted(properties: dict[str, Any], *lines: str, required: list[str] | None = None) -> Any:
    answer, _ = await put(form(properties, required), *lines, "y")
    assert answer.action == "accept"
    return answer.content


# Fields


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, " Tern ", "Tern"),
        ({"type": "string"}, '""', ""),
        ({"type": "string", "format": "email"}, "a@b.example", "a@b.example"),
        ({"type": "string", "format": "uri"}, "https://a.example", "https://a.example"),
        ({"type": "string", "format": "date"}, "2026-07-28", "2026-07-28"),
        ({"type": "string", "format": "date-time"}, "2026-07-28T10:00:00Z", "2026-07-28T10:00:00Z"),
        ({"type": "integer"}, "12", 12),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "off", False),
        ({"type": "string", "enum": ["red", "green"]}, "green", "green"),
        ({"type": "string", "enum": ["red", "green"]}, "2", "green"),
        ({"type": "string", "enum": ["2", "1"]}, "1", "1"),
        ({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}, "green", "g"),
        ({"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}, "Red", "r"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, "a, 3", ["a", "c"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, "A", ["a"]),
    ],
)
def test_a_field_reads_what_a_person_types(schema: dict[str, Any], typed: str, value: Any) -> None:
    """protocol.md 1.3, form elicitation: every kind of field, and every spelling of a choice."""
    found = Field("x", schema, is_required=True).read(typed)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "typed", "said"),
    [
        ({"type": "integer"}, "1.5", "not a whole number"),
        ({"type": "integer", "minimum": 3}, "2", "less than the minimum of 3"),
        ({"type": "number"}, "ten", "not a number"),
        ({"type": "number"}, "nan", "not a number JSON can carry"),
        ({"type": "boolean"}, "perhaps", "answer yes or no"),
        ({"type": "string", "minLength": 3}, "ab", "shorter than 3"),
        ({"type": "string", "format": "email"}, "nobody", "not an e-mail address"),
        ({"type": "string", "format": "uri"}, "no uri", "not a URL"),
        ({"type": "string", "format": "date"}, "2026-13-01", "not a date"),
        ({"type": "string", "format": "date"}, "20260728", "not a date"),
        ({"type": "string", "format": "date-time"}, "tomorrow", "not a date and time"),
        ({"type": "string", "enum": ["red"]}, "blue", "not among the choices"),
        ({"type": "string", "enum": ["red"]}, "2", "not among the choices"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, "a", "less than 2 items"),
    ],
)
def test_a_field_refuses_what_does_not_fit_and_says_why(schema: dict[str, Any], typed: str, said: str) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        Field("x", schema, is_required=True).read(typed)
    assert said in str(caught.value)


def test_a_schema_that_cannot_be_judged_by_is_left_to_the_server() -> None:
    assert Field("x", {"type": "string", "minLength": "three"}, is_required=True).read("a") == "a"


# Forms


async def test_fields_are_asked_in_order_with_what_is_wanted() -> None:
    nights = {"type": "integer", "minimum": 1, "maximum": 14, "title": "Nights", "description": "How many?"}
    berth = {"type": "string", "enum": ["n", "s"], "enumNames": ["North", "South"]}
    answer, seen = await put(form({"nights": nights, "berth": berth}, ["nights", "berth"]), "3", "2", "y")
    assert (answer.action, answer.content) == ("accept", {"nights": 3, "berth": "s"})
    assert "The server asks: Well?" in seen
    assert "Nights (whole number, 1 to 14) How many?" in seen
    assert "berth (one of these) 1 North (n) 2 South (s)" in seen
    assert "You answer: nights = 3, berth = s" in seen


async def test_an_answer_that_does_not_fit_is_asked_again() -> None:
    answer, seen = await put(form({"n": {"type": "integer", "maximum": 9}}, ["n"]), "x", "10", "", "9", "y")
    assert answer.content == {"n": 9}
    assert "'x' is not a whole number: once more, please." in seen
    assert "10 is greater than the maximum of 9" in seen
    assert "An answer is needed here; Ctrl-D cancels." in seen


async def test_an_empty_line_takes_the_default_or_leaves_out_what_may_be_left_out() -> None:
    fields = {
        "a": {"type": "boolean", "default": True},
        "b": {"type": "string"},
        "c": {"type": "integer", "default": 3},
    }
    answer, seen = await put(form(fields, ["c"]), "", "", "", "")
    assert answer.content == {"a": True, "c": 3}
    assert "[yes] >" in seen
    assert "(may be empty) >" in seen


async def test_the_answer_can_be_edited_before_it_is_sent() -> None:
    fields = {"a": {"type": "string"}, "b": {"type": "string"}}
    answer, seen = await put(form(fields, ["a", "b"]), "one", "two", "e", "", "three", "yes")
    assert answer.content == {"a": "one", "b": "three"}
    assert "[one] >" in seen


async def test_a_person_may_decline_or_cancel() -> None:
    fields = {"a": {"type": "string"}}
    assert (await put(form(fields, ["a"]), "x", "n"))[0].action == "decline"
    assert (await put(form(fields, ["a"]), None))[0].action == "cancel"
    assert (await put(form(fields, ["a"]), "x", None))[0].action == "cancel"


async def test_a_form_without_fields_is_a_question_of_yes_or_no() -> None:
    assert (await put(form({}), "y"))[0].action == "accept"
    assert (await put(form({}), ""))[0].action == "decline"
    assert (await put(form({}), "what?", None))[0].action == "cancel"


async def test_what_a_server_asks_cannot_touch_the_terminal() -> None:
    bad = form({"a": {"type": "string", "title": "\x1b[2Jx", "default": "\x1b[1m"}}, message="\x1b]0;owned\x07hello")
    _, seen = await put(bad, "", "y")
    assert "\x1b" not in seen
    assert "\x07" not in seen


async def test_questions_that_come_at_once_are_put_one_after_the_other() -> None:
    typist = Typist("one", "y", "two", "y")
    answerer = Answerer(Screen(out=io.StringIO(), err=io.StringIO()), typist)
    asks = [form({"a": {"type": "string"}}, ["a"]), form({"b": {"type": "string"}}, ["b"])]
    answers = await asyncio.gather(*(answerer.answer(ask) for ask in asks))
    assert [answer.content for answer in answers] == [{"a": "one"}, {"b": "two"}]


# Pages


async def test_a_page_is_shown_whole_with_its_host_and_needs_consent() -> None:
    """protocol.md 6, 7: full URL and host, explicit consent, nothing opened."""
    answer, seen = await put(page("https://pay.example/a?b=c"), "y", "")
    assert answer.action == "accept"
    assert "https://pay.example/a?b=c" in seen
    assert "on the host pay.example" in seen
    assert "It is not opened for you" in seen
    assert (await put(page("https://pay.example/"), ""))[0].action == "decline"
    assert (await put(page("https://pay.example/"), "y", None))[0].action == "cancel"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://pay.example/", "not https but http"),
        ("https://bank.example@evil.example/", "the host is evil.example"),
        ("https://evil.example\\@bank.example/", "on the host evil.example"),
        ("https://xn--pple-43d.example/", "may look like others"),
        ("https://аpple.example/", "may look like others"),
        ("https://[bad/", "not a proper URL"),
    ],
    ids=["http", "at", "backslash", "punycode", "cyrillic", "broken"],
)
async def test_a_page_that_may_not_be_what_it_seems_is_warned_of(url: str, said: str) -> None:
    _, seen = await put(page(url), "n")
    assert said in seen


# At a real terminal


@pytest.mark.slow
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_form_is_filled_in_at_the_terminal(era: str) -> None:
    with AtTerminal("call", HARBOUR, "book", "--era", era) as terminal:
        assert "harbour asks:" in terminal.wait_for("How long will you stay?")
        terminal.answer("> ", "99")
        terminal.wait_for("greater than the maximum of 14")
        terminal.answer("> ", "3")
        terminal.answer("[no] > ", "y")
        terminal.answer("[south] > ", "1")
        terminal.answer("[e]dit: ", "")
        assert terminal.end() == 0
    assert "accept: Stay(nights=3, power=True, berth='north')" in terminal.seen


@pytest.mark.slow
def test_ctrl_d_cancels_the_question_and_ctrl_c_the_call() -> None:
    with AtTerminal("call", HARBOUR, "book") as terminal:
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert "cancel: None" in terminal.seen
    with AtTerminal("call", HARBOUR, "book") as terminal:
        terminal.wait_for("> ")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.seen


@pytest.mark.slow
def test_the_time_a_person_takes_is_not_the_servers() -> None:
    """The person pauses for longer than the deadline of the call: time itself is what is tested here."""
    with AtTerminal("call", HARBOUR, "book", "--timeout", "1", "--era", "legacy") as terminal:
        terminal.wait_for("> ")
        time.sleep(1.5)
        terminal.type("99\n")
        terminal.answer("> ", "3")
        terminal.answer("[no] > ", "")
        terminal.answer("[south] > ", "")
        terminal.answer("[e]dit: ", "")
        assert terminal.end() == 0
    assert "accept: Stay(nights=3" in terminal.seen


@pytest.mark.slow
def test_a_page_is_consented_to_at_the_terminal() -> None:
    with AtTerminal("call", HARBOUR, "pay") as terminal:
        terminal.wait_for("https://pay.example/berth/7")
        terminal.answer("[y/N] ", "y")
        terminal.answer("when you are done there. ", "")
        assert terminal.end() == 0
    assert terminal.seen.rstrip().endswith("accept")
