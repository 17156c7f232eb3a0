"""Records made shorter before they are sealed.

    0x00 record      as it is
    0x01 deflated    raw deflate, with a dictionary that both sides know

Records are short and each is compressed alone, so there is little that deflate could refer back to. The dictionary is
there from the first byte: common words of English regulations (`words.txt`: those that at least five of six EU acts and
21 CFR Part 11 use), and the names that records are full of. It is part of the format: stored records cannot be read
without exactly these bytes, so a better one gets a number of its own.
"""

from __future__ import annotations

import functools
import zlib
from importlib import resources
from typing import Final

from drillcore_fdb.errors import StoreCorruptError

_PLAIN, _DEFLATED = b"\0", b"\1"
_SQUEEZE_FROM_BYTES: Final = 32
"""Shorter records do not get shorter."""
_LEVEL: Final = 6
_MEMORY_LEVEL: Final = 6
"""Less state to copy for each record than the default of 8, and hardly longer results."""
_RAW_DEFLATE: Final = -zlib.MAX_WBITS
"""Without header and checksum: the seal says better whether a record is what it was."""

_NAMES: Final = b"".join(
    (
        b"\xb0decoded as utf-8\xafapplication/pdf\xa9text/html\xaatext/plain\xadtext/markdown\x80",
        b"\xd9\x2awordllama-l2-supercat-256@aabc9a7f13c031f2\xa8operator\x93\xaaextractive\xa11\xc0",
        b"\x92\xa3url\xabhttps://www.\x92\xa5email\x92\xa5place\x92\xa6person\x92\xacorganisation",
        b"\x92\xa6amount\xaaUSD 100000\x92\xa6amount\xa7EUR 100\x92\xa4date\xaa2020-01-01",
        b"\x92\xaaregulation\xa9\xc2\xa7 100.",
    )
)


def squeezed(record: bytes) -> bytes:
    if len(record) >= _SQUEEZE_FROM_BYTES:
        compressor = _compressor().copy()
        deflated = compressor.compress(record) + compressor.flush()
        if len(deflated) < len(record):
            return _DEFLATED + deflated
    return _PLAIN + record


def dense(record: bytes) -> bytes:
    """For what does not get shorter, as vectors: without trying."""
    return _PLAIN + record


def unsqueezed(stored: bytes) -> bytes:
    """Raises `StoreCorruptError` if it is neither."""
    if stored[:1] == _PLAIN:
        return stored[1:]
    try:
        if stored[:1] != _DEFLATED:
            raise ValueError(f"kind {stored[:1]!r}")
        decompressor = zlib.decompressobj(_RAW_DEFLATE, dictionary())
        record = decompressor.decompress(stored[1:])
        if not decompressor.eof:
            raise ValueError("it ends too early")
    except (zlib.error, ValueError) as error:
        raise StoreCorruptError(f"a stored record cannot be read: {error}") from error
    return record


@functools.cache
def dictionary() -> bytes:
    """Words that save the most last: deflate needs fewer bits for what is near."""
    words = resources.files(__package__).joinpath("words.txt").read_text(encoding="ascii").split()
    return _NAMES + "".join(f" {word}" for word in words).encode()


@functools.cache
def _compressor() -> zlib._Compress:
    """Primed with the dictionary, to be copied: priming takes longer than compressing a record."""
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE, _MEMORY_LEVEL, zdict=dictionary())
