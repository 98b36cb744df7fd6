"""A worker of a store in a process of its own: `python store_worker.py URL what ...`. It says on stdout how far it is.

- `run FILE OWNER COUNT`: runs every task that is due, writing its id to FILE, until COUNT of OWNER's are over;
- `hold`: claims a task and sits on it;
- `answer NAME`: answers questions, backwards;
- `append SESSION COUNT`: appends events;
- `listen TOPIC COUNT`: says what it heard.
"""

from __future__ import annotations

import asyncio
import os
import sys

from msgspec.structs import replace

from trimaran.state import Gap, Store, TaskRecord, open_store


def say(*words: object) -> None:
    print(*words, flush=True)


async def claim_one(store: Store, seconds: float) -> TaskRecord:
    while True:
        for task in await store.tasks.due():
            mine = await store.tasks.claim(task.id, str(os.getpid()), seconds=seconds)
            if mine is not None:
                return mine
        await asyncio.sleep(0.02)


async def run(store: Store, file: str, owner: str, count: str) -> None:
    me = str(os.getpid())
    while True:
        for task in await store.tasks.due(limit=20):
            mine = await store.tasks.claim(task.id, me, seconds=30)
            if mine is None:
                continue
            with open(file, "ab", buffering=0) as log:
                log.write(task.id.encode() + b"\n")
            assert await store.tasks.update(replace(mine, status="completed", result=me.encode()))
        page = await store.tasks.list(owner, limit=1000)
        if len(page.tasks) == int(count) and all(task.is_terminal for task in page.tasks):
            return
        await asyncio.sleep(0.01)


async def main(url: str, what: str, *more: str) -> None:
    async with open_store(url) as store:
        if what == "run":
            say("ready")
            await run(store, *more)
            say("done")
        elif what == "hold":
            say((await claim_one(store, 0.5)).id)
            await asyncio.sleep(60)
        elif what == "answer":

            async def respond(data: bytes) -> bytes:
                return data[::-1]

            async with store.bus.answer(more[0], respond):
                say("ready")
                await asyncio.sleep(60)
        elif what == "append":
            for number in range(int(more[1])):
                await store.events.append(more[0], "g", b"%d" % number, ttl=60)
            await store.events.end(more[0], "g", ttl=60)
            say("done")
        elif what == "listen":
            async with store.bus.subscribe(more[0]) as heard:
                say("ready")
                count = 0
                async for item in heard:
                    assert not isinstance(item, Gap)
                    say(item.data.decode())
                    count += 1
                    if count == int(more[1]):
                        break


asyncio.run(main(*sys.argv[1:]))
