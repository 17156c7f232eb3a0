"""What the store asks of a processor. Two implementations: `extractive` (built in) and `openai` (over HTTP)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drillcore_server.domain.digests import ChunkDigest, Entity, GroupDigest, Passage


@dataclass(frozen=True, slots=True)
class TokenRange:
    """How long a summary should be. `at_most` is never exceeded; `at_least` is missed when there is less to say."""

    at_least: int
    at_most: int

    def __post_init__(self) -> None:
        if not 0 <= self.at_least <= self.at_most:
            raise ValueError(f"not a range of tokens: {self.at_least} to {self.at_most}")


SECTION_TOKENS = TokenRange(1000, 5000)
MASTER_TOKENS = TokenRange(500, 2000)


@dataclass(frozen=True, slots=True)
class ChunkInput:
    text: str
    """The chunk's original characters."""
    span_start: int
    """Where they begin in the document's text."""
    document: str
    """The document's id."""
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """What a section needs to know of one of its chunks."""

    candidates: tuple[Passage, ...]
    keywords: tuple[str, ...]
    entities: tuple[Entity, ...]

    @classmethod
    def of(cls, digest: ChunkDigest) -> Member:
        return cls(digest.candidates, digest.keywords, digest.entities)


@dataclass(frozen=True, slots=True)
class SectionMember:
    """What a master needs to know of one of its sections."""

    title: str
    candidates: tuple[Passage, ...]
    keywords: tuple[str, ...]
    entities: tuple[Entity, ...]

    @classmethod
    def of(cls, title: str, digest: GroupDigest) -> SectionMember:
        return cls(title, digest.candidates, digest.keywords, digest.entities)


class Processor(Protocol):
    """Makes digests of chunks, sections and corpora. Slow work: never call it inside a transaction.

    Spans in digests count in the document's text, and a passage's text is the original characters of its span.
    Implementations do not raise for any text, however odd.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str:
        """Changes whenever the same input may give another output."""
        ...

    def process_chunk(self, text: str, span_start: int, document: str, headings: tuple[str, ...]) -> ChunkDigest: ...

    def process_chunks(self, chunks: Sequence[ChunkInput]) -> list[ChunkDigest]:
        """The same as `process_chunk` of each, in order, but faster."""
        ...

    def summarise_section(self, title: str, members: Sequence[Member], tokens: TokenRange) -> GroupDigest: ...

    def summarise_corpus(self, sections: Sequence[SectionMember], tokens: TokenRange) -> GroupDigest: ...
