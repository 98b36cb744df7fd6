"""Tasks by way of a docket: real Redis, servers in processes of their own or in this one, real worker processes.

What the tools did stands in a ledger that only ever grows; it is what says that nothing was done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import docket as library  # noqa: F401 - a second of work, which is to be nobody's in particular
import pytest
from tests.support.ports import find_port
from tests.support.program import Program
from tests.support.redis import RedisServer, redis_server
from tests.support.until import until

from trimaran import Client, connect
from trimaran.errors import CallError
from trimaran.ext.tasks import Tasks
from trimaran.ext.tasks.docket import Docket
from trimaran.ext.tasks.scheduler import HANDED
from trimaran.serve import HttpServer

from .docket_server import harbour

FILE = Path(__file__).with_name("docket_server.py")
PATIENCE = 30.0  # seconds; everything here takes well below ten


class Worker:
    """A process `trimaran worker`."""

    def __init__(self, folder: Path, store: str, *options: str, obj: str = "server") -> None:
        self.log = folder / f"worker-{len(list(folder.glob('worker-*')))}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trimaran.apps.cli", "worker", f"{FILE}:{obj}", "--store", store, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TRIMARAN_LEDGER_FOLDER": str(folder)},
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ready(self) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, f"the worker ended by itself:\n{self.log.read_text()}"
            return "tasks at a time" in self.log.read_text()

        await until(is_ready, "the worker is ready")

    async def ended(self) -> int:
        await until(lambda: self.process.poll() is not None, "the worker ends")
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Harbour:
    """A folder with its ledger, a Redis, and the workers a test starts."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self.folder = folder
        self.redis = redis
        self.workers: list[Worker] = []

    async def worker(self, *options: str, obj: str = "server") -> Worker:
        made = self.hire(*options, obj=obj)
        await made.ready()
        return made

    def hire(self, *options: str, obj: str = "server") -> Worker:
        made = Worker(self.folder, self.redis.url, *options, obj=obj)
        self.workers.append(made)
        return made

    @contextlib.asynccontextmanager
    async def serve(self, docket: Docket | None = None) -> AsyncIterator[tuple[HttpServer, Docket]]:
        docket = docket or Docket(redelivery=1.0)
        async with HttpServer(harbour(self.folder, docket), port=0, store=self.redis.url) as http:
            yield http, docket

    @contextlib.asynccontextmanager
    async def client(self, docket: Docket | None = None, **options: Any) -> AsyncIterator[Client]:
        async with self.serve(docket) as (http, _), connect(http.url, **options) as client:
            yield client

    def entries(self) -> list[tuple[str, str, int]]:
        ledger = self.folder / "ledger"
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        return [(key, what, pid) for key, what, pid in map(json.loads, lines)]

    def done(self, what: str) -> dict[str, int]:
        """Who did this, by key; no key may have it twice."""
        found = [(key, pid) for key, done, pid in self.entries() if done == what]
        assert len(dict(found)) == len(found), f"{what} was done twice: {found}"
        return dict(found)

    async def seen(self, what: str, *keys: str) -> None:
        await until(lambda: set(keys) <= self.done(what).keys(), f"{what} of {keys}")

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    def check_nothing_done_twice(self) -> None:
        counts = Counter((key, what) for key, what, _ in self.entries())
        assert [entry for entry, count in counts.items() if count > 1] == []


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def port(tmp_path: Path, redis: RedisServer) -> Iterator[Harbour]:
    redis.say("FLUSHALL")
    made = Harbour(tmp_path, redis)
    yield made
    for worker in made.workers:
        worker.kill()


# --- who runs what ---------------------------------------------------------------------------------------------------


async def test_a_task_of_any_server_is_run_by_a_worker_and_known_to_every_server(port: Harbour) -> None:
    """With the command line alone: nothing in the file says that there is a docket."""
    ports = [find_port(), find_port()]
    servers = [
        Program(
            f"server {number}",
            number,
            [sys.executable, "-m", "trimaran.apps.cli", "serve", f"{FILE}:plain", "--port", str(number)]
            + ["--store", port.redis.url, "--tasks", "docket"],
            port.folder / f"server-{number}.log",
            TRIMARAN_LEDGER_FOLDER=str(port.folder),
        )
        for number in ports
    ]
    worker = port.hire(obj="plain")
    try:
        for server in servers:
            server.start()
        for server in servers:
            await server.wait_until_listening()
        url = "http://127.0.0.1:{}/mcp"
        async with connect(url.format(ports[0])) as one, connect(url.format(ports[1])) as other:
            begun = [await one.start_task("where", {"key": "a"}), await other.start_task("where", {"key": "b"})]
            crossed = [other.task(begun[0].id), one.task(begun[1].id)]
            assert [(await task.result(timeout=PATIENCE)).data for task in crossed] == [worker.pid, worker.pid]
    finally:
        for server in servers:
            server.kill()


async def test_workers_share_what_there_is_and_take_no_more_than_they_have_room_for(port: Harbour) -> None:
    first, second = await port.worker("--concurrency", "1"), await port.worker("--concurrency", "1")
    async with port.client() as client:
        begun = [await client.start_task("errand", {"key": key, "gate": "open"}) for key in ("a", "b", "c")]
        await port.seen("begun", "a", "b")
        assert set(port.done("begun").values()) == {first.pid, second.pid}
        port.open("open")
        assert {(await task.result(timeout=PATIENCE)).data for task in begun} == {first.pid, second.pid}
        events = [(what, pid) for _, what, pid in port.entries()]
        for pid in (first.pid, second.pid):
            mine = [what for what, who in events if who == pid]
            assert mine == ["begun", "done"] * (len(mine) // 2)


async def test_a_task_waits_for_the_first_worker(port: Harbour) -> None:
    async with port.serve() as (http, docket), connect(http.url) as client:
        task = await client.start_task("where", {"key": "a"})
        assert await docket.waiting() == 1
        worker = await port.worker()
        assert (await task.result(timeout=PATIENCE)).data == worker.pid
        await until_empty(docket)


async def until_empty(docket: Docket) -> None:
    async with asyncio.timeout(PATIENCE):
        while await docket.waiting():
            await asyncio.sleep(0.02)


# --- workers that die ------------------------------------------------------------------------------------------------


@pytest.mark.deadline(90)
async def test_a_hundred_tasks_of_a_killed_worker_are_resumed_or_failed_with_the_reason(port: Harbour) -> None:
    doomed = await port.worker("--concurrency", "100")
    async with port.client() as client:

        async def begin(tool: str, count: int) -> dict[str, Any]:
            keys = [f"{tool} {number}" for number in range(count)]
            return {key: await client.start_task(tool, {"key": key, "gate": "open"}) for key in keys}

        # Between two steps, all the time about to do one, and such as cannot be resumed.
        patrols, voyages, errands = await begin("patrol", 40), await begin("voyage", 20), await begin("errand", 40)
        await port.seen("out", *patrols)
        await port.seen("leg 1", *voyages)
        await port.seen("begun", *errands)
        doomed.kill()
        heir = await port.worker("--concurrency", "100")
        port.open("open")

        async def end(key: str, task: Any) -> tuple[str, str]:
            try:
                return key, str((await task.result(timeout=60)).data)
            except CallError as error:
                return key, error.message

        everything = {**patrols, **voyages, **errands}
        ends = dict(await asyncio.gather(*(end(key, task) for key, task in everything.items())))
    assert {key: ends[key] for key in patrols} == {key: key for key in patrols}
    assert port.done("home") == dict.fromkeys(patrols, heir.pid)
    assert [ends[key] for key in errands if "not declared resumable" not in ends[key]] == []
    assert [ends[key] for key in voyages if ends[key] != key and "in the middle of step" not in ends[key]] == []
    port.check_nothing_done_twice()
    for key in voyages:
        legs = [what for who, what, _ in port.entries() if who == key]
        assert legs == [f"leg {leg}" for leg in range(len(legs))]


async def test_what_was_delivered_to_a_worker_that_never_began_it_is_delivered_again(port: Harbour) -> None:
    async with port.serve() as (http, docket), connect(http.url) as client:
        stream, group = f"{docket.name}:stream", "docket-workers"
        port.redis.say("XGROUP", "CREATE", stream, group, "0-0", "MKSTREAM")
        task = await client.start_task("where", {"key": "a"})
        assert await docket.waiting() == 1
        port.redis.say("XREADGROUP", "GROUP", group, "dead", "STREAMS", stream, ">")
        assert await docket.waiting() == 0
        worker = await port.worker()
        assert (await task.result(timeout=PATIENCE)).data == worker.pid


async def test_a_task_that_is_let_go_before_it_is_claimed_is_handed_over_again(port: Harbour) -> None:
    """A worker lets go of what was handed over before it claims it. If it dies, or loses Redis, in between, nobody has it."""
    async with port.serve() as (http, _), connect(http.url) as client:
        task = await client.start_task("where", {"key": "a"})
        tasks = Tasks.of(http.server)
        assert tasks is not None
        assert await tasks.records.tasks.release(task.id, HANDED)
        async with asyncio.timeout(PATIENCE):
            while (await tasks.get(task.id)).worker != HANDED:
                await asyncio.sleep(0.05)
        worker = await port.worker()
        assert (await task.result(timeout=PATIENCE)).data == worker.pid


async def test_an_id_too_many_does_no_harm(port: Harbour) -> None:
    async with port.serve() as (http, docket), connect(http.url) as client:
        task = await client.start_task("errand", {"key": "a", "gate": "open"})
        worker = await port.worker()
        await port.seen("begun", "a")
        tasks = Tasks.of(http.server)
        assert tasks is not None
        record = await tasks.get(task.id)
        await docket.begin(record)
        await until_empty(docket)
        port.open("open")
        assert (await task.result(timeout=PATIENCE)).data == worker.pid
        await docket.begin(record)
        await until_empty(docket)
        port.check_nothing_done_twice()


# --- draining --------------------------------------------------------------------------------------------------------


async def test_sigterm_lets_tasks_end_and_takes_no_more(port: Harbour) -> None:
    leaving = await port.worker()
    async with port.client() as client:
        running = await client.start_task("errand", {"key": "a", "gate": "open"})
        await port.seen("begun", "a")
        leaving.process.send_signal(signal.SIGTERM)
        staying = await port.worker()  # meanwhile the other one has stopped taking
        late = await client.start_task("where", {"key": "b"})
        assert (await late.result(timeout=PATIENCE)).data == staying.pid
        assert leaving.process.poll() is None
        port.open("open")
        assert (await running.result(timeout=PATIENCE)).data == leaving.pid
        assert await leaving.ended() == 0


async def test_what_does_not_end_within_the_drain_is_left_to_others_or_failed(port: Harbour) -> None:
    leaving = await port.worker("--drain", "0.2")
    async with port.client() as client:
        patrol = await client.start_task("patrol", {"key": "a", "gate": "open"})
        errand = await client.start_task("errand", {"key": "b", "gate": "open"})
        await port.seen("out", "a")
        await port.seen("begun", "b")
        leaving.process.send_signal(signal.SIGTERM)
        assert await leaving.ended() == 0
        with pytest.raises(CallError, match="stopped before the task was done"):
            await errand.result(timeout=PATIENCE)
        staying = await port.worker()
        port.open("open")
        assert (await patrol.result(timeout=PATIENCE)).data == "a"
    assert port.done("out") == {"a": leaving.pid}
    assert port.done("home") == {"a": staying.pid}


async def test_a_second_signal_does_not_wait(port: Harbour) -> None:
    worker = await port.worker("--drain", "600")
    async with port.client() as client:
        task = await client.start_task("errand", {"key": "a", "gate": "never"})
        await port.seen("begun", "a")
        worker.process.send_signal(signal.SIGTERM)
        # The second one counts only once the first has been seen to: two pending signals are one.
        await until(lambda: not port.redis.say("ZCARD", "trimaran-docket:workers").startswith(b":1"), "it drains")
        worker.process.send_signal(signal.SIGINT)
        assert await worker.ended() == 0
        with pytest.raises(CallError, match="stopped before the task was done"):
            await task.result(timeout=PATIENCE)


# --- too much, and trouble -------------------------------------------------------------------------------------------


async def test_a_full_docket_refuses_with_503_until_a_worker_has_made_room(port: Harbour) -> None:
    async with port.serve(Docket(most_waiting=2)) as (http, _), connect(http.url) as client:
        kept = [await client.start_task("where", {"key": key}) for key in ("a", "b")]
        with pytest.raises(CallError, match="2 tasks wait for a worker already"):
            await client.start_task("where", {"key": "c"})
        status, headers = await raw_call(http.port, "where", {"key": "d"})
        assert (status, headers.get("retry-after")) == (503, "1")
        worker = await port.worker()
        assert [(await task.result(timeout=PATIENCE)).data for task in kept] == [worker.pid, worker.pid]
        again = await client.start_task("where", {"key": "e"})
        assert (await again.result(timeout=PATIENCE)).data == worker.pid
        assert port.done("where").keys() == {"a", "b", "e"}


async def raw_call(port: int, tool: str, arguments: dict[str, Any]) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer to a call that takes tasks."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        f"Mcp-Name: {tool}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        writer.close()
        await writer.wait_closed()
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    return int(head[0].split()[1]), headers


async def test_a_worker_takes_more_after_redis_was_away_though_a_task_of_before_still_runs(
    tmp_path: Path,
) -> None:
    """Whose rule: ours. The docket's own worker would wait for that task first, for hours perhaps."""
    with redis_server(tmp_path) as redis:
        port = Harbour(tmp_path, redis)
        try:
            worker = await port.worker("--concurrency", "2")
            async with port.client() as client:
                before = await client.start_task("patrol", {"key": "a", "gate": "open"})
                await port.seen("out", "a")
                redis.kill()
                redis.start()
                deadline = time.monotonic() + PATIENCE
                while True:
                    assert time.monotonic() < deadline
                    with contextlib.suppress(CallError):
                        after = await client.start_task("where", {"key": "b"})
                        break
                assert (await after.result(timeout=PATIENCE)).data == worker.pid
                assert "home" not in {what for _, what, _ in port.entries()}
                port.open("open")
                assert (await before.result(timeout=PATIENCE)).data == "a"
            port.check_nothing_done_twice()
        finally:
            for one in port.workers:
                one.kill()


async def test_what_cannot_be_read_is_removed_from_the_docket(port: Harbour) -> None:
    worker = await port.worker()
    async with port.serve() as (http, docket), connect(http.url) as client:
        stream = f"{docket.name}:stream"
        port.redis.say("XADD", stream, "*", "hello", "sailor")
        port.redis.say("XADD", stream, "*", "key", "k", "when", "now", "function", "f", "args", "x", "kwargs", "y")
        task = await client.start_task("where", {"key": "a"})
        assert (await task.result(timeout=PATIENCE)).data == worker.pid
        await until(lambda: port.redis.say("XLEN", stream).startswith(b":0"), "nothing is left")
    assert worker.log.read_text().count("a message on the docket was removed") == 2


# --- asking and cancelling -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_question_of_a_task_in_a_worker_is_answered_through_the_server(port: Harbour, era: str) -> None:
    worker = await port.worker()

    def on_elicit(question: Any) -> Any:
        return question.accept({"count": 12})

    async with port.client(era=era, on_elicit=on_elicit) as client:
        task = await client.start_task("order", {})
        assert (await task.result(timeout=PATIENCE)).data == f"12 by {worker.pid}"


async def test_a_cancel_reaches_the_worker(port: Harbour) -> None:
    worker = await port.worker()
    async with port.client() as client:
        task = await client.start_task("errand", {"key": "a", "gate": "never"})
        await port.seen("begun", "a")
        await task.cancel()
        await port.seen("cancelled", "a")
        assert port.done("cancelled") == {"a": worker.pid}
        assert (await task.refresh()).status == "cancelled"


async def test_a_task_that_was_cancelled_while_it_waited_is_not_run(port: Harbour) -> None:
    async with port.serve() as (http, docket), connect(http.url) as client:
        unwanted = await client.start_task("where", {"key": "a"})
        await unwanted.cancel()
        wanted = await client.start_task("where", {"key": "b"})
        worker = await port.worker("--concurrency", "1")
        assert (await wanted.result(timeout=PATIENCE)).data == worker.pid
        await until_empty(docket)
    assert port.done("where") == {"b": worker.pid}
