"""Calls of older servers that ask, for callers of 2026-07-28.

An older server asks in the middle of a call and waits. A modern caller's request ends with the question, and the answer
comes with its next request, perhaps at another process. In between the target's call stays open here: it is parked.

The sealed state that the caller brings back names the process and the parked call; it is bound to the caller and the
arguments, so nobody else can continue it. A retry that lands on another process of the fleet asks the owner. When the owner
is gone, the retry gets an error and the target's tool is never run a second time.

A parked call has a lifetime (`input_ttl`) and there is a bound on their number: beyond it, the oldest
one of the caller who has the most makes room. Its result stays for a minute, so a retry
that is sent twice gets the same answer twice; the results that stay are bounded in bytes.
"""

from __future__ import annotations

import asyncio
import secrets
import weakref
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from time import monotonic
from typing import Any, Final, final

import msgspec
from msgspec import Raw

from trimaran.client.pending_call import Progress
from trimaran.client.relaying import QUESTIONS
from trimaran.errors import CODE_INTERNAL, ProtocolError, TimedOut
from trimaran.fleet import Fleet, unavailable
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.journal import ask_key
from trimaran.server.access import identity
from trimaran.state.contracts import NoAnswer, StoreError
from trimaran.transports.caller_address import place_of

from .forwarding import Relayed, report_progress, require_capability, send_log

_STEP: Final = "parked"
_TOPIC: Final = "proxy.resume"
# Callers answer within minutes; a thousand open questions per process are more than any host shows.
_MOST: Final = 1000
_KEEP_RESULT: Final = 60.0  # seconds for a retry that is sent twice
_MOST_KEPT_BYTES: Final = 64 * 1024 * 1024  # of such results; the oldest give way
_GATHER: Final = 0.005  # seconds in which questions that are asked together arrive
_REMOTE_WAIT: Final = 10.0  # seconds that another process waits for the owner before it asks again

# A fleet has one answer to questions of a kind, and several targets may be mounted on its server.
_joined: Final[weakref.WeakKeyDictionary[Fleet, weakref.WeakSet[ParkedCalls]]] = weakref.WeakKeyDictionary()


class RoundEnd(msgspec.Struct):
    """How a round of a parked call ended: with a result, an error, or questions by key."""

    result: bytes | None = None
    error: tuple[int, str, Any] | None = None
    questions: dict[str, dict[str, Any]] | None = None

    @property
    def is_waiting(self) -> bool:
        """Nothing has happened yet; ask again."""
        return self.result is None and self.error is None and self.questions is None


@final
class ParkedCall(Relayed):
    """A call of the target that survives the requests of its caller."""

    def __init__(self, call: IncomingCall, id: str) -> None:
        super().__init__(call)
        self.id = id
        self._owner = super().caller
        self._questions: dict[str, tuple[dict[str, Any], asyncio.Future[Any]]] = {}
        self._counts: dict[str, int] = {}
        self._changed = asyncio.Event()
        self.task: asyncio.Task[Raw] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.waiters: int = 0
        self.parked_at: float = 0.0
        self.place: object = (
            place_of(getattr(call.exchange.sink, "address", None))
            if call.principal is None
            else identity(call.principal)
        )
        """Who it counts for. Anonymous callers are told apart by their address."""
        self._refusal: ProtocolError | None = None
        """Why a question could not be put to the caller. If the call fails after that, this is what the caller is told."""

    @property
    def caller(self) -> object:
        return self._owner

    def begin(self, request: Coroutine[Any, Any, Raw]) -> asyncio.Task[Raw]:
        self.task = asyncio.ensure_future(request)
        self.task.add_done_callback(self._ended)
        return self.task

    def _ended(self, task: asyncio.Task[Raw]) -> None:
        self._changed.set()
        if not task.cancelled():
            task.exception()  # told in the next round, if there is one

    # The relay of the target's call

    def can_answer(self, method: str) -> bool:
        return method in QUESTIONS

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        try:
            require_capability(self.call, method, params)
        except ProtocolError as error:
            self._refusal = error
            raise
        self._counts[method] = place = self._counts.get(method, 0) + 1
        key = ask_key(place, method)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # The modern form of the question: how a revision spells it does not matter to the caller.
        plain = {name: value for name, value in params.items() if name not in ("_meta", "elicitationId")}
        self._questions[key] = ({"method": method, "params": plain}, answer)
        self._changed.set()
        try:
            return await answer
        finally:
            self._questions.pop(key, None)  # answered, or withdrawn by the target

    def progress(self, report: Progress) -> None:
        report_progress(self.call, report)

    def notice(self, method: str, params: dict[str, Any]) -> None:
        send_log(self.call, method, params)

    # Its rounds

    def give(self, answers: Mapping[str, Any]) -> None:
        """Hand on the caller's answers; those to questions that are no longer open are dropped."""
        for key, value in answers.items():
            question = self._questions.get(key)
            if question is not None and not question[1].done():
                question[1].set_result(value)

    async def wait(self, seconds: float | None = None) -> RoundEnd:
        """Wait until the call has ended or asks something."""
        task = self.task
        assert task is not None
        self.waiters += 1
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._changed.clear()
                    if task.done():
                        return self._outcome(task)
                    if self._open():
                        await asyncio.wait((task,), timeout=_GATHER)
                        if not task.done() and (questions := self._open()):
                            return RoundEnd(questions=questions)
                        continue
                    await self._changed.wait()
        except TimeoutError:
            return RoundEnd()
        finally:
            self.waiters -= 1

    @property
    def result_bytes(self) -> int:
        """The size of its result, if it has come to one."""
        task = self.task
        has_result = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return len(bytes(task.result())) if task is not None and has_result else 0

    def _outcome(self, task: asyncio.Task[Raw]) -> RoundEnd:
        if task.cancelled():
            return RoundEnd(error=(CODE_INTERNAL, "the call was cancelled: nobody answered its question in time", None))
        error = task.exception()
        if error is None:
            return RoundEnd(result=bytes(task.result()))
        error = self._refusal or error
        if isinstance(error, ProtocolError):
            return RoundEnd(error=(error.code, error.message, error.data))
        return RoundEnd(error=(CODE_INTERNAL, "the call failed in the proxy", None))

    def _open(self) -> dict[str, dict[str, Any]]:
        return {key: request for key, (request, answer) in self._questions.items() if not answer.done()}


@final
class ParkedCalls:
    """All parked calls of one process, and the way to those of the others."""

    def __init__(self, *, ttl: float) -> None:
        self._ttl = ttl
        self._calls: dict[str, ParkedCall] = {}
        self._result_sizes: dict[str, int] = {}
        """The bytes of each result that stays, oldest first."""
        self._kept_bytes = 0
        self._fleet: Fleet | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def join(self, fleet: Fleet) -> None:
        """Let the other processes of this fleet resume our calls."""
        if fleet is self._fleet:
            return
        self._fleet = fleet
        joined = _joined.get(fleet)
        if joined is None:
            joined = _joined[fleet] = weakref.WeakSet()
            fleet.on_ask(_TOPIC, lambda question: _resume_for_another(joined, question))
        joined.add(self)

    def new(self, call: IncomingCall) -> ParkedCall:
        return ParkedCall(call, f"{'here' if self._fleet is None else self._fleet.name}.{secrets.token_urlsafe(12)}")

    async def first_round(self, parked: ParkedCall) -> RoundEnd:
        """Wait for a call that has just begun. If its caller leaves first, the target's call is cancelled."""
        try:
            end = await parked.wait()
        except BaseException:
            await _cancel(parked)
            raise
        if end.questions is not None:
            if len(self._calls) >= _MOST and not self._make_room():
                await _cancel(parked)
                raise ProtocolError.internal_error(
                    f"the proxy is busy: {_MOST} calls wait for answers of their callers; try again later", status=503
                )
            self._calls[parked.id] = parked
            parked.parked_at = monotonic()
            self._end_after(parked, self._ttl)
        return end

    def _make_room(self) -> bool:
        """Give up the oldest call of the caller who has the most: whoever asks and leaves keeps nobody else out."""
        waiting = [parked for parked in self._calls.values() if not parked.waiters]
        counts = Counter(parked.place for parked in waiting)
        if not counts:
            return False
        greediest = counts.most_common(1)[0][0]
        oldest = min((parked for parked in waiting if parked.place == greediest), key=lambda parked: parked.parked_at)
        self._stop_timer(oldest)
        self._drop(oldest)
        return True

    async def resume(self, id: str, answers: Mapping[str, Any], call: IncomingCall) -> RoundEnd:
        """Go on with a parked call, wherever it is."""
        owner, _, _ = id.partition(".")
        parked = self._calls.get(id)
        if parked is not None:
            parked.call = call  # progress and log messages go to this request now
            return await self._resume(parked, answers, None)
        fleet = self._fleet
        if fleet is None or owner == fleet.name:
            raise _gone()
        while True:
            try:
                reply = await fleet.ask(owner, _TOPIC, [id, dict(answers), _REMOTE_WAIT], timeout=_REMOTE_WAIT + 5.0)
            except (NoAnswer, TimedOut):
                raise _gone() from None
            except StoreError as error:
                raise unavailable(error) from None
            if reply is None:
                raise _gone()
            end = msgspec.convert(reply, RoundEnd)
            if not end.is_waiting:
                return end

    async def resume_for_another(self, id: str, answers: Mapping[str, Any], seconds: float) -> RoundEnd | None:
        """Go on with a call of ours for another process; None if there is no such call."""
        parked = self._calls.get(id)
        return None if parked is None else await self._resume(parked, answers, seconds)

    async def _resume(self, parked: ParkedCall, answers: Mapping[str, Any], seconds: float | None) -> RoundEnd:
        self._stop_timer(parked)
        parked.give(answers)
        try:
            return await parked.wait(seconds)
        finally:
            parked.parked_at = monotonic()
            if not parked.waiters and parked.id in self._calls:
                is_over = parked.task is not None and parked.task.done()
                self._end_after(parked, _KEEP_RESULT if is_over else self._ttl)
                if is_over:
                    self._keep(parked)

    def _keep(self, parked: ParkedCall) -> None:
        """Count a result that stays; older ones give way to it."""
        if parked.id not in self._result_sizes:
            self._result_sizes[parked.id] = parked.result_bytes
            self._kept_bytes += parked.result_bytes
        while self._kept_bytes > _MOST_KEPT_BYTES:
            oldest = self._calls[next(iter(self._result_sizes))]
            self._stop_timer(oldest)
            self._drop(oldest)

    def _end_after(self, parked: ParkedCall, seconds: float) -> None:
        self._stop_timer(parked)
        parked.timer = asyncio.get_running_loop().call_later(seconds, self._drop, parked)

    @staticmethod
    def _stop_timer(parked: ParkedCall) -> None:
        if parked.timer is not None:
            parked.timer.cancel()
            parked.timer = None

    def _drop(self, parked: ParkedCall) -> None:
        self._calls.pop(parked.id, None)
        self._kept_bytes -= self._result_sizes.pop(parked.id, 0)
        if parked.task is not None:
            parked.task.cancel()

    async def close(self) -> None:
        """Give up everything that is parked."""
        calls, self._calls = list(self._calls.values()), {}
        self._result_sizes, self._kept_bytes = {}, 0
        for parked in calls:
            self._stop_timer(parked)
            await _cancel(parked)


async def _resume_for_another(joined: Iterable[ParkedCalls], question: Any) -> Any:
    id, answers, seconds = question
    for parked_calls in tuple(joined):
        end = await parked_calls.resume_for_another(id, answers, seconds)
        if end is not None:
            return msgspec.to_builtins(end, builtin_types=(bytes,))
    return None


async def _cancel(parked: ParkedCall) -> None:
    task = parked.task
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait((task,))


def _gone() -> ProtocolError:
    return ProtocolError.internal_error(
        "the call that asked this is gone: its process has ended, or the answer came too late. It was not run again; "
        "call the tool again if that is safe",
        {"kind": "parked_call_lost"},
        status=200,
    )


def raise_error(end: RoundEnd) -> None:
    """Raise the error of a round, if it ended with one."""
    if end.error is not None:
        code, message, data = end.error
        raise ProtocolError(code, message, data)
