"""`make world`: run the programs people already have against Trimaran, and write docs/compatibility.md.

    python -m tests.world [--only NAME,KIND,...] [--jobs N] [--through modern|legacy]

Names are those of programs.toml and servers.toml; kinds are agents, frameworks, bridges, servers. One broken program
never stops the run. The exit code is 1 if something that should work does not, or if a name is unknown.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import re
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterable

from .agents import run_agent
from .catalog import Known, Program, RealServer, Surroundings, read_known, read_programs, read_servers
from .frameworks import BRIDGES, run_bridge, run_framework
from .install import Gone, NotInstalled, install
from .results import Row, Run, save, scrub, verdict
from .sandbox import open_sandbox, open_target
from .scenario import CALLS, calls_without
from .servers import compare


class World:
    """One run of `make world`."""

    def __init__(self, jobs: int, through: str = "") -> None:
        self._through = through
        self.known = read_known()
        self.matched: set[Known] = set()
        self.done: list[Row] = []
        self.total = 0
        self._slots = asyncio.Semaphore(jobs)
        self._installing = asyncio.Lock()
        self._began = time.monotonic()

    async def run(self, programs: list[Program], servers: list[RealServer], surroundings: Surroundings) -> None:
        work = [self._guarded(program, lambda p=program: self._run_program(p)) for program in programs]
        work += [self._guarded(server, lambda s=server: self._run_server(s, surroundings)) for server in servers]
        self.total = len(work)
        self.say(f"{self.total} programs, {len(CALLS)} calls each on every transport")
        await asyncio.gather(*work)

    async def _guarded(self, program: Program | RealServer, work: Callable[[], Awaitable[Row]]) -> None:
        async with self._slots:
            began = time.monotonic()
            try:
                async with self._installing:
                    await install(program.packages)
                row = await work()
            except NotInstalled as error:
                row = _row(program, skipped=str(error))
                if not isinstance(error, Gone):
                    row = _row(program, runs={"install": Run(False, [scrub(str(error))])})
            except Exception as error:
                traceback.print_exc()
                row = _row(program, runs={"run": Run(False, [scrub(f"{type(error).__name__}: {error}")])})
            self.done.append(row)
            if not self._through:
                save(row)
            self.say(f"({len(self.done)}/{self.total}) {summary(row)} [{time.monotonic() - began:.0f} s]")

    async def _run_program(self, program: Program) -> Row:
        runs: dict[str, Run] = {}
        calls = calls_without(program.without)
        if program.kind == "bridge":
            for bridge in BRIDGES[program.name]:
                async with open_sandbox() as sandbox, open_target(sandbox, bridge.server) as target:
                    faults = await run_bridge(bridge, program.packages, sandbox, target, calls)
                runs[f"{bridge.front} before {bridge.server}"] = self._judge(program, faults, bridge.because)
            return _row(program, runs=runs)
        run_client = run_agent if program.kind == "agent" else run_framework
        for transport in program.transports:
            async with (
                open_sandbox() as sandbox,
                open_target(sandbox, transport, program.without, through=self._through) as target,
            ):
                faults = await run_client(program.packages, sandbox, target, calls)
            runs[transport] = self._judge(program, faults, program.because)
        return _row(program, runs=runs)

    async def _run_server(self, server: RealServer, surroundings: Surroundings) -> Row:
        async with open_sandbox() as sandbox:
            comparison = await compare(server, surroundings, sandbox)
        ours, official = comparison.ours, comparison.official
        facts: dict[str, object] = {"note": server.note, "ours_s": ours.seconds, "official_s": official.seconds}
        if official.failure:
            facts |= {
                "official_failure": scrub(official.failure)[:300],
                "ours_failure": scrub(ours.failure or "")[:300],
            }
        facts |= {"revision": ours.revision, "tools": ours.lists.get("tools", ""), "ratio": comparison.ratio}
        return _row(server, runs={"stdio": self._judge(server, comparison.faults())}, facts=facts)

    def _judge(self, program: Program | RealServer, faults: list[str], because: str = "") -> Run:
        """`because`: a fault of the program that the run already makes allowance for."""
        reasons = [because] if because else list[str]()
        ours: list[str] = []
        for fault in map(scrub, faults):
            reason = next(
                (k.reason for k in self.known if k.program == program.name and re.search(k.fault, fault)), None
            )
            if reason is None:
                ours.append(fault)
            elif reason not in reasons:
                reasons.append(reason)
        return Run(not ours, ours, reasons)

    def say(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"{minutes:3}:{seconds:02} {text}", flush=True)


def _row(program: Program | RealServer, **what: object) -> Row:
    kind, title = (program.kind, program.title) if isinstance(program, Program) else ("server", program.name)
    package, version = program.packages.main
    today = datetime.date.today().isoformat()
    return Row(kind, program.name, title, package, version, today, **what)  # type: ignore[arg-type]


def summary(row: Row) -> str:
    if row.skipped:
        return f"{row.name}: skipped: {row.skipped}"
    ratio = f", ratio {row.facts['ratio']:.2f}" if row.facts.get("ratio") else ""
    if row.facts.get("official_failure"):
        ratio = ", starts with neither client"
    return f"{row.name}: " + "; ".join(f"{transport} {verdict(run)}" for transport, run in row.runs.items()) + ratio


def choose(
    names: Iterable[str], programs: list[Program], servers: list[RealServer]
) -> tuple[list[Program], list[RealServer]]:
    """The programs that the names stand for; a kind stands for all of it, a part of a name for every name with it."""
    chosen_programs, chosen_servers = list[Program](), list[RealServer]()
    for name in names:
        some_programs = [p for p in programs if name in (p.name, p.kind, f"{p.kind}s")]
        some_servers = [s for s in servers if name in (s.name, "server", "servers")]
        if not some_programs and not some_servers:
            some_programs = [p for p in programs if name in p.name]
            some_servers = [s for s in servers if name in s.name]
        if not some_programs and not some_servers:
            known = ", ".join(["agents", "frameworks", "bridges", "servers", *(p.name for p in programs)])
            sys.exit(f"error: nothing is named {name!r}. Known are {known}, and those of servers.toml.")
        chosen_programs += [p for p in some_programs if p not in chosen_programs]
        chosen_servers += [s for s in some_servers if s not in chosen_servers]
    return chosen_programs, chosen_servers


def main() -> int:
    parser = argparse.ArgumentParser(prog="make world", description=__doc__)
    parser.add_argument("--only", default="", help="names or kinds, with commas between them")
    parser.add_argument("--jobs", type=int, default=1, help="programs at the same time; times are truest with 1")
    parser.add_argument(
        "--through",
        default="",
        choices=["", "modern", "legacy"],
        help="put our proxy between, which speaks this era to the server",
    )
    options = parser.parse_args()
    programs, (servers, surroundings) = read_programs(), read_servers()
    names = [name for name in options.only.split(",") if name]
    if names:
        programs, servers = choose(names, programs, servers)
    world = World(options.jobs, options.through)
    try:
        asyncio.run(_until_told_to_stop(world.run(programs, servers, surroundings)))
    except asyncio.CancelledError:
        print("\nstopped; the rows of the programs that were done are written", flush=True)
    return conclude(world)


async def _until_told_to_stop(work: Coroutine[None, None, None]) -> None:
    """Cancel the work on a signal, so that what was started is ended: a plain death would leave it behind."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await task


def conclude(world: World) -> int:
    """The table at the end, and the exit code. A run that was stopped has failed."""
    failed = [row for row in world.done if row.failed]
    print("\n" + "\n".join(sorted(summary(row) for row in world.done)))
    for row in failed:
        for transport, run in row.runs.items():
            print("".join(f"\n{row.name} on {transport}: {fault}" for fault in run.faults), end="")
    ran = {row.name for row in world.done if not row.skipped}
    for known in world.known:
        if known.program in ran and known not in world.matched:
            print(
                f"\n{known.program} no longer shows the fault {known.fault!r}: its entry in known.toml can go", end=""
            )
    skipped = sum(bool(row.skipped) for row in world.done)
    print(f"\n\n{len(world.done) - len(failed) - skipped} work, {len(failed)} fail, {skipped} skipped")
    return 1 if failed or len(world.done) < world.total else 0


if __name__ == "__main__":
    sys.exit(main())
