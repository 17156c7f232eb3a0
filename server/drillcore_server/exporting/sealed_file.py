"""What waits to be sent: written once, then read. Little of it stays in memory, the rest lies in a temporary file.

What is in the file is sealed with a key that only this object has, and the file has no name: nothing of it can be read
once it is closed, or the process has ended, however it ended.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Final, Self

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PIECE_BYTES: Final = 256 * 1024
"""Sealed, written and read at once; all that is held in memory. What is smaller never gets to the disk."""
_TAG_BYTES: Final = 16


class SealedFile:
    """Write, then read as often as you like: what was read once can no longer be added to."""

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
        """There is nothing to flush: who writes it expects the method."""

    @property
    def sha256(self) -> bytes:
        """Of what was written so far."""
        return self._hash.digest()

    def pieces(self) -> Iterator[bytes]:
        """What was written, in pieces of `PIECE_BYTES`; only the last may be shorter."""
        return self.pieces_from(0)

    def pieces_from(self, offset: int) -> Iterator[bytes]:
        """The same from a place on, the first cut to begin there. Several may be gone through side by side."""
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
        """Forgets everything."""
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
    """A file's key seals each piece once."""
    return number.to_bytes(12, "big")
