"""`subscriptions/listen`: the modern era's one way to hear of changes."""

from __future__ import annotations

from msgspec import Raw, field

from .wire import Json, Name, Params, Uri, Value, Wire


class NotificationFilter(Value, frozen=True):
    """The changes that a listener wants to hear of, and, in the acknowledgement, those that it will."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[Uri] | None = None
    task_ids: list[Name] | None = None


class ListenParams(Params, frozen=True, kw_only=True):
    notifications: NotificationFilter


class ListenResult(Wire):
    result_type: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)
