"""HTTP without a socket: the whole behaviour of the endpoint, for any HTTP server to carry (R143-R147).

A binding (ASGI, our own server, yours) gives `handle` a method, a path, headers, a body and a *responder*, and gets every answer
through the responder. The order on every verb: path, Origin and Host, authentication, then content (R129). Preflights, the
documents an authenticator has for everybody, and probes (see `health`) are answered before anyone is asked who they are.

Modern requests are served here. What belongs to an older era is handed to the `legacy` door, if one is there.

The stream is committed late: a call that emits nothing is answered as plain JSON with the status its outcome deserves;
the first notification, or a long silence, turns the answer into an SSE stream, and whatever follows travels in it.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, final

from trimaran.errors import ConfigError, ProtocolError
from trimaran.protocol.inbound import Answer, Batch, Call, HeaderLookup, Message, Notice
from trimaran.protocol.sse import COMMENT, encode_event
from trimaran.server.access import InsufficientScope
from trimaran.server.exchange import SENT, Exchange
from trimaran.server.flights import Abandoned, Flights, timed_out
from trimaran.server.handlers import incident

from .guard import Guard

if TYPE_CHECKING:
    from trimaran.server.server import Server

    from .entrance import RateLimiter
    from .health import Gauges, Health

__all__ = [
    "Authenticator",
    "Engine",
    "FixedHeaders",
    "Headers",
    "HttpSink",
    "LegacyDoor",
    "Request",
    "Responder",
    "engines_of",
    "watch_by_task",
]

Pairs = list[tuple[str, str]]


@final
class FixedHeaders(list[tuple[str, str]]):
    """Headers that many replies share: a carrier may keep what it made of them, by status, in `rendered`."""

    __slots__ = ("rendered",)

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self.rendered: dict[int, bytes] = {}


JSON: Final[Pairs] = FixedHeaders([("content-type", "application/json")])
BUSY: Final[Pairs] = FixedHeaders([*JSON, ("retry-after", "1")])
EVENTS: Final[Pairs] = [
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
]
# How long calls cut short at the end have to say so.
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

    It may have more to tell about the connection, for those who ask: `address`, the peer's, and `scheme` ("http" unless
    it says otherwise).
    """

    def reply(self, status: int, headers: Pairs, body: bytes) -> Awaitable[None] | None:
        """Answer whole. What comes back, if anything, is awaited."""
        ...

    async def stream_start(self, status: int, headers: Pairs) -> None: ...
    async def stream_chunk(self, data: bytes) -> bool:
        """Send a piece; False once the client is gone."""
        ...

    async def stream_end(self) -> None: ...
    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once the client has gone, until what comes back is called. Only for calls that take a while."""
        ...


Route: TypeAlias = "Callable[[Request, bytes], Awaitable[None]]"


class KeptAlive(Protocol):
    """An open stream that wants a sign of life now and then."""

    heard: bool

    async def keep_alive(self) -> None: ...


class LegacyDoor(Protocol):
    """What the engine hands over: everything a modern peer never sends."""

    async def call(self, request: Request, call: Call) -> None: ...
    async def post(self, request: Request, message: Message) -> None: ...
    async def get(self, request: Request) -> None: ...
    async def delete(self, request: Request) -> None: ...
    def routes(self) -> Mapping[tuple[str, str], Callable[[Request, bytes], Awaitable[None]]]: ...
    def allow(self) -> str:
        """The verbs of the endpoint, for `Allow`."""
        ...

    async def close(self) -> None: ...


class Authenticator(Protocol):
    """Decides who is calling; `trimaran.auth` has ready ones.

    Where it has them, these are used, too: `start(fetch)` and `close()`; `header_names`, the headers it reads beside
    Authorization; `document(request)`, the reply to a request for something that anyone may read, or None; and
    `step_up(request, scopes)`, the challenge for a caller that needs more scopes.
    """

    async def authenticate(self, request: Request) -> Any:
        """The principal, or None for an anonymous caller that may come in; `trimaran.auth.Refused` for anyone else."""
        ...


@final
class Headers:
    """Headers by lower-case name, for bindings that have only pairs. A repeated name is joined, as RFC 9110 has it."""

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
            "headers is a mapping, pairs of name and value, or an object with get(lower_case_name); "
            f"this {kind} is none of these"
        ) from None


@final
class Request:
    """One HTTP request, its body apart."""

    carried: Pairs | None = None
    """Headers that every reply to it carries: CORS, and what its authentication added."""
    principal: Any = None
    public_url: str | None = None
    believed_address: str | None = None
    outer_path: str | None = None
    """The path its client asked for, where an app above has taken something away from it."""
    _added: Pairs | None = None
    prefers_stream = False
    authority: str | None = None
    query = ""
    is_checked = False
    """Have Accept and Content-Type been looked at?"""
    prefix = ""
    """Where the app is mounted, if it is: what a client must put before our own paths."""

    def __init__(self, method: str, path: str, headers: HeaderLookup, responder: Responder) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.responder = responder

    @property
    def scope(self) -> Any:
        """The ASGI scope that it came with; None under any other carrier."""
        return getattr(self.responder, "scope", None)

    @property
    def address(self) -> str | None:
        """The address of the peer, if the carrier knows it: behind a proxy the proxy's, unless the carrier sees to that."""
        return getattr(self.responder, "address", None)

    @property
    def caller_address(self) -> str | None:
        """The address of the caller: the peer's, or what a proxy says that the rate limit was told to trust."""
        return self.believed_address or self.address

    @property
    def url(self) -> str | None:
        """The URL its client asked for, without the query; None if nobody said to which host.

        Put together from what the request says. Behind a proxy that is not what clients see: set `public_url=` there.
        """
        if self.public_url is not None:
            return self.public_url
        host = self.headers.get("host") or self.authority
        scheme = getattr(self.responder, "scheme", "http")
        return f"{scheme}://{host}{self.outer_path or self.path}" if host else None

    @property
    def reply_headers(self) -> Pairs:
        """Headers for the reply, for an authenticator that lets the request in to add to."""
        if self._added is None:
            self._added = []
        return self._added

    def admitted(self, principal: Any) -> None:
        """Who it is has been found out."""
        self.principal = principal
        if self._added:
            self.carried = self._added if self.carried is None else self.carried + self._added

    async def reply(self, status: int, headers: Pairs, body: bytes) -> None:
        waiting = self.responder.reply(status, headers if self.carried is None else headers + self.carried, body)
        if waiting is not None:
            await waiting

    async def end_silently(self, headers: Pairs = EVENTS) -> None:
        """Answer a call that its client has cancelled: an event stream that ends without an event (docs/adr/0014).

        Every other answer is an error in some client. No event has an id, so nobody comes back for more.
        """
        await self.reply(200, headers, b"")

    async def stream_start(self, headers: Pairs) -> None:
        await self.responder.stream_start(200, headers if self.carried is None else headers + self.carried)


@final
class HttpSink:
    """The stream of one call: nothing until the first message, then SSE, at most so many bytes."""

    finished = False
    is_untouched = True
    """Nothing has been sent: the answer may still be plain JSON."""
    heard = True
    """Has anything been sent since the last keep-alive look?"""
    _writing = False
    _is_gone = False
    _outbox: deque[bytes] | None = None
    _flushed: asyncio.Future[None] | None = None

    def __init__(self, request: Request, budget: int) -> None:
        self._request = request
        self._budget = budget

    @property
    def address(self) -> str | None:
        return self._request.caller_address

    def send(self, data: bytes) -> Awaitable[None]:
        """Put a notification on the stream; dropped without a word once the stream's budget is spent."""
        if self.finished or self._is_gone or len(data) > self._budget:
            return SENT
        self._budget -= len(data)
        return self._write(encode_event(data))

    async def keep_alive(self) -> None:
        if self.heard or self.finished:
            self.heard = False
            return
        await self._write(COMMENT)
        self.heard = False

    async def _write(self, chunk: bytes) -> None:
        self.heard = True
        if self._outbox is None:
            self._outbox = deque()
        self._outbox.append(chunk)
        if self._writing:
            return  # whoever is writing takes this along, in order
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
        """The end: the reply as JSON if nothing went before it, else the last event of the stream."""
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
        legacy: LegacyDoor | None = None,
        auth: Authenticator | None = None,
        rate_limit: RateLimiter | None = None,
        public_url: str | None = None,
        health: Health | None = None,
    ) -> None:
        self.server = server
        self.path = "/" + path.strip("/")
        self.guard = guard
        self.legacy = legacy
        self._entrance = None
        if auth is not None or rate_limit is not None:
            from .entrance import Entrance

            self._entrance = Entrance(auth, rate_limit, public_url=public_url, path=self.path)
        self.reader = server.reader(legacy=legacy is not None)
        self.flights = Flights(server.limits)
        self.writer = server.writer
        self._voice = server.voice
        self._handlers = server.dispatcher.handlers
        self._limits = server.limits
        self._paths = {self.path, self.path + "/"} if self.path != "/" else {"/", ""}
        self._accepts: dict[str | None, tuple[bool, bool]] = {}
        self._types: dict[str | None, bool] = {None: True, "application/json": True}
        self._sinks: set[KeptAlive] = set()
        self._ticker: asyncio.TimerHandle | None = None
        self._routes: Mapping[tuple[str, str], Route] = legacy.routes() if legacy is not None else {}
        self._route_paths = frozenset(path for _, path in self._routes)
        self._errands: set[asyncio.Task[None]] = set()
        self.closing = False
        self.is_started = False
        """Has `start` done its work? Nobody need have called it: a mounted app is served without."""
        self.since = time.monotonic()
        """When it was started, or made."""
        self.may_stream = True
        """Plain JSON-RPC over HTTP never streams, so its clients need not say that they could read one."""
        self.listeners = 0
        """Open `subscriptions/listen` calls."""
        self.tls_failures = 0
        """TLS connections that failed, as the carrier counts them."""
        self.health = health
        if health is not None:
            health.attach(self)
        _remember(self)

    @property
    def asks_who(self) -> bool:
        """Do credentials, or addresses, matter here?"""
        return self._entrance is not None

    @property
    def max_body_bytes(self) -> int:
        return self._limits.max_body_bytes

    def owns(self, path: str) -> bool:
        return path in self._paths

    def takes(self, path: str) -> bool:
        """Is this the endpoint, or a route of its legacy door?"""
        return path in self._paths or path in self._route_paths

    def count_streams(self) -> int:
        """How many streams are open: GETs, and calls whose answer has become one."""
        return sum(not getattr(sink, "is_untouched", False) for sink in self._sinks.copy())

    def gauges(self) -> Gauges:
        """What is open and at work, as `/gauges` shows it. Cheap, and from any thread."""
        from .health import measure

        return measure(self.server, (self,))

    async def start(self) -> None:
        """Get ready to serve: the server's lifespan, and the authenticator. Before listening; again does no harm."""
        self.closing = False
        await self.server.start()
        if self._entrance is not None:
            await self._entrance.start()
        if not self.is_started:
            self.since = time.monotonic()
            self.is_started = True

    # Any binding without special needs comes in here.

    async def handle(self, method: str, path: str, headers: AnyHeaders, body: bytes, responder: Responder) -> None:
        """Serve one request whole. Query strings are stripped; header names are matched in any case.

        `headers` is a mapping, pairs of name and value, or an object with `get(lower_case_name)`. Names and values are
        strings or bytes.
        """
        path, _, query = path.partition("?")
        request = Request(method, path, _lookup(headers), responder)
        request.query = query
        refused = self.admit(request)
        if refused is not None:
            await refused
        elif len(body) > self.max_body_bytes:
            await self.too_large(request)
        else:
            await self.dispatch(request, body)

    def admit(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Path, Origin and Host. What comes back, if anything, is the refusal to be awaited."""
        if request.path not in self._paths and request.path not in self._route_paths:
            return self._serve_elsewhere(request)
        headers = request.headers
        origin = headers.get("origin")
        scheme = "http" if origin is None else getattr(request.responder, "scheme", "http")
        try:
            request.carried = self.guard.admit(origin, headers.get("host") or request.authority, scheme)
        except ProtocolError as error:
            return self.refuse(request, error)
        return None

    async def _serve_elsewhere(self, request: Request) -> None:
        """A path that is not the endpoint's: what anyone may read, or nothing."""
        if self.health is not None and await self.health.serve(request):
            return
        entrance = self._entrance
        if entrance is not None and (await entrance.serve_document(request) or await entrance.refuse_login(request)):
            return
        message = f"nothing is served at {request.path[:200]}; the endpoint is {self.path}"
        await self.refuse(request, ProtocolError.invalid_request(message, status=404))

    def _check_content(self, request: Request) -> None:
        """What a POST to the endpoint says about itself: Accept and Content-Type."""
        headers = request.headers
        kind = headers.get("content-type")
        if kind != "application/json" and not self._judge_type(kind):
            raise ProtocolError.invalid_request(
                f"the content type is application/json, not {(kind or '')[:100]}", status=415
            )
        accepted = self._accepts.get(accept := headers.get("accept"))
        ok, request.prefers_stream = accepted or self._judge_accept(accept)
        if not ok and self.may_stream:
            raise ProtocolError.invalid_request("Accept must list application/json and text/event-stream", status=406)
        request.is_checked = True

    async def dispatch(self, request: Request, body: bytes) -> None:
        """Serve an admitted request."""
        if request.method == "POST" and request.path in self._paths:
            await self.post(request, body)
            return
        await self._other(request, body)

    async def post(self, request: Request, body: bytes) -> None:
        """Serve one POST to the endpoint. The hot path: a modern call that finishes at once stays in this function."""
        if self._entrance is not None and not await self._is_let_in(request):
            return
        try:
            if not request.is_checked:
                self._check_content(request)
            message = self.reader.read(body, request.headers)
        except ProtocolError as error:
            await self.refuse(request, error)
            return
        except Exception as error:
            await self.refuse_unexpected(request, error)
            return
        if type(message) is not Call or message.peer is None:
            if type(message) is Call and self.legacy is not None and message.method != "initialize":
                await self.legacy.call(request, message)
            else:
                await self._post_other(request, message)
            return
        if self.closing and message.method == "subscriptions/listen":
            busy = ProtocolError.internal_error("the server is stopping; listen again in a moment", status=503)
            await request.reply(503, BUSY, self._voice.error(message, busy))
            return
        message.principal = request.principal
        sink = HttpSink(request, self._limits.max_stream_bytes)
        exchange = Exchange(message, sink, self._voice)
        try:
            coroutine: Any = self._handlers[message.method](message)
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

    async def _carry(self, request: Request, exchange: Exchange, sink: HttpSink, coroutine: Any, awaited: Any) -> Any:
        """A call that takes a while: now it gets its deadline, its keep-alive and its watch on the client."""
        # REQ cancel.http: closing the response stream MUST be taken as cancellation.
        unwatch = request.responder.watch(exchange.cancel)
        exchange.on_stuck = lambda: self.spawn(self._answer_for(exchange, sink, request))
        self.attend(sink)
        listens = exchange.call.method == "subscriptions/listen"
        self.listeners += listens
        try:
            return await self.flights.carry(exchange, coroutine, awaited)
        finally:
            self.listeners -= listens
            unwatch()
            self.leave(sink)

    @staticmethod
    async def _answer_for(exchange: Exchange, sink: HttpSink, request: Request) -> None:
        await sink.finish(exchange.voice.error(exchange.call, timed_out(exchange.call)))
        release_connection(request)

    async def _post_other(self, request: Request, message: Message) -> None:
        if isinstance(message, Notice) and (self.legacy is None or message.modern):
            # Header rules for notifications are undefined in this revision, and cancellation is by disconnect.
            await request.reply(202, [], b"")
        elif self.legacy is not None:
            try:
                await self.legacy.post(request, message)
            except ProtocolError as error:
                await self.refuse(request, error)
            except Exception as error:
                await self.refuse_unexpected(request, error, message)
        elif isinstance(message, (Answer, Batch)):
            what = "a batch" if isinstance(message, Batch) else "a response"
            await self.refuse(request, ProtocolError.invalid_request(f"{what} is not accepted by this revision"))

    async def _other(self, request: Request, body: bytes) -> None:
        if request.method == "OPTIONS":
            await self._options(request)
            return
        if self._entrance is not None and not await self._is_let_in(request):
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
        except ProtocolError as error:
            await self.refuse(request, error)
        except Exception as error:
            await self.refuse_unexpected(request, error)

    async def _options(self, request: Request) -> None:
        # A browser asks this before it sends any credentials.
        if self._entrance is not None:
            try:
                self._entrance.admit_unasked(request)
            except Exception as error:
                await self._turn_away(request, error)
                return
        if request.carried is not None:
            asked = request.headers.get("access-control-request-headers")
            request.carried = self.guard.preflight(request.carried, asked)
        await request.reply(204, [("allow", self._allow())], b"")

    async def _is_let_in(self, request: Request) -> bool:
        """Who is asking? If that is refused, it has been answered."""
        assert self._entrance is not None
        try:
            request.admitted(await self._entrance.identify(request))
        except Exception as error:
            await self._turn_away(request, error)
            return False
        return True

    def admit_more(self, request: Request) -> ProtocolError | None:
        """Count one more message of this request. What comes back, if anything, says that its caller has to wait."""
        return None if self._entrance is None else self._entrance.admit_more(request)

    # Refusals: nothing that is refused leaves anything behind (P8).

    async def _turn_away(self, request: Request, error: Exception) -> None:
        """A caller that was not let in: its refusal, and nothing about what it came for."""
        assert self._entrance is not None
        if isinstance(error, ProtocolError):  # an author's own way to refuse
            await self.refuse(request, error)
        else:
            await self._entrance.turn_away(request, error)

    def step_up(self, request: Request, error: InsufficientScope) -> tuple[int, Pairs]:
        """The status of a call that lacks scopes, and more headers: a challenge if it can be told how to get them."""
        challenge = None if self._entrance is None else self._entrance.step_up(request, error.scopes)
        return challenge or (200, [])

    async def refuse(self, request: Request, error: ProtocolError, headers: Pairs | None = None) -> None:
        pairs = list(JSON)
        extra: Pairs | None = getattr(error, "headers", None)
        if extra:
            pairs += extra
        if error.status == 503:
            pairs.append(("retry-after", "1"))
        await request.reply(error.status, pairs + (headers or []), self.writer.error(error.request_id, error))

    def _allow(self) -> str:
        return "POST, OPTIONS" if self.legacy is None else self.legacy.allow()

    async def not_allowed(self, request: Request) -> None:
        allowed = self._allow()
        error = ProtocolError.invalid_request(f"{request.method[:20]} is not served here; use {allowed}", status=405)
        await self.refuse(request, error, [("allow", allowed)])

    async def too_large(self, request: Request) -> None:
        """Refuse a body unread; who is asking comes first, as ever."""
        if self._entrance is not None and request.method != "OPTIONS" and not await self._is_let_in(request):
            return
        error = ProtocolError.invalid_request(
            f"the body is larger than {self.max_body_bytes} bytes (max_body_bytes)", status=413
        )
        await self.refuse(request, error)

    async def refuse_unexpected(self, request: Request, error: Exception, message: Message | None = None) -> None:
        number = incident("a request", error)
        refusal = ProtocolError.internal_error(f"internal error (error {number})")
        if isinstance(message, Call):
            refusal.request_id = message.id
        await self.refuse(request, refusal)

    def refuse_headers(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """For bindings whose HTTP server has limits of its own: are the headers we read larger than we allow?"""
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

    # Streams that stay open

    def attend(self, sink: KeptAlive) -> None:
        """Keep a stream alive until `leave`."""
        sink.heard = True
        self._sinks.add(sink)
        if self._ticker is None:
            self._schedule_tick()

    def leave(self, sink: KeptAlive) -> None:
        self._sinks.discard(sink)

    def _schedule_tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(self._limits.keep_alive, self._tick)

    def _tick(self) -> None:
        self._ticker = None
        if not self._sinks:
            return
        for sink in tuple(self._sinks):
            self.spawn(sink.keep_alive())
        self._schedule_tick()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def drain(self, patience: float) -> None:
        """Stop: end the listen streams properly, let calls finish for a while, then cancel what is left."""
        self.closing = True
        self.is_started = False
        if self.health is not None:
            await self.health.close()
        for exchange in tuple(self.flights.open):
            if exchange.on_close is not None:
                exchange.on_close()
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while self.flights.open and loop.time() < until:
            await asyncio.sleep(0.01)
        if self.flights.open:
            self.flights.cancel_all()
            until = loop.time() + _LAST_WORDS_SECONDS
            while self.flights.open and loop.time() < until:
                await asyncio.sleep(0.01)
        # Sessions last: their calls were still to be answered.
        if self.legacy is not None:
            await self.legacy.close()
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        if self._entrance is not None:
            await self._entrance.close()


# Which endpoints serve a server, for those who hold only the server.
_ENGINES: Final[weakref.WeakKeyDictionary[Server, list[weakref.ref[Engine]]]] = weakref.WeakKeyDictionary()


def _remember(engine: Engine) -> None:
    known = _ENGINES.setdefault(engine.server, [])
    known[:] = [one for one in known if one() is not None] + [weakref.ref(engine)]


def engines_of(server: Server) -> list[Engine]:
    """The endpoints of a server in this process."""
    return [engine for one in tuple(_ENGINES.get(server, ())) if (engine := one()) is not None]


def release_connection(request: Request) -> None:
    """Tell a binding that serves one request after the other that this one is answered, handler or no handler."""
    release = getattr(request.responder, "release", None)
    if release is not None:
        release()


def watch_by_task(wait: Callable[[], Coroutine[Any, Any, None]], callback: Callable[[], None]) -> Callable[[], None]:
    """`Responder.watch` for bindings that can only wait for the client's going."""

    async def watch() -> None:
        await wait()
        callback()

    task = asyncio.ensure_future(watch())

    def unwatch() -> None:
        task.cancel()

    return unwatch


def judge_accept(accept: str | None) -> tuple[bool, bool]:
    """Does a POST's Accept admit both forms of answer, and does it list the stream first (R112, R118)?"""
    if accept is None:
        return True, False
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    if "*/*" in kinds:
        return True, False
    json = next((i for i, k in enumerate(kinds) if k in ("application/json", "application/*")), None)
    stream = next((i for i, k in enumerate(kinds) if k in ("text/event-stream", "text/*")), None)
    return json is not None and stream is not None, json is not None and stream is not None and stream < json
