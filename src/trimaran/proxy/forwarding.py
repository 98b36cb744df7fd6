"""One call across a proxy: the caller's request goes to the target, and all that belongs to it comes back.

Both sides may speak different eras. What differs is how a question in the middle of a call reaches the caller:

    caller    target    a question of the target
    older     any       is a request to the caller; the call waits (`LiveRelay`)
    modern    modern    ends the round. The target's `requestState` is sealed into ours, so it serves this caller alone
    modern    older     ends the round too; the target's call stays open here (`parked_calls.py`)

A task's body counts as an older caller: it waits for its answers.

Results pass through as bytes wherever both sides write them alike. Errors keep their code, message and data. A target that
cannot be reached, or dies, is an internal error whose `data` names the kind of failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Literal, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from trimaran.client.client import Client
from trimaran.client.pending_call import Progress
from trimaran.client.relaying import QUESTIONS, CallOver, relay_request
from trimaran.errors import (
    CODE_INTERNAL,
    CODE_INVALID_PARAMS,
    CODE_RESOURCE_NOT_FOUND,
    CallError,
    Disconnected,
    Error,
    HeaderMismatch,
    ProtocolError,
    RemoteProtocolError,
    ResourceMissing,
    TimedOut,
    TransportError,
    Unauthorized,
)
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.meta import (
    KEY_CLIENT_CAPABILITIES,
    KEY_CLIENT_INFO,
    KEY_LOG_LEVEL,
    KEY_PROTOCOL_VERSION,
    LOG_LEVELS,
)
from trimaran.protocol.versions import MODERN
from trimaran.server.access import identity
from trimaran.server.exchange import SENT, Exchange
from trimaran.server.input_rounds import ModernVoice
from trimaran.server.running_calls import resume
from trimaran.types import CallToolResult, Json, as_object

__all__ = ["ASKABLE", "LiveRelay", "PassingRelay", "answer_live", "describe_failure", "forward", "read_result"]

_STATE: Final = "state"
_RESERVED: Final = (KEY_PROTOCOL_VERSION, KEY_CLIENT_INFO, KEY_CLIENT_CAPABILITIES, KEY_LOG_LEVEL, "progressToken")
ASKABLE: Final = ("elicitation", "sampling", "roots")
"""The capabilities of a caller that a target may use."""
_NEEDS: Final = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}

_encode = msgspec.json.encode
_PIPE: Final = "the only client of a pipe, or of this process"
_sending: Final[set[asyncio.Task[None]]] = set()  # the loop itself keeps only weak references to tasks


class _ToolResult(Struct):
    """The parts of a tool's result that a revision may spell in its own way; the rest stays as it came."""

    content: list[Any] = []
    structured: Raw | UnsetType = field(name="structuredContent", default=UNSET)
    is_error: bool | None = field(name="isError", default=None)
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class _InputRequired(Struct):
    requests: dict[str, dict[str, Any]] | None = field(name="inputRequests", default=None)
    state: str | None = field(name="requestState", default=None)


_decode_tool = msgspec.json.Decoder(_ToolResult).decode
_decode_rounds = msgspec.json.Decoder(_InputRequired).decode


class Relayed:
    """A caller's request, as a relay of the client that calls the target."""

    passes_rounds = False

    def __init__(self, call: IncomingCall) -> None:
        self.call = call
        self._answering: set[asyncio.Task[Any]] | None = None
        self._is_over = False

    @property
    def caller(self) -> object:
        """Who may be asked. Over HTTP anonymous callers of 2026-07-28 cannot be told apart: each call counts as a caller."""
        call = self.call
        if call.session is not None:
            return call.session
        if call.headers is None and call.principal is None:
            return _PIPE
        return call if call.principal is None else identity(call.principal)

    def write_meta(self, id: int, *, is_modern: bool) -> Raw | dict[str, Json] | None:
        call = self.call
        token = call.progress_token
        if not is_modern:
            extra = {key: value for key, value in call.meta.items() if key not in _RESERVED}
            return extra if token is None else {**extra, "progressToken": id}
        raw = call.raw_meta
        if call.modern and raw is not UNSET and token is None and "extensions" not in call.peer.capabilities:
            return raw  # all that the target has to know, in the caller's own words
        return Raw(_encode(self._modern_meta(id)))

    def _modern_meta(self, id: int) -> dict[str, Any]:
        call = self.call
        peer = call.peer
        meta: dict[str, Any] = {key: value for key, value in call.meta.items() if key not in _RESERVED}
        meta[KEY_PROTOCOL_VERSION] = MODERN
        # Extensions are ours to speak with the caller: a task of the target's would be unknown here.
        meta[KEY_CLIENT_CAPABILITIES] = {name: peer.capabilities[name] for name in ASKABLE if name in peer.capabilities}
        if peer.info is not None:
            meta[KEY_CLIENT_INFO] = msgspec.to_builtins(peer.info)
        level = call.log_level if call.session is None else call.session.log_level
        if level is not None:
            meta[KEY_LOG_LEVEL] = level
        if call.progress_token is not None:
            meta["progressToken"] = id
        return meta

    async def answer(self, method: str, params: Mapping[str, Any]) -> Any:
        """Put a question of the target's to the caller, for as long as the call lasts."""
        if self._is_over:
            raise CallOver
        asking = asyncio.ensure_future(self.ask(method, params))
        self._answering = {*(self._answering or ()), asking}
        try:
            return await asking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_over and not (task is not None and task.cancelling()):
                raise CallOver from None
            raise
        finally:
            asking.cancel()
            self._answering.discard(asking)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        raise ProtocolError.method_not_found(method)

    def end(self) -> None:
        self._is_over = True
        for asking in tuple(self._answering or ()):
            asking.cancel()

    def progress(self, report: Progress) -> None:
        report_progress(self.call, report)

    def notice(self, method: str, params: dict[str, Any]) -> None:
        send_log(self.call, method, params)


def report_progress(call: IncomingCall, report: Progress) -> None:
    """Tell the caller of progress, under the caller's own token."""
    if call.progress_token is None or not call.exchange.advance(report.progress):
        return
    params: dict[str, Any] = {"progressToken": call.progress_token, "progress": report.progress}
    if report.total is not None:
        params["total"] = report.total
    if report.message is not None:
        params["message"] = report.message
    _send_now(call.exchange.notify("notifications/progress", params))


def send_log(call: IncomingCall, method: str, params: dict[str, Any]) -> None:
    """Tell the caller what the target logs, if it wants to hear of that level."""
    level = params.get("level")
    exchange = call.exchange
    if level in LOG_LEVELS and not exchange.cancelled and exchange.voice.logs(exchange, level):
        _send_now(exchange.notify(method, {key: value for key, value in params.items() if key != "_meta"}))


def _send_now(sending: Any) -> None:
    """Begin to send, where nobody can wait: the target's result may follow at once, and must not overtake this."""
    if sending is SENT:
        return
    try:
        awaited = sending.send(None)
    except StopIteration:
        return

    async def finish() -> None:
        await resume(sending, awaited)

    task = asyncio.ensure_future(finish())
    _sending.add(task)
    task.add_done_callback(_sending.discard)


@final
class PassingRelay(Relayed):
    """Both sides speak 2026-07-28: an `input_required` result is the caller's to answer."""

    passes_rounds = True

    def can_answer(self, method: str) -> bool:
        return False


@final
class LiveRelay(Relayed):
    """The caller can be asked while its call waits."""

    def can_answer(self, method: str) -> bool:
        return method in QUESTIONS

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        return await answer_live(self.call, method, params)


async def answer_live(call: IncomingCall, method: str, params: Mapping[str, Any]) -> Any:
    """Put a question of the target's to the caller, who waits."""
    exchange = call.exchange
    require_capability(call, method, params)
    plain = {key: value for key, value in params.items() if key != "_meta"}
    try:
        return await exchange.voice.ask(exchange, method, plain, None, None)
    except (Disconnected, TimedOut) as error:
        raise ProtocolError.internal_error(f"{method} was not answered: {error}") from None


def require_capability(call: IncomingCall, method: str, params: Mapping[str, Any]) -> None:
    """MissingCapability if the caller did not declare that it can answer this."""
    capability = _NEEDS[method]
    if capability == "elicitation" and params.get("mode") == "url":
        capability = "elicitation.url"
    if not call.peer.supports(capability):
        needed, _, mode = capability.partition(".")
        raise call.exchange.voice.lacks(capability, {needed: {mode: {}} if mode else {}})


async def forward(client: Client, call: IncomingCall, params: dict[str, Any], name: str, target: str) -> Any:
    """Have the target serve a call whose caller can wait, or whose rounds the target keeps.

    Returns the result as this caller's era writes it; None if the round has ended with questions.
    """
    exchange: Exchange = call.exchange
    voice = exchange.voice
    if not isinstance(voice, ModernVoice):
        raw, _ = await send(client, call, params, name, LiveRelay(call), target)
        return read_result(raw, call, client)
    rounds = exchange.rounds
    if rounds is not None:
        params = {**params, "inputResponses": {**rounds.offered, **rounds.answers}}
        if _STATE in rounds.steps:
            params["requestState"] = rounds.steps[_STATE]
    raw, asks_for_input = await send(client, call, params, name, PassingRelay(call), target)
    if not asks_for_input:
        return read_result(raw, call, client)
    try:
        required = _decode_rounds(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise malformed(target, f"a malformed input_required result for {call.method}") from None
    if any(not isinstance(request.get("method"), str) for request in (required.requests or {}).values()):
        raise malformed(target, "an input request without a method")
    steps = {} if required.state is None else {_STATE: required.state}
    voice.end_round(exchange, required.requests or {}, steps)
    return None


async def send(
    client: Client, call: IncomingCall, params: dict[str, Any], name: str, relay: Any, target: str
) -> tuple[Raw, bool]:
    """Make the request; the target's errors become the caller's."""
    try:
        return await relay_request(client, call.method, params, name, relay)
    except CallError as error:
        if call.method == "resources/read" and _is_missing(error):
            missing = ResourceMissing(name)  # each era has its own code for it
            missing.message, missing.data = error.message, error.data
            raise missing from error
        raise describe_failure(error, target) from error
    except Error as error:
        raise describe_failure(error, target) from error


def _is_missing(error: CallError) -> bool:
    """True if the target says that there is no such resource. A modern one names its URI; other bad params pass as they are."""
    if error.code == CODE_RESOURCE_NOT_FOUND:
        return True
    return error.code == CODE_INVALID_PARAMS and "uri" in (as_object(error.data) or {})


def read_result(raw: Raw, call: IncomingCall, client: Client) -> Any:
    """The target's result, for this caller: as it is where both write it alike."""
    if call.method != "tools/call":
        return raw
    far, near = client.version, call.peer.version
    if far == near or (far != MODERN and near != MODERN and far <= near):
        return raw
    try:
        result = _decode_tool(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise malformed(client_name(client), "a malformed tool result") from None
    meta = {key: value for key, value in (result.meta or {}).items() if not key.startswith("io.modelcontextprotocol/")}
    return CallToolResult(
        content=result.content,
        structured_content=result.structured,
        is_error=bool(result.is_error),
        meta=meta or None,
    )


def client_name(client: Client) -> str:
    info = client.server_info
    return "the server" if info is None else repr(info.name)


def malformed(target: str, what: str) -> ProtocolError:
    return ProtocolError.internal_error(f"{target} sent {what}", {"upstream": target, "kind": "protocol"}, status=200)


Kind = Literal["unreachable", "lost", "timed_out", "unauthorized", "protocol", "failed"]


def describe_failure(error: Error, target: str) -> ProtocolError:
    """What the caller is told. A server's own error passes; our trouble with the connection is told without its details.

    Addresses and paths of the target are for the log of the proxy alone.
    """
    if isinstance(error, CallError) and not isinstance(error, HeaderMismatch):
        return ProtocolError(error.code, error.message, error.data)
    if isinstance(error, (ProtocolError, TransportError)):
        kind, reason = _kind_of(error)
        text = f"{target} {reason}; the call may have been carried out" if kind == "lost" else f"{target} {reason}"
        return ProtocolError(CODE_INTERNAL, text, {"upstream": target, "kind": kind}, status=200)
    return ProtocolError(
        CODE_INTERNAL, f"{target} could not be called", {"upstream": target, "kind": "failed"}, status=200
    )


def _kind_of(error: Error) -> tuple[Kind, str]:
    if isinstance(error, TimedOut):
        return "timed_out", "did not answer in time"
    if isinstance(error, Unauthorized):
        return "unauthorized", "refuses the credentials of the proxy"
    if isinstance(error, RemoteProtocolError | HeaderMismatch):
        return "protocol", "sent what is no valid answer"
    if getattr(error, "sent", False):
        return "lost", "was lost before it had answered"
    return "unreachable", "cannot be reached at the moment"
