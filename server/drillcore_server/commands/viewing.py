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
from drillcore_server.commands.unit import Unit
from drillcore_server.derived.sections import SectionCache
from drillcore_server.derived.vectors import VectorCache, unpacked
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput, Missing
from drillcore_server.domain.found import AsOf, ChunkText, Node, RawText
from drillcore_server.domain.ids import CorpusId, DocumentId, NodeId, Revision, TenantId
from drillcore_server.domain.nodes import Level, Master, Section, chunk_of_raw, raw_id
from drillcore_server.domain.signatures import TargetKind
from drillcore_server.ingest.embedding.ports import Embedder
from drillcore_server.store import revisions, trimming
from drillcore_server.store.hierarchy import CorpusView, locate
from drillcore_server.store.keyring import Keyring
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
    sections: SectionCache
    vectors: VectorCache
    embedder: Embedder

    def shelf(self, tr: Reader, granted: InTenant, trail: Trail, corpus: CorpusId, as_of: AsOf) -> Shelf:
        """A corpus at a moment. Raises `Missing` for a corpus or revision that is not there, or no longer."""
        trail.touch_corpus(corpus)
        shelf = self._shelf(tr, granted.corpus(tr, self.unit.keys, corpus), as_of)
        trail.touch_corpus(corpus, shelf.revision)
        return shelf

    def shelf_of(self, tr: Reader, granted: InTenant, trail: Trail, node: NodeId, as_of: AsOf) -> tuple[Shelf, Level]:
        """The corpus that a node is in, at a moment, and the node's level. One that is not granted has no nodes."""
        found = locate(tr, self.unit.keys, granted.tenant, node)
        stored = tr.get(self.unit.keys.corpus_number(found.corpus)) if found is not None else None
        corpus = CorpusId(UUID(bytes=stored)) if stored is not None else None
        if found is None or corpus is None or not granted.reaches(corpus):
            raise missing(node)
        return self.shelf(tr, granted, trail, corpus, as_of), found.level

    def signed(self, tr: Reader, tenant: TenantId, nodes: Sequence[Node]) -> list[Node]:
        """The nodes with the signatures of their versions."""
        keys, versions = self.unit.keys, [(node.id, node.version) for node in nodes]
        found = signatures_of_many(tr, keys, tenant, TargetKind.NODE, versions)
        if not found:
            return list(nodes)
        if sum(2 * len(one.manifestation) for those in found.values() for one in those) > self.unit.page_bytes_max:
            message = "these nodes have more signatures than fit into one answer; ask for smaller pages"
            raise BadInput(Reason.TOO_LARGE, message, field="page_size")
        shown = {node: tuple(with_salt(self.keyring, one) for one in those) for node, those in found.items()}
        return [replace(node, signatures=shown.get(node.id, ())) for node in nodes]

    def _shelf(self, tr: Reader, corpus: Corpus, as_of: AsOf) -> Shelf:
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
        return Shelf(corpus, CorpusView(tr, keys, self.sealed, revision))


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
            raise missing(node)
        return found

    def master(self) -> Node | None:
        master = self.view.master()
        return None if master is None else self._shown(master.id, Level.MASTER, None, master)

    @cached_property
    def master_id(self) -> NodeId | None:
        master = self.view.master()
        return None if master is None else master.id

    def section(self, section: Section) -> Node:
        return self._shown(section.id, Level.SECTION, self.master_id, section)

    def chunk(self, chunk: NodeId, *, with_embedding: bool = False) -> Node | None:
        found = self.view.chunk_with_raws(chunk)
        if found is None:
            return None
        record, page = found.chunk, found.page
        stored = self.view.vector(chunk) if with_embedding else None
        embedding = tuple(unpacked(stored).tolist()) if stored is not None else ()
        content = ChunkText(record, page, embedding)
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
