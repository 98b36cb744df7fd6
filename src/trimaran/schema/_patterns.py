"""Regular expressions as JSON Schema means them: ECMAScript's, read with the `u` flag.

A client that cannot compile one pattern may lose the whole server. So what Python and Rust spell differently is spelled
the way JavaScript does. What JavaScript does not have at all (inline flags, atomic groups, conditions) has no spelling.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["portable_pattern"]

# One token of a pattern, outside of a class of characters: what is not listed stands for itself.
_TOKEN: Final = re.compile(
    r"(?P<escape>\\(?:U[0-9A-Fa-f]{8}|[pP]\{[^}]*\}|.))"
    r"|(?P<group>\(\?(?:P<|P=|#|<?[=!]|<|:|.?))"
    r"|(?P<class>\[)"
    r"|(?P<count>\{(?:\d+(?:,\d*)?|,\d+)\})"
    r"|(?P<repeat>[*+?])"
    r"|(?P<plain>.)",
    re.DOTALL,
)
_KEPT: Final = frozenset("^$\\.*+?()[]{}|/dDwWsSbBnrtfvxu0123456789pP")
_ENDS: Final = {"A": "^", "Z": "$", "z": "$", "a": "\\x07"}
_SETS: Final = frozenset("dDwWsSpP")


def portable_pattern(pattern: str) -> str | None:
    """The same pattern for JavaScript; None if it has no way to say it."""
    parts: list[str] = []
    position, is_repeated = 0, False
    while match := _TOKEN.match(pattern, position):
        position, text, kind = match.end(), match.group(), match.lastgroup
        was_repeated, is_repeated = is_repeated, kind in ("count", "repeat")
        if kind == "repeat" and was_repeated and text != "?":
            return None  # possessive
        if kind == "escape":
            part = _escape(text, in_class=False)
        elif kind == "group":
            part, position = _group(text, pattern, position)
        elif kind == "class":
            part, position = _class(pattern, position)
        elif kind == "count":
            part = text.replace("{,", "{0,")
        else:
            part = f"\\{text}" if text in "{}]" else text
        if part is None:
            return None
        parts.append(part)
    return "".join(parts)


def _escape(text: str, *, in_class: bool) -> str | None:
    letter = text[1:2]
    if letter == "U":
        return f"\\u{{{text[2:].lstrip('0')}}}"
    if letter in _ENDS:
        return _ENDS[letter]
    if letter in _KEPT or (letter == "-" and in_class):
        return text
    return None if letter.isalnum() or not letter else letter


def _group(text: str, pattern: str, position: int) -> tuple[str | None, int]:
    if text == "(?P<":
        return "(?<", position
    if text in ("(?P=", "(?#"):
        end = pattern.find(")", position)
        return (f"\\k<{pattern[position:end]}>" if text == "(?P=" else ""), end + 1
    return (text if text in ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?<") else None), position


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
            if part == "-" and (was_set or re.match(r"\\[dDwWsSpP]", pattern[position:])):
                part = "\\-"
            part = f"\\{part}" if part in "[]" else part
        if part is None:
            return None, position
        text, was_set = text + part, is_set
    return None, position
