"""Work begun together and settled one after the other, in the order in which it came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple


class _Waiting(NamedTuple):
    settled: Future[None]
    drop: Callable[[], None]
    size_bytes: int


class InOrder:
    """A bounded line. Settling has a thread of its own, so that it goes on while its caller waits for more."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._line: deque[_Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drillcore-settling")

    def make_room(self, size_bytes: int) -> None:
        """Waits until so much more fits, or nothing is left to wait for. Raises what settling raised."""
        while self._line and not self._fits(size_bytes):
            self._line[0].settled.result()
            self._line.popleft()

    def add(self, settle: Callable[[], None], drop: Callable[[], None], size_bytes: int) -> None:
        """`drop` is called if the line is closed before this was settled: it makes `settle` end soon."""
        self._line.append(_Waiting(self._thread.submit(settle), drop, size_bytes))

    def finish(self) -> None:
        """Waits until all is settled. Raises what settling raised."""
        while self._line:
            self._line[0].settled.result()
            self._line.popleft()

    def close(self) -> None:
        """Drops what is not settled."""
        for waiting in self._line:
            waiting.drop()
        self._thread.shutdown(cancel_futures=True)

    def _fits(self, size_bytes: int) -> bool:
        held = sum(waiting.size_bytes for waiting in self._line)
        return len(self._line) < self._count_max and held + size_bytes <= self._bytes_max
