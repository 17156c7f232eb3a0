"""The outlines of a corpus's sections in memory, and the index that sections are searched through."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from drillcore_fdb.engine import Engine
from drillcore_server.derived.follower import Follower
from drillcore_server.derived.settings import VectorSettings
from drillcore_server.derived.vector_index import VectorIndex
from drillcore_server.derived.vector_log import Row
from drillcore_server.domain.ids import CorpusNumber, NodeId
from drillcore_server.domain.outlines import Outline, Outlines
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.store.hierarchy import CorpusView, node_id
from drillcore_server.store.snapshot import Snapshot

_INDEXES_MAX: Final = 64


class SectionCache(Follower[Outlines]):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, _load, _follow)


def _load(snapshot: Snapshot) -> Outlines:
    """Section by section: a scan would read all that they have ever been."""
    ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
    return Outlines.of(snapshot.each_left(ids, _outline))


def _follow(kept: Outlines, since: Sequence[RevisionRecord], snapshot: Snapshot) -> Outlines:
    changed = sorted({section for record in since for section in record.sections})
    return kept.changed(dict(zip(changed, snapshot.find(changed, _outline), strict=True)))


def _outline(view: CorpusView, section: NodeId) -> Outline | None:
    found = view.section(section)
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

    def at(self, number: CorpusNumber, view: CorpusView) -> VectorIndex[NodeId]:
        epoch = view.sealed.epoch(number)  # before what it is the epoch of: an erasure meanwhile is then found
        outlines = self._outlines.at(number, view)
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

    def passages(self, number: CorpusNumber, view: CorpusView, section: NodeId) -> list[NodeId]:
        """The chunks of a section's heaviest passages, which its summary is made of."""
        outline = self._outlines.at(number, view).by_id.get(section)
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
