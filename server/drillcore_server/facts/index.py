"""What the feed of changes says of the facts of a corpus between two revisions.

The index that facts are searched through: those that are active or stale and not archived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from drillcore_fdb.engine import Engine
from drillcore_server.facts.model import FOUND, FactChange, FactStatus
from drillcore_server.facts.store import FACT, FactReader, fact_id
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.storage.ids import FactId, Revision
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.vectors.index_follower import Changes, IndexFollower
from drillcore_server.vectors.index_keeper import IndexKeeper
from drillcore_server.vectors.index_snapshots import IndexSnapshots
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_index import VectorIndex
from drillcore_server.vectors.vector_log import Row

_PAGE: Final = 20_000
"""Entries of the feed read in one transaction."""


class Touched(NamedTuple):
    """What a stretch of the feed says of one fact."""

    change: FactChange
    status: FactStatus


_NOTHING: Final = Touched(FactChange(0), FactStatus.ACTIVE)


def touched(snapshot: BatchedReads, after: Revision) -> Mapping[FactId, Touched]:
    """What the revisions after one, up to the snapshot's, did to facts: every change, and the status they ended in."""
    found: dict[FactId, Touched] = {}
    begin, end = snapshot.keys.fact_changes_between(after, snapshot.revision)
    following: bytes | None = begin
    while following is not None:
        page = snapshot.read(lambda view, at=following: list(view.tr.range(at, end, limit=_PAGE)))  # type: ignore[misc]
        for key, (change, status) in page:
            before = found.get(fact_id(key), _NOTHING).change
            found[fact_id(key)] = Touched(before | FactChange(change), FactStatus(status))
        following = page[-1][0] + b"\0" if len(page) == _PAGE else None
    return found


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

    def model(self, view: CorpusAtRevision) -> int:
        found = FactReader(view).embeddings()
        return 0 if found is None else found.current.number

    def load(self, snapshot: BatchedReads, model: int) -> Iterator[tuple[FactId, Row]]:
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

    def changes(self, index: FactIndex, after: Revision, snapshot: BatchedReads, model: int) -> Changes[FactId]:
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


def _searched(view: CorpusAtRevision, fact: FactId, model: int) -> Row | None:
    """The vector of a fact, if it is searched. One that was erased since is not, at any revision."""
    try:
        record, vector = FactReader(view).fact(fact), FactReader(view).vector(model, fact)
    except KeyErased:
        return None
    return row_of(vector) if record is not None and record.is_searched and vector is not None else None


def _is_same(index: FactIndex, fact: FactId, row: Row | None) -> bool:
    known = index.kept(fact)
    return known is row if known is None or row is None else np.array_equal(known, row)
