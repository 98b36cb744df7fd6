"""The part of a bus that every store has: listeners of this process, and questions to other workers.

The `Switchboard` knows who in this process listens to which topic. The `Router` makes questions and answers out of messages.
A `StoreBus` joins them; the bus of each store says how messages get from one process to the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Final, Self, final

import msgspec

from trimaran.errors import ConfigError, Error, TimedOut

from .contracts import (
    MAX_QUEUED,
    MAX_QUEUED_BYTES,
    BusMessage,
    EventStore,
    Gap,
    NoAnswer,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from .records import event_topic, logger

# Questions one worker answers at the same time; more are dropped, and their askers run into their timeouts.
_MAX_ANSWERING: Final = 1000
# Their bytes together: a request that one worker received may be passed on to another as a question.
_MAX_ANSWERING_BYTES: Final = 64 * 1024 * 1024
# Seconds until a worker is asked again that may not have come back to the store yet.
_ASK_AGAIN: Final = 0.05
# Seconds for which a worker tries to send an answer while the store is away.
_SEND_ANSWER: Final = 5.0


@final
class BusListener:
    """One listener of this process. Its two callbacks run on the event loop and must not block."""

    __slots__ = ("gap", "receive", "topics")

    def __init__(
        self, topics: Iterable[str], receive: Callable[[BusMessage], None], gap: Callable[[str], None]
    ) -> None:
        self.topics: tuple[str, ...] = tuple(dict.fromkeys(topics))
        self.receive: Callable[[BusMessage], None] = receive
        self.gap: Callable[[str], None] = gap


@final
class Switchboard:
    """The listeners of each topic in this process.

    `open_topic` is awaited for each topic of a new listener: when it returns, messages of that topic reach this process.
    `close_topic` is called when the last listener of a topic has left.
    """

    def __init__(self, open_topic: Callable[[str], Awaitable[None]], close_topic: Callable[[str], None]) -> None:
        self._open_topic = open_topic
        self._close_topic = close_topic
        self._listeners: dict[str, set[BusListener]] = {}
        self.overflowed = 0
        self.poisoned: int = 0

    def __len__(self) -> int:
        return len(self._listeners)

    def __contains__(self, topic: object) -> bool:
        return topic in self._listeners

    def topics(self) -> list[str]:
        return list(self._listeners)

    async def add(self, listener: BusListener) -> None:
        # Before the database subscribes: the first message may arrive at once.
        for topic in listener.topics:
            self._listeners.setdefault(topic, set()).add(listener)
        try:
            for topic in listener.topics:
                await self._open_topic(topic)
        except BaseException:
            self.remove(listener)
            raise

    def remove(self, listener: BusListener) -> None:
        for topic in listener.topics:
            listeners = self._listeners.get(topic)
            if listeners is None or listener not in listeners:
                continue
            listeners.discard(listener)
            if not listeners:
                del self._listeners[topic]
                self._close_topic(topic)

    def deliver(self, message: BusMessage) -> int:
        listeners = tuple(self._listeners.get(message.topic, ()))
        for listener in listeners:
            listener.receive(message)
        return len(listeners)

    def drop(self, why: str) -> None:
        """Count an unreadable message. The log never quotes it: it may be secret."""
        self.poisoned += 1
        if self.poisoned & (self.poisoned - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...: a flood must not flood the log
            logger.warning("a message on the bus was dropped: %s (%d so far)", why, self.poisoned)

    def gap(self, reason: str) -> None:
        for listener in {listener for listeners in self._listeners.values() for listener in listeners}:
            listener.gap(reason)


@final
class QueueSubscription:
    """A Subscription: a bounded queue between the switchboard and one reader."""

    def __init__(self, board: Switchboard, topics: tuple[str, ...], size: int) -> None:
        if not topics or size < 1:
            raise ConfigError("a subscription needs a topic and room for a message: subscribe('topic', size=100)")
        self._board = board
        self._size = size
        self._queue: deque[BusMessage | Gap] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        self._listener = BusListener(topics, self._receive, self._gap)

    def _receive(self, message: BusMessage) -> None:
        is_large = self._bytes + len(message.data) > MAX_QUEUED_BYTES and bool(self._queue)
        if len(self._queue) >= self._size or is_large:
            # All at once: a reader this slow has to read the state again anyway, and is up to date after that.
            self._board.overflowed += len(self._queue)
            self._queue.clear()
            self._bytes = 0
            limit = f"{MAX_QUEUED_BYTES >> 20} MiB" if is_large else f"{self._size} messages"
            self._queue.append(Gap(f"more than {limit} were waiting to be read"))
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
        await self._board.add(self._listener)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._board.remove(self._listener)
        self._over = True
        self._wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BusMessage | Gap:
        while not self._queue:
            if self._over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        news = self._queue.popleft()
        if isinstance(news, BusMessage):
            self._bytes -= len(news.data)
        return news


async def wait_for_events(
    events: EventStore, board: Switchboard, session: str, stream: str, after: int, timeout: float
) -> bool:
    """Wait until the stream has an event after this number or has ended. False if the time runs out first."""
    news = asyncio.Event()
    listener = BusListener((event_topic(session, stream),), lambda _: news.set(), lambda _: news.set())
    try:
        async with asyncio.timeout(timeout):
            await board.add(listener)
            while True:
                news.clear()
                # Read after listening has begun: an event added from now on sets `news`.
                try:
                    page = await events.read(session, stream, after, limit=1)
                except StoreClosed:
                    raise
                except StoreError as error:
                    await asyncio.sleep(error.retry_after)
                    continue
                if page.events or page.is_ended or page.last > after:
                    return True
                await news.wait()
    except TimeoutError:
        return False
    finally:
        board.remove(listener)


# --- questions to workers -------------------------------------------------------------------------------------------


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
    """Questions to workers, over a bus.

    `send` returns how many listeners a message reached, if that is known. `is_settling` says whether the store has just come
    back: then a worker that does not listen may only not listen yet.
    """

    def __init__(
        self,
        name: str,
        board: Switchboard,
        send: Callable[[str, bytes], Awaitable[int | None]],
        is_settling: Callable[[], bool],
    ) -> None:
        self._board = board
        self._send = send
        self._is_settling = is_settling
        self._reply_topic = f"answers/{name}"
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._answering_bytes = 0
        self._listener: BusListener | None = None
        self._opening: asyncio.Lock = asyncio.Lock()

    async def request(self, worker: str, data: bytes, *, timeout: float) -> bytes:
        id = secrets.token_hex(8)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve_error)  # the caller may no longer wait for it
        is_absent = False
        try:
            async with asyncio.timeout(timeout):
                await self._listen()
                self._waiting[id] = answer
                question = _encoder.encode(_Question(id, self._reply_topic, data))
                while is_absent := await self._send(f"worker/{worker}", question) == 0:
                    if not self._is_settling():
                        raise NoAnswer(f"no worker {worker!r} is there: it has ended, or has another store")
                    await asyncio.sleep(_ASK_AGAIN)
                return await answer
        except TimeoutError:
            if is_absent:
                raise StoreUnavailable(f"the store was away, and worker {worker!r} is not back yet") from None
            raise TimedOut(f"worker {worker!r} did not answer within {timeout:g} s") from None
        finally:
            self._waiting.pop(id, None)

    async def _listen(self) -> None:
        if self._listener is None:
            async with self._opening:
                if self._listener is None:
                    listener = BusListener((self._reply_topic,), self._take_answer, self._lose_answers)
                    await self._board.add(listener)
                    self._listener = listener

    def _take_answer(self, message: BusMessage) -> None:
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
        tasks_here: set[asyncio.Task[None]] = set()

        def receive(message: BusMessage) -> None:
            try:
                question = _questions.decode(message.data)
            except msgspec.MsgspecError:
                self._board.drop("not a question")
                return
            size = len(message.data)
            if len(self._answering) >= _MAX_ANSWERING or self._answering_bytes + size > _MAX_ANSWERING_BYTES:
                self._board.overflowed += 1
                return
            self._answering_bytes += size
            task = asyncio.ensure_future(self._respond(question, respond))
            task.add_done_callback(lambda _: self._answered(size))
            for tasks in (tasks_here, self._answering):
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        listener = BusListener((f"worker/{worker}",), receive, lambda _: None)
        await self._board.add(listener)
        try:
            yield
        finally:
            self._board.remove(listener)
            await _end(tasks_here)

    def _answered(self, size: int) -> None:
        self._answering_bytes -= size

    async def _respond(self, question: _Question, respond: Callable[[bytes], Awaitable[bytes]]) -> None:
        try:
            answer = _Answer(question.id, await respond(question.data))
        except Error as error:
            answer = _Answer(question.id, b"", str(error) or type(error).__name__)
        except Exception:
            logger.exception("answering a question of another worker failed")
            answer = _Answer(question.id, b"", "internal error")
        with contextlib.suppress(StoreError, TimeoutError):  # the asker runs into its timeout
            async with asyncio.timeout(_SEND_ANSWER):
                await self._send_answer(question.reply_to, _encoder.encode(answer))

    async def _send_answer(self, topic: str, answer: bytes) -> None:
        """Send until the store takes it: after a restart of the store, the first command on each connection fails.

        An answer that arrives twice is ignored.
        """
        while True:
            try:
                await self._send(topic, answer)
            except StoreUnavailable:
                await asyncio.sleep(_ASK_AGAIN)
            else:
                return

    async def close(self) -> None:
        if self._listener is not None:
            self._board.remove(self._listener)
            self._listener = None
        self._lose_answers("the store was closed")
        await _end(set(self._answering))


def _retrieve_error(answer: asyncio.Future[bytes]) -> None:
    if not answer.cancelled():
        answer.exception()


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    tasks = tasks - {asyncio.current_task()}  # pyright: ignore[reportAssignmentType]
    for task in tuple(tasks):
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


class StoreBus(ABC):
    """A bus whose messages a store carries. A subclass sends them and delivers those that arrive to `board`."""

    def __init__(self) -> None:
        self.name: Final = secrets.token_hex(8)
        self.board: Final = Switchboard(self._open_topic, self._close_topic)
        self.router: Final = Router(self.name, self.board, self._send, self._is_settling)

    @abstractmethod
    async def _send(self, topic: str, data: bytes) -> int | None:
        """Send a message to every process. Returns how many listeners it reached, if that is known."""

    @abstractmethod
    async def _open_topic(self, topic: str) -> None:
        """Returns when messages of the topic reach this process."""

    @abstractmethod
    def _close_topic(self, topic: str) -> None:
        """Called when the last listener of a topic has left."""

    def _is_settling(self) -> bool:
        """Whether other processes may not listen yet, since the store was away a moment ago."""
        return False

    @property
    def poisoned(self) -> int:
        return self.board.poisoned

    @property
    def overflowed(self) -> int:
        return self.board.overflowed

    async def publish(self, topic: str, data: bytes) -> None:
        await self._send(topic, data)

    def subscribe(self, *topics: str, size: int = MAX_QUEUED) -> QueueSubscription:
        return QueueSubscription(self.board, topics, size)

    def answer(self, worker: str, respond: Callable[[bytes], Awaitable[bytes]]) -> AbstractAsyncContextManager[None]:
        return self.router.answer(worker, respond)

    async def request(self, worker: str, data: bytes, *, timeout: float) -> bytes:
        return await self.router.request(worker, data, timeout=timeout)

    async def close(self) -> None:
        self.board.gap("the store was closed")
        await self.router.close()
