"""Every return shape of every kind of handler (R43-R47, R51, R52)."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import pytest

from trimaran import content
from trimaran.errors import DeclarationError, ProtocolError, ToolError
from trimaran.schema import Validator
from trimaran.server.results import (
    OutputMismatch,
    call_result,
    error_result,
    exact_type,
    is_content,
    prompt_result,
    read_result,
)
from trimaran.types import CallToolResult, GetPromptResult, ImageContent, ReadResourceResult, TextContent

TEXT = {"type": "text", "text": "x"}
IMAGE = {"type": "image", "data": "eA==", "mimeType": "image/png"}


class Color(enum.StrEnum):
    red = "r"


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date


def wire(result: Any) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(result))


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", text("x")),
        ("", text("")),
        ({"a": 1}, text('{"a":1}')),
        (IMAGE, {"content": [IMAGE]}),
        ({"type": "circle"}, text('{"type":"circle"}')),
        ([TEXT, IMAGE], {"content": [TEXT, IMAGE]}),
        (["x", IMAGE], {"content": [TEXT, IMAGE]}),
        ((TEXT, TEXT), {"content": [TEXT, TEXT]}),
        ([content.text("x")], {"content": [TEXT]}),
        (content.text("x"), {"content": [TEXT]}),
        (content.resource_link("a:b"), {"content": [{"type": "resource_link", "uri": "a:b", "name": "a:b"}]}),
        (None, {"content": []}),
        (5, text("5")),
        (True, text("true")),
        (1.5, text("1.5")),
        ([1, 2], text("[1,2]")),
        ([{"a": 1}], text('[{"a":1}]')),
        (b"x", text("eA==")),
        (Point(1, datetime.date(2025, 1, 2)), text('{"x":1,"when":"2025-01-02"}')),
        (("x", {"a": 1}), {**text("x"), "structuredContent": {"a": 1}}),
        (([TEXT, IMAGE], {"a": 1}), {"content": [TEXT, IMAGE], "structuredContent": {"a": 1}}),
        ((IMAGE, {"a": 1}), {"content": [IMAGE], "structuredContent": {"a": 1}}),
        ((None, {"a": 1}), {"content": [], "structuredContent": {"a": 1}}),
        (("x", IMAGE), {"content": [TEXT, IMAGE]}),
        (CallToolResult.error("x"), {**text("x"), "isError": True}),
        (content.structured({"a": 1}, "x", {"m": 1}), {**text("x"), "structuredContent": {"a": 1}, "_meta": {"m": 1}}),
        (ToolError("x"), {**text("x"), "isError": True}),
    ],
)
def test_a_tool_without_an_output_schema_may_return_anything(value: Any, expected: dict[str, Any]) -> None:
    """R43, R44, R45, R46, R47."""
    assert wire(call_result(value, None)) == expected


@pytest.mark.parametrize(
    ("schema", "value", "shown", "structured"),
    [
        ({"type": "integer"}, 5, "5", 5),
        ({"type": "string"}, "x", "x", "x"),
        ({"type": "boolean"}, True, "true", True),
        ({"type": "number"}, 1, "1", 1),
        ({"type": "array"}, [1], "[1]", [1]),
        ({"type": "array"}, [], "[]", []),
        ({"type": "object"}, {"type": "text"}, '{"type":"text"}', {"type": "text"}),
        (
            {"type": "object"},
            Point(1, datetime.date(2025, 1, 2)),
            '{"x":1,"when":"2025-01-02"}',
            {"x": 1, "when": "2025-01-02"},
        ),
        ({"type": "null"}, None, "null", None),
        ({"type": "string", "enum": ["r"]}, Color.red, "r", "r"),
    ],
)
def test_a_tool_with_an_output_schema_returns_structure_and_its_text(
    schema: Any, value: Any, shown: str, structured: Any
) -> None:
    """R45, R47: the same bytes serve as both."""
    assert wire(call_result(value, Validator(schema))) == {**text(shown), "structuredContent": structured}


def test_structure_may_come_with_content_of_its_own() -> None:
    """R47."""
    found = call_result(("seen", {"a": 1}), Validator({"type": "object"}))
    assert wire(found) == {**text("seen"), "structuredContent": {"a": 1}}


def test_blocks_in_a_list_of_anything_are_shown_as_blocks() -> None:
    """A tool annotated `-> list` promises structure, and yet a picture it returns is a picture."""
    blocks = ["x", content.image(b"x", "image/png")]
    structured = ["x", IMAGE]
    assert wire(call_result(blocks, Validator({"type": "array"}))) == {
        "content": [TEXT, IMAGE],
        "structuredContent": structured,
    }
    for promised, value in (({"type": "array"}, ["x", 1]), ({"type": "array", "items": {"type": "string"}}, ["x"])):
        assert len(wire(call_result(value, Validator(promised)))["content"]) == 1


@pytest.mark.parametrize(
    "value",
    ["x", None, [1], CallToolResult.ok("x"), CallToolResult.ok("x", structured=1), ("x", {"a": "b"})],
)
def test_a_result_that_breaks_the_promise_is_a_mismatch(value: Any) -> None:
    """C2, R88."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    with pytest.raises(OutputMismatch):
        call_result(value, Validator(schema))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_json_does_not_have_is_a_mismatch(value: float) -> None:
    with pytest.raises(OutputMismatch):
        call_result(value, Validator({"type": "number"}), float)


def test_an_error_result_promises_nothing() -> None:
    """C2: only when structured data is returned."""
    assert call_result(CallToolResult.error("x"), Validator({"type": "object"})).is_error
    assert call_result(ToolError("x"), Validator({"type": "object"})).is_error


def test_a_returned_protocol_error_is_raised() -> None:
    """R48."""
    error = ProtocolError(7, "x")
    with pytest.raises(ProtocolError) as caught:
        call_result(error, None)
    assert caught.value is error


def test_a_handlers_own_result_object_is_not_written_to() -> None:
    mine = CallToolResult.ok("x")
    assert call_result(mine, None) is not mine


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, int),
        ({"type": "number"}, float),
        ({"type": "boolean"}, bool),
        ({"type": "string"}, None),
        ({"type": "integer", "minimum": 1}, None),
        ({"type": ["integer"]}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_check_is_skipped_only_where_the_type_is_the_whole_promise(schema: Any, kind: type | None) -> None:
    assert exact_type(schema) is kind


def test_the_short_way_and_the_long_way_say_the_same() -> None:
    for value, kind, schema in ((3, int, "integer"), (1.5, float, "number"), (True, bool, "boolean")):
        validator = Validator({"type": schema})
        assert wire(call_result(value, validator, kind)) == wire(call_result(value, validator))
    with pytest.raises(OutputMismatch):
        call_result(True, Validator({"type": "integer"}), int)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ToolError("x"), text("x")),
        (ToolError(), text("the tool failed")),
        (ToolError("x", content=[IMAGE]), {"content": [IMAGE]}),
        (ToolError("x", content=IMAGE), {"content": [IMAGE]}),
        (ToolError("x", content=content.text("y")), text("y")),
        (ToolError("x", meta={"m": 1}), {**text("x"), "_meta": {"m": 1}}),
    ],
)
def test_a_deliberate_failure_says_its_own_words(error: ToolError, expected: dict[str, Any]) -> None:
    """R44, R46, R48."""
    assert wire(error_result(error)) == {**expected, "isError": True}


@pytest.mark.parametrize(
    "annotation",
    [
        str,
        bytes,
        TextContent,
        CallToolResult,
        list[TextContent],
        tuple[TextContent, ...],
        TextContent | None,
        TextContent | str,
        list[TextContent | str],
        Annotated[TextContent, "x"],
        Sequence[ImageContent],
    ],
)
def test_content_annotations_promise_no_structure(annotation: Any) -> None:
    assert is_content(annotation)


@pytest.mark.parametrize(
    "annotation",
    [int, dict, list[str], str | None, TextContent | int, list[int], Annotated[int, 1], dict[str, TextContent]],
)
def test_other_annotations_do(annotation: Any) -> None:
    assert not is_content(annotation)


@dataclasses.dataclass
class Settings:
    name: str
    size: int = 3
    inner: Any = None


def test_a_decoded_dataclass_comes_out_with_its_defaults() -> None:
    """What goes in as an argument may come out as the result."""
    decoded = msgspec.convert({"name": "x", "inner": None}, Settings)
    schema = {"type": "object", "required": ["name", "size"]}
    for value in (decoded, [decoded], {"a": decoded}, Settings("y", inner=decoded)):
        validator = Validator(schema if isinstance(value, Settings) else {})
        assert '"size":3' in wire(call_result(value, validator))["content"][0]["text"]


# --- resources -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("x", [{"uri": "a:b", "text": "x", "mimeType": "text/plain"}]),
        (b"x", [{"uri": "a:b", "blob": "eA==", "mimeType": "application/octet-stream"}]),
        (bytearray(b"x"), [{"uri": "a:b", "blob": "eA==", "mimeType": "application/octet-stream"}]),
        (memoryview(b"x"), [{"uri": "a:b", "blob": "eA==", "mimeType": "application/octet-stream"}]),
        ({"a": 1}, [{"uri": "a:b", "text": '{"a":1}', "mimeType": "application/json"}]),
        ([1, 2], [{"uri": "a:b", "text": "[1,2]", "mimeType": "application/json"}]),
        ([], [{"uri": "a:b", "text": "[]", "mimeType": "application/json"}]),
        ({"text": "x"}, [{"uri": "a:b", "text": "x", "mimeType": "text/plain"}]),
        (
            {"text": "x", "mimeType": "x/y", "annotations": {"priority": 1}},
            [{"uri": "a:b", "text": "x", "mimeType": "x/y", "annotations": {"priority": 1}}],
        ),
        ({"blob": b"x", "mimeType": "x/y"}, [{"uri": "a:b", "blob": "eA==", "mimeType": "x/y"}]),
        ({"blob": "eA=="}, [{"uri": "a:b", "blob": "eA==", "mimeType": "application/octet-stream"}]),
        ({"text": "x", "other": 1}, [{"uri": "a:b", "text": '{"text":"x","other":1}', "mimeType": "application/json"}]),
        (
            [{"text": "x"}, {"uri": "c:d", "blob": b"x"}],
            [
                {"uri": "a:b", "text": "x", "mimeType": "text/plain"},
                {"uri": "c:d", "blob": "eA==", "mimeType": "application/octet-stream"},
            ],
        ),
        ([content.text_resource("c:d", "x")], [{"uri": "c:d", "text": "x", "mimeType": "text/plain"}]),
        (content.blob_resource("c:d", b"x", "x/y"), [{"uri": "c:d", "blob": "eA==", "mimeType": "x/y"}]),
    ],
)
def test_a_resource_may_return_any_of_these(value: Any, contents: list[Any]) -> None:
    """R51: bytes are encoded by the library, the uri put in where it is missing."""
    assert wire(read_result(value, "a:b", None))["contents"] == contents


def test_records_that_happen_to_have_a_text_field_stay_one_json_list() -> None:
    """R51: only what is nothing but contents is contents."""
    rows = [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]
    contents = wire(read_result(rows, "a:b", None))["contents"]
    assert [msgspec.json.decode(c["text"]) for c in contents] == [rows]


def test_the_declared_type_is_the_contents_type() -> None:
    for value in ("x", b"x", {"a": 1}, {"text": "x"}, {"blob": b"x"}):
        assert wire(read_result(value, "a:b", "x/y"))["contents"][0]["mimeType"] == "x/y"


def test_a_ready_read_result_is_taken_as_a_copy() -> None:
    mine = ReadResourceResult(contents=[])
    assert read_result(mine, "a:b", None) is not mine
    assert read_result(mine, "a:b", None) == mine
    with pytest.raises(ProtocolError):
        read_result(ProtocolError(1, "x"), "a:b", None)


# --- prompts ---------------------------------------------------------------------------------------------------------


USER = {"role": "user", "content": TEXT}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", {"messages": [USER], "description": "d"}),
        (["x", "x"], {"messages": [USER, USER], "description": "d"}),
        (content.text("x"), {"messages": [USER], "description": "d"}),
        ([content.user_message("x")], {"messages": [USER], "description": "d"}),
        (content.assistant_message("x"), {"messages": [{**USER, "role": "assistant"}], "description": "d"}),
        ([{"role": "assistant", "content": "x"}], {"messages": [{**USER, "role": "assistant"}], "description": "d"}),
        (
            ["x", content.assistant_message("x")],
            {"messages": [USER, {**USER, "role": "assistant"}], "description": "d"},
        ),
        (({"role": "user", "content": TEXT}, "other"), {"messages": [USER], "description": "other"}),
        ((["x"], "other"), {"messages": [USER], "description": "other"}),
        ({"messages": ["x"], "description": "other"}, {"messages": [USER], "description": "other"}),
        ({"messages": ["x"]}, {"messages": [USER], "description": "d"}),
        ([], {"messages": [], "description": "d"}),
        (GetPromptResult(messages=[USER]), {"messages": [USER]}),
    ],
)
def test_a_prompt_may_return_any_of_these(value: Any, expected: dict[str, Any]) -> None:
    """R52."""
    assert wire(prompt_result(value, "d")) == expected


@pytest.mark.parametrize("value", [5, None, {"a": 1}, [5], [{"role": "system", "content": "x"}]])
def test_a_prompt_that_returns_something_else_is_told_so(value: Any) -> None:
    """R50, C26."""
    with pytest.raises(DeclarationError):
        prompt_result(value, None)


def test_a_prompt_may_return_a_protocol_error() -> None:
    """R48."""
    with pytest.raises(ProtocolError):
        prompt_result(ProtocolError(1, "x"), None)
