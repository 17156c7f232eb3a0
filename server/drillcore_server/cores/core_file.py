"""A core while it is written: records, one after the other, into a file that only the server can read."""

from __future__ import annotations

import binascii
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from drillcore.cores.records import LibraryDocument
from drillcore.cores.tags import DOCUMENT_EMBEDDINGS, GRAPH_EMBEDDINGS, LISTS, TRIPLES
from drillcore_server.cores.packing import blob_head, described, listing, pack
from drillcore_server.exporting.sealed_file import SealedFile

ITEMS_MAX: Final = {TRIPLES: 1_000, GRAPH_EMBEDDINGS: 100, DOCUMENT_EMBEDDINGS: 100}
"""In one record."""
_RECORD_BYTES: Final = 1 << 20
"""Where a record with a list is cut, also if it has few items."""
_TOLD_BYTES: Final = 4 << 20
"""How often it is told how far the file is."""


class CoreFile:
    def __init__(self, file: SealedFile, core_id: str, progress: Callable[[int, int], object]) -> None:
        """`progress` hears how many bytes and records there are."""
        self._file = file
        self._progress = progress
        self._told_at = 0
        self.core_id = core_id
        self.records = 0
        self.foreign_documents = 0
        self.items: Counter[str] = Counter(dict.fromkeys(LISTS, 0))
        """Of the lists that were written, by tag."""

    def write_list(self, tag: str, items: Iterable[bytes], source: str = "") -> None:
        """Records with these items, which are packed."""
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
        """The content of a document, of so many bytes."""
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
