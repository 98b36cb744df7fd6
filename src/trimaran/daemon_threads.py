"""Threads that cannot keep a process from ending, as an executor.

The executors of the standard library are waited for without a limit when the interpreter ends, and the loop's own one
already when the loop closes: one function that hangs in a thread makes a server deaf to SIGTERM. These threads are waited
for a moment, and then left behind.

Plain authentication and the SQLite store run on them. So does `asyncio.to_thread` in a process that is the server's own
(`server.run` and the command line); a loop of somebody else keeps its own executor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar, final

T = TypeVar("T")

# After the calls have had their second: two seconds in all are what a server takes to stop.
_PATIENCE: Final = 1.0
_SIZE: Final = min(32, (os.cpu_count() or 1) + 4)  # as asyncio has it

_logger: Final = logging.getLogger("trimaran.server")


@final
class DaemonExecutor(ThreadPoolExecutor):  # asyncio takes no other
    """Like its base, on daemon threads."""

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size)
        self._size = size
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._at_work: set[threading.Thread] = set()
        self._idle = 0
        """Threads that have nothing to do; below zero, jobs that wait for one."""
        self._is_over = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        with self._guard:
            if self._is_over:
                raise RuntimeError("the threads have ended: nothing more can run in them")
            if self._idle <= 0 and len(self._at_work) < self._size:
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                thread.start()
                self._at_work.add(thread)
            else:
                self._idle -= 1
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _carry_out(*job)
            del job
            with self._guard:
                self._idle += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._guard:
            self._is_over = True
            threads = tuple(self._at_work)
        while cancel_futures:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is not None:
                job[0].cancel()
        for _ in threads:
            self._jobs.put(None)
        if wait:
            until = time.monotonic() + _PATIENCE
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            hanging = sum(thread.is_alive() for thread in threads)
            if hanging:
                _logger.warning(
                    "%d functions still run in threads (%s): the process ends without them", hanging, self._name
                )


def _carry_out(future: Future[Any], run: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = run()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


async def own_process(main: Coroutine[Any, Any, T]) -> T:
    """Run this in a process that nobody else has a say in."""
    asyncio.get_running_loop().set_default_executor(DaemonExecutor(_SIZE, "asyncio.to_thread"))
    return await main
