"""Spans, durations and the access log: named by the OpenTelemetry conventions for MCP, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import logging
import subprocess
import sys
import weakref
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.support.until import PATIENCE, soon, until

from trimaran import Context, Server, ToolError, connect
from trimaran.auth import Principal
from trimaran.errors import CallError, ConfigError, ProtocolError
from trimaran.ext.otel import AccessLog, Telemetry, TracedClient
from trimaran.serve import HttpServer
from trimaran.transports.engine import Engine
from trimaran.transports.guard import Guard
from trimaran.transports.health import HealthRoutes

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
MODERN = "2026-07-28"


class Recorded:
    """Telemetry, and what it has recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(tracer_provider=self.tracers, meter_provider=self._meters)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def client(self) -> ReadableSpan:
        (found,) = [s for s in self.spans if s.kind is SpanKind.CLIENT]
        return found

    def named(self, name: str) -> ReadableSpan:
        (found,) = [s for s in self.spans if s.name == name and s.kind is not SpanKind.CLIENT]
        return found

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.name == name]
        assert all(m.unit == "s" for m in metrics)
        return [p for m in metrics for p in m.data.data_points]

    def gauges(self) -> dict[str, dict[Any, Any]]:
        """What is observed now: by metric, and by server."""
        data = self._reader.get_metrics_data()
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
        found: list[Any] = [m for m in metrics if m.name.startswith("trimaran.")]
        return {m.name: {p.attributes["trimaran.server.name"]: p.value for p in m.data.data_points} for m in found}


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture
def server(recorded: Recorded) -> Server:
    server = Server("weather", version="1.0.0")
    recorded.telemetry.attach(server)

    @server.tool
    async def forecast(city: str) -> str:
        if city == "Atlantis":
            raise ToolError("under water")
        if city == "Babel":
            raise ProtocolError(-32099, "no common language")
        return f"sun in {city}"

    @server.tool
    async def inner(ctx: Context) -> dict[str, str]:
        current = trace.get_current_span().get_span_context()
        await asyncio.sleep(0)  # the second step may be another task's
        assert trace.get_current_span().get_span_context() == current
        with recorded.tracers.get_tracer("test").start_as_current_span("inside"):
            return {k: str(v) for k, v in baggage.get_all().items()}

    @server.tool
    def threaded() -> str:
        return format(trace.get_current_span().get_span_context().span_id, "016x")

    @server.prompt
    async def greet(name: str) -> str:
        return f"Hello {name}"

    server.add_resource("data://x", lambda: "x", mime_type="text/plain", inline=True)
    return server


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# --- the server ------------------------------------------------------------------------------------------------------


async def test_a_tool_call_is_a_span_and_a_duration(server: Server, recorded: Recorded) -> None:
    async with connect(server) as client:
        await client.call_tool("forecast", {"city": "Oslo"}, meta={"traceparent": PARENT})
    span = recorded.named("tools/call forecast")
    assert span.kind is SpanKind.SERVER
    assert span.status.status_code is StatusCode.UNSET
    found = attributes(span)
    assert found.pop("jsonrpc.request.id").isdigit()
    labels = {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": MODERN,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "forecast",
    }
    assert found == labels
    (point,) = [p for p in recorded.points("mcp.server.operation.duration") if "gen_ai.tool.name" in p.attributes]
    assert dict(point.attributes) == labels
    assert point.count == 1
    assert point.explicit_bounds == (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


async def test_the_parent_is_the_one_the_caller_names(server: Server, recorded: Recorded) -> None:
    meta = {"traceparent": PARENT, "tracestate": "rojo=1", "baggage": "user=ada,tier=gold"}
    async with connect(server) as client:
        result = await client.call_tool("inner", meta=meta)
    assert result.data == {"user": "ada", "tier": "gold"}
    span, inside = recorded.named("tools/call inner"), recorded.named("inside")
    assert span.context is not None
    assert span.parent is not None
    assert inside.parent is not None
    assert format(span.context.trace_id, "032x") == TRACE
    assert format(span.parent.span_id, "016x") == "00f067aa0ba902b7"
    assert dict(span.context.trace_state) == {"rojo": "1"}
    assert inside.parent.span_id == span.context.span_id, "what the tool does is inside"


async def test_a_plain_def_tool_is_inside_too(server: Server, recorded: Recorded) -> None:
    async with connect(server) as client:
        data = (await client.call_tool("threaded")).data
    context = recorded.named("tools/call threaded").context
    assert context is not None
    assert data == format(context.span_id, "016x")


@pytest.mark.parametrize(
    "meta",
    [{}, {"traceparent": "nonsense"}, {"traceparent": 7}, {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-00"}],
    ids=["none", "nonsense", "number", "zeros"],
)
async def test_a_call_without_a_usable_parent_begins_a_trace(
    server: Server, recorded: Recorded, meta: dict[str, Any]
) -> None:
    async with connect(server) as client:
        await client.call_tool("forecast", {"city": "Oslo"}, meta=meta)
    assert recorded.named("tools/call forecast").parent is None


async def test_the_transports_own_span_is_linked(server: Server, recorded: Recorded) -> None:
    """Conventions: the context in `_meta` is the parent, and the ambient one a link."""

    async def call(**meta: str) -> ReadableSpan:
        async with connect(server) as client:
            await client.call_tool("forecast", {"city": "Oslo"}, meta=meta)
        return [s for s in recorded.spans if s.name == "tools/call forecast"][-1]

    with recorded.tracers.get_tracer("test").start_as_current_span("http") as ambient:
        both = await call(traceparent=PARENT)
        alone = await call()
    here = ambient.get_span_context()
    assert [link.context.span_id for link in both.links] == [here.span_id]
    assert both.context is not None
    assert format(both.context.trace_id, "032x") == TRACE
    assert alone.parent is not None
    assert alone.parent.span_id == here.span_id
    assert not alone.links


async def test_a_call_leaves_nothing_in_the_context_it_came_from(server: Server) -> None:
    before = contextvars.copy_context()
    await server.call_tool("inner")
    assert dict(contextvars.copy_context().items()) == dict(before.items())


async def test_calls_at_the_same_time_keep_their_spans_apart(server: Server, recorded: Recorded) -> None:
    async with connect(server) as client:
        parents = [f"00-{n:032x}-{n:016x}-01" for n in range(1, 21)]
        await asyncio.gather(*(client.call_tool("inner", meta={"traceparent": p}) for p in parents))
    spans = {s.context.span_id: s for s in recorded.spans if s.name == "tools/call inner" and s.context is not None}
    inside = [s for s in recorded.spans if s.name == "inside"]
    assert len(spans) == len(inside) == 20
    for span in inside:
        assert span.parent is not None
        assert span.context is not None
        own = spans[span.parent.span_id]
        assert own.parent is not None
        assert own.parent.span_id == span.context.trace_id


async def test_an_error_is_told_in_the_conventions_words(server: Server, recorded: Recorded) -> None:
    async with connect(server) as client:
        assert (await client.call_tool("forecast", {"city": "Atlantis"})).is_error
        with pytest.raises(CallError):
            await client.call_tool("forecast", {"city": "Babel"})
    tool, protocol = [s for s in recorded.spans if s.name == "tools/call forecast"]
    assert attributes(tool)["error.type"] == "tool_error"
    assert "rpc.response.status_code" not in attributes(tool)
    assert tool.status.status_code is StatusCode.ERROR
    assert attributes(protocol)["error.type"] == "-32099"
    assert attributes(protocol)["rpc.response.status_code"] == "-32099"
    assert protocol.status.description == "no common language"
    kinds = {p.attributes.get("error.type") for p in recorded.points("mcp.server.operation.duration")}
    assert {"tool_error", "-32099"} <= kinds


async def test_a_name_nobody_knows_makes_no_time_series(server: Server, recorded: Recorded) -> None:
    async with connect(server) as client:
        for n in range(3):
            with pytest.raises(CallError):
                await client.call_tool(f"made-up-{n}")
            with pytest.raises(CallError):
                await client.get_prompt(f"made-up-{n}")
    names = {s.name for s in recorded.spans}
    assert not any("made-up" in name for name in names)
    assert {"tools/call", "prompts/get"} <= names
    assert {attributes(s).get("gen_ai.tool.name") for s in recorded.spans if s.name == "tools/call"} == {
        f"made-up-{n}" for n in range(3)
    }, "a span is one event, and may say what was asked for"
    assert "made-up" not in str([p.attributes for p in recorded.points("mcp.server.operation.duration")])


async def test_prompts_and_resources_say_which(server: Server, recorded: Recorded) -> None:
    async with connect(server) as client:
        await client.get_prompt("greet", {"name": "Ada"})
        await client.read_resource("data://x")
    assert attributes(recorded.named("prompts/get greet"))["gen_ai.prompt.name"] == "greet"
    read = recorded.named("resources/read")
    assert attributes(read)["mcp.resource.uri"] == "data://x"
    points = recorded.points("mcp.server.operation.duration")
    assert "mcp.resource.uri" not in str([p.attributes for p in points]), "too many to count by"
    assert "gen_ai.operation.name" not in attributes(read)


async def test_over_http_with_a_session(server: Server, recorded: Recorded) -> None:
    async with HttpServer(server, port=0) as http, connect(http.url, version="2025-11-25") as client:
        await client.call_tool("forecast", {"city": "Oslo"}, meta={"traceparent": PARENT})
        session = client.session_id
    span = recorded.named("tools/call forecast")
    found = attributes(span)
    assert found["mcp.session.id"] == session
    assert found["mcp.protocol.version"] == "2025-11-25"
    assert (found["network.transport"], found["network.protocol.name"]) == ("tcp", "http")
    assert span.context is not None
    assert format(span.context.trace_id, "032x") == TRACE


async def test_nothing_that_was_said_is_recorded(server: Server, recorded: Recorded) -> None:
    async with connect(server) as client:
        await client.call_tool("forecast", {"city": "Llanfairpwll"})
    everything = str([(attributes(s), s.events) for s in recorded.spans])
    assert "Llanfairpwll" not in everything


async def test_a_call_that_is_cancelled_ends_its_span(server: Server, recorded: Recorded) -> None:
    entered, forever = asyncio.Event(), asyncio.Event()

    @server.tool
    async def stuck() -> str:
        entered.set()
        await forever.wait()
        return "never"

    async with connect(server) as client:
        task = asyncio.ensure_future(client.call_tool("stuck"))
        async with asyncio.timeout(PATIENCE):
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: any(s.name == "tools/call stuck" for s in recorded.spans))
    assert attributes(recorded.named("tools/call stuck"))["error.type"] == "CancelledError"


async def test_a_stream_of_changes_is_no_duration(server: Server, recorded: Recorded) -> None:
    async with connect(server) as client:
        async with client.listen(tools=True):
            pass
    await until(lambda: any(s.name == "subscriptions/listen" for s in recorded.spans))
    methods = {p.attributes["mcp.method.name"] for p in recorded.points("mcp.server.operation.duration")}
    assert "subscriptions/listen" not in methods


# --- what is open and at work -----------------------------------------------------------------------------------------


async def test_what_an_endpoint_has_open_is_observed(server: Server, recorded: Recorded) -> None:
    """The conventions have no names for this; ours begin with our own."""
    entered, release = asyncio.Event(), asyncio.Event()

    @server.tool
    async def stuck() -> str:
        entered.set()
        await release.wait()
        return "at last"

    async with HttpServer(server, port=0) as http:
        async with connect(http.url) as modern, connect(http.url, version="2025-11-25"), modern.listen(tools=True):
            task = asyncio.ensure_future(modern.call_tool("stuck"))
            await soon(entered.wait())
            # As an exporter does it: in a thread of its own.
            found = await asyncio.to_thread(recorded.gauges)
            release.set()
            assert (await task).data == "at last"
        assert found.pop("trimaran.server.uptime")["weather"] >= 0
        assert found.pop("trimaran.server.streams")["weather"] >= 1, (
            "the listener, and the session's own if it is open yet"
        )
        assert found == {
            "trimaran.server.session_info": {"weather": 1},
            "trimaran.server.listeners": {"weather": 1},
            "trimaran.server.calls": {"weather": 1},
            "trimaran.server.tasks": {"weather": 0},
            "trimaran.server.tasks_waiting": {"weather": 0},
            "trimaran.server.tasks_refused": {"weather": 0},
            "trimaran.server.threads": {"weather": 32},
            "trimaran.server.threads_busy": {"weather": 0},
            "trimaran.server.queue_depth": {"weather": 0},
            "trimaran.bus.poisoned": {"weather": 0},
            "trimaran.bus.overflowed": {"weather": 0},
            "trimaran.tls.failures": {"weather": 0},
        }, "and nothing of a store, where there is none"


async def test_whether_the_store_answers_is_a_number(server: Server, recorded: Recorded) -> None:
    engine = Engine(server, Guard("127.0.0.1"), health=HealthRoutes())
    assert engine.health is not None
    observed: list[Any] = []
    for is_up in (None, True, False):
        engine.health.store_up = is_up
        observed.append(recorded.gauges().get("trimaran.store.up"))
    assert observed == [None, {"weather": 1}, {"weather": 0}]
    assert [type(one["weather"]) for one in observed[1:]] == [int, int]


async def test_servers_are_told_apart_and_one_without_an_endpoint_is_not_observed(recorded: Recorded) -> None:
    servers = [Server(name, version="1") for name in ("one", "two", "three")]
    for server in servers:
        recorded.telemetry.attach(server)
    engines = [Engine(server, Guard("127.0.0.1")) for server in servers[:2]]
    assert recorded.gauges()["trimaran.server.calls"] == {"one": 0, "two": 0}
    assert len(engines) == 2


async def test_observing_keeps_no_server_alive(recorded: Recorded) -> None:
    server = Server("gone", version="1")
    seen = weakref.ref(server)
    engine = Engine(server, Guard("127.0.0.1"), health=HealthRoutes())
    recorded.telemetry.attach(server)
    assert recorded.gauges()
    del server, engine
    gc.collect()
    assert seen() is None
    assert recorded.gauges() == {}


# --- the client ------------------------------------------------------------------------------------------------------


async def test_a_client_and_a_server_are_one_trace(server: Server, recorded: Recorded) -> None:
    async with connect(server) as plain:
        client = recorded.telemetry.traced(plain)
        with recorded.tracers.get_tracer("test").start_as_current_span("agent") as agent:
            result = await client.call_tool("forecast", {"city": "Oslo"}, meta={"example.com/x": 1})
    assert result.data == "sun in Oslo"
    ours, theirs = recorded.client(), recorded.named("tools/call forecast")
    assert ours.name == "tools/call forecast"
    assert ours.parent is not None
    assert theirs.parent is not None
    assert ours.context is not None
    assert ours.parent.span_id == agent.get_span_context().span_id
    assert theirs.parent.span_id == ours.context.span_id
    assert attributes(ours) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": MODERN,
        "gen_ai.tool.name": "forecast",
        "gen_ai.operation.name": "execute_tool",
    }
    (point,) = recorded.points("mcp.client.operation.duration")
    assert point.count == 1


async def test_a_clients_errors_have_the_same_words(server: Server, recorded: Recorded) -> None:
    async with connect(server) as plain:
        client = recorded.telemetry.traced(plain)
        assert (await client.call_tool("forecast", {"city": "Atlantis"})).is_error
        with pytest.raises(ToolError):
            await client.call_tool("forecast", {"city": "Atlantis"}, raise_on_error=True)
        with pytest.raises(CallError):
            await client.get_prompt("unknown")
    spans = [s for s in recorded.spans if s.kind is SpanKind.CLIENT]
    assert [attributes(s)["error.type"] for s in spans] == ["tool_error", "tool_error", "-32602"]
    assert all(s.status.status_code is StatusCode.ERROR for s in spans)


async def test_reads_stay_cached(recorded: Recorded) -> None:
    """Ours: a trace must not make every read a new one."""
    reads = 0
    server = Server("weather", version="1.0.0", cache_ttl=60)
    recorded.telemetry.attach(server)

    @server.resource("data://x")
    async def x() -> str:
        nonlocal reads
        reads += 1
        return "x"

    async with connect(server) as plain:
        client = recorded.telemetry.traced(plain)
        for _ in range(3):
            assert (await client.read_resource("data://x")).text == "x"
        assert reads == 1
        await client.read_resource("data://x", fresh=True)
        assert reads == 2
    ours = [s for s in recorded.spans if s.kind is SpanKind.CLIENT]
    theirs = [s for s in recorded.spans if s.name == "resources/read" and s.kind is SpanKind.SERVER]
    assert len(ours) == 4
    assert attributes(ours[0])["mcp.resource.uri"] == "data://x"
    assert theirs[-1].parent is not None
    assert ours[-1].context is not None
    assert theirs[-1].parent.span_id == ours[-1].context.span_id


async def test_everything_else_is_the_clients_own(server: Server, recorded: Recorded) -> None:
    async with connect(server) as plain:
        client: TracedClient = recorded.telemetry.traced(plain)
        assert client.version == MODERN
        assert len(await client.list_tools()) == 3
        with pytest.raises(AttributeError):
            client.no_such_thing


# --- the access log --------------------------------------------------------------------------------------------------


async def lines_of(server: Server, *calls: tuple[str, dict[str, Any]], **options: Any) -> list[Any]:
    lines: list[str] = []
    AccessLog(lines.append).attach(server)
    async with connect(server, **options) as client:
        for name, arguments in calls:
            try:
                await client.call_tool(name, arguments, meta={"traceparent": PARENT})
            except CallError:
                pass
    assert all("\n" not in line for line in lines)
    return [json.loads(line) for line in lines if '"tools/call"' in line]


async def test_each_call_is_a_line_of_json() -> None:
    server = Server("plain", version="1.0.0")

    @server.tool
    async def forecast(city: str) -> str:
        if city == "Atlantis":
            raise ToolError("under water")
        return city

    found = await lines_of(
        server,
        ("forecast", {"city": "Oslo"}),
        ("forecast", {"city": "Atlantis"}),
        ("no\nsuch", {}),
        client_info={"name": "cli\nent", "version": "2"},
        auth=Principal(subject="ada"),
    )
    assert [(line["target"], line["outcome"]) for line in found] == [
        ("forecast", "ok"),
        ("forecast", "tool_error"),
        ("no\nsuch", "-32602"),
    ]
    first = found[0]
    assert first.pop("time").endswith("+00:00")
    assert first.pop("ms") >= 0
    assert first.pop("id")
    assert first == {
        "method": "tools/call",
        "target": "forecast",
        "outcome": "ok",
        "version": MODERN,
        "client": "cli\nent/2",
        "subject": "ada",
        "trace": TRACE,
    }
    assert "Oslo" not in str(found)


async def test_a_line_names_the_trace_of_its_span(server: Server, recorded: Recorded) -> None:
    lines: list[str] = []
    AccessLog(lines.append).attach(server)
    async with connect(server) as client:
        await client.call_tool("forecast", {"city": "Oslo"})
    context = recorded.named("tools/call forecast").context
    assert context is not None
    (line,) = [json.loads(text) for text in lines if '"tools/call"' in text]
    assert line["trace"] == format(context.trace_id, "032x")


async def test_a_session_is_named_by_its_beginning() -> None:
    server = Server("plain", version="1.0.0")
    server.add_tool(lambda: "x", name="x")
    lines: list[str] = []
    AccessLog(lines.append).attach(server)
    async with HttpServer(server, port=0) as http, connect(http.url, version="2025-11-25") as client:
        await client.call_tool("x")
        session = client.session_id
    assert session is not None
    assert session not in "".join(lines)
    assert json.loads(lines[-1])["session"] == session[:8]


async def test_the_log_goes_to_a_logger_unless_told_otherwise(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trimaran.access")
    server = Server("plain", version="1.0.0")
    server.add_tool(lambda: "x", name="x")
    AccessLog().attach(server)
    await server.call_tool("x")
    (record,) = [r for r in caplog.records if r.name == "trimaran.access"]
    assert json.loads(record.getMessage())["target"] == "x"


# --- when it is off --------------------------------------------------------------------------------------------------


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r'pip install "trimaran\[otel\]"'):
        Telemetry()
    AccessLog()


@pytest.mark.slow
def test_what_is_not_used_is_not_loaded() -> None:
    code = (
        "import sys, trimaran.ext; from trimaran import Server, connect; from trimaran.ext.otel import AccessLog;"
        "AccessLog().attach(Server('a', version='1'));"
        "sys.exit(any(n.partition('.')[0] == 'opentelemetry' for n in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0
