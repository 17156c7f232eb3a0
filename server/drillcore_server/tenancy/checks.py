"""Checks sharing (the index matches the corpora) and trimming (no revision record is missing)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Engine
from drillcore_server.kernel import corpus_store, retention, revisions
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyspace import Keyspace


def sharing_problems(engine: Engine, keys: Keyspace, corpora: Iterable[Corpus]) -> Iterator[str]:
    """The problems of sharing. `corpora` must be all shared corpora of all tenants."""
    stored = engine.run(lambda tr: list(tr.snapshot.range(*keys.all_shared_corpora())))
    entries = {(*keys.parse_shared_corpus(key), UUID(bytes=owner)) for key, owner in stored}
    wanted = {
        (reader, corpus.id, corpus.tenant_id)
        for corpus in corpora
        if corpus.sharing is not None
        for reader in corpus_store.readers(corpus.sharing)
    }
    for reader, corpus, owner in sorted(entries - wanted):
        yield f"corpus {corpus} of tenant {owner} is found by {reader}, with whom it is not shared"
    for reader, corpus, owner in sorted(wanted - entries):
        yield f"corpus {corpus} of tenant {owner} is shared with {reader}, which does not find it"


_BATCH: Final = 1_000


class RetentionCheck:
    """Checks how one corpus is trimmed."""

    def __init__(self, engine: Engine, keys: Keyspace, corpus: Corpus) -> None:
        self._engine = engine
        self._keys = keys.of_corpus(corpus.number)
        self._corpus = corpus
        self.state, self.head = engine.run(lambda tr: (retention.state(tr, self._keys), revisions.head(tr, self._keys)))

    def has_moved(self) -> bool:
        """Whether the corpus was trimmed further since this check began."""
        return self._engine.run(lambda tr: retention.floor(tr, self._keys)) != self.state.floor

    def problems(self) -> list[str]:
        return [f"corpus {self._corpus.id}: {problem}" for problem in self._problems()]

    def notes(self) -> list[str]:
        """Notes records that are still stored although no revision can read them."""
        left = self._count_unseen() if self.state.floor else 0
        if not left:
            return []
        why = "a trim was interrupted, or a legal hold stopped it"
        return [
            f"corpus {self._corpus.id}: {left} records from before revision {self.state.floor} are still stored: {why}"
        ]

    def _problems(self) -> Iterator[str]:
        state = self.state
        if not state.trimmed <= state.floor <= self.head or state.walking > state.floor:
            yield f"its floor {state.floor} does not fit its head {self.head} and what is trimmed, {state.trimmed}"
        for after in range(0, self.head, _BATCH):
            up_to = min(after + _BATCH, self.head)
            there = self._revisions(Revision(after), Revision(up_to))
            yield from (
                f"the record of revision {number} is missing"
                for number in range(after + 1, up_to + 1)
                if number not in there
            )

    def _revisions(self, after: Revision, up_to: Revision) -> set[Revision]:
        return self._engine.run(
            lambda tr: {record.revision for record in revisions.between(tr.snapshot, self._keys, after, up_to)}
        )

    def _count_unseen(self) -> int:
        count, begin = 0, b""
        while True:
            page = self._engine.run(
                lambda tr, begin=begin: retention.find_unseen(tr.snapshot, self._keys, self.state.floor, begin)  # type: ignore[misc]
            )
            count += len(page.entries)
            if page.following is None:
                return count
            begin = page.following
