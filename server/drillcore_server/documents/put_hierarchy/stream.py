"""Receives the stream of PutHierarchy: turns its messages into drafts, and hands these to a `HierarchyUpload`."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from google.protobuf.message import Message

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from drillcore_server.documents.document_planner import DocumentPlanner
from drillcore_server.documents.put_hierarchy.client_hierarchy import (
    CHARACTERS_MAX,
    DOCUMENT_CHARACTERS_MAX,
    EMBEDDING_MODEL_CHARACTERS_MAX,
    ENTRIES_MAX,
    NODE_BYTES_MAX,
    ChunkDraft,
    CitationDraft,
    DocumentDraft,
    FindingDraft,
    MasterDraft,
    NodeDraft,
    RawDraft,
    SectionDraft,
    invalid,
)
from drillcore_server.documents.put_hierarchy.hierarchy_upload import HierarchyUpload, Progress, Put, PutTarget
from drillcore_server.hierarchy.digests import Entity, FindingKind, MadeBy
from drillcore_server.hierarchy.source_model import describe
from drillcore_server.kernel.errors import BadInput, Unavailable
from drillcore_server.kernel.messages import corpus_id, document_id, node_id, optional_tenant_id
from drillcore_server.kernel.named import checked_metadata
from drillcore_server.kernel.revise import Target
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import NodeId, SourceId, Span, new_uuid
from drillcore_server.vectors.embedding.unit_vectors import client_vector
from drillcore_server.vectors.stored_vectors import packed

_MADE_HERE: Final = {
    "master": {"statistics"},
    "section": {"document_count", "chunk_count"},
    "chunk": {"source_id", "span", "tokens", "embedding_model"},
    "raw": {"preprocessing"},
}
"""The fields that the server makes itself, by the kind of node."""
_HASH: Final = re.compile("[0-9a-f]{64}")


def document_draft(message: pb.HierarchyDocument) -> DocumentDraft:
    """Returns the draft of a document. Raises `BadInput`, which names the document."""
    document = document_id(message.id, "document.id")
    label = f"document {document}"
    _check_id(document.int, label)
    _check_texts(message, label)
    if not message.source_id:
        raise invalid(label, "has no source_id")
    if message.content_hash and not _HASH.fullmatch(message.content_hash):
        raise invalid(label, "has a content_hash that is not a SHA-256 in lower-case hex")
    if message.characters > DOCUMENT_CHARACTERS_MAX:
        raise invalid(label, f"has over {DOCUMENT_CHARACTERS_MAX} characters")
    try:
        metadata = checked_metadata(message.metadata)
        describe(SourceId(message.source_id), message.title, metadata)
    except BadInput as refused:
        raise BadInput(refused.reason, f"{label}: {refused.message}", node=str(document)) from refused
    return DocumentDraft(
        document,
        SourceId(message.source_id),
        message.title,
        message.media_type,
        tuple(message.preprocessing),
        metadata,
        message.characters,
        message.content_hash,
    )


def node_draft(message: pb.HierarchyNode) -> NodeDraft:
    """Returns the draft of a node. Raises `BadInput`, which names the node."""
    kind = message.WhichOneof("content")
    if kind is None:
        raise invalid(f"node {message.id[:64]}", "has no content")
    node = NodeId(new_uuid()) if kind == "raw" and not message.id else node_id(message.id, "node.id")
    label = f"{kind} {node}"
    _check_id(node.int, label)
    content: Message = getattr(message, kind)
    made = [field.name for field, _ in content.ListFields() if field.name in _MADE_HERE[kind]]
    if made:
        raise invalid(label, f"has {made[0]}, which the server makes itself: leave it out")
    if content.ByteSize() > NODE_BYTES_MAX:
        raise BadInput(Reason.TOO_LARGE, f"{label} has over {NODE_BYTES_MAX} bytes")
    _check_texts(content, label)
    if kind == "master":
        if message.parent_id:
            raise invalid(label, "has a parent_id: leave it out, since nothing is above a master")
        return _master(node, label, message.master)
    if not message.parent_id:
        raise invalid(label, "has no parent_id")
    return _DRAFTS[kind](node, node_id(message.parent_id, "node.parent_id"), label, getattr(message, kind))


def _master(node: NodeId, label: str, content: nodes_pb2.MasterContent) -> MasterDraft:
    return MasterDraft(
        node,
        content.summary,
        tuple(_citation(cited, label) for cited in content.citations),
        tuple(_finding(finding, label) for finding in content.findings),
        tuple(content.keywords),
        _made_by(content.processing),
    )


def _section(node: NodeId, parent: NodeId, label: str, content: nodes_pb2.SectionContent) -> SectionDraft:
    return SectionDraft(
        node,
        parent,
        content.title,
        content.category,
        content.summary,
        tuple(_citation(cited, label) for cited in content.citations),
        _entities(content.entities, label),
        tuple(content.keywords),
        _made_by(content.processing),
    )


def _chunk(node: NodeId, parent: NodeId, label: str, content: nodes_pb2.ChunkContent) -> ChunkDraft:
    vector = b""
    if content.embedding:
        vector = packed(client_vector(content.embedding, f"the embedding of {label}"))
    return ChunkDraft(
        node,
        parent,
        document_id(content.document_id, f"document_id of {label}"),
        tuple(content.headings),
        content.page if content.HasField("page") else None,
        content.summary,
        tuple(_citation(quote, label, node) for quote in content.quotes),
        _entities(content.entities, label),
        tuple(content.keywords),
        _made_by(content.processing),
        vector,
    )


def _raw(node: NodeId, parent: NodeId, label: str, content: nodes_pb2.RawContent) -> RawDraft:
    span = _span(content.span, label)
    if not content.content or len(content.content) != len(span):
        message = f"has {len(content.content)} characters, which do not fill the span {span.start} to {span.end}"
        raise invalid(label, message)
    return RawDraft(node, parent, document_id(content.document_id, f"document_id of {label}"), span, content.content)


_DRAFTS: Final[dict[str, Callable[..., NodeDraft]]] = {"section": _section, "chunk": _chunk, "raw": _raw}


def _citation(message: nodes_pb2.Citation, label: str, own: NodeId | None = None) -> CitationDraft:
    """`own` is the chunk that the citation is a quote of. A quote need not name its chunk."""
    weight = message.weight
    if not (math.isfinite(weight) and 0 <= weight <= 1):
        raise invalid(label, "has a citation with a weight that is not from 0 to 1")
    named = own if own is not None and not message.chunk_id else node_id(message.chunk_id, f"chunk_id cited by {label}")
    document = document_id(message.document_id, f"document_id cited by {label}") if message.document_id else None
    return CitationDraft(named, document, _span(message.span, label), message.text, weight)


def _finding(message: nodes_pb2.Finding, label: str) -> FindingDraft:
    if message.kind not in set(FindingKind):
        raise invalid(label, f"has a finding with a kind that is none of {', '.join(FindingKind)}")
    return FindingDraft(FindingKind(message.kind), message.text, _citation(message.citation, label))


def _entities(messages: Iterable[nodes_pb2.Entity], label: str) -> tuple[Entity, ...]:
    entities = tuple(Entity(message.type, message.value) for message in messages)
    if not all(entity.type and entity.value for entity in entities):
        raise invalid(label, "has an entity without a type or a value")
    return entities


def _made_by(message: nodes_pb2.Processing) -> MadeBy:
    return MadeBy(message.processor, message.version, message.fallback_reason or None)


def _span(message: nodes_pb2.Span, label: str) -> Span:
    if message.start > message.end or message.end > DOCUMENT_CHARACTERS_MAX:
        raise invalid(label, f"has the span {message.start} to {message.end}, which is no part of a document")
    return Span(message.start, message.end)


def _check_id(number: int, label: str) -> None:
    if not number:
        raise BadInput(Reason.INVALID_ID, f"{label} has the nil UUID as its id: give it another one", field="id")


def _check_texts(message: Message, label: str) -> None:
    """Raises `BadInput` if a text has a zero character or is too long, or if a list has too many entries."""
    for field, value in message.ListFields():
        if isinstance(value, str):
            _check_text(field.name, value, label)
        elif isinstance(value, Message):
            _check_texts(value, label)
        elif field.name in ENTRIES_MAX:
            if len(value) > ENTRIES_MAX[field.name]:
                raise BadInput(Reason.TOO_LARGE, f"{label} has over {ENTRIES_MAX[field.name]} {field.name}")
            for entry in value:
                if isinstance(entry, str):
                    _check_text(field.name, entry, label)
                else:
                    _check_texts(entry, label)


def _check_text(name: str, text: str, label: str) -> None:
    if "\0" in text:
        raise invalid(label, f"has a zero character in its {name}")
    if name in CHARACTERS_MAX and len(text) > CHARACTERS_MAX[name]:
        raise BadInput(Reason.TOO_LARGE, f"{label} has a {name} of over {CHARACTERS_MAX[name]} characters")


Emit = Callable[[pb.PutHierarchyResponse], None]
_NODES_BETWEEN_REPORTS: Final = 1_000


def put_hierarchy(
    planner: DocumentPlanner, requests: Iterator[pb.PutHierarchyRequest], call: Call, emit: Emit, bytes_max: int
) -> None:
    """Replaces a corpus's hierarchy by the one in the stream. `emit` gets progress, and at the end what was stored.

    Raises `Refused`. Then nothing was stored. A call with the same request id returns the first outcome.
    """
    first = next(requests, None)
    if first is None or first.WhichOneof("part") != "target":
        raise BadInput(Reason.INVALID_ARGUMENT, "the first request must name the corpus", field="target")
    digest = hashlib.sha256(_fingerprint(first))
    upload = HierarchyUpload(planner, call, _target(first.target), lambda progress: emit(_progress(progress)))
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
    raise Unavailable(Reason.CANCELLED, "the stream closed before its end message; nothing was stored")


def _take(upload: HierarchyUpload, request: pb.PutHierarchyRequest) -> bool:
    """Takes one part of the stream. Returns whether it was the end message."""
    part = request.WhichOneof("part")
    if part == "document" and not upload.nodes:
        upload.take_document(document_draft(request.document))
    elif part == "node":
        upload.take_node(node_draft(request.node))
        if upload.nodes % _NODES_BETWEEN_REPORTS == 0:
            upload.report_progress()
    elif part == "end":
        if (request.end.documents, request.end.nodes) != (upload.documents, upload.nodes):
            counted = f"{upload.documents} documents and {upload.nodes} nodes"
            raise BadInput(
                Reason.INVALID_ARGUMENT,
                f"the server received {counted}, but the end message names other numbers",
                field="end",
            )
        upload.report_progress()
        return True
    else:
        raise BadInput(
            Reason.INVALID_ARGUMENT, "a hierarchy is its documents, then its nodes, then the end", field="part"
        )
    return False


def _target(message: pb.PutHierarchyTarget) -> PutTarget:
    if len(message.embedding_model) > EMBEDDING_MODEL_CHARACTERS_MAX or "\0" in message.embedding_model:
        text = f"embedding_model must have at most {EMBEDDING_MODEL_CHARACTERS_MAX} characters, and no zero character"
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
