"""The RPCs of DocumentService: turns requests into commands, and results into responses."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_server.documents.add import Added, DocumentBatch, DocumentOutcome, OutcomeKind, Upload
from drillcore_server.documents.document_planner import DocumentPlanner
from drillcore_server.documents.put_hierarchy.stream import put_hierarchy
from drillcore_server.documents.read import get_document, list_documents
from drillcore_server.documents.update import NewContent, Updated, UpdateTarget, remove_documents, update_document
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.service import as_of
from drillcore_server.kernel.corpus_at_revision import CorpusReads
from drillcore_server.kernel.errors import BadInput, Unavailable
from drillcore_server.kernel.messages import corpus_id, document_id, optional_tenant_id, timestamp
from drillcore_server.kernel.revise import Target
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, CorpusId, SourceId

Emit = Callable[[pb.AddDocumentsResponse], None]
EmitUpdate = Callable[[pb.UpdateDocumentResponse], None]

_KINDS = {
    OutcomeKind.ADDED: pb.OUTCOME_KIND_ADDED,
    OutcomeKind.UPDATED: pb.OUTCOME_KIND_UPDATED,
    OutcomeKind.UNCHANGED: pb.OUTCOME_KIND_UNCHANGED,
    OutcomeKind.FAILED: pb.OUTCOME_KIND_FAILED,
}


class DocumentService:
    def __init__(
        self, reads: CorpusReads, planner: DocumentPlanner, *, upload_bytes_max: int, hierarchy_bytes_max: int
    ) -> None:
        self._reads = reads
        self._planner = planner
        self._upload_bytes_max = upload_bytes_max
        self._hierarchy_bytes_max = hierarchy_bytes_max

    def AddDocuments(self, requests: Iterator[pb.AddDocumentsRequest], call: Call, emit: Emit) -> None:
        first = next(requests, None)
        if first is None or first.WhichOneof("part") != "target":
            raise BadInput(Reason.INVALID_ARGUMENT, "the first request must name the corpus", field="target")
        target = Target(optional_tenant_id(first.target.tenant_id), corpus_id(first.target.corpus_id, "corpus_id"))
        digest = hashlib.sha256(first.SerializeToString(deterministic=True))

        def report(outcome: DocumentOutcome) -> None:
            emit(_outcome_event(outcome))

        def progress(documents: int, characters: int) -> None:
            prepared = pb.Progress(documents_prepared=documents, characters_prepared=characters)
            emit(pb.AddDocumentsResponse(progress=prepared))

        with DocumentBatch(self._planner, call, target, report, progress) as batch:
            for upload in _uploads(requests, self._upload_bytes_max):
                batch.take(upload)
                digest.update(upload.fingerprint())
            added = batch.commit(replace(call, fingerprint=digest.digest()))
        emit(pb.AddDocumentsResponse(done=_done(added)))

    def UpdateDocument(self, requests: Iterator[pb.UpdateDocumentRequest], call: Call, emit: EmitUpdate) -> None:
        first = next(requests, None)
        if first is None or first.WhichOneof("part") != "target":
            raise BadInput(Reason.INVALID_ARGUMENT, "the first request must name the document", field="target")
        target = Target(optional_tenant_id(first.target.tenant_id), corpus_id(first.target.corpus_id, "corpus_id"))
        wanted = _update_target(first.target)
        self._planner.reviser.find(call, target)
        content, fingerprint = _new_content(requests, self._upload_bytes_max)
        digest = hashlib.sha256(first.SerializeToString(deterministic=True) + fingerprint).digest()
        updated = update_document(
            self._planner,
            replace(call, fingerprint=digest),
            target,
            wanted,
            content,
            lambda characters: emit(
                pb.UpdateDocumentResponse(progress=pb.Progress(documents_prepared=1, characters_prepared=characters))
            ),
        )
        emit(pb.UpdateDocumentResponse(done=_updated(updated)))

    def PutHierarchy(
        self, requests: Iterator[pb.PutHierarchyRequest], call: Call, emit: Callable[[pb.PutHierarchyResponse], None]
    ) -> None:
        put_hierarchy(self._planner, requests, call, emit, self._hierarchy_bytes_max)

    def RemoveDocuments(self, request: pb.RemoveDocumentsRequest, call: Call) -> pb.RemoveDocumentsResponse:
        target = Target(optional_tenant_id(request.tenant_id), corpus_id(request.corpus_id, "corpus_id"))
        documents = [document_id(text, "document_ids") for text in request.document_ids]
        removed = remove_documents(self._planner, call, target, documents)
        return pb.RemoveDocumentsResponse(revision=removed.revision, removed=removed.documents)

    def GetDocument(self, request: pb.GetDocumentRequest, call: Call) -> pb.GetDocumentResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        found = get_document(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus,
            document=document_id(request.id),
            as_of=as_of(request.as_of),
            with_text=request.with_text,
        )
        return pb.GetDocumentResponse(
            document=_document(found.document, corpus), text=found.text, revision=found.revision
        )

    def ListDocuments(self, request: pb.ListDocumentsRequest, call: Call) -> pb.ListDocumentsResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        page, revision = list_documents(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus,
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        documents = [_document(document, corpus) for document in page.items]
        return pb.ListDocumentsResponse(documents=documents, next_page_token=page.next_token, revision=revision)


def _uploads(requests: Iterator[pb.AddDocumentsRequest], bytes_max: int) -> Iterator[Upload]:
    """Yields the uploads of a stream, each put together from its header and its data.

    Raises `Refused` if the stream closes without its end message, because then the caller has given up.
    """
    header: pb.DocumentHeader | None = None
    begun, data = 0, _Data(bytes_max)
    for request in requests:
        part = request.WhichOneof("part")
        if part in {"header", "end"} and header is not None:
            yield _upload(header, data)
            header = None
        if part == "header":
            header, data, begun = request.header, _Data(bytes_max), begun + 1
        elif part == "data" and header is not None:
            data.take(request.data)
        elif part == "end" and request.end.documents == begun:
            return
        else:
            raise BadInput(
                Reason.INVALID_ARGUMENT,
                "send each document as its header and its data, then the end with the number of documents",
                field="part",
            )
    raise Unavailable(Reason.CANCELLED, "the stream closed before its end message; nothing was added")


class _Data:
    """A document's bytes, put together from their pieces. Drops all bytes of a document over the limit."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._pieces = bytearray()

    def take(self, piece: bytes) -> None:
        self._size_bytes += len(piece)
        if self.too_large:
            self._pieces.clear()
        else:
            self._pieces += piece

    @property
    def too_large(self) -> str:
        """The message for a document over the limit, else empty."""
        over = self._size_bytes > self._bytes_max
        return f"has over {self._bytes_max} bytes (server.upload_bytes_max)" if over else ""

    @property
    def content(self) -> bytes:
        return bytes(self._pieces)


def _upload(header: pb.DocumentHeader, data: _Data) -> Upload:
    if not (header.name or header.source_id):
        raise BadInput(Reason.INVALID_ARGUMENT, "a document needs a name or a source_id", field="header")
    metadata = dict(header.metadata)
    return Upload(header.name, header.media_type, header.source_id, metadata, data.content, data.too_large)


def _update_target(target: pb.UpdateDocumentTarget) -> UpdateTarget:
    expected = target.expected_source_version if target.HasField("expected_source_version") else None
    if target.HasField("document_id"):
        return UpdateTarget(document_id(target.document_id, "document_id"), expected)
    if not 0 < len(target.source_id) <= SOURCE_CHARACTERS_MAX:
        message = (
            f"name the document by its document_id, or by its source_id of 1 to {SOURCE_CHARACTERS_MAX} characters"
        )
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    return UpdateTarget(SourceId(target.source_id), expected)


def _new_content(requests: Iterator[pb.UpdateDocumentRequest], bytes_max: int) -> tuple[NewContent, bytes]:
    """Returns the new content of a document, and its fingerprint, which does not depend on the pieces of the data."""
    header, data, begun = pb.UpdateDocumentHeader(), _Data(bytes_max), False
    for request in requests:
        part = request.WhichOneof("part")
        if part == "header" and not begun:
            header, begun = request.header, True
        elif part == "data":
            begun = True
            data.take(request.data)
        elif part == "end":
            break
        else:
            raise BadInput(
                Reason.INVALID_ARGUMENT, "send an update as its header and its data, then the end", field="part"
            )
    else:
        raise Unavailable(Reason.CANCELLED, "the stream closed before its end message; nothing was changed")
    if data.too_large:
        raise BadInput(Reason.TOO_LARGE, f"the content {data.too_large}", field="data")
    metadata = dict(header.metadata.entries) if header.HasField("metadata") else None
    content = NewContent(header.name, header.media_type, metadata, data.content)
    described = hashlib.sha256(header.SerializeToString(deterministic=True)).digest()
    return content, hashlib.sha256(described + content.content).digest()


def _updated(updated: Updated) -> pb.UpdateDocumentDone:
    return pb.UpdateDocumentDone(
        revision=updated.revision,
        kind=_KINDS[updated.kind],
        document_id=str(updated.document),
        source_version=updated.source_version,
        sections_changed=updated.sections_changed,
    )


def _outcome_event(outcome: DocumentOutcome) -> pb.AddDocumentsResponse:
    return pb.AddDocumentsResponse(
        outcome=pb.DocumentOutcome(
            name=outcome.name,
            kind=_KINDS[outcome.kind],
            document_id=str(outcome.document or ""),
            reason=outcome.reason,
            message=outcome.message,
        )
    )


def _done(added: Added) -> pb.AddDocumentsDone:
    kinds = Counter(outcome.kind for outcome in added.outcomes)
    return pb.AddDocumentsDone(
        revision=added.revision,
        added=kinds[OutcomeKind.ADDED],
        updated=kinds[OutcomeKind.UPDATED],
        unchanged=kinds[OutcomeKind.UNCHANGED],
        failed=kinds[OutcomeKind.FAILED],
        sections_changed=added.sections_changed,
    )


def _document(document: Document, corpus: CorpusId) -> pb.Document:
    return pb.Document(
        id=str(document.id),
        corpus_id=str(corpus),
        source_id=document.source,
        source_version=document.source_version,
        title=document.title,
        media_type=document.media_type,
        content_hash=document.content_hash,
        preprocessing=document.preprocessing,
        metadata=document.metadata,
        chunks=len(document.chunks),
        raws=document.raws,
        characters=document.characters,
        tokens=document.tokens,
        created_at=timestamp(document.created_at),
        created_by=document.created_by,
    )
