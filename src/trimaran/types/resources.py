"""Resources and resource templates."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Raw, UnsetType, field

from .wire import Hints, Icon, Json, Params, Tagged, Uri, Wire


class Resource(Tagged):
    uri: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Hints | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)

    def __post_init__(self) -> None:
        if not self.name:
            self.name = self.uri


class ResourceTemplate(Tagged):
    uri_template: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Hints | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)

    def __post_init__(self) -> None:
        if not self.name:
            self.name = self.uri_template


class ListResourcesResult(Wire):
    resources: list[Resource] | list[dict[str, Json]]
    next_cursor: str | None = None
    result_type: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)


class ListResourceTemplatesResult(Wire):
    resource_templates: list[ResourceTemplate] | list[dict[str, Json]]
    next_cursor: str | None = None
    result_type: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)


class ReadResourceParams(Params, frozen=True, kw_only=True):
    uri: Uri
    input_responses: Raw | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class ReadResourceResult(Wire):
    contents: Sequence[Json]
    result_type: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)


class SubscribeParams(Params, frozen=True, kw_only=True):
    """Params of the legacy `resources/subscribe` and `resources/unsubscribe`."""

    uri: Uri
