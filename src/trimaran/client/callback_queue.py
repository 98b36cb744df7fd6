"""Deliver events to a user's callbacks: in order, one at a time, never in the way of the wire.

A plain function is called at once, so it must be quick. Coroutine functions run in one task per queue. The queue is bounded:
when a callback cannot keep up, the oldest events are dropped and counted, because a server that floods its client must not
fill the client's memory. An exception in a callback is logged and goes no further.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, final

log: logging.Logger = logging.getLogger("trimaran.client")

_CAPACITY: Final = 1000
_BYTES: Final = 16 * 1024 * 1024
_STUBBORN: Final = 1.0  # seconds for a callback that will not be cancelled


def is_async(callback: Any) -> bool:
    """Is this a coroutine function, or something that is called like one?"""
    if isinstance(callback, functools.partial):
        return is_async(callback.func)  # pyright: ignore[reportUnknownMemberType]
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004


@final
class CallbackQueue:
    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...], int]] = deque()
        self._bytes = 0
        self._capacity = capacity
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.dropped: int = 0
        """How many events were dropped because callbacks could not keep up."""

    def post(self, callback: Callable[..., Any], *args: Any, size: int = 0) -> None:
        """Have `callback(*args)` called; `size` is about what the event takes in memory."""
        if self._is_closed:
            return
        if not is_async(callback):
            promised = _run_plain(callback, args)
            if promised is None:
                return
            callback, args = _keep, (promised,)  # a plain function around a coroutine: `lambda entry: store(entry)`
        while self._waiting and (len(self._waiting) >= self._capacity or self._bytes + size > _BYTES):
            self._bytes -= self._waiting.popleft()[2]
            if not self.dropped:
                log.warning("%r does not keep up: the oldest events are being dropped", callback)
            self.dropped += 1
        self._waiting.append((callback, args, size))
        self._bytes += size
        if self._task is None:
            self._task = asyncio.ensure_future(self._deliver())

    async def drained(self) -> None:
        """Wait until all that was posted so far has been delivered."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _deliver(self) -> None:
        try:
            while self._waiting:
                callback, args, size = self._waiting.popleft()
                self._bytes -= size
                try:
                    await callback(*args)
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if task is not None and task.cancelling():
                        raise
                    log.warning("a callback was cancelled by itself: %r", callback)
                except Exception:
                    log.exception("a callback failed: %r", callback)
        finally:
            self._task = None

    async def close(self, within: float = 0.0) -> None:
        """Accept no more events, deliver the waiting ones for up to `within` seconds, and drop the rest."""
        self._is_closed = True
        task = self._task
        if task is None or task is asyncio.current_task():
            self._waiting.clear()
            return
        if within:
            await asyncio.wait((task,), timeout=within)
        self._waiting.clear()
        task.cancel()
        await asyncio.wait((task,), timeout=_STUBBORN)


def _run_plain(callback: Callable[..., Any], args: tuple[Any, ...]) -> Awaitable[Any] | None:
    try:
        value = callback(*args)
    except Exception:
        log.exception("a callback failed: %r", callback)
        return None
    return value if inspect.isawaitable(value) else None


async def _keep(promised: Awaitable[Any]) -> None:
    await promised
