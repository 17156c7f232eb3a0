"""Housekeeping: archives facts that nobody has read for long, so that searches do not carry them.

A walk over all facts of a corpus, page by page, once a day. How far it is, is stored: a server that is stopped, or
killed, goes on there, and several at once do no harm. Of facts that were read lately only that is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_server.commands.fact_keeper import FactKeeper, Upkeeping
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.facts import Fact, FactChange
from drillcore_server.domain.ids import FactId
from drillcore_server.store import fact_accesses, fact_upkeep, facts
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.fact_upkeep import Upkeep
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.snapshot import Snapshot

WORD: Final = "facts archived that nobody read"
_EVERY: Final = timedelta(days=1)
_KEYS_MAX: Final = 2_000
"""Looked at in one transaction."""


@dataclass(frozen=True, slots=True)
class _Page:
    unread: Sequence[FactId]
    last: FactId | None
    """None: there are no more."""


class Archiver:
    def __init__(self, keeper: FactKeeper, after: timedelta) -> None:
        """`after` is how long a fact stays that nobody reads; nothing at all: for ever."""
        self._keeper = keeper
        self._after = after

    def archive(self, corpus: Corpus, now: datetime, stopping: Callable[[], bool]) -> int:
        """Goes through a corpus, if that is due; how many facts were archived.

        Raises `Refused` or `EngineError` if it cannot.
        """
        keys = self._keeper.keys.of_corpus(corpus.number)
        walk = self._keeper.engine.run(lambda tr: fact_upkeep.read(tr.snapshot, keys))
        among = partial(self._unread, keys=keys, now=now)
        upkeep = Upkeeping(WORD, partial(self._archived, now=now), FactChange.ARCHIVED, among)
        count = 0
        while self._is_due(walk, now) and not stopping():
            page = self._page(self._keeper.head(corpus), walk.after, now)
            count += self._keeper.apply(corpus, page.unread, upkeep, now, stopping)
            if stopping():
                break
            walk = self._move(keys, walk, Upkeep(page.last, walk.ended_at if page.last else now))
        return count

    def _is_due(self, walk: Upkeep, now: datetime) -> bool:
        if not self._after:
            return False
        return walk.after is not None or walk.ended_at is None or now - walk.ended_at >= _EVERY

    def _move(self, keys: CorpusKeys, before: Upkeep, now: Upkeep) -> Upkeep:
        self._keeper.engine.run(lambda tr: fact_upkeep.write(tr, keys, before, now))
        return now

    def _page(self, head: Snapshot, after: FactId | None, now: datetime) -> _Page:
        def look(view: CorpusView) -> _Page:
            entries, last = facts.page(view, after, _KEYS_MAX)
            unread = set(self._unread(view.tr, [facts.fact_id(one.key) for one in entries], view.keys, now))
            sealed = (one for one in entries if facts.fact_id(one.key) in unread)
            opened = [facts.FACT.decode(view.sealed.opened(one).value) for one in sealed]
            return _Page([one.id for one in opened if self._archived(one, now) is not None], last)

        return head.read(look)

    def _unread(self, tr: Reader, ids: Sequence[FactId], keys: CorpusKeys, now: datetime) -> list[FactId]:
        """With a transaction's own reads: a fact that is read at this very moment is not archived."""
        accesses = zip(ids, fact_accesses.read(tr, keys, ids), strict=True)
        return [one for one, access in accesses if access.last_at is None or access.last_at < now - self._after]

    def _archived(self, fact: Fact, now: datetime) -> Fact | None:
        # Changed lately is as good as read: what its source says again must not be put away the next day.
        if not fact.is_searched or fact.modified_at >= now - self._after:
            return None
        return fact.archived(now)
