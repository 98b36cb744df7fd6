"""Content blocks: what tools return, prompts say and sampled messages hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, UnsetType, field

from .wire import Hints, Icon, Json, Value


class TextContent(Value, tag_field="type", tag="text", frozen=True):
    text: str
    annotations: Hints | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class ImageContent(Value, tag_field="type", tag="image", frozen=True):
    """`data` is base64."""

    data: str
    mime_type: str
    annotations: Hints | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class AudioContent(Value, tag_field="type", tag="audio", frozen=True):
    """`data` is base64."""

    data: str
    mime_type: str
    annotations: Hints | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class ResourceLink(Value, tag_field="type", tag="resource_link", frozen=True):
    """A resource the client may read later."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Hints | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class TextResourceContents(Value, frozen=True):
    uri: str
    text: str
    mime_type: str | None = None
    annotations: Hints | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class BlobResourceContents(Value, frozen=True):
    """`blob` is base64."""

    uri: str
    blob: str
    mime_type: str | None = None
    annotations: Hints | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


ResourceContents: TypeAlias = TextResourceContents | BlobResourceContents


if TYPE_CHECKING:
    AnyContents: TypeAlias = TextResourceContents | dict[str, Json] | BlobResourceContents
else:
    AnyContents = Any  # nothing on the wire tells the two apart but which field is there


class EmbeddedResource(Value, tag_field="type", tag="resource", frozen=True):
    resource: AnyContents
    annotations: Hints | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class ToolUseContent(Value, tag_field="type", tag="tool_use", frozen=True):
    """A model's wish to call a tool, inside a sampled message."""

    id: str
    name: str
    input: dict[str, Json]
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class ToolResultContent(Value, tag_field="type", tag="tool_result", frozen=True):
    """The answer to a `ToolUseContent`, inside a message for sampling."""

    tool_use_id: str
    content: list[Json]
    structured_content: Json | UnsetType = UNSET
    is_error: bool | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
