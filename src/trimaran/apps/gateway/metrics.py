"""Figures of a gateway, for Prometheus.

    trimaran_gateway_calls_total{server,tool,status}    trimaran_gateway_call_seconds{server,tool}
    trimaran_gateway_errors_total{server,kind}          trimaran_gateway_server_up{server}
    trimaran_gateway_tools{server}                      trimaran_gateway_children{server}
    trimaran_gateway_connections{server,kind}           trimaran_gateway_parked_calls{server}
    trimaran_gateway_sessions{endpoint}                 trimaran_gateway_streams{endpoint}

Names of tools come from the catalogs of servers and never from callers, and kinds are words of ours, so no caller can make up
time series. A server that keeps renaming its tools fills a bounded table; what comes then is counted as the tool "other". Needs the extra
`gateway`; a gateway without it serves all the same, and counts nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, Final, Protocol, final

from trimaran.errors import ConfigError

# Seconds; a relayed call takes a millisecond, a build takes minutes.
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_BOUNDS: Final = (*map(str, _BUCKETS), "+Inf")

# Each takes some hundred bytes, for good; a thousand tools with every status are a third of it.
_MOST_SERIES: Final = 20_000
_OTHER: Final = "other"


class Observed(Protocol):
    """What is open and at work: the name of a figure after `trimaran_gateway_`, its labels, its value."""

    def __call__(self) -> Iterable[tuple[str, dict[str, str], float]]: ...


_GAUGES: Final = {
    "server_up": "1 if the server answers, else 0.",
    "tools": "Tools that the server lists.",
    "children": "Child processes of the server.",
    "connections": "Connections to the server, shared or of single users.",
    "parked_calls": "Calls of the server that wait for an answer of their caller.",
    "sessions": "Sessions of clients of older revisions.",
    "streams": "Open response streams.",
}


@final
class _Durations:
    """How long the calls of one tool took."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.sum = 0.0


@final
class _Series:
    """The calls of one tool that ended in one way."""

    __slots__ = ("count", "durations")

    def __init__(self, durations: _Durations) -> None:
        self.count = 0
        self.durations = durations


@final
class Metrics:
    """The figures of one gateway.

    Raises:
        ConfigError: the client library of Prometheus is not installed.
    """

    def __init__(self, observe: Observed) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError:
            raise ConfigError('/metrics needs the client of Prometheus: pip install "trimaran[gateway]"') from None
        self._prometheus = prometheus
        self._registry = prometheus.CollectorRegistry()
        self._registry.register(_Calls(self))
        self._registry.register(_Gauges(observe))
        self.calls: dict[tuple[str, str, str], _Series] = {}
        """By server, tool and status."""
        self.durations: dict[tuple[str, str], _Durations] = {}
        """By server and tool."""
        self.errors: Counter[tuple[str, str]] = Counter()
        """By server and kind."""
        self.content_type: str = prometheus.CONTENT_TYPE_LATEST

    def count(self, server: str, tool: str, status: str, kind: str, seconds: float) -> None:
        """Count one call that is over."""
        key = (server, tool, status)
        series = self.calls.get(key)
        if series is None:
            if len(self.calls) >= _MOST_SERIES:
                key = (server, _OTHER, status)
            series = self.calls.setdefault(key, _Series(self.durations.setdefault(key[:2], _Durations())))
        series.count += 1
        durations = series.durations
        durations.sum += seconds
        durations.counts[bisect_left(_BUCKETS, seconds)] += 1
        if kind:
            self.errors[server, kind] += 1

    def render(self) -> bytes:
        """All figures in the text format."""
        return self._prometheus.generate_latest(self._registry)


@final
class _Calls:
    """Collects the calls that are over.

    They are counted here: the library's own counters take a lock, and some microseconds, for each call.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        metrics = self._metrics
        calls = CounterMetricFamily(
            "trimaran_gateway_calls", "Calls, by how they ended.", labels=("server", "tool", "status")
        )
        for labels, series in metrics.calls.items():
            calls.add_metric(labels, series.count)
        errors = CounterMetricFamily(
            "trimaran_gateway_errors", "Calls that failed, by what went wrong.", labels=("server", "kind")
        )
        for labels, count in metrics.errors.items():
            errors.add_metric(labels, count)
        seconds = HistogramMetricFamily(
            "trimaran_gateway_call_seconds", "How long calls took.", labels=("server", "tool")
        )
        for labels, durations in metrics.durations.items():
            seconds.add_metric(labels, list(zip(_BOUNDS, accumulate(durations.counts), strict=True)), durations.sum)
        return calls, errors, seconds


@final
class _Gauges:
    """Collects what is open at the moment somebody asks."""

    def __init__(self, observe: Observed) -> None:
        self._observe = observe

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, Any] = {}
        for name, labels, value in self._observe():
            family = families.get(name)
            if family is None:
                whole = f"trimaran_gateway_{name}"
                family = families[name] = GaugeMetricFamily(whole, _GAUGES[name], labels=list(labels))
            family.add_metric(list(labels.values()), value)
        return families.values()
