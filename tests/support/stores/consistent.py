"""Proves a revision of a corpus from its keys alone: every level, index and figure must agree.

It reads whole spaces and takes them apart itself, so that it shares no range and no search with the code it checks.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from uuid import UUID

import numpy as np

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader
from drillcore_fdb.tuples import prefix_end
from drillcore_server.documents.ingestion import chunk_spans
from drillcore_server.documents.ingestion.digest import content_hash
from drillcore_server.documents.ingestion.drawn_facts import draw_facts
from drillcore_server.documents.ingestion.prepared_documents import builtin_counter
from drillcore_server.documents.model import ParsedDocument
from drillcore_server.documents.parsers import parse
from drillcore_server.facts.blocks import block_of, decode_block, decode_vectors
from drillcore_server.facts.model import Fact, FactStatus
from drillcore_server.hierarchy.model import Chunk, Citation, Document, Master, Section, Statistics
from drillcore_server.hierarchy.packed import SECTION, decode_chunk
from drillcore_server.hierarchy.source_model import Source
from drillcore_server.hierarchy.store import DOCUMENT, MASTER, SOURCE, HierarchyWrites, locate
from drillcore_server.kernel import revisions
from drillcore_server.storage.ids import BlockId, DocumentId, Level, NodeId, Revision, SourceId
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.corpus_models import EMBEDDINGS
from drillcore_server.vectors.stored_vectors import unpacked
from tests.support.stores.archive import Archive

_LATEST = Revision(1 << 40)
_SEALED = {
    Space.MASTERS,
    Space.SECTIONS,
    Space.CHUNKS,
    Space.RAW,
    Space.VECTORS,
    Space.DOCUMENTS,
    Space.SOURCES,
    Space.FACTS,
    Space.FACT_VECTORS,
}
_PLAIN = {
    Space.MEMBERS,
    Space.PARENTS,
    Space.ENTITIES,
    Space.CATEGORIES,
    Space.SECTION_LIST,
    Space.EMBEDDED,
    Space.EMBEDDINGS,
    Space.FACTS_BY_CHUNK,
    Space.FACTS_BY_SOURCE,
    Space.FACT_EXPIRIES,
}
Written = dict[bytes, dict[Revision, bytes | None]]
"""What each revision wrote, opened, by key without its prefix. None is a tombstone."""


@dataclass(frozen=True)
class Hierarchy:
    """A revision that was found to agree with itself."""

    revision: Revision
    texts: Mapping[str, str]
    """The texts of the documents, by source."""
    sections: Mapping[NodeId, tuple[NodeId, ...]]
    """The chunks of each section, in order."""
    records: Mapping[Space, Mapping[bytes, bytes]]
    """All the opened records that a reader sees. Two readers of one revision see the same."""
    master: Master | None


def check(
    archive: Archive, revision: Revision | None = None, *, idle: bool = True, trimming: bool = False
) -> Hierarchy:
    """Raises `AssertionError` unless the revision (by default the head) is whole.

    With `idle` nobody is writing, so no record of an unpublished revision may exist. With `trimming` a trim is not
    finished, so that earlier revisions may be incomplete.
    """
    return archive.engine.run(lambda tr: check_in(tr, archive, revision, idle=idle, trimming=trimming))


def check_in(
    tr: Reader, archive: Archive, revision: Revision | None = None, *, idle: bool = True, trimming: bool = False
) -> Hierarchy:
    head = revisions.head(tr, archive.keys)
    at = head if revision is None else revision
    written = {space: _read(tr, archive, space) for space in _SEALED | _PLAIN}
    _check_revisions(tr, archive, head)
    if idle:
        _check_idle(tr, archive, written, head)
    check = _Check(tr, archive, written, at)
    check.documents_and_chunks()
    check.sections_and_members()
    check.indexes()
    check.sources()
    check.facts()
    check.change_feed(head)
    check.master_and_statistics()
    check.located()
    if not trimming:
        check.history_of_sources(head)
        check.locators(head, head if idle else _LATEST)
    return check.result()


@lru_cache(1_000)
def _drawn(text: str) -> tuple[str, ...]:
    """The facts of a document's text, drawn again from the text."""
    (document,) = parse(text.encode(), name="text.md", media_type=None)
    assert isinstance(document, ParsedDocument)
    chunks = chunk_spans.chunk(document, builtin_counter())
    return tuple(fact.content for facts in draw_facts(document, chunks, builtin_counter()) for fact in facts)


def _read(tr: Reader, archive: Archive, space: Space) -> Written:
    prefix = archive.keys._prefixes[space]
    pieces: dict[tuple[bytes, Revision], list[bytes]] = {}
    for stored, value in tr.range(prefix, prefix_end(prefix)):
        key, at, part = stored[:-8], Revision(int.from_bytes(stored[-8:-2], "big")), int.from_bytes(stored[-2:], "big")
        parts = pieces.setdefault((key, at), [])
        assert part == len(parts), "the parts of a record follow each other"
        parts.append(value)
    written: Written = {}
    for (key, at), parts in pieces.items():
        written.setdefault(key[len(prefix) :], {})[at] = _opened(archive, space, key, at, parts)
    return written


def _opened(archive: Archive, space: Space, key: bytes, at: Revision, parts: list[bytes]) -> bytes | None:
    if parts[0] == b"":
        assert len(parts) == 1, "a tombstone has no parts"
        return None
    value = codec.unframe(key, parts[0], parts[1:])
    return archive.sealed.opened(Entry(key, at, value)).value if space in _SEALED else value


def _check_revisions(tr: Reader, archive: Archive, head: Revision) -> None:
    records = list(revisions.between(tr, archive.keys, Revision(0), _LATEST))
    assert [record.revision for record in records] == list(range(1, head + 1)), "revisions follow each other"
    assert all(earlier.at <= later.at for earlier, later in pairwise(records)), "time does not go back"
    requests = Counter(record.request_id for record in records)
    assert set(requests.values()) <= {1}, "a request makes exactly one revision"
    prefix = archive.keys._prefixes[Space.REVISION_TIMES]
    times = [key for key, _ in tr.range(prefix, prefix_end(prefix))]
    assert times == [archive.keys.revision_time(record.at, record.revision) for record in records]


def _check_idle(tr: Reader, archive: Archive, written: Mapping[Space, Written], head: Revision) -> None:
    assert revisions.get_claim(tr, archive.keys) is None, "a revision is claimed"
    assert not list(tr.range(*archive.keys.all_staged())), "a revision is noted as staged"
    for space, records in written.items():
        beyond = [key for key, ats in records.items() if max(ats) > head]
        assert not beyond, f"{space.name} has records beyond the head"


class _Check:
    def __init__(self, tr: Reader, archive: Archive, written: Mapping[Space, Written], at: Revision) -> None:
        self._tr = tr
        self._archive = archive
        self._written = written
        self._at = at
        self._seen = {space: _seen(records, at) for space, records in written.items()}
        self._make = HierarchyWrites(archive.keyspace, archive.corpus.tenant_id, archive.corpus.number, archive.keyring)
        self._documents = {
            DocumentId(node_id): DOCUMENT.decode(value) for node_id, value in self._nodes(Space.DOCUMENTS)
        }
        placed = [decode_chunk(NodeId(node_id), value) for node_id, value in self._nodes(Space.CHUNKS)]
        self._chunks = {found.chunk.id: found.chunk for found in placed}
        raws = self._seen[Space.RAW]
        assert raws.keys() == {_raw_key(found.chunk) for found in placed}, "each chunk has a raw text, and no others"
        self._pages = {found.chunk.id: found.with_raws(raws[_raw_key(found.chunk)]).page for found in placed}
        self._sections = {NodeId(node_id): SECTION.decode(value) for node_id, value in self._nodes(Space.SECTIONS)}
        masters = [MASTER.decode(value) for value in self._seen[Space.MASTERS].values()]
        self._master = masters[0] if masters else None
        self._members = self._read_members()

    def _nodes(self, space: Space) -> list[tuple[UUID, bytes]]:
        return [(UUID(bytes=key), value) for key, value in self._seen[space].items()]

    def _vectors(self) -> dict[NodeId, bytes]:
        """The vectors of the model that searches use."""
        model = self._seen[Space.EMBEDDINGS].get(b"")
        number = 0 if model is None else EMBEDDINGS.decode(model).current.number
        found = self._seen[Space.VECTORS].items()
        return {NodeId(UUID(bytes=key[1:])): value for key, value in found if key[0] == number}

    def _read_members(self) -> dict[NodeId, list[tuple[DocumentId, int, NodeId]]]:
        members: dict[NodeId, list[tuple[DocumentId, int, NodeId]]] = {}
        for key in self._seen[Space.MEMBERS]:
            section, document, chunk = (UUID(bytes=key[at : at + 16]) for at in (0, 16, 36))
            place = int.from_bytes(key[32:36], "big")
            members.setdefault(NodeId(section), []).append((DocumentId(document), place, NodeId(chunk)))
        return members

    def documents_and_chunks(self) -> None:
        assert all(key == document.id for key, document in self._documents.items())
        named = [chunk for document in self._documents.values() for chunk in document.chunks]
        assert len(set(named)) == len(named)
        assert set(named) == set(self._chunks) == set(self._pages), "documents name all chunks, and no others"
        assert {chunk for chunk, _ in self._nodes(Space.PARENTS)} == set(named), "each chunk has a parent"
        assert self._vectors().keys() == set(named), "each chunk has a vector"
        for document in self._documents.values():
            _check_document(document, [self._chunks[chunk_id] for chunk_id in document.chunks], self._text(document))
            assert document.raws == sum(len(self._pages[chunk_id].raws) for chunk_id in document.chunks)

    def _text(self, document: Document) -> str:
        return "".join(raw.content for chunk in document.chunks for raw in self._pages[chunk].raws)

    def sections_and_members(self) -> None:
        parents = {NodeId(chunk): NodeId(UUID(bytes=value)) for chunk, value in self._nodes(Space.PARENTS)}
        joined = {chunk: section for section, members in self._members.items() for _, _, chunk in members}
        assert parents == joined, "parents and members agree"
        assert set(self._members) == set(self._sections), "no section is empty, and none is missing"
        vectors = {chunk: unpacked(value) for chunk, value in self._vectors().items()}
        for section in self._sections.values():
            members = self._members[section.id]
            for document, place, chunk in members:
                assert (self._chunks[chunk].document, self._chunks[chunk].ordinal) == (document, place)
            total = np.sum([vectors[chunk] for _, _, chunk in members], axis=0, dtype=np.float64)
            _check_section(section, members, total)
            self._check_cited([*section.citations, *section.candidates], {chunk for _, _, chunk in members})
            assert section.summary == "\n".join(self._quoted(citation) for citation in section.citations)

    def _check_cited(self, citations: list[Citation], among: set[NodeId]) -> None:
        for citation in citations:
            assert citation.chunk in among, "a citation is of a chunk below"
            chunk = self._chunks[citation.chunk]
            assert chunk.document == citation.document
            assert chunk.span.start <= citation.span.start <= citation.span.end <= chunk.span.end

    def _quoted(self, citation: Citation) -> str:
        page = self._pages[citation.chunk]
        text = "".join(raw.content for raw in page.raws)
        return citation.span.of(" " * page.raws[0].span.start + text)

    def indexes(self) -> None:
        hashed = self._make.hashed
        entities = {
            hashed(entity.type, 4) + hashed(entity.value) + chunk.id.bytes
            for chunk in self._chunks.values()
            for entity in chunk.entities
        }
        assert set(self._seen[Space.ENTITIES]) == entities
        categories = {hashed(section.category) + section.id.bytes for section in self._sections.values()}
        assert set(self._seen[Space.CATEGORIES]) == categories
        embedded = {chunk.embedded + chunk.id.bytes for chunk in self._chunks.values()}
        assert set(self._seen[Space.EMBEDDED]) == embedded
        assert all(len(key) == 12 + 16 for key in embedded)
        assert set(self._seen[Space.SECTION_LIST]) == {section.bytes for section in self._sections}

    def sources(self) -> None:
        sources: dict[SourceId, Source] = {}
        for key, value in self._seen[Space.SOURCES].items():
            source = SOURCE.decode(value)
            assert self._archive.keyring.hashed(source.id) == key, "a source is found by its id"
            sources[source.id] = source
        holding = {source.document for source in sources.values()} - {None}
        assert holding == set(self._documents), "sources name all documents, and no others"
        for document in self._documents.values():
            source = sources[document.source]
            assert (source.document, source.version) == (document.id, document.source_version)
            assert source.content_hash == document.content_hash

    def facts(self) -> None:
        """Active facts are what the documents say now, whatever happened to the sources before.

        Facts that were put by hand have no chunk.
        """
        blocks = [decode_block(BlockId(UUID(bytes=key)), value) for key, value in self._seen[Space.FACTS].items()]
        facts = [fact for block in blocks for fact in block.facts]
        hashed = self._archive.keyring.hashed
        assert all(block.id in {block_of(fact.id), fact.id} for block in blocks for fact in block.facts)
        assert len({fact.id for fact in facts}) == len(facts)
        assert all(fact.content_hash == hashlib.sha256(fact.content.encode()).hexdigest() for fact in facts)
        assert set(self._seen[Space.FACTS_BY_SOURCE]) == {hashed(block.source) + block.id.bytes for block in blocks}
        assert set(self._seen[Space.FACTS_BY_CHUNK]) == {
            fact.chunk.bytes + block.id.bytes
            for block in blocks
            for fact in block.facts
            if fact.chunk is not None and fact.chunk != block.id
        }
        assert not self._seen[Space.FACT_EXPIRIES]
        kept = [fact for fact in facts if fact.status is not FactStatus.DELETED]
        vectors = [decode_vectors(BlockId(UUID(bytes=k[1:])), v) for k, v in self._seen[Space.FACT_VECTORS].items()]
        assert {fact for some in vectors for fact in some} == {fact.id for fact in kept}
        counts = Counter(fact.source for fact in kept)
        sources = [SOURCE.decode(value) for value in self._seen[Space.SOURCES].values()]
        assert {source.id: source.fact_count for source in sources if source.fact_count} == counts
        drawn = {fact.source for fact in kept if fact.chunk is not None}
        assert drawn <= {document.source for document in self._documents.values()}, "drawn facts go with their source"
        self._check_active([fact for fact in facts if fact.status is FactStatus.ACTIVE and fact.chunk is not None])

    def _check_active(self, facts: list[Fact]) -> None:
        for fact in facts:
            assert fact.chunk is not None
            assert fact.span is not None
            chunk = self._chunks[fact.chunk]
            assert (chunk.document, chunk.source) == (fact.document, fact.source)
            assert chunk.span.start <= fact.span.start < fact.span.end <= chunk.span.end
        said = Counter((fact.source, fact.content) for fact in facts)
        drawn = (
            (document.source, content)
            for document in self._documents.values()
            for content in _drawn(self._text(document))
        )
        assert said == Counter(drawn), "each fact of a document is there once"

    def change_feed(self, head: Revision) -> None:
        """The feed of changes names every block of facts that a revision wrote."""
        prefix = self._archive.keys._prefixes[Space.FACT_CHANGES]
        feed = {(key[-16:], Revision(int.from_bytes(key[-22:-16], "big"))) for key, _ in self._range(prefix)}
        written = {(key, at) for key, ats in self._written[Space.FACTS].items() for at in ats}
        assert {written_fact for written_fact in written if written_fact[1] <= head} <= feed

    def _range(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return list(self._tr.range(prefix, prefix_end(prefix)))

    def history_of_sources(self, head: Revision) -> None:
        for ats in self._written[Space.DOCUMENTS].values():
            for at, value in ats.items():
                if value is not None and at <= head:
                    key = self._archive.keyring.hashed(DOCUMENT.decode(value).source)
                    assert at in self._written[Space.SOURCES].get(key, {}), "a source knows its history"

    def master_and_statistics(self) -> None:
        if self._at == 0:
            assert self._master is None
            return
        assert self._master is not None
        documents = self._documents.values()
        assert self._master.statistics == Statistics(
            documents=len(documents),
            sections=len(self._sections),
            chunks=len(self._chunks),
            raws=sum(len(page.raws) for page in self._pages.values()),
            characters=sum(len(self._text(document)) for document in documents),
            tokens=sum(chunk.tokens for chunk in self._chunks.values()),
        )
        findings = [finding.citation for finding in self._master.findings]
        self._check_cited([*self._master.citations, *findings], set(self._chunks))
        assert self._master.summary == "\n".join(self._quoted(citation) for citation in self._master.citations)
        assert all(finding.text == self._quoted(finding.citation) for finding in self._master.findings)

    def located(self) -> None:
        """Every node of this revision has a locator."""
        tr, keyspace, tenant = self._tr, self._archive.keyspace, self._archive.corpus.tenant_id
        here = {(chunk, Level.CHUNK) for chunk in self._chunks} | {
            (section, Level.SECTION) for section in self._sections
        }
        if self._master is not None:
            here.add((self._master.id, Level.MASTER))
        for node, level in here:
            found = locate(tr, keyspace, tenant, node)
            assert found is not None
            assert (found.corpus, found.level) == (self._archive.corpus.number, level)

    def locators(self, head: Revision, latest: Revision) -> None:
        """Each node and fact of any revision has a locator; a locator names one that was there or is being written."""
        tr, keyspace, tenant = self._tr, self._archive.keyspace, self._archive.corpus.tenant_id
        prefix = keyspace._spaces[Space.LOCATORS][tenant].prefix
        located = {key[-16:] for key, _ in tr.range(prefix, prefix_end(prefix))}
        assert self._ids_up_to(head) <= located <= self._ids_up_to(latest), (
            "every node and fact that ever was has a locator, and nothing else has"
        )

    def _ids_up_to(self, up_to: Revision) -> set[bytes]:
        """The ids of all nodes and facts that a revision had."""
        masters = [
            value for ats in self._written[Space.MASTERS].values() for at, value in ats.items() if value and at <= up_to
        ]
        return {MASTER.decode(value).id.bytes for value in masters} | {
            key
            for space in (Space.CHUNKS, Space.SECTIONS, Space.FACTS)
            for key, ats in self._written[space].items()
            if any(value is not None for at, value in ats.items() if at <= up_to)
        }

    def result(self) -> Hierarchy:
        return Hierarchy(
            self._at,
            {document.source: self._text(document) for document in self._documents.values()},
            {
                section: tuple(
                    chunk for _, _, chunk in sorted(members, key=lambda member: (member[0].bytes, member[1]))
                )
                for section, members in self._members.items()
            },
            self._seen,
            self._master,
        )


def _seen(records: Written, at: Revision) -> dict[bytes, bytes]:
    seen = {}
    for key, ats in records.items():
        value = ats[max(written for written in ats if written <= at)] if min(ats) <= at else None
        if value is not None:
            seen[key] = value
    return seen


def _raw_key(chunk: Chunk) -> bytes:
    return chunk.document.bytes + chunk.span.start.to_bytes(6, "big") + chunk.ordinal.to_bytes(4, "big")


def _check_document(document: Document, chunks: list[Chunk], text: str) -> None:
    for place, chunk in enumerate(chunks):
        assert (chunk.document, chunk.source, chunk.ordinal) == (document.id, document.source, place)
    assert document.content_hash == content_hash(text), "the raws put together are the original"
    assert document.characters == len(text)
    assert document.tokens == sum(chunk.tokens for chunk in chunks)


def _check_section(
    section: Section, members: list[tuple[DocumentId, int, NodeId]], total: np.typing.NDArray[np.float64]
) -> None:
    assert section.chunks == len(members)
    assert section.documents == len({document for document, _, _ in members})
    stored = np.frombuffer(section.vector_sum, "<f4")
    # Vectors are stored with eleven bits; the sum was made before. So each may be off by its last bit.
    assert np.allclose(stored, total, rtol=0, atol=len(members) * 2.0**-11)
