"""Definitions with less in them: valid, callable, shorter; and bounded for schemas of strangers."""

from __future__ import annotations

from typing import Any, cast

import jsonschema_rs
import pytest

from trimaran.format import to_provider
from trimaran.host.context.detail import DETAILS, Detail, first_sentence, signature_of, strip_noise, with_detail
from trimaran.types import Tool

from .context_corpus import SCHEMA

MAIL = Tool(
    name=SCHEMA["name"], description=SCHEMA["description"], input_schema=cast("dict[str, Any]", SCHEMA["inputSchema"])
)


def test_a_signature_says_names_types_and_what_is_optional() -> None:
    assert signature_of(MAIL) == (
        "search_messages(query: string, maxResults?: integer, folder?: string, "
        'sortOrder?: "newest"|"oldest"|"relevance", labels?: string[])'
    )


@pytest.mark.parametrize(
    ("schema", "signature"),
    [
        ({}, "t()"),
        ({"properties": {"a": True}}, "t(a?: any)"),
        ({"properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}, "t(a: string)"),
        ({"properties": {"a": {"const": 3}}}, "t(a?: 3)"),
        ({"properties": {"a": {"type": "array"}}}, "t(a?: any[])"),
        ({"properties": {"a": {"type": "array", "items": {"enum": [1, 2]}}}}, "t(a?: (1|2)[])"),
        ({"properties": {"a": {"properties": {"b": {"type": "number"}}}}}, "t(a?: {b?: number})"),
        ({"properties": {"a": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "boolean"}}}, "t(a?: boolean)"),
        ({"properties": {"a": {"$ref": "#/$defs/Gone"}}}, "t(a?: Gone)"),
        ({"properties": 5, "required": "a"}, "t()"),
    ],
)
def test_a_signature_reads_every_form_of_a_schema(schema: dict[str, Any], signature: str) -> None:
    assert signature_of(Tool(name="t", input_schema=schema)) == signature


def test_a_schema_that_contains_itself_or_explodes_has_a_short_signature() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    wide: dict[str, Any] = {"type": "string"}
    for _ in range(8):
        wide = {"anyOf": [wide] * 30}
    many = {"properties": {f"argument{number}": {"type": "string"} for number in range(10_000)}}
    for schema in (tree, {"properties": {"a": wide}}, many):
        assert len(signature_of(Tool(name="t", input_schema=schema))) < 6000


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Read a file. It must exist.", "Read a file."),
        ("Read a file\n\nArgs:\n  path: where", "Read a file"),
        ("Formats, e.g. JSON, are read. Others not.", "Formats, e.g. JSON, are read."),
        ("读取文件。必须存在。", "读取文件。"),
        ("", ""),
        ("x" * 500, "x" * 296 + " ..."),
    ],
)
def test_the_first_sentence_of_a_description(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_noise_goes_and_what_a_model_needs_stays() -> None:
    schema: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Args",
        "type": "object",
        "properties": {
            "title": {"type": "string", "title": "Title"},
            "page": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "description": "which page"},
            "count": {"type": "integer", "minimum": 1, "maximum": 9007199254740991},
        },
        "additionalProperties": False,
        "required": [],
    }
    assert strip_noise(schema) == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "page": {"type": "integer", "description": "which page"},
            "count": {"type": "integer", "minimum": 1},
        },
    }


@pytest.mark.parametrize("format", ["anthropic", "openai", "openai-responses", "gemini"])
@pytest.mark.parametrize("detail", DETAILS[:-1])
def test_a_shortened_definition_is_a_valid_schema_that_admits_the_same_arguments(detail: Detail, format: str) -> None:
    shape: Any = to_provider([with_detail(MAIL, detail, is_listed=format == "gemini")], format, fit="auto")[0]
    definition = shape.get("function", shape)
    schema = next(
        definition[key] for key in ("input_schema", "parameters", "parametersJsonSchema") if key in definition
    )
    jsonschema_rs.meta.validate(schema)
    for arguments in ({"query": "sails"}, {"query": "x", "maxResults": 3, "sortOrder": "oldest", "labels": []}):
        assert jsonschema_rs.is_valid(schema, arguments)


def test_less_detail_is_shorter() -> None:
    sizes = [len(str(to_provider([with_detail(MAIL, detail)], "anthropic")[0])) for detail in DETAILS[:-1]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)
