"""Clocks of tests: one that stands until it is moved, and one that moves as soon as everybody waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


class Clock:
    """Stands until a test moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class SkippingClock:
    """The clock of a running event loop that waits for nothing: where the loop would sleep, the time jumps to the next timer.

    So what is due first happens first, on a busy machine as on an idle one. For code that waits for timers alone: a child or
    a socket needs real time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(loop, asyncio.SelectorEventLoop)
        self._selector: Any = vars(loop)["_selector"]
        self._now = loop.time()
        monkeypatch.setattr(loop, "time", self)
        self._select = self._selector.select
        monkeypatch.setattr(self._selector, "select", self._wait)

    def __call__(self) -> float:
        return self._now

    def _wait(self, timeout: float | None) -> Any:
        if not timeout:  # something is ready, or nothing will ever be
            return self._select(timeout)
        self._now += timeout
        return self._select(0)
