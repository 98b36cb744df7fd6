"""HTTP+SSE, the transport of 2024-11-05: a stream that begins with the address for POSTs, and carries their answers.

Opt-in by `sse_path`. The session ends with its stream (R137). A POST that reaches another process is passed on to the process
of the stream, whose name is in the session's id.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import parse_qs

from trimaran.errors import ProtocolError, TimedOut
from trimaran.fleet import fleet_of, unavailable
from trimaran.protocol.inbound import Batch
from trimaran.protocol.sse import COMMENT, encode_event
from trimaran.server.access import at_expiry, owner_text, same_principal
from trimaran.state.contracts import NoAnswer, StoreError
from trimaran.transports.bytequeue import ByteQueue
from trimaran.transports.duplex import Duplex
from trimaran.transports.engine import EVENTS, Engine, HttpRequestHead

from .duplex import LegacyDuplex

if TYPE_CHECKING:
    from trimaran.server.server import Server

_NAME = re.compile(r"[0-9a-f]{12}")
_UNREAD: Final = "unread"  # what another process says of a message that it did not take


@final
class _Connection:
    """One open stream."""

    def __init__(self, server: Server, request: HttpRequestHead) -> None:
        self.has_sent = True
        self._request = request
        self._queue = ByteQueue()
        self.duplex = Duplex(server, self._queue.put, legacy=LegacyDuplex, principal=request.principal)
        self._expiry = at_expiry(request.principal, self.end)

    @property
    def principal(self) -> Any:
        return self.duplex.principal

    def renew(self, principal: Any) -> None:
        """Take newer credentials from a POST, so that the stream does not end with the old ones."""
        self.duplex.principal = principal
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = at_expiry(principal, self.end)

    async def run(self, endpoint: str) -> None:
        responder = self._request.responder
        await self._request.stream_start(EVENTS)
        await responder.stream_chunk(encode_event(endpoint.encode(), event="endpoint"))
        while (data := await self._queue.get()) is not None:
            self.has_sent = True
            if not await responder.stream_chunk(encode_event(data, event="message")):
                return

    async def send_comment(self) -> None:
        await self._request.responder.stream_chunk(COMMENT)

    def feed(self, body: bytes) -> bool:
        """Take a message; False if the client reads none of the answers to those before it, which wait here."""
        if self._queue.full() and self.duplex.is_crowded:
            return False
        self.duplex.feed(body)
        return True

    def forget(self) -> None:
        """The stream is over: cancel its expiry."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def end(self) -> None:
        self._queue.end()


@final
class SseEndpoint:
    def __init__(self, server: Server, path: str, message_path: str) -> None:
        self._server = server
        self._path = "/" + path.strip("/")
        self._message_path = "/" + message_path.strip("/")
        self._open: dict[str, _Connection] = {}
        self._engine: Engine = None  # pyright: ignore[reportAttributeAccessIssue]
        self._fleet = fleet_of(server)
        if self._fleet is not None:
            self._fleet.on_ask("sse", self._take)

    def attach(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> Mapping[tuple[str, str], Callable[[HttpRequestHead, bytes], Awaitable[None]]]:
        return {("GET", self._path): self._stream, ("POST", self._message_path): self._message}

    async def _stream(self, request: HttpRequestHead, body: bytes) -> None:
        most = self._server.limits.max_sessions
        if most is not None and len(self._open) >= most:
            raise ProtocolError.internal_error(f"the server is full: {most} sessions are open", status=503)
        id = secrets.token_hex(16)
        if self._fleet is not None:
            await self._server.runtime.get_ready()
            id = f"{self._fleet.name}.{id}"
        connection = _Connection(self._server, request)
        self._open[id] = connection
        self._engine.keep_alive.add(connection)
        unwatch = request.responder.watch(connection.end)
        try:
            await connection.run(f"{request.prefix}{self._message_path}?sessionId={id}")
        finally:
            unwatch()
            connection.forget()
            self._engine.keep_alive.remove(connection)
            self._open.pop(id, None)
            await connection.duplex.close(patience=0.0)
            await request.responder.stream_end()

    async def _message(self, request: HttpRequestHead, body: bytes) -> None:
        ids = parse_qs(request.query).get("sessionId")
        if not ids:
            raise ProtocolError.invalid_request(
                "the sessionId of the endpoint event is missing from the URL", status=400
            )
        self._count_batch(request, body)
        connection = self._open.get(ids[0])
        if connection is None and await self._pass_on(ids[0], request, body):
            await request.reply(202, [], b"")
            return
        if connection is None or not same_principal(connection.principal, request.principal):
            raise ProtocolError.invalid_request(
                "this session does not exist or has ended; open the stream again", status=404
            )
        connection.renew(request.principal)
        if not connection.feed(body):
            raise _unread()
        await request.reply(202, [], b"")

    def _count_batch(self, request: HttpRequestHead, body: bytes) -> None:
        """Count the messages of a batch; all of it is refused if its caller may not send so many now.

        The answers go to the stream, perhaps in another process, so a partial refusal could not be reported from here.
        """
        if body.lstrip()[:1] != b"[":
            return
        try:
            message = self._engine.reader.read(body, None)
        except ProtocolError:
            return  # the error goes to the stream
        if isinstance(message, Batch):
            for _ in message.messages[1:]:
                if (refusal := self._engine.admit_more(request)) is not None:
                    raise refusal

    async def _pass_on(self, id: str, request: HttpRequestHead, body: bytes) -> bool:
        """Give a message to the process that has the stream; False if there is none."""
        name, dot, _ = id.partition(".")
        if self._fleet is None or not dot or name == self._fleet.name or not _NAME.fullmatch(name):
            return False
        try:
            outcome = await self._fleet.ask(name, "sse", (id, owner_text(request.principal), body))
            if outcome == _UNREAD:
                raise _unread()
            return bool(outcome)
        except NoAnswer:
            return False
        except TimedOut:  # not 404: it may be there and busy, and its client must not take its session for lost
            raise ProtocolError.internal_error(
                "the process that has this session's stream does not answer at the moment; try again", status=503
            ) from None
        except StoreError as error:
            raise unavailable(error) from None

    async def _take(self, question: Any) -> bool | str:
        """A message that reached another process. Newer credentials stay there: the stream keeps those it has."""
        id, owner, body = question
        connection = self._open.get(id)
        if connection is None or owner_text(connection.principal) != owner:
            return False
        return connection.feed(body) or _UNREAD

    async def close(self) -> None:
        for connection in tuple(self._open.values()):
            connection.end()


def _unread() -> ProtocolError:
    return ProtocolError.internal_error(
        "too many answers wait on this session's stream: read it, and send the message again", status=503
    )
