"""The vectors of a core, checked and put in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore.cores.failures import InvalidTerm, WrongShape
from drillcore.cores.records import Listing, read_chunk, read_entity
from drillcore.cores.terms import PlainTerm
from drillcore_server.domain.foreign import LIBRARY_ID_CHARACTERS_MAX, VECTOR_DIMENSIONS_MAX, EntityVector, VectorKind
from drillcore_server.domain.ids import SourceId
from drillcore_server.domain.iris import named_by
from drillcore_server.domain.quads import encoded_term
from drillcore_server.exporting.sorted_file import SortedFile
from drillcore_server.importing.quads import said_source
from drillcore_server.importing.report import INVALID_TERM, OTHER_DIMENSION, Placed, Skips
from drillcore_server.importing.terms import entity_of
from drillcore_server.store.entity_vectors import ENTITY_VECTOR, packed

_NO_SOURCE = SourceId("")
ID_BYTES = 16


class VectorIntake:
    """Those of other systems, each once for each source; and those of the facts of a full core, by fact."""

    def __init__(self, skips: Skips, *, fact_dimensions: int | None) -> None:
        """`fact_dimensions` of a full core: 0 if there are no vectors of facts. None of another's."""
        self._skips = skips
        self._fact_dimensions = fact_dimensions
        self._dimensions: dict[VectorKind, int] = {}
        self._file = SortedFile()
        self._of_facts = SortedFile()
        self.sources: Counter[SourceId] = Counter()
        self.taken = 0
        """Entities in the file."""

    def take_entities(self, listing: Listing) -> None:
        """Raises `WrongShape`."""
        source = _NO_SOURCE if self._fact_dimensions is None else said_source(listing)
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
        """Of a document-embeddings core. Raises `WrongShape`."""
        if self._fact_dimensions is not None:
            raise WrongShape("a full core has the vectors of its chunks elsewhere")
        for item in listing.items():
            chunk = read_chunk(item)
            self._take(listing.record, VectorKind.DOCUMENT, checked_id(chunk.id), _NO_SOURCE, chunk.vectors)

    def take_document(self, document: str, source: SourceId, floats: object) -> None:
        """Of a full core: a vector of a piece of another system's document. Raises `WrongShape`."""
        if not isinstance(floats, list):
            raise WrongShape("a vector is not a list")
        self._keep(VectorKind.DOCUMENT, checked_id(document), source, checked_floats(floats))

    def __iter__(self) -> Iterator[EntityVector]:
        """Those of other systems, as often as it is asked for."""
        return map(ENTITY_VECTOR.decode, self._file)

    def of_facts(self) -> Iterator[tuple[UUID, bytes]]:
        """Fact and vector, as it is stored, in the order of facts."""
        for item in self._of_facts:
            yield UUID(bytes=item[:ID_BYTES]), item[ID_BYTES:]

    def close(self) -> None:
        self._file.close()
        self._of_facts.close()

    def _take(
        self, record: Placed, kind: VectorKind, entity: bytes, source: SourceId, vectors: Sequence[Sequence[float]]
    ) -> None:
        if not vectors:
            self._skips.skip(record, OTHER_DIMENSION, "an entity has no vector")
        for floats in map(checked_floats, vectors):
            expected = self._dimensions.setdefault(kind, len(floats)) if self._fact_dimensions is None else len(floats)
            if len(floats) == expected:
                self._keep(kind, entity, source, floats)
            else:
                message = f"a vector has {len(floats)} dimensions, the first of its kind {expected}"
                self._skips.skip(record, OTHER_DIMENSION, message)

    def _keep(self, kind: VectorKind, entity: bytes, source: SourceId, floats: npt.NDArray[np.float64]) -> None:
        self.sources[source] += 1
        self._file.add(ENTITY_VECTOR.encode(EntityVector(kind, entity, source, len(floats), packed(floats))))

    def _take_fact(self, term: PlainTerm, vectors: Sequence[Sequence[float]]) -> None:
        named = named_by(term[1]) if term[0] == "i" else None
        if named is None or named.kind != "fact" or len(vectors) != 1:
            raise WrongShape("a full core has vectors of its facts, one each, and of sources of other systems")
        self._of_facts.add(UUID(named.id).bytes + half_floats(vectors[0], self._fact_dimensions or 0))


def checked_floats(floats: Sequence[float]) -> npt.NDArray[np.float64]:
    """Raises `WrongShape` unless they are finite, and not too many."""
    if not 0 < len(floats) <= VECTOR_DIMENSIONS_MAX:
        raise WrongShape(f"a vector has none, or more than {VECTOR_DIMENSIONS_MAX:,} numbers")
    try:
        found = np.array(floats, np.float64)
    except (OverflowError, ValueError, TypeError):
        raise WrongShape("a vector has something that is no number") from None
    if not np.isfinite(found).all():
        raise WrongShape("a vector has a number that is not finite")
    return found


def half_floats(floats: Sequence[float], dimensions: int) -> bytes:
    """A vector of ours as it is stored. Raises `WrongShape` if it is not of those that were."""
    found = checked_floats(floats)
    with np.errstate(over="ignore", under="ignore"):
        stored = found.astype("<f2")
    if len(found) != dimensions or not np.array_equal(stored, found):
        raise WrongShape(f"a vector of a fact is not of {dimensions} numbers of half precision")
    return stored.tobytes()


def checked_id(document: str) -> bytes:
    if not 0 < len(document) <= LIBRARY_ID_CHARACTERS_MAX:
        raise WrongShape(f"an id has 1 to {LIBRARY_ID_CHARACTERS_MAX:,} characters")
    return document.encode()
