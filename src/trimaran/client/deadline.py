"""How long a caller waits: a deadline that progress extends and a person's answer suspends, and a way to give up by hand.

One `Deadline` per call, entered like a context manager in the task that makes the call. It ends the wait by cancelling
that task and turns the cancellation into the reason on the way out, so that what was being waited for is left in good
order and a cancellation by anyone else passes through untouched.

One `Clock` serves all waits of a connection with a single timer, set for the earliest deadline. Deadlines that move
later, and calls that are answered in time, cost it nothing. It trusts the system's clock, not the loop's: uvloop's stands
still while the loop does not turn, and would ring too early after a busy second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import monotonic
from types import TracebackType
from typing import Any, Final, Protocol, Self, final

from trimaran.errors import CallCancelled

# Timers have millisecond grain; without this one would ring, find nothing due, and be set again.
_GRAIN: Final = 0.001


class DeadlineExpired(Exception):
    """The deadline passed. Internal: the code that entered the deadline turns it into TimedOut."""


@final
class Clock:
    """Ends every wait whose deadline has passed, with one timer for all of them."""

    def __init__(self) -> None:
        self._waiting: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    def add(self, patience: Deadline) -> None:
        self._waiting.add(patience)
        if patience.ends < self._at:
            self._set(patience.ends)

    def drop(self, patience: Deadline) -> None:
        self._waiting.discard(patience)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at = None, inf

    def _set(self, at: float) -> None:
        self.close()
        if at < inf:
            self._at = at
            self._timer = asyncio.get_running_loop().call_later(max(at - monotonic(), 0.0) + _GRAIN, self._ring)

    def _ring(self) -> None:
        now = monotonic()
        self._timer, self._at = None, inf
        for patience in tuple(self._waiting):
            if patience.ends <= now:
                self._waiting.discard(patience)
                patience.expire()
        self._set(min((patience.ends for patience in self._waiting), default=inf))


@final
class Deadline:
    """Ends a wait after `seconds` without progress, and after `maximum` seconds in all; None for no limit."""

    # Defaults live on the class: most calls never touch them.
    ends: float = inf
    """When the wait is over."""
    reason: str | None = None
    """Why the call was cancelled, if a reason was given."""
    _ended: Exception | None = None
    _paused = 0
    _paused_at = 0.0
    _has_struck = False
    _has_left = False
    _task: asyncio.Task[Any] | None = None
    """The task that waits. A deadline that is not entered ends nothing."""

    def __init__(self, seconds: float | None, maximum: float | None, clock: Clock | None = None) -> None:
        self._seconds = seconds
        self._maximum = maximum
        self._clock = clock
        self.limit: float = seconds or 0.0
        """The limit that applies, for an error message."""

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        seconds, maximum = self._seconds, self._maximum
        if seconds is not None or maximum is not None:
            clock = self._clock
            if clock is None:
                clock = self._clock = Clock()
            self._since = now = monotonic()
            if maximum is None or (seconds is not None and seconds <= maximum):
                self.ends = now + seconds  # pyright: ignore[reportOperatorIssue]
            else:
                self.ends = now + maximum
                self.limit = maximum
            clock.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._clock is not None:
            self._clock.drop(self)
        self._has_left = True
        ended = self._ended
        if ended is None:
            return
        if not self._has_struck:  # given up by the task itself, which got here without waiting again
            raise ended from None
        if (
            self._task is not None
            and self._task.uncancel() <= self._before
            and isinstance(error, asyncio.CancelledError)
        ):
            raise ended from None

    def extend(self) -> None:
        """After progress: wait `seconds` again, but never past the maximum."""
        if self._seconds is None or self._paused or self.ends == inf:
            return
        self.ends = monotonic() + self._seconds
        if self._maximum is not None and self._since + self._maximum < self.ends:
            self.ends = self._since + self._maximum
            self.limit = self._maximum

    def pause(self) -> None:
        """Stop the clock while a person or a model answers."""
        self._paused += 1
        if self._paused == 1 and self.ends != inf:
            self._paused_at = monotonic()
            self._left = self.ends - self._paused_at
            self.ends = inf

    def resume(self) -> None:
        """Continue with the time that was left, so that a server gains no time by asking."""
        self._paused -= 1
        if self._paused == 0 and self._paused_at and self._clock is not None and not self._has_left:
            now = monotonic()
            self._since += now - self._paused_at
            self.ends = now + max(self._left, 0.0)
            self._paused_at = 0.0
            self._clock.add(self)

    def cancel(self, reason: str | None = None) -> None:
        """Give up now; the caller gets CallCancelled."""
        self.reason = reason
        self.end(CallCancelled(f"the call was cancelled{f': {reason}' if reason else ''}"))

    def end(self, error: Exception) -> None:
        """End the wait with this error."""
        if self._ended is not None or self._task is None:
            return
        self._ended = error
        loop = self._task.get_loop()
        if asyncio.current_task(loop) is self._task:
            # It is running, in a callback of the user's: a cancellation now might hit its next wait, outside of here.
            loop.call_soon(self._strike)
        else:
            self._strike()

    def expire(self) -> None:
        """The time is up."""
        self.reason = "the deadline has passed"
        self.end(DeadlineExpired())

    def _strike(self) -> None:
        if not self._has_left and self._task is not None:
            self._has_struck = True
            self._task.cancel()

    def __repr__(self) -> str:
        state: Any = self._ended or ("paused" if self._paused else "waiting")
        return f"<Deadline {self._seconds} s, {state}>"


class Suspendable(Protocol):
    def pause(self) -> None: ...
    def resume(self) -> None: ...


_waits: ContextVar[tuple[Suspendable, ...]] = ContextVar("trimaran_waits", default=())


@contextmanager
def suspendable(wait: Suspendable) -> Generator[None]:
    """Code in this block may pause this wait."""
    token = _waits.set((*_waits.get(), wait))
    try:
        yield
    finally:
        _waits.reset(token)


def current_waits() -> tuple[Suspendable, ...]:
    """The waits that the current code may pause."""
    return _waits.get()


_in_background: ContextVar[bool] = ContextVar("trimaran_in_background", default=False)


@contextmanager
def in_background() -> Generator[None]:
    """No caller waits for the code in this block, so it must not ask a person."""
    token = _in_background.set(True)
    try:
        yield
    finally:
        _in_background.reset(token)


def is_in_background() -> bool:
    return _in_background.get()


@final
class Suspension:
    """The clocks of one caller, while credentials are got for it.

    Those that measure the server alone stand still all the while; the others only while a person is asked, far below
    whoever set the deadline.
    """

    def __init__(self) -> None:
        waits = _waits.get()
        self._always = [wait for wait in waits if getattr(wait, "is_of_server", False)]
        self._others = [wait for wait in waits if not getattr(wait, "is_of_server", False)]
        self._is_with_person = False

    def __enter__(self) -> Self:
        for wait in self._always:
            wait.pause()
        return self

    def meet_person(self) -> None:
        if not self._is_with_person:
            self._is_with_person = True
            for wait in self._others:
                wait.pause()

    def leave_person(self) -> None:
        if self._is_with_person:
            self._is_with_person = False
            for wait in self._others:
                wait.resume()

    def __exit__(self, *exc: object) -> None:
        self.leave_person()
        for wait in self._always:
            wait.resume()


@final
class SuspendableTimeout:
    """`asyncio.timeout` that a person's answer suspends, and with it the clocks of those who follow.

    `of_server`: it measures how long the server is silent, so whatever else takes its time does not count. One limit may
    be used again, for another stretch of time.
    """

    def __init__(self, seconds: float | None = None, *, of_server: bool = False) -> None:
        self.is_of_server = of_server
        self._seconds = seconds
        self._timeout: asyncio.Timeout | None = None
        self._followers: list[Suspendable] = []
        self._left: float | None = None
        self._paused = 0

    def lasting(self, seconds: float | None) -> Self:
        """The same, with this much time from when it is entered."""
        self._seconds = seconds
        return self

    async def __aenter__(self) -> Self:
        timeout = asyncio.timeout(self._seconds)
        await timeout.__aenter__()
        self._timeout = timeout
        self._token = _waits.set((*_waits.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        _waits.reset(self._token)
        timeout, self._timeout = self._timeout, None  # tasks begun in here carry the context on
        assert timeout is not None
        return await timeout.__aexit__(kind, error, tb)

    @property
    def is_paused(self) -> bool:
        return self._paused > 0

    @contextmanager
    def followed_by(self, waits: tuple[Suspendable, ...]) -> Generator[None]:
        """Stop these clocks whenever this one is stopped."""
        self._followers += waits
        if self._paused:
            for wait in waits:
                wait.pause()
        try:
            yield
        finally:
            for wait in waits:
                self._followers.remove(wait)
                if self._paused:
                    wait.resume()

    def pause(self) -> None:
        self._paused += 1
        if self._paused > 1:
            return
        for wait in self._followers:
            wait.pause()
        when = self._timeout.when() if self._timeout is not None and not self._timeout.expired() else None
        if self._timeout is not None and when is not None:
            self._left = when - asyncio.get_running_loop().time()
            self._timeout.reschedule(None)

    def resume(self) -> None:
        self._paused -= 1
        if self._paused > 0:
            return
        for wait in self._followers:
            wait.resume()
        left, self._left = self._left, None
        if self._timeout is not None and left is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time() + max(left, 0.0))
