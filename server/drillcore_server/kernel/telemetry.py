"""Structured logs and Prometheus metrics of one server. Neither contains content.

A log line is one event: ids, names, times and outcomes. Metrics have no labels with ids: only methods, outcomes and
names of keepers.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO
from wsgiref.simple_server import WSGIServer

import orjson
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drillcore_fdb.engine import Figures


def make_logger(log_format: LogFormat, stream: TextIO | None = None) -> structlog.stdlib.BoundLogger:
    """A logger that writes to `stream`, by default to standard error."""
    output = stream or sys.stderr
    render: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(_json)
        if log_format is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(colors=output.isatty())
    )
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(output),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            render,
        ],
        wrapper_class=structlog.BoundLogger,
    )
    return logger


def _json(event: dict[str, Any], **_options: Any) -> str:
    return orjson.dumps(event, default=repr).decode()


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
        self._keeper_successes = Gauge(
            "drillcore_keeper_last_success_timestamp_seconds",
            "When each keeper last did all that was due; 0 if it has not since the start",
            ["keeper"],
            registry=self.registry,
        )
        self._keeper_failures = Counter(
            "drillcore_keeper_failures", "Rounds of each keeper that failed", ["keeper"], registry=self.registry
        )

    def observe_keeper(self, keeper: str, succeeded: bool) -> None:
        last_success, failures = self._keeper_successes.labels(keeper), self._keeper_failures.labels(keeper)
        if succeeded:
            last_success.set_to_current_time()
        else:
            failures.inc()

    def observe_call(self, method: str, outcome: str, seconds: float) -> None:
        self._calls.labels(method, outcome).inc()
        self._seconds.labels(method).observe(seconds)

    def follow(self, what: str, figures: Callable[[], Figures]) -> None:
        """Includes the figures of a part of the server, which is asked whenever the metrics are read."""
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


class LogFormat(enum.Enum):
    JSON = "json"
    CONSOLE = "console"
