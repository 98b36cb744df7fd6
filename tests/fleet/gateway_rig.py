"""Gateways to be mistreated, and the servers behind them.

clients -> nginx (round robin) -> N processes `trimaran gateway` -> Redis
                                    |-- new_child   a child of 2026-07-28, shared by all callers of its gateway
                                    |-- old_child   a child of 2025-11-25 for each caller
                                    |-- new_http    one process of 2026-07-28 for all gateways
                                    `-- old_http    the same of 2025-11-25, on the official SDK 1.28
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ports import find_port
from tests.support.program import START_LIMIT, Program
from tests.support.redis import RedisServer

from trimaran import connect
from trimaran.errors import Error

from .rig import HERE, NGINX, TOOLS, Cable, Rig, nginx_config, start_with

UPSTREAMS = ("new_child", "old_child", "new_http", "old_http")
SDK = TOOLS / "peers" / "sdk-1.28" / "bin" / "python"


@dataclass
class GatewayRig(Rig):
    """The whole of it; `servers` are the gateways. Made by `gateway_rig(...)`."""

    upstreams: list[Program] = field(default_factory=list[Program])
    children: set[int] = field(default_factory=set[int])
    """All child processes that were seen."""

    async def kill_gateway(self, number: int) -> None:
        """Its children have to notice by themselves."""
        gateway = self.servers[number]
        self.children |= set(gateway.workers())
        async with self._fault("kill", gateway.pid):
            gateway.kill()
            gateway.start()
            await gateway.wait_until_listening()
            await self._wait_until_served(gateway)

    async def kill_child(self, number: int) -> None:
        gateway = self.servers[number]
        children = gateway.workers()
        self.children |= set(children)
        pid = random.choice(children)
        async with self._fault("child", pid):
            os.kill(pid, signal.SIGKILL)
            await self._wait_until_served(gateway)

    async def kill_upstream(self, number: int) -> None:
        upstream = self.upstreams[number]
        async with self._fault("upstream", upstream.pid):
            upstream.kill()
            upstream.start()
            await upstream.wait_until_listening()
            for gateway in self.servers:
                await self._wait_until_served(gateway)

    async def _wait_until_served(self, gateway: Program) -> None:
        """Until a gateway can call every server behind it."""
        deadline = time.monotonic() + 2 * START_LIMIT
        while True:
            try:
                async with connect(f"http://127.0.0.1:{gateway.port}/mcp", era="modern", timeout=5.0) as client:
                    for name in UPSTREAMS:
                        await client.call_tool(f"{name}_add", {"a": 1, "b": 1})
                return
            except Error as error:
                assert time.monotonic() < deadline, f"{gateway.name} does not recover: {error}\n{self.logs()}"
                await asyncio.sleep(0.1)

    async def wait_until_childless(self) -> None:
        """Until every child of a gateway that is gone has ended."""
        deadline = time.monotonic() + START_LIMIT
        while left := [pid for pid in self.children if _runs(pid)]:
            assert time.monotonic() < deadline, f"children without a gateway: {left}"
            await asyncio.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def gateway_config(ledger: Path, new_port: int, old_port: int) -> str:
    return f"""
[gateway]
secret_keys = ["one key for every gateway"]
[gateway.server.old_child]
connections = "caller"
[server.new_child]
command = "{sys.executable}"
args = ["-m", "trimaran.apps.cli", "serve", "{HERE / "server.py"}"]
env = {{ TRIMARAN_LEDGER = "{ledger}" }}
startup_timeout = 30
[server.old_child]
command = "{sys.executable}"
args = ["-S", "{HERE / "old_child.py"}", "{ledger}"]
startup_timeout = 30
[server.new_http]
transport = "http"
url = "http://127.0.0.1:{new_port}/mcp"
[server.old_http]
transport = "http"
url = "http://127.0.0.1:{old_port}/mcp"
"""


@contextlib.asynccontextmanager
async def gateway_rig(folder: Path, *, gateways: int = 3) -> AsyncIterator[GatewayRig]:
    assert NGINX.exists(), "there is no nginx for the tests: run scripts/setup-nginx"
    assert SDK.exists(), f"{SDK} is missing: run `make setup`"
    redis = RedisServer(folder)
    cable = Cable(redis.port)
    ports = [find_port() for _ in range(gateways)]
    port, new_port, old_port = find_port(), find_port(), find_port()
    nginx_file = folder / "nginx.conf"
    nginx_file.write_text(nginx_config(folder, port, ports))
    nginx = Program("nginx", port, [str(NGINX), "-p", str(folder), "-c", str(nginx_file)], folder / "nginx.log")
    fleet = GatewayRig(folder, redis, cable, [], nginx)
    config = folder / "mcp.toml"
    config.write_text(gateway_config(fleet.ledger, new_port, old_port))
    cli = [sys.executable, "-m", "trimaran.apps.cli"]
    fleet.upstreams += [
        Program(
            "new_http",
            new_port,
            [*cli, "serve", str(HERE / "server.py"), "--port", str(new_port)],
            folder / "new_http.log",
            TRIMARAN_LEDGER=str(fleet.ledger),
        ),
        Program(
            "old_http",
            old_port,
            [str(SDK), str(HERE / "old_server.py"), str(fleet.ledger), str(old_port)],
            folder / "old_http.log",
        ),
    ]
    with contextlib.ExitStack() as stack:
        start = functools.partial(start_with, stack)
        start(redis.start, redis.kill)
        start(cable.start, cable.stop)
        for upstream in fleet.upstreams:
            start(upstream.start, upstream.kill)
        for upstream in fleet.upstreams:
            await upstream.wait_until_listening()
        store = f"redis://127.0.0.1:{cable.port}/0"
        for number, place in enumerate(ports):
            command = [*cli, "gateway", str(config), "--port", str(place), "--store", store]
            program = Program(f"gateway {number}", place, command, folder / f"gateway-{number}.log")
            fleet.servers.append(program)
            start(program.start, program.kill)
        for program in fleet.servers:
            await program.wait_until_listening()
        start(nginx.start, nginx.kill)
        await nginx.wait_until_listening()
        yield fleet
        for gateway in fleet.servers:
            fleet.children |= set(gateway.workers())
    await fleet.wait_until_childless()
