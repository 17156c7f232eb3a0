"""An embedded engine whose file can be rewritten while it is in use, so that no removed data is left in the file.

LMDB leaves what was removed in free pages until they are used again. For a store of keys that is too long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from drillcore_fdb.embedded.engine import EmbeddedEngine, EmbeddedSettings, compact
from drillcore_fdb.engine import DEFAULT_OPTIONS, Attempts, Committed, Engine, Figures, Options, Transaction
from drillcore_fdb.tuples import Subspace

T = TypeVar("T")


class RewritableEngine(Engine):
    """An engine for small stores with short transactions: everybody waits while it is rewritten."""

    def __init__(self, settings: EmbeddedSettings) -> None:
        self._settings = settings
        self._engine = EmbeddedEngine.open(settings)
        self._gate = _Gate()

    def rewrite(self) -> None:
        """Rewrites the file, so that it contains only the present content of the store.

        A crash leaves the old file or the new.
        """
        with self._gate.alone():
            self._engine.close()
            try:
                compact(self._settings.path)
            finally:
                self._engine = EmbeddedEngine.open(self._settings)

    def commit(self, work: Callable[[Transaction], T], options: Options = DEFAULT_OPTIONS) -> Committed[T]:
        with self._gate.shared():
            return self._engine.commit(work, options)

    def begin(self, options: Options) -> Attempts:
        return self._engine.begin(options)

    def directories(self, paths: Sequence[tuple[str, ...]]) -> list[Subspace]:
        with self._gate.shared():
            return self._engine.directories(paths)

    def list_directories(self, *path: str) -> list[str]:
        with self._gate.shared():
            return self._engine.list_directories(*path)

    def remove_directory(self, *path: str) -> bool:
        with self._gate.shared():
            return self._engine.remove_directory(*path)

    def describe(self) -> dict[str, str | int | float]:
        with self._gate.shared():
            return self._engine.describe()

    def figures(self) -> Figures:
        with self._gate.shared():
            return self._engine.figures()

    def close(self) -> None:
        with self._gate.alone():
            self._engine.close()


class _Gate:
    """A lock that many users may hold together, or one user alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._closed = True
            self._changed.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()
