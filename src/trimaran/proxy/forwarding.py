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
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, field

from trimaran.bounded_log import BoundedLog
from trimaran.client.client import Client
from trimaran.client.pending_call import Progress
from trimaran.client.relaying import QUESTIONS, CallOver, Relay, SentRequest, relay_request
from trimaran.errors import (
    CODE_INTERNAL,
    CODE_INVALID_PARAMS,
    CODE_RESOURCE_NOT_FOUND,
    CallError,
    Closed,
    ConnectFailed,
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
from trimaran.protocol.versions import LATEST_LEGACY, MODERN
from trimaran.server.access import identity
from trimaran.server.exchange import SENT, Exchange
from trimaran.server.input_rounds import ModernVoice
from trimaran.server.running_calls import resume
from trimaran.types import Json, as_object

from .results import MalformedResult, for_older, is_sound, repair
from .url_elicitations import note_question, note_refusal

_log: Final = BoundedLog("trimaran.server")

_STATE: Final = "state"
_RESERVED: Final = (KEY_PROTOCOL_VERSION, KEY_CLIENT_INFO, KEY_CLIENT_CAPABILITIES, KEY_LOG_LEVEL, "progressToken")
ASKABLE: Final = ("elicitation", "sampling", "roots")
"""The capabilities of a caller that a target may use."""
_NEEDS: Final = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}

# Of notifications that wait for one caller: as many as a pipe's own messages may wait, at what a task for each takes.
_MOST_UNSENT: Final = 4 * 1024 * 1024
_TASK_BYTES: Final = 4 * 1024

_encode = msgspec.json.encode
_PIPE: Final = "the only client of a pipe, or of this process"
_sending: Final[set[asyncio.Task[None]]] = set()  # the loop itself keeps only weak references to tasks


_MAX_METAS: Final = 1024  # older callers with a call under way or not long ago; each takes a few hundred bytes
_metas: Final[dict[int, tuple[Any, str | None, Raw]]] = {}
"""What targets of 2026-07-28 are told of older callers, by the identity of the peer, which is kept beside it."""


class _InputRequired(Struct):
    requests: dict[str, dict[str, Any]] | None = field(name="inputRequests", default=None)
    state: str | None = field(name="requestState", default=None)


_decode_rounds = msgspec.json.Decoder(_InputRequired).decode


class Relayed:
    """A caller's request, as a relay of the client that calls the target."""

    passes_rounds = False
    extension: str | None = None
    sent: SentRequest | None = None
    _answering: set[asyncio.Task[Any]] | None = None
    _is_over = False

    def __init__(self, call: IncomingCall) -> None:
        self.call = call

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
        meta = passing_meta(call) if self.extension is None else None
        return Raw(_encode(self.modern_meta(id))) if meta is None else meta

    def modern_meta(self, id: int) -> dict[str, Any]:
        call = self.call
        peer = call.peer
        meta: dict[str, Any] = {key: value for key, value in call.meta.items() if key not in _RESERVED}
        meta[KEY_PROTOCOL_VERSION] = MODERN
        # Extensions are ours to speak with the caller: the answer to a plain call must not be a task (task_forwarding.py).
        meta[KEY_CLIENT_CAPABILITIES] = {name: peer.capabilities[name] for name in ASKABLE if name in peer.capabilities}
        if peer.info is not None:
            meta[KEY_CLIENT_INFO] = msgspec.to_builtins(peer.info)
        level = _log_level(call)
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
        if self._answering:
            for asking in tuple(self._answering):
                asking.cancel()

    def progress(self, report: Progress) -> None:
        report_progress(self.call, report)

    def notice(self, method: str, params: dict[str, Any]) -> None:
        send_log(self.call, method, params)


def passing_meta(call: IncomingCall) -> Raw | None:
    """The `_meta` for a target of 2026-07-28 that is the same for many calls; None if this call needs one of its own."""
    if call.progress_token is not None:
        return None
    raw = call.raw_meta
    if not call.modern:
        return _older_caller_meta(call) if raw is UNSET else None
    if raw is UNSET or "extensions" in call.peer.capabilities:
        return None
    return raw  # all that the target has to know, in the caller's own words


def _older_caller_meta(call: IncomingCall) -> Raw:
    """The `_meta` for a caller that described itself at its handshake: the same for all its calls."""
    peer, level = call.peer, _log_level(call)
    known = _metas.get(id(peer))
    if known is not None and known[0] is peer and known[1] == level:
        return known[2]
    meta = Raw(_encode(Relayed(call).modern_meta(0)))
    if len(_metas) >= _MAX_METAS:
        _metas.clear()
    _metas[id(peer)] = (peer, level, meta)
    return meta


def _log_level(call: IncomingCall) -> str | None:
    return call.log_level if call.session is None else call.session.log_level


def report_progress(call: IncomingCall, report: Progress) -> None:
    """Tell the caller of progress, under the caller's own token."""
    if call.progress_token is None or not call.exchange.advance(report.progress):
        return
    params: dict[str, Any] = {"progressToken": call.progress_token, "progress": report.progress}
    if report.total is not None:
        params["total"] = report.total
    if report.message is not None:
        params["message"] = report.message
    _notify_now(call.exchange, "notifications/progress", params)


def send_log(call: IncomingCall, method: str, params: dict[str, Any]) -> None:
    """Tell the caller what the target logs, if it wants to hear of that level."""
    level = params.get("level")
    exchange = call.exchange
    if level in LOG_LEVELS and not exchange.cancelled and exchange.voice.logs(exchange, level):
        _notify_now(exchange, method, {key: value for key, value in params.items() if key != "_meta"})


def _notify_now(exchange: Exchange, method: str, params: dict[str, Any]) -> None:
    """Begin to send, where nobody can wait: the target's result may follow at once, and must not overtake this.

    It is dropped if much waits already: the target says more than the caller reads.
    """
    if exchange.cancelled or exchange.expired:
        return
    data = exchange.voice.notification(method, params)
    size = len(data) + _TASK_BYTES
    if exchange.unsent and exchange.unsent + size > _MOST_UNSENT:
        return
    sending: Any = exchange.sink.send(data)
    if sending is SENT:
        return
    try:
        awaited = sending.send(None)
    except StopIteration:
        return

    async def finish() -> None:
        await resume(sending, awaited)

    def forget(task: asyncio.Task[None]) -> None:
        _sending.discard(task)
        exchange.unsent -= size

    exchange.unsent += size
    task = asyncio.ensure_future(finish())
    _sending.add(task)
    task.add_done_callback(forget)


class PassingRelay(Relayed):
    """Both sides speak 2026-07-28: an `input_required` result is the caller's to answer."""

    passes_rounds = True

    def can_answer(self, method: str) -> bool:
        return False


class LiveRelay(Relayed):
    """The caller can be asked while its call waits."""

    def __init__(self, call: IncomingCall, client: Client | None = None) -> None:
        super().__init__(call)
        self._client = client
        """Of the target, where the caller is told of the ends of URL elicitations."""

    def can_answer(self, method: str) -> bool:
        return method in QUESTIONS

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        if self._client is not None:
            note_question(self._client, self.call, params)
        return await answer_live(self.call, method, params)


async def answer_live(call: IncomingCall, method: str, params: Mapping[str, Any], key: str | None = None) -> Any:
    """Put a question of the target's to the caller, who waits; `key` tells the questions of a task apart."""
    exchange = call.exchange
    require_capability(call, method, params)
    plain = {key: value for key, value in params.items() if key != "_meta"}
    try:
        return await exchange.voice.ask(exchange, method, plain, key, None)
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
    voice = call.exchange.voice
    relay: Relay
    if isinstance(voice, ModernVoice):
        relay = PassingRelay(call)
        if call.exchange.rounds is not None:
            params = _with_answers(call, params)
    else:
        relay = LiveRelay(call, client)
    relay.sent, call.exchange.sent = call.exchange.sent, None
    try:
        raw, asks_for_input = await relay_request(client, call.method, params, name, relay)
    except Error as error:
        note_refusal(client, call, error)
        raise _translate(error, call, name, target) from error
    if asks_for_input and isinstance(voice, ModernVoice):
        _end_round(raw, call, voice, target)
        return None
    return read_result(raw, call, client, target)


async def send_round(
    client: Client,
    call: IncomingCall,
    voice: ModernVoice,
    params: dict[str, Any],
    name: str,
    relay: PassingRelay,
    target: str,
) -> Raw | None:
    """Make the request between sides of 2026-07-28; None if the round has ended with the target's questions."""
    raw, asks_for_input = await send(client, call, _with_answers(call, params), name, relay, target)
    if not asks_for_input:
        return raw
    _end_round(raw, call, voice, target)
    return None


def _with_answers(call: IncomingCall, params: dict[str, Any]) -> dict[str, Any]:
    """The params of this round: with the caller's answers and the target's state, if it is not the first."""
    rounds = call.exchange.rounds
    if rounds is None:
        return params
    params = {**params, "inputResponses": {**rounds.offered, **rounds.answers}}
    if _STATE in rounds.steps:
        params["requestState"] = rounds.steps[_STATE]
    return params


def _end_round(raw: Raw, call: IncomingCall, voice: ModernVoice, target: str) -> None:
    """End the round with the target's questions."""
    try:
        required = _decode_rounds(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise malformed(target, f"a malformed input_required result for {call.method}") from None
    if any(not isinstance(request.get("method"), str) for request in (required.requests or {}).values()):
        raise malformed(target, "an input request without a method")
    steps = {} if required.state is None else {_STATE: required.state}
    voice.end_round(call.exchange, required.requests or {}, steps)


async def send(
    client: Client, call: IncomingCall, params: dict[str, Any], name: str, relay: Any, target: str
) -> tuple[Raw, bool]:
    """Make the request; the target's errors become the caller's."""
    try:
        return await relay_request(client, call.method, params, name, relay)
    except Error as error:
        raise _translate(error, call, name, target) from error


def _translate(error: Error, call: IncomingCall, name: str, target: str) -> ProtocolError:
    """The target's error, as the caller gets it."""
    if isinstance(error, CallError) and call.method == "resources/read" and _is_missing(error):
        missing = ResourceMissing(name)  # each era has its own code for it
        missing.message, missing.data = error.message, error.data
        return missing
    if isinstance(error, Unauthorized):
        # What to do is for whoever runs the proxy: the address of the target is none of the caller's business.
        _log.warning("%s refused %s %.100s: %s", target, call.method, name, error, kind=target)
    return describe_failure(error, target)


def _is_missing(error: CallError) -> bool:
    """True if the target says that there is no such resource. A modern one names its URI; other bad params pass as they are."""
    if error.code == CODE_RESOURCE_NOT_FOUND:
        return True
    return error.code == CODE_INVALID_PARAMS and "uri" in (as_object(error.data) or {})


def read_result(raw: Raw, call: IncomingCall, client: Client, target: str) -> Any:
    """The target's result, for this caller: as it is where both write it alike."""
    if call.method != "tools/call":
        return raw
    far, near = client.version, call.peer.version
    is_alike = far == near or (far != MODERN and near != MODERN and far <= near)
    if is_alike and is_sound(raw, any_structure=near == MODERN):
        return raw
    if near == LATEST_LEGACY and far == MODERN:
        wraps = getattr(call.exchange.voice, "wraps", None)  # a task's voice does not say
        older = None if wraps is None else for_older(raw, wraps=wraps(call))
        if older is not None:
            return older
    try:
        return repair(raw)
    except MalformedResult as error:
        raise malformed(target, f"a malformed tool result: {error}") from None


def malformed(target: str, content: str) -> ProtocolError:
    return ProtocolError.internal_error(
        f"{target} sent {content}", {"upstream": target, "kind": "protocol"}, status=200
    )


Kind = Literal["unreachable", "lost", "timed_out", "unauthorized", "protocol", "failed"]


def describe_failure(error: Error, target: str) -> ProtocolError:
    """What the caller is told. A server's own error passes; our trouble with the connection is told without its details.

    Addresses and paths of the target are for the log of the proxy alone.
    """
    if isinstance(error, CallError) and not isinstance(error, HeaderMismatch):
        return ProtocolError(error.code, error.message, error.data)
    if isinstance(error, (ProtocolError, TransportError, Closed)):
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
        verb = "refuses" if error.status == 401 else "does not allow this with"
        return "unauthorized", f"{verb} the credentials of the proxy, whose log says what to do"
    if isinstance(error, RemoteProtocolError | HeaderMismatch):
        return "protocol", "sent an invalid answer"
    # A connection that we close ourselves fails the calls at work; those that waited for it were not sent.
    if getattr(error, "sent", False) or (isinstance(error, Closed) and not isinstance(error.__cause__, ConnectFailed)):
        return "lost", "lost its connection before it answered"
    return "unreachable", "cannot be reached at the moment"
