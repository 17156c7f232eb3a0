"""Decides what a new version of a source does to its facts: which facts are new, repeated or missing.

- A fact that is repeated word for word keeps its id, vector and history, and moves to its new place. It becomes active
  again if it was stale or archived; a quarantine stays. If its time to live was over, its time starts again.
- Weight and metadata that a user has set stay. Others follow the document.
- A fact that the new version does not repeat becomes stale. So do facts that a client put directly, since nobody knows
  whether the new version supports them. If only the document's metadata changed, and not its text, they stay unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_server.documents.ingestion.prepared_documents import PreparedChunk, PreparedFact
from drillcore_server.facts.importance import ImportanceSettings, importance
from drillcore_server.facts.model import LOCATION_CHARACTERS_MAX, SEARCHED_STATUSES, Fact, FactStatus
from drillcore_server.facts.words import titles_above
from drillcore_server.hierarchy.model import Chunk, Document
from drillcore_server.hierarchy.source_model import SourceDescription, describe
from drillcore_server.storage.ids import PrincipalId

SAID_AGAIN: Final = "its source says it again"
NOT_SAID: Final = "its source has changed and does not say it any more"
METADATA_CHARACTERS_MAX: Final = 1_000
"""The size of a document's metadata that each of its facts copies, so that search finds the facts by it."""


@dataclass(frozen=True, slots=True)
class FactChangeSettings:
    """The settings that all facts of a revision share."""

    weights: ImportanceSettings
    model: str
    """The model that makes the vectors of the facts."""
    at: datetime
    by: PrincipalId


@dataclass(frozen=True, slots=True)
class FactChanges:
    """Makes the facts of a document of a source, which may replace an earlier document of the source."""

    document: Document
    replaced: Document | None
    source: SourceDescription
    carried: Mapping[str, str]
    """The entries of the document's metadata that its facts copy."""
    settings: FactChangeSettings

    @classmethod
    def of(cls, document: Document, replaced: Document | None, settings: FactChangeSettings) -> FactChanges:
        described = describe(document.source, document.title, document.metadata)
        return cls(document, replaced, described, carried(document.metadata), settings)

    def new(self, fact: PreparedFact, hashed: str, place: PreparedChunk) -> Fact:
        """Returns a fact that the source did not have."""
        chunk = place.chunk
        return Fact(
            id=fact.id,
            content=fact.content,
            content_hash=hashed,
            tokens=fact.tokens,
            source=chunk.source,
            source_location=location(fact, chunk),
            importance=self._weight(fact, chunk),
            ingested_at=self.settings.at,
            modified_at=self.settings.at,
            created_by=self.settings.by,
            metadata=self.carried,
            chunk=chunk.id,
            document=chunk.document,
            span=fact.span,
            embedding_model=self.settings.model,
            titles=self._titles(chunk, fact),
            passage=place.page.place_of(fact.span.start),
            leads=fact.leads,
            lead_characters=fact.lead_characters,
        )

    def repeated(self, before: Fact, fact: PreparedFact, place: PreparedChunk) -> Fact:
        """Returns the new state of a fact that the document repeats."""
        chunk = place.chunk
        tied = replace(
            before,
            source_location=location(fact, chunk),
            importance=self._weight(fact, chunk) if self._weighs_otherwise() else before.importance,
            metadata=self._metadata_of(before),
            chunk=chunk.id,
            document=chunk.document,
            span=fact.span,
            titles=self._titles(chunk, fact),
            passage=place.page.place_of(fact.span.start),
            leads=fact.leads,
            lead_characters=fact.lead_characters,
            archived_at=None,
            ingested_at=self._ingested_at(before),
            modified_at=self.settings.at,
            version=before.version + 1,
        )
        if before.status is not FactStatus.STALE:
            return tied
        return replace(tied, status=FactStatus.ACTIVE, status_reason=SAID_AGAIN)

    def _ingested_at(self, before: Fact) -> datetime:
        """Returns the start of the time to live: now if the time was over, whether a sweep has noticed that or not."""
        is_over = before.expires_at is not None and before.expires_at <= self.settings.at
        return self.settings.at if is_over and before.status in SEARCHED_STATUSES else before.ingested_at

    def not_drawn(self, before: Fact, chunks: Sequence[PreparedChunk]) -> Fact:
        """Returns the new state of a fact of the source that was not drawn from the document."""
        if before.status is not FactStatus.ACTIVE:
            return before
        if self.replaced is not None and self.replaced.content_hash == self.document.content_hash:
            if before.chunk is None:
                return before
            place = _place_of(before, self.replaced, chunks)
            if place is not None:
                tied = self._tied(before, place)
                return replace(tied, modified_at=self.settings.at, version=before.version + 1)
        return before.moved(FactStatus.STALE, NOT_SAID, self.settings.at)

    def _weight(self, fact: PreparedFact, chunk: Chunk) -> float:
        return importance(self.settings.weights, self.source, fact.content, (*chunk.headings, *fact.headings))

    def _tied(self, before: Fact, place: PreparedChunk) -> Fact:
        """Ties a fact to the new chunk with the same text as its former chunk. The places of its introductions stay."""
        passage = None if before.span is None else place.page.place_of(before.span.start)
        titles = self._titles(place.chunk)
        return replace(before, chunk=place.chunk.id, document=place.chunk.document, titles=titles, passage=passage)

    def _titles(self, chunk: Chunk, fact: PreparedFact | None = None) -> tuple[str, ...]:
        return titles_above(self.document.title, (*chunk.headings, *(() if fact is None else fact.headings)))

    def _weighs_otherwise(self) -> bool:
        """Tells whether anything changed in the description of the document that weights depend on."""
        if self.replaced is None:
            return False
        return self.source != describe(self.replaced.source, self.replaced.title, self.replaced.metadata)

    def _metadata_of(self, before: Fact) -> Mapping[str, str]:
        had = self.replaced.metadata if self.replaced is not None else {}
        own = {name: value for name, value in before.metadata.items() if had.get(name) != value}
        return {**self.carried, **own}


def location(fact: PreparedFact, chunk: Chunk) -> str:
    """Returns where to find a fact: its page and the headings above it, else its characters in the text."""
    page = [f"page {fact.page}"] if fact.page is not None else []
    headings = [" > ".join((*chunk.headings, *fact.headings))] if chunk.headings or fact.headings else []
    text = f"characters {fact.span.start} to {fact.span.end}"
    return (", ".join(page + headings) or text)[:LOCATION_CHARACTERS_MAX]


def carried(metadata: Mapping[str, str]) -> dict[str, str]:
    """Returns the entries of a document's metadata that its facts copy: all that fit, by name."""
    room = METADATA_CHARACTERS_MAX
    taken: dict[str, str] = {}
    for name, value in sorted(metadata.items()):
        room -= len(name) + len(value)
        if room >= 0:
            taken[name] = value
    return taken


def _place_of(fact: Fact, replaced: Document, chunks: Sequence[PreparedChunk]) -> PreparedChunk | None:
    """Returns the new chunk with the same text as the fact's chunk, if the text was cut into the same chunks again."""
    if fact.chunk not in replaced.chunks or len(replaced.chunks) != len(chunks):
        return None
    place = chunks[replaced.chunks.index(fact.chunk)]
    span = place.chunk.span
    is_held = fact.span is None or (span.start <= fact.span.start and fact.span.end <= span.end)
    return place if is_held else None
