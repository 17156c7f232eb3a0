"""The JSON copy: canonical (RFC 8785), written piece by piece as the walk goes.

    {"corpus": {}, "documents": [], "drillcore_export": 1, "facts": [], "history": [], "nodes": [], "parents": [],
     "revision": n}

`parents` has, for each node in the order of `nodes`, the id of its parent; null for the master. The order of the parts
is that of RFC 8785, so the walk is told as it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from drillcore_server.domain.ids import NodeId, Revision
from drillcore_server.exporting.canonical import canonical
from drillcore_server.exporting.walk import Item, Part

EXPORT_FORMAT: Final = 1
_NOBODY: Final = bytes(16)
_ID_BYTES: Final = 16
_OPENINGS: Final = {
    Part.CORPUS: b'{"corpus":',
    Part.DOCUMENT: b',"documents":[',
    Part.FACT: b'],"drillcore_export":%d,"facts":[' % EXPORT_FORMAT,
    Part.REVISION: b'],"history":[',
    Part.NODE: b'],"nodes":[',
}


class JsonCopy:
    """Writes the copy through `write`. What grows with the corpus are 16 bytes for each node."""

    def __init__(self, write: Callable[[bytes], object], revision: Revision) -> None:
        self._write = write
        self._revision = revision
        self._to_open = list(Part)
        self._first = True
        self._parents = bytearray()

    def take(self, item: Item) -> None:
        self._open(item.part)
        separator = b"" if self._first else b","
        self._first = False
        self._write(separator + canonical(item.content))
        if item.part is Part.NODE:
            self._parents += _NOBODY if item.parent is None else item.parent.bytes

    def end(self) -> None:
        self._open(Part.NODE)
        self._write(b'],"parents":[')
        for place in range(0, len(self._parents), _ID_BYTES):
            self._write((b"," if place else b"") + _parent(bytes(self._parents[place : place + _ID_BYTES])))
        self._write(b'],"revision":%d}' % self._revision)

    def _open(self, part: Part) -> None:
        """Opens the parts up to this one; those without items stay empty."""
        while part in self._to_open:
            self._write(_OPENINGS[self._to_open.pop(0)])
            self._first = True


def _parent(stored: bytes) -> bytes:
    return b"null" if stored == _NOBODY else b'"%s"' % str(NodeId(UUID(bytes=stored))).encode()
