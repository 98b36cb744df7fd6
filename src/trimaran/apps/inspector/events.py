"""What happened, in order: the events of the page, numbered, bounded, and sent in batches.

An event with a key replaces the earlier event of the same key: a page that reconnects needs a call's last state, not every
state. Messages are not kept here: they have their own log, share the numbers, and are merged when a batch is sent. So a
server that sends a million notifications pushes nothing else out.

A reader that asks for events older than those kept hears `reset`, and reads the whole state again.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, final

import msgspec

BATCH_SECONDS: Final = 0.05
"""Between two batches: 20 a second is what a person sees as at once, and leaves the page time to draw."""
_KEEP_ALIVE_SECONDS: Final = 15.0  # half of the shortest proxy timeout seen
_MOST_EVENTS: Final = 20_000  # a page that was away longer reads the state anew
_MOST_BYTES: Final = 32 * 1024 * 1024  # of kept events, by their own estimate
_MOST_MESSAGES: Final = 1_000  # in one batch; a page cannot draw more in 50 ms

Event = dict[str, Any]
MessagesAfter = Callable[[int, int], tuple[Sequence[Any], int, int]]
"""(after, limit) -> the newest rows after a number, how many were left out, and the number of the last of those."""

_encode = msgspec.json.Encoder().encode


def now_ms() -> float:
    """Milliseconds since 1970."""
    return time.time() * 1000


@final
class PageEvents:
    """The events that were kept, and whoever waits for the next ones."""

    def __init__(self, messages_after: MessagesAfter | None = None) -> None:
        self._events: OrderedDict[int, tuple[Event, str, int]] = OrderedDict()
        """Event, key and size, by number."""
        self._by_key: dict[str, int] = {}
        self._bytes = 0
        self._seq = 0
        self._floor = 0
        """The last event that was dropped for want of room."""
        self._waiting: set[asyncio.Event] = set()
        self.messages_after: MessagesAfter | None = messages_after
        self.is_closed: bool = False

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self._seq

    def next_seq(self) -> int:
        """A number for an event that is kept elsewhere; its readers are woken."""
        self._seq += 1
        self._wake()
        return self._seq

    def emit(self, type: str, *, key: str = "", size: int = 200, **fields: Any) -> int:
        """Add an event. `key` names what it is about; `size` is about what it takes in memory."""
        seq = self._seq = self._seq + 1
        if key:
            key = f"{type} {key}"
            previous = self._by_key.get(key)
            if previous is not None:
                self._remove(previous)
            self._by_key[key] = seq
        self._events[seq] = ({"seq": seq, "at": now_ms(), "type": type, **fields}, key, size)
        self._bytes += size
        while len(self._events) > _MOST_EVENTS or (self._bytes > _MOST_BYTES and len(self._events) > 1):
            self._floor = next(iter(self._events))
            self._remove(self._floor)
        self._wake()
        return seq

    def forget(self, type: str, key: str) -> None:
        """Drop the kept event of a key: what it was about is gone."""
        seq = self._by_key.get(f"{type} {key}")
        if seq is not None:
            self._remove(seq)

    def _remove(self, seq: int) -> None:
        _, key, size = self._events.pop(seq)
        self._bytes -= size
        if key and self._by_key.get(key) == seq:
            del self._by_key[key]

    def _wake(self) -> None:
        if self._waiting:
            for waiter in self._waiting:
                waiter.set()

    def after(self, seq: int) -> list[Event]:
        """The batch that follows an event: events, and rows of messages, in their order."""
        if seq < self._floor or seq > self._seq:
            return [{"seq": self._seq, "at": now_ms(), "type": "reset"}]
        batch: list[Event] = []
        for number in reversed(self._events):
            if number <= seq:
                break
            batch.append(self._events[number][0])
        batch.reverse()
        if self.messages_after is not None:
            rows, skipped, last_skipped = self.messages_after(seq, _MOST_MESSAGES)
            if skipped:
                batch.append(
                    {
                        "seq": last_skipped,
                        "at": now_ms(),
                        "type": "messages-skipped",
                        "first": seq + 1,
                        "last": last_skipped,
                        "count": skipped,
                    }
                )
            if rows or skipped:
                batch += [{"seq": row.seq, "at": row.at, "type": "message", "message": row} for row in rows]
                batch.sort(key=lambda event: event["seq"])
        return batch

    async def stream(self, after: int) -> AsyncGenerator[bytes, None]:
        """Server-sent events: one message for each batch, and a comment where nothing happens for long."""
        woken = asyncio.Event()
        self._waiting.add(woken)
        try:
            yield b"retry: 1000\n\n"
            position = after
            while not self.is_closed:
                woken.clear()
                if position != self._seq:
                    batch = self.after(position)
                    position = self._seq
                    if batch:
                        yield b"id: %d\ndata: %b\n\n" % (position, _encode(batch))
                    await asyncio.sleep(BATCH_SECONDS)
                    continue
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                        await woken.wait()
                except TimeoutError:
                    yield b": \n\n"
        finally:
            self._waiting.discard(woken)

    def close(self) -> None:
        """End every stream."""
        self.is_closed = True
        self._wake()
