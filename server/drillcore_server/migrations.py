"""The thread that goes on with changes of embedding models which a crash, or a model that failed, has interrupted."""

from __future__ import annotations

import threading
from typing import Final

import structlog

from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import EngineError
from drillcore_server.commands.migrate_embeddings import resume_migrations
from drillcore_server.commands.migrating import Migrator
from drillcore_server.domain.embeddings import Model
from drillcore_server.domain.errors import Refused
from drillcore_server.store.keyspace import Keyspace

_EVERY_S: Final = 60.0
"""After the start at once, then again and again: what failed may go on by then."""


class MigrationThread:
    def __init__(
        self,
        engine: Engine,
        keys: Keyspace,
        migrator: Migrator,
        own: Model,
        log: structlog.stdlib.BoundLogger,
        stopping: threading.Event,
    ) -> None:
        self._engine = engine
        self._keys = keys
        self._migrator = migrator
        self._own = own
        self._log = log
        self._stopping = stopping
        self._thread = threading.Thread(target=self._run, name="drillcore-migrator", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """After `stopping` was set; it ends with the slice that it is at."""
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._resume()
            except EngineError as error:
                self._log.warning("migrations not resumed, will try again", error=error.message, code=error.code)
            self._stopping.wait(_EVERY_S)

    def _resume(self) -> None:
        for corpus, done in resume_migrations(self._engine, self._keys, self._migrator, self._own):
            about = {"tenant_id": str(corpus.tenant_id), "corpus_id": str(corpus.id)}
            if isinstance(done, Refused):
                self._log.warning("migration interrupted, will try again", reason=done.reason.name, **about)
            else:
                self._log.info("migration finished", revision=done.revision, **about)
