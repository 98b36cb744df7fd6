# pyright: reportMissingImports=false
"""FastMCP's client, run by `.tools/peers/fastmcp`, logs in and asks who it is: fastmcp_login.py ERA URL.

It speaks as `sdk_login.py` does. A browser and a listener of its own are spared it: the page is visited by whoever reads this.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
from fastmcp import Client
from fastmcp.client.auth import OAuth
from mcp.client.auth import AuthorizationCodeResult

warnings.simplefilter("ignore")  # tokens that are lost when the program ends are what is wanted here


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


class Login(OAuth):
    async def redirect_handler(self, authorization_url: str) -> None:
        say(open=authorization_url)

    async def callback_handler(self) -> AuthorizationCodeResult:
        line = await anyio.to_thread.run_sync(sys.stdin.readline)
        found = dict(parse_qsl(urlsplit(line.strip()).query))
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))


async def main(era: str, url: str) -> None:
    async with Client(url, auth=Login(callback_host="127.0.0.1"), mode=era) as client:
        tools = [tool.name for tool in await client.list_tools()]
        first = await client.call_tool("whoami", {})
        second = await client.call_tool("write", {"text": "hello"})
        say(result={"tools": tools, "whoami": first.structured_content, "write": second.structured_content})


anyio.run(main, sys.argv[1], sys.argv[2])
