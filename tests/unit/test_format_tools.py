"""Tools in each provider's shape (R220, R222), and what a provider would refuse about them (P25)."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from trimaran import format
from trimaran.errors import ConfigError, DeclarationError
from trimaran.format import lint, to_anthropic, to_gemini, to_openai, to_openai_responses, to_provider
from trimaran.types import Tool

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
SEARCH = Tool(name="search", description="Find.", input_schema=SCHEMA)
BARE = Tool(name="now")
# What a provider refuses at the top, and cannot be said otherwise.
EITHER: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
}


@pytest.mark.parametrize(
    ("write", "search", "bare"),
    [
        (
            to_anthropic,
            {"name": "search", "description": "Find.", "input_schema": SCHEMA},
            {"name": "now", "description": "", "input_schema": {"type": "object"}},
        ),
        (
            to_openai,
            {"type": "function", "function": {"name": "search", "description": "Find.", "parameters": SCHEMA}},
            {
                "type": "function",
                "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
            },
        ),
        (
            to_openai_responses,
            {"type": "function", "name": "search", "description": "Find.", "parameters": SCHEMA, "strict": False},
            {
                "type": "function",
                "name": "now",
                "description": "",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            },
        ),
        (
            to_gemini,
            {"name": "search", "description": "Find.", "parametersJsonSchema": SCHEMA},
            {"name": "now", "description": "", "parametersJsonSchema": {"type": "object"}},
        ),
        (
            lambda tools: to_gemini(tools, openapi=True),
            {"name": "search", "description": "Find.", "parameters": SCHEMA},
            {"name": "now", "description": ""},
        ),
    ],
    ids=["anthropic", "openai", "openai-responses", "gemini", "gemini-openapi"],
)
def test_a_tool_is_declared_in_the_providers_shape(write: Any, search: Any, bare: Any) -> None:
    """R222: the description defaults to "", the schema to an object; one tool gives one shape, several a list."""
    assert write(SEARCH) == search
    assert write(BARE) == bare
    assert write([SEARCH, BARE]) == [search, bare]
    assert write(iter([SEARCH])) == [search]
    assert write([]) == []


def test_a_definition_may_be_the_mapping_on_the_wire_or_hold_raw_json() -> None:
    made = to_anthropic(SEARCH)
    assert to_anthropic({"name": "search", "description": "Find.", "inputSchema": SCHEMA}) == made
    assert to_anthropic({"name": "search", "description": "Find.", "input_schema": SCHEMA}) == made
    raw = msgspec.Raw(msgspec.json.encode(SCHEMA))
    assert to_anthropic(Tool(name="search", description="Find.", input_schema=raw)) == made


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ({}, "this one has none"),
        ({"name": 5}, "this one has none"),
        ({"name": "t", "inputSchema": 5}, "'t' is not an object"),
    ],
)
def test_what_is_no_definition_is_refused(tool: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(said)):
        to_anthropic(tool)


@pytest.mark.parametrize("name", format.FORMATS)
def test_a_format_is_chosen_by_name(name: str) -> None:
    """R220."""
    write = getattr(format, f"to_{name.replace('-', '_')}")
    assert to_provider([SEARCH, BARE], name) == write([SEARCH, BARE])


def test_an_unknown_format_or_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match="no format 'mistral'; the formats are anthropic, openai, openai-responses, gemini"
    ):
        to_provider([], "mistral")
    with pytest.raises(
        ConfigError, match="no schema profile 'mistral'; the known ones are anthropic, anthropic-strict"
    ):
        lint([], "mistral")


def test_a_schema_that_fits_is_passed_on_as_the_same_object() -> None:
    """R271: the server's schema untouched."""
    assert to_anthropic(SEARCH)["input_schema"] is SCHEMA
    assert to_gemini(SEARCH)["parametersJsonSchema"] is SCHEMA
    assert to_anthropic(Tool(name="t", input_schema=EITHER), fit=None)["input_schema"] is EITHER


def test_what_cannot_be_fitted_without_loss_stays_unless_loss_is_allowed() -> None:
    tool = Tool(name="t", input_schema=EITHER)
    assert to_anthropic(tool)["input_schema"] == EITHER
    loose = to_anthropic(tool, fit="loose")["input_schema"]
    assert "anyOf" not in loose
    assert loose["description"] == "at least one of: id | name"
    assert to_provider([tool], "anthropic", fit="loose") == [to_anthropic(tool, fit="loose")]


# --- strict ----------------------------------------------------------------------------------------------------------


def test_strict_is_asked_for_where_the_schema_allows_it() -> None:
    free = Tool(
        name="free",
        input_schema={"type": "object", "properties": {"any": {"type": "object", "additionalProperties": True}}},
    )
    for write in (to_anthropic, to_openai, to_openai_responses):
        held, loose = (made.get("function", made) for made in write([SEARCH, free], strict=True))
        assert held["strict"] is True
        assert not loose.get("strict")
    closed = {**SCHEMA, "additionalProperties": False}
    assert to_anthropic(SEARCH, strict=True)["input_schema"] == closed
    assert to_openai(SEARCH, strict=True)["function"]["parameters"] == closed


def test_strict_goes_as_far_as_the_schema_may_be_changed() -> None:
    short = Tool(name="short", input_schema={**SCHEMA, "properties": {"q": {"type": "string", "minLength": 2}}})
    assert "strict" not in to_anthropic(short, strict=True)
    loose = to_anthropic(short, strict=True, fit="loose")
    assert loose["strict"] and loose["input_schema"]["properties"]["q"]["description"] == "minLength: 2"
    assert "strict" not in to_anthropic(SEARCH, strict=True, fit=None)
    closed = Tool(name="closed", input_schema={**SCHEMA, "additionalProperties": False})
    assert to_anthropic(closed, strict=True, fit=None)["strict"] is True


# --- lint ------------------------------------------------------------------------------------------------------------


def said(findings: list[format.Finding]) -> list[tuple[str, str, str]]:
    return [(one.tool, one.path, one.rule) for one in findings]


def test_tools_that_fit_have_no_findings() -> None:
    for profile in ("anthropic", "openai", "gemini", "gemini-openapi"):
        assert lint([SEARCH], profile) == []


def test_a_finding_names_the_tool_the_place_and_the_remedy() -> None:
    """P25."""
    nested = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "format": "uri"}}}}
    (finding,) = lint([SEARCH, Tool(name="bad", input_schema=nested)], "gemini-openapi")
    assert (finding.tool, finding.path, finding.weight) == ("bad", "$.properties.a.items.format", "refused")
    assert str(finding) == (
        "tool 'bad', $.properties.a.items.format: the format 'uri' is refused; "
        "use one of date-time, double, enum, float, int32, int64, or none"
    )
    assert finding.profile == "gemini-openapi"


@pytest.mark.parametrize(
    ("name", "refusing"),
    [
        ("a:b", {"anthropic", "openai"}),
        ("a" * 65, {"anthropic", "openai", "gemini"}),
        ("1st", {"gemini"}),
        ("größe", {"anthropic", "openai", "gemini"}),
    ],
)
def test_a_name_a_provider_refuses_is_found(name: str, refusing: set[str]) -> None:
    """C28: 64 characters of a set that differs a little."""
    tool = Tool(name=name, input_schema=SCHEMA)
    found = {profile for profile in ("anthropic", "openai", "gemini") if lint(tool, profile)}
    assert found == refusing
    assert said(lint(tool, refusing.copy().pop())) == [(name, "name", "name")]


def test_what_is_too_many_or_too_long_is_found() -> None:
    many = [Tool(name=f"t{n}", input_schema=SCHEMA) for n in range(129)]
    assert said(lint(many, "openai")) == [("", "tools", "size")]
    assert str(lint(many, "openai")[0]) == "tools: 129 tools, and at most 128 are taken; offer fewer at a time"
    long = Tool(name="t", description="x" * 1025, input_schema=SCHEMA)
    assert said(lint(long, "openai")) == [("t", "description", "size")]
    assert lint(long, "anthropic") == []


def test_two_tools_of_one_name_are_found() -> None:
    assert said(lint([SEARCH, SEARCH, SEARCH], "anthropic")) == [("search", "name", "name")]


def test_lint_can_judge_what_would_be_sent() -> None:
    tool = Tool(name="t", input_schema={**EITHER, "properties": {"id": {"const": 1}, "name": {"const": "a"}}})
    assert {one.rule for one in lint(tool, "gemini")} == {"keyword"}
    assert lint(tool, "gemini", fit="exact") == []
    assert said(lint(tool, "anthropic", fit="exact")) == [("t", "$.anyOf", "root")]
    assert lint(tool, "anthropic", fit="loose") == []
