"""The client hull: requests, deadlines, healing, and what servers may ask in return. No sockets, no HTTP library.

What handlers receive and calls return can be imported from here, for annotations; the module that defines it is loaded
then, and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .asks import Deferred, Elicitation, LogEntry, Sampling, StateEvent
    from .client import Client
    from .link import Channel, Owner, Postmortem
    from .results import Page, PromptResult, ResourceResult, ToolResult
    from .tasks import TaskHandle, TaskUpdate
    from .watch import Change, Changes, Subscription

__all__ = [
    "Change",
    "Changes",
    "Channel",
    "Client",
    "Deferred",
    "Elicitation",
    "LogEntry",
    "Owner",
    "Page",
    "Postmortem",
    "PromptResult",
    "ResourceResult",
    "Sampling",
    "StateEvent",
    "Subscription",
    "TaskHandle",
    "TaskUpdate",
    "ToolResult",
]

_HOMES = {
    "asks": ("Deferred", "Elicitation", "LogEntry", "Sampling", "StateEvent"),
    "client": ("Client",),
    "link": ("Channel", "Owner", "Postmortem"),
    "results": ("Page", "PromptResult", "ResourceResult", "ToolResult"),
    "tasks": ("TaskHandle", "TaskUpdate"),
    "watch": ("Change", "Changes", "Subscription"),
}


def __getattr__(name: str) -> Any:
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
