"""Follow every reference in a JSON Schema, and refuse the schema if one leads nowhere.

Clients compile the schemas of all tools when they list them: one reference that leads nowhere can cost them the whole
server. So a tool is refused when it is declared. References are followed within the document only: by pointer, by
`$anchor`, and by the `$id` of a part. Nothing here judges a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trimaran.errors import DeclarationError
from trimaran.format.trees import Path, Schema, as_schema, children, path_text

__all__ = ["check_references", "lost_reference"]

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
# The schemas of JSON Schema itself, which every validator brings along.
_KNOWN: Final = ("http://json-schema.org/", "https://json-schema.org/")


def check_references(schema: Schema, what: str) -> None:
    """Refuse a schema with a reference that leads nowhere; `what` names its owner in the message."""
    lost = lost_reference(schema)
    if lost is not None:
        place, ref = lost
        raise DeclarationError(
            f"{what} refers to {ref!r} (at {place}), and nothing is there: references outside the schema are never fetched. "
            "Put the definition under '$defs' at the root and write '$ref': '#/$defs/Name'"
        )


def lost_reference(schema: Schema) -> tuple[str, str] | None:
    """The first reference that leads nowhere: its place, and what it says."""
    documents: dict[str, tuple[Schema, set[str]]] = {}
    references: list[tuple[Path, str, str]] = []
    for path, node, base, document in _walk(schema):
        _, anchors = documents.setdefault(base, (document, set()))
        anchors.update(str(node[keyword]) for keyword in _ANCHORS if keyword in node)
        references += [(path, base, ref) for key in _REFERENCES if isinstance(ref := node.get(key), str)]
    for path, base, ref in references:
        if not _leads_somewhere(ref, base, documents):
            return path_text(path), ref
    return None


def _walk(schema: Schema) -> Iterator[tuple[Path, Schema, str, Schema]]:
    """Every schema object, with its place, the address that its references start from, and the document they mean."""
    waiting: list[tuple[Path, Any, str, Schema]] = [((), schema, "", schema)]
    while waiting:
        path, child, base, document = waiting.pop()
        node = as_schema(child)
        if node is None:
            continue
        if isinstance(id := node.get("$id"), str):
            base, document = _joined(base, id).partition("#")[0], node
        yield path, node, base, document
        waiting += [((*path, *steps), inner, base, document) for steps, inner in children(node)]


def _leads_somewhere(ref: str, base: str, documents: dict[str, tuple[Schema, set[str]]]) -> bool:
    address, _, fragment = (base + ref if ref.startswith("#") else _joined(base, ref)).partition("#")
    if address not in documents:
        return address.startswith(_KNOWN)
    document, anchors = documents[address]
    if not fragment.startswith("/"):
        return not fragment or fragment in anchors
    node: Any = document
    for step in fragment[1:].split("/"):
        node = _inside(node, _unescaped(step))
    return isinstance(node, dict | bool)


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
