"""The part of fsck for records that came with cores: library documents, entity vectors and foreign signatures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.cores.foreign_store import (
    ENTITY_VECTOR,
    LIBRARY_DOCUMENT,
    EntityVectorWrites,
    LibraryPlaces,
    document_content,
    piece_count,
    piece_place,
)
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.signatures.store import SIGNATURE, ForeignSignatureWrites
from drillcore_server.storage.ids import SourceId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.versioned import Entry

_FLOAT_BYTES = (4, 8)


class ForeignCheck:
    """Checks one corpus at one revision. Holds the places of library documents in memory, not their content."""

    def __init__(self, snapshot: BatchedReads, keyring: Keyring, corpus: Corpus) -> None:
        self._snapshot = snapshot
        self._places = LibraryPlaces.of(keyring, corpus.number)
        self._vectors = EntityVectorWrites(snapshot.keys, corpus.number, keyring)
        self._signatures = ForeignSignatureWrites(snapshot.keys, corpus.number, keyring)
        self._pieces: dict[bytes, int] = {}
        """The number of pieces of each document, by its place."""
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
                yield f"a library document is stored under the key of another document: {entry.key.hex()}"
            elif not self._content_matches(place, document.sha256, document.size_bytes):
                yield f"the content of a library document does not match its hash and size: {entry.key.hex()}"

    def _content_matches(self, place: bytes, sha256: bytes, size_bytes: int) -> bool:
        hashed, counted = hashlib.sha256(), 0
        try:
            for piece in document_content(self._snapshot, place):
                hashed.update(piece)
                counted += len(piece)
        except EngineError:
            return False
        return counted == size_bytes and sha256 in ({hashed.digest()} if counted else {b"", hashed.digest()})

    def _contents(self) -> Iterator[str]:
        """Checks that every piece belongs to a document that has at least as many pieces."""
        for entry in self._snapshot.entries(self._snapshot.keys.all_library_blobs()):
            place, number = piece_place(entry.key)
            if number >= self._pieces.get(place, 0):
                yield f"a piece belongs to no library document: {entry.key.hex()}"

    def _entity_vectors(self) -> Iterator[str]:
        for entry in self._opened(self._snapshot.keys.all_entity_vectors()):
            if isinstance(entry, str):
                yield entry
                continue
            vector = ENTITY_VECTOR.decode(entry.value)
            self._sources.add(vector.source)
            if self._vectors.key(vector) != entry.key:
                yield f"a vector of an entity is stored under the key of another vector: {entry.key.hex()}"
            if len(vector.vector) not in {width * vector.dimensions for width in _FLOAT_BYTES}:
                yield f"a vector of an entity has the wrong length: {entry.key.hex()}"

    def _foreign_signatures(self) -> Iterator[str]:
        for entry in self._opened(self._snapshot.keys.all_foreign_signatures()):
            if isinstance(entry, str):
                yield entry
            elif self._signatures.key(SIGNATURE.decode(entry.value)) != entry.key:
                yield f"a foreign signature is stored under the key of another signature: {entry.key.hex()}"

    def _registered(self) -> Iterator[str]:
        """Checks that every source is registered. Nobody could erase an unregistered source."""
        sources = sorted(source for source in self._sources if source)
        known = self._snapshot.find(sources, lambda view, source: HierarchyReader(view).source(source) is not None)
        if missing := sum(not is_known for is_known in known):
            yield f"{missing} sources of records that came with cores are not registered"

    def _opened(self, keys: KeyRange) -> Iterator[Entry | str]:
        for entry in self._snapshot.entries(keys):
            try:
                yield self._snapshot.sealed.opened(entry)
            except EngineError as error:
                yield error.message
