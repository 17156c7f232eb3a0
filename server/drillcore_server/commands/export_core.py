"""ExportCore.

    may the caller? which revision? -> the core, in a sealed file -> the audit record -> only then the first byte

Cores are not kept. Who goes on after an interruption has the same bytes made again, and gets those that are missing; a
request that is repeated gets those that its record tells of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from drillcore.audit.notes import make_note
from drillcore.cores.signed import CoreStatement
from drillcore_fdb.engine import Engine, Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_server.audit.signers import SigningKeys
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant, Rule
from drillcore_server.commands.derived_quads import DerivedPage, retrieval_page
from drillcore_server.commands.unit import Call, refusing
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.cores.core import CoreContent, default_id, write_core
from drillcore_server.cores.core_file import CoreFile
from drillcore_server.cores.signing import SignatureBook
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail, time_text
from drillcore_server.domain.cores import CoreCounts, CoreExport, CoreKind
from drillcore_server.domain.errors import Missing, Stale, Unavailable
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, Revision, TenantId
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.quads import Quad, QuadPattern
from drillcore_server.exporting.sealed_file import SealedFile
from drillcore_server.store import audit_records
from drillcore_server.store.keyring import KeyErased
from drillcore_server.store.library import LibraryPlaces
from drillcore_server.store.records import RecordKind
from drillcore_server.store.snapshot import Snapshot

_QUADS_AT_ONCE: Final = 1_000
_NOT_WHOLE: Final = (
    "something of this revision was erased since, so its hierarchy is no longer whole; "
    "export a later revision, or without sources, or a plain core"
)
CORE_EXPORT: Final = RecordKind(CoreExport)


@dataclass(frozen=True, slots=True)
class CoreExporter:
    """Everything that exports of cores need."""

    engine: Engine
    library: Library
    signing: SigningKeys


@dataclass(frozen=True, slots=True)
class CoreOrder:
    """What is to be exported."""

    tenant: TenantId | None
    corpus: CorpusId
    as_of: AsOf
    kind: CoreKind
    sources: bool
    retrieval: bool
    core_id: str
    """Empty: that of the master."""
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
    """Makes the core, records it, and sends it in pieces. Nothing is sent of one that could not be recorded.

    `progress` hears the stage, bytes and records.
    """
    return _Exporting(exporter, call, order, progress).run(send)


@dataclass(frozen=True, slots=True)
class _Begun:
    """Where an export begins."""

    shelf: Shelf
    epoch: int
    known: CoreExport | None
    """What an earlier run of the same request did."""


@dataclass(frozen=True, slots=True)
class _Exporting:
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
    def _access(self) -> Rule[InTenant]:
        return access.in_tenant(self.order.tenant, Permission.EXPORT)

    def _begin(self) -> _Begun:
        """The corpus at the revision to export; that of an earlier run, if there was one. Raises `Refused`."""

        def work(tr: Reader, granted: InTenant) -> _Begun:
            known = self.exporter.library.unit.known(tr, self.call, CORE_EXPORT)
            as_of = self.order.as_of if known is None else AsOf(revision=known.revision)
            shelf = self._find(tr, granted, self.call.trails[-1], as_of)
            return _Begun(shelf, shelf.view.sealed.epoch(shelf.corpus.number), known)

        return self.exporter.library.unit.look(self.call, self._access, work)

    def _find(self, tr: Reader, granted: InTenant, trail: Trail, as_of: AsOf) -> Shelf:
        shelf = self.exporter.library.shelf(tr, granted, trail, self.order.corpus, as_of)
        granted.check_level(shelf.corpus.id, *Level)
        return shelf

    def _written(self, file: SealedFile, begun: _Begun) -> tuple[CoreFile, CoreCounts]:
        content = self._content(begun)
        with refusing():
            try:
                core_id = self.order.core_id or default_id(content)
                core = CoreFile(file, core_id, lambda size, records: self.progress("writing", size, records))
                return core, write_core(core, content)
            except StoreCorruptError:
                self._begin()  # says so if the revision was trimmed meanwhile
                raise
            except KeyErased as error:
                self._begin()  # hears of what was erased meanwhile
                _check_nothing_erased(begun)
                raise Missing(Reason.ERASED, _NOT_WHOLE) from error

    def _content(self, begun: _Begun) -> CoreContent:
        library, shelf = self.exporter.library, begun.shelf
        return CoreContent(
            Snapshot(self.exporter.engine, shelf.view.keys, library.sealed, shelf.revision),
            self.order.kind,
            self.order.sources,
            LibraryPlaces.of(library.keyring, shelf.corpus.number),
            SignatureBook(library.unit.keys, library.keyring, shelf.corpus.tenant_id),
            self._retrieval(shelf.revision) if self.order.retrieval else (),
        )

    def _retrieval(self, revision: Revision) -> Iterator[Quad]:
        """The caller's envelopes, in as many transactions as it takes."""
        page = DerivedPage([], b"")
        while page.following is not None:
            work = partial(self._page, revision, page.following)
            page = self.exporter.library.unit.look(self.call, self._access, work)
            yield from page.quads

    def _page(self, revision: Revision, begin: bytes, tr: Reader, granted: InTenant) -> DerivedPage:
        library, caller = self.exporter.library, self.call.principal.id
        shelf = self._find(tr, granted, self.call.trails[-1], AsOf(revision=revision))
        return retrieval_page(library, tr, granted, caller, shelf, QuadPattern(), begin, _QUADS_AT_ONCE)

    def _recorded(self, begun: _Begun, file: SealedFile, core_id: str, counts: CoreCounts) -> CoreExport:
        """The export of this file; or what an earlier run of the same request exported.

        A core that was begun before something was erased may hold it, and is not sent: the epoch tells.
        """

        def work(tr: Transaction, granted: InTenant, trail: Trail) -> CoreExport:
            shelf = self._find(tr.snapshot, granted, trail, AsOf(revision=begun.shelf.revision))
            shelf.view.sealed.follow_erasures(tr, shelf.view.keys)  # with a conflict: none may be committed before this
            _check_nothing_erased(begun)
            trail.levels.update(Level)
            export = self._export(tr.snapshot, (file, core_id, counts), trail, shelf.revision)
            trail.detail |= self._told(export)
            return export

        export = self.exporter.library.unit.write(self.call, self._access, CORE_EXPORT, work)
        if begun.known is not None:
            self._begin()  # nothing was done above, so hear now of what was erased
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
            key_number=audit_records.state(tr, self.exporter.library.unit.keys).key_number,
        )

    def _told(self, export: CoreExport) -> dict[str, Any]:
        """For the audit record."""
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
        said = CoreStatement(
            sha256=export.sha256.hex(),
            size_bytes=export.size_bytes,
            corpus=export.corpus,
            revision=export.revision,
            made_at=time_text(export.at),
            record=export.record,
        )
        with refusing():
            signer = self.exporter.signing.signer(export.key_number)
            return make_note(said.encode(), (signer.verifier, signer.sign)).encode()


def _check_resumed(file: SealedFile, order: CoreOrder) -> None:
    """Raises `Stale` unless the file begins with what the caller has."""
    digest, left = hashlib.sha256(), order.resume_at_bytes
    for piece in file.pieces():
        if not left:
            break
        digest.update(piece[:left])
        left -= len(piece[:left])
    if left or (order.resume_at_bytes and digest.digest() != order.resume_sha256):
        message = "the core does not begin with those bytes: the corpus has changed, or another core was begun"
        raise Stale(Reason.CORE_CHANGED, message)


def _check_recorded(export: CoreExport, file: SealedFile) -> None:
    if export.sha256 != file.sha256:
        message = "this request was carried out, and the core that it made cannot be made again; export it anew"
        raise Stale(Reason.CORE_CHANGED, message)


def _check_nothing_erased(begun: _Begun) -> None:
    shelf = begun.shelf
    if shelf.view.sealed.epoch(shelf.corpus.number) != begun.epoch:
        message = "something was erased from the corpus while its core was made; export it again"
        raise Unavailable(Reason.CONFLICT, message)
