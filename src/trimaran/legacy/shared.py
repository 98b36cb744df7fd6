"""Sessions that several processes serve: what makes a client not notice.

A client's next request may reach any process of the fleet. Each has a `Session` of its own for every session that it has
met, made after the record in the store, and serves calls from that alone: a call that is answered at once costs the store
nothing. What one process does and another must know:

    settled later   initialized, log level, subscriptions: written to the record first, then told
    answers         to a question of ours: handed to the asker, whose name is in the question's id
    cancellations   told, if the call is not at work here
    streams         every event of a stream is written behind to the store, from where any process can go on with it
    changes         whoever has the session's own stream tells the client; if nobody has, whoever opens it next, from the log

A session is looked for in the store when it is not known here, and every few seconds while it is used, which also keeps it
alive. While the store is away, sessions known here are served on, and those that are not are told to come back (503, not
404: a client must not take its session for lost).

What a call of a process that died had left to say cannot be known. Whoever comes for it is told so.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from trimaran.errors import Error, ProtocolError
from trimaran.fleet import Change, Fleet, unavailable
from trimaran.protocol.inbound import Answer, RequestId, as_request_id
from trimaran.protocol.meta import Peer
from trimaran.protocol.sse import COMMENT, encode_event, encode_priming
from trimaran.protocol.versions import V2025_11
from trimaran.server.access import at_expiry, owner_text
from trimaran.server.changes import LIST_CHANGED
from trimaran.server.context import ASK_TIMEOUT
from trimaran.server.handlers import logger
from trimaran.state.contracts import SessionRecord, StoreClosed, StoreConflict, StoreFull, StoreUnavailable
from trimaran.transports.engine import Request
from trimaran.types import Implementation

from .session import Session, Sessions
from .streams import STANDALONE, EventLog, HttpOutlet, Reader, event_id, truncated

if TYPE_CHECKING:
    from trimaran.protocol.outbound import Writer
    from trimaran.server.server import Server

__all__ = ["Shared", "SharedOutlet"]

# How long a session that was found in the store is taken to be there; a lost "it has ended" is noticed after that.
_SURE_SECONDS: Final = 5.0
# The same while the store is away.
_UNSURE_SECONDS: Final = 1.0
# For sessions without an end by idleness: every record ends by itself.
_LONGEST_SECONDS: Final = 30 * 86_400.0
# The stream of a call: while it is open, and for a client that comes back for its end.
_OPEN_SECONDS: Final = 3600.0
_ENDED_SECONDS: Final = 120.0
_ATTEMPTS: Final = 10
_WAIT_SECONDS: Final = 300.0
# How often a process is looked for whose call somebody waits for.
_LOOK_SECONDS: Final = 3.0
_LEAVE_SECONDS: Final = 2.0
# What the beginning of a stream may wait for the store; after that it is one that cannot be resumed.
_HEAD_SECONDS: Final = 0.5
_ID: Final = re.compile(r"mcp_[0-9a-f]{32}")
_ASKED: Final = re.compile(r"srv-([0-9a-f]{12})-[0-9]{1,12}")
_STREAM: Final = re.compile(r"r([0-9a-f]{12})-[0-9]{1,12}")

_encode: Final = msgspec.msgpack.encode
_read_place: Final = msgspec.msgpack.Decoder(tuple[int, int]).decode


def _place(record: SessionRecord) -> tuple[int, int]:
    """Up to which change, and which event of its own stream, a session has been told."""
    try:
        return _read_place(record.extra) if record.extra else (0, 0)
    except msgspec.MsgspecError:
        return 0, 0


@final
class Shared:
    """The sessions of one server, as far as they are more than this process."""

    def __init__(self, server: Server, fleet: Fleet, sessions: Sessions, retry: int | None) -> None:
        self.fleet = fleet
        self.name = fleet.name
        self._server = server
        self._sessions = sessions
        self._retry = retry
        self._limits = server.limits
        self.ttl = server.limits.session_idle_timeout or _LONGEST_SECONDS
        self._loading: dict[str, asyncio.Task[Session | None]] = {}
        self.reading: set[Reader] = set()
        """The streams that are served from the store here and now."""
        sessions.shared = self
        fleet.on("session", self._hear_record)
        fleet.on("ended", self._hear_ended)
        fleet.on("cancel", self._hear_cancel)
        fleet.on_ask("answer", self._take_answer)
        fleet.on("stream", self._hear_stream)
        fleet.on_gap(self._look_again)

    @classmethod
    def of(cls, server: Server, sessions: Sessions, retry: int | None) -> Shared:
        """The one of this server: it may have several doors."""
        known = sessions.shared
        return (
            known if known is not None and known.fleet is server.fleet else cls(server, server.fleet, sessions, retry)
        )

    @property
    def _records(self) -> Any:
        return self.fleet.store.sessions

    def outlet(self) -> SharedOutlet:
        return SharedOutlet(self, self._limits.replay_events)

    # --- being there

    async def enroll(self, session: Session, principal: Any) -> None:
        """Write down a new session; only then may its client know of it."""
        session.owner_key = owner_text(principal)
        session.shared = self
        info = session.peer.info
        record = SessionRecord(
            id=session.id,
            owner=session.owner_key,
            version=session.peer.version,
            capabilities=dict(session.peer.capabilities),
            client={} if info is None else msgspec.to_builtins(info),
            log_level=session.log_level,
            created_ms=int(time.time() * 1000),
            extra=_encode((self.fleet.seen_change, 0)),
        )
        try:
            await self._records.create(record, ttl=self.ttl, most=self._limits.max_sessions)
        except Error as error:
            self._sessions.end(session)
            if isinstance(error, StoreUnavailable):
                raise unavailable(error) from None
            if isinstance(error, StoreFull):
                raise ProtocolError.internal_error(
                    f"the server is full: {self._limits.max_sessions} sessions are open; try again later", status=503
                ) from None
            if isinstance(error, StoreConflict):  # a chance of one in 2**128
                raise ProtocolError.internal_error("the session could not be made; try again", status=503) from None
            raise
        session.checked_until = time.monotonic() + _SURE_SECONDS

    async def find(self, id: str, principal: Any) -> Session | None:
        """The session of this id, if it is this principal's."""
        session = self._sessions.get(id, principal)
        if session is not None and session.shared is None:
            return session  # another door's
        if session is not None and session.initialized and time.monotonic() < session.checked_until:
            return session
        try:
            if session is None:
                loaded = await self.load(id)
                if loaded is None or loaded.owner_key != owner_text(principal):
                    return None
                session = self._sessions.get(id, loaded.principal)
            if session is not None and not await self._is_there(session):
                session = None
        except StoreUnavailable as error:
            raise unavailable(error) from None
        if session is not None:
            session.principal = principal
        return session

    async def load(self, id: str) -> Session | None:
        """The session of this id, whoever's it is, made after its record if it is not known here.

        Raises:
            StoreUnavailable: There is no telling.
        """
        session = self._sessions.here(id)
        if session is not None or not _ID.fullmatch(id):
            return session
        loading = self._loading.get(id)
        if loading is None:
            # By itself: whoever asked first may leave, and others wait for the same.
            loading = self._loading[id] = self.fleet.spawn(self._load(id))
            loading.add_done_callback(lambda _: self._loading.pop(id, None))
        try:
            return await asyncio.shield(loading)
        except asyncio.CancelledError:
            if loading.cancelled():
                raise StoreUnavailable("the server is stopping") from None
            raise

    async def _load(self, id: str) -> Session | None:
        await self._server.start()
        record = await self._records.get(id)
        if record is None:
            return None
        age = time.time() - record.created_ms / 1000
        life = self._limits.session_max_lifetime
        if life is not None and age > life:
            await self._records.delete(id)
            return None
        info = msgspec.convert(record.client, Implementation) if record.client else None
        peer = Peer(version=record.version, capabilities=record.capabilities, info=info)
        outlet = self.outlet()
        session = Session(self._server, id, peer, outlet, _UNKNOWN)
        session.shared = self
        session.owner_key = record.owner
        session.created -= max(0.0, age)
        session.state = await self._sessions.init()
        outlet.introduce(session, self._retry)
        self._follow(session, record)
        session.checked_until = time.monotonic() + _SURE_SECONDS
        self._sessions.add(session)
        return session

    @staticmethod
    def _follow(session: Session, record: SessionRecord) -> None:
        """What others have settled."""
        session.initialized = session.initialized or record.initialized
        session.log_level = record.log_level
        session.subscriptions = set(record.subscriptions)
        outlet: Any = session.outlet
        outlet.read_by = record.worker

    async def _is_there(self, session: Session) -> bool:
        """Look whether the session still is, and keep it alive. If it cannot be found out, it is."""
        now = time.monotonic()
        if now < session.checked_until and session.initialized:
            return True
        # At once, so that of many calls one looks and the others go on.
        session.checked_until = now + _SURE_SECONDS
        try:
            async with asyncio.timeout(_UNSURE_SECONDS):
                is_there = await self._records.touch(session.id, ttl=self.ttl)
                record = await self._records.get(session.id) if is_there and not session.initialized else None
        except (StoreUnavailable, TimeoutError):
            session.checked_until = now + _UNSURE_SECONDS
            return True
        if record is not None:
            self._follow(session, record)
        if not is_there:
            self._sessions.end(session)
        return is_there

    def prolong(self, session: Session) -> None:
        """It is in use here, though no request says so."""
        self.fleet.spawn(self._prolong(session))

    async def _prolong(self, session: Session) -> None:
        outlet: Any = session.outlet
        if await self._is_there(session) and outlet.is_read_here:
            # Should this process be killed, the next one goes on from here.
            place = _encode((self.fleet.seen_change, outlet.delivered))
            if place != outlet.noted:
                with contextlib.suppress(StoreUnavailable):
                    await self._amend(session.id, lambda found: replace(found, extra=place))
                    outlet.noted = place

    async def end(self, session: Session) -> None:
        """End it everywhere."""
        try:
            await self._records.delete(session.id)
            await self.fleet.store.events.delete(session.id)
        except StoreUnavailable as error:
            raise unavailable(error) from None
        self._sessions.end(session)
        self.fleet.tell_soon("ended", session.id)

    # --- what is settled later

    async def keep(self, session: Session, **changes: Any) -> None:
        """Write what has changed to the record, then tell the others."""
        try:
            record = await self._amend(session.id, lambda found: _changed(found, **changes))
            if record is None:
                self._sessions.end(session)
                raise ProtocolError.invalid_request("this session has ended; send initialize again", status=404)
            self._follow(session, record)
            await self.fleet.tell("session", msgspec.to_builtins(replace(record, extra=b"")))
        except StoreUnavailable as error:
            raise unavailable(error) from None

    async def _amend(self, id: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord | None:
        for _ in range(_ATTEMPTS):
            record = await self._records.get(id)
            if record is None:
                return None
            written = await self._records.put(change(record))
            if written is not None:
                return written
        raise StoreUnavailable("the session's record is being changed all the time")

    def was_told(self, session: Session) -> bool:
        """Has the client of this session heard already of the change that is being told?"""
        outlet: Any = session.outlet
        return 0 < self.fleet.hearing <= outlet.told

    def _hear_record(self, news: Any) -> None:
        record = msgspec.convert(news, SessionRecord)
        session = self._sessions.here(record.id)
        if session is not None and session.shared is self:
            self._follow(session, record)

    def _hear_ended(self, id: Any) -> None:
        session = self._sessions.here(id)
        if session is not None and session.shared is self:
            self._sessions.end(session)

    def _look_again(self) -> None:
        for session in self._sessions:
            session.checked_until = 0.0

    # --- answers and cancellations

    async def pass_on_answer(self, session: Session, answer: Answer) -> None:
        """An answer to a question that was not ours. Whoever asked gets it as soon as it can be reached: a client that
        heard of a failure could do nothing about it.
        """
        asked = _ASKED.fullmatch(answer.id) if isinstance(answer.id, str) else None
        if asked is None or asked[1] == self.name:
            return  # nobody's, or late
        failed = answer.error is not UNSET
        body = msgspec.json.encode(answer.error if failed else answer.result)
        passing = self.fleet.ask_soon(asked[1], "answer", (session.id, answer.id, failed, body), within=ASK_TIMEOUT)
        # If we die before it is there, it is lost: so it is waited for, but not for so long that the client is held up.
        await asyncio.wait({passing}, timeout=_UNSURE_SECONDS)

    async def _take_answer(self, question: Any) -> bool:
        id, asked, failed, body = question
        session = self._sessions.here(id)
        if session is None or session.shared is not self:
            return False
        said = msgspec.json.decode(body)
        return session.take_answer(Answer(asked, error=said) if failed else Answer(asked, result=said))

    def pass_on_cancel(self, session: Session, request_id: RequestId | None, reason: str | None) -> None:
        self.fleet.tell_soon("cancel", (session.id, request_id, reason))

    def _hear_cancel(self, news: Any) -> None:
        id, request_id, reason = news
        session = self._sessions.here(id)
        if session is not None and session.shared is self:
            session.cancel(as_request_id(request_id), reason)

    # --- the session's own stream

    async def take_stream(self, session: Session) -> tuple[list[Change], int]:
        """The stream is read here from now on: the changes nobody has told the client, and the last event it had.

        Raises:
            ProtocolError: The store cannot say, or the session has ended.
        """
        try:
            record = await self._amend(session.id, lambda found: replace(found, worker=self.name))
            if record is None:
                self._sessions.end(session)
                raise ProtocolError.invalid_request("this session has ended; send initialize again", status=404)
            self._follow(session, record)
            await self.fleet.flush(_LEAVE_SECONDS)  # what we have said ourselves must be in the log, too
            await self.fleet.tell("stream", (session.id, self.name))
            told, delivered = _place(record)
            outlet: Any = session.outlet
            told = max(told, outlet.told)  # what we know ourselves may not be written yet
            changes, last = await self.fleet.changes_since(told)
            outlet.told = max(told, last)
        except StoreUnavailable as error:
            raise unavailable(error) from None
        if changes is not None:
            return changes, delivered
        everything: list[Change] = [(kind, None, {}) for kind in LIST_CHANGED]
        everything += [("resource", uri, {}) for uri in record.subscriptions]
        return everything, delivered

    async def leave_stream(self, session: Session, delivered: int) -> None:
        """Nobody reads it here any more. If this cannot be written down, the client is told some things twice."""
        outlet: Any = session.outlet
        outlet.told = self.fleet.seen_change
        place = _encode((outlet.told, delivered))

        def leave(record: SessionRecord) -> SessionRecord:
            return replace(record, worker="", extra=place) if record.worker == self.name else record

        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._amend(session.id, leave)

    async def _hear_stream(self, news: Any) -> None:
        """Another process has taken over the stream of a session (R123)."""
        id, name = news
        session = self._sessions.here(id)
        if session is None or session.shared is not self:
            return
        outlet: Any = session.outlet
        if not outlet.is_read_here:
            outlet.read_by = name
            return
        # The news may be older than our own taking over: the record has the last word.
        record = await self._records.get(id)
        if record is not None and record.worker != self.name:
            outlet.hand_over(record.worker)

    # --- the streams of calls

    async def resume(self, request: Request, session: Session, stream: str, after: int, engine: Any) -> bool:
        """Serve a GET for the stream of a call of another process; False if it is the name of no such stream.

        Raises:
            ProtocolError: Nothing is known of this stream, or the store is away.
        """
        named = _STREAM.fullmatch(stream)
        if named is None:
            return False
        events = self.fleet.store.events
        try:
            page = await events.read(session.id, stream, after)
            head = await events.read(session.id, stream, 0, limit=1)
        except StoreUnavailable as error:
            raise unavailable(error) from None
        if not page.last:
            # Not 404, which means something else; and not this client's other stream, which it has already.
            raise ProtocolError.invalid_request(
                "what this Last-Event-ID belongs to is not known any more; whether the call was done is not known",
                status=400,
            )
        outlet: Any = session.outlet
        reader = Reader(request)
        self.reading.add(reader)
        engine.attend(reader)
        unwatch = request.responder.watch(reader.end)
        expiry = at_expiry(request.principal, reader.end)
        try:
            await request.stream_start(outlet.event_headers)
            await reader.write(COMMENT)
            has_sent = False
            while not reader.over:
                for number, data in page.events:
                    if number > 1:  # the first is the head
                        await reader.write(encode_event(data, id=event_id(stream, number)))
                        has_sent = True
                    after = number
                if page.is_ended and after >= page.last:
                    # Who comes back has not had its answer. Its count may be ahead of ours, if the process died before
                    # all was written down: so what the stream ended with is sent in any case.
                    if not has_sent:
                        await self._send_last(session.id, stream, page.last, reader)
                    break
                if not page.events and not await self._wait(session.id, stream, after, reader):
                    if reader.over:
                        break
                    if not await self.fleet.is_there(named[1]):
                        await self._report_loss(session, stream, head.events[0].data if head.events else b"")
                page = await self._read(session.id, stream, after, reader)
        finally:
            if expiry is not None:
                expiry.cancel()
            unwatch()
            engine.leave(reader)
            self.reading.discard(reader)
            await request.responder.stream_end()
        return True

    async def _wait(self, session: str, stream: str, after: int, reader: Reader) -> bool:
        """Wait for more; False if nothing came for a while, or the reader has left."""
        waiting = asyncio.ensure_future(self.fleet.store.events.wait(session, stream, after, timeout=_LOOK_SECONDS))
        waiting.add_done_callback(lambda _: reader.wake())
        try:
            await reader.wait()
            return waiting.done() and not waiting.cancelled() and waiting.exception() is None and waiting.result()
        finally:
            await _end(waiting)

    async def _read(self, session: str, stream: str, after: int, reader: Reader) -> Any:
        while True:
            try:
                return await self.fleet.store.events.read(session, stream, after)
            except StoreClosed:
                reader.end()
                raise
            except StoreUnavailable as error:
                await reader.pause(error.retry_after)
                if reader.over:
                    raise

    async def _send_last(self, session: str, stream: str, last: int, reader: Reader) -> None:
        """What a stream ended with."""
        page = await self._read(session, stream, last - 1, reader)
        for number, data in page.events:
            if number > 1:
                await reader.write(encode_event(data, id=event_id(stream, number)))

    async def _report_loss(self, session: Session, stream: str, head: bytes) -> None:
        """The process that worked on a call is gone: say so where its answer would have been."""
        events = self.fleet.store.events
        with contextlib.suppress(StoreUnavailable):
            if head:
                error = ProtocolError.internal_error(
                    "the server process that worked on this call has ended; whether it was done is not known"
                )
                id = msgspec.msgpack.decode(head)
                await events.append(session.id, stream, self._server.writer.error(id, error), ttl=_ENDED_SECONDS)
            await events.end(session.id, stream, ttl=_ENDED_SECONDS)

    # --- the end

    async def close(self) -> None:
        """This process leaves; its sessions stay."""
        outlets: list[Any] = [s.outlet for s in self._sessions if s.shared is self]
        for reader in tuple(self.reading):
            reader.end()
        scribes = [outlet.scribe for outlet in outlets if outlet.scribe is not None]
        if scribes:
            await asyncio.gather(*(scribe.flush() for scribe in scribes))
        until = time.monotonic() + _LEAVE_SECONDS
        while self.reading and time.monotonic() < until:
            await asyncio.sleep(0.01)


_UNKNOWN: Final = object()
"""Who owns a session that was loaded is known by name only, until the first request."""


def _changed(
    record: SessionRecord,
    *,
    initialized: bool | None = None,
    log_level: str | None = None,
    subscribe: str | None = None,
    unsubscribe: str | None = None,
) -> SessionRecord:
    uris = [uri for uri in record.subscriptions if uri not in (subscribe, unsubscribe)]
    return replace(
        record,
        initialized=record.initialized if initialized is None else initialized,
        log_level=log_level or record.log_level,
        subscriptions=uris if subscribe is None else [*uris, subscribe],
    )


async def _end(waiting: asyncio.Future[bool]) -> None:
    """Nobody waits for this any more, however it ends."""
    waiting.cancel()
    await asyncio.wait({waiting})
    if not waiting.cancelled():
        waiting.exception()


@final
class SharedOutlet(HttpOutlet):
    """The outlet of a session in a store: whatever is put here can be read by way of any process."""

    def __init__(self, shared: Shared, size: int) -> None:
        super().__init__()
        self._shared = shared
        self._size = size
        self._session: Session | None = None
        self.scribe: _Scribe | None = None
        self.read_by = ""
        """The process by way of which it is read, as far as we have heard."""
        self.noted = b""
        """How far the client has been told, as last written down."""
        self.told = 0
        """The last change its client has been told of by way of this process."""

    def introduce(self, session: Session, retry: int | None) -> None:
        super().introduce(session, retry)
        self._session = session
        self.scribe = _Scribe(self._shared, session.id, self._size)
        self.log = EventLog(self._size, self.scribe)

    @property
    def is_open(self) -> bool:
        return self._reader is not None or bool(self.read_by)

    def put(self, data: bytes) -> None:
        if self.scribe is not None:
            self.scribe.appended(STANDALONE, data)

    def hand_over(self, name: str) -> None:
        """Another process reads it now."""
        self.read_by = name
        if self._reader is not None:
            self._reader.end()

    async def stream(self, request: Request, after: int | None, writer: Writer, engine: Any) -> None:
        """Serve one GET until the session ends, another GET takes over (R123) or the client goes."""
        session = self._session
        assert session is not None
        if self._reader is not None:
            self._reader.end()
        reader = self._reader = Reader(request)
        self._shared.reading.add(reader)
        engine.attend(reader)
        unwatch = request.responder.watch(reader.end)
        expiry = at_expiry(request.principal, reader.end)
        has_begun = False
        try:
            changes, self.delivered = await self._shared.take_stream(session)
            has_begun = True
            await request.stream_start(self.event_headers)
            await self._read_on(session, reader, after, changes, writer)
        finally:
            if expiry is not None:
                expiry.cancel()
            unwatch()
            engine.leave(reader)
            if self._reader is reader:
                self._reader = None
                if self.read_by == self._shared.name:
                    self.read_by = ""
                if has_begun:
                    await self._shared.leave_stream(session, self.delivered)
            self._shared.reading.discard(reader)
            if has_begun:
                await request.responder.stream_end()

    async def _read_on(
        self, session: Session, reader: Reader, after: int | None, changes: list[Change], writer: Writer
    ) -> None:
        events = self._shared.fleet.store.events
        is_lost = after is not None and after < 0
        position = self.delivered if after is None or is_lost else after
        if is_lost:
            await reader.write(encode_event(truncated(writer, position)))
        elif after is None and self.version >= V2025_11:
            await reader.write(encode_priming(event_id(STANDALONE, position)))
        else:
            await reader.write(COMMENT)  # the headers must leave now, not with the first event
        for kind, uri, extra in changes:
            session.deliver(kind, uri, extra)
        waiting: asyncio.Future[bool] | None = None
        try:
            while not reader.over and not self.closed:
                try:
                    page = await events.read(session.id, STANDALONE, position)
                except StoreClosed:
                    return
                except StoreUnavailable as error:
                    await reader.pause(error.retry_after)
                    continue
                if page.is_truncated:
                    await reader.write(encode_event(truncated(writer, position)))
                    position = page.events[0].number - 1 if page.events else page.last
                for number, data in page.events:
                    await reader.write(encode_event(data, id=event_id(STANDALONE, number)))
                    position = number
                    self.delivered = max(self.delivered, number)
                if page.events or page.is_truncated:
                    continue
                if waiting is None or waiting.done():
                    waiting = asyncio.ensure_future(
                        events.wait(session.id, STANDALONE, position, timeout=_WAIT_SECONDS)
                    )
                    waiting.add_done_callback(lambda _: reader.wake())
                await reader.wait()
                if waiting.done() and not waiting.cancelled() and waiting.exception() is not None:
                    await reader.pause(_UNSURE_SECONDS)
        finally:
            if waiting is not None:
                await _end(waiting)


@final
class _Scribe:
    """Writes the events of one session to the store: behind, in order, and again until it has worked."""

    def __init__(self, shared: Shared, session: str, most: int) -> None:
        self.name = shared.name
        self._fleet = shared.fleet
        self._session = session
        self._ttl = shared.ttl
        self._most = most
        self._queue: deque[tuple[str, bytes | None]] = deque()
        self._heads: dict[str, asyncio.Future[None]] = {}
        self._task: asyncio.Task[Any] | None = None

    def opened(self, stream: str, id: RequestId) -> int:
        self._heads[stream] = asyncio.get_running_loop().create_future()
        self._write(stream, _encode(id))  # the head: whose answer this stream is
        return 1

    async def is_kept(self, stream: str) -> bool:
        """Is it known to the store, so that a client may come back for it by way of any process?"""
        head = self._heads.get(stream)
        try:
            if head is not None:
                await asyncio.wait({head}, timeout=_HEAD_SECONDS)
            return head is not None and head.done()
        finally:
            self._heads.pop(stream, None)

    def appended(self, stream: str, data: bytes) -> None:
        self._write(stream, data)

    def ended(self, stream: str) -> None:
        self._write(stream, None)

    def _write(self, stream: str, data: bytes | None) -> None:
        if len(self._queue) > self._most:
            self._queue.popleft()
        self._queue.append((stream, data))
        if self._task is None:
            self._task = self._fleet.spawn(self._pump())

    async def _pump(self) -> None:
        events = self._fleet.store.events
        try:
            while self._queue:
                stream, data = item = self._queue[0]
                try:
                    if data is None:
                        await events.end(self._session, stream, ttl=_ENDED_SECONDS)
                    else:
                        ttl = self._ttl if stream == STANDALONE else _OPEN_SECONDS
                        await events.append(self._session, stream, data, ttl=ttl)
                except StoreClosed:
                    return
                except StoreUnavailable as error:
                    await asyncio.sleep(max(0.05, error.retry_after))
                    continue
                except Error as error:
                    logger.warning("an event of a session cannot be kept for a client that comes back: %s", error)
                if self._queue and self._queue[0] is item:
                    self._queue.popleft()
                head = self._heads.get(stream)
                if head is not None and not head.done():
                    head.set_result(None)
        finally:
            self._task = None

    async def flush(self) -> None:
        """Wait for what is still to be written, but not for long."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_LEAVE_SECONDS)
