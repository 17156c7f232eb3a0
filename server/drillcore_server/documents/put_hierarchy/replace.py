"""What a corpus has, and had, when a whole hierarchy replaces it. Read in batches: a corpus may be large.

What becomes of facts when a whole hierarchy takes the place of what a corpus has. It draws none itself.

A fact whose source has no document any more is deleted; one whose chunk is gone, or does not say the same any more, is
stale. A fact that was put without a chunk stays as long as the content of its source does. One that stays is found by
the titles that are above it then, and in the raw that it stands in then.

The writes that replace what a corpus has by a whole hierarchy.
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
from drillcore_server.facts.model import Fact, FactChange, FactStatus
from drillcore_server.facts.store import FACT, FactWrites
from drillcore_server.facts.words import titles_above
from drillcore_server.hierarchy.model import Chunk, ChunkWithRaws, Document, Master, Section, chunk_of_raw
from drillcore_server.hierarchy.packed import SECTION, decode_chunk
from drillcore_server.hierarchy.source_model import Source, succeeding
from drillcore_server.hierarchy.store import DOCUMENT, HierarchyReader, HierarchyWrites
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
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
"""Records read in one transaction, well within five seconds."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A corpus at the revision that is to be replaced."""

    snapshot: BatchedReads
    keyspace: Keyspace
    corpus: Corpus

    @property
    def keys(self) -> CorpusKeys:
        return self.snapshot.keys

    def known(self, levels: Mapping[NodeId, Level]) -> set[NodeId]:
        """Those nodes that the corpus has or had. Raises `Exists` if another corpus or level has one.

        To know it before anything is written: the commit makes sure of it again.
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

    def last(self, decode: Callable[[bytes], R], keys: Sequence[bytes], what: Callable[[R], T]) -> list[T | None]:
        """`what` is wanted of the last record of each key, whether the corpus still has it or not."""
        stored = self.snapshot.find(keys, _last)
        return [None if record is None else what(decode(record)) for record in stored]

    def last_master(self, node: NodeId) -> Master | None:
        """The last master of this id: a corpus may have had others since."""
        at = self.snapshot
        while True:
            master, written = at.read(
                lambda view: (
                    HierarchyReader(view).master_left(),
                    versioned.newest(view.tr, view.keys.master(), view.revision),
                )
            )
            if written is None or (master is not None and master.id == node):
                return master
            at = at.at(Revision(written - 1))

    def sources(self, ids: Sequence[SourceId]) -> list[Source | None]:
        return list(self.snapshot.find(ids, lambda view, one: HierarchyReader(view).source(one)))

    def documents(self) -> Iterator[Document]:
        """Those the corpus has."""
        for entry in self.snapshot.entries(self.keys.documents()):
            yield DOCUMENT.decode(self.snapshot.sealed.opened(entry).value)

    def section_ids(self) -> set[NodeId]:
        return {node_id(entry.key[-16:]) for entry in self.snapshot.entries(self.keys.listed_sections())}

    def removals(
        self, nodes: Container[NodeId], documents: Container[DocumentId], models: Iterable[tuple[int, bool]]
    ) -> Iterator[Write]:
        """Takes away what the corpus has, but for the records of these nodes and documents, which get new ones.

        All entries of the indexes go: what new nodes have there is to be written after this. `models` are those that
        have vectors, each with whether it is still used: then the vectors of these nodes stay, too.
        """
        keys, sections = self.keys, self.section_ids()
        indexes = (keys.all_categories(), keys.listed_sections(), keys.all_members(), keys.all_entities())
        for index in (*indexes, keys.all_embedded()):
            yield from (Write(entry.key, None) for entry in self.snapshot.entries(index))
        yield from (Write(keys.section(one), None) for one in sorted(sections) if one not in nodes)
        for entry in self.snapshot.entries(keys.parents()):
            node = node_id(entry.key[-16:])
            if node not in nodes:
                yield Write(entry.key, None)
                if node_id(entry.value) in sections:
                    yield Write(keys.chunk(node), None)
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
        message = "what had one of these ids was erased; give it a new one"
        raise Exists(Reason.NODE_EXISTS, message) from None
    return None if entry is None else entry.value


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """As many as are read in one transaction."""
    todo = iter(items)
    while batch := list(islice(todo, _BATCH)):
        yield batch


_AT_HAND: Final = 64
"""Chunks and sources that were asked for last: facts of one follow each other."""


@dataclass(slots=True)
class ReplacedFacts:
    """Makes the writes of one revision; afterwards it knows how many facts that changes."""

    earlier: Earlier
    documents: Mapping[SourceId, Document]
    """Of the new hierarchy, by their sources."""
    chunk_of: Callable[[NodeId], ChunkWithRaws | None]
    """Of the new hierarchy."""
    gone: Set[SourceId]
    """Sources that have no document any more."""
    make: FactWrites
    at: datetime
    changed: int = 0
    deleted: Counter[SourceId] = field(default_factory=Counter)

    def writes(self) -> Iterator[Write]:
        snapshot = self.earlier.snapshot
        before = _Before(
            lru_cache(_AT_HAND)(self._chunk_before),
            lru_cache(_AT_HAND)(self._source_before),
            lru_cache(_AT_HAND)(self._title_before),
        )
        entries = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.facts()))
        for some in batches(entries):  # between them the lease is renewed
            for entry in some:
                fact = FACT.decode(entry.value)
                yield from self._change(fact, self._after(fact, before))

    def _after(self, fact: Fact, before: _Before) -> Fact:
        if fact.source in self.gone and fact.status in {FactStatus.ACTIVE, FactStatus.STALE}:
            return fact.moved(FactStatus.DELETED, SOURCE_REMOVED, self.at)
        if fact.status is not FactStatus.ACTIVE:
            return fact
        if fact.chunk is None:
            is_said = self._says_the_same(fact, before.source(fact.source))
            return fact if is_said else fact.moved(FactStatus.STALE, NOT_SAID, self.at)
        held, holds = before.chunk(fact.chunk), self.chunk_of(fact.chunk)
        if held is None or holds is None or not _holds_the_same(fact, held, holds):
            return fact.moved(FactStatus.STALE, NOT_SAID, self.at)
        return self._placed(fact, (before.title(held.chunk.document), *held.chunk.headings), holds)

    def _placed(self, fact: Fact, were: tuple[str, ...], holds: ChunkWithRaws) -> Fact:
        """With the titles that are above it now. While those above its chunk are the same, its own stay."""
        title, headings = self.documents[fact.source].title, holds.chunk.headings
        titles = fact.titles if (title, *headings) == were else titles_above(title, headings)
        passage = None if fact.span is None else holds.page.place_of(fact.span.start)
        placed = replace(fact, titles=titles, passage=passage)
        return fact if placed == fact else replace(placed, modified_at=self.at, version=fact.version + 1)

    def _says_the_same(self, fact: Fact, source: Source | None) -> bool:
        document = self.documents.get(fact.source)
        if document is None or source is None or source.document is None:
            return True
        return source.content_hash == document.content_hash != ""

    def _change(self, before: Fact, after: Fact) -> Iterator[Write]:
        if after == before:
            return
        self.changed += 1
        self.deleted[after.source] += after.status is FactStatus.DELETED
        what = FactChange.DETAILS if after.status is before.status else FactChange.STATUS
        yield from self.make.change(before, after, what)

    def _chunk_before(self, chunk: NodeId) -> ChunkWithRaws | None:
        return self.earlier.snapshot.read(lambda view: HierarchyReader(view).chunk_with_raws(chunk))

    def _source_before(self, source: SourceId) -> Source | None:
        return self.earlier.snapshot.read(lambda view: HierarchyReader(view).source(source))

    def _title_before(self, document: DocumentId) -> str:
        found = self.earlier.snapshot.read(lambda view: HierarchyReader(view).document(document))
        return "" if found is None else found.title


@dataclass(frozen=True, slots=True)
class _Before:
    """What the corpus had."""

    chunk: Callable[[NodeId], ChunkWithRaws | None]
    source: Callable[[SourceId], Source | None]
    title: Callable[[DocumentId], str]


def _holds_the_same(fact: Fact, before: ChunkWithRaws, after: ChunkWithRaws) -> bool:
    if after.chunk.document != fact.document or after.chunk.source != fact.source:
        return False
    span = fact.span or before.page.span
    return after.page.holds(span) and after.page.text_of(span) == before.page.text_of(span)


Node = TypeVar("Node", Chunk, Section, Master)


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's records, encoded."""

    chunk: bytes
    """With its raws."""
    vector: bytes
    section: NodeId


@dataclass(frozen=True, slots=True)
class Records:
    """Everything there is of a hierarchy before it is known what the corpus had: all of version 1."""

    documents: Mapping[DocumentId, Document]
    chunks: Mapping[NodeId, StoredChunk]
    sections: Mapping[NodeId, bytes]
    master: Master
    model: Model
    """Of the chunks' vectors."""

    def chunk(self, node: NodeId) -> ChunkWithRaws | None:
        stored = self.chunks.get(node)
        return None if stored is None else decode_chunk(node, stored.chunk)


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a node comes from, and its last version."""

    created_at: datetime
    created_by: PrincipalId
    version: int

    @classmethod
    def of(cls, node: Chunk | Section | Master) -> _Origin:
        return cls(node.created_at, node.created_by, node.version)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Writes are made one by one, as they are asked for."""

    call: Call
    earlier: Earlier
    known: Set[NodeId]
    """Nodes of the hierarchy that the corpus has or had: the new ones are their next versions."""
    nodes: Set[NodeId]
    """All of the hierarchy."""
    records: Records
    make: HierarchyWrites
    models_before: Embeddings | None
    models: Embeddings
    facts: ReplacedFacts

    def writes(self, before: Mapping[DocumentId, SourceId]) -> Iterator[Write]:
        """`before` are the documents that the corpus has, and their sources."""
        yield from self.facts.writes()
        if self.models != self.models_before:
            yield self.make.set_embeddings(self.models)
        yield from self.earlier.removals(self.nodes, self.records.documents.keys(), self._stale_models())
        yield from self._documents(before)
        below: dict[NodeId, set[DocumentId]] = {}
        yield from self._chunks(below)
        yield from self._sections(below)
        yield from self._master()

    def _stale_models(self) -> Iterator[tuple[int, bool]]:
        """The models that have vectors, each with whether those of the nodes that stay get new ones."""
        for number in () if self.models_before is None else self.models_before.numbers:
            yield number, number in self.models.numbers

    def _documents(self, before: Mapping[DocumentId, SourceId]) -> Iterator[Write]:
        for some in batches(self.records.documents.values()):
            yield from self._some_documents(some)
        yield from self._left_sources(before)

    def _some_documents(self, documents: Sequence[Document]) -> Iterator[Write]:
        keys = self.earlier.keys
        last = self.earlier.last(DOCUMENT.decode, [keys.document(one.id) for one in documents], lambda one: one)
        sources = self.earlier.sources([one.source for one in documents])
        for document, had, known in zip(documents, last, sources, strict=True):
            source = self._source(document, known)
            created = had or document
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
        """As AddDocuments has it: a new version with other content, also after the source was removed."""
        following = succeeding(known, document, self.call.at)
        if known is not None and known.document is not None and known.content_hash == document.content_hash != "":
            return replace(following, version=known.version, changed_at=known.changed_at)
        return following

    def _left_sources(self, before: Mapping[DocumentId, SourceId]) -> Iterator[Write]:
        """Sources whose documents are gone. Their facts are written already."""
        gone = {source: document for document, source in before.items() if source in self.facts.gone}
        for source in self.earlier.sources(list(gone)):
            if source is not None and source.document == gone[source.id]:
                left = source.fact_count - self.facts.deleted[source.id]
                yield from self.make.put_source(replace(source.left(self.call.at), fact_count=left))

    def _chunks(self, below: dict[NodeId, set[DocumentId]]) -> Iterator[Write]:
        """Fills in which documents are `below` each section."""
        for some in batches(self.records.chunks.items()):  # between them the lease is renewed
            had = self._had(_decode_any_chunk, [node for node, _ in some], self.earlier.keys.chunk)
            for node, stored in some:
                found = decode_chunk(node, stored.chunk)
                chunk = _next_version(found.chunk, had.get(node))
                below.setdefault(stored.section, set()).add(chunk.document)
                yield from self.make.put_chunk(chunk, found.page, stored.vector)
                yield from self.make.join(stored.section, chunk)

    def _sections(self, below: Mapping[NodeId, set[DocumentId]]) -> Iterator[Write]:
        for some in batches(self.records.sections.items()):
            had = self._had(SECTION.decode, [node for node, _ in some], self.earlier.keys.section)
            for node, stored in some:
                section = _next_version(SECTION.decode(stored), had.get(node))
                yield from self.make.put_section(section, None)
                # A client's summary may tell of anything below it, whether it says so or not.
                yield from self.make.cite_documents(section.id, below[node])

    def _master(self) -> Iterator[Write]:
        master = self.records.master
        had = self.earlier.last_master(master.id) if master.id in self.known else None
        origin = None if had is None else _Origin.of(had)
        sources = {one.source for one in self.records.documents.values()}
        yield from self.make.put_master(_next_version(master, origin), None, sources)
        yield from self.make.cite_documents(master.id, self.records.documents)

    def _had(
        self, decode: Callable[[bytes], Node], nodes: Collection[NodeId], key_of: Callable[[NodeId], bytes]
    ) -> dict[NodeId, _Origin]:
        known = [node for node in nodes if node in self.known]
        last = self.earlier.last(decode, [key_of(node) for node in known], _Origin.of)
        return {node: origin for node, origin in zip(known, last, strict=True) if origin is not None}


def _decode_any_chunk(stored: bytes) -> Chunk:
    """For what does not depend on its id, which is in its key."""
    return decode_chunk(NodeId(UUID(int=0)), stored).chunk


def _next_version(node: Node, had: _Origin | None) -> Node:
    if had is None:
        return node
    return replace(node, created_at=had.created_at, created_by=had.created_by, version=had.version + 1)
