"""Makes the writes that fill an empty corpus from a full core, with the core's ids, versions and times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any
from uuid import UUID

from drillcore_server.communities.store import CommunityWrites, packed_pages
from drillcore_server.cores.imports.check_core import CheckedCore
from drillcore_server.cores.imports.full_facts import read_community, read_edge, read_signature, read_turn
from drillcore_server.cores.imports.full_hierarchy import read_chunk
from drillcore_server.cores.imports.full_intake import FullIntake
from drillcore_server.cores.imports.full_records import DocumentText, FullRecords
from drillcore_server.cores.model import StoredCounts
from drillcore_server.facts.block_writes import FactWrites
from drillcore_server.facts.model import Fact, FactStatus
from drillcore_server.facts.store import FACT
from drillcore_server.graphs.turn_store import TurnWrites
from drillcore_server.hierarchy.packed import SECTION
from drillcore_server.hierarchy.store import DOCUMENT, MASTER, SOURCE, HierarchyWrites
from drillcore_server.kernel.writes import Write
from drillcore_server.signatures.store import ForeignSignatureWrites
from drillcore_server.storage.ids import BlockId, CorpusId, NodeId
from drillcore_server.vectors.model import Embeddings


@dataclass(slots=True)
class FullWrites:
    """Makes the writes of one plan, and counts the stored records while the writes are read."""

    core: CheckedCore
    intake: FullIntake
    corpus: CorpusId
    models: Embeddings | None
    hierarchy: HierarchyWrites
    facts: FactWrites
    communities: CommunityWrites
    turns: TurnWrites
    signatures: ForeignSignatureWrites
    counts: StoredCounts
    _vectors: Iterator[tuple[UUID, bytes]] = field(default_factory=lambda: iter(()))
    _records: FullRecords | None = None

    def writes(self) -> Iterator[Write]:
        assert self.core.root is not None
        if self.models is not None:
            yield self.hierarchy.set_embeddings(self.models)
        self._vectors = self.core.vectors.of_facts()
        self._records = FullRecords(self.core.file, self.core.root.place)
        records = (found for _, found in self._records.walk() if not isinstance(found, DocumentText))
        for kind, of_kind in groupby(records, lambda found: found.kind):
            if kind == "fact":
                yield from self._facts(found.fields for found in of_kind)
            else:
                yield from chain.from_iterable(self._makers[kind](self, found.fields) for found in of_kind)

    def _document(self, given: list[Any]) -> Iterator[Write]:
        self.counts.documents += 1
        return self.hierarchy.put_document(DOCUMENT.decode(given[0]))

    def _chunk(self, given: list[Any]) -> Iterator[Write]:
        assert self._records is not None
        assert self.models is not None
        self.counts.chunks += 1
        read = read_chunk(given, self._records, self.models.current.dimensions)
        yield from self.hierarchy.put_chunk(read.found.chunk, read.found.page, read.vector)
        yield from self.hierarchy.join(read.section, read.found.chunk)

    def _section(self, given: list[Any]) -> Iterator[Write]:
        self.counts.sections += 1
        return self.hierarchy.put_section(SECTION.decode(given[0]), None)

    def _master(self, given: list[Any]) -> Iterator[Write]:
        return self.hierarchy.put_master(MASTER.decode(given[0]), None, self.intake.hierarchy.master_sources)

    def _source(self, given: list[Any]) -> Iterator[Write]:
        self.counts.sources += 1
        return self.hierarchy.put_source(SOURCE.decode(given[0]))

    def _facts(self, given: Iterable[list[Any]]) -> Iterator[Write]:
        """Facts come by id, so those of a block come together. The corpus is empty, so all blocks are new."""
        chunks = self.intake.hierarchy.chunks

        def may_share(block: BlockId) -> bool:
            chunk = chunks.get(NodeId(block))
            return chunk is None or not chunk.has_own_raws

        return self.facts.add(map(self._fact, given), may_share=may_share, has_chunk=chunks.__contains__)

    def _fact(self, given: list[Any]) -> tuple[Fact, bytes | None]:
        self.counts.facts += 1
        fact = FACT.decode(given[0])
        # Facts and vectors both come by id, and each fact that is not deleted has a vector: that was checked.
        return fact, None if fact.status is FactStatus.DELETED else next(self._vectors)[1]

    def _community(self, given: list[Any]) -> Iterator[Write]:
        self.counts.communities += 1
        community, members = read_community(given, self.corpus)
        yield self.communities.put(community, {self.intake.facts.facts[fact] for fact in community.drawn_from})
        for number, page in enumerate(packed_pages(members)):
            yield self.communities.put_page(community.id, number, page)

    def _turn(self, given: list[Any]) -> Iterator[Write]:
        self.counts.turns += 1
        return self.turns.put(read_turn(given))

    def _edge(self, given: list[Any]) -> Iterator[Write]:
        self.counts.edges += 1
        return self.turns.add_edge(read_edge(given))

    def _signature(self, given: list[Any]) -> Iterator[Write]:
        self.counts.signatures += 1
        signature = read_signature(given)
        yield self.signatures.put(signature, self.intake.rest.sources_of(signature))

    def _nothing(self, _given: list[Any]) -> Iterator[Write]:
        """For kinds that `ForeignWrites` stores, and for the end."""
        return iter(())

    _makers: dict[str, Callable[[FullWrites, list[Any]], Iterator[Write]]] = field(
        default_factory=lambda: {
            "document": FullWrites._document,
            "chunk": FullWrites._chunk,
            "section": FullWrites._section,
            "master": FullWrites._master,
            "source": FullWrites._source,
            "community": FullWrites._community,
            "turn": FullWrites._turn,
            "edge": FullWrites._edge,
            "signature": FullWrites._signature,
            "library": FullWrites._nothing,
            "embedding": FullWrites._nothing,
            "end": FullWrites._nothing,
        }
    )
