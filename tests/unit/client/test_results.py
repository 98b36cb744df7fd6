"""Results as Python values: strict about structure, tolerant about content, and `raw` holds what came (P32)."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest
from msgspec import Raw

from trimaran.client.results import read_completion, read_page, read_prompt, read_resource, read_tool
from trimaran.errors import RemoteProtocolError
from trimaran.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


TEXT = {"type": "text", "text": "hello"}


# --- tools -----------------------------------------------------------------------------------------------------------


def test_blocks_are_typed() -> None:
    content = [
        TEXT,
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "r:1", "name": "one"},
        {"type": "resource", "resource": {"uri": "r:1", "text": "t", "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "r:2", "blob": "aGk="}},
    ]
    found = read_tool(raw({"content": content, "_meta": {"k": 1}}))
    kinds = [TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource, EmbeddedResource]
    assert [type(block) for block in found.content] == kinds
    assert found.content[4].resource == TextResourceContents(uri="r:1", text="t", mime_type="text/plain")
    assert found.content[5].resource == BlobResourceContents(uri="r:2", blob="aGk=")
    assert found.meta == {"k": 1}
    assert found.raw["content"] == content
    assert found.text == "hello"
    assert found.data == found.content


@pytest.mark.parametrize(
    "block",
    [
        {"type": "video", "url": "u"},
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "image", "data": 5},
        {"no": "type"},
        "just text",
        5,
        None,
    ],
    ids=lambda value: json.dumps(value)[:30],
)
def test_a_block_that_is_unknown_or_malformed_is_kept_as_it_came(block: Any, caplog: pytest.LogCaptureFixture) -> None:
    """P32: the others keep their types."""
    found = read_tool(raw({"content": [TEXT, block]}))
    assert found.content == [TextContent(text="hello"), block]
    assert found.text == "hello"
    assert "kept as it came" in caplog.text


def test_an_embedded_resource_that_is_none_is_kept_as_it_came() -> None:
    found = read_tool(raw({"content": [{"type": "resource", "resource": {"uri": "r:1"}}]}))
    assert found.content[0].resource == {"uri": "r:1"}


@pytest.mark.parametrize(
    ("result", "data", "structured"),
    [
        ({"content": [TEXT]}, "hello", None),
        ({"content": []}, None, None),
        ({}, None, None),
        ({"content": [TEXT], "structuredContent": {"a": 1}}, {"a": 1}, {"a": 1}),
        ({"structuredContent": None}, None, None),
        ({"structuredContent": [1, 2]}, [1, 2], [1, 2]),
        ({"structuredContent": 0}, 0, 0),
        ({"structuredContent": {"result": 5}}, {"result": 5}, {"result": 5}),
    ],
)
def test_data_is_the_plain_value(result: Any, data: Any, structured: Any) -> None:
    found = read_tool(raw(result))
    assert (found.data, found.structured, found.is_error) == (data, structured, False)


@pytest.mark.parametrize(
    ("structured", "data"),
    [({"result": 5}, 5), ({"result": None}, None), ({"other": 5}, {"other": 5}), ([1], [1])],
)
def test_an_envelope_is_opened_where_the_schema_says_it_is_one(structured: Any, data: Any) -> None:
    found = read_tool(raw({"structuredContent": structured}), unwrap=True)
    assert found.data == data
    assert found.structured == structured


def test_an_error_result_says_so() -> None:
    found = read_tool(raw({"content": [TEXT], "isError": True}))
    assert found.is_error
    assert "error" in repr(found)
    assert not read_tool(raw({"content": [TEXT], "isError": None})).is_error


@pytest.mark.parametrize("result", [[], 5, None, "x", {"content": 5}, {"content": {"a": 1}}, {"isError": "yes"}])
def test_a_result_nobody_can_use_is_refused(result: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="tools/call is malformed"):
        read_tool(raw(result))


def test_meta_that_is_none_counts_as_empty() -> None:
    assert read_tool(raw({"content": [TEXT], "_meta": 5})).meta == {}


def test_a_repr_is_short() -> None:
    assert len(repr(read_tool(raw({"content": [{"type": "text", "text": "x" * 1000}]})))) < 120


# --- resources -------------------------------------------------------------------------------------------------------


def test_contents_are_text_or_bytes() -> None:
    blob = base64.b64encode(b"\x00\xff").decode()
    found = read_resource(
        raw({"contents": [{"uri": "a", "blob": blob}, {"uri": "b", "text": "x"}, {"uri": "c", "text": "y"}]})
    )
    assert [type(one) for one in found.contents] == [BlobResourceContents, TextResourceContents, TextResourceContents]
    assert found.blob == b"\x00\xff"
    assert found.text == "x\ny"
    assert found.raw["contents"][0]["uri"] == "a"  # pyright: ignore[reportIndexIssue, reportCallIssue, reportArgumentType]
    assert repr(found) == "<ResourceResult a, b, c>"


def test_text_counts_as_bytes_and_nothing_as_nothing() -> None:
    assert read_resource(raw({"contents": [{"uri": "a", "text": "é"}]})).blob == "é".encode()
    empty = read_resource(raw({"contents": []}))
    assert (empty.blob, empty.text, empty.contents) == (b"", "", [])


def test_a_blob_that_is_not_base64_is_told_when_it_is_read() -> None:
    found = read_resource(raw({"contents": [{"uri": "a:1", "blob": "!!"}]}))
    with pytest.raises(RemoteProtocolError, match="a:1"):
        _ = found.blob


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"contents": None},
        {"contents": [5]},
        {"contents": [{"uri": "a"}]},
        {"contents": [{"text": "x"}]},
        {"contents": [{"uri": 5, "text": "x"}]},
        [],
    ],
)
def test_contents_that_are_none_are_refused(result: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="resources/read"):
        read_resource(raw(result))


# --- prompts and completion ------------------------------------------------------------------------------------------


def test_messages_are_typed() -> None:
    found = read_prompt(
        raw(
            {
                "description": "d",
                "messages": [
                    {"role": "user", "content": TEXT},
                    {"role": "assistant", "content": {"type": "video"}},
                ],
                "_meta": {"k": 1},
            }
        )
    )
    assert found.description == "d"
    assert found.messages[0].content == TextContent(text="hello")
    assert found.messages[1].content == {"type": "video"}
    assert found.text == "hello"
    assert found.meta == {"k": 1}


@pytest.mark.parametrize("result", [{}, {"messages": 5}, {"messages": [{"role": "robot", "content": TEXT}]}, [], None])
def test_a_prompt_that_is_none_is_refused(result: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="prompts/get"):
        read_prompt(raw(result))


def test_a_completion_is_read() -> None:
    found = read_completion(raw({"completion": {"values": ["a"], "total": 5, "hasMore": True}}))
    assert (found.values, found.total, found.has_more) == (["a"], 5, True)
    for result in ({}, {"completion": {}}, {"completion": {"values": [1]}}, {"completion": None}):
        with pytest.raises(RemoteProtocolError, match="completion/complete"):
            read_completion(raw(result))


# --- lists -----------------------------------------------------------------------------------------------------------

LISTS: list[Any] = [
    ("tools/list", "tools", {"name": "t", "inputSchema": {"type": "object"}}, "name"),
    ("resources/list", "resources", {"uri": "r:1", "name": "r"}, "uri"),
    ("resources/templates/list", "resourceTemplates", {"uriTemplate": "r:{x}", "name": "r"}, "uri_template"),
    ("prompts/list", "prompts", {"name": "p"}, "name"),
]


@pytest.mark.parametrize(("method", "key", "item", "field"), LISTS, ids=[row[0] for row in LISTS])
def test_a_malformed_item_is_dropped_and_the_rest_kept(
    method: str, key: str, item: Any, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P32: with a warning that says which."""
    caplog.set_level(logging.WARNING)
    page = read_page(method, raw({key: [item, 5, {}, None, {**item, field_name(item): 7}, item]}))
    assert [getattr(one, field) for one in page] == [next(iter(item.values()))] * 2
    assert caplog.text.count("an item was dropped") == 4


def field_name(item: dict[str, Any]) -> str:
    return next(iter(item))


@pytest.mark.parametrize(("method", "key", "item", "field"), LISTS, ids=[row[0] for row in LISTS])
def test_a_malformed_field_that_nobody_needs_is_left_out(
    method: str, key: str, item: Any, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P32: a description that is no text hides no tool."""
    caplog.set_level(logging.WARNING)
    odd = {**item, "description": 7, "icons": [{"mimeType": "image/png"}], "_meta": 1}
    (found,) = read_page(method, raw({key: [odd]}))
    assert (getattr(found, field), found.description, found.icons, found.meta) == (
        item[field_name(item)],
        None,
        None,
        None,
    )
    assert caplog.text.count("a field was left out") == 3


@pytest.mark.parametrize("cursor", ["", "x", None])
def test_a_page_knows_what_comes_next(cursor: str | None) -> None:
    """protocol.md 1.5: the empty string is a cursor."""
    tail = {} if cursor is None else {"nextCursor": cursor}
    page = read_page("prompts/list", raw({"prompts": [], "ttlMs": 5, "_meta": {"k": 1}, **tail}))
    assert (page.next_cursor, page.ttl_ms, page.meta) == (cursor, 5, {"k": 1})
    assert page == []


@pytest.mark.parametrize("ttl", [None, "5", True, [], 1.5])
def test_a_ttl_that_is_no_whole_number_is_none(ttl: Any) -> None:
    assert read_page("prompts/list", raw({"prompts": [], "ttlMs": ttl})).ttl_ms is None


@pytest.mark.parametrize("result", [{}, {"tools": {}}, [], None, 5, {"tools": [], "nextCursor": 5}, {"prompts": []}])
def test_a_list_that_is_none_is_refused(result: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="tools/list"):
        read_page("tools/list", raw(result))


def test_a_list_that_is_null_is_empty() -> None:
    """So Go writes a list with nothing in it."""
    assert read_page("tools/list", raw({"tools": None})) == []
    assert read_tool(raw({"content": None})).content == []


def test_hints_are_typed_and_what_is_no_hint_stays() -> None:
    tools = [
        {"name": "a", "inputSchema": {}, "annotations": {"readOnlyHint": True, "vendor": 1}},
        {"name": "b", "inputSchema": {}, "annotations": {"readOnlyHint": "yes"}},
    ]
    first, second = read_page("tools/list", raw({"tools": tools}))
    assert isinstance(first.annotations, ToolAnnotations)
    assert first.annotations.read_only_hint is True
    assert second.annotations == {"readOnlyHint": "yes"}
