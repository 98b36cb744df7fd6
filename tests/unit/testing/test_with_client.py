"""The tools of `trimaran.testing` with the client they are made for: both eras, scripts, faults, cassettes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from trimaran import Context, Server, connect, connecting
from trimaran.errors import CallError, ConnectFailed, ConnectionLost, RemoteProtocolError, TimedOut
from trimaran.testing import (
    Corrupt,
    Cut,
    Delay,
    Drop,
    Duplicate,
    FaultChannel,
    ScriptedPeer,
    connected,
    record,
    replay,
    seeded_plan,
)

both_eras = pytest.mark.parametrize("era", ["modern", "legacy"])
TOOL = {"name": "add", "inputSchema": {"type": "object"}}


@pytest.fixture
def server() -> Server:
    server = Server("adder", version="1.2.3")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        """Count, and say so."""
        for n in range(1, to + 1):
            await ctx.progress(n, total=to)
        return "done"

    @server.tool
    async def greet(ctx: Context) -> str:
        """Ask for a name."""
        answer = await ctx.elicit("Who are you?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"Hello, {answer.content['name']}"

    @server.resource("memo://one", mime_type="text/plain")
    def memo() -> str:
        return "remember"

    return server


# connected


@both_eras
async def test_connected_gives_a_client_of_either_era(server: Server, era: Any) -> None:
    async with connected(server, era=era) as client:
        assert client.era == era
        assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5
    assert client.state == "closed"


@both_eras
async def test_connected_lasts_as_long_as_the_lifespan(era: Any) -> None:
    seen: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[None]:
        seen.append("up")
        yield
        seen.append("down")

    async with connected(Server("a", version="1.0.0", lifespan=lifespan), era=era):
        assert seen == ["up"]
    assert seen == ["up", "down"]


async def test_a_client_pinned_to_one_era_teaches_the_next_one_nothing(server: Server) -> None:
    """protocol.md 2.5: modern first; what a pinned client spoke says nothing about what the server prefers."""
    async with connected(server, era="legacy"):
        pass
    async with connected(server) as client:
        assert client.era == "modern"


async def test_connected_is_strict_about_results() -> None:
    server = Server("liar", version="1.0.0")

    @server.tool(inline=True, validate_output=False, output_schema={"type": "object", "required": ["x"]})
    def lie() -> dict[str, int]:
        return {"y": 1}

    async with connected(server) as client:
        with pytest.raises(RemoteProtocolError):
            await client.call_tool("lie")


# Scripts


@both_eras
async def test_a_client_follows_a_script(era: Any) -> None:
    peer = ScriptedPeer()
    peer = peer.modern(capabilities={"tools": {}}) if era == "modern" else peer.legacy(capabilities={"tools": {}})
    peer.expect("tools/list", result={"tools": [TOOL], "resultType": "complete"}).expect(
        "tools/call", {"name": "add", "arguments": {"a": 1}}, error=(-32050, "out of numbers")
    )
    async with connect(peer) as client:
        assert client.era == era
        assert client.server_info is not None
        assert client.server_info.name == "scripted"
        assert [tool.name for tool in await client.list_tools()] == ["add"]
        with pytest.raises(CallError, match="out of numbers"):
            await client.call_tool("add", {"a": 1})
    peer.verify()


async def test_a_client_that_leaves_the_script_hears_why() -> None:
    peer = ScriptedPeer().legacy(capabilities={"tools": {}}).expect("prompts/list", result={"prompts": []})
    async with connect(peer, retries=0, timeout=2) as client:
        with pytest.raises(
            (ConnectionLost, ConnectFailed), match="expected prompts/list, and the client sent tools/list"
        ):
            await client.list_tools()
    with pytest.raises(AssertionError, match="expected prompts/list, and the client sent tools/list"):
        peer.verify()


async def test_a_scripted_server_asks_in_the_middle_of_a_call() -> None:
    form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"yes": {"type": "boolean"}}}}
    peer = (
        ScriptedPeer()
        .legacy(capabilities={"tools": {}})
        .allow("tools/list", {"tools": [TOOL]})
        .expect("tools/call")
        .ask("elicitation/create", form, answer={"result": {"action": "accept", "content": {"yes": True}}})
        .reply({"content": [{"type": "text", "text": "done"}]})
    )

    async def on_elicit(ask: Any) -> Any:
        return ask.accept({"yes": True})

    async with connect(peer, on_elicit=on_elicit) as client:
        assert (await client.call_tool("add")).text == "done"
    peer.verify()


async def test_a_silent_server_is_a_timeout() -> None:
    peer = ScriptedPeer().legacy(capabilities={"tools": {}}).expect("tools/list").allow("notifications/cancelled")
    async with connect(peer) as client:
        with pytest.raises(TimedOut):
            await client.request("tools/list", timeout=0.05)
    peer.verify()


async def test_a_script_that_hangs_up_in_a_call_is_a_loss_and_the_next_connection_goes_on() -> None:
    peer = (
        ScriptedPeer()
        .legacy(capabilities={"tools": {}})
        .expect("tools/list")
        .hang_up()
        .legacy(capabilities={"tools": {}})
        .expect("tools/list", result={"tools": []})
    )
    async with connect(peer, retries=0) as client:
        with pytest.raises(ConnectionLost):
            await client.request("tools/list")
        assert await client.request("tools/list") == {"tools": []}
    peer.verify()


async def test_a_script_teaches_nothing_about_the_next_one() -> None:
    """Which era a server speaks is remembered per target; an object in this program is no target to remember."""
    known = dict(vars(connecting._memory)["_known"])  # pyright: ignore[reportPrivateUsage]
    for peer, era in ((ScriptedPeer().legacy(), "legacy"), (ScriptedPeer().modern(), "modern")):
        async with connect(peer) as client:
            assert client.era == era
        peer.verify()
    assert vars(connecting._memory)["_known"] == known  # pyright: ignore[reportPrivateUsage]


# Faults


@both_eras
async def test_a_client_hears_of_a_cut_at_once(server: Server, era: Any) -> None:
    """R207 and P2: typed, within the call, not a hang."""
    channel = FaultChannel(server, [])
    async with connect(channel, era=era, retries=0, timeout=5) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 1})).data == 2
        before = len(channel.happened)
        assert before == 0
    cut = FaultChannel(server, [Cut("in", at=3)])
    async with connect(cut, era=era, retries=0, timeout=5) as client:
        with pytest.raises(ConnectionLost, match="cut as planned"):
            for _ in range(5):
                await client.request("tools/list")


@both_eras
async def test_a_client_heals_after_a_cut(server: Server, era: Any) -> None:
    """P1: the next call works with no help."""
    channel = FaultChannel(server, [Cut("in", at=3)])
    async with connect(channel, era=era, retries=0, timeout=5) as client:
        with pytest.raises(ConnectionLost):
            for _ in range(2):
                await client.request("tools/list")
        assert "tools" in await client.request("tools/list")
    assert channel.happened == ["in 3: cut"]


@both_eras
async def test_a_reply_that_is_lost_is_a_timeout_and_one_that_comes_twice_is_no_harm(server: Server, era: Any) -> None:
    greeting = 1
    channel = FaultChannel(server, [Duplicate("in", greeting + 1), Drop("in", greeting + 2)])
    async with connect(channel, era=era, timeout=5) as client:
        assert "tools" in await client.request("tools/list")
        with pytest.raises(TimedOut):
            await client.request("tools/list", timeout=0.05)
        assert "tools" in await client.request("tools/list")
    assert [what for what in channel.happened if "in" in what] == ["in 2: duplicate", "in 3: drop"]


@both_eras
async def test_a_damaged_reply_is_an_error_in_time(server: Server, era: Any) -> None:
    channel = FaultChannel(server, [Corrupt("in", 2, how=lambda message: message[:-2] + b"\xff}")])
    async with connect(channel, era=era, timeout=5) as client:
        with pytest.raises((RemoteProtocolError, TimedOut)):
            await client.request("tools/list", timeout=1)
        assert "tools" in await client.request("tools/list")


@pytest.mark.slow
async def test_delays_of_all_kinds_change_no_answer(server: Server) -> None:
    channel = FaultChannel(server, seeded_plan(11, messages=200, delay=0.3, duplicate=0.2, reorder=0.2, longest=0.003))
    async with connect(channel, era="modern", timeout=10) as client:
        results = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": n}) for n in range(50)))
    assert [result.data for result in results] == [2 * n for n in range(50)]
    assert channel.happened


@pytest.mark.slow
async def test_a_delay_beyond_the_deadline_is_a_timeout(server: Server) -> None:
    channel = FaultChannel(server, [Delay("in", 2, seconds=0.3)])
    async with connect(channel, era="modern") as client:
        with pytest.raises(TimedOut):
            await client.request("tools/list", timeout=0.05)
        assert "tools" in await client.request("tools/list", timeout=5)


# Cassettes


async def talk(client: Any) -> list[Any]:
    """A session with a list, calls, progress and a resource."""
    steps: list[Any] = []
    heard: list[Any] = []
    steps.append([tool.name for tool in await client.list_tools()])
    steps.append((await client.call_tool("add", {"a": 2, "b": 3})).data)
    done = await client.call_tool("count", {"to": 3}, on_progress=lambda *progress: heard.append(progress[0]))
    steps.append((done.text, heard))
    steps.append((await client.read_resource("memo://one")).text)
    return steps


EXPECTED = [["add", "count", "greet"], 5, ("done", [1, 2, 3]), "remember"]


@both_eras
@pytest.mark.parametrize("order", ["strict", "lenient"])
async def test_a_session_in_memory_plays_without_its_server(
    server: Server, era: Any, order: Any, tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    with record(path, target=server) as tap:
        async with connect(server, era=era, tap=tap) as client:
            assert await talk(client) == EXPECTED
    player = replay(path, order=order)
    assert player.header["target"] == "adder"
    async with connect(player, client_info={"name": "another", "version": "2"}) as client:
        assert client.era == era
        assert await talk(client) == EXPECTED
    player.verify()


@both_eras
async def test_a_session_with_questions_plays_too(server: Server, era: Any, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"

    async def on_elicit(ask: Any) -> Any:
        return ask.accept({"name": "Ada"})

    with record(path) as tap:
        async with connect(server, era=era, tap=tap, on_elicit=on_elicit) as client:
            assert (await client.call_tool("greet")).text == "Hello, Ada"
    player = replay(path)
    async with connect(player, on_elicit=on_elicit) as client:
        assert (await client.call_tool("greet")).text == "Hello, Ada"
    player.verify()


@pytest.mark.slow
async def test_a_session_with_a_child_is_named_without_its_folders(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(
        "from trimaran import Server\n"
        "server = Server('child', version='1.0.0')\n"
        "@server.tool\n"
        "def hello() -> str:\n"
        "    return 'hi'\n"
        "server.run()\n"
    )
    command = [sys.executable, str(script)]
    path = tmp_path / "session.jsonl"
    with record(path, target=command) as tap:
        async with connect(command, tap=tap) as client:
            assert (await client.call_tool("hello")).text == "hi"
    assert json.loads(path.read_text().splitlines()[0])["target"] == f"{Path(sys.executable).name} child.py"
    player = replay(path)
    async with connect(player) as client:
        assert (await client.call_tool("hello")).text == "hi"
    player.verify()


@both_eras
async def test_a_session_over_http_plays_without_http(server: Server, era: Any, tmp_path: Path) -> None:
    from trimaran.serve import HttpServer

    path = tmp_path / "session.jsonl"
    async with HttpServer(server, port=0) as http:
        with record(path, target=http.url) as tap:
            async with connect(http.url, era=era, tap=tap) as client:
                assert await talk(client) == EXPECTED
    player = replay(path)
    async with connect(player) as client:
        assert client.era == era
        assert await talk(client) == EXPECTED
    player.verify()


async def test_a_client_that_differs_from_the_cassette_hears_where(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    with record(path) as tap:
        async with connect(server, tap=tap) as client:
            await client.call_tool("add", {"a": 2, "b": 3})
    player = replay(path)
    async with connect(player, retries=0, timeout=2) as client:
        with pytest.raises((ConnectionLost, ConnectFailed), match=r"recorded was tools/call \(add\)"):
            await client.call_tool("add", {"a": 2, "b": 4})
    with pytest.raises(AssertionError, match=r'-      "b": 3'):
        player.verify()
