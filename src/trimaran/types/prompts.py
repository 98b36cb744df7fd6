"""Prompts and the messages they produce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Raw, UnsetType, field

from .content import ContentBlock
from .wire import Icon, Json, Name, Params, Role, Tagged, Value, Wire


class PromptArgument(Value, frozen=True):
    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Tagged):
    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    annotations: dict[str, Json] | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


if TYPE_CHECKING:
    AnyBlock: TypeAlias = ContentBlock | dict[str, Json]
else:
    AnyBlock = Any  # a block of a kind this release does not know stays a mapping


class PromptMessage(Value, frozen=True):
    role: Role
    content: AnyBlock


class ListPromptsResult(Wire):
    prompts: list[Prompt] | list[dict[str, Json]]
    next_cursor: str | None = None
    result_type: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)


class GetPromptParams(Params, frozen=True, kw_only=True):
    name: Name
    arguments: Raw | UnsetType = UNSET
    input_responses: Raw | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class GetPromptResult(Wire):
    messages: Sequence[PromptMessage | dict[str, Json]] | list[Json]
    description: str | None = None
    result_type: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)
