"""Temporary files that nobody else can read, and sorting in bounded memory with them.

The content is sealed with a key that only the object has, and the file has no name. So nothing can be read once it is
closed or the process has ended.
"""

from __future__ import annotations

import hashlib
import heapq
import tempfile
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import IO, Final, Self

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PIECE_BYTES: Final = 256 * 1024
"""The size of a piece, which is sealed, written and read as a whole. Smaller content stays in memory."""
_TAG_BYTES: Final = 16


class SealedFile:
    """Write first, then read as often as you like. After the first read, writing is not allowed."""

    def __init__(self) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(256))
        self._file: IO[bytes] | None = None
        self._pieces = 0
        self._open = bytearray()
        """The last piece, which is not full yet."""
        self._hash = hashlib.sha256()
        self._done = False
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        assert not self._done, "it is being read"
        self._hash.update(data)
        self.size_bytes += len(data)
        self._open += data
        while len(self._open) >= PIECE_BYTES:
            self._seal(bytes(self._open[:PIECE_BYTES]))
            del self._open[:PIECE_BYTES]
        return len(data)

    def flush(self) -> None:
        """Does nothing: `zipfile` expects the method."""

    @property
    def sha256(self) -> bytes:
        """The hash of what was written so far."""
        return self._hash.digest()

    def pieces(self) -> Iterator[bytes]:
        """What was written, in pieces of `PIECE_BYTES`; only the last may be shorter."""
        return self.pieces_from(0)

    def pieces_from(self, offset: int) -> Iterator[bytes]:
        """The content from an offset on. Several iterators may be used side by side."""
        self._done = True
        first, skipped = divmod(offset, PIECE_BYTES)
        for number in range(first, self._pieces):
            yield self._piece(number)[skipped:]
            skipped = 0
        if first > self._pieces:
            return
        if rest := bytes(self._open[skipped:]):
            yield rest

    def _piece(self, number: int) -> bytes:
        assert self._file is not None
        self._file.seek(number * (PIECE_BYTES + _TAG_BYTES))
        return self._cipher.decrypt(_nonce(number), self._file.read(PIECE_BYTES + _TAG_BYTES), None)

    def close(self) -> None:
        """Deletes the content."""
        self._open.clear()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _seal(self, piece: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="drillcore-")  # noqa: SIM115 - closed with the object
        self._file.write(self._cipher.encrypt(_nonce(self._pieces), piece, None))
        self._pieces += 1


def _nonce(number: int) -> bytes:
    """Each key seals each piece once, so the piece's number is a safe nonce."""
    return number.to_bytes(12, "big")


RUN_BYTES: Final = 16 << 20
"""Bytes held in memory before they are sorted and written. Python needs about twice as much."""
_ITEM_BYTES: Final = 50
"""The memory that a byte string needs in addition to its bytes."""
_RUNS_MAX: Final = 64
"""Runs that are read side by side, each with one piece in memory. More are merged into one."""


class SortedFile:
    """Sorts any number of byte strings in bounded memory. Add first, then iterate as often as you like."""

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
        """The items in order, without duplicates."""
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
