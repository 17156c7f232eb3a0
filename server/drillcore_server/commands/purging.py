"""Removes what erased sources left in a corpus: now, when a caller asks for it, or when its time has come.

Each transaction reads the corpus's record, so a legal hold that is put on at the same moment wins. A purge that was
interrupted goes on where it was, whoever goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_fdb.engine import Engine, Options, Priority, Transaction
from drillcore_fdb.errors import EngineError
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.auth.principal import SERVER
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.erasures import Purge
from drillcore_server.domain.errors import Refused
from drillcore_server.domain.ids import CorpusId, CorpusNumber, RequestId, TenantId
from drillcore_server.domain.retention import check_not_on_hold
from drillcore_server.store import corpora, erasures, purging
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.records import RecordKind

_OPTIONS: Final = Options(priority=Priority.BATCH, idempotent=True)
"""Nobody waits for it; and what was removed by a commit with an unknown result is not there to be removed again."""
_RECORD_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Purged:
    erasures: int
    """That were purged."""
    records: int
    """That were removed, or are about to be: their list is on the record."""
    finished: bool


PURGED: Final = RecordKind(Purged)
NOTHING: Final = Purged(0, 0, True)


class Purger:
    def __init__(self, engine: Engine, unit: Unit) -> None:
        self._engine = engine
        self._unit = unit

    def list_all(self, tenant: TenantId, corpus: CorpusId, enough: Callable[[], bool]) -> Purge | None:
        """Lists what is to be removed, until it is done or `enough` says so after a page; None if nothing is.

        Raises `Refused`: CORPUS_ON_HOLD, CORPUS_NOT_FOUND.
        """
        purge = self._step(tenant, corpus, lambda tr, found: purging.begin(tr, self._keys(found)))
        while purge is not None and not purge.is_listed and not enough():
            purge = self._step(tenant, corpus, self._list_page)
        return purge

    def record(self, tr: Transaction, trail: Trail, call: Call, corpus: Corpus, number: int) -> Purged:
        """Puts the list on the record of this call, unless another's has it."""
        keys = self._unit.keys.of_corpus(corpus.number)
        purge = purging.PURGE.read(tr, keys.purge(number))
        assert purge is not None
        if purge.record is None:
            purge = replace(purge, record=trail.record, by=call.principal.id, request_id=call.request_id)
            purging.put(tr, keys, purge)
        leave_trail(trail, corpus, purge)
        return Purged(len(purge.erasures), purge.listed, True)

    def remove_all(self, tenant: TenantId, corpus: CorpusId, at: datetime, enough: Callable[[], bool]) -> bool:
        """Removes what is listed and on the record; whether nothing of it is left."""
        purge = self._step(tenant, corpus, lambda tr, found: purging.newest(tr, self._keys(found)))
        while purge is not None and purge.record is not None and not purge.finished:
            purge = self._step(tenant, corpus, lambda tr, found: self._remove_page(tr, found, at))
            if enough():
                break
        return purge is None or purge.finished

    def purge_by_itself(self, tenant: TenantId, corpus: CorpusId, now: datetime, enough: Callable[[], bool]) -> Purged:
        """All of it, on a record of the server's own; until it is done or `enough` says so."""
        purge = self.list_all(tenant, corpus, enough)
        if purge is None:
            return NOTHING
        if not purge.is_listed:
            return Purged(0, 0, False)
        done = Purged(len(purge.erasures), purge.listed, True)
        if purge.record is None:
            request = RequestId(f"purge {purge.number} of {corpus}")
            call = Call("PurgeErased", request, SERVER, now, _RECORD_TIMEOUT_S, b"")
            done = self._unit.write(call, access.as_server(tenant), PURGED, self._recorded(call, tenant, corpus, purge))
        return replace(done, finished=self.remove_all(tenant, corpus, now, enough))

    def _recorded(
        self, call: Call, tenant: TenantId, corpus: CorpusId, purge: Purge
    ) -> Callable[[Transaction, Granted, Trail], Purged]:
        def work(tr: Transaction, _granted: Granted, trail: Trail) -> Purged:
            return self.record(tr, trail, call, self._free(tr, tenant, corpus), purge.number)

        return work

    def _step(
        self, tenant: TenantId, corpus: CorpusId, work: Callable[[Transaction, Corpus], Purge | None]
    ) -> Purge | None:
        return self._engine.run(lambda tr: work(tr, self._free(tr, tenant, corpus)), _OPTIONS)

    def _list_page(self, tr: Transaction, corpus: Corpus) -> Purge | None:
        purge = purging.newest(tr, self._keys(corpus))
        return purge if purge is None or purge.is_listed else purging.list_page(tr, self._keys(corpus), purge)

    def _remove_page(self, tr: Transaction, corpus: Corpus, at: datetime) -> Purge | None:
        keys = self._keys(corpus)
        purge = purging.newest(tr, keys)
        if purge is None or purge.finished or purge.record is None:
            return purge
        after = purging.remove_page(tr, keys, purge)
        for number in after.erasures if after.finished else ():
            erasure = erasures.get(tr, keys, number)
            assert erasure is not None
            erasures.put(tr, keys, replace(erasure, purged_at=at))
        return after

    def _keys(self, corpus: Corpus) -> CorpusKeys:
        return self._unit.keys.of_corpus(corpus.number)

    def _free(self, tr: Transaction, tenant: TenantId, corpus_id: CorpusId) -> Corpus:
        """The corpus, which is not on hold. Read with a conflict: that must still be so at the commit.

        Also a deleted one: its bytes are there as long as nobody purges them.
        """
        corpus = corpora.kept(tr, self._unit.keys, tenant, corpus_id)
        check_not_on_hold(corpus.legal_hold)
        return corpus


def leave_trail(trail: Trail, corpus: Corpus, purge: Purge) -> None:
    trail.touch_corpus(corpus.id)
    listed = {"purge": purge.number, "purged_records": purge.listed, "purged_root": purge.root.hex()}
    trail.detail |= {**listed, "erasures": list(purge.erasures)}


def purge_due(
    engine: Engine, unit: Unit, now: datetime, stopping: Callable[[], bool]
) -> Iterator[tuple[CorpusId, Purged | EngineError]]:
    """Housekeeping: purges each corpus that has something whose time has come; with what was done, or why it failed."""
    purger = Purger(engine, unit)
    for tenant, corpus in due(engine, unit, now):
        if stopping():
            return
        try:
            yield corpus, purger.purge_by_itself(tenant, corpus, now, stopping)
        except Refused:  # on hold
            continue
        except EngineError as error:
            yield corpus, error


def due(engine: Engine, unit: Unit, now: datetime) -> list[tuple[TenantId, CorpusId]]:
    """The corpora with an erasure whose bytes are to be removed by now."""

    def work(tr: Transaction) -> list[tuple[TenantId, CorpusId]]:
        noted = {one.corpus: one for one in erasures.noted(tr.snapshot, unit.keys.erasure_notes)}
        return [(one.tenant_id, one.corpus_id) for number, one in sorted(noted.items()) if is_due(tr, number)]

    def is_due(tr: Transaction, number: CorpusNumber) -> bool:
        found = erasures.of_corpus(tr.snapshot, unit.keys.of_corpus(number))
        return any(one.purged_at is None and one.purge_due <= now for one in found)

    return engine.run(work)
