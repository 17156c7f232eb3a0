"""Summarises a core file, without a server."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeVar

from drillcore_formats.cores.format import (
    DOCUMENT_EMBEDDINGS,
    GRAPH_EMBEDDINGS,
    LIBRARY_METADATA,
    LISTS,
    PART_BYTES_MAX,
    TRIPLES,
    InvalidTerm,
)
from drillcore_formats.cores.framing import Blob, Record, blob_content, file_pieces, located, read_core
from drillcore_formats.cores.parts import END, PART_KIND, ROOT_KIND, CoreRoot, part_arrays
from drillcore_formats.cores.records import (
    LibraryDocument,
    Listing,
    read_chunk,
    read_entity,
    read_library,
    read_listing,
)
from drillcore_formats.cores.terms import read_triple

Item = TypeVar("Item")

GRAPHS_MAX: Final = 1_000
"""Graphs that are counted separately. The rest are counted together as `OTHER_GRAPHS`."""
OTHER_GRAPHS: Final = "(other graphs)"
DEFAULT_GRAPH: Final = "(default graph)"


@dataclass(frozen=True, slots=True)
class CoreSummary:
    size_bytes: int
    sha256: str
    core_id: str
    """From the root, or the first record that has one."""
    records: Mapping[str, int]
    """Number of records, by tag."""
    quads: Mapping[str, int]
    """Number of quads, by graph."""
    entities: Mapping[int, int]
    """Number of entity vectors, by dimension."""
    chunks: Mapping[int, int]
    """Number of chunk vectors in a core of document embeddings, by dimension."""
    library_documents: int
    """Leaves out the root and the parts of a full core."""
    library_bytes: int
    """Bytes of their content."""
    invalid_terms: int
    """Triples and entities with a term that is not valid RDF."""
    root: CoreRoot | None
    """None unless it is a full core."""
    parts: Mapping[str, int]
    """Number of records in the parts of a full core, by kind."""
    whole: bool
    """Whether a full core has its end. False for other cores, which have no end to check."""


def inspect(file: Path | str | IO[bytes]) -> CoreSummary:
    """Reads the whole file but holds little of it in memory. Raises `InvalidCore`."""
    inspector = _Inspector()
    for part in read_core(inspector.hashed(file_pieces(file))):
        with located(part.number, part.offset):
            inspector.take(part)
    return inspector.summary()


class _Inspector:
    def __init__(self) -> None:
        self._hash, self._size = hashlib.sha256(), 0
        self._core_id = ""
        self._records: Counter[str] = Counter()
        self._quads: Counter[str] = Counter()
        self._entities: Counter[int] = Counter()
        self._chunks: Counter[int] = Counter()
        self._parts: Counter[str] = Counter()
        self._library = self._library_bytes = self._invalid = 0
        self._root: CoreRoot | None = None
        self._last = ""
        self._own: LibraryDocument | None = None
        """The root or part whose content comes next."""

    def hashed(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._hash.update(piece)
            self._size += len(piece)
            yield piece

    def take(self, part: Record | Blob) -> None:
        self._records[part.tag] += 1
        if isinstance(part, Blob):
            self._blob(part)
        elif part.tag == LIBRARY_METADATA:
            self._document(read_library(part))
        elif part.tag in LISTS:
            self._listing(read_listing(part))

    def summary(self) -> CoreSummary:
        return CoreSummary(
            size_bytes=self._size,
            sha256=self._hash.hexdigest(),
            core_id=self._core_id,
            records=dict(self._records),
            quads=dict(self._quads),
            entities=dict(self._entities),
            chunks=dict(self._chunks),
            library_documents=self._library,
            library_bytes=self._library_bytes,
            invalid_terms=self._invalid,
            root=self._root,
            parts=dict(self._parts),
            whole=self._last == END,
        )

    def _listing(self, listing: Listing) -> None:
        self._core_id = self._core_id or listing.meta.core
        take = {TRIPLES: self._triple, GRAPH_EMBEDDINGS: self._entity, DOCUMENT_EMBEDDINGS: self._chunk}
        if listing.record.tag == TRIPLES:
            self._each(listing.meta.triples, self._triple)
        self._each(listing.items(), take[listing.record.tag])

    def _each(self, items: Iterable[Item], count: Callable[[Item], None]) -> None:
        for item in items:
            try:
                count(item)
            except InvalidTerm:
                self._invalid += 1

    def _triple(self, item: object) -> None:
        graph = read_triple(item).graph or DEFAULT_GRAPH
        known = graph in self._quads or len(self._quads) < GRAPHS_MAX
        self._quads[graph if known else OTHER_GRAPHS] += 1

    def _entity(self, item: dict[str, object]) -> None:
        self._entities.update(map(len, read_entity(item).vectors))

    def _chunk(self, item: dict[str, object]) -> None:
        self._chunks.update(map(len, read_chunk(item).vectors))

    def _document(self, document: LibraryDocument) -> None:
        is_own = document.kind in {ROOT_KIND, PART_KIND}
        self._own = document if is_own else None
        self._library += not is_own
        if document.kind == ROOT_KIND:
            self._core_id = document.id

    def _blob(self, blob: Blob) -> None:
        own = self._own
        if own is None or blob.id != own.id:
            self._library_bytes += sum(map(len, blob.pieces()))
        elif own.kind == ROOT_KIND:
            self._root = CoreRoot.parse(blob_content(blob, PART_BYTES_MAX))
        else:
            self._part(blob_content(blob, PART_BYTES_MAX))

    def _part(self, data: bytes) -> None:
        for array in part_arrays(data):
            self._last = array[0]
            self._parts[array[0]] += 1
