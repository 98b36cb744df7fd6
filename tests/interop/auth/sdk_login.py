# pyright: reportMissingImports=false
"""The official Python SDK's client, run by `.tools/peers/sdk`, logs in and asks who it is: sdk_login.py ERA URL.

It writes one JSON line per thing it wants: `{"open": URL}`, whereupon it reads the URL that the browser was sent back to, and
`{"result": ...}` last.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata


class Memory:
    tokens: Any = None
    client_info: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client_info

    async def set_client_info(self, client_info: Any) -> None:
        self.client_info = client_info


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def open_page(url: str) -> None:
    say(open=url)


async def come_back() -> AuthorizationCodeResult:
    line = await anyio.to_thread.run_sync(sys.stdin.readline)
    found = dict(parse_qsl(urlsplit(line.strip()).query))
    return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))


async def main(era: str, url: str) -> None:
    metadata = OAuthClientMetadata(
        redirect_uris=["http://127.0.0.1:7777/callback"],
        client_name="visitor",
        token_endpoint_auth_method="none",
        application_type="native",
    )
    login = OAuthClientProvider(url, metadata, Memory(), open_page, come_back)
    async with (
        httpx2.AsyncClient(auth=login, timeout=20) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        first = await client.call_tool("whoami", {})
        second = await client.call_tool("write", {"text": "hello"})
        say(result={"tools": tools, "whoami": first.structured_content, "write": second.structured_content})


anyio.run(main, sys.argv[1], sys.argv[2])
