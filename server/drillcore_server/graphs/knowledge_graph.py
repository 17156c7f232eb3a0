"""The hierarchy and the facts of a corpus as a graph that slices are taken from, read from the store on demand.

edge                                                type         meaning
master -> section -> chunk -> raw, chunk -> fact    Default      the hierarchy
section -> chunk                                    Reference    the section's summary cites the chunk
fact -> fact                                        Reference    the two are similar; from the smaller id
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from drillcore_fdb.engine import RangeRead
from drillcore_server.facts.index import FactIndex, SimilarFacts
from drillcore_server.facts.store import FactReader
from drillcore_server.graphs.slice_model import SliceEdge, check_read, single
from drillcore_server.graphs.turn_model import EdgeType, Phase
from drillcore_server.hierarchy.model import Section, chunk_of_raw
from drillcore_server.hierarchy.packed import PlacedChunk
from drillcore_server.hierarchy.reader import raw_ids
from drillcore_server.hierarchy.store import HierarchyReader, MembersOf, sections_ahead
from drillcore_server.kernel import erasures
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage.ids import FactId, Level, NodeId
from drillcore_server.storage.keyring import KeyErased

T = TypeVar("T")


class KnowledgeNode(NamedTuple):
    kind: str
    phase: Phase
    salience: float


RAW: Final = KnowledgeNode("raw", Phase.EXPLORATION, 0.0)
CHUNK: Final = KnowledgeNode("chunk", Phase.EXPLORATION, 0.5)
SECTION: Final = KnowledgeNode("section", Phase.CONSOLIDATION, 0.5)
MASTER: Final = KnowledgeNode("master", Phase.SYNTHESIS, 1.0)
_FACT: Final = "fact"
_COMPARED_AHEAD: Final = 127
"""Further facts that are compared in the same search, which takes little longer than for a single fact."""


class KnowledgeGraph:
    """The hierarchy and facts at one revision. Implements `slice_model.Graph` and `slice_model.ReadAhead`.

    Caches all it reads; use one per call.

    It only knows nodes that it has reached: call `reach` with the anchor first. Erased nodes are not in it. Facts that
    searches leave out are not in it either.
    """

    def __init__(self, view: CorpusAtRevision, index: Callable[[], FactIndex], similar: SimilarFacts) -> None:
        self._view = view
        self._facts = FactReader(view)
        self._open_index = index
        self._similar = similar
        self._hierarchy = HierarchyReader(view)
        self._read = 0
        self._ready: set[bytes] = set()
        self._nodes: dict[bytes, KnowledgeNode | None] = {}
        self._chunks: dict[bytes, PlacedChunk | None] = {}
        self._sections: dict[bytes, Section | None] = {}
        self._children: dict[bytes, list[bytes]] = {}
        self._ranked: dict[bytes, list[bytes]] = {}
        self._chunk_of: dict[bytes, bytes] = {}
        """The chunk of each raw and fact."""
        self._alike: dict[bytes, list[bytes]] = {}
        self._uncompared: dict[FactId, None] = {}
        """Facts that were reached and not yet compared with others."""

    def reach(self, node: bytes, level: Level | None) -> None:
        """Makes a node known, if it exists. A level of None means a fact."""
        id_ = _id(node)
        if level is None:
            self._reach_fact(FactId(id_))
        elif level is Level.MASTER:
            self._nodes[node] = MASTER if node == self._master else None
        elif level is Level.SECTION:
            self._nodes[node] = SECTION if self._section(node) is not None else None
        elif level is Level.CHUNK:
            self._nodes[node] = CHUNK if self._chunk(node) is not None else None
        else:
            chunk = (self._hierarchy.parent(id_) or chunk_of_raw(id_)[0]).bytes
            if node in self._below_chunk(chunk):
                self._nodes[chunk] = CHUNK

    def node(self, node: bytes) -> KnowledgeNode | None:
        return self._nodes.get(node)

    def is_ready(self, node: bytes) -> bool:
        return node in self._ready

    def prepare(self, nodes: Sequence[bytes]) -> None:
        """Reads ahead the records of the nodes, of those above them, and of the facts below them or similar to them."""
        fresh = [node for node in nodes if node not in self._ready]
        self._ready.update(fresh)
        chunks = self._chunks_at(fresh)
        self._read_ahead(fresh, chunks)
        above = [section for section in dict.fromkeys(self._hierarchy.parents(chunks)) if section is not None]
        keys, blocks = self._view.keys, self._facts.blocks_of_chunks(chunks)
        self._view.read_ahead([*map(keys.section, above), *map(keys.fact_block, blocks)], self._members_ahead(above))

    def _read_ahead(self, nodes: Sequence[bytes], chunks: Sequence[NodeId]) -> None:
        """Reads what is known to be needed of nodes, and of the chunks at them, in one round trip."""
        keys, kinds = self._view.keys, {node: self._kind(node) for node in nodes}
        sections = [_id(node) for node, kind in kinds.items() if kind == "section"]
        similar = self._similar_to_each([FactId(_id(node)) for node, kind in kinds.items() if kind == _FACT])
        self._view.read_ahead(
            [
                keys.master(),
                keys.embeddings(),
                *map(keys.chunk, chunks),
                *map(keys.parent, chunks),
                *map(keys.section, sections),
                *self._facts.keys_of([*map(FactId, chunks), *similar]),
            ],
            [
                RangeRead(*keys.erasures()),
                *(RangeRead(*keys.chunk_blocks(chunk)) for chunk in chunks),
                *([sections_ahead(keys)] if {"section", "master"} & set(kinds.values()) else []),
                *self._members_ahead(sections),
            ],
        )

    def _chunks_at(self, nodes: Iterable[bytes]) -> list[NodeId]:
        """The chunks among the nodes, and those that raws and facts among them belong to."""
        found = (node if self._kind(node) == "chunk" else self._chunk_of.get(node) for node in nodes)
        return [_id(chunk) for chunk in dict.fromkeys(found) if chunk is not None]

    def _members_ahead(self, sections: Iterable[NodeId]) -> list[RangeRead]:
        return [MembersOf(section).ahead(self._view.keys) for section in sections]

    def _similar_to_each(self, facts: Sequence[FactId]) -> list[FactId]:
        """The facts similar to any of these."""
        there = [fact for fact in facts if fact in self._index]
        return [other for fact in there for other in self._similar.find(self._index, fact, there)]

    def parents(self, node: bytes) -> list[bytes]:
        above = self._above(node)
        found = set() if above is None else {above}
        if self._kind(node) == _FACT:
            found |= {fact for fact in self._similar_to(node) if fact < node}
        return sorted(found)

    def children(self, node: bytes) -> list[bytes]:
        found = set(self._below(node))
        if self._kind(node) == _FACT:
            found |= {fact for fact in self._similar_to(node) if fact > node}
        return sorted(found)

    def siblings(self, node: bytes, limit: int) -> list[bytes]:
        """Siblings in the hierarchy. Two facts that are similar to a third one are not siblings."""
        above = self._above(node)
        if above is None:
            return []
        if above not in self._ranked:
            children = ((child, self._nodes.get(child)) for child in self._below(above))
            ranked = sorted((-known.salience, child) for child, known in children if known is not None)
            self._ranked[above] = [child for _, child in ranked]
        return [child for child in self._ranked[above][: limit + 1] if child != node][:limit]

    def edges(self, nodes: Collection[bytes]) -> Iterator[SliceEdge]:
        found: set[SliceEdge] = set()
        for node in nodes:
            above = self._above(node)
            if above in nodes and above is not None:
                found.add(SliceEdge(above, node, EdgeType.DEFAULT))
            kind = self._kind(node)
            if kind == "section":
                cited = (chunk for chunk in self._cited_by(node) if chunk in nodes)
                found |= {SliceEdge(node, chunk, EdgeType.REFERENCE) for chunk in cited}
            elif kind == _FACT:
                similar = (fact for fact in self._similar_to(node) if fact in nodes)
                found |= {SliceEdge(min(node, fact), max(node, fact), EdgeType.REFERENCE) for fact in similar}
        return iter(found)

    @cached_property
    def _master(self) -> bytes | None:
        master = self._hierarchy.master_unless_erased()
        return None if master is None else master.id.bytes

    @cached_property
    def _index(self) -> FactIndex:
        return self._open_index()

    def _kind(self, node: bytes) -> str:
        found = self._nodes.get(node)
        return "" if found is None else found.kind

    def _above(self, node: bytes) -> bytes | None:
        """The parent in the hierarchy. Makes it known."""
        kind = self._kind(node)
        if kind == "section":
            above, found = self._master, MASTER
        elif kind == "chunk":
            section = self._hierarchy.parent(_id(node))
            above, found = None if section is None else section.bytes, SECTION
            if above is not None and self._section(above) is None:
                return None
        elif kind in {"raw", _FACT}:
            above, found = self._chunk_of.get(node), CHUNK
            if above is not None and self._chunk(above) is None:
                return None
        else:
            return None
        if above is not None:
            self._nodes.setdefault(above, found)
        return above

    def _below(self, node: bytes) -> list[bytes]:
        """The children in the hierarchy. Makes them known."""
        if node not in self._children:
            self._children[node] = self._read_below(node)
        return self._children[node]

    def _read_below(self, node: bytes) -> list[bytes]:
        kind, id_ = self._kind(node), _id(node)
        if kind == "master":
            return self._known((section.bytes for section in self._hierarchy.section_ids()), SECTION, self._section)
        if kind == "section":
            return self._known(
                (chunk.id.bytes for _, chunk in self._hierarchy.members_of_each([MembersOf(id_)])), CHUNK, self._chunk
            )
        return self._below_chunk(node) if kind == "chunk" else []

    def _known(self, found: Iterable[bytes], kind: KnowledgeNode, get: Callable[[bytes], object | None]) -> list[bytes]:
        """Makes those nodes known that are not erased. Nodes are only read if the revision may have erased ones."""
        left = [node for node in found if node in self._nodes or not self._may_be_erased or get(node) is not None]
        self._nodes.update((node, kind) for node in left)
        return left

    @cached_property
    def _may_be_erased(self) -> bool:
        """Whether something was erased after this revision. The head itself never has erased nodes."""
        found = erasures.of_corpus(self._view.tr, self._view.keys)
        return any(erasure.revision > self._view.revision for erasure in found)

    def _below_chunk(self, chunk: bytes) -> list[bytes]:
        """The raws and the facts of a chunk. Makes them known."""
        found = self._chunk(chunk)
        if found is None:
            return []
        raws = [raw.bytes for raw in raw_ids(found.chunk, found.raws)]
        self._nodes.update((raw, RAW) for raw in raws)
        facts = [fact.id.bytes for fact in self._facts.of_chunks([found.chunk.id]) if self._reach_fact(fact.id)]
        self._chunk_of.update((node, chunk) for node in [*raws, *facts])
        return [*raws, *facts]

    def _reach_fact(self, fact: FactId) -> bool:
        """Makes a fact known. Returns whether it exists and searches find it."""
        node = fact.bytes
        if node not in self._nodes:
            self._count_read()
            found = self._facts.fact_unless_erased(fact)
            self._nodes[node] = None
            if found is not None and found.is_searched:
                self._nodes[node] = KnowledgeNode(_FACT, Phase.CONSOLIDATION, single(found.importance))
                self._uncompared[fact] = None
            if found is not None and found.chunk is not None:
                self._chunk_of[node] = found.chunk.bytes
        return self._nodes[node] is not None

    def _similar_to(self, node: bytes) -> list[bytes]:
        """The facts that are similar to a fact. Makes them known."""
        if node not in self._alike:
            fact = FactId(_id(node))
            self._uncompared.pop(fact, None)
            ahead = [other for other in islice(self._uncompared, _COMPARED_AHEAD) if other in self._index]
            found = self._similar.find(self._index, fact, ahead) if fact in self._index else ()
            self._alike[node] = [similar.bytes for similar in found if self._reach_fact(similar)]
        return self._alike[node]

    def _cited_by(self, section: bytes) -> set[bytes]:
        """The chunks that the summary of a section cites. They are all below the section."""
        found = self._section(section)
        return set() if found is None else {citation.chunk.bytes for citation in found.citations}

    def _chunk(self, chunk: bytes) -> PlacedChunk | None:
        if chunk not in self._chunks:
            self._count_read()
            self._chunks[chunk] = _left(self._hierarchy.placed_chunk, _id(chunk))
        return self._chunks[chunk]

    def _section(self, section: bytes) -> Section | None:
        if section not in self._sections:
            self._count_read()
            self._sections[section] = _left(self._hierarchy.section, _id(section))
        return self._sections[section]

    def _count_read(self) -> None:
        self._read += 1
        check_read(self._read)


def _id(node: bytes) -> NodeId:
    return NodeId(UUID(bytes=node))


def _left(get: Callable[[NodeId], T | None], node: NodeId) -> T | None:
    """The record of a node; None if it is missing or erased."""
    try:
        return get(node)
    except KeyErased:
        return None
