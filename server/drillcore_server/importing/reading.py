"""Goes through a core that was uploaded, once, and checks all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

from drillcore.cores.blobs import Blob
from drillcore.cores.failures import InvalidCore, WrongShape
from drillcore.cores.framing import Record, naming, read_core
from drillcore.cores.inspecting import content_of
from drillcore.cores.limits import ROOT_BYTES_MAX
from drillcore.cores.parts import ROOT_KIND, CoreRoot
from drillcore.cores.records import LibraryDocument, read_library, read_listing
from drillcore.cores.tags import DOCUMENT_EMBEDDINGS, GRAPH_EMBEDDINGS, KNOWN, LIBRARY_METADATA, LISTS, TRIPLES
from drillcore_server.exporting.sealed_file import SealedFile
from drillcore_server.importing.full import FullIntake
from drillcore_server.importing.full_records import FullRecords
from drillcore_server.importing.library import LibraryIntake
from drillcore_server.importing.places import Place
from drillcore_server.importing.quads import QuadIntake
from drillcore_server.importing.report import UNKNOWN_TAG, Skips
from drillcore_server.importing.vectors import VectorIntake

Tell = Callable[[int, int], None]
"""Hears how many bytes and records were gone through."""
_TELL_EVERY: Final = 200
"""Records."""
_UNKNOWN: Final = ""
"""Stands for all tags that are not known: there may be any number."""


@dataclass(frozen=True, slots=True)
class Root:
    """Of a full core."""

    core_id: str
    place: Place
    """Where in the file it is described: what comes before it is of other systems."""
    said: CoreRoot


@dataclass(slots=True)
class CheckedCore:
    """A core of which everything was checked, and what is needed to go through it again."""

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
        """Those that describe library documents of other systems, and their contents."""
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


def check_core(file: SealedFile, *, strict: bool, tell: Tell) -> CheckedCore:
    """Raises `InvalidCore` if anything of it is wrong; with `strict` also if anything would be left out."""
    root = _find_root(file)
    skips = Skips(strict)
    dimensions = None if root is None else root.said.model.dimensions if root.said.model else 0
    quads, vectors = QuadIntake(skips, is_full=root is not None), VectorIntake(skips, fact_dimensions=dimensions)
    full = None if root is None else FullIntake(FullRecords(file, root.place), root.said, vectors)
    core = CheckedCore(file, root, skips, quads, vectors, LibraryIntake(skips), full)
    try:
        _go_through(core, tell)
    except BaseException:
        core.close()
        raise
    return core


def _go_through(core: CheckedCore, tell: Tell) -> None:
    for part in read_core(core.file.pieces()):
        if core.root is not None and part.offset >= core.root.place.offset:
            break
        with naming(part.number, part.offset):
            _take(core, part)
        core.records = part.number
        if part.number % _TELL_EVERY == 0:
            tell(part.offset, part.number)
    core.library.settle()
    if core.full is not None:
        _go_through_full(core, core.full, tell)
    tell(core.file.size_bytes, core.records)


def _go_through_full(core: CheckedCore, full: FullIntake, tell: Tell) -> None:
    assert core.root is not None
    core.core_id = core.root.core_id
    for place, found in full.records.walk():
        with naming(place.number, place.offset):
            full.take(found)
        if place.number >= core.records + _TELL_EVERY:
            tell(place.offset, place.number)
            core.records = place.number
    core.records = full.records.count
    with naming(core.records, core.file.size_bytes):
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
    """What makes a core a full one comes late in it, and decides how all the rest is read."""
    if not _has(file, ROOT_KIND.encode()):
        return None
    described: LibraryDocument | None = None
    place = Place(0, 0)
    for part in read_core(file.pieces()):
        with naming(part.number, part.offset):
            if described is not None:
                return Root(described.id, place, _root_said(part, described))
            if isinstance(part, Record) and part.tag == LIBRARY_METADATA:
                document = read_library(part)
                if document.kind == ROOT_KIND:
                    described, place = document, Place(part.number, part.offset)
    if described is not None:
        raise InvalidCore(*place[:2], "the file ends behind the description of its root")
    return None


def _root_said(part: Record | Blob, described: LibraryDocument) -> CoreRoot:
    if not isinstance(part, Blob):
        raise WrongShape("what the root says does not follow its description")
    content = content_of(part, ROOT_BYTES_MAX)
    if part.id != described.id:
        raise WrongShape("what the root says does not follow its description")
    return CoreRoot.parse(content)


def _has(file: SealedFile, mark: bytes) -> bool:
    rest = b""
    for piece in file.pieces():
        if mark in rest + piece[: len(mark)] or mark in piece:
            return True
        rest = piece[-len(mark) :]
    return False
