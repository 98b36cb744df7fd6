"""The one place that talks to pydantic, for types that are pydantic's own.

It is reached only with an annotation the user made with pydantic, so importing it here costs nothing that is not
already paid. Models are described by their own `json_schema` and built by their own validators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from trimaran.errors import DeclarationError

from .validate import Schema, path_text

if TYPE_CHECKING:
    from ._annotations import Mode

__all__ = ["builder", "describe"]


def describe(annotation: Any, mode: Mode) -> Schema:
    """The schema pydantic gives `annotation`, definitions under `$defs`, without the titles made from names."""
    try:
        return _adapter(annotation).json_schema(
            mode="validation" if mode == "input" else "serialization",
            ref_template="#/$defs/{model}",
            schema_generator=_generator(),
        )
    except Exception as error:  # pydantic has a dozen exceptions for "cannot be described"
        raise DeclarationError(f"pydantic cannot describe {annotation!r}: {error}") from error


def builder(annotation: Any) -> Callable[[Any], Any]:
    """A function that turns a JSON-decoded value into `annotation`, or raises ValueError with pydantic's reason."""
    adapter = _adapter(annotation)
    import pydantic

    def build(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError:
            # A strict model takes a date from JSON text but not from a Python str, so text is the second try.
            try:
                return adapter.validate_json(msgspec.json.encode(value))
            except pydantic.ValidationError as error:
                raise ValueError(_reason(error)) from None

    return build


def _adapter(annotation: Any) -> Any:
    import pydantic

    try:
        return pydantic.TypeAdapter(annotation)
    except Exception as error:
        raise DeclarationError(f"pydantic cannot handle {annotation!r}: {error}") from error


@functools.cache
def _generator() -> Any:
    import pydantic.json_schema

    class Untitled(pydantic.json_schema.GenerateJsonSchema):
        """pydantic's generator, minus `title`s that repeat the name of a field."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return Untitled


def _reason(error: Any) -> str:
    first = cast("dict[str, Any]", error.errors(include_url=False, include_context=False)[0])
    path = path_text(list(first["loc"]))
    return first["msg"] if path == "$" else f"{first['msg']} (at {path})"
