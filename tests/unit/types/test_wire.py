"""Wire types: camelCase outside, snake_case inside, unset fields left out (R14, R25)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trimaran import types
from trimaran.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolParams,
    CallToolResult,
    CompleteResult,
    Completion,
    CreateMessageResult,
    DiscoverResult,
    ElicitResult,
    EmbeddedResource,
    GetPromptResult,
    Icon,
    ImageContent,
    Implementation,
    InitializeResult,
    InputRequiredResult,
    ListRootsResult,
    ListToolsResult,
    NotificationFilter,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptReference,
    Resource,
    ResourceLink,
    ResourceReference,
    ResourceTemplate,
    Root,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    ToolResultContent,
    ToolUseContent,
    as_object,
)

FULL: list[tuple[Any, dict[str, Any]]] = [
    (
        Tool(
            name="t",
            title="T",
            description="d",
            input_schema={"type": "object"},
            output_schema={"type": "object"},
            annotations=ToolAnnotations(
                title="A", read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
            ),
            execution={"taskSupport": "optional"},
            icons=[Icon(src="s", mime_type="image/png", sizes=["1x1"], theme="dark")],
            meta={"k": 1},
        ),
        {
            "name": "t",
            "title": "T",
            "description": "d",
            "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object"},
            "annotations": {
                "title": "A",
                "readOnlyHint": True,
                "destructiveHint": False,
                "idempotentHint": True,
                "openWorldHint": False,
            },
            "execution": {"taskSupport": "optional"},
            "icons": [{"src": "s", "mimeType": "image/png", "sizes": ["1x1"], "theme": "dark"}],
            "_meta": {"k": 1},
        },
    ),
    (
        Resource(
            uri="a:b",
            name="n",
            mime_type="text/plain",
            size=3,
            annotations=Annotations(audience=["user"], priority=0.5, last_modified="2025-01-01"),
        ),
        {
            "uri": "a:b",
            "name": "n",
            "mimeType": "text/plain",
            "size": 3,
            "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-01"},
        },
    ),
    (
        ResourceTemplate(uri_template="a:{b}", name="n", mime_type="x/y"),
        {"uriTemplate": "a:{b}", "name": "n", "mimeType": "x/y"},
    ),
    (
        Prompt(name="p", arguments=[PromptArgument(name="a", title="A", description="d", required=True)]),
        {"name": "p", "arguments": [{"name": "a", "title": "A", "description": "d", "required": True}]},
    ),
    (
        Implementation(name="s", version="1", title="S", description="d", website_url="w"),
        {"name": "s", "version": "1", "title": "S", "description": "d", "websiteUrl": "w"},
    ),
    (
        CallToolResult(content=[TextContent(text="x")], structured_content={"a": 1}, is_error=True),
        {"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}, "isError": True},
    ),
    (ListToolsResult(tools=[], next_cursor=""), {"tools": [], "nextCursor": ""}),
    (
        DiscoverResult(supported_versions=["v"], capabilities={}, ttl_ms=0, cache_scope="public"),
        {"supportedVersions": ["v"], "capabilities": {}, "ttlMs": 0, "cacheScope": "public"},
    ),
    (
        InitializeResult(protocol_version="v", capabilities={}, server_info=Implementation(name="s", version="1")),
        {"protocolVersion": "v", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}},
    ),
    (
        CompleteResult(completion=Completion(values=["a"], total=1, has_more=False)),
        {"completion": {"values": ["a"], "total": 1, "hasMore": False}},
    ),
    (
        GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text="x"))], description="d"),
        {"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}], "description": "d"},
    ),
    (
        InputRequiredResult(input_requests={"a": {}}, request_state="s"),
        {"resultType": "input_required", "inputRequests": {"a": {}}, "requestState": "s"},
    ),
    (
        NotificationFilter(tools_list_changed=True, resource_subscriptions=["a:b"], task_ids=[]),
        {"toolsListChanged": True, "resourceSubscriptions": ["a:b"], "taskIds": []},
    ),
    (ImageContent(data="eA==", mime_type="image/png"), {"type": "image", "data": "eA==", "mimeType": "image/png"}),
    (AudioContent(data="eA==", mime_type="audio/wav"), {"type": "audio", "data": "eA==", "mimeType": "audio/wav"}),
    (ResourceLink(uri="a:b", name="n"), {"type": "resource_link", "uri": "a:b", "name": "n"}),
    (
        EmbeddedResource(resource=TextResourceContents(uri="a:b", text="x")),
        {"type": "resource", "resource": {"uri": "a:b", "text": "x"}},
    ),
    (BlobResourceContents(uri="a:b", blob="eA=="), {"uri": "a:b", "blob": "eA=="}),
    (ToolUseContent(id="1", name="t", input={}), {"type": "tool_use", "id": "1", "name": "t", "input": {}}),
    (
        ToolResultContent(tool_use_id="1", content=[], structured_content=None, is_error=False),
        {"type": "tool_result", "toolUseId": "1", "content": [], "structuredContent": None, "isError": False},
    ),
    (
        ListRootsResult(roots=[Root(uri="file:///a", name="a")]),
        {"roots": [{"uri": "file:///a", "name": "a"}]},
    ),
    (SamplingMessage(role="user", content=[]), {"role": "user", "content": []}),
    (
        CreateMessageResult(role="assistant", content={}, model="m", stop_reason="endTurn"),
        {"role": "assistant", "content": {}, "model": "m", "stopReason": "endTurn"},
    ),
    (ElicitResult(action="decline"), {"action": "decline"}),
]


@pytest.mark.parametrize(("value", "wire"), FULL, ids=[type(v).__name__ for v, _ in FULL])
def test_a_type_is_camel_case_on_the_wire_and_drops_what_is_unset(value: Any, wire: dict[str, Any]) -> None:
    """R14."""
    assert value.to_json() == wire
    assert msgspec.json.decode(msgspec.json.encode(value)) == wire


HEARD = (
    Implementation,
    PromptArgument,
    ElicitResult,
    CreateMessageResult,
    ListRootsResult,
    NotificationFilter,
    ToolUseContent,
)


@pytest.mark.parametrize(("value", "wire"), [row for row in FULL if isinstance(row[0], HEARD)])
def test_what_a_server_hears_reads_back_from_the_wire(value: Any, wire: dict[str, Any]) -> None:
    assert msgspec.convert(wire, type(value)).to_json() == wire


def test_a_bare_definition_says_only_what_it_must() -> None:
    """R14, R25."""
    assert Prompt(name="p").to_json() == {"name": "p"}
    assert Icon(src="s").to_json() == {"src": "s"}


def test_a_tool_always_lists_an_input_schema() -> None:
    """protocol.md 1.5: inputSchema is required, never null."""
    assert Tool(name="t").to_json()["inputSchema"] == {"type": "object"}


def test_a_resources_name_defaults_to_its_uri() -> None:
    """R11."""
    assert Resource(uri="a:b").name == "a:b"
    assert ResourceTemplate(uri_template="a:{b}").name == "a:{b}"
    assert Resource(uri="a:b", name="n").name == "n"
    assert ResourceTemplate(uri_template="a:{b}", name="n").name == "n"


def test_a_structured_null_is_sent_and_an_unset_one_is_not() -> None:
    """protocol.md 1.5: any JSON value, null included."""
    assert CallToolResult(content=[], structured_content=None).to_json() == {"content": [], "structuredContent": None}
    assert "structuredContent" not in CallToolResult(content=[]).to_json()


def test_ok_and_error_make_results_from_text_or_blocks() -> None:
    """R47."""
    assert CallToolResult.ok("x").to_json() == {"content": [{"type": "text", "text": "x"}]}
    assert CallToolResult.ok().to_json() == {"content": []}
    assert CallToolResult.ok([TextContent(text="x")], structured=[1], meta={"m": 1}).to_json() == {
        "content": [{"type": "text", "text": "x"}],
        "structuredContent": [1],
        "_meta": {"m": 1},
    }
    assert CallToolResult.error("x").to_json() == {"content": [{"type": "text", "text": "x"}], "isError": True}
    assert "_meta" not in CallToolResult.error("x", meta={}).to_json()


def test_arguments_stay_raw_until_the_tool_reads_them() -> None:
    params = msgspec.json.decode(b'{"name":"t","arguments":{"a": 1}}', type=CallToolParams)
    assert isinstance(params.arguments, msgspec.Raw)
    assert bytes(params.arguments) == b'{"a": 1}'


def test_a_reference_is_told_by_its_type() -> None:
    """R36."""
    either = PromptReference | ResourceReference
    assert msgspec.convert({"type": "ref/prompt", "name": "p"}, either) == PromptReference(name="p")
    assert msgspec.convert({"type": "ref/resource", "uri": "a:{b}"}, either) == ResourceReference(uri="a:{b}")


def test_an_elicitation_is_accepted_or_not() -> None:
    assert ElicitResult(action="accept").accepted
    assert not ElicitResult(action="decline").accepted
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"action": "maybe"}, ElicitResult)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"type": "text", "text": "a"}, "a"),
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}], "ab"),
        ({"type": "image"}, ""),
        ([], ""),
    ],
)
def test_a_sampled_message_gives_its_text(content: Any, text: str) -> None:
    assert CreateMessageResult(role="assistant", content=content, model="m").text == text


def test_an_object_is_told_from_other_json() -> None:
    assert as_object({"a": 1}) == {"a": 1}
    assert [as_object(v) for v in ([], None, "x", 1)] == [None] * 4


def test_values_are_frozen() -> None:
    with pytest.raises(AttributeError):
        TextContent(text="x").text = "y"  # pyright: ignore[reportAttributeAccessIssue]


def test_every_public_type_is_exported() -> None:
    assert all(hasattr(types, name) for name in types.__all__)
