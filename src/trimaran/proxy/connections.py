"""The clients of one target: one that all callers share, or one for each caller.

A caller is a session of an older revision, or an authenticated principal. Over HTTP anonymous callers of 2026-07-28 cannot be
told apart: each call of theirs has a client to itself while it lasts. A caller's client opens with its first call, and closes when nobody has used it for a while or
when there are too many: then the one that was unused for longest goes first. While all are at work, further callers get an
error that says so. A `ConnectionBudget` bounds the clients of several targets together, and those of one caller.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, Literal, TypeAlias, final

from trimaran.client.client import Client
from trimaran.errors import ProtocolError
from trimaran.protocol.inbound import IncomingCall
from trimaran.server.access import identity
from trimaran.types import Json

from .forwarding import ASKABLE

Isolation = Literal["shared", "caller"]

MOST: Final = 100  # clients of callers; each may be a child process
IDLE: Final = 300.0  # seconds; a caller who comes back later gets a new one


CallerAuth: TypeAlias = Any
"""The credentials of one caller, as an `auth=` of `connect`. If it has `use(call)`, that is called before each call of the
caller, who may have newer credentials by now."""


@final
class ConnectionBudget:
    """How many clients of callers there may be, over all targets, and for each caller."""

    def __init__(self, most: int, most_per_caller: int) -> None:
        self._most = most
        self._most_per_caller = most_per_caller
        self._counts: Counter[Any] = Counter()
        self._pools: set[Connections] = set()

    def __len__(self) -> int:
        return self._counts.total()

    def add(self, pool: Connections) -> None:
        self._pools.add(pool)

    def remove(self, pool: Connections) -> None:
        self._pools.discard(pool)

    def take(self, owner: Any) -> None:
        """Count one more client of a caller; the one that was unused for longest gives way, if need be."""
        if self._counts[owner] >= self._most_per_caller and not self._drop_idle(owner):
            raise _busy(f"all your {self._most_per_caller} connections to servers are in use")
        if len(self) >= self._most and not self._drop_idle(None):
            raise _busy(f"all {self._most} connections for callers are in use")
        self._counts[owner] += 1

    def release(self, owner: Any) -> None:
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]

    def _drop_idle(self, owner: Any) -> bool:
        idle = [entry for pool in self._pools if (entry := pool.oldest_idle(owner)) is not None]
        if not idle:
            return False
        min(idle, key=lambda entry: entry[0])[1]()
        return True


def _busy(why: str) -> ProtocolError:
    return ProtocolError.internal_error(f"the proxy is busy: {why}; try again later", {"kind": "busy"}, status=503)


@final
class _Own:
    """The client of one caller."""

    __slots__ = ("auth", "client", "opening", "owner", "used_at", "users")

    def __init__(self, client: Client, owner: Any, auth: CallerAuth | None) -> None:
        self.client = client
        self.owner = owner
        self.auth = auth
        self.opening: asyncio.Task[Client] | None = None
        self.users = 0
        self.used_at = monotonic()


@final
class Connections:
    """Clients by caller."""

    def __init__(
        self,
        make: Callable[[CallerAuth | None, dict[str, Json] | None], Client],
        *,
        most: int = MOST,
        idle: float = IDLE,
        auth: Callable[[IncomingCall], CallerAuth] | None = None,
        budget: ConnectionBudget | None = None,
    ) -> None:
        self._make = make
        self._most = most
        self._idle = idle
        self._auth = auth
        self._budget = budget
        self._own: dict[Any, _Own] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._own)

    def caller_of(self, call: IncomingCall) -> Any:
        """Whose client serves this call; None for the shared one, where there is only one caller."""
        if call.session is not None:
            return call.session.id
        if call.principal is not None:
            return identity(call.principal)
        if call.headers is None:
            return None
        slots = (("anonymous", number) for number in itertools.count())
        return next(slot for slot in slots if (own := self._own.get(slot)) is None or not own.users)

    def hold(self, caller: Any) -> Callable[[], None]:
        """Keep a client that was taken, beyond its `release`; returns the function that lets go of it."""
        own = self._own[caller]
        own.users += 1

        def let_go() -> None:
            if self._own.get(caller) is own:
                self.release(caller)

        return let_go

    async def take(self, caller: Any, call: IncomingCall) -> Client:
        """The client of a caller, open. Give it back with `release`."""
        own = self._own.get(caller)
        if own is not None and own.client.state == "closed":
            self._drop(caller)
            own = None
        if own is None:
            own = self._open(caller, call)
        if (use := getattr(own.auth, "use", None)) is not None:
            use(call)
        own.users += 1
        try:
            if own.opening is not None:
                await asyncio.shield(own.opening)
                own.opening = None
        except BaseException as error:
            own.users -= 1
            if not isinstance(error, asyncio.CancelledError) and self._own.get(caller) is own:
                self._drop(caller)
            raise
        return own.client

    def _open(self, caller: Any, call: IncomingCall) -> _Own:
        self._make_room()
        owner = caller if call.principal is None else identity(call.principal)
        if self._budget is not None:
            self._budget.add(self)
            self._budget.take(owner)
        auth = None if self._auth is None else self._auth(call)
        own = self._own[caller] = _Own(self._make(auth, _capabilities_of(call)), owner, auth)
        if (use := getattr(auth, "use", None)) is not None:
            use(call)
        own.opening = asyncio.ensure_future(own.client.open())
        return own

    def oldest_idle(self, owner: Any) -> tuple[float, Callable[[], None]] | None:
        """The client that was unused for longest, of one owner or of all, and a function that closes it."""
        idle = [
            (own.used_at, caller)
            for caller, own in self._own.items()
            if not own.users and (owner is None or own.owner == owner)
        ]
        if not idle:
            return None
        used_at, caller = min(idle, key=lambda pair: pair[0])
        return used_at, lambda: self._drop(caller)

    def drop_owner(self, owner: Any) -> None:
        """Close the clients of one caller, whatever they do."""
        for caller in [caller for caller, own in self._own.items() if own.owner == owner]:
            self._drop(caller)

    def release(self, caller: Any) -> None:
        own = self._own.get(caller)
        if own is not None:
            own.users = max(0, own.users - 1)  # it may be another one than was taken
            own.used_at = monotonic()
            if self._sweeping is None:
                self._sweep_later()

    def _make_room(self) -> None:
        if len(self._own) < self._most:
            return
        idle = self.oldest_idle(None)
        if idle is None:
            raise _busy(f"{self._most} callers have a connection of their own to this server")
        idle[1]()

    def _drop(self, caller: Any) -> None:
        own = self._own.pop(caller)
        if self._budget is not None:
            self._budget.release(own.owner)
        closing = asyncio.ensure_future(own.client.close())
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
        if self._budget is not None:
            self._budget.remove(self)


def _capabilities_of(call: IncomingCall) -> dict[str, Json] | None:
    """What the caller can be asked, for the handshake with its target; None if that may differ from call to call."""
    if call.session is None:
        return None
    return {name: call.peer.capabilities[name] for name in ASKABLE if name in call.peer.capabilities}
