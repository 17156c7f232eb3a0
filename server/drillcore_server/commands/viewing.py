"""What the commands that read the hierarchy share: finding the corpus, the revision and the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Unit, erased
from drillcore_server.derived.sections import SectionIndexes
from drillcore_server.derived.vectors import VectorCache, unpacked
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.embeddings import Embeddings
from drillcore_server.domain.errors import BadInput, Missing
from drillcore_server.domain.found import AsOf, ChunkText, Node, RawText
from drillcore_server.domain.ids import CorpusId, CorpusNumber, DocumentId, NodeId, Revision, TenantId
from drillcore_server.domain.nodes import Level, Master, Section, chunk_of_raw, raw_id
from drillcore_server.domain.signatures import Signature, TargetKind
from drillcore_server.ingest.embedding.embedders import Embedders
from drillcore_server.store import revisions, trimming
from drillcore_server.store.foreign_signatures import of_target
from drillcore_server.store.hierarchy import CorpusView, locate
from drillcore_server.store.keyring import KeyErased, Keyring
from drillcore_server.store.sealed import SealedRecords
from drillcore_server.store.signatures import signatures_of_many, with_salt

CHILDREN_MAX: Final = 250
"""Of a node's children that are named with it; DrillDown gives all, in pages."""


@dataclass(frozen=True, slots=True)
class Library:
    """Everything that reads of the hierarchy need."""

    unit: Unit
    sealed: SealedRecords
    keyring: Keyring
    sections: SectionIndexes
    vectors: VectorCache
    embedders: Embedders

    def shelf(self, tr: Reader, granted: InTenant, trail: Trail, corpus: CorpusId, as_of: AsOf) -> Shelf:
        """A corpus at a moment. Raises `Missing` for a corpus or revision that is not there, or no longer."""
        trail.touch_corpus(corpus)
        return self._shelf(tr, trail, granted.corpus(tr, self.unit.keys, corpus), as_of)

    def shelf_of(self, tr: Reader, granted: InTenant, trail: Trail, node: NodeId, as_of: AsOf) -> tuple[Shelf, Level]:
        """The corpus that a node is in, at a moment, and the node's level. One that is not granted has no nodes."""
        for owner in granted.owners(tr, self.unit.keys):
            found = locate(tr, self.unit.keys, owner, node)
            corpus = None if found is None else self.numbered(tr, granted, owner, found.corpus)
            if found is not None and corpus is not None:
                trail.touch_corpus(corpus.id)
                return self._shelf(tr, trail, granted.admitted(corpus), as_of), found.level
        raise missing(node)

    def numbered(self, tr: Reader, granted: InTenant, owner: TenantId, number: CorpusNumber) -> Corpus | None:
        """A tenant's corpus by its number; None if its id does not stand for that corpus to the caller."""
        stored = tr.get(self.unit.keys.corpus_number(number))
        corpus = None if stored is None else granted.find(tr, self.unit.keys, CorpusId(UUID(bytes=stored)))
        return corpus if corpus is not None and corpus.tenant_id == owner else None

    def signed(self, tr: Reader, granted: InTenant, nodes: Sequence[Node], *shelves: Shelf) -> list[Node]:
        """The nodes of these shelves with the signatures of their versions; of shared corpora those are not shown."""
        own = [shelf for shelf in shelves if not granted.is_shared(shelf.corpus)]
        found, foreign = self._made_here(tr, granted, nodes, own), _made_elsewhere(nodes, own)
        if not found and not foreign:
            return list(nodes)
        shown = [one for those in (*found.values(), *foreign.values()) for one in those]
        if sum(2 * len(one.manifestation) for one in shown) > self.unit.page_bytes_max:
            message = "these nodes have more signatures than fit into one answer; ask for smaller pages"
            raise BadInput(Reason.TOO_LARGE, message, field="page_size")
        return [
            replace(one, signatures=found.get(one.id, ()), foreign_signatures=foreign.get(one.id, ())) for one in nodes
        ]

    def _made_here(
        self, tr: Reader, granted: InTenant, nodes: Sequence[Node], own: Sequence[Shelf]
    ) -> dict[UUID, tuple[Signature, ...]]:
        corpora = {shelf.corpus.id for shelf in own}
        versions = [(node.id, node.version) for node in nodes if node.corpus in corpora]
        found = signatures_of_many(tr, self.unit.keys, granted.tenant, TargetKind.NODE, versions)
        return {node: tuple(with_salt(self.keyring, one) for one in those) for node, those in found.items()}

    def _shelf(self, tr: Reader, trail: Trail, corpus: Corpus, as_of: AsOf) -> Shelf:
        keys = self.unit.keys.of_corpus(corpus.number)
        head = revisions.head(tr, keys)
        revision = head
        if as_of.revision is not None:
            revision = as_of.revision
        elif as_of.time is not None:
            revision = revisions.at_time(tr, keys, as_of.time)
        if revision > head:
            raise Missing(Reason.REVISION_NOT_FOUND, f"the corpus is at revision {head}, there is no {revision} yet")
        if revision != head:
            trimming.check_kept(tr, keys, revision)
        trail.touch_corpus(corpus.id, revision)
        return Shelf(corpus, CorpusView(tr, keys, self.sealed, revision))


def _made_elsewhere(nodes: Sequence[Node], own: Sequence[Shelf]) -> dict[UUID, tuple[Signature, ...]]:
    """Where no signatures came with a core it costs one read."""
    found: dict[UUID, tuple[Signature, ...]] = {}
    for shelf in own:
        view = shelf.view
        if any(True for _ in view.tr.range(*view.keys.all_foreign_signatures(), limit=1)):
            there = (one for one in nodes if one.corpus == shelf.corpus.id)
            found |= {one.id: tuple(of_target(view, TargetKind.NODE, one.id, one.version)) for one in there}
    return {node: those for node, those in found.items() if those}


def missing(node: NodeId) -> Missing:
    return Missing(Reason.NODE_NOT_FOUND, f"there is no node {node}")


@dataclass(frozen=True)
class Shelf:
    """A corpus at one revision."""

    corpus: Corpus
    view: CorpusView

    @property
    def revision(self) -> Revision:
        return self.view.revision

    def at(self, revision: Revision) -> Shelf:
        """The same corpus at another revision."""
        return replace(self, view=replace(self.view, revision=revision))

    def node(self, node: NodeId, level: Level, *, with_embedding: bool = False) -> Node:
        """The node. Raises `Missing` if this revision does not have it."""
        if level is Level.MASTER:
            found = self.master()
        elif level is Level.SECTION:
            section = self.view.section(node)
            found = None if section is None else self.section(section)
        elif level is Level.CHUNK:
            found = self.chunk(node, with_embedding=with_embedding)
        else:
            found = self.raw(node)
        if found is None or found.id != node:
            raise self._missing(node, level)
        return found

    def node_left(self, node: NodeId, level: Level) -> Node | None:
        """A node that something led to; None if it was erased since."""
        try:
            return self.node(node, level)
        except KeyErased:
            return None

    def _missing(self, node: NodeId, level: Level) -> Missing:
        """Whether it is not there or was erased: of a node that is gone, its last record tells."""
        if level is Level.MASTER:
            return missing(node)
        chunk = self.view.parent(node) or chunk_of_raw(node)[0] if level is Level.RAW else node
        keys = self.view.keys
        key = keys.section(node) if level is Level.SECTION else keys.chunk(chunk)
        return erased() if self.view.was_erased(key) else missing(node)

    def master(self) -> Node | None:
        master = self.view.master()
        return None if master is None else self._shown(master.id, Level.MASTER, None, master)

    @cached_property
    def master_id(self) -> NodeId | None:
        """None also if what the master said at this revision was erased, and with it its id."""
        master = self.view.master_left()
        return None if master is None else master.id

    @cached_property
    def embeddings(self) -> Embeddings | None:
        """The model of the corpus's vectors; None before there are any."""
        return self.view.embeddings()

    def section(self, section: Section) -> Node:
        return self._shown(section.id, Level.SECTION, self.master_id, section)

    def chunk(self, chunk: NodeId, *, with_embedding: bool = False) -> Node | None:
        found = self.view.chunk_with_raws(chunk)
        if found is None:
            return None
        record, page = found.chunk, found.page
        assert self.embeddings is not None, "a chunk has a vector"
        model = self.embeddings.current
        stored = self.view.vector(model.number, chunk) if with_embedding else None
        embedding = tuple(unpacked(stored).tolist()) if stored is not None else ()
        content = ChunkText(record, page, model.name, embedding)
        return Node(
            record.id,
            self.corpus.id,
            Level.CHUNK,
            self.view.parent(chunk),
            content,
            record.created_at,
            record.created_by,
            record.version,
        )

    def raws_left(self, chunk: NodeId) -> Iterator[Node]:
        """The raws of a chunk; none if it was erased."""
        try:
            yield from self.raws(chunk)
        except KeyErased:
            return

    def raws(self, chunk: NodeId) -> Iterator[Node]:
        found = self.view.chunk_with_raws(chunk)
        if found is None:
            return
        record, page = found.chunk, found.page
        preprocessing = self._preprocessing(record.document)
        for place, raw in enumerate(page.raws):
            yield Node(
                record.raw_ids[place] if record.raw_ids else raw_id(chunk, place),
                self.corpus.id,
                Level.RAW,
                chunk,
                RawText(raw, record, preprocessing),
                record.created_at,
                record.created_by,
                record.version,
            )

    def _preprocessing(self, document: DocumentId) -> tuple[str, ...]:
        if document not in self._preprocessed:
            found = self.view.document(document)
            self._preprocessed[document] = found.preprocessing if found else ()
        return self._preprocessed[document]

    @cached_property
    def _preprocessed(self) -> dict[DocumentId, tuple[str, ...]]:
        """Of the documents asked for so far: all raws of a document ask, and a large one takes long to read."""
        return {}

    def raw(self, node: NodeId) -> Node | None:
        chunk = self.view.parent(node) or chunk_of_raw(node)[0]
        return next((raw for raw in self.raws(chunk) if raw.id == node), None)

    def with_children(self, node: Node) -> Node:
        """The node with the first of its children, and how many it has."""
        children: Iterator[NodeId] = iter(())
        count = 0
        if isinstance(node.content, Master):
            children, count = self.view.section_ids(), node.content.statistics.sections
        elif isinstance(node.content, Section):
            children, count = self.view.chunks_of(node.id), node.content.chunks
        elif isinstance(node.content, ChunkText):
            children, count = (raw.id for raw in self.raws(node.id)), len(node.content.page.raws)
        return replace(node, children=tuple(islice(children, CHILDREN_MAX)), children_count=count)

    def _shown(self, node: NodeId, level: Level, parent: NodeId | None, content: Master | Section) -> Node:
        return Node(
            node, self.corpus.id, level, parent, content, content.created_at, content.created_by, content.version
        )
