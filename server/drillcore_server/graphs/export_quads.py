"""ExportQuads.

    check access and revision -> write the quads into a sealed file -> write the audit record -> send the first byte

Files are not kept. A request that is repeated after its file was recorded is refused, as with ExportCorpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.graphs.match_quads import Cursor, Part, QuadMatching, touch_sources
from drillcore_server.graphs.quad_model import Quad, QuadPattern, check_pattern, pattern_text
from drillcore_server.graphs.quad_store import QuadHashes
from drillcore_server.graphs.rdf import QuadFormat, write_quads
from drillcore_server.hierarchy.reader import check_nothing_erased
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant, Rule
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput, NotReady
from drillcore_server.kernel.pages import PageLimit
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, errors_as_refusals
from drillcore_server.storage.ids import CorpusId, CorpusNumber, Level, RecordId, Revision, SourceId, TenantId
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed_file import SealedFile

_PAGE: Final = PageLimit(1_000, 1 << 20)
"""Quads that are read in one transaction."""
_SEVERAL: Final = 2


@dataclass(frozen=True, slots=True)
class QuadExport:
    """Which quads to export, and how."""

    tenant: TenantId | None
    corpus: CorpusId
    pattern: QuadPattern
    as_of: AsOf
    format: QuadFormat

    def check(self) -> None:
        check_pattern(self.pattern)
        if self.format is QuadFormat.TURTLE and self.pattern.graph is None:
            message = "Turtle has no graphs: set pattern.graph to the graph whose quads you want"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="pattern")


@dataclass(frozen=True, slots=True)
class ExportedQuads:
    revision: Revision
    quads: int
    sha256: bytes
    size_bytes: int
    record: RecordId


EXPORTED_QUADS = RecordKind(ExportedQuads)


def export_quads(reads: CorpusReads, call: Call, export: QuadExport, send: Callable[[bytes], object]) -> ExportedQuads:
    """Makes the file, writes the audit record, and then sends the file in pieces.

    Sends nothing if the record cannot be written. Raises `Refused`, with EXPORT_MADE if this request's file was made
    before.
    """
    export.check()
    return _Exporting(reads, call, export).run(send)


class _Exporting:
    def __init__(self, reads: CorpusReads, call: Call, export: QuadExport) -> None:
        self._reads = reads
        self._call = call
        self._export = export
        self._written = 0
        self._sources: set[tuple[CorpusNumber, SourceId]] = set()
        """Sources of the written quads. Stops at two, because only a single source matters for the audit record."""

    def run(self, send: Callable[[bytes], object]) -> ExportedQuads:
        view = self._view()
        epoch = view.sealed.epoch(view.corpus.number)
        with SealedFile() as file:
            with errors_as_refusals():
                write_quads(self._quads(view), file, self._export.format)
            done = self._recorded(view.revision, file, epoch)
            for piece in file.pieces():
                check_nothing_erased(view, epoch)
                send(piece)
        return done

    @property
    def _access(self) -> Rule[InTenant]:
        return access.in_tenant(self._export.tenant, Permission.EXPORT)

    def _quads(self, view: CorpusAtRevision) -> Iterator[Quad]:
        hashes = QuadHashes.of(self._reads.keyring, view.corpus.number)
        cursor: Cursor | None = Cursor(Part.STORED)
        while cursor is not None:
            found, cursor = self._page(view.revision, hashes, cursor)
            self._written += len(found)
            yield from found

    def _page(self, revision: Revision, hashes: QuadHashes, begin: Cursor) -> tuple[list[Quad], Cursor | None]:
        """Reads a page in a transaction of its own, which is safe because a revision does not change."""

        def work(tr: Reader, granted: InTenant) -> tuple[list[Quad], Cursor | None]:
            view = self._find(tr, granted, self._call.trails[-1], AsOf(revision=revision))
            principal, pattern = self._call.principal.id, self._export.pattern
            matching = QuadMatching(self._reads, tr, granted, principal, view, pattern, hashes)
            found, following = matching.page(begin, _PAGE)
            if len(self._sources) < _SEVERAL:
                touch_sources(self._sources, view, found)
            return [matched.quad for matched in found], following

        return self._reads.unit.look(self._call, self._access, work)

    def _view(self) -> CorpusAtRevision:
        """The corpus at the revision to export. Raises `NotReady` if this request's file was made before."""

        def work(tr: Reader, granted: InTenant) -> CorpusAtRevision:
            made = self._reads.unit.known(tr, self._call, EXPORTED_QUADS)
            if made is not None:
                raise _made_before(made)
            return self._find(tr, granted, self._call.trails[-1], self._export.as_of)

        return self._reads.unit.look(self._call, self._access, work)

    def _find(self, tr: Reader, granted: InTenant, trail: Trail, as_of: AsOf) -> CorpusAtRevision:
        view = self._reads.at(tr, granted, trail, self._export.corpus, as_of)
        granted.check_level(view.corpus.id, *Level)
        return view

    def _recorded(self, revision: Revision, file: SealedFile, epoch: int) -> ExportedQuads:
        """Writes the audit record. Refuses a file that was begun before an erasure, since it may hold erased quads."""
        made: list[ExportedQuads] = []

        def work(tr: Transaction, granted: InTenant, trail: Trail) -> ExportedQuads:
            view = self._find(tr.snapshot, granted, trail, AsOf(revision=revision))
            view.sealed.follow_erasures(tr, view.keys)  # with a conflict: no erasure may be committed before this
            check_nothing_erased(view, epoch)
            trail.levels.update(Level)
            trail.sources |= self._sources
            trail.private["query"] = pattern_text(self._export.pattern)[:1_000]
            trail.detail |= {
                "format": self._export.format.value,
                "revision": revision,
                "quads": self._written,
                "sha256": file.sha256.hex(),
                "size_bytes": file.size_bytes,
            }
            made.append(ExportedQuads(revision, self._written, file.sha256, file.size_bytes, trail.record))
            return made[-1]

        done = self._reads.unit.write(self._call, self._access, EXPORTED_QUADS, work)
        if done not in made:
            raise _made_before(done)
        return done


def _made_before(done: ExportedQuads) -> NotReady:
    message = (
        f"the file of this request was made, is recorded as {done.record}, and is not kept; "
        "repeat the export with a new request_id"
    )
    return NotReady(Reason.EXPORT_MADE, message, record_id=str(done.record))
