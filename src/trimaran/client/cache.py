"""Results the server allows to keep, for as long as it allows (2026-07-28).

One cache belongs to one client, so to one authorization context: private entries cannot cross. The clock is passed in.
Nothing is refreshed by itself, and what carried a person's answers is never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import msgspec

_MOST: Final = 1000
_MOST_BYTES: Final = 32 * 1024 * 1024  # on the wire; several times that in memory
_LONGEST_MS: Final = 24 * 60 * 60 * 1000

# Which lists a change notification makes stale.
_STALE: Final[dict[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}

_encode = msgspec.json.Encoder(order="sorted").encode


@final
class Cache:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[tuple[str, bytes], tuple[float, Any, int]] = {}
        self._bytes = 0
        self.generation: int = 0
        """Grows with everything that makes entries stale: an answer asked for before must not be kept after."""

    def get(self, method: str, params: Mapping[str, Any]) -> Any:
        """The cached result of this request, or None."""
        if not self._entries:
            return None
        key = (method, _encode(params))
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry[0] <= self._clock():
            self._forget(key)
            return None
        return entry[1]

    def put(
        self,
        method: str,
        params: Mapping[str, Any],
        ttl_ms: int | None,
        value: Any,
        *,
        generation: int | None = None,
        size: int = 0,
    ) -> None:
        """Keep a value for as long as the server says, a day at most.

        Args:
            generation: the generation when it was asked for.
            size: its bytes on the wire.
        """
        if not ttl_ms or ttl_ms < 0 or (generation is not None and generation != self.generation):
            return
        ttl_ms = min(ttl_ms, _LONGEST_MS)
        key = (method, _encode(params))
        if key in self._entries:
            self._forget(key)
        while self._entries and (len(self._entries) >= _MOST or self._bytes + size > _MOST_BYTES):
            self._forget(next(iter(self._entries)))
        self._entries[key] = (self._clock() + ttl_ms / 1000, value, size)
        self._bytes += size

    def _forget(self, key: tuple[str, bytes]) -> None:
        self._bytes -= self._entries.pop(key)[2]

    def hear(self, notification: str, params: Mapping[str, Any]) -> None:
        """Drop the entries that a notification makes stale."""
        if notification == "notifications/resources/updated":
            # It may name a part of what was read, or the whole of it.
            uri = params.get("uri")
            self._drop(lambda method, key: method == "resources/read" and isinstance(uri, str) and _touches(uri, key))
        elif notification in _STALE:
            stale = _STALE[notification]
            self._drop(lambda method, key: method in stale)

    def drop(self, *methods: str) -> None:
        self._drop(lambda method, key: method in methods)

    def clear(self) -> None:
        self.generation += 1
        self._entries.clear()
        self._bytes = 0

    def _drop(self, is_stale: Callable[[str, bytes], bool]) -> None:
        self.generation += 1
        for key in [key for key in self._entries if is_stale(*key)]:
            self._forget(key)


def _touches(uri: str, key: bytes) -> bool:
    read = msgspec.json.decode(key).get("uri", "")
    return is_part_of(uri, read) or is_part_of(read, uri)


def is_part_of(uri: str, whole: str) -> bool:
    """Is this the URI of a resource, or of something inside it?"""
    if not uri.startswith(whole):
        return False
    return len(uri) == len(whole) or whole[-1:] in "/?#" or uri[len(whole)] in "/?#"
