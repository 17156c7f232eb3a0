"""The embeddings of a corpus in memory. Search is exact: every vector is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Engine
from drillcore_server.derived.follower import Follower
from drillcore_server.domain.ids import DocumentId, NodeId, Revision
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.store.hierarchy import node_id
from drillcore_server.store.snapshot import Snapshot

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ChunkVectors:
    """Ids in order, and a row of length 1 for each."""

    ids: tuple[NodeId, ...]
    rows: Rows


class VectorCache(Follower[ChunkVectors]):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, _load, _follow)


def unpacked(stored: bytes) -> npt.NDArray[np.float32]:
    return np.frombuffer(stored, dtype="<f2").astype(np.float32)


def _load(snapshot: Snapshot) -> ChunkVectors:
    entries = map(snapshot.sealed.opened, snapshot.entries(snapshot.keys.vectors()))
    return _stacked({node_id(entry.key[-16:]): entry.value for entry in entries})


def _follow(kept: ChunkVectors, since: Sequence[RevisionRecord], snapshot: Snapshot) -> ChunkVectors:
    touched: set[NodeId] = set()
    added: dict[NodeId, bytes] = {}
    for record in since:
        gone = _chunks(snapshot.at(Revision(record.revision - 1)), record.documents_removed)
        for one in gone:
            added.pop(one, None)
        at = snapshot.at(record.revision)
        came = _chunks(at, record.documents_added)
        added |= zip(came, at.each(came, lambda view, one: view.vector(one)), strict=True)
        touched.update(gone, came)
    return _joined(_without(kept, touched), _stacked(added))


def _chunks(snapshot: Snapshot, documents: Sequence[DocumentId]) -> list[NodeId]:
    found = snapshot.each(documents, lambda view, one: view.document(one))
    return [chunk for document in found for chunk in document.chunks]


def _without(kept: ChunkVectors, removed: set[NodeId]) -> ChunkVectors:
    if removed.isdisjoint(kept.ids):
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


def _stacked(stored: Mapping[NodeId, bytes]) -> ChunkVectors:
    """Filled in row by row: there may be very many, and they are to be in memory once."""
    ids = tuple(sorted(stored))
    rows = np.empty((len(ids), len(unpacked(stored[ids[0]])) if ids else 0), np.float32)
    for row, one in zip(rows, ids, strict=True):
        row[:] = unpacked(stored[one])
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    rows /= np.maximum(lengths, 1e-12)[:, np.newaxis]
    return ChunkVectors(ids, rows)
