"""Merge the parts of `allOf`, as far as they are plain objects: models fill in one object better than an intersection.

A part that only remarks (`description`, `example`) adds its description. A single other part stays alone in `allOf`, so
that a reference to it is shared. Anything else, such as a choice among the parts, is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .document import Document, as_list, as_map

_MAX_DEPTH: Final = 8  # of parts within parts; honest documents have two or three
_NOT_PLAIN: Final = frozenset(("anyOf", "oneOf", "not", "enum", "const", "items", "nullable"))
_SUBSTANTIAL: Final = _NOT_PLAIN | {"$ref", "allOf", "type", "properties", "required", "additionalProperties", "format"}


def merge_parts(document: Document, source: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any]:
    """The schema with its `allOf` merged, or as it was.

    Raises:
        DocumentFault: a reference leads nowhere.
    """
    parts = as_list(source.get("allOf"))
    rest = {key: value for key, value in source.items() if key != "allOf"}
    substantial: list[Any] = []
    for part in parts:
        if _SUBSTANTIAL.isdisjoint(as_map(part)):
            rest.setdefault("description", as_map(part).get("description"))
        else:
            substantial.append(part)
    if len(substantial) + ("properties" in rest or "required" in rest) < 2 or depth == _MAX_DEPTH:
        return {**rest, "allOf": substantial}
    nodes: list[Mapping[str, Any]] = []
    for part in [rest, *substantial]:
        node = as_map(document.resolve(part))
        if "allOf" in node:
            node = merge_parts(document, node, depth + 1)
            if len(as_list(node.get("allOf"))) == 1 and _SUBSTANTIAL.isdisjoint(node.keys() - {"allOf", "type"}):
                node = as_map(document.resolve(node["allOf"][0]))
        if (part is not rest and not _NOT_PLAIN.isdisjoint(node)) or "allOf" in node:
            return source
        if node.get("type", "object") != "object":
            return source
        nodes.append(node)
    return {**rest, "type": "object", **_union(nodes)}


def _union(nodes: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The members of all objects. One that several have must fit each of them."""
    properties: dict[str, Any] = {}
    required: dict[Any, None] = {}
    for node in nodes:
        required.update(dict.fromkeys(name for name in as_list(node.get("required")) if isinstance(name, str)))
        for name, member in as_map(node.get("properties")).items():
            is_new = name not in properties or properties[name] == member
            properties[name] = member if is_new else {"allOf": [properties[name], member]}
    return {"properties": properties, "required": list(required)}
