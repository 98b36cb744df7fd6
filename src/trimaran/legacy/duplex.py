"""The older revisions on a two-way channel: one session, as long as the channel lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, final

from trimaran.errors import ProtocolError
from trimaran.protocol.inbound import IncomingCall, IncomingNotification, IncomingReply
from trimaran.protocol.versions import V2025_03
from trimaran.server.exchange import Voice

from .handshake import Handshake
from .session import Session

if TYPE_CHECKING:
    from trimaran.transports.duplex import Duplex


@final
class _Pipe:
    """The channel itself, as a session's outlet."""

    def __init__(self, duplex: Duplex) -> None:
        self._duplex = duplex
        self.is_open = True

    @property
    def is_read_here(self) -> bool:
        return self.is_open

    def put(self, data: bytes) -> None:
        self._duplex.put(data)

    def close(self) -> None:
        self.is_open = False


@final
class LegacyDuplex:
    def __init__(self, duplex: Duplex) -> None:
        self._duplex = duplex
        self._handshake = Handshake(duplex.server)
        self.session: Session | None = None

    async def admit(self, call: IncomingCall) -> tuple[Voice, Callable[[IncomingCall], Awaitable[Any]]]:
        if call.method == "initialize":
            return await self._open(call)
        session = self.session
        if session is None or session.closed:
            raise ProtocolError.invalid_request(f"{call.method[:200]} came before initialize; send initialize first")
        return session.voice, self._handshake.admit(call, session, call.principal)

    async def _open(self, call: IncomingCall) -> tuple[Voice, Callable[[IncomingCall], Awaitable[Any]]]:
        if self.session is not None:
            # A client that starts over means it: the old session's subscriptions do not carry over (R39).
            self._handshake.sessions.end(self.session)
        session, result = await self._handshake.open(call, lambda: _Pipe(self._duplex), call.principal, self)
        self.session = session
        call.peer, call.session = session.peer, session

        async def answer(call: IncomingCall) -> Any:
            return result

        return session.voice, answer

    async def hear(self, notice: IncomingNotification) -> None:
        if self.session is not None:
            await self._handshake.hear(notice, self.session)

    def take_answer(self, answer: IncomingReply) -> None:
        if self.session is not None:
            self.session.take_answer(answer)

    def batch_allowed(self) -> bool:
        return self.session is not None and self.session.peer.version == V2025_03

    def close(self) -> None:
        if self.session is not None:
            self._handshake.sessions.end(self.session)
