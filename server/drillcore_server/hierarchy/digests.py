"""What processors extract from text: entities, quotes, findings, and summaries with citations."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from drillcore_server.storage.ids import Span


@dataclass(frozen=True, slots=True, order=True)
class Entity:
    """Something named in the text. `value` is the normal form, the same however it was written."""

    type: str
    """One of date, amount, organisation, person, regulation, email, url, place."""
    value: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence or clause of a document, word for word, with the weight that a processor gave it."""

    text: str
    """The original characters of `span`."""
    document: str
    """The document's id."""
    span: Span
    weight: float
    """0 to 1. Weights of different chunks and documents can be compared."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary and the passages that it cites, in reading order.

    An extractive processor's text consists of its passages, one per line. A model writes its own text and cites them.
    """

    text: str
    passages: tuple[Passage, ...]
    tokens: int


class FindingKind(enum.StrEnum):
    """The kind of a finding. Kinds that bind somebody come first."""

    OBLIGATION = "obligation"
    PROHIBITION = "prohibition"
    DEADLINE = "deadline"
    THRESHOLD = "threshold"
    DEFINITION = "definition"
    STATEMENT = "statement"
    """Important, but none of the kinds above."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: FindingKind
    passage: Passage


@dataclass(frozen=True, slots=True)
class MadeBy:
    """Which processor made a digest. Shown to callers as the node's processing."""

    processor: str
    version: str
    fallback_reason: str | None = None
    """Why the processor that was asked first did not make the digest. Contains no content."""


@dataclass(frozen=True, slots=True)
class ChunkDigest:
    summary: Summary
    quotes: tuple[Passage, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    candidates: tuple[Passage, ...]
    """The best passages, heaviest first. Summaries of higher levels choose from them."""
    made_by: MadeBy


@dataclass(frozen=True, slots=True)
class GroupDigest:
    """The digest of a section or of a whole corpus."""

    summary: Summary
    findings: tuple[Finding, ...]
    entities: tuple[Entity, ...]
    """The entities that most of the members name, the most frequent first."""
    keywords: tuple[str, ...]
    candidates: tuple[Passage, ...]
    """The best passages, heaviest first. The level above chooses from them."""
    made_by: MadeBy
