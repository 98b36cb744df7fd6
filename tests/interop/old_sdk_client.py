# pyright: reportMissingImports=false
"""The official SDK 1.28 as a client, run by `.tools/peers/sdk-1.28`: `old_sdk_client.py TARGET CALLS`, both JSON.

TARGET is a URL, or a command as a list; CALLS are pairs of a tool and its arguments. Prints one JSON line: the server's name, the
revision, the names of its tools, and for each call its text, whether it failed, and the progress that was reported.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


async def elicit(context: Any, params: Any) -> Any:
    return types.ElicitResult(action="accept", content={"name": "Ann"})


async def use(read: Any, write: Any, calls: list[Any]) -> None:
    async with ClientSession(read, write, elicitation_callback=elicit) as session:
        about = await session.initialize()
        tools = sorted(tool.name for tool in (await session.list_tools()).tools)
        report = {"server": about.serverInfo.name, "revision": about.protocolVersion, "tools": tools, "calls": []}
        for tool, arguments in calls:
            reports: list[float] = []

            async def progress(
                value: float, total: float | None, message: str | None, to: list[float] = reports
            ) -> None:
                to.append(value)

            result = await session.call_tool(tool, arguments, progress_callback=progress)
            report["calls"].append([result.content[0].text, bool(result.isError), reports])
        print(json.dumps(report), flush=True)


async def main() -> None:
    target, calls = (json.loads(word) for word in sys.argv[1:])
    if isinstance(target, str):
        async with streamablehttp_client(target) as (read, write, _):
            await use(read, write, calls)
    else:
        async with stdio_client(StdioServerParameters(command=target[0], args=target[1:])) as (read, write):
            await use(read, write, calls)


if __name__ == "__main__":
    asyncio.run(main())
