"""The builders for what handlers return (R12, R13, R44-R46, C26)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran import content
from trimaran.errors import DeclarationError
from trimaran.types import Annotations, CallToolResult, Resource, TextContent

NOTES = Annotations(audience=["user"], priority=1)
WIRE_NOTES = {"audience": ["user"], "priority": 1}


@pytest.mark.parametrize(
    ("built", "wire"),
    [
        (content.text("a"), {"type": "text", "text": "a"}),
        (content.image(b"x"), {"type": "image", "data": "eA==", "mimeType": "image/png"}),
        (content.image("eA==", "image/gif"), {"type": "image", "data": "eA==", "mimeType": "image/gif"}),
        (content.audio(b"x"), {"type": "audio", "data": "eA==", "mimeType": "audio/wav"}),
        (content.audio(bytearray(b"x"), "audio/ogg"), {"type": "audio", "data": "eA==", "mimeType": "audio/ogg"}),  # pyright: ignore[reportArgumentType]
        (content.text_resource("a:b", "t"), {"uri": "a:b", "text": "t", "mimeType": "text/plain"}),
        (content.text_resource("a:b", "t", None), {"uri": "a:b", "text": "t"}),
        (content.blob_resource("a:b", b"x"), {"uri": "a:b", "blob": "eA==", "mimeType": "application/octet-stream"}),
        (content.blob_resource("a:b", "eA==", "x/y"), {"uri": "a:b", "blob": "eA==", "mimeType": "x/y"}),
        (
            content.embedded(content.text_resource("a:b", "t", None)),
            {"type": "resource", "resource": {"uri": "a:b", "text": "t"}},
        ),
        (content.embedded({"uri": "a:b", "text": "t"}), {"type": "resource", "resource": {"uri": "a:b", "text": "t"}}),
        (content.resource_link("a:b"), {"type": "resource_link", "uri": "a:b", "name": "a:b"}),
        (
            content.resource_link("a:b", "n", mime_type="x/y", size=1),
            {"type": "resource_link", "uri": "a:b", "name": "n", "mimeType": "x/y", "size": 1},
        ),
        (
            content.resource_link(Resource(uri="a:b", name="n", title="T", mime_type="x/y")),
            {"type": "resource_link", "uri": "a:b", "name": "n", "title": "T", "mimeType": "x/y"},
        ),
        (
            content.resource_link(Resource(uri="a:b", name="n"), "other", title="T"),
            {"type": "resource_link", "uri": "a:b", "name": "other", "title": "T"},
        ),
    ],
)
def test_a_builder_makes_its_block_and_nothing_more(built: Any, wire: dict[str, Any]) -> None:
    """R12: annotations and _meta are emitted only when given."""
    assert built.to_json() == wire


@pytest.mark.parametrize(
    "built",
    [
        content.text("a", annotations=NOTES, meta={"m": 1}),
        content.image(b"x", annotations=NOTES, meta={"m": 1}),
        content.audio(b"x", annotations=NOTES, meta={"m": 1}),
        content.embedded({"uri": "a:b"}, annotations=NOTES, meta={"m": 1}),
        content.resource_link("a:b", annotations=NOTES, meta={"m": 1}),
    ],
)
def test_annotations_and_meta_are_sent_when_given(built: Any) -> None:
    """R12."""
    wire = built.to_json()
    assert (wire["annotations"], wire["_meta"]) == (WIRE_NOTES, {"m": 1})


def test_an_empty_meta_is_left_off() -> None:
    """R46."""
    for built in (
        content.text("a", meta={}),
        content.text_resource("a:b", "", meta={}),
        content.blob_resource("a:b", "", meta={}),
    ):
        assert "_meta" not in built.to_json()
    assert content.text_resource("a:b", "", meta={"m": 1}).to_json()["_meta"] == {"m": 1}


def test_messages_have_one_of_two_roles() -> None:
    """R13, C26."""
    with pytest.raises(DeclarationError, match="instructions"):
        content.message("system", "x")  # pyright: ignore[reportArgumentType]
    assert content.user_message("x").to_json() == {"role": "user", "content": {"type": "text", "text": "x"}}
    assert content.assistant_message(content.text("x")).to_json()["role"] == "assistant"
    assert content.message("user", {"type": "text", "text": "x"}).to_json()["content"] == {"type": "text", "text": "x"}


@pytest.mark.parametrize("role", ["system", "tool", "", "User"])
def test_any_other_role_is_refused_with_advice(role: str) -> None:
    """C26."""
    with pytest.raises(DeclarationError, match="user message"):
        content.message(role, "x")


def test_a_tool_error_takes_text_a_block_or_blocks() -> None:
    """R44, R46."""
    one = {"type": "text", "text": "x"}
    assert content.tool_error("x").to_json() == {"content": [one], "isError": True}
    assert content.tool_error(TextContent(text="x")).to_json() == {"content": [one], "isError": True}
    assert content.tool_error([one, one], {"m": 1}).to_json() == {
        "content": [one, one],
        "isError": True,
        "_meta": {"m": 1},
    }


def test_structured_data_is_mirrored_as_text_unless_said_otherwise() -> None:
    """R45."""
    assert content.structured({"a": 1}).to_json() == {
        "content": [{"type": "text", "text": '{"a":1}'}],
        "structuredContent": {"a": 1},
    }
    assert content.structured([1], "one", {"m": 1}).to_json() == {
        "content": [{"type": "text", "text": "one"}],
        "structuredContent": [1],
        "_meta": {"m": 1},
    }
    assert content.structured({}, []).to_json()["content"] == []


def test_a_result_gets_a_meta_without_being_changed_itself() -> None:
    """R46."""
    plain = CallToolResult.ok("x")
    assert content.result_meta(plain, {"m": 1}).to_json()["_meta"] == {"m": 1}
    assert plain.meta is None
    assert content.result_meta("x", {"m": 1}).to_json()["content"] == [{"type": "text", "text": "x"}]
    assert "_meta" not in content.result_meta(CallToolResult.ok("x", meta={"m": 1}), {}).to_json()
