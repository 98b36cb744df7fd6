"""Probes for balancers and operators: is this process alive, is it ready, how much is at work in it.

    /livez     200 while the event loop runs, whatever else is wrong
    /readyz    200 while requests may come; 503 while it starts or stops
    /gauges    figures of open and running work, as JSON; only with `gauges=True`

Anyone may ask, with GET or HEAD and no credentials. Pages of other origins cannot read the answer: it has no CORS header.
The answers say as little as possible (the log has the details), change nothing, and cost little: slow checks run once a
second at most.

A store that is down does not make a server unready, unless `ready_needs_store` says so: requests of 2026-07-28 need no
store, and a balancer that removes every worker at once turns a slow Redis into an outage.

The first probe starts a server that nobody has started, as the first call does. A mounted ASGI app needs this: its balancer
waits until the app is ready.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from trimaran.errors import ConfigError
from trimaran.server.handlers import incident, logger
from trimaran.server.seams import ServerFleet
from trimaran.server.threads import STALLED_SECONDS

if TYPE_CHECKING:
    from trimaran.server.server import Server

    from .engine import Engine, HttpRequestHead, Pairs

LIVE: Final = "/livez"
READY: Final = "/readyz"
GAUGES: Final = "/gauges"

# Probes come every few seconds; more frequent ones get the last result.
_FRESH_SECONDS: Final = 1.0
# How long a probe waits for a start or a store. Kubernetes gives up after a second, and must have our answer by then.
_PATIENCE: Final = 0.5
_HEADERS: Final = [("content-type", "application/json"), ("cache-control", "no-store")]
_ALLOW: Final = "GET, HEAD"
_NO_STORE: Final = "the store does not answer"
_NO_WRITES: Final = "the store takes no writes"
_NO_THREADS: Final = "all threads for plain functions are busy"
_NO_DESCRIPTOR: Final = "no descriptor is left for new connections"
_NO_START: Final = "the last attempt failed, and the log says why; it is tried again"

Verdict = tuple[int, bytes]


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """How much is open and at work in this process, at one moment."""

    pid: int
    uptime: float
    """Seconds since the endpoint was started."""
    sessions: int
    """Legacy sessions."""
    streams: int
    """Open streams: GETs, and calls whose answer has become a stream. Listeners are among them."""
    listeners: int
    """Open `subscriptions/listen` calls."""
    calls: int
    """Calls at work that did not finish at once. Listeners are not among them."""
    tasks: int
    """Tasks whose body runs here."""
    tasks_waiting: int
    """Those of them that wait for an answer of their client."""
    tasks_refused: int
    """Tasks of anonymous callers that found no room, or gave way, since the start."""
    threads: int
    """Threads there may be for plain `def` handlers: `tool_threads`."""
    threads_busy: int
    """Those that run one, or hang in one."""
    queue_depth: int
    """Calls of plain `def` handlers that wait for a thread."""
    bus_poisoned: int
    """Messages of other workers that could not be read, since the start."""
    bus_overflowed: int
    """Messages of other workers that were dropped because their reader was too slow, since the start."""
    tls_failures: int
    """TLS connections that failed, most of them in the handshake, since the start."""
    store_up: bool | None
    """Whether the store could be read and written at the last check; None without a store or a check."""


# Every gauge reads live objects, takes no lock and may be read in any thread. Anything that can change is copied before
# it is gone through.


def _uptime(server: Server, engines: Iterable[Engine]) -> float:
    return round(max((time.monotonic() - engine.since for engine in engines), default=0.0), 3)


def _tasks(server: Server, name: str) -> int:
    # The extension stands above this layer, so it is reached through the announcer that it registered.
    keeper: Any = getattr(server.runtime.changes.announcers.get("task"), "__self__", None)
    return getattr(keeper, name, 0)


def _poisoned(server: Server, engines: Iterable[Engine]) -> int:
    fleet = server.runtime.fleet
    return 0 if fleet is None else fleet.poisoned + fleet.store.bus.poisoned


def _store_up(server: Server, engines: Iterable[Engine]) -> bool | None:
    states = {engine.health.store_up for engine in engines if engine.health is not None}
    return False if False in states else True if True in states else None


_READ: Final[Mapping[str, Callable[[Server, Iterable[Engine]], Any]]] = {
    "pid": lambda server, engines: os.getpid(),
    "uptime": _uptime,
    "sessions": lambda server, engines: 0 if server.runtime.sessions is None else len(server.runtime.sessions),
    "streams": lambda server, engines: sum(engine.count_streams() for engine in engines),
    "listeners": lambda server, engines: sum(engine.listeners for engine in engines),
    "calls": lambda server, engines: sum(max(0, len(engine.running_calls) - engine.listeners) for engine in engines),
    "tasks": lambda server, engines: _tasks(server, "running"),
    "tasks_waiting": lambda server, engines: _tasks(server, "waiting"),
    "tasks_refused": lambda server, engines: _tasks(server, "refused"),
    "threads": lambda server, engines: server.runtime.threads.size,
    "threads_busy": lambda server, engines: server.runtime.threads.busy,
    "queue_depth": lambda server, engines: server.runtime.threads.waiting,
    "bus_poisoned": _poisoned,
    "bus_overflowed": lambda server, engines: (
        0 if server.runtime.fleet is None else server.runtime.fleet.store.bus.overflowed
    ),
    "tls_failures": lambda server, engines: sum(engine.tls_failures for engine in engines),
    "store_up": _store_up,
}


def read_gauge(name: str, server: Server, engines: Iterable[Engine]) -> Any:
    """One field of `Gauges`."""
    return _READ[name](server, engines)


def measure(server: Server, engines: Iterable[Engine]) -> Gauges:
    """The gauges of a server, and of these of its endpoints."""
    engines = tuple(engines)
    values: dict[str, Any] = {name: read(server, engines) for name, read in _READ.items()}
    return Gauges(**values)


@final
class HealthRoutes:
    """The health routes of one engine.

    Args:
        gauges: serve `/gauges`, too. Anyone who can reach the endpoint can read it.
        ready_needs_store: be unready, and not only degraded, while the store does not answer.
    """

    store_up: bool | None = None
    """Whether the store could be used when it was last asked."""
    is_crowded: Callable[[], bool] | None = None
    """Whether new connections are refused, if the listener knows."""
    _store_fault = _NO_STORE
    """The problem, in words for the public; the log says more."""

    def __init__(self, *, gauges: bool = False, ready_needs_store: bool = False) -> None:
        self._ready_needs_store = ready_needs_store
        self._routes: dict[str, Callable[[], Awaitable[Verdict]]] = {LIVE: self._live, READY: self._ready}
        if gauges:
            self._routes[GAUGES] = self._gauges
        self._engine: Engine = None  # pyright: ignore[reportAttributeAccessIssue]
        self._is_attached = False
        self._starting: asyncio.Task[None] | None = None
        self._start_again = 0.0
        self._start_failed = False
        self._checking: asyncio.Task[None] | None = None
        self._check_again = 0.0
        self._measured = b""
        self._measure_again = 0.0

    def attach(self, engine: Engine) -> None:
        """Serve an engine. Where its endpoint has one of our paths, the endpoint is served there."""
        if self._is_attached:
            raise ConfigError("this Health belongs to another engine: make one for each, Engine(..., health=Health())")
        self._engine = engine
        self._is_attached = True
        for path in filter(engine.takes, self._routes):
            logger.warning("%s is a path of the endpoint, so there is no health route there", path)

    def takes(self, path: str) -> bool:
        """Whether this is one of our routes."""
        return path in self._routes and not self._engine.takes(path)

    async def serve(self, request: HttpRequestHead) -> bool:
        """Answer a request for one of our routes; False if it is for something else."""
        route = self._routes.get(request.path)
        if route is None:
            return False
        more: Pairs = []
        if request.method not in ("GET", "HEAD"):
            status, body = _say(405, "error", f"{request.path} is read with GET or HEAD")
            more = [("allow", _ALLOW)]
        else:
            try:
                status, body = await route()
            except Exception as error:
                status, body = _say(500, "error", f"internal error (error {incident(request.path, error)})")
        await request.reply(status, _HEADERS + more, body)
        return True

    async def close(self) -> None:
        """End running checks. Probes are still answered."""
        tasks = {task for task in (self._starting, self._checking) if task is not None}
        self._starting = self._checking = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE)

    # The routes

    async def _live(self) -> Verdict:
        return _say(200, "alive")

    async def _ready(self) -> Verdict:
        engine = self._engine
        if not engine.closing and not engine.is_started:
            await self._start()
        if engine.closing:
            return _say(503, "stopping")
        if not engine.is_started:
            return _say(503, "starting", _NO_START if self._start_failed else None)
        if self.is_crowded is not None and self.is_crowded():
            return _say(503, "unavailable", _NO_DESCRIPTOR)
        if engine.server.runtime.fleet is None or await self._is_store_up():
            # Async handlers are not affected, so requests need not go elsewhere.
            short = [words for shortage in engine.server.runtime.shortages if (words := shortage()) is not None]
            if engine.server.runtime.threads.stalled > STALLED_SECONDS:
                short.append(_NO_THREADS)
            return _say(200, "degraded", "; ".join(short)) if short else _say(200, "ready")
        fault = self._store_fault
        return _say(503, "unavailable", fault) if self._ready_needs_store else _say(200, "degraded", fault)

    async def _gauges(self) -> Verdict:
        engine = self._engine
        if engine.server.runtime.fleet is not None and engine.is_started:
            await self._is_store_up()
        now = asyncio.get_running_loop().time()
        if now >= self._measure_again:
            self._measured = msgspec.json.encode(engine.gauges())
            self._measure_again = now + _FRESH_SECONDS
        return 200, self._measured

    # Checks: one at a time for all probes. A probe that goes away does not stop it for the others.

    async def _start(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._starting is None and now >= self._start_again:
            self._start_again = now + _FRESH_SECONDS
            self._start_failed = False
            self._starting = asyncio.ensure_future(self._try_start())
        if self._starting is not None:
            await asyncio.wait({self._starting}, timeout=_PATIENCE)

    async def _try_start(self) -> None:
        try:
            await self._engine.start()
        except Exception as error:
            self._start_failed = True
            incident("starting", error)
        finally:
            self._starting = None

    async def _is_store_up(self) -> bool:
        now = asyncio.get_running_loop().time()
        fleet = self._engine.server.runtime.fleet
        if self._checking is None and now >= self._check_again and fleet is not None:
            self._checking = asyncio.ensure_future(self._check(fleet))
        if self._checking is not None:
            # The check ends by itself before this does, unless it cannot be stopped; then it is as good as none.
            await asyncio.wait({self._checking}, timeout=_PATIENCE + 0.1)
        return self._checking is None and self.store_up is True

    async def _check(self, fleet: ServerFleet) -> None:
        fault = _NO_STORE
        try:
            async with asyncio.timeout(_PATIENCE):
                state = await fleet.check()
            is_up, detail = state.is_up, state.detail
            if state.is_read:
                fault = _NO_WRITES
        except TimeoutError:
            is_up, detail = False, f"it did not answer within {_PATIENCE:g} s"
        except Exception as error:
            is_up, detail = False, f"it raised {type(error).__name__}"
        finally:
            self._checking = None
            self._check_again = asyncio.get_running_loop().time() + _FRESH_SECONDS
        if not is_up and self.store_up is not False:
            logger.warning("%s: %s", fault, detail)
        elif is_up and self.store_up is False:
            logger.warning("the store answers again")
        self.store_up, self._store_fault = is_up, fault


def choose_health(
    health: object = True, gauges: object = False, ready_needs_store: object = False
) -> HealthRoutes | None:
    """The routes that these options ask for."""
    options = {"health": health, "gauges": gauges, "ready_needs_store": ready_needs_store}
    for name, value in options.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be True or False, not {value!r}")
        if value and not health:
            raise ConfigError(f"{name}=True goes with the health routes; leave out health=False")
    return HealthRoutes(gauges=bool(gauges), ready_needs_store=bool(ready_needs_store)) if health else None


def _say(status: int, word: str, reason: str | None = None) -> Verdict:
    answer = {"status": word} if reason is None else {"status": word, "reason": reason}
    return status, msgspec.json.encode(answer)
