"""Writes the events of sessions to the store: in the background, in order, and again until it has worked.

A stream goes straight to its connection. A copy goes to the store, so that any process can go on with the stream. All
sessions of a process share one `EventWriter`: while the store is busy with a batch, the next one gathers. The events of a
thousand calls are a few commands to the store.

Nobody waits for the writer, except the end of the process for a moment. A client may come back for a stream without a
stored event: its name says which process it belongs to, and which request it answers.

Each event of a call has a number, so a batch of unknown fate is written again, and nothing is stored twice. Events of a
session's own stream have no number and may be stored twice. They have a mark, by which readers skip the second one.

A failed batch is tried again as soon as the store accepts anything, and then in smaller ones. So an event that no store
accepts ends up alone, and is left out after a few attempts: it does not delay the others. If a stream is incomplete,
only its last event stays, which is the answer to its call.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, final

from trimaran.errors import Error
from trimaran.fleet import Fleet
from trimaran.server.handlers import logger
from trimaran.state.byte_budget import ByteBudget
from trimaran.state.contracts import EventWrite, StoreClosed, StoreUnavailable

from .resumable_streams import STANDALONE

# Seconds that the store keeps the stream of a call: while it is open, and after its end.
_OPEN_SECONDS: Final = 3600.0
_ENDED_SECONDS: Final = 120.0
_DROPPED_SECONDS: Final = 0.1
_LEAVE_SECONDS: Final = 2.0
# One batch: a few milliseconds of a store's work.
_BATCH: Final = 512
_BATCH_BYTES: Final = 1 << 20
# Attempts for an event that fails alone on a store that accepts others.
_MOST_FAILURES: Final = 3
# Any store accepts it, and no reader asks for it.
_PROBE: Final = EventWrite("~probe", "probe", None, 1.0)


@final
class EventWriter:
    """Writes for all sessions of a process.

    Args:
        ttl: Seconds that a session's own stream is kept.
        max_bytes: Limit for all sessions together: bytes that wait to be written, and again bytes of ended streams in the store.
    """

    def __init__(self, fleet: Fleet, ttl: float, max_bytes: int) -> None:
        self.ttl: Final = ttl
        self.waiting: Final = ByteBudget(max_bytes)
        """Bytes of all sessions that wait to be written."""
        self.stored: Final = ByteBudget(max_bytes)
        """Bytes of all sessions in streams that have ended."""
        self._fleet = fleet
        self._due: dict[SessionEvents, None] = {}
        """Sessions with something to write; the one that waits longest comes first."""
        self._most = _BATCH
        self._failures = 0
        """In a row."""
        self._left_out = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The name of this process; every start has another."""
        return self._fleet.name

    def add(self, session_events: SessionEvents) -> None:
        self._due[session_events] = None
        if self._task is None:
            self._task = self._fleet.spawn(self._pump())

    async def flush(self) -> None:
        """Wait for the queue, but not for long."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_LEAVE_SECONDS)

    async def _pump(self) -> None:
        try:
            while batch := self._next():
                try:
                    await self._write(batch)
                except StoreClosed:
                    return
                except StoreUnavailable as error:
                    self._due |= {item.session_events: None for item in batch if item.session_events.queue}
                    self._failures += 1
                    if self._failures > 1:  # once is nothing, as a rule a store that was away
                        self._most = max(1, len(batch) // 2)
                    if not await self._is_back():
                        return
                    if len(batch) == 1:
                        self._suspect(batch[0], error)
                else:
                    self._failures = 0
                    self._most = min(_BATCH, 2 * self._most)
        finally:
            self._task = None

    def _next(self) -> list[_Item]:
        """The next batch: events of each session in turn, as far as they fit."""
        batch: list[_Item] = []
        size = 0
        for session_events in tuple(self._due):
            has_begun = False
            for item in session_events.queue:
                size += len(item.write.data or b"")
                if batch and (len(batch) >= self._most or size > _BATCH_BYTES):
                    if has_begun:  # behind the others; otherwise it comes first in the next batch, where anything fits
                        del self._due[session_events]
                        self._due[session_events] = None
                    return batch
                has_begun = True
                batch.append(item)
            del self._due[session_events]
        return batch

    async def _write(self, batch: list[_Item]) -> None:
        try:
            await self._fleet.store.events.write([item.write for item in batch])
        except StoreUnavailable:
            raise
        except Exception:
            for item in batch:  # none was accepted, perhaps because of a single one
                await self._write_one(item)
        else:
            for item in batch:
                item.session_events.wrote(item)

    async def _write_one(self, item: _Item) -> None:
        try:
            if not item.is_dropped:
                await self._fleet.store.events.write([item.write])
        except StoreUnavailable:
            raise
        except Exception as error:
            self._leave_out(item, error)
        else:
            item.session_events.wrote(item)

    async def _is_back(self) -> bool:
        """Wait until the store accepts anything; False if it is closed."""
        pause = 0.05
        while True:
            await asyncio.sleep(pause)
            try:
                await self._fleet.store.events.write([_PROBE])
            except StoreClosed:
                return False
            except StoreUnavailable as error:
                pause = max(0.05, error.retry_after)
            except Exception:
                return True  # perhaps full, but not away
            else:
                return True

    def _suspect(self, item: _Item, error: Exception) -> None:
        """Count the failure of a single event on a store that works."""
        item.failures += 1
        if item.failures >= _MOST_FAILURES and not item.is_dropped:
            self._leave_out(item, error)

    def _leave_out(self, item: _Item, error: Exception) -> None:
        self._left_out += 1
        if self._left_out & (self._left_out - 1) == 0:  # a full store must not fill the log
            logger.warning(
                "an event of a session could not be stored for a client that reconnects: %s (%d so far)",
                error if isinstance(error, Error) else f"{type(error).__name__}: {error}",
                self._left_out,
            )
        item.session_events.refused(item)


@final
class SessionEvents:
    """The events of one session, until the store has them.

    Args:
        most: Events that may wait, and that the store keeps of each stream. Beyond that the oldest are dropped.
        max_bytes: Bytes that wait; and again bytes of ended streams in the store.
    """

    def __init__(self, event_writer: EventWriter, session: str, most: int, max_bytes: int) -> None:
        self.name: Final = event_writer.name
        self.queue: deque[_Item] = deque()
        """Events that may not be stored yet."""
        self._event_writer = event_writer
        self._session = session
        self._most = most
        self._max_bytes = max_bytes
        self.held_bytes: int = 0
        """The size of the queue."""
        self._sizes: dict[str, int] = {}
        """Bytes of each open stream."""
        self._stored = _Stored(max_bytes, self._shorten)
        event_writer.waiting.join(self)
        event_writer.stored.join(self._stored)
        self._broken: dict[str, EventWrite | None] = {}
        """The last event of each open stream that is incomplete in the store."""

    # --- new events

    def appended(self, stream: str, number: int, data: bytes) -> None:
        self._sizes[stream] = self._sizes.get(stream, 0) + len(data)
        self._write(EventWrite(self._session, stream, data, _OPEN_SECONDS, number))

    def announced(self, data: bytes) -> None:
        """Add to the session's own stream, as any process may."""
        self._write(EventWrite(self._session, STANDALONE, data, self._event_writer.ttl))

    def ended(self, stream: str) -> None:
        last = self._broken.pop(stream, None)
        if last is not None:
            self._write(last)
        self._write(EventWrite(self._session, stream, None, _ENDED_SECONDS))
        size = min(self._sizes.pop(stream, 0), self._max_bytes)
        if len(self._sizes) > 4 * self._most:  # streams that other processes continue
            self._sizes.clear()
        self._stored.add(stream, size)
        self._event_writer.stored.grew(size)

    def _shorten(self, stream: str) -> None:
        """Drop an ended stream soon, to make room for later ones."""
        self._write(EventWrite(self._session, stream, None, _DROPPED_SECONDS))

    def has_more(self, stream: str) -> bool:
        """Whether an event of this stream waits to be written."""
        return any(item.write.stream == stream for item in self.queue)

    # --- the queue

    def _write(self, write: EventWrite) -> None:
        size = len(write.data or b"")
        while self.queue and (len(self.queue) > self._most or self.held_bytes + size > self._max_bytes):
            self._make_room()
        if write.stream in self._broken:
            self._broken[write.stream] = write
        else:
            self.queue.append(_Item(self, write))
            self.held_bytes += size
            self._event_writer.add(self)
            self._event_writer.waiting.grew(size)

    def halve(self) -> None:
        """Drop the older half of the queue, so that all sessions fit together."""
        most = self.held_bytes // 2
        while self.queue and self.held_bytes > most:
            self._make_room()

    def _make_room(self) -> None:
        oldest = self.queue[0]
        if oldest.write.number:
            self.give_up(oldest.write.stream)
        if self.queue and self.queue[0] is oldest:
            self._take_first().is_dropped = True

    def _take_first(self) -> _Item:
        item = self.queue.popleft()
        self.held_bytes -= len(item.write.data or b"")
        return item

    def give_up(self, stream: str) -> None:
        """Keep only the last event of an incomplete stream."""
        items = [item for item in self.queue if item.write.stream == stream]
        events = [item for item in items if item.write.data is not None]
        last = events[-1] if events else None
        has_ended = len(events) < len(items)
        for item in events:
            item.is_dropped = not (has_ended and item is last)
        self.queue = deque(item for item in self.queue if not item.is_dropped)
        self.held_bytes = sum(len(item.write.data or b"") for item in self.queue)
        if not has_ended:
            self._broken[stream] = self._broken.get(stream) if last is None else last.write

    def wrote(self, item: _Item) -> None:
        if self.queue and self.queue[0] is item:
            self._take_first()

    def refused(self, item: _Item) -> None:
        """Drop an event that no store accepts."""
        self.wrote(item)
        item.is_dropped = True
        if item.write.number:
            self.give_up(item.write.stream)


@final
class _Stored:
    """The ended streams of a session that are still in the store, the oldest first.

    A stream stays for a while after its end, or until later streams need its room.
    """

    def __init__(self, max_bytes: int, drop: Callable[[str], None]) -> None:
        self._max_bytes = max_bytes
        self._drop = drop
        self._streams: deque[tuple[str, int, float]] = deque()
        self.held_bytes = 0

    def add(self, stream: str, size: int) -> None:
        now = time.monotonic()
        while self._streams and self._streams[0][2] <= now:
            self.held_bytes -= self._streams.popleft()[1]
        self._streams.append((stream, size, now + _ENDED_SECONDS))
        self.held_bytes += size
        while self.held_bytes > self._max_bytes and len(self._streams) > 1:
            self._drop_oldest()

    def halve(self) -> None:
        most = self.held_bytes // 2
        while self._streams and self.held_bytes > most:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        stream, size, _ = self._streams.popleft()
        self.held_bytes -= size
        self._drop(stream)


@final
class _Item:
    """An event to write, and its session."""

    __slots__ = ("failures", "is_dropped", "session_events", "write")

    def __init__(self, session_events: SessionEvents, write: EventWrite) -> None:
        self.session_events: SessionEvents = session_events
        self.write: EventWrite = write
        self.is_dropped: bool = False
        """It is not to be written."""
        self.failures: int = 0
