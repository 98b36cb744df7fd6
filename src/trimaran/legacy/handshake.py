"""The methods that only legacy revisions have, and the checks of every legacy call on every transport.

    initialize -> result -> notifications/initialized -> anything the revision has

Before `initialized` only `ping` is answered (R97). A method the revision does not have is unknown, and so is one whose
capability is not advertised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast, final

import msgspec

from trimaran.errors import ProtocolError
from trimaran.protocol.inbound import IncomingCall, IncomingNotification, read_cancellation
from trimaran.protocol.meta import LOG_LEVELS, Peer
from trimaran.protocol.older_revisions import revise, revise_capabilities
from trimaran.protocol.versions import V2025_06, V2025_11
from trimaran.protocol.versions import negotiate as negotiate_version
from trimaran.schema import enc_hook
from trimaran.server.access import InsufficientScope
from trimaran.server.changes import check_watched
from trimaran.server.dispatch import Serve
from trimaran.server.handlers import call_any, incident
from trimaran.types import EmptyResult, InitializeResult, Json

from .session import Outlet, Session, SessionTable

if TYPE_CHECKING:
    from trimaran.server.server import Server

_MOST_INTRODUCED: Final = 64 * 1024  # bytes; every session keeps it, and there may be ten thousand


@final
class Handshake:
    """Opens sessions and lets their calls through."""

    def __init__(self, server: Server) -> None:
        self._server = server
        if server.runtime.sessions is None:
            server.runtime.sessions = SessionTable(server)
        self.sessions: SessionTable = cast("SessionTable", server.runtime.sessions)
        self._tables: dict[str, dict[str, Serve]] = {}
        self._tables_of: object = None
        self._own: dict[str, Serve] = {
            "ping": self._ping,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    async def open(
        self, call: IncomingCall, outlet: Callable[[], Outlet], principal: Any, owner: Any
    ) -> tuple[Session, Any]:
        """Serve `initialize`: a session and the result to send."""
        if call.params is None:
            raise ProtocolError.invalid_params(f"initialize: {call.shape_error}")
        peer = negotiate(call)
        _check_introduction(peer)
        await self._server.runtime.get_ready()
        # The result first: if it cannot be made, no session is left behind.
        result = self.result(peer.version)
        return await self.sessions.create(peer, outlet, principal, owner), result

    def result(self, version: str) -> Any:
        """The result of `initialize` in the negotiated revision."""
        server = self._server
        result = InitializeResult(
            protocol_version=version,
            capabilities=revise_capabilities(server.runtime.handshake_capabilities(), version),
            server_info=server.info,
            instructions=server.instructions,
        )
        return revise("initialize", result, version, enc_hook)

    def admit(self, call: IncomingCall, session: Session, principal: Any) -> Serve:
        """Let a call of this session through: the coroutine function that serves it, or the error that stops it.

        `principal` sent this call. It is the session's owner, perhaps with newer credentials.
        """
        call.peer = session.peer
        call.session = session
        call.principal = session.principal = principal
        if not session.initialized and call.method != "ping":
            raise ProtocolError.invalid_request(
                f"{call.method[:200]} came before notifications/initialized; finish the handshake first", status=400
            )
        if call.id in session.calls:
            raise ProtocolError.invalid_request(f"a request with the id {call.id!r} is still being served", status=200)
        if len(session.calls) >= self._server.limits.max_concurrent_calls_per_session:
            raise ProtocolError.internal_error(
                f"this session already has {len(session.calls)} calls at work; wait for some to finish", status=503
            )
        serve = self._table(session.peer.version).get(call.method)
        return serve if serve is not None and call.params is not None else self.handler(call)

    def _table(self, version: str) -> dict[str, Serve]:
        """The handlers by method of a revision, built once per change of the server's capabilities."""
        dispatcher = self._server.runtime.dispatcher
        if self._tables_of is not dispatcher.edition:
            self._tables_of = dispatcher.edition
            self._tables.clear()
        table = self._tables.get(version)
        if table is None:
            rows = dispatcher.rows()
            table = self._tables[version] = {
                name: self._own.get(name) or dispatcher.handlers[name]
                for name, row in rows.items()
                if row.exists_in(version)
                and (row.capability is None or row.capability in dispatcher.groups)
                and (name in self._own or name in dispatcher.handlers)
            }
        return table

    def handler(self, call: IncomingCall) -> Serve:
        """The handler of this call on its revision. Raises if there is none."""
        serve = self._table(call.peer.version).get(call.method)
        if serve is None:
            raise ProtocolError.method_not_found(call.method)
        if call.params is None:
            raise ProtocolError.invalid_params(f"{call.method}: {call.shape_error}")
        return serve

    async def hear(self, notice: IncomingNotification, session: Session) -> None:
        """Take a notification. Unknown ones are ignored."""
        session.touch()
        if notice.method == "notifications/initialized":
            session.initialized = True
            await session.keep(initialized=True)
        elif notice.method == "notifications/cancelled":
            session.hear_cancelled(*read_cancellation(notice))
        elif notice.method == "notifications/roots/list_changed" and self._server.on_roots_changed is not None:
            try:
                await call_any(self._server.on_roots_changed, session)
            except Exception as error:
                incident("on_roots_changed", error)

    async def _ping(self, call: IncomingCall) -> EmptyResult:
        return EmptyResult()

    async def _set_level(self, call: IncomingCall) -> EmptyResult:
        level = call.params.level
        if level not in LOG_LEVELS:
            raise ProtocolError.invalid_params(
                f"there is no log level {level[:40]!r}; use one of {', '.join(LOG_LEVELS)}"
            )
        if self._server.on_set_level is not None:
            from trimaran.server.context import Context

            await call_any(self._server.on_set_level, level, Context(call, self._server))
        # Only once the hook has agreed (R70).
        session = _session_of(call)
        session.log_level = level
        await session.keep(log_level=level)
        return EmptyResult()

    async def _subscribe(self, call: IncomingCall) -> EmptyResult:
        session = _session_of(call)
        lacking = self._server.runtime.dispatcher.resources.scopes_lacking(call.params.uri, call.principal)
        if lacking:
            raise InsufficientScope(lacking)
        if call.params.uri not in session.subscriptions:
            check_watched(session.subscriptions | {call.params.uri}, self._server.limits.max_subscriptions, "session")
        await self._tell_callbacks("subscribe_resource", call)
        session.subscriptions.add(call.params.uri)
        await self._server.runtime.changes.settle_watching()
        await session.keep(subscribe=call.params.uri)
        return EmptyResult()

    async def _unsubscribe(self, call: IncomingCall) -> EmptyResult:
        await self._tell_callbacks("unsubscribe_resource", call)
        session = _session_of(call)
        session.subscriptions.discard(call.params.uri)
        self._server.runtime.changes.watching_changed()
        await session.keep(unsubscribe=call.params.uri)
        return EmptyResult()

    async def _tell_callbacks(self, name: str, call: IncomingCall) -> None:
        callback = getattr(self._server.callbacks, name, None)
        if callback is not None:
            from trimaran.server.context import Context

            await call_any(callback, call.params.uri, Context(call, self._server))


def negotiate(call: IncomingCall) -> Peer:
    """The revision both speak: the one asked for if it is legacy, else the newest legacy one (R18)."""
    params = call.params
    version = negotiate_version(params.protocol_version)
    return Peer(version=version, capabilities=_known(params.capabilities, version), info=params.client_info)


def _check_introduction(peer: Peer) -> None:
    """Refuse a client that says more of itself than a session should keep."""
    size = len(msgspec.json.encode((peer.capabilities, peer.info)))
    if size > _MOST_INTRODUCED:
        raise ProtocolError.invalid_params(
            f"initialize: capabilities and clientInfo have at most {_MOST_INTRODUCED} bytes, not {size}; "
            "give icons as https URLs, not as data"
        )


def _known(capabilities: Mapping[str, Json], version: str) -> dict[str, Json]:
    """The declared capabilities that the revision has. The server may use no others."""
    known = dict(capabilities)
    if version < V2025_06:
        known.pop("elicitation", None)
    if version < V2025_11:
        known.update({name: {} for name in ("elicitation", "sampling") if name in known})
    return known


def _session_of(call: IncomingCall) -> Session:
    assert isinstance(call.session, Session)  # `admit` set it
    return call.session
