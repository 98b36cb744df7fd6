"""Results of tools as parts, which the file of each provider spells.

A result becomes parts, text or media, in the order of its blocks; each provider has its own spelling of a part:

    text                text
    image, audio        media where the provider takes that kind in a tool's result, else a notice: what, how large
    resource link       text: `[resource_link] {"uri": ..., "name": ...}`
    embedded resource   `[resource] {"uri": ..., "mimeType": ...}`, then its text, or media where the provider takes it
    structured content  JSON text, unless a text block says the same already; Gemini takes it as it is
    isError             the provider's own flag; OpenAI has none, so the text begins with `[tool error]`

Reading a provider's shape gives the same blocks again, but for what was a notice, and but for annotations and `_meta`, which
no provider takes. Nothing is cut here; `trimaran.host.output_limits` does that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from trimaran.depth import decode_json
from trimaran.errors import LocalProtocolError
from trimaran.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    Json,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from .trees import Schema, as_schema, same

PDF: Final = "application/pdf"
PICTURES: Final = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_MARKED: Final = re.compile(r"\[(resource_link|resource)\] (\{[^\n]*\})(?:\n(.*))?", re.DOTALL)
_LINK_FIELDS: Final = ("uri", "name", "title", "description", "mimeType", "size")


class Media(NamedTuple):
    mime_type: str
    data: str
    """base64"""


Part: TypeAlias = str | Media
Shape: TypeAlias = dict[str, Json]


class ToolOutput(Protocol):
    """The attributes that a `CallToolResult` and a client's `ToolResult` share."""

    @property
    def content(self) -> Sequence[object]: ...
    @property
    def is_error(self) -> bool: ...


AnyResult: TypeAlias = ToolOutput | Mapping[str, object]
"""A result of a tool, as an object or as the mapping on the wire."""


# --- a result, whatever holds it -------------------------------------------------------------------------------------


class _Result(NamedTuple):
    blocks: list[Schema]
    structured: Json | UnsetType
    is_error: bool


def read_result(result: AnyResult) -> _Result:
    """The blocks as on the wire, from a CallToolResult, a client's result, or the mapping on the wire."""
    content: Any
    if isinstance(result, Mapping):
        content, structured, is_error = (
            result.get("content"),
            result.get("structuredContent", UNSET),
            result.get("isError"),
        )
    else:
        content, is_error = getattr(result, "content", None), getattr(result, "is_error", False)
        structured = getattr(result, "structured_content", UNSET)
        if structured is UNSET:
            structured = getattr(result, "structured", None)
            structured = UNSET if structured is None else structured
    if isinstance(content, str) or not hasattr(content, "__iter__"):
        raise LocalProtocolError.invalid_params(
            f"this is not a result of a tool: it has no content blocks: {str(cast('object', result))[:200]}"
        )
    blocks = [as_schema(msgspec.to_builtins(block)) or {} for block in cast("list[Any]", content)]
    return _Result(blocks, structured, is_error is True)


def parts_of(result: _Result, takes: Callable[[str], bool], why: str) -> Iterator[Part]:
    for block in result.blocks:
        kind = str(block.get("type"))
        if kind == "text":
            yield str(block.get("text", ""))
        elif kind in ("image", "audio"):
            yield _media(kind, str(block.get("mimeType", "")), str(block.get("data", "")), takes, why)
        elif kind == "resource_link":
            yield f"[resource_link] {json_text({key: block[key] for key in _LINK_FIELDS if key in block})}"
        elif kind == "resource":
            yield from _embedded(as_schema(block.get("resource")) or {}, takes, why)
        else:
            yield f"[{kind}] {json_text(block)}"


def _embedded(resource: Schema, takes: Callable[[str], bool], why: str) -> Iterator[Part]:
    head = f"[resource] {json_text({key: resource[key] for key in ('uri', 'mimeType') if key in resource})}"
    if isinstance(resource.get("text"), str):
        yield f"{head}\n{resource['text']}"
        return
    media = _media("resource", str(resource.get("mimeType", "")), str(resource.get("blob", "")), takes, why)
    if isinstance(media, Media):
        yield head
        yield media
    else:
        yield f"{head} {media.partition('] ')[2]}"


def _media(kind: str, mime_type: str, data: str, takes: Callable[[str], bool], why: str) -> Part:
    if takes(mime_type):
        return Media(mime_type, data)
    size = len(data) * 3 // 4 - data[-2:].count("=")
    return f"[{kind}] {json_text({'mimeType': mime_type, 'bytes': size})} {why}"


def json_text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def is_told(structured: Json | UnsetType, parts: list[Part]) -> bool:
    """Whether one of the texts already holds the structured content, as the specification asks of servers."""
    if structured is UNSET:
        return True
    wrapped = as_schema(structured)
    inner: Json | UnsetType = wrapped["result"] if wrapped is not None and wrapped.keys() == {"result"} else UNSET
    for part in parts:
        if not isinstance(part, str):
            continue
        if inner is not UNSET and same(part, inner):
            return True
        try:
            decoded = decode_json(part)
        except ValueError:
            continue
        if same(decoded, structured) or (inner is not UNSET and same(decoded, inner)):
            return True
    return False


def all_parts(result: Any, takes: Callable[[str], bool], why: str) -> tuple[list[Part], bool]:
    content = read_result(result)
    parts = list(parts_of(content, takes, why))
    if not is_told(content.structured, parts):
        parts.append(json_text(content.structured))
    return parts, content.is_error


def build_result(parts: list[Part], *, is_error: bool, structured: Json | UnsetType = UNSET) -> CallToolResult:
    """The content blocks of these parts."""
    waiting = list(parts)
    blocks: list[Any] = []
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, Media):
            blocks.append(_block(part, len(blocks)))
        else:
            blocks.append(_marked(part, waiting) or TextContent(text=part))
    return CallToolResult(content=blocks, structured_content=structured, is_error=is_error)


def _block(media: Media, number: int) -> Any:
    kind = media.mime_type.partition("/")[0]
    if kind == "image":
        return ImageContent(data=media.data, mime_type=media.mime_type)
    if kind == "audio":
        return AudioContent(data=media.data, mime_type=media.mime_type)
    contents = BlobResourceContents(uri=f"attachment:{number}", blob=media.data, mime_type=media.mime_type)
    return EmbeddedResource(resource=contents)


def _marked(text: str, waiting: list[Part]) -> Any:
    match = _MARKED.fullmatch(text)
    if match is None:
        return None
    try:
        fields: Any = decode_json(match[2])
        if match[1] == "resource_link":
            return None if match[3] is not None else msgspec.convert({"type": "resource_link", **fields}, ResourceLink)
        if match[3] is not None:
            return EmbeddedResource(resource=msgspec.convert({**fields, "text": match[3]}, TextResourceContents))
        for part in waiting:
            if isinstance(part, Media) and part.mime_type == fields.get("mimeType"):
                waiting.remove(part)
                return EmbeddedResource(resource=msgspec.convert({**fields, "blob": part.data}, BlobResourceContents))
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        pass
    return None
