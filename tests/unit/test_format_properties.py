"""Arguments whose names a provider refuses: declared under others, and called by their own again."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.format import FORMATS, fit_schema, lint, restore_arguments, to_anthropic, to_openai, to_provider
from trimaran.format.properties import original_names, safe_properties
from trimaran.format.providers import profile_of
from trimaran.schema import Validator

PATTERN = r"[a-zA-Z0-9_.-]{1,64}"


def tool(*names: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, **more}
    return {"name": "find", "description": "Find.", "inputSchema": schema}


def declared(definition: dict[str, Any], **options: Any) -> dict[str, Any]:
    return to_anthropic(definition, **options)["input_schema"]


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("StartTime<", "StartTime_"),
        ("filter[id]", "filter_id_"),
        ("$top", "_top"),
        ("@microsoft.graph.conflictBehavior", "_microsoft.graph.conflictBehavior"),
        ("user name", "user_name"),
        ("größe", "gr__e"),
        ("", "_"),
        ("x" * 65, "x" * 55 + "_[0-9a-f]{8}"),
    ],
)
def test_a_name_that_is_refused_is_declared_as_one_that_is_taken_and_comes_back(name: str, safe: str) -> None:
    definition = tool("plain", name, required=[name])
    schema = declared(definition)
    renamed = next(key for key in schema["properties"] if key != "plain")
    assert re.fullmatch(safe, renamed)
    assert re.fullmatch(PATTERN, renamed)
    assert schema["required"] == [renamed]
    assert name in schema["properties"][renamed]["description"]
    assert not lint(definition, "anthropic", fit="exact")
    assert restore_arguments({"plain": "a", renamed: "b"}, definition["inputSchema"]) == {"plain": "a", name: "b"}


def test_a_schema_that_is_fine_is_the_same_object() -> None:
    definition = tool("a", "b.c", "d-e")
    assert declared(definition) is definition["inputSchema"]


def test_nothing_is_renamed_where_nothing_may_change_and_where_nobody_minds() -> None:
    definition = tool("StartTime<")
    assert list(declared(definition, fit=None)["properties"]) == ["StartTime<"]
    assert lint(definition, "anthropic")[0].rule == "property"
    assert list(to_openai(definition)["function"]["parameters"]["properties"]) == ["StartTime<"]


def test_names_further_down_are_left_alone() -> None:
    """Only the keys at the top are checked; what is below may be a query language, such as $eq."""
    definition = tool("filter", "a<")
    definition["inputSchema"]["properties"]["filter"] = {"type": "object", "properties": {"$eq": {"type": "string"}}}
    schema = declared(definition)
    assert list(schema["properties"]["filter"]["properties"]) == ["$eq"]
    sent = {"filter": {"$eq": "x", "a_": 1}, "a_": "y"}
    assert restore_arguments(sent, definition["inputSchema"]) == {"filter": {"$eq": "x", "a_": 1}, "a<": "y"}


def test_names_that_would_be_the_same_stay_apart() -> None:
    definition = tool("a_", "a<", "a>", "a[")
    schema = declared(definition)
    assert len(schema["properties"]) == 4
    assert "a_" in schema["properties"]
    sent = dict.fromkeys(schema["properties"], "x")
    assert restore_arguments(sent, definition["inputSchema"]).keys() == {"a_", "a<", "a>", "a["}


def test_everything_that_speaks_of_a_renamed_argument_follows() -> None:
    definition = tool(
        "a<",
        "b>",
        required=["a<"],
        dependentRequired={"a<": ["b>"]},
        **{"if": {"properties": {"a<": {"const": "x"}}}, "then": {"required": ["b>"]}},
    )
    definition["inputSchema"]["properties"]["c"] = {"$ref": "#/properties/a<"}
    schema = declared(definition)
    assert schema["required"] == ["a_"]
    assert schema["dependentRequired"] == {"a_": ["b_"]}
    assert list(schema["if"]["properties"]) == ["a_"]
    assert schema["then"] == {"required": ["b_"]}
    assert schema["properties"]["c"]["$ref"] == "#/properties/a_"
    assert not Validator(schema).errors({"a_": "x", "b_": "y", "c": "z"})
    assert Validator(schema).errors({"a_": "x"})


def test_arguments_of_branches_and_of_what_is_referred_to_are_renamed_too() -> None:
    schema = {
        "$ref": "#/$defs/Query",
        "$defs": {"Query": {"type": "object", "properties": {"$top": {"type": "integer"}}, "required": ["$top"]}},
    }
    fitted = fit_schema(schema, "anthropic")
    assert not fitted.left
    assert list(fitted.schema["properties"]) == ["_top"]
    assert restore_arguments({"_top": 3}, schema) == {"$top": 3}
    branches = {"type": "object", "anyOf": [{"properties": {"$a": {}}}, {"properties": {"$b": {}}}]}
    loose = fit_schema(branches, "anthropic", loose=True)
    assert not loose.left
    assert loose.schema["properties"].keys() == {"_a", "_b"}
    assert restore_arguments({"_b": 1}, branches) == {"$b": 1}


NAMES = st.sets(st.text("ab_<>$é", max_size=4) | st.sampled_from(["x" * 64, "x" * 65, "x" * 70]), max_size=6)


@given(NAMES)
def test_every_name_is_taken_and_leads_back(names: set[str]) -> None:
    definition = tool(*names)
    schema = declared(definition)
    assert len(schema["properties"]) == len(names)
    assert all(re.fullmatch(PATTERN, name) for name in schema["properties"])
    safe = safe_properties(definition["inputSchema"], PATTERN)
    assert original_names(definition["inputSchema"], PATTERN) == {new: old for old, new in safe.items()}
    sent = {safe.get(name, name): name for name in names}
    assert restore_arguments(sent, definition["inputSchema"]) == {name: name for name in names}


# --- descriptions, and how far -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["openai", "openai-responses"])
def test_a_description_that_is_too_long_is_cut_at_a_word(format: str) -> None:
    long = {**tool("a"), "description": "word " * 300}
    (shape,) = to_provider([long], format)
    said: Any = shape.get("function", shape)
    assert len(said["description"]) <= 1024
    assert said["description"].endswith("word ...")
    (kept,) = to_provider([long], format, fit=None)
    whole: Any = kept.get("function", kept)
    assert whole["description"] == long["description"]
    (finding,) = lint(long, "openai", fit="exact")
    assert (finding.rule, finding.weight) == ("size", "ignored")
    assert lint(long, "openai")[0].weight == "refused"
    blob = {**tool("a"), "description": "x" * 2000}
    (shape,) = to_provider([blob], "openai")
    assert len(shape["function"]["description"]) == 1024  # pyright: ignore[reportIndexIssue, reportArgumentType, reportCallIssue, reportOptionalSubscript]


def test_auto_is_loose_only_where_exact_would_be_refused() -> None:
    fine = tool("a", additionalProperties=False)
    branches = tool("a", "b", anyOf=[{"required": ["a"]}, {"required": ["b"]}])
    assert to_anthropic(fine, fit="auto")["input_schema"] is fine["inputSchema"]
    assert "anyOf" in to_anthropic(branches)["input_schema"]
    assert "anyOf" not in to_anthropic(branches, fit="auto")["input_schema"]
    assert not lint(branches, "anthropic", fit="auto")
    assert to_anthropic(branches, fit="auto", strict=True)["strict"] is True


# --- real ones -----------------------------------------------------------------------------------------------------------

REAL = os.environ.get("TRIMARAN_TOOL_DEFINITIONS", "")


if REAL:

    @pytest.mark.parametrize("format", FORMATS)
    def test_every_real_tool_is_taken_and_every_call_of_it_leads_back(format: str) -> None:
        for listed in json.loads(Path(REAL).read_text()):
            for definition in listed["tools"]:
                (shape,) = to_provider([definition], format, fit="auto")
                held: Any = shape.get("function", shape)
                schema = held.get("input_schema") or held.get("parameters") or held["parametersJsonSchema"]
                sent = {"name": "t", "description": held["description"], "inputSchema": schema}
                refused = [str(one) for one in lint(sent, profile_of(format)) if one.weight == "refused"]
                assert not refused, definition["name"]
                properties = definition["inputSchema"].get("properties", {})
                restored = restore_arguments(dict.fromkeys(schema.get("properties", {}), 1), definition["inputSchema"])
                assert properties.keys() <= restored.keys(), definition["name"]
