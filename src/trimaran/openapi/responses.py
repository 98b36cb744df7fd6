"""From an API's answer to a tool's result, and from its refusals to errors that teach.

JSON becomes structured content, checked against the output schema; images and sound become blocks of their kind; other
bytes an embedded resource; everything else text.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from trimaran import content
from trimaran.depth import MAX_ANSWER_MEMBERS, MAX_CONTAINERS, check_depth
from trimaran.errors import ToolError
from trimaran.schema import Validator
from trimaran.types import CallToolResult, Json

from .descriptions import shorten
from .operations import Operation

_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json\b")
# Bounded: an API could make a header that is looked at by the square of its length.
_NEXT: Final = re.compile(
    r"""<([^<>]{0,8192})>[^<>]{0,200}?;\s{0,8}rel\s{0,8}=\s{0,8}"?(?:[\w ]{0,60} )?next\b""", re.I
)
_MAX_REASON: Final = 2000


class ApiResponse(Struct):
    """An API's whole answer."""

    status: int
    media_type: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """By names in lower case."""

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


def read_response(operation: Operation, response: ApiResponse, output: Validator | None) -> CallToolResult:
    """The result of a call.

    Raises:
        ToolError: the API refused, or its answer cannot be read.
    """
    if response.status >= 400:
        raise ToolError(_refusal(operation, response))
    result = _result(operation, response, output)
    if page := _next_page(operation, response.headers.get("link", "")):
        return replace(result, content=[*result.content, content.text(page)])
    return result


def _result(operation: Operation, response: ApiResponse, output: Validator | None) -> CallToolResult:
    if not response.body:
        return _empty(operation, response, output)
    if not _JSON.match(response.media_type):
        if output is not None:
            return content.tool_error(
                f"{operation.label} answered {response.media_type or 'no media type'} where its description announces JSON: "
                f"{shorten(response.text, _MAX_REASON)}"
            )
        return CallToolResult.ok([_block(operation, response)])
    try:
        # A message that clients would refuse is not worth its time.
        check_depth(response.body, max_containers=MAX_CONTAINERS, max_members=MAX_ANSWER_MEMBERS)
        value = msgspec.json.decode(response.body)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{operation.label} answered with broken JSON: {error}") from None
    if output is None:
        return CallToolResult.ok(response.text)
    return _structured(operation, value, output, response.text)


def _next_page(operation: Operation, link: str) -> str:
    """The arguments of the next page, if the API names it in the header Link (RFC 8288), which a model does not see."""
    match = _NEXT.search(link)
    if match is None:
        return ""
    stated = dict(parse_qsl(urlsplit(match[1]).query))
    names = {argument: operation.placements[argument].name for argument in operation.pages}
    texts = [f"{argument}={stated[name]}" for argument, name in names.items() if name in stated]
    return f"The next page: {', '.join(texts)}" if texts else ""


def _empty(operation: Operation, response: ApiResponse, output: Validator | None) -> CallToolResult:
    """An answer without a body. Where structure is announced, it is an object or a list without members."""
    status = response.status
    text = f"{operation.label}: {status} {_phrase(status)}, without a body"
    if location := response.headers.get("location"):
        text += f"; see {location}"
    if output is None:
        return CallToolResult.ok(text)
    empty_values: tuple[Json, ...] = ({}, [])
    for value in empty_values:
        if output.is_valid(value):
            return CallToolResult.ok(text, structured=value)
    return content.tool_error(f"{operation.label} answered {status} without a body.")


def _structured(operation: Operation, value: Any, output: Validator, text: str) -> CallToolResult:
    violation = output.first(value)
    if violation is not None:
        # An API sends null for what it does not know, announced or not. Without these members most answers fit.
        value = _without_nulls(value)
        violation = output.first(value)
    if violation is not None:
        return content.tool_error(
            f"{operation.label} succeeded, but its answer does not fit the API's description ({violation}). "
            f"Here it is, unchanged:\n{text}"
        )
    return CallToolResult.ok(text, structured=value)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return {key: _without_nulls(member) for key, member in members if member is not None}
    if isinstance(value, list):
        return [_without_nulls(member) for member in cast("list[Any]", value) if member is not None]
    return value


def _block(operation: Operation, response: ApiResponse) -> Any:
    media_type = response.media_type.split(";")[0].strip()
    if media_type.startswith("image/"):
        return content.image(response.body, media_type)
    if media_type.startswith("audio/"):
        return content.audio(response.body, media_type)
    if media_type.startswith("text/") or "xml" in media_type or _is_text(response.body):
        return content.text(response.text)
    return content.embedded(content.blob_resource(f"api://{operation.name}", response.body, media_type or None))


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode()
    except UnicodeDecodeError:
        return False


def _refusal(operation: Operation, response: ApiResponse) -> str:
    """Say what was tried, what the API answered, and what its document says about that."""
    meaning_text = operation.statuses.get(str(response.status)) or operation.statuses.get(
        f"{response.status // 100}XX", ""
    )
    meaning = f" ({meaning_text})" if meaning_text else ""
    reason = shorten(response.text, _MAX_REASON) if response.body and _is_text(response.body) else ""
    head = f"{operation.label} answered {response.status} {_phrase(response.status)}{meaning}."
    wait = response.headers.get("retry-after", "")
    if wait:
        reason = f"{reason} Try again {f'in {wait} seconds' if wait.isdigit() else f'after {wait}'}.".strip()
    return f"{head} {reason}".strip()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
