"""The YAML at the head of a SKILL.md, read by a small strict reader.

Pure. It knows the part of YAML 1.2 (core schema) that people write there, and refuses the rest by line number, because the
same text must mean the same to whoever lists a skill and to whoever checks it:

    block maps and lists, nested by spaces    plain, 'single' and "double" quoted text    | and > blocks, with or without -
    [flow, lists] and {flow: maps} on one line    plain text over several lines    comments

Refused: anchors, aliases, tags, merge and complex keys, duplicate keys, keys that are no text, tabs as indentation, quoted
text or flow over several lines, blocks that keep empty lines at their end (+), what JSON cannot say (infinities, integers
past 2**53). Time is linear in the text, which may come from a
server nobody trusts.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn, cast, final

from msgspec import Struct

from trimaran.types import Json

__all__ = ["Frontmatter", "Unreadable", "read_frontmatter", "same"]

_LONGEST: Final = 64 * 1024  # characters; the longest seen in public skills is about 3 KiB
_DEEPEST: Final = 20
_EXACT: Final = 2**53  # past it a JSON number is no longer the same number everywhere

_CLOSING: Final = re.compile(r"---[ \t]*")
_HEADER: Final = re.compile(r"([|>])(-?)(?:[ \t]+#.*)?[ \t]*")
_INDICATOR: Final = re.compile(r"[-?:](?:[ \t]|$)")
_INT: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_WORDS: Final[dict[str, Json]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_ESCAPES: Final = dict(zip('0abt\tnvfre "/\\N_LP', '\0\a\b\t\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029', strict=True))
_CODED: Final = {"x": 2, "u": 4, "U": 8}
_SPECIAL: Final = {
    "&": "an anchor",
    "*": "an alias",
    "!": "a tag",
    "%": "a directive",
    "@": "a reserved character",
    "`": "a reserved character",
    "|": "a block of text",
    ">": "a block of text",
    "]": "a bracket out of place",
    "}": "a bracket out of place",
    ",": "a comma out of place",
}


class Unreadable(Exception):
    """What cannot be read, and on which line of the file."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@final
class Frontmatter(Struct, frozen=True):
    values: dict[str, Json]
    lines: dict[str, int]
    """On which line of the file each top-level key stands."""


def read_frontmatter(text: str) -> Frontmatter:
    """The frontmatter of a SKILL.md: a map, between a first line `---` and the next one."""
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    if lines[0] != "---":
        raise Unreadable(1, "a SKILL.md begins with its frontmatter, between two lines of ---")
    taken = 0
    for end in range(1, len(lines)):
        if _CLOSING.fullmatch(lines[end]):
            break
        taken += len(lines[end]) + 1
        if taken > _LONGEST:
            raise Unreadable(end + 1, f"the frontmatter is longer than {_LONGEST} characters, or is not closed by ---")
    else:
        raise Unreadable(1, "the frontmatter is not closed by a second line of ---")
    return _Reader(lines[1:end]).whole()


def same(one: Json, other: Json) -> bool:
    """Are two JSON values the same content? Unlike Python's own comparison, true is not 1; and 1.0 is 1, as in JSON."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        mine, yours = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return mine.keys() == yours.keys() and all(same(value, yours[key]) for key, value in mine.items())
    if isinstance(one, list):
        first, second = cast("list[Any]", one), cast("list[Any]", other)
        return len(first) == len(second) and all(map(same, first, second))
    return one == other


@final
class _Reader:
    """Walks over the lines once. `at` is the line that is next."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._depth = 0
        self._top: dict[str, int] = {}

    def whole(self) -> Frontmatter:
        for number, line in enumerate(self._lines, 2):
            if _CONTROL.search(line):
                raise Unreadable(number, "there is a control character in it")
        found = self._peek()
        if found is None:
            raise Unreadable(1, "the frontmatter is empty; it holds at least name and description")
        if found[0] != 0:
            self._fail("the first key is indented")
        value = self._node(0)
        if self._peek() is not None:
            self._fail("this is not part of what stands above it; look at the indentation")
        if not isinstance(value, dict):
            raise Unreadable(2, "the frontmatter is a map: lines of `key: value`")
        return Frontmatter(cast("dict[str, Json]", value), self._top)

    def _fail(self, reason: str, line: int | None = None) -> NoReturn:
        raise Unreadable((self._at if line is None else line) + 2, reason)

    def _peek(self) -> tuple[int, str] | None:
        """The indentation and text of the next line that says something."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            text = line.lstrip(" ")
            if text.startswith("\t"):
                self._fail("a tab as indentation; use spaces")
            if text.strip() and not text.startswith("#"):
                if text.startswith("...") and not text[3:].strip() and line == text:
                    self._fail("`...` ends a document; the frontmatter ends with ---")
                return len(line) - len(text), text.rstrip()
            self._at += 1
        return None

    # --- blocks ------------------------------------------------------------------------------------------------------

    def _node(self, least: int) -> Json:
        """What stands on the following lines, indented by at least this much; None if nothing does."""
        found = self._peek()
        if found is None or found[0] < least:
            return None
        indent, text = found
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"nested more than {_DEEPEST} deep")
        if _is_item(text):
            value: Json = self._list(indent)
        elif self._key(text) is not None:
            value = self._map(indent)
        else:
            value = self._inline(text, least - 1)
        self._depth -= 1
        return value

    def _map(self, indent: int) -> dict[str, Json]:
        values: dict[str, Json] = {}
        while (found := self._peek()) is not None and found[0] >= indent:
            split = self._key(found[1])
            if found[0] > indent or _is_item(found[1]) or split is None:
                self._fail("expected a line `key: value` here; look at the indentation, or put the text in quotes")
            key, rest = split
            if key in values:
                self._fail(f"the key {key!r} stands here twice")
            if self._depth == 1:
                self._top[key] = self._at + 2
            values[key] = self._value(rest, indent, may_hold_list=True)
        return values

    def _list(self, indent: int) -> list[Json]:
        values: list[Json] = []
        while (found := self._peek()) is not None and found[0] >= indent:
            if not _is_item(found[1]):
                if found[0] == indent:
                    break  # the next key of the map that this list belongs to
                self._fail("expected an item `- ...` of the list here; look at the indentation")
            if found[0] > indent:
                self._fail("this item is indented more than the one above it")
            rest = found[1][1:].lstrip(" ")
            if rest.startswith("\t"):
                self._fail("a tab as indentation; use spaces")
            if rest and not rest.startswith("#") and (_is_item(rest) or self._key(rest) is not None):
                # `- key: value` begins a map right here: the dash counts as indentation.
                self._lines[self._at] = " " * (indent + len(found[1]) - len(rest)) + rest
                values.append(self._node(indent + 1))
            else:
                values.append(self._value(rest, indent, may_hold_list=False))
        return values

    def _value(self, rest: str, indent: int, *, may_hold_list: bool) -> Json:
        """What follows a `key:` or a dash, on its line or on the next ones."""
        if rest and not rest.startswith("#"):
            return self._inline(rest, indent)
        self._at += 1
        found = self._peek()
        if may_hold_list and found is not None and found[0] == indent and _is_item(found[1]):
            return self._node(indent)  # a list may stand as far left as its key
        return self._node(indent + 1)

    def _key(self, text: str) -> tuple[str, str] | None:
        """The key a line begins with, and the rest of the line; None if it begins with none."""
        if text[0] in "\"'":
            key, end = self._quoted(text, 0)
            after = text[end:].lstrip(" \t")
            if not after.startswith(":") or after[1:2] not in ("", " ", "\t"):
                return None
            return key, after[1:].strip(" \t")
        if text[0] in "[{":
            return None
        for place, sign in enumerate(text):
            if sign == "#" and place and text[place - 1] in " \t":
                return None
            if sign == ":" and text[place + 1 : place + 2] in ("", " ", "\t"):
                key = text[:place].rstrip()
                self._must_be_plain(key)
                return key, text[place + 1 :].strip(" \t")
        return None

    def _must_be_plain(self, key: str) -> None:
        # YAML has keys that are numbers or nothing, JSON has not, and not everybody makes the same text of them.
        if (
            not key
            or key == "<<"
            or key[0] in _SPECIAL
            or _INDICATOR.match(key)
            or not isinstance(self._typed(key, self._at), str)
        ):
            self._fail(f"{key or ':'!r} is no plain key; write a word, or put it in quotes")

    # --- scalars -----------------------------------------------------------------------------------------------------

    def _inline(self, text: str, indent: int) -> Json:
        """A value that begins on this line, inside something indented by `indent`."""
        if text[0] in "|>":
            return self._block(text, indent)
        if text[0] in "\"'":
            value, end = self._quoted(text, 0)
            self._must_end(text, end)
        elif text[0] in "[{":
            value, end = self._flow(text, 0, 0)
            self._must_end(text, end)
        else:
            return self._plain(text, indent)
        self._at += 1
        found = self._peek()
        if found is not None and found[0] > indent:
            self._fail("this is not part of what stands above it; look at the indentation")
        return value

    def _must_end(self, text: str, end: int) -> None:
        rest = text[end:]
        if rest.strip() and not re.match(r"[ \t]+#", rest):
            self._fail(f"{rest.strip()[:40]!r} follows what is complete already; put the whole in quotes")

    def _block(self, text: str, indent: int) -> str:
        header = _HEADER.fullmatch(text)
        if header is None:
            self._fail("a block of text begins with |, |-, > or >- and nothing else on its line")
        self._at += 1
        taken: list[str] = []
        inner: int | None = None
        while self._at < len(self._lines):
            line = self._lines[self._at]
            depth = len(line) - len(line.lstrip(" "))
            if line.strip(" "):
                if depth <= indent:
                    break
                if inner is None:
                    inner = depth
                    if any(len(blank) > inner for blank in taken):
                        self._fail("an empty line before the text is indented more than the text")
                elif depth < inner:
                    self._fail("this line is indented less than the block of text it belongs to")
            taken.append(line)
            self._at += 1
        cut = [line[inner or 0 :] if inner is not None else "" for line in taken]
        while cut and not cut[-1]:
            cut.pop()
        body = "\n".join(cut) if header[1] == "|" else _folded(cut)
        return body + "\n" if body and not header[2] else body

    def _plain(self, text: str, indent: int) -> Json:
        pieces = [self._plain_line(text, is_first=True)]
        begun = self._at
        is_cut = len(pieces[0]) < len(text)
        blanks = 0
        self._at += 1
        result = pieces[0]
        while self._at < len(self._lines):
            line = self._lines[self._at]
            bare = line.strip(" \t")
            if not bare:
                blanks += 1
                self._at += 1
                continue
            depth = len(line) - len(line.lstrip(" "))
            if depth <= indent or bare.startswith("#"):
                break
            if is_cut:
                self._fail("text goes on here after a comment; put the whole in quotes or in a block of text")
            piece = self._plain_line(bare, is_first=False)
            is_cut = len(piece) < len(bare)
            pieces.append(piece)
            result += ("\n" * blanks if blanks else " ") + piece
            blanks = 0
            self._at += 1
        found = self._peek()
        if found is not None and found[0] > indent:
            self._fail("text goes on here after a comment; put the whole in quotes or in a block of text")
        return result if len(pieces) > 1 else self._typed(result, begun)

    def _plain_line(self, text: str, *, is_first: bool) -> str:
        """One line of unquoted text, without its comment."""
        if is_first and (text[0] in _SPECIAL or _INDICATOR.match(text)):
            self._fail(f"{_SPECIAL.get(text[0], 'an indicator')} is not read here; put the text in quotes")
        if (comment := re.search(r"[ \t]#", text)) is not None:
            text = text[: comment.start()].rstrip()
        if re.search(r":(?:[ \t]|$)", text):
            self._fail("a colon in the middle of unquoted text; put the text in quotes")
        return text

    def _quoted(self, text: str, start: int) -> tuple[str, int]:
        """The quoted text that begins here, and where it ends."""
        quote, place = text[start], start + 1
        found: list[str] = []
        while place < len(text):
            sign = text[place]
            if sign == quote:
                if quote == "'" and text[place + 1 : place + 2] == "'":
                    found.append("'")
                    place += 2
                    continue
                return "".join(found), place + 1
            if sign == "\\" and quote == '"':
                piece, place = self._escape(text, place + 1)
                found.append(piece)
                continue
            found.append(sign)
            place += 1
        self._fail("quoted text ends on the line it begins on; use a block of text (>- or |) for more")

    def _escape(self, text: str, place: int) -> tuple[str, int]:
        sign = text[place : place + 1]
        if sign in _CODED:
            digits = text[place + 1 : place + 1 + _CODED[sign]]
            if re.fullmatch(rf"[0-9a-fA-F]{{{_CODED[sign]}}}", digits):
                code = int(digits, 16)
                if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
                    return chr(code), place + 1 + len(digits)
        elif sign in _ESCAPES:
            return _ESCAPES[sign], place + 1
        self._fail(f"there is no escape \\{text[place : place + 9]}")

    def _flow(self, text: str, place: int, depth: int) -> tuple[Json, int]:
        """The value that begins here, inside brackets or at one."""
        if depth > _DEEPEST:
            self._fail(f"nested more than {_DEEPEST} deep")
        sign = text[place]
        if sign in "\"'":
            return self._quoted(text, place)
        if sign == "[":
            return self._flow_list(text, place + 1, depth)
        if sign == "{":
            return self._flow_map(text, place + 1, depth)
        word, end = self._flow_word(text, place)
        return self._typed(word, self._at), end

    def _flow_list(self, text: str, place: int, depth: int) -> tuple[list[Json], int]:
        values: list[Json] = []
        while True:
            place = self._skip(text, place)
            if text[place] == "]":
                return values, place + 1
            value, place = self._flow(text, place, depth + 1)
            values.append(value)
            place = self._skip(text, place)
            if text[place] == ",":
                place += 1
            elif text[place] != "]":
                self._fail("expected a comma or ] in the list")

    def _flow_map(self, text: str, place: int, depth: int) -> tuple[dict[str, Json], int]:
        values: dict[str, Json] = {}
        while True:
            place = self._skip(text, place)
            if text[place] == "}":
                return values, place + 1
            if text[place] in "\"'":
                key, place = self._quoted(text, place)
            else:
                key, place = self._flow_word(text, place)
                self._must_be_plain(key)
            if key in values:
                self._fail(f"the key {key!r} stands here twice")
            place = self._skip(text, place)
            value: Json = None
            if text[place] == ":":
                place = self._skip(text, place + 1)
                if text[place] not in ",}":
                    value, place = self._flow(text, place, depth + 1)
                    place = self._skip(text, place)
            values[key] = value
            if text[place] == ",":
                place += 1
            elif text[place] != "}":
                self._fail("expected a comma or } in the map")

    def _flow_word(self, text: str, place: int) -> tuple[str, int]:
        start = place
        while place < len(text) and text[place] not in ",[]{}":
            if text[place] == ":" and text[place + 1 : place + 2] in ("", " ", "\t", ",", "[", "]", "{", "}"):
                break
            if text[place] == "#" and text[place - 1] in " \t":
                self._fail("a comment inside brackets; put it after them")
            place += 1
        word = text[start:place].strip(" \t")
        if not word or word[0] in _SPECIAL or word[0] in "\"'" or _INDICATOR.match(word):
            self._fail(f"{text[start : start + 20]!r} is not read inside brackets; put it in quotes")
        return word, place

    def _skip(self, text: str, place: int) -> int:
        while place < len(text) and text[place] in " \t":
            place += 1
        if place >= len(text):
            self._fail("brackets are closed on the line they are opened on")
        return place

    def _typed(self, text: str, line: int) -> Json:
        """Unquoted text by the core schema: null, a boolean, a number, or itself."""
        if text in _WORDS:
            return _WORDS[text]
        if _NOT_JSON.fullmatch(text):
            self._fail(f"{text} has no form in JSON; put it in quotes", line)
        number: int | float | None = None
        if _INT.fullmatch(text):
            # Long before Python's own limit on digits, it is no JSON number any more.
            number = int(text) if len(text) <= 40 else _EXACT
        elif _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
            number = int(text, 0) if len(text) <= 40 else _EXACT
        elif _FLOAT.fullmatch(text):
            number = float(text)
        if number is None:
            return text
        if abs(number) >= (_EXACT if isinstance(number, int) else float("inf")):
            self._fail("the number is too large to be the same everywhere; put it in quotes", line)
        return number


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith(("- ", "-\t"))


def _folded(lines: list[str]) -> str:
    """Lines of a `>` block: joined by spaces, but an empty line is a line break, and indented lines stay as they are."""
    result, blanks, before = "", 0, ""
    for number, line in enumerate(lines):
        if not line:
            blanks += 1
            continue
        if number == blanks:
            result = "\n" * blanks
        elif line[0] in " \t" or before[0] in " \t":
            result += "\n" * (blanks + 1)
        else:
            result += "\n" * blanks if blanks else " "
        result += line
        before, blanks = line, 0
    return result
