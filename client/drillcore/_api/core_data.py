"""What exports and imports of knowledge cores take and return."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from drillcore._api.messages import enum_number
from drillcore_proto.v1 import cores_pb2 as pb


class CoreKind(enum.Enum):
    FULL = "full"
    """Rebuilds the corpus on another Drillcore server. TrustGraph can read it too."""
    PLAIN = "plain"
    """Only what TrustGraph reads: quads, entity vectors, source material."""
    DOCUMENT_EMBEDDINGS = "document-embeddings"
    """The vectors of chunks, as a TrustGraph document-embeddings core."""


@dataclass(frozen=True, slots=True)
class CoreProgress:
    """The progress of an export or an import."""

    stage: str
    """Stages of an export: writing and sending by the server, then receiving. Stages of an import: hashing and sending,
    then reading, checking and storing by the server."""
    size_bytes: int
    records: int = 0


OnCoreProgress = Callable[[CoreProgress], object]


@dataclass(frozen=True, slots=True)
class CoreCounts:
    """How much a core holds, or how much of it was stored."""

    records: int
    quads: int
    entity_vectors: int
    """In a document-embeddings core: vectors of chunks."""
    library_documents: int
    """Documents of other systems, stored unchanged."""
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
    """The file with the core."""
    signature_path: Path
    """The file with the signed note about the core."""
    core_id: str
    """The core's id in TrustGraph."""
    revision: int
    """The revision of the corpus that was exported."""
    size_bytes: int
    sha256: str
    """SHA-256 of the core, in hex. The received file matches what the server recorded and signed."""
    record_id: UUID
    """The id of the audit record."""
    signature: str
    """A signed note (C2SP) about the file, signed with the key of the tenant's audit log."""
    counts: CoreCounts


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record that an import left out, and the reason."""

    record: int
    """The number of the record in the file, from 1."""
    offset_bytes: int
    tag: str
    id: str
    """The id of what was skipped, if it has one."""
    reason: str
    """UNKNOWN_TAG, BLOB_WITHOUT_METADATA, DUPLICATE, OTHER_DIMENSION, INVALID_TERM; DERIVED for quads that the server
    derives from the records of a full core."""
    message: str


@dataclass(frozen=True, slots=True)
class CoreImport:
    revision: int
    kind: CoreKind | None
    """None if the server does not say."""
    counts: CoreCounts
    """How much was stored."""
    skipped: tuple[SkippedRecord, ...]
    """The first 1,000 skipped records."""
    skipped_count: int
    """How many records, vectors and quads were skipped, including derived ones."""
    signed_by: str
    """The name of the key whose signature was verified; empty if there was none."""


def to_progress(message: pb.CoreProgress) -> CoreProgress:
    return CoreProgress(message.stage, message.bytes, message.records)


def to_exported(message: pb.CoreDone, path: Path, signature_path: Path) -> CoreExport:
    return CoreExport(
        path=path,
        signature_path=signature_path,
        core_id=message.core_id,
        revision=message.revision,
        size_bytes=message.size_bytes,
        sha256=message.sha256.hex(),
        record_id=UUID(message.record_id),
        signature=message.signature,
        counts=_to_counts(message.counts),
    )


def to_imported(message: pb.ImportCoreDone) -> CoreImport:
    return CoreImport(
        revision=message.revision,
        kind=next((kind for kind in CoreKind if enum_number(pb.CoreKind, kind) == message.kind), None),
        counts=_to_counts(message.counts),
        skipped=tuple(map(_to_skipped, message.skipped)),
        skipped_count=message.skipped_count,
        signed_by=message.signed_by,
    )


def _to_counts(message: pb.CoreCounts) -> CoreCounts:
    return CoreCounts(**{field.name: getattr(message, field.name) for field in dataclasses.fields(CoreCounts)})


def _to_skipped(message: pb.SkippedRecord) -> SkippedRecord:
    return SkippedRecord(message.record, message.offset_bytes, message.tag, message.id, message.reason, message.message)
