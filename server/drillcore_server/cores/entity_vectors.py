"""Stores vectors that came with cores of other systems.

Each is a record of its own, and its key is a hash of its content: an entity may have several vectors, from several
sources, and the same vector twice is the same record.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_server.cores.library_store import removals
from drillcore_server.cores.model import EntityVector, VectorKind
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyNumber, Keyring
from drillcore_server.storage.records import RecordKind

ENTITY_VECTOR = RecordKind(EntityVector)
_HASH_BYTES: Final = 16
_VECTORS_MAX: Final = 200
"""Held at once: a vector may take half a megabyte."""


def vectors(snapshot: BatchedReads, kind: VectorKind) -> Iterator[EntityVector]:
    """Yields all vectors of a kind that were not erased, in the order of their keys."""
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.entity_vectors(kind), _VECTORS_MAX)):
        yield ENTITY_VECTOR.decode(entry.value)


def without_source(snapshot: BatchedReads, number: KeyNumber) -> Iterator[Write]:
    """Removes every vector of a source, which is known by the key that seals it."""
    return removals(snapshot, snapshot.keys.all_entity_vectors(), number)


class EntityVectorWrites:
    def __init__(self, keys: CorpusKeys, number: CorpusNumber, keyring: Keyring) -> None:
        self._keys = keys
        self._number = number
        self._keyring = keyring
        (corpus_key,) = keyring.numbers(number, [CORPUS_SCOPE])
        self._secret = keyring.derived(corpus_key, b"entity vectors")

    def put(self, vector: EntityVector) -> Write:
        (number,) = self._keyring.numbers(self._number, [vector.source])
        stored = ENTITY_VECTOR.encode(vector)
        return Write(self._key(vector.kind, stored), stored, number, is_dense=True)

    def key(self, vector: EntityVector) -> bytes:
        return self._key(vector.kind, ENTITY_VECTOR.encode(vector))

    def _key(self, kind: VectorKind, stored: bytes) -> bytes:
        return self._keys.entity_vector(kind, hmac.digest(self._secret, stored, "sha256")[:_HASH_BYTES])


def packed(floats: Sequence[float] | npt.NDArray[np.float64]) -> bytes:
    """Packs finite numbers as they are stored."""
    exact = np.asarray(floats, np.float64)
    with np.errstate(over="ignore", under="ignore"):  # the comparison shows a number that does not fit
        short = exact.astype("<f4")
    return (short if np.array_equal(short, exact) else exact.astype("<f8")).tobytes()


def unpacked(vector: EntityVector) -> npt.NDArray[np.float32] | npt.NDArray[np.float64]:
    width = len(vector.vector) // vector.dimensions
    return np.frombuffer(vector.vector, "<f4" if width == 4 else "<f8")
