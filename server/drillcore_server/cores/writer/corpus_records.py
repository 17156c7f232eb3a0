"""Writes those records of a full core that do not belong to a document: sections and master, sources, facts,
communities, turns, library documents and signatures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

import msgspec

from drillcore_server.communities.model import Community
from drillcore_server.communities.store import COMMUNITY, ID_BYTES
from drillcore_server.cores.foreign_store import LibraryPlaces
from drillcore_server.cores.writer.core_file import PartWriter
from drillcore_server.cores.writer.documents import GatheredSignatures, foreign_documents
from drillcore_server.cores.writer.quads import IdSet, foreign_embeddings
from drillcore_server.facts.store import FACT, stored_facts
from drillcore_server.graphs.turn_store import TURN, edge_of
from drillcore_server.hierarchy.model import Section
from drillcore_server.hierarchy.packed import SECTION
from drillcore_server.hierarchy.store import MASTER, SOURCE, HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.signatures.model import TargetKind
from drillcore_server.storage.ids import CommunityId, node_id
from drillcore_server.storage.sealed_file import SortedFile
from drillcore_server.storage.versioned import Entry

_COMMUNITIES_AT_ONCE: Final = 20
"""Communities that are read together."""
_PAGES_AT_ONCE: Final = 4
"""Pages of members of each of them. A page has 64 KiB."""


class RecordWriter:
    """Writes the records into parts. Call the methods in their order."""

    def __init__(self, parts: PartWriter, snapshot: BatchedReads, signatures: GatheredSignatures) -> None:
        self._parts = parts
        self._snapshot = snapshot
        self._signatures = signatures

    def write_summaries(self) -> None:
        """Writes sections by id, then the master."""
        for section in sections(self._snapshot):
            self._section(section)
        master = self._snapshot.read(lambda view: HierarchyReader(view).master())
        if master is not None:
            self._parts.add("master", MASTER.encode(master))
            self._signatures.take(TargetKind.NODE, master.id, master.version)

    def write_sources(self, *, with_documents: bool) -> None:
        """Writes sources by id. Without documents they refer to none."""
        entries = self._opened(self._snapshot.entries(self._snapshot.keys.sources()))
        ids = sorted(SOURCE.decode(entry.value).id for entry in entries)
        together = self._snapshot.together(ids, lambda view, some: view.opened(HierarchyReader(view).source_keys(some)))
        for source in (SOURCE.decode(found.value) for found in together if found is not None):
            left = source if with_documents else replace(source, document=None, content_hash="")
            self._parts.add("source", SOURCE.encode(left))

    def write_facts(self) -> IdSet:
        """Writes facts by id and returns the ids."""
        ids = IdSet()
        for fact in stored_facts(self._snapshot):
            self._parts.add("fact", FACT.encode(fact))
            self._signatures.take(TargetKind.FACT, fact.id, fact.version)
            ids.add(fact.id)
        return ids

    def write_communities(self, facts: IdSet) -> None:
        """Writes communities by their first member. Leaves out members that are not among `facts`, as erased facts."""
        with SortedFile() as order:
            entries = self._opened(self._snapshot.entries(self._snapshot.keys.communities()))
            for community, members in self._with_members(COMMUNITY.decode(entry.value) for entry in entries):
                order.add(_first(facts.among(members)) + community.id.bytes)
            ordered = (CommunityId(node_id(placed[-ID_BYTES:])) for placed in order)
            for community, packed in self._with_members(self._communities(ordered)):
                members = facts.among(packed)
                drawn, size = [fact.bytes for fact in community.drawn_from], len(members) // ID_BYTES
                self._parts.add(
                    "community", community.label, community.keywords, size, drawn, community.made_at, members
                )

    def write_turns(self) -> None:
        """Writes turns by id, then the edges between them, by parent."""
        ids = IdSet()
        for entry in self._opened(self._snapshot.entries(self._snapshot.keys.turns())):
            turn = TURN.decode(entry.value)
            self._parts.add("turn", turn.source, TURN.as_written_now(entry.value))
            ids.add(turn.id)
        for entry in self._snapshot.entries(self._snapshot.keys.all_edges()):
            parent, child, type_ = edge_of(entry.key)
            if parent in ids and child in ids:
                self._parts.add("edge", parent, child, int(type_))

    def write_foreign(self, places: LibraryPlaces) -> None:
        """Writes the sources of other systems' documents, and the vectors of their pieces."""
        for document in foreign_documents(self._snapshot, places):
            if document.source:
                self._parts.add("library", document.id, document.source)
        for vector in foreign_embeddings(self._snapshot):
            self._parts.add("embedding", vector.entity.decode(), vector.source, msgspec.Raw(vector.numbers))

    def write_signatures(self) -> None:
        for signature in self._signatures.encoded():
            self._parts.add("signature", signature)

    def _section(self, section: Section) -> None:
        self._parts.add("section", SECTION.encode(section))
        self._signatures.take(TargetKind.NODE, section.id, section.version)

    def _with_members(self, communities: Iterator[Community]) -> Iterator[tuple[Community, bytes]]:
        """Communities with their packed members, some of them read together."""
        while some := list(islice(communities, _COMMUNITIES_AT_ONCE)):
            ranges = [self._snapshot.keys.community_pages(community.id) for community in some]
            pages = self._snapshot.entries_of_each(ranges, _PAGES_AT_ONCE)
            for community, entries in zip(some, pages, strict=True):
                yield community, b"".join(entry.value for entry in self._opened(entries))

    def _communities(self, ids: Iterator[CommunityId]) -> Iterator[Community]:
        while some := list(islice(ids, _COMMUNITIES_AT_ONCE)):
            keys = list(map(self._snapshot.keys.community, some))
            found = self._snapshot.read(lambda view, keys=keys: view.opened(keys))  # type: ignore[misc]
            yield from (COMMUNITY.decode(entry.value) for entry in found if entry is not None)

    def _opened(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        return self._snapshot.sealed.opened_all(entries)


def sections(snapshot: BatchedReads) -> Iterator[Section]:
    """Yields sections by id. Raises `KeyErased` if a source of one was erased."""
    ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
    return snapshot.each(ids, lambda view, id_: HierarchyReader(view).section(id_), lambda keys, id_: keys.section(id_))


def _first(members: bytes) -> bytes:
    return min(members[at : at + ID_BYTES] for at in range(0, len(members), ID_BYTES))
