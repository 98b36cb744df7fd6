"""A channel that misbehaves as planned.

A plan is a list of faults, each of which names the way ("out": to the server, "in": from it) and the messages it strikes,
counted from 1 as they enter the channel. Nothing is left to chance: `seeded_plan` throws its dice beforehand and gives
such a list, which can be printed and kept. Waiting goes by the event loop's clock.

The way out has no queue: `send` waits as long as its message is delayed, and a cancelled one is not sent. The way in
has one, since an owner cannot be kept waiting; it keeps the order, so a delayed message delays those behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, final

from msgspec import Struct

from trimaran.client.link import Channel, ExitReport, Owner
from trimaran.errors import ConnectFailed, ConnectionLost, Error

from .channels import ChannelTarget, channel_to

Way: TypeAlias = Literal["in", "out"]


class _Fault(Struct, frozen=True):
    way: Way
    """"out": to the server; "in": from it."""
    at: int | Sequence[int]
    """Which messages, counted from 1."""

    def strikes(self, number: int) -> bool:
        return number == self.at if isinstance(self.at, int) else number in self.at


@final
class Drop(_Fault, frozen=True):
    """The message never arrives."""


@final
class Duplicate(_Fault, frozen=True):
    """The message arrives again, right after itself."""

    times: int = 1


@final
class Corrupt(_Fault, frozen=True):
    """The message arrives damaged: its first half only, or what `how` makes of it."""

    how: Callable[[bytes], bytes] | None = None


@final
class Delay(_Fault, frozen=True):
    """The message, and with it all behind it, arrives `seconds` later."""

    seconds: float = 0.05


@final
class Reorder(_Fault, frozen=True):
    """The message is overtaken by the one behind it, if that comes within some seconds."""

    within: float = 1.0


@final
class Cut(Struct, frozen=True):
    """The connection ends: instead of message number `at`; right after number `after`; or within the message that brings
    the bytes of that way past `after_bytes`. Give one of the three.
    """

    way: Way
    at: int | None = None
    after: int | None = None
    after_bytes: int | None = None

    def __post_init__(self) -> None:
        if [self.at, self.after, self.after_bytes].count(None) != 2:
            raise ValueError("a cut happens at= a message, after= a message, or after_bytes=: give one of the three")


Fault: TypeAlias = Drop | Duplicate | Corrupt | Delay | Reorder | Cut


def seeded_plan(
    seed: int | str,
    *,
    messages: int = 1000,
    drop: float = 0.0,
    duplicate: float = 0.0,
    corrupt: float = 0.0,
    delay: float = 0.0,
    reorder: float = 0.0,
    longest: float = 0.05,
    ways: Sequence[Way] = ("out", "in"),
) -> list[Fault]:
    """Random faults for the first messages of each way. The same seed gives the same plan.

    Args:
        seed: The only source of randomness.
        messages: How many messages of each way may be struck.
        drop: The probability of each fault, per message, from 0 to 1; so are the next four.
        longest: The longest delay, in seconds.
        ways: The ways that are struck.
    """
    plan: list[Fault] = []
    for way in ways:
        dice = random.Random(f"{seed}/{way}")  # noqa: S311 - repeatable is the point
        for number in range(1, messages + 1):
            # Every number is drawn, used or not, so that one probability does not move the others' faults.
            throws = [dice.random() for _ in range(6)]
            chosen: list[tuple[float, Fault]] = [
                (drop, Drop(way, number)),
                (duplicate, Duplicate(way, number)),
                (corrupt, Corrupt(way, number)),
                (delay, Delay(way, number, round(throws[5] * longest, 6))),
                (reorder, Reorder(way, number)),
            ]
            plan += [fault for throw, (chance, fault) in zip(throws, chosen, strict=False) if throw < chance]
    return plan


class _MessageFate(Struct):
    """The fate of one message."""

    number: int
    messages: list[bytes]
    delay: float = 0.0
    overtaken_within: float | None = None
    is_cut: bool = False
    is_last: bool = False
    due: float = 0.0


@final
class _Lane:
    """One way of a channel: counts what passes, and knows what becomes of it."""

    def __init__(self, way: Way, plan: Iterable[Fault], note: Callable[[str], None]) -> None:
        self._way = way
        self._plan = [fault for fault in plan if fault.way == way]
        self._note = note
        self._messages = 0
        self._bytes = 0

    def fate(self, message: bytes) -> _MessageFate:
        self._messages += 1
        self._bytes += len(message)
        fate = _MessageFate(self._messages, [message])
        for fault in self._plan:
            if isinstance(fault, Cut):
                self._cut(fault, fate)
            elif fault.strikes(self._messages):
                self._strike(fault, fate)
        return fate

    def _cut(self, cut: Cut, fate: _MessageFate) -> None:
        if fate.number == cut.at or (cut.after_bytes is not None and self._bytes > cut.after_bytes):
            fate.is_cut = True
        elif fate.number == cut.after:
            fate.is_last = True
        else:
            return
        self._note(f"{self._way} {fate.number}: cut")

    def _strike(self, fault: Drop | Duplicate | Corrupt | Delay | Reorder, fate: _MessageFate) -> None:
        self._note(f"{self._way} {fate.number}: {type(fault).__name__.lower()}")
        if isinstance(fault, Drop):
            fate.messages = []
        elif isinstance(fault, Duplicate):
            fate.messages = fate.messages * (1 + fault.times)
        elif isinstance(fault, Corrupt):
            damage = fault.how or _half
            fate.messages = [damage(message) for message in fate.messages]
        elif isinstance(fault, Delay):
            fate.delay += fault.seconds
        else:
            fate.overtaken_within = fault.within


def _half(message: bytes) -> bytes:
    return message[: len(message) // 2]


@final
class _InnerOwner:
    """The owner of the channel inside."""

    def __init__(
        self,
        receive: Callable[[bytes], None],
        lost: Callable[[Error | None], None],
        odd: Callable[[str], None],
        too_long: Callable[[bytes, bytes, int], bool],
    ) -> None:
        self._receive = receive
        self._lost = lost
        self._odd = odd
        self._too_long = too_long

    def receive(self, message: bytes) -> None:
        self._receive(message)

    def lost(self, error: Error | None) -> None:
        self._lost(error)

    def odd(self, what: str) -> None:
        self._odd(what)

    def too_long(self, head: bytes, tail: bytes, limit: int) -> bool:
        return self._too_long(head, tail, limit)


@final
class FaultChannel:
    """A channel, or a target that there is a channel to, with faults in it.

    With an empty plan it changes nothing. `happened` lists what struck so far: "in 3: drop". After its end it may be
    opened again, if what it leads to can be; the count goes on, so the plan strikes once.
    """

    def __init__(self, channel: ChannelTarget, plan: Iterable[Fault] = ()) -> None:
        self._target = channel
        self._inner: Channel = channel_to(channel)
        self.plan: list[Fault] = list(plan)
        self.happened: list[str] = []
        self._out = _Lane("out", self.plan, self.happened.append)
        self._in = _Lane("in", self.plan, self.happened.append)
        self._turn = asyncio.Lock()
        self._overtaken_out: _MessageFate | None = None
        self._overtaken_in: _MessageFate | None = None
        self._queue: deque[_MessageFate | Error | None] = deque()
        self._owner: Owner | None = None
        self._cause: ConnectionLost | None = None
        self._over = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, owner: Owner) -> None:
        if self._owner is not None:
            raise ConnectFailed(f"the channel to {self.describe()} is open already")
        if self._cause is not None:
            await self._settle()
            self._cause = self._alarm = self._overtaken_out = self._overtaken_in = None
            self._over.clear()
            self._inner = channel_to(self._target)
        self._owner = owner
        try:
            await self._inner.open(_InnerOwner(self._receive, self._lost, self._odd, self._skip))
        except BaseException:
            self._owner = None
            raise

    async def send(self, message: bytes) -> None:
        async with self._turn:
            self._check()
            fate = self._out.fate(message)
            if fate.delay:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(fate.delay):
                        await self._over.wait()
                self._check()
            if fate.is_cut:
                self._cut("out", fate)
                self._check()
            await self._leave(fate)

    async def _leave(self, fate: _MessageFate) -> None:
        before, self._overtaken_out = self._overtaken_out, None
        if fate.overtaken_within is not None and before is None:
            self._overtaken_out = fate
            self._after(fate.overtaken_within, lambda: self._run(self._catch_up(fate)))
            return
        for late in (fate, before):
            for message in late.messages if late else ():
                await self._inner.send(message)
        if fate.is_last or (before and before.is_last):
            self._cut("out", fate)

    async def _catch_up(self, fate: _MessageFate) -> None:
        async with self._turn:
            if self._overtaken_out is fate and self._cause is None:
                self._overtaken_out = fate.overtaken_within = None
                with contextlib.suppress(ConnectionLost):  # which the owner hears of anyway
                    await self._leave(fate)

    async def close(self) -> None:
        self._owner = None
        self._finish(ConnectionLost("the connection has ended: this end was closed"))
        await self._inner.close()
        await self._settle()

    async def _settle(self) -> None:
        me = asyncio.current_task()
        if others := {task for task in self._tasks if task is not me}:
            await asyncio.wait(others)

    def describe(self) -> str:
        return self._inner.describe()

    def postmortem(self) -> ExitReport:
        return self._inner.postmortem()

    # Incoming messages

    def _receive(self, message: bytes) -> None:
        if self._cause is None:
            fate = self._in.fate(message)
            fate.due = self._now() + fate.delay
            self._queue.append(fate)
            self._arrive()

    def _lost(self, error: Error | None) -> None:
        if self._cause is None:
            self._queue.append(error)
            self._arrive()

    def _odd(self, what: str) -> None:
        if self._owner is not None:
            self._owner.odd(what)

    def _skip(self, head: bytes, tail: bytes, limit: int) -> bool:
        skip: Callable[[bytes, bytes, int], bool] | None = getattr(self._owner, "too_long", None)
        return skip is not None and skip(head, tail, limit)

    def _arrive(self) -> None:
        if self._alarm is not None:
            return
        while self._queue and self._cause is None:
            first = self._queue[0]
            if isinstance(first, _MessageFate) and first.due > self._now():
                self._alarm = self._after(first.due - self._now(), self._wake)
                return
            self._queue.popleft()
            if isinstance(first, _MessageFate):
                self._hand_over(first)
            else:
                self._pass_overtaken()
                self._tell(first)

    def _wake(self) -> None:
        self._alarm = None
        self._arrive()

    def _hand_over(self, fate: _MessageFate) -> None:
        if fate.is_cut:
            self._cut("in", fate)
        elif fate.overtaken_within is not None and self._overtaken_in is None:
            self._overtaken_in = fate
            self._after(fate.overtaken_within, self._pass_overtaken)
        else:
            self._deliver(fate)
            self._pass_overtaken()

    def _pass_overtaken(self) -> None:
        fate, self._overtaken_in = self._overtaken_in, None
        if fate is not None:
            self._deliver(fate)

    def _deliver(self, fate: _MessageFate) -> None:
        for message in fate.messages:
            if self._owner is not None and self._cause is None:
                self._owner.receive(message)
        if fate.is_last:
            self._cut("in", fate)

    # The end

    def _cut(self, way: Way, fate: _MessageFate) -> None:
        place = "instead of" if fate.is_cut else "after"
        self._tell(ConnectionLost(f"the connection was cut as planned, {place} message {fate.number} {way}"))
        self._run(self._inner.close())

    def _tell(self, error: Error | None) -> None:
        owner, self._owner = self._owner, None
        text = str(error) if error is not None else "the other end was closed"
        lost = error if isinstance(error, ConnectionLost) else ConnectionLost(f"the connection has ended: {text}")
        if self._finish(lost) and owner is not None:
            owner.lost(error)

    def _finish(self, cause: ConnectionLost) -> bool:
        if self._cause is not None:
            return False
        self._cause = cause
        self._over.set()
        self._queue.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        return True

    def _check(self) -> None:
        if self._cause is not None:
            raise ConnectionLost(str(self._cause), cause_text=self._cause.cause_text)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _after(self, seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        def ring() -> None:
            self._timers.discard(timer)
            if self._cause is None:
                then()

        timer = asyncio.get_running_loop().call_later(seconds, ring)
        self._timers.add(timer)
        return timer

    def _run(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
