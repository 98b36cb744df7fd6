"""A TLS bind speaks HTTP/1.1 and HTTP/2 on one port by ALPN, with the same behaviour on both (R150, R151)."""

from __future__ import annotations

import json
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from trimaran import Context, Server
from trimaran.errors import ConfigError
from trimaran.serve import HttpServer

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": "t",
}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
}


def make_server() -> Server:
    server = Server("tls", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def count(ctx: Context) -> str:
        for i in (1, 2, 3):
            await ctx.progress(i, 3)
        return "counted"

    return server


def call(tool: str, arguments: dict[str, int]) -> dict[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": META},
    }


@pytest.mark.parametrize(("http2", "spoken"), [(True, "HTTP/2"), (False, "HTTP/1.1")])
async def test_both_http_versions_serve_calls_and_streams_on_one_tls_port(
    certificate: tuple[Path, Path], http2: bool, spoken: str
) -> None:
    """R151."""
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    async with HttpServer(make_server(), port=0, tls=certificate) as http:
        url = http.url.replace("127.0.0.1", "localhost")
        async with httpx.AsyncClient(http2=http2, verify=trust, trust_env=False) as client:
            reply = await client.post(url, json=call("add", {"a": 1, "b": 2}), headers={**HEADERS, "mcp-name": "add"})
            assert (reply.http_version, reply.status_code) == (spoken, 200)
            assert reply.json()["result"]["structuredContent"] == 3

            streamed = await client.post(url, json=call("count", {}), headers={**HEADERS, "mcp-name": "count"})
            events = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: ")]
            assert [e.get("method") for e in events] == ["notifications/progress"] * 3 + [None]
            assert events[-1]["result"]["content"][0]["text"] == "counted"

            refused = await client.post(url, json=call("add", {}), headers={**HEADERS, "mcp-name": "other"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32020)


async def test_a_cleartext_bind_speaks_http_1_1() -> None:
    """R150."""
    async with HttpServer(make_server(), port=0) as http, httpx.AsyncClient(http2=True, trust_env=False) as client:
        reply = await client.post(http.url, json=call("add", {"a": 1, "b": 2}), headers={**HEADERS, "mcp-name": "add"})
        assert (reply.http_version, reply.status_code) == ("HTTP/1.1", 200)


async def test_without_http2_a_client_that_could_speak_it_is_served_all_the_same(
    certificate: tuple[Path, Path],
) -> None:
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    async with HttpServer(make_server(), port=0, tls=certificate, http2=False) as http:
        url = http.url.replace("127.0.0.1", "localhost")
        async with httpx.AsyncClient(http2=True, verify=trust, trust_env=False) as client:
            reply = await client.post(url, json=call("add", {"a": 1, "b": 2}), headers={**HEADERS, "mcp-name": "add"})
            assert (reply.http_version, reply.status_code) == ("HTTP/1.1", 200)


def test_http2_needs_tls() -> None:
    with pytest.raises(ConfigError, match="http2=True needs tls="):
        HttpServer(make_server(), port=0, http2=True)


def test_http2_without_its_extra_is_told_how_to_get_it(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Asked for, it is an error; else HTTP/1.1 is served, and the log says what is missing."""
    monkeypatch.setitem(sys.modules, "trimaran.transports.http2_server", None)
    with pytest.raises(ConfigError, match=r'pip install "trimaran\[http2\]"'):
        HttpServer(make_server(), port=0, tls=certificate, http2=True)
    caplog.set_level("INFO")
    HttpServer(make_server(), port=0, tls=certificate)
    assert 'pip install "trimaran[http2]"' in caplog.text


@pytest.mark.parametrize("tls", [{"certfile": "nowhere.pem", "keyfile": "nowhere.key"}, {"certfile": "x"}, {"what": 1}])
def test_tls_options_that_cannot_work_are_refused_at_once(tls: Any) -> None:
    with pytest.raises(ConfigError, match="tls"):
        HttpServer(make_server(), port=0, tls=tls)
