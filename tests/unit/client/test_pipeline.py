"""Replies find their requests by id; whatever else comes, every request ends and the others are unharmed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.until import PATIENCE

from trimaran.client.link import ExitReport
from trimaran.client.pipeline import Pipeline
from trimaran.errors import CallError, ConnectFailed, ConnectionLost, Error, RemoteProtocolError, TransportError


class FakeChannel:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.owner: Any = None
        self.closed = 0
        self.failure: Error | None = None

    async def open(self, owner: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.owner = owner

    async def send(self, message: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append(message)

    async def close(self) -> None:
        self.closed += 1

    def describe(self) -> str:
        return "a fake"

    dead = ExitReport()

    def postmortem(self) -> ExitReport:
        return self.dead


class FakeInbox:
    def __init__(self) -> None:
        self.notices: list[Any] = []
        self.asks: list[Any] = []
        self.losses: list[Any] = []

    def attach(self, link: Any) -> None: ...

    def notice(self, frame: Any, request_id: Any = None) -> None:
        self.notices.append(frame.method)

    def asked(self, frame: Any, request_id: Any = None) -> None:
        self.asks.append(frame.id)

    def gap(self) -> None:
        raise AssertionError("a pipe has no gaps")

    def lost(self, error: Error | None) -> None:
        self.losses.append(error)


class Rig:
    def __init__(self) -> None:
        self.channel = FakeChannel()
        self.inbox = FakeInbox()
        self.taps: list[Any] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.line = Pipeline(self.channel, self.inbox, lambda way, message: self.taps.append((way, message)))

    async def ask(self, id: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(self.line.request(id, b"{}"))
        self.tasks.append(task)
        await asyncio.sleep(0)
        return task

    def say(self, message: Any) -> None:
        self.line.receive(message if isinstance(message, bytes) else json.dumps(message).encode())


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    await made.line.open()
    yield made
    await finish(*made.tasks)


def ok(id: Any, value: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": value or {}}


async def done(task: asyncio.Task[Any]) -> Any:
    return await asyncio.wait_for(task, PATIENCE)


async def finish(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_replies_find_their_requests_in_any_order(rig: Rig) -> None:
    tasks = {id: await rig.ask(id) for id in (1, 2, "1", "x")}
    for id in ("x", 1, "1", 2):
        rig.say(ok(id, {"is": id}))
    for id, task in tasks.items():
        assert json.loads(bytes((await done(task)).result)) == {"is": id}
    assert rig.line.oddities() == ""


async def test_notices_and_asks_go_to_the_inbox_in_order(rig: Rig) -> None:
    rig.say({"jsonrpc": "2.0", "method": "a"})
    rig.say([{"jsonrpc": "2.0", "method": "b"}, {"jsonrpc": "2.0", "id": 5, "method": "ping"}])
    rig.say({"jsonrpc": "2.0", "id": None, "method": "c"})
    assert rig.inbox.notices == ["a", "b", "c"]
    assert rig.inbox.asks == [5]


async def test_an_error_is_a_reply(rig: Rig) -> None:
    task = await rig.ask(1)
    rig.say({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "m"}})
    assert isinstance((await done(task)).failure(), CallError)


async def test_the_first_of_two_replies_counts_and_the_second_is_odd(rig: Rig) -> None:
    task = await rig.ask(1)
    rig.say(ok(1, {"n": 1}))
    rig.say(ok(1, {"n": 2}))
    assert json.loads(bytes((await done(task)).result)) == {"n": 1}
    rig.say(ok(1, {"n": 3}))
    assert "1" in rig.line.oddities()


@pytest.mark.parametrize("id", [2, "1", "", 0, -1])
async def test_a_reply_to_nobody_is_remembered_and_harms_nobody(rig: Rig, id: Any) -> None:
    task = await rig.ask(1)
    rig.say(ok(id))
    assert not task.done()
    assert repr(id) in rig.line.oddities()
    rig.say(ok(1))
    await done(task)


async def test_a_late_reply_is_dropped(rig: Rig) -> None:
    """protocol.md 3.6."""
    task = await rig.ask(1)
    await finish(task)
    rig.say(ok(1))
    other = await rig.ask(2)
    rig.say(ok(2))
    await done(other)


@pytest.mark.parametrize("garbage", [b"hello", b"{", b"\xff\xfe", b"", b"5", b"[1,2]", b'{"jsonrpc":"2.0"}'])
async def test_garbage_without_an_id_is_remembered_and_harms_nobody(rig: Rig, garbage: bytes) -> None:
    task = await rig.ask(1)
    rig.say(garbage)
    await asyncio.sleep(0)
    assert not task.done()
    assert "not a message" in rig.line.oddities()
    rig.say(ok(1))
    await done(task)


@pytest.mark.parametrize(
    "garbage",
    [
        b'{"id":1,"result":{}}',
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}',
        b'{"jsonrpc":"2.0","id": 1 ,"result":{"a":',
        b'{"jsonrpc":"2.0","result":{"a":NaN},"id":1}',
    ],
)
async def test_garbage_that_names_a_request_fails_that_one_and_quotes_what_came(rig: Rig, garbage: bytes) -> None:
    task, other = await rig.ask(1), await rig.ask(2)
    rig.say(garbage)
    with pytest.raises(RemoteProtocolError):
        await done(task)
    assert not other.done()
    rig.say(ok(2))
    await done(other)


async def test_garbage_names_string_ids_too(rig: Rig) -> None:
    task = await rig.ask("a-1")
    rig.say(b'{"id":"a-1","result":{}}')
    with pytest.raises(RemoteProtocolError):
        await done(task)


@pytest.mark.parametrize(
    "garbage",
    [
        b'{"level":"info","context":{"id":1}}',
        b'{"jsonrpc":"2.0","result":{"items":[{"id":1}]},"id":2,"oops":',
        b'log: {"request": {"id": 1}}',
    ],
)
async def test_an_id_deep_inside_garbage_is_nobodys(rig: Rig, garbage: bytes) -> None:
    """The other calls are unharmed."""
    task = await rig.ask(1)
    await rig.ask(2)
    rig.say(garbage)
    await asyncio.sleep(0)
    assert not task.done()


async def test_one_bad_message_in_a_batch_does_not_spoil_the_rest(rig: Rig) -> None:
    one, two = await rig.ask(1), await rig.ask(2)
    rig.say([ok(1), {"jsonrpc": "1.0"}, ok(2)])
    await asyncio.sleep(0)
    assert one.done()
    assert two.done()
    assert not isinstance(one.exception(), RemoteProtocolError)


async def test_an_error_without_an_id_belongs_to_the_only_request(rig: Rig) -> None:
    """protocol.md 3.1: an id that could not be read is null or absent."""
    task = await rig.ask(1)
    rig.say({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "cannot read you"}})
    with pytest.raises(CallError, match="cannot read you"):
        await done(task)


async def test_an_error_without_an_id_among_several_requests_is_odd(rig: Rig) -> None:
    tasks = [await rig.ask(1), await rig.ask(2)]
    rig.say({"jsonrpc": "2.0", "error": {"code": -32700, "message": "cannot read you"}})
    assert not any(task.done() for task in tasks)
    assert "cannot read you" in rig.line.oddities()
    for id in (1, 2):
        rig.say(ok(id))
    await asyncio.gather(*tasks)


async def test_a_result_without_an_id_is_odd(rig: Rig) -> None:
    task = await rig.ask(1)
    rig.say({"jsonrpc": "2.0", "id": None, "result": {}})
    assert not task.done()
    assert "without an id" in rig.line.oddities()


async def test_only_a_few_oddities_are_kept(rig: Rig) -> None:
    for number in range(50):
        rig.say(ok(1000 + number))
        rig.line.odd(f"said {number}")
    text = rig.line.oddities()
    assert "said 49" in text
    assert "said 40" not in text
    assert len(text) < 500


@pytest.mark.parametrize(
    ("head", "tail", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"x', b"xxx", 7),
        (b'{"jsonrpc":"2.0","result":{"x', b'x"},"id":7}', 7),
        (b'{"id":"a-1"', b"", "a-1"),
    ],
)
async def test_a_message_over_the_limit_fails_the_request_it_answers(
    rig: Rig, head: bytes, tail: bytes, id: Any
) -> None:
    task = await rig.ask(id)
    assert rig.line.too_long(head, tail, 100)
    with pytest.raises(RemoteProtocolError, match="max_message_bytes"):
        await done(task)


async def test_a_message_over_the_limit_that_answers_nobody_is_not_claimed(rig: Rig) -> None:
    task = await rig.ask(1)
    assert not rig.line.too_long(b'{"method":"x"', b"}", 100)
    assert not rig.line.too_long(b'{"id":99', b"}", 100)
    assert not rig.line.too_long(b'{"id":' + b"9" * 5000, b"}", 100)
    assert not task.done()


async def test_a_loss_ends_everything_that_waits_each_with_its_own_error(rig: Rig) -> None:
    """R207: told once; whether it was sent is known."""
    tasks = [await rig.ask(id) for id in (1, 2)]
    rig.line.lost(ConnectionLost("gone", exit_code=3, stderr=["boom"]))
    rig.line.lost(None)
    found: list[Any] = []
    for task in tasks:
        with pytest.raises(ConnectionLost, match="gone") as caught:
            await done(task)
        found.append(caught.value)
    assert found[0] is not found[1]
    assert all((one.exit_code, one.stderr, one.sent) == (3, ["boom"], True) for one in found)
    assert len(rig.inbox.losses) == 1
    with pytest.raises(ConnectionLost) as caught:
        await rig.line.request(3, b"{}")
    assert caught.value.sent is False


async def test_an_orderly_end_is_a_loss_too(rig: Rig) -> None:
    task = await rig.ask(1)
    rig.line.lost(None)
    with pytest.raises(ConnectionLost, match="a fake"):
        await done(task)


async def test_closing_ends_what_waits_and_tells_nobody(rig: Rig) -> None:
    task = await rig.ask(1)
    await rig.line.close()
    with pytest.raises(ConnectionLost):
        await done(task)
    rig.line.lost(None)
    assert rig.inbox.losses == []
    assert rig.channel.closed == 1


async def test_what_the_channel_raises_reaches_the_caller() -> None:
    rig = Rig()
    rig.channel.failure = ConnectFailed("refused")
    with pytest.raises(ConnectFailed, match="refused"):
        await rig.line.open()
    rig.channel.failure = ConnectionLost("broken")
    with pytest.raises(TransportError, match="broken"):
        await rig.line.request(1, b"{}")


async def test_the_tap_sees_everything_in_order(rig: Rig) -> None:
    task = await rig.ask(1)
    rig.say(b"garbage")
    rig.say(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    await done(task)
    await rig.line.send(b'{"n":1}')
    assert rig.taps == [
        ("out", b"{}"),
        ("in", b"garbage"),
        ("in", b'{"jsonrpc":"2.0","id":1,"result":{}}'),
        ("out", b'{"n":1}'),
    ]


async def test_an_end_without_a_word_is_told_with_what_the_channel_knows(rig: Rig) -> None:
    rig.channel.dead = ExitReport(exit_code=3, stderr=("no space left",))
    task = await rig.ask(1)
    rig.line.lost(None)
    with pytest.raises(ConnectionLost, match="exit code 3") as caught:
        await task
    assert (caught.value.exit_code, caught.value.stderr) == (3, ["no space left"])
