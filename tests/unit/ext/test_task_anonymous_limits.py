"""Room for tasks: who gives way when there is none, what a time to live ends, and how anybody learns that it is full."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.until import until

from trimaran import Context, Server, connect
from trimaran.auth import Principal
from trimaran.client.client import Client
from trimaran.errors import CallError, ProtocolError
from trimaran.ext.tasks import Tasks
from trimaran.ext.tasks.anonymous_limits import AnonymousLimits
from trimaran.serve import HttpServer
from trimaran.transports.caller_address import place_of

BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])


class Yard:
    def __init__(self, **settings: Any) -> None:
        self.stopped: list[str] = []
        self.gate = asyncio.Event()
        self.server = server = Server("yard", version="1")
        self.tasks = Tasks(**{"poll": 0.02, **settings})
        server.enable_extension(self.tasks)

        @server.tool(long_running=True)
        async def ask(ctx: Context) -> str:
            try:
                return str((await ctx.elicit("?", str)).content)
            except asyncio.CancelledError:
                self.stopped.append("ask")
                raise

        @server.tool(long_running=True)
        async def work() -> str:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.stopped.append("work")
                raise
            return "done"

    async def wait_until(self, id: str, status: str) -> Any:
        async with asyncio.timeout(20):
            while (record := await self.tasks.get(id)).status != status:
                await asyncio.sleep(0.005)
        return record

    async def wait_until_stopped(self, name: str) -> None:
        await until(lambda: self.stopped == [name] and not self.tasks.running, seconds=20)


@asynccontextmanager
async def over_http(yard: Yard, version: str) -> AsyncIterator[tuple[HttpServer, Client]]:
    async with (
        HttpServer(yard.server, port=0) as http,
        connect(http.url, version=version, tasks=True, on_elicit=lambda one: one.decline()) as client,
    ):
        yield http, client


async def readiness(http: HttpServer) -> tuple[str, str]:
    """Status and body of /readyz."""
    reader, writer = await asyncio.open_connection(http.host, http.port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return text.split(" ")[1], text.partition("\r\n\r\n")[2]


# --- giving way ------------------------------------------------------------------------------------------------------


@BOTH
async def test_abandoned_questions_of_anonymous_callers_lock_nobody_out(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    yard = Yard(most_per_caller=5)
    async with AsyncExitStack() as stack, HttpServer(yard.server, port=0) as http:

        async def abandon() -> Any:
            client = connect(http.url, version=version, tasks=True, on_elicit=lambda one: one.decline())
            task = await (await stack.enter_async_context(client)).start_task("ask")
            await yard.wait_until(task.id, "input_required")
            return task

        abandoned = [await abandon() for _ in range(5)]
        assert await readiness(http) == ("200", '{"status":"ready"}')
        for number in range(2):
            await abandon()
            record = await yard.wait_until(abandoned[number].id, "failed")
            assert "had waited longest" in record.status_message
        async with connect(http.url, version=version, tasks=True, on_elicit=lambda q: q.accept({"value": "x"})) as one:
            assert (await one.call_tool("ask")).data == "x"
        assert [(await yard.tasks.get(task.id)).status for task in abandoned[3:]] == ["input_required"] * 2
        status, body = await readiness(http)
        assert status == "200" and "degraded" in body and "no room" in body
        assert (http.engine.gauges().tasks_waiting, http.engine.gauges().tasks_refused) == (4, 3)
    assert [one.levelname for one in caplog.records if "no room for more tasks" in one.message] == ["WARNING"]


async def test_a_body_that_works_does_not_give_way() -> None:
    yard = Yard(most_per_caller=2)
    async with over_http(yard, "2026-07-28") as (_, client):
        for _ in range(2):
            await client.start_task("work")
        with pytest.raises(CallError, match="at work already"):
            await client.start_task("work")
        assert yard.stopped == []
        yard.gate.set()


async def test_a_caller_with_a_name_takes_no_room_of_others() -> None:
    yard = Yard(most_per_caller=2)
    async with (
        connect(yard.server, auth=Principal(subject="ada"), tasks=True) as ada,
        connect(yard.server, auth=Principal(subject="bob"), tasks=True) as bob,
    ):
        for _ in range(2):
            await ada.start_task("work")
        with pytest.raises(CallError, match="tasks of one caller"):
            await ada.start_task("work")
        await bob.start_task("work")
        yard.gate.set()


class Waiting:
    """As much of a run as matters here."""

    voice = SimpleNamespace(is_asking=True)

    def __init__(self, place: str) -> None:
        self.place = place


def filled(room: AnonymousLimits, **counts: int) -> dict[str, list[Any]]:
    runs: dict[str, list[Any]] = {place: [Waiting(place) for _ in range(count)] for place, count in counts.items()}
    for group in runs.values():
        for run in group:
            room.add(run)
    return runs


def enter(room: AnonymousLimits, place: str) -> Any:
    with room.entering(place) as victim:
        return victim


def test_a_place_that_is_full_is_nothing_to_others() -> None:
    room = AnonymousLimits(3)
    runs = filled(room, a=3)
    assert enter(room, "b") is None
    assert enter(room, "a") is runs["a"][0]


def test_where_all_is_full_the_greediest_gives_way() -> None:
    room = AnonymousLimits(2)
    runs = filled(room, a=2, **{f"p{number}": 1 for number in range(18)})
    assert len(room) == 20
    assert enter(room, "new") is runs["a"][0]


def test_two_who_come_at_once_do_not_push_out_the_same_one() -> None:
    room = AnonymousLimits(2)
    runs = filled(room, a=2)
    with room.entering("a") as first, room.entering("a") as second:
        assert [first, second] == runs["a"]
        with pytest.raises(ProtocolError, match="at work already"):
            enter(room, "a")


def test_that_it_is_full_is_said_once_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    room = AnonymousLimits(1, clock=lambda: now)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            filled(room, a=1)
            enter(room, "a")
            now += 1
        assert len(caplog.records) == 1 and room.is_full
        now += 100
        assert not room.is_full and not room.is_full
    assert ["again" in one.message for one in caplog.records] == [False, True]


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::"),
        ("unix", "unix"),
        (None, ""),
    ],
)
def test_an_address_is_a_place(address: str | None, place: str) -> None:
    assert place_of(address) == place


# --- time to live ----------------------------------------------------------------------------------------------------


@BOTH
async def test_a_question_that_nobody_answers_ends_with_the_time_to_live_of_its_task(version: str) -> None:
    yard = Yard(ttl=0.2)
    async with over_http(yard, version) as (_, client):
        task = await client.start_task("ask")
        record = await yard.wait_until(task.id, "failed")
        assert "time to live of 0.2 s" in record.status_message
        await yard.wait_until_stopped("ask")


async def test_the_time_to_live_of_the_server_does_not_end_work() -> None:
    yard = Yard(ttl=0.05)
    async with over_http(yard, "2026-07-28") as (_, client):
        task = await client.start_task("work")
        await asyncio.sleep(0.2)
        yard.gate.set()
        assert (await task.result(20)).data == "done"


async def test_a_time_to_live_that_a_client_asked_for_ends_work_too() -> None:
    yard = Yard()
    async with over_http(yard, "2025-11-25") as (_, client):
        made: Any = await client.request("tools/call", {"name": "work", "arguments": {}, "task": {"ttl": 200}})
        record = await yard.wait_until(made["task"]["taskId"], "failed")
        assert "time to live of 0.2 s" in record.status_message
        await yard.wait_until_stopped("work")
