"""Structured logs and Prometheus metrics of one server, and how failures are logged. None of these contains content.

A log line is one event: ids, names, times and outcomes. Metrics have no labels with ids: only methods, outcomes and
names of keepers.
"""

from __future__ import annotations

import enum
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self, TextIO
from wsgiref.simple_server import WSGIServer

import orjson
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drillcore_fdb.engine import Figures
from drillcore_fdb.errors import EngineError
from drillcore_fdb.round_trips import RoundTrips
from drillcore_server.kernel.errors import Refused


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
_BUCKETS_TRIPS = (2, 4, 6, 8, 10, 12, 15, 20, 30, 50, 100, 300, 1000)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter("drillcore_calls", "Calls answered", ["method", "outcome"], registry=self.registry)
        self._seconds = Histogram(
            "drillcore_call_seconds", "Time to answer", ["method"], buckets=_BUCKETS_S, registry=self.registry
        )
        self._round_trips = Histogram(
            "drillcore_call_round_trips",
            "Times that a call waited for the store, one after the other",
            ["method"],
            buckets=_BUCKETS_TRIPS,
            registry=self.registry,
        )
        self._transactions = Counter(
            "drillcore_call_transactions", "Transactions that calls ran", ["method"], registry=self.registry
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

    def observe_call(self, method: str, outcome: str, seconds: float, trips: RoundTrips) -> None:
        self._calls.labels(method, outcome).inc()
        self._seconds.labels(method).observe(seconds)
        self._round_trips.labels(method).observe(trips.count)
        self._transactions.labels(method).inc(trips.transactions)

    def follow(self, what: str, figures: Callable[[], Figures]) -> None:
        """Adds the figures of a part of the server to the metrics. They are read whenever the metrics are."""
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


_FRAMES: Final = 12


def error_fields(error: BaseException) -> dict[str, Any]:
    """The fields of a log line about an exception: its type and where it was raised, but not its text.

    The text may quote content. Messages of the engine and reasons of refusals never do, so they are included.
    """
    said: dict[str, Any] = {"error": type(error).__name__, "at": _place(error)}
    if isinstance(error, EngineError):
        said |= {"message": error.message, "code": error.code}
    elif isinstance(error, Refused):
        said["reason"] = error.reason.name
    return said


def _place(error: BaseException) -> str:
    """The last calls of the traceback, innermost last: `keepers.py:71 trim > trim.py:140 trim_corpora`."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)


class Round:
    """Work on many corpora in which the failure of one corpus does not stop the work on the others.

    Each failure is logged. At the end of the block the round raises an `ExceptionGroup` with all failures, so that it
    counts as failed and is tried again.

        with Round(log, "corpus not trimmed, will try again") as trims:
            for corpus in corpora:
                with trims.part(corpus_id=str(corpus.id)):
                    trim(corpus)
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, event: str) -> None:
        self._log = log
        self._event = event
        self._failures: list[Exception] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None and self._failures:
            raise ExceptionGroup(self._event, self._failures)

    @contextmanager
    def part(self, **about: str) -> Iterator[None]:
        """Logs every exception of its block and goes on. `about` names the part in the log."""
        try:
            yield
        except Exception as error:
            self._failures.append(error)
            self._log.warning(self._event, **about, **error_fields(error))
