"""Tasks from end to end: our client and our server, over HTTP and in memory, in both eras; and the headers on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.support.peers import MODERN, P, Site, Wire, discovered, error, finishing, listed, plain, result, said, stream
from tests.support.until import PATIENCE, soon, until

from trimaran import Context, Server, ToolError, connect, errors
from trimaran.auth import Principal
from trimaran.client.client import Client
from trimaran.client.options import Era
from trimaran.client.tasks import TASKS, TaskUpdate
from trimaran.errors import ProtocolError
from trimaran.ext.tasks import Tasks
from trimaran.serve import HttpServer

NAME = {"type": "object", "properties": {"name": {"type": "string"}}}


class Kitchen:
    """A server with long work, the gates that hold it, and a record of what was really done."""

    def __init__(self) -> None:
        self.hot = asyncio.Event()
        self.gate = asyncio.Event()
        self.brewed: list[int] = []
        self.stopped: list[str] = []
        self.tasks = Tasks(poll=0.02)
        self.server = server = Server("kitchen", version="1.0.0")
        server.enable_extension(self.tasks)

        @server.tool(long_running=True)
        async def brew(cups: int, ctx: Context) -> str:
            await ctx.progress(1, message="water is hot")
            self.hot.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.stopped.append("brew")
                raise
            self.brewed.append(cups)
            return f"{cups} cups"

        @server.tool(long_running=True)
        async def order(ctx: Context) -> str:
            first = await ctx.elicit("who?", NAME)
            second = await ctx.elicit("who else?", NAME)
            return f"{first.content['name']} and {second.content['name']}"

        @server.tool(long_running=True)
        async def party(ctx: Context) -> str:
            asks = (ctx.elicit(f"{word}?", NAME, key=word) for word in ("one", "two", "three"))
            return ", ".join(answer.content["name"] for answer in await asyncio.gather(*asks))

        @server.tool(long_running="on_detach")
        async def walk(ctx: Context) -> str:
            answer = await ctx.elicit("where?", NAME)
            await ctx.detach()
            await self.gate.wait()
            return f"at {answer.content['name']}"

        @server.tool(long_running="required")
        async def bake() -> int:
            return 7

        @server.tool(long_running=True)
        async def burn() -> str:
            raise ProtocolError(-32010, "it burnt", {"minutes": 5})

        @server.tool(long_running=True)
        async def spill() -> str:
            raise ToolError("all over the floor")

        @server.tool
        def taste() -> str:
            return "sweet"


class Table:
    """A kitchen, and how to get to it."""

    def __init__(self, kitchen: Kitchen, target: Any, era: Era, carrier: str) -> None:
        self.kitchen = kitchen
        self.target = target
        self.era: Era = era
        self.carrier = carrier

    def dial(self, **options: Any) -> Client:
        return connect(self.target, era=self.era, **options)


@pytest.fixture(params=["memory-modern", "memory-legacy", "http-modern", "http-legacy"])
async def table(request: pytest.FixtureRequest) -> AsyncIterator[Table]:
    carrier, era = request.param.split("-")
    kitchen = Kitchen()
    async with AsyncExitStack() as stack:
        target: Any = kitchen.server
        if carrier == "http":
            target = (await stack.enter_async_context(HttpServer(kitchen.server, port=0))).url
        yield Table(kitchen, target, era, carrier)
        await kitchen.server.stop()


SESSIONLESS = pytest.mark.parametrize("table", ["memory-modern", "http-modern"], indirect=True)


def by_name(asked: list[str] | None = None) -> Callable[[Any], Any]:
    def on_elicit(elicitation: Any) -> Any:
        if asked is not None:
            asked.append(elicitation.message)
        return elicitation.accept({"name": elicitation.message.rstrip("?")})

    return on_elicit


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_task_is_begun_looked_at_and_awaited(table: Table) -> None:
    kitchen = table.kitchen
    async with table.dial() as client:
        task = await client.start_task("brew", {"cups": 3})
        assert task.id.startswith("task_")
        assert task.status == "working"
        await soon(kitchen.hot.wait())
        assert (await task.refresh()).status == "working"
        kitchen.gate.set()
        found = await soon(task.result())
        assert (found.data, found.is_error) == ("3 cups", False)
        assert task.is_over
    assert kitchen.brewed == [3]


async def test_what_the_tool_reports_on_its_way_is_the_tasks_message(table: Table) -> None:
    """protocol.md 5.1: no progress notifications for tasks; what would have been one is the status message."""
    async with table.dial() as client:
        task = await client.start_task("brew", {"cups": 3})
        await soon(table.kitchen.hot.wait())
        assert await task.refresh() == TaskUpdate("working", "water is hot")
        assert task.message == "water is hot"


async def test_updates_tell_of_the_end(table: Table) -> None:
    async with table.dial() as client:
        task = await client.start_task("brew", {"cups": 1})
        seen: list[TaskUpdate] = []
        async with asyncio.timeout(PATIENCE):
            async for update in task:
                seen.append(update)
                table.kitchen.gate.set()
        assert [one.status for one in seen][-1] == "completed"
        assert {one.status for one in seen[:-1]} == {"working"}
        assert (await task).data == "1 cups"


async def test_a_wait_runs_out_and_the_work_goes_on(table: Table) -> None:
    async with table.dial() as client:
        task = await client.start_task("brew", {"cups": 2})
        with pytest.raises(errors.TimedOut, match="goes on"):
            await task.result(0.05)
        waiting = asyncio.ensure_future(task.result())
        async with finishing(waiting):
            await client.ping()
            waiting.cancel()
            await asyncio.wait({waiting})
        table.kitchen.gate.set()
        assert (await soon(task.result())).data == "2 cups"
    assert (table.kitchen.brewed, table.kitchen.stopped) == ([2], [])


async def test_many_tasks_run_at_once(table: Table) -> None:
    async with table.dial() as client:
        tasks = [await client.start_task("brew", {"cups": cups}) for cups in range(20)]
        assert len({task.id for task in tasks}) == 20
        table.kitchen.gate.set()
        found = await soon(asyncio.gather(*tasks))
        assert [one.data for one in found] == [f"{cups} cups" for cups in range(20)]


@SESSIONLESS
async def test_a_task_outlives_its_connection(table: Table) -> None:
    """Without authentication a legacy task belongs to its session; a caller with a name is the next test."""
    async with table.dial() as client:
        id = (await client.start_task("brew", {"cups": 4})).id
    async with table.dial() as client:
        task = client.task(id, into=str)
        assert (await task.refresh()).status == "working"
        table.kitchen.gate.set()
        assert (await soon(task.result())).data == "4 cups"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_caller_with_a_name_comes_back_to_its_tasks(era: Era) -> None:
    kitchen = Kitchen()
    alice, bob = Principal(subject="alice"), Principal(subject="bob")
    async with connect(kitchen.server, era=era, auth=alice) as client:
        id = (await client.start_task("brew", {"cups": 4})).id
    async with connect(kitchen.server, era=era, auth=bob) as client:
        for use in (client.task(id).refresh, client.task(id).result, client.task(id).cancel):
            with pytest.raises(errors.CallError, match="no task"):
                await soon(use())
    async with connect(kitchen.server, era=era, auth=Principal(subject="alice")) as client:
        kitchen.gate.set()
        assert (await soon(client.task(id).result())).data == "4 cups"
    await kitchen.server.stop()


async def test_an_unknown_task_is_an_error(table: Table) -> None:
    async with table.dial() as client:
        for use in (client.task("task_0").refresh, client.task("task_0").result, client.task("task_0").cancel):
            with pytest.raises(errors.CallError, match="no task") as caught:
                await soon(use())
            assert caught.value.code == -32602


async def test_closing_the_client_ends_a_wait_and_not_the_work(table: Table) -> None:
    client = table.dial()
    await client.open()
    task = await client.start_task("brew", {"cups": 5})
    waiting = asyncio.ensure_future(task.result())
    async with finishing(waiting):
        await soon(table.kitchen.hot.wait())
        await client.close()
        with pytest.raises(errors.Closed):
            await soon(asyncio.shield(waiting))
    table.kitchen.gate.set()
    await until(lambda: table.kitchen.brewed == [5])


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_a_task_is_cancelled(table: Table) -> None:
    async with table.dial() as client:
        task = await client.start_task("brew", {"cups": 1})
        await soon(table.kitchen.hot.wait())
        await task.cancel()
        await until(lambda: table.kitchen.stopped == ["brew"])
        with pytest.raises(errors.CallError, match="cancelled"):
            await soon(task.result())
        assert (await task.refresh()).status == "cancelled"
        assert task.is_over
    assert table.kitchen.brewed == []


async def test_a_task_that_has_ended_is_cancelled_in_vain(table: Table) -> None:
    async with table.dial() as client:
        table.kitchen.gate.set()
        task = await client.start_task("brew", {"cups": 1})
        await until(lambda: table.kitchen.brewed)
        await task.cancel()  # by a handle that has not heard of the end
        assert (await soon(task.result())).data == "1 cups"
        await task.cancel()
        again = await client.start_task("brew", {"cups": 1})
        await again.cancel()
        await again.cancel()


async def test_a_failure_is_raised_as_it_was(table: Table) -> None:
    async with table.dial() as client:
        task = await client.start_task("burn")
        with pytest.raises(errors.CallError, match="it burnt") as caught:
            await soon(task.result())
        assert (caught.value.code, caught.value.data) == (-32010, {"minutes": 5})
        assert (await task.refresh()).status == "failed"


async def test_a_tools_own_failure_is_a_result(table: Table) -> None:
    async with table.dial() as client:
        found = await soon((await client.start_task("spill")).result())
        assert (found.is_error, found.text) == (True, "all over the floor")
        with pytest.raises(ToolError, match="all over"):
            await soon((await client.start_task("spill", raise_on_error=True)).result())


async def test_bad_arguments_are_told_as_for_a_call(table: Table) -> None:
    async with table.dial() as client:
        task = await client.start_task("brew", {"cups": "many"})
        found = await soon(task.result())
        assert found.is_error
        assert "cups" in found.text


# --- questions -------------------------------------------------------------------------------------------------------


async def test_questions_in_the_middle_are_answered_by_the_handlers(table: Table) -> None:
    asked: list[str] = []
    async with table.dial(on_elicit=by_name(asked)) as client:
        found = await soon((await client.start_task("order")).result())
        assert found.data == "who and who else"
    assert asked == ["who?", "who else?"]


async def test_several_questions_at_once_are_each_answered_once(table: Table) -> None:
    asked: list[str] = []
    async with table.dial(on_elicit=by_name(asked)) as client:
        found = await soon((await client.start_task("party")).result())
        assert found.data == "one, two, three"
    assert sorted(asked) == ["one?", "three?", "two?"]


async def test_updates_answer_questions_too(table: Table) -> None:
    async with table.dial(on_elicit=by_name()) as client:
        task = await client.start_task("order")

        async def watch() -> list[str]:
            return [update.status async for update in task]

        assert (await soon(watch()))[-1] == "completed"
        assert (await task).data == "who and who else"


async def test_a_question_to_a_client_that_answers_none_fails_the_task(table: Table) -> None:
    async with table.dial() as client:
        task = await client.start_task("order")
        with pytest.raises(errors.CallError, match="elicitation"):
            await soon(task.result())
        assert (await task.refresh()).status == "failed"


async def test_what_is_asked_before_the_task_begins_is_asked_in_the_call(table: Table) -> None:
    async with table.dial(on_elicit=by_name()) as client:
        task = await client.start_task("walk")
        # Whoever asks a 2025-11-25 server for a task has it at once, and is asked in it.
        assert task.status == "working" or client.era == "legacy"
        table.kitchen.gate.set()
        assert (await soon(task.result())).data == "at where"


@SESSIONLESS
async def test_a_question_is_taken_up_by_whoever_comes_back(table: Table) -> None:
    async with table.dial(capabilities={"elicitation": {"form": {}}}) as client:
        id = (await client.start_task("order")).id
    async with table.dial(on_elicit=by_name()) as client:
        assert (await soon(client.task(id).result())).data == "who and who else"


# --- those who do not ask for tasks ----------------------------------------------------------------------------------


async def test_a_plain_call_waits_for_the_work(table: Table) -> None:
    """C22: clients that do not know tasks get the finished result."""
    async with table.dial() as client:
        call = asyncio.ensure_future(client.call_tool("brew", {"cups": 6}))
        async with finishing(call):
            await client.ping()
            assert not call.done()
            table.kitchen.gate.set()
            assert (await soon(call)).data == "6 cups"
    assert await table.kitchen.tasks.count() == 0


async def test_a_tool_that_must_be_a_task_is_refused_to_a_plain_call(table: Table) -> None:
    async with table.dial() as client:
        with pytest.raises(errors.CallError) as caught:
            await client.call_tool("bake")
        assert caught.value.code == (-32021 if table.era == "modern" else -32601)


async def test_a_client_for_tasks_calls_any_tool_and_waits(table: Table) -> None:
    async with table.dial(tasks=True, on_elicit=by_name()) as client:
        table.kitchen.gate.set()
        assert (await soon(client.call_tool("brew", {"cups": 9}))).data == "9 cups"
        assert (await soon(client.call_tool("order"))).data == "who and who else"
        assert (await soon(client.call_tool("walk"))).data == "at where"
        assert (await soon(client.call_tool("taste"))).data == "sweet"


async def test_a_client_for_tasks_calls_a_tool_that_must_be_one(table: Table) -> None:
    async with table.dial(tasks=True) as client:
        assert (await soon(client.call_tool("bake"))).data == 7


async def test_a_tool_that_must_be_a_task_is_one(table: Table) -> None:
    async with table.dial() as client:
        assert (await soon((await client.start_task("bake", into=int)).result())).data == 7


async def test_a_quick_tool_gives_a_task_that_has_ended(table: Table) -> None:
    async with table.dial() as client:
        task = await client.start_task("taste")
        assert (task.id, task.is_over) == ("", True)
        assert (await task).data == "sweet"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_server_without_tasks_gives_one_that_has_ended(era: Era) -> None:
    server = Server("plain", version="1.0.0")

    @server.tool
    def taste() -> str:
        return "sweet"

    async with connect(server, era=era, tasks=True) as client:
        assert (await (await client.start_task("taste"))).data == "sweet"
        assert (await client.call_tool("taste")).data == "sweet"
        with pytest.raises(errors.CallError):
            await client.task("task_0").refresh()


async def test_the_plain_methods_work_for_a_client_for_tasks(table: Table) -> None:
    async with table.dial(tasks=True) as client:
        task = await client.start_task("brew", {"cups": 1})
        assert (await client.get_task(task.id))["status"] == "working"
        await client.cancel_task(task.id)
        assert (await task.refresh()).status == "cancelled"


# --- on the wire -----------------------------------------------------------------------------------------------------


async def test_the_headers_name_the_task(site: Site) -> None:
    """protocol.md 5.1: `Mcp-Name: <taskId>`."""
    form = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": NAME}}
    task = {"taskId": "k-1", "ttlMs": None, "pollIntervalMs": 20}
    done = {"content": [{"type": "text", "text": "tea"}]}
    site.on("server/discover", result(discovered())).on("tools/list", result(listed()))
    site.on("tools/call", result({"resultType": "task", "status": "working", **task}))
    site.on(
        "tasks/get",
        result({"resultType": "complete", "status": "input_required", "inputRequests": {"a": form}, **task}),
        result({"resultType": "complete", "status": "completed", "result": done, **task}),
    )
    for method in ("tasks/update", "tasks/cancel"):
        site.on(method, result({"resultType": "complete"}))
    async with connect(site.url, on_elicit=lambda one: one.decline()) as client:
        assert (await soon((await client.start_task("t")).result())).data == "tea"
        await client.task("käse/1").cancel()
    spoken = [(one.key, one.headers.get("Mcp-Name")) for one in site.heard]
    assert spoken[2:-1] == [("tools/call", "t"), ("tasks/get", "k-1"), ("tasks/update", "k-1"), ("tasks/get", "k-1")]
    assert spoken[-1] == ("tasks/cancel", "=?base64?a8Okc2UvMQ==?=")
    for one in site.heard[2:]:
        assert one.headers["Mcp-Method"] == one.message["method"]
        assert one.headers["MCP-Protocol-Version"] == MODERN
        assert one.meta[P + "clientCapabilities"]["extensions"] == {TASKS: {}}


async def test_a_site_that_is_gone_for_a_moment_is_asked_again(site: Site) -> None:
    """A wait survives a connection that breaks in the middle of a look."""

    async def cut(exchange: Any) -> Any:
        assert exchange.request.transport is not None
        exchange.request.transport.abort()
        raise ConnectionResetError

    task = {"taskId": "k-1", "ttlMs": None, "pollIntervalMs": 20}
    working = result({"resultType": "complete", "status": "working", **task})
    done = {"resultType": "complete", "status": "completed", "result": said("tea"), **task}
    site.modern().on("tools/call", result({"resultType": "task", "status": "working", **task}))
    site.on("tasks/get", working, cut, working, cut, result(done))
    async with connect(site.url) as client:
        assert (await soon((await client.start_task("t")).result())).data == "tea"
    assert len(site.all("tools/call")) == 1


async def test_a_legacy_task_over_http_is_waited_for_on_one_request() -> None:
    heard: list[bytes] = []
    kitchen = Kitchen()
    async with HttpServer(kitchen.server, port=0) as http:
        tap = lambda way, data: heard.append(data) if way == "out" else None  # noqa: E731
        async with connect(http.url, era="legacy", tap=tap) as client:
            task = await client.start_task("brew", {"cups": 1}, ttl=60)
            waiting = asyncio.ensure_future(task.result())
            async with finishing(waiting):
                await client.ping()
                kitchen.gate.set()
                assert (await soon(waiting)).data == "1 cups"
    sent = b"\n".join(heard)
    assert b'"task":{"ttl":60000}' in sent
    assert sent.count(b'"tasks/result"') == 1
    assert b'"tasks/get"' not in sent
    await kitchen.server.stop()


# --- waiting, whatever happens to whoever was asked -------------------------------------------------------------------


async def cut(wire: Wire) -> None:
    wire.cut()


BEGUN = {"task": {"taskId": "t-1", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "ttl": None}}
DONE = {"content": [{"type": "text", "text": "tea"}]}


def standing(status: str) -> dict[str, Any]:
    return {**BEGUN["task"], "status": status}


@pytest.mark.parametrize(
    "mishap",
    [
        error(-32603, "the server is stopping; try again in a moment", status=503),
        error(-32603, "the server is stopping; try again in a moment"),
        plain(503, "no server is available"),
        plain(200, ""),
        stream(cut),
    ],
    ids=["refused", "refused in a stream", "a proxy", "an empty answer", "a broken connection"],
)
async def test_who_waits_on_2025_11_25_asks_again_when_the_answer_is_not_about_the_task(
    site: Site, mishap: Any
) -> None:
    site.legacy(capabilities={"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}})
    site.on("tools/call", result(BEGUN)).on("tasks/get", result(standing("working")))
    site.on("tasks/result", mishap, mishap, result(DONE))
    async with connect(site.url, version="2025-11-25", tasks=True) as client:
        task = await client.start_task("t")
        assert (await soon(task.result(), 20)).text == "tea"
    assert sum(one.key == "tasks/result" for one in site.heard) == 3


async def test_the_error_of_a_task_is_not_taken_for_that_of_the_server(site: Site) -> None:
    site.legacy(capabilities={"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}})
    site.on("tools/call", result(BEGUN)).on("tasks/get", result(standing("failed")))
    site.on("tasks/result", error(-32603, "it burnt"))
    async with connect(site.url, version="2025-11-25", tasks=True) as client:
        task = await client.start_task("t")
        with pytest.raises(errors.CallError, match="it burnt"):
            await soon(task.result(), 20)
