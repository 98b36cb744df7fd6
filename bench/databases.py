"""The stores that servers are measured with: memory, a SQLite file, a Redis of the bench's own.

Redis runs as it usually does where nothing may be lost: an append-only file, flushed once a second. SQLite files lie in
memory where the system has such a place, so that what is measured is the store and not the disk of the day.
"""

import contextlib
import itertools
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import contenders
from procs import STOP_SECONDS, UnavailableError, free_port

BINARY = contenders.ROOT / ".tools" / "redis" / "redis-server"
READY_SECONDS = 10
RAM = Path("/dev/shm")


class Redis:
    """A context manager: one Redis on loopback, gone with it."""

    def __init__(self) -> None:
        if not BINARY.exists():
            raise UnavailableError(f"{BINARY} is missing: run scripts/setup-redis")
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="trimaran-bench-")
        self._numbers = itertools.count()
        self._popen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": self._folder.name,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxclients": "1000",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._popen = subprocess.Popen([BINARY, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers():
            if self._popen.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise UnavailableError("redis-server does not answer")
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait(STOP_SECONDS)
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        assert self._popen is not None
        return self._popen.pid

    def url(self, namespace: str | None = None) -> str:
        """A part of it that nobody has used before, unless it is named."""
        return f"redis://127.0.0.1:{self.port}/0?namespace={namespace or f'bench{next(self._numbers)}'}"

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.say("PING").startswith(b"+PONG")
        return False

    def say(self, *words: str) -> bytes:
        """One command, without any library; the start of the reply."""
        parts = [word.encode() for word in words]
        command = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            connection.sendall(command)
            return connection.recv(65_536)

    def fact(self, section: str, name: str) -> float:
        """A number of what it says of itself."""
        found = re.search(rf"^{name}[:=]([0-9.]+)", self.say("INFO", section).decode(), re.MULTILINE)
        if found is None:
            raise UnavailableError(f"Redis does not say its {name}")
        return float(found[1])

    def used_bytes(self) -> float:
        return self.fact("memory", "used_memory")

    def used_seconds(self) -> float:
        """Its processor time; of its main part, to the microsecond."""
        return self.fact("cpu", "used_cpu_user") + self.fact("cpu", "used_cpu_sys")


@contextlib.contextmanager
def sqlite_folder() -> Iterator[Path]:
    """Where the files of SQLite lie for a while."""
    with tempfile.TemporaryDirectory(prefix="trimaran-bench-", dir=RAM if RAM.is_dir() else None) as folder:
        yield Path(folder)


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"
