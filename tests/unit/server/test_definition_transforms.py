"""Definitions of tools: chosen by name, tag, annotation or function, and changed."""

from __future__ import annotations

import pytest
from msgspec import Raw

from trimaran.errors import DeclarationError
from trimaran.server.definition_transforms import ToolFilter, change_definition, matches, plain_schema
from trimaran.types import Tool, ToolAnnotations


def tool(name: str = "search", *tags: str, **fields: object) -> Tool:
    return Tool(name=name, meta={"fastmcp": {"tags": [*tags], "x": 1}}, **fields)  # pyright: ignore[reportArgumentType]


def test_a_choice_is_a_name_a_pattern_a_tag_or_a_function() -> None:
    chosen = tool("search", "billing")
    assert [matches(choice, chosen) for choice in ("search", "s*", "tag:billing", "tag:b*")] == [True] * 4
    assert [matches(choice, chosen) for choice in ("Search", "s", "tag:b", "billing")] == [False] * 4
    assert matches(lambda t: t.name == "search", chosen)


def test_a_filter_knows_which_names_it_mentions() -> None:
    assert ToolFilter(["a", "b*", "tag:c"], ["d"]).names == ["a", "d"]
    assert ToolFilter(lambda tool: True).names == []


def test_only_a_true_hint_says_that_a_tool_changes_nothing() -> None:
    chosen = ToolFilter(read_only=True)
    assert chosen.admits(tool(annotations={"readOnlyHint": True}))
    assert chosen.admits(tool(annotations=ToolAnnotations(read_only_hint=True)))
    assert not any(chosen.admits(tool(annotations=hints)) for hints in (None, {}, {"readOnlyHint": 1}))


@pytest.mark.parametrize("include", ["search", [""], [1]])
def test_a_filter_of_another_kind_is_refused(include: object) -> None:
    with pytest.raises(DeclarationError, match="include must be a list of names, patterns and tags"):
        ToolFilter(include)  # pyright: ignore[reportArgumentType]


def test_a_definition_is_copied_and_changed() -> None:
    before = tool("search", "old", title="S", annotations={"title": "S", "openWorldHint": True})
    changed, plan = change_definition(
        before, {"name": "find", "tags": ["b", "a"], "annotations": {"open_world_hint": False}}, is_exact=True
    )
    assert (changed.name, changed.title, changed.tags) == ("find", "S", {"a", "b"})
    assert changed.meta == {"fastmcp": {"x": 1, "tags": ["a", "b"]}}
    assert changed.annotations == {"title": "S", "openWorldHint": False}
    assert (before.name, before.tags, plan) == ("search", {"old"}, None)


def test_a_schema_that_came_as_text_is_read() -> None:
    text = Raw(b'{"type": "object", "properties": {"q": {}}}')
    assert plain_schema(text) == {"type": "object", "properties": {"q": {}}}
    changed, plan = change_definition(tool(input_schema=text), {"arguments": {"q": {"name": "w"}}}, is_exact=True)
    assert plan is not None
    assert changed.input_schema == {"type": "object", "properties": {"w": {}}}
