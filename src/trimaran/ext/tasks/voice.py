"""The voice of a task without an open request: it is silent, except for questions.

A question parks the task as `input_required` until its answer is in the record: brought by `tasks/update` (2026-07-28), or by
somebody who came for the result and could be asked (2025-11-25), in whatever process. Progress becomes the status message.
Steps run once, since the body does; those of a resumable tool are written into its journal before and after, so that they run
once even if the body does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, final

from msgspec.structs import replace

from trimaran.errors import Disconnected, ProtocolError
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.journal import InputRequest, ask_key, check_same_ask, digest
from trimaran.protocol.journal import Journal as CallJournal
from trimaran.server.exchange import SENT, Exchange, Voice, running_loop
from trimaran.server.input_rounds import ASKABLE
from trimaran.server.running_calls import resume
from trimaran.server.seams import CallSession
from trimaran.state.contracts import StoreError, TaskRecord

from .journal import JournalFull, JournalReply, TaskJournal, write_journal
from .model import inputs_of, write_inputs
from .saved_call import started

if TYPE_CHECKING:
    from .run import TaskRun

# Seconds between two notes of progress in a store that is shared. Nobody reads faster, and each is a write.
NOTE_SECONDS: Final = 0.5
# Notes that a body may make without waiting, before any of them is written.
_MOST_NOTES: Final = 100


class TaskLost(Disconnected):
    """The task is not this process's any more: it has ended, or somebody else runs it. Nothing can be written."""


@final
class TaskSink:
    """Sends a task's messages to its session, or nowhere. A task has no stream of its own."""

    def __init__(self, session: CallSession | None = None) -> None:
        self._session = session

    def send(self, data: bytes) -> Awaitable[None]:
        if self._session is not None and not self._session.closed:
            self._session.outlet.put(data)
        return SENT


@final
class TaskVoice:
    """The voice of the request until the task is on its own, then the task's."""

    def __init__(self, inner: Voice, run: TaskRun, *, is_modern: bool) -> None:
        self._inner = inner
        self._run = run
        self._is_modern = is_modern
        self._loop = asyncio.get_running_loop()
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, asyncio.Future[JournalReply]] = {}
        self._notes: deque[str] = deque(maxlen=_MOST_NOTES)
        self._noting = False
        self._unwritten_notes: deque[str] = deque(maxlen=_MOST_NOTES)
        """Notes of a thread, on their way to the event loop."""
        self._is_said = False
        self._steps = 0
        self.is_quiet: asyncio.Event = asyncio.Event()
        """Set while no step is under way."""
        self.is_quiet.set()
        self.early: TaskJournal = TaskJournal()
        """Questions and steps from before the call became a task, if they may be needed again."""
        self.detached: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_task(self) -> bool:
        return self._run.record is not None

    @property
    def request_voice(self) -> Voice:
        """The voice of the request that began it."""
        return self._inner

    async def has_ended(self) -> bool:
        """Whether the task is over for everybody; False if another process may go on with it."""
        record = self._run.record
        if record is None:
            return True
        try:
            stored = await self._run.records.tasks.get(record.id)
        except StoreError:
            return False
        return stored is None or stored.is_terminal

    @property
    def is_asking(self) -> bool:
        return bool(self._waiting)

    async def detach(self) -> None:
        """From here on the request itself does not wait for the answer."""
        await self._run.become_task()
        if not self.detached.done():
            self.detached.set_result(None)

    def _place(self, kind: str) -> int:
        self._counts[kind] = place = self._counts.get(kind, 0) + 1
        return place

    # --- asking

    async def ask(
        self, exchange: Exchange, method: str, params: dict[str, Any], key: str | None, timeout: float | None
    ) -> Any:
        run = self._run
        if not self.is_task:
            return await self._ask_early(exchange, method, params, key, timeout)
        if not run.is_ours:
            raise Disconnected("the task is over; its client can no longer be asked")
        if self._is_modern and method not in ASKABLE:
            raise ProtocolError.internal_error(
                f"{method} cannot be asked in a task: a client answers only {', '.join(sorted(ASKABLE))}"
            )
        key = self._key(method, key)
        ask = InputRequest(key, method, digest(method, params))
        if run.is_resumable:
            journal = run.journal
            check_same_ask(CallJournal(asked=journal.asked), ask)
            if key in journal.answers:
                return journal.answers[key].get()
        await run.hold(exchange)
        try:
            return await self._wait(ask, {"method": method, "params": params})
        except TaskLost:
            await run.hold(exchange)
            raise

    async def _ask_early(
        self, exchange: Exchange, method: str, params: dict[str, Any], key: str | None, timeout: float | None
    ) -> Any:
        """Ask on the request itself, and remember the answer for a body that may run again."""
        if not self._run.is_resumable:
            return await self._inner.ask(exchange, method, params, key, timeout)
        # Its place is where it was asked, not when it was answered.
        ask = InputRequest(self._key(method, key), method, digest(method, params))
        try:
            reply = JournalReply(await self._inner.ask(exchange, method, params, key, timeout))
        except ProtocolError as error:
            self.early = _answered(self.early, ask, JournalReply.raised(error))
            raise
        self.early = _answered(self.early, ask, reply)
        return reply.value

    def _key(self, method: str, name: str | None) -> str:
        """A key that is unique in the task, and the same whenever the body runs again."""
        key = name if name is not None else ask_key(self._place(method), method)
        if key in self._waiting:
            raise ProtocolError.internal_error(
                f"two questions of one task have the key {key!r}; give each its own key="
            )
        place = self._place("key:" + key)  # a client passes over a key that it has answered
        return key if place == 1 else f"{key}-{place}"

    async def _wait(self, ask: InputRequest, request: dict[str, Any]) -> Any:
        run = self._run
        waiting = self._waiting[ask.key] = self._loop.create_future()

        def asked(record: TaskRecord) -> TaskRecord | None:
            journal, inputs = run.journal_of(record), inputs_of(record)
            if ask.key in journal.answers or inputs.get(ask.key) == request:
                return None  # asked before the body was interrupted
            if run.is_resumable:
                journal = replace(journal, asked={**journal.asked, ask.key: ask})
            else:  # delivered answers are not needed again
                journal = TaskJournal(answers={k: v for k, v in journal.answers.items() if k in self._waiting})
            inputs[ask.key] = request
            return run.records.moved(
                record, "input_required", inputs=write_inputs(inputs), journal=write_journal(journal)
            )

        timer = None
        try:
            try:
                record = await run.write(asked)
                self.take(record)
            except JournalFull as error:
                raise ProtocolError.internal_error(str(error)) from None
            timer = run.end_at(record.updated_ms)
            return (await waiting).get()
        finally:
            if timer is not None:
                timer.cancel()
            del self._waiting[ask.key]
            if not waiting.done() or waiting.cancelled():
                await self._withdraw(ask.key)

    async def _withdraw(self, key: str) -> None:
        """Nobody waits for this answer any more. Unless the body is only interrupted: then it will be asked again."""
        run = self._run
        if not run.is_ours or run.is_leaving:
            return

        def withdrawn(record: TaskRecord) -> TaskRecord | None:
            inputs = inputs_of(record)
            if inputs.pop(key, None) is None:
                return None
            return run.records.moved(record, "input_required" if inputs else "working", inputs=write_inputs(inputs))

        with contextlib.suppress(TaskLost):
            await run.write(withdrawn)

    def take(self, record: TaskRecord) -> None:
        """Deliver the answers in a record to the questions that wait for them."""
        if not self._waiting:
            return
        answers = self._run.journal_of(record).answers
        for key, waiting in self._waiting.items():
            if key in answers and not waiting.done():
                waiting.set_result(answers[key])

    def let_go(self) -> None:
        """No answer will come. A body that waits in the loop is cancelled; one in a thread gets an error."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(
                    TaskLost("the task is over, or another process runs it now; answers are not taken here")
                )
                waiting.exception()  # nobody may be waiting after all

    # --- doing

    async def step(self, exchange: Exchange, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        work = self._run
        if not work.is_resumable:
            return await (run() if self.is_task else self._inner.step(exchange, name, run))
        place = self._place("step:" + name)
        key = name if place == 1 else f"{name}#{place}"
        if not self.is_task:
            return await self._step_early(exchange, name, key, run)
        result = work.journal.steps.get(key)
        if result is not None:
            return result.get()
        await work.hold(exchange)
        self._steps += 1
        self.is_quiet.clear()
        try:
            return await self._once(key, run)
        except TaskLost:
            await work.hold(exchange)
            raise
        finally:
            self._steps -= 1
            if not self._steps:
                self.is_quiet.set()

    async def _step_early(self, exchange: Exchange, name: str, key: str, run: Callable[[], Awaitable[Any]]) -> Any:
        """A step before the call is a task. The call may become one while the step runs, so the step is recorded first."""
        self.early = replace(self.early, begun=[*self.early.begun, key])
        try:
            reply = JournalReply(await self._inner.step(exchange, name, run))
        except Exception as error:
            await self._keep_early(key, JournalReply.raised(error))
            raise
        await self._keep_early(key, reply)
        return reply.value

    async def _keep_early(self, key: str, reply: JournalReply) -> None:
        self.early = _done(self.early, key, reply)
        if not self.is_task:
            return
        journal_of, moved = self._run.journal_of, self._run.records.moved
        try:
            await self._run.write(
                lambda record: moved(record, journal=write_journal(_done(journal_of(record), key, reply))),
                is_told=False,
            )
        except JournalFull as full:
            raise ProtocolError.internal_error(
                f"step {key!r} was done, but its result cannot be kept: {full}"
            ) from None

    async def _once(self, key: str, run: Callable[[], Awaitable[Any]]) -> Any:
        work = self._run

        def begun(record: TaskRecord) -> TaskRecord:
            journal = work.journal_of(record)
            if key not in journal.begun:  # else it was this very write, and its outcome was not known
                journal = replace(journal, begun=[*journal.begun, key])
            return work.records.moved(record, journal=write_journal(journal))

        def done(record: TaskRecord, reply: JournalReply) -> TaskRecord:
            journal = _done(work.journal_of(record), key, reply)
            work.starts = 1  # it got further than before, so this step did not end its processes
            return work.records.moved(started(record, 1), journal=write_journal(journal))

        try:
            await work.write(begun, is_told=False)
        except JournalFull as error:
            raise ProtocolError.internal_error(str(error)) from None
        try:
            reply = JournalReply(await run())
        except Exception as error:
            # It may have done something before it failed, so it has been done. The body hears of it the same way again.
            failed = JournalReply.raised(error)
            await work.write(lambda record: done(record, failed), is_told=False)
            raise
        try:
            await work.write(lambda record: done(record, reply), is_told=False)
        except JournalFull as full:
            refusal = ProtocolError.internal_error(f"step {key!r} was done, but its result cannot be kept: {full}")
            failed = JournalReply.raised(refusal)
            await work.write(lambda record: done(record, failed), is_told=False)
            raise refusal from None
        return reply.value

    # --- telling

    def note(self, message: str) -> None:
        """Report progress, with or without a progress token. A plain `def` tool calls this from its own thread."""
        if not self.is_task:
            return
        if running_loop() is not self._loop:
            self._unwritten_notes.append(message)
            if not self._is_said:  # a thread that says more than is read must not fill the loop
                self._is_said = True
                self._loop.call_soon_threadsafe(self._take_notes)
            return
        if not self._run.records.is_shared:
            self._notes.append(message)
            self._at_once(self.flush())
            return
        self._notes.clear()  # the last one counts
        self._notes.append(message)
        if not self._noting:
            self._noting = True
            self._run.records.spawn(self._write_notes())

    def _take_notes(self) -> None:
        self._is_said = False  # before they are read: later notes are taken the next time
        while self._unwritten_notes:
            self.note(self._unwritten_notes.popleft())

    def _at_once(self, work: Coroutine[Any, Any, None]) -> None:
        """Write the notes at once if the store does not wait, as in memory; otherwise in the background."""
        try:
            awaited = work.send(None)
        except (StopIteration, TaskLost):
            return

        async def rest() -> None:
            with contextlib.suppress(TaskLost):
                await resume(work, awaited)

        self._run.records.spawn(rest())

    async def _write_notes(self) -> None:
        try:
            while self._notes and self._run.is_ours:
                await self.flush()
                await asyncio.sleep(NOTE_SECONDS)
        except TaskLost:
            return
        finally:
            self._noting = False

    async def flush(self) -> None:
        """Write the notes."""
        while self._notes:
            message = self._notes.popleft()

            def noted(record: TaskRecord, message: str = message) -> TaskRecord:
                return self._run.records.moved(record, message=message)

            await self._run.write(noted)

    # Methods of a request's own voice

    def notification(self, method: str, params: dict[str, Any]) -> bytes:
        if method == "notifications/progress" and isinstance(params.get("message"), str):
            self.note(params["message"])
        return self._inner.notification(method, params)

    def result(self, call: IncomingCall, result: Any) -> bytes:
        return self._inner.result(call, result)

    def error(self, call: IncomingCall, error: ProtocolError) -> bytes:
        return self._inner.error(call, error)

    def logs(self, exchange: Exchange, level: str) -> bool:
        return not self.is_task and self._inner.logs(exchange, level)

    def open_rounds(self, exchange: Exchange) -> None:
        self._inner.open_rounds(exchange)

    def suspended(self, exchange: Exchange) -> Any:
        return None if self.is_task else self._inner.suspended(exchange)

    def bad_arguments(self, message: str) -> Any:
        return self._inner.bad_arguments(message)

    def lacks(self, capability: str, required: dict[str, Any]) -> ProtocolError:
        return self._inner.lacks(capability, required)


def _done(journal: TaskJournal, key: str, reply: JournalReply) -> TaskJournal:
    left = [step for step in journal.begun if step != key]
    return replace(journal, begun=left, steps={**journal.steps, key: reply})


def _answered(journal: TaskJournal, ask: InputRequest, reply: JournalReply) -> TaskJournal:
    return replace(journal, asked={**journal.asked, ask.key: ask}, answers={**journal.answers, ask.key: reply})
