"""`make attack`: hostile peers against a real server and a real client, while a bystander's calls are timed.

    python -m tests.attack [--only WORDS,...] [--seconds 3] [--list]

Two tables. The first: hostile clients, each against a server of its own, in both eras, or against a gateway or a proxy
before a hostile server. The second: hostile servers against our client, whose calls have a deadline of two seconds. The exit
code is 1 if a limit is broken.

The limits: the p99 of a bystander is at most ten times its idle p99, or 10 ms where that is more, and never over 100 ms. An idle
p99 can be 0.8 ms, and ten times that is less than one turn of a busy machine's scheduler. The server lives, gives back
its memory and its descriptors, and serves a newcomer everything. It serves nothing that it should refuse.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import hostile_servers
from .attacker import ATTACKS
from .hostile_clients import Attack, token
from .rig import ROOT, Bystander, Latency, Sample, Target, check_served

MAX_P99 = 100.0  # ms
MAX_RATIO = 10.0
MIN_P99 = 10.0  # ms: up to here the ratio does not count
MAX_PEAK = 200.0  # MB while attacked: four bodies of 8 MB, several times over
MAX_GROWTH = 64.0  # MB that stay: twice the budgets that target.py sets, so that a row shows that they hold
MAX_DESCRIPTORS = 8  # that stay
IDLE_SECONDS = 1.0
UPSTREAM_PATHS = {"keys": "/keys", "gateway": hostile_servers.PRIVATE}
TRIES = 3


@dataclass
class Row:
    attack: str
    answers: dict[str, int] = field(default_factory=dict[str, int])
    latency: Latency = field(default_factory=lambda: Latency.of([]))
    ratio: float = 0.0
    peak: float = 0.0
    growth: float = 0.0
    descriptors: int = 0
    tracebacks: int = 0
    faults: list[str] = field(default_factory=list[str])

    @property
    def is_slow(self) -> bool:
        return any(fault.startswith("p99") for fault in self.faults)


class Run:
    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._idle: list[Sample] = []

    @property
    def idle(self) -> Latency:
        return Latency.of(self._idle)

    async def measure(self, attack: Attack) -> Row:
        """Three times at most where calls were slow: a neighbour of this machine is not there each time, a fault is."""
        rows: list[Row] = []
        while len(rows) < TRIES:
            rows.append(await self._measure_once(attack))
            if not rows[-1].is_slow:
                break
        return min(rows, key=lambda row: row.latency.p99)

    async def _measure_once(self, attack: Attack) -> Row:
        row = Row(attack.name)
        credentials = token() if attack.server in ("guarded", "keys", "gateway") else ""
        async with contextlib.AsyncExitStack() as stack:
            upstream = ""
            if attack.upstream:
                upstream = await stack.enter_async_context(hostile_servers.at_work())
                upstream += hostile_servers.path_of(attack.upstream) + UPSTREAM_PATHS.get(attack.server, "")
            target = await stack.enter_async_context(Target(self._folder, attack.server, upstream).run())
            options = ["--path", target.path]
            options += ["--token", credentials] if credentials else []
            options += ["--tls"] if attack.server == "tls" else []
            bystander = Bystander()
            async with bystander.watch(target.port, *options):
                await self._wait_idle(bystander)
                memory, descriptors = target.memory, target.descriptors
                watching = asyncio.create_task(target.watch_memory())
                begin = time.monotonic()
                row.answers = await self._attack(attack, target.port)
                end = time.monotonic()
                await bystander.settle()
                row.latency = bystander.between(begin, end)
                await target.settle(descriptors)
                watching.cancel()
                if target.is_alive:
                    row.peak, row.growth = target.peak - memory, target.memory - memory
                    row.descriptors = target.descriptors - descriptors
                    row.faults += await check_served(target, credentials)
                else:
                    row.faults.append("THE SERVER IS DOWN")
            row.tracebacks = target.tracebacks()
        self._judge(row)
        return row

    async def _wait_idle(self, bystander: Bystander) -> None:
        begin = time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        self._idle += [sample for sample in bystander.samples if sample.due >= begin]

    async def _attack(self, attack: Attack, port: int) -> dict[str, int]:
        arguments = ["-m", "tests.attack.attacker", attack.name, str(port), str(self._seconds)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(self._seconds * 3 + 30):
                output, errors = await process.communicate()
        except TimeoutError:
            return {"the attacker did not end": 1}
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            return {f"the attacker failed: {errors.decode().strip().splitlines()[-1]}": 1}
        return json.loads(output)

    def _judge(self, row: Row) -> None:
        idle, latency = self.idle, row.latency
        row.ratio = latency.p99 / idle.p99
        row.faults += [f"bystander: {fault}" for fault in latency.faults[:2]]
        if latency.p99 > MAX_P99:
            row.faults.append(f"p99 over {MAX_P99:.0f} ms")
        elif row.ratio > MAX_RATIO and latency.p99 > MIN_P99:
            row.faults.append(f"p99 over {MAX_RATIO:.0f} times idle and over {MIN_P99:.0f} ms")
        if row.peak > MAX_PEAK or row.growth > MAX_GROWTH:
            row.faults.append("memory")
        if row.descriptors > MAX_DESCRIPTORS:
            row.faults.append("descriptors")
        if row.answers.get("SERVED"):
            row.faults.append("SERVED WHAT IS FORBIDDEN")
        if any("attacker" in answer for answer in row.answers):
            row.faults.append("not measured")


def show_answers(answers: dict[str, int]) -> str:
    ordered = sorted(answers.items(), key=lambda item: -item[1])
    return ", ".join(f"{answer} x{count}" for answer, count in ordered if count)[:60]


def show(row: Row) -> str:
    latency = row.latency
    cells = [
        f"{row.attack:38}",
        f"{show_answers(row.answers):44}",
        f"{latency.p50:7.2f} {latency.p99:8.2f} {latency.most:8.1f}",
        f"{row.ratio:5.1f}x",
        f"{row.peak:+6.0f} {row.growth:+6.0f}",
        f"{row.descriptors:+4d}",
        f"{row.tracebacks:4d}",
        "ok" if not row.faults else "; ".join(row.faults)[:160],
    ]
    return "  ".join(cells)


HEADING = "  ".join(
    [
        f"{'hostile clients':38}",
        f"{'they were answered':44}",
        f"{'p50':>7} {'p99':>8} {'max ms':>8}",
        f"{'idle':>6}",
        f"{'peak':>6} {'after':>6}",
        " fds",
        "errs",
        "verdict",
    ]
)


def chosen(names: list[str], only: str) -> list[str]:
    words = [word.strip().lower() for word in only.split(",") if word.strip()]
    return [name for name in names if not words or any(word in name.lower() for word in words)]


async def attack_server(only: str, seconds: float, folder: Path) -> list[Row]:
    run = Run(folder, seconds)
    rows: list[Row] = []
    for name in chosen(list(ATTACKS), only):
        if not rows:
            print(HEADING, flush=True)
        rows.append(await run.measure(ATTACKS[name]))
        print(show(rows[-1]), flush=True)
    if rows:
        idle = run.idle
        print(f"idle: p50 {idle.p50:.2f}, p99 {idle.p99:.2f}, max {idle.most:.1f} ms", flush=True)
    return rows


async def attack_client(only: str, folder: Path) -> list[hostile_servers.Outcome]:
    names = chosen(list(hostile_servers.ATTACKS), only)
    if not names:
        return []
    async with Target(folder).run() as honest:
        return await hostile_servers.attack_client(names, f"http://127.0.0.1:{honest.port}/mcp")


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--only", default="", help="attacks whose names hold one of these words")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each attack")
    parser.add_argument("--list", action="store_true", help="the names of all attacks")
    options = parser.parse_args()
    if options.list:
        print("\n".join([*ATTACKS, *hostile_servers.ATTACKS]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        rows = await attack_server(options.only, options.seconds, Path(folder))
        outcomes = await attack_client(options.only, Path(folder))
    faults = sum(bool(row.faults) for row in rows) + sum(bool(outcome.faults) for outcome in outcomes)
    if not rows and not outcomes:
        print(f"no attack has {options.only!r} in its name; see --list", file=sys.stderr)
        return 2
    print(f"{len(rows) + len(outcomes)} attacks, {faults} broke a limit")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
