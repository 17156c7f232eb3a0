"""What calls about the hierarchy return: nodes of four levels, and what they hold."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from drillcore._results import Page
from drillcore._signature_results import Signature


class Level(enum.IntEnum):
    """How far a node is from the original text."""

    RAW = 0
    CHUNK = 1
    SECTION = 2
    MASTER = 3


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` up to, not including, `end` of a document's text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that a text names."""

    type: str
    """date, amount, organisation, person, regulation, email, url or place."""
    value: str = ""
    """In its normal form. In a filter, empty means any of the type."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage as it stands in a document."""

    document_id: UUID
    chunk_id: UUID | None
    span: Span
    text: str = ""
    """The original characters; empty where the place alone is of use."""
    weight: float = 0.0
    """0 to 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a corpus says that a reader should know."""

    kind: str
    """obligation, prohibition, deadline, threshold, definition or statement."""
    text: str
    citation: Citation


@dataclass(frozen=True, slots=True)
class Statistics:
    """How much a corpus holds."""

    documents: int
    sections: int
    chunks: int
    raws: int
    characters: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Processing:
    """Which processor made a summary and what goes with it."""

    processor: str
    version: str
    fallback_reason: str = ""
    """Why it was not the processor that should have been; empty if it was."""


@dataclass(frozen=True, slots=True)
class MasterContent:
    """A whole corpus in short."""

    summary: str
    citations: tuple[Citation, ...]
    findings: tuple[Finding, ...]
    keywords: tuple[str, ...]
    statistics: Statistics
    processing: Processing


@dataclass(frozen=True, slots=True)
class SectionContent:
    """Chunks on one topic in short."""

    title: str
    category: str
    summary: str
    citations: tuple[Citation, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    document_count: int
    chunk_count: int
    processing: Processing


@dataclass(frozen=True, slots=True)
class ChunkContent:
    """A part of a document in short."""

    document_id: UUID
    source_id: str
    span: Span
    headings: tuple[str, ...]
    """Those above it, the highest first."""
    page: int | None
    """Counted from 1, in formats that have pages."""
    summary: str
    quotes: tuple[Citation, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    tokens: int
    embedding_model: str
    embedding: tuple[float, ...]
    """Empty unless it was asked for."""
    processing: Processing


@dataclass(frozen=True, slots=True)
class RawContent:
    """Original text."""

    document_id: UUID
    span: Span
    content: str
    """The original characters."""
    preprocessing: tuple[str, ...]
    """What was done to get from the bytes to the text, in order."""


Content = MasterContent | SectionContent | ChunkContent | RawContent


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a corpus's hierarchy. Its level says which content it has."""

    id: UUID
    corpus_id: UUID
    level: Level
    parent_id: UUID | None
    """None for the master."""
    child_ids: tuple[UUID, ...]
    """Only from `get_node`, and at most 250: `drill_down` gives all."""
    child_count: int
    """Only from `get_node`."""
    created_at: datetime
    created_by: str
    version: int
    """Of the node: 1 when created, one more with each change."""
    content: Content
    revision: int = field(compare=False)
    """Of the corpus, that was read. As `as_of` it gives other reads of the same moment."""
    signatures: tuple[Signature, ...] = ()
    """Of this version, oldest first."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A node that a query found."""

    node: Node
    score: float | None
    """Cosine of text or vector and node; None if the query had neither."""


@dataclass(frozen=True, slots=True)
class QueryPage(Page[Hit]):
    """Some of the nodes that a query found."""

    revisions: Mapping[UUID, int]
    """The revision that was read of each corpus, also of those where nothing was found."""


@dataclass(frozen=True, slots=True)
class RollUp:
    """The ancestors of some nodes."""

    nodes: tuple[Node, ...]
    """Those at the target level, each once."""
    common: Node
    """The lowest node above all of them: the single ancestor, or the master."""
    revision: int


@dataclass(frozen=True, slots=True)
class Revision:
    """One change of a corpus, in which all levels moved together."""

    revision: int
    at: datetime
    by: str
    request_id: str
    action: str
    documents_added: int
    documents_removed: int
    section_ids: tuple[UUID, ...]
    """Of the sections that it changed."""
    trimmed: bool = False
    """It can no longer be read."""


@dataclass(frozen=True, slots=True)
class HistoryPage(Page[Revision]):
    """Some of the revisions of a corpus or a node."""

    oldest_revision: int
    """The oldest that can still be read; 0 if none was trimmed. Changes of a node before it are no longer listed."""
