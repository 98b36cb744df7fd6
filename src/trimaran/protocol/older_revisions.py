"""Values for peers of older revisions: fields that the revision does not have are removed.

Pure. The language inside the library is the newest revision; `revise` translates a *result* or *params* mapping down.
Two tables carry the facts (protocol.md 1.8): `_SINCE` says since when each field of each kind of object exists, `_UNTIL`
which fields the modern revision dropped. A content block that a revision lacks becomes the nearest thing it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from trimaran.types import as_object

from .envelope import is_object, legacy_output
from .surrogates import encode_repaired
from .versions import MODERN, V2024_11, V2025_03, V2025_06, V2025_11

Object = dict[str, Any]

_SINCE: Final[dict[str, dict[str, str]]] = {
    "tool": {
        "annotations": V2025_03,
        "title": V2025_06,
        "outputSchema": V2025_06,
        "_meta": V2025_06,
        "icons": V2025_11,
        "execution": V2025_11,
    },
    "resource": {"title": V2025_06, "_meta": V2025_06, "icons": V2025_11},
    "prompt": {"title": V2025_06, "_meta": V2025_06, "icons": V2025_11},
    "argument": {"title": V2025_06},
    "implementation": {"title": V2025_06, "description": V2025_11, "websiteUrl": V2025_11, "icons": V2025_11},
    "block": {"_meta": V2025_06, "icons": V2025_11},
    "contents": {"_meta": V2025_06, "annotations": MODERN},
    "annotations": {"lastModified": V2025_06},
    "call": {"structuredContent": V2025_06},
    "progress": {"message": V2025_03},
    "capabilities": {"completions": V2025_03, "tasks": V2025_11, "extensions": V2025_11},
}
_UNTIL: Final[dict[str, dict[str, str]]] = {"tool": {"execution": V2025_11}, "capabilities": {"tasks": V2025_11}}


def _gate(kind: str, value: Object, version: str) -> Object:
    since, until = _SINCE.get(kind, {}), _UNTIL.get(kind, {})
    return {k: v for k, v in value.items() if version >= since.get(k, V2024_11) and version <= until.get(k, MODERN)}


def _annotated(kind: str, value: Object, version: str) -> Object:
    gated = _gate(kind, value, version)
    notes = gated.get("annotations")
    if isinstance(notes, dict) and kind != "tool":
        gated["annotations"] = _gate("annotations", notes, version)  # pyright: ignore[reportUnknownArgumentType]
    return gated


def revise_definition(kind: str, value: Object, version: str, *, is_declared: bool = True) -> Object:
    """A tool, resource, template or prompt definition as this revision lists it.

    Without a declaration each value decides how it travels (see `envelope.py`). An output schema
    that admits objects and other values could then hold for some results only, so older revisions do not see it.
    """
    gated = _annotated(kind, value, version)
    if kind == "tool" and version != MODERN and isinstance(gated.get("outputSchema"), dict):
        if is_declared or is_object(gated["outputSchema"]) is not None:
            gated["outputSchema"] = legacy_output(gated["outputSchema"], gated["name"])
        else:
            del gated["outputSchema"]
    if kind == "tool" and version != MODERN:
        schemas = ("inputSchema", "outputSchema")
        gated.update({key: _with_objects(gated[key]) for key in schemas if isinstance(gated.get(key), dict)})
    if kind == "prompt" and gated.get("arguments"):
        gated["arguments"] = [_gate("argument", a, version) for a in gated["arguments"]]
    return gated


def _with_objects(schema: Object) -> Object:
    """The same schema with `true` and `false` among its properties as objects: the TypeScript SDK 1.x refuses a whole list
    for one of them."""
    properties = as_object(schema.get("properties")) or {}
    spelled: Object = {name: {} if flag else {"not": {}} for name, flag in properties.items() if isinstance(flag, bool)}
    return {**schema, "properties": {**properties, **spelled}} if spelled else schema


def revise_capabilities(capabilities: Object, version: str) -> Object:
    """Server capabilities as this revision spells them."""
    return _gate("capabilities", capabilities, version)


def _block(block: Object, version: str) -> Object:
    kind = block.get("type")
    if kind == "audio" and version < V2025_03:
        return {
            "type": "text",
            "text": f"[audio, {block.get('mimeType', 'unknown type')}: not supported by this client]",
        }
    if kind == "resource_link" and version < V2025_06:
        label = block.get("name") or block.get("uri", "")
        return {"type": "text", "text": f"{label}: {block.get('uri', '')}"}
    gated = _annotated("block", block, version)
    if kind == "resource" and isinstance(gated.get("resource"), dict):
        gated["resource"] = _gate("contents", gated["resource"], version)
    return gated


def _call(result: Object, version: str) -> Object:
    gated = _gate("call", result, version)
    gated["content"] = [_block(b, version) for b in gated.get("content", ())]
    return gated


def _contents(result: Object, version: str) -> Object:
    return {**result, "contents": [_gate("contents", c, version) for c in result.get("contents", ())]}


def _messages(result: Object, version: str) -> Object:
    messages = [{**m, "content": _block(m["content"], version)} for m in result.get("messages", ())]
    return {**result, "messages": messages}


def _progress(params: Object, version: str) -> Object:
    return _gate("progress", params, version)


def _initialized(result: Object, version: str) -> Object:
    return {**result, "serverInfo": _gate("implementation", result["serverInfo"], version)}


_MODERN_ONLY: Final = ("resultType", "ttlMs", "cacheScope")
_REVISERS: Final[dict[str, Callable[[Object, str], Object]]] = {
    "tools/call": _call,
    "resources/read": _contents,
    "prompts/get": _messages,
    "initialize": _initialized,
    "notifications/progress": _progress,
}


def revise(method: str, value: Any, version: str, enc_hook: Callable[[Any], Any] | None = None) -> Any:
    """A result (or a notification's params) of this method, as the given legacy revision knows it."""
    # By way of JSON: a result may hold parts that are encoded already.
    try:
        encoded = msgspec.json.encode(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        encoded = encode_repaired(value, enc_hook)
    plain: Object = msgspec.json.decode(encoded)
    for key in _MODERN_ONLY:
        plain.pop(key, None)
    reviser = _REVISERS.get(method)
    return plain if reviser is None else reviser(plain, version)


def revise_form(schema: Object, version: str) -> Object:
    """A form's schema for a client of 2025-06-18, which knows plain enums and boolean defaults only."""
    if version >= V2025_11:
        return schema
    return {**schema, "properties": {k: _form_field(v) for k, v in schema.get("properties", {}).items()}}


def _form_field(field: Object) -> Object:
    plain = dict(field)
    if plain.get("type") != "boolean":
        plain.pop("default", None)
    choices = plain.pop("oneOf", None)
    if choices:
        plain["enum"] = [c["const"] for c in choices]
        plain["enumNames"] = [c.get("title", str(c["const"])) for c in choices]
    if plain.get("type") == "array":
        # No list fields before 2025-11-25: a person types a comma-separated string instead.
        title = plain.get("title") or plain.get("description") or "choices"
        return {"type": "string", "title": title, "description": "several values, separated by commas"}
    return plain
