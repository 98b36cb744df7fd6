"""Fix arguments a model sent as text: `"[1, 2]"` where only an array fits.

Models stringify JSON now and then. The schema decides, never the look of the text: a string is read as JSON only at
a place whose schema does not admit that string, and only if what it holds is admitted there. Where a string is
allowed it stays a string, however much it looks like JSON. Each repaired place leaves a note for the model.

Pure and bounded: local `$ref`s are followed, external ones and cycles end the search, and so does a value with more parts
than any model writes.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, cast

from trimaran.depth import decode_json
from trimaran.errors import DeclarationError
from trimaran.types import Json

from .validate import Schema, Validator

# Deeper than any signature; past it a value is left as it came.
_MAX_DEPTH: Final = 64
# Parts of a value that are looked at, some 10 us each.
_MAX_PARTS: Final = 5_000
_KINDS: Final = {dict: "an object", list: "an array", bool: "a boolean", int: "an integer", float: "a number"}


def repair(value: dict[str, Json], schema: Schema) -> tuple[dict[str, Json], list[str]]:
    """`value` with stringified JSON read where `schema` wants it read, and a note for each such place.

    The input is never altered; when nothing was repaired it is returned as it is, with no notes.
    """
    notes: list[str] = []
    repaired = _Repair(schema, notes).repair(value, schema, (), 0)
    return (cast("dict[str, Any]", repaired) if notes else value), notes


class _Repair:
    def __init__(self, root: Schema, notes: list[str]) -> None:
        self._root = root
        self._notes = notes
        self._parts = 0
        self._resolved: dict[int, Any] = {}
        self._validators: dict[int, Validator | None] = {}

    def repair(self, value: Any, schema: Any, path: tuple[str | int, ...], depth: int) -> Any:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            return value
        schema = self._resolve(schema)
        if depth > _MAX_DEPTH or not isinstance(schema, dict):
            return value
        node = cast("Schema", schema)
        if isinstance(value, str):
            return self._read(value, node, path, depth)
        if isinstance(value, dict):
            return self._object(cast("dict[str, Any]", value), node, path, depth)
        if isinstance(value, list):
            return self._array(cast("list[Any]", value), node, path, depth)
        return value

    def _read(self, text: str, node: Schema, path: tuple[str | int, ...], depth: int) -> Any:
        if self._admits(node, text):
            return text
        try:
            read = decode_json(text.strip().encode())
        except ValueError:
            return text
        if isinstance(read, str):
            return text
        marked = len(self._notes)
        self._notes.append(_note(path, read))
        read = self.repair(read, node, path, depth + 1)
        if self._admits(node, read):
            return read
        del self._notes[marked:]
        return text

    def _object(self, value: dict[str, Any], node: Schema, path: tuple[str | int, ...], depth: int) -> Any:
        repaired = dict(value)
        for branch in self._branches(node, value):
            properties = branch.get("properties", {})
            others = True if "patternProperties" in branch else branch.get("additionalProperties", True)
            for key in islice(repaired, _MAX_PARTS):
                repaired[key] = self.repair(repaired[key], properties.get(key, others), (*path, key), depth + 1)
        return repaired

    def _array(self, value: list[Any], node: Schema, path: tuple[str | int, ...], depth: int) -> Any:
        repaired = list(value)
        for branch in self._branches(node, value):
            prefix = branch.get("prefixItems", [])
            rest = branch.get("items", True)
            for index, item in enumerate(repaired[:_MAX_PARTS]):
                inner = prefix[index] if index < len(prefix) else rest
                repaired[index] = self.repair(item, inner, (*path, index), depth + 1)
        return repaired

    def _branches(self, node: Schema, value: Any) -> list[Schema]:
        """The schemas that speak about the inside of `value`: the node, what it requires all of, and one alternative.

        Among alternatives the one that fits as it is wins; then there is nothing to repair. Else the only one of the
        right type is taken, and with several nothing is guessed.
        """
        self._parts += 1
        branches = [node]
        if self._parts > _MAX_PARTS:
            return branches
        for inner in node.get("allOf", []):
            if isinstance(resolved := self._resolve(inner), dict):
                branches += self._branches(cast("Schema", resolved), value)
        for keyword in ("anyOf", "oneOf"):
            options = [self._resolve(option) for option in node.get(keyword, [])]
            if any(self._admits(option, value) for option in options):
                continue
            schemas = [cast("Schema", option) for option in options if isinstance(option, dict)]
            fitting = [option for option in schemas if _may_be(option, value)]
            if len(fitting) == 1:
                branches += self._branches(fitting[0], value)
        return branches

    def _resolve(self, schema: Any) -> Any:
        """The target of a local `$ref`, with its siblings beside it; a cycle of bare references resolves to True."""
        if not isinstance(schema, dict) or "$ref" not in schema:
            return cast("Any", schema)
        if id(cast("Schema", schema)) not in self._resolved:
            self._resolved[id(cast("Schema", schema))] = self._follow(cast("Schema", schema))
        return self._resolved[id(cast("Schema", schema))]

    def _follow(self, schema: Schema) -> Any:
        for _ in range(_MAX_DEPTH):
            target = self._pointed(str(schema["$ref"]))
            if target is None:
                return True
            schema = {**target, **{key: inner for key, inner in schema.items() if key != "$ref"}}
            if "$ref" not in schema:
                return schema
        return True

    def _pointed(self, ref: str) -> Schema | None:
        if ref != "#" and not ref.startswith("#/"):
            return None
        target: Any = self._root
        for step in ref.split("/")[1:]:
            target = cast("Schema", target).get(_unescape(step)) if isinstance(target, dict) else None
        return cast("Schema", target) if isinstance(target, dict) else None

    def _admits(self, schema: Any, value: Any) -> bool:
        if not isinstance(schema, dict):
            return schema is not False
        validator = self._validator(cast("Schema", schema))
        return validator is None or validator.is_valid(value)

    def _validator(self, node: Schema) -> Validator | None:
        if id(node) not in self._validators:
            # References inside the subschema point into the root, so the root's definitions travel along.
            carried = {key: self._root[key] for key in ("$schema", "$defs", "definitions") if key in self._root}
            try:
                self._validators[id(node)] = Validator({**carried, **node})
            except DeclarationError:
                # The node refers to a part of the root that is not here; a schema that cannot be checked changes nothing.
                self._validators[id(node)] = None
        return self._validators[id(node)]


def _unescape(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def _may_be(node: Schema, value: Any) -> bool:
    types = node.get("type")
    name = "object" if isinstance(value, dict) else "array"
    return types is None or types == name or (isinstance(types, list) and name in types)


def _note(path: tuple[str | int, ...], read: Any) -> str:
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return f"argument {where!r} was a JSON string and was read as {_KINDS.get(cast('type[Any]', type(read)), 'null')}"
