"""The interface of processors. Two modules implement it: `extractive` (built in) and `openai_processor` (over HTTP)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drillcore_server.hierarchy.digests import ChunkDigest, Entity, GroupDigest, Passage


@dataclass(frozen=True, slots=True)
class TokenRange:
    """The length of a summary. It never exceeds `at_most`. It is below `at_least` if there is less to say."""

    at_least: int
    at_most: int

    def __post_init__(self) -> None:
        if not 0 <= self.at_least <= self.at_most:
            raise ValueError(
                f"a range of tokens needs 0 <= at_least <= at_most, but it is {self.at_least} to {self.at_most}"
            )


SECTION_TOKENS = TokenRange(1000, 5000)
MASTER_TOKENS = TokenRange(500, 2000)


@dataclass(frozen=True, slots=True)
class ChunkInput:
    text: str
    """The chunk's original characters."""
    span_start: int
    """The place in the document where the text begins."""
    document: str
    """The id of the document."""
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """A chunk as a section sees it."""

    candidates: tuple[Passage, ...]
    keywords: tuple[str, ...]
    entities: tuple[Entity, ...]

    @classmethod
    def of(cls, digest: ChunkDigest) -> Member:
        return cls(digest.candidates, digest.keywords, digest.entities)


@dataclass(frozen=True, slots=True)
class SectionMember:
    """A section as the master sees it."""

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
        """The version changes whenever the same input may give another output."""
        ...

    def process_chunks(self, chunks: Sequence[ChunkInput]) -> list[ChunkDigest]:
        """Returns one digest for each chunk, in order."""
        ...

    def summarise_section(self, title: str, members: Sequence[Member], tokens: TokenRange) -> GroupDigest: ...

    def summarise_corpus(self, sections: Sequence[SectionMember], tokens: TokenRange) -> GroupDigest: ...
