"""Proves that trimming left what it should: the whole list of revisions, and a floor that makes sense."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drillcore_fdb.engine import Engine
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import Revision
from drillcore_server.store import revisions, trimming
from drillcore_server.store.keyspace import Keyspace

_BATCH: Final = 1_000


class RetentionCheck:
    """One corpus as it is trimmed now."""

    def __init__(self, engine: Engine, keys: Keyspace, corpus: Corpus) -> None:
        self._engine = engine
        self._keys = keys.of_corpus(corpus.number)
        self._corpus = corpus
        self.state, self.head = engine.run(lambda tr: (trimming.state(tr, self._keys), revisions.head(tr, self._keys)))

    def has_moved(self) -> bool:
        return self._engine.run(lambda tr: trimming.floor(tr, self._keys)) != self.state.floor

    def problems(self) -> list[str]:
        return [f"corpus {self._corpus.id}: {problem}" for problem in self._problems()]

    def notes(self) -> list[str]:
        """Of entries that are still stored though nobody can read them."""
        left = self._count_unseen() if self.state.floor else 0
        if not left:
            return []
        why = "a trim was interrupted, or a legal hold stopped it"
        return [f"corpus {self._corpus.id}: {left} records from before revision {self.state.floor} are left: {why}"]

    def _problems(self) -> Iterator[str]:
        state = self.state
        if not state.trimmed <= state.floor <= self.head or state.walking > state.floor:
            yield f"its floor {state.floor} does not fit its head {self.head} and what is trimmed, {state.trimmed}"
        for after in range(0, self.head, _BATCH):
            up_to = min(after + _BATCH, self.head)
            there = self._revisions(Revision(after), Revision(up_to))
            yield from (
                f"the record of revision {one} is missing" for one in range(after + 1, up_to + 1) if one not in there
            )

    def _revisions(self, after: Revision, up_to: Revision) -> set[Revision]:
        return self._engine.run(
            lambda tr: {record.revision for record in revisions.between(tr.snapshot, self._keys, after, up_to)}
        )

    def _count_unseen(self) -> int:
        count, begin = 0, b""
        while True:
            page = self._engine.run(
                lambda tr, begin=begin: trimming.find_unseen(tr.snapshot, self._keys, self.state.floor, begin)  # type: ignore[misc]
            )
            count += len(page.entries)
            if page.following is None:
                return count
            begin = page.following
