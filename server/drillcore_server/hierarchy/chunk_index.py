"""The vector index of a corpus's chunks, and how it follows the corpus's revisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import retention, revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import DocumentId, NodeId, Revision, node_id
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.index_follower import Changes, IndexFollower
from drillcore_server.vectors.index_keeper import IndexKeeper
from drillcore_server.vectors.index_snapshots import IndexSnapshots
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.stored_vectors import COMPONENT, row_of
from drillcore_server.vectors.vector_index import VectorIndex
from drillcore_server.vectors.vector_log import Row

_ERASING_ACTION: Final = "EraseSource"
"""The action of revisions that erase a source, not only remove its documents."""
_REVISIONS_MAX: Final = 1_000
"""The most revisions to follow one by one. Beyond that, all vectors are compared instead."""


class VectorCache(IndexFollower[NodeId]):
    def __init__(
        self,
        engine: Engine,
        settings: VectorSettings | None = None,
        keeper: IndexKeeper | None = None,
        snapshots: IndexSnapshots | None = None,
    ) -> None:
        super().__init__(engine, ChunkVectors(), settings, keeper, snapshots)


class ChunkVectors:
    kind = "chunks"
    kept_as = COMPONENT

    def model(self, view: CorpusAtRevision) -> int:
        found = embeddings_of(view)
        return 0 if found is None else found.current.number

    def load(self, snapshot: BatchedReads, model: int) -> Iterator[tuple[NodeId, Row]]:
        for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.vectors(model))):
            yield node_id(entry.key[-16:]), row_of(entry.value)

    def changes(
        self, index: VectorIndex[NodeId], after: Revision, snapshot: BatchedReads, model: int
    ) -> Changes[NodeId]:
        if snapshot.revision - after > _REVISIONS_MAX or after < _floor(snapshot):
            return _difference(index, after, snapshot, model)  # the records of those revisions may be trimmed
        since = snapshot.read(lambda view: list(revisions.between(view.tr, view.keys, after, snapshot.revision)))
        try:
            return _changes(index, since, snapshot, model)
        except KeyErased:
            return _difference(index, after, snapshot, model)  # an erased document no longer says which chunks it had
        except StoreCorruptError:
            if _floor(snapshot) <= after:
                raise
            return _difference(index, after, snapshot, model)  # a trim has removed the record in the meantime


def _floor(snapshot: BatchedReads) -> Revision:
    return snapshot.read(lambda view: retention.floor(view.tr, view.keys))


def _difference(index: VectorIndex[NodeId], after: Revision, snapshot: BatchedReads, model: int) -> Changes[NodeId]:
    """Finds the changes by scanning the keys of all vectors. Opens only vectors written after `after`."""
    there: set[NodeId] = set()
    came: list[Entry] = []
    for entry in snapshot.entries(snapshot.keys.vectors(model)):
        there.add(node_id(entry.key[-16:]))
        if entry.revision > after:
            came.append(entry)
    gone = set(index.ids()) - there
    rows: dict[NodeId, Row | None] = dict.fromkeys(gone)
    rows |= {node_id(entry.key[-16:]): row_of(entry.value) for entry in snapshot.sealed.opened_all(came)}
    return Changes(rows, gone | index.former(), is_erasure=True)  # an erasure cannot be ruled out here


def _changes(
    index: VectorIndex[NodeId], since: Sequence[RevisionRecord], snapshot: BatchedReads, model: int
) -> Changes[NodeId]:
    """Finds the changes from the records of the revisions.

    Reads vectors at the last revision, because a migration may have added a model's vectors after the chunks.
    """
    there: dict[NodeId, bool] = {}
    is_erasure = any(record.action == _ERASING_ACTION for record in since)
    for record in since:
        gone = _chunks(snapshot.at(Revision(record.revision - 1)), record.documents_removed)
        there |= dict.fromkeys(gone, False)
        there |= dict.fromkeys(_chunks(snapshot.at(record.revision), record.documents_added), True)
    came = [chunk for chunk, is_there in there.items() if is_there]
    rows: dict[NodeId, Row | None] = dict.fromkeys(there)
    vectors = snapshot.find(
        came,
        lambda view, chunk: HierarchyReader(view).vector(model, chunk),
        lambda keys, chunk: keys.vector(model, chunk),
    )
    for chunk, stored in zip(came, vectors, strict=True):
        rows[chunk] = None if stored is None else row_of(stored)
    # The erased source may have had documents that were removed earlier, and no record says which. So an erasure
    # destroys every chunk that is gone.
    gone_for_good = {*index.former(), *(chunk for chunk, row in rows.items() if row is None)} if is_erasure else ()
    return Changes(rows, gone_for_good, is_erasure)


def _chunks(snapshot: BatchedReads, documents: Sequence[DocumentId]) -> list[NodeId]:
    records = snapshot.each(
        documents, lambda view, document: HierarchyReader(view).document(document), CorpusKeys.document
    )
    return [chunk for record in records for chunk in record.chunks]
