"""Judge a JSON value by a JSON Schema: every violation with its path and a reason a reader can act on.

Full 2020-12, and the older drafts when `$schema` names one, compiled once by jsonschema-rs. The validator never
leaves the document: a reference to a URL or a file is refused when the schema is compiled, because fetching what a
peer's schema points at would let that peer choose our requests. `format` stays an annotation, as 2020-12 has it by
default. Nothing here converts, repairs or knows what a tool is.

Neither a schema nor a value can keep the validator busy: schemas over a size are refused when they are compiled, and a
value that would take too many steps (`workload.py`) is not checked, which counts as a violation.

jsonschema-rs costs some 20 ms to import, so it is imported by the first `Validator`, never by this module.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast, final

import msgspec

from trimaran.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .workload import Workload

Schema = dict[str, Any]

# A list of twenty tells a model everything it can fix in one turn; a wrong array of a million items would not.
_MAX_VIOLATIONS: Final = 20
# Both ends of a longer reason are kept: it opens with the quoted value and closes with the rule that was broken.
_MAX_REASON: Final = 400
# jsonschema-rs recurses on the C stack and dies with the process somewhere past 10,000 levels on an 8 MB stack.
# Parsers bound JSON to some hundreds; 1,000 is beyond any honest document and safe on a 1 MB stack.
_MAX_DEPTH: Final = 1000
_CONTAINERS: Final = frozenset((dict, list, tuple))

# This much compiles in a tenth of a second. The largest schemas of real tools have some hundreds of objects in 100 KB.
_MAX_SCHEMA_BYTES: Final = 1024 * 1024
_MAX_SCHEMA_OBJECTS: Final = 5_000
# Tries of a pattern with look-around or back references, each up to the length of the text. Honest ones need a few.
_MAX_BACKTRACKS: Final = 1_000
# Visits of 25 ns: 50 ms.
_MAX_VISITS: Final = 2_000_000
# Parts of a value that are gone through in Python to count the visits, at 0.4 us each.
_MAX_COUNTED: Final = 200_000
# With so few visits to each part, checking a value takes no longer than decoding it did.
_FEW_VISITS: Final = 8
# An error costs 20 us, and all of a value can be wrong.
_MAX_EXPLAINED: Final = 4_000
# A schema without these, and with few objects, visits no part more often than it has objects.
_SPECIAL: Final = (b'Ref":', b'"$ref":', b'"unevaluated', b'"propertyNames":')
_FEW_OBJECTS: Final = 200


@final
class Violation(msgspec.Struct, frozen=True):
    """One place where a value breaks its schema."""

    path: str
    """Where, as `$.items[0].name`."""
    reason: str
    """The reason, with the offending value quoted and cut."""
    keyword: str = ""
    """The schema keyword that was broken, when one was."""
    subject: str = ""
    """The missing or unexpected property, for `required` and `additionalProperties`."""
    is_unchecked: bool = False
    """Checking would take too long, so it is not known whether the value matches."""

    def __str__(self) -> str:
        return f"{self.reason} (at {self.path})"


@final
class Validator:
    """A compiled schema; compile once and ask often. It holds no state and may be shared between threads.

    Raises:
        DeclarationError: the schema is invalid, names an unknown dialect, refers outside itself, or is too large.
    """

    __slots__ = ("_compiled", "_load", "_objects", "_short", "schema")

    def __init__(self, schema: Schema | bool) -> None:
        import jsonschema_rs

        self.schema: Schema | bool = schema
        text = _text_of(schema)
        self._objects = _count_objects(text)
        has_patterns = b"attern" in text
        if has_patterns:
            from .workload import check_patterns

            check_patterns(schema)
        try:
            self._compiled = jsonschema_rs.validator_for(
                schema,
                retriever=_refuse,
                validate_formats=False,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS),
            )
        except jsonschema_rs.ValidationError as error:
            raise DeclarationError(_schema_fault(error.message, error.instance_path)) from None
        except (ValueError, RecursionError, OverflowError) as error:
            raise DeclarationError(f"the JSON Schema cannot be compiled: {error}") from None
        is_plain = self._objects <= _FEW_OBJECTS and not has_patterns and not any(word in text for word in _SPECIAL)
        self._load: Workload | None = None
        load = None if is_plain and text else self._workload()
        # Shorter values are neither deep nor much work. Every part of a value takes two characters.
        most = self._objects // 2 + 1 if load is None else load.most_per_character()
        self._short = 0 if most is None else min(2 * _MAX_DEPTH, _MAX_VISITS // most)

    def __repr__(self) -> str:
        return f"Validator({self.schema!r})"

    def is_valid(self, value: object) -> bool:
        """Whether the schema admits `value`; the fastest question."""
        text = None
        try:
            if type(value) not in _CONTAINERS:
                length = len(value) if type(value) is str else 1
            else:
                length = len(text := msgspec.json.encode(value))
            if length < self._short:
                return self._compiled.is_valid(value)
        except (TypeError, OverflowError, RecursionError):
            pass
        except ValueError:
            return False
        return not self._violations(value, 0, text)

    def first(self, value: object) -> Violation | None:
        """The first violation, or None when the schema admits `value`."""
        violations = self._violations(value, 1)
        return violations[0] if violations else None

    def errors(self, value: object) -> list[Violation]:
        """The violations of `value`, at most twenty; empty when the schema admits it.

        For a large value it may be only the first.
        """
        return self._violations(value, _MAX_VIOLATIONS)

    def _violations(self, value: Any, limit: int, text: bytes | None = None) -> list[Violation]:
        """At most `limit` violations; `text` is the value as JSON, if the caller has it."""
        try:
            size = _size_of(value, text)
            if size is None:
                return [Violation("$", f"the value is nested deeper than {_MAX_DEPTH} levels")]
            if (visits := self._visits(value, size)) > _MAX_VISITS:
                reason = f"the value is not checked: with this schema that takes over {_MAX_VISITS:,} steps"
                return [Violation("$", reason, is_unchecked=True)]
            if self._compiled.is_valid(value):
                return []
            return self._explain(value, limit, visits) if limit else [Violation("$", "")]
        except UnicodeEncodeError:
            return [Violation("$", "the value holds a lone surrogate, which is not a character JSON can carry")]
        except ValueError as error:
            return [Violation("$", f"the value is not JSON: {_cut(str(error))}")]

    def _visits(self, value: Any, size: _Size) -> int:
        """An upper bound of the visits, or a number over the limit."""
        if self._load is None and self._objects * size.parts <= _MAX_VISITS:
            return self._objects * size.parts
        load = self._workload()
        if load.factor is not None:
            visits = load.at_most(size.parts, size.length)
            if visits <= _MAX_VISITS:
                return visits
            if load.factor <= _FEW_VISITS and not load.characters:
                return _MAX_VISITS
        return load.of(value, _MAX_VISITS) if size.parts <= _MAX_COUNTED else _MAX_VISITS + 1

    def _workload(self) -> Workload:
        if self._load is None:
            from .workload import Workload

            self._load = Workload(self.schema)
        return self._load

    def _explain(self, value: Any, limit: int, visits: int) -> list[Violation]:
        import jsonschema_rs

        if visits > _MAX_EXPLAINED:
            visits = self._workload().of(value, _MAX_EXPLAINED)
        if visits <= _MAX_EXPLAINED:
            return [_violation(error, value) for error in islice(self._compiled.iter_errors(value), limit)]
        load = self._workload()
        if load.factor is not None and load.factor <= _MAX_EXPLAINED and not load.has_wide_union:
            try:
                self._compiled.validate(value)
            except jsonschema_rs.ValidationError as error:
                return [_violation(error, value)]
        return [Violation("$", "the value does not match the schema, and is too large to say where")]


def validate(value: object, schema: Schema | bool | None) -> list[Violation]:
    """The violations of `value` under `schema`; empty when it is admitted. No schema admits anything (R82, R83, R89).

    To check more than once, keep a `Validator` instead.
    """
    if schema is None or schema == {}:
        return []
    return Validator(schema).errors(value)


def check_object_schema(schema: object, label: str) -> None:
    """Refuse a schema whose root does not describe an object; `label` names its owner in the message (R9)."""
    if not isinstance(schema, dict):
        raise DeclarationError(
            f"{label} must be a JSON Schema object, not {type(schema).__name__}: write {{'type': 'object', ...}}"
        )
    kind = cast("Schema", schema).get("type")
    if kind != "object":
        problem = "has no 'type'" if kind is None else f"has type {kind!r}"
        raise DeclarationError(
            f"the root of {label} {problem}: write 'type': 'object' there and put the rest in 'properties'"
        )


def path_text(steps: list[str | int]) -> str:
    """A path from its steps: `["a", 0, "b c"]` is `$.a[0]['b c']`."""
    parts = ["$"]
    for step in steps:
        if isinstance(step, str):
            parts.append(f".{step}" if step.isidentifier() else f"[{step!r}]")
        else:
            parts.append(f"[{step}]")
    return "".join(parts)


def _refuse(uri: str) -> Any:
    raise LookupError(uri)


def _text_of(schema: Any) -> bytes:
    """The schema as JSON; empty if it is not JSON, which the compiler explains better."""
    try:
        text = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError):
        return b""
    if len(text) > _MAX_SCHEMA_BYTES:
        raise DeclarationError(f"the JSON Schema has {len(text):,} bytes, and {_MAX_SCHEMA_BYTES:,} is the limit")
    return text


def _count_objects(text: bytes) -> int:
    objects = text.count(b"{")
    if objects > _MAX_SCHEMA_OBJECTS:
        raise DeclarationError(f"the JSON Schema holds {objects:,} objects, and {_MAX_SCHEMA_OBJECTS:,} is the limit")
    return objects + text.count(b"[")


class _Size(NamedTuple):
    """How large a value is."""

    parts: int
    """No fewer than the values in it."""
    length: int
    """Its length in bytes."""


def _size_of(value: Any, text: bytes | None = None) -> _Size | None:
    """None if it is too deep."""
    if type(value) not in _CONTAINERS:
        return _Size(1, len(value) if isinstance(value, str) else 0)
    try:
        text = text or msgspec.json.encode(value)
    except RecursionError:
        return None
    except (TypeError, OverflowError):  # not JSON, as the validator will say
        return None if _depth_exceeds(value) else _Size(_MAX_COUNTED, _MAX_COUNTED)
    # Every level costs two characters, so a short text is a shallow one; an opener in a string only overcounts.
    openers = text.count(b"[") + text.count(b"{")
    if len(text) >= 2 * _MAX_DEPTH and openers >= _MAX_DEPTH and _depth_exceeds(value):
        return None
    return _Size(1 + openers + text.count(b","), len(text))


def _depth_exceeds(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if type(child) in _CONTAINERS
        ]
        if not level:
            return False
    return True


def _schema_fault(message: str, steps: list[str | int]) -> str:
    if message.startswith("Resource '"):
        ref = message.removeprefix("Resource '").split("'", 1)[0]
        return (
            f"the JSON Schema refers to {ref!r}, and references outside the schema are never fetched: "
            "copy its target into '$defs' and write '$ref': '#/$defs/Name'"
        )
    if message.startswith("Unknown meta-schema"):
        return (
            f"the JSON Schema is in a dialect that is not supported ({_cut(message)}): leave '$schema' out for 2020-12"
        )
    return f"the JSON Schema is not valid at {path_text(steps)}: {_cut(message)}"


def _violation(error: Any, value: Any) -> Violation:
    error, union = _telling(error)
    kind = error.kind
    keyword: str = kind.name
    subject = ""
    if keyword == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
        # Where no property at all is allowed, jsonschema-rs says neither that nor which one came.
        for step in error.instance_path:
            value = value[step]
        subject = next(iter(value))
        reason = f"Additional properties are not allowed ({subject!r} was unexpected)"
        return Violation(path_text(error.instance_path), _cut(reason), "additionalProperties", subject)
    if keyword == "required":
        subject = kind.property
    elif keyword == "additionalProperties":
        subject = kind.unexpected[0]
    return Violation(path_text(error.instance_path), _cut(_reason(error, union)), keyword, subject)


def _telling(error: Any) -> tuple[Any, Any]:
    """Descend from "not valid under any of the schemas" to the branch the sender most likely meant, and the union it is of."""
    union: Any = None
    while error.kind.name in ("anyOf", "oneOf"):
        here = len(error.instance_path)
        branches = [branch for branch in _branches(error) if branch and not _is_other_kind(branch[0], here)]
        if not branches:
            break
        # A tag such as `"kind": "dog"` says which branch was meant: one that has another tag was not.
        tagged = [branch for branch in branches if not any(len(_choices(inner)) == 1 for inner in branch)]
        meant = [branch[0] for branch in tagged or branches]
        error, union = max(meant, key=lambda candidate: len(candidate.instance_path)), error
    return error, union


def _branches(union: Any) -> list[list[Any]]:
    return getattr(union.kind, "context", [])


def _is_other_kind(error: Any, depth: int) -> bool:
    return error.kind.name == "type" and len(error.instance_path) <= depth


def _choices(error: Any) -> list[Any]:
    """The values that would have done, where they are listed."""
    if error.kind.name == "const":
        return [error.kind.expected_value]
    return list(error.kind.options) if error.kind.name == "enum" else []


def _reason(error: Any, union: Any) -> str:
    """The fault; for an `error` of a union, everything that would have been right in this place."""
    if _choices(error):
        branches = [[error]] if union is None else _branches(union)
        here = [[inner for inner in branch if inner.instance_path == error.instance_path] for branch in branches]
        choices = dict.fromkeys(_as_json(choice) for branch in here for inner in branch for choice in _choices(inner))
        *others, last = choices
        expected = f"{', '.join(others)} or {last}" if others else last
        # A branch that lists its choices too fails by its type and by them.
        types = _types(inner for branch in here if len(branch) == 1 for inner in branch)
        reason = f"{_as_json(error.instance)} is not one of {expected}"
        return f"{reason}, nor of type {_either(types)}" if types else reason
    message: str = error.message
    types = _types(branch[0] for branch in _branches(error) if branch)
    if not types:
        return message
    return f"{message.split(' is not valid under', 1)[0]} is not of type {_either(types)}"


def _types(errors: Iterable[Any]) -> list[str]:
    """The types that would have done."""
    return list(dict.fromkeys(name for error in errors for name in getattr(error.kind, "types", [])))


def _either(names: list[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _cut(text: str) -> str:
    if len(text) <= _MAX_REASON:
        return text
    half = _MAX_REASON // 2
    return f"{text[:half]} ... {text[-half:]}"
