"""Stores documents that came with cores of other systems, with their content in separate pieces."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_fdb.tuples import KeyRange
from drillcore_server.cores.model import LibraryDocument
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, SourceId
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyNumber, Keyring
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import keys_of

LIBRARY_DOCUMENT = RecordKind(LibraryDocument)
PIECE_BYTES: Final = 64 * 1024
"""The content in one record; only the last may be shorter."""
_HASH_BYTES: Final = 16
_PIECES_MAX: Final = 50
_DOCUMENTS_MAX: Final = 200
"""Held at once: the description of a document may take half a megabyte."""


@dataclass(frozen=True, slots=True)
class LibraryPlaces:
    """Stands for documents in keys: a keyed hash of their ids."""

    secret: bytes

    @classmethod
    def of(cls, keyring: Keyring, number: CorpusNumber) -> LibraryPlaces:
        (corpus_key,) = keyring.numbers(number, [CORPUS_SCOPE])
        return cls(keyring.derived(corpus_key, b"library"))

    def __call__(self, document: str) -> bytes:
        return hmac.digest(self.secret, document.encode(), "sha256")[:_HASH_BYTES]


def find(view: CorpusAtRevision, place: bytes) -> LibraryDocument | None:
    """Raises `KeyErased` if its source was erased."""
    entry = view.sealed.get(view.tr, view.keys.library_document(place), view.revision)
    return None if entry is None else LIBRARY_DOCUMENT.decode(entry.value)


def documents(snapshot: BatchedReads) -> Iterator[LibraryDocument]:
    """Yields all documents that were not erased, in the order of their keys."""
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.library_documents(), _DOCUMENTS_MAX)):
        yield LIBRARY_DOCUMENT.decode(entry.value)


def content(snapshot: BatchedReads, place: bytes) -> Iterator[bytes]:
    """Yields the content of a document in pieces of `PIECE_BYTES`. Raises `KeyErased` if its source was erased."""
    for entry in snapshot.entries(snapshot.keys.library_blobs(place), _PIECES_MAX):
        yield snapshot.sealed.opened(entry).value


def without_source(snapshot: BatchedReads, number: KeyNumber) -> Iterator[Write]:
    """Removes every document of a source, which is known by the key that seals it."""
    for keys in (snapshot.keys.library_documents(), snapshot.keys.all_library_blobs()):
        yield from removals(snapshot, keys, number)


def removals(snapshot: BatchedReads, keys: KeyRange, number: KeyNumber) -> Iterator[Write]:
    """Removes the records of a range that are sealed under a key."""
    for entry in snapshot.entries(keys):
        if number in keys_of(entry.value):
            yield Write(entry.key, None)


class LibraryWrites:
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
    """Returns the document of a piece's key, and the number of the piece."""
    return key[-_HASH_BYTES - 4 : -4], int.from_bytes(key[-4:], "big")


def is_there(snapshot: BatchedReads, keys: KeyRange) -> bool:
    """Tells whether the revision has anything in a range."""
    begin: bytes | None = keys.begin
    while begin is not None:
        found, begin = snapshot.read(
            lambda view, b=begin: versioned.page(view.tr, b, keys.end, snapshot.revision, 100)  # type: ignore[misc]
        )
        if found:
            return True
    return False
