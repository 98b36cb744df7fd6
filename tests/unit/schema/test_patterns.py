"""Patterns for JavaScript. Whether it compiles them is asked of Node in tests/interop/test_shapes.py."""

from __future__ import annotations

from typing import Annotated

import annotated_types
import msgspec
import pydantic
import pytest
import typing_extensions
from tests.support.shapes import PATTERNS

from trimaran.errors import DeclarationError
from trimaran.schema import schema_of
from trimaran.schema._patterns import portable_pattern

Name = typing_extensions.TypeAliasType("Name", Annotated[str, msgspec.Meta(pattern="^a", max_length=9)])


@pytest.mark.parametrize(("pattern", "portable"), PATTERNS.items())
def test_a_pattern_is_written_the_way_javascript_reads_it(pattern: str, portable: str | None) -> None:
    assert portable_pattern(pattern) == portable


@pytest.mark.parametrize("note", [msgspec.Meta(pattern=r"(?i)a"), pydantic.Field(pattern=r"(?i)a")])
def test_a_pattern_that_javascript_cannot_say_is_refused(note: object) -> None:
    with pytest.raises(DeclarationError, match="has no meaning in JavaScript"):
        schema_of(Annotated[str, note])


def test_a_model_keeps_such_a_pattern_to_itself() -> None:
    """It checks the value itself, so the schema need not say it."""
    model = pydantic.create_model(
        "M", a=(str, pydantic.Field(pattern=r"(?i)^a$")), b=(str, pydantic.Field(pattern=r"^(?P<x>b)$"))
    )
    properties = schema_of(model)["properties"]
    assert properties == {"a": {"type": "string"}, "b": {"type": "string", "pattern": "^(b)$"}}


def test_two_patterns_hold_both() -> None:
    assert schema_of(Annotated[Name, annotated_types.MaxLen(3), msgspec.Meta(pattern="b$")]) == {
        "type": "string",
        "pattern": "^a",
        "maxLength": 3,
        "allOf": [{"type": "string", "pattern": "b$"}],
    }
