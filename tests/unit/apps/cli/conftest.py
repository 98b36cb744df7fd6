"""The command line as a real child process: bounded waits, everything closed at the end.

Fixtures: `spawn` starts `trimaran` with its pipes in the test's hands; `trimaran` runs it to its end.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
SECONDS = 15.0  # for one line: generous, since a loaded machine starts interpreters slowly


class Child:
    """A running `trimaran`, with its output as lines that are waited for."""

    def __init__(self, *words: str, cwd: Path | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trimaran.apps.cli", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.stderr: list[str] = []
        self._out: queue.Queue[str | None] = queue.Queue()
        self._err: queue.Queue[str | None] = queue.Queue()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._threads = [self._read(self.process.stdout, self._out), self._read(self.process.stderr, self._err)]

    def _read(self, stream: IO[bytes], into: queue.Queue[str | None]) -> threading.Thread:
        def read() -> None:
            with stream:
                for line in stream:
                    into.put(line.decode())
            into.put(None)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The next line of stdout, which must be JSON."""
        line = self._out.get(timeout=SECONDS)
        assert line is not None, f"stdout ended; stderr: {self.all_stderr()}"
        return json.loads(line)

    def call(self, id: int | str, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """A legacy request and its reply."""
        self.send(id=id, method=method, params=params or {})
        reply = self.receive()
        assert reply.get("id") == id, reply
        return reply

    def call_modern(self, id: int | str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.send(id=id, method=method, params={**params, "_meta": META})
        reply = self.receive()
        assert reply.get("id") == id, reply
        return reply

    def shake_hands(self, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
        hello = {
            "protocolVersion": "2025-11-25",
            "clientInfo": {"name": "t", "version": "0"},
            "capabilities": capabilities or {},
        }
        reply = self.call(0, "initialize", hello)
        self.send(method="notifications/initialized")
        return reply["result"]

    def wait_stdout(self, text: str) -> str:
        return self._wait(self._out, text)

    def wait_stderr(self, text: str) -> str:
        """Read stderr until a line holds the text."""
        return self._wait(self._err, text, self.stderr)

    def _wait(self, lines: queue.Queue[str | None], text: str, kept: list[str] | None = None) -> str:
        seen: list[str] = []
        while True:
            line = lines.get(timeout=SECONDS)
            assert line is not None, f"{text!r} never came; what came: {''.join(seen)}"
            seen.append(line)
            if kept is not None:
                kept.append(line)
            if text in line:
                return line

    def all_stderr(self) -> str:
        while (line := self._err.get(timeout=SECONDS)) is not None:
            self.stderr.append(line)
        return "".join(self.stderr)

    def rest(self) -> list[str]:
        lines: list[str] = []
        while (line := self._out.get(timeout=SECONDS)) is not None:
            lines.append(line)
        return lines

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def terminate(self) -> int:
        self.process.terminate()
        return self.wait()

    def end_input(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(SECONDS)

    def close(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for thread in self._threads:
            thread.join(SECONDS)


Spawn = Callable[..., Child]


@pytest.fixture(autouse=True)
def own_logins(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logins of whoever runs the tests are none of their business."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start `trimaran` with these words."""
    children: list[Child] = []

    def start(*words: str, cwd: Path | None = None) -> Child:
        child = Child(*words, cwd=cwd)
        children.append(child)
        return child

    yield start
    for child in children:
        child.close()


@pytest.fixture
def trimaran() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `trimaran` with these words to its end."""

    def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trimaran.apps.cli", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=25,
            cwd=cwd,
        )

    return run


BOAT = """
from trimaran import Server

server = Server("boat", version="1.0.0")


@server.tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
"""


@pytest.fixture
def boat(tmp_path: Path) -> Path:
    """A file with a small server."""
    path = tmp_path / "boat.py"
    path.write_text(BOAT)
    return path
