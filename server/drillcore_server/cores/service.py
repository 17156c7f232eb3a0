"""The RPCs ExportCore and ImportCore: turns streams of messages into commands, and results into messages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from drillcore_formats.audit.findings import VerificationFailed
from drillcore_formats.audit.notes import VerifierKey
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_server.cores import export_core as command
from drillcore_server.cores.export_core import CoreExporter, CoreOrder, ExportedCore
from drillcore_server.cores.imports.import_core import CoreImporter, ImportedCore, ImportOrder, import_core
from drillcore_server.cores.model import CoreKind, check_core_id
from drillcore_server.cores.uploads import Upload
from drillcore_server.hierarchy.service import as_of
from drillcore_server.kernel.errors import BadInput, Refused, Stale, Unavailable
from drillcore_server.kernel.messages import corpus_id, one_request, optional_tenant_id
from drillcore_server.kernel.revise import Target
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, SourceId

_SHA256_BYTES: Final = 32
_KIND_FROM_MESSAGE: Final = {
    pb.CORE_KIND_UNSPECIFIED: CoreKind.FULL,
    pb.CORE_KIND_FULL: CoreKind.FULL,
    pb.CORE_KIND_PLAIN: CoreKind.PLAIN,
    pb.CORE_KIND_DOCUMENT_EMBEDDINGS: CoreKind.DOCUMENT_EMBEDDINGS,
}


def export_core(
    exporter: CoreExporter,
    requests: Iterator[pb.ExportCoreRequest],
    call: Call,
    emit: Callable[[pb.ExportCoreResponse], None],
) -> None:
    request, known = one_request(requests, call)

    def progress(stage: str, size_bytes: int, records: int) -> None:
        emit(pb.ExportCoreResponse(progress=pb.CoreProgress(stage=stage, bytes=size_bytes, records=records)))

    def send(piece: bytes) -> None:
        emit(pb.ExportCoreResponse(data=piece))

    done = command.export_core(exporter, known, _export_order(request), send, progress)
    emit(pb.ExportCoreResponse(done=_export_done(done)))


def _export_order(request: pb.ExportCoreRequest) -> CoreOrder:
    if request.kind not in _KIND_FROM_MESSAGE:
        raise BadInput(Reason.INVALID_ARGUMENT, "kind must be FULL, PLAIN or DOCUMENT_EMBEDDINGS", field="kind")
    check_core_id(request.core_id)
    _check_resume(request)
    return CoreOrder(
        optional_tenant_id(request.tenant_id),
        corpus_id(request.corpus_id, "corpus_id"),
        as_of(request.as_of),
        _KIND_FROM_MESSAGE[request.kind],
        request.include_sources if request.HasField("include_sources") else True,
        request.include_retrieval,
        request.core_id,
        request.resume_at_bytes,
        request.resume_sha256,
    )


def _check_resume(request: pb.ExportCoreRequest) -> None:
    if len(request.resume_sha256) != (_SHA256_BYTES if request.resume_at_bytes else 0):
        message = "resume_sha256 must be the SHA-256 of the bytes up to resume_at_bytes; set both or neither"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="resume_sha256")


def _export_done(done: ExportedCore) -> pb.CoreDone:
    export = done.export
    return pb.CoreDone(
        revision=export.revision,
        sha256=export.sha256,
        size_bytes=export.size_bytes,
        record_id=str(export.record),
        signature=done.signature,
        counts=pb.CoreCounts(**export.counts.by_name()),
        core_id=export.core_id,
    )


Emit = Callable[[pb.ImportCoreResponse], None]
KEYS_MAX: Final = 100
"""Verification keys of one call."""
_NOTE_CHARACTERS_MAX: Final = 100_000
_PROGRESS_EVERY_BYTES: Final = 16 << 20
"""Bytes received between two reports of progress."""
_KIND_TO_MESSAGE: Final = {
    CoreKind.FULL: pb.CORE_KIND_FULL,
    CoreKind.PLAIN: pb.CORE_KIND_PLAIN,
    CoreKind.DOCUMENT_EMBEDDINGS: pb.CORE_KIND_DOCUMENT_EMBEDDINGS,
}


def import_core_stream(
    importer: CoreImporter, requests: Iterator[pb.ImportCoreRequest], call: Call, emit: Emit
) -> None:
    first = next(requests, None)
    if first is None or first.WhichOneof("part") != "target":
        raise BadInput(Reason.INVALID_ARGUMENT, "the first request must name the corpus", field="target")
    order = _import_order(first.target)
    importer.reviser.find(call, order.target)
    upload = importer.uploads.begin(call.principal.id, order.target.tenant, order.target.corpus, first.target.upload_id)
    try:
        emit(pb.ImportCoreResponse(ready=pb.ImportCoreReady(offset_bytes=upload.file.size_bytes)))
        end = _receive(upload, requests, emit)
        done = _import(importer, replace(call, fingerprint=_fingerprint(first, end)), order, upload, emit)
    except Refused as refused:
        _settle(upload, refused)
        raise
    except BaseException:
        upload.drop()
        raise
    upload.drop()
    emit(pb.ImportCoreResponse(done=_import_done(done)))


def _settle(upload: Upload, refused: Refused) -> None:
    """Keeps an upload that may succeed next time, so that the caller need not send it again."""
    if isinstance(refused, Unavailable):
        upload.leave()
    else:
        upload.drop()


def _receive(upload: Upload, requests: Iterator[pb.ImportCoreRequest], emit: Emit) -> pb.ImportCoreEnd:
    """Receives the file, and checks its size and hash against those that the caller states at the end."""
    reported_bytes = upload.file.size_bytes
    for request in requests:
        part = request.WhichOneof("part")
        if part == "end":
            _check_end(upload, request.end)
            return request.end
        if part != "data":
            raise BadInput(Reason.INVALID_ARGUMENT, "send the target, then data, then the end", field="part")
        upload.write(request.data)
        if upload.file.size_bytes - reported_bytes >= _PROGRESS_EVERY_BYTES:
            reported_bytes = upload.file.size_bytes
            emit(_progress("reading", reported_bytes, 0))
    raise Unavailable(Reason.CANCELLED, "the core stopped before its end; nothing was stored")


def _check_end(upload: Upload, end: pb.ImportCoreEnd) -> None:
    if (end.size_bytes, end.sha256) != (upload.file.size_bytes, upload.file.sha256):
        message = "the file does not have the size and hash that the end states; send it again from the beginning"
        raise Stale(Reason.CORE_CHANGED, message)


def _import(importer: CoreImporter, call: Call, order: ImportOrder, upload: Upload, emit: Emit) -> ImportedCore:
    upload.end()
    return import_core(
        importer,
        call,
        order,
        upload.file,
        lambda stage, size_bytes, records: emit(_progress(stage, size_bytes, records)),
    )


def _import_order(target: pb.ImportCoreTarget) -> ImportOrder:
    if len(target.source_id) > SOURCE_CHARACTERS_MAX:
        message = f"source_id must have at most {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    if len(target.signature) > _NOTE_CHARACTERS_MAX or len(target.verification_keys) > KEYS_MAX:
        message = f"signature may have at most {_NOTE_CHARACTERS_MAX} characters, and verification_keys {KEYS_MAX} keys"
        raise BadInput(Reason.TOO_LARGE, message, field="verification_keys")
    return ImportOrder(
        Target(optional_tenant_id(target.tenant_id), corpus_id(target.corpus_id, "corpus_id")),
        target.strict,
        SourceId(target.source_id),
        target.signature,
        tuple(map(_key, target.verification_keys)),
    )


def _key(text: str) -> VerifierKey:
    try:
        return VerifierKey.parse(text)
    except (VerificationFailed, ValueError) as error:
        message = f"not a verifier key (C2SP): {error}"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="verification_keys") from error


def _fingerprint(first: pb.ImportCoreRequest, end: pb.ImportCoreEnd) -> bytes:
    """Returns a hash of the target and the file. It does not depend on how the file was cut into messages."""
    target = pb.ImportCoreTarget()
    target.CopyFrom(first.target)
    target.upload_id = ""
    parts = (target.SerializeToString(deterministic=True), end.SerializeToString(deterministic=True))
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _progress(stage: str, size_bytes: int, records: int) -> pb.ImportCoreResponse:
    return pb.ImportCoreResponse(progress=pb.CoreProgress(stage=stage, bytes=size_bytes, records=records))


def _import_done(done: ImportedCore) -> pb.ImportCoreDone:
    return pb.ImportCoreDone(
        revision=done.revision,
        kind=_KIND_TO_MESSAGE[done.kind],
        counts=pb.CoreCounts(**done.counts.by_name()),
        skipped=[
            pb.SkippedRecord(
                record=skip.record,
                offset_bytes=skip.offset_bytes,
                tag=skip.tag,
                id=skip.id,
                reason=skip.reason,
                message=skip.message,
            )
            for skip in done.skipped
        ],
        skipped_count=done.skipped_count,
        signed_by=done.signed_by,
    )


class CoreService:
    def __init__(self, exporter: CoreExporter, importer: CoreImporter) -> None:
        self._exporter = exporter
        self._importer = importer

    def ExportCore(
        self, requests: Iterator[pb.ExportCoreRequest], call: Call, emit: Callable[[pb.ExportCoreResponse], None]
    ) -> None:
        export_core(self._exporter, requests, call, emit)

    def ImportCore(
        self, requests: Iterator[pb.ImportCoreRequest], call: Call, emit: Callable[[pb.ImportCoreResponse], None]
    ) -> None:
        import_core_stream(self._importer, requests, call, emit)
