"""The server's own changes to facts. Each is a revision of the corpus with an audit record.

`FactKeeper` makes these revisions. `ExpirySweep` marks facts STALE when their time to live is over; `archive.py`
archives facts that nobody reads.

The index of expiries is kept by revision, so it also keeps entries that are over. A sweep therefore remembers the time
and the revision up to which it has seen a corpus. The next sweep reads what expired since then, and the facts that the
feed of changes names because their expiry may have moved into the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Final

from drillcore_fdb.engine import Engine, Reader, Transaction
from drillcore_server.facts import store as facts
from drillcore_server.facts.change import FactPlanner
from drillcore_server.facts.model import ChangedFact, Fact, FactChange, FactStatus
from drillcore_server.facts.store import Changed, FactReader
from drillcore_server.kernel import revisions
from drillcore_server.kernel.access import SERVER
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.revise import NothingToChange, Overtaken, Plan, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusId, FactId, RequestId, Revision, new_uuid
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

BATCH_MAX: Final = 1_000
"""Facts that one revision changes: few enough for one transaction, and for its audit record to name them all."""
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class UpkeepDone:
    revision: Revision
    facts: int
    """How many facts changed."""


@dataclass(frozen=True, slots=True)
class FactUpkeep:
    """A change that the server makes to facts by itself."""

    name: str
    """How the audit record names it."""
    change: Callable[[Fact], Fact | None]
    """Returns the changed fact, or None to leave it as it is."""
    what: FactChange
    applies_to: Callable[[Reader, Sequence[FactId]], Sequence[FactId]] = lambda _tr, facts: facts
    """Selects facts by data outside their records, such as accesses. Asked again in the transaction that commits."""


UPKEEP_DONE = RecordKind(UpkeepDone)


@dataclass(frozen=True, slots=True)
class FactKeeper:
    planner: FactPlanner

    @property
    def engine(self) -> Engine:
        return self.planner.reviser.engine

    @property
    def unit(self) -> Unit:
        return self.planner.reviser.unit

    @property
    def keys(self) -> Keyspace:
        return self.planner.reviser.keys

    def head(self, corpus: Corpus) -> BatchedReads:
        """The corpus as it is now."""
        keys = self.keys.of_corpus(corpus.number)
        head = self.engine.run(lambda tr: revisions.head(tr.snapshot, keys))
        return self.planner.reviser.batched(corpus, head)

    def apply(
        self, corpus: Corpus, facts: Iterable[FactId], upkeep: FactUpkeep, now: datetime, stopping: Callable[[], bool]
    ) -> int:
        """Applies a change to the facts that need it, in revisions of bounded size. Returns how many facts changed.

        Raises `Refused` if the corpus is gone or other writers keep changing it. May be called again: facts that do
        not need the change any more stay as they are.
        """
        left, count = iter(facts), 0
        while not stopping() and (batch := list(islice(left, BATCH_MAX))):
            count += self._apply(corpus, batch, upkeep, now)
        return count

    def _apply(self, corpus: Corpus, facts: Sequence[FactId], upkeep: FactUpkeep, now: datetime) -> int:
        """Applies a change as one revision, or as none if no fact needs it."""
        request = RequestId(f"{upkeep.name} in {corpus.id}, {new_uuid()}")
        call = Call("Housekeeping", request, SERVER, now, _TIMEOUT_S, b"")
        target = Target(corpus.tenant_id, corpus.id, by_server=True)
        wanted = sorted(set(facts))
        reviser = self.planner.reviser
        done = reviser.revise(call, target, UPKEEP_DONE, lambda snapshot: self._plan(snapshot, wanted, upkeep))
        return done.facts

    def _plan(
        self, snapshot: BatchedReads, facts: Sequence[FactId], upkeep: FactUpkeep
    ) -> Plan[UpkeepDone] | NothingToChange[UpkeepDone]:
        wanted = snapshot.read(lambda view: upkeep.applies_to(view.tr, facts))
        there = [fact for fact in snapshot.read(lambda view: FactReader(view).facts_by_id(wanted)) if fact]
        pairs = ((before, upkeep.change(before)) for before in there)
        changes = [ChangedFact(before, after, upkeep.what) for before, after in pairs if after is not None]
        if not changes:
            return NothingToChange(UpkeepDone(snapshot.revision, 0))
        ids = [change.after.id for change in changes]

        def finish(tr: Transaction, trail: Trail, _revision: Revision) -> None:
            if len(upkeep.applies_to(tr, ids)) < len(ids):
                raise Overtaken
            trail.detail["upkeep"] = upkeep.name

        plan = self.planner.plan(snapshot, changes, lambda revision: UpkeepDone(revision, len(ids)))
        return replace(plan, finish=finish)


EXPIRED_REASON: Final = "its time to live is over"
_UPKEEP_NAME: Final = "facts made stale"
_LATE: Final = timedelta(hours=1)
"""How far each sweep looks back: a fact may expire before the call that puts it has stored it."""
_WHOLE_EVERY: Final = timedelta(days=1)
"""How often a sweep looks at every expiry, in case a call took longer than that."""
_MOVES_AN_EXPIRY: Final = FactChange.STATUS | FactChange.DETAILS | FactChange.CONTENT | FactChange.RESTORED
_CHANGES_MAX: Final = 5_000
"""Entries of the feed that one transaction reads."""


@dataclass(frozen=True, slots=True)
class _Swept:
    revision: Revision
    up_to: datetime
    whole_at: datetime


class ExpirySweep:
    """A server needs one sweep: it remembers how far it has seen each corpus."""

    def __init__(self, keeper: FactKeeper) -> None:
        self._keeper = keeper
        self._swept: dict[CorpusId, _Swept] = {}

    def sweep(self, corpus: Corpus, now: datetime, stopping: Callable[[], bool]) -> int:
        """Marks the expired facts of a corpus as STALE. Returns how many.

        Raises `Refused` or `EngineError` if it fails; the next sweep then looks at the same facts again.
        """
        head = self._keeper.head(corpus)
        known = self._swept.get(corpus.id)
        whole = known is None or now - known.whole_at >= _WHOLE_EVERY
        since = None if known is None or whole else known
        upkeep = FactUpkeep(_UPKEEP_NAME, lambda fact: _stale(fact, now), FactChange.STATUS)
        count = self._keeper.apply(corpus, self._due(head, since, now), upkeep, now, stopping)
        if not stopping():
            whole_at = now if known is None or whole else known.whole_at
            self._swept[corpus.id] = _Swept(head.revision, now, whole_at)
        return count

    def _due(self, head: BatchedReads, since: _Swept | None, now: datetime) -> Iterator[FactId]:
        """The facts that may have expired. `_stale` checks each before it changes."""
        after = None if since is None else since.up_to - _LATE
        expired = head.entries(head.keys.fact_expiries_between(after, now))
        moved = self._moved(head, since.revision) if since is not None else iter(())
        return chain((CorpusKeys.parse_fact_expiry(entry.key) for entry in expired), moved)

    def _moved(self, head: BatchedReads, after: Revision) -> Iterator[FactId]:
        for changed in self._changes(head, after):
            if changed.status is FactStatus.ACTIVE and changed.change & _MOVES_AN_EXPIRY:
                yield changed.fact

    def _changes(self, head: BatchedReads, after: Revision) -> Iterator[Changed]:
        """The changes to facts that later revisions made, read in pages."""
        for revision in range(after + 1, head.revision + 1):
            last: FactId | None = None
            while page := self._page(head, Revision(revision), last):
                yield from page
                last = page[-1].fact

    def _page(self, head: BatchedReads, revision: Revision, last: FactId | None) -> list[Changed]:
        return self._keeper.engine.run(
            lambda tr: list(facts.changes_of(tr.snapshot, head.keys, revision, last, _CHANGES_MAX))
        )


def _stale(fact: Fact, now: datetime) -> Fact | None:
    expires_at = fact.expires_at
    if fact.status is not FactStatus.ACTIVE or fact.archived_at is not None or expires_at is None or expires_at > now:
        return None
    return fact.moved(FactStatus.STALE, EXPIRED_REASON, now)
