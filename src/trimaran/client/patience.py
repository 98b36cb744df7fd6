"""How long a caller waits: a deadline that progress extends and a person's answer suspends, and a way to give up by hand.

One object per call, entered like a context manager in the task that makes the call. It ends the wait by cancelling that
task and turns the cancellation into TimedOut or CallCancelled on the way out, so that what was being waited for is left
in good order and a cancellation by anyone else passes through untouched.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self, final

from trimaran.errors import CallCancelled

__all__ = ["Expired", "Patience"]


class Expired(Exception):
    """The deadline passed. Internal: whoever entered the patience says what was being waited for."""


@final
class Patience:
    """`seconds` without a sign of life, `maximum` in all; None for no limit."""

    __slots__ = (
        "_before",
        "_ended",
        "_ends",
        "_has_left",
        "_has_struck",
        "_loop",
        "_maximum",
        "_paused",
        "_seconds",
        "_since",
        "_task",
        "_timer",
        "limit",
        "reason",
    )

    def __init__(self, seconds: float | None, maximum: float | None) -> None:
        self._seconds = seconds
        self._maximum = maximum
        self._timer: asyncio.TimerHandle | None = None
        self._ended: Exception | None = None
        self._paused = 0
        self._has_struck = self._has_left = False
        self._since = self._ends = 0.0
        self.limit = seconds or 0.0
        """The limit that applies, for an error message."""
        self.reason: str | None = None
        """Why the call was given up, if somebody said."""

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = loop = asyncio.get_running_loop()
        self._before = task.cancelling()
        seconds = self._seconds
        if seconds is not None or self._maximum is not None:
            self._since = loop.time()
            self._arm(seconds)
        return self

    def _arm(self, delay: float | None) -> None:
        """Set the timer: so many seconds from now, but not past the maximum."""
        now = self._loop.time()
        if self._maximum is not None and (delay is None or self._since + self._maximum - now < delay):
            delay = max(self._since + self._maximum - now, 0.0)
            self.limit = self._maximum
        if delay is not None:
            self._ends = now + delay
            self._timer = self._loop.call_later(delay, self._expire)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ended = self._ended
        self._has_left = True
        if ended is None:
            return
        if not self._has_struck:  # given up by the task itself, which got here without waiting again
            raise ended from None
        if self._task.uncancel() <= self._before and isinstance(error, asyncio.CancelledError):
            raise ended from None

    def extend(self) -> None:
        """There was progress: wait as long again, but never past the maximum."""
        if self._timer is not None and not self._paused and self._seconds is not None:
            self._timer.cancel()
            self._arm(self._seconds)

    def pause(self) -> None:
        """A person or a model is being asked: their time is not the server's."""
        self._paused += 1
        if self._paused == 1 and self._timer is not None:
            self._timer.cancel()
            now = self._loop.time()
            self._since -= now
            self._ends -= now

    def resume(self) -> None:
        """Go on with what was left, so that a server cannot win time by asking."""
        self._paused -= 1
        if self._paused == 0 and self._timer is not None:
            now = self._loop.time()
            self._since += now
            self._ends += now
            self._timer = self._loop.call_later(max(self._ends - now, 0.0), self._expire)

    def cancel(self, reason: str | None = None) -> None:
        """Give up now; the caller gets CallCancelled."""
        self.reason = reason
        self.end(CallCancelled(f"the call was cancelled{f': {reason}' if reason else ''}"))

    def end(self, error: Exception) -> None:
        """End the wait with this error."""
        if self._ended is not None:
            return
        self._ended = error
        if asyncio.current_task(self._loop) is self._task:
            # It is running, in a callback of the user's: a cancellation now might hit its next wait, outside of here.
            self._loop.call_soon(self._strike)
        else:
            self._strike()

    def _strike(self) -> None:
        if not self._has_left:
            self._has_struck = True
            self._task.cancel()

    def _expire(self) -> None:
        self.reason = "the deadline has passed"
        self.end(Expired())

    def __repr__(self) -> str:
        state: Any = self._ended or ("paused" if self._paused else "waiting")
        return f"<Patience {self._seconds} s, {state}>"
