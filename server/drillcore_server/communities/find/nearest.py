"""Finds the nearest neighbours of every row that are near enough.

Cosines are compared as whole millionths, and of equals the lower place is nearer. So the result does not depend on the
last bits, which differ from one processor to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import faiss
import numpy as np
import numpy.typing as npt

from drillcore_server.communities.find.process import Figures

Rows = npt.NDArray[np.float32]
Whole = npt.NDArray[np.int32]

ONE: Final = 1_000_000
"""A cosine of 1 in millionths."""
NOBODY: Final = -1
_BAND_MIN: Final = 64
_BAND_MAX: Final = 512
_COLUMNS: Final = 4_096
"""Rows are compared in blocks of up to 512 by 4,096: 8 MB of products, which stay in the processor's cache."""
_WAITING_MAX: Final = 1 << 20
"""Pairs that wait until the best of them are picked."""
_LINKS: Final = 16
_LOOKED_AT_BUILDING: Final = 200
_LOOKED_AT: Final = 100
"""M, ef_construction and ef_search of HNSW."""
_BATCH: Final = 10_000


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The neighbours of each row, nearest first; `NOBODY` where there are fewer."""

    places: Whole
    cosines: Whole
    """In millionths."""


def exact_neighbours(rows: Rows, count: int, least: float, figures: Figures) -> Neighbours:
    """Compares every two rows once. Rows have length 1.

    Only pairs that could be among the best are kept: ranking all would take longer than comparing them.
    """
    best = _Best.of(len(rows), count, least)
    for begin, end in _bands(len(rows)):
        for left in range(begin, len(rows), _COLUMNS):
            right = min(left + _COLUMNS, len(rows))
            with figures.native():
                cosines = rows[begin:end] @ rows[left:right].T
            best.offer(begin, left, cosines)
            beyond = max(end - left, 0)  # within the band, both were just compared as rows
            best.offer_back(begin, left + beyond, cosines[:, beyond:])
    best.settle()
    return Neighbours(best.places, best.cosines)


def approximate_neighbours(rows: Rows, count: int, least: float, figures: Figures) -> Neighbours:
    """Asks an HNSW index that one thread builds in the order of the rows: the same rows give the same neighbours."""
    best = _Best.of(len(rows), count, least)
    index = faiss.IndexHNSWFlat(rows.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = _LOOKED_AT_BUILDING, max(_LOOKED_AT, 2 * count)
    faiss.omp_set_num_threads(1)
    with figures.native():
        index.add(rows)
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        with figures.native():
            cosines, found = index.search(batch, min(count + 1, len(rows)))  # -1 where it reaches no more
        places = np.repeat(np.arange(start, start + len(batch)), found.shape[1])
        best.add(places, found.ravel(), cosines.ravel())
    best.settle()
    return Neighbours(best.places, best.cosines)


def _bands(count: int) -> Iterator[tuple[int, int]]:
    """Yields narrow bands first, then wider ones: what the first find tells what the others may skip."""
    begin, width = 0, _BAND_MIN
    while begin < count:
        yield begin, min(begin + width, count)
        begin, width = begin + width, min(2 * width, _BAND_MAX)


@dataclass(slots=True)
class _Best:
    """The best neighbours of each row so far.

    A row is offered neighbours in the order of their places. So once a row has enough, a neighbour that is no better
    than its worst is never among its best.
    """

    places: Whole
    cosines: Whole
    floors: Rows
    """A cosine must exceed this to matter to a row."""
    least: int
    _waiting: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Whole]] = field(default_factory=list)
    _count: int = 0

    @classmethod
    def of(cls, rows: int, count: int, least: float) -> _Best:
        whole = round(least * ONE)
        floors = np.full(rows, (whole - 0.5) / ONE - 1e-6, np.float32)  # a little too low, since offers are rounded
        return cls(np.full((rows, count), NOBODY, np.int32), np.full((rows, count), -ONE - 1, np.int32), floors, whole)

    def offer(self, first_row: int, first_place: int, cosines: Rows) -> None:
        """Offers the places of a block to its rows."""
        rows, places = _nonzero(cosines > self.floors[first_row : first_row + len(cosines), np.newaxis])
        self.add(rows + first_row, places + first_place, cosines[rows, places])

    def offer_back(self, first_row: int, first_place: int, cosines: Rows) -> None:
        """Offers the rows of a block to its places."""
        rows, places = _nonzero(cosines > self.floors[first_place : first_place + cosines.shape[1]])
        self.add(places + first_place, rows + first_row, cosines[rows, places])

    def add(self, rows: npt.NDArray[np.int64], places: npt.NDArray[np.int64], cosines: Rows) -> None:
        whole = np.minimum(np.rint(cosines.astype(np.float64) * ONE), ONE).astype(np.int32)
        matters = (whole >= self.least) & (rows != places) & (places >= 0)
        self._waiting.append((rows[matters], places[matters], whole[matters]))
        self._count += int(np.count_nonzero(matters))
        if self._count > _WAITING_MAX:
            self.settle()

    def settle(self) -> None:
        """Picks the best out of those that wait and those that were the best before."""
        if self._count == 0:
            return
        rows, places, cosines = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting, self._count = [], 0
        touched, count = np.unique(rows), self.places.shape[1]
        rows = np.concatenate([np.repeat(touched, count), rows])
        places = np.concatenate([self.places[touched].ravel(), places])
        cosines = np.concatenate([self.cosines[touched].ravel(), cosines])
        order = np.lexsort((places, -cosines, rows))
        starts = np.searchsorted(rows[order], touched)
        chosen = order[starts[:, np.newaxis] + np.arange(count)]
        self.places[touched], self.cosines[touched] = places[chosen], cosines[chosen]
        worst = self.cosines[touched, -1]
        self.floors[touched] = np.where(worst >= self.least, worst / ONE, self.floors[touched])


def _nonzero(mask: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Same result as numpy's own, in a third of the time where there is little to find."""
    return np.divmod(np.flatnonzero(mask), mask.shape[1])
