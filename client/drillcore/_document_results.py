"""Documents as they are sent, and what calls about them return."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol
from uuid import UUID


class BinaryFile(Protocol):
    """What is read piece by piece: an open file, or anything that reads like one."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to add.

    A file that is given open is read from where it stands, and not closed. A path is opened when its turn comes.
    """

    name: str
    """A hint to its format, and its source unless `source_id` says otherwise."""
    content: bytes | Path | BinaryFile
    media_type: str = ""
    """A hint to its format; the content decides."""
    source_id: str = ""
    """Where it comes from. The same source with other content is an update, with the same content nothing new."""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Text would be ambiguous: the content itself, or the name of a file.
        if not isinstance(self.content, bytes | Path) and not hasattr(self.content, "read"):
            raise TypeError(f"content must be bytes, a Path or a binary file, not {type(self.content).__name__}")


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a corpus."""

    id: UUID
    corpus_id: UUID
    source_id: str
    source_version: int
    """1 for the first content of its source, one more with each change."""
    title: str
    media_type: str
    content_hash: str
    """SHA-256 of the text, in hex."""
    preprocessing: tuple[str, ...]
    """What was done to get from the bytes to the text, in order."""
    metadata: Mapping[str, str]
    chunks: int
    raws: int
    characters: int
    tokens: int
    created_at: datetime
    created_by: str
    text: str | None
    """The original characters; None unless they were asked for."""
    revision: int = field(compare=False)
    """Of the corpus, that was read."""


class OutcomeKind(enum.Enum):
    """What became of a document that was sent."""

    ADDED = "added"
    UPDATED = "updated"
    """Its source had other content before."""
    UNCHANGED = "unchanged"
    """Its source has this content already: nothing was done."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    """What became of one document."""

    name: str
    kind: OutcomeKind
    document_id: UUID | None
    """None if it failed."""
    reason: str
    """Machine-readable, if it failed; else empty."""
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the server is with a call that is under way. Nothing of it can be read yet."""

    documents_prepared: int
    characters_prepared: int


AddEvent = DocumentOutcome | Progress
OnEvent = Callable[[AddEvent], object]


@dataclass(frozen=True, slots=True)
class AddResult:
    """What a call that added documents did."""

    revision: int
    """The head of the corpus after it, also when nothing changed."""
    added: int
    updated: int
    unchanged: int
    failed: int
    sections_changed: int
    outcomes: tuple[DocumentOutcome, ...]
    """Of every document, in the order in which they were settled."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What a call that gave a document new content did."""

    revision: int
    """The head of the corpus after it, also when nothing changed."""
    kind: OutcomeKind
    """UPDATED, or UNCHANGED if the document has this content and metadata already."""
    document_id: UUID
    """Of the document as it is now: new content has a new id."""
    source_version: int
    sections_changed: int


@dataclass(frozen=True, slots=True)
class RemoveResult:
    """What a call that removed documents did."""

    revision: int
    removed: int
