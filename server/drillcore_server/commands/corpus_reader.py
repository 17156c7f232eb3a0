"""One revision of a corpus for planning, each read in a transaction of its own: a revision does not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.derived.sections import SectionCache
from drillcore_server.derived.vectors import unpacked
from drillcore_server.domain.ids import CorpusNumber, DocumentId, NodeId, Revision, SourceId
from drillcore_server.domain.nodes import Chunk, Document, Master, RawPage, Section
from drillcore_server.domain.sources import Source
from drillcore_server.ingest.embedding.ports import Vector
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyspace import CorpusKeys
from drillcore_server.store.sealed import SealedRecords

T = TypeVar("T")
K = TypeVar("K")
_BATCH: Final = 500
"""Records read in one transaction, well within five seconds."""


class SnapshotReader:
    def __init__(
        self,
        engine: Engine,
        keys: CorpusKeys,
        sealed: SealedRecords,
        number: CorpusNumber,
        revision: Revision,
        cache: SectionCache,
    ) -> None:
        self._engine = engine
        self._keys = keys
        self._sealed = sealed
        self._number = number
        self._revision = revision
        self._cache = cache

    def sections(self) -> Mapping[NodeId, Section]:
        return self._read(lambda view: self._cache.at(self._number, view))

    def master(self) -> Master | None:
        return self._read(lambda view: view.master())

    def members(self, section: NodeId) -> list[NodeId]:
        return self._read(lambda view: list(view.chunks_of(section)))

    def chunks(self, ids: Sequence[NodeId]) -> list[Chunk]:
        return self._each(ids, lambda view, one: view.chunk(one))

    def pages(self, ids: Sequence[NodeId]) -> list[RawPage]:
        return self._each(ids, lambda view, one: view.raws(one))

    def vectors(self, ids: Sequence[NodeId]) -> list[Vector]:
        packed = self._each(ids, lambda view, one: view.vector(one))
        return [unpacked(one) for one in packed]

    def parents(self, ids: Sequence[NodeId]) -> list[NodeId]:
        return self._each(ids, lambda view, one: view.parent(one))

    def documents(self, ids: Sequence[DocumentId]) -> list[Document | None]:
        return self._in_batches(ids, lambda view, batch: [view.document(one) for one in batch])

    def sources(self, ids: Sequence[SourceId]) -> list[Source | None]:
        return self._in_batches(ids, lambda view, batch: [view.source(one) for one in batch])

    def _read(self, work: Callable[[CorpusView], T]) -> T:
        return self._engine.run(lambda tr: work(CorpusView(tr.snapshot, self._keys, self._sealed, self._revision)))

    def _each(self, ids: Sequence[NodeId], get: Callable[[CorpusView, NodeId], T | None]) -> list[T]:
        return self._in_batches(ids, lambda view, batch: _all(view, batch, get))

    def _in_batches(self, ids: Sequence[K], get: Callable[[CorpusView, Sequence[K]], list[T]]) -> list[T]:
        found: list[T] = []
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH]
            found += self._read(lambda view, batch=batch: get(view, batch))  # type: ignore[misc]
        return found


def _all(view: CorpusView, ids: Sequence[NodeId], get: Callable[[CorpusView, NodeId], T | None]) -> list[T]:
    found = []
    for one in ids:
        record = get(view, one)
        if record is None:
            raise StoreCorruptError(f"node {one} is named at revision {view.revision} but is not there")
        found.append(record)
    return found
