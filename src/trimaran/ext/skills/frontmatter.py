"""The YAML at the head of a SKILL.md, read with PyYAML (extra `skills`).

PyYAML only says where maps, lists and scalars are. The meaning of an unquoted scalar is decided here, by the core schema of
YAML 1.2, because PyYAML follows YAML 1.1, where `yes` is true and `007` is octal. The same text must mean the same to the
program that lists a skill and to the one that checks it.

Refused, with the line: anchors, aliases, tags, merge keys, duplicate keys, keys that are not text, a second document,
values that JSON cannot hold (infinities, integers past 2**53, lone surrogates), more than 64 KiB, and nesting deeper than
20 levels. So the time and memory are bounded, whoever wrote the text.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn, cast, final

from msgspec import Struct

from trimaran.errors import ConfigError
from trimaran.types import Json

_MAX_CHARACTERS: Final = 64 * 1024  # the longest seen in public skills is about 3 KiB
_MAX_DEPTH: Final = 20
_EXACT: Final = 2**53  # past it a JSON number is no longer the same number everywhere

_CLOSING: Final = re.compile(r"---[ \t]*")
_INT: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: Final[dict[str, Json]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class Unreadable(Exception):
    """The frontmatter cannot be read: the line of the file, and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@final
class Frontmatter(Struct, frozen=True):
    values: dict[str, Json]
    lines: dict[str, int]
    """The line of the file for each top-level key."""


def read_frontmatter(text: str) -> Frontmatter:
    """The frontmatter of a SKILL.md: a map, between a first line `---` and the next one.

    Raises:
        Unreadable: With the line and the reason.
        ConfigError: PyYAML is not installed.
    """
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    if lines[0] != "---":
        raise Unreadable(1, "a SKILL.md begins with its frontmatter, between two lines of ---")
    length = 0
    for end in range(1, len(lines)):
        if _CLOSING.fullmatch(lines[end]):
            break
        length += len(lines[end]) + 1
        if length > _MAX_CHARACTERS:
            raise Unreadable(
                end + 1, f"the frontmatter is longer than {_MAX_CHARACTERS} characters, or is not closed by ---"
            )
    else:
        raise Unreadable(1, "the frontmatter is not closed by a second line of ---")
    return _Reader("".join(f"{line}\n" for line in lines[1:end])).read()


def same(first: Json, second: Json) -> bool:
    """Whether two values are the same JSON. Unlike in Python, true is not 1. As in Python, 1.0 is 1."""
    if isinstance(first, bool) or isinstance(second, bool) or first is None or second is None:
        return first is second
    if isinstance(first, (int, float)) and isinstance(second, (int, float)):
        return first == second
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        left, right = cast("dict[str, Any]", first), cast("dict[str, Any]", second)
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(first, list):
        lefts, rights = cast("list[Any]", first), cast("list[Any]", second)
        return len(lefts) == len(rights) and all(map(same, lefts, rights))
    return first == second


@final
class _Reader:
    """Builds JSON from the events of PyYAML's parser, and stops at the first that is refused."""

    def __init__(self, text: str) -> None:
        try:
            self._yaml: Any = importlib.import_module("yaml")
        except ImportError:
            raise ConfigError('reading YAML needs PyYAML: pip install "trimaran[skills]"') from None
        self._text = text
        loader = getattr(self._yaml, "CSafeLoader", self._yaml.SafeLoader)  # in C it is ten times as fast
        self._events: Iterator[Any] = self._yaml.parse(text, Loader=loader)
        self._key_lines: dict[str, int] = {}

    def read(self) -> Frontmatter:
        try:
            return self._document()
        except self._yaml.reader.ReaderError as error:
            line = self._text.count("\n", 0, error.position) + 2
            raise Unreadable(line, f"the control character {chr(error.character)!r} is not allowed") from None
        except self._yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = min(mark.line + 2, self._text.count("\n") + 1)  # the end counts as the last line
            reason = " ".join(filter(None, (error.context, error.problem)))
            advice = "check the indentation, or put the text in quotes"
            raise Unreadable(line, f"this is not valid YAML ({reason}): {advice}") from None
        except ValueError:  # without C, PyYAML calls chr() with any number that an escape holds
            raise Unreadable(1, "an escape names a character that does not exist") from None

    def _document(self) -> Frontmatter:
        events, yaml = self._events, self._yaml
        next(events)  # the start of the stream
        if isinstance(next(events), yaml.StreamEndEvent):
            raise Unreadable(1, "the frontmatter is empty; it must hold at least name and description")
        value = self._value(next(events), 0)
        ending = next(events)
        if ending.explicit or not isinstance(next(events), yaml.StreamEndEvent):
            self._fail(ending, "the document ends here; the frontmatter ends with ---")
        if not isinstance(value, dict):
            raise Unreadable(2, "the frontmatter must be a map: lines of `key: value`")
        return Frontmatter(cast("dict[str, Json]", value), self._key_lines)

    def _fail(self, event: Any, reason: str) -> NoReturn:
        raise Unreadable(event.start_mark.line + 2, reason)

    def _value(self, event: Any, depth: int) -> Json:
        yaml = self._yaml
        if isinstance(event, yaml.AliasEvent):
            self._fail(event, "an alias is not allowed; write the value out, or put the text in quotes")
        if event.anchor is not None:
            self._fail(event, "an anchor is not allowed; put the text in quotes")
        if event.tag is not None:
            self._fail(event, "a tag is not allowed; put the text in quotes")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if depth >= _MAX_DEPTH:
            self._fail(event, f"this is nested more than {_MAX_DEPTH} deep")
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._value(item, depth + 1) for item in self._until(yaml.SequenceEndEvent)]
        values: dict[str, Json] = {}
        for key_event in self._until(yaml.MappingEndEvent):
            key = self._key(key_event)
            if key in values:
                self._fail(key_event, f"the key {key!r} stands here twice")
            if depth == 0:
                self._key_lines[key] = key_event.start_mark.line + 2
            values[key] = self._value(next(self._events), depth + 1)
        return values

    def _until(self, end: type) -> Iterator[Any]:
        while not isinstance(event := next(self._events), end):
            yield event

    def _key(self, event: Any) -> str:
        # Keys of YAML may be numbers or null. Keys of JSON may not, and programs differ in the text they make of them.
        is_scalar = isinstance(event, self._yaml.ScalarEvent)
        key = self._value(event, _MAX_DEPTH) if is_scalar else None
        if not isinstance(key, str) or (key == "<<" and event.implicit[0]):
            self._fail(event, "this is not a plain key; write a word, or put it in quotes")
        return key

    def _scalar(self, event: Any) -> Json:
        text: str = event.value
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._fail(event, "an escape names half a character; write \\U and eight digits")
        if not event.implicit[0]:  # quoted, or a block of text
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _NOT_JSON.fullmatch(text):
            self._fail(event, f"{text} has no form in JSON; put it in quotes")
        number: int | float
        if _INT.fullmatch(text):
            # Python limits the digits of int(). A number that long is too large anyway.
            number = int(text) if len(text) <= 40 else _EXACT
        elif _OCTAL_OR_HEX.fullmatch(text):
            number = int(text, 0) if len(text) <= 40 else _EXACT
        elif _FLOAT.fullmatch(text):
            number = float(text)
        else:
            return text
        if abs(number) >= (_EXACT if isinstance(number, int) else float("inf")):
            self._fail(event, "the number is too large to be the same everywhere; put it in quotes")
        return number
