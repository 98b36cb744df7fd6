"""Keep-alive: ping the server at an interval, and replace a session whose pings fail in a row."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from trimaran.errors import Closed, ConnectionLost, ProtocolError, TransportError

if TYPE_CHECKING:
    from .connection import Connection

_PING_TIMEOUT: Final = 5.0  # seconds; a ping takes no time on a server that is well


async def keep_pinging(connection: Connection, interval: float) -> None:
    """Ping every `interval` seconds until the client is closed. The connection cancels this task when it closes."""
    allowed = connection.options.ping_failures
    failures = 0
    while True:
        await asyncio.sleep(interval)
        session = connection.live_session
        if session is None:
            failures = 0
            continue
        try:
            await connection.ping(min(_PING_TIMEOUT, interval) if interval > 1 else _PING_TIMEOUT)
            failures = 0
        except Closed:
            return
        except TransportError as error:
            failures += 1
            if failures >= allowed and connection.live_session is session:
                failures = 0
                loss = f"{allowed} pings in a row failed; the last: {error}"
                connection.end_calls(loss)
                session.lost(ConnectionLost(loss))
        except ProtocolError:
            failures = 0  # an error is a sign of life
