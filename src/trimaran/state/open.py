"""From a URL to a store: `memory://`, `sqlite:///path`, `redis://...`."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from trimaran.errors import ConfigError

from .contracts import MAX_EVENT_BYTES, MAX_EVENTS, OPERATION_TIMEOUT, Store

_REDIS: Final = frozenset(
    {"redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}
)
_KINDS: Final = "memory://, sqlite:///path, redis://host:6379/0, rediss://, redis+sentinel://, redis+cluster://"


def open_store(
    url: str,
    *,
    namespace: str | None = None,
    timeout: float = OPERATION_TIMEOUT,
    max_events: int = MAX_EVENTS,
    max_event_bytes: int = MAX_EVENT_BYTES,
) -> Store:
    """The store that a URL names. It connects when it is started: `async with open_store(...) as store`.

    Args:
        url: `memory://`; `sqlite:///relative/path`, `sqlite:////absolute/path`; `redis://[user:password@]host[:port][/0]`,
            `rediss://` with TLS, `unix://path`; `redis+sentinel://host,host/service/0`; `redis+cluster://host,host`.
        namespace: Separates programs on one Redis; letters, digits, `.`, `_` and `-`. Also in the URL:
            `redis://localhost?namespace=boats`.
        timeout: Seconds that one operation may take.
        max_events: Events kept of each stream; the oldest go first.
        max_event_bytes: Bytes kept of each stream.

    Raises:
        ConfigError: The URL or an option cannot work.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if namespace is not None:
        _checked(namespace)
    if not separator:
        raise ConfigError(f"a store must be named by a URL, one of {_KINDS}")
    if scheme == "memory":
        from .memory import MemoryStore

        if rest:
            raise ConfigError("the store in memory has no name: store='memory://'")
        return MemoryStore(max_events=max_events, max_event_bytes=max_event_bytes)
    if scheme == "sqlite":
        from .sqlite import SqliteStore

        path = _sqlite_path(rest, namespace)
        return SqliteStore(path, timeout=timeout, max_events=max_events, max_event_bytes=max_event_bytes)
    if scheme in _REDIS:
        from .redis import RedisStore

        rest, named = _take_namespace(rest)
        namespace = _checked(namespace or named or "main")
        return RedisStore(
            f"{scheme}://{rest}",
            namespace=namespace,
            timeout=timeout,
            max_events=max_events,
            max_event_bytes=max_event_bytes,
        )
    raise ConfigError(f"there is no store of the kind {scheme!r}: use one of {_KINDS}")


def _checked(namespace: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", namespace):
        raise ConfigError(
            f"the namespace {namespace!r} cannot be part of a key: use letters, digits, '.', '_' and '-', at most 64"
        )
    return namespace


def _take_namespace(rest: str) -> tuple[str, str | None]:
    """A URL without its `?namespace=`, and the namespace."""
    address, mark, query = rest.partition("?")
    parts = [part for part in query.split("&") if part]
    named = [unquote(part.partition("=")[2]) for part in parts if part.startswith("namespace=")]
    others = "&".join(part for part in parts if not part.startswith("namespace="))
    return address + (mark + others if others else ""), named[-1] if named else None


def _sqlite_path(rest: str, namespace: str | None) -> str:
    path = unquote(rest.removeprefix("/"))
    if not rest.startswith("/") or not path or "?" in path:
        raise ConfigError(
            "write sqlite:///relative/path.db or sqlite:////absolute/path.db, three or four slashes and no options"
        )
    if path == ":memory:":
        raise ConfigError("a store in memory is store='memory://'")
    if namespace is not None:
        raise ConfigError(
            "a SQLite store has its file to itself and needs no namespace: give each program another file"
        )
    return path
