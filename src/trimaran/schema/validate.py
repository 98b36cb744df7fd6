"""Judge a JSON value by a JSON Schema: every violation with its path and a reason a reader can act on.

Full 2020-12, and the older drafts when `$schema` names one, compiled once by jsonschema-rs. The validator never
leaves the document: a reference to a URL or a file is refused when the schema is compiled, because fetching what a
peer's schema points at would let that peer choose our requests. `format` stays an annotation, as 2020-12 has it by
default. Nothing here converts, repairs or knows what a tool is.

jsonschema-rs costs some 20 ms to import, so it is imported by the first `Validator`, never by this module.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, cast, final

import msgspec

from trimaran.errors import DeclarationError

__all__ = ["Schema", "Validator", "Violation", "check_object_schema", "path_text", "validate"]

Schema = dict[str, Any]

# A list of twenty tells a model everything it can mend in one turn; a wrong array of a million items would not.
_MAX_VIOLATIONS: Final = 20
# Both ends of a longer reason are kept: it opens with the quoted value and closes with the rule that was broken.
_MAX_REASON: Final = 400
# jsonschema-rs recurses on the C stack and dies with the process somewhere past 10,000 levels on an 8 MB stack.
# Parsers bound JSON to some hundreds; 1,000 is beyond any honest document and safe on a 1 MB stack.
_MAX_DEPTH: Final = 1000
_CONTAINERS: Final = frozenset((dict, list, tuple))


@final
class Violation(msgspec.Struct, frozen=True):
    """One place where a value breaks its schema."""

    path: str
    """Where, as `$.items[0].name`."""
    reason: str
    """What is wrong there, with the offending value quoted and cut."""
    keyword: str = ""
    """The schema keyword that was broken, when one was."""
    subject: str = ""
    """The missing or unexpected property, for `required` and `additionalProperties`."""

    def __str__(self) -> str:
        return f"{self.reason} (at {self.path})"


@final
class Validator:
    """A compiled schema; compile once and ask often. It holds no state and may be shared between threads.

    Raises:
        DeclarationError: the schema is invalid, names an unknown dialect, or refers outside itself.
    """

    __slots__ = ("_compiled", "schema")

    def __init__(self, schema: Schema | bool) -> None:
        import jsonschema_rs

        self.schema = schema
        try:
            self._compiled = jsonschema_rs.validator_for(schema, retriever=_refuse, validate_formats=False)
        except jsonschema_rs.ValidationError as error:
            raise DeclarationError(_schema_fault(error.message, error.instance_path)) from None
        except (ValueError, RecursionError, OverflowError) as error:
            raise DeclarationError(f"the JSON Schema cannot be compiled: {error}") from None

    def __repr__(self) -> str:
        return f"Validator({self.schema!r})"

    def is_valid(self, value: Any) -> bool:
        """Whether the schema admits `value`; the fastest question."""
        try:
            return not _is_too_deep(value) and self._compiled.is_valid(value)
        except ValueError:
            return False

    def first(self, value: Any) -> Violation | None:
        """The first violation, or None when the schema admits `value`."""
        found = self._violations(value, 1)
        return found[0] if found else None

    def errors(self, value: Any) -> list[Violation]:
        """The violations of `value`, at most twenty; empty when the schema admits it."""
        return self._violations(value, _MAX_VIOLATIONS)

    def _violations(self, value: Any, limit: int) -> list[Violation]:
        try:
            if _is_too_deep(value):
                return [Violation("$", f"the value is nested deeper than {_MAX_DEPTH} levels")]
            if self._compiled.is_valid(value):
                return []
            return [_violation(error, value) for error in islice(self._compiled.iter_errors(value), limit)]
        except UnicodeEncodeError:
            return [Violation("$", "the value holds a lone surrogate, which is not a character JSON can carry")]
        except ValueError as error:
            return [Violation("$", f"the value is not JSON: {_cut(str(error))}")]


def validate(value: Any, schema: Schema | bool | None) -> list[Violation]:
    """The violations of `value` under `schema`; empty when it is admitted. No schema admits anything (R82, R83, R89).

    Whoever asks more than once keeps a `Validator` instead.
    """
    if schema is None or schema == {}:
        return []
    return Validator(schema).errors(value)


def check_object_schema(schema: Any, what: str) -> None:
    """Refuse a schema whose root does not describe an object; `what` names its owner in the message (R9)."""
    if not isinstance(schema, dict):
        raise DeclarationError(
            f"{what} must be a JSON Schema object, not {type(schema).__name__}: write {{'type': 'object', ...}}"
        )
    kind = cast("Schema", schema).get("type")
    if kind != "object":
        said = "has no 'type'" if kind is None else f"has type {kind!r}"
        raise DeclarationError(
            f"the root of {what} {said}: write 'type': 'object' there and put the rest in 'properties'"
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


def _is_too_deep(value: Any) -> bool:
    if type(value) not in _CONTAINERS:
        return False
    try:
        text = msgspec.json.encode(value)
    except RecursionError:
        return True
    except (TypeError, OverflowError):
        return _depth_exceeds(value)
    # Every level costs two characters, so a short text is a shallow one; an opener in a string only overcounts.
    if len(text) < 2 * _MAX_DEPTH or text.count(b"[") + text.count(b"{") < _MAX_DEPTH:
        return False
    return _depth_exceeds(value)


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
            "copy what it names into '$defs' and write '$ref': '#/$defs/Name'"
        )
    if message.startswith("Unknown meta-schema"):
        return (
            f"the JSON Schema is in a dialect that is not supported ({_cut(message)}): leave '$schema' out for 2020-12"
        )
    return f"the JSON Schema is not valid at {path_text(steps)}: {_cut(message)}"


def _violation(error: Any, value: Any) -> Violation:
    error = _telling(error)
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
    return Violation(path_text(error.instance_path), _cut(_reason(error)), keyword, subject)


def _telling(error: Any) -> Any:
    """Descend from "not valid under any of the schemas" to the branch the sender most likely meant."""
    while error.kind.name in ("anyOf", "oneOf"):
        here = len(error.instance_path)
        branches: list[list[Any]] = getattr(error.kind, "context", [])
        meant = [branch[0] for branch in branches if branch and not _is_other_kind(branch[0], here)]
        if not meant:
            return error
        error = max(meant, key=lambda candidate: len(candidate.instance_path))
    return error


def _is_other_kind(error: Any, depth: int) -> bool:
    return error.kind.name == "type" and len(error.instance_path) <= depth


def _reason(error: Any) -> str:
    message: str = error.message
    if error.kind.name not in ("anyOf", "oneOf"):
        return message
    types: list[str] = []
    for branch in getattr(error.kind, "context", []):
        for inner in branch[:1]:
            types += [name for name in getattr(inner.kind, "types", []) if name not in types]
    if not types:
        return message
    value = message.split(" is not valid under", 1)[0]
    wanted = " or ".join(f'"{name}"' for name in types)
    return f"{value} is not of type {wanted}"


def _cut(text: str) -> str:
    if len(text) <= _MAX_REASON:
        return text
    half = _MAX_REASON // 2
    return f"{text[:half]} ... {text[-half:]}"
