"""Hold a schema against a profile: every place the provider would refuse or not heed, and what to do about it.

Pure, and complete rather than quick to give up: all findings of a schema come at once, in the order of the document.
A keyword that is refused is reported once, and what it holds is not looked into.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast, final

from msgspec import Struct

from .profiles import Profile, Weight
from .trees import (
    Path,
    Recursion,
    Schema,
    as_schema,
    children,
    kind_of,
    path_text,
    resolve,
    size_fault,
    strings_of,
    types_of,
)

# Keywords that say the type of a value without `type`; every provider that wants a type takes them instead.
_INSTEAD_OF_TYPE: Final = frozenset(("anyOf", "oneOf", "allOf", "$ref"))
# Keywords that demand nothing of a value: nothing is lost where a provider does not heed them.
_SAYS_NOTHING: Final = frozenset(("$schema", "$id", "$comment", "title", "readOnly", "writeOnly", "deprecated"))
# OpenAI: a single enum with more values than this has a limit on their characters as well.
_LONG_ENUM: Final = 250
_LONG_ENUM_TEXT: Final = 15_000


@final
class Finding(Struct, frozen=True, kw_only=True):
    """One thing about a tool that a provider refuses, or takes and does not heed."""

    tool: str = ""
    """The tool's name; empty where the tools as a whole are meant."""
    path: str
    """Where: a path into the input schema (`$.properties.when.format`), or `name`, `description`, `tools`."""
    rule: str
    """Which rule, in one word that does not change: `keyword`, `root`, `recursion`, ..."""
    problem: str
    remedy: str
    weight: Weight = "refused"
    profile: str = ""

    def __str__(self) -> str:
        tool = f"tool {self.tool!r}, " if self.tool else ""
        return f"{tool}{self.path}: {self.problem}; {self.remedy}"


def knows(profile: Profile, keyword: str, *, at_root: bool = False) -> bool:
    """Whether the provider takes this keyword here."""
    if at_root and keyword in profile.root_refuses:
        return False
    return profile.keywords is None or keyword in profile.keywords


def check_schema(schema: Schema, profile: Profile) -> list[Finding]:
    """Problems that the provider would find in this input schema."""
    return _Check(schema, profile).run()


class _Check:
    def __init__(self, root: Schema, profile: Profile) -> None:
        self._root = root
        self._profile = profile
        self._findings: list[Finding] = []
        self._properties = 0
        self._optional = 0
        self._unions = 0
        self._enum_values = 0
        self._text = 0
        self._recursion = Recursion(root)

    def run(self) -> list[Finding]:
        root, profile = self._root, self._profile
        if (fault := size_fault(root)) is not None:
            self._add((), "nesting", f"the schema {fault}: it is not looked at", "make it smaller and flatter")
            return self._findings
        if root.get("type") != "object":
            self._add((), "root", "the top of the schema is not an object", 'write "type": "object" there')
        elif profile.root_lists_properties and not isinstance(root.get("properties"), dict):
            self._add((), "root", "the top lists no properties", 'write "properties": {} if there are none')
        self._node((), root, 1, optional=False)
        self._totals()
        return self._findings

    def _add(self, path: Path, rule: str, problem: str, remedy: str, weight: Weight = "refused") -> None:
        name = self._profile.name
        self._findings.append(
            Finding(path=path_text(path), rule=rule, problem=problem, remedy=remedy, weight=weight, profile=name)
        )

    # --- one node -----------------------------------------------------------------------------------------------------

    def _node(self, path: Path, schema: Any, level: int, *, optional: bool) -> None:
        node = as_schema(schema)
        if node is None:
            self._not_an_object(path, schema)
            return
        self._keywords(path, node)
        self._drafts(path, node)
        self._type(path, node)
        self._values(path, node)
        self._array(path, node)
        self._object(path, node)
        self._reference(path, node, optional=optional)
        if self._profile.most_levels is not None and "properties" in node and level == self._profile.most_levels + 1:
            self._add(
                path,
                "depth",
                f"more than {self._profile.most_levels} objects stand within each other",
                "make the arguments flatter",
            )
        self._inside(path, node, level, optional=optional)

    def _inside(self, path: Path, node: Schema, level: int, *, optional: bool) -> None:
        required = frozenset(strings_of(node.get("required")))
        for steps, child in children(node):
            key = str(steps[0])
            if not knows(self._profile, key, at_root=not path):
                continue
            if isinstance(child, bool) and key in ("additionalProperties", "items", "unevaluatedProperties"):
                continue
            by_name = key == "properties"
            self._node(
                (*path, *steps),
                child,
                level + 1 if by_name else level,
                optional=optional or (by_name and steps[1] not in required),
            )

    def _not_an_object(self, path: Path, schema: Any) -> None:
        if not isinstance(schema, bool):
            self._add(path, "schema", f"{kind_of(schema)} is no schema", "write a schema there")
        elif self._profile.keywords is not None:
            self._add(path, "boolean", f"the schema is just {str(schema).lower()}", "say what the value may be")

    def _keywords(self, path: Path, node: Schema) -> None:
        profile = self._profile
        for key in node:
            if not path and key in profile.root_refuses:
                self._add(
                    (key,),
                    "root",
                    f"{key} is refused at the top of the schema",
                    "describe all properties in one object, and say in the description which go together",
                )
            elif not knows(profile, key) and not (profile.unknown == "ignored" and key in _SAYS_NOTHING):
                fate = "refused" if profile.unknown == "refused" else "taken but not heeded"
                remedy = "say it in the description; the server checks it all the same"
                self._add((*path, key), "keyword", f"{key} is {fate}", remedy, profile.unknown)

    def _drafts(self, path: Path, node: Schema) -> None:
        """Keywords that older drafts of JSON Schema wrote otherwise, and 2020-12 refuses."""
        if isinstance(node.get("items"), list):
            self._add((*path, "items"), "draft", "a list of items is of an older draft", "call it prefixItems")
        for key in ("exclusiveMinimum", "exclusiveMaximum"):
            if isinstance(node.get(key), bool):
                self._add((*path, key), "draft", "a boolean there is of an older draft", "write the number there")

    def _type(self, path: Path, node: Schema) -> None:
        profile = self._profile
        if isinstance(node.get("type"), list) and not profile.type_lists:
            self._add((*path, "type"), "type", "a list of types is refused", "use anyOf, or nullable")
        if profile.needs_type and path and "type" not in node and not node.keys() & _INSTEAD_OF_TYPE:
            self._add(path, "type", "no type is said", "say which type the value has")
        format_name = node.get("format")
        if profile.formats is not None and isinstance(format_name, str) and format_name not in profile.formats:
            known = ", ".join(sorted(profile.formats))
            self._add(
                (*path, "format"), "format", f"the format {format_name!r} is refused", f"use one of {known}, or none"
            )
        self._unions += "anyOf" in node or len(types_of(node)) > 1

    def _values(self, path: Path, node: Schema) -> None:
        profile = self._profile
        for key in ("enum", "const"):
            if key not in node or not knows(profile, key, at_root=not path):
                continue
            listed: Any = node[key] if key == "enum" else [node[key]]
            values = cast("list[Any]", listed if isinstance(listed, list) else [])
            wrong = sorted({kind_of(v) for v in values} - (profile.enum_kinds or {kind_of(v) for v in values}))
            if wrong:
                remedy = (
                    f"list only {', '.join(sorted(profile.enum_kinds or ()))}, or say the values in the description"
                )
                self._add((*path, key), "enum", f"{key} lists {' and '.join(wrong)}", remedy)
            text = sum(len(v) for v in values if isinstance(v, str))
            self._enum_values += len(values)
            self._text += text
            if profile.most_enum_values is not None and len(values) > _LONG_ENUM and text > _LONG_ENUM_TEXT:
                self._add((*path, key), "enum", f"{len(values)} values have {text} characters", "list fewer or shorter")

    def _array(self, path: Path, node: Schema) -> None:
        profile = self._profile
        if profile.needs_items and "array" in types_of(node) and "items" not in node:
            self._add(path, "items", "an array does not say what its items are", "add items")
        least = node.get("minItems")
        if profile.few_items and isinstance(least, int) and least > 1:
            self._add((*path, "minItems"), "items", f"minItems {least} is refused", "use 0 or 1, and say the rest")

    def _object(self, path: Path, node: Schema) -> None:
        profile = self._profile
        if "object" not in types_of(node) and "properties" not in node:
            return
        properties = as_schema(node.get("properties")) or {}
        required = dict.fromkeys(strings_of(node.get("required")))
        optional = [name for name in properties if name not in required]
        self._properties += len(properties)
        self._optional += len(optional)
        self._text += sum(map(len, properties))
        if profile.property_pattern is not None and not path:
            for name in properties:
                if not re.fullmatch(profile.property_pattern, name):
                    self._add(
                        ("properties", name),
                        "property",
                        f"the name of this argument does not match {profile.property_pattern}",
                        "rename it in the tool",
                    )
        if profile.needs_properties and path and not properties:
            self._add(path, "properties", "an object lists no properties", "list them, or use another profile")
        if profile.required_are_defined and (unknown := [name for name in required if name not in properties]):
            self._add((*path, "required"), "required", f"{unknown} are required but not described", "describe them")
        if profile.closed and node.get("additionalProperties") is not False:
            self._add(path, "closed", "an object is open", 'write "additionalProperties": false')
        if profile.all_required and optional:
            self._add(path, "required", f"{optional} are not required", "require them, and let them be null")

    def _reference(self, path: Path, node: Schema, *, optional: bool) -> None:
        profile, ref = self._profile, node.get("$ref")
        branches: Any = node.get("allOf")
        if not profile.all_of_refs and isinstance(branches, list):
            schemas = [as_schema(branch) or {} for branch in cast("list[Any]", branches)]
            if any("$ref" in branch for branch in schemas):
                self._add((*path, "allOf"), "ref", "allOf holds a reference", "write the schema out")
        if ref is None or not knows(profile, "$ref"):
            return
        where = (*path, "$ref")
        if as_schema(resolve(self._root, ref)) is None:
            self._add(where, "ref", f"{ref!r} leads nowhere within the schema", "refer to #/$defs/... only")
            return
        if not profile.ref_siblings and any(not key.startswith("$") for key in node):
            self._add(
                path, "ref", "other keywords stand beside $ref", "leave $ref alone there, or write the schema out"
            )
        if profile.recursion != "yes" and self._recursion.is_recursive(str(ref)):
            if profile.recursion == "no":
                self._add(where, "recursion", "the schema contains itself", "write out as many levels as are needed")
            elif not optional:
                self._add(where, "recursion", "the schema contains itself in a required place", "make it optional")

    # --- the whole ----------------------------------------------------------------------------------------------------

    def _totals(self) -> None:
        profile = self._profile
        for have, most, noun in (
            (self._properties, profile.most_properties, "properties"),
            (self._optional, profile.most_optional, "optional properties"),
            (self._unions, profile.most_unions, "places with several types"),
            (self._enum_values, profile.most_enum_values, "listed values"),
            (self._text, profile.most_text, "characters in names and listed values"),
        ):
            if most is not None and have > most:
                self._add(
                    (), "size", f"{have} {noun}, and at most {most} are taken", "split the tool, or describe less"
                )
