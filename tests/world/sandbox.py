"""Run programs that nobody here wrote, so that they see nothing of this machine and leave nothing behind.

Each run has a home folder of its own, an environment made from nothing, dummy keys, and a limit. Every process that still
has that home in its environment when the run is over is ended, sessions of their own or not: agents detach their children.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import find_port

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLS = ROOT / ".tools"
NODE_BIN = TOOLS / "node" / "node_modules" / ".bin"
SDK_PYTHON = TOOLS / "peers" / "sdk" / "bin" / "python"
SERVER_COMMAND = [sys.executable, str(HERE / "server.py")]
START_LIMIT = 30.0  # seconds until our server listens: cold imports on a busy machine
END_LIMIT = 5.0  # seconds between the polite end and the other


@dataclass(frozen=True)
class Target:
    """Where a program finds our server: a command to start, or an address."""

    transport: str
    """stdio, http, or sse."""
    command: tuple[str, ...] = ()
    url: str = ""


@dataclass(frozen=True)
class Finished:
    status: int | None
    """None if the limit ran out."""
    stdout: str
    stderr: str
    seconds: float

    def complaint(self) -> str:
        """Why it ended badly: the last lines that say something."""
        ending = "the limit ran out" if self.status is None else f"exit {self.status}"
        lines = [line for line in (self.stderr + "\n" + self.stdout).splitlines() if line.strip()]
        return f"{ending} after {self.seconds:.0f} s: {' / '.join(lines[-4:])[:600]}"


class Sandbox:
    """A home folder and the environment that goes with it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "work"
        self.work.mkdir()

    def environment(self, extra: Mapping[str, str] | None = None, path: Sequence[Path] = ()) -> dict[str, str]:
        folders = [*map(str, path), str(NODE_BIN), "/usr/local/bin", "/usr/bin", "/bin"]
        return {
            "HOME": str(self.home),
            "PATH": ":".join(folders),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "CI": "1",
            "TMPDIR": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_DATA_HOME": str(self.home / ".local/share"),
            "XDG_STATE_HOME": str(self.home / ".local/state"),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            **(extra or {}),
        }

    def write(self, name: str, text: str) -> Path:
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    async def run(self, command: Sequence[str | Path], environment: Mapping[str, str], limit: float) -> Finished:
        """Run a program to its end, and no longer than the limit."""
        stdout, stderr = self.home / "stdout", self.home / "stderr"
        began = time.monotonic()
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = await asyncio.create_subprocess_exec(
                *map(str, command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.work,
                env=dict(environment),
                start_new_session=True,
            )
            status: int | None = None
            try:
                status = await asyncio.wait_for(process.wait(), limit)
            except TimeoutError:
                pass
            finally:
                await end_processes_of(self.home)
                await process.wait()
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in (stdout, stderr)]
        return Finished(status, texts[0], texts[1], time.monotonic() - began)

    @contextlib.asynccontextmanager
    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> AsyncIterator[None]:
        """Keep a program running for the time of the block: a server, or a bridge.

        It gets a home of its own inside ours, so that the end of a client's run does not end it.
        """
        home = self.home / "background"
        home.mkdir()
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={**environment, "HOME": str(home)},
            start_new_session=True,
        )
        try:
            yield
        finally:
            await end_processes_of(home)
            await process.wait()
            shutil.rmtree(home, ignore_errors=True)


@contextlib.asynccontextmanager
async def open_sandbox() -> AsyncIterator[Sandbox]:
    home = Path(tempfile.mkdtemp(prefix="world-"))
    try:
        yield Sandbox(home)
    finally:
        await end_processes_of(home)
        shutil.rmtree(home, ignore_errors=True)


@contextlib.asynccontextmanager
async def open_target(
    sandbox: Sandbox, transport: str, without: Sequence[str] = (), *, through: str = ""
) -> AsyncIterator[Target]:
    """Our server for a program: on stdio the program starts it; on HTTP it already listens.

    `without`: tools that it leaves out. `through`: an era; then `trimaran serve` stands between, and speaks it to the server.
    """
    command = [*SERVER_COMMAND, *(("--without", *without) if without else ())]
    proxy = [sys.executable, "-P", "-m", "trimaran.apps.cli", "serve", "--per-caller", "--era", through]
    if transport == "stdio":
        yield Target("stdio", command=(*proxy, "--", *command) if through else tuple(command))
        return
    port = find_port()
    listening = [*command, "--http", str(port)]
    if through:
        listening = [*proxy, "--port", str(port), "--sse-path", "/sse", "--", *command]
    async with sandbox.start(listening, sandbox.environment()):
        await wait_until_listening(port)
        yield Target(transport, url=f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}")


async def wait_until_listening(port: int) -> None:
    limit = time.monotonic() + START_LIMIT
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if time.monotonic() > limit:
            raise TimeoutError(f"nothing listens on port {port} after {START_LIMIT:g} s")
        await asyncio.sleep(0.05)


async def end_processes_of(home: Path) -> None:
    """End every process that was started with this home folder."""
    for signal_number, patience in ((signal.SIGTERM, END_LIMIT), (signal.SIGKILL, END_LIMIT)):
        limit = time.monotonic() + patience
        pids = list(_processes_of(home))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal_number)
        while pids and time.monotonic() < limit:
            await asyncio.sleep(0.05)
            pids = list(_processes_of(home))
        if not pids:
            return


def is_running(pid: int) -> bool:
    """A process that is over but not reaped yet does not run."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:4]
    except FileNotFoundError:
        return False


def _processes_of(home: Path) -> Iterator[int]:
    """By their environment, where the system shows it (Linux): a process group misses children that left it."""
    entry = f"HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)
