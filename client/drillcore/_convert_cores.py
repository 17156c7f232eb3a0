"""Protocol messages about knowledge cores to results."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final
from uuid import UUID

from drillcore._core_results import CoreCounts, CoreExport, CoreImport, CoreKind, CoreProgress, SkippedRecord
from drillcore_proto.v1 import cores_pb2 as pb

KINDS: Final = {
    CoreKind.FULL: pb.CORE_KIND_FULL,
    CoreKind.PLAIN: pb.CORE_KIND_PLAIN,
    CoreKind.DOCUMENT_EMBEDDINGS: pb.CORE_KIND_DOCUMENT_EMBEDDINGS,
}


def progress(message: pb.CoreProgress) -> CoreProgress:
    return CoreProgress(message.stage, message.bytes, message.records)


def exported(message: pb.CoreDone, path: Path, signature_path: Path) -> CoreExport:
    return CoreExport(
        path=path,
        signature_path=signature_path,
        core_id=message.core_id,
        revision=message.revision,
        size_bytes=message.size_bytes,
        sha256=message.sha256.hex(),
        record_id=UUID(message.record_id),
        signature=message.signature,
        counts=_counts(message.counts),
    )


def imported(message: pb.ImportCoreDone) -> CoreImport:
    kinds = {number: kind for kind, number in KINDS.items()}
    return CoreImport(
        revision=message.revision,
        kind=kinds.get(message.kind),
        counts=_counts(message.counts),
        skipped=tuple(map(_skipped, message.skipped)),
        skipped_count=message.skipped_count,
        signed_by=message.signed_by,
    )


def _counts(message: pb.CoreCounts) -> CoreCounts:
    return CoreCounts(**{one.name: getattr(message, one.name) for one in dataclasses.fields(CoreCounts)})


def _skipped(message: pb.SkippedRecord) -> SkippedRecord:
    return SkippedRecord(message.record, message.offset_bytes, message.tag, message.id, message.reason, message.message)
