"""Signals of a process whose handlers belong to somebody else."""

from __future__ import annotations

import asyncio
import gc
import signal
import weakref
from collections.abc import Iterator
from types import FrameType

import pytest
from tests.support.until import until

from trimaran.transports.stop_signals import overhear


class App:
    def __init__(self) -> None:
        self.count = 0

    def begin_to_stop(self) -> None:
        self.count += 1


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals that reached the handler that was there first."""
    numbers: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        numbers.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_apps_and_the_handler_that_was_there_hear_a_signal(number: int, heard: list[int]) -> None:
    apps = [App(), App()]
    for app in apps:
        overhear(app)
    signal.raise_signal(number)
    await until(lambda: [app.count for app in apps] == [1, 1])
    assert heard == [number]


async def test_apps_add_one_handler_between_them_and_are_not_kept(heard: list[int]) -> None:
    first = App()
    overhear(first)
    relay = signal.getsignal(signal.SIGTERM)
    second = App()
    overhear(second)
    assert signal.getsignal(signal.SIGTERM) is relay
    reference = weakref.ref(second)
    del second
    gc.collect()
    assert reference() is None


async def test_a_signal_that_nobody_handles_keeps_its_default() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        overhear(App())
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_handler_of_asyncio_run_stays_in_its_place_so_that_it_is_taken_away() -> None:
    async def main() -> None:
        overhear(App())

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        asyncio.run(main())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


async def test_outside_the_main_thread_nothing_is_heard(heard: list[int]) -> None:
    async def inside() -> None:
        overhear(App())

    before = signal.getsignal(signal.SIGTERM)
    await asyncio.to_thread(asyncio.run, inside())
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_closed_loop_does_not_keep_the_signal_from_its_handler(heard: list[int]) -> None:
    app = App()
    overhear(app)
    relay = signal.getsignal(signal.SIGTERM)
    closed = asyncio.new_event_loop()
    closed.close()
    relay.apps[app] = closed  # type: ignore[union-attr, index]
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]
