"""What is kept in memory of a corpus's sections: where each lies among the topics, and what it tells the master."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_server.domain.digests import Entity
from drillcore_server.domain.ids import NodeId
from drillcore_server.domain.nodes import Citation, Section

Rows = npt.NDArray[np.float32]

PASSAGES_MAX: Final = 2
"""Passages that a section offers its master."""
WORDS_MAX: Final = 8
"""Keywords and entities that it has a say with: more would only make the master slower to make."""


@dataclass(frozen=True, slots=True)
class Outline:
    id: NodeId
    title: str
    candidates: tuple[Citation, ...]
    keywords: tuple[str, ...]
    entities: tuple[Entity, ...]
    vector_sum: bytes

    @classmethod
    def of(cls, section: Section) -> Outline:
        return cls(
            section.id,
            section.title,
            section.candidates[:PASSAGES_MAX],
            section.keywords[:WORDS_MAX],
            section.entities[:WORDS_MAX],
            section.vector_sum,
        )


@dataclass(frozen=True, slots=True)
class Outlines:
    """All sections of one revision. Never changed: `changed` makes another."""

    by_id: Mapping[NodeId, Outline]
    ids: tuple[NodeId, ...]
    """In order."""
    rows: Rows
    """The direction of each, of length 1, in the same order."""

    @classmethod
    def of(cls, outlines: Iterable[Outline]) -> Outlines:
        by_id = {one.id: one for one in outlines}
        ids = tuple(sorted(by_id))
        return cls(by_id, ids, directions([sum_of_bytes(by_id[one].vector_sum) for one in ids]))

    def changed(self, changes: Mapping[NodeId, Outline | None]) -> Outlines:
        """With these sections as they are now; None for one that is gone."""
        by_id = {one: outline for one, outline in self.by_id.items() if one not in changes}
        by_id |= {one: outline for one, outline in changes.items() if outline is not None}
        kept = [place for place, one in enumerate(self.ids) if one not in changes]
        fresh = sorted(changes.keys() & by_id.keys())
        ids = [self.ids[place] for place in kept] + fresh
        rows = directions([sum_of_bytes(by_id[one].vector_sum) for one in fresh])
        stacked = np.concatenate([self.rows[kept], rows]) if kept and fresh else self.rows[kept] if kept else rows
        order = sorted(range(len(ids)), key=ids.__getitem__)
        return Outlines(by_id, tuple(ids[place] for place in order), stacked[order] if order else rows)


def sum_of_bytes(stored: bytes) -> Rows:
    """A section's sum of vectors, as it is kept: little-endian 32-bit floats."""
    return np.frombuffer(stored, dtype="<f4")


def directions(sums: list[Rows]) -> Rows:
    """A row of length 1 for each; zeros stay zeros."""
    if not sums:
        return np.empty((0, 0), np.float32)
    stacked = np.stack(sums)
    return np.asarray(stacked / np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), 1e-12), dtype=np.float32)
