"""The deadlines of calls at work: which of them ends next, with few timers.

A short limit has a timer of its own and is kept to the millisecond. Longer ones are looked at together, once a second: a
timer made and cancelled costs more than many a call that only waits for another server.

Not thread-safe: one event loop uses it at a time.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from .exchange import Exchange

PRECISE_SECONDS: Final = 10.0  # a second more is a tenth of it; nobody waits so long and counts
_SWEEP_SECONDS: Final = 1.0


@final
class Deadlines:
    """Expires each call that has taken longer than it may."""

    def __init__(self) -> None:
        self._ends: dict[Exchange, float] = {}
        """When calls with a long limit end, on the loop's clock."""
        self._timers: dict[Exchange, asyncio.TimerHandle] = {}
        """Of calls with a short limit."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def set(self, exchange: Exchange, seconds: float | None) -> None:
        """Let a call take this long from its beginning; None or infinity for any time."""
        self.remove(exchange)
        assert exchange.task is not None
        self.add(exchange, seconds, exchange.task.get_loop())

    def add(self, exchange: Exchange, seconds: float | None, loop: asyncio.AbstractEventLoop) -> None:
        """The same for a call that has just begun."""
        if seconds is None or seconds == inf:
            return
        if seconds < PRECISE_SECONDS:
            self._timers[exchange] = loop.call_at(exchange.began + seconds, exchange.expire)
            return
        self._ends[exchange] = exchange.began + seconds
        if self._sweeper is None or self._loop is not loop:
            self._loop = loop  # an endpoint may outlive a loop, whose timers never ring again
            self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def remove(self, exchange: Exchange) -> None:
        """The call is over."""
        if self._ends.pop(exchange, None) is None and self._timers:
            timer = self._timers.pop(exchange, None)
            if timer is not None:
                timer.cancel()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for exchange in [exchange for exchange, end in self._ends.items() if end <= now]:
            del self._ends[exchange]
            exchange.expire()
        self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep, loop) if self._ends else None
