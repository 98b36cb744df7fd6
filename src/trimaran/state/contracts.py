"""What a store is: four small contracts for state that more than one request, worker or machine must see.

- `Sessions`: what `initialize` settled with a legacy client;
- `Events`: the log a lost stream is replayed from;
- `Tasks`: the records of long work, of both task protocols;
- `Bus`: messages between workers, heard at most once.

The rules that all of them keep:

- Every record ends by itself: it is made with the time it may live, and what is past it is as if it had never been.
- Where two workers may write, a record has a `stamp`. A write names the stamp it was read with; if that is no longer the
  one stored, nothing is written and None comes back: read again, decide again.
- A wait is bounded. A store that is down, or slower than its patience, raises `StoreUnavailable`; one that has no room
  raises `StoreFull`; both are `StoreError`. It mends by itself when its database is back: nothing has to be opened again.
- Whether a write that ended in `StoreUnavailable` happened is not known. Stamps make it safe to try again.

Any object with these methods will do: `trimaran.testing.check_store` tells whether it keeps the rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from msgspec import Struct, field

from trimaran.errors import Error, ProtocolError

__all__ = [
    "SCHEMA",
    "TERMINAL",
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
    "read_cursor",
    "write_cursor",
]

SCHEMA: Final = 1
"""The version of what is stored. Another one is refused, never guessed at."""

# Above the events of any one call; the log of a session that nobody reads is cut here (R104 has 256, R105 100).
MAX_EVENTS: Final = 256
# Bytes of them, of each stream: base64 of a 3 MB image fits. The newest event stays whatever its size is.
MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
# A subscriber this far behind hears of a gap instead: it must look again anyway.
MAX_QUEUED: Final = 1000
MAX_QUEUED_BYTES: Final = 8 * 1024 * 1024
# What a client may wait for a store within one call; a healthy one takes a thousandth of it.
PATIENCE: Final = 5.0


class StoreError(Error):
    """The store could not do it now. Trying again later makes sense."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which trying again makes sense."""
        self.is_logged = False
        """Has the store said so in its own log? Then nobody else need."""


class StoreUnavailable(StoreError):
    """The store does not answer, or not in time. Whether a write was done is not known. It is tried again by itself."""


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
    """The worker that was asked is not there, or failed while it answered."""


class Health(Struct, frozen=True):
    """Whether a store can be used now."""

    is_up: bool
    seconds: float
    """How long it took to find out."""
    detail: str = ""
    """What is wrong."""
    is_read: bool = False
    """Where it is not up: can it still be read? It is full then, or takes no writes for another reason."""


# --- sessions --------------------------------------------------------------------------------------------------------


class SessionRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has to be known of a legacy session on every worker."""

    id: str
    owner: str = ""
    """Whose it is: the identity of a principal as text; empty for nobody in particular."""
    version: str = ""
    """The protocol revision that was negotiated."""
    capabilities: dict[str, Any] = field(default_factory=dict[str, Any])
    client: dict[str, Any] = field(default_factory=dict[str, Any])
    """The client's name and version, as it said them."""
    initialized: bool = False
    log_level: str = "info"
    subscriptions: list[str] = field(default_factory=list[str])
    worker: str = ""
    """Where its own stream is open, if it is."""
    created_ms: int = 0
    extra: bytes = b""
    """Whatever else its owner keeps."""
    stamp: int = 0
    """Set by the store: changes with every write."""


class Sessions(Protocol):
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
        """Let it live for `ttl` more seconds from now; False if it is gone."""
        ...

    async def put(self, record: SessionRecord, *, ttl: float | None = None) -> SessionRecord | None:
        """Write a changed record, if its stamp is still the stored one; None if it is not, or the session is gone."""
        ...

    async def delete(self, id: str) -> bool: ...

    async def count(self) -> int: ...


# --- events ----------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    number: int
    data: bytes


class EventWrite(NamedTuple):
    """One thing to be written to a stream."""

    session: str
    stream: str
    data: bytes | None
    """The event; None ends the stream."""
    ttl: float
    """Seconds that the stream lives from now."""
    number: int = 0
    """Which event of its stream this is, where only one writer adds to it: then it is added once, however often it is
    written. 0 for the next one, whichever that is.
    """


class EventsPage(NamedTuple):
    """Events of a stream after a number."""

    events: list[Event]
    last: int
    """The number of the newest event of the stream; 0 if there was none."""
    is_truncated: bool
    """Some after the number asked for are gone, or the number was never given out."""
    is_ended: bool
    """Nothing will follow `last`."""


class Events(Protocol):
    """The recent events of sessions, numbered from 1 within each stream. `<stream>:<number>` is an event's id."""

    async def append(self, session: str, stream: str, data: bytes, *, ttl: float) -> int:
        """Add an event and return its number. The stream lives for `ttl` seconds from now; the oldest events give way."""
        ...

    async def end(self, session: str, stream: str, *, ttl: float) -> None:
        """Nothing more will be added to this stream. It can be read for `ttl` seconds more."""
        ...

    async def write(self, writes: Sequence[EventWrite]) -> None:
        """Do many of these at once, in their order: all of them, or none."""
        ...

    async def read(self, session: str, stream: str, after: int, *, limit: int = 100) -> EventsPage: ...

    async def wait(self, session: str, stream: str, after: int, *, timeout: float) -> bool:
        """Wait until there is something after this number, or the stream has ended; False if time ran out before.

        A store that goes away meanwhile is waited for.
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
    """One task, in the words of neither protocol."""

    id: str
    expires_ms: int
    """When the record goes, in milliseconds since 1970. A write may move it."""
    owner: str = ""
    session: str = ""
    """The legacy session it was made in."""
    method: str = "tools/call"
    name: str = ""
    """The tool."""
    arguments: bytes = b"{}"
    status: TaskStatus = "working"
    status_message: str | None = None
    created_ms: int = 0
    updated_ms: int = 0
    ttl_ms: int | None = None
    """What the client was told; None is unlimited."""
    poll_ms: int | None = None
    result: bytes | None = None
    error: bytes | None = None
    inputs: bytes = b""
    """The input requests outstanding."""
    journal: bytes = b""
    is_resumable: bool = False
    extra: bytes = b""
    """Whatever else its runner keeps."""
    stamp: int = 0
    """Set by the store: 1 for a new task, and more with every write, and whenever somebody claims it."""
    worker: str = ""
    """Set by the store: who runs it."""
    lease_ms: int = 0
    """Set by the store: until when, in milliseconds since 1970, by the store's clock."""

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL


class TasksPage(NamedTuple):
    tasks: list[TaskRecord]
    cursor: str | None
    """Where the next page begins; None if there is none."""


class Tasks(Protocol):
    """Tasks by id. What these methods have written outlives the process that wrote it, if the store outlives processes.

    A task runs where it is claimed: `claim` gives it to one worker until the lease runs out, and changes the stamp, so
    that whoever held it before can write no more.
    """

    async def create(self, record: TaskRecord, *, most: int | None = None) -> TaskRecord:
        """Keep a new task; it is durable when this returns.

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
        """Take the lease; None if somebody has it, also oneself, or the task is terminal or gone."""
        ...

    async def renew(self, id: str, worker: str, *, seconds: float) -> bool:
        """Keep the lease from now on; False if it went to another, or the task is terminal or gone."""
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
        """Tasks that are working and that nobody holds: to be claimed, and run or failed."""
        ...

    async def sweep(self, *, limit: int = 1000) -> list[str]:
        """Remove tasks past their time, and say which."""
        ...


def write_cursor(record: TaskRecord) -> str:
    return f"{record.created_ms}:{record.id}"


def read_cursor(cursor: str | None) -> tuple[int, str]:
    """Where a page begins: after this creation time and id."""
    if cursor is None:
        return -1, ""
    created, colon, id = cursor.partition(":")
    if not (colon and id and created.isascii() and created.isdigit() and len(created) < 16):
        raise ProtocolError.invalid_params("the cursor is not one that this list gave out: begin without one")
    return int(created), id


# --- bus -------------------------------------------------------------------------------------------------------------


class Message(NamedTuple):
    topic: str
    data: bytes
    sender: str
    """The `name` of the bus it was published on."""


class Gap(NamedTuple):
    """Messages may have been missed: look again at whatever they would have told."""

    reason: str


class Subscription(Protocol):
    """What is heard on some topics. Entering it returns when nothing published from then on can be missed unnoticed."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __aiter__(self) -> AsyncIterator[Message | Gap]: ...


class Bus(Protocol):
    """Messages between all who use the store: heard at most once, in order per sender; what was missed is told as a Gap."""

    @property
    def name(self) -> str:
        """This bus among all on the store: unguessable, and new with each."""
        ...

    @property
    def poisoned(self) -> int:
        """How many messages could not be read, and were dropped."""
        ...

    @property
    def overflowed(self) -> int:
        """How many messages were dropped because their reader was slow."""
        ...

    async def publish(self, topic: str, data: bytes) -> None:
        """Tell everyone who listens, this process included."""
        ...

    def subscribe(self, *topics: str, size: int = MAX_QUEUED) -> Subscription: ...

    def answer(self, worker: str, respond: Callable[[bytes], Awaitable[bytes]]) -> AbstractAsyncContextManager[None]:
        """While entered, answer what is asked of this worker, each question in a task of its own."""
        ...

    async def request(self, worker: str, data: bytes, *, timeout: float) -> bytes:
        """Ask a worker, wherever it runs.

        Raises:
            NoAnswer: It is not there, or it failed.
            TimedOut: No answer came in time.
        """
        ...


# --- all of them -----------------------------------------------------------------------------------------------------


@runtime_checkable
class Store(Protocol):
    """The four together. It belongs to the event loop that started it."""

    is_shared: bool
    """Do other processes see it?"""
    is_durable: bool
    """Does it outlive the process?"""

    @property
    def sessions(self) -> Sessions: ...
    @property
    def events(self) -> Events: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def bus(self) -> Bus: ...

    async def start(self) -> None:
        """Connect, and check that what is stored can be read.

        Raises:
            ConfigError: This can never work: another version, not a store, not writable.
            StoreUnavailable: Not now. What is asked of the store later tries again, as does another `start`.
        """
        ...

    async def close(self) -> None:
        """Let go of everything; what is asked of it afterwards raises StoreClosed."""
        ...

    async def check(self) -> Health:
        """Can it be used now, to read and to write? Never raises."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
