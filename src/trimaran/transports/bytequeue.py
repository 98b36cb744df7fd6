"""A queue of messages towards a client that may not read them: bounded by their number and by their bytes.

`put` waits while it is full, as on a full pipe. One message always fits, whatever its size.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections import deque

# Four times the buffers of a socket, so a slightly slow client does not block the sender.
_MOST_BYTES: Final = 1024 * 1024


@final
class ByteQueue(asyncio.Queue["bytes | None"]):
    """None marks the end: it fits into a full queue by replacing unread messages."""

    _queue: deque[bytes | None]

    def __init__(self, most: int = 1000, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__(most)
        self._most_bytes = most_bytes
        self.held_bytes: int = 0

    def full(self) -> bool:
        return super().full() or self.held_bytes >= self._most_bytes

    def end(self) -> None:
        """Mark the end. In a full queue the oldest messages are dropped for it."""
        while self.full():
            self.get_nowait()
        self.put_nowait(None)

    def _get(self) -> bytes | None:
        data = self._queue.popleft()
        self.held_bytes -= len(data or b"")
        return data

    def _put(self, item: bytes | None) -> None:
        self.held_bytes += len(item or b"")
        self._queue.append(item)
