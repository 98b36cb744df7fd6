"""Two contracts for carrying messages between a client and a server.

A `Channel` moves messages both ways and knows nothing of requests: a child process, a pair in memory, an SSE stream with
its POSTs, or one that a user brings. It delivers each inbound message once and in order, and says once that it ended.

A `Link` answers requests. `Pipeline` makes one of any channel by matching ids; HTTP and the server in the same process
are links of their own, because there the answer belongs to the request by construction.

Nothing here knows an era, retries anything, or reads more of a message than its envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, final, runtime_checkable

from msgspec import Struct

from trimaran.errors import Error
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.read_reply import Frame

__all__ = ["Channel", "ExitReport", "Inbox", "Link", "Owner", "PostingLink", "SharedHeaders"]


@final
class SharedHeaders(dict[str, str]):
    """Headers that many requests share, and nobody changes. A link may keep their bytes: they are equal only if identical."""

    __slots__ = ()
    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType] - `dict` has none

    def __eq__(self, other: object) -> bool:
        return self is other


@final
class ExitReport(Struct, frozen=True):
    """The facts about the other end after it is gone."""

    exit_code: int | None = None
    stderr: tuple[str, ...] = ()


class Owner(Protocol):
    """Receives the reports of a channel."""

    def receive(self, message: bytes) -> None:
        """Take one inbound JSON message. Never raises."""
        ...

    def lost(self, error: Error | None) -> None:
        """The channel has ended by itself; told once. None: the other end closed it in order."""
        ...

    def odd(self, what: str) -> None:
        """Something strange that could be survived: a line that is not JSON, say."""
        ...


@runtime_checkable
class Channel(Protocol):
    """A two-way channel of messages."""

    async def open(self, owner: Owner) -> None:
        """Connect; ConnectFailed if that cannot be done."""
        ...

    async def send(self, message: bytes) -> None:
        """Send one JSON message, which holds no newline. Waits while the other end does not read.

        Raises:
            ConnectionLost: the channel has ended.
        """
        ...

    async def close(self) -> None:
        """End it, from any task and any number of times. None of its tasks runs afterwards."""
        ...

    def describe(self) -> str:
        """The other end, for messages to people."""
        ...

    def postmortem(self) -> ExitReport:
        """The facts about the other end, once it has ended."""
        ...


class Inbox(Protocol):
    """Receives everything on a link that answers no request. Each link has one of its own."""

    def attach(self, link: Link) -> None:
        """This is the link."""
        ...

    def notice(self, frame: Frame, request_id: RequestId | None = None) -> None:
        """A notification; `request_id` is the request on whose own stream it came, if it came on one."""
        ...

    def asked(self, frame: Frame, request_id: RequestId | None = None) -> None:
        """A request of the server's: legacy eras only."""
        ...

    def gap(self) -> None:
        """Announcements of the server may have been missed for a moment."""
        ...

    def lost(self, error: Error | None) -> None:
        """The link has ended by itself; told once."""
        ...


class Link(Protocol):
    """A way to have requests answered."""

    is_http: bool
    """Do headers travel along, and does leaving a request end its stream?"""

    async def request(self, id: RequestId, message: bytes, headers: Mapping[str, str] | None) -> Frame:
        """Send a request and wait for its reply. No deadline of its own: whoever calls has one.

        Raises:
            ConnectionLost: the link ended before the reply came.
            RemoteProtocolError: what came is not a reply.
        """
        ...

    async def send(self, message: bytes, headers: Mapping[str, str] | None) -> None:
        """Send a notification, or an answer to a request of the server's."""
        ...

    async def settled(self) -> None:
        """Wait until what the server says by itself can be heard."""
        ...

    async def finish(self) -> None:
        """Wait for what is still under way on a link that is to be replaced; each request has its own deadline."""
        ...

    async def close(self) -> None:
        """End it, from any task and any number of times."""
        ...

    def oddities(self) -> str:
        """Recent oddities, as a clause for an error message; empty if there are none."""
        ...


class PostingLink(Link, Protocol):
    """A link that can send a request for which no task waits."""

    def post_for(self, receiver: Any, message: bytes, headers: SharedHeaders) -> Any | None:
        """Send a request; the connection that its answer comes on. None if it has to be sent by `request`."""
        ...

    def leave(self) -> None:
        """The answer to such a request is here, or `request` waits for it."""
        ...

    async def request(
        self, id: RequestId, message: bytes, headers: Mapping[str, str] | None, sending: Any = None
    ) -> Frame:
        """As of any link. With `sending`, the connection and the future of the answer, the request was sent already."""
        ...
