"""Say how much work it is to check a value against a schema, before that work is done.

A validator visits a part of the value once for every path through the schema that leads to it. Definitions that each
refer to the previous one twice double the visits per level, so a schema of 2 KB can keep a validator busy for years. The
validator runs on the event loop and cannot be stopped, and both the schema and the value may come from a stranger.

    state   the schema objects that apply to one part of a value, each with the number of paths that lead to it.
            References, `allOf`, `anyOf` and the like stay at the same part and are followed at once.
    step    a property or an item leads from one state to the next. States are kept, so a repeated step costs nothing.

The visits to a value are the weights of its states, added up: one pass, whatever the multiplicities are. For most schemas
the largest weight that any state can have is known after compiling (`factor`), and no pass is needed.

Where it matters the count is an upper bound: every branch counts, taken or not. Nothing here judges a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final, TypeAlias, cast, final

from trimaran.errors import DeclarationError
from trimaran.format.trees import Schema, as_schema, list_of

from .references import References

_MULTIPLE: Final = 1 << 40  # where multiplicities stop: far past any budget, and cheap to add
# Steps of the analysis when compiling, some 2 us each. A schema that needs more is looked at value by value.
_MAX_STEPS: Final = 20_000
# The most entries of all remembered states. Unusual values make ever new ones.
_MAX_KEPT: Final = 200_000
# Which keywords hold schemas, and for what: the same part of the value, its items, or its members.
_LISTS: Final = {
    "allOf": "same_part",
    "anyOf": "same_part",
    "oneOf": "same_part",
    "prefixItems": "prefix",
    "items": "prefix",
}
_SINGLES: Final = {
    "not": "same_part",
    "if": "same_part",
    "then": "same_part",
    "else": "same_part",
    "items": "other_items",
    "additionalItems": "other_items",
    "unevaluatedItems": "other_items",
    "contains": "every_item",
    "additionalProperties": "other_keys",
    "unevaluatedProperties": "other_keys",
    "propertyNames": "keys",
}
_MAPS: Final = {"patternProperties": "every_key", "dependentSchemas": "same_part", "dependencies": "same_part"}
_DEEP: Final = frozenset(
    (
        "properties",
        *(key for table in (_LISTS, _SINGLES, _MAPS) for key, role in table.items() if role != "same_part"),
    )
)
_REFERENCES: Final = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
# A schema object with none of these is a leaf, and all leaves cost the same.
_LEADING: Final = _DEEP | _REFERENCES | {"enum", "pattern", "required", *_LISTS, *_SINGLES, *_MAPS}
# jsonschema-rs checks the branches again for each of these, measured as a factor of 2.7 per level.
_AGAIN: Final = frozenset(("unevaluatedProperties", "unevaluatedItems"))
_AGAIN_FACTOR: Final = 3
# Comparing with an object or array in `enum`, in visits.
_COMPARISON: Final = 10

# A pattern costs at most some 6 ns per character and state, and a visit 25 ns.
_STATES_PER_VISIT: Final = 4
# Look-around and back references backtrack, up to the limit that the validator sets; it costs about as much as this.
_FANCY: Final = re.compile(r"\(\?<?[=!]|\\[1-9]|\\k<")
_FANCY_SIZE: Final = 300
# This much compiles in some 50 ms.
_MAX_PATTERN_SIZE: Final = 200_000
_UNICODE_CLASS: Final = 300
_TOKENS: Final = re.compile(
    r"(?P<unicode>\\[pP]\{[^}]*\}|\\[pP].)|(?P<atom>\\.|\[(?:\\.|[^\]\\])*\]?)|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}"
    r"|(?P<open>\()|(?P<close>\))|(?P<other>.)",
    re.DOTALL,
)


def pattern_size(pattern: str) -> int:
    """About how many states a regular expression compiles to; `(a{100}){100}` is 10,000."""
    groups = [0]
    last = 0
    for token in _TOKENS.finditer(pattern):
        kind = token.lastgroup
        if kind in ("least", "most"):
            most = token["most"] or token["least"]
            # int() of a text with thousands of digits is slow, and Python refuses it in the end.
            groups[-1] += last * (min(int(most[:9]), _MULTIPLE) - 1) if len(most) < 9 else _MULTIPLE
            last = 0
            continue
        if kind == "open":
            groups.append(0)
            continue
        if kind == "close" and len(groups) > 1:
            last = groups.pop()
        else:
            last = _UNICODE_CLASS * (1 + token[0].count("\\p")) if kind == "unicode" or "\\p" in token[0] else 1
        groups[-1] = min(groups[-1] + last, _MULTIPLE)
    size = sum(groups)
    return max(size, _FANCY_SIZE) if _FANCY.search(pattern) else size


def check_patterns(schema: Any) -> None:
    """Refuse a schema whose regular expressions are too large to compile: `(a{100}){100}` has 10,000 states."""
    size = 0
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += cast("list[Any]", node)
        elif isinstance(node, dict):
            members = cast("Schema", node)
            waiting += members.values()
            patterns = [members.get("pattern"), *(as_schema(members.get("patternProperties")) or ())]
            size += sum(pattern_size(pattern) for pattern in patterns if isinstance(pattern, str))
    if size > _MAX_PATTERN_SIZE:
        raise DeclarationError(
            f"the regular expressions of the JSON Schema have some {size:,} states, and {_MAX_PATTERN_SIZE:,} is the "
            "limit: use smaller repetitions"
        )


@final
class _Node:
    """One schema object: its own cost, and the schemas that it applies."""

    __slots__ = (
        "characters",
        "every_item",
        "every_key",
        "is_deep",
        "is_union",
        "keys",
        "other_items",
        "other_keys",
        "paths",
        "prefix",
        "properties",
        "same_part",
        "weight",
    )

    def __init__(self) -> None:
        self.weight = 1
        self.characters = 0
        """The size of its pattern."""
        self.paths = 1
        """How often each of `same_part` is visited."""
        self.is_union = False
        self.is_deep = False
        """Whether it, or a schema for the same value, has rules for the parts inside."""
        self.same_part: list[_Node] = []
        self.properties: dict[str, _Node] = {}
        self.other_keys: list[_Node] = []
        self.every_key: list[_Node] = []
        self.keys: list[_Node] = []
        """For the keys themselves, as strings."""
        self.prefix: list[_Node] = []
        self.other_items: list[_Node] = []
        self.every_item: list[_Node] = []

    def following(self, step: str | int | None) -> Iterable[_Node]:
        """The schemas for a property, for an item by its index, or (None) for the keys."""
        if step is None:
            return self.keys
        if isinstance(step, int):
            rest = [self.prefix[step]] if step < len(self.prefix) else self.other_items
            return [*self.every_item, *rest]
        named = self.properties.get(step)
        return [*self.every_key, *(self.other_keys if named is None else [named])]


@final
class _State:
    __slots__ = ("characters", "names", "nodes", "prefix", "steps", "weight")

    def __init__(self, nodes: dict[_Node, int]) -> None:
        self.nodes = nodes
        self.steps: dict[str | int | None, _State] = {}
        self.weight = sum(node.weight * count for node, count in nodes.items())
        self.characters = sum(node.characters * count for node, count in nodes.items())
        self.names = frozenset(chain.from_iterable(node.properties for node in nodes))
        self.prefix = max((len(node.prefix) for node in nodes), default=0)


@final
class Workload:
    """The cost of applying a schema.

    Raises:
        DeclarationError: a part of the schema refers to itself without going deeper into the value.
    """

    factor: int | None
    """The most visits to one part of any value; None where it depends on the value."""
    characters: int
    """The same for each character of a string, in sizes of patterns."""
    has_wide_union: bool
    """May a whole object or array fail under `anyOf` or `oneOf`? Explaining that costs as much as checking it."""

    def __init__(self, schema: Schema | bool) -> None:
        nodes = _Nodes(schema)
        self._start: _Seeds = frozenset({(nodes.root, 1)})
        self.has_wide_union = nodes.has_wide_union()
        self._forget()
        self.factor, self.characters = self._largest()

    def at_most(self, parts: int, length: int) -> int:
        """The most visits to any value with this many parts and characters, if there is a `factor`."""
        return (self.factor or 0) * parts + self.characters * length // _STATES_PER_VISIT

    def most_per_character(self) -> int | None:
        return None if self.factor is None else self.factor + self.characters + 1

    def of(self, value: Any, budget: int) -> int:
        """The visits to this value, or some number over the budget."""
        if self._state_size > _MAX_KEPT:
            self._forget()
        total = 0
        waiting: list[tuple[Any, _State]] = [(value, self._root)]
        while waiting and total <= budget:
            part, state = waiting.pop()
            steps = self._steps
            if isinstance(part, dict | list | tuple) and (total := total + len(cast("list[Any]", part))) > budget:
                break
            if isinstance(part, str):
                total += state.characters * len(part) // _STATES_PER_VISIT
            elif isinstance(part, dict):
                members = cast("dict[str, Any]", part)
                keys = self._step(state, None)
                length = sum(map(len, members)) if keys.characters else 0
                total += keys.weight * len(members) + keys.characters * length // _STATES_PER_VISIT
                for name, inner in members.items():
                    waiting.append((inner, self._step(state, name if name in state.names else "")))
            elif isinstance(part, list | tuple):
                for number, inner in enumerate(cast("list[Any]", part)):
                    waiting.append((inner, self._step(state, min(number, state.prefix))))
            total += state.weight + self._steps - steps
        return total

    def _forget(self) -> None:
        self._states: dict[_Seeds, _State] = {}
        self._state_size = self._steps = 0
        self._root = self._state(self._start)

    def _largest(self) -> tuple[int | None, int]:
        """The largest weights of any state; None where the states do not come to an end soon."""
        waiting = [self._root]
        seen = {self._root}
        weight = characters = 0
        while waiting:
            state = waiting.pop()
            weight, characters = max(weight, state.weight), max(characters, state.characters)
            for step in chain(("", None), state.names, range(state.prefix + 1)):
                following = self._step(state, step)
                if self._steps > _MAX_STEPS or weight > _MAX_STEPS:
                    return None, characters
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return weight, characters

    def _step(self, state: _State, step: str | int | None) -> _State:
        following = state.steps.get(step)
        if following is None:
            seeds: dict[_Node, int] = {}
            for node, count in state.nodes.items():
                for child in node.following(step):
                    seeds[child] = min(seeds.get(child, 0) + count, _MULTIPLE)
            following = state.steps[step] = self._state(frozenset(seeds.items()))
            self._steps += 1 + len(state.nodes)
        return following

    def _state(self, seeds: _Seeds) -> _State:
        state = self._states.get(seeds)
        if state is None:
            state = self._states[seeds] = _State(_closed(dict(seeds)))
            self._steps += len(state.nodes)
            self._state_size += 1 + len(state.nodes)
        return state


_Seeds: TypeAlias = frozenset[tuple[_Node, int]]


def _closed(counts: dict[_Node, int]) -> dict[_Node, int]:
    """These nodes and all that applies to the same part of the value, each with its number of paths."""
    for node in reversed(_postorder(counts)):
        paths = counts[node] * node.paths
        for inner in node.same_part:
            counts[inner] = min(counts.get(inner, 0) + paths, _MULTIPLE)
    return counts


def _postorder(nodes: Iterable[_Node]) -> list[_Node]:
    """All schemas for the same value, each after the schemas that it applies."""
    order: dict[_Node, None] = {}
    under_way: set[_Node] = set()
    waiting = [(node, False) for node in nodes]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            order[node] = None
            under_way.discard(node)
        elif node in under_way:
            raise DeclarationError(
                "the JSON Schema refers to itself without going deeper into the value, so checking it has no end: "
                "put the reference under 'properties' or 'items'"
            )
        elif node not in order:
            under_way.add(node)
            waiting.append((node, True))
            waiting += [(inner, False) for inner in node.same_part if inner not in order]
    return list(order)


@final
class _Nodes:
    """The objects of a schema, with their references followed."""

    def __init__(self, schema: Schema | bool) -> None:
        self._references = References(as_schema(schema) or {})
        self._leaf = _Node()
        self._known: dict[tuple[int, str], _Node] = {}
        self._unread: list[tuple[_Node, Schema, str]] = []
        self.root = self._node(schema, "")
        while self._unread:
            self._read(*self._unread.pop())
        self._order = _postorder([self.root, *self._known.values()])
        for node in self._order:
            node.is_deep = node.is_deep or any(inner.is_deep for inner in node.same_part)

    def has_wide_union(self) -> bool:
        return any(node.is_union and node.is_deep for node in self._order)

    def _node(self, schema: Any, base: str) -> _Node:
        members = as_schema(schema)
        if members is None or _LEADING.isdisjoint(members):
            return self._leaf
        node = self._known.get((id(members), base))
        if node is None:
            node = self._known[id(members), base] = _Node()
            self._unread.append((node, members, base))
        return node

    def _read(self, node: _Node, schema: Schema, base: str) -> None:
        if "$id" in schema or "id" in schema:
            base = self._references.base_of(schema, base)
        for keyword, value in schema.items():
            if (lists := _LISTS.get(keyword)) is not None and isinstance(value, list):
                getattr(node, lists).extend(self._all(cast("list[Any]", value), base))
            elif (singles := _SINGLES.get(keyword)) is not None and isinstance(value, dict | bool):
                getattr(node, singles).append(self._node(value, base))
            elif (maps := _MAPS.get(keyword)) is not None and isinstance(value, dict):
                getattr(node, maps).extend(self._all(cast("Schema", value).values(), base))
            elif keyword == "properties" and isinstance(value, dict):
                node.properties = {name: self._node(inner, base) for name, inner in cast("Schema", value).items()}
                node.weight += len(node.properties) // 8
        self._weigh(node, schema)
        if not _REFERENCES.isdisjoint(schema):
            node.same_part += [self._node(*target) for target in self._references.targets(schema, base)]
        node.is_deep = not _DEEP.isdisjoint(schema)

    def _weigh(self, node: _Node, schema: Schema) -> None:
        node.is_union = "anyOf" in schema or "oneOf" in schema
        node.weight += len(list_of(schema.get("required"))) // 8
        node.weight += sum(_COMPARISON for value in list_of(schema.get("enum")) if isinstance(value, dict | list))
        if isinstance(pattern := schema.get("pattern"), str):
            node.characters = pattern_size(pattern)
        for pattern in as_schema(schema.get("patternProperties")) or ():
            matcher = _Node()
            matcher.characters = pattern_size(pattern)
            node.keys.append(matcher)
        if not _AGAIN.isdisjoint(schema):
            node.paths = _AGAIN_FACTOR

    def _all(self, schemas: Iterable[Any], base: str) -> Iterable[_Node]:
        return (self._node(schema, base) for schema in schemas if isinstance(schema, dict | bool))
