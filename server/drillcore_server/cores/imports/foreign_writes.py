"""Makes the writes for the quads, vectors and library documents that a core brings from other systems.

Records that the corpus already has stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeVar

from drillcore_formats.cores.framing import Blob, Record
from drillcore_formats.cores.records import read_library
from drillcore_proto.reasons import Reason
from drillcore_server.cores.foreign_store import (
    EntityVectorWrites,
    LibraryPlaces,
    LibraryWrites,
    find_document,
    has_any,
)
from drillcore_server.cores.imports.check_core import CheckedCore
from drillcore_server.cores.model import DUPLICATE, LibraryDocument, Skips, StoredCounts
from drillcore_server.graphs.quad_store import QuadWrites
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.errors import Exists
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import SourceId

T = TypeVar("T")
_BATCH: Final = 500
"""Records that are looked up in one transaction."""


@dataclass(slots=True)
class ForeignWrites:
    """Makes the writes of one plan, and counts the stored records while the writes are read."""

    core: CheckedCore
    snapshot: BatchedReads
    quad_writes: QuadWrites
    vector_writes: EntityVectorWrites
    library_writes: LibraryWrites
    places: LibraryPlaces
    counts: StoredCounts
    source: SourceId | None
    """The source of everything; None for a full core, which names its sources itself."""
    document_sources: Mapping[str, SourceId]
    """The sources of documents in a full core."""

    def quads(self) -> Iterator[Write]:
        keys = self.snapshot.keys
        is_new = self._filter(has_any(self.snapshot, keys.quads()))
        sourced = ((quad, self._source(source)) for quad, source in self.core.quads)
        placed = ((self.quad_writes.hashes.place(*quad), *quad) for quad in sourced)
        for place, quad, source in is_new(placed, lambda placed_quad: keys.quad(placed_quad[0])):
            self.counts.quads += 1
            yield from self.quad_writes.add_at(place, quad, source)

    def vectors(self) -> Iterator[Write]:
        is_new = self._filter(has_any(self.snapshot, self.snapshot.keys.all_entity_vectors()))
        sourced = (replace(vector, source=self._source(vector.source)) for vector in self.core.vectors)
        for write in is_new(map(self.vector_writes.put, sourced), lambda write: write.key):
            self.counts.entity_vectors += 1
            yield write

    def documents(self, known: Mapping[str, LibraryDocument]) -> Iterator[Write]:
        """`known` are the corpus's documents with the same ids, as `known_documents` returns them."""
        kept: set[str] = set()
        for part in self.core.library_records():
            if isinstance(part, Record):
                yield from self._described(part, known, kept)
        for part in self.core.library_records():
            document = self.core.library.content_at(part) if isinstance(part, Blob) else None
            if document is not None and isinstance(part, Blob) and document in kept:
                yield from self.library_writes.put_content(document, self._source_of(document), part.pieces())

    def known_documents(self, skips: Skips) -> dict[str, LibraryDocument]:
        """Returns the corpus's documents with the same ids.

        Raises `Exists` if another source has a different document with the same id.
        """
        if not has_any(self.snapshot, self.snapshot.keys.library_documents()):
            return {}
        known: dict[str, LibraryDocument] = {}
        for some in batches(self.core.library.ids()):
            found = self.snapshot.find(some, self._find, lambda keys, id_: keys.library_document(self.places(id_)))
            known |= {id_: document for id_, document in zip(some, found, strict=True) if document is not None}
        for document in known.values():
            self._check_own(document, skips)
        return known

    def _described(self, record: Record, known: Mapping[str, LibraryDocument], kept: set[str]) -> Iterator[Write]:
        document = self.core.library.stored_document(record, self._source_of(read_library(record).id))
        before = None if document is None else known.get(document.id)
        if document is None or before == document or (before is not None and before.source != document.source):
            return
        kept.add(document.id)
        self.counts.library_documents += 1
        yield self.library_writes.put(document)
        if before is not None:
            yield from self.library_writes.shorten(document, before)

    def _find(self, view: CorpusAtRevision, document: str) -> LibraryDocument | None:
        return find_document(view, self.places(document))

    def _check_own(self, known: LibraryDocument, skips: Skips) -> None:
        if known.source == self._source_of(known.id):
            return
        if not self.core.library.same_content(known):
            message = "the corpus has a different library document with the same id from another source"
            raise Exists(Reason.NODE_EXISTS, message, document=known.id)
        place = self.core.library.place_of(known.id)
        skips.skip(place, DUPLICATE, "the corpus has the same document from another source", known.id)

    def _source(self, source: SourceId) -> SourceId:
        return source if self.source is None else self.source

    def _source_of(self, document: str) -> SourceId:
        return self.document_sources.get(document, SourceId("")) if self.source is None else self.source

    def _filter(self, has_some: bool) -> _NewItems:
        return _NewItems(self.snapshot, has_some)


@dataclass(frozen=True, slots=True)
class _NewItems:
    """Filters items: leaves out those whose keys the corpus has. Without any keys, `has_some` is false."""

    snapshot: BatchedReads
    has_some: bool

    def __call__(self, items: Iterable[T], key_of: Callable[[T], bytes]) -> Iterator[T]:
        if not self.has_some:
            yield from items
            return
        for some in batches(items):
            known = self.snapshot.together(list(map(key_of, some)), _are_there)
            yield from (item for item, is_known in zip(some, known, strict=True) if not is_known)


def _are_there(view: CorpusAtRevision, keys: Sequence[bytes]) -> list[bool]:
    return versioned.are_there(view.tr, keys, view.revision)


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Cuts items into lists that can be looked up in one transaction."""
    todo = iter(items)
    while batch := list(islice(todo, _BATCH)):
        yield batch
