"""The interface of a processor. There are two: `extractive` (built in) and `openai_processor` (over HTTP)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drillcore_server.hierarchy.digests import ChunkDigest, Entity, GroupDigest, Passage


@dataclass(frozen=True, slots=True)
class TokenRange:
    """The length of a summary. It never exceeds `at_most`; it misses `at_least` when there is less to say."""

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
    """Where the text begins in the document."""
    document: str
    """The id of the document."""
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """What a section needs to know about one of its chunks."""

    candidates: tuple[Passage, ...]
    keywords: tuple[str, ...]
    entities: tuple[Entity, ...]

    @classmethod
    def of(cls, digest: ChunkDigest) -> Member:
        return cls(digest.candidates, digest.keywords, digest.entities)


@dataclass(frozen=True, slots=True)
class SectionMember:
    """What a master needs to know about one of its sections."""

    title: str
    candidates: tuple[Passage, ...]
    keywords: tuple[str, ...]
    entities: tuple[Entity, ...]

    @classmethod
    def of(cls, title: str, digest: GroupDigest) -> SectionMember:
        return cls(title, digest.candidates, digest.keywords, digest.entities)


class Processor(Protocol):
    """Makes digests of chunks, sections and corpora. This is slow: never call it inside a transaction.

    Spans in digests count in the document's text. The text of a passage is the original characters of its span.
    Implementations raise no error for any text, however odd.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str:
        """Changes whenever the same input may give another output."""
        ...

    def process_chunks(self, chunks: Sequence[ChunkInput]) -> list[ChunkDigest]:
        """Returns one digest for each chunk, in order."""
        ...

    def summarise_section(self, title: str, members: Sequence[Member], tokens: TokenRange) -> GroupDigest: ...

    def summarise_corpus(self, sections: Sequence[SectionMember], tokens: TokenRange) -> GroupDigest: ...
