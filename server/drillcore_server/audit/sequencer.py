"""The sequencer: the server that holds the lease puts audit records in order.

Every transaction reads and writes the lease. A server that was paused or cut off for longer than its lease finds the
epoch of another server, or conflicts with it, and stops. A commit with an unknown result is re-run from the place of
the lease. So no leaf is lost, doubled or misplaced.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import structlog

from drillcore_fdb.engine import Engine, Figures, Options, Transaction
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.log_store import Lease
from drillcore_server.audit.log_writer import Appended, LogWriter
from drillcore_server.storage.keyspace import Keyspace

Alert = Callable[[str, dict[str, Any]], None]
"""Reports what is wrong: its kind, and details. Called from the log's threads, never inside a transaction."""

POLL_S: Final = 0.2
GATHER_S: Final = 0.02
"""Time from a nudge to the transaction, so that records that come together are put in order together."""
MEND_EVERY_S: Final = 60.0
"""How often stopped logs are tried again."""
LOG_STOPPED: Final = "audit log stopped"


class Sequencer:
    def __init__(
        self,
        engine: Engine,
        keys: Keyspace,
        writer: LogWriter,
        lease_s: float,
        log: structlog.stdlib.BoundLogger,
        on_alert: Alert,
        *,
        alone: bool = False,
    ) -> None:
        """`alone` means that no other server can have the store open, so another owner of the lease is gone."""
        self._engine = engine
        self._keys = keys
        self._writer = writer
        self._lease = timedelta(seconds=lease_s)
        self._log = log
        self._on_alert = on_alert
        self._alone = alone
        self.owner = uuid4()
        self.epoch: int | None = None
        """The epoch of this server's lease; None without a lease."""
        self._grown: set[UUID] = set()
        self._alerted: set[UUID | None] = set()
        self._mended_at_s = 0.0
        self.wake = threading.Event()
        self._progress = threading.Condition()
        self._totals = {"records": 0.0, "batches": 0.0, "failures": 0.0}

    def release(self) -> None:
        """Lets another server begin at once. Raises `EngineError`."""
        now = datetime.now(UTC)
        self._engine.run(lambda tr: self._give_away(tr, now), Options(idempotent=True))

    def nudge(self) -> None:
        """Tells the sequencer that there is a new record. Very fast; may be called from any thread."""
        if self.epoch is not None:  # else it is put in order by another server, or by the next poll
            self.wake.set()

    def wait(self, timeout_s: float) -> None:
        """Waits until this server has put something in order, or the time is over."""
        with self._progress:
            self._progress.wait(timeout_s)

    def take_grown(self) -> set[UUID]:
        """The logs that grew since the last call."""
        with self._progress:
            grown, self._grown = self._grown, set()
        return grown

    def step(self) -> Appended | None:
        """Puts the next batch in order. None if another server has the lease. Raises `EngineError`."""
        now = datetime.now(UTC)
        done = self._engine.run(lambda tr: self._step(tr, now), Options(idempotent=True))
        if done is None:
            self.epoch = None
            return None
        self.epoch, appended = done
        self._note(appended)
        return appended

    def keep(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Puts in order what is there, and tries logs that stopped again from time to time. Raises `EngineError`."""
        try:
            appended = self.drain(is_stopping)
            if appended is not None and time.monotonic() - self._mended_at_s > MEND_EVERY_S:
                self._mended_at_s = time.monotonic()
                self.mend(is_stopping)
        except Exception:
            self._totals["failures"] += 1
            raise

    def drain(self, is_stopping: Callable[[], bool] = lambda: False) -> Appended | None:
        """Puts in order what is there; None if another server has the lease. Raises `EngineError`."""
        while (appended := self.step()) is not None and appended.more and not is_stopping():
            continue
        return appended

    def mend(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Tries logs that stopped again. Raises `EngineError`."""
        stopped = self._engine.run(
            lambda tr: {log: head.problem for log, head in audit_log.heads(tr.snapshot, self._keys) if head.problem}
        )
        self._alerted -= {log for log in self._alerted if log is not None and log not in stopped}
        for log, problem in stopped.items():
            self._alert({log: problem})
            while self._mend_step(log).more and not is_stopping():
                continue

    def figures(self) -> Figures:
        gauges = {"sequencing": float(self.epoch is not None), "stopped_logs": float(len(self._alerted))}
        return Figures(gauges, self._totals)

    def _step(self, tr: Transaction, now: datetime) -> tuple[int, Appended] | None:
        tr.get_many([self._keys.audit_sequencer(), self._keys.audit_state()])
        held = audit_log.lease(tr, self._keys)
        mine = self._mine(held, now)
        if mine is None:
            return None
        new, done = self._writer.append(tr, mine)
        if new != held or new.until - now < self._lease / 2:
            audit_log.set_lease(tr, self._keys, replace(new, until=now + self._lease))
        return new.epoch, done

    def _mend_step(self, log: UUID) -> Appended:
        now = datetime.now(UTC)

        def work(tr: Transaction) -> Appended:
            held = audit_log.lease(tr, self._keys)
            mine = self._mine(held, now)
            if held is None or mine is None or mine.epoch != held.epoch:
                return Appended()
            return self._writer.catch_up(tr, held, log)

        done = self._engine.run(work, Options(idempotent=True))
        self._note(done)
        return done

    def _mine(self, held: Lease | None, now: datetime) -> Lease | None:
        """The lease, if this server has it or may take it. None otherwise."""
        if held is None:
            return Lease(1, self.owner, now + self._lease)
        if held.owner == self.owner:
            return held
        if now < held.until and not self._alone:
            return None
        return replace(held, epoch=held.epoch + 1, owner=self.owner, until=now + self._lease)

    def _give_away(self, tr: Transaction, now: datetime) -> None:
        held = audit_log.lease(tr, self._keys)
        if held is not None and held.owner == self.owner:
            audit_log.set_lease(tr, self._keys, replace(held, until=now))

    def _note(self, done: Appended) -> None:
        self._alert(done.problems)
        if not done.records:
            return
        self._totals["records"] += done.records
        self._totals["batches"] += 1
        self._alerted.discard(None)
        with self._progress:
            self._grown |= done.sizes.keys()
            self._progress.notify_all()

    def _alert(self, problems: dict[UUID, str] | dict[UUID | None, str]) -> None:
        for log, problem in problems.items():
            if log not in self._alerted:
                self._alerted.add(log)
                self._log.error(LOG_STOPPED, audit_log=str(log or "every log"), problem=problem)
                self._on_alert(LOG_STOPPED, {"log": str(log or "every log"), "problem": problem})
