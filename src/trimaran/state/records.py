"""Records as every store handles them: encoding, paging, and errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from .contracts import (
    TERMINAL,
    EventsPage,
    EventWrite,
    SessionRecord,
    StoreClosed,
    StoreConflict,
    StoredEvent,
    StoreFull,
    TaskRecord,
    TasksPage,
    write_cursor,
)

T = TypeVar("T")

logger: Final = logging.getLogger("trimaran.state")

pack: Final = msgspec.msgpack.Encoder().encode
_sessions: Final = msgspec.msgpack.Decoder(SessionRecord)
_tasks: Final = msgspec.msgpack.Decoder(TaskRecord)


def now_ms() -> int:
    return int(time.time() * 1000)


def _read(decoder: msgspec.msgpack.Decoder[T], data: Any) -> T | None:
    """A stored record. One that cannot be read counts as missing: its user starts again."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, TypeError) as error:
        logger.warning("a record in the store cannot be read and counts as missing: %s", type(error).__name__)
        return None


def read_session(data: Any) -> SessionRecord | None:
    return _read(_sessions, data)


def read_task(row: Sequence[Any]) -> TaskRecord | None:
    """A task from its row: data, stamp, worker, lease."""
    data, stamp, worker, lease = row
    record = _read(_tasks, data)
    if record is None:
        return None
    worker = worker.decode() if isinstance(worker, bytes) else worker
    return replace(record, stamp=stamp, worker=worker, lease_ms=int(lease))


def read_tasks(rows: Iterable[Sequence[Any]]) -> list[TaskRecord]:
    return [record for record in map(read_task, rows) if record is not None]


def new_task(record: TaskRecord) -> TaskRecord:
    """A task as the store keeps it first: nobody runs it."""
    return replace(record, stamp=1, worker="", lease_ms=0)


def updated_task(record: TaskRecord, stored: TaskRecord | None) -> TaskRecord | None:
    """The record to write over the stored one; None if it may not be written. A terminal status ends the lease."""
    if stored is None or stored.is_terminal or stored.stamp != record.stamp:
        return None
    is_over = record.status in TERMINAL
    return replace(
        record,
        owner=stored.owner,
        created_ms=stored.created_ms,
        stamp=stored.stamp + 1,
        worker="" if is_over else stored.worker,
        lease_ms=0 if is_over else stored.lease_ms,
    )


def tasks_page(records: list[TaskRecord], limit: int) -> TasksPage:
    """A page of `records`, of which there is one more than `limit` if another page follows."""
    return TasksPage(records[:limit], write_cursor(records[limit - 1]) if len(records) > limit > 0 else None)


def events_page(events: list[StoredEvent], last: int, is_ended: bool, after: int) -> EventsPage:
    first = events[0].number if events else last + 1
    return EventsPage(events, last, first > after + 1 or after > last or after < 0, is_ended)


def event_topic(session: str, stream: str) -> str:
    return f"events/{session}/{stream}"


def group_by_stream(writes: Sequence[EventWrite]) -> dict[tuple[str, str], list[EventWrite]]:
    """The writes of each stream, in their order."""
    streams: dict[tuple[str, str], list[EventWrite]] = {}
    for write in writes:
        streams.setdefault((write.session, write.stream), []).append(write)
    return streams


def store_closed() -> StoreClosed:
    return StoreClosed("the store is closed: it was used after its server, or its `async with`, had ended")


def id_taken(kind: str) -> StoreConflict:
    return StoreConflict(f"a {kind} with this id exists already: use random ids, secrets.token_hex(16)")


def too_many(kind: str, limit: int) -> StoreFull:
    return StoreFull(
        f"there are {limit} {kind} already, which is the most allowed: wait until one has ended", limit=limit
    )
