"""The middleware of a mounted server runs around what that server serves, and around nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran import Server, ToolError, connect


def traced(name: str, log: list[str]) -> Server:
    """A server with one of each, whose middleware writes down what it sees."""
    server = Server(name, version="1")

    @server.middleware
    async def trace(call: Any, call_next: Any) -> Any:
        log.append(f"{name} {call.method} {getattr(call.params, 'name', None) or getattr(call.params, 'uri', '')}")
        return await call_next(call)

    @server.tool
    async def today(city: str) -> str:
        return f"{city}: rain"

    @server.prompt
    async def ask(city: str) -> str:
        return f"How is {city}?"

    @server.resource(f"{name}://stations")
    async def stations() -> str:
        return "Bergen"

    @server.resource(name + "://station/{id}")
    async def station(id: str) -> str:
        return id

    return server


def only(log: list[str], name: str) -> list[str]:
    """What the middleware of one server saw of calls."""
    methods = ("tools/call", "prompts/get", "resources/read")
    return [line for line in log if line.startswith(name) and line.split()[1] in methods]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_it_sees_calls_of_its_own_entries_by_its_own_names(era: Any) -> None:
    log: list[str] = []
    inner, other, outer = traced("inner", log), traced("other", log), Server("outer", version="1")
    outer.mount(inner, "weather")
    outer.mount(other, "other")

    @outer.tool
    async def own() -> str:
        return "own"

    async with connect(outer, era=era) as client:
        assert (await client.call_tool("weather_today", {"city": "Bergen"})).data == "Bergen: rain"
        await client.get_prompt("weather_ask", {"city": "Bergen"})
        assert (await client.read_resource("inner://stations")).text == "Bergen"
        assert (await client.read_resource("inner://station/7")).text == "7"
        await client.call_tool("own")
        await client.call_tool("other_today", {"city": "Oslo"})
    assert only(log, "inner") == [
        "inner tools/call today",
        "inner prompts/get ask",
        "inner resources/read inner://stations",
        "inner resources/read inner://station/7",
    ]
    assert only(log, "other") == ["other tools/call today"]


async def test_the_outer_one_is_outermost_and_mounts_may_be_nested() -> None:
    log: list[str] = []
    inner, middle, outer = traced("inner", log), traced("middle", log), traced("outer", log)
    middle.mount(inner, "in")
    outer.mount(middle, "mid")
    async with connect(outer) as client:
        log.clear()
        await client.call_tool("mid_in_today", {"city": "Bergen"})
    calls = [line for line in log if "tools/call" in line]
    assert calls == ["outer tools/call mid_in_today", "middle tools/call in_today", "inner tools/call today"]


async def test_it_may_answer_refuse_and_change_the_result() -> None:
    inner, outer = Server("inner", version="1"), Server("outer", version="1")
    outer.mount(inner, "in")

    @inner.tool
    async def add(a: int, b: int) -> int:
        return a + b

    # Declared after the mount: mounting is live.
    @inner.middleware("tools/call")
    async def guard(call: Any, call_next: Any) -> Any:
        if b"13" in bytes(call.params.arguments):
            raise ToolError("unlucky")
        result = await call_next(call)
        result.meta = {"example.com/seen": call.params.name}
        return result

    async with connect(outer) as client:
        result = await client.call_tool("in_add", {"a": 1, "b": 2})
        assert (result.data, result.meta["example.com/seen"]) == (3, "add")
        refused = await client.call_tool("in_add", {"a": 13, "b": 2}, raise_on_error=False)
        assert refused.is_error
        assert refused.text == "unlucky"
        await outer.unmount(inner)
        assert outer.list_tools() == []


async def test_a_server_that_is_mounted_twice_sees_a_call_once() -> None:
    log: list[str] = []
    inner, outer = traced("inner", log), Server("outer", version="1")
    outer.mount(inner, "one")
    outer.mount(inner, "two")
    async with connect(outer) as client:
        log.clear()
        await client.call_tool("two_today", {"city": "Bergen"})
    assert only(log, "inner") == ["inner tools/call today"]
