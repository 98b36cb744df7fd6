"""A small HTTP/1.1 server for one thing: carrying the engine, without a layer between.

One asyncio protocol per connection. It reads a whole request, serves it in a task, and answers with one write. A stream is
written chunk by chunk. The writer waits when the client does not read, and so does the next request: a slow reader costs one
buffer. The watchers of a request hear at once when its connection goes.

A client repeats its head on every request of a connection, except for a few values. A head like the one before is not
parsed again.

After a refusal of a request that is still arriving, the rest is read and dropped for a while: the kernel answers unread
bytes with a reset, which can overtake the refusal (RFC 9112, 9.6).

`protocol/http1_framing.py` reads the bytes (docs/adr/0015). With TLS, `tls.py` stands below each connection.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast, final

from trimaran.errors import ConfigError, ProtocolError
from trimaran.protocol.http1_framing import (
    END_OF_BODY,
    TOO_LARGE,
    Head,
    RequestReader,
    chunk,
    response_head,
    share_values,
)

from .engine import BUSY, JSON, Engine, FixedHeaders, HttpRequestHead, Pairs, has_body
from .failure_reasons import connection_reason
from .listener import Listener
from .relayed_request import MAX_BYTES, RelayedRequest

if TYPE_CHECKING:
    from asyncio import Task

    from trimaran.server.exchange import Exchange

    from .endpoints import Endpoints
    from .tls import Certificates

IDLE_SECONDS: Final = 75.0  # as nginx keeps an idle connection
READ_SECONDS: Final = 30.0  # for a whole request: slower is a stuck client or a slow attack
_SWEEP_SECONDS: Final = 5.0
# When the server stops: seconds, and turns of the loop, for requests that are on their way.
_LAST_LOOK: Final = 0.1
_LAST_TURNS: Final = 5
_PIPELINED: Final = 256 * 1024  # bytes of following requests to hold while one is served
HIGH_WATER: Final = 256 * 1024  # unsent bytes on a connection before its writers wait
_PLAIN: Final = (None, False)  # of an admission: no headers go with the reply, and it is not to be a stream
_MANY: Final = 3  # requests at work, from which on answers of one turn of the loop are sent together
_TOGETHER: Final = 16 * 1024  # bytes of a stream that are sent at once, without waiting for more
LINGER_QUIET: Final = 5.0  # seconds without a byte, and in all, that a refused request is read: as nginx
LINGER_SECONDS: Final = 30.0


@final
class Http1Server:
    """Listens, and holds the open connections."""

    def __init__(
        self,
        engine: Engine | Endpoints,
        host: str,
        port: int,
        *,
        backlog: int,
        reuse_port: bool = False,
        tls: Certificates | None = None,
    ) -> None:
        self.engine: Engine | Endpoints = engine
        self.host = host
        self.port: int = port
        self._tls = tls
        self._backlog = backlog
        self._reuse_port = reuse_port
        self.listener: Listener | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._swept = 0.0
        self.connections: set[Any] = set()
        """All open connections, also those in a TLS handshake."""
        self.is_ending: bool = False
        """Each answer is the last on its connection."""
        self.max_header_bytes: int = engine.server.limits.max_header_bytes
        self.serving: int = 0
        """Requests at work."""
        self._replying: list[_Connection] = []
        """Connections with an answer to send at the next turn of the loop."""
        self.now: float = 0.0
        """The time of the last tick: enough to tell idle from busy."""
        self.date: bytes = b""
        """The Date header, renewed every second."""

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.is_ending = False
        self._tick(loop)
        self.listener = Listener(self._factory(loop))
        try:
            self.port = await self.listener.start(
                self.host, self.port, backlog=self._backlog, reuse_port=self._reuse_port
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self.host}:{self.port}: {connection_reason(error) or error}; choose another port"
            ) from None
        if self.engine.health is not None:
            self.engine.health.is_crowded = self.listener.is_crowded

    def _factory(self, loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.Protocol]:
        certificates = self._tls
        if certificates is None:
            return lambda: _Connection(self, loop)
        from .tls import TlsConnection

        return lambda: TlsConnection(self, certificates.context)

    def converse(self, protocol: str | None) -> asyncio.Protocol:
        """The protocol for a client whose TLS handshake is done."""
        if protocol == "h2":
            from .http2_server import Http2Connection

            return Http2Connection(self, asyncio.get_running_loop())
        return _Connection(self, asyncio.get_running_loop(), "https")

    def stop_listening(self) -> None:
        """Accept no more connections. Open ones send one more answer, which announces the end."""
        self.is_ending = True
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.stop()

    async def stop(self, patience: float = 1.0) -> None:
        """Wait for replies to leave, then close."""
        if self._ticker is not None:
            self._ticker.cancel()
        self.stop_listening()
        await asyncio.sleep(_LAST_LOOK)
        for _ in range(_LAST_TURNS):  # read the bytes that have arrived, even if the loop is busy
            await asyncio.sleep(0)
        for connection in tuple(self.connections):
            connection.end_soon()
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while self.connections and loop.time() < until:
            await asyncio.sleep(0.005)
        for connection in tuple(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Once a second: renew the time. Every few seconds: check the connections."""
        now = loop.time()
        self.date = f"date: {formatdate(time.time(), usegmt=True)}\r\n".encode()
        if now - self._swept >= _SWEEP_SECONDS:
            self._swept = now
            for connection in tuple(self.connections):
                connection.check_time(now)
            if self._tls is not None:
                self._tls.refresh()
        self.now = now
        if self.listener is not None:
            self.listener.refresh()
        self._ticker = loop.call_later(1.0, self._tick, loop)

    def head(self, status: int, headers: Pairs, framing: str) -> bytes:
        return response_head(status, headers, framing) + self.date

    def flush_soon(self, connection: _Connection, loop: asyncio.AbstractEventLoop) -> None:
        """Send a connection's answer together with others of this turn.

        A client that sleeps between answers is woken by each of them, which costs more than the answer itself. On a busy
        machine it even takes our place on the processor.
        """
        if not self._replying:
            loop.call_soon(self._flush)
        self._replying.append(connection)

    def _flush(self) -> None:
        replying, self._replying = self._replying, []
        for connection in replying:
            connection.flush()


@final
class _Connection(asyncio.Protocol):
    """One connection: a buffer, the request that is read or served, and the watchers of its end."""

    _transport: asyncio.Transport = cast("Any", None)
    _pending: bytearray | None = None
    """Bytes that arrived while a request was served."""
    _refusal: ProtocolError | None = None
    """Why the next request cannot be read."""
    _task: Task[None] | RelayedRequest | None = None
    """The request that is served."""
    _drained: asyncio.Future[None] | None = None
    _unsent: bytearray | bytes | None = None
    """Bytes to send at the next turn of the loop."""
    _stuck = (0, 0.0)
    """The number of unsent bytes, and since when it is that number."""
    _watchers: set[Callable[[], None]] | None = None
    _gone = False
    _ending = False
    _lingers_since: float | None = None
    """Since when incoming bytes are dropped."""
    _is_extra = False
    """Its descriptor is one of the last: it serves probes only."""
    _is_counted = False
    """The endpoint's budget counts the body that is being read."""

    def __init__(self, server: Http1Server, loop: asyncio.AbstractEventLoop, scheme: str = "http") -> None:
        self.scheme = scheme
        self._server = server
        self._engine = server.engine
        self._may_relay = server.engine.may_relay
        self._loop = loop
        self._reader = RequestReader(max_head=server.max_header_bytes, max_body=server.engine.max_body_bytes)
        self._since = server.now

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        raw = self._transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener = self._server.listener
        if raw is not None and listener is not None and listener.is_extra(raw.fileno()):
            self._is_extra = True
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        if type(self._task) is RelayedRequest:
            self._task.promote()
        self._unsent = self._pending = None
        self._reader.close()
        self._server.connections.discard(self)
        if self._is_counted:
            self._engine.bodies.remove(self)
        self.resume_writing()
        watchers, self._watchers = self._watchers, None
        for callback in watchers or ():
            callback()

    def data_received(self, data: bytes) -> None:
        known = self._reader.known
        if known is not None and self._task is None and self._drained is None and not self._reader.is_reading:
            # Nearly always one read brings one whole request, with a head like the one before.
            request = known.read(data)
            if request is not None:
                self._server.serving += 1
                if not (self._may_relay and self._relay(*request)):
                    self._task = self._loop.create_task(self._serve(*request))
                return
        if self._lingers_since is not None:
            self._since = self._server.now
        elif self._task is None and self._drained is None:
            self._read(data)
        else:
            self._hold_back(data)

    def eof_received(self) -> bool:
        # A client that has sent everything may still listen: keep our side open while its request is served.
        if self._task is None:
            self.flush()
            return False
        if type(self._task) is RelayedRequest:
            self._task.promote()
        self._ending = True
        return not self._watchers

    def pause_writing(self) -> None:
        if self._drained is None:
            self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
        if not self._gone:
            self._go_on()

    # Reading

    def _read(self, data: bytes) -> None:
        reader = self._reader
        if not reader.is_reading:
            self._since = self._server.now
        try:
            reader.feed(data)
        except ProtocolError as error:
            self._refusal = error
        if reader.is_reading and reader.body_size:
            self._is_counted = True
            self._engine.bodies.count(self, reader.body_size)
        elif self._is_counted:
            self._is_counted = False
            self._engine.bodies.remove(self)
        self._go_on()

    def refuse_body(self, error: ProtocolError) -> None:
        """Refuse the request that is being read, after the answers to those before it."""
        self._is_counted = False
        self._reader.abandon()
        self._refusal = error
        self._go_on()

    def _hold_back(self, data: bytes) -> None:
        """Keep bytes that arrive while a request is served, or while the client does not read our answers."""
        if self._reader.is_over:
            return
        if self._pending is None:
            self._pending = bytearray()
        self._pending += data
        if len(self._pending) > _PIPELINED:
            # No honest client sends so much ahead. To stop reading would hide its disconnect.
            self._transport.abort()

    def _go_on(self) -> None:
        """Serve or refuse the next request, unless one is being served or the client does not read."""
        if self._task is not None or self._drained is not None or self._lingers_since is not None:
            return
        reader = self._reader
        if reader.requests:
            head, body = reader.requests.pop(0)
            self._ending = self._ending or body is TOO_LARGE
            self._server.serving += 1
            self._task = self._loop.create_task(self._serve(head, body, head.headers))
        elif self._refusal is not None:
            self._refuse(self._refusal)
        elif self._pending:
            data, self._pending = bytes(self._pending), None
            self._read(data)
        elif reader.take_expectation():
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _refuse(self, error: ProtocolError) -> None:
        """Refuse an unreadable request, and close: the start of the next one is unknown."""
        data = self._engine.writer.error(None, error)
        headers = BUSY if error.status == 503 else JSON
        head = self._server.head(error.status, headers, f"content-length: {len(data)}\r\nconnection: close")
        self.write(head + b"\r\n" + data)
        self._linger()

    def _linger(self) -> None:
        """End our side, and drop further bytes of the client, until it ends its side or the time is up."""
        self._lingers_since = self._since = self._server.now
        self._pending = self._reader.known = None
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    # Serving

    def _relay(self, head: Head, body: bytes, headers: dict[str, str]) -> bool:
        """Begin to answer a request without a task, if its call can take a shortcut."""
        admission = head.admission
        if admission is None or admission != _PLAIN or len(body) > MAX_BYTES:
            return False
        engine = self._engine.relays(head.path)
        if engine is None:
            return False
        request = RelayedRequest(self, engine, head, headers, self._loop)
        if not request.begin(body):
            return False
        self._task = request
        return True

    def reply_relayed(self, request: RelayedRequest, headers: Pairs, data: bytes) -> None:
        head, server = request.head, self._server
        if type(headers) is FixedHeaders and head.keep_alive and not (self._ending or self._gone or server.is_ending):
            # As nearly always: what the responder and `_finished` come to.
            self.fixed_reply(200, headers, data)
            self._task = None
            server.serving -= 1
            self._since = server.now
            if self._pending or self._refusal is not None or self._reader.requests or self._reader.is_reading:
                self._go_on()
            return
        responder = _Responder(self, head, request.headers)
        responder.task = request
        if not self._gone:
            responder.reply(200, headers, data)
        self._finished(head, responder)

    def promote(self, request: RelayedRequest) -> Exchange:
        head = request.head
        responder = _Responder(self, head, request.headers)
        http_request = HttpRequestHead(head.method, head.path, request.headers, responder)  # pyright: ignore[reportArgumentType]
        http_request.is_checked = True
        exchange = request.engine.promote(http_request, request.call)
        exchange.began = request.began
        self._task = responder.task = self._loop.create_task(self._serve_promoted(request, http_request, responder))
        return exchange

    async def _serve_promoted(
        self, request: RelayedRequest, http_request: HttpRequestHead, responder: _Responder
    ) -> None:
        try:
            await request.engine.finish(http_request, request)
        finally:
            self._finished(request.head, responder)

    async def _serve(self, head: Head, body: bytes, headers: dict[str, str]) -> None:
        responder = _Responder(self, head, headers)
        responder.task = self._task
        engine = self._engine
        request = HttpRequestHead(head.method, head.path, headers, responder)  # pyright: ignore[reportArgumentType]
        if head.admission is not None and body is not TOO_LARGE:
            # The same head has passed every check that needs the head alone.
            request.carried, request.prefers_stream = head.admission
            request.is_checked = True
            try:
                await engine.post(request, body)
            finally:
                self._finished(head, responder)
            return
        request.query = head.query
        try:
            refused = self._spare(head, request) if self._is_extra else engine.admit(request)
            if refused is not None:
                await refused
            elif body is TOO_LARGE:
                await engine.too_large(request)
            elif head.method == "POST" and engine.owns(head.path):
                carried = request.carried  # without the headers that authentication adds
                await engine.post(request, body)
                if request.is_checked:
                    head.admission = (carried, request.prefers_stream)
            else:
                await engine.dispatch(request, body)
        finally:
            self._finished(head, responder)

    def _spare(self, head: Head, request: HttpRequestHead) -> Coroutine[Any, Any, None] | None:
        """Serve one probe on one of the last connections; refuse anything else."""
        head.keep_alive = False
        engine = self._engine
        if engine.health is not None and engine.health.takes(head.path):
            return engine.admit(request)
        busy = "the server has no descriptor left for another connection; try again later"
        return engine.refuse(request, ProtocolError.internal_error(busy, status=503))

    def _finished(self, head: Head, responder: _Responder) -> None:
        if self._task is not responder.task:
            return  # it was answered already, and the connection serves the next request
        self._task = None
        self._server.serving -= 1
        self._since = self._server.now
        if self._gone:
            return
        if not responder.is_complete or not head.keep_alive or self._ending or self._server.is_ending:
            self.flush()
            if self._reader.is_over:
                self._linger()
            else:
                self._transport.close()
        elif self._pending or self._refusal is not None or self._reader.requests or self._reader.is_reading:
            self._go_on()

    # The responder's side

    def write(self, data: bytes) -> None:
        if self._unsent is not None:
            self._unsent += data
            self.flush()
        elif not self._gone:
            self._transport.write(data)

    def write_soon(self, data: bytes) -> bool:
        """Send it together with all that is written before the loop turns: one system call instead of many.

        True if that is much: then the caller lets others have their turn.
        """
        if self._unsent is not None:
            self._unsent += data
            if len(self._unsent) > _TOGETHER:
                self.flush()
                return True
        elif not self._gone:
            self._unsent = bytearray(data)
            self._loop.call_soon(self.flush)
        return False

    def flush(self) -> None:
        unsent, self._unsent = self._unsent, None
        if unsent is not None:
            self._transport.write(unsent)

    @property
    def address(self) -> str | None:
        peer = self._transport.get_extra_info("peername")
        return peer[0] if isinstance(peer, tuple) else None  # pyright: ignore[reportUnknownVariableType]

    @property
    def is_gone(self) -> bool:
        return self._gone

    @property
    def is_last(self) -> bool:
        """The server stops, so this answer is the last on the connection."""
        return self._server.is_ending

    async def drain(self) -> None:
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        if self._gone:
            self._loop.call_soon(callback)
            return _nothing
        if self._watchers is None:
            self._watchers = set()
        self._watchers.add(callback)
        if self._ending:
            # The client closed its side while its request was served: it is gone.
            self._loop.call_soon(self._transport.close)
        watchers = self._watchers
        return partial(watchers.discard, callback)

    def head(self, status: int, headers: Pairs, framing: str) -> bytes:
        return self._server.head(status, headers, framing)

    def fixed_reply(self, status: int, headers: FixedHeaders, body: bytes) -> None:
        """The reply of nearly every call: a cached head, length, date and body in one write."""
        head = headers.rendered.get(status)
        if head is None:
            head = headers.rendered[status] = response_head(status, headers, "")
        server = self._server
        data = b"%bcontent-length: %d\r\n%b\r\n%b" % (head, len(body), server.date, body)
        if self._unsent is not None or server.serving < _MANY:
            self.write(data)
        elif not self._gone:
            self._unsent = data
            server.flush_soon(self, self._loop)

    def release(self, head: Head, responder: _Responder) -> None:
        self._finished(head, responder)

    # The server's side

    def check_time(self, now: float) -> None:
        if self._is_stuck(now) or self._has_lingered(now):
            self._transport.abort()
        elif self._task is None and self._lingers_since is None:
            if self._reader.is_reading and now - self._since > READ_SECONDS:
                self._refuse(ProtocolError.invalid_request("the request did not arrive in time", status=408))
            elif now - self._since > IDLE_SECONDS:
                self._transport.close()

    def _is_stuck(self, now: float) -> bool:
        """Whether the client has read nothing for as long as an idle connection stays open."""
        size = self._transport.get_write_buffer_size()
        if size != self._stuck[0]:
            self._stuck = (size, now)
        return size > 0 and now - self._stuck[1] > IDLE_SECONDS

    def _has_lingered(self, now: float) -> bool:
        since = self._lingers_since
        return since is not None and (now - self._since > LINGER_QUIET or now - since > LINGER_SECONDS)

    def spare_memory(self) -> None:
        """Free the buffers for the next request: a stream begins, and may last long."""
        if not self._reader.is_reading:
            self._reader.close()

    def end_soon(self) -> None:
        self._ending = True
        if self._task is None:
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._transport.abort()


def _nothing() -> None:
    return None


@final
class _Responder:
    is_complete: bool = False
    task: Task[None] | RelayedRequest | None = None
    _is_chunked = True

    def __init__(self, connection: _Connection, head: Head, headers: dict[str, str]) -> None:
        self._connection = connection
        self._head = head
        self._headers = headers

    @property
    def address(self) -> str | None:
        return self._connection.address

    @property
    def scheme(self) -> str:
        return self._connection.scheme

    def reply(self, status: int, headers: Pairs, body: bytes) -> None:
        self.is_complete = True
        connection, head = self._connection, self._head
        keeps = head.keep_alive and not connection.is_last
        if type(headers) is FixedHeaders and keeps and head.method == "POST":
            connection.fixed_reply(status, headers, body)
            return
        framing = "" if status in (204, 304) else f"content-length: {len(body)}"
        if not keeps:
            framing += ("\r\n" if framing else "") + "connection: close"
        data = body if has_body(head.method, status) else b""
        connection.write(connection.head(status, headers, framing) + b"\r\n" + data)

    async def stream_start(self, status: int, headers: Pairs) -> None:
        # HTTP/1.0 has no chunks: the body ends with the connection.
        self._is_chunked = self._head.minor == 1
        framing = "transfer-encoding: chunked" if self._is_chunked else "connection: close"
        self.is_complete = not has_body(self._head.method, status)
        if status in (204, 304):
            framing = ""
        share_values(self._headers)
        self._connection.spare_memory()
        self._connection.write_soon(self._connection.head(status, headers, framing) + b"\r\n")

    async def stream_chunk(self, data: bytes) -> bool:
        connection = self._connection
        if connection.is_gone or self.is_complete:
            return not connection.is_gone
        if connection.write_soon(chunk(data) if self._is_chunked else data):
            await asyncio.sleep(0)
        await connection.drain()
        return not connection.is_gone

    async def stream_end(self) -> None:
        if not self.is_complete:
            self.is_complete = self._is_chunked
            if self._is_chunked:
                self._connection.write(END_OF_BODY)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._connection.watch(callback)

    def release(self) -> None:
        """Let the connection go on: the answer is sent, though the handler still runs."""
        self._connection.release(self._head, self)
