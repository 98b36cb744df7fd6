"""Share the event loop with others while there is always more to read.

A server that sends without a pause keeps its reader busy: the next bytes arrive before the last ones are handled, so the
reader never waits and no other task runs. A loop that reads asks a `FairTurn` when to yield.
"""

from __future__ import annotations

from time import monotonic
from typing import Final, final

# A call of somebody else's takes a few turns of the loop, and should not take a tenth of a second longer for it.
_SECONDS: Final = 0.005


@final
class FairTurn:
    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._ends = monotonic() + _SECONDS

    @property
    def is_over(self) -> bool:
        return monotonic() > self._ends
