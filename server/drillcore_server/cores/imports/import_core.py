"""ImportCore: a core file becomes a revision of a corpus, all of it or nothing.

    upload into a sealed file -> read once: check everything -> read again: make the writes of one revision

Cores come from anywhere. A defect is refused with its place in the file. What another system may well have written and
this one cannot use is skipped and reported.
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
from drillcore_server.cores.imports.check import CheckedCore, check_core
from drillcore_server.cores.imports.import_plan import CorePlan, ForeignPlan, FullPlan
from drillcore_server.cores.imports.report import Skipped
from drillcore_server.cores.model import CoreCounts, CoreKind
from drillcore_server.cores.uploads import CoreUploads
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.errors import BadInput, NotReady
from drillcore_server.kernel.revise import NothingToChange, Plan, Reviser, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, Revision, SourceId
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed_file import SealedFile
from drillcore_server.vectors.embedding.embedders import Embedders

Tell = Callable[[str, int, int], None]
"""Is called with the stage and with the bytes and records it has done."""
_UNNAMED: Final = "unnamed"
_TELL_BYTES: Final = 4 << 20
"""The writes, in bytes, between two reports of progress."""


@dataclass(frozen=True, slots=True)
class CoreImporter:
    """What imports of cores need."""

    reviser: Reviser
    embedders: Embedders
    uploads: CoreUploads


@dataclass(frozen=True, slots=True)
class ImportOrder:
    target: Target
    strict: bool = False
    source: SourceId = field(default=SourceId(""))
    """The source of what another system's core brings; by default it is named after the core."""
    note: str = ""
    """A signed note about the file."""
    keys: tuple[VerifierKey, ...] = ()
    """The note must be signed by one of these."""


@dataclass(frozen=True, slots=True)
class ImportedCore:
    revision: Revision
    kind: CoreKind
    counts: CoreCounts
    skipped: tuple[Skipped, ...]
    skipped_count: int
    signed_by: str = ""


IMPORTED = RecordKind(ImportedCore)


def import_core(importer: CoreImporter, call: Call, order: ImportOrder, file: SealedFile, tell: Tell) -> ImportedCore:
    """Returns what became of the core. Raises `Refused`: INVALID_CORE, CORE_UNSIGNED, CORPUS_NOT_EMPTY, NODE_EXISTS."""
    begun = importer.reviser.begin(call, order.target, IMPORTED)
    if begun.known is not None:
        return begun.known
    signed_by = _signed_by(order, file)
    try:
        with check_core(file, strict=order.strict, tell=lambda *done: tell("checking", *done)) as core:
            return _Importing(importer, call, order, core, signed_by, tell).run()
    except InvalidCore as error:
        details = {"record": str(error.record), "offset_bytes": str(error.offset_bytes)}
        raise BadInput(Reason.INVALID_CORE, f"{error}; nothing was stored", **details) from error


def _signed_by(order: ImportOrder, file: SealedFile) -> str:
    """Returns the name of the key that signed it, if a signature is required."""
    if not order.keys:
        return ""
    try:
        verified = check_note(order.note, order.keys)
        check_file(verified.statement, file.size_bytes, file.sha256)
    except VerificationFailed as error:
        raise NotReady(Reason.CORE_UNSIGNED, f"{error}; nothing was stored") from error
    return verified.signed_by[0]


@dataclass(frozen=True, slots=True)
class _Importing:
    importer: CoreImporter
    call: Call
    order: ImportOrder
    core: CheckedCore
    signed_by: str
    tell: Tell

    def run(self) -> ImportedCore:
        return self.importer.reviser.revise(self.call, self.order.target, IMPORTED, self._plan)

    def _plan(self, corpus: Corpus, base: Revision) -> Plan[ImportedCore] | NothingToChange[ImportedCore]:
        reviser = self.importer.reviser
        made = self._made(corpus, base)
        number = reviser.keyring.numbers(corpus.number, [SourceId(""), *made.outcome_sources])
        own = reviser.make_keys(corpus, made.sources)
        writes = iter(self._telling(made.writes()))
        first = next(writes, None)
        if first is None:
            return NothingToChange(self._imported(made, base), own, self._finish(made))
        return Plan(
            base=base,
            number=number,
            writes=chain([first], writes),
            sections=made.sections,
            documents_added=made.documents,
            documents_removed=(),
            sources=made.sources,
            result=lambda revision: self._imported(made, revision),
            facts_count=lambda: made.counts.facts,
            communities=made.has_communities,
            finish=self._finish(made),
        )

    def _made(self, corpus: Corpus, base: Revision) -> CorePlan:
        reviser = self.importer.reviser
        if self.core.full is not None:
            return FullPlan(reviser, self.importer.embedders, self.call, corpus, base, self.core, self.core.full)
        return ForeignPlan(reviser, self.call, corpus, base, self.core, self._source())

    def _source(self) -> SourceId:
        """Returns the source of everything that another system's core brings."""
        named = self.order.source or SourceId(f"core:{self.core.core_id or _UNNAMED}")
        if len(named) > SOURCE_CHARACTERS_MAX:
            message = f"source_id, or the id of the core, has over {SOURCE_CHARACTERS_MAX} characters; give another"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
        return named

    def _imported(self, plan: CorePlan, revision: Revision) -> ImportedCore:
        skips, counts = plan.skips, plan.counts.of(self.core.records)
        return ImportedCore(revision, self._kind, counts, tuple(skips.told), skips.count, self.signed_by)

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
                "counts": plan.counts.of(self.core.records).by_name(),
                "skipped": plan.skips.count,
            }
            if self.signed_by:
                trail.detail["signed_by"] = self.signed_by

        return finish

    def _telling(self, writes: Iterator[Write]) -> Iterator[Write]:
        size_bytes = told = 0
        for count, write in enumerate(writes, 1):
            yield write
            size_bytes += write.size_bytes
            if size_bytes - told > _TELL_BYTES:
                told = size_bytes
                self.tell("storing", size_bytes, count)
