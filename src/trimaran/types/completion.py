"""Argument completion."""

from __future__ import annotations

from msgspec import Raw, field

from .wire import Json, Name, Params, Text, Uri, Value, Wire


class PromptReference(Value, tag_field="type", tag="ref/prompt", frozen=True):
    name: Name
    title: str | None = None


class ResourceReference(Value, tag_field="type", tag="ref/resource", frozen=True):
    """`uri` is a resource template."""

    uri: Uri


class CompletionArgument(Value, frozen=True):
    name: Name
    value: Text


class CompleteContext(Value, frozen=True):
    """The values that the person has already filled in."""

    arguments: dict[str, str] | None = None


class CompleteParams(Params, frozen=True, kw_only=True):
    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompleteContext | None = None


class Completion(Wire):
    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Wire):
    completion: Completion
    result_type: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)
