"""Takes connections for a server, also when the process has no descriptor left.

With a full table of descriptors, asyncio's accept loop logs thousands of tracebacks a second, and uvloop's hangs up on
everybody. Here, connections that arrive when nearly all descriptors are in use are *extra*: the server asks `is_extra`,
answers health probes on them, refuses all else with the reason, and closes them. The last `_RESERVE` descriptors below the
limit are for them, and a few spare ones that are closed when accepting fails. Idle extra connections give way to newer
ones. Open connections are not touched.

The log says once that it began, and once that it is over. A loop that cannot watch a socket (Windows) uses its own accept
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import Any, Final, final

from trimaran.outage_log import Outage
from trimaran.server.handlers import logger

# Connections accepted in one turn of the loop: open ones must not wait for a rush of new ones.
_AT_ONCE: Final = 64
# Descriptors below the limit that are for extra connections; an eighth of a small limit.
_RESERVE: Final = 64
# Turns of accepting when the server stops: enough for a usual backlog.
_LAST_TURNS: Final = 32
_SPARES: Final = 4
# Seconds until the next try, when accepting fails.
_PAUSE: Final = 0.05
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def _limit() -> int:
    """The limit of open descriptors."""
    try:
        import resource
    except ImportError:  # Windows
        return 1 << 30
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


@final
class Listener:
    """Listens for one server.

    Args:
        factory: Makes the protocol of a connection.
    """

    def __init__(self, factory: Callable[[], asyncio.Protocol]) -> None:
        self._factory = factory
        self._server: asyncio.Server | None = None
        self._sockets: list[socket.socket] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._spares: list[int] = []
        self._extra: dict[asyncio.BaseTransport, None] = {}
        """Open extra connections, the oldest first."""
        self._extra_descriptors: set[int] = set()
        self._ceiling = 0
        self._most_extra = 0
        self._trouble = Outage(logger, "new connections are served again")
        self.refresh()

    async def start(self, host: str, port: int, *, backlog: int, reuse_port: bool) -> int:
        """Listen, and return the port."""
        loop = asyncio.get_running_loop()
        # The loop binds, since it finds every address of a host; we listen on the same sockets.
        server = await loop.create_server(
            self._factory, host, port, backlog=backlog, reuse_port=reuse_port or None, start_serving=False
        )
        self._server = server
        try:
            for bound in server.sockets:
                listening = socket.socket(fileno=os.dup(bound.fileno()))
                self._sockets.append(listening)
                listening.setblocking(False)
                listening.listen(backlog)
                loop.add_reader(listening, self._accept, listening)
        except NotImplementedError:
            self._forget_sockets()
            await server.start_serving()
        except BaseException:
            self.stop()
            raise
        return server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Accept no more connections. Open ones go on, and so do those in the backlog."""
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)
            for _ in range(_LAST_TURNS):  # closing the socket resets the backlog
                if not self._accept(listening):
                    break
        self._forget_sockets()
        if self._server is not None:
            self._server.close()
        for descriptor in self._spares:
            os.close(descriptor)
        self._spares.clear()

    def _forget_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    def refresh(self) -> None:
        """Once a second: read the limit again, and reopen spare descriptors."""
        limit = _limit()
        reserve = min(_RESERVE, limit // 8)
        self._ceiling, self._most_extra = limit - reserve, max(1, reserve // 2)
        with contextlib.suppress(OSError):
            while len(self._spares) < _SPARES:
                self._spares.append(os.open(os.devnull, os.O_RDONLY))

    def is_crowded(self) -> bool:
        """Whether a new connection would use one of the spare descriptors."""
        self.refresh()
        try:
            descriptor = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            return True
        os.close(descriptor)
        return descriptor >= self._ceiling or len(self._spares) < _SPARES

    def is_extra(self, descriptor: int) -> bool:
        """Whether this connection is for health probes only."""
        return descriptor in self._extra_descriptors

    def _accept(self, listening: socket.socket) -> bool:
        """Accept waiting connections. True if there may be more."""
        for _ in range(_AT_ONCE):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return False
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    raise
                self._trouble.failed(
                    f"no connection can be accepted ({error.strerror}): raise the limit of open files (ulimit -n), or "
                    "find what keeps them open"
                )
                if not self._spares:
                    self._pause(listening)
                    return False
                os.close(self._spares.pop())
                continue
            self._open(connection, is_extra=len(self._spares) < _SPARES or connection.fileno() >= self._ceiling)
        return True

    def _pause(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(_PAUSE, self._resume, listening)
        self._make_way(0)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self.refresh()
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _open(self, connection: socket.socket, *, is_extra: bool) -> None:
        connection.setblocking(False)
        descriptor = connection.fileno()
        if is_extra:
            self._extra_descriptors.add(descriptor)
            self._trouble.failed(
                f"nearly all descriptors that this process may have are in use ({self._ceiling} and more): new connections "
                "are refused but for probes; raise the limit of open files (ulimit -n), or find what keeps them open"
            )
        else:
            self._extra_descriptors.discard(descriptor)
            self._trouble.succeeded()
        task = asyncio.ensure_future(self._connect(connection, is_extra))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, connection: socket.socket, is_extra: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.connect_accepted_socket(self._factory, connection)
        except OSError:  # it has gone again
            connection.close()
            return
        if is_extra:
            self._make_way(self._most_extra - 1)
            self._extra[transport] = None

    def _make_way(self, most: int) -> None:
        """Close the oldest extra connections until `most` are left."""
        self._extra = {transport: None for transport in self._extra if not transport.is_closing()}
        for transport in list(self._extra)[: max(0, len(self._extra) - most)]:
            del self._extra[transport]
            transport: Any
            transport.abort()
