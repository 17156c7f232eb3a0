"""Plans the changes of a revision: new chunks, the sections that chunks join or leave, and the master, with digests.

A plan is made on one revision of the corpus, which `PlanReader` reads. Planning writes nothing. It goes through
documents and sections one by one, so that a plan of any size takes little memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

import numpy as np
import numpy.typing as npt

from drillcore_server.documents.ingestion.plan_reader import FreshChunks, PlanReader
from drillcore_server.documents.ingestion.prepared_documents import PreparedDocument
from drillcore_server.documents.ingestion.section_choice import (
    SECTION_CHUNKS_MAX,
    Group,
    Topics,
    cosine_to_join,
    groups_of,
    partitions,
    sum_of,
)
from drillcore_server.documents.ingestion.section_summaries import Authorship, Summariser
from drillcore_server.documents.processors.processor import Processor
from drillcore_server.hierarchy.model import Chunk, Document, Master, Section, Statistics
from drillcore_server.hierarchy.sections import Outline, sum_of_bytes
from drillcore_server.storage.ids import Membership, NodeId, PrincipalId, SourceId, new_uuid
from drillcore_server.vectors.embedding.embedders import Vector
from drillcore_server.vectors.stored_vectors import COMPONENT, rows_of, units_of


@dataclass(frozen=True, slots=True)
class SectionChange:
    """A section before and after the revision. None if it does not exist then."""

    before: Section | None
    after: Section | None
    joined: tuple[Membership, ...]
    left: tuple[Membership, ...]

    @property
    def id(self) -> NodeId:
        section = self.after or self.before
        assert section is not None
        return section.id


@dataclass(frozen=True, slots=True)
class HierarchyChange:
    added: Sequence[PreparedDocument]
    removed: Sequence[Document]
    sections: tuple[SectionChange, ...]
    master_before: Master | None
    master: Master
    master_sources: frozenset[SourceId]
    """The sources that the content of the master may come from."""


SettledKey = tuple[NodeId | None, int, tuple[NodeId, ...], tuple[NodeId, ...]]
"""A section, its version, the chunks that join it, and the chunks that leave it. Equal keys settle to equal changes."""


@dataclass(slots=True)
class SettledSections:
    """The section changes that the plans of one call have worked out.

    If another call commits first, the plan is made again. Sections that have not changed meanwhile are taken from here.
    """

    changes: dict[SettledKey, list[SectionChange]] = field(default_factory=dict)
    model: int | None = None
    """The model whose vectors the changes were settled with."""

    def for_model(self, model: int) -> SettledSections:
        """Drops the changes that were settled with vectors of another model. Returns itself."""
        if self.model != model:
            self.changes, self.model = {}, model
        return self


@dataclass(slots=True)
class _Draft:
    """A section while it changes."""

    id: NodeId
    before: Section | None
    title: str
    joined: list[Membership] = field(default_factory=list)
    joined_sum: Vector | None = None
    left: list[Membership] = field(default_factory=list)

    @property
    def count(self) -> int:
        return (self.before.chunks if self.before else 0) + len(self.joined) - len(self.left)

    def join(self, group: Group) -> None:
        self.joined += [chunk.chunk.membership for chunk in group.chunks]
        self.joined_sum = sum_of([group.vector_sum, *([] if self.joined_sum is None else [self.joined_sum])])

    def key(self) -> SettledKey:
        joined, left = tuple(member.id for member in self.joined), tuple(member.id for member in self.left)
        return (None, 0, joined, left) if self.before is None else (self.id, self.before.version, joined, left)


class Planner:
    def __init__(
        self,
        reader: PlanReader,
        processor: Processor,
        at: datetime,
        by: PrincipalId,
        settled: SettledSections | None = None,
    ) -> None:
        self._reader = reader
        self._authorship = Authorship(at, by)
        self._processor = processor
        self._settled = settled or SettledSections()
        self._outlines = reader.outlines()

    def plan(self, added: Sequence[PreparedDocument], removed: Sequence[Document]) -> HierarchyChange:
        """Returns the planned change. Goes through `added` more than once, one document at a time.

        The vectors of `added` must come from the model of the corpus.
        """
        master_before = self._reader.master()
        self._fresh = FreshChunks(added)
        self._summariser = Summariser(self._reader, self._fresh, self._processor, self._authorship)
        drafts: dict[NodeId, _Draft] = {}
        self._leave(removed, drafts)
        statistics = self._join(added, drafts) - _statistics(removed)
        self._read_sections(drafts)
        changes = [change for draft in drafts.values() for change in self._settle(draft)]
        outlines = self._outlines_after(changes)
        master, sources = self._summariser.master(master_before, outlines, statistics)
        return HierarchyChange(added, removed, tuple(changes), master_before, master, frozenset(sources))

    def _leave(self, removed: Sequence[Document], drafts: dict[NodeId, _Draft]) -> None:
        for document in removed:
            parents = self._reader.parents(document.chunks)
            for ordinal, (chunk, parent) in enumerate(zip(document.chunks, parents, strict=True)):
                self._draft(drafts, parent).left.append(Membership(chunk, document.id, ordinal))

    def _join(self, added: Sequence[PreparedDocument], drafts: dict[NodeId, _Draft]) -> Statistics:
        topics, statistics = Topics(self._outlines), Statistics()
        for number, prepared in enumerate(added):
            self._fresh.note(number, prepared)
            statistics = statistics + _statistics([prepared.document])
            others = len(topics)
            # Small groups come last, so that they find the sections that their own document opens.
            for group in sorted(groups_of(prepared), key=lambda group: group.is_small):
                draft = self._best(drafts, topics, group, others)
                draft.join(group)
                topics.add(draft.id, group.vector_sum)
        return statistics

    def _best(self, drafts: dict[NodeId, _Draft], topics: Topics, group: Group, others: int) -> _Draft:
        """Returns the section that a group joins, or a new section.

        `others` is the number of topics that its own document did not open. They come first.
        """
        nearest = topics.nearest(group.vector_sum, None if group.is_small else others)
        if nearest is not None and nearest[1] >= cosine_to_join(len(group.chunks)):
            return self._draft(drafts, nearest[0])
        return self._open(drafts, group.title)

    def _draft(self, drafts: dict[NodeId, _Draft], section: NodeId) -> _Draft:
        """Returns the draft of a section that exists, or that this plan has opened."""
        if section not in drafts:
            drafts[section] = _Draft(section, None, self._outlines.by_id[section].title)
        return drafts[section]

    def _open(self, drafts: dict[NodeId, _Draft], title: str) -> _Draft:
        draft = _Draft(NodeId(new_uuid()), None, title)
        drafts[draft.id] = draft
        return draft

    def _read_sections(self, drafts: Mapping[NodeId, _Draft]) -> None:
        there = [section for section in drafts if section in self._outlines.by_id]
        for section in self._reader.sections(there):
            drafts[section.id].before = section

    def _settle(self, draft: _Draft) -> list[SectionChange]:
        key = draft.key()
        if key not in self._settled.changes:
            self._settled.changes[key] = self._settle_anew(draft)
        return self._settled.changes[key]

    def _settle_anew(self, draft: _Draft) -> list[SectionChange]:
        """Returns the change of the section: a removal if it is empty, several sections if it is too large."""
        if draft.count == 0:
            return [SectionChange(draft.before, None, (), tuple(draft.left))]
        if draft.count > SECTION_CHUNKS_MAX:
            return self._split(draft)
        if draft.left:
            staying = self._remaining(draft)
            self._reader.read_members_ahead(staying)
            members = staying + draft.joined
            return [self._rebuilt(draft, members, sum_of(list(units_of(self._vectors(members)))))]
        return [self._extended(draft)]

    def _extended(self, draft: _Draft) -> SectionChange:
        """Changes a section that chunks only joined: updates the pool and the sum without reading the other chunks."""
        joined = [self._fresh[member.id].chunk for member in draft.joined]
        documents = (draft.before.documents if draft.before else 0) + len({member.document for member in draft.joined})
        section = self._summariser.section(
            draft.id,
            draft.before,
            draft.title,
            self._summariser.pool(draft.before, joined),
            category=draft.before.category if draft.before else "",
            counts=(documents, draft.count),
            vector_sum=self._sum_after(draft),
            sources=[*(draft.before.sources if draft.before else ()), *(chunk.source for chunk in joined)],
        )
        return SectionChange(draft.before, section, tuple(draft.joined), ())

    def _rebuilt(self, draft: _Draft, members: Sequence[Membership], vector_sum: Vector) -> SectionChange:
        """Makes the section anew from these members, so that nothing in it comes from chunks that left."""
        chunks = self._chunks(members)
        title = self._kept_title(draft.title, members, chunks)
        section = self._summariser.section(
            draft.id,
            draft.before,
            title,
            self._summariser.pool(None, chunks),
            category=_kept_category(draft.before, title, chunks),
            counts=(len({member.document for member in members}), len(members)),
            vector_sum=vector_sum,
            sources=[chunk.source for chunk in chunks],
        )
        return SectionChange(draft.before, section, tuple(draft.joined), tuple(draft.left))

    def _sum_after(self, draft: _Draft) -> Vector:
        """Returns the section's sum with the vectors that joined, without reading the others."""
        total = [] if draft.before is None else [sum_of_bytes(draft.before.vector_sum)]
        return sum_of([*total, *([] if draft.joined_sum is None else [draft.joined_sum])])

    def _split(self, draft: _Draft) -> list[SectionChange]:
        """Splits a section. Its largest part keeps the section, and each other part becomes a new section."""
        staying = self._remaining(draft)
        self._reader.read_members_ahead(staying)
        members = staying + draft.joined
        vectors = self._vectors(members)
        parts = sorted(partitions(vectors, SECTION_CHUNKS_MAX), key=lambda part: (-len(part), int(part[0])))
        assert sum(map(len, parts)) == len(members)
        changes = []
        for number, part in enumerate(parts):
            own = [members[place] for place in part]
            total = sum_of(list(units_of(vectors[part])))
            if number == 0:
                kept = set(own)
                moved = [member for member in staying if member not in kept]
                joined = [member for member in own if member.id in self._fresh]
                part_draft = _Draft(draft.id, draft.before, draft.title, joined, None, draft.left + moved)
            else:
                part_draft = _Draft(NodeId(new_uuid()), None, _heading(self._chunks(own)) or draft.title, own)
            changes.append(self._rebuilt(part_draft, own, total))
        return changes

    def _remaining(self, draft: _Draft) -> list[Membership]:
        if draft.before is None:
            return []
        gone = {member.id for member in draft.left}
        return [member for member in self._reader.members(draft.id) if member.id not in gone]

    def _chunks(self, members: Sequence[Membership]) -> list[Chunk]:
        stored = [member.id for member in members if member.id not in self._fresh]
        known = dict(zip(stored, self._reader.chunks(stored), strict=True))
        return [known[member.id] if member.id in known else self._fresh[member.id].chunk for member in members]

    def _vectors(self, members: Sequence[Membership]) -> npt.NDArray[np.int8]:
        """Returns a row for each member, as it is stored: a large call may add very many to one section."""
        stored = [member.id for member in members if member.id not in self._fresh]
        known = dict(zip(stored, self._reader.vectors(stored), strict=True))
        vectors = (known[member.id] if member.id in known else self._fresh[member.id].vector for member in members)
        first = next(vectors)
        rows = np.empty((len(members), len(first)), COMPONENT)
        for row, vector in zip(rows, chain([first], vectors), strict=True):
            row[:] = rows_of(vector[np.newaxis])[0]
        return rows

    def _kept_title(self, title: str, members: Sequence[Membership], chunks: Sequence[Chunk]) -> str:
        """Returns the title if one of these chunks or their documents has it, else a title that one of them has."""
        if any(title in chunk.headings for chunk in chunks):
            return title
        stored = {member.document for member in members if member.id not in self._fresh}
        documents = [document for document in self._reader.documents(sorted(stored)) if document is not None]
        documents += [self._fresh.document(member.id) for member in members if member.id in self._fresh]
        titles = [document.title for document in documents]
        return title if title in titles else _heading(chunks) or titles[0]

    def _outlines_after(self, changes: Sequence[SectionChange]) -> dict[NodeId, Outline]:
        outlines = dict(self._outlines.by_id)
        for change in changes:
            if change.after is not None:
                outlines[change.id] = Outline.of(change.after)
            else:
                del outlines[change.id]
        return outlines


def _heading(chunks: Sequence[Chunk]) -> str:
    """Returns the heading above most of the chunks."""
    headings = [chunk.headings[0] for chunk in chunks if chunk.headings]
    return max(sorted(set(headings)), key=headings.count) if headings else ""


def _kept_category(before: Section | None, title: str, chunks: Sequence[Chunk]) -> str:
    """Returns the section's category if its title or one of these chunks still supports it, else an empty string."""
    if before is None:
        return ""
    said = before.category == title or any(before.category in (*chunk.keywords, *chunk.headings) for chunk in chunks)
    return before.category if said else ""


def _statistics(documents: Sequence[Document]) -> Statistics:
    total = Statistics()
    for document in documents:
        total = total + Statistics(1, 0, len(document.chunks), document.raws, document.characters, document.tokens)
    return total
