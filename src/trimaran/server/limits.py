"""Every limit the server keeps, its default and the reason for it. None switches a limit off where that is allowed."""

from __future__ import annotations

from typing import Final, TypedDict, final

from msgspec import Struct

from trimaran.durations import check_seconds
from trimaran.errors import ConfigError

# More than any client shows at once, less than what hurts on the wire: a client that reads one page only still sees
# every tool of any server but the largest. See docs/adr/0005.
PAGE_SIZE: Final = 1000

_MAY_BE_NONE = frozenset(
    {"session_idle_timeout", "session_max_lifetime", "max_sessions", "request_timeout", "max_listen_streams"}
)

_SECONDS = frozenset({"request_timeout", "session_idle_timeout", "session_max_lifetime", "keep_alive", "input_ttl"})


@final
class Limits(Struct, frozen=True, kw_only=True):
    max_body_bytes: int = 8 * 1024 * 1024
    """Larger than any sensible call, smaller than what hurts: base64 of a 6 MB image still fits. Beyond: 413."""
    max_incoming_body_bytes: int = 128 * 1024 * 1024
    """Bodies that are still arriving, over all connections of one process: sixteen of the largest. A small call arrives at
    once and is not counted. Beyond: the body that began first is refused with 503. Never less than `max_body_bytes`."""
    max_line_bytes: int = 8 * 1024 * 1024
    """The same, for one line on stdio."""
    max_header_bytes: int = 16 * 1024
    """A request's head; under another HTTP server, the headers the protocol reads. As nginx and Node. Beyond: 431."""
    request_timeout: float | None = 60.0
    """Seconds a handler may take (R69). Per tool: `timeout=`. A `long_running` tool has no other limit."""
    max_concurrent_calls: int = 10_000
    """Calls at work in one process. Each costs a few KB; beyond this a 503 is kinder than swapping."""
    max_concurrent_calls_per_session: int = 100
    """One client's share: no agent runs more at once, and a looping one cannot crowd out the rest."""
    max_sessions: int | None = 10_000
    """Legacy sessions alive at once. Beyond: `initialize` answers 503."""
    session_idle_timeout: float | None = 30 * 60.0
    """Seconds without a request before a legacy session ends; one with a call at work or an open stream stays."""
    session_max_lifetime: float | None = None
    """Seconds after which a legacy session ends whatever it does."""
    replay_events: int = 256
    """Events kept per legacy session for a client that reconnects with Last-Event-ID."""
    replay_bytes: int = 4 * 1024 * 1024
    """Bytes of these events; the oldest give way, but the newest stays. Base64 of a 3 MB image fits."""
    replay_total_bytes: int = 256 * 1024 * 1024
    """Bytes of these events for all sessions of one process; the session with the most gives up the older half of its."""
    max_listen_streams: int | None = 100_000
    """Open `subscriptions/listen` streams in one process."""
    max_stream_bytes: int = 8 * 1024 * 1024
    """Notifications one response stream may carry; further ones are dropped and the result still goes out. An HTTP
    server may buffer without telling, so this, not back-pressure, is what bounds a reader that does not read."""
    max_listen_bytes: int = 256 * 1024
    """Notifications one listen stream carries before it is ended properly; the client listens again."""
    max_subscriptions: int = 1000
    """Resource URIs one listen stream or legacy session may watch."""
    tool_threads: int = 32
    """Threads for plain `def` handlers. They wait more than they compute, so more than cores, less than trouble."""
    keep_alive: float = 15.0
    """Seconds of silence before a comment is sent on an open stream: half of the shortest proxy timeout seen (30 s)."""
    input_ttl: float = 15 * 60.0
    """Seconds a person has to answer a question asked in the middle of a modern call."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            if name not in _SECONDS and type(value) is not int:
                raise ConfigError(f"{name} must be a whole number, not {value!r}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                off = " or None" if name in _MAY_BE_NONE else ""
                raise ConfigError(f"{name} must be a positive number{off}, not {value!r}")
            if name in _SECONDS:
                check_seconds(name, value)


class LimitOptions(TypedDict, total=False):
    """The same as keywords of `Server`, for type checkers: a misspelt one is an error in the editor."""

    max_body_bytes: int
    max_incoming_body_bytes: int
    max_line_bytes: int
    max_header_bytes: int
    request_timeout: float | None
    max_concurrent_calls: int
    max_concurrent_calls_per_session: int
    max_sessions: int | None
    session_idle_timeout: float | None
    session_max_lifetime: float | None
    replay_events: int
    replay_bytes: int
    replay_total_bytes: int
    max_listen_streams: int | None
    max_stream_bytes: int
    max_listen_bytes: int
    max_subscriptions: int
    tool_threads: int
    keep_alive: float
    input_ttl: float
    sse_buffer_size: int
    """`replay_events`, as barrel_mcp calls it."""
    sse_buffer_limit: int
    """`replay_events`, as Urchin calls it."""
    session_ttl: float | None
    """`session_idle_timeout` in milliseconds, as barrel_mcp has it."""
