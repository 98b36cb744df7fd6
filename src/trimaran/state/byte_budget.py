"""A limit on the bytes that many logs hold together.

Each log reports its growth. When all have grown by a sixteenth of the budget, their sizes are added up. The largest log
drops the older half of its bytes, then the next largest, until all fit. So the total stays below the budget and a
sixteenth, and a small log loses nothing to a large one. A log that is gone needs no report: the next count misses it.
"""

from __future__ import annotations

import heapq
from typing import Protocol, final
from weakref import WeakSet


class BudgetedLog(Protocol):
    """A log that can drop its oldest entries."""

    @property
    def held_bytes(self) -> int: ...

    def halve(self) -> None:
        """Drop the older half of the bytes, or more; a single entry is dropped whole."""
        ...


@final
class ByteBudget:
    def __init__(self, most: int) -> None:
        self.most = most
        self._holders: WeakSet[BudgetedLog] = WeakSet()
        self._grown = 0

    def join(self, holder: BudgetedLog) -> None:
        self._holders.add(holder)

    def grew(self, size: int) -> None:
        """A log has grown by `size` bytes."""
        self._grown += size
        if self._grown * 16 > self.most:
            self._grown = 0
            self._settle()

    def _settle(self) -> None:
        holders = {id(holder): holder for holder in self._holders}
        total = sum(holder.held_bytes for holder in holders.values())
        if total <= self.most:
            return
        largest = [(-holder.held_bytes, key) for key, holder in holders.items()]
        heapq.heapify(largest)
        while total > self.most and largest:
            size, key = heapq.heappop(largest)
            holder = holders[key]
            holder.halve()
            total += size + holder.held_bytes
            if 0 < holder.held_bytes < -size:
                heapq.heappush(largest, (-holder.held_bytes, key))
