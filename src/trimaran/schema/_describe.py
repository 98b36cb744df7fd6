"""Describe an annotation as JSON Schema 2020-12, compactly.

Every named type becomes one definition under `$defs`, so recursion ends and a model used twice is written once; at
the end a definition used only once is put in its place. No `title` is made up from a name. What a schema admits and
what `_decode.py` accepts must be the same: a rule added here is a rule there.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, abc, defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal, cast, final, get_args, get_origin

import msgspec

from trimaran.errors import DeclarationError

from . import _pydantic
from ._annotations import (
    MISSING,
    Field,
    Mode,
    Notes,
    Record,
    alias_value,
    is_alias,
    is_enum,
    is_pydantic,
    is_union,
    peel,
    record_of,
    type_name,
    unquoted,
)
from .validate import Schema

__all__ = ["ARRAYS", "MAPS", "SETS", "TEXTUAL", "Describer", "json_ready", "textual_format"]

ARRAYS: Final = frozenset((list, deque, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable))
SETS: Final = frozenset((set, frozenset, abc.Set, abc.MutableSet))
MAPS: Final = frozenset((dict, OrderedDict, defaultdict, abc.Mapping, abc.MutableMapping))

# Keyed by name, so that describing an int does not import uuid.
_SCALARS: Final[dict[str, Schema]] = {
    "builtins.NoneType": {"type": "null"},
    "builtins.bool": {"type": "boolean"},
    "builtins.int": {"type": "integer"},
    "builtins.float": {"type": "number"},
    "builtins.str": {"type": "string"},
    "builtins.bytes": {"type": "string", "contentEncoding": "base64"},
    "builtins.bytearray": {"type": "string", "contentEncoding": "base64"},
    "builtins.memoryview": {"type": "string", "contentEncoding": "base64"},
    "datetime.datetime": {"type": "string", "format": "date-time"},
    "datetime.date": {"type": "string", "format": "date"},
    "datetime.time": {"type": "string", "format": "time"},
    "datetime.timedelta": {"type": "string", "format": "duration"},
    "uuid.UUID": {"type": "string", "format": "uuid"},
}
# Types that are written as text and built from it; the value is the `format` to advertise.
TEXTUAL: Final = {
    "ipaddress.IPv4Address": "ipv4",
    "ipaddress.IPv6Address": "ipv6",
    "ipaddress.IPv4Network": "ipv4network",
    "ipaddress.IPv6Network": "ipv6network",
    "pathlib.Path": "path",
    "pathlib.PurePath": "path",
    "pathlib.PosixPath": "path",
    "pathlib.PurePosixPath": "path",
    "pathlib.WindowsPath": "path",
    "pathlib.PureWindowsPath": "path",
    "re.Pattern": "regex",
    "yarl.URL": "uri",
    "yarl._url.URL": "uri",
    "httpx.URL": "uri",
    "httpx._urls.URL": "uri",
    "starlette.datastructures.URL": "uri",
}
_LENGTHS: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_BOUNDS: Final = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_PREFIX: Final = "#/$defs/"
# Keywords that hold schemas by name, and those that hold plain values in which a "$ref" is just a word.
_NAMED: Final = frozenset(("properties", "$defs", "patternProperties", "dependentSchemas"))
_VALUES: Final = frozenset(("default", "examples", "enum", "const"))
_NOTES: Final = frozenset(("description", "title", "default", "examples"))


def textual_format(core: Any) -> str | None:
    """The `format` of a type that is written as text, None for any other."""
    cls = get_origin(core) or core
    return TEXTUAL.get(f"{getattr(cls, '__module__', '')}.{getattr(cls, '__qualname__', '')}")


def json_ready(value: Any) -> Any:
    """`value` as it would look in JSON, or MISSING when it cannot be written there."""
    from .convert import to_jsonable

    try:
        ready = to_jsonable(value)
        msgspec.json.encode(ready)
    except Exception:  # a default that cannot be shown is simply not shown
        return MISSING
    return ready


@final
class Describer:
    """Describes any number of annotations that share one set of definitions."""

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self._defs: dict[str, Schema] = {}
        self._names: dict[Hashable, str] = {}

    def describe(self, annotation: Any) -> Schema:
        """The schema of one annotation; its `$ref`s are good once `close` has put the definitions beside it."""
        core, metadata = peel(unquoted(annotation))
        notes = Notes.read(metadata)
        if notes.needs_pydantic:
            return self._pydantic(annotation, annotation, "")
        return self._noted(self._core(core), notes)

    def close(self, root: Schema) -> Schema:
        """The finished document: definitions used once moved to their place, the others under `$defs`."""
        if not self._defs:
            return root
        counts: dict[str, int] = {}
        _count(root, counts)
        for body in self._defs.values():
            _count(body, counts)
        single = {name for name in self._defs if counts.get(name) == 1}
        if (name := _target(root)) is not None and _may_merge(root, self._defs[name]):
            # The root must say `type` itself: protocols look for it there.
            root = _merged(root, self._defs[name])
        closed = _expand(root, self._defs, single)
        kept: dict[str, Schema] = {}
        self._keep(closed, single, kept)
        return {**closed, "$defs": kept} if kept else closed

    def _keep(self, node: Schema, single: set[str], kept: dict[str, Schema]) -> None:
        used: dict[str, int] = {}
        _count(node, used)
        for name in used:
            if name in self._defs and name not in kept:
                kept[name] = {}
                kept[name] = _expand(self._defs[name], self._defs, single)
                self._keep(kept[name], single, kept)

    def _core(self, core: Any) -> Schema:
        if core is Any or core is msgspec.Raw:
            return {}
        origin = get_origin(core)
        if is_union(core):
            return self._union(get_args(core))
        if origin is Literal:
            return _choices([_literal(choice) for choice in get_args(core)])
        if is_alias(core):
            return self._component(core, core.__name__, lambda: self.describe(alias_value(core)))
        if is_pydantic(core):
            return self._pydantic(core, core, core.__name__)
        container = origin or core
        if container in ARRAYS:
            return self._items({"type": "array"}, get_args(core))
        if container in SETS:
            # A set takes duplicates in and gives none out.
            unique = {"uniqueItems": True} if self.mode == "output" else {}
            return self._items({"type": "array", **unique}, get_args(core))
        if container in MAPS:
            return self._map(get_args(core))
        if container is tuple:
            return self._tuple(core)
        return self._class(core)

    def _class(self, core: Any) -> Schema:
        name = f"{getattr(core, '__module__', '')}.{getattr(core, '__qualname__', '')}"
        if name in _SCALARS:
            return dict(_SCALARS[name])
        if name == "decimal.Decimal":
            return {"type": ["string", "number"] if self.mode == "input" else "string", "format": "decimal"}
        if (text_format := textual_format(core)) is not None:
            return {"type": "string", "format": text_format}
        if is_enum(core):
            return self._component(core, core.__name__, lambda: self._enum(core))
        if (record := record_of(core)) is not None:
            return self._component(core, record.name, lambda: self._record(record))
        if isinstance(core, type):
            for plain in (str, int, float):
                if issubclass(core, plain):
                    return dict(_SCALARS[f"builtins.{plain.__name__}"])
        raise DeclarationError(
            f"{type_name(core)} cannot be described as JSON Schema: write a dataclass, TypedDict, msgspec.Struct or "
            "pydantic model, or annotate it as Any"
        )

    def _noted(self, schema: Schema, notes: Notes) -> Schema:
        noted = dict(schema)
        for name, bound in notes.bounds.items():
            if name in _BOUNDS:
                noted[_BOUNDS[name]] = bound
            else:
                for kind in self._kinds(schema):
                    noted[_LENGTHS[kind][name == "max_length"]] = bound
        said = {"title": notes.title, "description": notes.description, "examples": notes.examples}
        noted.update({keyword: text for keyword, text in said.items() if text})
        noted.update(notes.extra)
        return noted

    def _kinds(self, schema: Schema) -> set[str]:
        """The types with a length among those `schema` admits."""
        if (name := _target(schema)) is not None:
            return self._kinds(self._defs[name])
        kinds: set[str] = set()
        for option in schema.get("anyOf", []):
            kinds |= self._kinds(option)
        said: Any = schema.get("type", [])
        names = cast("list[str]", said if isinstance(said, list) else [said])
        return kinds | {name for name in names if name in _LENGTHS}

    def _union(self, members: tuple[Any, ...]) -> Schema:
        options: list[Schema] = []
        for member in members:
            if member is msgspec.UnsetType:
                continue
            option = self.describe(member)
            if option not in options:
                options.append(option)
        if {"type": "number"} in options and {"type": "integer"} in options:
            options.remove({"type": "integer"})
        return options[0] if len(options) == 1 else {"anyOf": options}

    def _items(self, schema: Schema, arguments: tuple[Any, ...]) -> Schema:
        items = self.describe(arguments[0]) if arguments else {}
        return {**schema, "items": items} if items else schema

    def _map(self, arguments: tuple[Any, ...]) -> Schema:
        schema: Schema = {"type": "object"}
        if not arguments:
            return schema
        key_core, key_notes = peel(arguments[0])
        if key_notes or is_enum(key_core) or get_origin(key_core) is Literal:
            names = self.describe(arguments[0])
            if self._is_text(names):
                schema["propertyNames"] = names
        if values := self.describe(arguments[1]):
            schema["additionalProperties"] = values
        return schema

    def _is_text(self, schema: Schema) -> bool:
        name = _target(schema)
        return (self._defs[name] if name is not None else schema).get("type") == "string"

    def _tuple(self, core: Any) -> Schema:
        arguments = get_args(core)
        if core is tuple:
            return {"type": "array"}
        if len(arguments) == 2 and arguments[1] is ...:
            return self._items({"type": "array"}, arguments[:1])
        size = {"minItems": len(arguments), "maxItems": len(arguments)}
        if not arguments:
            return {"type": "array", **size}
        return {"type": "array", "prefixItems": [self.describe(argument) for argument in arguments], **size}

    def _enum(self, core: type[enum.Enum]) -> Schema:
        doc = core.__dict__.get("__doc__")
        said = {"description": doc.strip()} if doc and doc != "An enumeration." else {}
        if issubclass(core, enum.Flag):
            return {"type": "integer", **said}
        return {**_choices([_choice(member.value, core) for member in core]), **said}

    def _record(self, record: Record) -> Schema:
        schema: Schema = {"type": "array" if record.is_array else "object"}
        if record.doc.summary:
            schema["description"] = record.doc.summary
        keys = [(self._key(field), field) for field in record.fields]
        shapes = {key: self._field(field, record) for key, field in keys if key is not None}
        required = [key for key, field in keys if key is not None and self._is_required(field, record)]
        if record.is_array:
            tag = [{"enum": [record.tag[1]]}] if record.tag else []
            schema["prefixItems"] = [*tag, *shapes.values()]
            schema["minItems"] = len(required) + len(tag)
            if record.is_closed:
                schema["maxItems"] = len(shapes) + len(tag)
            return schema
        schema["properties"] = shapes
        if record.tag:
            schema["properties"] = {record.tag[0]: {"enum": [record.tag[1]]}, **shapes}
            required = [record.tag[0], *required]
        if required:
            schema["required"] = required
        if record.is_closed:
            schema["additionalProperties"] = False
        return schema

    def _key(self, field: Field) -> str | None:
        """The name of the property, None for a field that does not travel this way."""
        if self.mode == "output":
            return field.sent
        return None if field.is_hidden else field.key

    def _field(self, field: Field, record: Record) -> Schema:
        shape = self.describe(field.annotation)
        if "description" not in shape and (said := record.doc.params.get(field.name)):
            shape = {**shape, "description": said}
        if self.mode == "input" and field.default is not MISSING:
            default = json_ready(field.default)
            if default is not MISSING:
                shape = {**shape, "default": default}
        return shape

    def _is_required(self, field: Field, record: Record) -> bool:
        if self.mode == "input" or field.required:
            return field.required
        may_be_unset = msgspec.UnsetType in get_args(peel(field.annotation)[0])
        return not (record.omits_defaults or may_be_unset or _is_typed_dict(record))

    def _component(self, key: Hashable, name: str, make: Callable[[], Schema]) -> Schema:
        if key not in self._names:
            self._names[key] = name = self._free(name)
            # The place is taken before the body is made, so a type that contains itself finds its own name.
            self._defs[name] = {}
            self._defs[name] = make()
        return {"$ref": _PREFIX + self._names[key]}

    def _free(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self._defs:
            candidate, number = f"{name}{number}", number + 1
        return candidate

    def _same(self, name: str, body: Schema) -> str | None:
        """The definition that already says this under this name, or under a numbered one."""
        for known, said in self._defs.items():
            if said == body and known.rstrip("0123456789") == name.rstrip("0123456789"):
                return known
        return None

    def _pydantic(self, annotation: Any, key: Hashable, name: str) -> Schema:
        if key in self._names:
            return {"$ref": _PREFIX + self._names[key]}
        body = _pydantic.describe(annotation, self.mode)
        theirs: dict[str, Schema] = body.pop("$defs", {})
        for inner_name, inner in theirs.items():
            _untitle(inner, inner_name)
        own = _target(body) if body.keys() == {"$ref"} else None
        if own is not None and own in theirs:
            body = theirs[own]
        _untitle(body, name)
        renamed: dict[str, str] = {}
        for inner_name, inner in theirs.items():
            renamed[inner_name] = self._same(inner_name, inner) or self._free(inner_name)
            self._defs[renamed[inner_name]] = inner
        changed = {old: new for old, new in renamed.items() if old != new}
        if changed:
            for new in renamed.values():
                self._defs[new] = _rename(self._defs[new], changed)
            body = _rename(body, changed)
        if not name:
            return body
        if own is not None:
            self._names[key] = renamed[own]
        elif (same := self._same(name, body)) is not None:
            self._names[key] = same
        else:
            self._names[key] = name = self._free(name)
            self._defs[name] = body
        return {"$ref": _PREFIX + self._names[key]}


def _is_typed_dict(record: Record) -> bool:
    return issubclass(record.cls, dict)


def _literal(choice: Any) -> Any:
    return _choice(choice.value if isinstance(choice, enum.Enum) else choice, choice)


def _choice(value: Any, owner: Any) -> Any:
    ready = json_ready(value)
    if ready is MISSING or isinstance(value, bytes):
        raise DeclarationError(f"{value!r} in {owner!r} cannot be a choice in JSON: use text or numbers")
    return ready


def _choices(values: list[Any]) -> Schema:
    kinds: set[type[Any]] = {type(value) for value in values}
    names: dict[Any, str] = {str: "string", int: "integer", bool: "boolean"}
    if len(kinds) == 1 and (kind := next(iter(kinds))) in names:
        return {"type": names[kind], "enum": values}
    return {"enum": values}


def _target(node: Schema) -> str | None:
    ref = node.get("$ref")
    return ref.removeprefix(_PREFIX) if isinstance(ref, str) and ref.startswith(_PREFIX) else None


def _children(node: Schema) -> list[tuple[str, Any]]:
    """The values in a schema object that are schemas, or lists or mappings of them."""
    return [(key, value) for key, value in node.items() if key not in _VALUES and isinstance(value, dict | list)]


def _map_schemas(node: Any, change: Callable[[Schema], Schema]) -> Any:
    """`node` rebuilt with `change` applied to every schema object directly inside it."""
    if isinstance(node, list):
        return [change(cast("Schema", item)) if isinstance(item, dict) else item for item in cast("list[Any]", node)]
    rebuilt = dict(node)
    for key, value in _children(node):
        if key in _NAMED:
            named = cast("dict[str, Any]", value)
            rebuilt[key] = {
                name: change(cast("Schema", inner)) if isinstance(inner, dict) else inner
                for name, inner in named.items()
            }
        elif isinstance(value, list):
            rebuilt[key] = _map_schemas(value, change)
        else:
            rebuilt[key] = change(value)
    return rebuilt


def _count(node: Schema, counts: dict[str, int]) -> None:
    if (name := _target(node)) is not None:
        counts[name] = counts.get(name, 0) + 1

    def visit(inner: Schema) -> Schema:
        _count(inner, counts)
        return inner

    _map_schemas(node, visit)


def _expand(node: Schema, defs: dict[str, Schema], single: set[str]) -> Schema:
    name = _target(node)
    if name in single:
        body = defs[name]
        if _may_merge(node, body):
            return _expand(_merged(node, body), defs, single)
    return _map_schemas(node, lambda inner: _expand(inner, defs, single))


def _may_merge(node: Schema, body: Schema) -> bool:
    # A rule written beside a reference holds as well as the definition's own, so it may not replace one.
    return not (node.keys() & body.keys()) - _NOTES


def _merged(node: Schema, body: Schema) -> Schema:
    return {**body, **{key: value for key, value in node.items() if key != "$ref"}}


def _rename(node: Schema, names: dict[str, str]) -> Schema:
    name = _target(node)
    if name in names:
        node = {**node, "$ref": _PREFIX + names[name]}
    return _map_schemas(node, lambda inner: _rename(inner, names))


def _untitle(body: Schema, name: str) -> None:
    title = body.get("title")
    if isinstance(title, str) and title in (name, name.split("__")[-1]):
        del body["title"]
