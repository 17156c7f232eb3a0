"""Makes the writes that replace the content of a corpus by a whole hierarchy from a client.

`EarlierCorpus` reads what the corpus has, and what it had before. `Replacement` makes the writes for documents and
nodes, and `ReplacedFacts` the writes for facts:

- A fact is deleted if its source has no document in the new hierarchy.
- A fact becomes stale if its chunk is gone or has other text at the fact's place. A fact without a chunk becomes stale
  if the content of its source has changed.
- Every other fact stays, with its new titles and its new passage. No new facts are drawn.

A corpus may be large. So records are read in batches, and writes are made one by one as they are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Final, TypeVar
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_server.documents.document_facts import SOURCE_REMOVED
from drillcore_server.documents.ingestion.fact_changes import NOT_SAID
from drillcore_server.facts.block_writes import FactWrites
from drillcore_server.facts.model import ChangedFact, Fact, FactChange, FactStatus
from drillcore_server.facts.store import stored_blocks
from drillcore_server.facts.words import titles_above
from drillcore_server.hierarchy.model import Chunk, ChunkWithRaws, Document, Master, Section, chunk_of_raw
from drillcore_server.hierarchy.packed import SECTION, decode_chunk, decode_whole_chunk
from drillcore_server.hierarchy.source_model import Source, next_version
from drillcore_server.hierarchy.store import DOCUMENT, HierarchyReader, HierarchyWrites
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Exists
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write, check_free, locator_of
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import DocumentId, Level, NodeId, PrincipalId, Revision, SourceId, node_id
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.vectors.model import Embeddings, Model

T = TypeVar("T")
R = TypeVar("R")
_BATCH: Final = 1_000
"""The number of records that are read in one transaction, which then stays well below five seconds."""


@dataclass(frozen=True, slots=True)
class EarlierCorpus:
    """Reads the corpus at the revision that is to be replaced."""

    snapshot: BatchedReads
    keyspace: Keyspace
    corpus: Corpus

    @property
    def keys(self) -> CorpusKeys:
        return self.snapshot.keys

    def known(self, levels: Mapping[NodeId, Level]) -> set[NodeId]:
        """Returns the nodes that the corpus has or had. Raises `Exists` if another corpus or level has one of them.

        The commit checks this again. This check refuses the call before anything is written.
        """
        known: set[NodeId] = set()
        for batch in batches(levels.items()):
            own = [self._locator(node) for node, _ in batch]
            blocks = [self._locator(chunk_of_raw(node)[0]) for node, _ in batch]
            stored = self.snapshot.read(lambda view, keys=own + blocks: view.tr.get_many(keys))  # type: ignore[misc]
            for place, (node, level) in enumerate(batch):
                wanted = locator_of(level, self.corpus.number)
                block = stored[len(batch) + place] if blocks[place] != own[place] else None
                check_free(own[place], wanted, stored[place], block)
                if stored[place] is not None:
                    known.add(node)
        return known

    def _locator(self, node: NodeId) -> bytes:
        return self.keyspace.locator(self.corpus.tenant_id, node)

    def last(self, decode: Callable[[bytes], R], keys: Sequence[bytes], extract: Callable[[R], T]) -> list[T | None]:
        """Applies `extract` to the last record of each key, even if the corpus does not have the record any more.

        Returns None for a key that never had a record. Raises `Exists` if the record was erased.
        """
        stored = self.snapshot.find(keys, _last)
        return [None if record is None else extract(decode(record)) for record in stored]

    def last_master(self, node: NodeId) -> Master | None:
        """Returns the last master with this id. The corpus may have had other masters since."""
        at = self.snapshot
        while True:
            master, written = at.read(
                lambda view: (
                    HierarchyReader(view).master_unless_erased(),
                    versioned.newest(view.tr, view.keys.master(), view.revision),
                )
            )
            if written is None or (master is not None and master.id == node):
                return master
            at = at.at(Revision(written - 1))

    def sources(self, ids: Sequence[SourceId]) -> list[Source | None]:
        return list(self.snapshot.find(ids, lambda view, source: HierarchyReader(view).source(source)))

    def documents(self) -> Iterator[Document]:
        """Yields the documents that the corpus has."""
        for entry in self.snapshot.entries(self.keys.documents()):
            yield DOCUMENT.decode(self.snapshot.sealed.opened(entry).value)

    def section_ids(self) -> set[NodeId]:
        return {node_id(entry.key[-16:]) for entry in self.snapshot.entries(self.keys.listed_sections())}

    def removals(
        self,
        nodes: Container[NodeId],
        raws: Container[bytes],
        documents: Container[DocumentId],
        models: Iterable[tuple[int, bool]],
    ) -> Iterator[Write]:
        """Removes what the corpus has, except the records of these nodes, raws and documents, which get new records.

        `raws` are the keys of the text of raws.

        Removes all entries of the indexes, so the entries of new nodes must be written after this. `models` are the
        models that have vectors, each with whether it is still in use. Then the vectors of these nodes stay.
        """
        keys, models = self.keys, list(models)
        indexes = (keys.all_categories(), keys.listed_sections(), keys.all_members(), keys.all_entities())
        vectors = [keys.vectors(model) for model, _ in models]
        others = (keys.all_embedded(), keys.parents(), keys.raws(), keys.documents())
        self.snapshot.first_pages_ahead([*indexes, *others, *vectors])
        sections = self.section_ids()
        for index in (*indexes, keys.all_embedded()):
            yield from (Write(entry.key, None) for entry in self.snapshot.entries(index))
        yield from (Write(keys.section(section), None) for section in sorted(sections) if section not in nodes)
        for entry in self.snapshot.entries(keys.parents()):
            node = node_id(entry.key[-16:])
            if node not in nodes:
                yield Write(entry.key, None)
                if node_id(entry.value) in sections:
                    yield Write(keys.chunk(node), None)
        yield from (Write(entry.key, None) for entry in self.snapshot.entries(keys.raws()) if entry.key not in raws)
        for model, is_used in models:
            for entry in self.snapshot.entries(keys.vectors(model)):
                if not is_used or node_id(entry.key[-16:]) not in nodes:
                    yield Write(entry.key, None)
        for entry in self.snapshot.entries(keys.documents()):
            if DocumentId(UUID(bytes=entry.key[-16:])) not in documents:
                yield Write(entry.key, None)


def _last(view: CorpusAtRevision, key: bytes) -> bytes | None:
    there = versioned.last_there(view.tr, key, view.revision)
    try:
        entry = None if there is None else view.sealed.get(view.tr, key, there)
    except KeyErased:
        message = "one of these ids belonged to something that was erased; give new ids"
        raise Exists(Reason.NODE_EXISTS, message) from None
    return None if entry is None else entry.value


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Yields the items in lists, each as long as one transaction can read."""
    todo = iter(items)
    while batch := list(islice(todo, _BATCH)):
        yield batch


_CACHED: Final = 64
"""The number of chunks, sources and titles that stay in memory. Facts of a chunk often follow each other."""


@dataclass(slots=True)
class ReplacedFacts:
    """Makes the writes for the facts of one revision. `changed` counts the facts while the writes are read."""

    earlier: EarlierCorpus
    documents: Mapping[SourceId, Document]
    """The documents of the new hierarchy, by source."""
    chunk_of: Callable[[NodeId], ChunkWithRaws | None]
    """Returns a chunk of the new hierarchy, or None if it has no such chunk."""
    gone: Set[SourceId]
    """The sources that have no document in the new hierarchy."""
    make: FactWrites
    at: datetime
    changed: int = 0
    deleted: Counter[SourceId] = field(default_factory=Counter)
    """The number of deleted facts of each source."""

    def writes(self) -> Iterator[Write]:
        snapshot = self.earlier.snapshot
        before = _RecordsBefore(
            lru_cache(_CACHED)(self._chunk_before),
            lru_cache(_CACHED)(self._source_before),
            lru_cache(_CACHED)(self._title_before),
        )
        for batch in batches(stored_blocks(snapshot)):  # the caller renews its lease between batches
            changes = (self._change(fact, self._after(fact, before)) for block in batch for fact in block.facts)
            yield from self.make.change(snapshot, [change for change in changes if change is not None])

    def _after(self, fact: Fact, before: _RecordsBefore) -> Fact:
        """Returns the fact as it is in the new revision."""
        if fact.source in self.gone and fact.status in {FactStatus.ACTIVE, FactStatus.STALE}:
            return fact.moved(FactStatus.DELETED, SOURCE_REMOVED, self.at)
        if fact.status is not FactStatus.ACTIVE:
            return fact
        if fact.chunk is None:
            is_same = self._has_same_content(fact, before.source(fact.source))
            return fact if is_same else fact.moved(FactStatus.STALE, NOT_SAID, self.at)
        old_chunk, new_chunk = before.chunk(fact.chunk), self.chunk_of(fact.chunk)
        if old_chunk is None or new_chunk is None or not _has_same_text(fact, old_chunk, new_chunk):
            return fact.moved(FactStatus.STALE, NOT_SAID, self.at)
        return self._placed(fact, (before.title(old_chunk.chunk.document), *old_chunk.chunk.headings), new_chunk)

    def _placed(self, fact: Fact, old_titles: tuple[str, ...], chunk: ChunkWithRaws) -> Fact:
        """Returns the fact with its new titles and passage. Titles stay if those above its chunk are the same."""
        title, headings = self.documents[fact.source].title, chunk.chunk.headings
        titles = fact.titles if (title, *headings) == old_titles else titles_above(title, headings)
        passage = None if fact.span is None else chunk.page.place_of(fact.span.start)
        placed = replace(fact, titles=titles, passage=passage)
        return fact if placed == fact else replace(placed, modified_at=self.at, version=fact.version + 1)

    def _has_same_content(self, fact: Fact, source: Source | None) -> bool:
        """Tells whether the content of a fact's source stays. True if the source had no document or gets none."""
        document = self.documents.get(fact.source)
        if document is None or source is None or source.document is None:
            return True
        return source.content_hash == document.content_hash != ""

    def _change(self, before: Fact, after: Fact) -> ChangedFact | None:
        if after == before:
            return None
        self.changed += 1
        self.deleted[after.source] += after.status is FactStatus.DELETED
        kind = FactChange.DETAILS if after.status is before.status else FactChange.STATUS
        return ChangedFact(before, after, kind)

    def _chunk_before(self, chunk: NodeId) -> ChunkWithRaws | None:
        return self.earlier.snapshot.read(lambda view: HierarchyReader(view).chunk_with_raws(chunk))

    def _source_before(self, source: SourceId) -> Source | None:
        return self.earlier.snapshot.read(lambda view: HierarchyReader(view).source(source))

    def _title_before(self, document: DocumentId) -> str:
        found = self.earlier.snapshot.read(lambda view: HierarchyReader(view).document(document))
        return "" if found is None else found.title


@dataclass(frozen=True, slots=True)
class _RecordsBefore:
    """Reads records of the corpus before the revision, with a cache."""

    chunk: Callable[[NodeId], ChunkWithRaws | None]
    source: Callable[[SourceId], Source | None]
    title: Callable[[DocumentId], str]


def _has_same_text(fact: Fact, before: ChunkWithRaws, after: ChunkWithRaws) -> bool:
    """Tells whether the chunk is still of the fact's document, and has the same text at the fact's place."""
    if after.chunk.document != fact.document or after.chunk.source != fact.source:
        return False
    span = fact.span or before.page.span
    return after.page.holds(span) and after.page.text_of(span) == before.page.text_of(span)


Node = TypeVar("Node", Chunk, Section, Master)


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """An encoded chunk."""

    chunk: bytes
    """The whole chunk, with its raws."""
    vector: bytes
    section: NodeId
    place: tuple[DocumentId, int, int]
    """Where its raws are: its document, the start of its span, and its ordinal."""


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a new hierarchy, all with version 1: they do not depend on what the corpus had."""

    documents: Mapping[DocumentId, Document]
    chunks: Mapping[NodeId, StoredChunk]
    sections: Mapping[NodeId, bytes]
    master: Master
    model: Model
    """The model of the chunks' vectors."""

    def chunk(self, node: NodeId) -> ChunkWithRaws | None:
        stored = self.chunks.get(node)
        return None if stored is None else decode_whole_chunk(node, stored.chunk)


@dataclass(frozen=True, slots=True)
class _Origin:
    """The creation of a node, and its last version."""

    created_at: datetime
    created_by: PrincipalId
    version: int

    @classmethod
    def of(cls, node: Chunk | Section | Master) -> _Origin:
        return cls(node.created_at, node.created_by, node.version)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Makes the writes of the revision, one by one as they are asked for."""

    call: Call
    earlier: EarlierCorpus
    known: Set[NodeId]
    """The nodes of the hierarchy that the corpus has or had. The new records are their next versions."""
    nodes: Set[NodeId]
    """All nodes of the hierarchy."""
    records: Records
    make: HierarchyWrites
    models_before: Embeddings | None
    models: Embeddings
    facts: ReplacedFacts

    def writes(self, before: Mapping[DocumentId, SourceId]) -> Iterator[Write]:
        """Yields all writes. `before` are the documents that the corpus has, with their sources."""
        yield from self.facts.writes()
        if self.models != self.models_before:
            yield self.make.set_embeddings(self.models)
        raws = {self.earlier.keys.raw(*stored.place) for stored in self.records.chunks.values()}
        yield from self.earlier.removals(self.nodes, raws, self.records.documents.keys(), self._stale_models())
        yield from self._documents(before)
        yield from self._chunks()
        yield from self._sections()
        yield from self._master()

    def _stale_models(self) -> Iterator[tuple[int, bool]]:
        """Yields the models that have vectors, each with whether the new revision still uses it."""
        for number in () if self.models_before is None else self.models_before.numbers:
            yield number, number in self.models.numbers

    def _documents(self, before: Mapping[DocumentId, SourceId]) -> Iterator[Write]:
        for batch in batches(self.records.documents.values()):
            yield from self._batch_of_documents(batch)
        yield from self._left_sources(before)

    def _batch_of_documents(self, documents: Sequence[Document]) -> Iterator[Write]:
        keys = self.earlier.keys
        last = self.earlier.last(DOCUMENT.decode, [keys.document(document.id) for document in documents], _unchanged)
        sources = self.earlier.sources([document.source for document in documents])
        for document, earlier_document, known in zip(documents, last, sources, strict=True):
            source = self._source(document, known)
            created = earlier_document or document
            yield from self.make.put_source(source)
            yield from self.make.put_document(
                replace(
                    document,
                    source_version=source.version,
                    created_at=created.created_at,
                    created_by=created.created_by,
                )
            )

    def _source(self, document: Document, known: Source | None) -> Source:
        """Returns the source with its new version. As in AddDocuments, the version stays if the content is the same."""
        following = next_version(known, document, self.call.at)
        if known is not None and known.document is not None and known.content_hash == document.content_hash != "":
            return replace(following, version=known.version, changed_at=known.changed_at)
        return following

    def _left_sources(self, before: Mapping[DocumentId, SourceId]) -> Iterator[Write]:
        """Yields the writes for sources without a document. The writes for their facts must have been read before."""
        gone = {source: document for document, source in before.items() if source in self.facts.gone}
        for source in self.earlier.sources(list(gone)):
            if source is not None and source.document == gone[source.id]:
                left = source.fact_count - self.facts.deleted[source.id]
                yield from self.make.put_source(replace(source.without_document(self.call.at), fact_count=left))

    def _chunks(self) -> Iterator[Write]:
        for batch in batches(self.records.chunks.items()):  # the caller renews its lease between batches
            origins = self._origins(_decode_without_id, [node for node, _ in batch], self.earlier.keys.chunk)
            for node, stored in batch:
                found = decode_whole_chunk(node, stored.chunk)
                chunk = _next_version(found.chunk, origins.get(node))
                yield from self.make.put_chunk(chunk, found.page, stored.vector)
                yield from self.make.join(stored.section, chunk)

    def _sections(self) -> Iterator[Write]:
        for batch in batches(self.records.sections.items()):
            origins = self._origins(SECTION.decode, [node for node, _ in batch], self.earlier.keys.section)
            for node, stored in batch:
                section = _next_version(SECTION.decode(stored), origins.get(node))
                yield from self.make.put_section(section, None)

    def _master(self) -> Iterator[Write]:
        master = self.records.master
        earlier_master = self.earlier.last_master(master.id) if master.id in self.known else None
        origin = None if earlier_master is None else _Origin.of(earlier_master)
        sources = {document.source for document in self.records.documents.values()}
        yield from self.make.put_master(_next_version(master, origin), None, sources)

    def _origins(
        self, decode: Callable[[bytes], Node], nodes: Collection[NodeId], key_of: Callable[[NodeId], bytes]
    ) -> dict[NodeId, _Origin]:
        """Returns the origin of each of these nodes that the corpus has or had."""
        known = [node for node in nodes if node in self.known]
        last = self.earlier.last(decode, [key_of(node) for node in known], _Origin.of)
        return {node: origin for node, origin in zip(known, last, strict=True) if origin is not None}


def _unchanged(document: Document) -> Document:
    return document


def _decode_without_id(stored: bytes) -> Chunk:
    """Decodes a chunk's record, whose id does not matter. The id is in the key of the record."""
    return decode_chunk(NodeId(UUID(int=0)), stored).chunk


def _next_version(node: Node, origin: _Origin | None) -> Node:
    if origin is None:
        return node
    return replace(node, created_at=origin.created_at, created_by=origin.created_by, version=origin.version + 1)
