"""What is said to the clients of sessions in a store, written to it: behind, in order, and again until it has worked.

A stream goes straight to its connection; here it is copied, so that any process can go on with it. All sessions of a process
share one writer, the `Logbook`: while the store is busy with one batch the next one gathers, and what a thousand calls say at
the same time is a few commands to the store, not thousands.

Nobody waits for it, but for a moment the end of the process. A client may come back for a stream of which nothing was written:
its name says whose it was, and what it was to answer.

Each event of a call has its number, so a batch whose fate is not known is written again, and nothing is there twice. What is
said on a session's own stream has none, and may be; it has a mark instead, by which whoever reads it passes over the second.

A batch that was not taken is tried again as soon as the store takes anything at all, and then in smaller ones. So an event
that no store can take ends up alone, and is left out after a few attempts: it holds up nobody else. Of a stream of which
something had to be left out only the last word is kept, which is the answer to its call.
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
from trimaran.state.budget import ByteBudget
from trimaran.state.contracts import EventWrite, StoreClosed, StoreUnavailable

from .streams import STANDALONE

__all__ = ["Logbook", "Scribe"]

# The stream of a call: while it is open, and for a client that comes back for its end.
_OPEN_SECONDS: Final = 3600.0
_ENDED_SECONDS: Final = 120.0
_DROPPED_SECONDS: Final = 0.1
_LEAVE_SECONDS: Final = 2.0
# One batch: what a store does in a few milliseconds.
_BATCH: Final = 512
_BATCH_BYTES: Final = 1 << 20
# So often may an event alone fail on a store that takes others.
_MOST_FAILURES: Final = 3
# Something that any store can take, and nobody reads.
_TRIFLE: Final = EventWrite("~logbook", "trifle", None, 1.0)


@final
class Logbook:
    """Writes for all sessions of a process.

    Args:
        ttl: Seconds that a session's own stream is kept.
        max_bytes: Of all sessions: what may wait to be written, and again what ended streams may hold in the store.
    """

    def __init__(self, fleet: Fleet, ttl: float, max_bytes: int) -> None:
        self.ttl: Final = ttl
        self.waiting: Final = ByteBudget(max_bytes)
        """What waits to be written, of all sessions."""
        self.stored: Final = ByteBudget(max_bytes)
        """What was written for streams that have ended, of all sessions."""
        self._fleet = fleet
        self._due: dict[Scribe, None] = {}
        """Those with something to write, the one that waits longest first."""
        self._most = _BATCH
        self._failures = 0
        """In a row."""
        self._left_out = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """That of this process, which is another each time the server starts."""
        return self._fleet.name

    def add(self, scribe: Scribe) -> None:
        self._due[scribe] = None
        if self._task is None:
            self._task = self._fleet.spawn(self._pump())

    async def flush(self) -> None:
        """Wait for what is still to be written, but not for long."""
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
                    self._due |= {item.scribe: None for item in batch if item.scribe.queue}
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
        """What to write next: of each in turn, as far as it fits."""
        batch: list[_Item] = []
        size = 0
        for scribe in tuple(self._due):
            has_begun = False
            for item in scribe.queue:
                size += len(item.write.data or b"")
                if batch and (len(batch) >= self._most or size > _BATCH_BYTES):
                    if has_begun:  # behind the others; else it is the first of the next batch, in which anything fits
                        del self._due[scribe]
                        self._due[scribe] = None
                    return batch
                has_begun = True
                batch.append(item)
            del self._due[scribe]
        return batch

    async def _write(self, batch: list[_Item]) -> None:
        try:
            await self._fleet.store.events.write([item.write for item in batch])
        except StoreUnavailable:
            raise
        except Exception:
            for item in batch:  # none of them was taken, perhaps for the sake of one
                await self._write_one(item)
        else:
            for item in batch:
                item.scribe.wrote(item)

    async def _write_one(self, item: _Item) -> None:
        try:
            if not item.is_dropped:
                await self._fleet.store.events.write([item.write])
        except StoreUnavailable:
            raise
        except Exception as error:
            self._leave_out(item, error)
        else:
            item.scribe.wrote(item)

    async def _is_back(self) -> bool:
        """Wait until the store takes something, however small; False if it never will."""
        pause = 0.05
        while True:
            await asyncio.sleep(pause)
            try:
                await self._fleet.store.events.write([_TRIFLE])
            except StoreClosed:
                return False
            except StoreUnavailable as error:
                pause = max(0.05, error.retry_after)
            except Exception:
                return True  # full, perhaps; but there
            else:
                return True

    def _suspect(self, item: _Item, error: Exception) -> None:
        """It failed alone, and the store is well: that may have been chance."""
        item.failures += 1
        if item.failures >= _MOST_FAILURES and not item.is_dropped:
            self._leave_out(item, error)

    def _leave_out(self, item: _Item, error: Exception) -> None:
        self._left_out += 1
        if self._left_out & (self._left_out - 1) == 0:  # a store that is full must not fill the log, too
            logger.warning(
                "an event of a session cannot be kept for a client that comes back: %s (%d so far)",
                error if isinstance(error, Error) else f"{type(error).__name__}: {error}",
                self._left_out,
            )
        item.scribe.refused(item)


@final
class Scribe:
    """The events of one session, until the store has them.

    Args:
        most: Events that may wait, and of each stream are kept in the store. Beyond that the oldest are given up.
        max_bytes: Of what waits; and again of streams that have ended and are kept in the store.
    """

    def __init__(self, logbook: Logbook, session: str, most: int, max_bytes: int) -> None:
        self.name: Final = logbook.name
        self.queue: deque[_Item] = deque()
        """What is not known to be written."""
        self._logbook = logbook
        self._session = session
        self._most = most
        self._max_bytes = max_bytes
        self.held_bytes = 0
        """Of the queue."""
        self._said: dict[str, int] = {}
        """Bytes of each open stream."""
        self._stored = _Stored(max_bytes, self._shorten)
        logbook.waiting.join(self)
        logbook.stored.join(self._stored)
        self._broken: dict[str, EventWrite | None] = {}
        """Open streams that are not kept, since some of their events could not be; what was said last on each."""

    # --- what is said

    def appended(self, stream: str, number: int, data: bytes) -> None:
        self._said[stream] = self._said.get(stream, 0) + len(data)
        self._write(EventWrite(self._session, stream, data, _OPEN_SECONDS, number))

    def announced(self, data: bytes) -> None:
        """On the session's own stream, to which any process may add."""
        self._write(EventWrite(self._session, STANDALONE, data, self._logbook.ttl))

    def ended(self, stream: str) -> None:
        last = self._broken.pop(stream, None)
        if last is not None:
            self._write(last)
        self._write(EventWrite(self._session, stream, None, _ENDED_SECONDS))
        size = min(self._said.pop(stream, 0), self._max_bytes)
        if len(self._said) > 4 * self._most:  # streams that other processes went on with
            self._said.clear()
        self._stored.add(stream, size)
        self._logbook.stored.grew(size)

    def _shorten(self, stream: str) -> None:
        """Let a stream that has ended go soon: later ones need the room."""
        self._write(EventWrite(self._session, stream, None, _DROPPED_SECONDS))

    def has_more(self, stream: str) -> bool:
        """Is something of this stream still to be written?"""
        return any(item.write.stream == stream for item in self.queue)

    # --- what is written

    def _write(self, write: EventWrite) -> None:
        size = len(write.data or b"")
        while self.queue and (len(self.queue) > self._most or self.held_bytes + size > self._max_bytes):
            self._make_room()
        if write.stream in self._broken:
            self._broken[write.stream] = write
        else:
            self.queue.append(_Item(self, write))
            self.held_bytes += size
            self._logbook.add(self)
            self._logbook.waiting.grew(size)

    def halve(self) -> None:
        """Give up the older half of what waits, so that all sessions together fit."""
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
        """Of a stream of which something is missing only the last word is kept."""
        mine = [item for item in self.queue if item.write.stream == stream]
        events = [item for item in mine if item.write.data is not None]
        last = events[-1] if events else None
        has_ended = len(events) < len(mine)
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
        """No store will ever take it."""
        self.wrote(item)
        item.is_dropped = True
        if item.write.number:
            self.give_up(item.write.stream)


@final
class _Stored:
    """The streams of a session that have ended and are still in the store, the oldest first.

    A stream is kept for a while after its end. Where many end meanwhile, the oldest are let go earlier.
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
    """Something to be written, and for whom."""

    __slots__ = ("failures", "is_dropped", "scribe", "write")

    def __init__(self, scribe: Scribe, write: EventWrite) -> None:
        self.scribe = scribe
        self.write = write
        self.is_dropped = False
        """Nobody wants it any more."""
        self.failures = 0
