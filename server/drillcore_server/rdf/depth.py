"""How deep triple terms are in each other in a file of quads, found without parsing it.

The parser follows them by recursion in native code, without a limit: a file that nests some ten thousand ends the
process. So files are looked through before it gets them. This reads just enough of N-Quads and Turtle to tell what is
text, an IRI or a comment; where it takes something for another thing than the parser does, that is no RDF.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

HARMLESS_MAX: Final = 100
"""Triple terms in a whole file, whatever their depth: most files have none, and need no closer look."""
_OPENING, _CLOSING = b"<<(", b")>>"
_LONGEST: Final = 3
"""Bytes of the longest token that counts."""

_PLAIN: Final = re.compile(rb"\\.|<<\(|\)>>|<<|<|\"\"\"|'''|\"|'|#", re.DOTALL)
_ENDS: Final[Mapping[bytes, re.Pattern[bytes]]] = {
    b"<": re.compile(rb">"),
    b"#": re.compile(rb"[\r\n]"),
    b'"': re.compile(rb'\\.|"', re.DOTALL),
    b"'": re.compile(rb"\\.|'", re.DOTALL),
    b'"""': re.compile(rb'\\.|"""', re.DOTALL),
    b"'''": re.compile(rb"\\.|'''", re.DOTALL),
}
"""What ends each thing that triple terms are not looked for in."""


def is_too_deep(pieces: Iterable[bytes], depth_max: int) -> bool:
    """Whether triple terms are nested deeper than this, in a file that is given in pieces."""
    scan = _Scan()
    return any(scan.take(piece) > depth_max for piece in pieces) or scan.finish() > depth_max


def count_openings(pieces: Iterable[bytes]) -> int:
    """How many triple terms a file may have: what looks like the beginning of one, wherever it stands."""
    count, tail = 0, b""
    for piece in pieces:
        joined = tail + piece
        count += joined.count(_OPENING)
        tail = joined[-(len(_OPENING) - 1) :]
    return count


class _Scan:
    def __init__(self) -> None:
        self._within: bytes | None = None
        """What began and has not ended: a text, an IRI or a comment."""
        self._depth = 0
        self._deepest = 0
        self._rest = b""

    def take(self, piece: bytes) -> int:
        """The greatest depth so far."""
        return self._scan(self._rest + piece, keep=_LONGEST - 1)

    def finish(self) -> int:
        return self._scan(self._rest, keep=0)

    def _scan(self, data: bytes, keep: int) -> int:
        """All but the last bytes, which may be the beginning of a token."""
        at, end = 0, len(data) - keep
        while at < end and (found := self._pattern.search(data, at)) is not None and found.start() < end:
            at = found.end()
            self._see(found.group())
        self._rest = data[max(at, end) :] if end > 0 else data
        return self._deepest

    @property
    def _pattern(self) -> re.Pattern[bytes]:
        return _PLAIN if self._within is None else _ENDS[self._within]

    def _see(self, token: bytes) -> None:
        if token.startswith(b"\\"):
            return
        if self._within is not None:
            self._within = None
        elif token in _ENDS:
            self._within = token
        elif token == _OPENING:
            self._depth += 1
            self._deepest = max(self._deepest, self._depth)
        elif token == _CLOSING:
            self._depth = max(self._depth - 1, 0)
