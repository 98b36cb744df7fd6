"""The store of one process: dictionaries, gone with it.

Also what every bus is made of: the `Switchboard`, which knows who in this process listens to what, and the `Router`, which
makes questions and answers out of messages. A database carries messages from one switchboard to the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import secrets
import time
from bisect import bisect_right, insort
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, final

import msgspec
from msgspec.structs import replace

from trimaran.errors import ConfigError, Error, TimedOut

from .budget import ByteBudget
from .contracts import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_QUEUED,
    MAX_QUEUED_BYTES,
    TERMINAL,
    Event,
    EventsPage,
    EventWrite,
    Gap,
    Health,
    Message,
    NoAnswer,
    SessionRecord,
    StoreClosed,
    StoreConflict,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TaskRecord,
    TasksPage,
    read_cursor,
    write_cursor,
)

__all__ = ["MemoryStore", "Router", "Switchboard"]

logger: Final = logging.getLogger("trimaran.state")

T = TypeVar("T")

# Questions one worker answers at the same time; more are dropped, and their askers run into their timeouts.
_MOST_ANSWERING: Final = 1000
_MOST_ANSWERING_BYTES: Final = (
    64 * 1024 * 1024
)  # what was POSTed to one worker may be passed on to another as a question
# Bytes of all events, and again of all tasks. A process that keeps more of either needs a database.
_MOST_HELD_BYTES: Final = 256 * 1024 * 1024
# Expired entries looked at with each write: more than a write adds, so they never pile up.
_PURGED: Final = 4


def now_ms() -> int:
    return int(time.time() * 1000)


def read_record(decoder: msgspec.msgpack.Decoder[T], data: Any) -> T | None:
    """A record as it was stored. One that cannot be read is as if it were not there: whoever needs it starts anew."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, TypeError) as error:
        logger.warning("a record in the store cannot be read, and is taken for gone: %s", type(error).__name__)
        return None


def is_closed() -> StoreClosed:
    return StoreClosed("the store is closed: it was used after its server, or its `async with`, had ended")


# --- the switchboard -------------------------------------------------------------------------------------------------


@final
class Tap:
    """One listener. What it is told happens on the loop, at once, and must not wait."""

    __slots__ = ("gap", "receive", "topics")

    def __init__(self, topics: Iterable[str], receive: Callable[[Message], None], gap: Callable[[str], None]) -> None:
        self.topics = tuple(dict.fromkeys(topics))
        self.receive = receive
        self.gap = gap


@final
class Switchboard:
    """Who in this process listens to which topic.

    `opened` is awaited for each topic of a new listener: when it returns, messages of that topic reach this process.
    `closed` is called when the last listener of a topic has left.
    """

    def __init__(self, opened: Callable[[str], Awaitable[None]], closed: Callable[[str], None]) -> None:
        self._opened = opened
        self._closed = closed
        self._taps: dict[str, set[Tap]] = {}
        self.overflowed = 0
        self.poisoned = 0

    def __len__(self) -> int:
        return len(self._taps)

    def __contains__(self, topic: object) -> bool:
        return topic in self._taps

    def topics(self) -> list[str]:
        return list(self._taps)

    async def add(self, tap: Tap) -> None:
        # First here, then in the database: what comes as soon as that hears of us has somewhere to go.
        for topic in tap.topics:
            self._taps.setdefault(topic, set()).add(tap)
        try:
            for topic in tap.topics:
                await self._opened(topic)
        except BaseException:
            self.remove(tap)
            raise

    def remove(self, tap: Tap) -> None:
        for topic in tap.topics:
            taps = self._taps.get(topic)
            if taps is None or tap not in taps:
                continue
            taps.discard(tap)
            if not taps:
                del self._taps[topic]
                self._closed(topic)

    def deliver(self, message: Message) -> int:
        taps = tuple(self._taps.get(message.topic, ()))
        for tap in taps:
            tap.receive(message)
        return len(taps)

    def drop(self, why: str) -> None:
        """Count a message that could not be read. Never quoted: it may be anything, and anyone's."""
        self.poisoned += 1
        if self.poisoned & (self.poisoned - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...: a flood must not flood the log
            logger.warning("a message on the bus was dropped: %s (%d so far)", why, self.poisoned)

    def gap(self, reason: str) -> None:
        for tap in {tap for taps in self._taps.values() for tap in taps}:
            tap.gap(reason)


@final
class Mailbox:
    """A Subscription: a bounded queue between the switchboard and one reader."""

    def __init__(self, board: Switchboard, topics: tuple[str, ...], size: int) -> None:
        if not topics or size < 1:
            raise ConfigError("a subscription needs a topic and room for a message: subscribe('topic', size=100)")
        self._board = board
        self._size = size
        self._queue: deque[Message | Gap] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        self._tap = Tap(topics, self._receive, self._gap)

    def _receive(self, message: Message) -> None:
        is_large = self._bytes + len(message.data) > MAX_QUEUED_BYTES and bool(self._queue)
        if len(self._queue) >= self._size or is_large:
            # All at once, not one by one: a reader this slow has to look again anyway, and then it is up to date.
            self._board.overflowed += len(self._queue)
            self._queue.clear()
            self._bytes = 0
            much = f"{MAX_QUEUED_BYTES >> 20} MiB" if is_large else f"{self._size} messages"
            self._queue.append(Gap(f"more than {much} were waiting to be read"))
        self._queue.append(message)
        self._bytes += len(message.data)
        self._wake()

    def _gap(self, reason: str) -> None:
        if not self._queue or not isinstance(self._queue[-1], Gap):
            self._queue.append(Gap(reason))
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __aenter__(self) -> Self:
        await self._board.add(self._tap)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._board.remove(self._tap)
        self._over = True
        self._wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message | Gap:
        while not self._queue:
            if self._over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        news = self._queue.popleft()
        if isinstance(news, Message):
            self._bytes -= len(news.data)
        return news


async def wait_for_news(
    board: Switchboard, topic: str, has_news: Callable[[], Awaitable[bool]], timeout: float
) -> bool:
    """Wait until `has_news`, asked at first and again after each message on the topic; False if time ran out."""
    news = asyncio.Event()
    tap = Tap((topic,), lambda _: news.set(), lambda _: news.set())
    try:
        async with asyncio.timeout(timeout):
            await board.add(tap)
            while True:
                news.clear()
                # Asked after listening has begun: what is added from now on sets `news`.
                try:
                    if await has_news():
                        return True
                except StoreClosed:
                    raise
                except StoreError as error:
                    await asyncio.sleep(error.retry_after)
                else:
                    await news.wait()
    except TimeoutError:
        return False
    finally:
        board.remove(tap)


# --- questions and answers -------------------------------------------------------------------------------------------


class _Question(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="q"):
    id: str
    reply_to: str
    data: bytes


class _Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="a"):
    id: str
    data: bytes
    failure: str = ""


_encoder: Final = msgspec.msgpack.Encoder()
_questions: Final = msgspec.msgpack.Decoder(_Question)
_answers: Final = msgspec.msgpack.Decoder(_Answer)


@final
class Router:
    """Questions to workers, over a bus. `send` says how many heard it, where that is known."""

    def __init__(self, name: str, board: Switchboard, send: Callable[[str, bytes], Awaitable[int | None]]) -> None:
        self._board = board
        self._send = send
        self._reply_topic = f"answers/{name}"
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._answering_bytes = 0
        self._tap: Tap | None = None
        self._opening: asyncio.Lock = asyncio.Lock()

    async def request(self, worker: str, data: bytes, *, timeout: float) -> bytes:
        id = secrets.token_hex(8)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_seen)  # whoever waits for it may have left
        try:
            async with asyncio.timeout(timeout):
                await self._listen()
                self._waiting[id] = answer
                question = _encoder.encode(_Question(id, self._reply_topic, data))
                if await self._send(f"worker/{worker}", question) == 0:
                    raise NoAnswer(f"no worker {worker!r} is there: it has ended, or has another store")
                return await answer
        except TimeoutError:
            raise TimedOut(f"worker {worker!r} did not answer within {timeout:g} s") from None
        finally:
            self._waiting.pop(id, None)

    async def _listen(self) -> None:
        if self._tap is None:
            async with self._opening:
                if self._tap is None:
                    tap = Tap((self._reply_topic,), self._take_answer, self._lose_answers)
                    await self._board.add(tap)
                    self._tap = tap

    def _take_answer(self, message: Message) -> None:
        try:
            answer = _answers.decode(message.data)
        except msgspec.MsgspecError:
            self._board.drop("not an answer")
            return
        waiting = self._waiting.pop(answer.id, None)
        if waiting is None or waiting.done():
            return  # too late
        if answer.failure:
            waiting.set_exception(NoAnswer(f"the worker that was asked failed: {answer.failure}"))
        else:
            waiting.set_result(answer.data)

    def _lose_answers(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(StoreUnavailable(f"the answer may have been missed: {reason}"))

    @asynccontextmanager
    async def answer(self, worker: str, respond: Callable[[bytes], Awaitable[bytes]]) -> AsyncGenerator[None]:
        mine: set[asyncio.Task[None]] = set()

        def receive(message: Message) -> None:
            try:
                question = _questions.decode(message.data)
            except msgspec.MsgspecError:
                self._board.drop("not a question")
                return
            size = len(message.data)
            if len(self._answering) >= _MOST_ANSWERING or self._answering_bytes + size > _MOST_ANSWERING_BYTES:
                self._board.overflowed += 1
                return
            self._answering_bytes += size
            task = asyncio.ensure_future(self._respond(question, respond))
            task.add_done_callback(lambda _: self._answered(size))
            for tasks in (mine, self._answering):
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        tap = Tap((f"worker/{worker}",), receive, lambda _: None)
        await self._board.add(tap)
        try:
            yield
        finally:
            self._board.remove(tap)
            await _end(mine)

    def _answered(self, size: int) -> None:
        self._answering_bytes -= size

    async def _respond(self, question: _Question, respond: Callable[[bytes], Awaitable[bytes]]) -> None:
        try:
            answer = _Answer(question.id, await respond(question.data))
        except Error as error:
            answer = _Answer(question.id, b"", str(error) or type(error).__name__)
        except Exception:
            logger.exception("a question of another worker failed")
            answer = _Answer(question.id, b"", "internal error")
        with contextlib.suppress(StoreError):  # the asker runs into its timeout
            await self._send(question.reply_to, _encoder.encode(answer))

    async def close(self) -> None:
        if self._tap is not None:
            self._board.remove(self._tap)
            self._tap = None
        self._lose_answers("the store was closed")
        await _end(set(self._answering))


def _seen(answer: asyncio.Future[bytes]) -> None:
    if not answer.cancelled():
        answer.exception()


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    tasks = tasks - {asyncio.current_task()}  # pyright: ignore[reportAssignmentType]
    for task in tuple(tasks):
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


# --- things that end by themselves -----------------------------------------------------------------------------------


@final
class _Expiring(Generic[T]):
    """A dictionary whose entries end at a time, in milliseconds."""

    def __init__(self, clock: Callable[[], int], on_end: Callable[[str, T], None] | None = None) -> None:
        self._clock = clock
        self._on_end = on_end
        self._live: dict[str, tuple[T, int]] = {}
        self._ends: list[tuple[int, str]] = []

    def __len__(self) -> int:
        self.purge(len(self._live))
        return len(self._live)

    @property
    def size(self) -> int:
        """How many are held, those past their time included."""
        return len(self._live)

    def get(self, key: str) -> T | None:
        found = self._live.get(key)
        return None if found is None or found[1] <= self._clock() else found[0]

    def put(self, key: str, value: T, ends: int) -> None:
        held = self._live.get(key)
        self._live[key] = (value, ends)
        # An entry that was only prolonged is put back when its old end comes up.
        if held is None or ends < held[1]:
            heapq.heappush(self._ends, (ends, key))
        self.purge(_PURGED)

    def prolong(self, key: str, ends: int) -> bool:
        value = self.get(key)
        if value is None:
            return False
        self.put(key, value, ends)
        return True

    def end_of(self, key: str) -> int:
        return self._live[key][1]

    def pop(self, key: str) -> T | None:
        value = self.get(key)
        held = self._live.pop(key, None)
        if held is not None and self._on_end is not None:
            self._on_end(key, held[0])
        if len(self._ends) > 2 * len(self._live) + 64:  # most are of entries that went before their time
            self._ends = [(ends, key) for key, (_, ends) in self._live.items()]
            heapq.heapify(self._ends)
        return value

    def purge(self, most: int) -> list[str]:
        """Drop up to `most` entries past their time."""
        now = self._clock()
        gone: list[str] = []
        while self._ends and self._ends[0][0] <= now and len(gone) < most:
            ends, key = heapq.heappop(self._ends)
            held = self._live.get(key)
            if held is None:
                continue
            if held[1] <= now:
                self.pop(key)
                gone.append(key)
            elif held[1] > ends:
                heapq.heappush(self._ends, (held[1], key))
        return gone


# --- the four --------------------------------------------------------------------------------------------------------


@final
class _Ground:
    """What the four have in common: a clock, limits, and an end."""

    def __init__(self, max_records: int, max_events: int, max_event_bytes: int, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.max_events = max_events
        self.max_event_bytes = max_event_bytes
        self._max_records = max_records
        self.is_closed = False

    def after(self, seconds: float) -> int:
        return self.clock() + int(seconds * 1000)

    def require_open(self) -> None:
        if self.is_closed:
            raise is_closed()

    def require_room(self, held: int) -> None:
        if held >= self._max_records:
            raise StoreFull(
                f"the store in memory holds {held} records, its most: use a database, store='redis://...'",
                limit=self._max_records,
            )


@final
class _Sessions:
    def __init__(self, ground: _Ground) -> None:
        self._ground = ground
        self._live: _Expiring[SessionRecord] = _Expiring(ground.clock)

    async def create(self, record: SessionRecord, *, ttl: float, most: int | None = None) -> SessionRecord:
        self._ground.require_open()
        if self._live.get(record.id) is not None:
            raise taken("session")
        if most is not None and self._live.size >= most and len(self._live) >= most:
            raise too_many("sessions", most)
        self._ground.require_room(self._live.size)
        kept = replace(record, stamp=1)
        self._live.put(record.id, kept, self._ground.after(ttl))
        return kept

    async def get(self, id: str) -> SessionRecord | None:
        self._ground.require_open()
        return self._live.get(id)

    async def touch(self, id: str, *, ttl: float) -> bool:
        self._ground.require_open()
        return self._live.prolong(id, self._ground.after(ttl))

    async def put(self, record: SessionRecord, *, ttl: float | None = None) -> SessionRecord | None:
        self._ground.require_open()
        held = self._live.get(record.id)
        if held is None or held.stamp != record.stamp:
            return None
        kept = replace(record, stamp=record.stamp + 1)
        self._live.put(record.id, kept, self._live.end_of(record.id) if ttl is None else self._ground.after(ttl))
        return kept

    async def delete(self, id: str) -> bool:
        self._ground.require_open()
        return self._live.pop(id) is not None

    async def count(self) -> int:
        self._ground.require_open()
        return len(self._live)


@final
class _Log:
    __slots__ = ("__weakref__", "_max_bytes", "_size", "events", "held_bytes", "is_ended", "last")

    def __init__(self, size: int, max_bytes: int) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self.events: deque[Event] = deque()
        self.held_bytes = 0
        self.last = 0
        self.is_ended = False

    def append(self, number: int, data: bytes) -> None:
        self.last = number
        self.events.append(Event(number, bytes(data)))
        self.held_bytes += len(data)
        while len(self.events) > self._size or (self.held_bytes > self._max_bytes and len(self.events) > 1):
            self._drop()

    def halve(self) -> None:
        """Give up the older half of the bytes, so that all streams together fit."""
        most = self.held_bytes // 2
        while self.events and self.held_bytes > most:
            self._drop()

    def _drop(self) -> None:
        self.held_bytes -= len(self.events.popleft().data)


def page_of(events: list[Event], last: int, is_ended: bool, after: int) -> EventsPage:
    first = events[0].number if events else last + 1
    return EventsPage(events, last, first > after + 1 or after > last or after < 0, is_ended)


def topic_of(session: str, stream: str) -> str:
    return f"events/{session}/{stream}"


def by_stream(writes: Sequence[EventWrite]) -> dict[tuple[str, str], list[EventWrite]]:
    """The same, each stream's together, in their order."""
    found: dict[tuple[str, str], list[EventWrite]] = {}
    for write in writes:
        found.setdefault((write.session, write.stream), []).append(write)
    return found


@final
class _Events:
    def __init__(self, ground: _Ground, bus: _Bus) -> None:
        self._ground = ground
        self._bus = bus
        self._streams: dict[str, set[str]] = {}
        self._logs: _Expiring[_Log] = _Expiring(ground.clock, self._forget)
        self._budget = ByteBudget(_MOST_HELD_BYTES)

    def _forget(self, key: str, _log: _Log) -> None:
        session, _, stream = key.partition("\0")
        streams = self._streams.get(session)
        if streams is not None:
            streams.discard(stream)
            if not streams:
                del self._streams[session]

    def _open(self, session: str, stream: str, ttl: float) -> _Log:
        self._ground.require_open()
        key = f"{session}\0{stream}"
        log = self._logs.get(key)
        if log is None:
            self._logs.pop(key)
            self._ground.require_room(self._logs.size)
            log = _Log(self._ground.max_events, self._ground.max_event_bytes)
            self._budget.join(log)
            self._streams.setdefault(session, set()).add(stream)
        self._logs.put(key, log, self._ground.after(ttl))
        return log

    async def append(self, session: str, stream: str, data: bytes, *, ttl: float) -> int:
        log = self._open(session, stream, ttl)
        log.append(log.last + 1, data)
        self._budget.grew(len(data))
        self._bus.tell(topic_of(session, stream))
        return log.last

    async def end(self, session: str, stream: str, *, ttl: float) -> None:
        self._open(session, stream, ttl).is_ended = True
        self._bus.tell(topic_of(session, stream))

    async def write(self, writes: Sequence[EventWrite]) -> None:
        self._ground.require_open()
        names = {f"{write.session}\0{write.stream}" for write in writes}
        new = sum(self._logs.get(name) is None for name in names)
        if new:
            self._ground.require_room(self._logs.size + new - 1)  # before anything is written
        for write in writes:
            log = self._open(write.session, write.stream, write.ttl)
            number = write.number or log.last + 1
            if write.data is None:
                log.is_ended = True
            elif number > log.last:
                log.append(number, write.data)
                self._budget.grew(len(write.data))
            self._bus.tell(topic_of(write.session, write.stream))

    async def read(self, session: str, stream: str, after: int, *, limit: int = 100) -> EventsPage:
        self._ground.require_open()
        log = self._logs.get(f"{session}\0{stream}")
        if log is None:
            return page_of([], 0, False, after)
        found: list[Event] = []
        for event in log.events:
            if event.number > after:
                if len(found) == limit:
                    break
                found.append(event)
        return page_of(found, log.last, log.is_ended, after)

    async def wait(self, session: str, stream: str, after: int, *, timeout: float) -> bool:
        async def has_news() -> bool:
            page = await self.read(session, stream, after, limit=1)
            return bool(page.events) or page.is_ended or page.last > after

        return await wait_for_news(self._bus.board, topic_of(session, stream), has_news, timeout)

    async def delete(self, session: str) -> None:
        self._ground.require_open()
        for stream in tuple(self._streams.get(session, ())):
            self._logs.pop(f"{session}\0{stream}")


@final
class _Tasks:
    def __init__(self, ground: _Ground) -> None:
        self._ground = ground
        self._live: _Expiring[TaskRecord] = _Expiring(ground.clock, self._forget)
        self._owned: dict[str, list[tuple[int, str]]] = {}
        """By owner, in the order of creation."""
        self._bytes = 0
        self._working: dict[str, None] = {}

    def _forget(self, id: str, record: TaskRecord) -> None:
        self._bytes -= _size_of(record)
        self._working.pop(id, None)
        owned = self._owned.get(record.owner, [])
        place = bisect_right(owned, (record.created_ms, id)) - 1
        if place >= 0 and owned[place] == (record.created_ms, id):
            del owned[place]
        if not owned:
            self._owned.pop(record.owner, None)

    def _keep(self, record: TaskRecord, before: TaskRecord | None = None) -> TaskRecord:
        self._bytes += _size_of(record) - (_size_of(before) if before is not None else 0)
        self._live.put(record.id, record, record.expires_ms)
        if record.status == "working":
            self._working.setdefault(record.id)
        else:
            self._working.pop(record.id, None)
        return record

    async def create(self, record: TaskRecord, *, most: int | None = None) -> TaskRecord:
        self._ground.require_open()
        if self._live.get(record.id) is not None:
            raise taken("task")
        self._live.pop(record.id)
        if (
            most is not None
            and len(self._owned.get(record.owner, ())) >= most
            and await self.count(record.owner) >= most
        ):
            raise too_many("tasks of this caller", most)
        self._ground.require_room(self._live.size)
        if self._bytes >= _MOST_HELD_BYTES:
            self._live.purge(self._live.size)
        if self._bytes >= _MOST_HELD_BYTES:
            raise StoreFull(
                f"the tasks in memory take {self._bytes >> 20} MiB, their most: use a database, store='redis://...'",
                limit=_MOST_HELD_BYTES,
            )
        insort(self._owned.setdefault(record.owner, []), (record.created_ms, record.id))
        return self._keep(replace(record, stamp=1, worker="", lease_ms=0))

    async def get(self, id: str) -> TaskRecord | None:
        self._ground.require_open()
        return self._live.get(id)

    async def update(self, record: TaskRecord) -> TaskRecord | None:
        self._ground.require_open()
        held = self._live.get(record.id)
        if held is None or held.is_terminal or held.stamp != record.stamp:
            return None
        is_over = record.status in TERMINAL
        return self._keep(
            replace(
                record,
                owner=held.owner,
                created_ms=held.created_ms,
                stamp=held.stamp + 1,
                worker="" if is_over else held.worker,
                lease_ms=0 if is_over else held.lease_ms,
            ),
            held,
        )

    async def claim(self, id: str, worker: str, *, seconds: float) -> TaskRecord | None:
        self._ground.require_open()
        held = self._live.get(id)
        if held is None or held.is_terminal or held.lease_ms > self._ground.clock():
            return None
        return self._keep(
            replace(held, stamp=held.stamp + 1, worker=worker, lease_ms=self._ground.after(seconds)), held
        )

    async def renew(self, id: str, worker: str, *, seconds: float) -> bool:
        held = self._held_by(id, worker)
        if held is not None:
            self._keep(replace(held, lease_ms=self._ground.after(seconds)), held)
        return held is not None

    async def release(self, id: str, worker: str) -> bool:
        held = self._held_by(id, worker)
        if held is not None:
            self._keep(replace(held, worker="", lease_ms=0), held)
        return held is not None

    def _held_by(self, id: str, worker: str) -> TaskRecord | None:
        self._ground.require_open()
        held = self._live.get(id)
        return held if held is not None and worker and held.worker == worker and not held.is_terminal else None

    async def delete(self, id: str) -> bool:
        self._ground.require_open()
        return self._live.pop(id) is not None

    async def list(self, owner: str, *, cursor: str | None = None, limit: int = 100) -> TasksPage:
        self._ground.require_open()
        owned = self._owned.get(owner, [])
        found: list[TaskRecord] = []
        place = bisect_right(owned, read_cursor(cursor))
        while place < len(owned) and len(found) <= limit:
            record = self._live.get(owned[place][1])
            place += 1
            if record is not None:
                found.append(record)
        return cut_page(found, limit)

    async def count(self, owner: str | None = None) -> int:
        self._ground.require_open()
        if owner is None:
            return len(self._live)
        return sum(self._live.get(id) is not None for _, id in self._owned.get(owner, ()))

    async def due(self, *, limit: int = 100) -> list[TaskRecord]:
        self._ground.require_open()
        now = self._ground.clock()
        found: list[TaskRecord] = []
        for id in self._working:
            record = self._live.get(id)
            if record is not None and record.lease_ms <= now:
                found.append(record)
                if len(found) >= limit:
                    break
        return found

    async def sweep(self, *, limit: int = 1000) -> list[str]:
        self._ground.require_open()
        return self._live.purge(limit)


def cut_page(found: list[TaskRecord], limit: int) -> TasksPage:
    """One more than asked for was looked up, to know whether there is another page."""
    return TasksPage(found[:limit], write_cursor(found[limit - 1]) if len(found) > limit > 0 else None)


def taken(what: str) -> StoreConflict:
    return StoreConflict(f"there is a {what} with this id already: make ids by chance, secrets.token_hex(16)")


def _size_of(record: TaskRecord) -> int:
    parts = (record.arguments, record.result, record.error, record.inputs, record.journal, record.extra)
    return 500 + sum(len(part) for part in parts if part)


def too_many(what: str, most: int) -> StoreFull:
    return StoreFull(
        f"there are {most} {what} already, which is the most allowed: wait until one has ended", limit=most
    )


@final
class _Bus:
    def __init__(self, ground: _Ground) -> None:
        self._ground = ground
        self.name = secrets.token_hex(8)
        self.board = Switchboard(self._opened, lambda _: None)
        self.router = Router(self.name, self.board, self._send)

    @property
    def poisoned(self) -> int:
        return self.board.poisoned

    @property
    def overflowed(self) -> int:
        return self.board.overflowed

    async def _opened(self, topic: str) -> None:
        self._ground.require_open()

    def tell(self, topic: str) -> None:
        if topic in self.board:
            self.board.deliver(Message(topic, b"", self.name))

    async def _send(self, topic: str, data: bytes) -> int:
        self._ground.require_open()
        return self.board.deliver(Message(topic, bytes(data), self.name))

    async def publish(self, topic: str, data: bytes) -> None:
        await self._send(topic, data)

    def subscribe(self, *topics: str, size: int = MAX_QUEUED) -> Mailbox:
        return Mailbox(self.board, topics, size)

    def answer(self, worker: str, respond: Callable[[bytes], Awaitable[bytes]]) -> AbstractAsyncContextManager[None]:
        return self.router.answer(worker, respond)

    async def request(self, worker: str, data: bytes, *, timeout: float) -> bytes:
        return await self.router.request(worker, data, timeout=timeout)


@final
class MemoryStore:
    """A store for one process.

    Args:
        max_records: Of each kind; beyond it, StoreFull.
        max_events: Of each stream; beyond it, the oldest go.
        max_event_bytes: Of each stream; beyond it, the oldest go, but not the newest.
    """

    is_shared = False
    is_durable = False

    def __init__(
        self,
        *,
        max_records: int = 1_000_000,
        max_events: int = MAX_EVENTS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._ground = _Ground(max_records, max_events, max_event_bytes, clock)
        self.bus: Final = _Bus(self._ground)
        self.sessions: Final = _Sessions(self._ground)
        self.events: Final = _Events(self._ground, self.bus)
        self.tasks: Final = _Tasks(self._ground)

    async def start(self) -> None:
        self._ground.require_open()

    async def close(self) -> None:
        if not self._ground.is_closed:
            self._ground.is_closed = True
            self.bus.board.gap("the store was closed")
            await self.bus.router.close()

    async def check(self) -> Health:
        return Health(not self._ground.is_closed, 0.0, str(is_closed()) if self._ground.is_closed else "")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def __repr__(self) -> str:
        return "MemoryStore()"
