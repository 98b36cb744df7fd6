"""One body at work in this process, and its hold on the task it works for.

A run is a call that is, or may become, a task. Once it is one, everything it says goes through `write`: the record is changed
by the stamp it was read with, so that a process which lost the task can write nothing, and a write that fails because the
store is away is tried until it is done or the task is lost. Nothing else ends it: a result that could be written is written.

The hold is a lease (see `scheduler.py`). When it is lost, or the task has been ended elsewhere, the body is cancelled; what it still
says is not heard. A body in a thread cannot be stopped, only told: its steps and questions fail from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from trimaran.errors import Disconnected, ProtocolError, ToolError
from trimaran.protocol.inbound import IncomingCall
from trimaran.server.dispatch import Serve
from trimaran.server.exchange import Exchange, Voice
from trimaran.server.handlers import incident, is_silence
from trimaran.server.results import error_result
from trimaran.server.running_calls import timed_out
from trimaran.state.contracts import StoreClosed, StoreError, TaskRecord, TaskStatus

from .journal import TaskJournal, read_journal
from .saved_call import started
from .voice import TaskLost, TaskSink, TaskVoice

if TYPE_CHECKING:
    from .records import TaskRecords
    from .scheduler import Scheduler

# The first pause before the store is tried again; it doubles up to two seconds.
_PAUSE: Final = 0.05
# Bytes of the result of a task: it is kept for an hour and more. Base64 of a 12 MB image fits.
MAX_RESULT: Final = 16 * 1024 * 1024
# A body that has lost its task is cancelled at once. This is for whatever it left running on its own.
_HELD_SECONDS: Final = 5.0
# For all of it when the server stops: a step that ends, a body that lets go, a last write.
_LAST_SECONDS: Final = 8.0

_TOO_OLD: Final = "the task was not done when its time to live of {:g} s was over"

Make = Callable[[TaskRecord], "TaskRecord | None"]


@final
class TaskRun:
    body: asyncio.Task[Any] | None = None
    record: TaskRecord | None = None
    """The task as last seen; None until there is one."""
    starts = 1
    """How often the body has begun, this time included, since it last got further."""
    worker: str = ""
    """The holder of the lease: a name for this run alone."""
    renewed: float = 0.0
    """When the lease was last asked for, by our clock: it lasts at least from then."""
    is_ours: bool = True
    """False when the task was lost, or ended from outside: nothing may be written."""
    is_ending: bool = False
    """The body is done, and its result is being written."""
    is_leaving: bool = False
    """The body is being stopped for another process to go on."""
    _end_of_life: asyncio.TimerHandle | None = None

    def __init__(
        self,
        scheduler: Scheduler,
        call: IncomingCall,
        serve: Serve,
        inner: Voice,
        draft: Callable[[TaskRun], TaskRecord] | None = None,
        *,
        timeout: float | None,
        is_resumable: bool,
        is_mortal: bool = False,
        place: str = "",
    ) -> None:
        self._scheduler = scheduler
        self.records: TaskRecords = scheduler.records
        self._serve = serve
        self._draft = draft
        self._timeout = None if timeout == inf else timeout
        self.is_resumable = is_resumable
        self.is_mortal = is_mortal
        """Whether the time to live ends the task even while it works."""
        self.place = place
        """Where an anonymous call came from."""
        # The request's own exchange ends with its answer, so the task has another.
        self.call: IncomingCall = copy.copy(call)
        self.voice: TaskVoice = TaskVoice(inner, self, is_modern=call.modern)
        self.exchange: Exchange = Exchange(self.call, TaskSink(call.session), self.voice)
        self._lock = asyncio.Lock()
        self._read: tuple[bytes, TaskJournal] = (b"", TaskJournal())

    # --- the record

    @property
    def journal(self) -> TaskJournal:
        assert self.record is not None
        return self.journal_of(self.record)

    def journal_of(self, record: TaskRecord) -> TaskJournal:
        if record.journal != self._read[0]:
            self._read = (record.journal, read_journal(record.journal))
        return self._read[1]

    async def become_task(self) -> None:
        """Create the record: from here on the call is a task."""
        async with self._lock:
            if self.record is None:
                assert self._draft is not None
                if self._is_given_up():
                    raise Disconnected("the call is over; it cannot become a task any more")
                await self._scheduler.create(self, self._draft(self))
                if self._is_given_up():  # by a body that ignores cancellation: nothing would end the task
                    self._scheduler.take_back(self)
                    raise Disconnected("the call is over; it cannot become a task any more")
                self.exchange.sink = TaskSink(self.call.session)  # the request's own may be gone with its client

    def _is_given_up(self) -> bool:
        return self.body is not None and (self.body.done() or self.exchange.cancelled)

    def hold_by(self, record: TaskRecord, worker: str, at: float) -> None:
        self.record, self.worker, self.renewed = record, worker, at
        if self.is_mortal:
            self._end_of_life = self.end_at(record.created_ms)

    def end_at(self, since_ms: int) -> asyncio.TimerHandle | None:
        """Fail it when its time to live is over, counted from then; None if it has no end."""
        ttl_ms = None if self.record is None else self.record.ttl_ms
        if ttl_ms is None:
            return None
        left = max(0.0, (since_ms + ttl_ms - self.records.now_ms()) / 1000)

        def end() -> None:
            self.records.spawn(self.fail(_TOO_OLD.format(ttl_ms / 1000)))

        return asyncio.get_running_loop().call_later(left, end)

    async def fail(self, reason: str) -> None:
        """End it from outside, and stop the body."""
        record = self.record
        if record is None or not self.is_ours or self.is_ending:
            return
        error = ProtocolError.internal_error(reason)
        with contextlib.suppress(StoreError, ProtocolError):
            await self.records.change(
                record.id,
                lambda record: (
                    self.records.ended(record, "failed", reason, error=error) if record.worker == self.worker else None
                ),
            )
        self.lose()

    async def write(self, make: Make, *, is_told: bool = True) -> TaskRecord:
        """Change the task, and retry as long as necessary. Returns the new record.

        Raises:
            Lost: it is not ours any more, and nothing was written.
        """
        async with self._lock:
            pause, is_unsure = _PAUSE, False
            while True:
                try:
                    return await self._write(make, is_told, is_unsure)
                except StoreClosed:
                    self.lose()
                except StoreError as error:
                    # Full, or refused: for the moment, as far as this task is concerned. It may be over by then.
                    is_unsure = is_told
                    await asyncio.sleep(max(pause, error.retry_after))
                    pause = min(2.0, 2 * pause)

    async def _write(self, make: Make, is_told: bool, is_unsure: bool) -> TaskRecord:
        """`is_unsure`: an earlier attempt may have written it without an announcement."""
        while True:
            if not self.is_ours:
                raise TaskLost("the task is over, or another process runs it now; it cannot be changed here")
            assert self.record is not None
            changed = make(self.record)
            if changed is None:
                if is_unsure:
                    await self.records.tell(self.record)
                return self.record
            written = await self.records.tasks.update(changed)
            if written is not None:
                self.record = written
                if is_told:
                    await self.records.tell(written)
                return written
            fresh = await self.records.tasks.get(self.record.id)
            if is_unsure and fresh is not None and fresh.is_terminal:
                await self.records.tell(fresh)
            self._adopt(fresh)

    def _adopt(self, fresh: TaskRecord | None) -> None:
        """The record as somebody else left it: perhaps with answers, perhaps no longer ours."""
        if fresh is None or fresh.is_terminal or fresh.worker != self.worker:
            self.lose()
            return
        self.record = fresh
        self.voice.take(fresh)

    async def refresh(self) -> None:
        """Look at the record again."""
        async with self._lock:
            if self.is_ours and self.record is not None:
                self._adopt(await self.records.tasks.get(self.record.id))

    # --- the lease

    async def renew(self, seconds: float) -> bool:
        """Renew the lease. Returns whether the record should be read again.

        Raises:
            StoreUnavailable: The lease may run out.
        """
        if not self.is_ours or self.record is None:
            return False
        at = time.monotonic()
        if await self.records.tasks.renew(self.record.id, self.worker, seconds=seconds):
            self.renewed = at
            return self.voice.is_asking  # the news of an answer may have been missed
        return not self.is_ending  # else it is our own end, most likely, and the write will tell

    def _left(self, record: TaskRecord) -> TaskRecord:
        return replace(started(record, max(1, self.starts - 1)), updated_ms=record.updated_ms + 1)

    def lose(self) -> None:
        """It is not ours any more."""
        self.is_ours = False
        self.cancel()

    def cancel(self) -> None:
        self.exchange.cancelled = True
        if self.body is not None and not self.is_ending:  # else it finds out by itself
            self.body.cancel()
        self.voice.let_go()

    async def hold(self, exchange: Exchange) -> None:
        """Pass only if the task may begin something new; otherwise the body is about to be cancelled."""
        if self.is_ours and not self.is_leaving:
            return
        if exchange.loop is None:  # a thread would wait for ever
            await asyncio.sleep(_HELD_SECONDS)
        raise TaskLost("another process runs the task now, or it is over; this process stops it")

    # --- the body

    def begin(self) -> asyncio.Task[Any]:
        self.body = asyncio.ensure_future(self._run())
        self.body.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark it as retrieved
        self.exchange.task = self.body
        return self.body

    async def _run(self) -> Any:
        try:
            return await self._work()
        except Exception as error:
            if self.record is None:
                raise
            # The result could not be written, and the store is not the cause. The task must not seem to go on.
            number = incident(f"the end of task {self.call.params.name!r}", error)
            failure = ProtocolError.internal_error(f"internal error (error {number})")
            with contextlib.suppress(Exception):
                await self.write(lambda record: self.records.ended(record, "failed", failure.message, error=failure))
            return None
        finally:
            self.voice.let_go()
            if self._end_of_life is not None:
                self._end_of_life.cancel()
            if self.record is not None:
                self._scheduler.forget(self)
                self.exchange.end()

    async def _work(self) -> Any:
        scope = asyncio.timeout(self._timeout)
        failure: ProtocolError
        try:
            async with scope:
                result = await self._serve(self.call)
        except ProtocolError as error:
            if self.record is None:
                raise
            failure = error
        except ToolError as error:  # of middleware; a tool's own are results already
            if self.record is None:
                raise
            return await self._end("completed", result=error_result(error))
        except TimeoutError as error:
            late = timed_out(self.call) if scope.expired() else error
            if self.record is None or not isinstance(late, ProtocolError):
                raise late from None
            failure = late
        except asyncio.CancelledError:
            if self.record is None:
                raise
            return await self._end("cancelled")
        except Exception as error:
            if self.record is None:
                raise
            if is_silence(error):
                failure = ProtocolError.internal_error(str(error))
            else:
                number = incident(f"task {self.call.params.name!r}", error)
                failure = ProtocolError.internal_error(f"internal error (error {number})")
        else:
            if self.record is None:
                return result
            return await self._end("completed", result=result)
        return await self._end("failed", failure.message, error=failure)

    async def _end(
        self,
        status: TaskStatus,
        message: str | None = None,
        *,
        result: Any = UNSET,
        error: ProtocolError | None = None,
    ) -> None:
        """The body is done: write its result."""
        if self.is_leaving and result is UNSET:
            return  # errors raised while it is being stopped are not its result
        self.is_ending = True
        data: bytes | UnsetType = UNSET
        if result is not UNSET:
            try:
                data = self._scheduler.encode(result)
            except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as fault:
                number = incident(f"the result of task {self.call.params.name!r}", fault)
                error = ProtocolError.internal_error(f"the result cannot be written (error {number})")
                status, message = "failed", error.message
            else:
                if len(data) > MAX_RESULT:
                    error = ProtocolError.internal_error(
                        f"the result has {len(data)} bytes, and a task keeps at most {MAX_RESULT}: return a link to it"
                    )
                    data, status, message = UNSET, "failed", error.message
        try:
            if not self.records.is_shared:
                await self.voice.flush()
            await self.write(
                lambda record: self.records.ended(
                    record, status, message, result=None if data is UNSET else data, error=error
                )
            )
        except TaskLost:
            return

    async def stop(self, reason: ProtocolError) -> None:
        """The process ends, and with it the body: fail the task, or leave it to another process."""
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self._stop(reason)
        except (TimeoutError, StoreError, TaskLost, ProtocolError):
            # The lease runs out, and whoever finds the task does the same. The body was not cancelled by its client: what
            # it makes of being stopped is not to be read in the task.
            if not (self.is_ending or self.is_leaving):
                self.is_ours = False
        finally:
            self.exchange.cancelled = True
            if self.body is not None:
                self.body.cancel()  # also one that has swallowed it before
            self.voice.let_go()

    async def _stop(self, reason: ProtocolError) -> None:
        if self.record is None or not self.is_ours:
            return
        if self.is_ending:
            if self.body is not None:
                await asyncio.wait({self.body})
        elif self.is_resumable and self.records.is_shared:
            await self._leave(self.record.id)
        else:
            await self.records.change(
                self.record.id,
                lambda record: (
                    self.records.ended(record, "failed", reason.message, error=reason)
                    if record.worker == self.worker
                    else None
                ),
            )
            self.is_ours = False

    async def _leave(self, id: str) -> None:
        self.is_leaving = True
        # A step that is cut short has an unknown outcome.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HELD_SECONDS):
                await self.voice.is_quiet.wait()
        self.cancel()
        if self.body is not None:
            await asyncio.wait({self.body})  # if it does not end, its successor has to wait until the lease is over
        if self.is_ours and not (self.record is not None and self.record.is_terminal):
            # So that it looks neither like one that was never begun, nor like one that ended its process.
            await self.write(self._left, is_told=False)
            await self.records.tasks.release(id, self.worker)
            self._scheduler.left()
