"""The validator: full 2020-12, nothing fetched, nothing that can take the process down."""

import pytest

from trimaran import Server, connect
from trimaran.errors import DeclarationError
from trimaran.schema import Validator, Violation, check_object_schema, validate

OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "string"}}},
    "required": ["a"],
    "additionalProperties": False,
}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_fitting_value_has_no_violations():
    validator = Validator(OBJECT)
    assert validator.is_valid({"a": 1, "b": ["x"]})
    assert validator.errors({"a": 1}) == []
    assert validator.first({"a": 1}) is None


def test_each_violation_names_its_path_and_its_reason():
    """R82."""
    found = validate({"a": "x", "b": ["ok", 3]}, OBJECT)
    assert [(v.path, v.reason) for v in found] == [
        ("$.a", '"x" is not of type "integer"'),
        ("$.b[1]", '3 is not of type "string"'),
    ]


def test_a_key_that_is_no_identifier_is_quoted_in_the_path():
    schema = {"additionalProperties": {"type": "integer"}}
    assert Validator(schema).first({"a b": "x"}).path == "$['a b']"


def test_a_missing_and_an_unexpected_property_are_named():
    """R82."""
    missing, unexpected = sorted(validate({"c": 1}, OBJECT), key=lambda v: v.keyword, reverse=True)
    assert (missing.keyword, missing.subject) == ("required", "a")
    assert (unexpected.keyword, unexpected.subject) == ("additionalProperties", "c")


def test_a_property_where_none_is_allowed_is_named():
    schema = {"properties": {"a": {"type": "object", "additionalProperties": False}}}
    (found,) = validate({"a": {"b": 1}}, schema)
    assert (found.path, found.keyword, found.subject) == ("$.a", "additionalProperties", "b")


@pytest.mark.parametrize("schema", [None, {}, True, {"description": "anything"}, {"x-unknown": {"type": 3}}])
def test_no_schema_and_unknown_keywords_accept_anything(schema):
    """R83."""
    assert validate({"any": [1, None, "x"]}, schema) == []


async def test_arguments_can_be_checked_before_a_server_is_called():
    """R89: the public validator says of a listed schema what the server itself would say."""
    server = Server("sums", version="1")
    server.add_tool(lambda a: a, name="take", input_schema=OBJECT)
    async with connect(server) as client:
        (tool,) = await client.list_tools()
        for arguments in ({"a": 1}, {"a": "x"}, {}, {"a": 1, "b": [3]}, {"a": 1, "c": 1}):
            faults = validate(arguments, tool.input_schema)
            result = await client.call_tool("take", arguments)
            assert result.is_error == bool(faults)
            assert not faults or faults[0].path.removeprefix("$") in result.text


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": ["string", "null"]}, None, 1),
        ({"enum": [1, "a"]}, "a", "b"),
        ({"items": {"type": "integer"}}, [1, 2], [1, "x"]),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, 1, []),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 1, 3),
        ({"anyOf": [{"minimum": 5}, {"type": "string"}]}, "x", 1),
        ({"allOf": [{"minimum": 5}, {"maximum": 7}]}, 6, 8),
        ({"minLength": 2, "maxLength": 3}, "ab", "a"),
        ({"pattern": "^a$"}, "a", "a\n"),
        ({"minimum": 1, "exclusiveMaximum": 3}, 2, 3),
        ({"maximum": 1, "exclusiveMinimum": -1}, 0, -1),
        ({"minItems": 1, "maxItems": 2}, [1], []),
        ({"uniqueItems": True}, [1, 2], [1, 1]),
        ({"type": "integer"}, 1.0, True),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}, "a", 1),
        ({"$ref": "#x", "$defs": {"y": {"$anchor": "x", "type": "string"}}}, "a", 1),
        ({"$dynamicRef": "#x", "$defs": {"y": {"$dynamicAnchor": "x", "type": "string"}}}, "a", 1),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1]),
        ({"properties": {"a": True}, "unevaluatedProperties": False}, {"a": 1}, {"b": 1}),
    ],
)
def test_the_keywords_of_2020_12_are_enforced(schema, good, bad):
    """R82."""
    validator = Validator(schema)
    assert validator.is_valid(good)
    assert validator.errors(good) == []
    assert not validator.is_valid(bad)
    assert validator.errors(bad)


def test_format_is_an_annotation():
    assert validate("not a date", {"type": "string", "format": "date"}) == []
    assert validate("x", {"$schema": "http://json-schema.org/draft-07/schema#", "format": "date"}) == []


@pytest.mark.parametrize(
    "dialect",
    [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ],
)
def test_a_declared_draft_is_honoured(dialect):
    assert validate(1, {"$schema": dialect, "type": "string"})


def test_draft_seven_reads_items_as_a_tuple():
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}
    assert validate(["a", 1], schema) == []
    assert validate([1], schema)


@pytest.mark.parametrize("ref", ["http://example.com/s.json", "file:///etc/passwd", "other.json"])
def test_an_outside_reference_is_refused_by_name_and_never_fetched(ref):
    with pytest.raises(DeclarationError, match=ref):
        Validator({"properties": {"a": {"$ref": ref}}})


def test_a_local_reference_to_nothing_is_refused():
    with pytest.raises(DeclarationError, match="/\\$defs/X"):
        Validator({"$ref": "#/$defs/X"})


def test_an_invalid_schema_is_refused_with_its_path():
    with pytest.raises(DeclarationError, match=r"\$\.properties\.a\.minLength"):
        Validator({"properties": {"a": {"minLength": "x"}}})


@pytest.mark.parametrize("schema", [3, [], "x", None])
def test_what_is_no_schema_is_refused(schema):
    with pytest.raises(DeclarationError):
        Validator(schema)


def test_an_unknown_dialect_is_refused():
    with pytest.raises(DeclarationError, match="dialect"):
        Validator({"$schema": "http://example.com/mine"})


def test_a_bad_pattern_is_refused():
    with pytest.raises(DeclarationError, match="pattern"):
        Validator({"pattern": "("})


@pytest.mark.parametrize("depth", [1_500, 10_000, 200_000])
def test_a_value_nested_beyond_reason_is_refused_and_not_a_crash(depth):
    validator = Validator({"items": {"$ref": "#"}})
    value = nested(depth)
    assert not validator.is_valid(value)
    assert "nested deeper" in validator.first(value).reason
    # Taken apart by hand: freeing it at one go recurses as well.
    while value:
        value = value.pop()


def test_a_deep_but_honest_value_is_judged():
    assert Validator({"items": {"$ref": "#"}}).is_valid(nested(500))


def test_brackets_in_text_do_not_count_as_depth():
    assert Validator({"type": "array"}).is_valid(["[" * 5000])


def test_a_schema_nested_beyond_reason_is_refused():
    schema = {}
    for _ in range(900):
        schema = {"items": schema}
    with pytest.raises(DeclarationError):
        Validator(schema)


def test_the_number_of_violations_is_bounded():
    assert len(validate(["x"] * 1000, {"items": {"type": "integer"}})) == 20


def test_a_long_value_is_cut_in_the_reason_and_the_rule_is_kept():
    (found,) = validate("x" * 100_000, {"type": "integer"})
    assert len(found.reason) < 500
    assert found.reason.endswith('is not of type "integer"')


def test_a_lone_surrogate_is_a_violation():
    validator = Validator({"type": "object"})
    assert not validator.is_valid({"a": "\ud800"})
    assert "surrogate" in validator.first({"a": "\ud800"}).reason
    assert "surrogate" in Validator({"type": "string"}).first("\ud800").reason


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1}}, {"a": object()}, b"x", object()])
def test_what_is_not_json_is_a_violation(value):
    validator = Validator({"type": "string"})
    assert not validator.is_valid(value)
    assert validator.errors(value)


def test_not_a_number_is_no_number():
    assert not Validator({"type": "number"}).is_valid(float("nan"))
    assert validate({"a": float("inf")}, {"properties": {"a": {"type": "number"}}})


def test_alternatives_are_explained_by_the_types_they_want():
    (found,) = validate("x", {"anyOf": [{"type": "integer"}, {"type": "null"}]})
    assert found.reason == '"x" is not of type "integer" or "null"'


def test_alternatives_are_explained_by_the_branch_that_was_meant():
    item = {"type": "object", "properties": {"n": {"type": "integer"}}}
    (found,) = validate({"n": "x"}, {"anyOf": [item, {"type": "null"}]})
    assert found == Violation("$.n", '"x" is not of type "integer"', "type")


CAT = {"properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]}
DOG = {"properties": {"kind": {"const": "dog"}, "good": {"type": "boolean"}}, "required": ["kind"]}
STRICT_WORD = {"type": "string", "enum": ["auto"]}


@pytest.mark.parametrize(
    ("value", "schema", "reason"),
    [
        ({"kind": "cow"}, {"oneOf": [CAT, DOG]}, '"cow" is not one of "cat" or "dog" (at $.kind)'),
        ({"kind": "cow"}, {"anyOf": [CAT, DOG, {"type": "null"}]}, '"cow" is not one of "cat" or "dog" (at $.kind)'),
        ({"kind": "dog", "good": "x"}, {"oneOf": [CAT, DOG]}, '"x" is not of type "boolean" (at $.good)'),
        ("b", {"anyOf": [STRICT_WORD, {"type": "integer", "enum": [1]}]}, '"b" is not one of "auto" or 1 (at $)'),
        ("b", {"anyOf": [STRICT_WORD, {"type": "integer"}]}, '"b" is not one of "auto", nor of type "integer" (at $)'),
        ("b", {"const": "a"}, '"b" is not one of "a" (at $)'),
    ],
)
def test_choices_in_alternatives_are_all_named(value, schema, reason):
    """A model that is told of one of them only believes that the others are wrong."""
    assert str(validate(value, schema)[0]) == reason


def test_a_violation_reads_as_a_sentence():
    assert str(Violation("$.a", "wrong")) == "wrong (at $.a)"


def test_a_value_that_fits_two_of_one_is_explained_whole():
    (found,) = validate(3, {"oneOf": [{"minimum": 1}, {"minimum": 2}]})
    assert "oneOf" in found.reason or "more than one" in found.reason


@pytest.mark.parametrize(
    "schema", [{}, {"type": "array"}, {"type": ["object", "null"]}, {"$ref": "#/$defs/x"}, [], None]
)
def test_a_root_that_is_no_object_is_refused(schema):
    """R9."""
    with pytest.raises(DeclarationError, match="input schema of tool 'x'"):
        check_object_schema(schema, "input schema of tool 'x'")


def test_an_object_root_is_fine():
    check_object_schema({"type": "object"}, "it")
