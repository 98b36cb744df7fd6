"""Read one message: bytes (and, over HTTP, headers) in, `IncomingCall`, `IncomingNotification`, `IncomingReply` or `Batch` out.

Pure: no I/O and no clock; the only state between messages is the cache of `MetaReader`. HTTP passes its headers,
stdio and memory pass None and walk the same ladder without the header rungs.

The modern ladder, first failure wins, so that a peer that contradicts itself hears that before "unsupported":

    bytes -> JSON -> envelope -> `_meta` -> version header agrees -> revision served -> Mcp-Method agrees
          -> method served -> typed params -> Mcp-Name agrees

A message that names no revision in `_meta` belongs to a legacy era, unless its version header says otherwise; it is
read just as far as its envelope and params, and `legacy/` asks the questions that need a session.

Every failure is a RemoteProtocolError with the JSON-RPC code and the HTTP status the specification pairs with it, and
with the id of the request where one could be read. Whether a *tool* exists is not a rung: `server/tools.py` owns the
registry, so it owns that answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, cast, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from trimaran.depth import MAX_CONTAINERS, MAX_DEPTH, TooDeep, check_depth
from trimaran.errors import (
    CODE_HEADER_MISMATCH,
    CODE_INVALID_REQUEST,
    CODE_PARSE,
    CODE_UNSUPPORTED_VERSION,
    ProtocolError,
    RemoteProtocolError,
)
from trimaran.types import Json, as_object
from trimaran.types.wire import MAX_NAME, Name

from .headers import HeaderLookup, routing_name_matches
from .meta import KEY_LOG_LEVEL, KEY_PROTOCOL_VERSION, LOG_LEVELS, MetaReader, Peer, RequestMeta
from .methods import METHODS, Method
from .versions import MODERN, SUPPORTED, is_legacy

if TYPE_CHECKING:
    from trimaran.server.exchange import Exchange
    from trimaran.server.seams import CallSession

RequestId: TypeAlias = int | str


@final
class IncomingCall:
    """A decoded request. Everything a handler can learn about the request is here or reachable from here."""

    # Defaults live on the class: most calls never touch them, and making a call is on the hot path.
    shape_error: str | None = None
    """Why `params` is None."""
    principal: object = None
    """The authenticated caller, or None. A custom authenticator may return an object of any class."""
    exchange: Exchange = cast("Any", None)
    """Where everything that answers the call goes; set by the transport before the call is served."""
    session: CallSession | None = None
    """The legacy session, if the call belongs to one."""
    state: Any = None
    """Data of middleware and handlers for the length of the call."""
    versions: tuple[str, ...] = SUPPORTED
    """The revisions served where this call came in."""
    timeout: float | None = None
    """Seconds this call may take; None for the server's default."""
    _meta: Mapping[str, Json] | None = None

    def __init__(
        self,
        id: RequestId,
        method: str,
        row: Method | None,
        params: Any,
        peer: Peer | None,
        raw_meta: Raw | UnsetType,
        reserved: RequestMeta,
        headers: HeaderLookup | None,
    ) -> None:
        self.id = id
        self.method = method
        self.row = row
        self.params = params
        """Typed params, by the method's row."""
        self.peer: Any = peer
        """The calling program. If the request does not describe it, `legacy/` sets it from the session."""
        self.raw_meta = raw_meta
        self.reserved = reserved
        self.headers = headers
        """The request's headers over HTTP, None elsewhere."""

    @property
    def lacks_fields(self) -> bool:
        """Whether `params` is None only because a field is missing. The present fields have the right types."""
        return self.shape_error is not None and self.shape_error.startswith("Object missing required field")

    @property
    def modern(self) -> bool:
        return self.peer is not None and self.peer.version == MODERN

    @property
    def progress_token(self) -> RequestId | None:
        return self.reserved.progress_token

    @property
    def log_level(self) -> str | None:
        """The least severe level this request wants to hear, on the modern era."""
        return self.reserved.log_level

    @property
    def meta(self) -> Mapping[str, Json]:
        """The whole `_meta` as sent, vendor keys included; decoded on first use."""
        if self._meta is None:
            self._meta = {} if self.raw_meta is UNSET else read_json(self.raw_meta)
        return self._meta  # pyright: ignore[reportReturnType]

    def replace_meta(self, meta: Mapping[str, Json]) -> None:
        """Let a proxy hand on another `_meta` than was sent."""
        self._meta = meta
        self.raw_meta = UNSET

    def __repr__(self) -> str:
        return f"<Call {self.method} id={self.id!r}>"


@final
class IncomingNotification(Struct, frozen=True):
    """A notification. It is never answered."""

    method: str
    params: Mapping[str, Json]
    modern: bool = False
    """Whether it names the modern revision, in its `_meta` or its header."""


@final
class IncomingReply(Struct, frozen=True):
    """A response to a request of ours: legacy eras only. Exactly one of `result` and `error` is set."""

    id: RequestId
    result: Any = UNSET
    error: Any = UNSET


@final
class Batch(Struct, frozen=True):
    """A JSON array of messages: 2025-03-26 only."""

    messages: list[Raw]


Message: TypeAlias = IncomingCall | IncomingNotification | IncomingReply | Batch

# All of a batch runs at once, and its replies wait for each other. Nobody was seen to send ten.
_MOST_IN_BATCH: Final = 100


def read_cancellation(notification: IncomingNotification) -> tuple[RequestId | None, str | None]:
    """The content of a `notifications/cancelled`: the id of the request, None if it is not valid, and the reason."""
    reason = notification.params.get("reason")
    return as_request_id(notification.params.get("requestId")), reason[:MAX_NAME] if isinstance(reason, str) else None


def check_batch(batch: Batch) -> None:
    """Refuse a batch that holds too many messages, as a whole: a client must hear of each that is not served."""
    if len(batch.messages) > _MOST_IN_BATCH:
        raise RemoteProtocolError(
            CODE_INVALID_REQUEST, f"a batch may hold {_MOST_IN_BATCH} messages, not {len(batch.messages)}"
        )


class _Frame(Struct):
    jsonrpc: Literal["2.0"]
    method: Name | UnsetType = UNSET
    id: int | Name | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _OnlyMeta(Struct):
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


_decode_frame = msgspec.json.Decoder(_Frame).decode
_decode_meta = msgspec.json.Decoder(_OnlyMeta).decode
_decode_any = msgspec.json.Decoder().decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_NO_PARAMS: Final = Raw(b"{}")
_SHALLOW: Final = 2 * MAX_DEPTH  # bytes that cannot nest too deeply: each level takes two
_LARGE: Final = 64 * 1024  # bytes; a longer message is checked before the parser, which takes 20 ns for each bracket


@final
class MessageReader:
    """Reads messages for one server.

    `served` is the live table of the methods that exist for a modern caller: a method whose capability is not
    advertised is not in it, and so is answered as an unknown one. `rows` is the table of all methods.
    """

    def __init__(
        self, served: Mapping[str, Method], *, rows: Mapping[str, Method] = METHODS, legacy: bool = True
    ) -> None:
        self.served = served
        self.rows = rows
        self.versions: tuple[str, ...] = SUPPORTED if legacy else (MODERN,)
        self.checks_version = True
        """Whether to refuse a legacy request whose version header names an unknown revision."""
        self._legacy = legacy
        self._metas = MetaReader()

    def read(self, body: bytes, headers: HeaderLookup | None = None) -> Message:
        """One message, or the RemoteProtocolError of the first rung that breaks."""
        if not body.isascii():
            # Checked whole and at once: parts that are decoded later, or never, would hide invalid UTF-8.
            _require_utf8(body)
        if len(body) > _LARGE:
            _require_shallow(body)
        try:
            frame = _decode_frame(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._diagnose(body)
        method = frame.method
        if method is UNSET:
            _require_shallow(body)
            return _answer(frame)
        if frame.id is UNSET:
            _require_shallow(body)
            return _notice(method, frame.params, headers)
        try:
            return self._read_call(body, frame.id, method, frame.params, headers)
        except TooDeep as error:
            raise _unreadable(error) from None
        except ProtocolError as error:
            error.request_id = frame.id
            raise

    def _read_call(
        self, body: bytes, id: RequestId, method: str, raw_params: Raw | UnsetType, headers: HeaderLookup | None
    ) -> IncomingCall:
        shape_error = params = None
        row = self.rows.get(method)
        raw: Raw = _NO_PARAMS if raw_params is UNSET else raw_params
        try:
            if row is not None:
                params = row.decode(raw)
                raw_meta = params.meta
            else:
                raw_meta = _decode_meta(raw).meta
        except msgspec.ValidationError as error:
            shape_error = str(error)
            raw_meta = _meta_of(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _unreadable(error) from None
        # Most calls are short but for their `_meta`, which is checked when those bytes are met for the first time.
        if len(body) - (0 if raw_meta is UNSET else len(raw_meta)) > _SHALLOW and len(body) <= _LARGE:
            check_depth(body, max_containers=MAX_CONTAINERS)
        meta = self._metas.read(raw_meta)
        peer = meta.peer
        if peer is None:
            self._require_legacy(method, params, headers)
            call = IncomingCall(id, method, row, params, None, raw_meta, meta, headers)
            call.shape_error = shape_error
            return call
        # REQ meta.required: both keys MUST be on every modern request, even when the headers are fine.
        if meta.missing is not None:
            raise RemoteProtocolError.invalid_params(f"params._meta lacks {meta.missing!r}, required on every request")
        version = peer.version
        if headers is not None and headers.get("mcp-protocol-version") != version:
            _require_header(headers, "mcp-protocol-version", version)
        if version != MODERN:
            self._refuse_version(version)
        if headers is not None and headers.get("mcp-method") != method:
            _require_header(headers, "mcp-method", method)
        row = self.served.get(method)
        if row is None:
            raise RemoteProtocolError.method_not_found(method)
        if params is None:
            raise RemoteProtocolError.invalid_params(f"{method}: {shape_error}")
        if headers is not None and row.routing_name is not None:
            _require_routing_name(headers, row, params)
        if not meta.is_level_known:
            raise RemoteProtocolError.invalid_params(
                f"params._meta[{KEY_LOG_LEVEL!r}] is {meta.log_level!r}; expected one of {', '.join(LOG_LEVELS)}"
            )
        call = IncomingCall(id, method, row, params, peer, raw_meta, meta, headers)
        if not self._legacy:
            call.versions = self.versions
        return call

    def _require_legacy(self, method: str, params: Any, headers: HeaderLookup | None) -> None:
        stated = None if headers is None else headers.get("mcp-protocol-version")
        if stated is not None:
            stated = stated.strip()
            if stated == MODERN:
                raise RemoteProtocolError.invalid_params(
                    f"params._meta lacks {KEY_PROTOCOL_VERSION!r}, required on every {MODERN} request"
                )
            if not is_legacy(stated) and method != "initialize" and (self.checks_version or not self._legacy):
                self._refuse_version(stated)
        if not self._legacy:
            requested = getattr(params, "protocol_version", None) if method == "initialize" else None
            self._refuse_version(requested or stated or "none")

    def _refuse_version(self, requested: str) -> NoReturn:
        requested = requested[:100]
        raise RemoteProtocolError(
            CODE_UNSUPPORTED_VERSION,
            f"protocol version {requested!r} is not supported; this server speaks {', '.join(self.versions)}",
            {"supported": list(self.versions), "requested": requested},
        )

    def _diagnose(self, body: bytes) -> Message:
        """The slow way through a body that is not a plain message: an array, or an error worth naming."""
        try:
            check_depth(body, max_containers=MAX_CONTAINERS)
            value: Any = _decode_any(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _unreadable(error) from None
        if isinstance(value, list):
            if not value:
                raise RemoteProtocolError(CODE_INVALID_REQUEST, "a batch must hold at least one message")
            return Batch(_decode_list(body))
        if not isinstance(value, dict):
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"a message is a JSON object, this is {type(value).__name__}"
            )
        refusal = RemoteProtocolError(CODE_INVALID_REQUEST, _envelope_fault(value))  # pyright: ignore[reportUnknownArgumentType]
        refusal.request_id = as_request_id(value.get("id"))  # pyright: ignore[reportUnknownMemberType]
        raise refusal


def _require_utf8(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise _unreadable(error) from None


def _require_shallow(body: bytes) -> None:
    try:
        check_depth(body, max_containers=MAX_CONTAINERS)
    except TooDeep as error:
        raise _unreadable(error) from None


def _envelope_fault(value: dict[str, Any]) -> str:
    if value.get("jsonrpc") != "2.0":
        return 'the message lacks "jsonrpc": "2.0"'
    if "id" in value and (isinstance(value["id"], bool) or not isinstance(value["id"], (int, str))):
        return f"id must be a string or an integer, not {msgspec.json.encode(value['id']).decode()[:80]}"
    for member in ("id", "method"):
        if isinstance(value.get(member), str) and len(value[member]) > MAX_NAME:
            return f"{member} has at most {MAX_NAME} characters, not {len(value[member])}"
    return "method must be a string"


def _unreadable(error: Exception) -> RemoteProtocolError:
    reason = TooDeep() if isinstance(error, RecursionError) else error
    return RemoteProtocolError(CODE_PARSE, f"the message is not valid JSON: {reason}")


def as_request_id(value: Any) -> RequestId | None:
    """A request id, or None: a boolean is no integer here, and a long text no id."""
    if isinstance(value, str):
        return value if len(value) <= MAX_NAME else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_json(raw: Raw) -> Any:
    """A part of a message that was left raw; -32700 if it turns out not to be JSON after all."""
    try:
        return _decode_any(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Not a RemoteProtocolError: raised while a handler reads its arguments, that would be a failure of the handler.
        raise ProtocolError(CODE_PARSE, _unreadable(error).message) from None


def _meta_of(raw: Raw) -> Raw | UnsetType:
    try:
        return _decode_meta(raw).meta
    except msgspec.DecodeError:
        return UNSET


def _notice(method: str, raw: Raw | UnsetType, headers: HeaderLookup | None) -> IncomingNotification:
    params: Any = {}
    if raw is not UNSET:
        params = read_json(raw)
    known = as_object(params) or {}
    meta = as_object(known.get("_meta")) or {}
    stated = None if headers is None else headers.get("mcp-protocol-version")
    return IncomingNotification(method, known, KEY_PROTOCOL_VERSION in meta or (stated or "").strip() == MODERN)


def _answer(frame: _Frame) -> IncomingReply:
    if frame.id is UNSET or (frame.result is UNSET) == (frame.error is UNSET):
        refusal = RemoteProtocolError(
            CODE_INVALID_REQUEST, "the message has neither a method nor exactly one of result and error"
        )
        if frame.id is not UNSET:
            refusal.request_id = frame.id
        raise refusal
    if frame.result is not UNSET:
        return IncomingReply(frame.id, result=read_json(frame.result))
    return IncomingReply(frame.id, error=read_json(frame.error))  # pyright: ignore[reportArgumentType]


def _require_header(headers: HeaderLookup, name: str, expected: str) -> None:
    # The caller has compared already; this is for the blanks that RFC 9110 lets a proxy add.
    stated = headers.get(name)
    if stated is None or stated.strip(" \t") != expected:
        raise _mismatch(name, stated, expected)


def _require_routing_name(headers: HeaderLookup, row: Method, params: Any) -> None:
    expected: str = getattr(params, row.routing_name)  # pyright: ignore[reportArgumentType]
    stated = headers.get("mcp-name")
    if stated != expected and not routing_name_matches(stated, expected):
        raise _mismatch("mcp-name", stated, expected)


def _mismatch(name: str, stated: str | None, expected: str) -> RemoteProtocolError:
    problem = "is missing" if stated is None else f"says {stated[:200]!r}"
    return RemoteProtocolError(CODE_HEADER_MISMATCH, f"header {name} {problem}; the body says {expected[:200]!r}")
