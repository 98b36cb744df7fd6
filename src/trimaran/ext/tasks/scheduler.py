"""The bodies that run in this process, their leases, and the search for abandoned tasks.

**Leases.** In a shared store a task runs under a lease. All leases are renewed together, after each third of their length. A
process that cannot renew cancels its bodies when three quarters of the lease are over, by its own clock from before the
last request: the store, by its own clock, gives the task to nobody else before that. In memory a lease has no end.

**Tasks without a lease.** Every process with a shared store looks now and then for tasks that are working without a lease:

- The tool is resumable: the body runs again, here, and replays its journal.
- The tool is not resumable: the task fails, with the reason. So does a task with a step that may or may not be done, and one
  that has seen several processes end without progress, because it may be the cause.
- The task was made for a `Runner` and has not begun: it is handed over again.
- The task was created but never claimed, so no client knows of it: it is deleted.

A task that waits for input is not among these. It is handled when somebody reads it or answers; otherwise it expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import msgspec
from msgspec.structs import replace

from trimaran.errors import ProtocolError
from trimaran.protocol.inbound import IncomingCall
from trimaran.server.handlers import incident, logger
from trimaran.server.seams import CallSession
from trimaran.state.contracts import StoreClosed, StoreError, TaskRecord

from .anonymous_limits import GAVE_WAY, AnonymousLimits, is_anonymous
from .journal import read_journal
from .records import FOR_EVER, TaskRecords, store_errors
from .run import TaskRun
from .saved_call import RunnerNotes, read_extra, rebuild, started
from .voice import TaskLost

if TYPE_CHECKING:
    from trimaran.server.server import Server

HOST: Final = "host"
"""The worker of tasks that belong to the host program. They have no body and no end of lease."""
HANDED: Final = "handed"
"""The worker of a task on its way to another process."""
# How long a task may wait in a queue before it is handed over again, which is harmless and cheap.
HANDED_SECONDS: Final = 300.0
# Starts of one body without progress. A task that crashes its process must not crash all of them.
MOST_STARTS: Final = 6
# With this many bodies running here, no task is taken over: other processes may have room.
_MOST_RUNNING: Final = 1000
_PAGE: Final = 100
# Tasks for other processes that one search skips. Tasks behind more of them wait for those processes.
_MOST_PASSED: Final = 2000
# A process that lacks the tool leaves the task to others for this many leases: during a release, some have it.
_PATIENT_LEASES: Final = 10
_SWEEP_SECONDS: Final = 60.0
_SWEPT: Final = 1000
# How long we try to delete a task that no client knows of. Nobody can run it while the store is away.
_UNDO_SECONDS: Final = 3600.0


class Runner(Protocol):
    """Takes tasks that another process runs by calling `Tasks.run_record`."""

    async def begin(self, record: TaskRecord) -> None:
        """Take an abandoned task.

        The same task may come again, if it was not run or its process ended; then `f"{record.id}:{record.stamp}"` differs.
        Running it once too often is harmless.
        """
        ...


@final
class Scheduler:
    def __init__(self, records: TaskRecords, *, lease: float, runner: Runner | None) -> None:
        self.records = records
        self.lease = lease
        self.runner = runner
        self.running: dict[str, TaskRun] = {}
        self.is_closing: bool = False
        self.closings: int = 0
        """Counts closings, so that a waiter notices one even if the scheduler has started again."""
        self.anonymous: AnonymousLimits = AnonymousLimits(records.most_per_owner)
        self._taking: set[str] = set()
        self._fresh: dict[str, float] = {}
        """When this process first saw each task that was never claimed, by its own clock."""
        self._passed = 0
        """How many tasks for other processes the last search skipped."""
        self._is_renewing = True
        """Whether the last renewal of leases succeeded."""
        self._fleet: Any = None
        self._loops: dict[str, asyncio.Task[Any]] = {}
        self._work = asyncio.Event()
        """Set when there may be tasks without a lease."""
        self._not_before = 0.0

    @property
    def _server(self) -> Server:
        server = self.records.server
        assert server is not None
        return server

    def encode(self, result: Any) -> bytes:
        return self._server.runtime.writer.encode(result)

    # --- its life

    def start(self, look_again: Callable[[], None]) -> None:
        """The server has started: listen to other processes, and look for tasks that they left."""
        fleet = self.records.fleet
        if fleet is None or self.is_closing:
            return
        if self._fleet is not fleet:
            self._fleet = fleet
            fleet.on("task", self._on_change)
            fleet.on("task left", self._on_work)
            fleet.on_gap(self._refresh_all)
            fleet.on_gap(look_again)
        if self.records.is_shared:
            self._loop("find", self._find)

    def _loop(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` in the background, unless it runs already."""
        task = self._loops.get(name)
        if task is None or task.done():
            self._loops[name] = self.records.spawn(work())

    async def close(self) -> None:
        """The server stops. Resumable tasks are left to other processes; the others fail with that reason."""
        self.is_closing = True
        self.closings += 1
        try:
            find = self._loops.pop("find", None)
            if find is not None:
                find.cancel()
            stopped = ProtocolError.internal_error("the server stopped before the task was done")
            runs = tuple(self.running.values())
            if runs:
                for ended in await asyncio.gather(*(run.stop(stopped) for run in runs), return_exceptions=True):
                    if isinstance(ended, Exception):
                        incident("stopping a task", ended)
            self.records.ring()
            bodies = [run.body for run in runs if run.body is not None and not run.body.done()]
            if bodies:
                await asyncio.wait(bodies, timeout=2.0)
            await self.records.close()
            self._loops.clear()
        finally:
            self.is_closing = False

    # --- news

    def _on_change(self, id: Any) -> Any:
        """Another process changed a task."""
        if not isinstance(id, str):
            raise TypeError("news of a task is its id")
        self.records.ring(id)
        self._server.runtime.changes.deliver("task", id)
        run = self.running.get(id)
        return None if run is None else self._refresh(run)

    def _on_work(self, _: Any) -> None:
        """Another process has left a task for others to take."""
        self._work.set()

    def left(self) -> None:
        """Tell other processes that a task is left for them."""
        if self.records.fleet is not None:
            self.records.fleet.tell_soon("task left", None)

    async def _refresh(self, run: TaskRun) -> None:
        with contextlib.suppress(StoreError):  # the next renewal reads it again
            await run.refresh()

    async def _refresh_all(self) -> None:
        """Read every running task again: messages may have been missed."""
        # First let other processes renew: a task that seems to have no lease may have one.
        self._not_before = time.monotonic() + self.lease / 3
        self.records.ring()
        for run in tuple(self.running.values()):
            await self._refresh(run)

    # --- making

    @property
    def _seconds(self) -> float:
        return self.lease if self.records.is_shared else FOR_EVER

    def new_name(self) -> str:
        """A name for one run. A process that loses a task and takes it again gets another name."""
        fleet = self.records.fleet
        return f"{'here' if fleet is None else fleet.name}.{secrets.token_hex(4)}"

    async def create(self, run: TaskRun, draft: TaskRecord) -> None:
        """Create the task of a run, and take its lease."""
        if self.is_closing:  # `close` would not stop this run
            raise ProtocolError.internal_error("the server is stopping; try again in a moment", status=503)
        worker = self.new_name()
        with self.anonymous.entering(run.place) if is_anonymous(draft.owner) else contextlib.nullcontext() as victim:
            if victim is not None:
                self.records.spawn(victim.fail(GAVE_WAY))
            record, at = await self._make(draft, worker, self._seconds)
            run.hold_by(record, worker, at)
            self.add(run)

    async def hand(self, draft: TaskRecord, runner: Runner) -> TaskRecord:
        """Create a task that another process will run."""
        record, _ = await self._make(draft, HANDED, HANDED_SECONDS)
        try:
            with store_errors():
                await runner.begin(record)
        except BaseException:
            self.records.undo(record.id, _UNDO_SECONDS)
            raise
        return record

    async def begin_for_host(self, draft: TaskRecord) -> TaskRecord:
        return (await self._make(draft, HOST, FOR_EVER))[0]

    async def _make(self, draft: TaskRecord, worker: str, seconds: float) -> tuple[TaskRecord, float]:
        records = self.records
        with store_errors():
            await records.ready()
            is_made = False
            try:
                record = await records.create(draft)
                is_made = True
                at = time.monotonic()
                claimed = await records.tasks.claim(record.id, worker, seconds=seconds)
                if claimed is None:
                    raise ProtocolError.internal_error("the task could not be begun; try again", status=503)
            except BaseException as error:
                if is_made or not isinstance(error, ProtocolError):
                    records.undo(draft.id, _UNDO_SECONDS)  # no client knows of it, so it must not run
                raise
            return claimed, at

    def add(self, run: TaskRun) -> None:
        assert run.record is not None
        self.running[run.record.id] = run
        if is_anonymous(run.record.owner):
            self.anonymous.add(run)
        if self.records.is_shared:
            self._loop("renew", self._renew)
            self._loop("cancel late", self._cancel_late)

    def take_back(self, run: TaskRun) -> None:
        """Delete the task of a body that ended before the task was created."""
        assert run.record is not None
        self.forget(run)
        run.lose()
        self.records.undo(run.record.id, _UNDO_SECONDS)

    def forget(self, run: TaskRun) -> None:
        assert run.record is not None
        if self.running.get(run.record.id) is run:
            del self.running[run.record.id]
            self.anonymous.drop(run)

    # --- leases

    async def _renew(self) -> None:
        """Renew the leases of all bodies that run here."""
        while self.running:
            due = time.monotonic() - self.lease / 3
            late = [run for run in self.running.values() if run.is_ours and run.renewed <= due]
            # All at once: writes of the bodies wait in the same queue, and one renewal after another would come too late.
            results = await asyncio.gather(*(run.renew(self.lease) for run in late), return_exceptions=True)
            errors = [error for error in results if isinstance(error, Exception)]
            if any(isinstance(error, StoreClosed) for error in errors):
                return
            for run, is_news in zip(late, results, strict=True):
                if is_news is True:
                    self.records.spawn(self._refresh(run))
            if results:
                self._log_renewals(errors)
            await asyncio.sleep(self.lease / 12)  # after a failure the store itself refuses for a while

    def _log_renewals(self, errors: list[Exception]) -> None:
        """Log once when renewing begins to fail and once when it works again: it is tried several times a second."""
        if errors and self._is_renewing:
            if isinstance(errors[0], StoreError):
                logger.warning("the leases of %d tasks could not be renewed: %s; trying again", len(errors), errors[0])
            else:
                incident("holding tasks", errors[0])
        elif not errors and not self._is_renewing:
            logger.warning("the leases of tasks are renewed again")
        self._is_renewing = not errors

    async def _cancel_late(self) -> None:
        """Cancel bodies whose lease is about to end. A body that has finished may still write, if the lease holds."""
        while self.running:
            limit = time.monotonic() - self.lease * 3 / 4
            late = [run for run in self.running.values() if run.renewed <= limit and run.is_ours and not run.is_ending]
            if late:
                logger.error(
                    "the leases of %d tasks could not be renewed for most of their %g s: they are stopped here, because another "
                    "process may take them; the store is away or slow, or something blocks the event loop",
                    len(late),
                    self.lease,
                )
            for run in late:
                run.lose()
            await asyncio.sleep(self.lease / 12)

    # --- finding

    async def _find(self) -> None:
        """Search for tasks without a lease, as long as the server runs."""
        store = self.records.store
        self._work = asyncio.Event()  # of this loop
        pause = min(5.0, self.lease / 6)
        swept = time.monotonic()
        while store is self.records.store:  # a restarted server has another store
            try:
                is_full = await self._take_due() >= _PAGE
                if time.monotonic() - swept > _SWEEP_SECONDS:
                    swept = time.monotonic()
                    await self._sweep()
            except StoreClosed:
                return
            except StoreError as error:
                is_full = False
                self._not_before = time.monotonic() + self.lease / 3
                await asyncio.sleep(error.retry_after)
            except Exception as error:  # one unforeseen record must not stop the search
                is_full = False
                incident("looking after tasks", error)
            # At random: processes that started together should not all search at the same moment.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05 if is_full else pause * (0.75 + secrets.randbelow(128) / 256)):
                    await self._work.wait()
            self._work.clear()

    async def _sweep(self) -> None:
        """Delete expired tasks, in portions, so that other users of the store get their turn."""
        while len(await self.records.tasks.sweep(limit=_SWEPT)) >= _SWEPT:
            await asyncio.sleep(0.05)

    async def _take_due(self) -> int:
        """Take tasks without a lease; returns how many."""
        left = self._not_before - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        claimed = 0
        due = await self.records.tasks.due(limit=_PAGE + self._passed)
        now = time.monotonic()
        # By this process's clock, from when it saw the record: clocks of machines differ.
        self._fresh = {record.id: self._fresh.get(record.id, now) for record in due if _was_never_claimed(record)}
        for record in due:
            if self.may_take(record):
                claimed += 1
                self.deal(record)
                if claimed >= _PAGE:
                    break
        self._passed = min(len(due) - claimed, _MOST_PASSED)
        return claimed

    def may_take(self, record: TaskRecord) -> bool:
        """Whether this process should take this task now."""
        if record.id in self.running or record.id in self._taking:
            return False
        if len(self.running) + len(self._taking) >= _MOST_RUNNING:
            return False
        if _was_never_claimed(record):
            seen = self._fresh.get(record.id)
            return seen is not None and time.monotonic() - seen >= self.lease  # until then its creator may claim it
        idle = (self.records.now_ms() - max(record.lease_ms, record.updated_ms)) / 1000
        if record.name in self._server.tools.view or read_extra(record.extra).is_host:
            return True
        return idle > self.lease * _PATIENT_LEASES

    def deal(self, record: TaskRecord) -> None:
        """Take a task without a lease, in the background."""
        self._taking.add(record.id)
        errand = self.records.spawn(self._take(record))
        errand.add_done_callback(lambda _: self._taking.discard(record.id))

    async def _take(self, record: TaskRecord) -> None:
        tasks = self.records.tasks
        extra = read_extra(record.extra)
        if extra.is_host:
            await tasks.claim(record.id, HOST, seconds=FOR_EVER)
        elif _was_never_claimed(record):
            # Its creator may still claim it, late. Only one claim succeeds.
            if await tasks.claim(record.id, self.new_name(), seconds=self.lease) is not None:
                await tasks.delete(record.id)
        elif self.runner is not None and self._reason(record, extra) is None:
            claimed = await tasks.claim(record.id, HANDED, seconds=HANDED_SECONDS)
            if claimed is not None:
                try:
                    await self.runner.begin(claimed)
                except BaseException:
                    await tasks.release(record.id, HANDED)
                    raise
        else:
            await self.run_record(record.id)

    async def run_record(self, id: str) -> bool:
        """Claim a task and run it to its end (see `Tasks.run_record`)."""
        await self.records.ready()
        tasks = self.records.tasks
        record = await tasks.get(id)
        if record is None or record.is_terminal or id in self.running or self.is_closing:
            return False
        if record.worker == HANDED:
            await tasks.release(id, HANDED)
        worker, at = self.new_name(), time.monotonic()
        claimed = await tasks.claim(id, worker, seconds=self._seconds)
        if claimed is None:
            return False
        try:
            return await self._resume(claimed, worker, at)
        except TaskLost:
            return False

    async def _resume(self, record: TaskRecord, worker: str, at: float) -> bool:
        extra = read_extra(record.extra)
        reason = self._reason(record, extra)
        session = None
        if reason is None and record.session and self._server.runtime.sessions is not None:
            session = await self._server.runtime.sessions.reach(record.session)
        run = None if reason is not None else self._rebuild_run(record, extra, session)
        if run is None:
            error = ProtocolError.internal_error(reason or _UNREADABLE)
            written = await self.records.tasks.update(self.records.ended(record, "failed", error.message, error=error))
            if written is not None:
                await self.records.tell(written)
            return written is not None
        run.hold_by(record, worker, at)
        self.add(run)
        try:
            # Written before the body begins, so that a crash of this process counts as a start.
            run.starts = extra.starts + 1
            await run.write(
                lambda record: replace(started(record, run.starts), is_resumable=run.is_resumable), is_told=False
            )
            body = run.begin()
        except BaseException:
            self.forget(run)
            raise
        if extra.starts:
            logger.info("task %s of %r is resumed", record.id, record.name)
        try:
            await asyncio.wait({body})
        except asyncio.CancelledError:
            stopping = asyncio.ensure_future(run.stop(_STOPPED))
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(stopping)
            raise
        return run.is_ours

    def _reason(self, record: TaskRecord, extra: RunnerNotes) -> str | None:
        """Why a task cannot be started or resumed; None if it can."""
        entry = self._server.tools.view.get(record.name)
        began = "the process that ran this task ended, or lost its store, before the task was done"
        if extra.starts and not record.is_resumable:
            return f"{began}; it was not started again, because its tool is not declared resumable (resumable=True)"
        if entry is None or not entry.long_running:
            return f"{began if extra.starts else 'this task was not started'}: there is no long-running tool {record.name!r} any more"
        if extra.starts and not entry.resumable:
            return f"{began}, and its tool is not declared resumable any more"
        if extra.starts >= MOST_STARTS:
            return f"{began}; that has happened {extra.starts} times in the same place, so it was not started again"
        if extra.origin is None or not extra.origin.is_known:
            return f"{began}; it was not started again, because its caller or its call cannot be restored"
        try:
            unsure = read_journal(record.journal).begun
        except msgspec.MsgspecError:
            return _UNREADABLE
        if unsure:
            steps = ", ".join(repr(step) for step in unsure[:5])
            return f"{began}, in the middle of step {steps}: it is not known whether that step was done, so it was not repeated"
        return None

    def _rebuild_run(self, record: TaskRecord, extra: RunnerNotes, session: CallSession | None) -> TaskRun | None:
        server = self._server
        assert extra.origin is not None
        entry = server.tools.view[record.name]
        try:
            call = rebuild(record, extra.origin, session)
        except (msgspec.MsgspecError, KeyError, ProtocolError) as error:
            incident(f"task {record.id}", error)
            return None
        inner = server.runtime.voice if session is None else session.voice
        is_resumable = record.is_resumable and entry.resumable
        return TaskRun(
            self,
            call,
            self._serve,
            inner,
            timeout=entry.task_timeout,
            is_resumable=is_resumable,
            is_mortal=extra.is_mortal,
        )

    async def _serve(self, call: IncomingCall) -> Any:
        # Through all middleware again; the tasks extension lets it pass.
        return await self._server.runtime.dispatcher.handlers[call.method](call)


def _was_never_claimed(record: TaskRecord) -> bool:
    """Whether the task was never claimed: a claim changes the stamp."""
    return not record.worker and record.stamp <= 1


_UNREADABLE: Final = (
    "the process that ran this task ended before the task was done, and this version cannot read its record"
)
_STOPPED: Final = ProtocolError.internal_error("the server stopped before the task was done")
