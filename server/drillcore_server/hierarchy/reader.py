"""Finds a node's corpus and revision, and reads nodes as callers see them, with their signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.model import Master, Section, chunk_of_raw, raw_id
from drillcore_server.hierarchy.nodes import ChunkText, Node, RawText
from drillcore_server.hierarchy.store import HierarchyReader, locate
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput, Missing, Unavailable
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import erased
from drillcore_server.signatures.model import Signature, Target, TargetKind
from drillcore_server.signatures.store import foreign_signatures, signatures_of_many, with_salt
from drillcore_server.storage.ids import CorpusId, DocumentId, Level, NodeId
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.model import Embeddings
from drillcore_server.vectors.stored_vectors import unpacked

CHILDREN_MAX: Final = 250
"""How many children GetNode names. DrillDown gives all of them, in pages."""


def at_node(
    reads: CorpusReads, tr: Reader, granted: InTenant, trail: Trail, node: NodeId, as_of: AsOf
) -> tuple[CorpusAtRevision, Level]:
    """The node's corpus at a moment, and the node's level.

    Raises `Missing` if there is no such node, or if the caller is not granted its corpus.
    """
    keys = reads.unit.keys
    for owner in granted.owners(tr, keys):
        found = locate(tr, keys, owner, node)
        corpus = None if found is None else reads.numbered(tr, granted, owner, found.corpus)
        if found is not None and corpus is not None:
            trail.touch_corpus(corpus.id)
            return reads.opened(tr, trail, granted.admitted(corpus), as_of), found.level
    raise missing(node)


def with_signatures(
    reads: CorpusReads, tr: Reader, granted: InTenant, nodes: Sequence[Node], *views: CorpusAtRevision
) -> list[Node]:
    """The nodes with the signatures of their versions. Nodes of corpora that other tenants share get none.

    Raises `BadInput` if the signatures do not fit into one answer.
    """
    own = [view for view in views if not granted.is_shared(view.corpus)]
    found, foreign = _own_signatures(reads, tr, granted, nodes, own), _imported_signatures(nodes, own)
    if not found and not foreign:
        return list(nodes)
    shown = [signature for signatures in (*found.values(), *foreign.values()) for signature in signatures]
    if sum(2 * len(signature.manifestation) for signature in shown) > reads.unit.page_bytes_max:
        message = "these nodes have more signatures than fit into one answer; lower page_size"
        raise BadInput(Reason.TOO_LARGE, message, field="page_size")
    return [
        replace(node, signatures=found.get(node.id, ()), foreign_signatures=foreign.get(node.id, ())) for node in nodes
    ]


def _own_signatures(
    reads: CorpusReads, tr: Reader, granted: InTenant, nodes: Sequence[Node], own: Sequence[CorpusAtRevision]
) -> dict[UUID, tuple[Signature, ...]]:
    corpora = {view.corpus.id for view in own}
    versions = [(node.id, node.version) for node in nodes if node.corpus in corpora]
    found = signatures_of_many(tr, reads.unit.keys, granted.tenant, TargetKind.NODE, versions)
    return {
        node: tuple(with_salt(reads.keyring, signature) for signature in signatures)
        for node, signatures in found.items()
    }


def _imported_signatures(nodes: Sequence[Node], own: Sequence[CorpusAtRevision]) -> dict[UUID, tuple[Signature, ...]]:
    """The signatures that came with cores. Costs one read for a corpus that has none."""
    found: dict[UUID, tuple[Signature, ...]] = {}
    for view in own:
        if any(True for _ in view.tr.range(*view.keys.all_foreign_signatures(), limit=1)):
            there = (node for node in nodes if node.corpus == view.corpus.id)
            found |= {node.id: _foreign_signatures(view, node) for node in there}
    return {node: signatures for node, signatures in found.items() if signatures}


def _foreign_signatures(view: CorpusAtRevision, node: Node) -> tuple[Signature, ...]:
    target = Target(TargetKind.NODE, node.id, node.version)
    return tuple(foreign_signatures(view.tr, view.keys, view.sealed, view.revision, target))


def missing(node: NodeId) -> Missing:
    return Missing(Reason.NODE_NOT_FOUND, f"there is no node {node}")


@dataclass(frozen=True)
class NodeReader:
    """Reads the nodes of one corpus at one revision as callers see them."""

    view: CorpusAtRevision

    @cached_property
    def _hierarchy(self) -> HierarchyReader:
        return HierarchyReader(self.view)

    def node(self, node: NodeId, level: Level, *, with_embedding: bool = False) -> Node:
        """The node. Raises `Missing` if this revision does not have it."""
        if level is Level.MASTER:
            found = self.master()
        elif level is Level.SECTION:
            section = self._hierarchy.section(node)
            found = None if section is None else self.section(section)
        elif level is Level.CHUNK:
            found = self.chunk(node, with_embedding=with_embedding)
        else:
            found = self.raw(node)
        if found is None or found.id != node:
            raise self._missing(node, level)
        return found

    def node_unless_erased(self, node: NodeId, level: Level) -> Node | None:
        """Same as `node`, but None if the node was erased."""
        try:
            return self.node(node, level)
        except KeyErased:
            return None

    def _missing(self, node: NodeId, level: Level) -> Missing:
        """The error for a node that was not found. The last record of the node tells whether it was erased."""
        if level is Level.MASTER:
            return missing(node)
        chunk = self._hierarchy.parent(node) or chunk_of_raw(node)[0] if level is Level.RAW else node
        keys = self.view.keys
        key = keys.section(node) if level is Level.SECTION else keys.chunk(chunk)
        return erased() if self.view.was_erased(key) else missing(node)

    def master(self) -> Node | None:
        master = self._hierarchy.master()
        return None if master is None else self._shown(master.id, Level.MASTER, None, master)

    @cached_property
    def master_id(self) -> NodeId | None:
        """None if there is no master, or if its record at this revision was erased, and its id with it."""
        master = self._hierarchy.master_unless_erased()
        return None if master is None else master.id

    @cached_property
    def embeddings(self) -> Embeddings | None:
        """The model of the corpus's vectors; None before the corpus has vectors."""
        return embeddings_of(self.view)

    def section(self, section: Section) -> Node:
        return self._shown(section.id, Level.SECTION, self.master_id, section)

    def chunk(self, chunk: NodeId, *, with_embedding: bool = False) -> Node | None:
        found = self._hierarchy.chunk_with_raws(chunk)
        if found is None:
            return None
        record, page = found.chunk, found.page
        assert self.embeddings is not None, "a chunk has a vector"
        model = self.embeddings.current
        stored = self._hierarchy.vector(model.number, chunk) if with_embedding else None
        embedding = tuple(unpacked(stored).tolist()) if stored is not None else ()
        content = ChunkText(record, page, model.name, embedding)
        return Node(
            record.id,
            self.view.corpus.id,
            Level.CHUNK,
            self._hierarchy.parent(chunk),
            content,
            record.created_at,
            record.created_by,
            record.version,
        )

    def raws_unless_erased(self, chunk: NodeId) -> Iterator[Node]:
        """The raws of a chunk. Yields nothing if the chunk was erased."""
        try:
            yield from self.raws(chunk)
        except KeyErased:
            return

    def raws(self, chunk: NodeId) -> Iterator[Node]:
        found = self._hierarchy.chunk_with_raws(chunk)
        if found is None:
            return
        record, page = found.chunk, found.page
        preprocessing = self._preprocessing(record.document)
        for place, raw in enumerate(page.raws):
            yield Node(
                record.raw_ids[place] if record.raw_ids else raw_id(chunk, place),
                self.view.corpus.id,
                Level.RAW,
                chunk,
                RawText(raw, record, preprocessing),
                record.created_at,
                record.created_by,
                record.version,
            )

    def _preprocessing(self, document: DocumentId) -> tuple[str, ...]:
        if document not in self._preprocessed:
            found = self._hierarchy.document(document)
            self._preprocessed[document] = found.preprocessing if found else ()
        return self._preprocessed[document]

    @cached_property
    def _preprocessed(self) -> dict[DocumentId, tuple[str, ...]]:
        """The documents read so far. All raws of a document need it, and a large document takes long to read."""
        return {}

    def raw(self, node: NodeId) -> Node | None:
        chunk = self._hierarchy.parent(node) or chunk_of_raw(node)[0]
        return next((raw for raw in self.raws(chunk) if raw.id == node), None)

    def with_children(self, node: Node) -> Node:
        """The node with the first of its children, and how many it has."""
        children: Iterator[NodeId] = iter(())
        count = 0
        if isinstance(node.content, Master):
            children, count = self._hierarchy.section_ids(), node.content.statistics.sections
        elif isinstance(node.content, Section):
            children, count = self._hierarchy.chunks_of(node.id), node.content.chunks
        elif isinstance(node.content, ChunkText):
            children, count = (raw.id for raw in self.raws(node.id)), len(node.content.page.raws)
        return replace(node, children=tuple(islice(children, CHILDREN_MAX)), children_count=count)

    def _shown(self, node: NodeId, level: Level, parent: NodeId | None, content: Master | Section) -> Node:
        return Node(
            node, self.view.corpus.id, level, parent, content, content.created_at, content.created_by, content.version
        )


def check_documents(granted: InTenant, corpus: CorpusId) -> None:
    """Raises `Denied` for callers who may read neither chunks nor raws: they must not learn of documents."""
    if not granted.reaches(corpus, Level.RAW):
        granted.check_level(corpus, Level.CHUNK)


def check_nothing_erased(view: CorpusAtRevision, epoch: int) -> None:
    """Raises `Unavailable` if something was erased from the corpus since `epoch`: a copy may still contain it."""
    if view.sealed.epoch(view.corpus.number) != epoch:
        message = "a source was erased from the corpus during the export; export it again"
        raise Unavailable(Reason.CONFLICT, message)
