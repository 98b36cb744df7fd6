"""Bytes that many logs may hold together.

Each log says what it has grown by. When they have grown by a sixteenth of the budget, their sizes are added up, and the
largest gives up the older half of what it holds, then the next largest, until all fit. So what they hold together is
bounded by the budget and a sixteenth, whoever has little loses nothing to one who has much, and nobody has to say when a
log is gone: it is simply not there at the next count.
"""

from __future__ import annotations

import heapq
from typing import Protocol, final
from weakref import WeakSet

__all__ = ["ByteBudget", "Holder"]


class Holder(Protocol):
    """A log that can give up what is oldest in it."""

    @property
    def held_bytes(self) -> int: ...

    def halve(self) -> None:
        """Give up the older half, or more; of a single entry, that."""
        ...


@final
class ByteBudget:
    def __init__(self, most: int) -> None:
        self.most = most
        self._holders: WeakSet[Holder] = WeakSet()
        self._grown = 0

    def join(self, holder: Holder) -> None:
        self._holders.add(holder)

    def grew(self, size: int) -> None:
        """Some holder has `size` bytes more than before."""
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
