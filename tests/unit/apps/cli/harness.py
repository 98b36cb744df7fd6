"""Run the command line inside the test, where leaked tasks, sockets and children are noticed; and at a terminal of its own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shlex
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trimaran.apps.cli import main

HARBOUR = str(Path(__file__).with_name("harbour.py"))
ODD = str(Path(__file__).parents[3] / "support" / "odd_server.py")
SECONDS = 20.0


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_cli(capsys: pytest.CaptureFixture[str], *words: str) -> Done:
    """`trimaran` with these words, in this process."""
    capsys.readouterr()
    code = main(words)
    out, err = capsys.readouterr()
    assert "Traceback" not in err or "--debug" in words, err
    return Done(code, out, err)


def odd(**answers: Any) -> str:
    """The command of a server that answers so; `tools__list={"error": -32603}`, None for silence."""
    by_method = {name.replace("__", "/"): answer for name, answer in answers.items()}
    return shlex.join([sys.executable, "-S", ODD, json.dumps(by_method)])


class AtTerminal:
    """`trimaran` at a terminal of 80 columns, typed to when it asks."""

    def __init__(self, *words: str, cwd: Path | None = None) -> None:
        self.seen = ""
        self._read_to = 0
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            if cwd is not None:
                os.chdir(cwd)
            os.environ["TERM"] = "xterm"
            for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
                os.environ.pop(name, None)
            os.execv(sys.executable, [sys.executable, "-m", "trimaran.apps.cli", *words])
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
        self._code: int | None = None

    def wait_for(self, text: str) -> str:
        """Read until the text appears after what was read before; what came with it."""
        deadline = time.monotonic() + SECONDS
        while text not in self.seen[self._read_to :]:
            assert self._read(deadline), f"{text!r} never came; what came: {self.seen}"
        at = self.seen.index(text, self._read_to) + len(text)
        came, self._read_to = self.seen[self._read_to : at], at
        return came

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def answer(self, prompt: str, text: str) -> None:
        """Wait for a prompt and type a line."""
        self.wait_for(prompt)
        self.type(f"{text}\n")

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            pass
        self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError(f"nothing came in time; what came: {self.seen}")
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # what Linux says when the other side has closed
            return False
        self.seen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)

    def close(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)

    def __enter__(self) -> AtTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def plain(lines: Sequence[str] | str) -> str:
    """Text with its runs of blanks and line ends made single blanks: where it was wrapped does not matter."""
    return " ".join((lines if isinstance(lines, str) else "\n".join(lines)).split())
