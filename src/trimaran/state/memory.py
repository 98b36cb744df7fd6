"""The store of one process: dictionaries, gone with it."""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Self, TypeVar, final

from msgspec.structs import replace

from .bus import StoreBus, wait_for_events
from .byte_budget import ByteBudget
from .contracts import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    BusMessage,
    EventsPage,
    EventWrite,
    SessionRecord,
    StoredEvent,
    StoreFull,
    StoreHealth,
    TaskRecord,
    TasksPage,
    read_cursor,
)
from .records import (
    event_topic,
    events_page,
    id_taken,
    new_task,
    now_ms,
    store_closed,
    tasks_page,
    too_many,
    updated_task,
)

T = TypeVar("T")

# Bytes of all events, and again of all tasks. A process that keeps more of either needs a database.
_MAX_HELD_BYTES: Final = 256 * 1024 * 1024
# Expired entries looked at with each write: more than a write adds, so they never pile up.
_PURGED: Final = 4


# --- entries that expire -----------------------------------------------------------------------------------


@final
class _Expiring(Generic[T]):
    """A dictionary whose entries expire at a time, in milliseconds."""

    def __init__(self, clock: Callable[[], int], on_end: Callable[[str, T], None] | None = None) -> None:
        self._clock = clock
        self._on_end = on_end
        self._live: dict[str, tuple[T, int]] = {}
        self._ends: list[tuple[int, str]] = []

    def __len__(self) -> int:
        self.purge(len(self._live))
        return len(self._live)

    @property
    def size(self) -> int:
        """How many entries there are, expired ones included."""
        return len(self._live)

    def get(self, key: str) -> T | None:
        entry = self._live.get(key)
        return None if entry is None or entry[1] <= self._clock() else entry[0]

    def put(self, key: str, value: T, ends: int) -> None:
        entry = self._live.get(key)
        self._live[key] = (value, ends)
        # A prolonged entry is pushed again when its old end is reached.
        if entry is None or ends < entry[1]:
            heapq.heappush(self._ends, (ends, key))
        self.purge(_PURGED)

    def prolong(self, key: str, ends: int) -> bool:
        value = self.get(key)
        if value is None:
            return False
        self.put(key, value, ends)
        return True

    def end_of(self, key: str) -> int:
        return self._live[key][1]

    def pop(self, key: str) -> T | None:
        value = self.get(key)
        entry = self._live.pop(key, None)
        if entry is not None and self._on_end is not None:
            self._on_end(key, entry[0])
        if len(self._ends) > 2 * len(self._live) + 64:  # most belong to entries that are gone
            self._ends = [(ends, key) for key, (_, ends) in self._live.items()]
            heapq.heapify(self._ends)
        return value

    def purge(self, most: int) -> list[str]:
        """Drop up to `most` expired entries, and return their keys."""
        now = self._clock()
        gone: list[str] = []
        while self._ends and self._ends[0][0] <= now and len(gone) < most:
            ends, key = heapq.heappop(self._ends)
            entry = self._live.get(key)
            if entry is None:
                continue
            if entry[1] <= now:
                self.pop(key)
                gone.append(key)
            elif entry[1] > ends:
                heapq.heappush(self._ends, (entry[1], key))
        return gone


# --- the four --------------------------------------------------------------------------------------------------------


@final
class _Core:
    """The clock, the limits and the closed state of all four parts."""

    def __init__(self, max_records: int, max_events: int, max_event_bytes: int, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.max_events = max_events
        self.max_event_bytes = max_event_bytes
        self._max_records = max_records
        self.is_closed = False

    def after(self, seconds: float) -> int:
        return self.clock() + int(seconds * 1000)

    def require_open(self) -> None:
        if self.is_closed:
            raise store_closed()

    def require_room(self, count: int) -> None:
        if count >= self._max_records:
            raise StoreFull(
                f"the store in memory holds {count} records, the most it may: use a database, store='redis://...'",
                limit=self._max_records,
            )


@final
class _Sessions:
    def __init__(self, core: _Core) -> None:
        self._core = core
        self._live: _Expiring[SessionRecord] = _Expiring(core.clock)

    async def create(self, record: SessionRecord, *, ttl: float, most: int | None = None) -> SessionRecord:
        self._core.require_open()
        if self._live.get(record.id) is not None:
            raise id_taken("session")
        if most is not None and self._live.size >= most and len(self._live) >= most:
            raise too_many("sessions", most)
        self._core.require_room(self._live.size)
        new = replace(record, stamp=1)
        self._live.put(record.id, new, self._core.after(ttl))
        return new

    async def get(self, id: str) -> SessionRecord | None:
        self._core.require_open()
        return self._live.get(id)

    async def touch(self, id: str, *, ttl: float) -> bool:
        self._core.require_open()
        return self._live.prolong(id, self._core.after(ttl))

    async def put(self, record: SessionRecord, *, ttl: float | None = None) -> SessionRecord | None:
        self._core.require_open()
        stored = self._live.get(record.id)
        if stored is None or stored.stamp != record.stamp:
            return None
        updated = replace(record, stamp=record.stamp + 1)
        self._live.put(record.id, updated, self._live.end_of(record.id) if ttl is None else self._core.after(ttl))
        return updated

    async def delete(self, id: str) -> bool:
        self._core.require_open()
        return self._live.pop(id) is not None

    async def count(self) -> int:
        self._core.require_open()
        return len(self._live)


@final
class _Log:
    __slots__ = ("__weakref__", "_max_bytes", "_size", "events", "held_bytes", "is_ended", "last")

    def __init__(self, size: int, max_bytes: int) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self.events: deque[StoredEvent] = deque()
        self.held_bytes = 0
        self.last = 0
        self.is_ended = False

    def append(self, number: int, data: bytes) -> None:
        self.last = number
        self.events.append(StoredEvent(number, bytes(data)))
        self.held_bytes += len(data)
        while len(self.events) > self._size or (self.held_bytes > self._max_bytes and len(self.events) > 1):
            self._drop()

    def halve(self) -> None:
        """Drop the older half of the bytes."""
        most = self.held_bytes // 2
        while self.events and self.held_bytes > most:
            self._drop()

    def _drop(self) -> None:
        self.held_bytes -= len(self.events.popleft().data)


@final
class _Events:
    def __init__(self, core: _Core, bus: _Bus) -> None:
        self._core = core
        self._bus = bus
        self._streams: dict[str, set[str]] = {}
        self._logs: _Expiring[_Log] = _Expiring(core.clock, self._forget)
        self._budget = ByteBudget(_MAX_HELD_BYTES)

    def _forget(self, key: str, _log: _Log) -> None:
        session, _, stream = key.partition("\0")
        streams = self._streams.get(session)
        if streams is not None:
            streams.discard(stream)
            if not streams:
                del self._streams[session]

    def _open(self, session: str, stream: str, ttl: float) -> _Log:
        self._core.require_open()
        key = f"{session}\0{stream}"
        log = self._logs.get(key)
        if log is None:
            self._logs.pop(key)
            self._core.require_room(self._logs.size)
            log = _Log(self._core.max_events, self._core.max_event_bytes)
            self._budget.join(log)
            self._streams.setdefault(session, set()).add(stream)
        self._logs.put(key, log, self._core.after(ttl))
        return log

    async def append(self, session: str, stream: str, data: bytes, *, ttl: float) -> int:
        log = self._open(session, stream, ttl)
        log.append(log.last + 1, data)
        self._budget.grew(len(data))
        self._bus.tell(event_topic(session, stream))
        return log.last

    async def end(self, session: str, stream: str, *, ttl: float) -> None:
        self._open(session, stream, ttl).is_ended = True
        self._bus.tell(event_topic(session, stream))

    async def write(self, writes: Sequence[EventWrite]) -> None:
        self._core.require_open()
        names = {f"{write.session}\0{write.stream}" for write in writes}
        new = sum(self._logs.get(name) is None for name in names)
        if new:
            self._core.require_room(self._logs.size + new - 1)  # before the first write
        for write in writes:
            log = self._open(write.session, write.stream, write.ttl)
            number = write.number or log.last + 1
            if write.data is None:
                log.is_ended = True
            elif number > log.last:
                log.append(number, write.data)
                self._budget.grew(len(write.data))
            self._bus.tell(event_topic(write.session, write.stream))

    async def read(self, session: str, stream: str, after: int, *, limit: int = 100) -> EventsPage:
        self._core.require_open()
        log = self._logs.get(f"{session}\0{stream}")
        if log is None:
            return events_page([], 0, False, after)
        events: list[StoredEvent] = []
        for event in log.events:
            if event.number > after:
                if len(events) == limit:
                    break
                events.append(event)
        return events_page(events, log.last, log.is_ended, after)

    async def wait(self, session: str, stream: str, after: int, *, timeout: float) -> bool:
        return await wait_for_events(self, self._bus.board, session, stream, after, timeout)

    async def delete(self, session: str) -> None:
        self._core.require_open()
        for stream in tuple(self._streams.get(session, ())):
            self._logs.pop(f"{session}\0{stream}")


@final
class _Tasks:
    def __init__(self, core: _Core) -> None:
        self._core = core
        self._live: _Expiring[TaskRecord] = _Expiring(core.clock, self._forget)
        self._owned: dict[str, list[tuple[int, str]]] = {}
        """By owner: creation time and id, in order."""
        self._bytes = 0
        self._working: dict[str, None] = {}

    def _forget(self, id: str, record: TaskRecord) -> None:
        self._bytes -= _size_of(record)
        self._working.pop(id, None)
        owned = self._owned.get(record.owner, [])
        place = bisect_right(owned, (record.created_ms, id)) - 1
        if place >= 0 and owned[place] == (record.created_ms, id):
            del owned[place]
        if not owned:
            self._owned.pop(record.owner, None)

    def _keep(self, record: TaskRecord, before: TaskRecord | None = None) -> TaskRecord:
        self._bytes += _size_of(record) - (_size_of(before) if before is not None else 0)
        self._live.put(record.id, record, record.expires_ms)
        if record.status == "working":
            self._working.setdefault(record.id)
        else:
            self._working.pop(record.id, None)
        return record

    async def create(self, record: TaskRecord, *, most: int | None = None) -> TaskRecord:
        self._core.require_open()
        if self._live.get(record.id) is not None:
            raise id_taken("task")
        self._live.pop(record.id)
        if (
            most is not None
            and len(self._owned.get(record.owner, ())) >= most
            and await self.count(record.owner) >= most
        ):
            raise too_many("tasks of this caller", most)
        self._core.require_room(self._live.size)
        if self._bytes >= _MAX_HELD_BYTES:
            self._live.purge(self._live.size)
        if self._bytes >= _MAX_HELD_BYTES:
            raise StoreFull(
                f"the tasks in memory take {self._bytes >> 20} MiB, the most they may: use a database, store='redis://...'",
                limit=_MAX_HELD_BYTES,
            )
        insort(self._owned.setdefault(record.owner, []), (record.created_ms, record.id))
        return self._keep(new_task(record))

    async def get(self, id: str) -> TaskRecord | None:
        self._core.require_open()
        return self._live.get(id)

    async def update(self, record: TaskRecord) -> TaskRecord | None:
        self._core.require_open()
        stored = self._live.get(record.id)
        updated = updated_task(record, stored)
        return updated and self._keep(updated, stored)

    async def claim(self, id: str, worker: str, *, seconds: float) -> TaskRecord | None:
        self._core.require_open()
        stored = self._live.get(id)
        if stored is None or stored.is_terminal or stored.lease_ms > self._core.clock():
            return None
        return self._keep(
            replace(stored, stamp=stored.stamp + 1, worker=worker, lease_ms=self._core.after(seconds)), stored
        )

    async def renew(self, id: str, worker: str, *, seconds: float) -> bool:
        stored = self._claimed_by(id, worker)
        if stored is not None:
            self._keep(replace(stored, lease_ms=self._core.after(seconds)), stored)
        return stored is not None

    async def release(self, id: str, worker: str) -> bool:
        stored = self._claimed_by(id, worker)
        if stored is not None:
            self._keep(replace(stored, worker="", lease_ms=0), stored)
        return stored is not None

    def _claimed_by(self, id: str, worker: str) -> TaskRecord | None:
        self._core.require_open()
        stored = self._live.get(id)
        return stored if stored is not None and worker and stored.worker == worker and not stored.is_terminal else None

    async def delete(self, id: str) -> bool:
        self._core.require_open()
        return self._live.pop(id) is not None

    async def list(self, owner: str, *, cursor: str | None = None, limit: int = 100) -> TasksPage:
        self._core.require_open()
        owned = self._owned.get(owner, [])
        records: list[TaskRecord] = []
        place = bisect_right(owned, read_cursor(cursor))
        while place < len(owned) and len(records) <= limit:
            record = self._live.get(owned[place][1])
            place += 1
            if record is not None:
                records.append(record)
        return tasks_page(records, limit)

    async def count(self, owner: str | None = None) -> int:
        self._core.require_open()
        if owner is None:
            return len(self._live)
        return sum(self._live.get(id) is not None for _, id in self._owned.get(owner, ()))

    async def due(self, *, limit: int = 100) -> list[TaskRecord]:
        self._core.require_open()
        now = self._core.clock()
        records: list[TaskRecord] = []
        for id in self._working:
            record = self._live.get(id)
            if record is not None and record.lease_ms <= now:
                records.append(record)
                if len(records) >= limit:
                    break
        return records

    async def sweep(self, *, limit: int = 1000) -> list[str]:
        self._core.require_open()
        return self._live.purge(limit)


def _size_of(record: TaskRecord) -> int:
    parts = (record.arguments, record.result, record.error, record.inputs, record.journal, record.extra)
    return 500 + sum(len(part) for part in parts if part)


@final
class _Bus(StoreBus):
    def __init__(self, core: _Core) -> None:
        super().__init__()
        self._core = core

    async def _open_topic(self, topic: str) -> None:
        self._core.require_open()

    def _close_topic(self, topic: str) -> None:
        pass

    def tell(self, topic: str) -> None:
        if topic in self.board:
            self.board.deliver(BusMessage(topic, b"", self.name))

    async def _send(self, topic: str, data: bytes) -> int:
        self._core.require_open()
        return self.board.deliver(BusMessage(topic, bytes(data), self.name))


@final
class MemoryStore:
    """A store for one process.

    Args:
        max_records: Records of each kind; one more is StoreFull.
        max_events: Events kept of each stream; the oldest go first.
        max_event_bytes: Bytes kept of each stream; the oldest events go first, the newest always stays.
    """

    is_shared = False
    is_durable = False

    def __init__(
        self,
        *,
        max_records: int = 1_000_000,
        max_events: int = MAX_EVENTS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._core = _Core(max_records, max_events, max_event_bytes, clock)
        self.bus: Final = _Bus(self._core)
        self.sessions: Final = _Sessions(self._core)
        self.events: Final = _Events(self._core, self.bus)
        self.tasks: Final = _Tasks(self._core)

    async def start(self) -> None:
        self._core.require_open()

    async def close(self) -> None:
        if not self._core.is_closed:
            self._core.is_closed = True
            await self.bus.close()

    async def check(self) -> StoreHealth:
        return StoreHealth(not self._core.is_closed, 0.0, str(store_closed()) if self._core.is_closed else "")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def __repr__(self) -> str:
        return "MemoryStore()"
