"""Provenance quads of records and envelopes, computed when they are asked for.

    urn:graph:source       sources, documents, chunks, sections, the master and facts of a corpus
    urn:graph:retrieval    the envelopes that were issued to the caller

They are never stored, so they cannot differ from the records. A page reads one group of records after the other. How
much is read for one page is bounded, so a page may be short or empty before the end.

A pattern with a subject needs one record. A pattern whose object is a record of the corpus is answered from the indexes
that lead to the records derived from it. Every other pattern reads all records that may match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_fdb.tuples import KeyRange
from drillcore_formats.quads import Iri
from drillcore_server.envelopes.envelope_plan import IssuedEnvelope
from drillcore_server.envelopes.store import EnvelopeStore, envelope_store, issued_to
from drillcore_server.facts.store import FactReader, block_id, block_in, stored_facts
from drillcore_server.graphs.provenance_quads import (
    SOURCE_KINDS,
    chunk_quads,
    document_quads,
    envelope_quads,
    fact_quads,
    kinds_with,
    master_quads,
    section_quads,
    source_quads,
)
from drillcore_server.graphs.quad_model import (
    GRAPH_RETRIEVAL,
    GRAPH_SOURCE,
    Named,
    Quad,
    QuadPattern,
    encoded_quad,
    named_by,
)
from drillcore_server.hierarchy.model import Chunk
from drillcore_server.hierarchy.packed import SECTION, decode_chunk
from drillcore_server.hierarchy.store import DOCUMENT, SOURCE, HierarchyReader
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.pages import read_together
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import BlockId, DocumentId, EnvelopeId, FactId, NodeId, PrincipalId, SourceId, node_id
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.versioned import Entry

T = TypeVar("T")
KEYS_MAX: Final = 1_000
"""Keys that are read of one group for a page. Stays well within five seconds."""
BYTES_MAX: Final = 1 << 20
"""Bytes of quads in a page. A single quad may be larger."""
_CHUNKS_MAX: Final = 200
"""Chunks that are read for a page. Their records hold their text."""
_BLOCKS_MAX: Final = 200
"""Blocks of facts that are read for a page."""
_RECORDS_AT_ONCE: Final = 100
"""Records that an index leads to, or that are known by name, and that are read together."""
_ENVELOPE_KEYS_MAX: Final = 500
"""Keys of envelopes, or of index entries that lead to them, that are read for a page. Those of other callers count."""


class DerivedPage(NamedTuple):
    quads: list[Quad]
    following: bytes | None
    """Where the next page begins; None at the end."""


class RecordQuads(NamedTuple):
    """The quads of one record."""

    place: bytes
    """Place of the record in its group. Reading from this place begins with this record."""
    quads: Sequence[Quad]


class RecordGroup(Protocol):
    """Records that are read one after the other, with the quads of each."""

    def read(self, place: bytes) -> tuple[Iterable[RecordQuads], bytes | None]:
        """Reads some records from a place on. Also returns where to continue, or None at the end."""
        ...


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """All records of a key range at one revision. Erased records yield no quads."""

    view: CorpusAtRevision
    keys: KeyRange
    quads_of: Callable[[Entry], Sequence[Quad]]
    keys_max: int = KEYS_MAX
    reading: Callable[[Iterable[Entry]], Iterable[Entry]] = iter
    """Gives the entries one by one. May read ahead what they lead to: see `records_ahead`."""

    def read(self, place: bytes) -> tuple[Iterable[RecordQuads], bytes | None]:
        begin, end = self.keys
        entries, following = versioned.page(self.view.tr, begin + place, end, self.view.revision, self.keys_max)
        given = self.reading(entries)
        records = (RecordQuads(entry.key[len(begin) :], unless_erased(self.quads_of, entry)) for entry in given)
        return records, None if following is None else following[len(begin) :]


@dataclass(frozen=True, slots=True)
class ListedRecords(Generic[T]):
    """Records whose names are known, in the order of the names."""

    names: Sequence[T]
    quads_of: Callable[[T], Sequence[Quad]]
    reading: Callable[[Iterable[T]], Iterable[T]] = iter
    """Gives the names one by one. May read their records ahead: see `records_ahead`."""

    def read(self, place: bytes) -> tuple[Iterable[RecordQuads], bytes | None]:
        first = int.from_bytes(place, "big")
        end = first + KEYS_MAX
        return self._records(first, end), None if end >= len(self.names) else end.to_bytes(4, "big")

    def _records(self, first: int, end: int) -> Iterator[RecordQuads]:
        for number, name in enumerate(self.reading(self.names[first:end]), first):
            yield RecordQuads(number.to_bytes(4, "big"), unless_erased(self.quads_of, name))


def records_ahead(view: CorpusAtRevision, key_of: Callable[[T], bytes]) -> Callable[[Iterable[T]], Iterator[T]]:
    """Gives what it gets, in order, and reads the records at the keys of many together, before it gives the first."""

    def read(some: list[T]) -> list[T]:
        versioned.read_ends_ahead(view.tr, list(map(key_of, some)), view.revision)
        return some

    return lambda named: read_together(named, _RECORDS_AT_ONCE, read)


def unless_erased(quads_of: Callable[[T], Sequence[Quad]], record: T) -> Sequence[Quad]:
    """The quads of a record, or none if its key was destroyed."""
    try:
        return quads_of(record)
    except KeyErased:
        return ()


class _Cursor(NamedTuple):
    """Where a page begins."""

    group: int = 0
    quad: int = 0
    """Number of the quad among the matching quads of the first record."""
    place: bytes = b""

    @classmethod
    def decoded(cls, stored: bytes) -> _Cursor:
        return cls(int.from_bytes(stored[:1], "big"), int.from_bytes(stored[1:5], "big"), stored[5:])

    def encoded(self) -> bytes:
        return self.group.to_bytes(1, "big") + self.quad.to_bytes(4, "big") + self.place


def read_page(
    groups: Sequence[RecordGroup], pattern: QuadPattern, begin: bytes, quads_max: int, bytes_max: int = BYTES_MAX
) -> DerivedPage:
    """The matching quads of the groups from `begin` on, which is empty or the `following` of the page before."""
    page, size_bytes = list[Quad](), 0
    first = _Cursor.decoded(begin)
    for number in range(first.group, len(groups)):
        start = first if number == first.group else _Cursor()
        records, following = groups[number].read(start.place)
        for place, quads in records:
            matching = [quad for quad in quads if pattern.matches(quad)]
            known = start.quad if place == start.place else 0
            for at, quad in enumerate(matching[known:], known):
                if page and (len(page) >= quads_max or size_bytes >= bytes_max):
                    return DerivedPage(page, _Cursor(number, at, place).encoded())
                page.append(quad)
                size_bytes += len(encoded_quad(quad))
        if following is not None:
            return DerivedPage(page, _Cursor(number, 0, following).encoded())
    return DerivedPage(page, None)


def source_page(
    view: CorpusAtRevision, pattern: QuadPattern, begin: bytes, quads_max: int, bytes_max: int = BYTES_MAX
) -> DerivedPage:
    """The matching quads of urn:graph:source from `begin` on, which is empty or the `following` of the page before.

    The order is the store's own. A page may be short or empty; only a `following` of None means the end.
    """
    if pattern.source is not None or pattern.graph not in {None, GRAPH_SOURCE}:
        return DerivedPage([], None)
    return read_page(_SourceGraph(view).groups(pattern), pattern, begin, quads_max, bytes_max)


def retrieval_page(
    reads: CorpusReads,
    tr: Reader,
    granted: InTenant,
    principal: PrincipalId,
    view: CorpusAtRevision,
    pattern: QuadPattern,
    begin: bytes,
    quads_max: int,
    bytes_max: int = BYTES_MAX,
) -> DerivedPage:
    """The matching quads of urn:graph:retrieval, in pages like those of `source_page`.

    Covers envelopes that were issued to the caller from this corpus, up to the revision of the view.
    """
    if pattern.source is not None or pattern.graph not in {None, GRAPH_RETRIEVAL}:
        return DerivedPage([], None)
    own = OwnEnvelopes.of(reads, tr, granted, principal)
    return read_page(_RetrievalGraph(own, view).groups(pattern), pattern, begin, quads_max, bytes_max)


def every_source_quad(snapshot: BatchedReads, *, hierarchy: bool = True) -> Iterator[Quad]:
    """All quads of urn:graph:source, without those of erased records. The same snapshot always yields the same order.

    Sources come first, by id. Then come documents by id, each with its chunks in order, sections by id, and the master.
    Facts come last, by id. Without `hierarchy`, only the quads of sources and facts.
    """
    nodes = chain(_document_quads(snapshot), _summary_quads(snapshot)) if hierarchy else ()
    return chain(_source_quads(snapshot), nodes, _fact_quads(snapshot))


_CHUNKS_AT_ONCE: Final = 500
"""Chunks without their text that are read together."""


def _source_quads(snapshot: BatchedReads) -> Iterator[Quad]:
    """Holds all ids in memory, because sources are stored in another order."""
    entries = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.sources()))
    ids = sorted(SOURCE.decode(entry.value).id for entry in entries)
    for found in snapshot.together(ids, lambda view, some: view.opened(HierarchyReader(view).source_keys(some))):
        yield from () if found is None else source_quads(SOURCE.decode(found.value))


def _document_quads(snapshot: BatchedReads) -> Iterator[Quad]:
    def read(view: CorpusAtRevision, chunks: Sequence[NodeId]) -> list[Chunk | None]:
        found = zip(chunks, view.opened(list(map(view.keys.chunk, chunks))), strict=True)
        return [None if entry is None else decode_chunk(chunk, entry.value).chunk for chunk, entry in found]

    stored = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.documents()))
    documents = (DOCUMENT.decode(entry.value) for entry in stored)
    for document, chunks in snapshot.of_each(documents, lambda document: document.chunks, read, _CHUNKS_AT_ONCE):
        yield from document_quads(document)
        for chunk in filter(None, chunks):
            yield from chunk_quads(chunk)


def _summary_quads(snapshot: BatchedReads) -> Iterator[Quad]:
    ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
    for found in snapshot.together(ids, lambda view, some: view.opened(list(map(view.keys.section, some)))):
        yield from () if found is None else section_quads(SECTION.decode(found.value))
    master = snapshot.read(lambda view: HierarchyReader(view).master_unless_erased())
    yield from () if master is None else master_quads(master)


def _fact_quads(snapshot: BatchedReads) -> Iterator[Quad]:
    for fact in stored_facts(snapshot):
        yield from fact_quads(fact)


class _SourceGraph:
    """Finds the records of a revision whose quads may match, and makes the quads of each."""

    def __init__(self, view: CorpusAtRevision) -> None:
        self._view = view
        self._keys = view.keys

    def groups(self, pattern: QuadPattern) -> Sequence[RecordGroup]:
        kinds = kinds_with(pattern)
        if pattern.subject is not None:
            named = named_by(pattern.subject.value) if isinstance(pattern.subject, Iri) else None
            return [] if named is None or named.kind not in kinds else [ListedRecords([named], self._named)]
        if isinstance(pattern.object, Iri) and (named := named_by(pattern.object.value)) is not None:
            return self._derived_from(named)
        return [self._all(kind) for kind in SOURCE_KINDS if kind in kinds]

    def _derived_from(self, named: Named) -> list[RecordGroup]:
        """The records that may be derived from a record. No other record has its IRI as an object."""
        match named.kind:
            case "source":
                return [self._document_of(SourceId(named.id)), self._facts_of_source(SourceId(named.id))]
            case "document":
                return [self._chunks_of(DocumentId(UUID(named.id)))]
            case "chunk":
                chunk = NodeId(UUID(named.id))
                return [self._section_of(chunk), self._all("master"), *self._facts_of_chunk(chunk)]
            case _:
                return []

    def _all(self, kind: str) -> RecordGroup:
        view, keys = self._view, self._keys
        match kind:
            case "source":
                return StoredRecords(view, keys.sources(), self._source)
            case "document":
                return StoredRecords(view, keys.documents(), self._document)
            case "chunk":
                return StoredRecords(view, keys.chunks(), self._chunk, _CHUNKS_MAX)
            case "section":
                reading = records_ahead(view, self._section_key)
                return StoredRecords(view, keys.listed_sections(), self._listed_section, reading=reading)
            case "master":
                return ListedRecords([None], lambda _: _quads_of(master_quads, HierarchyReader(view).master()))
            case _:
                return StoredRecords(view, keys.fact_blocks(), self._block, _BLOCKS_MAX)

    def _named(self, named: Named) -> Sequence[Quad]:
        """The quads of one record. If a pattern names another master, its subject keeps out the quads of this one."""
        view = self._view
        if named.kind == "source":
            return _quads_of(source_quads, HierarchyReader(view).source(SourceId(named.id)))
        match named.kind, UUID(named.id):
            case "document", id_:
                return self._document_with(DocumentId(id_))
            case "chunk", id_:
                return self._chunk_with(NodeId(id_))
            case "section", id_:
                return self._section(NodeId(id_))
            case "master", _:
                return _quads_of(master_quads, HierarchyReader(view).master())
            case _, id_:
                return self._fact(FactId(id_))

    def _document_of(self, source: SourceId) -> RecordGroup:
        """A source has at most one document."""
        found = HierarchyReader(self._view).source_unless_erased(source)
        documents = () if found is None or found.document is None else (found.document,)
        return ListedRecords(documents, self._document_with)

    def _facts_of_source(self, source: SourceId) -> RecordGroup:
        return self._blocks_in(self._keys.source_blocks(self._view.sealed.hashed(source)))

    def _facts_of_chunk(self, chunk: NodeId) -> list[RecordGroup]:
        own = ListedRecords([BlockId(chunk)], self._facts_of_block)
        return [own, self._blocks_in(self._keys.chunk_blocks(chunk))]

    def _blocks_in(self, index: KeyRange) -> RecordGroup:
        """The blocks that the entries of an index lead to."""
        reading = records_ahead(self._view, self._block_key)
        return StoredRecords(self._view, index, self._listed_block, _BLOCKS_MAX, reading)

    def _chunks_of(self, document: DocumentId) -> RecordGroup:
        try:
            found = HierarchyReader(self._view).document(document)
        except KeyErased:
            found = None
        chunks = () if found is None else found.chunks
        reading = records_ahead(self._view, self._keys.chunk)
        return ListedRecords(chunks, self._chunk_with, reading)

    def _section_of(self, chunk: NodeId) -> RecordGroup:
        """A section cites only chunks below it, so only the parent can cite a chunk."""
        section = HierarchyReader(self._view).parent(chunk)
        return ListedRecords(() if section is None else (section,), self._section)

    def _section(self, section: NodeId) -> Sequence[Quad]:
        return _quads_of(section_quads, HierarchyReader(self._view).section(section))

    def _listed_section(self, entry: Entry) -> Sequence[Quad]:
        return self._section(node_id(entry.key[-16:]))

    def _block(self, entry: Entry) -> Sequence[Quad]:
        block = block_in(self._view.sealed.opened(entry))
        return [quad for fact in block.facts for quad in fact_quads(fact)]

    def _section_key(self, entry: Entry) -> bytes:
        """The key of the section that an entry leads to."""
        return self._keys.section(node_id(entry.key[-16:]))

    def _block_key(self, entry: Entry) -> bytes:
        """The key of the block of facts that an entry leads to."""
        return self._keys.fact_block(block_id(entry.key))

    def _listed_block(self, entry: Entry) -> Sequence[Quad]:
        return self._facts_of_block(block_id(entry.key))

    def _facts_of_block(self, block: BlockId) -> Sequence[Quad]:
        """The quads of all facts of a block. The pattern keeps out those that do not match."""
        (found,) = FactReader(self._view).blocks([block])
        return [] if found is None else [quad for fact in found.facts for quad in fact_quads(fact)]

    def _fact(self, fact: FactId) -> Sequence[Quad]:
        return _quads_of(fact_quads, FactReader(self._view).fact(fact))

    def _source(self, entry: Entry) -> Sequence[Quad]:
        return source_quads(SOURCE.decode(self._opened(entry)))

    def _document_with(self, document: DocumentId) -> Sequence[Quad]:
        return _quads_of(document_quads, HierarchyReader(self._view).document(document))

    def _chunk_with(self, chunk: NodeId) -> Sequence[Quad]:
        return _quads_of(chunk_quads, HierarchyReader(self._view).chunk(chunk))

    def _document(self, entry: Entry) -> Sequence[Quad]:
        return document_quads(DOCUMENT.decode(self._opened(entry)))

    def _chunk(self, entry: Entry) -> Sequence[Quad]:
        return chunk_quads(decode_chunk(node_id(entry.key[-16:]), self._opened(entry)).chunk)

    def _opened(self, entry: Entry) -> bytes:
        return self._view.sealed.opened(entry).value


def _quads_of(make: Callable[[T], Sequence[Quad]], record: T | None) -> Sequence[Quad]:
    return () if record is None else make(record)


@dataclass(frozen=True, slots=True)
class OwnEnvelopes:
    """The envelopes that were issued to one caller in a tenant."""

    tr: Reader
    store: EnvelopeStore
    principal: PrincipalId

    @classmethod
    def of(cls, reads: CorpusReads, tr: Reader, granted: InTenant, principal: PrincipalId) -> OwnEnvelopes:
        return cls(tr, envelope_store(reads, granted.tenant), principal)

    def read_ahead(self, envelopes: list[EnvelopeId]) -> list[EnvelopeId]:
        """The same envelopes. Their records are then here, but for the parts of large ones."""
        self.tr.get_many([self.store.keys.envelope(self.store.tenant, envelope) for envelope in envelopes])
        return envelopes

    def find(self, envelope: EnvelopeId) -> IssuedEnvelope | None:
        """None if the envelope is missing or was issued to somebody else."""
        found = self.store.find(self.tr, envelope)
        return found if found is not None and found.principal == self.principal else None


@dataclass(frozen=True, slots=True)
class _RetrievalGraph:
    """Finds the envelopes whose quads may match, and makes the quads of each."""

    own: OwnEnvelopes
    view: CorpusAtRevision

    def groups(self, pattern: QuadPattern) -> Sequence[RecordGroup]:
        if pattern.subject is not None:
            named = named_by(pattern.subject.value) if isinstance(pattern.subject, Iri) else None
            if named is None or named.kind != "envelope":
                return []
            return [ListedRecords([EnvelopeId(UUID(named.id))], self._quads)]
        if isinstance(pattern.object, Iri) and (named := named_by(pattern.object.value)) is not None:
            return [self._with_fact(FactId(UUID(named.id)))] if named.kind == "fact" else []
        return [self._all()]

    def _all(self) -> RecordGroup:
        store = self.own.store
        return _Envelopes(self.own, store.keys.envelopes(store.tenant), self._quads, lambda _: True)

    def _with_fact(self, fact: FactId) -> RecordGroup:
        own = issued_to(self.own.store.tenant, self.own.principal)
        return _Envelopes(self.own, self.view.keys.fact_envelopes(fact), self._quads, own.__eq__)

    def _quads(self, envelope: EnvelopeId) -> Sequence[Quad]:
        issued, corpus, revision = self.own.find(envelope), self.view.corpus.id, self.view.revision
        if issued is None or not any(part.corpus == corpus and part.head <= revision for part in issued.corpora):
            return ()
        return envelope_quads(issued, issued.facts_of(corpus))


@dataclass(frozen=True, slots=True)
class _Envelopes:
    """Envelopes by a key range whose keys continue with the envelope's id."""

    own: OwnEnvelopes
    keys: KeyRange
    quads_of: Callable[[EnvelopeId], Sequence[Quad]]
    is_wanted: Callable[[bytes], bool]
    """Decides by the value of a key."""

    def read(self, place: bytes) -> tuple[Iterable[RecordQuads], bytes | None]:
        begin, end = self.keys
        (stored,) = self.own.tr.range_many([(begin + place, end)], limit=_ENVELOPE_KEYS_MAX)
        # A large envelope has parts behind its own key.
        ids = dict.fromkeys(key[len(begin) :][:16] for key, value in stored if self.is_wanted(value))
        envelopes = (EnvelopeId(UUID(bytes=id_)) for id_ in ids)
        given = read_together(envelopes, _RECORDS_AT_ONCE, self.own.read_ahead)
        records = (RecordQuads(envelope.bytes, self.quads_of(envelope)) for envelope in given)
        return records, stored[-1][0][len(begin) :][:16] + b"\xff" if len(stored) == _ENVELOPE_KEYS_MAX else None
