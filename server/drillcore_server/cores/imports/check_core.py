"""Reads an uploaded core once and checks all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

from drillcore_formats.cores.format import (
    DOCUMENT_EMBEDDINGS,
    GRAPH_EMBEDDINGS,
    KNOWN,
    LIBRARY_METADATA,
    LISTS,
    ROOT_BYTES_MAX,
    TRIPLES,
    InvalidCore,
    WrongShape,
)
from drillcore_formats.cores.framing import Blob, Record, blob_content, located, read_core
from drillcore_formats.cores.parts import ROOT_KIND, CoreRoot
from drillcore_formats.cores.records import LibraryDocument, read_library, read_listing
from drillcore_server.cores.imports.full_intake import FullIntake
from drillcore_server.cores.imports.full_records import FullRecords
from drillcore_server.cores.imports.graph_records import QuadIntake, VectorIntake
from drillcore_server.cores.imports.library_documents import LibraryIntake
from drillcore_server.cores.imports.record_decoder import Place
from drillcore_server.cores.model import UNKNOWN_TAG, Skips
from drillcore_server.storage.sealed_file import SealedFile

Progress = Callable[[int, int], None]
"""Is called with the number of bytes and records that were read so far."""
_PROGRESS_EVERY: Final = 200
"""Records between two reports of progress."""
_UNKNOWN: Final = ""
"""Stands for all unknown tags, of which there may be any number."""


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a full core."""

    core_id: str
    place: Place
    """The place of its description in the file. Records before it are those of other systems."""
    content: CoreRoot


@dataclass(slots=True)
class CheckedCore:
    """A core that was checked completely, with the results that are needed to read it again. Close it at the end."""

    file: SealedFile
    root: Root | None
    skips: Skips
    quads: QuadIntake
    vectors: VectorIntake
    library: LibraryIntake
    full: FullIntake | None
    core_id: str = ""
    records: int = 0
    tags: set[str] = field(default_factory=set)

    @property
    def is_document_embeddings(self) -> bool:
        return self.tags == {DOCUMENT_EMBEDDINGS}

    def library_records(self) -> Iterator[Record | Blob]:
        """Yields the records that describe library documents of other systems, and their contents."""
        end = None if self.root is None else self.root.place.offset
        for part in read_core(self.file.pieces()):
            if end is not None and part.offset >= end:
                return
            if isinstance(part, Blob) or part.tag == LIBRARY_METADATA:
                yield part

    def close(self) -> None:
        self.quads.close()
        self.vectors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_core(file: SealedFile, *, strict: bool, progress: Progress) -> CheckedCore:
    """Checks a whole core. Raises `InvalidCore` if anything is wrong; with `strict`, also if anything is left out."""
    root = _find_root(file)
    skips = Skips(strict)
    dimensions = None if root is None else root.content.model.dimensions if root.content.model else 0
    quads, vectors = QuadIntake(skips, is_full=root is not None), VectorIntake(skips, fact_dimensions=dimensions)
    full = None if root is None else FullIntake(FullRecords(file, root.place), root.content, vectors)
    core = CheckedCore(file, root, skips, quads, vectors, LibraryIntake(skips), full)
    try:
        _take_all(core, progress)
    except BaseException:
        core.close()
        raise
    return core


def _take_all(core: CheckedCore, progress: Progress) -> None:
    for part in read_core(core.file.pieces()):
        if core.root is not None and part.offset >= core.root.place.offset:
            break
        with located(part.number, part.offset):
            _take(core, part)
        core.records = part.number
        if part.number % _PROGRESS_EVERY == 0:
            progress(part.offset, part.number)
    core.library.settle()
    if core.full is not None:
        _take_full(core, core.full, progress)
    progress(core.file.size_bytes, core.records)


def _take_full(core: CheckedCore, full: FullIntake, progress: Progress) -> None:
    assert core.root is not None
    core.core_id = core.root.core_id
    for place, found in full.records.walk():
        with located(place.number, place.offset):
            full.take(found)
        if place.number >= core.records + _PROGRESS_EVERY:
            progress(place.offset, place.number)
            core.records = place.number
    core.records = full.records.count
    with located(core.records, core.file.size_bytes):
        full.settle(core.library, core.quads)


def _take(core: CheckedCore, part: Record | Blob) -> None:
    core.tags.add(part.tag if part.tag in KNOWN else _UNKNOWN)
    if isinstance(part, Blob):
        core.library.take_content(part)
        core.core_id = core.core_id or part.id or ""
    elif part.tag == LIBRARY_METADATA:
        core.library.take(part)
        core.core_id = core.core_id or read_library(part).id
    elif part.tag in LISTS:
        _take_listing(core, part)
    else:
        core.skips.skip(part, UNKNOWN_TAG, f"records {part.tag!r:.40} are not known here")


def _take_listing(core: CheckedCore, record: Record) -> None:
    listing = read_listing(record)
    core.core_id = core.core_id or listing.meta.core
    if record.tag == TRIPLES:
        core.quads.take(listing)
    elif record.tag == GRAPH_EMBEDDINGS:
        core.vectors.take_entities(listing)
    else:
        core.vectors.take_chunks(listing)


def _find_root(file: SealedFile) -> Root | None:
    """Finds the root first: it comes late in a full core, and decides how everything else is read."""
    if not _has(file, ROOT_KIND.encode()):
        return None
    described: LibraryDocument | None = None
    place = Place(0, 0)
    for part in read_core(file.pieces()):
        with located(part.number, part.offset):
            if described is not None:
                return Root(described.id, place, _root_content(part, described))
            if isinstance(part, Record) and part.tag == LIBRARY_METADATA:
                document = read_library(part)
                if document.kind == ROOT_KIND:
                    described, place = document, Place(part.number, part.offset)
    if described is not None:
        raise InvalidCore(*place[:2], "the file ends after the description of its root")
    return None


def _root_content(part: Record | Blob, described: LibraryDocument) -> CoreRoot:
    if not isinstance(part, Blob):
        raise WrongShape("the content of the root does not follow its description")
    content = blob_content(part, ROOT_BYTES_MAX)
    if part.id != described.id:
        raise WrongShape("the content of the root does not follow its description")
    return CoreRoot.parse(content)


def _has(file: SealedFile, mark: bytes) -> bool:
    rest = b""
    for piece in file.pieces():
        if mark in rest + piece[: len(mark)] or mark in piece:
            return True
        rest = piece[-len(mark) :]
    return False
