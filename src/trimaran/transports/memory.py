"""A server and its peer in one process: a channel of messages, no bytes on any wire but the JSON itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from .duplex import Duplex, LegacyHalf

if TYPE_CHECKING:
    from trimaran.server.server import Server

__all__ = ["MemoryChannel"]


@final
class MemoryChannel:
    """The client's end: `send` a message, `receive` the next one.

    The queue towards the client is bounded; a client that does not read holds up the handlers that write, as a full pipe
    would.
    """

    def __init__(
        self, server: Server, *, legacy: Callable[[Duplex], LegacyHalf] | None = None, capacity: int = 1000
    ) -> None:
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue(capacity)
        self._duplex = Duplex(server, self._incoming.put, legacy=legacy)
        self.closed = False

    async def send(self, message: bytes) -> None:
        if not self.closed:
            self._duplex.feed(message)

    async def receive(self) -> bytes | None:
        """The next message from the server, or None at the end."""
        if self.closed and self._incoming.empty():
            return None
        return await self._incoming.get()

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        await self._duplex.close(patience=0.0)
        if self._incoming.full():
            self._incoming.get_nowait()
        self._incoming.put_nowait(None)
