"""Whoever waits for a task goes on waiting when the process that was asked ends: the task goes on too."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import BOTH, HttpCarrier, Pairs, Stream, encode, notification, request
from tests.support.ports import find_port
from tests.support.until import until

from trimaran import Context, Server, connect
from trimaran.ext.tasks import Tasks
from trimaran.serve import HttpServer

V11 = "2025-11-25"

pytestmark = pytest.mark.slow
SECONDS = 60.0


# --- one client made of bytes, and two processes in one ---------------------------------------------------------------


def yard(folder: Path, gate: asyncio.Event) -> Server:
    server = Server("yard", version="1")
    server.enable_extension(Tasks(poll=0.05, lease=1.0))

    @server.tool(long_running=True, resumable=True)
    async def refit(hull: str) -> str:
        await gate.wait()
        return f"{hull} is as good as new"

    @server.tool(long_running=True, resumable=True)
    async def paint(ctx: Context) -> str:
        return f"painted {(await ctx.elicit('which colour?', str)).content}"

    return server


@asynccontextmanager
async def two_yards(folder: Path, gate: asyncio.Event) -> AsyncIterator[tuple[HttpServer, HttpServer]]:
    store = f"sqlite:///{folder}/yard.db"
    async with AsyncExitStack() as stack:
        yards = [HttpServer(yard(folder, gate), port=0, store=store) for _ in range(2)]
        for one in yards:
            await stack.enter_async_context(one)
        yield yards[0], yards[1]


class Raw:
    """A session of 2025-11-25, spoken by hand to whichever server is named."""

    def __init__(self) -> None:
        self.session = ""
        self._streams: list[Stream] = []

    async def __aenter__(self) -> Raw:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for stream in self._streams:
            await stream.close()

    async def _open(self, http: HttpServer, verb: str, headers: Pairs, body: bytes = b"") -> Stream:
        self._streams.append(await HttpCarrier(http.port).open(verb, "/mcp", headers, body))
        return self._streams[-1]

    def headers(self, **more: str) -> Pairs:
        own = {"content-type": "application/json", "accept": BOTH, "mcp-protocol-version": V11}
        if self.session:
            own["mcp-session-id"] = self.session
        return [*own.items(), *((name.replace("_", "-"), value) for name, value in more.items())]

    async def post(self, http: HttpServer, message: dict[str, Any]) -> Stream:
        return await self._open(http, "POST", self.headers(), encode(message))

    async def call(self, http: HttpServer, method: str, params: dict[str, Any]) -> Any:
        stream = await self.post(http, request(method, params))
        self.session = self.session or stream.headers.get("mcp-session-id", "")
        return json.loads(await stream.read())["result"]

    async def begin(self, http: HttpServer, capabilities: dict[str, Any] | None = None) -> None:
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": V11, "capabilities": capabilities or {}, "clientInfo": info}
        await self.call(http, "initialize", params)
        await (await self.post(http, notification("notifications/initialized"))).read()

    async def start_task(self, http: HttpServer, name: str, **arguments: Any) -> str:
        made = await self.call(http, "tools/call", {"name": name, "arguments": arguments, "task": {}})
        return made["task"]["taskId"]

    async def resume(self, http: HttpServer, last: str) -> Stream:
        return await self._open(http, "GET", self.headers(last_event_id=last))


async def test_a_stopping_process_hands_its_waiters_over_and_another_answers_them(tmp_path: Path) -> None:
    """Every client that resumes streams (2025-11-25, SSE polling) does the right thing with that by itself."""
    gate = asyncio.Event()
    async with two_yards(tmp_path, gate) as (first, second), Raw() as raw:
        await raw.begin(first)
        id = await raw.start_task(first, "refit", hull="Gipsy")
        waiting = await raw.post(first, request("tasks/result", {"taskId": id}, id="w-7"))
        primed = await waiting.raw_event()
        assert primed is not None and primed.id and not primed.data, "the client has nothing to come back with"
        await first.stop()
        assert await waiting.raw_event() is None, "an answer, though there is none yet"
        again = await raw.resume(second, primed.id)
        assert again.status == 200
        primed = await again.raw_event()
        assert primed is not None and primed.id and not primed.data
        gate.set()
        answer = await again.raw_event()
        assert answer is not None and answer.message["id"] == "w-7"
        assert answer.message["result"]["content"][0]["text"] == "Gipsy is as good as new"


async def test_who_comes_back_late_has_the_answer_at_once(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with two_yards(tmp_path, gate) as (first, second), Raw() as raw:
        await raw.begin(first)
        id = await raw.start_task(first, "refit", hull="Gipsy")
        waiting = await raw.post(first, request("tasks/result", {"taskId": id}))
        primed = await waiting.raw_event()
        assert primed is not None and primed.id
        await first.stop()
        gate.set()
        tasks = Tasks.of(second.server)
        assert tasks is not None
        async with asyncio.timeout(SECONDS):
            while not (await tasks.get(id)).is_terminal:
                await asyncio.sleep(0.02)
        again = await raw.resume(second, primed.id)
        answer = await again.raw_event()
        while answer is not None and not answer.data:
            answer = await again.raw_event()
        assert answer is not None and "as good as new" in answer.data


async def test_what_the_task_wants_to_know_is_asked_by_the_process_that_takes_over(tmp_path: Path) -> None:
    async with two_yards(tmp_path, asyncio.Event()) as (first, second), Raw() as raw:
        await raw.begin(first, {"elicitation": {}})
        id = await raw.start_task(first, "paint")
        waiting = await raw.post(first, request("tasks/result", {"taskId": id}, id=5))
        primed = await waiting.raw_event()
        asked = await waiting.raw_event()
        assert primed is not None and asked is not None and asked.message["method"] == "elicitation/create"
        assert asked.id
        await first.stop()
        again = await raw.resume(second, asked.id)
        event = await again.raw_event()
        while event is not None and not event.data:
            event = await again.raw_event()
        assert event is not None and event.message["method"] == "elicitation/create"
        accepted = {"action": "accept", "content": {"value": "blue"}}
        said = {"jsonrpc": "2.0", "id": event.message["id"], "result": accepted}
        await (await raw.post(second, said)).read()
        answer = await again.raw_event()
        assert answer is not None and answer.message["id"] == 5 and "painted blue" in answer.data


async def test_nobody_waits_for_the_task_of_another_by_a_forged_event_id(tmp_path: Path) -> None:
    async with two_yards(tmp_path, asyncio.Event()) as (first, second), Raw() as owner, Raw() as thief:
        await owner.begin(first)
        await thief.begin(second)
        id = await owner.start_task(first, "refit", hull="Gipsy")
        stream = await thief.resume(second, f"r{'0' * 12}-1-i1.{id}:0")
        event = await stream.raw_event()
        while event is not None and not event.data:
            event = await stream.raw_event()
        assert event is not None and event.message["error"]["code"] == -32602


# --- our client, and real processes -----------------------------------------------------------------------------------

CODE = """
import asyncio, logging
from trimaran import Server
from trimaran.ext.tasks import Tasks
logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
server = Server("yard", version="1", secret_keys=["k" * 32])
server.enable_extension(Tasks(poll=0.1, lease=1.5))
@server.tool(long_running=True, resumable=True)
async def refit(number: int) -> str:
    await asyncio.sleep(4)
    return f"{number} is as good as new"
"""


def _workers(supervisor: int) -> list[int]:
    lines = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in lines.splitlines()]
    return [int(pid) for pid, parent in pairs if int(parent) == supervisor]


@pytest.mark.deadline(180)
@pytest.mark.parametrize("version", [V11, "2026-07-28"])
@pytest.mark.parametrize("how", ["term", "kill", "hup"])
async def test_waiters_are_told_what_came_of_their_tasks_whatever_happens_to_workers(
    tmp_path: Path, how: str, version: str
) -> None:
    file, port = tmp_path / "yard.py", find_port()
    file.write_text(CODE)
    command = ["serve", str(file), "--port", str(port), "--workers", "2", "--store", f"sqlite:///{tmp_path}/yard.db"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "trimaran.apps.cli", *command], stderr=log, start_new_session=True
        )
    try:
        async with asyncio.timeout(SECONDS):
            await until(lambda: "is served at" in (tmp_path / "log").read_text())
            async with AsyncExitStack() as stack:
                client = connect(f"http://127.0.0.1:{port}/mcp", version=version, tasks=True)
                clients = [await stack.enter_async_context(client)]
                for _ in range(5):
                    client = connect(f"http://127.0.0.1:{port}/mcp", version=version, tasks=True)
                    clients.append(await stack.enter_async_context(client))
                handles = [await one.start_task("refit", {"number": n}) for n, one in enumerate(clients)]
                waits = [asyncio.ensure_future(handle.result()) for handle in handles]
                for worker in _workers(process.pid):
                    if how == "hup":
                        process.send_signal(signal.SIGHUP)
                    else:
                        os.kill(worker, signal.SIGTERM if how == "term" else signal.SIGKILL)
                    await asyncio.sleep(1.0)
                results = await asyncio.gather(*waits)
        assert [result.data for result in results] == [f"{n} is as good as new" for n in range(6)]
    finally:
        process.terminate()
        process.wait(SECONDS)
    assert "Traceback" not in (tmp_path / "log").read_text()
