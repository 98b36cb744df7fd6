"""Probes and gauges: anyone may ask, nothing is left behind, and a store that is down takes no server away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.harness import AsgiCarrier, HttpCarrier, KeepAliveCarrier, Wire
from tests.support.until import soon, until

from trimaran import Context, Server
from trimaran.auth import ApiKey, RateLimit
from trimaran.legacy.server_http import LegacyHttp
from trimaran.state import MemoryStore
from trimaran.state import StoreHealth as StoreHealth
from trimaran.transports import health
from trimaran.transports.asgi import AsgiApp
from trimaran.transports.engine import Engine
from trimaran.transports.guard import Guard
from trimaran.transports.health import HealthRoutes
from trimaran.transports.http1_server import Http1Server

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found holds until `expire`, and a busy machine is waited for."""
    monkeypatch.setattr(health, "_FRESH_SECONDS", 3600.0)
    monkeypatch.setattr(health, "_PATIENCE", 5.0)


def endpoint(server: Server, *, legacy: bool = False, sse_path: str | None = None, **options: Any) -> Engine:
    """An endpoint with health routes, as one that listens on a loopback address."""
    ours = {name: options.pop(name) for name in ("gauges", "ready_needs_store") if name in options}
    door = LegacyHttp(server, sse_path=sse_path) if legacy else None
    engine = Engine(server, Guard("127.0.0.1"), legacy=door, health=HealthRoutes(**ours), **options)
    if door is not None:
        door.attach(engine)
    return engine


@contextlib.asynccontextmanager
async def serving(binding: str, engine: Engine) -> AsyncIterator[Wire]:
    """The endpoint behind a binding: started on HTTP, not started under ASGI, where nobody need."""
    if binding == "asgi":
        carrier = AsgiCarrier(AsgiApp(engine))
        try:
            yield Wire(carrier, engine.path, engine)
        finally:
            await carrier.app.aclose()
            await carrier.finished()
        assert not carrier.faults
        return
    await engine.start()
    http = Http1Server(engine, "127.0.0.1", 0, backlog=128)
    await http.start()
    try:
        yield Wire(HttpCarrier(http.port), engine.path, engine)
    finally:
        await engine.drain(0.0)
        await http.stop()
        await engine.server.stop()


def plain() -> Server:
    server = Server("probed", version="1")
    server.add_tool(lambda: "done", name="quick", inline=True)
    return server


async def get(wire: Wire, path: str) -> tuple[int, Any]:
    reply = await wire.send("GET", path=path)
    return reply.status, reply.json


class Fleet:
    """A fleet of one, whose store can be looked after: how often it was asked, and what it does then."""

    name = "here"
    poisoned = 2

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.asked = 0
        self.hold: asyncio.Event | None = None
        self.raises: Exception | None = None
        self.is_deaf = False

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    async def check(self) -> StoreHealth:
        self.asked += 1
        if self.raises is not None:
            raise self.raises
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                if not self.is_deaf:
                    raise
                await self.hold.wait()
        return await self.store.check()


def expire(engine: Engine) -> None:
    """Let the second pass for which a verdict holds."""
    assert engine.health is not None
    engine.health._check_again = engine.health._start_again = engine.health._measure_again = 0.0


# --- anyone may ask --------------------------------------------------------------------------------------------------


async def test_a_healthy_server_says_so_in_a_word(binding: str) -> None:
    async with serving(binding, endpoint(plain())) as wire:
        live = await wire.send("GET", path="/livez")
        ready = await wire.send("GET", path="/readyz?verbose=1")
    assert (live.status, live.body) == (200, b'{"status":"alive"}')
    assert (ready.status, ready.body) == (200, b'{"status":"ready"}')
    for reply in (live, ready):
        assert (reply.headers["content-type"], reply.headers["cache-control"]) == ("application/json", "no-store")
        assert not any(name.startswith(("mcp-", "access-control-")) for name in reply.headers)


async def test_head_is_get_without_the_body() -> None:
    """A body sent for a HEAD would be read as the next reply on its connection."""
    async with serving("http", endpoint(plain())) as wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.carrier.port)
        writer.write(b"HEAD /readyz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        first = await soon(reader.readuntil(b"\r\n\r\n"))
        assert b"content-length: 18\r\n" in first
        second = await soon(reader.readuntil(b'{"status":"alive"}'))
        writer.close()
        await writer.wait_closed()
    assert first.startswith(b"HTTP/1.1 200 ")
    assert second.startswith(b"HTTP/1.1 200 ")


async def test_other_verbs_are_not_allowed(binding: str) -> None:
    async with serving(binding, endpoint(plain(), gauges=True)) as wire:
        for path in ("/livez", "/readyz", "/gauges"):
            for method in ("POST", "PUT", "DELETE", "OPTIONS"):
                reply = await wire.send(method, body=b"{}" if method == "POST" else b"", path=path)
                assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD"), (method, path)
                assert "access-control-allow-origin" not in reply.headers


async def test_probes_need_no_credentials_and_no_origin_and_are_not_counted(binding: str) -> None:
    """Ours: a balancer has neither, and sends its probes from one address."""
    engine = endpoint(
        plain(), auth=ApiKey(["s3cret-key-of-a-test"]), rate_limit=RateLimit(address="1/minute"), gauges=True
    )
    strange = {"Origin": "https://elsewhere.example", "Host": "10.1.2.3:8080"}
    async with serving(binding, engine) as wire:
        replies = [await wire.send("GET", strange, path=path) for path in ("/livez", "/readyz", "/gauges") * 3]
        refused = await wire.call("quick")
    assert [r.status for r in replies] == [200] * 9
    assert not any(name.startswith("access-control-") for r in replies for name in r.headers)
    assert refused.status == 401


async def test_probes_leave_nothing_behind() -> None:
    """P8, P18: health checks must not make sessions."""
    server = plain()
    async with serving("http", endpoint(server, legacy=True, gauges=True)) as wire:
        for _ in range(20):
            await get(wire, "/readyz")
        _, found = await get(wire, "/gauges")
    assert {name: found[name] for name in ("sessions", "streams", "listeners", "calls", "tasks", "queue_depth")} == {
        "sessions": 0,
        "streams": 0,
        "listeners": 0,
        "calls": 0,
        "tasks": 0,
        "queue_depth": 0,
    }


async def test_where_health_is_off_there_is_nothing(binding: str) -> None:
    engine = Engine(plain(), Guard("127.0.0.1"))
    async with serving(binding, engine) as wire:
        statuses = [(await wire.send("GET", path=path)).status for path in ("/livez", "/readyz", "/gauges")]
    assert statuses == [404] * 3


async def test_nothing_is_served_beside_the_routes() -> None:
    async with serving("http", endpoint(plain())) as wire:
        for path in ("/livez/", "/mcp/livez", "/mcp/readyz", "/health", "/gauges"):
            assert (await wire.send("GET", path=path)).status == 404, path


async def test_a_mounted_app_answers_below_its_prefix() -> None:
    engine = endpoint(plain())
    async with serving("asgi", engine) as wire:
        wire.carrier.root_path = "/api"
        assert await get(wire, "/api/livez") == (200, {"status": "alive"})


async def test_a_framework_may_take_the_slash_away() -> None:
    """Litestar's mounts do."""
    async with serving("asgi", endpoint(plain())) as wire:
        assert (await wire.send("GET", path="livez")).status == 200


async def test_the_endpoint_wins_where_it_has_the_path_of_a_route(
    binding: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = endpoint(plain(), path="/livez")
    async with serving(binding, engine) as wire:
        assert (await wire.call("quick")).result["content"][0]["text"] == "done"
        assert (await wire.send("GET", path="/livez")).status == 405
        assert (await wire.send("GET", path="/readyz")).status == 200
    assert [r.getMessage() for r in caplog.records] == [
        "/livez is a path of the endpoint, so there is no health route there"
    ]


async def test_a_legacy_route_wins_too(caplog: pytest.LogCaptureFixture) -> None:
    endpoint(plain(), legacy=True, sse_path="/readyz")
    assert "/readyz is a path of the endpoint" in caplog.text


# --- starting and stopping -------------------------------------------------------------------------------------------


async def test_a_probe_starts_a_server_that_nobody_started_and_hears_when_it_is_ready() -> None:
    """P14: a mounted app has no lifespan; its balancer waits until it is ready."""
    entered, opened = 0, asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        nonlocal entered
        entered += 1
        await opened.wait()
        yield

    async with serving("asgi", endpoint(Server("slow", version="1", lifespan=lifespan))) as wire:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(health, "_PATIENCE", 0.01)
            probes = [get(wire, "/readyz") for _ in range(5)]
            assert await soon(asyncio.gather(*probes)) == [(503, {"status": "starting"})] * 5
            assert await get(wire, "/livez") == (200, {"status": "alive"})
        opened.set()
        await until(lambda: wire.engine.is_started)
        assert await get(wire, "/readyz") == (200, {"status": "ready"})
    assert entered == 1


async def test_a_start_that_fails_is_told_logged_and_not_tried_all_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts, opened = 0, asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise RuntimeError("no route to db.internal.example")
        await opened.wait()
        yield

    async with serving("asgi", endpoint(Server("sick", version="1", lifespan=lifespan))) as wire:
        for _ in range(3):
            status, said = await get(wire, "/readyz")
            assert (status, said["status"]) == (503, "starting")
            assert "the log says why" in said["reason"]
            assert "db.internal" not in said["reason"]
        assert attempts == 1
        assert "db.internal.example" in caplog.text
        expire(wire.engine)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(health, "_PATIENCE", 0.01)
            assert await get(wire, "/readyz") == (503, {"status": "starting"})
        opened.set()
        assert await get(wire, "/readyz") == (200, {"status": "ready"})
        assert attempts == 2


async def test_while_it_stops_a_server_is_alive_and_unready() -> None:
    """ASGI and TLS carriers listen on: a balancer must be told."""
    started, release = asyncio.Event(), asyncio.Event()
    server = plain()

    @server.tool
    async def wait() -> str:
        started.set()
        await release.wait()
        return "in time"

    engine = endpoint(server, gauges=True)
    async with serving("http", engine) as wire, KeepAliveCarrier(wire.carrier.port) as kept:
        call = asyncio.ensure_future(wire.call("wait"))
        await soon(started.wait())
        stopping = asyncio.ensure_future(engine.drain(5.0))
        await until(lambda: engine.closing)
        wire.carrier = kept
        assert await get(wire, "/readyz") == (503, {"status": "stopping"})
        assert await get(wire, "/livez") == (200, {"status": "alive"})
        assert (await get(wire, "/gauges"))[1]["calls"] == 1
        release.set()
        assert (await soon(call)).result["content"][0]["text"] == "in time"
        await soon(stopping)
        assert await get(wire, "/readyz") == (503, {"status": "stopping"})


async def test_a_server_that_stops_while_a_probe_starts_it_does_not_start() -> None:
    entered, never = asyncio.Event(), asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        entered.set()
        await never.wait()
        yield

    async with serving("asgi", endpoint(Server("slow", version="1", lifespan=lifespan))) as wire:
        probe = asyncio.ensure_future(get(wire, "/readyz"))
        await soon(entered.wait())
        await wire.carrier.app.aclose()
        assert await soon(probe) == (503, {"status": "stopping"})
        assert not wire.engine.is_started


async def test_a_server_that_is_started_again_is_ready_once_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = asyncio.Event()
    server = Server("again", version="1", wait_for=opened.wait)
    engine = endpoint(server)
    monkeypatch.setattr(health, "_PATIENCE", 0.01)
    async with serving("asgi", engine) as wire:
        for _ in range(2):
            starting = asyncio.ensure_future(engine.start())
            assert await get(wire, "/readyz") == (503, {"status": "starting"})
            opened.set()
            await soon(starting)
            assert await get(wire, "/readyz") == (200, {"status": "ready"})
            await engine.drain(0.0)
            await server.stop()
            assert await get(wire, "/readyz") == (503, {"status": "stopping"})
            opened.clear()


# --- the store -------------------------------------------------------------------------------------------------------


async def test_a_store_that_is_down_makes_a_server_degraded_and_no_less_ready(
    binding: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = plain()
    server.runtime.fleet = fleet = Fleet()
    async with serving(binding, endpoint(server)) as wire:
        assert await get(wire, "/readyz") == (200, {"status": "ready"})
        await fleet.store.close()
        for _ in range(3):
            expire(wire.engine)
            assert await get(wire, "/readyz") == (
                200,
                {"status": "degraded", "reason": "the store does not answer"},
            )
        assert (await wire.call("quick")).result["content"][0]["text"] == "done"
        fleet.store = MemoryStore()
        expire(wire.engine)
        assert await get(wire, "/readyz") == (200, {"status": "ready"})
    said = [r.getMessage().partition(":")[0] for r in caplog.records if "store" in r.getMessage()]
    assert said == ["the store does not answer", "the store answers again"], "once for each change"


async def test_a_server_may_be_told_to_be_unready_without_its_store() -> None:
    server = plain()
    server.runtime.fleet = fleet = Fleet()
    async with serving("http", endpoint(server, ready_needs_store=True)) as wire:
        assert await get(wire, "/readyz") == (200, {"status": "ready"})
        await fleet.store.close()
        expire(wire.engine)
        assert await get(wire, "/readyz") == (503, {"status": "unavailable", "reason": "the store does not answer"})
        assert await get(wire, "/livez") == (200, {"status": "alive"})


async def test_a_crowd_of_probes_asks_the_store_once() -> None:
    server = plain()
    server.runtime.fleet = fleet = Fleet()
    async with serving("http", endpoint(server, gauges=True)) as wire:
        fleet.hold = asyncio.Event()
        probes = [asyncio.ensure_future(get(wire, path)) for path in ("/readyz", "/gauges") * 10]
        await until(lambda: fleet.asked)
        fleet.hold.set()
        assert {status for status, _ in await soon(asyncio.gather(*probes))} == {200}
        await get(wire, "/readyz")
        assert fleet.asked == 1
        expire(wire.engine)
        await get(wire, "/readyz")
        assert fleet.asked == 2


async def test_a_probe_that_goes_away_stops_the_check_for_nobody_else() -> None:
    server = plain()
    server.runtime.fleet = fleet = Fleet()
    fleet.hold = asyncio.Event()
    engine = endpoint(server)
    await engine.start()
    assert engine.health is not None
    first, second = (asyncio.ensure_future(engine.health._ready()) for _ in range(2))
    await until(lambda: fleet.asked)
    first.cancel()
    await asyncio.wait({first})
    fleet.hold.set()
    assert (await soon(second))[0] == 200
    assert fleet.asked == 1
    assert engine.health.store_up is True


@pytest.mark.parametrize("is_deaf", [False, True], ids=["slow", "deaf"])
async def test_a_store_that_hangs_is_not_waited_for(is_deaf: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_PATIENCE", 0.01)
    server = plain()
    server.runtime.fleet = fleet = Fleet()
    fleet.hold, fleet.is_deaf = asyncio.Event(), is_deaf
    async with serving("http", endpoint(server, gauges=True)) as wire:
        assert (await get(wire, "/readyz"))[1]["status"] == "degraded"
        assert (await get(wire, "/readyz"))[1]["status"] == "degraded"
        assert fleet.asked == 1, "one that is still being asked is not asked again"
        assert (await get(wire, "/gauges"))[1]["store_up"] is (None if is_deaf else False)
        fleet.hold.set()
        expire(wire.engine)
        fleet.hold = None
        await until(lambda: wire.engine.health._checking is None)
        assert (await get(wire, "/readyz"))[1]["status"] == "ready"


async def test_what_is_wrong_with_a_store_is_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = plain()
    server.runtime.fleet = fleet = Fleet()
    fleet.raises = ValueError("redis://user:hunter2@db.internal")
    async with serving("http", endpoint(server)) as wire:
        _, said = await get(wire, "/readyz")
    assert said == {"status": "degraded", "reason": "the store does not answer"}
    assert "it raised ValueError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_server_that_stops_while_its_store_is_asked_leaves_nothing() -> None:
    server = plain()
    server.runtime.fleet = fleet = Fleet()
    fleet.hold = asyncio.Event()
    async with serving("asgi", endpoint(server)) as wire:
        probe = asyncio.ensure_future(get(wire, "/readyz"))
        await until(lambda: fleet.asked)
        await wire.carrier.app.aclose()
        await soon(probe)
        assert await get(wire, "/readyz") == (503, {"status": "stopping"})
        assert fleet.asked == 1


# --- gauges ----------------------------------------------------------------------------------------------------------


async def test_gauges_tell_what_is_open_and_at_work() -> None:
    server = Server("busy", version="1", tool_threads=1)
    release, held = asyncio.Event(), threading.Event()
    entered: list[str] = []

    @server.tool
    async def silent() -> str:
        entered.append("silent")
        await release.wait()
        return "x"

    @server.tool
    async def talking(ctx: Context) -> str:
        await ctx.progress(1)
        entered.append("talking")
        await release.wait()
        return "x"

    @server.tool
    def threaded() -> str:
        entered.append("threaded")
        held.wait(5)
        return "x"

    engine = endpoint(server, legacy=True, gauges=True)
    async with serving("http", engine) as wire:

        async def gauges() -> dict[str, Any]:
            expire(engine)
            return (await get(wire, "/gauges"))[1]

        first = await gauges()
        assert first.pop("uptime") >= 0
        assert first == {
            "pid": os.getpid(),
            "sessions": 0,
            "streams": 0,
            "listeners": 0,
            "calls": 0,
            "tasks": 0,
            "tasks_waiting": 0,
            "tasks_refused": 0,
            "threads": engine.server.runtime.threads.size,
            "threads_busy": 0,
            "queue_depth": 0,
            "bus_poisoned": 0,
            "bus_overflowed": 0,
            "tls_failures": 0,
            "store_up": None,
        }

        session = await wire.initialize()
        stream = await session.get()
        assert await stream.raw_event() is not None
        found = await gauges()
        assert (found["sessions"], found["streams"], found["calls"]) == (1, 1, 0)

        wanted = {"notifications": {"toolsListChanged": True}}
        listening = await wire.open_modern("subscriptions/listen", wanted)
        await listening.message()
        found = await gauges()
        assert (found["listeners"], found["streams"], found["calls"]) == (1, 2, 0)

        calls = [asyncio.ensure_future(wire.call("silent"))]
        talk = await wire.open_call("talking", extra={"progressToken": "t"})
        await talk.message()
        await until(lambda: set(entered) == {"silent", "talking"})
        found = await gauges()
        assert (found["calls"], found["streams"]) == (2, 3), "a call that says nothing is no stream"

        calls += [asyncio.ensure_future(wire.call("threaded")) for _ in range(3)]
        await until(lambda: engine.gauges().queue_depth == 2)
        found = await gauges()
        assert (found["queue_depth"], found["calls"]) == (2, 5)

        release.set()
        held.set()
        await soon(asyncio.gather(*calls))
        await talk.rest()
        for open_one in (stream, listening, talk):
            await open_one.close()
        assert (await session.delete()).status == 204

        def is_idle() -> bool:
            now = engine.gauges()
            return not any((now.sessions, now.streams, now.listeners, now.calls, now.queue_depth))

        await until(is_idle, "an idle server")


async def test_a_task_at_work_is_counted_until_it_is_done() -> None:
    server, release = plain(), asyncio.Event()

    @server.tool(long_running=True)
    async def long() -> str:
        await release.wait()
        return "x"

    engine = endpoint(server, gauges=True)
    async with serving("http", engine) as wire:
        task = await wire.call("long", caps=TASKS)
        assert task.result["resultType"] == "task"
        _, found = await get(wire, "/gauges")
        assert (found["tasks"], found["calls"]) == (1, 0)
        release.set()
        await until(lambda: engine.gauges().tasks == 0, "a task that is done")


async def test_gauges_of_a_fleet_tell_of_its_store_and_bus() -> None:
    server = plain()
    server.runtime.fleet = fleet = Fleet()
    async with serving("http", endpoint(server, gauges=True)) as wire:
        _, found = await get(wire, "/gauges")
        assert (found["store_up"], found["bus_poisoned"], found["bus_overflowed"]) == (True, 2, 0)
        await fleet.store.close()
        expire(wire.engine)
        assert (await get(wire, "/gauges"))[1]["store_up"] is False


async def test_gauges_are_measured_once_a_second_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: counting ten thousand streams takes a few milliseconds, and anyone may ask."""
    engine = endpoint(plain(), gauges=True)
    asked: list[int] = []
    monkeypatch.setattr(Engine, "count_streams", lambda self: asked.append(1) or 0)
    async with serving("asgi", engine) as wire:
        first, second = await get(wire, "/gauges"), await get(wire, "/gauges")
        assert (first, len(asked)) == (second, 1)
        expire(engine)
        await get(wire, "/gauges")
        assert len(asked) == 2


async def test_a_gauge_that_fails_is_a_500_and_an_entry_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = plain()
    server.runtime.fleet = fleet = Fleet()
    async with serving("http", endpoint(server, gauges=True)) as wire:
        del fleet.store
        fleet.raises = ValueError()
        status, said = await get(wire, "/gauges")
        assert await get(wire, "/livez") == (200, {"status": "alive"})
    assert status == 500
    number = said["reason"].removesuffix(")").rpartition(" ")[2]
    assert number in caplog.text


async def test_gauges_of_an_endpoint_without_routes_can_be_read_in_the_process() -> None:
    engine = Engine(plain(), Guard("127.0.0.1"))
    await engine.start()
    found = engine.gauges()
    assert (found.pid, found.calls, found.store_up) == (os.getpid(), 0, None)
    await engine.drain(0.0)
