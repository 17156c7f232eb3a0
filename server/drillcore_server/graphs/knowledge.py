"""The hierarchy and the facts of a corpus as a graph that slices are made of, read from the store as they need it.

master -> section -> chunk -> raw, chunk -> fact    the hierarchy: Default
section -> chunk                                    that its summary cites: Reference
fact -> fact                                        that is like it, from the smaller id: Reference
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from drillcore_server.facts.index import FactIndex
from drillcore_server.facts.similar import SimilarFacts
from drillcore_server.facts.store import FactReader
from drillcore_server.graphs.slices import SliceEdge, check_read, single
from drillcore_server.graphs.turn_model import EdgeType, Phase
from drillcore_server.hierarchy.model import ChunkWithRaws, Section, chunk_of_raw, raw_id
from drillcore_server.hierarchy.store import HierarchyReader
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
_ASKED_AHEAD: Final = 127
"""Facts that are compared along with one: together they take little longer than it alone."""


class KnowledgeGraph:
    """A `domain.slices.Graph` of one revision. What was read is remembered: for the slices of one call.

    It knows the nodes that something led to; `reach` is how to begin. Facts that no search finds are not in it, and
    nor is what was erased.
    """

    def __init__(self, view: CorpusAtRevision, index: Callable[[], FactIndex], similar: SimilarFacts) -> None:
        self._view = view
        self._facts = FactReader(view)
        self._open_index = index
        self._similar = similar
        self._read = 0
        self._nodes: dict[bytes, KnowledgeNode | None] = {}
        self._chunks: dict[bytes, ChunkWithRaws | None] = {}
        self._sections: dict[bytes, Section | None] = {}
        self._children: dict[bytes, list[bytes]] = {}
        self._ranked: dict[bytes, list[bytes]] = {}
        self._chunk_of: dict[bytes, bytes] = {}
        """Of raws and facts."""
        self._alike: dict[bytes, list[bytes]] = {}
        self._unasked: dict[FactId, None] = {}
        """Facts of which nobody has asked yet what they are like, and somebody may."""

    def reach(self, node: bytes, level: Level | None) -> None:
        """Makes a node known to begin with, if it is there; a fact if it has no level."""
        one = NodeId(UUID(bytes=node))
        if level is None:
            self._reach_fact(FactId(one))
        elif level is Level.MASTER:
            self._nodes[node] = MASTER if node == self._master else None
        elif level is Level.SECTION:
            self._nodes[node] = SECTION if self._section(node) is not None else None
        elif level is Level.CHUNK:
            self._nodes[node] = CHUNK if self._chunk(node) is not None else None
        else:
            chunk = (HierarchyReader(self._view).parent(one) or chunk_of_raw(one)[0]).bytes
            if node in self._held_by(chunk):
                self._nodes[chunk] = CHUNK

    def node(self, node: bytes) -> KnowledgeNode | None:
        return self._nodes.get(node)

    def parents(self, node: bytes) -> list[bytes]:
        above = self._above(node)
        found = set() if above is None else {above}
        if self._kind(node) == _FACT:
            found |= {one for one in self._like(node) if one < node}
        return sorted(found)

    def children(self, node: bytes) -> list[bytes]:
        found = set(self._below(node))
        if self._kind(node) == _FACT:
            found |= {one for one in self._like(node) if one > node}
        return sorted(found)

    def siblings(self, node: bytes, limit: int) -> list[bytes]:
        """By the hierarchy alone: that two facts are like a third says nothing of them."""
        above = self._above(node)
        if above is None:
            return []
        if above not in self._ranked:
            nodes = ((one, self._nodes.get(one)) for one in self._below(above))
            self._ranked[above] = [one for _, one in sorted((-n.salience, one) for one, n in nodes if n is not None)]
        return [one for one in self._ranked[above][: limit + 1] if one != node][:limit]

    def edges(self, nodes: Collection[bytes]) -> Iterator[SliceEdge]:
        found: set[SliceEdge] = set()
        for node in nodes:
            above = self._above(node)
            if above in nodes and above is not None:
                found.add(SliceEdge(above, node, EdgeType.DEFAULT))
            kind = self._kind(node)
            if kind == "section":
                found |= {SliceEdge(node, one, EdgeType.REFERENCE) for one in self._cites(node) if one in nodes}
            elif kind == _FACT:
                like = (one for one in self._like(node) if one in nodes)
                found |= {SliceEdge(min(node, one), max(node, one), EdgeType.REFERENCE) for one in like}
        return iter(found)

    @cached_property
    def _master(self) -> bytes | None:
        master = HierarchyReader(self._view).master_left()
        return None if master is None else master.id.bytes

    @cached_property
    def _index(self) -> FactIndex:
        return self._open_index()

    def _kind(self, node: bytes) -> str:
        found = self._nodes.get(node)
        return "" if found is None else found.kind

    def _above(self, node: bytes) -> bytes | None:
        """The parent in the hierarchy, made known."""
        kind = self._kind(node)
        if kind == "section":
            above, found = self._master, MASTER
        elif kind == "chunk":
            section = HierarchyReader(self._view).parent(NodeId(UUID(bytes=node)))
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
        """The children in the hierarchy, made known."""
        if node not in self._children:
            self._children[node] = self._found_below(node)
        return self._children[node]

    def _found_below(self, node: bytes) -> list[bytes]:
        kind, one = self._kind(node), NodeId(UUID(bytes=node))
        if kind == "master":
            return self._known(
                (section.bytes for section in HierarchyReader(self._view).section_ids()), SECTION, self._section
            )
        if kind == "section":
            return self._known(
                (chunk.bytes for chunk in HierarchyReader(self._view).chunks_of(one)), CHUNK, self._chunk
            )
        return self._held_by(node) if kind == "chunk" else []

    def _known(self, found: Iterable[bytes], kind: KnowledgeNode, get: Callable[[bytes], object | None]) -> list[bytes]:
        """Those that can be read. At the head nothing is erased, so there they need not be looked at."""
        there = [one for one in found if one in self._nodes or not self._may_be_erased or get(one) is not None]
        self._nodes.update((one, kind) for one in there)
        return there

    @cached_property
    def _may_be_erased(self) -> bool:
        """Whether the revision may have what was erased since."""
        return any(one.revision > self._view.revision for one in erasures.of_corpus(self._view.tr, self._view.keys))

    def _held_by(self, chunk: bytes) -> list[bytes]:
        """The raws and the facts of a chunk."""
        found = self._chunk(chunk)
        if found is None:
            return []
        own = found.chunk.raw_ids or [raw_id(found.chunk.id, place) for place in range(len(found.page.raws))]
        raws = [one.bytes for one in own]
        self._nodes.update((one, RAW) for one in raws)
        facts = [one.bytes for one in self._facts.of_chunk(found.chunk.id) if self._reach_fact(one)]
        self._chunk_of.update((one, chunk) for one in [*raws, *facts])
        return [*raws, *facts]

    def _reach_fact(self, fact: FactId) -> bool:
        """Whether it is there, and searched."""
        one = fact.bytes
        if one not in self._nodes:
            self._count_read()
            found = self._facts.fact_left(fact)
            self._nodes[one] = None
            if found is not None and found.is_searched:
                self._nodes[one] = KnowledgeNode(_FACT, Phase.CONSOLIDATION, single(found.importance))
                self._unasked[fact] = None
            if found is not None and found.chunk is not None:
                self._chunk_of[one] = found.chunk.bytes
        return self._nodes[one] is not None

    def _like(self, fact: bytes) -> list[bytes]:
        """The facts that a fact is like, made known."""
        if fact not in self._alike:
            one = FactId(UUID(bytes=fact))
            self._unasked.pop(one, None)
            others = [other for other in islice(self._unasked, _ASKED_AHEAD) if other in self._index]
            found = self._similar.of(self._index, one, others) if one in self._index else ()
            self._alike[fact] = [other.bytes for other in found if self._reach_fact(other)]
        return self._alike[fact]

    def _cites(self, section: bytes) -> set[bytes]:
        """The chunks that the summary of a section cites, which are below it."""
        found = self._section(section)
        return set() if found is None else {one.chunk.bytes for one in found.citations}

    def _chunk(self, chunk: bytes) -> ChunkWithRaws | None:
        if chunk not in self._chunks:
            self._count_read()
            self._chunks[chunk] = _left(HierarchyReader(self._view).chunk_with_raws, NodeId(UUID(bytes=chunk)))
        return self._chunks[chunk]

    def _section(self, section: bytes) -> Section | None:
        if section not in self._sections:
            self._count_read()
            self._sections[section] = _left(HierarchyReader(self._view).section, NodeId(UUID(bytes=section)))
        return self._sections[section]

    def _count_read(self) -> None:
        self._read += 1
        check_read(self._read)


def _left(get: Callable[[NodeId], T | None], node: NodeId) -> T | None:
    """What is there and was not erased."""
    try:
        return get(node)
    except KeyErased:
        return None
