"""Make a schema fit a provider: "exact" where that loses nothing, "loose" where the provider leaves no other way.

The promise, with `S` the tool's schema and `F` what is made of it:

    exact   F admits the same arguments as S. References are written out, `const` becomes `enum`, `allOf` is merged,
            `oneOf` becomes `anyOf` where no value fits two branches, a list of types becomes `anyOf` or `nullable`.
            An argument whose name is refused has another, and `restore_arguments` undoes that (`properties.py`).
    loose   F admits what S admits, and perhaps more. Each rule that had to go is said in the description instead, and
            listed in `lost`. The server checks arguments in any case, so a model is at worst told off.

Never is F narrower: no argument a tool takes becomes unsayable. A part that fits neither promise stays as it is and
is in `left`. Two conventions: an object that lists properties and does not speak of others is as good as one that forbids
them, since no model invents properties it was not told of; and where a provider wants every property required (openai-strict),
an optional one is required and may be null, which `restore_arguments` undoes in the call that comes back.

A schema in which the provider finds nothing comes back as the same object.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias, cast, final

import msgspec
from msgspec import Struct

from trimaran.types import Json

from .merge import ANY_TYPE, DECIDES, FOR_TYPE, are_disjoint, merge
from .profiles import Profile, profile_named
from .properties import rename_properties, safe_properties
from .rules import Finding, check_schema, knows
from .trees import (
    MAX_DEPTH,
    Path,
    Recursion,
    Schema,
    admits_null,
    as_schema,
    children,
    equality_key,
    kind_of,
    list_of,
    null_verdict,
    path_text,
    rebuild,
    resolve,
    same,
    size_fault,
    strings_of,
    types_of,
)

Fit: TypeAlias = Literal["exact", "loose", "auto"] | None
"""How far a schema may be changed for a provider. "auto" is loose only where exact is not enough; None: not at all."""

# Written-out references multiply: ten levels of two references each are a thousand copies. No provider takes as many.
_MOST_NODES: Final = 2_000
# A rule in a description is for a model to read; a longer one would bury the author's text.
_LONGEST_NOTE: Final = 300

# Where a schema that admits more makes the whole admit less.
_CONTRARY: Final = frozenset(("not", "if", "contains"))
_TOLD: Final = frozenset(("default", "examples", "format"))
# The values that mean the same as leaving the keyword out.
_IDLE: Final[dict[str, tuple[Json, ...]]] = {
    "minItems": (0,),
    "minLength": (0,),
    "minProperties": (0,),
    "uniqueItems": (False,),
    "required": ([],),
    "additionalItems": (True, {}),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "patternProperties": ({},),
    "propertyNames": (True, {}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "allOf": ([],),
}


@final
class Fitted(Struct, frozen=True):
    """A schema made to fit."""

    schema: Schema
    changes: list[str]
    """Changes without loss, each with its place."""
    lost: list[Finding]
    """Rules that the schema has lost. Only with a loose fit."""
    left: list[Finding]
    """Rules that the provider would still refuse or ignore."""


def fit_up_to(schema: Schema, profile: str | Profile, fit: Fit) -> Fitted:
    """As `fit_schema`, as far as `fit` lets it."""
    chosen = profile_named(profile)
    if fit is None:
        return Fitted(schema, [], [], check_schema(schema, chosen))
    fitted = fit_schema(schema, chosen, loose=fit == "loose")
    if fit == "auto" and any(finding.weight == "refused" for finding in fitted.left):
        return fit_schema(schema, chosen, loose=True)
    return fitted


def fit_schema(schema: Schema, profile: str | Profile, *, loose: bool = False) -> Fitted:
    """The schema as this provider takes it, as far as that can be done."""
    chosen = profile_named(profile)
    findings = check_schema(schema, chosen)
    if not findings or size_fault(schema) is not None:
        return Fitted(schema, [], [], findings)
    work = _Fit(schema, chosen, loose=loose)
    fitted = work.run()
    if same(fitted, schema):
        return Fitted(schema, [], [], findings)
    return Fitted(fitted, work.changes, work.lost, check_schema(fitted, chosen))


class _Fit:
    def __init__(self, schema: Schema, profile: Profile, *, loose: bool) -> None:
        self._root = copy.deepcopy(schema)
        self._profile = profile
        self._loose = loose
        self._nodes = 0
        self._recursion = Recursion(self._root)
        self.changes: list[str] = []
        self.lost: list[Finding] = []

    def run(self) -> Schema:
        pattern = self._profile.property_pattern
        names = {} if pattern is None else safe_properties(self._root, pattern)
        self._modern_definitions()
        fitted = self._node((), self._top(self._root), ())
        return self._with_names(self._without_spare_definitions(fitted), names)

    def _with_names(self, root: Schema, names: dict[str, str]) -> Schema:
        """Arguments under names that the provider takes."""
        properties = as_schema(root.get("properties")) or {}
        for name in sorted(names.keys() & properties.keys()):
            self._changed(("properties", name), f"called {names[name]}")
            if (node := as_schema(properties[name])) is not None:
                properties = {**properties, name: {**node}}
                _tell(properties[name], f"the tool calls it {name}")
        return rename_properties({**root, "properties": properties}, names) if names else root

    def _knows(self, key: str, path: Path) -> bool:
        return knows(self._profile, key, at_root=not path)

    def _changed(self, path: Path, change: str) -> None:
        self.changes.append(f"{path_text(path)}: {change}")

    def _lose(self, path: Path, node: Schema, key: str, problem: str = "") -> None:
        """Take a rule out of a node, into its description."""
        value = node.pop(key)
        self.lost.append(
            Finding(
                path=path_text((*path, key)),
                rule=key,
                problem=problem or f"{key} cannot be said to this provider",
                remedy="the description says it, and the server checks it",
                weight="ignored",
                profile=self._profile.name,
            )
        )
        _tell(node, f"{key}: {_short(value)}")

    # --- the top ------------------------------------------------------------------------------------------------------

    def _modern_definitions(self) -> None:
        """`definitions` is the older name of `$defs`."""
        root = self._root
        old = as_schema(root.get("definitions"))
        if old is None or self._knows("definitions", ()) or not self._knows("$ref", ()):
            return
        new = as_schema(root.get("$defs")) or {}
        if old.keys() & new.keys():
            return
        del root["definitions"]
        root["$defs"] = {**old, **new}
        for node in _nodes(root):
            ref = node.get("$ref")
            if isinstance(ref, str) and ref.startswith("#/definitions/"):
                node["$ref"] = "#/$defs/" + ref.removeprefix("#/definitions/")
        self._changed(("definitions",), "renamed to $defs")

    def _top(self, root: Schema) -> Schema:
        """The top as MCP and every provider want it: one object that lists its properties."""
        root = dict(root)
        target = as_schema(resolve(self._root, root.get("$ref")))
        if target is not None and "type" not in root and target is not self._root:
            siblings = {key: value for key, value in root.items() if key != "$ref"}
            if (merged := merge(siblings, target)) is not None:
                root = merged
                self._changed(("$ref",), "written out")
        if "type" not in root:
            root["type"] = "object"
            self._changed((), "said to be an object")
        if self._loose:
            for key in ("allOf", "anyOf", "oneOf"):
                if key in root and not self._knows(key, ()):
                    root = self._flatten(root, key)
        if self._profile.root_lists_properties and not isinstance(root.get("properties"), dict):
            root["properties"] = {}
            self._changed((), "said to have no properties")
        return root

    def _flatten(self, root: Schema, key: str) -> Schema:
        """One object that admits what any of the branches admits: their properties together, required if they all agree."""
        branches = [self._seen_through(branch) for branch in list_of(root[key])]
        if key == "allOf":
            merged: Schema | None = {k: v for k, v in root.items() if k != key}
            for branch in branches:
                merged = merge(merged, branch) if merged is not None and "$ref" not in branch else None
            if merged is not None:
                self._changed((key,), "merged")
                return merged
        reduced = {k: v for k, v in root.items() if k not in (key, "additionalProperties", "unevaluatedProperties")}
        # The description at the top holds for every branch; by the convention above, a property that only some branches
        # describe is not anything at all in the others.
        offered: dict[str, list[Any]] = {}
        for branch in branches:
            for name, schema in (as_schema(branch.get("properties")) or {}).items():
                offered.setdefault(name, []).append(schema)
        reduced["properties"] = {
            **{name: _any_of(schemas) for name, schemas in offered.items()},
            **(as_schema(reduced.get("properties")) or {}),
        }
        every = [set(strings_of(branch.get("required"))) for branch in branches]
        shared = set[str]().union(*every) if key == "allOf" else set[str].intersection(*every) if every else set[str]()
        required = [*strings_of(reduced.get("required")), *sorted(shared)]
        if required:
            reduced["required"] = list(dict.fromkeys(required))
        word = {"allOf": "all", "anyOf": "at least one", "oneOf": "exactly one"}[key]
        groups = [
            ", ".join(strings_of(branch.get("required")) or (as_schema(branch.get("properties")) or {}))
            for branch in branches
        ]
        _tell(reduced, f"{word} of: {' | '.join(group or 'anything' for group in groups)}"[:_LONGEST_NOTE])
        self.lost.append(
            Finding(
                path=path_text((key,)),
                rule=key,
                problem=f"{key} cannot stand at the top: the properties of its branches are offered together",
                remedy="the description says which go together, and the server checks it",
                weight="ignored",
                profile=self._profile.name,
            )
        )
        return reduced

    def _seen_through(self, schema: Any) -> Schema:
        """A branch, or the target of its reference."""
        node = as_schema(schema) or {}
        if node.keys() == {"$ref"}:
            return as_schema(resolve(self._root, node["$ref"])) or node
        return node

    def _without_spare_definitions(self, root: Schema) -> Schema:
        used = {str(node["$ref"]).split("/")[1] for node in _nodes(root) if str(node.get("$ref")).startswith("#/")}
        spare = [key for key in ("$defs", "definitions") if key in root and key not in used]
        return {key: value for key, value in root.items() if key not in spare}

    # --- one node -----------------------------------------------------------------------------------------------------

    def _node(self, path: Path, schema: Any, stack: tuple[str, ...]) -> Any:
        if schema is True and self._profile.keywords is not None and path[-1] not in ("additionalProperties", "items"):
            self._changed(path, "may be anything, and says so")
            return {}
        node = as_schema(schema)
        if node is None:
            return schema
        self._nodes += 1
        node, stack = self._written_out(path, dict(node), stack)
        for step in (self._drafts, self._one_of, self._types, self._tuples):
            node = step(path, node)

        def inside(steps: Path, child: Any) -> Any:
            # The value of a keyword that the provider does not take goes, or stays, as a whole.
            if not self._knows(str(steps[0]), path):
                return child
            loose, self._loose = self._loose, self._loose and steps[0] not in _CONTRARY
            fitted = self._node((*path, *steps), child, () if steps[0] in ("$defs", "definitions") else stack)
            self._loose = loose
            return fitted

        lost = len(self.lost)
        node = rebuild(node, inside)
        if len(self.lost) > lost and "oneOf" in node and "anyOf" not in node:
            # A branch that admits more than it did may now admit what another does.
            node = _renamed(node, "oneOf", "anyOf")
        for step in (
            self._nulls,
            self._values,
            self._bounds,
            self._objects,
            self._arrays,
            self._describe_rest,
            self._spare,
        ):
            node = step(path, node)
        return node

    def _written_out(self, path: Path, node: Schema, stack: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
        """References and `allOf` as one schema, where the provider cannot have them as they are."""
        while True:
            if "$ref" in node and self._must_inline(path, node):
                ref = str(node["$ref"])
                target = as_schema(resolve(self._root, ref))
                full = self._nodes > _MOST_NODES or len(path) > MAX_DEPTH
                if target is None or full or self._is_endless(ref, stack):
                    return node, stack
                siblings = {key: value for key, value in node.items() if key != "$ref"}
                merged = merge(siblings, target)
                node = merged if merged is not None else {"allOf": [target, siblings]}
                stack = (*stack, ref)
                self._changed((*path, "$ref"), "written out")
                continue
            merged, stack = self._merged(path, node, stack)
            if merged is None:
                return node, stack
            node = merged

    def _is_endless(self, ref: str, stack: tuple[str, ...]) -> bool:
        """Would writing this out come back to it? Once is no harm where `$ref` is taken, or where the rest may be cut."""
        if not self._recursion.is_recursive(ref):
            return False
        return ref in stack or not (self._loose or self._knows("$ref", ()))

    def _must_inline(self, path: Path, node: Schema) -> bool:
        if not self._knows("$ref", path):
            return True
        if self._profile.ref_siblings:
            return False
        return any(not key.startswith("$") for key in node)

    def _merged(self, path: Path, node: Schema, stack: tuple[str, ...]) -> tuple[Schema | None, tuple[str, ...]]:
        """A node with its `allOf` merged into it, or None if that must not or cannot be."""
        listed: Any = node.get("allOf")
        if not isinstance(listed, list):
            return None, stack
        branches = [as_schema(branch) for branch in cast("list[Any]", listed)]
        holds_refs = any("$ref" in branch for branch in branches if branch is not None)
        if self._knows("allOf", path) and (self._profile.all_of_refs or not holds_refs):
            return None, stack
        result: Schema = {key: value for key, value in node.items() if key != "allOf"}
        for branch in branches:
            if branch is not None and isinstance(ref := branch.get("$ref"), str):
                target = as_schema(resolve(self._root, ref))
                if target is None or self._recursion.is_recursive(ref):
                    return None, stack
                stack = (*stack, ref)
                branch = merge({key: value for key, value in branch.items() if key != "$ref"}, target)
            merged = None if branch is None else merge(result, branch)
            if merged is None:
                return None, stack
            result = merged
        self._changed((*path, "allOf"), "merged")
        return result, stack

    def _drafts(self, path: Path, node: Schema) -> Schema:
        """Keywords that drafts before 2020-12 wrote otherwise."""
        if isinstance(node.get("items"), list):
            node["prefixItems"] = node.pop("items")
            if "additionalItems" in node:
                node["items"] = node.pop("additionalItems")
            self._changed((*path, "items"), "a list of items is called prefixItems now")
        for key, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(node.get(key), bool):
                if node.pop(key) and limit in node:
                    node[key] = node.pop(limit)
                self._changed((*path, key), "a boolean there is of an older draft")
        return node

    def _one_of(self, path: Path, node: Schema) -> Schema:
        if (
            not list_of(node.get("oneOf"))
            or self._knows("oneOf", path)
            or not self._knows("anyOf", path)
            or "anyOf" in node
        ):
            return node
        branches = [self._seen_through(branch) for branch in list_of(node["oneOf"])]
        if are_disjoint(branches):
            self._changed((*path, "oneOf"), "became anyOf: no value fits two of its branches")
        elif self._loose:
            self.lost.append(
                Finding(
                    path=path_text((*path, "oneOf")),
                    rule="oneOf",
                    problem="oneOf became anyOf: a value may fit several branches",
                    remedy="the server checks it",
                    weight="ignored",
                    profile=self._profile.name,
                )
            )
        else:
            return node
        return _renamed(node, "oneOf", "anyOf")

    def _types(self, path: Path, node: Schema) -> Schema:
        """A list of types, for providers that take one type only."""
        if self._profile.type_lists or not isinstance(node.get("type"), list):
            return node
        types = types_of(node)
        values: Any = node.get("enum")
        listed = cast("list[Any]", values) if isinstance(values, list) else None
        named = [kind for kind in types if kind != "null" and (listed is None or any(_is_of(v, kind) for v in listed))]
        null = "null" in types and null_verdict(self._root, {key: node[key] for key in node if key != "type"})
        if null is None:
            return node
        if not named and "null" not in types:
            return node  # nothing fits it, in whatever words
        if not named:
            node["type"] = "null"
        elif len(named) == 1:
            node["type"] = named[0]
        elif "anyOf" in node:
            return node
        else:
            node = self._type_by_type(node, named)
        if null and named:
            node["nullable"] = True
        self._changed((*path, "type"), "a list of types was taken apart")
        return node

    def _type_by_type(self, node: Schema, named: list[str]) -> Schema:
        outer = {key: value for key, value in node.items() if key not in DECIDES and key != "format"}
        branches: list[Schema] = []
        for kind in named:
            own_keys = FOR_TYPE.get(kind, set[str]()) | (ANY_TYPE - {"type"})
            branch: Schema = {"type": kind, **{key: value for key, value in node.items() if key in own_keys}}
            if isinstance(values := branch.get("enum"), list):
                branch["enum"] = [v for v in cast("list[Any]", values) if _is_of(v, kind)]
            branches.append(branch)
        return {**outer, "anyOf": branches}

    def _tuples(self, path: Path, node: Schema) -> Schema:
        """`prefixItems` as `items`: the same if all are alike and nothing follows."""
        listed: Any = node.get("prefixItems")
        if not isinstance(listed, list) or not listed or self._knows("prefixItems", path):
            return node
        first = cast("list[Any]", listed)
        rest: Any = node.get("items", True)
        most: Any = len(first) if rest is False else node.get("maxItems")
        ends = kind_of(most) == "integer" and most <= len(first)
        alike = all(same(item, first[0]) for item in first) and (ends or same(rest, first[0]))
        if alike and (not ends or self._knows("maxItems", path)):
            array = {key: value for key, value in node.items() if key != "prefixItems"}
            array["items"] = first[0]
            if ends:
                array["maxItems"] = min(most, node["maxItems"]) if kind_of(node.get("maxItems")) == "integer" else most
            self._changed((*path, "prefixItems"), "all alike, so it became items")
            return array
        if not self._loose:
            return node
        node = dict(node)
        if ends or as_schema(rest):
            node["items"] = _any_of([*first, *([] if ends else [rest])])
        self._lose(path, node, "prefixItems")
        return node

    def _nulls(self, path: Path, node: Schema) -> Schema:
        """Null as OpenAPI says it."""
        if self._profile.keywords is None or "nullable" not in self._profile.keywords:
            return node
        branches, values = list_of(node.get("anyOf")), list_of(node.get("enum"))
        some = [branch for branch in branches if not _is_just_null(branch)]
        in_branches, in_values = 0 < len(some) < len(branches), len(values) > 1 and None in values
        null = null_verdict(self._root, node) if in_branches or in_values else None
        if null is None:
            return node
        if in_branches:
            rest = {key: value for key, value in node.items() if key != "anyOf"}
            only = merge(rest, some[0]) if len(some) == 1 and as_schema(some[0]) is not None else None
            node = only if only is not None else {**rest, "anyOf": some}
            self._changed((*path, "anyOf"), "null became nullable")
        if in_values:
            node["enum"] = [value for value in list_of(node.get("enum")) if value is not None]
            self._changed((*path, "enum"), "null became nullable")
        if null and not admits_null(self._root, node):
            node["nullable"] = True
        return node

    def _values(self, path: Path, node: Schema) -> Schema:
        profile = self._profile
        kinds = profile.enum_kinds
        if "const" in node and not self._knows("const", path) and "enum" not in node:
            if kinds is None or kind_of(node["const"]) in kinds:
                node["enum"] = [node.pop("const")]
                self._changed((*path, "const"), "became enum")
            elif node["const"] is None and types_of(node) in ((), ("null",)):
                node["type"] = "null"
                del node["const"]
                self._changed((*path, "const"), "became the type null")
        values = [node["const"]] if "const" in node and "enum" not in node else list_of(node.get("enum"))
        if profile.needs_type and values and "type" not in node:
            types = {kind_of(value) for value in values}
            if "number" in types:
                types.discard("integer")
            if len(types) == 1 or profile.type_lists:
                node["type"] = types.pop() if len(types) == 1 else sorted(types)
                self._changed(path, "said to be of the type of its values")
        if self._loose and kinds is not None and "enum" in node and not {kind_of(v) for v in values} <= kinds:
            self._lose(path, node, "enum")
        return node

    def _bounds(self, path: Path, node: Schema) -> Schema:
        """For whole numbers, "more than 0" is "at least 1"."""
        if types_of(node) != ("integer",):
            return node
        for key, limit, step, choose in (
            ("exclusiveMinimum", "minimum", 1, max),
            ("exclusiveMaximum", "maximum", -1, min),
        ):
            bound: Any = node.get(key)
            if self._knows(key, path) or not self._knows(limit, path):
                continue
            if not {kind_of(bound), kind_of(node.get(limit, 0))} <= {"integer", "number"} or not math.isfinite(bound):
                continue
            whole: int = (math.floor(bound) if step > 0 else math.ceil(bound)) + step
            del node[key]
            node[limit] = choose(whole, node.get(limit, whole))
            self._changed((*path, key), f"became {limit}, the number being whole")
        return node

    def _objects(self, path: Path, node: Schema) -> Schema:
        profile = self._profile
        if "object" not in types_of(node) and "properties" not in node:
            return node
        if not self._knows("additionalProperties", path):
            # See the conventions above: neither invites a model to invent properties.
            if node.get("additionalProperties") in (True, False, {}):
                del node["additionalProperties"]
                self._changed((*path, "additionalProperties"), "left out: no model invents properties")
        elif profile.closed and "additionalProperties" not in node and (node.get("properties") or not path):
            # An object that lists nothing, below the top, is one that takes anything: to close it would empty it.
            node["additionalProperties"] = False
            self._changed(path, "closed")
        properties = as_schema(node.get("properties")) or {}
        required = dict.fromkeys(strings_of(node.get("required")))
        if profile.all_required and (optional := dict.fromkeys(name for name in properties if name not in required)):
            node["properties"] = {
                name: self._or_null(schema) if name in optional else schema for name, schema in properties.items()
            }
            node["required"] = [*required, *optional]
            self._changed(path, f"{', '.join(optional)} required, and null if not given")
        return node

    def _or_null(self, schema: Any) -> Any:
        node = as_schema(schema)
        if node is None or admits_null(self._root, node):
            return schema
        branches: Any = node.get("anyOf")
        if isinstance(branches, list) and not node.keys() & {"type", "enum", "const"}:
            return {**node, "anyOf": [*cast("list[Any]", branches), {"type": "null"}]}
        if types_of(node) and not node.keys() & {"const", "$ref", "anyOf", "oneOf", "allOf"}:
            nullable = {**node, "type": [*types_of(node), "null"]}
            if isinstance(values := node.get("enum"), list):
                nullable["enum"] = [*cast("list[Any]", values), None]
            return nullable
        texts = {key: node[key] for key in ("title", "description") if key in node}
        return {"anyOf": [{k: v for k, v in node.items() if k not in texts}, {"type": "null"}], **texts}

    def _arrays(self, path: Path, node: Schema) -> Schema:
        profile = self._profile
        if (
            profile.needs_items
            and "array" in types_of(node)
            and node.get("items", True) is True
            and not profile.needs_type
        ):
            node["items"] = {}
            self._changed(path, "items may be anything, and says so")
        least = node.get("minItems")
        if self._loose and profile.few_items and isinstance(least, int) and least > 1:
            self._lose(path, node, "minItems")
            node["minItems"] = 1
        return node

    def _describe_rest(self, path: Path, node: Schema) -> Schema:
        """Move rules that help a model into the description, if the provider has no other place for them."""
        formats, declared = self._profile.formats, node.get("format")
        if formats is not None and isinstance(declared, str) and declared not in formats:
            _tell(node, f"format: {node.pop('format')}")
            self._changed((*path, "format"), "said in the description")
        examples: Any = node.get("examples")
        if (
            isinstance(examples, list)
            and examples
            and self._knows("example", path)
            and not self._knows("examples", path)
        ):
            node.setdefault("example", cast("list[Any]", examples)[0])
        for key in sorted(_TOLD & node.keys()):
            if not self._knows(key, path):
                _tell(node, f"{key}: {_short(node.pop(key))}")
                self._changed((*path, key), "said in the description")
        return node

    def _spare(self, path: Path, node: Schema) -> Schema:
        """Keywords the provider does not take: gone if they decide nothing, said in the description if that is allowed."""
        for key in [key for key in node if not self._knows(key, path)]:
            if key in ("$defs", "definitions") and not path:
                continue  # for `_without_spare_definitions`, which sees whether they are referred to
            if key not in DECIDES or any(same(node[key], idle) for idle in _IDLE.get(key, ())):
                del node[key]
                self._changed((*path, key), "left out: it decides nothing")
            elif self._loose and key == "$ref":
                self._cut_recursion(path, node)
            elif self._loose:
                self._lose(path, node, key)
        return node

    def _cut_recursion(self, path: Path, node: Schema) -> None:
        target = as_schema(resolve(self._root, node["$ref"])) or {}
        self._lose(path, node, "$ref", "the schema contains itself, and is not written out further")
        for kind in types_of(target)[:1]:
            node.setdefault("type", kind)


# --- small things ----------------------------------------------------------------------------------------------------


def _nodes(root: Schema) -> Iterator[Schema]:
    waiting: list[Any] = [root]
    while waiting:
        node = as_schema(waiting.pop())
        if node is not None:
            yield node
            waiting.extend(child for _, child in children(node))


def _short(value: Json) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_NOTE else f"{text[:_LONGEST_NOTE]}..."


def _tell(node: Schema, note: str) -> None:
    description = node.get("description")
    node["description"] = f"{description} ({note})" if isinstance(description, str) and description else note


def _is_of(value: Json, type_name: str) -> bool:
    kind = kind_of(value)
    if type_name == "integer" and isinstance(value, float):
        return value.is_integer()
    return kind == type_name or (type_name == "number" and kind == "integer")


def _is_just_null(schema: Any) -> bool:
    node = as_schema(schema) or {}
    return node.get("type") == "null" and node.keys() & DECIDES == {"type"}


def _renamed(node: Schema, old: str, new: str) -> Schema:
    return {(new if key == old else key): value for key, value in node.items()}


def _any_of(schemas: list[Any]) -> Any:
    """One schema for all of these."""
    distinct = list({equality_key(schema): schema for schema in schemas}.values())
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
