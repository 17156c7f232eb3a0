"""An engine that lets a test act between a transaction's reads and its commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from drillcore_fdb.engine import Attempts, Engine, Options
from tests.faults.faulty_engine import Faults, FaultyAttempts, FaultyEngine

_OF_THE_LOG: Final = ("drillcore-sequencer", "drillcore-publisher")
"""Threads of the server's own, whose commits are no caller's."""


class HookedEngine(FaultyEngine):
    """No faults; but once, before the next commit that writes, it does what `hook` says."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, Faults(0, {}))
        self.hook: Callable[[], object] | None = None

    def begin(self, options: Options) -> Attempts:
        return _HookedAttempts(self.inner.begin(options), self)


class _HookedAttempts(FaultyAttempts):
    def __init__(self, inner: Attempts, engine: HookedEngine) -> None:
        super().__init__(inner, engine.faults)
        self._engine = engine

    def commit(self) -> tuple[int, bytes | None]:
        own = threading.current_thread().name.startswith(_OF_THE_LOG)
        hook = self._engine.hook if self._written and not own else None
        if hook is not None:
            self._engine.hook = None
            hook()
        return super().commit()
