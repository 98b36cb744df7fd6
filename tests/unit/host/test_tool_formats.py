"""The tools that a host offers to models: made once for each catalog, nobody's to change, and told when a provider minds."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from tests.support.until import soon

import trimaran.format.providers
from trimaran import Host, Server

FORMATS = ["anthropic", "openai", "openai-responses", "gemini"]


def make_server(count: int = 2, description: str = "Do it.") -> Server:
    server = Server("many", version="1", page_size=1000)
    schema = {"type": "object", "properties": {"StartTime<": {"type": "string"}, "n": {"type": "integer"}}}

    def echo(**arguments: Any) -> dict[str, Any]:
        return arguments

    for number in range(count):
        server.add_tool(echo, name=f"tool_{number}", description=description, input_schema=schema)
    return server


def make_host(server: Server, **options: Any) -> Host:
    defaults: dict[str, Any] = {"environ": {}, "allow": ["*"]}
    return Host({"s": server}, **{**defaults, **options})


def call_in(format: str, name: str, arguments: dict[str, Any]) -> Any:
    return {
        "anthropic": {"type": "tool_use", "id": "c", "name": name, "input": arguments},
        "openai": {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}},
        "openai-responses": {"type": "function_call", "call_id": "c", "name": name, "arguments": arguments},
        "gemini": {"functionCall": {"name": name, "args": arguments}},
    }[format]


@pytest.mark.parametrize("format", FORMATS)
async def test_a_call_under_a_name_that_was_changed_reaches_the_tool_under_its_own(format: Any) -> None:
    """R220, R223."""
    async with make_host(make_server()) as host:
        declared: Any = host.tools(format=format)[0]
        held = declared.get("function", declared)
        schema = held.get("input_schema") or held.get("parameters") or held["parametersJsonSchema"]
        assert ("StartTime_" if format == "anthropic" else "StartTime<") in schema["properties"]
        call = host.from_call(call_in(format, held["name"], dict.fromkeys(schema["properties"], "x")), format)
        assert call.arguments == {"StartTime<": "x", "n": "x"}
        sent = host.from_call(call_in(format, held["name"], {next(iter(schema["properties"])): "noon"}), format)
        assert json.loads((await soon(host.call(*sent))).text) == {"StartTime<": "noon"}


async def test_tools_are_converted_once_for_each_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    conversions: list[str] = []
    convert = trimaran.format.providers.to_provider

    def counted(tools: Any, format: str, **options: Any) -> Any:
        conversions.append(format)
        return convert(tools, format, **options)

    monkeypatch.setattr(trimaran.format.providers, "to_provider", counted)
    server, changed = make_server(), asyncio.Event()
    async with make_host(server, on_change=changed.set) as host:
        first = host.tools(format="openai")
        assert host.tools(format="openai") == first
        assert conversions == ["openai"]
        host.tools(format="openai", strict=True)
        host.tools(format="anthropic")
        host.tools(format="anthropic")
        assert conversions == ["openai", "openai", "anthropic"]
        changed.clear()
        server.add_tool(lambda: "new", name="new")
        await soon(changed.wait())
        assert len(host.tools(format="openai")) == 3
        await soon(host.disable("s"))
        assert host.tools(format="openai") == []
        await soon(host.enable("s"))
        assert len(host.tools(format="openai")) == 3


@pytest.mark.parametrize("format", [None, *FORMATS])
async def test_nobody_can_change_what_others_are_offered(format: Any) -> None:
    async with make_host(make_server()) as host:
        mine: Any = host.tools(format=format)
        before = host.tools(format=format)
        held = mine[0] if format is None else mine[0].get("function", mine[0])
        schema: Any = (
            held.input_schema
            if format is None
            else held.get("input_schema") or held.get("parameters") or held["parametersJsonSchema"]
        )
        schema["properties"].clear()
        mine.pop()
        assert host.tools(format=format) == before
        assert json.loads((await soon(host.call("mcp__s__tool_0", {"n": 1}))).text) == {"n": 1}


async def test_more_tools_than_a_provider_takes_and_long_descriptions_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with make_host(make_server(129, "word " * 300)) as host:
        with caplog.at_level(logging.WARNING, "trimaran.host"):
            for _ in range(2):
                assert len(host.tools(format="openai")) == 129
        assert caplog.text.count("129 tools, and at most 128 are taken") == 1
        assert "1500 characters, and some models take at most 1024; it is cut" in caplog.text
        problems = host.problems(format="openai")
        assert len(problems) == 130
        assert host.problems() == []
        assert host.problems(format="anthropic") == []


async def test_a_schema_that_its_provider_would_refuse_is_made_to_fit() -> None:
    """One such tool would cost the whole request."""
    server = Server("branches", version="1")
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    server.add_tool(lambda **arguments: "ok", name="either", input_schema=schema)
    async with make_host(server) as host:
        assert "anyOf" not in host.tools(format="anthropic")[0]["input_schema"]
        assert "anyOf" in host.tools(format="anthropic", fit=None)[0]["input_schema"]
        assert len(host.problems(format="anthropic", fit=None)) == 1
