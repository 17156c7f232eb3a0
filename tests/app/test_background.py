"""The runner of keepers: no exception ends a keeper, and metrics show when each keeper last succeeded."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from drillcore_fdb.errors import UnavailableError
from drillcore_proto.reasons import Reason
from drillcore_server.app import background as background_module
from drillcore_server.app.background import Background, Work
from drillcore_server.kernel.errors import Refused, Unavailable
from drillcore_server.kernel.telemetry import LogFormat, Metrics, Round, make_logger
from tests.support.stores.stores import wait_until

FAILURES = [Refused(Reason.AUDIT_UNAVAILABLE, "not now"), OSError("no room: SECRET"), UnavailableError("gone")]


@dataclass
class Watched:
    output: io.StringIO = field(default_factory=io.StringIO)
    reports: list[tuple[str, bool]] = field(default_factory=list)

    @contextmanager
    def running(self, work: Work, every_s: float = 1000.0, **more: Any) -> Iterator[Background]:
        log = make_logger(LogFormat.JSON, self.output)
        background = Background(log, lambda name, succeeded: self.reports.append((name, succeeded)))
        background.add("tidy", work, every_s, **more)
        background.start()
        try:
            yield background
        finally:
            background.stop()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.getvalue().splitlines()]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def failing(times: int, error: Exception) -> tuple[Work, Callable[[], int]]:
    """Work that fails the given number of times, and a function that counts its runs."""
    done: list[datetime] = []

    def work(now: datetime) -> None:
        done.append(now)
        if len(done) <= times:
            raise error

    return work, lambda: len(done)


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_keeper_survives_every_exception_and_goes_on(watched: Watched, error: Exception) -> None:
    work, count = failing(2, error)
    with watched.running(work):
        wait_until(lambda: count() == 3, "it goes on after two failures")
    assert watched.reports == [("tidy", False), ("tidy", False), ("tidy", True)]


def test_a_failure_is_logged_with_its_place_and_without_its_text(watched: Watched) -> None:
    work, count = failing(1, OSError("no room: SECRET"))
    with watched.running(work):
        wait_until(lambda: count() == 2, "it goes on")
    (line,) = watched.lines()
    assert (line["keeper"], line["error"], line["failures_in_a_row"]) == ("tidy", "OSError", 1)
    assert "test_background.py:" in line["at"]
    assert "SECRET" not in watched.output.getvalue()


def test_the_wait_grows_with_each_failure_up_to_a_limit(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_module, "RETRY_S", 0.01)
    monkeypatch.setattr(background_module, "RETRY_MAX_S", 0.04)
    work, count = failing(5, OSError())
    with watched.running(work, every_s=0.03):
        wait_until(lambda: count() > 5, "it goes on")
    assert [line["retry_s"] for line in watched.lines()] == [0.01, 0.02, 0.04, 0.04, 0.04]


def test_due_work_is_done_right_after_the_start(watched: Watched) -> None:
    work, count = failing(0, OSError())
    with watched.running(work, every_s=1000.0):
        wait_until(lambda: count() == 1, "it does not wait for its interval")


def test_a_keeper_that_is_woken_does_not_wait_for_its_interval(watched: Watched) -> None:
    wake = threading.Event()
    work, count = failing(0, OSError())
    with watched.running(work, every_s=1000.0, wake=wake):
        for round_ in range(1, 4):
            wait_until(lambda round_=round_: count() == round_, "the work is done")  # type: ignore[misc]
            wake.set()


def test_a_keeper_stops_at_once_while_it_waits(watched: Watched) -> None:
    work, count = failing(1000, Unavailable(Reason.STORE_UNAVAILABLE, "not now"))
    with watched.running(work):
        wait_until(lambda: count() >= 1, "it fails")
    assert not [thread for thread in threading.enumerate() if thread.name == "drillcore-keeper-tidy"]


def test_the_metrics_say_when_each_keeper_last_succeeded_and_how_often_it_failed() -> None:
    metrics, labels = Metrics(), {"keeper": "tidy"}
    metrics.observe_keeper("tidy", False)
    assert metrics.registry.get_sample_value("drillcore_keeper_last_success_timestamp_seconds", labels) == 0
    assert metrics.registry.get_sample_value("drillcore_keeper_failures_total", labels) == 1
    metrics.observe_keeper("tidy", True)
    assert metrics.registry.get_sample_value("drillcore_keeper_last_success_timestamp_seconds", labels) > 1e9  # type: ignore[operator]
    assert metrics.registry.get_sample_value("drillcore_keeper_failures_total", labels) == 1


def test_a_round_does_every_part_and_then_fails_with_all_that_failed(watched: Watched) -> None:
    done: list[int] = []

    def work() -> None:
        with Round(make_logger(LogFormat.JSON, watched.output), "not done") as parts:
            for number, error in enumerate([*FAILURES, None]):
                with parts.part(corpus_id=str(number)):
                    if error is not None:
                        raise error
                    done.append(number)

    with pytest.raises(ExceptionGroup) as failed:
        work()
    assert done == [3]
    assert list(failed.value.exceptions) == FAILURES
    assert [line["corpus_id"] for line in watched.lines()] == ["0", "1", "2"]
