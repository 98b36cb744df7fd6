"""Schemas of an API become JSON Schema 2020-12 that is valid whatever the document says."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran.openapi.definitions import SchemaWriter
from trimaran.openapi.document import Document, DocumentFault

COMPONENTS: dict[str, Any] = {
    "Name": {"type": "string", "maxLength": 20},
    "Node": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}},
    "Pet": {
        "type": "object",
        "required": ["name", "id"],
        "properties": {
            "name": {"$ref": "#/components/schemas/Name"},
            "id": {"type": "integer", "readOnly": True},
            "secret": {"type": "string", "writeOnly": True},
        },
    },
}
DOCUMENT = Document({"openapi": "3.0.0", "components": {"schemas": COMPONENTS}})
META = jsonschema_rs.validator_for({"$ref": "https://json-schema.org/draft/2020-12/schema"})


def write(schema: Any, *, is_output: bool = False, most: int = 10_000) -> dict[str, Any]:
    return SchemaWriter(DOCUMENT, most_bytes=most).write(schema, is_output=is_output)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"type": "string", "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"enum": [True, False]}, {"type": "boolean"}),
        ({"type": "null"}, {"type": "null"}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
        ),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, {"type": "array", "items": {}}),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}),
        ({"enum": [None]}, {"type": "null"}),  # some providers refuse null in a list
        ({"enum": ["a", None]}, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        ({"enum": [1, 2.5]}, {"type": "number", "enum": [1, 2.5]}),
        ({"enum": [1, "a"]}, {"anyOf": [{"type": "integer", "enum": [1]}, {"type": "string", "enum": ["a"]}]}),
        ({"properties": {"first_name": {"type": "string", "description": "The first name."}}}, {"type": "object", "properties": {"first_name": {"type": "string"}}}),
        ({"type": ["integer", "string"], "maxLength": 3}, {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]}),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 1}),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": False}, {"type": "number", "minimum": 1}),
        ({"type": "string", "minLength": "3", "maxLength": -1, "pattern": "("}, {"type": "string"}),
        ({"type": "string", "pattern": r"(?P<y>\d)\Z"}, {"type": "string", "pattern": r"(\d)$"}),
        ({"type": "string", "format": "int32", "x-go": 1, "example": "a", "xml": {}}, {"type": "string"}),
        ({"type": "string", "format": "byte"}, {"type": "string", "description": "(bytes, as base64)"}),
        ({"type": "integer", "default": "many"}, {"type": "integer"}),
        ({"type": "integer", "default": 3}, {"type": "integer", "default": 3}),
        ({"type": "string", "enum": ["a", "a", None]}, {"type": "string", "enum": ["a"]}),
        ({"type": "boolean", "enum": [True, False]}, {"type": "boolean"}),
        ({"anyOf": [{"type": "string"}, {}]}, {}),
        ({"anyOf": [{"type": "string"}, {"type": "string"}]}, {"type": "string"}),
        ({"type": "string", "pattern": "[^/:|\\000-\\037]+"}, {"type": "string"}),
        ({"type": "file"}, {}),
        ({"items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"allOf": [{"type": "string"}]}, {"type": "string"}),
        ({"allOf": [{"type": "string"}], "description": "d"}, {"type": "string", "description": "d"}),
        ({"type": "object", "required": ["x", "gone"], "properties": {"x": True}}, {"type": "object", "properties": {"x": {}}, "required": ["x"]}),
        ({"$ref": "#/components/schemas/Name"}, {"type": "string", "maxLength": 20}),
        (False, {"not": {}}),
        (None, {}),
    ],
)  # fmt: skip
def test_what_becomes_of_a_schema(source: Any, expected: dict[str, Any]) -> None:
    assert write(source) == expected


def test_read_only_is_for_results_and_write_only_for_arguments() -> None:
    pet = {"$ref": "#/components/schemas/Pet"}
    assert list(write(pet)["properties"]) == ["name", "secret"]
    assert write(pet)["required"] == ["name"]
    assert list(write(pet, is_output=True)["properties"]) == ["name", "id"]


def test_schemas_of_results_are_lax() -> None:
    schema = write({"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "enum": ["x"], "maxLength": 1}}}, is_output=True)  # fmt: skip
    assert schema == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert write({"items": {"type": "string"}}, is_output=True) == {}, "Slack's document has it for texts"
    assert write({"type": "string", "nullable": True}, is_output=True) == {"type": ["string", "null"]}


@pytest.mark.parametrize(
    "source",
    [
        {"$ref": "#/components/schemas/Pet", "description": "The pet."},
        {"allOf": [{"$ref": "#/components/schemas/Pet"}], "description": "The pet."},
        {"type": "object", "oneOf": [{"$ref": "#/components/schemas/Pet"}], "description": "The pet."},
    ],
)
def test_nothing_stands_beside_a_reference(source: Any) -> None:
    """Gemini refuses a request whose schemas have keywords beside `$ref`."""
    schema = write({"type": "array", "items": source})
    assert schema["items"] == {"anyOf": [{"$ref": "#/$defs/Pet"}], "description": "The pet."}


def test_a_reference_to_nothing_is_the_operations_fault() -> None:
    with pytest.raises(DocumentFault):
        write({"type": "object", "properties": {"x": {"$ref": "#/components/schemas/Nobody"}}})


KEYWORDS = ["type", "nullable", "enum", "items", "properties", "required", "allOf", "oneOf", "minimum", "exclusiveMaximum", "maxLength", "pattern", "default", "format", "additionalProperties", "uniqueItems", "description", "const", "multipleOf", "minItems", "$ref"]  # fmt: skip
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["string", "object", "array", "null", "integer", "x", "("]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(ANY, st.booleans())
def test_whatever_a_document_says_the_result_is_valid(source: Any, is_output: bool) -> None:
    try:
        schema = write(source, is_output=is_output)
    except DocumentFault:
        return
    assert META.is_valid(schema), schema
