"""The fleet: all processes that serve one server on one store, and what they tell each other.

A single process needs none of this. With a shared store, a client's next request may reach any process. Processes share
what they know in three ways:

- **records** in the store, which every process may read: sessions, tasks, the events of streams;
- **news** (`tell`) that something happened. News arrives at most once, so nothing depends on it: a process that misses it
  learns of it later from the record. After a gap in hearing, every process looks at the records again;
- **questions** (`ask`) to one process, by its name. The answer comes back, or the fact that the process is gone.

Changes (`server.notify`) are news that a log keeps for a day, so that a session without an open stream still hears of them.

The store may be away. Then news waits here for a while, in order, and questions are refused at once with StoreError. The
fleet recovers by itself.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, final

import msgspec

from trimaran.errors import Error, ProtocolError, TimedOut
from trimaran.server.changes import LIST_CHANGED
from trimaran.server.exchange import running_loop
from trimaran.server.handlers import incident, logger
from trimaran.state import open_store
from trimaran.state.contracts import Gap, NoAnswer, Store, StoreClosed, StoredEvent, StoreError, StoreFull, StoreHealth

if TYPE_CHECKING:
    from trimaran.server.server import Server

Hear: TypeAlias = Callable[[Any], object]
"""Receives news. The loop calls it, so it must not block; a coroutine that it returns runs in a task."""
Respond: TypeAlias = Callable[[Any], Awaitable[Any]]

_TOPIC: Final = "fleet"
# The log of changes, stored like the events of a session, for as long as a session may live.
_LOG: Final = ("~fleet", "changes")
_LOG_SECONDS: Final = 86_400.0
# News that waits while the store is away; beyond that the oldest are dropped.
_MOST_WAITING: Final = 1000
_PING_SECONDS: Final = 2.0
_START_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 1.0
# Questions that wait for one process; beyond that they are lost.
_MOST_ASKING: Final = 1000
# Changes may arrive out of order; one that is later than this was missed.
_HOLE_SECONDS: Final = 1.0

_encode: Final = msgspec.msgpack.encode
_decode: Final = msgspec.msgpack.Decoder(tuple[str, str, Any]).decode

Change: TypeAlias = "tuple[str, str | None, dict[str, Any]]"
"""A change: its kind, its URI if it has one, and further fields."""


def unavailable(error: StoreError) -> ProtocolError:
    """The refusal of a request that needs the store: 503, and the client may try again."""
    if not error.is_logged:
        logger.warning("a request needs the store and was refused: %s", error)  # its text may name a path or a host
    if isinstance(error, StoreFull):
        return ProtocolError.internal_error(
            "the server's store is full, and this needs room in it; try again", {"kind": "store_full"}, status=503
        )
    return ProtocolError.internal_error(
        "the server cannot use its store at the moment, and this needs it; try again",
        {"kind": "store_unavailable"},
        status=503,
    )


def fleet_of(server: Server) -> Fleet | None:
    """The fleet of a server, if it has a store."""
    return cast("Fleet | None", server.runtime.fleet)  # only `serve.share` sets it


@final
class Fleet:
    """This process, as one of those that share its store."""

    def __init__(self, server: Server, store: Store | str) -> None:
        self.server = server
        self.name: str = secrets.token_hex(6)
        """The random name of this process; clients may see it in ids."""
        self._url = store if isinstance(store, str) else None
        self.store: Store = self._open(store) if isinstance(store, str) else store
        self.poisoned: int = 0
        """Messages that could not be decoded and were dropped."""
        self.seen_change: int = 0
        """Every change up to this number has arrived."""
        self._ahead: set[int] = set()
        """Later changes that have arrived: those in between are missing or late."""
        self._waiting_for: asyncio.Task[Any] | None = None
        self.hearing: int = 0
        """The number of the change that is being delivered, if it came from the log or another process."""
        self._hear: dict[str, Hear] = {"change": self._hear_change}
        self._respond: dict[str, Respond] = {"ping": _pong}
        self._on_gap: list[Callable[[], object]] = [self._catch_up]
        self._gaps = 0
        self._asking = 0
        self._waiting: deque[tuple[str, Any]] = deque()
        self._pumping: asyncio.Task[Any] | None = None
        self._errands: set[asyncio.Task[Any]] = set()
        self._starting: asyncio.Task[None] | None = None
        self._arrival: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        server.runtime.changes.relay = self._relay

    def _open(self, url: str) -> Store:
        return open_store(
            url, max_events=self.server.limits.replay_events, max_event_bytes=self.server.limits.replay_bytes
        )

    @property
    def url(self) -> str | None:
        """The store, as it was given."""
        return self._url

    @property
    def is_shared(self) -> bool:
        """May there be others?"""
        return self.store.is_shared

    async def check(self) -> StoreHealth:
        return await self.store.check()

    # --- its life

    async def start(self) -> None:
        """Begin to hear the others. A store that does not answer yet is waited for elsewhere: it is no reason not to serve.

        Raises:
            ConfigError: The store can never work.
        """
        if self._starting is None or (self._starting.done() and not self._is_running()):
            self._closed = False
            self._loop = asyncio.get_running_loop()
            self._starting = asyncio.ensure_future(self._start())
        await asyncio.shield(self._starting)

    def _is_running(self) -> bool:
        return (
            self._starting is not None
            and not self._starting.cancelled()
            and self._starting.exception() is None
            and not self._closed
        )

    async def _start(self) -> None:
        self._arrival = asyncio.Event()
        # Requests of 2026-07-28 need no store, and must not wait for one that is silent.
        starting = asyncio.ensure_future(self._reach_store())
        self._errands.add(starting)
        await asyncio.wait({starting}, timeout=_START_SECONDS)
        if starting.done():
            self._errands.discard(starting)
            await starting  # whoever starts us says what went wrong
        else:
            starting.add_done_callback(self._done)
            logger.warning("the store does not answer yet; serving without it until it does")

    async def _reach_store(self) -> None:
        try:
            await self.store.start()
        except StoreError as error:
            logger.warning("%s; serving without it until it is back", error)
        self.spawn(self._listen())
        if self._arrival is not None:
            # Others must be able to reach us before anything that they could answer has our name on it.
            await self._arrival.wait()

    async def close(self) -> None:
        """Say what is still to be said, and leave."""
        starting, self._starting = self._starting, None
        if starting is None:
            return
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
        if not await self.flush(_CLOSE_SECONDS):
            logger.warning("%d messages to the other processes were not sent", len(self._waiting))
        self._closed = True
        self._waiting.clear()
        errands = [task for task in self._errands if task is not asyncio.current_task()]
        for task in errands:
            task.cancel()
        if errands:
            await asyncio.wait(errands)
        await self.store.close()
        if self._url is not None:  # a server may be started again; a closed store may not
            self.store = self._open(self._url)
        # A process that starts again is another one: nobody may wait for the work that this one had begun.
        self.name = secrets.token_hex(6)
        self.seen_change = 0
        self._ahead.clear()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something in the background, for as long as we are part of the fleet."""
        task = asyncio.ensure_future(work)
        self._errands.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._errands.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not isinstance(error, StoreError):
            incident("work for other processes", error)

    # --- news

    def on(self, kind: str, hear: Hear) -> None:
        """Take news of a kind."""
        self._hear[kind] = hear

    def on_gap(self, look_again: Callable[[], object]) -> None:
        """Called when news may have been missed."""
        self._on_gap.append(look_again)

    async def tell(self, kind: str, news: Any) -> None:
        """Tell the others. We do not hear it ourselves.

        Raises:
            StoreError: They may not have heard it.
        """
        await self.store.bus.publish(_TOPIC, _encode((self.name, kind, news)))

    def tell_soon(self, kind: str, news: Any) -> None:
        """The same from anywhere, in any thread, without waiting: it is sent in order, when the store can take it."""
        loop = self._loop
        if loop is None or loop.is_closed() or self._closed:
            return  # not serving: there is nobody to whom it could matter
        if loop is running_loop():
            self._queue(kind, news)
        else:
            loop.call_soon_threadsafe(self._queue, kind, news)

    def _queue(self, kind: str, news: Any) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft()
        self._waiting.append((kind, news))
        if self._pumping is None and not self._closed:
            self._pumping = self.spawn(self._pump())

    async def flush(self, seconds: float) -> bool:
        """Wait until all that was said here before has been sent; False if that takes longer."""
        if self._pumping is not None:
            await asyncio.wait({self._pumping}, timeout=seconds)
        return self._pumping is None

    async def _pump(self) -> None:
        written, number = None, 0
        try:
            while self._waiting:
                kind, news = item = self._waiting[0]
                try:
                    if kind == "change":
                        if written is not item:
                            number = await self.store.events.append(*_LOG, _encode(news), ttl=_LOG_SECONDS)
                            written = item
                        await self.tell(kind, (number, *news))
                        self._saw(number)
                    else:
                        await self.tell(kind, news)
                except StoreClosed:
                    return
                except StoreError as error:
                    if not isinstance(error, StoreFull) or error.limit is None:
                        await asyncio.sleep(max(0.05, error.retry_after))
                        continue
                    logger.warning("the other processes could not be told of %s: %s", kind, error)
                except (Error, OverflowError, TypeError, ValueError) as error:
                    # MessagePack has no form for it, as for long numbers: the others can do without.
                    logger.warning("the other processes could not be told of %s: %s", kind, error)
                except Exception as error:  # nor may it keep all that follows from being told
                    incident("telling the other processes", error)
                if self._waiting and self._waiting[0] is item:
                    self._waiting.popleft()
        finally:
            self._pumping = None

    async def _listen(self) -> None:
        pause = 0.05
        while not self._closed:
            try:
                async with AsyncExitStack() as stack:
                    await stack.enter_async_context(self.store.bus.answer(self.name, self._answer))
                    messages = await stack.enter_async_context(self.store.bus.subscribe(_TOPIC))
                    if self._arrival is not None and self._arrival.is_set():
                        self._look_again()
                    elif self._arrival is not None:
                        await self._find_place()
                        self._arrival.set()
                    pause = 0.05
                    async for message in messages:
                        if isinstance(message, Gap):
                            self._look_again()
                        else:
                            self._take(message.data)
            except StoreClosed:
                return
            except Error as error:
                if not isinstance(error, StoreError):
                    logger.error("the other processes cannot be heard: %s", error)
                await asyncio.sleep(max(pause, getattr(error, "retry_after", 2.0)))
                pause = min(2.0, 2 * pause)
            except Exception as error:  # whatever it is, nobody else would listen again
                incident("hearing the other processes", error)
                await asyncio.sleep(2.0)

    def _take(self, data: bytes) -> None:
        try:
            sender, kind, news = _decode(data)
            hear = self._hear.get(kind)
            if hear is None or sender == self.name:
                return  # of a newer version, perhaps; or our own
            doing = hear(news)
            if asyncio.iscoroutine(doing):
                self.spawn(doing)
        except Exception as error:
            self.poisoned += 1
            if self.poisoned & (self.poisoned - 1) == 0:  # a flood must not flood the log
                logger.warning(
                    "a message of another process was dropped: %s (%d so far)", type(error).__name__, self.poisoned
                )

    def _look_again(self) -> None:
        for look in self._on_gap:
            doing = look()
            if asyncio.iscoroutine(doing):
                self.spawn(doing)

    # --- questions

    def on_ask(self, kind: str, respond: Respond) -> None:
        """Answer questions of a kind that other processes put to this one."""
        self._respond[kind] = respond

    async def ask(self, name: str, kind: str, question: Any, *, timeout: float = 5.0) -> Any:
        """Put a question to one process.

        Raises:
            NoAnswer: It is not there, or has failed.
            TimedOut: It does not answer.
            StoreError: It cannot be reached.
        """
        data = await self.store.bus.request(name, _encode((self.name, kind, question)), timeout=timeout)
        return msgspec.msgpack.decode(data)

    async def _answer(self, data: bytes) -> bytes:
        _, kind, question = _decode(data)
        respond = self._respond.get(kind)
        if respond is None:
            raise NoAnswer("this process does not know such questions")
        return _encode(await respond(question))

    def ask_soon(self, name: str, kind: str, question: Any, *, within: float) -> asyncio.Task[None]:
        """Tell one process something that must not be lost, in the background: tried until it has it, or is gone."""
        return self.spawn(self._ask_on(name, kind, question, within))

    async def _ask_on(self, name: str, kind: str, question: Any, within: float) -> None:
        if self._asking >= _MOST_ASKING:
            return
        self._asking += 1
        until = asyncio.get_running_loop().time() + within
        try:
            while asyncio.get_running_loop().time() < until:
                try:
                    await self.ask(name, kind, question)
                    return
                except (NoAnswer, StoreClosed):
                    return  # nobody waits for it any more
                except TimedOut:
                    continue
                except StoreError as error:
                    await asyncio.sleep(max(0.05, error.retry_after))
        finally:
            self._asking -= 1

    async def is_there(self, name: str) -> bool:
        """Is a process at work? One that cannot be reached at the moment may be."""
        if name == self.name:
            return True
        try:
            await self.ask(name, "ping", None, timeout=_PING_SECONDS)
        except (NoAnswer, TimedOut):
            return False
        except StoreError:
            return True
        return True

    # --- changes

    def _relay(self, kind: str, uri: str | None, extra: dict[str, Any]) -> None:
        self.tell_soon("change", (kind, uri, extra))

    def _saw(self, number: int) -> None:
        if number > self.seen_change:
            self._ahead.add(number)
        while self.seen_change + 1 in self._ahead:
            self.seen_change += 1
            self._ahead.discard(self.seen_change)
        if self._ahead and self._waiting_for is None:
            self._waiting_for = self.spawn(self._wait_for_missing_changes())

    def _is_news(self, number: int) -> bool:
        return number > self.seen_change and number not in self._ahead

    def _settle(self, last: int) -> None:
        """Every change up to `last` is known."""
        self.seen_change = last
        self._ahead = {number for number in self._ahead if number > last}

    async def _wait_for_missing_changes(self) -> None:
        """Read changes from the log that did not arrive, although no gap was reported: perhaps their process died."""
        try:
            while self._ahead:
                seen = self.seen_change
                await asyncio.sleep(_HOLE_SECONDS)
                if self._ahead and self.seen_change == seen:
                    await self._catch_up()
        finally:
            self._waiting_for = None

    def _hear_change(self, news: Any) -> None:
        number, kind, uri, extra = news
        if number > self.seen_change and number in self._ahead:
            return  # read from the log meanwhile
        self._saw(number)
        self._deliver(number, (kind, uri, extra))

    def _deliver(self, number: int, change: Change) -> None:
        self.hearing = number
        try:
            self.server.runtime.changes.deliver(*change)
        finally:
            self.hearing = 0

    async def _find_place(self) -> None:
        """Go to the end of the log: changes before our start do not matter."""
        self._settle(max(self.seen_change, (await self.store.events.read(*_LOG, 0, limit=1)).last))

    async def _catch_up(self) -> None:
        """After a gap: deliver the changes that were missed."""
        self._gaps += 1
        gap = self._gaps
        while True:
            try:
                changes, last = await self._read_since(self.seen_change)
                break
            except StoreClosed:
                return
            except StoreError as error:
                await asyncio.sleep(max(0.05, error.retry_after))
                if gap != self._gaps:
                    return  # a later gap is being looked after
        missed = [(0, change) for change in _EVERYTHING] if changes is None else changes
        news = [(number, change) for number, change in missed if not number or self._is_news(number)]
        self._settle(last if changes is None else max(last, self.seen_change))
        for number, change in news:
            self._deliver(number, change)

    async def changes_since(self, number: int) -> tuple[list[Change] | None, int]:
        """The changes after a number, or None if the log no longer has all of them; and the number of the last."""
        changes, last = await self._read_since(number)
        return None if changes is None else [change for _, change in changes], last

    async def _read_since(self, number: int) -> tuple[list[tuple[int, Change]] | None, int]:
        changes: list[tuple[int, Change]] = []
        after = number
        while True:
            page = await self.store.events.read(*_LOG, after)
            if page.is_truncated:
                return None, page.last
            changes += [(event.number, change) for event in page.events if (change := _read_change(event)) is not None]
            if not page.events or page.events[-1].number >= page.last:
                return changes, page.last
            after = page.events[-1].number


_EVERYTHING: Final[list[Change]] = [(kind, None, {}) for kind in LIST_CHANGED]
_changes: Final = msgspec.msgpack.Decoder(tuple[str, str | None, dict[str, Any]])


def _read_change(event: StoredEvent) -> Change | None:
    try:
        return _changes.decode(event.data)
    except msgspec.MsgspecError:
        return None


async def _pong(_: Any) -> None:
    return None
