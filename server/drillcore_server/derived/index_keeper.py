"""The thread that tends a server's vector indexes: graphs grow and are rebuilt beside searches, and are saved."""

from __future__ import annotations

import threading
from typing import Protocol

import structlog

from drillcore_fdb.errors import EngineError
from drillcore_server.derived.index_snapshots import IndexName
from drillcore_server.derived.index_upkeep import IsStopping


class Tended(Protocol):
    """Whatever has indexes."""

    def tend(self, name: IndexName, is_stopping: IsStopping) -> None:
        """Does what is due for an index, and returns soon once it is told to stop."""

    def save_all(self) -> None:
        """Saves what has changed since it was saved last."""


class IndexKeeper:
    """One for all indexes of a server, so that no more than one graph is built at a time. `start`, then `stop`."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._tended: list[Tended] = []
        self._waiting: dict[tuple[int, IndexName], None] = {}
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="drillcore-indexes", daemon=True)

    def know(self, tended: Tended) -> None:
        self._tended.append(tended)

    def nudge(self, tended: Tended, name: IndexName) -> None:
        """Says that something is due. Costs the caller nothing."""
        with self._changed:
            self._waiting[self._tended.index(tended), name] = None
            self._changed.notify()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends what is under way and saves all."""
        with self._changed:
            self._stopping.set()
            self._changed.notify()
        self._thread.join()
        for tended in self._tended:
            try:
                tended.save_all()
            except EngineError as error:
                self._log.warning("indexes not saved", error=error.message, code=error.code)

    def _work(self) -> None:
        while not self._stopping.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping.is_set())
                due = list(self._waiting)
                self._waiting.clear()
            for place, name in due:
                self._tend(self._tended[place], name)

    def _tend(self, tended: Tended, name: IndexName) -> None:
        try:
            tended.tend(name, self._stopping.is_set)
        except EngineError as error:
            self._log.warning("index not tended, will try again", index=str(name), error=error.message, code=error.code)
        except Exception as error:  # searches go on without it, and the next index is still tended
            self._log.error("index not tended", index=str(name), error=repr(error))
