"""Walks down a corpus: the nodes of one level in the order of sections and documents, from any place on.

Lists of children and nodes are read in batches, so a page takes few round trips, and no more is read than it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import RangeRead
from drillcore_server.hierarchy.nodes import ChunkText, Node
from drillcore_server.hierarchy.reader import NodeReader
from drillcore_server.hierarchy.store import HierarchyReader, MembersOf
from drillcore_server.kernel.pages import PageLimit, read_together
from drillcore_server.storage.ids import DocumentId, Level, Membership, NodeId, node_id

Place = tuple[NodeId | None, Membership]
"""A chunk, and its section."""
_SECTIONS_AT_ONCE_MAX: Final = 32
_NODES_AT_ONCE_MAX: Final = 251
"""How many sections' members, and how many nodes, are read together at most."""
_PATH_BYTES: Final = 16 + 16 + 16 + 4 + 2


def nodes_at_once(limit: PageLimit) -> int:
    """How many nodes to read together for a page: one more than it holds, to know whether there are more."""
    return min(limit.items + 1, _NODES_AT_ONCE_MAX)


@dataclass(frozen=True, slots=True)
class Path:
    """The path to a node: its section, its chunk, and its place among the chunk's raws."""

    section: NodeId | None = None
    chunk: Membership | None = None
    raw: int = -1

    @classmethod
    def read(cls, stored: bytes) -> Path | None:
        """The path that `written` gave; None for anything else."""
        if len(stored) != _PATH_BYTES:
            return None
        chunk, document = node_id(stored[16:32]), DocumentId(UUID(bytes=stored[32:48]))
        member = Membership(chunk, document, int.from_bytes(stored[48:52], "big"))
        return cls(node_id(stored[:16]), member, int.from_bytes(stored[52:], "big") - 1)

    def written(self) -> bytes:
        section = bytes(16) if self.section is None else self.section.bytes
        chunk = bytes(36)
        if self.chunk is not None:
            chunk = self.chunk.id.bytes + self.chunk.document.bytes + self.chunk.ordinal.to_bytes(4, "big")
        return section + chunk + (self.raw + 1).to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class Walk:
    """Finds the nodes of one level that come after a path. Erased nodes are left out."""

    nodes: NodeReader
    target: Level
    limit: PageLimit
    """How many nodes are wanted. One more is looked at, to know whether there are more."""
    after: Path | None = None
    allowed: Collection[NodeId] | None = None
    """The only chunks to go through. None: all."""

    def ahead(self, sections: Iterable[NodeId]) -> list[RangeRead]:
        """What a walk through these sections reads first, to be read ahead. Takes no more of them than are needed."""
        if self.target is Level.SECTION:
            return []
        keys = self.nodes.view.keys
        return [self._members_of(section).ahead(keys) for section in islice(sections, self._sections_at_once)]

    def through(self, sections: Iterable[NodeId]) -> Iterator[tuple[Path, Node]]:
        """The nodes of the target level in these sections, in order, each with its path."""
        if self.target is Level.SECTION:
            return self._sections(sections)
        return self._in_chunks(self._members(sections))

    def in_chunk(self, chunk: Node) -> Iterator[tuple[Path, Node]]:
        """The raws of a chunk."""
        assert isinstance(chunk.content, ChunkText)
        return self._in_chunks([(chunk.parent, chunk.content.chunk.membership)])

    @property
    def _at_once(self) -> int:
        return nodes_at_once(self.limit)

    @property
    def _sections_at_once(self) -> int:
        return min(self._at_once, _SECTIONS_AT_ONCE_MAX)

    def _sections(self, sections: Iterable[NodeId]) -> Iterator[tuple[Path, Node]]:
        left = (section for section in sections if self.after is None or section != self.after.section)
        found = read_together(left, self._at_once, lambda batch: self.nodes.nodes(batch, Level.SECTION))
        return ((Path(node.id), node) for node in found if node is not None)

    def _members(self, sections: Iterable[NodeId]) -> Iterator[Place]:
        members = read_together(
            map(self._members_of, sections),
            self._sections_at_once,
            HierarchyReader(self.nodes.view).members_of_each,
        )
        return ((section, chunk) for section, chunk in members if self.allowed is None or chunk.id in self.allowed)

    def _members_of(self, section: NodeId) -> MembersOf:
        """The members of a section, from that of `after` on."""
        first = self.after.chunk if self.after is not None and section == self.after.section else None
        return MembersOf(section, first)

    def _in_chunks(self, chunks: Iterable[Place]) -> Iterator[tuple[Path, Node]]:
        if self.target is Level.RAW:
            return read_together(chunks, self._at_once, self._raws)
        left = ((section, chunk) for section, chunk in chunks if not self._is_last(section, chunk))
        return read_together(left, self._at_once, self._chunks)

    def _is_last(self, section: NodeId | None, chunk: Membership) -> bool:
        """Whether the path `after` ends in this chunk."""
        return self.after is not None and (section, chunk) == (self.after.section, self.after.chunk)

    def _chunks(self, chunks: Sequence[Place]) -> Iterator[tuple[Path, Node]]:
        found = self.nodes.nodes([chunk.id for _, chunk in chunks], Level.CHUNK)
        for place, node in zip(chunks, found, strict=True):
            if node is not None:
                yield Path(*place), node

    def _raws(self, chunks: Sequence[Place]) -> Iterator[tuple[Path, Node]]:
        found = self.nodes.raws_of([chunk.id for _, chunk in chunks])
        for place, raws in zip(chunks, found, strict=True):
            first = self.after.raw + 1 if self.after is not None and self._is_last(*place) else 0
            for number, raw in enumerate(raws[first:], first):
                yield Path(*place, number), raw
