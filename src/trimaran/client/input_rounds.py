"""Answer an `input_required` result: the client's handlers give the fields of the next request (2026-07-28)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, Struct, field

from trimaran.errors import CODE_INVALID_REQUEST, RemoteProtocolError
from trimaran.protocol.methods import METHODS
from trimaran.protocol.read_reply import excerpt
from trimaran.types import as_object

from .deadline import Deadline

_MOST_QUESTIONS: Final = 64  # in one result, as many as an older server may ask at once


class QuestionAnswerer(Protocol):
    """Answers a server's questions: the client's handlers, or those of the call's own caller."""

    def can_answer(self, method: str) -> bool: ...
    async def answer(self, method: str, params: Mapping[str, Any]) -> Any: ...


class _InputRequired(Struct):
    requests: dict[str, Any] | None = field(name="inputRequests", default=None)
    state: str | None = field(name="requestState", default=None)


_decode = msgspec.json.Decoder(_InputRequired).decode


async def answer_input(asks: QuestionAnswerer, method: str, raw: Raw, deadline: Deadline) -> dict[str, Any]:
    """Answer the questions in the result of `method`, with its deadline stopped meanwhile.

    Raises:
        RemoteProtocolError: the result is malformed, or asks for something that this client did not offer.
    """
    row = METHODS.get(method)
    if row is not None and not row.input_rounds:
        raise _malformed(f"{method} was answered input_required, which it cannot be")
    try:
        required = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(f"an input_required result is malformed ({error}): {excerpt(bytes(raw))}") from None
    if required.requests is None and required.state is None:
        raise _malformed(f"{method} was answered input_required, with neither inputRequests nor requestState")
    fields: dict[str, Any] = {} if required.state is None else {"requestState": required.state}
    if required.requests:
        if len(required.requests) > _MOST_QUESTIONS:
            raise _malformed(
                f"{method} asks {len(required.requests)} questions at once, and {_MOST_QUESTIONS} are answered"
            )
        deadline.pause()
        try:
            fields["inputResponses"] = await _answer_all(asks, required.requests)
        finally:
            deadline.resume()
    return fields


async def _answer_all(asks: QuestionAnswerer, requests: Mapping[str, Any]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for key, request in requests.items():
        question = as_object(request) or {}
        method = question.get("method")
        if not isinstance(method, str):
            raise _malformed(f"the input request {key[:80]!r} names no method")
        if not asks.can_answer(method):
            raise _malformed(f"the server asks for {method[:80]}, which this client did not offer")
        answers[key] = await asks.answer(method, as_object(question.get("params")) or {})
    return answers


def _malformed(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(CODE_INVALID_REQUEST, message)
