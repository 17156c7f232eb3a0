"""Vectors of one revision of a corpus, searched by cosine: facts, chunks or sections.

An index is a state that never changes: which labels of a shared log (`vector_log`) are its own. The next state shares
the log and adds to it. So what is added is seen by the very next search, what is removed is not, and an earlier state
still finds what it had. A graph has the first labels of the log; vectors behind it, the tail, are compared one by one.
The tail goes into the graph in the background (`index_keeper`), and no state notices.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_server.derived.graph import Graph
from drillcore_server.derived.settings import VectorSettings
from drillcore_server.derived.vector_log import BLOCK, Labels, Mask, Row, Units, VectorLog, as_id_bytes, units

_DIGITS: Final = 6
"""Of a score. Smaller differences are taken for none, and the smaller id comes first."""
_SPARE: Final = 1.5
"""Of what the graph is asked for, over what should be enough: those that are gone are not spread evenly."""
_FIRST: Final = 128
"""Put in order at once, of all that were compared."""
_GRAPH_SHARE_MAX: Final = 0.1
"""Of a graph that a search asks for. To look for more takes longer than comparing all."""

Id = TypeVar("Id", bound=UUID)
Scored = tuple[npt.NDArray[np.float64], Labels]


class VectorIndex(Generic[Id]):
    def __init__(self, log: VectorLog, members: Mask, count: int, settings: VectorSettings) -> None:
        """`count`: how many of `members` are true."""
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
        """Of vectors by id, each once. They are kept as they come: in half precision, or as `kept_as` says."""
        remaining = iter(items)
        log: VectorLog | None = None
        while batch := dict(islice(remaining, BLOCK)):
            rows = np.stack(list(batch.values()))
            log = log or VectorLog(rows.shape[1], kept_as)
            log.add(as_id_bytes(batch), rows)
        log = log or VectorLog(0, kept_as)
        return cls(log, np.ones(log.size, np.bool_), log.size, settings)

    def changed(self, changes: Mapping[Id, Row | None], erased: Collection[Id] = ()) -> VectorIndex[Id]:
        """With these vectors as they are now; None for one that is gone.

        Of those that are `erased`, no vector that they have had is left in memory either, for no state: only what they
        have from now on.
        """
        fresh = {one: row for one, row in changes.items() if row is not None}
        gone = self.log.labels(changes, self.members)
        kept = self.members.copy()
        kept[gone] = False
        with self.log.adding:
            self.log.erase(label for label in self.log.ever(erased) if label >= len(kept) or not kept[label])
            if len(gone) == self._count:  # the next may be of another length
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

    def __contains__(self, one: Id) -> bool:
        return self.log.label(one.bytes, self.members) is not None

    @property
    def dimensions(self) -> int:
        """0 for one that never had a vector."""
        return self.log.dimensions

    @property
    def is_exact(self) -> bool:
        """Whether every vector is compared anyway."""
        return self._count <= self.settings.exact_below or self.log.graph is None

    @property
    def gone(self) -> int:
        """Labels of the log that are not its own any more."""
        return self.log.size - self._count

    def ids(self) -> list[Id]:
        """In no order that means anything."""
        return self.ids_at(self._all())

    def former(self) -> set[Id]:
        """Those of which the log has a vector that is not, or is no longer, this state's."""
        others = np.ones(self.log.size, np.bool_)
        others[: len(self.members)] = ~self.members
        return set(self.ids_at(np.flatnonzero(others)))

    def ids_at(self, labels: Labels) -> list[Id]:
        """Of labels in order, whether they are its own or not."""
        return [cast(Id, UUID(bytes=bytes(one))) for one in self.log.ids(labels)]

    def rows(self, ids: Sequence[Id]) -> Units:
        """A row of length 1 for each. Raises KeyError for an id that is not here."""
        labels = np.array([self._label(one) for one in ids], np.int64)
        order = np.argsort(labels, kind="stable")
        found = np.empty((len(ids), self.dimensions), np.float32)
        found[order] = self.log.units(labels[order])
        return found

    def kept(self, one: Id) -> Row | None:
        """The vector of one as it came; None if it is not here."""
        label = self.log.label(one.bytes, self.members)
        return None if label is None else self.log.rows(np.array([label]))[0]

    def _label(self, one: Id) -> int:
        label = self.log.label(one.bytes, self.members)
        if label is None:
            raise KeyError(one)
        return label

    def labels(self, ids: Sequence[bytes]) -> Labels:
        """In order, of the bytes of ids; of those that are here."""
        return self.log.labels_of(ids, self.members)

    def cosines(self, vector: Row, labels: Labels) -> npt.NDArray[np.float64]:
        """The score of each of some labels, which are in order."""
        return self._compared(self._query(vector), labels)[0]

    def best(self, scored: Scored, k: int) -> list[tuple[Id, float]]:
        """The `k` best of those that were scored; equal ones by their ids."""
        return list(self._best(scored, k))

    def search(
        self, vector: Row, k: int, allowed: Collection[Id] | None = None, *, exact: bool = False
    ) -> list[tuple[Id, float]]:
        """The `k` best by cosine, of those allowed; equal ones by their ids. `exact` compares every one."""
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
        """All of them, best first. Behind those that one search of the graph finds, every one is compared."""
        shown: set[Id] = set()
        if not (exact or self.is_exact):
            for one, score in self._found(vector, self.settings.ef_search, allowed, exact=False):
                shown.add(one)
                yield one, score
            if len(shown) < self.settings.ef_search:
                return
        for one, score in self._exact_ranking(vector, allowed):
            if one not in shown:
                yield one, score

    def _exact_ranking(self, vector: Row, allowed: Collection[Id] | None) -> Iterator[tuple[Id, float]]:
        if self._count:
            labels = self._all() if allowed is None else self.log.labels(allowed, self.members)
            yield from self._gradually(self._compared(self._query(vector), labels))

    def _gradually(self, scored: Scored) -> Iterator[tuple[Id, float]]:
        """Best first; all but the best are put in order only if they are asked for."""
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
        """Labels among which the best of those wanted are. None if they are not worth looking for in the graph."""
        graph = self.log.graph
        assert graph is not None
        covered = graph.count  # more may be put into it meanwhile: to this search they are the tail
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
        """Best first, equal ones by their ids. Ids are made as they are taken: a page needs few of many."""
        scores, labels = scored
        ids = self.log.ids(labels)
        high, low = ids.view(">u8").T
        for place in np.lexsort((low, high, -scores)).tolist():
            yield cast(Id, UUID(bytes=ids[place].tobytes())), float(scores[place])


def _from_graph(graph: Graph, query: Units, k: int, wanted: Mask, inside: int) -> Labels | None:
    """At least `k` wanted labels, if there are so many, found by asking for more and more. None if exact is better."""
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
