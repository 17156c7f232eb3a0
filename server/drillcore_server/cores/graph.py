"""The quads and the vectors of a core: records `t`, `ge` and `de`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from drillcore.cores.tags import DOCUMENT_EMBEDDINGS, GRAPH_EMBEDDINGS, TRIPLES
from drillcore_server.cores.by_source import BySource, cut, in_order
from drillcore_server.cores.core_file import CoreFile
from drillcore_server.cores.packing import embedded_chunk, encoded_triple, entity, floats, term, triple
from drillcore_server.domain.foreign import EntityVector, VectorKind
from drillcore_server.domain.ids import NodeId, SourceId
from drillcore_server.domain.iris import iri_of
from drillcore_server.domain.quads import Iri, Quad, decoded_term
from drillcore_server.store import entity_vectors
from drillcore_server.store.facts import fact_id
from drillcore_server.store.hierarchy import DOCUMENT, CorpusView
from drillcore_server.store.provenance import every_source_quad
from drillcore_server.store.quads import parted_record
from drillcore_server.store.snapshot import Snapshot

_QUADS_MAX: Final = 500
"""Held at once: a literal may have several megabytes, in as many keys as it takes."""


class ForeignVector(NamedTuple):
    source: SourceId
    entity: bytes
    """An encoded term; of a piece of a document its id."""
    numbers: bytes
    """Packed."""


def write_quads(core: CoreFile, snapshot: Snapshot, retrieval: Iterable[Quad], *, hierarchy: bool) -> None:
    """Those that were put, by source; then what the records tell of where they come from; then those that are given."""
    with BySource() as quads:
        for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.quads(), _QUADS_MAX)):
            quads.add(*parted_record(entry.value))
        for source, some in quads.groups():
            core.write_list(TRIPLES, map(encoded_triple, some), source)
    core.write_list(TRIPLES, map(triple, every_source_quad(snapshot, hierarchy=hierarchy)))
    core.write_list(TRIPLES, map(triple, retrieval))


def write_graph_vectors(core: CoreFile, snapshot: Snapshot, model: int | None) -> None:
    """Of entities of other systems, by source; then of the facts, by id, that the model of this number made."""
    with BySource() as vectors:
        _sort(vectors, snapshot, VectorKind.GRAPH)
        for source, some in vectors.groups():
            packed = (entity(term(decoded_term(one.entity)), one.numbers) for one in _read(source, some))
            core.write_list(GRAPH_EMBEDDINGS, packed, source)
    if model is not None:
        core.write_list(GRAPH_EMBEDDINGS, _facts(snapshot, model))


def write_document_vectors(core: CoreFile, snapshot: Snapshot, model: int | None) -> None:
    """Of pieces of other systems' documents, by source; then of the chunks, by document."""
    with BySource() as vectors:
        _sort(vectors, snapshot, VectorKind.DOCUMENT)
        for source, some in vectors.groups():
            packed = (embedded_chunk(one.entity.decode(), one.numbers) for one in _read(source, some))
            core.write_list(DOCUMENT_EMBEDDINGS, packed, source)
    if model is not None:
        core.write_list(DOCUMENT_EMBEDDINGS, _chunks(snapshot, model))


def foreign_embeddings(snapshot: Snapshot) -> Iterator[ForeignVector]:
    """Vectors of pieces of other systems' documents, by source and id."""
    with BySource() as vectors:
        _sort(vectors, snapshot, VectorKind.DOCUMENT)
        for source, some in vectors.groups():
            yield from _read(source, some)


def _sort(vectors: BySource, snapshot: Snapshot, kind: VectorKind) -> None:
    for one in entity_vectors.vectors(snapshot, kind):
        vectors.add(one.source.encode(), in_order(one.entity) + _numbers(one))


def _numbers(vector: EntityVector) -> bytes:
    return floats(entity_vectors.unpacked(vector))


def _read(source: SourceId, some: Iterable[bytes]) -> Iterator[ForeignVector]:
    return (ForeignVector(source, *cut(one)) for one in some)


def _facts(snapshot: Snapshot, model: int) -> Iterator[bytes]:
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.fact_vectors(model))):
        yield entity(term(Iri(iri_of("fact", fact_id(entry.key)))), _halves(entry.value))


def _chunks(snapshot: Snapshot, model: int) -> Iterator[bytes]:
    def read(view: CorpusView, chunk: NodeId) -> tuple[NodeId, bytes] | None:
        stored = view.vector(model, chunk)
        return None if stored is None else (chunk, stored)

    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.documents())):
        document = DOCUMENT.decode(entry.value)
        for chunk, vector in snapshot.each_left(document.chunks, read):
            yield embedded_chunk(iri_of("chunk", chunk), _halves(vector))


def _halves(stored: bytes) -> bytes:
    return floats(np.frombuffer(stored, "<f2"))
