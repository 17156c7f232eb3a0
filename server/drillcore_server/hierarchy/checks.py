"""Checks the hierarchy of a corpus at one revision: its nodes and their indexes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import pairwise
from typing import TypeVar
from uuid import UUID

from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.hierarchy.model import Chunk, Document, RawPage, Section, Statistics
from drillcore_server.hierarchy.packed import SECTION, PlacedChunk, decode_chunk
from drillcore_server.hierarchy.store import DOCUMENT, HierarchyReader, HierarchyWrites, Located, locate, raw_key
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage.ids import Level, NodeId, node_id
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.model import EmbeddingModel
from drillcore_server.vectors.stored_vectors import size_bytes

T = TypeVar("T")


class HierarchyCheck:
    """Reports records that cannot be read as problems, and checks the rest.

    After `problems` ends, `documents` and `chunks` contain what was read, and `nodes` is the number of nodes.
    """

    def __init__(self, snapshot: BatchedReads, keyspace: Keyspace, keyring: Keyring, corpus: Corpus) -> None:
        self._snapshot = snapshot
        self._keyspace = keyspace
        self._keys = snapshot.keys
        self._corpus = corpus
        self._hashes = HierarchyWrites(keyspace, corpus.tenant_id, corpus.number, keyring)
        self.documents: dict[UUID, Document] = {}
        self.chunks: dict[NodeId, Chunk] = {}
        self.nodes = 0

    def problems(self) -> Iterator[str]:
        sections: dict[NodeId, Section] = {}
        documents, chunks = self.documents, self.chunks
        yield from self._read(self._keys.sections(), SECTION.decode, lambda found: sections.update({found.id: found}))
        yield from self._read(
            self._keys.documents(), DOCUMENT.decode, lambda found: documents.update({found.id: found})
        )
        yield from self._chunks(chunks)
        self.nodes += 1 + len(sections) + len(chunks)
        yield from self._memberships(sections, chunks)
        yield from self._documents(documents, chunks)
        yield from self._vectors(chunks)
        yield from self._index("entity", self._keys.all_entities(), self._expected_entities(chunks))
        yield from self._index("embedding", self._keys.all_embedded(), self._expected_embedded(chunks))
        yield from self._index("category", self._keys.all_categories(), self._expected_categories(sections))
        yield from self._index("section", self._keys.listed_sections(), set(map(self._keys.listed_section, sections)))
        yield from self._listed_categories(sections)
        yield from self._locators(sections, chunks)
        yield from self._master(sections, documents, chunks)

    def _chunks(self, chunks: dict[NodeId, Chunk]) -> Iterator[str]:
        """Reads the chunks, and checks their raws."""
        placed: dict[bytes, PlacedChunk] = {}
        for entry in self._sealed_entries(self._keys.chunks()):
            if isinstance(entry, str):
                yield entry
                continue
            found = decode_chunk(node_id(entry.key[-16:]), entry.value)
            chunks[found.chunk.id] = found.chunk
            placed[raw_key(self._keys, found.chunk)] = found
            self.nodes += len(found.raws)
        yield from self._raws(placed)

    def _raws(self, placed: dict[bytes, PlacedChunk]) -> Iterator[str]:
        """Checks that every chunk has raws and that these contain its quotes. Does not keep their text in memory.

        Takes the chunks by the keys of their raws, and leaves none.
        """
        for entry in self._snapshot.entries(self._keys.raws()):
            chunk = placed.pop(entry.key, None)
            if chunk is None:
                yield f"the raw text {entry.key.hex()} belongs to no chunk"
            else:
                yield from self._raw_problems(chunk, entry)
        yield from (f"the raw text of chunk {found.chunk.id} is missing" for found in placed.values())

    def _raw_problems(self, placed: PlacedChunk, entry: Entry) -> Iterator[str]:
        try:
            found = placed.with_raws(self._snapshot.sealed.opened(entry).value)
        except EngineError as error:
            yield error.message
            return
        if not _covers(found.page, found.chunk):
            yield f"the raws of chunk {found.chunk.id} do not make up its text"

    def _memberships(self, sections: dict[NodeId, Section], chunks: dict[NodeId, Chunk]) -> Iterator[str]:
        """Checks that members and parents agree, and that every chunk is in exactly one section."""
        members: dict[NodeId, NodeId] = {}
        counts: Counter[NodeId] = Counter()
        documents: dict[NodeId, set[UUID]] = {}
        for entry in self._snapshot.entries(self._keys.all_members()):
            section, chunk = self._keys.parse_membership(entry.key)
            if chunk in members:
                yield f"chunk {chunk} is in two sections"
            if section not in sections:
                yield f"the missing section {section} has the member {chunk}"
            if chunk not in chunks:
                yield f"section {section} has the missing member {chunk}"
                continue
            members[chunk] = section
            counts[section] += 1
            documents.setdefault(section, set()).add(chunks[chunk].document)
        parents = {
            node_id(entry.key[-16:]): node_id(entry.value) for entry in self._snapshot.entries(self._keys.parents())
        }
        members |= {raw: chunk.id for chunk in chunks.values() for raw in chunk.raw_ids}
        yield from (f"chunk {chunk} is in no section" for chunk in chunks.keys() - members.keys())
        yield from (f"the parent of {node} is not the node it is in" for node, _ in parents.items() ^ members.items())
        for record in sections.values():
            if (record.chunks, record.documents) != (counts[record.id], len(documents.get(record.id, ()))):
                yield f"section {record.id} counts its chunks or documents wrongly"
            yield from (
                f"section {record.id} cites the missing chunk {citation.chunk}"
                for citation in record.citations
                if citation.chunk not in chunks
            )

    def _documents(self, documents: dict[UUID, Document], chunks: dict[NodeId, Chunk]) -> Iterator[str]:
        """Checks that documents and chunks name each other, and that sources name their documents."""
        named = [chunk for document in documents.values() for chunk in document.chunks]
        yield from (f"a document names the missing chunk {chunk}" for chunk in set(named) - chunks.keys())
        yield from (f"chunk {chunk} belongs to no document" for chunk in chunks.keys() - set(named))
        known = self._snapshot.find(
            list(documents.values()), lambda view, document: HierarchyReader(view).source(document.source)
        )
        for document, source in zip(documents.values(), known, strict=True):
            if source is None or source.document != document.id:
                yield f"the source of document {document.id} does not lead to it"

    def _vectors(self, chunks: dict[NodeId, Chunk]) -> Iterator[str]:
        """Checks that every chunk has a vector, and that all vectors of a model have the same length."""
        models = self._snapshot.read(embeddings_of)
        for place, model in enumerate(models.models if models else ()):
            yield from self._vectors_of(model, chunks, is_current=place == 0)
        known = tuple(self._keys.vectors(number).begin for number in (models.numbers if models else ()))
        stored = (entry.key for entry in self._snapshot.entries(self._keys.all_vectors()))
        yield from (f"the vector {key.hex()} is of no model" for key in stored if not key.startswith(known))
        if models is None and chunks:
            yield "there is no record of the model that made its vectors"

    def _vectors_of(self, model: EmbeddingModel, chunks: dict[NodeId, Chunk], *, is_current: bool) -> Iterator[str]:
        """Checks the vectors of one model. Only the current model must have a vector of every chunk."""
        sizes: dict[NodeId, int] = {}
        for entry in self._sealed_entries(self._keys.vectors(model.number)):
            if isinstance(entry, str):
                yield entry
            else:
                sizes[node_id(entry.key[-16:])] = len(entry.value)
        lacking = chunks.keys() - sizes.keys() if is_current else set()
        yield from (f"chunk {chunk} has no vector" for chunk in lacking)
        yield from (f"a vector of {chunk} has no chunk" for chunk in sizes.keys() - chunks.keys())
        wrong = (chunk for chunk, size in sizes.items() if size != size_bytes(model.dimensions))
        yield from (f"the vector of chunk {chunk} has the wrong length" for chunk in wrong)

    def _index(self, name: str, keys: KeyRange, expected: set[bytes]) -> Iterator[str]:
        there = {entry.key for entry in self._snapshot.entries(keys)}
        yield from (f"the {name} index lacks {key.hex()}" for key in expected - there)
        yield from (f"the {name} index has {key.hex()}, which leads nowhere" for key in there - expected)

    def _listed_categories(self, sections: dict[NodeId, Section]) -> Iterator[str]:
        for entry in self._snapshot.entries(self._keys.listed_sections()):
            section = sections.get(node_id(entry.key[-16:]))
            if section is not None and entry.value != self._hashes.hashed(section.category):
                yield f"section {section.id} is listed with another category than it has"

    def _expected_entities(self, chunks: dict[NodeId, Chunk]) -> set[bytes]:
        return {key for chunk in chunks.values() for key in self._hashes.entity_keys(chunk)}

    def _expected_embedded(self, chunks: dict[NodeId, Chunk]) -> set[bytes]:
        return {key for chunk in chunks.values() for key in self._hashes.embedded_keys(chunk)}

    def _expected_categories(self, sections: dict[NodeId, Section]) -> set[bytes]:
        return {self._keys.category(self._hashes.hashed(section.category), section.id) for section in sections.values()}

    def _locators(self, sections: dict[NodeId, Section], chunks: dict[NodeId, Chunk]) -> Iterator[str]:
        expected = dict.fromkeys(sections, Level.SECTION) | dict.fromkeys(chunks, Level.CHUNK)
        expected |= {raw: Level.RAW for chunk in chunks.values() for raw in chunk.raw_ids}
        for (node, level), found in zip(
            expected.items(), self._snapshot.find(list(expected), self._located), strict=True
        ):
            if found != Located(self._corpus.number, level):
                yield f"the locator of {node} does not lead to it"

    def _located(self, view: CorpusAtRevision, node: NodeId) -> Located | None:
        return locate(view.tr, self._keyspace, self._corpus.tenant_id, node)

    def _master(
        self, sections: dict[NodeId, Section], documents: dict[UUID, Document], chunks: dict[NodeId, Chunk]
    ) -> Iterator[str]:
        master = self._snapshot.read(lambda view: HierarchyReader(view).master())
        if master is None:
            if sections or documents or chunks:  # a corpus may have nothing but facts
                yield "there is no master"
            return
        if self._snapshot.read(lambda view: self._located(view, master.id)) != Located(
            self._corpus.number, Level.MASTER
        ):
            yield "the locator of the master does not lead to it"
        cited = [*master.citations, *(finding.citation for finding in master.findings)]
        yield from (f"the master cites the missing chunk {found.chunk}" for found in cited if found.chunk not in chunks)
        counted = Statistics(
            documents=len(documents),
            sections=len(sections),
            chunks=sum(len(document.chunks) for document in documents.values()),
            raws=sum(document.raws for document in documents.values()),
            characters=sum(document.characters for document in documents.values()),
            tokens=sum(document.tokens for document in documents.values()),
        )
        if master.statistics != counted:
            yield f"the master counts {_words(master.statistics)}; there are {_words(counted)}"

    def _sealed_entries(self, keys: KeyRange) -> Iterator[Entry | str]:
        """The decrypted entries of a range. Yields a description of the problem for a record that cannot be opened."""
        for entry in self._snapshot.entries(keys):
            try:
                yield self._snapshot.sealed.opened(entry)
            except EngineError as error:
                yield error.message

    def _read(self, keys: KeyRange, decode: Callable[[bytes], T], keep: Callable[[T], None]) -> Iterator[str]:
        for entry in self._sealed_entries(keys):
            if isinstance(entry, str):
                yield entry
            else:
                keep(decode(entry.value))


def _covers(page: RawPage, chunk: Chunk) -> bool:
    """Whether the raws are in order and contain the whole chunk. Only chunks that a client made may have gaps."""
    if not page.raws or page.span != chunk.span or len(chunk.raw_ids) not in {0, len(page.raws)}:
        return False
    ordered = all(raw.span.end <= following.span.start for raw, following in pairwise(page.raws))
    seamless = bool(chunk.raw_ids) or len(page.runs()) == 1
    held = all(page.holds(excerpt.span) for excerpt in (*chunk.summary, *chunk.quotes, *chunk.candidates))
    return ordered and seamless and held and all(len(raw.content) == len(raw.span) for raw in page.raws)


def _words(statistics: Statistics) -> str:
    return ", ".join(f"{getattr(statistics, field.name)} {field.name}" for field in fields(statistics))
