"""What the server does to facts by itself: each change is a revision of the corpus, with its audit record.

Housekeeping: marks facts STALE when their time to live is over.

The index of expiries is by revision, as everything, so it keeps those that are over. A sweep that has seen a corpus
once remembers up to when, and at which revision: the next one looks at what expired since, and at the facts whose
expiry may have been moved into the past, which the feed of changes names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Final

from drillcore_fdb.engine import Engine, Reader, Transaction
from drillcore_server.facts import store as facts
from drillcore_server.facts.change import ChangedFact, FactPlanner
from drillcore_server.facts.model import Fact, FactChange, FactStatus
from drillcore_server.facts.store import Changed, FactReader
from drillcore_server.kernel import revisions
from drillcore_server.kernel.access import SERVER
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.revise import NothingToChange, Overtaken, Plan, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import CorpusId, FactId, RequestId, Revision, new_uuid
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

BATCH_MAX: Final = 1_000
"""Facts changed by one revision: small enough for one transaction, and for its audit record to name them all."""
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Kept:
    revision: Revision
    facts: int


@dataclass(frozen=True, slots=True)
class Upkeeping:
    """What is to be done to facts, and how its audit record says so."""

    word: str
    change: Callable[[Fact], Fact | None]
    """The fact as it should be; None to leave it."""
    what: FactChange
    among: Callable[[Reader, Sequence[FactId]], Sequence[FactId]] = lambda _tr, facts: facts
    """Those of the facts that it is to be done to, by what is not in their records. Looked at once more at the end."""


KEPT = RecordKind(Kept)


@dataclass(frozen=True, slots=True)
class FactKeeper:
    planner: FactPlanner

    @property
    def engine(self) -> Engine:
        return self.planner.reviser.engine

    @property
    def keys(self) -> Keyspace:
        return self.planner.reviser.keys

    def head(self, corpus: Corpus) -> BatchedReads:
        """The corpus as it is now."""
        keys = self.keys.of_corpus(corpus.number)
        head = self.engine.run(lambda tr: revisions.head(tr.snapshot, keys))
        return self.planner.reviser.batched(corpus, head)

    def apply(
        self, corpus: Corpus, facts: Iterable[FactId], upkeep: Upkeeping, now: datetime, stopping: Callable[[], bool]
    ) -> int:
        """Changes those of the facts that need it, in revisions of bounded size; how many it were.

        Raises `Refused` if the corpus is gone, or others keep changing it.
        """
        left, count = iter(facts), 0
        while not stopping() and (batch := list(islice(left, BATCH_MAX))):
            count += self._apply(corpus, batch, upkeep, now)
        return count

    def _apply(self, corpus: Corpus, facts: Sequence[FactId], upkeep: Upkeeping, now: datetime) -> int:
        """As one revision, or none if there is nothing to change."""
        request = RequestId(f"{upkeep.word} in {corpus.id}, {new_uuid()}")
        call = Call("Housekeeping", request, SERVER, now, _TIMEOUT_S, b"")
        target = Target(corpus.tenant_id, corpus.id, by_server=True)
        wanted = sorted(set(facts))
        reviser = self.planner.reviser
        kept = reviser.revise(call, target, KEPT, lambda found, base: self._plan(found, base, wanted, upkeep))
        return kept.facts

    def _plan(
        self, corpus: Corpus, base: Revision, facts: Sequence[FactId], upkeep: Upkeeping
    ) -> Plan[Kept] | NothingToChange[Kept]:
        snapshot = self.planner.reviser.batched(corpus, base)
        wanted = snapshot.read(lambda view: upkeep.among(view.tr, facts))
        there = [fact for fact in snapshot.find(wanted, lambda view, one: FactReader(view).fact(one)) if fact]
        pairs = ((before, upkeep.change(before)) for before in there)
        changes = [ChangedFact(before, after, upkeep.what) for before, after in pairs if after is not None]
        if not changes:
            return NothingToChange(Kept(base, 0))
        ids = [one.after.id for one in changes]

        def finish(tr: Transaction, trail: Trail, _revision: Revision) -> None:
            if len(upkeep.among(tr, ids)) < len(ids):
                raise Overtaken
            trail.detail["upkeep"] = upkeep.word

        return replace(
            self.planner.plan(corpus, base, changes, lambda revision: Kept(revision, len(ids))), finish=finish
        )


REASON: Final = "its time to live is over"
WORD: Final = "facts made stale"
_LATE: Final = timedelta(hours=1)
"""A fact may expire before the call that puts it has stored it. That is looked back for so long each time."""
_WHOLE_EVERY: Final = timedelta(days=1)
"""And for everything once a day, in case a call took longer still."""
_MOVES_AN_EXPIRY: Final = FactChange.STATUS | FactChange.DETAILS | FactChange.CONTENT | FactChange.RESTORED
_CHANGES_MAX: Final = 5_000
"""Of the feed, read in one transaction."""


@dataclass(frozen=True, slots=True)
class _Swept:
    revision: Revision
    up_to: datetime
    whole_at: datetime


class ExpirySweep:
    """One for a server: it remembers how far each corpus is."""

    def __init__(self, keeper: FactKeeper) -> None:
        self._keeper = keeper
        self._swept: dict[CorpusId, _Swept] = {}

    def sweep(self, corpus: Corpus, now: datetime, stopping: Callable[[], bool]) -> int:
        """Marks what has expired in a corpus; how many facts. Raises `Refused` or `EngineError` if it cannot."""
        head = self._keeper.head(corpus)
        known = self._swept.get(corpus.id)
        whole = known is None or now - known.whole_at >= _WHOLE_EVERY
        since = None if known is None or whole else known
        upkeep = Upkeeping(WORD, lambda fact: _stale(fact, now), FactChange.STATUS)
        count = self._keeper.apply(corpus, self._due(head, since, now), upkeep, now, stopping)
        if not stopping():
            whole_at = now if known is None or whole else known.whole_at
            self._swept[corpus.id] = _Swept(head.revision, now, whole_at)
        return count

    def _due(self, head: BatchedReads, since: _Swept | None, now: datetime) -> Iterator[FactId]:
        """The facts that may have expired: each is looked at before it is changed."""
        after = None if since is None else since.up_to - _LATE
        expired = head.entries(head.keys.fact_expiries_between(after, now))
        moved = self._moved(head, since.revision) if since is not None else iter(())
        return chain((facts.fact_id(entry.key) for entry in expired), moved)

    def _moved(self, head: BatchedReads, after: Revision) -> Iterator[FactId]:
        for changed in self._changes(head, after):
            if changed.status is FactStatus.ACTIVE and changed.change & _MOVES_AN_EXPIRY:
                yield changed.fact

    def _changes(self, head: BatchedReads, after: Revision) -> Iterator[Changed]:
        """What the revisions since then did to facts, read in pages."""
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
    return fact.moved(FactStatus.STALE, REASON, now)
