"""Find tools by what they do: an index of every tool's words, and a ranking, without a model and without a network.

Pure and synchronous; `Host.search_tools` keeps one `ToolIndex` up to date. See docs/adr/0034 for what was tried, 0039 for how the constants were set.

A tool is a bag of terms (`search_terms.py`) from its fields. A term weighs more in the name than in the description of an
argument, less in a long field than in a short one, and saturates: the tenth occurrence adds nothing. These weights depend on
the tool alone, so that a server's tools come and go without touching another's.

A query's terms are looked up with what they may also mean: related words, weaker; a word one typo away. A tool gets for each
query term its best match times the rarity of the term. Then two corrections: a tool that does another kind of thing than the
query asks for (reads, where something is to be written) loses a part of its score, and so does the second tool of one name.
A word that nothing explains is most probably a name, and speaks for tools that look things up. A query of several steps
("find the train, then book a hotel") is scored as a whole and step by step, so that no step hides the tools of another.

Hostile texts have a bounded cost: of every field only a beginning counts, of a term's tools only the best `_MOST_MATCHES`.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast, final

from trimaran.host.names import Address
from trimaran.types import Tool

from .search_terms import actions_of, corrections, lexicon, query_terms, split_terms, stem, steps_of


class _Field(NamedTuple):
    """How much a term of this field weighs."""

    weight: float
    usual: float
    """The usual number of terms, measured on 3,200 tools of 200 servers."""
    dilution: float
    """How much of the weight a longer field loses: 0 none, 1 in proportion."""
    longest: int
    """Characters that count. What decides is said early; the rest is examples, or padding to be found."""


_NAME: Final = _Field(3.0, 2.6, 0.74, 128)
_TITLE: Final = _Field(1.9, 2.5, 0.45, 128)
_SENTENCE: Final = _Field(1.5, 8.0, 0.4, 400)
_REST: Final = _Field(0.22, 25.0, 0.75, 600)
_ARGUMENT_NAMES: Final = _Field(0.6, 5.0, 0.65, 400)
_ARGUMENT_TEXTS: Final = _Field(0.62, 18.0, 1.0, 800)
_SERVER: Final = _Field(0.56, 1.8, 0.23, 128)
_ABOUT: Final = _Field(0.4, 12.0, 0.35, 300)

_SATURATION: Final = 1.5
_MOST_OF_ONE: Final = 3  # occurrences in a field that count
_SAME: Final = 0.75
_NEAR: Final = 0.45
_AKIN: Final = 0.24
_TYPO: Final = 0.8
_SHORTEST_TYPO: Final = 5  # letters; shorter words are one letter away from too many others: John is no join
_VAGUE: Final = 0.8
_LATER: Final = 0.03  # what a query begins with matters most: the k-th term counts 1 / (1 + k * _LATER)
_OTHER_ACTION: Final = 0.52
_SAME_NAME: Final = 0.57
_UNKNOWN: Final = 0.11  # what a name that no tool knows is worth, for tools that take any text
_LOOK_UP_TERMS: Final = tuple(map(stem, ("query", "search", "keyword")))
_MOST_TERMS: Final = 24  # of a query; a step of a plan has 5 to 25
_MOST_QUERY: Final = 2000  # characters
_WHOLE: Final = 0.5  # the weight of the whole query where it has several steps
_MOST_ARGUMENTS: Final = 40
# Tools of one term that are scored; a term that more tools have says little about each. It bounds a query's cost.
_MOST_MATCHES: Final = 256
_CANDIDATES: Final = 60  # tools whose score is computed exactly where matches were left out
_SENTENCE_END: Final = re.compile("(?<=[.!?])(?:\\s|$)|\n|(?<=[\u3002\uff01\uff1f])")  # the last three are Chinese


class ToolMatch(NamedTuple):
    """A tool that fits, and how well. Scores of one query can be compared."""

    address: Address
    score: float


class _Matches(NamedTuple):
    """The matches of a term of a query."""

    worths: Mapping[str, float]
    """The terms that it may mean, with the worth of a match."""
    scores: Mapping[int, float]
    """The entries that have them, with the best match of each."""
    left_out: dict[int, float] | None
    """If entries were left out: the best matches that were computed all the same."""


_Known: TypeAlias = dict[str, _Matches]  # by term: the steps of a query have the terms of the whole


class _Entry(NamedTuple):
    address: Address
    terms: tuple[str, ...]
    actions: frozenset[str]


@final
class ToolIndex:
    """The words of every server's tools. Not for several threads at once."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._places: dict[str, list[int]] = {}
        """The entries of each server."""
        self._weights: dict[str, dict[int, float]] = {}
        """Of each term: the entries that have it, with its weight there."""
        self._best: dict[str, list[tuple[int, float]]] = {}
        """The heaviest entries of the terms that many have; made at the first query for the term."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def update(self, server: str, tools: Iterable[Tool], *, about: str = "") -> None:
        """Replace the tools of one server.

        Args:
            about: The server's own texts: its title, description, instructions.
        """
        self.remove(server)
        shared: dict[str, float] = {}
        _add_weights(shared, _SERVER, server)
        _add_weights(shared, _ABOUT, _first_sentence(about[: _ABOUT.longest]))
        places = self._places[server] = []
        for tool in tools:
            weights = dict(shared)
            actions = _weigh(tool, weights)
            place, self._next = self._next, self._next + 1
            places.append(place)
            self._entries[place] = _Entry(Address(server, tool.name), tuple(weights), actions)
            for term, weight in weights.items():
                self._weights.setdefault(term, {})[place] = weight / (weight + _SATURATION)
        self._best.clear()

    def remove(self, server: str) -> None:
        """Forget the tools of one server."""
        for place in self._places.pop(server, ()):
            for term in self._entries.pop(place).terms:
                entries = self._weights[term]
                del entries[place]
                if not entries:
                    del self._weights[term]
        self._best.clear()

    def search(self, query: str, limit: int = 5, *, among: Callable[[Address], bool] | None = None) -> list[ToolMatch]:
        """The tools that fit the query, best first; none if no word of it is known.

        Args:
            among: True for a tool that may be found.
        """
        query = query[:_MOST_QUERY]
        known: _Known = {}
        scores = self._scores(query, known)
        steps = steps_of(query)
        if len(steps) > 1:
            scores = _with_steps(scores, (self._scores(step, known) for step in steps))
        return self._ranked(scores, limit, among)

    def _scores(self, text: str, known: _Known) -> dict[int, float]:
        terms, requested = query_terms(text)
        scores = self._score(self._weighed(terms[:_MOST_TERMS], known))
        if requested:
            entries = self._entries
            for place in scores:
                if (actions := entries[place].actions) and not actions & requested:
                    scores[place] *= _OTHER_ACTION
        return scores

    def _weighed(self, terms: Sequence[str], known: _Known) -> list[tuple[float, _Matches]]:
        """For each query term: its weight in the query, and what it matches."""
        vague = lexicon().vague
        parts: dict[str, tuple[float, _Matches]] = {}
        names: list[str] = []
        for at, term in enumerate(terms):
            if term in parts:
                continue
            matches = known.get(term)
            if matches is None:
                matches = known[term] = self._matches(self._variants(term))
            parts[term] = (_VAGUE if term in vague else 1.0) / (1 + _LATER * at), matches
            if not matches.worths:
                names.append(term)
        if len(names) == len(parts):
            return []
        if names:  # most probably of something to look up, as in "the article about Llullaillaco"
            look_up = {word: _UNKNOWN * self._rarity(word) for word in _LOOK_UP_TERMS if word in self._weights}
            parts.update(dict.fromkeys(names, (1.0, self._matches(look_up))))
        return list(parts.values())

    def _variants(self, term: str) -> dict[str, float]:
        known, weights = lexicon(), self._weights
        origin, trust = term, 1.0
        if term not in weights and term not in known.same and term not in known.near:
            corrected = self._corrected(term)
            if corrected is None:
                return {}
            origin, trust = corrected, _TYPO
        rarity = self._rarity(origin) if origin in weights else math.inf
        variants: dict[str, float] = {}
        for others, closeness in ((known.akin, _AKIN), (known.near, _NEAR), (known.same, _SAME)):
            for other in others.get(origin, ()):
                if other in weights:
                    # A rare synonym must not count more than the word of the query.
                    variants[other] = closeness * trust * min(self._rarity(other), rarity)
        if origin in weights:
            variants[origin] = trust * rarity
        return variants

    def _corrected(self, term: str) -> str | None:
        """The commonest known term that is one typo away."""
        if len(term) < _SHORTEST_TYPO or not term.isascii() or not term.isalpha():
            return None
        weights, near = self._weights, lexicon().near
        known = [other for other in corrections(term) if other in weights or other in near]
        return max(known, key=lambda other: (len(weights.get(other, ())), other), default=None)

    def _rarity(self, term: str) -> float:
        having = len(self._weights[term])
        return math.log(1 + (len(self._entries) - having + 0.5) / (having + 0.5))

    def _matches(self, worths: Mapping[str, float]) -> _Matches:
        scores: dict[int, float] = {}
        left_out: dict[int, float] | None = None
        for term, worth in worths.items():
            matches: Iterable[tuple[int, float]]
            if len(entries := self._weights[term]) > _MOST_MATCHES:
                matches, left_out = self._best_of(term), {}
            else:
                matches = entries.items()
            for place, weight in matches:
                score = worth * weight
                if score > scores.get(place, 0.0):
                    scores[place] = score
        return _Matches(worths, scores, left_out)

    def _score(self, parts: Sequence[tuple[float, _Matches]]) -> dict[int, float]:
        scores: dict[int, float] = {}
        for importance, matches in parts:
            for place, score in matches.scores.items():
                scores[place] = scores.get(place, 0.0) + importance * score
        if all(matches.left_out is None for _, matches in parts):
            return scores
        return {
            place: self._exact(place, parts) for place in heapq.nlargest(_CANDIDATES, scores, key=scores.__getitem__)
        }

    def _best_of(self, term: str) -> list[tuple[int, float]]:
        best = self._best.get(term)
        if best is None:
            best = heapq.nlargest(_MOST_MATCHES, self._weights[term].items(), key=lambda item: item[1])
            self._best[term] = best
        return best

    def prepare(self) -> None:
        """Do now what the first queries would otherwise do."""
        for term, entries in self._weights.items():
            if len(entries) > _MOST_MATCHES:
                self._best_of(term)

    def _exact(self, place: int, parts: Sequence[tuple[float, _Matches]]) -> float:
        weights = self._weights
        total = 0.0
        for importance, (worths, scores, left_out) in parts:
            score = scores.get(place)
            if left_out is not None and (score := left_out.get(place)) is None:
                score = max(worth * weights[term].get(place, 0.0) for term, worth in worths.items())
                left_out[place] = score
            if score:
                total += importance * score
        return total

    def _ranked(
        self, scores: Mapping[int, float], limit: int, among: Callable[[Address], bool] | None
    ) -> list[ToolMatch]:
        ranked = heapq.nlargest(
            max(limit, 0) + _CANDIDATES if among is None else len(scores),
            ((score, -place) for place, score in scores.items()),
        )
        seen: dict[str, int] = {}
        matches: list[tuple[float, int, Address]] = []
        for score, place in ranked:
            address = self._entries[-place].address
            if among is not None and not among(address):
                continue
            times = seen[address.tool] = seen.get(address.tool, -1) + 1
            matches.append((score * _SAME_NAME**times, place, address))
        matches.sort(reverse=True)
        return [ToolMatch(address, score) for score, _, address in matches[: max(limit, 0)]]


def _with_steps(whole: Mapping[int, float], steps: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Half of a score is for the whole query, half for the step that the tool fits best: each step has a best tool."""
    scores: dict[int, float] = {}
    for step in steps:
        best = max(step.values(), default=1.0)
        for place, score in step.items():
            scores[place] = max(scores.get(place, 0.0), (1 - _WHOLE) * score / best)
    best = max(whole.values(), default=1.0)
    for place, score in whole.items():
        scores[place] = scores.get(place, 0.0) + _WHOLE * score / best
    return scores


# --- the words of a tool ---------------------------------------------------------------------------------------------


def _weigh(tool: Tool, weights: dict[str, float]) -> frozenset[str]:
    """Add the weights of a tool's terms; returns the kinds of action that it stands for."""
    name = tool.name[: _NAME.longest]
    description = (tool.description or "")[: _SENTENCE.longest + _REST.longest]
    sentence = _first_sentence(description)[: _SENTENCE.longest]
    title = tool.title or getattr(tool.annotations, "title", None) or ""
    _add_weights(weights, _NAME, name)
    _add_weights(weights, _TITLE, str(title))
    _add_weights(weights, _SENTENCE, sentence)
    _add_weights(weights, _REST, description[len(sentence) :])
    properties: Any = tool.input_schema.get("properties") if isinstance(tool.input_schema, Mapping) else None
    if isinstance(properties, Mapping):
        arguments = list(cast("Mapping[str, Any]", properties).items())[:_MOST_ARGUMENTS]
        _add_weights(weights, _ARGUMENT_NAMES, " ".join(str(argument)[:64] for argument, _ in arguments))
        _add_weights(weights, _ARGUMENT_TEXTS, " ".join(_argument_text(schema) for _, schema in arguments))
    return _actions_of(name, sentence)


def _argument_text(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    argument = cast("Mapping[str, Any]", schema)
    choices = argument.get("enum")
    words = [str(choice)[:40] for choice in cast("list[Any]", choices)[:10]] if isinstance(choices, list) else []
    return " ".join([str(argument.get("description") or "")[:200], *words])


def _actions_of(name: str, sentence: str) -> frozenset[str]:
    verbs = split_terms(name, keep_stop=True)
    return actions_of(verbs) or actions_of(split_terms(sentence, keep_stop=True)[:2])


def _add_weights(weights: dict[str, float], field: _Field, text: str) -> None:
    terms = split_terms(text[: field.longest])
    if not terms:
        return
    counts: dict[str, int] = {}
    for term in terms:
        counts[term] = counts.get(term, 0) + 1
    norm = 1 - field.dilution + field.dilution * len(terms) / field.usual
    for term, count in counts.items():
        weights[term] = weights.get(term, 0.0) + field.weight * min(count, _MOST_OF_ONE) / norm


def _first_sentence(text: str) -> str:
    text = text.lstrip()
    end = _SENTENCE_END.search(text)
    return text if end is None else text[: end.start()]
