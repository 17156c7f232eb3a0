"""Maintains vector indexes in the background, beside searches: makes, extends, rebuilds and saves their graphs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Protocol

import numpy as np
import structlog

from drillcore_server.kernel.telemetry import Round
from drillcore_server.vectors.hnsw_graph import Graph
from drillcore_server.vectors.index_snapshots import IndexName
from drillcore_server.vectors.vector_index import Id, VectorIndex
from drillcore_server.vectors.vector_log import BLOCK, Row, Units, VectorLog

TEND_EVERY_S: Final = 60.0
"""How often the keeper looks without being nudged."""
IsStopping = Callable[[], bool]
_BUILD_SLICE: Final = 256
"""Vectors added to a graph that nobody searches yet, before the next check whether to stop."""
_ABSORB_SLICE: Final = 64
"""The same for a graph that is searched."""
_DAY_S: Final = 86_400
_REBUILD_MIN: Final = 1_000
"""A log with fewer labels is not worth rebuilding."""


def wants_rebuild(index: VectorIndex[Id]) -> bool:
    """Tells whether much of the log does not belong to the index any more, or something has not for long."""
    size, settings = index.log.size, index.settings
    much = size >= _REBUILD_MIN and index.gone > size * settings.rebuild_share
    since_s = index.log.gone_since_s
    return much or (since_s is not None and time.time() - since_s > settings.remove_after_days * _DAY_S)


def wants_graph(index: VectorIndex[Id]) -> bool:
    """Tells whether too many vectors are outside the graph."""
    if len(index) <= index.settings.exact_below:
        return False
    graph = index.log.graph
    return graph is None or index.log.size - graph.count > index.settings.tail_max


def has_erased(log: VectorLog) -> bool:
    """Tells whether the graph still contains erased vectors."""
    return log.graph is not None and log.graph.blanked < len(log.erased)


def grow_graph(index: VectorIndex[Id], is_stopping: IsStopping) -> None:
    """Adds what is outside the graph, or makes a graph. When told to stop, it leaves the rest outside."""
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
    graph = Graph.empty(log.dimensions, index.settings)
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
    """Removes erased vectors from the graph too."""
    if log.graph is not None:
        log.graph.blank(log.erased[log.graph.blanked :])


def rebuilt(index: VectorIndex[Id], is_stopping: IsStopping) -> VectorIndex[Id] | None:
    """Returns the same vectors in a new log, without what is gone; None if it was told to stop."""
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
    """Returns the rebuilt index with everything that changed from `built_from` to `now`, a later state of
    the same log."""
    before = np.zeros(len(now.members), np.bool_)
    before[: len(built_from.members)] = built_from.members
    gone, added = np.flatnonzero(before & ~now.members), np.flatnonzero(now.members & ~before)
    changes: dict[Id, Row | None] = dict.fromkeys(now.ids_at(gone))
    changes |= zip(now.ids_at(added), now.log.rows(added), strict=True)
    erased = now.ids_at(np.intersect1d(gone, np.array(now.log.erased, np.int64)))
    return fresh.changed(changes, erased) if changes else fresh


class IndexOwner(Protocol):
    """Owns indexes that the keeper maintains."""

    def tend(self, name: IndexName, is_stopping: IsStopping) -> None:
        """Does what is due for an index. Returns soon once it is told to stop."""

    def save_all(self) -> None:
        """Saves what has changed since it was last saved."""


class IndexKeeper:
    """Maintains all indexes of a server, so that only one graph is built at a time."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._owners: list[IndexOwner] = []
        self._waiting: dict[tuple[int, IndexName], None] = {}
        self._lock = threading.Lock()
        self.wake = threading.Event()

    def register(self, owner: IndexOwner) -> None:
        self._owners.append(owner)

    def nudge(self, owner: IndexOwner, name: IndexName) -> None:
        """Notes that an index needs maintenance. Returns at once."""
        with self._lock:
            self._waiting[self._owners.index(owner), name] = None
        self.wake.set()

    def tend_due(self, is_stopping: IsStopping) -> None:
        """Maintains every index that was nudged. An index that fails is due again in the next round; searches go on."""
        with self._lock:
            due = list(self._waiting)
            self._waiting.clear()
        with Round(self._log, "index not tended") as tends:
            for place, name in due:
                with tends.part(index=str(name)):
                    self._tend(place, name, is_stopping)

    def _tend(self, place: int, name: IndexName, is_stopping: IsStopping) -> None:
        try:
            self._owners[place].tend(name, is_stopping)
        except Exception:
            with self._lock:
                self._waiting[place, name] = None
            raise

    def save(self) -> None:
        """Saves all indexes, for a server that stops. What cannot be saved is made anew after the next start."""
        with suppress(ExceptionGroup), Round(self._log, "indexes not saved") as saves:
            for owner in self._owners:
                with saves.part():
                    owner.save_all()
