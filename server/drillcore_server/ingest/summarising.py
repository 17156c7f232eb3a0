"""New digests of sections and masters, from the heaviest passages below them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_server.domain.digests import GroupDigest, Passage
from drillcore_server.domain.ids import DocumentId, NodeId, PrincipalId, new_uuid
from drillcore_server.domain.nodes import Chunk, Citation, Finding, Master, Section, Statistics
from drillcore_server.domain.outlines import Outline
from drillcore_server.ingest.embedding.ports import Vector
from drillcore_server.ingest.processing.ports import MASTER_TOKENS, SECTION_TOKENS, Member, Processor, SectionMember
from drillcore_server.ingest.reader import CorpusReader, FreshChunks

SECTION_POOL: Final = 48
"""Passages a section keeps to choose its summary from."""
MASTER_POOL: Final = 72
"""Passages a master's summary is chosen from: about what 2,000 tokens hold, and a few to leave out."""


@dataclass(frozen=True, slots=True)
class Made:
    """Under what a revision's records are made: by whom, when, with which model."""

    embedding_model: str
    dimensions: int
    at: datetime
    by: PrincipalId


@dataclass(frozen=True, slots=True)
class Pool:
    """Passages to choose a summary from, and the chunk each stands in."""

    members: tuple[Member, ...]
    citations: Mapping[tuple[str, int, int], Citation]

    def cite(self, passage: Passage) -> Citation:
        return self.citations[passage.document, passage.span.start, passage.span.end]

    def cited(self, passages: Iterable[Passage]) -> tuple[Citation, ...]:
        return tuple(self.cite(passage) for passage in passages)


class Summariser:
    def __init__(self, reader: CorpusReader, fresh: FreshChunks, processor: Processor, made: Made) -> None:
        self._reader = reader
        self._fresh = fresh
        self._processor = processor
        self._made = made

    def pool(self, before: Section | None, chunks: Sequence[Chunk]) -> Pool:
        """The heaviest passages of a section as it was and of these chunks, with their text; each chunk a member."""
        citations = [
            *(before.candidates if before else ()),
            *(Citation(chunk.document, chunk.id, one.span, one.weight) for chunk in chunks for one in chunk.candidates),
        ]
        best = heapq.nsmallest(SECTION_POOL, citations, key=_by_weight)
        passages: dict[NodeId, list[Passage]] = {}
        for citation, passage in zip(best, self._passages(best), strict=True):
            passages.setdefault(citation.chunk, []).append(passage)
        members = [Member(tuple(passages.pop(one.id, ())), one.keywords, one.entities) for one in chunks]
        if before is not None:
            members.append(Member((), before.keywords, before.entities))
        members += [Member(tuple(some), (), ()) for some in passages.values()]
        return Pool(tuple(members), _places(best))

    def section(
        self,
        section: NodeId,
        before: Section | None,
        title: str,
        pool: Pool,
        *,
        counts: tuple[int, int],
        vector_sum: Vector,
    ) -> Section:
        """`counts` are its documents and its chunks."""
        digest = self._processor.summarise_section(title, pool.members, SECTION_TOKENS)
        return Section(
            id=section,
            title=title,
            category=before.category if before else _category(title, digest),
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
            created_at=before.created_at if before else self._made.at,
            created_by=before.created_by if before else self._made.by,
            version=before.version + 1 if before else 1,
        )

    def master(self, before: Master | None, outlines: Mapping[NodeId, Outline], change: Statistics) -> Master:
        """Of these sections; `change` is what the revision adds to the corpus's statistics."""
        digest, pool = self._digest_of(outlines)
        statistics = (before.statistics if before else Statistics()) + change
        return Master(
            id=before.id if before else NodeId(new_uuid()),
            summary=digest.summary.text,
            citations=pool.cited(digest.summary.passages),
            findings=tuple(Finding(one.kind, one.passage.text, pool.cite(one.passage)) for one in digest.findings),
            keywords=digest.keywords,
            tokens=digest.summary.tokens,
            made_by=digest.made_by,
            statistics=replace(statistics, sections=len(outlines)),
            embedding_model=self._made.embedding_model,
            created_at=before.created_at if before else self._made.at,
            created_by=before.created_by if before else self._made.by,
            version=before.version + 1 if before else 1,
            dimensions=self._made.dimensions,
        )

    def _digest_of(self, outlines: Mapping[NodeId, Outline]) -> tuple[GroupDigest, Pool]:
        """The corpus's digest from its sections' heaviest passages. Only those chosen are read."""
        offered = ((one, outline.id) for outline in outlines.values() for one in outline.candidates)
        best = heapq.nsmallest(MASTER_POOL, offered, key=lambda pair: _by_weight(pair[0]))
        citations = [one for one, _ in best]
        by_section: dict[NodeId, list[Passage]] = {}
        for (_, section), passage in zip(best, self._passages(citations), strict=True):
            by_section.setdefault(section, []).append(passage)
        members = [_member(outlines[section], by_section[section]) for section in sorted(by_section)]
        return self._processor.summarise_corpus(members, MASTER_TOKENS), Pool((), _places(citations))

    def _passages(self, citations: Sequence[Citation]) -> list[Passage]:
        """The cited text, of fresh chunks as they are, else from the store."""
        ids = sorted({one.chunk for one in citations})
        stored = [one for one in ids if one not in self._fresh]
        pages = dict(zip(stored, self._reader.pages(stored), strict=True))
        pages |= {one: self._fresh[one].page for one in ids if one in self._fresh}
        return [
            Passage(pages[one.chunk].text_of(one.span), str(one.document), one.span, one.weight) for one in citations
        ]


def _member(outline: Outline, passages: Sequence[Passage]) -> SectionMember:
    return SectionMember(outline.title, tuple(passages), outline.keywords, outline.entities)


def _places(citations: Iterable[Citation]) -> dict[tuple[str, int, int], Citation]:
    return {(str(one.document), one.span.start, one.span.end): one for one in citations}


def _by_weight(citation: Citation) -> tuple[float, DocumentId, int]:
    """Heaviest first, then in the order of documents."""
    return -citation.weight, citation.document, citation.span.start


def _category(title: str, digest: GroupDigest) -> str:
    return digest.keywords[0] if digest.keywords else title
