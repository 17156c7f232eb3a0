"""Writes the quads and the vectors of a core: records `t`, `ge` and `de`, sorted by source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple, Self
from uuid import UUID

import numpy as np

from drillcore_formats.cores.format import DOCUMENT_EMBEDDINGS, GRAPH_EMBEDDINGS, TRIPLES
from drillcore_formats.quads import Iri
from drillcore_server.cores import foreign_store
from drillcore_server.cores.model import EntityVector, VectorKind
from drillcore_server.cores.writer.core_file import CoreFile
from drillcore_server.cores.writer.core_records import (
    embedded_chunk,
    encoded_triple,
    entity,
    floats,
    term,
    triple,
)
from drillcore_server.facts.store import stored_vectors
from drillcore_server.graphs.derived_quads import every_source_quad
from drillcore_server.graphs.quad_model import Quad, decoded_term, iri_of
from drillcore_server.graphs.quad_store import parted_record
from drillcore_server.hierarchy.store import DOCUMENT
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.storage.ids import NodeId, SourceId
from drillcore_server.storage.sealed_file import SortedFile
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.stored_vectors import unpacked

_END: Final = b"\0\0"


class BySource:
    """Sorts items by source, and by their bytes within a source. Items without a source come first.

    Call `add`, then `groups`. Equal items come once.
    """

    def __init__(self) -> None:
        self._file = SortedFile()

    def add(self, source: bytes, item: bytes) -> None:
        """`source` is the source's id in UTF-8."""
        self._file.add(in_order(source) + item)

    def groups(self) -> Iterator[tuple[SourceId, Iterator[bytes]]]:
        """Yields each source with its items. Read the items of a group before the next group."""
        parted = map(cut, self._file)
        for source, together in groupby(parted, key=lambda item: item[0]):
            yield SourceId(source.decode()), (item for _, item in together)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def in_order(data: bytes) -> bytes:
    """Returns bytes that keep their order when other bytes follow. If one value begins another, it comes first."""
    return (data.replace(b"\0", b"\0\xff") if b"\0" in data else data) + _END


def cut(data: bytes) -> tuple[bytes, bytes]:
    """Splits bytes into the argument of `in_order` and the bytes that follow it."""
    first, _, rest = data.partition(_END)
    return first.replace(b"\0\xff", b"\0") if b"\0" in first else first, rest


_VECTORS_AT_ONCE: Final = 500
"""Vectors of chunks that are read together."""
_QUADS_MAX: Final = 500
"""Quads that are held at once. A literal may have several megabytes."""


class ForeignVector(NamedTuple):
    source: SourceId
    entity: bytes
    """An encoded term; for a piece of a document, its id."""
    numbers: bytes
    """The vector, packed as in the core."""


def write_quads(core: CoreFile, snapshot: BatchedReads, retrieval: Iterable[Quad], *, hierarchy: bool) -> None:
    """Writes stored quads by source, then those of urn:graph:source, then those of `retrieval`."""
    with BySource() as quads:
        for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.quads(), _QUADS_MAX)):
            quads.add(*parted_record(entry.value))
        for source, items in quads.groups():
            core.write_list(TRIPLES, map(encoded_triple, items), source)
    core.write_list(TRIPLES, map(triple, every_source_quad(snapshot, hierarchy=hierarchy)))
    core.write_list(TRIPLES, map(triple, retrieval))


def write_graph_vectors(core: CoreFile, snapshot: BatchedReads, model: int | None) -> None:
    """Writes vectors of other systems' entities by source, then the vectors of facts by id, made by `model`."""
    with BySource() as vectors:
        _sort(vectors, snapshot, VectorKind.GRAPH)
        for source, items in vectors.groups():
            packed = (entity(term(decoded_term(vector.entity)), vector.numbers) for vector in _read(source, items))
            core.write_list(GRAPH_EMBEDDINGS, packed, source)
    if model is not None:
        core.write_list(GRAPH_EMBEDDINGS, _facts(snapshot, model))


def write_document_vectors(core: CoreFile, snapshot: BatchedReads, model: int | None) -> None:
    """Writes vectors of pieces of other systems' documents by source, then the vectors of chunks by document."""
    with BySource() as vectors:
        _sort(vectors, snapshot, VectorKind.DOCUMENT)
        for source, items in vectors.groups():
            packed = (embedded_chunk(vector.entity.decode(), vector.numbers) for vector in _read(source, items))
            core.write_list(DOCUMENT_EMBEDDINGS, packed, source)
    if model is not None:
        core.write_list(DOCUMENT_EMBEDDINGS, _chunks(snapshot, model))


def foreign_embeddings(snapshot: BatchedReads) -> Iterator[ForeignVector]:
    """Yields vectors of pieces of other systems' documents, by source and id."""
    with BySource() as vectors:
        _sort(vectors, snapshot, VectorKind.DOCUMENT)
        for source, items in vectors.groups():
            yield from _read(source, items)


def _sort(vectors: BySource, snapshot: BatchedReads, kind: VectorKind) -> None:
    for vector in foreign_store.entity_vectors(snapshot, kind):
        vectors.add(vector.source.encode(), in_order(vector.entity) + _numbers(vector))


def _numbers(vector: EntityVector) -> bytes:
    return floats(foreign_store.unpacked_floats(vector))


def _read(source: SourceId, items: Iterable[bytes]) -> Iterator[ForeignVector]:
    return (ForeignVector(source, *cut(packed)) for packed in items)


def _facts(snapshot: BatchedReads, model: int) -> Iterator[bytes]:
    for fact, vector in stored_vectors(snapshot, model):
        yield entity(term(Iri(iri_of("fact", fact))), floats(unpacked(vector)))


def _chunks(snapshot: BatchedReads, model: int) -> Iterator[bytes]:
    def read(view: CorpusAtRevision, chunks: Sequence[NodeId]) -> list[Entry | None]:
        return view.opened([view.keys.vector(model, chunk) for chunk in chunks])

    stored = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.documents()))
    documents = (DOCUMENT.decode(entry.value) for entry in stored)
    for document, vectors in snapshot.of_each(documents, lambda document: document.chunks, read, _VECTORS_AT_ONCE):
        for chunk, vector in zip(document.chunks, vectors, strict=True):
            if vector is not None:
                yield embedded_chunk(iri_of("chunk", chunk), floats(unpacked(vector.value)))


_ID_BYTES: Final = 16
_ID: Final = "S16"
"""numpy drops zero bytes at the end of a value. All ids have the same length, so two of them never become equal."""


class IdSet:
    """A set of many ids in little memory. Add the ids in order, then query the set."""

    def __init__(self) -> None:
        self._ids = bytearray()

    def add(self, id_: UUID) -> None:
        assert id_.bytes > self._ids[-_ID_BYTES:], "they are added in order"
        self._ids += id_.bytes

    def __contains__(self, id_: UUID) -> bool:
        return bool(self.among(id_.bytes))

    def among(self, ids: bytes) -> bytes:
        """Returns those ids that are in the set. Both input and result are packed one after the other."""
        if not self._ids:
            return b""
        known, asked = np.frombuffer(self._ids, _ID), np.frombuffer(ids, _ID)
        places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        rows = np.frombuffer(ids, np.uint8).reshape(-1, _ID_BYTES)
        return bytes(rows[known[places] == asked])
