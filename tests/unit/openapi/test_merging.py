"""Parts of `allOf` become one object where they are plain objects."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.openapi.document import Document
from trimaran.openapi.merging import merge_parts

TEXT = {"type": "string"}
BASE = {"type": "object", "properties": {"id": TEXT}, "required": ["id"]}
REF = {"$ref": "#/components/schemas/Base"}
CHOICE = {"oneOf": [BASE, TEXT]}
SELF: dict[str, Any] = {"allOf": [{"$ref": "#/components/schemas/Self"}, BASE]}
DOCUMENT = Document({"openapi": "3.0.0", "components": {"schemas": {"Base": BASE, "Choice": CHOICE, "Self": SELF}}})


def test_objects_are_merged() -> None:
    source = {"description": "d", "allOf": [REF, {"properties": {"name": TEXT}}, {"required": ["name"]}]}
    assert merge_parts(DOCUMENT, source) == {
        "description": "d",
        "type": "object",
        "properties": {"id": TEXT, "name": TEXT},
        "required": ["id", "name"],
    }


def test_members_that_are_required_beside_a_single_part_stay_required() -> None:
    """DigitalOcean's projects: the list was lost, and models were not told."""
    source = {"allOf": [{"$ref": "#/components/schemas/Base"}], "required": ["name"]}
    assert merge_parts(DOCUMENT, source)["required"] == ["name", "id"]


def test_objects_within_objects_are_merged() -> None:
    inner = {"allOf": [REF, {"description": "a remark"}]}
    merged = merge_parts(DOCUMENT, {"allOf": [inner, {"properties": {"name": TEXT}}]})
    assert list(merged["properties"]) == ["id", "name"]


def test_a_member_of_two_parts_must_fit_both() -> None:
    merged = merge_parts(DOCUMENT, {"allOf": [REF, {"properties": {"id": {"enum": ["x"]}}}]})
    assert merged["properties"]["id"] == {"allOf": [TEXT, {"enum": ["x"]}]}


def test_a_single_part_stays_so_that_it_is_shared() -> None:
    source = {"allOf": [REF, {"description": "d"}, {"example": 1}]}
    assert merge_parts(DOCUMENT, source) == {"allOf": [REF], "description": "d"}


@pytest.mark.parametrize("part", [TEXT, {"$ref": "#/components/schemas/Choice"}, {"$ref": "#/components/schemas/Self"}])
def test_anything_else_is_left_alone(part: Any) -> None:
    source = {"allOf": [REF, part]}
    assert merge_parts(DOCUMENT, source) == source
