"""Embedded stores for tests: opened and closed, and held up while commits queue."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_fdb.engine import Transaction

_PATIENCE_S = 30.0


@contextlib.contextmanager
def opened(path: Path, durability: Durability = Durability.RELAXED, **settings: Any) -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine.open(EmbeddedSettings(path=path, durability=durability, **settings))
    try:
        yield engine
    finally:
        engine.close()


def wait_until(condition: Callable[[], object], event: str) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {_PATIENCE_S} s in vain: {event}"
        time.sleep(0.001)


@contextlib.contextmanager
def disk_held(engine: EmbeddedEngine) -> Iterator[None]:
    """LMDB lets one writer in at a time. The test is that writer, so commits wait."""
    with engine._environment.begin(write=True) as held:
        yield
        held.abort()


def commit_as_group(
    engine: EmbeddedEngine, works: list[Callable[[Transaction], object]], run: Callable[..., Any] | None = None
) -> list[Future[Any]]:
    """Commits all `works` in one group: while the first commit is held up, the others queue behind it."""
    committer = engine.committer
    run = run or engine.run
    with ThreadPoolExecutor(len(works) + 1) as threads:
        with disk_held(engine):
            threads.submit(engine.run, lambda tr: tr.set(b"first of all", b""))
            wait_until(lambda: committer._led and not committer._queue, "the first commit leads")
            futures = []
            for number, work in enumerate(works, 1):
                futures.append(threads.submit(run, work))
                wait_until(lambda n=number: len(committer._queue) == n, "a commit queues up")  # type: ignore[misc]
        return futures


def started(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread
