"""One tool's definition with more or less in it: what is left out first costs the model least.

    whole       as the server lists it
    plain       without schema noise: `$schema`, titles, nulls as defaults, and the like
    signature   the description begins with a signature, and the schema is an open object
    sentence    the same with the first sentence of the description
    search      not declared; a search finds it

Each shorter definition admits at least the arguments that the whole one admits, so no argument becomes unsayable. The host
checks arguments of a shortened tool against the whole schema (`host.py`).

Pure. Schemas come from strangers, so a walk is bounded in depth and size (`format/trees.py` knows how far).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias, cast, final

import msgspec
from msgspec.structs import replace

from trimaran.format.trees import Schema, as_schema, list_of, resolve, size_fault, strings_of
from trimaran.types import Json, Tool

Detail: TypeAlias = Literal["whole", "plain", "signature", "sentence", "search"]
DETAILS: Final[tuple[Detail, ...]] = ("whole", "plain", "signature", "sentence", "search")
"""From the most to the least."""

# Keywords that tell a model nothing that the rest does not.
_NOISE: Final = frozenset(("$schema", "$id", "$comment", "title", "examples", "deprecated", "readOnly", "writeOnly"))
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_VALUES: Final = frozenset(("enum", "const", "default", "required", "example"))
# The bounds that libraries write for any integer: they bound nothing.
_ANY_INTEGER: Final = (9007199254740991, -9007199254740991, 2147483647, -2147483648)
_DEEPEST: Final = 3  # objects within objects, in a signature
_MOST_CHOICES: Final = 40  # values of one enum in a signature; longer lists are cut
_MOST_PARTS: Final = 150  # arguments and types in one signature; real tools have some dozen
_LONGEST_SENTENCE: Final = 300  # characters; a first sentence that never ends is cut
_SENTENCE: Final = re.compile(r"(?<![ (][A-Za-z])(?<!e\.g)(?<!i\.e)(?<!etc)[.!?](?=\s|$)|[\u3002\uff01\uff1f]")


def with_detail(tool: Tool, detail: Detail, *, is_listed: bool = False, says_open: bool = False) -> Tool:
    """The same tool with this much in its definition. "search" is as "sentence".

    Args:
        is_listed: Keep the names and types of the arguments in the schema, and have no signature in the description. For
            providers that only take arguments that the schema lists.
        says_open: Say in the schema that it takes any argument. For providers that add an empty list of properties.
    """
    if detail == "whole":
        return tool
    schema = as_schema(_plain(tool.input_schema)) or {"type": "object"}
    description = tool.description or ""
    if detail == "plain":
        return replace(tool, input_schema=strip_noise(schema), description=description.strip())
    text = description.strip() if detail == "signature" else first_sentence(description)
    if is_listed:
        return replace(tool, input_schema=_skeleton(schema), description=text)
    open_schema: Schema = {"type": "object", "additionalProperties": True} if says_open else {"type": "object"}
    return replace(tool, input_schema=open_schema, description=f"{_Signature(schema).arguments(schema)} {text}".strip())


def signature_of(tool: Tool) -> str:
    """The tool and its arguments on one line: `read(path: string, mode?: "text"|"bytes")`."""
    schema = as_schema(_plain(tool.input_schema)) or {}
    return f"{tool.name}{_Signature(schema).arguments(schema)}"


def first_sentence(text: str) -> str:
    """The first sentence of a description, at most 300 characters of it."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    match = _SENTENCE.search(paragraph)
    sentence = paragraph[: match.end()] if match else paragraph
    if len(sentence) <= _LONGEST_SENTENCE:
        return sentence
    cut = sentence[: _LONGEST_SENTENCE - 4]
    return (cut.rpartition(" ")[0] or cut) + " ..."


def _plain(schema: Any) -> Json:
    return msgspec.json.decode(schema) if isinstance(schema, msgspec.Raw) else schema


# --- schema noise ----------------------------------------------------------------------------------------------------


def strip_noise(schema: Schema) -> Schema:
    """The schema without what tells a model nothing. It admits the same arguments, or more."""
    if size_fault(schema) is not None:
        return schema
    return cast("Schema", _stripped(schema))


def _stripped(node: Any) -> Any:
    if isinstance(node, list):
        return [_stripped(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    stripped: Schema = {}
    for key, value in cast("Schema", node).items():
        if _is_noise(key, value):
            continue
        if key in _NAMED and isinstance(value, dict):
            stripped[key] = {name: _stripped(child) for name, child in cast("Schema", value).items()}
        else:
            stripped[key] = value if key in _VALUES else _stripped(value)
    return _without_null(stripped)


def _is_noise(key: str, value: Any) -> bool:
    if key in _NOISE:
        return not isinstance(value, dict)
    if key == "additionalProperties":
        return isinstance(value, bool)
    if key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        return value in _ANY_INTEGER
    if key == "description":
        return value == ""
    return (key == "default" and value is None) or (key == "required" and value == [])


def _without_null(node: Schema) -> Schema:
    """`anyOf` of one schema and null, as libraries write an optional argument: the schema alone."""
    choices = list_of(node.get("anyOf"))
    others = [choice for choice in choices if choice != {"type": "null"}]
    if len(choices) != 2 or len(others) != 1 or not isinstance(others[0], dict):
        return node
    only = cast("Schema", others[0])
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    return node if rest.keys() & (only.keys() - {"description"}) else {**only, **rest}


def _skeleton(schema: Schema) -> Schema:
    """Names and types only."""
    if size_fault(schema) is not None:
        return {"type": "object"}
    return cast("Schema", _bones(strip_noise(schema)))


_BONES: Final = frozenset(
    ("type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "$ref", "$defs", "definitions")
)


def _bones(node: Any) -> Any:
    if isinstance(node, list):
        return [_bones(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    bones: Schema = {}
    for key, value in cast("Schema", node).items():
        if key in _NAMED and isinstance(value, dict):
            bones[key] = {name: _bones(child) for name, child in cast("Schema", value).items()}
        elif key in _BONES:
            bones[key] = value if key in _VALUES else _bones(value)
    return bones


# --- signatures ------------------------------------------------------------------------------------------------------


@final
class _Signature:
    """Writes the signature of one schema. The number of parts is bounded: branches within branches explode."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._parts = 0

    def arguments(self, schema: Schema, depth: int = 0, seen: tuple[str, ...] = ()) -> str:
        """The arguments of an object in brackets: round ones for a tool, braces within."""
        opening, closing = "()" if depth == 0 else "{}"
        properties = as_schema(schema.get("properties")) or {}
        required = set(strings_of(schema.get("required")))
        parts: list[str] = []
        for name, child in properties.items():
            if self._parts > _MOST_PARTS:
                parts.append("...")
                break
            parts.append(f"{name[:100]}{'' if name in required else '?'}: {self._type(child, depth + 1, seen)}")
        return f"{opening}{', '.join(parts)}{closing}"

    def _type(self, node: Any, depth: int, seen: tuple[str, ...]) -> str:
        """The type of an argument in a few words, as TypeScript would write it."""
        self._parts += 1
        schema = as_schema(node)
        if schema is None or self._parts > _MOST_PARTS or depth > 2 * _DEEPEST:
            return "any"
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = None if reference in seen else as_schema(resolve(self._root, reference))
            return (
                self._type(target, depth, (*seen, reference)) if target else reference.rpartition("/")[2][:50] or "any"
            )
        return "|".join(dict.fromkeys(self._types(schema, depth, seen))) or "any"

    def _types(self, schema: Schema, depth: int, seen: tuple[str, ...]) -> Iterator[str]:
        if "const" in schema:
            yield _value(schema["const"])
        elif choices := list_of(schema.get("enum")):
            yield from map(_value, choices[:_MOST_CHOICES])
            if len(choices) > _MOST_CHOICES:
                yield "..."
        elif branches := list_of(schema.get("anyOf")) or list_of(schema.get("oneOf")) or list_of(schema.get("allOf")):
            for branch in branches[:_MOST_CHOICES]:
                if branch != {"type": "null"}:
                    yield self._type(branch, depth + 1, seen)
        else:
            kinds = schema.get("type", "object" if "properties" in schema else "any")
            for kind in cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]:
                if kind == "array":
                    inner = self._type(schema.get("items", {}), depth + 1, seen)
                    yield f"({inner})[]" if "|" in inner and not inner.startswith("{") else f"{inner}[]"
                elif kind == "object" and schema.get("properties") and depth <= _DEEPEST:
                    yield self.arguments(schema, depth, seen)
                elif kind != "null":
                    yield str(kind)[:50]


def _value(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 100 else text[:96] + '..."'
