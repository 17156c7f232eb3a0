"""Removes the revisions that a corpus's retention policy no longer keeps, never under legal hold.

    raise the floor: earlier revisions cannot be read any more -> remove what nobody can read, page by page

Each transaction reads the corpus's record, so a hold that is put on at the same moment conflicts, and wins: before the
floor is raised nothing is given up; afterwards, what is not removed yet stays. Whoever calls next continues an
interrupted trim. `trim_corpus` is the RPC; `trim_corpora` is a keeper's round over all corpora.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, TypeVar
from uuid import UUID

from drillcore_fdb.engine import Engine, Options, Priority, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_server.kernel import access, corpus_store, retention, revisions
from drillcore_server.kernel.access import ANYWHERE, SERVER, InTenant, Residency
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_model import Corpus, TrimState, check_not_on_hold, kept_since
from drillcore_server.kernel.corpus_store import CORPORA, TENANTS
from drillcore_server.kernel.errors import Missing, NotReady
from drillcore_server.kernel.named import Named, NamedRecords
from drillcore_server.kernel.trail import Trail, time_text
from drillcore_server.kernel.unit import Call, Unit, errors_as_refusals
from drillcore_server.storage.ids import CorpusId, Level, RequestId, Revision, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

_OPTIONS = Options(priority=Priority.BATCH, idempotent=True)
"""Nobody waits for a trim, and it may be re-run: removed entries are not removed again."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    oldest: Revision
    """The oldest revision that can be read; 0 if none was ever trimmed."""
    removed: int
    """How many records were removed. Too low if an answer of the store was lost."""
    finished: bool


TRIMMED = RecordKind(Trimmed)


class Trimmer:
    def __init__(self, engine: Engine, keys: Keyspace) -> None:
        self._engine = engine
        self._keys = keys

    def trim(self, tenant: TenantId, corpus_id: CorpusId, now: datetime, enough: Callable[[], bool]) -> Trimmed:
        """Trims a corpus to what its policy keeps at `now`, until it is done or `enough` returns True after a page.

        Raises `Refused`: CORPUS_ON_HOLD, also if the hold is put on meanwhile; CORPUS_NOT_FOUND.
        """
        state = self._engine.run(lambda tr: self.raise_floor(tr, self._corpus(tr, tenant, corpus_id), now), _OPTIONS)
        return self.remove(tenant, corpus_id, state, enough)

    def remove(self, tenant: TenantId, corpus_id: CorpusId, state: TrimState, enough: Callable[[], bool]) -> Trimmed:
        """Same as `trim`, once the floor is raised."""
        oldest, removed = state.floor, 0
        while not state.finished:
            count, state = self._engine.run(lambda tr: self._trim_page(tr, tenant, corpus_id), _OPTIONS)
            removed += count
            if enough():
                break
        return Trimmed(oldest, removed, state.finished)

    def raise_floor(self, tr: Transaction, corpus: Corpus, now: datetime) -> TrimState:
        """Gives up what the policy of a corpus no longer keeps. The corpus must have been read with a conflict.

        Raises `NotReady` for a corpus on hold.
        """
        check_not_on_hold(corpus.legal_hold)
        keys = self._keys.of_corpus(corpus.number)
        if corpus.retention_days is None:
            return retention.state(tr, keys)
        kept = revisions.at_time(tr, keys, kept_since(corpus.retention_days, now))
        return retention.raise_floor(tr, keys, kept)

    def _trim_page(self, tr: Transaction, tenant: TenantId, corpus_id: CorpusId) -> tuple[int, TrimState]:
        corpus = self._corpus(tr, tenant, corpus_id)
        check_not_on_hold(corpus.legal_hold)
        return retention.trim_page(tr, self._keys, corpus)

    def _corpus(self, tr: Transaction, tenant: TenantId, corpus_id: CorpusId) -> Corpus:
        """The corpus, read with a conflict, so that whether it is on hold is still so at the commit."""
        return corpus_store.get(tr, self._keys, tenant, corpus_id)


def trim_corpus(unit: Unit, trimmer: Trimmer, call: Call, *, tenant: TenantId | None, corpus_id: CorpusId) -> Trimmed:
    """Trims for half of the time that the caller allows. A repeated request gets the first outcome."""
    until = time.monotonic() + call.timeout_s / 2

    allowed = access.in_tenant(tenant, Permission.MANAGE_CORPORA)

    def begin(tr: Transaction, granted: InTenant) -> tuple[Corpus, Trimmed | TrimState]:
        corpus = granted.corpus(tr, unit.keys, corpus_id)
        granted.check_level(corpus_id, *Level)
        known = unit.known(tr, call, TRIMMED)
        return corpus, trimmer.raise_floor(tr, corpus, call.at) if known is None else known

    corpus, begun = unit.look_and_note(call, allowed, begin)
    if isinstance(begun, Trimmed):
        return begun
    with errors_as_refusals():
        done = trimmer.remove(corpus.tenant_id, corpus_id, begun, lambda: time.monotonic() >= until)
    return unit.write(call, allowed, TRIMMED, lambda _tr, _granted, trail: leave_trail(trail, corpus_id, done))


def leave_trail(trail: Trail, corpus: CorpusId, done: Trimmed) -> Trimmed:
    trail.touch_corpus(corpus)
    trail.detail |= {"oldest_revision": done.oldest, "records_removed": done.removed, "finished": done.finished}
    return done


R = TypeVar("R", bound=Named)
_BATCH: Final = 100
"""How many records one transaction lists."""
_RECORD_TIMEOUT_S: Final = 30.0


def trim_corpora(
    engine: Engine, keys: Keyspace, now: datetime, stopping: Callable[[], bool], residency: Residency = ANYWHERE
) -> Iterator[tuple[Corpus, Trimmed | Exception]]:
    """Trims every corpus that `residency` allows, until `stopping`. Yields each with what was done, or the failure.

    One that fails does not stop the others. Raises `EngineError` if the corpora cannot be listed.
    """
    trimmer = Trimmer(engine, keys)
    for corpus in each_corpus(engine, keys, residency):
        if stopping():
            return
        try:
            yield corpus, trimmer.trim(corpus.tenant_id, corpus.id, now, stopping)
        except (NotReady, Missing):  # on hold, or deleted meanwhile
            continue
        except Exception as error:
            yield corpus, error


def record_trim(unit: Unit, corpus: Corpus, done: Trimmed, now: datetime) -> None:
    """Writes the audit record of what the server trimmed by itself. Raises `Refused`."""
    request = RequestId(f"housekeeping of {corpus.id} at {time_text(now)}")
    call = Call("Housekeeping", request, SERVER, now, _RECORD_TIMEOUT_S, b"")
    allowed = access.as_server(corpus.tenant_id)
    unit.write(call, allowed, TRIMMED, lambda _tr, _granted, trail: leave_trail(trail, corpus.id, done))


def each_corpus(engine: Engine, keys: Keyspace, residency: Residency = ANYWHERE) -> Iterator[Corpus]:
    """Every corpus of every tenant that `residency` allows, without deleted ones.

    Raises `EngineError` if they cannot be listed.
    """
    for tenant in _each(engine, TENANTS, lambda after: keys.tenants(None if after is None else TenantId(after))):
        found = _each(
            engine,
            CORPORA,
            lambda after, tenant=tenant.id: keys.corpora(tenant, None if after is None else CorpusId(after)),  # type: ignore[misc]
        )
        yield from (corpus for corpus in found if residency.allows(corpus.region))


def _each(engine: Engine, kind: NamedRecords[R], behind: Callable[[UUID | None], KeyRange]) -> Iterator[R]:
    """Every record that is not deleted, in the order of ids. `behind` returns the keys after an id."""
    after: UUID | None = None
    while True:
        keys = behind(after)
        batch = engine.run(lambda tr: [record for record, _ in islice(kind.scan(tr.snapshot, keys), _BATCH)])  # noqa: B023 - run at once
        yield from batch
        if len(batch) < _BATCH:
            return
        after = batch[-1].id
