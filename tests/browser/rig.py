"""A real inspector in a process of its own, real servers, and a real Chromium that looks at its page."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port
from tests.support.program import listens
from tests.support.until import wait_until

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHROMIUM = ROOT / ".tools" / "chromium" / "chromium"
PAGE = ROOT / "src" / "trimaran" / "apps" / "inspector" / "page" / "index.html"
AXE = ROOT / ".tools" / "page" / "node_modules" / "axe-core" / "axe.min.js"
MODULES = ROOT / ".tools" / "node" / "node_modules"
NODE = MODULES / ".bin" / "node"
RAW = shlex.join([sys.executable, str(HERE / "raw_server.py")])
EVERYTHING = shlex.join([str(NODE), str(MODULES / "@modelcontextprotocol/server-everything/dist/index.js"), "stdio"])
# No GPU, and no sandbox: containers and root have none. /dev/shm is small in containers.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
LINK = re.compile(r"http://127\.0\.0\.1:\d+/\?token=\S+")
START_LIMIT = 40.0  # seconds; on a busy machine it takes about three


def need(*paths: Path) -> None:
    missing = [path for path in paths if not path.exists()]
    if missing:
        pytest.skip(f"not set up: {', '.join(str(path.relative_to(ROOT)) for path in missing)} (run make setup)")


@dataclass
class Inspector:
    """A running `trimaran inspect`."""

    link: str
    pid: int
    storage: Any = None
    """Cookie and session of the first browser that came with the link, whose token works once; the next ones borrow them."""

    @property
    def origin(self) -> str:
        return self.link.split("/?", 1)[0]


def environment(home: Path) -> dict[str, str]:
    """A home of its own: nobody's configuration is read, and nobody's is written."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTHONDONTWRITE"))}
    return {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data")}


@contextlib.contextmanager
def inspecting(*targets: str, options: tuple[str, ...] = ()) -> Iterator[Inspector]:
    """Run the command as a person does, and end it."""
    need(PAGE, CHROMIUM)
    with tempfile.TemporaryDirectory(prefix="trimaran-inspect-") as folder:
        home = Path(folder)
        log = home / "log"
        words = [sys.executable, "-m", "trimaran", "inspect", "--no-open", "--port", "0", *options, *targets]
        with log.open("wb") as out:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(home), cwd=home
            )
        try:

            def link() -> str | None:
                assert process.poll() is None, f"trimaran inspect ended:\n{log.read_text()}"
                match = LINK.search(log.read_text())
                return match[0] if match else None

            yield Inspector(wait_until(link, "the link of the inspector", START_LIMIT), process.pid)
        finally:
            end(process)


@contextlib.contextmanager
def serving_harbour(port: int = 0) -> Iterator[str]:
    """The demo's harbour on HTTP."""
    port = port or find_port()
    words = [
        sys.executable,
        "-m",
        "trimaran",
        "serve",
        "trimaran.apps.demo.server:server",
        "--http",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port), "the harbour", START_LIMIT)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
