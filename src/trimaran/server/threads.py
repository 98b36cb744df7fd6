"""A bounded pool of daemon threads for plain `def` handlers.

Our own, so that a slow tool cannot starve, or be starved by, whatever else uses the loop's default executor (P46), and
so that a stuck tool cannot keep the process from ending. A handler runs in a copy of the caller's context variables.
A cancelled caller stops waiting at once; the thread runs on and its result is dropped, unless the handler watches
`ctx.cancelled`. The pool grows by need up to its size; a thread that has been idle for half a minute goes.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from trimaran.errors import ProtocolError

__all__ = ["ThreadPool"]

_IDLE_SECONDS: Final = 30.0

_Job = tuple[
    asyncio.AbstractEventLoop, "asyncio.Future[Any]", contextvars.Context, Callable[..., Any], Mapping[str, Any]
]


@final
class ThreadPool:
    def __init__(self, size: int, *, max_waiting: int = 1000) -> None:
        self.size = size
        self.max_waiting = max_waiting
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._free = 0
        """Threads that wait for work and have none promised to them."""
        self._backlog = 0
        """Jobs that no thread is promised to."""

    @property
    def waiting(self) -> int:
        """Jobs that no thread has taken yet."""
        return self._backlog

    def submit(self, fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> asyncio.Future[Any]:
        """Run `fn(**kwargs)` in a thread; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            if self._free > 0:
                self._free -= 1
            elif self._threads < self.size:
                self._threads += 1
                threading.Thread(target=self._work, name=f"trimaran-{self._threads}", daemon=True).start()
            elif self._backlog >= self.max_waiting:
                raise ProtocolError.internal_error(
                    f"the server is busy: {self.size} tool threads at work and {self.max_waiting} calls waiting",
                    status=503,
                )
            else:
                self._backlog += 1
        self._jobs.put((loop, future, contextvars.copy_context(), fn, kwargs))
        return future

    def _work(self) -> None:
        while True:
            try:
                loop, future, context, fn, kwargs = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._free > 0:
                        self._free -= 1
                        self._threads -= 1
                        return
                continue  # every waiting thread is promised a job that is on its way
            if not future.cancelled():
                self._run(loop, future, context, fn, kwargs)
            del loop, future, context, fn, kwargs
            with self._lock:
                if self._backlog > 0:
                    self._backlog -= 1
                else:
                    self._free += 1

    @staticmethod
    def _run(
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        context: contextvars.Context,
        fn: Callable[..., Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        try:
            result, error = context.run(fn, **kwargs), None
        except BaseException as caught:
            result, error = None, caught
        try:
            loop.call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:  # the loop has closed: nobody waits any more
            return


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif (
        not isinstance(error, Exception) and type(error).__module__ in ("builtins", "asyncio.exceptions")
    ) or isinstance(error, StopIteration):
        # SystemExit, CancelledError and their like would be misread by the loop that carries them.
        future.set_exception(RuntimeError(f"a handler raised {type(error).__name__}"))
    else:
        future.set_exception(error)
