"""Tools: definitions, calls and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Raw, UnsetType, field

from .content import ContentBlock, TextContent
from .wire import Cursor, Icon, Json, Name, Params, Tagged, Value, Wire


class ToolAnnotations(Value, frozen=True):
    """Hints about what a tool does to the world. Hints: a client must not trust them blindly."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


if TYPE_CHECKING:
    SchemaLike: TypeAlias = dict[str, Json] | Raw
    ToolHints: TypeAlias = ToolAnnotations | dict[str, Json]
else:
    SchemaLike = ToolHints = Any  # the wider types are for senders; a receiver gets plain mappings


class Tool(Tagged):
    name: str
    title: str | None = None
    description: str | None = None
    input_schema: SchemaLike = field(default_factory=lambda: {"type": "object"})
    output_schema: SchemaLike | None = None
    annotations: ToolHints | None = None
    execution: dict[str, Json] | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class ListParams(Params, frozen=True, kw_only=True):
    """Params of every list method."""

    cursor: Cursor | None = None


class ListToolsResult(Wire):
    tools: list[Tool] | list[dict[str, Json]]
    next_cursor: str | None = None
    result_type: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)


class CallToolParams(Params, frozen=True, kw_only=True):
    """`arguments` stays raw: the tool's own compiled signature decodes it, once."""

    name: Name
    arguments: Raw | UnsetType = UNSET
    input_responses: Raw | UnsetType = UNSET
    request_state: str | UnsetType = UNSET
    task: Raw | UnsetType = UNSET
    """2025-11-25 only: the caller wants a task."""


class CallToolResult(Wire, omit_defaults=True):
    """The result of a tool call. Handlers may return one to say everything themselves."""

    content: Sequence[ContentBlock | dict[str, Json]] | list[Json]
    structured_content: Json | UnsetType = UNSET
    is_error: bool = False
    result_type: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)

    @classmethod
    def ok(
        cls,
        content: str | Sequence[Json] = (),
        *,
        structured: Json | UnsetType = UNSET,
        meta: dict[str, Json] | None = None,
    ) -> CallToolResult:
        """A successful result from a text or ready blocks."""
        return cls(content=_blocks(content), structured_content=structured, meta=meta or None)

    @classmethod
    def error(cls, content: str | Sequence[Json], *, meta: dict[str, Json] | None = None) -> CallToolResult:
        """A failed result the model can read and react to."""
        return cls(content=_blocks(content), is_error=True, meta=meta or None)


def _blocks(content: str | Sequence[Json]) -> list[Any]:
    return [TextContent(text=content)] if isinstance(content, str) else list(content)
