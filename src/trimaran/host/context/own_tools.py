"""The tools that a host itself offers to a model: what they share. They have plain names, no `mcp__`, and no server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypedDict

import msgspec
from msgspec import UNSET, Raw

from trimaran.client.results import ToolResult
from trimaran.types import CallToolResult, Json, TextContent


class OwnCallOptions(TypedDict, total=False):
    """The options of `Host.call` that an own tool passes on to the calls that it makes."""

    timeout: float | None
    max_timeout: float | None
    on_progress: Callable[[float, float | None, str | None], object] | None
    meta: Mapping[str, Json] | None
    approved: bool
    conversation: str


OwnTool: TypeAlias = Callable[[dict[str, Any], OwnCallOptions], Awaitable[ToolResult]]
"""Called with the arguments that the model wrote, which may be wrong, and the options of the call."""


def own_result(text: str, meta: dict[str, Json] | None = None, *, is_error: bool = False) -> ToolResult:
    """A result with a text for the model, and data for the host that no model reads."""
    blocks = [TextContent(text=text)]
    raw = Raw(msgspec.json.encode(CallToolResult(content=blocks, is_error=is_error)))
    return ToolResult([*blocks], UNSET, is_error, meta, raw)
