"""The documents of a core with their chunks: text as library documents, and in a full core their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from drillcore.cores.records import LibraryDocument
from drillcore_server.cores.core_file import CoreFile
from drillcore_server.cores.part_writer import PartWriter
from drillcore_server.cores.signing import GatheredSignatures
from drillcore_server.domain.ids import NodeId
from drillcore_server.domain.iris import iri_of
from drillcore_server.domain.nodes import Document, raw_id
from drillcore_server.domain.signatures import TargetKind
from drillcore_server.store.hierarchy import DOCUMENT, CorpusView
from drillcore_server.store.packed import PortableChunk, portable_chunk
from drillcore_server.store.snapshot import Snapshot

_CHUNKS_AT_ONCE: Final = 100
"""Read in one transaction."""
_HELD_CHARACTERS_MAX: Final = 1_000_000
"""A document with more is read several times, and never held."""
_TEXT: Final = "text/plain"


class FullChunk(NamedTuple):
    chunk: PortableChunk
    section: NodeId
    vector: bytes | None


@dataclass(frozen=True)
class DocumentChunks:
    """The chunks of a document, in order. May be gone through again."""

    snapshot: Snapshot
    document: Document
    model: int

    def __iter__(self) -> Iterator[FullChunk]:
        return iter(self._held) if self.document.characters <= _HELD_CHARACTERS_MAX else self._read()

    @cached_property
    def size_bytes(self) -> int:
        """Of the text in UTF-8."""
        return sum(len(piece) for piece in self.text())

    @cached_property
    def is_whole(self) -> bool:
        """Whether the chunks follow each other through the text, so that each is found in it by its span."""
        end = 0
        for chunk, _, _ in self:
            if chunk.span is None or chunk.span.start != end:
                return False
            end = chunk.span.end
        return True

    def text(self) -> Iterator[bytes]:
        """What the chunks say; where they leave something out, a line's end."""
        end: int | None = 0
        for chunk, _, _ in self:
            follows = chunk.span is not None and chunk.span.start == end
            yield (chunk.text if follows or chunk.text == "" else f"\n{chunk.text}").encode()
            end = None if chunk.span is None else chunk.span.end

    @cached_property
    def _held(self) -> list[FullChunk]:
        return list(self._read())

    def _read(self) -> Iterator[FullChunk]:
        chunks = self.document.chunks
        for start in range(0, len(chunks), _CHUNKS_AT_ONCE):
            yield from self.snapshot.each_left(chunks[start : start + _CHUNKS_AT_ONCE], self._full)

    def _full(self, view: CorpusView, chunk: NodeId) -> FullChunk | None:
        entry, section = view.sealed.get(view.tr, view.keys.chunk(chunk), view.revision), view.parent(chunk)
        if entry is None or section is None:
            return None
        return FullChunk(portable_chunk(chunk, entry.value), section, view.vector(self.model, chunk))


class DocumentWriter:
    """Writes documents into a core: their texts, and their records where parts are wanted."""

    def __init__(
        self, core: CoreFile, snapshot: Snapshot, model: int, counts: Counter[str], signatures: GatheredSignatures
    ) -> None:
        self._core = core
        self._snapshot = snapshot
        self._model = model
        self._counts = counts
        self._signatures = signatures

    def write_all(self, *, full: bool) -> None:
        """By id. Erased ones are left out; with their records all must be there, or `KeyErased` is raised."""
        stored, sealed = self._snapshot.entries(self._snapshot.keys.documents()), self._snapshot.sealed
        for entry in map(sealed.opened, stored) if full else sealed.opened_all(stored):
            document = DOCUMENT.decode(entry.value)
            chunks = DocumentChunks(self._snapshot, document, self._model)
            self._write_text(document, chunks, self._core.core_id if full else "")
            if full:
                self._write_parts(document, DOCUMENT.as_written_now(entry.value), chunks)

    def _write_text(self, document: Document, chunks: DocumentChunks, parent: str) -> None:
        iri = iri_of("document", document.id)
        self._core.describe(LibraryDocument(iri, _TEXT, document.title, parent, "source"))
        self._core.blob(iri, chunks.size_bytes, chunks.text())
        for chunk, _, _ in chunks:
            named, text = iri_of("chunk", chunk.id), chunk.text.encode()
            self._core.describe(LibraryDocument(named, _TEXT, "", iri, "chunk"))
            self._core.blob(named, len(text), [text])

    def _write_parts(self, document: Document, record: bytes, chunks: DocumentChunks) -> None:
        parts = PartWriter(self._core, f"document-{document.id}", iri_of("document", document.id), self._counts)
        parts.add("document", record)
        with_text = not chunks.is_whole
        for chunk, section, vector in chunks:
            parts.add("chunk", chunk.id, section, chunk.encode(with_text=with_text), vector)
            self._sign(chunk)
        parts.close()

    def _sign(self, chunk: PortableChunk) -> None:
        for node in (chunk.id, *_raw_ids(chunk)):
            self._signatures.take(TargetKind.NODE, node, chunk.version)


def _raw_ids(chunk: PortableChunk) -> Iterable[NodeId]:
    return chunk.raw_ids or (raw_id(chunk.id, place) for place in range(chunk.raws))
