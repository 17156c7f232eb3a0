"""Facts as data: what is put, filters, and what calls about facts return."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore._api.messages import (
    enum_member,
    enum_number,
    optional_datetime,
    timestamp,
    to_datetime,
    to_id,
    to_revisions,
)
from drillcore._api.node_data import Span, span_message, to_span
from drillcore._transport.call import Page, id_text
from drillcore_proto.v1 import facts_pb2 as pb


class FactStatus(enum.Enum):
    """The status of a fact. The values are the words that the state hash uses."""

    ACTIVE = "ACTIVE"
    STALE = "STALE"
    """Searches find it, but rank it as old."""
    DELETED = "DELETED"
    """Searches do not find it. The record stays."""
    QUARANTINED = "QUARANTINED"
    """Searches do not find it until a signed review lifts the quarantine."""


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact to put: one assertion of 10 to 2,048 tokens."""

    content: str
    source_id: str = ""
    """The source it comes from. With a `chunk_id` it is the source of the chunk."""
    source_location: str = ""
    """Page, paragraph or URL fragment."""
    importance_weight: float | None = None
    """0 to 1. None: it depends on the type of the source."""
    ttl: str = ""
    """An ISO 8601 duration such as P90D, after which it is stale. Empty: it never gets stale."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    chunk_id: UUID | str | None = None
    """The chunk of the corpus that it was drawn from."""
    span: Span | None = None
    """With a `chunk_id`: the place in the document's text."""
    embedding: Sequence[float] = ()
    """Empty: the server makes the embedding. Otherwise pass `embedding_model` to the call."""
    id: UUID | str | None = None
    """Your own id. None: the server makes one."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A single assertion of a corpus."""

    id: UUID
    corpus_id: UUID
    content: str
    content_hash: str
    """SHA-256 of the content's UTF-8 bytes, in hex."""
    status: FactStatus
    status_reason: str
    """The reason for the last change of its status."""
    source_id: str
    source_location: str
    importance_weight: float
    """0 to 1."""
    community_id: UUID | None
    """None if it belongs to no community."""
    community_label: str
    ingested_at: datetime
    modified_at: datetime
    access_count: int
    last_accessed_at: datetime | None
    """None if it was never accessed."""
    ttl: str
    """An ISO 8601 duration; empty if it never gets stale."""
    metadata: Mapping[str, str]
    chunk_id: UUID | None
    """The chunk that it was drawn from; None if it was put without one."""
    document_id: UUID | None
    span: Span | None
    """The place in the document's text."""
    lead_spans: tuple[Span, ...]
    """Places in the document's text that introduce it, outermost first. Its content begins with them."""
    tokens: int
    archived: bool
    """Searches do not find it, but it is readable by id."""
    session_only: bool
    """Kept only in the caller's session (no-store), not in the corpus."""
    created_by: str
    version: int
    """1 at creation; every change adds one."""
    embedding_model: str
    embedding: tuple[float, ...]
    """Empty unless you asked for it."""
    revision: int = field(compare=False)
    """The revision of the corpus that was read."""


@dataclass(frozen=True, slots=True)
class FactFilter:
    """Which facts. A fact must match every field that is set. Within a field, any one of the values is enough."""

    source_ids: Collection[str] = ()
    statuses: Collection[FactStatus] = ()
    """Empty: a search finds active and stale facts, a list has all."""
    community_ids: Collection[UUID | str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Keys and values. A fact must have all of them."""
    ingested_after: datetime | None = None
    ingested_before: datetime | None = None
    document_ids: Collection[UUID | str] = ()
    chunk_ids: Collection[UUID | str] = ()


EVERY_FACT: Final = FactFilter()


@dataclass(frozen=True, slots=True)
class PutFactsResult:
    """The result of putting facts."""

    fact_ids: tuple[UUID, ...]
    """The ids, in the order of the facts that were given."""
    revision: int
    """The newest revision of the corpus afterwards."""


@dataclass(frozen=True, slots=True)
class FactPage(Page[Fact]):
    """Some of the facts of a corpus."""

    revision: int
    """The revision of the corpus that was read."""


@dataclass(frozen=True, slots=True)
class UpdatedFact:
    """The result of updating a fact."""

    version: int
    """The version of the fact."""
    revision: int
    """The newest revision of the corpus afterwards, even if nothing changed."""


@dataclass(frozen=True, slots=True)
class ChangedFacts:
    """The result of changing the status of facts, archiving or restoring them."""

    changed: int
    """How many facts changed."""
    revision: int
    """The newest revision of the corpus afterwards, even if nothing changed."""


@dataclass(frozen=True, slots=True)
class FactHit:
    """A fact that a search found."""

    fact: Fact
    score: float
    """The cosine between the vector of the text, or the given one, and that of the fact."""
    stale: bool
    """Whether its status is stale, or it is older than the max-age of the search."""


@dataclass(frozen=True, slots=True)
class FactSearch:
    """What a search found, best first."""

    hits: tuple[FactHit, ...]
    revisions: Mapping[UUID, int]
    """The revision that was read of each corpus, including those without hits."""
    exact: bool
    """Whether the search compared every vector."""
    headers: Mapping[str, str]
    """The headers of the Context Relay Protocol, ready to send."""


@dataclass(frozen=True, slots=True)
class CorpusState:
    """A fingerprint of the knowledge in a corpus. Equal states give equal answers."""

    corpus_id: UUID
    revision: int
    """Grows with every change that could change an answer, but not with an access."""
    hash: str
    """SHA-256 over its active facts, in hex; empty with `revision_only`."""
    facts: int
    """The number of active facts."""
    shared: bool
    """Whether it belongs to another tenant, who shares it."""


@dataclass(frozen=True, slots=True)
class State:
    """The states of some corpora, and of all of them together."""

    corpora: tuple[CorpusState, ...]
    combined_hash: str
    """SHA-256 over all of them, in hex; empty with `revision_only`."""


def to_draft(fact: NewFact) -> pb.FactDraft:
    return pb.FactDraft(
        fact_id=id_text(fact.id),
        content=fact.content,
        source_id=fact.source_id,
        source_location=fact.source_location,
        importance_weight=fact.importance_weight,
        ttl=fact.ttl,
        metadata=fact.metadata,
        chunk_id=id_text(fact.chunk_id),
        span=None if fact.span is None else span_message(fact.span),
        embedding=fact.embedding,
    )


def filters_message(filters: FactFilter) -> pb.FactFilters:
    """Raises ValueError for a time without a zone."""
    return pb.FactFilters(
        source_ids=filters.source_ids,
        statuses=[enum_number(pb.FactStatus, status) for status in filters.statuses],
        community_ids=map(id_text, filters.community_ids),
        metadata=filters.metadata,
        ingested_after=timestamp(filters.ingested_after),
        ingested_before=timestamp(filters.ingested_before),
        document_ids=map(id_text, filters.document_ids),
        chunk_ids=map(id_text, filters.chunk_ids),
    )


def to_fact(message: pb.Fact, revision: int) -> Fact:
    return Fact(
        id=UUID(message.fact_id),
        corpus_id=UUID(message.corpus_id),
        content=message.content,
        content_hash=message.content_hash,
        status=enum_member(FactStatus, pb.FactStatus, message.status),
        status_reason=message.status_reason,
        source_id=message.source_id,
        source_location=message.source_location,
        importance_weight=message.importance_weight,
        community_id=to_id(message.community_id),
        community_label=message.community_label,
        ingested_at=to_datetime(message.ingested_at),
        modified_at=to_datetime(message.modified_at),
        access_count=message.access_count,
        last_accessed_at=optional_datetime(message, "last_accessed_at"),
        ttl=message.ttl,
        metadata=dict(message.metadata),
        chunk_id=to_id(message.chunk_id),
        document_id=to_id(message.document_id),
        span=to_span(message.span) if message.HasField("span") else None,
        lead_spans=tuple(map(to_span, message.lead_spans)),
        tokens=message.tokens,
        archived=message.archived,
        session_only=message.session_only,
        created_by=message.created_by,
        version=message.version,
        embedding_model=message.embedding_model,
        embedding=tuple(message.embedding),
        revision=revision,
    )


def to_put_result(message: pb.PutFactsResponse) -> PutFactsResult:
    return PutFactsResult(tuple(map(UUID, message.fact_ids)), message.revision)


def to_facts_by_id(message: pb.GetFactsResponse) -> tuple[Fact, ...]:
    return tuple(_fact_of_corpora(fact, message.revisions) for fact in message.facts)


def to_page(message: pb.ListFactsResponse) -> FactPage:
    facts = tuple(to_fact(fact, message.revision) for fact in message.facts)
    return FactPage(facts, message.next_page_token, message.revision)


def to_search(message: pb.SearchFactsResponse) -> FactSearch:
    return FactSearch(
        hits=tuple(
            FactHit(_fact_of_corpora(hit.fact, message.revisions), hit.score, hit.stale) for hit in message.hits
        ),
        revisions=to_revisions(message.revisions),
        exact=message.exact,
        headers=dict(message.headers),
    )


def to_state(message: pb.GetStateResponse) -> State:
    return State(tuple(map(_to_corpus_state, message.states)), message.combined_hash)


def _to_corpus_state(message: pb.CorpusState) -> CorpusState:
    return CorpusState(
        corpus_id=UUID(message.corpus_id),
        revision=message.state_revision,
        hash=message.state_hash,
        facts=message.facts,
        shared=message.shared,
    )


def _fact_of_corpora(message: pb.Fact, revisions: Mapping[str, int]) -> Fact:
    return to_fact(message, revisions.get(message.corpus_id, 0))  # a fact that is only in a session has no revision
