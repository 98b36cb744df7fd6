"""Names for arguments that a provider takes, in place of those it refuses; and back again in the call.

Pure. Anthropic refuses a whole request if one tool has an argument called `StartTime<` or `filter[id]`: the keys of
`properties` at the top must match a pattern. Further down it takes any. So such keys are renamed where the tool is declared:

    StartTime<   ->   StartTime_            other characters are "_"
    $top         ->   _top
    filter[id], filter(id)   ->   filter_id_, filter_id__1a2b3c4d    a digest where that is another argument's, or too long

The new names follow from the schema alone, so they can be undone with the schema: nothing needs to be remembered.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from .trees import Schema, as_schema, list_of, resolve, strings_of

_OTHER: Final = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST: Final = 64
_DIGEST: Final = 8
# Keywords that apply to the same object as the schema around them; each may name its properties again.
_SAME_OBJECT: Final = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not")


def safe_properties(schema: Schema, pattern: str) -> dict[str, str]:
    """The properties at the top whose names do not match, each with one that does. Those of no use are left out."""
    names = sorted(_names_of(schema, schema, set()))
    matching = {name for name in names if re.fullmatch(pattern, name)}
    replacements: dict[str, str] = {}
    for name in names:
        if name in matching:
            continue
        safe = _OTHER.sub("_", name)[:_LONGEST] or "_"
        if safe in matching or len(name) > _LONGEST:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
            safe = f"{safe[: _LONGEST - _DIGEST - 1]}_{digest}"
        if safe not in matching and re.fullmatch(pattern, safe):
            replacements[name] = safe
            matching.add(safe)
    return replacements


def original_names(schema: Schema, pattern: str) -> dict[str, str]:
    """The tool's own names of the renamed arguments."""
    return {safe: name for name, safe in safe_properties(schema, pattern).items()}


def rename_properties(schema: Schema, names: dict[str, str]) -> Schema:
    """The schema with the properties at its top renamed, wherever it speaks of them. The input is not altered."""
    return _with_references(_renamed(schema, names), names)


def _names_of(root: Schema, value: Any, seen: set[int]) -> set[str]:
    """Every property of the object that a schema is about, also those of branches and of what it refers to."""
    node = as_schema(value)
    if node is None or id(node) in seen:
        return set()
    seen.add(id(node))
    properties_named = set(as_schema(node.get("properties")) or {})
    for key in _SAME_OBJECT:
        for branch in list_of(node.get(key)) or [node.get(key)]:
            properties_named |= _names_of(root, branch, seen)
    return properties_named | _names_of(root, resolve(root, node.get("$ref")), seen)


def _renamed(node: Schema, names: dict[str, str]) -> Schema:
    renamed = dict(node)
    for key in ("properties", "dependentRequired", "dependentSchemas"):
        if (members := as_schema(node.get(key))) is not None:
            renamed[key] = {names.get(name, name): value for name, value in members.items()}
    if isinstance(node.get("required"), list):
        renamed["required"] = [names.get(name, name) for name in strings_of(node["required"])]
    if (needed := as_schema(renamed.get("dependentRequired"))) is not None:
        renamed["dependentRequired"] = {
            name: [names.get(other, other) for other in strings_of(others)] for name, others in needed.items()
        }
    for key in _SAME_OBJECT:
        if isinstance(node.get(key), list):
            renamed[key] = [_branch(branch, names) for branch in list_of(node[key])]
        elif key in node:
            renamed[key] = _branch(node[key], names)
    return renamed


def _branch(value: Any, names: dict[str, str]) -> Any:
    node = as_schema(value)
    return value if node is None else _renamed(node, names)


def _with_references(value: Any, names: dict[str, str]) -> Any:
    """References that lead through a renamed property, such as `#/properties/StartTime<`, lead there again."""
    if isinstance(value, list):
        return [_with_references(item, names) for item in list_of(value)]
    node = as_schema(value)
    if node is None:
        return value
    rewritten = {key: _with_references(member, names) for key, member in node.items()}
    ref = node.get("$ref")
    if isinstance(ref, str) and ref.startswith("#/properties/"):
        name, *rest = ref.removeprefix("#/properties/").split("/")
        name = name.replace("~1", "/").replace("~0", "~")
        rewritten["$ref"] = "/".join(["#/properties", names[name], *rest]) if name in names else ref
    return rewritten
