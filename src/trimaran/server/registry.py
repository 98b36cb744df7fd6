"""A registry of one kind of thing: tools, resources, templates, prompts or completions.

Writes are serialised by a lock and then tell the listeners; reads take no lock, because each is a single operation on a
dict, which the interpreter makes atomic: nobody sees half an update (R22). Order is the order of registration; each
entry keeps its place number for life, so a page boundary stays where it was when entries come and go.

Mounting is live: a registry with mounts merges its own entries with those of the mounted registries into one view,
rebuilt when anything below has changed and somebody looks.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar, final

from trimaran.errors import DeclarationError, ProtocolError

__all__ = ["EncodedPage", "Entry", "Registry"]


class Entry(Protocol):
    """What a registry holds."""

    key: str
    place: int
    definition: Any

    def renamed(self, key: str) -> Any: ...


E = TypeVar("E", bound=Entry)
_places = itertools.count(1)


@final
class EncodedPage(Generic[E]):
    """A stretch of a listing, and the cursor of the next one."""

    __slots__ = ("entries", "next_cursor")

    def __init__(self, entries: list[E], next_cursor: str | None) -> None:
        self.entries = entries
        self.next_cursor = next_cursor


@final
class Registry(Generic[E]):
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._own: dict[str, E] = {}
        self._view: dict[str, E] | None = self._own
        self._mounts: list[tuple[Registry[E], Callable[[str], str]]] = []
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.RLock()
        self._last_place = 0
        self.version = 0
        """Grows with every change."""
        self._guarded = (-1, False)

    def add(self, entry: E, *, replace: bool = False) -> E:
        with self._lock:
            if not replace and entry.key in self._own:
                named = entry.key.replace("\0", " ")
                remover = "remove_resource" if self.kind == "resource template" else f"remove_{self.kind}"
                raise DeclarationError(
                    f"there is already a {self.kind} {named!r}; give this one another name, or {remover}(...) that one first"
                )
            entry.place = self._own[entry.key].place if entry.key in self._own else next(_places)
            self._own[entry.key] = entry
            self._last_place = max(self._last_place, entry.place)
        self._changed()
        return entry

    def remove(self, key: str) -> E:
        with self._lock:
            entry = self._own.pop(key, None)
        if entry is None:
            raise DeclarationError(f"there is no {self.kind} {key!r} to remove")
        self._changed()
        return entry

    def reset(self, entries: Iterable[E]) -> None:
        """Hold these entries and no others. One that was there under the same key gives its place to its successor."""
        with self._lock:
            before, self._own = self._own, {}
            for entry in entries:
                entry.place = before[entry.key].place if entry.key in before else next(_places)
                self._own[entry.key] = entry
                self._last_place = max(self._last_place, entry.place)
            if not self._mounts:
                self._view = self._own
        self._changed()

    def mount(self, other: Registry[E], rename: Callable[[str], str]) -> None:
        with self._lock:
            self._mounts.append((other, rename))
        other.watch(self._changed)
        self._changed()

    def holds(self, other: Registry[E]) -> bool:
        """Is this the other registry, or has it, or anything mounted in it, the other one mounted?"""
        return self is other or any(inner.holds(other) for inner, _ in self._mounts)

    def watch(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change here or in anything mounted here."""
        self._listeners.append(listener)

    def _changed(self) -> None:
        with self._lock:
            if self._mounts:
                self._view = None
            # Last: whoever sees the new number sees the new view.
            self.version += 1
        for listener in self._listeners:
            listener()

    @property
    def view(self) -> dict[str, E]:
        """All entries by key, mounted ones included. Do not change it."""
        view = self._view
        return self._merge() if view is None else view

    def _merge(self) -> dict[str, E]:
        with self._lock:
            merged = self._own.copy()
            for other, rename in self._mounts:
                for key, entry in tuple(other.view.items()):
                    name = rename(key)
                    # What the outer server declares itself wins; then the order of mounting.
                    merged.setdefault(name, entry if name == key else entry.renamed(name))
            self._view = merged
            return merged

    def get(self, key: str) -> E | None:
        return self.view.get(key)

    def __len__(self) -> int:
        return len(self.view)

    def __bool__(self) -> bool:
        return bool(self.view)

    def entries(self) -> list[E]:
        """A consistent snapshot, in order of registration."""
        entries: Iterable[E] = tuple(self.view.values())
        return sorted(entries, key=_place) if self._mounts else list(entries)

    @property
    def is_guarded(self) -> bool:
        """Does any entry ask who is calling: by its scopes, or by whom it is visible to?"""
        version, is_guarded = self._guarded
        if version != (now := self.version):
            is_guarded = any(getattr(e, "scopes", ()) or getattr(e, "visible_to", None) for e in self.entries())
            self._guarded = (now, is_guarded)
        return is_guarded

    def page(self, cursor: str | None, size: int, entries: list[E] | None = None) -> EncodedPage[E]:
        """The entries after a cursor; -32602 for a cursor this registry never gave out.

        `entries` is what there is to show, in order, where that is not everything.
        """
        after = self._read_cursor(cursor)
        entries = self.entries() if entries is None else entries
        if after:
            entries = [e for e in entries if e.place > after]
        page = entries[:size]
        more = len(entries) > size
        return EncodedPage(page, f"{self.kind.replace(' ', '-')}.{page[-1].place:x}" if more else None)

    def _highest(self) -> int:
        return max(self._last_place, *(other._highest() for other, _ in self._mounts), 0)

    def _read_cursor(self, cursor: str | None) -> int:
        if cursor is None:
            return 0
        kind, _, place = cursor.rpartition(".")
        try:
            after = int(place, 16)
            # Only what `page` could have written: an entry may be gone by now, but it had this place.
            if kind != self.kind.replace(" ", "-") or f"{after:x}" != place or not 0 < after <= self._highest():
                raise ValueError
        except ValueError:
            raise ProtocolError.invalid_params(
                f"unknown cursor {cursor[:80]!r}: send the nextCursor of the page before, or none to start over"
            ) from None
        return after


def _place(entry: Any) -> int:
    return entry.place
