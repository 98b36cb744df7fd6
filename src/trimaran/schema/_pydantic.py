"""The one place that talks to pydantic, for types that are pydantic's own.

It is reached only with an annotation the user made with pydantic, so importing it here costs nothing that is not
already paid. Models are described by their own `json_schema` and built by their own validators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from trimaran.errors import DeclarationError
from trimaran.format.trees import null_verdict, rebuild

from ._patterns import portable_pattern
from .validate import Schema, path_text

if TYPE_CHECKING:
    from ._annotations import Mode


def describe(annotation: Any, mode: Mode) -> Schema:
    """The schema pydantic gives `annotation`, definitions under `$defs`, without the titles made from names."""
    try:
        body = _adapter(annotation).json_schema(
            mode="serialization" if mode == "output" else "validation",
            ref_template="#/$defs/{model}",
            schema_generator=_generator(is_form=mode == "form"),
        )
        return body if mode == "form" else _portable(body, mode, body)
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
def _generator(*, is_form: bool) -> Any:
    import pydantic.json_schema

    base: Any = pydantic.json_schema.GenerateJsonSchema

    class Untitled(base):
        """pydantic's generator, minus `title`s that repeat the name of a field."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    class Plain(Untitled):
        """The same without rules that values may break: times without a zone, decimals such as `1E+3`."""

        def datetime_schema(self, schema: Any) -> Any:
            aware = {"format": "date-time"} if schema.get("tz_constraint") == "aware" else {}
            return {"type": "string", **aware}

        def decimal_schema(self, schema: Any) -> Any:
            described: dict[str, Any] = base.decimal_schema(self, schema)
            numbers = [option for option in described.get("anyOf", []) if option.get("type") == "number"]
            return {"anyOf": [{"type": "string"}, *numbers]} if numbers else {"type": "string"}

        def set_schema(self, schema: Any) -> Any:
            return self._with_duplicates(base.set_schema(self, schema))

        def frozenset_schema(self, schema: Any) -> Any:
            return self._with_duplicates(base.frozenset_schema(self, schema))

        def _with_duplicates(self, described: dict[str, Any]) -> dict[str, Any]:
            if self.mode == "validation":  # a set takes duplicates in and gives none out
                described.pop("uniqueItems", None)
            return described

    return Untitled if is_form else Plain


# These keywords of JSON Schema hold for every value of pydantic's types. Others do not: e-mail addresses and URLs
# take letters outside ASCII, IPv6 addresses a zone, times no zone, durations fractions; patterns are Python's.
_FORMATS: Final = frozenset(("date-time", "date", "uuid", "ipv4", "hostname"))


def _portable(node: Any, mode: Mode, root: Schema) -> Any:
    """pydantic's schema without keywords that JSON Schema does not have, and without those that a value may break."""
    if not isinstance(node, dict):
        return node
    schema = rebuild(cast("Schema", node), lambda _, child: _portable(child, mode, root))
    if "default" in schema and schema["default"] is None and null_verdict(root, schema) is False:
        del schema["default"]
    # OpenAPI's word. Its mapping names definitions, which we may move.
    schema.pop("discriminator", None)
    if isinstance(pattern := schema.get("pattern"), str):
        # Whatever the schema cannot say, the model checks itself.
        schema["pattern"] = portable_pattern(pattern)
        if schema["pattern"] is None:
            del schema["pattern"]
    if isinstance(patterns := schema.get("patternProperties"), dict):
        portable = {portable_pattern(pattern): child for pattern, child in cast("Schema", patterns).items()}
        schema["patternProperties"] = {pattern: child for pattern, child in portable.items() if pattern is not None}
    if isinstance(name := schema.get("format"), str):
        name = "uuid" if name.startswith("uuid") else name
        schema["format"] = name
        if mode == "output" or name not in _FORMATS:
            del schema["format"]
    return schema


def _reason(error: Any) -> str:
    first = cast("dict[str, Any]", error.errors(include_url=False, include_context=False)[0])
    path = path_text(list(first["loc"]))
    return first["msg"] if path == "$" else f"{first['msg']} (at {path})"
