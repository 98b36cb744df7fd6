"""The tasks of one server in this process's memory: who may see them, how long they are kept, and who waits for what.

A task that has ended is kept for an hour after its end (R79), and never less than the time to live it promised. Nothing is
swept in the background: what is due goes when the next task comes or the list is looked at.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, final

from trimaran.errors import ProtocolError

from .model import Status, Task

__all__ = ["Keeper"]

KEPT_SECONDS: Final = 3600.0
SWEEP_SECONDS: Final = 60.0
MOST: Final = 100_000
"""Tasks kept in all; beyond that the oldest that have ended go before their time."""


@final
class Keeper:
    def __init__(
        self,
        *,
        ttl: float | None,
        poll: float,
        most_per_owner: int,
        on_change: Callable[[Task], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ttl_ms = None if ttl is None else round(ttl * 1000)
        self._poll_ms = max(1, round(poll * 1000))
        self._most = most_per_owner
        self._on_change = on_change
        self._clock = clock
        self._tasks: dict[str, Task] = {}
        self._running: dict[str, int] = {}
        """How many are at work, by owner."""
        self._swept = clock()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def create(self, owner: Any, name: str, ttl_ms: int | None = None) -> Task:
        """A new task, working; the client may ask for a shorter life than we would give it, not for a longer one."""
        self._sweep()
        who = repr(owner)
        if self._running.get(who, 0) >= self._most:
            raise ProtocolError.internal_error(
                f"{self._most} tasks of one caller are at work already; wait until some are done", status=503
            )
        now = self._clock()
        ttls = [ttl for ttl in (ttl_ms, self._ttl_ms) if ttl is not None]
        task = Task(
            id=f"task_{secrets.token_hex(16)}",
            owner=owner,
            name=name,
            created_at=now,
            updated_at=now,
            ttl_ms=min(ttls, default=None),
            poll_ms=self._poll_ms,
        )
        self._tasks[task.id] = task
        self._running[who] = self._running.get(who, 0) + 1
        return task

    def get(self, id: str) -> Task:
        """The task of this id, whoever's it is."""
        task = self._tasks.get(id)
        if task is None:
            raise ProtocolError.invalid_params(f"there is no task {id[:100]!r}, or not any more")
        return task

    def find(self, id: str, owner: Any) -> Task:
        """The task of this id, if it is this owner's; -32602 otherwise, whatever the reason."""
        task = self._tasks.get(id)
        if task is None or task.owner != owner:
            raise ProtocolError.invalid_params(f"there is no task {id[:100]!r}, or not any more")
        return task

    def of(self, owner: Any) -> Iterator[Task]:
        self._sweep(at_once=True)
        return (task for task in self._tasks.values() if task.owner == owner)

    def move(self, task: Task, status: Status, message: str | None = None, **changes: Any) -> bool:
        """Change a task. False, and nothing happens, if it has ended."""
        if task.is_over:
            return False
        task.status = status
        task.message = message
        for name, value in changes.items():
            setattr(task, name, value)
        if task.is_over:
            task.inputs = {}
            who = repr(task.owner)
            self._running[who] -= 1
            if not self._running[who]:
                del self._running[who]
        task.updated_at = self._clock()
        for waiting in self._waiting.pop(task.id, ()):
            if not waiting.done():
                waiting.set_result(None)
        self._on_change(task)
        return True

    async def changed(self, task: Task) -> None:
        """Wait for the next change."""
        waiting = asyncio.get_running_loop().create_future()
        waiters = self._waiting.setdefault(task.id, [])
        waiters.append(waiting)
        try:
            await waiting
        finally:
            if waiting in waiters:
                waiters.remove(waiting)
            if not waiters and self._waiting.get(task.id) is waiters:
                del self._waiting[task.id]

    def _sweep(self, *, at_once: bool = False) -> None:
        """Forget what is due. Not with every new task: of many that would be most of the work."""
        now = self._clock()
        if not at_once and 0 <= now - self._swept < SWEEP_SECONDS and len(self._tasks) < MOST:
            return
        self._swept = now
        ended = [task for task in self._tasks.values() if task.is_over]
        for task in ended:
            if task.ttl_ms is None:
                continue  # it was promised to stay
            if now >= max(task.updated_at + KEPT_SECONDS, task.created_at + task.ttl_ms / 1000):
                del self._tasks[task.id]
        for task in ended[: max(0, len(self._tasks) - MOST * 9 // 10)]:
            self._tasks.pop(task.id, None)
