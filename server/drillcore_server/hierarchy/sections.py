"""What is kept in memory of a corpus's sections: where each lies among the topics, and what it tells the master.

The outlines of a corpus's sections in memory, and the index that sections are searched through.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Engine
from drillcore_server.hierarchy.digests import Entity
from drillcore_server.hierarchy.model import Citation, Section
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.storage.ids import CorpusNumber, NodeId, node_id
from drillcore_server.vectors.corpus_follower import Follower
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_index import VectorIndex
from drillcore_server.vectors.vector_log import Row

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


_INDEXES_MAX: Final = 64


class SectionCache(Follower[Outlines]):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, _load, _follow)


def _load(snapshot: BatchedReads) -> Outlines:
    """Section by section: a scan would read all that they have ever been."""
    ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
    return Outlines.of(snapshot.each_left(ids, _outline))


def _follow(kept: Outlines, since: Sequence[RevisionRecord], snapshot: BatchedReads) -> Outlines:
    changed = sorted({section for record in since for section in record.sections})
    return kept.changed(dict(zip(changed, snapshot.find(changed, _outline), strict=True)))


def _outline(view: CorpusAtRevision, section: NodeId) -> Outline | None:
    found = HierarchyReader(view).section(section)
    return None if found is None else Outline.of(found)


class SectionIndexes:
    """Sections by the direction of their vectors' sum. Made from the outlines: that which changed since is exchanged.

    There are few of them, so they have no snapshots, and no thread tends them.
    """

    def __init__(self, outlines: SectionCache, settings: VectorSettings | None = None) -> None:
        self._outlines = outlines
        self._settings = settings or VectorSettings()
        self._lock = threading.Lock()
        self._kept: OrderedDict[CorpusNumber, tuple[Outlines, int, VectorIndex[NodeId]]] = OrderedDict()
        """With the epoch of erasures that each is of."""

    def forget(self, corpora: Collection[CorpusNumber]) -> None:
        """Lets go of what is kept of corpora from which something was erased."""
        self._outlines.forget(corpora)
        with self._lock:
            for number in corpora:
                self._kept.pop(number, None)

    def at(self, view: CorpusAtRevision) -> VectorIndex[NodeId]:
        number = view.corpus.number
        epoch = view.sealed.epoch(number)  # before what it is the epoch of: an erasure meanwhile is then found
        outlines = self._outlines.at(view)
        with self._lock:
            before, known, index = self._kept.get(number, (None, epoch, None))
        if before is outlines and index is not None:
            return index
        is_of_now = known == epoch and index is not None and index.dimensions == outlines.rows.shape[1]
        if before is None or index is None or not is_of_now:
            fresh = VectorIndex[NodeId].of(zip(outlines.ids, outlines.rows, strict=True), self._settings, np.float32)
        else:
            fresh = index.changed(_moved(before, outlines))
        self._keep(number, outlines, epoch, fresh)
        return fresh

    def passages(self, view: CorpusAtRevision, section: NodeId) -> list[NodeId]:
        """The chunks of a section's heaviest passages, which its summary is made of."""
        outline = self._outlines.at(view).by_id.get(section)
        return [] if outline is None else [one.chunk for one in outline.candidates]

    def _keep(self, number: CorpusNumber, outlines: Outlines, epoch: int, index: VectorIndex[NodeId]) -> None:
        with self._lock:
            self._kept[number] = outlines, epoch, index
            self._kept.move_to_end(number)
            while len(self._kept) > _INDEXES_MAX:
                self._kept.popitem(last=False)


def _moved(before: Outlines, now: Outlines) -> dict[NodeId, Row | None]:
    """The sections whose direction is another than before; None for those that are gone."""
    moved: dict[NodeId, Row | None] = dict.fromkeys(before.by_id.keys() - now.by_id.keys())
    for one, row in zip(now.ids, now.rows, strict=True):
        known = before.by_id.get(one)
        if known is None or known.vector_sum != now.by_id[one].vector_sum:
            moved[one] = row
    return moved
