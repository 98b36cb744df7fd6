"""The clients of one target: one that all callers share, or one for each caller.

A caller is a session of an older revision, or an authenticated principal. Anonymous callers of 2026-07-28 cannot be told
apart and share a client. A caller's client opens with its first call, and closes when nobody has used it for a while or
when there are too many: then the one that was unused for longest goes first. While all are at work, further callers get an
error that says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, Literal, final

from trimaran.client.client import Client
from trimaran.errors import ProtocolError
from trimaran.protocol.inbound import IncomingCall
from trimaran.server.access import identity

__all__ = ["Connections", "Isolation"]

Isolation = Literal["shared", "caller"]

MOST: Final = 100  # clients of callers; each may be a child process
IDLE: Final = 300.0  # seconds; a caller who comes back later gets a new one


@final
class _Own:
    """The client of one caller."""

    __slots__ = ("client", "opening", "used_at", "users")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.opening: asyncio.Task[Client] | None = None
        self.users = 0
        self.used_at = monotonic()


@final
class Connections:
    """Clients by caller."""

    def __init__(self, make: Callable[[], Client], *, most: int = MOST, idle: float = IDLE) -> None:
        self._make = make
        self._most = most
        self._idle = idle
        self._own: dict[Any, _Own] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._own)

    def caller_of(self, call: IncomingCall) -> Any:
        """Whose client serves this call; None for the shared one."""
        if call.session is not None:
            return call.session.id
        return None if call.principal is None else identity(call.principal)

    async def take(self, caller: Any) -> Client:
        """The client of a caller, open. Give it back with `release`."""
        own = self._own.get(caller)
        if own is None or own.client.state == "closed":
            self._make_room()
            own = self._own[caller] = _Own(self._make())
            own.opening = asyncio.ensure_future(own.client.open())
        own.users += 1
        try:
            if own.opening is not None:
                await asyncio.shield(own.opening)
                own.opening = None
        except BaseException as error:
            own.users -= 1
            if not isinstance(error, asyncio.CancelledError) and self._own.get(caller) is own:
                del self._own[caller]
            raise
        return own.client

    def release(self, caller: Any) -> None:
        own = self._own.get(caller)
        if own is not None:
            own.users -= 1
            own.used_at = monotonic()
            if self._sweeping is None:
                self._sweep_later()

    def _make_room(self) -> None:
        if len(self._own) < self._most:
            return
        unused = [(own.used_at, caller) for caller, own in self._own.items() if not own.users]
        if not unused:
            raise ProtocolError.internal_error(
                f"the proxy is busy: {self._most} callers have a connection of their own to this server; try again later",
                status=503,
            )
        self._drop(min(unused, key=lambda pair: pair[0])[1])

    def _drop(self, caller: Any) -> None:
        closing = asyncio.ensure_future(self._own.pop(caller).client.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _sweep_later(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(self._idle, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        oldest = monotonic() - self._idle
        for caller in [caller for caller, own in self._own.items() if not own.users and own.used_at <= oldest]:
            self._drop(caller)
        if self._own:
            self._sweep_later()

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for caller in list(self._own):
            self._drop(caller)
        if self._closing:
            await asyncio.wait(set(self._closing))
