from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import Server, connect
from trimaran.errors import CallError, ConfigError
from trimaran.serve import HttpServer

from .conftest import ODD_SERVER, ROOT, child, gateway_of, remote, url_of

pytestmark = pytest.mark.slow

# Notifications by the thousand, and then a message that is too long.
FLOOD = """
import sys, json
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if id is None: continue
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}}
    elif method == "tools/list":
        broken = {"type": "object", "properties": {"a": {"$ref": "#/$defs/nowhere"}}}
        result = {"tools": [{"name": "pour", "inputSchema": {"type": "object"}}, {"name": "lie", "inputSchema": broken},
                            {"name": "half", "inputSchema": {"type": "object"}, "outputSchema": broken}]}
    elif method == "tools/call":
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 200}}
        for _ in range(5000):
            print(json.dumps(note))
        sys.stdout.write("[" + "1," * (10 << 20) + "1]\\n")
        sys.stdout.flush()
        continue
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
"""


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
            for server in ("gone", "typo"):
                with pytest.raises(CallError) as away:
                    await client.call_tool(f"{server}_sail")
                assert away.value.data == {"upstream": server, "kind": "unreachable"}
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[gateway]\nstoer = "a"',
            "mcp.toml:2: gateway.stoer: this key is not known; did you mean 'store'? known are public_url, ",
        ),
        ('[[gateway.limit]]\ntools = "mcp__a__b"\nrate = 3', "mcp.toml:3: gateway.limit[0].rate: Expected `str`"),
        (
            '[[gateway.limit]]\ntools = "mcp__a__b"\nrate = "1/hour"\n[[gateway.limit]]\ntools = "mcp__a__b"\nrate = "9/minut"',
            'mcp.toml:6: gateway.limit[1].rate: it must be a rate like "100/minute"',
        ),
        ('[[gateway.limit]]\ntools = "a("\nrate = "1/hour"', "mcp.toml:2: gateway.limit[0].tools: "),
        ('[gateway.rate_limit]\n\naddress = "many"', "mcp.toml:3: gateway.rate_limit.address: it must be a rate"),
        ('[gateway]\nadmins = ["ann"]', "mcp.toml:2: gateway.admins: 'ann' is not a caller"),
        ('[gateway]\nstore = "${NOWHERE}"', "mcp.toml:2: gateway.store: "),
        ("[gateway.server.boats]\nmax_connections = 1", "mcp.toml:1: gateway.server.boats: there is no server 'boats'"),
        (
            '[view.v]\nservers = []\ntoolz = ["a"]',
            "mcp.toml:3: view.v.toolz: this key is not known; did you mean 'tools'?",
        ),
        ('[view.v]\nservers = ["none"]', "mcp.toml:2: view.v.servers: there is no server 'none'"),
        ('[view.v]\nservers = []\nto = ["dev"]', "mcp.toml:3: view.v.to: 'dev' is not a caller"),
        (
            '[server.a]\ncommand = "a"\n[view.v]\nservers = ["a"]\n[view.v.transforms.a.b]\nnmae = "c"',
            "mcp.toml:6: view.v.transforms.a.b.nmae: this key is not known; did you mean 'name'?",
        ),
        ("[view.'a b']\nservers = []", "mcp.toml:1: view.a b: a view has a name of letters"),
    ],
)
def test_a_mistake_in_the_configuration_is_named_with_its_line(text: str, message: str) -> None:
    from trimaran.apps.gateway.settings import read_settings, read_views

    from .conftest import machine, read

    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        read_settings(read(text), machine())
        read_views(read(text), machine())


def test_a_public_address_needs_to_know_who_may_call() -> None:
    from trimaran.apps.gateway.gateway import Gateway

    from .conftest import read

    with pytest.raises(ConfigError, match=r"lend its credentials"):
        Gateway(read(""), host="0.0.0.0", port=0)


async def test_the_example_configuration_serves_what_it_says() -> None:
    text = (ROOT / "examples" / "gateway.toml").read_text()
    text = text.replace('command = "python"', f'command = "{sys.executable}"\nstartup_timeout = 30')
    text = text.replace("examples/calculator.py", str(ROOT / "examples" / "calculator.py"))
    text = text.replace('audit = "gateway-audit.jsonl"', "")
    async with gateway_of(text, variables={"TEAM_KEY": "a-key-of-the-team"}) as gateway:
        async with connect(gateway.url, headers={"X-API-Key": "a-key-of-the-team"}) as client:
            assert [tool.name for tool in await client.list_tools_all()] == ["calculator_add"]
            assert (await client.call_tool("calculator_add", {"a": 1, "b": 2})).data == 3
        assert gateway.report_rules() == []


async def test_an_upstream_that_stalls_or_floods_costs_its_own_callers_only(tmp_path: Path) -> None:
    flood = tmp_path / "flood.py"
    flood.write_text(FLOOD)
    text = child("boats") + 'timeout = "1s"\n' + child("flood", str(flood)) + child("calm")
    async with gateway_of(text) as gateway, connect(gateway.url) as client:
        stalled = asyncio.ensure_future(client.call_tool("boats_wait", {"file": str(tmp_path / "never")}))
        flooded = asyncio.ensure_future(client.call_tool("flood_pour"))
        for _ in range(20):
            assert (await soon(client.call_tool("calm_sail", {"boat": "Ida"}))).data == "Ida sails"
        with pytest.raises(CallError) as raised:
            await soon(stalled)
        assert raised.value.data == {"upstream": "boats", "kind": "timed_out"}
        assert "boats did not answer within" in raised.value.message
        assert ("error", "timed_out") in {(call.status, call.kind) for call in gateway.controls.recent}
        with pytest.raises(CallError) as raised:
            await soon(flooded)
        data: Any = raised.value.data
        assert data["upstream"] == "flood"
        assert (await client.call_tool("calm_sail", {"boat": "Ida"})).data == "Ida sails"


def test_processes_that_share_a_store_need_the_same_keys() -> None:
    from trimaran.apps.gateway.gateway import Gateway

    from .conftest import read

    with pytest.raises(ConfigError, match="gateway.secret_keys is missing"):
        Gateway(read('[gateway]\nstore = "redis://localhost"\n'), port=0)
