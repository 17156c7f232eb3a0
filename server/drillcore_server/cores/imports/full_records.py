"""Reads the records of a full core one by one, and the texts of chunks beside them.

    root
    each document: its text, the texts of its chunks, then the parts with its own record and those of its chunks
    the parts with everything else, and the end

A chunk's record does not repeat its text. So the texts of a document's chunks are read a second time, beside its parts.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from drillcore_formats.cores.format import LIBRARY_METADATA, PART_BYTES_MAX, WrongShape
from drillcore_formats.cores.framing import Blob, Record, blob_content, located
from drillcore_formats.cores.parts import PART_KIND, ROOT_KIND, part_arrays
from drillcore_formats.cores.records import LibraryDocument, read_library
from drillcore_server.cores.imports.record_decoder import Place, records_from
from drillcore_server.graphs.quad_model import named_by
from drillcore_server.storage.ids import DocumentId, NodeId
from drillcore_server.storage.sealed_file import SealedFile


@dataclass(frozen=True, slots=True)
class DocumentText:
    """Hash and length of a document's text. The text itself may be too long for memory."""

    document: DocumentId
    sha256: str
    characters: int


@dataclass(frozen=True, slots=True)
class ChunkText:
    chunk: NodeId
    text: str


@dataclass(frozen=True, slots=True)
class FullRecord:
    kind: str
    fields: list[Any]
    """The values after the kind."""


class FullRecords:
    """`walk` reads the records, any number of times."""

    def __init__(self, file: SealedFile, root: Place) -> None:
        self._file = file
        self._root = root
        self.count = root.number
        """The number of the last record that was read."""

    def walk(self) -> Iterator[tuple[Place, FullRecord | DocumentText]]:
        """Yields each record with its place in the file. Raises `InvalidCore`."""
        self._texts: Iterator[ChunkText] = iter(())
        self._first_chunk: Place | None = None
        self._document = ""
        described: tuple[LibraryDocument, Place] | None = None
        for part in records_from(self._file, self._root):
            place = Place(part.number, part.offset, part.tag)
            self.count = part.number
            with located(part.number, part.offset):
                if described is None:
                    described = _described(part), place
                    continue
                document, begin = described
                described = None
                for found in self._content(document, begin, _content_of(part, document)):
                    yield place, found
        if described is not None:
            with located(place.number, place.offset):
                raise WrongShape("the file ends before the content of the last description")

    def _content(self, document: LibraryDocument, begin: Place, blob: Blob) -> Iterator[FullRecord | DocumentText]:
        if document.kind == ROOT_KIND:
            if begin.offset != self._root.offset:
                raise WrongShape("a second root follows")
            blob_content(blob, PART_BYTES_MAX)
        elif document.kind == PART_KIND:
            self._begin_parts()
            for kind, *fields in part_arrays(blob_content(blob, PART_BYTES_MAX)):
                yield FullRecord(kind, fields)
        elif document.type == "source":
            yield self._document_text(document, blob)
        else:
            self._pass_chunk(document, begin, blob)

    def _document_text(self, document: LibraryDocument, blob: Blob) -> DocumentText:
        self._document, self._first_chunk = document.id, None
        self._texts = iter(())
        hashed, characters = hashlib.sha256(), 0
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for piece in blob.pieces():
                hashed.update(piece)
                characters += len(decoder.decode(piece))
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise WrongShape("the text of a document is not UTF-8") from None
        return DocumentText(DocumentId(_own(document.id, "document")), hashed.hexdigest(), characters)

    def _pass_chunk(self, document: LibraryDocument, begin: Place, blob: Blob) -> None:
        _check_chunk(document, self._document)
        if self._first_chunk is None:
            self._first_chunk = begin
        for _ in blob.pieces():
            pass

    def _begin_parts(self) -> None:
        if self._first_chunk is not None:
            self._texts = _chunk_texts(self._file, self._first_chunk, self._document)
            self._first_chunk = None

    def next_text(self, chunk: NodeId) -> str:
        """Returns the text of the chunk whose record came last. Raises `WrongShape` if it is not the next of its
        document."""
        found = next(self._texts, None)
        if found is None or found.chunk != chunk:
            raise WrongShape(f"the texts of a document's chunks have another order than their records, at {chunk}")
        return found.text

    def check_no_text_left(self) -> None:
        if self._first_chunk is not None or next(self._texts, None) is not None:
            raise WrongShape("texts of chunks have no record")


def _chunk_texts(file: SealedFile, first: Place, document: str) -> Iterator[ChunkText]:
    described: LibraryDocument | None = None
    for part in records_from(file, first):
        with located(part.number, part.offset):
            if described is None:
                described = _described(part)
                if described.kind == PART_KIND or described.type == "source":
                    return
                continue
            _check_chunk(described, document)
            content = blob_content(_content_of(part, described), PART_BYTES_MAX)
            yield ChunkText(NodeId(_own(described.id, "chunk")), _text(content))
            described = None


def _described(part: Record | Blob) -> LibraryDocument:
    if isinstance(part, Blob) or part.tag != LIBRARY_METADATA:
        raise WrongShape("after the root of a full core, every description must be followed by its content")
    return read_library(part)


def _content_of(part: Record | Blob, document: LibraryDocument) -> Blob:
    if not isinstance(part, Blob) or part.id != document.id:
        raise WrongShape("a description is not followed by its content")
    return part


def _check_chunk(document: LibraryDocument, parent: str) -> None:
    if document.type != "chunk" or not parent or document.parent != parent:
        raise WrongShape("something after the root of a full core does not belong to it")


def _own(iri: str, kind: str) -> UUID:
    named = named_by(iri)
    if named is None or named.kind != kind:
        raise WrongShape(f"the id of a {kind} is not the IRI of a {kind}")
    return UUID(named.id)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise WrongShape("the text of a chunk is not UTF-8") from None
