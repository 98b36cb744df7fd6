"""A handler that asks for more memory than there is fails alone."""

from __future__ import annotations

import pytest
from tests.support.faults import ask, assert_serves, call, legacy_call, legacy_http, modern, modern_http, open_session

from trimaran import Server
from trimaran.serve import HttpServer

TOO_MUCH = 1 << 60


@pytest.mark.parametrize("tool", ["plain", "awaited", "inline"])
async def test_memory_that_cannot_be_had_costs_one_call(tool: str) -> None:
    server = Server("greedy", version="1")

    @server.tool
    def plain() -> str:
        return str(bytearray(TOO_MUCH))

    @server.tool
    async def awaited() -> str:
        return str(bytearray(TOO_MUCH))

    @server.tool(inline=True)
    def inline() -> str:
        return str(bytearray(TOO_MUCH))

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.resource("sea://whole")
    async def sea() -> bytes:
        return bytes(TOO_MUCH)

    async with HttpServer(server, port=0) as http:
        session = await open_session(http.port)
        for reply in (
            await ask(http.port, modern_http(call(tool))),
            await ask(http.port, legacy_http(legacy_call(tool), session)),
        ):
            assert reply.status == 200 and reply.json["result"]["isError"], reply
        reply = await ask(http.port, modern_http(modern("resources/read", {"uri": "sea://whole"})))
        assert reply.json["error"]["code"] == -32603
        await assert_serves(http.port)
