"""Servers that say odd things about themselves: what can be read is kept, and none of it hides the rest."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from trimaran import connect
from trimaran.errors import CallError, Unsupported

pytestmark = pytest.mark.slow

ODD = Path(__file__).parents[2] / "support" / "odd_server.py"


def server(**answers: Any) -> list[str]:
    by_method = {name.replace("__", "/"): answer for name, answer in answers.items()}
    return [sys.executable, "-S", str(ODD), json.dumps(by_method)]


def welcome(**changes: Any) -> dict[str, Any]:
    usual = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "prompts": {}},
        "serverInfo": {"name": "odd", "version": "1.0.0"},
    }
    return {key: value for key, value in {**usual, **changes}.items() if value is not ...}


@pytest.mark.parametrize(
    ("changes", "name", "version"),
    [
        ({"serverInfo": {"name": "odd"}}, "odd", ""),
        ({"serverInfo": {"name": "odd", "version": 2}}, "odd", ""),
        ({"serverInfo": {"name": "odd", "version": "1", "icons": "no"}}, "odd", "1"),
        ({"serverInfo": None}, None, None),
        ({"serverInfo": ...}, None, None),
        ({"serverInfo": ["odd"]}, None, None),
    ],
)
async def test_a_server_may_say_little_about_itself(changes: Any, name: str | None, version: str | None) -> None:
    async with connect(server(initialize=welcome(**changes))) as client:
        info = client.server_info
        assert (info and info.name, info and info.version) == (name, version)
        assert len(await client.list_tools()) == 1


@pytest.mark.parametrize("instructions", [None, 5, ["a"], {"a": 1}])
async def test_instructions_that_are_no_text_are_none(instructions: Any) -> None:
    async with connect(server(initialize=welcome(instructions=instructions))) as client:
        assert client.instructions is None


@pytest.mark.parametrize("capabilities", [None, ..., [], "all"])
async def test_a_server_that_does_not_say_what_it_offers_may_be_asked(capabilities: Any) -> None:
    """R192 refuses what was not advertised; here nothing can be told either way."""
    async with connect(server(initialize=welcome(capabilities=capabilities))) as client:
        assert [tool.name for tool in await client.list_tools()] == ["add"]
        with pytest.raises(CallError, match="Method not found"):
            await client.list_resource_templates()


async def test_one_that_says_so_may_not() -> None:
    """R192."""
    async with connect(server(initialize=welcome(capabilities={}))) as client:
        with pytest.raises(Unsupported):
            await client.list_tools()


async def test_a_server_without_ping_lives() -> None:
    async with connect(server()) as client:
        await client.ping()


TOOLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an icon without an address": ({"icons": [{"mimeType": "image/png"}]}, {"icons": None}),
    "a description that is none": ({"description": 5, "title": ["x"]}, {"description": None, "title": None}),
    "what is no object": ({"execution": "none", "_meta": 1}, {"execution": None, "meta": None}),
}


@pytest.mark.parametrize("name", TOOLS)
async def test_a_field_that_cannot_be_read_hides_no_tool(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """P32."""
    fields, read = TOOLS[name]
    tool = {"name": "add", "inputSchema": {"type": "object"}, **fields}
    with caplog.at_level(logging.WARNING, "trimaran.client"):
        async with connect(server(tools__list={"tools": [tool, {"name": 7}]})) as client:
            (found,) = await client.list_tools_all()
    assert found.name == "add"
    assert {key: getattr(found, key) for key in read} == read
    assert "a field was left out" in caplog.text
    assert "an item was dropped" in caplog.text


async def test_a_list_that_is_null_is_empty() -> None:
    async with connect(server(tools__list={"tools": None, "nextCursor": None})) as client:
        assert await client.list_tools_all() == []
