"""The store of one machine: a SQLite file, shared by the processes that open it.

Two threads use the database, one that reads and one that writes, so the event loop never waits for a disk. The journal is
a WAL: readers do not wait for the writer, and written data outlives a kill of the process. Tasks are also flushed to the
disk before a write returns. Sessions, events and messages are not: nobody needs them after the machine has gone down.

The bus is a table that each process reads fifty times a second while somebody listens. That is right for the few workers
of one machine; between machines, use Redis.

A file of another program, or of another version of this schema, is refused and left unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, final

from msgspec.structs import replace

from trimaran.daemon_threads import DaemonExecutor
from trimaran.errors import ConfigError, Error

from .bus import StoreBus, wait_for_events
from .contracts import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    OPERATION_TIMEOUT,
    SCHEMA,
    BusMessage,
    EventsPage,
    EventWrite,
    SessionRecord,
    StoredEvent,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TaskRecord,
    TasksPage,
    read_cursor,
)
from .database import Database, DatabaseStore
from .records import (
    event_topic,
    events_page,
    group_by_stream,
    id_taken,
    logger,
    new_task,
    now_ms,
    pack,
    read_session,
    read_task,
    read_tasks,
    tasks_page,
    too_many,
    updated_task,
)

T = TypeVar("T")
Connection = sqlite3.Connection

_APPLICATION: Final = 0x54524D4E  # "TRMN", in the header of the file
# Seconds between two reads of the table of messages: no delay that anyone notices, and under 1% of a core.
_LOOK: Final = 0.02
# Operations that may wait for a thread. If more wait, the disk is too slow, and a longer queue makes it worse.
_MAX_WAITING: Final = 5000
# How long messages are kept, and how many: a process that did not read for longer is told of a gap.
_MESSAGES_MS: Final = 60_000
_MAX_MESSAGES: Final = 20_000
# Fits the index of a hundred thousand tasks: a new id may belong on any of its pages. Memory is used only as needed.
_CACHE_KB: Final = 16 * 1024
# Writes between two removals of expired rows.
_PURGE_EVERY: Final = 64

_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_HOPELESS: Final = _DAMAGED | {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
# SQLite also reports these when a disk is full: it cannot create or extend the files beside the database.
_MAYBE_FULL: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
# A disk with fewer free bytes is full: those files grow by 32 KiB.
_ROOM: Final = 64 * 1024
# How long a check waits for a write. A readiness probe has half a second for everything.
_CHECK_SECONDS: Final = 0.3
_MAX_VALUE_BYTES: Final = 1_000_000_000  # SQLite's own limit for one value

_TABLES: Final = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, stamp INTEGER NOT NULL, expires INTEGER NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX sessions_by_end ON sessions (expires);
CREATE TABLE streams (
    session TEXT NOT NULL, stream TEXT NOT NULL, last INTEGER NOT NULL, ended INTEGER NOT NULL, expires INTEGER NOT NULL,
    PRIMARY KEY (session, stream)
) WITHOUT ROWID;
CREATE INDEX streams_by_end ON streams (expires);
CREATE TABLE events (
    session TEXT NOT NULL, stream TEXT NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (session, stream, number)
) WITHOUT ROWID;
CREATE TABLE tasks (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL, stamp INTEGER NOT NULL,
    status TEXT NOT NULL, worker TEXT NOT NULL, lease INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE INDEX tasks_by_owner ON tasks (owner, created, id);
CREATE INDEX tasks_by_end ON tasks (expires);
CREATE INDEX tasks_by_lease ON tasks (lease) WHERE status = 'working';
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, sender TEXT NOT NULL, data BLOB NOT NULL, at INTEGER NOT NULL);
"""

_MAX_STREAMS: Final = 10_000  # whose growth is remembered


@final
class _Lane:
    """A thread with its own connection to the file. Everything but `run` and `end` happens in the thread."""

    def __init__(self, path: Path, timeout: float, name: str, translate: Callable[[sqlite3.Error], Error]) -> None:
        self._path = path
        self._timeout = timeout
        self._name = name
        self._translate = translate
        self._pool: DaemonExecutor | None = None
        self._connection: Connection | None = None
        self._identity: object = None
        self._checked_at = 0.0
        self.generation: int = 0
        """Counts the files opened: a file that replaced another has none of its data."""
        self.flushes: bool | None = None
        """Whether writes are flushed to the disk, as last set."""
        self.writes = 0

    async def run(self, work: Callable[[Connection], T]) -> T:
        if self._pool is None:
            self._pool = DaemonExecutor(1, self._name)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._attempt, work)

    def _attempt(self, work: Callable[[Connection], T]) -> T:
        try:
            return work(self._open())
        except sqlite3.Error as error:
            # Open the file again next time: somebody may have replaced it with a good one.
            if _code(error) in _HOPELESS | {sqlite3.SQLITE_IOERR}:
                self._close()
            # Here and not in the loop: the operation next in this thread must not wait as long again.
            raise self._translate(error) from None

    def _open(self) -> Connection:
        if self._connection is not None and self._was_replaced():
            logger.warning("%s was removed or replaced: its data is lost, and the store starts empty", self._path)
            self._close()
        if self._connection is None:
            with contextlib.suppress(FileExistsError, OSError):  # SQLite has the better message
                # Only this user may read it: it holds results of tools. SQLite gives the files beside it the same mode.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            connection = sqlite3.connect(
                self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            try:
                _prepare(connection, self._path)
            except BaseException:
                connection.close()
                raise
            identity = _identify(self._path)
            self.generation += identity != self._identity
            self._connection, self._identity, self.flushes = connection, identity, None
        return self._connection

    def _was_replaced(self) -> bool:
        """Whether the file was removed or replaced. Checked once a second."""
        now = time.monotonic()
        if now - self._checked_at < 1.0:
            return False
        self._checked_at = now
        return _identify(self._path) != self._identity

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            with contextlib.suppress(sqlite3.Error, TimeoutError):
                async with asyncio.timeout(self._timeout + 1):
                    await asyncio.get_running_loop().run_in_executor(pool, self._close)
            pool.shutdown(wait=False, cancel_futures=True)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _identify(path: Path) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


@final
class _Database(Database):
    """The file, its threads, and the translation of its failures."""

    def __init__(self, path: Path, timeout: float, clock: Callable[[], int]) -> None:
        super().__init__(str(path))
        self.path = path
        self.clock = clock
        self._timeout = timeout
        # A read does not wait for a write that waits for a lock.
        self.reader: _Lane = _Lane(path, timeout, "trimaran store reads", self._translate)
        self._writer = _Lane(path, timeout, "trimaran store writes", self._translate)
        self._waiting = 0

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self.reader, work)

    async def write(self, work: Callable[[Connection], T], *, flush: bool = False) -> T:
        """Run `work` in a transaction of its own, which excludes other writers."""
        lane = self._writer

        def transact(connection: Connection) -> T:
            if lane.flushes is not flush:
                connection.execute(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
                lane.flushes = flush
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                lane.writes += 1
                if lane.writes % _PURGE_EVERY == 0:
                    _purge(connection, self.clock())
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            return result

        return await self._run(lane, transact)

    async def _run(self, lane: _Lane, work: Callable[[Connection], T]) -> T:
        self._require_open()
        writes = lane is self._writer
        health = self._health
        health.check(writes=writes)
        if self._waiting >= _MAX_WAITING:
            raise StoreUnavailable(f"{self.path} is too slow: {self._waiting} operations wait for it")

        def attempt(connection: Connection) -> T:
            health.check(writes=writes)  # the database may have failed while this waited
            return work(connection)

        self._waiting += 1
        try:
            # Longer than SQLite waits for a lock, so that its own error comes first. Work that has not begun by then never does.
            async with asyncio.timeout(self._timeout + 1):
                result = await lane.run(attempt)
        except TimeoutError:
            self._is_hopeless = False
            raise health.failed(f"{self.path} did not answer within {self._timeout + 1:g} s") from None
        except ConfigError as error:  # another program's file replaced ours
            self._is_hopeless = True
            raise health.failed(str(error)) from None
        except RuntimeError as error:  # no thread can be started
            raise health.failed(f"{self.path} cannot be used: {error}") from None
        finally:
            self._waiting -= 1
        health.succeeded(writes=writes)
        return result

    def _translate(self, error: sqlite3.Error) -> Error:
        """The error that callers see for a failure of SQLite. Called in either thread."""
        code, path = _code(error), self.path
        self._is_hopeless = False
        if code == sqlite3.SQLITE_FULL or (code in _MAYBE_FULL and _has_no_room(path)):
            return self._health.full(f"{path} cannot grow, its disk is full: make room")
        if code == sqlite3.SQLITE_TOOBIG:  # about this value only: other writes may succeed
            return StoreFull(f"{path} cannot store a value this long ({error})", limit=_MAX_VALUE_BYTES)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            text = f"{path} has been locked by another process for {self._timeout:g} s: end the process that holds the lock, if that goes on"
            return self._health.failed(text, only_writes=True)
        self._is_hopeless = code in _HOPELESS
        if code in _DAMAGED:
            text = f"{path} is damaged, or not a SQLite file ({error}): stop its servers and move it away"
        elif code in _HOPELESS and not os.path.isdir(directory := os.path.dirname(path) or "."):
            text = f"{path} cannot be made: there is no directory {directory}; make it"
        elif code in _HOPELESS:
            text = f"{path} cannot be written ({error}): give this user the right to write it and its directory"
        else:
            text = f"{path} failed ({error}): look at its disk, and the limits of this process"
        return self._health.failed(text, only_writes=code == sqlite3.SQLITE_READONLY)

    async def _connect(self) -> None:
        await self.write(lambda connection: None)

    async def _try_read(self) -> None:
        await self.read(lambda connection: connection.execute("SELECT count(*) FROM sqlite_master").fetchone())

    async def _try_write(self) -> None:
        statement = (
            "INSERT INTO streams VALUES ('~check', '', 0, 0, ?) ON CONFLICT DO UPDATE SET expires = excluded.expires"
        )
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self.write(lambda connection: connection.execute(statement, (self.clock() + 60_000,)))
        except TimeoutError:
            raise StoreUnavailable(f"{self.path} takes no write within {_CHECK_SECONDS:g} s") from None

    async def close(self) -> None:
        await self.reader.end()
        await self._writer.end()


def _has_no_room(path: Path) -> bool:
    """Whether the disk of the file is full. SQLite reports most failures of a disk with the same code."""
    try:
        status = os.statvfs(path.parent)
    except (OSError, AttributeError):  # gone; or Windows
        return False
    return status.f_bavail * status.f_frsize < _ROOM or (status.f_files > 0 and status.f_favail == 0)


def _prepare(connection: Connection, path: Path) -> None:
    """Create the tables, or check that they are ours."""
    # In one transaction: another process may be creating them now.
    connection.execute("BEGIN")
    try:
        is_ours = _is_ours(connection, path)
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
    _use_wal(connection)
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
    if is_ours:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_ours(connection, path):  # another process may have been quicker
            for statement in _TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _is_ours(connection: Connection, path: Path) -> bool:
    """True for a store of this version, False for an empty file. Anything else is a ConfigError."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == _APPLICATION:
        if version != SCHEMA:
            raise ConfigError(
                f"{path} was written by another version of Trimaran: its schema is {version}, this one reads {SCHEMA}. "
                "Use another file, or the version that wrote it"
            )
        return True
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application or version or tables:
        raise ConfigError(f"{path} is a database of another program: use a new file, or the file of a store")
    return False


def _use_wal(connection: Connection) -> None:
    # This statement does not wait for locks as others do: two processes that start together may collide.
    for attempt in range(100):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or attempt == 99:
                raise
            time.sleep(0.02)


def _purge(connection: Connection, now: int) -> None:
    """Remove some expired rows. The runner of tasks removes those itself, because it must know which."""
    connection.execute(
        "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE expires <= ? LIMIT 256)", (now,)
    )
    over = connection.execute("SELECT session, stream FROM streams WHERE expires <= ? LIMIT 256", (now,)).fetchall()
    connection.executemany("DELETE FROM events WHERE session = ? AND stream = ?", over)
    connection.executemany("DELETE FROM streams WHERE session = ? AND stream = ?", over)
    (newest,) = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    # By id first, because it is the key. Never the newest, which tells readers their position.
    connection.execute(
        "DELETE FROM messages WHERE id < ? AND (id <= ? OR at <= ?)",
        (newest, newest - _MAX_MESSAGES, now - _MESSAGES_MS),
    )


@final
class _Sessions:
    def __init__(self, database: _Database) -> None:
        self._database = database

    async def create(self, record: SessionRecord, *, ttl: float, most: int | None = None) -> SessionRecord:
        new = replace(record, stamp=1)

        def work(connection: Connection) -> None:
            now = self._database.clock()
            if most is not None:
                (count,) = connection.execute("SELECT count(*) FROM sessions WHERE expires > ?", (now,)).fetchone()
                if count >= most:
                    raise too_many("sessions", most)
            connection.execute("DELETE FROM sessions WHERE id = ? AND expires <= ?", (record.id, now))
            added = connection.execute(
                "INSERT INTO sessions VALUES (?, 1, ?, ?) ON CONFLICT DO NOTHING",
                (record.id, now + int(ttl * 1000), pack(new)),
            )
            if added.rowcount == 0:
                raise id_taken("session")

        await self._database.write(work)
        return new

    async def get(self, id: str) -> SessionRecord | None:
        def work(connection: Connection) -> Any:
            return connection.execute(
                "SELECT data FROM sessions WHERE id = ? AND expires > ?", (id, self._database.clock())
            ).fetchone()

        row = await self._database.read(work)
        return None if row is None else read_session(row[0])

    async def touch(self, id: str, *, ttl: float) -> bool:
        def work(connection: Connection) -> bool:
            now = self._database.clock()
            ends = now + int(ttl * 1000)
            changed = connection.execute(
                "UPDATE sessions SET expires = ? WHERE id = ? AND expires > ?", (ends, id, now)
            )
            return changed.rowcount > 0

        return await self._database.write(work)

    async def put(self, record: SessionRecord, *, ttl: float | None = None) -> SessionRecord | None:
        updated = replace(record, stamp=record.stamp + 1)

        def work(connection: Connection) -> bool:
            now = self._database.clock()
            changed = connection.execute(
                "UPDATE sessions SET data = ?, stamp = ?, expires = coalesce(?, expires) WHERE id = ? AND stamp = ? AND expires > ?",
                (
                    pack(updated),
                    updated.stamp,
                    None if ttl is None else now + int(ttl * 1000),
                    record.id,
                    record.stamp,
                    now,
                ),
            )
            return changed.rowcount > 0

        return updated if await self._database.write(work) else None

    async def delete(self, id: str) -> bool:
        def work(connection: Connection) -> bool:
            row = connection.execute("DELETE FROM sessions WHERE id = ? RETURNING expires", (id,)).fetchone()
            return row is not None and row[0] > self._database.clock()

        return await self._database.write(work)

    async def count(self) -> int:
        def work(connection: Connection) -> int:
            now = self._database.clock()
            return connection.execute("SELECT count(*) FROM sessions WHERE expires > ?", (now,)).fetchone()[0]

        return await self._database.read(work)


@final
class _Events:
    def __init__(self, database: _Database, bus: _Bus, max_events: int, max_bytes: int) -> None:
        self._database = database
        self._bus = bus
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._grown: dict[tuple[str, str], int] = {}
        """Bytes added to each stream since its size was last computed. Only the writing thread uses it."""

    def _open(self, connection: Connection, session: str, stream: str, ttl: float) -> int:
        """The last number of the stream. Creates the stream if it is new."""
        now = self._database.clock()
        over = connection.execute(
            "DELETE FROM streams WHERE session = ? AND stream = ? AND expires <= ?", (session, stream, now)
        )
        if over.rowcount:
            connection.execute("DELETE FROM events WHERE session = ? AND stream = ?", (session, stream))
        return connection.execute(
            "INSERT INTO streams VALUES (?, ?, 0, 0, ?) ON CONFLICT DO UPDATE SET expires = excluded.expires RETURNING last",
            (session, stream, now + int(ttl * 1000)),
        ).fetchone()[0]

    async def append(self, session: str, stream: str, data: bytes, *, ttl: float) -> int:
        def work(connection: Connection) -> int:
            number = self._open(connection, session, stream, ttl) + 1
            key = (session, stream)
            connection.execute("UPDATE streams SET last = ? WHERE session = ? AND stream = ?", (number, *key))
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (*key, number, bytes(data)))
            connection.execute(
                "DELETE FROM events WHERE session = ? AND stream = ? AND number <= ?",
                (*key, number - self._max_events),
            )
            self._trim(connection, key, number, len(data))
            self._bus.insert(connection, event_topic(session, stream), b"")
            return number

        number = await self._database.write(work)
        self._bus.look()
        return number

    def _trim(self, connection: Connection, key: tuple[str, str], last: int, added: int) -> None:
        """Drop the oldest events of a stream over its limit of bytes. Checked when it has grown by an eighth of the limit."""
        grown = self._grown.pop(key, 0) + added
        if grown * 8 <= self._max_bytes:
            if len(self._grown) >= _MAX_STREAMS:
                self._grown.clear()
            self._grown[key] = grown
            return
        connection.execute(
            "DELETE FROM events WHERE session = ? AND stream = ? AND number < ? AND number <= (SELECT max(number) FROM"
            " (SELECT number, sum(length(data)) OVER (ORDER BY number DESC) AS held FROM events"
            " WHERE session = ? AND stream = ?) WHERE held > ?)",
            (*key, last, *key, self._max_bytes),
        )

    async def end(self, session: str, stream: str, *, ttl: float) -> None:
        def work(connection: Connection) -> None:
            self._open(connection, session, stream, ttl)
            connection.execute("UPDATE streams SET ended = 1 WHERE session = ? AND stream = ?", (session, stream))
            self._bus.insert(connection, event_topic(session, stream), b"")

        await self._database.write(work)
        self._bus.look()

    async def write(self, writes: Sequence[EventWrite]) -> None:
        def work(connection: Connection) -> None:
            for (session, stream), stream_writes in group_by_stream(writes).items():
                key = (session, stream)
                last = self._open(connection, session, stream, stream_writes[-1].ttl)
                events: list[tuple[str, str, int, bytes]] = []
                for write in stream_writes:
                    number = write.number or last + 1
                    if write.data is not None and number > last:
                        last = number
                        events.append((session, stream, number, bytes(write.data)))
                is_over = any(write.data is None for write in stream_writes)
                connection.execute(
                    "UPDATE streams SET last = ?, ended = ended OR ? WHERE session = ? AND stream = ?",
                    (last, is_over, *key),
                )
                connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", events)
                if last > self._max_events:
                    connection.execute(
                        "DELETE FROM events WHERE session = ? AND stream = ? AND number <= ?",
                        (*key, last - self._max_events),
                    )
                self._trim(connection, key, last, sum(len(event[3]) for event in events))
                self._bus.insert(connection, event_topic(session, stream), b"")

        if writes:
            await self._database.write(work)
            self._bus.look()

    async def read(self, session: str, stream: str, after: int, *, limit: int = 100) -> EventsPage:
        def work(connection: Connection) -> EventsPage:
            # One statement, so that the events agree with the numbers of the stream.
            rows = connection.execute(
                "SELECT s.last, s.ended, e.number, e.data FROM streams s LEFT JOIN events e"
                " ON e.session = s.session AND e.stream = s.stream AND e.number > ?"
                " WHERE s.session = ? AND s.stream = ? AND s.expires > ? ORDER BY e.number LIMIT ?",
                (after, session, stream, self._database.clock(), max(1, limit)),
            ).fetchall()
            if not rows:
                return events_page([], 0, False, after)
            events = [StoredEvent(number, data) for _, _, number, data in rows if number is not None]
            return events_page(events, rows[0][0], bool(rows[0][1]), after)

        return await self._database.read(work)

    async def wait(self, session: str, stream: str, after: int, *, timeout: float) -> bool:
        return await wait_for_events(self, self._bus.board, session, stream, after, timeout)

    async def delete(self, session: str) -> None:
        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM events WHERE session = ?", (session,))
            connection.execute("DELETE FROM streams WHERE session = ?", (session,))

        await self._database.write(work)


_TASK: Final = "SELECT data, stamp, worker, lease FROM tasks"


@final
class _Tasks:
    def __init__(self, database: _Database) -> None:
        self._database = database

    async def create(self, record: TaskRecord, *, most: int | None = None) -> TaskRecord:
        new = new_task(record)

        def work(connection: Connection) -> None:
            now = self._database.clock()
            if most is not None and self._count(connection, record.owner, now) >= most:
                raise too_many("tasks of this caller", most)
            connection.execute("DELETE FROM tasks WHERE id = ? AND expires <= ?", (record.id, now))
            added = connection.execute(
                "INSERT INTO tasks VALUES (?, ?, ?, ?, 1, ?, '', 0, ?) ON CONFLICT DO NOTHING",
                (record.id, record.owner, record.created_ms, record.expires_ms, record.status, pack(new)),
            )
            if added.rowcount == 0:
                raise id_taken("task")

        await self._database.write(work, flush=True)
        return new

    def _get(self, connection: Connection, id: str) -> TaskRecord | None:
        row = connection.execute(f"{_TASK} WHERE id = ? AND expires > ?", (id, self._database.clock())).fetchone()
        return None if row is None else read_task(row)

    async def get(self, id: str) -> TaskRecord | None:
        return await self._database.read(lambda connection: self._get(connection, id))

    async def update(self, record: TaskRecord) -> TaskRecord | None:
        def work(connection: Connection) -> TaskRecord | None:
            updated = updated_task(record, self._get(connection, record.id))
            if updated is None:
                return None
            connection.execute(
                "UPDATE tasks SET data = ?, stamp = ?, status = ?, expires = ?, worker = ?, lease = ? WHERE id = ?",
                (
                    pack(updated),
                    updated.stamp,
                    updated.status,
                    updated.expires_ms,
                    updated.worker,
                    updated.lease_ms,
                    record.id,
                ),
            )
            return updated

        return await self._database.write(work, flush=True)

    async def claim(self, id: str, worker: str, *, seconds: float) -> TaskRecord | None:
        def work(connection: Connection) -> TaskRecord | None:
            now = self._database.clock()
            stored = self._get(connection, id)
            if stored is None or stored.is_terminal or stored.lease_ms > now:
                return None
            claimed = replace(stored, stamp=stored.stamp + 1, worker=worker, lease_ms=now + int(seconds * 1000))
            connection.execute(
                "UPDATE tasks SET stamp = ?, worker = ?, lease = ? WHERE id = ?",
                (claimed.stamp, claimed.worker, claimed.lease_ms, id),
            )
            return claimed

        return await self._database.write(work, flush=True)

    async def renew(self, id: str, worker: str, *, seconds: float) -> bool:
        return await self._lease(id, worker, worker, seconds)

    async def release(self, id: str, worker: str) -> bool:
        return await self._lease(id, worker, "", None)

    async def _lease(self, id: str, worker: str, heir: str, seconds: float | None) -> bool:
        def work(connection: Connection) -> bool:
            now = self._database.clock()
            stored = self._get(connection, id)
            if stored is None or stored.is_terminal or not worker or stored.worker != worker:
                return False
            until = 0 if seconds is None else now + int(seconds * 1000)
            connection.execute("UPDATE tasks SET worker = ?, lease = ? WHERE id = ?", (heir, until, id))
            return True

        return await self._database.write(work)

    async def delete(self, id: str) -> bool:
        def work(connection: Connection) -> bool:
            row = connection.execute("DELETE FROM tasks WHERE id = ? RETURNING expires", (id,)).fetchone()
            return row is not None and row[0] > self._database.clock()

        return await self._database.write(work)

    async def list(self, owner: str, *, cursor: str | None = None, limit: int = 100) -> TasksPage:
        created, id = read_cursor(cursor)

        def work(connection: Connection) -> list[TaskRecord]:
            rows = connection.execute(
                f"{_TASK} WHERE owner = ? AND (created, id) > (?, ?) AND expires > ? ORDER BY created, id LIMIT ?",
                (owner, created, id, self._database.clock(), limit + 1),
            )
            return read_tasks(rows)

        return tasks_page(await self._database.read(work), limit)

    @staticmethod
    def _count(connection: Connection, owner: str | None, now: int) -> int:
        if owner is None:
            return connection.execute("SELECT count(*) FROM tasks WHERE expires > ?", (now,)).fetchone()[0]
        question = "SELECT count(*) FROM tasks WHERE owner = ? AND expires > ?"
        return connection.execute(question, (owner, now)).fetchone()[0]

    async def count(self, owner: str | None = None) -> int:
        return await self._database.read(lambda connection: self._count(connection, owner, self._database.clock()))

    async def due(self, *, limit: int = 100) -> list[TaskRecord]:
        def work(connection: Connection) -> list[TaskRecord]:
            now = self._database.clock()
            rows = connection.execute(
                f"{_TASK} WHERE status = 'working' AND lease <= ? AND expires > ? ORDER BY lease LIMIT ?",
                (now, now, limit),
            )
            return read_tasks(rows)

        return await self._database.read(work)

    async def sweep(self, *, limit: int = 1000) -> list[str]:
        def work(connection: Connection) -> list[str]:
            rows = connection.execute(
                "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE expires <= ? LIMIT ?) RETURNING id",
                (self._database.clock(), limit),
            )
            return [id for (id,) in rows.fetchall()]

        return await self._database.write(work)


@final
class _Bus(StoreBus):
    def __init__(self, database: _Database) -> None:
        super().__init__()
        self._database = database
        self._looking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._starting = asyncio.Lock()
        self._seen = 0
        self._generation = 0
        """The file that `_seen` counts in."""

    def insert(self, connection: Connection, topic: str, data: bytes) -> None:
        connection.execute(
            "INSERT INTO messages (topic, sender, data, at) VALUES (?, ?, ?, ?)",
            (topic, self.name, data, self._database.clock()),
        )

    async def _send(self, topic: str, data: bytes) -> None:
        await self._database.write(lambda connection: self.insert(connection, topic, bytes(data)))
        self.look()

    def look(self) -> None:
        """Read new messages at once: this process has written some."""
        self._news.set()

    async def _open_topic(self, topic: str) -> None:
        async with self._starting:
            if self._looking is None or self._looking.done():
                self._seen = await self._database.read(_newest)
                self._generation = self._database.reader.generation
                self._looking = asyncio.create_task(self._watch(), name="trimaran store bus")

    def _close_topic(self, topic: str) -> None:
        if not len(self.board) and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _watch(self) -> None:
        pause = _LOOK
        while True:
            try:
                rows = await self._database.read(self._fetch)
                pause = _LOOK
            except StoreError as error:
                pause = max(_LOOK, min(2.0, error.retry_after))
                rows = []
            if self._generation != self._database.reader.generation:
                self._generation = self._database.reader.generation
                self._seen = 0  # another file counts from 1
                self.board.gap("the file of the store was replaced")
                continue
            if rows and rows[0][0] > self._seen + 1:
                self.board.gap("messages were removed before this process had read them")
            for id, topic, sender, data in rows:
                self._seen = id
                if not (isinstance(topic, str) and isinstance(sender, str) and isinstance(data, bytes)):
                    self.board.drop("not a message of a store")
                elif topic in self.board:
                    self.board.deliver(BusMessage(topic, data, sender))
            if len(rows) < 500:
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()

    def _fetch(self, connection: Connection) -> list[Any]:
        return connection.execute(
            "SELECT id, topic, sender, data FROM messages WHERE id > ? ORDER BY id LIMIT 500", (self._seen,)
        ).fetchall()

    async def close(self) -> None:
        await super().close()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
            self._looking = None


def _newest(connection: Connection) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").fetchone()
    return row[0] if row else 0


@final
class SqliteStore(DatabaseStore[_Database]):
    """A store in a file, for the processes of one machine.

    Args:
        path: The file. If absent it is created, readable for this user alone. Its directory must exist.
        timeout: Seconds to wait for another process that writes.
        max_events: Events kept of each stream; the oldest go first.
        max_event_bytes: Bytes kept of each stream; the oldest events go first, the newest always stays.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: float = OPERATION_TIMEOUT,
        max_events: int = MAX_EVENTS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        database = _Database(Path(path), timeout, clock)
        self.bus: Final = _Bus(database)
        super().__init__(database, self.bus)
        self.sessions: Final = _Sessions(database)
        self.events: Final = _Events(database, self.bus, max_events, max_event_bytes)
        self.tasks: Final = _Tasks(database)
