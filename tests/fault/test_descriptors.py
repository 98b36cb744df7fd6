"""A process that has used up its descriptors: what is open goes on, probes are answered, and it recovers by itself."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import call, http, modern_http
from tests.support.until import PATIENCE

SERVER = """
import asyncio, os, resource, sys
import logging

from trimaran import Server
from trimaran.serve import run, serve

server = Server("narrow", version="1")
taken = []

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def take() -> int:
    while True:
        try:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return len(taken)

@server.tool
async def give_back() -> None:
    while taken:
        os.close(taken.pop())

def ready(http):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    print(http.port, flush=True)

logging.basicConfig(level=logging.INFO)
if sys.argv[1] == "asyncio":
    asyncio.run(serve(server, "http", port=0, on_ready=ready))
else:
    run(server, "http", port=0, on_ready=ready)
"""


class Caller:
    """One connection, kept."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._file = self._socket.makefile("rb")

    def ask(self, request: bytes) -> tuple[int, dict[str, str], Any]:
        self._socket.sendall(request)
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers, json.loads(self._file.read(int(headers["content-length"])))

    def call(self, tool: str, **arguments: Any) -> Any:
        status, _, reply = self.ask(modern_http(call(tool, arguments)))
        assert status == 200, reply
        return reply["result"].get("structuredContent")

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Narrow:
    """A server that may have 64 descriptors."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    def once(self, request: bytes) -> tuple[int, dict[str, str], Any]:
        with contextlib.closing(Caller(self.port)) as caller:
            return caller.ask(request)

    def probe(self, path: str) -> tuple[int, Any]:
        status, _, body = self.once(http(b"", {}, "GET", path))
        return status, body

    def ready_again(self) -> bool:
        deadline = time.monotonic() + PATIENCE
        while self.probe("/readyz") != (200, {"status": "ready"}):
            assert time.monotonic() < deadline, "it does not recover"
            time.sleep(0.05)
        return True

    def complaints(self) -> list[str]:
        """Every line of the log but that it serves."""
        return [line for line in self._log.read_text().splitlines() if not line.startswith("INFO")]


@pytest.fixture(params=["uvloop", "asyncio"])
def narrow(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Narrow]:
    log = tmp_path / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", SERVER, request.param], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield Narrow(process, int(process.stdout.readline()), log)
        finally:
            process.kill()


@pytest.mark.slow
def test_more_connections_than_descriptors_leave_probes_and_open_connections_alone(narrow: Narrow) -> None:
    """Whose rule: ours. A refusal says why, and when to come back; nothing spins, and the log stays short."""
    with contextlib.closing(Caller(narrow.port)) as before:
        assert before.call("add", a=1, b=2) == 3
        idle = [socket.create_connection(("127.0.0.1", narrow.port), PATIENCE) for _ in range(150)]
        try:
            deadline = time.monotonic() + PATIENCE
            while narrow.probe("/readyz")[0] == 200:
                assert time.monotonic() < deadline
            for _ in range(5):
                assert narrow.probe("/livez") == (200, {"status": "alive"})
                assert narrow.probe("/readyz") == (
                    503,
                    {"status": "unavailable", "reason": "no descriptor is left for new connections"},
                )
                status, headers, refusal = narrow.once(modern_http(call("add", {"a": 1, "b": 2})))
                assert status == 503 and headers["retry-after"] and headers["connection"] == "close"
                assert "no descriptor left" in refusal["error"]["message"]
                assert before.call("add", a=1, b=2) == 3
        finally:
            for connection in idle:
                connection.close()
        assert narrow.ready_again()
        assert before.call("add", a=1, b=2) == 3
        assert narrow.once(modern_http(call("add", {"a": 1, "b": 2})))[0] == 200
    told = narrow.complaints()
    assert any("raise the limit of open files" in line for line in told)
    assert len(told) < 8, told


@pytest.mark.slow
def test_descriptors_that_something_else_has_taken_are_no_end_of_the_server(narrow: Narrow) -> None:
    with contextlib.closing(Caller(narrow.port)) as before:
        for _ in range(2):
            assert before.call("take") > 20
            assert narrow.probe("/livez")[0] == 200
            assert narrow.probe("/readyz")[0] == 503
            assert narrow.once(modern_http(call("add", {"a": 1, "b": 2})))[0] == 503
            assert before.call("add", a=1, b=2) == 3
            before.call("give_back")
            assert narrow.ready_again()
            assert narrow.once(modern_http(call("add", {"a": 1, "b": 2})))[0] == 200
    told = narrow.complaints()
    assert any("no connection can be accepted (Too many open files)" in line for line in told)
    assert len(told) < 12, told
