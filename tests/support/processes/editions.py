"""A corpus in editions, of any size. Every node of edition N names that edition, and a third of the ids change.

An edition is made part by part, so that its sender holds none of it in memory.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from uuid import NAMESPACE_URL, UUID, uuid5

import numpy as np
import numpy.typing as npt

from drillcore import (
    Citation,
    Entity,
    Finding,
    HierarchyDocument,
    NewChunk,
    NewDocument,
    NewMaster,
    NewRaw,
    NewSection,
    Processing,
    Span,
)

MODEL = "editions-8"
DIMENSIONS = 8
GROUPS = 25
"""The number of groups. Each chunk is of one group, which it has as an entity."""
RAWS = 3
"""The number of raws of each chunk."""
_POOL_CHARACTERS = 1_000_000
_EDITION = re.compile(r"edition (\d+)")
_MADE = Processing("editions", "1")


@dataclass(frozen=True)
class Size:
    documents: int
    sections: int
    chunks_per_document: int
    raw_characters: int

    @property
    def chunks(self) -> int:
        return self.documents * self.chunks_per_document

    @property
    def nodes(self) -> int:
        return 1 + self.sections + self.chunks * (1 + RAWS)

    @property
    def characters(self) -> int:
        return self.chunks * RAWS * self.raw_characters


def mentioned(said: object) -> list[int]:
    """The editions that something names, once for each mention."""
    return [int(number) for number in _EDITION.findall(repr(said))]


@cache
def _pool() -> str:
    """Words that do not compress well, from which texts are cut."""
    dice = random.Random(11)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 11))) for _ in range(8_000)]
    return " ".join(dice.choices(words, k=_POOL_CHARACTERS // 5))[:_POOL_CHARACTERS]


def text_of(opening: str, number: int, characters: int) -> str:
    """A text of this many characters, different for each number."""
    room = characters - len(opening) - 1
    start = number * 7_919 % (_POOL_CHARACTERS - room)
    return f"{opening} {_pool()[start : start + room]}"


@dataclass(frozen=True)
class Edition:
    """A hierarchy as a client puts it, and what can then be found in it."""

    number: int
    size: Size

    @property
    def name(self) -> str:
        return f"edition {self.number}"

    def id_of(self, kind: str, place: int) -> UUID:
        """A third of the ids belong to this edition only. The others stay and get new versions."""
        return uuid5(NAMESPACE_URL, f"{kind} {place} {self.number if place % 3 == 2 else ''}")

    @property
    def master(self) -> UUID:
        return self.id_of("master", 0)

    def sections(self) -> set[UUID]:
        return {self.id_of("section", place) for place in range(self.size.sections)}

    def group(self, group: int) -> set[UUID]:
        return {self.id_of("chunk", place) for place in range(group, self.size.chunks, GROUPS)}

    def members(self, section: int) -> set[UUID]:
        return {self.id_of("chunk", place) for place in range(section, self.size.chunks, self.size.sections)}

    def vectors(self) -> npt.NDArray[np.float32]:
        """The vectors of all chunks, of length 1."""
        rows = np.random.default_rng(self.number).normal(size=(self.size.chunks, DIMENSIONS))
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    def parts(self) -> Iterator[HierarchyDocument | NewMaster | NewSection | NewChunk | NewRaw]:
        for place in range(self.size.documents):
            source = f"source {place}"
            yield HierarchyDocument(self.id_of("document", place), source, f"{self.name} document {place}")
        found = [Finding("statement", self.name, self._citation(chunk)) for chunk in range(10)]
        yield NewMaster(self.master, f"{self.name} master", (), found, keywords=[self.name], processing=_MADE)
        for place in range(self.size.sections):
            yield self._section(place)
        for place, vector in enumerate(self.vectors()):
            yield from self._chunk(place, vector)

    def _section(self, place: int) -> NewSection:
        said = f"{self.name} section {place}"
        return NewSection(
            self.id_of("section", place),
            self.master,
            title=said,
            category=self.name,
            summary=said,
            citations=[self._citation(place)],
            entities=[Entity("edition", self.name)],
            keywords=[self.name],
            processing=_MADE,
        )

    def _chunk(self, place: int, vector: npt.NDArray[np.float32]) -> Iterator[NewChunk | NewRaw]:
        chunk, document = self.id_of("chunk", place), self._document_of(place)
        said = f"{self.name} chunk {place}"
        yield NewChunk(
            chunk,
            self.id_of("section", place % self.size.sections),
            document,
            headings=[said],
            summary=said,
            quotes=[self._citation(place)],
            entities=[Entity("edition", self.name), Entity("group", str(place % GROUPS))],
            keywords=[self.name],
            embedding=[float(component) for component in vector],
            processing=_MADE,
        )
        start = self._start_of(place)
        for raw in range(place * RAWS, (place + 1) * RAWS):
            text = text_of(f"{self.name} raw {raw}", raw + self.number, self.size.raw_characters)
            yield NewRaw(chunk, document, Span(start, start + len(text)), text, self.id_of("raw", raw))
            start += len(text)

    def _document_of(self, chunk: int) -> UUID:
        return self.id_of("document", chunk // self.size.chunks_per_document)

    def _start_of(self, chunk: int) -> int:
        return chunk % self.size.chunks_per_document * RAWS * self.size.raw_characters

    def _citation(self, chunk: int) -> Citation:
        start = self._start_of(chunk)
        span = Span(start, start + len(f"{self.name} raw {chunk * RAWS}"))
        return Citation(self._document_of(chunk), self.id_of("chunk", chunk), span, weight=0.5)


def documents(edition: int, count: int, characters: int) -> Iterator[NewDocument]:
    """Documents for the server to chunk. Every sentence names the edition, and so does all that is made of sentences.

    Headings do not name it: a section keeps its title when its documents change.
    """
    for place in range(count):
        sentences = (
            text_of(f"In edition {edition} rule", (place * characters + at) // 97 + edition, 120) + "."
            for at in itertools.count(0, 121)
        )
        paragraphs = [" ".join(itertools.islice(sentences, 6)) for _ in range(characters // 730 + 1)]
        text = "\n\n".join([f"# Rules {place}", *paragraphs])
        yield NewDocument(f"rules {place}.md", text.encode(), metadata={"edition": f"edition {edition}"})
