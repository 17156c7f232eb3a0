"""The last states of one index, which share a log, from the oldest that is kept to the newest."""

from __future__ import annotations

import threading
from typing import Final

from drillcore_server.derived.index_snapshots import IndexName
from drillcore_server.derived.states import States
from drillcore_server.derived.vector_index import Id, VectorIndex
from drillcore_server.derived.vector_log import VectorLog
from drillcore_server.domain.ids import Revision
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.sealed import SealedRecords

_SAVE_SHARE: Final = 0.1
"""Of a graph that is new since it was saved: enough to save it again."""


class Lineage(States[VectorIndex[Id]]):
    def __init__(self, name: IndexName, keys: CorpusKeys, sealed: SealedRecords) -> None:
        super().__init__()
        self.name = name
        self.keys = keys
        self.sealed = sealed
        self.tending = threading.RLock()
        """Held by whoever changes or saves its graph."""
        self._saved: tuple[Revision, VectorLog, int] | None = None

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
