"""The other records of a full core: sections and master, sources, facts, communities, turns, what is foreign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from drillcore_server.cores.graph import foreign_embeddings
from drillcore_server.cores.id_set import IdSet
from drillcore_server.cores.library import foreign_documents
from drillcore_server.cores.part_writer import PartWriter
from drillcore_server.cores.signing import GatheredSignatures
from drillcore_server.domain.communities import Community
from drillcore_server.domain.ids import CommunityId
from drillcore_server.domain.nodes import Section
from drillcore_server.domain.signatures import TargetKind
from drillcore_server.exporting.sorted_file import SortedFile
from drillcore_server.store.communities import COMMUNITY, ID_BYTES
from drillcore_server.store.facts import FACT
from drillcore_server.store.hierarchy import MASTER, SOURCE, CorpusView, node_id
from drillcore_server.store.library import LibraryPlaces
from drillcore_server.store.packed import SECTION
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.turns import TURN, edge_of
from drillcore_server.store.versioned import Entry


class RecordWriter:
    """Writes the records into parts, in the order of the methods."""

    def __init__(self, parts: PartWriter, snapshot: Snapshot, signatures: GatheredSignatures) -> None:
        self._parts = parts
        self._snapshot = snapshot
        self._signatures = signatures

    def write_summaries(self) -> None:
        """Sections by id, then the master."""
        for section in sections(self._snapshot):
            self._section(section)
        master = self._snapshot.read(lambda view: view.master())
        if master is not None:
            self._parts.add("master", MASTER.encode(master))
            self._signatures.take(TargetKind.NODE, master.id, master.version)

    def write_sources(self, *, with_documents: bool) -> None:
        """By id. Without documents they lead to none."""
        entries = self._opened(self._snapshot.entries(self._snapshot.keys.sources()))
        ids = sorted(SOURCE.decode(entry.value).id for entry in entries)
        for source in self._snapshot.each_left(ids, lambda view, one: view.source(one)):
            left = source if with_documents else replace(source, document=None, content_hash="")
            self._parts.add("source", SOURCE.encode(left))

    def write_facts(self) -> IdSet:
        """By id; gives the ids."""
        ids = IdSet()
        for entry in self._opened(self._snapshot.entries(self._snapshot.keys.facts())):
            fact = FACT.decode(entry.value)
            self._parts.add("fact", FACT.as_written_now(entry.value))
            self._signatures.take(TargetKind.FACT, fact.id, fact.version)
            ids.add(fact.id)
        return ids

    def write_communities(self, facts: IdSet) -> None:
        """By their first member; members that are not among the facts are left out: they were erased."""
        with SortedFile() as order:
            for entry in self._opened(self._snapshot.entries(self._snapshot.keys.communities())):
                community = COMMUNITY.decode(entry.value).id
                order.add(_first(self._members(community, facts)) + community.bytes)
            for one in order:
                community = CommunityId(node_id(one[-ID_BYTES:]))
                members = self._members(community, facts)
                for said in self._snapshot.each_left([community], _community):
                    drawn, size = [fact.bytes for fact in said.drawn_from], len(members) // ID_BYTES
                    self._parts.add("community", said.label, said.keywords, size, drawn, said.made_at, members)

    def write_turns(self) -> None:
        """Turns by id, then the edges between them, by parent."""
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
        """Whose the documents of other systems are, and the vectors of their pieces."""
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

    def _members(self, community: CommunityId, facts: IdSet) -> bytes:
        pages = self._opened(self._snapshot.entries(self._snapshot.keys.community_pages(community)))
        return facts.among(b"".join(entry.value for entry in pages))

    def _opened(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        return self._snapshot.sealed.opened_all(entries)


def sections(snapshot: Snapshot) -> Iterator[Section]:
    """By id. Raises `KeyErased` if a source of one was erased."""
    ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
    return snapshot.each(ids, lambda view, one: view.section(one))


def _community(view: CorpusView, community: CommunityId) -> Community | None:
    entry = view.sealed.get(view.tr, view.keys.community(community), view.revision)
    return None if entry is None else COMMUNITY.decode(entry.value)


def _first(members: bytes) -> bytes:
    return min(members[at : at + ID_BYTES] for at in range(0, len(members), ID_BYTES))
