"""One line for each message: what a person reads in a list of thousands. Pure."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct

from trimaran.host.terminal_text import in_one_line
from trimaran.protocol.meta import KEY_SERVER_INFO

_WIDTH: Final = 160
_LONGEST_LIST: Final = 4 * 1024 * 1024  # bytes; counting its entries takes some milliseconds
# The members of params that say what a request is about, in the order they are looked for.
_SUBJECTS: Final = ("name", "uri", "taskId", "level", "requestId")
_LISTS: Final = ("tools", "resources", "resourceTemplates", "prompts", "tasks", "skills")


class MessageHead(Struct):
    """The members of a JSON-RPC message, undecoded where they may be large."""

    id: Any = None
    method: str | None = None
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()

    @property
    def kind(self) -> str:
        """request, notification, response, error, or invalid."""
        if self.method is not None:
            return "notification" if self.id is None else "request"
        if bytes(self.error):
            return "error"
        return "response" if bytes(self.result) else "invalid"


class _Lists(Struct):
    tools: list[Raw] | None = None
    resources: list[Raw] | None = None
    resourceTemplates: list[Raw] | None = None  # noqa: N815 - as on the wire
    prompts: list[Raw] | None = None
    tasks: list[Raw] | None = None
    skills: list[Raw] | None = None


_decode_lists = msgspec.json.Decoder(_Lists).decode
_decode_envelope = msgspec.json.Decoder(MessageHead).decode
_decode = msgspec.json.Decoder().decode


def read_envelope(message: bytes) -> MessageHead | None:
    """The envelope of a message; None if it is none. A batch is none: its parts are."""
    try:
        envelope = _decode_envelope(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return envelope if isinstance(envelope.id, (int, str, type(None))) else None


def summarise(envelope: MessageHead, method: str | None) -> str:
    """One line about a message; `method` is that of the request a response answers."""
    kind = envelope.kind
    if kind == "error":
        error = _object(envelope.error)
        return in_one_line(f"error {error.get('code', '?')} {error.get('message', '')}", _WIDTH)
    if kind == "response":
        return in_one_line(f"{method or 'response'}: {_result(envelope.result)}", _WIDTH)
    name = envelope.method or ""
    if name == "notifications/progress":
        return in_one_line(_progress(_object(envelope.params)), _WIDTH)
    if name == "notifications/message":
        params = _object(envelope.params)
        return in_one_line(f"log {params.get('level', '')} {_short(params.get('data'))}", _WIDTH)
    params = _object(envelope.params) if len(bytes(envelope.params)) < 65536 else {}
    subject = next((str(params[key]) for key in _SUBJECTS if isinstance(params.get(key), (str, int))), "")
    return in_one_line(f"{name} {subject}".strip(), _WIDTH)


def _progress(params: dict[str, Any]) -> str:
    total = params.get("total")
    share = f"{_number(params.get('progress'))}/{_number(total)}" if total else _number(params.get("progress"))
    return f"progress {share} {params.get('message') or ''}".strip()


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else "?"


def _result(raw: Raw) -> str:
    if len(bytes(raw)) > 65536:
        return _items(raw) or f"{len(bytes(raw)):,} bytes"
    result = _object(raw)
    if result.get("resultType") == "input_required" or "inputRequests" in result:
        return "input required"
    if result.get("isError") is True:
        return f"isError {_content(result.get('content'))}"
    for key in _LISTS:
        if isinstance(result.get(key), list):
            return _counted(len(cast("list[Any]", result[key])), key)
    versions = result.get("supportedVersions") or result.get("protocolVersion")
    if versions is not None:
        return f"{_name(result)} {_short(versions)}".strip()
    if "structuredContent" in result:
        return _short(result["structuredContent"])
    if "content" in result or "contents" in result or "messages" in result:
        return _content(result.get("content") or result.get("contents") or result.get("messages"))
    return _short(result)


def _name(result: dict[str, Any]) -> str:
    """What a server calls itself when it is greeted, in either era."""
    meta: Any = result.get("_meta")
    about: Any = result.get("serverInfo") or (
        isinstance(meta, dict) and cast("dict[str, Any]", meta).get(KEY_SERVER_INFO)
    )
    info = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
    return " ".join(str(info[key]) for key in ("name", "version") if key in info)


def _items(raw: Raw) -> str:
    """How many a long list has, without building what is in it."""
    if len(bytes(raw)) > _LONGEST_LIST:
        return ""
    try:
        lists = _decode_lists(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    counts = {key: len(items) for key, items in msgspec.structs.asdict(lists).items() if items is not None}
    return next((_counted(counts[key], key) for key in _LISTS if key in counts), "")


def _counted(count: int, key: str) -> str:
    return f"{count:,} {key.removesuffix('s') if count == 1 else key}"


def _content(blocks: Any) -> str:
    if not isinstance(blocks, list):
        return _short(blocks)
    texts: list[str] = []
    for block in cast("list[Any]", blocks)[:3]:
        members = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        inner: Any = members.get("content") if isinstance(members.get("content"), dict) else members
        text = inner.get("text")
        texts.append(text[:_WIDTH] if isinstance(text, str) else str(inner.get("type") or inner.get("mimeType") or ""))
    return " | ".join(texts)


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value[:_WIDTH]
    try:
        return msgspec.json.encode(value)[: 2 * _WIDTH].decode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError):
        return "..."


def _object(raw: Raw) -> dict[str, Any]:
    data = bytes(raw)
    try:
        value: Any = _decode(data) if data else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
