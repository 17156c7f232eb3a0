"""ExportCorpus.

    check access and revision -> write the bundle into a sealed file -> write the audit record -> send the first byte

Bundles are not kept. A request that is repeated after its bundle was recorded is refused: the log has grown meanwhile,
so a new bundle would not have the hash that the record states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from drillcore_fdb.engine import Engine, Reader, Reads, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_server.exports import store as exports
from drillcore_server.exports.bundle import Binder, Bundle, BundleOptions
from drillcore_server.exports.content import ContentSignatures
from drillcore_server.exports.copies import About
from drillcore_server.exports.store import EXPORT, Export, ExportFormat
from drillcore_server.exports.walk import CorpusWalk
from drillcore_server.hierarchy.reader import check_nothing_erased
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant, Rule
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, BatchedReads, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit, errors_as_refusals
from drillcore_server.storage.ids import CorpusId, Level, Revision, TenantId, new_uuid


@dataclass(frozen=True, slots=True)
class Exporter:
    """The parts of the server that exports use."""

    engine: Engine
    reads: CorpusReads
    binder: Binder

    def walk(self, view: CorpusAtRevision, shared: Reads | None = None) -> CorpusWalk:
        """A walk whose reads follow one another in `shared`, or are alone in a transaction each."""
        unit, keyring = self.reads.unit, self.reads.keyring
        snapshot = BatchedReads.of(self.engine, view, shared)
        return CorpusWalk(snapshot, view.corpus, ContentSignatures(self.engine, unit.keys, keyring))


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """What to export."""

    tenant: TenantId | None
    corpus: CorpusId
    format: ExportFormat
    as_of: AsOf
    include_audit: bool


def export_corpus(exporter: Exporter, call: Call, order: ExportOrder, send: Callable[[bytes], object]) -> Export:
    """Makes the bundle, writes the audit record, and then sends the bundle in pieces.

    Raises `Refused`, with EXPORT_MADE if this request's bundle was made before.
    """
    return _Export(exporter, call, order).run(send)


@dataclass(frozen=True, slots=True)
class _Export:
    exporter: Exporter
    call: Call
    order: ExportOrder

    def run(self, send: Callable[[bytes], object]) -> Export:
        about = About(new_uuid(), self.exporter.binder.store, self.call.at, self.call.principal.id)
        view = self._view()
        epoch = view.sealed.epoch(view.corpus.number)
        bundle = self._bound(about, view)
        with bundle.file as file:
            export = self._recorded(about.export_id, bundle, epoch)
            if export.id != about.export_id:
                raise _made_before(export)
            for piece in file.pieces():
                check_nothing_erased(view, epoch)
                send(piece)
        return export

    @property
    def _unit(self) -> Unit:
        return self.exporter.reads.unit

    @property
    def _access(self) -> Rule[InTenant]:
        return access.in_tenant(self.order.tenant, Permission.EXPORT)

    def _bound(self, about: About, view: CorpusAtRevision) -> Bundle:
        record = {
            "log": str(view.corpus.tenant_id),
            "call": self.call.action,
            "operator": self.call.principal.id,
            "request_id": self.call.request_id,
        }
        wanted = BundleOptions(self.order.format, self.order.include_audit, record)
        with errors_as_refusals(), self.exporter.engine.reads() as shared:
            try:
                return self.exporter.binder.bind(self.exporter.walk(view, shared), about, wanted)
            except StoreCorruptError:
                self._view()  # refuses if the revision was trimmed meanwhile
                raise

    def _view(self) -> CorpusAtRevision:
        """The corpus at the revision to export. Raises `Refused`, also if this request's bundle was made before."""

        def work(tr: Reader, granted: InTenant) -> CorpusAtRevision:
            made = self._unit.known(tr, self.call, EXPORT)
            if made is not None:
                raise _made_before(made)
            return self._find(tr, granted, self.call.trails[-1], self.order.as_of)

        return self._unit.look(self.call, self._access, work)

    def _find(self, tr: Reader, granted: InTenant, trail: Trail, as_of: AsOf) -> CorpusAtRevision:
        view = self.exporter.reads.at(tr, granted, trail, self.order.corpus, as_of)
        granted.check_level(view.corpus.id, *Level)
        return view

    def _recorded(self, export_id: UUID, bundle: Bundle, epoch: int) -> Export:
        """The export of this bundle, or the one that another run of the same request made meanwhile.

        A bundle that was begun before an erasure may contain erased records, so it is not sent. `epoch` shows that.
        """

        def work(tr: Transaction, granted: InTenant, trail: Trail) -> Export:
            view = self._find(tr.snapshot, granted, trail, AsOf(revision=bundle.revision))
            view.sealed.follow_erasures(tr, view.keys)  # conflicts with erasures: none may be committed before this
            check_nothing_erased(view, epoch)
            trail.levels.update(Level)
            export = self._export(export_id, bundle, trail)
            exports.add(tr, self._unit.keys, granted.tenant, export)
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

        return self._unit.write(self.call, self._access, EXPORT, work)

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


def _made_before(export: Export) -> NotReady:
    message = (
        f"this request was already carried out as export {export.id}, and its bundle was not kept; "
        "export again with a new request id"
    )
    return NotReady(Reason.EXPORT_MADE, message, export_id=str(export.id))
