"""Log an outage once when it begins and once when it is over, however often it fails in between.

A database that is away fails every request, and a full table of descriptors every connection. The log of such an hour has
two lines: the cause with its remedy, and the end. A success soon after a failure does not count as
the end, or a disk that is nearly full would fill the log.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final, final

# Seconds without a failure after which a success is the end.
_QUIET: Final = 3.0


@final
class Outage:
    """One kind of outage. Any thread may report it.

    Args:
        over: The message at the end; the duration follows it.
    """

    def __init__(self, logger: logging.Logger, over: str) -> None:
        self._logger = logger
        self._over = over
        self._text = ""
        self._since = 0.0
        self._last = self._logged_at = 0.0
        self._failures = 0
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        return self._failures > 0

    def failed(self, text: str) -> None:
        """Report a failure. A new text is a new cause, and is logged."""
        now = time.monotonic()
        with self._lock:
            if not self._failures:
                self._since = now
            if not self._failures or (text != self._text and now - self._logged_at > _QUIET):
                self._logger.warning("%s", text)
                self._text, self._logged_at = text, now
            self._failures += 1
            self._last = now

    def succeeded(self) -> None:
        if not self._failures:  # nearly always
            return
        with self._lock:
            now = time.monotonic()
            if self._failures and now - self._last > _QUIET:
                text = "%s, after %.0f s in which it failed %d times"
                self._logger.warning(text, self._over, now - self._since, self._failures)
                self._failures = 0
