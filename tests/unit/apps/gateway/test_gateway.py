from __future__ import annotations

from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import Server, connect
from trimaran.errors import CallError, ConfigError
from trimaran.serve import HttpServer

from .conftest import ODD_SERVER, child, gateway_of, remote, url_of

pytestmark = pytest.mark.slow


def sea() -> Server:
    server = Server("sea", version="2.0.0")

    @server.tool
    async def depth(place: str) -> int:
        return len(place)

    return server


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_all_servers_are_one_catalog_and_each_is_there_by_itself(era: Any) -> None:
    async with HttpServer(sea(), port=0) as http:
        text = child("boats") + remote("sea", http.url)
        async with gateway_of(text) as gateway:
            async with connect(gateway.url, era=era) as client:
                names = {tool.name for tool in await client.list_tools_all()}
                assert {"boats_sail", "boats_captain", "sea_depth"} <= names
                assert (await client.call_tool("boats_sail", {"boat": "Ida"})).data == "Ida sails"
                assert (await client.call_tool("sea_depth", {"place": "bay"})).data == 3
                assert [prompt.name for prompt in await client.list_prompts_all()] == ["boats_plan"]
                assert (await client.read_resource("boat://crew")).contents[0].text == "Ann, Bob"  # pyright: ignore[reportAttributeAccessIssue]
                assert "Boats and their crews." in (client.instructions or "")
            async with connect(url_of(gateway, "/servers/sea/mcp"), era=era) as client:
                assert [tool.name for tool in await client.list_tools_all()] == ["depth"]
                assert (await client.call_tool("depth", {"place": "bay"})).data == 3


async def test_a_server_of_an_older_revision_is_served_to_both_eras() -> None:
    async with gateway_of(child("odd", str(ODD_SERVER))) as gateway:
        for era in ("modern", "legacy"):
            async with connect(url_of(gateway, "/servers/odd/mcp"), era=era) as client:
                assert (await client.call_tool("add", {"a": 1})).content[0].text == "3"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_question_in_the_middle_of_a_call_reaches_the_caller(era: Any) -> None:
    async def answer(question: Any) -> dict[str, str]:
        return {"name": "Ann"}

    async with gateway_of(child("boats")) as gateway, connect(gateway.url, era=era, on_elicit=answer) as client:
        assert (await client.call_tool("boats_captain")).data == "captain Ann"


async def test_a_server_that_cannot_be_reached_at_start_costs_its_own_tools_only() -> None:
    text = child("boats") + remote("gone", "http://127.0.0.1:9/mcp") + '[server.typo]\ncommand = "/no/such/program"\n'
    async with gateway_of(text) as gateway:
        async with connect(gateway.url) as client:
            assert (await client.call_tool("boats_sail", {"boat": "Ida"})).data == "Ida sails"
            names = {tool.name for tool in await client.list_tools_all()}
            assert all(name.startswith("boats_") for name in names)
        async with connect(url_of(gateway, "/servers/gone/mcp")) as client:
            assert client.server_info is not None
            assert client.server_info.name == "gone"


async def test_a_server_that_dies_mid_call_is_a_typed_error_and_comes_back() -> None:
    text = child("boats") + child("others", "boats.py", "others")
    async with gateway_of(text) as gateway, connect(gateway.url) as client:
        with pytest.raises(CallError) as raised:
            await client.call_tool("boats_die")
        assert raised.value.data == {"upstream": "boats", "kind": "lost"}
        assert (await client.call_tool("others_sail", {"boat": "Eva"})).data == "Eva sails"

        async def sails() -> bool:
            try:
                return (await client.call_tool("boats_sail", {"boat": "Ida"})).data == "Ida sails"
            except CallError as error:
                assert error.data["upstream"] == "boats"  # pyright: ignore[reportIndexIssue,reportOptionalSubscript,reportArgumentType,reportCallIssue]
                return False

        await until(sails, "the child is started again")


async def test_an_endpoint_that_is_not_there_is_a_404_that_names_one_that_is() -> None:
    async with gateway_of("") as gateway:
        with pytest.raises(CallError, match="nothing is served at /servers/none/mcp; the endpoint is /mcp"):
            await soon(connect(url_of(gateway, "/servers/none/mcp")).open())


def test_a_key_that_is_not_known_is_named_with_those_that_are() -> None:
    from trimaran.apps.gateway.settings import read_settings

    from .conftest import machine, read

    with pytest.raises(ConfigError, match=r"mcp.toml: gateway: .*`stoer`.*known here are public_url, store"):
        read_settings(read('[gateway]\nstoer = "redis://localhost"'), machine())
    with pytest.raises(ConfigError, match=r"gateway.limit\[0\].rate: Expected `str`"):
        read_settings(read('[[gateway.limit]]\ntools = "mcp__a__b"\nrate = 3'), machine())


def test_a_public_address_needs_to_know_who_may_call() -> None:
    from trimaran.apps.gateway.gateway import Gateway

    from .conftest import read

    with pytest.raises(ConfigError, match=r"lend its credentials"):
        Gateway(read(""), host="0.0.0.0", port=0)
