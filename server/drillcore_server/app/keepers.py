"""The keepers that maintain the store and belong to no single capability.

`StoreKeeper` looks whether the store answers. `Housekeeper` removes expired records, trims revisions, destroys erased
keys and purges erased bytes. `FactHousekeeper` marks expired facts STALE and archives facts that nobody reads.
`MigrationKeeper` continues interrupted migrations of embedding models. Each method with a parameter `now` is one round
of a keeper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import structlog

from drillcore_fdb.engine import Engine, Options
from drillcore_fdb.errors import StoreCorruptError, UnavailableError
from drillcore_fdb.format import find_header
from drillcore_server.app.background import Background
from drillcore_server.app.config import FactSettings
from drillcore_server.embeddings.migration import Migrator, resume_migrations
from drillcore_server.envelopes.read import forget_envelopes
from drillcore_server.erasure.destroy_keys import finish_erasures
from drillcore_server.erasure.purge import purge_due
from drillcore_server.facts.archive import Archiver
from drillcore_server.facts.keeper import ExpirySweep, FactKeeper
from drillcore_server.identity.sessions import forget_sessions
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Missing
from drillcore_server.kernel.telemetry import Round
from drillcore_server.kernel.unit import Unit, forget_outcomes
from drillcore_server.signatures.prepare import forget_challenges
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.tenancy.trim import each_corpus, record_trim, trim_corpora
from drillcore_server.vectors.model import Model

_EVERY_S = 3_600.0
_STORE_LOOK: Final = Options(timeout_s=3.0)
_MIGRATIONS_EVERY_S: Final = 60.0


class StoreKeeper:
    """Notices when the store no longer answers, or is no longer the one that was opened, and when it is back."""

    every_s: float = 5.0

    def __init__(self, engine: Engine, path: Sequence[str], store: UUID, tell: Callable[[bool, bool], object]) -> None:
        """`tell` is called after each look at the store: whether it answers, and whether it is sound as far as known.

        A store that does not answer may be as sound as before.
        """
        self._engine = engine
        self._path = path
        self._store = store
        self._tell = tell
        self._sound = True

    def join(self, background: Background) -> None:
        background.add("store", self.look, self.every_s)

    def look(self, _now: datetime) -> None:
        answers = False
        try:
            self._check()
            answers = self._sound = True
        except UnavailableError:
            self._sound = False
            raise
        finally:
            self._tell(answers, self._sound)

    def _check(self) -> None:
        header = find_header(self._engine, self._path, _STORE_LOOK)
        if header is None or header.store_id != self._store:
            place = "/".join(self._path)
            raise StoreCorruptError(
                f"the directory {place} is gone, or has another store; restore a backup of the store"
            )


class Housekeeper:
    def __init__(
        self,
        engine: Engine,
        unit: Unit,
        keyring: Keyring,
        request_retention: timedelta,
        sweep_sessions: Callable[[datetime], int],
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

    def join(self, background: Background) -> None:
        """Adds four keepers. They are separate, so that a failing keeper does not delay the others."""
        background.add("forgetting", self.forget, _EVERY_S)
        background.add("trimming", self.trim, _EVERY_S)
        background.add("key-destruction", self.destroy_keys, _EVERY_S)
        background.add("purging", self.purge, _EVERY_S)

    def forget(self, now: datetime) -> None:
        """Removes outcomes of requests, sessions, challenges and envelopes that have expired."""
        engine, keys, before = self._engine, self._unit.keys, now - self._retention
        jobs: dict[str, Callable[[], int]] = {
            "requests": lambda: forget_outcomes(engine, keys, before),
            "sessions": lambda: forget_sessions(engine, keys, before),
            "challenges": lambda: forget_challenges(engine, keys, now),
            "fact_sessions": lambda: self._sweep_sessions(now),
            "envelopes": lambda: forget_envelopes(engine, keys, now),
        }
        with Round(self._log, "forgetting failed, will try again") as forgets:
            for records, forget in jobs.items():
                with forgets.part(records=records):
                    if count := forget():
                        self._log.info("expired records removed", records=records, count=count)

    def trim(self, now: datetime) -> None:
        """Removes the revisions that no retention policy keeps, with an audit record for each corpus."""
        unit = self._unit
        with Round(self._log, "trimming failed, will try again") as trims:
            for corpus, done in trim_corpora(self._engine, unit.keys, now, self._stopping.is_set, unit.residency):
                with trims.part(corpus_id=str(corpus.id)):
                    if isinstance(done, Exception):
                        raise done
                    if done.removed:
                        record_trim(unit, corpus, done, now)
                        counts = {"oldest_revision": done.oldest, "records_removed": done.removed}
                        self._log.info("trimmed", tenant_id=str(corpus.tenant_id), corpus_id=str(corpus.id), **counts)

    def destroy_keys(self, now: datetime) -> None:
        """Destroys keys of erased sources if the server that erased them died first. No server uses these keys."""
        with Round(self._log, "keys not destroyed, will try again") as rounds:
            for number, done in finish_erasures(self._engine, self._unit.keys, self._keyring, now):
                with rounds.part(corpus_number=str(number)):
                    if isinstance(done, Exception):
                        raise done
                    if done:
                        self._log.info("erased keys destroyed", corpus_number=number, erasures=done)

    def purge(self, now: datetime) -> None:
        """Removes the bytes that erased sources left, once the days until their purge are over."""
        with Round(self._log, "purging failed, will try again") as purges:
            for corpus, done in purge_due(self._engine, self._unit, now, self._stopping.is_set):
                with purges.part(corpus_id=str(corpus)):
                    if isinstance(done, Exception):
                        raise done
                    counts = {"erasures": done.erasures, "records_removed": done.records}
                    self._log.info("purged", corpus_id=str(corpus), **counts)


class FactHousekeeper:
    def __init__(
        self,
        keeper: FactKeeper,
        settings: FactSettings,
        log: structlog.stdlib.BoundLogger,
        stopping: threading.Event,
    ) -> None:
        self._keeper = keeper
        self._every_s = settings.sweep_every_s
        self._log = log
        self._stopping = stopping
        self._sweep = ExpirySweep(keeper)
        self._archiver = Archiver(keeper, timedelta(days=settings.archive_after_days))

    def join(self, background: Background) -> None:
        background.add("facts", self.keep, self._every_s)

    def keep(self, now: datetime) -> None:
        """Marks expired facts STALE and archives unread facts, in every corpus."""
        unit, stopping = self._keeper.unit, self._stopping.is_set
        with Round(self._log, "upkeep of facts failed, will try again") as rounds:
            for corpus in each_corpus(self._keeper.engine, unit.keys, unit.residency):
                if stopping():
                    return
                with rounds.part(corpus_id=str(corpus.id)):
                    self._log_count("facts made stale", corpus, lambda found: self._sweep.sweep(found, now, stopping))
                with rounds.part(corpus_id=str(corpus.id)):
                    self._log_count(
                        "facts archived", corpus, lambda found: self._archiver.archive(found, now, stopping)
                    )

    def _log_count(self, event: str, corpus: Corpus, work: Callable[[Corpus], int]) -> None:
        try:
            count = work(corpus)
        except Missing:  # the corpus was deleted in the meantime
            return
        if count:
            self._log.info(event, tenant_id=str(corpus.tenant_id), corpus_id=str(corpus.id), facts=count)


class MigrationKeeper:
    def __init__(
        self, engine: Engine, keys: Keyspace, migrator: Migrator, own: Model, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._engine = engine
        self._keys = keys
        self._migrator = migrator
        self._own = own
        self._log = log

    def join(self, background: Background) -> None:
        background.add("migrations", self.resume, _MIGRATIONS_EVERY_S)

    def resume(self, _now: datetime) -> None:
        """Continues every unfinished migration."""
        with Round(self._log, "migration interrupted, will try again") as migrations:
            for corpus, done in resume_migrations(self._engine, self._keys, self._migrator, self._own):
                about = {"tenant_id": str(corpus.tenant_id), "corpus_id": str(corpus.id)}
                with migrations.part(**about):
                    if isinstance(done, Exception):
                        raise done
                    self._log.info("migration finished", revision=done.revision, **about)
