"""ImportCore: a core file becomes a revision of a corpus, all of it or nothing.

    upload into a sealed file -> read once: check everything -> read again: make the writes of one revision

Cores come from anywhere. A defect is refused with its place in the file. Records of other systems that are valid but
of no use here are skipped and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from drillcore_fdb.engine import Transaction
from drillcore_formats.audit.findings import VerificationFailed
from drillcore_formats.audit.notes import VerifierKey
from drillcore_formats.cores import InvalidCore
from drillcore_formats.cores.signed import check_file, check_note
from drillcore_proto.reasons import Reason
from drillcore_server.cores.imports.check_core import CheckedCore, check_core
from drillcore_server.cores.imports.import_plan import CorePlan, ForeignPlan, FullPlan
from drillcore_server.cores.model import CoreCounts, CoreKind, Skipped
from drillcore_server.cores.uploads import CoreUploads
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import BadInput, NotReady
from drillcore_server.kernel.revise import NothingToChange, Plan, Reviser, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, Revision, SourceId
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed_file import SealedFile
from drillcore_server.vectors.embedding.embedders import Embedders

Progress = Callable[[str, int, int], None]
"""Is called with the stage, and with the bytes and records that are done."""
_UNNAMED: Final = "unnamed"
_PROGRESS_EVERY_BYTES: Final = 4 << 20
"""Bytes of writes between two reports of progress."""


@dataclass(frozen=True, slots=True)
class CoreImporter:
    """The parts of the server that imports use."""

    reviser: Reviser
    embedders: Embedders
    uploads: CoreUploads


@dataclass(frozen=True, slots=True)
class ImportOrder:
    target: Target
    strict: bool = False
    source: SourceId = field(default=SourceId(""))
    """The source of all records from a core of another system. Empty: it is named after the core."""
    note: str = ""
    """A signed note about the file."""
    keys: tuple[VerifierKey, ...] = ()
    """If given, one of these keys must have signed the note."""


@dataclass(frozen=True, slots=True)
class ImportedCore:
    revision: Revision
    kind: CoreKind
    counts: CoreCounts
    skipped: tuple[Skipped, ...]
    skipped_count: int
    signed_by: str = ""


IMPORTED = RecordKind(ImportedCore)


def import_core(
    importer: CoreImporter, call: Call, order: ImportOrder, file: SealedFile, progress: Progress
) -> ImportedCore:
    """Stores a core as one revision: all of it or nothing. A repeated request returns its first result.

    Raises `Refused`: INVALID_CORE, CORE_UNSIGNED, CORPUS_NOT_EMPTY, NODE_EXISTS.
    """
    begun = importer.reviser.begin(call, order.target, IMPORTED)
    if begun.known is not None:
        return begun.known
    signed_by = _signed_by(order, file)
    try:
        with check_core(file, strict=order.strict, progress=lambda *done: progress("checking", *done)) as core:
            return _Import(importer, call, order, core, signed_by, progress).run()
    except InvalidCore as error:
        details = {"record": str(error.record), "offset_bytes": str(error.offset_bytes)}
        raise BadInput(Reason.INVALID_CORE, f"{error}; nothing was stored", **details) from error


def _signed_by(order: ImportOrder, file: SealedFile) -> str:
    """Returns the name of the key that signed the core. Empty if no signature is required."""
    if not order.keys:
        return ""
    try:
        verified = check_note(order.note, order.keys)
        check_file(verified.statement, file.size_bytes, file.sha256)
    except VerificationFailed as error:
        raise NotReady(Reason.CORE_UNSIGNED, f"{error}; nothing was stored") from error
    return verified.signed_by[0]


@dataclass(frozen=True, slots=True)
class _Import:
    importer: CoreImporter
    call: Call
    order: ImportOrder
    core: CheckedCore
    signed_by: str
    progress: Progress

    def run(self) -> ImportedCore:
        return self.importer.reviser.revise(self.call, self.order.target, IMPORTED, self._plan)

    def _plan(self, snapshot: BatchedReads) -> Plan[ImportedCore] | NothingToChange[ImportedCore]:
        corpus, base = snapshot.corpus, snapshot.revision
        reviser = self.importer.reviser
        plan = self._core_plan(corpus, base)
        number = reviser.keyring.numbers(corpus.number, [SourceId(""), *plan.outcome_sources])
        own = reviser.make_keys(corpus, plan.sources)
        writes = iter(self._with_progress(plan.writes()))
        first = next(writes, None)
        if first is None:
            return NothingToChange(self._imported(plan, base), own, self._finish(plan))
        return Plan(
            base=base,
            number=number,
            writes=chain([first], writes),
            sections=plan.sections,
            documents_added=plan.documents,
            documents_removed=(),
            sources=plan.sources,
            result=lambda revision: self._imported(plan, revision),
            facts_count=lambda: plan.counts.facts,
            communities=plan.has_communities,
            finish=self._finish(plan),
        )

    def _core_plan(self, corpus: Corpus, base: Revision) -> CorePlan:
        reviser = self.importer.reviser
        if self.core.full is not None:
            return FullPlan(reviser, self.importer.embedders, self.call, corpus, base, self.core, self.core.full)
        return ForeignPlan(reviser, self.call, corpus, base, self.core, self._source())

    def _source(self) -> SourceId:
        """Returns the source of everything that another system's core brings."""
        named = self.order.source or SourceId(f"core:{self.core.core_id or _UNNAMED}")
        if len(named) > SOURCE_CHARACTERS_MAX:
            message = f"source_id, or the id of the core, has over {SOURCE_CHARACTERS_MAX} characters; set source_id"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
        return named

    def _imported(self, plan: CorePlan, revision: Revision) -> ImportedCore:
        skips, counts = plan.skips, plan.counts.with_records(self.core.records)
        return ImportedCore(revision, self._kind, counts, tuple(skips.reported), skips.count, self.signed_by)

    @property
    def _kind(self) -> CoreKind:
        if self.core.full is not None:
            return CoreKind.FULL
        return CoreKind.DOCUMENT_EMBEDDINGS if self.core.is_document_embeddings else CoreKind.PLAIN

    def _finish(self, plan: CorePlan) -> Callable[[Transaction, Trail, Revision], None]:
        def finish(tr: Transaction, trail: Trail, revision: Revision) -> None:
            plan.finish(tr, revision)
            trail.detail |= {
                "kind": self._kind.value,
                "core_sha256": self.core.file.sha256.hex(),
                "size_bytes": self.core.file.size_bytes,
                "counts": plan.counts.with_records(self.core.records).by_name(),
                "skipped": plan.skips.count,
            }
            if self.signed_by:
                trail.detail["signed_by"] = self.signed_by

        return finish

    def _with_progress(self, writes: Iterator[Write]) -> Iterator[Write]:
        size_bytes = reported_bytes = 0
        for count, write in enumerate(writes, 1):
            yield write
            size_bytes += write.size_bytes
            if size_bytes - reported_bytes > _PROGRESS_EVERY_BYTES:
                reported_bytes = size_bytes
                self.progress("storing", size_bytes, count)
