"""AddDocuments: reads several uploads at once, settles them in their order, and adds them as one revision."""

from __future__ import annotations

import enum
import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, Self

from drillcore_proto.reasons import Reason
from drillcore_server.documents.document_planner import Change, DocumentPlanner
from drillcore_server.documents.ingestion.digest import Content, DigestedDocument, DocumentQuestion, Reading
from drillcore_server.documents.ingestion.document_buffer import AddedDocuments, DocumentBuffer
from drillcore_server.documents.ingestion.plan_reader import PlanReader
from drillcore_server.documents.ingestion.prepared_documents import Origin
from drillcore_server.documents.ingestion.revision_plan import SettledSections
from drillcore_server.documents.parsers import Unparsable
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.source_model import Source, describe, next_version
from drillcore_server.kernel.canonical_json import fingerprint
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import BadInput, Unavailable
from drillcore_server.kernel.named import checked_metadata
from drillcore_server.kernel.revise import NothingToChange, Plan, Target
from drillcore_server.kernel.unit import Call, errors_as_refusals
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, DocumentId, Revision, SourceId
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyNumber
from drillcore_server.storage.records import RecordKind


class _QueuedUpload(NamedTuple):
    settled: Future[None]
    drop: Callable[[], None]
    size_bytes: int


class UploadQueue:
    """A bounded queue of uploads that are being read. Its own thread settles them one after the other, in their order.

    So settling continues while the caller waits for the next upload.
    """

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiting: deque[_QueuedUpload] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drillcore-settling")

    def make_room(self, size_bytes: int) -> None:
        """Waits until an upload of this size fits, or until the queue is empty. Raises the errors of settling."""
        while self._waiting and not self._fits(size_bytes):
            self._waiting[0].settled.result()
            self._waiting.popleft()

    def add(self, settle: Callable[[], None], drop: Callable[[], None], size_bytes: int) -> None:
        """Adds an upload. What settling reads counts for the call of this thread.

        `drop` is called if the queue is closed earlier; it must make `settle` end soon."""
        self._waiting.append(_QueuedUpload(self._thread.submit(copy_context().run, settle), drop, size_bytes))

    def finish(self) -> None:
        """Waits until all uploads are settled. Raises the errors of settling."""
        while self._waiting:
            self._waiting[0].settled.result()
            self._waiting.popleft()

    def close(self) -> None:
        """Drops the uploads that are not settled yet."""
        for upload in self._waiting:
            upload.drop()
        self._thread.shutdown(cancel_futures=True)

    def _fits(self, size_bytes: int) -> bool:
        held = sum(upload.size_bytes for upload in self._waiting)
        return len(self._waiting) < self._count_max and held + size_bytes <= self._bytes_max


UNDER_WAY_BYTES_MAX: Final = 64 << 20
"""The size of the uploads that one call has under way at once. A larger upload goes alone."""
OUTCOMES_BYTES_MAX: Final = 4_000_000
"""The size of all outcomes of a call. They are stored with the revision, in one transaction of at most 10 MB."""
_OUTCOME_BYTES: Final = 60
"""The size of an outcome without its name and message, and of the document's part in the revision's record."""


class OutcomeKind(enum.Enum):
    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Upload:
    """One document as it was sent."""

    name: str
    media_type: str
    source: str
    metadata: Mapping[str, str]
    content: bytes
    too_large: str = ""
    """The message if the document was over the limit. Then its content was not kept."""

    def fingerprint(self) -> bytes:
        """Returns a hash of the document that does not depend on the pieces in which it was sent."""
        described = fingerprint("document", self.name, self.media_type, self.source, self.metadata)
        return hashlib.sha256(described + self.content).digest()


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    name: str
    kind: OutcomeKind
    document: DocumentId | None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Added:
    """The outcome of the call, and the head after it."""

    revision: Revision
    outcomes: tuple[DocumentOutcome, ...]
    sections_changed: int


ADDED = RecordKind(Added)


class DocumentBatch:
    """Takes uploads one by one. `commit` adds them as one revision. Close it, or use it in a `with` statement.

    A source that has this content already stays unchanged, and a source with other content is updated. If nothing is
    added, there is no new revision. `report` gets each outcome, but only at the end: if the request was made before, it
    gets the outcomes of the first run. `progress` gets the numbers of prepared documents and characters, from another
    thread.
    """

    def __init__(
        self,
        planner: DocumentPlanner,
        call: Call,
        target: Target,
        report: Callable[[DocumentOutcome], None],
        progress: Callable[[int, int], None] = lambda _documents, _characters: None,
    ) -> None:
        self._planner = planner
        self._call = call
        self._target = target
        self._report = report
        self._progress = progress
        self._reads = planner.reviser.engine.reads()
        snapshot = planner.reviser.batched(*planner.reviser.find(call, target, self._reads), self._reads)
        self._reader = planner.reader(snapshot)
        with errors_as_refusals():
            self._embeddings = planner.embeddings(snapshot)
        self._buffer = DocumentBuffer()
        self._names: list[str] = []
        """The names of the documents in the buffer."""
        self._settled = SettledSections()
        self._queue = UploadQueue(planner.readers.at_once, UNDER_WAY_BYTES_MAX)
        self._seen: set[SourceId] = set()
        self._outcomes: list[DocumentOutcome] = []
        self._unchanged: dict[SourceId, Source] = {}
        self._outcomes_bytes = 0
        self._documents = self._characters = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the uploads under way and drops everything that was taken."""
        self._queue.close()
        self._buffer.close()
        self._reads.close()

    def take(self, upload: Upload) -> None:
        """Begins to read an upload. Outcomes come in the order of the uploads, even if several are read at once."""
        self._queue.make_room(len(upload.content))
        if upload.too_large:
            self._queue.add(partial(self._settle_too_large, upload), lambda: None, 0)
            return
        content = Content(upload.content, upload.name, upload.media_type)
        reading = self._planner.readers.begin(content, partial(self._known_hashes, upload))
        self._queue.add(partial(self._settle, upload, reading), reading.drop, len(upload.content))

    def _settle(self, upload: Upload, reading: Reading) -> None:
        for place, result in enumerate(reading.results()):
            if isinstance(result, Unparsable):
                self._fail(result.name, result.reason.name, result.said)
            else:
                self._settle_document(upload, result, place)
        self._progress(self._documents, self._characters)

    def _settle_too_large(self, upload: Upload) -> None:
        self._fail(upload.name, Reason.TOO_LARGE.name, upload.too_large)
        self._progress(self._documents, self._characters)

    def _known_hashes(self, upload: Upload, asked: Sequence[DocumentQuestion]) -> list[str | None]:
        with errors_as_refusals():
            known = self._reader.sources([_source(upload, question) for question in asked])
        return [source.content_hash if source is not None and source.document else None for source in known]

    def _settle_document(self, upload: Upload, digested: DigestedDocument, place: int) -> None:
        self._count_outcome(upload.name)
        self._documents += 1
        self._characters += len(digested.text)
        source = _source(upload, DocumentQuestion(digested.external_id, place))
        if len(source) > SOURCE_CHARACTERS_MAX:
            message = f"its source has over {SOURCE_CHARACTERS_MAX} characters; give it a shorter source_id"
            self._fail(upload.name, Reason.TOO_LARGE.name, message)
            return
        if source in self._seen:
            message = (
                f"an earlier document of this call has the source {source!r}, too; send one document for each source"
            )
            self._fail(upload.name, "DUPLICATE_SOURCE", message)
            return
        self._seen.add(source)
        if digested.unchanged:
            with errors_as_refusals():
                (known,) = self._reader.sources([source])
            assert known is not None
            self._outcomes.append(DocumentOutcome(upload.name, OutcomeKind.UNCHANGED, known.document))
            self._unchanged[source] = known
            return
        try:
            metadata = checked_metadata({**digested.metadata, **upload.metadata})
            describe(source, digested.title, metadata)
        except BadInput as refused:
            self._fail(upload.name, refused.reason.name, refused.message)
            return
        origin = Origin(source, 1, self._call.at, self._call.principal.id)
        described = replace(digested, metadata=metadata)
        self._buffer.append(self._planner.preparer.complete(described, origin, self._embeddings))
        self._names.append(upload.name)

    def _count_outcome(self, text: str) -> None:
        """Refuses the call if its outcomes become too large to be stored."""
        self._outcomes_bytes += _OUTCOME_BYTES + len(text.encode())
        if self._outcomes_bytes > OUTCOMES_BYTES_MAX:
            message = (
                "the call has too many documents, or too long names; nothing was added; send fewer documents at once"
            )
            raise BadInput(Reason.TOO_LARGE, message, field="header")

    def _fail(self, name: str, reason: str, message: str) -> None:
        self._count_outcome(name + message)
        self._outcomes.append(DocumentOutcome(name, OutcomeKind.FAILED, None, reason, message))

    def commit(self, call: Call) -> Added:
        """Adds the uploads that were taken. `call` has the fingerprint of the whole stream.

        Raises `Refused`, and then nothing is added. May be run again with the same call.
        """
        self._queue.finish()
        added = self._planner.reviser.revise(call, self._target, ADDED, self._plan)
        for outcome in added.outcomes:
            self._report(outcome)
        return added

    def _outcome_keys(self, corpus: Corpus) -> list[KeyNumber]:
        """Returns the keys for the outcome of the call, which names all documents: any erased source erases it."""
        return self._planner.reviser.keyring.numbers(corpus.number, [CORPUS_SCOPE, *sorted(self._seen)])

    def _check_unchanged(self, reader: PlanReader) -> None:
        """Raises `Unavailable` if an unchanged document has changed meanwhile, since its content was not kept."""
        now = reader.sources(list(self._unchanged))
        for before, source in zip(self._unchanged.values(), now, strict=True):
            if source is None or (source.document, source.content_hash) != (before.document, before.content_hash):
                message = (
                    "a document that was unchanged has changed meanwhile; nothing was added; send all documents again"
                )
                raise Unavailable(Reason.CONFLICT, message)

    def _plan(self, snapshot: BatchedReads) -> Plan[Added] | NothingToChange[Added]:
        """Plans on the corpus as it is now: a source may have changed since its document was prepared."""
        reader = self._planner.reader(snapshot)
        reader.read_ahead(sources=[*self._unchanged, *(document.source for document in self._buffer.documents)])
        self._check_unchanged(reader)
        outcomes = list(self._outcomes)
        added: list[tuple[int, Document]] = []
        sources: list[Source] = []
        replaced: list[DocumentId] = []
        known_sources = reader.sources([document.source for document in self._buffer.documents])
        for number, (name, document) in enumerate(zip(self._names, self._buffer.documents, strict=True)):
            known = known_sources[number]
            if known is not None and known.document and known.content_hash == document.content_hash:
                outcomes.append(DocumentOutcome(name, OutcomeKind.UNCHANGED, known.document))
                continue
            source = next_version(known, document, self._call.at)
            added.append((number, replace(document, source_version=source.version)))
            sources.append(source)
            if known is not None and known.document:
                replaced.append(known.document)
            kind = OutcomeKind.UPDATED if known is not None and known.document else OutcomeKind.ADDED
            outcomes.append(DocumentOutcome(name, kind, document.id))
        if not added:
            return NothingToChange(Added(snapshot.revision, tuple(outcomes), 0), self._outcome_keys(snapshot.corpus))
        removed = [document for document in reader.documents(replaced) if document is not None]
        plan = self._planner.plan(
            self._call,
            snapshot,
            Change(AddedDocuments(self._buffer, added), removed, sources, self._embeddings.model),
            self._settled,
            lambda revision, sections: Added(revision, tuple(outcomes), sections),
        )
        return replace(plan, number=self._outcome_keys(snapshot.corpus))


def _source(upload: Upload, document: DocumentQuestion) -> SourceId:
    """Returns the source of a document: the upload's source, and for further documents in it also their id or place."""
    source = upload.source or upload.name
    return SourceId(source if document.is_the_upload else f"{source}#{document.external_id or document.place}")
