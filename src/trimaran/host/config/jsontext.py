"""JSON as text, comments and commas at the end allowed: read it, and put one member into it without touching the rest.

Pure. VS Code and Zed let people write comments in their settings; a change that lost them would be the last they let us
make. So the text is walked over once, into a tree that knows where each value stands, and only the member is spliced in.
The result is parsed again: everything but the member must be unchanged, otherwise nothing is written.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import re
from typing import Any, Final, NoReturn, TypeAlias, cast, final

from msgspec import Struct

from trimaran.depth import MAX_DEPTH, check_depth

from .mask import masked
from .model import ConfigUnusable, Problem

Path: TypeAlias = tuple[str, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


@final
class _Node(Struct):
    """A value and its place. An object has members: the place of the key, and the node."""

    start: int
    end: int
    value: Any
    members: dict[str, tuple[int, _Node]] | None = None


@final
class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self._file = file

    def whole(self) -> _Node:
        at = self.skip(0)
        if at == len(self.text):
            self._fail(at, "the file is empty")
        node = self._node(at, 0)
        at = self.skip(node.end)
        if at < len(self.text):
            self._fail(at, "something follows the end of the JSON")
        return node

    def skip(self, at: int) -> int:
        blank = _BLANK.match(self.text, at)
        return blank.end() if blank else at

    def _fail(self, at: int, reason: str) -> NoReturn:
        raise ConfigUnusable(
            Problem(self._file, f"this is not JSON: {reason}", line=_line(self.text, at), kind="config_parse")
        )

    def _node(self, at: int, depth: int) -> _Node:
        if depth >= MAX_DEPTH and self.text[at : at + 1] in ("{", "["):
            self._fail(at, f"it is nested more than {MAX_DEPTH} deep")
        sign = self.text[at : at + 1]
        if sign == "{":
            return self._object(at, depth)
        if sign == "[":
            return self._array(at, depth)
        if sign == '"':
            value, end = self._string(at)
            return _Node(at, end, value)
        word = _WORD.match(self.text, at)
        if word is None:
            self._fail(at, "a value is expected: a text in quotes, a number, true, false, null, { or [")
        try:
            return _Node(at, word.end(), json.loads(word[0]))
        except ValueError:  # thousands of digits
            self._fail(at, "this number is too long")

    def _string(self, at: int) -> tuple[str, int]:
        match = _STRING.match(self.text, at)
        if match is None:
            self._fail(at, "a text in quotes is expected, on one line")
        try:
            return json.loads(match[0]), match.end()
        except ValueError:
            self._fail(at, "this text has an escape that JSON does not know")

    def _object(self, start: int, depth: int) -> _Node:
        members: dict[str, tuple[int, _Node]] = {}
        at = self.skip(start + 1)
        while self.text[at : at + 1] != "}":
            key, end = self._string(at)
            colon = self.skip(end)
            if self.text[colon : colon + 1] != ":":
                self._fail(colon, f"a colon is expected after {key[:40]!r}")
            node = self._node(self.skip(colon + 1), depth + 1)
            members[key] = (at, node)
            at = self._next(node.end, "}")
        return _Node(start, at + 1, {key: node.value for key, (_, node) in members.items()}, members)

    def _array(self, start: int, depth: int) -> _Node:
        values: list[Any] = []
        at = self.skip(start + 1)
        while self.text[at : at + 1] != "]":
            node = self._node(at, depth + 1)
            values.append(node.value)
            at = self._next(node.end, "]")
        return _Node(start, at + 1, values)

    def _next(self, end: int, closing: str) -> int:
        """The place of the next item, or of the closing bracket."""
        at = self.skip(end)
        sign = self.text[at : at + 1]
        if sign == ",":
            return self.skip(at + 1)
        if sign != closing:
            self._fail(at, f"a comma or {closing} is expected")
        return at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def read_json(text: str, file: str) -> Any:
    """The file's content; ConfigUnusable names the line."""
    with contextlib.suppress(ValueError):
        check_depth(text)
        return json.loads(text, parse_constant=_no_number)  # ten times as fast; Claude Code's file has some MiB
    return _Reader(text, file).whole().value


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)  # NaN is no JSON


def lines_of(text: str, path: Path, file: str) -> dict[str, int]:
    """On which line each member of the object at this path stands."""
    node: _Node | None = _Reader(text, file).whole() if text.strip() else None
    for key in path:
        node = (node.members or {}).get(key, (0, None))[1] if node is not None else None
    ends = [newline.start() for newline in re.finditer("\n", text)]
    members = (node.members or {}) if node is not None else {}
    return {key: bisect.bisect_left(ends, at) + 1 for key, (at, _) in members.items()}


# --- changing --------------------------------------------------------------------------------------------------------


def set_member(text: str, path: Path, value: Any, file: str) -> str:
    """The text with this value at this path, in place of the one it had, if any."""
    if not text.strip().strip("\ufeff"):
        nested: Any = value
        for key in reversed(path):
            nested = {key: nested}
        return json.dumps(nested, indent=2, ensure_ascii=False) + "\n"
    reader = _Reader(text, file)
    root = reader.whole()
    node, depth = root, 0
    while node.members is not None and depth < len(path) and path[depth] in node.members:
        node = node.members[path[depth]][1]
        depth += 1
    nested = value
    for key in reversed(path[depth + 1 :]):
        nested = {key: nested}
    if depth == len(path):
        edited = text[: node.start] + _dumped(text, value, _indent_at(text, node.start)) + text[node.end :]
    elif node.members is None:
        raise ConfigUnusable(
            Problem(
                file,
                "an object is expected here: make it one, {}",
                ".".join(path[:depth]),
                _line(text, node.start),
                "config_parse",
            )
        )
    else:
        edited = _insert(reader, node, path[depth], nested)
    _check(root.value, edited, path, value, file)
    return edited


def _insert(reader: _Reader, node: _Node, key: str, value: Any) -> str:
    """A new member at the end of an object, after whatever comment stands there."""
    text, members = reader.text, list((node.members or {}).values())
    outer = _indent_at(text, node.start)
    indent = outer + _unit(text)
    comma_at: int | None = None
    if members:
        first, last = members[0][0], members[-1][1]
        before = text[text.rfind("\n", 0, first) + 1 : first]
        if not before.strip():
            indent = before
        comma = reader.skip(last.end)
        comma_at = None if text[comma] == "," else last.end
    close = node.end - 1
    end = close
    while text[end - 1] in " \t\r\n":
        end -= 1
    newline = "\r\n" if "\r\n" in text else "\n"
    member = f"{newline}{indent}{json.dumps(key, ensure_ascii=False)}: {_dumped(text, value, indent)}"
    tail = text[end:close] if "\n" in text[end:close] else f"{newline}{outer}"
    if comma_at is not None:
        return f"{text[:comma_at]},{text[comma_at:end]}{member}{tail}{text[close:]}"
    return f"{text[:end]}{member}{tail}{text[close:]}"


def _indent_at(text: str, at: int) -> str:
    """The blanks that the line begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """One step of indentation, as this file has it."""
    match = re.search(r"\n([ \t]+)\S", text)
    return ("\t" if match[1][0] == "\t" else match[1][:8]) if match else "  "


def _dumped(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return (("\r\n" if "\r\n" in text else "\n") + indent).join(lines)


def _check(before: Any, edited: str, path: Path, value: Any, file: str) -> None:
    expected = cast("dict[str, Any]", before)
    for key in path[:-1]:
        expected = expected.setdefault(key, {})
    expected[path[-1]] = value
    try:
        after = read_json(edited, file)
    except ConfigUnusable:
        after = None
    if after != before:
        snippet = json.dumps(masked({path[-1]: value}), indent=2, ensure_ascii=False)
        message = f"this cannot be put in without changing the rest; add it by hand:\n{snippet}"
        raise ConfigUnusable(Problem(file, message, ".".join(path), kind="config_parse"))
