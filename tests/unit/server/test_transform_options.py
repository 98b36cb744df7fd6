"""Options of transforms as data: what configuration may say, and what it is told when it is wrong."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from trimaran.errors import ConfigError, DeclarationError
from trimaran.server.transform_options import is_tool_name, read_transforms
from trimaran.server.transforms import Transform

TOML = """
[tools.search]
name = "find"
description = "Find things."
tags = ["read"]
annotations = { read_only_hint = true }

[tools.search.arguments.q]
name = "query"
examples = ["cats"]

[tools.search.arguments.api_key]
value = "abc"

[tools."delete_*"]
hidden = true
"""


def test_tables_are_the_options_of_code() -> None:
    transforms = read_transforms(tomllib.loads(TOML)["tools"], "mcp.toml: tools")
    assert list(transforms) == ["search", "delete_*"]
    assert transforms["search"].get("arguments") == {
        "q": {"name": "query", "examples": ["cats"]},
        "api_key": {"value": "abc"},
    }
    for choice, options in transforms.items():
        Transform(choice, **options)


WRONG: list[tuple[Any, str]] = [
    ("yes", "mcp.toml: tools.search: a table of options is expected, not a text"),
    ({"nam": "x"}, "mcp.toml: tools.search.nam: this key is not known; did you mean 'name'? known are name, title,"),
    ({"wrap": "x"}, "mcp.toml: tools.search.wrap: this goes into code"),
    ({"result": "x"}, "mcp.toml: tools.search.result: this goes into code"),
    ({"name": ""}, "mcp.toml: tools.search.name: a text that is not empty is expected, not an empty text"),
    ({"description": 3}, "mcp.toml: tools.search.description: a text that is not empty is expected, not 3"),
    ({"hidden": "yes"}, "mcp.toml: tools.search.hidden: true or false is expected, not a text"),
    ({"tags": "a"}, "mcp.toml: tools.search.tags: a list of texts is expected"),
    ({"tags": [1]}, "mcp.toml: tools.search.tags: a list of texts is expected"),
    ({"annotations": 1}, "mcp.toml: tools.search.annotations: a table is expected"),
    ({"output_schema": {}}, "mcp.toml: tools.search.output_schema: this goes into code"),
    ({"arguments": ["q"]}, "mcp.toml: tools.search.arguments: a table by argument is expected"),
    ({"arguments": {"q": "query"}}, """tools.search.arguments.q: a table is expected, {"name": "query"}, not a text"""),
    ({"arguments": {"q": None}}, "not nothing"),
    ({"arguments": {"q": [1]}}, "not a list"),
    ({"arguments": {1}}, "not a set"),
    ({"arguments": {"q": {"nme": "x"}}}, "tools.search.arguments.q.nme: this key is not known; did you mean 'name'?"),
    ({"arguments": {"q": {"name": 1}}}, "tools.search.arguments.q.name: a text that is not empty is expected, not 1"),
    ({"arguments": {"q": {"hidden": 1}}}, "tools.search.arguments.q.hidden: true or false is expected, not 1"),
    ({"arguments": {"q": {"examples": "x"}}}, "tools.search.arguments.q.examples: a list is expected, not a text"),
    ({"arguments": {"q": {"value": 1, "name": "x"}}}, "tools.search.arguments.q.name: nobody sees this argument"),
    ({"arguments": {"q": {"hidden": True, "default": 1}}}, "q.default: nobody can set this argument; write value"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[words[:70] for _, words in WRONG])
def test_a_wrong_table_is_told_with_the_path_of_its_key(options: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_transforms({"search": options}, "mcp.toml: tools")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nam": "x"}, "unknown option 'nam'; did you mean 'name'? a transform takes annotations, arguments"),
        ({"hidden": 1}, "transform of 'search': hidden: true or false is expected, not 1"),
        ({"wrap": "x"}, "transform of 'search': wrap: a function is expected, not a text"),
        ({"output_schema": 1}, "transform of 'search': output_schema: a JSON Schema is expected, not 1"),
        ({"arguments": {"q": {"nme": 1}}}, "transform of 'search': arguments.q.nme: this key is not known"),
    ],
)
def test_the_same_in_code_is_a_declaration_error(options: Any, words: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Transform("search", **options)
    assert words in str(caught.value)


def test_a_name_is_for_one_tool() -> None:
    assert [is_tool_name(c) for c in ("search", "s*", "s?", "[ab]", "tag:x", bool)] == [True, *[False] * 5]
    with pytest.raises(ConfigError, match=r"tools.s\*.name: a name is for one tool"):
        read_transforms({"s*": {"name": "x"}}, "mcp.toml: tools")
    with pytest.raises(DeclarationError, match="name= is for one tool"):
        Transform("s*", name="x")
