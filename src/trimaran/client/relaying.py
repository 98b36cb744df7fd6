"""Calls that a client makes for somebody else: a proxy's, on behalf of one of its own callers.

Progress, log messages and questions of such a call go to its `Relay` instead of the client's own handlers. The
relay also writes the `_meta` of its requests, so that a server of 2026-07-28 sees the real caller's capabilities.

Over HTTP the stream says which call a message belongs to. On a pipe a question of a task of 2025-11-25 names the task, and
goes to whoever waits for its result. Nothing else says whose it is: a question goes to the only call under way, or to the
newest one if a single caller has made them all, then to the next if that one ends. Otherwise nobody is asked, and the server
is told why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import msgspec
from msgspec import Raw

from trimaran.errors import ProtocolError
from trimaran.types import Json, as_object

from .link import PostingLink, SharedHeaders
from .pending_call import PendingCall, Progress

if TYPE_CHECKING:
    from .client import Client
    from .options import ClientState
    from .peer_session import PeerSession

_decode = msgspec.json.Decoder().decode

_RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
QUESTIONS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
"""The requests of a server that are meant for the caller, not for the client itself."""


class CallOver(Exception):
    """The call that a question was put to is over, and the question unanswered: it may have been another call's."""


@final
class SentRequest:
    """A request that was sent before a task waited for its answer."""

    __slots__ = ("headers", "id", "link", "message", "sending", "session")

    def __init__(
        self, session: PeerSession, link: PostingLink, id: int, message: bytes, headers: SharedHeaders, sending: Any
    ) -> None:
        self.session: PeerSession = session
        self.link: PostingLink = link
        self.id: int = id
        self.message: bytes = message
        self.headers: SharedHeaders = headers
        self.sending: Any = sending
        """`PostingLink.request` waits for it."""


class Relay(Protocol):
    """One call of a caller, on its way through this client."""

    sent: SentRequest | None
    """The first request of the call, if it was sent already."""

    @property
    def caller(self) -> object:
        """Equal for calls of the same caller."""
        ...

    passes_rounds: bool
    """Hand an `input_required` result to the caller, instead of answering it by `answer`."""
    extension: str | None
    """The extension that the request declares, and whose kind of result it takes."""

    def write_meta(self, id: int, *, is_modern: bool) -> Raw | dict[str, Json] | None:
        """The `_meta` of a request: for a modern server the whole of it, else what is to be added."""
        ...

    def can_answer(self, method: str) -> bool: ...
    async def answer(self, method: str, params: Mapping[str, Any]) -> Any:
        """Raises CallOver if the call ends first."""
        ...

    def end(self) -> None:
        """The call is over, and nobody waits for answers any more."""
        ...

    def progress(self, report: Progress) -> None: ...
    def notice(self, method: str, params: dict[str, Any]) -> None: ...


def find_relay(calls: Collection[PendingCall], params: Mapping[str, Any]) -> Relay | None:
    """The relay of a message whose stream does not say which of these calls it belongs to; None if that cannot be told."""
    # While a task is only looked at, nobody is asked: the look would be over before the answer is there.
    relayed = [call for call in calls if call.relay is not None and call.method not in ("tasks/get", "tasks/cancel")]
    related = as_object((as_object(params.get("_meta")) or {}).get(_RELATED_TASK))
    if related is not None:
        relayed = [call for call in relayed if call.task_id == related.get("taskId")] or relayed
    if not relayed:
        return None
    newest = max(relayed, key=lambda call: call.id).relay
    assert newest is not None
    is_clear = all(call.relay is not None and call.relay.caller == newest.caller for call in relayed)
    return newest if is_clear else None


def unclear_question(method: str) -> ProtocolError:
    """The answer to a server whose question belongs to nobody, or to one of several callers."""
    return ProtocolError.internal_error(
        f"{method} cannot be answered: several callers are being served on this connection, and the request does not say "
        "which of them it is for; give each caller a connection of its own"
    )


class PostingConnection(Protocol):
    """A connection, for whoever sends requests of somebody else at once."""

    is_relaying: bool
    """To be set before the first one."""

    @property
    def state(self) -> ClientState: ...
    @property
    def live_session(self) -> PeerSession | None: ...
    def next_id(self) -> int: ...


def connection_of(client: Client) -> PostingConnection:
    return client._connection  # pyright: ignore[reportPrivateUsage] - a seam for proxies


def relay_request(
    client: Client, method: str, params: Mapping[str, Any], name: str, relay: Relay
) -> Coroutine[Any, Any, tuple[Raw, bool]]:
    """Send a request for somebody else; its result, and whether that is an `input_required` one.

    There is no deadline: the call that it serves has one.
    """
    connection, tools = client._connection, client._tools  # pyright: ignore[reportPrivateUsage] - a seam for proxies
    if method != "tools/call":
        return connection.relay(method, params, name or None, None, relay, is_repeatable=True)
    tool = tools.get(name)
    if tool is None:
        return connection.relay(method, params, name, None, relay, is_repeatable=False)
    headers = None
    if tool.headers is not None:
        headers = dict(tool.headers.mirror(as_object(_decode(params["arguments"])) or {}))
    return connection.relay(method, params, name, headers, relay, is_repeatable=tool.is_repeatable)


def hear_notices(client: Client, hear: Callable[[str, dict[str, Any]], None]) -> None:
    """Hear what the server tells, beside the client itself; progress is not among it."""
    connection = client._connection  # pyright: ignore[reportPrivateUsage] - a seam for proxies
    own = connection.on_notice

    def both(method: str, params: dict[str, Any]) -> None:
        own(method, params)
        hear(method, params)

    connection.on_notice = both
