"""From the schemas of an OpenAPI document to JSON Schema 2020-12 that every client can read.

    nullable, type lists          anyOf with null: one type per schema; in results, which no provider reads, a list of types
    oneOf                         anyOf: documents often describe alternatives that overlap
    boolean exclusiveMinimum      the number
    $ref                          `#/$defs/NAME`; texts and numbers in place
    readOnly / writeOnly          left out of arguments / of results
    x-*, xml, discriminator,      left out: they say nothing to a client, or clients choke on them
    example, format int32, ...

A keyword whose value is no good (`minLength: "3"`) is left out, so the result is always valid. Schemas of results are
lax: an API's answers often break its document, and a client that checks them would lose every one. Members are
optional, texts and numbers have no bounds.

`definitions.py` collects the definitions. The schemas are shared between tools: nobody may change them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from trimaran.depth import MAX_DEPTH, TooDeep, check_depth
from trimaran.errors import DeclarationError
from trimaran.schema import Validator
from trimaran.schema._patterns import portable_pattern
from trimaran.schema.references import MAX_LEVELS

from .descriptions import describe
from .document import Document, DocumentFault, as_list, as_map, as_text
from .merging import merge_parts

Schema = dict[str, Any]

_LEVELS_AROUND: Final = 2  # of a part of a schema: the root, and its `properties` or `$defs`
_MAX_ENUM: Final = 200
_MAX_PATTERN: Final = 120  # characters; longer ones tell a model nothing, and the API checks them anyway
_TYPES: Final = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))
_SCALARS: Final = frozenset(("string", "integer", "number", "boolean"))
_PLAIN: Final[dict[str, Schema]] = {kind: {"type": kind} for kind in _SCALARS}
_TYPE_NAMES: Final[dict[Any, str]] = {str: "string", int: "integer", float: "number", bool: "boolean"}
# Of arguments: those that a model can keep to and a client may check.
_FORMATS: Final = {
    "date": "date",
    "date-time": "date-time",
    "email": "email",
    "uri": "uri",
    "url": "uri",
    "uuid": "uuid",
}
_BINARY: Final = ("binary", "byte", "base64")
_COMBINATIONS: Final = ("allOf", "anyOf", "oneOf")
# With one of these a schema has several types, or parts.
_COMPLEX: Final = frozenset((*_COMBINATIONS, "nullable", "x-nullable"))
_COMPOUND: Final = frozenset((*_COMBINATIONS, "properties", "items", "additionalProperties"))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


# keyword -> (the types it is about, whether its value is good)
_BOUNDS: Final[dict[str, tuple[tuple[str, ...], Callable[[Any], bool]]]] = {
    "minLength": (("string",), _is_count),
    "maxLength": (("string",), _is_count),
    "minimum": (("integer", "number"), _is_number),
    "maximum": (("integer", "number"), _is_number),
    "exclusiveMinimum": (("integer", "number"), _is_number),
    "exclusiveMaximum": (("integer", "number"), _is_number),
    "multipleOf": (("integer", "number"), lambda value: _is_number(value) and value > 0),
    "minItems": (("array",), _is_count),
    "maxItems": (("array",), _is_count),
    "uniqueItems": (("array",), lambda value: value is True),
    "minProperties": (("object",), _is_count),
    "maxProperties": (("object",), _is_count),
}


def is_binary(schema: Mapping[str, Any]) -> bool:
    """Whether a schema stands for bytes, which travel through a model as base64."""
    return schema.get("format") in _BINARY or "contentMediaType" in schema or schema.get("contentEncoding") == "base64"


class Part(NamedTuple):
    """A converted schema, the references in it, and its size in bytes."""

    schema: Schema
    references: tuple[str, ...]
    inevitable: tuple[str, ...]
    """Those of the references that every value has to follow: they are not inside an optional property."""
    size: int


class _Target(NamedTuple):
    """The target of a reference, and what is written in its place."""

    node: Mapping[str, Any]
    key: str
    is_inlined: bool
    link: Schema
    stub: Schema


class SchemaConverter:
    """Converts schemas of one document, either for arguments or for results."""

    def __init__(self, document: Document, *, is_output: bool) -> None:
        self._document = document
        self._is_output = is_output
        self._hidden = "writeOnly" if is_output else "readOnly"
        self._targets: dict[str, _Target] = {}
        self._keys: dict[str, str] = {}
        self._is_cut = False
        self._is_optional = False
        self._references: dict[str, bool] = {}

    def convert(self, node: Any, *, name: str = "", text: str = "", is_cut: bool = False) -> Part:
        """Convert one schema; `text` describes it, `is_cut` leaves references out of it.

        A description that only repeats `name`, the name of the member, is left out.

        Raises:
            DocumentFault: a reference leads nowhere, or clients would refuse the schema for its depth.
        """
        self._is_cut = is_cut
        self._references = {}
        schema = self._convert(node, name)
        if text:
            schema = {**(_alone(schema) if "$ref" in schema else schema), "description": text}
        inevitable = tuple(reference for reference, is_inevitable in self._references.items() if is_inevitable)
        encoded = msgspec.json.encode(schema)
        try:
            check_depth(encoded, inside=MAX_DEPTH - MAX_LEVELS + _LEVELS_AROUND)
        except TooDeep:
            raise DocumentFault("its schemas are nested too deeply") from None
        return Part(schema, tuple(self._references), inevitable, len(encoded))

    def node(self, reference: str) -> Mapping[str, Any]:
        """The target of a reference."""
        return self._target(reference).node

    def key(self, reference: str) -> str:
        """The name of a definition, unique in the document."""
        return self._target(reference).key

    def _free_key(self, reference: str) -> str:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", reference.rsplit("/", 1)[-1])[:60] or "schema"
        while self._keys.setdefault(name, reference) != reference:
            name += "_"
        return name

    def _convert(self, node: Any, name: str = "") -> Schema:
        if type(node) is not dict:
            return {"not": {}} if node is False else {}
        source: Mapping[str, Any] = cast("dict[str, Any]", node)
        if type(source.get("$ref")) is str:
            return self._reference(source, name)
        if "allOf" in source:
            source = merge_parts(self._document, source)
        stated = source.get("type")
        if type(stated) is str and stated in _TYPES and stated != "null" and source.keys().isdisjoint(_COMPLEX):
            if self._is_output and stated in _SCALARS:
                return _PLAIN[stated]
            schema = self._of_type(source, stated)
        else:
            schema = self._of_types(source)
        if not self._is_output:
            self._describe(schema, source, name)
        return schema

    def _of_types(self, source: Mapping[str, Any]) -> Schema:
        types, is_nullable = _types_of(source)
        if self._is_output and types not in ([], ["object"]) and "type" not in source:
            return {}  # `items` and `enum` say nothing about values of other types, and answers often have them
        variants = [self._of_type(source, kind) for kind in types]
        if is_nullable and self._is_output and len(variants) == 1 and source.keys().isdisjoint(_COMBINATIONS):
            return {**variants[0], "type": [types[0], "null"]}
        if is_nullable:
            variants.append({"type": "null"})
        if not types and not (is_nullable and (source.get("type") or set(map(type, _listed(source))) == {type(None)})):
            variants.insert(0, self._of_type(source, None))
        schema = variants[0] if len(variants) == 1 else {"anyOf": variants} if all(variants) else {}
        for keyword in _COMBINATIONS:
            if keyword in source:
                self._combine(schema, keyword, as_list(source[keyword]))
        return schema

    def _reference(self, source: Mapping[str, Any], name: str) -> Schema:
        reference: str = source["$ref"]
        target = self._target(reference)
        if target.is_inlined:
            return self._convert(target.node, name)
        if self._is_cut:
            return target.stub
        self._references[reference] = self._references.get(reference, False) or not self._is_optional
        text = "" if self._is_output else describe(as_text(source.get("description")), name)
        return {**_alone(target.link), "description": text} if text else target.link

    def _target(self, reference: str) -> _Target:
        target = self._targets.get(reference)
        if target is None:
            node = as_map(self._document.resolve({"$ref": reference}))
            types, is_nullable = _types_of(node)
            is_inlined = _COMPOUND.isdisjoint(node) and _SCALARS.issuperset(types)
            key = self._free_key(reference)
            link = {"$ref": f"#/$defs/{key}"}
            stub: Schema = {"type": types[0]} if len(types) == 1 and not is_nullable else {}
            if stub.get("type") == "array":
                stub["items"] = {}
            target = self._targets[reference] = _Target(node, key, is_inlined, link, stub)
        return target

    def _of_type(self, source: Mapping[str, Any], kind: str | None) -> Schema:
        schema: Schema = {} if kind is None else {"type": kind}
        if not self._is_output:
            self._bound(schema, source, kind)
        if kind == "array" or (kind is None and "items" in source):
            schema["items"] = self._convert(_items_of(source))
        if kind == "object" or (kind is None and "properties" in source):
            self._object(schema, source)
        return schema

    def _bound(self, schema: Schema, source: Mapping[str, Any], kind: str | None) -> None:
        """Copy what narrows a value: listed values, bounds, a pattern."""
        if "const" in source:
            schema["const"] = source["const"]
        if "enum" in source and kind != "boolean":  # a list of both says nothing, and some providers refuse it
            options = [option for option in as_list(source["enum"]) if kind is None or _has_type(option, kind)]
            if options and len(options) <= _MAX_ENUM:
                schema["enum"] = list(dict.fromkeys(options)) if all(isinstance(o, str) for o in options) else options
        for keyword, value in source.items():
            if keyword not in _BOUNDS:
                continue
            types, is_good = _BOUNDS[keyword]
            if value is True and keyword.startswith("exclusive"):
                value = source.get(keyword[len("exclusive") :].lower())
                schema.pop(keyword[len("exclusive") :].lower(), None)
            elif keyword in ("minimum", "maximum") and source.get(f"exclusive{keyword.title()}") is True:
                continue
            if kind in types and is_good(value):
                schema[keyword] = value
        if kind == "string":
            pattern = source.get("pattern")
            portable = _usable_pattern(pattern) if isinstance(pattern, str) else None
            if portable is not None:
                schema["pattern"] = portable
            if str(source.get("format")) in _FORMATS:
                schema["format"] = _FORMATS[source["format"]]

    def _object(self, schema: Schema, source: Mapping[str, Any]) -> None:
        properties: Schema = {}
        required = as_list(source.get("required"))
        is_optional = self._is_optional
        for name, member in as_map(source.get("properties")).items():
            if not self._is_hidden(as_map(member)):
                self._is_optional = is_optional or name not in required
                properties[str(name)] = self._convert(member, str(name))
        self._is_optional = is_optional
        schema.setdefault("type", "object")
        if properties:
            schema["properties"] = properties
        if self._is_output:
            return
        names = [name for name in required if isinstance(name, str) and name in properties]
        if names:
            schema["required"] = list(dict.fromkeys(names))
        extra = source.get("additionalProperties")
        if extra is False:
            schema["additionalProperties"] = False
        elif isinstance(extra, dict) and extra:
            schema["additionalProperties"] = self._convert(extra)

    def _is_hidden(self, member: Mapping[str, Any]) -> bool:
        """Whether a member is for the other direction only."""
        reference = member.get("$ref")
        if type(reference) is not str:
            return member.get(self._hidden) is True
        try:
            return self._target(reference).node.get(self._hidden) is True
        except DocumentFault:
            return False

    def _combine(self, schema: Schema, keyword: str, members: list[Any]) -> None:
        """Put the alternatives or parts of a schema into it; a single one takes its place."""
        variants: list[Schema] = []
        for member in members:
            variant = self._convert(member)
            if not variant and keyword != "allOf":
                return  # one alternative admits everything
            if variant and variant not in variants:
                variants.append(variant)
        if not variants:
            return
        if len(variants) == 1 and "$ref" in variants[0] and schema.keys() <= {"type"}:
            schema.clear()
            schema.update(variants[0])
            return
        if len(variants) == 1 and "$ref" not in variants[0] and not (schema.keys() & variants[0].keys()):
            schema.update(variants[0])
            return
        name = "allOf" if keyword == "allOf" else "anyOf"
        if name in schema:
            schema.setdefault("allOf", []).append({name: variants})
        else:
            schema[name] = variants

    def _describe(self, schema: Schema, source: Mapping[str, Any], name: str) -> None:
        text = describe(source["description"], name) if isinstance(source.get("description"), str) else ""
        if schema.get("type") == "string" and is_binary(source):
            text = f"{text} (bytes, as base64)".strip()
        if text:
            if "$ref" in schema:
                schema["anyOf"] = [{"$ref": schema.pop("$ref")}]
            schema["description"] = text
        default = source.get("default")
        if default is not None and _has_type(default, schema.get("type")):
            schema["default"] = default


def _alone(link: Schema) -> Schema:
    """A reference that other keywords may stand beside; some providers refuse them beside `$ref` itself."""
    return {"anyOf": [link]}


def _types_of(source: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The types a schema names, and whether it takes null."""
    stated = source.get("type")
    names = [stated] if isinstance(stated, str) else as_list(stated)
    is_nullable = source.get("nullable") is True or source.get("x-nullable") is True or "null" in names
    types = [name for name in names if isinstance(name, str) and name in _TYPES and name != "null"]
    if not types and not names:
        types = ["object"] if "properties" in source else ["array"] if "items" in source else []
    if not types and (options := _listed(source)):
        kinds = [_TYPE_NAMES.get(type(option)) for option in options]
        types = [kind for kind in kinds if kind is not None and not (kind == "integer" and "number" in kinds)]
        is_nullable = is_nullable or None in options
    return list(dict.fromkeys(types)), is_nullable


def _items_of(source: Mapping[str, Any]) -> Any:
    """The schema of each item. For a tuple it is one of its places' schemas: providers know no other arrays."""
    items = source.get("items")
    places = as_list(source.get("prefixItems"))
    if not places:
        return items
    return {"anyOf": [*places, *([] if items is False else [items])]}


def _listed(source: Mapping[str, Any]) -> list[Any]:
    """The values that a schema lists."""
    return [source["const"]] if "const" in source else as_list(source.get("enum"))


@functools.lru_cache(maxsize=1000)
def _usable_pattern(pattern: str) -> str | None:
    """The pattern, if all clients read it alike and it is not slow; else None."""
    portable = portable_pattern(pattern) if len(pattern) <= _MAX_PATTERN else None
    if portable is None:
        return None
    try:
        re.compile(portable)
        Validator({"type": "string", "pattern": portable})
    except (re.error, DeclarationError, OverflowError, RecursionError):
        return None
    return portable


def _has_type(value: Any, kind: Any) -> bool:
    checks: dict[str, bool] = {
        "string": isinstance(value, str),
        "integer": type(value) is int,
        "number": type(value) in (int, float),
        "boolean": type(value) is bool,
    }
    return checks.get(kind, False)
