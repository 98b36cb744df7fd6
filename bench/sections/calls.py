"""tools/call over HTTP: answers per second with 16 connections and one worker, in both eras, by kind of function."""

from collections.abc import Callable

import contenders as who
from messages import REPEATED, VARIED, Era
from plan import CONNECTIONS, Live, Plan, call_rate, rounds, serve_all
from report import Row, Section, Series, best, compare

ECHOES = (who.ECHO_UVICORN, who.ECHO_GRANIAN)
RIVALS = (who.SDK, who.SDK_STATELESS, who.FASTMCP, who.FASTMCP_STATELESS)

VARIED_KEYS = ("ours", "sdk", *(echo.key for echo in ECHOES))
ERAS: tuple[Era, ...] = ("modern", "legacy")

NOTES = [
    "Rivals run at their best: uvicorn with uvloop and httptools, JSON responses instead of SSE, no access log. In the "
    "legacy era each is measured with sessions and stateless, and judged by the better of the two.",
    "The bare ASGI echo decodes the body with msgspec and answers a small JSON body, on uvicorn and on Granian; the better "
    "of the two is the anchor.",
    "Every answer is checked (status, id, result). Legacy: one session per connection.",
    "Varied heads: another traceparent and X-Request-Id with every request, as clients with tracing send them; those rows "
    "hold a contender against itself with the same fields and one repeated head.",
]


def run_async(plan: Plan) -> Section:
    section = Section("http", f"HTTP tools/call, async tool, 1 worker, {CONNECTIONS} connections", notes=list(NOTES))
    with serve_all((who.OURS, *RIVALS, *ECHOES, who.ECHO_RAW), plan) as live:
        modern, legacy = _measure(
            plan,
            live,
            "add",
            ("ours", "sdk", "fastmcp", *(echo.key for echo in ECHOES), "echo-raw"),
            varied=VARIED_KEYS,
        )
    section.series = {"modern": modern, "legacy": legacy}
    ours = modern["ours"]
    echo = best([modern["echo-uvicorn"], modern["echo-granian"]])
    echo_key = "echo-uvicorn" if echo is modern["echo-uvicorn"] else "echo-granian"
    modern_cost = Series("ours, modern", modern["ours cpu"].values, ours.failure)
    section.rows += [
        compare("async tool, modern", modern["sdk"], ours, unit="req/s", at_least=8),
        compare("async tool, modern", modern["fastmcp"], ours, unit="req/s", at_least=25),
        compare("async tool, modern", echo, ours, unit="req/s", at_least=0.8),
        compare("async tool, modern", modern["echo-raw"], ours, unit="req/s"),
        compare("async tool, legacy", _best_of(legacy, "sdk"), legacy["ours"], unit="req/s", at_least=8),
        compare("async tool, legacy", _best_of(legacy, "fastmcp"), legacy["ours"], unit="req/s", at_least=25),
        compare(
            "legacy against modern",
            Series("ours, modern", ours.values, ours.failure),
            legacy["ours"],
            unit="req/s",
            at_least=0.85,
        ),
        *(_compare_varied(modern, key, at_least=0.9 if key == "ours" else None) for key in ("ours", "sdk", echo_key)),
        compare("varied heads, modern", modern["sdk varied"], modern["ours varied"], unit="req/s", at_least=8),
        compare(
            "varied heads, modern", modern[f"{echo_key} varied"], modern["ours varied"], unit="req/s", at_least=0.8
        ),
        compare("server processor time per call, modern", modern["sdk cpu"], modern["ours cpu"], unit="us"),
        compare("server processor time per call, modern", modern[f"{echo_key} cpu"], modern["ours cpu"], unit="us"),
        compare("server processor time per call, legacy", modern_cost, legacy["ours cpu"], unit="us"),
    ]
    section.notes.append(
        "Processor time per call depends less than the rate on what else the machine does: look there when brackets are wide."
    )
    ceiling = modern["echo-raw"]
    section.notes.append(f"Ceiling of the load generator here (raw protocol echo): {ceiling.show('req/s')}.")
    for key in ("echo-uvicorn", "echo-granian"):
        section.notes.append(f"{modern[key].label}: {modern[key].show('req/s')}.")
    return section


def run_sync(plan: Plan) -> Section:
    section = Section(
        "sync", f"HTTP tools/call, plain `def` tool, 1 worker, {CONNECTIONS} connections", notes=NOTES[:1]
    )
    with serve_all((who.OURS, *RIVALS), plan) as live:
        modern, legacy = _measure(plan, live, "add_sync", ("ours", "sdk", "fastmcp"), inline=True)
    section.series = {"modern": modern, "legacy": legacy}
    section.rows += [
        compare("plain tool, modern", modern["sdk"], modern["ours"], unit="req/s", at_least=5),
        compare("plain tool, modern", modern["fastmcp"], modern["ours"], unit="req/s"),
        compare("plain tool with inline=True, modern", modern["sdk"], modern["ours-inline"], unit="req/s", at_least=5),
        compare("plain tool, legacy", _best_of(legacy, "sdk"), legacy["ours"], unit="req/s", at_least=5),
        compare("plain tool, legacy", _best_of(legacy, "fastmcp"), legacy["ours"], unit="req/s"),
    ]
    return section


def _measure(
    plan: Plan,
    live: dict[str, Live | str],
    tool: str,
    modern: tuple[str, ...],
    *,
    inline: bool = False,
    varied: tuple[str, ...] = (),
) -> tuple[dict[str, Series], dict[str, Series]]:
    """Measure both eras in the same rounds, so that they too can be compared; return (modern, legacy)."""
    labels = {one.key: one.label for one in (who.OURS, *RIVALS, *ECHOES, who.ECHO_RAW)}
    legacy = ("ours", *(rival.key for rival in RIVALS))
    measures: dict[str, tuple[str, Callable[[], float]]] = {}
    costs: dict[str, list[float]] = {}
    for key in labels:
        for era in ERAS:
            if key in (modern if era == "modern" else legacy):
                name = f"{era} {key}"
                costs[name] = []
                measures[name] = (labels[key], call_rate(live[key], plan, tool, era, costs[name]))
        if key in varied:
            for heads, more in (("varied", VARIED), ("repeated", REPEATED)):
                measure = call_rate(live[key], plan, tool, "modern", more=more)
                measures[f"modern {key} {heads}"] = (labels[key], measure)
    if inline:
        measures["modern ours-inline"] = ("trimaran, inline", call_rate(live["ours"], plan, "add_inline", "modern"))
    series = rounds(plan.rounds, measures)
    for name, values in costs.items():
        series[f"{name} cpu"] = Series(series[name].label, values, series[name].failure)
    return _of_era(series, "modern "), _of_era(series, "legacy ")


def _compare_varied(modern: dict[str, Series], key: str, *, at_least: float | None) -> Row:
    """Hold a contender with another head each time against itself with one head repeated."""
    repeated, varied = modern[f"{key} repeated"], modern[f"{key} varied"]
    anchor = Series(f"{repeated.label}, one head", repeated.values, repeated.failure)
    return compare(f"varied heads, {repeated.label}, modern", anchor, varied, unit="req/s", at_least=at_least)


def _of_era(series: dict[str, Series], prefix: str) -> dict[str, Series]:
    return {key.removeprefix(prefix): one for key, one in series.items() if key.startswith(prefix)}


def _best_of(series: dict[str, Series], key: str) -> Series:
    return best([series[key], series[f"{key}-stateless"]])
