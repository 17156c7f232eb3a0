"""Which facts are most like a fact: exactly, and the same on every server. Found for many at once, and remembered.

Products of many vectors at once are fast, but their last bits depend on which were multiplied together. So they only
choose candidates, generously; those are compared again one by one, as whole millionths, ties to the smaller id.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from drillcore_server.facts.index import FactIndex
from drillcore_server.storage.ids import FactId
from drillcore_server.vectors.vector_log import Labels, Units

SIMILAR_MAX: Final = 5
"""Facts that a fact is like."""
LEAST: Final = 0.60
_ROUNDING: Final = 1e-4
"""How far a product may be from the same one made by itself; far more than it is."""
_AT_ONCE: Final = 128
Similar = tuple[FactId, ...]
"""The nearest first."""


class SimilarFacts:
    """Remembers what it found for as long as the state of the index is in use. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[FactIndex, dict[FactId, Similar]] = WeakKeyDictionary()

    def of(self, index: FactIndex, fact: FactId, others: Sequence[FactId] = ()) -> Similar:
        """Of a fact of the index; what may be asked next is found along with it."""
        with self._lock:
            known = self._known.setdefault(index, {})
        if fact not in known:
            wanted = [fact, *(one for one in others if one not in known and one != fact)][:_AT_ONCE]
            known.update(zip(wanted, _found(index, wanted), strict=True))
        return known[fact]


def _found(index: FactIndex, wanted: Sequence[FactId]) -> list[Similar]:
    candidates = _candidates(index, index.rows(wanted))
    return [_chosen(index, one, labels) for one, labels in zip(wanted, candidates, strict=True)]


def _candidates(index: FactIndex, queries: Units) -> list[Labels]:
    """For each query labels among which the nearest are, in order."""
    found: list[list[Labels]] = [[] for _ in queries]
    for first, block in index.log.unit_blocks(0, len(index.members)):
        products = queries @ block.T
        products[:, ~index.members[first : first + len(block)]] = -1.0
        for labels, row in zip(found, products, strict=True):
            labels.append(first + _best(row))
    return [np.concatenate(labels) for labels in found]


def _best(products: npt.NDArray[np.float32]) -> Labels:
    """Where the best of a block are: a fact itself, those it is like, and any that may be equal to the last of them."""
    count, least = SIMILAR_MAX + 1, LEAST
    if len(products) > count:
        least = max(least, float(np.partition(products, len(products) - count)[len(products) - count]))
    return np.flatnonzero(products >= least - _ROUNDING)


def _chosen(index: FactIndex, fact: FactId, labels: Labels) -> Similar:
    vector = index.kept(fact)
    assert vector is not None, "only facts of the index are asked for"
    nearest = index.best((index.cosines(vector, labels), labels), SIMILAR_MAX + 1)
    return tuple(one for one, score in nearest if one != fact and score >= LEAST)[:SIMILAR_MAX]
