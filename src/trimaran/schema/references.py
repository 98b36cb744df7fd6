"""Follow every reference in a JSON Schema, and refuse the schema if one leads nowhere.

Clients compile the schemas of all tools when they list them: one reference that leads nowhere, or one schema that is too
deep for a parser, can cost them the whole server. So a tool is refused when it is declared. References are followed within the document only: by pointer, by
`$anchor`, and by the `$id` of a part. Nothing here judges a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast, final

import msgspec

from trimaran.depth import MAX_DEPTH, TooDeep, check_depth
from trimaran.errors import DeclarationError
from trimaran.format.trees import Path, Schema, as_schema, children, path_text

MAX_LEVELS: Final = 100
"""Of arrays and objects in one schema. A list of tools puts it five levels deep, and an envelope for older revisions two
more: clients refuse a whole list that has more than 128."""

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
# The schemas of JSON Schema itself, which every validator brings along.
_KNOWN: Final = ("http://json-schema.org/", "https://json-schema.org/")
# Stands for those: a schema in which every object is checked by a few dozen others.
ANY_SCHEMA: Final[Schema] = {"allOf": [True] * 50}
ANY_SCHEMA.update(additionalProperties=ANY_SCHEMA, items=ANY_SCHEMA)


def check_references(schema: Schema, label: str) -> None:
    """Refuse a schema that costs clients all tools: too deep, or with a reference that leads nowhere."""
    if is_too_deep(schema):
        raise DeclarationError(
            f"{label} nests more than {MAX_LEVELS} levels of arrays and objects, which clients refuse, and all tools with it. "
            "Put parts of it under '$defs' at the root"
        )
    lost = lost_reference(schema)
    if lost is not None:
        place, ref = lost
        raise DeclarationError(
            f"{label} refers to {ref!r} (at {place}), and nothing is there: references outside the schema are never fetched. "
            "Put the definition under '$defs' at the root and write '$ref': '#/$defs/Name'"
        )


def is_too_deep(schema: Schema) -> bool:
    """Whether clients would refuse a list with this schema in it."""
    try:
        check_depth(msgspec.json.encode(schema, enc_hook=lambda _: None), inside=MAX_DEPTH - MAX_LEVELS)
    except (TooDeep, RecursionError):
        return True
    except (TypeError, ValueError, OverflowError):  # no JSON, which is said elsewhere
        return False
    return False


def lost_reference(schema: Schema) -> tuple[str, str] | None:
    """The first reference without a target: its place and its text."""
    references = References(schema)
    for path, node, base in references.walk():
        for key in _REFERENCES:
            if isinstance(ref := node.get(key), str) and not references.leads_somewhere(ref, base):
                return path_text(path), ref
    return None


@final
class References:
    """The places of one schema that references may name."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._id = "id" if "draft-04" in str(schema.get("$schema")) else "$id"
        self._documents: dict[str, tuple[Schema, dict[str, Any]]] = {"": (schema, {})}
        self._dynamic: dict[str, list[tuple[Schema, str]]] = {}
        for _, node, base in self.walk():
            self._note(node, base)

    def _note(self, node: Schema, base: str) -> None:
        document, anchors = self._documents.setdefault(base, (node, {}))
        id = node.get(self._id)
        if isinstance(id, str) and id.startswith("#"):  # the `$anchor` of older drafts
            anchors[id[1:]] = node
        for keyword in _ANCHORS:
            if keyword in node:
                anchors[str(node[keyword])] = node
        if "$dynamicAnchor" in node:
            self._dynamic.setdefault(str(node["$dynamicAnchor"]), []).append((node, base))
        if "$recursiveAnchor" in node:
            self._dynamic.setdefault("", []).append((document, base))

    def walk(self) -> Iterator[tuple[Path, Schema, str]]:
        """Every schema object, with its place and the address that its references start from."""
        waiting: list[tuple[Path, Any, str]] = [((), self._schema, "")]
        while waiting:
            path, child, base = waiting.pop()
            node = as_schema(child)
            if node is None:
                continue
            base = self.base_of(node, base)
            yield path, node, base
            waiting += [((*path, *steps), inner, base) for steps, inner in children(node)]

    def base_of(self, node: Schema, base: str) -> str:
        """The address that the references in this object start from; `base` is that of the object around it."""
        id = node.get(self._id)
        return _joined(base, id).partition("#")[0] if isinstance(id, str) else base

    def leads_somewhere(self, ref: str, base: str) -> bool:
        address, target = self._target(ref, base)
        return isinstance(target, dict | bool) or address.startswith(_KNOWN)

    def targets(self, node: Schema, base: str) -> Iterator[tuple[Any, str]]:
        """All that the references of one object may lead to, each with its address.

        Raises:
            DeclarationError: a reference leads nowhere.
        """
        for key in _REFERENCES:
            if not isinstance(ref := node.get(key), str):
                continue
            address, target = self._target(ref, base)
            if isinstance(target, dict | bool):
                yield target, address
            elif address.startswith(_KNOWN):
                yield ANY_SCHEMA, address
            else:
                raise DeclarationError(f"the JSON Schema refers to {ref!r}, and nothing is there")
            if key != "$ref":
                yield from (other for other in self._dynamic.get(ref.partition("#")[2], ()) if other[0] is not target)

    def _target(self, ref: str, base: str) -> tuple[str, Any]:
        address, _, fragment = (base + ref if ref.startswith("#") else _joined(base, ref)).partition("#")
        if address not in self._documents:
            return address, None
        document, anchors = self._documents[address]
        if not fragment.startswith("/"):
            return address, document if not fragment else anchors.get(fragment)
        node: Any = document
        for step in fragment[1:].split("/"):
            node = _inside(node, _unescaped(step))
            if isinstance(node, dict):
                address = self.base_of(cast("Schema", node), address)
        return address, cast("Any", node)


def _inside(node: Any, step: str) -> Any:
    if isinstance(node, list):
        return node[int(step)] if step.isdecimal() and int(step) < len(node) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    holder = as_schema(node)
    return None if holder is None else holder.get(step)


def _unescaped(step: str) -> str:
    if "%" in step:
        from urllib.parse import unquote

        step = unquote(step)
    return step.replace("~1", "/").replace("~0", "~")


def _joined(base: str, ref: str) -> str:
    from urllib.parse import urljoin

    return urljoin(base, ref)
