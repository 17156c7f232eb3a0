"""PutHierarchy: the stream that brings a whole hierarchy, part by part."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.put_hierarchy import HierarchyUpload, Progress, Put, PutTarget
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.drafts import EMBEDDING_MODEL_CHARACTERS_MAX
from drillcore_server.domain.errors import BadInput, Unavailable
from drillcore_server.rpc.hierarchy_messages import document_draft, node_draft
from drillcore_server.rpc.messages import corpus_id, optional_tenant_id

Emit = Callable[[pb.PutHierarchyResponse], None]
_PROGRESS_EVERY: Final = 1_000
"""Nodes."""


def put_hierarchy(
    ingester: Ingester, requests: Iterator[pb.PutHierarchyRequest], call: Call, emit: Emit, bytes_max: int
) -> None:
    first = next(requests, None)
    if first is None or first.WhichOneof("part") != "target":
        raise BadInput(Reason.INVALID_ARGUMENT, "the first request must name the corpus", field="target")
    digest = hashlib.sha256(_fingerprint(first))
    upload = HierarchyUpload(ingester, call, _target(first.target), lambda progress: emit(_progress(progress)))
    size_bytes = 0
    for request in requests:
        size_bytes += request.ByteSize()
        if size_bytes > bytes_max:
            message = f"the hierarchy has over {bytes_max} bytes (server.hierarchy_bytes_max); nothing was stored"
            raise BadInput(Reason.TOO_LARGE, message, field="node")
        digest.update(_fingerprint(request))
        if _take(upload, request):
            done = upload.commit(replace(call, fingerprint=digest.digest()))
            emit(pb.PutHierarchyResponse(done=_done(done)))
            return
    raise Unavailable(Reason.CANCELLED, "the hierarchy stopped before its end; nothing was stored")


def _take(upload: HierarchyUpload, request: pb.PutHierarchyRequest) -> bool:
    """Whether this was the end."""
    part = request.WhichOneof("part")
    if part == "document" and not upload.nodes:
        upload.take_document(document_draft(request.document))
    elif part == "node":
        upload.take_node(node_draft(request.node))
        if upload.nodes % _PROGRESS_EVERY == 0:
            upload.tell()
    elif part == "end":
        if (request.end.documents, request.end.nodes) != (upload.documents, upload.nodes):
            counted = f"{upload.documents} documents and {upload.nodes} nodes"
            raise BadInput(Reason.INVALID_ARGUMENT, f"there were {counted}, the end says otherwise", field="end")
        upload.tell()
        return True
    else:
        raise BadInput(Reason.INVALID_ARGUMENT, "a hierarchy is documents, then nodes, then the end", field="part")
    return False


def _target(message: pb.PutHierarchyTarget) -> PutTarget:
    if len(message.embedding_model) > EMBEDDING_MODEL_CHARACTERS_MAX or "\0" in message.embedding_model:
        text = f"embedding_model has over {EMBEDDING_MODEL_CHARACTERS_MAX} characters, or a zero character"
        raise BadInput(Reason.INVALID_ARGUMENT, text, field="embedding_model")
    return PutTarget(
        Target(optional_tenant_id(message.tenant_id), corpus_id(message.corpus_id, "corpus_id")),
        message.embedding_model,
        message.expected_revision if message.HasField("expected_revision") else None,
    )


def _fingerprint(request: pb.PutHierarchyRequest) -> bytes:
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()


def _progress(progress: Progress) -> pb.PutHierarchyResponse:
    return pb.PutHierarchyResponse(
        progress=pb.PutHierarchyProgress(
            documents_received=progress.documents,
            nodes_received=progress.nodes,
            chunks_prepared=progress.chunks_prepared,
        )
    )


def _done(put: Put) -> pb.PutHierarchyDone:
    return pb.PutHierarchyDone(
        revision=put.revision, documents=put.documents, sections=put.sections, chunks=put.chunks, raws=put.raws
    )
