"""Tasks that other processes run: servers put them on a docket, workers take them from it (extra `docket`, on Redis).

    server.enable_extension(Docket())      or    trimaran serve FILE --store redis://... --tasks docket
    await docket.work(concurrency=10)      or    trimaran worker FILE --store redis://...

The state of a task is in its record, and only there: its status, its journal, who holds it and until when. The docket, by
the package `pydocket`, delivers ids: to one worker that has room, in order, and to another one if that worker dies before it has
begun. It is never asked how a task stands. So an id that comes twice, late, or for nothing does no harm: `Tasks.run_record` claims
the task first, and who comes second does nothing.

- A task is on the docket after its record is durable. If the docket cannot take it, the client hears so and there is no task; if
  the server dies in between, whoever finds the task puts it there.
- A docket with `most_waiting` ids refuses new tasks with 503. A task that a client has already is never refused.
- A body is not retried by the docket. A task whose worker died is found by any process when its lease is over, and put on the
  docket again, or failed with the reason (see `scheduler.py`); so a worker never runs more than its `concurrency`.

Messages of a docket are pickles. Anyone who can write to that Redis can run code in the workers: protect it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import platform
import time
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakKeyDictionary, ref

from trimaran.errors import ConfigError, DeclarationError, ProtocolError
from trimaran.fleet import fleet_of
from trimaran.server.handlers import incident, logger
from trimaran.state.contracts import OPERATION_TIMEOUT, StoreClosed, StoreError, StoreUnavailable, TaskRecord

from .extension import Tasks
from .scheduler import HANDED

if TYPE_CHECKING:
    from docket import Docket as Queue
    from docket import Worker

    from trimaran.server.server import Server

__all__ = ["Docket"]

_JOB: Final = "run_task"
# A new record that was put on the docket has been written twice. Any other has waited before.
_FRESH: Final = 2
_HEARTBEAT: Final = 2.0
# Seconds between two tries to reach a store that is away: doubled from the first to the second.
_PAUSES: Final = (0.25, 10.0)
_MOST_LOOKED_AT: Final = 1000

# Ids that no worker has taken. Delivered ones stay in the stream until they are done.
_WAITING: Final = """
local waiting = redis.call('XLEN', KEYS[1]) + redis.call('ZCARD', KEYS[2])
local held = redis.pcall('XPENDING', KEYS[1], ARGV[1])
if held.err then return waiting end
return waiting - held[1]
"""
_LAST_SEEN: Final = "return redis.call('ZSCORE', KEYS[1], ARGV[1])"

# Weak in both directions: the server holds its docket, which holds the server.
_dockets: WeakKeyDictionary[Server, ref[Docket]] = WeakKeyDictionary()


def _library() -> Any:
    try:
        return importlib.import_module("docket")
    except ImportError:
        raise ConfigError('tasks on a docket need the package pydocket: pip install "trimaran[docket]"') from None


@final
class Docket:
    """A queue between a server, which puts tasks on it, and workers, which run them.

    Args:
        url: the Redis of the docket; by default the server's store.
        name: the prefix of its keys. Servers and workers must use the same.
        most_waiting: tasks that may wait for a worker; more are refused, with 503.
        redelivery: seconds after which a task that was delivered to a worker which died is delivered to another.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "trimaran-docket",
        most_waiting: int = 10_000,
        redelivery: float = 30.0,
    ) -> None:
        if not 0 < redelivery < float("inf"):
            raise ConfigError(f"redelivery must be a positive number of seconds, not {redelivery!r}")
        if most_waiting < 1:
            raise ConfigError(f"most_waiting must be a positive number, not {most_waiting!r}")
        self._library = _library()
        self._errors: Any = importlib.import_module("redis").RedisError
        self._url = url
        self.name = name
        self.most_waiting = most_waiting
        self.redelivery = redelivery
        self._server: Server | None = None
        self._queue: Queue | None = None
        self._opening = asyncio.Lock()
        self._closed = True
        self._bodies: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(0)
        self._released: asyncio.Future[None] | None = None

    @classmethod
    def of(cls, server: Server) -> Docket | None:
        """The docket of a server; None if it runs its tasks itself."""
        docket = _dockets.get(server)
        return None if docket is None else docket()

    def attach(self, server: Server) -> None:
        """Give the tasks of this server to workers."""
        if self._server is not None or server in _dockets:
            raise DeclarationError("a server has one docket, and a docket one server: enable_extension(Docket()) once")
        self._server = server
        _dockets[server] = ref(self)
        server.runtime.on_start.append(self._start)
        server.runtime.on_stop.append(self.close)

    def _start(self) -> None:
        self.where()
        self._closed = False
        tasks = self._tasks()
        if tasks is not None and tasks.runner is not self:
            if tasks.runner is not None:
                raise ConfigError("tasks go to one runner, and Tasks(runner=...) has another than the docket")
            tasks.runner = self

    def _tasks(self) -> Tasks | None:
        assert self._server is not None
        return Tasks.of(self._server)

    def where(self) -> str:
        """The URL of its Redis.

        Raises:
            ConfigError: The server has no store on Redis.
        """
        fleet = None if self._server is None else fleet_of(self._server)
        shared = fleet is not None and fleet.store.is_shared
        url = self._url or (fleet.url if fleet is not None else None) or ""
        scheme, _, rest = url.partition("://")
        scheme = scheme.lower()
        if not shared or not (scheme.startswith("redis") or scheme == "unix"):
            raise ConfigError(
                "tasks on a docket need a store on Redis, the same for servers and workers: "
                "--store redis://localhost, or store='redis://localhost'"
            )
        if scheme.endswith("+cluster"):  # one node is enough to find the others
            credentials, at, hosts = rest.partition("/")[0].rpartition("@")
            rest = f"{credentials}{at}{hosts.partition(',')[0]}"
        return f"{scheme}://{rest}"

    # --- the server's side

    async def begin(self, record: TaskRecord) -> None:
        """Put a task on the docket. If it waits there already, it keeps its place.

        Raises:
            ProtocolError: Too many wait (503).
            StoreUnavailable: Redis cannot be reached.
        """
        with self._unavailable():
            async with asyncio.timeout(OPERATION_TIMEOUT):
                queue = await self._open()
                if record.stamp <= _FRESH and await self._count(queue) >= self.most_waiting:
                    raise ProtocolError.internal_error(
                        f"{self.most_waiting} tasks wait for a worker already; try again later", status=503
                    )
                placed = await queue.add(_JOB, key=record.id)(record.id)
        if placed.disposition is self._library.Disposition.STRUCK:
            raise ProtocolError.internal_error("the server accepts no tasks at the moment; try again later", status=503)

    async def waiting(self) -> int:
        """How many tasks wait for a worker.

        Raises:
            StoreUnavailable: Redis cannot be reached.
        """
        with self._unavailable():
            async with asyncio.timeout(OPERATION_TIMEOUT):
                return await self._count(await self._open())

    async def _count(self, queue: Queue) -> int:
        keys = [queue.stream_key, queue.queue_key]
        return max(0, int(await self._evaluate(queue, _WAITING, keys, queue.worker_group_name)))

    async def _evaluate(self, queue: Queue, script: str, keys: list[str], *arguments: str) -> Any:
        async with queue.redis() as redis:
            client: Any = redis  # which can do more than the docket needs of it
            return await client.eval(script, len(keys), *keys, *arguments)

    @contextlib.contextmanager
    def _unavailable(self) -> Generator[None]:
        try:
            yield
        except TimeoutError:
            raise StoreUnavailable(f"the docket did not answer within {OPERATION_TIMEOUT:g} s") from None
        except (self._errors, OSError) as error:
            raise StoreUnavailable(f"the docket cannot be reached: {str(error) or type(error).__name__}") from None

    async def _open(self) -> Queue:
        async with self._opening:
            if self._closed:
                raise StoreClosed("the server has stopped, and with it its docket")
            if self._queue is None:
                # A finished job leaves nothing: its result is in the record.
                queue: Queue = self._library.Docket(
                    name=self.name,
                    url=self.where(),
                    heartbeat_interval=timedelta(seconds=_HEARTBEAT),
                    execution_ttl=timedelta(0),
                )
                queue.tasks.clear()
                queue.register(self._run, [_JOB])
                await queue.__aenter__()
                self._queue = queue
            return self._queue

    async def close(self) -> None:
        """The server stops."""
        async with self._opening:
            self._closed = True
            queue, self._queue = self._queue, None
            if queue is not None:
                await queue.__aexit__(None, None, None)
        self._opening = asyncio.Lock()  # the server may start again, in another loop

    # --- the worker's side

    async def work(
        self,
        *,
        concurrency: int = 10,
        drain: float = 30.0,
        stop: asyncio.Event | None = None,
        on_ready: Callable[[], object] | None = None,
    ) -> None:
        """Run tasks until `stop` is set, `concurrency` at a time. Starts the server, and stops it at the end.

        Then nothing more is taken, and what runs has `drain` seconds to end. After that it is stopped: a resumable task is
        left to another worker, any other fails and says why. Cancelled, it does so at once.

        Raises:
            ConfigError: There is no store on Redis, or no tool whose calls could be tasks.
        """
        server, tasks = self._server, None if self._server is None else self._tasks()
        if server is None or tasks is None:
            raise ConfigError("there is nothing to work on: no tool of this server is declared long_running")
        if concurrency < 1 or drain < 0:
            raise ConfigError(f"concurrency must be 1 or more, and drain 0 or more: not {concurrency!r}, {drain!r}")
        stop = stop or asyncio.Event()
        self.where()
        try:
            await server.start()
            self._slots = asyncio.Semaphore(concurrency)
            self._released = asyncio.get_running_loop().create_future()
            await self._work(concurrency, drain, stop, on_ready)
        finally:
            await server.stop()

    async def _work(
        self, concurrency: int, drain: float, stop: asyncio.Event, on_ready: Callable[[], object] | None
    ) -> None:
        assert self._server is not None
        fleet = fleet_of(self._server)
        assert fleet is not None
        queue = await self._open()
        worker: Worker = self._library.Worker(
            queue,
            name=f"{platform.node()}#{os.getpid()}#{fleet.name}",
            concurrency=concurrency,
            redelivery_timeout=timedelta(seconds=self.redelivery),
            reconnection_delay=timedelta(seconds=1),
            minimum_check_interval=timedelta(seconds=0.1),
            schedule_automatic_tasks=False,
        )
        stopping = asyncio.ensure_future(stop.wait())
        try:
            async with worker:
                taking = asyncio.ensure_future(self._take(queue, worker, stop))
                watching = asyncio.ensure_future(self._watch(queue, worker))
                try:
                    if on_ready is not None:
                        on_ready()
                    await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
                except asyncio.CancelledError:
                    drain = 0.0
                    raise
                finally:
                    stop.set()
                    watching.cancel()
                    cutting = asyncio.get_running_loop().call_later(drain, self._cut_short)
            await taking
            while self._bodies:  # which the docket has forgotten
                await asyncio.wait(self._bodies)
            cutting.cancel()
        finally:
            stopping.cancel()

    async def _take(self, queue: Queue, worker: Worker, stop: asyncio.Event) -> None:
        """Run the docket's own worker. An entry that it cannot read would end every worker, so it is removed."""
        pause = _PAUSES[0]
        while not stop.is_set():
            try:
                await worker.run_forever()
                return
            except Exception as error:
                incident("the docket", error)
                with contextlib.suppress(self._errors, OSError):
                    await self._remove_unreadable(queue, worker.name)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSES[1])

    async def _remove_unreadable(self, queue: Queue, worker: str) -> None:
        stream, group = queue.stream_key, queue.worker_group_name
        async with queue.redis() as redis:
            pending = await redis.xpending_range(stream, group, "-", "+", _MOST_LOOKED_AT, worker)
            for entry in pending:
                id = entry["message_id"]
                for _, message in await redis.xrange(stream, id, id):
                    try:
                        await self._library.Execution.from_message(queue, message, fallback_task=self._run, sync=False)
                    except Exception as error:
                        logger.error(
                            "a message on the docket was removed: it cannot be read (%s)", type(error).__name__
                        )
                        await redis.xack(stream, group, id)
                        await redis.xdel(stream, id)

    async def _watch(self, queue: Queue, worker: Worker) -> None:
        """Keep the docket's worker able to work.

        When it loses Redis, it takes nothing more until all that it has begun has ended, which may be hours. So it is told that
        this has happened; the bodies go on, and still count.
        """
        while True:
            await asyncio.sleep(_HEARTBEAT)
            try:
                async with asyncio.timeout(OPERATION_TIMEOUT):
                    seen = await self._evaluate(queue, _LAST_SEEN, [queue.workers_set], worker.name)
            except (TimeoutError, self._errors, OSError):
                continue
            if (seen is None or time.time() - float(seen) > 3 * _HEARTBEAT) and self._released is not None:
                self._released.set_result(None)
                self._released = asyncio.get_running_loop().create_future()

    async def _run(self, id: str) -> None:
        """The job of the docket. It lasts as long as the body, so that the docket delivers no more jobs than fit."""
        await self._slots.acquire()
        body = asyncio.ensure_future(self._run_record(id))
        self._bodies.add(body)
        body.add_done_callback(self._ran)
        assert self._released is not None
        await asyncio.wait({body, self._released}, return_when=asyncio.FIRST_COMPLETED)

    async def _run_record(self, id: str) -> None:
        """Run a task, or find that it is not ours to run. As long as it waits for somebody who got its id, that is us."""
        tasks = self._tasks()
        assert tasks is not None
        pause = _PAUSES[0]
        while True:
            try:
                if await tasks.run_record(id) or not await self._is_handed(tasks, id):
                    return
            except StoreClosed:
                return
            except StoreError as error:
                pause = max(pause, error.retry_after)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])

    async def _is_handed(self, tasks: Tasks, id: str) -> bool:
        """Whether the task is on the docket again: a body of this process has lost it, and has not ended yet."""
        record = await tasks.records.tasks.get(id)
        return record is not None and not record.is_terminal and record.worker == HANDED

    def _ran(self, body: asyncio.Task[None]) -> None:
        self._slots.release()
        self._bodies.discard(body)
        if not body.cancelled() and isinstance(error := body.exception(), Exception):
            incident("a task", error)

    def _cut_short(self) -> None:
        if self._bodies:
            logger.warning("%d tasks have not ended in time; they are stopped", len(self._bodies))
        for body in self._bodies:
            body.cancel()
