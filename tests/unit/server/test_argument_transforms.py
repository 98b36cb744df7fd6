"""Argument plans: schemas follow the changes, values reach the tool under its own names, refusals use the caller's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from trimaran.errors import DeclarationError
from trimaran.schema import ArgumentError, Violation
from trimaran.server.argument_transforms import ArgumentPlan

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "title": "Q"},
        "limit": {"type": "integer", "minimum": 1},
        "place": {"$ref": "#/$defs/Place"},
    },
    "required": ["q", "limit"],
    "$defs": {
        "Place": {"type": "object", "properties": {"at": {"$ref": "#/$defs/Point"}}},
        "Point": {"type": "array", "items": {"type": "number"}},
    },
}


def plan(changes: Any, schema: dict[str, Any] = SCHEMA, **options: Any) -> ArgumentPlan:
    return ArgumentPlan(schema, changes, "tool 'search'", **options)


def read(changes: Any, arguments: Any, schema: dict[str, Any] = SCHEMA) -> Any:
    return json.loads(bytes(plan(changes, schema).read(json.dumps(arguments).encode())))


# --- schemas ---------------------------------------------------------------------------------------------------------


def test_a_renamed_argument_is_renamed_in_properties_and_required_and_keeps_its_place() -> None:
    schema = plan({"q": {"name": "query", "description": "Words", "examples": ["cats"]}}).schema
    assert list(schema["properties"]) == ["query", "limit", "place"]
    assert schema["properties"]["query"] == {
        "type": "string",
        "title": "Query",
        "description": "Words",
        "examples": ["cats"],
    }
    assert schema["required"] == ["query", "limit"]
    assert schema["$defs"] == SCHEMA["$defs"]


def test_a_title_of_the_authors_own_stays() -> None:
    schema = {"type": "object", "properties": {"q": {"title": "Search words"}}}
    assert plan({"q": {"name": "query"}}, schema).schema["properties"]["query"]["title"] == "Search words"


def test_hidden_and_fixed_arguments_leave_the_schema_with_the_definitions_that_only_they_use() -> None:
    schema = plan({"place": {"hidden": True}, "limit": {"value": 5}}).schema
    assert schema == {
        "type": "object",
        "properties": {"q": {"type": "string", "title": "Q"}},
        "required": ["q"],
    }


def test_a_definition_that_another_argument_uses_stays() -> None:
    properties = {**SCHEMA["properties"], "point": {"$ref": "#/$defs/Point"}}
    schema = plan({"place": {"hidden": True}}, {**SCHEMA, "properties": properties}).schema
    assert list(schema["$defs"]) == ["Point"]


def test_definitions_stay_where_something_has_an_address_of_its_own() -> None:
    definitions = {**SCHEMA["$defs"], "Named": {"$anchor": "named"}}
    schema = plan({"place": {"hidden": True}}, {**SCHEMA, "$defs": definitions}).schema
    assert set(schema["$defs"]) == {"Place", "Point", "Named"}


def test_a_default_makes_an_argument_optional_and_is_told() -> None:
    schema = plan({"q": {"default": "cats"}, "limit": {"default": 3}}).schema
    assert schema["properties"]["q"]["default"] == "cats"
    assert "required" not in schema


def test_what_says_something_about_the_same_object_in_other_words_follows() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {}, "b": {}, "c": {}},
        "anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}],
        "dependentRequired": {"a": ["b", "c"], "c": ["a"]},
        "dependentSchemas": {"a": {"properties": {"b": {"type": "string"}}}},
        "if": {"properties": {"a": {"const": 1}}},
        "then": {"required": ["b"]},
        "not": True,
    }
    changed = plan({"a": {"name": "x"}, "c": {"hidden": True}}, schema).schema
    assert changed == {
        "type": "object",
        "properties": {"x": {}, "b": {}},
        "anyOf": [{"required": ["x"]}],  # nobody sets c
        "dependentRequired": {"x": ["b"]},
        "dependentSchemas": {"x": {"properties": {"b": {"type": "string"}}}},
        "if": {"properties": {"x": {"const": 1}}},
        "then": {"required": ["b"]},
        "not": True,
    }


def test_references_into_the_properties_follow_as_zod_writes_them() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "from": {"type": "object", "properties": {"day": {"type": "string"}}},
            "to": {"$ref": "#/properties/from"},
            "day": {"$ref": "#/properties/from/properties/day"},
        },
    }
    renamed = plan({"from": {"name": "since"}}, schema).schema
    assert renamed["properties"]["to"] == {"$ref": "#/properties/since"}
    assert renamed["properties"]["day"] == {"$ref": "#/properties/since/properties/day"}
    hidden = plan({"from": {"hidden": True}}, schema).schema
    assert hidden["properties"]["to"] == {"$ref": "#/$defs/hidden_from"}
    assert hidden["$defs"] == {"hidden_from": schema["properties"]["from"]}


def test_the_tools_own_schema_stays_as_it_is() -> None:
    before = json.dumps(SCHEMA)
    plan({"q": {"name": "query", "description": "x", "default": "y"}, "place": {"hidden": True}})
    assert json.dumps(SCHEMA) == before


# --- values ----------------------------------------------------------------------------------------------------------


def test_values_reach_the_tool_under_its_own_names() -> None:
    changes = {"q": {"name": "query"}, "limit": {"default": 3}, "place": {"value": {"at": [1, 2]}}}
    assert read(changes, {"query": "cats"}) == {"limit": 3, "q": "cats", "place": {"at": [1, 2]}}
    assert read(changes, {"query": "cats", "limit": 9})["limit"] == 9


def test_two_arguments_may_swap_their_names() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}}
    assert read({"a": {"name": "b"}, "b": {"name": "a"}}, {"a": 1, "b": 2}, schema) == {"b": 1, "a": 2}


def test_nobody_sets_an_argument_that_is_hidden_fixed_or_renamed_away() -> None:
    """Ours: extra arguments are ignored, and these are extra to the caller."""
    changes = {"q": {"name": "query"}, "limit": {"value": 1}, "place": {"hidden": True}}
    sent = {"query": "cats", "q": "dogs", "limit": 99, "place": {"at": []}, "other": 1}
    assert read(changes, sent) == {"q": "cats", "limit": 1, "other": 1}


def test_a_hidden_name_may_be_the_new_name_of_another() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}}
    assert read({"a": {"hidden": True}, "b": {"name": "a"}}, {"a": 1, "b": 2}, schema) == {"b": 1}


def test_numbers_keep_their_digits() -> None:
    text = b'{"query": 1, "n": 12345678901234567890123.50, "e": 1.0}'
    schema = {"type": "object", "properties": {"q": {}, "n": {}, "e": {}}}
    assert bytes(plan({"q": {"name": "query"}}, schema).read(text)) == (
        b'{"q":1,"n":12345678901234567890123.50,"e":1.0}'
    )


def test_a_stringified_value_is_repaired_and_noted_under_the_callers_name() -> None:
    notes: list[str] = []
    mapped = plan({"limit": {"name": "most"}}).read(b'{"q": "x", "most": "5"}', notes=notes)
    assert json.loads(bytes(mapped)) == {"q": "x", "limit": 5}
    assert notes == ["argument 'most' was a JSON string and was read as an integer"]


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"query": 1, "limit": 1}, "argument 'query'"),
        ({"limit": 1}, "missing required argument 'query'"),
        ({"query": "x", "limit": 0}, "argument 'limit'"),
        ([], "arguments"),
    ],
)
def test_a_refusal_names_what_the_caller_sees(arguments: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        read({"q": {"name": "query"}}, arguments)


@pytest.mark.parametrize(
    ("violation", "words"),
    [
        (Violation("$.q", "is no date"), "argument 'query': is no date (at $.query)"),
        (Violation("$.q[0].x", "is odd"), "argument 'query': is odd (at $.query[0].x)"),
        (Violation("$", "", "required", "q"), "missing required argument 'query' (a string)"),
        (Violation("$.place", "wrong"), "the server itself fills in an argument"),
        (Violation("$['b c'].d", "wrong"), "wrong (at $['b c'].d)"),
    ],
)
def test_the_tools_own_refusal_is_told_in_the_callers_names(violation: Violation, words: str) -> None:
    """What a schema cannot say, as a date that is no date, only the tool finds out."""
    changed = plan({"q": {"name": "query"}, "place": {"hidden": True}})

    def refuse(raw: Raw) -> dict[str, Any]:
        raise ArgumentError("in the words of the tool", [violation])

    with pytest.raises(ArgumentError) as caught:
        changed.before(refuse)(b'{"query": "x", "limit": 1}')
    assert str(caught.value).startswith(words)


def test_a_refusal_without_details_stays_as_it_is() -> None:
    assert str(plan({}).restore(ArgumentError("arguments must be an object", []))) == "arguments must be an object"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"p": {"name": "x"}}, "no argument 'p'; its arguments: 'q', 'limit', 'place'"),
        ({"q": {"hidden": True}}, "'q' is required, so nobody could call the tool with it hidden; give it a value"),
        ({"q": {"name": "limit"}}, "'q' and 'limit' would both be called 'limit'"),
        ({"q": {"name": "x"}, "limit": {"name": "x"}}, "'q' and 'limit' would both be called 'x'"),
        (
            {"limit": {"value": "many"}},
            """value does not fit the schema of the argument, {"type":"integer","minimum":1}""",
        ),
        ({"limit": {"default": 0}}, "default does not fit the schema of the argument"),
        ({"place": {"value": {"at": ["x"]}}}, "value does not fit"),
        ({"limit": {"value": object()}}, "must be JSON"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_when_it_is_declared(changes: Any, words: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        plan(changes)
    assert "tool 'search'" in str(caught.value)
    assert words in str(caught.value)


def test_something_else_may_fill_in_a_hidden_argument_and_a_pattern_skips_unknown_ones() -> None:
    assert "q" not in plan({"q": {"hidden": True}}, is_filled=True).schema["properties"]
    assert plan({"p": {"hidden": True}}, skip_unknown=True).schema == SCHEMA


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_an_alternative_that_needs_an_argument_nobody_sets_any_more_is_gone(keyword: str) -> None:
    """Left as "nothing is required", it would always hold: with `oneOf` every other alternative would be one too many."""
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
        keyword: [{"required": ["id"]}, {"required": ["name"]}],
    }
    hidden = ArgumentPlan(schema, {"id": {"hidden": True}}, "tool 'find'")
    assert hidden.schema[keyword] == [{"required": ["name"]}]
    assert bytes(hidden.read(b'{"name":"Rex"}')) == b'{"name":"Rex"}'
    for plan in (
        ArgumentPlan(schema, {"id": {"value": 7}}, "tool 'find'"),
        ArgumentPlan(schema, {"id": {"hidden": True}}, "tool 'find'", is_filled=True),
    ):
        assert plan.schema[keyword] == [{"required": []}, {"required": ["name"]}]
