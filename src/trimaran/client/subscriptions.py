"""Changes a server announces, for everyone in this program who wants to hear of them.

Local watchers say what interests them; the hub keeps exactly the union of that alive at the server, whatever the era:
a `subscriptions/listen` stream on the modern one, `resources/subscribe` and unsolicited notifications on the legacy ones.
When the stream breaks or the session is replaced the interest is announced again, and watchers hear "reconnected", since
what changed meanwhile nobody can tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, Self, final

from msgspec import Struct

from trimaran.errors import (
    CODE_METHOD_NOT_FOUND,
    CallError,
    Closed,
    Error,
    ProtocolError,
    TimedOut,
    TransportError,
    Unsupported,
)
from trimaran.protocol.meta import KEY_SUBSCRIPTION_ID

from .cache import is_part_of
from .connection import Connection

log: logging.Logger = logging.getLogger("trimaran.client")

_MOST_WAITING: Final = 1000
_LONGEST_URI: Final = 8 * 1024  # of a resource that has changed; times the number above, what one watcher may hold
_PAUSES: Final = (0.05, 0.2, 1.0, 3.0)
_LASTING: Final = 2.0  # seconds a stream must have been open for its end to count as the first

Kind = Literal["tools", "prompts", "resources", "resource", "reconnected"]

_KINDS: Final[dict[str, Kind]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
    "notifications/resources/updated": "resource",
}
_FILTERS: Final = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


@final
class Change(Struct, frozen=True):
    """Something at the server is no longer what it was."""

    kind: Kind
    """A list ("tools", "prompts", "resources"), one "resource", or "reconnected": anything may have changed."""
    uri: str | None = None
    """Which resource."""


@final
class ChangeQueue:
    """One local interest: a bounded queue of changes."""

    def __init__(self, kinds: Iterable[str], uris: Iterable[str]) -> None:
        self.kinds: frozenset[str] = frozenset(kinds)
        self.uris: frozenset[str] = frozenset(uris)
        self._waiting: deque[Change] = deque(maxlen=_MOST_WAITING)
        self._wake = asyncio.Event()
        self.is_over: bool = False

    def wants(self, change: Change) -> bool:
        if change.kind == "resource":
            if change.uri is not None and len(change.uri) > _LONGEST_URI:
                return False
            return change.uri is not None and any(is_part_of(change.uri, uri) for uri in self.uris)
        return change.kind == "reconnected" or change.kind in self.kinds

    def put(self, change: Change) -> None:
        self._waiting.append(change)
        self._wake.set()

    def end(self) -> None:
        self.is_over = True
        self._wake.set()

    def drop(self) -> None:
        """Nobody wants to hear what has not been heard yet."""
        self._waiting.clear()
        self.end()

    async def next(self) -> Change | None:
        """The next change; None at the end."""
        while True:
            if self._waiting:
                return self._waiting.popleft()
            if self.is_over:
                return None
            self._wake.clear()
            await self._wake.wait()


@final
class Subscription:
    """A callback on one resource; `cancel` ends it."""

    def __init__(self, watch: SubscriptionHub, watcher: ChangeQueue, uri: str) -> None:
        self._watch = watch
        self._watcher = watcher
        self.uri = uri

    async def cancel(self) -> None:
        await self._watch.remove(self._watcher)


@final
class ChangeStream:
    """The changes a program listens to: `async for` takes them one by one.

    Entered with `async with`, it is set up when the block begins, so that nothing announced from then on is missed;
    without, when the first change is asked for.
    """

    def __init__(self, watch: SubscriptionHub, watcher: ChangeQueue) -> None:
        self._watch = watch
        self._watcher = watcher
        self._is_on = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        await self._begin()
        change = await self._watcher.next()
        if change is None:
            raise StopAsyncIteration
        return change

    async def aclose(self) -> None:
        """Stop listening, from any task; one that waits for the next change gets the end."""
        self._watcher.drop()
        await self._watch.remove(self._watcher)

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def _begin(self) -> None:
        if not self._is_on and not self._watcher.is_over:
            await self._watch.add(self._watcher)
            self._is_on = True

    def __del__(self) -> None:
        # Left in the middle of a loop, by `break`: nobody will hear the rest.
        if self._is_on and not self._watcher.is_over:
            self._watch.abandon(self._watcher)


@final
class _Stream:
    """One `subscriptions/listen` request."""

    def __init__(self, interest: frozenset[tuple[str, str]]) -> None:
        self.interest = interest
        self.id: Any = None
        self.acknowledged = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


@final
class SubscriptionHub:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._watchers: list[ChangeQueue] = []
        self._lock = asyncio.Lock()
        self._subscribed: set[str] = set()
        """Resources subscribed to at a legacy server."""
        self._stream: _Stream | None = None
        self._coming: _Stream | None = None
        """The one that is to take its place, until it is acknowledged."""

    # --- the client's side -------------------------------------------------------------------------------------------

    def listen(self, kinds: Iterable[str], uris: Iterable[str]) -> ChangeStream:
        return ChangeStream(self, ChangeQueue(kinds, uris))

    async def subscribe(self, uri: str, callback: Callable[[str], object]) -> Subscription:
        watcher = ChangeQueue((), (uri,))
        await self.add(watcher)

        async def deliver() -> None:
            while (change := await watcher.next()) is not None:
                try:
                    outcome = callback(change.uri if change.uri is not None else uri)
                    if inspect.isawaitable(outcome):
                        await outcome
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if task is not None and task.cancelling():
                        raise
                except Exception:
                    log.exception("the callback of a subscription failed: %s", uri)

        self._connection.spawn(deliver())
        return Subscription(self, watcher, uri)

    async def add(self, watcher: ChangeQueue) -> None:
        """Begin to watch; returns when the server has agreed."""
        self._connection.require_open()
        if watcher in self._watchers:
            return
        self._watchers.append(watcher)
        try:
            await self._announce()
        except BaseException:
            self.abandon(watcher)
            raise

    def abandon(self, watcher: ChangeQueue) -> None:
        """Stop watching without waiting for it: the server is told in the background."""
        if self._connection.is_closing:
            return
        with contextlib.suppress(RuntimeError):  # the loop is gone, and everything with it
            asyncio.get_running_loop()
            self._connection.spawn(self.remove(watcher))

    async def remove(self, watcher: ChangeQueue) -> None:
        if watcher not in self._watchers:
            return
        self._watchers.remove(watcher)
        watcher.drop()
        if self._connection.is_closing or self._connection.live_session is None:
            return  # the next conversation is told what is wanted then
        with contextlib.suppress(Error):
            await self._announce()

    def is_needed(self) -> bool:
        return bool(self._watchers)

    def hear(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/subscriptions/acknowledged":
            self._acknowledged(params)
            return
        kind = _KINDS.get(method)
        if kind is None:
            return
        uri = params.get("uri")
        change = Change(kind, uri if isinstance(uri, str) else None)
        for watcher in self._watchers:
            if watcher.wants(change):
                watcher.put(change)

    def gap(self) -> None:
        """Something may have been missed."""
        self._tell_all(Change("reconnected"))

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.end()

    async def restore(self) -> None:
        """A new conversation, perhaps of another era: announce everything again, and say that something may be missing."""
        async with self._lock:
            self._subscribed.clear()
            if self._is_modern:
                # A stream that is there opens itself again, and tells.
                if self._stream is None and self._watchers:
                    with contextlib.suppress(Error):
                        await self._renew()
                    self._tell_all(Change("reconnected"))
                return
            stream, self._stream = self._stream, None
            if stream is not None:
                await _end_stream(stream)
            for uri in sorted(self._wanted_uris()):
                try:
                    await self._connection.call("resources/subscribe", {"uri": uri}, name=uri, is_internal=True)
                    self._subscribed.add(uri)
                except Error as error:
                    log.warning("the subscription to %s could not be made again: %s", uri, error)
        if self._watchers:
            self._tell_all(Change("reconnected"))

    # --- the server's side -------------------------------------------------------------------------------------------

    @property
    def _is_modern(self) -> bool:
        return self._connection.conversation.dialect.era == "modern"

    def _interest(self) -> frozenset[tuple[str, str]]:
        kinds = {("list", kind) for watcher in self._watchers for kind in watcher.kinds}
        return frozenset(kinds | {("uri", uri) for watcher in self._watchers for uri in watcher.uris})

    async def _announce(self) -> None:
        async with self._lock:
            if self._is_modern:
                await self._renew()
            else:
                await self._subscribe()

    def _wanted_uris(self) -> set[str]:
        return {uri for watcher in self._watchers for uri in watcher.uris}

    def _require_subscriptions(self, method: str) -> None:
        capability: Any = self._connection.conversation.welcome.capabilities.get("resources")
        if not isinstance(capability, dict) or not capability.get("subscribe"):  # pyright: ignore[reportUnknownMemberType]
            raise Unsupported("the server does not offer subscriptions to resources; nothing was sent", method=method)

    async def _subscribe(self) -> None:
        uris = self._wanted_uris()
        if uris - self._subscribed:
            self._require_subscriptions("resources/subscribe")
        await self._connection.conversation.link.settled()
        for uri in sorted(uris - self._subscribed):
            self._subscribed.add(uri)  # before: whoever gives up in between is cleaned up after
            try:
                await self._connection.call("resources/subscribe", {"uri": uri}, name=uri)
            except Error:
                self._subscribed.discard(uri)
                raise
        for uri in sorted(self._subscribed - uris):
            self._subscribed.discard(uri)
            try:
                await self._connection.call("resources/unsubscribe", {"uri": uri}, name=uri)
            except CallError as error:  # what it says of this one from now on concerns nobody
                log.info("the server did not end the subscription to %s: %s", uri, error)

    async def _renew(self) -> None:
        """Replace the stream by one for what is wanted now: the new one first, so that nothing falls in between."""
        interest = self._interest()
        old = self._stream
        if old is not None and old.interest == interest and old.task is not None and not old.task.done():
            return
        if any(kind == "uri" for kind, _ in interest):
            self._require_subscriptions("subscriptions/listen")
        new = await self._open_stream(interest) if interest else None
        self._stream = new
        if old is not None:
            await _end_stream(old)

    async def _open_stream(self, interest: frozenset[tuple[str, str]]) -> _Stream:
        stream = self._coming = _Stream(interest)
        task = stream.task = self._connection.spawn(self._keep(stream))
        waiting = asyncio.ensure_future(stream.acknowledged.wait())
        limit = self._connection.options.timeout
        try:
            await asyncio.wait((waiting, task), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            raise
        finally:
            self._coming = None
            waiting.cancel()
            if not stream.acknowledged.is_set():
                task.cancel()
        if stream.acknowledged.is_set():
            return stream
        failure = task.exception() if task.done() and not task.cancelled() else None
        if isinstance(failure, CallError) and failure.code == CODE_METHOD_NOT_FOUND:
            raise Unsupported(
                f"the server does not tell of changes: {failure.message}", method="subscriptions/listen"
            ) from failure
        self._connection.require_open()
        raise failure or TimedOut(f"subscriptions/listen was not acknowledged within {limit or 0:g} s")

    async def _keep(self, stream: _Stream) -> None:
        """Hold one stream open, again and again, until it is replaced."""
        breaks = 0
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                await self._connection.call(
                    "subscriptions/listen",
                    {"notifications": _filter(stream.interest)},
                    timeout=None,
                    repeatable=False,
                    on_id=lambda id: setattr(stream, "id", id),
                    is_internal=True,
                )
            except Closed:
                return
            except TransportError as error:
                if not stream.acknowledged.is_set():
                    raise
                log.info("the stream of changes broke and is opened again: %s", error)
            except ProtocolError as error:
                if not stream.acknowledged.is_set():
                    raise
                log.warning("the server no longer tells of changes: %s", error)
            breaks = 0 if clock() - began > _LASTING else breaks + 1
            await asyncio.sleep(_PAUSES[min(breaks, len(_PAUSES) - 1)])

    def _acknowledged(self, params: Mapping[str, Any]) -> None:
        meta: Any = params.get("_meta")
        id: Any = meta.get(KEY_SUBSCRIPTION_ID) if isinstance(meta, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        for stream in (self._coming, self._stream):
            if stream is not None and stream.id == id:
                if stream.acknowledged.is_set():
                    self._tell_all(Change("reconnected"))
                stream.acknowledged.set()

    def _tell_all(self, change: Change) -> None:
        for watcher in self._watchers:
            watcher.put(change)


async def _end_stream(stream: _Stream) -> None:
    task = stream.task
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait((task,))


def _filter(interest: frozenset[tuple[str, str]]) -> dict[str, Any]:
    filters: dict[str, Any] = {_FILTERS[value]: True for kind, value in sorted(interest) if kind == "list"}
    uris = sorted(value for kind, value in interest if kind == "uri")
    if uris:
        filters["resourceSubscriptions"] = uris
    return filters
