"""Buffers prepared documents on their way into a revision, in memory while they are few, then in a temporary file.

The file has no name, and its content is sealed with a key that only this buffer has. Nobody can read the file after the
buffer is closed or the process has ended.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import IO, Final, overload

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from drillcore_server.documents.ingestion.prepared_documents import PreparedChunk, PreparedDocument
from drillcore_server.hierarchy.model import Document

MEMORY_CHARACTERS_MAX: Final = 4_000_000
"""The most characters that a buffer keeps in memory. A character of a prepared document takes about 30 bytes."""
_READ_AGAIN_MAX: Final = 256
"""The number of chunks from the file that stay in memory: planning asks for each chunk of a section several times."""


class DocumentBuffer:
    """Holds prepared documents by number. The records of the documents are always in memory.

    Chunks in the file are read one by one on demand, because a section has chunks of many documents.
    """

    def __init__(self, memory_characters_max: int = MEMORY_CHARACTERS_MAX) -> None:
        self._memory_characters_max = memory_characters_max
        self._in_memory: dict[int, PreparedDocument] = {}
        self._in_file: dict[int, array[int]] = {}
        """The places in the file where the document's chunks begin, and where its last chunk ends."""
        self._characters = 0
        self._file: IO[bytes] | None = None
        self._cipher = AESGCM(AESGCM.generate_key(256))
        self._chunk = lru_cache(_READ_AGAIN_MAX)(self._read)
        self.documents: list[Document] = []

    def close(self) -> None:
        """Drops all documents."""
        self._in_memory.clear()
        self._chunk.cache_clear()
        if self._file is not None:
            self._file.close()

    def append(self, prepared: PreparedDocument) -> None:
        number = len(self.documents)
        self.documents.append(prepared.document)
        if self._characters + prepared.document.characters <= self._memory_characters_max:
            self._characters += prepared.document.characters
            self._in_memory[number] = prepared
        else:
            self._in_file[number] = self._write(number, prepared)

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, number: int) -> PreparedDocument:
        if number in self._in_memory:
            return self._in_memory[number]
        return PreparedDocument(self.documents[number], _ChunksInFile(self, number))

    def chunk(self, number: int, place: int) -> PreparedChunk:
        """Returns one chunk of a document in the file."""
        return self._chunk(number, place)

    def _write(self, number: int, prepared: PreparedDocument) -> array[int]:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="drillcore-")  # noqa: SIM115 - closed with the buffer
        places = array("Q", [self._file.seek(0, os.SEEK_END)])
        for place, chunk in enumerate(prepared.chunks):
            sealed = self._cipher.encrypt(_nonce(number, place), pickle.dumps(chunk), None)
            places.append(places[-1] + self._file.write(sealed))
        return places

    def _read(self, number: int, place: int) -> PreparedChunk:
        assert self._file is not None
        start, end = self._in_file[number][place : place + 2]
        self._file.seek(start)
        opened = self._cipher.decrypt(_nonce(number, place), self._file.read(end - start), None)
        chunk = pickle.loads(opened)  # noqa: S301 - decryption proved that this buffer wrote it
        assert isinstance(chunk, PreparedChunk)
        return chunk


@dataclass(frozen=True, slots=True)
class _ChunksInFile(Sequence[PreparedChunk]):
    buffer: DocumentBuffer
    number: int

    def __len__(self) -> int:
        return len(self.buffer.documents[self.number].chunks)

    @overload
    def __getitem__(self, place: int) -> PreparedChunk: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[PreparedChunk]: ...

    def __getitem__(self, place: int | slice) -> PreparedChunk | Sequence[PreparedChunk]:
        places = range(len(self))[place]
        if isinstance(places, range):
            return [self.buffer.chunk(self.number, place) for place in places]
        return self.buffer.chunk(self.number, places)


@dataclass(frozen=True, slots=True)
class AddedDocuments(Sequence[PreparedDocument]):
    """The documents of a buffer that a plan adds, with the document records of the plan."""

    buffer: DocumentBuffer
    records: Sequence[tuple[int, Document]]
    """The number of each document in the buffer, and its record."""

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, place: int) -> PreparedDocument: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[PreparedDocument]: ...

    def __getitem__(self, place: int | slice) -> PreparedDocument | Sequence[PreparedDocument]:
        if isinstance(place, slice):
            return AddedDocuments(self.buffer, self.records[place])
        number, document = self.records[place]
        return replace(self.buffer[number], document=document)


def _nonce(number: int, place: int) -> bytes:
    """The nonce is unique, since the key of a buffer seals each chunk once."""
    return number.to_bytes(6, "big") + place.to_bytes(6, "big")
