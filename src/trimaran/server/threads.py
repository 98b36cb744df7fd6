"""A bounded pool of daemon threads for plain `def` handlers.

Our own, so that a slow tool cannot starve, or be starved by, whatever else uses the loop's default executor (P46), and
so that a stuck tool cannot keep the process from ending. A handler runs in a copy of the caller's context variables.
A cancelled caller stops waiting at once; the thread runs on and its result is dropped, unless the handler watches
`ctx.cancelled`. The pool grows by need up to its size; a thread that has been idle for half a minute goes.

A job that finds no thread waits in a queue, and leaves it when its caller does. The caller can tell from its
`Ticket` that it never began. Handlers that hang keep their threads; that shows in `busy` and `stalled`, and in the log.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from trimaran.errors import ProtocolError

if TYPE_CHECKING:
    from .exchange import Exchange

_IDLE_SECONDS: Final = 30.0
# Every thread busy, and none done for this long: the handlers hang, or there are too few threads. Balancers ask about as often.
STALLED_SECONDS: Final = 5.0

LARGE_MESSAGE: Final = 256 * 1024
"""Bytes of a message, or of arguments, that are read on the event loop. Reading more takes many milliseconds: decode, check,
repair and decode again. A thread does that, and the loop serves others between these steps."""

_logger: Final = logging.getLogger("trimaran.server")


@final
class Ticket:
    """The place of a job in the queue."""

    __slots__ = ("since", "size", "waited")

    def __init__(self, size: int) -> None:
        self.size: int = size
        """Threads there are; all of them were busy."""
        self.since: float = time.monotonic()
        self.waited: float | None = None
        """Seconds until it had a thread; None while it has none."""


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    context: contextvars.Context
    fn: Callable[..., Any]
    kwargs: Mapping[str, Any]
    ticket: Ticket | None


@final
class ThreadPool:
    def __init__(self, size: int, *, max_waiting: int = 1000) -> None:
        self.size = size
        self.max_waiting = max_waiting
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        """For threads that wait."""
        self._queue: dict[asyncio.Future[Any], _Job] = {}
        """Jobs that no thread is promised to, the oldest first."""
        self._lock = threading.Lock()
        self._threads = 0
        self._free = 0
        """Threads that wait for work and have none promised to them."""
        self._running: dict[int, tuple[Callable[..., Any], float]] = {}
        """The work of each thread, and since when it runs."""
        self._full_since: float | None = None
        """When the last free thread was taken, or one was last done: while none is free."""
        self._trouble: Any = None

    @property
    def waiting(self) -> int:
        """Jobs that no thread has taken yet."""
        return len(self._queue)

    @property
    def busy(self) -> int:
        """Threads that run a job."""
        return self._threads - self._free

    @property
    def stalled(self) -> float:
        """Seconds for which every thread has been busy and none has finished."""
        since = self._full_since
        return 0.0 if since is None else time.monotonic() - since

    def submit(
        self, fn: Callable[..., Any], kwargs: Mapping[str, Any], exchange: Exchange | None = None
    ) -> asyncio.Future[Any]:
        """Run `fn(**kwargs)` in a thread; the future belongs to the running loop.

        `exchange` gets a ticket if the job has to wait.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        with self._lock:
            has_thread = self._take_thread()
            if not has_thread:
                self._check_room()
                ticket = Ticket(self._threads)
                self._queue[future] = _Job(loop, future, context, fn, kwargs, ticket)
            if self._full_since is None and self._free <= 0 and (self._threads >= self.size or not has_thread):
                self._full_since = time.monotonic()
        if has_thread:
            self._jobs.put(_Job(loop, future, context, fn, kwargs, None))
            return future
        future.add_done_callback(self._leave)
        if exchange is not None:
            exchange.ticket = ticket  # pyright: ignore[reportPossiblyUnboundVariable]
        if self.stalled > STALLED_SECONDS:
            self._say(f"{self._describe()}, and calls wait for a thread")
        return future

    def _take_thread(self) -> bool:
        if self._free > 0:
            self._free -= 1
            return True
        if self._threads >= self.size:
            return False
        self._threads += 1
        try:
            threading.Thread(target=self._work, name=f"trimaran-{self._threads}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # the limit on processes, or memory
            self._threads -= 1
            self._say(
                f"no more than {self._threads} of {self.size} threads for plain functions can be started ({error}): "
                "raise the limit of processes (ulimit -u), or lower tool_threads"
            )
            if not self._threads:
                raise ProtocolError.internal_error(
                    "the server cannot start a thread for this at the moment; try again later", status=503
                ) from None
            return False
        return True

    def _check_room(self) -> None:
        if len(self._queue) >= self.max_waiting:
            self._say(f"{self._describe()}, and {self.max_waiting} calls wait: further ones are refused")
            raise ProtocolError.internal_error(
                f"the server is busy: {self._threads} tool threads at work and {self.max_waiting} calls waiting",
                status=503,
            )

    def _leave(self, future: asyncio.Future[Any]) -> None:
        """Nobody waits for this job any more, or it is done."""
        with self._lock:
            self._queue.pop(future, None)

    def _say(self, text: str) -> None:
        if self._trouble is None:
            from trimaran.outage_log import Outage

            self._trouble = Outage(_logger, "threads for plain functions are free again")
        self._trouble.failed(text)

    def _describe(self) -> str:
        now = time.monotonic()
        longest = sorted(self._running.copy().values(), key=lambda job: job[1])[:3]
        names = ", ".join(f"{getattr(fn, '__name__', 'a function')} for {now - since:.0f} s" for fn, since in longest)
        return (
            f"all {self._threads} threads for plain functions are busy (the longest: {names}). A function that hangs keeps "
            "its thread: give what it waits for a timeout, write it as `async def`, or raise tool_threads"
        )

    # In the threads

    def _work(self) -> None:
        me = threading.get_ident()
        job: _Job | None = None
        while True:
            if job is None:
                try:
                    job = self._jobs.get(timeout=_IDLE_SECONDS)
                except queue.Empty:
                    with self._lock:
                        if self._free > 0:
                            self._free -= 1
                            self._threads -= 1
                            return
                    continue  # every waiting thread is promised a job that is on its way
            if not job.future.cancelled():
                self._running[me] = job.fn, time.monotonic()
                _run(job)
                self._running.pop(me, None)
            job = None
            with self._lock:
                if self._queue:
                    job = self._queue.pop(next(iter(self._queue)))
                    assert job.ticket is not None
                    job.ticket.waited = time.monotonic() - job.ticket.since
                    self._full_since = time.monotonic()
                else:
                    self._free += 1
                    self._full_since = None
            if self._trouble is not None:
                self._trouble.succeeded()


def _run(job: _Job) -> None:
    try:
        result, error = job.context.run(job.fn, **job.kwargs), None
    except BaseException as caught:
        result, error = None, caught
    try:
        job.loop.call_soon_threadsafe(_settle, job.future, result, error)
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
