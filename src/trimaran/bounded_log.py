"""Log what a stranger can cause any number of times: some lines of each kind in a minute, then how many more there were.

A refused credential is worth a line, and a million of them would fill the disk. Our own outages are in
`outage_log.py`; records that must be complete are in the audit log.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final, final

MOST: Final = 10  # of each kind in a period: enough to see what happens, 2 MB a day in a flood
PERIOD: Final = 60.0  # seconds
_MOST_KINDS: Final = 1000  # a peer may make up some of them


class _Kind:
    __slots__ = ("began", "count")

    def __init__(self, now: float) -> None:
        self.began = now
        self.count = 0


_kinds: dict[tuple[str, str, str], _Kind] = {}
_lock = threading.Lock()


def forget_kinds() -> None:
    """Begin all periods anew. For tests, which come in one process."""
    with _lock:
        _kinds.clear()


@final
class BoundedLog:
    """A logger that is bounded. Any thread may use it.

    Messages are of one kind if their text is the same before its arguments are put in, and their `kind`.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, text: str, *arguments: object, kind: str = "") -> None:
        self._log(logging.INFO, text, arguments, kind)

    def warning(self, text: str, *arguments: object, kind: str = "") -> None:
        self._log(logging.WARNING, text, arguments, kind)

    def error(self, text: str, *arguments: object, kind: str = "") -> None:
        self._log(logging.ERROR, text, arguments, kind)

    def _log(self, level: int, text: str, arguments: tuple[Any, ...], kind: str) -> None:
        if not self._logger.isEnabledFor(level):
            return
        count, before = self._count(text, kind)
        if count > MOST:
            return
        if before > MOST:
            text += " (%d more like this were left out)"
            arguments += (before - MOST,)
        if count == MOST:
            text += " (more like this in the next %d s are counted only)"
            arguments += (PERIOD,)
        self._logger.log(level, text, *arguments, stacklevel=3)

    def _count(self, text: str, kind: str) -> tuple[int, int]:
        """How many there were in this period, with this one; and in the last one, if this is the first of a new period."""
        now = time.monotonic()
        key = (self._logger.name, text, kind)
        with _lock:
            known = _kinds.get(key)
            before = 0
            if known is None or now - known.began >= PERIOD:
                before = 0 if known is None else known.count
                if len(_kinds) >= _MOST_KINDS:
                    _kinds.clear()
                known = _kinds[key] = _Kind(now)
            known.count += 1
            return known.count, before
