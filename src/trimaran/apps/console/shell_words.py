"""Split a line into words as a shell does, by blanks and quotes. Nothing is expanded.

Two things are not as in a shell, because this is none. A backslash outside quotes is a backslash, unless a blank, a quote or
another one follows: `C:\\data` and `\\d+` are what they look like. And JSON is one word as it stands, after `key=` and
`key:=`: `point:={"x": 1, "y": 2}` needs no quotes around it.

Any text can be split, also one that is still being typed: a quote that is not closed is told, not refused.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Final, NamedTuple

_BLANKS: Final = re.compile(r"\s*")
_KEY: Final = re.compile(r"""(?:[^\s=:"'{}\[\]]|:(?!=))+:?=""")
_PLAIN: Final = re.compile(r"""[^\s"'\\]+""")
_ESCAPED: Final = re.compile(r"""\\([\s"'\\])""")
_SINGLE: Final = re.compile(r"'([^']*)('?)")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)("?)', re.DOTALL)
_IN_DOUBLE: Final = re.compile(r'\\(["\\])')
_NEEDS_NO_QUOTES: Final = re.compile(r"""[^\s"'\\{\[]+""")
_JSON: Final = json.JSONDecoder()


class Token(NamedTuple):
    """A word: what it says, and where it stands in the line."""

    text: str
    start: int
    end: int
    is_quoted: bool = False
    """True if the word begins with a quote: then it is a value and no key."""
    is_open: bool = False
    """True if the last quote is not closed."""


def split_words(line: str, at: int = 0, *, most: int = sys.maxsize) -> list[Token]:
    """The first `most` words of the line, starting at the offset `at`."""
    tokens: list[Token] = []
    while len(tokens) < most:
        at = _skip(line, at)
        if at >= len(line):
            return tokens
        token = _token(line, at)
        tokens.append(token)
        at = token.end
    return tokens


def _skip(line: str, at: int) -> int:
    match = _BLANKS.match(line, at)
    return at if match is None else match.end()


def _token(line: str, start: int) -> Token:
    key = _KEY.match(line, start)
    if key is not None and (end := _json_end(line, key.end(), is_forced=key[0].endswith(":="))) is not None:
        return Token(line[start:end], start, end)
    pieces: list[str] = []
    at, is_open = start, False
    while at < len(line) and not line[at].isspace():
        if (plain := _PLAIN.match(line, at)) is not None:
            pieces.append(plain[0])
            at = plain.end()
        elif line[at] == "\\":
            escaped = _ESCAPED.match(line, at)
            pieces.append(escaped[1] if escaped is not None else "\\")
            at += 1 if escaped is None else 2
        elif (single := _SINGLE.match(line, at)) is not None:
            pieces.append(single[1])
            at, is_open = single.end(), not single[2]
        else:
            text, at, is_open = _in_double(line, at)
            pieces.append(text)
    return Token("".join(pieces), start, at, line[start] in "\"'", is_open)


def _in_double(line: str, at: int) -> tuple[str, int, bool]:
    match = _DOUBLE.match(line, at)
    if match is None:  # cannot be: the pattern fits wherever a quote stands
        return line[at], at + 1, False
    end = match.end()
    if not match[2]:
        end = len(line)  # at most a backslash is left
    return _IN_DOUBLE.sub(r"\1", line[at + 1 : end - len(match[2])]), end, not match[2]


def _json_end(line: str, at: int, *, is_forced: bool) -> int | None:
    """The end of the JSON value that begins here, if a blank or nothing follows it."""
    if line[at : at + 1] not in (("{", "[", '"') if is_forced else ("{", "[")):
        return None
    try:
        _, end = _JSON.raw_decode(line, at)
    except (ValueError, RecursionError):
        return None
    return end if end == len(line) or line[end].isspace() else None


def quote(text: str) -> str:
    """The text as one word: as it is, or in the quotes it needs."""
    if _NEEDS_NO_QUOTES.fullmatch(text):
        return text
    if "'" not in text:
        return f"'{text}'"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
