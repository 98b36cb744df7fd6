"""One client's connection: opened, lost, healed, closed; and the calls that go through it.

    new -> connecting -> ready <-> reconnecting -> closed

A `PeerSession` is one link to the server, with the dialect spoken on it and the server's description of itself. The
connection outlives its sessions. When a session ends by itself, its calls fail at once, and one background task opens the
next session. Calls made meanwhile wait for it within their own deadlines. Every call ends: with its result, with the
server's error, or with an error that says what happened to the connection.

`reconnecting.py` decides about pauses and repeated requests, `cancellation.py` about calls that are given up,
`input_rounds.py` answers a server's questions, `keep_alive.py` pings.

Tasks belong to the connection, never to the caller: a client may be opened in one task, used in many, closed in another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar, final

from msgspec import Raw

from trimaran.bounded_log import BoundedLog
from trimaran.durations import check_seconds
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
from trimaran.protocol.read_reply import Frame, memory_of

from .callback_queue import CallbackQueue
from .cancellation import is_withdrawn_by_leaving, withdraw
from .deadline import Clock, Deadline, DeadlineExpired, SuspendableTimeout, current_waits, in_background, suspendable
from .dialect import Dialect, write_notice
from .input_rounds import answer_input
from .keep_alive import keep_pinging
from .link import Link
from .negotiation import Dialer, EraMemory, MakeDialect, meet, not_ready
from .options import MAX_TIMEOUT, ClientState, Options
from .peer_session import PeerSession
from .pending_call import PendingCall, read_progress
from .reconnecting import ReconnectPolicy, pause_after
from .relaying import QUESTIONS, CallOver, Relay, find_relay, unclear_question
from .server_requests import LogEntry, ServerRequests, StateEvent

T = TypeVar("T")
AnError = TypeVar("AnError", bound=Error)

log: logging.Logger = logging.getLogger("trimaran.client")
_bounded: Final = BoundedLog("trimaran.client")

_PATIENCE: Final = 5.0  # seconds for what should take no time: a ping, a farewell, a callback
_LAST_WORDS: Final = 0.5  # seconds for callbacks to hear that the client was closed
_TURNS: Final = 5  # of the loop, for cancelled callers to leave
_SLOW_ASKS: Final = frozenset({"elicitation/create", "sampling/createMessage"})
_ASKERS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})  # calls in whose middle servers ask


class Unset:
    """No value was given, where None is one."""


@final
class Connection:
    def __init__(
        self,
        dialer: Dialer,
        options: Options,
        asks: ServerRequests,
        make_dialect: MakeDialect,
        memory: EraMemory,
        mask: Mask | None = None,
    ) -> None:
        self.dialer = dialer
        self._mask = mask or None
        """Takes the target's secrets out of a text, if it has any."""
        self.options = options
        self.asks = asks
        self.state: ClientState = "new"
        self.log_level: str | None = "info" if self.asks.on_log is not None else None
        self.on_notice: Callable[[str, dict[str, Any]], None] = lambda method, params: None
        """Sees every notification but progress."""
        self.on_gap: Callable[[], None] = lambda: None
        """Told when announcements may have been missed."""
        self.on_ready: Callable[[bool], Coroutine[Any, Any, None]] | None = None
        """Run with each new conversation; True: it is not the first."""
        self.is_needed: Callable[[], bool] = lambda: False
        """Does anybody wait for what the server will say, so that giving up is no option?"""
        self.is_relaying: bool = False
        self._has_warned = False
        """Are calls made for others? Then the client's own handlers answer no question."""
        self._asks_people = getattr(options.auth, "login", None) is not None
        """May a person have to log in before a call is answered?"""
        self._limit = SuspendableTimeout()
        """Runs while a connection is being made."""
        self._make_dialect = make_dialect
        self._memory = memory
        self._live: PeerSession | None = None
        self._last: PeerSession | None = None
        self._ids = itertools.count(1)
        self._requests: dict[RequestId, PendingCall] = {}
        """Requests that wait for a reply, by id."""
        self._calls: set[PendingCall] = set()
        """All calls, also those that wait for a person or for the connection."""
        self._clock = Clock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._mail = CallbackQueue()
        self._opening: asyncio.Task[PeerSession] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._failure: Error | None = None
        """Why the last attempt to connect failed."""
        self.newest_link: Link | None = None
        """The one that is being greeted, or was last."""
        self._policy = ReconnectPolicy(options.retries)

    # --- life --------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self.state == "closed" or self._closing is not None:
            raise Closed("the client is closed; make a new one")
        if self.state != "new":
            raise NotReady(f"the client is already {self.state}; open it once")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise NotReady(
                "the client needs a loop of asyncio, and none runs here: under trio, use SyncClient in a thread, or "
                'start the program with anyio.run(main, backend="asyncio")'
            ) from None
        self._enter("connecting")
        try:
            await self._ready()
        except BaseException as error:
            await self.close(error if isinstance(error, Error) else None)
            raise
        if self.options.ping_interval is not None:
            self.spawn(keep_pinging(self, self.options.ping_interval))

    async def close(self, error: Error | None = None) -> None:
        """End everything; from any task, any number of times. All of them wait for the same end."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(error))
        await asyncio.shield(self._closing)

    async def _close(self, error: Error | None) -> None:
        live, self._live = self._live or self._last, None
        opening, self._opening = self._opening, None
        try:
            for call in tuple(self._calls):
                call.deadline.end(Closed(f"the client was closed while {call.method} was waiting for its answer"))
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

    def masked(self, error: AnError) -> AnError:
        """The error, without what is secret in the target's URL or command: transports name both as they are."""
        if self._mask is not None:
            error.args = tuple(
                self._mask(argument) if isinstance(argument, str) else argument for argument in error.args
            )
            if isinstance(error, ProtocolError):
                error.message = self._mask(error.message)
        return error

    def _enter(self, state: ClientState, error: Error | None = None) -> None:
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
    def live_session(self) -> PeerSession | None:
        """The current session; None while there is no connection."""
        return self._live

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
    def conversation(self) -> PeerSession:
        """The current conversation, or the last one; NotReady before the first."""
        session = self._live or self._last
        if session is None:
            if self._closing is not None:
                raise Closed("the client is closed")
            raise NotReady("the client is not open yet: use `async with connect(...)`, or await open_client(...)")
        return session

    async def _ready(self) -> PeerSession:
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
            # A call waits longer for a connection that waits for a person.
            with self._limit.followed_by(current_waits()):
                return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled() and self._closing is not None:
                raise Closed("the client was closed") from None
            raise

    async def _ready_soon(self) -> PeerSession:
        """The same for somebody else's call, which has a deadline that is not known here: it hears of a long pause."""
        if not self._policy.is_soon(asyncio.get_running_loop().time()):
            raise ConnectFailed(f"{self.dialer.describe()} keeps ending; it is started again after a pause")
        try:
            return await self._ready()
        except Closed:
            raise ConnectFailed(
                f"the connection to {self.dialer.describe()} was closed before the call was sent"
            ) from None

    def _opened(self, task: asyncio.Task[PeerSession]) -> None:
        if self._opening is task:
            self._opening = None
        if not task.cancelled():
            task.exception()  # whoever waits has it; nobody may be waiting

    async def _begin(self) -> PeerSession:
        """Meet the server, within the time there is."""
        limit = self.options.connect_timeout
        failures: list[Error] = []
        await asyncio.sleep(self._policy.seconds_until_attempt(asyncio.get_running_loop().time()))
        try:
            async with self._limit.lasting(limit):
                meeting = await meet(
                    self.dialer,
                    lambda: PeerSession(self),
                    self._make_dialect,
                    self.next_id,
                    era=self.options.wanted_era,
                    version=self.options.version,
                    memory=self._memory,
                    patience=limit,
                    on_failure=failures.append,
                )
        except TimeoutError:
            late = self.masked(not_ready(self.dialer, limit, failures, self.newest_link))
            self._fail(late)
            raise late from None
        except Error as error:
            self._fail(self.masked(error))
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
            self._fail(self.masked(gone))
            raise gone
        self._failure = None
        self._live = conversation
        self._enter("ready")
        if self.on_ready is not None:
            self.spawn(self.on_ready(again))
        return conversation

    def _fail(self, error: Error) -> None:
        self._failure = error
        self._policy.note_failed_attempt(asyncio.get_running_loop().time())

    def gap(self) -> None:
        self.on_gap()

    def conversation_ended(self, conversation: PeerSession, error: Error | None) -> None:
        """A conversation is over: by the end of its link, or because the server forgot its session."""
        if self._live is not conversation or self._closing is not None:
            return
        self._live = None
        self._enter("reconnecting", None if error is None else self.masked(error))
        now = asyncio.get_running_loop().time()
        self._policy.note_end(conversation.began, now, has_served=conversation.has_served)
        for call in tuple(self._calls):
            if call.session is conversation and call.method == "subscriptions/listen":
                call.deadline.end(ConnectionLost("the stream of changes ended with its conversation"))
        retiring = self.spawn(self._retire(conversation))
        self._opening = asyncio.ensure_future(self._heal(None if conversation.link.is_http else retiring))
        self._opening.add_done_callback(self._opened)

    async def _retire(self, ended: PeerSession) -> None:
        """Let what is still under way on an ended link finish, where it can; then close it."""
        try:
            await ended.link.finish()
        finally:
            with contextlib.suppress(Error):
                await ended.link.close()

    async def _heal(self, retiring: asyncio.Task[None] | None) -> PeerSession:
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
                if self._policy.gives_up(attempt, is_needed=self.is_needed()):
                    raise
        raise AssertionError("unreachable")

    def end_calls(self, loss: str) -> None:
        """End the wait of every call with ConnectionLost."""
        for call in tuple(self._calls):
            call.deadline.end(ConnectionLost(loss))

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
        return tuple(call.id for call in self._calls if not call.is_internal)

    def cancel(self, id: RequestId, reason: str | None) -> bool:
        call = next((call for call in self._calls if call.id == id and not call.is_internal), None)
        if call is None:
            return False
        call.deadline.cancel(reason)
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
        call = PendingCall(method, Deadline(seconds, maximum, self._clock), on_progress)
        call.on_id = on_id
        call.is_internal = is_internal
        call.extension = extension
        try:
            with call.deadline:
                self._calls.add(call)
                answer = self._converse(call, method, params, name, headers, repeatable)
                result = await (self._with_suspendable_deadline(call, answer) if self._asks_people else answer)
                if call.progress_queue is not None:
                    await self._wait_for_progress(call.progress_queue)
                return result
        except DeadlineExpired:
            raise TimedOut(self._late(method, call.deadline)) from None
        except (TransportError, ProtocolError) as error:
            self.masked(error)
            if self._closing is not None:
                raise Closed(f"the client was closed while {method} was waiting for its answer") from error
            raise
        finally:
            self._calls.discard(call)
            if call.progress_queue is not None:
                await call.progress_queue.close()

    async def relay(
        self,
        method: str,
        params: Mapping[str, Any],
        name: str | None,
        headers: Mapping[str, str] | None,
        relay: Relay,
        *,
        is_repeatable: bool,
    ) -> tuple[Raw, bool]:
        """Have a request of somebody else's answered; see `relaying.py`. It ends with its result, or with the link.

        If the relay passes rounds, the second part says that the result asks for input.
        """
        if relay.sent is None and (self.state == "new" or self._closing is not None):
            await self._ready_soon()
        self.is_relaying = True
        call = PendingCall(method, Deadline(None, None), None)
        call.relay, call.extension = relay, relay.extension
        call.task_id = params.get("taskId") if method == "tasks/result" else None
        self._calls.add(call)
        try:
            answer = await self._converse(call, method, params, name, headers, is_repeatable)
            if call.session is not None:
                call.session.has_served = True
            return answer
        except (TransportError, ProtocolError) as error:
            self.masked(error)
            if self._closing is not None:
                raise Closed(f"the client was closed while {method} was waiting for its answer") from error
            raise
        finally:
            self._calls.discard(call)
            relay.end()

    async def _with_suspendable_deadline(self, call: PendingCall, answer: Coroutine[Any, Any, T]) -> T:
        """Wait for an answer on the way to which a person may have to log in."""
        with suspendable(call.deadline):
            return await answer

    async def _wait_for_progress(self, post: CallbackQueue) -> None:
        """Let the last reports of progress be heard before the result is; not for ever."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await post.drained()
        except TimeoutError:
            log.warning("on_progress does not keep up: the call returned before it had received every report")

    async def _converse(
        self,
        call: PendingCall,
        method: str,
        params: Mapping[str, Any],
        name: str | None,
        headers: Mapping[str, str] | None,
        repeatable: bool,
    ) -> tuple[Raw, bool]:
        """Requests and replies until there is a result: more than one after a loss, or where input is asked for."""
        losses = rounds = 0
        extra: dict[str, Any] = {}
        calls = self._requests
        sent = None if call.relay is None else call.relay.sent
        while True:
            if sent is None:
                live = self._live or await (self._ready() if call.relay is None else self._ready_soon())
                dialect, link = live.dialect, live.link
                id = call.id = next(self._ids)
                message = self._write(dialect, id, method, {**params, **extra}, call)
                all_headers = dialect.headers(method, name) if link.is_http else None
                if headers and all_headers is not None:
                    all_headers = {**all_headers, **headers}
                answer = link.request(id, message, all_headers)
            else:
                live, id = sent.session, sent.id
                dialect, call.id = live.dialect, id
                answer, sent = sent.link.request(id, sent.message, sent.headers, sent.sending), None
            call.session = live
            calls[id] = call
            try:
                frame = await answer
            except asyncio.CancelledError:
                live.withdraw_asks_of(id)
                if self._closing is None and not is_withdrawn_by_leaving(live, method):
                    self.spawn(withdraw(live, id, call.deadline.reason))
                raise
            except (ConnectionLost, ConnectFailed, UnexpectedStatus) as error:
                losses += 1
                await self._prepare_resend(live, error, losses, repeatable)
                continue
            finally:
                del calls[id]
            if self.state != "ready" and self._live is live:
                self._enter("ready")
            kind, raw = dialect.outcome(frame)
            if kind == "complete" or (kind == "task" and call.extension is not None and method == "tools/call"):
                return raw, rounds > 0
            if kind != "input_required":
                raise RemoteProtocolError(CODE_INVALID_REQUEST, f"{method} was answered with a {kind}, not a result")
            relay = call.relay
            if relay is not None and relay.passes_rounds:
                return raw, True
            rounds += 1
            if rounds > self.options.max_rounds:
                raise RoundsExceeded(f"{method} asked for input {rounds} times; max_rounds allows {rounds - 1}")
            extra = await answer_input(relay or self.asks, method, raw, call.deadline)

    def _write(self, dialect: Dialect, id: int, method: str, params: dict[str, Any], call: PendingCall) -> bytes:
        if call.on_id is not None:
            call.on_id(id)
        token = id if call.on_progress is not None else None
        if call.relay is not None:
            meta = call.relay.write_meta(id, is_modern=dialect.era == "modern")
            if meta:
                params["_meta"] = meta
            return dialect.write(id, method, params, None, None)
        try:
            return dialect.write(id, method, params, token, self.log_level, call.extension)
        except (TypeError, ValueError, RecursionError) as error:
            raise LocalProtocolError.invalid_params(f"the arguments of {method} have no JSON form: {error}") from None

    async def _prepare_resend(
        self,
        live: PeerSession,
        error: ConnectionLost | ConnectFailed | UnexpectedStatus,
        losses: int,
        repeatable: bool,
    ) -> None:
        """A request failed with its connection: raise, or return when it may be sent again."""
        if isinstance(error, UnexpectedStatus):
            if not self._policy.may_resend(error, losses, repeatable=repeatable):
                if not self._policy.suspects_older_server(live.dialect.era, error, losses):
                    raise error
                self._memory.forget(self.dialer.key)
                live.lost(error)
                return
        else:
            if self._closing is not None:
                raise Closed("the client was closed") from error
            if self._live is live and self.state == "ready":
                self._enter("reconnecting", error)  # over HTTP the session does not end with one request
            if not self._policy.may_resend(error, losses, repeatable=repeatable):
                raise error
            if self._live is not live:
                return  # the next session is being opened; its policy has the pauses
        await asyncio.sleep(pause_after(losses))

    def only_asker(self) -> RequestId | None:
        askers = [id for id, call in self._requests.items() if call.method in _ASKERS]
        return askers[0] if len(askers) == 1 else None

    def relay_of(self, request_id: RequestId | None, params: Mapping[str, Any]) -> Relay | None:
        """Whom a message of the server is for, where calls are made for others: by its stream, or by what is under way."""
        call = None if request_id is None else self._requests.get(request_id)
        return find_relay(self._calls, params) if call is None else call.relay

    async def answer(self, method: str, params: Mapping[str, Any], request_id: RequestId | None) -> Any:
        """The result for a request of the server's."""
        if method in QUESTIONS:
            while (relay := self.relay_of(request_id, params)) is not None:
                with contextlib.suppress(CallOver):
                    return await relay.answer(method, params)
                if request_id is not None:
                    break
            if self.is_relaying:
                self._warn_of_shared_use(method)
                raise unclear_question(method)
        return await self.asks.answer(method, params)

    def _warn_of_shared_use(self, method: str) -> None:
        """Tell whoever runs a proxy, once: its callers only see tools that fail when they are not alone."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s sent %s while several callers shared the connection, so nobody could be asked: give each of them one "
                'of its own (isolation="caller", --per-caller, or connections = "caller" in [gateway.server.NAME])',
                self.dialer.describe(),
                method,
            )

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Have a person or a model asked on a call's behalf; ended by close."""
        call = PendingCall(method, Deadline(None, None), None)
        call.is_internal = True
        with call.deadline:
            self._calls.add(call)
            try:
                return await self.asks.answer(method, params)
            finally:
                self._calls.discard(call)

    async def rest(self, pause: Awaitable[None]) -> None:
        """Let time pass between two requests that belong together; ended by close."""
        call = PendingCall("rest", Deadline(None, None), None)
        call.is_internal = True
        # Where pings fail meanwhile, the next request heals what can be healed.
        with contextlib.suppress(ConnectionLost), call.deadline:
            self._calls.add(call)
            try:
                await pause
            finally:
                self._calls.discard(call)

    def _late(self, method: str, patience: Deadline) -> str:
        # Round: a lookup of the list of tools may have taken a fraction off the limit.
        limit = round(patience.limit, 1) if patience.limit > 1 else patience.limit
        text = f"no answer to {method} within {limit:g} s from {self.dialer.describe()}"
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
            self.masked(error)
            raise

    @contextlib.contextmanager
    def waiting_for_people(self, method: str) -> Any:
        """The clocks of all calls stand still while a person or a model answers: which call it belongs to is not said.

        Not for one question after another: each call has `max_rounds` of them, then its time goes on.
        """
        most = self.options.max_rounds * len(self._calls)
        calls = [call for call in self._calls if call.questions < most] if method in _SLOW_ASKS else []
        for call in calls:
            call.questions += 1
            call.deadline.pause()
        try:
            yield
        finally:
            for call in calls:
                call.deadline.resume()

    # --- what the server tells ---------------------------------------------------------------------------------------

    def hear(self, conversation: PeerSession, frame: Frame, request_id: RequestId | None = None) -> None:
        method: Any = frame.method
        if method == "notifications/progress":
            report = read_progress(frame)
            if report is None:
                _bounded.warning("a malformed progress notification was ignored")
            elif (call := self._requests.get(report.token)) is not None:
                call.report(report)
            if self.asks.on_notification is not None:
                self._tell(self.asks.on_notification, method, frame.read_params(), size=memory_of(frame))
            return
        params = frame.read_params()
        size = memory_of(frame)
        if method == "notifications/cancelled":
            id = params.get("requestId")
            if isinstance(id, (int, str)):
                conversation.withdraw_ask(id)
                call = self._requests.get(id)
                if call is not None and call.method == "subscriptions/listen":
                    # The other way to end one on a pipe; its keeper opens another.
                    call.deadline.end(ConnectionLost("the server ended the stream of changes"))
        elif method == "notifications/subscriptions/acknowledged" and self._live is conversation:
            if self.state == "reconnecting":
                self._enter("ready")
        elif method == "notifications/message":
            if self.is_relaying and (relay := self.relay_of(request_id, params)) is not None:
                relay.notice(method, params)
            if self.asks.on_log is not None:
                self._tell(self.asks.on_log, _log_entry(params), size=size)
        try:
            self.on_notice(method, params)
        except Exception:
            log.exception("a notification could not be handled: %s", method)
        if self.asks.on_notification is not None:
            self._tell(self.asks.on_notification, method, params, size=size)


def _log_entry(params: Mapping[str, Any]) -> LogEntry:
    level, logger = params.get("level"), params.get("logger")
    return LogEntry(
        level if isinstance(level, str) else "info", params.get("data"), logger if isinstance(logger, str) else None
    )
