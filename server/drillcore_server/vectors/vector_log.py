"""Vectors in memory, each under a label: the place at which it was added. The log only grows, so many states share it.

A vector is kept unscaled, with the numbers that are stored. Beside it is the same vector scaled to length 1 in single
precision, which searches compare. Once the vector is in a graph, the scaled one is dropped and made again on demand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_server.vectors.hnsw_graph import Graph

Row = npt.NDArray[np.number]
Rows = npt.NDArray[np.number]
Units = npt.NDArray[np.float32]
"""Rows of length 1."""
Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
"""True for the selected labels."""
BLOCK: Final = 4_096
"""Rows that are allocated and compared at once."""
_FEW: Final = 512
"""Up to this many labels, taking them one by one is faster than block by block."""
_ID_BYTES: Final = 16


def units(rows: Rows) -> Units:
    """Scales each row to length 1; zeros stay zeros. A row gets the same bits alone and among others."""
    single = rows.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", single, single))
    single /= np.maximum(lengths, 1e-12)[:, np.newaxis]
    return single


class _Block:
    def __init__(self, dimensions: int, kept_as: npt.DTypeLike) -> None:
        self.ids = np.empty((BLOCK, _ID_BYTES), np.uint8)
        self.rows: Rows = np.empty((BLOCK, dimensions), kept_as)
        self._units: Units | None = np.empty((BLOCK, dimensions), np.float32)

    def put(self, start: int, ids: npt.NDArray[np.uint8], rows: Rows) -> None:
        stop = start + len(ids)
        self.ids[start:stop] = ids
        self.rows[start:stop] = rows
        if self._units is not None:
            self._units[start:stop] = units(self.rows[start:stop])

    def blank(self, place: int) -> None:
        self.rows[place] = 0
        if self._units is not None:
            self._units[place] = 0

    def units(self, start: int, stop: int) -> Units:
        made = self._units
        return units(self.rows[start:stop]) if made is None else made[start:stop]

    def units_at(self, places: Labels) -> Units:
        made = self._units
        return units(self.rows[places]) if made is None else made[places]

    def pack(self) -> None:
        self._units = None


class VectorLog:
    """One thread at a time may add; any number may read."""

    def __init__(self, dimensions: int, kept_as: npt.DTypeLike) -> None:
        self.dimensions = dimensions
        self.kept_as = np.dtype(kept_as)
        self.size = 0
        self.graph: Graph | None = None
        """Contains the vectors of all labels below its count, and no others."""
        self.add_lock = threading.RLock()
        self.erased: list[int] = []
        """Labels whose vectors are blanked here, each once. The graph may still contain some of them."""
        self.gone_since_s: float | None = None
        """When the first of its vectors left the newest state; None while all are there."""
        self._blocks: list[_Block] = []
        self._labels: dict[bytes, int] = {}
        """The last label of each id."""
        self._earlier: dict[int, int] = {}
        """For a label, the one that its id had before."""

    def note_gone(self) -> None:
        """Notes that only earlier states need some of its vectors from now on. The caller holds `add_lock`."""
        self.gone_since_s = self.gone_since_s or time.time()

    def add(self, ids: npt.NDArray[np.uint8], rows: Rows, *, packed: bool = False) -> int:
        """Adds rows under new labels, in order, and returns the first label. The caller holds `add_lock`.

        With `packed`, whole blocks of them are in a graph already.
        """
        assert rows.shape == (len(ids), self.dimensions), "a vector of the wrong length"
        assert np.isfinite(rows).all(), "a vector that is not made of numbers"
        first = self.size
        self._make_room(first + len(ids), packed=packed and len(ids) == BLOCK)
        for start in range(0, len(ids), BLOCK):
            self._put(first + start, ids[start : start + BLOCK], rows[start : start + BLOCK])
        for label, id_ in enumerate(map(bytes, ids), first):
            before = self._labels.get(id_)
            if before is not None:
                self._earlier[label] = before
            self._labels[id_] = label
        self.size = first + len(ids)
        return first

    def _make_room(self, size: int, *, packed: bool) -> None:
        while len(self._blocks) * BLOCK < size:
            self._blocks.append(_Block(self.dimensions, self.kept_as))
            if packed:
                self._blocks[-1].pack()

    def _put(self, label: int, ids: npt.NDArray[np.uint8], rows: Rows) -> None:
        number, start = divmod(label, BLOCK)
        here = min(len(ids), BLOCK - start)
        self._blocks[number].put(start, ids[:here], rows[:here])
        if here < len(ids):
            self._blocks[number + 1].put(0, ids[here:], rows[here:])

    def label(self, id_: bytes, members: Mask) -> int | None:
        """Returns the label of an id in a state; None if the state does not have it."""
        label = self._labels.get(id_)
        while label is not None and not (label < len(members) and members[label]):
            label = self._earlier.get(label)
        return label

    def labels(self, wanted: Collection[UUID], members: Mask) -> Labels:
        """Returns the sorted labels of those ids that a state has."""
        return self.labels_of([id_.bytes for id_ in wanted], members)

    def labels_of(self, wanted: Sequence[bytes], members: Mask) -> Labels:
        """The same for ids as bytes. In most cases the last label of an id is the right one."""
        last = np.fromiter((self._labels.get(id_, -1) for id_ in wanted), np.int64, len(wanted))
        inside = (last >= 0) & (last < len(members))
        inside[inside] = members[last[inside]]
        found = last[inside]
        if len(found) < len(wanted):
            others = (self.label(wanted[place], members) for place in np.flatnonzero(~inside).tolist())
            found = np.concatenate([found, np.array([label for label in others if label is not None], np.int64)])
        return np.sort(found)

    def ever(self, wanted: Iterable[UUID]) -> Iterator[int]:
        """Yields every label that these ids ever had, in any state."""
        for id_ in wanted:
            label = self._labels.get(id_.bytes)
            while label is not None:
                yield label
                label = self._earlier.get(label)

    def ids(self, labels: Labels) -> npt.NDArray[np.uint8]:
        if 0 < len(labels) <= _FEW:
            blocks = self._blocks
            return np.stack([blocks[label // BLOCK].ids[label % BLOCK] for label in labels.tolist()])
        found = np.empty((len(labels), _ID_BYTES), np.uint8)
        for block, here, places in self._by_block(labels):
            found[here] = block.ids[places]
        return found

    def rows(self, labels: Labels) -> Rows:
        """Returns the unscaled rows."""
        if 0 < len(labels) <= _FEW:
            blocks = self._blocks
            return np.stack([blocks[label // BLOCK].rows[label % BLOCK] for label in labels.tolist()])
        found = np.empty((len(labels), self.dimensions), self.kept_as)
        for block, here, places in self._by_block(labels):
            found[here] = block.rows[places]
        return found

    def units(self, labels: Labels) -> Units:
        found = np.empty((len(labels), self.dimensions), np.float32)
        for block, here, places in self._by_block(labels):
            found[here] = block.units_at(places)
        return found

    def products(self, query: Units, labels: Labels) -> npt.NDArray[np.float32]:
        """Returns the inner product of each vector with the query: the same bits, whichever others are asked for."""
        if len(labels) <= _FEW:  # scattered over the log, as a graph finds them
            return np.asarray(np.einsum("ij,j->i", units(self.rows(labels)), query), np.float32)
        found = np.empty(len(labels), np.float32)
        for block, here, places in self._by_block(labels):
            first, stop = int(places[0]), int(places[-1]) + 1
            if 2 * len(places) > stop - first:  # less work than gathering the requested rows
                found[here] = np.einsum("ij,j->i", block.units(first, stop), query)[places - first]
            else:
                found[here] = np.einsum("ij,j->i", block.units_at(places), query)
        return found

    def _by_block(self, labels: Labels) -> Iterator[tuple[_Block, slice, Labels]]:
        """Yields for sorted labels each block with its part of them, and their places there."""
        numbers, starts = np.unique(labels // BLOCK, return_index=True)
        for number, (start, stop) in zip(numbers, pairwise([*starts, len(labels)]), strict=True):
            yield self._blocks[number], slice(start, stop), labels[start:stop] % BLOCK

    def unit_blocks(self, start: int, stop: int) -> Iterator[tuple[int, Units]]:
        """Yields the vectors of the labels from `start` up to `stop` in blocks, each with its first label."""
        for number in range(start // BLOCK, -(-stop // BLOCK)):
            first = number * BLOCK
            skipped = max(start - first, 0)
            yield first + skipped, self._blocks[number].units(skipped, min(stop - first, BLOCK))

    def pack(self, stop: int) -> None:
        """Notes that labels below `stop` are in the graph."""
        for block in self._blocks[: stop // BLOCK]:
            block.pack()

    def erase(self, labels: Iterable[int]) -> None:
        """Blanks vectors that must not stay in memory. The caller holds `add_lock`."""
        wanted = {*labels}
        if not wanted:
            return
        fresh = sorted(wanted.difference(self.erased))
        for label in fresh:
            self._blocks[label // BLOCK].blank(label % BLOCK)
        self.erased += fresh


def as_id_bytes(ids: Collection[UUID]) -> npt.NDArray[np.uint8]:
    joined = b"".join(id_.bytes for id_ in ids)
    return np.frombuffer(joined, np.uint8).reshape(len(ids), _ID_BYTES)
