"""A task store that fails in a chosen moment, given to two servers as if they were two processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from tests.support.inside import inside
from tests.support.until import until

from trimaran import Context, Server
from trimaran.ext.tasks import Tasks
from trimaran.fleet import Fleet
from trimaran.state import MemoryStore, StoreClosed, StoreHealth, StoreUnavailable, TaskRecord

LEASE = 0.3
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


class RoughTasks:
    """Tasks of a store that may be told to fail: `trouble[method]` is raised before anything is done, `lost[method]` after."""

    def __init__(self, tasks: Any) -> None:
        self._tasks = tasks
        self.trouble: dict[str, Exception] = {}
        self.lost: dict[str, Exception] = {}
        self.calls: list[str] = []

    def away(self, *methods: str) -> None:
        for method in methods or ("get", "create", "update", "claim", "renew", "release", "delete", "due", "list"):
            self.trouble[method] = StoreUnavailable("the store is away", retry_after=0.01)

    def back(self) -> None:
        self.trouble.clear()
        self.lost.clear()

    def __getattr__(self, name: str) -> Any:
        async def work(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            error = self.trouble.get(name)
            if error is not None:
                await asyncio.sleep(0)
                raise error
            found = await getattr(self._tasks, name)(*args, **kwargs)
            if name in self.lost:
                raise self.lost.pop(name)
            return found

        return work


class RoughStore:
    is_shared = is_durable = True

    def __init__(self, base: MemoryStore) -> None:
        self.sessions, self.events, self.bus = base.sessions, base.events, base.bus
        self.tasks: Any = RoughTasks(base.tasks)

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        for method in ("get", "create", "update", "claim", "renew", "release", "delete", "due", "list", "sweep"):
            self.tasks.trouble[method] = StoreClosed("the store is closed")

    async def check(self) -> StoreHealth:
        return StoreHealth(True, 0.0)


class Process:
    def __init__(self, name: str, base: MemoryStore, **options: Any) -> None:
        self.name = name
        limits = {key: options.pop(key) for key in ("request_timeout",) if key in options}
        self.server = Server(name, version="1", **limits)
        self.tasks = Tasks(**{"poll": 0.05, "lease": LEASE, **options})
        self.server.enable_extension(self.tasks)
        store: Any = RoughStore(base)
        self.store: RoughTasks = store.tasks
        self.server.runtime.fleet = Fleet(self.server, store)

    async def die(self) -> None:
        await inside(self.server).runtime.fleet.store.close()


@asynccontextmanager
async def fleet(*names: str, declare: Callable[[Process], object], **options: Any) -> AsyncIterator[Any]:
    base = MemoryStore()
    processes = [Process(name, base, **options) for name in names]
    try:
        for one in processes:
            declare(one)
            await one.server.start()
        yield processes[0] if len(processes) == 1 else processes
    finally:
        for one in processes:
            await one.server.stop()
        await base.close()


async def reach(tasks: Tasks, id: str, *statuses: str) -> TaskRecord:
    async def there() -> TaskRecord | None:
        record = await tasks.get(id)
        return record if record.status in statuses else None

    return await until(there, f"{id} to be {' or '.join(statuses)}")


def reason(record: TaskRecord) -> str:
    assert record.status == "failed", record
    return msgspec.json.decode(record.error or b"{}")["message"]


def in_memory(**options: Any) -> tuple[Server, Tasks]:
    server, tasks = Server("alone", version="1"), Tasks(**{"poll": 0.05, **options})
    server.enable_extension(tasks)
    return server, tasks


def gated(harbour: dict[str, Any]) -> Callable[[Process], None]:
    def declare(one: Process) -> None:
        @one.server.tool(long_running=True)
        async def fragile(ctx: Context) -> str:
            harbour["began"].set()
            await harbour["go"].wait()
            return "arrived"

        @one.server.tool(long_running=True, resumable=True)
        async def sturdy(ctx: Context) -> str:
            await ctx.step("one", harbour["ledger"].append, f"one by {one.name}")
            harbour["began"].set()
            await harbour["go"].wait()
            await ctx.step("two", harbour["ledger"].append, "two")
            return "arrived"

    return declare


def a_harbour() -> dict[str, Any]:
    return {"began": asyncio.Event(), "go": asyncio.Event(), "ledger": []}
