"""SIGTERM with 1,000 listen streams open: each should get its final result, and the process should exit soon."""

import time

import contenders as who
from plan import Plan, served
from procs import UnavailableError
from report import Row, Section, failed
from streams import Holder

EXIT_PATIENCE = 10


def run(plan: Plan) -> Section:
    section = Section("sigterm", f"SIGTERM with {plan.closing_streams:,} open listen streams")
    outcomes = {one.key: _terminate(one, plan) for one in (who.OURS, who.SDK)}
    section.series = outcomes
    ours, sdk = outcomes["ours"], outcomes["sdk"]
    exited = ours.get("exit_seconds")
    ended = ours.get("clean") == plan.closing_streams
    known = "failure" not in ours
    section.rows += [
        Row(
            "streams ended with a final result",
            f"mcp: {_streams(sdk, plan)}",
            _streams(ours, plan),
            budget="all",
            ok=ended if known else None,
        ),
        Row(
            "exit after SIGTERM",
            f"mcp: {_exit(sdk)}",
            _exit(ours),
            budget="<= 2 s",
            ok=(exited is not None and exited <= 2) if known else None,
        ),
    ]
    section.notes.append("mcp as its own `run` sets uvicorn up: without `timeout_graceful_shutdown`.")
    return section


def _terminate(contender: who.Contender, plan: Plan) -> dict:
    count = plan.closing_streams
    try:
        with served(contender, plan) as live, Holder(who.OURS.python, live.port, count) as holder:
            acked = holder.answer()["acked"]
            if acked != count:
                raise UnavailableError(f"only {acked} of {count} streams were acknowledged")
            holder.send(b"watch\n")
            holder.answer(10)
            live.process.popen.terminate()
            started = time.monotonic()
            gone = live.process.wait_gone(EXIT_PATIENCE)
            if gone is None:
                live.process.stop()
            outcome = holder.answer(30)
            return {**outcome, "exit_seconds": gone, "watched_seconds": time.monotonic() - started}
    except Exception as error:
        return {"failure": str(error)[:200] or type(error).__name__}


def _streams(outcome: dict, plan: Plan) -> str:
    if "failure" in outcome:
        return failed(outcome["failure"])
    return f"{outcome['clean']:,} of {plan.closing_streams:,} ended cleanly, {outcome['dropped']:,} dropped"


def _exit(outcome: dict) -> str:
    if "failure" in outcome:
        return failed(outcome["failure"])
    gone = outcome["exit_seconds"]
    return f"still running after {EXIT_PATIENCE} s (killed)" if gone is None else f"{gone:.2f} s"
