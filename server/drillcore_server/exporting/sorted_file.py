"""Puts any number of byte strings in order, each once, in bounded memory: sorted runs wait in sealed files."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, Self

from drillcore_server.exporting.sealed_file import SealedFile

RUN_BYTES: Final = 16 << 20
"""Held in memory until they are sorted and put away; with what Python adds to each, about twice that."""
_ITEM_BYTES: Final = 50
"""That a byte string takes beside its bytes."""
_RUNS_MAX: Final = 64
"""Read side by side, each with a piece of its file in memory. More are merged into one."""


class SortedFile:
    """Add, then go through it as often as you like."""

    def __init__(self, run_bytes: int = RUN_BYTES) -> None:
        self._run_bytes = run_bytes
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._runs: list[SealedFile] = []

    def add(self, item: bytes) -> None:
        self._open.append(item)
        self._open_bytes += len(item) + _ITEM_BYTES
        if self._open_bytes > self._run_bytes:
            self._put_away()

    def __iter__(self) -> Iterator[bytes]:
        """In order, equal ones once."""
        return _once(heapq.merge(sorted(self._open), *map(_items, self._runs)))

    def close(self) -> None:
        for run in self._runs:
            run.close()
        self._runs.clear()
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put_away(self) -> None:
        self._runs.append(_run(_once(sorted(self._open))))
        self._open.clear()
        self._open_bytes = 0
        if len(self._runs) == _RUNS_MAX:
            merged = _run(_once(heapq.merge(*map(_items, self._runs))))
            for run in self._runs:
                run.close()
            self._runs = [merged]


def _run(items: Iterable[bytes]) -> SealedFile:
    file = SealedFile()
    for item in items:
        file.write(len(item).to_bytes(4, "big") + item)
    return file


def _items(run: SealedFile) -> Iterator[bytes]:
    rest = b""
    for piece in run.pieces():
        data, at = rest + piece, 0
        while (end := at + 4 + int.from_bytes(data[at : at + 4], "big")) <= len(data) and at + 4 <= len(data):
            yield data[at + 4 : end]
            at = end
        rest = data[at:]


def _once(items: Iterable[bytes]) -> Iterator[bytes]:
    last: bytes | None = None
    for item in items:
        if item != last:
            yield item
        last = item
