"""What a corpus still lacks while it is changed to another embedding model.

A chunk or block of facts with vectors of the current model needs vectors of the next model. These must not be older:
current vectors that were written later may belong to content that the next model has not embedded yet. So writers need
not know of a migration.

This module finds the missing vectors, reads back the texts to embed, and computes the new vector sums of sections.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.facts.blocks import FactBlock
from drillcore_server.facts.store import FactReader, block_id
from drillcore_server.hierarchy.model import Chunk, ChunkWithRaws, Document, embedded_text
from drillcore_server.hierarchy.store import HierarchyReader, HierarchyWrites, raw_key
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.pages import read_together
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import BlockId, DocumentId, FactId, NodeId, Revision, SourceId, node_id
from drillcore_server.vectors.model import Embeddings
from drillcore_server.vectors.stored_vectors import unpacked

T = TypeVar("T")

_PAGE: Final = 500
"""The vectors, or the records of revisions, that one transaction reads."""
_READ_AT_ONCE: Final = 100
"""The vectors that are read together."""
_FEED_PAGE: Final = 20_000
"""The entries of the feed of changes that one transaction reads."""


class Item(NamedTuple):
    """A chunk, or a block of facts."""

    is_facts: bool
    id: UUID


@dataclass(frozen=True, slots=True)
class FoundItems:
    missing: Sequence[Item]
    stray: Sequence[Item] = ()
    """Items that have a vector of the next model, but none of the current model any more."""
    following: bytes | None = None
    """The key to continue from; None if everything was checked."""


@dataclass(frozen=True, slots=True)
class MissingVectors:
    """Finds the items of a corpus at one revision that lack a vector of the next model."""

    snapshot: BatchedReads
    models: Embeddings

    def from_key(self, begin: bytes, count_max: int) -> FoundItems:
        """Returns the first items that lack a vector, walking the current model's vectors from `begin` on."""
        missing: list[tuple[Item, bytes]] = []
        for space in self._spaces():
            following: bytes | None = max(begin, space.begin)
            while following is not None and following < space.end:
                page = partial(self._page, begin=following, end=space.end)
                some, following = self.snapshot.read(page)
                missing += some
                if len(missing) >= count_max:
                    kept = missing[:count_max]
                    return FoundItems([item for item, _ in kept], (), versioned.behind(kept[-1][1]))
        return FoundItems([item for item, _ in missing])

    def changed_since(self, revision: Revision) -> FoundItems:
        """Returns the missing and stray vectors among the items that changed after a revision."""
        changed = [*self._changed_chunks(revision), *self._changed_facts(revision)]
        states = list(zip(changed, self.snapshot.together(changed, self._states), strict=True))
        return FoundItems(
            [item for item, (current, following) in states if _is_missing(current, following)],
            [item for item, (current, following) in states if current is None and following is not None],
        )

    def next_key(self, item: Item) -> bytes:
        """Returns the key of the item's vector of the next model."""
        assert self.models.next is not None
        return self._key(self.models.next.number, item)

    def _spaces(self) -> tuple[KeyRange, KeyRange]:
        keys, number = self.snapshot.keys, self.models.current.number
        return keys.vectors(number), keys.fact_vectors(number)

    def _key(self, model: int, item: Item) -> bytes:
        keys = self.snapshot.keys
        return keys.block_vectors(model, BlockId(item.id)) if item.is_facts else keys.vector(model, NodeId(item.id))

    def _page(self, view: CorpusAtRevision, begin: bytes, end: bytes) -> tuple[list[tuple[Item, bytes]], bytes | None]:
        entries, following = versioned.page(view.tr, begin, end, view.revision, _PAGE)
        facts = self._spaces()[1]
        found = [(Item(facts.begin <= entry.key, UUID(bytes=entry.key[-16:])), entry) for entry in entries]
        written = _written(view, [self.next_key(item) for item, _ in found])
        missing = [pair for pair, of_next in zip(found, written, strict=True) if _is_missing(pair[1].revision, of_next)]
        return [(item, entry.key) for item, entry in missing], following

    def _states(self, view: CorpusAtRevision, items: Sequence[Item]) -> list[tuple[Revision | None, Revision | None]]:
        """Returns the revisions that wrote the current model's vectors and the next model's; None for no vector."""
        current = _written(view, [self._key(self.models.current.number, item) for item in items])
        return list(zip(current, _written(view, list(map(self.next_key, items))), strict=True))

    def _changed_chunks(self, since: Revision) -> Iterator[Item]:
        added = dict.fromkeys(document for record in self._records(since) for document in record.documents_added)
        for chunks in self.snapshot.find(list(added), _chunks, CorpusKeys.document):
            yield from (Item(False, chunk) for chunk in chunks)

    def _records(self, since: Revision) -> Iterator[RevisionRecord]:
        for after in range(since, self.snapshot.revision, _PAGE):
            end = min(after + _PAGE, self.snapshot.revision)
            yield from self.snapshot.read(
                lambda view, a=after, e=end: list(revisions.between(view.tr, view.keys, Revision(a), Revision(e)))  # type: ignore[misc]
            )

    def _changed_facts(self, since: Revision) -> list[Item]:
        begin, end = self.snapshot.keys.fact_changes_between(since, self.snapshot.revision)
        blocks: dict[BlockId, None] = {}
        while True:
            page = self.snapshot.read(lambda view, at=begin: list(view.tr.range(at, end, limit=_FEED_PAGE)))  # type: ignore[misc]
            blocks |= dict.fromkeys(block_id(key) for key, _ in page)
            if len(page) < _FEED_PAGE:
                return [Item(True, block) for block in blocks]
            begin = page[-1][0] + b"\0"


def _written(view: CorpusAtRevision, keys: Sequence[bytes]) -> list[Revision | None]:
    """Returns the revisions that wrote the records of some keys; None where there is no record."""
    found = read_together(keys, _READ_AT_ONCE, lambda some: versioned.get_many(view.tr, some, view.revision))
    return [None if entry is None else entry.revision for entry in found]


def _is_missing(current: Revision | None, following: Revision | None) -> bool:
    return current is not None and (following is None or following < current)


def _chunks(view: CorpusAtRevision, document: DocumentId) -> tuple[NodeId, ...]:
    """Returns the chunks of a document; none if the document was removed."""
    found = HierarchyReader(view).document(document)
    return () if found is None else found.chunks


class ItemText(NamedTuple):
    """A text to embed: of a chunk, or of a fact in a block."""

    item: Item
    source: SourceId
    text: str
    fact: FactId | None = None


@dataclass(frozen=True, slots=True)
class ItemTexts:
    """Reads back the texts of chunks and facts exactly as they were embedded when they were stored."""

    snapshot: BatchedReads
    model: int
    """The number of the model that embedded them."""

    def of(self, items: Sequence[Item]) -> list[ItemText]:
        """Returns the texts of the chunks, then those of the facts. Raises `StoreCorruptError` for a missing item."""
        chunks = [item for item in items if not item.is_facts]
        blocks = [item for item in items if item.is_facts]
        of_blocks = self.snapshot.together(blocks, lambda view, some: _fact_texts(view, some, self.model))
        return [*self._of_chunks(chunks), *chain.from_iterable(of_blocks)]

    def _of_chunks(self, items: Sequence[Item]) -> Iterator[ItemText]:
        found = self._read([NodeId(item.id) for item in items])
        documents = self._documents({chunk.chunk.document for chunk in found})
        lead_ins = self._lead_ins([chunk.chunk for chunk in found], documents)
        for item, read, lead_in in zip(items, found, lead_ins, strict=True):
            chunk, text = read.chunk, lead_in + read.page.text
            yield ItemText(item, chunk.source, embedded_text(documents[chunk.document].title, chunk.headings, text))

    def _read(self, chunks: Sequence[NodeId]) -> list[ChunkWithRaws]:
        found = self.snapshot.together(chunks, _chunks_with_raws)
        return [_there(chunk, read) for chunk, read in zip(chunks, found, strict=True)]

    def _documents(self, documents: Collection[DocumentId]) -> dict[DocumentId, Document]:
        ids = sorted(documents)
        found = self.snapshot.each(ids, lambda view, id_: HierarchyReader(view).document(id_), CorpusKeys.document)
        return dict(zip(ids, found, strict=True))

    def _lead_ins(self, chunks: Sequence[Chunk], documents: Mapping[DocumentId, Document]) -> list[str]:
        """Returns for each chunk the end of the chunk before, which was embedded with it."""
        before = {c.id: documents[c.document].chunks[c.ordinal - 1] for c in chunks if c.overlap}
        pages = {found.chunk.id: found.page for found in self._read(sorted(set(before.values())))}
        return [pages[before[c.id]].text[-c.overlap :] if c.overlap else "" for c in chunks]


def _chunks_with_raws(view: CorpusAtRevision, chunks: Sequence[NodeId]) -> list[ChunkWithRaws | None]:
    """Reads chunks together, then their raws. Raises `KeyErased` if a chunk was erased."""
    hierarchy = HierarchyReader(view)
    view.read_ahead([view.keys.chunk(chunk) for chunk in chunks])
    placed = [hierarchy.placed_chunk(chunk) for chunk in chunks]
    view.read_ahead([raw_key(view.keys, found.chunk) for found in placed if found is not None])
    return [hierarchy.chunk_with_raws(chunk) for chunk in chunks]


def _there(id_: UUID, found: T | None) -> T:
    if found is None:
        raise StoreCorruptError(f"{id_} is to be embedded but is not there")
    return found


def _fact_texts(view: CorpusAtRevision, items: Sequence[Item], model: int) -> list[list[ItemText]]:
    """The texts of the facts of each block that have a vector of a model."""
    ids = [BlockId(item.id) for item in items]
    view.read_ahead([key for id_ in ids for key in (view.keys.fact_block(id_), view.keys.block_vectors(model, id_))])
    found = zip(items, FactReader(view).blocks(ids), FactReader(view).vectors_of_blocks(model, ids), strict=True)
    return [_texts_in(item, _there(item.id, block), _there(item.id, vectors)) for item, block, vectors in found]


def _texts_in(item: Item, block: FactBlock, vectors: Mapping[FactId, bytes]) -> list[ItemText]:
    return [ItemText(item, fact.source, fact.content, fact.id) for fact in block.facts if fact.id in vectors]


def _has_section(view: CorpusAtRevision, section: NodeId) -> bool:
    return HierarchyReader(view).section(section) is not None


@dataclass(slots=True)
class SectionSums:
    """The sums of the vectors of each section's chunks, computed with the next model before it is used.

    They are kept during a migration: for a later revision, only changed sections are summed again.
    """

    model: int
    sums: dict[NodeId, bytes] = field(default_factory=dict)
    at: Revision | None = None

    def bring_up_to(self, snapshot: BatchedReads, made: Mapping[NodeId, bytes]) -> None:
        """Computes what is missing for a revision. `made` are vectors of chunks that are not stored yet."""
        if self.at is None or self.at > snapshot.revision:
            self.sums.clear()
            ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
        else:
            ids = self._changed(snapshot, self.at)
        there = snapshot.find(ids, _has_section, CorpusKeys.section)
        for section, is_there in zip(ids, there, strict=True):
            self.sums.pop(section, None)
            if is_there:
                self.sums[section] = self._sum(snapshot, section, made)
        self.at = snapshot.revision

    def writes(self, snapshot: BatchedReads, make: HierarchyWrites) -> Iterator[Write]:
        """Yields the writes that give every section its new sum. The text is unchanged, so versions stay."""
        ids = sorted(self.sums)
        found = snapshot.each(ids, lambda view, section: HierarchyReader(view).section(section), CorpusKeys.section)
        for section in found:
            yield from make.put_section(replace(section, vector_sum=self.sums[section.id]), section)

    def _changed(self, snapshot: BatchedReads, since: Revision) -> list[NodeId]:
        records = snapshot.read(lambda view: list(revisions.between(view.tr, view.keys, since, view.revision)))
        return sorted({section for record in records for section in record.sections})

    def _sum(self, snapshot: BatchedReads, section: NodeId, made: Mapping[NodeId, bytes]) -> bytes:
        members = snapshot.read(lambda view: list(HierarchyReader(view).chunks_of(section)))
        total: npt.NDArray[np.float64] | None = None
        stored = snapshot.each(
            members,
            lambda view, chunk: made.get(chunk) or HierarchyReader(view).vector(self.model, chunk),
            lambda keys, chunk: keys.vector(self.model, chunk),
        )
        for vector in map(unpacked, stored):
            total = vector.astype(np.float64) if total is None else total + vector
        assert total is not None, "a section has chunks"
        return total.astype("<f4").tobytes()
