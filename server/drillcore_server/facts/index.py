"""The vector index of the facts that are searched, and similar facts. Both are kept in memory.

The index has the facts that are active or stale and not archived. It follows the feed of changes.

`SimilarFacts` finds the facts most like a given fact: exactly, and the same on every server. Products of many vectors
at once are fast, but their last bits depend on which vectors were multiplied together. So they only select candidates,
generously. Candidates are then compared one by one in whole millionths, and ties go to the smaller id.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Engine
from drillcore_server.facts.model import SEARCHED_STATUSES, Fact, FactChange, FactStatus
from drillcore_server.facts.store import FactReader, all_changes, stored_facts_with_vectors
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.storage.ids import FactId, Revision
from drillcore_server.vectors.index_follower import Changes, IndexFollower
from drillcore_server.vectors.index_keeper import IndexKeeper
from drillcore_server.vectors.index_snapshots import IndexSnapshots
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.stored_vectors import COMPONENT, row_of
from drillcore_server.vectors.vector_index import VectorIndex
from drillcore_server.vectors.vector_log import Labels, Row, Units


class CombinedChange(NamedTuple):
    """The changes that several revisions together made to one fact."""

    change: FactChange
    """Every change that one of them made."""
    status: FactStatus
    """The status after the last of them."""


_NOTHING: Final = CombinedChange(FactChange(0), FactStatus.ACTIVE)


def combined_changes(snapshot: BatchedReads, after: Revision) -> Mapping[FactId, CombinedChange]:
    """The changes to facts by the revisions behind `after`, up to the snapshot's."""
    found: dict[FactId, CombinedChange] = {}
    for changed in all_changes(snapshot, after):
        before = found.get(changed.fact, _NOTHING).change
        found[changed.fact] = CombinedChange(before | changed.change, changed.status)
    return found


FactIndex = VectorIndex[FactId]
_MOVED: Final = FactChange.ADDED | FactChange.CONTENT | FactChange.VECTOR | FactChange.ARCHIVED | FactChange.RESTORED
"""Changes after which a fact's vector must be read again, or is not searched any more."""


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
    kept_as = COMPONENT

    def model(self, view: CorpusAtRevision) -> int:
        found = FactReader(view).embeddings()
        return 0 if found is None else found.current.number

    def load(self, snapshot: BatchedReads, model: int) -> Iterator[tuple[FactId, Row]]:
        for fact, vector in stored_facts_with_vectors(snapshot, model):
            if fact.is_searched and vector is not None:
                yield fact.id, row_of(vector)

    def changes(self, index: FactIndex, after: Revision, snapshot: BatchedReads, model: int) -> Changes[FactId]:
        changes = combined_changes(snapshot, after)
        in_search = {fact: what for fact, what in changes.items() if what.status in SEARCHED_STATUSES}
        read = [fact for fact, what in in_search.items() if _is_moved(index, fact, what)]
        now = snapshot.together(read, lambda view, facts: FactReader(view).facts_with_vectors(model, facts))
        found = dict(zip(read, map(_searched, now), strict=True))
        rows: dict[FactId, Row | None] = {fact: None for fact in changes if fact not in in_search}
        erased = {fact for fact, what in changes.items() if FactChange.ERASED in what.change}
        rows |= {fact: row for fact, row in found.items() if not _is_same(index, fact, row)}
        return Changes(rows, erased, bool(erased))


def _is_moved(index: FactIndex, fact: FactId, what: CombinedChange) -> bool:
    return bool(what.change & _MOVED) or fact not in index


def _searched(found: tuple[Fact, bytes | None] | None) -> Row | None:
    """The vector of a fact. None if the fact is not searched; an erased fact is searched at no revision."""
    if found is None:
        return None
    fact, vector = found
    return row_of(vector) if fact.is_searched and vector is not None else None


def _is_same(index: FactIndex, fact: FactId, row: Row | None) -> bool:
    known = index.kept(fact)
    return known is row if known is None or row is None else np.array_equal(known, row)


SIMILAR_MAX: Final = 5
"""How many similar facts are found for a fact."""
_COSINE_MIN: Final = 0.60
_ROUNDING: Final = 1e-4
"""A generous bound on how much a product of many vectors differs from the product of the two alone."""
_FACTS_AT_ONCE: Final = 128
Similar = tuple[FactId, ...]
"""The nearest first."""


class SimilarFacts:
    """Remembers what it found for as long as a state of the index is in use. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[FactIndex, dict[FactId, Similar]] = WeakKeyDictionary()

    def find(self, index: FactIndex, fact: FactId, asked_next: Sequence[FactId] = ()) -> Similar:
        """The facts most like a fact of the index, nearest first. Finds those of `asked_next` together with them."""
        with self._lock:
            known = self._known.setdefault(index, {})
        if fact not in known:
            wanted = [fact, *(id_ for id_ in asked_next if id_ not in known and id_ != fact)][:_FACTS_AT_ONCE]
            known.update(zip(wanted, _found(index, wanted), strict=True))
        return known[fact]


def _found(index: FactIndex, wanted: Sequence[FactId]) -> list[Similar]:
    candidates = _candidates(index, index.rows(wanted))
    return [_chosen(index, fact, labels) for fact, labels in zip(wanted, candidates, strict=True)]


def _candidates(index: FactIndex, queries: Units) -> list[Labels]:
    """Labels for each query, in order, that include those of its nearest facts."""
    found: list[list[Labels]] = [[] for _ in queries]
    for first, block in index.log.unit_blocks(0, len(index.members)):
        products = queries @ block.T
        products[:, ~index.members[first : first + len(block)]] = -1.0
        for labels, row in zip(found, products, strict=True):
            labels.append(first + _best(row))
    return [np.concatenate(labels) for labels in found]


def _best(products: npt.NDArray[np.float32]) -> Labels:
    """Where the best of a block are: the fact itself, its similar facts, and any that may tie with the last of them."""
    count, least = SIMILAR_MAX + 1, _COSINE_MIN
    if len(products) > count:
        least = max(least, float(np.partition(products, len(products) - count)[len(products) - count]))
    return np.flatnonzero(products >= least - _ROUNDING)


def _chosen(index: FactIndex, fact: FactId, labels: Labels) -> Similar:
    vector = index.kept(fact)
    assert vector is not None, "callers ask only for facts of the index"
    nearest = index.best((index.cosines(vector, labels), labels), SIMILAR_MAX + 1)
    return tuple(id_ for id_, score in nearest if id_ != fact and score >= _COSINE_MIN)[:SIMILAR_MAX]
