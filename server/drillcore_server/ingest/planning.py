"""What a revision changes: the new chunks, the sections they join or leave, and the master, digests included.

Made on one revision of the corpus, which it reads through `CorpusReader`; it writes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol

import numpy as np

from drillcore_server.domain.digests import GroupDigest, Passage
from drillcore_server.domain.ids import DocumentId, NodeId, PrincipalId, new_uuid
from drillcore_server.domain.nodes import Chunk, Citation, Document, Finding, Master, RawPage, Section, Statistics
from drillcore_server.ingest.embedding.ports import Vector
from drillcore_server.ingest.prepare import PreparedChunk, PreparedDocument
from drillcore_server.ingest.processing.ports import (
    MASTER_TOKENS,
    SECTION_TOKENS,
    Member,
    Processor,
    SectionMember,
)
from drillcore_server.ingest.sectioning import NEAR_ENOUGH, SECTION_CHUNKS_MAX, Topics, groups_of, partitions, sum_of

SECTION_POOL: Final = 48
"""Passages a section keeps to choose its summary from."""
MASTER_POOL: Final = 72
"""Passages a master's summary is chosen from: about what 2,000 tokens hold, and a few to leave out."""
MASTER_POOL_PER_SECTION: Final = 2
MASTER_WORDS_PER_SECTION: Final = 8
"""Keywords and entities that a section has a say with: more would only make the master slower to make."""


class CorpusReader(Protocol):
    """One revision of the corpus."""

    def sections(self) -> Mapping[NodeId, Section]: ...

    def master(self) -> Master | None: ...

    def members(self, section: NodeId) -> list[NodeId]: ...

    def chunks(self, ids: Sequence[NodeId]) -> list[Chunk]: ...

    def pages(self, ids: Sequence[NodeId]) -> list[RawPage]: ...

    def vectors(self, ids: Sequence[NodeId]) -> list[Vector]: ...

    def parents(self, ids: Sequence[NodeId]) -> list[NodeId]: ...


@dataclass(frozen=True, slots=True)
class SectionChange:
    """A section as it was and as it will be; None where it is not there."""

    before: Section | None
    after: Section | None
    joined: tuple[Chunk, ...]
    left: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class HierarchyChange:
    added: tuple[PreparedDocument, ...]
    removed: tuple[Document, ...]
    removed_chunks: tuple[Chunk, ...]
    sections: tuple[SectionChange, ...]
    master_before: Master | None
    master: Master


@dataclass(slots=True)
class _Draft:
    """A section under change."""

    id: NodeId
    before: Section | None
    title: str
    joined: list[PreparedChunk] = field(default_factory=list)
    left: list[Chunk] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Pool:
    """Passages to choose a summary from, and the chunk each stands in."""

    members: tuple[Member, ...]
    citations: Mapping[tuple[str, int, int], Citation]

    def cite(self, passage: Passage) -> Citation:
        return self.citations[passage.document, passage.span.start, passage.span.end]

    def cited(self, passages: Iterable[Passage]) -> tuple[Citation, ...]:
        return tuple(self.cite(passage) for passage in passages)


class Planner:
    def __init__(
        self,
        reader: CorpusReader,
        processor: Processor,
        embedding_model: str,
        dimensions: int,
        at: datetime,
        by: PrincipalId,
    ) -> None:
        """`embedding_model` and its `dimensions` are those of the vectors of documents that are added."""
        self._reader = reader
        self._processor = processor
        self._embedding_model = embedding_model
        self._dimensions = dimensions
        self._at = at
        self._by = by
        self._sections = dict(reader.sections())
        self._fresh: dict[NodeId, PreparedChunk] = {}

    def plan(self, added: Sequence[PreparedDocument], removed: Sequence[Document]) -> HierarchyChange:
        master_before = self._reader.master()
        if master_before is not None and added:
            master_before.check_model(self._embedding_model, self._dimensions)
        self._fresh = {one.chunk.id: one for document in added for one in document.chunks}
        drafts: dict[NodeId, _Draft] = {}
        gone = self._leave(removed, drafts)
        self._join(added, drafts)
        changes = [change for draft in drafts.values() for change in self._settle(draft)]
        return HierarchyChange(
            tuple(added),
            tuple(removed),
            tuple(gone),
            tuple(changes),
            master_before,
            self._master(master_before, changes, added, removed),
        )

    def _leave(self, removed: Sequence[Document], drafts: dict[NodeId, _Draft]) -> list[Chunk]:
        ids = [chunk for document in removed for chunk in document.chunks]
        chunks = self._reader.chunks(ids)
        for chunk, parent in zip(chunks, self._reader.parents(ids), strict=True):
            self._draft(drafts, parent).left.append(chunk)
        return chunks

    def _join(self, added: Sequence[PreparedDocument], drafts: dict[NodeId, _Draft]) -> None:
        topics = Topics({section.id: section.vector_sum for section in self._sections.values()})
        for group in [group for document in added for group in groups_of(document)]:
            nearest = topics.nearest(group.vector_sum)
            if nearest is not None and nearest[1] >= NEAR_ENOUGH:
                draft = self._draft(drafts, nearest[0])
            else:
                draft = self._open(drafts, group.title)
            draft.joined += group.chunks
            topics.add(draft.id, group.vector_sum)

    def _draft(self, drafts: dict[NodeId, _Draft], section: NodeId) -> _Draft:
        """The draft of a section that is there, or that was opened before in this plan."""
        if section not in drafts:
            before = self._sections[section]
            drafts[section] = _Draft(section, before, before.title)
        return drafts[section]

    def _open(self, drafts: dict[NodeId, _Draft], title: str) -> _Draft:
        draft = _Draft(NodeId(new_uuid()), None, title)
        drafts[draft.id] = draft
        return draft

    def _settle(self, draft: _Draft) -> list[SectionChange]:
        """The section's new state: gone if it is empty, several if it has grown too large."""
        count = (draft.before.chunks if draft.before else 0) + len(draft.joined) - len(draft.left)
        if count == 0:
            return [SectionChange(draft.before, None, (), tuple(draft.left))]
        if count > SECTION_CHUNKS_MAX:
            return self._split(draft)
        if draft.left:
            return [self._rebuilt(draft, self._remaining(draft) + [one.chunk for one in draft.joined])]
        return [self._extended(draft)]

    def _extended(self, draft: _Draft) -> SectionChange:
        """Chunks only joined: the pool and the sums are brought up to date, without reading the other chunks."""
        joined = [one.chunk for one in draft.joined]
        pool = self._pool(draft.before, joined)
        before_sum = [_vector(draft.before.vector_sum)] if draft.before else []
        section = self._section(
            draft,
            pool,
            documents=(draft.before.documents if draft.before else 0) + len({chunk.document for chunk in joined}),
            chunks=(draft.before.chunks if draft.before else 0) + len(joined),
            vector_sum=sum_of([*before_sum, *(one.vector for one in draft.joined)]),
        )
        return SectionChange(draft.before, section, tuple(joined), ())

    def _rebuilt(self, draft: _Draft, chunks: Sequence[Chunk]) -> SectionChange:
        """The section of exactly these chunks, made anew."""
        section = self._section(
            draft,
            self._pool(None, chunks),
            documents=len({chunk.document for chunk in chunks}),
            chunks=len(chunks),
            vector_sum=sum_of(self._vectors([chunk.id for chunk in chunks])),
        )
        return SectionChange(draft.before, section, tuple(one.chunk for one in draft.joined), tuple(draft.left))

    def _split(self, draft: _Draft) -> list[SectionChange]:
        """The largest part keeps the section; each other part becomes one of its own."""
        staying = self._remaining(draft)
        chunks = staying + [one.chunk for one in draft.joined]
        vectors = np.stack(self._vectors([chunk.id for chunk in chunks]))
        parts = sorted(partitions(vectors, SECTION_CHUNKS_MAX), key=lambda part: (-len(part), int(part[0])))
        were_there = {chunk.id for chunk in staying}
        changes = []
        for number, part in enumerate(parts):
            members = [chunks[place] for place in part]
            fresh = [self._fresh[chunk.id] for chunk in members if chunk.id in self._fresh]
            if number == 0:
                kept = {chunk.id for chunk in members}
                moved = [chunk for chunk in staying if chunk.id not in kept]
                own = _Draft(draft.id, draft.before, draft.title, fresh, draft.left + moved)
                changes.append(self._rebuilt(own, members))
            else:
                own = _Draft(NodeId(new_uuid()), None, self._title(members, draft.title))
                change = self._rebuilt(own, members)
                changes.append(replace(change, joined=tuple(members)))
        assert sum(len(part) for part in parts) == len(were_there) + len(draft.joined)
        return changes

    def _remaining(self, draft: _Draft) -> list[Chunk]:
        if draft.before is None:
            return []
        gone = {chunk.id for chunk in draft.left}
        return self._reader.chunks([one for one in self._reader.members(draft.id) if one not in gone])

    def _vectors(self, ids: Sequence[NodeId]) -> list[Vector]:
        stored = [one for one in ids if one not in self._fresh]
        known = dict(zip(stored, self._reader.vectors(stored), strict=True))
        return [self._fresh[one].vector if one in self._fresh else known[one] for one in ids]

    def _title(self, chunks: Sequence[Chunk], otherwise: str) -> str:
        headings = [chunk.headings[0] for chunk in chunks if chunk.headings]
        return max(sorted(set(headings)), key=headings.count) if headings else otherwise

    def _pool(self, before: Section | None, chunks: Sequence[Chunk]) -> _Pool:
        """The heaviest passages of a section as it was and of these chunks, with their text."""
        citations = [
            *(before.candidates if before else ()),
            *(Citation(chunk.document, chunk.id, one.span, one.weight) for chunk in chunks for one in chunk.candidates),
        ]
        best = sorted(citations, key=_by_weight)[:SECTION_POOL]
        passages = self._passages(best)
        members = [Member(passages, (), ())]
        if before is not None:
            members.append(Member((), before.keywords, before.entities))
        members += [Member((), chunk.keywords, chunk.entities) for chunk in chunks]
        return _Pool(tuple(members), _places(best))

    def _passages(self, citations: Sequence[Citation]) -> tuple[Passage, ...]:
        """The cited text, from memory for chunks of this plan, else from the store."""
        ids = sorted({one.chunk for one in citations})
        stored = [one for one in ids if one not in self._fresh]
        pages = dict(zip(stored, self._reader.pages(stored), strict=True))
        pages |= {one: self._fresh[one].page for one in ids if one in self._fresh}
        return tuple(
            Passage(pages[one.chunk].text_of(one.span), str(one.document), one.span, one.weight) for one in citations
        )

    def _section(self, draft: _Draft, pool: _Pool, *, documents: int, chunks: int, vector_sum: Vector) -> Section:
        digest = self._processor.summarise_section(draft.title, pool.members, SECTION_TOKENS)
        before = draft.before
        return Section(
            id=draft.id,
            title=draft.title,
            category=before.category if before else _category(draft.title, digest),
            summary=digest.summary.text,
            citations=pool.cited(digest.summary.passages),
            candidates=tuple(sorted(pool.citations.values(), key=_by_weight)),
            keywords=digest.keywords,
            tokens=digest.summary.tokens,
            made_by=digest.made_by,
            entities=digest.entities,
            documents=documents,
            chunks=chunks,
            vector_sum=vector_sum.astype("<f4").tobytes(),
            created_at=before.created_at if before else self._at,
            created_by=before.created_by if before else self._by,
            version=before.version + 1 if before else 1,
        )

    def _master(
        self,
        before: Master | None,
        changes: Sequence[SectionChange],
        added: Sequence[PreparedDocument],
        removed: Sequence[Document],
    ) -> Master:
        sections = dict(self._sections)
        for change in changes:
            if change.after is not None:
                sections[change.after.id] = change.after
            elif change.before is not None:
                del sections[change.before.id]
        digest, pool = self._digest_of(sections.values())
        kept_model = before if before is not None and not added else None
        statistics = (before.statistics if before else Statistics()) + _statistics([one.document for one in added])
        return Master(
            id=before.id if before else NodeId(new_uuid()),
            summary=digest.summary.text,
            citations=pool.cited(digest.summary.passages),
            findings=tuple(Finding(one.kind, one.passage.text, pool.cite(one.passage)) for one in digest.findings),
            keywords=digest.keywords,
            tokens=digest.summary.tokens,
            made_by=digest.made_by,
            statistics=replace(statistics - _statistics(removed), sections=len(sections)),
            embedding_model=kept_model.embedding_model if kept_model else self._embedding_model,
            created_at=before.created_at if before else self._at,
            created_by=before.created_by if before else self._by,
            version=before.version + 1 if before else 1,
            dimensions=kept_model.dimensions if kept_model else self._dimensions,
        )

    def _digest_of(self, sections: Iterable[Section]) -> tuple[GroupDigest, _Pool]:
        """The corpus's digest from its sections' heaviest passages. Only those chosen are read."""
        ordered = sorted(sections, key=lambda section: section.id)
        offered = [(one, section) for section in ordered for one in section.candidates[:MASTER_POOL_PER_SECTION]]
        least = min(heapq.nlargest(MASTER_POOL, (one.weight for one, _ in offered)), default=0.0)
        heavy = [pair for pair in offered if pair[0].weight >= least]
        best = sorted(heavy, key=lambda pair: _by_weight(pair[0]))[:MASTER_POOL]
        passages = dict(zip([one for one, _ in best], self._passages([one for one, _ in best]), strict=True))
        by_section: dict[NodeId, list[Passage]] = {}
        for one, section in best:
            by_section.setdefault(section.id, []).append(passages[one])
        members = [
            SectionMember(
                section.title,
                tuple(by_section[section.id]),
                section.keywords[:MASTER_WORDS_PER_SECTION],
                section.entities[:MASTER_WORDS_PER_SECTION],
            )
            for section in ordered
            if section.id in by_section
        ]
        digest = self._processor.summarise_corpus(members, MASTER_TOKENS)
        return digest, _Pool((), _places([one for one, _ in best]))


def _places(citations: Iterable[Citation]) -> dict[tuple[str, int, int], Citation]:
    return {(str(one.document), one.span.start, one.span.end): one for one in citations}


def _by_weight(citation: Citation) -> tuple[float, DocumentId, int]:
    """Heaviest first, then in the order of documents."""
    return -citation.weight, citation.document, citation.span.start


def _category(title: str, digest: GroupDigest) -> str:
    return digest.keywords[0] if digest.keywords else title


def _statistics(documents: Iterable[Document]) -> Statistics:
    total = Statistics()
    for one in documents:
        total = total + Statistics(1, 0, len(one.chunks), one.raws, one.characters, one.tokens)
    return total


def _vector(stored: bytes) -> Vector:
    return np.frombuffer(stored, dtype="<f4")
