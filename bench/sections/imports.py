"""Import time: fresh interpreters, wall clock, minus what the same venv's bare interpreter takes."""

import json
import subprocess
import time
from pathlib import Path

import contenders as who
from plan import Plan
from procs import UnavailableError
from report import Row, Section, Series, compare, failed, limit

STATEMENTS = {
    "ours": (who.OURS, "from trimaran import Server"),
    "bare": (who.OURS, "import trimaran"),
    "sdk": (who.SDK, "from mcp.server.mcpserver import MCPServer"),
    "fastmcp": (who.FASTMCP, "from fastmcp import FastMCP"),
}
HEAVY = ("aiohttp", "granian", "pydantic", "httpx", "starlette", "uvicorn", "rich", "cryptography", "click", "redis")
FORBIDDEN = {"aiohttp", "granian", "pydantic", "httpx", "starlette", "uvicorn"}


def run(plan: Plan) -> Section:
    section = Section("imports", "Import time of the server class")
    series = {key: Series(f"{contender.label}: `{code}`") for key, (contender, code) in STATEMENTS.items()}
    for turn in range(plan.imports + 1):
        for key, (contender, code) in STATEMENTS.items():
            if series[key].failure is None:
                try:
                    contender.check()
                    added = _wall(contender.python, code) - _wall(contender.python, "pass")
                except (UnavailableError, subprocess.SubprocessError) as error:
                    series[key].failure = _reason(error)
                else:
                    if turn:  # the first turn only fills caches
                        series[key].values.append(added * 1e3)
    section.series = dict(series)
    section.rows += [
        compare("import of the server class", series["sdk"], series["ours"], unit="ms", at_most=0.22),
        compare("import of the server class", series["fastmcp"], series["ours"], unit="ms"),
        limit("bare `import trimaran`, beyond the interpreter", series["bare"], unit="ms", at_most=10),
        _loaded_row(),
    ]
    return section


def _wall(python: Path, code: str) -> float:
    started = time.perf_counter()
    subprocess.run([python, "-c", code], check=True, capture_output=True, timeout=60)
    return time.perf_counter() - started


def _loaded_row() -> Row:
    code = (
        "import json, sys; from trimaran import Server; "
        f"print(json.dumps([sorted(set({HEAVY!r}) & set(sys.modules)), len(sys.modules)]))"
    )
    what = "heavy modules loaded by `from trimaran import Server`"
    budget = f"none of {', '.join(sorted(FORBIDDEN))}"
    try:
        done = subprocess.run([who.OURS.python, "-c", code], check=True, capture_output=True, timeout=60)
    except subprocess.SubprocessError as error:
        return Row(what, "-", failed(_reason(error)), budget=budget)
    loaded, count = json.loads(done.stdout)
    shown = f"{', '.join(loaded) or 'none'} ({count} modules in all)"
    return Row(what, "-", shown, budget=budget, ok=not FORBIDDEN & set(loaded))


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else f"exit status {error.returncode}"
    return str(error)[:200]
