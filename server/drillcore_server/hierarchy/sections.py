"""A corpus's sections in memory: an outline of each, and the vector index that searches use."""

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
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, NodeId, node_id
from drillcore_server.vectors.corpus_follower import Follower
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_index import VectorIndex
from drillcore_server.vectors.vector_log import Row

Rows = npt.NDArray[np.float32]

PASSAGES_MAX: Final = 2
"""How many passages of a section the master can choose from."""
WORDS_MAX: Final = 8
"""How many keywords, and how many entities, of a section count for the master. More would only take longer."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The part of a section that new documents and the master are planned with."""

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
    """The outlines of all sections of one revision. It never changes: `changed` returns a new object."""

    by_id: Mapping[NodeId, Outline]
    ids: tuple[NodeId, ...]
    """Sorted."""
    rows: Rows
    """The direction of each section, of length 1, in the order of `ids`."""

    @classmethod
    def of(cls, outlines: Iterable[Outline]) -> Outlines:
        by_id = {outline.id: outline for outline in outlines}
        ids = tuple(sorted(by_id))
        return cls(by_id, ids, directions([sum_of_bytes(by_id[section].vector_sum) for section in ids]))

    def changed(self, changes: Mapping[NodeId, Outline | None]) -> Outlines:
        """The outlines with these sections replaced. None removes a section."""
        by_id = {section: outline for section, outline in self.by_id.items() if section not in changes}
        by_id |= {section: outline for section, outline in changes.items() if outline is not None}
        kept = [place for place, section in enumerate(self.ids) if section not in changes]
        fresh = sorted(changes.keys() & by_id.keys())
        ids = [self.ids[place] for place in kept] + fresh
        rows = directions([sum_of_bytes(by_id[section].vector_sum) for section in fresh])
        stacked = np.concatenate([self.rows[kept], rows]) if kept and fresh else self.rows[kept] if kept else rows
        order = sorted(range(len(ids)), key=ids.__getitem__)
        return Outlines(by_id, tuple(ids[place] for place in order), stacked[order] if order else rows)


def sum_of_bytes(stored: bytes) -> Rows:
    """Decodes a section's stored sum of vectors: little-endian 32-bit floats."""
    return np.frombuffer(stored, dtype="<f4")


def directions(sums: list[Rows]) -> Rows:
    """Scales each sum to a row of length 1. Zeros stay zeros."""
    if not sums:
        return np.empty((0, 0), np.float32)
    stacked = np.stack(sums)
    return np.asarray(stacked / np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), 1e-12), dtype=np.float32)


_INDEXES_MAX: Final = 64


class SectionCache(Follower[Outlines]):
    """Keeps the outlines of corpora in memory and follows their revisions."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, _load, _follow)


def _load(snapshot: BatchedReads) -> Outlines:
    """Reads section by section. A scan of the records would also read all earlier versions of the sections."""
    ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
    return Outlines.of(snapshot.each_unless_erased(ids, _outline, CorpusKeys.section))


def _follow(kept: Outlines, since: Sequence[RevisionRecord], snapshot: BatchedReads) -> Outlines:
    changed = sorted({section for record in since for section in record.sections})
    return kept.changed(dict(zip(changed, snapshot.find(changed, _outline, CorpusKeys.section), strict=True)))


def _outline(view: CorpusAtRevision, section: NodeId) -> Outline | None:
    found = HierarchyReader(view).section(section)
    return None if found is None else Outline.of(found)


class SectionIndexes:
    """The vector indexes of sections, by the direction of the sum of their vectors.

    An index is made from the outlines, then only sections that changed are replaced. A corpus has few sections, so
    these indexes need neither snapshots on disk nor a maintenance thread.
    """

    def __init__(self, outlines: SectionCache, settings: VectorSettings | None = None) -> None:
        self._outlines = outlines
        self._settings = settings or VectorSettings()
        self._lock = threading.Lock()
        self._kept: OrderedDict[CorpusNumber, tuple[Outlines, int, VectorIndex[NodeId]]] = OrderedDict()
        """For each corpus: the outlines, the epoch of erasures when they were read, and the index made from them."""

    def forget(self, corpora: Collection[CorpusNumber]) -> None:
        """Drops the outlines and indexes of corpora from which something was erased."""
        self._outlines.forget(corpora)
        with self._lock:
            for number in corpora:
                self._kept.pop(number, None)

    def at(self, view: CorpusAtRevision) -> VectorIndex[NodeId]:
        number = view.corpus.number
        epoch = view.sealed.epoch(number)  # read before the outlines, so that an erasure in between is noticed
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
        """The chunks of a section's heaviest passages, from which its summary is made."""
        outline = self._outlines.at(view).by_id.get(section)
        return [] if outline is None else [citation.chunk for citation in outline.candidates]

    def _keep(self, number: CorpusNumber, outlines: Outlines, epoch: int, index: VectorIndex[NodeId]) -> None:
        with self._lock:
            self._kept[number] = outlines, epoch, index
            self._kept.move_to_end(number)
            while len(self._kept) > _INDEXES_MAX:
                self._kept.popitem(last=False)


def _moved(before: Outlines, now: Outlines) -> dict[NodeId, Row | None]:
    """The new and changed sections with their directions. Removed sections have None."""
    moved: dict[NodeId, Row | None] = dict.fromkeys(before.by_id.keys() - now.by_id.keys())
    for section, row in zip(now.ids, now.rows, strict=True):
        known = before.by_id.get(section)
        if known is None or known.vector_sum != now.by_id[section].vector_sum:
            moved[section] = row
    return moved
