"""Traces, metrics and an access log of a server or a client, under standard names.

    Telemetry().attach(server)                  spans and durations of every call, under the parent its caller names;
                                                and what its HTTP endpoints have open and at work
    client = Telemetry().traced(client)         the same from the other end, and the trace goes along in `_meta`
    AccessLog().attach(server)                  one line of JSON per call

Names are those of the OpenTelemetry conventions for MCP, which have none for what is open: those are `trimaran.*`. Names that came over the wire become attributes of spans, but of
metrics only if they are known here, so that no caller can make up time series. Arguments and results are never recorded.
`Telemetry` needs the extra `otel`; the access log needs nothing. Without `attach` it costs nothing: this module is not
even imported.
"""

from __future__ import annotations

import contextvars
import datetime
import logging
import re
import sys
import time
import types
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, final

import msgspec

from trimaran.client import Client
from trimaran.errors import ConfigError, ProtocolError, TimedOut, ToolError
from trimaran.protocol.inbound import IncomingCall
from trimaran.server.dispatch import Serve
from trimaran.server.server import Server
from trimaran.transports.engine import engines_of
from trimaran.transports.health import read_gauge
from trimaran.types import CallToolResult, Json

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["AccessLog", "Telemetry", "TracedClient"]

T = TypeVar("T")

_SCOPE: Final = "trimaran"
# The buckets of the conventions, in seconds.
_BUCKETS: Final = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
_MAX_NAME: Final = 200  # characters of a remote name in an attribute or a line of the log
# A stream of changes lasts as long as its client; among durations of calls it would say nothing.
_STREAMS: Final = frozenset({"subscriptions/listen"})
# Fields of `Gauges` and their instruments. Values that add up over processes are counters, by the conventions.
_GAUGES: Final = (
    ("sessions", "up_down_counter", "trimaran.server.session_info", "{session}", "Legacy sessions."),
    ("streams", "up_down_counter", "trimaran.server.streams", "{stream}", "Open response streams."),
    ("listeners", "up_down_counter", "trimaran.server.listeners", "{listener}", "Open subscriptions/listen calls."),
    ("calls", "up_down_counter", "trimaran.server.calls", "{call}", "Calls at work that did not finish at once."),
    ("tasks", "up_down_counter", "trimaran.server.tasks", "{task}", "Tasks whose body runs here."),
    ("tasks_waiting", "up_down_counter", "trimaran.server.tasks_waiting", "{task}", "Those that wait for an answer."),
    ("tasks_refused", "counter", "trimaran.server.tasks_refused", "{task}", "Anonymous tasks that found no room."),
    ("threads", "up_down_counter", "trimaran.server.threads", "{thread}", "Threads there may be for plain functions."),
    (
        "threads_busy",
        "up_down_counter",
        "trimaran.server.threads_busy",
        "{thread}",
        "Threads that run a plain function.",
    ),
    ("queue_depth", "up_down_counter", "trimaran.server.queue_depth", "{call}", "Calls that wait for a thread."),
    ("uptime", "gauge", "trimaran.server.uptime", "s", "Since the endpoint was started."),
    ("bus_poisoned", "counter", "trimaran.bus.poisoned", "{message}", "Messages of workers that could not be read."),
    ("bus_overflowed", "counter", "trimaran.bus.overflowed", "{message}", "Messages of workers that were dropped."),
    ("tls_failures", "counter", "trimaran.tls.failures", "{connection}", "TLS connections that failed."),
    ("store_up", "gauge", "trimaran.store.up", "1", "1 if the store answered when it was last asked, else 0."),
)


class _Outcome:
    """How a call ended, in the conventions' words."""

    __slots__ = ("code", "error", "message")

    def __init__(self, error: str | None = None, code: int | None = None, message: str | None = None) -> None:
        self.error = error
        """`error.type`; None if it went well."""
        self.code = code
        self.message = message

    @classmethod
    def of_error(cls, error: BaseException) -> _Outcome:
        if isinstance(error, ProtocolError):
            return cls(str(error.code), error.code, error.message)
        if isinstance(error, ToolError):
            return cls("tool_error")
        if isinstance(error, (TimedOut, TimeoutError)):
            return cls("timeout")
        return cls(type(error).__qualname__)

    @classmethod
    def of_result(cls, result: object) -> _Outcome:
        failed = isinstance(result, CallToolResult) and result.is_error
        return cls("tool_error") if failed or getattr(result, "is_error", False) is True else cls()


@final
class Telemetry:
    """Spans and durations by OpenTelemetry. By default it uses the global providers."""

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        try:
            from opentelemetry import context, metrics, propagate, trace
        except ImportError:
            raise ConfigError(
                'traces and metrics need OpenTelemetry: pip install "trimaran[otel]", and an SDK to send them somewhere'
            ) from None
        self._trace = trace
        self._context = context
        self._propagate = propagate
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._metrics = metrics
        self._durations: dict[str, Histogram] = {}
        self._servers: list[weakref.ref[Server]] = []

    # The server

    def attach(self, server: Server) -> None:
        """Record every call of this server, and what its HTTP endpoints have open and at work.

        Attach it before other middleware, to include that in the spans.
        """
        if not self._servers:
            self._create_gauges()
        self._servers.append(weakref.ref(server))

        async def record(call: IncomingCall, call_next: Serve, /) -> Any:
            return await self._serve(server, call, call_next)

        server.runtime.dispatcher.use(record, None)  # where it is mounted, the outer server records

    def _create_gauges(self) -> None:
        for field, kind, name, unit, description in _GAUGES:
            create = getattr(self._meter, f"create_observable_{kind}")
            create(name, callbacks=[self._observer(field)], unit=unit, description=description)

    def _observer(self, field: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """The callback of a metric reader; it runs in the reader's thread."""

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            for server in [live for reference in self._servers if (live := reference()) is not None]:
                engines = engines_of(server)
                value = read_gauge(field, server, engines) if engines else None
                if value is not None:
                    number = int(value) if isinstance(value, bool) else value
                    yield self._metrics.Observation(number, {"trimaran.server.name": server.info.name})

        return observe

    async def _serve(self, server: Server, call: IncomingCall, call_next: Serve) -> Any:
        name, attributes, labels = _described(server, call)
        ambient = self._trace.get_current_span().get_span_context()
        carrier = {k: v for k, v in call.meta.items() if isinstance(v, str)}
        parent = self._propagate.extract(carrier, context=self._context.get_current())
        named = self._trace.get_current_span(parent).get_span_context()
        # The caller's trace is the parent; the transport's, where somebody traces that too, is linked.
        linked = ambient.is_valid and named.is_valid and ambient.span_id != named.span_id
        span = self._tracer.start_span(
            name,
            context=parent,
            kind=self._trace.SpanKind.SERVER,
            attributes=attributes,
            links=[self._trace.Link(ambient)] if linked else None,
        )
        # A context of its own: a call begins in its transport's task and may go on in another, and must leave no
        # trace in either.
        own = contextvars.copy_context()
        own.run(self._context.attach, self._trace.set_span_in_context(span, parent))
        started = time.perf_counter()
        outcome = _Outcome()
        try:
            result = await _within(own, _whole(call_next, call))
            outcome = _Outcome.of_result(result)
            return result
        except BaseException as error:
            outcome = _Outcome.of_error(error)
            raise
        finally:
            self._end(span, outcome)
            if call.method not in _STREAMS:
                self._record("mcp.server.operation.duration", time.perf_counter() - started, labels, outcome)

    # The client

    def traced(self, client: Client) -> TracedClient:
        """The same client, recorded. Calls, prompts and uncached reads carry the trace to the server."""
        return TracedClient(client, self)

    async def observe(
        self,
        client: Client,
        method: str,
        send: Callable[[dict[str, Json]], Awaitable[T]],
        *,
        meta: Mapping[str, Json] | None = None,
        tool: str | None = None,
        prompt: str | None = None,
        uri: str | None = None,
    ) -> T:
        """Send under a new span; `send` receives the `_meta` that carries the trace."""
        attributes: dict[str, Any] = {"mcp.method.name": method}
        target = tool if tool is not None else prompt
        if tool is not None:
            attributes.update({"gen_ai.tool.name": tool, "gen_ai.operation.name": "execute_tool"})
        if prompt is not None:
            attributes["gen_ai.prompt.name"] = prompt
        if client.state not in ("new", "closed"):
            attributes["mcp.protocol.version"] = client.version
            if client.pid is not None:
                attributes["network.transport"] = "pipe"
        labels = dict(attributes)
        if uri is not None:
            attributes["mcp.resource.uri"] = uri
        if client.state not in ("new", "closed") and client.session_id is not None:
            attributes["mcp.session.id"] = client.session_id
        started = time.perf_counter()
        outcome = _Outcome()
        with self._tracer.start_as_current_span(
            method if target is None else f"{method} {target}",
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carried: dict[str, Json] = dict(meta or {})
            self._propagate.inject(carried)
            try:
                result = await send(carried)
                outcome = _Outcome.of_result(result)
                return result
            except BaseException as error:
                outcome = _Outcome.of_error(error)
                raise
            finally:
                self._finish(span, outcome)
                self._record("mcp.client.operation.duration", time.perf_counter() - started, labels, outcome)

    # Both

    def _end(self, span: Span, outcome: _Outcome) -> None:
        self._finish(span, outcome)
        span.end()

    def _finish(self, span: Span, outcome: _Outcome) -> None:
        if outcome.error is None:
            return
        span.set_attribute("error.type", outcome.error)
        if outcome.code is not None:
            span.set_attribute("rpc.response.status_code", str(outcome.code))
        span.set_status(self._trace.StatusCode.ERROR, outcome.message)

    def _record(self, name: str, seconds: float, labels: dict[str, Any], outcome: _Outcome) -> None:
        duration = self._durations.get(name)
        if duration is None:
            duration = self._durations[name] = self._meter.create_histogram(
                name,
                unit="s",
                description="How long MCP requests take.",
                explicit_bucket_boundaries_advisory=_BUCKETS,
            )
        if outcome.error is not None:
            labels["error.type"] = outcome.error
        if outcome.code is not None:
            labels["rpc.response.status_code"] = str(outcome.code)
        duration.record(seconds, labels)


@final
class TracedClient:
    """A client whose calls are recorded. Every other attribute is the client's own."""

    def __init__(self, client: Client, telemetry: Telemetry) -> None:
        self._client = client
        self._telemetry = telemetry

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Json] | None = None,
        **more: Any,
    ) -> Any:
        """`Client.call_tool`, recorded; the trace goes along in `_meta`."""
        return await self._telemetry.observe(
            self._client,
            "tools/call",
            lambda carried: self._client.call_tool(name, arguments, meta=carried, **more),
            meta=meta,
            tool=name,
        )

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        meta: Mapping[str, Json] | None = None,
        **more: Any,
    ) -> Any:
        """`Client.get_prompt`, recorded; the trace goes along in `_meta`."""
        return await self._telemetry.observe(
            self._client,
            "prompts/get",
            lambda carried: self._client.get_prompt(name, arguments, meta=carried, **more),
            meta=meta,
            prompt=name,
        )

    async def read_resource(
        self, uri: str, *, fresh: bool = False, meta: Mapping[str, Json] | None = None, **more: Any
    ) -> Any:
        """`Client.read_resource`, recorded. With `fresh=True` the trace goes along in `_meta`.

        Otherwise it does not: the client caches by request, and no two traces are the same.
        """
        return await self._telemetry.observe(
            self._client,
            "resources/read",
            lambda carried: self._client.read_resource(uri, fresh=fresh, meta=carried if fresh else meta, **more),
            meta=meta,
            uri=uri,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __repr__(self) -> str:
        return f"<TracedClient of {self._client!r}>"


@final
class AccessLog:
    """One line of JSON per call, to a logger (`trimaran.access`, level INFO) or a function of your own.

    Attach it after `Telemetry`, and its lines name the trace.
    """

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._write = logging.getLogger("trimaran.access").info if write is None else write

    def attach(self, server: Server) -> None:
        """Log every call of this server."""

        async def record(call: IncomingCall, call_next: Serve, /) -> Any:
            started = time.perf_counter()
            outcome = _Outcome()
            try:
                result = await call_next(call)
                outcome = _Outcome.of_result(result)
                return result
            except BaseException as error:
                outcome = _Outcome.of_error(error)
                raise
            finally:
                self._write(_line(call, outcome, time.perf_counter() - started))

        server.runtime.dispatcher.use(record, None)  # where it is mounted, the outer server records


def _line(call: IncomingCall, outcome: _Outcome, seconds: float) -> str:
    info, session = call.peer.info, call.session
    fields: dict[str, Json] = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "method": call.method,
        "target": _target(call),
        "id": call.id,
        "ms": round(seconds * 1000, 3),
        "outcome": outcome.error or "ok",
        "version": call.peer.version,
        "client": None if info is None else f"{info.name}/{info.version}"[:_MAX_NAME],
        # Enough to tell sessions apart; the whole of it would be a credential in a log.
        "session": None if session is None else session.id[:8],
        "subject": getattr(call.principal, "subject", None),
        "trace": _trace_id(call),
    }
    # Encoded, so that no name can start a new line.
    return msgspec.json.encode({k: v for k, v in fields.items() if v is not None}).decode()


_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*", re.DOTALL)


def _trace_id(call: IncomingCall) -> str | None:
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        current = trace.get_current_span().get_span_context()
        if current.is_valid:
            return format(current.trace_id, "032x")
    sent = call.meta.get("traceparent")
    match = _TRACEPARENT.fullmatch(sent) if isinstance(sent, str) else None
    return None if match is None else match[1]


def _target(call: IncomingCall) -> str | None:
    target = getattr(call.params, "name", None) or getattr(call.params, "uri", None)
    return target[:_MAX_NAME] if isinstance(target, str) else None


def _described(server: Server, call: IncomingCall) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A span's name and attributes, and the attributes that may label a metric."""
    method, params = call.method, call.params
    labels: dict[str, Any] = {"mcp.method.name": method, "mcp.protocol.version": call.peer.version}
    if call.headers is not None:
        labels.update({"network.transport": "tcp", "network.protocol.name": "http"})
    extra: dict[str, Any] = {"jsonrpc.request.id": str(call.id)[:_MAX_NAME]}
    if call.session is not None:
        extra["mcp.session.id"] = call.session.id
    name = method
    if method == "tools/call":
        labels["gen_ai.operation.name"] = "execute_tool"
        name = _named(name, "gen_ai.tool.name", params.name, server.tools.get(params.name) is not None, labels, extra)
    elif method == "prompts/get":
        known = server.prompts.get(params.name) is not None
        name = _named(name, "gen_ai.prompt.name", params.name, known, labels, extra)
    elif method == "resources/read":
        extra["mcp.resource.uri"] = params.uri[:2048]
    return name, {**labels, **extra}, labels


def _named(method: str, key: str, name: str, is_known: bool, labels: dict[str, Any], extra: dict[str, Any]) -> str:
    (labels if is_known else extra)[key] = name[:_MAX_NAME]
    return f"{method} {name[:_MAX_NAME]}" if is_known else method


async def _whole(call_next: Serve, call: IncomingCall) -> Any:
    return await call_next(call)


@types.coroutine
def _within(context: contextvars.Context, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Run every step of a coroutine in its own context, in any task."""
    step: Callable[..., Any] = coroutine.send
    argument: Any = None
    while True:
        try:
            awaited = context.run(step, argument)
        except StopIteration as done:
            return cast("T", done.value)
        try:
            argument = yield awaited
            step = coroutine.send
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as error:
            step, argument = coroutine.throw, error
