"""tools/list with 100 typed tools: milliseconds per request on one connection."""

from collections.abc import Callable

import contenders as who
import load
import messages
from plan import Live, Plan, rounds, serve_all, unavailable
from report import Section, compare, limit

TOOLS = 100
LAST = f"search_{TOOLS - 1:05d}".encode()


def run(plan: Plan) -> Section:
    section = Section("list", f"tools/list with {TOOLS} typed tools over HTTP, one connection")
    servers = (who.OURS, who.SDK, who.FASTMCP)
    with serve_all(servers, plan, "--tools", str(TOOLS)) as live:
        measures = {one.key: (one.label, _milliseconds(live[one.key], plan)) for one in servers}
        series = rounds(plan.rounds, measures)
    section.series = dict(series)
    section.rows += [
        limit("tools/list, modern", series["ours"], unit="ms", at_most=0.3),
        compare("tools/list, modern", series["sdk"], series["ours"], unit="ms"),
        compare("tools/list, modern", series["fastmcp"], series["ours"], unit="ms"),
    ]
    section.notes.append(
        "Each server has its two to four usual tools besides; the last of the 100 must be in every answer."
    )
    return section


def _milliseconds(live: Live | str, plan: Plan) -> Callable[[], float]:
    if isinstance(live, str):
        return unavailable(live)
    template = messages.http_template(live.port, "tools/list", {}, era="modern")

    def measure() -> float:
        outcome = load.measure(live.port, [template], expected=LAST, seconds=plan.seconds)
        return outcome.seconds / outcome.answers * 1e3

    return measure
