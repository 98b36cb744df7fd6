"""The benchmark suite: every budget, measured against the rivals in one run.

    .venv/bin/python bench/run.py                    everything, about 20 minutes
    .venv/bin/python bench/run.py --quick            a quarter of the load, about half the time
    .venv/bin/python bench/run.py --only http,stdio  some sections

Prints markdown, writes JSON to bench/results/. How to read it: bench/README.md.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contenders
import procs
import report
from plan import Plan
from sections import (
    auth,
    calls,
    clients,
    context,
    fanout,
    imports,
    inspector,
    listing,
    memory,
    openapi,
    proxies,
    registry,
    search,
    shutdown,
    stdio,
    stores,
    tasks,
    tls,
    workers,
)

SECTIONS: dict[str, Callable[[Plan], report.Section]] = {
    "http": calls.run_async,
    "sync": calls.run_sync,
    "tls": tls.run,
    "auth": auth.run,
    "stdio": stdio.run,
    "imports": imports.run,
    "inmemory": clients.run_memory,
    "client": clients.run_http,
    "client-stdio": clients.run_stdio,
    "list": listing.run,
    "registry": registry.run,
    "memory": memory.run,
    "sigterm": shutdown.run,
    "workers": workers.run,
    "stores": stores.run,
    "tasks": tasks.run,
    "fanout": fanout.run,
    "proxies": proxies.run,
    "openapi": openapi.run,
    "search": search.run,
    "context": context.run,
    "inspector": inspector.run,
}


def main() -> int:
    options = parse()
    chosen = options.only.split(",") if options.only else list(SECTIONS)
    if unknown := [key for key in chosen if key not in SECTIONS]:
        print(f"no such section: {', '.join(unknown)}; there are: {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    procs.raise_file_limit()
    plan = Plan(
        quick=options.quick,
        pin=options.pin,
        streams=options.streams,
        openapi=options.openapi,
        search_data=options.search_data,
        catalogs=options.catalogs,
    )
    if plan.pin:
        os.sched_setaffinity(0, {1})
    facts = gather_facts(options)
    print_facts(facts)
    done = [run_section(key, plan) for key in chosen]
    path = contenders.HERE / "results" / f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}.json"
    report.write_json(path, facts, done)
    missed = [
        f"{section.key}: {row.what}: {row.ours}, {row.ratio} of {row.anchor}"
        for section in done
        for row in section.rows
        if row.ok is False
    ]
    held = sum(row.ok is True for section in done for row in section.rows)
    open_rows = [row for section in done for row in section.rows if row.ok is None and row.budget != "-"]
    print(f"\nBudgets held: {held}, missed: {len(missed)}, not measured: {len(open_rows)}. JSON: {path}")
    for line in missed:
        print(f"- missed: {line}")
    return 1 if options.strict and (missed or open_rows) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: a quarter of the load")
    parser.add_argument("--only", metavar="A,B", help=f"sections to run, of: {', '.join(SECTIONS)}")
    parser.add_argument(
        "--streams", type=int, default=10_000, help="open listen streams in the memory and fanout sections"
    )
    parser.add_argument("--pin", action="store_true", help="servers on core 0, load on core 1")
    parser.add_argument(
        "--openapi", type=Path, metavar="FOLDER", help="OpenAPI documents, for the section of that name"
    )
    parser.add_argument(
        "--search-data", type=Path, metavar="FOLDER", help="LiveMCPBench's tools and tasks, for the section search"
    )
    parser.add_argument(
        "--catalogs", type=Path, metavar="FOLDER", help="definitions of real servers, for the section context"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when a budget is missed or could not be measured")
    return parser.parse_args()


def run_section(key: str, plan: Plan) -> report.Section:
    started = time.monotonic()
    try:
        section = SECTIONS[key](plan)
    except Exception:
        # A section that breaks must not take the others' numbers with it.
        reason = traceback.format_exc().strip().splitlines()[-1]
        traceback.print_exc()
        section = report.Section(key, key, rows=[report.Row(key, "-", report.failed(reason), budget="see above")])
    section.seconds = time.monotonic() - started
    print(f"\n{report.markdown(section)}\n\n({section.seconds:.0f} s)", flush=True)
    return section


def gather_facts(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "options": vars(options),
        "machine": {
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
            "system": platform.platform(),
            "load_average": os.getloadavg(),
        },
        "python": platform.python_version(),
        "commit": commit(),
        "versions": {one.label: f"{one.package} {one.version()}" for one in contenders.ALL},
    }


def print_facts(facts: dict[str, Any]) -> None:
    machine = facts["machine"]
    print(f"# Benchmarks, {facts['when']}\n")
    print(f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mb']:,} MB; {machine['system']}; ", end="")
    print(f"Python {facts['python']}; load average {machine['load_average'][0]:.2f} at the start.\n")
    print("; ".join(f"{label}: {version}" for label, version in facts["versions"].items()), flush=True)


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown CPU"


def commit() -> str:
    command = ["git", "-C", str(contenders.ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
