"""Streams that can be resumed: the event log of a session, and the two kinds of stream that read from it.

Every event of a session has a number within its stream, `<stream>:<number>`. The log holds the last few hundred, up to some MiB.
The standalone stream is `g`. The stream of the n-th call that streams is `r<n>`, with the name of its process before the
number where several processes share the session (see `fleet_sessions`). A client that lost a stream names the last event it
saw, and gets the following ones of that stream. If the log no longer has them, `notifications/replay_truncated` says so, once.

A reader holds only a position in the log, so a client that does not read costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

from trimaran.errors import ProtocolError
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.sse import COMMENT, encode_event, encode_priming
from trimaran.protocol.versions import V2025_11
from trimaran.server.access import at_expiry
from trimaran.server.exchange import SENT
from trimaran.state.byte_budget import ByteBudget
from trimaran.transports.engine import EVENTS, JSON, FixedHeaders, HttpRequestHead, Pairs

if TYPE_CHECKING:
    from trimaran.protocol.outbound import Writer

    from .session import Session

STANDALONE: Final = "g"
_LONGEST_TAG: Final = 200
_NAME: Final = re.compile(r"r([0-9a-f]{12})-[0-9]{1,12}-([is])([A-Za-z0-9_-]{0,200})(?:\.([A-Za-z0-9_-]{1,100}))?")
_INTEGER: Final = re.compile(r"-?[0-9]{1,199}")


class LogCopy(Protocol):
    """The copy of a log that other processes can read and resume. Its methods must not wait."""

    name: str
    """This process, as part of its streams' names."""

    def appended(self, stream: str, number: int, data: bytes) -> None: ...
    def ended(self, stream: str) -> None: ...


@final
class EventLog:
    """The recent events of one session, over all its streams. `mirror` is told of them, too.

    Args:
        size: The most events in the log.
        max_bytes: Their bytes. The newest event stays, whatever its size.
        budget: The limit for the logs of all sessions together.
        mirror: Where they are copied to.
    """

    def __init__(self, size: int, max_bytes: int, budget: ByteBudget, mirror: LogCopy | None = None) -> None:
        self._mirror = mirror
        self._size = size
        self._max_bytes = max_bytes
        self._budget = budget
        self._events: deque[tuple[str, int, bytes]] = deque()
        self.held_bytes: int = 0
        self._last: dict[str, int] = {}
        self._requests: dict[str, RequestId] = {}
        """Which request each stream answers."""
        self._open: set[str] = set()
        budget.join(self)
        # With others: a process may forget a session and meet it again, and no name may come twice.
        self._calls = 0 if mirror is None else secrets.randbelow(2**32)

    def open_call(self, id: RequestId, awaited: str = "") -> str:
        """The name of a new stream for the answer to this request."""
        self._calls += 1
        name = f"r{self._calls}" if self._mirror is None else name_stream(self._mirror.name, self._calls, id, awaited)
        self._last[name] = 0
        self._requests[name] = id
        self._open.add(name)
        if len(self._last) > 2 * self._size + len(self._open):
            self._forget()
        return name

    def can_be_resumed(self, stream: str) -> bool:
        return self._mirror is None or "-" in stream

    def close_call(self, stream: str) -> None:
        self._open.discard(stream)
        if self._mirror is not None and self.can_be_resumed(stream):
            self._mirror.ended(stream)

    def leave_call(self, stream: str) -> None:
        """This process adds no more events, and the stream has not ended: another process continues it."""
        self._open.discard(stream)

    def is_open(self, stream: str) -> bool:
        """Whether the stream of a call will have more events."""
        return stream in self._open

    def append(self, stream: str, data: bytes) -> int:
        number = self._last.get(stream, 0) + 1
        self._last[stream] = number
        self._events.append((stream, number, data))
        self.held_bytes += len(data)
        while len(self._events) > self._size or (self.held_bytes > self._max_bytes and len(self._events) > 1):
            self._drop()
        self._budget.grew(len(data))
        if self._mirror is not None and self.can_be_resumed(stream):
            self._mirror.appended(stream, number, data)
        return number

    def halve(self) -> None:
        """Give up the older half of the bytes, so that all sessions together fit."""
        most = self.held_bytes // 2
        while self._events and self.held_bytes > most:
            self._drop()

    def _drop(self) -> None:
        self.held_bytes -= len(self._events.popleft()[2])

    def last(self, stream: str) -> int:
        return self._last.get(stream, 0)

    def request(self, stream: str) -> RequestId | None:
        """The request that the stream of a call answers."""
        return self._requests.get(stream)

    def knows(self, stream: str) -> bool:
        return stream == STANDALONE or stream in self._last

    def _forget(self) -> None:
        """Forget finished streams without events in the log."""
        streams = {s for s, _, _ in self._events} | self._open | {STANDALONE}
        self._last = {s: n for s, n in self._last.items() if s in streams}
        self._requests = {s: id for s, id in self._requests.items() if s in streams}

    def since(self, stream: str, number: int) -> tuple[list[tuple[int, bytes]], bool]:
        """The events of a stream after a number, and whether some in between are gone."""
        events = [(n, data) for s, n, data in self._events if s == stream and n > number]
        first = events[0][0] if events else self.last(stream) + 1
        return events, first > number + 1


def name_stream(process: str, number: int, id: RequestId, awaited: str = "") -> str:
    """The name of a call's stream that any process can continue: it names the process of the call, and the request.

    So any process can answer for the stream, even if its process died before it stored an event. A request id that is too
    long makes a stream that cannot be resumed. `awaited` is the task whose end the request waits for: any process can wait
    for that.
    """
    tag = (
        f"i{id}"
        if isinstance(id, int)
        else f"s{urlsafe_b64encode(id.encode('utf-8', 'surrogatepass')).decode().rstrip('=')}"
    )
    if len(tag) > _LONGEST_TAG:
        return f"r{number}"
    return f"r{process}-{number}-{tag}.{awaited}" if awaited else f"r{process}-{number}-{tag}"


class StreamName(NamedTuple):
    """The parts of the name of a call's stream."""

    process: str
    """The process of the call."""
    id: RequestId
    """The id of the request that it answers."""
    awaited: str
    """The task whose end the request waits for; empty for any other request."""


def read_stream_name(name: str) -> StreamName | None:
    """Read the name of a stream; None if it is not such a name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    process, kind, tag, awaited = match.groups()
    if kind == "i":
        return StreamName(process, int(tag), awaited or "") if _INTEGER.fullmatch(tag) else None
    try:
        id = urlsafe_b64decode(tag + "=" * (-len(tag) % 4)).decode("utf-8", "surrogatepass")
    except ValueError:
        return None
    return StreamName(process, id, awaited or "")


def event_id(stream: str, number: int) -> str:
    return f"{stream}:{number}"


def read_event_id(text: str) -> tuple[str, int] | None:
    stream, _, number = text.partition(":")
    return (stream, int(number)) if stream and number.isascii() and number.isdigit() and len(number) < 12 else None


class HttpOutlet:
    """The session's own stream: a log that at most one GET reads at a time."""

    log: EventLog
    """The streams of its calls, too."""

    def __init__(self) -> None:
        self.delivered: int = 0
        """The last event handed to a GET; later ones wait for the next."""
        self._reader: StreamReader | None = None
        self.closed: bool = False
        self.version: str = V2025_11
        self.retry: int | None = None
        self.json_headers: Pairs = []
        self.event_headers: Pairs = []
        self._writer: Writer | None = None

    def _note_delivered(self, number: int) -> None:
        self.delivered = max(self.delivered, number)

    def introduce(self, session: Session, retry: int | None) -> None:
        """Set the session: its revision, and the headers of all replies."""
        self.version = session.peer.version
        self.retry = retry
        self._writer = session.server.runtime.writer
        signed = ("mcp-session-id", session.id)
        self.json_headers = FixedHeaders([*JSON, signed])
        self.event_headers = FixedHeaders([*EVENTS, signed])

    @property
    def is_open(self) -> bool:
        """Whether a reader has it open."""
        return self._reader is not None

    @property
    def is_read_here(self) -> bool:
        return self._reader is not None

    def answer_lost(self, stream: str) -> bytes:
        """The error that a client gets in place of an answer that the log has dropped."""
        assert self._writer is not None
        gone = ProtocolError.internal_error(
            "the call has ended, but its answer is no longer stored: the client came back too late"
        )
        return self._writer.error(self.log.request(stream), gone)

    def close(self) -> None:
        self.closed = True
        if self._reader is not None:
            self._reader.end()


@final
class StandaloneOutlet(HttpOutlet):
    """The outlet of a session that lives in this process alone."""

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self.log = log

    def put(self, data: bytes) -> None:
        self.log.append(STANDALONE, data)
        if self._reader is not None:
            self._reader.wake()

    async def stream(self, request: HttpRequestHead, after: int | None, writer: Writer, engine: Any) -> None:
        """Serve one GET until the session ends, another GET takes over (R123) or the client goes."""
        if self._reader is not None:
            self._reader.end()
        reader = self._reader = StreamReader(request)
        release = reader.attach(engine)
        try:
            await request.stream_start(self.event_headers)
            # An unknown number: its place in the log is lost.
            is_lost = after is not None and not 0 <= after <= self.log.last(STANDALONE)
            position = self.delivered if after is None or is_lost else after
            if is_lost:
                await reader.write(encode_event(truncated(writer, position)))
            elif after is None and self.version >= V2025_11:
                await reader.write(encode_priming(event_id(STANDALONE, position)))
            elif after is None:
                await reader.write(COMMENT)  # the headers must leave now, not with the first event
            while not reader.over and not self.closed:
                events, is_cut = self.log.since(STANDALONE, position)
                if is_cut:
                    await reader.write(encode_event(truncated(writer, position)))
                for number, data in events:
                    await reader.write(encode_event(data, id=event_id(STANDALONE, number)))
                    position = number
                    self._note_delivered(number)
                if is_cut and not events:
                    position = self.log.last(STANDALONE)
                if self.log.last(STANDALONE) <= position:
                    await reader.wait()
        finally:
            release()
            if self._reader is reader:
                self._reader = None
            await request.responder.stream_end()


def truncated(writer: Writer, after: int) -> bytes:
    return writer.notification("notifications/replay_truncated", {"lastEventId": event_id(STANDALONE, after)})


@final
class StreamReader:
    """One client reading a stream: woken by news, by the end, or by its own leaving."""

    def __init__(self, request: HttpRequestHead) -> None:
        self._request = request
        self._waiter: asyncio.Future[None] | None = None
        self._lock = asyncio.Lock()
        self.over: bool = False
        self.has_sent: bool = True

    def attach(self, engine: Any) -> Callable[[], None]:
        """Send signs of life, and end when the client goes or its credentials expire, until the returned function is called."""
        engine.keep_alive.add(self)
        unwatch = self._request.responder.watch(self.end)
        # A client with newer credentials comes back with the last event's id, and misses nothing.
        expiry = at_expiry(self._request.principal, self.end)

        def release() -> None:
            if expiry is not None:
                expiry.cancel()
            unwatch()
            engine.keep_alive.remove(self)

        return release

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self) -> None:
        self.over = True
        self.wake()

    async def wait(self) -> None:
        if self.over:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def pause(self, seconds: float) -> None:
        """Wait a little, or until it is over."""
        until = asyncio.get_running_loop().call_later(max(0.05, seconds), self.wake)
        try:
            await self.wait()
        finally:
            until.cancel()

    async def write(self, chunk: bytes) -> None:
        self.has_sent = True
        async with self._lock:
            if not await self._request.responder.stream_chunk(chunk):
                self.end()

    async def send_comment(self) -> None:
        if not self.over:
            await self.write(COMMENT)


@final
class CallStream:
    """The stream of one call: JSON if nothing but the result comes, else numbered events that outlive the connection.

    A disconnect is not a cancellation on these revisions: the call goes on, and a GET that names the stream's last event
    continues where the connection broke, or where the server ended it (`release`). Every message is numbered and logged
    first, in order, and then written to the present reader.
    """

    name: str | None = None
    """Set once the call streams."""
    finished: bool = False
    has_sent: bool = True
    _has_ids = True
    """Whether the client can resume it."""
    _awaited = ""
    """The task that the call waits for, if it waits for one."""
    _reader: StreamReader | None = None
    _follower: StreamReader | None = None
    _lock: asyncio.Lock | None = None
    _turns = 0
    """Those who write, or wait for their turn."""

    def __init__(self, request: HttpRequestHead, outlet: Any, budget: int, id: RequestId = "") -> None:
        self._outbox: deque[bytes] = deque()
        self._request: HttpRequestHead | None = request
        self._id = id
        self._prefers = request.prefers_stream
        self._outlet = outlet
        self._budget = budget

    @property
    def address(self) -> str | None:
        return None if self._request is None else self._request.caller_address

    @property
    def is_untouched(self) -> bool:
        """Nothing has been sent: the answer may still be plain JSON."""
        return self.name is None

    @property
    def request(self) -> HttpRequestHead | None:
        """The POST it answers, while it does."""
        return self._request

    @property
    def can_be_resumed(self) -> bool:
        return self._outlet.version >= V2025_11

    @contextlib.asynccontextmanager
    async def _in_turn(self) -> AsyncGenerator[None]:
        """One writer at a time: headers, the priming event, then every message in the order it came.

        A writer takes along what came while it wrote. If each message waited for a turn of its own, those for a client that
        does not read would take many times their size.
        """
        self._turns += 1
        try:
            async with self._writing():
                await self._empty_outbox()
                yield
                await self._empty_outbox()
        finally:
            self._turns -= 1

    def _writing(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def _start(self) -> None:
        assert self._request is not None
        log = self._outlet.log
        self.name = name = log.open_call(self._id, self._awaited)
        self._has_ids = log.can_be_resumed(name)
        self._reader = StreamReader(self._request)
        await self._request.stream_start(self._outlet.event_headers)
        if self.can_be_resumed and self._has_ids:
            await self._reader.write(
                encode_priming(event_id(name, self._outlet.log.last(name)), retry=self._outlet.retry)
            )

    def send(self, data: bytes) -> Any:
        if self.finished or len(data) > self._budget:
            return SENT
        self._budget -= len(data)
        return self._send(data)

    async def _send(self, data: bytes) -> None:
        self.has_sent = True
        self._outbox.append(data)
        if self._turns:
            return
        self._turns += 1
        try:
            async with self._writing():
                await self._empty_outbox()
        finally:
            self._turns -= 1

    async def _empty_outbox(self) -> None:
        while self._outbox:
            data = self._outbox.popleft()
            if self.name is None:
                await self._start()
            assert self.name is not None
            number = self._outlet.log.append(self.name, data)
            if self._follower is not None:
                self._follower.wake()
            elif self._reader is not None and not self._reader.over:
                id = event_id(self.name, number) if self._has_ids else None
                await self._reader.write(encode_event(data, id=id))

    async def send_comment(self) -> None:
        if not self.finished and not self._turns:
            async with self._in_turn():
                if self.name is None:
                    await self._start()
                elif self._reader is not None and not self._reader.over:
                    await self._reader.write(COMMENT)

    async def release(self) -> None:
        """Let go of the connection; the client comes back for the rest (SSE polling)."""
        if not self.can_be_resumed:
            return
        async with self._in_turn():
            if self.name is None:
                await self._start()
            if self._has_ids:
                await self._detach()

    async def await_task(self, id: str) -> bool:
        """The call waits for the end of a task: send its client now what it needs to continue elsewhere.

        False if it cannot: it does not come back for a stream, or no other process could serve it.
        """
        async with self._in_turn():
            if self.name is None and self.can_be_resumed and not self.finished:
                self._awaited = id
                await self._start()
        return self.name is not None and read_stream_name(self.name) is not None and self._awaited == id

    async def leave(self) -> None:
        """This process ends, and the call has not: its client comes back for the answer, and another process gives it."""
        async with self._in_turn():
            self.finished = True
            if self.name is not None:
                self._outlet.log.leave_call(self.name)
            if self._follower is not None:
                self._follower.end()
            await self._detach()

    async def _detach(self) -> None:
        request, self._request = self._request, None
        self._reader = None
        if request is not None:
            await request.responder.stream_end()

    async def finish(self, data: bytes | None, status: int, more: Pairs | None = None) -> None:
        """End the call, on whatever stream its client reads now. A plain JSON reply has the headers `more`."""
        if self.finished:
            return
        if self.name is None and not (self._prefers and status == 200 and data is not None):
            self.finished = True
            if self._request is None:
                return
            if data is None:
                await self._request.end_silently(self._outlet.event_headers)
            else:
                await self._request.reply(status, self._outlet.json_headers + (more or []), data)
            return
        if data is not None:
            self._outbox.append(data)
        async with self._in_turn():
            self.finished = True  # not before: then whoever reads the log knows that it is complete
            if self.name is not None:
                self._outlet.log.close_call(self.name)
            if self._follower is not None:
                self._follower.wake()
            await self._detach()

    async def resume(self, request: HttpRequestHead, after: int, engine: Any) -> None:
        """Serve a GET that names this stream: the missed events, then the coming ones, both from the log."""
        assert self.name is not None
        reader = StreamReader(request)
        release = reader.attach(engine)
        try:
            if self._follower is not None:
                self._follower.end()
            self._follower = reader
            async with self._in_turn():
                await self._detach()
            await request.stream_start(self._outlet.event_headers)
            position = after
            while not reader.over:
                # Ask whether it is finished before reading the log: then the log is complete.
                is_finished = self.finished
                for number, data in self._outlet.log.since(self.name, position)[0]:
                    await reader.write(encode_event(data, id=event_id(self.name, number)))
                    position = number
                if is_finished:
                    if self._outlet.log.last(self.name) > position and not reader.over:
                        await reader.write(encode_event(self._outlet.answer_lost(self.name)))
                    break
                if self._outlet.log.last(self.name) <= position and not self.finished:
                    await reader.wait()
        finally:
            release()
            if self._follower is reader:
                self._follower = None
            await request.responder.stream_end()


async def replay(request: HttpRequestHead, outlet: Any, stream: str, after: int) -> None:
    """Serve a GET for the stream of a call that has ended: the missed events, and the end.

    Where nothing is left, the stream of a cancelled call for one, 204 says so: to whoever reads event streams that means "do
    not come back". A stream without events would be asked for again and again.
    """
    missed = outlet.log.since(stream, after)[0]
    if not missed and outlet.log.last(stream) <= after:
        await request.reply(204, [], b"")
        return
    await request.stream_start(outlet.event_headers)
    if not missed:
        await request.responder.stream_chunk(encode_event(outlet.answer_lost(stream)))
    for number, data in missed:
        await request.responder.stream_chunk(encode_event(data, id=event_id(stream, number)))
    await request.responder.stream_end()
