"""The calls a client makes of the fleet, and what became of each: the same for every client, whichever library it is of.

Run by the peers' interpreters too: nothing but the standard library may be imported here.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

WEIGHTS = {"add": 34, "list": 6, "read": 6, "record": 22, "slow": 10, "order": 8}
WEIGHTS |= {"voyage": 4, "errand": 2, "announce": 4, "post": 4}
TASKS = ("voyage", "errand")
BOARDS = [f"harbour://board/{number}" for number in range(50)]
"""What is posted to, one after the other: so many that what is heard of one can hardly be what was posted there before."""

SLACK = 10.0
"""Seconds by which a busy machine may be late in noticing that a deadline has passed."""
PAUSES = (0.02, 0.25)
"""Seconds a client thinks after an answer, so that there is time for something to happen to the fleet, and after a failure,
so that it does not run through all it has to do while nothing works."""


@dataclass
class Job:
    """One call: what it was, when, and how it ended."""

    client: str
    kind: str
    key: str
    deadline: float
    began: float = 0.0
    ended: float = 0.0
    """Both by the clock that all processes share."""
    seconds: float = 0.0
    error: str | None = "unfinished"
    """What kind of failure; None if it was answered, and rightly."""
    detail: str = ""
    server: str = ""
    """Behind a gateway: the server whose tool it is."""

    @property
    def board(self) -> str:
        return BOARDS[int(self.key.rpartition("-")[2]) % len(BOARDS)]

    @property
    def change(self) -> str | None:
        """What everybody who listens is to hear of it."""
        return {"announce": "tools", "post": self.board}.get(self.kind)

    @property
    def is_late(self) -> bool:
        return self.seconds > self.deadline + SLACK


@dataclass
class Report:
    """What a client did and heard."""

    client: str
    jobs: list[Job] = field(default_factory=list[Job])
    heard: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """Changes it was told of: when, and `tools`, the URI of a board, or `again` for "look again at everything"."""
    deaf_since: float | None = None
    """When it gave up listening, if it did."""
    sessions: list[str] = field(default_factory=list[str])
    """Why each session ended before its time."""
    notes: list[str] = field(default_factory=list[str])

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Report:
        found = json.loads(path.read_text())
        found["jobs"] = [Job(**job) for job in found["jobs"]]
        found["heard"] = [(at, what) for at, what in found["heard"]]
        return cls(**found)


class Wrong(Exception):
    """The call was answered, but not with what was asked for."""


def expect(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise Wrong(f"{found!r} instead of {wanted!r}")


def plan(
    client: str, deadline: float, *, seed: int = 1, kinds: Collection[str] = WEIGHTS, servers: Sequence[str] = ()
) -> Iterator[Job]:
    """Calls without end, in an order that is the same each time."""
    chance = random.Random(f"{seed} {client}")
    number = 0
    while True:
        (kind,) = chance.choices(list(kinds), [WEIGHTS[kind] for kind in kinds])
        # The older servers behind a gateway have no tasks.
        able = [server for server in servers if kind not in TASKS or server.startswith("new")]
        yield Job(client, kind, f"{client}-{number}", deadline, server=chance.choice(able) if able else "")
        number += 1


async def perform(job: Job, do: Callable[[Job], Awaitable[None]], name_of: Callable[[Exception], str]) -> None:
    """One call, timed. It may fail, but not go on for ever."""
    job.began = time.time()
    started = time.monotonic()
    try:
        # The library under test has the same deadline, and is to keep it by itself: this is for one that does not.
        async with asyncio.timeout(job.deadline + 2 * SLACK):
            await do(job)
        job.error = None
    except Exception as error:
        job.error = "wrong" if isinstance(error, Wrong) else name_of(error)
        job.detail = f"{type(error).__name__}: {error}"[:400]
    finally:
        job.seconds = time.monotonic() - started
        job.ended = time.time()


async def work(
    report: Report,
    jobs: Iterator[Job],
    hands: int,
    is_enough: Callable[[], bool],
    one: Callable[[Job], Awaitable[None]],
) -> None:
    """So many calls at a time, until it is enough."""

    async def hand() -> None:
        while not is_enough():
            job = next(jobs)
            report.jobs.append(job)
            await one(job)
            await asyncio.sleep(PAUSES[job.error is not None])

    async with asyncio.TaskGroup() as group:
        for _ in range(hands):
            group.create_task(hand())
