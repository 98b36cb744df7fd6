"""Sessions that several processes serve, without the client noticing.

A client's next request may reach any process of the fleet. Each process has its own `Session` for every session that it
serves, made from the record in the store. It serves calls from that alone: a call that is answered at once costs the store
nothing. Processes share:

    settings        initialized, log level, subscriptions: written to the record first, then announced
    answers         to a question of ours: handed to the asking process, whose name is in the question's id
    cancellations   announced, if the call does not run here
    streams         every event is copied to the store, from where any process can continue the stream
    changes         the process with the session's own stream tells the client; without one, the next that opens it, from the log

A process looks for a session in the store when it does not know it, and every few seconds while it is used, which also
keeps it alive. While the store is away, known sessions are served, and others are refused with 503, not 404: a client must
not take its session for lost.

If a process dies, the rest of its answers is lost. A client that asks for it gets an error that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from trimaran.errors import ConfigError, ProtocolError, TimedOut
from trimaran.fleet import Change, Fleet, unavailable
from trimaran.protocol.inbound import IncomingReply, RequestId, as_request_id
from trimaran.protocol.meta import Peer
from trimaran.protocol.sse import COMMENT, encode_event, encode_priming
from trimaran.protocol.versions import V2025_11
from trimaran.server.access import owner_text
from trimaran.server.changes import LIST_CHANGED
from trimaran.server.context import ASK_TIMEOUT
from trimaran.state.byte_budget import ByteBudget
from trimaran.state.contracts import (
    EventsPage,
    NoAnswer,
    SessionRecord,
    StoreClosed,
    StoreConflict,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from trimaran.transports.engine import HttpRequestHead
from trimaran.types import Implementation

from .event_writer import EventWriter, SessionEvents
from .resumable_streams import STANDALONE, EventLog, HttpOutlet, StreamReader, event_id, read_stream_name, truncated
from .session import Session, SessionTable

if TYPE_CHECKING:
    from trimaran.protocol.outbound import Writer
    from trimaran.server.server import Server

# Seconds until a session is looked for in the store again: a lost message about its end is noticed then.
_SURE_SECONDS: Final = 5.0
# The same while the store is away.
_UNSURE_SECONDS: Final = 1.0
# For sessions without an idle timeout: every record expires some day.
_LONGEST_SECONDS: Final = 30 * 86_400.0
_ATTEMPTS: Final = 10
_WAIT_SECONDS: Final = 300.0
# Seconds between two looks at the process of a call that a client waits for.
_LOOK_SECONDS: Final = 3.0
_LEAVE_SECONDS: Final = 2.0
# Events of a session's own stream in which a repeated one is recognized: more than a batch has.
_MARKS: Final = 512
_ID: Final = re.compile(r"mcp_[0-9a-f]{32}")
_ASKED: Final = re.compile(r"srv-([0-9a-f]{12})-[0-9]{1,12}")

_DIED: Final = "the server process that worked on this call has ended"
_NOT_KEPT: Final = "the answer to this call could not be stored, or is stored no longer"


class _MessageKind(msgspec.Struct):
    """The fields that tell an answer from a request."""

    id: msgspec.Raw | UnsetType = UNSET
    method: msgspec.Raw | UnsetType = UNSET


_encode: Final = msgspec.msgpack.encode
_read_said: Final = msgspec.json.Decoder(_MessageKind).decode
_read_place: Final = msgspec.msgpack.Decoder(tuple[int, int]).decode


def _is_answer(data: bytes) -> bool:
    try:
        message = _read_said(data)
    except msgspec.MsgspecError:
        return False
    return message.id is not UNSET and message.method is UNSET


def _place(record: SessionRecord) -> tuple[int, int]:
    """The last change, and the last event of its own stream, that the client has got."""
    try:
        return _read_place(record.extra) if record.extra else (0, 0)
    except msgspec.MsgspecError:
        return 0, 0


@final
class FleetSessions:
    """The sessions of one server, shared with other processes."""

    def __init__(self, server: Server, fleet: Fleet, sessions: SessionTable, retry: int | None) -> None:
        self.fleet = fleet
        self._server = server
        self._sessions = sessions
        self._retry = retry
        self._limits = server.limits
        if not callable(getattr(fleet.store.events, "write", None)):
            raise ConfigError(
                f"{type(fleet.store).__name__}.events must have a method `write`, which stores the events of sessions: "
                "trimaran.testing.check_store checks the other rules of a store"
            )
        self.ttl: float = server.limits.session_idle_timeout or _LONGEST_SECONDS
        self._sure = min(_SURE_SECONDS, self.ttl / 3)
        self.replay: ByteBudget = ByteBudget(server.limits.replay_total_bytes)
        self.event_writer: EventWriter = EventWriter(fleet, self.ttl, server.limits.replay_total_bytes)
        self._marks = itertools.count()
        self._loading: dict[str, asyncio.Task[Session | None]] = {}
        self.reading: set[StreamReader] = set()
        """The streams that are served from the store here and now."""
        sessions.shared = self
        fleet.on("session", self._hear_record)
        fleet.on("ended", self._hear_ended)
        fleet.on("cancel", self._hear_cancel)
        fleet.on_ask("answer", self._take_answer)
        fleet.on_ask("leave", self._give_up_stream)
        fleet.on_ask("at work", self._say_whether_at_work)
        fleet.on("stream", self._hear_stream)
        fleet.on_gap(self._look_again)

    @classmethod
    def of(cls, server: Server, fleet: Fleet, sessions: SessionTable, retry: int | None) -> FleetSessions:
        """The one object of this server, which all its endpoints share."""
        known = sessions.shared
        return known if known is not None and known.fleet is fleet else cls(server, fleet, sessions, retry)

    @property
    def name(self) -> str:
        return self.fleet.name

    def next_mark(self) -> bytes:
        """The mark of one event of a session's own stream, unique in all processes."""
        return b"%b-%d" % (self.name.encode(), next(self._marks))

    @property
    def _records(self) -> Any:
        return self.fleet.store.sessions

    def outlet(self) -> FleetOutlet:
        return FleetOutlet(self, self._limits.replay_events, self._limits.replay_bytes)

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
        except BaseException as error:
            self._sessions.end(session)
            if isinstance(error, (OverflowError, TypeError, ValueError)):
                raise ProtocolError.invalid_params(
                    "initialize: this server keeps sessions in a store, which has no form for something in capabilities or "
                    "clientInfo; numbers have 64 bits there"
                ) from None
            if isinstance(error, StoreFull) and error.limit is not None:
                raise ProtocolError.internal_error(
                    f"the server is full: {error.limit} sessions are open; try again later", status=503
                ) from None
            if isinstance(error, StoreError):
                raise unavailable(error) from None
            if isinstance(error, StoreConflict):  # a chance of one in 2**128
                raise ProtocolError.internal_error("the session could not be created; try again", status=503) from None
            raise
        session.checked_until = time.monotonic() + self._sure

    async def find(self, id: str, principal: Any, door: Any = None) -> Session | None:
        """The session of this id, if it is this principal's; one that was not known here belongs to this door now."""
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
                if session is not None and session.owner is None:
                    session.owner = door
            if session is not None and not await self._is_there(session):
                session = None
        except StoreError as error:
            raise unavailable(error) from None
        if session is not None:
            session.principal = principal
        return session

    async def load(self, id: str) -> Session | None:
        """The session of this id, for any owner. If this process does not know it, it is made from the record.

        Raises:
            StoreError: The store cannot say.
        """
        session = self._sessions.here(id)
        if session is not None or not _ID.fullmatch(id):
            return session
        loading = self._loading.get(id)
        if loading is None:
            # In a task of its own: the first caller may be cancelled while others wait for the same session.
            loading = self._loading[id] = self.fleet.spawn(self._load(id))
            loading.add_done_callback(lambda _: self._loading.pop(id, None))
        try:
            return await asyncio.shield(loading)
        except asyncio.CancelledError:
            if loading.cancelled():
                raise StoreUnavailable("the server is stopping") from None
            raise

    async def _load(self, id: str) -> Session | None:
        await self._server.runtime.get_ready()
        record = await self._records.get(id)
        if record is None:
            return None
        age = time.time() - record.created_ms / 1000
        life = self._limits.session_max_lifetime
        if life is not None and age > life:
            with contextlib.suppress(StoreError):  # it goes by itself
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
        # Check the record again at the next use: the session may have ended while it was loaded, and its use must be noted.
        session.checked_until = 0.0
        self._sessions.add(session)
        return session

    @staticmethod
    def _follow(session: Session, record: SessionRecord) -> None:
        """Take the settings of a record, unless a newer record was seen: announcements come in any order."""
        outlet: Any = session.outlet
        if record.stamp < outlet.stamp:
            return
        outlet.stamp = record.stamp
        session.initialized = session.initialized or record.initialized
        session.log_level = record.log_level
        session.subscriptions = set(record.subscriptions)
        outlet.read_by = record.worker

    async def _is_there(self, session: Session) -> bool:
        """Look whether the session still is, and keep it alive. If it cannot be found out, it is."""
        now = time.monotonic()
        if now < session.checked_until and session.initialized:
            return True
        outlet: Any = session.outlet
        must_read = outlet.is_in_doubt or not session.initialized
        # At once, so that of many calls one looks and the others go on.
        session.checked_until = now + self._sure
        try:
            async with asyncio.timeout(_UNSURE_SECONDS):
                is_there = await self._records.touch(session.id, ttl=self.ttl)
                record = await self._records.get(session.id) if is_there and must_read else None
        except (StoreError, TimeoutError):
            session.checked_until = now + min(self._sure, _UNSURE_SECONDS)
            return True
        except BaseException:  # the caller was cancelled
            session.checked_until = 0.0
            raise
        if record is not None:
            outlet.is_in_doubt = False
            self._follow(session, record)
        if not is_there:
            self._sessions.end(session)
        return is_there

    def prolong(self, session: Session) -> None:
        """It is in use here, though no request says so."""
        self.fleet.spawn(self._prolong(session))

    async def _prolong(self, session: Session) -> None:
        outlet: Any = session.outlet
        # Rarely, where nothing but an open stream holds it: of many such sessions this is all that the store hears.
        is_due = time.monotonic() >= session.checked_until + max(0.0, self.ttl / 6 - self._sure)
        if (not is_due or await self._is_there(session)) and outlet.is_read_here:
            # Should this process be killed, the next one goes on from here.
            place = _encode(outlet.place)
            if place != outlet.noted:
                with contextlib.suppress(StoreError):
                    await self._amend(session, lambda current: replace(current, extra=place))
                    outlet.noted = place

    async def end(self, session: Session, why: str | None = None) -> None:
        """End it everywhere. If the client did not end it, its calls fail with `why`."""
        try:
            await self._records.delete(session.id)
            await self.fleet.store.events.delete(session.id)
        except StoreError as error:
            raise unavailable(error) from None
        self._sessions.end(session, why)
        self.fleet.tell_soon("ended", session.id if why is None else [session.id, why])

    # --- what is settled later

    async def keep(self, session: Session, **changes: Any) -> None:
        """Write the changes to the record, then announce them."""
        try:
            record = await self._amend(session, lambda current: _changed(current, **changes))
            if record is None:
                self._sessions.end(session)
                raise ProtocolError.invalid_request("this session has ended; send initialize again", status=404)
            self._follow(session, record)
            await self.fleet.tell("session", msgspec.to_builtins(replace(record, extra=b"")))
        except StoreError as error:
            if not changes.get("initialized"):
                raise unavailable(error) from None
            # The client sent a notification, so it cannot be told of a failure: retry in the background.
            self.fleet.spawn(self._keep_on(session, **changes))

    async def _keep_on(self, session: Session, **changes: Any) -> None:
        while not session.closed:
            await asyncio.sleep(_UNSURE_SECONDS)
            with contextlib.suppress(StoreError):
                record = await self._amend(session, lambda current: _changed(current, **changes))
                if record is not None:
                    self._follow(session, record)
                return

    async def _amend(self, session: Session, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord | None:
        outlet: Any = session.outlet
        async with outlet.amending:  # one change of this process at a time: most conflicts would be with its own
            for attempt in range(_ATTEMPTS):
                record = await self._records.get(session.id)
                if record is None:
                    return None
                changed = change(record)
                written = record if changed is record else await self._records.put(changed)
                if written is not None:
                    return written
                await asyncio.sleep(secrets.randbelow(1 + attempt) / 500)
        raise StoreUnavailable("the session's record changes too often; try again")

    def may_tell(self, session: Session, change: Change) -> bool:
        """Whether this process should send the present change to the client of this session now."""
        outlet: Any = session.outlet
        number = self.fleet.hearing
        if not outlet.is_read_here or 0 < number <= outlet.last_change:
            return False
        if number and not outlet.is_telling:
            outlet.meanwhile.append((number, change))
            return False
        return True

    def _hear_record(self, news: Any) -> None:
        record = msgspec.convert(news, SessionRecord)
        session = self._sessions.here(record.id)
        if session is not None and session.shared is self:
            self._follow(session, record)

    def _hear_ended(self, news: Any) -> None:
        id, why = (news, None) if isinstance(news, str) else news
        session = self._sessions.here(id)
        if session is not None and session.shared is self:
            self._sessions.end(session, why)

    async def _look_again(self) -> None:
        """Announcements may have been missed: read the records of sessions again before their next use."""
        read_here: list[tuple[Session, set[str]]] = []
        for session in self._sessions:
            if session.shared is self:
                outlet: Any = session.outlet
                session.checked_until = 0.0
                outlet.is_in_doubt = True
                if outlet.is_read_here:
                    read_here.append((session, session.subscriptions))
        for session, known in read_here:
            outlet = session.outlet
            while outlet.is_in_doubt and not session.closed:
                session.checked_until = 0.0
                if await self._is_there(session) and outlet.is_in_doubt:
                    await asyncio.sleep(_UNSURE_SECONDS)
            # This process did not know of these subscriptions, so it may have missed their updates.
            for uri in session.subscriptions - known if not session.closed else ():
                session.deliver("resource", uri, {})

    # --- answers and cancellations

    async def pass_on_answer(self, session: Session, answer: IncomingReply) -> None:
        """Hand an answer to the process that asked, as soon as that can be reached. A failure is not reported: the client
        could do nothing about it.
        """
        match = _ASKED.fullmatch(answer.id) if isinstance(answer.id, str) else None
        if match is None or match[1] == self.name:
            return  # an unknown question, or a late answer
        failed = answer.error is not UNSET
        body = msgspec.json.encode(answer.error if failed else answer.result)
        passing = self.fleet.ask_soon(match[1], "answer", (session.id, answer.id, failed, body), within=ASK_TIMEOUT)
        # The answer is lost if we die before it arrives. So wait for it, but not so long that the client is delayed.
        await asyncio.wait({passing}, timeout=_UNSURE_SECONDS)

    async def _take_answer(self, question: Any) -> bool:
        id, request_id, failed, body = question
        session = self._sessions.here(id)
        if session is None or session.shared is not self:
            return False
        content = msgspec.json.decode(body)
        return session.take_answer(
            IncomingReply(request_id, error=content) if failed else IncomingReply(request_id, result=content)
        )

    def pass_on_cancel(self, session: Session, request_id: RequestId | None, reason: str | None) -> None:
        self.fleet.tell_soon("cancel", (session.id, request_id, reason))

    def _hear_cancel(self, news: Any) -> None:
        id, request_id, reason = news
        session = self._sessions.here(id)
        if session is not None and session.shared is self:
            session.cancel(as_request_id(request_id), reason)

    # --- the session's own stream

    async def take_stream(self, session: Session, reader: StreamReader) -> tuple[list[Change], int]:
        """Take over the session's stream. Returns the changes that the client has not heard of, and its last event, if possible
        from the process that had the stream before.

        Raises:
            ProtocolError: The store cannot say, or the session has ended.
        """
        outlet: Any = session.outlet
        before = ""
        try:

            def take(record: SessionRecord) -> SessionRecord:
                nonlocal before
                before = record.worker
                return replace(record, worker=self.name)

            record = await self._amend(session, take)
            if record is None:
                self._sessions.end(session)
                raise ProtocolError.invalid_request("this session has ended; send initialize again", status=404)
            self._follow(session, record)
            outlet.claim(reader, record.stamp)
            await self.fleet.flush(_LEAVE_SECONDS)  # our own events must be in the log, too
            # The record may be older than the state of this process, or of the process before.
            places = (_place(record), outlet.place, await self._ask_place(record, before))
            last_change, delivered = max(place[0] for place in places), max(place[1] for place in places)
            await self.fleet.tell("stream", (session.id, self.name, record.stamp))
            changes, last = await self.fleet.changes_since(last_change)
            outlet.last_change = max(last_change, last)
        except StoreError as error:
            raise unavailable(error) from None
        if changes is not None:
            return changes, delivered
        everything: list[Change] = [(kind, None, {}) for kind in LIST_CHANGED]
        everything += [("resource", uri, {}) for uri in record.subscriptions]
        return everything, delivered

    async def _ask_place(self, record: SessionRecord, name: str) -> tuple[int, int]:
        """How far the client has read through the process that has its stream, which gives the stream up."""
        if name and name != self.name:
            with contextlib.suppress(NoAnswer, TimedOut, StoreError, msgspec.MsgspecError):
                claim = record.id, self.name, record.stamp
                place = await self.fleet.ask(name, "leave", claim, timeout=_UNSURE_SECONDS)
                return msgspec.convert(place, tuple[int, int])
        return 0, 0

    async def _give_up_stream(self, question: Any) -> tuple[int, int]:
        id, name, stamp = question
        session = self._sessions.here(id)
        if session is None or session.shared is not self:
            return 0, 0
        outlet: Any = session.outlet
        place = outlet.place
        outlet.hand_over(name, stamp)
        return place

    async def leave_stream(self, session: Session, delivered: int) -> None:
        """Give the session's stream up. If the store cannot note that, the client hears some changes twice."""
        outlet: Any = session.outlet
        outlet.last_change = self.fleet.seen_change
        place = _encode((outlet.last_change, delivered))

        def leave(record: SessionRecord) -> SessionRecord:
            return replace(record, worker="", extra=place) if record.worker == self.name else record

        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._amend(session, leave)

    def _hear_stream(self, news: Any) -> None:
        """Another process has taken over the stream of a session (R123)."""
        id, name, stamp = news
        session = self._sessions.here(id)
        if session is not None and session.shared is self:
            outlet: Any = session.outlet
            outlet.hand_over(name, stamp)

    # --- the streams of calls

    async def resume(self, request: HttpRequestHead, session: Session, stream: str, after: int, engine: Any) -> bool:
        """Serve a GET for the stream of a call of another process; False if it is the name of no such stream.

        Raises:
            ProtocolError: The store is away.
        """
        named = read_stream_name(stream)
        if named is None:
            return False
        process, id, awaited = named
        try:
            page = await self.fleet.store.events.read(session.id, stream, after)
        except StoreError as error:
            raise unavailable(error) from None
        outlet: Any = session.outlet
        reader = StreamReader(request)
        self.reading.add(reader)
        release = reader.attach(engine)
        try:
            await request.stream_start(outlet.event_headers)
            await reader.write(COMMENT)
            has_sent = has_looked = has_answer = False
            while not reader.over:
                for number, data in page.events:
                    await reader.write(encode_event(data, id=event_id(stream, number)))
                    has_sent, has_answer = True, has_answer or _is_answer(data)
                    after = number
                if page.is_ended and after >= page.last:
                    # A client that comes back has no answer yet. Its last number may be ahead of the log, if the process died
                    # before it wrote everything: so send the last event in any case.
                    if not has_sent:
                        has_answer = await self._send_last(session.id, stream, page.last, reader)
                    if not has_answer and not reader.over and not awaited:
                        await reader.write(encode_event(self._lost(id, _NOT_KEPT)))
                    break
                if not page.events:
                    # Look at once the first time: a client comes back because something broke, perhaps the process.
                    seconds, has_looked = (_LOOK_SECONDS if has_looked else 0.05), True
                    if not await self._wait(session.id, stream, after, reader, seconds) and not reader.over:
                        why = await self._why_lost(process, session.id, stream)
                        page = await self._read(
                            session.id, stream, after, reader
                        )  # it may have written more before it died
                        if why and page is not None and not page.events and not page.is_ended:
                            if not awaited:  # else the client comes back and waits through another process
                                await reader.write(encode_event(self._lost(id, why)))
                            break
                        if page is None:
                            break
                        continue
                page = await self._read(session.id, stream, after, reader)
                if page is None:
                    break
        finally:
            release()
            self.reading.discard(reader)
            await request.responder.stream_end()
        return True

    async def _wait(self, session: str, stream: str, after: int, reader: StreamReader, seconds: float) -> bool:
        """Wait for more; False if nothing came for a while, or the reader has left."""
        waiting = asyncio.ensure_future(self.fleet.store.events.wait(session, stream, after, timeout=seconds))
        waiting.add_done_callback(lambda _: reader.wake())
        try:
            await reader.wait()
            return waiting.done() and not waiting.cancelled() and waiting.exception() is None and waiting.result()
        finally:
            await _end(waiting)

    async def _read(self, session: str, stream: str, after: int, reader: StreamReader) -> EventsPage | None:
        """The next events; None if the reader has left or the store is closed."""
        while not reader.over:
            try:
                return await self.fleet.store.events.read(session, stream, after)
            except StoreClosed:
                reader.end()
            except StoreError as error:
                await reader.pause(error.retry_after)
        return None

    async def _send_last(self, session: str, stream: str, last: int, reader: StreamReader) -> bool:
        """Send the last event of a stream. Returns whether it was an answer."""
        page = await self._read(session, stream, last - 1, reader)
        has_answer = False
        for number, data in page.events if page is not None else ():
            await reader.write(encode_event(data, id=event_id(stream, number)))
            has_answer = _is_answer(data)
        return has_answer

    async def is_lost(self, session: Session, stream: str, process: str) -> bool:
        """Whether no process works on the stream of a call any more."""
        return bool(await self._why_lost(process, session.id, stream))

    async def _why_lost(self, name: str, session: str, stream: str) -> str:
        """Why a stream of another process will not continue; empty if it may."""
        if not await self.fleet.is_there(name):
            return _DIED
        with contextlib.suppress(NoAnswer, TimedOut, StoreError):  # an older version does not know the question
            if await self.fleet.ask(name, "at work", (session, stream), timeout=_UNSURE_SECONDS) is False:
                return _NOT_KEPT
        return ""

    async def _say_whether_at_work(self, question: Any) -> bool:
        id, stream = question
        session = self._sessions.here(id)
        if session is None or session.shared is not self:
            return False
        outlet: Any = session.outlet
        return outlet.log.is_open(stream) or outlet.session_events.has_more(stream)

    def _lost(self, id: RequestId, why: str) -> bytes:
        """The error that a client gets in place of its lost answer."""
        return self._server.runtime.writer.error(
            id,
            ProtocolError.internal_error(
                f"{why}; it is not known whether the call was carried out", {"kind": "process_lost"}
            ),
        )

    # --- the end

    async def close(self) -> None:
        """This process leaves; its sessions stay."""
        for reader in tuple(self.reading):
            reader.end()
        await self.event_writer.flush()
        until = time.monotonic() + _LEAVE_SECONDS
        while self.reading and time.monotonic() < until:
            await asyncio.sleep(0.01)


_UNKNOWN: Final = object()
"""The principal of a loaded session: until its first request only the owner's key is known."""


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
    """Cancel it, wait for its end, and ignore its result."""
    waiting.cancel()
    await asyncio.wait({waiting})
    if not waiting.cancelled():
        waiting.exception()


@final
class FleetOutlet(HttpOutlet):
    """The outlet of a session in a store. Any process can read its events."""

    def __init__(self, shared: FleetSessions, size: int, max_bytes: int) -> None:
        super().__init__()
        self._shared = shared
        self._size = size
        self._max_bytes = max_bytes
        self._session: Session | None = None
        self.session_events: SessionEvents | None = None
        self.read_by: str = ""
        """The process that has the stream open, as far as is known here."""
        self.noted = b""
        """The place of the client, as last written to the store."""
        self.last_change: int = 0
        """The last change that this process has sent to the client."""
        self._claimed: tuple[StreamReader | None, int] = None, 0
        """The last reader that the record named, and the record's stamp then."""
        self._claimed_elsewhere = 0
        """The newest stamp with which another process took the stream."""
        self._telling: StreamReader | None = None
        """The reader that has received the changes from before it came."""
        self.meanwhile: list[tuple[int, Change]] = []
        """Changes that arrived, with their numbers, while earlier ones were still being looked up."""
        self.stamp = 0
        """The stamp of the newest record that was seen."""
        self.is_in_doubt = False
        """Whether there may be a newer record."""
        self.amending: asyncio.Lock = asyncio.Lock()
        self._seen_marks: dict[bytes, None] = {}
        """The marks of recent events: a batch with an unknown outcome may have been written twice."""

    def introduce(self, session: Session, retry: int | None) -> None:
        super().introduce(session, retry)
        self._session = session
        self.session_events = SessionEvents(self._shared.event_writer, session.id, self._size, self._max_bytes)
        self.log: EventLog = EventLog(self._size, self._max_bytes, self._shared.replay, self.session_events)

    @property
    def is_open(self) -> bool:
        return self._reader is not None or bool(self.read_by)

    @property
    def place(self) -> tuple[int, int]:
        """Up to which change, and which event, its client has been told by way of this process."""
        return max(self.last_change, self._shared.fleet.seen_change if self.is_telling else 0), self.delivered

    def claim(self, reader: StreamReader, stamp: int) -> None:
        """It is written down that it is read here now."""
        self._claimed = reader, stamp
        if stamp < self._claimed_elsewhere:
            reader.end()

    @property
    def is_telling(self) -> bool:
        """Whether the present reader has received the changes from before it came."""
        return self._reader is not None and self._telling is self._reader

    def put(self, data: bytes) -> None:
        if self.session_events is not None:
            self.session_events.announced(b"%b %b" % (self._shared.next_mark(), data))

    def hand_over(self, name: str, stamp: int) -> None:
        """Another process has claimed the stream. The newest claim wins."""
        self._claimed_elsewhere = max(self._claimed_elsewhere, stamp)
        reader, claimed_stamp = self._claimed
        if self._reader is None:
            if stamp >= self.stamp:
                self.read_by = name
        elif self._reader is reader and stamp > claimed_stamp:
            self.read_by = name
            self._reader.end()

    async def stream(self, request: HttpRequestHead, after: int | None, writer: Writer, engine: Any) -> None:
        """Serve one GET until the session ends, another GET takes over (R123) or the client goes."""
        session = self._session
        assert session is not None
        if self._reader is not None:
            self.last_change, _ = self.place
            self._reader.end()
        reader = self._reader = StreamReader(request)
        self._shared.reading.add(reader)
        release = reader.attach(engine)
        has_begun = False
        try:
            changes, delivered = await self._shared.take_stream(session, reader)
            has_begun = True
            # At once: from here on they count as told.
            for change in changes:
                session.deliver(*change)
            if self._reader is reader:  # else another has come, and may even be done with this
                self._telling = reader
                self.delivered = delivered
                meanwhile, self.meanwhile = self.meanwhile, []
                for number, change in meanwhile:
                    if number > self.last_change:
                        session.deliver(*change)
            await request.stream_start(self.event_headers)
            await self._read_on(session, reader, after, writer)
        finally:
            release()
            if self._reader is reader:
                self._reader = None
                self.meanwhile = []
                if self.read_by == self._shared.name:
                    self.read_by = ""
            try:
                if has_begun and self._reader is None:
                    await self._shared.leave_stream(session, self.delivered)
            finally:
                self._shared.reading.discard(reader)
                if has_begun:
                    await request.responder.stream_end()

    def _hear(self, marked: bytes) -> bytes | None:
        """The data of an event; None if the same event was sent before."""
        mark, space, data = marked.partition(b" ")
        if marked.startswith(b"{") or not space:  # of a version that put no marks
            return marked
        if mark in self._seen_marks:
            return None
        self._seen_marks[mark] = None
        if len(self._seen_marks) > 2 * _MARKS:
            for old in list(self._seen_marks)[:_MARKS]:
                del self._seen_marks[old]
        return data

    async def _look_back(self, session: Session, position: int) -> None:
        """Read the marks of earlier events, perhaps of another process: the log may hold one of them again."""
        if position > 0:
            with contextlib.suppress(StoreUnavailable):
                before = max(0, position - _MARKS)
                page = await self._shared.fleet.store.events.read(session.id, STANDALONE, before, limit=_MARKS)
                for number, marked in page.events:
                    if number <= position:
                        self._hear(marked)

    async def _read_on(self, session: Session, reader: StreamReader, after: int | None, writer: Writer) -> None:
        events = self._shared.fleet.store.events
        is_lost = after is not None and after < 0
        position = self.delivered if after is None or is_lost else after
        if is_lost:
            await reader.write(encode_event(truncated(writer, position)))
        elif after is None and self.version >= V2025_11:
            await reader.write(encode_priming(event_id(STANDALONE, position)))
        else:
            await reader.write(COMMENT)  # the headers must leave now, not with the first event
        await self._look_back(session, position)
        waiting: asyncio.Future[bool] | None = None
        try:
            while not reader.over and not self.closed:
                try:
                    page = await events.read(session.id, STANDALONE, position)
                except StoreClosed:
                    return
                except StoreError as error:
                    await reader.pause(error.retry_after)
                    continue
                if page.is_truncated:
                    await reader.write(encode_event(truncated(writer, position)))
                    position = page.events[0].number - 1 if page.events else page.last
                for number, marked in page.events:
                    if reader.over:
                        break  # the next reader begins here
                    data = self._hear(marked)
                    if data is not None:
                        await reader.write(encode_event(data, id=event_id(STANDALONE, number)))
                    position = number
                    self._note_delivered(number)
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
