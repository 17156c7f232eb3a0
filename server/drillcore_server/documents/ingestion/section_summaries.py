"""Makes the digests of sections and of the master from the heaviest passages below them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeVar

from drillcore_server.documents.ingestion.plan_reader import FreshChunks, PlanReader
from drillcore_server.documents.ingestion.prepared_documents import PreparedChunk
from drillcore_server.documents.processors.processor import (
    MASTER_TOKENS,
    SECTION_TOKENS,
    Member,
    Processor,
    SectionMember,
)
from drillcore_server.hierarchy.digests import GroupDigest, Passage
from drillcore_server.hierarchy.model import (
    Chunk,
    ChunkWithRaws,
    Citation,
    Finding,
    Master,
    Section,
    Statistics,
)
from drillcore_server.hierarchy.sections import WORDS_MAX, Outline
from drillcore_server.storage.ids import DocumentId, NodeId, PrincipalId, SourceId, new_uuid
from drillcore_server.vectors.embedding.embedders import Vector

T = TypeVar("T")
SECTION_POOL: Final = 48
"""The number of passages that a section keeps to choose its summary from."""
MASTER_POOL: Final = 72
"""The number of passages that a master's summary is chosen from: about 2,000 tokens, and a few more."""


@dataclass(frozen=True, slots=True)
class Authorship:
    """The principal who makes the records of a revision, and the time."""

    at: datetime
    by: PrincipalId


@dataclass(frozen=True, slots=True)
class Pool:
    """Passages to choose a summary from, and the citation of each passage."""

    members: tuple[Member, ...]
    citations: Mapping[tuple[str, int, int], Citation]

    def cite(self, passage: Passage) -> Citation:
        return self.citations[passage.document, passage.span.start, passage.span.end]

    def cited(self, passages: Iterable[Passage]) -> tuple[Citation, ...]:
        return tuple(self.cite(passage) for passage in passages)


class Summariser:
    def __init__(self, reader: PlanReader, fresh: FreshChunks, processor: Processor, authorship: Authorship) -> None:
        self._reader = reader
        self._fresh = fresh
        self._processor = processor
        self._authorship = authorship

    def pool(self, before: Section | None, chunks: Sequence[Chunk]) -> Pool:
        """Returns the heaviest passages of the earlier section and of these chunks, with their text.

        Each chunk is a member of the pool. So is the earlier section, for its keywords and entities.
        """
        citations = [
            *(before.candidates if before else ()),
            *(
                Citation(chunk.document, chunk.id, candidate.span, candidate.weight)
                for chunk in chunks
                for candidate in chunk.candidates
            ),
        ]
        best = heapq.nsmallest(SECTION_POOL, citations, key=_by_weight)
        passages: dict[NodeId, list[Passage]] = {}
        for citation, passage in zip(best, self._passages(best), strict=True):
            passages.setdefault(citation.chunk, []).append(passage)
        members = [Member(tuple(passages.pop(chunk.id, ())), chunk.keywords, chunk.entities) for chunk in chunks]
        if before is not None:
            members.append(Member((), before.keywords, before.entities))
        members += [Member(tuple(of_chunk), (), ()) for of_chunk in passages.values()]
        return Pool(tuple(members), _places(best))

    def section(
        self,
        section: NodeId,
        before: Section | None,
        title: str,
        pool: Pool,
        *,
        category: str,
        counts: tuple[int, int],
        vector_sum: Vector,
        sources: Iterable[SourceId],
    ) -> Section:
        """Returns the section with its digest.

        `counts` are the numbers of its documents and of its chunks. `sources` are the sources of all its chunks. If
        `category` is empty, the first keyword becomes the category.
        """
        digest = self._processor.summarise_section(title, pool.members, SECTION_TOKENS)
        return Section(
            id=section,
            title=title,
            category=category or _category(title, digest),
            summary=digest.summary.text,
            citations=pool.cited(digest.summary.passages),
            candidates=tuple(sorted(pool.citations.values(), key=_by_weight)),
            keywords=digest.keywords,
            tokens=digest.summary.tokens,
            made_by=digest.made_by,
            entities=digest.entities,
            documents=counts[0],
            chunks=counts[1],
            vector_sum=vector_sum.astype("<f4").tobytes(),
            created_at=before.created_at if before else self._authorship.at,
            created_by=before.created_by if before else self._authorship.by,
            version=before.version + 1 if before else 1,
            sources=tuple(sorted(set(sources))),
        )

    def master(
        self, before: Master | None, outlines: Mapping[NodeId, Outline], change: Statistics
    ) -> tuple[Master, set[SourceId]]:
        """Returns the master of these sections, and all sources that its content may come from.

        `change` is added to the statistics of the corpus.
        """
        digest, pool, sources = self._digest_of(outlines)
        statistics = (before.statistics if before else Statistics()) + change
        master = Master(
            id=before.id if before else NodeId(new_uuid()),
            summary=digest.summary.text,
            citations=pool.cited(digest.summary.passages),
            findings=tuple(
                Finding(finding.kind, finding.passage.text, pool.cite(finding.passage)) for finding in digest.findings
            ),
            keywords=digest.keywords,
            tokens=digest.summary.tokens,
            made_by=digest.made_by,
            statistics=replace(statistics, sections=len(outlines)),
            created_at=before.created_at if before else self._authorship.at,
            created_by=before.created_by if before else self._authorship.by,
            version=before.version + 1 if before else 1,
        )
        return master, sources

    def _digest_of(self, outlines: Mapping[NodeId, Outline]) -> tuple[GroupDigest, Pool, set[SourceId]]:
        """Makes the digest of the corpus from the heaviest passages of its sections.

        Returns it with the pool of passages and their sources. Reads only the chunks of those passages.
        """
        offered = ((candidate, outline.id) for outline in outlines.values() for candidate in outline.candidates)
        best = heapq.nsmallest(MASTER_POOL, offered, key=lambda pair: _by_weight(pair[0]))
        citations = [citation for citation, _ in best]
        cited = self._cited(citations, self._reader.cited_chunks)
        by_section: dict[NodeId, list[Citation]] = {}
        for citation, section in best:
            by_section.setdefault(section, []).append(citation)
        members = [_member(outlines[section], by_section[section], cited) for section in sorted(by_section)]
        sources = {found.chunk.source for found in cited.values()}
        return self._processor.summarise_corpus(members, MASTER_TOKENS), Pool((), _places(citations)), sources

    def _passages(self, citations: Sequence[Citation]) -> list[Passage]:
        """Returns the passages. Reads only the chunks of those that earlier digests have not needed."""
        kept = self._reader.kept()
        known = {citation: text for citation in citations if (text := kept.passage(citation)) is not None}
        missing = [citation for citation in citations if citation not in known]
        cited = self._cited(missing, self._read)
        read = {citation: cited[citation.chunk].page.text_of(citation.span) for citation in missing}
        kept.note((citation, text) for citation, text in read.items() if citation.chunk not in self._fresh)
        texts = known | read
        return [Passage(texts[one], str(one.document), one.span, one.weight) for one in citations]

    def _read(self, chunks: Sequence[NodeId]) -> dict[NodeId, ChunkWithRaws]:
        return dict(zip(chunks, self._reader.chunks_with_raws(chunks), strict=True))

    def _cited(
        self, citations: Sequence[Citation], read: Callable[[Sequence[NodeId]], Mapping[NodeId, ChunkWithRaws]]
    ) -> dict[NodeId, ChunkWithRaws | PreparedChunk]:
        """Returns the cited chunks. New chunks come from the plan, `read` reads the others."""
        ids = sorted({citation.chunk for citation in citations})
        stored = [chunk for chunk in ids if chunk not in self._fresh]
        found: dict[NodeId, ChunkWithRaws | PreparedChunk] = {}
        found |= read(stored)
        return found | {chunk: self._fresh[chunk] for chunk in ids if chunk in self._fresh}


def _passage(citation: Citation, cited: Mapping[NodeId, ChunkWithRaws | PreparedChunk]) -> Passage:
    text = cited[citation.chunk].page.text_of(citation.span)
    return Passage(text, str(citation.document), citation.span, citation.weight)


def _member(
    outline: Outline, citations: Sequence[Citation], cited: Mapping[NodeId, ChunkWithRaws | PreparedChunk]
) -> SectionMember:
    """Returns the section as a member of the master.

    It contains only words of the cited chunks, because the master is sealed under the keys of their sources.
    """
    chunks = [cited[chunk].chunk for chunk in dict.fromkeys(citation.chunk for citation in citations)]
    return SectionMember(
        next(iter(_said([outline.title], [chunk.headings for chunk in chunks])), ""),
        tuple(_passage(citation, cited) for citation in citations),
        _said(outline.keywords, [chunk.keywords for chunk in chunks]),
        _said(outline.entities, [chunk.entities for chunk in chunks]),
    )


def _places(citations: Iterable[Citation]) -> dict[tuple[str, int, int], Citation]:
    return {(str(citation.document), citation.span.start, citation.span.end): citation for citation in citations}


def _by_weight(citation: Citation) -> tuple[float, DocumentId, int]:
    """The key that sorts the heaviest first, and equals by document and place."""
    return -citation.weight, citation.document, citation.span.start


def _said(of_section: Sequence[T], of_chunks: Iterable[Sequence[T]]) -> tuple[T, ...]:
    """Returns the words that both the section and these chunks have, else the first words of the chunks."""
    own = dict.fromkeys(word for words in of_chunks for word in words)
    return tuple(word for word in of_section if word in own) or tuple(own)[:WORDS_MAX]


def _category(title: str, digest: GroupDigest) -> str:
    return digest.keywords[0] if digest.keywords else title
