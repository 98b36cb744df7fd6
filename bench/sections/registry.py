"""A registry of 10,000 tools: calls must stay as fast as with 10, and registering must not take for ever."""

import contextlib
import json
import subprocess
from collections.abc import Callable

import contenders as who
from plan import Live, Plan, call_rate, rounds, served
from procs import UnavailableError
from report import Section, Series, compare

MANY, FEW = 10_000, 10
PATIENCE = 180


def run(plan: Plan) -> Section:
    section = Section("registry", f"{MANY:,} tools registered")
    rates = _call_rates(plan)
    section.rows.append(
        compare(f"tools/call with {MANY:,} tools", rates["few"], rates["many"], unit="req/s", at_least=0.9)
    )
    count = MANY // 5 if plan.quick else MANY  # the slowest rival needs minutes for all of them
    times = rounds(1, {one.key: (one.label, _registration(one, count)) for one in (who.OURS, who.SDK, who.FASTMCP)})
    section.rows += [
        compare(f"registering {count:,} typed tools", times["sdk"], times["ours"], unit="s"),
        compare(f"registering {count:,} typed tools", times["fastmcp"], times["ours"], unit="s"),
    ]
    section.series = {"rates": rates, "registration": times}
    return section


def _call_rates(plan: Plan) -> dict[str, Series]:
    """Measure ours with few and with many tools, both servers up at once."""
    with contextlib.ExitStack() as stack:
        measures = {}
        for key, count in (("few", FEW), ("many", MANY)):
            live: Live | str
            try:
                live = stack.enter_context(served(who.OURS, plan, "--tools", str(count)))
            except UnavailableError as error:
                live = str(error)
            measures[key] = (f"ours with {count:,} tools", call_rate(live, plan, "add", "modern"))
        return rounds(plan.rounds, measures)


def _registration(contender: who.Contender, count: int) -> Callable[[], float]:
    def measure() -> float:
        command = contender.command("--tools", str(count), "--time-registration")
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, env=contender.environment(), check=True
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"not done after {PATIENCE} s") from None
        except subprocess.CalledProcessError as error:
            raise UnavailableError((error.stderr.strip().splitlines() or ["no message"])[-1]) from None
        return float(json.loads(done.stdout)["seconds"])

    return measure
