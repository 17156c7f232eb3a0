"""The library of a core: documents that came with cores of other systems, parents before their parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore.cores.records import LibraryDocument
from drillcore_server.cores.core_file import CoreFile
from drillcore_server.domain import foreign
from drillcore_server.exporting.sorted_file import SortedFile
from drillcore_server.store import library
from drillcore_server.store.library import LibraryPlaces
from drillcore_server.store.snapshot import Snapshot

_DEPTH_BYTES: Final = 4
_IN_A_CIRCLE: Final = (1 << 8 * _DEPTH_BYTES) - 1
_PLACE: Final = "S16"
"""Whose zeros at the end numpy leaves out, which makes no two the same: all are of one length."""


def write_library(core: CoreFile, snapshot: Snapshot, places: LibraryPlaces) -> None:
    for document in foreign_documents(snapshot, places):
        core.describe(_described(document))
        core.foreign_documents += 1
        if document.has_content:
            core.blob(document.id, document.size_bytes, library.content(snapshot, places(document.id)))


def foreign_documents(snapshot: Snapshot, places: LibraryPlaces) -> Iterator[foreign.LibraryDocument]:
    """By how many others they are below, then by id. What is held in memory is 36 bytes each."""
    depths = _depths(snapshot, places)
    with SortedFile() as in_order:
        for number, document in enumerate(library.documents(snapshot)):
            in_order.add(int(depths[number]).to_bytes(_DEPTH_BYTES, "big") + document.id.encode())
        for item in in_order:
            place = places(item[_DEPTH_BYTES:].decode())
            yield from snapshot.each_left([place], library.find)


def _depths(snapshot: Snapshot, places: LibraryPlaces) -> npt.NDArray[np.int64]:
    """Of each document, in the order of their places, in which they are stored."""
    own, above = bytearray(), bytearray()
    for document in library.documents(snapshot):
        own += places(document.id)
        above += places(document.parent) if document.parent else bytes(16)
    parents = _found(bytes(own), bytes(above))
    depths = np.where(parents < 0, 0, _IN_A_CIRCLE)
    depth, level = 0, np.flatnonzero(parents < 0)
    children = np.argsort(parents, kind="stable")
    sorted_parents = parents[children]
    while len(level):
        depth += 1
        begin, end = np.searchsorted(sorted_parents, level), np.searchsorted(sorted_parents, level, "right")
        level = np.concatenate([children[b:e] for b, e in zip(begin, end, strict=True)] or [level[:0]])
        depths[level] = depth
    return depths


def _found(own: bytes, above: bytes) -> npt.NDArray[np.int64]:
    """The number of each document's parent, among places that are in order; -1 if it is not there."""
    places, parents = np.frombuffer(own, _PLACE), np.frombuffer(above, _PLACE)
    if not len(places):
        return np.empty(0, np.int64)
    found = np.minimum(np.searchsorted(places, parents), len(places) - 1)
    return np.where(places[found] == parents, found, -1)


def _described(document: foreign.LibraryDocument) -> LibraryDocument:
    return LibraryDocument(
        document.id,
        document.media_type,
        document.title,
        document.parent,
        document.document_type,
        document.comments,
        document.tags,
    )
