"""The quads of urn:graph:source, made from the records of a corpus whenever they are asked for.

A pattern with a subject reads one record; one whose object is something that others are derived from goes by the
indexes that lead to those; every other one walks the records that may match, page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final, TypeVar
from uuid import UUID

from drillcore_server.domain.ids import DocumentId, FactId, NodeId, SourceId
from drillcore_server.domain.iris import GRAPH_SOURCE, Named, named_by
from drillcore_server.domain.provenance_quads import (
    SOURCE_KINDS,
    chunk_quads,
    document_quads,
    fact_quads,
    kinds_telling,
    master_quads,
    section_quads,
    source_quads,
)
from drillcore_server.domain.quads import Iri, Quad, QuadPattern
from drillcore_server.store.facts import FACT, FactsView, fact_id
from drillcore_server.store.hierarchy import DOCUMENT, SOURCE, CorpusView, node_id
from drillcore_server.store.keyring import KeyErased
from drillcore_server.store.packed import decode_chunk
from drillcore_server.store.quad_walks import BYTES_MAX, DerivedPage, Keys, Listed, Stretch, walked
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.versioned import Entry

T = TypeVar("T")
_CHUNKS_MAX: Final = 200
"""Read for a page: they hold their text."""


def source_page(
    view: CorpusView, pattern: QuadPattern, begin: bytes, quads_max: int, bytes_max: int = BYTES_MAX
) -> DerivedPage:
    """The quads of urn:graph:source that match a pattern, from `begin` on, in an order of the store's own."""
    if pattern.source is not None or pattern.graph not in {None, GRAPH_SOURCE}:
        return DerivedPage([], None)
    return walked(_Telling(view).stretches(pattern), pattern, begin, quads_max, bytes_max)


def every_source_quad(snapshot: Snapshot, *, hierarchy: bool = True) -> Iterator[Quad]:
    """All of urn:graph:source: sources by id, documents by id, each with its chunks in order, sections by id, the
    master, facts by id. What was erased is left out. May be begun again, and gives the same.

    Without the hierarchy only those of sources and facts.
    """
    nodes = chain(_of_documents(snapshot), _of_summaries(snapshot)) if hierarchy else ()
    return chain(_of_sources(snapshot), nodes, _of_facts(snapshot))


def _of_sources(snapshot: Snapshot) -> Iterator[Quad]:
    """They are stored in another order: their ids are held."""
    entries = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.sources()))
    ids = sorted(SOURCE.decode(entry.value).id for entry in entries)
    for source in snapshot.each_left(ids, lambda view, one: view.source(one)):
        yield from source_quads(source)


def _of_documents(snapshot: Snapshot) -> Iterator[Quad]:
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.documents())):
        document = DOCUMENT.decode(entry.value)
        yield from document_quads(document)
        for chunk in snapshot.each_left(document.chunks, lambda view, one: view.chunk(one)):
            yield from chunk_quads(chunk)


def _of_summaries(snapshot: Snapshot) -> Iterator[Quad]:
    ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
    for section in snapshot.each_left(ids, lambda view, one: view.section(one)):
        yield from section_quads(section)
    master = snapshot.read(lambda view: view.master_left())
    yield from () if master is None else master_quads(master)


def _of_facts(snapshot: Snapshot) -> Iterator[Quad]:
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.facts())):
        yield from fact_quads(FACT.decode(entry.value))


class _Telling:
    """Which records of a revision may have quads that match, and what each says."""

    def __init__(self, view: CorpusView) -> None:
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
                return Listed([None], lambda _: _told(master_quads, view.master()))
            case _:
                return Keys(view, keys.facts(), lambda one: fact_quads(FACT.decode(self._opened(one))))

    def _of(self, named: Named) -> Sequence[Quad]:
        """What the one record says that is named; the pattern's subject keeps out another master."""
        view = self._view
        if named.kind == "source":
            return _told(source_quads, view.source(SourceId(named.id)))
        match named.kind, UUID(named.id):
            case "document", id_:
                return _told(document_quads, view.document(DocumentId(id_)))
            case "chunk", id_:
                return _told(chunk_quads, view.chunk(NodeId(id_)))
            case "section", id_:
                return self._section(NodeId(id_))
            case "master", _:
                return _told(master_quads, view.master())
            case _, id_:
                return self._fact(FactId(id_))

    def _document_of(self, source: SourceId) -> Stretch:
        """A source leads to the one document that it has."""
        found = self._view.source_left(source)
        documents = () if found is None or found.document is None else (found.document,)
        return Listed(documents, lambda one: _told(document_quads, self._view.document(one)))

    def _facts_of_source(self, source: SourceId) -> Stretch:
        keys = self._keys.source_facts(self._view.sealed.hashed(source))
        return Keys(self._view, keys, lambda one: self._fact(fact_id(one.key)))

    def _facts_of_chunk(self, chunk: NodeId) -> Stretch:
        return Keys(self._view, self._keys.chunk_facts(chunk), lambda one: self._fact(fact_id(one.key)))

    def _chunks_of(self, document: DocumentId) -> Stretch:
        try:
            found = self._view.document(document)
        except KeyErased:
            found = None
        chunks = () if found is None else found.chunks
        return Listed(chunks, lambda one: _told(chunk_quads, self._view.chunk(one)))

    def _section_of(self, chunk: NodeId) -> Stretch:
        """The one that may cite it: a section cites what is below it."""
        section = self._view.parent(chunk)
        return Listed(() if section is None else (section,), self._section)

    def _section(self, section: NodeId) -> Sequence[Quad]:
        return _told(section_quads, self._view.section(section))

    def _fact(self, fact: FactId) -> Sequence[Quad]:
        return _told(fact_quads, FactsView(self._view).fact(fact))

    def _document(self, entry: Entry) -> Sequence[Quad]:
        return document_quads(DOCUMENT.decode(self._opened(entry)))

    def _chunk(self, entry: Entry) -> Sequence[Quad]:
        return chunk_quads(decode_chunk(node_id(entry.key[-16:]), self._opened(entry)).chunk)

    def _opened(self, entry: Entry) -> bytes:
        return self._view.sealed.opened(entry).value


def _told(tell: Callable[[T], Sequence[Quad]], record: T | None) -> Sequence[Quad]:
    return () if record is None else tell(record)
