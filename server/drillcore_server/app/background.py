"""Runs every keeper of a server: a named piece of background work that is repeated until the server stops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import structlog

from drillcore_server.kernel.telemetry import error_fields

RETRY_S: Final = 0.25
"""The wait after the first failure. It doubles with each further failure."""
RETRY_MAX_S: Final = 10.0
"""The longest wait after a failure, unless the keeper's own interval is longer."""

Work = Callable[[datetime], object]
"""One round of a keeper. Gets the time, does all work that is due by then, and raises if it could not do all of it."""
Report = Callable[[str, bool], None]
"""Called after each round with the keeper's name and whether the round succeeded."""


@dataclass(slots=True)
class _Keeper:
    name: str
    work: Work
    every_s: float
    wake: threading.Event
    gather_s: float
    failures: int = field(default=0, init=False)
    """The number of failed rounds since the last success."""

    @property
    def retry_s(self) -> float:
        longest = max(self.every_s, RETRY_MAX_S)
        return min(RETRY_S * 2.0 ** min(self.failures - 1, 60), longest)


class Background:
    """`add` keepers, then `start`, then `stop`. Each keeper has a thread of its own.

    A keeper does its first round at the start, and then one every `every_s`, or sooner if it is woken. A round that
    raises is logged and tried again, after a longer wait each time. No exception ends a keeper.
    """

    def __init__(
        self,
        log: structlog.stdlib.BoundLogger,
        report: Report = lambda _name, _succeeded: None,
        stopping: threading.Event | None = None,
    ) -> None:
        """Long rounds look at `stopping` and return soon once it is set. Whoever sets it calls `stop` in the end."""
        self.stopping = stopping or threading.Event()
        self._log = log
        self._report = report
        self._keepers: list[_Keeper] = []
        self._threads: list[threading.Thread] = []

    def add(
        self, name: str, work: Work, every_s: float, wake: threading.Event | None = None, gather_s: float = 0.0
    ) -> None:
        """Adds a keeper. Setting `wake` begins a round after `gather_s`, which collects the work of that time."""
        self._keepers.append(_Keeper(name, work, every_s, wake or threading.Event(), gather_s))

    def start(self) -> None:
        for keeper in self._keepers:
            thread = threading.Thread(
                target=self._run, args=(keeper,), name=f"drillcore-keeper-{keeper.name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Returns when the rounds under way have ended."""
        self.stopping.set()
        for keeper in self._keepers:
            keeper.wake.set()
        for thread in self._threads:
            thread.join()

    def _run(self, keeper: _Keeper) -> None:
        while not self.stopping.is_set():
            if self._succeeds(keeper):
                self._await_next(keeper)
            else:
                self.stopping.wait(keeper.retry_s)

    def _await_next(self, keeper: _Keeper) -> None:
        if keeper.wake.wait(keeper.every_s):
            self.stopping.wait(keeper.gather_s)
            keeper.wake.clear()

    def _succeeds(self, keeper: _Keeper) -> bool:
        try:
            keeper.work(datetime.now(UTC))
        except Exception as error:
            keeper.failures += 1
            self._log_failure(keeper, error)
        else:
            keeper.failures = 0
        self._report(keeper.name, keeper.failures == 0)
        return keeper.failures == 0

    def _log_failure(self, keeper: _Keeper, error: Exception) -> None:
        if self.stopping.is_set():
            self._log.info(
                "a keeper was interrupted: the server is stopping", keeper=keeper.name, **error_fields(error)
            )
            return
        about = {"keeper": keeper.name, "failures_in_a_row": keeper.failures, "retry_s": keeper.retry_s}
        self._log.error("a keeper failed, will try again", **about, **error_fields(error))
