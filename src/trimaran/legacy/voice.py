"""How a legacy revision is spoken to one session's client: results without modern fields, questions as real requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, final

import msgspec
from msgspec import Raw

from trimaran.errors import (
    CODE_INVALID_REQUEST,
    CODE_MISSING_CAPABILITY,
    CODE_RESOURCE_NOT_FOUND,
    MissingCapability,
    ProtocolError,
    ResourceMissing,
)
from trimaran.protocol.envelope import legacy_result
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.meta import LOG_LEVELS
from trimaran.protocol.older_revisions import revise, revise_form
from trimaran.protocol.versions import LATEST_LEGACY, V2025_06, V2025_11
from trimaran.schema import enc_hook
from trimaran.server.exchange import Exchange
from trimaran.types import CallToolResult

if TYPE_CHECKING:
    from trimaran.protocol.envelope import Envelope
    from trimaran.protocol.outbound import Writer

    from .session import Session


@final
class LegacyVoice:
    def __init__(self, writer: Writer, session: Session) -> None:
        self._writer = writer
        self._session = session
        self._is_latest = session.peer.version == LATEST_LEGACY
        self._has_structure = session.peer.version >= V2025_06

    def notification(self, method: str, params: dict[str, Any]) -> bytes:
        if not self._is_latest:
            params = revise(method, params, self._session.peer.version, enc_hook)
        return self._writer.notification(method, params)

    def result(self, call: IncomingCall, result: Any) -> bytes:
        if self._has_structure and call.method == "tools/call" and not isinstance(result, Raw):
            result = legacy_result(result, self._envelope(call), self._writer.encode)
        if isinstance(result, Raw):
            return self._writer.legacy_result(call.id, result)
        if not self._is_latest:
            return self._writer.legacy_result(call.id, revise(call.method, result, call.peer.version, enc_hook))
        if hasattr(result, "ttl_ms"):
            result = msgspec.structs.replace(result, ttl_ms=None, cache_scope=None)
        return self._writer.legacy_result(call.id, result)

    def wraps(self, call: IncomingCall) -> bool:
        """Does all structure in the results of the called tool travel in an envelope?"""
        envelope = self._envelope(call)
        return envelope is not None and envelope.wraps

    def _envelope(self, call: IncomingCall) -> Envelope | None:
        """How the results of the called tool travel, as it was decided when the tool was declared."""
        entry = self._session.server.tools.view.get(call.params.name) if call.method == "tools/call" else None
        return None if entry is None else entry.envelope

    def error(self, call: IncomingCall, error: ProtocolError) -> bytes:
        if isinstance(error, ResourceMissing):
            error = ProtocolError(CODE_RESOURCE_NOT_FOUND, error.message, error.data)
        elif error.code == CODE_MISSING_CAPABILITY:
            # A code these revisions do not know.
            error = ProtocolError(CODE_INVALID_REQUEST, error.message, error.data)
        return self._writer.error(call.id, error)

    def logs(self, exchange: Exchange, level: str) -> bool:
        return LOG_LEVELS.index(level) >= LOG_LEVELS.index(self._session.log_level)

    async def ask(
        self, exchange: Exchange, method: str, params: dict[str, Any], key: str | None, timeout: float | None
    ) -> Any:
        # A call without a stream of its own (a batched one) asks on the session's.
        sink = None if getattr(exchange.sink, "is_shared", False) else exchange.sink
        return await self._session.request(method, self.spelled(method, params), timeout, sink)

    def spelled(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A question in the words of the session's revision."""
        version = self._session.peer.version
        if method != "elicitation/create":
            return params
        if params.get("mode") == "url":
            return {"elicitationId": self._session.next_id(), **params}  # a proxied question has one
        form = {k: v for k, v in params.items() if k != "mode" or version >= V2025_11}
        return {**form, "requestedSchema": revise_form(params["requestedSchema"], version)}

    async def step(self, exchange: Exchange, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        # The body runs once on these revisions, so a step does too.
        return await run()

    def open_rounds(self, exchange: Exchange) -> None:
        """Nothing: these revisions have no rounds."""

    def suspended(self, exchange: Exchange) -> None:
        return None

    def bad_arguments(self, message: str) -> CallToolResult:
        if self._session.peer.version >= V2025_11:
            return CallToolResult.error(message)
        raise ProtocolError.invalid_params(message)

    def lacks(self, capability: str, required: dict[str, Any]) -> ProtocolError:
        return MissingCapability(
            CODE_MISSING_CAPABILITY,
            f"this needs the client capability {capability!r}, which the client did not declare when it connected",
            {"requiredCapabilities": required},
            status=200,
        )
