# pyright: reportMissingImports=false
"""Every tool of the server of shapes, listed and called by the official Python SDK, run by a peer's Python.

    shapes_client.py COUNTS ERA COMMAND ARG...

Any version of the SDK from 1.10 on: each holds every result against the output schema that was listed. COUNTS
says how many values each tool returns, ERA is what 2.x calls `mode`. Prints one JSON object: how many tools and
calls there were, what failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import warnings
from collections.abc import AsyncIterator
from typing import Any

warnings.simplefilter("ignore")  # 2.x deprecates the legacy methods as they are used


@contextlib.asynccontextmanager
async def opened(era: str, command: str, args: list[str]) -> AsyncIterator[Any]:
    from mcp import StdioServerParameters

    server = StdioServerParameters(command=command, args=args)
    try:
        from mcp import Client
    except ImportError:
        from mcp import ClientSession
        from mcp.client.stdio import stdio_client

        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            yield session
    else:
        async with Client(server, mode=era) as client:
            yield client


async def main(counts: str, era: str, command: str, *args: str) -> None:
    failures: dict[str, str] = {}
    calls = 0
    async with opened(era, command, list(args)) as session:
        tools = (await session.list_tools()).tools
        for name, count in json.loads(counts).items():
            for number in range(count):
                calls += 1
                try:
                    result = await session.call_tool(name, {"number": number})
                    if getattr(result, "isError", False) or getattr(result, "is_error", False):
                        failures[f"{name} {number}"] = str(result)[:400]
                except Exception as error:
                    failures[f"{name} {number}"] = f"{type(error).__name__}: {error}"[:400]
    print(json.dumps({"tools": len(tools), "calls": calls, "failures": failures}))


asyncio.run(main(*sys.argv[1:]))
