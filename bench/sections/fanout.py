"""One change, many listen streams: from the call that announces it to the last stream that has its bytes.

The streams are held by another process (`streams.py`), as raw sockets; it also makes the call, so its clock is the only one.
What it takes to read thousands of messages there is part of the time. The change is announced in the process that has the
streams, and in another one that shares a Redis with it.
"""

import contextlib
import resource
import statistics

import contenders as who
from databases import Redis
from plan import Live, Plan, served
from procs import BUSY, Neighbours, UnavailableError, exact_cpu_seconds
from report import Section, Series, compare, limit
from streams import Holder

SPARE_FILES = 500  # descriptors a server needs beside its streams
AT_MOST = 1.0
RIVALS = (who.SDK, who.FASTMCP)


def run(plan: Plan) -> Section:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES
    count = min(plan.streams, allowed)
    section = Section("fanout", f"A change announced to {count:,} listen streams")
    if count < plan.streams:
        section.notes.append(f"The limit of open files allows only {count:,} streams here, not {plan.streams:,}.")
    others: list[float] = []
    alone, alone_cost = _alone(plan, count, who.FLEET, others)
    shared, shared_cost = _shared(plan, count, others)
    rivals = {rival.key: _alone(plan, count, rival, [], times=2)[0] for rival in RIVALS}  # one takes seconds there
    section.rows += [
        limit("announced in the process with the streams", alone, unit="s", at_most=AT_MOST),
        limit("announced in another process, by way of Redis", shared, unit="s", at_most=AT_MOST),
        compare("announced in the process with the streams", rivals["sdk"], alone, unit="s"),
        compare("announced in the process with the streams", rivals["fastmcp"], alone, unit="s"),
        compare("processor time of the process with the streams", alone_cost, shared_cost, unit="s"),
    ]
    foreign = statistics.median(others) if others else 0.0
    section.notes.append(f"Other processes took {foreign:.0%} of the machine.")
    for row in section.rows:
        if row.ok is False and foreign > BUSY:
            row.ok = None
            section.notes.append(f"Not judged: {row.what}. The machine was busy with other things; run it again.")
    section.notes.append(
        "FastMCP has no `subscriptions/listen`. mcp has it in one process only, with a limit of 1,024 that is lifted here."
    )
    section.series = {
        "alone": alone,
        "shared": shared,
        **rivals,
        "alone_cpu": alone_cost,
        "shared_cpu": shared_cost,
        "others": others,
    }
    return section


def _alone(
    plan: Plan, count: int, contender: who.Contender, others: list[float], times: int | None = None
) -> tuple[Series, Series]:
    seconds, cost = Series(contender.label), Series("announced there")
    try:
        with served(contender, plan) as live:
            _poke(times or plan.rounds, live, count, live.port, seconds, cost, others)
    except Exception as error:
        seconds.failure = cost.failure = str(error)[:200] or type(error).__name__
    return seconds, cost


def _shared(plan: Plan, count: int, others: list[float]) -> tuple[Series, Series]:
    seconds, cost = Series("trimaran"), Series("announced elsewhere")
    try:
        with contextlib.ExitStack() as stack:
            url = stack.enter_context(Redis()).url()
            here, there = (stack.enter_context(served(who.FLEET, plan, "--store", url)) for _ in range(2))
            _poke(plan.rounds, here, count, there.port, seconds, cost, others)
    except Exception as error:
        seconds.failure = cost.failure = str(error)[:200] or type(error).__name__
    return seconds, cost


def _poke(times: int, live: Live, count: int, port: int, seconds: Series, cost: Series, others: list[float]) -> None:
    with Holder(who.OURS.python, live.port, count) as holder:
        opened = holder.answer()
        if opened["acked"] != count:
            raise UnavailableError(f"only {opened['acked']} of {count} streams were acknowledged")
        for _ in range(times):
            before, neighbours = exact_cpu_seconds(live.process.pid), Neighbours(live.process.pid, holder.popen.pid)
            seconds.values.append(holder.poke(count, port))
            cost.values.append(exact_cpu_seconds(live.process.pid) - before)
            others.append(neighbours.share())
