"""The difference between two definitions, word by word, for the person who is to agree to the new one.

Pure. A definition is a tree; each of its texts, numbers and flags has a path, such as `description` or
`inputSchema.properties.path.description`. Fields are compared by path, and the words of a text within it. Blanks and hidden
characters count: an instruction can hide in either. No two fields have the same path, whatever a server calls them, and no two
values the same text: a change could hide behind the other.

The cost is bounded: comparing words is quadratic, so beyond `_MOST_WORDS` the middle of a text is shown as replaced.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from ..terminal_text import visible

_MOST_WORDS: Final = 1500  # on either side, between a common beginning and a common end; compared in 0.2 s
MOST_FIELDS: Final = 500  # changed fields that are shown; nobody reads more
_CONTEXT: Final = 12  # unchanged words shown on either side of a change
_WORD: Final = re.compile(r"\s+|\w+|[^\w\s]")
_PLAIN_NAME: Final = re.compile(r'[^.\[\]"]+')  # a name that cannot be mistaken for several, or for a place in a list
_NO_TEXT: Final = re.compile(r'-?[0-9][0-9.eE+-]*|true|false|null|\{\}|\[\]|".*"', re.DOTALL)  # reads as another value

Operation: TypeAlias = tuple[str, int, int, int, int]
PieceKind: TypeAlias = Literal["same", "removed", "added"]


MARKS: Final[Mapping[PieceKind, tuple[str, str]]] = {"same": ("", ""), "removed": ("[-", "-]"), "added": ("{+", "+}")}
"""The marks around a piece, for those who do not see colours."""


class Piece(NamedTuple):
    """A part of a text: in both, only in the old one, or only in the new one."""

    kind: PieceKind
    text: str


class FieldChange(NamedTuple):
    """One field that differs, and how."""

    path: str
    pieces: tuple[Piece, ...]


def difference(old: Mapping[str, Any], new: Mapping[str, Any], *, most: int | None = MOST_FIELDS) -> list[FieldChange]:
    """The fields in which two definitions differ, in the order of the new one; those that are gone come last.

    Args:
        most: If there are more fields, the last change says how many are left out; None for all.
    """
    before, after = dict(_leaves(old)) if old else {}, dict(_leaves(new)) if new else {}
    changes: list[FieldChange] = []
    left_out = 0
    for path in (*after, *(path for path in before if path not in after)):
        was, now = before.get(path), after.get(path)
        if was == now:
            continue
        left_out += len(changes) == most
        if left_out:
            continue
        changes.append(FieldChange(path, tuple(_compare(was, now))))
    if left_out:
        words = f"... and {left_out:,} more fields differ: `trimaran pins diff --json` has them all"
        changes.append(FieldChange("", (Piece("same", words),)))
    return changes


def plain_text(definition: Mapping[str, Any], *, most: int | None = MOST_FIELDS) -> list[FieldChange]:
    """A definition that nobody has seen yet, as if all of it was added."""
    return difference({}, definition, most=most)


def diff_text(changes: list[FieldChange]) -> str:
    """The difference as plain text: removed words as `[-so-]`, added ones as `{+so+}`."""
    lines: list[str] = []
    for change in changes:
        pieces = "".join(f"{MARKS[kind][0]}{visible(text)}{MARKS[kind][1]}" for kind, text in change.pieces)
        lines.append(f"{visible(change.path)}: {pieces}" if change.path else pieces)
    return "\n".join(lines)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a tree that hold no others, as text. An empty object or list is a field, too."""
    if isinstance(value, Mapping) and value:
        for name, item in cast("Mapping[str, Any]", value).items():
            if not _PLAIN_NAME.fullmatch(name):
                yield from _leaves(item, f"{path}[{_quoted(name)}]")
            else:
                yield from _leaves(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for number, item in enumerate(cast("list[Any]", value)):
            yield from _leaves(item, f"{path}[{number}]")
    elif isinstance(value, str) and not _NO_TEXT.fullmatch(value):
        yield path, value
    else:
        yield path, _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _compare(was: str | None, now: str | None) -> Iterator[Piece]:
    if was is None or now is None:
        yield Piece("added", now) if now is not None else Piece("removed", was or "")
        return
    old, new = _WORD.findall(was), _WORD.findall(now)
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    yield from _same(old[:start], is_first=True)
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(middle_old), len(middle_new)) > _MOST_WORDS:
        operations = [("replace", 0, len(middle_old), 0, len(middle_new))]
    else:
        operations = difflib.SequenceMatcher(None, middle_old, middle_new, autojunk=False).get_opcodes()
    for kind, from_old, to_old, from_new, to_new in _joined(operations, middle_old):
        if kind == "equal":
            yield from _same(middle_old[from_old:to_old])
            continue
        if to_old > from_old:
            yield Piece("removed", "".join(middle_old[from_old:to_old]))
        if to_new > from_new:
            yield Piece("added", "".join(middle_new[from_new:to_new]))
    yield from _same(old[len(old) - end :] if end else [], is_last=True)


def _joined(operations: Iterable[Operation], old: list[str]) -> Iterator[Operation]:
    """The same operations, with changes as one where only blanks stand between them: that reads as one change."""
    last: Operation | None = None
    for kind, from_old, to_old, from_new, to_new in operations:
        is_blank = kind == "equal" and not "".join(old[from_old:to_old]).strip()
        if last is not None and (kind != "equal" or is_blank):
            last = ("replace", last[1], to_old, last[3], to_new)
            continue
        if last is not None:
            yield last
        last = None if kind == "equal" else (kind, from_old, to_old, from_new, to_new)
        if kind == "equal":
            yield kind, from_old, to_old, from_new, to_new
    if last is not None:
        yield last


def _common(old: list[str], new: list[str]) -> int:
    """How many words two texts begin with alike."""
    count = 0
    for old_word, new_word in zip(old, new, strict=False):
        if old_word != new_word:
            break
        count += 1
    return count


def _same(words: list[str], *, is_first: bool = False, is_last: bool = False) -> Iterator[Piece]:
    """Unchanged words; of many, those beside a change."""
    if not words:
        return
    if len(words) <= 2 * _CONTEXT:
        yield Piece("same", "".join(words))
        return
    left = "" if is_first else "".join(words[:_CONTEXT])
    right = "" if is_last else "".join(words[-_CONTEXT:])
    yield Piece("same", f"{left} ... {right}")
