"""Calls in flight: those that did not finish at once.

A handler that finishes in its first step never gets here, and pays for none of it. For the others this keeps the count and
the limits, the deadline, and the meaning of a cancellation: did the client leave, did time run out, or is the task itself
being torn down?
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, final

from msgspec import UNSET, Raw

from trimaran.errors import ProtocolError
from trimaran.outage_log import Outage
from trimaran.protocol.inbound import IncomingCall

from .deadlines import Deadlines
from .exchange import Exchange
from .handlers import logger
from .limits import Limits
from .shortcuts import CallReceiver

# Bytes of the arguments of all calls at work: ten thousand calls of 8 MiB would be 80 GB. Decoded they take some times as
# much. A small call is let in all the same: it is not what fills the memory.
_MOST_BYTES: Final = 128 * 1024 * 1024
_SMALL: Final = 64 * 1024
_SHORTCUT_SECONDS: Final = 1.0  # a call that takes longer needs what the usual way has: signs of life, a deadline


class ContinuesElsewhere(Exception):
    """This process ends, and another one answers the call when its client comes back for it."""


class Abandoned(Exception):
    """The call was cancelled by its client: nothing may be sent for it."""


@types.coroutine
def resume(coroutine: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """Go on with a coroutine that has already been stepped once by hand and now waits for `awaited`."""
    while True:
        try:
            value = yield awaited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            step = coroutine.throw
            argument: Any = error
        else:
            step, argument = coroutine.send, value
        try:
            awaited = step(argument)
        except StopIteration as done:
            return done.value


@final
class RunningCalls:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.open: set[Exchange] = set()
        self._deadlines = Deadlines()
        self._fullness = Outage(logger, "there is room for calls again")
        self._bytes = 0
        """The bytes of the arguments of all running calls."""
        self._listening = 0
        """Those of them that only listen: they do no work, and have a limit of their own."""
        self._is_stopping = False
        self.on_shortcuts: set[CallReceiver] = set()
        """Calls that are passed on without a task."""
        self._began_sweep: frozenset[CallReceiver] = frozenset()
        """Those of them that were there a second ago."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self.open) + len(self.on_shortcuts)

    def has_room_for_shortcut(self) -> bool:
        return len(self) - self._listening < self._limits.max_concurrent_calls

    def add_shortcut(self, receiver: CallReceiver, loop: asyncio.AbstractEventLoop) -> None:
        """Count a call that is passed on without a task. It becomes a usual one if it takes longer than a second or two."""
        self.on_shortcuts.add(receiver)
        if self._sweeper is None or self._loop is not loop:
            self._loop = loop  # an endpoint may outlive a loop, whose timers never ring again
            self._sweeper = loop.call_later(_SHORTCUT_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for receiver in self._began_sweep & self.on_shortcuts:
            receiver.promote()
        self._began_sweep = frozenset(self.on_shortcuts)
        self._sweeper = loop.call_later(_SHORTCUT_SECONDS, self._sweep, loop) if self.on_shortcuts else None

    def promote_all(self) -> None:
        """Make usual calls of all that are passed on without a task."""
        for receiver in tuple(self.on_shortcuts):
            receiver.promote()

    async def run(self, exchange: Exchange, serve: Callable[[IncomingCall], Any]) -> Any:
        """Serve a call: its first step by hand, and only if it does not finish there, as a call in flight."""
        coroutine = serve(exchange.call)
        try:
            awaited = coroutine.send(None)
        except StopIteration as done:
            return done.value
        return await self.carry(exchange, coroutine, awaited)

    async def carry(self, exchange: Exchange, coroutine: Coroutine[Any, Any, Any], awaited: Any) -> Any:
        """Carry a started call to its end. Abandoned if its client cancelled it; an error if its time ran out."""
        call = exchange.call
        listens = call.method == "subscriptions/listen"
        size = _size_of(call)
        if busy := self._lacks_room(size, listens=listens):
            coroutine.close()
            raise ProtocolError.internal_error(busy, status=503)
        task = exchange.task or asyncio.current_task()
        assert task is not None
        exchange.task = task
        if call.timeout is None:
            call.timeout = self._limits.request_timeout
        loop = task.get_loop()
        exchange.began = exchange.began or loop.time()
        exchange.deadlines = self._deadlines
        self._deadlines.add(exchange, call.timeout, loop)
        self.open.add(exchange)
        self._bytes += size
        self._listening += listens
        try:
            # Cancelled between the first step and here (by a thread, or by the step itself): still applies (R67).
            if exchange.cancelled:
                task.cancel()
            result = await resume(coroutine, awaited)
            if exchange.cancelled:  # the result and the cancellation raced: the cancellation wins (R68)
                raise exchange.failure or Abandoned
            return result
        except asyncio.CancelledError:
            if exchange.cancelled:
                _absorb(task)
                raise exchange.failure or Abandoned from None
            if exchange.expired:
                _absorb(task)
                raise exchange.failure or timed_out(call) from None
            if self._is_stopping:
                _absorb(task)
                raise ProtocolError.internal_error(
                    "the server is stopping; try again in a moment", status=503
                ) from None
            raise
        finally:
            self._deadlines.remove(exchange)
            exchange.deadlines = exchange.task = None
            exchange.on_stuck = None  # it refers to the exchange: a cycle, which only the garbage collector would end
            self.open.discard(exchange)
            self._bytes -= size
            self._listening -= listens

    def _lacks_room(self, size: int, *, listens: bool) -> str:
        """Why a call with arguments of so many bytes cannot be taken; nothing if it can."""
        most = self._limits.max_concurrent_calls
        if not listens and len(self) - self._listening >= most:
            self._fullness.failed(
                f"no room for more calls: {most} are at work (max_concurrent_calls); others are refused"
            )
            return f"the server is busy: {most} calls are at work; try again later"
        if size > _SMALL and 0 < self._bytes > _MOST_BYTES - size:
            megabytes = self._bytes >> 20
            self._fullness.failed(f"no room for large calls: the arguments of those at work take {megabytes} MiB")
            return f"the server is busy: the arguments of calls at work take {megabytes} MiB; try again later"
        if self._fullness.is_open:
            self._fullness.succeeded()
        return ""

    def cancel_all(self) -> None:
        """End every call with an error that says so; used when the server stops and its patience is over."""
        self._is_stopping = True
        for exchange in tuple(self.open):
            if exchange.task is not None:
                exchange.task.cancel()


def _size_of(call: IncomingCall) -> int:
    arguments = getattr(call.params, "arguments", UNSET)
    return len(arguments) if isinstance(arguments, Raw) else 0


def timed_out(call: IncomingCall) -> ProtocolError:
    seconds, ticket = f"{call.timeout or 0:g}", call.exchange.ticket
    if ticket is None:
        return ProtocolError.internal_error(
            f"{call.method} took longer than {seconds} s and was stopped", {"kind": "timed_out"}, status=200
        )
    if ticket.waited is None:
        return ProtocolError.internal_error(
            f"{call.method} was not started within {seconds} s: all {ticket.size} threads of the server are busy; "
            "try again later",
            status=503,
        )
    return ProtocolError.internal_error(
        f"{call.method} took longer than {seconds} s, {ticket.waited:.1f} s of it waiting for a thread, and was stopped",
        status=200,
    )


def _absorb(task: asyncio.Task[Any]) -> None:
    """The cancellation was ours and has done its work: the task goes on to answer."""
    task.uncancel()
