"""An engine that lets a test act between a transaction's reads and its commit."""

from __future__ import annotations

from collections.abc import Callable

from drillcore_fdb.engine import Attempts, Engine, Options
from tests.support.stores.faulty_engine import Faults, FaultyAttempts, FaultyEngine
from tests.support.stores.held_store import is_of_a_call


class HookedEngine(FaultyEngine):
    """Has no faults. Once, before the next commit that writes, it runs `hook`."""

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
        hook = self._engine.hook if self._written and is_of_a_call() else None
        if hook is not None:
            self._engine.hook = None
            hook()
        return super().commit()
