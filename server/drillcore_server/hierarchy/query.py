"""Query: the nodes that its filters allow, found through indexes, and their ranking by meaning."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.chunk_index import VectorCache
from drillcore_server.hierarchy.nodes import Filters, Node
from drillcore_server.hierarchy.reader import NodeReader, with_signatures
from drillcore_server.hierarchy.search_text import Sought, SoughtText, SoughtVector
from drillcore_server.hierarchy.sections import SectionIndexes
from drillcore_server.hierarchy.store import HierarchyReader, HierarchyWrites
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.canonical_json import fingerprint
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads, unless_erased
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import CorpusId, Level, NodeId, Revision, TenantId
from drillcore_server.vectors.embedding.embedders import Embedders
from drillcore_server.vectors.vector_index import VectorIndex


class Selection:
    """Finds the nodes of one corpus that the filters allow."""

    def __init__(self, reads: CorpusReads, nodes: NodeReader, filters: Filters) -> None:
        self._reads = reads
        self._nodes = nodes
        self._hierarchy = HierarchyReader(nodes.view)
        self._filters = filters

    def nodes(self, level: Level) -> Iterator[NodeId]:
        """The allowed nodes of a level, in the order of sections and documents."""
        if level is Level.MASTER:
            master, chunks = self._nodes.master_id, self.allowed(Level.CHUNK)
            if master is not None and (chunks is None or chunks):
                yield master
            return
        allowed = self.allowed(Level.SECTION if level is Level.SECTION else Level.CHUNK)
        for section in self._hierarchy.section_ids():
            if level is Level.SECTION:
                if allowed is None or section in allowed:
                    yield section
                continue
            for chunk in self._hierarchy.chunks_of(section):
                if allowed is None or chunk in allowed:
                    if level is Level.CHUNK:
                        yield chunk
                    else:
                        yield from (raw.id for raw in self._nodes.raws_unless_erased(chunk))

    def allowed(self, level: Level) -> set[NodeId] | None:
        """The allowed sections or chunks; None means all."""
        chunks = self._allowed_chunks(with_categories=level is Level.CHUNK)
        if level is Level.CHUNK:
            return chunks
        sections = None if chunks is None else {parent for chunk in chunks if (parent := self._hierarchy.parent(chunk))}
        if self._filters.categories:
            named = self._sections_named()
            sections = named if sections is None else sections & named
        return sections

    def _allowed_chunks(self, *, with_categories: bool) -> set[NodeId] | None:
        filters = self._filters
        sets: list[set[NodeId]] = []
        if with_categories and filters.categories:
            sets.append({chunk for section in self._sections_named() for chunk in self._hierarchy.chunks_of(section)})
        if filters.documents or filters.sources:
            sets.append(self._chunks_of_documents())
        sets += [self._chunks_naming(entity.type, entity.value) for entity in filters.entities]
        if filters.created_after is not None or filters.created_before is not None:
            sets.append(self._chunks_in_time())
        return set.intersection(*sets) if sets else None

    def _sections_named(self) -> set[NodeId]:
        hashed = self._hashes().hashed
        return {
            section
            for category in self._filters.categories
            for section in self._hierarchy.sections_in(hashed(category))
        }

    def _chunks_naming(self, kind: str, value: str) -> set[NodeId]:
        hashes = self._hashes()
        return set(self._hierarchy.chunks_naming(hashes.hashed_kind(kind), hashes.hashed(value) if value else b""))

    def _chunks_of_documents(self) -> set[NodeId]:
        documents = set(self._filters.documents) or None
        if self._filters.sources:
            sources = [self._hierarchy.source_unless_erased(source) for source in self._filters.sources]
            of_sources = {source.document for source in sources if source is not None and source.document}
            documents = of_sources if documents is None else documents & of_sources
        found = [unless_erased(self._hierarchy.document, document) for document in documents or ()]
        return {chunk for document in found if document is not None for chunk in document.chunks}

    def _chunks_in_time(self) -> set[NodeId]:
        return {
            chunk
            for document in self._hierarchy.documents()
            if self._filters.allows_time(document.created_at)
            for chunk in document.chunks
        }

    def _hashes(self) -> HierarchyWrites:
        corpus = self._nodes.view.corpus
        return HierarchyWrites(self._reads.unit.keys, corpus.tenant_id, corpus.number, self._reads.keyring)


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
        listing = f"query of {granted.tenant} {question.fingerprint()}"
        cursor = _Cursor.read(read_token(listing, token))
        readers = _readers(reads, tr, granted, trail, question, cursor)
        found = _listed(reads, readers, question) if sought is None else _ranked(search, readers, question, sought)
        rest = islice(found, cursor.offset, None)
        still_there = ((reader.node_unless_erased(node, question.level), score) for reader, node, score in rest)
        hits, more = fill_page((_sized(node, score) for node, score in still_there if node is not None), limit)
        nodes = with_signatures(reads, tr, granted, [hit.node for hit in hits], *(reader.view for reader in readers))
        hits = [Hit(node, hit.score) for node, hit in zip(nodes, hits, strict=True)]
        trail.touch_nodes(nodes)
        revisions = {reader.view.corpus.id: reader.view.revision for reader in readers}
        if not more:
            return Hits(hits, revisions)
        following = _Cursor(cursor.offset + len(hits), tuple(revisions.items()))
        return Hits(hits, revisions, make_token(listing, following.written()))

    def run() -> Hits:
        return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)

    return run() if sought is None else sought.run(run)


def _sought(embedders: Embedders, question: Question) -> Sought | None:
    """The text or vector to compare nodes with; None if the question has neither."""
    if question.vector:
        return SoughtVector(question.vector, question.embedding_model)
    return SoughtText(embedders, question.text) if question.text.strip() else None


def _sized(node: Node, score: float | None) -> tuple[Hit, int]:
    return Hit(node, score), node.size_bytes


@dataclass(frozen=True, slots=True)
class _Cursor:
    """The state of a page token: how many hits were shown, and which corpora and revisions the pages are of."""

    offset: int = 0
    revisions: tuple[tuple[CorpusId, Revision], ...] = ()

    @classmethod
    def read(cls, stored: bytes | None) -> _Cursor:
        if stored is None:
            return cls()
        pairs = (stored[place : place + 22] for place in range(6, len(stored), 22))
        revisions = tuple(
            (CorpusId(UUID(bytes=pair[:16])), Revision(int.from_bytes(pair[16:], "big"))) for pair in pairs
        )
        return cls(int.from_bytes(stored[:6], "big"), revisions)

    def written(self) -> bytes:
        pairs = (corpus.bytes + revision.to_bytes(6, "big") for corpus, revision in self.revisions)
        return self.offset.to_bytes(6, "big") + b"".join(pairs)


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
    reads: CorpusReads, tr: Reader, granted: InTenant, trail: Trail, question: Question, cursor: _Cursor
) -> list[NodeReader]:
    moments = [(corpus, AsOf(revision)) for corpus, revision in cursor.revisions]
    if not moments:
        ids = question.corpora or _all_corpora(reads, tr, granted, question.level)
        moments = [(corpus, question.as_of) for corpus in ids]
    views = [reads.at(tr, granted, trail, corpus, as_of) for corpus, as_of in moments]
    for view in views:
        granted.check_level(view.corpus.id, question.level)
    return [NodeReader(view) for view in views]


def _all_corpora(reads: CorpusReads, tr: Reader, granted: InTenant, level: Level) -> tuple[CorpusId, ...]:
    """Every corpus that the caller may read at this level, including shared corpora."""
    stored = granted.corpora(tr, reads.unit.keys)
    allowed = (corpus.id for corpus, _ in stored if granted.reaches(corpus.id, level))
    ids = tuple(islice(allowed, CORPORA_MAX + 1))
    if len(ids) > CORPORA_MAX:
        message = f"you can read over {CORPORA_MAX} corpora, and one query searches at most {CORPORA_MAX}: name them"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="corpus_ids")
    return ids


def _listed(
    reads: CorpusReads, readers: Iterable[NodeReader], question: Question
) -> Iterator[tuple[NodeReader, NodeId, float | None]]:
    for reader in readers:
        for node in Selection(reads, reader, question.filters).nodes(question.level):
            yield reader, node, None


def _ranked(
    search: NodeSearch, readers: Iterable[NodeReader], question: Question, sought: Sought
) -> Iterator[tuple[NodeReader, NodeId, float | None]]:
    """All allowed nodes by cosine. Scores are rounded to 1e-6; of equal scores, the smaller id comes first."""
    rankings = [_ranking(search, reader, question, sought) for reader in readers]
    return heapq.merge(*rankings, key=lambda hit: (-(hit[2] or 0.0), hit[1]))


def _ranking(
    search: NodeSearch, reader: NodeReader, question: Question, sought: Sought
) -> Iterator[tuple[NodeReader, NodeId, float | None]]:
    index = search.index(reader.view, question.level)
    if reader.embeddings is None or not len(index):
        return
    vector = sought.of(reader.view.corpus.id, reader.embeddings.current.model)
    allowed = Selection(search.reads, reader, question.filters).allowed(question.level)
    for node, score in index.ranking(vector, allowed):
        yield reader, node, score
