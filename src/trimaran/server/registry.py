"""A registry of one kind of thing: tools, resources, templates, prompts or completions.

Writes are serialised by a lock and then tell the listeners; reads take no lock, because each is a single operation on a
dict, which the interpreter makes atomic: nobody sees half an update (R22). Order is the order of registration; each
entry keeps its place number for life, so a page boundary stays where it was when entries come and go.

Mounting is live: a registry with mounts merges its own entries with those of the mounted registries into one view,
rebuilt when anything below has changed and somebody looks. Each mounted entry passes through the mount's `adapt`, and then
every entry through this registry's own ones: an adapt returns the entry, a changed copy, or None to leave it out. It is
called once per entry. An entry that it refuses is left out, never served unchanged.

No entry hides another. `add`, `mount` and `transform` raise a DeclarationError for a name that is taken. A
name that comes later by itself is left out, and the log says so once; the entry that was registered first stays.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, final

from trimaran.errors import DeclarationError, ProtocolError

_log: Final = logging.getLogger("trimaran.server")
# Kinds that have names, and a remedy for two entries with one. The others have URIs, which no mount changes.
_REMEDIES: Final = {
    "tool": 'mount one with a prefix, server.mount(other, "github"), or rename one, transforms={{{key!r}: {{"name": "..."}}}}',
    "prompt": 'mount one with a prefix, server.mount(other, "github"), or declare one under another name',
}
# Resources keep their URIs where they are mounted, so there is nothing to rename; and the server may be somebody else's.
_ORDER_REMEDY: Final = (
    "a server's own come first, then the server that was mounted first (of an mcp.toml, the one that is written first): "
    "change the order to show the other one, or have clients reach it at its own server (/servers/NAME/mcp of a gateway)"
)


class Entry(Protocol):
    """An entry of a registry."""

    key: str
    place: int
    definition: Any

    def renamed(self, key: str) -> Any: ...


E = TypeVar("E", bound=Entry)
Adapt: TypeAlias = Callable[[E], E | None]
"""The entry to show in place of this one; None to leave it out. A DeclarationError leaves it out too, and is logged."""
_places = itertools.count(1)


@final
class EncodedPage(Generic[E]):
    """A stretch of a listing, and the cursor of the next one."""

    __slots__ = ("entries", "next_cursor")

    def __init__(self, entries: list[E], next_cursor: str | None) -> None:
        self.entries: list[E] = entries
        self.next_cursor: str | None = next_cursor


@final
class _Adapter(Generic[E]):
    """An adapt function that is called once per entry, as long as the entry is there."""

    __slots__ = ("_adapt", "_known", "prefix", "source")

    def __init__(self, adapt: Adapt[E], source: Registry[E], prefix: str = "") -> None:
        self.source = source
        """Where its entries come from: a mounted registry, or the one that adapts its own."""
        self.prefix = prefix
        """All keys begin with it."""
        self._adapt = adapt
        self._known: dict[E, E | str | None] = {}

    def adapt_all(self, entries: Iterable[E]) -> Iterator[tuple[E, E | str | None]]:
        """Each entry with the one to show, None to leave it out, or the reason why it cannot be adapted."""
        known, self._known = self._known, {}
        for entry in entries:
            if entry in known:
                outcome = known[entry]
            else:
                try:
                    outcome = self._adapt(entry)
                except DeclarationError as error:
                    outcome = str(error)
            self._known[entry] = outcome
            yield entry, outcome


@final
class _Source(Generic[E]):
    """Where an entry of a view comes from."""

    __slots__ = ("key", "registry", "text")

    def __init__(self, registry: Registry[E], key: str, text: str) -> None:
        self.registry = registry
        self.key = key
        self.text = text
        """The same in words, for messages."""


@final
class Registry(Generic[E]):
    def __init__(self, kind: str, owner: str = "") -> None:
        self.kind = kind
        self.owner = owner
        """The server whose entries these are, for messages."""
        self._own: dict[str, E] = {}
        self._view: dict[str, E] | None = self._own
        self._mounts: list[_Adapter[E]] = []
        self._transforms: list[_Adapter[E]] = []
        self._awaited: Callable[[], Exception | None] | None = None
        self._sources: dict[str, _Source[E]] = {}
        """The origin of each mounted entry of the present view."""
        self._faults: set[str] = set()
        """The logged problems of the present view."""
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.RLock()
        self._last_place = 0
        self.version: int = 0
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
            before = self._own.get(entry.key)
            entry.place = next(_places) if before is None else before.place

            def undo() -> None:
                if before is None:
                    del self._own[entry.key]
                else:
                    self._own[entry.key] = before

            self._settle()
            self._own[entry.key] = entry
            self._refuse_faults(undo)
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
            if not self._is_merged:
                self._view = self._own
            self._awaited = None
        self._changed()

    def expect_reset(self, why: Callable[[], Exception | None]) -> None:
        """Say that the entries are not known yet, and come by `reset`: the list of a remote server.

        `why` makes the error for those who ask before that, so that what is not known yet never looks like nothing. None: it is
        shown as nothing, since something else says why.
        """
        self._awaited = why

    def check_known(self, key: str | None = None) -> None:
        """Raise if the entries are not known yet, and there is nothing else to show.

        With a key: also if it begins as those of a mounted registry do that is not known yet.
        """
        if self._awaited is not None and not self.view and (error := self._awaited()) is not None:
            raise error
        unknown = [mount for mount in self._mounts if not mount.source.is_known]
        if key is not None:
            for mount in unknown:
                if key.startswith(mount.prefix):
                    mount.source.check_known(key.removeprefix(mount.prefix))
        elif unknown and len(unknown) == len(self._mounts) and not self.view:
            unknown[0].source.check_known()

    @property
    def is_known(self) -> bool:
        """Has everything arrived, here and in all that is mounted here, so that a name that is missing is wrong?"""
        return self._awaited is None and all(mount.source.is_known for mount in self._mounts)

    def mount(self, other: Registry[E], adapt: Adapt[E], prefix: str = "") -> None:
        """Show the entries of another registry too, as `adapt` makes them; `prefix` begins the keys of all of them.

        Raises:
            DeclarationError: two entries would have one name, or `adapt` refuses an entry. Nothing is mounted then.
        """
        with self._lock:
            self._settle()
            self._mounts.append(_Adapter(adapt, other, prefix))
            self._refuse_faults(self._mounts.pop)
        other.watch(self._changed)
        self._changed()

    def unmount(self, other: Registry[E]) -> None:
        """Show the entries of another registry no longer."""
        with self._lock:
            self._mounts = [mount for mount in self._mounts if mount.source is not other]
            if not self._is_merged:
                self._view = self._own
        other.unwatch(self._changed)
        self._changed()

    def check_mount(self, other: Registry[E], adapt: Adapt[E]) -> None:
        """Raise what `mount` would raise, and mount nothing."""
        with self._lock:
            self._settle()
            self._mounts.append(_Adapter(adapt, other))
            try:
                self._refuse_faults(lambda: None)
            finally:
                self._mounts.pop()

    def transform(self, adapt: Adapt[E]) -> None:
        """Show every entry, also a mounted or later one, as `adapt` makes it. The last one added sees what the others made.

        Raises:
            DeclarationError: two entries would have one name, or `adapt` refuses an entry. Nothing changes then.
        """
        with self._lock:
            self._settle()
            self._transforms.append(_Adapter(adapt, self))
            self._refuse_faults(self._transforms.pop)
        self._changed()

    def holds(self, other: Registry[E]) -> bool:
        """Is this the other registry, or has it, or anything mounted in it, the other one mounted?"""
        return self is other or any(mount.source.holds(other) for mount in self._mounts)

    def watch(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change here or in anything mounted here."""
        self._listeners.append(listener)

    def unwatch(self, listener: Callable[[], None]) -> None:
        self._listeners = [known for known in self._listeners if known != listener]

    @property
    def faults(self) -> frozenset[str]:
        """The entries left out of the present view, and why: names that two entries have, changes that do not fit."""
        self._settle()
        return frozenset(self._faults)

    def _changed(self) -> None:
        with self._lock:
            if self._is_merged:
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

    @property
    def _is_merged(self) -> bool:
        return bool(self._mounts or self._transforms)

    def _merge(self) -> dict[str, E]:
        with self._lock:
            view, self._sources, faults = self._merged()
            level = logging.ERROR if self.kind in _REMEDIES else logging.WARNING
            for fault in faults:
                if fault not in self._faults:
                    _log.log(level, "left out: %s", fault)
            self._faults = set(faults)
            self._view = view
            return view

    def source_of(self, key: str) -> tuple[Registry[E], str] | None:
        """The mounted registry that an entry comes from, and its key there; None for an entry of this registry itself."""
        self._settle()
        source = self._sources.get(key)
        return None if source is None or source.registry is self else (source.registry, source.key)

    def _merged(self) -> tuple[dict[str, E], dict[str, _Source[E]], list[str]]:
        """The view, its sources, and what is wrong: names that two entries have, and entries that an adapt refuses."""
        faults: list[str] = []
        origins: list[tuple[E, _Source[E]]] = [(entry, self._origin(entry, self)) for entry in self._own.values()]
        for mount in self._mounts:
            for entry, outcome in mount.adapt_all(tuple(mount.source.view.values())):
                origin = self._origin(entry, mount.source)
                if isinstance(outcome, str):
                    faults.append(f"{origin.text}: {outcome}")
                elif outcome is not None:
                    origins.append((outcome, origin))
        for transform in self._transforms:
            remaining: list[tuple[E, _Source[E]]] = []
            outcomes = transform.adapt_all(entry for entry, _ in origins)
            for (_, outcome), (_, origin) in zip(outcomes, origins, strict=True):
                if isinstance(outcome, str):
                    faults.append(f"{origin.text}: {outcome}")
                elif outcome is not None:
                    remaining.append((outcome, origin))
            origins = remaining
        view: dict[str, E] = {}
        sources: dict[str, _Source[E]] = {}
        if self.kind in _REMEDIES:  # of resources, those of the server itself win, then the order of mounting
            origins.sort(key=lambda pair: pair[0].place)
        for entry, origin in origins:
            if entry.key not in view:
                view[entry.key], sources[entry.key] = entry, origin
            elif self.kind != "completion":  # its prompt or template has the same fault
                faults.append(self._collision(entry.key, sources[entry.key].text, origin.text))
        return view, sources, faults

    def _origin(self, entry: E, source: Registry[E]) -> _Source[E]:
        owner = f" of the server {source.owner!r}" if source.owner else ""
        return _Source(source, entry.key, f"the {self.kind} {entry.key!r}{owner}")

    def _collision(self, key: str, first: str, second: str) -> str:
        remedy = _REMEDIES.get(self.kind, _ORDER_REMEDY).format(key=key)
        return f"{second} has the name {key!r}, and so has {first}; {remedy}"

    def _settle(self) -> None:
        """Log what went wrong before, so that whoever changes something is refused for that change alone."""
        if self._view is None:
            self._merge()

    def _refuse_faults(self, undo: Callable[[], object]) -> None:
        """Undo a change and raise, if it brings something wrong."""
        if not self._is_merged or self.kind not in _REMEDIES:
            return
        _, _, faults = self._merged()
        fault = next((fault for fault in faults if fault not in self._faults), None)
        if fault is not None:
            undo()
            raise DeclarationError(fault)

    def get(self, key: str) -> E | None:
        return self.view.get(key)

    def __len__(self) -> int:
        return len(self.view)

    def __bool__(self) -> bool:
        return bool(self.view)

    def entries(self) -> list[E]:
        """A consistent snapshot, in order of registration."""
        entries: Iterable[E] = tuple(self.view.values())
        return sorted(entries, key=_place) if self._is_merged else list(entries)

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
        # A registry that is mounted twice gives two entries with one place, which a cursor cannot tell apart.
        while 0 < size < len(entries) and entries[size].place == entries[size - 1].place:
            size += 1
        page = entries[:size]
        more = len(entries) > size
        return EncodedPage(page, f"{self.kind.replace(' ', '-')}.{page[-1].place:x}" if more else None)

    def _highest(self) -> int:
        return max(self._last_place, *(mount.source._highest() for mount in self._mounts), 0)

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
