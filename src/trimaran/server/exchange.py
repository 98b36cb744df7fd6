"""One call and all that answers it: notifications while it runs, questions in its middle, its end.

A transport makes an `Exchange` per call and gives it a *sink* (where bytes go). The era the peer speaks is a *voice*:
how notifications and results are spelled, and what asking means. The handler sees neither, only its Context.

Ending early: `cancel` (the client went away or said so), `fail` (its session was ended here) and `expire` (time ran out)
cancel the task that runs the handler, once it is known. Nothing is sent for a cancelled call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, final

from trimaran.errors import Disconnected, ProtocolError
from trimaran.protocol.inbound import IncomingCall

from .threads import Ticket

if TYPE_CHECKING:
    from .deadlines import Deadlines
    from .input_rounds import InputRounds


class Sink(Protocol):
    """Where a call's messages go."""

    def send(self, data: bytes) -> Awaitable[None]:
        """Put one encoded message on the call's own stream, in order. May be called without awaiting the result."""
        ...


class Voice(Protocol):
    """How one era speaks to one peer."""

    def notification(self, method: str, params: dict[str, Any]) -> bytes: ...
    def result(self, call: IncomingCall, result: Any) -> bytes: ...
    def error(self, call: IncomingCall, error: ProtocolError) -> bytes: ...
    def logs(self, exchange: Exchange, level: str) -> bool:
        """Does the peer want to hear log messages of this level on this call?"""
        ...

    async def ask(
        self, exchange: Exchange, method: str, params: dict[str, Any], key: str | None, timeout: float | None
    ) -> Any:
        """Put a question to the client and wait for its answer, by the era's means."""
        ...

    async def step(self, exchange: Exchange, name: str, run: Callable[[], Awaitable[Any]]) -> Any: ...
    def open_rounds(self, exchange: Exchange) -> None:
        """Read the answers and the state a retried call brought along."""
        ...

    def suspended(self, exchange: Exchange) -> Any:
        """The result that ends this round, if the body was suspended by a question; else None."""
        ...

    def bad_arguments(self, message: str) -> Any:
        """The result (or the error, raised) for arguments that do not fit a tool's schema."""
        ...

    def lacks(self, capability: str, required: dict[str, Any]) -> ProtocolError:
        """The error for a question the client has not declared it can answer."""
        ...


class _AlreadySent:
    """An awaitable that is already done: what a plain `def` handler may ignore and a coroutine may await."""

    __slots__ = ()

    def __await__(self) -> Any:
        return iter(())


SENT = _AlreadySent()

# After its time a handler is cancelled; if it swallows that, the client is answered all the same after this long.
STUCK_SECONDS: Final = 2.0
# Messages of a handler's thread on their way out at once.
_THREAD_SLOTS: Final = 64


@final
class Exchange:
    # Defaults live on the class: a call that finishes at once never touches them.
    cancelled: bool = False
    expired: bool = False
    reason: str | None = None
    failure: ProtocolError | None = None
    """The error for a call that was ended from outside, and not by the client."""
    _slots: threading.Semaphore | None = None
    is_answered: bool = False
    """Has the call been answered for, while its handler would not end?"""
    unsent: int = 0
    """Bytes of notifications that a proxy passes on, and that wait for the caller to read."""
    _progress = -inf
    task: asyncio.Task[Any] | None = None
    ticket: Ticket | None = None
    """Set when the handler has to wait for a thread."""
    loop: asyncio.AbstractEventLoop | None = None
    """Set when the handler runs in a thread, so that what it says finds the way back."""
    rounds: InputRounds | None = None
    """The modern voice's memory of this call's questions."""
    on_close: Callable[[], None] | None = None
    """Ends a call that would go on for ever, properly; used when its transport is told to stop."""
    on_stuck: Callable[[], None] | None = None
    """Answers for a handler that has had its time and does not end."""
    deadlines: Deadlines | None = None
    """Ends the call in time, from when it does not finish at once."""
    began: float = 0.0
    """When the call was taken on, on the loop's clock."""
    sent: Any = None
    """The request to another server that a shortcut has made; of a class of the client, which is no business of ours."""

    def __init__(self, call: IncomingCall, sink: Sink, voice: Voice) -> None:
        self.call = call
        self.sink = sink
        self.voice = voice
        call.exchange = self

    def limit(self, seconds: float) -> None:
        """The call may take this long, from its beginning."""
        self.call.timeout = seconds
        if self.deadlines is not None:
            # Behind middleware that waits, a tool says only now how long it may take.
            self.deadlines.set(self, seconds)

    def end(self) -> None:
        """The call is over. Whatever a handler left running may still speak, and is not heard."""
        self.call.exchange = ENDED

    def advance(self, progress: float) -> bool:
        """Does this progress go beyond all that was reported before, whoever of the call's helpers reported it?"""
        if not isfinite(progress) or progress <= self._progress:
            return False
        self._progress = progress
        return True

    def notify(self, method: str, params: dict[str, Any]) -> Awaitable[None]:
        """Send a notification that belongs to this call. From a thread, it is handed to the loop."""
        if self.cancelled or self.expired:
            return SENT
        data = self.voice.notification(method, params)
        if self.loop is not None and running_loop() is not self.loop:
            self._hand_over(data)
            return SENT
        return self.sink.send(data)

    def _hand_over(self, data: bytes) -> None:
        """From a thread: to the loop, so many at a time; a thread that says more than its client reads waits here."""
        assert self.loop is not None
        if self._slots is None:
            self._slots = threading.Semaphore(_THREAD_SLOTS)
        while not self._slots.acquire(timeout=0.1):
            if self.cancelled or self.expired or self.call.exchange is not self:
                return
        self.loop.call_soon_threadsafe(self._send_soon, data, self._slots)

    def _send_soon(self, data: bytes, slots: threading.Semaphore) -> None:
        waiting = self.sink.send(data)
        if waiting is SENT:
            slots.release()
            return
        task = asyncio.ensure_future(_finish(waiting))
        _sending.add(task)
        task.add_done_callback(_sending.discard)
        task.add_done_callback(lambda _: slots.release())

    def cancel(self, reason: str | None = None) -> None:
        """The client no longer wants the answer."""
        self.cancelled = True
        self.reason = reason
        if self.task is not None:
            self.task.cancel()

    def fail(self, error: ProtocolError) -> None:
        """End the call with an error that the handler did not raise. Its client still waits for an answer."""
        self.failure = error
        self.cancel(error.message)

    def expire(self) -> None:
        """The handler has had its time."""
        self.expired = True
        if self.task is not None:
            asyncio.get_running_loop().call_later(STUCK_SECONDS, self._answer_for_stuck_handler)
            self.task.cancel()

    def _answer_for_stuck_handler(self) -> None:
        if self.task is not None and self.on_stuck is not None:
            self.is_answered = True
            self.on_stuck()


@final
class _SilentSink:
    """The exchange of a call that is over: it sends nothing. It also keeps calls free of reference cycles."""

    cancelled: bool = True
    expired: bool = False
    rounds = None
    loop = None
    ticket = None

    def advance(self, progress: float) -> bool:
        return False

    def notify(self, method: str, params: dict[str, Any]) -> Awaitable[None]:
        return SENT

    @property
    def voice(self) -> Any:
        raise Disconnected("the call is over; its client can no longer be asked")

    @property
    def sink(self) -> Any:
        return None


# Typed as the exchange it stands for, so that nobody asks which of them a call has.
ENDED: Final = cast("Exchange", _SilentSink())


# Messages of threads on their way out; the loop itself keeps only weak references to tasks.
_sending: set[asyncio.Task[None]] = set()


async def _finish(waiting: Awaitable[None]) -> None:
    await waiting


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of this thread; None if none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
