"""JSON Schemas as trees: the keywords that hold schemas, the targets of references, the names of places.

Nothing here judges or changes a schema; `rules.py` and `fit.py` do. References are followed within the document only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, cast, final

import msgspec

from trimaran.types import Json

Schema: TypeAlias = dict[str, Json]
Path: TypeAlias = tuple[str | int, ...]

# Deeper than any provider takes (OpenAI: 10 levels of objects) and far from Python's own recursion limit.
MAX_DEPTH: Final = 64

# OpenAI takes 5,000 properties, the most of any provider; the largest schemas of real tools have some hundred objects.
_MAX_OBJECTS: Final = 6_000
_MAX_PARTS: Final = 50_000
_MAX_REFERENCES: Final = 1_000
_TOO_DEEP: Final = "is nested too deeply"

_MAPS: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_LISTS: Final = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_SINGLES: Final = frozenset(
    (
        "items",
        "additionalProperties",
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
        "additionalItems",
    )
)


def as_schema(value: Any) -> Schema | None:
    return cast("Schema", value) if isinstance(value, dict) else None


def list_of(value: Any) -> list[Any]:
    """A list if it is one, else an empty one: what peers send under a keyword may be anything."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def strings_of(value: Any) -> list[str]:
    return [item for item in list_of(value) if isinstance(item, str)]


def size_fault(schema: Json) -> str | None:
    """Why this is more than we walk, as a clause about the schema; None if it is not.

    A walk takes time for each part, and for some questions for each pair of references; schemas come from strangers.
    """
    try:
        text = msgspec.json.encode(schema)
    except RecursionError:
        return _TOO_DEEP
    except TypeError:  # an author's own, with something in it that is not JSON
        return _TOO_DEEP if _is_too_deep(schema) else None
    for count, most, noun in (
        (text.count(b"{"), _MAX_OBJECTS, "objects"),
        (text.count(b","), _MAX_PARTS, "parts"),
        (text.count(b'"$ref":'), _MAX_REFERENCES, "references"),
    ):
        if count > most:
            return f"has over {most:,} {noun}"
    return _TOO_DEEP if text.count(b"{") + text.count(b"[") > 2 * MAX_DEPTH and _is_too_deep(schema) else None


def _is_too_deep(value: Json) -> bool:
    level = [value]
    for _ in range(2 * MAX_DEPTH):
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner.extend(cast("Schema", part).values())
            elif isinstance(part, list):
                inner.extend(cast("list[Any]", part))
        if not inner:
            return False
        level = inner
    return True


def children(node: Schema) -> Iterator[tuple[Path, Any]]:
    """Every schema directly inside this one, with the steps that lead to it."""
    for key, value in node.items():
        if key in _MAPS and isinstance(value, dict):
            for name, child in cast("Schema", value).items():
                yield (key, name), child
        elif (key in _LISTS or key == "items") and isinstance(value, list):
            for number, child in enumerate(cast("list[Any]", value)):
                yield (key, number), child
        elif key in _SINGLES:
            yield (key,), value


def rebuild(node: Schema, change: Callable[[Path, Any], Any]) -> Schema:
    """The same node with every schema directly inside it replaced by what `change` makes of it."""
    copy: Schema = dict(node)
    for steps, child in children(node):
        new = change(steps, child)
        if len(steps) == 1:
            copy[str(steps[0])] = new
            continue
        key, inner = str(steps[0]), cast("Any", steps[1])
        if copy[key] is node[key]:
            copy[key] = node[key].copy()
        copy[key][inner] = new
    return copy


def path_text(path: Path) -> str:
    """A place as people write it: `$.properties.when`, `$.anyOf[1]`; a name that is no word is quoted."""
    text = "$"
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.lstrip("$").isidentifier():
            text += f".{step}"
        else:
            text += f"[{step!r}]"
    return text


def resolve(root: Schema, ref: Any) -> Any:
    """The target of a reference within this document; None if it has none."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    if ref in ("#", "#/"):
        return root
    if not ref.startswith("#/"):
        return None
    target: Any = root
    for step in ref[2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict):
            target = cast("Schema", target).get(step)
        elif isinstance(target, list) and step.isdecimal() and int(step) < len(cast("list[Any]", target)):
            target = cast("list[Any]", target)[int(step)]
        else:
            return None
    return target


@final
class Recursion:
    """Which references of one schema lead back to themselves."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[str, bool] = {}
        self._inner: dict[str, frozenset[str]] = {}

    def is_recursive(self, ref: str) -> bool:
        if ref not in self._known:
            self._known[ref] = self._leads_back(ref)
        return self._known[ref]

    def _leads_back(self, ref: str) -> bool:
        seen: set[str] = set()
        waiting = [ref]
        while waiting:
            inner = self._refs_in(waiting.pop())
            if ref in inner:
                return True
            waiting += inner - seen
            seen |= inner
        return False

    def _refs_in(self, ref: str) -> frozenset[str]:
        if ref not in self._inner:
            self._inner[ref] = frozenset(_refs(resolve(self._root, ref)))
        return self._inner[ref]


def _refs(tree: Any) -> Iterator[str]:
    waiting = [tree]
    while waiting:
        node = as_schema(waiting.pop())
        if node is None:
            continue
        if isinstance(ref := node.get("$ref"), str):
            yield ref
        # Definitions are reached by references to them, not by standing in the way.
        waiting.extend(child for steps, child in children(node) if steps[0] not in ("$defs", "definitions"))


def types_of(node: Schema) -> tuple[str, ...]:
    """The types a schema names: none, one or several."""
    named = node.get("type")
    if isinstance(named, str):
        return (named,)
    return tuple(strings_of(named))


def kind_of(value: Json) -> str:
    """The JSON type of a value; a whole number is an "integer"."""
    if value is None:
        return "null"
    for known, name in _KINDS:
        if isinstance(value, known):
            return name
    return "object"


_KINDS: Final = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"))


def same(first: Json, second: Json) -> bool:
    """Whether two values are equal as JSON: Python takes 1 for true, JSON does not."""
    if isinstance(first, dict) and isinstance(second, dict):
        left, right = cast("Schema", first), cast("Schema", second)
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(first, list) and isinstance(second, list):
        lefts, rights = cast("list[Any]", first), cast("list[Any]", second)
        return len(lefts) == len(rights) and all(map(same, lefts, rights))
    return isinstance(first, bool) == isinstance(second, bool) and first == second


def equality_key(value: Json) -> Any:
    """Something hashable that two values have in common if, and only if, they are equal as JSON."""
    if isinstance(value, list):
        return tuple(equality_key(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        return frozenset((key, equality_key(item)) for key, item in cast("Schema", value).items())
    return isinstance(value, bool), value


def admits_null(root: Schema, schema: Any) -> bool:
    """May the value be null? An honest "do not know" counts as yes."""
    return null_verdict(root, schema) is not False


def null_verdict(root: Schema, schema: Any, known: dict[str, bool | None] | None = None, depth: int = 0) -> bool | None:
    """May the value be null: yes, no, or not plain to see. Each reference is followed once, and its answer kept."""
    node = as_schema(schema)
    if depth > MAX_DEPTH:
        return None
    if node is None:
        return schema if isinstance(schema, bool) else None
    if node.get("nullable") is True:  # OpenAPI's word, and what `fit.py` writes where a provider wants it
        return True
    known = {} if known is None else known
    verdicts: list[bool | None] = [None] if "if" in node else []
    if types := types_of(node):
        verdicts.append("null" in types)
    if isinstance(listed := node.get("enum"), list):
        verdicts.append(None in cast("list[Any]", listed))
    if "const" in node:
        verdicts.append(node["const"] is None)
    if "not" in node:
        inside = null_verdict(root, node["not"], known, depth + 1)
        verdicts.append(None if inside is None else not inside)
    if isinstance(ref := node.get("$ref"), str):
        if ref not in known:
            known[ref] = None
            known[ref] = null_verdict(root, resolve(root, ref), known, depth + 1)
        verdicts.append(known[ref])
    for key, judge in (("anyOf", _any_is), ("oneOf", _exactly_one), ("allOf", _all_are)):
        if branches := list_of(node.get(key)):
            verdicts.append(judge([null_verdict(root, branch, known, depth + 1) for branch in branches]))
    return _all_are(verdicts)


def _all_are(verdicts: list[bool | None]) -> bool | None:
    return False if False in verdicts else None if None in verdicts else True


def _any_is(verdicts: list[bool | None]) -> bool | None:
    return True if True in verdicts else None if None in verdicts else False


def _exactly_one(verdicts: list[bool | None]) -> bool | None:
    yes = verdicts.count(True)
    return False if yes > 1 else None if None in verdicts else yes == 1
