"""Finding tools: recall on LiveMCPBench's tasks (below `--search-data FOLDER`), and milliseconds a query, against FastMCP's BM25."""

import json
import subprocess
from pathlib import Path
from typing import Any

import contenders as who
from plan import Plan
from procs import UnavailableError
from report import Row, Section, Series, compare, failed, limit

PATIENCE = 600
RECALL = {"5": 0.85, "10": 0.88}
MILLISECONDS = {1_000: 1.0, 100_000: 10.0}


def run(plan: Plan) -> Section:
    section = Section("search", "finding tools by what they do")
    data = plan.search_data
    ours = _probe(who.OURS, "trimaran", data, list(MILLISECONDS))
    # At 100,000 tools a query of its takes seconds, most of them to see whether the catalog changed.
    rival = _probe(who.FASTMCP, "fastmcp", data, list(MILLISECONDS), 3 if plan.quick else 10)
    for cut, least in RECALL.items():
        section.rows.append(_recall_row(cut, least, ours, rival))
    for size, most in MILLISECONDS.items():
        series = [_series(who.OURS.label, ours, size), _series(who.FASTMCP.label, rival, size)]
        section.rows.append(compare(f"query among {size:,} tools, median", series[1], series[0], unit="ms"))
        section.rows.append(limit(f"query among {size:,} tools, median", series[0], unit="ms", at_most=most))
        section.series[f"{size}"] = {"ours": series[0], "fastmcp": series[1]}
    if data is None:
        section.notes.append(
            "Recall needs --search-data FOLDER, with livemcpbench-tools.json and livemcpbench-tasks.json."
        )
    return section


def _recall_row(cut: str, least: float, ours: Any, rival: Any) -> Row:
    what = f"needed tools among the first {cut}"
    if not isinstance(ours, dict) or "recall" not in ours:
        return Row(what, "-", failed(ours if isinstance(ours, str) else "no data"), budget=f">= {least}")
    value = ours["recall"][cut]
    anchor = f"{rival['recall'][cut]:.3f} FastMCP" if isinstance(rival, dict) else failed(rival)
    return Row(what, anchor, f"{value:.3f}", budget=f">= {least}", ok=value >= least)


def _series(label: str, result: Any, size: int) -> Series:
    if isinstance(result, str):
        return Series(label, failure=result)
    return Series(label, [result["times"][str(size)]["median"]])


def _probe(contender: who.Contender, library: str, data: Path | None, sizes: list[int], queries: int = 200) -> Any:
    """The library's figures; or why there are none."""
    try:
        contender.check()
        command = [str(contender.python), str(who.PROBES / "search_probe.py"), library]
        command += ["--sizes", ",".join(map(str, sizes)), "--queries", str(queries)]
        command += ["--data", str(data)] if data is not None else []
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, env=contender.environment(), check=True
        )
    except UnavailableError as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return f"not done after {PATIENCE} s"
    except subprocess.CalledProcessError as error:
        return (error.stderr.strip().splitlines() or ["no message"])[-1]
    return json.loads(done.stdout)
