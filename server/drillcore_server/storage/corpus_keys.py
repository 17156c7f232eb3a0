"""The keys of one corpus. A docstring that begins with * marks a versioned space: the revision follows the key."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from drillcore_fdb.tuples import KeyRange
from drillcore_server.storage.ids import (
    BlockId,
    CommunityId,
    DocumentId,
    EnvelopeId,
    FactId,
    Membership,
    NodeId,
    Revision,
    TurnId,
    to_microseconds,
)
from drillcore_server.storage.spaces import BY_REVISION, COMMITTED, ErasureNotes, Space, behind, below

_MICROSECOND: Final = timedelta(microseconds=1)


class CorpusKeys:
    """Keys of one corpus. Behind its number ids are 16 plain bytes and numbers have fixed sizes: short, and in order.

    Those marked * are logical keys, which `versioned` extends by revision and part.
    """

    def __init__(self, prefixes: Mapping[Space, bytes], erasure_notes: ErasureNotes) -> None:
        self._prefixes = prefixes
        self.erasure_notes = erasure_notes
        self._committed = tuple(prefixes[space] for space in COMMITTED)

    def head(self) -> bytes:
        return self._prefixes[Space.HEADS]

    def revision(self, revision: Revision) -> bytes:
        return self._prefixes[Space.REVISIONS] + revision.to_bytes(6, "big")

    def revisions(self, after: Revision, up_to: Revision) -> KeyRange:
        return KeyRange(self.revision(Revision(after + 1)), self.revision(Revision(up_to + 1)))

    def revision_time(self, at: datetime, revision: Revision) -> bytes:
        return self._time(at) + revision.to_bytes(6, "big")

    def revision_times_up_to(self, at: datetime) -> KeyRange:
        return KeyRange(self._prefixes[Space.REVISION_TIMES], self._time(at) + b"\xff")

    def claim(self) -> bytes:
        return self._prefixes[Space.CLAIMS]

    def staged(self, revision: Revision, batch: int) -> bytes:
        return self._prefixes[Space.STAGED] + revision.to_bytes(6, "big") + batch.to_bytes(4, "big")

    def all_staged(self) -> KeyRange:
        return below(self._prefixes[Space.STAGED])

    def master(self) -> bytes:
        """*"""
        return self._prefixes[Space.MASTERS]

    def section(self, section: NodeId) -> bytes:
        """*"""
        return self._prefixes[Space.SECTIONS] + section.bytes

    def sections(self) -> KeyRange:
        return below(self._prefixes[Space.SECTIONS])

    def listed_section(self, section: NodeId) -> bytes:
        """* The ids of sections without content: quick to scan, however often the sections changed.

        The value is the keyed hash of the section's category.
        """
        return self._prefixes[Space.SECTION_LIST] + section.bytes

    def listed_sections(self, first: NodeId | None = None) -> KeyRange:
        whole = below(self._prefixes[Space.SECTION_LIST])
        return whole if first is None else KeyRange(self.listed_section(first), whole.end)

    def chunk(self, chunk: NodeId) -> bytes:
        """*"""
        return self._prefixes[Space.CHUNKS] + chunk.bytes

    def chunks(self) -> KeyRange:
        return below(self._prefixes[Space.CHUNKS])

    def raw(self, document: DocumentId, start: int, ordinal: int) -> bytes:
        """* The text of a chunk's raws, at the start of the chunk's span in its document.

        Chunks that a client made may start at the same character. Their ordinals differ.
        """
        return self.raws(document).begin + start.to_bytes(6, "big") + ordinal.to_bytes(4, "big")

    def raws(self, document: DocumentId | None = None) -> KeyRange:
        return below(self._prefixes[Space.RAW] + (b"" if document is None else document.bytes))

    def vector(self, model: int, chunk: NodeId) -> bytes:
        """* Vectors of one model lie together."""
        return self.vectors(model).begin + chunk.bytes

    def vectors(self, model: int) -> KeyRange:
        return below(self._prefixes[Space.VECTORS] + bytes([model]))

    def all_vectors(self) -> KeyRange:
        return below(self._prefixes[Space.VECTORS])

    def member(self, section: NodeId, document: DocumentId, ordinal: int, chunk: NodeId) -> bytes:
        """* A section's chunks, in the order of their documents."""
        return self.members(section).begin + document.bytes + ordinal.to_bytes(4, "big") + chunk.bytes

    def members(self, section: NodeId) -> KeyRange:
        return below(self._prefixes[Space.MEMBERS] + section.bytes)

    def all_members(self) -> KeyRange:
        return below(self._prefixes[Space.MEMBERS])

    @staticmethod
    def parse_member(key: bytes) -> Membership:
        document, ordinal = DocumentId(UUID(bytes=key[-36:-20])), int.from_bytes(key[-20:-16], "big")
        return Membership(NodeId(UUID(bytes=key[-16:])), document, ordinal)

    @staticmethod
    def parse_membership(key: bytes) -> tuple[NodeId, NodeId]:
        """The section and the chunk."""
        return NodeId(UUID(bytes=key[-52:-36])), NodeId(UUID(bytes=key[-16:]))

    def parent(self, node: NodeId) -> bytes:
        """* The parent of a chunk, or of a raw that has an id of its own."""
        return self._prefixes[Space.PARENTS] + node.bytes

    def parents(self) -> KeyRange:
        return below(self._prefixes[Space.PARENTS])

    def document(self, document: DocumentId) -> bytes:
        """*"""
        return self._prefixes[Space.DOCUMENTS] + document.bytes

    def documents(self, after: DocumentId | None = None) -> KeyRange:
        whole = below(self._prefixes[Space.DOCUMENTS])
        return whole if after is None else KeyRange(behind(self.document(after)), whole.end)

    def source(self, source: bytes) -> bytes:
        """* The source is a keyed hash of 16 bytes, so that nobody can guess source ids and test the guesses."""
        return self._prefixes[Space.SOURCES] + source

    def sources(self, after: bytes | None = None) -> KeyRange:
        whole = below(self._prefixes[Space.SOURCES])
        return whole if after is None else KeyRange(behind(self.source(after)), whole.end)

    def entity(self, kind: bytes, value: bytes, chunk: NodeId) -> bytes:
        """* Kind and value are keyed hashes of 4 and 8 bytes, so that the key does not reveal the entity."""
        return self.entities(kind, value).begin + chunk.bytes

    def entities(self, kind: bytes, value: bytes = b"") -> KeyRange:
        return below(self._prefixes[Space.ENTITIES] + kind + value)

    def all_entities(self) -> KeyRange:
        return below(self._prefixes[Space.ENTITIES])

    def embedded(self, text: bytes, chunk: NodeId) -> bytes:
        """* The chunks that share the vector of one text. The text is a keyed hash of 12 bytes."""
        return self.embedded_as(text).begin + chunk.bytes

    def embedded_as(self, text: bytes) -> KeyRange:
        return below(self._prefixes[Space.EMBEDDED] + text)

    def all_embedded(self) -> KeyRange:
        return below(self._prefixes[Space.EMBEDDED])

    def category(self, category: bytes, section: NodeId) -> bytes:
        """* The category as a keyed hash of 8 bytes."""
        return self.categories(category).begin + section.bytes

    def categories(self, category: bytes) -> KeyRange:
        return below(self._prefixes[Space.CATEGORIES] + category)

    def all_categories(self) -> KeyRange:
        return below(self._prefixes[Space.CATEGORIES])

    def manifest(self, revision: Revision, batch: int) -> bytes:
        """The list of what a batch of a revision wrote, each entry given by its hash."""
        return self._prefixes[Space.MANIFESTS] + revision.to_bytes(6, "big") + batch.to_bytes(4, "big")

    def manifests(self, revision: Revision) -> KeyRange:
        return below(self._prefixes[Space.MANIFESTS] + revision.to_bytes(6, "big"))

    def by_source(self, number: int, revision: Revision, batch: int) -> bytes:
        """What a batch of a revision wrote under an encryption key: the logical keys."""
        return self.all_by_source(number).begin + revision.to_bytes(6, "big") + batch.to_bytes(4, "big")

    def all_by_source(self, number: int | None = None) -> KeyRange:
        """What every revision wrote under an encryption key, or under any."""
        return below(self._prefixes[Space.BY_SOURCE] + (b"" if number is None else number.to_bytes(4, "big")))

    def parse_by_source(self, key: bytes) -> tuple[int, Revision, int]:
        """The number of the encryption key, the revision and the batch."""
        begin = len(self._prefixes[Space.BY_SOURCE])
        number, revision, batch = key[begin : begin + 4], key[begin + 4 : begin + 10], key[begin + 10 : begin + 14]
        return int.from_bytes(number, "big"), Revision(int.from_bytes(revision, "big")), int.from_bytes(batch, "big")

    def floor(self) -> bytes:
        return self._prefixes[Space.FLOORS]

    def by_revision(self) -> list[KeyRange]:
        """All versioned spaces, in the order of the keys, which differs from store to store."""
        return [below(prefix) for prefix in sorted(self._prefixes[space] for space in BY_REVISION)]

    def space_of(self, key: bytes) -> Space:
        """The space that a logical key is in."""
        return next(space for space in BY_REVISION if key.startswith(self._prefixes[space]))

    def is_committed(self, key: bytes) -> bool:
        """Whether manifests list this logical key."""
        return key.startswith(self._committed)

    def committed(self) -> list[KeyRange]:
        return [below(prefix) for prefix in self._committed]

    def fact_block(self, block: BlockId) -> bytes:
        """* The facts of a block."""
        return self._prefixes[Space.FACTS] + block.bytes

    def fact_blocks(self, first: BlockId | None = None) -> KeyRange:
        """All blocks, or those from `first` on."""
        whole = below(self._prefixes[Space.FACTS])
        return whole if first is None else KeyRange(self.fact_block(first), whole.end)

    def block_vectors(self, model: int, block: BlockId) -> bytes:
        """* The vectors of a block's facts. Those of one model lie together."""
        return self.fact_vectors(model).begin + block.bytes

    def fact_vectors(self, model: int) -> KeyRange:
        return below(self._prefixes[Space.FACT_VECTORS] + bytes([model]))

    def all_fact_vectors(self) -> KeyRange:
        return below(self._prefixes[Space.FACT_VECTORS])

    def embeddings(self) -> bytes:
        """* Which model made the vectors."""
        return self._prefixes[Space.EMBEDDINGS]

    def migration(self) -> bytes:
        return self._prefixes[Space.MIGRATIONS]

    def chunk_block(self, chunk: NodeId, block: BlockId) -> bytes:
        """* The blocks with facts of a chunk, except the block that has the chunk's id."""
        return self.chunk_blocks(chunk).begin + block.bytes

    def chunk_blocks(self, chunk: NodeId) -> KeyRange:
        return below(self._prefixes[Space.FACTS_BY_CHUNK] + chunk.bytes)

    def all_chunk_blocks(self) -> KeyRange:
        return below(self._prefixes[Space.FACTS_BY_CHUNK])

    def source_block(self, source: bytes, block: BlockId) -> bytes:
        """* The blocks of facts of a source, given as a keyed hash of 16 bytes."""
        return self.source_blocks(source).begin + block.bytes

    def source_blocks(self, source: bytes, first: BlockId | None = None) -> KeyRange:
        whole = below(self._prefixes[Space.FACTS_BY_SOURCE] + source)
        return whole if first is None else KeyRange(self.source_block(source, first), whole.end)

    def all_source_blocks(self) -> KeyRange:
        return below(self._prefixes[Space.FACTS_BY_SOURCE])

    def fact_changes(self) -> bytes:
        """What each revision did to the facts of which blocks. The revision and the block follow the key."""
        return self._prefixes[Space.FACT_CHANGES]

    def fact_changes_between(self, after: Revision, up_to: Revision) -> KeyRange:
        prefix = self.fact_changes()
        return KeyRange(prefix + (after + 1).to_bytes(6, "big"), prefix + (up_to + 1).to_bytes(6, "big"))

    def fact_changes_of(self, revision: Revision, first: BlockId | None = None) -> KeyRange:
        """The changes that one revision made, to all blocks or to those from `first` on."""
        whole = self.fact_changes_between(Revision(revision - 1), revision)
        return whole if first is None else KeyRange(self.fact_change(revision, first), whole.end)

    def fact_change(self, revision: Revision, block: BlockId) -> bytes:
        return self.fact_changes() + revision.to_bytes(6, "big") + block.bytes

    @staticmethod
    def parse_fact_change(key: bytes) -> tuple[Revision, BlockId]:
        return Revision(int.from_bytes(key[-22:-16], "big")), BlockId(UUID(bytes=key[-16:]))

    def fact_expiry(self, at: datetime, fact: FactId) -> bytes:
        """* When the time to live of an active fact is over."""
        return self._prefixes[Space.FACT_EXPIRIES] + _microseconds(at) + fact.bytes

    @staticmethod
    def parse_fact_expiry(key: bytes) -> FactId:
        return FactId(UUID(bytes=key[-16:]))

    def fact_expiries_between(self, after: datetime | None, up_to: datetime) -> KeyRange:
        """The expiries after a moment, or all."""
        prefix = self._prefixes[Space.FACT_EXPIRIES]
        begin = prefix if after is None else prefix + _microseconds(after + _MICROSECOND)
        return KeyRange(begin, prefix + _microseconds(up_to + _MICROSECOND))

    def all_fact_expiries(self) -> KeyRange:
        return below(self._prefixes[Space.FACT_EXPIRIES])

    def fact_access(self, fact: FactId) -> bytes:
        """How often the fact was read, and when last. Not versioned."""
        return self._prefixes[Space.FACT_ACCESSES] + fact.bytes

    def fact_accesses(self) -> KeyRange:
        return below(self._prefixes[Space.FACT_ACCESSES])

    def fact_upkeep(self) -> bytes:
        """How far the server is in archiving facts that nobody reads."""
        return self._prefixes[Space.FACT_UPKEEP]

    def state_hash(self) -> bytes:
        return self._prefixes[Space.STATE_HASHES]

    def community(self, community: CommunityId) -> bytes:
        """* A community's summary and figures."""
        return self.communities().begin + community.bytes

    def communities(self) -> KeyRange:
        return below(self._prefixes[Space.COMMUNITIES] + b"\0")

    def community_page(self, community: CommunityId, page: int) -> bytes:
        """* A part of its members."""
        return self.community_pages(community).begin + page.to_bytes(4, "big")

    def community_pages(self, community: CommunityId) -> KeyRange:
        return below(self.all_community_pages().begin + community.bytes)

    def all_community_pages(self) -> KeyRange:
        return below(self._prefixes[Space.COMMUNITIES] + b"\1")

    @staticmethod
    def parse_community_page(key: bytes) -> tuple[CommunityId, int]:
        return CommunityId(UUID(bytes=key[-20:-4])), int.from_bytes(key[-4:], "big")

    def community_run(self) -> bytes:
        """The last run that found communities."""
        return self._prefixes[Space.COMMUNITY_RUNS] + b"\0"

    def community_lease(self) -> bytes:
        """The lease of the server that is finding communities now."""
        return self._prefixes[Space.COMMUNITY_RUNS] + b"\1"

    def erasure(self, number: int) -> bytes:
        return self._prefixes[Space.ERASURES] + number.to_bytes(4, "big")

    def erasures(self, after: int = 0) -> KeyRange:
        return KeyRange(self.erasure(after + 1), below(self._prefixes[Space.ERASURES]).end)

    def parse_erasure(self, key: bytes) -> int:
        begin = len(self._prefixes[Space.ERASURES])
        return int.from_bytes(key[begin : begin + 4], "big")

    def purge(self, number: int) -> bytes:
        return self._prefixes[Space.PURGED] + b"\0" + number.to_bytes(4, "big")

    def purges(self) -> KeyRange:
        return below(self._prefixes[Space.PURGED] + b"\0")

    def parse_purge(self, key: bytes) -> int:
        begin = len(self._prefixes[Space.PURGED]) + 1
        return int.from_bytes(key[begin : begin + 4], "big")

    def purged(self, purge: int, batch: int) -> bytes:
        """A part of the list of what a purge removed, each entry by the hash of its key and its revision."""
        return self.all_purged(purge).begin + batch.to_bytes(4, "big")

    def all_purged(self, purge: int) -> KeyRange:
        return below(self._prefixes[Space.PURGED] + b"\1" + purge.to_bytes(4, "big"))

    def quad(self, place: bytes) -> bytes:
        """* Subject, predicate, object and graph as keyed hashes of 12 bytes each, and its source as one of 16."""
        return self._prefixes[Space.QUADS] + place

    def quads(self, prefix: bytes = b"") -> KeyRange:
        return below(self._prefixes[Space.QUADS] + prefix)

    def quad_entry(self, order: int, place: bytes) -> bytes:
        """* The same hashes in another order, so that every pattern is a range of one order."""
        return self._prefixes[Space.QUAD_INDEX] + bytes([order]) + place

    def quad_entries(self, order: int, prefix: bytes = b"") -> KeyRange:
        return below(self.quad_entry(order, prefix))

    def all_quad_entries(self) -> KeyRange:
        return below(self._prefixes[Space.QUAD_INDEX])

    def library_document(self, document: bytes) -> bytes:
        """* A document that came with a core of another system, by a keyed hash of its id of 16 bytes."""
        return self._prefixes[Space.LIBRARY] + document

    def library_documents(self) -> KeyRange:
        return below(self._prefixes[Space.LIBRARY])

    def library_blob(self, document: bytes, piece: int) -> bytes:
        """* A piece of its content."""
        return self.library_blobs(document).begin + piece.to_bytes(4, "big")

    def library_blobs(self, document: bytes) -> KeyRange:
        return below(self._prefixes[Space.LIBRARY_BLOBS] + document)

    def all_library_blobs(self) -> KeyRange:
        return below(self._prefixes[Space.LIBRARY_BLOBS])

    def entity_vector(self, kind: int, entity: bytes) -> bytes:
        """* A vector of an entity that came with another system's core. The entity is a keyed hash of 16 bytes."""
        return self.entity_vectors(kind).begin + entity

    def entity_vectors(self, kind: int) -> KeyRange:
        return below(self._prefixes[Space.ENTITY_VECTORS] + bytes([kind]))

    def all_entity_vectors(self) -> KeyRange:
        return below(self._prefixes[Space.ENTITY_VECTORS])

    def turn(self, turn: TurnId) -> bytes:
        """*"""
        return self._prefixes[Space.TURNS] + turn.bytes

    def turns(self, after: TurnId | None = None) -> KeyRange:
        whole = below(self._prefixes[Space.TURNS])
        return whole if after is None else KeyRange(behind(self.turn(after)), whole.end)

    def edge(self, parent: TurnId, child: TurnId, edge_type: int) -> bytes:
        """*"""
        return self.edges(parent).begin + child.bytes + bytes([edge_type])

    def edges(self, parent: TurnId) -> KeyRange:
        """The edges that lead away from a turn."""
        return below(self._prefixes[Space.EDGES] + parent.bytes)

    def all_edges(self) -> KeyRange:
        return below(self._prefixes[Space.EDGES])

    def edge_to(self, child: TurnId, parent: TurnId, edge_type: int) -> bytes:
        """* The same edge, by its child."""
        return self.edges_to(child).begin + parent.bytes + bytes([edge_type])

    def edges_to(self, child: TurnId) -> KeyRange:
        return below(self._prefixes[Space.GRAPH_INDEX] + b"\0" + child.bytes)

    def session_turn(self, session: bytes, turn: TurnId) -> bytes:
        """* The turns of a session, given as a keyed hash of 16 bytes."""
        return self.session_turns(session).begin + turn.bytes

    def session_turns(self, session: bytes, after: TurnId | None = None) -> KeyRange:
        whole = below(self._prefixes[Space.GRAPH_INDEX] + b"\1" + session)
        return whole if after is None else KeyRange(behind(self.session_turn(session, after)), whole.end)

    def all_graph_entries(self) -> KeyRange:
        return below(self._prefixes[Space.GRAPH_INDEX])

    def graph_changes(self) -> bytes:
        """The turns that each revision changed, or whose edges it changed. The revision and the turn follow the key."""
        return self._prefixes[Space.GRAPH_CHANGES]

    def graph_changes_between(self, after: Revision, up_to: Revision) -> KeyRange:
        prefix = self.graph_changes()
        return KeyRange(prefix + (after + 1).to_bytes(6, "big"), prefix + (up_to + 1).to_bytes(6, "big"))

    @staticmethod
    def parse_graph_change(key: bytes) -> tuple[Revision, TurnId]:
        return Revision(int.from_bytes(key[-22:-16], "big")), TurnId(UUID(bytes=key[-16:]))

    def foreign_signature(self, kind: int, target: UUID, version: int, signature: UUID) -> bytes:
        """* A signature that was made on another server, and came with a core."""
        return self.foreign_signatures(kind, target).begin + version.to_bytes(4, "big") + signature.bytes

    def foreign_signatures(self, kind: int, target: UUID) -> KeyRange:
        return below(self._prefixes[Space.FOREIGN_SIGNATURES] + bytes([kind]) + target.bytes)

    def all_foreign_signatures(self) -> KeyRange:
        return below(self._prefixes[Space.FOREIGN_SIGNATURES])

    def fact_envelope(self, fact: FactId, envelope: EnvelopeId) -> bytes:
        """The envelopes that a fact was packed into."""
        return self.fact_envelopes(fact).begin + envelope.bytes

    def fact_envelopes(self, fact: FactId) -> KeyRange:
        return below(self._prefixes[Space.FACT_ENVELOPES] + fact.bytes)

    def all_fact_envelopes(self) -> KeyRange:
        return below(self._prefixes[Space.FACT_ENVELOPES])

    def _time(self, at: datetime) -> bytes:
        return self._prefixes[Space.REVISION_TIMES] + _microseconds(at)


def _microseconds(at: datetime) -> bytes:
    return max(to_microseconds(at), 0).to_bytes(8, "big")
