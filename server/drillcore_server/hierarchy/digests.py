"""What processors make of text: entities, quotes, summaries that say where they come from, findings."""

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
    """A sentence or clause as it stands in a document, with the weight a processor gave it."""

    text: str
    """The original characters of `span`."""
    document: str
    """The document's id."""
    span: Span
    weight: float
    """0 to 1; comparable between chunks and documents."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What the passages say; `passages` are its citations, in reading order.

    An extractive processor's text is its passages, one a line. A model writes a text of its own and cites them.
    """

    text: str
    passages: tuple[Passage, ...]
    tokens: int


class FindingKind(enum.StrEnum):
    """What a finding says, those that bind somebody first."""

    OBLIGATION = "obligation"
    PROHIBITION = "prohibition"
    DEADLINE = "deadline"
    THRESHOLD = "threshold"
    DEFINITION = "definition"
    STATEMENT = "statement"
    """Worth knowing, and none of the above."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: FindingKind
    passage: Passage


@dataclass(frozen=True, slots=True)
class MadeBy:
    """Which processor made a digest: for the processing record."""

    processor: str
    version: str
    fallback_reason: str | None = None
    """Why another processor, which was asked first, did not make it. Holds no content."""


@dataclass(frozen=True, slots=True)
class ChunkDigest:
    summary: Summary
    quotes: tuple[Passage, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    candidates: tuple[Passage, ...]
    """The best passages, heaviest first: what summaries of higher levels are chosen from."""
    made_by: MadeBy


@dataclass(frozen=True, slots=True)
class GroupDigest:
    """Of a section or of a whole corpus."""

    summary: Summary
    findings: tuple[Finding, ...]
    entities: tuple[Entity, ...]
    """Those most of the members name, the most frequent first."""
    keywords: tuple[str, ...]
    candidates: tuple[Passage, ...]
    """The best passages, heaviest first: what the level above is chosen from."""
    made_by: MadeBy
