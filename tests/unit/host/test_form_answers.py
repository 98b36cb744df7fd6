"""Fields with references, defaults, choices and numbers are filled in as JSON takes them."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.host import (
    Field,
    Form,
)
from trimaran.schema.typed_values import WordError, fit, parse_json, read_words

DEFINED = {
    "type": "object",
    "properties": {
        "port": {"$ref": "#/$defs/Port", "title": "Which port?"},
        "color": {"$ref": "#/$defs/Color"},
        "colors": {"type": "array", "items": {"$ref": "#/$defs/Color"}},
    },
    "$defs": {
        "Port": {"type": "integer", "maximum": 9, "default": 3},
        "Color": {"type": "string", "enum": ["red", "blue"]},
    },
}


def test_a_field_that_is_defined_elsewhere_in_the_form_can_be_filled_in() -> None:
    form = Form(DEFINED)
    assert [field.kind for field in form.fields] == ["integer", "choice", "choices"]
    assert form.fields[0].title == "Which port?"
    answer = {"port": 7, "color": "red", "colors": ["blue"]}
    assert form.read({"port": "7", "color": "RED", "colors": ["blue"]}) == (answer, {})
    assert not form.fields[0].has_default  # nobody would fill it in


@pytest.mark.parametrize(
    "schema",
    [{"allOf": [{"$ref": "#/$defs/Port"}]}, {"anyOf": [{"$ref": "#/$defs/Port"}, {"type": "null"}]}],
    ids=["all of one", "or null"],
)
def test_a_field_that_is_put_together_of_what_is_defined_elsewhere_can_be_filled_in(schema: dict[str, Any]) -> None:
    form = Form({**DEFINED, "properties": {"port": schema}})
    assert form.read({"port": "7"}) == ({"port": 7}, {})
    assert form.read({"port": "70"})[1].keys() == {"port"}


def test_a_reference_that_leads_nowhere_or_round_and_round_is_a_field_for_text() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/B"}},
        "$defs": {"A": {"$ref": "#/$defs/A"}},
    }
    assert [field.kind for field in Form(schema).fields] == ["text", "text"]


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [True, False], "default": True},
        {"enum": [{"x": 1}, "y"], "default": {"x": 1}},
        {"type": "array", "items": {"enum": ["a, b", "c"]}, "default": ["a, b"]},
    ],
    ids=["truth", "object", "comma"],
)
def test_a_default_among_choices_is_read_back_as_it_is_shown(schema: dict[str, Any]) -> None:
    field = Field("a", schema)
    assert field.read(field.default_text) == schema["default"]


def test_a_default_that_is_no_answer_does_not_stand_in_for_one() -> None:
    assert Field("a", {"type": "boolean", "default": "yes"}).read("yes") is True


def test_a_choice_is_by_value_before_it_is_by_title() -> None:
    field = Field("a", {"oneOf": [{"const": 1, "title": "2"}, {"const": 2, "title": "1"}]})
    assert (field.read("2"), field.read("1")) == (2, 1)
    assert Field("a", {"enum": [True, "yes"], "default": True}).read("yes") == "yes"


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "integer"}, "3.0", 3),
        ({"type": "integer"}, "1e3", 1000),
        ({"type": "number"}, "9007199254740993", 9007199254740993),
        ({"type": "string", "format": "date-time"}, "2026-07-28t10:00:00z", "2026-07-28t10:00:00z"),
    ],
)
def test_a_number_or_a_time_is_what_json_takes_for_one(schema: dict[str, Any], typed: str, value: Any) -> None:
    found = Field("a", schema).read(typed)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "typed"),
    [
        ({"type": "integer"}, "3.5"),
        ({"type": "integer"}, "1e300"),
        ({"type": ["string", "null"], "format": "date"}, "soon"),
    ],
)
def test_what_the_hint_rules_out_is_not_taken(schema: dict[str, Any], typed: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        Field("a", schema).read(typed)


def test_a_number_that_json_cannot_hold_is_not_sent_as_nothing() -> None:
    """1e999 would be infinite, and an infinite number is written as null."""
    with pytest.raises(WordError, match="1e999 is larger than any number"):
        parse_json("[1e999]", "a:")
    with pytest.raises(WordError, match="the tool wants a number"):
        fit(read_words(["a=-1e999"]), {"properties": {"a": {"type": "number"}}})
