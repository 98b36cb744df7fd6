"""What is said to the clients of sessions in a store, written to it: behind, in order, and again until it has worked.

A stream goes straight to its connection; here it is copied, so that any process can go on with it. All sessions of a process
share one writer, the `Logbook`: while the store is busy with one batch the next one gathers, and what a thousand calls say at
the same time is a few commands to the store, not thousands.

Two things are waited for. The head of a stream, before its client gets an id to come back with: a stream that is not known
to the store has none. And, for a moment, the end of the process.

Each event of a call has its number, so a batch whose fate is not known is written again, and nothing is there twice. A
stream of which something had to be left out is given up as a whole: the numbers that follow would not be those its client
has seen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, final

import msgspec

from trimaran.errors import Error
from trimaran.fleet import Fleet
from trimaran.protocol.inbound import RequestId
from trimaran.server.handlers import logger
from trimaran.state.contracts import EventWrite, StoreClosed, StoreUnavailable

from .streams import STANDALONE

__all__ = ["ENDED_SECONDS", "Logbook", "Scribe"]

# The stream of a call: while it is open, and for a client that comes back for its end.
_OPEN_SECONDS: Final = 3600.0
ENDED_SECONDS: Final = 120.0
# What the beginning of a stream may wait for the store; after that it is one that cannot be resumed.
_HEAD_SECONDS: Final = 0.5
_LEAVE_SECONDS: Final = 2.0
# One batch: what a store does in a few milliseconds.
_BATCH: Final = 512
_BATCH_BYTES: Final = 1 << 20


@final
class Logbook:
    """Writes for all sessions of a process.

    Args:
        ttl: Seconds that a session's own stream is kept.
    """

    def __init__(self, fleet: Fleet, ttl: float) -> None:
        self.name: Final = fleet.name
        self.ttl: Final = ttl
        self._fleet = fleet
        self._due: dict[Scribe, None] = {}
        """Those with something to write, the one that waits longest first."""
        self._task: asyncio.Task[None] | None = None

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
                    await asyncio.sleep(max(0.05, error.retry_after))
        finally:
            self._task = None

    def _next(self) -> list[_Item]:
        """What to write next: of each in turn, as far as it fits."""
        batch: list[_Item] = []
        size = 0
        for scribe in tuple(self._due):
            del self._due[scribe]
            for item in scribe.queue:
                size += len(item.write.data or b"")
                if batch and (len(batch) == _BATCH or size > _BATCH_BYTES):
                    self._due[scribe] = None  # behind the others
                    return batch
                batch.append(item)
        return batch

    async def _write(self, batch: list[_Item]) -> None:
        try:
            await self._fleet.store.events.write([item.write for item in batch])
        except StoreUnavailable:
            raise
        except Error:
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
        except Error as error:
            logger.warning("an event of a session cannot be kept for a client that comes back: %s", error)
            if item.write.data is not None and item.write.stream != STANDALONE:
                item.scribe.give_up(item.write.stream)
        item.scribe.wrote(item)


@final
class Scribe:
    """The events of one session, until the store has them.

    Args:
        most: Events that may wait. Beyond that the oldest are given up.
    """

    def __init__(self, logbook: Logbook, session: str, most: int) -> None:
        self.name: Final = logbook.name
        self.queue: deque[_Item] = deque()
        """What is not known to be written."""
        self._logbook = logbook
        self._session = session
        self._most = most
        self._heads: dict[str, asyncio.Future[bool]] = {}
        self._broken: set[str] = set()
        """Open streams that are not kept, since some of their events could not be."""

    # --- what is said

    def opened(self, stream: str, id: RequestId) -> int:
        """A new stream, for the answer to this request; the number of its first event, which says so."""
        self._heads[stream] = asyncio.get_running_loop().create_future()
        self._write(EventWrite(self._session, stream, msgspec.json.encode(id), _OPEN_SECONDS, 1))
        return 1

    async def is_kept(self, stream: str) -> bool:
        """Is it known to the store, so that a client may come back for it by way of any process?"""
        head = self._heads[stream]
        # Cheaper than a timeout: this is on the path of every call that streams.
        timer = asyncio.get_running_loop().call_later(_HEAD_SECONDS, self.give_up, stream)
        try:
            return await head
        finally:
            timer.cancel()
            if not head.done() or head.cancelled():
                self.give_up(stream)
            del self._heads[stream]

    def appended(self, stream: str, number: int, data: bytes) -> None:
        self._write(EventWrite(self._session, stream, data, _OPEN_SECONDS, number))

    def announced(self, data: bytes) -> None:
        """On the session's own stream, to which any process may add."""
        self._write(EventWrite(self._session, STANDALONE, data, self._logbook.ttl))

    def ended(self, stream: str) -> None:
        self._write(EventWrite(self._session, stream, None, ENDED_SECONDS))

    # --- what is written

    def _write(self, write: EventWrite) -> None:
        if write.data is None:
            self._broken.discard(write.stream)
        elif write.stream in self._broken:
            return
        if len(self.queue) > self._most:
            oldest = self.queue[0].write
            if oldest.stream == STANDALONE or oldest.data is None:
                self.queue.popleft().is_dropped = True
            else:
                self.give_up(oldest.stream)
        self.queue.append(_Item(self, write))
        self._logbook.add(self)

    def give_up(self, stream: str) -> None:
        """A stream of which something is missing is not kept on."""
        kept: deque[_Item] = deque()
        has_ended = False
        for item in self.queue:
            item.is_dropped = item.write.stream == stream and item.write.data is not None
            has_ended = has_ended or (item.write.stream == stream and item.write.data is None)
            if not item.is_dropped:
                kept.append(item)
        self.queue = kept
        if not has_ended:
            self._broken.add(stream)
        head = self._heads.get(stream)
        if head is not None and not head.done():
            head.set_result(False)

    def wrote(self, item: _Item) -> None:
        if self.queue and self.queue[0] is item:
            self.queue.popleft()
        head = self._heads.get(item.write.stream)
        if head is not None and not head.done():
            head.set_result(True)


@final
class _Item:
    """Something to be written, and for whom."""

    __slots__ = ("is_dropped", "scribe", "write")

    def __init__(self, scribe: Scribe, write: EventWrite) -> None:
        self.scribe = scribe
        self.write = write
        self.is_dropped = False
        """Nobody wants it any more."""
