"""Structured output for revisions that know objects only: any other value travels as `{"result": value}`.

Pure. One question decides how a tool is listed and how its results are sent, and it is asked of the schema, never of a
value: is every value an object? `Place | None` is not always one, so all its values travel in the envelope, objects too.

Definitions stay at the root of the envelope, because `#/$defs/Name` means the root of what is sent. The envelope is titled
as the official Python SDK titles its own (`add` makes `addOutput`): a keyword of ours would make strict validators refuse
the schema. Results carry the note that FastMCP's client looks for, unless its reading of the inner schema would miss the
definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import msgspec
from msgspec import UNSET, Raw, Struct

from trimaran.format.trees import as_schema, list_of, rebuild, resolve, types_of
from trimaran.types import as_object

Object = dict[str, Any]

_AT_ROOT: Final = ("$schema", "$defs", "definitions")
_PLACE: Final = "#/properties/result"
NOTE: Final = {"fastmcp": {"wrap_result": True}}
_MAX_DEPTH: Final = 50  # of references and choices within each other; honest schemas have a few. Beyond: not plain


@final
class Envelope(Struct, frozen=True):
    """How the results of one tool travel to these revisions."""

    wraps: bool
    """Whether every result travels as `{"result": value}`."""
    is_noted: bool = True
    """Whether results are marked as such."""


def decide_envelope(schema: Object | None) -> Envelope | None:
    """The decision for a tool with this output schema; None if it promises nothing, so that each value decides."""
    if schema is None:
        return None
    return Envelope(is_object(schema) is not True, is_noted="$defs" not in schema and "definitions" not in schema)


def is_object(schema: Any) -> bool | None:
    """Is every value that this schema admits an object? True, False if none is, None if some are or it is not plain."""
    root = as_schema(schema)
    return None if root is None else _verdict(root, root, {}, 0)


def _verdict(root: Object, schema: Any, known: dict[str, bool | None], depth: int) -> bool | None:
    """`known` has the verdict of each reference, and None while it is sought: definitions may refer to each other twice per
    level, or in a circle."""
    node = as_schema(schema)
    depth += 1
    if node is None or depth > _MAX_DEPTH:
        return None
    # All of these keywords hold at the same time, so the simplest one decides.
    verdicts: list[bool | None] = []
    if types := types_of(node):
        verdicts.append(_common([name == "object" for name in types]))
    if "const" in node or list_of(node.get("enum")):
        values = [node["const"]] if "const" in node else list_of(node["enum"])
        verdicts.append(_common([isinstance(value, dict) for value in values]))
    ref: Any = node.get("$ref")
    if isinstance(ref, str):
        if ref not in known:
            known[ref] = None
            known[ref] = _verdict(root, resolve(root, ref), known, depth)
        verdicts.append(known[ref])
    choices = [branches for keyword in ("anyOf", "oneOf") if (branches := list_of(node.get(keyword)))]
    verdicts += [_common([_verdict(root, branch, known, depth) for branch in branches]) for branches in choices]
    verdicts += [_verdict(root, branch, known, depth) for branch in list_of(node.get("allOf"))]
    return True if True in verdicts else False if False in verdicts else None


def _common(verdicts: list[bool | None]) -> bool | None:
    return verdicts[0] if len(set(verdicts)) == 1 else None


def legacy_output(schema: Object, name: str) -> Object:
    """The output schema of the tool `name` as these revisions list it: an object at the root, definitions beside it."""
    if is_object(schema):
        # A title keeps an object whose only field is called `result` from looking like an envelope.
        title = (
            {"title": "Result"} if schema.get("properties", {}).keys() == {"result"} and "title" not in schema else {}
        )
        return {**title, **schema, "type": "object"}
    root = {key: schema[key] for key in _AT_ROOT if key in schema}
    inner = {key: value for key, value in schema.items() if key not in _AT_ROOT}
    if "$id" in schema:
        # A separate document with its own root: its references stay valid here.
        root, inner = {}, {key: value for key, value in schema.items() if key != "$schema"}
    else:
        inner = _moved(inner)
        root.update({key: {n: _moved(d) for n, d in root[key].items()} for key in _AT_ROOT[1:] if key in root})
    return {
        "title": f"{name}Output",
        "type": "object",
        "properties": {"result": inner},
        "required": ["result"],
        **root,
    }


def _moved(schema: Any) -> Any:
    """The same schema after its root went to `#/properties/result` and its definitions stayed."""
    node = as_schema(schema)
    if node is None or "$id" in node:
        return schema
    moved = rebuild(node, lambda _, child: _moved(child))
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        ref = moved.get(keyword)
        if ref == "#" or (isinstance(ref, str) and ref.startswith("#/") and not _is_definition(ref)):
            # `$recursiveRef` can only say "#"; in a single document a plain reference means the same.
            del moved[keyword]
            moved["$ref"] = _PLACE + ref[1:]
    return moved


def _is_definition(ref: str) -> bool:
    return ref.split("/")[1] in _AT_ROOT


def enclose(structure: bytes, envelope: Envelope | None) -> bytes | None:
    """Encoded structure in its envelope; None if it travels as it is. Without a decision for the tool, the value decides."""
    if structure[:1] == b"{" and not (envelope and envelope.wraps):
        return None
    return b'{"result":%b}' % structure


def legacy_result(result: Any, envelope: Envelope | None, encode: Callable[[Any], bytes]) -> Any:
    """A result as these revisions know it. `envelope` is the tool's decision; without one, the value decides.

    It is a CallToolResult, or the mapping that middleware answered with.
    """
    plain = as_object(result)
    structured: Any = (
        getattr(result, "structured_content", UNSET) if plain is None else plain.get("structuredContent", UNSET)
    )
    if structured is UNSET:
        return result
    raw = bytes(structured) if isinstance(structured, Raw) else encode(structured)
    enclosed = enclose(raw, envelope)
    if enclosed is None:
        return result
    content = Raw(enclosed)
    meta: Any = (result.meta if plain is None else plain.get("_meta")) or {}
    if (envelope is None or envelope.is_noted) and not isinstance(meta, Raw):
        meta = {**NOTE, **meta}
    if plain is not None:
        return {**plain, "structuredContent": content, "_meta": meta}
    return msgspec.structs.replace(result, structured_content=content, meta=meta or None)
