"""Texts that a model reads at a glance and a filter does not: letters as digits, letters apart, the alphabet turned by 13.

Pure. Each function yields other readings of a text, for the scan to look at; most texts have none, and that is found out
first. A reading is no finding: only what it says is.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from itertools import islice
from typing import Final

_MOST: Final = 20  # readings of one kind
_MARKS: Final = re.compile("[\u0300-\u036f]")
_HEAPED: Final = re.compile(
    "(?:[a-z][\u0300-\u036f]{1,40}+\\W{0,9}){8,}"
)  # no language has so many letters with marks in a row
_DIGITS: Final = str.maketrans("01345789@$!", "oieastbgasi")
# A word with digits between its letters, such as 1gn0r3; but no 2nd, h264, utf8, mp3 or version. It looks ahead no further
# than the word may reach: "!" begins one and goes on with one, so a line of them would take the square of its length.
_LEET: Final = re.compile(
    r"(?<![\w.@$-])(?=[a-z013457@$!]{0,19}[a-z])(?=[a-z@$!]{0,19}[013457])[a-z013457@$!]{3,20}(?![\w-])"
)
_LEET_TEXT: Final = 3  # such words among 12: one is a product, several are a disguise
_LONG_ENOUGH: Final = re.compile(r"[a-z]{5,12}")
_LEAST_SCRAMBLED: Final = 2  # one such word is a typing error
_APART: Final = re.compile(r"(?<!\w)\w(?:[ ._*-]\w(?!\w)){7,400}")
_WORDS: Final = (
    "ignore",
    "instructions",
    "previous",
    "prior",
    "system prompt",
    "the user",
    "do not",
    "forward",
    "password",
    "private",
    "secret",
    "contents of",
    "credentials",
    "send the",
    ".ssh/",
)
_BACKWARDS: Final = tuple(word[::-1] for word in _WORDS)
_TURNED: Final = tuple(codecs.encode(word, "rot13") for word in _WORDS)


def may_be_disguised(text: str) -> bool:
    """Whether `readings` has any of this text, or of a part of it."""
    return (
        not text.isascii()
        or sum(1 for _ in islice(_LEET.finditer(text), _LEET_TEXT)) >= _LEET_TEXT
        or _APART.search(text) is not None
        or sum(word in text for word in _TURNED) >= 2
        or sum(word in text for word in _BACKWARDS) >= 2
        or next(_unscrambled(text), None) is not None
    )


def readings(text: str) -> Iterator[str]:
    """Other readings of a text in lower case."""
    yield from islice(_without_digits(text), _MOST)
    yield from islice(_together(text), _MOST)
    if sum(word in text for word in _TURNED) >= 2:
        yield codecs.encode(text, "rot13")
    if sum(word in text for word in _BACKWARDS) >= 2:
        yield text[::-1]
    yield from _unscrambled(text)
    if not text.isascii():
        yield from _without_marks(text)


def _without_marks(text: str) -> Iterator[str]:
    """Latin letters without what is heaped upon them."""
    for match in islice(_HEAPED.finditer(unicodedata.normalize("NFD", text)), _MOST):
        yield _MARKS.sub("", match[0])


def _scramble_key(word: str) -> tuple[str, str]:
    """The common form of words that differ by the order of their inner letters."""
    return word[0] + word[-1], "".join(sorted(word))


_SCRAMBLED: Final = {
    _scramble_key(word): word
    for word in (
        *("ignore", "disregard", "bypass", "override", "previous", "earlier", "above", "prior", "instructions"),
        *("instruction", "guidelines", "reveal", "system", "prompt", "password", "secret", "forward", "forget"),
        *("directives", "private", "without", "telling", "mention", "rules", "upload", "conversation"),
    )
}
_OUTLINES: Final = frozenset((word[0], word[-1], len(word)) for word in _SCRAMBLED.values())


def _unscrambled(text: str) -> Iterator[str]:
    """The text with the words put right whose inner letters changed places, if there are several."""
    mended = 0

    def mend(match: re.Match[str]) -> str:
        nonlocal mended
        word = match[0]
        if (word[0], word[-1], len(word)) not in _OUTLINES:
            return word
        meant = _SCRAMBLED.get(_scramble_key(word), word)
        mended += meant != word
        return meant

    reading = _LONG_ENOUGH.sub(mend, text)
    if mended >= _LEAST_SCRAMBLED:
        yield reading


def _without_digits(text: str) -> Iterator[str]:
    last = -1
    for number, match in enumerate(islice(_LEET.finditer(text), _LEET_TEXT - 1, 1000)):
        if number % 8 or match.start() < last:
            continue
        start, end = max(0, match.start() - 120), match.end() + 120
        around = text[start:end]
        words = len(around.split())
        if len(_LEET.findall(around)) >= max(_LEET_TEXT, words // 4):
            last = end
            yield around.translate(_DIGITS)


def _together(text: str) -> Iterator[str]:
    """Single letters with blanks or signs between them, as words where the gaps tell."""
    for match in _APART.finditer(text):
        is_joined = any(sign in match[0] for sign in "._*-")
        yield re.sub(r"(\w)[._*-](?=\w(?!\w))", r"\1", match[0]) if is_joined else match[0].replace(" ", "")
