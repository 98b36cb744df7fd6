"""Start our server, run somebody else's client against it, read what it found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parents[1] / ".tools"
NODE = TOOLS / "node" / "node_modules" / ".bin" / "node"
MODULES = TOOLS / "node" / "node_modules"
START_LIMIT = 20.0  # seconds; cold imports on a busy machine take about 3
DRIVER_LIMIT = 45.0  # seconds; a driver takes about 3
DEADLINE = 120  # above the sum of both, so that we end our own processes


@dataclass
class Outcome:
    """One run of a driver: its report, and what the server wrote down meanwhile."""

    era: str
    transport: str
    items: dict[str, Any]
    log: list[str]
    stderr: str

    @property
    def modern(self) -> bool:
        return self.era != "legacy"

    def ok(self, name: str) -> Any:
        item = self._item(name)
        assert "ok" in item, f"{name} failed in the client: {item['error']}\n{self.stderr[-3000:]}"
        return item["ok"]

    def error(self, name: str) -> dict[str, Any]:
        item = self._item(name)
        assert "error" in item, f"{name} should have been refused, but gave {item['ok']}"
        return item["error"]

    def _item(self, name: str) -> dict[str, Any]:
        assert name in self.items, f"the driver did not report {name!r}\n{self.stderr[-3000:]}"
        return self.items[name]


def need(*paths: Path) -> None:
    """Fail, not skip: an interop run that talked to nobody must not look like a good one."""
    missing = [path for path in paths if not path.exists()]
    if missing:
        pytest.fail(f"{missing[0]} is missing: run `make setup`", pytrace=False)


def server_command(log: Path) -> list[str]:
    return [sys.executable, str(HERE / "server.py"), "--log", str(log)]


@contextlib.contextmanager
def target(transport: str, log: Path) -> Iterator[list[str]]:
    """What a client is given: the URL of a running server, or the command that starts one.

    Transports: stdio, http (one endpoint, both eras), sse (HTTP+SSE, as it was in 2024-11-05: legacy only). With "+modern"
    or "+legacy" behind it, `trimaran serve` stands between: it speaks this era to the server, over the other transport.
    """
    transport, _, era = transport.partition("+")
    proxy = [sys.executable, "-P", "-m", "trimaran.apps.cli", "serve", "--era", era]
    if transport == "stdio" and not era:
        yield server_command(log)
    elif transport == "stdio":
        with listening(lambda port: [*server_command(log), "--http", str(port)]) as port:
            yield [*proxy, f"http://127.0.0.1:{port}/mcp"]
    else:
        path = "sse" if transport == "sse" else "mcp"
        there = [*proxy, "--sse-path", "/sse", "--port"] if era else [*server_command(log), "--http"]
        behind = ["--", *server_command(log)] if era else []
        with listening(lambda port: [*there, str(port), *behind]) as port:
            yield [f"http://127.0.0.1:{port}/{path}"]


@contextlib.contextmanager
def listening(command: Callable[[int], list[str]]) -> Iterator[int]:
    """Start a server on a port, and end it after."""
    port = find_port()
    with tempfile.TemporaryFile() as output:
        server = subprocess.Popen(command(port), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            wait_until_listening(server, port, output)
            yield port
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def wait_until_listening(server: subprocess.Popen[bytes], port: int, output: Any) -> None:
    limit = time.monotonic() + START_LIMIT
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if server.poll() is not None or time.monotonic() > limit:
            output.seek(0)
            pytest.fail(f"our server did not come up:\n{output.read().decode()[-3000:]}", pytrace=False)
        time.sleep(0.02)


def run(command: Sequence[str | Path], limit: float = DRIVER_LIMIT) -> subprocess.CompletedProcess[str]:
    """Run a client to its end, and it and all it started no longer than the limit."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        stderr += f"\n(killed after {limit:g} s)"
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@cache
def attempt(driver: tuple[str, ...], transport: str, mode: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        with target(transport, log) as given:
            done = run([*driver, mode, *given])
        return done, log.read_text(encoding="utf-8").splitlines()


def drive(driver: tuple[str, ...], transport: str, era: str, mode: str) -> Outcome:
    """Run a driver once per combination: its report, or its failure, serves every test.

    `mode` is the client's own word for the era.
    """
    done, log = attempt(driver, transport, mode)
    try:
        items = json.loads(done.stdout)
    except ValueError:
        items = None
    if done.returncode != 0 or not isinstance(items, dict):
        words = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        pytest.fail(f"the driver ended with {done.returncode}:\n{words}", pytrace=False)
    return Outcome(era, transport, items, log, done.stderr)
