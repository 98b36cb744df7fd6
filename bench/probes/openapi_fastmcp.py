"""FastMCP's lists of tools, from OpenAPI documents."""

import asyncio
import json
from pathlib import Path

import httpx2
from fastmcp import FastMCP
from mcp.types import Tool
from openapi_common import URL, answer
from pydantic import TypeAdapter

TOOLS = TypeAdapter(list[Tool])


async def encode(path: str, client: httpx2.AsyncClient) -> bytes:
    server = FastMCP.from_openapi(json.loads(Path(path).read_bytes()), client)
    tools = [tool.to_mcp_tool() for tool in await server.list_tools()]
    return TOOLS.dump_json(tools, by_alias=True, exclude_none=True)


if __name__ == "__main__":
    with asyncio.Runner() as runner:
        api = httpx2.AsyncClient(base_url=URL)
        answer(lambda path: runner.run(encode(path, api)))
