"""Builders for what handlers return: content blocks, prompt messages, tool results with something extra.

Bytes are base64-encoded here; text that is already base64 is taken as it is. Optional fields are left off the wire
when they are not given.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from trimaran.errors import DeclarationError
from trimaran.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Json,
    PromptMessage,
    Resource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

__all__ = [
    "assistant_message",
    "audio",
    "blob_resource",
    "embedded",
    "image",
    "message",
    "resource_link",
    "result_meta",
    "structured",
    "text",
    "text_resource",
    "tool_error",
    "user_message",
]

Notes = Annotations | dict[str, Json] | None
Meta = dict[str, Json] | None


def _base64(data: bytes | bytearray | memoryview | str) -> str:
    return data if isinstance(data, str) else b64encode(data).decode("ascii")


def text(value: str, *, annotations: Notes = None, meta: Meta = None) -> TextContent:
    """A text block."""
    return TextContent(text=value, annotations=annotations, meta=meta or None)


def image(
    data: bytes | str, mime_type: str = "image/png", *, annotations: Notes = None, meta: Meta = None
) -> ImageContent:
    """An image block from raw bytes or base64 text."""
    return ImageContent(data=_base64(data), mime_type=mime_type, annotations=annotations, meta=meta or None)


def audio(
    data: bytes | str, mime_type: str = "audio/wav", *, annotations: Notes = None, meta: Meta = None
) -> AudioContent:
    """An audio block from raw bytes or base64 text."""
    return AudioContent(data=_base64(data), mime_type=mime_type, annotations=annotations, meta=meta or None)


def resource_link(resource: Resource | str, name: str | None = None, **fields: Json) -> ResourceLink:
    """A link to a resource: from its definition, or from a URI and a name."""
    if isinstance(resource, str):
        return ResourceLink(uri=resource, name=name or resource, **fields)
    known: dict[str, Any] = {f: getattr(resource, f) for f in resource.__struct_fields__}
    known.update(fields)
    if name:
        known["name"] = name
    return ResourceLink(**known)


def text_resource(
    uri: str, text: str, mime_type: str | None = "text/plain", *, meta: Meta = None
) -> TextResourceContents:
    """The contents of a text resource."""
    return TextResourceContents(uri=uri, text=text, mime_type=mime_type, meta=meta or None)


def blob_resource(
    uri: str, data: bytes | str, mime_type: str | None = "application/octet-stream", *, meta: Meta = None
) -> BlobResourceContents:
    """The contents of a binary resource, from raw bytes or base64 text."""
    return BlobResourceContents(uri=uri, blob=_base64(data), mime_type=mime_type, meta=meta or None)


def embedded(
    contents: TextResourceContents | BlobResourceContents | dict[str, Json],
    *,
    annotations: Notes = None,
    meta: Meta = None,
) -> EmbeddedResource:
    """A block that carries a resource's contents along."""
    return EmbeddedResource(resource=contents, annotations=annotations, meta=meta or None)


def message(role: str, content: str | ContentBlock | dict[str, Json]) -> PromptMessage:
    """A prompt message; the role is "user" or "assistant" (C26)."""
    if role not in ("user", "assistant"):
        raise DeclarationError(
            f'a prompt message has the role "user" or "assistant", not {role!r}; put instructions for the model into '
            "the server's instructions= or into a user message"
        )
    block = TextContent(text=content) if isinstance(content, str) else content
    return PromptMessage(role=role, content=block)


def user_message(content: str | ContentBlock | dict[str, Json]) -> PromptMessage:
    """A prompt message the user says."""
    return message("user", content)


def assistant_message(content: str | ContentBlock | dict[str, Json]) -> PromptMessage:
    """A prompt message the assistant says."""
    return message("assistant", content)


def tool_error(content: str | Sequence[Json] | ContentBlock, meta: Meta = None) -> CallToolResult:
    """An `isError` result with this text or these blocks (R44)."""
    return CallToolResult.error([content] if isinstance(content, msgspec.Struct) else content, meta=meta or None)


def structured(data: Json, content: str | Sequence[Json] | UnsetType = UNSET, meta: Meta = None) -> CallToolResult:
    """A result with `structuredContent`; the content defaults to the data as JSON text (R45)."""
    if content is UNSET:
        content = msgspec.json.encode(data).decode()
    return CallToolResult.ok(content, structured=data, meta=meta or None)


def result_meta(result: CallToolResult | str | Sequence[Json], meta: Mapping[str, Json]) -> CallToolResult:
    """The result with `_meta` on it; an empty mapping is left off (R46)."""
    full = result if isinstance(result, CallToolResult) else CallToolResult.ok(result)
    return msgspec.structs.replace(full, meta=dict(meta) or None)
