"""Tell whether a child process is at work. Linux only: elsewhere the answer is always no.

A server on a busy machine may read a message long before it gets the processor to answer it. The client must not take that
for silence. `unread` of `process.py` says whether the message was read; this says whether somebody works on it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from trimaran.files import read_file

# Launchers such as npx start a shell that starts the server. A tree larger than this is not followed to its end.
_MOST_PROCESSES: Final = 16
_MOST_BYTES: Final = 4096
_WORKING: Final = frozenset({b"R", b"D"})  # runnable, or waiting for a disk


def is_working(pid: int) -> bool:
    """True if the process or one of its descendants runs, or waits for a processor."""
    waiting = [pid]
    for _ in range(_MOST_PROCESSES):
        if not waiting:
            return False
        folder = Path("/proc") / str(waiting.pop())
        with contextlib.suppress(OSError, IndexError):  # ended meanwhile, or no such system
            # The name of the program stands in parentheses, and may hold any character.
            if read_file(folder / "stat", _MOST_BYTES).rpartition(b")")[2].split()[0] in _WORKING:
                return True
            for thread in (folder / "task").iterdir():
                waiting += map(int, read_file(thread / "children", _MOST_BYTES).split())
    return False
