"""TOML as text: read it, know on which line each key stands, write a table, and put one into a file that has others.

Pure. `tomllib` decides what is TOML; the scanner here only walks over text that it accepted, and finds where things are.
A change of a file is made in its text, so that comments and order stay, and is then read again: everything but the table
must be unchanged, otherwise nothing is written.
"""

from __future__ import annotations

import bisect
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, cast, final

from trimaran.depth import count_levels

from .mask import masked
from .model import ConfigUnusable, Problem

Path: TypeAlias = tuple[str, ...]

_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)\s*$")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)+")
_MULTI: Final = (re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.DOTALL), re.compile(r"'''.*?'{3,5}", re.DOTALL))
_SINGLE: Final = (re.compile(r'"(?:[^"\\\n]|\\.)*"'), re.compile(r"'[^'\n]*'"))
_OTHER: Final = re.compile(r"[^,\]}#\r\n]+")
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
MAX_TOML: Final = 512 * 1024
"""Characters. A project's file is read before anybody has said that the project is trusted; this much takes a second or
two at worst. A hundred servers take 20 KiB."""
_MOST_PARTS: Final = 16
_DEEPEST: Final = 32
# Strings and comments: their content is no structure.
_OPAQUE: Final = re.compile("|".join(part.pattern for part in (*_MULTI, *_SINGLE)) + r"|#[^\n]*", re.DOTALL)
_LONG_KEY: Final = re.compile(rf"(?:\.[^=,\n\[\]{{}}.]*){{{_MOST_PARTS}}}")
_NO_BRACKET: Final = bytes(code for code in range(256) if code not in b"[]{}")
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_WIDEST: Final = 100  # an inline table or a list that is longer is split


def read_toml(text: str, file: str) -> dict[str, Any]:
    """The file's content; ConfigUnusable names line and table."""
    _check_size(text, file)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _PLACE.search(message)
        line = int(place[1]) if place and place[1] else text.count("\n") + 1
        reason = _PLACE.sub("", message)
        raise ConfigUnusable(
            Problem(
                file,
                f"this is not TOML: {reason[:1].lower()}{reason[1:]}",
                _table_above(text, line),
                line,
                "config_parse",
            )
        ) from None
    except ValueError as error:  # a number of thousands of digits
        raise ConfigUnusable(Problem(file, f"this is not TOML: {str(error)[:200]}", kind="config_parse")) from None


def _check_size(text: str, file: str) -> None:
    """Refuse a text that would take `tomllib` long: its time grows with the square of a key's parts."""
    if len(text) > MAX_TOML:
        _refuse(file, f"this has {len(text)} characters, and at most {MAX_TOML} are read: is it the right file?", None)
    bare = _OPAQUE.sub(lambda opaque: "\n" * opaque[0].count("\n"), text)
    if long_key := _LONG_KEY.search(bare):
        line = bare.count("\n", 0, long_key.start()) + 1
        _refuse(file, f"this key has more than {_MOST_PARTS} parts, which no key here has", line)
    structure = bare.encode("utf-8", "surrogatepass").translate(_ONE_KIND, _NO_BRACKET)
    if count_levels(structure) > _DEEPEST:
        _refuse(file, f"lists and tables are nested more than {_DEEPEST} deep, which nothing here is", None)


def _refuse(file: str, message: str, line: int | None) -> NoReturn:
    raise ConfigUnusable(Problem(file, message, line=line, kind="config_parse"))


def _table_above(text: str, line: int) -> str:
    """The table that a line of text that is no TOML seems to be in."""
    for before in reversed(text.split("\n")[:line]):
        if header := re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", before):
            return header[1]
    return ""


# --- where things are ------------------------------------------------------------------------------------------------


class _Statement(NamedTuple):
    """A header or `key = value`, from the start of its line to the end of its last."""

    path: Path
    start: int
    end: int
    is_header: bool


@final
class _Scan:
    """One walk over a text that is known to be TOML."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.statements: list[_Statement] = []
        self.lines: dict[Path, int] = {}
        self._ends = [place for place, sign in enumerate(text) if sign == "\n"]
        self._walk()

    def _walk(self) -> None:
        at, table = self._skip(0), ()
        lengths: Counter[Path] = Counter()
        item: Path | None = None  # the table's place in its list, `("limit[1]",)`
        while at < len(self.text):
            start = self.text.rfind("\n", 0, at) + 1
            if self.text[at] == "[":
                is_item = self.text.startswith("[[", at)
                table, at = self._keys(at + (2 if is_item else 1))
                self._note(table, at)
                item = (*table[:-1], f"{table[-1]}[{lengths[table]}]") if is_item else None
                lengths[table] += is_item
                if item is not None:
                    self._note(item, at)
                at = self._line_end(at)
                self.statements.append(_Statement(table, start, at, True))
            else:
                keys, at = self._keys(at)
                path = (*table, *keys)
                self._note(path, at)
                if item is not None:
                    self._note((*item, *keys), at)
                at = self._line_end(self._value(self._skip_blanks(at + 1), path))
                self.statements.append(_Statement(path, start, at, False))
            at = self._skip(at)

    def _note(self, path: Path, at: int) -> None:
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], bisect.bisect_left(self._ends, at) + 1)

    def _skip(self, at: int) -> int:
        blank = _BLANK.match(self.text, at)
        return blank.end() if blank else at

    def _skip_blanks(self, at: int) -> int:
        while self.text[at : at + 1] in (" ", "\t"):
            at += 1
        return at

    def _line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end + 1

    def _keys(self, at: int) -> tuple[Path, int]:
        """A dotted key; then the place of the `=` or `]` after it."""
        keys: list[str] = []
        while True:
            at = self._skip_blanks(at)
            quote = "\"'".find(self.text[at])
            match = (_SINGLE[quote] if quote >= 0 else _BARE).match(self.text, at)
            assert match is not None
            keys.append(tomllib.loads(f"k = {match[0]}")["k"] if quote >= 0 else match[0])
            at = self._skip_blanks(match.end())
            if self.text[at] != ".":
                return tuple(keys), at
            at += 1

    def _value(self, at: int, path: Path | None) -> int:
        """The place after the value that begins here; keys of inline tables are noted on the way."""
        for quote, pattern in zip(('"""', "'''", '"', "'"), (*_MULTI, *_SINGLE), strict=True):
            if self.text.startswith(quote, at) and (match := pattern.match(self.text, at)):
                return match.end()
        opening = self.text[at]
        if opening not in "[{":
            match = _OTHER.match(self.text, at)
            assert match is not None
            return match.end()
        closing = "]" if opening == "[" else "}"
        at += 1
        while True:
            at = self._skip(at)
            if self.text[at] == closing:
                return at + 1
            if self.text[at] == ",":
                at += 1
            elif opening == "[":
                at = self._value(at, None)
            else:
                keys, at = self._keys(at)
                inner = None if path is None else (*path, *keys)
                if inner is not None:
                    self._note(inner, at)
                at = self._value(self._skip_blanks(at + 1), inner)


def lines_of(text: str) -> dict[Path, int]:
    """On which line each table and key of a TOML text is first named; those of `[[limit]]` also as `limit[0]`, `limit[1]`."""
    return _Scan(text).lines


# --- writing ---------------------------------------------------------------------------------------------------------


def write_table(path: Path, table: Mapping[str, Any]) -> str:
    """A table under its header, and its inner tables under theirs. Values of None are left out."""
    written = {key: value for key, value in table.items() if value is not None}
    inner = {key: cast("Mapping[str, Any]", v) for key, v in written.items() if isinstance(v, Mapping)}
    inline = {key: text for key, value in inner.items() if (text := _inline(key, value)) is not None}
    rows = [
        inline[key] if key in inline else f"{key_text(key)} = {_value(value, key_text(key))}"
        for key, value in written.items()
        if key in inline or key not in inner
    ]
    rest = [write_table((*path, key), value) for key, value in inner.items() if key not in inline]
    if not rows and rest:
        return "\n".join(rest)
    return "\n".join(["\n".join([f"[{'.'.join(map(key_text, path))}]", *rows, ""]), *rest])


def _inline(key: str, value: Mapping[str, Any]) -> str | None:
    """`key = { a = "b" }`, for a short map of texts."""
    if not all(isinstance(item, str) for item in value.values()):
        return None
    pairs = ", ".join(f"{key_text(name)} = {_text(item)}" for name, item in value.items())
    text = f"{key_text(key)} = {{ {pairs} }}" if pairs else f"{key_text(key)} = {{}}"
    return text if len(text) <= _WIDEST else None


def key_text(name: str) -> str:
    """A key as TOML writes it: bare if it can be, else in quotes."""
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any, key: str = "") -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        pairs = (f"{key_text(k)} = {_value(v)}" for k, v in cast("Mapping[str, Any]", value).items() if v is not None)
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, Sequence):
        items = [_value(element) for element in cast("Sequence[Any]", value)]
        text = f"[{', '.join(items)}]"
        if len(key) + len(text) <= _WIDEST:
            return text
        return "[\n" + "".join(f"    {item},\n" for item in items) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    escaped = (_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c) for c in text)
    return f'"{"".join(escaped)}"'


# --- changing --------------------------------------------------------------------------------------------------------


def set_table(text: str, path: Path, table: Mapping[str, Any], file: str) -> str:
    """The text with this table in it, in place of the one it had, if any."""
    before = read_toml(text, file)
    regions = _regions(_Scan(text).statements, path)
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    block = write_table(path, table).replace("\n", end_of_line)
    at = next((start for start, _, is_header in regions if is_header), None)
    edited, last = "", 0
    for start, end, _ in regions:
        edited += text[last:start]
        if start == at:
            edited = _joined(edited, block, end_of_line)
        last = end
    edited += text[last:]
    result = edited if at is not None else _joined(edited, block, end_of_line)
    _check(before, result, path, table, file)
    return result


def _joined(text: str, block: str, end_of_line: str) -> str:
    """The block after the text, an empty line between them."""
    if not text.strip():
        return block
    if not text.endswith("\n"):
        text += end_of_line
    blank = "" if text.endswith(("\n\n", "\n\r\n")) else end_of_line
    return f"{text}{blank}{block}"


def _regions(statements: list[_Statement], path: Path) -> list[tuple[int, int, bool]]:
    """The parts of the text that belong to the table: a header with everything up to its last key, or single keys."""
    regions: list[tuple[int, int, bool]] = []
    for statement in statements:
        if statement.path[: len(path)] != path:
            continue
        joins = bool(regions) and not statement.is_header and regions[-1][2]
        if joins and not any(
            regions[-1][1] <= other.start < statement.start for other in statements if other.is_header
        ):
            regions[-1] = (regions[-1][0], statement.end, True)
        else:
            regions.append((statement.start, statement.end, statement.is_header))
    return regions


def _check(before: dict[str, Any], edited: str, path: Path, table: Mapping[str, Any], file: str) -> None:
    expected: Any = before
    for key in path[:-1]:
        expected = expected.setdefault(key, {}) if isinstance(expected, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(expected, dict):
        expected[path[-1]] = _plain(table)
    try:
        after: Any = read_toml(edited, file)
    except ConfigUnusable:
        after = None
    if after != before or not isinstance(expected, dict):
        raise ConfigUnusable(
            Problem(
                file,
                "this table cannot be put in without changing others; add it by hand:\n"
                + write_table(path, masked(table)),
                ".".join(path),
                kind="config_parse",
            )
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in cast("Mapping[str, Any]", value).items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return value
