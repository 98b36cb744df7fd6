"""The client the official conformance suite is run against, once per scenario: `client.py [--pin] URL`.

The suite starts a mock server, names the scenario in MCP_CONFORMANCE_SCENARIO and judges by what reaches the mock. One
client does for all: it offers everything a server may ask for, and finds the era by probing. With `--pin` it speaks the
revision in MCP_CONFORMANCE_PROTOCOL_VERSION and tries no other.

Written by the public API alone. It says "done" last: the suite itself does not mind a client that fails or hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from trimaran import Client, connect


async def list_tools(client: Client) -> None:
    await client.list_tools()


async def shake_hands(client: Client) -> None:
    # Some mocks answer what they do not offer; `list_tools` would rightly refuse to ask them.
    await client.request("tools/list")


async def add_numbers(client: Client) -> None:
    await client.list_tools()
    result = await client.call_tool("add_numbers", {"a": 5, "b": 3})
    assert result.text == "The sum of 5 and 3 is 8"


async def accept_defaults(client: Client) -> None:
    await client.list_tools()
    result = await client.call_tool("test_client_elicitation_defaults")
    assert result.text.startswith("Elicitation completed")


async def come_back_for_result(client: Client) -> None:
    await client.list_tools()
    result = await client.call_tool("test_reconnection")
    assert result.text == "Reconnection test completed successfully"


async def introduce_ourselves(client: Client) -> None:
    await client.request("tools/list")
    await client.request("tools/call", {"name": "anything"})


async def send_standard_headers(client: Client) -> None:
    for tool in await client.list_tools():
        await client.call_tool(tool.name)
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name)
    # This revision has no handshake, yet the mock looks for the header on its two messages as well.
    await client.request("initialize", {})
    await client.notify("notifications/initialized")


async def mirror_arguments(client: Client) -> None:
    await client.list_tools()
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def call_what_is_listed(client: Client) -> None:
    tools = await client.list_tools()
    for tool in tools:
        await client.call_tool(tool.name, {"region": "eu"})
    assert [tool.name for tool in tools] == ["valid_tool"]


async def keep_rounds_apart(client: Client) -> None:
    names = ("echo_state", "unrelated", "no_state", "no_result_type")
    results = await asyncio.gather(*(client.call_tool(f"test_mrtr_{name}") for name in names))
    assert [r.text for r in results] == ["echo-state-ok", "unrelated-ok", "no-state-ok", "no-result-type-test-ok"]


async def return_schema(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    await client.call_tool("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": shake_hands,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": accept_defaults,
    "sse-retry": come_back_for_result,
    "request-metadata": introduce_ourselves,
    "http-standard-headers": send_standard_headers,
    "http-custom-headers": mirror_arguments,
    "http-invalid-tool-headers": call_what_is_listed,
    "sep-2322-client-request-state": keep_rounds_apart,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": return_schema,
}


async def agree(ask: Any) -> Any:
    """Say yes to what is asked, and leave what has a default to it."""
    return ask.accept(dict.fromkeys(ask.schema["properties"].keys() - ask.defaults.keys(), True))


async def think(ask: Any) -> str:
    return "Paris"


async def main(url: str, *, pin: bool) -> None:
    scenario = SCENARIOS.get(os.environ["MCP_CONFORMANCE_SCENARIO"])
    if scenario is None:
        sys.exit("this client knows nothing of that scenario")
    version = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] if pin else None
    async with connect(url, version=version, on_elicit=agree, on_sample=think, roots=["."]) as client:
        await scenario(client)
    print("done")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("url")
    options = parser.parse_args()
    asyncio.run(main(options.url, pin=options.pin))
