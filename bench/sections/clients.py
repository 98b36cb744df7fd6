"""Calls by each library's own client: in memory (client and server in one process), over HTTP, over stdio."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import contenders as who
from plan import Live, Plan, rounds, serve_all, unavailable
from procs import UnavailableError
from report import Section, compare, limit

PROBE_OF = {"ours": "client_trimaran.py", "sdk": "client_sdk.py", "fastmcp": "client_fastmcp.py"}
CALLERS = 32  # at once, in the concurrent rows


def run_memory(plan: Plan) -> Section:
    section = Section("inmemory", "In-memory tools/call, p50")
    measures = {
        one.key: (one.label, _probe(one.python, PROBE_OF[one.key], "memory", plan, field="p50_us"))
        for one in (who.OURS, who.SDK, who.FASTMCP)
    }
    series = rounds(plan.rounds, measures)
    section.series = dict(series)
    section.rows += [
        limit("client and server in one process, p50", series["ours"], unit="us", at_most=20),
        # 20 us beside the 190 us of the machine the budget was made on: the same claim, on any machine.
        compare("client and server in one process, p50", series["sdk"], series["ours"], unit="us", at_most=0.105),
        compare("client and server in one process, p50", series["fastmcp"], series["ours"], unit="us"),
    ]
    section.notes.append("Each client calls a server in its own process; mcp: the better of its two in-process modes.")
    return section


def run_http(plan: Plan) -> Section:
    section = Section("client", "Client calls over HTTP")
    scripts = {
        "ours": ("trimaran", who.OURS.python, PROBE_OF["ours"]),
        "sdk": ("mcp", who.SDK.python, PROBE_OF["sdk"]),
        "fastmcp": ("FastMCP", who.FASTMCP.python, PROBE_OF["fastmcp"]),
        "aiohttp": ("bare aiohttp", who.OURS.python, "client_aiohttp.py"),
    }
    with serve_all((who.OURS, who.SDK), plan) as live:
        server = who.OURS if isinstance(live["ours"], Live) else who.SDK
        target = live[server.key]
        url = f"http://127.0.0.1:{target.port}/mcp" if isinstance(target, Live) else None
        for what, callers in (("one after the other", 1), (f"{CALLERS} at once", CALLERS)):
            measures = {
                key: (label, _probe(python, script, url, plan, callers) if url else unavailable("no server to call"))
                for key, (label, python, script) in scripts.items()
            }
            series = rounds(plan.rounds, measures)
            section.series |= {f"{key}, {what}": values for key, values in series.items()}
            section.rows += [
                compare(f"client calls, {what}", series["sdk"], series["ours"], unit="calls/s", at_least=4),
                compare(f"client calls, {what}", series["aiohttp"], series["ours"], unit="calls/s", at_least=0.7),
                compare(f"client calls, {what}", series["fastmcp"], series["ours"], unit="calls/s"),
            ]
    section.notes.append(f"All clients call the {server.label} server; mcp: the better of its modern and legacy mode.")
    return section


def run_stdio(plan: Plan) -> Section:
    section = Section("client-stdio", "Client calls over stdio")
    command = json.dumps(who.OURS.command("--stdio"))
    for what, callers in (("one after the other", 1), (f"{CALLERS} at once", CALLERS)):
        measures = {
            one.key: (one.label, _probe(one.python, PROBE_OF[one.key], command, plan, callers))
            for one in (who.OURS, who.SDK, who.FASTMCP)
        }
        if callers == 1:
            bare = _probe(who.OURS.python, "client_pipe.py", command, plan)
            measures["pipe"] = ("bare pipe", bare)
        series = rounds(plan.rounds, measures)
        section.series |= {f"{key}, {what}": values for key, values in series.items()}
        section.rows += [
            compare(f"client calls, {what}", series["sdk"], series["ours"], unit="calls/s", at_least=4),
            compare(f"client calls, {what}", series["fastmcp"], series["ours"], unit="calls/s"),
        ]
        if callers == 1:
            section.rows.append(compare(f"client calls, {what}", series["pipe"], series["ours"], unit="calls/s"))
    section.notes.append("All clients call the trimaran server, as a child process of theirs.")
    section.notes.append("One after the other, waking two processes in turn is most of the time: see the bare pipe.")
    return section


def _probe(
    python: Path, script: str, target: str, plan: Plan, callers: int = 1, field: str = "rate"
) -> Callable[[], float]:
    def measure() -> float:
        if not python.exists():
            raise UnavailableError(f"{python} is missing: run scripts/setup-peers or set TRIMARAN_PEERS")
        command = [python, who.PROBES / script, target, str(plan.seconds), str(callers)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=who.FASTMCP.environment()
        )
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise UnavailableError(lines[-1] if lines else f"exit status {done.returncode}")
        return float(json.loads(done.stdout.strip().splitlines()[-1])[field])

    return measure
