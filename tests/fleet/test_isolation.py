"""A message of one client does no harm to the others of a fleet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.support.harness import initialize, serve
from tests.support.inside import inside
from tests.support.until import until

from trimaran.server.access import owner_text, same_principal
from trimaran.state.contracts import StoreUnavailable

from .boats import ABLE, Boat, pair

HUGE = 2**70  # JSON has it, MessagePack does not


async def test_a_cancellation_that_cannot_be_passed_on_does_not_silence_its_process(file: str) -> None:
    async with pair(file) as (one, two):
        session = await one.wire.initialize()
        await two.at(session).ask("ping")
        assert (await session.cancel(HUGE)).status == 202
        one.server.notify.tools_changed()
        await until(lambda: inside(two.server).runtime.fleet.seen_change == 1, "the next piece of news is heard")


async def test_a_broadcast_that_cannot_be_written_down_does_not_silence_its_process(file: str) -> None:
    async with pair(file) as (one, two):
        await one.wire.initialize()
        one.server.broadcast("notifications/huge", {"n": HUGE})
        one.server.notify.tools_changed()
        await until(lambda: inside(two.server).runtime.fleet.seen_change == 1, "the next piece of news is heard")


async def test_a_handshake_that_cannot_be_written_down_is_refused_and_leaves_nothing_behind(store: str) -> None:
    async with pair(store) as (one, _):
        reply = await one.wire.post(initialize(caps={"experimental": {"n": HUGE}}))
        assert reply.error["code"] == -32602
        assert not list(inside(one.server).sessions)
        assert await inside(one.server).runtime.fleet.store.sessions.count() == 0


async def test_answers_that_nobody_can_be_given_do_not_pile_up(file: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("trimaran.fleet._MOST_ASKING", 5)
    async with pair(file) as (one, _):
        session = await one.wire.initialize(caps=ABLE)
        fleet = inside(one.server).runtime.fleet
        before = len(fleet._errands)

        async def away(*_: Any, **__: Any) -> bytes:
            raise StoreUnavailable("away", retry_after=30.0)

        monkeypatch.setattr(fleet.store.bus, "request", away)
        replies = await asyncio.gather(*(session.answer(f"srv-000000000000-{n}", {}) for n in range(20)))
        assert {reply.status for reply in replies} == {202}
        assert len(fleet._errands) - before <= 5


class ByNumberOf(NamedTuple):
    """A principal without a subject that is equal by value."""

    number: int


def test_who_owns_something_is_not_decided_by_a_hash() -> None:
    one, other = ByNumberOf(-1), ByNumberOf(-2)
    assert hash(one) == hash(other)
    assert not same_principal(one, other)
    assert owner_text(one) != owner_text(other)


def test_who_owns_something_is_not_decided_by_how_it_looks() -> None:
    subjects = ["1", 1, "", "None", '","']
    texts = [
        owner_text(SimpleNamespace(subject=subject, issuer=issuer)) for subject in subjects for issuer in ("", "1")
    ]
    assert len(set(texts)) == len(texts)
    assert not {owner_text(None), owner_text("1"), owner_text(1), owner_text("")} & set(texts)


class Number:
    """The same without a tuple's help."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self.number == other.number

    def __hash__(self) -> int:
        return 7


class ByNumber:
    async def authenticate(self, request: Any) -> Any:
        return Number(int(request.headers.get("x-user")))


async def test_a_session_of_a_principal_known_by_value_is_its_own_only(file: str) -> None:
    """R102."""
    boat = Boat()
    async with serve("http", boat.server, store=file, auth=ByNumber()) as boat.wire:
        session = await boat.wire.initialize(headers={"x-user": "1"})
        assert (await session.ask("ping")).status == 200
        assert (await session.ask("ping", headers={"x-user": "2"})).status == 404
