"""Writes core files: records, one after the other, into a file that only the server can read, and the parts of a full
core."""

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
"""For one record."""
_RECORD_BYTES: Final = 1 << 20
"""A record with a list is cut at this size, even if it has few items."""
_TOLD_BYTES: Final = 4 << 20
"""How often progress is reported."""


class CoreFile:
    def __init__(self, file: SealedFile, core_id: str, progress: Callable[[int, int], object]) -> None:
        """Calls `progress` with the number of bytes and records."""
        self._file = file
        self._progress = progress
        self._told_at = 0
        self.core_id = core_id
        self.records = 0
        self.foreign_documents = 0
        self.items: Counter[str] = Counter(dict.fromkeys(LISTS, 0))
        """The number of list items written, by tag."""

    def write_list(self, tag: str, items: Iterable[bytes], source: str = "") -> None:
        """Writes records with these packed items."""
        meta = self._meta(source)
        some: list[bytes] = []
        size_bytes = 0
        for item in items:
            some.append(item)
            size_bytes += len(item)
            if len(some) == ITEMS_MAX[tag] or size_bytes >= _RECORD_BYTES:
                self._write_list(tag, meta, some)
                some, size_bytes = [], 0
        if some:
            self._write_list(tag, meta, some)

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
        assert size_bytes == 0, "its size was told before"
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
        if self._file.size_bytes - self._told_at >= _TOLD_BYTES:
            self._told_at = self._file.size_bytes
            self._progress(self._told_at, self.records)


PART_BYTES: Final = 1 << 20
"""A part is cut at this size."""


class PartWriter:
    """Writes records as library documents, cut into parts. Close it at the end: that writes the last part."""

    def __init__(self, core: CoreFile, name: str, parent: str, counts: Counter[str]) -> None:
        """Calls `counts` with the kind of each record."""
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
