"""The thread that keeps facts: marks those stale that have expired, and archives those that nobody reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from drillcore_fdb.errors import EngineError
from drillcore_server.commands.archive_unread import Archiver
from drillcore_server.commands.fact_keeper import FactKeeper
from drillcore_server.commands.sweep_facts import ExpirySweep
from drillcore_server.commands.trim_corpora import each_corpus
from drillcore_server.config import FactSettings
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import Refused


class FactHousekeeper:
    def __init__(self, keeper: FactKeeper, settings: FactSettings, log: structlog.stdlib.BoundLogger) -> None:
        self._keeper = keeper
        self._every_s = settings.sweep_every_s
        self._log = log
        self._sweep = ExpirySweep(keeper)
        self._archiver = Archiver(keeper, timedelta(days=settings.archive_after_days))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drillcore-facts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends it after the revision that it is at."""
        self._stopping.set()
        self._thread.join()

    def keep(self, now: datetime) -> None:
        """Looks at every corpus once. One that fails does not keep the others from it."""
        unit = self._keeper.desk.library.unit
        for corpus in each_corpus(self._keeper.engine, unit.keys, unit.residency):
            if self._stopping.is_set():
                return
            self._do("facts made stale", corpus, lambda one: self._sweep.sweep(one, now, self._stopping.is_set))
            self._do("facts archived", corpus, lambda one: self._archiver.archive(one, now, self._stopping.is_set))

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self.keep(datetime.now(UTC))
            except EngineError as error:
                self._log.warning("facts not kept, will try again", error=error.message, code=error.code)

    def _do(self, what: str, corpus: Corpus, work: Callable[[Corpus], int]) -> None:
        try:
            count = work(corpus)
        except Refused as refused:  # deleted meanwhile, or others keep changing it: the next round will tell
            self._log.info("facts not kept, will try again", corpus_id=str(corpus.id), reason=refused.reason.name)
        except EngineError as error:
            said = {"error": error.message, "code": error.code}
            self._log.warning("facts not kept, will try again", corpus_id=str(corpus.id), **said)
        else:
            if count:
                self._log.info(what, tenant_id=str(corpus.tenant_id), corpus_id=str(corpus.id), facts=count)
