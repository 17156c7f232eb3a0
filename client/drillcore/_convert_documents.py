"""Protocol messages about documents to results."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from drillcore._convert import to_datetime, to_id
from drillcore._document_results import (
    AddResult,
    Document,
    DocumentOutcome,
    OutcomeKind,
    Progress,
    RemoveResult,
    UpdateResult,
)
from drillcore._results import Page
from drillcore_proto.v1 import documents_pb2


def document(message: documents_pb2.Document, revision: int, text: str | None = None) -> Document:
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


def documents(message: documents_pb2.ListDocumentsResponse) -> Page[Document]:
    return Page(tuple(document(one, message.revision) for one in message.documents), message.next_page_token)


def outcome(message: documents_pb2.DocumentOutcome) -> DocumentOutcome:
    return DocumentOutcome(
        name=message.name,
        kind=_kind(message.kind),
        document_id=to_id(message.document_id),
        reason=message.reason,
        message=message.message,
    )


def progress(message: documents_pb2.Progress) -> Progress:
    return Progress(message.documents_prepared, message.characters_prepared)


def add_result(message: documents_pb2.AddDocumentsDone, outcomes: Iterable[DocumentOutcome]) -> AddResult:
    return AddResult(
        revision=message.revision,
        added=message.added,
        updated=message.updated,
        unchanged=message.unchanged,
        failed=message.failed,
        sections_changed=message.sections_changed,
        outcomes=tuple(outcomes),
    )


def update_result(message: documents_pb2.UpdateDocumentDone) -> UpdateResult:
    return UpdateResult(
        revision=message.revision,
        kind=_kind(message.kind),
        document_id=UUID(message.document_id),
        source_version=message.source_version,
        sections_changed=message.sections_changed,
    )


def remove_result(message: documents_pb2.RemoveDocumentsResponse) -> RemoveResult:
    return RemoveResult(message.revision, message.removed)


def _kind(value: documents_pb2.OutcomeKind.ValueType) -> OutcomeKind:
    return OutcomeKind[documents_pb2.OutcomeKind.Name(value).removeprefix("OUTCOME_KIND_")]
