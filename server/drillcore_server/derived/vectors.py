"""The embeddings of a corpus in memory. Search is exact: every vector is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from drillcore_server.derived.follower import Follower
from drillcore_server.domain.ids import NodeId, Revision
from drillcore_server.store import revisions
from drillcore_server.store.hierarchy import CorpusView, node_id

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ChunkVectors:
    """Ids in order, and a row of length 1 for each."""

    ids: tuple[NodeId, ...]
    rows: Rows


class VectorCache(Follower[ChunkVectors]):
    def __init__(self) -> None:
        super().__init__(lambda view: _stacked(_all_of(view)), _follow)


def unpacked(stored: bytes) -> npt.NDArray[np.float32]:
    return np.frombuffer(stored, dtype="<f2").astype(np.float32)


def _all_of(view: CorpusView) -> dict[NodeId, npt.NDArray[np.float32]]:
    entries = view.sealed.scan(view.tr, *view.keys.vectors(), view.revision)
    return {node_id(entry.key[-16:]): unpacked(entry.value) for entry in entries}


def _follow(kept: ChunkVectors, revision: Revision, view: CorpusView) -> ChunkVectors:
    added: dict[NodeId, npt.NDArray[np.float32]] = {}
    removed: set[NodeId] = set()
    for record in revisions.between(view.tr, view.keys, revision, view.revision):
        before = CorpusView(view.tr, view.keys, view.sealed, Revision(record.revision - 1))
        for one in record.documents_removed:
            document = before.document(one)
            for chunk in document.chunks if document else ():
                removed.add(chunk)
                added.pop(chunk, None)
        after = CorpusView(view.tr, view.keys, view.sealed, record.revision)
        for one in record.documents_added:
            document = after.document(one)
            for chunk in document.chunks if document else ():
                stored = after.vector(chunk)
                if stored is not None:
                    added[chunk] = unpacked(stored)
    return _joined(_without(kept, removed), _stacked(added))


def _without(kept: ChunkVectors, removed: set[NodeId]) -> ChunkVectors:
    if not removed:
        return kept
    places = [place for place, one in enumerate(kept.ids) if one not in removed]
    return ChunkVectors(tuple(kept.ids[place] for place in places), kept.rows[places])


def _joined(kept: ChunkVectors, fresh: ChunkVectors) -> ChunkVectors:
    """Both, in the order of their ids. New ids are greater than those before them, so mostly nothing has to move."""
    if not fresh.ids or not kept.ids:
        return kept if kept.ids else fresh
    ids, rows = kept.ids + fresh.ids, np.concatenate([kept.rows, fresh.rows])
    if kept.ids[-1] > fresh.ids[0]:
        order = sorted(range(len(ids)), key=ids.__getitem__)
        ids, rows = tuple(ids[place] for place in order), rows[order]
    return ChunkVectors(ids, rows)


def _stacked(vectors: Mapping[NodeId, npt.NDArray[np.float32]]) -> ChunkVectors:
    ids = tuple(sorted(vectors))
    rows = np.stack([vectors[one] for one in ids]) if ids else np.empty((0, 0), np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True) if ids else np.ones((0, 1), np.float32)
    return ChunkVectors(ids, np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32))
