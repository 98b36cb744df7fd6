"""A server and its client in one process, without sockets or pipes.

`MemoryLink` is the quick way for a modern client: the request is served in the caller's own task. `ServerChannel` is the
same server behind a two-way channel, for the older revisions, where both sides ask. `MemoryChannel` is the raw end of one,
for tests and tools that bring their own client. Nobody authenticates: the server takes the client for `principal`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, final

from trimaran.client.link import ExitReport, Inbox, Owner
from trimaran.client.options import Tap
from trimaran.errors import ConnectionLost
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.read_reply import Frame, read_frame
from trimaran.server.exchange import SENT

from .bytequeue import ByteQueue
from .duplex import Duplex, LegacyHalf

if TYPE_CHECKING:
    from trimaran.server.server import Server


@final
class MemoryChannel:
    """The client's end: `send` a message, `receive` the next one.

    The queue towards the client is bounded; a client that does not read holds up the handlers that write, as a full pipe
    would.
    """

    def __init__(
        self,
        server: Server,
        *,
        legacy: Callable[[Duplex], LegacyHalf] | None = None,
        capacity: int = 1000,
        principal: Any = None,
    ) -> None:
        self._incoming = ByteQueue(capacity)
        self._duplex = Duplex(server, self._incoming.put, legacy=legacy, principal=principal)
        self.closed: bool = False

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
        self._incoming.end()


@final
class MemoryLink:
    """A modern client's way to a server in the same process."""

    is_http = False

    def __init__(self, server: Server, inbox: Inbox, tap: Tap | None = None, *, principal: Any = None) -> None:
        self._inbox = inbox
        self._tap = tap
        self._duplex = Duplex(server, self._write, principal=principal)  # pyright: ignore[reportArgumentType]
        self._is_closed = False

    async def request(self, id: RequestId, message: bytes, headers: Mapping[str, str] | None = None) -> Frame:
        if self._is_closed:
            raise _gone()
        if self._tap is not None:
            self._tap("out", message)
        reply = await self._duplex.answer(message)
        if reply is None:
            raise ConnectionLost("the server ended the call without an answer")
        if self._tap is not None:
            self._tap("in", reply)
        return read_frame(reply)

    async def send(self, message: bytes, headers: Mapping[str, str] | None = None) -> None:
        if self._is_closed:
            raise _gone()
        if self._tap is not None:
            self._tap("out", message)
        self._duplex.feed(message)

    def _write(self, data: bytes) -> object:
        """Deliver a message other than a reply. It never waits."""
        if not self._is_closed:
            if self._tap is not None:
                self._tap("in", data)
            frame = read_frame(data)
            if frame.is_notice:
                self._inbox.notice(frame)
        return SENT

    async def settled(self) -> None:
        """At once."""

    async def finish(self) -> None:
        """A running call belongs to its caller."""

    async def close(self) -> None:
        self._is_closed = True
        await self._duplex.close(patience=0.0)

    def oddities(self) -> str:
        return ""


@final
class ServerChannel:
    """A server in this process, behind a two-way channel."""

    def __init__(
        self, server: Server, *, legacy: Callable[[Duplex], LegacyHalf] | None = None, principal: Any = None
    ) -> None:
        self._server = server
        self._legacy = legacy
        self._principal = principal
        self._duplex: Duplex | None = None
        self._owner: Owner | None = None

    async def open(self, owner: Owner) -> None:
        self._owner = owner
        self._duplex = Duplex(self._server, self._write, legacy=self._legacy, principal=self._principal)  # pyright: ignore[reportArgumentType]

    async def send(self, message: bytes) -> None:
        if self._duplex is None:
            raise _gone()
        self._duplex.feed(message)

    def _write(self, data: bytes) -> object:
        if self._owner is not None:
            self._owner.receive(data)
        return SENT

    async def close(self) -> None:
        duplex = self._duplex
        if duplex is not None:
            await duplex.close(patience=0.0)
        self._duplex = self._owner = None

    def describe(self) -> str:
        return f"the server {self._server.info.name!r}"

    def postmortem(self) -> ExitReport:
        return ExitReport()


def _gone() -> ConnectionLost:
    lost = ConnectionLost("the connection was closed")
    lost.sent = False
    return lost
