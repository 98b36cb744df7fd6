"""tools/call through a proxy and a gateway, before the same server and in the same rounds as without one."""

from collections.abc import Callable

import contenders as who
from messages import Era
from plan import CONNECTIONS, Plan, call_rate, rounds, serve_all
from report import Section, Series, compare

ERAS: tuple[Era, ...] = ("modern", "legacy")
BETWEEN = (who.PROXY, who.GATEWAY, who.FASTMCP_PROXY)
TOOLS = {"gateway": "bench_add"}


def run(plan: Plan) -> Section:
    section = Section("proxies", f"HTTP tools/call through a proxy, 1 worker each, {CONNECTIONS} connections")
    measures: dict[str, tuple[str, Callable[[], float]]] = {}
    costs: dict[str, list[float]] = {}
    with serve_all((who.OURS,), plan) as target:
        upstream = target["ours"]
        url = "" if isinstance(upstream, str) else f"http://127.0.0.1:{upstream.port}/mcp"
        with serve_all(BETWEEN, plan, "--upstream", url) as live:
            for era in ERAS:
                for key, label, place in (
                    ("direct", "trimaran, direct", upstream),
                    *((between.key, between.label, live[between.key]) for between in BETWEEN),
                ):
                    cost = costs[f"{era} {key}"] = []
                    rate = call_rate(place, plan, TOOLS.get(key, "add"), era, cost)
                    measures[f"{era} {key}"] = (label, rate)
            series = rounds(plan.rounds, measures)
    for key, values in costs.items():
        series[f"{key} cpu"] = Series(series[key].label, values, series[key].failure)
    section.series = series
    for era in ERAS:
        direct, rival = series[f"{era} direct"], series[f"{era} fastmcp-proxy"]
        section.rows += [
            compare(f"through the proxy, {era}", direct, series[f"{era} proxy"], unit="req/s", at_least=0.45),
            compare(f"through the gateway, {era}", direct, series[f"{era} gateway"], unit="req/s", at_least=0.45),
            compare(f"through the proxy, {era}", rival, series[f"{era} proxy"], unit="req/s", at_least=10),
            compare(f"through FastMCP's proxy, {era}", direct, rival, unit="req/s"),
            compare(
                f"processor time of the proxy per call, {era}",
                series[f"{era} direct cpu"],
                series[f"{era} proxy cpu"],
                unit="us",
            ),
        ]
    section.notes.append(
        "The proxy, the server behind it and the load share the machine's cores; without a proxy there is one process less."
    )
    return section
