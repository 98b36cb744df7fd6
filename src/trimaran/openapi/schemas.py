"""From the schemas of an OpenAPI document to JSON Schema 2020-12 that every client can read.

    nullable, type lists          anyOf with null: one type per schema
    oneOf                         anyOf: documents often describe alternatives that overlap
    boolean exclusiveMinimum      the number
    $ref                          `#/$defs/NAME`, at the root; texts and numbers in place
    readOnly / writeOnly          left out of arguments / of results
    x-*, xml, discriminator,      left out: they say nothing to a client, or clients choke on them
    example, format int32, ...

A keyword whose value is no good (`minLength: "3"`) is left out, so what is written is always valid. A schema that would
be larger than its limit is cut at a lower level of references, where it says no more than the type.

Schemas of results are lax: an API's answers often break its document, and a client that checks them would lose every
one. Members are optional, texts and numbers have no bounds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from trimaran.errors import DeclarationError
from trimaran.schema._patterns import portable_pattern
from trimaran.schema.workload import check_patterns

from .document import Document, DocumentFault, as_list, as_map, as_text

__all__ = ["SchemaWriter", "is_binary", "shorten"]

Schema = dict[str, Any]

_LEVELS: Final = (6, 4, 3, 2, 1, 0)  # of references, tried until the schema is small enough
_MAX_DESCRIPTION: Final = 400  # characters; a model reads the whole list of tools with each message
_MAX_ENUM: Final = 200
_MAX_PATTERN: Final = 500
_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_SCALARS: Final = ("string", "integer", "number", "boolean")
_FORMATS: Final = ("date", "date-time", "uuid")  # of arguments: those that a model can keep to and a client may check
_BINARY: Final = ("binary", "byte", "base64")


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


def shorten(text: str, most: int = _MAX_DESCRIPTION) -> str:
    """A text in one line, cut at a word."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 4].rsplit(" ", 1)[0] + " ..."


class SchemaWriter:
    """Writes the schemas of one document."""

    def __init__(self, document: Document, *, most_bytes: int) -> None:
        self._document = document
        self._most_bytes = most_bytes

    def write(self, node: Any, *, is_output: bool = False) -> Schema:
        """One schema with its `$defs`, as small as it has to be."""
        schema: Schema = {}
        for levels in _LEVELS:
            schema = _Writing(self._document, levels, is_output=is_output).whole(node)
            if len(msgspec.json.encode(schema)) <= self._most_bytes:
                break
        return schema


class _Writing:
    """One schema on its way: which definitions it needs, and how deep references may still go."""

    def __init__(self, document: Document, levels: int, *, is_output: bool) -> None:
        self._document = document
        self._levels = levels
        self._is_output = is_output
        self._keys: dict[str, str] = {}
        self._waiting: deque[tuple[str, Any, int]] = deque()

    def whole(self, node: Any) -> Schema:
        schema = self._convert(self._document.resolve(node), 0)  # clients want the type at the root, not a reference
        definitions: dict[str, Any] = {}
        while self._waiting:
            key, target, level = self._waiting.popleft()
            definitions[key] = self._convert(target, level)
        if definitions:
            schema = {**schema, "$defs": definitions}
        return schema

    def _convert(self, node: Any, level: int) -> Schema:
        if node is False:
            return {"not": {}}
        source = as_map(node)
        if isinstance(source.get("$ref"), str):
            return self._reference(source, level)
        types, is_nullable = _types_of(source)
        variants = [self._of_type(source, kind, level) for kind in types]
        if is_nullable:
            variants.append({"type": "null"})
        if not types and not (is_nullable and source.get("type")):
            variants.insert(0, self._of_type(source, None, level))
        schema = variants[0] if len(variants) == 1 else {"anyOf": variants}
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in source:
                self._combine(schema, keyword, as_list(source[keyword]), level)
        self._describe(schema, source)
        return schema

    def _reference(self, source: Mapping[str, Any], level: int) -> Schema:
        reference: str = source["$ref"]
        target = as_map(self._document.resolve(source))
        types, _ = _types_of(target)
        if not _is_compound(target) and all(kind in _SCALARS for kind in types):
            return self._convert(target, level)
        if reference not in self._keys:
            if level >= self._levels:
                return {"type": types[0]} if len(types) == 1 else {}
            key = re.sub(r"[^A-Za-z0-9_.-]", "_", reference.rsplit("/", 1)[-1])[:60] or "schema"
            while key in self._keys.values():
                key += "_"
            self._keys[reference] = key
            self._waiting.append((key, target, level + 1))
        return {"$ref": f"#/$defs/{self._keys[reference]}"}

    def _of_type(self, source: Mapping[str, Any], kind: str | None, level: int) -> Schema:
        schema: Schema = {} if kind is None else {"type": kind}
        if "const" in source:
            schema["const"] = source["const"]
        options = [option for option in as_list(source.get("enum")) if kind is None or _has_type(option, kind)]
        if options and len(options) <= _MAX_ENUM and not self._is_output:
            schema["enum"] = list(dict.fromkeys(options)) if all(isinstance(o, str) for o in options) else options
        if not self._is_output:
            self._bound(schema, source, kind)
        if kind == "array" or (kind is None and "items" in source):
            schema["items"] = self._convert(source.get("items"), level)
        if kind == "object" or (kind is None and "properties" in source):
            self._object(schema, source, level)
        return schema

    def _bound(self, schema: Schema, source: Mapping[str, Any], kind: str | None) -> None:
        for keyword in source.keys() & _BOUNDS.keys():
            types, is_good = _BOUNDS[keyword]
            value = source[keyword]
            if value is True and keyword.startswith("exclusive"):
                value = source.get(keyword[len("exclusive") :].lower())
            if kind in types and is_good(value):
                schema[keyword] = value
        for keyword in ("minimum", "maximum"):
            if source.get(f"exclusive{keyword.title()}") is True:
                schema.pop(keyword, None)
        if kind == "string":
            pattern = _usable_pattern(source.get("pattern"))
            if pattern is not None:
                schema["pattern"] = pattern
            if source.get("format") in _FORMATS:
                schema["format"] = source["format"]

    def _object(self, schema: Schema, source: Mapping[str, Any], level: int) -> None:
        properties: Schema = {}
        for name, member in as_map(source.get("properties")).items():
            flags = self._flags(member)
            if flags.get("writeOnly" if self._is_output else "readOnly") is not True:
                properties[str(name)] = self._convert(member, level)
        schema.setdefault("type", "object")
        if properties:
            schema["properties"] = properties
        if self._is_output:
            return
        required = [name for name in as_list(source.get("required")) if isinstance(name, str) and name in properties]
        if required:
            schema["required"] = list(dict.fromkeys(required))
        extra = source.get("additionalProperties")
        if extra is False:
            schema["additionalProperties"] = False
        elif isinstance(extra, dict) and extra:
            schema["additionalProperties"] = self._convert(extra, level)

    def _flags(self, member: Any) -> Mapping[str, Any]:
        try:
            return as_map(self._document.resolve(member))
        except DocumentFault:
            return {}

    def _combine(self, schema: Schema, keyword: str, members: list[Any], level: int) -> None:
        """Put the alternatives or parts of `source` into the schema; a single one takes its place."""
        variants = [self._convert(member, level) for member in members]
        variants = [variant for variant in variants if variant]
        if not variants:
            return
        if len(variants) == 1 and not (schema.keys() & variants[0].keys()):
            schema.update(variants[0])
            return
        name = "allOf" if keyword == "allOf" else "anyOf"
        if name in schema:
            schema.setdefault("allOf", []).append({name: variants})
        else:
            schema[name] = variants

    def _describe(self, schema: Schema, source: Mapping[str, Any]) -> None:
        if self._is_output:
            return
        text = shorten(as_text(source.get("description")))
        if is_binary(source) and schema.get("type") == "string":
            text = f"{text} (bytes, as base64)".strip()
        if text and "$ref" not in schema:
            schema["description"] = text
        default = source.get("default")
        if isinstance(default, (str, int, float, bool)) and _has_type(default, schema.get("type")):
            schema["default"] = default


def _types_of(source: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The types a schema names, and whether it takes null."""
    stated = source.get("type")
    names = [stated] if isinstance(stated, str) else as_list(stated)
    is_nullable = source.get("nullable") is True or source.get("x-nullable") is True or "null" in names
    types = [name for name in names if name in _TYPES and name != "null"]
    if not types and not names:
        types = ["object"] if "properties" in source else ["array"] if "items" in source else []
    return list(dict.fromkeys(types)), is_nullable


def _usable_pattern(pattern: Any) -> str | None:
    """The pattern, if all clients read it alike and it is not slow; else None."""
    portable = portable_pattern(pattern) if isinstance(pattern, str) and len(pattern) <= _MAX_PATTERN else None
    if portable is None:
        return None
    try:
        re.compile(portable)
        check_patterns({"pattern": portable})
    except (re.error, DeclarationError, OverflowError, RecursionError):
        return None
    return portable


def _is_compound(source: Mapping[str, Any]) -> bool:
    return any(key in source for key in ("properties", "items", "allOf", "anyOf", "oneOf", "additionalProperties"))


def _has_type(value: Any, kind: Any) -> bool:
    checks: dict[str, bool] = {
        "string": isinstance(value, str),
        "integer": type(value) is int,
        "number": type(value) in (int, float),
        "boolean": type(value) is bool,
    }
    return checks.get(kind, False)
