"""Chooses the section of a chunk: the section with the nearest topic, or a new section if none is near enough.

A document is split into groups of chunks below the same heading, so that text that its author kept together stays
together. Sections keep their chunks when documents are added. Only a section that has grown too large is split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drillcore_server.documents.ingestion.prepared_documents import PreparedChunk, PreparedDocument
from drillcore_server.hierarchy.sections import Outlines, directions, sum_of_bytes
from drillcore_server.storage.ids import NodeId
from drillcore_server.vectors.embedding.embedders import Vector, Vectors

COSINE_TO_JOIN: Final = 0.50
COSINE_TO_JOIN_MAX: Final = 0.80
"""The least cosine with the centroid of a section for a single chunk to join it, and for the largest group."""
OWN_SECTION_CHUNKS_MIN: Final = 3
"""A group of this size does not join sections that its own document opened, because the author kept them apart."""
SECTION_CHUNKS_MAX: Final = 128
"""A larger section is split. Its summary would leave out too much, and to rewrite it would take too long."""
_SPLIT_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True)
class Group:
    """Chunks of one document below one heading."""

    title: str
    chunks: tuple[PreparedChunk, ...]
    vector_sum: Vector

    @property
    def is_small(self) -> bool:
        return len(self.chunks) < OWN_SECTION_CHUNKS_MIN


def cosine_to_join(chunks: int) -> float:
    """Returns the least cosine for a group of this size to join a section.

    It grows with the size, because the mean of many chunks is near to more sections.
    """
    return min(COSINE_TO_JOIN_MAX, COSINE_TO_JOIN + 0.1 * math.log2(chunks))


def groups_of(prepared: PreparedDocument) -> list[Group]:
    """Returns the document's groups of chunks, each at most half as large as a section may be.

    Chunks are grouped by the first heading that is not above all of them, as a title is.
    """
    largest = SECTION_CHUNKS_MAX // 2
    headings = [chunk.chunk.headings for chunk in prepared.chunks if chunk.chunk.headings]
    shared = [level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*headings, strict=False))]
    groups = []
    for heading, members in groupby(prepared.chunks, key=lambda chunk: _heading(chunk, len(shared))):
        chunks = list(members)
        title = heading or (shared[-1] if shared else prepared.document.title)
        groups += [_group(title, chunks[start : start + largest]) for start in range(0, len(chunks), largest)]
    return groups


def _heading(prepared: PreparedChunk, level: int) -> str:
    return prepared.chunk.headings[level] if len(prepared.chunk.headings) > level else ""


def _group(title: str, chunks: Sequence[PreparedChunk]) -> Group:
    return Group(title, tuple(chunks), sum_of([chunk.vector for chunk in chunks]))


def sum_of(vectors: Sequence[Vector]) -> Vector:
    return np.asarray(np.stack(vectors).sum(axis=0, dtype=np.float64), dtype=np.float32)


class Topics:
    """Finds the nearest section by the centroids of a corpus's sections."""

    def __init__(self, outlines: Outlines) -> None:
        self._outlines = outlines
        self._ids = list(outlines.ids)
        self._places = {section: place for place, section in enumerate(self._ids)}
        self._sums: dict[NodeId, Vector] = {}
        self._rows: Vectors = outlines.rows
        """Shared with the outlines until a section changes. The copy then grows by many rows at a time."""

    def __len__(self) -> int:
        return len(self._ids)

    def nearest(self, vector_sum: Vector, among: int | None = None) -> tuple[NodeId, float] | None:
        """Returns the section with the greatest cosine, and the cosine. Of equal sections the first is returned.

        With `among`, only that many sections, the first ones, are searched.
        """
        count = len(self) if among is None else among
        if not count:
            return None
        scores = np.round(self._rows[:count] @ _direction(vector_sum), 6)
        best = int(np.argmax(scores))
        return self._ids[best], float(scores[best])

    def add(self, section: NodeId, vector_sum: Vector) -> None:
        """Adds chunks with this sum of vectors to the section, which may be new."""
        if section not in self._places:
            self._places[section] = len(self._ids)
            self._ids.append(section)
            self._sums[section] = vector_sum
        else:
            self._sums[section] = self._sum(section) + vector_sum
        if self._rows is self._outlines.rows or len(self._rows) < len(self._ids):
            self._make_room(len(vector_sum))
        self._rows[self._places[section]] = _direction(self._sums[section])

    def _sum(self, section: NodeId) -> Vector:
        known = self._sums.get(section)
        return sum_of_bytes(self._outlines.by_id[section].vector_sum) if known is None else known

    def _make_room(self, dimensions: int) -> None:
        roomy = np.zeros((max(64, 2 * len(self._ids)), dimensions), np.float32)
        if len(self._rows):
            roomy[: len(self._rows)] = self._rows
        self._rows = roomy


def _direction(vector: Vector) -> Vector:
    return np.asarray(directions([vector])[0])


def partitions(vectors: npt.NDArray[np.number[Any]], largest: int) -> list[npt.NDArray[np.intp]]:
    """Splits vectors, of any length, by topic into parts of at most `largest`. Returns the indexes of each part.

    The same vectors give the same parts.
    """
    todo, parts = [np.arange(len(vectors))], []
    while todo:
        places = todo.pop()
        if len(places) <= largest:
            parts.append(places)
        else:
            in_second = _halves(vectors if len(places) == len(vectors) else vectors[places])
            todo += [places[in_second], places[~in_second]]
    return parts


def _halves(vectors: npt.NDArray[np.number[Any]]) -> npt.NDArray[np.bool_]:
    """Splits the vectors in two halves and returns True for those in the second. Neither half is empty."""
    rows = vectors.astype(np.float32)
    rows /= np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), 1e-12)[:, np.newaxis]
    first = rows[int(np.argmin(rows @ rows.mean(axis=0)))]
    second = rows[int(np.argmin(rows @ first))]
    in_second = np.zeros(len(rows), dtype=np.bool_)
    for _ in range(_SPLIT_ROUNDS):
        closer = rows @ second > rows @ first
        if closer.all() or not closer.any() or (closer == in_second).all():
            break
        in_second = closer
        first, second = rows[~in_second].mean(axis=0), rows[in_second].mean(axis=0)
    return in_second if in_second.any() else np.arange(len(rows)) >= len(rows) // 2
