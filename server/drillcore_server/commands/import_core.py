"""ImportCore: a core file becomes a revision of a corpus, all of it or nothing.

    upload, in a sealed file -> gone through once: everything is checked -> once more: the writes of one revision

Cores come from anywhere. What is wrong is refused with its place in the file; what another system may well have
written, and this one has no use for, is skipped and told of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from drillcore.audit.failures import VerificationFailed
from drillcore.audit.notes import VerifierKey
from drillcore.cores import InvalidCore
from drillcore.cores.signed import check_file, check_note
from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.commands.core_plans import CorePlan, ForeignPlan, FullPlan
from drillcore_server.commands.core_uploads import CoreUploads
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.revise import Plan, Target
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.cores import CoreCounts, CoreKind
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput, NotReady
from drillcore_server.domain.ids import Revision, SourceId
from drillcore_server.domain.sources import SOURCE_CHARACTERS_MAX
from drillcore_server.exporting.sealed_file import SealedFile
from drillcore_server.importing.reading import CheckedCore, check_core
from drillcore_server.importing.report import Skipped
from drillcore_server.store.records import RecordKind
from drillcore_server.store.writes import Write

Tell = Callable[[str, int, int], None]
"""Hears the stage, and how many bytes and records it is through with."""
_UNNAMED: Final = "unnamed"
_TELL_BYTES: Final = 4 << 20
"""Of writes, between two words of how far it is."""


@dataclass(frozen=True, slots=True)
class CoreImporter:
    """Everything that imports of cores need."""

    library: Library
    ingester: Ingester
    uploads: CoreUploads


@dataclass(frozen=True, slots=True)
class ImportOrder:
    target: Target
    strict: bool = False
    source: SourceId = field(default=SourceId(""))
    """Of what a core of another system brings; by default named after the core."""
    note: str = ""
    """A signed note about the file."""
    keys: tuple[VerifierKey, ...] = ()
    """With one of which the note must be signed."""


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
    """What became of the core. Raises `Refused`: INVALID_CORE, CORE_UNSIGNED, CORPUS_NOT_EMPTY, NODE_EXISTS."""
    begun = importer.ingester.reviser.begin(call, order.target, IMPORTED)
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
    """The name of the key that signed it, if one has to."""
    if not order.keys:
        return ""
    try:
        verified = check_note(order.note, order.keys)
        check_file(verified.statement, file.size_bytes, file.sha256)
    except VerificationFailed as error:
        raise NotReady(Reason.CORE_UNSIGNED, f"{error}; nothing was stored") from error
    return verified.signed_by[0]


class _Unchanged(Exception):  # noqa: N818 - a turn of events, not an error
    """The corpus has all of it already."""

    def __init__(self, made: _Made) -> None:
        super().__init__()
        self.made = made


class _Made(NamedTuple):
    plan: CorePlan
    corpus: Corpus
    base: Revision


@dataclass(frozen=True, slots=True)
class _Importing:
    importer: CoreImporter
    call: Call
    order: ImportOrder
    core: CheckedCore
    signed_by: str
    tell: Tell

    def run(self) -> ImportedCore:
        reviser = self.importer.ingester.reviser
        try:
            return reviser.revise(self.call, self.order.target, IMPORTED, self._plan)
        except _Unchanged as unchanged:
            plan, corpus, base = unchanged.made
            number = self.importer.ingester.make_keys(corpus, plan.sources)
            found = self._imported(plan, base)
            return reviser.leave(self.call, self.order.target, IMPORTED, number, found, self._finish(plan))

    def _plan(self, corpus: Corpus, base: Revision) -> Plan[ImportedCore]:
        ingester = self.importer.ingester
        made = self._made(corpus, base)
        number = ingester.keyring.numbers(corpus.number, [SourceId(""), *made.outcome_sources])
        ingester.make_keys(corpus, made.sources)
        writes = iter(self._telling(made.writes()))
        first = next(writes, None)
        if first is None:
            raise _Unchanged(_Made(made, corpus, base))
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
        ingester = self.importer.ingester
        if self.core.full is not None:
            return FullPlan(ingester, self.call, corpus, base, self.core, self.core.full)
        return ForeignPlan(ingester, self.call, corpus, base, self.core, self._source())

    def _source(self) -> SourceId:
        """Of everything that a core of another system brings."""
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
