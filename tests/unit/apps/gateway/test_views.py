from __future__ import annotations

import json
from typing import Any

import pytest

from trimaran import Server, connect
from trimaran.errors import ConfigError, Error
from trimaran.serve import HttpServer

from .conftest import child, fetch, gateway_of, machine, read, remote, url_of
from .test_call_control import KEYS

pytestmark = pytest.mark.slow

VIEW = """
[view.harbour]
servers = ["boats", "sea"]
tools = ["mcp__boats__sa*", "depth"]
instructions = "What the harbour master needs."
[view.harbour.transforms.boats.sail]
name = "set_sail"
description = "Leave the harbour."
arguments = { boat = { name = "vessel" } }
"""


def sea(*tools: str) -> Server:
    server = Server("sea")
    for tool in tools or ("depth", "waves"):

        async def measure() -> int:
            return 3

        server.add_tool(measure, name=tool)
    return server


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_view_shows_a_part_of_the_servers_in_its_own_words(era: Any) -> None:
    async with HttpServer(sea(), port=0) as http:
        async with gateway_of(child("boats") + remote("sea", http.url) + VIEW) as gateway:
            async with connect(url_of(gateway, "/views/harbour/mcp"), era=era) as client:
                tools = {tool.name: tool for tool in await client.list_tools_all()}
                assert set(tools) == {"boats_set_sail", "sea_depth"}
                assert tools["boats_set_sail"].description == "Leave the harbour."
                assert client.instructions == "What the harbour master needs."
                assert (await client.call_tool("boats_set_sail", {"vessel": "Ida"})).data == "Ida sails"
            assert gateway.report_rules() == []


async def test_rules_are_about_the_servers_own_tools_whatever_a_view_calls_them() -> None:
    rules = '[permissions]\ndeny = [{ pattern = "mcp__boats__sail(Titanic)", reason = "Too much ice." }]\n'
    text = child("boats") + remote("sea", "http://127.0.0.1:9/mcp") + VIEW + rules
    async with gateway_of(text) as gateway, connect(url_of(gateway, "/views/harbour/mcp")) as client:
        result = await client.call_tool("boats_set_sail", {"vessel": "Titanic"})
        assert result.is_error
        assert result.content[0].text == "you may not use mcp__boats__sail here. Too much ice."  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_view_is_for_those_it_names() -> None:
    text = child("boats") + KEYS + '[view.crew]\nservers = ["boats"]\nto = ["group:crew"]\nprefix = false\n'
    async with gateway_of(text) as gateway:
        url = url_of(gateway, "/views/crew/mcp")
        async with connect(url, headers={"X-API-Key": "ann-key-123"}) as ann:
            assert (await ann.call_tool("sail", {"boat": "Ida"})).data == "Ida sails"
        with pytest.raises(Error, match="this view is not for you"):
            await connect(url, headers={"X-API-Key": "bob-key-123"}).open()


async def test_a_pattern_of_a_view_that_matches_nothing_is_reported() -> None:
    text = child("boats") + '[view.a]\nservers = ["boats"]\ntools = ["sail", "fly_*"]\n'
    async with gateway_of(text) as gateway:
        assert gateway.report_rules() == ["view.a.tools: 'fly_*' matches no tool of boats"]


async def test_two_tools_with_one_name_are_an_error_that_names_both() -> None:
    async with HttpServer(sea("b_c"), port=0) as first, HttpServer(sea("c"), port=0) as second:
        async with gateway_of(remote("a", first.url) + remote("a_b", second.url)) as gateway:
            health = json.loads((await fetch(url_of(gateway, "/health")))[1])
            (problem,) = health["problems"]
            assert "'a'" in problem
            assert "'a_b'" in problem
            assert "'a_b_c'" in problem


async def test_two_resources_with_one_uri_are_named_and_the_first_server_serves_it() -> None:
    servers = [sea("sail"), sea("sail")]
    for server, text in zip(servers, ("calm", "storm"), strict=True):
        server.add_resource("sea://state", lambda text=text: text)
    async with HttpServer(servers[0], port=0) as first, HttpServer(servers[1], port=0) as second:
        async with gateway_of(remote("north", first.url) + remote("south", second.url)) as gateway:
            (problem,) = json.loads((await fetch(url_of(gateway, "/health")))[1])["problems"]
            assert "'north'" in problem
            assert "'south'" in problem
            for path, text in (("/mcp", "calm"), ("/servers/north/mcp", "calm"), ("/servers/south/mcp", "storm")):
                async with connect(url_of(gateway, path)) as client:
                    assert (await client.read_resource("sea://state")).text == text


async def test_the_tables_of_a_server_say_how_every_endpoint_shows_it() -> None:
    text = child("boats") + 'include = ["sail", "sink"]\n[server.boats.tools.sink]\nname = "scuttle"\n'
    async with gateway_of(text) as gateway:
        async with connect(gateway.url) as client:
            assert {tool.name for tool in await client.list_tools_all()} == {"boats_sail", "boats_scuttle"}
        async with connect(url_of(gateway, "/servers/boats/mcp")) as client:
            assert {tool.name for tool in await client.list_tools_all()} == {"sail", "scuttle"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[view.a]\nservers = ["baots"]', r"view.a.servers: there is no server 'baots'; did you mean .*boats"),
        ("[view.a]\n", r"view.a: Object missing required field `servers`"),
        ('[view."a b"]\nservers = []', "a view has a name of letters"),
        ('[view.a]\nservers = ["boats"]\nto = ["ann"]', "'ann' is not a caller"),
        ('[view.a]\nservers = ["boats"]\ntransforms.boats.sail.nmae = "x"', "did you mean .*name"),
        ('[view.a]\nservers = ["boats"]\nto = ["user:ann"]', "callers are not asked who they are"),
    ],
)
async def test_a_view_that_cannot_be_meant_stops_the_load(text: str, message: str) -> None:
    from trimaran.apps.gateway.gateway import Gateway

    with pytest.raises(ConfigError, match=message):
        Gateway(read(child("boats") + text), port=0, machine=machine())
