"""Documents: adding, updating, removing and reading them."""

from __future__ import annotations

import enum
import functools
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from drillcore._api.messages import AsOf, as_of_message, enum_member, to_datetime, to_id
from drillcore._transport.call import Call, Id, Page, id_text
from drillcore._transport.upload import (
    BinaryFile,
    Upload,
    pieces,
    unanswered,
)
from drillcore_proto.v1 import documents_pb2
from drillcore_proto.v1.documents_pb2 import AddDocumentsRequest, UpdateDocumentRequest


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to add.

    An open file is read from its current position and is not closed. A path is opened when its turn comes.
    """

    name: str
    """A hint to the format. It is also the source, unless `source_id` is given."""
    content: bytes | Path | BinaryFile
    media_type: str = ""
    """A hint to the format. The content decides."""
    source_id: str = ""
    """Where the document comes from. Other content of the same source is an update; equal content changes nothing."""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A str would be ambiguous: it could be the content or the name of a file.
        if not isinstance(self.content, bytes | Path) and not hasattr(self.content, "read"):
            raise TypeError(f"content must be bytes, a Path or a binary file, not {type(self.content).__name__}")


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a corpus."""

    id: UUID
    corpus_id: UUID
    source_id: str
    source_version: int
    """1 for the first content of its source; every change adds one."""
    title: str
    media_type: str
    content_hash: str
    """SHA-256 of the text, in hex."""
    preprocessing: tuple[str, ...]
    """The steps from the bytes to the text, in order."""
    metadata: Mapping[str, str]
    chunks: int
    raws: int
    characters: int
    tokens: int
    created_at: datetime
    created_by: str
    text: str | None
    """The original characters; None unless you asked for them."""
    revision: int = field(compare=False)
    """The revision of the corpus that was read."""


class OutcomeKind(enum.Enum):
    """The outcome of a document that was sent."""

    ADDED = "added"
    UPDATED = "updated"
    """The source had other content before."""
    UNCHANGED = "unchanged"
    """The source has this content already, so nothing was done."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    """The outcome of one document."""

    name: str
    kind: OutcomeKind
    document_id: UUID | None
    """None if it failed."""
    reason: str
    """A machine-readable reason if it failed, else empty."""
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a running call. Nothing of it can be read yet."""

    documents_prepared: int
    characters_prepared: int


AddEvent = DocumentOutcome | Progress
OnEvent = Callable[[AddEvent], object]


@dataclass(frozen=True, slots=True)
class AddResult:
    """The result of adding documents."""

    revision: int
    """The newest revision of the corpus afterwards, even if nothing changed."""
    added: int
    updated: int
    unchanged: int
    failed: int
    sections_changed: int
    outcomes: tuple[DocumentOutcome, ...]
    """The outcome of every document, in the order in which they were decided."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The result of giving a document new content."""

    revision: int
    """The newest revision of the corpus afterwards, even if nothing changed."""
    kind: OutcomeKind
    """UPDATED, or UNCHANGED if the document had this content and metadata already."""
    document_id: UUID
    """The id of the document now. New content has a new id."""
    source_version: int
    sections_changed: int


@dataclass(frozen=True, slots=True)
class RemoveResult:
    """The result of removing documents."""

    revision: int
    removed: int


def to_document(message: documents_pb2.Document, revision: int, text: str | None = None) -> Document:
    return Document(
        id=UUID(message.id),
        corpus_id=UUID(message.corpus_id),
        source_id=message.source_id,
        source_version=message.source_version,
        title=message.title,
        media_type=message.media_type,
        content_hash=message.content_hash,
        preprocessing=tuple(message.preprocessing),
        metadata=dict(message.metadata),
        chunks=message.chunks,
        raws=message.raws,
        characters=message.characters,
        tokens=message.tokens,
        created_at=to_datetime(message.created_at),
        created_by=message.created_by,
        text=text,
        revision=revision,
    )


def to_documents(message: documents_pb2.ListDocumentsResponse) -> Page[Document]:
    return Page(
        tuple(to_document(document, message.revision) for document in message.documents), message.next_page_token
    )


def to_outcome(message: documents_pb2.DocumentOutcome) -> DocumentOutcome:
    return DocumentOutcome(
        name=message.name,
        kind=_to_kind(message.kind),
        document_id=to_id(message.document_id),
        reason=message.reason,
        message=message.message,
    )


def to_progress(message: documents_pb2.Progress) -> Progress:
    return Progress(message.documents_prepared, message.characters_prepared)


def to_add_result(message: documents_pb2.AddDocumentsDone, outcomes: Iterable[DocumentOutcome]) -> AddResult:
    return AddResult(
        revision=message.revision,
        added=message.added,
        updated=message.updated,
        unchanged=message.unchanged,
        failed=message.failed,
        sections_changed=message.sections_changed,
        outcomes=tuple(outcomes),
    )


def to_update_result(message: documents_pb2.UpdateDocumentDone) -> UpdateResult:
    return UpdateResult(
        revision=message.revision,
        kind=_to_kind(message.kind),
        document_id=UUID(message.document_id),
        source_version=message.source_version,
        sections_changed=message.sections_changed,
    )


def to_remove_result(message: documents_pb2.RemoveDocumentsResponse) -> RemoveResult:
    return RemoveResult(message.revision, message.removed)


def _to_kind(value: documents_pb2.OutcomeKind.ValueType) -> OutcomeKind:
    return enum_member(OutcomeKind, documents_pb2.OutcomeKind, value)


class _AddReceipt:
    """Collects the answers to added documents."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event or (lambda _event: None)
        self._outcomes: list[DocumentOutcome] = []
        self._done: documents_pb2.AddDocumentsDone | None = None

    def take(self, answer: bytes) -> None:
        response = documents_pb2.AddDocumentsResponse.FromString(answer)
        match response.WhichOneof("event"):
            case "outcome":
                outcome = to_outcome(response.outcome)
                self._outcomes.append(outcome)
                self._on_event(outcome)
            case "progress":
                self._on_event(to_progress(response.progress))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> AddResult:
        if self._done is None:
            raise unanswered(request_id)
        return to_add_result(self._done, self._outcomes)


class _UpdateReceipt:
    """Collects the answers to an updated document."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event or (lambda _event: None)
        self._done: documents_pb2.UpdateDocumentDone | None = None

    def take(self, answer: bytes) -> None:
        response = documents_pb2.UpdateDocumentResponse.FromString(answer)
        match response.WhichOneof("event"):
            case "progress":
                self._on_event(to_progress(response.progress))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> UpdateResult:
        if self._done is None:
            raise unanswered(request_id)
        return to_update_result(self._done)


def _add_requests(
    target: documents_pb2.AddDocumentsTarget, documents: Iterable[NewDocument]
) -> Iterator[AddDocumentsRequest]:
    yield AddDocumentsRequest(target=target)
    sent = 0
    for document in documents:
        yield from _document_requests(document)
        sent += 1
    yield AddDocumentsRequest(end=documents_pb2.AddDocumentsEnd(documents=sent))


def _update_requests(
    header: documents_pb2.UpdateDocumentHeader,
    target: documents_pb2.UpdateDocumentTarget,
    contents: Iterable[bytes | Path | BinaryFile],
) -> Iterator[UpdateDocumentRequest]:
    """The requests of an update. `contents` has exactly one element."""
    yield UpdateDocumentRequest(target=target)
    yield UpdateDocumentRequest(header=header)
    for content in contents:
        for piece in pieces(content):
            yield UpdateDocumentRequest(data=piece)
    yield UpdateDocumentRequest(end=documents_pb2.UpdateDocumentEnd())


def _document_requests(document: NewDocument) -> Iterator[AddDocumentsRequest]:
    header = documents_pb2.DocumentHeader(
        name=document.name,
        media_type=document.media_type,
        source_id=document.source_id,
        metadata=document.metadata,
    )
    yield AddDocumentsRequest(header=header)
    for piece in pieces(document.content):
        yield AddDocumentsRequest(data=piece)


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
    """Add documents to a corpus as one revision. Documents that cannot be parsed are left out; the outcomes say why.

    The client sends files in pieces and never holds a whole one. It calls `on_event` with progress while it sends, and
    with the outcome of each document at the end. A Client reads `documents` in another thread; an AsyncClient also
    takes async iterables, and reads sync iterables and files in threads.

    If `documents` raises, the call ends, nothing is added, and the error is raised here. If the server fails, nothing
    is added either. The client never repeats this call on its own. After Unavailable, DeadlineExceeded or Cancelled, or
    after `on_event` raised, the documents may be added or not: call again with the same documents and `request_id`, and
    they are added once. `timeout_s` is for the whole call; by default there is no limit. But the server ends a call
    that sends nothing for longer than its setting `server.stream_idle_s`, by default 30 seconds.
    """
    target = documents_pb2.AddDocumentsTarget(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id))
    return Upload(
        f"{_DOCUMENTS}AddDocuments",
        target,
        documents,
        _add_requests,
        _AddReceipt,
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
    """Give a document new content as one revision. Earlier revisions keep the old content.

    Name the document by `document_id` or `source_id`. The version of its source goes up by one, and the document gets a
    new id. `name` and `media_type` are hints to the format. `metadata` replaces the old metadata; None keeps it. The
    same content and metadata change nothing.

    Raises NotFound if there is no such document, Conflict if its source is not at `expected_source_version`, and
    InvalidArgument if the content cannot be parsed or holds several documents; then nothing changes. See
    `add_documents` about retries, failures and `timeout_s`.
    """
    if (document_id is None) == (source_id is None):
        raise ValueError("give either document_id= or source_id=")
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
        functools.partial(_update_requests, header),
        _UpdateReceipt,
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
    """Remove documents from every level as one revision. Raises NotFound, and removes none, if one does not exist."""

    def decode(answer: bytes) -> RemoveResult:
        return to_remove_result(documents_pb2.RemoveDocumentsResponse.FromString(answer))

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
    """A document of a corpus, with its original characters if `with_text`. Raises NotFound."""

    def decode(answer: bytes) -> Document:
        response = documents_pb2.GetDocumentResponse.FromString(answer)
        text = response.text if with_text else None
        return to_document(response.document, response.revision, text)

    request = documents_pb2.GetDocumentRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        id=id_text(document_id),
        as_of=as_of_message(as_of),
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
        return to_documents(documents_pb2.ListDocumentsResponse.FromString(answer))

    request = documents_pb2.ListDocumentsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        as_of=as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_DOCUMENTS}ListDocuments", request, decode, request_id, timeout_s)
