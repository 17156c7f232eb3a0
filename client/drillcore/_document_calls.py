"""Calls about documents. See `_calls`."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from drillcore import _convert_documents, _convert_nodes
from drillcore._call import Call, Id, Pages, id_text
from drillcore._convert_nodes import AsOf
from drillcore._document_results import (
    AddResult,
    BinaryFile,
    Document,
    NewDocument,
    OnEvent,
    RemoveResult,
    UpdateResult,
)
from drillcore._results import Page
from drillcore._upload import AddReceipt, UpdateReceipt, Upload, document_requests, update_requests
from drillcore_proto.v1 import documents_pb2

_DOCUMENTS: Final = "/drillcore_proto.v1.DocumentService/"


def add_documents(
    corpus_id: Id,
    documents: Iterable[NewDocument] | AsyncIterable[NewDocument],
    *,
    on_event: OnEvent | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[AddResult]:
    """Add documents to a corpus as one revision: what can be parsed goes in together, the rest is in the outcomes.

    Files are sent in pieces and never held whole. `on_event` is told of progress while documents are still being sent,
    and of each document's outcome once all are in. A Client iterates over `documents` in a thread of its own; an
    AsyncClient takes async iterables too, and reads sync iterables and files in threads.

    If `documents` raises, the call ends, nothing is added, and the error is raised here. If the server fails, nothing
    is added either. Unlike other calls this one is never tried again by itself: to repeat it after Unavailable,
    DeadlineExceeded or Cancelled, or after `on_event` raised, when it may have happened or not, give the same documents
    and the same `request_id`, and it is done once. `timeout_s` is for the whole call; by default it has no limit. But
    the server ends a call that sends nothing for longer than its setting `server.stream_idle_s`, by default 30 seconds.
    """
    target = documents_pb2.AddDocumentsTarget(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id))
    return Upload(
        f"{_DOCUMENTS}AddDocuments",
        target,
        documents,
        document_requests,
        AddReceipt,
        on_event,
        request_id,
        timeout_s,
    )


def update_document(
    corpus_id: Id,
    content: bytes | Path | BinaryFile,
    *,
    document_id: Id | None = None,
    source_id: str | None = None,
    expected_source_version: int | None = None,
    name: str = "",
    media_type: str = "",
    metadata: Mapping[str, str] | None = None,
    on_event: OnEvent | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[UpdateResult]:
    """Give a document, named by its id or its source's, new content, as one revision. Earlier ones keep the old.

    Its source goes up one version, and the document has a new id afterwards. `name` and `media_type` are hints to the
    format; `metadata` replaces the old, which is kept without it. The same content and metadata change nothing.

    Raises NotFound if there is no such document, Conflict if its source is not at `expected_source_version`, and
    InvalidArgument if the content cannot be parsed or holds several documents; then nothing changes. As to retries,
    failures and `timeout_s` see `add_documents`.
    """
    if (document_id is None) == (source_id is None):
        raise ValueError("name the document by document_id or by source_id")
    target = documents_pb2.UpdateDocumentTarget(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        expected_source_version=expected_source_version,
    )
    if source_id is None:
        target.document_id = id_text(document_id)
    else:
        target.source_id = source_id
    given = None if metadata is None else documents_pb2.NewMetadata(entries=metadata)
    header = documents_pb2.UpdateDocumentHeader(name=name, media_type=media_type, metadata=given)
    return Upload(
        f"{_DOCUMENTS}UpdateDocument",
        target,
        [content],
        functools.partial(update_requests, header),
        UpdateReceipt,
        on_event,
        request_id,
        timeout_s,
    )


def remove_documents(
    corpus_id: Id,
    document_ids: Collection[Id],
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[RemoveResult]:
    """Remove documents from every level, as one revision. Raises NotFound, and removes none, if one is not there."""

    def decode(answer: bytes) -> RemoveResult:
        return _convert_documents.remove_result(documents_pb2.RemoveDocumentsResponse.FromString(answer))

    request = documents_pb2.RemoveDocumentsRequest(
        tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id), document_ids=map(id_text, document_ids)
    )
    return Call(f"{_DOCUMENTS}RemoveDocuments", request, decode, request_id, timeout_s)


def get_document(
    corpus_id: Id,
    document_id: Id,
    *,
    as_of: AsOf | None = None,
    with_text: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Document]:
    """A document of a corpus; `with_text`, also its original characters. Raises NotFound."""

    def decode(answer: bytes) -> Document:
        response = documents_pb2.GetDocumentResponse.FromString(answer)
        text = response.text if with_text else None
        return _convert_documents.document(response.document, response.revision, text)

    request = documents_pb2.GetDocumentRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        id=id_text(document_id),
        as_of=_convert_nodes.as_of_message(as_of),
        with_text=with_text,
    )
    return Call(f"{_DOCUMENTS}GetDocument", request, decode, request_id, timeout_s)


def list_documents(
    corpus_id: Id,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Document]]:
    """One page of a corpus's documents, without their texts."""

    def decode(answer: bytes) -> Page[Document]:
        return _convert_documents.documents(documents_pb2.ListDocumentsResponse.FromString(answer))

    request = documents_pb2.ListDocumentsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        as_of=_convert_nodes.as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_DOCUMENTS}ListDocuments", request, decode, request_id, timeout_s)


def iter_documents(
    corpus_id: Id,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[Document]:
    """Every document of a corpus, fetched page by page, all of one moment. `timeout_s` is for each page."""
    return lambda token: list_documents(
        corpus_id, as_of=as_of, page_size=page_size, page_token=token, tenant_id=tenant_id, timeout_s=timeout_s
    )
