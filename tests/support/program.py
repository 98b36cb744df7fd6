"""Programs that tests start, kill and start again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

START_LIMIT = 30.0  # seconds; a process needs about one on a busy machine


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Program:
    """A process that listens on a port, can be killed, and started again."""

    def __init__(self, name: str, port: int, command: list[str], log: Path, **environment: str) -> None:
        self.name = name
        self.port = port
        self._command = command
        self._log = log
        # A process that is started again must not compile the whole library again.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._environment = {**kept, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def start(self) -> None:
        assert self._process is None, f"{self.name} runs already"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,  # a hangup has no terminal to be of
            )

    def kill(self) -> None:
        """-9: it has no time to say anything to anybody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def workers(self) -> list[int]:
        """The processes that a supervisor has started."""
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [line.split() for line in listed.splitlines()]
        return [int(pid) for pid, parent in pairs if int(parent) == self.pid]

    async def wait_for(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 2 * START_LIMIT
        while not is_so():
            assert time.monotonic() < deadline, f"{self.name} did not get so far:\n{self.log()}"
            await asyncio.sleep(0.05)

    async def wait_until_listening(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while not listens(self.port):
            assert self._process is not None
            assert self._process.poll() is None, f"{self.name} ended by itself:\n{self.log()}"
            assert time.monotonic() < deadline, f"{self.name} does not listen:\n{self.log()}"
            await asyncio.sleep(0.02)

    def everything(self) -> str:
        """All it ever logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def log(self) -> str:
        return self.everything()[-4000:]
