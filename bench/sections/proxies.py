"""tools/call through a proxy and a gateway, before the same server and in the same rounds as without one.

Proxies that stand before commands get the same server on stdio. Then what a gateway costs for each user, and whether it is as
fast for many users and many servers as for one.
"""

import random
import time
from collections.abc import Callable

import contenders as who
import load
from messages import Era
from plan import CONNECTIONS, Live, Plan, call_rate, rounds, serve_all, served
from procs import UnavailableError, size
from report import Section, Series, compare, limit
from streams import Holder

ERAS: tuple[Era, ...] = ("modern", "legacy")
BETWEEN = (who.RELAY_RAW, who.PROXY, who.GATEWAY, who.FASTMCP_PROXY, who.PROXY_OF_COMMAND, *who.OTHER_PROXIES)
TOOLS = {"gateway": "bench_add", "contextforge": "bench-add"}
USERS = 1000
SERVERS = 50


def run(plan: Plan) -> Section:
    section = Section("proxies", f"HTTP tools/call through a proxy, 1 worker each, {CONNECTIONS} connections")
    with serve_all((who.OURS,), plan) as target:
        upstream = target["ours"]
        url = "" if isinstance(upstream, str) else f"http://127.0.0.1:{upstream.port}/mcp"
        series = _measure_rates(plan, upstream, url)
        _add_scale(section, plan, url)
    section.series |= series
    for era in ERAS:
        _add_rates(section, series, era)
    section.notes += [
        "The proxy, the server behind it and the load share the machine's cores; without a proxy there is one process less. "
        "The slowest of the processes sets the rate, unless together they need more than the cores have: so its share of "
        "the direct rate is at most the server's processor time alone divided by the proxy's. "
        "mcp-proxy, supergateway and `trimaran serve -- COMMAND` have the server as a child, on stdio.",
        "The raw relay passes bytes on and reads none of them: what the two sockets more cost, and so the floor of any proxy.",
    ]
    return section


def _measure_rates(plan: Plan, upstream: Live | str, url: str) -> dict[str, Series]:
    measures: dict[str, tuple[str, Callable[[], float]]] = {}
    costs: dict[str, list[float]] = {}
    with serve_all(BETWEEN, plan, "--upstream", url) as live:
        for era in ERAS:
            for key, label, place in (
                ("direct", "trimaran, direct", upstream),
                *((between.key, between.label, live[between.key]) for between in BETWEEN),
            ):
                cost = costs[f"{era} {key}"] = []
                behind = None if place is upstream or isinstance(upstream, str) else upstream
                cost_behind = costs[f"{era} {key} behind"] = []
                measures[f"{era} {key}"] = (
                    label,
                    call_rate(place, plan, TOOLS.get(key, "add"), era, cost, behind=behind, costs_behind=cost_behind),
                )
        series = rounds(plan.rounds, measures)
    for key, values in costs.items():
        measured = series[key.removesuffix(" behind")]
        series[f"{key} cpu"] = Series(measured.label, values, measured.failure)
    return series


def _add_rates(section: Section, series: dict[str, Series], era: Era) -> None:
    direct, rival = series[f"{era} direct"], series[f"{era} fastmcp-proxy"]
    section.rows += [
        compare(f"through a raw relay of bytes, {era}", direct, series[f"{era} relay-raw"], unit="req/s"),
        compare(f"through the proxy, {era}", direct, series[f"{era} proxy"], unit="req/s", at_least=0.45),
        compare(f"through the gateway, {era}", direct, series[f"{era} gateway"], unit="req/s", at_least=0.45),
        compare(f"through the proxy, {era}", rival, series[f"{era} proxy"], unit="req/s", at_least=10),
        compare(f"through `trimaran serve -- COMMAND`, {era}", direct, series[f"{era} trimaran"], unit="req/s"),
        compare(f"through FastMCP's proxy, {era}", direct, rival, unit="req/s"),
        *(
            compare(f"through {other.label}, {era}", direct, series[f"{era} {other.key}"], unit="req/s")
            for other in who.OTHER_PROXIES
        ),
        *(
            compare(
                f"processor time of the {what} per call, {era}",
                series[f"{era} {anchor} cpu"],
                series[f"{era} {what} cpu"],
                unit="us",
            )
            for what, anchor in (
                ("proxy", "direct"),
                ("gateway", "direct"),
                ("proxy", "relay-raw"),
                ("gateway", "relay-raw"),
            )
        ),
        *(
            compare(
                f"processor time of the server behind the {what} per call, {era}",
                series[f"{era} direct cpu"],
                series[f"{era} {what} behind cpu"],
                unit="us",
            )
            for what in ("relay-raw", "proxy", "gateway")
        ),
    ]


def _add_scale(section: Section, plan: Plan, url: str) -> None:
    """What a user costs, and the rate with one and with many users and servers."""
    few = serve_all((who.GATEWAY, who.GATEWAY_OF_50), plan, "--upstream", url)
    with few as live, served(who.GATEWAY, plan, "--upstream", url) as crowded:
        idle, listening, sessions = _crowd(crowded)
        measures = {
            "one user": ("one user", _spread(live["gateway"], plan, [("bench_add", "legacy")])),
            "many users": (f"{USERS} users", _sampled(crowded.port, plan, sessions)),
            "one server": ("one server", _spread(live["gateway"], plan, [("bench_add", "modern")])),
            "many servers": (
                f"{SERVERS} servers",
                _spread(live["gateway-50"], plan, [(f"bench{number}_add", "modern") for number in range(1, SERVERS)]),
            ),
        }
        series = rounds(plan.rounds, measures)
    section.rows += [
        limit(f"gateway: memory per user at rest, {USERS} sessions", idle, unit="KB", at_most=30),
        limit(f"gateway: memory per user that listens, {USERS} streams", listening, unit="KB", at_most=30),
        compare(
            f"gateway: calls of {USERS} users", series["one user"], series["many users"], unit="req/s", at_least=0.9
        ),
        compare(
            f"gateway: calls of {SERVERS} servers",
            series["one server"],
            series["many servers"],
            unit="req/s",
            at_least=0.9,
        ),
    ]
    section.series["scale"] = series


def _crowd(live: Live) -> tuple[Series, Series, list[load.messages.Template]]:
    """Open many sessions, then many streams; what each costs in memory."""
    idle, listening = Series("trimaran, gateway"), Series("trimaran, gateway")
    warm = load.call_templates(live.port, "bench_add", "legacy", CONNECTIONS)
    load.measure(live.port, warm, seconds=1.0)
    time.sleep(0.5)
    before = size(live.process.pid).rss_mb
    sessions = load.call_templates(live.port, "bench_add", "legacy", USERS)
    time.sleep(0.5)
    after = size(live.process.pid).rss_mb
    idle.values.append((after - before) * 1024 / USERS)
    try:
        with Holder(who.OURS.python, live.port, 10) as few:
            few.answer(30)
        before = size(live.process.pid).rss_mb
        with Holder(who.OURS.python, live.port, USERS) as holder:
            opened = holder.answer()
            if opened["acked"] != USERS:
                raise UnavailableError(f"only {opened['acked']} of {USERS} streams were acknowledged")
            time.sleep(0.5)
            listening.values.append((size(live.process.pid).rss_mb - before) * 1024 / USERS)
    except UnavailableError as error:
        listening.failure = str(error)
    return idle, listening, sessions


def _spread(live: Live | str, plan: Plan, calls: list[tuple[str, Era]]) -> Callable[[], float]:
    """A function that measures calls that are spread over these tools."""
    if isinstance(live, str):
        raise UnavailableError(live)
    templates = [load.call_templates(live.port, tool, era, 1)[0] for tool, era in calls]
    return _sampled(live.port, plan, templates)


def _sampled(port: int, plan: Plan, templates: list[load.messages.Template]) -> Callable[[], float]:
    def measure() -> float:
        chosen = random.choices(templates, k=CONNECTIONS)
        return load.measure(port, chosen, seconds=plan.seconds).rate

    measure()
    return measure
