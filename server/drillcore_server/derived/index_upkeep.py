"""What is done to an index in the background, beside searches: a graph is made, added to, or made anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from drillcore_server.derived.graph import Graph
from drillcore_server.derived.vector_index import Id, VectorIndex
from drillcore_server.derived.vector_log import BLOCK, Row, Units, VectorLog

IsStopping = Callable[[], bool]
_BUILD_SLICE: Final = 256
"""Vectors that are added to a graph that nobody searches yet, before it is asked again whether to stop."""
_ABSORB_SLICE: Final = 64
"""The same for one that is searched."""
_DAY_S: Final = 86_400
_REBUILD_MIN: Final = 1_000
"""Labels in a log that is worth to be made anew."""


def wants_rebuild(index: VectorIndex[Id]) -> bool:
    """Whether much of it is gone, or something for long."""
    size, settings = index.log.size, index.settings
    much = size >= _REBUILD_MIN and index.gone > size * settings.rebuild_share
    since_s = index.log.gone_since_s
    return much or (since_s is not None and time.time() - since_s > settings.remove_after_days * _DAY_S)


def wants_graph(index: VectorIndex[Id]) -> bool:
    """Whether more vectors than there may be are outside of a graph."""
    if len(index) <= index.settings.exact_below:
        return False
    graph = index.log.graph
    return graph is None or index.log.size - graph.count > index.settings.tail_max


def has_erased(log: VectorLog) -> bool:
    """Whether the graph still has vectors that were erased."""
    return log.graph is not None and log.graph.blanked < len(log.erased)


def grow_graph(index: VectorIndex[Id], is_stopping: IsStopping) -> None:
    """Puts what is outside of the graph into it, or makes one. Told to stop, it leaves the rest outside."""
    log = index.log
    if log.graph is None:
        log.graph = _built(log, index, is_stopping)
    for start in range(log.graph.count, log.size, _ABSORB_SLICE):
        if is_stopping():
            break
        stop = min(start + _ABSORB_SLICE, log.size)
        log.graph.absorb(log.units(np.arange(start, stop)))
    log.pack(log.graph.count)


def _built(log: VectorLog, index: VectorIndex[Id], is_stopping: IsStopping) -> Graph:
    graph = Graph.empty(log.dimensions, log.size, index.settings)
    for rows in _slices(log):
        if is_stopping():
            break
        graph.build(rows, index.settings.build_threads)
    return graph


def _slices(log: VectorLog) -> Iterator[Units]:
    for _, rows in log.unit_blocks(0, log.size):
        for start in range(0, len(rows), _BUILD_SLICE):
            yield rows[start : start + _BUILD_SLICE]


def blank_erased(log: VectorLog) -> None:
    """Removes the vectors that were erased from the graph too."""
    if log.graph is not None:
        log.graph.blank(log.erased[log.graph.blanked :])


def rebuilt(index: VectorIndex[Id], is_stopping: IsStopping) -> VectorIndex[Id] | None:
    """The same vectors in a log of their own, without what is gone. None if it was told to stop."""
    labels = np.flatnonzero(index.members)
    log = VectorLog(index.dimensions, index.log.kept_as)
    for start in range(0, len(labels), BLOCK):
        part = labels[start : start + BLOCK]
        log.add(index.log.ids(part), index.log.rows(part))
    fresh = VectorIndex[Id](log, np.ones(log.size, np.bool_), log.size, index.settings)
    if wants_graph(fresh):
        grow_graph(fresh, is_stopping)
    return None if is_stopping() else fresh


def caught_up(fresh: VectorIndex[Id], built_from: VectorIndex[Id], now: VectorIndex[Id]) -> VectorIndex[Id]:
    """What was rebuilt from one state, with all that has changed from there to a later one of the same log."""
    before = np.zeros(len(now.members), np.bool_)
    before[: len(built_from.members)] = built_from.members
    gone, came = np.flatnonzero(before & ~now.members), np.flatnonzero(now.members & ~before)
    changes: dict[Id, Row | None] = dict.fromkeys(now.ids_at(gone))
    changes |= zip(now.ids_at(came), now.log.rows(came), strict=True)
    erased = now.ids_at(np.intersect1d(gone, np.array(now.log.erased, np.int64)))
    return fresh.changed(changes, erased) if changes else fresh
