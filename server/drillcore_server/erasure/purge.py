"""PurgeErased, and the purges that become due: remove the bytes that erased sources left in a corpus.

Each transaction reads the corpus's record, so a legal hold that is set at the same moment wins. An interrupted purge
continues where it stopped, on any server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_fdb.engine import Engine, Options, Priority, Reader, Transaction
from drillcore_server.erasure import purge_store as purging
from drillcore_server.erasure.purge_store import Purge
from drillcore_server.kernel import access, erasures
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel.access import SERVER, Granted, InTenant
from drillcore_server.kernel.corpus_model import Corpus, check_not_on_hold
from drillcore_server.kernel.errors import Missing, NotReady
from drillcore_server.kernel.read_ahead import Subjects
from drillcore_server.kernel.revise import Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit, errors_as_refusals
from drillcore_server.storage import erasure_notes
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusId, CorpusNumber, Level, RequestId, TenantId
from drillcore_server.storage.records import RecordKind

_OPTIONS: Final = Options(priority=Priority.BATCH, idempotent=True)
"""Nobody waits for a purge. It may be re-run, because removing twice changes nothing."""
_RECORD_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Purged:
    erasures: int
    records: int
    """Records that were removed or are about to be. Their list is in the audit log."""
    finished: bool


PURGED: Final = RecordKind(Purged)
NOTHING: Final = Purged(0, 0, True)
_UNFINISHED: Final = Purged(0, 0, False)


class Purger:
    def __init__(self, engine: Engine, unit: Unit) -> None:
        self._engine = engine
        self.unit = unit

    def list_all(self, tenant: TenantId, corpus: CorpusId, enough: Callable[[], bool]) -> Purge | None:
        """Lists the records to remove, until all are listed or `enough()` after a page. None if there are none.

        Raises `Refused`: CORPUS_ON_HOLD, CORPUS_NOT_FOUND.
        """
        purge = self._step(tenant, corpus, self._list_page)
        while purge is not None and not purge.is_listed and not enough():
            purge = self._step(tenant, corpus, self._list_page)
        return purge

    def record(self, tr: Transaction, trail: Trail, call: Call, corpus: Corpus, listed: Purge) -> tuple[Purged, Purge]:
        """Puts the root of the list into the audit record of this call, unless another record has it already.

        Removes the first page of what is listed in the same transaction. Returns the purge after that, too.
        """
        keys = self._keys(corpus)
        tr.snapshot.get_many([keys.purge(listed.number), *map(keys.erasure, listed.erasures)])
        purge = purging.PURGE.read(tr, keys.purge(listed.number))
        assert purge is not None
        if purge.record is None:
            purge = replace(purge, record=trail.record, by=call.principal.id, request_id=call.request_id)
        _leave_trail(trail, corpus, purge)
        return _done(purge), self._remove(tr, corpus, purge, call.at)

    def remove_all(
        self, tenant: TenantId, corpus: CorpusId, at: datetime, enough: Callable[[], bool], done: Purge | None = None
    ) -> bool:
        """Removes the listed records once an audit record has their list. Returns whether nothing is left to remove.

        `done` is the purge after its first page was removed, if that was just now.
        """
        purge = done or self._step(tenant, corpus, lambda tr, found: self._remove_page(tr, found, at))
        while purge is not None and purge.record is not None and not purge.finished and not enough():
            purge = self._step(tenant, corpus, lambda tr, found: self._remove_page(tr, found, at))
        return purge is None or purge.finished

    def purge_by_itself(self, tenant: TenantId, corpus: CorpusId, now: datetime, enough: Callable[[], bool]) -> Purged:
        """Lists, records and removes, with an audit record of the server's own, until done or `enough()`."""
        purge = self.list_all(tenant, corpus, enough)
        if purge is None:
            return NOTHING
        if not purge.is_listed:
            return _UNFINISHED
        done, after = _done(purge), None
        if purge.record is None:
            done, after = self._record_by_itself(tenant, corpus, purge, now)
        return replace(done, finished=self.remove_all(tenant, corpus, now, enough, after))

    def _record_by_itself(
        self, tenant: TenantId, corpus: CorpusId, purge: Purge, now: datetime
    ) -> tuple[Purged, Purge | None]:
        """Makes the audit record of the server's own. Returns the purge too, unless the record was made before."""
        request = RequestId(f"purge {purge.number} of {corpus}")
        subjects = Subjects(tenant, (corpus,))
        call = Call("PurgeErased", request, SERVER, now, _RECORD_TIMEOUT_S, b"", subjects=subjects)
        after: Purge | None = None

        def work(tr: Transaction, _granted: Granted, trail: Trail) -> Purged:
            nonlocal after
            done, after = self.record(tr, trail, call, self._free(tr, tenant, corpus), purge)
            return done

        done = self.unit.write(call, access.as_server(tenant), PURGED, work)
        return done, after

    def _step(
        self, tenant: TenantId, corpus: CorpusId, work: Callable[[Transaction, Corpus], Purge | None]
    ) -> Purge | None:
        return self._engine.run(lambda tr: work(tr, self._free(tr, tenant, corpus)), _OPTIONS)

    def _list_page(self, tr: Transaction, corpus: Corpus) -> Purge | None:
        self.unit.read_ahead.remember(corpus)
        purge = purging.begin(tr, self._keys(corpus))
        return purge if purge is None or purge.is_listed else purging.list_page(tr, self._keys(corpus), purge)

    def _remove_page(self, tr: Transaction, corpus: Corpus, at: datetime) -> Purge | None:
        purge = purging.newest(tr, self._keys(corpus))
        return None if purge is None or purge.record is None else self._remove(tr, corpus, purge, at)

    def _remove(self, tr: Transaction, corpus: Corpus, purge: Purge, at: datetime) -> Purge:
        """Removes the next page of what is listed. After the last one, the erasures are noted as purged."""
        if purge.finished:
            return purge
        keys = self._keys(corpus)
        after = purging.remove_page(tr, keys, purge)
        for number in after.erasures if after.finished else ():
            erasure = erasures.get(tr, keys, number)
            assert erasure is not None
            erasures.put(tr, keys, replace(erasure, purged_at=at))
        return after

    def _keys(self, corpus: Corpus) -> CorpusKeys:
        return self.unit.keys.of_corpus(corpus.number)

    def _free(self, tr: Transaction, tenant: TenantId, corpus_id: CorpusId) -> Corpus:
        """The corpus, also a deleted one, whose bytes remain until they are purged. Raises `Refused` if on hold.

        The read conflicts with others, so a hold set before the commit still wins.
        """
        corpus = corpora.kept(tr, self.unit.keys, tenant, corpus_id)
        check_not_on_hold(corpus.legal_hold)
        return corpus


def purge_erased(purger: Purger, call: Call, target: Target) -> Purged:
    """Removes the bytes that erased sources left, for up to half of the caller's time limit.

    A repeated request continues the purge that it began. Raises `Refused`: CORPUS_ON_HOLD.
    """
    until, unit = time.monotonic() + call.timeout_s / 2, purger.unit
    after: Purge | None = None

    def begin(tr: Reader, granted: InTenant) -> tuple[Corpus, Purged | None]:
        return find_corpus(tr, granted), unit.known(tr, call, PURGED)

    def find_corpus(tr: Reader, granted: InTenant) -> Corpus:
        corpus = granted.corpus(tr, unit.keys, target.corpus)
        granted.check_level(corpus.id, *Level)
        return corpus

    def record(tr: Transaction, granted: InTenant, trail: Trail) -> Purged:
        nonlocal after
        corpus = find_corpus(tr, granted)
        check_not_on_hold(corpus.legal_hold)
        trail.touch_corpus(corpus.id)
        if purge is None:
            return NOTHING
        if not purge.is_listed:
            return _UNFINISHED
        done, after = purger.record(tr, trail, call, corpus, purge)
        return done

    def enough() -> bool:
        return time.monotonic() >= until

    corpus, done = unit.look(call, target.access, begin)
    purge: Purge | None = None
    if done is None:
        with errors_as_refusals():
            purge = purger.list_all(corpus.tenant_id, corpus.id, enough)
        done = unit.write(call, target.access, PURGED, record)
    with errors_as_refusals():
        finished = purger.remove_all(corpus.tenant_id, corpus.id, call.at, enough, after)
    return replace(done, finished=done.finished and finished)


def _done(purge: Purge) -> Purged:
    return Purged(len(purge.erasures), purge.listed, True)


def _leave_trail(trail: Trail, corpus: Corpus, purge: Purge) -> None:
    trail.touch_corpus(corpus.id)
    listed = {"purge": purge.number, "purged_records": purge.listed, "purged_root": purge.root.hex()}
    trail.detail |= {**listed, "erasures": list(purge.erasures)}


def purge_due(
    engine: Engine, unit: Unit, now: datetime, stopping: Callable[[], bool]
) -> Iterator[tuple[CorpusId, Purged | Exception]]:
    """Purges each corpus with a due purge, as background work. Yields each corpus with its result or its error."""
    purger = Purger(engine, unit)
    for tenant, corpus in due(engine, unit, now):
        if stopping():
            return
        try:
            yield corpus, purger.purge_by_itself(tenant, corpus, now, stopping)
        except (NotReady, Missing):  # on hold or deleted
            continue
        except Exception as error:
            yield corpus, error


def due(engine: Engine, unit: Unit, now: datetime) -> list[tuple[TenantId, CorpusId]]:
    """The corpora with an erasure whose purge is due."""

    def work(tr: Transaction) -> list[tuple[TenantId, CorpusId]]:
        noted = {note.corpus: note for note in erasure_notes.noted(tr.snapshot, unit.keys.erasure_notes)}
        return [(note.tenant_id, note.corpus_id) for number, note in sorted(noted.items()) if is_due(tr, number)]

    def is_due(tr: Transaction, number: CorpusNumber) -> bool:
        found = erasures.of_corpus(tr.snapshot, unit.keys.of_corpus(number))
        return any(erasure.purged_at is None and erasure.purge_due <= now for erasure in found)

    return engine.run(work)
