"""The work of a validator is known before it is done: no schema and no value can keep it busy."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.errors import DeclarationError
from trimaran.schema import Validator, repair
from trimaran.schema.workload import Workload, pattern_size

LEVELS = 40
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def doubling(make: Any, levels: int = LEVELS, leaf: Any = None) -> dict[str, Any]:
    """Definitions that each lead to the previous one twice, by way of `make`."""
    definitions: dict[str, Any] = {"a0": leaf or {"type": "object"}}
    for level in range(1, levels + 1):
        reference = {"$ref": f"#/$defs/a{level - 1}"}
        definitions[f"a{level}"] = make(reference)
    return {"$defs": definitions, "$ref": f"#/$defs/a{levels}"}


def nested(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = {"x": value}
    return value


def by_address(keyword: str, dialect: str | None) -> dict[str, Any]:
    """The same, with references by `$anchor`, `$id` and their kin instead of pointers."""
    sign = "" if keyword.endswith("nchor") else "#"
    parts = {
        f"a{level}": {
            keyword: f"{sign}a{level}",
            "allOf": [{"$ref": f"#a{level - 1}"}, {"$ref": f"#a{level - 1}"}] if level else [],
        }
        for level in range(LEVELS)
    }
    parts["a0"].pop("allOf")
    top = {"allOf": [{"$ref": f"#a{LEVELS - 1}"}]}
    return {**top, "definitions": parts, "$defs": parts, **({"$schema": dialect} if dialect else {})}


SAME_PART = {
    "allOf": lambda ref: {"allOf": [ref, ref]},
    "anyOf": lambda ref: {"anyOf": [ref, ref]},
    "oneOf": lambda ref: {"oneOf": [ref, {"not": ref}]},
    "if": lambda ref: {"if": ref, "then": ref, "else": ref},
    "dependentSchemas": lambda ref: {"dependentSchemas": {"x": ref, "y": ref}},
    "unevaluated": lambda ref: {"allOf": [ref], "unevaluatedProperties": False},
}


@pytest.mark.parametrize("keyword", SAME_PART)
@pytest.mark.parametrize("value", [{}, {"x": 1, "y": 2}, 5], ids=repr)
def test_a_schema_that_doubles_per_level_is_not_applied(keyword: str, value: Any) -> None:
    validator = Validator(doubling(SAME_PART[keyword]))
    assert not validator.is_valid(value)
    (violation,) = validator.errors(value)
    assert violation.is_unchecked
    assert "not checked" in violation.reason


@pytest.mark.parametrize(
    "schema",
    [
        by_address("$anchor", None),
        by_address("$dynamicAnchor", None),
        by_address("$id", DRAFT_7),
        by_address("id", DRAFT_4),
        {
            "$id": "https://x.example/top",
            "$ref": f"a{LEVELS}",
            "$defs": {
                f"a{level}": {
                    "$id": f"a{level}",
                    "allOf": [{"$ref": f"a{max(level - 1, 0)}#"}] * 2 if level else [True],
                }
                for level in range(LEVELS + 1)
            },
        },
        {
            "x-parts": {
                f"a{n}": {"allOf": [{"$ref": f"#/x-parts/a{n - 1}"}] * 2 if n else [True]} for n in range(LEVELS)
            },
            "$ref": f"#/x-parts/a{LEVELS - 1}",
        },
    ],
    ids=["anchor", "dynamic anchor", "id of draft 7", "id of draft 4", "id", "unknown keyword"],
)
def test_references_of_every_kind_are_followed(schema: dict[str, Any]) -> None:
    (violation,) = Validator(schema).errors({})
    assert violation.is_unchecked


INSIDE = {
    "properties": (lambda ref: {"anyOf": [{"properties": {"x": ref}}, {"properties": {"x": ref}, "title": "b"}]}, "x"),
    "patternProperties": (lambda ref: {"patternProperties": {"x": ref, ".": ref}}, "x"),
    "additionalProperties": (
        lambda ref: {"allOf": [{"additionalProperties": ref}, {"additionalProperties": ref}]},
        "x",
    ),
    "contains": (lambda ref: {"contains": ref, "items": ref}, 0),
    "prefixItems": (lambda ref: {"prefixItems": [ref], "contains": ref}, 0),
}


@pytest.mark.parametrize("keyword", INSIDE)
def test_a_schema_that_doubles_per_level_of_the_value_takes_shallow_ones_only(keyword: str) -> None:
    make, step = INSIDE[keyword]
    # One definition that refers to itself serves any depth.
    schema = {"$defs": {"n": make({"$ref": "#/$defs/n"})}, "$ref": "#/$defs/n"}
    validator = Validator(schema)

    def value(levels: int) -> Any:
        inner: Any = "leaf"
        for _ in range(levels):
            inner = {step: inner} if isinstance(step, str) else [inner]
        return inner

    assert validator.is_valid(value(4))
    (violation,) = validator.errors(value(60))
    assert violation.is_unchecked


def test_a_tree_is_checked_however_deep_and_large_it_is() -> None:
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["name"],
    }
    schema = {"$defs": {"node": node}, "$ref": "#/$defs/node"}
    validator = Validator(schema)
    deep: Any = {"name": "leaf"}
    for _ in range(300):
        deep = {"name": "x", "kids": [deep]}
    assert validator.is_valid(deep)
    wide = {"name": "top", "kids": [{"name": "x"}] * 20_000}
    assert validator.is_valid(wide)
    wide["kids"] = [*wide["kids"], {"name": 5}]
    assert validator.errors(wide)[0].path == "$.kids[20000].name"
    assert Workload(schema).factor is not None


def test_a_recursive_union_is_checked_as_deep_as_anybody_nests_it() -> None:
    """Filters and expressions: each branch leads to the same definition under the same name."""
    operators = ("and", "or", "not")
    branches = [
        {"type": "object", "properties": {"op": {"const": op}, "of": {"$ref": "#/$defs/e"}}, "required": ["op", "of"]}
        for op in operators
    ]
    schema = {"$defs": {"e": {"anyOf": [*branches, {"type": "string"}]}}, "$ref": "#/$defs/e"}
    validator = Validator(schema)
    expression: Any = "x"
    for level in range(10):
        expression = {"op": operators[level % 3], "of": expression}
    assert validator.is_valid(expression)
    assert not validator.is_valid({"op": "xor", "of": expression})


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {"not": {"$ref": "#"}}])
def test_a_schema_that_refers_to_itself_in_place_is_refused(schema: Any) -> None:
    with pytest.raises(DeclarationError, match="refers to itself without going deeper"):
        Validator(schema)


def test_a_schema_that_is_too_large_is_refused() -> None:
    with pytest.raises(DeclarationError, match="6,002 objects, and 5,000 is the limit"):
        Validator({"properties": {f"p{n}": {} for n in range(6_000)}})
    with pytest.raises(DeclarationError, match=r"bytes, and 1,048,576 is the limit"):
        Validator({"description": "x" * 1024 * 1024})


@pytest.mark.parametrize(
    "schema", [{"pattern": "(a{1000}){1000}"}, {"patternProperties": {rf"\p{{L}}{{100}}{n}": {} for n in range(50)}}]
)
def test_regular_expressions_that_are_too_large_are_refused(schema: Any) -> None:
    with pytest.raises(DeclarationError, match="use smaller repetitions"):
        Validator({"properties": {"a": schema}})


@pytest.mark.parametrize(
    "pattern", ["^[ab]*a[ab]{3000}$", r"(?=.*y)a", r"^(a|aa)+\1$"], ids=["states", "look-around", "back reference"]
)
def test_a_pattern_is_not_applied_to_a_text_that_it_would_take_long_for(pattern: str) -> None:
    text = "ab" * 100_000
    for schema, value in (
        ({"pattern": pattern}, text),
        ({"items": {"pattern": pattern}}, [text]),
        ({"patternProperties": {pattern: {}}}, {text: 1}),
        ({"propertyNames": {"pattern": pattern}}, {text: 1}),
    ):
        (violation,) = Validator(schema).errors(value)
        assert violation.is_unchecked


def test_ordinary_patterns_are_applied_to_long_texts() -> None:
    validator = Validator({"type": "array", "items": {"pattern": "^[a-z]+(-[a-z]+)*$"}})
    assert validator.is_valid(["abc-def"] * 1000)
    assert not validator.is_valid(["abc-def" * 1000 + "!"])
    assert Validator({"pattern": r"^(?!\s).+$"}).is_valid("x" * 10_000)


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("abc", 3),
        ("[a-z]{3}", 3),
        ("(a{10}b){10}", 110),
        ("a{99999999999999999999}", 1 << 40),
        (r"\{5}\(", 4),
        ("((((", 0),
    ],
)
def test_the_size_of_a_pattern_counts_repetitions(pattern: str, size: int) -> None:
    assert size <= pattern_size(pattern) <= max(size + 2, size)


def test_a_wide_union_of_a_large_value_is_judged_but_not_explained() -> None:
    """Explaining costs 20 us for each error, and all of the value is wrong."""
    validator = Validator({"anyOf": [{"items": {"type": "string"}}, {"type": "string"}]})
    (violation,) = validator.errors([1] * 100_000)
    assert not violation.is_unchecked
    assert "too large to say where" in violation.reason
    assert validator.errors([1] * 10)[0].path == "$[0]"


def test_of_a_large_value_the_first_violation_is_explained() -> None:
    validator = Validator({"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}})
    (violation,) = validator.errors([1] * 100_000)
    assert (violation.path, violation.reason) == ("$[0]", '1 is not of type "string" or "null"')


def test_what_a_state_costs_is_counted_with_its_paths() -> None:
    schema = doubling(SAME_PART["allOf"], levels=4)
    # Two references per level, and 16 leaves below 1 + 2 + 4 + 8 definitions.
    assert Workload(schema).factor == 1 + 15 + 30 + 16
    assert Workload({"type": "array", "items": {"type": "string"}}).factor == 1


def test_the_schema_of_schemas_may_be_used() -> None:
    validator = Validator({"properties": {"schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}})
    assert validator.is_valid({"schema": {"type": "object", "properties": {"a": {"type": "string"}}}})
    assert not validator.is_valid({"schema": {"type": "strong"}})


def test_many_strange_values_do_not_fill_the_memory() -> None:
    names = [f"p{n}" for n in range(40)]
    part = {"properties": {name: {"$ref": "#/$defs/n"} for name in names[::2]}}
    other = {"properties": {name: {"$ref": "#/$defs/n"} for name in names[::3]}}
    load = Workload({"$defs": {"n": {"allOf": [part, other]}}, "$ref": "#/$defs/n"})
    for first in names:
        for second in names:
            load.of(nested({first: {second: {first: {}}}}, 3), 100_000)
    assert load._state_size <= 300_000


def test_repair_looks_at_so_many_parts_only() -> None:
    schema = {
        "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/I"}}},
        "$defs": {"I": {"type": "object"}},
    }
    repaired, notes = repair({"a": ['{"x": 1}'] * 100}, schema)
    assert (len(notes), repaired["a"][99]) == (100, {"x": 1})
    _, notes = repair({"a": ['{"x": 1}'] * 100_000}, schema)
    assert len(notes) < 5_000
