"""Middleware: around every call or the methods named, first declared outermost, typed results to look at and change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.memory_peer import MODERN, Peer, texts

from trimaran import CallToolResult, Context, ProtocolError, Server, ToolError, connect
from trimaran.errors import CallError, DeclarationError
from trimaran.types import ListToolsResult


@pytest.fixture
def server() -> Server:
    made = Server("middleware", version="1")
    made.add_tool(lambda: "x", name="a")
    made.add_tool(lambda: "y", name="b")
    made.add_resource("a:b", lambda: "r")
    return made


async def test_the_first_declared_is_the_outermost(server: Server) -> None:
    order: list[str] = []

    def named(name: str) -> Any:
        async def middleware(call: Any, call_next: Any) -> Any:
            order.append(f"{name} in")
            result = await call_next(call)
            order.append(f"{name} out")
            return result

        return middleware

    server.middleware(named("first"))
    server.middleware("tools/call")(named("second"))
    server.middleware(named("third"))
    await server.call_tool("a")
    assert order == ["first in", "second in", "third in", "third out", "second out", "first out"]


async def test_it_goes_around_the_methods_named_and_no_other(server: Server) -> None:
    seen: list[str] = []

    @server.middleware("tools/call", "resources/read")
    async def watch(call: Any, call_next: Any) -> Any:
        seen.append(call.method)
        return await call_next(call)

    async with Peer(server) as peer:
        await peer.modern("tools/list")
        await peer.call("a")
        await peer.modern("resources/read", {"uri": "a:b"})
        await peer.modern("server/discover")
    assert seen == ["tools/call", "resources/read"]


async def test_a_bare_one_goes_around_every_method_in_both_eras(server: Server) -> None:
    seen: list[tuple[str, str]] = []

    @server.middleware
    async def watch(call: Any, call_next: Any) -> Any:
        seen.append((call.method, call.peer.version))
        return await call_next(call)

    async with Peer(server) as peer:
        await peer.modern("server/discover")
        await peer.initialize("2025-06-18")
        await peer.legacy("tools/list")
    assert seen == [("server/discover", MODERN), ("tools/list", "2025-06-18")]


def test_a_method_that_does_not_exist_is_refused(server: Server) -> None:
    with pytest.raises(DeclarationError, match="tools/cal"):
        server.middleware("tools/cal")


async def test_it_sees_typed_params_and_typed_results(server: Server) -> None:
    seen: list[Any] = []

    @server.middleware
    async def watch(call: Any, call_next: Any) -> Any:
        result = await call_next(call)
        seen.append((getattr(call.params, "name", None), type(result)))
        return result

    async with Peer(server) as peer:
        await peer.call("a")
        await peer.modern("tools/list")
    assert seen == [("a", CallToolResult), (None, ListToolsResult)]


async def test_it_may_refuse(server: Server) -> None:
    @server.middleware("tools/call")
    async def refuse(call: Any, call_next: Any) -> Any:
        if call.params.name == "a":
            raise ProtocolError(99, "not today")
        return CallToolResult.error("nor this")

    async with Peer(server) as peer:
        assert (await peer.modern("tools/call", {"name": "a"}))["error"] == {"code": 99, "message": "not today"}
        assert await peer.call("b") == {
            "content": [{"type": "text", "text": "nor this"}],
            "isError": True,
            "resultType": "complete",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "middleware", "version": "1"}},
        }


@pytest.mark.parametrize("version", [MODERN, "2025-11-25", "2025-06-18"])
async def test_it_may_change_a_list_without_changing_it_for_others(server: Server, version: str) -> None:
    """P45: a list may vary by credential."""
    hidden = [True]

    @server.middleware("tools/list")
    async def hide(call: Any, call_next: Any) -> Any:
        result = await call_next(call)
        if hidden:
            result.tools = [t for t in result.tools if t["name"] != "a"]
        return result

    async with Peer(server) as peer:
        if version != MODERN:
            await peer.initialize(version)
        ask = peer.modern if version == MODERN else peer.legacy
        first = (await ask("tools/list"))["result"]
        hidden.clear()
        second = (await ask("tools/list"))["result"]
    assert [t["name"] for t in first["tools"]] == ["b"]
    assert [t["name"] for t in second["tools"]] == ["a", "b"]
    assert ("resultType" in first) == ("ttlMs" in first) == (version == MODERN)


async def test_it_may_answer_in_the_place_of_the_handler(server: Server) -> None:
    @server.middleware("tools/call")
    async def cached(call: Any, call_next: Any) -> Any:
        return CallToolResult.ok("cached")

    assert texts(await server.call_tool("a")) == ["cached"]


async def test_a_result_it_keeps_is_told_to_each_era_in_its_own_words(server: Server) -> None:
    """protocol.md 1.5: a cache in middleware must not leak resultType to a legacy client."""
    kept = CallToolResult.ok("cached")

    @server.middleware("tools/call")
    async def cached(call: Any, call_next: Any) -> Any:
        return kept

    async with Peer(server) as peer:
        assert (await peer.call("a"))["resultType"] == "complete"
        await peer.initialize()
        assert (await peer.legacy("tools/call", {"name": "a"}))["result"] == {
            "content": [{"type": "text", "text": "cached"}]
        }


async def test_it_leaves_values_for_the_handler(server: Server) -> None:
    """R54."""

    @server.middleware
    async def mark(call: Any, call_next: Any) -> Any:
        Context(call, server).assign("user", "ada")
        return await call_next(call)

    @server.tool
    def who(ctx: Context) -> str:
        return ctx.assigns["user"]

    assert texts(await server.call_tool("who")) == ["ada"]


async def test_declared_while_serving_it_counts_from_the_next_call(server: Server) -> None:
    async with Peer(server) as peer:
        assert texts(await peer.call("a")) == ["x"]

        @server.middleware("tools/call")
        async def change(call: Any, call_next: Any) -> Any:
            return CallToolResult.ok("changed")

        assert texts(await peer.call("a")) == ["changed"]


async def test_what_it_raises_by_mistake_is_an_internal_error(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """R50."""

    @server.middleware("tools/call")
    async def broken(call: Any, call_next: Any) -> Any:
        raise ValueError("secret")

    async with Peer(server) as peer:
        with caplog.at_level("ERROR", "trimaran"):
            error = (await peer.modern("tools/call", {"name": "a"}))["error"]
    assert error["code"] == -32603
    assert "secret" not in error["message"]


async def test_a_tool_error_it_raises_is_told_to_the_model(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """R48: raised anywhere on a tool's call, `ToolError` is an isError result with its own words."""

    @server.middleware("tools/call")
    async def budget(call: Any, call_next: Any) -> Any:
        raise ToolError("the budget is spent")

    async with Peer(server) as peer:
        with caplog.at_level("ERROR", "trimaran"):
            message = await peer.modern("tools/call", {"name": "a"})
    assert "the budget is spent" in str(message)


@pytest.mark.slow
async def test_a_tools_own_time_holds_behind_middleware_that_waits() -> None:
    server = Server("x", version="1", request_timeout=0.2)

    @server.middleware
    async def wait(call: Any, call_next: Any) -> Any:
        await asyncio.sleep(0.01)
        return await call_next(call)

    @server.tool(timeout=5)
    async def patient() -> str:
        await asyncio.sleep(0.4)
        return "done"

    @server.tool(timeout=0.05)
    async def hasty() -> str:
        await asyncio.sleep(5)
        return "never"

    async with connect(server) as client:
        assert (await client.call_tool("patient")).data == "done"
        with pytest.raises(CallError, match="took longer than 0.05 s"):
            await client.call_tool("hasty")
