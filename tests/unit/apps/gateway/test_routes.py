from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trimaran import Context, Server, connect
from trimaran.errors import CallError
from trimaran.ext.otel import Telemetry
from trimaran.serve import HttpServer

from .conftest import child, fetch, gateway_of, remote, url_of
from .test_call_control import KEYS

pytestmark = pytest.mark.slow

DOWN = remote("gone", "http://127.0.0.1:9/mcp")


async def test_figures_count_calls_by_server_tool_and_status() -> None:
    async with gateway_of(child("boats") + DOWN) as gateway:
        async with connect(gateway.url, era="legacy") as client:
            await client.call_tool("boats_sail", {"boat": "Ida"})
            await client.call_tool("boats_sink", {"boat": "Ida"})
            with pytest.raises(CallError):
                await client.call_tool("boats_die")
            status, text = await fetch(url_of(gateway, "/metrics"))
    assert status == 200
    for line in (
        'trimaran_gateway_calls_total{server="boats",status="ok",tool="sail"} 1.0',
        'trimaran_gateway_calls_total{server="boats",status="tool_error",tool="sink"} 1.0',
        'trimaran_gateway_calls_total{server="boats",status="error",tool="die"} 1.0',
        'trimaran_gateway_errors_total{kind="lost",server="boats"} 1.0',
        'trimaran_gateway_call_seconds_count{server="boats",tool="sail"} 1.0',
        'trimaran_gateway_server_up{server="gone"} 0.0',
        'trimaran_gateway_sessions{endpoint="/mcp"} 1.0',
        'trimaran_gateway_tools{server="boats"} 7.0',
    ):
        assert line in text


async def test_health_says_which_servers_answer() -> None:
    async with gateway_of(child("boats") + DOWN + '[server.broken]\ncommand = ""\n') as gateway:
        status, text = await fetch(url_of(gateway, "/health"))
        health: Any = json.loads(text)
        assert status == 200
        assert health["status"] == "degraded"
        assert health["servers"]["boats"]["status"] == "up"
        assert health["servers"]["gone"]["status"] == "down"
        assert "the command is empty" in health["failed"]["broken"]
        assert (await fetch(url_of(gateway, "/servers/boats/health")))[0] == 200
        assert (await fetch(url_of(gateway, "/servers/gone/health")))[0] == 503
        assert (await fetch(url_of(gateway, "/servers/none/health")))[0] == 404
        status, text = await fetch(url_of(gateway, "/readyz"))
        assert (status, json.loads(text)["reason"]) == (200, "1 of 2 servers cannot be reached")


async def test_figures_and_reasons_are_for_administrators() -> None:
    admins = '[gateway]\nadmins = ["group:dev"]\n'
    async with gateway_of(admins + child("boats") + KEYS) as gateway:
        ann, bob = {"X_API_Key": "ann-key-123"}, {"X_API_Key": "bob-key-123"}
        for path in ("/metrics", "/servers/boats/health"):
            assert (await fetch(url_of(gateway, path)))[0] == 401
            assert (await fetch(url_of(gateway, path), **ann))[0] == 403
            assert (await fetch(url_of(gateway, path), **bob))[0] == 200
        assert json.loads((await fetch(url_of(gateway, "/health")))[1]) == {"status": "ok", "up": 1, "servers": 1}
        assert "boats" in json.loads((await fetch(url_of(gateway, "/health"), **bob))[1])["servers"]


async def test_a_trace_goes_through_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr("trimaran.ext.otel.Telemetry", lambda: Telemetry(tracer_provider=provider))
    parents: list[Any] = []
    sea = Server("sea")

    @sea.tool
    async def depth(ctx: Context) -> int:
        parents.append(ctx.meta["traceparent"])
        return 3

    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with HttpServer(sea, port=0) as http:
        text = "[gateway]\ntelemetry = true\n" + remote("sea", http.url)
        async with gateway_of(text) as gateway, connect(gateway.url) as client:
            await client.call_tool("sea_depth", meta={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    inward, outward = sorted(
        (span for span in spans.get_finished_spans() if span.name.startswith("tools/call")), key=lambda span: span.name
    )[::-1]
    assert {inward.name, outward.name} == {"tools/call sea_depth", "tools/call depth"}
    assert outward.parent is not None
    assert inward.context is not None
    assert outward.context is not None
    assert outward.parent.span_id == inward.context.span_id
    assert parents == [f"00-{trace}-{outward.context.span_id:016x}-01"]
    provider.shutdown()
