"""The index that chunks are searched through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import revisions, trimming
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.storage.ids import DocumentId, NodeId, Revision, node_id
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.index_follower import Changes, IndexFollower
from drillcore_server.vectors.index_keeper import IndexKeeper
from drillcore_server.vectors.index_snapshots import IndexSnapshots
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.store import embeddings_of
from drillcore_server.vectors.vector_index import VectorIndex
from drillcore_server.vectors.vector_log import Row

ERASING: Final = "EraseSource"
"""The action that leaves nothing of what it removes."""
_REVISIONS_MAX: Final = 1_000
"""That are followed one by one."""


class VectorCache(IndexFollower[NodeId]):
    def __init__(
        self,
        engine: Engine,
        settings: VectorSettings | None = None,
        keeper: IndexKeeper | None = None,
        snapshots: IndexSnapshots | None = None,
    ) -> None:
        super().__init__(engine, ChunkVectors(), settings, keeper, snapshots)


def unpacked(stored: bytes) -> npt.NDArray[np.float32]:
    return np.frombuffer(stored, dtype="<f2").astype(np.float32)


class ChunkVectors:
    kind = "chunks"
    kept_as = np.float16

    def model(self, view: CorpusAtRevision) -> int:
        found = embeddings_of(view)
        return 0 if found is None else found.current.number

    def load(self, snapshot: BatchedReads, model: int) -> Iterator[tuple[NodeId, Row]]:
        for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.vectors(model))):
            yield node_id(entry.key[-16:]), np.frombuffer(entry.value, "<f2")

    def changes(
        self, index: VectorIndex[NodeId], after: Revision, snapshot: BatchedReads, model: int
    ) -> Changes[NodeId]:
        if snapshot.revision - after > _REVISIONS_MAX or after < _floor(snapshot):
            return _difference(index, after, snapshot, model)  # what the revisions since then changed may be trimmed
        since = snapshot.read(lambda view: list(revisions.between(view.tr, view.keys, after, snapshot.revision)))
        try:
            return _changes(index, since, snapshot, model)
        except KeyErased:
            return _difference(index, after, snapshot, model)  # which chunks an erased document had cannot be read
        except StoreCorruptError:
            if _floor(snapshot) <= after:
                raise
            return _difference(index, after, snapshot, model)  # a trim meanwhile took it away


def _floor(snapshot: BatchedReads) -> Revision:
    return snapshot.read(lambda view: trimming.floor(view.tr, view.keys))


def _difference(index: VectorIndex[NodeId], after: Revision, snapshot: BatchedReads, model: int) -> Changes[NodeId]:
    """Found by going through all vectors: only those that were written since are opened."""
    there: set[NodeId] = set()
    came: list[Entry] = []
    for entry in snapshot.entries(snapshot.keys.vectors(model)):
        there.add(node_id(entry.key[-16:]))
        if entry.revision > after:
            came.append(entry)
    gone = set(index.ids()) - there
    rows: dict[NodeId, Row | None] = dict.fromkeys(gone)
    rows |= {node_id(one.key[-16:]): np.frombuffer(one.value, "<f2") for one in snapshot.sealed.opened_all(came)}
    return Changes(rows, gone | index.former(), is_erasure=True)  # for all that is known here


def _changes(
    index: VectorIndex[NodeId], since: Sequence[RevisionRecord], snapshot: BatchedReads, model: int
) -> Changes[NodeId]:
    """Vectors are read at the last revision: those of a model that is not searched by may have come after the chunk."""
    there: dict[NodeId, bool] = {}
    is_erasure = any(record.action == ERASING for record in since)
    for record in since:
        gone = _chunks(snapshot.at(Revision(record.revision - 1)), record.documents_removed)
        there |= dict.fromkeys(gone, False)
        there |= dict.fromkeys(_chunks(snapshot.at(record.revision), record.documents_added), True)
    came = [one for one, is_there in there.items() if is_there]
    rows: dict[NodeId, Row | None] = dict.fromkeys(there)
    for one, stored in zip(
        came, snapshot.find(came, lambda view, one: HierarchyReader(view).vector(model, one)), strict=True
    ):
        rows[one] = None if stored is None else np.frombuffer(stored, "<f2")
    # Documents of the source may have been removed before, and nobody can tell any more which: all that are gone go.
    gone_for_good = {*index.former(), *(one for one, row in rows.items() if row is None)} if is_erasure else ()
    return Changes(rows, gone_for_good, is_erasure)


def _chunks(snapshot: BatchedReads, documents: Sequence[DocumentId]) -> list[NodeId]:
    found = snapshot.each(documents, lambda view, one: HierarchyReader(view).document(one))
    return [chunk for document in found for chunk in document.chunks]
