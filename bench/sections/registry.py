"""A registry of 10,000 tools: calls must stay as fast as with 10, and registering must not take for ever."""

import json
import subprocess
from collections.abc import Callable

import contenders as who
from plan import Plan, call_rate, rounds, served
from procs import UnavailableError
from report import Section, compare

MANY, FEW = 10_000, 10
PATIENCE = 180


def run(plan: Plan) -> Section:
    section = Section("registry", f"{MANY:,} tools registered")
    rates = _call_rates(plan)
    section.rows.append(
        compare(f"tools/call with {MANY:,} tools", rates["few"], rates["many"], unit="req/s", at_least=0.9)
    )
    times = rounds(1, {one.key: (one.label, _registration(one)) for one in (who.OURS, who.SDK, who.FASTMCP)})
    section.rows += [
        compare(f"registering {MANY:,} typed tools", times["sdk"], times["ours"], unit="s"),
        compare(f"registering {MANY:,} typed tools", times["fastmcp"], times["ours"], unit="s"),
    ]
    section.series = {"rates": rates, "registration": times}
    return section


def _call_rates(plan: Plan):
    """Measure ours with few and with many tools, both servers up at once."""
    live: dict[str, object] = {}
    try:
        with served(who.OURS, plan, "--tools", str(FEW)) as few, served(who.OURS, plan, "--tools", str(MANY)) as many:
            measures = {
                "few": (f"ours with {FEW} tools", call_rate(few, plan, "add", "modern")),
                "many": (f"ours with {MANY:,} tools", call_rate(many, plan, "add", "modern")),
            }
            return rounds(plan.rounds, measures)
    except UnavailableError as error:
        live = {"few": str(error), "many": str(error)}
    return rounds(
        1, {key: (f"ours, {key} tools", call_rate(reason, plan, "add", "modern")) for key, reason in live.items()}
    )  # type: ignore[arg-type]


def _registration(contender: who.Contender) -> Callable[[], float]:
    def measure() -> float:
        command = contender.command("--tools", str(MANY), "--time-registration")
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
