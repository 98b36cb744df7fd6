"""Calls back from each provider's shape (R223, R276)."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran.errors import ConfigError, LocalProtocolError
from trimaran.format import (
    FORMATS,
    ToolCall,
    fit_schema,
    from_anthropic_call,
    from_gemini_call,
    from_openai_call,
    read_calls,
    restore_arguments,
)
from trimaran.schema import Validator

ARGS = {"q": "x", "n": 1}


def anthropic(name: Any, args: Any) -> Any:
    return {"type": "tool_use", "id": "c1", "name": name, "input": args}


def openai(name: Any, args: Any) -> Any:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": args}}


def responses(name: Any, args: Any) -> Any:
    return {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": name, "arguments": args}


def gemini(name: Any, args: Any) -> Any:
    return {"functionCall": {"id": "c1", "name": name, "args": args}}


SHAPES = [
    pytest.param(anthropic, from_anthropic_call, id="anthropic"),
    pytest.param(openai, from_openai_call, id="openai"),
    pytest.param(responses, from_openai_call, id="openai-responses"),
    pytest.param(gemini, from_gemini_call, id="gemini"),
]


def as_object(value: Any) -> Any:
    """What a provider's own library would give: objects with attributes, arguments as mappings."""
    if isinstance(value, dict):
        return SimpleNamespace(
            **{k: v if k in ("input", "args", "arguments") else as_object(v) for k, v in value.items()}
        )
    return [as_object(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("shape", "read"), SHAPES)
def test_a_call_is_a_name_and_arguments(shape: Any, read: Any) -> None:
    """R223: arguments accepted as mapping or JSON string."""
    for given_ in (ARGS, json.dumps(ARGS), f" {json.dumps(ARGS)}\n"):
        call = read(shape("search", given_))
        name, arguments = call
        assert (name, arguments, call.id) == ("search", ARGS, "c1")
        assert (call.name, call.arguments) == (name, arguments)
    assert read(as_object(shape("search", ARGS))) == ("search", ARGS)


@pytest.mark.parametrize("none", [None, "", "  ", "null", {}, "{}"])
@pytest.mark.parametrize(("shape", "read"), SHAPES)
def test_no_arguments_are_an_empty_object(shape: Any, read: Any, none: Any) -> None:
    """R276: null = none."""
    assert read(shape("now", none)) == ("now", {})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('{"q": ', "the arguments of search are not valid JSON"),
        ("[1]", "the arguments of search are a list: send one JSON object"),
        ([1], "the arguments of search are a list: send one JSON object"),
        ("5", "the arguments of search are a int"),
        ('"\ud800"', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
    ],
    ids=["cut", "list as text", "list", "number", "surrogate", "deep"],
)
@pytest.mark.parametrize(("shape", "read"), SHAPES)
def test_arguments_that_are_no_object_are_refused_with_what_to_do(shape: Any, read: Any, wrong: Any, said: str) -> None:
    """R276: arguments must be an object."""
    with pytest.raises(LocalProtocolError, match=re.escape(said)):
        read(shape("search", wrong))


@pytest.mark.parametrize(
    ("read", "wrong", "said"),
    [
        (from_anthropic_call, {"type": "text", "text": "a"}, '"type": "tool_use"'),
        (from_anthropic_call, {"type": "tool_use"}, "a tool_use block with a name"),
        (from_openai_call, {"type": "message"}, '"type": "function_call"'),
        (from_openai_call, {"function": {"name": ""}}, "an entry of tool_calls with a name"),
        (from_openai_call, {"type": "function_call", "name": 5}, "a function_call item with a name"),
        (from_gemini_call, {"text": "a"}, "a functionCall with a name"),
        (from_gemini_call, None, "a functionCall with a name"),
    ],
)
def test_what_is_no_call_is_refused(read: Any, wrong: Any, said: str) -> None:
    with pytest.raises(LocalProtocolError, match="this is not a call: expected a") as error:
        read(wrong)
    assert said in str(error.value)


def test_a_call_shows_what_it_is() -> None:
    assert repr(ToolCall("a", {"b": 1}, "c")) == "ToolCall('a', {'b': 1}, id='c')"


# --- whole answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "answer"),
    [
        ("anthropic", {"content": [{"type": "text", "text": "I will"}, anthropic("a", {}), anthropic("b", ARGS)]}),
        ("openai", {"choices": [{"message": {"tool_calls": [openai("a", "{}"), openai("b", json.dumps(ARGS))]}}]}),
        (
            "openai-responses",
            {"output": [{"type": "reasoning"}, responses("a", "{}"), responses("b", json.dumps(ARGS))]},
        ),
        (
            "gemini",
            {"candidates": [{"content": {"parts": [{"text": "I will"}, gemini("a", {}), gemini("b", ARGS)]}}]},
        ),
    ],
)
def test_all_calls_of_an_answer_are_read(format: str, answer: dict[str, Any]) -> None:
    expected = [("a", {}), ("b", ARGS)]
    assert read_calls(answer, format) == expected
    assert read_calls(as_object(answer), format) == expected
    # A part of the answer will do: the message, or its content.
    inner = next(iter(answer.values()))
    if format == "openai":
        inner = inner[0]["message"]
    elif format == "gemini":
        inner = inner[0]["content"]
        assert read_calls(inner["parts"], format) == expected
    assert read_calls(inner, format) == expected
    assert [call.id for call in read_calls(inner, format)] == ["c1", "c1"]


@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_without_calls_has_none(format: str) -> None:
    for answer in ({}, [], {"content": "just text"}, {"choices": []}, {"candidates": []}, {"content": {"parts": []}}):
        assert read_calls(answer, format) == []


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="no format 'mistral'"):
        read_calls({}, "mistral")


# --- strict arguments ------------------------------------------------------------------------------------------------

STRICT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "must": {"type": "string"},
        "may": {"type": "integer"},
        "null": {"type": ["string", "null"]},
        "any": {},
        "list": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "item": {"$ref": "#/$defs/Item"},
        "either": {"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "string"}]},
        "tag": {"const": "a"},
        "pick": {"enum": ["a", "b"]},
    },
    "required": ["must"],
    "$defs": {
        "Item": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "x": {"type": "string"}},
            "required": ["id"],
        }
    },
}


def test_a_null_for_not_given_is_taken_out_and_any_other_stays() -> None:
    sent = {
        "must": None,
        "may": None,
        "null": None,
        "any": None,
        "list": [{"id": 1, "x": None}, {"id": None, "x": "a"}],
        "item": None,
        "either": {"id": 2, "x": None},
        "unknown": None,
        "tag": None,
        "pick": None,
    }
    before = json.dumps(sent)
    assert restore_arguments(sent, STRICT) == {
        "must": None,
        "null": None,
        "any": None,
        "list": [{"id": 1}, {"id": None, "x": "a"}],
        "either": {"id": 2},
        "unknown": None,
    }
    assert json.dumps(sent) == before


def test_arguments_of_an_endless_schema_end() -> None:
    loop = {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}
    deep: Any = {"a": None}
    for _ in range(100):
        deep = {"a": deep}
    assert restore_arguments(deep, {**loop, "allOf": [{"$ref": "#"}]}) == deep


items = st.fixed_dictionaries({"id": st.integers()}, optional={"x": st.text(max_size=3)})
arguments = st.fixed_dictionaries(
    {"must": st.text(max_size=3)},
    optional={
        "may": st.integers(),
        "list": st.lists(items, max_size=3),
        "item": items,
        "either": items | st.text(max_size=3),
        "tag": st.just("a"),
        "pick": st.sampled_from(["a", "b"]),
    },
)
CLOSED = {**STRICT, "properties": {k: v for k, v in STRICT["properties"].items() if k not in ("null", "any")}}


def filled(value: Any, schema: Any) -> Any:
    """What a model in strict mode sends for these arguments: null for all it leaves out."""
    if schema.get("$ref"):
        schema = CLOSED["$defs"]["Item"]
    if isinstance(value, list):
        return [filled(one, schema["items"]) for one in value]
    if not isinstance(value, dict):
        return value
    if "anyOf" in schema:
        return filled(value, schema["anyOf"][0])
    return {name: filled(value[name], inner) if name in value else None for name, inner in schema["properties"].items()}


@given(arguments)
@settings(max_examples=40, deadline=None)
def test_whatever_a_tool_takes_can_be_said_strictly_and_comes_back(value: dict[str, Any]) -> None:
    fitted = fit_schema(CLOSED, "openai-strict")
    assert fitted.left == []
    sent = filled(value, CLOSED)
    assert Validator(fitted.schema).errors(sent) == []
    assert restore_arguments(sent, CLOSED) == value
