"""When an open stream gets a sign of life: one policy for every stream of an endpoint, in both eras.

Once per interval each stream is looked at. A stream that has sent something since the last look is left alone; any other
one sends a comment. So the silence on a stream lasts at most two intervals. One timer serves all streams of an endpoint,
and stops when there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol, final


class KeepAliveStream(Protocol):
    has_sent: bool
    """Whether it has sent anything since the last check."""

    async def send_comment(self) -> None:
        """Send a sign of life, unless the stream has ended."""
        ...


@final
class KeepAlive:
    """Looks at the open streams of an endpoint.

    Args:
        interval: Seconds between two looks.
        spawn: Runs a coroutine in a task of its own.
    """

    def __init__(self, interval: float, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._interval = interval
        self._spawn = spawn
        self._streams: set[KeepAliveStream] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[KeepAliveStream]:
        return iter(self._streams.copy())

    def add(self, stream: KeepAliveStream) -> None:
        """Keep a stream alive until `remove`."""
        stream.has_sent = True
        self._streams.add(stream)
        if self._timer is None:
            self._schedule()

    def remove(self, stream: KeepAliveStream) -> None:
        self._streams.discard(stream)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._streams:
            return
        for stream in tuple(self._streams):
            if not stream.has_sent:
                self._spawn(self._remind(stream))
            stream.has_sent = False
        self._schedule()

    @staticmethod
    async def _remind(stream: KeepAliveStream) -> None:
        await stream.send_comment()
        stream.has_sent = False  # the comment itself does not count
