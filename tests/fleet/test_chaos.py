"""Servers are killed, Redis is restarted, its network is cut, and nobody who was told that something is done was told wrong.

Each test runs some hundred calls, for the suite; with TRIMARAN_CHAOS=10000 (`make chaos`) it runs that many, and prints a table.
What must hold is said in verdict.py.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from .jobs import Report
from .load import client_load
from .rig import HERE, TOOLS, Rig, rig
from .verdict import HEARING, OUTAGES, RELISTENING, judge, table

CALLS = int(os.environ.get("TRIMARAN_CHAOS") or 500)
IS_FULL = "TRIMARAN_CHAOS" in os.environ
DEADLINE = 15.0  # seconds a call may take: more than a store's patience, and than a cut of its network
HANDS = 6  # calls at a time, of each client
PACE = 3.0 if IS_FULL else 2.0  # seconds from the recovery of one process to the death of the next
AWAY = 10.0 if IS_FULL else 3.0  # seconds the network is cut
PYTHON = TOOLS / "peers" / "sdk" / "bin" / "python"

pytestmark = pytest.mark.deadline(3600 if IS_FULL else 400)

Fate = Callable[[Rig], Coroutine[Any, Any, None]]


class SdkClient:
    """The official SDK's client in a process of its own (see sdk_load.py)."""

    def __init__(self, process: asyncio.subprocess.Process, report: Path) -> None:
        self._process = process
        self._report = report

    async def hear(self, word: str) -> None:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line.decode().strip() == word, f"the SDK's client did not come to be {word!r}: {line!r}"

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def report(self) -> Report:
        assert await self._process.wait() == 0
        return Report.read(self._report)


@asynccontextmanager
async def sdk_client(fleet: Rig, count: int, url: str = "", *kinds: str) -> AsyncIterator[SdkClient]:
    assert PYTHON.exists(), f"{PYTHON} is missing: run `make setup`"
    report = fleet.folder / "sdk.json"
    words = [str(HERE / "sdk_load.py"), url or fleet.url, str(count), str(HANDS), str(DEADLINE), str(report)]
    words += [",".join(kinds)] if kinds else []
    with (fleet.folder / "sdk.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            str(PYTHON), *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log
        )
    try:
        client = SdkClient(process, report)
        await client.hear("ready")
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def hear_out(reports: list[Report], fleet: Rig) -> None:
    """A client may still be on its way back to its stream: give it the time it has."""
    deadline = time.monotonic() + HEARING + RELISTENING
    while judge(reports, fleet.faults, fleet.entries()).unheard and time.monotonic() < deadline:
        await asyncio.sleep(0.5)


async def kill_in_turn(fleet: Rig) -> None:
    for number in itertools.count():
        await asyncio.sleep(PACE)
        await fleet.kill_and_restart(number % len(fleet.servers))


async def vex_workers_in_turn(fleet: Rig) -> None:
    """Of one server after the other a worker is killed, one told to end, all replaced, and the supervisor killed."""
    for number in itertools.count():
        for vex in (
            lambda which: fleet.end_worker(which, "kill"),
            lambda which: fleet.end_worker(which, "term"),
            fleet.roll,
            fleet.orphan,
        ):
            await asyncio.sleep(PACE)
            await vex(number % len(fleet.servers))


async def weather(folder: Path, fate: Fate, vex: Fate = kill_in_turn, **options: Any) -> None:
    """All clients call, one process after the other is vexed, and fate strikes in the middle."""
    async with (
        rig(folder, **options) as fleet,
        client_load(fleet.url, "modern", DEADLINE) as modern,
        client_load(fleet.url, "legacy", DEADLINE) as legacy,
        sdk_client(fleet, CALLS * 2 // 5) as sdk,
    ):

        def is_enough() -> bool:
            for ended in (task for task in (struck, vexing) if task.done()):
                ended.result()  # a fault that could not be brought about ends the run, which would wait for it
            return done.done() and len(modern.report.jobs) >= CALLS * 2 // 5 and len(legacy.report.jobs) >= CALLS // 5

        async def strike() -> None:
            await asyncio.sleep(PACE * 1.5)
            await fate(fleet)
            async with asyncio.timeout(DEADLINE * 4):
                while sum(fault.is_over for fault in fleet.faults if fault.what not in OUTAGES) < ENOUGH[vex]:
                    await asyncio.sleep(0.05)
            sdk.tell()

        vexing = asyncio.create_task(vex(fleet))
        tasks = done, struck = [asyncio.create_task(one) for one in (sdk.hear("done"), strike())]
        try:
            await asyncio.gather(modern.run(HANDS, is_enough), legacy.run(HANDS // 2, is_enough))
            await asyncio.gather(*tasks)
            await stop_between_faults(fleet, vexing)
            await asyncio.gather(modern.settle(), legacy.settle())
            sdk.tell()
            reports = [modern.report, legacy.report, await sdk.report()]
            await hear_out(reports, fleet)
        finally:
            for task in (*tasks, vexing):
                task.cancel()
            await asyncio.gather(*tasks, vexing, return_exceptions=True)
    for report in reports:
        report.write(folder / f"{report.client}.json")
    (folder / "faults.json").write_text(json.dumps([asdict(fault) for fault in fleet.faults]))
    verdict = judge(reports, fleet.faults, fleet.entries())
    shown = table(verdict)
    if IS_FULL:
        print(f"\n{os.environ['PYTEST_CURRENT_TEST']}\n{shown}", file=sys.stderr)
    assert not verdict.problems, "\n".join([shown, *verdict.problems[:40], *verdict.failures[:40], fleet.logs()])
    assert not fleet.incidents(), fleet.logs()
    assert verdict.calls >= CALLS
    assert any(job.client == "sdk" and job.error is None for job in verdict.jobs)


async def stop_between_faults(fleet: Rig, vexing: asyncio.Task[None]) -> None:
    """A fleet that is left in the middle of something would not be there for those who still wait."""
    async with asyncio.timeout(60):
        while not all(fault.is_over for fault in fleet.faults):
            assert not vexing.done(), vexing.exception()
            await asyncio.sleep(0.01)
    vexing.cancel()


ENOUGH: dict[Fate, int] = {kill_in_turn: 2, vex_workers_in_turn: 4}
"""Faults that must be over before a run may end."""


async def nothing_more(fleet: Rig) -> None:
    await asyncio.sleep(PACE * 2)


async def test_servers_are_killed(tmp_path: Path) -> None:
    await weather(tmp_path, nothing_more)


async def test_workers_are_killed_and_told_to_end_and_replaced_and_lose_their_supervisor(tmp_path: Path) -> None:
    await weather(tmp_path, nothing_more, vex_workers_in_turn, servers=2, workers=2)


async def test_servers_are_killed_and_redis_is_restarted(tmp_path: Path) -> None:
    await weather(tmp_path, lambda fleet: fleet.restart_redis(away=1.0))


@pytest.mark.parametrize("how", ["refused", "silent"])
async def test_servers_are_killed_and_the_network_to_redis_is_cut(tmp_path: Path, how: str) -> None:
    await weather(tmp_path, lambda fleet: fleet.cut(how, AWAY))  # pyright: ignore[reportArgumentType]
