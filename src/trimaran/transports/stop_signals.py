"""The signals that end our processes, and their delivery to an event loop. The caller decides how to end.

`hear` is for a process whose signals are ours. `overhear` is for an application in somebody else's: servers for ASGI wait
until every response has ended, and run the lifespan's shutdown only then. An event stream of ours ends when its client
leaves, so with one client connected they would wait for ever, and no message of ASGI says so before.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import threading
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final, Protocol, final

ENDS: Final = (signal.SIGTERM, signal.SIGINT)


def hangup() -> tuple[signal.Signals, ...]:
    """SIGHUP, where it ends a process: the terminal was closed. Not under nohup, and Windows has no such signal."""
    number = getattr(signal, "SIGHUP", None)
    return () if number is None or signal.getsignal(number) == signal.SIG_IGN else (number,)


def hear(numbers: Iterable[signal.Signals], callback: Callable[[], object]) -> None:
    """Have the running loop call this for each of these signals.

    Outside the main thread nothing is heard, because Python allows no handlers there: the thread ends with its process.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in numbers:
        try:
            loop.add_signal_handler(number, callback)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda number, frame: loop.call_soon_threadsafe(callback) and None)


class Stoppable(Protocol):
    def begin_to_stop(self) -> None: ...


def overhear(app: Stoppable) -> None:
    """Have the running loop call `app.begin_to_stop` when a signal ends this process; no reference to it is kept.

    The handler that was there is called as well, and decides. Without one the process ends at once, and there is nothing
    to do. Outside the main thread nothing is heard, because Python allows no handlers there.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in ENDS:
        handler = signal.getsignal(number)
        if not callable(handler) or handler is signal.default_int_handler or _is_of_asyncio_run(handler):
            continue
        if not isinstance(handler, _Relay):
            handler = _Relay(handler)
            signal.signal(number, handler)
        handler.apps[app] = loop


@final
class _Relay:
    """Tells the apps, then calls the handler whose place it took."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.apps: weakref.WeakKeyDictionary[Stoppable, asyncio.AbstractEventLoop] = weakref.WeakKeyDictionary()
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for app, loop in tuple(self.apps.items()):
            with contextlib.suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(app.begin_to_stop)
        self._handler(number, frame)


def _is_of_asyncio_run(handler: object) -> bool:
    """It cancels the program's main task, and is taken away only if it is still in its place."""
    return isinstance(handler, functools.partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )
