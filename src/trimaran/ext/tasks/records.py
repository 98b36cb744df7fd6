"""The records of tasks: their store, their owners, their changes, and the news of changes.

They live in the store of the server's fleet, or in this process's memory if it has none; it is the same model. A change reads a
record, makes another of it, and writes that if nobody was faster; then it is told: here at once, to other processes as news.
Nothing hangs on the news. A waiting caller looks again after a while, at the cost of time only.

A task that has ended is kept for an hour after its end (R79), and never less than the time to live it promised. One that works
is kept until it has ended; one that waits for an answer, for its time to live.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from msgspec.structs import replace

from trimaran.errors import ProtocolError
from trimaran.fleet import fleet_of, unavailable
from trimaran.server.handlers import incident, logger
from trimaran.state.contracts import (
    Store,
    StoreClosed,
    StoreError,
    StoreFull,
    TaskRecord,
    TasksPage,
    TaskStatus,
    read_cursor,
)
from trimaran.state.memory import MemoryStore

from .model import is_task_id, legacy_form, new_task_id, unknown, write_error

if TYPE_CHECKING:
    from trimaran.fleet import Fleet
    from trimaran.server.server import Server
    from trimaran.state.contracts import TaskStore as TaskStore

KEPT_MS: Final = 3_600_000
FOR_EVER: Final = 10 * 365 * 86_400.0
"""Seconds that stand for no end: everything in a store has one."""
# In the memory of one process, in all: some hundred megabytes of small tasks. A named caller has `most_per_caller`.
MOST: Final = 250_000
# Tasks that could not be made and may yet be there, in all. Beyond it, what nobody was told of is found by its lease.
_MOST_UNDONE: Final = 10_000
# A write that lost this often against others is a storm, and not waited out.
TRIES: Final = 50
STATUS: Final = "notifications/tasks/status"


@contextmanager
def store_errors() -> Generator[None]:
    """Turn errors of the store into replies that tell the client to try again."""
    try:
        yield
    except StoreError as error:
        raise unavailable(error) from error


@final
class TaskRecords:
    def __init__(
        self, *, ttl: float | None, poll: float, most_per_owner: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._ttl_ms = None if ttl is None else round(ttl * 1000)
        self._poll_ms = max(1, round(poll * 1000))
        self.poll = poll
        self.most_per_owner = most_per_owner
        self._clock = clock
        self._own = MemoryStore(max_records=MOST, clock=self.now_ms)
        self._bells: dict[str, set[asyncio.Event]] = {}
        self._errands: set[asyncio.Task[Any]] = set()
        self._undone: dict[str, float] = {}
        """Tasks to be taken back, and until when that is tried."""
        self._is_undoing = False
        self.server: Server | None = None

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    # --- where

    @property
    def fleet(self) -> Fleet | None:
        return None if self.server is None else fleet_of(self.server)

    @property
    def store(self) -> Store:
        fleet = self.fleet
        return self._own if fleet is None else fleet.store

    @property
    def tasks(self) -> TaskStore:
        return self.store.tasks

    @property
    def is_shared(self) -> bool:
        """Whether other processes use this store."""
        store = self.store
        return store.is_shared or store.is_durable

    async def ready(self) -> None:
        if self.server is not None and self.server.runtime.fleet is not None:
            await self.server.start()

    # --- making and finding

    def draft(
        self, name: str, *, owner: str = "", session: str = "", ttl_ms: int | None = None, **more: Any
    ) -> TaskRecord:
        """A new task, working; the client may ask for a shorter life than we would give it, not for a longer one."""
        now = self.now_ms()
        ttls = [min(ttl, int(FOR_EVER * 1000)) for ttl in (ttl_ms, self._ttl_ms) if ttl is not None]
        return TaskRecord(
            id=new_task_id(),
            owner=owner,
            session=session,
            name=name,
            created_ms=now,
            updated_ms=now,
            ttl_ms=min(ttls, default=None),
            poll_ms=self._poll_ms,
            expires_ms=now + int(FOR_EVER * 1000),
            **more,
        )

    async def create(self, draft: TaskRecord) -> TaskRecord:
        """Store a new task. Wrap the call in `store_errors`."""
        # Anonymous callers look the same: one of them must not use up the room of all.
        most = self.most_per_owner if draft.owner else None
        try:
            return await self.tasks.create(draft, most=most)
        except StoreFull as full:
            if full.limit is None:
                raise  # the database has no room, and dropping results of callers would not help
            last = full
        # First tasks of the caller; tasks without an owner only if the store itself is full.
        for owner in dict.fromkeys((draft.owner, "")):
            await self._evict(owner)
            try:
                return await self.tasks.create(draft, most=most)
            except StoreFull as full:
                last = full
            if draft.owner and await self.tasks.count(draft.owner) >= self.most_per_owner:
                raise self.too_many()
        logger.warning("a task was refused because there is no room: %s", last)
        raise ProtocolError.internal_error("there is no room for another task; try again later", status=503)

    async def _evict(self, owner: str) -> None:
        """Some of the oldest that have ended go before their time, so that their caller can go on."""
        remaining = max(1, self.most_per_owner // 10)
        cursor: str | None = None
        for _ in range(100):
            page = await self.tasks.list(owner, cursor=cursor, limit=1000)
            for record in page.tasks:
                if record.is_terminal and remaining and await self.tasks.delete(record.id):
                    remaining -= 1
            cursor = page.cursor
            if cursor is None or not remaining:
                break

    def too_many(self) -> ProtocolError:
        return ProtocolError.internal_error(
            f"{self.most_per_owner} tasks of one caller are at work already; wait until some are done", status=503
        )

    async def get(self, id: str) -> TaskRecord:
        """The task with this id, of any owner."""
        record = await self.tasks.get(id) if is_task_id(id) else None
        if record is None:
            raise unknown(id)
        return record

    async def find(self, id: str, owner: str) -> TaskRecord:
        """The task of this id, if it is this owner's; otherwise -32602, for every reason (R80, R102)."""
        record = await self.get(id)
        if record.owner != owner:
            raise unknown(id)
        return record

    async def page(self, owner: str, cursor: str | None, limit: int) -> TasksPage:
        """An owner's tasks, oldest first. Tasks without an owner are in no list."""
        if cursor is not None:
            _, id = read_cursor(cursor)
            try:
                await self.find(id, owner)
            except ProtocolError:
                raise ProtocolError.invalid_params("the cursor is unknown; begin without one") from None
        return await self.tasks.list(owner, cursor=cursor, limit=limit) if owner else TasksPage([], None)

    # --- changing

    def moved(
        self, record: TaskRecord, status: TaskStatus | None = None, message: str | None = None, **changes: Any
    ) -> TaskRecord:
        """A record on its way, changed: the message stays unless there is another."""
        status = status or record.status
        now = max(self.now_ms(), record.updated_ms)
        return replace(
            record,
            status=status,
            status_message=record.status_message if message is None else message,
            updated_ms=now,
            expires_ms=now + self._kept_ms(record, status),
            **changes,
        )

    @staticmethod
    def _kept_ms(record: TaskRecord, status: TaskStatus) -> int:
        """How long the store keeps a task that has not ended. One that waits for an answer is ended by its process before
        that; if it has none any more, it goes by itself.
        """
        if status != "input_required" or record.ttl_ms is None:
            return int(FOR_EVER * 1000)
        return record.ttl_ms + KEPT_MS

    def ended(
        self,
        record: TaskRecord,
        status: TaskStatus,
        message: str | None = None,
        *,
        result: bytes | None = None,
        error: ProtocolError | None = None,
    ) -> TaskRecord:
        """The final record: without questions and journal, kept for its time to live."""
        now = max(self.now_ms(), record.updated_ms)
        promised = int(FOR_EVER * 1000) if record.ttl_ms is None else record.ttl_ms
        return replace(
            record,
            status=status,
            status_message=message,
            updated_ms=now,
            result=result,
            error=None if error is None else write_error(error),
            inputs=b"",
            journal=b"",
            extra=b"",
            expires_ms=max(now + KEPT_MS, record.created_ms + promised),
        )

    async def change(self, id: str, make: Callable[[TaskRecord], TaskRecord | None]) -> TaskRecord | None:
        """Change a task, in any process; None if it has ended or is gone. `make` returns None for no change."""
        for _ in range(TRIES):
            record = await self.tasks.get(id)
            if record is None or record.is_terminal:
                return None
            changed = make(record)
            if changed is None:
                return record
            written = await self.tasks.update(changed)
            if written is not None:
                await self.tell(written)
                return written
            await asyncio.sleep(0)
        raise ProtocolError.internal_error(f"the task {id} changes too fast; try again", status=503)

    # --- telling

    async def tell(self, record: TaskRecord) -> None:
        """Announce a changed record to this process and the others.

        Its session first: a receiver of the announcement may make the next change.
        """
        server = self.server
        if server is not None and record.session and server.runtime.sessions is not None:
            try:
                session = await server.runtime.sessions.reach(record.session)
                if session is not None:
                    session.send(STATUS, legacy_form(record))
            except StoreError as error:
                logger.info("a session could not be notified about its task: %s", error)
            except Exception as error:  # the change is written, so its author goes on
                incident("telling a session of its task", error)
        self.ring(record.id)
        if server is not None:
            server.runtime.changes.deliver("task", record.id)
            if self.fleet is not None:
                self.fleet.tell_soon("task", record.id)

    def ring(self, id: str | None = None) -> None:
        """Wake waiters for news of one task, or of all tasks."""
        bells = self._bells.get(id, ()) if id is not None else [b for bells in self._bells.values() for b in bells]
        for bell in tuple(bells):
            bell.set()

    @contextmanager
    def watch(self, id: str) -> Generator[asyncio.Event]:
        """While entered, an event that is set by each change of a task, as far as this process hears of it."""
        bell = asyncio.Event()
        bells = self._bells.setdefault(id, set())
        bells.add(bell)
        try:
            yield bell
        finally:
            bells.discard(bell)
            if not bells and self._bells.get(id) is bells:
                del self._bells[id]

    # --- in the background

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._errands.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._errands.discard(task)
        if task.cancelled() or (error := task.exception()) is None or isinstance(error, StoreClosed):
            return
        if isinstance(error, StoreError):
            logger.info("postponed until the store is back: %s", error)
        elif isinstance(error, Exception):
            incident("a task", error)

    async def close(self) -> None:
        errands = self._errands - {asyncio.current_task()}
        for errand in tuple(errands):
            errand.cancel()
        if errands:
            await asyncio.wait(errands)

    def undo(self, id: str, seconds: float) -> None:
        """Delete a task that no client knows; retry while that can matter."""
        if len(self._undone) >= _MOST_UNDONE:
            return
        self._undone[id] = time.monotonic() + seconds
        if not self._is_undoing:
            self._is_undoing = True
            self.spawn(self._undo())

    async def _undo(self) -> None:
        # One after the other: a store that comes back must not be flooded.
        try:
            while self._undone:
                id, deadline = next(iter(self._undone.items()))
                try:
                    if time.monotonic() < deadline:
                        await self.tasks.delete(id)
                except StoreClosed:
                    return
                except StoreError as error:
                    await asyncio.sleep(max(0.05, error.retry_after))
                    continue
                del self._undone[id]
        finally:
            self._undone.clear()
            self._is_undoing = False
