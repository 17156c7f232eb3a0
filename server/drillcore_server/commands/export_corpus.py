"""ExportCorpus.

    may the caller? which revision? -> the bundle, in a sealed file -> the audit record -> only then the first byte

Bundles are not kept. A request that is repeated after its bundle was recorded is refused: another bundle would have
other bytes than those that the record tells of, since the log has grown meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from drillcore_fdb.engine import Engine, Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant, Rule
from drillcore_server.commands.unit import Call, refusing
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import NotReady, Unavailable
from drillcore_server.domain.exports import Export, ExportFormat
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, Revision, TenantId, new_uuid
from drillcore_server.domain.nodes import Level
from drillcore_server.exporting.bundle import Binder, Bundle, Wanted
from drillcore_server.exporting.copies import About
from drillcore_server.exporting.signatures import ContentSignatures
from drillcore_server.exporting.walk import CorpusWalk
from drillcore_server.store import exports
from drillcore_server.store.exports import EXPORT
from drillcore_server.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Exporter:
    """Everything that exports need."""

    engine: Engine
    library: Library
    binder: Binder

    def walk(self, shelf: Shelf) -> CorpusWalk:
        unit, keyring = self.library.unit, self.library.keyring
        snapshot = Snapshot(self.engine, shelf.view.keys, self.library.sealed, shelf.revision)
        return CorpusWalk(snapshot, shelf.corpus, ContentSignatures(self.engine, unit.keys, keyring))


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """What is to be exported."""

    tenant: TenantId | None
    corpus: CorpusId
    format: ExportFormat
    as_of: AsOf
    include_audit: bool


def export_corpus(exporter: Exporter, call: Call, order: ExportOrder, send: Callable[[bytes], object]) -> Export:
    """Makes the bundle, records it, and sends it in pieces. Nothing is sent of one that could not be recorded."""
    return _Exporting(exporter, call, order).run(send)


@dataclass(frozen=True, slots=True)
class _Exporting:
    exporter: Exporter
    call: Call
    order: ExportOrder

    def run(self, send: Callable[[bytes], object]) -> Export:
        about = About(new_uuid(), self.exporter.binder.store, self.call.at, self.call.principal.id)
        shelf = self._shelf()
        epoch = shelf.view.sealed.epoch(shelf.corpus.number)
        bundle = self._bound(about, shelf)
        with bundle.file as file:
            export = self._recorded(about.export_id, bundle, epoch)
            if export.id != about.export_id:
                raise _made_before(export)
            for piece in file.pieces():
                check_nothing_erased(shelf, epoch)
                send(piece)
        return export

    @property
    def _access(self) -> Rule[InTenant]:
        return access.in_tenant(self.order.tenant, Permission.EXPORT)

    def _bound(self, about: About, shelf: Shelf) -> Bundle:
        record = {
            "log": str(shelf.corpus.tenant_id),
            "call": self.call.action,
            "operator": self.call.principal.id,
            "request_id": self.call.request_id,
        }
        wanted = Wanted(self.order.format, self.order.include_audit, record)
        with refusing():
            try:
                return self.exporter.binder.bind(self.exporter.walk(shelf), about, wanted)
            except StoreCorruptError:
                self._shelf()  # says so if the revision was trimmed meanwhile
                raise

    def _shelf(self) -> Shelf:
        """The corpus at the revision to export. Raises `Refused`, also if this request's bundle was made before."""

        def work(tr: Reader, granted: InTenant) -> Shelf:
            made = self.exporter.library.unit.known(tr, self.call, EXPORT)
            if made is not None:
                raise _made_before(made)
            return self._find(tr, granted, self.call.trails[-1], self.order.as_of)

        return self.exporter.library.unit.look(self.call, self._access, work)

    def _find(self, tr: Reader, granted: InTenant, trail: Trail, as_of: AsOf) -> Shelf:
        shelf = self.exporter.library.shelf(tr, granted, trail, self.order.corpus, as_of)
        granted.check_level(shelf.corpus.id, *Level)
        return shelf

    def _recorded(self, export_id: UUID, bundle: Bundle, epoch: int) -> Export:
        """The export of this bundle; or the one that another run of the same request made meanwhile.

        A bundle that was begun before something was erased may hold it, and is not sent: `epoch` tells.
        """

        def work(tr: Transaction, granted: InTenant, trail: Trail) -> Export:
            shelf = self._find(tr.snapshot, granted, trail, AsOf(revision=bundle.revision))
            shelf.view.sealed.follow_erasures(tr, shelf.view.keys)  # with a conflict: none may be committed before this
            check_nothing_erased(shelf, epoch)
            trail.levels.update(Level)
            export = self._export(export_id, bundle, trail)
            exports.add(tr, self.exporter.library.unit.keys, granted.tenant, export)
            trail.detail |= {
                "export_id": str(export_id),
                "format": self.order.format.value,
                "revision": bundle.revision,
                "include_audit": self.order.include_audit,
                "manifest_sha256": bundle.manifest_sha256.hex(),
                "bundle_sha256": bundle.file.sha256.hex(),
                "size_bytes": bundle.file.size_bytes,
            }
            return export

        return self.exporter.library.unit.write(self.call, self._access, EXPORT, work)

    def _export(self, export_id: UUID, bundle: Bundle, trail: Trail) -> Export:
        return Export(
            id=export_id,
            corpus=self.order.corpus,
            revision=Revision(bundle.revision),
            format=self.order.format,
            include_audit=self.order.include_audit,
            manifest_sha256=bundle.manifest_sha256,
            bundle_sha256=bundle.file.sha256,
            size_bytes=bundle.file.size_bytes,
            by=self.call.principal.id,
            at=self.call.at,
            record=trail.record,
        )


def check_nothing_erased(shelf: Shelf, epoch: int) -> None:
    if shelf.view.sealed.epoch(shelf.corpus.number) != epoch:
        message = "something was erased from the corpus while its copy was made; export it again"
        raise Unavailable(Reason.CONFLICT, message)


def _made_before(export: Export) -> NotReady:
    message = (
        f"this request was carried out: export {export.id} is recorded, its bundle is not kept; "
        "make another with a request id of its own"
    )
    return NotReady(Reason.EXPORT_MADE, message, export_id=str(export.id))
