"""Routes about calls and questions."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec
from msgspec import Struct

from ..calls import InspectedCall, NewCall
from ..copying import copy_call
from ..pointers import value_at
from ..requests import BadRequest, NotThere
from .routing import PageRequest, Reply, Route

# Types that a browser shows without running anything; all others are downloaded as bytes.
_SHOWN_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "audio/", "video/", "application/pdf")


async def start_call(request: PageRequest) -> Any:
    new = request.read(NewCall)
    call = request.inspector.calls.start(new, typed=_as_typed(request.raw_body))
    return Reply(status=202, value=call.row)


def _as_typed(body: bytes) -> Any:
    """The arguments with the digits that came: 1.50 is sent as 1.50, and a long decimal with all its places."""
    return _typed.decode(body).arguments


class _Typed(Struct):
    arguments: Any = None


def _digits(text: str) -> Any:
    return number if repr(number := float(text)) == text else msgspec.Raw(text.encode())


_typed: Final = msgspec.json.Decoder(_Typed, float_hook=_digits)


async def list_calls(request: PageRequest) -> Any:
    query = request.query
    rows = request.inspector.calls.rows(
        server=query.get("server"), before=query.get("before"), limit=request.limit(500, 2_000)
    )
    return {"calls": rows}


def _call(request: PageRequest) -> InspectedCall:
    return request.inspector.calls.get(request.variables["id"])


async def get_call(request: PageRequest) -> Any:
    call = _call(request)
    questions = request.inspector.questions.of_call(call.row.id)
    return request.inspector.calls.to_json(call, questions)


async def get_result(request: PageRequest) -> Any:
    call = _call(request)
    if call.result is None:
        raise NotThere("the call has no result, or it was dropped to make room for newer ones")
    path = request.query.get("path")
    if path is None:
        return Reply(body=call.result)
    result: Any = msgspec.json.decode(call.result)
    try:
        value = value_at(result, path)
    except LookupError:
        raise NotThere(f"the result has nothing at {path!r}") from None
    if request.query.get("raw") and isinstance(value, str):
        return _bytes_of(result, path, value)
    if isinstance(value, str):
        return Reply(body=value.encode("utf-8", "replace"), content_type="text/plain; charset=utf-8")
    return Reply(value=value)


def _bytes_of(result: Any, path: str, value: str) -> Reply:
    """A blob as bytes, with the type that the server says if a browser may show it."""
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("the value is not base64") from None
    parent: Any = value_at(result, path.rpartition("/")[0])
    kind = str(parent.get("mimeType", "")) if isinstance(parent, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    is_shown = kind.startswith(_SHOWN_TYPES) and kind.isascii() and kind.isprintable()
    return Reply(body=data, content_type=kind if is_shown else "application/octet-stream")


async def cancel_call(request: PageRequest) -> Any:
    reason = request.body.get("reason")
    return request.inspector.calls.cancel(request.variables["id"], str(reason) if reason else None).row


async def check_arguments(request: PageRequest) -> Any:
    server = request.inspector.servers.get(request.text("server"))
    violations = server.catalog.violations(request.text("tool"), "inputSchema", request.body.get("arguments") or {})
    return {"ok": not violations, "violations": violations}


async def copy(request: PageRequest) -> Any:
    text = copy_call(request.inspector, _call(request), request.query.get("as", "python"))
    return Reply(body=text.encode(), content_type="text/plain; charset=utf-8")


async def list_questions(request: PageRequest) -> Any:
    return {"questions": request.inspector.questions.waiting()}


async def answer_question(request: PageRequest) -> Any:
    await request.inspector.questions.answer(request.variables["id"], request.body)
    return {}


ROUTES: Final = (
    Route("POST", "/api/calls", start_call),
    Route("GET", "/api/calls", list_calls),
    Route("GET", "/api/calls/{id}", get_call),
    Route("GET", "/api/calls/{id}/result", get_result),
    Route("GET", "/api/calls/{id}/copy", copy),
    Route("POST", "/api/calls/{id}/cancel", cancel_call),
    Route("POST", "/api/check", check_arguments),
    Route("GET", "/api/questions", list_questions),
    Route("POST", "/api/questions/{id}", answer_question),
)
