"""Checks the hierarchy of a full core: documents, chunks, sections and the master, and the references between them."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from drillcore_formats.cores.format import WrongShape
from drillcore_server.cores.imports.full_records import DocumentText, FullRecords
from drillcore_server.cores.imports.graph_records import stored_vector
from drillcore_server.cores.imports.record_decoder import check, check_values, decoded, fields, uuid
from drillcore_server.cores.model import HALF
from drillcore_server.documents.ingestion.section_summaries import MASTER_POOL
from drillcore_server.hierarchy.model import (
    IDS_PER_NODE,
    RAWS_PER_CHUNK_MAX,
    Chunk,
    ChunkWithRaws,
    Citation,
    Document,
    Section,
    Statistics,
    chunk_of_raw,
)
from drillcore_server.hierarchy.packed import SECTION, chunk_with_text
from drillcore_server.hierarchy.sections import PASSAGES_MAX
from drillcore_server.hierarchy.store import DOCUMENT, MASTER
from drillcore_server.storage.ids import DocumentId, NodeId, SourceId, Span


@dataclass(frozen=True, slots=True)
class KnownChunk:
    document: DocumentId
    source: SourceId
    span: Span
    raws: int
    has_own_raws: bool


@dataclass(slots=True)
class _Members:
    chunks: int = 0
    documents: set[DocumentId] = field(default_factory=set)
    sources: set[SourceId] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class ReadChunk:
    found: ChunkWithRaws
    section: NodeId
    vector: bytes


def read_chunk(given: list[Any], records: FullRecords, dimensions: int) -> ReadChunk:
    """Call it once for each chunk's record, when it comes. Raises `WrongShape`."""
    node, section, stored, vector = fields("chunk", given, 4)
    chunk = NodeId(uuid(node, "a chunk"))
    text = records.next_text(chunk)
    check(isinstance(stored, bytes), "a chunk is not bytes")
    found = chunk_with_text(chunk, stored, text)
    check_values(msgspec.msgpack.decode(stored) if found is not None else None)
    check(found is not None, f"chunk {chunk} is not encoded as a server does, or has another text")
    assert found is not None
    return ReadChunk(found, NodeId(uuid(section, "a section")), checked_vector(vector, dimensions))


def checked_vector(vector: object, dimensions: int) -> bytes:
    """Returns a vector of a core as it is stored. Raises `WrongShape`."""
    if not isinstance(vector, bytes) or len(vector) != HALF.itemsize * dimensions:
        raise WrongShape(f"a vector is not of {dimensions} numbers of half precision")
    return stored_vector(np.frombuffer(vector, HALF))


class HierarchyIntake:
    """Takes the records of the hierarchy in the order of the file, and checks each against those before it."""

    def __init__(self, records: FullRecords, dimensions: int) -> None:
        self._records = records
        self._dimensions = dimensions
        self._text: DocumentText | None = None
        self._open: Document | None = None
        """The document whose chunks are being read."""
        self._taken: list[NodeId] = []
        self._raws = 0
        self._end = 0
        self._hashed = hashlib.sha256()
        """The hash of its chunks' text."""
        self._members: dict[NodeId, _Members] = {}
        self._offered: list[tuple[float, DocumentId, int]] = []
        self._statistics = Statistics()
        self._last_document: DocumentId | None = None
        self._last_section: NodeId | None = None
        self.documents: dict[DocumentId, SourceId] = {}
        self.hashes: dict[DocumentId, str] = {}
        """The hashes of the documents' texts."""
        self.chunks: dict[NodeId, KnownChunk] = {}
        self.own_raws: dict[NodeId, NodeId] = {}
        """Chunks whose raws have ids of their own."""
        self.sections: dict[NodeId, tuple[SourceId, ...]] = {}
        """Each section with its sources."""
        self.master: NodeId | None = None
        self.master_sources: set[SourceId] = set()

    def take_text(self, text: DocumentText) -> None:
        self._end_document()
        check(self._text is None, "a document has a text but no record")
        self._text = text

    def take_document(self, given: list[Any]) -> None:
        self._end_document()
        document = decoded(DOCUMENT, *fields("document", given, 1))
        text, self._text = self._text, None
        check(text is not None and text.document == document.id, f"the text of document {document.id} is missing")
        check(self._last_document is None or self._last_document < document.id, "documents are not sorted by id")
        check(document.source != "", f"document {document.id} has no source")
        self._open, self._last_document = document, document.id
        self._taken, self._raws, self._end, self._hashed = [], 0, 0, hashlib.sha256()
        self.documents[document.id] = document.source
        self.hashes[document.id] = document.content_hash
        assert text is not None
        self._open_text = text

    def take_chunk(self, given: list[Any]) -> None:
        document = self._open
        if document is None:
            raise WrongShape("a chunk comes before its document")
        read = read_chunk(given, self._records, self._dimensions)
        chunk = read.found.chunk
        _check_chunk(read.found, document, len(self._taken))
        check(chunk.id not in self.chunks, f"chunk {chunk.id} comes twice")
        self._taken.append(chunk.id)
        self._check_follows(read.found, document)
        self._raws += len(read.found.page.raws)
        self.chunks[chunk.id] = KnownChunk(
            chunk.document, chunk.source, chunk.span, len(read.found.page.raws), bool(chunk.raw_ids)
        )
        for raw in chunk.raw_ids:
            check(raw not in self.own_raws, f"raw {raw} comes twice")
            self.own_raws[raw] = chunk.id
        members = self._members.setdefault(read.section, _Members())
        members.chunks += 1
        members.documents.add(chunk.document)
        members.sources.add(chunk.source)

    def _check_follows(self, found: ChunkWithRaws, document: Document) -> None:
        """Checks that chunks cut by a server cover the document without gaps. Also hashes their text."""
        if not found.chunk.raw_ids:
            check(found.chunk.span.start == self._end, f"the chunks of document {document.id} leave something out")
        self._end = found.chunk.span.end
        self._hashed.update(found.page.text.encode())

    def take_section(self, given: list[Any]) -> None:
        self._end_document()
        section = decoded(SECTION, *fields("section", given, 1))
        check(self._last_section is None or self._last_section < section.id, "sections are not sorted by id")
        self._last_section = section.id
        members = self._members.pop(section.id, None)  # members that remain in the end have no section
        check(members is not None, f"section {section.id} has no chunks")
        assert members is not None
        _check_section(section, members, self._dimensions)
        self._check_cited((*section.citations, *section.candidates), f"section {section.id}")
        self.sections[section.id] = section.sources
        for candidate in section.candidates[:PASSAGES_MAX]:
            self._offered.append((-candidate.weight, candidate.document, candidate.span.start))
        self._offered = heapq.nsmallest(MASTER_POOL, self._offered)

    def take_master(self, given: list[Any]) -> None:
        self._end_document()
        check(self.master is None, "a second master follows")
        master = decoded(MASTER, *fields("master", given, 1))
        check(master.version > 0, "the master has no version")
        counted = replace(self._statistics, sections=len(self.sections))
        check(master.statistics == counted, "the statistics of the master are wrong")
        cited = [*master.citations, *(finding.citation for finding in master.findings)]
        self._check_cited(cited, "the master")
        self.master = master.id
        self.master_sources = self._sources_of(cited)

    def settle(self) -> None:
        """Call it when all records were taken."""
        self._end_document()
        check(self._text is None, "a document has a text but no record")
        check(not self._members, "chunks refer to a section that is missing")
        check(self.master is not None or not self.documents, "the master is missing")
        located = [*self.chunks, *self.own_raws, *self.sections, *([] if self.master is None else [self.master])]
        check(len(set(located)) == len(located), "nodes of two levels have the same id")
        check(not any(map(self.may_be_raw, located)), "a node has the id of a raw of another")

    def source_of(self, node: NodeId) -> tuple[SourceId, ...] | None:
        """Returns the sources of a node; None if the core has no node with this id."""
        if node == self.master:
            return tuple(sorted(self.master_sources))
        if node in self.sections:
            return self.sections[node]
        chunk = self.chunks.get(self.own_raws.get(node, node)) or self._chunk_of_raw(node)
        return None if chunk is None else (chunk.source,)

    def may_be_raw(self, node: UUID) -> bool:
        """Tells whether a raw of a chunk has or could have this id. No other record may have such an id."""
        chunk, place = chunk_of_raw(NodeId(node))
        known = self.chunks.get(chunk) if 0 <= place < RAWS_PER_CHUNK_MAX else None
        return known is not None and not known.has_own_raws

    def _chunk_of_raw(self, node: NodeId) -> KnownChunk | None:
        chunk, place = chunk_of_raw(node)
        known = self.chunks.get(chunk)
        return known if known is not None and not known.has_own_raws and 0 <= place < known.raws else None

    @property
    def is_made_by_client(self) -> bool:
        return bool(self.own_raws)

    def _sources_of(self, cited: Iterable[Citation]) -> set[SourceId]:
        """Returns the sources that the master's content may come from, as `ingestion/section_summaries.py` selects it.

        For a master that a client made, all sources.
        """
        if self.is_made_by_client:
            return set(self.documents.values())
        pool = {self.documents[document] for _, document, _ in self._offered}
        return pool | {self.documents[citation.document] for citation in cited}

    def _check_cited(self, cited: Iterable[Citation], what: str) -> None:
        for citation in cited:
            chunk = self.chunks.get(citation.chunk)
            check(chunk is not None and chunk.document == citation.document, f"{what} cites a chunk that is missing")
            assert chunk is not None
            is_inside = chunk.span.start <= citation.span.start and citation.span.end <= chunk.span.end
            check(is_inside and math.isfinite(citation.weight), f"{what} cites text outside of the cited chunk")

    def _end_document(self) -> None:
        document = self._open
        if document is None:
            return
        self._open = None
        self._records.check_no_text_left()
        check(tuple(self._taken) == document.chunks, f"document {document.id} lists other chunks than it has")
        check(self._raws == document.raws, f"document {document.id} counts its raws wrongly")
        has_own = any(self.chunks[chunk].has_own_raws for chunk in self._taken)
        stated = (document.content_hash, document.characters)
        is_whole = (
            stated == (self._open_text.sha256, self._open_text.characters) == (self._hashed.hexdigest(), self._end)
        )
        check(has_own or is_whole, f"document {document.id} has the wrong hash or length of its text")
        self._statistics += Statistics(
            documents=1,
            chunks=len(document.chunks),
            raws=document.raws,
            characters=document.characters,
            tokens=document.tokens,
        )


def _check_chunk(found: ChunkWithRaws, document: Document, ordinal: int) -> None:
    chunk, page = found.chunk, found.page
    what = f"chunk {chunk.id}"
    check((chunk.document, chunk.source) == (document.id, document.source), f"{what} belongs to another document")
    check(chunk.ordinal == ordinal, f"{what} is not in its place")
    check(chunk.version > 0 and chunk.tokens >= 0 and chunk.overlap >= 0, f"{what} has an impossible number")
    check(bool(page.raws) and page.span == chunk.span, f"{what} has no raws, or raws with another span")
    check(len(chunk.raw_ids) in {0, len(page.raws)}, f"{what} names other raws than it has")
    check(bool(chunk.raw_ids) or _can_name_raws(chunk, len(page.raws)), f"{what} cannot have raws of this id")
    ordered = all(raw.span.end <= following.span.start for raw, following in pairwise(page.raws))
    seamless = bool(chunk.raw_ids) or len(page.runs()) == 1
    whole = all(len(raw.content) == len(raw.span) and raw.document == document.id for raw in page.raws)
    check(ordered and seamless and whole, f"the raws of {what} do not cover its text")
    excerpts = (*chunk.summary, *chunk.quotes, *chunk.candidates)
    held = all(page.holds(excerpt.span) and math.isfinite(excerpt.weight) for excerpt in excerpts)
    check(held, f"{what} quotes text that its raws do not have")


def _can_name_raws(chunk: Chunk, raws: int) -> bool:
    return not chunk.id.int & IDS_PER_NODE and raws <= RAWS_PER_CHUNK_MAX


def _check_section(section: Section, members: _Members, dimensions: int) -> None:
    what = f"section {section.id}"
    counted = (members.chunks, len(members.documents))
    check((section.chunks, section.documents) == counted, f"{what} counts its chunks or documents wrongly")
    check(members.sources <= set(section.sources), f"{what} does not name all of its sources")
    check(list(section.sources) == sorted(set(section.sources)), f"{what} does not name its sources in order")
    check(section.version > 0 and section.tokens >= 0, f"{what} has an impossible number")
    is_sum = len(section.vector_sum) == 4 * dimensions and np.isfinite(np.frombuffer(section.vector_sum, "<f4")).all()
    check(bool(is_sum), f"{what} has no sum of its vectors")
