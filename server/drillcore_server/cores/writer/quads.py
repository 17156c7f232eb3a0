"""Writes the quads and the vectors of a core: records `t`, `ge` and `de`, sorted by source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple, Self
from uuid import UUID

import numpy as np

from drillcore_formats.cores.format import DOCUMENT_EMBEDDINGS, GRAPH_EMBEDDINGS, TRIPLES
from drillcore_formats.quads import Iri
from drillcore_server.cores import entity_vectors
from drillcore_server.cores.model import EntityVector, VectorKind
from drillcore_server.cores.writer.core_file import CoreFile
from drillcore_server.cores.writer.core_records import embedded_chunk, encoded_triple, entity, floats, term, triple
from drillcore_server.facts.store import fact_id
from drillcore_server.graphs.provenance import every_source_quad
from drillcore_server.graphs.quad_model import Quad, decoded_term, iri_of
from drillcore_server.graphs.quad_store import parted_record
from drillcore_server.hierarchy.store import DOCUMENT, HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.storage.ids import NodeId, SourceId
from drillcore_server.storage.sealed_file import SortedFile

_END: Final = b"\0\0"


class BySource:
    """Sorts items: those without a source, then by source and by themselves. Call `add`, then `groups`. Equal items
    come once."""

    def __init__(self) -> None:
        self._file = SortedFile()

    def add(self, source: bytes, item: bytes) -> None:
        """`source` is the source's id in UTF-8."""
        self._file.add(in_order(source) + item)

    def groups(self) -> Iterator[tuple[SourceId, Iterator[bytes]]]:
        """Yields groups. Read each before the next."""
        parted = map(cut, self._file)
        for source, together in groupby(parted, key=lambda item: item[0]):
            yield SourceId(source.decode()), (item for _, item in together)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def in_order(data: bytes) -> bytes:
    """Returns bytes that others can follow without changing the order: the shorter of two comes first."""
    return (data.replace(b"\0", b"\0\xff") if b"\0" in data else data) + _END


def cut(data: bytes) -> tuple[bytes, bytes]:
    """Returns what `in_order` was given, and what follows it."""
    first, _, rest = data.partition(_END)
    return first.replace(b"\0\xff", b"\0") if b"\0" in first else first, rest


_QUADS_MAX: Final = 500
"""Held at once: a literal may have several megabytes, in as many keys as it takes."""


class ForeignVector(NamedTuple):
    source: SourceId
    entity: bytes
    """An encoded term; for a piece of a document, its id."""
    numbers: bytes
    """Packed."""


def write_quads(core: CoreFile, snapshot: BatchedReads, retrieval: Iterable[Quad], *, hierarchy: bool) -> None:
    """Writes the quads that were put, by source; then those about provenance; then those that are given."""
    with BySource() as quads:
        for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.quads(), _QUADS_MAX)):
            quads.add(*parted_record(entry.value))
        for source, some in quads.groups():
            core.write_list(TRIPLES, map(encoded_triple, some), source)
    core.write_list(TRIPLES, map(triple, every_source_quad(snapshot, hierarchy=hierarchy)))
    core.write_list(TRIPLES, map(triple, retrieval))


def write_graph_vectors(core: CoreFile, snapshot: BatchedReads, model: int | None) -> None:
    """Writes vectors of other systems' entities, by source; then those of facts, by id, that this model made."""
    with BySource() as vectors:
        _sort(vectors, snapshot, VectorKind.GRAPH)
        for source, some in vectors.groups():
            packed = (entity(term(decoded_term(vector.entity)), vector.numbers) for vector in _read(source, some))
            core.write_list(GRAPH_EMBEDDINGS, packed, source)
    if model is not None:
        core.write_list(GRAPH_EMBEDDINGS, _facts(snapshot, model))


def write_document_vectors(core: CoreFile, snapshot: BatchedReads, model: int | None) -> None:
    """Writes vectors of pieces of other systems' documents, by source; then those of chunks, by document."""
    with BySource() as vectors:
        _sort(vectors, snapshot, VectorKind.DOCUMENT)
        for source, some in vectors.groups():
            packed = (embedded_chunk(vector.entity.decode(), vector.numbers) for vector in _read(source, some))
            core.write_list(DOCUMENT_EMBEDDINGS, packed, source)
    if model is not None:
        core.write_list(DOCUMENT_EMBEDDINGS, _chunks(snapshot, model))


def foreign_embeddings(snapshot: BatchedReads) -> Iterator[ForeignVector]:
    """Yields vectors of pieces of other systems' documents, by source and id."""
    with BySource() as vectors:
        _sort(vectors, snapshot, VectorKind.DOCUMENT)
        for source, some in vectors.groups():
            yield from _read(source, some)


def _sort(vectors: BySource, snapshot: BatchedReads, kind: VectorKind) -> None:
    for vector in entity_vectors.vectors(snapshot, kind):
        vectors.add(vector.source.encode(), in_order(vector.entity) + _numbers(vector))


def _numbers(vector: EntityVector) -> bytes:
    return floats(entity_vectors.unpacked(vector))


def _read(source: SourceId, some: Iterable[bytes]) -> Iterator[ForeignVector]:
    return (ForeignVector(source, *cut(packed)) for packed in some)


def _facts(snapshot: BatchedReads, model: int) -> Iterator[bytes]:
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.fact_vectors(model))):
        yield entity(term(Iri(iri_of("fact", fact_id(entry.key)))), _halves(entry.value))


def _chunks(snapshot: BatchedReads, model: int) -> Iterator[bytes]:
    def read(view: CorpusAtRevision, chunk: NodeId) -> tuple[NodeId, bytes] | None:
        stored = HierarchyReader(view).vector(model, chunk)
        return None if stored is None else (chunk, stored)

    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.documents())):
        document = DOCUMENT.decode(entry.value)
        for chunk, vector in snapshot.each_left(document.chunks, read):
            yield embedded_chunk(iri_of("chunk", chunk), _halves(vector))


def _halves(stored: bytes) -> bytes:
    return floats(np.frombuffer(stored, "<f2"))


_ID_BYTES: Final = 16
_ID: Final = "S16"
"""numpy drops zeros at the end. All have one length, so none become equal."""


class IdSet:
    """Many ids in little memory. Add them in order, then ask."""

    def __init__(self) -> None:
        self._ids = bytearray()

    def add(self, id_: UUID) -> None:
        assert id_.bytes > self._ids[-_ID_BYTES:], "they are added in order"
        self._ids += id_.bytes

    def __contains__(self, id_: UUID) -> bool:
        return bool(self.among(id_.bytes))

    def among(self, ids: bytes) -> bytes:
        """Returns those of the ids, packed one after the other, that are in it."""
        if not self._ids:
            return b""
        known, asked = np.frombuffer(self._ids, _ID), np.frombuffer(ids, _ID)
        places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        rows = np.frombuffer(ids, np.uint8).reshape(-1, _ID_BYTES)
        return bytes(rows[known[places] == asked])
