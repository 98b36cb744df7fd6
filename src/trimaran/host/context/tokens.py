"""Count the tokens of a text: with a real vocabulary where one is installed, else by an estimate that errs high.

`count_tokens` uses the vocabulary o200k of `splintr-rs` (extra `tokens`; it is inside that package, nothing is downloaded).
Without it, `estimate_tokens` answers. Providers' own vocabularies differ by some percent, so a count is a measure, no bill.

The theory of the estimate. Vocabularies of this kind first cut a text into pieces: a word with the blank or sign before
it, up to three digits, a run of signs, a run of blanks. One regular expression finds these pieces, and each piece has a
measured cost: a common English word one token, another Latin word by its length, digits by threes, what looks random
(hexadecimal, base64, identifiers) by its letters, other scripts by the character. The costs are set so that the estimate is
never below the true number on the texts of tests/unit/host/context_corpus.py, and at most 1.5 times it.

Pure, apart from reading the list of common words once. Long texts are sampled, so the cost is bounded.
"""

from __future__ import annotations

import functools
import itertools
import re
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, final

_SAFETY: Final = 1.08
"""Texts nobody measured are a little denser than those that were."""

# --- pieces ----------------------------------------------------------------------------------------------------------

_SIGNS: Final = r"!-/:-@\[-`{-~"
_PIECES: Final = re.compile(
    # A word, or digits, with one blank or sign before it; anything beyond ASCII counts as a letter. 64 bounds the cost of one.
    rf"[ {_SIGNS}]?(?:[A-Za-z0-9]|[^\s\x00-\x7f]){{1,64}}"
    r"|\s*[\r\n]+|\s+(?!\S)"
    rf"| ?[{_SIGNS}\x00-\x08\x0e-\x1f\x7f]+[\r\n/]*"
    r"|\s"
)
_ASCII_PARTS: Final = re.compile(r"[0-9]+|[A-Z]*[a-z]+|[A-Z]+")
_SCRIPT_PARTS: Final = re.compile(r"[A-Za-z0-9]+|[^\x00-\x7f]+")
# Letters that follow each other in no language written with the Latin alphabet, or in few words of it.
_UNSPEAKABLE: Final = re.compile(
    r"[bcdfghjklmnpqrstvwxz]{5}|^[bcdfghjklmnpqrstvwxz]{4,}$"
    r"|[jqx][bcdfghjklmnpqrstvwxz]|[vwz][bcdfgjkmpqtvxz]|[bcdfgklmpst][xj]"
)
# Vietnamese words are short and most of them are in the vocabulary, signs above and below included.
_VIETNAMESE: Final = re.compile("[\u1ea0-\u1ef9ơưđăƠƯĐĂ]")

# --- measured costs --------------------------------------------------------------------------------------------------

# A word of a Latin language other than English, by its letters: Uzbek, Polish and Turkish are about here.
_WORD: Final = (0, 1, 1, 1.1, 1.3, 1.6, 1.8, 2.1, 2.25, 2.45, 2.7, 3.0, 3.2, 3.4, 3.6, 4.0, 4.4)
_LONG_WORD: Final = 0.28  # for each letter, beyond the table
_CAPITALS: Final = (0, 1, 1.1, 1.4, 1.9, 2.4, 2.9, 3.4)
_MANY_CAPITALS: Final = 0.58
# A part of a random text, by its letters.
_RANDOM: Final = (1, 1, 1.25, 1.85, 2.4)
_LONG_RANDOM: Final = 0.62
_JSON_SIGNS: Final = (0, 1, 1, 1.15, 1.5, 1.8, 2.1, 2.4)

# The cost of one character, by the first code point after its range. A script's is that of running text in it.
_SCRIPTS: Final = (
    *((0xC0, 1.0), (0x100, 1.05), (0x180, 1.9), (0x300, 1.9), (0x370, 1.8)),  # Latin, combining signs
    *((0x400, 0.475), (0x530, 0.352), (0x590, 0.44), (0x591, 1.0), (0x5C8, 1.4), (0x600, 0.48)),  # Greek to Hebrew
    *((0x64B, 0.4), (0x660, 1.35), (0x670, 0.4), (0x672, 1.35), (0x780, 0.4), (0x900, 2.2)),  # Arabic, its vowel signs
    *(
        (0xA00, 0.415),
        (0xA80, 0.62),
        (0xB00, 0.4),
        (0xB80, 2.0),
        (0xC00, 0.35),
        (0xC80, 0.48),
        (0xD80, 0.39),
        (0xE00, 0.68),
    ),  # India
    *((0xE80, 0.45), (0xF00, 2.0), (0x1000, 1.6), (0x10A0, 0.5), (0x1100, 0.42), (0x1200, 2.0), (0x13A0, 2.6)),
    *((0x1400, 3.2), (0x1780, 3.0), (0x1800, 0.66), (0x1E00, 3.0), (0x1F00, 1.2), (0x2000, 2.0)),
    *((0x2070, 1.15), (0x2300, 1.9), (0x2500, 2.4), (0x2600, 1.75), (0x27C0, 1.9), (0x3000, 2.9)),  # signs
    *((0x3040, 1.1), (0x3100, 0.85), (0x3400, 2.0), (0x4E00, 2.9), (0xA000, 0.91), (0xAC00, 2.9), (0xD7B0, 0.755)),
    *(
        (0xE000, 3.0),
        (0xF900, 2.9),
        (0xFE00, 2.5),
        (0xFE10, 0.7),
        (0xFF00, 2.0),
        (0xFF60, 1.6),
        (0xFFF0, 2.4),
        (0x10000, 1.0),
    ),
    *((0x1F000, 3.9), (0x1F300, 3.0), (0x1F3FB, 2.1), (0x1F400, 1.6), (0x1F500, 1.85), (0x1F600, 2.6)),  # emoji
    *((0x1F650, 1.5), (0x1F700, 2.3), (0x1F900, 3.2), (0x1FA00, 2.3), (0x1FB00, 3.1), (0x110000, 4.0)),
)
_ENDS: Final = [end for end, _ in _SCRIPTS]


@functools.cache
def _common_words() -> frozenset[str]:
    return frozenset((Path(__file__).with_name("common_words.txt")).read_text("ascii").split())


def _word_cost(word: str) -> float:
    """A word of ASCII letters, its first one perhaps a capital."""
    length = len(word)
    small = word.lower()
    if length <= 2:
        return 1
    if small in _common_words():
        return 1.05
    if small[-1] == "s" and small[:-1] in _common_words():
        return 1.1
    if length > 8 and len(set(small)) <= 2:
        return 1 + length * 0.13  # one letter repeated
    if _UNSPEAKABLE.search(small):
        return max(1.0, length * _LONG_RANDOM)
    cost = _WORD[length] if length < len(_WORD) else length * _LONG_WORD
    return cost * 1.12 if word[0] < "a" else cost  # names


def _ascii_cost(run: str) -> float:
    """A run of ASCII letters and digits: a word, a number, camelCase, or something random."""
    if run.isdigit():
        return (len(run) + 2) // 3
    if run.isalpha() and run[1:].islower():
        return _word_cost(run)
    parts = _ASCII_PARTS.findall(run)
    numbers = sum(part[0] < "A" for part in parts)
    is_random = numbers > 1 or (numbers and len(parts) > 3) or len(parts) > max(4, len(run) / 3.2)
    total = 0.0
    for part in parts:
        length = len(part)
        if part[0] < "A":
            total += (length + 2) // 3
        elif is_random:
            total += _RANDOM[length] if length < len(_RANDOM) else length * _LONG_RANDOM
        elif part[0] < "a" and (length == 1 or part[1] < "a"):
            total += _capitals_cost(part)
        else:
            total += _word_cost(part)
    return total


def _capitals_cost(part: str) -> float:
    """Capitals, perhaps with a word behind them: HTTP, HTTPServer."""
    count = sum(letter < "a" for letter in part)
    if count == len(part) > 2 and part.lower() in _common_words():
        return 1.3
    cost = _CAPITALS[count] if count < len(_CAPITALS) else count * _MANY_CAPITALS
    if count == len(part):
        return cost
    rest = part[count:]
    return cost + (_word_cost(rest) - 0.3 if len(rest) > 1 else 0.4)


@final
class _Characters(dict[str, float]):
    """The cost of each character beyond ASCII."""

    def __missing__(self, character: str) -> float:
        cost = self[character] = _SCRIPTS[bisect_right(_ENDS, ord(character))][1]
        return cost


_CHARACTERS: Final = _Characters()


def _accented_cost(word: str) -> float:
    """A word of Latin letters, some of them beyond ASCII."""
    length = len(word)
    extra = sum(_CHARACTERS[letter] for letter in word if letter > "\x7f")
    if length < 8 and _VIETNAMESE.search(word):
        return 1.2
    if length < 3:
        return min(1 + extra * 0.55, 1.15)
    if length < 6:
        return 1 + (0.15 if length > 4 else 0) + extra * 0.32
    return (_WORD[length] if length < len(_WORD) else length * _LONG_WORD) + extra * 0.65


def _run_cost(run: str) -> float:
    if run.isascii():
        return _ascii_cost(run)
    highest = max(run)
    if (highest < "\u0250" or "\u1e00" <= highest < "\u1f00") and run.isalpha():
        return _accented_cost(run)
    costs = (
        _ascii_cost(part) if part.isascii() else sum(map(_CHARACTERS.__getitem__, part))
        for part in _SCRIPT_PARTS.findall(run)
    )
    return max(sum(costs), 1.0)


def _signs_cost(piece: str) -> float:
    signs = piece.strip(" \r\n")
    length = len(signs)
    if length <= 1:
        return 1.0
    if signs == signs[0] * length:
        return 1 + length // 64
    if not signs.strip('{}[]":,'):
        return _JSON_SIGNS[length] if length < len(_JSON_SIGNS) else length * (0.35 if length < 16 else 0.6)
    if not signs.strip("{}[]()<>\"'=;:.,/*-_#!|&`\\"):
        return 1.25 if length == 2 else 0.2 + length * 0.56
    if min(signs) < " " or max(signs) == "\x7f":
        return float(length)  # control characters are tokens of their own
    return 1.6 if length == 2 else 0.3 + length * 0.74


def _blanks_cost(piece: str) -> float:
    length = len(piece)
    if not piece.strip(" "):
        return 1 + length // 120
    if piece == piece[0] * length:
        return 1 + length // (16 if piece[0] < "\x7f" else 7)
    if length >= 200:
        return length * 0.36
    changes = 1 + sum(left != right for left, right in itertools.pairwise(piece))
    return max(1.0, min(changes * 0.6, length / 2), length / 16)


def _piece_cost(piece: str) -> float:
    if piece.isspace():
        return _blanks_cost(piece)
    first, last = piece[0], piece[-1]
    if not (last.isalnum() or last > "\x7f"):
        return _signs_cost(piece)
    has_lead = not (first.isalnum() or first > "\x7f")
    run = piece[1:] if has_lead else piece
    cost = _run_cost(run)
    if not has_lead:
        return cost
    if run[0] <= "9":
        return cost + 1  # what stands before a digit is a piece of its own
    if first == " ":
        return cost + 0.7 if "\u3040" <= run[0] <= "\u9fff" else cost  # no word of these scripts begins with a blank
    return cost + (0.1 if cost < 1.11 else 0.5 if cost < 1.6 else 0.75)


_LONGEST_KNOWN: Final = 16  # characters; longer pieces seldom come twice
_MOST_KNOWN: Final = 50_000  # pieces; about 5 MB


@final
class _Pieces(dict[str, float]):
    """The cost of each piece, remembered: in running text most pieces come again and again."""

    def __missing__(self, piece: str) -> float:
        cost = _piece_cost(piece)
        if len(piece) <= _LONGEST_KNOWN:
            if len(self) >= _MOST_KNOWN:
                self.clear()
            self[piece] = cost
        return cost


_KNOWN: Final = _Pieces()

# --- counting --------------------------------------------------------------------------------------------------------

_LONGEST: Final = 256 * 1024  # characters that are counted one by one: 25 ms, in which nothing else runs
_SAMPLES: Final = 32
_SAMPLE: Final = 8192  # characters
# A vocabulary merges letter pairs piece by piece, which takes the square of a piece's length: 20,000 times "a" takes 0.1 s.
_SLICE: Final = 2000


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is, without a vocabulary: seldom less than the true number, at most 1.5 times it."""
    return _sampled(text, _estimate)


def _estimate(text: str) -> int:
    return int(-(-sum(map(_KNOWN.__getitem__, _PIECES.findall(text))) * _SAFETY // 1))


def _sampled(text: str, count: Callable[[str], int]) -> int:
    """Count a text; of a very long one, count samples from all over it and add a tenth."""
    if len(text) <= _LONGEST:
        return count(text)
    step = (len(text) - _SAMPLE) / (_SAMPLES - 1)
    sampled = sum(count(text[(start := int(at * step)) : start + _SAMPLE]) for at in range(_SAMPLES))
    return int(sampled * len(text) / (_SAMPLES * _SAMPLE) * 1.1) + 1


@functools.cache
def _vocabulary() -> Any:
    """The vocabulary of the extra `tokens`; None where it is not installed. Loading takes a tenth of a second."""
    try:
        import splintr
    except ImportError:
        return None
    return splintr.Tokenizer.from_pretrained("o200k_base")


def has_tokenizer() -> bool:
    """Whether `count_tokens` counts with a real vocabulary."""
    return _vocabulary() is not None


def count_tokens(text: str) -> int:
    """How many tokens a text is: of the vocabulary o200k with the extra `tokens`, else as `estimate_tokens` has it."""
    vocabulary = _vocabulary()
    if vocabulary is None:
        return estimate_tokens(text)
    return _sampled(text, functools.partial(_count, vocabulary))


def _count(vocabulary: Any, text: str) -> int:
    if any(len(word) >= _SLICE for word in text.split()):  # a pattern would go over each run from each of its letters
        return sum(_count_slice(vocabulary, text[at : at + _SLICE]) for at in range(0, len(text), _SLICE))
    return _count_slice(vocabulary, text)


def _count_slice(vocabulary: Any, text: str) -> int:
    try:
        return len(vocabulary.encode_ordinary(text))  # a special token spelled out in a text is only text
    except UnicodeEncodeError:  # half of a surrogate pair
        return len(vocabulary.encode_ordinary(text.encode("utf-8", "replace").decode()))
