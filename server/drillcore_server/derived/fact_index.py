"""The index that facts are searched through: those that are active or stale and not archived."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from drillcore_fdb.engine import Engine
from drillcore_server.derived.fact_feed import Touched, touched
from drillcore_server.derived.index_follower import Changes, IndexFollower
from drillcore_server.derived.index_keeper import IndexKeeper
from drillcore_server.derived.index_snapshots import IndexSnapshots
from drillcore_server.derived.settings import VectorSettings
from drillcore_server.derived.vector_index import VectorIndex
from drillcore_server.derived.vector_log import Row
from drillcore_server.domain.facts import FOUND, FactChange
from drillcore_server.domain.ids import FactId, Revision
from drillcore_server.store.facts import FACT, FactsView, fact_id
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import KeyErased
from drillcore_server.store.snapshot import Snapshot

FactIndex = VectorIndex[FactId]
_MOVED: Final = FactChange.ADDED | FactChange.CONTENT | FactChange.VECTOR | FactChange.ARCHIVED | FactChange.RESTORED
"""After which a fact's vector has to be read again, or is not searched any more."""


class FactIndexes(IndexFollower[FactId]):
    def __init__(
        self,
        engine: Engine,
        settings: VectorSettings | None = None,
        keeper: IndexKeeper | None = None,
        snapshots: IndexSnapshots | None = None,
    ) -> None:
        super().__init__(engine, FactVectors(), settings, keeper, snapshots)


class FactVectors:
    kind = "facts"
    kept_as = np.float16

    def model(self, view: CorpusView) -> int:
        found = FactsView(view).embeddings()
        return 0 if found is None else found.current.number

    def load(self, snapshot: Snapshot, model: int) -> Iterator[tuple[FactId, Row]]:
        vectors = snapshot.entries(snapshot.keys.fact_vectors(model))
        vector = next(vectors, None)
        for entry in snapshot.entries(snapshot.keys.facts()):
            while vector is not None and vector.key[-16:] < entry.key[-16:]:
                vector = next(vectors, None)
            if vector is None or vector.key[-16:] != entry.key[-16:]:
                continue
            opened = list(snapshot.sealed.opened_all([entry, vector]))
            if len(opened) == 2 and FACT.decode(opened[0].value).is_searched:
                yield fact_id(entry.key), row_of(opened[1].value)

    def changes(self, index: FactIndex, after: Revision, snapshot: Snapshot, model: int) -> Changes[FactId]:
        told = touched(snapshot, after)
        read = [one for one, what in told.items() if what.status in FOUND and _is_moved(index, one, what)]
        found = dict(zip(read, snapshot.find(read, lambda view, one: _searched(view, one, model)), strict=True))
        rows: dict[FactId, Row | None] = {one: None for one, what in told.items() if what.status not in FOUND}
        erased = {one for one, what in told.items() if FactChange.ERASED in what.change}
        rows |= {one: row for one, row in found.items() if not _is_same(index, one, row)}
        return Changes(rows, erased, bool(erased))


def row_of(stored: bytes) -> Row:
    return np.frombuffer(stored, "<f2")


def _is_moved(index: FactIndex, fact: FactId, what: Touched) -> bool:
    return bool(what.change & _MOVED) or fact not in index


def _searched(view: CorpusView, fact: FactId, model: int) -> Row | None:
    """The vector of a fact, if it is searched. One that was erased since is not, at any revision."""
    try:
        record, vector = FactsView(view).fact(fact), FactsView(view).vector(model, fact)
    except KeyErased:
        return None
    return row_of(vector) if record is not None and record.is_searched and vector is not None else None


def _is_same(index: FactIndex, fact: FactId, row: Row | None) -> bool:
    known = index.kept(fact)
    return known is row if known is None or row is None else np.array_equal(known, row)
