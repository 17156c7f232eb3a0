"""The JSON copy: canonical (RFC 8785), written piece by piece during the walk.

    {"corpus": {}, "documents": [], "drillcore_export": 1, "facts": [], "history": [], "nodes": [], "parents": [],
     "revision": n}

`parents` has the id of each node's parent, in the order of `nodes`; null for the master. RFC 8785 sorts the parts as
the walk does, so they can be written as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from drillcore_server.exports.walk import Item, Part
from drillcore_server.kernel.canonical_json import canonical
from drillcore_server.storage.ids import NodeId, Revision

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
    """Writes the copy through `write`. Holds 16 bytes in memory for each node."""

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
        """Opens the parts up to this one. Parts without items stay empty."""
        while part in self._to_open:
            self._write(_OPENINGS[self._to_open.pop(0)])
            self._first = True


def _parent(stored: bytes) -> bytes:
    return b"null" if stored == _NOBODY else b'"%s"' % str(NodeId(UUID(bytes=stored))).encode()
