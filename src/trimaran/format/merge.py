"""Two schemas as one, and schemas that no value fits both of: the arithmetic that `fit.py` works with.

Each answer is certain or not given: None where two schemas cannot be said as one, False where it is not plain to see that
nothing fits both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from .trees import Schema, as_schema, equality_key, kind_of, list_of, same, strings_of, types_of

FOR_TYPE: Final = {
    "string": {"minLength", "maxLength", "pattern", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains"}
    | {"unevaluatedItems", "additionalItems"},
    "object": {
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "dependentRequired",
    }
    | {"minProperties", "maxProperties", "dependentSchemas", "unevaluatedProperties"},
}
FOR_TYPE["integer"] = FOR_TYPE["number"]
ANY_TYPE: Final = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "$ref"}
# Whatever is not in here decides nothing about a value: titles, comments, extensions.
DECIDES: Final = frozenset(ANY_TYPE.union(*FOR_TYPE.values()) - {"format"}) | {"$dynamicRef", "dependencies"}
_LARGER: Final = frozenset(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"))
_SMALLER: Final = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))
# Keywords that mean something only together with their neighbours.
_TOGETHER: Final = (
    ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties"),
    ("items", "prefixItems", "additionalItems", "unevaluatedItems"),
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
)


def merge(outer: Schema, inner: Schema) -> Schema | None:
    """One schema that admits the values that both admit; None if one schema cannot say that. Texts of `outer` win."""
    for group in _TOGETHER:
        outer_keys, inner_keys = outer.keys() & set(group), inner.keys() & set(group)
        keys = outer_keys | inner_keys
        plain = keys <= {"properties"} or keys == {"items"}
        if outer_keys and inner_keys and not plain and not all(same(outer.get(k), inner.get(k)) for k in keys):
            return None
    merged = dict(outer)
    for key, value in inner.items():
        if key not in merged or same(merged[key], value):
            merged[key] = value
        elif key in ("$defs", "definitions"):
            return None
        elif key not in DECIDES:
            continue
        elif (both := _merge_values(key, merged[key], value)) is not None:
            merged[key] = both
        else:
            return None
    return merged


def _merge_values(key: str, outer: Any, inner: Any) -> Any:
    if key in _LARGER or key in _SMALLER:
        if not {kind_of(outer), kind_of(inner)} <= {"integer", "number"}:
            return None
        return max(outer, inner) if key in _LARGER else min(outer, inner)
    special = _MERGERS.get(key)
    return None if special is None else special(outer, inner)


def _merge_types(outer: Any, inner: Any) -> Any:
    left, right = types_of({"type": outer}), types_of({"type": inner})
    both = [kind for kind in left if kind in right or (kind == "integer" and "number" in right)]
    both += [kind for kind in right if kind == "integer" and "number" in left and kind not in both]
    return both[0] if len(both) == 1 else both or None


def _merge_properties(outer: Any, inner: Any) -> Schema | None:
    merged, more = as_schema(outer), as_schema(inner)
    if merged is None or more is None:
        return None
    merged = dict(merged)
    for name, schema in more.items():
        left, right = as_schema(merged.get(name)), as_schema(schema)
        if name not in merged:
            merged[name] = schema
        elif left is None or right is None or "$ref" in {*left, *right}:
            if not same(merged[name], schema):
                return None
        elif (both := merge(left, right)) is not None:
            merged[name] = both
        else:
            return None
    return merged


def _merge_items(outer: Any, inner: Any) -> Any:
    left, right = as_schema(outer), as_schema(inner)
    return None if left is None or right is None or "$ref" in {*left, *right} else merge(left, right)


def _merge_required(outer: Any, inner: Any) -> Any:
    return list(dict.fromkeys([*strings_of(outer), *strings_of(inner)]))


def _merge_enums(outer: Any, inner: Any) -> Any:
    marks = set(map(equality_key, list_of(inner)))
    return [value for value in list_of(outer) if equality_key(value) in marks] or None


_MERGERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "type": _merge_types,
    "properties": _merge_properties,
    "items": _merge_items,
    "required": _merge_required,
    "enum": _merge_enums,
    "uniqueItems": lambda left, right: left is True or right is True,
}


def are_disjoint(branches: list[Schema]) -> bool:
    """Can no value fit two of these? False where that is not plain to see."""
    if _apart([set(_with_integers(types_of(branch))) for branch in branches]):
        return True
    if _apart([_values_of(branch) for branch in branches]):
        return True
    if not all(types_of(branch) == ("object",) for branch in branches):
        return False
    tags = [set(strings_of(branch.get("required"))) for branch in branches]
    return any(
        _apart([_values_of(_property(b, tag)) for b in branches]) for tag in sorted(set[str].intersection(*tags))
    )


def _property(node: Schema, name: str) -> Schema:
    return as_schema((as_schema(node.get("properties")) or {}).get(name)) or {}


def _with_integers(types: tuple[str, ...]) -> Iterator[str]:
    for kind in types:
        yield kind
        if kind == "number":
            yield "integer"


def _values_of(node: Schema) -> set[Any]:
    return {equality_key(value) for value in ([node["const"]] if "const" in node else list_of(node.get("enum")))}


def _apart(sets: list[set[Any]]) -> bool:
    """Whether the schemas admit values, and no value is admitted by two of them."""
    return all(sets) and sum(map(len, sets)) == len(set[Any]().union(*sets))
