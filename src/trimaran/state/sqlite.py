"""The store of one machine: a SQLite file, shared by the processes that open it.

The database is spoken to in two threads of its own, one that reads and one that writes, so the loop never waits for a disk.
Its log is a WAL: readers do not wait for the one writer, and what is written outlives a kill. Tasks are also flushed to the disk before they count as
written; sessions, events and messages, which do not matter after the machine has gone down, are not.

The bus is a table that each process looks at fifty times a second while somebody listens. That is right for the handful of
workers one machine has; between machines, use Redis.

A file of another program, or of another version of this schema, is refused and not touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Self, TypeVar, final

import msgspec
from msgspec.structs import replace

from trimaran.errors import ConfigError, Error
from trimaran.executor import DaemonExecutor

from .condition import Condition
from .contracts import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_QUEUED,
    PATIENCE,
    SCHEMA,
    TERMINAL,
    Event,
    EventsPage,
    EventWrite,
    Health,
    Message,
    SessionRecord,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TaskRecord,
    TasksPage,
    read_cursor,
)
from .memory import (
    Mailbox,
    Router,
    Switchboard,
    by_stream,
    cut_page,
    is_closed,
    logger,
    now_ms,
    page_of,
    read_record,
    taken,
    too_many,
    topic_of,
    wait_for_news,
)

__all__ = ["SqliteStore"]

T = TypeVar("T")
Connection = sqlite3.Connection

_APPLICATION: Final = 0x54524D4E  # "TRMN", in the header of the file
# Seconds between two looks at the table of messages: as quick as anyone notices, and under 1% of a core.
_LOOK: Final = 0.02
# Operations that may wait for the thread; beyond it the disk is too slow for what is asked, and waiting makes it worse.
_MOST_WAITING: Final = 5000
# How long and how many messages are kept: a process that did not look for this long hears of a gap.
_MESSAGES_MS: Final = 60_000
_MOST_MESSAGES: Final = 20_000
# The ids of a hundred thousand tasks: a new one goes to any page of their index. Used as far as there is something to hold.
_CACHE_KB: Final = 16 * 1024
# Writes between two removals of what is past its time.
_PURGE_EVERY: Final = 64

_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_HOPELESS: Final = _DAMAGED | {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
# What SQLite also says where a disk is full: the files beside the database cannot be made, or not be made longer.
_ROOM_MAY_LACK: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
# Bytes below which a disk is full: those files grow by 32 KiB.
_ROOM: Final = 64 * 1024
# What a check waits for a write. Half a second is what a readiness probe has for all of it.
_CHECK_SECONDS: Final = 0.3
_LONGEST: Final = 1_000_000_000  # SQLite's own limit for one value

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

_MOST_STREAMS: Final = 10_000  # of which is known how much was added to them

_pack: Final = msgspec.msgpack.Encoder().encode
_session: Final = msgspec.msgpack.Decoder(SessionRecord)
_task: Final = msgspec.msgpack.Decoder(TaskRecord)


@final
class _Lane:
    """A thread, and its connection to the file. All but `run` and `end` happen in the thread."""

    def __init__(self, path: Path, patience: float, name: str, meaning: Callable[[sqlite3.Error], Error]) -> None:
        self._path = path
        self._patience = patience
        self._name = name
        self._meaning = meaning
        self._pool: DaemonExecutor | None = None
        self._connection: Connection | None = None
        self._identity: object = None
        self._looked = 0.0
        self.generation = 0
        """How many files this lane has had: another one has none of what was in the last."""
        self.flushes: bool | None = None
        """Whether its writes are flushed to the disk, as last set."""
        self.writes = 0

    async def run(self, work: Callable[[Connection], T]) -> T:
        if self._pool is None:
            self._pool = DaemonExecutor(1, self._name)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._attempt, work)

    def _attempt(self, work: Callable[[Connection], T]) -> T:
        try:
            return work(self._open())
        except sqlite3.Error as error:
            # Begin anew next time: somebody may have put a good file there by then.
            if _code(error) in _HOPELESS | {sqlite3.SQLITE_IOERR}:
                self._close()
            # Before the next one has its turn: what waited behind this must not wait as long again.
            raise self._meaning(error) from None

    def _open(self) -> Connection:
        if self._connection is not None and self._is_elsewhere():
            logger.warning("%s was removed or replaced: what was in it is lost, and it begins anew", self._path)
            self._close()
        if self._connection is None:
            with contextlib.suppress(FileExistsError, OSError):  # SQLite says it better
                # Results of tools are in it: for this user's eyes only. The files beside it get the same mode.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            connection = sqlite3.connect(
                self._path, timeout=self._patience, isolation_level=None, check_same_thread=False, cached_statements=64
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

    def _is_elsewhere(self) -> bool:
        """Is there another file by now where ours was, or none? Asked once a second."""
        now = time.monotonic()
        if now - self._looked < 1.0:
            return False
        self._looked = now
        return _identify(self._path) != self._identity

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            with contextlib.suppress(sqlite3.Error, TimeoutError):
                async with asyncio.timeout(self._patience + 1):
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
class _Database:
    """The file, its threads, and what its failures mean."""

    def __init__(self, path: Path, patience: float, clock: Callable[[], int]) -> None:
        self.path = path
        self.clock = clock
        self._patience = patience
        self._condition = Condition(str(path))
        # Whoever reads need not wait for a write that waits for a lock.
        self.reader = _Lane(path, patience, "trimaran store reads", self._meaning)
        self._writer = _Lane(path, patience, "trimaran store writes", self._meaning)
        self._waiting = 0
        self._is_hopeless = False  # waiting alone will not mend the last failure
        self._closed = False

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self.reader, work)

    async def write(self, work: Callable[[Connection], T], *, flush: bool = False) -> T:
        """Do it in a transaction of its own, which no other writer can come between."""
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
        if self._closed:
            raise is_closed()
        writes = lane is self._writer
        condition = self._condition
        condition.check(writes=writes)
        if self._waiting >= _MOST_WAITING:
            raise StoreUnavailable(f"{self.path} is too slow: {self._waiting} operations wait for it")

        def attempt(connection: Connection) -> T:
            condition.check(writes=writes)  # it may have failed while this waited for its turn
            return work(connection)

        self._waiting += 1
        try:
            # Longer than SQLite itself waits for a lock, so that its own words are heard. What has not begun by then never does.
            async with asyncio.timeout(self._patience + 1):
                result = await lane.run(attempt)
        except TimeoutError:
            self._is_hopeless = False
            raise condition.failed(f"{self.path} did not answer within {self._patience + 1:g} s") from None
        except ConfigError as error:  # what was fine at the start is another's file by now
            self._is_hopeless = True
            raise condition.failed(str(error)) from None
        except RuntimeError as error:  # no thread can be started
            raise condition.failed(f"{self.path} cannot be used: {error}") from None
        finally:
            self._waiting -= 1
        condition.succeeded(writes=writes)
        return result

    def _meaning(self, error: sqlite3.Error) -> Error:
        """What a failure is to whoever asked. Called in either thread."""
        code, path = _code(error), self.path
        self._is_hopeless = False
        if code == sqlite3.SQLITE_FULL or (code in _ROOM_MAY_LACK and _has_no_room(path)):
            return self._condition.full(f"{path} cannot grow, its disk is full: make room")
        if code == sqlite3.SQLITE_TOOBIG:  # for this one: no reason to leave the others alone
            return StoreFull(f"{path} has no room for something as long as this ({error})", limit=_LONGEST)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            text = f"{path} has been locked by another process for {self._patience:g} s: end what holds it, if that goes on"
            return self._condition.failed(text, only_writes=True)
        self._is_hopeless = code in _HOPELESS
        if code in _DAMAGED:
            text = f"{path} is damaged, or not a SQLite file ({error}): stop its servers and move it away"
        elif code in _HOPELESS:
            text = f"{path} cannot be written ({error}): give this user the right to write it and its directory"
        else:
            text = f"{path} failed ({error}): look at its disk, and the limits of this process"
        return self._condition.failed(text, only_writes=code == sqlite3.SQLITE_READONLY)

    async def start(self) -> None:
        self._condition.is_starting = True
        try:
            await self.write(lambda connection: None)
        except StoreUnavailable as error:
            if self._is_hopeless:
                raise ConfigError(str(error)) from None
            raise
        finally:
            self._condition.is_starting = False

    async def check(self) -> Health:
        began = time.monotonic()
        is_read = False
        try:
            await self.read(lambda connection: connection.execute("SELECT count(*) FROM sqlite_master").fetchone())
            is_read = True
            async with asyncio.timeout(_CHECK_SECONDS):
                await self.write(self._leave_mark)
        except Error as error:
            return Health(False, time.monotonic() - began, str(error), is_read)
        except TimeoutError:
            return Health(
                False, time.monotonic() - began, f"{self.path} takes no write within {_CHECK_SECONDS:g} s", is_read
            )
        return Health(True, time.monotonic() - began)

    def _leave_mark(self, connection: Connection) -> None:
        """Write something that nobody reads. Nothing less shows that there is room."""
        connection.execute(
            "INSERT INTO streams VALUES ('~check', '', 0, 0, ?) ON CONFLICT DO UPDATE SET expires = excluded.expires",
            (self.clock() + 60_000,),
        )

    def refuse(self) -> None:
        """From now on nothing is begun."""
        self._closed = True

    async def close(self) -> None:
        await self.reader.end()
        await self._writer.end()


def _has_no_room(path: Path) -> bool:
    """Is the disk of the file full? SQLite has one word for every failure of a disk, unless it grows the file itself."""
    try:
        status = os.statvfs(path.parent)
    except (OSError, AttributeError):  # gone; or Windows
        return False
    return status.f_bavail * status.f_frsize < _ROOM or (status.f_files > 0 and status.f_favail == 0)


def _prepare(connection: Connection, path: Path) -> None:
    """Make the tables, or see that they are ours."""
    # Looked at as of one moment: another process may be making it just now.
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
    """Is it a store of this version? False if it is empty, ConfigError if it is anything else."""
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
        raise ConfigError(f"{path} is a database of another program: give a file that is new, or a store's")
    return False


def _use_wal(connection: Connection) -> None:
    # The change itself does not wait for locks as everything else does: two processes that start together may collide.
    for attempt in range(100):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or attempt == 99:
                raise
            time.sleep(0.02)


def _purge(connection: Connection, now: int) -> None:
    """Remove some of what is past its time. Tasks are swept by their runner, which has to know of it."""
    connection.execute(
        "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE expires <= ? LIMIT 256)", (now,)
    )
    over = connection.execute("SELECT session, stream FROM streams WHERE expires <= ? LIMIT 256", (now,)).fetchall()
    connection.executemany("DELETE FROM events WHERE session = ? AND stream = ?", over)
    connection.executemany("DELETE FROM streams WHERE session = ? AND stream = ?", over)
    (newest,) = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    # By id first, which is the key; and never the newest, which tells readers where they are.
    connection.execute(
        "DELETE FROM messages WHERE id < ? AND (id <= ? OR at <= ?)",
        (newest, newest - _MOST_MESSAGES, now - _MESSAGES_MS),
    )


@final
class _Sessions:
    def __init__(self, database: _Database) -> None:
        self._database = database

    async def create(self, record: SessionRecord, *, ttl: float, most: int | None = None) -> SessionRecord:
        kept = replace(record, stamp=1)

        def work(connection: Connection) -> None:
            now = self._database.clock()
            if most is not None:
                (held,) = connection.execute("SELECT count(*) FROM sessions WHERE expires > ?", (now,)).fetchone()
                if held >= most:
                    raise too_many("sessions", most)
            connection.execute("DELETE FROM sessions WHERE id = ? AND expires <= ?", (record.id, now))
            added = connection.execute(
                "INSERT INTO sessions VALUES (?, 1, ?, ?) ON CONFLICT DO NOTHING",
                (record.id, now + int(ttl * 1000), _pack(kept)),
            )
            if added.rowcount == 0:
                raise taken("session")

        await self._database.write(work)
        return kept

    async def get(self, id: str) -> SessionRecord | None:
        def work(connection: Connection) -> Any:
            return connection.execute(
                "SELECT data FROM sessions WHERE id = ? AND expires > ?", (id, self._database.clock())
            ).fetchone()

        found = await self._database.read(work)
        return None if found is None else read_record(_session, found[0])

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
        kept = replace(record, stamp=record.stamp + 1)

        def work(connection: Connection) -> bool:
            now = self._database.clock()
            changed = connection.execute(
                "UPDATE sessions SET data = ?, stamp = ?, expires = coalesce(?, expires) WHERE id = ? AND stamp = ? AND expires > ?",
                (_pack(kept), kept.stamp, None if ttl is None else now + int(ttl * 1000), record.id, record.stamp, now),
            )
            return changed.rowcount > 0

        return kept if await self._database.write(work) else None

    async def delete(self, id: str) -> bool:
        def work(connection: Connection) -> bool:
            found = connection.execute("DELETE FROM sessions WHERE id = ? RETURNING expires", (id,)).fetchone()
            return found is not None and found[0] > self._database.clock()

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
        """Bytes added to each stream since its size was last looked at; touched by the writing thread alone."""

    def _open(self, connection: Connection, session: str, stream: str, ttl: float) -> int:
        """The last number of the stream, made if it is new."""
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
            self._bus.insert(connection, topic_of(session, stream), b"")
            return number

        number = await self._database.write(work)
        self._bus.look()
        return number

    def _trim(self, connection: Connection, key: tuple[str, str], last: int, added: int) -> None:
        """Drop the oldest events of a stream beyond its bytes. Looked at whenever it has grown by an eighth of them."""
        grown = self._grown.pop(key, 0) + added
        if grown * 8 <= self._max_bytes:
            if len(self._grown) >= _MOST_STREAMS:
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
            self._bus.insert(connection, topic_of(session, stream), b"")

        await self._database.write(work)
        self._bus.look()

    async def write(self, writes: Sequence[EventWrite]) -> None:
        def work(connection: Connection) -> None:
            for (session, stream), those in by_stream(writes).items():
                key = (session, stream)
                last = self._open(connection, session, stream, those[-1].ttl)
                events: list[tuple[str, str, int, bytes]] = []
                for write in those:
                    number = write.number or last + 1
                    if write.data is not None and number > last:
                        last = number
                        events.append((session, stream, number, bytes(write.data)))
                is_over = any(write.data is None for write in those)
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
                self._bus.insert(connection, topic_of(session, stream), b"")

        if writes:
            await self._database.write(work)
            self._bus.look()

    async def read(self, session: str, stream: str, after: int, *, limit: int = 100) -> EventsPage:
        def work(connection: Connection) -> EventsPage:
            # One statement, and so one moment: the events and what the stream says of itself agree.
            rows = connection.execute(
                "SELECT s.last, s.ended, e.number, e.data FROM streams s LEFT JOIN events e"
                " ON e.session = s.session AND e.stream = s.stream AND e.number > ?"
                " WHERE s.session = ? AND s.stream = ? AND s.expires > ? ORDER BY e.number LIMIT ?",
                (after, session, stream, self._database.clock(), max(1, limit)),
            ).fetchall()
            if not rows:
                return page_of([], 0, False, after)
            events = [Event(number, data) for _, _, number, data in rows if number is not None]
            return page_of(events, rows[0][0], bool(rows[0][1]), after)

        return await self._database.read(work)

    async def wait(self, session: str, stream: str, after: int, *, timeout: float) -> bool:
        async def has_news() -> bool:
            page = await self.read(session, stream, after, limit=1)
            return bool(page.events) or page.is_ended or page.last > after

        return await wait_for_news(self._bus.board, topic_of(session, stream), has_news, timeout)

    async def delete(self, session: str) -> None:
        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM events WHERE session = ?", (session,))
            connection.execute("DELETE FROM streams WHERE session = ?", (session,))

        await self._database.write(work)


_TASK: Final = "SELECT data, stamp, worker, lease FROM tasks"


def _record(row: Any) -> TaskRecord | None:
    record = read_record(_task, row[0])
    return None if record is None else replace(record, stamp=row[1], worker=row[2], lease_ms=row[3])


def _records(rows: Any) -> list[TaskRecord]:
    return [record for record in map(_record, rows) if record is not None]


@final
class _Tasks:
    def __init__(self, database: _Database) -> None:
        self._database = database

    async def create(self, record: TaskRecord, *, most: int | None = None) -> TaskRecord:
        kept = replace(record, stamp=1, worker="", lease_ms=0)

        def work(connection: Connection) -> None:
            now = self._database.clock()
            if most is not None and self._count(connection, record.owner, now) >= most:
                raise too_many("tasks of this caller", most)
            connection.execute("DELETE FROM tasks WHERE id = ? AND expires <= ?", (record.id, now))
            added = connection.execute(
                "INSERT INTO tasks VALUES (?, ?, ?, ?, 1, ?, '', 0, ?) ON CONFLICT DO NOTHING",
                (record.id, record.owner, record.created_ms, record.expires_ms, record.status, _pack(kept)),
            )
            if added.rowcount == 0:
                raise taken("task")

        await self._database.write(work, flush=True)
        return kept

    def _get(self, connection: Connection, id: str) -> TaskRecord | None:
        row = connection.execute(f"{_TASK} WHERE id = ? AND expires > ?", (id, self._database.clock())).fetchone()
        return None if row is None else _record(row)

    async def get(self, id: str) -> TaskRecord | None:
        return await self._database.read(lambda connection: self._get(connection, id))

    async def update(self, record: TaskRecord) -> TaskRecord | None:
        def work(connection: Connection) -> TaskRecord | None:
            held = self._get(connection, record.id)
            if held is None or held.is_terminal or held.stamp != record.stamp:
                return None
            is_over = record.status in TERMINAL
            kept = replace(
                record,
                owner=held.owner,
                created_ms=held.created_ms,
                stamp=held.stamp + 1,
                worker="" if is_over else held.worker,
                lease_ms=0 if is_over else held.lease_ms,
            )
            connection.execute(
                "UPDATE tasks SET data = ?, stamp = ?, status = ?, expires = ?, worker = ?, lease = ? WHERE id = ?",
                (_pack(kept), kept.stamp, kept.status, kept.expires_ms, kept.worker, kept.lease_ms, kept.id),
            )
            return kept

        return await self._database.write(work, flush=True)

    async def claim(self, id: str, worker: str, *, seconds: float) -> TaskRecord | None:
        def work(connection: Connection) -> TaskRecord | None:
            now = self._database.clock()
            held = self._get(connection, id)
            if held is None or held.is_terminal or held.lease_ms > now:
                return None
            kept = replace(held, stamp=held.stamp + 1, worker=worker, lease_ms=now + int(seconds * 1000))
            connection.execute(
                "UPDATE tasks SET stamp = ?, worker = ?, lease = ? WHERE id = ?",
                (kept.stamp, kept.worker, kept.lease_ms, id),
            )
            return kept

        return await self._database.write(work, flush=True)

    async def renew(self, id: str, worker: str, *, seconds: float) -> bool:
        return await self._lease(id, worker, worker, seconds)

    async def release(self, id: str, worker: str) -> bool:
        return await self._lease(id, worker, "", None)

    async def _lease(self, id: str, worker: str, heir: str, seconds: float | None) -> bool:
        def work(connection: Connection) -> bool:
            now = self._database.clock()
            held = self._get(connection, id)
            if held is None or held.is_terminal or not worker or held.worker != worker:
                return False
            until = 0 if seconds is None else now + int(seconds * 1000)
            connection.execute("UPDATE tasks SET worker = ?, lease = ? WHERE id = ?", (heir, until, id))
            return True

        return await self._database.write(work)

    async def delete(self, id: str) -> bool:
        def work(connection: Connection) -> bool:
            found = connection.execute("DELETE FROM tasks WHERE id = ? RETURNING expires", (id,)).fetchone()
            return found is not None and found[0] > self._database.clock()

        return await self._database.write(work)

    async def list(self, owner: str, *, cursor: str | None = None, limit: int = 100) -> TasksPage:
        created, id = read_cursor(cursor)

        def work(connection: Connection) -> list[TaskRecord]:
            rows = connection.execute(
                f"{_TASK} WHERE owner = ? AND (created, id) > (?, ?) AND expires > ? ORDER BY created, id LIMIT ?",
                (owner, created, id, self._database.clock(), limit + 1),
            )
            return _records(rows)

        return cut_page(await self._database.read(work), limit)

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
            return _records(rows)

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
class _Bus:
    def __init__(self, database: _Database) -> None:
        self._database = database
        self.name = secrets.token_hex(8)
        self.board = Switchboard(self._opened, self._left)
        self.router = Router(self.name, self.board, self._send)
        self._looking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._starting = asyncio.Lock()
        self._seen = 0
        self._generation = 0
        """The file in which that was seen."""

    @property
    def poisoned(self) -> int:
        return self.board.poisoned

    @property
    def overflowed(self) -> int:
        return self.board.overflowed

    def insert(self, connection: Connection, topic: str, data: bytes) -> None:
        connection.execute(
            "INSERT INTO messages (topic, sender, data, at) VALUES (?, ?, ?, ?)",
            (topic, self.name, data, self._database.clock()),
        )

    async def _send(self, topic: str, data: bytes) -> None:
        await self._database.write(lambda connection: self.insert(connection, topic, bytes(data)))
        self.look()

    async def publish(self, topic: str, data: bytes) -> None:
        await self._send(topic, data)

    def subscribe(self, *topics: str, size: int = MAX_QUEUED) -> Mailbox:
        return Mailbox(self.board, topics, size)

    def answer(self, worker: str, respond: Callable[[bytes], Awaitable[bytes]]) -> AbstractAsyncContextManager[None]:
        return self.router.answer(worker, respond)

    async def request(self, worker: str, data: bytes, *, timeout: float) -> bytes:
        return await self.router.request(worker, data, timeout=timeout)

    def look(self) -> None:
        """There is news, from this process: look at once."""
        self._news.set()

    async def _opened(self, topic: str) -> None:
        async with self._starting:
            if self._looking is None or self._looking.done():
                self._seen = await self._database.read(_newest)
                self._generation = self._database.reader.generation
                self._looking = asyncio.create_task(self._watch(), name="trimaran store bus")

    def _left(self, topic: str) -> None:
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
                self._seen = 0  # another file counts from the beginning
                self.board.gap("the file of the store was replaced")
                continue
            if rows and rows[0][0] > self._seen + 1:
                self.board.gap("messages were removed before this process had read them")
            for id, topic, sender, data in rows:
                self._seen = id
                if not (isinstance(topic, str) and isinstance(sender, str) and isinstance(data, bytes)):
                    self.board.drop("not a message of a store")
                elif topic in self.board:
                    self.board.deliver(Message(topic, data, sender))
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
        self.board.gap("the store was closed")
        await self.router.close()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
            self._looking = None


def _newest(connection: Connection) -> int:
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").fetchone()
    return found[0] if found else 0


@final
class SqliteStore:
    """A store in a file, for the processes of one machine.

    Args:
        path: The file; made, for this user alone, if it is not there. Its directory must be.
        patience: Seconds to wait for another process that writes.
        max_events: Of each stream; beyond it, the oldest go.
        max_event_bytes: Of each stream; beyond it, the oldest go, but not the newest.
    """

    is_shared = True
    is_durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        patience: float = PATIENCE,
        max_events: int = MAX_EVENTS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._database = _Database(Path(path), patience, clock)
        self.bus: Final = _Bus(self._database)
        self.sessions: Final = _Sessions(self._database)
        self.events: Final = _Events(self._database, self.bus, max_events, max_event_bytes)
        self.tasks: Final = _Tasks(self._database)

    async def start(self) -> None:
        await self._database.start()

    async def close(self) -> None:
        self._database.refuse()
        await self.bus.close()
        await self._database.close()

    async def check(self) -> Health:
        return await self._database.check()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._database.path)!r})"
