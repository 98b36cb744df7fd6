"""Channels with no wire: two ends in memory, and a server at the far end of one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, TypeAlias, Union, Unpack, cast, final

from trimaran import legacy_seam
from trimaran.client.link import Channel, ExitReport, Owner
from trimaran.connect_options import ConnectOptions
from trimaran.errors import ConfigError, ConnectFailed, ConnectionLost, NotReady
from trimaran.protocol.json_lines import write_line

if TYPE_CHECKING:
    from trimaran.client.client import Client
    from trimaran.server.server import Server


def channel_pair(*, capacity: int = 100) -> tuple[Channel, Channel]:
    """Two connected channels: each receives the messages of the other; closing one is the loss of the other.

    Messages wait at an end that is not open yet; once `capacity` of them do, the sender waits too. Delivery happens in a
    turn of the event loop of its own, never inside `send`.
    """
    left, right = _End("left", capacity), _End("right", capacity)
    left.other, right.other = right, left
    return left, right


@final
class _End:
    other: _End

    def __init__(self, name: str, capacity: int) -> None:
        self._name = name
        self._capacity = capacity
        self._owner: Owner | None = None
        self._inbox: deque[bytes] = deque()
        self._is_closed = False
        self._is_told = False
        self._is_scheduled = False
        self._turn = asyncio.Lock()
        self._change = asyncio.Event()

    async def open(self, owner: Owner) -> None:
        if self._is_closed or self._owner is not None:
            raise ConnectFailed(f"{self.describe()} was {'closed' if self._is_closed else 'opened'} already")
        self._owner = owner
        self._schedule()

    async def send(self, message: bytes) -> None:
        if self._owner is None and not self._is_closed:
            raise NotReady(f"{self.describe()} is not open: await open() first")
        write_line(message)  # refuses the same messages as a pipe
        other = self.other
        async with self._turn:
            while len(other._inbox) >= self._capacity and not self._is_over:
                other._change.clear()
                await other._change.wait()
            if self._is_over:
                who = "this end" if self._is_closed else "the other end"
                raise ConnectionLost(f"the connection has ended: {who} was closed")
            other._inbox.append(message)
            other._schedule()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._inbox.clear()
        for end in (self, self.other):
            end._change.set()
        self.other._schedule()

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self.other._is_closed

    def _schedule(self) -> None:
        if not self._is_scheduled and self._owner is not None and not self._is_closed:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_scheduled = False
        try:
            for _ in range(len(self._inbox)):
                if self._is_closed or self._owner is None:
                    return
                self._owner.receive(self._inbox.popleft())
        finally:
            self._change.set()
            if self._inbox:
                self._schedule()
        if self.other._is_closed and self._owner is not None and not (self._is_closed or self._is_told or self._inbox):
            self._is_told = True
            self._owner.lost(None)

    def describe(self) -> str:
        return f"the {self._name} end of a pair in memory"

    def postmortem(self) -> ExitReport:
        return ExitReport()


ChannelTarget: TypeAlias = Union[Channel, Sequence[str], "Server"]
"""A channel, a server in memory, or the command of a child process."""


def channel_to(target: ChannelTarget) -> Channel:
    """A channel to a Server in memory, or to a child process; a channel is returned as it is.

    For what wants a channel and not a target: `FaultChannel(channel_to(server), [...])`.

    Raises:
        ConfigError: there is no channel to it. HTTP is not one.
    """
    if isinstance(target, Channel):
        return target
    from trimaran.server.server import Server

    if isinstance(target, Server):
        from trimaran.transports.memory import ServerChannel

        return ServerChannel(target, legacy=legacy_seam.duplex_half())
    if isinstance(target, (list, tuple)) and target:
        from trimaran.transports.process import ChildChannel

        return ChildChannel([str(word) for word in cast("list[object]", target)])
    raise ConfigError(
        f"there is no channel to {target!r}: pass a Server, a command as a list, or a channel of your own; "
        "over HTTP there are requests, not channels"
    )


@contextlib.asynccontextmanager
async def connected(server: Server, **options: Unpack[ConnectOptions]) -> AsyncGenerator[Client]:
    """A client of a server in memory: `async with connected(server, era="legacy") as client`.

    The server is started, and stopped afterwards: its lifespan lasts as long as the block. The options are those of `connect`, with defaults for tests: 5 seconds for a call, and a result that does not match
    the tool's output schema is an error.
    """
    from trimaran.connecting import connect

    settings: ConnectOptions = {"timeout": 5.0, "schema_check": "strict", **options}
    await server.start()
    try:
        async with connect(server, **settings) as client:
            yield client
    finally:
        await server.stop()
