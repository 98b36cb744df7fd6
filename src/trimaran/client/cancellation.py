"""How a call is cancelled, in each direction.

- The caller's task is cancelled, or its deadline passes: `deadline.py` ends the wait, and `withdraw` tells the server.
  A question of the server in the middle of that call is withdrawn from the person or model that has it: its stream tells
  which call it belongs to, or on a pipe that no other call is under way.
- `client.cancel(id)` ends one call from outside: its caller gets CallCancelled, and `withdraw` tells the server.
- The server withdraws a request of its own (`notifications/cancelled`): `peer_session.py` cancels the handler. On a pipe the
  same notification ends a `subscriptions/listen` stream.
- `close` ends every call with Closed; nothing is sent for them, since the connection ends too.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from trimaran.errors import ProtocolError, TransportError
from trimaran.protocol.inbound import RequestId

from .dialect import write_notice

if TYPE_CHECKING:
    from .peer_session import PeerSession

_METHOD: Final = "notifications/cancelled"
_SEND_TIMEOUT: Final = 5.0  # the notification is a courtesy: nobody waits long for it


def is_withdrawn_by_leaving(session: PeerSession, method: str) -> bool:
    """True where the server needs no notification: the session is over, or leaving the HTTP stream says it."""
    # REQ: `initialize` must not be cancelled.
    if session.is_over or method == "initialize":
        return True
    return session.link.is_http and session.dialect.era == "modern"


async def withdraw(session: PeerSession, id: RequestId, reason: str | None) -> None:
    """Tell the server that nobody waits for this request any more."""
    params = {"requestId": id, "reason": reason or "the caller gave up"}
    with contextlib.suppress(TransportError, ProtocolError, TimeoutError):
        async with asyncio.timeout(_SEND_TIMEOUT):
            await session.link.send(write_notice(_METHOD, params), session.dialect.headers(_METHOD, None))
