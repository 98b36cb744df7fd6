"""`make soak`: mixed load for half an hour, and what grows meanwhile.

    python -m tests.soak [--minutes 30]

Two servers. One process that nobody kills: memory, descriptors, tasks, threads and objects of it are sampled, and those of this
process, whose clients come and go. And two workers on a SQLite store, one of which is killed or terminated every few
seconds: here the supervisor is sampled, and its clients may lose calls, but must be served again.

After a warm-up of a quarter, and half a minute at least, the slope of each series is fitted. The exit code is 1 if one grows
beyond its limit, if a call to the server that nobody kills fails, or if a server is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.support.ports import find_port
from tests.support.program import Program

from trimaran import connect
from trimaran.errors import Error

from .figures import Limit, Series, measure_process, show
from .load import Account, User

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
USERS = 3  # of each era and server
KILL_EVERY = 7.0  # seconds
LIMITS = {
    "memory": Limit(0.5, 4.0),  # MB
    "descriptors": Limit(0.3, 4),
    "threads": Limit(0.2, 3),
    "children": Limit(0.1, 1),
    "tasks": Limit(0.5, 5),
    "objects": Limit(1500, 6000),
}
UNITS = {"memory": "MB"}


class Soak:
    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._began = time.monotonic()
        self._ends = self._began + seconds
        self.warm_up = min(max(30.0, seconds / 4), seconds / 2)
        self.series: dict[str, Series] = {}
        self.account = Account()
        self.kills = 0
        self.faults: list[str] = []

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self._ends

    def _start(self, name: str, *options: str) -> Program:
        port = find_port()
        command = [
            sys.executable,
            "-m",
            "trimaran.apps.cli",
            "serve",
            str(HERE / "served.py"),
            "--port",
            str(port),
            *options,
        ]
        program = Program(name, port, command, self._folder / f"{name}.log", PYTHONPATH=str(ROOT))
        program.start()
        return program

    def add(self, who: str, values: dict[str, float]) -> None:
        for what, value in values.items():
            name = f"{who}: {what}"
            series = self.series.setdefault(name, Series(name, LIMITS[what], UNITS.get(what, "")))
            series.add(time.monotonic() - self._began, value)

    async def run(self) -> None:
        alone = self._start("server")
        store = f"sqlite:///{self._folder / 'sessions.db'}"
        workers = self._start("supervisor", "--workers", "2", "--store", store)
        try:
            for program in (alone, workers):
                await program.wait_until_listening()
            await self._soak(alone, workers)
        finally:
            for program in (alone, workers):
                self._end(program)

    async def _soak(self, alone: Program, workers: Program) -> None:
        urls = {program.name: [f"http://127.0.0.1:{program.port}/mcp"] for program in (alone, workers)}
        async with asyncio.TaskGroup() as group:
            for number in range(USERS):
                for era in ("modern", "legacy"):
                    user = User(era, urls["server"], self.account, number)
                    other = User(era, urls["supervisor"], self.account, 100 + number, may_lose=True)
                    group.create_task(user.run(lambda: self.goes_on))
                    group.create_task(other.run(lambda: self.goes_on))
            group.create_task(self._kill(workers))
            group.create_task(self._sample(alone, workers, urls["server"][0]))
        await self._check_served(urls["supervisor"][0])
        for program in (alone, workers):
            if text := _unexpected(program.everything()):
                self.faults.append(f"{program.name} logged: {text}")

    async def _sample(self, alone: Program, workers: Program, url: str) -> None:
        pause = max(0.25, (self._ends - self._began) / 400)
        async with connect(url, timeout=30) as client:
            while self.goes_on:
                gc.collect()
                getattr(ctypes.CDLL(None), "malloc_trim", int)(0)  # what only the allocator keeps is no leak
                mine = {"tasks": len(asyncio.all_tasks()), "threads": threading.active_count()}
                self.add("client", {**measure_process(os.getpid()), **mine, "objects": len(gc.get_objects())})
                try:
                    vitals = (await client.call_tool("vitals")).data
                    self.add("server", {**measure_process(alone.pid), **vitals})
                    self.add("supervisor", measure_process(workers.pid))
                except (Error, OSError) as error:
                    self.faults.append(f"not sampled: {type(error).__name__}: {error}")
                    return
                await asyncio.sleep(pause)

    async def _kill(self, workers: Program) -> None:
        """End a worker now and then: -9, or asked."""
        chosen = random.Random(1)
        while self.goes_on:
            await asyncio.sleep(min(KILL_EVERY, max(0.1, self._ends - time.monotonic())))
            if not self.goes_on:
                return
            children = _children(workers.pid)
            if children:
                self.kills += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chosen.choice(children), chosen.choice([signal.SIGKILL, signal.SIGTERM]))

    async def _check_served(self, url: str) -> None:
        try:
            async with asyncio.timeout(30), connect(url, timeout=20) as client:
                await client.call_tool("add", {"a": 2, "b": 3})
        except (Error, OSError, TimeoutError) as error:
            self.faults.append(f"the workers serve nobody any more: {error}")

    def _end(self, program: Program) -> None:
        with contextlib.suppress(OSError, AssertionError):
            os.kill(program.pid, signal.SIGTERM)
            deadline = time.monotonic() + 10
            while _children(program.pid) and time.monotonic() < deadline:
                time.sleep(0.05)
        program.kill()

    def report(self) -> bool:
        """Print it all; whether all is well."""
        minutes = (time.monotonic() - self._began) / 60
        done = self.account.done
        print(
            f"{sum(done.values())} acts in {minutes:.1f} minutes, {self.kills} workers ended; fitted after {self.warm_up:.0f} s"
        )
        print(", ".join(f"{name} {count}" for name, count in sorted(done.items())))
        print(f"{'':34} {'median':>9}     {'slope':>12} {'growth':>8}")
        leaks = 0
        for series in self.series.values():
            leaks += series.after(self.warm_up).leaks
            print(show(series, self.warm_up))
        for error, count in self.account.errors.most_common(10):
            print(f"failed {count} times: {error}")
        for fault in self.faults:
            print(f"fault: {fault}")
        return not leaks and not self.account.errors and not self.faults and sum(done.values()) > 0


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _unexpected(log: str) -> str:
    """The line before the first traceback, or a complaint of asyncio."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("Traceback") or "never retrieved" in line or "never awaited" in line:
            return " / ".join(lines[max(0, number - 1) : number + 1] + lines[number + 1 :][-1:])[:300]
    return ""


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), options.minutes * 60)
        await soak.run()
    return 0 if soak.report() else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
