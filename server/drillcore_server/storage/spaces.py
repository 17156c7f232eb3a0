"""The key spaces of the store. The number of its space is the first element of every key."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from drillcore_fdb.tuples import KeyRange, prefix_end


class Space(enum.IntEnum):
    """Numbers are never reused. 0 is the store's header."""

    TENANTS = 1
    TENANT_NAMES = 2
    CORPORA = 3
    CORPUS_NAMES = 4
    REQUESTS = 5
    REQUEST_TIMES = 6
    CORPUS_NUMBERS = 7
    LOCATORS = 8
    HEADS = 9
    REVISIONS = 10
    REVISION_TIMES = 11
    CLAIMS = 12
    STAGED = 13
    MASTERS = 14
    SECTIONS = 15
    CHUNKS = 16
    VECTORS = 18
    MEMBERS = 19
    PARENTS = 20
    DOCUMENTS = 21
    SOURCES = 22
    ENTITIES = 23
    CATEGORIES = 24
    FLOORS = 26
    SECTION_LIST = 27
    EMBEDDED = 28
    AUDIT_STATE = 29
    AUDIT_RECORDS = 30
    AUDIT_REQUESTS = 31
    AUDIT_ENTRIES = 32
    AUDIT_TILES = 33
    AUDIT_HEADS = 34
    AUDIT_CHECKPOINTS = 35
    AUDIT_PLACES = 36
    AUDIT_INDEXES = 37
    AUDIT_SEQUENCER = 38
    AUDIT_KEYS = 39
    MANIFESTS = 40
    ACCOUNTS = 41
    LOGINS = 42
    CREDENTIALS = 43
    SESSIONS = 44
    ACCOUNT_SESSIONS = 45
    BINDINGS = 46
    SIGNATURES = 47
    SIGNATURES_BY_TARGET = 48
    CHALLENGES = 49
    REVIEWS = 50
    EXPORTS = 51
    AUDIT_PUBLISHED = 52
    ACCOUNTS_BY_TENANT = 53
    FACTS = 54
    FACT_VECTORS = 55
    EMBEDDINGS = 56
    FACTS_BY_CHUNK = 57
    FACTS_BY_SOURCE = 58
    FACT_CHANGES = 59
    FACT_EXPIRIES = 60
    FACT_ACCESSES = 61
    COMMUNITIES = 62
    COMMUNITY_RUNS = 63
    STATE_HASHES = 64
    CHANGES = 65
    ERASURES = 66
    PURGED = 67
    SHARED_CORPORA = 68
    SESSION_FACTS = 69
    SESSION_ENDS = 70
    MIGRATIONS = 71
    FACT_UPKEEP = 72
    FACT_WORDS = 73
    ENVELOPES = 74
    ENVELOPE_SESSIONS = 75
    ETAGS = 76
    ENVELOPE_ENDS = 77
    QUADS = 78
    QUAD_INDEX = 79
    LIBRARY = 80
    LIBRARY_BLOBS = 81
    ENTITY_VECTORS = 82
    TURNS = 83
    EDGES = 84
    GRAPH_INDEX = 85
    GRAPH_CHANGES = 86
    FOREIGN_SIGNATURES = 87
    FACT_ENVELOPES = 88
    BY_SOURCE = 89


COMMITTED: Final = (
    Space.MASTERS,
    Space.SECTIONS,
    Space.CHUNKS,
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
    Space.FACT_WORDS,
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
"""The versioned spaces (marked * in `corpus_keys.py`), in the order of their numbers."""


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
