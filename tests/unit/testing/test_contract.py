"""The transport contract holds for our channels, and notices those that break it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from trimaran.client.link import Channel, ExitReport, Owner
from trimaran.errors import ConnectionLost, Error
from trimaran.legacy.client_sse import SseChannel
from trimaran.testing import CHANNEL_CHECKS, FaultChannel, channel_pair, check_channel, record
from trimaran.transports.http_client import HttpWire
from trimaran.transports.process import ChildChannel

from .sse_echo import sse_echo

Make = Callable[[], Any]


def child() -> Channel:
    return ChildChannel([sys.executable, "-m", "trimaran.testing.echo"])


def faultless_pair() -> tuple[Channel, Channel]:
    near, far = channel_pair()
    return FaultChannel(near, []), far


@pytest.mark.parametrize("check", CHANNEL_CHECKS)
@pytest.mark.parametrize("make", [channel_pair, faultless_pair])
async def test_channel_in_memory_keeps_the_contract(check: Any, make: Make) -> None:
    """R207."""
    await check(make)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHANNEL_CHECKS)
async def test_channel_to_a_child_keeps_the_contract(check: Any) -> None:
    """R207."""
    await check(child)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHANNEL_CHECKS)
async def test_channel_over_sse_keeps_the_contract(check: Any) -> None:
    """R207, R136, R287."""
    with sse_echo() as url:
        await check(lambda: SseChannel(HttpWire(url, max_bytes=16 * 1024 * 1024)))


@pytest.mark.parametrize("check", CHANNEL_CHECKS)
async def test_recorded_channel_keeps_the_contract(check: Any, tmp_path: Any) -> None:
    """R207."""
    with record(tmp_path / "session.jsonl") as tape:

        def make() -> tuple[Channel, Channel]:
            near, far = channel_pair()
            return tape.around(near), far

        await check(make)


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all checks at once: above, each is given its time to see that a send waits."""
    monkeypatch.setattr("trimaran.testing.contract._WAITING", 0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("briefly")
async def test_all_checks_run_in_one_call() -> None:
    await check_channel(channel_pair)


@pytest.mark.slow
@pytest.mark.usefixtures("briefly")
async def test_a_pair_may_be_made_by_a_coroutine() -> None:
    async def make() -> tuple[Channel, Channel]:
        return channel_pair()

    await check_channel(make)


# Channels that break the contract, each in one way


class Faithful:
    """Passes everything on; what is wrong is up to those below."""

    def __init__(self, inner: Channel) -> None:
        self.inner = inner
        self.owner: Owner

    async def open(self, owner: Owner) -> None:
        self.owner = owner
        await self.inner.open(self)

    async def send(self, message: bytes) -> None:
        await self.inner.send(message)

    async def close(self) -> None:
        await self.inner.close()

    def describe(self) -> str:
        return "a channel"

    def postmortem(self) -> ExitReport:
        return ExitReport()

    def receive(self, message: bytes) -> None:
        self.owner.receive(message)

    def lost(self, error: Error | None) -> None:
        self.owner.lost(error)

    def odd(self, what: str) -> None:
        self.owner.odd(what)


class DeliversTwice(Faithful):
    def receive(self, message: bytes) -> None:
        self.owner.receive(message)
        self.owner.receive(message)


class SwapsNeighbours(Faithful):
    held: bytes | None = None

    def receive(self, message: bytes) -> None:
        held, self.held = self.held, None
        if held is None and b"count" in message:
            self.held = message
            return
        self.owner.receive(message)
        if held is not None:
            self.owner.receive(held)


class TellsTheLossTwice(Faithful):
    def lost(self, error: Error | None) -> None:
        self.owner.lost(error)
        self.owner.lost(error)


class NeverTellsTheLoss(Faithful):
    def lost(self, error: Error | None) -> None:
        pass


class SendsIntoTheVoid(Faithful):
    async def send(self, message: bytes) -> None:
        try:
            await self.inner.send(message)
        except ConnectionLost:
            pass


class RaisesAnythingAfterTheEnd(Faithful):
    async def send(self, message: bytes) -> None:
        try:
            await self.inner.send(message)
        except ConnectionLost:
            raise OSError("broken pipe") from None


class ClosesOnce(Faithful):
    closed = False

    async def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True
        await self.inner.close()


class LeavesATask(Faithful):
    async def open(self, owner: Owner) -> None:
        await super().open(owner)
        forgotten.append(asyncio.ensure_future(asyncio.sleep(20)))


class BuffersWithoutBound(Faithful):
    def __init__(self, inner: Channel) -> None:
        super().__init__(inner)
        self.tasks: set[asyncio.Task[None]] = set()

    async def send(self, message: bytes) -> None:
        task = asyncio.ensure_future(self.inner.send(message))
        self.tasks.add(task)

    async def close(self) -> None:
        await self.inner.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class TruncatesAtSixtyFourKib(Faithful):
    async def send(self, message: bytes) -> None:
        await self.inner.send(message if len(message) <= 65_536 else b'{"params":{"text":""}}')


class SaysNothingAboutItself(Faithful):
    def describe(self) -> str:
        return ""


forgotten: list[asyncio.Future[None]] = []

BROKEN = [
    (DeliversTwice, "every_message_arrives_once_and_in_order"),
    (SwapsNeighbours, "every_message_arrives_once_and_in_order"),
    (TellsTheLossTwice, "the_loss_is_told_once"),
    (SendsIntoTheVoid, "sending_after_closing_is_refused"),
    (RaisesAnythingAfterTheEnd, "sending_after_the_far_end_hung_up_is_refused"),
    (ClosesOnce, "it_may_be_closed_from_any_task_and_again"),
    (LeavesATask, "nothing_is_left_running"),
    (BuffersWithoutBound, "sending_waits_for_a_far_end_that_does_not_read"),
    (TruncatesAtSixtyFourKib, "large_messages_arrive_whole"),
    (SaysNothingAboutItself, "it_can_be_described"),
]


@pytest.mark.parametrize(("kind", "name"), BROKEN, ids=[kind.__name__ for kind, _ in BROKEN])
async def test_check_notices_a_channel_that_breaks_the_contract(kind: type[Faithful], name: str) -> None:
    def make() -> tuple[Channel, Channel]:
        near, far = channel_pair()
        return kind(near), far

    check = next(one for one in CHANNEL_CHECKS if one.__name__ == name)
    try:
        with pytest.raises((AssertionError, RuntimeError)):
            await check(make)
    finally:
        while forgotten:
            forgotten.pop().cancel()
        await asyncio.sleep(0)


async def test_a_channel_that_never_tells_its_loss_is_noticed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.testing.contract._PATIENCE", 0.1)

    def make() -> tuple[Channel, Channel]:
        near, far = channel_pair()
        return NeverTellsTheLoss(near), far

    check = next(one for one in CHANNEL_CHECKS if one.__name__ == "the_loss_is_told_once")
    with pytest.raises(AssertionError, match="the loss did not happen within"):
        await check(make)


@pytest.mark.slow
@pytest.mark.usefixtures("briefly")
async def test_the_report_names_each_check_that_failed_and_skips_what_it_is_told_to() -> None:
    def make() -> tuple[Channel, Channel]:
        near, far = channel_pair()
        return SaysNothingAboutItself(near), far

    with pytest.raises(AssertionError, match=r"- it_can_be_described: describe\(\) gives an empty text"):
        await check_channel(make)
    await check_channel(make, skip=["it_can_be_described"])
