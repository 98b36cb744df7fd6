"""Share the event loop with others while there is always more to read.

A server that sends without a pause keeps its reader busy: the next bytes are there before the last are dealt with, so
nothing is ever waited for, and nobody else has a turn. Whoever reads in a loop asks a `Turn` and lets the others go on.
"""

from __future__ import annotations

from time import monotonic
from typing import Final, final

__all__ = ["Turn"]

# A call of somebody else's takes a few turns of the loop, and should not take a tenth of a second longer for it.
_SECONDS: Final = 0.005


@final
class Turn:
    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._ends = monotonic() + _SECONDS

    @property
    def is_over(self) -> bool:
        return monotonic() > self._ends
