"""Finds the library documents that another system's core brings, and where in the file they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from drillcore_formats.cores.format import InvalidCore, WrongShape
from drillcore_formats.cores.framing import Blob, Record
from drillcore_formats.cores.records import LibraryDocument, read_library
from drillcore_server.cores.imports.record_decoder import Place
from drillcore_server.cores.model import (
    BLOB_WITHOUT_METADATA,
    DUPLICATE,
    LIBRARY_ID_CHARACTERS_MAX,
    LIBRARY_TAGS_MAX,
    LIBRARY_TEXT_CHARACTERS_MAX,
    RecordPlace,
    Skips,
)
from drillcore_server.cores.model import LibraryDocument as StoredDocument
from drillcore_server.storage.ids import SourceId

DOCUMENTS_MAX: Final = 1_000_000
"""Library documents of one core. A hash and the place of each are held in memory."""
IDS_BYTES_MAX: Final = 128 << 20
"""Bytes of the ids of documents and of their parents, which are also held in memory."""
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class _Described:
    at: Place
    digest: bytes
    parent: str


@dataclass(frozen=True, slots=True)
class Content:
    """Place, size and hash of a document's content."""

    at: Place
    size_bytes: int
    sha256: bytes


class LibraryIntake:
    """Documents by id. The second of two equal ones is skipped; two that differ are refused."""

    def __init__(self, skips: Skips) -> None:
        self._skips = skips
        self._described: dict[str, _Described] = {}
        self._contents: dict[str, Content] = {}
        self._contents_at: dict[int, str] = {}
        """Document by the offset of its content in the file."""
        self._ids_bytes = 0

    def __len__(self) -> int:
        return len(self._described)

    def take(self, record: Record) -> None:
        """Takes the description of a document. Raises `WrongShape`."""
        document = checked(read_library(record))
        digest = hashlib.sha256(record.data[record.payload_at :]).digest()[:_DIGEST_BYTES]
        known = self._described.get(document.id)
        if known is not None:
            self._check_same(record, document.id, same=known.digest == digest)
            return
        if len(self._described) == DOCUMENTS_MAX:
            raise WrongShape(f"there are more than {DOCUMENTS_MAX:,} library documents")
        self._hold(document.id, document.parent)
        self._described[document.id] = _Described(
            Place(record.number, record.offset, record.tag), digest, document.parent
        )

    def take_content(self, blob: Blob) -> None:
        """Takes the content of a document. Raises `InvalidCore`."""
        hashed, size_bytes = hashlib.sha256(), 0
        for piece in blob.pieces():
            hashed.update(piece)
            size_bytes += len(piece)
        assert blob.id is not None, "it has been read to its end"
        content = Content(Place(blob.number, blob.offset, blob.tag), size_bytes, hashed.digest())
        known = self._contents.get(blob.id)
        if known is not None:
            self._check_same(blob, blob.id, same=known.sha256 == content.sha256)
        elif len(self._contents) == DOCUMENTS_MAX:
            raise WrongShape(f"there are contents for more than {DOCUMENTS_MAX:,} library documents")
        else:
            self._hold(blob.id)
            self._contents[blob.id] = content

    def settle(self) -> None:
        """Call it when all records were taken. Drops contents without a description.

        Raises `InvalidCore` for a document that is part of itself.
        """
        for document in sorted(self._contents.keys() - self._described.keys()):
            at = self._contents.pop(document).at
            self._skips.skip(
                at, BLOB_WITHOUT_METADATA, "the content belongs to a document without a description", document
            )
        _check_parents(self._described)
        self._contents_at = {content.at.offset: document for document, content in self._contents.items()}

    def stored_document(self, record: Record, source: SourceId) -> StoredDocument | None:
        """Returns the document that a record describes, as it is to be stored; None if it was skipped."""
        document = read_library(record)
        if self._described[document.id].at.offset != record.offset:
            return None
        content = self._contents.get(document.id)
        size_bytes, sha256 = (0, b"") if content is None else (content.size_bytes, content.sha256)
        return StoredDocument(
            document.id,
            document.kind,
            document.title,
            document.parent,
            document.type,
            document.comments,
            document.tags,
            source,
            size_bytes,
            sha256,
        )

    def content_at(self, blob: Blob) -> str | None:
        """Returns the document whose content comes next in the file, if it is to be stored."""
        return self._contents_at.get(blob.offset)

    def place_of(self, document: str) -> RecordPlace:
        """Returns the place of the record that describes a document."""
        return self._described[document].at

    def ids(self) -> Iterator[str]:
        return iter(self._described)

    def __contains__(self, document: str) -> bool:
        return document in self._described

    def same_content(self, document: StoredDocument) -> bool:
        """Tells whether a stored document has the same content as the core's document with its id."""
        content = self._contents.get(document.id)
        return document.sha256 == (b"" if content is None else content.sha256)

    def _hold(self, *ids: str) -> None:
        """Counts the bytes of ids. Raises `WrongShape` if they are too many to be held in memory."""
        self._ids_bytes += sum(len(id_.encode()) for id_ in ids)
        if self._ids_bytes > IDS_BYTES_MAX:
            raise WrongShape(f"the ids of its library documents have more than {IDS_BYTES_MAX:,} bytes")

    def _check_same(self, record: RecordPlace, document: str, *, same: bool) -> None:
        if not same:
            raise WrongShape("an earlier record has the same id and other content")
        self._skips.skip(record, DUPLICATE, "an earlier record has the same id and content", document)


def checked(document: LibraryDocument) -> LibraryDocument:
    """Raises `WrongShape` if it is too long to be stored."""
    if not 0 < len(document.id) <= LIBRARY_ID_CHARACTERS_MAX or len(document.parent) > LIBRARY_ID_CHARACTERS_MAX:
        raise WrongShape(f"ids of library documents must have 1 to {LIBRARY_ID_CHARACTERS_MAX:,} characters")
    texts = (document.kind, document.title, document.type, document.comments, *document.tags)
    if len(document.tags) > LIBRARY_TAGS_MAX or any(len(text) > LIBRARY_TEXT_CHARACTERS_MAX for text in texts):
        raise WrongShape(
            f"a library document must have at most {LIBRARY_TAGS_MAX:,} tags, and texts of at most "
            f"{LIBRARY_TEXT_CHARACTERS_MAX:,} characters"
        )
    return document


def _check_parents(described: Mapping[str, _Described]) -> None:
    """Raises `InvalidCore` if a document is, directly or indirectly, part of itself."""
    done: set[str] = set()
    for document in described:
        ancestors: dict[str, None] = {}
        at = document
        while at in described and at not in done:
            if at in ancestors:
                raise InvalidCore(*described[at].at[:2], "a library document is a part of itself")
            ancestors[at] = None
            at = described[at].parent
        done.update(ancestors)
