"""Housekeeping: marks facts STALE when their time to live is over.

The index of expiries is by revision, as everything, so it keeps those that are over. A sweep that has seen a corpus
once remembers up to when, and at which revision: the next one looks at what expired since, and at the facts whose
expiry may have been moved into the past, which the feed of changes names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from drillcore_server.commands.fact_keeper import FactKeeper, Upkeeping
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.facts import Fact, FactChange, FactStatus
from drillcore_server.domain.ids import CorpusId, FactId, Revision
from drillcore_server.store import facts
from drillcore_server.store.facts import Changed
from drillcore_server.store.snapshot import Snapshot

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

    def _due(self, head: Snapshot, since: _Swept | None, now: datetime) -> Iterator[FactId]:
        """The facts that may have expired: each is looked at before it is changed."""
        after = None if since is None else since.up_to - _LATE
        expired = head.entries(head.keys.fact_expiries_between(after, now))
        moved = self._moved(head, since.revision) if since is not None else iter(())
        return chain((facts.fact_id(entry.key) for entry in expired), moved)

    def _moved(self, head: Snapshot, after: Revision) -> Iterator[FactId]:
        for changed in self._changes(head, after):
            if changed.status is FactStatus.ACTIVE and changed.change & _MOVES_AN_EXPIRY:
                yield changed.fact

    def _changes(self, head: Snapshot, after: Revision) -> Iterator[Changed]:
        """What the revisions since then did to facts, read in pages."""
        for revision in range(after + 1, head.revision + 1):
            last: FactId | None = None
            while page := self._page(head, Revision(revision), last):
                yield from page
                last = page[-1].fact

    def _page(self, head: Snapshot, revision: Revision, last: FactId | None) -> list[Changed]:
        return self._keeper.engine.run(
            lambda tr: list(facts.changes_of(tr.snapshot, head.keys, revision, last, _CHANGES_MAX))
        )


def _stale(fact: Fact, now: datetime) -> Fact | None:
    expires_at = fact.expires_at
    if fact.status is not FactStatus.ACTIVE or fact.archived_at is not None or expires_at is None or expires_at > now:
        return None
    return fact.moved(FactStatus.STALE, REASON, now)
