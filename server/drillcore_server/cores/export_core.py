"""ExportCore.

    check access and revision -> write the core into a sealed file -> write the audit record -> send the first byte

Cores are not kept. After an interruption the same bytes are made again, and the caller gets those that are missing. A
repeated request gets the bytes that its record describes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from drillcore_fdb.engine import Engine, Reader, Reads, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_formats.audit.notes import make_note
from drillcore_formats.cores.signed import CoreStatement
from drillcore_proto.reasons import Reason
from drillcore_server.cores.foreign_store import LibraryPlaces
from drillcore_server.cores.model import CoreCounts, CoreExport, CoreKind
from drillcore_server.cores.writer.core_file import CoreFile
from drillcore_server.cores.writer.documents import SignatureBook
from drillcore_server.cores.writer.write_core import CoreContent, default_id, write_core
from drillcore_server.graphs.derived_quads import DerivedPage, retrieval_page
from drillcore_server.graphs.quad_model import Quad, QuadPattern
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant, Rule
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, BatchedReads, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import Missing, Stale, Unavailable
from drillcore_server.kernel.journal import SigningKeys
from drillcore_server.kernel.trail import Trail, time_text
from drillcore_server.kernel.unit import Call, Unit, errors_as_refusals
from drillcore_server.storage import audit_records
from drillcore_server.storage.ids import CorpusId, Level, Revision, TenantId
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed_file import SealedFile

_QUADS_AT_ONCE: Final = 1_000
_NOT_WHOLE: Final = (
    "something of this revision was erased since, so its hierarchy is no longer whole; "
    "export a later revision, or without sources, or a plain core"
)
CORE_EXPORT: Final = RecordKind(CoreExport)


@dataclass(frozen=True, slots=True)
class CoreExporter:
    """The parts of the server that exports use."""

    engine: Engine
    reads: CorpusReads
    signing: SigningKeys


@dataclass(frozen=True, slots=True)
class CoreOrder:
    """What to export."""

    tenant: TenantId | None
    corpus: CorpusId
    as_of: AsOf
    kind: CoreKind
    sources: bool
    retrieval: bool
    core_id: str
    """Empty: the core gets the id of the master."""
    resume_at_bytes: int = 0
    resume_sha256: bytes = b""


@dataclass(frozen=True, slots=True)
class ExportedCore:
    export: CoreExport
    signature: str
    """A C2SP signed note about the file."""


def export_core(
    exporter: CoreExporter,
    call: Call,
    order: CoreOrder,
    send: Callable[[bytes], object],
    progress: Callable[[str, int, int], object],
) -> ExportedCore:
    """Makes the core, writes the audit record, and then sends the core in pieces.

    Sends nothing if the record cannot be written. A repeated request makes the same core again. Calls `progress` with
    the stage, bytes and records. Raises `Refused`: CORE_CHANGED if the core cannot be made again or does not continue
    what the caller has, CONFLICT after an erasure, ERASED if the hierarchy is no longer whole.
    """
    return _Export(exporter, call, order, progress).run(send)


@dataclass(frozen=True, slots=True)
class _Begun:
    """Where an export begins."""

    view: CorpusAtRevision
    epoch: int
    known: CoreExport | None
    """The export of an earlier run of the same request."""


@dataclass(frozen=True, slots=True)
class _Export:
    exporter: CoreExporter
    call: Call
    order: CoreOrder
    progress: Callable[[str, int, int], object]

    def run(self, send: Callable[[bytes], object]) -> ExportedCore:
        begun = self._begin()
        with SealedFile() as file:
            core, counts = self._written(file, begun)
            _check_resumed(file, self.order)
            export = self._recorded(begun, file, core.core_id, counts)
            _check_recorded(export, file)
            self.progress("sending", export.size_bytes, export.counts.records)
            for piece in file.pieces_from(self.order.resume_at_bytes):
                _check_nothing_erased(begun)
                send(piece)
        return ExportedCore(export, self._signed(export))

    @property
    def _unit(self) -> Unit:
        return self.exporter.reads.unit

    @property
    def _access(self) -> Rule[InTenant]:
        return access.in_tenant(self.order.tenant, Permission.EXPORT)

    def _begin(self) -> _Begun:
        """Returns the corpus at the revision to export, or at that of an earlier run. Raises `Refused`."""

        def work(tr: Reader, granted: InTenant) -> _Begun:
            known = self._unit.known(tr, self.call, CORE_EXPORT)
            as_of = self.order.as_of if known is None else AsOf(revision=known.revision)
            view = self._find(tr, granted, self.call.trails[-1], as_of)
            return _Begun(view, view.sealed.epoch(view.corpus.number), known)

        return self._unit.look(self.call, self._access, work)

    def _find(self, tr: Reader, granted: InTenant, trail: Trail, as_of: AsOf) -> CorpusAtRevision:
        view = self.exporter.reads.at(tr, granted, trail, self.order.corpus, as_of)
        granted.check_level(view.corpus.id, *Level)
        return view

    def _written(self, file: SealedFile, begun: _Begun) -> tuple[CoreFile, CoreCounts]:
        with errors_as_refusals(), self.exporter.engine.reads() as shared:
            content = self._content(begun, shared)
            try:
                core_id = self.order.core_id or default_id(content)
                core = CoreFile(file, core_id, lambda size, records: self.progress("writing", size, records))
                return core, write_core(core, content)
            except StoreCorruptError:
                self._begin()  # refuses if the revision was trimmed meanwhile
                raise
            except KeyErased as error:
                self._begin()  # learns what was erased meanwhile
                _check_nothing_erased(begun)
                raise Missing(Reason.ERASED, _NOT_WHOLE) from error

    def _content(self, begun: _Begun, shared: Reads) -> CoreContent:
        reads, view = self.exporter.reads, begun.view
        return CoreContent(
            BatchedReads.of(self.exporter.engine, view, shared),
            self.order.kind,
            self.order.sources,
            LibraryPlaces.of(reads.keyring, view.corpus.number),
            SignatureBook(reads.unit.keys, reads.keyring, view.corpus.tenant_id),
            self._retrieval(view.revision) if self.order.retrieval else (),
        )

    def _retrieval(self, revision: Revision) -> Iterator[Quad]:
        """Yields the caller's envelopes, in as many transactions as it takes."""
        page = DerivedPage([], b"")
        while page.following is not None:
            work = partial(self._page, revision, page.following)
            page = self._unit.look(self.call, self._access, work)
            yield from page.quads

    def _page(self, revision: Revision, begin: bytes, tr: Reader, granted: InTenant) -> DerivedPage:
        reads, caller = self.exporter.reads, self.call.principal.id
        view = self._find(tr, granted, self.call.trails[-1], AsOf(revision=revision))
        return retrieval_page(reads, tr, granted, caller, view, QuadPattern(), begin, _QUADS_AT_ONCE)

    def _recorded(self, begun: _Begun, file: SealedFile, core_id: str, counts: CoreCounts) -> CoreExport:
        """Records the export of this file, or returns the export of an earlier run of the same request.

        A core that was begun before an erasure may contain erased records, so it is not sent. The epoch shows that.
        """

        def work(tr: Transaction, granted: InTenant, trail: Trail) -> CoreExport:
            view = self._find(tr.snapshot, granted, trail, AsOf(revision=begun.view.revision))
            view.sealed.follow_erasures(tr, view.keys)  # conflicts with erasures: none may be committed before this
            _check_nothing_erased(begun)
            trail.levels.update(Level)
            export = self._export(tr.snapshot, (file, core_id, counts), trail, view.revision)
            trail.detail |= self._details(export)
            return export

        export = self._unit.write(self.call, self._access, CORE_EXPORT, work)
        if begun.known is not None:
            self._begin()  # the work above did not run, so learn now what was erased
        return export

    def _export(
        self, tr: Reader, made: tuple[SealedFile, str, CoreCounts], trail: Trail, revision: Revision
    ) -> CoreExport:
        file, core_id, counts = made
        return CoreExport(
            corpus=self.order.corpus,
            revision=revision,
            core_id=core_id,
            sha256=file.sha256,
            size_bytes=file.size_bytes,
            counts=counts,
            at=self.call.at,
            record=trail.record,
            key_number=audit_records.state(tr, self._unit.keys).key_number,
        )

    def _details(self, export: CoreExport) -> dict[str, Any]:
        """Returns the details for the audit record."""
        return {
            "kind": self.order.kind.value,
            "include_sources": self.order.sources,
            "include_retrieval": self.order.retrieval,
            "revision": export.revision,
            "core_sha256": export.sha256.hex(),
            "size_bytes": export.size_bytes,
            "resumed_at_bytes": self.order.resume_at_bytes,
            "counts": export.counts.by_name(),
        }

    def _signed(self, export: CoreExport) -> str:
        statement = CoreStatement(
            sha256=export.sha256.hex(),
            size_bytes=export.size_bytes,
            corpus=export.corpus,
            revision=export.revision,
            made_at=time_text(export.at),
            record=export.record,
        )
        with errors_as_refusals():
            signer = self.exporter.signing.signer(export.key_number)
            return make_note(statement.encode(), (signer.verifier, signer.sign)).encode()


def _check_resumed(file: SealedFile, order: CoreOrder) -> None:
    """Raises `Stale` unless the file begins with the bytes that the caller has."""
    digest, left = hashlib.sha256(), order.resume_at_bytes
    for piece in file.pieces():
        if not left:
            break
        digest.update(piece[:left])
        left -= len(piece[:left])
    if left or (order.resume_at_bytes and digest.digest() != order.resume_sha256):
        message = "resume_sha256 is not the hash of the beginning of this core; export it from the beginning"
        raise Stale(Reason.CORE_CHANGED, message)


def _check_recorded(export: CoreExport, file: SealedFile) -> None:
    if export.sha256 != file.sha256:
        message = "this request was completed, and its core cannot be made again; export with a new request id"
        raise Stale(Reason.CORE_CHANGED, message)


def _check_nothing_erased(begun: _Begun) -> None:
    view = begun.view
    if view.sealed.epoch(view.corpus.number) != begun.epoch:
        message = "something was erased from the corpus while its core was made; export it again"
        raise Unavailable(Reason.CONFLICT, message)
