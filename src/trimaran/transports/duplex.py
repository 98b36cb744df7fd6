"""A conversation over one two-way channel: stdio, memory, or an SSE stream with its POSTs.

Messages come in one at a time through `feed`; each call runs in a task of its own, so a slow one holds up nobody (R139), and
everything that answers leaves through `write`, one encoded message each. Both eras may interleave on one channel: a
message that names its revision is modern, anything else goes to the legacy half, if there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from trimaran.errors import ProtocolError
from trimaran.protocol.inbound import (
    Batch,
    IncomingCall,
    IncomingNotification,
    IncomingReply,
    MessageReader,
    RequestId,
    check_batch,
    read_cancellation,
)
from trimaran.server.exchange import Exchange, Voice
from trimaran.server.handlers import incident
from trimaran.server.running_calls import Abandoned, RunningCalls, timed_out

if TYPE_CHECKING:
    from trimaran.server.server import Server


# Notifications, and their bytes, that wait for a client which does not read. Further ones are dropped.
_UNSENT_MOST: Final = 1000
_UNSENT_BYTES: Final = 8 * 1024 * 1024  # as much as the stream of one call may carry over HTTP


class LegacyHalf(Protocol):
    """The older revisions on a channel."""

    async def admit(self, call: IncomingCall) -> tuple[Voice, Callable[[IncomingCall], Awaitable[Any]]]: ...
    async def hear(self, notice: IncomingNotification) -> None: ...
    def take_answer(self, answer: IncomingReply) -> None: ...
    def batch_allowed(self) -> bool: ...
    def close(self) -> None: ...


@final
class _Sink:
    __slots__ = ("_write",)

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._write = write

    def send(self, data: bytes) -> Awaitable[None]:
        return self._write(data)


@final
class Duplex:
    """`write` puts one message on the channel, also without awaiting; `legacy` makes the part for older revisions."""

    def __init__(
        self,
        server: Server,
        write: Callable[[bytes], Awaitable[None]],
        *,
        legacy: Callable[[Duplex], LegacyHalf] | None = None,
        principal: Any = None,
    ) -> None:
        self.server = server
        self.write = write
        self.principal = principal
        """The caller of every call from now on."""
        self.sink: _Sink = _Sink(write)
        self.running_calls: RunningCalls = RunningCalls(server.limits)
        self.reader: MessageReader = server.runtime.dispatcher.reader(legacy=legacy is not None)
        self.legacy: LegacyHalf | None = legacy(self) if legacy is not None else None
        self._unsent = self._unsent_bytes = 0
        self._waiting: list[bytes] | None = None
        self._starting: dict[RequestId, bool] = {}
        """Calls whose task has not begun, and whether they are cancelled (R67)."""
        self._calls: dict[RequestId, Exchange] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_crowded(self) -> bool:
        """Whether as many calls of one client are at work, or wait to be read, as may be."""
        return len(self._tasks) + len(self._waiting or ()) >= self.server.limits.max_concurrent_calls_per_session

    def feed(self, data: bytes) -> None:
        """Take one message from the channel. Never raises: a fault in the message is answered on the channel."""
        if self._waiting is not None:
            self._waiting.append(data)
            return
        try:
            message = self.reader.read(data)
        except ProtocolError as error:
            self._spawn(self.write(self.server.runtime.writer.error(error.request_id, error)))
            return
        if isinstance(message, IncomingCall):
            message.principal = self.principal
            if len(self._tasks) >= self.server.limits.max_concurrent_calls:
                busy = ProtocolError.internal_error("the server is busy: too many calls are at work")
                self._spawn(self.write(self.server.runtime.writer.error(message.id, busy)))
                return
            if message.method == "initialize" and message.peer is None:
                # Messages behind the handshake wait for it.
                self._waiting = []
                self._spawn(self._open(message))
            else:
                self._starting[message.id] = False
                self._spawn(self._serve(message, self.write))
        elif isinstance(message, IncomingNotification):
            self._hear(message)
        elif isinstance(message, IncomingReply):
            if self.legacy is not None:
                self.legacy.take_answer(message)
        else:
            self._spawn(self._batch(message))

    async def answer(self, data: bytes) -> bytes | None:
        """Serve one modern request in the caller's own task, and return the reply instead of writing it.

        For a client in the same process: a call that finishes at once costs no task and no queue. The handler runs in
        the client's task, so giving up the wait cancels it.
        """
        try:
            message = self.reader.read(data)
        except ProtocolError as error:
            return self.server.runtime.writer.error(error.request_id, error)
        if not isinstance(message, IncomingCall):
            return None
        message.principal = self.principal
        voice: Voice = self.server.runtime.voice
        exchange = Exchange(message, self.sink, voice)
        try:
            coroutine: Any = self.server.runtime.dispatcher.handlers[message.method](message)
            try:
                awaited = coroutine.send(None)
            except StopIteration as done:
                exchange.end()
                return voice.result(message, done.value)
            return await self._carry(exchange, coroutine, awaited)
        except ProtocolError as error:
            exchange.end()
            return voice.error(message, error)
        except Exception as error:
            number = incident(message.method, error)
            return voice.error(message, ProtocolError.internal_error(f"internal error (error {number})"))

    async def _carry(self, exchange: Exchange, coroutine: Any, awaited: Any) -> bytes | None:
        """Run the rest of a call that did not finish at once, in its caller's task."""
        call = exchange.call
        self._calls[call.id] = exchange
        try:
            result = await self.running_calls.carry(exchange, coroutine, awaited)
            return None if exchange.cancelled else exchange.voice.result(call, result)
        except Abandoned:
            return None
        except asyncio.CancelledError:
            exchange.cancelled = True  # a handler's thread looks here
            raise
        finally:
            exchange.end()
            self._calls.pop(call.id, None)

    async def _open(self, call: IncomingCall) -> None:
        try:
            await self._serve(call, self.write)
        finally:
            waiting, self._waiting = self._waiting or [], None
            for data in waiting:
                self.feed(data)

    def _hear(self, notice: IncomingNotification) -> None:
        if notice.method == "notifications/cancelled":
            request_id, reason = read_cancellation(notice)
            exchange = None if request_id is None else self._calls.get(request_id)
            if exchange is not None:
                exchange.cancel(reason)
            elif request_id is not None and request_id in self._starting:
                self._starting[request_id] = True
        elif self.legacy is not None:
            # At once, not in a task: the next message may depend on it.
            coroutine = self.legacy.hear(notice)
            try:
                awaited = coroutine.send(None)  # pyright: ignore[reportAttributeAccessIssue]
            except StopIteration:
                return
            from trimaran.server.running_calls import resume

            self._spawn(_whole(resume(coroutine, awaited)))  # pyright: ignore[reportArgumentType]

    async def _serve(self, call: IncomingCall, write: Callable[[bytes], Awaitable[None]]) -> None:
        if self._starting.pop(call.id, False):
            return
        voice: Voice = self.server.runtime.voice
        try:
            if call.peer is None:
                assert self.legacy is not None  # the reader refuses legacy messages otherwise
                voice, serve = await self.legacy.admit(call)
            else:
                serve = self.server.runtime.dispatcher.handlers[call.method]
            if call.id in self._calls:
                raise ProtocolError.invalid_request(f"a request with the id {call.id!r} is still being served")
            reply = await self._run(call, voice, serve)
        except ProtocolError as error:
            reply = voice.error(call, error)
        except Exception as error:
            number = incident(call.method, error)
            reply = voice.error(call, ProtocolError.internal_error(f"internal error (error {number})"))
        if reply is not None:
            await write(reply)

    async def _run(
        self, call: IncomingCall, voice: Voice, serve: Callable[[IncomingCall], Awaitable[Any]]
    ) -> bytes | None:
        exchange = Exchange(call, self.sink, voice)
        exchange.on_stuck = lambda: self._spawn(self.write(voice.error(call, timed_out(call))))
        self._calls[call.id] = exchange
        session = call.session
        if session is not None:
            session.calls[call.id] = exchange
        try:
            result = await self.running_calls.run(exchange, serve)
            return None if exchange.cancelled or exchange.is_answered else voice.result(call, result)
        except ProtocolError as error:
            return None if exchange.is_answered else voice.error(call, error)
        except Abandoned:
            return None
        finally:
            exchange.end()
            self._calls.pop(call.id, None)
            if session is not None:
                session.calls.pop(call.id, None)

    async def _batch(self, batch: Batch) -> None:
        if self.legacy is None or not self.legacy.batch_allowed():
            refusal = ProtocolError.invalid_request("batches exist in 2025-03-26 only; send one message at a time")
            await self.write(self.server.runtime.writer.error(None, refusal))
            return
        try:
            check_batch(batch)
        except ProtocolError as error:
            await self.write(self.server.runtime.writer.error(None, error))
            return
        replies: list[bytes] = []

        async def collect(data: bytes) -> None:
            replies.append(data)

        async def answer(raw: bytes) -> None:
            try:
                message = self.reader.read(raw)
            except ProtocolError as error:
                await collect(self.server.runtime.writer.error(error.request_id, error))
                return
            if isinstance(message, IncomingCall):
                message.principal = self.principal
                await self._serve(message, collect)
            elif isinstance(message, IncomingNotification):
                self._hear(message)
            elif isinstance(message, IncomingReply) and self.legacy is not None:
                self.legacy.take_answer(message)

        await asyncio.gather(*(answer(bytes(raw)) for raw in batch.messages))
        if replies:
            await self.write(b"[" + b",".join(replies) + b"]")

    def put(self, data: bytes) -> None:
        """Put a message on the channel without waiting; dropped if too many wait already."""
        if self._unsent < _UNSENT_MOST and (not self._unsent or self._unsent_bytes + len(data) <= _UNSENT_BYTES):
            # Counted now: many more may come before the task begins.
            self._unsent += 1
            self._unsent_bytes += len(data)
            self._spawn(self._put(data))

    async def _put(self, data: bytes) -> None:
        try:
            await self.write(data)
        finally:
            self._unsent -= 1
            self._unsent_bytes -= len(data)

    def _spawn(self, awaitable: Awaitable[None]) -> None:
        task = asyncio.ensure_future(awaitable if asyncio.iscoroutine(awaitable) else _whole(awaitable))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, patience: float = 5.0) -> None:
        """End the listen streams, let calls finish for a while, cancel the rest."""
        for exchange in tuple(self._calls.values()):
            if exchange.on_close is not None:
                exchange.on_close()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=patience)
        self.running_calls.cancel_all()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=0.3)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=1.0)
        if self.legacy is not None:
            self.legacy.close()


async def _whole(awaitable: Awaitable[None]) -> None:
    await awaitable
