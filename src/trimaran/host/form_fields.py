"""Forms: from the flat schema of a question to fields for a person, and from the typed texts to the answer.

    form = Form(question.schema)
    content, problems = form.read({"nights": "3", "power": True})
    if not problems:
        question.accept(content)

Pure, and without a screen: the command line asks field by field, the console draws them all, and both read the answers
here. Every spelling the protocol has had is understood. The schema is the server's, so it may hold anything: what is not
understood is a field for text, in which JSON is read as JSON. The last word on an answer has the validator, the same that
`Question.accept` asks; what `read` lets through is accepted there.
"""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast, final

from trimaran.errors import DeclarationError
from trimaran.schema.typed_values import WordError, parse_json, target_of, truth_of
from trimaran.schema.validate import Validator, Violation, path_text
from trimaran.types import Json

from .terminal_text import in_one_line, safe, to_json

Kind: TypeAlias = Literal["text", "number", "integer", "boolean", "choice", "choices"]
Typed: TypeAlias = str | bool | list[str]

_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
# format -> the hint, and the words for an error
_FORMATS: Final = {
    "email": ("e-mail address", "an e-mail address such as ada@example.org"),
    "uri": ("URL", "a URL such as https://example.org/"),
    "date": ("date, YYYY-MM-DD", "a date such as 2026-07-28"),
    "date-time": ("date and time, ISO 8601", "a date and time such as 2026-07-28T10:00:00Z"),
}
_WORDS: Final[dict[Kind, str]] = {"integer": "whole number", "number": "number", "boolean": "yes or no"}
_NEEDED: Final = "an answer is needed here"
_MOST_CHOICES: Final = 1000  # no person reads more; the schema still checks the typed text
_MOST_STEPS: Final = 16  # from one reference to the next
_MOST_INTEGER: Final = 2**63  # every JSON reader can read smaller ones


class InvalidAnswer(ValueError):
    """An answer that does not fit its field; the text says why."""


@final
class Field:
    """One field of a form: its labels, and the meaning of a typed text.

    Title, description, hint and the titles of choices are safe to show; the name and the values are the server's
    own and may have any characters.
    """

    def __init__(self, name: str, schema: Mapping[str, Json], *, is_required: bool = False) -> None:
        self.name: Final = name
        self.schema: Final = schema
        self.required: Final = is_required
        self.title: Final = in_one_line(_as_text(schema.get("title") or name), 60)
        self.description: Final = in_one_line(_as_text(schema.get("description") or ""), 400)
        self.kind: Final[Kind]
        self.choices: Final[tuple[tuple[Any, str], ...]]
        """Pairs of a value and its title."""
        self.kind, self.choices = _kind_of(schema)
        self.has_default: Final = "default" in schema
        self.default: Final[Any] = schema.get("default")
        self.hint: Final = _hint(schema, self.kind)
        """The expected value, in a few words: `whole number, 1 to 14`."""

    def __repr__(self) -> str:
        return f"<Field {self.name!r}: {self.hint}{', required' if self.required else ''}>"

    @property
    def default_text(self) -> str:
        """The default as a person would type it; `read` takes it back for the default itself."""
        default: Any = self.default
        if not self.has_default or default is None:
            return ""
        if isinstance(default, bool):
            return "yes" if default else "no"
        if isinstance(default, list) and self.kind == "choices":
            return safe(", ".join(_as_text(item) for item in cast("list[Any]", default)))
        return safe(default if isinstance(default, str) else _json(default))

    def is_empty(self, typed: Typed | None) -> bool:
        """Whether the field is empty. A text or list that had a default and was emptied is not."""
        if isinstance(typed, str):
            return not typed.strip() and not (self.kind == "text" and isinstance(self.default, str) and self.default)
        if isinstance(typed, list):
            return not typed and not self.required and not self.default
        return typed is None

    def read(self, typed: Typed) -> Json:
        """The value that was meant.

        Raises:
            ValueError: there is none; says why, in a few words.
        """
        value = self._read(typed)
        fault = self._validator.first(value) if self._validator is not None else None
        if fault is not None and not fault.is_unchecked:
            raise InvalidAnswer(in_one_line(fault.reason))
        return value

    @functools.cached_property
    def _validator(self) -> Validator | None:
        try:
            return Validator(dict(self.schema))
        except DeclarationError:
            return None  # a schema we cannot judge by: the server will

    def _read(self, typed: Typed) -> Any:
        is_value = self.kind == "choice" and any(typed == value for value, _ in self.choices)
        if isinstance(typed, str) and not is_value and self._is_default(typed.strip()):
            return self.default
        if self.kind == "choices":
            if isinstance(typed, list):
                return [self._choose(word) for word in typed]
            return [self._choose(word.strip()) for word in str(typed).split(",") if word.strip()]
        if self.kind == "choice":
            return self._choose(typed.strip() if isinstance(typed, str) else typed)
        if self.kind == "boolean" and isinstance(typed, bool):
            return typed
        text = (typed if isinstance(typed, str) else _json(typed)).strip()
        match self.kind:
            case "integer":
                return _number(text, "a whole number", is_whole=True)
            case "number":
                return _number(text, "a number")
            case "boolean":
                truth = truth_of(text)
                if truth is None:
                    raise InvalidAnswer("answer yes or no")
                return truth
            case _:
                return self._read_text(text)

    def _is_default(self, text: str) -> bool:
        if not text or text != self.default_text.strip():
            return False
        return self._validator is None or self._validator.is_valid(
            self.default
        )  # the server may be wrong about its own

    def _read_text(self, text: str) -> Any:
        value = "" if text == '""' else text
        if self.schema.get("type") in ("string", ["string"], ["string", "null"], ["null", "string"]):
            _check_format(value, self.schema.get("format"))
            return value
        if self._validator is None or self._validator.is_valid(value):
            return value
        try:
            return parse_json(text, "this")
        except WordError:
            return value

    def _choose(self, answer: Any) -> Any:
        """By value, then by title, then by number: a choice named 2 is not the second."""
        for value, _ in self.choices:
            if answer == value and type(answer) is type(value):
                return value
        word = _as_text(answer)
        for value, _ in self.choices:
            if word == _as_text(value):
                return value
        for value, title in self.choices:
            if word.lower() == title.lower():
                return value
        # Not isdigit: "²" is a digit, and no number.
        if word.isdecimal() and len(word) < 5 and 1 <= int(word) <= len(self.choices):
            return self.choices[int(word) - 1][0]
        raise InvalidAnswer(f"{_quoted(word)} is not among the choices")


@final
class Form:
    """The fields of a flat object schema, in their order.

    Args:
        schema: As the server sent it. Anything but an object schema is a form without fields.
    """

    def __init__(self, schema: object) -> None:
        self.schema: Final[Mapping[str, Any]] = cast("Any", schema) if isinstance(schema, Mapping) else {}
        properties: Any = self.schema.get("properties")
        listed: Any = self.schema.get("required")
        needed = (
            {item for item in cast("list[Any]", listed) if isinstance(item, str)} if isinstance(listed, list) else ()
        )
        declared: Mapping[str, Any] = cast("Any", properties) if isinstance(properties, Mapping) else {}
        self.fields: Final = tuple(
            Field(
                name,
                _resolved(cast("Mapping[str, Any]", item), self.schema) if isinstance(item, Mapping) else {},
                is_required=name in needed,
            )
            for name, item in declared.items()
        )

    def __repr__(self) -> str:
        return f"<Form: {', '.join(field.name for field in self.fields) or 'no fields'}>"

    def read(self, texts: Mapping[str, Typed]) -> tuple[dict[str, Json], dict[str, str]]:
        """The answer, and its problems: a sentence by field name, and "" for the form as a whole.

        A field that is not there, or is empty and may be, is left out of the answer; its default, if it has one, holds then.
        """
        content: dict[str, Json] = {}
        problems: dict[str, str] = {}
        for field in self.fields:
            typed = texts.get(field.name)
            if typed is None or field.is_empty(typed):
                if field.required and not field.has_default:
                    problems[field.name] = _NEEDED
                continue
            try:
                content[field.name] = field.read(typed)
            except InvalidAnswer as error:
                problems[field.name] = str(error)
        return content, problems or self._judge(content)

    def _judge(self, content: Mapping[str, Json]) -> dict[str, str]:
        """Problems of the form as a whole: references, conditions, required fields that it does not declare."""
        if not self.schema:
            return {}
        try:
            validator = Validator(dict(self.schema))
        except DeclarationError:
            return {}  # a form that cannot be checked is the server's to check
        defaults = {field.name: field.default for field in self.fields if field.has_default}
        problems: dict[str, str] = {}
        for fault in validator.errors({**defaults, **content}):
            if fault.is_unchecked:
                return {}
            name = self._owner(fault)
            is_missing = name != "" and (fault.keyword, fault.path) == ("required", "$")
            problems.setdefault(name, _NEEDED if is_missing else in_one_line(fault.reason if name else str(fault)))
        return problems

    def _owner(self, fault: Violation) -> str:
        """The field a fault is about, or "" for the form."""
        if fault.path == "$":
            return next((field.name for field in self.fields if field.name == fault.subject), "")
        for field in self.fields:
            path = path_text([field.name])
            if fault.path.startswith(path) and fault.path[len(path) :][:1] in ("", ".", "["):
                return field.name
        return ""


# --- what a schema says ----------------------------------------------------------------------------------------------


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A field's schema with its references resolved: a form is flat, but generators refer to an enum."""
    resolved: Mapping[str, Any] = schema
    for _ in range(_MOST_STEPS):
        if not isinstance(reference := resolved.get("$ref"), str):
            break
        target: Any = target_of(reference, root)
        if not isinstance(target, Mapping):
            return schema
        # Not its default: `Question.accept` fills in the defaults of the form itself.
        known = {key: value for key, value in cast("Mapping[str, Any]", target).items() if key != "default"}
        resolved = {**known, **{key: value for key, value in resolved.items() if key != "$ref"}}
    items: Any = resolved.get("items")
    if isinstance(items, Mapping) and "$ref" in items:
        resolved = {**resolved, "items": _resolved(cast("Mapping[str, Any]", items), root)}
    if any(isinstance(resolved.get(key), list) for key in ("allOf", "anyOf", "oneOf")):
        # "This one, or null": not unfolded, but to be judged by.
        resolved = {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **resolved}
    return resolved if "$ref" not in resolved else schema


def _kind_of(schema: Mapping[str, Any]) -> tuple[Kind, tuple[tuple[Any, str], ...]]:
    declared: Any = schema.get("type")
    if isinstance(declared, list):  # "or null": may be left out
        kinds = [kind for kind in cast("list[Any]", declared) if kind != "null"]
        declared = kinds[0] if len(kinds) == 1 else None
    if declared == "boolean":
        return "boolean", ()
    if declared == "array":
        items: Any = schema.get("items")
        choices = _choices(cast("Mapping[str, Any]", items)) if isinstance(items, Mapping) else ()
        return ("choices", choices) if choices else ("text", ())
    if choices := _choices(schema):
        return "choice", choices
    if declared == "integer":
        return "integer", ()
    return ("number", ()) if declared == "number" else ("text", ())


def _choices(schema: Mapping[str, Any]) -> tuple[tuple[Any, str], ...]:
    """The (value, title) pairs of an enum, in any of the spellings the protocol has had."""
    for key in ("oneOf", "anyOf"):
        options: Any = schema.get(key)
        if isinstance(options, list) and len(cast("list[Any]", options)) <= _MOST_CHOICES:
            listed = [
                cast("dict[str, Any]", o) for o in cast("list[Any]", options) if isinstance(o, dict) and "const" in o
            ]
            if listed:
                return tuple((o["const"], in_one_line(_as_text(o.get("title") or o["const"]), 60)) for o in listed)
    values: Any = schema.get("enum")
    if not isinstance(values, list) or len(cast("list[Any]", values)) > _MOST_CHOICES:
        return ()
    names: Any = schema.get("enumNames")
    labels = cast("list[Any]", names) if isinstance(names, list) else []
    pairs = enumerate(cast("list[Any]", values))
    return tuple((value, in_one_line(_as_text(labels[i] if i < len(labels) else value), 60)) for i, value in pairs)


def _hint(schema: Mapping[str, Any], kind: Kind) -> str:
    match kind:
        case "choice":
            return "one of these"
        case "choices":
            return _range(schema, "minItems", "maxItems", " of these").removeprefix(", ") or "any of these"
        case "integer" | "number":
            return _WORDS[kind] + _range(schema, "minimum", "maximum")
        case "boolean":
            return _WORDS[kind]
        case _:
            format: Any = schema.get("format")
            word = _FORMATS[format][0] if isinstance(format, str) and format in _FORMATS else "text"
            declared: Any = schema.get("type", "string")
            if declared in ("array", "object"):
                word = f"JSON {declared}"
            return word + _range(schema, "minLength", "maxLength", " characters")


def _range(schema: Mapping[str, Any], low: str, high: str, unit: str = "") -> str:
    least, most = _plain(schema.get(low)), _plain(schema.get(high))
    if least and most:
        return f", {least} to {most}{unit}"
    if least:
        return f", at least {least}{unit}"
    return f", at most {most}{unit}" if most else ""


def _plain(bound: Any) -> str:
    """A bound as a word; empty if it is no number, or too long."""
    if isinstance(bound, bool) or not isinstance(bound, (int, float)) or abs(bound) > _MOST_INTEGER:
        return ""
    return str(bound)


# --- what a person typed ---------------------------------------------------------------------------------------------


def _number(text: str, description: str, *, is_whole: bool = False) -> int | float:
    """An integer if the text is a whole number, since a float would lose digits. `3.0` is whole, as in JSON Schema."""
    try:
        value = _parse_number(text)
    except ValueError:
        raise InvalidAnswer(f"{_quoted(text)} is not {description}") from None
    if not math.isfinite(value) or (isinstance(value, int) and abs(value) > _MOST_INTEGER):
        raise InvalidAnswer(f"{in_one_line(text, 40)} is not {description} JSON can carry")
    if not is_whole or isinstance(value, int):
        return value
    if not value.is_integer() or abs(value) > _MOST_INTEGER:
        raise InvalidAnswer(f"{_quoted(text)} is not {description}")
    return int(value)


def _parse_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _check_format(text: str, kind: Any) -> None:
    """The four formats a form may ask for; our validator takes them for annotations."""
    is_good = True
    match kind:
        case "email":
            is_good = bool(_EMAIL.fullmatch(text))
        case "uri":
            is_good = bool(_URI.fullmatch(text))
        case "date":
            is_good = bool(_DATE.fullmatch(text)) and _is_time(text, datetime.date.fromisoformat)
        case "date-time":
            is_good = "T" in text.upper() and _is_time(text.upper(), datetime.datetime.fromisoformat)
        case _:
            pass
    if not is_good:
        raise InvalidAnswer(f"{_quoted(text)} is not {_FORMATS[kind][1]}")


def _is_time(text: str, read: Callable[[str], Any]) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def _quoted(text: str) -> str:
    return repr(in_one_line(text, 40))


def _json(value: Any) -> str:
    try:
        return to_json(value)
    except (ValueError, RecursionError):
        return _as_text(value)  # nested deeper than anybody would read


def _as_text(value: Any) -> str:
    """Any value of a server as a word."""
    try:
        return str(value)
    except (ValueError, RecursionError):
        return f"({type(value).__name__})"
