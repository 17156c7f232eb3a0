"""The last states of something that follows a corpus, from the oldest that is kept to the newest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from drillcore_server.domain.ids import Revision

T = TypeVar("T")
_STATES_MAX: Final = 32
"""Kept for readers whose transactions began before the newest revision was committed."""


class States(Generic[T]):
    """By revision. A state never changes."""

    def __init__(self) -> None:
        self.following = threading.Lock()
        """Held by whoever makes the next state: others wait and find it made."""
        self._lock = threading.Lock()
        self._states: dict[Revision, T] = {}

    def at(self, revision: Revision) -> T | None:
        return self._states.get(revision)

    def up_to(self, revision: Revision) -> tuple[Revision, T] | None:
        """The newest state that is not of a later revision."""
        with self._lock:
            known = [at for at in self._states if at <= revision]
            return (max(known), self._states[max(known)]) if known else None

    def newest(self) -> tuple[Revision, T] | None:
        with self._lock:
            return (max(self._states), self._states[max(self._states)]) if self._states else None

    def keep(self, revision: Revision, state: T, *, is_first: bool = False) -> None:
        """With `is_first` no earlier states are kept: they may hold what was erased by this one."""
        with self._lock:
            if is_first:
                self._states = {at: one for at, one in self._states.items() if at > revision}
            self._states[revision] = state
            for old in sorted(self._states)[:-_STATES_MAX]:
                del self._states[old]

    def drop(self, is_meant: Callable[[T], bool]) -> None:
        with self._lock:
            self._states = {at: state for at, state in self._states.items() if not is_meant(state)}
