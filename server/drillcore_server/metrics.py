"""Prometheus metrics of one server. No labels with ids or content: method, outcome and engine totals only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drillcore_fdb.engine import Figures

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter("drillcore_calls", "Calls answered", ["method", "outcome"], registry=self.registry)
        self._seconds = Histogram(
            "drillcore_call_seconds", "Time to answer", ["method"], buckets=_BUCKETS_S, registry=self.registry
        )
        self.lockouts = Counter(
            "drillcore_account_lockouts", "Accounts locked after wrong passwords", registry=self.registry
        )

        self.quarantines = Counter(
            "drillcore_facts_quarantined",
            "Facts put into quarantine: somebody should review them",
            registry=self.registry,
        )

    def observe_call(self, method: str, outcome: str, seconds: float) -> None:
        self._calls.labels(method, outcome).inc()
        self._seconds.labels(method).observe(seconds)

    def follow(self, what: str, figures: Callable[[], Figures]) -> None:
        """Asks a part of the server for its figures whenever the metrics are read."""
        self.registry.register(_FiguresCollector(what, figures))

    def serve(self, host: str, port: int) -> WSGIServer:
        server, _ = start_http_server(port, host, self.registry)
        return server


class _FiguresCollector(Collector):
    def __init__(self, what: str, figures: Callable[[], Figures]) -> None:
        self._what = what
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        for name, value in figures.gauges.items():
            yield GaugeMetricFamily(f"drillcore_{self._what}_{name}", f"{self._what}: {name}", value=value)
        for name, value in figures.totals.items():
            said = f"{self._what}: {name} since the start"
            yield CounterMetricFamily(f"drillcore_{self._what}_{name}", said, value=value)
