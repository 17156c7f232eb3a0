"""Checks the terms, triples and vectors of a core, and sorts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_formats.cores.format import InvalidTerm, WrongShape
from drillcore_formats.cores.records import Listing, read_chunk, read_entity
from drillcore_formats.cores.terms import PlainTerm, Triple, read_triple
from drillcore_formats.quads import Blank, Iri, Quoted, Term
from drillcore_server.cores.foreign_store import ENTITY_VECTOR, packed_floats
from drillcore_server.cores.model import (
    DERIVED,
    INVALID_TERM,
    LIBRARY_ID_CHARACTERS_MAX,
    OTHER_DIMENSION,
    VECTOR_DIMENSIONS_MAX,
    EntityVector,
    RecordPlace,
    Skips,
    VectorKind,
)
from drillcore_server.graphs.provenance_quads import is_derived
from drillcore_server.graphs.quad_model import (
    Quad,
    SourcedQuad,
    check_graph,
    check_quad,
    check_term,
    encoded_term,
    literal,
    named_by,
)
from drillcore_server.graphs.quad_store import decode_record, encode_record
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, SourceId
from drillcore_server.storage.sealed_file import SortedFile
from drillcore_server.vectors.stored_vectors import packed

_KNOWN_MAX: Final = 20_000
_KNOWN_CHARACTERS_MAX: Final = 500
"""IRIs up to this length are cached once they are checked, because neighbouring quads share most of theirs."""


def quad_of(triple: Triple) -> Quad:
    """Converts a triple to a quad. Raises `InvalidTerm` if a term is not valid RDF."""
    quad = Quad(term_of(triple.subject), term_of(triple.predicate), term_of(triple.object), triple.graph)
    try:
        if _is_plain(quad):
            _check_known_graph(quad.graph)
        else:
            check_quad(quad, "a triple")
    except BadInput as error:
        raise InvalidTerm(error.message) from None
    return quad


def entity_of(term: PlainTerm) -> Term:
    """Converts a term to an entity. Raises `InvalidTerm` if it is not valid RDF."""
    entity = term_of(term)
    try:
        check_term(entity, "an entity")
    except BadInput as error:
        raise InvalidTerm(error.message) from None
    return entity


def term_of(term: PlainTerm) -> Term:
    match term:
        case ("i", str(value)):
            return _known_iri(value) if len(value) <= _KNOWN_CHARACTERS_MAX else _iri(value)
        case ("b", str(label)):
            return Blank(label)
        case ("l", str(value), str(datatype), str(language)):
            return literal(value, datatype, language)
        case ("t", subject, predicate, object_):
            return Quoted(term_of(subject), term_of(predicate), term_of(object_))
        case _:
            raise InvalidTerm("a term is invalid")


def _is_plain(quad: Quad) -> bool:
    """Tells whether it consists of IRIs only, which are checked when they are made."""
    return isinstance(quad.subject, Iri) and isinstance(quad.predicate, Iri) and isinstance(quad.object, Iri)


def _iri(value: str) -> Iri:
    iri = Iri(value)
    try:
        check_term(iri, "an IRI")
    except BadInput as error:
        raise InvalidTerm(error.message) from None
    return iri


_known_iri = lru_cache(_KNOWN_MAX)(_iri)


@lru_cache(_KNOWN_MAX)
def _check_known_graph(graph: str) -> None:
    check_graph(graph, "a triple")


_NO_SOURCE = SourceId("")


class QuadIntake:
    """Keeps each quad once for each source. Quads of another system's core have no source until they are stored."""

    def __init__(self, skips: Skips, *, is_full: bool) -> None:
        self._skips = skips
        self._is_full = is_full
        self._file = SortedFile()
        self.sources: Counter[SourceId] = Counter()
        self.taken = 0
        """The number of triples in the file."""

    def take(self, listing: Listing) -> None:
        """Raises `WrongShape`."""
        source = listed_source(listing) if self._is_full else _NO_SOURCE
        derived = 0
        for item in _triples(listing):
            self.taken += 1
            try:
                quad = quad_of(read_triple(item))
            except InvalidTerm as error:
                self._skips.skip(listing.record, INVALID_TERM, str(error))
                continue
            if self._is_full and not source and is_derived(quad):
                derived += 1
                continue
            self.sources[source] += 1
            self._file.add(encode_record(quad, source))
        if derived:
            message = f"{derived} quads are computed again from the records of the core"
            self._skips.skip(listing.record, DERIVED, message, times=derived)

    def __iter__(self) -> Iterator[SourcedQuad]:
        """May be called any number of times."""
        return map(decode_record, self._file)

    def close(self) -> None:
        self._file.close()


def listed_source(listing: Listing) -> SourceId:
    """Returns the source that a record of a full core names. Raises `WrongShape`."""
    if len(listing.meta.source) > SOURCE_CHARACTERS_MAX:
        raise WrongShape(f"the id of its source has more than {SOURCE_CHARACTERS_MAX:,} characters")
    return SourceId(listing.meta.source)


def _triples(listing: Listing) -> Iterable[object]:
    """Triples about the core itself, in older files, are ordinary triples."""
    yield from listing.meta.triples
    yield from listing.items()


ID_BYTES = 16


class VectorIntake:
    """Vectors of other systems, each once for each source, and vectors of the facts of a full core, by fact."""

    def __init__(self, skips: Skips, *, fact_dimensions: int | None) -> None:
        """`fact_dimensions` is 0 for a full core without vectors of facts, and None for another system's core."""
        self._skips = skips
        self._fact_dimensions = fact_dimensions
        self._dimensions: dict[VectorKind, int] = {}
        self._file = SortedFile()
        self._of_facts = SortedFile()
        self.sources: Counter[SourceId] = Counter()
        self.taken = 0
        """The number of entities in the file."""

    def take_entities(self, listing: Listing) -> None:
        """Raises `WrongShape`."""
        source = _NO_SOURCE if self._fact_dimensions is None else listed_source(listing)
        of_facts = self._fact_dimensions is not None and not source
        for item in listing.items():
            self.taken += 1
            try:
                entity = read_entity(item)
                if of_facts:
                    self._take_fact(entity.term, entity.vectors)
                    continue
                named = encoded_term(entity_of(entity.term))
            except InvalidTerm as error:
                self._skips.skip(listing.record, INVALID_TERM, str(error))
                continue
            self._take(listing.record, VectorKind.GRAPH, named, source, entity.vectors)

    def take_chunks(self, listing: Listing) -> None:
        """Takes the chunks of a document-embeddings core. Raises `WrongShape`."""
        if self._fact_dimensions is not None:
            raise WrongShape("a full core must have the vectors of its chunks in their records")
        for item in listing.items():
            chunk = read_chunk(item)
            self._take(listing.record, VectorKind.DOCUMENT, checked_id(chunk.id), _NO_SOURCE, chunk.vectors)

    def take_document(self, document: str, source: SourceId, floats: object) -> None:
        """Takes a vector of a piece of another system's document, from a full core. Raises `WrongShape`."""
        if not isinstance(floats, list):
            raise WrongShape("a vector is not a list")
        self._keep(VectorKind.DOCUMENT, checked_id(document), source, checked_floats(floats))

    def __iter__(self) -> Iterator[EntityVector]:
        """Yields the vectors of other systems. May be called any number of times."""
        return map(ENTITY_VECTOR.decode, self._file)

    def of_facts(self) -> Iterator[tuple[UUID, bytes]]:
        """Yields facts and their vectors as stored, in the order of facts."""
        for item in self._of_facts:
            yield UUID(bytes=item[:ID_BYTES]), item[ID_BYTES:]

    def close(self) -> None:
        self._file.close()
        self._of_facts.close()

    def _take(
        self, record: RecordPlace, kind: VectorKind, entity: bytes, source: SourceId, vectors: Sequence[Sequence[float]]
    ) -> None:
        if not vectors:
            self._skips.skip(record, OTHER_DIMENSION, "the entity has no vector")
        for floats in map(checked_floats, vectors):
            expected = self._dimensions.setdefault(kind, len(floats)) if self._fact_dimensions is None else len(floats)
            if len(floats) == expected:
                self._keep(kind, entity, source, floats)
            else:
                message = f"a vector has {len(floats)} dimensions, but the first of its kind has {expected}"
                self._skips.skip(record, OTHER_DIMENSION, message)

    def _keep(self, kind: VectorKind, entity: bytes, source: SourceId, floats: npt.NDArray[np.float64]) -> None:
        self.sources[source] += 1
        self._file.add(ENTITY_VECTOR.encode(EntityVector(kind, entity, source, len(floats), packed_floats(floats))))

    def _take_fact(self, term: PlainTerm, vectors: Sequence[Sequence[float]]) -> None:
        named = named_by(term[1]) if term[0] == "i" else None
        if named is None or named.kind != "fact" or len(vectors) != 1:
            raise WrongShape("a full core may have one vector for each fact, and vectors of other systems' sources")
        self._of_facts.add(UUID(named.id).bytes + fact_vector(vectors[0], self._fact_dimensions or 0))


def checked_floats(floats: Sequence[float]) -> npt.NDArray[np.float64]:
    """Raises `WrongShape` unless the numbers are finite and not too many."""
    if not 0 < len(floats) <= VECTOR_DIMENSIONS_MAX:
        raise WrongShape(f"a vector must have 1 to {VECTOR_DIMENSIONS_MAX:,} numbers")
    try:
        found = np.array(floats, np.float64)
    except (OverflowError, ValueError, TypeError):
        raise WrongShape("a vector contains something that is not a number") from None
    if not np.isfinite(found).all():
        raise WrongShape("a vector contains a number that is not finite")
    return found


def fact_vector(floats: Sequence[float], dimensions: int) -> bytes:
    """Returns a fact's vector as it is stored. Raises `WrongShape` unless single precision holds it exactly."""
    found = checked_floats(floats)
    with np.errstate(over="ignore", under="ignore"):
        single = found.astype(np.float32)
    if len(found) != dimensions or not np.array_equal(single, found):
        raise WrongShape(f"a vector of a fact is not of {dimensions} numbers of single precision")
    return stored_vector(single)


def stored_vector(vector: npt.NDArray[np.floating]) -> bytes:
    """Packs a vector as it is stored. Raises `WrongShape` unless it has a direction."""
    if not (np.isfinite(vector).all() and vector.any()):
        raise WrongShape("a vector is zero, or contains a number that is not finite")
    return packed(vector)


def checked_id(document: str) -> bytes:
    if not 0 < len(document) <= LIBRARY_ID_CHARACTERS_MAX:
        raise WrongShape(f"an id must have 1 to {LIBRARY_ID_CHARACTERS_MAX:,} characters")
    return document.encode()
