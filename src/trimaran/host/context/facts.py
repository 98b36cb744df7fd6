"""Facts about definitions, remembered by their content: tokens, findings.

A catalog changes by a few tools at a time, and what thousands of others cost and say stays true. So facts belong to a
definition, not to a catalog: another host, server or name needs no care, and nothing is ever out of date.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import msgspec

from trimaran.types import Tool

if TYPE_CHECKING:
    from .detail import Detail

T = TypeVar("T")

_MOST: Final = 20_000  # definitions; about 1 KiB each


@final
class DefinitionFacts:
    """Facts about definitions. Beyond 20,000 the first to come is the first to go."""

    def __init__(self) -> None:
        self._facts: dict[bytes, dict[Hashable, Any]] = {}
        self.missed: tuple[int, dict[int, bool]] = (0, {})
        """A catalog, and whether a search misses the tool at each place of it: that depends on all tools together."""

    def get(self, digest: bytes | None, name: Hashable, find: Callable[[], T]) -> T:
        """A fact; it is found out the first time. Without a digest it is found out every time."""
        if digest is None:
            return find()
        facts = self._facts.get(digest)
        if facts is None:
            while len(self._facts) >= _MOST:
                self._facts.pop(next(iter(self._facts)), None)
            facts = self._facts[digest] = {}
        if name not in facts:
            facts[name] = find()
        return facts[name]


def digest_of(tool: Tool) -> bytes | None:
    """The digest of a definition under its name; None of one that is no JSON."""
    try:
        return hashlib.blake2b(msgspec.json.encode(tool), digest_size=16).digest()
    except (TypeError, ValueError, RecursionError, OverflowError):
        return None


def cost_in(format: str, options: Mapping[str, Any], detail: Detail) -> Hashable:
    """The name of a fact: the tokens of a definition in this format."""
    return "cost", format, repr(sorted(options.items())), detail
