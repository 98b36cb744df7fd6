"""Regular expressions that JavaScript (with its `u` flag), Python and Rust read alike.

A client that cannot compile one pattern may lose the whole server. JSON Schema means JavaScript's, clients in Python use
their own. So groups lose their names, ends of the text are `^` and `$`, and only what must be escaped is. A feature that
one of them lacks (inline flags, atomic groups, conditions, classes by property) has no spelling.
"""

from __future__ import annotations

import re
from typing import Final

# One token of a pattern, outside of a class of characters: any other character stands for itself.
_TOKEN: Final = re.compile(
    r"(?P<escape>\\(?:U[0-9A-Fa-f]{8}|.))"
    r"|(?P<named>\(\?P?<(?P<name>\w+)>)"
    r"|(?P<again>\(\?P=(?P<same>\w+)\))"
    r"|(?P<comment>\(\?\#[^)]*\))"
    r"|(?P<group>\(\?(?:<?[=!]|:|.?))"
    r"|(?P<class>\[)"
    r"|(?P<count>\{(?:\d+(?:,\d*)?|,\d+)\})"
    r"|(?P<repeat>[*+?])"
    r"|(?P<plain>.)",
    re.DOTALL,
)
_KEPT: Final = frozenset("^$\\.*+?()[]{}|/dDwWsSbBnrtfvxu0123456789")
_ENDS: Final = {"A": "^", "Z": "$", "z": "$", "a": "\\x07"}
_SETS: Final = frozenset("dDwWsS")
_GROUPS: Final = frozenset(("(?:", "(?=", "(?!", "(?<=", "(?<!"))


def portable_pattern(pattern: str) -> str | None:
    """The same pattern for all of them; None if one has no way to say it."""
    parts: list[str] = []
    groups: list[str] = []
    position, is_repeated = 0, False
    while match := _TOKEN.match(pattern, position):
        position, text, kind = match.end(), match.group(), match.lastgroup
        was_repeated, is_repeated = is_repeated, kind in ("count", "repeat")
        if kind == "repeat" and was_repeated and text != "?":
            return None  # possessive
        if kind == "class":
            part, position = _class(pattern, position)
        else:
            part = _outside(kind or "", match, groups)
        if part is None:
            return None
        parts.append(part)
    return "".join(parts)


def _outside(kind: str, match: re.Match[str], groups: list[str]) -> str | None:
    """A token outside of a class. `groups` holds the names of those opened so far."""
    text = match.group()
    if kind == "named" or text == "(":
        groups.append(match["name"] or "")
        return "("
    if kind == "again":
        return f"(?:\\{groups.index(match['same']) + 1})"
    if kind == "escape":
        return _escape(text, in_class=False)
    if kind == "group":
        return text if text in _GROUPS else None
    if kind == "comment":
        return ""
    if kind == "count":
        return text.replace("{,", "{0,")
    return f"\\{text}" if text in "{}]" else text


def _escape(text: str, *, in_class: bool) -> str | None:
    letter = text[1:2]
    if letter == "U":
        return chr(int(text[2:], 16))
    if letter in _ENDS:
        return _ENDS[letter]
    if letter in _KEPT or (letter == "-" and in_class):
        return text
    return None if letter.isalnum() or not letter else letter


def _class(pattern: str, position: int) -> tuple[str | None, int]:
    """A class of characters, from after its bracket on; a bracket that comes first in it stands for itself."""
    text = "["
    if pattern.startswith("^", position):
        text, position = "[^", position + 1
    start, was_set = position, False
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        assert match is not None
        if match.lastgroup == "escape":
            part = _escape(match.group(), in_class=True)
            is_set = match.group()[1] in _SETS
            position = match.end()
        else:
            part, is_set = pattern[position], False
            position += 1
            if part == "]" and position - 1 > start:
                return text + "]", position
            # A range cannot begin or end with a set such as \w.
            if part == "-" and (was_set or re.match(r"\\[dDwWsS]", pattern[position:])):
                part = "\\-"
            part = f"\\{part}" if part in "[]" else part
        if part is None:
            return None, position
        text, was_set = text + part, is_set
    return None, position
