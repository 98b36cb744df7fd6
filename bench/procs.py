"""Processes the bench starts, and what the kernel knows about them.

Only processes started here are ever signalled: a server, and the descendants found under its pid while it ran.
Sizes come from /proc; where there is none (not Linux) asking for them raises `UnavailableError`.
"""

import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self, cast

READY_SECONDS = 120  # a rival with 10,000 tools takes tens of seconds to register them
STOP_SECONDS = 5
BUSY = 0.1  # of the machine: with more for others, some things cannot be judged


class UnavailableError(Exception):
    """This measurement cannot be made here; the text says why."""


def raise_file_limit() -> int:
    """Lift the soft limit of open files to the hard one (children inherit it); return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return hard


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tree(pid: int) -> list[int]:
    """Return `pid` and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if Path("/proc/self/stat").exists() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The command name may hold spaces and parentheses: fields are counted after its last ")".
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found


@dataclass(frozen=True)
class Size:
    rss_mb: float
    """Resident pages, summed over the process tree: pages shared inside the tree count once per process."""
    pss_mb: float
    """The same with shared pages divided among those who share them."""
    processes: int


def size(pid: int) -> Size:
    if not Path("/proc/self/smaps_rollup").exists():
        raise UnavailableError("memory is read from /proc/*/smaps_rollup, which this system does not have")
    rss = pss = count = 0
    for member in tree(pid):
        with contextlib.suppress(OSError):
            fields = dict(
                line.split(":", 1) for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()[1:]
            )
            rss += int(fields["Rss"].split()[0])
            pss += int(fields["Pss"].split()[0])
            count += 1
    return Size(rss / 1024, pss / 1024, count)


def cpu_seconds(pid: int) -> float:
    """Return the processor time the process tree has used so far."""
    ticks = 0
    for member in tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def exact_cpu_seconds(pid: int) -> float:
    """The same to the microsecond, where the kernel counts so; threads that have ended are left out.

    For slices of some milliseconds: the other count is in hundredths of a second.
    """
    total = 0
    for member in tree(pid):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{member}/task").iterdir():
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9 if total else cpu_seconds(pid)


def machine_seconds() -> float:
    """Return the processor time that the whole machine has used so far, also what its host gave to others."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0].split()
    except OSError:
        raise UnavailableError(
            "the machine's processor time is read from /proc/stat, which this system lacks"
        ) from None
    user, nice, system, _idle, _waiting, irq, softirq, stolen = map(int, first[1:9])
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")


class Neighbours:
    """Which part of the machine goes to processes that are not ours, from when this is made."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._before = self._account()

    def _account(self) -> tuple[float, float]:
        ours = time.process_time() + sum(cpu_seconds(pid) for pid in self._pids)
        return time.perf_counter() * (os.cpu_count() or 1), machine_seconds() - ours

    def share(self) -> float:
        """Between 0 and 1."""
        capacity, used = (now - before for now, before in zip(self._account(), self._before, strict=True))
        return min(1.0, max(0.0, used / capacity))


class Conversation:
    """A child that is spoken to in lines over its pipes. A context manager: leaving it ends the child."""

    def __init__(self, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> None:
        words = [str(word) for word in command]
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self.popen = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=env, bufsize=0
        )
        self.pending = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self.popen.stdin, self.popen.stdout):
            with contextlib.suppress(OSError):
                cast("IO[bytes]", pipe).close()
        try:
            self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(STOP_SECONDS)
        self.log.close()

    def send(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # the next `receive` says why the child is gone
            cast("IO[bytes]", self.popen.stdin).write(data)

    def receive(self, seconds: float) -> bytes:
        """Return the next line."""
        stdout = cast("IO[bytes]", self.popen.stdout).fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self.pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise UnavailableError(f"no line from the child within {seconds:.0f} s")
            data = os.read(stdout, 65_536)
            if not data:
                raise UnavailableError(f"the child closed its stdout: {last_line(self.log)}")
            self.pending += data
        first, _, self.pending = self.pending.partition(b"\n")
        return first


def last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it wrote nothing"


class Process:
    """A server process and its log."""

    def __init__(self, command: Sequence[str | Path], *, env: Mapping[str, str], cores: set[int] | None = None) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self.popen = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=Path(__file__).parent / "servers",
        )
        if cores:
            os.sched_setaffinity(self.popen.pid, cores)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def wait_ready(self, port: int) -> None:
        """Wait until the port accepts a connection."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self.popen.poll() is not None:
                raise UnavailableError(f"the server exited with {self.popen.returncode}: {last_line(self.log)}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            time.sleep(0.05)
        raise UnavailableError(f"the server did not open its port within {READY_SECONDS} s: {last_line(self.log)}")

    def wait_gone(self, seconds: float) -> float | None:
        """Wait for the exit; return the seconds it took, None if it still runs."""
        started = time.monotonic()
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return time.monotonic() - started

    def stop(self) -> None:
        """End the server, kindly first."""
        members = tree(self.pid)
        if self.popen.poll() is None:
            self.popen.terminate()
            if self.wait_gone(STOP_SECONDS) is None:
                for member in members:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(member, signal.SIGKILL)
                self.popen.wait(STOP_SECONDS)
        self.log.close()


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], port: int, *, env: Mapping[str, str], cores: set[int] | None = None
) -> Iterator[Process]:
    process = Process(command, env=env, cores=cores)
    try:
        process.wait_ready(port)
        yield process
    finally:
        process.stop()
