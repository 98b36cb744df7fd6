"""Anthropic's Messages API: tools, calls and results in its shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NotRequired, Protocol, TypedDict, cast, overload

from trimaran.types import CallToolResult, Json

from .calls import ToolCall, build_call, get_field, items_of, not_a_call
from .declaring import declare, fit_tool_schema, strict_schema_of
from .definitions import AnyTool, AnyTools, Definition
from .fit import Fit
from .results import PDF, PICTURES, AnyResult, Media, Part, Shape, all_parts, build_result, json_text
from .trees import Schema, as_schema

_MEDIA: Final = PICTURES | {PDF}


# --- tools


class AnthropicTool(TypedDict):
    """A tool in a Messages request."""

    name: str
    description: str
    input_schema: Schema
    strict: NotRequired[bool]


@overload
def to_anthropic(tools: AnyTool, *, fit: Fit = "exact", strict: bool = False) -> Shape: ...
@overload
def to_anthropic(tools: Iterable[AnyTool], *, fit: Fit = "exact", strict: bool = False) -> list[Shape]: ...
def to_anthropic(tools: AnyTools, *, fit: Fit = "exact", strict: bool = False) -> Any:
    """A tool, or tools, for the `tools` of a Messages request.

    Args:
        tools: One tool or several; the answer is one shape or a list.
        fit: How far schemas may be changed: "exact", "loose", "auto" (loose where exact is not enough), or None for not at
            all.
        strict: Ask for arguments that match the schema for certain, for each tool whose schema can be made to allow it.
    """

    def write(tool: Definition) -> Shape:
        shape: Shape = {"name": tool.name, "description": tool.description}
        strict_schema = strict_schema_of(tool.schema, "anthropic-strict", fit, is_strict=strict)
        shape["input_schema"] = (
            fit_tool_schema(tool.schema, "anthropic", fit) if strict_schema is None else strict_schema
        )
        return shape if strict_schema is None else {**shape, "strict": True}

    return declare(tools, write)


# --- calls


class AnthropicReply(Protocol):
    """Looks like a Message of Anthropic's library."""

    @property
    def content(self) -> object: ...
    @property
    def stop_reason(self) -> object: ...


def anthropic_blocks(reply: Any) -> Iterator[Any]:
    return (block for block in items_of(reply, "content") if get_field(block, "type") == "tool_use")


def from_anthropic_call(block: object) -> ToolCall:
    """The call in a `tool_use` block."""
    if get_field(block, "type") not in ("tool_use", None):
        raise not_a_call(block, 'a block with "type": "tool_use"')
    return build_call(
        block, get_field(block, "name"), get_field(block, "input"), get_field(block, "id"), "a tool_use block"
    )


# --- results


def result_to_anthropic(result: AnyResult, tool_use_id: str) -> Shape:
    """A `tool_result` block for the user message that answers a `tool_use`. Pictures and PDF files go along."""
    parts, is_error = all_parts(result, _MEDIA.__contains__, "left out: Anthropic takes no such content from a tool")
    shape: Shape = {"type": "tool_result", "tool_use_id": tool_use_id}
    # An empty text block is refused; an empty result has no content.
    if content := [_block(part) for part in parts if part]:
        shape["content"] = content
    if is_error:
        shape["is_error"] = True
    return shape


def _block(part: Part) -> Shape:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.mime_type, "data": part.data}
    return {"type": "document" if part.mime_type == PDF else "image", "source": source}


def result_from_anthropic(block: Mapping[str, Json]) -> CallToolResult:
    """The result in a `tool_result` block."""
    content = block.get("content")
    parts: list[Part] = [content] if isinstance(content, str) else []
    for item in cast("list[Any]", content) if isinstance(content, list) else []:
        part = as_schema(item) or {}
        source = as_schema(part.get("source")) or {}
        if isinstance(part.get("text"), str):
            parts.append(part["text"])
        elif source.get("type") == "base64":
            parts.append(Media(str(source.get("media_type")), str(source.get("data"))))
        else:
            parts.append(f"[{part.get('type')}] {json_text(part)}")
    return build_result(parts, is_error=block.get("is_error") is True)
