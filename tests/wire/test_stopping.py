"""A server that is told to stop takes no more connections and still answers the calls it has (P13)."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from tests.support.until import PATIENCE, soon

from trimaran import Server
from trimaran.serve import HttpServer

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "wait",
}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "_meta": META}}


@pytest.mark.slow
async def test_while_it_stops_a_server_answers_its_calls_and_takes_no_new_connection() -> None:
    started, release = asyncio.Event(), asyncio.Event()
    server = Server("stopping", version="1")

    @server.tool
    async def wait() -> str:
        started.set()
        await release.wait()
        return "in time"

    http = HttpServer(server, port=0)
    await http.start()
    async with httpx.AsyncClient(trust_env=False) as client:
        reply = asyncio.ensure_future(client.post(http.url, json=CALL, headers=HEADERS))
        await soon(started.wait())
        stopping = asyncio.ensure_future(http.stop())
        await asyncio.sleep(0)
        with pytest.raises(OSError, match=r"."):
            await asyncio.open_connection("127.0.0.1", http.port)
        release.set()
        async with asyncio.timeout(PATIENCE):
            assert (await reply).json()["result"]["content"][0]["text"] == "in time"
            await stopping
