"""The client the official conformance suite is run against, once per scenario: `client.py [--pin] URL`.

The suite starts a mock server, names the scenario in MCP_CONFORMANCE_SCENARIO and judges by what reaches the mock. One
client does for all: it offers everything a server may ask for, and finds the era by probing. With `--pin` it speaks the
revision in MCP_CONFORMANCE_PROTOCOL_VERSION and tries no other. In the scenarios named `auth/...` it logs in first, by the
grant the scenario is about; where the mock sets a trap, it must say that it refused.

Written by the public API alone. It says "done" last: the suite itself does not mind a client that fails or hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from trimaran import Client, connect, errors
from trimaran.ext import SKILLS_CAPABILITY, SkillsClient, SkillTampered
from trimaran.oauth import ClientCredentials, EnterpriseManaged, OAuth, WorkloadIdentity

CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"  # what the suite expects as a client's URL


def context() -> dict[str, Any]:
    """What the suite tells about the scenario."""
    return json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


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
    for call in context()["toolCalls"]:
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


async def list_skills(client: Client) -> None:
    [skill] = await SkillsClient(client).list()
    assert skill.name == "pdf-processing"


async def load_skill(client: Client) -> None:
    skills = SkillsClient(client)
    [skill] = await skills.list()
    await skills.read(skill)
    await skills.read(skill, "references/FORMS.md")


async def call_test_tool(client: Client) -> None:
    [tool] = await client.list_tools()
    assert (await client.call_tool(tool.name)).text == "test"


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
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": load_skill,
    "sep-2640-client-verify-frontmatter": load_skill,
    "sep-2640-client-verify-size": load_skill,
}


REFUSED = {
    "auth/iss-normalized",
    "auth/iss-supported-missing",
    "auth/iss-unexpected",
    "auth/iss-wrong-issuer",
    "auth/metadata-issuer-mismatch",
    "auth/resource-mismatch",
    "auth/scope-retry-limit",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-frontmatter",
    "sep-2640-client-verify-size",
}
"""Where the right thing to do is to give up, and to say so."""


def consent(url: str) -> str:
    """The person at the browser: the mock sends them straight back, to a place where nobody needs to listen."""
    there = urlsplit(url)
    browser = HTTPConnection(there.netloc, timeout=10)
    try:
        browser.request("GET", f"{there.path}?{there.query}")
        return browser.getresponse().headers["location"]
    finally:
        browser.close()


def credentials(scenario: str) -> Any:
    """What `connect` is given as `auth`."""
    given = context()
    match scenario.removeprefix("auth/"):
        case "client-credentials-jwt":
            return ClientCredentials(
                client_id=given["client_id"],
                private_key=given["private_key_pem"],
                algorithm=given["signing_algorithm"],
            )
        case "client-credentials-basic":
            return ClientCredentials(client_id=given["client_id"], client_secret=given["client_secret"])
        case "enterprise-managed-authorization" | "cross-app-access-complete-flow":
            return EnterpriseManaged(
                client_id=given["client_id"],
                client_secret=given["client_secret"],
                idp_token_endpoint=given["idp_token_endpoint"],
                idp_client_id=given["idp_client_id"],
                subject_token=given["idp_id_token"],
            )
        case "wif-jwt-bearer":
            return WorkloadIdentity(assertion=given["valid_jwt"])
        case "pre-registration":
            return OAuth(client_id=given["client_id"], client_secret=given["client_secret"], login=consent)
        case "dpop" | "dpop-nonce":
            return OAuth(login=consent, dpop=True)
        case _:
            return OAuth(client_metadata_url=CLIENT_METADATA, login=consent)


async def agree(ask: Any) -> Any:
    """Say yes to what is asked, and leave what has a default to it."""
    return ask.accept(dict.fromkeys(ask.schema["properties"].keys() - ask.defaults.keys(), True))


async def think(ask: Any) -> str:
    return "Paris"


async def main(url: str, *, pin: bool) -> None:
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    guarded = name.startswith("auth/")
    scenario = call_test_tool if guarded else SCENARIOS.get(name)
    if scenario is None:
        sys.exit("this client knows nothing of that scenario")
    version = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] if pin else None
    auth = credentials(name) if guarded else None
    options: dict[str, Any] = {"on_elicit": agree, "on_sample": think, "roots": ["."]}
    if name.startswith("sep-2640-"):
        options["capabilities"] = SKILLS_CAPABILITY
    try:
        async with connect(url, version=version, auth=auth, **options) as client:
            await scenario(client)
    except (errors.Unauthorized, SkillTampered) as error:
        if name not in REFUSED:
            raise
        print(f"refused, as it should be: {error}", file=sys.stderr)
    else:
        assert name not in REFUSED, "this should have been refused"
    print("done")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("url")
    options = parser.parse_args()
    asyncio.run(main(options.url, pin=options.pin))
