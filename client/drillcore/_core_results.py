"""What exports and imports of knowledge cores are asked for and return."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID


class CoreKind(enum.Enum):
    FULL = "full"
    """Rebuilds the corpus on another Drillcore server, and is readable by TrustGraph."""
    PLAIN = "plain"
    """Only what TrustGraph knows: quads, entity vectors, source material."""
    DOCUMENT_EMBEDDINGS = "document-embeddings"
    """The vectors of chunks: a TrustGraph document-embeddings core."""


@dataclass(frozen=True, slots=True)
class CoreProgress:
    """How far an export or an import is."""

    stage: str
    """Of an export: writing, sending, as the server tells, and receiving; of an import: hashing, sending, then reading,
    checking and storing, as the server tells."""
    size_bytes: int
    records: int = 0


OnCoreProgress = Callable[[CoreProgress], object]


@dataclass(frozen=True, slots=True)
class CoreCounts:
    """What is in a core, or was stored of one."""

    records: int
    quads: int
    entity_vectors: int
    """Of chunks in a document-embeddings core."""
    library_documents: int
    """Of other systems, kept as they are."""
    documents: int
    sections: int
    chunks: int
    facts: int
    sources: int
    communities: int
    signatures: int
    turns: int
    edges: int


@dataclass(frozen=True, slots=True)
class CoreExport:
    path: Path
    """Where the core is."""
    signature_path: Path
    """Where the signed note about it is."""
    core_id: str
    """As TrustGraph knows it."""
    revision: int
    """Of the corpus, that was exported."""
    size_bytes: int
    sha256: str
    """Of the core, in hex: what was received is what the server recorded and signed."""
    record_id: UUID
    """Of the audit record."""
    signature: str
    """A signed note (C2SP) about this file, by the key of the tenant's audit log."""
    counts: CoreCounts


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """What an import left out, and why."""

    record: int
    """Its number in the file, from 1."""
    offset_bytes: int
    tag: str
    id: str
    """Of what was skipped, if it has one."""
    reason: str
    """UNKNOWN_TAG, BLOB_WITHOUT_METADATA, DUPLICATE, OTHER_DIMENSION, INVALID_TERM; DERIVED for quads that are made
    anew from the records of a full core."""
    message: str


@dataclass(frozen=True, slots=True)
class CoreImport:
    revision: int
    kind: CoreKind | None
    """None where the server does not tell."""
    counts: CoreCounts
    """Of what was stored."""
    skipped: tuple[SkippedRecord, ...]
    """The first 1,000."""
    skipped_count: int
    """Of records, vectors and quads, those that are made anew too."""
    signed_by: str
    """The name of the key, if a signature was verified."""
