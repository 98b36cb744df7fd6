"""What `asyncio.to_thread` runs on in a process that is the server's own: threads that cannot keep it from ending.

The loop's usual executor is waited for without a limit, when the loop closes and again when the interpreter ends: one
function that hangs in a thread would make a server deaf to SIGTERM. Here it is waited for a moment, and then left behind.
`server.run` and the command line use it; a loop of somebody else keeps its own.
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

__all__ = ["DaemonExecutor", "own_process"]

T = TypeVar("T")

# After the calls have had their second: two seconds in all are what a server takes to stop.
_PATIENCE: Final = 1.0
_SIZE: Final = min(32, (os.cpu_count() or 1) + 4)  # as asyncio has it

_logger: Final = logging.getLogger("trimaran.server")


@final
class DaemonExecutor(ThreadPoolExecutor):  # asyncio takes no other
    """Like its base, on daemon threads."""

    def __init__(self) -> None:
        super().__init__(_SIZE)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._at_work: set[threading.Thread] = set()
        self._idle = 0
        self._is_over = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        with self._guard:
            if self._is_over:
                raise RuntimeError("the server is stopping: nothing more is run in threads")
            if self._idle > 0:
                self._idle -= 1
            elif len(self._at_work) < _SIZE:
                thread = threading.Thread(target=self._work, name="trimaran to_thread", daemon=True)
                thread.start()
                self._at_work.add(thread)
            else:
                self._idle -= 1  # promised to the next that is free
        self._jobs.put(run)
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job
            with self._guard:
                self._idle += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._guard:
            self._is_over = True
            threads = tuple(self._at_work)
        for _ in threads:
            self._jobs.put(None)
        if wait:
            until = time.monotonic() + _PATIENCE
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            hanging = sum(thread.is_alive() for thread in threads)
            if hanging:
                _logger.warning(
                    "%d functions still run in threads (asyncio.to_thread): the process ends without them", hanging
                )


async def own_process(main: Coroutine[Any, Any, T]) -> T:
    """Run this in a process that nobody else has a say in."""
    asyncio.get_running_loop().set_default_executor(DaemonExecutor())
    return await main
