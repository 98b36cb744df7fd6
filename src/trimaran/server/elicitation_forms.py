"""The form behind `ctx.elicit`: from a model or a JSON Schema to the flat object clients can draw, and back.

The protocol allows a form one level of strings, numbers, booleans and choices; anything deeper is refused when the form
is made, with the field's name, because no client could show it. Forms made from types are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast, final

from trimaran.errors import DeclarationError, ProtocolError
from trimaran.schema import ConversionError, Validator, decoder_of, schema_of
from trimaran.types import as_object

_PRIMITIVES: Final = frozenset({"string", "number", "integer", "boolean"})
_forms: dict[Any, ElicitationForm] = {}


@final
class ElicitationForm:
    """A compiled form: the schema that is sent, and the way from an answer to what the handler gets."""

    __slots__ = ("_decode", "_unwrap", "_validator", "schema")

    def __init__(self, schema: dict[str, Any], decode: Callable[[Any], Any] | None, unwrap: bool) -> None:
        self.schema: dict[str, Any] = schema
        self._decode = decode
        self._unwrap = unwrap
        self._validator = Validator(schema)

    def read(self, content: Any) -> Any:
        """The accepted answer as the handler wants it; -32602 if it does not fit the form."""
        filled = {k: f["default"] for k, f in self.schema["properties"].items() if "default" in f}
        answered = as_object({} if content is None else content)
        if answered is None:
            raise ProtocolError.invalid_params("the elicited answer is not an object")
        filled.update(answered)
        fault = self._validator.first(filled)
        if fault is not None:
            raise ProtocolError.invalid_params(
                f"the elicited answer does not fit the form: {fault.reason} (at {fault.path})"
            )
        value: Any = filled["value"] if self._unwrap else filled
        if self._decode is None:
            return value
        try:
            return self._decode(value)
        except ConversionError as error:
            raise ProtocolError.invalid_params(f"the elicited answer does not fit the form: {error}") from None


def form_of(spec: Any) -> ElicitationForm:
    """The form of a JSON Schema mapping, a model class, or a single primitive type."""
    if isinstance(spec, Mapping):
        return ElicitationForm(_flat(dict(spec), "the schema"), None, unwrap=False)  # pyright: ignore[reportUnknownArgumentType]
    try:
        known = _forms.get(spec)
    except TypeError:  # an unhashable annotation
        return _form_of_type(spec)
    if known is None:
        known = _forms[spec] = _form_of_type(spec)
    return known


def _form_of_type(spec: Any) -> ElicitationForm:
    schema = _inlined(schema_of(spec, mode="form"))
    name = getattr(spec, "__name__", str(spec))
    if schema.get("type") == "object":
        return ElicitationForm(_flat(schema, name), decoder_of(spec), unwrap=False)
    whole = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    return ElicitationForm(_flat(whole, name), decoder_of(spec), unwrap=True)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Local references replaced by what they point to; forms are flat, so one definition is used about once."""
    definitions: dict[str, Any] = schema.get("$defs", {})

    def walk(node: Any, depth: int) -> Any:
        if isinstance(node, list):
            return [walk(n, depth) for n in node]  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(node, dict):
            return node
        reference: Any = node.get("$ref")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if isinstance(reference, str) and depth < 8:
            target: Any = definitions.get(reference.rpartition("/")[2], {})
            return walk({**target, **{k: v for k, v in node.items() if k != "$ref"}}, depth + 1)  # pyright: ignore[reportUnknownVariableType]
        return {k: walk(v, depth) for k, v in node.items() if k != "$defs"}  # pyright: ignore[reportUnknownVariableType]

    return walk(schema, 0)


def _flat(schema: dict[str, Any], name: str) -> dict[str, Any]:
    if schema.get("type") != "object" or not isinstance(schema.get("properties", {}), dict):
        raise DeclarationError(
            f'a form is an object schema, {{"type": "object", "properties": {{...}}}}; {name} has type {schema.get("type")!r}'
        )
    properties = {k: _field(k, v, name) for k, v in schema.get("properties", {}).items()}
    return {**schema, "properties": properties}


def _field(key: str, field: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(cast("object", field), dict) or not isinstance(field.get("type", ""), str):
        raise DeclarationError(f'{name}: field {key!r} cannot be drawn in a form; give it one type, like "string"')
    plain: dict[str, Any] = _without_null(field)
    if "type" not in plain and "enum" in plain:
        plain = {"type": "string", **plain}
    if "type" not in plain and isinstance(plain.get("const"), str):
        plain = {"type": "string", "enum": [plain.pop("const")], **plain}
    kind = plain.get("type")
    if kind in _PRIMITIVES or (kind == "array" and _is_choice(plain)):
        return plain
    raise DeclarationError(
        f"{name}: field {key!r} cannot be drawn in a form; use a string, number, integer, boolean, an Enum or Literal of "
        "strings, or a list of such choices"
    )


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """`str | None` means: may be left empty."""
    options = field.get("anyOf")
    if options:
        rest = [o for o in options if o.get("type") != "null"]
        if len(rest) == 1:
            outer = {k: v for k, v in field.items() if k != "anyOf" and not (k == "default" and v is None)}
            return {**rest[0], **outer}
    return dict(field)


def _is_choice(field: dict[str, Any]) -> bool:
    items: dict[str, Any] = field.get("items", {})
    return "enum" in items or "anyOf" in items or "oneOf" in items
