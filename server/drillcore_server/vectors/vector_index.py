"""Searches the vectors of one revision of a corpus by cosine: facts, chunks or sections.

An index is a state that never changes: it knows which labels of a shared log (`vector_log`) belong to it. The next
state shares the log and adds to it. So the very next search sees what was added and no longer what was removed, and an
earlier state still finds what it had. A graph covers the first labels of the log. The vectors after those, the tail,
are compared one by one. In the background (`index_keeper`) the tail goes into the graph, and no state notices.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_server.vectors.hnsw_graph import Graph
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_log import BLOCK, Labels, Mask, Row, Units, VectorLog, as_id_bytes, units

_DIGITS: Final = 6
"""The digits of a score. Scores with a smaller difference are equal, and the smaller id comes first."""
_SPARE: Final = 1.5
"""The graph is asked for this many times as many vectors as should suffice: unwanted vectors are not spread evenly."""
_FIRST: Final = 128
"""The results that are sorted at once; the others only on demand."""
_GRAPH_SHARE_MAX: Final = 0.1
"""The largest share of a graph that a search asks for. Beyond it, comparing all is faster."""

Id = TypeVar("Id", bound=UUID)
Scored = tuple[npt.NDArray[np.float64], Labels]


class VectorIndex(Generic[Id]):
    def __init__(self, log: VectorLog, members: Mask, count: int, settings: VectorSettings) -> None:
        """`count` is the number of true `members`."""
        self.log = log
        self.members = members
        self._count = count
        self.settings = settings

    @classmethod
    def of(
        cls,
        items: Iterable[tuple[Id, Row]],
        settings: VectorSettings,
        kept_as: npt.DTypeLike = np.float16,
    ) -> VectorIndex[Id]:
        """Makes an index of vectors by id, each once. They are stored with the precision `kept_as`."""
        remaining = iter(items)
        log: VectorLog | None = None
        while batch := dict(islice(remaining, BLOCK)):
            rows = np.stack(list(batch.values()))
            log = log or VectorLog(rows.shape[1], kept_as)
            log.add(as_id_bytes(batch), rows)
        log = log or VectorLog(0, kept_as)
        return cls(log, np.ones(log.size, np.bool_), log.size, settings)

    def changed(self, changes: Mapping[Id, Row | None], erased: Collection[Id] = ()) -> VectorIndex[Id]:
        """Returns the next state with these vectors; None for one that is gone.

        No earlier vector of the `erased` ids stays in memory, for any state: they have only what they get now.
        """
        fresh = {id_: row for id_, row in changes.items() if row is not None}
        gone = self.log.labels(changes, self.members)
        kept = self.members.copy()
        kept[gone] = False
        with self.log.add_lock:
            self.log.erase(label for label in self.log.ever(erased) if label >= len(kept) or not kept[label])
            if len(gone) == self._count:  # the next vectors may have another length
                return VectorIndex.of(fresh.items(), self.settings, self.log.kept_as)
            if len(gone):
                self.log.note_gone()
            first = self._add(fresh)
            members = np.zeros(self.log.size, np.bool_)
        members[: len(kept)] = kept
        members[first : first + len(fresh)] = True
        return VectorIndex(self.log, members, self._count - len(gone) + len(fresh), self.settings)

    def _add(self, fresh: Mapping[Id, Row]) -> int:
        return self.log.add(as_id_bytes(fresh), np.stack(list(fresh.values()))) if fresh else self.log.size

    def __len__(self) -> int:
        return self._count

    def __contains__(self, id_: Id) -> bool:
        return self.log.label(id_.bytes, self.members) is not None

    @property
    def dimensions(self) -> int:
        """0 if it never had a vector."""
        return self.log.dimensions

    @property
    def is_exact(self) -> bool:
        """Tells whether a search compares every vector anyway."""
        return self._count <= self.settings.exact_below or self.log.graph is None

    @property
    def gone(self) -> int:
        """The labels of the log that no longer belong to this state."""
        return self.log.size - self._count

    def ids(self) -> list[Id]:
        """The order has no meaning."""
        return self.ids_at(self._all())

    def former(self) -> set[Id]:
        """Returns the ids for which the log has a vector that does not belong to this state."""
        others = np.ones(self.log.size, np.bool_)
        others[: len(self.members)] = ~self.members
        return set(self.ids_at(np.flatnonzero(others)))

    def ids_at(self, labels: Labels) -> list[Id]:
        """Returns the ids of sorted labels, whether they belong to this state or not."""
        return [cast(Id, UUID(bytes=bytes(id_))) for id_ in self.log.ids(labels)]

    def rows(self, ids: Sequence[Id]) -> Units:
        """Returns a row of length 1 for each id. Raises `KeyError` for an id that is not here."""
        labels = np.array([self._label(id_) for id_ in ids], np.int64)
        order = np.argsort(labels, kind="stable")
        found = np.empty((len(ids), self.dimensions), np.float32)
        found[order] = self.log.units(labels[order])
        return found

    def kept(self, id_: Id) -> Row | None:
        """Returns the vector of an id with the precision in which it is kept; None if it is not here."""
        label = self.log.label(id_.bytes, self.members)
        return None if label is None else self.log.rows(np.array([label]))[0]

    def _label(self, id_: Id) -> int:
        label = self.log.label(id_.bytes, self.members)
        if label is None:
            raise KeyError(id_)
        return label

    def labels(self, ids: Sequence[bytes]) -> Labels:
        """Returns the sorted labels of those ids, given as bytes, that are here."""
        return self.log.labels_of(ids, self.members)

    def cosines(self, vector: Row, labels: Labels) -> npt.NDArray[np.float64]:
        """Returns the score of each label. The labels must be sorted."""
        return self._compared(self._query(vector), labels)[0]

    def best(self, scored: Scored, k: int) -> list[tuple[Id, float]]:
        """Returns the `k` best of the scored labels; equal ones by their ids."""
        return list(self._best(scored, k))

    def search(
        self, vector: Row, k: int, allowed: Collection[Id] | None = None, *, exact: bool = False
    ) -> list[tuple[Id, float]]:
        """Returns the `k` best by cosine among those allowed; equal ones by their ids. `exact` compares every one."""
        return list(self._found(vector, k, allowed, exact=exact))

    def _found(self, vector: Row, k: int, allowed: Collection[Id] | None, *, exact: bool) -> Iterator[tuple[Id, float]]:
        if not self._count or k < 1:
            return iter(())
        query = self._query(vector)
        if allowed is None:
            labels = None if exact or self.is_exact else self._near(query, k, self.members, self._count)
            return self._best(self._compared(query, self._all() if labels is None else labels), k)
        among = self.log.labels(allowed, self.members)
        if exact or self.is_exact or len(among) <= self.settings.exact_below:
            return self._best(self._compared(query, among), k)
        mask = np.zeros(len(self.members), np.bool_)
        mask[among] = True
        labels = self._near(query, k, mask, len(among))
        return self._best(self._compared(query, among if labels is None else labels), k)

    def ranking(
        self, vector: Row, allowed: Collection[Id] | None = None, *, exact: bool = False
    ) -> Iterator[tuple[Id, float]]:
        """Yields all, best first. Compares every vector after those that one search of the graph finds."""
        shown: set[Id] = set()
        if not (exact or self.is_exact):
            for id_, score in self._found(vector, self.settings.ef_search, allowed, exact=False):
                shown.add(id_)
                yield id_, score
            if len(shown) < self.settings.ef_search:
                return
        for id_, score in self._exact_ranking(vector, allowed):
            if id_ not in shown:
                yield id_, score

    def _exact_ranking(self, vector: Row, allowed: Collection[Id] | None) -> Iterator[tuple[Id, float]]:
        if self._count:
            labels = self._all() if allowed is None else self.log.labels(allowed, self.members)
            yield from self._gradually(self._compared(self._query(vector), labels))

    def _gradually(self, scored: Scored) -> Iterator[tuple[Id, float]]:
        """Yields best first. Sorts all but the best only on demand."""
        scores, labels = scored
        if len(scores) > _FIRST:
            least = np.partition(scores, len(scores) - _FIRST)[len(scores) - _FIRST]
            best = scores >= least
            yield from self._in_order((scores[best], labels[best]))
            scores, labels = scores[~best], labels[~best]
        yield from self._in_order((scores, labels))

    def _query(self, vector: Row) -> Units:
        assert vector.shape == (self.dimensions,), "a vector of the wrong length"
        assert np.isfinite(vector).all(), "a vector that is not made of numbers"
        query: Units = units(vector[np.newaxis])[0]
        return query

    def _all(self) -> Labels:
        return np.flatnonzero(self.members)

    def _near(self, query: Units, k: int, wanted: Mask, count: int) -> Labels | None:
        """Returns labels that include the best of those wanted; None if searching the graph is not worth it."""
        graph = self.log.graph
        assert graph is not None
        covered = graph.count  # more may be added meanwhile: to this search they are the tail
        tail = covered + np.flatnonzero(wanted[covered:])
        inside = count - len(tail)
        found = _from_graph(graph, query, k, wanted[:covered], inside) if inside else tail[:0]
        return None if found is None else np.concatenate([found, tail])

    def _compared(self, query: Units, labels: Labels) -> Scored:
        return np.asarray(np.round(self.log.products(query, labels).astype(np.float64), _DIGITS), np.float64), labels

    def _best(self, scored: Scored, k: int) -> Iterator[tuple[Id, float]]:
        scores, labels = scored
        if len(scores) > k:
            least = np.partition(scores, len(scores) - k)[len(scores) - k]
            chosen = scores >= least
            scores, labels = scores[chosen], labels[chosen]
        return islice(self._in_order((scores, labels)), k)

    def _in_order(self, scored: Scored) -> Iterator[tuple[Id, float]]:
        """Yields best first, equal ones by their ids. Makes ids on demand: a page needs few of many."""
        scores, labels = scored
        ids = self.log.ids(labels)
        high, low = ids.view(">u8").T
        for place in np.lexsort((low, high, -scores)).tolist():
            yield cast(Id, UUID(bytes=ids[place].tobytes())), float(scores[place])


def _from_graph(graph: Graph, query: Units, k: int, wanted: Mask, inside: int) -> Labels | None:
    """Returns at least `k` wanted labels, if there are so many, by asking for more and more; None if exact
    is better."""
    count, covered = min(k, inside), graph.count
    asked = math.ceil(_SPARE * count * covered / inside) if inside < covered else count
    while asked <= max(covered * _GRAPH_SHARE_MAX, count):
        labels = graph.nearest(query, asked)
        if labels is None:
            return None
        found = labels[labels < len(wanted)]
        found = found[wanted[found]]
        if len(found) >= count:
            return np.sort(found)
        asked *= 2
    return None
