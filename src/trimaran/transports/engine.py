"""HTTP without a socket: the whole behaviour of the endpoint, for any HTTP server to carry (R143-R147).

A binding (ASGI, our own server, yours) gives `handle` a method, a path, headers, a body and a *responder*. Every answer goes
through the responder. Each verb is checked in this order: path, Origin and Host, authentication, content (R129).
Preflights, an authenticator's public documents and probes (see `health`) are answered without authentication.

The engine serves modern requests, and hands those of older revisions to the `legacy` endpoint, if there is one.

The stream begins late: a call that emits nothing is answered as plain JSON, with the status of its outcome. The first
notification, or a long silence, turns the answer into an SSE stream.
"""

from __future__ import annotations

import asyncio
import re
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, final

from trimaran.errors import ConfigError, ProtocolError
from trimaran.protocol.headers import HeaderLookup
from trimaran.protocol.inbound import Batch, IncomingCall, IncomingNotification, IncomingReply, Message, MessageReader
from trimaran.protocol.outbound import Writer
from trimaran.protocol.sse import COMMENT, encode_event
from trimaran.server.access import InsufficientScope
from trimaran.server.dispatch import Serve
from trimaran.server.exchange import SENT, Exchange
from trimaran.server.handlers import incident
from trimaran.server.running_calls import Abandoned, RunningCalls, timed_out
from trimaran.server.threads import LARGE_MESSAGE
from trimaran.server.tools import Tools

from .guard import Guard
from .keep_alive import KeepAlive
from .unfinished_bodies import UnfinishedBodies

if TYPE_CHECKING:
    from trimaran.server.server import Server

    from .admission import RateLimiter
    from .health import Gauges, HealthRoutes
    from .relayed_request import RelayedRequest

Pairs = list[tuple[str, str]]


@final
class FixedHeaders(list[tuple[str, str]]):
    """Headers that many replies share. A carrier may cache their bytes, by status, in `rendered`."""

    __slots__ = ("rendered",)

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self.rendered: dict[int, bytes] = {}


# The characters of a path in RFC 3986, less those that some servers decode and others do not.
_PATH: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/]*")

JSON: Final[Pairs] = FixedHeaders([("content-type", "application/json")])
BUSY: Final[Pairs] = FixedHeaders([*JSON, ("retry-after", "1")])
EVENTS: Final[Pairs] = [
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
]
# Seconds for cancelled calls to send their last message.
_LAST_WORDS_SECONDS: Final = 0.3
_READ_HEADERS: Final = (
    "authorization",
    "mcp-session-id",
    "mcp-name",
    "mcp-method",
    "last-event-id",
    "accept",
    "origin",
    "host",
)


class Responder(Protocol):
    """How one request is answered: once with `reply`, or by a stream.

    It may also have `address`, the peer's, and `scheme`, which is "http" by default.
    """

    def reply(self, status: int, headers: Pairs, body: bytes) -> Awaitable[None] | None:
        """Send the whole answer. The caller awaits the result, if there is one."""
        ...

    async def stream_start(self, status: int, headers: Pairs) -> None: ...
    async def stream_chunk(self, data: bytes) -> bool:
        """Send a piece; False once the client is gone."""
        ...

    async def stream_end(self) -> None: ...
    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once when the client goes. Returns a function that stops the watch. Only for calls that take a while."""
        ...


Route: TypeAlias = "Callable[[HttpRequestHead, bytes], Awaitable[None]]"


class LegacyEndpoint(Protocol):
    """Serves everything that a modern peer never sends."""

    def attach(self, engine: Engine) -> None:
        """Called once, when the engine is created."""
        ...

    async def call(self, request: HttpRequestHead, call: IncomingCall, relayed: RelayedRequest | None = None) -> None:
        """Serve a call; or the rest of one that took a shortcut, whose exchange is there already."""
        ...

    def admit_relayed(self, call: IncomingCall, id: str | None) -> bool:
        """Give a call its session, by its id. False if whoever asks has to be told why not, or another process is asked."""
        ...

    def json_headers(self, call: IncomingCall) -> Pairs: ...
    def promote(self, request: HttpRequestHead, call: IncomingCall) -> Exchange:
        """The exchange of a call that took a shortcut, for the usual way."""
        ...

    async def post(self, request: HttpRequestHead, message: Message) -> None: ...
    async def get(self, request: HttpRequestHead) -> None: ...
    async def delete(self, request: HttpRequestHead) -> None: ...
    def routes(self) -> Mapping[tuple[str, str], Callable[[HttpRequestHead, bytes], Awaitable[None]]]: ...
    def allow(self) -> str:
        """The value of `Allow`."""
        ...

    async def close(self) -> None: ...


class Authenticator(Protocol):
    """Authenticates callers; `trimaran.auth` has providers.

    It may also have: `start(fetch)` and `close()`; `header_names`, the headers it reads beside Authorization;
    `document(request)`, the reply to a request for a public document, or None; and `step_up(request, scopes)`, the
    challenge for a caller that needs more scopes.
    """

    async def authenticate(self, request: HttpRequestHead) -> Any:
        """The principal, or None for an anonymous caller that is admitted. Raises `trimaran.auth.Refused` for others."""
        ...


@final
class Headers:
    """Headers by lower-case name, for bindings that have only pairs. Repeated names are joined, as RFC 9110 says."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[str | bytes, str | bytes]]) -> None:
        values: dict[str, str] = {}
        for name, value in pairs:
            name = (name.decode("latin-1") if isinstance(name, bytes) else name).lower()
            value = value.decode("latin-1") if isinstance(value, bytes) else value
            values[name] = f"{values[name]}, {value}" if name in values else value
        self._values = values

    def get(self, key: str, /) -> str | None:
        return self._values.get(key)

    def items(self) -> Iterable[tuple[str, str]]:
        return self._values.items()


AnyHeaders: TypeAlias = (
    HeaderLookup | Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]
)


def _lookup(headers: Any) -> HeaderLookup:
    kind: str = type(headers).__name__
    if not isinstance(headers, Mapping) and callable(getattr(headers, "get", None)):
        return headers
    pairs: Any = cast("Mapping[Any, Any]", headers).items() if isinstance(headers, Mapping) else headers
    try:
        return Headers(pairs)
    except (TypeError, ValueError, AttributeError):
        raise ConfigError(
            f"headers must be a mapping, pairs of name and value, or an object with get(lower_case_name), not {kind}"
        ) from None


@final
class HttpRequestHead:
    """One HTTP request without its body."""

    carried: Pairs | None = None
    """Headers of every reply: CORS, and those that authentication added."""
    principal: Any = None
    public_url: str | None = None
    believed_address: str | None = None
    outer_path: str | None = None
    """The path that the client asked for, where an outer app has removed a prefix."""
    _added: Pairs | None = None
    prefers_stream = False
    authority: str | None = None
    query = ""
    is_checked = False
    """Accept and Content-Type have been checked."""
    prefix = ""
    """The mount point, if there is one: clients put it before our paths."""

    def __init__(self, method: str, path: str, headers: HeaderLookup, responder: Responder) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.responder = responder

    @property
    def scope(self) -> Any:
        """The ASGI scope; None under any other carrier."""
        return getattr(self.responder, "scope", None)

    @property
    def address(self) -> str | None:
        """The address of the peer, if the carrier knows it. Behind a proxy it may be the proxy's."""
        return getattr(self.responder, "address", None)

    @property
    def caller_address(self) -> str | None:
        """The address of the caller: the peer's, or the one that a trusted proxy of the rate limit reports."""
        return self.believed_address or self.address

    @property
    def url(self) -> str | None:
        """The URL that the client asked for, without the query; None if the request names no host.

        Behind a proxy clients see another URL: set `public_url=` there.
        """
        if self.public_url is not None:
            return self.public_url
        host = self.headers.get("host") or self.authority
        scheme = getattr(self.responder, "scheme", "http")
        return f"{scheme}://{host}{self.outer_path or self.path}" if host else None

    @property
    def reply_headers(self) -> Pairs:
        """Headers that an authenticator adds to the reply of a request that it admits."""
        if self._added is None:
            self._added = []
        return self._added

    def admitted(self, principal: Any) -> None:
        """Set the authenticated principal."""
        self.principal = principal
        if self._added:
            self.carried = self._added if self.carried is None else self.carried + self._added

    async def reply(self, status: int, headers: Pairs, body: bytes) -> None:
        waiting = self.responder.reply(status, headers if self.carried is None else headers + self.carried, body)
        if waiting is not None:
            await waiting

    async def end_silently(self, headers: Pairs = EVENTS) -> None:
        """Answer a call that its client has cancelled: an event stream without an event (docs/adr/0014).

        Every other answer is an error in some client. Without an event id the client does not resume the stream.
        """
        await self.reply(200, headers, b"")

    async def stream_start(self, headers: Pairs) -> None:
        await self.responder.stream_start(200, headers if self.carried is None else headers + self.carried)


@final
class HttpSink:
    """The stream of one call: nothing until the first message, then SSE, up to `budget` bytes."""

    finished: bool = False
    is_untouched: bool = True
    """Nothing has been sent: the answer may still be plain JSON."""
    has_sent: bool = True
    """See `KeepAliveStream`."""
    _writing = False
    _is_gone = False
    _outbox: deque[bytes] | None = None
    _flushed: asyncio.Future[None] | None = None

    def __init__(self, request: HttpRequestHead, budget: int) -> None:
        self._request = request
        self._budget = budget

    @property
    def address(self) -> str | None:
        return self._request.caller_address

    def send(self, data: bytes) -> Awaitable[None]:
        """Put a notification on the stream. Once the budget is spent, notifications are dropped silently."""
        if self.finished or self._is_gone or len(data) > self._budget:
            return SENT
        self._budget -= len(data)
        return self._write(encode_event(data))

    async def send_comment(self) -> None:
        if not self.finished:
            await self._write(COMMENT)

    async def _write(self, chunk: bytes) -> None:
        self.has_sent = True
        if self._outbox is None:
            self._outbox = deque()
        self._outbox.append(chunk)
        if self._writing:
            return  # the current writer sends this too, in order
        self._writing = True
        try:
            if self.is_untouched:
                self.is_untouched = False
                await self._request.stream_start(EVENTS)
            while self._outbox:
                if not await self._request.responder.stream_chunk(self._outbox.popleft()):
                    self._is_gone = True
                    self._outbox.clear()
        finally:
            self._writing = False
            if self._flushed is not None and not self._flushed.done():
                self._flushed.set_result(None)

    async def _flush(self) -> None:
        """Wait until another writer has put everything on the stream."""
        if self._writing:
            self._flushed = asyncio.get_running_loop().create_future()
            await self._flushed

    async def finish(self, data: bytes | None, status: int = 200, headers: Pairs = JSON) -> None:
        """End the answer: as JSON if nothing was sent before, else as the last event of the stream."""
        if self.finished:
            return
        self.finished = True
        if data is None:
            await self._finish_silently()
        elif not self.is_untouched or (self._request.prefers_stream and status == 200):
            await self._write(encode_event(data))
            await self._flush()
            await self._request.responder.stream_end()
        else:
            await self._request.reply(status, headers, data)

    async def _finish_silently(self) -> None:
        if not self.is_untouched:
            await self._flush()
            await self._request.responder.stream_end()
        else:
            await self._request.end_silently()


@final
class Engine:
    """The endpoint."""

    def __init__(
        self,
        server: Server,
        guard: Guard,
        *,
        path: str = "/mcp",
        legacy: LegacyEndpoint | None = None,
        auth: Authenticator | None = None,
        rate_limit: RateLimiter | None = None,
        public_url: str | None = None,
        health: HealthRoutes | None = None,
    ) -> None:
        self.server = server
        self.path: str = "/" + path.strip("/")
        if not _PATH.fullmatch(self.path):
            raise ConfigError(
                f"no request can have the path {self.path!r}: write letters, digits, '/', '-', '_' and '.', such as '/mcp'"
            )
        self.guard = guard
        self.legacy = legacy
        self._admission = None
        if auth is not None or rate_limit is not None:
            from .admission import Admission

            self._admission = Admission(auth, rate_limit, public_url=public_url, path=self.path)
        self.reader: MessageReader = server.runtime.dispatcher.reader(legacy=legacy is not None)
        self.running_calls: RunningCalls = RunningCalls(server.limits)
        self.writer: Writer = server.runtime.writer
        self._voice = server.runtime.voice
        self._dispatcher = server.runtime.dispatcher
        self.tools: Tools = server.runtime.dispatcher.tools
        self._handlers = server.runtime.dispatcher.handlers
        self._limits = server.limits
        self.bodies: UnfinishedBodies = UnfinishedBodies(
            server.limits.max_incoming_body_bytes, server.limits.max_body_bytes
        )
        self._paths = {self.path, self.path + "/"} if self.path != "/" else {"/", ""}
        self._accepts: dict[str | None, tuple[bool, bool]] = {}
        self._types: dict[str | None, bool] = {None: True, "application/json": True}
        self.keep_alive: KeepAlive = KeepAlive(server.limits.keep_alive, self.spawn)
        self._routes: Mapping[tuple[str, str], Route] = legacy.routes() if legacy is not None else {}
        self._route_paths = frozenset(path for _, path in self._routes)
        server.runtime.custom_routes.reserve({*self._paths, *self._route_paths})
        self._tasks: set[asyncio.Task[None]] = set()
        self.closing: bool = False
        self.is_started: bool = False
        """`start` has run. A mounted app may be served without it."""
        self.since: float = time.monotonic()
        """The time of `start`, or of construction."""
        self.may_stream = True
        """Plain JSON-RPC over HTTP never streams, so its clients need not accept event streams."""
        self.listeners: int = 0
        """Open `subscriptions/listen` calls."""
        self.tls_failures = 0
        """TLS connections that failed, as the carrier counts them."""
        self.health = health
        if health is not None:
            health.attach(self)
        if legacy is not None:
            legacy.attach(self)
        _remember(self)

    @property
    def max_body_bytes(self) -> int:
        return self._limits.max_body_bytes

    @property
    def servers(self) -> tuple[Server, ...]:
        """All servers that are served, for a carrier that stops them."""
        return (self.server,)

    @property
    def paths(self) -> frozenset[str]:
        """All paths of the endpoint, those of its legacy part included."""
        return self._route_paths.union(self._paths)

    def owns(self, path: str) -> bool:
        return path in self._paths

    def takes(self, path: str) -> bool:
        """Whether this path is the endpoint, or a route of its legacy part."""
        return path in self._paths or path in self._route_paths

    def count_streams(self) -> int:
        """The number of open streams: GETs, and calls whose answer has become a stream."""
        return sum(not getattr(sink, "is_untouched", False) for sink in self.keep_alive)

    def gauges(self) -> Gauges:
        """The figures of `/gauges`. Cheap, and safe from any thread."""
        from .health import measure

        return measure(self.server, (self,))

    async def start(self) -> None:
        """Start the server's lifespan and the authenticator. Call it before listening; a second call does nothing."""
        self.closing = False
        await self.server.start()
        if self._admission is not None:
            await self._admission.start()
        if not self.is_started:
            self.since = time.monotonic()
            self.is_started = True

    # The entry for simple bindings

    async def handle(self, method: str, path: str, headers: AnyHeaders, body: bytes, responder: Responder) -> None:
        """Serve one whole request. Query strings are stripped; header names match in any case.

        `headers` is a mapping, pairs of name and value, or an object with `get(lower_case_name)`. Names and values are
        strings or bytes.
        """
        path, _, query = path.partition("?")
        request = HttpRequestHead(method, path, _lookup(headers), responder)
        request.query = query
        refused = self.admit(request)
        if refused is not None:
            await refused
        elif len(body) > self.max_body_bytes:
            await self.too_large(request)
        else:
            await self.dispatch(request, body)

    def admit(self, request: HttpRequestHead) -> Coroutine[Any, Any, None] | None:
        """Check path, Origin and Host. Returns the refusal to await, or None."""
        path = request.path
        if (
            path not in self._paths
            and path not in self._route_paths
            and self.server.runtime.custom_routes.find(path) is None
        ):
            return self._serve_elsewhere(request)
        headers = request.headers
        origin = headers.get("origin")
        scheme = "http" if origin is None else getattr(request.responder, "scheme", "http")
        try:
            request.carried = self.guard.admit(origin, headers.get("host") or request.authority, scheme)
        except ProtocolError as error:
            return self.refuse(request, error)
        return None

    async def _serve_elsewhere(self, request: HttpRequestHead) -> None:
        """Serve a path outside the endpoint: a public document, or 404."""
        if self.health is not None and await self.health.serve(request):
            return
        admission = self._admission
        if admission is not None and (await admission.serve_document(request) or await admission.refuse_login(request)):
            return
        message = f"nothing is served at {request.path[:200]}; the endpoint is {self.path}"
        await self.refuse(request, ProtocolError.invalid_request(message, status=404))

    def _check_content(self, request: HttpRequestHead) -> None:
        """Check Accept and Content-Type of a POST to the endpoint."""
        headers = request.headers
        kind = headers.get("content-type")
        if kind != "application/json" and not self._judge_type(kind):
            raise ProtocolError.invalid_request(
                f"the content type must be application/json, not {(kind or '')[:100]}", status=415
            )
        accepted = self._accepts.get(accept := headers.get("accept"))
        ok, request.prefers_stream = accepted or self._judge_accept(accept)
        if not ok and self.may_stream:
            raise ProtocolError.invalid_request("Accept must list application/json and text/event-stream", status=406)
        request.is_checked = True

    async def dispatch(self, request: HttpRequestHead, body: bytes) -> None:
        """Serve an admitted request."""
        if request.method == "POST" and request.path in self._paths:
            await self.post(request, body)
            return
        await self._other(request, body)

    # Calls that take a shortcut (`server/shortcuts.py`)

    @property
    def may_relay(self) -> bool:
        """May any call ever take one?"""
        return self._dispatcher.is_relaying

    def relays(self, path: str) -> Engine | None:
        """The engine whose calls may take a shortcut, for a path that was admitted; None if none may."""
        is_open = self._admission is None and not self.closing
        return self if is_open and self._dispatcher.takes_shortcuts else None

    def read_relayed(self, body: bytes, headers: HeaderLookup) -> IncomingCall | None:
        """A call of a tool, ready to be sent on; None for all else, which `post` reads again to serve or refuse it."""
        if not self.running_calls.has_room_for_shortcut():
            return None
        call = self.reader.read(body, headers)
        if type(call) is not IncomingCall or call.method != "tools/call" or call.params is None:
            return None
        if call.peer is None and (
            self.legacy is None or not self.legacy.admit_relayed(call, headers.get("mcp-session-id"))
        ):
            return None
        return call

    def json_headers(self, call: IncomingCall) -> Pairs:
        """The headers of a plain reply to a call."""
        return JSON if call.session is None or self.legacy is None else self.legacy.json_headers(call)

    def promote(self, request: HttpRequestHead, call: IncomingCall) -> Exchange:
        """The exchange of a call that took a shortcut, for the usual way."""
        if call.session is not None:
            assert self.legacy is not None
            return self.legacy.promote(request, call)
        return Exchange(call, HttpSink(request, self._limits.max_stream_bytes), self._voice)

    def finish(self, request: HttpRequestHead, relayed: RelayedRequest) -> Coroutine[Any, Any, None]:
        """Serve the rest of a call that took a shortcut."""
        call = relayed.call
        if call.session is not None:
            assert self.legacy is not None
            return self.legacy.call(request, call, relayed)
        return self._answer(request, call, cast("HttpSink", call.exchange.sink), relayed.start)

    def post(self, request: HttpRequestHead, body: bytes, message: Message | None = None) -> Coroutine[Any, Any, None]:
        """Serve one POST to the endpoint. The hot path: what can be done without waiting is done here.

        `message` is what the body says, if it was read.
        """
        if message is None:
            if self._admission is not None or len(body) > LARGE_MESSAGE:
                return self._post_slowly(request, body)
            try:
                if not request.is_checked:
                    self._check_content(request)
                message = self.reader.read(body, request.headers)
            except Exception as error:
                return self.refuse_failure(request, error)
        if type(message) is not IncomingCall:
            return self._post_other(request, message)
        if message.peer is None:
            if self.legacy is not None and message.method != "initialize":
                return self.legacy.call(request, message)
            return self._post_other(request, message)
        if self.closing and message.method == "subscriptions/listen":
            busy = ProtocolError.internal_error("the server is stopping; listen again in a moment", status=503)
            return request.reply(503, BUSY, self._voice.error(message, busy))
        message.principal = request.principal
        sink = HttpSink(request, self._limits.max_stream_bytes)
        Exchange(message, sink, self._voice)
        return self._answer(request, message, sink, self._handlers[message.method])

    async def _post_slowly(self, request: HttpRequestHead, body: bytes) -> None:
        """The same where the caller is to be authenticated first, or the body takes a while to read."""
        if self._admission is not None and not await self._is_let_in(request):
            return
        try:
            if not request.is_checked:
                self._check_content(request)
            if len(body) <= LARGE_MESSAGE:
                message = self.reader.read(body, request.headers)
            else:
                message = await asyncio.to_thread(self.reader.read, body, request.headers)
        except Exception as error:
            await self.refuse_failure(request, error)
            return
        await self.post(request, body, message)

    async def _answer(self, request: HttpRequestHead, message: IncomingCall, sink: HttpSink, serve: Serve) -> None:
        """Serve a modern call. One that finishes at once stays in this function."""
        exchange = message.exchange
        try:
            coroutine: Any = serve(message)
            try:
                awaited = coroutine.send(None)
            except StopIteration as done:
                result = done.value
            else:
                result = await self._carry(request, exchange, sink, coroutine, awaited)
            reply, status = self._voice.result(message, result), 200
        except InsufficientScope as error:
            exchange.end()
            status, more = self.step_up(request, error)
            # On a stream that has begun, the error alone.
            await sink.finish(self._voice.error(message, error), status, [*JSON, *more])
            return
        except ProtocolError as error:
            reply, status = self._voice.error(message, error), error.status
        except Abandoned:
            reply, status = None, 200
        except Exception as error:
            number = incident(message.method, error)
            failure = ProtocolError.internal_error(f"internal error (error {number})", status=200)
            reply, status = self._voice.error(message, failure), 200
        exchange.end()
        if sink.is_untouched and reply is not None and request.carried is None and not request.prefers_stream:
            sink.finished = True
            waiting = request.responder.reply(status, JSON if status != 503 else BUSY, reply)
            if waiting is not None:
                await waiting
        else:
            await sink.finish(reply, status, JSON if status != 503 else BUSY)

    async def _carry(
        self, request: HttpRequestHead, exchange: Exchange, sink: HttpSink, coroutine: Any, awaited: Any
    ) -> Any:
        """Run a call that takes a while, with a deadline, signs of life and a watch on the client."""
        # REQ cancel.http: closing the response stream MUST be taken as cancellation.
        unwatch = request.responder.watch(exchange.cancel)
        exchange.task = getattr(request.responder, "task", None)  # quicker than to ask asyncio, which asks the system
        exchange.on_stuck = lambda: self.spawn(self._answer_for(exchange, sink, request))
        self.keep_alive.add(sink)
        listens = exchange.call.method == "subscriptions/listen"
        self.listeners += listens
        try:
            return await self.running_calls.carry(exchange, coroutine, awaited)
        finally:
            self.listeners -= listens
            unwatch()
            self.keep_alive.remove(sink)

    @staticmethod
    async def _answer_for(exchange: Exchange, sink: HttpSink, request: HttpRequestHead) -> None:
        await sink.finish(exchange.voice.error(exchange.call, timed_out(exchange.call)))
        release_connection(request)

    async def _post_other(self, request: HttpRequestHead, message: Message) -> None:
        if isinstance(message, IncomingNotification) and (self.legacy is None or message.modern):
            # Header rules for notifications are undefined in this revision, and cancellation is by disconnect.
            await request.reply(202, [], b"")
        elif self.legacy is not None:
            try:
                await self.legacy.post(request, message)
            except Exception as error:
                await self.refuse_failure(request, error, message)
        elif isinstance(message, (IncomingReply, Batch)):
            kind = "a batch" if isinstance(message, Batch) else "a response"
            await self.refuse(request, ProtocolError.invalid_request(f"{kind} is not accepted by this revision"))

    async def _other(self, request: HttpRequestHead, body: bytes) -> None:
        if request.method == "OPTIONS":
            await self._options(request)
            return
        if not self.takes(request.path):
            await self._serve_custom_route(request, body)
            return
        if self._admission is not None and not await self._is_let_in(request):
            return
        try:
            route = self._routes.get((request.method, request.path))
            if route is not None:
                await route(request, body)
            elif self.legacy is not None and request.method == "GET" and request.path in self._paths:
                await self.legacy.get(request)
            elif self.legacy is not None and request.method == "DELETE" and request.path in self._paths:
                await self.legacy.delete(request)
            else:
                await self.not_allowed(request)
        except Exception as error:
            await self.refuse_failure(request, error)

    async def _serve_custom_route(self, request: HttpRequestHead, body: bytes) -> None:
        """A route of the author's: anyone may ask, as often as the rate limit allows."""
        from .custom_routes import serve_route

        if self._admission is not None:
            try:
                self._admission.admit_unasked(request)
            except Exception as error:
                await self._turn_away(request, error)
                return
        try:
            await serve_route(self, request, body)
        except Exception as error:
            await self.refuse_failure(request, error)

    async def _options(self, request: HttpRequestHead) -> None:
        # A browser asks this before it sends any credentials.
        if self._admission is not None:
            try:
                self._admission.admit_unasked(request)
            except Exception as error:
                await self._turn_away(request, error)
                return
        if request.carried is not None:
            requested_headers = request.headers.get("access-control-request-headers")
            request.carried = self.guard.preflight(request.carried, requested_headers)
        await request.reply(204, [("allow", self._allow())], b"")

    async def _is_let_in(self, request: HttpRequestHead) -> bool:
        """Authenticate the request. False if it was refused, and answered."""
        assert self._admission is not None
        try:
            request.admitted(await self._admission.identify(request))
        except Exception as error:
            await self._turn_away(request, error)
            return False
        return True

    def admit_more(self, request: HttpRequestHead) -> ProtocolError | None:
        """Count one more message of this request. Returns the error if its caller must wait."""
        return None if self._admission is None else self._admission.admit_more(request)

    # Refusals: a refused request changes nothing (P8).

    async def _turn_away(self, request: HttpRequestHead, error: Exception) -> None:
        """Answer a caller that was not admitted; the answer says nothing about the request."""
        assert self._admission is not None
        if isinstance(error, ProtocolError):  # raised by an author's own authenticator
            await self.refuse(request, error)
        else:
            await self._admission.turn_away(request, error)

    def step_up(self, request: HttpRequestHead, error: InsufficientScope) -> tuple[int, Pairs]:
        """Status and extra headers for a call that lacks scopes: a challenge, if the authenticator has one."""
        challenge = None if self._admission is None else self._admission.step_up(request, error.scopes)
        return challenge or (200, [])

    async def refuse(self, request: HttpRequestHead, error: ProtocolError, headers: Pairs | None = None) -> None:
        pairs = list(JSON)
        extra: Pairs | None = getattr(error, "headers", None)
        if extra:
            pairs += extra
        if error.status == 503:
            pairs.append(("retry-after", "1"))
        await request.reply(error.status, pairs + (headers or []), self.writer.error(error.request_id, error))

    def _allow(self) -> str:
        return "POST, OPTIONS" if self.legacy is None else self.legacy.allow()

    async def not_allowed(self, request: HttpRequestHead) -> None:
        allowed = self._allow()
        error = ProtocolError.invalid_request(f"{request.method[:20]} is not served here; use {allowed}", status=405)
        await self.refuse(request, error, [("allow", allowed)])

    async def too_large(self, request: HttpRequestHead) -> None:
        """Refuse a body unread, after authentication."""
        if self._admission is not None and request.method != "OPTIONS" and not await self._is_let_in(request):
            return
        error = ProtocolError.invalid_request(
            f"the body is larger than {self.max_body_bytes} bytes (max_body_bytes)", status=413
        )
        await self.refuse(request, error)

    async def refuse_failure(self, request: HttpRequestHead, error: Exception, message: Message | None = None) -> None:
        """Answer an exception: a protocol error with its own text, any other as an incident."""
        if isinstance(error, ProtocolError):
            await self.refuse(request, error)
            return
        number = incident("a request", error)
        refusal = ProtocolError.internal_error(f"internal error (error {number})")
        if isinstance(message, IncomingCall):
            refusal.request_id = message.id
        await self.refuse(request, refusal)

    def refuse_headers(self, request: HttpRequestHead) -> Coroutine[Any, Any, None] | None:
        """For bindings whose HTTP server has other limits: refuse headers that are larger than ours."""
        limit = self._limits.max_header_bytes
        if sum(len(request.headers.get(name) or "") for name in _READ_HEADERS) <= limit:
            return None
        message = f"the request's headers are larger than {limit} bytes (max_header_bytes)"
        return self.refuse(request, ProtocolError.invalid_request(message, status=431))

    def _judge_accept(self, accept: str | None) -> tuple[bool, bool]:
        verdict = judge_accept(accept)
        if len(self._accepts) < 256:
            self._accepts[accept] = verdict
        return verdict

    def _judge_type(self, kind: str | None) -> bool:
        known = self._types.get(kind)
        if known is None:
            known = kind is not None and kind.partition(";")[0].strip().lower() == "application/json"
            if len(self._types) < 256:
                self._types[kind] = known
        return known

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, patience: float) -> None:
        """Stop: end the listen streams properly, let calls finish for a while, then cancel the rest."""
        self.closing = True
        self.is_started = False
        if self.running_calls.on_shortcuts:
            self.running_calls.promote_all()
            await asyncio.sleep(0)  # for their tasks to begin
        if self.health is not None:
            await self.health.close()
        for exchange in tuple(self.running_calls.open):
            if exchange.on_close is not None:
                exchange.on_close()
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while self.running_calls.open and loop.time() < until:
            await asyncio.sleep(0.01)
        if self.running_calls.open:
            self.running_calls.cancel_all()
            until = loop.time() + _LAST_WORDS_SECONDS
            while self.running_calls.open and loop.time() < until:
                await asyncio.sleep(0.01)
        # Sessions end last, after the answers to their calls.
        if self.legacy is not None:
            await self.legacy.close()
        self.keep_alive.close()
        if self._admission is not None:
            await self._admission.close()


# The endpoints of each server.
_ENGINES: Final[weakref.WeakKeyDictionary[Server, list[weakref.ref[Engine]]]] = weakref.WeakKeyDictionary()


def _remember(engine: Engine) -> None:
    references = _ENGINES.setdefault(engine.server, [])
    references[:] = [reference for reference in references if reference() is not None] + [weakref.ref(engine)]


def engines_of(server: Server) -> list[Engine]:
    """The endpoints of a server in this process."""
    return [engine for reference in tuple(_ENGINES.get(server, ())) if (engine := reference()) is not None]


def release_connection(request: HttpRequestHead) -> None:
    """Tell a binding that serves requests one by one that this one is answered, though its handler may still run."""
    release = getattr(request.responder, "release", None)
    if release is not None:
        release()


def watch_by_task(wait: Callable[[], Coroutine[Any, Any, None]], callback: Callable[[], None]) -> Callable[[], None]:
    """`Responder.watch` for bindings that can only await the disconnect."""

    async def watch() -> None:
        await wait()
        callback()

    task = asyncio.ensure_future(watch())

    def unwatch() -> None:
        task.cancel()

    return unwatch


def has_body(method: str, status: int) -> bool:
    """Whether an answer has a body. Where it has none, a client takes what follows for its next answer (RFC 9110, 6.4.1)."""
    return method != "HEAD" and status not in (204, 304)


def judge_accept(accept: str | None) -> tuple[bool, bool]:
    """Whether a POST's Accept admits both forms of answer, and whether it lists the stream first (R112, R118)."""
    if accept is None:
        return True, False
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    if "*/*" in kinds:
        return True, False
    json = next((i for i, k in enumerate(kinds) if k in ("application/json", "application/*")), None)
    stream = next((i for i, k in enumerate(kinds) if k in ("text/event-stream", "text/*")), None)
    return json is not None and stream is not None, json is not None and stream is not None and stream < json
