"""Workers and their supervisor, when either of them dies, is told to end, or loses its terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port

from trimaran import connect
from trimaran.errors import Error

pytestmark = [
    pytest.mark.slow,
    pytest.mark.deadline(180),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need fork"),
]

SECONDS = 30.0  # for anything that should take a moment: the machine may be busy

CODE = """
import logging, os, sys, time
import trimaran.workers
from trimaran import Server
logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
trimaran.workers._ORPHAN_SECONDS = trimaran.workers._END_SECONDS = 1.0
server = Server("many", version="1")
@server.tool(annotations={"idempotentHint": True})
async def who() -> dict[str, int]:
    return {"pid": os.getpid(), "release": 1}
@server.tool
async def hang() -> int:
    sys.stderr.write(f"hanging in {os.getpid()}\\n")
    time.sleep(600)
    return 0
server.run("http", port=int(sys.argv[1]), workers=2)
"""


class Fleet:
    """A supervisor with two workers, and what it wrote."""

    def __init__(self, folder: Path, port: int, **more: Any) -> None:
        self.file = folder / "many.py"
        if not self.file.exists():
            self.file.write_text(CODE)
        self.port = port
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(self.file), str(port)], stderr=subprocess.PIPE, **{"stdin": subprocess.DEVNULL, **more}
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self.lines.append(line.decode())

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def wait_for(self, is_so: Callable[[], Any]) -> Any:
        until = time.monotonic() + SECONDS
        while not (answer := is_so()):
            assert time.monotonic() < until, self.log
            time.sleep(0.02)
        return answer

    def wait_for_all_to_end(self) -> None:
        """Everybody who could write to the log has gone: the supervisor, and every worker."""
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), f"a process is left: {self.log}"
        self.process.wait(SECONDS)

    def ask(self) -> dict[str, int] | None:
        async def ask() -> dict[str, int]:
            async with connect(self.url, version="2026-07-28", timeout=5) as client:
                return (await client.call_tool("who")).data

        with contextlib.suppress(Error):
            return asyncio.run(ask())
        return None

    def workers(self) -> set[int]:
        """Both workers, from their answers."""
        seen: set[int] = set()

        def is_enough() -> bool:
            answer = self.ask()
            if answer is not None:
                seen.add(answer["pid"])
            return len(seen) >= 2

        self.wait_for(is_enough)
        assert self.process.pid not in seen
        return seen

    def hang(self) -> int:
        """Block the event loop of one worker for good; its process id."""

        async def hang() -> None:
            async with connect(self.url, version="2026-07-28") as client:
                with contextlib.suppress(Error):
                    await client.call_tool("hang", timeout=0.5)

        asyncio.run(hang())
        found: Any = self.wait_for(lambda: re.search(r"hanging in (\d+)", self.log))
        return int(found[1])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    fleets: list[Fleet] = []

    def start(port: int | None = None, **more: Any) -> Fleet:
        fleets.append(Fleet(tmp_path, find_port() if port is None else port, **more))
        return fleets[-1]

    yield start
    for fleet in fleets:
        if fleet.process.poll() is None:
            fleet.process.terminate()
        fleet.wait_for_all_to_end()


def test_workers_end_with_a_killed_supervisor_and_the_next_finds_the_port(start: Callable[..., Fleet]) -> None:
    fleet = start()
    before = fleet.workers()
    fleet.process.kill()
    successor = start(fleet.port)
    fleet.wait_for_all_to_end()  # until then the workers of the dead supervisor still answer on the port they share
    assert not successor.workers() & before
    assert "cannot listen" not in successor.log


def test_a_worker_that_hangs_ends_with_a_killed_supervisor(start: Callable[..., Fleet]) -> None:
    fleet = start()
    fleet.workers()
    fleet.hang()
    fleet.process.kill()
    fleet.wait_for_all_to_end()


def test_a_worker_that_hangs_does_not_keep_the_supervisor_from_ending(start: Callable[..., Fleet]) -> None:
    fleet = start()
    fleet.workers()
    stuck = fleet.hang()
    fleet.process.terminate()
    fleet.wait_for_all_to_end()
    assert fleet.process.returncode == 0
    assert f"(process {stuck}) did not end within" in fleet.log


@pytest.mark.parametrize("is_group", [False, True], ids=["supervisor", "group"])
def test_a_hangup_replaces_the_workers_one_by_one_with_the_code_as_it_is_now(
    start: Callable[..., Fleet], is_group: bool
) -> None:
    fleet = start(start_new_session=True)
    before = fleet.workers()
    fleet.file.write_text(CODE.replace('"release": 1', '"release": 2'))
    (os.killpg if is_group else os.kill)(fleet.process.pid, signal.SIGHUP)
    answers: list[Any] = []

    def is_over() -> bool:
        answers.append(fleet.ask())
        return "all workers are new" in fleet.log

    fleet.wait_for(is_over)
    assert not fleet.workers() & before
    fleet.wait_for(lambda: all(not _lives(pid) for pid in before))
    assert fleet.ask() and fleet.ask()["release"] == 2  # type: ignore[index]
    assert None not in answers, "somebody was not served in between"
    assert "ERROR" not in fleet.log
    assert fleet.process.poll() is None
    # A worker that dies now is replaced by one of the new release.
    os.kill(fleet.workers().pop(), signal.SIGKILL)
    assert all(answer["release"] == 2 for answer in (fleet.ask() for _ in range(5)) if answer is not None)
    assert len(fleet.workers()) == 2


def test_code_that_does_not_load_leaves_the_workers_in_place(start: Callable[..., Fleet]) -> None:
    fleet = start(start_new_session=True)
    before = fleet.workers()
    fleet.file.write_text("this is not Python")
    fleet.process.send_signal(signal.SIGHUP)
    fleet.wait_for(lambda: "the workers before it go on" in fleet.log)
    assert fleet.workers() == before


def test_a_server_whose_terminal_is_closed_ends_with_its_workers(start: Callable[..., Fleet]) -> None:
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        import fcntl
        import termios

        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    fleet = start(stdin=theirs, preexec_fn=take_terminal)
    os.close(theirs)
    fleet.workers()
    os.close(ours)
    fleet.wait_for_all_to_end()
    assert fleet.process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_worker_that_is_told_to_end_is_replaced_and_that_is_no_error(
    start: Callable[..., Fleet], number: signal.Signals
) -> None:
    fleet = start()
    before = fleet.workers()
    for pid in before:
        os.kill(pid, number)
    fleet.wait_for(lambda: fleet.log.count("was told to end") == 2)
    assert not fleet.workers() & before
    assert "ERROR" not in fleet.log


def test_workers_that_are_killed_again_and_again_are_replaced(start: Callable[..., Fleet]) -> None:
    fleet = start()
    for _ in range(4):
        for pid in fleet.workers():
            os.kill(pid, signal.SIGKILL)
    assert len(fleet.workers()) == 2
    assert fleet.log.count("ended with SIGKILL") == 8


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Processes of one: they end with whoever they belong to, even if their loop hangs.

ALONE = """
import os, sys, time
import trimaran.apps.cli.reload, trimaran.transports.stdio
from trimaran import Server
trimaran.apps.cli.reload._STOP_SECONDS = trimaran.transports.stdio._ORPHAN_SECONDS = 1.0
server = Server("alone", version="1")
@server.tool
async def hang() -> int:
    sys.stderr.write("hanging\\n")
    time.sleep(600)
    return 0
"""
CALL = b"""{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}\n"""
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "trimaran.apps.cli", "serve", sys.argv[1]], stdin=subprocess.PIPE)
child.stdin.write(sys.stdin.buffer.readline())
child.stdin.flush()
sys.stdin.buffer.read()
"""


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    file = tmp_path / "alone.py"
    file.write_text(ALONE)
    processes: list[subprocess.Popen[bytes]] = []

    def begin(*words: str) -> subprocess.Popen[bytes]:
        command = [str(file) if word == "FILE" else word for word in words]
        process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def _wait_for_line(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stderr is not None
    assert any(text in line for line in process.stderr), f"it ended, and never wrote {text!r}"


def test_a_stdio_server_that_hangs_ends_when_its_client_is_killed(
    alone: Callable[..., subprocess.Popen[bytes]],
) -> None:
    client = alone("-c", PARENT, "FILE")
    assert client.stdin is not None and client.stderr is not None
    client.stdin.write(CALL)
    client.stdin.flush()
    _wait_for_line(client, b"hanging")
    client.kill()
    client.stderr.read()  # ends with the last process that holds it: the server


def test_a_worker_that_hangs_ends_with_a_killed_reloader(alone: Callable[..., subprocess.Popen[bytes]]) -> None:
    port = find_port()
    front = alone("-m", "trimaran.apps.cli", "serve", "FILE", "--reload", "--port", str(port))
    assert front.stderr is not None
    _wait_for_line(front, b"is served at")

    async def hang() -> None:
        async with connect(f"http://127.0.0.1:{port}/mcp", version="2026-07-28") as client:
            with contextlib.suppress(Error):
                await client.call_tool("hang", timeout=0.5)

    asyncio.run(hang())
    _wait_for_line(front, b"hanging")
    front.kill()
    front.stderr.read()


def test_a_server_alone_ends_in_order_when_its_terminal_is_closed(
    alone: Callable[..., subprocess.Popen[bytes]],
) -> None:
    server = alone("-m", "trimaran.apps.cli", "serve", "FILE", "--port", str(find_port()))
    _wait_for_line(server, b"is served at")
    server.send_signal(signal.SIGHUP)
    assert server.wait(SECONDS) == 0
