"""One client's connection: opened, lost, healed, closed; and the calls that go through it.

    new -> connecting -> ready <-> reconnecting -> closed

A `Conversation` is one incarnation: a link, the dialect spoken on it, what the server said about itself. The connection
outlives it. When a conversation ends by itself the calls in it fail at once, and the next one is begun in the background
by a single task, with growing pauses; calls made meanwhile wait for it, within their own deadlines. Whatever happens, a
call ends: with its result, with the server's error, or with an error that says what became of the connection.

A request is repeated only where that cannot do harm: when the server cannot have seen it, or when whoever called says (or
the tool declares) that doing it twice is the same as once.

Tasks belong to the connection, never to the caller: a client may be opened in one task, used in many, closed in another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar, final

import msgspec
from msgspec import Raw, Struct, field

from trimaran.errors import (
    CODE_INVALID_REQUEST,
    CallError,
    Closed,
    ConnectFailed,
    ConnectionLost,
    Error,
    LocalProtocolError,
    NotReady,
    ProtocolError,
    RemoteProtocolError,
    RoundsExceeded,
    TimedOut,
    TransportError,
    UnexpectedStatus,
)
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.mask import Mask
from trimaran.protocol.methods import METHODS
from trimaran.protocol.replies import Frame, excerpt, memory_of
from trimaran.seconds import check_seconds
from trimaran.types import as_object

from .asks import Asks, LogEntry, StateEvent
from .conversation import Conversation
from .dialect import Dialect, write_notice
from .lastwords import explain_stderr
from .link import Link
from .mailbox import Mailbox
from .meeting import Dialer, EraMemory, MakeDialect, ended_early, meet
from .options import MAX_TIMEOUT, Options
from .patience import Clock, Expired, Limit, Patience, current_waits, in_background, suspendable
from .pipeline import Pipeline

__all__ = ["Connection", "Unset"]

T = TypeVar("T")
AnError = TypeVar("AnError", bound=Error)

log = logging.getLogger("trimaran.client")

_PAUSES: Final = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_ATTEMPTS: Final = 5  # to reconnect, before waiting for somebody to call
_PASSING: Final = frozenset({502, 503, 504})  # of a proxy whose server is away for a moment
_SETTLED: Final = 5.0  # seconds a conversation must have lived for the next one to begin without a pause
_PATIENCE: Final = 5.0  # seconds for what should take no time: a ping, a farewell, a callback
_LAST_WORDS: Final = 0.5  # seconds for callbacks to hear that the client was closed
_TURNS: Final = 5  # of the loop, for cancelled callers to leave
_MOST_QUESTIONS: Final = 64  # in one input_required result, as many as an older server may ask at once
_SLOW_ASKS: Final = frozenset({"elicitation/create", "sampling/createMessage"})


class Unset:
    """No value was given, where None is one."""


class _Progress(Struct):
    token: RequestId = field(name="progressToken")
    progress: float
    total: float | None = None
    message: str | None = None


class _InputRequired(Struct):
    requests: dict[str, Any] | None = field(name="inputRequests", default=None)
    state: str | None = field(name="requestState", default=None)


_decode_progress = msgspec.json.Decoder(_Progress).decode
_decode_input = msgspec.json.Decoder(_InputRequired).decode


@final
class Flight:
    """A call, from its first request to its result."""

    __slots__ = ("asks", "extension", "id", "is_internal", "live", "method", "on_id", "on_progress", "patience", "post")

    def __init__(self, method: str, patience: Patience, on_progress: Callable[..., Any] | None) -> None:
        self.method = method
        self.patience = patience
        self.on_progress = on_progress
        self.post = None if on_progress is None else Mailbox()
        self.on_id: Callable[[int], None] | None = None
        self.extension: str | None = None
        """What its requests declare beside what all do; its result may be of that extension's kind."""
        self.is_internal = False
        """Was it made by the client itself, for its own ends?"""
        self.id = 0
        """Of its latest request."""
        self.asks = 0
        """Questions of the server's that its clock stood still for."""
        self.live: Conversation | None = None

    def progress(self, report: _Progress) -> None:
        self.patience.extend()
        if self.post is not None and self.on_progress is not None:
            size = 0 if report.message is None else len(report.message)
            self.post.post(self.on_progress, report.progress, report.total, report.message, size=size)


@final
class Connection:
    def __init__(
        self,
        dialer: Dialer,
        options: Options,
        asks: Asks,
        make_dialect: MakeDialect,
        memory: EraMemory,
        mask: Mask | None = None,
    ) -> None:
        self.dialer = dialer
        self._mask = mask or None
        """What takes the target's secrets out of a text, where it has any."""
        self.options = options
        self.asks = asks
        self.state = "new"
        self.log_level: str | None = "info" if self.asks.on_log is not None else None
        self.on_notice: Callable[[str, dict[str, Any]], None] = lambda method, params: None
        """Sees every notification but progress."""
        self.on_gap: Callable[[], None] = lambda: None
        """Told when announcements may have been missed."""
        self.on_ready: Callable[[bool], Coroutine[Any, Any, None]] | None = None
        """Run with each new conversation; True: it is not the first."""
        self.is_needed: Callable[[], bool] = lambda: False
        """Does anybody wait for what the server will say, so that giving up is no option?"""
        self._asks_people = getattr(options.auth, "login", None) is not None
        """May a person have to log in before a call is answered?"""
        self._limit = Limit()
        """Runs while a connection is being made."""
        self._make_dialect = make_dialect
        self._memory = memory
        self._live: Conversation | None = None
        self._last: Conversation | None = None
        self._ids = itertools.count(1)
        self._flights: dict[RequestId, Flight] = {}
        """Requests that wait for a reply, by id."""
        self._calls: set[Flight] = set()
        """All calls, also those that wait for a person or for the connection."""
        self._clock = Clock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._mail = Mailbox()
        self._opening: asyncio.Task[Conversation] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._failure: Error | None = None
        """Why the last attempt to connect failed."""
        self.newest_link: Link | None = None
        """The one that is being greeted, or was last."""
        self._failures = 0
        """Attempts in a row that brought no lasting conversation."""
        self._not_before = 0.0
        """When the next attempt may be made."""

    # --- life --------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self.state == "closed" or self._closing is not None:
            raise Closed("the client is closed; make a new one")
        if self.state != "new":
            raise NotReady(f"the client is already {self.state}; open it once")
        self._enter("connecting")
        try:
            await self._ready()
        except BaseException as error:
            await self.close(error if isinstance(error, Error) else None)
            raise
        if self.options.ping_interval is not None:
            self.spawn(self._keep_pinging(self.options.ping_interval))

    async def close(self, error: Error | None = None) -> None:
        """End everything; from any task, any number of times. All of them wait for the same end."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(error))
        await asyncio.shield(self._closing)

    async def _close(self, error: Error | None) -> None:
        live, self._live = self._live or self._last, None
        opening, self._opening = self._opening, None
        try:
            for flight in tuple(self._calls):
                flight.patience.end(Closed(f"the client was closed while {flight.method} was waiting for its answer"))
            tasks = {
                task for task in (*self._tasks, opening) if task is not None and task is not asyncio.current_task()
            }
            for task in tasks:
                task.cancel()
            # Callers leave before the link goes: they hear Closed, not what closing does.
            for _ in range(_TURNS):
                if self._calls:
                    await asyncio.sleep(0)
            if tasks:
                await asyncio.wait(tasks, timeout=_PATIENCE)
            if live is not None:
                await live.link.close()
            await self.dialer.close()
        except Exception:
            log.exception("%s could not be closed in good order", self.dialer.describe())
        finally:
            self._clock.close()
            self._enter("closed", error)
            await self._mail.close(within=_LAST_WORDS)

    def discreet(self, error: AnError) -> AnError:
        """The error, without what is secret in the target's URL or command: transports name both as they are."""
        if self._mask is not None:
            error.args = tuple(self._mask(one) if isinstance(one, str) else one for one in error.args)
            if isinstance(error, ProtocolError):
                error.message = self._mask(error.message)
        return error

    def _enter(self, state: str, error: Error | None = None) -> None:
        previous, self.state = self.state, state
        if state != previous or error is not None:
            log.debug("%s: %s -> %s%s", self.dialer.describe(), previous, state, f" ({error})" if error else "")
            if self.asks.on_state is not None:
                self._tell(self.asks.on_state, StateEvent(state, previous, error))

    def _tell(self, callback: Callable[..., Any], *args: Any, size: int = 0) -> None:
        self._mail.post(callback, *args, size=size)

    @property
    def is_closing(self) -> bool:
        return self._closing is not None

    @property
    def is_live(self) -> bool:
        """Is there a conversation at the moment?"""
        return self._live is not None

    def require_open(self) -> None:
        """NotReady before the client was opened, Closed after it was closed."""
        if self._closing is not None or self.state == "closed":
            raise Closed("the client is closed")
        if self.state == "new":
            raise NotReady("the client is not open yet: use `async with connect(...)`, or await open_client(...)")

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something in the background for as long as the connection lasts."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- beginning and healing ---------------------------------------------------------------------------------------

    @property
    def conversation(self) -> Conversation:
        """The current conversation, or the last one; NotReady before the first."""
        found = self._live or self._last
        if found is None:
            if self._closing is not None:
                raise Closed("the client is closed")
            raise NotReady("the client is not open yet: use `async with connect(...)`, or await open_client(...)")
        return found

    async def _ready(self) -> Conversation:
        """The current conversation; the next one, if there is none at the moment."""
        live = self._live
        if live is not None:
            return live
        self.require_open()
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.ensure_future(self._begin())
            opening.add_done_callback(self._opened)
        try:
            if not self._asks_people:
                return await asyncio.shield(opening)
            # Whoever waits for a connection that waits for a person has time.
            with self._limit.followed_by(current_waits()):
                return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled() and self._closing is not None:
                raise Closed("the client was closed") from None
            raise

    def _opened(self, task: asyncio.Task[Conversation]) -> None:
        if self._opening is task:
            self._opening = None
        if not task.cancelled():
            task.exception()  # whoever waits has it; nobody may be waiting

    async def _begin(self) -> Conversation:
        """Meet the server, within the time there is."""
        limit = self.options.connect_timeout
        failures: list[Error] = []
        await asyncio.sleep(max(self._not_before - asyncio.get_running_loop().time(), 0.0))
        try:
            async with self._limit.lasting(limit):
                meeting = await meet(
                    self.dialer,
                    lambda: Conversation(self),
                    self._make_dialect,
                    self.next_id,
                    era=self.options.wanted_era,
                    version=self.options.version,
                    memory=self._memory,
                    patience=limit,
                    on_failure=failures.append,
                )
        except TimeoutError:
            late = self.discreet(self._not_ready(limit, failures))
            self._fail(late)
            raise late from None
        except Error as error:
            self._fail(self.discreet(error))
            raise
        again = self._last is not None
        conversation = meeting.inbox
        conversation.begin(meeting, asyncio.get_running_loop().time())
        self._last = conversation
        if conversation.is_over:
            await conversation.link.close()
            why = conversation.error
            gone = ConnectFailed(
                f"{self.dialer.describe()} ended right after it was greeted{f': {why}' if why else ''}",
                exit_code=getattr(why, "exit_code", None),
                stderr=getattr(why, "stderr", ()),
            )
            self._fail(self.discreet(gone))
            raise gone
        self._failure = None
        self._live = conversation
        self._enter("ready")
        if self.on_ready is not None:
            self.spawn(self.on_ready(again))
        return conversation

    def _not_ready(self, limit: float, failures: list[Error]) -> Error:
        """Why the server did not get ready: the first child's death, if there was one; else what is known of its silence."""
        death = next((one for one in failures if isinstance(one, ConnectionLost) and one.stderr), None)
        if death is not None:
            again = f"\nStarted again, it did not get ready within {limit:g} s"
            return ended_early(self.dialer.describe(), death, again)
        link = self.newest_link
        seen = "" if link is None else link.oddities()
        if isinstance(link, Pipeline):
            seen += "; it has not read its input yet" if link.unread() else ""
            seen += explain_stderr(link.stderr())
        return TimedOut(
            f"{self.dialer.describe()} did not get ready within {limit:g} s{seen}\n"
            "A slow start needs a larger connect_timeout"
        )

    def _fail(self, error: Error) -> None:
        """An attempt failed: the next one waits a little, and longer each time."""
        self._failure = error
        self._failures += 1
        pause = _PAUSES[min(self._failures, len(_PAUSES) - 1)]
        self._not_before = asyncio.get_running_loop().time() + pause

    def gap(self) -> None:
        self.on_gap()

    def conversation_ended(self, conversation: Conversation, error: Error | None) -> None:
        """A conversation is over: by the end of its link, or because the server forgot its session."""
        if self._live is not conversation or self._closing is not None:
            return
        self._live = None
        self._enter("reconnecting", None if error is None else self.discreet(error))
        now = asyncio.get_running_loop().time()
        if now - conversation.began > _SETTLED:
            self._failures = 0
        else:
            self._failures += 1  # it does not last; a greeting alone is no success
        self._not_before = now + _PAUSES[min(self._failures, len(_PAUSES) - 1)]
        for flight in tuple(self._calls):
            if flight.live is conversation and flight.method == "subscriptions/listen":
                flight.patience.end(ConnectionLost("the stream of changes ended with its conversation"))
        retiring = self.spawn(self._retire(conversation))
        self._opening = asyncio.ensure_future(self._heal(None if conversation.link.is_http else retiring))
        self._opening.add_done_callback(self._opened)

    async def _retire(self, ended: Conversation) -> None:
        """Let what is still under way on an ended link finish, where it can; then close it."""
        try:
            await ended.link.finish()
        finally:
            with contextlib.suppress(Error):
                await ended.link.close()

    async def _heal(self, retiring: asyncio.Task[None] | None) -> Conversation:
        """Begin again, with growing pauses: a few times, or for as long as somebody needs it."""
        if retiring is not None:
            await asyncio.wait((retiring,))  # a child or a channel must be gone before the next one comes
        for attempt in itertools.count(1):
            try:
                if self._calls:
                    return await self._begin()
                with in_background():
                    return await self._begin()
            except Error as error:
                log.info("%s: reconnecting failed: %s", self.dialer.describe(), error)
                self._enter("reconnecting", error)
                if attempt >= _ATTEMPTS and not self.is_needed():
                    raise
        raise AssertionError("unreachable")

    async def _keep_pinging(self, interval: float) -> None:
        failures = 0
        while True:
            await asyncio.sleep(interval)
            live = self._live
            if live is None:
                failures = 0
                continue
            try:
                await self.ping(min(_PATIENCE, interval) if interval > 1 else _PATIENCE)
                failures = 0
            except Closed:
                return
            except TransportError as error:
                failures += 1
                if failures >= self.options.ping_failures and self._live is live:
                    failures = 0
                    lost = ConnectionLost(f"{self.options.ping_failures} pings in a row failed; the last: {error}")
                    for flight in tuple(self._calls):
                        flight.patience.end(ConnectionLost(str(lost)))
                    live.lost(lost)
            except ProtocolError:
                failures = 0  # an error is a sign of life

    async def ping(self, timeout: float | type[Unset] | None = Unset) -> None:
        """Ask for a sign of life. An error is one too: some servers do not know `ping`."""
        live = self._live or await self._ready()
        method = "server/discover" if live.dialect.era == "modern" else "ping"
        with contextlib.suppress(CallError):
            await self.call(method, {}, timeout=timeout)

    # --- calls -------------------------------------------------------------------------------------------------------

    def next_id(self) -> int:
        return next(self._ids)

    @property
    def in_flight(self) -> tuple[RequestId, ...]:
        return tuple(flight.id for flight in self._calls if not flight.is_internal)

    def cancel(self, id: RequestId, reason: str | None) -> bool:
        flight = next((one for one in self._calls if one.id == id and not one.is_internal), None)
        if flight is None:
            return False
        flight.patience.cancel(reason)
        return True

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | type[Unset] | None = Unset,
        max_timeout: float | None = None,
        on_progress: Callable[..., Any] | None = None,
        repeatable: bool = True,
        on_id: Callable[[int], None] | None = None,
        is_internal: bool = False,
        extension: str | None = None,
    ) -> tuple[Raw, bool]:
        """Have a request answered: its result, and whether input was asked for on the way.

        Raises:
            CallError: the server answered an error.
            TimedOut, ConnectionLost, ConnectFailed, Unauthorized, UnexpectedStatus: the connection failed it.
            RemoteProtocolError: what came is no answer.
        """
        if self.state == "new" or self._closing is not None:
            await self._ready()
        options = self.options
        seconds: float | None = options.timeout
        if timeout is not Unset:
            seconds = timeout  # pyright: ignore[reportAssignmentType]
            check_seconds("timeout", timeout)
        if max_timeout is not None:
            check_seconds("max_timeout", max_timeout)
        maximum = max_timeout or options.max_timeout
        if maximum is None and seconds is not None:
            maximum = max(MAX_TIMEOUT, seconds)
        flight = Flight(method, Patience(seconds, maximum, self._clock), on_progress)
        flight.on_id = on_id
        flight.is_internal = is_internal
        flight.extension = extension
        try:
            with flight.patience:
                self._calls.add(flight)
                answer = self._converse(flight, method, params, name, headers, repeatable)
                result = await (self._suspendably(flight, answer) if self._asks_people else answer)
                if flight.post is not None:
                    await self._hear_out(flight.post)
                return result
        except Expired:
            raise TimedOut(self._late(method, flight.patience)) from None
        except (TransportError, ProtocolError) as error:
            self.discreet(error)
            if self._closing is not None:
                raise Closed(f"the client was closed while {method} was waiting for its answer") from error
            raise
        finally:
            self._calls.discard(flight)
            if flight.post is not None:
                await flight.post.close()

    async def _suspendably(self, flight: Flight, answer: Coroutine[Any, Any, T]) -> T:
        """Wait for an answer on the way to which a person may have to log in."""
        with suspendable(flight.patience):
            return await answer

    async def _hear_out(self, post: Mailbox) -> None:
        """Let the last reports of progress be heard before the result is; not for ever."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await post.drained()
        except TimeoutError:
            log.warning("on_progress does not keep up: the call returned before it had heard all")

    async def _converse(
        self,
        flight: Flight,
        method: str,
        params: Mapping[str, Any],
        name: str | None,
        headers: Mapping[str, str] | None,
        repeatable: bool,
    ) -> tuple[Raw, bool]:
        """Requests and replies until there is a result: more than one after a loss, or where input is asked for."""
        losses = rounds = 0
        extra: dict[str, Any] = {}
        flights = self._flights
        while True:
            live = self._live or await self._ready()
            dialect, link = live.dialect, live.link
            id = flight.id = next(self._ids)
            flight.live = live
            message = self._write(dialect, id, method, {**params, **extra}, flight)
            all_headers = dialect.headers(method, name) if link.is_http else None
            if headers and all_headers is not None:
                all_headers.update(headers)
            flights[id] = flight
            try:
                frame = await link.request(id, message, all_headers)
            except asyncio.CancelledError:
                self._withdraw(live, id, method, flight.patience.reason)
                raise
            except (ConnectionLost, ConnectFailed) as error:
                losses += 1
                await self._weather(live, error, losses, repeatable)
                continue
            except UnexpectedStatus as error:
                losses += 1
                if repeatable and error.status in _PASSING and losses <= self.options.retries:
                    await asyncio.sleep(_PAUSES[min(losses, len(_PAUSES) - 1)])
                elif not self._doubt(live, error, losses):
                    raise
                continue
            finally:
                del flights[id]
            if self.state != "ready" and self._live is live:
                self._enter("ready")
            kind, raw = dialect.outcome(frame)
            if kind == "complete" or (kind == "task" and flight.extension is not None and method == "tools/call"):
                return raw, rounds > 0
            if kind != "input_required":
                raise RemoteProtocolError(CODE_INVALID_REQUEST, f"{method} was answered with a {kind}, not a result")
            row = METHODS.get(method)
            if row is not None and not row.input_rounds:
                raise RemoteProtocolError(
                    CODE_INVALID_REQUEST, f"{method} was answered input_required, which it cannot be"
                )
            rounds += 1
            if rounds > self.options.max_rounds:
                raise RoundsExceeded(f"{method} asked for input {rounds} times; max_rounds allows {rounds - 1}")
            extra = await self._provide(flight, method, raw)

    def _write(self, dialect: Dialect, id: int, method: str, params: dict[str, Any], flight: Flight) -> bytes:
        if flight.on_id is not None:
            flight.on_id(id)
        token = id if flight.on_progress is not None else None
        try:
            return dialect.write(id, method, params, token, self.log_level, flight.extension)
        except (TypeError, ValueError, RecursionError) as error:
            raise LocalProtocolError.invalid_params(f"the arguments of {method} have no JSON form: {error}") from None

    async def _weather(
        self, live: Conversation, error: ConnectionLost | ConnectFailed, losses: int, repeatable: bool
    ) -> None:
        """A request was lost: raise, or return when it may be tried again."""
        if self._closing is not None:
            raise Closed("the client was closed") from error
        self._stumble(live, error)
        if isinstance(error, ConnectionLost) and not error.sent:
            allowed = max(self.options.retries, 1)  # nothing was done yet: the session is simply made anew
        else:
            allowed = self.options.retries if repeatable or isinstance(error, ConnectFailed) else 0
        if losses > allowed:
            raise error
        if self._live is live:
            # Nothing but this request noticed; a moment's rest, then the same again.
            await asyncio.sleep(_PAUSES[min(losses, len(_PAUSES) - 1)])

    def _withdraw(self, live: Conversation, id: RequestId, method: str, reason: str | None) -> None:
        """Tell the server that nobody waits any more, where leaving the stream does not say so by itself."""
        if self._closing is not None or live.is_over or method == "initialize":
            return
        if live.link.is_http and live.dialect.era == "modern":
            return
        params = {"requestId": id, "reason": reason or "the caller gave up"}

        async def tell() -> None:
            with contextlib.suppress(TransportError, ProtocolError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await live.link.send(
                        write_notice("notifications/cancelled", params),
                        live.dialect.headers("notifications/cancelled", None),
                    )

        self.spawn(tell())

    def _doubt(self, live: Conversation, error: UnexpectedStatus, losses: int) -> bool:
        """A modern endpoint that no longer answers like one may have been replaced by an older server: meet it anew, once."""
        if losses > 1 or live.dialect.era != "modern" or error.status not in (400, 404, 405):
            return False
        self._memory.note(self.dialer.key, None)
        live.lost(error)
        return True

    def _stumble(self, live: Conversation, error: Error) -> None:
        """A request failed with its connection, and the conversation does not end with it (HTTP): say so."""
        if self._live is live and self.state == "ready":
            self._enter("reconnecting", error)

    async def _provide(self, flight: Flight, method: str, raw: Raw) -> dict[str, Any]:
        """Answer what an input_required result asks; the fields of the next request."""
        try:
            wanted = _decode_input(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"an input_required result is malformed ({error}): {excerpt(bytes(raw))}"
            ) from None
        if wanted.requests is None and wanted.state is None:
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST,
                f"{method} was answered input_required, with neither inputRequests nor requestState",
            )
        extra: dict[str, Any] = {}
        if wanted.state is not None:
            extra["requestState"] = wanted.state
        if wanted.requests:
            if len(wanted.requests) > _MOST_QUESTIONS:
                raise RemoteProtocolError(
                    CODE_INVALID_REQUEST,
                    f"{method} asks {len(wanted.requests)} questions at once, and {_MOST_QUESTIONS} are answered",
                )
            flight.patience.pause()
            try:
                extra["inputResponses"] = await self._answer_all(wanted.requests)
            finally:
                flight.patience.resume()
        return extra

    async def _answer_all(self, requests: Mapping[str, Any]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for key, request in requests.items():
            ask = as_object(request) or {}
            method = ask.get("method")
            if not isinstance(method, str):
                raise RemoteProtocolError(CODE_INVALID_REQUEST, f"the input request {key[:80]!r} names no method")
            if not self.asks.can_answer(method):
                raise RemoteProtocolError(
                    CODE_INVALID_REQUEST, f"the server asks for {method[:80]}, which this client did not offer"
                )
            answers[key] = await self.asks.answer(method, as_object(ask.get("params")) or {})
        return answers

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Have a person or a model asked on a call's behalf; ended by close."""
        flight = Flight(method, Patience(None, None), None)
        flight.is_internal = True
        with flight.patience:
            self._calls.add(flight)
            try:
                return await self.asks.answer(method, params)
            finally:
                self._calls.discard(flight)

    async def rest(self, pause: Awaitable[None]) -> None:
        """Let time pass between two requests that belong together; ended by close."""
        flight = Flight("rest", Patience(None, None), None)
        flight.is_internal = True
        # Where pings fail meanwhile, the next request heals what can be healed.
        with contextlib.suppress(ConnectionLost), flight.patience:
            self._calls.add(flight)
            try:
                await pause
            finally:
                self._calls.discard(flight)

    def _late(self, method: str, patience: Patience) -> str:
        text = f"no answer to {method} within {patience.limit:g} s from {self.dialer.describe()}"
        live = self._live or self._last
        if live is not None:
            text += live.link.oddities()
        if self._failure is not None and self._live is None:
            text += f"; the last attempt to reconnect failed: {self._failure}"
        return text

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Send a notification; TimedOut if the server does not take it."""
        try:
            async with asyncio.timeout(self.options.timeout):
                live = self._live or await self._ready()
                await live.link.send(write_notice(method, params), live.dialect.headers(method, None))
        except TimeoutError:
            raise TimedOut(
                f"{self.dialer.describe()} did not take {method} within {self.options.timeout or 0:g} s"
            ) from None
        except Error as error:
            self.discreet(error)
            raise

    @contextlib.contextmanager
    def waiting_for_people(self, method: str) -> Any:
        """The clocks of all calls stand still while a person or a model answers: which call it belongs to is not said.

        Not for one question after another: each call has `max_rounds` of them, then its time goes on.
        """
        most = self.options.max_rounds * len(self._calls)
        flights = [flight for flight in self._calls if flight.asks < most] if method in _SLOW_ASKS else []
        for flight in flights:
            flight.asks += 1
            flight.patience.pause()
        try:
            yield
        finally:
            for flight in flights:
                flight.patience.resume()

    # --- what the server tells ---------------------------------------------------------------------------------------

    def hear(self, conversation: Conversation, frame: Frame) -> None:
        method: Any = frame.method
        if method == "notifications/progress":
            self._progress(frame)
            if self.asks.on_notification is not None:
                self._tell(self.asks.on_notification, method, frame.read_params(), size=memory_of(frame))
            return
        params = frame.read_params()
        size = memory_of(frame)
        if method == "notifications/cancelled":
            id = params.get("requestId")
            if isinstance(id, (int, str)):
                conversation.withdraw_ask(id)
                flight = self._flights.get(id)
                if flight is not None and flight.method == "subscriptions/listen":
                    # The other way to end one on a pipe; its keeper opens another.
                    flight.patience.end(ConnectionLost("the server ended the stream of changes"))
        elif method == "notifications/subscriptions/acknowledged" and self._live is conversation:
            if self.state == "reconnecting":
                self._enter("ready")
        elif method == "notifications/message" and self.asks.on_log is not None:
            self._tell(self.asks.on_log, _log_entry(params), size=size)
        try:
            self.on_notice(method, params)
        except Exception:
            log.exception("a notification could not be handled: %s", method)
        if self.asks.on_notification is not None:
            self._tell(self.asks.on_notification, method, params, size=size)

    def _progress(self, frame: Frame) -> None:
        try:
            report = _decode_progress(frame.params)  # pyright: ignore[reportArgumentType]
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
            log.warning("a malformed progress notification was ignored")
            return
        flight = self._flights.get(report.token)
        if flight is not None:
            flight.progress(report)


def _log_entry(params: Mapping[str, Any]) -> LogEntry:
    level, logger = params.get("level"), params.get("logger")
    return LogEntry(
        level if isinstance(level, str) else "info", params.get("data"), logger if isinstance(logger, str) else None
    )
