"""Streamable HTTP of 2025-03-26 to 2025-11-25, plain JSON-RPC over HTTP, and the way to HTTP+SSE.

The engine hands over everything that a modern peer never sends. A POST is checked in this order: the session exists, it
belongs to this principal, its handshake is complete, its revision has the method, the params fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast, final

import msgspec
from msgspec import Raw

from trimaran.errors import CODE_INVALID_PARAMS, CODE_METHOD_NOT_FOUND, ConfigError, ProtocolError
from trimaran.protocol.inbound import Batch, IncomingCall, IncomingNotification, IncomingReply, Message, check_batch
from trimaran.protocol.meta import Peer
from trimaran.protocol.sse import COMMENT
from trimaran.protocol.versions import V2024_11, V2025_03, is_legacy
from trimaran.server.access import InsufficientScope, owner_text
from trimaran.server.dispatch import Serve
from trimaran.server.exchange import SENT, Exchange
from trimaran.server.handlers import incident
from trimaran.server.running_calls import Abandoned, ContinuesElsewhere, timed_out
from trimaran.state.byte_budget import ByteBudget
from trimaran.transports.caller_address import place_of
from trimaran.transports.engine import JSON, Engine, HttpRequestHead, HttpSink, Pairs, release_connection

from .handshake import Handshake, negotiate
from .resumable_streams import CallStream, EventLog, StandaloneOutlet, read_event_id, read_stream_name, replay
from .session import Session, SessionTable

if TYPE_CHECKING:
    from trimaran.server.server import Server
    from trimaran.transports.relayed_request import RelayedRequest

Route = Callable[[HttpRequestHead, bytes], Awaitable[None]]

_CANCELLED: Final = object()
_NOT_INITIALIZED: Final = "no session: send initialize first and repeat its Mcp-Session-Id on every request"


@final
class LegacyHttp:
    """The legacy door of an HTTP endpoint.

    `plain` is the oldest way of all: POST only, no sessions, no streams, no handshake needed (R131-R134).
    Without `validate_protocol_version` the MCP-Protocol-Version header of a legacy request may say anything (R105).
    """

    def __init__(
        self,
        server: Server,
        *,
        require_session: bool = True,
        enable_get: bool = True,
        allow_delete: bool = True,
        sse_path: str | None = None,
        sse_message_path: str | None = None,
        retry_ms: int | None = 1000,
        plain: bool = False,
        validate_protocol_version: bool = True,
    ) -> None:
        self._server = server
        self._limits = server.limits
        self._handshake = Handshake(server)
        self.sessions: SessionTable = self._handshake.sessions
        self._require_session = require_session and not plain
        self._enable_get = enable_get and self._require_session
        self._allow_delete = allow_delete and self._require_session
        self._retry = retry_ms
        self._plain = plain
        self._checks_version = validate_protocol_version
        self._engine: Engine = None  # pyright: ignore[reportAttributeAccessIssue]
        self._streams: dict[str, set[CallStream]] = {}
        self._replay = ByteBudget(server.limits.replay_total_bytes)
        self._shared = None
        if server.runtime.fleet is not None and self._require_session:
            from trimaran.fleet import fleet_of

            from .fleet_sessions import FleetSessions

            fleet = fleet_of(server)
            assert fleet is not None
            self._shared = FleetSessions.of(server, fleet, self.sessions, retry_ms)
        self._sse = _sse(server, sse_path, sse_message_path)

    def attach(self, engine: Engine) -> None:
        self._engine = engine
        engine.may_stream = not self._plain
        engine.reader.checks_version = self._checks_version
        if self._sse is not None:
            self._sse.attach(engine)

    def routes(self) -> Mapping[tuple[str, str], Route]:
        return {} if self._sse is None else self._sse.routes()

    async def close(self) -> None:
        if self._sse is not None:
            await self._sse.close()
        if self._shared is not None:
            await self._shared.close()
        self.sessions.end_all(self)

    # POST

    async def post(self, request: HttpRequestHead, message: Message) -> None:
        """Everything a POST may bring besides a call."""
        if isinstance(message, IncomingCall):
            await self._initialize(request, message)
        elif isinstance(message, Batch):
            await self._batch(request, message)
        else:
            await self._hear(request, message)

    def admit_relayed(self, call: IncomingCall, id: str | None) -> bool:
        """Give a call its session, by its id. False if `call` has to find the session, or say why there is none."""
        if not self._require_session or self._shared is not None or id is None:
            return False
        session = self.sessions.get(id)
        if session is None or call.id in session.cancelled_early:
            return False
        try:
            self._handshake.admit(call, session, None)
        except ProtocolError:
            return False
        return True

    def json_headers(self, call: IncomingCall) -> Pairs:
        """The headers of a plain reply to a call of a session."""
        session: Any = call.session
        return session.outlet.json_headers

    def promote(self, request: HttpRequestHead, call: IncomingCall) -> Exchange:
        """The exchange of a call that took a shortcut, for the usual way."""
        session: Any = call.session
        stream = CallStream(request, session.outlet, self._limits.max_stream_bytes, call.id)
        return Exchange(call, stream, session.voice)

    async def call(self, request: HttpRequestHead, call: IncomingCall, relayed: RelayedRequest | None = None) -> None:
        """Serve one call; the first step by hand, so that a quick one costs no more than that."""
        if not self._require_session:
            await self._call_without_session(request, call)
            return
        try:
            if relayed is not None:
                session, serve = cast("Session", call.session), relayed.start
            else:
                session = self._session(request) if self._shared is None else await self._find(request)
                serve = self._handshake.admit(call, session, request.principal)
        except ProtocolError as error:
            await self._refuse(request, error, call)
            return
        except Exception as error:  # an unexpected error of a store
            await self._engine.refuse_failure(request, error, call)
            return
        outlet: Any = session.outlet
        voice = session.voice
        if relayed is None:
            stream = CallStream(request, outlet, self._limits.max_stream_bytes, call.id)
            exchange = Exchange(call, stream, voice)
        else:
            exchange = call.exchange
            stream = cast("CallStream", exchange.sink)
        data, status = None, 200
        try:
            coroutine: Any = serve(call)
            try:
                awaited = coroutine.send(None)
            except StopIteration as done:
                result = done.value
            else:
                result = await self._carry(exchange, session, stream, coroutine, awaited)
            data = voice.result(call, result)
        except InsufficientScope as error:
            exchange.end()
            status, more = self._engine.step_up(request, error)
            await stream.finish(voice.error(call, error), status, more)
            return
        except ProtocolError as error:
            # Errors of handlers travel under 200 on these revisions (R122).
            data, status = voice.error(call, error), error.status if error.status == 503 else 200
            if status == 503:
                exchange.end()
                await stream.finish(data, status, [("retry-after", "1")])
                return
        except Abandoned:
            pass
        except ContinuesElsewhere:
            exchange.end()
            await stream.leave()
            return
        except Exception as error:
            number = incident(call.method, error)
            data = voice.error(call, ProtocolError.internal_error(f"internal error (error {number})"))
        exchange.end()
        if stream.is_untouched and data is not None and request.carried is None and not request.prefers_stream:
            stream.finished = True
            waiting = request.responder.reply(status, outlet.json_headers, data)
            if waiting is not None:
                await waiting
        else:
            await stream.finish(data, status)

    async def _refuse(self, request: HttpRequestHead, error: ProtocolError, call: IncomingCall) -> None:
        if error.code in (CODE_METHOD_NOT_FOUND, CODE_INVALID_PARAMS):
            # Under 200: to a client of these revisions a 404 means that its session has ended.
            error.status = 200
        await self._engine.refuse(request, _with_id(error, call))

    async def _initialize(self, request: HttpRequestHead, call: IncomingCall) -> None:
        stale = request.headers.get("mcp-session-id")
        if stale is not None and self._require_session:
            try:
                await self._find(request)
            except ProtocolError as error:
                raise _with_id(error, call) from None
        if not self._require_session:
            if call.params is None and not (self._plain and call.lacks_fields):
                raise _with_id(ProtocolError.invalid_params(f"initialize: {call.shape_error}"), call)
            result = self._handshake.result(V2024_11 if self._plain else negotiate(call).version)
            await request.reply(200, JSON, self._server.runtime.writer.legacy_result(call.id, result))
            return
        try:
            session, result = await self._handshake.open(call, self._outlet, request.principal, self)
            outlet: Any = session.outlet
            outlet.introduce(session, self._retry)
            session.place = (
                place_of(request.caller_address) if request.principal is None else owner_text(request.principal)
            )
            if self._shared is not None:
                await self._shared.enroll(session, request.principal)
        except ProtocolError as error:
            raise _with_id(error, call) from None
        data = self._server.runtime.writer.legacy_result(call.id, result)
        if request.prefers_stream:
            await CallStream(request, outlet, self._limits.max_stream_bytes, call.id).finish(data, 200)
        else:
            await request.reply(200, outlet.json_headers, data)

    def _outlet(self) -> Any:
        if self._shared is not None:
            return self._shared.outlet()
        return StandaloneOutlet(EventLog(self._limits.replay_events, self._limits.replay_bytes, self._replay))

    async def _find(self, request: HttpRequestHead) -> Session:
        """The session of a request, also one that began in another process."""
        if self._shared is None:
            return self._session(request)
        id = request.headers.get("mcp-session-id")
        if id is None:
            raise ProtocolError.invalid_request(_NOT_INITIALIZED, status=400)
        session = await self._shared.find(id, request.principal, self)
        if session is None:
            raise _unknown_session()
        return session

    def _session(self, request: HttpRequestHead) -> Session:
        id = request.headers.get("mcp-session-id")
        if id is None:
            raise ProtocolError.invalid_request(_NOT_INITIALIZED, status=400)
        session = self.sessions.get(id, request.principal)
        if session is None:
            raise _unknown_session()
        return session

    def _peer_without_session(self, request: HttpRequestHead) -> Peer:
        stated = (request.headers.get("mcp-protocol-version") or "").strip()
        version = V2024_11 if self._plain else (stated if is_legacy(stated) else V2025_03)
        return Peer(version=version, capabilities={})

    async def _carry(
        self, exchange: Exchange, session: Session, stream: CallStream, coroutine: Any, awaited: Any
    ) -> Any:
        call = exchange.call
        if call.id in session.cancelled_early:
            del session.cancelled_early[call.id]
            exchange.cancelled = True
        session.calls[call.id] = exchange
        live = self._streams.setdefault(session.id, set())
        live.add(stream)
        exchange.on_stuck = lambda: self._engine.spawn(self._answer_for(exchange, stream))
        exchange.task = None if stream.request is None else getattr(stream.request.responder, "task", None)
        self._engine.keep_alive.add(stream)
        try:
            return await self._engine.running_calls.carry(exchange, coroutine, awaited)
        finally:
            self._engine.keep_alive.remove(stream)
            session.calls.pop(call.id, None)
            session.touch()
            live.discard(stream)
            if not live:
                self._streams.pop(session.id, None)

    @staticmethod
    async def _answer_for(exchange: Exchange, stream: CallStream) -> None:
        request = stream.request
        await stream.finish(exchange.voice.error(exchange.call, timed_out(exchange.call)), 200)
        if request is not None:
            release_connection(request)

    async def _call_without_session(self, request: HttpRequestHead, call: IncomingCall) -> None:
        call.peer = self._peer_without_session(request)
        call.principal = request.principal
        try:
            serve = self._handshake.handler(call)
        except ProtocolError as error:
            await self._refuse(request, error, call)
            return
        session = Session(self._server, "", call.peer, _NoOutlet(), request.principal)
        sink = _WholeAnswerSink(request) if self._plain else HttpSink(request, self._limits.max_stream_bytes)
        exchange = Exchange(call, sink, session.voice)
        call.session = session
        status: int = 200
        more: Pairs = []
        try:
            reply = session.voice.result(call, await self._carry_without_session(exchange, sink, serve))
        except InsufficientScope as error:
            reply = session.voice.error(call, error)
            status, more = self._engine.step_up(request, error)
        except ProtocolError as error:
            reply = session.voice.error(call, error)
            if error.status == 503:
                status, more = 503, [("retry-after", "1")]
        except Abandoned:
            reply = None
        except Exception as error:
            number = incident(call.method, error)
            reply = session.voice.error(call, ProtocolError.internal_error(f"internal error (error {number})"))
        exchange.end()
        await sink.finish(reply, status, [*JSON, *more])

    async def _carry_without_session(self, exchange: Exchange, sink: _WholeAnswerSink | HttpSink, serve: Serve) -> Any:
        coroutine: Any = serve(exchange.call)
        try:
            awaited = coroutine.send(None)
        except StopIteration as done:
            return done.value
        if isinstance(sink, _WholeAnswerSink):
            return await self._engine.running_calls.carry(exchange, coroutine, awaited)
        self._engine.keep_alive.add(sink)
        try:
            return await self._engine.running_calls.carry(exchange, coroutine, awaited)
        finally:
            self._engine.keep_alive.remove(sink)

    async def _hear(self, request: HttpRequestHead, message: IncomingNotification | IncomingReply) -> None:
        if self._require_session:
            self._check_version(request)
            session = await self._find(request)
            if isinstance(message, IncomingReply):
                session.touch()
                await session.hear_answer(message)
            else:
                await self._handshake.hear(message, session)
        await request.reply(202, [], b"")

    async def _batch(self, request: HttpRequestHead, batch: Batch) -> None:
        """2025-03-26 only: the replies come as one array, in any order; nothing to reply to is a 202."""
        if not self._require_session:
            raise ProtocolError.invalid_request("a batch needs a session of 2025-03-26; send one message at a time")
        session = await self._find(request)
        if session.peer.version != V2025_03:
            raise ProtocolError.invalid_request(
                f"batches exist in {V2025_03} only, and this session speaks {session.peer.version}; send one message at a time"
            )
        check_batch(batch)
        # The request itself was counted as the first of them.
        refusals = [None, *(self._engine.admit_more(request) for _ in batch.messages[1:])]
        replies = await asyncio.gather(
            *(self._batched(request, session, *pair) for pair in zip(batch.messages, refusals, strict=True))
        )
        bodies = [r for r in replies if isinstance(r, bytes)]
        outlet: Any = session.outlet
        if not bodies and _CANCELLED in replies:
            await request.end_silently(outlet.event_headers)
            return
        if not bodies:
            await request.reply(202, [], b"")
            return
        await request.reply(200, outlet.json_headers, b"[" + b",".join(bodies) + b"]")

    async def _batched(
        self, request: HttpRequestHead, session: Session, raw: Raw, refusal: ProtocolError | None
    ) -> bytes | object | None:
        """The reply to one message of a batch; None if it has none, `_CANCELLED` for a call that was cancelled.

        With a `refusal` the message is not served: a call is answered with it.
        """
        writer = self._server.runtime.writer
        try:
            message = self._engine.reader.read(bytes(raw), None)
            if refusal is not None:
                return writer.error(message.id, refusal) if isinstance(message, IncomingCall) else None
            if isinstance(message, IncomingReply):
                await session.hear_answer(message)
                return None
            if isinstance(message, IncomingNotification):
                await self._handshake.hear(message, session)
                return None
            if isinstance(message, Batch) or message.peer is not None or message.method == "initialize":
                id = None if isinstance(message, Batch) else message.id
                return writer.error(id, ProtocolError.invalid_request("this message may not be part of a batch"))
            try:
                serve = self._handshake.admit(message, session, request.principal)
            except ProtocolError as error:
                return session.voice.error(message, error)
            # Everything a batched call emits besides its reply goes out on the session's own stream.
            exchange = Exchange(message, _OutletSink(session), session.voice)
            session.calls[message.id] = exchange
            try:
                return session.voice.result(message, await self._engine.running_calls.run(exchange, serve))
            except ProtocolError as error:
                return session.voice.error(message, error)
            except Abandoned:
                return _CANCELLED
            finally:
                session.calls.pop(message.id, None)
        except ProtocolError as error:
            return writer.error(error.request_id, error)
        except Exception as error:
            number = incident("a batched message", error)
            return writer.error(None, ProtocolError.internal_error(f"internal error (error {number})"))

    # GET and DELETE

    async def get(self, request: HttpRequestHead) -> None:
        if not self._enable_get:
            await self._engine.not_allowed(request)
            return
        accept = (request.headers.get("accept") or "*/*").lower()
        if not any(kind in accept for kind in ("text/event-stream", "*/*", "text/*")):
            raise ProtocolError.invalid_request("Accept must list text/event-stream", status=406)
        self._check_version(request)
        session = await self._find(request)
        session.touch()
        last = request.headers.get("last-event-id")
        outlet: Any = session.outlet
        try:
            if last is None:
                await outlet.stream(request, None, self._server.runtime.writer, self._engine)
            else:
                await self._resume(request, session, last)
        finally:
            session.touch()

    async def _resume(self, request: HttpRequestHead, session: Session, last: str) -> None:
        outlet: Any = session.outlet
        place = read_event_id(last)
        stream, after = place or ("", 0)
        if self._shared is not None and await self._await_again(request, session, stream):
            return
        is_known = stream == "g" or outlet.log.knows(stream)
        if (
            not is_known
            and self._shared is not None
            and await self._shared.resume(request, session, stream, after, self._engine)
        ):
            return
        if stream == "g" or not is_known:
            await outlet.stream(request, after if stream == "g" else -1, self._server.runtime.writer, self._engine)
            return
        live = next((s for s in self._streams.get(session.id, ()) if s.name == stream), None)
        if live is not None:
            await live.resume(request, after, self._engine)
        else:
            await replay(request, outlet, stream, after)

    async def _await_again(self, request: HttpRequestHead, session: Session, stream: str) -> bool:
        """Serve a GET of a client that waits for a task, if no other process waits for it any more."""
        assert self._shared is not None
        named = read_stream_name(stream)
        if named is None or not named.awaited:
            return False
        outlet: Any = session.outlet
        if self._engine.closing:  # another process takes the next attempt
            await request.stream_start(outlet.event_headers)
            await request.responder.stream_chunk(COMMENT)
            await request.responder.stream_end()
            return True
        if outlet.log.knows(stream) or not await self._shared.is_lost(session, stream, named.process):
            return False
        message = {"jsonrpc": "2.0", "id": named.id, "method": "tasks/result", "params": {"taskId": named.awaited}}
        call = self._engine.reader.read(msgspec.json.encode(message), None)
        assert isinstance(call, IncomingCall)
        request.prefers_stream = True
        await self.call(request, call)
        return True

    async def delete(self, request: HttpRequestHead) -> None:
        if not self._allow_delete:
            await self._engine.not_allowed(request)
            return
        self._check_version(request)
        session = await self._find(request)
        if self._shared is not None and session.shared is not None:
            await self._shared.end(session)
        else:
            self.sessions.end(session)
        await request.reply(204, [], b"")

    def allow(self) -> str:
        verbs = ["POST", *(["GET"] if self._enable_get else []), *(["DELETE"] if self._allow_delete else []), "OPTIONS"]
        return ", ".join(verbs)

    def _check_version(self, request: HttpRequestHead) -> None:
        if not self._checks_version:
            return
        stated = request.headers.get("mcp-protocol-version")
        if stated is not None and stated.strip() not in self._engine.reader.versions:
            raise ProtocolError.invalid_request(
                f"protocol version {stated[:40]!r} is not supported; this server speaks {', '.join(self._engine.reader.versions)}",
                status=400,
            )


def _sse(server: Server, path: str | None, message_path: str | None) -> Any:
    if path is None:
        if message_path is not None:
            raise ConfigError('sse_message_path= goes with sse_path=: sse_path="/sse", sse_message_path="/messages"')
        return None
    from .server_sse import SseEndpoint

    return SseEndpoint(server, path, message_path or path.rstrip("/") + "/messages")


def _unknown_session() -> ProtocolError:
    return ProtocolError.invalid_request(
        "this session does not exist or has ended; send initialize without a session id", status=404
    )


def _with_id(error: ProtocolError, call: IncomingCall) -> ProtocolError:
    error.request_id = call.id
    return error


@final
class _NoOutlet:
    is_open = is_read_here = False

    def put(self, data: bytes) -> None:
        """There is no stream to resume, and no session for one."""

    def close(self) -> None:
        """Nothing to close."""


@final
class _WholeAnswerSink:
    """The sink of a call whose answer is never a stream: it drops every other message."""

    __slots__ = ("_request",)

    def __init__(self, request: HttpRequestHead) -> None:
        self._request = request

    def send(self, data: bytes) -> Any:
        return SENT

    async def finish(self, data: bytes | None, status: int, headers: Pairs) -> None:
        if data is None:
            await self._request.end_silently()
        else:
            await self._request.reply(status, headers, data)


@final
class _OutletSink:
    __slots__ = ("_session",)

    is_shared = True

    def __init__(self, session: Session) -> None:
        self._session = session

    def send(self, data: bytes) -> Any:
        self._session.outlet.put(data)
        return SENT
