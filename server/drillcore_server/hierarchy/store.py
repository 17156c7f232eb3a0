"""Reads the nodes, documents and sources of a corpus at one revision, and makes the writes of a new revision."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, TypeVar

from drillcore_fdb.engine import RangeRead, Reader, Streaming
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.hierarchy.model import (
    RAWS_PER_CHUNK_MAX,
    Chunk,
    ChunkWithRaws,
    Document,
    Master,
    RawPage,
    Section,
    chunk_of_raw,
)
from drillcore_server.hierarchy.packed import SECTION, PlacedChunk, decode_chunk, encode_chunk, encode_raws
from drillcore_server.hierarchy.source_model import Source
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision, unless_erased
from drillcore_server.kernel.writes import (
    FACT_MARK,
    LOCATOR_BYTES,
    OWN_RAW_IDS,
    TURN_MARK,
    Write,
    is_ingested_chunk,
    locator_of,
)
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import (
    CorpusNumber,
    DocumentId,
    Level,
    Membership,
    NodeId,
    SourceId,
    TenantId,
    node_id,
)
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyErased, KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.corpus_models import embeddings_write
from drillcore_server.vectors.model import Embeddings

T = TypeVar("T")
MASTER = RecordKind(Master)
DOCUMENT = RecordKind(Document)
SOURCE = RecordKind(Source)
KEYS_AT_ONCE: Final = 400
"""How many keys of a list of sections or of members are read together: about as many as a cluster sends at once."""
_KNOWN_TEXTS_MAX: Final = 50
"""The most index entries to look at for a chunk with a known text. Then the text is embedded again."""


@dataclass(frozen=True, slots=True)
class HierarchyReader:
    """Reads the nodes, documents and sources of one corpus at one revision."""

    view: CorpusAtRevision

    def master(self) -> Master | None:
        return self.view.record(MASTER, self.view.keys.master())

    def master_unless_erased(self) -> Master | None:
        """Same as `master`, but None if the master was erased."""
        try:
            return self.master()
        except KeyErased:
            return None

    def section(self, section: NodeId) -> Section | None:
        return self.view.record(SECTION, self.view.keys.section(section))

    def sections(self, sections: Sequence[NodeId]) -> list[Section | None]:
        """Several sections, read together. None for those that are missing or erased."""
        keys = [self.view.keys.section(section) for section in sections]
        found = self.view.sealed.get_many_unless_erased(self.view.tr, keys, self.view.revision)
        return [None if entry is None else SECTION.decode(entry.value) for entry in found]

    def section_ids(self, first: NodeId | None = None) -> Iterator[NodeId]:
        """The ids of all sections, sorted, beginning with `first`."""
        for entry in self._scan(self.view.keys.listed_sections(first)):
            yield node_id(entry.key[-16:])

    def chunk(self, chunk: NodeId) -> Chunk | None:
        found = self.placed_chunk(chunk)
        return None if found is None else found.chunk

    def placed_chunk(self, chunk: NodeId) -> PlacedChunk | None:
        """The chunk without the text of its raws. Raises `KeyErased` if it was erased."""
        entry = self.view.sealed.get(self.view.tr, self.view.keys.chunk(chunk), self.view.revision)
        return None if entry is None else decode_chunk(chunk, entry.value)

    def placed_chunks(self, chunks: Sequence[NodeId]) -> list[PlacedChunk | None]:
        """Several chunks without the text of their raws, read together. None for those that are missing or erased."""
        keys = [self.view.keys.chunk(chunk) for chunk in chunks]
        found = self.view.sealed.get_many_unless_erased(self.view.tr, keys, self.view.revision)
        return [
            None if entry is None else decode_chunk(chunk, entry.value)
            for chunk, entry in zip(chunks, found, strict=True)
        ]

    def raws(self, chunk: NodeId) -> RawPage | None:
        found = self.chunk_with_raws(chunk)
        return None if found is None else found.page

    def chunk_with_raws(self, chunk: NodeId) -> ChunkWithRaws | None:
        """The chunk, then its raws, which are a record of their own. Raises `KeyErased` if the chunk was erased."""
        placed = self.placed_chunk(chunk)
        if placed is None:
            return None
        text = versioned.get(self.view.tr, raw_key(self.view.keys, placed.chunk), self.view.revision)
        return self._with_raws((placed, text))

    def chunks_with_raws(self, chunks: Sequence[NodeId]) -> list[ChunkWithRaws | None]:
        """Several chunks, then all their raws, read together. None for those that are missing or erased."""
        placed = self.placed_chunks(chunks)
        found = iter(self.with_raws([chunk for chunk in placed if chunk is not None]))
        return [None if chunk is None else next(found) for chunk in placed]

    def with_raws(self, placed: Sequence[PlacedChunk]) -> list[ChunkWithRaws | None]:
        """Chunks with their raws, which are read together. None for those that were erased in the meantime."""
        keys = [raw_key(self.view.keys, chunk.chunk) for chunk in placed]
        texts = versioned.get_many(self.view.tr, keys, self.view.revision)
        return [unless_erased(self._with_raws, found) for found in zip(placed, texts, strict=True)]

    def _with_raws(self, found: tuple[PlacedChunk, Entry | None]) -> ChunkWithRaws:
        placed, text = found
        if text is None:
            raise StoreCorruptError(f"chunk {placed.chunk.id} is there, but the text of its raws is not")
        return placed.with_raws(self.view.sealed.opened(text).value)

    def members(self, section: NodeId) -> Iterator[Membership]:
        """The section's chunks, in the order of their documents."""
        for entry in versioned.scan(self.view.tr, *self.view.keys.members(section), self.view.revision):
            yield self.view.keys.parse_member(entry.key)

    def chunks_of(self, section: NodeId) -> Iterator[NodeId]:
        return (member.id for member in self.members(section))

    def members_of_each(self, ranges: Sequence[MembersOf]) -> Iterator[tuple[NodeId, Membership]]:
        """The chunks of several sections in order, each with its section. The first of each section are read together.

        The rest of a large section is read only when it is asked for.
        """
        view = self.view
        pages = versioned.pages(view.tr, [of.within(view.keys) for of in ranges], view.revision, KEYS_AT_ONCE)
        for of, (entries, following) in zip(ranges, pages, strict=True):
            rest = () if following is None else self._scan(KeyRange(following, of.within(view.keys).end))
            for entry in chain(entries, rest):
                yield of.section, view.keys.parse_member(entry.key)

    def _scan(self, keys: KeyRange) -> Iterator[Entry]:
        """What the revision has in a range, in order. Reads some keys at once, and more only when they are needed."""
        begin: bytes | None = keys.begin
        while begin is not None:
            entries, begin = versioned.page(self.view.tr, begin, keys.end, self.view.revision, KEYS_AT_ONCE)
            yield from entries

    def vector(self, model: int, chunk: NodeId) -> bytes | None:
        """The chunk's vector that the model of this number made."""
        entry = self.view.sealed.get(self.view.tr, self.view.keys.vector(model, chunk), self.view.revision)
        return None if entry is None else entry.value

    def parent(self, node: NodeId) -> NodeId | None:
        """The section of a chunk, or the chunk of a raw that a client made."""
        entry = versioned.get(self.view.tr, self.view.keys.parent(node), self.view.revision)
        return None if entry is None else node_id(entry.value)

    def parents(self, nodes: Sequence[NodeId]) -> list[NodeId | None]:
        """Same as `parent`, for several nodes, read together."""
        keys = [self.view.keys.parent(node) for node in nodes]
        found = versioned.get_many(self.view.tr, keys, self.view.revision)
        return [None if entry is None else node_id(entry.value) for entry in found]

    def document(self, document: DocumentId) -> Document | None:
        return self.view.record(DOCUMENT, self.view.keys.document(document))

    def documents(self) -> Iterator[Document]:
        """All documents in the order of ids, without erased ones. Read in pages."""
        entries = self._scan(self.view.keys.documents())
        return (DOCUMENT.decode(entry.value) for entry in self.view.sealed.opened_all(entries))

    def source(self, source: SourceId) -> Source | None:
        return self.view.record(SOURCE, self.view.keys.source(self.view.sealed.hashed(source)))

    def source_unless_erased(self, source: SourceId) -> Source | None:
        """Same as `source`, but None if the source was erased."""
        try:
            return self.source(source)
        except KeyErased:
            return None

    def sources_by_id(self, sources: Sequence[SourceId]) -> list[Source | None]:
        """Several sources, read together. None for those that are missing or erased."""
        found = self.view.sealed.get_many_unless_erased(self.view.tr, self.source_keys(sources), self.view.revision)
        return [None if entry is None else SOURCE.decode(entry.value) for entry in found]

    def source_keys(self, sources: Sequence[SourceId]) -> list[bytes]:
        return [self.view.keys.source(self.view.sealed.hashed(source)) for source in sources]

    def sections_in(self, category: bytes) -> Iterator[NodeId]:
        """The sections of a category, given as its keyed hash."""
        for entry in versioned.scan(self.view.tr, *self.view.keys.categories(category), self.view.revision):
            yield node_id(entry.key[-16:])

    def vectors_of_texts(self, model: int, texts: Sequence[bytes]) -> list[bytes | None]:
        """For each text, the vector of a chunk with it; None if there is none. Texts are given as their keyed hashes.

        Takes two round trips.
        """
        ranges = [self.view.keys.embedded_as(text) for text in texts]
        self.view.read_ahead([], [RangeRead(*keys, limit=_KNOWN_TEXTS_MAX, reverse=True) for keys in ranges])
        found = [versioned.last_key(self.view.tr, *keys, self.view.revision, _KNOWN_TEXTS_MAX) for keys in ranges]
        places = [self.view.keys.vector(model, node_id(key[-16:])) for key in found if key is not None]
        stored = iter(self.view.sealed.get_many_unless_erased(self.view.tr, places, self.view.revision))
        entries = [None if key is None else next(stored) for key in found]
        return [None if entry is None else entry.value for entry in entries]

    def chunks_naming(self, kind: bytes, value: bytes = b"") -> Iterator[NodeId]:
        """The chunks that name an entity of this kind and, if it is given, this value. Both are keyed hashes."""
        keys = self.view.keys.entities(kind, value)
        for entry in versioned.scan(self.view.tr, *keys, self.view.revision, Streaming.WANT_ALL):
            yield node_id(entry.key[-16:])

    def documents_by_id(self, documents: Sequence[DocumentId]) -> list[Document | None]:
        """Several documents, read together. None for those that are missing or erased."""
        keys = [self.view.keys.document(document) for document in documents]
        found = self.view.sealed.get_many_unless_erased(self.view.tr, keys, self.view.revision)
        return [None if entry is None else DOCUMENT.decode(entry.value) for entry in found]

    def chunks_of_each(self, sections: Sequence[NodeId]) -> list[list[NodeId]]:
        """The chunks of several small sections, read together, each in the order of their documents."""
        found = versioned.scan_many(self.view.tr, list(map(self.view.keys.members, sections)), self.view.revision)
        return [[self.view.keys.parse_member(entry.key).id for entry in entries] for entries in found]


@dataclass(frozen=True, slots=True)
class MembersOf:
    """The members of a section, or those from one of them on."""

    section: NodeId
    first: Membership | None = None

    def within(self, keys: CorpusKeys) -> KeyRange:
        whole = keys.members(self.section)
        if self.first is None:
            return whole
        return KeyRange(keys.member(self.section, self.first.document, self.first.ordinal, self.first.id), whole.end)

    def ahead(self, keys: CorpusKeys) -> RangeRead:
        """What `members_of_each` reads first, to be read ahead."""
        return RangeRead(*self.within(keys), limit=KEYS_AT_ONCE)


def sections_ahead(keys: CorpusKeys, first: NodeId | None = None) -> RangeRead:
    """What `section_ids` reads first, to be read ahead."""
    return RangeRead(*keys.listed_sections(first), limit=KEYS_AT_ONCE)


def raw_key(keys: CorpusKeys, chunk: Chunk) -> bytes:
    """The key of the text of a chunk's raws."""
    return keys.raw(chunk.document, chunk.span.start, chunk.ordinal)


@dataclass(frozen=True, slots=True)
class Located:
    """The corpus and level of a node, found by its id alone."""

    corpus: CorpusNumber
    level: Level

    @classmethod
    def of(cls, locator: bytes) -> Located:
        return cls(CorpusNumber(int.from_bytes(locator[1:LOCATOR_BYTES], "big")), Level(locator[0]))


def locators(keys: Keyspace, tenant: TenantId, nodes: Sequence[NodeId]) -> list[bytes]:
    """The keys that `locate_each` may read."""
    owners = (_owner(node) for node in nodes)
    return [keys.locator(tenant, id_) for id_ in chain(nodes, owners) if id_ is not None]


def locate(tr: Reader, keys: Keyspace, tenant: TenantId, node: NodeId) -> Located | None:
    """Where the tenant's node of this id is, or was: a node that a revision removed is still located.

    Raws that the server made have no locator, because their ids are made from the ids of their chunks.
    """
    return locate_each(tr, keys, tenant, [node])[0]


def locate_each(tr: Reader, keys: Keyspace, tenant: TenantId, nodes: Sequence[NodeId]) -> list[Located | None]:
    """Same as `locate`, for several nodes, read together."""
    known = locators(keys, tenant, nodes)
    stored = dict(zip(known, tr.get_many(known), strict=True))
    return [_located(node, lambda id_: stored.get(keys.locator(tenant, id_))) for node in nodes]


def _located(node: NodeId, locator: Callable[[NodeId], bytes | None]) -> Located | None:
    stored = locator(node)
    if stored is not None:
        return None if stored[:1] in {FACT_MARK, TURN_MARK} else Located.of(stored)
    chunk = _owner(node)
    owner = None if chunk is None else locator(chunk)
    if owner is None or not is_ingested_chunk(owner):
        return None
    return replace(Located.of(owner), level=Level.RAW)


def _owner(node: NodeId) -> NodeId | None:
    """The chunk of a raw that the server may have made."""
    chunk, place = chunk_of_raw(node)
    return chunk if 0 <= place < RAWS_PER_CHUNK_MAX else None


class HierarchyWrites:
    """Makes the writes that put or remove a node, document or source, together with its index entries."""

    def __init__(
        self,
        keys: Keyspace,
        tenant: TenantId,
        number: CorpusNumber,
        keyring: Keyring,
        models: Embeddings | None = None,
    ) -> None:
        """`models` are the models that have vectors of the corpus after the writes. Needed only to write chunks."""
        self._keys = keys
        self._models = models
        self._corpus_keys = keys.of_corpus(number)
        self._tenant = tenant
        self._number = number
        self._keyring = keyring
        (self._corpus_key,) = keyring.numbers(number, [CORPUS_SCOPE])

    def put_document(self, document: Document) -> Iterator[Write]:
        number = self._source_key(document.source)
        yield Write(self._corpus_keys.document(document.id), DOCUMENT.encode(document), number)

    def remove_document(self, document: Document) -> Iterator[Write]:
        yield Write(self._corpus_keys.document(document.id), None)

    def put_source(self, source: Source) -> Iterator[Write]:
        key = self._corpus_keys.source(self._keyring.hashed(source.id))
        yield Write(key, SOURCE.encode(source), self._source_key(source.id))

    def put_chunk(
        self, chunk: Chunk, page: RawPage, vector: bytes, next_vector: bytes | None = None
    ) -> Iterator[Write]:
        """`vector` is the current model's. `next_vector` is that of the model the corpus migrates to, if it exists."""
        number, keys = self._source_key(chunk.source), self._corpus_keys
        yield Write(keys.chunk(chunk.id), encode_chunk(chunk, page), number)
        yield Write(raw_key(keys, chunk), encode_raws(page), number)
        assert self._models is not None
        yield self.set_vector(self._models.current.number, chunk.id, chunk.source, vector)
        if next_vector is not None and self._models.next is not None:
            yield self.set_vector(self._models.next.number, chunk.id, chunk.source, next_vector)
        yield self._locator(chunk.id, Level.CHUNK, OWN_RAW_IDS if chunk.raw_ids else b"")
        for raw in chunk.raw_ids:
            yield Write(keys.parent(raw), chunk.id.bytes)
            yield self._locator(raw, Level.RAW)
        for key in self.chunk_index_keys(chunk):
            yield Write(key, b"")

    def set_vector(self, model: int, chunk: NodeId, source: SourceId, vector: bytes) -> Write:
        return Write(self._corpus_keys.vector(model, chunk), vector, self._source_key(source), is_dense=True)

    def set_embeddings(self, models: Embeddings) -> Write:
        return embeddings_write(self._corpus_keys, models)

    def remove_chunk(self, chunk: Chunk) -> Iterator[Write]:
        keys = self._corpus_keys
        assert self._models is not None
        vectors = [keys.vector(model, chunk.id) for model in self._models.numbers]
        for key in (keys.chunk(chunk.id), raw_key(keys, chunk), *vectors, keys.parent(chunk.id)):
            yield Write(key, None)
        for raw in chunk.raw_ids:
            yield Write(keys.parent(raw), None)
        for key in self.chunk_index_keys(chunk):
            yield Write(key, None)

    def join(self, section: NodeId, chunk: Chunk | Membership) -> Iterator[Write]:
        keys = self._corpus_keys
        yield Write(keys.member(section, chunk.document, chunk.ordinal, chunk.id), b"")
        yield Write(keys.parent(chunk.id), section.bytes)

    def leave(self, section: NodeId, chunk: Chunk | Membership) -> Iterator[Write]:
        """Removes a chunk from a section. `join` or `remove_chunk` must then change the chunk's parent."""
        yield Write(self._corpus_keys.member(section, chunk.document, chunk.ordinal, chunk.id), None)

    def put_section(self, section: Section, before: Section | None) -> Iterator[Write]:
        keys = self._corpus_keys
        yield Write(keys.section(section.id), SECTION.encode(section), numbers=self._source_keys(section.sources))
        if before is None:
            yield self._locator(section.id, Level.SECTION)
        elif before.category != section.category:
            yield Write(keys.category(self.hashed(before.category), section.id), None)
        if before is None or before.category != section.category:
            category = self.hashed(section.category)
            yield Write(keys.listed_section(section.id), category)
            yield Write(keys.category(category, section.id), b"")

    def remove_section(self, section: Section) -> Iterator[Write]:
        keys = self._corpus_keys
        yield Write(keys.section(section.id), None)
        yield Write(keys.listed_section(section.id), None)
        yield Write(keys.category(self.hashed(section.category), section.id), None)

    def put_master(self, master: Master, before: Master | None, sources: Iterable[SourceId]) -> Iterator[Write]:
        """`sources` are all sources that the master's content may come from."""
        yield Write(self._corpus_keys.master(), MASTER.encode(master), numbers=self._source_keys(sources))
        if before is None:
            yield self._locator(master.id, Level.MASTER)

    def hashed(self, text: str, size: int = 8) -> bytes:
        """A keyed hash for the keys of indexes: it finds equal texts, and nobody can read a text from a key.

        Without the secret nobody can make collisions on purpose, so a few bytes are enough.
        """
        secret = self._keyring.derived(self._corpus_key, b"index")
        return hmac.digest(secret, text.casefold().encode(), "sha256")[:size]

    def hashed_kind(self, kind: str) -> bytes:
        """A shorter keyed hash, for types of entities: there are few of them."""
        return self.hashed(kind, 4)

    def chunk_index_keys(self, chunk: Chunk) -> list[bytes]:
        return self.entity_keys(chunk) + self.embedded_keys(chunk)

    def embedded_keys(self, chunk: Chunk) -> list[bytes]:
        """The keys of the chunk in the index of embedded texts. Empty if a client made the vector."""
        return [self._corpus_keys.embedded(chunk.embedded, chunk.id)] if chunk.embedded else []

    def entity_keys(self, chunk: Chunk) -> list[bytes]:
        """The keys of the chunk in the index of entities."""
        keys = self._corpus_keys
        return [
            keys.entity(self.hashed_kind(entity.type), self.hashed(entity.value), chunk.id) for entity in chunk.entities
        ]

    def _locator(self, node: NodeId, level: Level, mark: bytes = b"") -> Write:
        value = locator_of(level, self._number) + mark
        owner, place = chunk_of_raw(node)
        block = self._keys.locator(self._tenant, owner) if place >= 0 else None
        return Write(self._keys.locator(self._tenant, node), value, versioned=False, block=block)

    def _source_keys(self, sources: Iterable[SourceId]) -> tuple[KeyNumber, ...]:
        """The keys that seal a record made of several sources: the keys of these sources and the corpus's own."""
        return tuple(sorted(self._keyring.numbers(self._number, [CORPUS_SCOPE, *sorted(set(sources))])))

    def _source_key(self, source: SourceId) -> KeyNumber:
        (number,) = self._keyring.numbers(self._number, [source])
        return number
