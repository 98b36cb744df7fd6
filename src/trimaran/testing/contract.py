"""The contract of every channel, as checks that can be run on any of them.

A check is given `make`, which makes a fresh channel each time it is called, plainly or as a coroutine. The far end must send
back each message it gets. There are two ways to have such a far end:

- return two connected channels, as `channel_pair` does: the check echoes on the second one itself;
- return one channel whose far end is an echo already, such as the child process `python -m trimaran.testing.echo`. It must
  obey two notifications: at `testing/hang-up` it ends the connection, at `testing/pause` it does not read for
  `params.seconds`.

A check that fails raises AssertionError. It always closes the channels that it opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import Any, Final, TypeAlias, final

from trimaran.client.link import Channel, ExitReport
from trimaran.errors import ConnectionLost, Error

Made: TypeAlias = Channel | tuple[Channel, Channel]
Make: TypeAlias = Callable[[], Made | Awaitable[Made]]

# Longer than an honest channel takes on a busy machine; a check that hangs shall not hang the tests.
_PATIENCE: Final = 10.0
# How long the far end does not read, and how long a send must then be seen waiting.
_PAUSE: Final = 1.0
_WAITING: Final = 0.2
# Above every buffer on the way: 64 KiB in a pipe, some MiB in sockets.
_MOST_UNREAD: Final = 32 * 1024 * 1024


async def check_channel(make: Make, *, skip: Collection[str] = ()) -> None:
    """Run every check on a kind of channel; AssertionError names those that failed.

    For pytest, one test per check reads better:

        @pytest.mark.parametrize("check", CHANNEL_CHECKS)
        async def test_my_channel_keeps_the_contract(check):
            await check(make)

    Args:
        make: Makes a fresh channel with an echo behind it; see the head of this module.
        skip: Names of checks to leave out.
    """
    failed: list[str] = []
    for check in CHANNEL_CHECKS:
        if check.__name__ not in skip:
            try:
                await check(make)
            except (AssertionError, Error) as error:
                failed.append(f"{check.__name__}: {error or type(error).__name__}")
    if failed:
        raise AssertionError("the channel breaks its contract:\n" + "\n".join(f"- {line}" for line in failed))


# Helpers of the checks


@final
class _Log:
    """An owner that records its calls."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.losses: list[Error | None] = []
        self._changed = asyncio.Event()

    def receive(self, message: bytes) -> None:
        self.messages.append(json.loads(message))
        self._changed.set()

    def lost(self, error: Error | None) -> None:
        self.losses.append(error)
        self._changed.set()

    def odd(self, what: str) -> None:
        """Nothing here is odd: whatever the channel complains of was sent by a check."""

    async def wait(self, event: str, is_so: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(
                f"{event} did not happen within {_PATIENCE:g} s: {len(self.messages)} messages came, "
                f"the loss was told {len(self.losses)} times"
            ) from None

    async def wait_messages(self, count: int) -> list[Any]:
        await self.wait(f"the arrival of {count} messages", lambda: len(self.messages) >= count or bool(self.losses))
        assert len(self.messages) >= count, f"the channel ended after {len(self.messages)} of {count} messages"
        return self.messages


@final
class _Echo:
    """The far end of a pair: sends every message back, in order."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._run())

    def receive(self, message: bytes) -> None:
        self._queue.put_nowait(message)

    def lost(self, error: Error | None) -> None:
        self._task.cancel()

    def odd(self, what: str) -> None:
        """A check would have noticed."""

    async def _run(self) -> None:
        while True:
            message = await self._queue.get()
            if json.loads(message).get("method") == "testing/hang-up":
                await self._channel.close()
                return
            try:
                await self._channel.send(message)
            except ConnectionLost:
                return

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._channel.close()


@final
class _Rig:
    """An open channel under test, its owner, and a far end that echoes."""

    def __init__(self, near: Channel, far: Channel | None) -> None:
        self.channel = near
        self.log = _Log()
        self._far = far
        self._echo: _Echo | None = None

    async def open(self, *, is_paused: bool) -> None:
        async with asyncio.timeout(_PATIENCE):
            if is_paused or self._far is None:
                await self.channel.open(self.log)
                if is_paused and self._far is None:
                    await self.send("testing/pause", seconds=_PAUSE)
            else:
                await asyncio.gather(self.channel.open(self.log), self._open_far(self._far))

    async def _open_far(self, far: Channel) -> None:
        self._echo = _Echo(far)
        await far.open(self._echo)

    async def resume(self) -> None:
        """The far end reads on: now, or when its pause is over."""
        if self._far is not None:
            await self._open_far(self._far)

    async def send(self, method: str, **params: Any) -> None:
        await self.channel.send(_message(method, **params))

    async def hang_up(self) -> None:
        await self.send("testing/hang-up")
        await self.log.wait("the loss", lambda: bool(self.log.losses))

    async def close(self) -> None:
        async with asyncio.timeout(_PATIENCE):
            await self.channel.close()
            if self._echo is not None:
                await self._echo.close()
            elif self._far is not None:
                await self._far.close()


def _message(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}, separators=(",", ":")).encode()


async def _make_rig(make: Make) -> _Rig:
    channel = make()
    pair = await channel if inspect.isawaitable(channel) else channel
    return _Rig(*pair) if isinstance(pair, tuple) else _Rig(pair, None)


@contextlib.asynccontextmanager
async def _rig(make: Make, *, is_paused: bool = False) -> AsyncGenerator[_Rig]:
    rig = await _make_rig(make)
    try:
        await rig.open(is_paused=is_paused)
        yield rig
    except TimeoutError:
        raise AssertionError(f"the check did not end within {_PATIENCE:g} s") from None
    finally:
        await rig.close()


async def _refuses(channel: Channel) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            await channel.send(_message("testing/late"))
    except ConnectionLost:
        return
    except TimeoutError:
        raise AssertionError("a send after the end waits instead of raising ConnectionLost") from None
    except Exception as error:
        raise AssertionError(f"a send after the end raises {type(error).__name__}, not ConnectionLost") from error
    raise AssertionError("a send after the end raises nothing; it should raise ConnectionLost")


# The checks


async def every_message_arrives_once_and_in_order(make: Make) -> None:
    """R207: each inbound message once, in order."""
    async with _rig(make) as rig:
        for number in range(500):
            await rig.send("testing/count", number=number)
        await rig.send("testing/last")
        await rig.log.wait_messages(501)
        numbers = [message["params"].get("number") for message in rig.log.messages[:-1]]
        assert numbers == list(range(500)), "messages were lost, doubled or reordered on the way there and back"


async def large_messages_arrive_whole(make: Make) -> None:
    """Larger than any buffer on the way, and not in ASCII."""
    text = "Größe 測定 " * 150_000
    async with _rig(make) as rig:
        data = json.dumps({"jsonrpc": "2.0", "method": "testing/large", "params": {"text": text}}, ensure_ascii=False)
        await rig.channel.send(data.encode())
        await rig.send("testing/small")
        large, small = await rig.log.wait_messages(2)
        assert large["params"]["text"] == text, "a large message was changed on the way"
        assert small["method"] == "testing/small"


async def many_may_send_at_once(make: Make) -> None:
    """Messages of several tasks do not mix, and each task's own keep their order."""

    async def work(rig: _Rig, who: int) -> None:
        for number in range(20):
            await rig.send("testing/work", who=who, number=number, filling="x" * 5_000)

    async with _rig(make) as rig:
        await asyncio.gather(*(work(rig, who) for who in range(20)))
        messages = await rig.log.wait_messages(400)
        for who in range(20):
            numbers = [m["params"]["number"] for m in messages if m["params"]["who"] == who]
            assert numbers == list(range(20)), f"the messages of sender {who} came as {numbers}"


async def the_loss_is_told_once(make: Make) -> None:
    """R207: the closed event comes exactly once, after every message before it, and closing afterwards does not repeat it."""
    async with _rig(make) as rig:
        for number in range(10):
            await rig.send("testing/count", number=number)
        await rig.log.wait_messages(10)
        await rig.hang_up()
        await rig.channel.close()
        await rig.channel.close()
    assert len(rig.log.losses) == 1, f"the loss was told {len(rig.log.losses)} times"
    assert len(rig.log.messages) == 10


async def sending_after_the_far_end_hung_up_is_refused(make: Make) -> None:
    """ConnectionLost, at once."""
    async with _rig(make) as rig:
        await rig.hang_up()
        await _refuses(rig.channel)


async def sending_after_closing_is_refused(make: Make) -> None:
    """ConnectionLost, at once."""
    async with _rig(make) as rig:
        await rig.channel.close()
        await _refuses(rig.channel)


async def it_may_be_closed_from_any_task_and_again(make: Make) -> None:
    """Closing is idempotent, also by several at once, and none of them hangs."""
    async with _rig(make) as rig:
        await rig.send("testing/hello")
        await rig.log.wait_messages(1)
        async with asyncio.timeout(_PATIENCE):
            await asyncio.gather(*(asyncio.create_task(rig.channel.close()) for _ in range(5)))
            await rig.channel.close()
    assert len(rig.log.losses) <= 1, f"after closing, the loss was told {len(rig.log.losses)} times"


async def it_may_be_closed_before_it_was_opened(make: Make) -> None:
    """A send may be cancelled early."""
    rig = await _make_rig(make)
    await rig.close()
    assert not rig.log.losses, "a channel that was never open cannot be lost"


async def nothing_comes_after_closing(make: Make) -> None:
    """Once `close` has returned, the owner is left alone."""
    async with _rig(make) as rig:
        for number in range(50):
            await rig.send("testing/count", number=number)
        await rig.channel.close()
        before = len(rig.log.messages)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(rig.log.messages) == before, "messages came after close had returned"


async def nothing_is_left_running(make: Make) -> None:
    """No task outlives `close`, whichever end closed."""
    before = asyncio.all_tasks()
    async with _rig(make) as rig:
        await rig.send("testing/hello")
        await rig.log.wait_messages(1)
    async with _rig(make) as rig:
        await rig.hang_up()
    left = asyncio.all_tasks() - before
    assert not left, f"tasks left running after close: {left}"


async def sending_waits_for_a_far_end_that_does_not_read(make: Make) -> None:
    """Memory is bounded: unread messages hold up the sender, and arrive in order once they are read."""
    filling = "x" * 65_536
    most = _MOST_UNREAD // len(filling)
    async with _rig(make, is_paused=True) as rig:
        sent = 0
        send: asyncio.Future[None]
        while True:
            send = asyncio.ensure_future(rig.send("testing/fill", number=sent, filling=filling))
            done, _ = await asyncio.wait({send}, timeout=_WAITING)
            sent += 1
            if not done:
                break
            await send
            assert sent < most, f"{sent * len(filling) >> 20} MiB went out to a far end that does not read"
        await rig.resume()
        async with asyncio.timeout(_PATIENCE):
            await send
        await rig.log.wait("the arrival of all", lambda: len(_numbers(rig.log)) >= sent)
        assert _numbers(rig.log) == list(range(sent)), "held up messages were lost, doubled or reordered"


async def closing_releases_a_send_that_waits(make: Make) -> None:
    """It ends with ConnectionLost, or is done; it does not wait for ever."""
    filling = "x" * 65_536
    async with _rig(make, is_paused=True) as rig:
        for number in range(_MOST_UNREAD // len(filling)):
            send = asyncio.ensure_future(rig.send("testing/fill", number=number, filling=filling))
            done, _ = await asyncio.wait({send}, timeout=_WAITING)
            if not done:
                break
        else:
            return  # it never waits: another check says so
        await rig.channel.close()
        try:
            async with asyncio.timeout(_PATIENCE):
                await send
        except ConnectionLost:
            pass
        except TimeoutError:
            raise AssertionError("a send that waited goes on waiting after close") from None


async def a_send_given_up_leaves_the_channel_whole(make: Make) -> None:
    """Cancelling one sender tears no message in two: the next one arrives as it was sent."""
    async with _rig(make) as rig:
        for number in range(10):
            send = asyncio.ensure_future(rig.send("testing/large", number=number, filling="x" * 500_000))
            await asyncio.sleep(0)
            send.cancel()
            await asyncio.wait({send})
        await rig.send("testing/last")
        await rig.log.wait("the last message", lambda: bool(rig.log.losses) or _last(rig.log) == "testing/last")
        assert not rig.log.losses, "the channel ended because a send was given up"
        numbers = _numbers(rig.log)
        assert numbers == sorted(set(numbers)), f"after sends were given up, messages came as {numbers}"


async def it_can_be_described(make: Make) -> None:
    """For messages to people: a line of text, and a Postmortem, at any time."""
    rig = await _make_rig(make)
    try:
        _check_description(rig.channel)
        await rig.open(is_paused=False)
        _check_description(rig.channel)
    finally:
        await rig.close()
    _check_description(rig.channel)


def _check_description(channel: Channel) -> None:
    description: object = channel.describe()
    assert isinstance(description, str), f"describe() gives {description!r}, not a text"
    assert description, "describe() gives an empty text"
    assert "\n" not in description, f"describe() gives more than a line: {description!r}"
    report: object = channel.postmortem()
    assert isinstance(report, ExitReport), f"postmortem() gives {report!r}, not an ExitReport"


def _numbers(log: _Log) -> list[int]:
    return [m["params"]["number"] for m in log.messages if "number" in m.get("params", {})]


def _last(log: _Log) -> str | None:
    return log.messages[-1].get("method") if log.messages else None


CHANNEL_CHECKS: Final[tuple[Callable[[Make], Any], ...]] = (
    every_message_arrives_once_and_in_order,
    large_messages_arrive_whole,
    many_may_send_at_once,
    the_loss_is_told_once,
    sending_after_the_far_end_hung_up_is_refused,
    sending_after_closing_is_refused,
    it_may_be_closed_from_any_task_and_again,
    it_may_be_closed_before_it_was_opened,
    nothing_comes_after_closing,
    nothing_is_left_running,
    sending_waits_for_a_far_end_that_does_not_read,
    closing_releases_a_send_that_waits,
    a_send_given_up_leaves_the_channel_whole,
    it_can_be_described,
)
"""The checks, each an async function of `make` named after the rule that it checks."""
