"""Writes the documents of a core with their chunks, the library that came with other cores, and electronic
signatures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple, Self
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Transaction
from drillcore_formats.cores.records import LibraryDocument
from drillcore_server.cores import foreign_store
from drillcore_server.cores import model as foreign
from drillcore_server.cores.foreign_store import LibraryPlaces
from drillcore_server.cores.writer.core_file import CoreFile, PartWriter
from drillcore_server.cores.writer.core_records import halves
from drillcore_server.graphs.quad_model import iri_of
from drillcore_server.hierarchy.model import ChunkWithRaws, Document, raw_id
from drillcore_server.hierarchy.packed import PortableChunk
from drillcore_server.hierarchy.store import DOCUMENT, HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.signatures import store as signatures
from drillcore_server.signatures.model import Signature, TargetKind
from drillcore_server.signatures.store import SIGNATURE
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import NodeId, TenantId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed_file import SortedFile
from drillcore_server.storage.versioned import Entry

_TARGETS_MAX: Final = 500
"""Targets whose signatures are looked up in one transaction."""
_PLACE_BYTES: Final = 1 + 16 + 8 + 16
"""Kind, target, version and signature: the order in which signatures are written."""


@dataclass(frozen=True, slots=True)
class SignatureBook:
    """Where the signatures of a tenant are stored."""

    keys: Keyspace
    keyring: Keyring
    tenant: TenantId


class _Target(NamedTuple):
    kind: TargetKind
    id: UUID
    version: int


class GatheredSignatures:
    """Collects signatures. Call `take` for each node and fact of the core, then read `encoded`.

    The signatures are sorted by target, version and id.
    """

    def __init__(self, book: SignatureBook, snapshot: BatchedReads) -> None:
        self._book = book
        self._snapshot = snapshot
        self._has_foreign = foreign_store.has_any(snapshot, snapshot.keys.all_foreign_signatures())
        self._targets: list[_Target] = []
        self._found = SortedFile()

    def take(self, kind: TargetKind, target: UUID, version: int) -> None:
        self._targets.append(_Target(kind, target, version))
        if len(self._targets) == _TARGETS_MAX:
            self._look_up()

    def encoded(self) -> Iterator[bytes]:
        self._look_up()
        return (placed[_PLACE_BYTES:] for placed in self._found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._found.close()

    def _look_up(self) -> None:
        targets, self._targets = self._targets, []
        for signature in self._snapshot.engine.run(lambda tr: self._own(tr, targets)):
            self._keep(signature)
        if self._has_foreign:
            for signature in self._foreign(targets):
                self._keep(signature)

    def _keep(self, signature: Signature) -> None:
        target = signature.target
        place = bytes([target.kind]) + target.id.bytes + target.version.to_bytes(8, "big") + signature.id.bytes
        self._found.add(place + SIGNATURE.encode(signature))

    def _own(self, tr: Transaction, targets: list[_Target]) -> list[Signature]:
        """Returns signatures with their salts, but without the numbers of the keys that the salts are made from.

        Only this store knows those keys.
        """
        book = self._book
        found: list[Signature] = []
        for kind in {target.kind for target in targets}:
            versions = [(target.id, target.version) for target in targets if target.kind == kind]
            signed = signatures.signatures_of_many(tr.snapshot, book.keys, book.tenant, kind, versions)
            of_kind = chain.from_iterable(signed.values())
            found += (signatures.with_salt(book.keyring, signature) for signature in of_kind)
        return [replace(signature, sealed_by=()) for signature in found if signature.content_salt]

    def _foreign(self, targets: list[_Target]) -> Iterator[Signature]:
        found = self._snapshot.find(targets, _foreign_signatures)
        for target, entries in zip(targets, found, strict=True):
            for entry in self._snapshot.sealed.opened_all(entries):
                signature = SIGNATURE.decode(entry.value)
                if signature.target.version == target.version:
                    yield replace(signature, sealed_by=())


def _foreign_signatures(view: CorpusAtRevision, target: _Target) -> list[Entry]:
    keys = view.keys.foreign_signatures(target.kind, target.id)
    return list(versioned.scan(view.tr, *keys, view.revision))


_DEPTH_BYTES: Final = 4
_IN_A_CIRCLE: Final = (1 << 8 * _DEPTH_BYTES) - 1
_PLACE: Final = "S16"
"""numpy drops zero bytes at the end of a value. All places have the same length, so two of them never become equal."""


def write_library(core: CoreFile, snapshot: BatchedReads, places: LibraryPlaces) -> None:
    for document in foreign_documents(snapshot, places):
        core.describe(_described(document))
        core.foreign_documents += 1
        if document.has_content:
            core.blob(document.id, document.size_bytes, foreign_store.document_content(snapshot, places(document.id)))


def foreign_documents(snapshot: BatchedReads, places: LibraryPlaces) -> Iterator[foreign.LibraryDocument]:
    """Yields documents by their depth, then by id. Takes 36 bytes of memory for each."""
    depths = _depths(snapshot, places)
    with SortedFile() as in_order:
        for number, document in enumerate(foreign_store.library_documents(snapshot)):
            in_order.add(int(depths[number]).to_bytes(_DEPTH_BYTES, "big") + document.id.encode())
        for item in in_order:
            place = places(item[_DEPTH_BYTES:].decode())
            yield from snapshot.each_unless_erased([place], foreign_store.find_document)


def _depths(snapshot: BatchedReads, places: LibraryPlaces) -> npt.NDArray[np.int64]:
    """Returns the depth of each document, in the order in which they are stored."""
    own, above = bytearray(), bytearray()
    for document in foreign_store.library_documents(snapshot):
        own += places(document.id)
        above += places(document.parent) if document.parent else bytes(16)
    parents = _parent_numbers(bytes(own), bytes(above))
    depths = np.where(parents < 0, 0, _IN_A_CIRCLE)
    depth, level = 0, np.flatnonzero(parents < 0)
    children = np.argsort(parents, kind="stable")
    sorted_parents = parents[children]
    while len(level):
        depth += 1
        begin, end = np.searchsorted(sorted_parents, level), np.searchsorted(sorted_parents, level, "right")
        level = np.concatenate([children[b:e] for b, e in zip(begin, end, strict=True)] or [level[:0]])
        depths[level] = depth
    return depths


def _parent_numbers(own: bytes, above: bytes) -> npt.NDArray[np.int64]:
    """Returns the number of each document's parent among the sorted places; -1 without a parent in the corpus."""
    places, parents = np.frombuffer(own, _PLACE), np.frombuffer(above, _PLACE)
    if not len(places):
        return np.empty(0, np.int64)
    found = np.minimum(np.searchsorted(places, parents), len(places) - 1)
    return np.where(places[found] == parents, found, -1)


def _described(document: foreign.LibraryDocument) -> LibraryDocument:
    return LibraryDocument(
        document.id,
        document.media_type,
        document.title,
        document.parent,
        document.document_type,
        document.comments,
        document.tags,
    )


_CHUNKS_AT_ONCE: Final = 100
"""Chunks that are read in one transaction."""
_HELD_CHARACTERS_MAX: Final = 1_000_000
"""A longer document is read several times and never held in memory."""
_TEXT: Final = "text/plain"


class FullChunk(NamedTuple):
    chunk: PortableChunk
    section: NodeId
    vector: bytes | None
    """As the core has it."""


@dataclass(frozen=True)
class DocumentChunks:
    """The chunks of a document, in order. They can be read again."""

    snapshot: BatchedReads
    document: Document
    model: int

    def __iter__(self) -> Iterator[FullChunk]:
        return iter(self._held) if self.document.characters <= _HELD_CHARACTERS_MAX else self._read()

    @cached_property
    def size_bytes(self) -> int:
        """The size of the text in UTF-8."""
        return sum(len(piece) for piece in self.text())

    @cached_property
    def is_whole(self) -> bool:
        """Tells whether the chunks cover the text, so that each is found in it by its span."""
        end = 0
        for chunk, _, _ in self:
            if chunk.span is None or chunk.span.start != end:
                return False
            end = chunk.span.end
        return True

    def text(self) -> Iterator[bytes]:
        """Yields the text of the chunks, with a line end where they leave something out."""
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
            yield from self.snapshot.each_unless_erased(chunks[start : start + _CHUNKS_AT_ONCE], self._full)

    def _full(self, view: CorpusAtRevision, chunk: NodeId) -> FullChunk | None:
        hierarchy = HierarchyReader(view)
        found, section = hierarchy.chunk_with_raws(chunk), hierarchy.parent(chunk)
        if found is None or section is None:
            return None
        stored = hierarchy.vector(self.model, chunk)
        vector = None if stored is None else halves(stored).tobytes()
        return FullChunk(PortableChunk(found), section, vector)


class DocumentWriter:
    """Writes documents into a core: their texts, and in a full core also their records."""

    def __init__(
        self, core: CoreFile, snapshot: BatchedReads, model: int, counts: Counter[str], signatures: GatheredSignatures
    ) -> None:
        self._core = core
        self._snapshot = snapshot
        self._model = model
        self._counts = counts
        self._signatures = signatures

    def write_all(self, *, full: bool) -> None:
        """Writes documents by id. Leaves out erased ones; a full core raises `KeyErased` instead."""
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
            self._sign(chunk.found)
        parts.close()

    def _sign(self, found: ChunkWithRaws) -> None:
        for node in (found.chunk.id, *_raw_ids(found)):
            self._signatures.take(TargetKind.NODE, node, found.chunk.version)


def _raw_ids(found: ChunkWithRaws) -> Iterable[NodeId]:
    return found.chunk.raw_ids or (raw_id(found.chunk.id, place) for place in range(len(found.page.raws)))
