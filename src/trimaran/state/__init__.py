"""State that outlives a request, or a process: stores for sessions, events, tasks and messages, and the logins of clients.

    async with open_store("redis://localhost") as store:
        await store.bus.publish("news", b"...")

Nothing is loaded until a name is used: a server in memory needs no database.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .contracts import (
        Bus as Bus,
        BusMessage as BusMessage,
        BusSubscription as BusSubscription,
        EventsPage as EventsPage,
        EventStore as EventStore,
        EventWrite as EventWrite,
        Gap as Gap,
        NoAnswer as NoAnswer,
        SessionRecord as SessionRecord,
        SessionStore as SessionStore,
        Store as Store,
        StoreClosed as StoreClosed,
        StoreConflict as StoreConflict,
        StoredEvent as StoredEvent,
        StoreError as StoreError,
        StoreFull as StoreFull,
        StoreHealth as StoreHealth,
        StoreUnavailable as StoreUnavailable,
        TaskRecord as TaskRecord,
        TasksPage as TasksPage,
        TaskStatus as TaskStatus,
        TaskStore as TaskStore,
    )
    from .memory import MemoryStore as MemoryStore
    from .open import open_store as open_store
    from .redis import RedisStore as RedisStore
    from .sqlite import SqliteStore as SqliteStore
    from .token_storage import (
        FileTokens as FileTokens,
        KeyringTokens as KeyringTokens,
        MemoryTokens as MemoryTokens,
        StoreUnusable as StoreUnusable,
        TokenStore as TokenStore,
        default_tokens as default_tokens,
        keys_of_url as keys_of_url,
        token_key as token_key,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "contracts": (
                "Bus BusMessage BusSubscription EventStore EventWrite EventsPage Gap NoAnswer SessionRecord "
                "SessionStore Store StoreClosed StoreConflict StoreError StoreFull StoreHealth StoreUnavailable "
                "StoredEvent TaskRecord TaskStatus TaskStore TasksPage"
            ),
            "memory": "MemoryStore",
            "open": "open_store",
            "redis": "RedisStore",
            "sqlite": "SqliteStore",
            "token_storage": (
                "FileTokens KeyringTokens MemoryTokens StoreUnusable TokenStore default_tokens keys_of_url token_key"
            ),
        },
    )
