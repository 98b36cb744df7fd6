"""Run the official MCP conformance suite against our server and client; compare every check with `expected.toml`.

    python tests/conformance/run.py                        all legs, on tests/conformance/server.py and client.py
    python tests/conformance/run.py --leg 26 --keep        one leg; keep the suite's files for reading
    python tests/conformance/run.py --leg client           the client's legs
    python tests/conformance/run.py --server "other.py"    the server's legs on another; it gets `--port N` appended
    python tests/conformance/run.py --url http://...       the server's legs on one that already runs
    python tests/conformance/run.py --leg 26 --through legacy   with our proxy between, which speaks this era to the server

A leg is one suite release at one protocol revision: `25` and `26` are the pinned alpha, `stable` is the last stable one.
The client's legs are named `client-...`; the client probes for the era, except in a `-pinned` leg. What belongs to no
revision (extensions, and what 2025-03-26 had) is in the legs `more-...` and `client-more-...`.
The suite's own ticks and exit code are not trusted: it ticks a scenario whose checks were all skipped, never counts a
server's warnings, and overlooks a client that fails or hangs. Only the files it writes decide: `checks.json`, and what a
client printed. `scripts/setup-node` installs the suite.
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
LEG_LIMIT = 180  # seconds; a leg takes 3 to 30, and one scenario may wait 30 for a server that hangs
CLIENT_LIMIT = 60  # seconds; a client takes about 1
LANES = os.cpu_count() or 2
HOLLOW = "wire-schema-valid"  # the suite grants this one to nearly any scenario, whatever it did


@dataclass
class Scenario:
    """The checks of one scenario on one leg."""

    checks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    complaint: str = ""  # the last words of a client that did not come to its end

    def count(self, status: str) -> int:
        return sum(check["status"] == status for check in self.checks)

    def cell(self) -> str:
        others = (
            f"{self.count(status)}{status[0]}" for status in ("FAILURE", "WARNING", "SKIPPED") if self.count(status)
        )
        return " ".join((str(self.count("SUCCESS")), *others))


def read_expected() -> dict[str, dict[str, Any]]:
    """The legs by name. A leg that is `like` another has all of it that it does not say itself."""
    legs: dict[str, dict[str, Any]] = tomllib.loads((HERE / "expected.toml").read_text())
    return {name: legs.get(leg.get("like", ""), {}) | leg for name, leg in legs.items()}


def read_results(folder: Path, side: str) -> dict[str, Scenario]:
    """Collect a leg's results by scenario name; the suite writes them into `[server-]<scenario>-<timestamp>/`."""
    results: dict[str, Scenario] = {}
    for path in sorted(folder.rglob("checks.json")):
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", path.parent.relative_to(folder).as_posix())
        scenario = results.setdefault(name.removeprefix("server-") if side == "server" else name, Scenario())
        scenario.checks.extend(json.loads(path.read_text()))
        if side == "client" and not path.with_name("stdout.txt").read_text().endswith("done\n"):
            scenario.complaint = path.with_name("stderr.txt").read_text().strip().rpartition("\n")[2] or "not a word"
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
        if scenario.complaint:
            yield f"{name}: the client did not finish: {scenario.complaint[:400]}"
        allowed = Counter(expected.get("warnings", {}).get(name, ()))
        skipped = Counter(expected.get("skipped", {}).get(name, ()))
        for check in scenario.checks:
            if check["status"] == "WARNING" and allowed[check["id"]]:
                allowed[check["id"]] -= 1
            elif check["status"] == "SKIPPED" and skipped[check["id"]]:
                skipped[check["id"]] -= 1
            elif check["status"] in ("FAILURE", "WARNING", "SKIPPED"):
                message = check.get("errorMessage") or check.get("description") or ""
                yield f"{name}: {check['status']} {check['id']}: {' '.join(message.split())[:400]}"
        for check_id in allowed.elements():
            yield f"{name}: the listed warning {check_id} no longer appears: strike it from expected.toml"
        for check_id in skipped.elements():
            yield f"{name}: the listed skip of {check_id} no longer appears: strike it from expected.toml"
        passed = scenario.count("SUCCESS")
        if passed < least:
            ids = {check["id"] for check in scenario.checks if check["status"] == "SUCCESS"}
            hollow = f", and only {HOLLOW}: it exercised nothing" if ids == {HOLLOW} else ""
            yield f"{name}: {passed} checks passed, at least {least} expected{hollow}"


def without_untold(problems: list[str], untold: dict[str, str | dict[str, str]]) -> Iterator[str]:
    """Leave out the scenarios that cannot pass across the eras; a listed one that passes after all is a problem.

    A scenario with a table instead of a reason may pass or not: its `sometimes` says why.
    """
    for line in problems:
        if line.partition(":")[0] not in untold:
            yield line
    never = {name for name, reason in untold.items() if isinstance(reason, str)}
    for name in never - {line.partition(":")[0] for line in problems}:
        yield f"{name}: passes through the proxy after all: strike it from expected.toml"


def choices(expected: dict[str, Any], suite: list[str | Path]) -> Iterator[list[str]]:
    """What to ask the suite for, run by run.

    A server gets everything in one run. For a client the suite would start all scenarios at once, dozens of interpreters,
    and their mocks hang up on clients that wait 5 s for the processor; so each is a run of its own.
    """
    revision = ["--spec-version", expected["revision"]] if "revision" in expected else []
    if expected["side"] == "server" and not expected.get("named"):
        yield ["--suite", "all", *revision]
    elif expected.get("named"):
        yield from (["--scenario", name, *revision, *(["--force"] if revision else [])] for name in expected["minimum"])
    else:
        listing = subprocess.run([*suite, "list", "--client", *revision], capture_output=True, text=True, check=True)
        yield from (["--scenario", name, *revision] for name in re.findall(r"^  - (\S+)", listing.stdout, re.MULTILINE))


def run_leg(expected: dict[str, Any], url: str | None, folder: Path) -> dict[str, Scenario]:
    """Run one leg of the suite into `folder`; a server's leg needs the server's `url`."""
    suite = [MODULES / ".bin" / "node", MODULES / expected["package"] / "dist" / "index.js"]
    if not all(path.exists() for path in suite):
        raise SystemExit("the conformance suite is not installed: run scripts/setup-node (or make conformance)")
    side = expected["side"]
    # `exec`, so that the suite's time limit ends the client and not the shell before it.
    client = f"exec {shlex.join([sys.executable, str(HERE / 'client.py')])}{' --pin' if expected.get('pinned') else ''}"
    target = ["--url", url or ""] if side == "server" else ["--command", client, "--timeout", str(CLIENT_LIMIT * 1000)]
    log = folder.parent / f"{folder.name}.log"
    run_all([[*suite, side, *target, *choice, "-o", folder] for choice in choices(expected, [*suite])], log)
    results = read_results(folder, side)
    if not results:
        print(f"the suite wrote no results; its last words:\n{tail(log)}")
    return results


def run_all(commands: list[list[str | Path]], log: Path) -> None:
    """Run these, a few at a time; a leg that is cut off shows as scenarios that did not run."""
    limit = time.monotonic() + LEG_LIMIT
    running: list[subprocess.Popen[bytes]] = []
    try:
        while (commands or running) and time.monotonic() < limit:
            while commands and len(running) < LANES:
                with log.open("ab") as output:
                    running.append(
                        subprocess.Popen(
                            commands.pop(0),
                            stdin=subprocess.DEVNULL,
                            stdout=output,
                            stderr=output,
                            start_new_session=True,
                        )
                    )
            for process in [process for process in running if process.poll() is not None]:
                running.remove(process)
                end_group(process)
            time.sleep(0.02)
    finally:
        for process in running:
            end_group(process)


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
        end_group(server)


def end_group(leader: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group, and whatever of the group is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGTERM)
    try:
        leader.wait(5)
    except subprocess.TimeoutExpired:
        print(f"note: {leader.args} ignored SIGTERM for 5 s (pid {leader.pid}); killed")
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()


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


def print_table(side: str, legs: dict[str, dict[str, Scenario]]) -> None:
    names = sorted({name for results in legs.values() for name in results})
    title = f"{side} scenario"
    wide = max(len(name) for name in (title, *names))
    columns = {leg: max(9, len(leg)) for leg in legs}
    print(f"{title:{wide}}" + "".join(f"  {leg:>{columns[leg]}}" for leg in legs))
    for name in names:
        cells = {leg: results[name].cell() if name in results else "-" for leg, results in legs.items()}
        print(f"{name:{wide}}" + "".join(f"  {cell:>{columns[leg]}}" for leg, cell in cells.items()))
    totals = {leg: Scenario([c for s in results.values() for c in s.checks]).cell() for leg, results in legs.items()}
    print(f"{'total':{wide}}" + "".join(f"  {total:>{columns[leg]}}" for leg, total in totals.items()) + "\n")


def print_coverage(side: str, legs: dict[str, dict[str, Any]], results: dict[str, dict[str, Scenario]]) -> None:
    """How many different scenarios of each release were run, over all legs."""
    for package in dict.fromkeys(leg["package"] for leg in legs.values()):
        run = {name for leg, found in results.items() if legs[leg]["package"] == package for name in found}
        wanted = {name for leg in legs.values() if leg["package"] == package for name in leg["minimum"]}
        print(f"{package}, {side}: {len(run & wanted)}/{len(wanted)} scenarios\n")


def main() -> int:
    expected = read_expected()
    parser = argparse.ArgumentParser(description="Run the official conformance suite and compare with expected.toml.")
    parser.add_argument("--leg", choices=[*expected, "server", "client", "all"], help="default: all")
    parser.add_argument("--url", help="use a server that already runs")
    parser.add_argument("--server", help="command that starts the server; --port N is appended")
    parser.add_argument(
        "--through", choices=["modern", "legacy"], help="put our proxy between the suite and the server"
    )
    parser.add_argument("--keep", action="store_true", help="keep the suite's output, and say where")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what we started is ended when we are

    wanted = options.leg or ("server" if options.url or options.server else "all")
    chosen = {name: leg for name, leg in expected.items() if wanted in (name, leg["side"], "all")}
    command = shlex.split(options.server) if options.server else [sys.executable, str(HERE / "server.py")]
    if options.through:
        command = [sys.executable, str(HERE / "proxied.py"), "--era", options.through]
    work = Path(tempfile.mkdtemp(prefix="conformance-"))
    problems: list[str] = []
    try:
        for side in ("server", "client"):
            legs = {name: leg for name, leg in chosen.items() if leg["side"] == side}
            if not legs:
                continue
            with contextlib.ExitStack() as stack:
                url = options.url
                if side == "server" and not url:
                    url = stack.enter_context(start_server(command, work / "server.log"))
                results = {name: run_leg(leg, url, work / name) for name, leg in legs.items()}
            print_table(side, results)
            print_coverage(side, legs, results)
            for name, leg in legs.items():
                found = list(find_problems(leg, results[name]))
                if options.through:
                    found = list(without_untold(found, leg.get("through", {}).get(options.through, {})))
                problems += [f"[{name}] {line}" for line in found]
        if problems:
            print(f"{len(problems)} problems:")
            print("\n".join(f"  {line}" for line in problems))
            if (work / "server.log").exists():
                print(f"\nthe server's last words:\n{tail(work / 'server.log')}")
        else:
            print("all as expected")
        return bool(problems)
    finally:
        if options.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
