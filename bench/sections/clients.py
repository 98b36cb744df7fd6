"""Sequential calls by each library's own client: in memory (client and server in one process), and over HTTP."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import contenders as who
from plan import Live, Plan, rounds, serve_all, unavailable
from procs import UnavailableError
from report import Section, compare, limit

import trimaran

PROBE_OF = {"ours": "client_trimaran.py", "sdk": "client_sdk.py", "fastmcp": "client_fastmcp.py"}


# The client hull comes with a later release: until then its rows say so, and the probe waits for it.
HAS_CLIENT = "connect" in trimaran.__all__
NO_CLIENT = "the client hull is not in this release"


def run_memory(plan: Plan) -> Section:
    section = Section("inmemory", "In-memory tools/call, p50")
    measures = {
        one.key: (one.label, _probe(one.python, PROBE_OF[one.key], "memory", plan, "p50_us"))
        for one in (who.OURS, who.SDK, who.FASTMCP)
    }
    if not HAS_CLIENT:
        measures["ours"] = (who.OURS.label, unavailable(NO_CLIENT))
    channel = _probe(who.OURS.python, "channel_trimaran.py", "memory", plan, "p50_us")
    measures["channel"] = ("trimaran, bare channel", channel)
    series = rounds(plan.rounds, measures)
    section.series = dict(series)
    section.rows += [
        limit("client and server in one process, p50", series["ours"], unit="us", at_most=20),
        limit("JSON over the in-memory transport, no client, p50", series["channel"], unit="us", at_most=20),
        compare("client and server in one process, p50", series["sdk"], series["ours"], unit="us"),
        compare("client and server in one process, p50", series["fastmcp"], series["ours"], unit="us"),
        compare("JSON over the in-memory transport, no client, p50", series["sdk"], series["channel"], unit="us"),
    ]
    section.notes.append("Each client calls a server in its own process; mcp: the better of its two in-process modes.")
    return section


def run_http(plan: Plan) -> Section:
    section = Section("client", "Client calls over HTTP, sequential")
    with serve_all((who.OURS, who.SDK), plan) as live:
        server = who.OURS if isinstance(live["ours"], Live) else who.SDK
        target = live[server.key]
        url = f"http://127.0.0.1:{target.port}/mcp" if isinstance(target, Live) else None
        scripts = {
            "ours": ("trimaran", who.OURS.python, PROBE_OF["ours"]),
            "sdk": ("mcp", who.SDK.python, PROBE_OF["sdk"]),
            "fastmcp": ("FastMCP", who.FASTMCP.python, PROBE_OF["fastmcp"]),
            "aiohttp": ("bare aiohttp", who.OURS.python, "client_aiohttp.py"),
        }
        measures = {
            key: (label, _probe(python, script, url, plan, "rate") if url else unavailable("no server to call"))
            for key, (label, python, script) in scripts.items()
        }
        if not HAS_CLIENT:
            measures["ours"] = ("trimaran", unavailable(NO_CLIENT))
        series = rounds(plan.rounds, measures)
    section.series = dict(series)
    section.rows += [
        compare("client calls, sequential", series["sdk"], series["ours"], unit="calls/s", at_least=4),
        compare("client calls, sequential", series["aiohttp"], series["ours"], unit="calls/s", at_least=0.7),
        compare("client calls, sequential", series["fastmcp"], series["ours"], unit="calls/s"),
    ]
    section.notes.append(f"All clients call the {server.label} server; mcp: the better of its modern and legacy mode.")
    return section


def _probe(python: Path, script: str, target: str, plan: Plan, field: str) -> Callable[[], float]:
    def measure() -> float:
        if not python.exists():
            raise UnavailableError(f"{python} is missing: run scripts/setup-peers or set TRIMARAN_PEERS")
        command = [python, who.PROBES / script, target, str(plan.seconds)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=who.FASTMCP.environment()
        )
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise UnavailableError(lines[-1] if lines else f"exit status {done.returncode}")
        return float(json.loads(done.stdout.strip().splitlines()[-1])[field])

    return measure
