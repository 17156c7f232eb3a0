"""Vectors in memory, each under a label: the place at which it was added. Only ever added to: many may share it.

A vector is kept as it came, in half or single precision. Beside it stands the same with length 1 in single precision,
which searches compare, until the vector is in a graph: then it is made when it is needed.
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

from drillcore_server.derived.graph import Graph

Row = npt.NDArray[np.floating]
Rows = npt.NDArray[np.floating]
Units = npt.NDArray[np.float32]
"""Rows of length 1."""
Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
"""True for the labels that are meant."""
BLOCK: Final = 4_096
"""Rows that are allocated, and compared, at once."""
_FEW: Final = 512
"""Labels that are sooner taken one by one than block by block."""
_ID_BYTES: Final = 16


def units(rows: Rows) -> Units:
    """Each row with length 1; zeros stay zeros. A row gets the same bits alone and among others."""
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
    """Added to by one thread at a time, read by any number."""

    def __init__(self, dimensions: int, kept_as: npt.DTypeLike) -> None:
        self.dimensions = dimensions
        self.kept_as = np.dtype(kept_as)
        self.size = 0
        self.graph: Graph | None = None
        """Has the labels below its count, and no others."""
        self.adding = threading.RLock()
        self.erased: list[int] = []
        """Labels whose vectors have been blanked, each once. Those in the graph may still have to be."""
        self.gone_since_s: float | None = None
        """When the first of its vectors was gone from the newest state; None while all are there."""
        self._blocks: list[_Block] = []
        self._labels: dict[bytes, int] = {}
        """The last label that each id was given."""
        self._earlier: dict[int, int] = {}
        """For a label, the one that its id had before."""

    def note_gone(self) -> None:
        """Some of its vectors are of no use from now on but to earlier states. The caller holds `adding`."""
        self.gone_since_s = self.gone_since_s or time.time()

    def add(self, ids: npt.NDArray[np.uint8], rows: Rows, *, packed: bool = False) -> int:
        """Adds rows under new labels, in order; the first of them. The caller holds `adding`.

        With `packed` whole blocks of them are in a graph already.
        """
        assert rows.shape == (len(ids), self.dimensions), "a vector of the wrong length"
        assert np.isfinite(rows).all(), "a vector that is not made of numbers"
        first = self.size
        self._make_room(first + len(ids), packed=packed and len(ids) == BLOCK)
        for start in range(0, len(ids), BLOCK):
            self._put(first + start, ids[start : start + BLOCK], rows[start : start + BLOCK])
        for label, one in enumerate(map(bytes, ids), first):
            before = self._labels.get(one)
            if before is not None:
                self._earlier[label] = before
            self._labels[one] = label
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

    def label(self, one: bytes, members: Mask) -> int | None:
        """The label of an id among those that a state has."""
        label = self._labels.get(one)
        while label is not None and not (label < len(members) and members[label]):
            label = self._earlier.get(label)
        return label

    def labels(self, wanted: Collection[UUID], members: Mask) -> Labels:
        """The labels, in order, of those ids that a state has."""
        return self.labels_of([one.bytes for one in wanted], members)

    def labels_of(self, wanted: Sequence[bytes], members: Mask) -> Labels:
        """The same of the bytes of ids. Mostly the last label that an id was given is the one."""
        last = np.fromiter((self._labels.get(one, -1) for one in wanted), np.int64, len(wanted))
        inside = (last >= 0) & (last < len(members))
        inside[inside] = members[last[inside]]
        found = last[inside]
        if len(found) < len(wanted):
            others = (self.label(wanted[place], members) for place in np.flatnonzero(~inside).tolist())
            found = np.concatenate([found, np.array([one for one in others if one is not None], np.int64)])
        return np.sort(found)

    def ever(self, wanted: Iterable[UUID]) -> Iterator[int]:
        """Every label that these ids were given at any time, whichever states have them."""
        for one in wanted:
            label = self._labels.get(one.bytes)
            while label is not None:
                yield label
                label = self._earlier.get(label)

    def ids(self, labels: Labels) -> npt.NDArray[np.uint8]:
        if 0 < len(labels) <= _FEW:
            blocks = self._blocks
            return np.stack([blocks[one // BLOCK].ids[one % BLOCK] for one in labels.tolist()])
        found = np.empty((len(labels), _ID_BYTES), np.uint8)
        for block, here, places in self._by_block(labels):
            found[here] = block.ids[places]
        return found

    def rows(self, labels: Labels) -> Rows:
        """As they came."""
        if 0 < len(labels) <= _FEW:
            blocks = self._blocks
            return np.stack([blocks[one // BLOCK].rows[one % BLOCK] for one in labels.tolist()])
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
        """The inner product of each vector with the query. The same bits for one, whichever others are asked for."""
        if len(labels) <= _FEW:  # from all over the log, as a graph finds them
            return np.asarray(np.einsum("ij,j->i", units(self.rows(labels)), query), np.float32)
        found = np.empty(len(labels), np.float32)
        for block, here, places in self._by_block(labels):
            first, stop = int(places[0]), int(places[-1]) + 1
            if 2 * len(places) > stop - first:  # less work than to gather those that are asked for
                found[here] = np.einsum("ij,j->i", block.units(first, stop), query)[places - first]
            else:
                found[here] = np.einsum("ij,j->i", block.units_at(places), query)
        return found

    def _by_block(self, labels: Labels) -> Iterator[tuple[_Block, slice, Labels]]:
        """For labels in order: each block with the part of them that is in it, and their places there."""
        numbers, starts = np.unique(labels // BLOCK, return_index=True)
        for number, (start, stop) in zip(numbers, pairwise([*starts, len(labels)]), strict=True):
            yield self._blocks[number], slice(start, stop), labels[start:stop] % BLOCK

    def unit_blocks(self, start: int, stop: int) -> Iterator[tuple[int, Units]]:
        """The vectors of the labels from `start` up to `stop`, block by block, each with its first label."""
        for number in range(start // BLOCK, -(-stop // BLOCK)):
            first = number * BLOCK
            skipped = max(start - first, 0)
            yield first + skipped, self._blocks[number].units(skipped, min(stop - first, BLOCK))

    def pack(self, stop: int) -> None:
        """Labels below `stop` are in the graph."""
        for block in self._blocks[: stop // BLOCK]:
            block.pack()

    def erase(self, labels: Iterable[int]) -> None:
        """Blanks vectors that must not be kept, not even where nobody sees them. The caller holds `adding`."""
        wanted = {*labels}
        if not wanted:
            return
        fresh = sorted(wanted.difference(self.erased))
        for label in fresh:
            self._blocks[label // BLOCK].blank(label % BLOCK)
        self.erased += fresh


def as_id_bytes(ids: Collection[UUID]) -> npt.NDArray[np.uint8]:
    joined = b"".join(one.bytes for one in ids)
    return np.frombuffer(joined, np.uint8).reshape(len(ids), _ID_BYTES)
