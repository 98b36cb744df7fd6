"""HTTP/1.1 over plain TCP, the client's side: a pool of connections, a request on each.

For `http://` targets without a proxy, where it halves the cost of a call: a request is one write, and an answer that fits
into one read is handed over whole. TLS and proxies go through aiohttp; both give a `Response`.

A connection is used again once its answer has been read to the end, for a little less than the server's `Keep-Alive`
says, and at most `_IDLE_SECONDS`. Nothing is retried here: the error says whether the server saw the request, and the
caller decides.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from time import monotonic
from typing import Any, Final, Protocol, final
from urllib.parse import quote, urlsplit

from trimaran.errors import ConfigError, ConnectFailed, ConnectionLost, Error, RemoteProtocolError
from trimaran.protocol.http1_framing import (
    KnownResponseHead,
    ResponseHead,
    ResponseReader,
    know_response,
    request_head,
)

from .failure_reasons import connection_hint, connection_reason
from .name_lookup import look_up

_IDLE_SECONDS: Final = 15.0
_MAX_HEAD: Final = 64 * 1024
_MAX_INTERIM: Final = 100  # a server may say every minute that it is still at it
_MAX_IDLE: Final = 256
_HIGH_WATER: Final = 1024 * 1024  # unread bytes of a body before the connection is no longer read
_MANY: Final = 3  # requests under way, from which on they are sent together
_MEMO_ENTRIES: Final = 256
_MEMO_BYTES: Final = 2048
_TIMEOUT: Final = re.compile(r"(?:^|[\s,])timeout=([0-9]{1,6})(?![0-9])", re.IGNORECASE)
_MAX_COOKIES: Final = 20
_NOTHING: Final[deque[bytes]] = deque()


class Response(Protocol):
    """An answer, head first. Read it to its end or close it."""

    url: str
    status: int

    @property
    def reason(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name."""
        ...

    @property
    def length(self) -> int | None:
        """The length of the body, if it is known."""
        ...

    @property
    def is_complete(self) -> bool:
        """Has all of it come in? Then its connection is free again."""
        ...

    async def read(self) -> bytes:
        """The rest of the body."""
        ...

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes; ConnectionLost if it ends too early."""
        ...

    def close(self) -> None:
        """Give it up, and its connection where more was to come."""
        ...


@final
class PlainResponse:
    # Defaults live on the class: an answer that came in one read touches few of them.
    is_complete: bool = False
    _size = 0
    _error: Error | None = None
    _wake: asyncio.Future[None] | None = None
    _is_dropped = False
    _waiting = _NOTHING

    def __init__(self, url: str, head: ResponseHead, line: Line, body: bytes | None = None) -> None:
        """`body` is the whole of it, where that came with the head."""
        self.url = url
        self.head = head
        self.status: int = head.status
        self._line = line
        self._whole = body
        if body is None:
            self._waiting: deque[bytes] = deque()

    @property
    def reason(self) -> str:
        return self.head.reason

    @property
    def headers(self) -> Mapping[str, str]:
        return self.head.headers

    @property
    def length(self) -> int | None:
        return self.head.length

    async def read(self) -> bytes:
        whole = self.take()
        return b"".join([piece async for piece in self.pieces()]) if whole is None else whole

    def take_json(self) -> bytes | None:
        """The whole body of an answer that says 200 and is JSON, if it came with the head."""
        return self.take() if self.status == 200 and self.head.is_plain_json else None

    def take(self) -> bytes | None:
        """The whole body, if it came with the head. None the next time."""
        whole, self._whole = self._whole, None
        return whole

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        if self._whole:
            yield self.take() or b""
        while True:
            while self._waiting:
                piece = self._waiting.popleft()
                self._size -= len(piece)
                if self._size < _HIGH_WATER // 2 and not self.is_complete:
                    self._line.resume()
                yield piece
            if self._error is not None:
                raise self._error
            if self.is_complete:
                return
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None

    def close(self) -> None:
        self._is_dropped = True
        self._whole = None
        self._waiting.clear()
        if not self.is_complete:
            self._line.abort()

    # The connection's side

    def put(self, piece: bytes) -> None:
        if self._is_dropped or not piece:
            return
        self._waiting.append(piece)
        self._size += len(piece)
        if self._size > _HIGH_WATER:
            self._line.pause()
        self._stir()

    def finish(self) -> None:
        self.is_complete = True
        self._stir()

    def fail(self, error: Error) -> None:
        self._error = error
        self._stir()

    def _stir(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class ResponseReceiver(Protocol):
    """Takes the answer to a request that no task waits for."""

    def take(self, head: ResponseHead, body: bytes) -> None:
        """A whole answer, which came in one read and has a head that came before."""
        ...

    def wait(self) -> None:
        """Any other answer is about to come, or none: call `Line.wait`."""
        ...


@final
class Line(asyncio.Protocol):
    """One connection: at most one request at a time."""

    def __init__(self, pool: PlainPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop  # asking for it takes a system call on 3.11
        self._transport: Any = None
        self._head: asyncio.Future[PlainResponse] | None = None
        self._receiver: ResponseReceiver | None = None
        self._response: PlainResponse | None = None
        self._reader: ResponseReader | None = None
        self._url = ""
        self._is_paused = False
        self._is_aborted = False
        self.is_open: bool = False
        self.usable_until: float = 0.0

    async def request(self, url: str, data: bytes) -> PlainResponse:
        """Send a request and wait for the head of its answer."""
        head = self.send(url, data)
        try:
            return await head
        except asyncio.CancelledError:
            self.give_up(head)
            raise

    def send(self, url: str, data: bytes) -> asyncio.Future[PlainResponse]:
        """Send a request. The future is its answer; whoever stops waiting for it calls `give_up`."""
        self._url = url
        head = self._head = self._loop.create_future()
        self._pool.write(self._transport, data, self._loop)
        return head

    def send_for(self, receiver: ResponseReceiver, url: str, data: bytes) -> None:
        """Send a request whose answer is handed to a receiver."""
        self._url = url
        self._receiver = receiver
        self._pool.write(self._transport, data, self._loop)

    def wait(self) -> asyncio.Future[PlainResponse]:
        """The answer, as `send` returns it, in place of a call of the receiver."""
        self._receiver = None
        head = self._head = self._loop.create_future()
        return head

    def response(self, head: ResponseHead, body: bytes) -> asyncio.Future[PlainResponse]:
        """The same for an answer that the receiver was handed."""
        response = PlainResponse(self._url, head, self, body)
        response.is_complete = True
        answer = self._loop.create_future()
        answer.set_result(response)
        return answer

    def give_up(self, head: asyncio.Future[PlainResponse]) -> None:
        """Nobody waits for this answer any more."""
        # An answer that came at the same moment may have freed the line already, and somebody else be using it.
        if self._head is head:
            self.abort()
        elif head.done() and not head.cancelled() and head.exception() is None:
            head.result().close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            if self._reader is None and self._take_known(data):
                return
            if self._receiver is not None:
                self._receiver.wait()
            if self._head is None or self._head.done():
                self.abort()  # no request is open
                return
        reader = self._reader or self._begin()
        try:
            pieces = reader.feed(data)
        except RemoteProtocolError as error:
            self._answer(reader)  # also if the body fails at once: its reader gets the error
            self._fail(RemoteProtocolError(error.code, f"{self._url} sent an answer that is not HTTP: {error.message}"))
            return
        response = self._answer(reader)
        if response is None:
            return
        for piece in pieces:
            response.put(piece)
        if reader.is_done:
            self._pool.learn(data, response, pieces)
            self._complete(response, has_rest=reader.has_rest)

    def _begin(self) -> ResponseReader:
        self._reader = ResponseReader(max_head=_MAX_HEAD, max_interim=_MAX_INTERIM)
        return self._reader

    def _take_known(self, data: bytes) -> bool:
        """A whole answer with a head that came before needs no parser. False if it is something else."""
        end = data.find(b"\r\n\r\n") + 4
        head = self._pool.known.get(data[:end]) or self._pool.compare(data[:end], len(data) - end)
        if head is None or head.length != len(data) - end:
            return False
        receiver, waiting = self._receiver, self._head
        if receiver is not None:
            self._receiver = None
            self._release(head, has_rest=False)
            receiver.take(head, data[end:])
            return True
        if waiting is None or waiting.done():
            return False
        response = PlainResponse(self._url, head, self, data[end:])
        response.is_complete = True
        self._head = None
        self._release(head, has_rest=False)
        waiting.set_result(response)
        return True

    def _answer(self, reader: ResponseReader) -> PlainResponse | None:
        """The response, available to its waiter once its head is complete."""
        if self._response is None and reader.head is not None and self._head is not None:
            self._response = PlainResponse(self._url, reader.head, self)
            waiting, self._head = self._head, None
            waiting.set_result(self._response)
        return self._response

    def _complete(self, response: PlainResponse, *, has_rest: bool) -> None:
        self._response = None
        self._drop_reader()
        response.finish()
        self._release(response.head, has_rest=has_rest)

    def _release(self, head: ResponseHead, *, has_rest: bool) -> None:
        """The answer is here: let the pool have the connection, if it can be used again."""
        # A server that answers before it has read the request may never read the rest of it.
        if has_rest or not head.keep_alive or self._transport.get_write_buffer_size():
            self.abort()
        else:
            if self._is_paused:
                self.resume()
            limit = head.headers.get("keep-alive")
            self._pool.give_back(self, _IDLE_SECONDS if limit is None else _patience(limit))

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._pool.forget(self)
        if self._receiver is not None:
            self._receiver.wait()
        response = self._response
        is_framed = response is None or response.head.is_chunked or response.head.length is not None
        is_end = not is_framed and exc is None and not self._is_aborted
        self._drop_reader()
        if response is not None and is_end:
            self._response = None
            response.finish()
            return
        lost = "" if exc is None else connection_reason(exc) or str(exc)
        reason = "it was closed here" if self._is_aborted else lost or "the server closed it"
        if self._head is not None and not self._head.done():
            waiting, self._head = self._head, None
            waiting.set_exception(
                ConnectionLost(
                    f"the connection to {self._url} ended before an answer came: {reason}", cause_text=reason
                )
            )
        if response is not None:
            self._response = None
            response.fail(ConnectionLost(f"the answer of {self._url} broke off: {reason}", cause_text=reason))

    def _fail(self, error: Error) -> None:
        if self._head is not None and not self._head.done():
            waiting, self._head = self._head, None
            waiting.set_exception(error)
        response, self._response = self._response, None
        if response is not None:
            response.fail(error)
        self.abort()

    @property
    def is_usable(self) -> bool:
        return self.is_open and not self._transport.is_closing()

    def pause(self) -> None:
        if not self._is_paused and self.is_open:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused and self.is_open:
            self._is_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        self.is_open = False
        self._is_aborted = True
        if self._transport is not None:
            self._transport.abort()


@final
class PlainPool:
    """Connections to one host. Many tasks may send requests at once."""

    def __init__(self, url: str, *, connect_seconds: float, cookies: bool = False) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or 80
        self._named = parts.netloc.rpartition("@")[2]
        self._connect_seconds = connect_seconds
        self._idle: deque[Line] = deque()
        self._lines: set[Line] = set()
        self.known: dict[bytes, ResponseHead] = {}
        """A cache of parsed heads by their bytes."""
        self._last: KnownResponseHead | None = None
        """The last head that was parsed."""
        self._heads: dict[tuple[str | tuple[str, str], ...], bytes] = {}
        """Request heads by what they say: a client says much the same each time."""
        self._url = url
        self._target = _target_of(url)
        self._cookies: dict[str, str] | None = {} if cookies else None
        self._unsent: list[tuple[Any, bytes]] = []
        self._is_closed = False

    async def request(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> PlainResponse:
        """Make a request; its answer, head first.

        Raises:
            ConnectFailed: no connection was possible, so nothing was sent.
            ConnectionLost: the connection ended before an answer began.
            RemoteProtocolError: the response is not HTTP.
        """
        target = self._target if url == self._url else _target_of(url)
        length = len(body) if body is not None else 0 if verb == "POST" else None
        if self._cookies:
            headers = self._with_cookies(headers)
        head = self._head_of(verb, target, headers, length)
        line = self._take() or await self._connect(url)
        response = await line.request(url, head + body if body else head)
        if self._cookies is not None and "set-cookie" in response.headers:
            self._keep_cookies(response.headers["set-cookie"])
        return response

    def prepare(self, url: str, headers: Mapping[str, str]) -> bytes | None:
        """The start of a POST, for `post`; None if requests here differ from each other by more than their bodies."""
        return None if self._cookies is not None else request_head("POST", _target_of(url), self._named, headers)

    def post(self, url: str, start: bytes, body: bytes) -> tuple[Line, asyncio.Future[PlainResponse]] | None:
        """Send a prepared POST on an idle connection, and the future of its answer; None if no connection is idle.

        A caller that stops waiting calls `give_up` of the connection.
        """
        line = self._take()
        if line is None:
            return None
        return line, line.send(url, b"%bContent-Length: %d\r\n\r\n%b" % (start, len(body), body))

    def post_for(self, receiver: ResponseReceiver, url: str, start: bytes, body: bytes) -> Line | None:
        """The same for an answer that no task waits for: the connection that it comes on."""
        line = self._take()
        if line is not None:
            line.send_for(receiver, url, b"%bContent-Length: %d\r\n\r\n%b" % (start, len(body), body))
        return line

    def write(self, transport: Any, data: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Send a request: at once, or together with others of the same turn of the loop where many are under way.

        A server that sleeps between requests is woken by each of them, which costs more than the request itself.
        """
        if len(self._lines) - len(self._idle) < _MANY:
            transport.write(data)
            return
        if not self._unsent:
            loop.call_soon(self._flush)
        self._unsent.append((transport, data))

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        for transport, data in unsent:
            if not transport.is_closing():
                transport.write(data)

    def _head_of(self, verb: str, target: str, headers: Mapping[str, str], length: int | None) -> bytes:
        key = (verb, target, *headers.items())
        start = self._heads.get(key)
        if start is None:
            start = request_head(verb, target, self._named, headers)
            if len(start) <= _MEMO_BYTES:
                if len(self._heads) >= _MEMO_ENTRIES:
                    self._heads.clear()
                self._heads[key] = start
        return start + b"\r\n" if length is None else b"%bContent-Length: %d\r\n\r\n" % (start, length)

    def _with_cookies(self, headers: Mapping[str, str]) -> dict[str, str]:
        assert self._cookies is not None
        own_cookies = [value for name, value in headers.items() if name.lower() == "cookie"]
        others = {name: value for name, value in headers.items() if name.lower() != "cookie"}
        return {
            **others,
            "Cookie": "; ".join([*own_cookies, *(f"{name}={value}" for name, value in self._cookies.items())]),
        }

    def _keep_cookies(self, header: str) -> None:
        """Keep the cookies of a balancer. A pool has one host, so names and values are enough."""
        assert self._cookies is not None
        for cookie in header.split("\n"):
            name, _, value = cookie.partition(";")[0].partition("=")
            if name.strip() and (len(self._cookies) < _MAX_COOKIES or name.strip() in self._cookies):
                self._cookies[name.strip()] = value.strip()

    def _take(self) -> Line | None:
        while self._idle:
            line = self._idle.pop()
            if line.is_usable:
                if monotonic() < line.usable_until:
                    return line
                line.abort()
        return None

    async def _connect(self, url: str) -> Line:
        if self._is_closed:
            raise _closed()
        line = Line(self, asyncio.get_running_loop())
        try:
            async with asyncio.timeout(self._connect_seconds):
                await self._open(line)
        except TimeoutError as error:
            raise ConnectFailed(f"no connection to {url} within {self._connect_seconds:g} s") from error
        except OSError as error:
            raise ConnectFailed(
                f"no connection to {url}: {connection_reason(error) or error}{connection_hint(error)}"
            ) from error
        except UnicodeError as error:
            raise ConfigError(f"{url!r} is not a URL that can be connected to: {error}") from error
        if self._is_closed:
            line.abort()
            raise _closed()
        self._lines.add(line)
        return line

    async def _open(self, line: Line) -> None:
        """Connect to the first address of the host that answers."""
        loop = asyncio.get_running_loop()
        failure = OSError(f"{self._host} has no address")
        for address in await look_up(self._host, self._port, flags=0):
            try:
                await loop.create_connection(lambda: line, address.host, address.port, family=address.family)
            except OSError as error:
                failure = error
            else:
                return
        raise failure

    def learn(self, data: bytes, response: PlainResponse, pieces: list[bytes]) -> None:
        """Remember a head that came in one read with all of its body: a server says much the same each time."""
        length = response.length
        end = len(data) - (length or 0)
        is_whole = length is not None and sum(map(len, pieces)) == length and data.find(b"\r\n\r\n") == end - 4
        if is_whole and end <= _MEMO_BYTES:
            self._know(data[:end], response.head)
            self._last = know_response(response.head, data[:end]) or self._last

    def compare(self, raw: bytes, size: int) -> ResponseHead | None:
        """The head in these bytes, if it is like the last one that was parsed; `size` is that of its body."""
        head = None if self._last is None else self._last.read(raw, size)
        if head is not None:
            self._know(raw, head)
        return head

    def _know(self, raw: bytes, head: ResponseHead) -> None:
        if len(self.known) >= _MEMO_ENTRIES:
            self.known.clear()
        self.known[raw] = head

    def give_back(self, line: Line, seconds: float) -> None:
        if self._is_closed or len(self._idle) >= _MAX_IDLE:
            line.abort()
        else:
            now = monotonic()
            line.usable_until = now + seconds
            self._idle.append(line)
            while now > self._idle[0].usable_until:
                self._idle.popleft().abort()  # left over from a burst

    def forget(self, line: Line) -> None:
        self._lines.discard(line)

    async def close(self) -> None:
        """End all connections; their requests fail."""
        self._is_closed = True
        for line in tuple(self._lines):
            line.abort()
        for _ in range(100):  # each is told in one of the loop's next turns
            if not self._lines:
                return
            await asyncio.sleep(0)


def _patience(header: str | None) -> float:
    """Seconds that a connection may be idle: less than the server says, or a request meets a closing connection."""
    match = _TIMEOUT.search(header) if header is not None else None
    if match is None:
        return _IDLE_SECONDS
    seconds = float(match[1])
    return min(_IDLE_SECONDS, max(seconds - 1.0, seconds / 2))


def _target_of(url: str) -> str:
    """Path and query for the request line, in ASCII."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return quote(target, safe="!#$%&'()*+,/:;=?@[]~")


def _closed() -> ConnectionLost:
    lost = ConnectionLost("the connection was closed")
    lost.sent = False
    return lost
