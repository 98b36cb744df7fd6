"""Events for a user's callbacks: in order, one at a time, bounded, and never in the way."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any

import pytest
from tests.support.until import soon

from trimaran.client.callback_queue import CallbackQueue, is_async


async def test_a_plain_function_is_called_at_once() -> None:
    heard: list[Any] = []
    CallbackQueue().post(lambda *args: heard.append(args), 1, 2)
    assert heard == [(1, 2)]


async def test_coroutine_functions_are_run_in_order_one_at_a_time() -> None:
    heard: list[Any] = []
    running = 0

    async def callback(number: int) -> None:
        nonlocal running
        running += 1
        assert running == 1
        for _ in range(3 - number % 3):
            await asyncio.sleep(0)
        heard.append(number)
        running -= 1

    mail = CallbackQueue()
    for number in range(10):
        mail.post(callback, number)
    assert heard == []
    await mail.drained()
    assert heard == list(range(10))
    mail.post(callback, 10)
    await mail.drained()
    assert heard[-1] == 10
    await mail.close()


async def test_what_cannot_be_delivered_drops_the_oldest_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []
    gate = asyncio.Event()

    async def slow(number: int) -> None:
        await gate.wait()
        heard.append(number)

    mail = CallbackQueue(3)
    mail.post(slow, 0)
    await asyncio.sleep(0)
    for number in range(1, 8):
        mail.post(slow, number)
    assert mail.dropped == 4
    assert caplog.text.count("does not keep up") == 1
    gate.set()
    await mail.drained()
    assert heard == [0, 5, 6, 7]


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_what_a_callback_raises_is_logged_and_goes_no_further(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []

    def plain(number: int) -> None:
        heard.append(number)
        raise ValueError("mine")

    async def coroutine(number: int) -> None:
        plain(number)

    mail = CallbackQueue()
    with caplog.at_level(logging.ERROR):
        for number in (1, 2):
            mail.post(plain if kind == "plain" else coroutine, number)
        await mail.drained()
    assert heard == [1, 2]
    assert caplog.text.count("a callback failed") == 2


async def test_closing_ends_the_callback_that_runs_and_forgets_the_rest() -> None:
    heard: list[str] = []

    async def callback(word: str) -> None:
        heard.append(word)
        await asyncio.Event().wait()

    mail = CallbackQueue()
    mail.post(callback, "first")
    mail.post(callback, "second")
    await asyncio.sleep(0)
    await mail.close()
    await mail.close()
    assert heard == ["first"]


async def test_a_callback_may_close_its_own_mailbox() -> None:
    mail = CallbackQueue()
    done = asyncio.Event()

    async def callback() -> None:
        await mail.close()
        done.set()

    mail.post(callback)
    await soon(done.wait())
    await mail.drained()


async def test_a_callback_may_post_more() -> None:
    mail = CallbackQueue()
    heard: list[int] = []

    async def callback(number: int) -> None:
        heard.append(number)
        if number:
            mail.post(callback, number - 1)

    mail.post(callback, 3)
    await mail.drained()
    assert heard == [3, 2, 1, 0]


async def test_a_plain_function_that_returns_an_awaitable_is_awaited() -> None:
    """`lambda entry: store(entry)` with an async `store` is a common way to write a handler."""
    heard: list[int] = []

    async def store(number: int) -> None:
        heard.append(number)

    mail = CallbackQueue()
    mail.post(lambda number: store(number), 1)
    await mail.drained()
    await asyncio.sleep(0)
    assert heard == [1]


def test_coroutine_functions_are_recognised_in_every_dress() -> None:
    async def function(*args: Any) -> None: ...

    class Thing:
        async def method(self) -> None: ...

        async def __call__(self) -> None: ...

        def plain(self) -> None: ...

    assert is_async(function)
    assert is_async(functools.partial(function, 1))
    assert is_async(functools.partial(functools.partial(function, 1), 2))
    assert is_async(Thing().method)
    assert is_async(Thing())
    assert not is_async(Thing().plain)
    assert not is_async(print)
    assert not is_async(lambda: function())
