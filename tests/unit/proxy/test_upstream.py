"""The target of a proxy: away at the start, lost, back again; a client for all callers, or one for each."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port
from tests.support.until import soon, until

from trimaran import Context, Server, connect
from trimaran.auth import Bearer
from trimaran.client.connection import Connection
from trimaran.errors import (
    CallError,
    ConfigError,
    ConnectionLost,
    DeclarationError,
    Error,
    ProtocolError,
    Unauthorized,
)
from trimaran.proxy.definitions import tool_entries
from trimaran.proxy.server import open_proxy
from trimaran.serve import HttpServer
from trimaran.types import Tool

from .harbour import ERAS, Era, Harbour

CHILD = """
import os
from trimaran import Server
server = Server("child", version="1")
@server.tool
def pid() -> int:
    return os.getpid()
server.run()
"""


@pytest.fixture
def child(tmp_path: Path) -> list[str]:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    return [sys.executable, str(script)]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.slow
async def test_a_call_is_told_at_once_that_a_child_keeps_ending(child: list[str], era: Era) -> None:
    """It waited for the next attempt, half a minute later, and its caller heard of a timeout of its own."""
    script = Path(child[-1])
    script.write_text(script.read_text().replace("return os.getpid()", "os._exit(3)"))
    async with connect(Server.proxy(child), era=era, timeout=None) as client:

        async def kind() -> str:
            with pytest.raises(CallError) as error:
                await client.call_tool("pid")
            return error.value.data["kind"]

        kinds = [await soon(kind(), 6.0) for _ in range(9)]  # after the fifth end, a pause of ten seconds
    assert kinds[0] == "lost"
    assert kinds[-1] == "unreachable"
    assert set(kinds) == {"lost", "unreachable"}


async def test_the_end_of_a_proxy_waits_for_a_connection_that_is_closed_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It left the child to itself that had just failed."""
    is_closing, may_close = asyncio.Event(), asyncio.Event()
    close = Connection._close  # pyright: ignore[reportPrivateUsage]

    async def close_late(self: Connection, error: Error | None) -> None:
        is_closing.set()
        await may_close.wait()
        await close(self, error)

    monkeypatch.setattr(Connection, "_close", close_late)

    class Odd:
        def list_tools(self, cursor: Any, ctx: Any) -> list[Any]:
            raise OSError("no list today")

        def call_tool(self, name: str, arguments: Any, ctx: Any) -> str:
            return name

    front = Server.proxy(Server("odd", version="1", callbacks=Odd()))
    await front.start()
    await soon(is_closing.wait())
    stopping = asyncio.ensure_future(front.stop())
    await asyncio.wait((stopping,), timeout=0.2)
    assert not stopping.done()
    may_close.set()
    await soon(stopping)


async def test_a_call_that_meets_no_connection_is_never_said_to_be_sent() -> None:
    """The request that was lost was one of the proxy, for a list; "lost" would keep the caller from trying again."""
    front, upstream = open_proxy([sys.executable, "-c", "pass"], start_timeout=0)
    lost = ConnectionLost("gone")
    lost.sent = True
    upstream._failure = lost  # pyright: ignore[reportPrivateUsage]
    assert upstream.failure().data == {"upstream": upstream.name, "kind": "unreachable"}
    assert front.list_tools() == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_target_whose_lists_change_all_the_time_is_not_read_all_the_time(
    monkeypatch: pytest.MonkeyPatch, era: Era
) -> None:
    """Each change read everything again: a large catalog that changed a hundred times a second took the whole process."""
    monkeypatch.setattr("trimaran.proxy.upstream._REST_FACTOR", 1e9)
    monkeypatch.setattr("trimaran.proxy.upstream._MOST_REST", 0.3)
    readings: list[int] = []

    def count(tools: list[Any], *more: Any) -> Any:
        readings.append(len(tools))
        return tool_entries(tools, *more)

    monkeypatch.setattr("trimaran.proxy.upstream.tool_entries", count)
    target = Server("target", version="1")
    target.add_tool(lambda: "", name="first")
    async with connect(Server.proxy(target, era=era)) as client:
        await client.list_tools_all()
        for number in range(100):
            target.add_tool(lambda: "", name=f"tool_{number}")
            for _ in range(20):
                await asyncio.sleep(0)
        assert len(readings) < 10
        await until(lambda: readings[-1] == 101, "the last change is followed")


async def test_a_target_that_is_away_costs_its_own_tools_only_and_comes_back_by_itself() -> None:
    port = find_port()
    outer = Server("outer", version="1")
    outer.add_tool(lambda: "here", name="own")
    outer.mount(f"http://127.0.0.1:{port}/mcp", prefix="far", start_timeout=5.0)
    async with HttpServer(outer, port=0) as front, connect(front.url) as client:
        assert (await client.call_tool("own")).text == "here"
        assert [tool.name for tool in await client.list_tools_all()] == ["own"]
        async with HttpServer(Harbour().server, port=port):

            async def is_back() -> bool:
                return "far_add" in [tool.name for tool in await client.list_tools_all(fresh=True)]

            await until(is_back)
            assert (await client.call_tool("far_add", {"a": 1, "b": 2})).data == 3


class Told:
    """Hears of changes, each as often as it is told."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.watched: frozenset[str] = frozenset()
        self.kinds: list[str] = []

    def deliver(self, kind: str, uri: str | None, extra: dict[str, Any]) -> None:
        self.kinds.append(kind)


@pytest.mark.parametrize("era", ERAS)
async def test_a_change_of_resources_and_templates_is_told_once_here_and_where_the_proxy_is_mounted(era: Era) -> None:
    target, outer = Server("target", version="1"), Server("outer", version="1")
    target.add_resource("file:///first", lambda: "first")
    target.add_resource("file:///{name}", lambda name: name)
    proxy = Server.proxy(target, era=era)
    outer.mount(proxy)
    async with connect(outer) as client:
        await client.list_resources()
        inner, above = Told(), Told()
        proxy.runtime.changes.add(inner)
        outer.runtime.changes.add(above)
        target.notify.resources_changed()
        await until(lambda: "resources" in above.kinds)
        target.add_resource("file:///later", lambda: "later")
        await until(lambda: len(outer.list_resources()) == 2)
        assert inner.kinds == above.kinds == ["resources", "resources"]


async def test_mounting_and_unmounting_tell_of_each_list_once() -> None:
    inner, outer = Server("inner", version="1"), Server("outer", version="1")
    inner.add_resource("file:///first", lambda: "first")
    inner.add_resource("file:///{name}", lambda name: name)
    told = Told()
    outer.runtime.changes.add(told)
    outer.mount(inner)
    assert told.kinds.count("resources") == 1
    await outer.unmount(inner)
    assert told.kinds.count("resources") == 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_target_that_was_never_there_is_an_error_and_no_empty_list_and_is_told_when_it_comes(era: Era) -> None:
    port = find_port()
    async with connect(Server.proxy(f"http://127.0.0.1:{port}/mcp", start_timeout=0.2, name="far"), era=era) as client:
        asked = (client.list_tools, client.list_prompts, client.list_resources, client.list_resource_templates)
        calls = (
            lambda: client.call_tool("add", {"a": 1, "b": 2}),
            lambda: client.get_prompt("any"),
            lambda: client.read_resource("any://one"),
        )
        for ask in (*asked, *calls):
            with pytest.raises(CallError, match="far cannot be reached") as away:
                await soon(ask())
            assert away.value.data == {"upstream": "far", "kind": "unreachable"}
        async with client.listen(tools=True) as changes, HttpServer(Harbour().server, port=port):
            await soon(anext(aiter(changes)))
            assert "add" in [tool.name for tool in await client.list_tools_all(fresh=True)]


@pytest.mark.parametrize("era", ERAS)
async def test_a_mounted_target_that_was_never_there_is_an_error_for_what_may_be_its_own(era: Era) -> None:
    """Its tools were unknown, and a server with nothing else showed empty lists in silence."""
    outer = Server("outer", version="1")
    for name in ("far", "farther"):
        outer.mount(f"http://127.0.0.1:{find_port()}/mcp", name, start_timeout=0.2, name=name)
    async with connect(outer, era=era) as client:
        for ask in (client.list_tools, client.list_prompts, client.list_resources, client.list_resource_templates):
            with pytest.raises(CallError, match="far cannot be reached"):
                await soon(ask())
    outer.add_tool(lambda: "here", name="own")
    outer.add_prompt(lambda: "here", name="mine")
    async with connect(outer, era=era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["own"]
        for ask, prefix in ((client.call_tool, "far_"), (client.get_prompt, "farther_")):
            with pytest.raises(CallError) as away:
                await soon(ask(f"{prefix}any"))
            assert away.value.data == {"upstream": prefix.rstrip("_"), "kind": "unreachable"}
            with pytest.raises(ProtocolError, match="unknown"):
                await soon(ask("other_any"))


async def test_a_mounted_server_that_fails_to_read_a_resource_does_not_stand_before_the_next_one() -> None:
    class Grumpy:
        async def read_resource(self, uri: str, ctx: object) -> str:
            raise ProtocolError(0, f"Unknown resource: {uri}")  # as the official SDK had it for long

    class Helpful:
        async def read_resource(self, uri: str, ctx: object) -> str | None:
            return "below deck" if uri == "hold://one" else None

    outer = Server("outer", version="1")
    outer.mount(f"http://127.0.0.1:{find_port()}/mcp", "far", start_timeout=0.2, name="far")
    for callbacks in (Grumpy(), Helpful()):
        target = Server("target", version="1", callbacks=callbacks)
        outer.mount(Server.proxy(target))
    async with connect(outer) as client:
        assert (await soon(client.read_resource("hold://one"))).text == "below deck"
        with pytest.raises(CallError, match="far cannot be reached"):
            await soon(client.read_resource("hold://other"))


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_target_does_not_offer_the_proxy_does_not_offer_either(era: Era) -> None:
    target = Server("target", version="1")
    target.add_tool(lambda: "here", name="own")
    async with connect(Server.proxy(target), era=era) as client:
        await client.list_tools()
        assert not client.server_capabilities.keys() & {"prompts", "resources"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_proxy_with_a_name_of_its_own_has_the_targets_version_and_title(era: Era) -> None:
    target = Server("target", version="2.1", title="The target")
    target.add_tool(lambda: "here", name="own")
    async with connect(Server.proxy(target, name="far"), era=era) as client:
        await client.list_tools()
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version, client.server_info.title) == (
            "far",
            "2.1",
            "The target",
        )


async def test_other_credentials_are_looked_for_when_the_target_refuses_those_there_are() -> None:
    found: list[str] = []

    async def look(refusal: Unauthorized) -> str | None:
        if not found:
            raise Unauthorized("log in first")
        return found[0]

    async with HttpServer(
        Harbour().server, port=0, auth=Bearer(verifier=lambda token: token == "good" or None)
    ) as target:
        server, upstream = open_proxy(target.url, on_refused=look, name="far")
        async with connect(server) as client:
            with pytest.raises(CallError, match="far refuses the credentials of the proxy, whose log says what to do"):
                await client.list_tools()
            assert upstream.status == "log in first"
            found.append("good")

            async def is_in() -> bool:
                return len(server.tools) > 0

            await until(is_in)
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


@pytest.mark.parametrize("era", ERAS)
async def test_a_target_that_is_lost_is_an_error_that_says_so(era: Era) -> None:
    target = HttpServer(Harbour().server, port=0)
    await target.start()
    async with connect(Server.proxy(target.url, retries=0), era=era) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        await target.stop()
        with pytest.raises(CallError) as lost:
            await soon(client.call_tool("add", {"a": 1, "b": 2}))
        assert isinstance(lost.value.data, dict)
        assert lost.value.data["upstream"] == "harbour"
        assert lost.value.data["kind"] in ("unreachable", "lost")
        assert target.url not in lost.value.message


async def test_a_child_that_dies_is_started_again(child: list[str]) -> None:
    async with connect(Server.proxy(child)) as client:
        first = (await client.call_tool("pid")).data
        os.kill(first, signal.SIGKILL)

        async def is_another() -> bool:
            try:
                return (await client.call_tool("pid")).data != first
            except CallError:
                return False

        await until(is_another)


async def test_all_callers_share_a_child(child: list[str]) -> None:
    front = Server.proxy(child)
    async with HttpServer(front, port=0) as http:
        async with connect(http.url, era="legacy") as one, connect(http.url, era="legacy") as two:
            assert (await one.call_tool("pid")).data == (await two.call_tool("pid")).data


async def test_with_isolation_each_session_has_a_child_of_its_own(child: list[str]) -> None:
    front = Server.proxy(child, isolation="caller")
    async with HttpServer(front, port=0) as http:
        async with connect(http.url, era="legacy") as one, connect(http.url, era="legacy") as two:
            pids = [(await client.call_tool("pid")).data for client in (one, two, one)]
            assert pids[0] == pids[2] != pids[1]


async def test_a_caller_with_a_connection_of_its_own_declares_its_own_capabilities() -> None:
    """An older target decides by them, before it asks anything."""
    target = Server("target", version="1")
    target.add_tool(able)
    async with HttpServer(target, port=0) as behind:
        front = Server.proxy(behind.url, era="legacy", isolation="caller")
        async with (
            HttpServer(front, port=0) as http,
            connect(http.url, era="legacy") as unable,
            connect(http.url, era="legacy", on_elicit=lambda ask: None, roots=[]) as asked,
        ):
            assert (await unable.call_tool("able")).data == []
            assert (await asked.call_tool("able")).data == ["elicitation", "roots"]


async def able(ctx: Context) -> list[str]:
    return sorted(ctx.client_capabilities)


async def test_with_isolation_an_open_question_keeps_no_anonymous_caller_from_being_asked(tmp_path: Path) -> None:
    """Over HTTP nobody knows whether two calls are one caller's; on a pipe no question says whose it is."""
    script = tmp_path / "asking.py"
    script.write_text(ASKING)
    front = Server.proxy([sys.executable, str(script)], era="legacy", isolation="caller")
    async with HttpServer(front, port=0) as http:
        leaving = asyncio.Event()

        async def leave(ask: Any) -> Any:
            leaving.set()
            await asyncio.Event().wait()

        async with (
            connect(http.url, era="modern", on_elicit=leave) as one,
            connect(http.url, era="modern", on_elicit=lambda ask: {"value": True}) as two,
        ):
            waiting = asyncio.ensure_future(one.call_tool("ask"))
            await soon(leaving.wait())
            assert (await soon(two.call_tool("ask"))).data == "accept"
            waiting.cancel()


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_on_a_pipe_goes_on_to_the_next_call_when_the_newest_one_ends(tmp_path: Path, era: Era) -> None:
    """It was put to the newest call of the only caller, and was not that call's."""
    script = tmp_path / "asking.py"
    script.write_text(ASKING)
    front = Server.proxy([sys.executable, str(script)], era="legacy")
    async with connect(front, era=era, on_elicit=lambda ask: {"value": True}) as client:
        asking = asyncio.ensure_future(client.call_tool("ask_later"))
        newest = asyncio.ensure_future(client.call_tool("ask_and_end"))
        assert (await soon(newest)).data == "ended"
        assert (await soon(asking)).data == "accept"


ASKING = """
import asyncio
from trimaran import Context, Server
server = Server("asking", version="1")
ready, asked = asyncio.Event(), asyncio.Event()
@server.tool
async def ask_later(ctx: Context) -> str:
    await ready.wait()
    answer = asyncio.ensure_future(ctx.elicit("Well?", bool))
    await asyncio.sleep(0)
    asked.set()
    return (await answer).action
@server.tool
async def ask_and_end(ctx: Context) -> str:
    ready.set()
    await asked.wait()
    return "ended"
@server.tool
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Well?", bool)).action
server.run()
"""


async def test_callers_beyond_the_bound_take_the_place_of_one_that_rests(child: list[str]) -> None:
    front = Server.proxy(child, isolation="caller", max_connections=1)
    async with HttpServer(front, port=0) as http:
        async with connect(http.url, era="legacy") as one, connect(http.url, era="legacy") as two:
            first, second = [(await client.call_tool("pid")).data for client in (one, two)]
            assert first != second
            await until(lambda: not is_running(first))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_caller_is_refused_while_all_connections_are_at_work() -> None:
    harbour = Harbour()
    async with HttpServer(harbour.server, port=0) as target:
        front = Server.proxy(target.url, isolation="caller", max_connections=1)
        async with HttpServer(front, port=0) as http:
            async with connect(http.url, era="legacy") as one, connect(http.url, era="legacy") as two:
                held = asyncio.ensure_future(one.call_tool("hold"))
                await soon(harbour.started.wait())
                with pytest.raises(CallError, match="try again later"):
                    await two.call_tool("add", {"a": 1, "b": 2})
                held.cancel()


async def test_a_tool_that_may_take_long_becomes_a_task_of_the_proxy() -> None:
    target = Server("slow", version="1")
    target.add_tool(slow, long_running=True)
    async with HttpServer(Server.proxy(target), port=0) as front, connect(front.url) as client:
        task = await client.start_task("slow")
        assert (await soon(task)).data == "late"


async def slow() -> str:
    return "late"


def test_what_cannot_be_a_target_or_an_option_is_refused_at_once() -> None:
    server = Server("outer", version="1")
    with pytest.raises(ConfigError, match="isolation"):
        Server.proxy("http://127.0.0.1:1/mcp", isolation="each")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="start_timeout"):
        server.mount("http://127.0.0.1:1/mcp", start_timout=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(DeclarationError, match="options of a connection"):
        server.mount(Server("inner", version="1"), start_timeout=1)
    targets: list[Any] = [None, "", "weather", "no/such.py", [], {"comand": "x"}, {"command": "x", "args": 3}, b"x"]
    for target in targets:
        with pytest.raises(ConfigError):
            Server.proxy(target)
        with pytest.raises(ConfigError):
            server.mount(target, "other")


async def test_a_bad_definition_of_the_target_costs_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Odd:
        def list_tools(self, cursor: Any, ctx: Any) -> list[dict[str, Any]]:
            good = {"name": "good", "inputSchema": {"type": "object"}}
            return [good, {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": HEADER}}}]

        def call_tool(self, name: str, arguments: Any, ctx: Any) -> str:
            return name

    target = Server("odd", version="1", callbacks=Odd())
    async with connect(Server.proxy(target)) as client:
        assert [tool.name for tool in await client.list_tools_all()] == ["good"]
    assert "'bad' is left out" in caplog.text


@pytest.mark.parametrize("era", ERAS)
async def test_a_schema_of_the_target_that_is_too_deep_in_an_envelope_costs_no_tool(era: Era) -> None:
    """The target's own list is just within the limit of clients; that of the proxy was not, for older revisions."""
    schema: dict[str, Any] = {"type": "array"}
    for _ in range(61):
        schema = {"type": "array", "prefixItems": [schema]}

    class Deep:
        def list_tools(self, cursor: Any, ctx: Any) -> list[dict[str, Any]]:
            tool = {"name": "deep", "inputSchema": {"type": "object"}, "outputSchema": schema}
            return [tool, {**tool, "name": "good", "outputSchema": None}]

        def call_tool(self, name: str, arguments: Any, ctx: Any) -> str:
            return name

    async with connect(Server.proxy(Server("deep", version="1", callbacks=Deep())), era=era) as client:
        assert [tool.name for tool in await client.list_tools_all()] == ["deep", "good"]


async def test_what_a_target_sent_before_it_failed_is_not_kept() -> None:
    """A list without end was kept by the error that ended it: 70 MB for each such target, for as long as it was away."""

    class Endless:
        def list_tools(self, cursor: Any, ctx: Any) -> Any:
            number = int(cursor or 0)
            return [{"name": f"endless{number}", "inputSchema": {"type": "object"}}], str(number + 1)

        def call_tool(self, name: str, arguments: Any, ctx: Any) -> str:
            return name

    proxy = Server.proxy(Server("endless", version="1", callbacks=Endless()))
    async with connect(proxy) as client:
        with pytest.raises(CallError, match="endless could not be called"):
            await client.list_tools_all()
    gc.collect()
    kept = [tool for tool in gc.get_objects() if isinstance(tool, Tool) and tool.name.startswith("endless")]
    assert not kept
    assert proxy.name


HEADER = {"type": "object", "x-mcp-header": "Not Allowed"}


async def test_whoever_runs_a_proxy_hears_that_callers_need_connections_of_their_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harbour = Harbour()
    async with (
        HttpServer(Server.proxy(harbour.server, era="legacy"), port=0) as http,
        connect(http.url, era="legacy", on_elicit=lambda ask: {"name": "one"}) as one,
        connect(http.url, era="legacy") as two,
    ):
        other = asyncio.ensure_future(two.call_tool("hold"))
        await soon(harbour.started.wait())
        for _ in range(2):
            with pytest.raises(CallError, match="give each caller a connection of its own"):
                await soon(one.call_tool("greet"))
        other.cancel()
    assert len([text for text in caplog.messages if 'connections = "caller"' in text]) == 1


async def test_a_malformed_result_names_the_target_as_the_proxy_knows_it() -> None:
    script = Path(__file__).parents[2] / "support" / "odd_server.py"
    outer = Server("outer", version="1")
    outer.mount([sys.executable, str(script), json.dumps({"tools/call": {"content": "wrong"}})], prefix="far")
    async with connect(outer) as client:
        await until(client.list_tools_all, "the tools are there")
        with pytest.raises(CallError, match="sent a malformed tool result") as caught:
            await client.call_tool("far_add", {"a": 1})
    await outer.stop()
    assert caught.value.data == {"upstream": "odd", "kind": "protocol"}
