"""A link over any two-way channel: replies find their requests by id.

Whatever the server does, a pending request ends: by its reply, by an error that names what came instead, or with the
channel. Replies to nobody are remembered as oddities, so that a call which later runs out of time can say what it saw.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

from trimaran.errors import (
    CODE_INVALID_REQUEST,
    ConnectionLost,
    Error,
    ProtocolError,
    RemoteProtocolError,
)
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.read_reply import Frame, excerpt, id_in, id_of_malformed, read_frame, split_batch

from .link import Channel, Inbox
from .options import Tap

_ODDITIES: Final = 3


@final
class Pipeline:
    """An open channel, seen as a link."""

    is_http = False

    def __init__(self, channel: Channel, inbox: Inbox, tap: Tap | None = None) -> None:
        self.channel = channel
        self._inbox = inbox
        self._tap = tap
        self._on_odd: Callable[[str], None] | None = getattr(tap, "on_odd", None)
        self._pending: dict[RequestId, asyncio.Future[Frame]] = {}
        self._odd: deque[str] = deque(maxlen=_ODDITIES)
        self._over: Error | None = None

    async def open(self) -> None:
        await self.channel.open(self)

    async def request(self, id: RequestId, message: bytes, headers: Mapping[str, str] | None = None) -> Frame:
        if self._over is not None:
            raise self._loss(sent=False)
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._pending[id] = answer
        try:
            await self.send(message)
            return await answer
        finally:
            self._pending.pop(id, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # looked at, also where a cancellation got here first

    async def send(self, message: bytes, headers: Mapping[str, str] | None = None) -> None:
        if self._tap is not None:
            self._tap("out", message)
        await self.channel.send(message)

    async def settled(self) -> None:
        """At once."""

    async def finish(self) -> None:
        """Nothing survives its channel."""

    async def close(self) -> None:
        self._end(ConnectionLost("the connection was closed"))
        await self.channel.close()

    def oddities(self) -> str:
        return "; it " + ", and ".join(dict.fromkeys(self._odd)) if self._odd else ""

    def unread(self) -> int | None:
        """How much of what was sent the other end has not read yet, where the channel knows."""
        count: Callable[[], int | None] | None = getattr(self.channel, "unread", None)
        return None if count is None else count()

    def is_working(self) -> bool:
        """True if the other end is known to use the processor, or to wait for it."""
        ask: Callable[[], bool] | None = getattr(self.channel, "is_working", None)
        return ask is not None and ask()

    def stderr(self) -> Sequence[str]:
        """The last lines that the other end wrote there, if it has one."""
        return self.channel.postmortem().stderr

    # --- the channel's owner -----------------------------------------------------------------------------------------

    def receive(self, message: bytes) -> None:
        if self._tap is not None:
            self._tap("in", message)
        try:
            parts = split_batch(message)
        except ProtocolError as error:
            parts = []
            is_clear = self._blame(message, error)
        else:
            is_clear = True
        for part in parts:
            try:
                self._take(read_frame(part))
            except ProtocolError as error:
                is_clear = self._blame(part, error) and is_clear
        if not is_clear:
            self.odd(f"sent bytes that are not a message: {excerpt(message)}")

    def _take(self, frame: Frame) -> None:
        if frame.is_call:
            self._inbox.asked(frame)
        elif frame.is_notice:
            self._inbox.notice(frame)
        else:
            answer = self._pending.get(frame.id) if isinstance(frame.id, (int, str)) else None
            if answer is None:
                self._unclaimed(frame)
            elif not answer.done():
                answer.set_result(frame)

    def lost(self, error: Error | None) -> None:
        if self._over is None:
            self._end(error or self._ended())
            self._inbox.lost(self._over)

    def _ended(self) -> ConnectionLost:
        """A channel that ended without a word: what it knows about the other end all the same."""
        known = self.channel.postmortem()
        how = "" if known.exit_code is None else f" with exit code {known.exit_code}"
        return ConnectionLost(
            f"the connection to {self.channel.describe()} ended{how}", exit_code=known.exit_code, stderr=known.stderr
        )

    def odd(self, what: str) -> None:
        self._odd.append(what)
        if self._on_odd is not None:
            self._on_odd(what)

    def too_long(self, head: bytes, tail: bytes, limit: int) -> bool:
        """A message over the limit: fail the request it answers, if it can be told which."""
        id = id_in(head, tail)
        answer = None if id is None else self._pending.get(id)
        if answer is None:
            return False
        if not answer.done():
            failure = RemoteProtocolError(
                CODE_INVALID_REQUEST, f"the answer is longer than {limit} bytes; allow more with max_message_bytes"
            )
            failure.kind = "output_too_large"
            answer.set_exception(failure)
        return True

    def _blame(self, message: bytes, error: ProtocolError) -> bool:
        """Not a message: if it names the id of a request, that request hears what came. False: it does not."""
        id = id_of_malformed(message)
        answer = None if id is None else self._pending.get(id)
        if answer is None or answer.done():
            return False
        answer.set_exception(error)
        return True

    def _unclaimed(self, frame: Frame) -> None:
        if frame.id is None:
            failure = frame.failure()
            # An error for a message it could not read: with one request open there is no doubt which.
            if failure is not None and len(self._pending) == 1:
                answer = next(iter(self._pending.values()))
                if not answer.done():
                    answer.set_exception(failure)
                    return
            self.odd(f"answered without an id: {failure.message[:200] if failure else 'a result'}")
        else:
            self.odd(f"answered id {str(frame.id)[:80]!r}, which is not waiting")

    def _end(self, error: Error) -> None:
        if self._over is not None:
            return
        self._over = error
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(self._loss(sent=True))

    def _loss(self, *, sent: bool) -> Error:
        """Each waiting call gets an exception of its own: a shared one would collect everybody's traceback."""
        over = self._over
        assert over is not None
        if not isinstance(over, ConnectionLost):
            return over
        copy = ConnectionLost(str(over), cause_text=over.cause_text, exit_code=over.exit_code, stderr=over.stderr)
        copy.sent = sent and over.sent
        copy.__cause__ = over.__cause__
        return copy

    def __repr__(self) -> str:
        count: Any = len(self._pending)
        return f"<Pipeline to {self.channel.describe()}, {count} pending>"
