"""Describe an annotation as JSON Schema 2020-12, compactly, in the part of it that every client reads.

Every named type becomes one definition under `$defs`, so recursion ends and a model used twice is written once; at
the end a definition used only once is put in its place. No `title` is made up from a name. A schema must admit
exactly what `_decode.py` accepts: a rule added here is a rule there.

Clients hold results against these schemas with validators of every age, some of which refuse a schema for one word they
do not know. So a `type` is one word, bounds stand where the type stands, and nothing is promised that a value may break:
a `format` is written for input only, and only where every text our decoder takes keeps it.
"""

from __future__ import annotations

import enum
import re
from collections import Counter, OrderedDict, abc, defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal, cast, final, get_args, get_origin

import msgspec

from trimaran.errors import DeclarationError
from trimaran.format.trees import null_verdict, rebuild

from . import _pydantic
from ._annotations import (
    MISSING,
    Mode,
    Notes,
    Record,
    RecordField,
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
from ._patterns import portable_pattern
from .validate import Schema

ARRAYS: Final = frozenset((list, deque, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable))
SETS: Final = frozenset((set, frozenset, abc.Set, abc.MutableSet))
MAPS: Final = frozenset((dict, OrderedDict, defaultdict, Counter, abc.Mapping, abc.MutableMapping))


def map_arguments(core: Any) -> tuple[Any, ...]:
    """The types of keys and values; none if the annotation does not say. `Counter[K]` names its keys alone."""
    arguments = get_args(core)
    if (get_origin(core) or core) is Counter:
        return (*(arguments or (str,)), int)
    return arguments


# Keyed by name, so that describing an int does not import uuid.
_SCALARS: Final[dict[str, Schema]] = {
    "builtins.NoneType": {"type": "null"},
    "builtins.bool": {"type": "boolean"},
    "builtins.int": {"type": "integer"},
    "builtins.float": {"type": "number"},
    "builtins.str": {"type": "string"},
}
_BASE64: Final[Schema] = {"description": "in base64"}
# Types that msgspec writes as text: what an input schema says about the form of that text. `date-time` and `time` mean
# a time zone, `duration` whole seconds; Python's values need neither, so these are shown by an example instead. It is a
# description, since Gemini refuses a tool for `examples` and for `contentEncoding`, and clients hand both on as they are.
_TEXTS: Final[dict[str, Schema]] = {
    "builtins.bytes": _BASE64,
    "builtins.bytearray": _BASE64,
    "builtins.memoryview": _BASE64,
    "datetime.datetime": {"description": "for example 2026-07-28T10:30:00Z"},
    "datetime.date": {"format": "date"},
    "datetime.time": {"description": "for example 10:30:00"},
    "datetime.timedelta": {"description": "for example PT1H30M"},
    "uuid.UUID": {"format": "uuid"},
}
_DECIMALS: Final[dict[Mode, Schema]] = {
    "input": {"anyOf": [{"type": "string"}, {"type": "number"}]},
    "output": {"type": "string"},
    "form": {"type": "number"},
}
_AWARE: Final = {"datetime.datetime": "date-time", "datetime.time": "time"}
_URL: Final[Schema] = {"description": "for example https://example.com/"}
# The same for types that we write as text and build from it. IPv6 addresses may have a zone, URLs may be relative.
_TEXTUAL: Final[dict[str, Schema]] = {
    "ipaddress.IPv4Address": {"format": "ipv4"},
    "ipaddress.IPv6Address": {"description": "for example 2001:db8::1"},
    "ipaddress.IPv4Network": {"description": "for example 192.0.2.0/24"},
    "ipaddress.IPv6Network": {"description": "for example 2001:db8::/32"},
    "pathlib.Path": {},
    "pathlib.PurePath": {},
    "pathlib.PosixPath": {},
    "pathlib.PurePosixPath": {},
    "pathlib.WindowsPath": {},
    "pathlib.PureWindowsPath": {},
    "re.Pattern": {},
    "yarl.URL": _URL,
    "httpx.URL": _URL,
    "starlette.datastructures.URL": _URL,
}
_HINTS: Final = frozenset(form.get("description") for form in (*_TEXTS.values(), *_TEXTUAL.values())) - {None}
_LENGTHS: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_NUMBERS: Final = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
}
# Said in full: a schema without any rule reads like a mistake, and some clients take it for one.
_ANYTHING: Final[list[Schema]] = [{"type": name} for name in ("string", "number", "boolean", "object", "array", "null")]
# For arguments OpenAI refuses an array that does not say its items, at any depth, and the Inspector warns of items without a
# rule. So arrays in arrays end somewhere. Models seldom fill in deeper values, and the decoder takes those.
_ARRAYS_DEEP: Final = 2
_PREFIX: Final = "#/$defs/"
# Keywords that hold schemas by name, and those that hold plain values in which a "$ref" is just a word.
_NAMED: Final = frozenset(("properties", "$defs", "patternProperties", "dependentSchemas"))
_VALUES: Final = frozenset(("default", "examples", "enum", "const"))
_NOTES: Final = frozenset(("description", "title", "default", "examples"))
_SILENT: Final = _NOTES | {"deprecated", "readOnly", "writeOnly", "$comment"}


def is_textual(core: Any) -> bool:
    """Whether we write the type as text, and build it from text."""
    return _qualified(get_origin(core) or core) in _TEXTUAL


def _qualified(cls: Any) -> str:
    """Module and name, as users import it: Python 3.13 keeps `pathlib.Path` in `pathlib._local`, httpx its URL in `_urls`."""
    return f"{str(getattr(cls, '__module__', '')).partition('._')[0]}.{getattr(cls, '__qualname__', '')}"


def described(shape: Schema, description: str) -> Schema:
    """`shape` with a description, unless it has a better one. A hint at the form of a text stays behind it."""
    hint = _hint(shape)
    if hint is None and shape.get("description"):
        return shape
    return {**shape, "description": f"{description} ({hint})" if hint else description}


def _hint(shape: Schema) -> str | None:
    return shape.get("description") if shape.get("description") in _HINTS else None


def json_ready(value: Any) -> Any:
    """`value` as it would look in JSON, or MISSING when it cannot be written there."""
    from .convert import to_jsonable

    try:
        ready = to_jsonable(value)
        msgspec.json.encode(ready)
    except Exception:  # a default without a JSON form is left out
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
        shape = self._core(core)
        if (notes.tz or self.mode == "form") and self.mode != "output" and (aware := _AWARE.get(_qualified(core))):
            shape = {"type": "string", "format": aware}
        return self._noted(shape, notes)

    def close(self, root: Schema) -> Schema:
        """The finished document: definitions used once moved to their place, the others under `$defs`."""
        if not self._defs:
            return _spelled_out(root, self.mode)
        counts: dict[str, int] = {}
        _count(root, counts)
        for body in self._defs.values():
            _count(body, counts)
        single = {name for name in self._defs if counts.get(name) == 1}
        if (name := _target(root)) is not None and _may_merge(root, self._defs[name]):
            # The root must say `type` itself: protocols look for it there.
            root = _merged(root, self._defs[name])
        closed = _expand(root, self._defs, single)
        definitions: dict[str, Schema] = {}
        self._keep(closed, single, definitions, set())
        return _spelled_out({**closed, "$defs": definitions} if definitions else closed, self.mode)

    def _keep(self, node: Schema, single: set[str], definitions: dict[str, Schema], seen: set[str]) -> None:
        """Put the definitions that `node` refers to into `kept`, each after those it refers to: some clients need this order."""
        used: dict[str, int] = {}
        _count(node, used)
        for name in used:
            if name in self._defs and name not in seen:
                seen.add(name)
                body = _expand(self._defs[name], self._defs, single)
                self._keep(body, single, definitions, seen)
                definitions[name] = body

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
            return self._map(map_arguments(core))
        if container is tuple:
            return self._tuple(core)
        return self._class(core)

    def _class(self, core: Any) -> Schema:
        name = _qualified(get_origin(core) or core)
        if name in _SCALARS:
            return dict(_SCALARS[name])
        if name == "decimal.Decimal":
            return dict(_DECIMALS[self.mode])
        if (form := _TEXTS.get(name, _TEXTUAL.get(name))) is not None:
            if self.mode != "output":
                return {"type": "string", **form}
            return {"type": "string", "contentEncoding": "base64"} if form is _BASE64 else {"type": "string"}
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
        noted = self._bounded(schema, notes.bounds) if notes.bounds else dict(schema)
        if notes.description:
            noted = described({**noted, "description": _hint(noted)}, notes.description)
        notes_given = {"title": notes.title, "examples": notes.examples}
        noted.update({keyword: text for keyword, text in notes_given.items() if text})
        noted.update(notes.extra)
        return noted

    def _bounded(self, schema: Schema, bounds: dict[str, Any]) -> Schema:
        """`schema` under the bounds, each written beside the type it is about."""
        if (name := _target(schema)) is not None:
            body = self._defs[name]
            return (
                {**self._bounded(body, bounds), **{k: v for k, v in schema.items() if k != "$ref"}} if body else schema
            )
        if not schema.keys() - _SILENT:
            schema = {**schema, "anyOf": _ANYTHING}
        if "anyOf" in schema:
            return {**schema, "anyOf": [self._bounded(option, bounds) for option in schema["anyOf"]]}
        bounded, kind = dict(schema), schema.get("type")
        for name, bound in bounds.items():
            if name in _NUMBERS and kind in ("integer", "number"):
                _tighten(bounded, _NUMBERS[name], bound)
            elif name == "pattern" and kind == "string":
                _tighten(bounded, "pattern", _written(bound))
            elif name in ("min_length", "max_length") and kind in _LENGTHS:
                _tighten(bounded, _LENGTHS[kind][name == "max_length"], bound)
        return bounded

    def _union(self, members: tuple[Any, ...]) -> Schema:
        options: list[Schema] = []
        for member in members:
            if member is msgspec.UnsetType:
                continue
            options.append(self.describe(member))
        return _any_of(options)

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
        shapes = [self.describe(argument) for argument in arguments]
        return self._row(shapes, least=len(shapes), most=len(shapes))

    def _row(self, shapes: list[Schema], *, least: int, most: int | None) -> Schema:
        """An array whose items have a place each.

        `prefixItems` is for whoever fills it in. A validator that does not know the word must find the rest true, so
        `items` admits what stands at any place. Results do without it: validators of older drafts refuse the word, and
        strict ones of the newest where the length varies.
        """
        bare = [{key: value for key, value in shape.items() if key not in _NOTES} for shape in shapes]
        items = _any_of(bare) if most is not None else {}
        schema: Schema = {"type": "array", "items": items} if items else {"type": "array"}
        if self.mode != "output" and least == most and any(shape != items for shape in shapes):
            schema["prefixItems"] = shapes
        schema["minItems"] = least
        return {**schema, "maxItems": most} if most is not None else schema

    def _enum(self, core: type[enum.Enum]) -> Schema:
        doc = core.__dict__.get("__doc__")
        described = {"description": doc.strip()} if doc and doc != "An enumeration." else {}
        if issubclass(core, enum.Flag):
            return {"type": "integer", **described}
        return {**_choices([_choice(member.value, core) for member in core]), **described}

    def _record(self, record: Record) -> Schema:
        schema: Schema = {"type": "array" if record.is_array else "object"}
        if record.doc.summary:
            schema["description"] = record.doc.summary
        keys = [(self._key(field), field) for field in record.fields]
        shapes = {key: self._field(field, record) for key, field in keys if key is not None}
        required = [key for key, field in keys if key is not None and self._is_required(field, record)]
        tag = [_choices([record.tag[1]])] if record.tag else []
        if record.is_array:
            row = [*tag, *shapes.values()]
            least, most = len(required) + len(tag), len(row) if record.is_closed or self.mode == "output" else None
            if least != most and "description" not in schema:
                schema["description"] = f"In this order: {', '.join(shapes)}."
            return {**schema, **self._row(row, least=least, most=most)}
        schema["properties"] = shapes
        if record.tag:
            schema["properties"] = {record.tag[0]: tag[0], **shapes}
            required = [record.tag[0], *required]
        if required:
            schema["required"] = required
        if record.is_closed:
            schema["additionalProperties"] = False
        return schema

    def _key(self, field: RecordField) -> str | None:
        """The name of the property, None for a field that does not travel this way."""
        if self.mode == "output":
            return field.sent
        return None if field.is_hidden else field.key

    def _field(self, field: RecordField, record: Record) -> Schema:
        shape = self.describe(field.annotation)
        if doc := record.doc.params.get(field.name):
            shape = described(shape, doc)
        return self.defaulted(shape, field.default) if self.mode != "output" else shape

    def defaulted(self, shape: Schema, value: Any) -> Schema:
        """`shape` with its default, if JSON can express it. The default None of a value that is never null only means: optional."""
        default = MISSING if value is MISSING else json_ready(value)
        if default is MISSING or (default is None and null_verdict({"$defs": self._defs}, shape) is False):
            return shape
        return {**shape, "default": default}

    def _is_required(self, field: RecordField, record: Record) -> bool:
        if self.mode != "output" or field.required:
            return field.required
        may_be_unset = msgspec.UnsetType in get_args(peel(field.annotation)[0])
        return not (record.omits_defaults or may_be_unset or _is_typed_dict(record))

    def _component(self, key: Hashable, name: str, make: Callable[[], Schema]) -> Schema:
        if key not in self._names:
            self._names[key] = name = self._free(name)
            # The name is taken before the body is built, so a type that contains itself finds its own name.
            self._defs[name] = {}
            self._defs[name] = make()
        return {"$ref": _PREFIX + self._names[key]}

    def _free(self, name: str) -> str:
        # A reference is a URI, in which other letters would have to be escaped.
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        candidate, number = name, 2
        while candidate in self._defs:
            candidate, number = f"{name}{number}", number + 1
        return candidate

    def _same(self, name: str, body: Schema) -> str | None:
        """The definition that already says this under this name, or under a numbered one."""
        for known, schema in self._defs.items():
            if schema == body and known.rstrip("0123456789") == name.rstrip("0123456789"):
                return known
        return None

    def _pydantic(self, annotation: Any, key: Hashable, name: str) -> Schema:
        if key in self._names:
            return {"$ref": _PREFIX + self._names[key]}
        body = _pydantic.describe(annotation, self.mode)
        definitions: dict[str, Schema] = body.pop("$defs", {})
        for inner_name, inner in definitions.items():
            _untitle(inner, inner_name)
        own = _target(body) if body.keys() == {"$ref"} else None
        if own is not None and own in definitions:
            body = definitions[own]
        _untitle(body, name)
        renamed: dict[str, str] = {}
        for inner_name, inner in definitions.items():
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
    """Choices of one type each, since an `enum` is read with a `type` beside it."""
    names: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(names.get(type(value), "object" if isinstance(value, dict) else "array"), []).append(value)
    return _any_of(
        [{"type": name} if name == "null" else {"type": name, "enum": group} for name, group in groups.items()]
    )


def _written(pattern: str) -> str:
    portable = portable_pattern(pattern)
    if portable is None:
        raise DeclarationError(
            f"the pattern {pattern!r} has no meaning in JavaScript, which clients read it with: write it without inline flags, "
            "atomic groups, possessive repeats and conditions, or check the value in the function"
        )
    return portable


def _tighten(schema: Schema, keyword: str, bound: Any) -> None:
    """Add a rule to those of the schema, which hold as well."""
    known = schema.get(keyword, bound)
    if known == bound:
        schema[keyword] = bound
    elif keyword in ("pattern", "multipleOf"):
        schema["allOf"] = [*schema.get("allOf", []), {"type": schema["type"], keyword: bound}]
    else:
        schema[keyword] = max(known, bound) if "min" in keyword.lower() else min(known, bound)


def _any_of(options: list[Schema]) -> Schema:
    different: list[Schema] = []
    for option in options:
        if option not in different:
            different.append(option)
    if {"type": "number"} in different and {"type": "integer"} in different:
        different.remove({"type": "integer"})
    if {} in different or not different:
        return {}
    return different[0] if len(different) == 1 else {"anyOf": different}


def _spelled_out(node: Any, mode: Mode) -> Any:
    """`node` with every schema inside it that admits anything saying so."""
    if not isinstance(node, dict):
        return node
    schema = cast("Schema", node)
    if not schema.keys() - _SILENT:
        return {**schema, "anyOf": _anything(mode, _ARRAYS_DEEP)}
    if mode != "output" and schema.get("type") == "array" and "items" not in schema:
        return {**rebuild(schema, lambda _, child: _spelled_out(child, mode)), "items": _any_item(mode, _ARRAYS_DEEP)}
    return rebuild(schema, lambda _, child: _spelled_out(child, mode))


def _anything(mode: Mode, depth: int) -> list[Schema]:
    if mode == "output":
        return list(_ANYTHING)
    others = [option for option in _ANYTHING if option["type"] != "array"]
    return [*others[:-1], {"type": "array", "items": _any_item(mode, depth)}, others[-1]] if depth else others


def _any_item(mode: Mode, depth: int) -> Schema:
    return {"anyOf": _anything(mode, depth - 1)}


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
