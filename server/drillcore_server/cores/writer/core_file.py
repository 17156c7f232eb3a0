"""Writes records into a core file, which only the server can read until it is sent, and cuts a full core into parts."""

from __future__ import annotations

import binascii
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from drillcore_formats.cores.format import DOCUMENT_EMBEDDINGS, GRAPH_EMBEDDINGS, LISTS, TRIPLES
from drillcore_formats.cores.parts import part_document
from drillcore_formats.cores.records import LibraryDocument
from drillcore_server.cores.writer.core_records import blob_head, described, listing, pack
from drillcore_server.storage.sealed_file import SealedFile

ITEMS_MAX: Final = {TRIPLES: 1_000, GRAPH_EMBEDDINGS: 100, DOCUMENT_EMBEDDINGS: 100}
"""Items in one record, by tag."""
_RECORD_BYTES: Final = 1 << 20
"""A record with a list is cut at this size, even if it has few items."""
_PROGRESS_EVERY_BYTES: Final = 4 << 20
"""Bytes between two reports of progress."""


class CoreFile:
    """Writes records one after the other, and counts them."""

    def __init__(self, file: SealedFile, core_id: str, progress: Callable[[int, int], object]) -> None:
        """Calls `progress` with the number of bytes and records."""
        self._file = file
        self._progress = progress
        self._reported_bytes = 0
        self.core_id = core_id
        self.records = 0
        self.foreign_documents = 0
        self.items: Counter[str] = Counter(dict.fromkeys(LISTS, 0))
        """The number of list items written, by tag."""

    def write_list(self, tag: str, items: Iterable[bytes], source: str = "") -> None:
        """Writes as many records as the packed items need."""
        meta = self._meta(source)
        batch: list[bytes] = []
        size_bytes = 0
        for item in items:
            batch.append(item)
            size_bytes += len(item)
            if len(batch) == ITEMS_MAX[tag] or size_bytes >= _RECORD_BYTES:
                self._write_list(tag, meta, batch)
                batch, size_bytes = [], 0
        if batch:
            self._write_list(tag, meta, batch)

    def describe(self, document: LibraryDocument) -> None:
        self._write(described(document))
        self._ended()

    def blob(self, document_id: str, size_bytes: int, pieces: Iterable[bytes]) -> None:
        """Writes the content of a document, which has so many bytes."""
        self._write(blob_head(document_id, (size_bytes + 2) // 3 * 4))
        rest = b""
        for piece in pieces:
            size_bytes -= len(piece)
            data = rest + piece
            whole = len(data) // 3 * 3
            self._write(binascii.b2a_base64(data[:whole], newline=False))
            rest = data[whole:]
        self._write(binascii.b2a_base64(rest, newline=False))
        assert size_bytes == 0, "the head of the record states the size"
        self._ended()

    def _write_list(self, tag: str, meta: bytes, items: list[bytes]) -> None:
        self._write(listing(tag, meta, items))
        self.items[tag] += len(items)
        self._ended()

    def _meta(self, source: str) -> bytes:
        meta = {"i": self.core_id, "m": self.core_id, "c": "default"}
        return pack({**meta, "s": source} if source else meta)

    def _write(self, data: bytes) -> None:
        self._file.write(data)

    def _ended(self) -> None:
        self.records += 1
        if self._file.size_bytes - self._reported_bytes >= _PROGRESS_EVERY_BYTES:
            self._reported_bytes = self._file.size_bytes
            self._progress(self._reported_bytes, self.records)


PART_BYTES: Final = 1 << 20
"""A part is cut at this size."""


class PartWriter:
    """Writes records as library documents, cut into parts. Close it at the end: that writes the last part."""

    def __init__(self, core: CoreFile, name: str, parent: str, counts: Counter[str]) -> None:
        """Counts the records of each kind in `counts`."""
        self._core = core
        self._name = name
        self._parent = parent
        self._counts = counts
        self._number = 0
        self._open = bytearray()

    def add(self, kind: str, *values: object) -> None:
        self._open += pack([kind, *values])
        self._counts[kind] += 1
        if len(self._open) >= PART_BYTES:
            self.close()

    def close(self) -> None:
        if not self._open:
            return
        self._number += 1
        document = part_document(self._core.core_id, self._name, self._number, self._parent)
        self._core.describe(document)
        self._core.blob(document.id, len(self._open), [bytes(self._open)])
        self._open.clear()
