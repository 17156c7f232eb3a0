"""The last states of one index, which share a log, from the oldest that is kept to the newest."""

from __future__ import annotations

import threading
from typing import Final, Generic

from drillcore_server.derived.index_snapshots import IndexName
from drillcore_server.derived.vector_index import Id, VectorIndex
from drillcore_server.derived.vector_log import VectorLog
from drillcore_server.domain.ids import Revision
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.sealed import SealedRecords

_STATES_MAX: Final = 32
"""Kept for readers whose transactions began before the newest revision was committed."""
_SAVE_SHARE: Final = 0.1
"""Of a graph that is new since it was saved: enough to save it again."""


class Lineage(Generic[Id]):
    def __init__(self, name: IndexName, keys: CorpusKeys, sealed: SealedRecords) -> None:
        self.name = name
        self.keys = keys
        self.sealed = sealed
        self.following = threading.Lock()
        """Held by whoever makes the next state: others wait and find it made."""
        self.tending = threading.RLock()
        """Held by whoever changes or saves its graph."""
        self._lock = threading.Lock()
        self._states: dict[Revision, VectorIndex[Id]] = {}
        self._saved: tuple[Revision, VectorLog, int] | None = None

    def at(self, revision: Revision) -> VectorIndex[Id] | None:
        return self._states.get(revision)

    def up_to(self, revision: Revision) -> tuple[Revision, VectorIndex[Id]] | None:
        """The newest state that is not of a later revision."""
        with self._lock:
            return max(((at, one) for at, one in self._states.items() if at <= revision), default=None, key=_revision)

    def newest(self) -> tuple[Revision, VectorIndex[Id]] | None:
        with self._lock:
            return max(self._states.items(), default=None, key=_revision)

    def keep(self, revision: Revision, index: VectorIndex[Id], *, is_first: bool = False) -> None:
        """With `is_first` no earlier states are kept: they may hold what was erased by this one."""
        with self._lock:
            if is_first:
                self._states = {at: one for at, one in self._states.items() if at > revision}
            self._states[revision] = index
            for old in sorted(self._states)[:-_STATES_MAX]:
                del self._states[old]

    def note_saved(self, revision: Revision, log: VectorLog) -> None:
        self._saved = revision, log, log.graph.count if log.graph is not None else 0

    def is_saved(self, revision: Revision) -> bool:
        return self._saved is not None and self._saved[0] == revision

    def is_worth_saving(self, log: VectorLog) -> bool:
        """Whether much of the graph is not in what was saved last."""
        if log.graph is None:
            return False
        if self._saved is None or self._saved[1] is not log:
            return True
        return log.graph.count - self._saved[2] > log.graph.count * _SAVE_SHARE


def _revision(state: tuple[Revision, VectorIndex[Id]]) -> Revision:
    return state[0]
