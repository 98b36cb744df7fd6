"""Stringified JSON is read where the schema leaves no doubt, and nowhere else."""

import copy

import pytest

from trimaran.schema import repair


def over(shape, **root):
    return {"type": "object", "properties": {"x": shape}, **root}


@pytest.mark.parametrize(
    ("shape", "text", "read", "kind"),
    [
        ({"type": "array"}, "[1, 2]", [1, 2], "an array"),
        ({"type": "array", "items": {"type": "integer"}}, " [1, 2] ", [1, 2], "an array"),
        ({"type": "integer"}, "5", 5, "an integer"),
        ({"type": "number"}, "5.5", 5.5, "a number"),
        ({"type": "boolean"}, "true", True, "a boolean"),
        ({"type": "object"}, '{"a": 1}', {"a": 1}, "an object"),
        ({"type": "null"}, "null", None, "null"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None, "null"),
        ({"oneOf": [{"type": "integer"}, {"type": "array"}]}, "[1]", [1], "an array"),
        ({"enum": [1, 2]}, "2", 2, "an integer"),
    ],
)
def test_text_is_read_where_only_something_else_fits(shape, text, read, kind):
    """P24."""
    value, notes = repair({"x": text}, over(shape))
    assert value == {"x": read}
    assert notes == [f"argument 'x' was a JSON string and was read as {kind}"]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({"type": "string"}, "[1, 2]"),
        ({}, "5"),
        (True, "5"),
        ({"type": ["string", "integer"]}, "5"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5"),
        ({"type": "integer"}, "five"),
        ({"type": "integer"}, "5.5"),
        ({"type": "integer"}, '"5"'),
        ({"type": "array", "items": {"type": "integer"}}, '["a"]'),
        ({"type": "array"}, "[" * 100_000),
        ({"type": "integer"}, "\ud800"),
        ({"$ref": "#/$defs/none"}, "5"),
        ({"$ref": "#anchor"}, "5"),
        ({"enum": [1, "2"]}, "2"),
    ],
)
def test_text_stays_text_where_it_may_or_where_reading_does_not_help(shape, text):
    given = {"x": text}
    value, notes = repair(given, over(shape))
    assert value is given
    assert notes == []


def test_places_inside_objects_and_arrays_are_mended():
    schema = over({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}})
    value, notes = repair({"x": [{"n": "1"}, {"n": 2}]}, schema)
    assert value == {"x": [{"n": 1}, {"n": 2}]}
    assert notes == ["argument 'x[0].n' was a JSON string and was read as an integer"]


def test_text_inside_text_is_mended():
    schema = over({"type": "array", "items": {"type": "integer"}})
    assert repair({"x": '["1", 2]'}, schema)[0] == {"x": [1, 2]}


def test_what_was_given_is_not_altered():
    given = {"x": ["1"]}
    before = copy.deepcopy(given)
    repair(given, over({"type": "array", "items": {"type": "integer"}}))
    assert given == before


def test_local_references_are_followed_even_in_circles():
    tree = {"type": "object", "properties": {"n": {"type": "integer"}, "kid": {"$ref": "#/$defs/tree"}}}
    schema = over({"$ref": "#/$defs/tree"}, **{"$defs": {"tree": tree}})
    value, _ = repair({"x": {"n": "1", "kid": '{"n": "2"}'}}, schema)
    assert value == {"x": {"n": 1, "kid": {"n": 2}}}


def test_a_bare_circle_of_references_ends():
    schema = over({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})
    assert repair({"x": "5"}, schema)[1] == []


def test_fixed_tuples_are_mended_by_place():
    schema = over({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]})
    assert repair({"x": ["1", "1"]}, schema)[0] == {"x": ["1", 1]}


def test_every_part_of_all_of_counts():
    schema = over({"allOf": [{"type": "object", "properties": {"n": {"type": "integer"}}}]})
    assert repair({"x": {"n": "1"}}, schema)[0] == {"x": {"n": 1}}


def test_the_only_alternative_of_the_right_type_is_mended():
    record = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema = over({"anyOf": [record, {"type": "null"}]})
    assert repair({"x": {"n": "1"}}, schema)[0] == {"x": {"n": 1}}


def test_between_several_alternatives_nothing_is_guessed():
    one = {"type": "object", "properties": {"n": {"type": "integer"}}}
    two = {"type": "object", "properties": {"n": {"type": "boolean"}}}
    assert repair({"x": {"n": "1"}}, over({"anyOf": [one, two]}))[1] == []


def test_additional_properties_are_mended_but_pattern_ones_are_left():
    assert repair({"y": "1"}, {"additionalProperties": {"type": "integer"}})[0] == {"y": 1}
    patterned = {"patternProperties": {"y": {"type": "string"}}, "additionalProperties": {"type": "integer"}}
    assert repair({"y": "1"}, patterned)[1] == []


def test_a_reference_into_another_part_of_the_root_is_left_alone():
    schema = {"properties": {"a": {"type": "integer"}, "b": {"items": {"$ref": "#/properties/a"}, "type": "array"}}}
    assert repair({"b": "[1]"}, schema) == ({"b": "[1]"}, [])


def test_a_value_deeper_than_the_search_is_left_alone():
    schema = over(
        {"$ref": "#/$defs/n"}, **{"$defs": {"n": {"items": {"$ref": "#/$defs/n"}, "type": ["array", "integer"]}}}
    )
    value = "1"
    for _ in range(100):
        value = [value]
    assert repair({"x": value}, schema)[1] == []
