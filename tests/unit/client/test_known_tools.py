"""What a client knows of a server's tools: headers compiled once, repeatability, and what results are held against."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from msgspec import Raw

from trimaran.client.known_tools import KnownTool, KnownTools
from trimaran.client.results import read_tool
from trimaran.errors import InvalidOutput
from trimaran.types import Tool, ToolAnnotations

ANNOTATED: Any = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
INVALID: Any = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}


def result(**fields: Any) -> Any:
    return read_tool(Raw(json.dumps({"content": [], **fields}).encode()))


def test_headers_are_compiled_over_http_only() -> None:
    known = KnownTools()
    tools = [Tool(name="a", input_schema=ANNOTATED), Tool(name="b")]
    assert known.learn(tools, over_http=True, legacy=False) == tools
    one, two = known.get("a"), known.get("b")
    assert one is not None
    assert one.headers is not None
    assert one.headers.mirror({"a": "x"}) == [("Mcp-Param-A", "x")]
    assert two is not None
    assert two.headers is None
    known.learn(tools, over_http=False, legacy=False)
    one = known.get("a")
    assert one is not None
    assert one.headers is None


def test_a_tool_whose_annotations_cannot_be_honoured_is_left_out_over_http(caplog: pytest.LogCaptureFixture) -> None:
    """protocol.md 3.3, 7.3: drop the offending tool, keep others, warn; others may ignore it."""
    tools = [Tool(name="bad", input_schema=INVALID), Tool(name="good")]
    known = KnownTools()
    assert [tool.name for tool in known.learn(tools, over_http=True, legacy=False)] == ["good"]
    assert known.get("bad") is None
    assert "bad" in caplog.text
    assert [tool.name for tool in known.learn(tools, over_http=False, legacy=False)] == ["bad", "good"]
    known.learn(tools, over_http=True, legacy=False)
    assert known.get("bad") is None


def test_everything_can_be_forgotten() -> None:
    known = KnownTools()
    known.learn([Tool(name="a")], over_http=False, legacy=False)
    known.is_complete = True
    known.forget()
    assert known.get("a") is None
    assert not known.is_complete


@pytest.mark.parametrize(
    ("hints", "repeatable"),
    [
        (None, False),
        (ToolAnnotations(), False),
        (ToolAnnotations(idempotent_hint=True), True),
        (ToolAnnotations(read_only_hint=True), True),
        (ToolAnnotations(read_only_hint=False, destructive_hint=True), False),
        ({"idempotentHint": "yes"}, False),
    ],
)
def test_a_tool_may_be_repeated_if_it_says_so(hints: Any, repeatable: bool) -> None:
    assert KnownTool(Tool(name="a", annotations=hints), None, legacy=False).is_repeatable is repeatable


LONE: Any = {"type": "object", "properties": {"result": {}}, "required": ["result"]}


@pytest.mark.parametrize(
    ("schema", "modern", "legacy"),
    [
        (None, False, False),
        ({"type": "object"}, False, False),
        ({"type": "object", "x-fastmcp-wrap-result": True}, True, True),
        ({"type": "object", "x-fastmcp-wrap-result": False}, False, False),
        ({**LONE, "title": "addOutput"}, True, True),
        ({**LONE, "title": "Score"}, False, False),
        (LONE, False, True),
        ({**LONE, "additionalProperties": False}, False, False),
        ({**LONE, "required": []}, False, False),
        ({**LONE, "properties": {"result": {}, "x": {}}, "title": "aOutput"}, False, False),
        ({"type": "object", "properties": 5, "title": 5}, False, False),
    ],
)
def test_an_envelope_is_recognised(schema: Any, modern: bool, legacy: bool) -> None:
    """A lone value in `{"result": value}`: by its marker, or by how the libraries that make it up write it."""
    for is_legacy, unwraps in ((False, modern), (True, legacy)):
        assert KnownTool(Tool(name="a", output_schema=schema), None, legacy=is_legacy).unwraps is unwraps


SCHEMA: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("fields", "is_right"),
    [
        ({"structuredContent": {"n": 1}}, True),
        ({"structuredContent": {"n": "x"}}, False),
        ({"structuredContent": {}}, False),
        ({"structuredContent": None}, False),
        ({}, False),
        ({"isError": True}, True),
        ({"isError": True, "structuredContent": {"n": "x"}}, True),
    ],
)
def test_a_result_is_held_against_its_schema(fields: Any, is_right: bool, caplog: pytest.LogCaptureFixture) -> None:
    """P32, protocol.md 1.5: validate SHOULD; an error result is excused."""
    caplog.set_level(logging.WARNING)
    tool = KnownTool(Tool(name="count", output_schema=SCHEMA), None, legacy=False)
    found = result(**fields)
    tool.check(found, "off")
    assert caplog.text == ""
    tool.check(found, "warn")
    assert ("count" in caplog.text) is not is_right
    if is_right:
        tool.check(found, "strict")
    else:
        with pytest.raises(InvalidOutput, match="count") as caught:
            tool.check(found, "strict")
        assert caught.value.result is found


def test_a_schema_that_cannot_be_checked_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    tool = KnownTool(Tool(name="odd", output_schema={"type": "nonsense"}), None, legacy=False)
    for _ in range(3):
        tool.check(result(structuredContent={"n": 1}), "warn")
    assert caplog.text.count("cannot be checked") == 1


@pytest.mark.parametrize("value", [[1, 2], 5, "x", None, True])
def test_any_value_may_be_declared(value: Any) -> None:
    """protocol.md 1.5: any JSON value incl. null, arrays, scalars."""
    tool = KnownTool(Tool(name="any", output_schema={"const": value}), None, legacy=False)
    tool.check(result(structuredContent=value), "strict")
    with pytest.raises(InvalidOutput):
        tool.check(result(structuredContent={"other": 1}), "strict")
