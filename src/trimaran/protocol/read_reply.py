"""Read the messages of a server: bytes in, one `Frame` out.

Pure. The envelope is decoded and judged here, once; `result` and `params` stay raw until somebody knows their type.
A frame answers (`is_reply`), asks (`is_call`) or tells (`is_notice`). Every failure is a RemoteProtocolError that quotes
what came.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from trimaran.depth import MAX_ANSWER_MEMBERS, MAX_CONTAINERS, TooDeep, check_depth
from trimaran.errors import (
    CODE_HEADER_MISMATCH,
    CODE_INVALID_REQUEST,
    CODE_MISSING_CAPABILITY,
    CODE_PARSE,
    CODE_UNSUPPORTED_VERSION,
    CODE_URL_ELICITATION_REQUIRED,
    CallError,
    HeaderMismatch,
    MissingCapability,
    RemoteProtocolError,
    UnsupportedVersion,
    UrlElicitationRequired,
)

from .inbound import RequestId

_EXCERPT = 120
# Messages in one batch, as many as a server of ours takes. They are dealt with in one go.
_MAX_BATCH: Final = 100
# Each part of a list takes 100 bytes even before it is known how many there are.
_MAX_COMMAS: Final = 100_000
_CLASSES: dict[int, type[CallError]] = {
    CODE_HEADER_MISMATCH: HeaderMismatch,
    CODE_MISSING_CAPABILITY: MissingCapability,
    CODE_UNSUPPORTED_VERSION: UnsupportedVersion,
    CODE_URL_ELICITATION_REQUIRED: UrlElicitationRequired,
}


class _ErrorBody(Struct):
    code: int
    message: str = ""
    data: Any = None


@final
class Frame(Struct):
    """One message from a server. In a reply, exactly one of `result` and `error` is set."""

    jsonrpc: Literal["2.0"]
    id: RequestId | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    @property
    def is_reply(self) -> bool:
        return self.method is UNSET

    @property
    def is_call(self) -> bool:
        return self.method is not UNSET and self.id is not UNSET and self.id is not None

    @property
    def is_notice(self) -> bool:
        return self.method is not UNSET and (self.id is UNSET or self.id is None)

    def failure(self) -> CallError | None:
        """The error of a reply, as the exception its caller gets; None of a result."""
        if self.error is UNSET:
            return None
        try:
            body = _decode_error(self.error)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return CallError(
                CODE_INVALID_REQUEST, f"an error that is not shaped like one: {excerpt(bytes(self.error))}"
            )
        error = _CLASSES.get(body.code, CallError)(body.code, body.message, body.data)
        error.request_id = self.id if isinstance(self.id, (int, str)) else None
        return error

    def read_params(self) -> dict[str, Any]:
        """The params as a mapping; anything but an object counts as empty."""
        if self.params is UNSET:
            return {}
        try:
            value: Any = _decode_any(self.params)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def memory_of(frame: Frame) -> int:
    """About how many bytes a message takes once its params are read: an empty list of two bytes takes sixty."""
    raw = b"" if frame.params is UNSET else bytes(frame.params)
    parts = raw.count(b"[") + raw.count(b"{") + raw.count(b",")
    return len(raw) + 60 * parts + (0 if frame.method is UNSET else len(frame.method))


_decode_frame = msgspec.json.Decoder(Frame).decode
_decode_error = msgspec.json.Decoder(_ErrorBody).decode
_decode_any = msgspec.json.Decoder().decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


def read_frame(message: bytes) -> Frame:
    """One message; a RemoteProtocolError if it is invalid."""
    try:
        if not message.isascii():
            message.decode()  # parts that stay raw would hide invalid UTF-8
        check_depth(message, max_containers=MAX_CONTAINERS, max_members=MAX_ANSWER_MEMBERS)
        frame = _decode_frame(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(message, error) from None
    if frame.method is UNSET:
        if (frame.result is UNSET) == (frame.error is UNSET):
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST,
                f"the server sent a reply without exactly one of result and error: {excerpt(message)}",
            )
        if frame.id is UNSET:
            frame.id = None
    return frame


def split_batch(message: bytes) -> list[bytes]:
    """The messages of a batch (2025-03-26), each still to be read; of anything else, just itself."""
    if message.lstrip()[:1] != b"[":
        return [message]
    try:
        check_depth(message, max_containers=MAX_CONTAINERS, max_members=MAX_ANSWER_MEMBERS)
        parts = _decode_list(message) if message.count(b",") <= _MAX_COMMAS else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(message, error) from None
    if parts is None or len(parts) > _MAX_BATCH:
        raise RemoteProtocolError(
            CODE_INVALID_REQUEST, f"the server sent a batch of over {_MAX_BATCH} messages: {excerpt(message)}"
        )
    return [bytes(raw) for raw in parts]


# In a message that is incomplete, an id counts only where an envelope has it: at the very beginning or end.
_HEAD_ID: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,20}|"(?:[^"\\]|\\.){0,200}")\s*(?:[,}]|$)'
)
_TAIL_ID: Final = re.compile(
    rb',\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,20}|"(?:[^"\\]|\\.){0,200}")\s*'
    rb'(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$'
)


def id_in(head: bytes, tail: bytes) -> RequestId | None:
    """The id of a message that is incomplete or invalid."""
    match = _HEAD_ID.match(head) or _TAIL_ID.search(tail)
    if match is None:
        return None
    try:
        value: Any = _decode_any(match[1])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, (int, str)) else None


def id_of_malformed(message: bytes) -> RequestId | None:
    """The id of a reply that is not quite one."""
    try:
        check_depth(message, max_containers=MAX_CONTAINERS, max_members=MAX_ANSWER_MEMBERS)
        members = _decode_members(message)
        id: Any = _decode_any(members["id"]) if "id" in members else None
    except msgspec.ValidationError:
        return None  # JSON, and no object
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return id_in(message[:4096], message[-4096:])
    if not members.keys() & {"jsonrpc", "result", "error"}:
        return None  # a line of somebody's log, say
    return id if isinstance(id, (int, str)) and not isinstance(id, bool) else None


def _refusal(message: bytes, error: Exception) -> RemoteProtocolError:
    if isinstance(error, msgspec.ValidationError):
        return RemoteProtocolError(
            CODE_INVALID_REQUEST, f"the server sent JSON that is not a JSON-RPC message ({error}): {excerpt(message)}"
        )
    if not message:
        return RemoteProtocolError(CODE_PARSE, "the server sent an empty text instead of JSON")
    reason = TooDeep() if isinstance(error, RecursionError) else error
    problem = "JSON that is too deep" if isinstance(reason, TooDeep) else "no JSON"
    return RemoteProtocolError(CODE_PARSE, f"the server sent {problem} ({reason}): {excerpt(message)}")


def excerpt(message: bytes) -> str:
    """The start of the message, safe to print."""
    text = ascii(message[:_EXCERPT].decode("utf-8", "replace"))[1:-1]
    return f"{text}..." if len(message) > _EXCERPT else text or "an empty text"
