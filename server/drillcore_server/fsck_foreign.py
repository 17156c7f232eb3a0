"""Proves that what came with cores agrees with itself: library documents with their contents, vectors, signatures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import SourceId
from drillcore_server.store.entity_vectors import ENTITY_VECTOR, EntityVectorWrites
from drillcore_server.store.foreign_signatures import ForeignSignatureWrites
from drillcore_server.store.keyring import Keyring
from drillcore_server.store.library import LIBRARY_DOCUMENT, LibraryPlaces, content, piece_count, piece_place
from drillcore_server.store.signatures import SIGNATURE
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.versioned import Entry

_FLOAT_BYTES = (4, 8)


class ForeignCheck:
    """One corpus at one revision. Of library documents their places are held, not what they say."""

    def __init__(self, snapshot: Snapshot, keyring: Keyring, corpus: Corpus) -> None:
        self._snapshot = snapshot
        self._places = LibraryPlaces.of(keyring, corpus.number)
        self._vectors = EntityVectorWrites(snapshot.keys, corpus.number, keyring)
        self._signatures = ForeignSignatureWrites(snapshot.keys, corpus.number, keyring)
        self._pieces: dict[bytes, int] = {}
        """Of each document, by its place."""
        self._sources: set[SourceId] = set()

    def problems(self) -> Iterator[str]:
        yield from self._documents()
        yield from self._contents()
        yield from self._entity_vectors()
        yield from self._foreign_signatures()
        yield from self._registered()

    def _documents(self) -> Iterator[str]:
        for entry in self._opened(self._snapshot.keys.library_documents()):
            if isinstance(entry, str):
                yield entry
                continue
            document = LIBRARY_DOCUMENT.decode(entry.value)
            place = self._places(document.id)
            self._pieces[place] = piece_count(document)
            self._sources.add(document.source)
            if entry.key != self._snapshot.keys.library_document(place):
                yield f"a library document is kept as another: {entry.key.hex()}"
            elif not self._says(place, document.sha256, document.size_bytes):
                yield f"the content of a library document is not what it says: {entry.key.hex()}"

    def _says(self, place: bytes, sha256: bytes, size_bytes: int) -> bool:
        hashed, counted = hashlib.sha256(), 0
        try:
            for piece in content(self._snapshot, place):
                hashed.update(piece)
                counted += len(piece)
        except EngineError:
            return False
        return counted == size_bytes and sha256 in ({hashed.digest()} if counted else {b"", hashed.digest()})

    def _contents(self) -> Iterator[str]:
        """Every piece is of a document that has so many; only the last may be short."""
        for entry in self._snapshot.entries(self._snapshot.keys.all_library_blobs()):
            place, number = piece_place(entry.key)
            if number >= self._pieces.get(place, 0):
                yield f"a piece of a library document is of none: {entry.key.hex()}"

    def _entity_vectors(self) -> Iterator[str]:
        for entry in self._opened(self._snapshot.keys.all_entity_vectors()):
            if isinstance(entry, str):
                yield entry
                continue
            vector = ENTITY_VECTOR.decode(entry.value)
            self._sources.add(vector.source)
            if self._vectors.key(vector) != entry.key:
                yield f"a vector of an entity is kept as another: {entry.key.hex()}"
            if len(vector.vector) not in {width * vector.dimensions for width in _FLOAT_BYTES}:
                yield f"a vector of an entity has another length: {entry.key.hex()}"

    def _foreign_signatures(self) -> Iterator[str]:
        for entry in self._opened(self._snapshot.keys.all_foreign_signatures()):
            if isinstance(entry, str):
                yield entry
            elif self._signatures.key(SIGNATURE.decode(entry.value)) != entry.key:
                yield f"a signature of another server is kept as another: {entry.key.hex()}"

    def _registered(self) -> Iterator[str]:
        sources = sorted(one for one in self._sources if one)
        known = self._snapshot.find(sources, lambda view, one: view.source(one) is not None)
        if missing := sum(not one for one in known):
            yield f"{missing} sources of what came with cores are not registered"

    def _opened(self, keys: KeyRange) -> Iterator[Entry | str]:
        for entry in self._snapshot.entries(keys):
            try:
                yield self._snapshot.sealed.opened(entry)
            except EngineError as error:
                yield error.message
