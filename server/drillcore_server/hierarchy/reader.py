"""Finds the corpora of nodes, and reads nodes as callers see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from drillcore_fdb.engine import RangeRead, Reader
from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.model import Chunk, ChunkWithRaws, Master, Section, chunk_of_raw, raw_id
from drillcore_server.hierarchy.nodes import ChunkText, Node, RawText
from drillcore_server.hierarchy.store import (
    HierarchyReader,
    MembersOf,
    locate_each,
    locators,
    raw_key,
    sections_ahead,
)
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import BadInput, Missing, Unavailable
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, erased
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusId, DocumentId, Level, NodeId, TenantId
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.model import EmbeddingModel, Embeddings
from drillcore_server.vectors.stored_vectors import unpacked

CHILDREN_MAX: Final = 250
"""How many children GetNode names. DrillDown gives all of them, in pages."""


def expected_locators(reads: CorpusReads, call: Call, tenant: TenantId | None, nodes: Sequence[NodeId]) -> list[bytes]:
    """The keys that a call about these nodes begins with, to be read ahead. Empty if its tenant is not known yet."""
    owner = call.principal.tenant or tenant
    return [] if owner is None else locators(reads.unit.keys, owner, nodes)


Ahead = Callable[[CorpusKeys, Level], Sequence[RangeRead]]
"""The ranges that a call about a node reads next, whatever the revision. They are read ahead with the head."""


def _nothing(*_: object) -> Sequence[RangeRead]:
    return ()


def at_node(
    reads: CorpusReads,
    tr: Reader,
    granted: InTenant,
    trail: Trail,
    node: NodeId,
    as_of: AsOf,
    ahead: Ahead = _nothing,
) -> tuple[CorpusAtRevision, Level]:
    """The node's corpus at a moment, and the node's level.

    Raises `Missing` if there is no such node, or if the caller is not granted its corpus.
    """
    view, (level,) = at_nodes(reads, tr, granted, trail, [node], as_of, ahead)
    return view, level


def at_nodes(
    reads: CorpusReads,
    tr: Reader,
    granted: InTenant,
    trail: Trail,
    nodes: Sequence[NodeId],
    as_of: AsOf,
    ahead: Ahead = _nothing,
) -> tuple[CorpusAtRevision, list[Level]]:
    """The corpus of some nodes at a moment, and their levels. Raises as `at_node`, and `BadInput` for two corpora."""
    found = _find(reads, tr, granted, nodes, ahead)
    corpora = {corpus.id: corpus for corpus, _ in found.values()}
    for corpus in corpora.values():
        trail.touch_corpus(corpus.id)
    if missed := next((node for node in nodes if node not in found), None):
        raise missing(missed)
    if len(corpora) > 1:
        message = "the nodes are of different corpora; roll up those of each corpus in a call of its own"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="ids")
    (corpus,) = corpora.values()
    return reads.opened(tr, trail, granted.admitted(corpus), as_of), [found[node][1] for node in nodes]


def _find(
    reads: CorpusReads, tr: Reader, granted: InTenant, nodes: Sequence[NodeId], ahead: Ahead
) -> dict[NodeId, tuple[Corpus, Level]]:
    """The corpus and level of each node that is there. The locators of a tenant are read together."""
    keys = reads.unit.keys
    found: dict[NodeId, tuple[Corpus, Level]] = {}
    for owner in granted.owners(tr, keys):
        left = [node for node in nodes if node not in found]
        located = list(zip(left, locate_each(tr, keys, owner, left), strict=True))
        levels = {at.corpus: at.level for _, at in located if at is not None}
        corpora = {
            number: reads.numbered(tr, granted, owner, number, ahead(keys.of_corpus(number), level))
            for number, level in levels.items()
        }
        for node, at in located:
            corpus = None if at is None else corpora[at.corpus]
            if at is not None and corpus is not None:
                found[node] = corpus, at.level
        if all(node in found for node in nodes):
            break
    return found


def children_ahead(keys: CorpusKeys, node: NodeId, level: Level) -> list[RangeRead]:
    """What the list of a node's children begins with, to be read ahead."""
    if level is Level.MASTER:
        return [sections_ahead(keys)]
    return [MembersOf(node).ahead(keys)] if level is Level.SECTION else []


def missing(node: NodeId) -> Missing:
    return Missing(Reason.NODE_NOT_FOUND, f"there is no node {node}")


@dataclass(frozen=True)
class NodeReader:
    """Reads the nodes of one corpus at one revision as callers see them."""

    view: CorpusAtRevision
    beside: Callable[[Sequence[NodeId]], Sequence[RangeRead]] = _nothing
    """What the caller will read about nodes itself, such as their signatures. It is read ahead with the nodes."""

    @cached_property
    def _hierarchy(self) -> HierarchyReader:
        return HierarchyReader(self.view)

    def node(self, node: NodeId, level: Level, *, with_embedding: bool = False) -> Node:
        """The node. Raises `Missing` if this revision does not have it."""
        (found,) = self.all_of([node], level, with_embedding=with_embedding)
        return found

    def all_of(self, nodes: Sequence[NodeId], level: Level, *, with_embedding: bool = False) -> list[Node]:
        """Same as `node`, for several nodes of one level, read together."""
        found = self.nodes(nodes, level, with_embedding=with_embedding)
        for node, shown in zip(nodes, found, strict=True):
            if shown is None or shown.id != node:
                raise self._missing(node, level)
        return [shown for shown in found if shown is not None]

    def nodes(self, nodes: Sequence[NodeId], level: Level, *, with_embedding: bool = False) -> list[Node | None]:
        """Several nodes of one level, read together. None for those that are missing or erased."""
        self.view.read_ahead(self.keys_of(nodes, level), self.beside(nodes))
        if level is Level.MASTER:
            return [self.master for _ in nodes]
        if level is Level.SECTION:
            return [None if found is None else self._section(found) for found in self._hierarchy.sections(nodes)]
        if level is Level.CHUNK:
            return self._chunks(nodes, with_embedding=with_embedding)
        return self._raws(nodes)

    def keys_of(self, nodes: Iterable[NodeId], level: Level) -> list[bytes]:
        """The records that `nodes` reads first, all together."""
        keys = self.view.keys
        if level is Level.MASTER:
            return [keys.master()]
        if level is Level.SECTION:
            return [keys.master(), *map(keys.section, nodes)]
        if level is Level.CHUNK:
            return [keys.embeddings(), *(key for node in nodes for key in (keys.chunk(node), keys.parent(node)))]
        chunks = {chunk_of_raw(node)[0] for node in nodes}
        return [*map(keys.parent, nodes), *self.keys_of(chunks, Level.CHUNK)]

    def _missing(self, node: NodeId, level: Level) -> Missing:
        """The error for a node that was not found. The last record of the node tells whether it was erased."""
        keys = self.view.keys
        if level is Level.MASTER:
            return erased() if self._is_erased(keys.master()) else missing(node)
        chunk = self._hierarchy.parent(node) or chunk_of_raw(node)[0] if level is Level.RAW else node
        key = keys.section(node) if level is Level.SECTION else keys.chunk(chunk)
        return erased() if self.view.was_erased(key) else missing(node)

    def _is_erased(self, key: bytes) -> bool:
        """Whether the record at this revision was erased."""
        try:
            self.view.sealed.get(self.view.tr, key, self.view.revision)
        except KeyErased:
            return True
        return False

    @cached_property
    def master(self) -> Node | None:
        """The master. None if there is none, or if its record at this revision was erased, and its id with it."""
        master = self._hierarchy.master_unless_erased()
        return None if master is None else self._shown(master.id, Level.MASTER, None, master)

    @property
    def master_id(self) -> NodeId | None:
        return None if self.master is None else self.master.id

    @cached_property
    def embeddings(self) -> Embeddings | None:
        """The model of the corpus's vectors; None before the corpus has vectors."""
        return embeddings_of(self.view)

    def _section(self, section: Section) -> Node:
        return self._shown(section.id, Level.SECTION, self.master_id, section)

    def _chunks(self, chunks: Sequence[NodeId], *, with_embedding: bool) -> list[Node | None]:
        placed = self._hierarchy.placed_chunks(chunks)
        parents = self._hierarchy.parents(chunks)
        there = [(found, parent) for found, parent in zip(placed, parents, strict=True) if found is not None]
        records = [found.chunk for found, _ in there]
        vectors = [self._vector_key(chunk) for chunk in records] if with_embedding else []
        self.view.read_ahead([*(raw_key(self.view.keys, chunk) for chunk in records), *vectors])
        whole = self._hierarchy.with_raws([found for found, _ in there])
        shown = {
            found.chunk.id: self._chunk(found, parent, with_embedding=with_embedding)
            for found, (_, parent) in zip(whole, there, strict=True)
            if found is not None
        }
        return [shown.get(chunk) for chunk in chunks]

    @property
    def _model(self) -> EmbeddingModel:
        assert self.embeddings is not None, "a chunk has a vector"
        return self.embeddings.current

    def _vector_key(self, chunk: Chunk) -> bytes:
        return self.view.keys.vector(self._model.number, chunk.id)

    def _chunk(self, found: ChunkWithRaws, parent: NodeId | None, *, with_embedding: bool) -> Node:
        record = found.chunk
        stored = self._hierarchy.vector(self._model.number, record.id) if with_embedding else None
        embedding = tuple(unpacked(stored).tolist()) if stored is not None else ()
        content = ChunkText(record, found.page, self._model.name, embedding)
        return Node(
            record.id,
            self.view.corpus.id,
            Level.CHUNK,
            parent,
            content,
            record.created_at,
            record.created_by,
            record.version,
        )

    def raws_of(self, chunks: Sequence[NodeId]) -> list[list[Node]]:
        """The raws of each of several chunks, read together. Empty for chunks that are missing or erased."""
        placed = [found for found in self._hierarchy.placed_chunks(chunks) if found is not None]
        documents = {found.chunk.document for found in placed} - self._preprocessed.keys()
        keys = [*map(self.view.keys.document, documents), *(raw_key(self.view.keys, found.chunk) for found in placed)]
        self.view.read_ahead(keys, self.beside([raw for found in placed for raw in raw_ids(found.chunk, found.raws)]))
        self._note_preprocessing(sorted(documents))
        whole = self._hierarchy.with_raws(placed)
        raws = {found.chunk.id: list(self._raws_in(found)) for found in whole if found is not None}
        return [raws.get(chunk, []) for chunk in chunks]

    def _raws_in(self, found: ChunkWithRaws) -> Iterator[Node]:
        record, raws = found.chunk, found.page.raws
        for id_, raw in zip(raw_ids(record, raws), raws, strict=True):
            yield Node(
                id_,
                self.view.corpus.id,
                Level.RAW,
                record.id,
                RawText(raw, record, self._preprocessed[record.document]),
                record.created_at,
                record.created_by,
                record.version,
            )

    def _note_preprocessing(self, documents: Sequence[DocumentId]) -> None:
        for id_, document in zip(documents, self._hierarchy.documents_by_id(documents), strict=True):
            self._preprocessed[id_] = () if document is None else document.preprocessing

    @cached_property
    def _preprocessed(self) -> dict[DocumentId, tuple[str, ...]]:
        """The documents read so far. All raws of a document need it, and a large document takes long to read."""
        return {}

    def _raws(self, raws: Sequence[NodeId]) -> list[Node | None]:
        chunks = self._named_chunks(raws)
        siblings = self.raws_of(list(dict.fromkeys(chunks)))
        found = {(raw.parent, raw.id): raw for together in siblings for raw in together}
        return [found.get(place) for place in zip(chunks, raws, strict=True)]

    def _named_chunks(self, raws: Sequence[NodeId]) -> list[NodeId]:
        """The chunk that each raw belongs to, if it is there: by the store, or by the raw's own id."""
        parents = self._hierarchy.parents(raws)
        return [parent or chunk_of_raw(raw)[0] for raw, parent in zip(raws, parents, strict=True)]

    def parents_of(self, nodes: Sequence[NodeId], level: Level) -> list[NodeId]:
        """The parent of each node. Raises `Missing` if a node is not there, or has no parent."""
        self.view.read_ahead(self.keys_of(nodes, level))
        if level is Level.RAW:
            parents = self._chunks_of_raws(nodes)
        elif level is Level.CHUNK:
            parents = _only(self._hierarchy.placed_chunks(nodes), self._hierarchy.parents(nodes))
        else:
            parents = _only(self._hierarchy.sections(nodes), [self.master_id for _ in nodes])
        for node, parent in zip(nodes, parents, strict=True):
            if parent is None:
                raise self._missing(node, level)
        return [parent for parent in parents if parent is not None]

    def _chunks_of_raws(self, raws: Sequence[NodeId]) -> list[NodeId | None]:
        """The chunk of each raw that is there."""
        chunks = self._named_chunks(raws)
        found = self._hierarchy.placed_chunks(chunks)
        return [
            chunk if placed is not None and raw in raw_ids(placed.chunk, placed.raws) else None
            for raw, chunk, placed in zip(raws, chunks, found, strict=True)
        ]

    def with_children(self, node: Node) -> Node:
        """The node with the first of its children, and how many it has."""
        children: Iterator[NodeId] = iter(())
        count = 0
        if isinstance(node.content, Master):
            children, count = self._hierarchy.section_ids(), node.content.statistics.sections
        elif isinstance(node.content, Section):
            members = self._hierarchy.members_of_each([MembersOf(node.id)])
            children, count = (member.id for _, member in members), node.content.chunks
        elif isinstance(node.content, ChunkText):
            raws = raw_ids(node.content.chunk, node.content.page.raws)
            children, count = iter(raws), len(raws)
        return replace(node, children=tuple(islice(children, CHILDREN_MAX)), children_count=count)

    def _shown(self, node: NodeId, level: Level, parent: NodeId | None, content: Master | Section) -> Node:
        return Node(
            node, self.view.corpus.id, level, parent, content, content.created_at, content.created_by, content.version
        )


def _only(there: Sequence[object], parents: Sequence[NodeId | None]) -> list[NodeId | None]:
    """The parents of the nodes that are there."""
    return [None if found is None else parent for found, parent in zip(there, parents, strict=True)]


def raw_ids(chunk: Chunk, raws: Sequence[object]) -> Sequence[NodeId]:
    """The ids of a chunk's raws, in order."""
    return chunk.raw_ids or [raw_id(chunk.id, place) for place in range(len(raws))]


def check_documents(granted: InTenant, corpus: CorpusId) -> None:
    """Raises `Denied` for callers who may read neither chunks nor raws: they must not learn of documents."""
    if not granted.reaches(corpus, Level.RAW):
        granted.check_level(corpus, Level.CHUNK)


def check_nothing_erased(view: CorpusAtRevision, epoch: int) -> None:
    """Raises `Unavailable` if something was erased from the corpus since `epoch`: a copy may still contain it."""
    if view.sealed.epoch(view.corpus.number) != epoch:
        message = "a source was erased from the corpus during the export; export it again"
        raise Unavailable(Reason.CONFLICT, message)
