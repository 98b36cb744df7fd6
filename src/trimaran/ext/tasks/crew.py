"""All bodies at work in this process: how they hold their tasks, and what becomes of tasks that nobody holds.

**Holding.** In a store that others see, a task is run under a lease, renewed every third of it for all bodies together. A process
that cannot renew stops its bodies when three quarters of the lease are over, by its own clock from before it asked: while
the store, by its clock, still gives the task to nobody else. In this process's own memory a lease has no end.

**Finding.** Every process with such a store looks now and then at the tasks that are working and that nobody holds:

- its tool is resumable: its body runs again, here, and meets its journal;
- any other: it fails, with the reason. So does one whose journal has a step of which nobody knows whether it was done, and
  one that has outlived several processes and got nowhere, since it may be what ended them;
- it was made for a `Runner` and has not been begun: it is handed over again;
- it was made and never held, so nobody was told of it: it goes.

A task that waits for input is not among those, so it is dealt with when somebody looks at it or answers; if nobody does, it
goes with its time to live.
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
from trimaran.protocol.inbound import Call
from trimaran.server.handlers import incident, logger
from trimaran.state.contracts import StoreClosed, StoreError, TaskRecord

from .journal import read_journal
from .keeper import FOR_EVER, Keeper, store_errors
from .origin import Extra, read_extra, rebuild, started
from .room import GAVE_WAY, Room, is_anonymous
from .run import Run
from .voice import Lost

if TYPE_CHECKING:
    from trimaran.server.server import Server

__all__ = ["HANDED", "HOST", "Crew", "Runner"]

HOST: Final = "host"
"""Holds the tasks of the host, for ever: they have no body."""
HANDED: Final = "handed"
"""Holds a task on its way to another process."""
# How long a task may wait in a queue before it is handed over once more. That does no harm, and costs little.
HANDED_SECONDS: Final = 300.0
# Starts of one body since it last got a step further. A task that ends the process it runs in must not end all of them.
MOST_STARTS: Final = 6
# Bodies at work here beyond which none is taken over: others may have room.
_MOST_RUNNING: Final = 1000
_PAGE: Final = 100
# Passed over in one look, since they are not for us: beyond so many, others behind them have to wait for those who know them.
_MOST_PASSED: Final = 2000
# A process without the tool leaves it to others for this many leases: in the middle of a new release, some have it.
_PATIENT_LEASES: Final = 10
_SWEEP_SECONDS: Final = 60.0
_SWEPT: Final = 1000
# How long a task is taken back of which nobody was told. While the store is away nobody can run it, and then we are first.
_UNDO_SECONDS: Final = 3600.0


class Runner(Protocol):
    """Takes tasks to be run by another process, which calls `Tasks.run_record` there."""

    async def begin(self, record: TaskRecord) -> None:
        """Take a task that was made and that nobody runs.

        It may come again, if nobody ran it or who ran it has ended; `f"{record.id}:{record.stamp}"` is another one then. To run
        it once too often does no harm.
        """
        ...


@final
class Crew:
    def __init__(self, keeper: Keeper, *, lease: float, runner: Runner | None) -> None:
        self.keeper = keeper
        self.lease = lease
        self.runner = runner
        self.running: dict[str, Run] = {}
        self.is_closing = False
        self.closings = 0
        """How often it was closed: who waits here finds by it that the time has come, however short it was."""
        self.room = Room(keeper.most_per_owner)
        self._dealing: set[str] = set()
        self._fresh: dict[str, float] = {}
        """When we first saw, by our own clock, tasks that were made and not held."""
        self._passed = 0
        """How many tasks that are not for us stood before the others, the last time."""
        self._is_holding = True
        """Could the leases be renewed the last time?"""
        self._fleet: Any = None
        self._loops: dict[str, asyncio.Task[Any]] = {}
        self._work = asyncio.Event()
        """There is something to be found."""
        self._not_before = 0.0

    @property
    def _server(self) -> Server:
        server = self.keeper.server
        assert server is not None
        return server

    def encode(self, result: Any) -> bytes:
        return self._server.writer.encode(result)

    # --- its life

    def start(self, look_again: Callable[[], None]) -> None:
        """The server has started: hear the other processes, and look after what they may have left."""
        fleet = self.keeper.fleet
        if fleet is None or self.is_closing:
            return
        if self._fleet is not fleet:
            self._fleet = fleet
            fleet.on("task", self._hear)
            fleet.on("task left", self._hear_of_work)
            fleet.on_gap(self._look_again)
            fleet.on_gap(look_again)
        if self.keeper.is_shared:
            self._loop("find", self._find)

    def _loop(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """See to it that something is done for as long as it has to be."""
        task = self._loops.get(name)
        if task is None or task.done():
            self._loops[name] = self.keeper.spawn(work())

    async def close(self) -> None:
        """The server stops. What can go on elsewhere is left to others; the rest ends with the process, and says so."""
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
            self.keeper.ring()
            bodies = [run.body for run in runs if run.body is not None and not run.body.done()]
            if bodies:
                await asyncio.wait(bodies, timeout=2.0)
            await self.keeper.close()
            self._loops.clear()
        finally:
            self.is_closing = False

    # --- news

    def _hear(self, id: Any) -> Any:
        """Another process changed a task."""
        if not isinstance(id, str):
            raise TypeError("news of a task is its id")
        self.keeper.ring(id)
        self._server.changes.deliver("task", id)
        run = self.running.get(id)
        return None if run is None else self._refresh(run)

    def _hear_of_work(self, _: Any) -> None:
        """Another process has left a task to whoever takes it."""
        self._work.set()

    def left(self) -> None:
        """We have."""
        if self.keeper.fleet is not None:
            self.keeper.fleet.tell_soon("task left", None)

    async def _refresh(self, run: Run) -> None:
        with contextlib.suppress(StoreError):  # it is looked at again with the next renewal
            await run.refresh()

    async def _look_again(self) -> None:
        """News may have been missed."""
        # Those who could not renew meanwhile come first: what looks left may not be.
        self._not_before = time.monotonic() + self.lease / 3
        self.keeper.ring()
        for run in tuple(self.running.values()):
            await self._refresh(run)

    # --- making

    @property
    def _seconds(self) -> float:
        return self.lease if self.keeper.is_shared else FOR_EVER

    def new_name(self) -> str:
        """A name for one run: even this process, after it has lost a task and taken it again, is another holder."""
        fleet = self.keeper.fleet
        return f"{'here' if fleet is None else fleet.name}.{secrets.token_hex(4)}"

    async def create(self, run: Run, draft: TaskRecord) -> None:
        """Make the task of a run, and hold it."""
        if self.is_closing:  # what runs has been counted, and this would be left over
            raise ProtocolError.internal_error("the server is stopping; try again in a moment", status=503)
        worker = self.new_name()
        with self.room.entering(run.place) if is_anonymous(draft.owner) else contextlib.nullcontext() as victim:
            if victim is not None:
                self.keeper.spawn(victim.fail(GAVE_WAY))
            record, at = await self._make(draft, worker, self._seconds)
            run.hold_by(record, worker, at)
            self.add(run)

    async def hand(self, draft: TaskRecord, runner: Runner) -> TaskRecord:
        """Make a task that another process will run."""
        record, _ = await self._make(draft, HANDED, HANDED_SECONDS)
        try:
            with store_errors():
                await runner.begin(record)
        except BaseException:
            self.keeper.undo(record.id, _UNDO_SECONDS)
            raise
        return record

    async def begin_for_host(self, draft: TaskRecord) -> TaskRecord:
        return (await self._make(draft, HOST, FOR_EVER))[0]

    async def _make(self, draft: TaskRecord, worker: str, seconds: float) -> tuple[TaskRecord, float]:
        keeper = self.keeper
        with store_errors():
            await keeper.ready()
            is_made = False
            try:
                record = await keeper.create(draft)
                is_made = True
                at = time.monotonic()
                claimed = await keeper.tasks.claim(record.id, worker, seconds=seconds)
                if claimed is None:
                    raise ProtocolError.internal_error("the task could not be begun; try again", status=503)
            except BaseException as error:
                if is_made or not isinstance(error, ProtocolError):
                    keeper.undo(draft.id, _UNDO_SECONDS)  # nobody was told of it, so it must not be run
                raise
            return claimed, at

    def add(self, run: Run) -> None:
        assert run.record is not None
        self.running[run.record.id] = run
        if is_anonymous(run.record.owner):
            self.room.add(run)
        if self.keeper.is_shared:
            self._loop("renew", self._renew)
            self._loop("fence", self._fence)

    def take_back(self, run: Run) -> None:
        """A task was made for a body that had ended meanwhile."""
        assert run.record is not None
        self.forget(run)
        run.lose()
        self.keeper.undo(run.record.id, _UNDO_SECONDS)

    def forget(self, run: Run) -> None:
        assert run.record is not None
        if self.running.get(run.record.id) is run:
            del self.running[run.record.id]
            self.room.drop(run)

    # --- holding

    async def _renew(self) -> None:
        """Keep the leases of all that run here."""
        while self.running:
            due = time.monotonic() - self.lease / 3
            late = [run for run in self.running.values() if run.is_ours and run.renewed <= due]
            # All at once: what the bodies write stands in the same queue, and one after the other would be late.
            found = await asyncio.gather(*(run.renew(self.lease) for run in late), return_exceptions=True)
            errors = [error for error in found if isinstance(error, Exception)]
            if any(isinstance(error, StoreClosed) for error in errors):
                return
            for run, is_news in zip(late, found, strict=True):
                if is_news is True:
                    self.keeper.spawn(self._refresh(run))
            if found:
                self._say_whether_held(errors)
            await asyncio.sleep(self.lease / 12)  # the store refuses by itself to be asked too often

    def _say_whether_held(self, errors: list[Exception]) -> None:
        """Once when it begins and once when it is over: it is tried several times a second."""
        if errors and self._is_holding:
            if isinstance(errors[0], StoreError):
                logger.warning("%d tasks could not be held: %s; it is tried again", len(errors), errors[0])
            else:
                incident("holding tasks", errors[0])
        elif not errors and not self._is_holding:
            logger.warning("tasks can be held again")
        self._is_holding = not errors

    async def _fence(self) -> None:
        """Stop what could soon be somebody else's. Not what is done: if it is still ours when it is written, it counts."""
        while self.running:
            limit = time.monotonic() - self.lease * 3 / 4
            late = [run for run in self.running.values() if run.renewed <= limit and run.is_ours and not run.is_ending]
            if late:
                logger.error(
                    "%d tasks could not be held for most of their lease of %g s: they are stopped here, since another process "
                    "may take them; the store is away, or slow, or something keeps the event loop busy",
                    len(late),
                    self.lease,
                )
            for run in late:
                run.lose()
            await asyncio.sleep(self.lease / 12)

    # --- finding

    async def _find(self) -> None:
        """Look after tasks that nobody holds, for as long as the server runs."""
        store = self.keeper.store
        self._work = asyncio.Event()  # of this loop
        pause = min(5.0, self.lease / 6)
        swept = time.monotonic()
        while store is self.keeper.store:  # a server that is started again has another
            try:
                is_full = await self._look() >= _PAGE
                if time.monotonic() - swept > _SWEEP_SECONDS:
                    swept = time.monotonic()
                    await self._sweep()
            except StoreClosed:
                return
            except StoreError as error:
                is_full = False
                self._not_before = time.monotonic() + self.lease / 3
                await asyncio.sleep(error.retry_after)
            except Exception as error:  # of a record that nobody foresaw; the others must be looked after all the same
                is_full = False
                incident("looking after tasks", error)
            # By chance: processes that began together need not all look at the same moment.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05 if is_full else pause * (0.75 + secrets.randbelow(128) / 256)):
                    await self._work.wait()
            self._work.clear()

    async def _sweep(self) -> None:
        """Some at a time, for others want the store too; as long as there are that many, more."""
        while len(await self.keeper.tasks.sweep(limit=_SWEPT)) >= _SWEPT:
            await asyncio.sleep(0.05)

    async def _look(self) -> int:
        """Deal with some; how many of them were taken up."""
        left = self._not_before - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        taken = 0
        found = await self.keeper.tasks.due(limit=_PAGE + self._passed)
        now = time.monotonic()
        # Clocks differ from machine to machine, and a record may have been long on its way: ours, from when we saw it.
        self._fresh = {record.id: self._fresh.get(record.id, now) for record in found if _was_never_held(record)}
        for record in found:
            if self.may_take(record):
                taken += 1
                self.deal(record)
                if taken >= _PAGE:
                    break
        self._passed = min(len(found) - taken, _MOST_PASSED)
        return taken

    def may_take(self, record: TaskRecord) -> bool:
        """Is a task that nobody holds one for us, and now?"""
        if record.id in self.running or record.id in self._dealing:
            return False
        if len(self.running) + len(self._dealing) >= _MOST_RUNNING:
            return False
        if _was_never_held(record):
            seen = self._fresh.get(record.id)
            return seen is not None and time.monotonic() - seen >= self.lease  # until then somebody is about to hold it
        idle = (self.keeper.now_ms() - max(record.lease_ms, record.updated_ms)) / 1000
        if record.name in self._server.tools.view or read_extra(record.extra).is_host:
            return True
        return idle > self.lease * _PATIENT_LEASES

    def deal(self, record: TaskRecord) -> None:
        """Take up a task that nobody holds, in the background."""
        self._dealing.add(record.id)
        errand = self.keeper.spawn(self._deal(record))
        errand.add_done_callback(lambda _: self._dealing.discard(record.id))

    async def _deal(self, record: TaskRecord) -> None:
        tasks = self.keeper.tasks
        extra = read_extra(record.extra)
        if extra.is_host:
            await tasks.claim(record.id, HOST, seconds=FOR_EVER)
        elif _was_never_held(record):
            # Its maker may be about to hold it, late: whoever gets the lease decides, and the other one fails.
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
        await self.keeper.ready()
        tasks = self.keeper.tasks
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
            return await self._take_up(claimed, worker, at)
        except Lost:
            return False

    async def _take_up(self, record: TaskRecord, worker: str, at: float) -> bool:
        extra = read_extra(record.extra)
        reason = self._reason(record, extra)
        session = None
        if reason is None and record.session and self._server.sessions is not None:
            session = await self._server.sessions.reach(record.session)
        run = None if reason is not None else self._rebuilt(record, extra, session)
        if run is None:
            error = ProtocolError.internal_error(reason or _UNREADABLE)
            written = await self.keeper.tasks.update(self.keeper.ended(record, "failed", error.message, error=error))
            if written is not None:
                await self.keeper.tell(written)
            return written is not None
        run.hold_by(record, worker, at)
        self.add(run)
        try:
            # Before the body begins: a process that it ends must not be forgotten. Nor that it kept no journal here.
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

    def _reason(self, record: TaskRecord, extra: Extra) -> str | None:
        """Why a task cannot be begun or gone on with; None if it can."""
        entry = self._server.tools.view.get(record.name)
        began = "the process that ran this task ended, or lost its store, before the task was done"
        if extra.starts and not record.is_resumable:
            return f"{began}; it was not begun again, since its tool is not declared resumable (resumable=True)"
        if entry is None or not entry.long_running:
            return f"{began if extra.starts else 'this task was not begun'}: there is no long-running tool {record.name!r} any more"
        if extra.starts and not entry.resumable:
            return f"{began}, and its tool is not declared resumable any more"
        if extra.starts >= MOST_STARTS:
            return f"{began}; that has happened {extra.starts} times in the same place, so it was not begun again"
        if extra.origin is None or not extra.origin.is_known:
            return f"{began}; it was not begun again, since its caller, or its call, cannot be known again"
        try:
            unsure = read_journal(record.journal).begun
        except msgspec.MsgspecError:
            return _UNREADABLE
        if unsure:
            steps = ", ".join(repr(step) for step in unsure[:5])
            return (
                f"{began}, in the middle of step {steps}: whether that was done is not known, so it was not done again"
            )
        return None

    def _rebuilt(self, record: TaskRecord, extra: Extra, session: Any) -> Run | None:
        server = self._server
        assert extra.origin is not None
        entry = server.tools.view[record.name]
        try:
            call = rebuild(record, extra.origin, session)
        except (msgspec.MsgspecError, KeyError, ProtocolError) as error:
            incident(f"task {record.id}", error)
            return None
        inner = server.voice if session is None else session.voice
        is_resumable = record.is_resumable and entry.resumable
        return Run(
            self,
            call,
            self._serve,
            inner,
            timeout=entry.timeout,
            is_resumable=is_resumable,
            is_mortal=extra.is_mortal,
        )

    async def _serve(self, call: Call) -> Any:
        # Through everything that is around calls, once more: our own part of that lets it pass.
        return await self._server.dispatcher.handlers[call.method](call)


def _was_never_held(record: TaskRecord) -> bool:
    """Made, and nothing more: a claim would have changed its stamp, also one that was given back."""
    return not record.worker and record.stamp <= 1


_UNREADABLE: Final = "the process that ran this task ended before the task was done, and what it wrote down cannot be read by this version"
_STOPPED: Final = ProtocolError.internal_error("the server stopped before the task was done")
