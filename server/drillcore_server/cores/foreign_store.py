"""Stores records that came with cores of other systems: library documents, with their content in pieces, and vectors.

The key of a document has a keyed hash of its id. The key of a vector has a keyed hash of its record, because an entity
may have several vectors from several sources. The same vector twice is the same record.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_fdb.tuples import KeyRange
from drillcore_server.cores.model import EntityVector, LibraryDocument, VectorKind
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.holdings import Holdings
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, SourceId
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyNumber, Keyring
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.spaces import Space

LIBRARY_DOCUMENT = RecordKind(LibraryDocument)
ENTITY_VECTOR = RecordKind(EntityVector)
PIECE_BYTES: Final = 64 * 1024
"""The content in one record; only the last may be shorter."""
_HASH_BYTES: Final = 16
_PIECES_MAX: Final = 50
"""Pieces of content that are held at once."""
_DOCUMENTS_MAX: Final = 200
"""Documents that are held at once. The description of one may take half a megabyte."""
_VECTORS_MAX: Final = 200
"""Vectors that are held at once. One may take half a megabyte."""


@dataclass(frozen=True, slots=True)
class LibraryPlaces:
    """Makes the keyed hashes that stand for library documents in keys."""

    secret: bytes

    @classmethod
    def of(cls, keyring: Keyring, number: CorpusNumber) -> LibraryPlaces:
        (corpus_key,) = keyring.numbers(number, [CORPUS_SCOPE])
        return cls(keyring.derived(corpus_key, b"library"))

    def __call__(self, document: str) -> bytes:
        return hmac.digest(self.secret, document.encode(), "sha256")[:_HASH_BYTES]


def find_document(view: CorpusAtRevision, place: bytes) -> LibraryDocument | None:
    """Raises `KeyErased` if its source was erased."""
    entry = view.sealed.get(view.tr, view.keys.library_document(place), view.revision)
    return None if entry is None else LIBRARY_DOCUMENT.decode(entry.value)


def library_documents(snapshot: BatchedReads) -> Iterator[LibraryDocument]:
    """Yields all documents that were not erased, in the order of their keys."""
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.library_documents(), _DOCUMENTS_MAX)):
        yield LIBRARY_DOCUMENT.decode(entry.value)


def document_content(snapshot: BatchedReads, place: bytes) -> Iterator[bytes]:
    """Yields the content of a document in pieces of `PIECE_BYTES`. Raises `KeyErased` if its source was erased."""
    for entry in snapshot.entries(snapshot.keys.library_blobs(place), _PIECES_MAX):
        yield snapshot.sealed.opened(entry).value


def entity_vectors(snapshot: BatchedReads, kind: VectorKind) -> Iterator[EntityVector]:
    """Yields all vectors of a kind that were not erased, in the order of their keys."""
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.entity_vectors(kind), _VECTORS_MAX)):
        yield ENTITY_VECTOR.decode(entry.value)


def without_source(held: Holdings) -> Iterator[Write]:
    """Removes all documents, vectors and foreign signatures of a source."""
    for space in (Space.LIBRARY, Space.LIBRARY_BLOBS, Space.ENTITY_VECTORS, Space.FOREIGN_SIGNATURES):
        yield from (Write(entry.key, None) for entry in held.entries(space))


class LibraryWrites:
    """Makes the writes of library documents."""

    def __init__(self, keys: CorpusKeys, number: CorpusNumber, keyring: Keyring) -> None:
        self._keys = keys
        self._number = number
        self._keyring = keyring
        self._place = LibraryPlaces.of(keyring, number)

    def put(self, document: LibraryDocument) -> Write:
        key = self._keys.library_document(self._place(document.id))
        return Write(key, LIBRARY_DOCUMENT.encode(document), self._key(document.source))

    def put_content(self, document: str, source: SourceId, pieces: Iterable[bytes]) -> Iterator[Write]:
        """`pieces` are the document's content, cut in any way."""
        place, key = self._place(document), self._key(source)
        for number, piece in enumerate(_even(pieces)):
            yield Write(self._keys.library_blob(place, number), piece, key)

    def shorten(self, document: LibraryDocument, before: LibraryDocument) -> Iterator[Write]:
        """Removes the pieces of the former document that the new one in its place does not have."""
        place = self._place(document.id)
        for number in range(piece_count(document), piece_count(before)):
            yield Write(self._keys.library_blob(place, number), None)

    def _key(self, source: SourceId) -> KeyNumber:
        (number,) = self._keyring.numbers(self._number, [source])
        return number


class EntityVectorWrites:
    """Makes the writes of entity vectors."""

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


def _even(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cuts into pieces of `PIECE_BYTES`; only the last may be shorter."""
    left = bytearray()
    for piece in pieces:
        left += piece
        while len(left) >= PIECE_BYTES:
            yield bytes(left[:PIECE_BYTES])
            del left[:PIECE_BYTES]
    if left:
        yield bytes(left)


def piece_count(document: LibraryDocument) -> int:
    """Returns the number of records with its content."""
    return -(-document.size_bytes // PIECE_BYTES)


def piece_place(key: bytes) -> tuple[bytes, int]:
    """Returns the place of the document that a piece belongs to, and the number of the piece."""
    return key[-_HASH_BYTES - 4 : -4], int.from_bytes(key[-4:], "big")


def packed_floats(floats: Sequence[float] | npt.NDArray[np.float64]) -> bytes:
    """Packs finite numbers as they are stored: as 32-bit floats if that is exact, else as 64-bit floats."""
    exact = np.asarray(floats, np.float64)
    with np.errstate(over="ignore", under="ignore"):  # the comparison shows a number that does not fit
        short = exact.astype("<f4")
    return (short if np.array_equal(short, exact) else exact.astype("<f8")).tobytes()


def unpacked_floats(vector: EntityVector) -> npt.NDArray[np.float32] | npt.NDArray[np.float64]:
    width = len(vector.vector) // vector.dimensions
    return np.frombuffer(vector.vector, "<f4" if width == 4 else "<f8")


def has_any(snapshot: BatchedReads, *ranges: KeyRange) -> bool:
    """Tells whether the revision has anything in one of several ranges of keys, which are read together."""
    left = list(ranges)
    while left:
        pages = snapshot.read(lambda view, some=left: versioned.pages(view.tr, some, view.revision, 100))  # type: ignore[misc]
        if any(found for found, _ in pages):
            return True
        left = [
            KeyRange(following, of.end) for of, (_, following) in zip(left, pages, strict=True) if following is not None
        ]
    return False
