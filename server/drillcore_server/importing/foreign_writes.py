"""The writes of what a core brings of other systems: quads, vectors and library documents.

What the corpus has already is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeVar

from drillcore.cores.blobs import Blob
from drillcore.cores.framing import Record
from drillcore.cores.records import read_library
from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import Exists
from drillcore_server.domain.foreign import LibraryDocument
from drillcore_server.domain.ids import SourceId
from drillcore_server.importing.counts import StoredCounts
from drillcore_server.importing.reading import CheckedCore
from drillcore_server.importing.report import DUPLICATE, Skips
from drillcore_server.store import library, versioned
from drillcore_server.store.entity_vectors import EntityVectorWrites
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.library import LibraryPlaces, LibraryWrites
from drillcore_server.store.quads import QuadWrites
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.writes import Write

T = TypeVar("T")
_AT_ONCE: Final = 500
"""Looked up in one transaction."""


@dataclass(slots=True)
class ForeignWrites:
    """Made for one plan. What was stored is counted as it is gone through."""

    core: CheckedCore
    snapshot: Snapshot
    quad_writes: QuadWrites
    vector_writes: EntityVectorWrites
    library_writes: LibraryWrites
    places: LibraryPlaces
    counts: StoredCounts
    source: SourceId | None
    """Of everything; None for a full core, which says itself of which sources things are."""
    document_sources: Mapping[str, SourceId]
    """Of a full core."""

    def quads(self) -> Iterator[Write]:
        keys = self.snapshot.keys
        is_new = self._filter(library.is_there(self.snapshot, keys.quads()))
        sourced = ((quad, self._source(source)) for quad, source in self.core.quads)
        placed = ((self.quad_writes.hashes.place(*one), *one) for one in sourced)
        for place, quad, source in is_new(placed, lambda one: keys.quad(one[0])):
            self.counts.quads += 1
            yield from self.quad_writes.add_at(place, quad, source)

    def vectors(self) -> Iterator[Write]:
        is_new = self._filter(library.is_there(self.snapshot, self.snapshot.keys.all_entity_vectors()))
        sourced = (replace(one, source=self._source(one.source)) for one in self.core.vectors)
        for write in is_new(map(self.vector_writes.put, sourced), lambda one: one.key):
            self.counts.entity_vectors += 1
            yield write

    def documents(self, known: Mapping[str, LibraryDocument]) -> Iterator[Write]:
        """`known` are those that the corpus has of the same ids; see `known_documents`."""
        kept: set[str] = set()
        for part in self.core.library_records():
            if isinstance(part, Record):
                yield from self._described(part, known, kept)
        for part in self.core.library_records():
            document = self.core.library.content_at(part) if isinstance(part, Blob) else None
            if document is not None and isinstance(part, Blob) and document in kept:
                yield from self.library_writes.put_content(document, self._source_of(document), part.pieces())

    def known_documents(self, skips: Skips) -> dict[str, LibraryDocument]:
        """Those of the same ids. Raises `Exists` if one is another source's, and says something else."""
        if not library.is_there(self.snapshot, self.snapshot.keys.library_documents()):
            return {}
        known: dict[str, LibraryDocument] = {}
        for some in _batches(self.core.library.ids()):
            found = self.snapshot.find(some, self._find)
            known |= {one: document for one, document in zip(some, found, strict=True) if document is not None}
        for one in known.values():
            self._check_own(one, skips)
        return known

    def _described(self, record: Record, known: Mapping[str, LibraryDocument], kept: set[str]) -> Iterator[Write]:
        document = self.core.library.kept(record, self._source_of(read_library(record).id))
        before = None if document is None else known.get(document.id)
        if document is None or before == document or (before is not None and before.source != document.source):
            return
        kept.add(document.id)
        self.counts.library_documents += 1
        yield self.library_writes.put(document)
        if before is not None:
            yield from self.library_writes.shorten(document, before)

    def _find(self, view: CorpusView, document: str) -> LibraryDocument | None:
        return library.find(view, self.places(document))

    def _check_own(self, known: LibraryDocument, skips: Skips) -> None:
        if known.source == self._source_of(known.id):
            return
        if not self.core.library.same_content(known):
            message = "the corpus has a library document of the same id, of another source, that says something else"
            raise Exists(Reason.NODE_EXISTS, message, document=known.id)
        place = self.core.library.place_of(known.id)
        skips.skip(place, DUPLICATE, "the corpus has it of another source", known.id)

    def _source(self, source: SourceId) -> SourceId:
        return source if self.source is None else self.source

    def _source_of(self, document: str) -> SourceId:
        return self.document_sources.get(document, SourceId("")) if self.source is None else self.source

    def _filter(self, has_some: bool) -> _NewOnly:
        return _NewOnly(self.snapshot, has_some)


@dataclass(frozen=True, slots=True)
class _NewOnly:
    """Leaves out what the corpus has."""

    snapshot: Snapshot
    has_some: bool

    def __call__(self, items: Iterable[T], key_of: Callable[[T], bytes]) -> Iterator[T]:
        if not self.has_some:
            yield from items
            return
        for some in _batches(items):
            there = self.snapshot.find(some, lambda view, one: _is_there(view, key_of(one)))
            yield from (one for one, is_there in zip(some, there, strict=True) if not is_there)


def _is_there(view: CorpusView, key: bytes) -> bool:
    return versioned.get(view.tr, key, view.revision) is not None


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    todo = iter(items)
    while batch := list(islice(todo, _AT_ONCE)):
        yield batch
