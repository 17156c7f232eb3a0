"""UpdateDocument and RemoveDocuments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from drillcore_proto.reasons import Reason
from drillcore_server.documents.add import OutcomeKind
from drillcore_server.documents.document_planner import Change, DocumentPlanner
from drillcore_server.documents.ingestion.digest import Content, DigestedDocument, Readers
from drillcore_server.documents.ingestion.plan_reader import PlanReader
from drillcore_server.documents.ingestion.prepared_documents import Origin, PreparedDocument
from drillcore_server.documents.ingestion.revision_plan import SettledSections
from drillcore_server.documents.parsers import Unparsable
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.source_model import Source, next_version
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.errors import BadInput, Missing, Stale
from drillcore_server.kernel.named import checked_metadata
from drillcore_server.kernel.revise import NothingToChange, Plan, Target
from drillcore_server.kernel.unit import Call, errors_as_refusals
from drillcore_server.storage.ids import DocumentId, Revision, SourceId
from drillcore_server.storage.records import RecordKind


@dataclass(frozen=True, slots=True)
class UpdateTarget:
    """The document to update, named by its id or by its source, and the version that the source must have, if any."""

    document: DocumentId | SourceId
    expected_version: int | None


@dataclass(frozen=True, slots=True)
class NewContent:
    """The new content of the document. An empty name or media type, and metadata of None, stay as they were."""

    name: str
    media_type: str
    metadata: Mapping[str, str] | None
    content: bytes


@dataclass(frozen=True, slots=True)
class Updated:
    """The outcome of the call, and the head after it."""

    revision: Revision
    kind: OutcomeKind
    document: DocumentId
    source_version: int
    sections_changed: int


UPDATED = RecordKind(Updated)


def update_document(
    planner: DocumentPlanner,
    call: Call,
    target: Target,
    wanted: UpdateTarget,
    content: NewContent,
    prepared: Callable[[int], None],
) -> Updated:
    """Replaces a document by its next version, as one revision. Earlier revisions keep the old version.

    `prepared` gets the number of characters once the content is ready to be written. If the document has this content
    and metadata already, there is no new revision. Raises `Refused`. A repeated call returns the first outcome.
    """
    update = _Update(planner, call, wanted, content)
    with planner.reviser.engine.reads() as reads, errors_as_refusals():
        begun = planner.reviser.begin(call, target, UPDATED, reads)
        if begun.known is not None:
            return begun.known
        ready = update.prepare(planner.reviser.batched(begun.corpus, begun.head, reads))
        if isinstance(ready, NothingToChange):
            return planner.reviser.leave(call, target, UPDATED, ready)
        prepared(ready)
        return planner.reviser.revise(call, target, UPDATED, update.plan, reads)


class _Update:
    def __init__(self, planner: DocumentPlanner, call: Call, wanted: UpdateTarget, content: NewContent) -> None:
        self._planner = planner
        self._call = call
        self._wanted = wanted
        self._content = content
        self._settled = SettledSections()

    def prepare(self, head: BatchedReads) -> int | NothingToChange[Updated]:
        """Parses and prepares the content. Returns the number of its characters."""
        source, document = _find(self._planner.reader(head), self._wanted)
        digested = _read(self._planner.readers, self._content, document)
        self._own_metadata = digested.metadata
        if self._metadata(document, digested.content_hash) is None:
            return self._unchanged(head, source, document)
        origin = Origin(source.id, source.version + 1, self._call.at, self._call.principal.id)
        embeddings = self._planner.embeddings(head)
        self._made_with = embeddings.model
        self._prepared: PreparedDocument = self._planner.preparer.complete(digested, origin, embeddings)
        return len(digested.text)

    def plan(self, snapshot: BatchedReads) -> Plan[Updated] | NothingToChange[Updated]:
        """Plans on the corpus as it is now: the document may have changed since the content was prepared."""
        source, document = _find(self._planner.reader(snapshot), self._wanted)
        metadata = self._metadata(document, self._prepared.document.content_hash)
        if metadata is None:
            return self._unchanged(snapshot, source, document)
        described = replace(self._prepared.document, metadata=metadata)
        following = next_version(source, described, self._call.at)
        record = replace(described, source_version=following.version)
        added = replace(self._prepared, document=record)
        return self._planner.plan(
            self._call,
            snapshot,
            Change([added], [document], [following], self._made_with),
            self._settled,
            lambda revision, sections: Updated(revision, OutcomeKind.UPDATED, record.id, following.version, sections),
        )

    def _metadata(self, document: Document, new_hash: str) -> dict[str, str] | None:
        """Returns the document's new metadata, or None if neither the metadata nor the content changes."""
        given, own = self._content.metadata, self._own_metadata
        metadata = checked_metadata({**document.metadata, **own} if given is None else {**own, **given})
        if new_hash == document.content_hash and metadata == document.metadata:
            return None
        return metadata

    def _unchanged(self, at: BatchedReads, source: Source, document: Document) -> NothingToChange[Updated]:
        found = Updated(at.revision, OutcomeKind.UNCHANGED, document.id, source.version, 0)
        return NothingToChange(found, self._planner.reviser.make_keys(at.corpus, []))


def _find(reader: PlanReader, wanted: UpdateTarget) -> tuple[Source, Document]:
    """Returns the source and the document. Raises `Refused` if they do not exist or have another version."""
    document: Document | None = None
    if isinstance(wanted.document, str):
        reader.read_ahead(sources=[wanted.document])
        (source,) = reader.sources([wanted.document])
        if source is not None and source.document is not None:
            (document,) = reader.documents([source.document])
    else:
        reader.read_ahead(documents=[wanted.document])
        (document,) = reader.documents([wanted.document])
        (source,) = reader.sources([document.source]) if document is not None else [None]
    if source is None or document is None:
        name = "of this source" if isinstance(wanted.document, str) else str(wanted.document)
        raise Missing(Reason.DOCUMENT_NOT_FOUND, f"there is no document {name}")
    if wanted.expected_version not in (None, source.version):
        message = f"the source is at version {source.version}, not {wanted.expected_version}; read it again"
        raise Stale(Reason.VERSION_MISMATCH, message, version=str(source.version))
    return source, document


def _read(readers: Readers, content: NewContent, document: Document) -> DigestedDocument:
    """Returns the only document in the content. Raises `Refused` if it cannot be read or contains several documents."""
    media_type = content.media_type or ("" if content.name else document.media_type)
    upload = Content(content.content, content.name or document.source, media_type)
    reading = readers.begin(upload, lambda asked: [None] * len(asked))
    try:
        first, second = (*islice(reading.results(), 2), None, None)[:2]
    finally:
        reading.drop()
    for result in (first, second):
        if isinstance(result, Unparsable):
            raise BadInput(Reason.UNPARSABLE, f"the content {result.said}", cause=result.reason.name)
    if second is not None:
        message = "the content has several documents, but an update takes one; add the others with AddDocuments"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="data")
    assert isinstance(first, DigestedDocument), "reading yields at least one result"
    return first


DOCUMENTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Removed:
    revision: Revision
    documents: int


REMOVED = RecordKind(Removed)


def remove_documents(planner: DocumentPlanner, call: Call, target: Target, documents: Sequence[DocumentId]) -> Removed:
    """Removes documents from every level, as one revision. Earlier revisions still have them.

    Raises `Refused` and removes nothing if one of them is missing. A repeated call returns the first outcome.
    """
    wanted = sorted(set(documents))
    if not 0 < len(wanted) <= DOCUMENTS_MAX:
        message = f"name 1 to {DOCUMENTS_MAX} documents to remove"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="document_ids")

    settled = SettledSections()

    def plan(snapshot: BatchedReads) -> Plan[Removed]:
        reader = planner.reader(snapshot)
        reader.read_ahead(documents=wanted)
        found = reader.documents(wanted)
        existing = [document for document in found if document is not None]
        if len(existing) < len(wanted):
            missing = next(id_ for id_, document in zip(wanted, found, strict=True) if document is None)
            raise Missing(Reason.DOCUMENT_NOT_FOUND, f"there is no document {missing}")
        named = [document.source for document in existing]
        reader.read_ahead(sources=named, chunks=[chunk for document in existing for chunk in document.chunks])
        sources = reader.sources(named)
        left = [
            source.without_document(call.at)
            for source, document in zip(sources, existing, strict=True)
            if source is not None and source.document == document.id
        ]
        return planner.plan(
            call,
            snapshot,
            Change([], existing, left),
            settled,
            lambda revision, _sections: Removed(revision, len(existing)),
        )

    return planner.reviser.revise(call, target, REMOVED, plan)
