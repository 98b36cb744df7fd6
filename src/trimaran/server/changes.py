"""Changes: from `server.notify` (anywhere, any thread) to everyone who asked to hear of them.

A listener is woken on its own loop and keeps only *that* something changed, not how often: a set of kinds and a set of
URIs, both bounded by what it asked for. A reader that is slow hears one change instead of a hundred, and costs no memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

from trimaran.errors import ProtocolError
from trimaran.outage_log import Outage
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.meta import KEY_SUBSCRIPTION_ID
from trimaran.types import ListenResult, NotificationFilter

from .access import at_expiry
from .exchange import running_loop
from .handlers import logger

if TYPE_CHECKING:
    from .server import Server

LIST_CHANGED: Final = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
RESOURCE_UPDATED: Final = "notifications/resources/updated"

# Characters of all that one stream or session watches: a thousand URIs of 256. They are kept as long as it lives.
MAX_WATCHED: Final = 256 * 1024
# Seconds that a caller waits for the target of a proxy to watch a resource. It is served all the same.
WATCH_SECONDS: Final = 5.0


Announcer: TypeAlias = Callable[[str, IncomingCall], "Awaitable[tuple[str, dict[str, Any]] | None]"]
"""From what changed, by its name, and the listen call to the notification it gets; None if it is not to hear of it."""


class ChangeListener(Protocol):
    """Someone who hears of changes. `deliver` is called on the listener's own loop and must not wait."""

    loop: asyncio.AbstractEventLoop

    @property
    def watched(self) -> Collection[str]:
        """The URIs of the resources that it watches."""
        ...

    def deliver(self, kind: str, uri: str | None, extra: dict[str, Any]) -> None: ...


@final
class Changes:
    """The listeners, and how a change reaches them."""

    def __init__(self) -> None:
        self._listeners: dict[asyncio.AbstractEventLoop, set[Any]] = {}
        self.announcers: dict[str, Announcer] = {}
        """Further kinds of change, brought by extensions."""
        self.relay: Callable[[str, str | None, dict[str, Any]], None] | None = None
        """Tells other processes that serve the same server. Called in whatever thread the change was made."""
        self.on_watch: Callable[[], asyncio.Future[None] | None] | None = None
        """Called when other resources may be watched than before, in whatever thread that happened. Returns the work that it
        has begun."""
        self._above: list[Changes] = []
        """Those of the servers that this one is mounted on."""
        self._below: list[Changes] = []
        self._collectors = 0
        self._delayed_kinds: set[str] = set()
        """Lists that have changed since the first hold."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(len(s) for s in self._listeners.values())

    def mount(self, other: Changes) -> None:
        """Let our listeners hear of the other's resources, and the other know what they watch."""
        self._below.append(other)
        other._above.append(self)

    def unmount(self, other: Changes) -> None:
        self._below.remove(other)
        other._above.remove(self)
        other.watching_changed()

    def watched(self) -> set[str]:
        """The URIs that somebody watches, here or where this server is mounted."""
        with self._lock:
            watched = {uri for group in self._listeners.values() for listener in group for uri in listener.watched}
        return watched.union(*(above.watched() for above in self._above))

    def watching_changed(self) -> list[asyncio.Future[None]]:
        """Somebody has begun or ceased to watch a resource. Returns the work that this is for others."""
        work = None if self.on_watch is None else self.on_watch()
        return [
            *([] if work is None else [work]),
            *(task for below in self._below for task in below.watching_changed()),
        ]

    async def settle_watching(self) -> None:
        """Wait until others know what is watched, so that no change after this is missed; not for ever."""
        work = self.watching_changed()
        if work:
            await asyncio.wait(work, timeout=WATCH_SECONDS)

    def add(self, listener: ChangeListener) -> None:
        with self._lock:
            self._listeners.setdefault(listener.loop, set()).add(listener)
        if listener.watched:
            self.watching_changed()

    def discard(self, listener: ChangeListener) -> None:
        with self._lock:
            group = self._listeners.get(listener.loop)
            if group is not None:
                group.discard(listener)
                if not group:
                    del self._listeners[listener.loop]
        if listener.watched:
            self.watching_changed()

    @contextlib.contextmanager
    def collected(self) -> Generator[None]:
        """Tell of each list that changes meanwhile once, at the end, here and wherever this server is mounted.

        For changes that belong together: resources and templates have a registry each, and one notification.
        """
        everyone = self._with_those_above()
        for changes in everyone:
            with changes._lock:
                changes._collectors += 1
        try:
            yield
        finally:
            for changes in everyone:
                changes._let_go()

    def _with_those_above(self) -> set[Changes]:
        return {self}.union(*(above._with_those_above() for above in self._above))

    def _let_go(self) -> None:
        with self._lock:
            self._collectors -= 1
            kinds = [kind for kind in LIST_CHANGED if kind in self._delayed_kinds] if not self._collectors else []
            self._delayed_kinds.difference_update(kinds)
        for kind in kinds:
            self.publish(kind)

    def publish(self, kind: str, uri: str | None = None, extra: dict[str, Any] | None = None) -> None:
        """Tell everyone. `kind` is tools, prompts, resources, or resource with its URI."""
        if self._collectors and kind in LIST_CHANGED:
            with self._lock:
                if self._collectors:
                    self._delayed_kinds.add(kind)
                    return
        if self.relay is not None and kind not in self.announcers:
            self.relay(kind, uri, extra or {})
        self.deliver(kind, uri, extra)
        if uri is not None:  # changes of lists go the way of the registries
            for above in self._above:
                above.publish(kind, uri, extra)

    def deliver(self, kind: str, uri: str | None = None, extra: dict[str, Any] | None = None) -> None:
        """Tell everyone in this process."""
        if not self._listeners:
            return
        here = running_loop()
        with self._lock:
            loops = list(self._listeners)
        for loop in loops:
            if loop is here:
                self._fan_out(loop, kind, uri, extra or {})
            elif not loop.is_closed():
                loop.call_soon_threadsafe(self._fan_out, loop, kind, uri, extra or {})

    def _fan_out(self, loop: asyncio.AbstractEventLoop, kind: str, uri: str | None, extra: dict[str, Any]) -> None:
        for listener in tuple(self._listeners.get(loop, ())):
            listener.deliver(kind, uri, extra)


@final
class Notify:
    """`server.notify`: tell clients that something changed. Callable from anywhere, in either era."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def tools_changed(self) -> None:
        self._changes.publish("tools")

    def prompts_changed(self) -> None:
        self._changes.publish("prompts")

    def resources_changed(self) -> None:
        self._changes.publish("resources")

    def list_changed(self, kind: str) -> None:
        """The same by name: tools, prompts or resources."""
        if kind not in LIST_CHANGED:
            raise ProtocolError.invalid_params(f"there is no list of {kind!r}; use one of {', '.join(LIST_CHANGED)}")
        self._changes.publish(kind)

    def resource_updated(self, uri: str, **extra: Any) -> None:
        """The contents of a resource changed: tells those who watch that URI."""
        self._changes.publish("resource", uri, extra)


@final
class _Subscription:
    """One `subscriptions/listen` stream."""

    __slots__ = ("closed", "kinds", "loop", "pending", "uris", "waiter")

    def __init__(self, kinds: frozenset[str], uris: frozenset[str]) -> None:
        self.loop = asyncio.get_running_loop()
        self.kinds = kinds
        self.uris = uris
        self.pending: dict[tuple[str, str | None], dict[str, Any]] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.closed = False

    @property
    def watched(self) -> frozenset[str]:
        return self.uris

    def deliver(self, kind: str, uri: str | None, extra: dict[str, Any]) -> None:
        if kind in self.kinds if uri is None else uri in self.uris:
            if self.pending is None:
                self.pending = {}
            self.pending[(kind, uri)] = extra
            self._wake()

    def close(self) -> None:
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def wait(self) -> None:
        self.waiter = self.loop.create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None

    def take(self) -> Iterable[tuple[str, str | None, dict[str, Any]]]:
        changes, self.pending = self.pending or {}, None
        return [(kind, uri, extra) for (kind, uri), extra in changes.items()]


@final
class Listeners:
    """The `subscriptions/listen` side of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._open = 0
        self._fullness = Outage(logger, "there is room for listeners again")

    async def listen(self, call: IncomingCall) -> ListenResult:
        """Serve one listen stream: acknowledge first, then every change it asked for, until either side ends it."""
        server = self._server
        limits, changes = server.limits, server.runtime.changes
        if limits.max_listen_streams is not None and self._open >= limits.max_listen_streams:
            self._fullness.failed(
                f"no room for more listeners: {self._open} streams are open (max_listen_streams); others are refused"
            )
            raise ProtocolError.internal_error("the server is busy: too many listen streams are open", status=503)
        self._fullness.succeeded()
        call.exchange.limit(float("inf"))
        await server.runtime.get_ready()  # so that other processes are heard
        honoured = await self._honoured(call.params.notifications, call)
        signature = {KEY_SUBSCRIPTION_ID: call.id}
        uris = frozenset((*(honoured.resource_subscriptions or ()), *(honoured.task_ids or ())))
        subscription = _Subscription(_kinds(honoured), uris)
        result = ListenResult(meta=dict(signature))
        sent = 0
        self._open += 1
        # Registered before the acknowledgement leaves: nothing that happens after it can be missed.
        changes.add(subscription)
        call.exchange.on_close = subscription.close
        # The credentials were good when the stream began; whoever holds newer ones listens again.
        expiry = at_expiry(call.principal, subscription.close)
        try:
            if honoured.resource_subscriptions:
                await changes.settle_watching()
            await call.exchange.notify(
                "notifications/subscriptions/acknowledged", {"notifications": honoured.to_json(), "_meta": signature}
            )
            while not subscription.closed and sent < limits.max_listen_bytes:
                for kind, uri, extra in subscription.take():
                    announce = changes.announcers.get(kind)
                    if announce is not None:
                        announcement = await announce(uri or "", call)
                        if announcement is not None:
                            sent += 512
                            await call.exchange.notify(announcement[0], {**announcement[1], "_meta": signature})
                        continue
                    if uri is not None and not server.runtime.dispatcher.resources.may_watch(uri, call.principal):
                        continue
                    method = RESOURCE_UPDATED if uri is not None else LIST_CHANGED[kind]
                    params: dict[str, Any] = (
                        {**extra, "_meta": signature} if uri is None else {"uri": uri, **extra, "_meta": signature}
                    )
                    sent += 160 + len(uri or "")
                    await call.exchange.notify(method, params)
                if subscription.pending is None and not subscription.closed and sent < limits.max_listen_bytes:
                    await subscription.wait()
            return result
        finally:
            if expiry is not None:
                expiry.cancel()
            self._open -= 1
            changes.discard(subscription)

    async def _honoured(self, filter: NotificationFilter, call: IncomingCall) -> NotificationFilter:
        """The part of the filter that this server can keep: a subset, never more.

        Resources that the caller lacks the scopes for are left out. Hidden ones are kept, as an unknown URI would be.
        """
        capabilities = self._server.capabilities()
        principal = call.principal
        announce = self._server.runtime.changes.announcers.get("task")
        tasks = filter.task_ids if announce is not None else None
        if tasks:
            check_watched(tasks, self._server.limits.max_subscriptions, "stream")
            tasks = [id for id in tasks if announce is not None and await announce(id, call) is not None]
        uris = filter.resource_subscriptions
        if uris is not None:
            check_watched(uris, self._server.limits.max_subscriptions, "stream")
            resources = self._server.runtime.dispatcher.resources
            uris = [uri for uri in uris if not resources.scopes_lacking(uri, principal)]
        return NotificationFilter(
            tools_list_changed=True if filter.tools_list_changed and "tools" in capabilities else None,
            prompts_list_changed=True if filter.prompts_list_changed and "prompts" in capabilities else None,
            resources_list_changed=True if filter.resources_list_changed and "resources" in capabilities else None,
            resource_subscriptions=uris if uris and "resources" in capabilities else None,
            task_ids=tasks or None,
        )


def check_watched(names: Collection[str], most: int, watcher: str) -> None:
    """Refuse what is more than one stream, or one session, may watch."""
    if len(names) > most:
        raise ProtocolError.invalid_params(f"one {watcher} may watch {most} resources, not {len(names)}")
    size = sum(map(len, names))
    if size > MAX_WATCHED:
        raise ProtocolError.invalid_params(
            f"the names of what one {watcher} watches have at most {MAX_WATCHED} characters together, not {size}"
        )


def _kinds(honoured: NotificationFilter) -> frozenset[str]:
    flags = {
        "tools": honoured.tools_list_changed,
        "prompts": honoured.prompts_list_changed,
        "resources": honoured.resources_list_changed,
    }
    return frozenset(kind for kind, is_on in flags.items() if is_on)
