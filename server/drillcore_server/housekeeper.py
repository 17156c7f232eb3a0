"""What a server does by itself from time to time: forgets, trims, and finishes what erasures left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import EngineError
from drillcore_server.commands.erasing import finish_erasures
from drillcore_server.commands.forget_challenges import forget_challenges
from drillcore_server.commands.forget_envelopes import forget_envelopes
from drillcore_server.commands.forget_requests import forget_requests
from drillcore_server.commands.forget_sessions import forget_sessions
from drillcore_server.commands.purging import purge_due
from drillcore_server.commands.trim_corpora import record_trim, trim_corpora
from drillcore_server.commands.unit import Unit
from drillcore_server.store.keyring import Keyring

_EVERY_S = 3_600.0


class Housekeeper:
    def __init__(
        self,
        engine: Engine,
        unit: Unit,
        keyring: Keyring,
        request_retention: timedelta,
        sweep_sessions: Callable[[datetime], object],
        log: structlog.stdlib.BoundLogger,
        stopping: threading.Event,
    ) -> None:
        self._engine = engine
        self._unit = unit
        self._keyring = keyring
        self._retention = request_retention
        self._sweep_sessions = sweep_sessions
        self._log = log
        self._stopping = stopping
        self._thread = threading.Thread(target=self._run, name="drillcore-housekeeper", daemon=True)

    def start(self) -> None:
        self.finish_erasures()
        self._thread.start()

    def join(self) -> None:
        """Once it was told to stop."""
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            try:
                self._keep(datetime.now(UTC))
            except EngineError as error:
                self._log.warning("housekeeping failed, will try again", error=error.message, code=error.code)

    def _keep(self, now: datetime) -> None:
        keys = self._unit.keys
        forgotten = forget_requests(self._engine, keys, now - self._retention)
        sessions = forget_sessions(self._engine, keys, now - self._retention)
        forget_challenges(self._engine, keys, now)
        self._sweep_sessions(now)
        envelopes = forget_envelopes(self._engine, keys, now)
        counts = {"requests": forgotten, "sessions": sessions, "envelopes": envelopes}
        self._log.info("housekeeping", **{f"{name}_forgotten": count for name, count in counts.items()})
        self._trim(now)
        self.finish_erasures()
        self._purge(now)

    def _trim(self, now: datetime) -> None:
        unit = self._unit
        for corpus, done in trim_corpora(self._engine, unit.keys, now, self._stopping.is_set, unit.residency):
            if isinstance(done, EngineError):
                error = {"error": done.message, "code": done.code}
                self._log.warning("trimming failed, will try again", corpus_id=str(corpus.id), **error)
            elif done.removed:
                record_trim(unit, corpus, done, now)
                counts = {"oldest_revision": done.oldest, "records_removed": done.removed}
                self._log.info("trimmed", tenant_id=str(corpus.tenant_id), corpus_id=str(corpus.id), **counts)

    def finish_erasures(self) -> None:
        """Destroys keys that a server which died left. Until then they are not used: that they are erased is noted."""
        try:
            finished = finish_erasures(self._engine, self._unit.keys, self._keyring, datetime.now(UTC))
        except EngineError as error:
            self._log.warning("erased keys not destroyed yet, will try again", error=error.message, code=error.code)
            return
        if finished:
            self._log.info("erased keys destroyed", erasures=finished)

    def _purge(self, now: datetime) -> None:
        for corpus, done in purge_due(self._engine, self._unit, now, self._stopping.is_set):
            if isinstance(done, EngineError):
                self._log.warning("purging failed, will try again", corpus_id=str(corpus), error=done.message)
            else:
                self._log.info("purged", corpus_id=str(corpus), erasures=done.erasures, records_removed=done.records)
