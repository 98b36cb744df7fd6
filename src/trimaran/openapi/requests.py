"""From arguments to an HTTP request, as `style` and `explode` say (OpenAPI 3.1, "Style Values").

Pure. Values cannot change where a request goes: everything in a path is percent-encoded, and `.` and `..`, which servers
read as folders, are refused.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct

from trimaran.errors import ToolError

from .operations import Operation, Placement

_RESERVED: Final = ":/?[]@!$'()*,;"  # those that do not end a parameter
_DELIMITERS: Final = {"spaceDelimited": "%20", "pipeDelimited": "%7C", "form": ","}
_STEPS: Final = re.compile(r"[/\\]")
_DOTS: Final = frozenset({".", ".."})
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]+/[\w.+-]+")
Pairs = list[tuple[str, str]]


class ApiRequest(Struct):
    """A request to the API, without credentials."""

    method: str
    path: str
    query: list[str]
    """Members such as `a=1`, encoded."""
    headers: dict[str, str]
    cookies: dict[str, str]
    body: bytes | None
    server_url: str = ""
    """Where the operation is, if the document names a server for it alone."""

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers, with the cookies in one of them."""
        pairs = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {**self.headers, "cookie": pairs} if pairs else self.headers

    def url(self, base: str) -> str:
        # Documents tell operations of one path apart by a fragment (AWS, Box), or by a query of their own (S3).
        path = self.path.partition("#")[0]
        mark = "&" if "?" in path else "?"
        return base.rstrip("/") + path + (mark + "&".join(self.query) if self.query else "")


def build_request(operation: Operation, arguments: Mapping[str, Any]) -> ApiRequest:
    """Place the arguments of a call.

    Raises:
        ToolError: an argument cannot be written where it belongs.
    """
    request = ApiRequest(
        operation.method.upper(),
        operation.path,
        [],
        {"accept": "application/json, */*;q=0.8"},
        {},
        None,
        operation.server_url,
    )
    media_type = operation.media_type
    fields: list[tuple[Placement, Any]] = []
    values = [(operation.placements.get(argument), argument, value) for argument, value in arguments.items()]
    values += [(placement, placement.name, value) for placement, value in operation.constants]
    for placement, argument, value in values:
        if placement is None or (value is None and placement.place != "field"):
            continue
        if placement.place == "field":
            fields.append((placement, value))
        elif placement.place == "body":
            request.body, media_type = _whole_body(media_type or "", placement, value, argument)
        else:
            _place(request, placement, value, argument)
    if "{" in request.path.partition("#")[0]:
        raise ToolError(f"{operation.label}: an argument for the path is missing: {request.path}")
    if media_type is not None:
        _write_fields(request, media_type, fields, needs_body=operation.needs_body)
    return request


def _place(request: ApiRequest, placement: Placement, value: Any, argument: str) -> None:
    """Write a parameter."""
    if placement.is_json:
        value = msgspec.json.encode(value).decode()
    match placement.place:
        case "path":
            text = _path_text(placement, value, argument)
            request.path = request.path.replace("{" + placement.name + "}", text)
        case "query":
            request.query += _query(placement, value)
        case "header":
            request.headers[placement.name.lower()] = _header_text(value, argument, explode=placement.explode)
        case _:
            request.cookies[placement.name] = quote(_joined(value), safe="")


def _write_fields(
    request: ApiRequest, media_type: str, fields: list[tuple[Placement, Any]], *, needs_body: bool
) -> None:
    """Encode the members of the body, if there are any, and say what it is."""
    if request.body is None and (fields or needs_body):
        if media_type.startswith("multipart/"):
            boundary = secrets.token_hex(16)
            request.body = _multipart(fields, boundary)
            media_type = f"{media_type.split(';')[0]}; boundary={boundary}"
        elif "urlencoded" in media_type:
            request.body = "&".join(pair for placement, value in fields for pair in _form(placement, value)).encode()
        else:
            request.body = msgspec.json.encode({placement.name: value for placement, value in fields})
    if request.body is not None:
        request.headers["content-type"] = media_type


def _form(placement: Placement, value: Any) -> list[str]:
    if placement.is_json and isinstance(value, dict):
        value = _plain(value)
    return _query(placement, value)


def _whole_body(media_type: str, placement: Placement, value: Any, argument: str) -> tuple[bytes, str]:
    """The body and its media type."""
    if placement.is_binary:
        data, own_type = _from_base64(value, argument)
        return data, _concrete(own_type, "") if "*" in media_type else media_type
    if isinstance(value, str) and "json" not in media_type:
        return value.encode(), media_type
    return msgspec.json.encode(value), media_type


def _concrete(own_type: str, stated_type: str) -> str:
    """The media type of bytes: the one they bring with them, or the one of the document if that is not a range."""
    media_type = own_type if _MEDIA_TYPE.fullmatch(own_type) else stated_type
    return media_type if media_type and "*" not in media_type else "application/octet-stream"


def _from_base64(value: Any, argument: str) -> tuple[bytes, str]:
    """The bytes, and their media type if the value is a `data:` URL."""
    head, comma, text = value.partition(",") if str(value).startswith("data:") else ("", "", value)
    try:
        return base64.b64decode(text, validate=True), head[5:].split(";")[0] if comma else ""
    except (binascii.Error, TypeError, ValueError):
        raise ToolError(f"the argument {argument!r} must be base64 or a data: URL, as it stands for bytes") from None


def _multipart(fields: list[tuple[Placement, Any]], boundary: str) -> bytes:
    parts: list[bytes] = []
    for placement, value in fields:
        safe = placement.name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        for member in cast("list[Any]", value) if isinstance(value, list) else [value]:
            head = f'Content-Disposition: form-data; name="{safe}"'
            media_type = placement.media_type
            if placement.is_binary:
                data, own_type = _from_base64(member, placement.name)
                media_type = _concrete(own_type, media_type or "")
                extension = mimetypes.guess_extension(media_type) if own_type else None
                head += f'; filename="{safe}{extension or ""}"'
            else:
                media_type = media_type or ("application/json" if isinstance(member, (dict, list)) else None)
                data = _plain(member).encode()
            head += f"\r\nContent-Type: {media_type}" if media_type else ""
            parts.append(f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode()


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return msgspec.json.encode(value).decode()


def _members(value: Any) -> Iterator[tuple[str | None, str]]:
    """The parts of a value: the members of an object with their names, the items of an array without."""
    if isinstance(value, dict):
        yield from ((str(key), _plain(item)) for key, item in cast("dict[Any, Any]", value).items())
    elif isinstance(value, list):
        yield from ((None, _plain(item)) for item in cast("list[Any]", value))
    else:
        yield None, _plain(value)


def _joined(value: Any, *, explode: bool = False) -> str:
    """The style "simple", not encoded: `a,b`, `key,value`, or `key=value`."""
    parts = [text if key is None else f"{key}={text}" if explode else f"{key},{text}" for key, text in _members(value)]
    return ",".join(parts)


def _header_text(value: Any, argument: str, *, explode: bool) -> str:
    text = _joined(value, explode=explode)
    if any(character in text for character in "\r\n\0"):
        raise ToolError(f"the argument {argument!r} goes into a header and must be one line")
    return text


def _path_text(placement: Placement, value: Any, argument: str) -> str:
    members = list(_members(value))
    # Between slashes, too: gateways before an API decode %2F, and then resolve the dots.
    if not members or any(not text or _DOTS.intersection(_STEPS.split(text)) for _, text in members):
        raise ToolError(
            f"the argument {argument!r} is part of the path and must not be empty, nor have a step '.' or '..'"
        )
    parts = [(key, quote(text, safe="")) for key, text in members]
    name = quote(placement.name, safe="")
    separator = {"label": ".", "matrix": ";"}.get(placement.style, ",") if placement.explode else ","
    texts = [_path_part(key, text, placement, name) for key, text in parts]
    start = {"label": ".", "matrix": ";"}.get(placement.style, "")
    if placement.style == "matrix" and not placement.explode:
        return f";{name}={','.join(texts)}"
    return start + separator.join(texts)


def _path_part(key: str | None, text: str, placement: Placement, name: str) -> str:
    if key is not None:
        return f"{quote(key, safe='')}{'=' if placement.explode else ','}{text}"
    return f"{name}={text}" if placement.style == "matrix" and placement.explode else text


def _deep(value: Any) -> Iterator[tuple[str, str]]:
    """The leaves of a value with their keys in brackets, as servers that read deep objects have them."""
    if isinstance(value, dict):
        members: Iterable[tuple[Any, Any]] = cast("dict[str, Any]", value).items()
    elif isinstance(value, list):
        members = enumerate(cast("list[Any]", value))
    else:
        yield "", _plain(value)
        return
    for key, member in members:
        yield from ((f"[{quote(str(key), safe='')}]{keys}", text) for keys, text in _deep(member))


def _query(placement: Placement, value: Any) -> list[str]:
    safe = _RESERVED if placement.is_reserved else ""
    name = quote(placement.name, safe="[]")
    parts = [(key, quote(text, safe=safe)) for key, text in _members(value)]
    if placement.style == "deepObject" and isinstance(value, dict | list):
        return [f"{name}{keys}={quote(text, safe=safe)}" for keys, text in _deep(value)]
    if placement.explode:
        return [f"{name if key is None else quote(key, safe='')}={text}" for key, text in parts]
    flat = [text for key, text in parts for text in ([text] if key is None else [quote(key, safe=""), text])]
    return [f"{name}={_DELIMITERS.get(placement.style, ',').join(flat)}"]
