"""How a database is: well, away, full, or good for reading only.

After a failure it is left alone for a while: longer each time, never longer than two seconds. Whoever asks meanwhile is
refused at once. The next one after that tries, and if it succeeds all is well again. A failure that only writes meet (a
replica, a lock, a disk that is read-only) holds up no reading. A full database is not left alone: to be refused costs it
nothing, and the next write may be one that makes room.

The log hears once when it begins, with the cause and the remedy, and once when it is over.
"""

from __future__ import annotations

import secrets
import time
from typing import TypeVar, final

from trimaran.episode import Episode

from .contracts import StoreError, StoreFull, StoreUnavailable
from .memory import logger

__all__ = ["Backoff", "Condition"]

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
        # By chance a little shorter: workers that lost a database together must not all come back at the same moment.
        self._until = time.monotonic() + self._pause * (1 - secrets.randbelow(256) / 1024)
        self._message = message
        return StoreUnavailable(message, retry_after=self._pause)

    def succeeded(self) -> None:
        self._pause = self._until = 0.0


@final
class Condition:
    """What is known of one database.

    Args:
        where: What the log calls it; without a password.
    """

    def __init__(self, where: str) -> None:
        self._all = Backoff()
        self._writing = Backoff()
        self._away = Episode(logger, f"the store {where} can be used again")
        self.is_starting = False
        """Whoever starts it hears what is wrong, and says so."""
        self._refusing = Episode(logger, f"the store {where} takes writes again")

    def check(self, *, writes: bool) -> None:
        """Is it worth trying now?

        Raises:
            StoreUnavailable: It failed a moment ago.
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

    def _log(self, episode: Episode, error: E) -> E:
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
