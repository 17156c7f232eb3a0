"""Writes the documents of a core with their chunks, the library that came with other cores, and electronic
signatures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Final, NamedTuple, Self
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_formats.cores.records import LibraryDocument
from drillcore_server.cores import foreign_store
from drillcore_server.cores import model as foreign
from drillcore_server.cores.foreign_store import LibraryPlaces
from drillcore_server.cores.writer.core_file import CoreFile, PartWriter
from drillcore_server.cores.writer.core_records import halves
from drillcore_server.graphs.quad_model import iri_of
from drillcore_server.hierarchy.model import ChunkWithRaws, Document, raw_id
from drillcore_server.hierarchy.packed import PortableChunk, decode_chunk
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
_DOCUMENTS_AT_ONCE: Final = 20
"""Library documents that are read together. The description of one may take half a megabyte."""
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
        ordered = (places(item[_DEPTH_BYTES:].decode()) for item in in_order)
        while some := list(islice(ordered, _DOCUMENTS_AT_ONCE)):
            found = snapshot.read(lambda view, some=some: view.opened(list(map(view.keys.library_document, some))))  # type: ignore[misc]
            yield from (foreign_store.LIBRARY_DOCUMENT.decode(entry.value) for entry in found if entry is not None)


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
    known: Sequence[FullChunk] | None = None
    """All of them, if they were read together with those of other documents."""

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
        return list(self._read() if self.known is None else self.known)

    def _read(self) -> Iterator[FullChunk]:
        chunks = self.document.chunks
        for start in range(0, len(chunks), _CHUNKS_AT_ONCE):
            batch = chunks[start : start + _CHUNKS_AT_ONCE]
            found = self.snapshot.read(lambda view, some=batch: _full_chunks(view, some, self.model))  # type: ignore[misc]
            yield from filter(None, found)


def _full_chunks(view: CorpusAtRevision, chunks: Sequence[NodeId], model: int) -> list[FullChunk | None]:
    """Reads chunks together. None for those that were erased. Raises `StoreCorruptError` if one is missing."""
    keys, hierarchy = view.keys, HierarchyReader(view)
    chunk_keys, vector_keys = list(map(keys.chunk, chunks)), [keys.vector(model, chunk) for chunk in chunks]
    view.read_ahead([*chunk_keys, *vector_keys, *map(keys.parent, chunks)])
    stored = zip(chunks, view.opened(chunk_keys), strict=True)
    placed = [decode_chunk(chunk, entry.value) for chunk, entry in stored if entry is not None]
    found = {there.chunk.id: there for there in hierarchy.with_raws(placed) if there is not None}
    vectors = view.sealed.get_many_unless_erased(view.tr, vector_keys, view.revision)
    return [
        _full_chunk(found[chunk], section, vector) if chunk in found else None
        for chunk, section, vector in zip(chunks, hierarchy.parents(chunks), vectors, strict=True)
    ]


def _full_chunk(found: ChunkWithRaws, section: NodeId | None, vector: Entry | None) -> FullChunk:
    if section is None:
        raise StoreCorruptError(f"chunk {found.chunk.id} is in no section")
    return FullChunk(PortableChunk(found), section, None if vector is None else halves(vector.value).tobytes())


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
        opened = map(sealed.opened, stored) if full else sealed.opened_all(stored)
        for entry, chunks in self._with_chunks((entry, DOCUMENT.decode(entry.value)) for entry in opened):
            self._write_text(chunks.document, chunks, self._core.core_id if full else "")
            if full:
                self._write_parts(chunks.document, DOCUMENT.as_written_now(entry.value), chunks)

    def _with_chunks(self, documents: Iterable[tuple[Entry, Document]]) -> Iterator[tuple[Entry, DocumentChunks]]:
        """Documents with their chunks. Those of several small documents are read together."""

        def small(pair: tuple[Entry, Document]) -> Sequence[NodeId]:
            chunks = pair[1].chunks
            return chunks if len(chunks) <= _CHUNKS_AT_ONCE else ()

        def read(view: CorpusAtRevision, chunks: Sequence[NodeId]) -> list[FullChunk | None]:
            return _full_chunks(view, chunks, self._model)

        for (entry, document), found in self._snapshot.of_each(documents, small, read, _CHUNKS_AT_ONCE):
            known = [chunk for chunk in found if chunk is not None]
            is_small = len(document.chunks) <= _CHUNKS_AT_ONCE
            yield entry, DocumentChunks(self._snapshot, document, self._model, known if is_small else None)

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
