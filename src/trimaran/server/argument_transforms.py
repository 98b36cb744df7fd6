"""Arguments of a tool as its caller sees them: renamed, described, with a default, fixed or hidden.

Pure. `ArgumentPlan` works on a schema and on JSON, so it fits a function of this process, a remote tool, or the tool of a
host. It is made once per tool:

    schema          the tool's input schema with these changes, and without definitions that nothing refers to any more
    read(raw)       the caller's arguments, checked against that schema  ->  the arguments that the tool expects
    restore(error)  a refusal by the tool itself, in the names that the caller knows

Values that nobody changes are copied as text: a number keeps its digits. An argument that the caller must not set cannot
be set: whatever is sent under a hidden or a former name is dropped before the tool sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict, cast, final

import msgspec
from msgspec import Raw

from trimaran.errors import DeclarationError
from trimaran.format.trees import as_schema, children, rebuild, strings_of
from trimaran.schema import ArgumentError, ExplicitArguments, Schema, Validator, Violation, enc_hook
from trimaran.schema.argument_errors import refuse
from trimaran.schema.references import check_references
from trimaran.schema.validate import path_text
from trimaran.types import Json

_decode_parts: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_encode: Final = msgspec.json.Encoder(enc_hook=enc_hook).encode
# Keywords that speak about the same object as the schema around them.
_ALTERNATIVES: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONS: Final = ("not", "if", "then", "else")
_DEFINITIONS: Final = ("$defs", "definitions")
_MOST_SHOWN: Final = 300
"""Characters of a schema in a message."""
# Other ways to be referred to than by `#/$defs/Name`; where one is, every definition stays.
_ADDRESSES: Final = (b'"$id"', b'"$anchor"', b'"$dynamicAnchor"', b'"$recursiveAnchor"')


class ArgumentOptions(TypedDict, total=False):
    """The changes of one argument, by the name that the tool itself has for it."""

    name: str
    """The caller's name for it."""
    description: str
    examples: Sequence[Json]
    default: Json
    """Used if the caller leaves it out; the argument becomes optional."""
    value: Json
    """Always used; the argument leaves the schema."""
    hidden: bool
    """The argument leaves the schema; the tool's own default is used."""


@final
class ArgumentPlan:
    """Between the arguments that callers send and those that a tool expects.

    Args:
        schema: The input schema of the tool.
        changes: By the tool's own names.
        label: The tool, for messages.
        is_filled: Something else fills in hidden arguments that the tool requires.
        skip_unknown: Changes of arguments that the tool does not have say nothing, instead of being an error.

    Raises:
        DeclarationError: a change does not fit the schema; the message names the argument and the remedy.
    """

    def __init__(
        self,
        schema: Schema,
        changes: Mapping[str, ArgumentOptions],
        label: str,
        *,
        is_filled: bool = False,
        skip_unknown: bool = False,
    ) -> None:
        properties = as_schema(schema.get("properties")) or {}
        for argument in changes:
            if argument not in properties and not skip_unknown:
                names = ", ".join(map(repr, properties)) or "none"
                raise DeclarationError(f"{label} has no argument {argument!r}; its arguments: {names}")
        changes = {argument: options for argument, options in changes.items() if argument in properties}
        self._hidden = {name for name, options in changes.items() if "value" in options or options.get("hidden")}
        self._fixed: dict[str, Raw] = {}
        self._defaults: dict[str, Raw] = {}
        for argument, options in changes.items():
            place = f"{label}: argument {argument!r}"
            if "value" in options:
                self._fixed[argument] = _checked_value(schema, argument, options["value"], f"{place}: value")
            if "default" in options:
                self._defaults[argument] = _checked_value(schema, argument, options["default"], f"{place}: default")
        if not is_filled:
            for argument in strings_of(schema.get("required")):
                if argument in self._hidden and argument not in self._fixed:
                    raise DeclarationError(
                        f"{label}: argument {argument!r} is required, so nobody could call the tool with it hidden; "
                        'give it a value too, "value": ...'
                    )
        self._never_set = frozenset[str]() if is_filled else self._hidden - self._fixed.keys()
        self._names = {name: options["name"] for name, options in changes.items() if "name" in options}
        self._check_names(properties, label)
        self._inner_names = {outer: inner for inner, outer in self._names.items()}
        # Names that mean nothing, or something else, to the caller.
        self._closed = frozenset(self._hidden | {name for name in self._names if name not in self._inner_names})
        self.schema: Schema = self._changed(schema, changes) if changes else schema
        check_references(self.schema, f"{label}: its input schema, without the hidden arguments,")
        self._explicit = ExplicitArguments(self.schema, owner=f"{label}: its input schema")

    def _check_names(self, properties: Schema, label: str) -> None:
        owners: dict[str, str] = {}
        for argument in properties:
            if argument in self._hidden:
                continue
            name = self._names.get(argument, argument)
            if name in owners:
                raise DeclarationError(
                    f"{label}: the arguments {owners[name]!r} and {argument!r} would both be called {name!r}; "
                    "give one of them another name, or hide it"
                )
            owners[name] = argument

    # --- the schema --------------------------------------------------------------------------------------------------

    def _changed(self, schema: Schema, changes: Mapping[str, ArgumentOptions]) -> Schema:
        changed = self._renamed(schema)
        properties: Schema = changed["properties"]
        for argument, options in changes.items():
            if argument not in self._hidden:
                name = self._names.get(argument, argument)
                properties[name] = _described(properties[name], argument, options)
        optional = {self._names.get(argument, argument) for argument in self._defaults}
        if optional and "required" in changed:
            changed["required"] = [name for name in changed["required"] if name not in optional]
        if "required" in changed and not changed["required"]:
            del changed["required"]
        changed = self._with_references(schema, changed)
        return _without_unused(changed) if self._hidden else changed

    def _renamed(self, node: Schema) -> Schema:
        """The node, and what it says about the same object in other words, under the caller's names."""
        changed: Schema = {}
        for key, value in node.items():
            if key == "required":
                changed[key] = [self._names.get(name, name) for name in strings_of(value) if name not in self._hidden]
            elif key == "dependentRequired" and isinstance(value, dict):
                changed[key] = {
                    name: self._renamed({"required": names})["required"]
                    for name, names in self._keyed(cast("Schema", value)).items()
                }
            elif key == "properties" and isinstance(value, dict):
                changed[key] = self._keyed(cast("Schema", value))
            elif key == "dependentSchemas" and isinstance(value, dict):
                changed[key] = {name: self._same(inner) for name, inner in self._keyed(cast("Schema", value)).items()}
            elif key in _ALTERNATIVES and isinstance(value, list):
                parts = cast("list[Any]", value)
                possible = [inner for inner in parts if key == "allOf" or not self._is_impossible(inner)]
                changed[key] = [self._same(inner) for inner in possible or parts]
            elif key in _CONDITIONS:
                changed[key] = self._same(value)
            else:
                changed[key] = value
        return changed

    def _same(self, value: Any) -> Any:
        node = as_schema(value)
        return value if node is None else self._renamed(node)

    def _is_impossible(self, node: Any) -> bool:
        """Whether an alternative needs an argument that nobody sets any more."""
        return not self._never_set.isdisjoint(strings_of((as_schema(node) or {}).get("required")))

    def _keyed(self, mapping: Schema) -> Schema:
        return {self._names.get(name, name): value for name, value in mapping.items() if name not in self._hidden}

    def _with_references(self, schema: Schema, changed: Schema) -> Schema:
        """References into the properties (`#/properties/q`, as zod writes them) follow a name, or its definition."""
        moved: dict[str, str] = {}
        for name, new in self._names.items():
            moved[_pointer("properties", name)] = _pointer("properties", new)
        for name in sorted(self._hidden):
            moved[_pointer("properties", name)] = _pointer("$defs", f"hidden_{name}")
        text = _encode(changed)
        if not any(msgspec.json.encode(old)[1:-1] in text for old in moved):
            return changed
        definitions = {f"hidden_{name}": schema["properties"][name] for name in sorted(self._hidden)}
        changed = {**changed, "$defs": {**(as_schema(changed.get("$defs")) or {}), **definitions}}
        return _without_unused(_redirected(changed, moved))

    # --- calls -------------------------------------------------------------------------------------------------------

    def read(self, raw: Raw | bytes, *, notes: list[str] | None = None) -> Raw:
        """The arguments that the tool expects.

        Raises:
            ArgumentError: the caller's arguments do not fit the schema that it sees.
        """
        repairs: list[str] = []
        arguments = self._explicit.arguments(raw, notes=repairs)
        parts: dict[str, Any] = arguments if repairs else _decode_parts(raw)
        if notes is not None:
            notes += repairs
        return self.map(parts)

    def map(self, parts: Mapping[str, Any]) -> Raw:
        """The arguments that the tool expects, made of values that nobody has checked."""
        mapped: dict[str, Any] = dict(self._defaults)
        for name, value in parts.items():
            inner = self._inner_names.get(name)
            if inner is not None:
                mapped[inner] = value
            elif name not in self._closed:
                mapped[name] = value
        mapped.update(self._fixed)
        return Raw(_encode(mapped))

    def before(self, inner: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """A reader of the caller's arguments, made of the tool's own reader."""

        def read(raw: Any, /, *, notes: list[str] | None = None) -> dict[str, Any]:
            mapped = self.read(raw, notes=notes)
            try:
                return inner(mapped)
            except ArgumentError as error:
                raise self.restore(error) from None

        return read

    def restore(self, error: ArgumentError) -> ArgumentError:
        """The tool's own refusal, in the names that the caller knows."""
        if not error.violations:
            return error
        violation = error.violations[0]
        argument, rest = _first_step(violation)
        if argument in self._hidden:
            text = (
                "the server itself fills in an argument that the tool refuses; whoever runs the server must correct it"
            )
            return ArgumentError(text, [])
        name = self._names.get(argument, argument)
        if violation.path == "$":
            restored = Violation("$", violation.reason, violation.keyword, name)
        else:
            restored = Violation(path_text([name]) + rest, violation.reason, violation.keyword, violation.subject)
        return refuse([restored], self.schema)


def _first_step(violation: Violation) -> tuple[str, str]:
    """The argument that a violation is about, and the rest of its path."""
    path = violation.path
    if path == "$":
        return violation.subject, ""
    if path[:3] in ("$['", '$["'):  # a name that is no identifier
        name, _, rest = path[3:].partition(f"{path[2]}]")
        return name, rest
    name = path[2:]
    end = min((place for mark in ".[" if (place := name.find(mark)) >= 0), default=len(name))
    return name[:end], name[end:]


def _checked_value(schema: Schema, argument: str, value: Json, label: str) -> Raw:
    """A value of ours as JSON, if the schema of the argument admits it."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DeclarationError(f"{label} must be JSON: {error}") from None
    about = {key: schema[key] for key in ("$schema", *_DEFINITIONS, "properties") if key in schema}
    if not Validator(about).is_valid({argument: msgspec.json.decode(text)}):
        # Without the value, which may be a secret.
        node = _encode(schema["properties"][argument]).decode()
        raise DeclarationError(f"{label} does not fit the schema of the argument, {node[:_MOST_SHOWN]}")
    return Raw(text)


def _described(node: Any, argument: str, options: ArgumentOptions) -> Schema:
    """The schema of a visible argument, with what the options say about it."""
    described: Schema = dict(as_schema(node) or {})
    if "name" in options and described.get("title") == _title(argument):
        described["title"] = _title(options["name"])  # which pydantic derives from the name
    if "description" in options:
        described["description"] = options["description"]
    if "examples" in options:
        described["examples"] = list(options["examples"])
    if "default" in options:
        described["default"] = options["default"]
    return described


def _title(name: str) -> str:
    return name.replace("_", " ").title()


def _pointer(*steps: str) -> str:
    return "#/" + "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)


def _redirected(node: Schema, moved: Mapping[str, str]) -> Schema:
    changed = rebuild(node, lambda _, inner: inner if as_schema(inner) is None else _redirected(inner, moved))
    ref = changed.get("$ref")
    if isinstance(ref, str):
        for old, new in moved.items():
            if ref == old or ref.startswith(f"{old}/"):
                changed["$ref"] = new + ref[len(old) :]
                break
    return changed


def _without_unused(schema: Schema) -> Schema:
    """The schema without definitions that nothing refers to."""
    text = _encode(schema)
    if any(address in text for address in _ADDRESSES):
        return schema
    used: set[tuple[str, str]] = set()
    waiting: list[Any] = [{key: value for key, value in schema.items() if key not in _DEFINITIONS}]
    while waiting:
        node = as_schema(waiting.pop())
        if node is None:
            continue
        waiting += [inner for _, inner in children(node)]
        steps = str(node.get("$ref")).split("/")
        if steps[0] == "#" and len(steps) > 2 and steps[1] in _DEFINITIONS:
            name = steps[2].replace("~1", "/").replace("~0", "~")
            if (steps[1], name) not in used:
                used.add((steps[1], name))
                waiting.append((as_schema(schema.get(steps[1])) or {}).get(name))
    pruned = dict(schema)
    for key in _DEFINITIONS:
        definitions = as_schema(schema.get(key))
        if definitions is not None:
            pruned[key] = {name: inner for name, inner in definitions.items() if (key, name) in used}
            if not pruned[key]:
                del pruned[key]
    return pruned
