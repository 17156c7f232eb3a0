"""Measures side by side: rivals take turns, so that a busy moment of the machine affects all of them."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rates(rivals: Mapping[str, tuple[int, Callable[[], object]]], rounds: int) -> dict[str, list[float]]:
    """Returns operations a second of each rival in each round. A rival is a call and the number of
    operations it does."""
    measured: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, (count, work) in rivals.items():
            measured[name].append(count / seconds(work))
    return measured


def ratio(measured: Mapping[str, list[float]], ours: str, theirs: str) -> float:
    """Returns the median over the rounds of our rate divided by theirs in the same round."""
    pairs = zip(measured[ours], measured[theirs], strict=True)
    return round(statistics.median(own / other for own, other in pairs), 3)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
