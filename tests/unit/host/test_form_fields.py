"""Forms: what a schema becomes, what a typed text means in it, and that a bad schema or a bad answer is only that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran.host import Field, Form, Question
from trimaran.host.terminal_text import in_one_line

TITLED = [{"const": "n", "title": "North"}, {"const": "s", "title": "South"}]
BOOKING: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Boat", "description": "As painted on it.", "minLength": 3},
        "nights": {"type": "integer", "minimum": 1, "maximum": 14},
        "depth": {"type": "number", "default": 2.5},
        "power": {"type": "boolean", "default": True},
        "berth": {"type": "string", "oneOf": TITLED},
        "side": {"type": "string", "enum": ["p", "s"], "enumNames": ["Port", "Starboard"], "default": "p"},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["water", "fuel", "ice"]}, "maxItems": 2},
        "mail": {"type": "string", "format": "email"},
    },
    "required": ["name", "nights", "berth"],
}
GOOD = {"name": "Tern", "nights": "3", "berth": "n"}


def one(schema: Any, *, required: bool = False) -> Field:
    (field,) = Form({"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []}).fields
    return field


def problem(schema: Any, typed: Any) -> str:
    _, problems = Form({"type": "object", "properties": {"x": schema}, "required": ["x"]}).read({"x": typed})
    assert problems.keys() == {"x"}
    return problems["x"]


# What a form looks like


def test_fields_come_in_the_order_of_the_schema_with_what_a_person_needs_to_know() -> None:
    """R257: a question is a message and a schema; this is what is made of the schema."""
    fields = Form(BOOKING).fields
    assert [(field.name, field.kind, field.required) for field in fields] == [
        ("name", "text", True),
        ("nights", "integer", True),
        ("depth", "number", False),
        ("power", "boolean", False),
        ("berth", "choice", True),
        ("side", "choice", False),
        ("extras", "choices", False),
        ("mail", "text", False),
    ]
    assert [(field.title, field.description) for field in fields[:2]] == [("Boat", "As painted on it."), ("nights", "")]
    assert [field.default for field in fields] == [None, None, 2.5, True, None, "p", None, None]


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 65535}, "whole number, 1 to 65535"),
        ({"type": "number", "minimum": 0.5}, "number, at least 0.5"),
        ({"type": "string", "maxLength": 8}, "text, at most 8 characters"),
        ({"type": "string", "format": "email"}, "e-mail address"),
        ({"type": "string", "format": "moon-phase"}, "text"),
        ({"type": "boolean"}, "yes or no"),
        ({"type": "string", "enum": ["a"]}, "one of these"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "any of these"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2}, "1 to 2 of these"),
        ({"type": "object"}, "JSON object"),
        ({"type": "integer", "minimum": "one", "maximum": 10**400}, "whole number"),
    ],
)
def test_a_hint_says_in_a_few_words_what_is_expected(schema: dict[str, Any], hint: str) -> None:
    assert one(schema).hint == hint


@pytest.mark.parametrize(
    ("schema", "choices"),
    [
        ({"type": "string", "enum": ["a", "b"]}, (("a", "a"), ("b", "b"))),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["A"]}, (("a", "A"), ("b", "b"))),
        ({"type": "string", "oneOf": TITLED}, (("n", "North"), ("s", "South"))),
        ({"type": "array", "items": {"anyOf": TITLED}}, (("n", "North"), ("s", "South"))),
        ({"enum": [1, 2.5, None]}, ((1, "1"), (2.5, "2.5"), (None, "None"))),
    ],
)
def test_choices_are_understood_in_every_spelling_the_protocol_has_had(schema: Any, choices: Any) -> None:
    assert one(schema).choices == choices


def test_what_a_server_calls_its_fields_cannot_touch_the_terminal() -> None:
    name = "\x1b]0;owned\x07[red]"
    (field,) = Form({"properties": {name: {"enum": ["\x1b[2J"], "description": "a\nb\u202ec" + "x" * 999}}}).fields
    assert field.name == name
    assert field.title == "\\x1b]0;owned\\x07[red]"
    assert field.choices == (("\x1b[2J", "\\x1b[2J"),)
    assert "\n" not in field.description
    assert "\u202e" not in field.description
    assert len(field.description) <= 400
    assert one({"type": "string", "default": "\x1b[1m"}).default_text == "\\x1b[1m"


# What an answer means


def test_an_answer_is_read_field_by_field_and_what_is_empty_is_left_out() -> None:
    typed = {**GOOD, "depth": " 3 ", "power": False, "side": "", "extras": ["fuel", "ice"], "mail": "  "}
    assert Form(BOOKING).read(typed) == (
        {"name": "Tern", "nights": 3, "depth": 3.0, "power": False, "berth": "n", "extras": ["fuel", "ice"]},
        {},
    )


def test_every_problem_is_told_at_once_by_the_name_of_its_field() -> None:
    typed = {"name": "Te", "nights": "x", "berth": "west", "extras": ["water", "fuel", "ice"], "mail": "ada"}
    content, problems = Form(BOOKING).read(typed)
    assert content == {}
    assert problems == {
        "name": '"Te" is shorter than 3 characters',
        "nights": "'x' is not a whole number",
        "berth": "'west' is not among the choices",
        "extras": '["water","fuel","ice"] has more than 2 items',
        "mail": "'ada' is not an e-mail address such as ada@example.org",
    }


def test_what_is_needed_and_not_there_is_a_problem() -> None:
    needed = "an answer is needed here"
    assert Form(BOOKING).read({"name": " "})[1] == {"name": needed, "nights": needed, "berth": needed}
    assert Form(BOOKING).read(GOOD)[1] == {}


def test_a_default_that_is_left_alone_holds_and_one_that_was_emptied_does_not() -> None:
    schema = {
        "type": "object",
        "properties": {
            "note": {"type": "string", "default": "Ahoy"},
            "extras": {"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a"]},
            "n": {"type": "integer", "default": 3},
        },
        "required": ["note", "n"],
    }
    form = Form(schema)
    assert form.read({}) == ({}, {})
    assert form.read({"note": "", "extras": [], "n": ""}) == ({"note": "", "extras": []}, {})
    assert [field.default_text for field in form.fields] == ["Ahoy", "a", "3"]


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        ({"type": "number", "default": 3}, 3),
        ({"type": "string", "default": " a\x07\r\n"}, " a\x07\r\n"),
        ({"type": "object", "default": {"a": [1]}}, {"a": [1]}),
        ({"type": "boolean", "default": False}, False),
    ],
    ids=["number", "text", "object", "boolean"],
)
def test_a_default_that_is_typed_as_it_is_shown_is_the_default(schema: dict[str, Any], default: Any) -> None:
    field = one(schema)
    value = field.read(field.default_text)
    assert (value, type(value)) == (default, type(default))


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": ["integer", "null"]}, "3", 3),
        ({"type": ["string", "integer"]}, "3", "3"),
        ({}, "3", "3"),
        (True, "3", "3"),
        ({"enum": [1, "1", True]}, "1", "1"),
        ({"enum": [1, "1", True]}, True, True),
        ({"enum": [1, 2]}, "2", 2),
        ({"type": "string", "enum": ["²", "³"]}, "³", "³"),
    ],
)
def test_what_a_form_may_not_ask_for_is_read_all_the_same(schema: Any, typed: Any, value: Any) -> None:
    content, problems = Form({"type": "object", "properties": {"x": schema}}).read({"x": typed})
    assert (content, problems) == ({"x": value}, {})
    assert type(content["x"]) is type(value)


@pytest.mark.parametrize(
    ("schema", "typed", "said"),
    [
        ({"type": "integer"}, "9" * 5000, "not a whole number"),
        ({"type": "integer"}, "9" * 30, "not a whole number JSON can carry"),
        ({"type": "number"}, "1e999", "not a number JSON can carry"),
        ({"type": "boolean"}, "perhaps", "answer yes or no"),
        ({"type": "object"}, "{", "not of type"),
        ({"type": "object", "required": ["a"]}, "{}", "required property"),
        ({"type": "string", "enum": ["a"]}, "²", "'²' is not among the choices"),
        ({"type": "string", "pattern": "^x"}, "y", "does not match"),
        ({"type": "string"}, "\ud800", "surrogate"),
        ({"type": "string", "enum": ["a"]}, "\x1b[2J" + "z" * 999, "..."),
    ],
    ids=["digits", "large", "infinite", "truth", "broken", "nested", "superscript", "pattern", "surrogate", "long"],
)
def test_a_problem_is_one_short_line(schema: dict[str, Any], typed: str, said: str) -> None:
    told = problem(schema, typed)
    assert said in told
    assert told.isprintable()
    assert len(told) <= 200


def test_a_field_says_what_is_wrong_with_a_value_error() -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        one({"type": "integer"}).read("x")


# The form as a whole


def test_what_only_the_whole_form_knows_is_told_for_its_field_or_for_the_form() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/Port"}, "b c": {"type": "string"}, "d": {"type": "string"}},
        "$defs": {"Port": {"type": "integer", "maximum": 9}},
        "dependentRequired": {"b c": ["d"]},
    }
    assert Form(schema).read({"a": "10"})[1] == {"a": "10 is greater than the maximum of 9"}
    assert Form(schema).read({"b c": "x"})[1] == {"d": "an answer is needed here"}
    assert Form({**schema, "required": ["e"]}).read({})[1] == {"": '"e" is a required property (at $)'}


async def test_what_is_let_through_is_accepted_and_what_is_not_would_not_be() -> None:
    """R257: the one judge is the validator that `accept` asks."""
    content, problems = Form(BOOKING).read(GOOD)
    assert not problems
    question = Question("elicit", "harbour", "How long?", schema=BOOKING)
    assert question.accept(content)
    assert question.content == {"depth": 2.5, "power": True, "side": "p", "name": "Tern", "nights": 3, "berth": "n"}


# Schemas that are none


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "form",
        {},
        {"properties": None},
        {"properties": [1]},
        {"properties": {}, "required": "all"},
        {"type": "object", "properties": {}, "required": [{}]},
    ],
    ids=str,
)
def test_what_is_no_form_has_no_fields(schema: Any) -> None:
    form = Form(schema)
    assert form.fields == ()
    assert form.read({"x": "y"}) == ({}, {})


def test_a_form_of_ten_thousand_fields_is_read() -> None:
    names = [f"f{number}" for number in range(10_000)]
    form = Form({"type": "object", "properties": dict.fromkeys(names, {"type": "integer"}), "required": names})
    assert len(form.fields) == 10_000
    assert len(form.read({})[1]) == 10_000
    assert one({"enum": list(range(100_000))}).kind == "text"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYWORDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null", "x"]) | JSON,
        "enum": st.lists(JSON, max_size=3) | JSON,
        "enumNames": st.lists(st.text(max_size=3)) | JSON,
        "oneOf": st.lists(st.fixed_dictionaries({"const": JSON}, optional={"title": JSON}), max_size=3) | JSON,
        "items": st.fixed_dictionaries({"enum": st.lists(JSON, max_size=3)}) | JSON,
        "format": st.sampled_from(["email", "uri", "date", "date-time"]) | JSON,
        "minLength": JSON,
        "maximum": JSON,
        "pattern": st.text(max_size=5) | JSON,
        "title": JSON,
        "description": JSON,
        "default": JSON,
        "$ref": JSON,
    },
)
TYPED = st.text(max_size=8) | st.booleans() | st.lists(st.text(max_size=3), max_size=3)


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["a", "b", "\x1b["]), KEYWORDS | JSON, max_size=3),
    st.lists(st.sampled_from(["a", "b", "z"]), max_size=2) | JSON,
    st.dictionaries(st.sampled_from(["a", "b", "\x1b["]), TYPED),
)
def test_no_schema_and_no_answer_makes_a_form_fail(properties: Any, required: Any, typed: Any) -> None:
    schema = {"type": "object", "properties": properties, "required": required}
    form = Form(schema)
    content, problems = form.read(typed)
    assert content.keys() <= {field.name for field in form.fields}
    shown = [*problems.values(), *(text for field in form.fields for text in (field.title, field.hint))]
    assert [text for text in shown if in_one_line(text) != text] == []
    assert all(isinstance(field.default_text, str) for field in form.fields)
