"""What an attack is watched with: the server's process, the bystander, and the figures of both.

    server (trimaran serve target.py)  <-  bystander: one connection, steady calls, its own process
                                       <-  attacker: one process, lowest priority

On a machine with few cores all three compete. The attacker yields to the other two, and sends no more than its link carries,
so what the bystander feels is what the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.certificates import Authority
from tests.support.faults import call, initialize, is_alive, legacy_http, modern, modern_http, rss
from tests.support.ports import find_port
from tests.support.program import Program

from .bystander import Caller
from .hostile_clients import Kind
from .target import AUDIENCE, ISSUER, SECRET

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SETTLE_LIMIT = 25.0  # seconds until descriptors are given back: a document is waited for 20


@dataclass(frozen=True)
class Sample:
    due: float
    seconds: float
    verdict: str


@dataclass
class Latency:
    """Of some calls, in milliseconds."""

    p50: float
    p99: float
    most: float
    faults: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, samples: list[Sample]) -> Latency:
        if not samples:
            return cls(float("nan"), float("nan"), float("nan"), ["no answer at all"])
        ordered = sorted(sample.seconds * 1e3 for sample in samples)
        faults = sorted({sample.verdict for sample in samples if sample.verdict != "ok"})
        return cls(statistics.median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1], faults)


class Bystander:
    """The process that makes the steady calls."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    @contextlib.asynccontextmanager
    async def watch(self, port: int, *options: str) -> AsyncIterator[Bystander]:
        arguments = ["-m", "tests.attack.bystander", str(port), *options]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        reading = asyncio.create_task(self._read(process.stdout))
        try:
            async with asyncio.timeout(20):
                while len(self.samples) < 20:
                    await asyncio.sleep(0.02)
            yield self
        finally:
            process.kill()
            await process.wait()
            await reading

    async def _read(self, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        async for line in stream:
            due, seconds, verdict = line.decode().split(maxsplit=2)
            self.samples.append(Sample(float(due), float(seconds), verdict.strip()))

    async def settle(self) -> None:
        """Wait until it has caught up: a call that is due now has been answered."""
        now = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(25):
                while not self.samples or self.samples[-1].due < now:
                    await asyncio.sleep(0.02)

    def between(self, begin: float, end: float) -> Latency:
        return Latency.of([sample for sample in self.samples if begin <= sample.due < end])


def gateway_config(upstream: str) -> str:
    """`mcp.toml` of a gateway before an honest server, and before the hostile one at an address, if there is one."""
    hostile = f"""
[server.hostile]
transport = "http"
url = "{upstream}"
"""
    return f"""
[gateway.auth]
provider = "bearer"
[gateway.auth.provider_opts]
secret = "{SECRET}"
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
[view.honest]
servers = ["honest"]
prefix = false
[server.honest]
command = "{sys.executable}"
args = ["-m", "trimaran.apps.cli", "serve", "{HERE / "target.py"}"]
env = {{ PYTHONPATH = "{ROOT}" }}
startup_timeout = 30
""" + (hostile if upstream else "")


class Target:
    """The server's process."""

    def __init__(self, folder: Path, kind: Kind = "open", upstream: str = "") -> None:
        self.port = find_port()
        self.kind: Kind = kind
        self.path = "/mcp"
        """Where the tools have the names that they have in target.py."""
        command = [sys.executable, "-m", "trimaran.apps.cli"]
        if kind == "gateway":
            self.path = "/views/honest/mcp"
            config = folder / f"gateway-{self.port}.toml"
            config.write_text(gateway_config(upstream))
            command += ["gateway", str(config)]
        else:
            command += ["serve", str(HERE / "target.py"), "--auth", "guard" if kind in ("guarded", "keys") else "none"]
            command += ["--sse-path", "/sse"]
        command += ["--port", str(self.port)]
        if kind == "tls":
            certificate, key = Authority(folder).issue("localhost", "127.0.0.1")
            command += ["--tls-cert", str(certificate), "--tls-key", str(key)]
        environment = {"PYTHONPATH": str(ROOT)}
        if kind in ("keys", "proxy"):
            environment |= {"TARGET_KEYS" if kind == "keys" else "TARGET_UPSTREAM": upstream}
        self.program = Program("target", self.port, command, folder / f"target-{self.port}.log", **environment)
        self.peak = 0.0

    @property
    def memory(self) -> float:
        return rss(self.program.pid)

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.program.pid}/fd"))

    @property
    def is_alive(self) -> bool:
        return is_alive(self.program.pid)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[Target]:
        self.program.start()
        try:
            await self.program.wait_until_listening()
            yield self
        finally:
            self.program.kill()

    async def watch_memory(self) -> None:
        """Note the largest memory, until cancelled."""
        while True:
            with contextlib.suppress(OSError):
                self.peak = max(self.peak, self.memory)
            await asyncio.sleep(0.05)

    async def settle(self, descriptors: int) -> None:
        """Wait until it holds no more descriptors than before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_LIMIT):
                while self.is_alive and self.descriptors > descriptors:
                    await asyncio.sleep(0.05)

    def tracebacks(self) -> int:
        return self.program.everything().count("Traceback (most recent call last)")


async def check_served(target: Target, token: str = "") -> list[str]:
    """What a newcomer does not get, after an attack: an empty list where all is well."""
    tasks = {
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": {"io.modelcontextprotocol/tasks": {}},
            "elicitation": {},
        }
    }
    requests = {
        "a call": modern_http(call("add", {"a": 2, "b": 3})),
        "the list": modern_http(modern("tools/list")),
        "a session": legacy_http(initialize()),
        "a task": modern_http(call("survey", **tasks)),
        "a thread": modern_http(call("hang", {"seconds": 0})),
    }
    missing: list[str] = []
    for what, data in requests.items():
        try:
            status, body = await asyncio.to_thread(ask_once, target, data, token)
        except OSError as error:
            missing.append(f"{what}: {type(error).__name__}")
            continue
        if status != b"200" or b'"result"' not in body:
            missing.append(f"{what}: {status.decode()} {body[:60].decode('latin-1')}")
    return missing


def ask_once(target: Target, data: bytes, token: str) -> tuple[bytes, bytes]:
    """The status and the body of the answer to one request on a connection of its own."""
    caller = Caller(target.port, token, is_tls=target.kind == "tls", path=target.path)
    with contextlib.closing(caller):
        head, body = caller.ask(data)
    return head.split(b" ")[1], body
