"""Facts as they are put, and what calls about them return."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from drillcore._node_results import Span
from drillcore._results import Page


class FactStatus(enum.Enum):
    """Where a fact is in its life. Values are the words of the state hash."""

    ACTIVE = "ACTIVE"
    STALE = "STALE"
    """May still be found; ranked as old."""
    DELETED = "DELETED"
    """Not found any more; the record stays."""
    QUARANTINED = "QUARANTINED"
    """Not found until a signed review lifts it."""


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact to put: one assertion of 10 to 2,048 tokens."""

    content: str
    source_id: str = ""
    """Where it comes from. With a `chunk_id` it is the chunk's."""
    source_location: str = ""
    """Page, paragraph, URL fragment."""
    importance_weight: float | None = None
    """0 to 1; None: by the type of the source."""
    ttl: str = ""
    """An ISO 8601 duration such as P90D, after which it is stale; empty: none."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    chunk_id: UUID | str | None = None
    """A chunk of the corpus that it was drawn from."""
    span: Span | None = None
    """With a `chunk_id`: where in the document's text."""
    embedding: Sequence[float] = ()
    """Empty: the server embeds. Else give the call the `embedding_model`."""
    id: UUID | str | None = None
    """An id of your own; None: the server makes one."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A single assertion of a corpus."""

    id: UUID
    corpus_id: UUID
    content: str
    content_hash: str
    """SHA-256 of its UTF-8 bytes, in hex."""
    status: FactStatus
    status_reason: str
    """Of the last change of its status."""
    source_id: str
    source_location: str
    importance_weight: float
    """0 to 1."""
    community_id: UUID | None
    """None: in none."""
    community_label: str
    ingested_at: datetime
    modified_at: datetime
    access_count: int
    last_accessed_at: datetime | None
    """None: never."""
    ttl: str
    """ISO 8601 duration; empty: none."""
    metadata: Mapping[str, str]
    chunk_id: UUID | None
    """The chunk it was drawn from; None if it was put without one."""
    document_id: UUID | None
    span: Span | None
    """Of the document's text."""
    lead_spans: tuple[Span, ...]
    """Of what introduces it there, the outermost first: its content begins with that."""
    tokens: int
    archived: bool
    """Readable by id, and found by no search."""
    session_only: bool
    """Kept in the caller's session (no-store), not in the corpus."""
    created_by: str
    version: int
    """1 when made, one more with each change."""
    embedding_model: str
    embedding: tuple[float, ...]
    """Empty unless it was asked for."""
    revision: int = field(compare=False)
    """Of the corpus, that was read."""


@dataclass(frozen=True, slots=True)
class FactFilter:
    """Which facts: what is left out allows everything. Values of one field are alternatives, fields add up."""

    source_ids: Collection[str] = ()
    statuses: Collection[FactStatus] = ()
    """Without any, a search finds active and stale ones, and a listing all."""
    community_ids: Collection[UUID | str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    """All of these keys have these values."""
    ingested_after: datetime | None = None
    ingested_before: datetime | None = None
    document_ids: Collection[UUID | str] = ()
    chunk_ids: Collection[UUID | str] = ()


@dataclass(frozen=True, slots=True)
class PutFactsResult:
    """What a call that put facts did."""

    fact_ids: tuple[UUID, ...]
    """In the order in which the facts were given."""
    revision: int
    """The head of the corpus after it."""


@dataclass(frozen=True, slots=True)
class FactPage(Page[Fact]):
    """Some of the facts of a corpus."""

    revision: int
    """Of the corpus, that was read."""


@dataclass(frozen=True, slots=True)
class UpdatedFact:
    """What an update of a fact did."""

    version: int
    """Of the fact."""
    revision: int
    """The head of the corpus after it, also when nothing changed."""


@dataclass(frozen=True, slots=True)
class ChangedFacts:
    """What a call that gave facts another status, archived or restored them did."""

    changed: int
    """How many were not as asked for already."""
    revision: int
    """The head of the corpus after it, also when nothing changed."""


@dataclass(frozen=True, slots=True)
class FactHit:
    """A fact that a search found."""

    fact: Fact
    score: float
    """Cosine of the text or vector and the fact's."""
    stale: bool
    """By its status, or because it is older than the max-age that was asked for."""


@dataclass(frozen=True, slots=True)
class FactSearch:
    """What a search found, the best first."""

    hits: tuple[FactHit, ...]
    revisions: Mapping[UUID, int]
    """The revision that was read of each corpus, also of those where nothing was found."""
    exact: bool
    """Whether every vector was compared."""
    headers: Mapping[str, str]
    """Of the Context Relay Protocol, ready to be sent on."""


@dataclass(frozen=True, slots=True)
class CorpusState:
    """What the knowledge of a corpus is, in short: equal states give equal answers."""

    corpus_id: UUID
    revision: int
    """Advances with whatever could change an answer, and not with an access."""
    hash: str
    """SHA-256 in hex over its active facts; empty if only revisions were asked for."""
    facts: int
    """Active ones."""
    shared: bool
    """It belongs to another tenant, and can be read here."""


@dataclass(frozen=True, slots=True)
class State:
    """The states of some corpora, and of them together."""

    corpora: tuple[CorpusState, ...]
    combined_hash: str
    """SHA-256 in hex over all of them; empty if only revisions were asked for."""
