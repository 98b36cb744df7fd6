"""The health of a database: well, away, full, or readable only.

After a failure the database rests for a pause that grows each time, up to two seconds. Operations fail at once during the
pause. The next one after it tries, and if it succeeds the database is well again. A failure that only writes meet (a
replica, a lock, a read-only disk) does not stop reads. A full database gets no pause: a refusal costs it nothing, and the
next write may be one that makes room.

The log has one line when a failure begins, with cause and remedy, and one when it is over.
"""

from __future__ import annotations

import secrets
import time
from typing import TypeVar, final

from trimaran.outage_log import Outage

from .contracts import StoreError, StoreFull, StoreUnavailable
from .records import logger

E = TypeVar("E", bound=StoreError)


@final
class Backoff:
    """A pause after each failure, longer each time."""

    def __init__(self) -> None:
        self._pause = 0.0
        self._until = 0.0
        self._message = ""

    def check(self) -> None:
        left = self._until - time.monotonic()
        if left > 0:
            raise StoreUnavailable(self._message, retry_after=left)

    def failed(self, message: str) -> StoreUnavailable:
        self._pause = min(2.0, 2 * self._pause or 0.05)
        # A little shorter at random: workers that lost a database together must not all return at the same moment.
        self._until = time.monotonic() + self._pause * (1 - secrets.randbelow(256) / 1024)
        self._message = message
        return StoreUnavailable(message, retry_after=self._pause)

    def succeeded(self) -> None:
        self._pause = self._until = 0.0


@final
class DatabaseHealth:
    """The health of one database.

    Args:
        where: The name of the database in the log; without a password.
    """

    def __init__(self, where: str) -> None:
        self._all = Backoff()
        self._writing = Backoff()
        self._away = Outage(logger, f"the store {where} can be used again")
        self.is_starting = False
        """While true, failures are not logged: the caller of `start` receives the error."""
        self._refusing = Outage(logger, f"the store {where} takes writes again")

    def check(self, *, writes: bool) -> None:
        """Raise if the database failed a moment ago.

        Raises:
            StoreUnavailable: With the seconds until the next attempt.
        """
        try:
            self._all.check()
            if writes:
                self._writing.check()
        except StoreUnavailable as error:
            error.is_logged = True
            raise

    def failed(self, message: str, *, only_writes: bool = False) -> StoreUnavailable:
        pause, episode = (self._writing, self._refusing) if only_writes else (self._all, self._away)
        return self._log(episode, pause.failed(message))

    def full(self, message: str) -> StoreFull:
        return self._log(self._refusing, StoreFull(message))

    def _log(self, episode: Outage, error: E) -> E:
        if not self.is_starting:
            episode.failed(str(error))
            error.is_logged = True
        return error

    def succeeded(self, *, writes: bool) -> None:
        self._all.succeeded()
        self._away.succeeded()
        if writes:
            self._writing.succeeded()
            self._refusing.succeeded()
