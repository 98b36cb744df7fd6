"""Results on their way from a target to a caller.

A sound result of a tool passes as the bytes that it is, where both sides write results alike. What a caller's client would fail on is
repaired if it is clear what was meant (`"content": null`), and otherwise an error of the target's: many clients end the whole
session over a result that they cannot read. No revision lets a client ignore a kind of content that it does not know, and the
official clients fail on one, after the tool has run: such content of a tool becomes a text that holds it as JSON.

Texts and data are looked at and not decoded, so the check costs as much as finding the end of the message did. Nearly every
result is a few short texts, though: one decode tells.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from trimaran.depth import MAX_ANSWER_MEMBERS, MAX_CONTAINERS, check_depth
from trimaran.errors import ProtocolError
from trimaran.protocol.envelope import NOTE, Envelope, enclose
from trimaran.protocol.meta import PREFIX
from trimaran.protocol.read_reply import read_frame
from trimaran.types import CallToolResult, as_object

_Part: TypeAlias = Raw | UnsetType


class MalformedResult(Exception):
    """Why a result is none, in words."""


class _Block(Struct):
    type: str
    text: _Part = UNSET
    data: _Part = UNSET
    mime_type: _Part = field(name="mimeType", default=UNSET)
    uri: _Part = UNSET
    name: _Part = UNSET
    resource: _Part = UNSET
    annotations: _Part = UNSET
    meta: _Part = field(name="_meta", default=UNSET)


class _Resource(Struct):
    uri: str
    text: _Part = UNSET
    blob: _Part = UNSET


class _Contents(Struct):
    contents: list[_Resource]


class _Message(Struct):
    role: str
    content: _Block


class _Messages(Struct):
    messages: list[_Message]
    description: str | None = None


class _Result(Struct):
    """As the schema has it."""

    content: list[_Block]
    structured: _Part = field(name="structuredContent", default=UNSET)
    is_error: bool | UnsetType = field(name="isError", default=UNSET)
    meta: _Part = field(name="_meta", default=UNSET)


class _Object(Struct):
    """Any object."""


class _Text(Struct):
    type: Literal["text"]
    text: str
    annotations: _Object | UnsetType = UNSET
    meta: _Object | UnsetType = field(name="_meta", default=UNSET)


class _TextResult(Struct):
    """A result of texts alone; whatever fits it is sound, but perhaps for its structure."""

    content: list[_Text]
    type: str | UnsetType = field(name="resultType", default=UNSET)
    structured: _Part = field(name="structuredContent", default=UNSET)
    is_error: bool | UnsetType = field(name="isError", default=UNSET)
    meta: _Object | UnsetType = field(name="_meta", default=UNSET)


class _RawResult(Struct):
    """The parts of a sound result, as they came."""

    content: Raw
    structured: _Part = field(name="structuredContent", default=UNSET)
    is_error: bool = field(name="isError", default=False)
    meta: _Part = field(name="_meta", default=UNSET)


class _LooseResult(Struct):
    """As some servers write it; what a revision may spell in its own way is read, the rest stays as it came."""

    content: list[Any] | UnsetType | None = UNSET
    structured: _Part = field(name="structuredContent", default=UNSET)
    is_error: bool | None = field(name="isError", default=None)
    meta: dict[str, Any] | None = field(name="_meta", default=None)


_encode: Final = msgspec.json.encode
_QUOTE: Final = ord('"')
_BRACE: Final = ord("{")
_OBJECT_OR_NULL: Final = b"{n"
_KINDS: Final = frozenset(("text", "image", "audio", "resource_link", "resource"))
_MAX_UNKNOWN: Final = 2000  # characters; enough to see what it is, and pictures in base64 are no text for a model
_SHORT: Final = 16 * 1024  # bytes; beyond, decoding costs more than looking
_MISREAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_read_texts: Final = msgspec.json.Decoder(_TextResult).decode
_read: Final = msgspec.json.Decoder(_Result).decode
_read_raw_parts: Final = msgspec.json.Decoder(_RawResult).decode
_read_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_KNOWN_BYTES: Final = 2048  # of a `_meta` that is remembered
_PLAIN: Final = Envelope(wraps=False)
_read_loosely: Final = msgspec.json.Decoder(_LooseResult).decode
_read_blocks: Final = msgspec.json.Decoder(list[_Block]).decode
_read_resource: Final = msgspec.json.Decoder(_Resource).decode
_read_contents: Final = msgspec.json.Decoder(_Contents).decode
_read_messages: Final = msgspec.json.Decoder(_Messages).decode


def is_sound(raw: Raw, *, any_structure: bool) -> bool:
    """May these bytes go to a caller as they are? `any_structure`: structured content need not be an object (2026-07-28)."""
    texts = _short_texts(raw)
    if texts is not None:
        return any_structure or _is_object(texts.structured)
    try:
        result = _read(raw)
        _check_blocks(result.content)
    except (*_MISREAD, MalformedResult):
        return False
    return _is_object(result.meta) and (any_structure or _is_object(result.structured))


def _short_texts(raw: Raw) -> _TextResult | None:
    """What most results are. None says nothing yet about another one."""
    if len(raw) > _SHORT:
        return None
    try:
        return _read_texts(raw)
    except _MISREAD:
        return None


def for_older(raw: Raw, *, wraps: bool) -> Raw | None:
    """A sound result of 2026-07-28 as callers of 2025-11-25 get it, if it is a few short texts.

    None too if its structure needs an envelope, which `wraps` says of any structure: whoever shapes the result on its way must
    see the structure itself.
    """
    texts = _short_texts(raw)
    if texts is None:
        return None
    if texts.structured is not UNSET and (wraps or memoryview(texts.structured)[0] != _BRACE):
        return None
    return Raw(_write_for_older(bytes(raw), _PLAIN))


class PlainReply(NamedTuple):
    """A whole answer of a target, which nothing has to be done with."""

    result: bytes
    """As its caller reads it."""
    is_error: bool


def _write_for_older(raw: bytes, envelope: Envelope | None) -> bytes:
    """A sound result as 2025-11-25 has it, structure in its envelope."""
    parts = _read_raw_parts(raw)
    structure = None if parts.structured is UNSET else bytes(parts.structured)
    enclosed = None if structure is None else enclose(structure, envelope)
    is_noted = enclosed is not None and (envelope is None or envelope.is_noted)
    sent = b"{}" if parts.meta is UNSET else bytes(parts.meta)
    meta = _known_older_meta(sent, is_noted) if len(sent) <= _KNOWN_BYTES else _older_meta(sent, is_noted)
    return b'{"content":%b%b%b%b}' % (
        parts.content,
        b"" if structure is None else b',"structuredContent":%b' % (enclosed or structure),
        b',"isError":true' if parts.is_error else b"",
        meta,
    )


def _older_meta(raw: bytes, is_noted: bool) -> bytes:
    """The member `_meta` of a result for 2025-11-25."""
    sent = _read_members(raw)
    members = {
        **(NOTE if is_noted else {}),
        **{key: value for key, value in sent.items() if not key.startswith(PREFIX)},
    }
    return b',"_meta":%b' % _encode(members) if members else b""


_known_older_meta: Final = functools.lru_cache(maxsize=256)(_older_meta)  # servers say the same in all their results


def read_plain_reply(body: bytes, id: int, envelope: Envelope | None, *, is_for_older: bool) -> PlainReply | None:
    """The result in a reply of 2026-07-28; None for anything but a sound result of a few short texts.

    Args:
        id: Of the request.
        envelope: How structure travels to callers of 2025-11-25.
        is_for_older: It is for a caller of 2025-11-25, and else for one of 2026-07-28.
    """
    if len(body) > _SHORT:
        return None
    start = b'{"jsonrpc":"2.0","id":%d,"result":' % id
    try:
        if body.startswith(start) and body.isascii() and body.endswith(b"}"):
            check_depth(body, max_containers=MAX_CONTAINERS, max_members=MAX_ANSWER_MEMBERS)
            raw = body[len(start) : -1]
        else:
            frame = read_frame(body)
            if frame.result is UNSET or frame.id != id or type(frame.id) is not int or frame.method is not UNSET:
                return None
            raw = bytes(frame.result)
        texts = _read_texts(raw)  # fails unless `raw` is one value
    except (*_MISREAD, ProtocolError):
        return None
    if texts.type is not UNSET and texts.type != "complete":
        return None
    if is_for_older:
        raw = _write_for_older(raw, envelope)
    return PlainReply(raw, texts.is_error is True)


def repair(raw: Raw) -> CallToolResult:
    """The result, with what is clear put right.

    Raises:
        MalformedResult: it cannot be read, or it is not clear what was meant.
    """
    try:
        result = _read_loosely(raw)
        if result.content is UNSET and result.structured is UNSET:
            raise MalformedResult("it has no content")
        content: list[Any] = [] if result.content is UNSET else result.content or []
        if _short_texts(raw) is None:
            content = [_as_known(block) for block in content]
            _check_blocks(_read_blocks(msgspec.json.encode(content)))
    except _MISREAD as error:
        raise MalformedResult(str(error)) from None
    meta = {key: value for key, value in (result.meta or {}).items() if not key.startswith(PREFIX)}
    return CallToolResult(
        content=content,
        structured_content=result.structured,
        is_error=bool(result.is_error),
        meta=meta or None,
    )


def check_contents(raw: Raw) -> None:
    """Raise MalformedResult if this is no result of `resources/read`."""
    try:
        is_good = all(_has_contents(resource) for resource in _read_contents(raw).contents)
    except _MISREAD as error:
        raise MalformedResult(str(error)) from None
    if not is_good:
        raise MalformedResult("contents have neither text nor blob")


def cache_hints(fields: Mapping[str, Any]) -> tuple[int, str]:
    """For how many milliseconds a result may be cached, and whether by everybody ("public").

    Older targets give no hints. Their results may be made for one caller, so they count as private, and as stale at once.
    """
    ttl, scope = fields.get("ttlMs"), fields.get("cacheScope")
    return ttl if type(ttl) is int and ttl > 0 else 0, "public" if scope == "public" else "private"


def check_messages(raw: Raw) -> None:
    """Raise MalformedResult if this is no result of `prompts/get`."""
    try:
        _check_blocks([message.content for message in _read_messages(raw).messages])
    except _MISREAD as error:
        raise MalformedResult(str(error)) from None


def _check_blocks(blocks: list[_Block]) -> None:
    for block in blocks:
        kind = block.type
        if kind == "text":
            is_good = _is_string(block.text)
        elif kind in ("image", "audio"):
            is_good = _is_string(block.data) and _is_string(block.mime_type)
        elif kind == "resource_link":
            is_good = _is_string(block.uri) and _is_string(block.name)
        elif kind == "resource":
            is_good = _is_resource(block.resource)
        else:
            raise MalformedResult(f"content of the kind {kind!r}, which the protocol does not have")
        if not (is_good and _is_object(block.annotations) and _is_object(block.meta)):
            raise MalformedResult(f"content of the kind {kind!r} lacks a part, or has one of a wrong type")


def _as_known(block: Any) -> Any:
    """A block of a kind that no revision has as a text; any other as it is."""
    fields = as_object(block)
    kind = fields.get("type") if fields else None
    if not isinstance(kind, str) or kind in _KINDS:
        return block
    text = msgspec.json.encode(block).decode()
    if len(text) > _MAX_UNKNOWN:
        text = f"{text[:_MAX_UNKNOWN]} ... ({len(text):,} characters in all)"
    return {"type": "text", "text": f"[content of the unknown kind {kind[:100]!r}] {text}"}


def _is_string(part: _Part) -> bool:
    return part is not UNSET and memoryview(part)[0] == _QUOTE


def _is_object(part: _Part) -> bool:
    """True also for what may be left out, and is."""
    return part is UNSET or memoryview(part)[0] in _OBJECT_OR_NULL


def _is_resource(part: _Part) -> bool:
    return part is not UNSET and _has_contents(_read_resource(part))


def _has_contents(resource: _Resource) -> bool:
    return _is_string(resource.text) or _is_string(resource.blob)
