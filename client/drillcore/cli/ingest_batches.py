"""Files in batches, each of which becomes one revision, and the names of the requests that send them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore._document_results import BinaryFile, NewDocument
from drillcore.cli.ingest_files import InputFile
from drillcore.cli.session import CommandError

DOCUMENTS_MAX: Final = 1_000
"""Per batch, unless everything is one: tiny files fill no megabytes."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says of every document."""

    media_type: str
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Item:
    """A file of a batch with the digest of what it held when the request was named."""

    file: InputFile
    digest: bytes


Batch = tuple[Item, ...]


def batches(items: Iterable[Item], size_bytes_max: int | None) -> Iterator[Batch]:
    """The items in order, in batches of up to this size or of a single larger file; without a size, in one batch."""
    batch: list[Item] = []
    size_bytes = 0
    for item in items:
        size_bytes += item.file.size_bytes
        full = size_bytes_max is not None and (size_bytes > size_bytes_max or len(batch) == DOCUMENTS_MAX)
        if batch and full:
            yield tuple(batch)
            batch, size_bytes = [], item.file.size_bytes
        batch.append(item)
    if batch:
        yield tuple(batch)


def request_id(corpus_id: UUID, head: int, batch: Batch, given: Given) -> str:
    """The same for the same documents added to the same state of a corpus, so that a batch sent again is added once.

    The head is in it because a corpus moves on: documents that were removed, or changed and changed back, are to be
    added again and not answered with what became of them the first time.
    """
    digest = hashlib.sha256()
    described = [str(corpus_id), str(head), given.media_type]
    described += [text for pair in sorted(given.metadata.items()) for text in pair]
    described += [text for item in batch for text in (item.file.name, item.digest.hex())]
    for text in described:
        digest.update(hashlib.sha256(text.encode()).digest())
    return f"ingest-{digest.hexdigest()[:40]}"


def new_documents(batch: Batch, given: Given, sent: Callable[[int], object]) -> Iterator[NewDocument]:
    """The documents of a batch, opened one after the other. `sent` hears how many bytes of them were read.

    Raises CommandError if a file no longer holds what the request was named for.
    """
    for item in batch:
        with item.file.open() as file:
            reader = _Checked(file, item, sent)
            yield NewDocument(item.file.name, reader, media_type=given.media_type, metadata=given.metadata)


class _Checked:
    """Reads a file, and at its end makes sure that it is still what it was."""

    def __init__(self, file: BinaryFile, item: Item, sent: Callable[[int], object]) -> None:
        self._file = file
        self._item = item
        self._sent = sent
        self._digest = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        piece = self._file.read(size)
        self._digest.update(piece)
        self._sent(len(piece))
        if not piece and self._digest.digest() != self._item.digest:
            message = f"{self._item.file.name} changed while it was being sent: run the command again"
            raise CommandError("FILE_CHANGED", message)
        return piece
