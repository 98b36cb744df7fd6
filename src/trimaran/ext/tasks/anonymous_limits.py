"""Limits on the tasks of anonymous callers: how many each may have, and which one ends when there are too many.

A caller with a name has its own limit, in the store (`most_per_caller`). Without one, callers are told apart by the network
address they come from, an IPv6 network of 64 bits being one; all who come by way of one proxy are one, unless the server was told to
trust that proxy (`RateLimit(trusted_proxies=...)`). Callers without an address, as on stdio, share one place.

A place has room for `most_per_caller` bodies at work in this process, and all of them together for ten times that. Where a
place is full, its task that has waited longest for an answer of its client gives way: it fails, with the reason. Where all
is full, that of the place which has most. A body that works never gives way; if none waits, the newcomer is refused.

The log has one line when there is no room, and one when there is room again; `/readyz` reports it meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

from trimaran.errors import ProtocolError
from trimaran.server.handlers import logger

if TYPE_CHECKING:
    from .run import TaskRun

GAVE_WAY: Final = "the server had no room for another task, and this one had waited longest for an answer of its client, so it was ended"
_PLACES: Final = 10
# So long after the last time somebody was refused, or gave way, there is room again.
_QUIET_SECONDS: Final = 60.0


def is_anonymous(owner: str) -> bool:
    return not owner or owner.startswith("session:")


@final
class AnonymousLimits:
    """The bodies of anonymous callers in this process.

    Args:
        most: how many of one place.
        clock: seconds that only grow.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._most_in_all = most * _PLACES
        self._clock = clock
        self._places: dict[str, dict[TaskRun, None]] = {}
        """Oldest first."""
        self._entering: Counter[str] = Counter()
        self._count = 0
        self.refused: int = 0
        """How many were refused, or gave way, since the start."""
        self._last_refused: float | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether a caller was refused, or a task ended to make room, a moment ago."""
        last = self._last_refused
        if last is not None and self._clock() - last > _QUIET_SECONDS:
            self._last_refused = None
            logger.warning("there is room for tasks of anonymous callers again (%d had none)", self.refused)
        return self._last_refused is not None

    @contextmanager
    def entering(self, place: str) -> Generator[TaskRun | None]:
        """While a task is made: its place is taken. The one that gives way for it, and must be ended.

        Raises:
            ProtocolError: There is no room.
        """
        victim = self._make_room(place)
        self._entering[place] += 1
        try:
            yield victim
        finally:
            self._entering[place] -= 1
            if not self._entering[place]:
                del self._entering[place]

    def add(self, run: TaskRun) -> None:
        self._places.setdefault(run.place, {})[run] = None
        self._count += 1

    def drop(self, run: TaskRun) -> None:
        runs = self._places.get(run.place)
        if runs is not None and runs.pop(run, run) is None:
            self._count -= 1
            if not runs:
                del self._places[run.place]

    def _make_room(self, place: str) -> TaskRun | None:
        _ = self.is_full  # says that it is over, if it is
        if self._count_at(place) >= self._most:
            crowd = [place]
        elif self._count + self._entering.total() >= self._most_in_all:
            crowd = sorted(self._places, key=self._count_at, reverse=True)
        else:
            return None
        self._say_full(place)
        victim = next((run for place in crowd for run in self._places.get(place, ()) if run.voice.is_asking), None)
        if victim is None:
            most = self._most if crowd == [place] else self._most_in_all
            raise ProtocolError.internal_error(
                f"{most} tasks of anonymous callers are at work already; wait until some are done", status=503
            )
        self.drop(victim)  # at once: the next caller must choose another
        return victim

    def _count_at(self, place: str) -> int:
        return len(self._places.get(place, ())) + self._entering[place]

    def _say_full(self, place: str) -> None:
        self.refused += 1
        if self._last_refused is None:
            logger.warning(
                "no room for more tasks of anonymous callers: %d are at work, %d of them from %s; tasks that wait for an "
                "answer give way, and while none does, new ones are refused",
                self._count,
                self._count_at(place),
                place or "a caller without an address",
            )
        self._last_refused = self._clock()
