"""A request on an HTTP/1.1 connection whose call took a shortcut (`server/shortcuts.py`): it is answered without a task.

Until it is promoted it stands where the connection has the task of its request, and where a legacy session has the exchange of
its call. Then both have what every other call has.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from trimaran.errors import ProtocolError
from trimaran.protocol.http1_framing import Head
from trimaran.protocol.inbound import IncomingCall
from trimaran.server.exchange import Exchange

if TYPE_CHECKING:
    from trimaran.server.shortcuts import SentCall
    from trimaran.server.tools import ToolEntry

    from .engine import Engine, Pairs

MAX_BYTES: Final = 16 * 1024
"""The largest request that may take a shortcut. Ten thousand of them are 160 MB, which nothing else counts."""


class RelayingConnection(Protocol):
    """The connection of a relayed request."""

    def reply_relayed(self, request: RelayedRequest, headers: Pairs, data: bytes) -> None:
        """Send the reply, and go on."""
        ...

    def promote(self, request: RelayedRequest) -> Exchange:
        """Serve the request in a task from now on."""
        ...


@final
class RelayedRequest:
    """One request, from its first byte to its reply or to its promotion."""

    __slots__ = ("_connection", "_entry", "_loop", "_sent", "began", "call", "engine", "head", "headers")

    def __init__(
        self,
        connection: RelayingConnection,
        engine: Engine,
        head: Head,
        headers: dict[str, str],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection: RelayingConnection | None = connection
        self._loop = loop
        self.engine: Engine = engine
        self.head: Head = head
        self.headers: dict[str, str] = headers
        self.call: IncomingCall
        self.began: float
        """A time of the loop's clock."""
        self._entry: ToolEntry
        self._sent: SentCall

    def begin(self, body: bytes) -> bool:
        """Send the call on. False if it has to take the usual way; nothing has been sent then."""
        engine = self.engine
        try:
            call = engine.read_relayed(body, self.headers)
            route = None if call is None else engine.tools.take_shortcut(call, self)
        except Exception:
            return False  # the usual way meets the same error, and tells of it
        if call is None or route is None:
            return False
        self.call = call
        self._entry, self._sent = route
        self.began = self._loop.time()
        engine.running_calls.add_shortcut(self, self._loop)
        if call.session is not None:
            call.session.calls[call.id] = self
        return True

    def _leave(self) -> RelayingConnection | None:
        connection, self._connection = self._connection, None
        self.engine.running_calls.on_shortcuts.discard(self)
        session = self.call.session
        if session is not None:
            session.calls.pop(self.call.id, None)
        return connection

    def receive(self, result: bytes) -> None:
        """Reply with a result that is written as this caller reads it."""
        connection = self._leave()
        del self._sent  # it refers back to us: a cycle, which only the garbage collector would end
        if connection is not None:
            engine, call = self.engine, self.call
            connection.reply_relayed(self, engine.json_headers(call), engine.writer.raw_result(call.id, result))

    def promote(self) -> Exchange | None:
        """Make the usual call of it; None if it is over, or promoted already."""
        connection = self._leave()
        if connection is None:
            return None
        self._sent.wait()
        return connection.promote(self)

    def start(self, call: IncomingCall) -> Any:
        """The handler of the promoted call."""
        return self.engine.tools.finish(self._entry, call, self._sent)

    def cancel(self, reason: str | None = None) -> None:
        """End the call without a reply. Also called without a reason where a task would be cancelled."""
        exchange = self.promote()
        if exchange is not None:
            exchange.cancel(reason)

    def fail(self, error: ProtocolError) -> None:
        """End the call with an error."""
        exchange = self.promote()
        if exchange is not None:
            exchange.fail(error)
