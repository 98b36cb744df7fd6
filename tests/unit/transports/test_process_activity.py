"""Whether a process is at work: seen on real children. Linux only."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from trimaran.transports.process_activity import is_working

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")

SPIN = "print('ready', flush=True)\nwhile True: pass"
WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
LAUNCH = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.parametrize(
    ("command", "is_busy"),
    [(["-c", SPIN], True), (["-c", WAIT], False), (["-c", LAUNCH, SPIN], True), (["-c", LAUNCH, WAIT], False)],
    ids=["spins", "waits", "its child spins", "its child waits"],
)
def test_a_process_is_at_work_when_it_or_a_descendant_wants_the_processor(command: list[str], is_busy: bool) -> None:
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert within(5.0, lambda: is_working(process.pid) is is_busy)
        finally:
            subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=True)


def test_a_process_that_is_gone_does_not_work() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert not is_working(process.pid)


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Ask until the answer is yes; no if that takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
    return False
