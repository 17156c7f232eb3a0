"""ExportCore: the stream of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_server.commands import export_core as command
from drillcore_server.commands.export_core import CoreExporter, CoreOrder, ExportedCore
from drillcore_server.commands.unit import Call
from drillcore_server.domain.cores import CoreKind, check_core_id
from drillcore_server.domain.errors import BadInput
from drillcore_server.rpc.messages import corpus_id, optional_tenant_id
from drillcore_server.rpc.nodes import as_of
from drillcore_server.rpc.one_request import one_request

_SHA256_BYTES: Final = 32
KINDS: Final = {
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

    def tell(stage: str, size_bytes: int, records: int) -> None:
        emit(pb.ExportCoreResponse(progress=pb.CoreProgress(stage=stage, bytes=size_bytes, records=records)))

    def send(piece: bytes) -> None:
        emit(pb.ExportCoreResponse(data=piece))

    done = command.export_core(exporter, known, _order(request), send, tell)
    emit(pb.ExportCoreResponse(done=_done(done)))


def _order(request: pb.ExportCoreRequest) -> CoreOrder:
    if request.kind not in KINDS:
        raise BadInput(Reason.INVALID_ARGUMENT, "kind must be FULL, PLAIN or DOCUMENT_EMBEDDINGS", field="kind")
    check_core_id(request.core_id)
    _check_resume(request)
    return CoreOrder(
        optional_tenant_id(request.tenant_id),
        corpus_id(request.corpus_id, "corpus_id"),
        as_of(request.as_of),
        KINDS[request.kind],
        request.include_sources if request.HasField("include_sources") else True,
        request.include_retrieval,
        request.core_id,
        request.resume_at_bytes,
        request.resume_sha256,
    )


def _check_resume(request: pb.ExportCoreRequest) -> None:
    if len(request.resume_sha256) != (_SHA256_BYTES if request.resume_at_bytes else 0):
        message = "resume_sha256 is the SHA-256 of the bytes up to resume_at_bytes, and is given with it"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="resume_sha256")


def _done(done: ExportedCore) -> pb.CoreDone:
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
