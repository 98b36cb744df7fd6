"""A real Redis of the test's own: on a free port of 127.0.0.1, in a folder of its own, killed with the test.

`.tools/redis/redis-server` is put there by `scripts/setup-redis`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.ports import find_port
from tests.support.until import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
BINARY = ROOT / ".tools" / "redis" / "redis-server"


class RedisServer:
    """Can be killed, paused, and started again on the same port with what it had written."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        assert BINARY.exists(), "there is no Redis server for the tests: run scripts/setup-redis"
        self.folder = folder
        # Nodes of a cluster talk to each other on the port 10,000 above.
        self.port = port or find_port(also=10_000 if "--cluster-enabled" in options else 0)
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self._run("--save", "", "--appendonly", "yes", "--appendfsync", "no", *self._options)

    def start_sentinel(self, file: Path) -> None:
        self._run(str(file), "--sentinel")

    def _run(self, *words: str) -> None:
        config = [words[0]] if words[0].endswith(".conf") else []
        common = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder))
        log = self.folder / "redis.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(BINARY), *config, *common, *words[len(config) :]],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            assert self._process.poll() is None, f"redis-server did not start: {log.read_text(errors='replace')}"
            assert time.monotonic() < deadline, f"redis-server does not answer: {log.read_text(errors='replace')}"
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            reply = self.say("PING")
        except OSError:
            return False
        return reply.startswith((b"+PONG", b"-NOAUTH"))

    def say(self, *words: str | bytes) -> bytes:
        """One command, without any library; the start of the reply."""
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        command = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.settimeout(1)
            connection.sendall(command)
            return connection.recv(65536)

    def hang_up_on_all(self, password: str) -> None:
        """Hang up on everyone: who comes back needs the password."""
        with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(f"AUTH {password}\r\nCLIENT KILL TYPE normal\r\n".encode())
            heard = b""
            while heard.count(b"\r\n") < 2:
                heard += connection.recv(100)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It is there, takes connections, and does nothing."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)


@contextlib.contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    server = RedisServer(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for the tests of a file."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server
