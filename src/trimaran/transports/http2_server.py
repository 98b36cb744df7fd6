"""HTTP/2, where a TLS handshake has chosen it: each stream of a connection is one request to the engine.

The library h2 (the extra `http2`) reads and writes frames and refuses what breaks RFC 9113. This module decides how much one
connection may take:

- **A client that does not read** makes us wait. The output of a stream stays in its queue while its window, the window of
  the connection or the socket is full. A call waits for its queue, and the next request waits while much is unsent.
- **A client that sends without asking for anything** runs out of credit. Received bytes cost credit; requests, bodies,
  answers, sent data and time earn it. Requests that are reset before their answer are counted apart. So floods of pings,
  settings, window updates, empty, tiny or unfinished frames and of reset requests all end with ENHANCE_YOUR_CALM.
- **Unfinished requests** are bounded in number, in the bytes of all bodies, and in time. A body counts until its call
  begins.
- **Many small frames** are read in turns, so that other connections are served in between.

HTTP/2 without TLS, server push and priorities are left out on purpose.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast, final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError as H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame

from trimaran.errors import ProtocolError
from trimaran.protocol.http1_framing import TOO_LARGE
from trimaran.server.handlers import logger

from .engine import BUSY, JSON, Engine, HttpRequestHead, Pairs, has_body
from .http1_server import HIGH_WATER, IDLE_SECONDS, LINGER_QUIET, LINGER_SECONDS, READ_SECONDS

if TYPE_CHECKING:
    from asyncio import Task

    from .endpoints import Endpoints
    from .http1_server import Http1Server

_MAX_STREAMS: Final = 128  # at once on one connection: nginx's
_MAX_FIELDS: Final = 100  # as for HTTP/1.1
_WINDOW: Final = 1 << 20  # bytes of bodies on their way to us, for a stream and for the connection
_BODIES: Final = 4  # times max_body_bytes: what the unfinished bodies of one connection may take
_STREAM_HIGH: Final = 64 * 1024  # unsent bytes of a stream before its call waits
_TOGETHER: Final = 8  # requests that are begun before it is seen how much is unsent
_PIECE: Final = 256  # bytes that are read at once, at most 28 frames; more while nothing but a large frame comes
_LARGE_PIECE: Final = 8192
_TURN_SECONDS: Final = 0.001  # of reading, after which others get their turn
_SLOW_SECONDS: Final = 0.02  # until the next turn of a connection that has used up most of its credit
_TABLE: Final = 4096  # bytes of the header table that we keep for the client, even if it allows more

_CREDIT: Final = 32 * 1024  # bytes that a client may send without asking for anything
_CREDIT_PER_BYTE: Final = 2  # of a body: ten bytes and more in a frame pay for it
_CREDIT_PER_ANSWER: Final = 2048
_CREDIT_PER_SENT: Final = 64  # for each frame of data that we send, beside a quarter of it: it is acknowledged
_CREDIT_PER_SECOND: Final = 256
_RESETS: Final = 200  # requests that may be reset before they are answered; each answer and each second allow one more

# It writes every header it reads or writes to its log, credentials too.
_HPACK_LOG: Final = logging.getLogger("hpack")
if _HPACK_LOG.level == logging.NOTSET:
    _HPACK_LOG.setLevel(logging.WARNING)

# Fields are looked at by `_Stream.read_head`: h2 takes long over them, and ends the connection for the fault of one request.
_CONFIG: Final = H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"(?![ \t])[^\x00\r\n]*(?<![ \t])")
_PSEUDO: Final = {b":method": "method", b":scheme": "scheme", b":path": "path", b":authority": "authority"}
# RFC 9113, 8.2.2: these are about a connection, which has other means here.
_OF_CONNECTIONS: Final = {"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"}
_ONCE: Final = {"host", "content-length"}
_NAMES: Final[dict[bytes, str]] = {}
_MAX_NAMES: Final = 1024  # real clients have few; the bound is for hostile ones


class _Goodbye(Event):
    """A GOAWAY of the client's."""

    def __init__(self, error_code: int) -> None:
        self.error_code = error_code


@final
class _Frames(H2Connection):
    """h2, but for this: it takes a GOAWAY for the end of both directions, and drops the answers that are still to come."""

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        return [], [_Goodbye(frame.error_code)]


@final
class Http2Connection(asyncio.Protocol):
    """One connection: its streams, and their limits."""

    _transport: asyncio.Transport = cast("Any", None)
    _is_paused = False
    _is_ending = False
    """It takes no more requests, answers those it has, and closes."""
    _is_flushing = False
    _is_waiting = False
    """Reading pauses while others are served."""
    _gone = False
    _lingers_since: float | None = None
    _stuck = (0, 0.0)
    _last_id = 0
    _bodies = 0
    """Bytes of requests that are not served yet."""

    def __init__(self, server: Http1Server, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.loop = loop
        self.engine: Engine | Endpoints = server.engine
        self._since = self._credited = server.now
        self._credit = _CREDIT
        self._resets = _RESETS
        self._streams: dict[int, _Stream] = {}
        """Streams whose request is not answered, or whose answer is not sent."""
        self._queues: dict[int, _Stream] = {}
        """Streams with something to send."""
        self._ready: deque[_Stream] = deque()
        self._backlog = b""
        limit = server.max_header_bytes
        self.h2: _Frames = _Frames(_CONFIG)
        connection = self.h2
        connection.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: _MAX_STREAMS,
                SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
                # By RFC 9113 a field counts 32 bytes more than it has. Up to twice the limit a refusal is 431.
                SettingCodes.MAX_HEADER_LIST_SIZE: 2 * limit + 32 * _MAX_FIELDS,
                SettingCodes.ENABLE_CONNECT_PROTOCOL: 0,
            },
        )
        connection.decoder.max_header_list_size = 2 * limit + 32 * _MAX_FIELDS

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        raw = self._transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.connections.add(self)
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(_WINDOW)
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self.server.connections.discard(self)
        self._ready.clear()
        self._queues.clear()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.lose()

    def data_received(self, data: bytes) -> None:
        if self._lingers_since is not None:
            self._since = self.server.now
        elif self._is_waiting:
            self._backlog += data  # at most the bytes that were read before the pause
        else:
            self._read(data)

    def eof_received(self) -> bool:
        # A client that ends its side is gone: it cannot even reset a stream.
        return False

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if not self._gone:
            self._flush()

    # Reading

    def _read(self, data: bytes) -> None:
        until = perf_counter() + _TURN_SECONDS
        start, size = 0, _PIECE
        try:
            while start < len(data):
                piece = data[start : start + size]
                start += size
                events = self.h2.receive_data(piece)
                size = _PIECE if events else min(2 * size, _LARGE_PIECE)
                self._credit -= len(piece)
                for event in events:
                    act = _ACTS.get(type(event))
                    if act is not None:
                        act(self, event)
                if (self._credit < 0 or self._resets < 0) and not self._has_rested():
                    self._end(ErrorCodes.ENHANCE_YOUR_CALM, "it sends much, and waits for few answers")
                    return
                if perf_counter() > until and not self._transport.is_closing():
                    self._wait_for_turn(data[start:])
                    break
        except H2Error as error:
            # h2 has written the GOAWAY.
            self._end(None, str(error))
            return
        self._flush()

    def _wait_for_turn(self, data: bytes) -> None:
        """Keep the rest until others are served. The pause also stops uvloop from reading the next 64 KiB."""
        self._backlog = data
        self._is_waiting = True
        self._transport.pause_reading()
        self.loop.call_later(0 if self._credit > _CREDIT // 2 else _SLOW_SECONDS, self._read_on)

    def _read_on(self) -> None:
        data, self._backlog = self._backlog, b""
        self._is_waiting = False
        if not self._transport.is_closing() and self._lingers_since is None:
            self._transport.resume_reading()
            self._read(data)

    def _has_rested(self) -> bool:
        """Add the credit for the time that has passed. Asked only when no credit is left."""
        now = self.loop.time()
        passed, self._credited = now - self._credited, now
        self.earn(int(passed * _CREDIT_PER_SECOND))
        self._resets = min(_RESETS, self._resets + int(passed))
        return self._credit >= 0 and self._resets >= 0

    def earn(self, credit: int, answers: int = 0) -> None:
        self._credit = min(_CREDIT, self._credit + credit)
        self._resets = min(_RESETS, self._resets + answers)

    def _open(self, event: RequestReceived) -> None:
        number = event.stream_id
        if self._is_ending or len(self._streams) >= _MAX_STREAMS:
            # Reset streams count until their calls have ended.
            self.h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            return
        self._last_id = number
        stream = self._streams[number] = _Stream(self, number)
        try:
            stream.read_head(cast("list[tuple[bytes, bytes]]", event.headers), self.server.max_header_bytes)
        except ProtocolError as error:
            stream.refuse(error)
            return
        self.earn(stream.head_size)
        if stream.headers.get("expect", "").lower() == "100-continue":
            self.h2.send_headers(number, [(":status", "100")])

    def _take(self, event: DataReceived) -> None:
        number, data = event.stream_id, event.data or b""
        if event.flow_controlled_length:
            self.h2.acknowledge_received_data(event.flow_controlled_length, number)
        self.earn(_CREDIT_PER_BYTE * len(data))
        stream = self._streams.get(number)
        if stream is None:
            return
        if stream.is_whole:
            stream.since = self.server.now
            return
        stream.body += data
        self._bodies += len(data)
        limit = self.engine.max_body_bytes
        if len(stream.body) > limit:
            self.release(stream)
            self._start(stream, TOO_LARGE)
        elif self._bodies > _BODIES * limit:
            stream.refuse(_TOO_MUCH)
        else:
            self.engine.bodies.count(stream, len(stream.body))

    def _end_request(self, event: StreamEnded) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        stream.has_ended = True
        self.settle(stream)
        if not stream.is_whole:
            stream.is_whole = True
            self._ready.append(stream)

    def _lose(self, event: StreamReset) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            if not stream.is_started:
                self._resets -= 1
            self._drop(stream)

    def _widen(self, event: WindowUpdated | RemoteSettingsChanged) -> None:
        """The window is wider: `_flush`, at the end of reading, sends more."""
        if isinstance(event, RemoteSettingsChanged) and self.h2.encoder.header_table_size > _TABLE:
            self.h2.encoder.header_table_size = _TABLE

    def _hear_goodbye(self, event: _Goodbye) -> None:
        """A GOAWAY forbids us to open streams, which we never do. The client closes when it has its answers."""
        if event.error_code != ErrorCodes.NO_ERROR:
            self._transport.close()

    # Serving

    def _start_ready(self) -> None:
        """Serve the requests that are complete, unless the client leaves many of our answers unread."""
        if self._is_paused or self._unsent() >= HIGH_WATER:
            return
        for _ in range(min(_TOGETHER, len(self._ready))):
            stream = self._ready.popleft()
            if stream.number in self._streams and not stream.is_answered:
                body = bytes(stream.body)
                self.release(stream)
                self._start(stream, body)
        if self._ready:
            self.flush_soon()  # the rest starts when the output of these is known

    def _start(self, stream: _Stream, body: bytes) -> None:
        stream.is_running = True
        stream.task = self.loop.create_task(stream.serve(body))

    def _unsent(self) -> int:
        return sum(stream.size for stream in self._queues.values())

    def reset(self, stream: _Stream, code: ErrorCodes) -> None:
        self.h2.reset_stream(stream.number, code)
        self._drop(stream)
        self.flush_soon()

    def _drop(self, stream: _Stream) -> None:
        """Drop a stream that the client does not read."""
        self._queues.pop(stream.number, None)
        stream.lose()
        self.settle(stream)

    def release(self, stream: _Stream) -> None:
        """Read no more of its request, and drop its body."""
        stream.is_whole = True
        if stream.body:
            self._bodies -= len(stream.body)
            self.engine.bodies.remove(stream)
            stream.body = bytearray()

    def settle(self, stream: _Stream) -> None:
        """Forget a stream once its call has ended and its request and answer are complete, or the client is gone."""
        if stream.is_running or not (stream.is_gone or (stream.is_sent and stream.has_ended)):
            return
        if self._streams.pop(stream.number, None) is not None and not self._streams:
            self._since = self.server.now
            if self._is_ending:
                self._close()

    # Sending

    def queue(self, stream: _Stream) -> None:
        self._queues[stream.number] = stream
        self.flush_soon()

    def flush_soon(self) -> None:
        """Send it together with all that is written before the loop turns."""
        if not self._is_flushing and not self._gone:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if self._gone:
            return
        is_under_way = True
        while is_under_way:
            is_under_way = bool(self._queues) and not self._is_paused and self._pump()
            self._write()
        self._start_ready()

    def _pump(self) -> bool:
        """One frame of each stream that may send one. False if none may."""
        connection = self.h2
        has_sent = False
        for stream in tuple(self._queues.values()):
            size = min(
                stream.size, connection.max_outbound_frame_size, connection.local_flow_control_window(stream.number)
            )
            if size <= 0 and stream.size:
                continue
            is_last = stream.is_answered and size == stream.size
            if size or is_last:
                connection.send_data(stream.number, stream.take(size), end_stream=is_last)
                self.earn(_CREDIT_PER_SENT + size // 4)
                has_sent = True
            if is_last:
                self.finish(stream)
            elif not stream.size:
                del self._queues[stream.number]
        return has_sent

    def finish(self, stream: _Stream) -> None:
        """Its answer is sent. If its request is incomplete, the rest is read and dropped for a while.

        RFC 9113, 8.1, has a reset for that, but some clients lose the answer to it.
        """
        stream.is_sent = True
        stream.since = stream.lingers_since = self.server.now
        self._queues.pop(stream.number, None)
        self.settle(stream)

    def _write(self) -> None:
        data = self.h2.data_to_send()
        if data:
            self._transport.write(data)

    # Ending

    def _end(self, code: ErrorCodes | None, why: str) -> None:
        """End the connection for its fault, and tell the client."""
        logger.debug("HTTP/2 with %s ended: %s", self.address, why)
        if code is not None:
            self.h2.close_connection(code)
        self._write()
        self._lingers_since = self._since = self.server.now
        self._backlog = b""
        if not self._transport.is_closing():
            self._transport.write_eof()
        streams, self._streams = self._streams, {}
        self._queues.clear()
        self._ready.clear()
        for stream in streams.values():
            stream.lose()

    def _close(self) -> None:
        """Send GOAWAY, and close. After the last answer: clients that use h2 read nothing behind a GOAWAY."""
        if not self._gone and self._lingers_since is None and not self._transport.is_closing():
            self.h2.close_connection(last_stream_id=self._last_id)
            self._write()
            self._transport.close()

    def check_time(self, now: float) -> None:
        since = self._lingers_since
        if since is not None:
            if now - self._since > LINGER_QUIET or now - since > LINGER_SECONDS:
                self._transport.abort()
            return
        size = self._transport.get_write_buffer_size()
        if size != self._stuck[0]:
            self._stuck = (size, now)
        if size and now - self._stuck[1] > IDLE_SECONDS:
            self._transport.abort()
            return
        for stream in tuple(self._streams.values()):
            stream.check_time(now)
        if not self._streams and now - self._since > IDLE_SECONDS:
            self.end_soon()

    def end_soon(self) -> None:
        """Take no more streams, and close when those that are open have ended."""
        self._is_ending = True
        if not self._streams:
            self._close()

    def abort(self) -> None:
        for stream in self._streams.values():
            if stream.task is not None:
                stream.task.cancel()
        self._transport.abort()

    @property
    def address(self) -> str | None:
        peer = self._transport.get_extra_info("peername")
        return peer[0] if isinstance(peer, tuple) else None  # pyright: ignore[reportUnknownVariableType]


_ACTS: Final[dict[type[Event], Callable[[Http2Connection, Any], None]]] = {
    RequestReceived: Http2Connection._open,  # pyright: ignore[reportPrivateUsage]
    DataReceived: Http2Connection._take,  # pyright: ignore[reportPrivateUsage]
    StreamEnded: Http2Connection._end_request,  # pyright: ignore[reportPrivateUsage]
    StreamReset: Http2Connection._lose,  # pyright: ignore[reportPrivateUsage]
    WindowUpdated: Http2Connection._widen,  # pyright: ignore[reportPrivateUsage]
    RemoteSettingsChanged: Http2Connection._widen,  # pyright: ignore[reportPrivateUsage]
    _Goodbye: Http2Connection._hear_goodbye,  # pyright: ignore[reportPrivateUsage]
}


@final
class _Stream:
    """One request, and the responder that answers it."""

    scheme = "https"
    task: Task[None] | None = None
    is_running: bool = False
    lingers_since: float = 0.0
    """Since when the rest of its request is dropped."""
    is_whole = False
    """The request is complete, or is not read further."""
    has_ended = False
    """The client has ended its side."""
    is_started: bool = False
    """The answer has begun."""
    is_answered: bool = False
    """The answer is complete."""
    is_sent = False
    """The whole answer has been handed over."""
    is_gone: bool = False
    method: str = ""
    path: str = ""
    query: str = ""
    head_size: int = 0
    size: int = 0
    """Bytes that wait to be sent."""
    _drained: asyncio.Future[None] | None = None
    _watchers: set[Callable[[], None]] | None = None
    _stuck = (0, 0.0)

    def __init__(self, connection: Http2Connection, number: int) -> None:
        self._connection = connection
        self.number = number
        self.headers: dict[str, str] = {}
        self.body: bytearray = bytearray()
        self.since: float = connection.server.now
        self._unsent: deque[memoryview] = deque()

    # The request

    def read_head(self, fields: list[tuple[bytes, bytes]], limit: int) -> None:
        """Take the head.

        Raises:
            ProtocolError: it is no request that we serve.
        """
        headers = self.headers
        self.head_size = sum([len(name) + len(value) + 4 for name, value in fields])
        if len(fields) > _MAX_FIELDS:
            raise _malformed(f"more than {_MAX_FIELDS} header fields", 431)
        if self.head_size > limit:
            raise ProtocolError.invalid_request(
                f"the request's head is larger than {limit} bytes (max_header_bytes)", status=431
            )
        about: dict[str, str] = {}
        for name, value in fields:
            if _VALUE.fullmatch(value) is None:
                raise _malformed("the value of a field has a character that is not allowed")
            text = value.decode("latin-1")
            if name[:1] == b":":
                part = _PSEUDO.get(name)
                if part is None or part in about or headers:
                    raise _malformed("a pseudo-header that is unknown, repeated or late")
                about[part] = text
                continue
            key = _NAMES.get(name) or _read_name(name)
            if key in headers:
                if key in _ONCE:
                    raise _malformed(f"{key} is given twice")
                text = f"{headers[key]}, {text}"
            headers[key] = text
        self._read_target(about)

    def _read_target(self, about: dict[str, str]) -> None:
        headers = self.headers
        self.method, target = about.get("method", ""), about.get("path", "")
        if target[:1] != "/" or "#" in target or not target.isascii() or " " in target:
            raise _malformed("the target is not a path that begins with a slash")
        if not self.method or about.get("scheme") not in ("https", "http"):
            raise _malformed("no method, or no scheme that is served")
        if headers.get("te", "trailers") != "trailers":
            raise _malformed("the field te may only be trailers")
        self.path, _, self.query = target.partition("?")
        host = about.get("authority") or headers.get("host")
        if not host or headers.get("host", host) != host:
            raise _malformed("the host is missing, or two are named")
        headers["host"] = host

    async def serve(self, body: bytes) -> None:
        engine = self._connection.engine
        request = HttpRequestHead(self.method, self.path, cast("Any", self.headers), self)
        request.query = self.query
        try:
            refused = engine.admit(request)
            if refused is not None:
                await refused
            elif body is TOO_LARGE:
                await engine.too_large(request)
            else:
                await engine.dispatch(request, body)
        finally:
            self.is_running = False
            if self.is_answered or self.is_gone:
                self._connection.settle(self)
            else:
                self._connection.reset(self, ErrorCodes.INTERNAL_ERROR)

    def refuse_body(self, error: ProtocolError) -> None:
        self.refuse(error)

    def refuse(self, error: ProtocolError) -> None:
        self._connection.release(self)
        headers = BUSY if error.status == 503 else JSON
        self.reply(error.status, headers, self._connection.engine.writer.error(None, error))

    def check_time(self, now: float) -> None:
        if self.is_sent:
            if now - self.since > LINGER_QUIET or now - self.lingers_since > LINGER_SECONDS:
                self._connection.reset(self, ErrorCodes.NO_ERROR)
            return
        if not self.is_whole and now - self.since > READ_SECONDS:
            self.refuse(ProtocolError.invalid_request("the request did not arrive in time", status=408))
        if self.size != self._stuck[0]:
            self._stuck = (self.size, now)
        if self.size and now - self._stuck[1] > IDLE_SECONDS:
            self._connection.reset(self, ErrorCodes.ENHANCE_YOUR_CALM)

    def lose(self) -> None:
        """The client is gone, or wants no answer."""
        self.is_gone = True
        self._connection.release(self)
        self.size = 0
        self._unsent.clear()
        self._wake()
        watchers, self._watchers = self._watchers, None
        for callback in watchers or ():
            callback()

    # The answer

    @property
    def address(self) -> str | None:
        return self._connection.address

    def _send_head(self, status: int, headers: Pairs, *, is_all: bool) -> None:
        for name, value in headers:
            if "\r" in value or "\n" in value or "\0" in value:
                raise ProtocolError.internal_error(
                    f"the header {name} has a line break or a null byte in its value: remove it"
                )
        connection = self._connection
        connection.earn(_CREDIT_PER_ANSWER, 1)
        self.is_started = True
        date = connection.server.date[len("date: ") : -2].decode()
        connection.h2.send_headers(self.number, [(":status", str(status)), *headers, ("date", date)], end_stream=is_all)

    def reply(self, status: int, headers: Pairs, body: bytes) -> None:
        if self.is_gone or self.is_answered:
            return
        length = [] if status in (204, 304) else [("content-length", str(len(body)))]
        self._begin(status, [*headers, *length], is_all=not body or not has_body(self.method, status))
        if not self.is_answered:
            self.is_answered = True
            self._put(body)

    def _begin(self, status: int, headers: Pairs, *, is_all: bool) -> None:
        self._send_head(status, headers, is_all=is_all)
        if is_all:
            self.is_answered = True
            self._connection.finish(self)
        self._connection.flush_soon()

    async def stream_start(self, status: int, headers: Pairs) -> None:
        if not self.is_gone:
            self._begin(status, headers, is_all=not has_body(self.method, status))

    async def stream_chunk(self, data: bytes) -> bool:
        if self.is_gone or self.is_answered:
            return not self.is_gone
        self._put(data)
        while self.size > _STREAM_HIGH:
            if self._drained is None:
                self._drained = self._connection.loop.create_future()
            await asyncio.shield(self._drained)
        return not self.is_gone

    async def stream_end(self) -> None:
        if not self.is_gone and not self.is_answered:
            self.is_answered = True
            self._connection.queue(self)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        if self.is_gone:
            self._connection.loop.call_soon(callback)
            return lambda: None
        if self._watchers is None:
            self._watchers = set()
        self._watchers.add(callback)
        watchers = self._watchers
        return lambda: watchers.discard(callback)

    def _put(self, data: bytes) -> None:
        self._unsent.append(memoryview(data))
        self.size += len(data)
        self._connection.queue(self)

    def take(self, size: int) -> bytes:
        """Take the next bytes of the queue."""
        parts: list[memoryview] = []
        missing = size
        while missing:
            part = self._unsent.popleft()
            if len(part) > missing:
                self._unsent.appendleft(part[missing:])
                part = part[:missing]
            missing -= len(part)
            parts.append(part)
        self.size -= size
        if self.size <= _STREAM_HIGH:
            self._wake()
        return b"".join(parts)

    def _wake(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)


def _read_name(name: bytes) -> str:
    if _NAME.fullmatch(name) is None:
        raise _malformed("a field has no proper name")
    key = name.decode()
    if key in _OF_CONNECTIONS:
        raise _malformed(f"{key} has no place in HTTP/2")
    if len(_NAMES) < _MAX_NAMES:
        _NAMES[name] = key
    return key


_TOO_MUCH: Final = ProtocolError.invalid_request(
    "the unfinished requests of this connection are too large together; finish some first", status=503
)


def _malformed(reason: str, status: int = 400) -> ProtocolError:
    return ProtocolError.invalid_request(f"malformed HTTP request: {reason}", status=status)
