"""TrimCorpus: removes the revisions that a corpus's retention policy no longer keeps, never under legal hold.

    raise the floor: earlier revisions cannot be read any more -> remove what nobody can read, page by page

Each transaction reads the corpus's record, so a hold that is put on at the same moment is a conflict, and wins: before
the floor is raised nothing is given up, after it what is not removed yet stays. A trim that was interrupted goes on
where it was, whoever calls next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from drillcore_fdb.engine import Engine, Options, Priority, Reader, Transaction
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call, Unit, refusing
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import CorpusId, Revision, TenantId
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.retention import TrimState, check_not_on_hold, kept_since
from drillcore_server.store import corpora, revisions, trimming
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind

_OPTIONS = Options(priority=Priority.BATCH, idempotent=True)
"""Nobody waits for it; and what was removed by a commit with an unknown result is not there to be removed again."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    oldest: Revision
    """That can be read; 0 if none was ever trimmed."""
    removed: int
    """Records, of however many parts. A lost answer of the store may make it too low."""
    finished: bool


TRIMMED = RecordKind(Trimmed)


class Trimmer:
    def __init__(self, engine: Engine, keys: Keyspace) -> None:
        self._engine = engine
        self._keys = keys

    def trim(self, tenant: TenantId, corpus_id: CorpusId, now: datetime, enough: Callable[[], bool]) -> Trimmed:
        """Trims a corpus to what its policy keeps at `now`, until it is done or `enough` says so after a page.

        Raises `Refused`: CORPUS_ON_HOLD, also if the hold is put on meanwhile; CORPUS_NOT_FOUND.
        """
        state = self._engine.run(lambda tr: self._raise_floor(tr, tenant, corpus_id, now), _OPTIONS)
        oldest, removed = state.floor, 0
        while not state.finished:
            count, state = self._engine.run(lambda tr: self._trim_page(tr, tenant, corpus_id), _OPTIONS)
            removed += count
            if enough():
                break
        return Trimmed(oldest, removed, state.finished)

    def _raise_floor(self, tr: Transaction, tenant: TenantId, corpus_id: CorpusId, now: datetime) -> TrimState:
        corpus = self._free(tr, tenant, corpus_id)
        keys = self._keys.of_corpus(corpus.number)
        if corpus.retention_days is None:
            return trimming.state(tr, keys)
        kept = revisions.at_time(tr, keys, kept_since(corpus.retention_days, now))
        return trimming.raise_floor(tr, keys, kept)

    def _trim_page(self, tr: Transaction, tenant: TenantId, corpus_id: CorpusId) -> tuple[int, TrimState]:
        return trimming.trim_page(tr, self._keys, self._free(tr, tenant, corpus_id))

    def _free(self, tr: Transaction, tenant: TenantId, corpus_id: CorpusId) -> Corpus:
        """The corpus, which is not on hold. Read with a conflict: that must still be so at the commit."""
        corpus = corpora.get(tr, self._keys, tenant, corpus_id)
        check_not_on_hold(corpus.legal_hold)
        return corpus


def trim_corpus(unit: Unit, trimmer: Trimmer, call: Call, *, tenant: TenantId | None, corpus_id: CorpusId) -> Trimmed:
    """Trims for half of the time the caller allows. The same request again gets what it did the first time."""
    until = time.monotonic() + call.timeout_s / 2

    allowed = access.in_tenant(tenant, Permission.MANAGE_CORPORA)

    def begin(tr: Reader, granted: InTenant) -> tuple[Corpus, Trimmed | None]:
        corpus = granted.corpus(tr, unit.keys, corpus_id)
        granted.check_level(corpus_id, *Level)
        return corpus, unit.known(tr, call, TRIMMED)

    corpus, known = unit.look(call, allowed, begin)
    if known is not None:
        return known
    with refusing():
        done = trimmer.trim(corpus.tenant_id, corpus_id, call.at, lambda: time.monotonic() >= until)
    return unit.write(call, allowed, TRIMMED, lambda _tr, _granted, trail: leave_trail(trail, corpus_id, done))


def leave_trail(trail: Trail, corpus: CorpusId, done: Trimmed) -> Trimmed:
    trail.touch_corpus(corpus)
    trail.detail |= {"oldest_revision": done.oldest, "records_removed": done.removed, "finished": done.finished}
    return done
