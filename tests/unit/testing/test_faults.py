"""A channel that misbehaves exactly as planned."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.until import until

from trimaran import Server
from trimaran.errors import ConnectFailed, ConnectionLost
from trimaran.testing import (
    Corrupt,
    Cut,
    Delay,
    Drop,
    Duplicate,
    FaultChannel,
    Reorder,
    channel_pair,
    seeded_plan,
)

from .ears import Ears, numbered, request


class Rig:
    """`near` is the channel with faults; `ears` hear what comes in, `far_ears` what went out."""

    def __init__(self, *plan: Any) -> None:
        inner, self.far = channel_pair()
        self.near = FaultChannel(inner, plan)
        self.ears, self.far_ears = Ears(), Ears()

    async def __aenter__(self) -> Rig:
        await self.near.open(self.ears)
        await self.far.open(self.far_ears)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.near.close()
        await self.far.close()

    async def send(self, *numbers: int, way: str = "out") -> None:
        for n in numbers:
            await (self.near if way == "out" else self.far).send(numbered(n))

    def heard(self, way: str) -> Ears:
        return self.far_ears if way == "out" else self.ears


both_ways = pytest.mark.parametrize("way", ["out", "in"])


@both_ways
async def test_a_dropped_message_never_arrives(way: Any) -> None:
    async with Rig(Drop(way, 2)) as rig:
        await rig.send(1, 2, 3, way=way)
        await rig.heard(way).until(2)
        assert rig.heard(way).numbers == [1, 3]
        assert rig.near.happened == [f"{way} 2: drop"]


@both_ways
async def test_a_duplicated_message_arrives_again_right_away(way: Any) -> None:
    async with Rig(Duplicate(way, [1, 3], times=2)) as rig:
        await rig.send(1, 2, 3, way=way)
        await rig.heard(way).until(7)
        assert rig.heard(way).numbers == [1, 1, 1, 2, 3, 3, 3]


@both_ways
async def test_a_corrupted_message_is_half_of_itself_or_what_is_made_of_it(way: Any) -> None:
    plan = [Corrupt(way, 1), Corrupt(way, 2, how=lambda message: b"\xff" + message)]
    async with Rig(*plan) as rig:
        await rig.send(1, 2, way=way)
        await until(lambda: len(rig.heard(way).raw) == 2)
        half, wild = rig.heard(way).raw
        assert numbered(1).startswith(half)
        assert len(half) == len(numbered(1)) // 2
        assert wild == b"\xff" + numbered(2)


@both_ways
async def test_a_reordered_message_is_overtaken_by_the_next(way: Any) -> None:
    async with Rig(Reorder(way, 2)) as rig:
        await rig.send(1, 2, 3, 4, way=way)
        await rig.heard(way).until(4)
        assert rig.heard(way).numbers == [1, 3, 2, 4]


@both_ways
async def test_a_reordered_message_that_nobody_overtakes_arrives_all_the_same(way: Any) -> None:
    async with Rig(Reorder(way, 1, within=0.01)) as rig:
        await rig.send(1, way=way)
        await rig.heard(way).until(1)
        await rig.send(2, way=way)
        await rig.heard(way).until(2)
        assert rig.heard(way).numbers == [1, 2]


@both_ways
async def test_a_delayed_message_delays_those_behind_it(way: Any) -> None:
    loop = asyncio.get_running_loop()
    async with Rig(Delay(way, 2, seconds=0.05)) as rig:
        began = loop.time()
        await rig.send(1, 2, 3, way=way)
        await rig.heard(way).until(3)
        assert loop.time() - began >= 0.05
        assert rig.heard(way).numbers == [1, 2, 3]


@both_ways
async def test_the_order_survives_any_delays(way: Any) -> None:
    async with Rig(*seeded_plan(4, messages=30, delay=0.5, longest=0.004)) as rig:
        await rig.send(*range(30), way=way)
        await rig.heard(way).until(30)
        assert rig.heard(way).numbers == list(range(30))


async def test_the_loss_comes_after_what_is_still_delayed_or_overtaken() -> None:
    async with Rig(Delay("in", 1, seconds=0.02), Reorder("in", 2)) as rig:
        await rig.send(1, 2, way="in")
        await rig.far.close()
        assert await rig.ears.until_lost() is None
        assert rig.ears.numbers == [1, 2]


@both_ways
async def test_a_cut_after_a_message_lets_it_pass_and_ends_both_sides(way: Any) -> None:
    async with Rig(Cut(way, after=2)) as rig:
        await rig.send(1, 2, way=way)
        error = await rig.ears.until_lost()
        assert isinstance(error, ConnectionLost)
        assert f"after message 2 {way}" in str(error)
        if way == "out":
            await rig.far_ears.until_lost()
        assert rig.heard(way).numbers == [1, 2]
        with pytest.raises(ConnectionLost, match="cut as planned"):
            await rig.near.send(numbered(3))


@both_ways
async def test_a_cut_at_a_message_swallows_it(way: Any) -> None:
    async with Rig(Cut(way, at=2)) as rig:
        await rig.send(1, way=way)
        if way == "out":
            with pytest.raises(ConnectionLost, match="instead of message 2 out"):
                await rig.send(2)
        else:
            await rig.send(2, way="in")
        await rig.ears.until_lost()
        await rig.far_ears.until_lost()
        assert rig.heard(way).numbers == [1]
        assert len(rig.ears.losses) == 1


async def test_a_cut_after_bytes_swallows_the_message_that_crosses_the_line() -> None:
    size = len(numbered(1))
    async with Rig(Cut("in", after_bytes=2 * size)) as rig:
        await rig.send(1, 2, 3, way="in")
        await rig.ears.until_lost()
        assert rig.ears.numbers == [1, 2]


async def test_a_cut_drops_what_was_still_delayed() -> None:
    async with Rig(Delay("in", 1, seconds=30), Cut("out", after=1)) as rig:
        await rig.send(1, way="in")
        await asyncio.sleep(0)
        await rig.send(1)
        await rig.ears.until_lost()
        assert rig.ears.raw == []


async def test_a_delayed_send_ends_with_the_channel() -> None:
    async with Rig(Delay("out", 1, seconds=30)) as rig:
        send = asyncio.ensure_future(rig.send(1))
        await until(lambda: rig.near.happened)
        await rig.near.close()
        with pytest.raises(ConnectionLost):
            await send


async def test_a_delayed_send_that_is_given_up_is_not_sent() -> None:
    async with Rig(Delay("out", 1, seconds=30)) as rig:
        send = asyncio.ensure_future(rig.send(1))
        await until(lambda: rig.near.happened)
        send.cancel()
        await asyncio.wait({send})
        await rig.send(2)
        await rig.far_ears.until(1)
        assert rig.far_ears.numbers == [2]


async def test_several_faults_strike_one_message_in_the_order_of_the_plan() -> None:
    def double(message: bytes) -> bytes:
        return json.dumps({"n": json.loads(message)["n"] * 2}).encode()

    async with Rig(Corrupt("in", 1, how=double), Duplicate("in", 1)) as rig:
        await rig.send(4, way="in")
        await rig.ears.until(2)
        assert rig.ears.numbers == [8, 8]
        assert rig.near.happened == ["in 1: corrupt", "in 1: duplicate"]


async def test_closing_leaves_nothing_behind_whatever_was_planned() -> None:
    async with Rig(Delay("in", 1, seconds=30), Reorder("out", 1, within=30)) as rig:
        await rig.send(1, 2, way="in")
        await rig.send(1)
        await rig.near.close()
        await rig.near.close()
        assert rig.ears.raw == []
        assert rig.ears.losses == []


async def test_it_may_be_opened_again_and_counts_on() -> None:
    server = Server("a", version="1.0.0")
    channel = FaultChannel(server, [Cut("out", at=2)])
    ears = Ears()
    await channel.open(ears)
    with pytest.raises(ConnectFailed, match="open already"):
        await channel.open(ears)
    await channel.send(request(1, "ping"))
    with pytest.raises(ConnectionLost):
        await channel.send(request(2, "ping"))
    again = Ears()
    await channel.open(again)
    await channel.send(request(3, "ping"))
    assert (await again.until(1))[0]["id"] == 3
    await channel.close()
    assert (len(ears.losses), again.losses) == (1, [])


async def test_a_channel_that_cannot_be_opened_again_says_so() -> None:
    async with Rig(Cut("out", after=1)) as rig:
        await rig.send(1)
        await rig.ears.until_lost()
        with pytest.raises(ConnectFailed):
            await rig.near.open(Ears())


def test_a_seeded_plan_depends_on_the_seed_alone() -> None:
    shares: dict[str, Any] = {"drop": 0.1, "duplicate": 0.1, "corrupt": 0.1, "delay": 0.1, "reorder": 0.1}
    plan = seeded_plan(7, messages=100, **shares)
    assert plan == seeded_plan(7, messages=100, **shares)
    assert plan != seeded_plan(8, messages=100, **shares)
    assert {type(fault) for fault in plan} == {Drop, Duplicate, Corrupt, Delay, Reorder}
    assert {fault.way for fault in plan} == {"in", "out"}
    assert 50 < len(plan) < 150


def test_one_probability_does_not_move_the_faults_of_another() -> None:
    alone = [fault for fault in seeded_plan(3, drop=0.2) if isinstance(fault, Drop)]
    beside = [fault for fault in seeded_plan(3, drop=0.2, delay=0.9) if isinstance(fault, Drop)]
    assert alone == beside


def test_a_plan_can_be_printed_and_kept() -> None:
    plan = seeded_plan(1, messages=20, drop=0.3, delay=0.3, ways=["in"])
    assert eval(repr(plan)) == plan
    assert {fault.way for fault in plan} == {"in"}


@pytest.mark.parametrize("wrong", [{}, {"at": 1, "after": 2}], ids=["none", "two"])
def test_a_cut_has_one_place(wrong: Any) -> None:
    with pytest.raises(ValueError, match="give one of the three"):
        Cut("in", **wrong)


async def test_it_describes_what_it_leads_to() -> None:
    async with Rig() as rig:
        assert rig.near.describe() == "the left end of a pair in memory"
        assert rig.near.postmortem().exit_code is None
