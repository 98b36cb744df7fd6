"""Turn texts into terms that can be compared: words split, stemmed, translated; and know which terms are related.

Pure, apart from reading the tables `search_words.txt` and `akin_words.txt` once. `search.py` is the caller.

    getUserNames, get_user_names, "Gets the names of users"     get, user, name
    /tmp/report.docx                                            path, word, document
    获取新闻                                                     get, new

A stem is no word: it only has to be the same for the forms of one word. Chinese is cut by the table, longest entry first, and
each entry stands for English terms, because many servers describe their tools in Chinese and are searched in English. What
the table does not know is kept as pairs of characters.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_WORDS: Final = re.compile(r"[\u4e00-\u9fff]+|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_a-zA-Z]+")
_LONGEST_WORD: Final = 40  # characters; longer "words" are identifiers or encoded data
_LONGEST_CHINESE: Final = 4  # characters of an entry of the table
_PATHS: Final = re.compile(
    r"(?:[A-Za-z]:)?(?:[\w.~-]{0,64}[/\\]){1,16}[\w.-]{1,64}\.([A-Za-z0-9]{1,5})\b"
    r"|\b[\w-]{1,64}\.(md|txt|pdf|docx?|xlsx?|pptx?|csv|json|html?|png|jpe?g|gif|svg|wav|mp[34]|zip|py|[jt]sx?)\b"
    r"|(?:[\w.~-]{0,64}[/\\]){2,16}[\w.-]{0,64}"
)
_BETWEEN_STEPS: Final = re.compile(
    r"(?<=[.!?;])\s+|\n+|(?<=[\u3002\uff01\uff1f\uff1b])|,?\s+(?:and then|then|after that|afterwards|finally|next|also)\s+|,\s+and\s+",
    re.IGNORECASE,
)
_SHORTEST_STEP: Final = 3  # words; "Thanks!" is no step
_MOST_STEPS: Final = 8
_MOST_STEP_WORDS: Final = 60  # of all steps together: it bounds a query's cost
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"

# Suffixes, longest first; what stays has at least so many letters.
_PLURALS: Final = (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"), ("zes", "z"))
_LONG_SUFFIXES: Final = ("ations", "ation", "ating", "ators", "ator", "ated")
_SUFFIXES: Final = (
    *("ings", "ing", "edly", "ed", "ers", "er", "ment", "ness", "able", "ible", "ally", "al", "ly", "ions", "ion"),
    *("ive", "ity"),
)


@functools.lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The common part of a word's forms: `searches`, `searching` and `searcher` are all `search`."""
    if len(word) <= 3:
        return word
    for suffix, singular in _PLURALS:
        if word.endswith(suffix) and len(word) - len(suffix) >= 2:
            word = word[: -len(suffix)] + singular
            break
    else:
        if word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
    for suffix in _LONG_SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            return word[: -len(suffix)]
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: -len(suffix)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]  # run-n-ing
            break
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


class Lexicon(NamedTuple):
    """The knowledge of search about words, all of it as stems."""

    stop: frozenset[str]
    """Words without a meaning of their own; as they are written."""
    vague: frozenset[str]
    """Terms that fit most tools: a match says little."""
    same: Mapping[str, frozenset[str]]
    near: Mapping[str, frozenset[str]]
    akin: Mapping[str, frozenset[str]]
    """Used in similar ways: a weak sign, found by machine."""
    actions: Mapping[str, frozenset[str]]
    """The kinds of action that a verb stands for: read, write, delete, convert, run."""
    extensions: Mapping[str, str]
    chinese: Mapping[str, tuple[str, ...]]


_ACTIONS: Final = ("read", "write", "delete", "convert", "run")


@functools.cache
def lexicon() -> Lexicon:
    """The tables, read once."""
    folder = Path(__file__).parent
    sections: dict[str, list[list[str]]] = {}
    lines = sections.setdefault("", [])
    for line in (folder / "search_words.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line.split())
    actions: dict[str, set[str]] = {}
    for action in _ACTIONS:
        for word in _flat(sections[action]):
            actions.setdefault(stem(word), set()).add(action)
    return Lexicon(
        frozenset(_flat(sections["stop"])),
        frozenset(map(stem, _flat(sections["vague"]))),
        _related(sections["same"]),
        _related(sections["near"]),
        _akin(folder / "akin_words.txt"),
        {word: frozenset(kinds) for word, kinds in actions.items()},
        {words[0]: " ".join(words[1:]) for words in sections["extensions"]},
        {words[0]: tuple(map(stem, words[1:])) for words in sections["chinese"]},
    )


def _flat(lines: Iterable[list[str]]) -> list[str]:
    return [word for line in lines for word in line]


def _related(lines: Iterable[list[str]]) -> dict[str, frozenset[str]]:
    groups: dict[str, set[str]] = {}
    for line in lines:
        stems = {stem(word) for word in line}
        for word in stems:
            groups.setdefault(word, set()).update(stems - {word})
    return {word: frozenset(others) for word, others in groups.items()}


def _akin(file: Path) -> dict[str, frozenset[str]]:
    """Each word of a line and its first, both ways; the others of a line need not be akin to each other."""
    pairs = [
        (stem(first), stem(other))
        for first, *others in map(str.split, file.read_text("ascii").splitlines())
        if first != "#"
        for other in others
    ]
    akin: dict[str, set[str]] = {}
    for word, other in [*pairs, *((other, word) for word, other in pairs)]:
        akin.setdefault(word, set()).add(other)
    return {word: frozenset(others) for word, others in akin.items()}


def split_terms(text: str, *, keep_stop: bool = False) -> list[str]:
    """The terms of a text, in order.

    Args:
        keep_stop: Keep words without a meaning of their own, too.
    """
    known = lexicon()
    terms: list[str] = []
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    for word in _WORDS.findall(text):
        if "\u4e00" <= word[0] <= "\u9fff":
            terms += _chinese_terms(word, known.chinese)
            continue
        lower = word[:_LONGEST_WORD].lower()
        if keep_stop or lower not in known.stop:
            terms.append(stem(lower))
    return terms


def _chinese_terms(text: str, table: Mapping[str, tuple[str, ...]]) -> list[str]:
    terms: list[str] = []
    at = 0
    while at < len(text):
        for length in range(_LONGEST_CHINESE, 0, -1):
            if (translation := table.get(text[at : at + length])) is not None:
                terms += translation
                at += min(length, len(text) - at)
                break
        else:
            if at + 1 < len(text):
                terms.append(text[at : at + 2])
            at += 1
    return terms


def query_terms(query: str) -> tuple[list[str], frozenset[str]]:
    """The terms of a query, in order, and the kinds of action that it asks for.

    A path stands for the kind of its file: nobody searches for a tool by the name of a file.
    """
    known = lexicon()

    def describe(path: re.Match[str]) -> str:
        return f" path {known.extensions.get((path[1] or path[2] or '').lower(), 'file')} "

    text = _PATHS.sub(describe, query)
    return split_terms(text), actions_of(split_terms(text, keep_stop=True))


def steps_of(query: str) -> list[str]:
    """The parts of a query that ask for something of their own: sentences, and what "then" or ", and" joins."""
    steps = [step for step in _BETWEEN_STEPS.split(query) if len(step.split()) >= _SHORTEST_STEP][:_MOST_STEPS]
    words = 0
    for number, step in enumerate(steps):
        words += len(step.split())
        if words > _MOST_STEP_WORDS:
            return steps[:number]
    return steps


def actions_of(terms: list[str]) -> frozenset[str]:
    """The kinds of action of the first verb, and of a verb behind an early "and": `search_and_replace` reads and writes."""
    actions = lexicon().actions
    requested = next((actions[term] for term in terms[:3] if term in actions), frozenset[str]())
    for term, following in itertools.pairwise(terms[:9]):
        if term == "and":
            requested |= actions.get(following, frozenset())
    return requested


def corrections(term: str) -> Iterable[str]:
    """Every term that differs by one letter too many, too few, wrong or swapped."""
    for at in range(len(term) + 1):
        before, after = term[:at], term[at:]
        if after:
            yield before + after[1:]
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
        for letter in _ALPHABET:
            if after:
                yield before + letter + after[1:]
            yield before + letter + after
