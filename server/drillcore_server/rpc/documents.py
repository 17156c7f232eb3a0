"""DocumentService: requests to commands, results to responses."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_server.commands.add_documents import Added, DocumentBatch, DocumentOutcome, OutcomeKind, Upload
from drillcore_server.commands.get_document import get_document
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.list_documents import list_documents
from drillcore_server.commands.remove_documents import remove_documents
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.errors import BadInput, Unavailable
from drillcore_server.domain.ids import CorpusId
from drillcore_server.domain.nodes import Document
from drillcore_server.rpc.messages import corpus_id, document_id, optional_tenant_id, timestamp
from drillcore_server.rpc.nodes import as_of
from drillcore_server.rpc.put_hierarchy import put_hierarchy

Emit = Callable[[pb.AddDocumentsResponse], None]

_KINDS = {
    OutcomeKind.ADDED: pb.OUTCOME_KIND_ADDED,
    OutcomeKind.UPDATED: pb.OUTCOME_KIND_UPDATED,
    OutcomeKind.UNCHANGED: pb.OUTCOME_KIND_UNCHANGED,
    OutcomeKind.FAILED: pb.OUTCOME_KIND_FAILED,
}


class DocumentService:
    def __init__(self, library: Library, ingester: Ingester, upload_bytes_max: int) -> None:
        self._library = library
        self._ingester = ingester
        self._upload_bytes_max = upload_bytes_max

    def AddDocuments(self, requests: Iterator[pb.AddDocumentsRequest], call: Call, emit: Emit) -> None:
        first = next(requests, None)
        if first is None or first.WhichOneof("part") != "target":
            raise BadInput(Reason.INVALID_ARGUMENT, "the first request must name the corpus", field="target")
        target = Target(optional_tenant_id(first.target.tenant_id), corpus_id(first.target.corpus_id, "corpus_id"))
        digest = hashlib.sha256(first.SerializeToString(deterministic=True))
        batch = DocumentBatch(self._ingester, call, target, lambda outcome: emit(_outcome_event(outcome)))
        for upload in _uploads(requests, self._upload_bytes_max):
            batch.take(upload)
            digest.update(upload.fingerprint())
            emit(pb.AddDocumentsResponse(progress=_progress(batch)))
        added = batch.commit(replace(call, fingerprint=digest.digest()))
        emit(pb.AddDocumentsResponse(done=_done(added)))

    def PutHierarchy(
        self, requests: Iterator[pb.PutHierarchyRequest], call: Call, emit: Callable[[pb.PutHierarchyResponse], None]
    ) -> None:
        put_hierarchy(self._ingester, requests, call, emit)

    def RemoveDocuments(self, request: pb.RemoveDocumentsRequest, call: Call) -> pb.RemoveDocumentsResponse:
        target = Target(optional_tenant_id(request.tenant_id), corpus_id(request.corpus_id, "corpus_id"))
        documents = [document_id(one, "document_ids") for one in request.document_ids]
        removed = remove_documents(self._ingester, call, target, documents)
        return pb.RemoveDocumentsResponse(revision=removed.revision, removed=removed.documents)

    def GetDocument(self, request: pb.GetDocumentRequest, call: Call) -> pb.GetDocumentResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        found = get_document(
            self._library,
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
            self._library,
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
    """The documents of a stream, each put together from its header and its data.

    Raises `Refused` unless the stream closes with its end: one that merely stops is a caller who gave up.
    """
    header: pb.DocumentHeader | None = None
    data = bytearray()
    size_bytes = begun = 0
    for request in requests:
        part = request.WhichOneof("part")
        if part in {"header", "end"} and header is not None:
            yield _upload(header, bytes(data), size_bytes, bytes_max)
            header = None
        if part == "header":
            header, data, size_bytes, begun = request.header, bytearray(), 0, begun + 1
        elif part == "data" and header is not None:
            size_bytes += len(request.data)
            if size_bytes <= bytes_max:
                data += request.data
            else:
                data.clear()
        elif part == "end" and request.end.documents == begun:
            return
        else:
            raise BadInput(Reason.INVALID_ARGUMENT, "documents are headers with their data, then the end", field="part")
    raise Unavailable(Reason.CANCELLED, "the documents stopped before their end; nothing was added")


def _upload(header: pb.DocumentHeader, content: bytes, size_bytes: int, bytes_max: int) -> Upload:
    if not (header.name or header.source_id):
        raise BadInput(Reason.INVALID_ARGUMENT, "a document needs a name or a source_id", field="header")
    too_large = f"has over {bytes_max} bytes (server.upload_bytes_max)" if size_bytes > bytes_max else ""
    return Upload(header.name, header.media_type, header.source_id, dict(header.metadata), content, too_large)


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


def _progress(batch: DocumentBatch) -> pb.Progress:
    return pb.Progress(documents_prepared=batch.documents, characters_prepared=batch.characters)


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
