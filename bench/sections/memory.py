"""Memory: an idle server, the same under load, and what one open listen stream costs at 10,000 of them.

Resident memory is summed over the server's process tree. The streams are held by another process (`streams.py`), so only
the server's share is counted. With the streams open, one change is announced: how long until the last stream has it?
"""

import resource
import time

import contenders as who
import load
from plan import CONNECTIONS, Live, Plan, served
from procs import UnavailableError, size
from report import Section, Series, compare, limit
from streams import Holder

SPARE_FILES = 500  # descriptors a server needs beside its streams
STREAM_SERVERS = (who.OURS, who.SDK, who.FASTMCP)


def run(plan: Plan) -> Section:
    section = Section("memory", "Memory")
    idle: dict[str, Series] = {}
    loaded: dict[str, Series] = {}
    for contender in (who.OURS, who.SDK, who.FASTMCP, who.ECHO_GRANIAN):
        idle[contender.key], loaded[contender.key] = _idle_and_loaded(contender, plan)
    section.rows += [
        limit("idle server, whole process tree", idle["ours"], unit="MB", at_most=45),
        compare("idle server, whole process tree", idle["sdk"], idle["ours"], unit="MB"),
        compare("idle server, whole process tree", idle["fastmcp"], idle["ours"], unit="MB"),
        limit("after load, whole process tree", loaded["ours"], unit="MB", at_most=45),
        compare("after load, whole process tree", loaded["sdk"], loaded["ours"], unit="MB"),
        compare("after load, whole process tree", loaded["fastmcp"], loaded["ours"], unit="MB"),
    ]
    section.notes.append(
        "RSS summed over the tree (pages shared inside the tree count once per process). For scale, a bare Granian ASGI "
        f"echo: {idle['echo-granian'].show('MB')} idle."
    )
    section.series = {"idle": idle, "loaded": loaded}
    _add_streams(section, plan)
    return section


def _idle_and_loaded(contender: who.Contender, plan: Plan) -> tuple[Series, Series]:
    idle, loaded = Series(contender.label), Series(contender.label)
    try:
        with served(contender, plan) as live:
            templates = load.call_templates(live.port, "add", "modern", CONNECTIONS)
            load.measure(live.port, templates[:1], seconds=5, limit=20)  # lazy imports of a first call belong to idle
            time.sleep(0.5)
            idle.values.append(size(live.process.pid).rss_mb)
            load.measure(live.port, templates, seconds=plan.seconds * 2)
            loaded.values.append(size(live.process.pid).rss_mb)
    except Exception as error:
        idle.failure = idle.failure or (None if idle.values else str(error))
        loaded.failure = str(error)
    return idle, loaded


def _add_streams(section: Section, plan: Plan) -> None:
    count = min(plan.streams, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES)
    if count < plan.streams:
        section.notes.append(f"The limit of open files allows only {count:,} streams here, not {plan.streams:,}.")
    cost: dict[str, Series] = {}
    reach: dict[str, Series] = {}
    opening: dict[str, Series] = {}
    for contender in STREAM_SERVERS:
        cost[contender.key], reach[contender.key], opening[contender.key] = (Series(contender.label) for _ in range(3))
        try:
            with served(contender, plan) as live:
                kilobytes, seconds, opened = _hold(live, count)
            cost[contender.key].values.append(kilobytes)
            reach[contender.key].values.append(seconds)
            opening[contender.key].values.append(opened)
        except Exception as error:
            for series in (cost, reach, opening):
                series[contender.key].failure = str(error)[:200] or type(error).__name__
    what = f"{count:,} listen streams"
    section.rows += [
        limit(f"{what}: memory per stream", cost["ours"], unit="KB", at_most=15),
        compare(f"{what}: memory per stream", cost["sdk"], cost["ours"], unit="KB"),
        compare(f"{what}: a change reaches all", reach["sdk"], reach["ours"], unit="s"),
        compare(f"{what}: opened and acknowledged in", opening["sdk"], opening["ours"], unit="s"),
        compare(f"{what}: memory per stream", cost["fastmcp"], cost["ours"], unit="KB"),
    ]
    section.series["streams"] = {"kb_per_stream": cost, "reach_seconds": reach, "open_seconds": opening}


def _hold(live: Live, count: int) -> tuple[float, float, float]:
    """Open the streams; return KB per stream, seconds until a change reached all, seconds to open them."""
    with Holder(who.OURS.python, live.port, 10) as warm:
        warm.answer(30)
    time.sleep(0.5)
    before = size(live.process.pid).rss_mb
    with Holder(who.OURS.python, live.port, count) as holder:
        opened = holder.answer()
        if opened["acked"] != count:
            raise UnavailableError(f"only {opened['acked']} of {count} streams were acknowledged")
        time.sleep(0.5)
        after = size(live.process.pid).rss_mb
        reached = holder.poke(count)
    return (after - before) * 1024 / count, reached, opened["seconds"]
