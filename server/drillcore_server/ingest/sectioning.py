"""Which section a chunk belongs to: the one whose topic is nearest, or a new one if none is near enough.

A document is taken in groups of chunks below the same heading: what its author kept together stays together.
Sections keep their chunks when documents are added; only one that has grown too large is split in two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_server.domain.ids import NodeId
from drillcore_server.ingest.embedding.ports import Vector, Vectors
from drillcore_server.ingest.prepare import PreparedChunk, PreparedDocument

NEAR_ENOUGH: Final = 0.60
"""Cosine with a section's centroid from which a group joins it. Below, it opens a section of its own."""
SECTION_CHUNKS_MAX: Final = 200
"""A larger section is split: its summary would leave out too much, and rewriting it would take too long."""
_SPLIT_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True)
class Group:
    """Chunks of one document below one heading."""

    title: str
    chunks: tuple[PreparedChunk, ...]
    vector_sum: Vector


def groups_of(prepared: PreparedDocument) -> list[Group]:
    """The document's groups, none larger than half a section.

    Chunks are grouped by the first heading that tells them apart: one that stands above all of them, as a title does,
    says nothing of what belongs together.
    """
    largest = SECTION_CHUNKS_MAX // 2
    headings = [one.chunk.headings for one in prepared.chunks if one.chunk.headings]
    shared = [level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*headings, strict=False))]
    groups = []
    for heading, members in groupby(prepared.chunks, key=lambda one: _heading(one, len(shared))):
        chunks = list(members)
        title = heading or (shared[-1] if shared else prepared.document.title)
        groups += [_group(title, chunks[start : start + largest]) for start in range(0, len(chunks), largest)]
    return groups


def _heading(one: PreparedChunk, level: int) -> str:
    return one.chunk.headings[level] if len(one.chunk.headings) > level else ""


def _group(title: str, chunks: Sequence[PreparedChunk]) -> Group:
    return Group(title, tuple(chunks), sum_of([one.vector for one in chunks]))


def sum_of(vectors: Sequence[Vector]) -> Vector:
    return np.asarray(np.stack(vectors).sum(axis=0, dtype=np.float64), dtype=np.float32)


class Topics:
    """The centroids of a corpus's sections, to be asked for the nearest."""

    def __init__(self, sums: Mapping[NodeId, bytes]) -> None:
        """`sums` as sections keep them: little-endian 32-bit floats."""
        self._ids = sorted(sums)
        self._places = {section: place for place, section in enumerate(self._ids)}
        stored = np.frombuffer(b"".join(sums[section] for section in self._ids), dtype="<f4")
        self._sums: Vectors = stored.reshape(len(self._ids), -1) if self._ids else np.empty((0, 0), np.float32)
        self._rows: Vectors = self._sums / np.maximum(np.linalg.norm(self._sums, axis=1, keepdims=True), 1e-12)

    def nearest(self, vector_sum: Vector) -> tuple[NodeId, float] | None:
        """The section with the greatest cosine, the one that was there first among equals."""
        if not self._ids:
            return None
        scores = np.round(self._rows @ _direction(vector_sum), 6)
        best = int(np.argmax(scores))
        return self._ids[best], float(scores[best])

    def add(self, section: NodeId, vector_sum: Vector) -> None:
        """Chunks with this sum have joined the section, or opened it."""
        if section not in self._places:
            self._places[section] = len(self._ids)
            self._ids.append(section)
            self._sums = np.concatenate([self._sums.reshape(-1, len(vector_sum)), vector_sum[np.newaxis]])
            self._rows = np.concatenate([self._rows.reshape(-1, len(vector_sum)), _direction(vector_sum)[np.newaxis]])
            return
        place = self._places[section]
        if not self._sums.flags.writeable:
            self._sums = self._sums.copy()
        self._sums[place] += vector_sum
        self._rows[place] = _direction(self._sums[place])


def _direction(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length, dtype=np.float32) if length else vector


def partitions(vectors: Vectors, largest: int) -> list[npt.NDArray[np.intp]]:
    """Places of vectors by topic, in parts of at most `largest`; always the same for the same vectors."""
    todo, parts = [np.arange(len(vectors))], []
    while todo:
        places = todo.pop()
        if len(places) <= largest:
            parts.append(places)
        else:
            goes = _halves(vectors[places])
            todo += [places[goes], places[~goes]]
    return parts


def _halves(vectors: Vectors) -> npt.NDArray[np.bool_]:
    """Splits in two: True for those that go. Both halves have members."""
    rows = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
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
