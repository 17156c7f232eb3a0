"""Pages of quads that records tell of themselves.

A walk goes over stretches, one after the other: ranges of keys, or a few records that are named. What is read for a
page is bounded, so a page may be short, or empty, before the end.

The quads of urn:graph:source, made from the records of a corpus whenever they are asked for.

A pattern with a subject reads one record; one whose object is something that others are derived from goes by the
indexes that lead to those; every other one walks the records that may match, page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from drillcore_fdb.tuples import KeyRange
from drillcore_formats.quads import Iri
from drillcore_server.facts.store import FACT, FactReader, fact_id
from drillcore_server.graphs.provenance_quads import (
    SOURCE_KINDS,
    chunk_quads,
    document_quads,
    fact_quads,
    kinds_telling,
    master_quads,
    section_quads,
    source_quads,
)
from drillcore_server.graphs.quad_model import GRAPH_SOURCE, Named, Quad, QuadPattern, encoded_quad, named_by
from drillcore_server.hierarchy.packed import decode_chunk
from drillcore_server.hierarchy.store import DOCUMENT, SOURCE, HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import DocumentId, FactId, NodeId, SourceId, node_id
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.versioned import Entry

T = TypeVar("T")
KEYS_MAX: Final = 1_000
"""Read of one stretch for a page: well within five seconds."""
BYTES_MAX: Final = 1 << 20
"""Of the quads of a page; the first may have more."""


class DerivedPage(NamedTuple):
    quads: list[Quad]
    following: bytes | None
    """Where the next page begins; None: there is none."""


class Told(NamedTuple):
    """What one record says."""

    place: bytes
    """In its stretch: reading from there on, it is the first."""
    quads: Sequence[Quad]


class Stretch(Protocol):
    def read(self, place: bytes) -> tuple[Iterable[Told], bytes | None]:
        """Some records from a place on, and where to go on; None at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Keys:
    """What a revision has of a range of keys. What was erased says nothing."""

    view: CorpusAtRevision
    keys: KeyRange
    tell: Callable[[Entry], Sequence[Quad]]
    keys_max: int = KEYS_MAX

    def read(self, place: bytes) -> tuple[Iterable[Told], bytes | None]:
        begin, end = self.keys
        found, following = versioned.page(self.view.tr, begin + place, end, self.view.revision, self.keys_max)
        told = (Told(entry.key[len(begin) :], unless_erased(self.tell, entry)) for entry in found)
        return told, None if following is None else following[len(begin) :]


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Records that are named, in the order of their names."""

    names: Sequence[T]
    tell: Callable[[T], Sequence[Quad]]

    def read(self, place: bytes) -> tuple[Iterable[Told], bytes | None]:
        first = int.from_bytes(place, "big")
        end = first + KEYS_MAX
        return self._told(first, end), None if end >= len(self.names) else end.to_bytes(4, "big")

    def _told(self, first: int, end: int) -> Iterator[Told]:
        for number, name in enumerate(self.names[first:end], first):
            yield Told(number.to_bytes(4, "big"), unless_erased(self.tell, name))


def unless_erased(tell: Callable[[T], Sequence[Quad]], one: T) -> Sequence[Quad]:
    try:
        return tell(one)
    except KeyErased:
        return ()


class _Cursor(NamedTuple):
    """Where a page begins."""

    stretch: int = 0
    quad: int = 0
    """Of the first record, among those that match."""
    place: bytes = b""

    @classmethod
    def parsed(cls, stored: bytes) -> _Cursor:
        return cls(int.from_bytes(stored[:1], "big"), int.from_bytes(stored[1:5], "big"), stored[5:])

    def written(self) -> bytes:
        return self.stretch.to_bytes(1, "big") + self.quad.to_bytes(4, "big") + self.place


def walked(
    stretches: Sequence[Stretch], pattern: QuadPattern, begin: bytes, quads_max: int, bytes_max: int = BYTES_MAX
) -> DerivedPage:
    """The quads of the stretches that match, from `begin` on, which is empty or what the page before said."""
    page, size_bytes = list[Quad](), 0
    first = _Cursor.parsed(begin)
    for number in range(first.stretch, len(stretches)):
        start = first if number == first.stretch else _Cursor()
        told, following = stretches[number].read(start.place)
        for place, quads in told:
            matching = [one for one in quads if pattern.matches(one)]
            known = start.quad if place == start.place else 0
            for at, quad in enumerate(matching[known:], known):
                if page and (len(page) >= quads_max or size_bytes >= bytes_max):
                    return DerivedPage(page, _Cursor(number, at, place).written())
                page.append(quad)
                size_bytes += len(encoded_quad(quad))
        if following is not None:
            return DerivedPage(page, _Cursor(number, 0, following).written())
    return DerivedPage(page, None)


_CHUNKS_MAX: Final = 200
"""Read for a page: they hold their text."""


def source_page(
    view: CorpusAtRevision, pattern: QuadPattern, begin: bytes, quads_max: int, bytes_max: int = BYTES_MAX
) -> DerivedPage:
    """The quads of urn:graph:source that match a pattern, from `begin` on, in an order of the store's own."""
    if pattern.source is not None or pattern.graph not in {None, GRAPH_SOURCE}:
        return DerivedPage([], None)
    return walked(_Telling(view).stretches(pattern), pattern, begin, quads_max, bytes_max)


def every_source_quad(snapshot: BatchedReads, *, hierarchy: bool = True) -> Iterator[Quad]:
    """All of urn:graph:source: sources by id, documents by id, each with its chunks in order, sections by id, the
    master, facts by id. What was erased is left out. May be begun again, and gives the same.

    Without the hierarchy only those of sources and facts.
    """
    nodes = chain(_of_documents(snapshot), _of_summaries(snapshot)) if hierarchy else ()
    return chain(_of_sources(snapshot), nodes, _of_facts(snapshot))


def _of_sources(snapshot: BatchedReads) -> Iterator[Quad]:
    """They are stored in another order: their ids are held."""
    entries = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.sources()))
    ids = sorted(SOURCE.decode(entry.value).id for entry in entries)
    for source in snapshot.each_left(ids, lambda view, one: HierarchyReader(view).source(one)):
        yield from source_quads(source)


def _of_documents(snapshot: BatchedReads) -> Iterator[Quad]:
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.documents())):
        document = DOCUMENT.decode(entry.value)
        yield from document_quads(document)
        for chunk in snapshot.each_left(document.chunks, lambda view, one: HierarchyReader(view).chunk(one)):
            yield from chunk_quads(chunk)


def _of_summaries(snapshot: BatchedReads) -> Iterator[Quad]:
    ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
    for section in snapshot.each_left(ids, lambda view, one: HierarchyReader(view).section(one)):
        yield from section_quads(section)
    master = snapshot.read(lambda view: HierarchyReader(view).master_left())
    yield from () if master is None else master_quads(master)


def _of_facts(snapshot: BatchedReads) -> Iterator[Quad]:
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.facts())):
        yield from fact_quads(FACT.decode(entry.value))


class _Telling:
    """Which records of a revision may have quads that match, and what each says."""

    def __init__(self, view: CorpusAtRevision) -> None:
        self._view = view
        self._keys = view.keys

    def stretches(self, pattern: QuadPattern) -> Sequence[Stretch]:
        kinds = kinds_telling(pattern)
        if pattern.subject is not None:
            named = named_by(pattern.subject.value) if isinstance(pattern.subject, Iri) else None
            return [] if named is None or named.kind not in kinds else [Listed([named], self._of)]
        if isinstance(pattern.object, Iri) and (named := named_by(pattern.object.value)) is not None:
            return self._derived_from(named)
        return [self._all(kind) for kind in SOURCE_KINDS if kind in kinds]

    def _derived_from(self, named: Named) -> list[Stretch]:
        """What may come from something of ours; nothing else has it as its object."""
        match named.kind:
            case "source":
                return [self._document_of(SourceId(named.id)), self._facts_of_source(SourceId(named.id))]
            case "document":
                return [self._chunks_of(DocumentId(UUID(named.id)))]
            case "chunk":
                chunk = NodeId(UUID(named.id))
                return [self._section_of(chunk), self._all("master"), self._facts_of_chunk(chunk)]
            case _:
                return []

    def _all(self, kind: str) -> Stretch:
        view, keys = self._view, self._keys
        match kind:
            case "source":
                return Keys(view, keys.sources(), lambda one: source_quads(SOURCE.decode(self._opened(one))))
            case "document":
                return Keys(view, keys.documents(), self._document)
            case "chunk":
                return Keys(view, keys.chunks(), self._chunk, _CHUNKS_MAX)
            case "section":
                return Keys(view, keys.listed_sections(), lambda one: self._section(node_id(one.key[-16:])))
            case "master":
                return Listed([None], lambda _: _told(master_quads, HierarchyReader(view).master()))
            case _:
                return Keys(view, keys.facts(), lambda one: fact_quads(FACT.decode(self._opened(one))))

    def _of(self, named: Named) -> Sequence[Quad]:
        """What the one record says that is named; the pattern's subject keeps out another master."""
        view = self._view
        if named.kind == "source":
            return _told(source_quads, HierarchyReader(view).source(SourceId(named.id)))
        match named.kind, UUID(named.id):
            case "document", id_:
                return _told(document_quads, HierarchyReader(view).document(DocumentId(id_)))
            case "chunk", id_:
                return _told(chunk_quads, HierarchyReader(view).chunk(NodeId(id_)))
            case "section", id_:
                return self._section(NodeId(id_))
            case "master", _:
                return _told(master_quads, HierarchyReader(view).master())
            case _, id_:
                return self._fact(FactId(id_))

    def _document_of(self, source: SourceId) -> Stretch:
        """A source leads to the one document that it has."""
        found = HierarchyReader(self._view).source_left(source)
        documents = () if found is None or found.document is None else (found.document,)
        return Listed(documents, lambda one: _told(document_quads, HierarchyReader(self._view).document(one)))

    def _facts_of_source(self, source: SourceId) -> Stretch:
        keys = self._keys.source_facts(self._view.sealed.hashed(source))
        return Keys(self._view, keys, lambda one: self._fact(fact_id(one.key)))

    def _facts_of_chunk(self, chunk: NodeId) -> Stretch:
        return Keys(self._view, self._keys.chunk_facts(chunk), lambda one: self._fact(fact_id(one.key)))

    def _chunks_of(self, document: DocumentId) -> Stretch:
        try:
            found = HierarchyReader(self._view).document(document)
        except KeyErased:
            found = None
        chunks = () if found is None else found.chunks
        return Listed(chunks, lambda one: _told(chunk_quads, HierarchyReader(self._view).chunk(one)))

    def _section_of(self, chunk: NodeId) -> Stretch:
        """The one that may cite it: a section cites what is below it."""
        section = HierarchyReader(self._view).parent(chunk)
        return Listed(() if section is None else (section,), self._section)

    def _section(self, section: NodeId) -> Sequence[Quad]:
        return _told(section_quads, HierarchyReader(self._view).section(section))

    def _fact(self, fact: FactId) -> Sequence[Quad]:
        return _told(fact_quads, FactReader(self._view).fact(fact))

    def _document(self, entry: Entry) -> Sequence[Quad]:
        return document_quads(DOCUMENT.decode(self._opened(entry)))

    def _chunk(self, entry: Entry) -> Sequence[Quad]:
        return chunk_quads(decode_chunk(node_id(entry.key[-16:]), self._opened(entry)).chunk)

    def _opened(self, entry: Entry) -> bytes:
        return self._view.sealed.opened(entry).value


def _told(tell: Callable[[T], Sequence[Quad]], record: T | None) -> Sequence[Quad]:
    return () if record is None else tell(record)
