"""One incarnation of a connection: a link, the dialect spoken on it, what the server said of itself, and what it asks.

A conversation is its link's inbox. Notifications go on to the connection; requests of the server's (legacy eras only) are
answered here, each by a task of its own, so that a person's slow answer holds up nothing. How many run at once is our
decision, not the server's. When the conversation is over, so are they: nobody is left to hear the answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, Final, Protocol, final

from msgspec import Struct

from trimaran.bounded_log import BoundedLog
from trimaran.errors import (
    CODE_INTERNAL,
    CODE_INVALID_REQUEST,
    ConnectFailed,
    ConnectionLost,
    Error,
    ProtocolError,
    TransportError,
)
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.read_reply import Frame, memory_of

from .dialect import Dialect, ServerDescription, encode
from .link import Link
from .negotiation import Negotiated

log: logging.Logger = logging.getLogger("trimaran.client")
_bounded: Final = BoundedLog("trimaran.client")

_MOST_ASKS: Final = 64  # at work at once; a person answers one
_MOST_RELAYED: Final = (
    2_000  # the same where many callers answer; each proxied call may wait for its caller's next request
)
_REPLY_PAUSES: Final = (0.1, 0.3, 1.0, 3.0)  # before a reply is sent again
_MOST_REFUSALS: Final = 1_000  # of those beyond, that wait to be sent
_MOST_BYTES: Final = 32 * 1024 * 1024  # of what is being asked: twice the longest message
_LONGEST_ID: Final = 1_000  # characters; an id is kept until its answer is sent, and nobody needs more


class SessionOwner(Protocol):
    """The owner of conversations: the connection."""

    newest_link: Link | None
    is_relaying: bool

    @property
    def is_closing(self) -> bool: ...

    def only_asker(self) -> RequestId | None:
        """The call under way in whose middle the server may ask, if there is only one."""
        ...

    def hear(self, conversation: PeerSession, frame: Frame, request_id: RequestId | None) -> None: ...

    async def answer(self, method: str, params: Mapping[str, Any], request_id: RequestId | None) -> Any: ...

    def gap(self) -> None: ...

    def conversation_ended(self, conversation: PeerSession, error: Error | None) -> None: ...

    def masked(self, error: Error) -> Error: ...

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...

    def waiting_for_people(self, method: str) -> contextlib.AbstractContextManager[None]: ...


class _Answer(Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    result: Any


class _Refusal(Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    error: Any


@final
class PeerSession:
    dialect: Dialect
    welcome: ServerDescription

    def __init__(self, keeper: SessionOwner) -> None:
        self._keeper = keeper
        self.is_over: bool = False
        self.error: Error | None = None
        self.began: float = 0.0
        self.has_served: bool = False
        """It has answered a call that was made for somebody else."""
        self._link: Link | None = None
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._askers: dict[RequestId, RequestId] = {}
        """The call in whose middle the server asks, by the id of its question, as far as that is known."""
        self._asked_bytes = 0
        self._refused: deque[tuple[RequestId, int, str]] = deque()
        self._has_begun = False
        self._has_ignored = False

    @property
    def link(self) -> Link:
        assert self._link is not None
        return self._link

    def attach(self, link: Link) -> None:
        self._link = self._keeper.newest_link = link

    def begin(self, meeting: Negotiated[PeerSession], now: float) -> None:
        self.dialect, self.welcome = meeting.dialect, meeting.welcome
        self.began = now
        self._has_begun = True

    def notice(self, frame: Frame, request_id: RequestId | None = None) -> None:
        self._keeper.hear(self, frame, request_id)

    def gap(self) -> None:
        self._keeper.gap()

    def lost(self, error: Error | None) -> None:
        self.is_over = True
        self.error = error
        for task in tuple(self._answering.values()):
            task.cancel()
        self._keeper.conversation_ended(self, error)

    def asked(self, frame: Frame, request_id: RequestId | None = None) -> None:
        id = frame.id
        assert isinstance(id, (int, str))
        if self.is_over or self._keeper.is_closing or self._link is None:
            return
        size = memory_of(frame)
        if self._has_begun and self.dialect.era == "modern":
            # REQ client.no-responses: a modern client never sends one, so there is no way to answer.
            self._ignore(frame, "this era does not have")
        elif isinstance(id, str) and len(id) > _LONGEST_ID:
            self._ignore(frame, f"has an id of over {_LONGEST_ID} characters")
        elif id in self._answering:
            self._refuse(id, CODE_INVALID_REQUEST, f"a request with the id {str(id)[:80]} is still being answered")
        elif len(self._answering) >= self._most_asks() or self._asked_bytes + size > _MOST_BYTES:
            self._refuse(id, CODE_INTERNAL, f"the client is busy: {len(self._answering)} requests are being answered")
        else:
            task = self._keeper.spawn(self._answer(id, frame, request_id))
            self._answering[id] = task
            asker = request_id if request_id is not None else self._keeper.only_asker()
            if asker is not None:
                self._askers[id] = asker
            self._asked_bytes += size
            task.add_done_callback(lambda _: self._answered(id, size))

    def _most_asks(self) -> int:
        return _MOST_RELAYED if self._keeper.is_relaying else _MOST_ASKS

    def _answered(self, id: RequestId, size: int) -> None:
        self._answering.pop(id, None)
        self._askers.pop(id, None)
        self._asked_bytes -= size

    def _ignore(self, frame: Frame, why: str) -> None:
        if not self._has_ignored:  # once is enough, for one that floods us
            self._has_ignored = True
            _bounded.warning("the server sent the request %.80s, which %s; it was ignored", frame.method, why)

    def withdraw_ask(self, id: RequestId) -> None:
        """The server no longer wants an answer."""
        task = self._answering.get(id)
        if task is not None:
            task.cancel()

    def withdraw_asks_of(self, call: RequestId) -> None:
        """Nobody waits for this call any more, so nobody needs to be asked in its middle."""
        for id in [id for id, asker in self._askers.items() if asker == call]:
            self.withdraw_ask(id)

    async def _answer(self, id: RequestId, frame: Frame, request_id: RequestId | None) -> None:
        method: Any = frame.method
        try:
            with self._keeper.waiting_for_people(method):
                result = await self._keeper.answer(method, frame.read_params(), request_id)
            await self._reply(_Answer(id, result))
        except ProtocolError as error:
            await self._reply(_Refusal(id, _error_body(error)))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            await self._fail(id, method)  # the handler's own doing
        except Exception:
            log.exception("the handler of %s failed", method)
            await self._fail(id, method)

    async def _fail(self, id: RequestId, method: str) -> None:
        await self._reply(_Refusal(id, {"code": CODE_INTERNAL, "message": f"the handler of {method} failed"}))

    def _refuse(self, id: RequestId, code: int, message: str) -> None:
        if len(self._refused) < _MOST_REFUSALS:  # one that asks on and on without reading is not even told
            self._refused.append((id, code, message))
            if len(self._refused) == 1:
                self._keeper.spawn(self._send_refusals())

    async def _send_refusals(self) -> None:
        while self._refused:
            id, code, message = self._refused[0]
            await self._reply(_Refusal(id, {"code": code, "message": message}))
            self._refused.popleft()

    async def _reply(self, message: _Answer | _Refusal) -> None:
        headers = self.dialect.headers("", None) if self._has_begun else None
        try:
            data = encode(message)
        except (TypeError, ValueError, RecursionError) as error:
            _bounded.warning("an answer has no JSON form: %s", error)
            data = encode(_Refusal(message.id, {"code": CODE_INTERNAL, "message": "the answer has no JSON form"}))
        for pause in (*_REPLY_PAUSES, None):
            try:
                await self.link.send(data, headers)
                return
            except (TransportError, ProtocolError) as error:
                # Safe to send again: the question's id makes two answers one. And nobody else would.
                if pause is None or self.is_over or not self.link.is_http or not _may_pass(error):
                    log.debug("a reply could not be sent: %s", self._keeper.masked(error))
                    return
            await asyncio.sleep(pause)


def _may_pass(error: Error) -> bool:
    """Is this of the moment only: a process that died, a proxy whose server restarts?"""
    return isinstance(error, (ConnectFailed, ConnectionLost)) or getattr(error, "status", None) in (502, 503, 504)


def _error_body(error: ProtocolError) -> dict[str, Any]:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return body
