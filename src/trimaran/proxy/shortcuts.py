"""The shortcut of a remote tool: its calls are sent as bytes around the caller's arguments, and answered as bytes.

`server/shortcuts.py` has the contracts, and says when a call leaves the shortcut. Here it is decided whether a call may take it:
the target speaks 2026-07-28 over plain HTTP, all callers share the connection to it, and the caller wants no progress.

The target's answer is looked at before it passes, as on the usual way. A result of a few short texts takes one decode; any
other answer is for the usual way, which reads it again.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, cast, final

import msgspec
from msgspec import UNSET, Raw

from trimaran.client.client import Client
from trimaran.client.link import PostingLink, SharedHeaders
from trimaran.client.peer_session import PeerSession
from trimaran.client.relaying import PostingConnection, SentRequest, connection_of
from trimaran.protocol.envelope import Envelope
from trimaran.protocol.http1_framing import ResponseHead
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.versions import LATEST_LEGACY, MODERN
from trimaran.server.context import Context
from trimaran.server.shortcuts import CallReceiver

from .forwarding import passing_meta
from .results import read_plain_reply

if TYPE_CHECKING:
    from .upstream import Upstream

_NO_ARGUMENTS: Final = Raw(b"{}")
_METHOD: Final = "tools/call"
_PASSING: Final = (MODERN, LATEST_LEGACY)
"""The revisions of callers that a result of 2026-07-28 is written for without reading it all."""


@final
class ToolShortcut:
    """Sends the calls of one tool."""

    __slots__ = ("_client", "_headers", "_link", "_middle", "_session", "name", "upstream")

    def __init__(self, upstream: Upstream, name: str) -> None:
        self.upstream: Upstream = upstream
        self.name: str = name
        self._middle = b',"method":"tools/call","params":{"name":%b,"arguments":' % msgspec.json.encode(name)
        self._client: Client | None = None
        self._session: PeerSession | None = None
        """The session that the following were found in."""
        self._link: PostingLink | None = None
        self._headers: SharedHeaders = SharedHeaders()

    def __call__(self, call: IncomingCall, envelope: Envelope | None, receiver: CallReceiver) -> _SentCall | None:
        upstream = self.upstream
        client = upstream.shared_client
        if client is None:
            return None
        connection = connection_of(client)
        session = connection.live_session
        if session is None or connection.state != "ready":
            return None
        if session is not self._session:
            self._prepare(connection, session)
        link = self._link
        if link is None or call.peer.version not in _PASSING:
            return None
        meta, control = passing_meta(call), upstream.control
        if meta is None or (control is not None and not control.admits_at_once(call, self.name)):
            return None
        arguments = _NO_ARGUMENTS if call.params.arguments is UNSET else call.params.arguments
        id = connection.next_id()
        message = b'{"jsonrpc":"2.0","id":%d%b%b,"_meta":%b}}' % (id, self._middle, arguments, meta)
        sent = _SentCall(self, call, envelope, receiver, client, session, link, id, message)
        line = link.post_for(sent, message, self._headers)
        if line is None:
            return None
        sent.line = line
        if control is not None:
            control.active += 1
        return sent

    def _prepare(self, connection: PostingConnection, session: PeerSession) -> None:
        """Find what all calls of a session have in common."""
        self._session = session
        self._link = None
        connection.is_relaying = session.has_served = True
        if session.dialect.version == MODERN and hasattr(session.link, "post_for"):
            self._link = cast("PostingLink", session.link)
            self._headers = cast("SharedHeaders", session.dialect.headers(_METHOD, self.name))

    @property
    def headers(self) -> SharedHeaders:
        return self._headers


@final
class _SentCall:
    """One call on its way."""

    __slots__ = (
        "_call",
        "_client",
        "_envelope",
        "_id",
        "_link",
        "_message",
        "_receiver",
        "_session",
        "_shortcut",
        "_started",
        "answer",
        "line",
    )

    def __init__(
        self,
        shortcut: ToolShortcut,
        call: IncomingCall,
        envelope: Envelope | None,
        receiver: CallReceiver,
        client: Client,
        session: PeerSession,
        link: PostingLink,
        id: int,
        message: bytes,
    ) -> None:
        self._shortcut = shortcut
        self._call = call
        self._envelope = envelope
        self._receiver = receiver
        self._client = client
        self._session = session
        self._link = link
        self._id = id
        self._message = message
        self._started = time.perf_counter()
        self.line: Any = None
        self.answer: Any = None

    # The connection's side

    def take(self, head: ResponseHead, body: bytes) -> None:
        try:
            result = self._read(body) if head.status == 200 and head.is_plain_json else None
        except Exception:
            result = None  # the usual way meets the same error, and tells of it
        if result is None:
            self._await(self.line.response(head, body))
            self._receiver.promote()
            return
        self._link.leave()
        self._receiver.receive(result)

    def _read(self, body: bytes) -> bytes | None:
        """The result as the caller reads it; None if the usual way has to read the answer."""
        call, shortcut = self._call, self._shortcut
        answer = read_plain_reply(body, self._id, self._envelope, is_for_older=call.session is not None)
        if answer is None:
            return None
        control = shortcut.upstream.control
        if control is not None and not control.note_plain_reply(call, shortcut.name, answer, self._started):
            return None
        return answer.result

    def wait(self) -> None:
        if self.answer is None:
            self._await(self.line.wait())
            self._receiver.promote()

    def _await(self, answer: Any) -> None:
        self.answer = answer
        self._link.leave()
        answer.add_done_callback(_note_failure)  # nobody may come to wait for it

    # The handler's side

    def finish(self, ctx: Context) -> Coroutine[Any, Any, Any]:
        ctx.call.exchange.sent = SentRequest(
            self._session, self._link, self._id, self._message, self._shortcut.headers, (self.line, self.answer)
        )
        del self._receiver  # it refers back to us: a cycle, which only the garbage collector would end
        shortcut, upstream = self._shortcut, self._shortcut.upstream
        arguments = _NO_ARGUMENTS if self._call.params.arguments is UNSET else self._call.params.arguments
        params = {"name": shortcut.name, "arguments": arguments}
        return upstream.finish(self._client, ctx, params, shortcut.name, self._started)


def _note_failure(answer: Any) -> None:
    if not answer.cancelled():
        answer.exception()
