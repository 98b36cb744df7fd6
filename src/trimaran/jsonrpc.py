"""JSON-RPC 2.0 as MCP uses it: messages to bytes and back, for programs that carry the protocol themselves.

    decode(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')      # Request(id=1, method='ping', params=None)
    encode(Result(id=1, result={}))                          # b'{"jsonrpc":"2.0","id":1,"result":{}}'

Pure. It knows envelopes and not their content: methods and params belong to
`Server` and `connect`. An invalid message is refused with the code of the specification: -32700 for invalid
JSON, -32600 for an invalid envelope, with the id of the request if it has one (`error.request_id`).

Ids are strings and integers; only an error may have none, which answers what could not be read. Batches, which are lists here,
exist in 2025-03-26 alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast, final

import msgspec
from msgspec import Raw, Struct

from .depth import decode_json
from .errors import (
    CODE_INVALID_REQUEST,
    CODE_PARSE,
    CallError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from .protocol.inbound import RequestId, as_request_id
from .protocol.outbound import Writer
from .protocol.read_reply import Frame
from .protocol.versions import V2025_03
from .types import Implementation, Json

__all__ = ["Failure", "Message", "Notification", "Request", "RequestId", "Result", "decode", "encode"]

_MOST_BATCHED: Final = 100  # as the server has it: no client in use sends more


@final
class Request(Struct, frozen=True):
    """A message that wants an answer."""

    id: RequestId
    method: str
    params: Mapping[str, Json] | Sequence[Json] | None = None


@final
class Notification(Struct, frozen=True):
    """A message that is not answered."""

    method: str
    params: Mapping[str, Json] | Sequence[Json] | None = None


@final
class Result(Struct, frozen=True):
    """The answer to a request."""

    id: RequestId
    result: Json


@final
class Failure(Struct, frozen=True):
    """The answer to a request that failed. Decoded, `error` is of the class that a client would raise."""

    id: RequestId | None
    error: ProtocolError


Message: TypeAlias = Request | Notification | Result | Failure

_writer: Final = Writer(Implementation(name="jsonrpc", version="2.0"))  # its name is on modern results only


def encode(message: Message | Sequence[Message], *, version: str | None = None) -> bytes:
    """One message, or a batch of them.

    Raises:
        LocalProtocolError: the batch is empty, or `version` is a revision without batches.
    """
    if isinstance(message, Request):
        return _writer.request(message.id, message.method, cast("Any", message.params))
    if isinstance(message, Notification):
        return _writer.notification(message.method, cast("Any", message.params))
    if isinstance(message, Result):
        return _writer.legacy_result(message.id, message.result)
    if isinstance(message, Failure):
        return _writer.error(message.id, message.error)
    _check_batch(len(message), version, LocalProtocolError)
    return b"[" + b",".join(encode(part) for part in message) + b"]"


def decode(data: bytes | str, *, version: str | None = None) -> Message | list[Message]:
    """A message; a list of them if it is a batch.

    Args:
        data: one message, without framing.
        version: the revision that the peer speaks, if it is known: only one has batches.

    Raises:
        RemoteProtocolError: -32700 or -32600; `request_id` says which request is refused, where that can be told.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    try:
        value: Any = decode_json(raw)
    except ValueError as error:
        raise RemoteProtocolError(CODE_PARSE, f"the message is not valid JSON: {error}") from None
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        _check_batch(len(parts), version, RemoteProtocolError)
        return [_message(part) for part in parts]
    return _message(value)


def _check_batch(size: int, version: str | None, error: type[ProtocolError]) -> None:
    if version is not None and version != V2025_03:
        raise error(
            CODE_INVALID_REQUEST, f"batches exist in {V2025_03} only, not in {version}; send one message at a time"
        )
    if not size:
        raise error(CODE_INVALID_REQUEST, "a batch must hold at least one message")
    if size > _MOST_BATCHED:
        raise error(CODE_INVALID_REQUEST, f"a batch may hold {_MOST_BATCHED} messages, not {size}")


def _message(value: Any) -> Message:
    if not isinstance(value, dict):
        raise RemoteProtocolError(CODE_INVALID_REQUEST, f"a message is a JSON object, this is {type(value).__name__}")
    parts = cast("dict[str, Any]", value)
    fault = _fault(parts)
    if fault is not None:
        refusal = RemoteProtocolError(CODE_INVALID_REQUEST, fault)
        refusal.request_id = as_request_id(parts.get("id"))
        raise refusal
    if "method" in parts:
        if "id" not in parts:
            return Notification(parts["method"], parts.get("params"))
        return Request(parts["id"], parts["method"], parts.get("params"))
    if "result" in parts:
        return Result(parts["id"], parts["result"])
    frame = Frame("2.0", id=parts["id"], error=Raw(msgspec.json.encode(parts["error"])))
    return Failure(parts["id"], cast("CallError", frame.failure()))


def _fault(parts: dict[str, Any]) -> str | None:
    """Why this is no envelope; None if it is one."""
    if parts.get("jsonrpc") != "2.0":
        return 'the message lacks "jsonrpc": "2.0"'
    is_failure = "method" not in parts and "error" in parts and "result" not in parts
    if "id" in parts and as_request_id(parts["id"]) is None and not (is_failure and parts["id"] is None):
        return f"id must be a string or an integer, not {msgspec.json.encode(parts['id']).decode()[:80]}"
    if "method" in parts:
        if not isinstance(parts["method"], str):
            return "method must be a string"
        if not isinstance(parts.get("params", {}), (dict, list)):
            return "params must be an object or an array"
        return None
    if ("result" in parts) == ("error" in parts):
        return "the message has neither a method nor exactly one of result and error"
    return None if "id" in parts else "an answer has the id of its request"
