"""Records whose private part is not there, and whether the log says why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from drillcore.audit.reports import Findings, Outcome

NOT_ERASED: Final = "its private part is missing without an erasure"


class Erasures:
    """Records come before the erasure that explains them, so they wait for it: an index and an id each."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._destroyed: set[int] = set()
        self._waiting: dict[int, list[tuple[int, UUID]]] = {}

    def add(self, index: int, record: UUID, key: int) -> None:
        """A record whose private part was sealed under this key, and is not there."""
        if key in self._destroyed:
            self._found.settle(index, record, Outcome.ERASED)
        else:
            self._waiting.setdefault(key, []).append((index, record))

    def destroyed(self, keys: Iterable[int]) -> None:
        """A verified record says that these keys were destroyed."""
        for key in keys:
            self._destroyed.add(key)
            for index, record in self._waiting.pop(key, ()):
                self._found.settle(index, record, Outcome.ERASED)

    def end(self) -> None:
        for waiting in self._waiting.values():
            for index, record in waiting:
                self._found.settle(index, record, Outcome.TAMPERED, NOT_ERASED)
        self._waiting.clear()
