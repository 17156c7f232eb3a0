"""What becomes of facts when a whole hierarchy takes the place of what a corpus has. It draws none itself.

A fact whose source has no document any more is deleted; one whose chunk is gone, or does not say the same any more, is
stale. A fact that was put without a chunk stays as long as the content of its source does. One that stays is found by
the titles that are above it then, and in the raw that it stands in then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Final

from drillcore_server.commands.document_facts import SOURCE_REMOVED
from drillcore_server.commands.earlier import Earlier, batches
from drillcore_server.domain.fact_words import titles_above
from drillcore_server.domain.facts import Fact, FactChange, FactStatus
from drillcore_server.domain.ids import DocumentId, NodeId, SourceId
from drillcore_server.domain.nodes import ChunkWithRaws, Document
from drillcore_server.domain.sources import Source
from drillcore_server.ingest.drawing import NOT_SAID
from drillcore_server.store.facts import FACT, FactWrites
from drillcore_server.store.writes import Write

_AT_HAND: Final = 64
"""Chunks and sources that were asked for last: facts of one follow each other."""


@dataclass(slots=True)
class ReplacedFacts:
    """Makes the writes of one revision; afterwards it knows how many facts that changes."""

    earlier: Earlier
    documents: Mapping[SourceId, Document]
    """Of the new hierarchy, by their sources."""
    chunk_of: Callable[[NodeId], ChunkWithRaws | None]
    """Of the new hierarchy."""
    gone: Set[SourceId]
    """Sources that have no document any more."""
    make: FactWrites
    at: datetime
    changed: int = 0
    deleted: Counter[SourceId] = field(default_factory=Counter)

    def writes(self) -> Iterator[Write]:
        snapshot = self.earlier.snapshot
        before = _Before(
            lru_cache(_AT_HAND)(self._chunk_before),
            lru_cache(_AT_HAND)(self._source_before),
            lru_cache(_AT_HAND)(self._title_before),
        )
        entries = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.facts()))
        for some in batches(entries):  # between them the lease is renewed
            for entry in some:
                fact = FACT.decode(entry.value)
                yield from self._change(fact, self._after(fact, before))

    def _after(self, fact: Fact, before: _Before) -> Fact:
        if fact.source in self.gone and fact.status in {FactStatus.ACTIVE, FactStatus.STALE}:
            return fact.moved(FactStatus.DELETED, SOURCE_REMOVED, self.at)
        if fact.status is not FactStatus.ACTIVE:
            return fact
        if fact.chunk is None:
            is_said = self._says_the_same(fact, before.source(fact.source))
            return fact if is_said else fact.moved(FactStatus.STALE, NOT_SAID, self.at)
        held, holds = before.chunk(fact.chunk), self.chunk_of(fact.chunk)
        if held is None or holds is None or not _holds_the_same(fact, held, holds):
            return fact.moved(FactStatus.STALE, NOT_SAID, self.at)
        return self._placed(fact, (before.title(held.chunk.document), *held.chunk.headings), holds)

    def _placed(self, fact: Fact, were: tuple[str, ...], holds: ChunkWithRaws) -> Fact:
        """With the titles that are above it now. While those above its chunk are the same, its own stay."""
        title, headings = self.documents[fact.source].title, holds.chunk.headings
        titles = fact.titles if (title, *headings) == were else titles_above(title, headings)
        passage = None if fact.span is None else holds.page.place_of(fact.span.start)
        placed = replace(fact, titles=titles, passage=passage)
        return fact if placed == fact else replace(placed, modified_at=self.at, version=fact.version + 1)

    def _says_the_same(self, fact: Fact, source: Source | None) -> bool:
        document = self.documents.get(fact.source)
        if document is None or source is None or source.document is None:
            return True
        return source.content_hash == document.content_hash != ""

    def _change(self, before: Fact, after: Fact) -> Iterator[Write]:
        if after == before:
            return
        self.changed += 1
        self.deleted[after.source] += after.status is FactStatus.DELETED
        what = FactChange.DETAILS if after.status is before.status else FactChange.STATUS
        yield from self.make.change(before, after, what)

    def _chunk_before(self, chunk: NodeId) -> ChunkWithRaws | None:
        return self.earlier.snapshot.read(lambda view: view.chunk_with_raws(chunk))

    def _source_before(self, source: SourceId) -> Source | None:
        return self.earlier.snapshot.read(lambda view: view.source(source))

    def _title_before(self, document: DocumentId) -> str:
        found = self.earlier.snapshot.read(lambda view: view.document(document))
        return "" if found is None else found.title


@dataclass(frozen=True, slots=True)
class _Before:
    """What the corpus had."""

    chunk: Callable[[NodeId], ChunkWithRaws | None]
    source: Callable[[SourceId], Source | None]
    title: Callable[[DocumentId], str]


def _holds_the_same(fact: Fact, before: ChunkWithRaws, after: ChunkWithRaws) -> bool:
    if after.chunk.document != fact.document or after.chunk.source != fact.source:
        return False
    span = fact.span or before.page.span
    return after.page.holds(span) and after.page.text_of(span) == before.page.text_of(span)
