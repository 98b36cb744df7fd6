"""Calls in flight: limits, deadlines, and what a cancellation means (R65-R69)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw
from tests.support.memory_peer import Peer, texts
from tests.support.until import soon, until

from trimaran import Limits, Server
from trimaran.errors import ProtocolError
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.meta import Peer as Caller
from trimaran.protocol.meta import RequestMeta
from trimaran.server import exchange as exchanges
from trimaran.server.exchange import Exchange
from trimaran.server.running_calls import Abandoned, RunningCalls, resume
from trimaran.types import CallToolParams


class Sink:
    async def send(self, data: bytes) -> None: ...


def flight(**limits: Any) -> tuple[RunningCalls, Exchange]:
    call = IncomingCall(1, "tools/call", None, None, Caller("2026-07-28", {}), b"{}", RequestMeta(), None)  # pyright: ignore[reportArgumentType]
    return RunningCalls(Limits(**limits)), Exchange(call, Sink(), None)  # pyright: ignore[reportArgumentType]


async def carry(flights: RunningCalls, exchange: Exchange, coroutine: Any) -> Any:
    return await soon(flights.carry(exchange, coroutine, coroutine.send(None)))


async def test_a_started_coroutine_is_carried_to_its_value() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "done"

    flights, exchange = flight()
    assert await carry(flights, exchange, work()) == "done"
    assert len(flights) == 0
    assert exchange.task is None


async def test_exceptions_thrown_into_it_reach_it_and_come_out() -> None:
    async def work() -> str:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, ValueError("in"))
        try:
            await future
        except ValueError as error:
            await asyncio.sleep(0)
            raise KeyError("out") from error
        return ""

    with pytest.raises(KeyError, match="out"):
        await carry(*flight(), work())


async def test_closing_the_carrier_closes_the_coroutine() -> None:
    closed: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append("x")

    coroutine: Any = work()
    carrier: Any = resume(coroutine, coroutine.send(None))
    carrier.send(None)
    carrier.close()
    assert closed == ["x"]


async def test_a_cancelled_call_is_abandoned_and_its_task_goes_on() -> None:
    """R65, R67."""
    flights, exchange = flight()
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    asyncio.get_running_loop().call_soon(exchange.cancel, "enough")
    with pytest.raises(Abandoned):
        await carry(flights, exchange, work())
    assert seen == ["cancelled"]
    assert exchange.reason == "enough"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_that_came_before_still_applies() -> None:
    """R67."""
    flights, exchange = flight()
    exchange.cancel()
    with pytest.raises(Abandoned):
        await carry(flights, exchange, asyncio.Event().wait())


async def test_when_a_result_and_a_cancellation_race_the_cancellation_wins() -> None:
    """R68."""
    flights, exchange = flight()

    async def work() -> str:
        await asyncio.sleep(0)
        exchange.cancelled = True
        return "too late"

    with pytest.raises(Abandoned):
        await carry(flights, exchange, work())


async def test_time_runs_out() -> None:
    """R69."""
    flights, exchange = flight(request_timeout=0.01)
    with pytest.raises(ProtocolError, match="longer than 0.01 s") as caught:
        await carry(flights, exchange, asyncio.Event().wait())
    assert caught.value.code == -32603
    assert exchange.expired


@pytest.mark.parametrize(("timeout", "default"), [(float("inf"), 0.001), (None, None)])
async def test_a_call_may_have_all_the_time(timeout: float | None, default: float | None) -> None:
    flights, exchange = flight(request_timeout=default)
    exchange.call.timeout = timeout
    gate = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, gate.set)
    assert await carry(flights, exchange, gate.wait()) is True


async def test_being_torn_down_is_not_being_cancelled_by_the_client() -> None:
    flights, exchange = flight()
    coroutine: Any = asyncio.Event().wait()
    task = asyncio.ensure_future(flights.carry(exchange, coroutine, coroutine.send(None)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(flights) == 0


async def test_calls_cut_short_by_a_stop_are_told_so() -> None:
    """P13."""
    flights, exchange = flight()
    coroutine: Any = asyncio.Event().wait()
    task = asyncio.ensure_future(flights.carry(exchange, coroutine, coroutine.send(None)))
    await asyncio.sleep(0)
    flights.cancel_all()
    with pytest.raises(ProtocolError, match="stopping") as caught:
        await soon(task)
    assert caught.value.status == 503
    assert len(flights) == 0


async def test_too_many_calls_are_refused_and_not_begun_further() -> None:
    flights, one = flight(max_concurrent_calls=1)
    gate = asyncio.Event()
    first: Any = gate.wait()
    task = asyncio.ensure_future(flights.carry(one, first, first.send(None)))
    await asyncio.sleep(0)
    _, two = flight()
    with pytest.raises(ProtocolError, match="busy") as caught:
        await carry(flights, two, asyncio.Event().wait())
    assert caught.value.status == 503
    gate.set()
    assert await soon(task) is True


async def test_a_call_that_took_too_long_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R69: one envelope, also after the time a stuck handler would have been given."""
    monkeypatch.setattr(exchanges, "STUCK_SECONDS", 0.01)
    server = Server("x", request_timeout=0.01)
    server.add_tool(_for_ever)
    later = asyncio.Event()
    async with Peer(server) as peer:
        assert (await peer.modern("tools/call", {"name": "_for_ever"}))["error"]["code"] == -32603
        asyncio.get_running_loop().call_later(0.05, later.set)
        await soon(later.wait())
        assert (await peer.modern("server/discover"))["result"]
    assert peer.heard == []


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_handler_that_swallows_its_end_is_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """R69: the client gets its error all the same."""
    monkeypatch.setattr(exchanges, "STUCK_SECONDS", 0.01)
    server = Server("x", request_timeout=0.01)
    gate = asyncio.Event()

    @server.tool
    async def stubborn() -> str:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    async with Peer(server) as peer:
        message = await peer.modern("tools/call", {"name": "stubborn"})
        assert message["error"]["code"] == -32603
        gate.set()
        assert (await peer.modern("server/discover"))["result"]
    assert peer.heard == [], "and hears nothing more of it"


async def test_an_id_in_use_is_refused_and_free_again_afterwards() -> None:
    """protocol.md 3.1."""
    server = Server("x")
    gate = asyncio.Event()
    server.add_tool(gate.wait, name="wait")
    async with Peer(server) as peer:
        peer._ids = iter([1, 1, 1])  # pyright: ignore[reportAttributeAccessIssue]
        await peer.start("tools/call", {"name": "wait"})
        assert (await peer.modern("tools/call", {"name": "wait"}))["error"]["code"] == -32600
        gate.set()
        assert texts((await peer.reply(1))["result"]) == ["true"]
        assert texts(await peer.call("wait")) == ["true"]


async def test_one_sessions_calls_are_limited() -> None:
    server = Server("x", max_concurrent_calls_per_session=1)
    gate, started = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        started.set()
        await gate.wait()
        return "x"

    async with Peer(server) as peer:
        await peer.initialize()
        first = await peer.start_legacy("tools/call", {"name": "wait"})
        await soon(started.wait())
        message = await peer.legacy("tools/call", {"name": "wait"})
        gate.set()
        assert texts((await peer.reply(first))["result"]) == ["x"]
    assert message["error"]["code"] == -32603


async def test_closing_the_channel_ends_what_is_at_work() -> None:
    server = Server("x")
    ended = asyncio.Event()

    @server.tool
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Peer(server) as peer:
        await peer.start("tools/call", {"name": "work"})
        await until(lambda: len(peer._channel._duplex.running_calls) == 1)
    await soon(ended.wait())


def large(size: int) -> Exchange:
    params = CallToolParams(name="x", arguments=Raw(b"x" * size))
    call = IncomingCall(1, "tools/call", None, params, Caller("2026-07-28", {}), b"{}", RequestMeta(), None)  # pyright: ignore[reportArgumentType]
    return Exchange(call, Sink(), None)  # pyright: ignore[reportArgumentType]


async def test_calls_at_work_are_bounded_by_the_bytes_of_their_arguments_too() -> None:
    """Ten thousand calls of 8 MiB would be 80 GB. A small call is let in all the same, and all room comes back."""
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    flights, _ = flight()
    tasks: list[asyncio.Task[None]] = []
    for _ in range(16):
        coroutine = work()
        tasks.append(asyncio.ensure_future(flights.carry(large(8 << 20), coroutine, coroutine.send(None))))
        await asyncio.sleep(0)
    with pytest.raises(ProtocolError, match="the arguments of calls at work take 128 MiB") as refusal:
        await carry(flights, large(8 << 20), work())
    assert refusal.value.status == 503
    coroutine = work()
    tasks.append(asyncio.ensure_future(flights.carry(large(1000), coroutine, coroutine.send(None))))
    await asyncio.sleep(0)
    assert len(flights) == 17
    gate.set()
    await soon(asyncio.gather(*tasks))
    await carry(flights, large(8 << 20), work_at_once())


async def work_at_once() -> None:
    await asyncio.sleep(0)
