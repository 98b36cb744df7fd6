"""Between Python types and JSON: the schema of an annotation, values into it, values out of it.

    schema_of(annotation)     -> JSON Schema
    decoder_of(annotation)    -> function from a JSON-decoded value to the annotated type
    to_jsonable(value)        -> builtins ready for JSON

Any annotation that has a meaning in JSON is understood: typing's, dataclasses, TypedDicts, NamedTuples, enums,
msgspec Structs, attrs classes and pydantic models, in any nesting. Neither attrs nor pydantic is ever imported for a
user who did not. A type with no meaning in JSON is refused with a DeclarationError when it is declared.
"""

from __future__ import annotations

import collections.abc
import re
from collections import deque
from typing import Any, Final, Literal, cast, final

import msgspec

from trimaran.types import Json

from ._annotations import is_pydantic
from ._decode import Natives
from .type_schemas import Describer, is_textual
from .validate import Schema, Validator

_ATOMS: Final = frozenset((str, int, bool, type(None)))


@final
class ConversionError(ValueError):
    """A value that does not fit its annotation: where, and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{reason} (at {path})")
        self.path = path
        self.reason = reason


def schema_of(annotation: object, *, mode: Literal["input", "output", "form"] = "input") -> Schema:
    """The JSON Schema of `annotation`: of what is accepted for it, of what `to_jsonable` makes of it, or of a form for it.

    Raises:
        DeclarationError: the annotation means nothing in JSON.
    """
    describer = Describer(mode)
    return describer.close(describer.describe(annotation))


@final
class Decoder:
    """Converts JSON-decoded values into one annotated type."""

    __slots__ = ("_decode", "_validator", "schema")

    def __init__(self, annotation: object) -> None:
        self.schema: Schema = schema_of(annotation)
        self._decode = Natives().decoder(annotation)
        self._validator: Validator | None = None

    def __call__(self, value: Any) -> Any:
        try:
            return self._decode(value)
        except msgspec.ValidationError:
            return self._explain(value)

    def _explain(self, value: Any) -> Any:
        if self._validator is None:
            self._validator = Validator(self.schema)
        violation = self._validator.first(value)
        if violation is not None:
            raise ConversionError(violation.path, violation.reason) from None
        try:
            return self._decode(integral(value))
        except msgspec.ValidationError as error:
            raise ConversionError(*split_reason(error)) from None


def decoder_of(annotation: object) -> Decoder:
    """A function that turns a JSON-decoded value into `annotation`; it raises `ConversionError`."""
    return Decoder(annotation)


def to_jsonable(value: object) -> Json:
    """`value` as builtins ready for JSON; a TypeError names the type that has no JSON form."""
    if type(value) in _ATOMS:
        return value
    # A pydantic dataclass has serializers of its own, which msgspec would pass by.
    if is_pydantic(type(value)):
        return enc_hook(value)
    return msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook)


def enc_hook(obj: object) -> object:
    """msgspec's `enc_hook` for everything it does not encode itself: pydantic's types, paths, addresses, containers."""
    cls = cast("type[Any]", type(obj))
    value = cast("Any", obj)
    if hasattr(cls, "__pydantic_serializer__") and hasattr(cls, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if is_pydantic(cls):
        import pydantic

        return pydantic.TypeAdapter(cls).dump_python(value, mode="json", by_alias=True)
    if is_textual(cls):
        return value.pattern if cls is re.Pattern else str(obj)
    for plain in (str, int, float):
        if isinstance(obj, plain):
            return plain(obj)
    if isinstance(obj, collections.abc.Mapping):
        return dict(cast("collections.abc.Mapping[Any, Any]", obj))
    if isinstance(obj, deque | collections.abc.Set | collections.abc.Sequence):
        return list(cast("collections.abc.Collection[Any]", obj))
    raise TypeError(
        f"{cls.__module__}.{cls.__qualname__} has no JSON form: use a dataclass, dict, msgspec.Struct or pydantic "
        "model instead"
    )


def integral(value: Any) -> Any:
    """`value` with every float that is a whole number as an int: JSON Schema holds 1.0 for an integer, msgspec not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: integral(inner) for key, inner in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [integral(inner) for inner in cast("list[Any]", value)]
    return value


def split_reason(error: msgspec.ValidationError) -> tuple[str, str]:
    """msgspec's message as (path, reason); a path our hook gave in the reason continues msgspec's."""
    reason, _, path = str(error).partition(" - at `")
    if path.startswith("key` in `"):
        path, reason = path.removeprefix("key` in `"), f"{reason} as a key"
    head, at, inner = reason.rpartition(" (at $")
    if at and inner.endswith(")"):
        return (path.rstrip("`") or "$") + inner[:-1], head
    return (path.rstrip("`") or "$"), reason
