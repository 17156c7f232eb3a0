"""Runs work in several threads that begin at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def concurrently(threads: int, work: Callable[[int], T]) -> list[T]:
    """Returns what `work` returned for 0, 1, 2 ..., each in a thread of its own. Raises what any of them raised."""
    together = threading.Barrier(threads)

    def begin(number: int) -> T:
        together.wait(timeout=30)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))
