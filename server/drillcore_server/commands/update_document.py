"""UpdateDocument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from drillcore_proto.reasons import Reason
from drillcore_server.commands.add_documents import OutcomeKind
from drillcore_server.commands.corpus_reader import SnapshotReader
from drillcore_server.commands.ingester import Change, Ingester
from drillcore_server.commands.revise import Plan, Target
from drillcore_server.commands.unit import Call, refusing
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput, Missing, Stale
from drillcore_server.domain.ids import DocumentId, Revision, SourceId
from drillcore_server.domain.named import checked_metadata
from drillcore_server.domain.nodes import Document
from drillcore_server.domain.sources import Source, succeeding
from drillcore_server.ingest.digesting import Content, DigestedDocument
from drillcore_server.ingest.parsing import Unparsable
from drillcore_server.ingest.planning import Settled
from drillcore_server.ingest.prepare import Origin, PreparedDocument
from drillcore_server.ingest.readers import Readers
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class Wanted:
    """The document to update, by its own id or its source's, and the version its source must have, if any."""

    document: DocumentId | SourceId
    expected_version: int | None


@dataclass(frozen=True, slots=True)
class NewContent:
    """What the document is to hold. What is not given is as it was."""

    name: str
    media_type: str
    metadata: Mapping[str, str] | None
    content: bytes


@dataclass(frozen=True, slots=True)
class Updated:
    """What the call did, and the head it left."""

    revision: Revision
    kind: OutcomeKind
    document: DocumentId
    source_version: int
    sections_changed: int


UPDATED = RecordKind(Updated)


class _Unchanged(Exception):  # noqa: N818 - a turn of events, not an error
    """The document holds this already."""

    def __init__(self, updated: Updated) -> None:
        super().__init__()
        self.updated = updated


def update_document(
    ingester: Ingester,
    call: Call,
    target: Target,
    wanted: Wanted,
    content: NewContent,
    prepared: Callable[[int], None],
) -> Updated:
    """Replaces a document by its next version, as one revision; earlier revisions keep the old one.

    `prepared` is told the number of characters once the content is ready to be written. If the document has this
    content and metadata already there is no new revision.
    """
    begun = ingester.reviser.begin(call, target, UPDATED)
    if begun.known is not None:
        return begun.known
    update = _Update(ingester, call, wanted, content)
    try:
        with refusing():
            prepared(update.prepare(begun.corpus, begun.head))
        return ingester.reviser.revise(call, target, UPDATED, update.plan)
    except _Unchanged as unchanged:
        number = ingester.make_keys(begun.corpus, [])
        return ingester.reviser.leave(call, target, UPDATED, number, unchanged.updated)


class _Update:
    def __init__(self, ingester: Ingester, call: Call, wanted: Wanted, content: NewContent) -> None:
        self._ingester = ingester
        self._call = call
        self._wanted = wanted
        self._content = content
        self._settled = Settled()

    def prepare(self, corpus: Corpus, head: Revision) -> int:
        """Parses and prepares the content; its characters. Raises `_Unchanged` if there is nothing to do."""
        source, document = _find(self._ingester.reader(corpus, head), self._wanted)
        digested = _read(self._ingester.readers, self._content, document)
        self._own_metadata = digested.metadata
        self._check_changed(head, source, document, digested.content_hash)
        origin = Origin(source.id, source.version + 1, self._call.at, self._call.principal.id)
        embeddings = self._ingester.embeddings(corpus, head)
        self._made_with = embeddings.model
        self._prepared: PreparedDocument = self._ingester.preparer.complete(digested, origin, embeddings)
        return len(digested.text)

    def plan(self, corpus: Corpus, base: Revision) -> Plan[Updated]:
        """On the corpus as it is at `base`: the document may have changed since the content was prepared."""
        source, document = _find(self._ingester.reader(corpus, base), self._wanted)
        metadata = self._check_changed(base, source, document, self._prepared.document.content_hash)
        described = replace(self._prepared.document, metadata=metadata)
        following = succeeding(source, described, self._call.at)
        record = replace(described, source_version=following.version)
        added = replace(self._prepared, document=record)
        return self._ingester.plan(
            self._call,
            corpus,
            base,
            Change([added], [document], [following], self._made_with),
            self._settled,
            lambda revision, sections: Updated(revision, OutcomeKind.UPDATED, record.id, following.version, sections),
        )

    def _check_changed(self, at: Revision, source: Source, document: Document, new_hash: str) -> dict[str, str]:
        """The document's metadata from now on. Raises `_Unchanged` if that and the content are as they were."""
        given, own = self._content.metadata, self._own_metadata
        metadata = checked_metadata({**document.metadata, **own} if given is None else {**own, **given})
        if new_hash == document.content_hash and metadata == document.metadata:
            raise _Unchanged(Updated(at, OutcomeKind.UNCHANGED, document.id, source.version, 0))
        return metadata


def _find(reader: SnapshotReader, wanted: Wanted) -> tuple[Source, Document]:
    """The document and its source. Raises `Refused` if they are not there, or not at the version expected."""
    document: Document | None = None
    if isinstance(wanted.document, str):
        (source,) = reader.sources([wanted.document])
        if source is not None and source.document is not None:
            (document,) = reader.documents([source.document])
    else:
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
    """The one document that the content holds. Raises `Refused` if there is none, or another one too."""
    media_type = content.media_type or ("" if content.name else document.media_type)
    upload = Content(content.content, content.name or document.source, media_type)
    reading = readers.begin(upload, lambda asked: [None] * len(asked))
    try:
        first, second = (*islice(reading.results(), 2), None, None)[:2]
    finally:
        reading.drop()
    for one in (first, second):
        if isinstance(one, Unparsable):
            raise BadInput(Reason.UNPARSABLE, f"the content {one.said}", cause=one.reason.name)
    if second is not None:
        message = "the content holds several documents; an update is one, add the others with AddDocuments"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="data")
    assert isinstance(first, DigestedDocument), "there is always an answer to what was read"
    return first
