from __future__ import annotations

from typing import Any

import pytest

from trimaran import Server, connect
from trimaran.errors import CallError, ConfigError
from trimaran.serve import HttpServer
from trimaran.transports.asgi import AsgiApp
from trimaran.transports.endpoints import Endpoints


def server_named(name: str) -> Server:
    server = Server(name)

    @server.tool
    async def whoami() -> str:
        return name

    return server


def at(http: HttpServer, path: str) -> str:
    return http.url.removesuffix("/mcp") + path


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_two_servers_share_a_port_by_path(era: Any) -> None:
    http = HttpServer(server_named("first"), port=0)
    http.open_endpoints().add(server_named("second").engine("/second/mcp", health=False))
    async with http:
        for path, name in (("/mcp", "first"), ("/second/mcp", "second")):
            async with connect(at(http, path), era=era) as client:
                assert (await client.call_tool("whoami")).data == name


async def test_a_removed_endpoint_is_not_served_by_another_one() -> None:
    """Also on a connection whose earlier requests had the same head: admission is remembered by head."""
    http = HttpServer(server_named("first"), port=0)
    endpoints = http.open_endpoints()
    second = server_named("second").engine("/second/mcp", health=False)
    endpoints.add(second)
    async with http:
        async with connect(at(http, "/second/mcp")) as client:
            for _ in range(3):
                assert (await client.call_tool("whoami")).data == "second"
            endpoints.remove(second)
            with pytest.raises(CallError, match="nothing is served at /second/mcp"):
                await client.call_tool("whoami")
        await second.drain(0.0)
        await second.server.stop()
        async with connect(http.url) as client:
            assert (await client.call_tool("whoami")).data == "first"


def test_two_endpoints_cannot_have_one_path() -> None:
    endpoints = Endpoints(server_named("first").engine("/mcp"))
    with pytest.raises(ConfigError, match="two endpoints cannot have the path /mcp"):
        endpoints.add(server_named("second").engine("/mcp"))


async def test_several_endpoints_are_one_asgi_app() -> None:
    endpoints = Endpoints(server_named("first").engine("/mcp"))
    endpoints.add(server_named("second").engine("/second/mcp", health=False))
    app = AsgiApp(endpoints)
    bodies: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        bodies.append(message)

    async def post(path: str) -> bytes:
        bodies.clear()
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{},"_meta":'
            b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
        )
        headers = [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            (b"mcp-protocol-version", b"2026-07-28"),
            (b"mcp-method", b"tools/call"),
            (b"mcp-name", b"whoami"),
        ]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        await app(scope, receive, send)
        return b"".join(message.get("body", b"") for message in bodies)

    assert b'"first"' in await post("/mcp")
    assert b'"second"' in await post("/second/mcp")
    await app.aclose()
