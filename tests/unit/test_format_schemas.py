"""Schemas held against each provider's profile, and made to fit (P25)."""

from __future__ import annotations

import copy
import datetime
import decimal
import ipaddress
import pathlib
import re
import time
import uuid
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trimaran.errors import ConfigError
from trimaran.format import PROFILES, Fitted, Profile, fit_schema, profile_named, restore_arguments
from trimaran.format.rules import check_schema
from trimaran.schema import Validator, compile_signature

DEFS: dict[str, Any] = {
    "Pair": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a"],
    },
    "Union": {"anyOf": [{"type": "null"}, {"type": "string"}]},
    "Word": {"type": "string", "enum": ["a", "ab"]},
    "Loop": {"type": "object", "properties": {"a": {"$ref": "#/$defs/Loop"}, "b": {"type": "integer"}}},
}


def over(shape: Any, **root: Any) -> dict[str, Any]:
    """A tool's schema with one argument, `x`."""
    return {"type": "object", "properties": {"x": shape}, **root}


def fitted_shape(fitted: Fitted) -> Any:
    return fitted.schema["properties"]["x"]


def found(schema: Any, profile: str) -> set[tuple[str, str]]:
    return {(one.path, one.rule) for one in check_schema(schema, PROFILES[profile])}


# --- what a provider finds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "shape", "path", "rule"),
    [
        ("anthropic-strict", {"type": "integer", "minimum": 0}, ".minimum", "keyword"),
        ("anthropic-strict", {"type": "string", "maxLength": 3}, ".maxLength", "keyword"),
        ("anthropic-strict", {"type": "array", "minItems": 2}, ".minItems", "items"),
        ("anthropic-strict", {"type": "string", "format": "byte"}, ".format", "format"),
        ("anthropic-strict", {"type": "object"}, "", "closed"),
        ("anthropic-strict", {"enum": [{"a": 1}]}, ".enum", "enum"),
        ("anthropic-strict", {"allOf": [{"$ref": "#/$defs/Word"}]}, ".allOf", "ref"),
        ("anthropic-strict", {"$ref": "#/$defs/Loop"}, ".$ref", "recursion"),
        ("anthropic", {"$ref": "https://example.com/s.json"}, ".$ref", "ref"),
        ("anthropic", {"$ref": "#/$defs/none"}, ".$ref", "ref"),
        ("anthropic", {"$ref": "#anchor"}, ".$ref", "ref"),
        ("anthropic", {"type": "array", "items": [{}]}, ".items", "draft"),
        ("anthropic", {"type": "integer", "minimum": 0, "exclusiveMinimum": True}, ".exclusiveMinimum", "draft"),
        ("anthropic", 5, "", "schema"),
        ("openai", {"type": "array"}, "", "items"),
        ("openai-strict", {"type": "string", "default": "a"}, ".default", "keyword"),
        ("openai-strict", {"oneOf": [{"type": "string"}]}, ".oneOf", "keyword"),
        ("openai-strict", {"description": "anything"}, "", "type"),
        ("openai-strict", True, "", "boolean"),
        ("gemini", {"type": "string", "pattern": "a"}, ".pattern", "keyword"),
        ("gemini", {"enum": [True]}, ".enum", "enum"),
        ("gemini", {"$ref": "#/$defs/Word", "description": "a word"}, "", "ref"),
        ("gemini-openapi", {"type": ["string", "null"]}, ".type", "type"),
        ("gemini-openapi", {"type": "string", "format": "uri"}, ".format", "format"),
        ("gemini-openapi", {"type": "integer", "enum": [1]}, ".enum", "enum"),
        ("gemini-openapi", {"type": "array"}, "", "items"),
        ("gemini-openapi", {"type": "object"}, "", "properties"),
        ("gemini-openapi", {"$ref": "#/$defs/Word"}, ".$ref", "keyword"),
        (
            "gemini-openapi",
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
            ".required",
            "required",
        ),
    ],
)
def test_what_a_provider_refuses_is_found_with_its_place(profile: str, shape: Any, path: str, rule: str) -> None:
    """P25. The rules are the providers' own, from their references and from the errors they answer with."""
    assert (f"$.properties.x{path}", rule) in found(over(shape, **{"$defs": DEFS}), profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_top_must_be_an_object(profile: str) -> None:
    assert ("$", "root") in found({"type": "string"}, profile)
    assert ("$", "root") in found({"properties": {}}, profile)


def test_what_is_refused_at_the_top_may_be_fine_below() -> None:
    for profile in ("anthropic", "openai"):
        for key in ("anyOf", "oneOf", "allOf"):
            assert found(over({}, **{key: [{"required": ["x"]}]}), profile) == {(f"$.{key}", "root")}
            assert found(over({key: [{"type": "string"}]}), profile) == set()
    assert found({"type": "object"}, "openai") == {("$", "root")}
    assert found({"type": "object"}, "anthropic") == set()


def test_findings_say_whether_they_are_refused_or_not_heeded() -> None:
    (finding,) = check_schema(over({"type": "string", "minLength": 1}), PROFILES["gemini"])
    assert (finding.weight, finding.problem) == ("ignored", "minLength is taken but not heeded")
    (finding,) = check_schema(over({"type": "string", "contentEncoding": "x"}), PROFILES["gemini-openapi"])
    assert (finding.weight, finding.problem) == ("refused", "contentEncoding is refused")


def test_a_keyword_that_demands_nothing_is_no_finding_where_it_is_not_heeded() -> None:
    schema = {
        **over({"type": "string", "title": "A", "$comment": "b"}),
        "$schema": "https://json-schema.org/draft-07/schema#",
    }
    assert check_schema(schema, PROFILES["gemini"]) == []
    assert {finding.problem for finding in check_schema(schema, PROFILES["gemini-openapi"])} >= {"$schema is refused"}


@pytest.mark.parametrize("profile", ["anthropic", "openai", "gemini", "gemini-openapi"])
@pytest.mark.parametrize(
    "annotation",
    [
        *(bytes, bytearray, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal),
        *(uuid.UUID, pathlib.Path, ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network),
        *(list[datetime.time], set[str], tuple[int, int], tuple[str, ...], Literal["a"], datetime.datetime | None),
    ],
)
def test_no_provider_refuses_what_a_tool_says_about_a_type_of_python(annotation: Any, profile: str) -> None:
    """Many clients hand a tool's schema on to the provider as it is: one word too many loses them every tool.

    Formats may stay: every server writes `date` and `uuid`, so that clients of Gemini's older dialect drop them.
    """

    def tool(x: Any) -> None: ...

    tool.__annotations__["x"] = annotation
    findings = check_schema(compile_signature(tool).input_schema, PROFILES[profile])
    assert [finding for finding in findings if finding.weight == "refused" and finding.rule != "format"] == []


def test_a_schema_that_contains_itself_is_fine_for_gemini_where_it_is_optional() -> None:
    tree = over({"$ref": "#/$defs/Loop"}, **{"$defs": DEFS})
    assert found(tree, "gemini") - {("$.$defs.Loop.properties.a.$ref", "recursion")} == set()
    assert ("$.properties.x.$ref", "recursion") in found({**tree, "required": ["x"]}, "gemini")


def test_names_of_properties_have_a_pattern_at_anthropic() -> None:
    schema = {"type": "object", "properties": {"ok.name-1": {}, "not ok": {}, "a" * 65: {}}}
    assert found(schema, "anthropic") == {
        ("$.properties['not ok']", "property"),
        (f"$.properties.{'a' * 65}", "property"),
    }


def nest(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    return schema


def test_limits_of_size_are_found() -> None:
    assert found(nest(10), "openai-strict") == set()
    assert found(nest(11), "openai-strict") == {("$" + ".properties.a" * 10, "depth")}
    many = {f"p{n}": {"type": "string"} for n in range(5001)}
    wide = {"type": "object", "properties": many, "required": list(many), "additionalProperties": False}
    assert found(wide, "openai-strict") == {("$", "size")}
    closed = {"additionalProperties": False, "required": ["x"]}
    values = [f"{n:0100}" for n in range(300)]
    assert found(over({"type": "string", "enum": values}, **closed), "openai-strict") == {
        ("$.properties.x.enum", "enum")
    }
    assert found(over({"type": "string", "enum": values * 5}, **closed), "openai-strict") >= {("$", "size")}
    optional = {f"p{n}": {"type": ["string", "null"]} for n in range(25)}
    crowded = check_schema(
        {"type": "object", "properties": optional, "additionalProperties": False}, PROFILES["anthropic-strict"]
    )
    assert [one.problem for one in crowded] == [
        "25 optional properties, and at most 24 are taken",
        "25 places with several types, and at most 16 are taken",
    ]


def test_a_schema_nested_beyond_reason_is_found_and_left_alone() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"not": deep}
    for profile in PROFILES:
        fitted = fit_schema(over(deep), profile, loose=True)
        assert [one.rule for one in fitted.left] == ["nesting"]


def test_a_profile_may_be_ones_own() -> None:
    mine = Profile(name="mine", keywords=frozenset(("type", "properties")))
    assert profile_named(mine) is mine
    assert [one.path for one in check_schema(over({"type": "string", "title": "T"}), mine)] == ["$.properties.x.title"]
    assert fit_schema(over({"type": "string", "title": "T"}), mine).schema == over({"type": "string"})
    with pytest.raises(ConfigError, match="no schema profile 'none'"):
        fit_schema({}, "none")


# --- made to fit, without loss ---------------------------------------------------------------------------------------

TUPLE = {"type": "array", "prefixItems": [{"type": "number"}] * 2, "minItems": 2}


@pytest.mark.parametrize(
    ("profile", "shape", "made"),
    [
        ("gemini-openapi", {"const": "a"}, {"enum": ["a"], "type": "string"}),
        ("gemini", {"const": "a"}, {"enum": ["a"]}),
        ("gemini", {"const": True}, {"const": True}),
        ("gemini-openapi", {"const": None}, {"type": "null"}),
        ("gemini-openapi", {"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ("gemini-openapi", {"type": ["null"]}, {"type": "null"}),
        (
            "gemini-openapi",
            {"type": ["string", "integer", "null"], "minLength": 1, "minimum": 2, "description": "d"},
            {
                "description": "d",
                "anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 2}],
                "nullable": True,
            },
        ),
        ("gemini-openapi", {"type": ["string", "integer"], "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ("gemini-openapi", {"type": ["string", "null"], "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ("gemini-openapi", {"enum": ["a", None]}, {"enum": ["a"], "type": "string", "nullable": True}),
        ("gemini-openapi", {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string", "nullable": True}),
        (
            "gemini-openapi",
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True},
        ),
        ("gemini-openapi", {"$ref": "#/$defs/Word", "description": "d"}, {"description": "d", **DEFS["Word"]}),
        ("gemini-openapi", {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}, {"type": "object", "properties": {"a": {"type": "string"}}}),
        ("gemini", {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9.5}, {"type": "integer", "minimum": 1, "maximum": 9}),
        ("gemini", {"type": "integer", "exclusiveMinimum": 0, "minimum": 5}, {"type": "integer", "minimum": 5}),
        ("gemini", {"type": "number", "exclusiveMinimum": 0}, {"type": "number", "exclusiveMinimum": 0}),
        ("gemini-openapi", {**TUPLE, "maxItems": 2}, {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "number"}}),
        ("gemini-openapi", {**TUPLE, "items": False}, {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "number"}}),
        ("gemini-openapi", {**TUPLE, "items": {"type": "number"}}, {"type": "array", "minItems": 2, "items": {"type": "number"}}),
        ("gemini-openapi", {"type": "string", "examples": ["a", "b"]}, {"type": "string", "example": "a", "description": 'examples: ["a","b"]'}),
        ("gemini-openapi", {"type": "string", "format": "uri", "description": "Where"}, {"type": "string", "description": "Where (format: uri)"}),
        ("gemini-openapi", {"type": "string", "$comment": "c", "x-mine": 1, "readOnly": True, "minLength": 0}, {"type": "string", "minLength": 0}),
        ("gemini-openapi", {"type": "array", "uniqueItems": False, "items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}),
        ("openai", {"type": "array"}, {"type": "array", "items": {}}),
        ("openai", {"type": "array", "items": [{"type": "string"}], "additionalItems": False}, {"type": "array", "prefixItems": [{"type": "string"}], "items": False}),
        ("openai", {"type": "array", "items": [{"type": "string"}]}, {"type": "array", "prefixItems": [{"type": "string"}], "items": {}}),
        ("anthropic", {"minimum": 1, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": False}, {"exclusiveMinimum": 1, "maximum": 5}),
        ("gemini", {"allOf": [{"$ref": "#/$defs/Pair"}, {"properties": {"c": {"type": "null"}}, "required": ["c"]}]}, {"type": "object", "properties": {**DEFS["Pair"]["properties"], "c": {"type": "null"}}, "required": ["a", "c"]}),
        ("gemini", {"allOf": [{"type": "number", "minimum": 1}, {"type": "integer", "minimum": 2, "maximum": 9}, {"maximum": 5}]}, {"type": "integer", "minimum": 2, "maximum": 5}),
        ("gemini", {"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}, {"enum": ["b"]}),
        ("gemini", {"allOf": [{"type": "array", "items": {"type": "number"}}, {"items": {"type": "integer"}}]}, {"type": "array", "items": {"type": "integer"}}),
        ("gemini-openapi", {"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ("anthropic-strict", {"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}]}, {"anyOf": [{"const": "a"}, {"enum": ["b", "c"]}]}),
        ("openai-strict", {"type": "string", "default": "a", "description": "d"}, {"type": ["string", "null"], "description": "d (default: a)"}),
        ("openai-strict", {"const": "a", "title": "T"}, {"anyOf": [{"const": "a", "type": "string"}, {"type": "null"}], "title": "T"}),
        ("openai-strict", {"$ref": "#/$defs/Loop"}, {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "null"}]}),
        ("openai-strict", {"enum": [1, 2.5]}, {"enum": [1, 2.5, None], "type": ["number", "null"]}),
        ("openai-strict", {"enum": [1, "a"]}, {"enum": [1, "a", None], "type": ["integer", "string", "null"]}),
        ("gemini-openapi", {"enum": ["a", 1]}, {"enum": ["a", 1]}),
        ("gemini-openapi", {"type": ["string", "integer"], "enum": ["a", 1.0, 1.5]}, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1.0]}]}),
        ("gemini-openapi", {"type": ["string", "null"], "not": {"const": "a"}}, {"type": "string", "nullable": True, "not": {"const": "a"}}),
        ("gemini-openapi", {"type": ["string", "null"], "not": {"const": None}}, {"type": "string", "not": {"const": None}}),
        ("gemini-openapi", {"type": ["string", "null"], "if": {}}, {"type": ["string", "null"], "if": {}}),
        ("gemini-openapi", {"enum": ["a", None], "if": {}}, {"enum": ["a", None], "if": {}}),
        ("gemini-openapi", {"type": ["string", "null"], "oneOf": [{}, {"type": "null"}]}, {"type": "string", "oneOf": [{}, {"type": "null"}]}),
        ("anthropic-strict", {"type": "object"}, {"type": "object"}),
        ("gemini-openapi", {"type": ["string", "integer"], "enum": [True]}, {"type": ["string", "integer"], "enum": [True]}),
        ("gemini-openapi", {"type": ["string", "integer"], "anyOf": [{"type": "string"}]}, {"type": ["string", "integer"], "anyOf": [{"type": "string"}]}),
        ("gemini-openapi", {"anyOf": [{"type": "null"}, {"type": "string"}], "not": {}}, {"type": "string", "not": {}}),
        ("gemini", {"type": "object", "properties": {"a": True, "b": False}}, {"type": "object", "properties": {"a": {}, "b": False}}),
        ("gemini", {"$ref": "#/$defs/Pair/properties/a", "description": "d"}, {"description": "d", "type": "integer"}),
        ("gemini", {"$ref": "#/$defs/Union/anyOf/1", "description": "d"}, {"description": "d", "type": "string"}),
        ("gemini", {"$ref": "#/$defs/Union/anyOf/9", "description": "d"}, {"$ref": "#/$defs/Union/anyOf/9", "description": "d"}),
        ("gemini", {"description": "outer", "allOf": [{"description": "inner", "type": "string"}]}, {"description": "outer", "type": "string"}),
        ("gemini", {"allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"maximum": 2}}}]}, {"properties": {"a": {"minimum": 1, "maximum": 2}}}),
        ("openai-strict", {"type": ["string", "null"], "default": "a"}, {"type": ["string", "null"], "description": "default: a"}),
    ],
)  # fmt: skip
def test_a_shape_is_said_as_the_provider_takes_it(profile: str, shape: Any, made: Any) -> None:
    schema = over(shape, **{"$defs": DEFS})
    before = copy.deepcopy(schema)
    fitted = fit_schema(schema, profile)
    assert fitted_shape(fitted) == made
    assert schema == before
    assert fitted.lost == []
    assert bool(fitted.changes) == (fitted.schema is not schema)


def test_branches_told_apart_by_a_tag_are_one_or_the_other() -> None:
    def tagged(tag: str, **more: Any) -> dict[str, Any]:
        return {"type": "object", "properties": {"kind": {"const": tag}, **more}, "required": ["kind"]}

    fitted = fit_schema(over({"oneOf": [tagged("a"), tagged("b", n={"type": "integer"})]}), "gemini-openapi")
    assert "anyOf" in fitted_shape(fitted) and not fitted.left
    doubtful = fit_schema(over({"oneOf": [tagged("a"), tagged("a")]}), "gemini-openapi")
    assert "oneOf" in fitted_shape(doubtful)
    untagged = fit_schema(over({"oneOf": [DEFS["Pair"], DEFS["Pair"]]}), "gemini-openapi")
    assert [one.path for one in untagged.left] == ["$.properties.x.oneOf"]


@pytest.mark.parametrize(
    "branches",
    [
        [{"type": "integer"}, {"type": "string"}],
        [{"enum": ["a"]}, {"enum": ["b"]}],
        [{"properties": {"a": {"type": "string"}}}, {"additionalProperties": False}],
        [{"anyOf": [{}]}, {"anyOf": [{"type": "string"}]}],
        [{"properties": {"a": True}}, {"properties": {"a": {"type": "string"}}}],
        [{"items": True}, {"items": {"type": "string"}}],
        [{"minimum": True}, {"minimum": 1}],
        [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "null"}}}],
        [{"$ref": "#/$defs/Loop"}, {"type": "object"}],
        [{"$ref": "#/$defs/none"}],
        [{"$defs": {"a": {}}}, {"$defs": {"b": {}}}],
        [True],
    ],
)
def test_what_cannot_be_said_in_one_schema_is_left(branches: list[Any]) -> None:
    shape = {"allOf": branches}
    fitted = fit_schema(over(shape, **{"$defs": DEFS}), "gemini")
    assert fitted_shape(fitted) == shape
    assert ("$.properties.x.allOf", "keyword") in {(one.path, one.rule) for one in fitted.left}


def test_definitions_of_older_drafts_are_renamed_where_only_the_new_name_is_known() -> None:
    schema = over({"$ref": "#/definitions/Word"}, definitions={"Word": DEFS["Word"]}, **{"$schema": "x"})
    assert fit_schema(schema, "gemini").schema == over({"$ref": "#/$defs/Word"}, **{"$defs": {"Word": DEFS["Word"]}})
    both = {**schema, "$defs": {"Word": {}}}
    assert fit_schema(both, "gemini").schema["properties"] == schema["properties"]


def test_a_reference_at_the_top_is_written_out() -> None:
    schema = {"$ref": "#/$defs/Pair", "$defs": {"Pair": DEFS["Pair"]}}
    fitted = fit_schema(schema, "anthropic")
    assert fitted.schema == DEFS["Pair"]
    assert fitted.changes == ["$.$ref: written out"]
    assert fit_schema({"properties": {}}, "anthropic").schema == {"properties": {}, "type": "object"}


def test_all_of_at_the_top_is_merged() -> None:
    schema = {"type": "object", "allOf": [{"$ref": "#/$defs/Pair"}, over({"type": "null"})], "$defs": DEFS}
    for loose in (False, True):
        made = fit_schema(schema, "anthropic", loose=loose)
        assert made.schema["properties"].keys() == {"a", "b", "x"}
        assert made.left == [] and made.lost == []


def test_a_schema_that_contains_itself_is_left_where_that_is_refused() -> None:
    schema = over({"$ref": "#/$defs/Loop"}, **{"$defs": {"Loop": DEFS["Loop"]}})
    fitted = fit_schema(schema, "gemini-openapi")
    assert {one.rule for one in fitted.left} == {"keyword"}
    assert fit_schema(schema, "openai-strict").left == []


def test_references_that_multiply_are_not_written_out_for_ever() -> None:
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for n in range(1, 30):
        ref = {"$ref": f"#/$defs/d{n - 1}"}
        defs[f"d{n}"] = {"type": "object", "properties": {"a": ref, "b": ref}}
    fitted = fit_schema(over({"$ref": "#/$defs/d29"}, **{"$defs": defs}), "gemini-openapi")
    assert fitted.left


def test_a_long_chain_of_references_is_written_out_only_so_far() -> None:
    defs = {f"d{n}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(500)}
    schema = over({"$ref": "#/$defs/d0"}, **{"$defs": {**defs, "d500": {"type": "string"}}})
    assert fit_schema(schema, "gemini-openapi").left


@pytest.mark.slow
@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf"])
@pytest.mark.parametrize("end", [{"type": "string"}, {"$ref": "#/$defs/d20"}], ids=["ends", "loops"])
def test_branches_that_multiply_take_no_time(key: str, end: Any) -> None:
    """A server's schema is a stranger's: twenty doublings must not be a million steps."""
    defs: dict[str, Any] = {"d0": end}
    for n in range(1, 21):
        ref = {"$ref": f"#/$defs/d{n - 1}"}
        defs[f"d{n}"] = {key: [ref, ref]}
    schema = over({"$ref": "#/$defs/d20"}, **{"$defs": defs})
    for profile in PROFILES:
        fit_schema(schema, profile, loose=True)
    assert restore_arguments({"x": None}, schema) in ({"x": None}, {})


# --- made to fit, with loss ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "shape", "made", "lost"),
    [
        ("gemini", {"type": "string", "minLength": 2, "description": "d"}, {"type": "string", "description": "d (minLength: 2)"}, ["minLength"]),
        ("gemini-openapi", {"type": "integer", "enum": [1, 2]}, {"type": "integer", "description": "enum: [1,2]"}, ["enum"]),
        ("gemini-openapi", {"oneOf": [{"type": "number"}, {"type": "integer"}]}, {"anyOf": [{"type": "number"}, {"type": "integer"}]}, ["oneOf"]),
        ("gemini-openapi", {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "maxItems": 2}, {"type": "array", "maxItems": 2, "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "description": 'prefixItems: [{"type":"string"},{"type":"integer"}]'}, ["prefixItems"]),
        ("gemini-openapi", {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "description": 'prefixItems: [{"type":"string"}]'}, ["prefixItems"]),
        ("anthropic-strict", {"type": "array", "prefixItems": [{"type": "string"}], "items": False}, {"type": "array", "items": {"type": "string"}, "description": 'prefixItems: [{"type":"string"}]'}, ["prefixItems"]),
        ("anthropic-strict", {"type": "array", "items": {"type": "string"}, "minItems": 3}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "minItems: 3"}, ["minItems"]),
        ("openai-strict", {"type": "string", "not": {"const": "a"}}, {"type": ["string", "null"], "description": 'not: {"const":"a"}'}, ["not"]),
        ("openai-strict", {"type": "string", "pattern": "a", "not": {"enum": ["b" * 400]}}, {"type": ["string", "null"], "pattern": "a", "description": 'not: {"enum":["' + "b" * 290 + "..."}, ["not"]),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_told_in_the_description(profile: str, shape: Any, made: Any, lost: list[str]) -> None:
    fitted = fit_schema(over(shape), profile, loose=True)
    assert fitted_shape(fitted) == made
    assert [one.rule for one in fitted.lost] == lost
    assert all(one.path.startswith("$.properties.x.") and one.profile == profile for one in fitted.lost)
    assert fitted.left == []


def test_a_tuple_that_may_go_on_with_anything_loses_only_its_beginning() -> None:
    fitted = fit_schema(over({"type": "array", "prefixItems": [{"type": "string"}]}), "gemini-openapi", loose=True)
    assert fitted_shape(fitted) == {"type": "array", "description": 'prefixItems: [{"type":"string"}]'}


def test_branches_that_came_to_admit_more_are_no_longer_exclusive() -> None:
    shape = {"oneOf": [{"type": "string", "maxLength": 1}, {"type": "string", "minLength": 2}]}
    fitted = fit_schema(over(shape), "gemini", loose=True)
    assert fitted_shape(fitted).keys() == {"anyOf"}
    assert [one.rule for one in fitted.lost] == ["maxLength", "minLength"]


def test_what_must_not_be_is_never_widened() -> None:
    mine = Profile(name="mine", keywords=frozenset(("type", "properties", "not", "description")))
    shape = {"not": {"type": "string", "minLength": 2}}
    fitted = fit_schema(over(shape), mine, loose=True)
    assert fitted_shape(fitted) == shape
    assert [one.path for one in fitted.left] == ["$.properties.x.not.minLength"]


def test_recursion_is_cut_where_it_is_refused() -> None:
    fitted = fit_schema(over({"$ref": "#/$defs/Loop"}, **{"$defs": DEFS}), "gemini-openapi", loose=True)
    inner = fitted_shape(fitted)["properties"]["a"]
    assert inner == {"description": "$ref: #/$defs/Loop", "type": "object"}
    assert [one.rule for one in fitted.lost] == ["$ref"]


@pytest.mark.parametrize(
    ("key", "required", "told"),
    [
        ("anyOf", ["k"], "at least one of: a, k | b, k"),
        ("oneOf", ["k"], "exactly one of: a, k | b, k"),
        ("allOf", ["a", "b", "k"], "all of: a, k | b, k"),
    ],
)
def test_branches_at_the_top_become_one_object(key: str, required: list[str], told: str) -> None:
    schema = {
        "type": "object",
        key: [
            {
                "properties": {"a": {"type": "integer"}, "k": {"const": 1}},
                "required": ["a", "k"],
                "additionalProperties": False,
            },
            {"properties": {"b": {"type": "string"}, "k": {"const": 2}}, "required": ["b", "k"]},
        ],
    }
    fitted = fit_schema(schema, "anthropic", loose=True)
    assert fitted.schema == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "k": {"anyOf": [{"const": 1}, {"const": 2}]}, "b": {"type": "string"}},
        "required": required,
        "description": told,
    }
    assert [one.path for one in fitted.lost] == [f"$.{key}"]
    assert fitted.left == []


def test_three_branches_that_describe_a_property_differently_offer_all_three() -> None:
    branches = [over({"const": n}) for n in (1, 2, 1, 3)]
    fitted = fit_schema({"type": "object", "anyOf": [*branches, {}]}, "openai", loose=True)
    assert fitted_shape(fitted) == {"anyOf": [{"const": 1}, {"const": 2}, {"const": 3}]}
    assert fitted.schema["description"] == "at least one of: x | x | x | x | anything"


def test_not_and_enum_at_the_top_go_into_the_description() -> None:
    fitted = fit_schema(over({}, **{"not": {"required": ["x"]}}), "openai", loose=True)
    assert fitted.schema["description"] == 'not: {"required":["x"]}'
    assert fitted.left == []


# --- the promises, for all schemas -----------------------------------------------------------------------------------

VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 1.0, 1.5, "", "a", "ab", "abc", "b",
    [], [1], [1, 2], [1, 2, 3], ["a"], ["a", "b"], [1, "a"], ["a", 1], [None], [[1]],
    {}, {"a": 1}, {"a": "a"}, {"b": "a"}, {"a": 1, "b": "a"}, {"a": 1, "b": 1}, {"a": None}, {"a": {}}, {"a": {"a": 1, "b": "a"}},
]  # fmt: skip

TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]
simple = st.one_of(
    st.sampled_from(TYPES).map(lambda t: {"type": t}),
    st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True).map(lambda ts: {"type": ts}),
    st.sampled_from(["a", 1, True, None, 1.5, [1]]).map(lambda v: {"const": v}),
    st.lists(st.sampled_from(["a", "ab", 1, 2, None, True]), min_size=1, max_size=3, unique_by=repr).map(
        lambda v: {"enum": v}
    ),
    st.sampled_from(
        [
            {},
            True,
            {"$ref": "#/$defs/Pair"},
            {"$ref": "#/$defs/Word", "description": "d"},
            {"$ref": "#/$defs/Pair", "required": ["b"]},
            {"$ref": "#/$defs/Loop"},
            {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 2.5},
            {"type": "number", "exclusiveMinimum": 0, "maximum": 2},
            {"type": "string", "minLength": 2, "format": "uri", "default": "ab"},
            {"type": "string", "pattern": "^a", "maxLength": 2, "examples": ["a"]},
            {"type": ["string", "integer", "null"], "minLength": 2, "minimum": 2, "enum": ["ab", "a", 2, None]},
            {"type": ["string", "null"], "const": "a"},
            {"multipleOf": 2},
        ]
    ),
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(inner, min_size=1, max_size=3)
    # Objects describe every property that VALUES have: additional ones are a matter of convention, not of this promise.
    objects = st.builds(
        lambda a, b, required: {"type": "object", "properties": {"a": a, "b": b}, "required": required},
        inner, inner, st.sampled_from([[], ["a"], ["a", "b"]]),
    )  # fmt: skip
    arrays = st.builds(
        lambda one, more: {"type": "array", "items": one, **more},
        inner,
        st.sampled_from([{}, {"minItems": 2}, {"maxItems": 1}]),
    )
    tuples = st.builds(
        lambda first, more: {"type": "array", "prefixItems": first, **more},
        few, st.sampled_from([{}, {"items": False}, {"maxItems": 1}, {"maxItems": 2, "minItems": 2}, {"items": {"type": "integer"}}]),
    )  # fmt: skip
    unions = st.builds(lambda key, branches: {key: branches}, st.sampled_from(["anyOf", "oneOf", "allOf"]), few)
    typed = st.builds(
        lambda one, other: {**(one if isinstance(one, dict) else {}), **other},
        unions,
        simple.filter(lambda s: isinstance(s, dict)),
    )
    return st.one_of(objects, arrays, tuples, unions, typed, inner.map(lambda one: {"not": one}))


shapes = st.recursive(simple, larger, max_leaves=6)


def as_json_schema(node: Any) -> Any:
    """OpenAPI's `nullable`, said in JSON Schema."""
    if isinstance(node, list):
        return [as_json_schema(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: as_json_schema(value) for key, value in node.items() if key != "nullable"}
    return {"anyOf": [made, {"type": "null"}]} if node.get("nullable") is True else made


def admitted(schema: dict[str, Any]) -> list[bool]:
    validator = Validator(as_json_schema(schema))
    return [validator.is_valid({"x": value}) for value in VALUES]


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "openai-strict"])
@given(shape=shapes)
@settings(max_examples=15, deadline=None)
@example(shape={"anyOf": [{"type": "null"}, {"type": "string"}], "type": "string"})
@example(shape={"anyOf": [{"not": {"const": None}}], "type": ["null", "string"]})
@example(shape={"anyOf": [{"enum": ["a"]}, {"type": "null"}], "enum": ["a", "b", None]})
@example(shape={"oneOf": [{}, {"type": "null"}], "type": ["null", "string"]})
@example(shape={"allOf": [{"anyOf": [{"type": "string"}]}, {"anyOf": [{"type": "null"}]}]})
def test_fitted_exactly_a_schema_admits_the_same_and_loosely_no_less(profile: str, shape: Any) -> None:
    schema = over(shape, **{"$defs": DEFS})
    before = admitted(schema)
    exact = fit_schema(schema, profile)
    assert admitted(exact.schema) == before
    assert exact.lost == []
    assert exact.left == check_schema(exact.schema, PROFILES[profile])
    assert admitted(fit_schema(exact.schema, profile).schema) == before
    loose = fit_schema(schema, profile, loose=True)
    assert all(after >= was for was, after in zip(before, admitted(loose.schema), strict=True))
    if not exact.left:
        assert loose.lost == []


# Anything at all under the keywords that mean something: what a peer sends need not be a schema.
KEYWORDS = [
    "type", "enum", "const", "anyOf", "oneOf", "allOf", "not", "items", "prefixItems", "properties", "required",
    "additionalProperties", "minimum", "exclusiveMinimum", "maxItems", "minItems", "format", "examples", "$ref", "$defs", "definitions",
]  # fmt: skip
junk = st.recursive(
    st.sampled_from([None, True, False, 0, 2, 1.5, "string", "integer", "array", "object", "#/$defs/a", "#", "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(schema=st.dictionaries(st.sampled_from(KEYWORDS), junk, max_size=5), profile=st.sampled_from(sorted(PROFILES)))
@settings(max_examples=60, deadline=None)
def test_what_is_no_schema_at_all_is_judged_and_not_stumbled_over(schema: dict[str, Any], profile: str) -> None:
    """P32: a server's sloppy schema must not take the other tools with it."""
    for loose in (False, True):
        for given_ in (schema, over(schema)):
            fitted = fit_schema(given_, profile, loose=loose)
            assert fitted.left == check_schema(fitted.schema, PROFILES[profile])
    restore_arguments({"x": [{"a": None}], "a": None}, over(schema))


@given(shape=shapes)
@settings(max_examples=15, deadline=None)
def test_nothing_is_refused_that_was_fitted_loosely_for_anthropic_and_openai(shape: Any) -> None:
    for profile in ("anthropic", "openai"):
        assert fit_schema(over(shape, **{"$defs": DEFS}), profile, loose=True).left == []


def test_a_promise_is_kept_by_the_whole_message() -> None:
    finding = fit_schema(over({"type": "string", "minLength": 2}), "gemini", loose=True).lost[0]
    assert re.fullmatch(
        r"\$\.properties\.x\.minLength: .* the description says it, and the server checks it", str(finding)
    )


def _definitions(make: Any, number: int) -> dict[str, Any]:
    parts = {f"a{n}": make({"$ref": f"#/$defs/a{n - 1}"}) if n else {"type": "string"} for n in range(number)}
    return {"type": "object", "properties": {"p": {"$ref": f"#/$defs/a{number - 1}"}}, "$defs": parts}


HOSTILE: dict[str, dict[str, Any]] = {
    "doubling": _definitions(lambda ref: {"allOf": [ref, ref]}, 40),
    "doubling properties": _definitions(lambda ref: {"type": "object", "properties": {"x": ref, "y": ref}}, 40),
    "a chain": _definitions(lambda ref: ref, 900),
    "a longer chain": _definitions(lambda ref: ref, 3000),
    "many properties": {"type": "object", "properties": {f"p<{n}": {"type": "string"} for n in range(7000)}},
    "many values": {"type": "object", "properties": {"p": {"enum": list(range(100_000))}}},
    "everything everywhere": {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/a0"}},
        "$defs": {
            f"a{n}": {"type": "object", "properties": {f"p{m}": {"$ref": f"#/$defs/a{m}"} for m in range(25)}}
            for n in range(25)
        },
    },
}


@pytest.mark.parametrize("profile", ["anthropic", "openai", "openai-strict", "gemini"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_schema_keeps_us_busy(name: str, profile: str) -> None:
    """A chain of 3000 references took minutes for Gemini, and the stack for OpenAI's strict mode."""
    began = time.process_time()
    for loose in (False, True):
        fit_schema(HOSTILE[name], profile, loose=loose)
    assert time.process_time() - began < 5.0


def test_a_schema_too_large_to_look_at_is_left_as_it_is_and_refused() -> None:
    schema = HOSTILE["many properties"]
    fitted = fit_schema(schema, "openai")
    assert fitted.schema is schema
    (finding,) = fitted.left
    assert finding.weight == "refused"
    assert finding.problem == "the schema has over 6,000 objects: it is not looked at"
