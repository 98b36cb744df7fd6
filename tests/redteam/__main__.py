"""`make redteam`: attacks on a host, without its defences and with them, and what the defences cost in false alarms.

    python -m tests.redteam [--experiments CHECKOUT] [--tools FILE ...] [--only WORDS]

The attacks: our own (`attacks.py`), mcpbait's modules (`bait.py`), and the servers of mcp-injection-experiments, if the path of a
checkout is given. The column `other` says whether cisco-ai-mcp-scanner flags a text that the model read. The exit code is 1 if an attack
fails undefended, or succeeds defended, or if more than 0.5% of the honest definitions of FILE would ask.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from .attacks import ATTACKS
from .bait import MODULES, run_bait
from .beside import flagged
from .experiments import EXPERIMENTS, INSIDE, experiments, run_experiment
from .false_alarms import Alarms, count_alarms, count_text_alarms, read_tools
from .rig import Rig

TOOLS = Path(__file__).resolve().parents[2] / ".tools" / "redteam"
MOST_ALARMS = 0.005  # of honest definitions


class Row(NamedTuple):
    name: str
    undefended: Rig
    defended: Rig

    @property
    def is_good(self) -> bool:
        return bool(self.undefended.loot) and not self.defended.loot


async def _measure(name: str, run: Callable[[Rig], Awaitable[None]]) -> Row:
    rigs: list[Rig] = []
    for is_defended in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            rig = Rig(is_defended, Path(folder))
            await run(rig)
            rigs.append(rig)
    return Row(name, *rigs)


async def _attacks(only: str, checkout: Path | None) -> list[Row]:
    rows = [await _measure(attack.name, attack.run) for attack in ATTACKS if only in attack.name]
    bait = TOOLS / "mcpbait"
    if (bait / "bin").exists():
        for module in MODULES:
            if only in f"mcpbait: {module}":
                rows.append(
                    await _measure(f"mcpbait: {module}", lambda rig, module=module: run_bait(rig, bait, module))
                )
    if checkout is not None:
        with tempfile.TemporaryDirectory() as folder:
            async with experiments(checkout, TOOLS / "experiments", Path(folder)) as base:
                for name in EXPERIMENTS:
                    if only in f"experiments: {name}":
                        rows.append(
                            await _measure(
                                f"experiments: {name}", lambda rig, name=name: run_experiment(rig, base, name)
                            )
                        )
    return rows


async def _beside(rows: list[Row]) -> list[str]:
    """What the other scanner says about the texts of each row."""
    if not (TOOLS / "scanner" / "bin").exists():
        return ["-"] * len(rows)
    texts = [text for row in rows for text in row.undefended.texts]
    with tempfile.TemporaryDirectory() as folder:
        verdicts = iter(await flagged(texts, TOOLS / "scanner", Path(folder)))
    flags = [sum(next(verdicts) for _ in row.undefended.texts) for row in rows]
    return ["flags" if count else "silent" for count in flags]


def _print_rows(rows: list[Row], others: list[str]) -> None:
    width = max((len(row.name) for row in rows), default=10)
    print(f"{'attack':<{width}}  {'undefended':<10}  {'defended':<8}  {'other':<6}  by")
    for row, other in zip(rows, others, strict=True):
        before = "succeeds" if row.undefended.loot else "FAILS"
        after = "SUCCEEDS" if row.defended.loot else "stopped"
        print(f"{row.name:<{width}}  {before:<10}  {after:<8}  {other:<6}  {', '.join(row.defended.stops)}")
    stopped, succeeded = sum(not row.defended.loot for row in rows), sum(bool(row.undefended.loot) for row in rows)
    print(
        f"\n{len(rows)} attacks: {succeeded} succeed undefended, {stopped} are stopped defended; the other scanner flags {others.count('flags')}."
    )


async def _print_alarms(files: list[Path]) -> list[Alarms]:
    print(f"\n{'false alarms':<30}  {'looked at':>9}  {'ask':>4}  {'warn':>4}")
    alarms = [count_text_alarms()]
    _print_alarm(alarms[0])
    for file in files:
        servers = read_tools(file)
        print(f"{file.name}:")
        for alarm in count_alarms(servers):
            _print_alarm(alarm)
            alarms.append(alarm)
        if (TOOLS / "scanner" / "bin").exists():
            descriptions = [tool.description or "" for tools in servers.values() for tool in tools]
            with tempfile.TemporaryDirectory() as folder:
                verdicts = await flagged(descriptions, TOOLS / "scanner", Path(folder))
            _print_alarm(Alarms("the other scanner", len(verdicts), sum(verdicts), 0))
    return alarms


def _print_alarm(alarm: Alarms) -> None:
    more = f"  {', '.join(alarm.examples)}" if alarm.examples else ""
    print(f"{alarm.defence:<30}  {alarm.looked_at:>9,}  {alarm.asks:>4}  {alarm.warns:>4}{more}")


async def _main() -> int:
    parser = argparse.ArgumentParser(prog="tests.redteam")
    parser.add_argument("--experiments", type=Path, help="a checkout of mcp-injection-experiments")
    parser.add_argument("--tools", type=Path, nargs="*", default=[], help="definitions of honest servers")
    parser.add_argument("--only", default="", help="attacks with this in their name")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the host warns of each attack
    rows = await _attacks(given.only, given.experiments.resolve() if given.experiments else None)
    _print_rows(rows, await _beside(rows))
    if given.experiments:
        inside = ", ".join(f"{name} ({ours})" for name, ours in INSIDE.items())
        print(f"Inside their servers, where no host looks; ours stands for it: {inside}.")
    alarms = await _print_alarms(given.tools)
    definitions = [alarm for alarm in alarms if alarm.defence in ("words of definitions", "names beside all others")]
    is_quiet = all(alarm.asks <= MOST_ALARMS * alarm.looked_at for alarm in definitions)
    return 0 if all(row.is_good for row in rows) and is_quiet else 1


sys.exit(asyncio.run(_main()))
