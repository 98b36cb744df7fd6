"""Run the official MCP conformance suite against our server and compare every check with `expected.toml`.

    python tests/conformance/run.py                        all three legs, on tests/conformance/server.py
    python tests/conformance/run.py --leg 26 --keep        one leg; keep the suite's files for reading
    python tests/conformance/run.py --server "other.py"    another server; it gets `--port N` appended
    python tests/conformance/run.py --url http://...       a server that already runs

A leg is one suite release at one protocol revision: `25` and `26` are the pinned alpha, `stable` is the last stable one.
The suite's own ticks and exit code are not trusted: it ticks a scenario whose checks were all skipped, and never counts
warnings. Only the `checks.json` files it writes decide. `scripts/setup-node` installs the suite.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODULES = HERE.parents[1] / ".tools" / "node" / "node_modules"
START_LIMIT = 20  # seconds; a Python server with cold imports on a busy machine needs about 3
LEG_LIMIT = 180  # seconds; a leg takes about 3, and one scenario may wait 30 for a server that hangs
HOLLOW = "wire-schema-valid"  # the suite grants this one to nearly any scenario, whatever it did


@dataclass
class Scenario:
    """The checks of one scenario on one leg."""

    checks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def count(self, status: str) -> int:
        return sum(check["status"] == status for check in self.checks)

    def cell(self) -> str:
        others = (
            f"{self.count(status)}{status[0]}" for status in ("FAILURE", "WARNING", "SKIPPED") if self.count(status)
        )
        return " ".join((str(self.count("SUCCESS")), *others))


def read_checks(folder: Path) -> dict[str, Scenario]:
    """Collect a leg's results by scenario name; the suite writes `server-<scenario>-<timestamp>/checks.json`."""
    results: dict[str, Scenario] = {}
    for path in sorted(folder.glob("server-*/checks.json")):
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", path.parent.name.removeprefix("server-"))
        results.setdefault(name, Scenario()).checks.extend(json.loads(path.read_text()))
    return results


def find_problems(expected: dict[str, Any], results: dict[str, Scenario]) -> Iterator[str]:
    """Compare one leg with its part of `expected.toml`; yield one line per difference."""
    minimum: dict[str, int] = expected["minimum"]
    if len(minimum) != expected["scenarios"]:
        yield f"expected.toml lists {len(minimum)} scenarios but promises {expected['scenarios']}"
    for name in sorted(results.keys() - minimum.keys()):
        yield f"{name}: ran, but expected.toml does not list it"
    for name, least in minimum.items():
        if name not in results:
            yield f"{name}: did not run, or left no checks.json"
            continue
        scenario = results[name]
        allowed = Counter(expected.get("warnings", {}).get(name, ()))
        for check in scenario.checks:
            if check["status"] == "WARNING" and allowed[check["id"]]:
                allowed[check["id"]] -= 1
            elif check["status"] in ("FAILURE", "WARNING", "SKIPPED"):
                message = check.get("errorMessage") or check.get("description") or ""
                yield f"{name}: {check['status']} {check['id']}: {' '.join(message.split())[:400]}"
        for check_id in allowed.elements():
            yield f"{name}: the listed warning {check_id} no longer appears: strike it from expected.toml"
        passed = scenario.count("SUCCESS")
        if passed < least:
            ids = {check["id"] for check in scenario.checks if check["status"] == "SUCCESS"}
            hollow = f", and only {HOLLOW}: it exercised nothing" if ids == {HOLLOW} else ""
            yield f"{name}: {passed} checks passed, at least {least} expected{hollow}"


def run_leg(expected: dict[str, Any], url: str, folder: Path) -> dict[str, Scenario]:
    """Run one leg of the suite into `folder`."""
    node, suite = MODULES / ".bin" / "node", MODULES / expected["package"] / "dist" / "index.js"
    if not (node.exists() and suite.exists()):
        raise SystemExit("the conformance suite is not installed: run scripts/setup-node (or make conformance)")
    command = [
        node,
        suite,
        "server",
        "--url",
        url,
        "--suite",
        "all",
        "--spec-version",
        expected["revision"],
        "-o",
        folder,
    ]
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        # A leg that is cut off shows as scenarios that did not run.
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=LEG_LIMIT)
    results = read_checks(folder)
    if not results:
        print(f"the suite wrote no results; its last words:\n{tail(Path(log.name))}")
    return results


@contextlib.contextmanager
def start_server(command: list[str], log: Path) -> Iterator[str]:
    """Start a server on a free port, wait until it accepts, yield its URL, and end its whole process group after."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until_accepting(server, port, log)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            print(f"note: the server ignored SIGTERM for 5 s (pid {server.pid}); killed")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def wait_until_accepting(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"the server exited with {server.returncode} before it listened:\n{tail(log)}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise SystemExit(f"the server did not listen on port {port} within {START_LIMIT} s:\n{tail(log)}")


def tail(log: Path) -> str:
    return "\n".join(f"    {line[:300]}" for line in log.read_text(errors="replace").splitlines()[-30:])


def print_table(legs: dict[str, dict[str, Scenario]]) -> None:
    names = sorted({name for results in legs.values() for name in results})
    wide = max((len(name) for name in names), default=8)
    print(f"{'scenario':{wide}}" + "".join(f"  {leg:>9}" for leg in legs))
    for name in names:
        cells = (results[name].cell() if name in results else "-" for results in legs.values())
        print(f"{name:{wide}}" + "".join(f"  {cell:>9}" for cell in cells))
    totals = (Scenario([check for s in results.values() for check in s.checks]).cell() for results in legs.values())
    print(f"{'total':{wide}}" + "".join(f"  {total:>9}" for total in totals))


def main() -> int:
    expected = tomllib.loads((HERE / "expected.toml").read_text())
    parser = argparse.ArgumentParser(description="Run the official conformance suite and compare with expected.toml.")
    parser.add_argument("--leg", choices=[*expected, "all"], default="all")
    parser.add_argument("--url", help="use a server that already runs")
    parser.add_argument("--server", help="command that starts the server; --port N is appended")
    parser.add_argument("--keep", action="store_true", help="keep the suite's output, and say where")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is ended when we are

    chosen = list(expected) if options.leg == "all" else [options.leg]
    command = shlex.split(options.server) if options.server else [sys.executable, str(HERE / "server.py")]
    work = Path(tempfile.mkdtemp(prefix="conformance-"))
    try:
        with contextlib.ExitStack() as stack:
            url = options.url or stack.enter_context(start_server(command, work / "server.log"))
            legs = {leg: run_leg(expected[leg], url, work / leg) for leg in chosen}
        print_table(legs)
        problems = [
            f"[{leg}] {line}" for leg, results in legs.items() for line in find_problems(expected[leg], results)
        ]
        if problems:
            print(f"\n{len(problems)} problems:")
            print("\n".join(f"  {line}" for line in problems))
            if not options.url:
                print(f"\nthe server's last words:\n{tail(work / 'server.log')}")
        else:
            print("\nall as expected")
        return bool(problems)
    finally:
        if options.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
