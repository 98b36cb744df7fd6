"""A fleet to be mistreated: a real Redis behind a cable that can be cut, server processes, and nginx in front.

    clients -> nginx (round robin) -> N processes `trimaran serve` -> cable -> Redis

All on ports of 127.0.0.1, in a folder of the test's own, and all ended with the test. The processes are known by their
number; each keeps its port when it is killed and started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import re
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.support.ports import find_port
from tests.support.program import START_LIMIT, Program
from tests.support.redis import RedisServer

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parents[1] / ".tools"
NGINX = TOOLS / "nginx" / "nginx"


# --- the cable -------------------------------------------------------------------------------------------------------


class Cable:
    """A TCP proxy that can be cut, in a thread of its own: the loop of the test must not slow it down.

    Two cuts. `refused`: connections are reset, and new ones refused, as by a machine that has lost a process. `silent`:
    nothing arrives any more, in either direction, and nobody is told, as with a network that has lost a wire. When that is
    fixed, what was under way arrives, late: so does TCP.
    """

    port: int

    def __init__(self, target: int) -> None:
        self._target = target
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="cable", daemon=True)
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._stopped = asyncio.Event()

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(START_LIMIT), "the cable did not start"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(START_LIMIT)
        assert not self._thread.is_alive(), "the cable did not stop"

    def cut(self, how: Literal["refused", "silent"]) -> None:
        self._do(self._refuse() if how == "refused" else self._silence())

    def mend(self) -> None:
        self._do(self._flow())

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(START_LIMIT)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()

    async def _main(self) -> None:
        self.port = 0
        await self._flow()
        self._started.set()
        await self._stopped.wait()
        await self._refuse()

    async def _flow(self) -> None:
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _silence(self) -> None:
        self._flowing.clear()

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for end in self._ends:
            raw = end.get_extra_info("socket")
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.transport.abort()
        pumps = tuple(self._pumps)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        self._ends.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            await self._flowing.wait()
            source, far = await asyncio.open_connection("127.0.0.1", self._target)
            self._ends.add(far)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far))
                group.create_task(self._pump(source, writer))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass
        finally:
            self._pumps.discard(task)
            for end in (writer, far):
                if end is not None:
                    self._ends.discard(end)
                    end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await reader.read(65536)
            await self._flowing.wait()
            if not data:
                raise ConnectionError("one end has hung up")  # and so does the other
            writer.write(data)
            await writer.drain()


# --- what happened ---------------------------------------------------------------------------------------------------


What = Literal["kill", "term", "roll", "orphan", "child", "upstream", "redis", "cut"]


@dataclass
class Fault:
    """Something that was done to the fleet, and when it was over."""

    what: What
    began: float
    ended: float = float("inf")
    pid: int = 0
    """Of whoever was killed."""

    @property
    def is_over(self) -> bool:
        return self.ended < float("inf")

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass
class Rig:
    """The whole of it. Made by `rig(...)`."""

    folder: Path
    redis: RedisServer
    cable: Cable
    servers: list[Program]
    nginx: Program
    faults: list[Fault] = field(default_factory=list[Fault])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.nginx.port}/mcp"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def entries(self) -> list[dict[str, Any]]:
        """What the tools did to the world, in order."""
        return [json.loads(line) for line in self.ledger.read_text().splitlines()] if self.ledger.exists() else []

    @contextlib.asynccontextmanager
    async def _fault(self, what: What, pid: int = 0) -> AsyncIterator[None]:
        fault = Fault(what, time.time(), pid=pid)
        self.faults.append(fault)
        yield
        fault.ended = time.time()

    async def kill_and_restart(self, number: int) -> None:
        """Over when it listens again."""
        async with self._fault("kill", self.servers[number].pid):
            self.servers[number].kill()
            self.servers[number].start()
            await self.servers[number].wait_until_listening()

    async def end_worker(self, number: int, how: Literal["kill", "term"]) -> None:
        """Of a server with workers: one is ended. Over when it has been replaced."""
        server = self.servers[number]
        before = server.workers()
        pid = random.choice(before)
        async with self._fault(how, pid):
            os.kill(pid, signal.SIGKILL if how == "kill" else signal.SIGTERM)
            await server.wait_for(lambda: pid not in server.workers() and len(server.workers()) >= len(before))

    async def roll(self, number: int) -> None:
        """Of a server with workers: all are replaced, one after the other."""
        server, done = self.servers[number], "all workers are new"
        before, times = set(server.workers()), server.everything().count(done)
        async with self._fault("roll"):
            os.kill(server.pid, signal.SIGHUP)
            await server.wait_for(lambda: server.everything().count(done) > times)
            await server.wait_for(lambda: not before & set(server.workers()))

    async def orphan(self, number: int) -> None:
        """Of a server with workers: the supervisor is killed, and the next one started at once."""
        server = self.servers[number]
        times = server.everything().count("is served at")
        async with self._fault("orphan"):
            server.kill()
            server.start()
            await server.wait_for(lambda: server.everything().count("is served at") > times)

    async def restart_redis(self, away: float) -> None:
        """Killed, away for some seconds, and back with what it had acknowledged."""
        async with self._fault("redis"):
            await asyncio.to_thread(self.redis.kill)
            await asyncio.sleep(away)
            await asyncio.to_thread(self.redis.start)

    async def cut(self, how: Literal["refused", "silent"], seconds: float) -> None:
        async with self._fault("cut"):
            self.cable.cut(how)
            await asyncio.sleep(seconds)
            self.cable.mend()

    def incidents(self) -> list[str]:
        """What the servers did not expect, and logged with a traceback or by way of asyncio."""
        found: list[str] = []
        for server in self.servers:
            text = server.everything()
            found += [f"{server.name}: {one}" for one in re.findall(r"(?m)^(.+)\nTraceback \(most recent", text)]
            found += [f"{server.name}: {one}" for one in re.findall(r"(?m)^.*never (?:retrieved|awaited).*$", text)]
        return found

    def logs(self) -> str:
        return "\n".join(f"--- {program.name}\n{program.log()}" for program in (*self.servers, self.nginx))


def nginx_config(folder: Path, port: int, ports: list[int]) -> str:
    text = (HERE / "nginx.conf").read_text()
    servers = "\n        ".join(f"server 127.0.0.1:{one} max_fails=0;" for one in ports)
    return text.replace("@FOLDER@", str(folder)).replace("@PORT@", str(port)).replace("@SERVERS@", servers)


@contextlib.asynccontextmanager
async def rig(folder: Path, *, servers: int = 3, store: bool = True, workers: int = 1) -> AsyncIterator[Rig]:
    """A fleet that serves `server.py`, ready; without `store`, each process by itself; with `workers`, so many per port."""
    assert NGINX.exists(), "there is no nginx for the tests: run scripts/setup-nginx"
    redis = RedisServer(folder)
    cable = Cable(redis.port)
    ports = [find_port() for _ in range(servers)]
    port = find_port()
    config = folder / "nginx.conf"
    config.write_text(nginx_config(folder, port, ports))
    nginx = Program("nginx", port, [str(NGINX), "-p", str(folder), "-c", str(config)], folder / "nginx.log")
    made = Rig(folder, redis, cable, [], nginx)
    with contextlib.ExitStack() as stack:
        start = functools.partial(start_with, stack)
        start(redis.start, redis.kill)
        start(cable.start, cable.stop)
        for number, one in enumerate(ports):
            command = [sys.executable, "-m", "trimaran.apps.cli", "serve", str(HERE / "server.py"), "--port", str(one)]
            if workers > 1:
                command += ["--workers", str(workers), "--log-level", "info"]
            if store:
                command += ["--store", f"redis://127.0.0.1:{cable.port}/0"]
            log = folder / f"server-{number}.log"
            program = Program(f"server {number}", one, command, log, TRIMARAN_LEDGER=str(made.ledger))
            made.servers.append(program)
            start(program.start, program.kill)
        for program in made.servers:
            await program.wait_until_listening()
        start(nginx.start, nginx.kill)
        await nginx.wait_until_listening()
        yield made


def start_with(stack: contextlib.ExitStack, begin: Callable[[], None], end: Callable[[], None]) -> None:
    stack.callback(end)
    begin()
