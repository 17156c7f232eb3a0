"""Which chunks and facts of a corpus still lack a vector of its next embedding model.

Whatever has a vector of the current model needs one of the next, made no earlier: a vector of the current model that
was written later is of content that the next one does not know yet. So nobody who writes has to know of a migration.

The texts that vectors of chunks and facts are made of, read back from the store.

The sums of the vectors of each section's chunks, made with the next embedding model before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.facts.store import FactReader, fact_id
from drillcore_server.hierarchy.chunk_index import unpacked
from drillcore_server.hierarchy.model import ChunkWithRaws, Document, embedded_text
from drillcore_server.hierarchy.store import HierarchyReader, HierarchyWrites
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import DocumentId, FactId, NodeId, Revision, SourceId, node_id
from drillcore_server.vectors.model import Embeddings

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

    snapshot: BatchedReads
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

    def _page(self, view: CorpusAtRevision, begin: bytes, end: bytes) -> tuple[list[tuple[Item, bytes]], bytes | None]:
        entries, following = versioned.page(view.tr, begin, end, view.revision, _PAGE)
        facts = self._spaces()[1]
        found = [(Item(facts.begin <= one.key, UUID(bytes=one.key[-16:])), one) for one in entries]
        missing = [(item, one.key) for item, one in found if _is_missing(one.revision, self._next(view, item))]
        return missing, following

    def _state(self, view: CorpusAtRevision, item: Item) -> tuple[Revision | None, Revision | None]:
        """The revisions that wrote the current model's vector and the next one's, where they are there."""
        current = versioned.get(view.tr, self._key(self.models.current.number, item), view.revision)
        return None if current is None else current.revision, self._next(view, item)

    def _next(self, view: CorpusAtRevision, item: Item) -> Revision | None:
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


def _chunks(view: CorpusAtRevision, document: DocumentId) -> tuple[NodeId, ...]:
    """Of a document that is there still."""
    found = HierarchyReader(view).document(document)
    return () if found is None else found.chunks


class EmbeddedText(NamedTuple):
    item: Item
    source: SourceId
    text: str


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    """Word for word what was embedded when the chunk or fact was stored, whoever embedded it."""

    snapshot: BatchedReads

    def of(self, items: Sequence[Item]) -> list[EmbeddedText]:
        """Raises `StoreCorruptError` for one that is not there."""
        chunks = [one for one in items if not one.is_fact]
        facts = [one for one in items if one.is_fact]
        return [*self._of_chunks(chunks), *self.snapshot.each(facts, _of_fact)]

    def _of_chunks(self, items: Sequence[Item]) -> Iterator[EmbeddedText]:
        found = self.snapshot.each(items, lambda view, one: HierarchyReader(view).chunk_with_raws(NodeId(one.id)))
        document_of = lru_cache(1)(self._document)
        for item, chunk in zip(items, found, strict=True):
            document = document_of(chunk.chunk.document)
            text = self._lead_in(chunk, document) + chunk.page.text
            yield EmbeddedText(item, chunk.chunk.source, embedded_text(document.title, chunk.chunk.headings, text))

    def _document(self, document: DocumentId) -> Document:
        found = self.snapshot.read(lambda view: HierarchyReader(view).document(document))
        if found is None:
            raise StoreCorruptError(f"a chunk names document {document}, which is not there")
        return found

    def _lead_in(self, found: ChunkWithRaws, document: Document) -> str:
        """The end of the chunk before it, with which it is read."""
        if not found.chunk.overlap:
            return ""
        before = document.chunks[found.chunk.ordinal - 1]
        (page,) = self.snapshot.each([before], lambda view, one: HierarchyReader(view).raws(one))
        return page.text[-found.chunk.overlap :]


def _of_fact(view: CorpusAtRevision, item: Item) -> EmbeddedText | None:
    fact = FactReader(view).fact(FactId(item.id))
    return None if fact is None else EmbeddedText(item, fact.source, fact.content)


@dataclass(slots=True)
class SectionSums:
    """Kept while a migration is made: at a later revision only those sections are summed up anew that have changed."""

    model: int
    sums: dict[NodeId, bytes] = field(default_factory=dict)
    at: Revision | None = None

    def bring_up_to(self, snapshot: BatchedReads, made: Mapping[NodeId, bytes]) -> None:
        """`made` are vectors of chunks that are not stored yet."""
        if self.at is None or self.at > snapshot.revision:
            self.sums.clear()
            ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
        else:
            ids = self._changed(snapshot, self.at)
        there = snapshot.find(ids, lambda view, one: HierarchyReader(view).section(one) is not None)
        for section, is_there in zip(ids, there, strict=True):
            self.sums.pop(section, None)
            if is_there:
                self.sums[section] = self._sum(snapshot, section, made)
        self.at = snapshot.revision

    def writes(self, snapshot: BatchedReads, make: HierarchyWrites) -> Iterator[Write]:
        """Every section with its new sum. They say what they said, so their versions stay."""
        ids = sorted(self.sums)
        for section, cited in zip(
            snapshot.each(ids, lambda view, one: HierarchyReader(view).section(one)),
            snapshot.find(ids, _cited),
            strict=True,
        ):
            yield from make.put_section(replace(section, vector_sum=self.sums[section.id]), section)
            yield from make.cite_documents(section.id, cited)

    def _changed(self, snapshot: BatchedReads, since: Revision) -> list[NodeId]:
        records = snapshot.read(lambda view: list(revisions.between(view.tr, view.keys, since, view.revision)))
        return sorted({one for record in records for one in record.sections})

    def _sum(self, snapshot: BatchedReads, section: NodeId, made: Mapping[NodeId, bytes]) -> bytes:
        members = snapshot.read(lambda view: list(HierarchyReader(view).chunks_of(section)))
        total: npt.NDArray[np.float64] | None = None
        stored = snapshot.each(
            members, lambda view, one: made.get(one) or HierarchyReader(view).vector(self.model, one)
        )
        for vector in map(unpacked, stored):
            total = vector.astype(np.float64) if total is None else total + vector
        assert total is not None, "a section has chunks"
        return total.astype("<f4").tobytes()


def _cited(view: CorpusAtRevision, section: NodeId) -> list[DocumentId]:
    """The documents that the section is noted with: those that it cites, or all below it if a client made it."""
    record = versioned.newest(view.tr, view.keys.section(section), view.revision)
    found = HierarchyReader(view).section(section)
    below = {one.document for one in HierarchyReader(view).members(section)}
    below |= set() if found is None else {one.document for one in found.citations}
    return sorted(
        one for one in below if versioned.newest(view.tr, view.keys.citing(one, section), view.revision) == record
    )
