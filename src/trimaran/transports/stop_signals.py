"""The signals that end our processes, and their delivery to an event loop. The caller decides how to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable
from typing import Final

ENDS: Final = (signal.SIGTERM, signal.SIGINT)


def hangup() -> tuple[signal.Signals, ...]:
    """SIGHUP, where it ends a process: the terminal was closed. Not under nohup, and Windows has no such signal."""
    number = getattr(signal, "SIGHUP", None)
    return () if number is None or signal.getsignal(number) == signal.SIG_IGN else (number,)


def hear(numbers: Iterable[signal.Signals], callback: Callable[[], object]) -> None:
    """Have the running loop call this for each of these signals."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        try:
            loop.add_signal_handler(number, callback)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda number, frame: loop.call_soon_threadsafe(callback) and None)
