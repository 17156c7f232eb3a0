"""ExportQuads.

    may the caller? which revision? -> the file, sealed -> the audit record -> only then the first byte

Files are not kept. A request that is repeated after its file was recorded is refused, as ExportCorpus does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant, Rule
from drillcore_server.commands.export_corpus import check_nothing_erased
from drillcore_server.commands.match_quads import touch_sources
from drillcore_server.commands.quad_matching import Cursor, Part, QuadMatching
from drillcore_server.commands.unit import Call, refusing
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput, NotReady
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, CorpusNumber, RecordId, Revision, SourceId, TenantId
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.pages import PageLimit
from drillcore_server.domain.quads import Quad, QuadPattern, check_pattern
from drillcore_server.exporting.sealed_file import SealedFile
from drillcore_server.rdf.formats import QuadFormat
from drillcore_server.rdf.writing import write_quads
from drillcore_server.store.quads import QuadHashes
from drillcore_server.store.records import RecordKind

_PAGE: Final = PageLimit(1_000, 1 << 20)
"""Read in one transaction."""
_SEVERAL: Final = 2


@dataclass(frozen=True, slots=True)
class QuadOrder:
    """What is to be exported."""

    tenant: TenantId | None
    corpus: CorpusId
    pattern: QuadPattern
    as_of: AsOf
    format: QuadFormat

    def check(self) -> None:
        check_pattern(self.pattern)
        if self.format is QuadFormat.TURTLE and self.pattern.graph is None:
            message = "Turtle has no graphs: name the one whose quads you want in the pattern"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="pattern")


@dataclass(frozen=True, slots=True)
class ExportedQuads:
    revision: Revision
    quads: int
    sha256: bytes
    size_bytes: int
    record: RecordId


EXPORTED_QUADS = RecordKind(ExportedQuads)


def export_quads(library: Library, call: Call, order: QuadOrder, send: Callable[[bytes], object]) -> ExportedQuads:
    """Makes the file, records it, and sends it in pieces. Nothing is sent of one that could not be recorded."""
    order.check()
    return _Exporting(library, call, order).run(send)


class _Exporting:
    def __init__(self, library: Library, call: Call, order: QuadOrder) -> None:
        self._library = library
        self._call = call
        self._order = order
        self._written = 0
        self._sources: set[tuple[CorpusNumber, SourceId]] = set()
        """Of what is written; no more than tell whether it is one alone."""

    def run(self, send: Callable[[bytes], object]) -> ExportedQuads:
        shelf = self._shelf()
        epoch = shelf.view.sealed.epoch(shelf.corpus.number)
        with SealedFile() as file:
            with refusing():
                write_quads(self._quads(shelf), file, self._order.format)
            done = self._recorded(shelf.revision, file, epoch)
            for piece in file.pieces():
                check_nothing_erased(shelf, epoch)
                send(piece)
        return done

    @property
    def _access(self) -> Rule[InTenant]:
        return access.in_tenant(self._order.tenant, Permission.EXPORT)

    def _quads(self, shelf: Shelf) -> Iterator[Quad]:
        hashes = QuadHashes.of(self._library.keyring, shelf.corpus.number)
        cursor: Cursor | None = Cursor(Part.STORED)
        while cursor is not None:
            found, cursor = self._page(shelf.revision, hashes, cursor)
            self._written += len(found)
            yield from found

    def _page(self, revision: Revision, hashes: QuadHashes, begin: Cursor) -> tuple[list[Quad], Cursor | None]:
        """In a transaction of its own: a revision does not change."""

        def work(tr: Reader, granted: InTenant) -> tuple[list[Quad], Cursor | None]:
            shelf = self._find(tr, granted, self._call.trails[-1], AsOf(revision=revision))
            principal, pattern = self._call.principal.id, self._order.pattern
            matching = QuadMatching(self._library, tr, granted, principal, shelf, pattern, hashes)
            found, following = matching.page(begin, _PAGE)
            if len(self._sources) < _SEVERAL:
                touch_sources(self._sources, shelf, found)
            return [one.quad for one in found], following

        return self._library.unit.look(self._call, self._access, work)

    def _shelf(self) -> Shelf:
        """The corpus at the revision to export. Raises `Refused`, also if this request's file was made before."""

        def work(tr: Reader, granted: InTenant) -> Shelf:
            made = self._library.unit.known(tr, self._call, EXPORTED_QUADS)
            if made is not None:
                raise _made_before(made)
            return self._find(tr, granted, self._call.trails[-1], self._order.as_of)

        return self._library.unit.look(self._call, self._access, work)

    def _find(self, tr: Reader, granted: InTenant, trail: Trail, as_of: AsOf) -> Shelf:
        shelf = self._library.shelf(tr, granted, trail, self._order.corpus, as_of)
        granted.check_level(shelf.corpus.id, *Level)
        return shelf

    def _recorded(self, revision: Revision, file: SealedFile, epoch: int) -> ExportedQuads:
        """A file that was begun before something was erased may hold it, and is not sent: `epoch` tells."""
        made: list[ExportedQuads] = []

        def work(tr: Transaction, granted: InTenant, trail: Trail) -> ExportedQuads:
            shelf = self._find(tr.snapshot, granted, trail, AsOf(revision=revision))
            shelf.view.sealed.follow_erasures(tr, shelf.view.keys)  # with a conflict: none may be committed before this
            check_nothing_erased(shelf, epoch)
            trail.levels.update(Level)
            trail.sources |= self._sources
            trail.private["query"] = repr(self._order.pattern)[:1_000]
            trail.detail |= {
                "format": self._order.format.value,
                "revision": revision,
                "quads": self._written,
                "sha256": file.sha256.hex(),
                "size_bytes": file.size_bytes,
            }
            made.append(ExportedQuads(revision, self._written, file.sha256, file.size_bytes, trail.record))
            return made[-1]

        done = self._library.unit.write(self._call, self._access, EXPORTED_QUADS, work)
        if done not in made:
            raise _made_before(done)
        return done


def _made_before(done: ExportedQuads) -> NotReady:
    message = (
        f"this request was carried out: its file is recorded as {done.record} and not kept; "
        "make another with a request id of its own"
    )
    return NotReady(Reason.EXPORT_MADE, message, record_id=str(done.record))
