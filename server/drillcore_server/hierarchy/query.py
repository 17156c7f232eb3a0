"""Query: the nodes that its filters allow, found through indexes, and their ranking by meaning."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.chunk_index import VectorCache
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.node_signatures import NodeSignatures
from drillcore_server.hierarchy.nodes import Filters, Node
from drillcore_server.hierarchy.reader import NodeReader
from drillcore_server.hierarchy.search_text import Sought, SoughtText, SoughtVector
from drillcore_server.hierarchy.sections import SectionIndexes
from drillcore_server.hierarchy.store import HierarchyReader, HierarchyWrites, sections_ahead
from drillcore_server.hierarchy.walk import Path, Walk, nodes_at_once
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.canonical_json import fingerprint
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.pages import PageLimit, fill_page, make_token, page_size, read_together, read_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CorpusId, DocumentId, Level, NodeId, Revision, TenantId
from drillcore_server.vectors.embedding.embedders import Embedders
from drillcore_server.vectors.vector_index import VectorIndex

_PARENTS_MAX: Final = 1_000
"""Up to how many chunks are looked for in their own sections, and not by going through all sections."""
_LOOKED_AT_MAX: Final = 1_000
"""Up to how many chunks are read to see which entities they name, in place of the index of entities."""
_READ_AT_ONCE: Final = 250


class Selection:
    """Finds the nodes of one corpus that the filters allow."""

    def __init__(self, reads: CorpusReads, nodes: NodeReader, filters: Filters) -> None:
        self._reads = reads
        self._nodes = nodes
        self._hierarchy = HierarchyReader(nodes.view)
        self._filters = filters

    def listed(self, level: Level, limit: PageLimit, after: Path | None) -> Iterator[tuple[Path, Node]]:
        """The allowed nodes of a level behind a path, in the order of sections and documents, each with its path."""
        if level is Level.MASTER:
            return self._master(after)
        sections, chunks = self._sections_named(), self._chunks()
        walk = Walk(self._nodes, level, limit, after, chunks)
        return walk.through(self._chosen_sections(level, sections, chunks, after))

    def allowed(self, level: Level) -> set[NodeId] | None:
        """The allowed sections or chunks; None means all."""
        sections, chunks = self._sections_named(), self._chunks()
        if level is Level.SECTION:
            return _both(sections, None if chunks is None else self._parents(chunks))
        return _both(chunks, None if sections is None else self._members(sections))

    def _master(self, after: Path | None) -> Iterator[tuple[Path, Node]]:
        chunks = self.allowed(Level.CHUNK)
        master = self._nodes.master
        if after is None and master is not None and (chunks is None or chunks):
            yield Path(), master

    def _chosen_sections(
        self, level: Level, named: set[NodeId] | None, chunks: set[NodeId] | None, after: Path | None
    ) -> Iterator[NodeId]:
        """The sections to go through, sorted, from that of the path on. Some may have no allowed chunk."""
        first = None if after is None else after.section
        if chunks is not None and (level is Level.SECTION or len(chunks) <= _PARENTS_MAX):
            named = _both(named, self._parents(chunks))
        if named is None:
            return self._hierarchy.section_ids(first)
        return (section for section in sorted(named) if first is None or section >= first)

    def _parents(self, chunks: set[NodeId]) -> set[NodeId]:
        return {parent for parent in read_together(chunks, _PARENTS_MAX, self._hierarchy.parents) if parent is not None}

    def _members(self, sections: set[NodeId]) -> set[NodeId]:
        found = read_together(sorted(sections), _READ_AT_ONCE, self._hierarchy.chunks_of_each)
        return {chunk for chunks in found for chunk in chunks}

    def _sections_named(self) -> set[NodeId] | None:
        """The sections of the categories; None means all."""
        if not self._filters.categories:
            return None
        hashed = self._hashes().hashed
        return {
            section
            for category in self._filters.categories
            for section in self._hierarchy.sections_in(hashed(category))
        }

    def _chunks(self) -> set[NodeId] | None:
        """The chunks that all filters but the categories allow; None means all."""
        filters = self._filters
        chunks = self._chunks_of_documents()
        if filters.entities and chunks is not None and len(chunks) <= _LOOKED_AT_MAX:
            return set(read_together(sorted(chunks), _READ_AT_ONCE, self._naming_all))
        for entity in filters.entities:
            chunks = _both(chunks, self._chunks_naming(entity.type, entity.value))
        return chunks

    def _naming_all(self, chunks: Sequence[NodeId]) -> Iterator[NodeId]:
        """Those of the chunks that name all entities of the filter. Reads ahead what else a query needs of a chunk."""
        self._nodes.view.read_ahead(self._nodes.keys_of(chunks, Level.CHUNK))
        for found in self._hierarchy.placed_chunks(chunks):
            if found is not None and self._filters.allows_entities(found.chunk.entities):
                yield found.chunk.id

    def _chunks_naming(self, kind: str, value: str) -> set[NodeId]:
        hashes = self._hashes()
        return set(self._hierarchy.chunks_naming(hashes.hashed_kind(kind), hashes.hashed(value) if value else b""))

    def _chunks_of_documents(self) -> set[NodeId] | None:
        """The chunks of the documents that the filters name and whose time they allow; None if they do neither."""
        filters = self._filters
        found: Iterable[Document | None]
        if filters.documents or filters.sources:
            found = self._hierarchy.documents_by_id(sorted(self._documents_named()))
        elif filters.created_after is not None or filters.created_before is not None:
            found = self._hierarchy.documents()
        else:
            return None
        there = (document for document in found if document is not None and filters.allows_time(document.created_at))
        return {chunk for document in there for chunk in document.chunks}

    def _documents_named(self) -> set[DocumentId]:
        documents = set(self._filters.documents) or None
        if self._filters.sources:
            sources = self._hierarchy.sources_by_id(sorted(self._filters.sources))
            of_sources = {source.document for source in sources if source is not None and source.document}
            documents = of_sources if documents is None else documents & of_sources
        return documents or set()

    def _hashes(self) -> HierarchyWrites:
        corpus = self._nodes.view.corpus
        return HierarchyWrites(self._reads.unit.keys, corpus.tenant_id, corpus.number, self._reads.keyring)


def _both(first: set[NodeId] | None, second: set[NodeId] | None) -> set[NodeId] | None:
    """What both allow. None allows all."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


CORPORA_MAX: Final = 100
TEXT_CHARACTERS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Hit:
    node: Node
    score: float | None


@dataclass(frozen=True, slots=True)
class Hits:
    hits: Sequence[Hit]
    revisions: Mapping[CorpusId, Revision]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A query: what to search for, in which corpora, at which moment."""

    corpora: tuple[CorpusId, ...]
    level: Level
    text: str
    filters: Filters
    as_of: AsOf
    vector: tuple[float, ...] = ()
    """The vector to search with in place of a text. `embedding_model` made it."""
    embedding_model: str = ""

    @property
    def is_ranked(self) -> bool:
        """Whether it has a text or a vector to compare nodes with."""
        return bool(self.vector or self.text.strip())

    def fingerprint(self) -> str:
        """A hash that is the same for equal questions on every server. Binds page tokens to their query."""
        return fingerprint("nodes queried", self).hex()


@dataclass(frozen=True, slots=True)
class NodeSearch:
    """The parts that a query uses: corpora, the indexes of their vectors, and the models that embed its text."""

    reads: CorpusReads
    sections: SectionIndexes
    chunks: VectorCache
    embedders: Embedders

    def index(self, view: CorpusAtRevision, level: Level) -> VectorIndex[NodeId]:
        return self.chunks.at(view) if level is Level.CHUNK else self.sections.at(view)


def query(
    search: NodeSearch, call: Call, *, tenant: TenantId | None, question: Question, size: int, token: str
) -> Hits:
    """The nodes of one level that the filters allow: best first if there is a text or vector, else in order.

    Later pages show the same revisions as the first page.
    """
    _check(question)
    reads = search.reads
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    sought = _sought(search.embedders, question)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Hits:
        if question.text:
            trail.private["query"] = question.text
        listing = f"nodes of {granted.tenant} {question.fingerprint()}"
        cursor = _Cursor.read(read_token(listing, token))
        signatures = NodeSignatures(reads, tr, granted)
        readers = _readers(reads, tr, granted, trail, question, cursor, signatures)
        if sought is None:
            found = _listed(reads, readers, question, limit, cursor)
        else:
            found = _ranked(search, readers, question, sought, limit, cursor)
        page, more = fill_page(((hit, hit.node.size_bytes) for hit in found), limit)
        nodes = signatures.added_to([hit.node for hit in page], *(reader.view for reader in readers))
        trail.touch_nodes(nodes)
        hits = [Hit(node, hit.score) for node, hit in zip(nodes, page, strict=True)]
        revisions = {reader.view.corpus.id: reader.view.revision for reader in readers}
        if not more:
            return Hits(hits, revisions)
        following = _Cursor(*page[-1].place, tuple(revisions.items()))
        return Hits(hits, revisions, make_token(listing, following.written()))

    def run() -> Hits:
        return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)

    return run() if sought is None else sought.run(run)


def _sought(embedders: Embedders, question: Question) -> Sought | None:
    """The text or vector to compare nodes with; None if the question has neither."""
    if question.vector:
        return SoughtVector(question.vector, question.embedding_model)
    return SoughtText(embedders, question.text) if question.is_ranked else None


class _Place(NamedTuple):
    """How far a query has come: in a ranking the number of nodes, in a listing the corpus and the path in it."""

    number: int = 0
    path: bytes = b""


@dataclass(frozen=True, slots=True)
class _PlacedHit:
    """A hit, and the place behind it."""

    node: Node
    score: float | None
    place: _Place


@dataclass(frozen=True, slots=True)
class _Cursor:
    """The state of a page token: the place where the page begins, and which corpora and revisions the pages are of."""

    number: int = 0
    path: bytes = b""
    revisions: tuple[tuple[CorpusId, Revision], ...] = ()

    @classmethod
    def read(cls, stored: bytes | None) -> _Cursor:
        if stored is None:
            return cls()
        start = 7 + stored[6]
        pairs = (stored[place : place + 22] for place in range(start, len(stored), 22))
        revisions = tuple(
            (CorpusId(UUID(bytes=pair[:16])), Revision(int.from_bytes(pair[16:], "big"))) for pair in pairs
        )
        return cls(int.from_bytes(stored[:6], "big"), stored[7:start], revisions)

    def written(self) -> bytes:
        pairs = (corpus.bytes + revision.to_bytes(6, "big") for corpus, revision in self.revisions)
        return self.number.to_bytes(6, "big") + bytes([len(self.path)]) + self.path + b"".join(pairs)


def _check(question: Question) -> None:
    if len(question.corpora) > CORPORA_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"name at most {CORPORA_MAX} corpora", field="corpus_ids")
    if len(question.text) > TEXT_CHARACTERS_MAX:
        message = f"text has over {TEXT_CHARACTERS_MAX} characters"
        raise BadInput(Reason.TOO_LARGE, message, field="text")
    if question.text and question.vector:
        raise BadInput(Reason.INVALID_ARGUMENT, "search by a text or by a vector, not by both", field="vector")
    if bool(question.vector) != bool(question.embedding_model):
        message = "set vector and embedding_model together: the model is the one that made the vector"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="embedding_model")
    if (question.text or question.vector) and question.level not in {Level.SECTION, Level.CHUNK}:
        field = "text" if question.text else "vector"
        message = f"only sections and chunks are searched by meaning: set level to one of them, or leave {field} out"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field=field)
    if question.as_of.revision is not None and len(question.corpora) != 1:
        message = "a revision belongs to one corpus: name that corpus alone in corpus_ids"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="as_of")


def _readers(
    reads: CorpusReads,
    tr: Reader,
    granted: InTenant,
    trail: Trail,
    question: Question,
    cursor: _Cursor,
    signatures: NodeSignatures,
) -> list[NodeReader]:
    """A reader for each corpus, in order. Reads ahead what a query needs first of each."""
    moments = [(corpus, AsOf(revision)) for corpus, revision in cursor.revisions]
    if not moments:
        ids = question.corpora or _all_corpora(reads, tr, granted, question.level)
        moments = [(corpus, question.as_of) for corpus in ids]
    views = [reads.at(tr, granted, trail, corpus, as_of) for corpus, as_of in moments]
    for view in views:
        granted.check_level(view.corpus.id, question.level)
    _read_ahead(tr, views, question, cursor, signatures)
    return [NodeReader(view, signatures.of(view)) for view in views]


def _read_ahead(
    tr: Reader, views: Sequence[CorpusAtRevision], question: Question, cursor: _Cursor, signatures: NodeSignatures
) -> None:
    """Reads what a query begins with: models and masters, whether nodes are signed, and the sections to list."""
    records = [(key, view.revision) for view in views for key in (view.keys.embeddings(), view.keys.master())]
    keys = [view.keys for view in views]
    after = Path.read(cursor.path)
    begins = {cursor.number: after.section} if after is not None else {}
    listed = [] if question.is_ranked else list(enumerate(keys))[cursor.number :]
    sections = (sections_ahead(corpus, begins.get(number)) for number, corpus in listed)
    versioned.read_ahead(tr, records, [*sections, *signatures.whether_any(*keys)])


def _all_corpora(reads: CorpusReads, tr: Reader, granted: InTenant, level: Level) -> tuple[CorpusId, ...]:
    """Every corpus that the caller may read at this level, including shared corpora."""
    stored = granted.corpora(tr, reads.unit.keys)
    found = list(islice((corpus for corpus, _ in stored if granted.reaches(corpus.id, level)), CORPORA_MAX + 1))
    if len(found) > CORPORA_MAX:
        message = f"you can read over {CORPORA_MAX} corpora, and one query searches at most {CORPORA_MAX}: name them"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="corpus_ids")
    reads.unit.read_ahead.read_corpora(tr, found)
    return tuple(corpus.id for corpus in found)


def _listed(
    reads: CorpusReads, readers: Sequence[NodeReader], question: Question, limit: PageLimit, cursor: _Cursor
) -> Iterator[_PlacedHit]:
    """The allowed nodes behind the cursor, corpus after corpus."""
    for number, reader in enumerate(readers[cursor.number :], cursor.number):
        after = Path.read(cursor.path) if number == cursor.number else None
        for path, node in Selection(reads, reader, question.filters).listed(question.level, limit, after):
            yield _PlacedHit(node, None, _Place(number, path.written()))


def _ranked(
    search: NodeSearch,
    readers: Iterable[NodeReader],
    question: Question,
    sought: Sought,
    limit: PageLimit,
    cursor: _Cursor,
) -> Iterator[_PlacedHit]:
    """All allowed nodes by cosine, from the cursor on.

    Scores are rounded to 1e-6; of equal scores, the smaller id comes first.
    """
    rankings = [_ranking(search, reader, question, sought) for reader in readers]
    merged = heapq.merge(*rankings, key=lambda ranked: (-ranked.score, ranked.id))
    numbered = islice(enumerate(merged, 1), cursor.number, None)
    return read_together(numbered, nodes_at_once(limit), lambda batch: _shown(batch, question.level))


class _Ranked(NamedTuple):
    reader: NodeReader
    id: NodeId
    score: float


def _ranking(search: NodeSearch, reader: NodeReader, question: Question, sought: Sought) -> Iterator[_Ranked]:
    index = search.index(reader.view, question.level)
    if reader.embeddings is None or not len(index):
        return
    vector = sought.of(reader.view.corpus.id, reader.embeddings.current.model)
    allowed = Selection(search.reads, reader, question.filters).allowed(question.level)
    for node, score in index.ranking(vector, allowed):
        yield _Ranked(reader, node, score)


def _shown(ranked: Sequence[tuple[int, _Ranked]], level: Level) -> Iterator[_PlacedHit]:
    """Ranked nodes as callers see them, without erased ones. Those of a corpus are read together."""
    by_corpus: dict[CorpusId, list[_Ranked]] = {}
    for _, found in ranked:
        by_corpus.setdefault(found.reader.view.corpus.id, []).append(found)
    shown = {
        node.id: node
        for group in by_corpus.values()
        for node in group[0].reader.nodes([found.id for found in group], level)
        if node is not None
    }
    for number, found in ranked:
        if found.id in shown:
            yield _PlacedHit(shown[found.id], found.score, _Place(number))
