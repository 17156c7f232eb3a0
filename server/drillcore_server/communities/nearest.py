"""The nearest neighbours of every row, of those that are near enough.

Cosines are compared as whole millionths, and of equals the one with the lower place is nearer: so they do not depend on
the last bits, which differ from one processor to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import hnswlib
import numpy as np
import numpy.typing as npt

from drillcore_server.communities.figures import Figures

Rows = npt.NDArray[np.float32]
Whole = npt.NDArray[np.int32]

ONE: Final = 1_000_000
"""A cosine of 1 in millionths."""
NOBODY: Final = -1
_BAND_MIN: Final = 64
_BAND_MAX: Final = 512
_COLUMNS: Final = 4_096
"""Rows are compared in blocks of up to 512 by 4,096: 8 MB of products, which stay near the processor."""
_WAITING_MAX: Final = 1 << 20
"""Pairs that are kept until the best are picked out of them."""
_LINKS: Final = 16
_LOOKED_AT_BUILDING: Final = 200
_LOOKED_AT: Final = 100
"""M, ef_construction and ef_search of HNSW."""
_BATCH: Final = 10_000


@dataclass(frozen=True, slots=True)
class Neighbours:
    """For each row its neighbours, the nearest first; where there are fewer, nobody."""

    places: Whole
    cosines: Whole
    """In millionths."""


def exact_neighbours(rows: Rows, count: int, least: float, figures: Figures) -> Neighbours:
    """Compares every two rows, once. Rows have length 1.

    Only pairs that could be among the best are looked at further: to rank all would take longer than to compare them.
    """
    best = _Best.of(len(rows), count, least)
    for begin, end in _bands(len(rows)):
        for left in range(begin, len(rows), _COLUMNS):
            right = min(left + _COLUMNS, len(rows))
            with figures.native():
                cosines = rows[begin:end] @ rows[left:right].T
            best.offer(begin, left, cosines)
            beyond = max(end - left, 0)  # within the band both were just met as rows
            best.offer_back(begin, left + beyond, cosines[:, beyond:])
    best.settle()
    return Neighbours(best.places, best.cosines)


def approximate_neighbours(rows: Rows, count: int, least: float, figures: Figures) -> Neighbours:
    """Asks an HNSW index, built in the order of the rows by one thread: the same rows give the same neighbours."""
    best = _Best.of(len(rows), count, least)
    index = hnswlib.Index("ip", rows.shape[1])
    index.init_index(len(rows), M=_LINKS, ef_construction=_LOOKED_AT_BUILDING, random_seed=0)
    index.set_ef(max(_LOOKED_AT, 2 * count))
    batches = [slice(start, start + _BATCH) for start in range(0, len(rows), _BATCH)]
    for batch in batches:
        with figures.native():
            index.add_items(rows[batch], np.arange(len(rows))[batch], num_threads=1)
    for batch in batches:
        for begin, found, distances in _asked(index, rows, batch, min(count + 1, len(rows)), figures):
            places = np.repeat(np.arange(begin, begin + len(found)), found.shape[1])
            best.add(places, found.ravel().astype(np.int64), 1.0 - distances.ravel())
    best.settle()
    return Neighbours(best.places, best.cosines)


def _asked(
    index: hnswlib.Index, rows: Rows, batch: slice, count: int, figures: Figures
) -> Iterator[tuple[int, npt.NDArray[np.uint64], Rows]]:
    """What an index finds for rows: where they begin, the places it found, and their distances.

    It fails if it finds too few for any of the rows, as among many that are equal: then each is asked for alone.
    """
    try:
        with figures.native():
            found, distances = index.knn_query(rows[batch], count, num_threads=1)
        yield batch.start, found, distances
    except RuntimeError:
        if len(rows[batch]) > 1:
            for place in range(batch.start, min(batch.stop, len(rows))):
                yield from _asked(index, rows, slice(place, place + 1), count, figures)
        elif count > 1:
            yield from _asked(index, rows, batch, count // 2, figures)


def _bands(count: int) -> Iterator[tuple[int, int]]:
    """From narrow to wide: what the first ones find tells what the others need not look at."""
    begin, width = 0, _BAND_MIN
    while begin < count:
        yield begin, min(begin + width, count)
        begin, width = begin + width, min(2 * width, _BAND_MAX)


@dataclass(slots=True)
class _Best:
    """The best neighbours of each row so far.

    A row is offered neighbours in the order of their places. So one that is no better than the worst of those that a
    row has, once it has enough, is never among its best.
    """

    places: Whole
    cosines: Whole
    floors: Rows
    """What a cosine must be above to matter to a row."""
    least: int
    _waiting: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Whole]] = field(default_factory=list)
    _count: int = 0

    @classmethod
    def of(cls, rows: int, count: int, least: float) -> _Best:
        whole = round(least * ONE)
        floors = np.full(rows, (whole - 0.5) / ONE - 1e-6, np.float32)  # a little too low: what is offered is rounded
        return cls(np.full((rows, count), NOBODY, np.int32), np.full((rows, count), -ONE - 1, np.int32), floors, whole)

    def offer(self, first_row: int, first_place: int, cosines: Rows) -> None:
        """Cosines of a block: to each row the places."""
        rows, places = _nonzero(cosines > self.floors[first_row : first_row + len(cosines), np.newaxis])
        self.add(rows + first_row, places + first_place, cosines[rows, places])

    def offer_back(self, first_row: int, first_place: int, cosines: Rows) -> None:
        """Cosines of a block: to each place the rows."""
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
    """As numpy's own, which takes three times as long where there is little to find."""
    return np.divmod(np.flatnonzero(mask), mask.shape[1])
