"""Chooses the section of a chunk: the one with the nearest topic, or a new one if none is near enough.

A document is split into groups of chunks below the same heading: what its author kept together stays together. Sections
keep their chunks when documents are added; only a section that has grown too large is split.
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

NEAR_ENOUGH: Final = 0.50
NEAR_ENOUGH_AT_MOST: Final = 0.80
"""The cosine with a section's centroid from which a single chunk joins it, and from which the largest group does."""
OWN_SECTION_CHUNKS_MIN: Final = 3
"""A group of this size does not join sections that its own document opened: the author kept them apart."""
SECTION_CHUNKS_MAX: Final = 128
"""A larger section is split: its summary would leave out too much, and rewriting it would take too long."""
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


def near_enough(chunks: int) -> float:
    """Returns the cosine from which a group of this size joins a section. A mean of many chunks is near to more
    sections."""
    return min(NEAR_ENOUGH_AT_MOST, NEAR_ENOUGH + 0.1 * math.log2(chunks))


def groups_of(prepared: PreparedDocument) -> list[Group]:
    """Returns the document's groups, none larger than half a section.

    Chunks are grouped by the first heading that tells them apart: one above all of them, such as a title, does not.
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
    """The centroids of a corpus's sections, searched for the nearest."""

    def __init__(self, outlines: Outlines) -> None:
        self._outlines = outlines
        self._ids = list(outlines.ids)
        self._places = {section: place for place, section in enumerate(self._ids)}
        self._sums: dict[NodeId, Vector] = {}
        self._rows: Vectors = outlines.rows
        """Shared with the outlines until one changes; it grows by many rows at a time."""

    def __len__(self) -> int:
        return len(self._ids)

    def nearest(self, vector_sum: Vector, among: int | None = None) -> tuple[NodeId, float] | None:
        """Returns the section with the greatest cosine, the first of equals, among the first `among` if
        that is given."""
        count = len(self) if among is None else among
        if not count:
            return None
        scores = np.round(self._rows[:count] @ _direction(vector_sum), 6)
        best = int(np.argmax(scores))
        return self._ids[best], float(scores[best])

    def add(self, section: NodeId, vector_sum: Vector) -> None:
        """Notes that chunks with this sum have joined or opened the section."""
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


def partitions(vectors: npt.NDArray[np.floating[Any]], largest: int) -> list[npt.NDArray[np.intp]]:
    """Returns places of vectors by topic, in parts of at most `largest`. The same vectors give the same parts."""
    todo, parts = [np.arange(len(vectors))], []
    while todo:
        places = todo.pop()
        if len(places) <= largest:
            parts.append(places)
        else:
            goes = _halves(vectors if len(places) == len(vectors) else vectors[places])
            todo += [places[goes], places[~goes]]
    return parts


def _halves(vectors: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
    """Splits in two and returns True for those that go. Both halves have members."""
    rows = vectors.astype(np.float32)
    rows /= np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), 1e-12)[:, np.newaxis]
    first = rows[int(np.argmin(rows @ rows.mean(axis=0)))]
    second = rows[int(np.argmin(rows @ first))]
    goes = np.zeros(len(rows), dtype=np.bool_)
    for _ in range(_SPLIT_ROUNDS):
        closer = rows @ second > rows @ first
        if closer.all() or not closer.any() or (closer == goes).all():
            break
        goes = closer
        first, second = rows[~goes].mean(axis=0), rows[goes].mean(axis=0)
    return goes if goes.any() else np.arange(len(rows)) >= len(rows) // 2
