"""A store of tasks by itself, without a server: how long `create` and `get` take, with so many in it.

    python probes/task_store.py redis://127.0.0.1:6379/0

Driven by lines on stdin, answered by one JSON line each:

    fill 1000     keep so many tasks, done by now            {"ids": [some that are nobody's]}
    create 500    make so many more, one after the other     {"us": 81.2, "cpu_us": 70.4}, for one; then they are deleted
    get 500       look so many up, each time the same        {"us": 40.1, "cpu_us": 38.7}, for one

`us` is by the clock, `cpu_us` what the processor did, here and in Redis.

Half of the tasks are nobody's, as those of callers without a name are; of the others, each caller has a hundred. Those that
are looked up were chosen by chance, some hundreds of them: as clients do, which ask for their own again and again. With all
of them in turn it is the caches of the processor that one measures: a few tenths of a microsecond.
"""

import asyncio
import contextlib
import json
import random
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import uvloop
from redis.asyncio import Redis

from trimaran.state import Store, TaskRecord, open_store

TOGETHER = 64
PER_CALLER = 100
MOST = 1_000  # of one caller, as a server asks for
CHOSEN = 400
KEPT_MS = 3_600_000
RESULT = b'{"content":[{"type":"text","text":"42222"}],"structuredContent":42222}'
ARGUMENTS = b'{"a":20000,"b":22222}'


class Probe:
    def __init__(self, store: Store, redis: Any) -> None:
        self.tasks = store.tasks
        self.redis = redis
        self.ids: dict[str, str] = {}
        """With their owners."""
        self.chosen: list[str] = []
        self.made = 0

    def draft(self, *, is_done: bool) -> TaskRecord:
        now = int(time.time() * 1000)
        self.made += 1
        return TaskRecord(
            id=f"task_{secrets.token_hex(16)}",
            owner="" if self.made % 2 else f"caller-{self.made // (2 * PER_CALLER)}",
            name="job",
            arguments=ARGUMENTS,
            status="completed" if is_done else "working",
            result=RESULT if is_done else None,
            created_ms=now,
            updated_ms=now,
            ttl_ms=KEPT_MS,
            poll_ms=1_000,
            expires_ms=now + KEPT_MS,
        )

    async def make(self, record: TaskRecord) -> None:
        await self.tasks.create(record, most=MOST if record.owner else None)

    async def fill(self, count: int) -> dict[str, Any]:
        while count > 0:
            drafts = [self.draft(is_done=True) for _ in range(min(count, TOGETHER))]
            await asyncio.gather(*map(self.make, drafts))
            self.ids |= {draft.id: draft.owner for draft in drafts}
            count -= len(drafts)
        self.chosen = random.sample(list(self.ids), CHOSEN)
        return {"ids": random.sample([id for id, owner in self.ids.items() if not owner], CHOSEN)}

    async def create(self, count: int) -> dict[str, Any]:
        drafts = [self.draft(is_done=False) for _ in range(count)]
        took = await self.timed(count, (self.make(draft) for draft in drafts))
        for draft in drafts:
            await self.tasks.delete(draft.id)
        return took

    async def get(self, count: int) -> dict[str, Any]:
        return await self.timed(count, (self.look(self.chosen[turn % CHOSEN]) for turn in range(count)))

    async def look(self, id: str) -> None:
        if await self.tasks.get(id) is None:
            raise RuntimeError(f"{id} is gone")

    async def timed(self, count: int, steps: Iterable[Awaitable[None]]) -> dict[str, Any]:
        used, started = await self.used_seconds(), time.perf_counter()
        for step in steps:
            await step
        took, used = time.perf_counter() - started, await self.used_seconds() - used
        return {"us": took / count * 1e6, "cpu_us": used / count * 1e6}

    async def used_seconds(self) -> float:
        """Processor time of this process, and of Redis by its own account."""
        used = time.process_time()
        if self.redis is not None:
            info = await self.redis.info("cpu")
            used += info["used_cpu_user"] + info["used_cpu_sys"]
        return used


async def converse(url: str) -> None:
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(url))
        is_redis = url.startswith("redis://")
        # Without the namespace, which is ours and not Redis's.
        redis = await stack.enter_async_context(Redis.from_url(url.partition("?")[0])) if is_redis else None
        probe = Probe(store, redis)
        steps: dict[str, Callable[[int], Coroutine[Any, Any, dict[str, Any]]]] = {
            "fill": probe.fill,
            "create": probe.create,
            "get": probe.get,
        }
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).split():
            print(json.dumps(await steps[line[0]](int(line[1]))), flush=True)


if __name__ == "__main__":
    uvloop.run(converse(sys.argv[1]))
