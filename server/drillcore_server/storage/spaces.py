"""The spaces of the store: which directory each kind of record is in, and which of them are kept by revision."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from drillcore_fdb.tuples import KeyRange, prefix_end


class Space(enum.StrEnum):
    """The path of each space's directory, below the store's. The directory of a new space is made at the next start."""

    TENANTS = "tenants"
    TENANT_NAMES = "indexes/tenants-by-name"
    CORPORA = "corpora"
    CORPUS_NAMES = "indexes/corpora-by-name"
    REQUESTS = "requests"
    REQUEST_TIMES = "indexes/requests-by-time"
    CORPUS_NUMBERS = "indexes/corpora-by-number"
    LOCATORS = "indexes/locators"
    HEADS = "revisions/heads"
    REVISIONS = "revisions/records"
    REVISION_TIMES = "revisions/times"
    CLAIMS = "revisions/claims"
    STAGED = "revisions/staged"
    MASTERS = "master"
    SECTIONS = "sections"
    CHUNKS = "chunks"
    RAW = "raw"
    VECTORS = "vectors/chunks"
    MEMBERS = "indexes/members"
    PARENTS = "indexes/parents"
    DOCUMENTS = "documents"
    SOURCES = "sources"
    ENTITIES = "indexes/entities"
    CATEGORIES = "indexes/categories"
    BY_SOURCE = "indexes/by-source"
    FLOORS = "revisions/floors"
    SECTION_LIST = "indexes/sections"
    EMBEDDED = "indexes/chunks-by-text"
    AUDIT_STATE = "audit/state"
    AUDIT_RECORDS = "audit/records"
    AUDIT_REQUESTS = "audit/requests"
    AUDIT_ENTRIES = "audit/entries"
    AUDIT_TILES = "audit/tiles"
    AUDIT_HEADS = "audit/heads"
    AUDIT_CHECKPOINTS = "audit/checkpoints"
    AUDIT_PLACES = "audit/places"
    AUDIT_INDEXES = "audit/indexes"
    AUDIT_SEQUENCER = "audit/sequencer"
    AUDIT_KEYS = "audit/keys"
    MANIFESTS = "revisions/manifests"
    ACCOUNTS = "identity/accounts"
    LOGINS = "identity/logins"
    CREDENTIALS = "identity/credentials"
    SESSIONS = "identity/sessions"
    ACCOUNT_SESSIONS = "identity/sessions-by-account"
    BINDINGS = "identity/bindings"
    SIGNATURES = "signatures/records"
    SIGNATURES_BY_TARGET = "signatures/by-target"
    CHALLENGES = "signatures/challenges"
    REVIEWS = "audit/reviews"
    EXPORTS = "exports"
    AUDIT_PUBLISHED = "audit/published"
    ACCOUNTS_BY_TENANT = "identity/accounts-by-tenant"
    FACTS = "facts"
    FACT_VECTORS = "vectors/facts"
    EMBEDDINGS = "vectors/models"
    FACTS_BY_CHUNK = "indexes/facts-by-chunk"
    FACTS_BY_SOURCE = "indexes/facts-by-source"
    FACT_CHANGES = "revisions/facts"
    FACT_EXPIRIES = "indexes/fact-expiries"
    FACT_ACCESSES = "upkeep/fact-reads"
    COMMUNITIES = "communities"
    COMMUNITY_RUNS = "upkeep/communities"
    STATE_HASHES = "upkeep/state-hashes"
    CHANGES = "revisions/feed"
    ERASURES = "erasures/records"
    PURGED = "erasures/purges"
    SHARED_CORPORA = "indexes/corpora-by-reader"
    SESSION_FACTS = "sessions/facts"
    SESSION_ENDS = "sessions/ends"
    MIGRATIONS = "vectors/migrations"
    FACT_UPKEEP = "upkeep/archiving"
    ENVELOPES = "envelopes/records"
    ENVELOPE_SESSIONS = "sessions/envelopes"
    ETAGS = "envelopes/by-etag"
    ENVELOPE_ENDS = "envelopes/ends"
    QUADS = "quads"
    QUAD_INDEX = "indexes/quads"
    LIBRARY = "foreign/documents"
    LIBRARY_BLOBS = "foreign/contents"
    ENTITY_VECTORS = "vectors/entities"
    TURNS = "turns"
    EDGES = "edges"
    GRAPH_INDEX = "indexes/graph"
    GRAPH_CHANGES = "revisions/turns"
    FOREIGN_SIGNATURES = "foreign/signatures"
    FACT_ENVELOPES = "envelopes/by-fact"


COMMITTED: Final = (
    Space.MASTERS,
    Space.SECTIONS,
    Space.CHUNKS,
    Space.RAW,
    Space.VECTORS,
    Space.PARENTS,
    Space.DOCUMENTS,
    Space.SOURCES,
    Space.FACTS,
    Space.FACT_VECTORS,
    Space.EMBEDDINGS,
    Space.COMMUNITIES,
    Space.QUADS,
    Space.LIBRARY,
    Space.LIBRARY_BLOBS,
    Space.ENTITY_VECTORS,
    Space.TURNS,
    Space.EDGES,
    Space.FOREIGN_SIGNATURES,
)
"""The spaces that a revision's manifest lists. The other versioned spaces can be derived from these."""
BY_REVISION: Final = (
    Space.MASTERS,
    Space.SECTIONS,
    Space.CHUNKS,
    Space.RAW,
    Space.VECTORS,
    Space.MEMBERS,
    Space.PARENTS,
    Space.DOCUMENTS,
    Space.SOURCES,
    Space.ENTITIES,
    Space.CATEGORIES,
    Space.SECTION_LIST,
    Space.EMBEDDED,
    Space.FACTS,
    Space.FACT_VECTORS,
    Space.EMBEDDINGS,
    Space.FACTS_BY_CHUNK,
    Space.FACTS_BY_SOURCE,
    Space.FACT_EXPIRIES,
    Space.COMMUNITIES,
    Space.QUADS,
    Space.QUAD_INDEX,
    Space.LIBRARY,
    Space.LIBRARY_BLOBS,
    Space.ENTITY_VECTORS,
    Space.TURNS,
    Space.EDGES,
    Space.GRAPH_INDEX,
    Space.FOREIGN_SIGNATURES,
)
"""The versioned spaces (marked * in `corpus_keys.py`), as `Space` has them."""


@dataclass(frozen=True, slots=True)
class ErasureNotes:
    """The notes of erasures in the whole store, in the order of their commits."""

    count: bytes
    """The key of their count."""
    prefix: bytes

    def note(self, number: int) -> bytes:
        return self.prefix + number.to_bytes(8, "big")

    def after(self, number: int) -> KeyRange:
        return KeyRange(self.note(number + 1), prefix_end(self.prefix))


def below(prefix: bytes) -> KeyRange:
    """Every key that begins with a prefix."""
    return KeyRange(prefix, prefix_end(prefix))


def behind(key: bytes) -> bytes:
    """The first key that is neither `key` nor one of its parts."""
    return key + b"\xff"
