"""Waits of tests, each with an end.

An expected thing comes within milliseconds, or the test fails: so a bound of `PATIENCE` costs nothing, and it leaves time to a
machine that is busy with much else. A wait for a thing that must *not* come is as short as it likes. An assertion about how
long something took leaves room for the same machine: five times the usual time, or it counts work instead.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

PATIENCE = 30.0  # seconds

T = TypeVar("T")


async def until(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE) -> Any:
    """The first true value of a condition, which may be a coroutine function; `what` says what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or _source(condition)}"
        await asyncio.sleep(0.002)


def wait_until(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE) -> Any:
    """The same where no event loop runs."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or _source(condition)}"
        time.sleep(0.005)
    return value


async def soon(awaitable: Awaitable[T], seconds: float = PATIENCE) -> T:
    """Its result; a failure that says so if it hangs."""
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            return await awaitable
    except TimeoutError:
        if scope.expired():
            raise AssertionError(f"hangs: not done after {seconds:g} s: {awaitable!r}") from None
        raise


async def settled(counter: Callable[[], int]) -> int:
    """The value of a counter, once it has stayed the same for a fifth of a second."""
    before, quiet = counter(), 0

    async def stays() -> None:
        nonlocal before, quiet
        while quiet < 20:
            await asyncio.sleep(0.01)
            now = counter()
            before, quiet = now, quiet + 1 if now == before else 0

    await soon(stays())
    return before


def _source(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)
