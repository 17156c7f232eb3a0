"""ImportCore: the stream of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from drillcore.audit.failures import VerificationFailed
from drillcore.audit.notes import VerifierKey
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_server.commands.core_uploads import Upload
from drillcore_server.commands.import_core import CoreImporter, ImportedCore, ImportOrder, import_core
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.cores import CoreKind
from drillcore_server.domain.errors import BadInput, Refused, Stale, Unavailable
from drillcore_server.domain.ids import SourceId
from drillcore_server.domain.sources import SOURCE_CHARACTERS_MAX
from drillcore_server.rpc.messages import corpus_id, optional_tenant_id

Emit = Callable[[pb.ImportCoreResponse], None]
KEYS_MAX: Final = 100
"""With one of which a core may have to be signed."""
_NOTE_CHARACTERS_MAX: Final = 100_000
_TELL_BYTES: Final = 16 << 20
_KINDS: Final = {
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
    order = _order(first.target)
    importer.ingester.reviser.find(call, order.target)
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
    emit(pb.ImportCoreResponse(done=_done(done)))


def _settle(upload: Upload, refused: Refused) -> None:
    """What may go well the next time is kept: the caller need not send it again."""
    if isinstance(refused, Unavailable):
        upload.leave()
    else:
        upload.drop()


def _receive(upload: Upload, requests: Iterator[pb.ImportCoreRequest], emit: Emit) -> pb.ImportCoreEnd:
    """Takes the file; what the caller says of it at the end is so."""
    told = upload.file.size_bytes
    for request in requests:
        part = request.WhichOneof("part")
        if part == "end":
            _check_end(upload, request.end)
            return request.end
        if part != "data":
            raise BadInput(Reason.INVALID_ARGUMENT, "an import is a target, then data, then the end", field="part")
        upload.write(request.data)
        if upload.file.size_bytes - told >= _TELL_BYTES:
            told = upload.file.size_bytes
            emit(_progress("reading", told, 0))
    raise Unavailable(Reason.CANCELLED, "the core stopped before its end; nothing was stored")


def _check_end(upload: Upload, end: pb.ImportCoreEnd) -> None:
    if (end.size_bytes, end.sha256) != (upload.file.size_bytes, upload.file.sha256):
        message = "what was sent is not the file that the end tells of; send it again from its beginning"
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


def _order(target: pb.ImportCoreTarget) -> ImportOrder:
    if len(target.source_id) > SOURCE_CHARACTERS_MAX:
        message = f"source_id has over {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    if len(target.signature) > _NOTE_CHARACTERS_MAX or len(target.verification_keys) > KEYS_MAX:
        message = f"the note has over {_NOTE_CHARACTERS_MAX} characters, or there are over {KEYS_MAX} keys"
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
    """Of what is imported and where to, however it was sent."""
    target = pb.ImportCoreTarget()
    target.CopyFrom(first.target)
    target.upload_id = ""
    parts = (target.SerializeToString(deterministic=True), end.SerializeToString(deterministic=True))
    return hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in parts)).digest()


def _progress(stage: str, size_bytes: int, records: int) -> pb.ImportCoreResponse:
    return pb.ImportCoreResponse(progress=pb.CoreProgress(stage=stage, bytes=size_bytes, records=records))


def _done(done: ImportedCore) -> pb.ImportCoreDone:
    return pb.ImportCoreDone(
        revision=done.revision,
        kind=_KINDS[done.kind],
        counts=pb.CoreCounts(**done.counts.by_name()),
        skipped=[
            pb.SkippedRecord(
                record=one.record,
                offset_bytes=one.offset_bytes,
                tag=one.tag,
                id=one.id,
                reason=one.reason,
                message=one.message,
            )
            for one in done.skipped
        ],
        skipped_count=done.skipped_count,
        signed_by=done.signed_by,
    )
