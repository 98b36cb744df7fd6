"""Apps on the wire: capability, tool and view as a host of another make sees them, in both eras (protocol.md 5.3)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.harness import LEGACY, P, serve

from trimaran import Server
from trimaran.ext.apps import Apps, Csp, ui_tool
from trimaran.protocol.definition_digests import META_KEY

UI = P + "ui"
URI = "ui://weather/dashboard"
TYPE = "text/html;profile=mcp-app"
HOST = {"extensions": {UI: {"mimeTypes": [TYPE]}}}
META = {"ui": {"csp": {"connectDomains": ["https://api.weather.example"]}, "prefersBorder": True}}


def weather() -> Server:
    server = Server("weather", version="1.0.0")
    apps = Apps()
    apps.attach(server)
    apps.add_view(
        URI, "<!doctype html><p>sun", csp=Csp(connect_domains=("https://api.weather.example",)), prefers_border=True
    )

    @server.tool(meta=ui_tool(URI))
    async def forecast(city: str) -> str:
        return f"sun in {city}"

    @server.tool(meta=ui_tool(URI, ["app"]))
    async def refresh() -> str:
        return "fresh"

    apps.check()
    return server


def named(result: Any) -> dict[str, Any]:
    return {
        tool["name"]: {key: value for key, value in (tool.get("_meta") or {}).items() if key != META_KEY} or None
        for tool in result["tools"]
    }


BOTH = {"forecast": {"ui": {"resourceUri": URI}}, "refresh": {"ui": {"resourceUri": URI, "visibility": ["app"]}}}


async def test_a_modern_host(binding: str) -> None:
    async with serve(binding, weather()) as wire:
        found = await wire.modern("server/discover")
        assert found.result["capabilities"]["extensions"] == {UI: {}}
        assert named((await wire.modern("tools/list", caps=HOST)).result) == BOTH
        plain = (await wire.modern("tools/list")).result
        assert list(named(plain)) == ["forecast"]
        assert plain["cacheScope"] == "private"
        read = await wire.modern("resources/read", {"uri": URI}, caps=HOST)
        assert read.result["contents"] == [
            {"uri": URI, "mimeType": TYPE, "text": "<!doctype html><p>sun", "_meta": META}
        ]
        (listed,) = (await wire.modern("resources/list")).result["resources"]
        assert (listed["mimeType"], listed["_meta"]) == (TYPE, META)
        called = await wire.call("forecast", {"city": "Oslo"})
        assert called.result["content"][0]["text"] == "sun in Oslo", "a tool says it in text too"


@pytest.mark.parametrize("version", LEGACY)
async def test_a_host_with_a_handshake(binding: str, version: str) -> None:
    async with serve(binding, weather()) as wire:
        host = await wire.initialize(version, caps=HOST)
        listed = named((await host.ask("tools/list")).result)
        assert list(listed) == ["forecast", "refresh"]
        (item,) = (await host.ask("resources/read", {"uri": URI})).result["contents"]
        assert item["mimeType"] == TYPE
        if version >= "2025-06-18":  # which brought `_meta` to definitions and contents
            assert listed == BOTH
            assert item["_meta"] == META
        plain = await wire.initialize(version)
        assert list(named((await plain.ask("tools/list")).result)) == ["forecast"]
        assert "cacheScope" not in (await plain.ask("tools/list")).result


async def test_without_apps_there_is_no_extension(binding: str) -> None:
    server = Server("plain", version="1.0.0")
    server.add_tool(lambda: "x", name="x")
    async with serve(binding, server) as wire:
        assert "extensions" not in (await wire.modern("server/discover")).result["capabilities"]
