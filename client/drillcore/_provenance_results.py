"""What an explanation says."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from drillcore._node_results import Span


@dataclass(frozen=True, slots=True)
class Explained:
    """One step on the way to the original documents."""

    iri: str
    """By which quads name it."""
    kind: str
    """source, document, raw, chunk, section, master, fact or envelope."""
    id: str
    """A UUID; a source's own id."""
    title: str
    derived_from: tuple[str, ...]
    """The IRIs of what it was made from."""
    document_id: UUID | None
    span: Span | None
    """Of the document's text."""
    text: str
    """The original characters of the span; of facts and raws."""
    gone: bool
    """It is named, but is not there at this revision, or was erased."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where something comes from."""

    steps: tuple[Explained, ...]
    """The thing itself first; each further one is named before by another's `derived_from`."""
    revision: int
    corpus_id: UUID | None
    truncated: bool
    """There is more than 1,000 steps tell."""
