"""Work begun together and settled one after the other, in the order in which it came.

AddDocuments.
"""

from __future__ import annotations

import enum
import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, Self

from drillcore_proto.reasons import Reason
from drillcore_server.documents.change import Change, DocumentPlanner
from drillcore_server.documents.ingestion.digest import Asked, Content, DigestedDocument
from drillcore_server.documents.ingestion.document_buffer import AddedDocuments, DocumentBuffer
from drillcore_server.documents.ingestion.plan_reader import PlanReader
from drillcore_server.documents.ingestion.prepared_documents import Origin
from drillcore_server.documents.ingestion.revision_plan import Settled
from drillcore_server.documents.ingestion.upload_readers import Reading
from drillcore_server.documents.parsing import Unparsable
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.source_model import Source, describe, succeeding
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.errors import BadInput, Unavailable
from drillcore_server.kernel.fingerprint import fingerprint
from drillcore_server.kernel.named import checked_metadata
from drillcore_server.kernel.revise import NothingToChange, Plan, Target
from drillcore_server.kernel.unit import Call, refusing
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, DocumentId, Revision, SourceId
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyNumber
from drillcore_server.storage.records import RecordKind


class _Waiting(NamedTuple):
    settled: Future[None]
    drop: Callable[[], None]
    size_bytes: int


class InOrder:
    """A bounded line. Settling has a thread of its own, so that it goes on while its caller waits for more."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._line: deque[_Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drillcore-settling")

    def make_room(self, size_bytes: int) -> None:
        """Waits until so much more fits, or nothing is left to wait for. Raises what settling raised."""
        while self._line and not self._fits(size_bytes):
            self._line[0].settled.result()
            self._line.popleft()

    def add(self, settle: Callable[[], None], drop: Callable[[], None], size_bytes: int) -> None:
        """`drop` is called if the line is closed before this was settled: it makes `settle` end soon."""
        self._line.append(_Waiting(self._thread.submit(settle), drop, size_bytes))

    def finish(self) -> None:
        """Waits until all is settled. Raises what settling raised."""
        while self._line:
            self._line[0].settled.result()
            self._line.popleft()

    def close(self) -> None:
        """Drops what is not settled."""
        for waiting in self._line:
            waiting.drop()
        self._thread.shutdown(cancel_futures=True)

    def _fits(self, size_bytes: int) -> bool:
        held = sum(waiting.size_bytes for waiting in self._line)
        return len(self._line) < self._count_max and held + size_bytes <= self._bytes_max


UNDER_WAY_BYTES_MAX: Final = 64 << 20
"""Of uploads that one call has under way at once; a larger one goes alone."""
OUTCOMES_BYTES_MAX: Final = 4_000_000
"""Of what is said of a call's documents, which is stored with the revision, in one transaction of at most 10 MB."""
_OUTCOME_BYTES: Final = 60
"""Of an outcome beside its name and message, and of the document's part in the revision's record."""


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
    """What to tell of one that was over the limit: its content was not kept."""

    def fingerprint(self) -> bytes:
        """The same for the same document, however it was cut into pieces on its way."""
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
    """What the call did, and the head it left."""

    revision: Revision
    outcomes: tuple[DocumentOutcome, ...]
    sections_changed: int


ADDED = RecordKind(Added)


class DocumentBatch:
    """One AddDocuments: documents are taken one by one, then added as one revision. Close it, or use it in a `with`.

    A source that has this content already is left alone; one with other content is updated. `report` hears of each
    document at the end, not before: the same request may have been made already, and then it is answered as it was.
    `progress` hears, from another thread, how many documents and characters are prepared. If nothing is added there is
    no new revision.
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
        corpus, head = planner.reviser.find(call, target)
        self._reader = planner.reader(corpus, head)
        with refusing():
            self._embeddings = planner.embeddings(corpus, head)
        self._buffer = DocumentBuffer()
        self._names: list[str] = []
        """Of the documents in the buffer."""
        self._settled = Settled()
        self._line = InOrder(planner.readers.at_once, UNDER_WAY_BYTES_MAX)
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
        """Ends what is under way and not wanted any more, and lets go of what was taken."""
        self._line.close()
        self._buffer.close()

    def take(self, upload: Upload) -> None:
        """Begins to read one upload. Outcomes are in the order of the uploads, however many are read at once."""
        self._line.make_room(len(upload.content))
        if upload.too_large:
            self._line.add(partial(self._settle_too_large, upload), lambda: None, 0)
            return
        content = Content(upload.content, upload.name, upload.media_type)
        reading = self._planner.readers.begin(content, partial(self._known_hashes, upload))
        self._line.add(partial(self._settle, upload, reading), reading.drop, len(upload.content))

    def _settle(self, upload: Upload, reading: Reading) -> None:
        for place, one in enumerate(reading.results()):
            if isinstance(one, Unparsable):
                self._fail(one.name, one.reason.name, one.said)
            else:
                self._settle_document(upload, one, place)
        self._progress(self._documents, self._characters)

    def _settle_too_large(self, upload: Upload) -> None:
        self._fail(upload.name, Reason.TOO_LARGE.name, upload.too_large)
        self._progress(self._documents, self._characters)

    def _known_hashes(self, upload: Upload, asked: Sequence[Asked]) -> list[str | None]:
        with refusing():
            known = self._reader.sources([_source(upload, one) for one in asked])
        return [source.content_hash if source is not None and source.document else None for source in known]

    def _settle_document(self, upload: Upload, digested: DigestedDocument, place: int) -> None:
        self._make_room(upload.name)
        self._documents += 1
        self._characters += len(digested.text)
        source = _source(upload, Asked(digested.external_id, place))
        if len(source) > SOURCE_CHARACTERS_MAX:
            message = f"its source has over {SOURCE_CHARACTERS_MAX} characters; give it a shorter source_id"
            self._fail(upload.name, Reason.TOO_LARGE.name, message)
            return
        if source in self._seen:
            message = f"another document of this call has the source {source!r} too"
            self._fail(upload.name, "DUPLICATE_SOURCE", message)
            return
        self._seen.add(source)
        if digested.unchanged:
            with refusing():
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

    def _make_room(self, said: str) -> None:
        """Refuses the call before it has more documents than it could answer for."""
        self._outcomes_bytes += _OUTCOME_BYTES + len(said.encode())
        if self._outcomes_bytes > OUTCOMES_BYTES_MAX:
            message = "too many documents, or too long names, for one call; nothing was added, send fewer at once"
            raise BadInput(Reason.TOO_LARGE, message, field="header")

    def _fail(self, name: str, reason: str, message: str) -> None:
        self._make_room(name + message)
        self._outcomes.append(DocumentOutcome(name, OutcomeKind.FAILED, None, reason, message))

    def commit(self, call: Call) -> Added:
        """Adds what was taken. `call` has the fingerprint of all that was sent."""
        self._line.finish()
        added = self._planner.reviser.revise(call, self._target, ADDED, self._plan)
        for outcome in added.outcomes:
            self._report(outcome)
        return added

    def _outcome_keys(self, corpus: Corpus) -> list[KeyNumber]:
        """What is remembered of the call names its documents, so it is gone with any of their sources."""
        return self._planner.reviser.keyring.numbers(corpus.number, [CORPUS_SCOPE, *sorted(self._seen)])

    def _check_unchanged(self, reader: PlanReader) -> None:
        """What was left alone when it came must be there still: its content was not kept."""
        now = reader.sources(list(self._unchanged))
        for then, source in zip(self._unchanged.values(), now, strict=True):
            if source is None or (source.document, source.content_hash) != (then.document, then.content_hash):
                message = "a document that was here already has changed meanwhile; nothing was written, send all again"
                raise Unavailable(Reason.CONFLICT, message)

    def _plan(self, corpus: Corpus, base: Revision) -> Plan[Added] | NothingToChange[Added]:
        """On the corpus as it is at `base`: a source may have changed since its document was prepared."""
        reader = self._planner.reader(corpus, base)
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
            source = succeeding(known, document, self._call.at)
            added.append((number, replace(document, source_version=source.version)))
            sources.append(source)
            if known is not None and known.document:
                replaced.append(known.document)
            kind = OutcomeKind.UPDATED if known is not None and known.document else OutcomeKind.ADDED
            outcomes.append(DocumentOutcome(name, kind, document.id))
        if not added:
            return NothingToChange(Added(base, tuple(outcomes), 0), self._outcome_keys(corpus))
        removed = [document for document in reader.documents(replaced) if document is not None]
        plan = self._planner.plan(
            self._call,
            corpus,
            base,
            Change(AddedDocuments(self._buffer, added), removed, sources, self._embeddings.model),
            self._settled,
            lambda revision, sections: Added(revision, tuple(outcomes), sections),
        )
        return replace(plan, number=self._outcome_keys(corpus))


def _source(upload: Upload, document: Asked) -> SourceId:
    """An upload's own, unless it holds several documents: then each has its id there, or its place, as well."""
    source = upload.source or upload.name
    return SourceId(source if document.is_the_upload else f"{source}#{document.external_id or document.place}")
