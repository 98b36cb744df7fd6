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

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, final

from trimaran.errors import ConfigError

# Seconds; a relayed call takes a millisecond, a build takes minutes.
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


_MOST_SERIES: Final = 20_000  # each takes some KB, for good; a thousand tools with every status are a third of it
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
        self._calls = prometheus.Counter(
            "trimaran_gateway_calls", "Calls, by how they ended.", ("server", "tool", "status"), registry=self._registry
        )
        self._errors = prometheus.Counter(
            "trimaran_gateway_errors",
            "Calls that failed, by what went wrong.",
            ("server", "kind"),
            registry=self._registry,
        )
        self._seconds = prometheus.Histogram(
            "trimaran_gateway_call_seconds",
            "How long calls took.",
            ("server", "tool"),
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._registry.register(_Gauges(observe))
        self._known: dict[tuple[str, str, str], tuple[Callable[[], None], Callable[[float], None]]] = {}
        self.content_type: str = prometheus.CONTENT_TYPE_LATEST

    def count(self, server: str, tool: str, status: str, kind: str, seconds: float) -> None:
        """Count one call that is over."""
        key = (server, tool, status)
        known = self._known.get(key)
        if known is None and len(self._known) >= _MOST_SERIES:
            tool, key = _OTHER, (server, _OTHER, status)
            known = self._known.get(key)
        if known is None:  # the library looks labels up under a lock
            counted, timed = self._calls.labels(*key), self._seconds.labels(server, tool)
            known = self._known[key] = (counted.inc, timed.observe)
        known[0]()
        known[1](seconds)
        if kind:
            self._errors.labels(server, kind).inc()

    def render(self) -> bytes:
        """All figures in the text format."""
        return self._prometheus.generate_latest(self._registry)


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
