"""What outlives a request, or a process: stores for sessions, events, tasks and messages, and the logins of clients.

    async with open_store("redis://localhost") as store:
        await store.bus.publish("news", b"...")

Nothing is loaded until a name is used: a server in memory needs no database.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .contracts import (
        Bus,
        Event,
        Events,
        EventsPage,
        EventWrite,
        Gap,
        Health,
        Message,
        NoAnswer,
        SessionRecord,
        Sessions,
        Store,
        StoreClosed,
        StoreConflict,
        StoreError,
        StoreFull,
        StoreUnavailable,
        Subscription,
        TaskRecord,
        Tasks,
        TasksPage,
        TaskStatus,
    )
    from .memory import MemoryStore
    from .open import open_store
    from .redis import RedisStore
    from .sqlite import SqliteStore
    from .tokens import (
        FileTokens,
        KeyringTokens,
        MemoryTokens,
        StoreUnusable,
        TokenStore,
        default_tokens,
        keys_of_url,
        token_key,
    )

_HOMES = {
    "contracts": (
        "Bus",
        "Event",
        "EventWrite",
        "Events",
        "EventsPage",
        "Gap",
        "Health",
        "Message",
        "NoAnswer",
        "SessionRecord",
        "Sessions",
        "Store",
        "StoreClosed",
        "StoreConflict",
        "StoreError",
        "StoreFull",
        "StoreUnavailable",
        "Subscription",
        "TaskRecord",
        "TaskStatus",
        "Tasks",
        "TasksPage",
    ),
    "memory": ("MemoryStore",),
    "open": ("open_store",),
    "redis": ("RedisStore",),
    "sqlite": ("SqliteStore",),
    "tokens": (
        "FileTokens",
        "KeyringTokens",
        "MemoryTokens",
        "StoreUnusable",
        "TokenStore",
        "default_tokens",
        "keys_of_url",
        "token_key",
    ),
}

__all__ = [
    "Bus",
    "Event",
    "EventWrite",
    "Events",
    "EventsPage",
    "FileTokens",
    "Gap",
    "Health",
    "KeyringTokens",
    "MemoryStore",
    "MemoryTokens",
    "Message",
    "NoAnswer",
    "RedisStore",
    "SessionRecord",
    "Sessions",
    "SqliteStore",
    "Store",
    "StoreClosed",
    "StoreConflict",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoreUnusable",
    "Subscription",
    "TaskRecord",
    "TaskStatus",
    "Tasks",
    "TasksPage",
    "TokenStore",
    "default_tokens",
    "keys_of_url",
    "open_store",
    "token_key",
]


def __getattr__(name: str) -> Any:
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
