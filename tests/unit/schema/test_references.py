"""References in a schema: each leads somewhere within it, or the schema is refused."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.errors import DeclarationError
from trimaran.schema.references import check_references, lost_reference

A = {"type": "integer"}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"$ref": "#"},
        {"$ref": "#/$defs/A", "$defs": {"A": A}},
        {"$ref": "#/definitions/A", "definitions": {"A": True}},
        {"$ref": "#/$defs/a~1b~0c", "$defs": {"a/b~c": A}},
        {"$ref": "#/$defs/Gr%C3%B6%C3%9Fe", "$defs": {"Größe": A}},
        {"anyOf": [A, {"$ref": "#/anyOf/0"}]},
        {"$ref": "#a", "$defs": {"A": {"$anchor": "a"}}},
        {"$dynamicRef": "#a", "$defs": {"A": {"$dynamicAnchor": "a"}}},
        {"$recursiveRef": "#"},
        {"$ref": "http://json-schema.org/draft-07/schema#"},
        {"$id": "https://x.example/a", "$ref": "b", "$defs": {"B": {"$id": "b"}}},
        {"$id": "https://x.example/a", "$ref": "https://x.example/a#/$defs/B", "$defs": {"B": A}},
        {"items": {"$id": "https://x.example/b", "$ref": "#/$defs/B", "$defs": {"B": A}}},
        {"default": {"$ref": "#/gone"}, "enum": [{"$ref": "#/gone"}]},
        {"properties": {"$ref": {"type": "string"}}},
    ],
    ids=repr,
)
def test_a_reference_that_leads_somewhere_is_taken(schema: Any) -> None:
    assert lost_reference(schema) is None


@pytest.mark.parametrize(
    ("schema", "place", "ref"),
    [
        ({"$ref": "#/$defs/A"}, "$", "#/$defs/A"),
        ({"properties": {"a": {"$ref": "#/$defs/A", "$defs": {"A": A}}}}, "$.properties.a", "#/$defs/A"),
        ({"items": {"$ref": "#/$defs/A/type"}, "$defs": {"A": A}}, "$.items", "#/$defs/A/type"),
        ({"anyOf": [{"$ref": "#/anyOf/1"}]}, "$.anyOf[0]", "#/anyOf/1"),
        ({"$dynamicRef": "#a"}, "$", "#a"),
        ({"$ref": "https://x.example/a"}, "$", "https://x.example/a"),
        ({"$ref": "other.json#/$defs/A"}, "$", "other.json#/$defs/A"),
        ({"items": {"$id": "b", "$ref": "#/$defs/B"}, "$defs": {"B": A}}, "$.items", "#/$defs/B"),
        ({"not": {"$ref": "#/$defs/A/items/x"}, "$defs": {"A": {"items": A}}}, "$.not", "#/$defs/A/items/x"),
    ],
    ids=repr,
)
def test_a_reference_that_leads_nowhere_is_found(schema: Any, place: str, ref: str) -> None:
    assert lost_reference(schema) == (place, ref)
    with pytest.raises(DeclarationError, match="the schema of mine refers to"):
        check_references(schema, "the schema of mine")


def test_a_schema_that_is_too_deep_for_clients_is_refused() -> None:
    schema: Any = {}
    for _ in range(60):
        schema = {"items": {"anyOf": [schema]}}
    with pytest.raises(DeclarationError, match="the schema of mine nests more than 100 levels"):
        check_references(schema, "the schema of mine")
