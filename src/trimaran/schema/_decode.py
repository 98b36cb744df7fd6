"""Turn JSON-decoded values into the annotated types, accepting exactly the values that the schema admits.

msgspec does the work wherever it can be trusted to agree with the schema. Types fall into three levels:

    PLAIN     msgspec accepts nothing the schema refuses: the annotation goes to msgspec as it is
    CHECKED   msgspec builds it right but accepts more (a Python regex, a missing tag): judged by the schema first
    FOREIGN   msgspec cannot build it (a pydantic model, `datetime | str`): judged by the schema, then built here

`native` rewrites an annotation so that every part below PLAIN becomes a marker class, which msgspec hands to our
hook; the rest stays one C decode.
"""

from __future__ import annotations

import collections
import enum
import re
from collections import deque
from collections.abc import Callable, Hashable
from typing import Annotated, Any, Final, Literal, Optional, cast, final, get_args, get_origin

import msgspec

from . import _pydantic
from ._annotations import Notes, Record, alias_value, is_alias, is_enum, is_pydantic, is_union, peel, record_of
from .type_schemas import ARRAYS, MAPS, SETS, Describer, is_textual, json_ready, map_arguments
from .validate import Validator

_PLAIN: Final = 0
_CHECKED: Final = 1
_FOREIGN: Final = 2

# msgspec does not build these from a `dict`.
_BUILT_MAPS: Final[dict[Any, Callable[[dict[Any, Any]], Any] | None]] = {
    collections.OrderedDict: collections.OrderedDict,
    collections.Counter: collections.Counter,
    collections.defaultdict: None,
}
# Types of values that can stand for what is missing from a `defaultdict`.
_FACTORIES: Final = frozenset((list, dict, set, int, float, str, bool))

# Python's `$` matches before a final newline and its float remainder rounds: JSON Schema agrees with neither.
_LOOSE_BOUNDS: Final = frozenset(("pattern", "multiple_of"))


class _Marker(type):
    """A class that stands for an annotation; anything the hook returns for it counts as an instance."""

    decode: Callable[[Any], Any]

    def __instancecheck__(cls, instance: Any) -> bool:
        return True


@final
class Natives:
    """Compiles annotations into types that msgspec can decode; one instance per signature, for shared definitions."""

    def __init__(self) -> None:
        self._markers: dict[Hashable, Any] = {}
        self._decoders: dict[Hashable, Callable[[Any], Any]] = {}

    @property
    def needs_schema(self) -> bool:
        """Whether some part is judged by the schema, so that a schema that cannot be compiled would be met late."""
        return bool(self._markers)

    def hook(self, cls: Any, value: Any) -> Any:
        """msgspec's `dec_hook`: builds the types that `native` marked, and foreign types inside records."""
        if isinstance(cls, _Marker):
            return cls.decode(value)
        return self.decoder(cls)(value)

    def decoder(self, annotation: Any) -> Callable[[Any], Any]:
        """A function that builds `annotation` from a JSON-decoded value; it raises `msgspec.ValidationError`."""
        key = _key(annotation)
        if key not in self._decoders:
            native = self.native(annotation)

            def decode(value: Any) -> Any:
                return msgspec.convert(value, native, str_keys=True, dec_hook=self.hook)

            self._decoders[key] = decode
        return self._decoders[key]

    def native(self, annotation: Any) -> Any:
        """The type for msgspec in place of `annotation`."""
        core, metadata = peel(annotation)
        notes = Notes.read(metadata)
        if _level(annotation, set()) == _PLAIN:
            return Annotated[core, notes.meta()] if notes.bounds or notes.tz is not None else core
        if notes.needs_pydantic:
            return self._marker(annotation)
        inner = self._structure(core)
        if inner is None:
            return self._marker(annotation)
        if not notes.bounds and notes.tz is None:
            return inner
        if not _is_loose(core, notes):
            bounded = _bounded(inner, notes)
            if bounded is not None:
                return bounded
        return self._marker(annotation)

    def _structure(self, core: Any) -> Any:
        """`core` with its parts made native; None when it has no parts that msgspec could put together."""
        if _level(core, set()) == _PLAIN:
            return core
        origin, arguments = get_origin(core) or core, get_args(core)
        if is_alias(core) and not _is_recursive(core):
            return self.native(alias_value(core))
        if origin in ARRAYS and origin is not deque:
            return list[self.native(arguments[0])] if arguments else list
        if origin in SETS and arguments:
            return _accepted(
                frozenset if origin is frozenset else set,
                self.native(arguments[0]),
            )
        if origin in MAPS and origin not in _BUILT_MAPS:
            if not arguments or _level(arguments[0], set()) != _PLAIN:
                return None
            return dict[arguments[0], self.native(arguments[1])]
        if origin is tuple and arguments:
            return tuple[tuple(part if part is ... else self.native(part) for part in arguments)]
        if is_union(core):
            rest = [member for member in arguments if member is not type(None)]
            if len(rest) == 1 and len(arguments) == 2:
                return Optional[self.native(rest[0])]  # noqa: UP045
        return None

    def _marker(self, annotation: Any) -> Any:
        key = _key(annotation)
        if key not in self._markers:
            self._markers[key] = _Marker("Marker", (), {"decode": staticmethod(self._judged(annotation))})
        return self._markers[key]

    def _judged(self, annotation: Any) -> Callable[[Any], Any]:
        """Judge by the schema, then build; both are made on first use, which lets a type contain itself."""
        ready: list[tuple[Validator, Callable[[Any], Any]]] = []

        def decode(value: Any) -> Any:
            if not ready:
                describer = Describer("input")
                schema = describer.close(describer.describe(annotation))
                ready.append((Validator(schema), self._builder(annotation)))
            validator, build = ready[0]
            if not validator.is_valid(value):
                raise ValueError(str(validator.first(value)))
            return build(value)

        return decode

    def _builder(self, annotation: Any) -> Callable[[Any], Any]:
        core, metadata = peel(annotation)
        if Notes.read(metadata).needs_pydantic:
            return _pydantic.builder(annotation)
        if is_pydantic(core):
            return _pydantic.builder(core)
        if is_alias(core):
            return self.decoder(alias_value(core))
        if is_union(core):
            return self._union(core)
        if get_origin(core) is Literal:
            return _chooser([(choice, _wire(choice)) for choice in get_args(core)])
        if is_enum(core):
            return _enum(core)
        if is_textual(core):
            return _text(core)
        if (get_origin(core) or core) is deque:
            items = self.decoder(list[get_args(core)[0]] if get_args(core) else list)
            return lambda value: deque(items(value))
        if (record := record_of(core)) is not None and _level(core, set()) == _FOREIGN:
            return self._record(record)
        if (structure := self._structure(core)) is not None:
            return lambda value: msgspec.convert(value, structure, str_keys=True, dec_hook=self.hook)
        if (get_origin(core) or core) in MAPS:
            return self._map(core)
        if isinstance(core, type) and issubclass(core, str | int | float):
            return core
        whole = cast("Any", core)
        return lambda value: msgspec.convert(value, whole, str_keys=True, dec_hook=self.hook)

    def _union(self, core: Any) -> Callable[[Any], Any]:
        members = [(member, self.decoder(member)) for member in get_args(core)]

        def build(value: Any) -> Any:
            reasons: list[str] = []
            for _, decode in members:
                try:
                    return decode(value)
                except msgspec.ValidationError as error:
                    reasons.append(str(error))
            raise ValueError("; ".join(dict.fromkeys(reasons)))

        return build

    def _record(self, record: Record) -> Callable[[Any], Any]:
        fields = [(field, self.decoder(field.annotation)) for field in record.fields if not field.is_hidden]
        shift = 1 if record.is_array and record.tag else 0

        def build(value: Any) -> Any:
            values: dict[str, Any] = {}
            for index, (field, decode) in enumerate(fields):
                if record.is_array:
                    if index + shift < len(value):
                        values[field.name] = decode(value[index + shift])
                elif field.key in value:
                    values[field.name] = decode(value[field.key])
            return record.cls(**values)

        return build

    def _map(self, core: Any) -> Callable[[Any], Any]:
        origin = get_origin(core) or core
        key_type, value_type = map_arguments(core) or (str, Any)
        keys, values = self.decoder(key_type), self.decoder(value_type)

        def read(value: Any) -> dict[Any, Any]:
            return {keys(key): values(inner) for key, inner in value.items()}

        if origin is collections.defaultdict:
            missing = get_origin(value_type) or value_type
            factory = missing if missing in _FACTORIES else None
            return lambda value: collections.defaultdict(factory, read(value))
        build = _BUILT_MAPS.get(origin)
        return read if build is None else lambda value: build(read(value))


def _key(annotation: Any) -> Hashable:
    # `Annotated[int, Meta(...)]` equals another with the same notes; unhashable notes fall back to identity.
    try:
        hash(annotation)
    except TypeError:
        return id(annotation)
    # Literal[1] == Literal[True] and hash alike, so the spelling is part of the key.
    return annotation, str(annotation)


def _level(annotation: Any, seen: set[Hashable]) -> int:
    """How far msgspec can be trusted with everything reachable from `annotation`."""
    core, metadata = peel(annotation)
    notes = Notes.read(metadata)
    if notes.needs_pydantic:
        return _FOREIGN
    level = _core_level(core, seen)
    if level == _FOREIGN or not (notes.bounds or notes.tz is not None):
        return level
    if _bounded(core, notes) is None:
        return _FOREIGN
    return max(level, _CHECKED if not notes.is_msgspec or _is_loose(core, notes) else _PLAIN)


def _core_level(core: Any, seen: set[Hashable]) -> int:
    if core is Any:
        return _PLAIN
    origin, arguments = get_origin(core) or core, get_args(core)
    if origin is Literal or is_union(core):
        if not _is_accepted(core):
            return _FOREIGN
        return _PLAIN if origin is Literal else _most(arguments, seen)
    if is_alias(core):
        return _FOREIGN if _is_recursive(core) or not _is_accepted(core) else _level(alias_value(core), seen)
    if is_pydantic(core):
        # msgspec would fill a pydantic dataclass as if it were a plain one.
        return _FOREIGN if hasattr(core, "__dataclass_fields__") else _CHECKED
    if is_textual(core):
        return _CHECKED
    if is_enum(core):
        return _enum_level(core)
    if (record := record_of(core)) is not None:
        return _record_level(record, core, seen)
    if origin in ARRAYS or origin in SETS or origin in MAPS or origin is tuple:
        parts = tuple(part for part in arguments if part is not ...)
        return _most(parts, seen) if _is_accepted(core) and _is_built_in(origin) else _FOREIGN
    if isinstance(core, type) and issubclass(core, str | int | float) and core not in (str, int, float, bool):
        return _CHECKED
    return _PLAIN


def _most(parts: tuple[Any, ...], seen: set[Hashable]) -> int:
    return max((_level(part, seen) for part in parts), default=_PLAIN)


def _is_built_in(origin: Any) -> bool:
    import collections.abc as abc

    # msgspec takes the others for custom types, which a reader of the annotation would not expect.
    return origin not in (deque, abc.Iterable) and origin not in _BUILT_MAPS


def _enum_level(core: type[enum.Enum]) -> int:
    if issubclass(core, enum.Flag):
        return _PLAIN
    kinds: set[type[Any]] = {type(member.value) for member in core}
    if kinds not in ({str}, {int}):
        return _FOREIGN
    has_fallback = cast("Any", core._missing_).__func__ is not cast("Any", enum.Enum._missing_).__func__
    return _CHECKED if has_fallback else _PLAIN


def _record_level(record: Record, core: Any, seen: set[Hashable]) -> int:
    key = _key(core)
    if key in seen:
        return _PLAIN
    seen.add(key)
    if record.needs_constructor:
        return _FOREIGN
    level = _CHECKED if record.tag else _PLAIN
    level = max(level, _most(tuple(field.annotation for field in record.fields), seen))
    return level if level == _FOREIGN or _is_accepted(core) else _FOREIGN


def _is_loose(core: Any, notes: Notes) -> bool:
    # A set counts its members after duplicates are gone, a schema counts the items that came.
    is_set = (get_origin(core) or core) in SETS
    return is_set or not _LOOSE_BOUNDS.isdisjoint(notes.bounds)


def _is_recursive(core: Any) -> bool:
    """Whether an alias contains itself."""
    seen: set[Hashable] = set()

    def contains(annotation: Any) -> bool:
        inner, _ = peel(annotation)
        if inner is core:
            return True
        if is_alias(inner):
            key = _key(inner)
            if key in seen:
                return False
            seen.add(key)
            return contains(alias_value(inner))
        return any(contains(part) for part in get_args(inner) if part is not ... and get_origin(inner) is not Literal)

    return contains(alias_value(core))


def _is_accepted(annotation: Any) -> bool:
    """Whether msgspec can decode the type at all: asking it is shorter than its rules for unions."""
    try:
        msgspec.json.Decoder(annotation)
    except (TypeError, NotImplementedError, NameError, ValueError, RecursionError):  # the last: an alias of itself
        return False
    return True


def _accepted(container: Any, part: Any) -> Any:
    annotation = container[part]
    return annotation if _is_accepted(annotation) else None


def _bounded(core: Any, notes: Notes) -> Any:
    """`core` under the constraints of `notes`, or None when msgspec does not take them there."""
    try:
        bounded = Annotated[core, notes.meta()]
    except Exception:  # TypeError and ValueError, and re.error from a pattern
        return None
    return bounded if _is_accepted(bounded) else None


def _wire(choice: Any) -> Any:
    return json_ready(choice.value if isinstance(choice, enum.Enum) else choice)


def _chooser(pairs: list[tuple[Any, Any]]) -> Callable[[Any], Any]:
    def build(value: Any) -> Any:
        for choice, wire in pairs:
            if wire == value and isinstance(wire, bool) == isinstance(value, bool):
                return choice
        raise ValueError(f"{value!r} is not one of the choices")

    return build


def _enum(core: type[enum.Enum]) -> Callable[[Any], Any]:
    return _chooser([(member, json_ready(member.value)) for member in core])


def _text(core: Any) -> Callable[[Any], Any]:
    if core is re.Pattern or get_origin(core) is re.Pattern:

        def compile_pattern(value: Any) -> Any:
            try:
                return re.compile(value)
            except re.error as error:
                raise ValueError(str(error)) from None

        return compile_pattern
    return core
