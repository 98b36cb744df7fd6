"""The contracts of a store: state that more than one request, worker or machine must see.

- `SessionStore`: what `initialize` settled with a legacy client;
- `EventStore`: the log a lost stream is replayed from;
- `TaskStore`: the records of long work, of both task protocols;
- `Bus`: messages between workers, heard at most once.

The rules that all of them keep:

- Every record expires: it is created with a time to live, and an expired record does not exist.
- Where two workers may write, a record has a `stamp`. A write names the stamp it was read with; if that is no longer the
  one stored, nothing is written and None comes back: read again, decide again.
- A wait is bounded. A store that is down, or slower than its timeout, raises `StoreUnavailable`; one that has no room
  raises `StoreFull`; both are `StoreError`. It recovers by itself when its database is back; nothing needs to be reopened.
- After `StoreUnavailable` it is unknown whether the write happened. Stamps make it safe to try again.

Any object with these methods is a store: `trimaran.testing.check_store` checks whether it keeps the rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final, Literal, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from msgspec import Struct, field

from trimaran.errors import Error, ProtocolError
from trimaran.types import Json

SCHEMA: Final = 1
"""The version of the stored data. Data of another version is refused."""

# Above the events of any one call; the log of a session that nobody reads is cut here (R104 has 256, R105 100).
MAX_EVENTS: Final = 256
# Bytes of them, of each stream: base64 of a 3 MB image fits. The newest event stays whatever its size is.
MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
# A subscriber this far behind is told of a gap instead: it must read the state again anyway.
MAX_QUEUED: Final = 1000
MAX_QUEUED_BYTES: Final = 8 * 1024 * 1024
# How long a store may take within one call; a healthy one needs a thousandth of it.
OPERATION_TIMEOUT: Final = 5.0


class StoreError(Error):
    """The store failed for now. Trying again later makes sense."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which trying again makes sense."""
        self.is_logged = False
        """Whether the store has logged this itself, so that nobody else needs to."""


class StoreUnavailable(StoreError):
    """The store does not answer, or not in time. It is unknown whether a write was done."""


class StoreClosed(StoreUnavailable):
    """The store was used after it was closed. It does not come back."""


class StoreFull(StoreError):
    """The store has no room for more; nothing was written. Reading goes on.

    Args:
        limit: The number that was reached, if this is a limit of ours; None if the database itself has no room.
    """

    def __init__(self, message: str, *, limit: int | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message, retry_after=retry_after)
        self.limit = limit


class StoreConflict(Error):
    """An id that should be new is taken."""


class NoAnswer(Error):
    """The worker does not exist, or failed while it answered."""


class StoreHealth(Struct, frozen=True):
    """Whether a store can be used now."""

    is_up: bool
    seconds: float
    """How long the check took."""
    detail: str = ""
    """The reason, if the store is not up."""
    is_read: bool = False
    """If the store is not up: whether it can still be read, because only writes fail."""


# --- sessions --------------------------------------------------------------------------------------------------------


class SessionRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a legacy session that every worker must know."""

    id: str
    owner: str = ""
    """The identity of the principal it belongs to, as text; empty if it belongs to nobody."""
    version: str = ""
    """The protocol revision that was negotiated."""
    capabilities: dict[str, Json] = field(default_factory=dict[str, Json])
    client: dict[str, Json] = field(default_factory=dict[str, Json])
    """The client's name and version, as it sent them."""
    initialized: bool = False
    log_level: str = "info"
    subscriptions: list[str] = field(default_factory=list[str])
    worker: str = ""
    """The worker that has its stream open, if any."""
    created_ms: int = 0
    extra: bytes = b""
    """Data of the session's owner."""
    stamp: int = 0
    """Set by the store: changes with every write."""


class SessionStore(Protocol):
    """Legacy sessions by id."""

    async def create(self, record: SessionRecord, *, ttl: float, most: int | None = None) -> SessionRecord:
        """Keep a new session for `ttl` seconds.

        Raises:
            StoreConflict: The id is taken.
            StoreFull: There are `most` sessions, or no room.
        """
        ...

    async def get(self, id: str) -> SessionRecord | None: ...

    async def touch(self, id: str, *, ttl: float) -> bool:
        """Set the time to live to `ttl` seconds from now; False if the session is gone."""
        ...

    async def put(self, record: SessionRecord, *, ttl: float | None = None) -> SessionRecord | None:
        """Write a changed record, if its stamp is still the stored one; None if it is not, or the session is gone."""
        ...

    async def delete(self, id: str) -> bool: ...

    async def count(self) -> int: ...


# --- events ----------------------------------------------------------------------------------------------------------


class StoredEvent(NamedTuple):
    number: int
    data: bytes


class EventWrite(NamedTuple):
    """One write to a stream."""

    session: str
    stream: str
    data: bytes | None
    """The event; None ends the stream."""
    ttl: float
    """Seconds that the stream lives from now."""
    number: int = 0
    """The event's number, for a stream with a single writer: then repeating the write adds it only once. 0 for the next
    number.
    """


class EventsPage(NamedTuple):
    """Events of a stream after a number."""

    events: list[StoredEvent]
    last: int
    """The number of the newest event of the stream; 0 if there was none."""
    is_truncated: bool
    """Some events after the requested number are gone, or the number was never used."""
    is_ended: bool
    """Nothing will follow `last`."""


class EventStore(Protocol):
    """The recent events of sessions, numbered from 1 within each stream. `<stream>:<number>` is an event's id."""

    async def append(self, session: str, stream: str, data: bytes, *, ttl: float) -> int:
        """Add an event and return its number. The stream lives `ttl` seconds from now. The oldest events are dropped."""
        ...

    async def end(self, session: str, stream: str, *, ttl: float) -> None:
        """Nothing more will be added to this stream. It can be read for `ttl` seconds more."""
        ...

    async def write(self, writes: Sequence[EventWrite]) -> None:
        """Do many writes at once, in order: all of them, or none."""
        ...

    async def read(self, session: str, stream: str, after: int, *, limit: int = 100) -> EventsPage: ...

    async def wait(self, session: str, stream: str, after: int, *, timeout: float) -> bool:
        """Wait until the stream has an event after this number or has ended; False if the time runs out first.

        While the store is away, it goes on waiting.
        """
        ...

    async def delete(self, session: str) -> None:
        """Forget every stream of a session."""
        ...


# --- tasks -----------------------------------------------------------------------------------------------------------

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
"""A task in one of these never changes again."""


class TaskRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task, independent of both task protocols."""

    id: str
    expires_ms: int
    """When the record expires, in milliseconds since 1970. A write may change it."""
    owner: str = ""
    session: str = ""
    """The legacy session that created it."""
    method: str = "tools/call"
    name: str = ""
    """The tool."""
    arguments: bytes = b"{}"
    status: TaskStatus = "working"
    status_message: str | None = None
    created_ms: int = 0
    updated_ms: int = 0
    ttl_ms: int | None = None
    """The time to live that the client was told; None is unlimited."""
    poll_ms: int | None = None
    result: bytes | None = None
    error: bytes | None = None
    inputs: bytes = b""
    """The input requests outstanding."""
    journal: bytes = b""
    is_resumable: bool = False
    extra: bytes = b""
    """Data of the task's runner."""
    stamp: int = 0
    """Set by the store: 1 for a new task; grows with every write and every claim."""
    worker: str = ""
    """Set by the store: the worker that runs it."""
    lease_ms: int = 0
    """Set by the store: the end of the lease, in milliseconds since 1970, by the store's clock."""

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL


class TasksPage(NamedTuple):
    tasks: list[TaskRecord]
    cursor: str | None
    """The start of the next page; None on the last page."""


class TaskStore(Protocol):
    """Tasks by id. In a durable store, written tasks outlive the process.

    A task runs where it is claimed: `claim` gives it to one worker until the lease ends, and changes the stamp, so that the
    worker before it can write no more.
    """

    async def create(self, record: TaskRecord, *, most: int | None = None) -> TaskRecord:
        """Store a new task. It is durable when this returns.

        Raises:
            StoreConflict: The id is taken.
            StoreFull: Its owner has `most` tasks, or there is no room.
        """
        ...

    async def get(self, id: str) -> TaskRecord | None: ...

    async def update(self, record: TaskRecord) -> TaskRecord | None:
        """Write a changed record, if its stamp is still the stored one and the stored status is not terminal.

        Lease and worker stay as they are stored; a terminal status ends the lease. None if nothing was written.
        """
        ...

    async def claim(self, id: str, worker: str, *, seconds: float) -> TaskRecord | None:
        """Take the lease; None if a worker has it, including this one, or the task is terminal or gone."""
        ...

    async def renew(self, id: str, worker: str, *, seconds: float) -> bool:
        """Extend the lease from now on; False if another worker has it, or the task is terminal or gone."""
        ...

    async def release(self, id: str, worker: str) -> bool:
        """Give the lease back."""
        ...

    async def delete(self, id: str) -> bool: ...

    async def list(self, owner: str, *, cursor: str | None = None, limit: int = 100) -> TasksPage:
        """The tasks of an owner, oldest first.

        Raises:
            ProtocolError: The cursor is not one of this list (-32602).
        """
        ...

    async def count(self, owner: str | None = None) -> int: ...

    async def due(self, *, limit: int = 100) -> list[TaskRecord]:
        """Tasks that are working without a lease: they must be claimed, and run or failed."""
        ...

    async def sweep(self, *, limit: int = 1000) -> list[str]:
        """Remove expired tasks, and return their ids."""
        ...


def write_cursor(record: TaskRecord) -> str:
    return f"{record.created_ms}:{record.id}"


def read_cursor(cursor: str | None) -> tuple[int, str]:
    """Where a page begins: after this creation time and id."""
    if cursor is None:
        return -1, ""
    created, colon, id = cursor.partition(":")
    if not (colon and id and created.isascii() and created.isdigit() and len(created) < 16):
        raise ProtocolError.invalid_params("the cursor is not from this list: start without a cursor")
    return int(created), id


# --- bus -------------------------------------------------------------------------------------------------------------


class BusMessage(NamedTuple):
    topic: str
    data: bytes
    sender: str
    """The `name` of the bus it was published on."""


class Gap(NamedTuple):
    """Messages may have been missed: read the state again."""

    reason: str


class BusSubscription(Protocol):
    """The messages of some topics. After entering, every message arrives, or a `Gap` in its place."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __aiter__(self) -> AsyncIterator[BusMessage | Gap]: ...


class Bus(Protocol):
    """Messages between all users of the store: at most once, in order per sender. A `Gap` stands for missed messages."""

    @property
    def name(self) -> str:
        """The name of this bus: unique in the store, and impossible to guess."""
        ...

    @property
    def poisoned(self) -> int:
        """The number of unreadable messages, which were dropped."""
        ...

    @property
    def overflowed(self) -> int:
        """The number of messages dropped because their reader was slow."""
        ...

    async def publish(self, topic: str, data: bytes) -> None:
        """Send to every listener, in this process too."""
        ...

    def subscribe(self, *topics: str, size: int = MAX_QUEUED) -> BusSubscription: ...

    def answer(self, worker: str, respond: Callable[[bytes], Awaitable[bytes]]) -> AbstractAsyncContextManager[None]:
        """While entered, answer questions to this worker, each in its own task."""
        ...

    async def request(self, worker: str, data: bytes, *, timeout: float) -> bytes:
        """Ask a worker in any process.

        Raises:
            NoAnswer: The worker does not exist, or it failed.
            TimedOut: No answer came in time.
        """
        ...


# --- all of them -----------------------------------------------------------------------------------------------------


@runtime_checkable
class Store(Protocol):
    """All four. A store belongs to the event loop that started it."""

    is_shared: bool
    """Whether other processes see it."""
    is_durable: bool
    """Whether it outlives the process."""

    @property
    def sessions(self) -> SessionStore: ...
    @property
    def events(self) -> EventStore: ...
    @property
    def tasks(self) -> TaskStore: ...
    @property
    def bus(self) -> Bus: ...

    async def start(self) -> None:
        """Connect, and check that the stored data can be read.

        Raises:
            ConfigError: The store can never work: another version, not a store, not writable.
            StoreUnavailable: The store is away now. Later operations, and another `start`, try again.
        """
        ...

    async def close(self) -> None:
        """Release everything. Later operations raise StoreClosed."""
        ...

    async def check(self) -> StoreHealth:
        """Whether it can be read and written now. Never raises."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
