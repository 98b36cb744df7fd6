"""Globs: `*`, `**`, `?`, and whether a text fits one, for certain or perhaps.

Pure, and safe with hostile input: matching takes time linear in the text, whatever the glob; nothing here backtracks.

    *    any run of characters, but no `/` and no line end          ?    one character, likewise
    **   any run of characters; `/**/` may be a single `/`          \\    makes the next character an ordinary one

There are three answers, not two. A glob over an argument cannot know whether `*` was meant to stop at a `/`: in a path it
should, in a command line it should not. So a text that fits only if `*` may swallow a `/` fits *perhaps*, and whoever asks
decides what that means: here a rule that restricts holds then, and one that permits does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, IntEnum
from typing import Final, final

# Longer texts are matched loosely: the strict walk is a Python loop, about 0.2 us a character.
_LONGEST: Final = 65536
_MOST_DEEP: Final = 4  # `/**/` in one glob; each doubles the forms that are tried
_STOPS: Final = re.compile(r"[/\n\r]")
_MEANT: Final = frozenset("\\*?[]{}")  # characters that need a backslash to be literal


class Match(IntEnum):
    """Does it fit? `min` is "and"."""

    NO = 0
    PERHAPS = 1
    YES = 2


def agree(fits: Iterable[Match]) -> Match:
    """The common verdict of several matches: the one they agree on, PERHAPS if they do not, NO if there are none."""
    verdict: Match | None = None
    for fit in fits:
        if verdict is None:
            verdict = fit
        elif fit is not verdict:
            return Match.PERHAPS
        if verdict is Match.PERHAPS:
            return verdict
    return Match.NO if verdict is None else verdict


class Wildcard(Enum):
    ONE = "?"
    RUN = "*"
    DEEP = "**"


Piece = str | Wildcard


@final
class Glob:
    """A compiled glob. Pieces are runs of ordinary characters and wildcards; two globs of the same pieces are equal."""

    __slots__ = ("_loose", "_stops", "_strict", "pieces", "start")

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.pieces: Final = _joined(pieces)
        """Never two runs of ordinary characters side by side."""
        self.start: Final = self.pieces[0] if self.pieces and isinstance(self.pieces[0], str) else ""
        """How every text that fits begins."""
        forms = _forms(self.pieces)
        self._loose = [_loosely(form) for form in forms]
        self._stops = any(piece in (Wildcard.RUN, Wildcard.ONE) for piece in self.pieces)
        self._strict = [_Walk(form) for form in forms] if self._stops else []

    @property
    def is_plain(self) -> bool:
        """Whether it matches only one text."""
        return all(isinstance(piece, str) for piece in self.pieces)

    @property
    def is_everything(self) -> bool:
        return self.pieces in ((Wildcard.RUN,), (Wildcard.DEEP,))

    def fit(self, text: str) -> Match:
        # Most globs do not fit, and most of those differ at the start.
        if not text.startswith(self.start) or not self.fits_loosely(text):
            return Match.NO
        if not self._stops or not _STOPS.search(text):
            return Match.YES
        if len(text) > _LONGEST:
            return Match.PERHAPS
        return Match.YES if any(walk.accepts(text) for walk in self._strict) else Match.PERHAPS

    def fits_loosely(self, text: str) -> bool:
        """The same where `*` and `?` stop at nothing: all there is to know about names, which hold no `/`."""
        for fits in self._loose:  # noqa: SIM110 - half the time of any()
            if fits(text):
                return True
        return False

    def covers(self, other: Glob) -> bool:
        """Is every text that fits the other sure to fit this one, loosely? False where that cannot be told."""
        own_forms = [_symbols(form) for form in _forms(self.pieces)]
        return all(any(_covers(m, _symbols(form)) for m in own_forms) for form in _forms(other.pieces))

    def __str__(self) -> str:
        return self.text()

    def text(self, also: str = "") -> str:
        """As it is written where the characters of `also` mean something too."""
        return "".join(piece.value if isinstance(piece, Wildcard) else escape(piece, also) for piece in self.pieces)

    def __eq__(self, other: object) -> bool:
        return self.pieces == other.pieces if isinstance(other, Glob) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.pieces)

    def __repr__(self) -> str:
        return f"Glob({str(self)!r})"


def escape(text: str, also: str = "") -> str:
    """The text as a glob that fits nothing else."""
    return "".join(f"\\{c}" if c in _MEANT or c in also else c for c in text)


def _joined(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece != "":
            joined.append(piece)
    if sum(_is_optional(joined, at) for at in range(len(joined))) > _MOST_DEEP:
        raise ValueError(f"`/**/` stands more than {_MOST_DEEP} times in it")
    return tuple(joined)


def _is_optional(pieces: Sequence[Piece], at: int) -> bool:
    """Whether this is a `**` between two `/`, or between the start and a `/`."""
    if pieces[at] is not Wildcard.DEEP or at + 1 == len(pieces):
        return False
    before, after = pieces[at - 1] if at else "/", pieces[at + 1]
    return isinstance(before, str) and before.endswith("/") and isinstance(after, str) and after.startswith("/")


def _forms(pieces: tuple[Piece, ...]) -> list[tuple[Piece, ...]]:
    """The glob with each optional `**/` once there and once not."""
    forms: list[tuple[Piece, ...]] = [()]
    dropped_slash: list[bool] = [False]
    for at, piece in enumerate(pieces):
        grown: list[tuple[Piece, ...]] = []
        dropped: list[bool] = []
        for form, has_dropped in zip(forms, dropped_slash, strict=True):
            own = piece[1:] if has_dropped and isinstance(piece, str) else piece
            grown.append((*form, own) if own != "" else form)
            dropped.append(False)
            if _is_optional(pieces, at):
                grown.append(form)
                dropped.append(True)
        forms, dropped_slash = grown, dropped
    return forms


def _loosely(pieces: tuple[Piece, ...]) -> Callable[[str], object]:
    """A test for a text where every run may take anything: the pattern's fixed parts, found from left to right.

    The leftmost place for each part is as good as any other, since runs take whatever is between: so each is an atomic
    group, and the regular expression never goes back.
    """
    parts: list[str] = [""]
    for piece in pieces:
        if isinstance(piece, str):
            parts[-1] += re.escape(piece)
        elif piece is Wildcard.ONE:
            parts[-1] += "."
        else:
            parts.append("")
    if len(parts) == 1 and all(isinstance(piece, str) for piece in pieces):
        return "".join(map(str, pieces)).__eq__
    first, *middle = parts[:-1] if len(parts) > 1 else parts
    last = [f".*{parts[-1]}"] if len(parts) > 1 else []
    groups = [f"(?>.*?{part})" for part in middle if part]
    return re.compile("".join([first, *groups, *last]), re.DOTALL).fullmatch


@final
class _Walk:
    """All ways through the glob at once, one bit each: bit n is set when n pieces that take a character have taken theirs."""

    __slots__ = ("_deep", "_end", "_ones", "_run", "_takes")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._takes: dict[str, int] = {}
        self._deep = self._run = self._ones = 0
        bit = 1
        for symbol in _characters(pieces):
            if symbol is Wildcard.DEEP:
                self._deep |= bit
            elif symbol is Wildcard.RUN:
                self._run |= bit
            else:
                if symbol is Wildcard.ONE:
                    self._ones |= bit
                else:
                    self._takes[symbol] = self._takes.get(symbol, 0) | bit
                bit <<= 1
        self._end = bit

    def accepts(self, text: str) -> bool:
        takes, ones, deep, both = self._takes, self._ones, self._deep, self._deep | self._run
        ways = 1
        for character in text:
            edges = takes.get(character, 0)
            if character in "/\n\r":
                ways = ((ways & edges) << 1) | (ways & deep)
            else:
                ways = ((ways & (edges | ones)) << 1) | (ways & both)
            if not ways:
                return False
        return bool(ways & self._end)


def _characters(pieces: Sequence[Piece]) -> Iterator[str | Wildcard]:
    for piece in pieces:
        yield from piece if isinstance(piece, str) else (piece,)


def _symbols(pieces: Sequence[Piece]) -> list[str | Wildcard]:
    """Single characters and wildcards, where a run is a run."""
    return [Wildcard.RUN if symbol is Wildcard.DEEP else symbol for symbol in _characters(pieces)]


def _covers(pattern: Sequence[str | Wildcard], symbols: Sequence[str | Wildcard]) -> bool:
    # Where we are in `mine` after each symbol of `theirs`; a run of ours takes in whatever stands there.
    places = _skip(pattern, {0})
    for symbol in symbols:
        after: set[int] = set()
        for place in places:
            if place == len(pattern):
                continue
            if pattern[place] is Wildcard.RUN:
                after.add(place)
            elif symbol is not Wildcard.RUN and pattern[place] in (symbol, Wildcard.ONE):
                after.add(place + 1)
        places = _skip(pattern, after)
    return len(pattern) in places


def _skip(symbols: Sequence[str | Wildcard], places: set[int]) -> set[int]:
    """The places, and those behind a run that takes nothing."""
    reached = set(places)
    for place in sorted(places):
        while place < len(symbols) and symbols[place] is Wildcard.RUN:
            place += 1
            reached.add(place)
    return reached


# A shape says which texts there can be: one character after another, each from a set; `many` may repeat, or not be there.

Shape = Sequence[tuple[frozenset[str], bool]]


def one(characters: Iterable[str]) -> tuple[frozenset[str], bool]:
    return frozenset(characters), False


def many(characters: Iterable[str]) -> tuple[frozenset[str], bool]:
    return frozenset(characters), True


def meets(glob: Glob, shape: Shape) -> bool:
    """Whether a text of this shape matches the glob loosely."""
    symbols = _symbols(glob.pieces)
    waiting, seen = [(0, 0)], {(0, 0)}
    while waiting:
        i, j = waiting.pop()
        if i == len(symbols) and j == len(shape):
            return True
        symbol = symbols[i] if i < len(symbols) else None
        allowed, repeats = shape[j] if j < len(shape) else (frozenset[str](), False)
        steps: list[tuple[int, int]] = []
        if symbol is Wildcard.RUN:
            steps.append((i + 1, j))
        if repeats:
            steps.append((i, j + 1))
        if symbol is not None and allowed and (isinstance(symbol, Wildcard) or symbol in allowed):
            steps.append((i if symbol is Wildcard.RUN else i + 1, j if repeats else j + 1))
        for step in steps:
            if step not in seen:
                seen.add(step)
                waiting.append(step)
    return False
