"""What a store behind legacy sessions costs: calls per second against the same server without one, and memory per session.

A call that is answered at once needs the store only every few seconds. One that streams writes each of its events behind, so
that any worker can go on with the stream; those writes are waited for here, and counted as part of the work.
"""

import contextlib
import time
from collections.abc import Callable

import contenders as who
import load
import messages
from databases import Redis, sqlite_folder, sqlite_url
from plan import CONNECTIONS, Live, Plan, rounds, served, unavailable
from procs import UnavailableError, exact_cpu_seconds, size
from report import Section, Series, compare, number

AT_LEAST = 0.6
DRAIN_SECONDS = 30
QUIET_SECONDS = 0.3
STEP_SECONDS = 0.05
IDLE = 0.1
REPORTS = 3  # as in servers/trimaran_fleet.py
EVENTS = REPORTS + 1  # each report, and the answer
LABELS = {"memory": "memory", "redis": "Redis", "sqlite": "SQLite"}
RIVALS = (who.SDK, who.FASTMCP)


def run(plan: Plan) -> Section:
    section = Section("stores", f"Legacy tools/call by store, 1 worker, {CONNECTIONS} connections")
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(Redis())
        folder = stack.enter_context(sqlite_folder())
        urls = {"memory": None, "redis": redis.url(), "sqlite": sqlite_url(folder / "calls.db")}
        live = {key: _started(stack, plan, url) for key, url in urls.items()}
        costs: dict[str, list[float]] = {}
        kept: list[float] = []
        measures = {}
        for kind, tool in (("plain", "add"), ("streamed", "report")):
            for key, label in LABELS.items():
                name = f"{kind} {key}"
                costs[name] = []
                watched = redis if key == "redis" and kind == "streamed" else None
                measures[name] = (label, _call_rate(live[key], plan, tool, costs[name], watched, kept))
        series = rounds(plan.rounds, measures)
        section.series = {"rates": series, "server_us": costs, "kept": kept}
    for kind, what in (("plain", "call answered at once"), ("streamed", f"call with {REPORTS} progress notifications")):
        memory = series[f"{kind} memory"]
        section.rows += [
            compare(f"{what}, Redis", memory, series[f"{kind} redis"], unit="req/s", at_least=AT_LEAST),
            compare(f"{what}, SQLite", memory, series[f"{kind} sqlite"], unit="req/s"),
        ]
        section.rows += [
            compare(
                f"{what}, {LABELS[key]}: server processor time",
                Series("memory", costs[f"{kind} memory"], memory.failure),
                Series(LABELS[key], costs[f"{kind} {key}"], series[f"{kind} {key}"].failure),
                unit="us",
            )
            for key in ("redis", "sqlite")
        ]
    if kept:
        section.notes.append(
            f"Redis keeps {number(sum(kept) / len(kept))} events of a streamed call, which has {EVENTS}: fewer would be events "
            "lost. The rate is until the last was kept, not only until the last answer."
        )
    _add_sessions(section, plan)
    return section


def _started(stack: contextlib.ExitStack, plan: Plan, url: str | None) -> Live | str:
    try:
        return stack.enter_context(served(who.FLEET, plan, *(["--store", url] if url else [])))
    except UnavailableError as error:
        return str(error)


def _call_rate(
    live: Live | str, plan: Plan, tool: str, costs: list[float], redis: Redis | None, kept: list[float]
) -> Callable[[], float]:
    if isinstance(live, str):
        return unavailable(live)
    is_behind = tool == "report"
    params = {"name": tool, "arguments": messages.ARGUMENTS, "_meta": {"progressToken": "bench"}}
    try:
        templates = [
            messages.http_template(
                live.port, "tools/call", params, era="legacy", session=messages.open_session(live.port)
            )
            for _ in range(CONNECTIONS)
        ]
        load.measure(live.port, templates, seconds=0.3)
        _settle(live)
    except Exception as error:
        return unavailable(str(error) or type(error).__name__)

    def measure() -> float:
        before = exact_cpu_seconds(live.process.pid)
        writes = 0 if redis is None else _events_kept(redis)
        outcome = load.measure(live.port, templates, seconds=plan.seconds)
        drained = _settle(live) if is_behind else 0.0
        costs.append((exact_cpu_seconds(live.process.pid) - before) / outcome.sent * 1e6)
        if redis is not None:
            kept.append((_events_kept(redis) - writes) / outcome.sent)
        return outcome.answers / (outcome.seconds + drained)

    return measure


def _settle(live: Live) -> float:
    """Wait until the server has nothing left to do; return how long it had.

    A server with SQLite looks for messages all the time: a tenth of a core is nothing to do.
    """
    started = last = time.monotonic()
    used = exact_cpu_seconds(live.process.pid)
    while time.monotonic() - last < QUIET_SECONDS:
        if time.monotonic() - started > DRAIN_SECONDS:
            raise UnavailableError(f"the server was still at work {DRAIN_SECONDS} s after the last answer")
        time.sleep(STEP_SECONDS)
        now = exact_cpu_seconds(live.process.pid)
        if now - used > IDLE * STEP_SECONDS:
            last = time.monotonic()
        used = now
    return last - started


def _events_kept(redis: Redis) -> int:
    return int(redis.fact("commandstats", "cmdstat_xadd:calls"))


# --- sessions --------------------------------------------------------------------------------------------------------


def _add_sessions(section: Section, plan: Plan) -> None:
    count = 500 if plan.quick else 3_000
    costs: dict[str, Series] = {}
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(Redis())
        in_redis = Series("in Redis itself")
        for key, label, extra in (
            ("memory", "memory", []),
            ("redis", "Redis, the worker", ["--store", redis.url()]),
        ):
            costs[key] = _sessions(
                Series(label), who.FLEET, plan, extra, count, redis if key == "redis" else None, in_redis
            )
        for rival in RIVALS:
            costs[rival.key] = _sessions(Series(rival.label), rival, plan, [], count)
    what = f"{count:,} idle legacy sessions: memory per session"
    section.rows += [
        compare(f"{what}, store in Redis", costs["memory"], costs["redis"], unit="KB"),
        compare(f"{what}, store in Redis", costs["sdk"], costs["redis"], unit="KB"),
        compare(f"{what}, store in Redis", costs["fastmcp"], costs["redis"], unit="KB"),
        compare(f"{what}, in Redis itself", costs["redis"], in_redis, unit="KB"),
    ]
    section.notes.append("A worker keeps only the sessions it has met; mcp and FastMCP keep theirs in their memory.")
    section.series["session_kb"] = {**costs, "in redis": in_redis}


def _sessions(
    series: Series,
    contender: who.Contender,
    plan: Plan,
    extra: list[str],
    count: int,
    redis: Redis | None = None,
    in_redis: Series | None = None,
) -> Series:
    try:
        with served(contender, plan, *extra) as live:
            for _ in range(50):
                messages.open_session(live.port)
            time.sleep(0.3)
            before, held = size(live.process.pid).rss_mb, redis.used_bytes() if redis else 0.0
            for _ in range(count):
                messages.open_session(live.port)
            time.sleep(0.3)
            series.values.append((size(live.process.pid).rss_mb - before) * 1024 / count)
            if redis is not None and in_redis is not None:
                in_redis.values.append((redis.used_bytes() - held) / 1024 / count)
    except Exception as error:
        series.failure = str(error)[:200] or type(error).__name__
    return series
