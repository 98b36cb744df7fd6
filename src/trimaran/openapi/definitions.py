"""Whole schemas with their `$defs`, within a limit of bytes.

A definition is converted once and shared by every tool that refers to it, however many those are. Definitions are added
level by level, in the order in which references lead to them, as long as the schema stays within its limit. The last
level that does not fit is left out: the references to it, in the level above, become no more than a type. Some documents
have no references, but everything in its place, over and over: there the lowest levels of nesting are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from trimaran.errors import DeclarationError
from trimaran.schema import Validator

from .document import Document, DocumentFault, as_map
from .schemas import Part, Schema, SchemaConverter

_OUTPUT_SHARE: Final = 6
"""Schemas of results have a sixth of the bytes: a result shows itself, arguments have to be guessed."""
_MAX_DEPTH: Final = 8  # levels of nesting that are tried for a schema without references; few have more
_STRUCTURE: Final = frozenset(("properties", "required", "additionalProperties", "anyOf", "allOf", "minProperties"))
_SURELY_COMPILES: Final = 40_000  # bytes; a schema needs more to have as many parts as a validator refuses
_PUNCTUATION: Final = 4  # bytes around the name of a definition


class ArgumentSource(NamedTuple):
    """One argument as the document has it: its schema, and a text that describes it better than the schema does."""

    schema: Any
    text: str
    name: str


class SchemaWriter:
    """Writes the schemas of one document. They share their parts: nobody may change them."""

    def __init__(self, document: Document, *, most_bytes: int) -> None:
        self._inputs = _Definitions(SchemaConverter(document, is_output=False), most_bytes)
        self._outputs = _Definitions(SchemaConverter(document, is_output=True), most_bytes // _OUTPUT_SHARE)

    def write(self, node: Any, *, is_output: bool = False) -> Schema:
        """One schema; the type stands at the root, not a reference.

        Raises:
            DocumentFault: a reference leads nowhere.
        """
        definitions = self._outputs if is_output else self._inputs
        reference = as_map(node).get("$ref")
        if isinstance(reference, str):
            return definitions.write_target(reference)
        return definitions.write(lambda is_cut: definitions.converter.convert(node, is_cut=is_cut))

    def write_arguments(self, arguments: Mapping[str, ArgumentSource], required: Iterable[str]) -> Schema:
        """The schema of a tool's arguments.

        Raises:
            DocumentFault: a reference leads nowhere.
        """
        names = list(required)

        def build(is_cut: bool) -> Part:
            parts = {name: self._inputs.part(argument, is_cut=is_cut) for name, argument in arguments.items()}
            schema: Schema = {"type": "object", "properties": {name: part.schema for name, part in parts.items()}}
            if names:
                schema["required"] = names
            references = dict.fromkeys(reference for part in parts.values() for reference in part.references)
            inevitable = [reference for name in names for reference in parts[name].inevitable]
            return Part(schema, tuple(references), tuple(inevitable), len(msgspec.json.encode(schema)))

        return self._inputs.write(build)


class _Definitions:
    """The definitions of one direction, and the schemas made of them."""

    def __init__(self, converter: SchemaConverter, most_bytes: int) -> None:
        self.converter = converter
        self._most_bytes = most_bytes
        self._parts: dict[tuple[str, bool], Part] = {}
        self._schemas: dict[str, Schema] = {}
        self._arguments: dict[tuple[int, bool], tuple[ArgumentSource, Part]] = {}

    def part(self, argument: ArgumentSource, *, is_cut: bool) -> Part:
        """One argument. Parameters are shared by many operations."""
        key = (id(argument.schema), is_cut)
        known, part = self._arguments.get(key, (None, None))
        if part is None or known is None or known.schema is not argument.schema or known[1:] != argument[1:]:
            part = self.converter.convert(argument.schema, name=argument.name, text=argument.text, is_cut=is_cut)
            self._arguments[key] = argument, part
        return part

    def write_target(self, reference: str) -> Schema:
        if reference not in self._schemas:
            self._schemas[reference] = self.write(lambda is_cut: self._definition(reference, is_cut=is_cut))
        return self._schemas[reference]

    def write(self, build: Callable[[bool], Part]) -> Schema:
        """The schema that `build` makes, whole or cut, with all the definitions that fit."""
        root = build(False)
        if not root.references:
            return self._shallow_enough(root)
        included: dict[str, Part] = {}
        level: tuple[str, ...] = ()
        below = root.references
        size = root.size
        while below:
            size += self._size(below, is_cut=False)
            if size > self._most_bytes:
                break
            level = below
            parts = [self._definition(reference, is_cut=False) for reference in level]
            included.update(zip(level, parts, strict=True))
            known = dict.fromkeys(reference for part in parts for reference in part.references)
            below = tuple(reference for reference in known if reference not in included)
        else:
            return self._whole(root, included)
        size -= self._size(below, is_cut=False)
        if size + self._size(below, is_cut=True) <= self._most_bytes:
            included.update((reference, self._definition(reference, is_cut=True)) for reference in below)
        elif level:
            included.update((reference, self._definition(reference, is_cut=True)) for reference in level)
        else:
            return self._shallow_enough(build(True))
        return self._whole(root, included)

    def _shallow_enough(self, root: Part) -> Schema:
        """A schema without references, as deep as it may be large. Its first level always stays."""
        if root.size <= self._most_bytes:
            return root.schema if root.size < _SURELY_COMPILES else _compilable(root.schema)
        schema = root.schema
        for depth in range(_MAX_DEPTH, 0, -1):
            schema = _cut_below(root.schema, depth)
            if len(msgspec.json.encode(schema)) <= self._most_bytes:
                return schema
        return _compilable(schema)

    def _whole(self, root: Part, included: dict[str, Part]) -> Schema:
        """The root with its definitions, made finite.

        A definition that contains itself is cut if a value has to follow a reference to it: providers refuse such a
        schema, and a validator may never come to an end.
        """
        if not included:
            return root.schema
        is_cut = False
        for part in (root, *included.values()):
            for reference in part.inevitable:
                if _is_recursive(reference, included):
                    included[reference] = self._definition(reference, is_cut=True)
                    is_cut = True
        names = _reachable(root.references, included) if is_cut else included
        definitions = {self.converter.key(name): part.schema for name, part in included.items() if name in names}
        schema = {**root.schema, "$defs": definitions}
        return schema if self._most_bytes < _SURELY_COMPILES and root.size < _SURELY_COMPILES else _compilable(schema)

    def _size(self, references: Iterable[str], *, is_cut: bool) -> int:
        return sum(
            self._definition(reference, is_cut=is_cut).size + len(self.converter.key(reference)) + _PUNCTUATION
            for reference in references
        )

    def _definition(self, reference: str, *, is_cut: bool) -> Part:
        part = self._parts.get((reference, is_cut))
        if part is None:
            part = self.converter.convert(self.converter.node(reference), is_cut=is_cut)
            self._parts[reference, is_cut] = part
        return part


def _compilable(schema: Schema) -> Schema:
    """The schema, if a call can check arguments by it.

    Raises:
        DocumentFault: it cannot.
    """
    try:
        Validator(schema)
    except DeclarationError as error:
        raise DocumentFault(str(error)) from None
    return schema


def _cut_below(schema: Schema, depth: int) -> Schema:
    """The schema with no more than types below `depth` levels."""
    cut: Schema = {}
    for key, value in schema.items():
        if key == "items":
            cut[key] = _cut_below(value, depth - 1) if depth else {}
        elif key == "properties" and depth:
            cut[key] = {name: _cut_below(member, depth - 1) for name, member in value.items()}
        elif key in ("anyOf", "allOf") and depth:
            cut[key] = [_cut_below(member, depth) for member in value]
        elif key == "additionalProperties" and isinstance(value, dict) and depth:
            cut[key] = _cut_below(cast("Schema", value), depth - 1)
        elif depth or key not in _STRUCTURE:
            cut[key] = value
    return cut


def _is_recursive(reference: str, parts: Mapping[str, Part]) -> bool:
    """Whether a definition leads back to itself."""
    return reference in _reachable(parts[reference].references, parts)


def _reachable(references: Iterable[str], parts: Mapping[str, Part]) -> set[str]:
    waiting = list(references)
    seen: set[str] = set()
    while waiting:
        reference = waiting.pop()
        if reference not in seen:
            seen.add(reference)
            waiting += parts[reference].references
    return seen
