"""What each older revision does not know is taken out before it is told (protocol.md 1.8)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.protocol.older_revisions import revise, revise_capabilities, revise_definition, revise_form
from trimaran.protocol.versions import LEGACY, MODERN, SUPPORTED, V2024_11, V2025_03, V2025_06, V2025_11
from trimaran.types import CallToolResult, TextContent

FIELDS = [
    ("tool", "annotations", V2025_03),
    ("tool", "title", V2025_06),
    ("tool", "outputSchema", V2025_06),
    ("tool", "_meta", V2025_06),
    ("tool", "icons", V2025_11),
    ("resource", "title", V2025_06),
    ("resource", "_meta", V2025_06),
    ("resource", "icons", V2025_11),
    ("resource", "annotations", V2024_11),
    ("prompt", "title", V2025_06),
    ("prompt", "_meta", V2025_06),
    ("prompt", "icons", V2025_11),
]


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize(("kind", "field", "since"), FIELDS)
def test_a_field_of_a_definition_exists_from_its_revision_on(kind: str, field: str, since: str, version: str) -> None:
    value = {"type": "object"} if field == "outputSchema" else {"x": 1}
    listed = revise_definition(kind, {"name": "a", "inputSchema": {}, field: value}, version)
    assert (field in listed) == (version >= since)
    assert listed["name"] == "a"


@pytest.mark.parametrize("version", SUPPORTED)
def test_execution_belongs_to_one_revision_only(version: str) -> None:
    """protocol.md 1.8: added by 2025-11-25, removed by 2026-07-28."""
    listed = revise_definition("tool", {"name": "a", "execution": {"taskSupport": "optional"}}, version)
    assert ("execution" in listed) == (version == V2025_11)


@pytest.mark.parametrize("version", SUPPORTED)
def test_a_prompt_keeps_its_annotations_and_its_arguments_their_titles_in_time(version: str) -> None:
    """R26: no revision names annotations of prompts, and none forbids them."""
    listed = revise_definition(
        "prompt",
        {"name": "p", "annotations": {"priority": 1}, "arguments": [{"name": "a", "title": "A", "required": True}]},
        version,
    )
    assert listed["annotations"] == {"priority": 1}
    assert ("title" in listed["arguments"][0]) == (version >= V2025_06)
    assert listed["arguments"][0]["required"] is True


@pytest.mark.parametrize("version", SUPPORTED)
def test_a_resources_last_modified_is_an_annotation_since_2025_06(version: str) -> None:
    listed = revise_definition("resource", {"uri": "a:b", "annotations": {"priority": 1, "lastModified": "x"}}, version)
    assert listed["annotations"]["priority"] == 1
    assert ("lastModified" in listed["annotations"]) == (version >= V2025_06)


@pytest.mark.parametrize(
    "schema", [{"type": "integer"}, {"type": "array"}, {}, {"anyOf": []}, {"type": ["object", "null"]}]
)
def test_an_output_that_is_no_object_is_wrapped_for_legacy_clients(schema: Any) -> None:
    """Spec, 2025-06-18 and 2025-11-25: an output schema has an object at its root."""
    listed = {v: revise_definition("tool", {"name": "a", "outputSchema": schema}, v) for v in SUPPORTED}
    assert listed[MODERN]["outputSchema"] == schema
    for version in (V2025_11, V2025_06):
        envelope = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
        assert listed[version]["outputSchema"] == {"title": "aOutput", **envelope}
    assert "outputSchema" not in listed[V2025_03]


def test_an_object_output_is_listed_as_it_is() -> None:
    schema = {"type": "object", "properties": {}}
    assert all(
        revise_definition("tool", {"name": "a", "outputSchema": schema}, v)["outputSchema"] == schema
        for v in (MODERN, V2025_11, V2025_06)
    )


def test_properties_that_say_true_or_false_are_objects_for_legacy_clients() -> None:
    """Ours: the TypeScript SDK 1.x refuses the whole list of tools for one of them."""
    schema = {"type": "object", "properties": {"a": True, "b": False, "c": {}}}
    tool = {"name": "a", "inputSchema": schema, "outputSchema": schema}
    spelled = {**schema, "properties": {"a": {}, "b": {"not": {}}, "c": {}}}
    for version in SUPPORTED:
        listed = revise_definition("tool", tool, version)
        assert listed["inputSchema"] == (schema if version == MODERN else spelled)
        assert listed.get("outputSchema", listed["inputSchema"]) == listed["inputSchema"]


@pytest.mark.parametrize("version", SUPPORTED)
def test_capabilities_are_spelled_as_the_revision_knows_them(version: str) -> None:
    everything = {
        k: {}
        for k in ("tools", "resources", "prompts", "logging", "experimental", "completions", "tasks", "extensions")
    }
    known = set(revise_capabilities(everything, version))
    assert {"tools", "resources", "prompts", "logging", "experimental"} <= known
    assert ("completions" in known) == (version >= V2025_03)
    assert ("extensions" in known) == (version >= V2025_11)
    assert ("tasks" in known) == (version == V2025_11)


@pytest.mark.parametrize("version", LEGACY)
def test_a_call_result_loses_what_is_modern(version: str) -> None:
    result = revise(
        "tools/call", {"content": [], "resultType": "complete", "ttlMs": 1, "cacheScope": "public"}, version
    )
    assert result == {"content": []}


@pytest.mark.parametrize("version", LEGACY)
def test_structured_content_exists_since_2025_06(version: str) -> None:
    """What is no object is in its envelope by then: see test_envelope.py."""
    whole = revise("tools/call", CallToolResult.ok("x", structured={"a": 1}), version)
    assert whole.get("structuredContent") == ({"a": 1} if version >= V2025_06 else None)


@pytest.mark.parametrize("version", LEGACY)
def test_a_block_a_revision_lacks_becomes_text(version: str) -> None:
    """protocol.md 1.8: audio from 2025-03-26, resource_link from 2025-06-18."""
    audio = {"type": "audio", "data": "", "mimeType": "audio/wav"}
    link = {"type": "resource_link", "uri": "a:b", "name": "the link"}
    bare = {"type": "resource_link", "uri": "a:b"}
    content = revise("tools/call", {"content": [audio, link, bare]}, version)["content"]
    assert content[0]["type"] == ("audio" if version >= V2025_03 else "text")
    assert [c["type"] for c in content[1:]] == ["resource_link" if version >= V2025_06 else "text"] * 2
    if version == V2024_11:
        assert "audio/wav" in content[0]["text"]
        assert content[1]["text"] == "the link: a:b"
        assert content[2]["text"] == "a:b: a:b"


@pytest.mark.parametrize("version", LEGACY)
def test_a_blocks_meta_and_notes_follow_the_revision(version: str) -> None:
    block = {
        "type": "resource",
        "resource": {"uri": "a:b", "text": "x", "_meta": {}, "annotations": {}},
        "annotations": {"audience": ["user"], "lastModified": "x"},
        "_meta": {},
    }
    found = revise("tools/call", {"content": [block]}, version)["content"][0]
    recent = version >= V2025_06
    assert ("_meta" in found, "lastModified" in found["annotations"], "_meta" in found["resource"]) == (recent,) * 3
    assert found["annotations"]["audience"] == ["user"]
    assert "annotations" not in found["resource"]


@pytest.mark.parametrize("version", LEGACY)
def test_prompt_messages_and_resource_contents_are_revised_too(version: str) -> None:
    link = {"type": "resource_link", "uri": "a:b", "name": "n"}
    prompt = revise("prompts/get", {"messages": [{"role": "user", "content": link}]}, version)
    assert prompt["messages"][0]["content"]["type"] == ("resource_link" if version >= V2025_06 else "text")
    read = revise(
        "resources/read", {"contents": [{"uri": "a:b", "text": "x", "_meta": {}, "annotations": {}}]}, version
    )
    assert ("_meta" in read["contents"][0]) == (version >= V2025_06)
    assert "annotations" not in read["contents"][0]


@pytest.mark.parametrize("version", LEGACY)
def test_a_server_introduces_itself_in_the_revisions_words(version: str) -> None:
    info = {"name": "s", "version": "1", "title": "S", "description": "d", "websiteUrl": "w", "icons": []}
    found = revise("initialize", {"serverInfo": info}, version)["serverInfo"]
    assert {"name", "version"} <= set(found)
    assert ("title" in found) == (version >= V2025_06)
    assert {"description", "websiteUrl", "icons"}.issubset(found) == (version >= V2025_11)


@pytest.mark.parametrize("version", LEGACY)
def test_progress_has_a_message_since_2025_03(version: str) -> None:
    params = revise("notifications/progress", {"progressToken": 1, "progress": 1, "total": 2, "message": "m"}, version)
    assert ("message" in params) == (version >= V2025_03)
    assert params["total"] == 2


def test_a_method_without_a_rule_passes_and_structs_become_plain() -> None:
    found = revise("notifications/message", {"level": "info", "data": TextContent(text="x")}, V2024_11)
    assert found == {"level": "info", "data": {"type": "text", "text": "x"}}


def test_the_users_hook_encodes_what_json_does_not_know() -> None:
    assert revise("m", {"x": {1j}}, V2025_06, lambda v: str(v))["x"]


def test_a_form_for_2025_11_is_left_alone() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
    assert revise_form(schema, V2025_11) is schema


def test_a_form_for_2025_06_knows_plain_enums_and_boolean_defaults_only() -> None:
    """protocol.md 1.3."""
    schema = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "default": "x", "minLength": 1},
            "sure": {"type": "boolean", "default": True},
            "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l"}]},
            "tags": {"type": "array", "title": "Tags", "items": {"enum": ["a"]}},
            "more": {"type": "array", "items": {"enum": ["a"]}},
        },
    }
    form = revise_form(schema, V2025_06)
    assert form["required"] == ["name"]
    fields = form["properties"]
    assert fields["name"] == {"type": "string", "minLength": 1}
    assert fields["sure"]["default"] is True
    assert fields["size"] == {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "l"]}
    assert fields["tags"]["type"] == fields["more"]["type"] == "string"
    assert fields["tags"]["title"] == "Tags"
    assert schema["properties"]["name"]["default"] == "x", "the original form is not altered"
