"""Which chunks and facts of a corpus still lack a vector of its next embedding model.

Whatever has a vector of the current model needs one of the next, made no earlier: a vector of the current model that
was written later is of content that the next one does not know yet. So nobody who writes has to know of a migration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from drillcore_fdb.tuples import KeyRange
from drillcore_server.domain.embeddings import Embeddings
from drillcore_server.domain.ids import DocumentId, FactId, NodeId, Revision
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.store import revisions, versioned
from drillcore_server.store.facts import fact_id
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.snapshot import Snapshot

_PAGE: Final = 500
"""Vectors compared, and revisions read, in one transaction."""
_FEED_PAGE: Final = 20_000
"""Entries of the feed of changes read in one transaction."""


class Item(NamedTuple):
    """A chunk or a fact."""

    is_fact: bool
    id: UUID


@dataclass(frozen=True, slots=True)
class Found:
    missing: Sequence[Item]
    stray: Sequence[Item] = ()
    """Those that have a vector of the next model and none of the current one any more."""
    following: bytes | None = None
    """Where to go on looking; None if all were looked at."""


@dataclass(frozen=True, slots=True)
class MissingVectors:
    """Of a corpus at one revision, while it is changed from one model to the next."""

    snapshot: Snapshot
    models: Embeddings

    def from_key(self, begin: bytes, count_max: int) -> Found:
        """The first that lack a vector, from a key of the current model's vectors on."""
        missing: list[tuple[Item, bytes]] = []
        for space in self._spaces():
            following: bytes | None = max(begin, space.begin)
            while following is not None and following < space.end:
                page = partial(self._page, begin=following, end=space.end)
                some, following = self.snapshot.read(page)
                missing += some
                if len(missing) >= count_max:
                    kept = missing[:count_max]
                    return Found([one for one, _ in kept], (), versioned.behind(kept[-1][1]))
        return Found([one for one, _ in missing])

    def changed_since(self, revision: Revision) -> Found:
        """Of what the revisions after one have changed."""
        changed = [*self._changed_chunks(revision), *self._changed_facts(revision)]
        states = list(zip(changed, self.snapshot.find(changed, self._state), strict=True))
        return Found(
            [one for one, (current, following) in states if _is_missing(current, following)],
            [one for one, (current, following) in states if current is None and following is not None],
        )

    def next_key(self, item: Item) -> bytes:
        assert self.models.next is not None
        return self._key(self.models.next.number, item)

    def _spaces(self) -> tuple[KeyRange, KeyRange]:
        keys, number = self.snapshot.keys, self.models.current.number
        return keys.vectors(number), keys.fact_vectors(number)

    def _key(self, model: int, item: Item) -> bytes:
        keys = self.snapshot.keys
        return keys.fact_vector(model, FactId(item.id)) if item.is_fact else keys.vector(model, NodeId(item.id))

    def _page(self, view: CorpusView, begin: bytes, end: bytes) -> tuple[list[tuple[Item, bytes]], bytes | None]:
        entries, following = versioned.page(view.tr, begin, end, view.revision, _PAGE)
        facts = self._spaces()[1]
        found = [(Item(facts.begin <= one.key, UUID(bytes=one.key[-16:])), one) for one in entries]
        missing = [(item, one.key) for item, one in found if _is_missing(one.revision, self._next(view, item))]
        return missing, following

    def _state(self, view: CorpusView, item: Item) -> tuple[Revision | None, Revision | None]:
        """The revisions that wrote the current model's vector and the next one's, where they are there."""
        current = versioned.get(view.tr, self._key(self.models.current.number, item), view.revision)
        return None if current is None else current.revision, self._next(view, item)

    def _next(self, view: CorpusView, item: Item) -> Revision | None:
        entry = versioned.get(view.tr, self.next_key(item), view.revision)
        return None if entry is None else entry.revision

    def _changed_chunks(self, since: Revision) -> Iterator[Item]:
        added = dict.fromkeys(one for record in self._records(since) for one in record.documents_added)
        for document in self.snapshot.find(list(added), _chunks):
            yield from (Item(False, chunk) for chunk in document)

    def _records(self, since: Revision) -> Iterator[RevisionRecord]:
        for after in range(since, self.snapshot.revision, _PAGE):
            end = min(after + _PAGE, self.snapshot.revision)
            yield from self.snapshot.read(
                lambda view, a=after, e=end: list(revisions.between(view.tr, view.keys, Revision(a), Revision(e)))  # type: ignore[misc]
            )

    def _changed_facts(self, since: Revision) -> list[Item]:
        begin, end = self.snapshot.keys.fact_changes_between(since, self.snapshot.revision)
        facts: dict[FactId, None] = {}
        while True:
            page = self.snapshot.read(lambda view, at=begin: list(view.tr.range(at, end, limit=_FEED_PAGE)))  # type: ignore[misc]
            facts |= dict.fromkeys(fact_id(key) for key, _ in page)
            if len(page) < _FEED_PAGE:
                return [Item(True, one) for one in facts]
            begin = page[-1][0] + b"\0"


def _is_missing(current: Revision | None, following: Revision | None) -> bool:
    return current is not None and (following is None or following < current)


def _chunks(view: CorpusView, document: DocumentId) -> tuple[NodeId, ...]:
    """Of a document that is there still."""
    found = view.document(document)
    return () if found is None else found.chunks
