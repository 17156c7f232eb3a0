"""Documents that came with cores of other systems, and the writes that keep them: content in pieces of its own."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_fdb.tuples import KeyRange
from drillcore_server.domain.foreign import LibraryDocument
from drillcore_server.domain.ids import CorpusNumber, SourceId
from drillcore_server.store import versioned
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import CORPUS_SCOPE, KeyNumber, Keyring
from drillcore_server.store.records import RecordKind
from drillcore_server.store.sealed import keys_of
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.writes import Write

LIBRARY_DOCUMENT = RecordKind(LibraryDocument)
PIECE_BYTES: Final = 64 * 1024
"""Of a document's content, in one record; only the last may be shorter."""
_HASH_BYTES: Final = 16
_PIECES_MAX: Final = 50
_DOCUMENTS_MAX: Final = 200
"""Held at once: a document's description may have half a megabyte."""


@dataclass(frozen=True, slots=True)
class LibraryPlaces:
    """What stands for documents in keys: a keyed hash of their ids."""

    secret: bytes

    @classmethod
    def of(cls, keyring: Keyring, number: CorpusNumber) -> LibraryPlaces:
        (corpus_key,) = keyring.numbers(number, [CORPUS_SCOPE])
        return cls(keyring.derived(corpus_key, b"library"))

    def __call__(self, document: str) -> bytes:
        return hmac.digest(self.secret, document.encode(), "sha256")[:_HASH_BYTES]


def find(view: CorpusView, place: bytes) -> LibraryDocument | None:
    """Raises `KeyErased` if its source was erased."""
    entry = view.sealed.get(view.tr, view.keys.library_document(place), view.revision)
    return None if entry is None else LIBRARY_DOCUMENT.decode(entry.value)


def documents(snapshot: Snapshot) -> Iterator[LibraryDocument]:
    """All that were not erased, in the order of their places in keys."""
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.library_documents(), _DOCUMENTS_MAX)):
        yield LIBRARY_DOCUMENT.decode(entry.value)


def content(snapshot: Snapshot, place: bytes) -> Iterator[bytes]:
    """What a document says, in pieces of `PIECE_BYTES`. Raises `KeyErased` if its source was erased."""
    for entry in snapshot.entries(snapshot.keys.library_blobs(place), _PIECES_MAX):
        yield snapshot.sealed.opened(entry).value


def without_source(snapshot: Snapshot, number: KeyNumber) -> Iterator[Write]:
    """Removes every document of a source, known by the key that it is sealed under."""
    for keys in (snapshot.keys.library_documents(), snapshot.keys.all_library_blobs()):
        yield from removals(snapshot, keys, number)


def removals(snapshot: Snapshot, keys: KeyRange, number: KeyNumber) -> Iterator[Write]:
    """Removes what of a range is sealed under a key."""
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
        """`pieces` are the document's content, however it is cut."""
        place, key = self._place(document), self._key(source)
        for number, piece in enumerate(_even(pieces)):
            yield Write(self._keys.library_blob(place, number), piece, key)

    def shorten(self, document: LibraryDocument, before: LibraryDocument) -> Iterator[Write]:
        """Removes the pieces that the document has no more, in whose place another one comes."""
        place = self._place(document.id)
        for number in range(piece_count(document), piece_count(before)):
            yield Write(self._keys.library_blob(place, number), None)

    def _key(self, source: SourceId) -> KeyNumber:
        (number,) = self._keyring.numbers(self._number, [source])
        return number


def _even(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut into pieces of `PIECE_BYTES`, but the last."""
    left = bytearray()
    for piece in pieces:
        left += piece
        while len(left) >= PIECE_BYTES:
            yield bytes(left[:PIECE_BYTES])
            del left[:PIECE_BYTES]
    if left:
        yield bytes(left)


def piece_count(document: LibraryDocument) -> int:
    """Into how many records its content is cut."""
    return -(-document.size_bytes // PIECE_BYTES)


def piece_place(key: bytes) -> tuple[bytes, int]:
    """The document that a piece's key is of, and which piece of it."""
    return key[-_HASH_BYTES - 4 : -4], int.from_bytes(key[-4:], "big")


def is_there(snapshot: Snapshot, keys: KeyRange) -> bool:
    """Whether the revision has anything in a range."""
    begin: bytes | None = keys.begin
    while begin is not None:
        found, begin = snapshot.read(
            lambda view, b=begin: versioned.page(view.tr, b, keys.end, snapshot.revision, 100)  # type: ignore[misc]
        )
        if found:
            return True
    return False
