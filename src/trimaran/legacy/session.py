"""A legacy session, from `initialize` to its end.

It holds the client's identity and subscriptions, our requests that it has not answered, and its running calls. Messages
that belong to no call leave through the *outlet*: over HTTP a log that the GET stream reads, on stdio the pipe itself.

Where several processes share a store, each process that serves a session has its own `Session`, made from the same record.
`shared` carries messages and questions to the other processes.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import msgspec

from trimaran.durations import check_seconds
from trimaran.errors import CallError, Disconnected, ProtocolError, TimedOut
from trimaran.outage_log import Outage
from trimaran.protocol.inbound import IncomingReply, RequestId
from trimaran.protocol.meta import LOG_LEVELS, Peer
from trimaran.server.access import owner_text, same_principal
from trimaran.server.changes import LIST_CHANGED, RESOURCE_UPDATED
from trimaran.server.context import ASK_TIMEOUT
from trimaran.server.exchange import Sink
from trimaran.server.handlers import call_any, incident, logger
from trimaran.server.session_info import SessionInfo
from trimaran.server.shortcuts import RunningCall
from trimaran.types import CreateMessageResult, ElicitResult, Json, ListRootsResult, Root, as_object

from .voice import LegacyVoice

if TYPE_CHECKING:
    from trimaran.server.server import Server

    from .fleet_sessions import FleetSessions

_TOO_OLD: Final = "it has lived for session_max_lifetime"  # an idle one has no calls that could be told
_GAVE_WAY: Final = "the server had no room for more sessions, and this one had not been used for a while"
_SWEEP_SECONDS: Final = 15.0
# Idle seconds after which a session gives way to another on a full server: longer than a model thinks.
_SPARE_SECONDS: Final = 60.0
BROADCAST: Final = "broadcast"
"""A pseudo-change: a notification for every session."""


class Outlet(Protocol):
    """Carries the messages that belong to no call."""

    def put(self, data: bytes) -> None: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def is_read_here(self) -> bool:
        """Whether the client reads it through this process."""
        ...

    def close(self) -> None: ...


@final
class Session:
    def __init__(self, server: Server, id: str, peer: Peer, outlet: Outlet, principal: Any = None) -> None:
        self.server = server
        self.id = id
        self.peer = peer
        self.principal = principal
        """The owner, as last authenticated: newer credentials may grant more or less."""
        self.outlet = outlet
        self.initialized = False
        self.closed: bool = False
        self.log_level: str = server.min_log_level
        self.subscriptions: set[str] = set()
        self.state: Any = None
        self.owner: Any = None
        """The endpoint that opened it."""
        self.place = ""
        """The caller or address that began it, to share room fairly when the server is full."""
        self.shared: FleetSessions | None = None
        """The other processes that serve it, if there may be any."""
        self.owner_key: str | None = None
        """The owner, as the other processes know it."""
        self.checked_until: float = 0.0
        """Until when the record in the store is not checked again."""
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.created: float = time.monotonic()
        self.seen: float = self.created
        self.calls: dict[RequestId, RunningCall] = {}
        """Running calls of the client, for `notifications/cancelled`."""
        self.cancelled_early: dict[RequestId, None] = {}
        """Cancellations that came before their call, oldest first."""
        self.voice: LegacyVoice = LegacyVoice(server.runtime.writer, self)
        self._answers: dict[RequestId, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        # A process may forget a session and serve it again later: then its questions need other ids.
        self._first = 0

    def next_id(self) -> str:
        if self.shared is None:
            return f"srv-{next(self._numbers)}"
        if not self._first:
            self._first = 1 + secrets.randbelow(2**32)
        return f"srv-{self.shared.name}-{self._first + next(self._numbers)}"

    def touch(self) -> None:
        self.seen: float = time.monotonic()

    @property
    def is_busy(self) -> bool:
        return bool(self.calls) or self.outlet.is_read_here

    async def keep(self, **changes: Any) -> None:
        """Store a change that other processes need to know."""
        if self.shared is not None:
            await self.shared.keep(self, **changes)

    # Messages that belong to no call

    def send(self, method: str, params: Mapping[str, Json] | None = None) -> None:
        """Send a notification on the session's own stream; it waits if no stream is open."""
        if not self.closed:
            self.outlet.put(self.voice.notification(method, dict(params or {})))

    @property
    def watched(self) -> set[str]:
        return self.subscriptions

    def deliver(self, kind: str, uri: str | None, extra: dict[str, Any]) -> None:
        """Hear of a change (see `server/changes.py`)."""
        if self.shared is not None and not self.shared.may_tell(self, (kind, uri, extra)):
            return  # the process with its stream sends it, now or later from the log of changes
        if kind == BROADCAST:
            if self.initialized and "method" in extra:
                self.send(extra["method"], extra.get("params"))
        elif uri is None:
            if self.initialized and kind in LIST_CHANGED:
                self.send(LIST_CHANGED[kind])
        elif uri in self.subscriptions and self.server.runtime.dispatcher.resources.may_watch(uri, self.principal):
            self.send(RESOURCE_UPDATED, {"uri": uri, **extra})

    def notify_progress(
        self, token: RequestId, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        optional = {"total": total, "message": message}
        self.send(
            "notifications/progress",
            {"progressToken": token, "progress": progress, **{k: v for k, v in optional.items() if v is not None}},
        )

    def notify_log(self, level: str, data: Json, logger: str | None = None) -> None:
        if LOG_LEVELS.index(level) >= LOG_LEVELS.index(self.log_level):
            self.send("notifications/message", {"level": level, "data": data, **({"logger": logger} if logger else {})})

    # Requests to the client

    async def request(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        timeout: float | None = ASK_TIMEOUT,
        sink: Sink | None = None,
    ) -> Any:
        """Ask the client and wait for its result: on the stream of the causing call, or on the session's own (C10)."""
        check_seconds("timeout", timeout)
        if self.closed:
            raise Disconnected("the session has ended")
        if sink is None and not self.outlet.is_open:
            raise Disconnected("no_stream: the client has no stream open on which it could be asked")
        id = self.next_id()
        answer: asyncio.Future[Any] = self.loop.create_future()
        self._answers[id] = answer
        data = self.server.runtime.writer.request(id, method, dict(params) if params else None)
        try:
            if sink is None:
                self.outlet.put(data)
            else:
                await sink.send(data)
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            late = TimedOut(f"the client did not answer {method} within {timeout:g} s")
            late.is_of_caller = True
            raise late from None
        finally:
            # From here on a late answer meets nothing and is ignored (R61).
            self._answers.pop(id, None)

    def take_answer(self, answer: IncomingReply) -> bool:
        """The client's answer to a request of ours; unknown and late ones are ignored, and False."""
        waiting = self._answers.pop(answer.id, None)
        if waiting is None or waiting.done():
            return False
        if answer.error is msgspec.UNSET:
            waiting.set_result(answer.result)
            return True
        error = as_object(answer.error) or {}
        code, message = error.get("code"), error.get("message")
        waiting.set_exception(
            CallError(
                code if isinstance(code, int) else -32603,
                f"the client refused: {message}" if isinstance(message, str) else "the client refused",
                error.get("data"),
                status=200,
            )
        )
        return True

    async def hear_answer(self, answer: IncomingReply) -> None:
        """Take an answer, which may be one that another process waits for."""
        if not self.take_answer(answer) and self.shared is not None:
            await self.shared.pass_on_answer(self, answer)

    async def sample(self, params: Mapping[str, Json], timeout: float | None = ASK_TIMEOUT) -> CreateMessageResult:
        self._require("sampling")
        return msgspec.convert(await self.request("sampling/createMessage", params, timeout), CreateMessageResult)

    async def elicit(self, params: Mapping[str, Json], timeout: float | None = ASK_TIMEOUT) -> ElicitResult:
        self._require("elicitation")
        question = self.voice.spelled("elicitation/create", dict(params))
        return msgspec.convert(await self.request("elicitation/create", question, timeout), ElicitResult)

    async def roots(self, timeout: float | None = ASK_TIMEOUT) -> list[Root]:
        self._require("roots")
        return msgspec.convert(await self.request("roots/list", None, timeout), ListRootsResult).roots

    def _require(self, capability: str) -> None:
        if not self.peer.supports(capability):
            raise self.voice.lacks(capability, {capability: {}})

    # Calls of the client

    def cancel(self, request_id: RequestId | None, reason: str | None) -> bool:
        """Cancel a call of the client; False if it is not at work here."""
        if request_id is None:
            return True
        exchange = self.calls.get(request_id)
        if exchange is not None:
            exchange.cancel(reason)
            return True
        # It may have overtaken its request on another connection (R67), or be late: so remember only a few.
        self.cancelled_early[request_id] = None
        if len(self.cancelled_early) > 64:
            del self.cancelled_early[next(iter(self.cancelled_early))]
        return False

    def hear_cancelled(self, request_id: RequestId | None, reason: str | None) -> None:
        """Cancel a call, which may be at work in another process."""
        if not self.cancel(request_id, reason) and self.shared is not None:
            self.shared.pass_on_cancel(self, request_id, reason)

    def close(self, why: str | None = None) -> None:
        """End the session: its stream closes, its questions fail, its calls are cancelled.

        `why` is for a session that its client did not end: the client waits for its calls, and they fail with that.
        """
        if self.closed:
            return
        self.closed = True
        self.server.runtime.changes.discard(self)
        self.outlet.close()
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(Disconnected("the session ended before the client answered"))
        self._answers.clear()
        for exchange in tuple(self.calls.values()):
            if why is None:
                exchange.cancel("the session ended")
            else:
                # Under 200: a client that is told 404 here may send the call again, and it may have been done.
                message = f"the session has ended: {why}; send initialize again"
                exchange.fail(ProtocolError.invalid_request(message, status=200))

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.peer.version}>"


@final
class SessionTable:
    """All sessions of a server: the only place that makes and ends them (R100)."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._limits = server.limits
        # A session seen within this time cannot be over by idleness; one with a lifetime is looked at each time.
        self._glance = (
            -1.0 if server.limits.session_max_lifetime is not None else (server.limits.session_idle_timeout or 1e9)
        )
        self._live: dict[str, Session] = {}
        self._reserved = 0
        self.shared: FleetSessions | None = None
        """The records of sessions that other processes serve, too."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._room_again = 0.0
        self._fullness = Outage(logger, "there is room for sessions again")
        server.runtime.shortages.append(self._shortage)

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._live.values()))

    async def create(
        self, peer: Peer, outlet: Callable[[], Outlet], principal: Any = None, owner: Any = None
    ) -> Session:
        """A new session; 503 beyond the cap, counted before `init` runs so that it holds under a rush (R94)."""
        most = self._limits.max_sessions
        if self._is_full():
            self._sweep_now()
            self._make_room()
            if self._is_full():
                self._fullness.failed(
                    f"no room for more sessions: {most} are open (max_sessions), and new ones are refused; those that nobody "
                    f"has used for {_SPARE_SECONDS:g} s give way"
                )
                raise ProtocolError.internal_error(
                    f"the server is full: {most} sessions are open; try again later", status=503
                )
        self._fullness.succeeded()
        self._reserved += 1
        try:
            session = Session(self._server, f"mcp_{secrets.token_hex(16)}", peer, outlet(), principal)
            session.owner = owner
            session.state = await self.init()
        finally:
            self._reserved -= 1
        self.add(session)
        return session

    def _is_full(self) -> bool:
        most = self._limits.max_sessions
        return most is not None and len(self._live) + self._reserved >= most

    def _shortage(self) -> str | None:
        return "there is no room for more sessions" if self._is_full() else None

    def _make_room(self) -> None:
        """End some unused sessions of the callers with the most: one caller must not keep all others out.

        Sessions in a store stay: another process may use them. At most once a second,
        since it reads all sessions.
        """
        now = time.monotonic()
        if not self._is_full() or now < self._room_again:
            return
        self._room_again = now + 1.0
        spare = [
            session
            for session in self
            if session.shared is None and not session.is_busy and now - session.seen > _SPARE_SECONDS
        ]
        crowds = Counter(session.place for session in self)
        spare.sort(key=lambda session: (-crowds[session.place], session.seen))
        for session in spare[: max(1, len(self._live) // 100)]:
            self.end(session, _GAVE_WAY)

    def add(self, session: Session) -> None:
        self._live[session.id] = session
        self._server.runtime.changes.add(session)
        if self._sweeper is None:
            self._schedule()

    async def init(self) -> Any:
        """The result of the server's `init` for a session. Each process that serves the session has its own."""
        if self._server.init is None:
            return None
        try:
            return await call_any(self._server.init, self._server.init_arg)
        except ProtocolError:
            raise
        except Exception as error:
            number = incident("init", error)
            raise ProtocolError.internal_error(
                f"the session could not be set up (error {number})", status=500
            ) from None

    def get(self, id: str, principal: Any = None) -> Session | None:
        """The live session of this id, if it belongs to this principal: to anyone else it does not exist (R102)."""
        session = self._live.get(id)
        if session is None:
            return None
        if principal is not session.principal and not self._is_owner(session, principal):
            return None
        now = time.monotonic()
        if now - session.seen > self._glance and self._is_over(session, now):
            self.end(session, _TOO_OLD)
            return None
        session.seen = now
        return session

    @staticmethod
    def _is_owner(session: Session, principal: Any) -> bool:
        if same_principal(session.principal, principal):
            return True
        return session.owner_key is not None and session.owner_key == owner_text(principal)

    def here(self, id: str) -> Session | None:
        """The session of this id, for any owner, if this process knows it."""
        return self._live.get(id)

    async def reach(self, id: str) -> Session | None:
        """The session of this id, for any owner, from any process."""
        session = self._live.get(id)
        if session is None and self.shared is not None:
            return await self.shared.load(id)
        return session

    def end(self, session: Session, why: str | None = None) -> None:
        """End it in this process; `FleetSessions.end` ends it everywhere."""
        self._live.pop(session.id, None)
        session.close(why)

    def end_all(self, owner: Any) -> None:
        """End the sessions that came in by this door; those that came in by none go with the first."""
        for session in self:
            if session.owner is owner or (session.owner is None and session.shared is not None):
                self.end(session)
        if self._sweeper is not None and not self._live:
            self._sweeper.cancel()
            self._sweeper = None

    def infos(self, capability: str | None = None) -> list[SessionInfo]:
        """The sessions of this process, oldest first."""
        now = time.monotonic()
        sessions = self if capability is None else self.with_capability(capability)
        return [
            SessionInfo(
                id=session.id,
                version=session.peer.version,
                client=session.peer.info,
                capabilities=dict(session.peer.capabilities),
                # One that another process let in is a mere mark here, until its next request.
                principal=None if type(session.principal) is object else session.principal,
                is_initialized=session.initialized,
                age=now - session.created,
                idle=now - session.seen,
                calls=len(session.calls),
                is_listening=session.outlet.is_read_here,
            )
            for session in sorted(sessions, key=lambda session: session.created)
            if not self._is_over(session, now)
        ]

    async def terminate(self, id: str, why: str) -> bool:
        """End a session in every process; its calls fail with the reason. False if there is none of this id."""
        session = await self.reach(id)
        if session is None:
            return False
        if session.shared is not None:
            await session.shared.end(session, why)
        else:
            self.end(session, why)
        return True

    def with_capability(self, capability: str) -> list[Session]:
        """Sessions whose client declared sampling, elicitation, roots, ... (R41)."""
        return [s for s in self if s.peer.supports(capability)]

    def broadcast(self, method: str, params: Mapping[str, Json] | None = None) -> int:
        """Send a notification to every session; it waits for those without a stream. Returns their number (R19)."""
        sessions = [s for s in self if s.initialized]
        # By way of the changes, which also reach the sessions of other processes.
        self._server.runtime.changes.publish(BROADCAST, None, {"method": method, "params": dict(params or {})})
        return len(sessions)

    def _is_over(self, session: Session, now: float) -> bool:
        idle, life = self._limits.session_idle_timeout, self._limits.session_max_lifetime
        if life is not None and now - session.created > life:
            return True
        return idle is not None and now - session.seen > idle and not session.is_busy

    def _schedule(self) -> None:
        often = min(_SWEEP_SECONDS, (self._limits.session_idle_timeout or _SWEEP_SECONDS) / 3)
        self._sweeper = asyncio.get_running_loop().call_later(often, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        self._sweep_now()
        for session in self:
            if session.shared is not None and session.is_busy:
                session.shared.prolong(session)
        if self._live:
            self._schedule()

    def _sweep_now(self) -> None:
        now = time.monotonic()
        for session in self:
            if self._is_over(session, now):
                self.end(session, _TOO_OLD)
